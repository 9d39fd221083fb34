/* SPDX-License-Identifier: MIT */
/*
 * Cases as the BPF conformance data have them: sections that begin with a line
 * "-- name". asm: a program's text; raw: its bytes, pairs of hexadecimal digits
 * or whole instructions as 0x and 16 digits; mem: bytes of memory; result: r0;
 * error: it must be refused; c: a comment.
 */
#include "vm_int.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_FILE_BYTES ((off_t)64 << 20)

enum section { ASM, RAW, MEM, RESULT, ERROR, COMMENT, SECTIONS };

static const char *const section_names[] = {"asm", "raw", "mem", "result", "error", "c"};

/* What the sections hold, each without the others and without comments. */
struct parts {
	char *text[SECTIONS];
	size_t used[SECTIONS];
	uint32_t line[SECTIONS]; /* where it begins; 0: it is not there */
};

const char *tt_vm_read_hint(int err)
{
	switch (err) {
	case -EFBIG: return "at most 64 MiB are read";
	case -EISDIR: return "name the file in it";
	case -EACCES: return "may you read it?";
	default: return "is the name right?";
	}
}

int tt_vm_read_file(const char *path, char **ret_text, size_t *ret_bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), err = 0;
	size_t used = 0, room = 0;
	char *text = NULL;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		err = -errno;
	else if (st.st_size > MAX_FILE_BYTES)
		err = -EFBIG;
	/* Pipes have no size: read until there is no more. */
	while (!err) {
		ssize_t n;

		if (used == room) {
			char *longer = realloc(text, room = room * 2 + 4096);

			if (!longer) {
				err = -ENOMEM;
				break;
			}
			text = longer;
		}
		n = read(fd, text + used, room - used);
		if (n == 0)
			break;
		if (n < 0 && errno != EINTR)
			err = -errno;
		else if (n > 0 && (off_t)(used += (size_t)n) > MAX_FILE_BYTES)
			err = -EFBIG;
	}
	if (fd >= 0)
		close(fd);
	if (err) {
		free(text);
		return err;
	}
	*ret_text = text;
	*ret_bytes = used;
	return 0;
}

__attribute__((format(printf, 3, 4))) static int fail(struct tutti_vm_error *error, uint32_t line,
						      const char *format, ...)
{
	va_list list;
	int used;

	*error = (struct tutti_vm_error){.insn = -1, .reg = -1, .line = line};
	used = snprintf(error->text, sizeof(error->text), "line %" PRIu32 ": ", line);
	va_start(list, format);
	vsnprintf(error->text + used, sizeof(error->text) - (size_t)used, format, list);
	va_end(list);
	return -EINVAL;
}

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* --- sections ------------------------------------------------------------------------- */

static void append(struct parts *parts, enum section section, const char *at, size_t len)
{
	memcpy(parts->text[section] + parts->used[section], at, len);
	parts->used[section] += len;
}

static int section_of(const char *at, size_t len)
{
	while (len && is_space(at[len - 1]))
		len--;
	for (int i = 0; i < SECTIONS; i++)
		if (len == strlen(section_names[i]) && memcmp(at, section_names[i], len) == 0)
			return i;
	return -1;
}

/* Every line goes to its section; to the assembler's, a newline for each of the others. */
static int split(const char *text, size_t bytes, struct parts *parts,
		 struct tutti_vm_error *ret_error)
{
	const char *end = text + bytes, *next;
	enum section now = ASM;
	uint32_t number = 0;

	for (const char *at = text; at < end; at = next) {
		const char *newline = memchr(at, '\n', (size_t)(end - at)), *hash;
		size_t len = (size_t)((newline ? newline : end) - at);
		int section;

		next = newline ? newline + 1 : end;
		number++;
		if (len >= 3 && memcmp(at, "-- ", 3) == 0) {
			section = section_of(at + 3, len - 3);
			if (section < 0)
				return fail(ret_error, number,
					    "there is no section '%.*s': they are asm, raw, mem, "
					    "result, error and c",
					    (int)(len - 3 < 40 ? len - 3 : 40), at + 3);
			now = (enum section)section;
			if (!parts->line[now])
				parts->line[now] = number;
			len = 0;
		}
		if (now == ASM && !parts->line[ASM] && len)
			parts->line[ASM] = number;
		hash = now == ASM ? NULL : memchr(at, '#', len);
		append(parts, now, at, hash ? (size_t)(hash - at) : len);
		append(parts, now, "\n", 1);
		if (now != ASM)
			append(parts, ASM, "\n", 1);
	}
	return 0;
}

/* Comments above the first section make no program. */
static bool is_blank(const char *text, size_t bytes)
{
	bool comment = false;

	for (size_t i = 0; i < bytes; i++) {
		if (text[i] == '\n')
			comment = false;
		else if (text[i] == '#' || text[i] == ';')
			comment = true;
		else if (!comment && !is_space(text[i]))
			return false;
	}
	return true;
}

/* --- numbers -------------------------------------------------------------------------- */

static int digit_of(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

int tt_vm_parse_hex(const char *text, size_t len, void **ret_bytes, size_t *ret_count)
{
	uint8_t *bytes = malloc(len / 2 + 1);
	size_t count = 0, i = 0;

	if (!bytes)
		return -ENOMEM;
	while (i < len) {
		int high = digit_of(text[i]), low;

		if (is_space(text[i])) {
			i++;
			continue;
		}
		low = i + 1 < len ? digit_of(text[i + 1]) : -1;
		if (high < 0 || low < 0) {
			free(bytes);
			return -EINVAL;
		}
		bytes[count++] = (uint8_t)(high << 4 | low);
		i += 2;
	}
	*ret_bytes = bytes;
	*ret_count = count;
	return 0;
}

/* Instructions as words, "0x5566778800000018": to pairs of digits in the order of memory. */
static bool unfold_words(char *text, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		char digits[16];

		if (text[i] != '0' || i + 1 == bytes || text[i + 1] != 'x')
			continue;
		if (bytes - i < 18)
			return false;
		memcpy(digits, text + i + 2, 16);
		text[i] = text[i + 1] = ' ';
		for (int k = 0; k < 16; k += 2)
			memcpy(text + i + 2 + k, digits + 14 - k, 2);
		i += 17;
	}
	return true;
}

