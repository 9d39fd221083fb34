/* SPDX-License-Identifier: MIT */
/*
 * tutti module build: a module's source made into an object by clang, and that
 * verified as a device would.
 *
 * What clang says is shown as it is, except where it breaks down: clang 14 does
 * so over a signed division, with pages about itself. Of these the line is kept
 * that names the place.
 */
#include "module_int.h"

#include "cli_int.h"
#include "vm/isa.h"
#include "vm/object.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_PASSED = 64, MAX_SAID = 1 << 20 };

extern char **environ;

struct build {
	const char *source;
	char object[PATH_MAX];
	char include[PATH_MAX];		/* where tutti/mdo_module.h is; empty: clang's own places */
	const char *passed[MAX_PASSED]; /* -D, -I as they were given */
	int n_passed;
	bool json;
	char *said; /* by clang; for free() */
	size_t said_bytes;
};

/* --- clang ---------------------------------------------------------------------------- */

/* In-tree (build/tutti) and installed (bin/tutti) it is in the same place. */
static void find_include(struct build *b)
{
	char self[PATH_MAX], header[PATH_MAX + 64], *slash;
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	b->include[0] = '\0';
	if (n <= 0)
		return;
	self[n] = '\0';
	slash = strrchr(self, '/');
	if (!slash)
		return;
	*slash = '\0';
	snprintf(header, sizeof(header), "%s/../include/tutti/mdo_module.h", self);
	if (access(header, R_OK) == 0 && strlen(self) + 12 < sizeof(b->include))
		snprintf(b->include, sizeof(b->include), "%.*s/../include", (int)n, self);
}

static void fill_arguments(const struct build *b, const char *clang, const char **argv)
{
	static const char *const flags[] = {"-O2",
					    "-g",
					    "-fno-builtin",
					    "-target",
					    "bpf",
					    "-mcpu=v3",
					    "-Wall",
					    "-Werror=division-by-zero",
					    "-fno-crash-diagnostics"};
	int n = 0;

	argv[n++] = clang;
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		argv[n++] = flags[i];
	if (b->include[0]) {
		argv[n++] = "-I";
		argv[n++] = b->include;
	}
	/* What <linux/types.h> includes. */
	if (TT_MULTIARCH[0]) {
		argv[n++] = "-idirafter";
		argv[n++] = "/usr/include/" TT_MULTIARCH;
	}
	for (int i = 0; i < b->n_passed; i++)
		argv[n++] = b->passed[i];
	argv[n++] = "-c";
	argv[n++] = b->source;
	argv[n++] = "-o";
	argv[n++] = b->object;
	argv[n] = NULL;
}

/* All that it says, up to MAX_SAID bytes; the rest is read and forgotten. */
static int read_said(struct build *b, int fd)
{
	FILE *f = open_memstream(&b->said, &b->said_bytes);
	char buffer[4096];
	size_t total = 0;
	ssize_t n;

	if (!f)
		return -ENOMEM;
	while ((n = read(fd, buffer, sizeof(buffer))) > 0 || (n < 0 && errno == EINTR)) {
		if (n > 0 && total < MAX_SAID)
			fwrite(buffer, 1, (size_t)n, f);
		total += n > 0 ? (size_t)n : 0;
	}
	return fclose(f) ? -ENOMEM : 0;
}

/* clang's exit status, or a negative errno: -ENOENT when there is none. */
static int run_clang(struct build *b, const char *clang)
{
	const char *argv[MAX_PASSED + 32];
	posix_spawn_file_actions_t actions;
	int fds[2], err, status;
	pid_t pid;

	fill_arguments(b, clang, argv);
	if (pipe(fds))
		return -errno;
	err = -posix_spawn_file_actions_init(&actions);
	if (!err) {
		posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
		posix_spawn_file_actions_adddup2(&actions, fds[1], STDERR_FILENO);
		posix_spawn_file_actions_addclose(&actions, fds[0]);
		posix_spawn_file_actions_addclose(&actions, fds[1]);
		err = -posix_spawnp(&pid, clang, &actions, NULL, (char *const *)argv, environ);
		posix_spawn_file_actions_destroy(&actions);
	}
	close(fds[1]);
	if (!err) {
		err = read_said(b, fds[0]);
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
		if (!err)
			err = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
	}
	close(fds[0]);
	return err;
}

/* --- what clang said --------------------------------------------------------------------- */

/* The first line that has any of these words. NULL: none. */
static char *line_with(char *text, const char *const *words)
{
	for (char *line = text; line && *line;) {
		char *end = strchr(line, '\n');
		size_t len = end ? (size_t)(end - line) : strlen(line);

		for (int i = 0; words[i]; i++)
			if (memmem(line, len, words[i], strlen(words[i])))
				return line;
		line = end ? end + 1 : NULL;
	}
	return NULL;
}

