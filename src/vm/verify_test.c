/* SPDX-License-Identifier: MIT */
/*
 * The verifier: cases as data (tests/vm/verify, whose README says how they are
 * written), the conformance programs, and what cannot be written as text.
 */
#include "vm/isa.h"
#include "vm/verify.h"

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* --- environments ------------------------------------------------------------------ */

static int no_helper(struct tutti_vm_call *call)
{
	return 0;
}

#define ALL_BUT_SECRET (~(1ULL << 7))

/* Short names, so that the table is one. */
enum {
	ANY = TUTTI_VM_ARG_ANY,
	READ = TUTTI_VM_ARG_READ,
	WRITE = TUTTI_VM_ARG_WRITE,
	BYTES = TUTTI_VM_ARG_BYTES,
	MAP = TUTTI_VM_ARG_MAP,
	KEY = TUTTI_VM_ARG_KEY,
	VALUE = TUTTI_VM_ARG_VALUE,
	CTX = TUTTI_VM_ARG_CTX,
	R_NUMBER = TUTTI_VM_RET_NUMBER,
	R_NONE = TUTTI_VM_RET_NONE,
	R_VALUE = TUTTI_VM_RET_VALUE,
};

static const struct tutti_vm_helper helpers[] = {
	{"number", 1, R_NUMBER, {ANY}, 1, no_helper},
	{"nothing", 2, R_NONE, {0}, 1, no_helper},
	{"lookup", 3, R_VALUE, {MAP, KEY}, 1, no_helper},
	{"update", 4, R_NUMBER, {MAP, KEY, VALUE}, 1, no_helper},
	{"read", 5, R_NUMBER, {READ, BYTES}, 1, no_helper},
	{"write", 6, R_NUMBER, {0, WRITE, BYTES}, 1, no_helper},
	{"about", 7, R_NUMBER, {CTX}, 1, no_helper},
	{"secret", 8, R_NUMBER, {0}, 1, no_helper},
	{"last", 9, R_NUMBER, {ANY, ANY, ANY, ANY, READ}, 1, no_helper},
	{"orphan", 10, R_NUMBER, {KEY}, 1, no_helper},
};

static const struct tutti_vm_field fields[] = {{0, TUTTI_VM_PACKET}, {8, TUTTI_VM_EXTRA}};

static const struct tutti_vm_hook hooks[] = {
	{.args = 2, .arg = {{TUTTI_VM_PACKET, 0}, {0, 0}}, .helpers = ALL_BUT_SECRET},
	{.section = "ctx/small",
	 .args = 2,
	 .arg = {{TUTTI_VM_CTX, 8}, {TUTTI_VM_PACKET, 64}},
	 .helpers = 1},
	{.section = "ctx",
	 .args = 1,
	 .arg = {{TUTTI_VM_CTX, 32}},
	 .fields = fields,
	 .n_fields = 2,
	 .helpers = UINT64_MAX},
	{.section = "loose", .args = 1, .arg = {{TUTTI_VM_CTX, 0}}, .helpers = UINT64_MAX},
	{.section = "bare", .helpers = UINT64_MAX},
};

static const struct tutti_vm_env env_any = {hooks, 5, helpers, 10};
/* Without the hook that takes any section. */
static const struct tutti_vm_env env_named = {hooks + 1, 4, helpers, 10};

/* --- cases ------------------------------------------------------------------------- */

static unsigned n_cases, n_rejected, n_failed;

/* Says what is wrong with a case; the others are run all the same. */
#define case_failed(c, ...)                                                                        \
	do {                                                                                       \
		n_failed++;                                                                        \
		print_error("%s: %s: ", (c)->file, (c)->title);                                    \
		print_error(__VA_ARGS__);                                                          \
		print_error("\n");                                                                 \
	} while (0)

struct test_case {
	char file[64];
	char title[128];
	char text[16384];
	char expect[4096];
	char settings[1024];
	bool raw;
	unsigned line;
};

static void append(char *to, size_t bytes, const char *line)
{
	size_t used = strlen(to);

	assert_true(used + strlen(line) + 1 < bytes);
	memcpy(to + used, line, strlen(line) + 1);
}

