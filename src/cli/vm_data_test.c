/* SPDX-License-Identifier: MIT */
/* Reading cases; and the round trip of every program of the conformance data. */
#include "vm_int.h"

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int parse(const char *text, struct tt_vm_data *data, struct tutti_vm_error *error)
{
	size_t bytes = strlen(text);
	char *copy = malloc(bytes ? bytes : 1);
	int err;

	memcpy(copy, text, bytes);
	err = tt_vm_data_parse(copy, bytes, data, error);
	free(copy);
	return err;
}

static struct tt_vm_data parsed(const char *text)
{
	struct tutti_vm_error error;
	struct tt_vm_data data;

	if (parse(text, &data, &error))
		fail_msg("%s: %s", text, error.text);
	return data;
}

static void sections(void **state)
{
	struct tt_vm_data data = parsed("# who wrote it\n"
					"-- asm \r\n"
					"exit # done\n"
					"-- c\n"
					"#include <nonsense>\n"
					"-- mem\n"
					"00 1f # two\n"
					"fF\n"
					"-- error\n"
					"-- result\n"
					"0xFFFFFFFFFFFFFFF6");
	const uint8_t mem[] = {0x00, 0x1f, 0xff};

	/* Lines of the file. */
	assert_int_equal(strncmp(data.text, "# who wrote it\n\nexit # done\n\n\n\n\n\n\n", 34), 0);
	assert_int_equal(data.mem_bytes, 3);
	assert_memory_equal(data.mem, mem, 3);
	assert_null(data.raw);
	assert_true(data.has_error);
	assert_true(data.has_result);
	assert_true(data.result == 0xfffffffffffffff6);
	tt_vm_data_fini(&data);
	assert_null(data.text);

	data = parsed("exit");
	assert_non_null(data.text);
	assert_false(data.has_result);
	assert_false(data.has_error);
	assert_null(data.mem);
	tt_vm_data_fini(&data);
	data = parsed("");
	assert_null(data.text);
	tt_vm_data_fini(&data);
}

static void raw(void **state)
{
	struct tt_vm_data data = parsed("; nothing\n-- raw\n"
					"b7 01 fe ff 07 00 00 00\n"
					"0x0000000700000018 0x0000000000000000\n");

	assert_null(data.text);
	assert_int_equal(data.n_raw, 3);
	assert_int_equal(data.raw[0].code, 0xb7);
	assert_int_equal(data.raw[0].regs, 1);
	assert_int_equal(data.raw[0].off, -2);
	assert_int_equal(data.raw[0].imm, 7);
	assert_int_equal(data.raw[1].code, 0x18);
	assert_int_equal(data.raw[1].imm, 7);
	assert_int_equal(data.raw[2].code, 0);
	tt_vm_data_fini(&data);
}