/*
 * Where it broke down over a signed division: "FILE.c:2:103" of the line, into
 * ret_place. Cuts the pages that follow. False: it did not.
 */
static bool signed_division(struct build *b, char *ret_place, size_t bytes)
{
	static const char *const down[] = {" signed division for DAG", "error in backend", NULL};
	static const char *const division[] = {" = sdiv ", " = srem ", NULL};
	char *start = b->said ? line_with(b->said, down) : NULL;
	char *line = start ? line_with(start, division) : NULL, *end, *place;

	if (!line)
		return false;
	end = strchrnul(line, '\n');
	*end = '\0';
	/* "... 0x8aa4598, FILE.c:2:103Please convert ..." */
	place = strrchr(line, ',');
	end = place ? strstr(place, "Please") : NULL;
	if (end)
		*end = '\0';
	snprintf(ret_place, bytes, "%s", place && strchr(place, ':') ? place + 2 : b->source);
	*start = '\0';
	return true;
}

static void show(const struct build *b)
{
	if (!b->json && b->said)
		fputs(b->said, stderr);
}

/* --- what the object has -------------------------------------------------------------------- */

static bool divides_by_register(const struct tutti_vm_insn *insn)
{
	unsigned class = insn->code & 7u, op = insn->code & 0xf0u;

	return (class == TT_ALU || class == TT_ALU64) && (op == TT_DIV || op == TT_MOD) &&
	       insn->code & TT_X;
}

/* "f.c:12, f.c:30"; empty when it divides by constants only. */
static void list_divisions(const struct tutti_vm_object *object, char *ret_text, size_t bytes)
{
	const struct tt_vm_line *last = NULL;
	size_t used = 0;

	ret_text[0] = '\0';
	for (uint32_t i = 0; i < object->n_insns && used < bytes;
	     i += object->insns[i].code == TT_LDDW ? 2 : 1) {
		const struct tt_vm_line *line = tt_vm_object_line(object, i);

		if (!divides_by_register(&object->insns[i]) ||
		    (line && last && line->line == last->line))
			continue;
		last = line;
		if (line && line->file)
			used += (size_t)snprintf(ret_text + used, bytes - used, "%s%s:%" PRIu32,
						 used ? ", " : "", line->file, line->line);
		else
			used += (size_t)snprintf(ret_text + used, bytes - used,
						 "%sinstruction %" PRIu32, used ? ", " : "", i);
	}
}

static void print_found(const struct build *b, const struct tutti_vm_object *object,
			const char *divisions)
{
	printf("%s: %" PRIu32 " instructions", b->object, object->n_insns);
	if (object->data_bytes || object->rodata_bytes)
		printf(", data %" PRIu32 " bytes, read-only %" PRIu32, object->data_bytes,
		       object->rodata_bytes);
	putchar('\n');
	for (uint32_t i = 0; i < object->n_funcs; i++)
		if (object->funcs[i].entry)
			printf("handler %s: %s\n", object->funcs[i].section, object->funcs[i].name);
	for (uint32_t i = 0; i < object->n_maps; i++)
		printf("map %s: type %" PRIu32 ", key %" PRIu32 " bytes, value %" PRIu32
		       " bytes, %" PRIu32 " entries\n",
		       object->maps[i].name, object->maps[i].type, object->maps[i].key_bytes,
		       object->maps[i].value_bytes, object->maps[i].max_entries);
	if (divisions[0])
		printf("note: divides by what may be zero (%s): here that gives 0, and the "
		       "remainder the dividend; natively it traps\n",
		       divisions);
}

static void write_found(struct tt_json *j, const struct tutti_vm_object *object,
			const char *divisions)
{
	tt_json_open(j, "handlers", '[');
	for (uint32_t i = 0; i < object->n_funcs; i++) {
		if (!object->funcs[i].entry)
			continue;
		tt_json_open(j, NULL, '{');
		tt_json_str(j, "section", object->funcs[i].section);
		tt_json_str(j, "function", object->funcs[i].name);
		tt_json_close(j, '}');
	}
	tt_json_close(j, ']');
	tt_module_write_maps(j, object);
	tt_json_uint(j, "instructions", object->n_insns);
	tt_json_uint(j, "data_bytes", object->data_bytes);
	tt_json_uint(j, "rodata_bytes", object->rodata_bytes);
	if (divisions[0])
		tt_json_str(j, "divides_at", divisions);
}