static bool parse_result(const char *text, size_t bytes, uint64_t *ret_value)
{
	uint64_t value = 0;
	size_t i = 0, digits = 0;

	while (i < bytes && is_space(text[i]))
		i++;
	if (i + 1 < bytes && text[i] == '0' && (text[i + 1] | 0x20) == 'x')
		i += 2;
	for (; i < bytes && digit_of(text[i]) >= 0; i++, digits++)
		value = value << 4 | (uint64_t)digit_of(text[i]);
	while (i < bytes && is_space(text[i]))
		i++;
	*ret_value = value;
	return digits && digits <= 16 && i == bytes;
}

/* --- the whole ------------------------------------------------------------------------- */

static int take_parts(struct parts *parts, struct tt_vm_data *data,
		      struct tutti_vm_error *ret_error)
{
	int err = 0;

	data->has_error = parts->line[ERROR];
	if (parts->line[ASM] &&
	    !(parts->line[RAW] && is_blank(parts->text[ASM], parts->used[ASM]))) {
		data->text = parts->text[ASM];
		data->text_bytes = parts->used[ASM];
		parts->text[ASM] = NULL;
	}
	if (parts->line[RAW]) {
		void *raw = NULL;
		size_t count = 0;

		if (!unfold_words(parts->text[RAW], parts->used[RAW]))
			return fail(ret_error, parts->line[RAW],
				    "an instruction as a word has 0x and 16 digits");
		err = tt_vm_parse_hex(parts->text[RAW], parts->used[RAW], &raw, &count);
		if (!err && count % sizeof(struct tutti_vm_insn) != 0) {
			free(raw);
			err = -EINVAL;
		}
		if (err == -EINVAL)
			return fail(ret_error, parts->line[RAW],
				    "raw has pairs of hexadecimal digits, 8 for an instruction");
		data->raw = raw;
		data->n_raw = (uint32_t)(count / sizeof(struct tutti_vm_insn));
	}
	if (!err && parts->line[MEM]) {
		err = tt_vm_parse_hex(parts->text[MEM], parts->used[MEM], &data->mem,
				      &data->mem_bytes);
		if (err == -EINVAL)
			return fail(ret_error, parts->line[MEM],
				    "mem has pairs of hexadecimal digits");
	}
	data->has_result = parts->line[RESULT];
	if (!err && data->has_result &&
	    !parse_result(parts->text[RESULT], parts->used[RESULT], &data->result))
		return fail(ret_error, parts->line[RESULT],
			    "result has one hexadecimal number of at most 16 digits");
	return err;
}

int tt_vm_data_parse(const char *text, size_t bytes, struct tt_vm_data *ret_data,
		     struct tutti_vm_error *ret_error)
{
	struct parts parts = {.text = {NULL}};
	struct tt_vm_data data = {.text = NULL};
	int err = 0;

	for (int i = 0; i < SECTIONS && !err; i++) {
		parts.text[i] = malloc(bytes + 1);
		err = parts.text[i] ? 0 : -ENOMEM;
	}
	if (!err)
		err = split(text, bytes, &parts, ret_error);
	if (!err)
		err = take_parts(&parts, &data, ret_error);
	if (err == -ENOMEM)
		fail(ret_error, 0, "out of memory");
	for (int i = 0; i < SECTIONS; i++)
		free(parts.text[i]);
	if (err)
		tt_vm_data_fini(&data);
	else
		*ret_data = data;
	return err;
}

void tt_vm_data_fini(struct tt_vm_data *data)
{
	free(data->text);
	free(data->raw);
	free(data->mem);
	memset(data, 0, sizeof(*data));
}

static int compare(const struct tt_vm_data *data, const struct tutti_vm_object *object,
		   struct tutti_vm_error *ret_error)
{
	const struct tutti_vm_insn *insns;
	uint32_t count = tutti_vm_object_insns(object, &insns);

	if (count == data->n_raw && memcmp(insns, data->raw, count * sizeof(*insns)) == 0)
		return 0;
	*ret_error = (struct tutti_vm_error){.insn = -1, .reg = -1};
	snprintf(ret_error->text, sizeof(ret_error->text),
		 "asm and raw are not the same program: leave one of them out");
	return -EINVAL;
}

int tt_vm_data_object(const struct tt_vm_data *data, struct tutti_vm_object **ret_object,
		      struct tutti_vm_error *ret_error)
{
	struct tutti_vm_object *object = NULL;
	int err;

	if (data->raw && !data->text) {
		err = tutti_vm_object_from_insns(data->raw, data->n_raw, ret_object);
		if (err == -EINVAL)
			fail(ret_error, 1, "raw has no instruction, or more than %d",
			     TUTTI_VM_MAX_INSNS);
		else if (err)
			fail(ret_error, 1, "out of memory");
		return err;
	}
	err = tutti_vm_assemble(data->text ? data->text : "", data->text ? data->text_bytes : 0,
				&object, ret_error);
	if (!err && data->raw)
		err = compare(data, object, ret_error);
	if (err)
		tutti_vm_object_destroy(object);
	else
		*ret_object = object;
	return err;
}
