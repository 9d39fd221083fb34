/* SPDX-License-Identifier: MIT */
/* .BTF.ext: which line of the source made an instruction. */
#include "vm/btf_int.h"

#include <stdlib.h>
#include <string.h>

enum {
	MAX_TEXT = 200, /* of a source line; the rest is cut off */
};

/* A line of a source is anybody's text: on terminals it must be nothing else. */
static bool is_blank(char c)
{
	return (c > 0 && c <= ' ') || c == 0x7f;
}

static char *copy_line(const char *text)
{
	size_t length;
	char *copy;

	while (is_blank(*text))
		text++;
	length = strnlen(text, MAX_TEXT);
	while (length && is_blank(text[length - 1]))
		length--;
	copy = strndup(text, length);
	for (size_t i = 0; copy && i < length; i++)
		if (is_blank(copy[i]))
			copy[i] = ' ';
	return copy;
}

/* Without its folders, which say more about the compiler's machine than about the module. */
static char *copy_file(const char *path)
{
	size_t length = strnlen(path, 4096);

	for (const char *slash; (slash = memchr(path, '/', length));) {
		length -= (size_t)(slash + 1 - path);
		path = slash + 1;
	}
	return copy_line(path);
}

/* Of several lines of one instruction the last one counts. */
static struct tt_vm_line *next_line(struct tutti_vm_object *object, uint32_t insn)
{
	struct tt_vm_line *last = object->n_lines ? &object->lines[object->n_lines - 1] : NULL;

	if (!last || last->insn != insn)
		return &object->lines[object->n_lines++];
	free(last->file);
	free(last->text);
	return last;
}

static int read_line(struct tt_elf *elf, const struct tt_elf_section *code,
		     const struct tt_btf_line *record, uint32_t capacity)
{
	struct tutti_vm_object *object = elf->object;
	const char *file = tt_btf_text(&elf->btf, record->file);
	const char *text = tt_btf_text(&elf->btf, record->text);
	struct tt_vm_line *line;
	uint32_t insn;

	if (record->insn_off % sizeof(struct tutti_vm_insn) || record->insn_off >= code->size ||
	    !file || !text || object->n_lines == capacity)
		return tt_elf_fail(elf, -1,
				   "section \".BTF.ext\" is broken: a line of section "
				   "\"%.40s\" makes no sense",
				   code->name);
	/* Line 0: the compiler's own doing; the line before says more. */
	if (!(record->line_column >> 10))
		return 0;
	insn = code->base + (uint32_t)(record->insn_off / sizeof(struct tutti_vm_insn));
	line = next_line(object, insn);
	*line = (struct tt_vm_line){.insn = insn,
				    .line = record->line_column >> 10,
				    .column = record->line_column & 0x3ff};
	line->file = *file ? copy_file(file) : NULL;
	line->text = *text ? copy_line(text) : NULL;
	if ((*file && !line->file) || (*text && !line->text))
		return tt_elf_no_memory(elf);
	return 0;
}

static struct tt_elf_section *find_code(struct tt_elf *elf, const char *name)
{
	for (uint32_t i = 1; name && i < elf->n_sections; i++)
		if (elf->sections[i].kind == TT_ELF_CODE && elf->sections[i].size &&
		    !strcmp(elf->sections[i].name, name))
			return &elf->sections[i];
	return NULL;
}

static int compare_lines(const void *a, const void *b)
{
	const struct tt_vm_line *x = a, *y = b;

	return x->insn < y->insn ? -1 : x->insn > y->insn;
}

