/* SPDX-License-Identifier: MIT */
#include "doctor_int.h"

#include "base/json.h"
#include "cli_int.h"
#include "daemon/daemon.h"
#include "table_int.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INDENT 2 /* of a table */

static int usage(void)
{
	puts("usage: tutti doctor [--json] [PROGRAM]\n"
	     "       tutti doctor [--json] --pid PID\n\n"
	     "Says what works on this machine; or whether PROGRAM will be accelerated by\n"
	     "'tutti run', and if not, why and what to do (it is not run); or the same of a\n"
	     "process that runs, and what its connections do.\n\n"
	     "  -p, --pid PID  a process\n"
	     "  --json         one JSON object\n"
	     "  -h, --help     this\n\n"
	     "Exit status: 0 all is well, it will be (is) accelerated; 1 not, or it cannot be\n"
	     "looked at; 2 misuse.");
	return TT_EXIT_OK;
}

/* ---- findings ---- */

void tt_finding_set(struct tt_finding *f, enum tt_verdict v, const char *fmt, ...)
{
	va_list ap;

	f->verdict = v;
	va_start(ap, fmt);
	vsnprintf(f->text, sizeof(f->text), fmt, ap);
	va_end(ap);
}

void tt_findings_add(struct tt_findings *all, const char *name, const char *label,
		     enum tt_verdict v, const char *fmt, ...)
{
	struct tt_finding *f = &all->list[all->n];
	va_list ap;

	if (all->n == TT_MAX_FINDINGS)
		return;
	all->n++;
	f->name = name;
	f->label = label;
	f->verdict = v;
	va_start(ap, fmt);
	vsnprintf(f->text, sizeof(f->text), fmt, ap);
	va_end(ap);
}

/* The first that is as bad as can be, or NULL. */
static const struct tt_finding *first_failure(const struct tt_findings *all)
{
	for (int i = 0; i < all->n; i++)
		if (all->list[i].verdict == TT_FAIL)
			return &all->list[i];
	return NULL;
}

static void print_findings(const struct tt_findings *all)
{
	static const char *const marks[] = {"ok  ", "warn", "FAIL"};

	for (int i = 0; i < all->n; i++)
		printf("%s  %-20s %s\n", marks[all->list[i].verdict], all->list[i].label,
		       all->list[i].text);
}

static void write_findings(struct tt_json *j, const struct tt_findings *all)
{
	static const char *const states[] = {"ok", "warning", "failed"};

	tt_json_open(j, "checks", '[');
	for (int i = 0; i < all->n; i++) {
		tt_json_open(j, NULL, '{');
		tt_json_str(j, "name", all->list[i].name);
		tt_json_str(j, "state", states[all->list[i].verdict]);
		tt_json_str(j, "detail", all->list[i].text);
		tt_json_close(j, '}');
	}
	tt_json_close(j, ']');
}

static int print_json(struct tt_json *j, int status)
{
	if (j->failed)
		status = tt_cli_fail("doctor", "out of memory", NULL);
	else
		puts(j->text);
	tt_json_fini(j);
	return status;
}

/* ---- a program ---- */

static void write_program(struct tt_json *j, const struct tt_program *p)
{
	tt_json_open(j, "program", '{');
	tt_json_str(j, "path", p->path);
	tt_json_bool(j, "script", *p->script);
	tt_json_str(j, "binary", p->binary);
	tt_json_int(j, "elf_bits", p->bits);
	tt_json_str(j, "linking", tt_doctor_linking(p));
	tt_json_str(j, "loader", p->loader);
	tt_json_str(j, "glibc", p->glibc);
	tt_json_bool(j, "musl", p->is_musl);
	tt_json_bool(j, "io_uring", p->uses_io_uring);
	tt_json_bool(j, "go", p->is_go);
	tt_json_bool(j, "set_id", p->is_setid);
	tt_json_bool(j, "file_capabilities", p->has_caps);
	tt_json_bool(j, "accelerated", !p->why);
	if (p->why) {
		tt_json_str(j, "reason", p->why);
		if (p->todo)
			tt_json_str(j, "todo", p->todo);
	}
	tt_json_close(j, '}');
}