/* Verified where a device would. object NULL: clang refused it, error has the reason. */
static int report(const struct build *b, const struct tutti_vm_object *object,
		  const struct tutti_vm_error *error, bool accepted)
{
	int status = accepted ? TT_EXIT_OK : TT_EXIT_FAILED;
	char divisions[1024] = "";
	struct tt_json j;

	if (object)
		list_divisions(object, divisions, sizeof(divisions));
	if (!b->json && !accepted)
		return tt_cli_fail(b->source, error->text, NULL);
	if (!b->json) {
		print_found(b, object, divisions);
		return status;
	}
	tt_json_init(&j);
	tt_json_open(&j, NULL, '{');
	tt_json_str(&j, "file", b->source);
	if (object)
		tt_json_str(&j, "object", b->object);
	tt_json_bool(&j, "accepted", accepted);
	tt_json_str(&j, "diagnostics", b->said ? b->said : "");
	if (object)
		write_found(&j, object, divisions);
	if (!accepted)
		tt_vm_write_error(&j, error);
	tt_json_close(&j, '}');
	return tt_vm_print_json("module build", &j, status);
}

static int verify_built(const struct build *b)
{
	struct tutti_vm_error error = {.insn = -1, .reg = -1};
	struct tutti_vm_object *object;
	struct tutti_vm_program *program = NULL;
	int err = tt_module_open(b->object, &object), status;

	if (err)
		return TT_EXIT_FAILED;
	err = tt_module_program(object, 0, &program, &error);
	tutti_vm_program_destroy(program);
	status = report(b, object, &error, !err);
	tutti_vm_object_destroy(object);
	return status;
}

/* --- the command -------------------------------------------------------------------------- */

static int build(struct build *b)
{
	struct tutti_vm_error error = {.insn = -1, .reg = -1};
	const char *clang = getenv("TUTTI_CLANG");
	char place[PATH_MAX];
	int status;

	if (access(b->source, R_OK))
		return tt_cli_fail(b->source, strerror(errno), "is the name right?");
	find_include(b);
	clang = clang && *clang ? clang : "clang";
	status = run_clang(b, clang);
	if (status == -ENOENT)
		return tt_cli_fail("module build", "there is no clang, which compiles modules",
				   "apt-get install clang, or TUTTI_CLANG=PROGRAM");
	if (status < 0)
		return tt_cli_fail(clang, strerror(-status), NULL);
	if (status == 0) {
		show(b);
		return verify_built(b);
	}
	if (signed_division(b, place, sizeof(place)))
		snprintf(error.text, sizeof(error.text),
			 "%.150s: no signed division in modules (make both sides unsigned)", place);
	else
		snprintf(error.text, sizeof(error.text), "clang refuses it");
	show(b);
	return report(b, NULL, &error, false);
}

/* FILE.c -> FILE.o, beside it. */
static int name_object(struct build *b, const char *given)
{
	size_t len = strlen(b->source);

	if (len < 3 || strcmp(b->source + len - 2, ".c") != 0)
		return tt_cli_misuse("module build", "a module's source is a file.c", b->source);
	if (!given) {
		snprintf(b->object, sizeof(b->object), "%s", b->source);
		if (len < sizeof(b->object))
			b->object[len - 1] = 'o';
	} else {
		snprintf(b->object, sizeof(b->object), "%s", given);
	}
	return TT_EXIT_OK;
}

static int pass(struct build *b, const char *flag, const char *value)
{
	if (b->n_passed + 2 > MAX_PASSED)
		return tt_cli_misuse("module build", "too many of -D and -I", value);
	b->passed[b->n_passed++] = flag;
	b->passed[b->n_passed++] = value;
	return TT_EXIT_OK;
}

int tt_module_build(int argc, char **argv)
{
	static const struct option known[] = {
		{"output", required_argument, NULL, 'o'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct build b = {.source = NULL};
	const char *output = NULL;
	int opt, status = TT_EXIT_OK;

	while (!status && (opt = getopt_long(argc, argv, ":ho:D:I:", known, NULL)) != -1)
		switch (opt) {
		case 'o': output = optarg; break;
		case 'D': status = pass(&b, "-D", optarg); break;
		case 'I': status = pass(&b, "-I", optarg); break;
		case 'j': b.json = true; break;
		case 'h': return tt_module_usage();
		default: return tt_cli_bad_option("module build", opt, argv);
		}
	if (status)
		return status;
	if (optind == argc)
		return tt_cli_misuse("module build", "which file?", NULL);
	if (optind + 1 < argc)
		return tt_cli_misuse("module build", "one at a time", argv[optind + 1]);
	b.source = argv[optind];
	status = name_object(&b, output);
	if (!status)
		status = build(&b);
	free(b.said);
	return status;
}