/* All of the lines' part of .BTF.ext: the size of a record, then section after section. */
static int read_lines(struct tt_elf *elf, const uint8_t *bytes, size_t left)
{
	struct tutti_vm_object *object = elf->object;
	uint32_t record_bytes, capacity = (uint32_t)(left / sizeof(struct tt_btf_line));
	const char *broken = "section \".BTF.ext\" is truncated or broken";

	if (!left)
		return 0;
	if (left < sizeof record_bytes)
		return tt_elf_fail(elf, -1, "%s", broken);
	memcpy(&record_bytes, bytes, sizeof record_bytes);
	bytes += sizeof record_bytes;
	left -= sizeof record_bytes;
	if (record_bytes < sizeof(struct tt_btf_line))
		return tt_elf_fail(elf, -1, "%s", broken);
	/* Never more lines than instructions. */
	if (capacity > object->n_insns)
		capacity = object->n_insns;
	object->lines = calloc(capacity + 1, sizeof *object->lines);
	if (!object->lines)
		return tt_elf_no_memory(elf);
	while (left) {
		struct tt_btf_ext_section part;
		struct tt_elf_section *code;

		if (left < sizeof part)
			return tt_elf_fail(elf, -1, "%s", broken);
		memcpy(&part, bytes, sizeof part);
		bytes += sizeof part;
		left -= sizeof part;
		code = find_code(elf, tt_btf_text(&elf->btf, part.name));
		/* Once for each: else searching for it could take for ever. */
		if (!code || code->has_lines || left / record_bytes < part.n_records)
			return tt_elf_fail(elf, -1, "%s", broken);
		code->has_lines = true;
		for (uint32_t i = 0; i < part.n_records; i++) {
			struct tt_btf_line record;
			int err;

			memcpy(&record, bytes, sizeof record);
			err = read_line(elf, code, &record, capacity);
			if (err)
				return err;
			bytes += record_bytes;
			left -= record_bytes;
		}
	}
	qsort(object->lines, object->n_lines, sizeof *object->lines, compare_lines);
	return 0;
}

/* The instruction that the first CO-RE relocation is for, for a message; -1: broken. */
static int32_t first_core_insn(struct tt_elf *elf, const uint8_t *bytes, size_t left)
{
	struct tt_btf_ext_section part;
	const struct tt_elf_section *code;
	uint32_t insn_off;

	/* As with lines, the size of a record comes first, its offset first in the record. */
	if (left < sizeof(uint32_t) + sizeof part + sizeof insn_off)
		return -1;
	memcpy(&part, bytes + sizeof(uint32_t), sizeof part);
	memcpy(&insn_off, bytes + sizeof(uint32_t) + sizeof part, sizeof insn_off);
	code = find_code(elf, tt_btf_text(&elf->btf, part.name));
	if (!code || insn_off >= code->size)
		return -1;
	return (int32_t)(code->base + insn_off / sizeof(struct tutti_vm_insn));
}

int tt_btf_lines(struct tt_elf *elf)
{
	const struct tt_elf_section *s = tt_elf_find(elf, ".BTF.ext");
	const size_t least = offsetof(struct tt_btf_ext_header, core_off);
	struct tt_btf_ext_header header = {0};
	uint64_t rest;
	int err;

	if (!s || !elf->btf.strings)
		return 0;
	if (s->size < least || !s->bytes || s->flags & SHF_COMPRESSED)
		return tt_elf_fail(elf, -1, "section \".BTF.ext\" is truncated or compressed");
	memcpy(&header, s->bytes, least);
	if (header.magic != TT_BTF_MAGIC || header.version != TT_BTF_VERSION ||
	    header.bytes < least || header.bytes > s->size)
		return tt_elf_fail(elf, -1,
				   "section \".BTF.ext\" is of an unknown form: compile with "
				   "clang 14 or alike, -target bpf");
	if (header.bytes >= sizeof header)
		memcpy(&header, s->bytes, sizeof header);
	rest = s->size - header.bytes;
	if (header.line_off > rest || header.line_bytes > rest - header.line_off)
		return tt_elf_fail(elf, -1, "section \".BTF.ext\" is truncated or broken");
	err = read_lines(elf, s->bytes + header.bytes + header.line_off, header.line_bytes);
	if (err || !header.core_bytes)
		return err;
	if (header.core_off > rest || header.core_bytes > rest - header.core_off)
		return tt_elf_fail(elf, -1, "section \".BTF.ext\" is truncated or broken");
	return tt_elf_fail(
		elf,
		first_core_insn(elf, s->bytes + header.bytes + header.core_off, header.core_bytes),
		"a CO-RE relocation: here are no kernel structures to fit to; compile "
		"without preserve_access_index and __builtin_preserve_*");
}