/* The verdict: of the file first, then of what it would run in. */
static const char *why_not(const struct tt_program *p, const struct tt_findings *all)
{
	const struct tt_finding *f = first_failure(all);

	return p->why ? p->why : f ? f->text : NULL;
}

static int diagnose_program(const char *name, bool json)
{
	static struct tt_findings all;
	static struct tt_program p;
	int err = tt_program_examine(name, &p), status;
	struct tt_json j;

	if (err < 0)
		return tt_cli_fail(name, strerror(-err),
				   err == -ENOENT ? "is the name right, and on PATH?"
						  : "can it be executed?");
	tt_doctor_file(&all, &p);
	tt_doctor_environment(&all, name);
	tt_doctor_machine(&all, true);
	const char *why = why_not(&p, &all);

	status = why ? TT_EXIT_FAILED : TT_EXIT_OK;
	if (json) {
		tt_json_init(&j);
		tt_json_open(&j, NULL, '{');
		write_program(&j, &p);
		write_findings(&j, &all);
		tt_json_bool(&j, "accelerated", !why);
		tt_json_close(&j, '}');
		return print_json(&j, status);
	}
	printf("program   %s\n", p.path);
	print_findings(&all);
	if (!why)
		printf("verdict   will be accelerated by: tutti run -- %s\n", p.path);
	else
		printf("verdict   runs over kernel TCP: %s\n", why);
	if (p.todo)
		printf("to do     %s\n", p.todo);
	return status;
}

/* ---- a process ---- */

static void print_line(void *arg, const char *line)
{
	printf("%*s%s\n", INDENT, "", line);
}

static void print_connections(const struct tt_snapshot *s)
{
	static const enum tt_column columns[] = {TT_COL_PEER,	TT_COL_PEER_PID, TT_COL_LOCAL,
						 TT_COL_REMOTE, TT_COL_PATH,	 TT_COL_REASON,
						 TT_COL_END};
	static const enum tt_column important[] = {TT_COL_PEER,	  TT_COL_PATH,	TT_COL_REASON,
						   TT_COL_REMOTE, TT_COL_LOCAL, TT_COL_PEER_PID,
						   TT_COL_END};
	size_t width = tt_table_width();
	struct tt_table t = {columns, important, width > INDENT ? width - INDENT : width,
			     s,	      NULL,	 20};
	char text[TT_LINE_BYTES];

	tt_format_counts(s, text, sizeof(text));
	printf("it has    %s\n", text);
	if (s->npairs)
		tt_table_print(&t, print_line, NULL);
	if (s->npairs > t.max_rows)
		puts("  and more: tutti ss");
}

static void write_connections(struct tt_json *j, const struct tt_snapshot *s)
{
	struct tt_counts n = tt_snapshot_counts(s);

	tt_json_open(j, "listed", '{');
	tt_json_uint(j, "connections", n.connections);
	tt_json_uint(j, "accelerated", n.accelerated);
	tt_json_uint(j, "fallback", n.connections - n.accelerated);
	tt_json_close(j, '}');
	tt_json_open(j, "connections", '[');
	for (size_t i = 0; i < s->npairs; i++) {
		const struct tt_end *a = tt_end_a(s, &s->pairs[i]);

		tt_json_open(j, NULL, '{');
		tt_json_str(j, "id", a->id);
		tt_json_str(j, "local", a->local);
		tt_json_str(j, "remote", a->remote);
		tt_json_str(j, "path", tt_pair_path(s, &s->pairs[i]));
		tt_json_str(j, "reason", tt_pair_reason(s, &s->pairs[i]));
		tt_json_close(j, '}');
	}
	tt_json_close(j, ']');
}

static void tell_daemon(struct tt_findings *all, int err)
{
	const char *todo, *why = err < 0 ? tt_cli_why(err, &todo) : NULL;

	if (err == 0)
		tt_findings_add(all, "daemon", "daemon", TT_GOOD, "runs");
	else if (tt_cli_is_absent(err))
		tt_findings_add(all, "daemon", "daemon", TT_WARN,
				"does not run: new connections stay on kernel TCP; start it: tutti "
				"up");
	else
		tt_findings_add(all, "daemon", "daemon", TT_WARN, "%.300s: %s", why, todo);
}

