/* SPDX-License-Identifier: MIT */
/* All cases below a folder, each by itself: what must run runs, what must be refused is. */
#include "vm_int.h"

#include "cli_int.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_DEPTH 16

struct suite {
	enum tt_vm_engine engine;
	struct tt_json *json; /* NULL: text */
	uint32_t n_passed, n_failed, n_skipped;
};

static const struct {
	const char *file, *why;
} left_out[] = {
	{"callx.data", "calls helper 5 of the project that the case is from"},
	{"call_unwind_fail.data", "calls helper 5 of the project that the case is from"},
	{"empty.data", "tests how the project that it is from reads files"},
	{"incorrect_return_value_high_bits.data",
	 "tests that the project that it is from notices a wrong result"},
};

static void note(struct suite *s, bool skipped, const char *path, const char *why)
{
	if (skipped)
		s->n_skipped++;
	else
		s->n_failed++;
	if (s->json) {
		tt_json_open(s->json, NULL, '{');
		tt_json_str(s->json, "file", path);
		tt_json_str(s->json, "outcome", skipped ? "skipped" : "failed");
		tt_json_str(s->json, "reason", why);
		tt_json_close(s->json, '}');
	} else {
		fprintf(skipped ? stdout : stderr, "%s: %s%s\n", path, skipped ? "left out: " : "",
			why);
	}
}

__attribute__((format(printf, 3, 4))) static void fail(struct suite *s, const char *path,
						       const char *format, ...)
{
	char text[400];
	va_list list;

	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	note(s, false, path, text);
}

/* Refused as it must be; and it was said where. */
static void judge_refusal(struct suite *s, const char *path, const struct tutti_vm_error *error)
{
	if (!error->line && error->insn < 0)
		fail(s, path, "it was refused, but without a line or an instruction: %s",
		     error->text);
	else
		s->n_passed++;
}

static void judge_run(struct suite *s, const char *path, const struct tt_vm_data *data,
		      const struct tt_vm_outcome *outcome, bool must_fail)
{
	if (outcome->end == TT_VM_FAILED)
		fail(s, path, "%s", outcome->error.text);
	else if (must_fail && outcome->end == TT_VM_REFUSED)
		judge_refusal(s, path, &outcome->error);
	else if (must_fail)
		fail(s, path, "it must be refused, and was accepted");
	else if (outcome->end != TT_VM_DONE)
		fail(s, path, "%s", outcome->error.text);
	else if (outcome->result.r0 != data->result)
		fail(s, path, "r0 is 0x%" PRIx64 ", not 0x%" PRIx64, outcome->result.r0,
		     data->result);
	else
		s->n_passed++;
}

static void judge(struct suite *s, const char *path, const struct tt_vm_data *data, bool must_fail)
{
	struct tutti_vm_object *object;
	struct tt_vm_outcome outcome;
	struct tutti_vm_error error;
	int err;

	if (!must_fail && !data->has_result) {
		note(s, true, path, "has neither a result nor an error");
		return;
	}
	err = tt_vm_data_object(data, &object, &error);
	if (err == -EINVAL && must_fail)
		return judge_refusal(s, path, &error);
	if (err)
		return fail(s, path, "%s", error.text);
	tt_vm_try(object, data->mem, data->mem_bytes, s->engine, TT_VM_DEFAULT_BUDGET, &outcome);
	judge_run(s, path, data, &outcome, must_fail);
	tutti_vm_object_destroy(object);
}

/* Some cases below "negative" say what would be the result, were they not refused. */
static void run_file(struct suite *s, const char *path, const char *name, bool negative)
{
	struct tutti_vm_error error;
	struct tt_vm_data data;
	size_t bytes;
	char *text;
	int err;

	for (size_t i = 0; i < sizeof(left_out) / sizeof(left_out[0]); i++)
		if (!strcmp(name, left_out[i].file))
			return note(s, true, path, left_out[i].why);
	err = tt_vm_read_file(path, &text, &bytes);
	if (err)
		return fail(s, path, "it cannot be read: %s", strerror(-err));
	err = tt_vm_data_parse(text, bytes, &data, &error);
	free(text);
	if (err == -EINVAL && negative)
		return judge_refusal(s, path, &error);
	if (err)
		return fail(s, path, "%s", error.text);
	judge(s, path, &data, negative || data.has_error);
	tt_vm_data_fini(&data);
}

static bool is_case(const char *name)
{
	size_t len = strlen(name);

	return len > 5 && !strcmp(name + len - 5, ".data");
}

static bool is_negative(const char *dir)
{
	size_t len = strlen(dir);

	while (len && dir[len - 1] == '/')
		len--;
	return len >= 8 && !memcmp(dir + len - 8, "negative", 8) &&
	       (len == 8 || dir[len - 9] == '/');
}

/* In the order of names; links to folders are not followed. */
static int run_dir(struct suite *s, const char *dir, int depth)
{
	struct dirent **names;
	int n = scandir(dir, &names, NULL, alphasort), err = 0;

	if (n < 0)
		return -errno;
	for (int i = 0; i < n; i++) {
		const char *name = names[i]->d_name;
		char *path = NULL;
		struct stat st;

		if (!err && *name != '.' && asprintf(&path, "%s/%s", dir, name) < 0) {
			path = NULL;
			err = -ENOMEM;
		}
		if (!err && path && lstat(path, &st) == 0 && S_ISDIR(st.st_mode))
			err = depth < MAX_DEPTH ? run_dir(s, path, depth + 1) : -ELOOP;
		else if (!err && path && is_case(name))
			run_file(s, path, name, is_negative(dir));
		free(path);
		free(names[i]);
	}
	free(names);
	return err;
}

int tt_vm_conformance(const char *dir, enum tt_vm_engine engine, bool json)
{
	struct tt_json j;
	struct suite s = {.engine = engine, .json = NULL};
	int err, status;

	tt_json_init(&j);
	if (json)
		s.json = &j;
	tt_json_open(&j, NULL, '{');
	tt_json_open(&j, "not_passed", '[');
	err = run_dir(&s, dir, 0);
	tt_json_close(&j, ']');
	tt_json_uint(&j, "passed", s.n_passed);
	tt_json_uint(&j, "failed", s.n_failed);
	tt_json_uint(&j, "skipped", s.n_skipped);
	tt_json_close(&j, '}');
	status = s.n_failed ? TT_EXIT_FAILED : TT_EXIT_OK;
	if (err)
		status = tt_cli_fail(dir, strerror(-err), "is it the folder of the cases?");
	else if (!s.n_passed && !s.n_failed && !s.n_skipped)
		status = tt_cli_fail(dir, "there is no file *.data in it",
				     "is it the folder of the cases?");
	else if (json)
		return tt_vm_print_json("vm conformance", &j, status);
	else
		printf("%" PRIu32 " passed, %" PRIu32 " failed, %" PRIu32 " skipped\n", s.n_passed,
		       s.n_failed, s.n_skipped);
	tt_json_fini(&j);
	return status;
}