static int hex(const char *text, uint8_t *ret_bytes, int most)
{
	int n = 0;

	for (const char *at = text; n < most;) {
		unsigned byte;
		int used;

		at += strspn(at, " \n");
		if (*at == '#')
			at += strcspn(at, "\n");
		else if (sscanf(at, "%2x%n", &byte, &used) != 1)
			break;
		else {
			ret_bytes[n++] = (uint8_t)byte;
			at += used;
		}
	}
	return n;
}

static struct tutti_vm_object *object_from_hex(const char *text)
{
	static uint8_t bytes[8192];
	struct tutti_vm_object *object = tt_vm_object_create();
	int n = hex(text, bytes, sizeof bytes);

	assert_true(n > 0 && n % 8 == 0);
	object->n_insns = (uint32_t)n / 8;
	object->insns = malloc((size_t)n);
	memcpy(object->insns, bytes, (size_t)n);
	assert_int_equal(tt_vm_object_split(object), 0);
	return object;
}

/* Makes function index an entry in a section, or what else the settings say. */
static void apply(struct tutti_vm_object *object, const char *line, const struct tutti_vm_env **env)
{
	unsigned a;
	char word[64];

	if (sscanf(line, "data %u", &a) == 1) {
		object->data = calloc(1, a);
		object->data_bytes = a;
	} else if (sscanf(line, "rodata %u", &a) == 1) {
		object->rodata = calloc(1, a);
		object->rodata_bytes = a;
	} else if (sscanf(line, "entry %u %63s", &a, word) == 2) {
		assert_true(a < object->n_funcs);
		free(object->funcs[a].section);
		object->funcs[a].section = strdup(word);
		object->funcs[a].entry = true;
	} else if (sscanf(line, "local %u", &a) == 1) {
		assert_true(a < object->n_funcs);
		object->funcs[a].entry = false;
	} else if (sscanf(line, "extern %63s", word) == 1) {
		object->externs =
			realloc(object->externs, (object->n_externs + 1) * sizeof *object->externs);
		object->externs[object->n_externs++] = strdup(word);
	} else if (strcmp(line, "named") == 0) {
		*env = &env_named;
	} else {
		fail_msg("no such setting: %s", line);
	}
}

static void check_note(const struct test_case *c, const struct tt_vm_verified *verified,
		       const char *line)
{
	static const char *const names[] = {"none", "stack",  "data", "rodata",
					    "ctx",  "packet", "maps", "extra"};
	const struct tt_vm_note *note;
	char how[16], window[16] = "", found[64];
	char *wanted = strchr(line, ' ');
	unsigned insn;
	int off = 0;

	assert_int_equal(sscanf(line, "%u %15s %15s %d", &insn, how, window, &off) >= 2, 1);
	note = &verified->notes[insn];
	if (strcmp(how, "target") == 0 || strcmp(how, "untarget") == 0)
		snprintf(found, sizeof found, " %s", note->target ? "target" : "untarget");
	else if (strcmp(how, "reached") == 0 || !note->reached)
		snprintf(found, sizeof found, " %s", note->reached ? "reached" : "unreached");
	else if (note->proved)
		snprintf(found, sizeof found, " proved %s %d", names[note->window], note->off);
	else
		snprintf(found, sizeof found, " %s %s", note->within ? "within" : "checked",
			 names[note->window]);
	assert_non_null(wanted);
	if (strcmp(wanted, found) != 0)
		case_failed(c, "instruction %u:%s, not%s", insn, found, wanted);
}

static void check_rejected(const struct test_case *c, int err, const struct tutti_vm_error *error,
			   const char *line)
{
	char wanted[400], found[400], insn[16] = "-", reg[16] = "-";
	const char *text = error->text, *after;

	/* Where it is, the public text says before; the words alone are compared. */
	if (error->insn >= 0) {
		after = strstr(text, "instruction ");
		assert_non_null(after);
		text = strstr(after, ": ") + 2;
		snprintf(insn, sizeof insn, "%d", error->insn);
	}
	if (error->reg >= 0)
		snprintf(reg, sizeof reg, "%d", error->reg);
	snprintf(wanted, sizeof wanted, "%s", line);
	snprintf(found, sizeof found, "%s insn %s reg %s: %s",
		 err == -EACCES	  ? "reject"
		 : err == -ENOENT ? "missing"
				  : "?",
		 insn, reg, text);
	if (strcmp(wanted, found) != 0)
		case_failed(c, "\n  found  %s\n  wanted %s", found, wanted);
}