/* Of each connection, the process's end first. */
static void put_first(struct tt_snapshot *s, long pid)
{
	for (size_t i = 0; i < s->npairs; i++) {
		struct tt_pair *p = &s->pairs[i];

		if (p->b >= 0 && s->ends[p->a].pid != pid)
			*p = (struct tt_pair){p->b, p->a};
	}
}

static int diagnose_process(long pid, bool json)
{
	struct tt_filter filter = {.pid = pid};
	static struct tt_findings all;
	static struct tt_program p;
	struct tt_snapshot s = {0};
	char name[32];
	struct tt_json j;
	int err = tt_doctor_process(&all, (pid_t)pid, &p), status;

	snprintf(name, sizeof(name), "process %ld", pid);
	if (err < 0) {
		const char *todo, *reason = tt_doctor_process_why((pid_t)pid, err, &todo);

		return tt_cli_fail(name, reason, todo);
	}
	err = tt_snapshot_take(&filter, &s);
	put_first(&s, pid);
	tell_daemon(&all, err);
	const char *why = why_not(&p, &all);

	status = why ? TT_EXIT_FAILED : TT_EXIT_OK;
	if (json) {
		tt_json_init(&j);
		tt_json_open(&j, NULL, '{');
		tt_json_int(&j, "pid", pid);
		write_program(&j, &p);
		write_findings(&j, &all);
		tt_json_bool(&j, "accelerated", !why);
		if (err == 0)
			write_connections(&j, &s);
		tt_json_close(&j, '}');
		status = print_json(&j, status);
	} else {
		printf("process   %ld, program %s\n", pid, p.path);
		print_findings(&all);
		if (err == 0)
			print_connections(&s);
		printf("verdict   %s%s\n",
		       why ? "runs over kernel TCP: "
			   : "its connections are accelerated where both "
			     "ends are Tutti's",
		       why ? why : "");
	}
	tt_snapshot_fini(&s);
	return status;
}

/* ---- the machine ---- */

static int diagnose_machine(bool json)
{
	static struct tt_findings all;
	struct tt_json j;
	bool ok;

	tt_doctor_machine(&all, false);
	ok = !first_failure(&all);
	if (!json) {
		print_findings(&all);
		return ok ? TT_EXIT_OK : TT_EXIT_FAILED;
	}
	tt_json_init(&j);
	tt_json_open(&j, NULL, '{');
	tt_json_str(&j, "version", TUTTI_VERSION);
	write_findings(&j, &all);
	tt_json_bool(&j, "ok", ok);
	tt_json_close(&j, '}');
	return print_json(&j, ok ? TT_EXIT_OK : TT_EXIT_FAILED);
}

int tt_cmd_doctor(int argc, char **argv)
{
	static const struct option options[] = {{"help", no_argument, NULL, 'h'},
						{"json", no_argument, NULL, 'j'},
						{"pid", required_argument, NULL, 'p'},
						{NULL, 0, NULL, 0}};
	bool json = false;
	long pid = 0;
	int opt;

	optind = 0;
	opterr = 0;
	while ((opt = getopt_long(argc, argv, ":hp:", options, NULL)) != -1) {
		switch (opt) {
		case 'h': return usage();
		case 'j': json = true; break;
		case 'p':
			if (!tt_arg_number(optarg, 1, INT32_MAX, &pid))
				return tt_cli_bad_value("doctor", "pid", optarg,
							"the number of a process");
			break;
		default: return tt_cli_bad_option("doctor", opt, argv);
		}
	}
	if (pid && optind < argc)
		return tt_cli_misuse("doctor", "a process or a program, not both", argv[optind]);
	if (optind + 1 < argc)
		return tt_cli_misuse("doctor", "one program at a time, without arguments",
				     argv[optind + 1]);
	if (pid)
		return diagnose_process(pid, json);
	return optind < argc ? diagnose_program(argv[optind], json) : diagnose_machine(json);
}