static void wrong(void **state)
{
	static const struct {
		const char *text, *error;
	} cases[] = {
		{"exit\n-- asn\n", "line 2: there is no section 'asn': they are asm, raw, mem, "
				   "result, error and c"},
		{"-- ", "line 1: there is no section '': they are asm, raw, mem, result, error "
			"and c"},
		{"-- raw\n95 0",
		 "line 1: raw has pairs of hexadecimal digits, 8 for an instruction"},
		{"-- raw\n95 00",
		 "line 1: raw has pairs of hexadecimal digits, 8 for an instruction"},
		{"-- raw\n0x00", "line 1: an instruction as a word has 0x and 16 digits"},
		{"-- raw\n0x000000000000009x",
		 "line 1: raw has pairs of hexadecimal digits, 8 for an instruction"},
		{"\n-- mem\ng0", "line 2: mem has pairs of hexadecimal digits"},
		{"-- result\n\n", "line 1: result has one hexadecimal number of at most 16 digits"},
		{"-- result\n0x11112222333344445",
		 "line 1: result has one hexadecimal number of at most 16 digits"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct tt_vm_data data = {.text = NULL};
		struct tutti_vm_error error;

		assert_int_equal(parse(cases[i].text, &data, &error), -EINVAL);
		assert_string_equal(error.text, cases[i].error);
		assert_null(data.raw);
	}
}

static void programs(void **state)
{
	struct tutti_vm_object *object = NULL;
	const struct tutti_vm_insn *insns;
	struct tutti_vm_error error;
	struct tt_vm_data data =
		parsed("lddw %r0, 1\n-- raw\n0x0000000100000018\n0x0000000000000000");

	assert_int_equal(tt_vm_data_object(&data, &object, &error), 0);
	assert_int_equal(tutti_vm_object_insns(object, &insns), 2);
	tutti_vm_object_destroy(object);
	data.raw[1].imm = 1;
	object = NULL;
	assert_int_equal(tt_vm_data_object(&data, &object, &error), -EINVAL);
	assert_null(object);
	assert_non_null(strstr(error.text, "not the same program"));
	data.n_raw = 1;
	assert_int_equal(tt_vm_data_object(&data, &object, &error), -EINVAL);
	tt_vm_data_fini(&data);

	data = parsed("-- raw\n");
	assert_int_equal(tt_vm_data_object(&data, &object, &error), -EINVAL);
	tt_vm_data_fini(&data);
	data = parsed("-- mem\n00");
	assert_int_equal(tt_vm_data_object(&data, &object, &error), -EINVAL);
	assert_non_null(strstr(error.text, "the text has no instruction"));
	tt_vm_data_fini(&data);
}

/* --- the conformance data -------------------------------------------------------------- */

/* All instructions as text, which is assembled as a whole. */
static void round_trip(const char *path, struct tutti_vm_object *object)
{
	struct tutti_vm_object *again = NULL;
	const struct tutti_vm_insn *insns, *same;
	uint32_t count = tutti_vm_object_insns(object, &insns);
	char *text = malloc(count * 64 + 1), *at = text;
	struct tutti_vm_error error;

	for (uint32_t i = 0; i < count;) {
		int slots = tutti_vm_disassemble(insns, count, i, at, 64);

		if (slots < 0)
			fail_msg("%s: %s", path, at);
		at = stpcpy(at + strlen(at), "\n");
		i += (uint32_t)slots;
	}
	if (tutti_vm_assemble(text, (size_t)(at - text), &again, &error))
		fail_msg("%s: %s", path, error.text);
	assert_int_equal(tutti_vm_object_insns(again, &same), count);
	assert_memory_equal(same, insns, count * sizeof(*insns));
	tutti_vm_object_destroy(again);
	free(text);
}

static void conformance_data(void **state)
{
	const char *cases = getenv("TUTTI_CASES"), *source = getenv("TUTTI_SOURCE");
	char dir[512], path[1024], *text;
	unsigned done = 0;
	struct dirent *entry;
	size_t bytes;
	DIR *list;

	snprintf(dir, sizeof(dir), "%s%s/bpf_conformance/tests",
		 cases	  ? cases
		 : source ? source
			  : ".",
		 cases ? "" : "/../shared/cases");
	list = opendir(dir);
	if (!list) {
		print_message("there is no %s: TUTTI_CASES names where it is\n", dir);
		skip();
	}
	while ((entry = readdir(list))) {
		struct tutti_vm_object *object;
		struct tutti_vm_error error;
		struct tt_vm_data data;

		/* Two have a section of their own project's, and an instruction that is none. */
		if (*entry->d_name == '.' || !strcmp(entry->d_name, "callx.data") ||
		    !strcmp(entry->d_name, "call_unwind_fail.data"))
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
		assert_int_equal(tt_vm_read_file(path, &text, &bytes), 0);
		if (tt_vm_data_parse(text, bytes, &data, &error) ||
		    tt_vm_data_object(&data, &object, &error))
			fail_msg("%s: %s", path, error.text);
		round_trip(path, object);
		tutti_vm_object_destroy(object);
		tt_vm_data_fini(&data);
		free(text);
		done++;
	}
	closedir(list);
	assert_true(done > 200);
}

static void files(void **state)
{
	char *text;
	size_t bytes;
	int fds[2];
	char path[64];

	assert_int_equal(tt_vm_read_file("/nowhere/at/all", &text, &bytes), -ENOENT);
	assert_int_equal(tt_vm_read_file("/", &text, &bytes), -EISDIR);
	/* A file without a size. */
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(write(fds[1], "exit\n", 5), 5);
	close(fds[1]);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[0]);
	assert_int_equal(tt_vm_read_file(path, &text, &bytes), 0);
	assert_int_equal(bytes, 5);
	assert_memory_equal(text, "exit\n", 5);
	free(text);
	close(fds[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sections), cmocka_unit_test(raw),
		cmocka_unit_test(wrong),    cmocka_unit_test(programs),
		cmocka_unit_test(files),    cmocka_unit_test(conformance_data),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