static void run_case(struct test_case *c)
{
	struct tutti_vm_object *object = NULL;
	struct tutti_vm_error error = {0};
	struct tt_vm_verified verified = {0};
	const struct tutti_vm_env *env = &env_any;
	char *save, *line;
	int err = 0;

	n_cases++;
	if (c->raw)
		object = object_from_hex(c->text);
	else
		err = tutti_vm_assemble(c->text, strlen(c->text), &object, &error);
	if (err < 0)
		fail_msg("%s: %s: %s", c->file, c->title, error.text);
	for (line = strtok_r(c->settings, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		apply(object, line, &env);
	err = tt_vm_verify(object, env, &verified, &error);
	line = strtok_r(c->expect, "\n", &save);
	assert_non_null(line);
	if (strcmp(line, "accept") != 0) {
		n_rejected++;
		if (err < 0)
			check_rejected(c, err, &error, line);
		else
			case_failed(c, "accepted, not %s", line);
	} else if (err < 0) {
		case_failed(c, "refused: %s", error.text);
	} else {
		while ((line = strtok_r(NULL, "\n", &save)))
			check_note(c, &verified, line);
	}
	free(verified.notes);
	free(verified.hook_of_func);
	tutti_vm_object_destroy(object);
}

static void run_file(const char *dir, const char *name)
{
	static struct test_case c;
	char path[1024], line[512];
	char *into = NULL;
	size_t room = 0;
	FILE *file;

	snprintf(path, sizeof path, "%s/%s", dir, name);
	file = fopen(path, "r");
	assert_non_null(file);
	memset(&c, 0, sizeof c);
	while (fgets(line, sizeof line, file)) {
		if (strncmp(line, "== ", 3) == 0) {
			if (c.title[0])
				run_case(&c);
			memset(&c, 0, sizeof c);
			snprintf(c.file, sizeof c.file, "%.63s", name);
			snprintf(c.title, sizeof c.title, "%.*s", (int)strcspn(line + 3, "\n"),
				 line + 3);
			into = c.settings;
			room = sizeof c.settings;
		} else if (strcmp(line, "-- asm\n") == 0 || strcmp(line, "-- raw\n") == 0) {
			c.raw = line[3] == 'r';
			into = c.text;
			room = sizeof c.text;
		} else if (strcmp(line, "-- expect\n") == 0) {
			into = c.expect;
			room = sizeof c.expect;
		} else if (line[0] != '#' && line[0] != '\n') {
			assert_non_null(into);
			append(into, room, line);
		}
	}
	if (c.title[0])
		run_case(&c);
	fclose(file);
}

static bool ends_with(const char *name, const char *end)
{
	return strlen(name) > strlen(end) && strcmp(name + strlen(name) - strlen(end), end) == 0;
}

static void test_cases(void **state)
{
	const char *source = getenv("TUTTI_SOURCE");
	char dir[512];
	struct dirent *entry;
	DIR *list;

	snprintf(dir, sizeof dir, "%s/tests/vm/verify", source ? source : "..");
	list = opendir(dir);
	assert_non_null(list);
	while ((entry = readdir(list)))
		if (ends_with(entry->d_name, ".case"))
			run_file(dir, entry->d_name);
	closedir(list);
	print_message("%u cases, %u of them refused\n", n_cases, n_rejected);
	assert_int_equal(n_failed, 0);
	assert_true(n_cases > 100 && n_rejected > 50);
}

/* --- conformance programs ---------------------------------------------------------- */

/* The lines of a section; NULL: the file has none. */
static char *section_of(const char *path, const char *section)
{
	static char text[65536];
	char line[1024];
	FILE *file = fopen(path, "r");
	bool inside = false, found = false;

	text[0] = '\0';
	assert_non_null(file);
	while (fgets(line, sizeof line, file)) {
		if (strncmp(line, "--", 2) == 0) {
			inside = strncmp(line + 3, section, strlen(section)) == 0;
			found |= inside;
		} else if (inside && line[0] != '#') {
			append(text, sizeof text, line);
		}
	}
	fclose(file);
	return found ? text : NULL;
}

static void verify_conformance(const char *path, bool accept)
{
	struct tutti_vm_object *object = NULL;
	struct tutti_vm_error error = {0};
	struct tt_vm_verified verified = {0};
	char *text = section_of(path, "asm");
	int err = 0;

	if (text) {
		err = tutti_vm_assemble(text, strlen(text), &object, &error);
	} else {
		text = section_of(path, "raw");
		assert_non_null(text);
		object = object_from_hex(text);
	}
	if (!err)
		err = tt_vm_verify(object, &env_any, &verified, &error);
	if (accept && err < 0)
		fail_msg("%s: %s", path, error.text);
	if (!accept && (err != -EACCES || error.insn != 0 ||
			!strstr(error.text, "is not used here and must be zero")))
		fail_msg("%s: %d %s", path, err, error.text);
	free(verified.notes);
	free(verified.hook_of_func);
	tutti_vm_object_destroy(object);
}

/* Verifies all files of a directory whose names begin so; returns how many. */
static unsigned verify_directory(const char *base, const char *part, const char *begin, bool accept)
{
	char dir[600], path[1024];
	struct dirent *entry;
	unsigned n = 0;
	DIR *list;

	snprintf(dir, sizeof dir, "%s/%s", base, part);
	list = opendir(dir);
	if (!list)
		return 0;
	while ((entry = readdir(list))) {
		/* Two need a helper 5 of that project's, or a call by register. */
		if (!ends_with(entry->d_name, ".data") ||
		    strncmp(entry->d_name, begin, strlen(begin)) != 0 ||
		    strcmp(entry->d_name, "callx.data") == 0 ||
		    strcmp(entry->d_name, "call_unwind_fail.data") == 0)
			continue;
		snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
		verify_conformance(path, accept);
		n++;
	}
	closedir(list);
	return n;
}

static void test_conformance(void **state)
{
	const char *given = getenv("TUTTI_CASES"), *source = getenv("TUTTI_SOURCE");
	char dir[512];
	unsigned accepted, refused;

	if (given)
		snprintf(dir, sizeof dir, "%s/bpf_conformance", given);
	else
		snprintf(dir, sizeof dir, "%s/../shared/cases/bpf_conformance",
			 source ? source : "..");
	accepted = verify_directory(dir, "tests", "", true);
	if (!accepted) {
		print_message("no conformance programs in %s\n", dir);
		skip();
	}
	refused = verify_directory(dir, "negative", "unused-", false);
	print_message("%u programs accepted, %u refused\n", accepted, refused);
	assert_true(accepted > 200 && refused > 25);
}

/* --- what text cannot say ---------------------------------------------------------- */

static struct tutti_vm_object *object_of(const struct tutti_vm_insn *insns, uint32_t n)
{
	struct tutti_vm_object *object;

	assert_int_equal(tutti_vm_object_from_insns(insns, n, &object), 0);
	return object;
}

#define I(code_, dst_, src_, off_, imm_)                                                           \
	((struct tutti_vm_insn){.code = (code_),                                                   \
				.regs = (uint8_t)((dst_) | (src_) << 4),                           \
				.off = (int16_t)(off_),                                            \
				.imm = (imm_)})
#define MOV(dst, imm) I(TT_ALU64 | TT_MOV | TT_K, dst, 0, 0, imm)
#define EXIT I(TT_JMP | TT_EXIT, 0, 0, 0, 0)

/* A maker's functions may end anywhere. */
static void test_wide_across_functions(void **state)
{
	const struct tutti_vm_insn insns[] = {MOV(0, 1), I(TT_LDDW, 0, 0, 0, 0), I(0, 0, 0, 0, 0),
					      EXIT};
	struct tutti_vm_object *object = object_of(insns, 4);
	struct tutti_vm_error error;
	struct tt_vm_verified verified;

	object->funcs = realloc(object->funcs, 2 * sizeof *object->funcs);
	object->funcs[0].end = 2;
	object->funcs[1] = (struct tt_vm_func){
		.name = strdup("next"), .section = strdup(".text"), .start = 2, .end = 4};
	object->n_funcs = 2;
	assert_int_equal(tt_vm_verify(object, &env_any, &verified, &error), -EACCES);
	assert_string_equal(error.text,
			    "instruction 1: the second half of this wide instruction is "
			    "outside main (two slots)");
	tutti_vm_object_destroy(object);
}

/* The whole message, with the source line where it is known. */
static void test_message(void **state)
{
	const struct tutti_vm_insn insns[] = {MOV(0, 1), MOV(1, 1),
					      I(TT_ALU64 | TT_ADD | TT_X, 0, 3, 0, 0), EXIT};
	struct tutti_vm_object *object = object_of(insns, 4);
	struct tutti_vm_error error;
	struct tt_vm_verified verified;

	assert_int_equal(tt_vm_verify(object, &env_any, &verified, &error), -EACCES);
	assert_string_equal(error.text, "instruction 2: r3 is read before it is written (set it on "
					"every path that leads here)");
	assert_int_equal(error.line, 0);
	object->lines = calloc(1, sizeof *object->lines);
	object->lines[0] = (struct tt_vm_line){.insn = 1, .line = 12, .file = strdup("prog.c")};
	object->n_lines = 1;
	assert_int_equal(tt_vm_verify(object, &env_any, &verified, &error), -EACCES);
	assert_string_equal(error.text, "prog.c:12: instruction 2: r3 is read before it is written "
					"(set it on every path that leads here)");
	assert_int_equal(error.line, 12);
	assert_int_equal(error.insn, 2);
	assert_int_equal(error.reg, 3);
	/* Nobody has to want the message. */
	assert_int_equal(tt_vm_verify(object, &env_any, &verified, NULL), -EACCES);
	tutti_vm_object_destroy(object);
}

static void refuse_env(const struct tutti_vm_env *env, const char *text)
{
	const struct tutti_vm_insn insns[] = {MOV(0, 1), EXIT};
	struct tutti_vm_object *object = object_of(insns, 2);
	struct tutti_vm_error error;
	struct tt_vm_verified verified;

	assert_int_equal(tt_vm_verify(object, env, &verified, &error), -EINVAL);
	assert_string_equal(error.text, text);
	tutti_vm_object_destroy(object);
}

static void test_environments(void **state)
{
	static const struct tutti_vm_field wrong = {0, 8};
	static const struct tutti_vm_hook many = {.args = 6};
	static const struct tutti_vm_hook outside = {.args = 1, .arg = {{8, 0}}};
	static const struct tutti_vm_hook field = {.fields = &wrong, .n_fields = 1};

	refuse_env(&(struct tutti_vm_env){hooks, 32768, helpers, 1},
		   "the environment has 32768 hooks, more than 32767");
	refuse_env(&(struct tutti_vm_env){hooks, 1, helpers, 65},
		   "the environment has 65 helpers, more than 64");
	refuse_env(&(struct tutti_vm_env){&many, 1, helpers, 1},
		   "a hook of the environment has 6 arguments, more than 5");
	refuse_env(&(struct tutti_vm_env){&outside, 1, helpers, 1},
		   "a hook of the environment has an argument in window 8, of 8");
	refuse_env(&(struct tutti_vm_env){&field, 1, helpers, 1},
		   "a hook of the environment has a field in window 8, of 8");
}

static void test_hooks_are_told(void **state)
{
	static const char text[] = "call local other\nmov %r0, 0\nexit\nother:\nmov %r0, 0\nexit\n";
	struct tutti_vm_object *object;
	struct tutti_vm_error error;
	struct tt_vm_verified verified;

	assert_int_equal(tutti_vm_assemble(text, strlen(text), &object, &error), 0);
	free(object->funcs[0].section);
	object->funcs[0].section = strdup("ctx/other");
	assert_int_equal(tt_vm_verify(object, &env_any, &verified, &error), 0);
	assert_int_equal(verified.hook_of_func[0], 2);
	assert_int_equal(verified.hook_of_func[1], -1);
	free(verified.notes);
	free(verified.hook_of_func);
	tutti_vm_object_destroy(object);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cases),
		cmocka_unit_test(test_conformance),
		cmocka_unit_test(test_message),
		cmocka_unit_test(test_environments),
		cmocka_unit_test(test_wide_across_functions),
		cmocka_unit_test(test_hooks_are_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
