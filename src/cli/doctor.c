/* SPDX-License-Identifier: MIT */
#include "base/json.h"
#include "base/shm.h"
#include "cli_int.h"
#include "daemon/daemon.h"
#include "elf_int.h"
#include "ulc/ctl.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <linux/membarrier.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

/* WARN: works, but less well. FAIL: nothing will be accelerated. */
enum verdict { GOOD, WARN, FAIL };

struct finding {
	enum verdict verdict;
	char text[400]; /* what was found; when not good, also what to do */
};

__attribute__((format(printf, 3, 4))) static void say(struct finding *f, enum verdict v,
						      const char *fmt, ...)
{
	va_list ap;

	f->verdict = v;
	va_start(ap, fmt);
	vsnprintf(f->text, sizeof(f->text), fmt, ap);
	va_end(ap);
}

/* ---- the machine ---- */

static void check_kernel(struct finding *f)
{
	struct utsname u;
	int major = 0, minor = 0;

	uname(&u);
	if (sscanf(u.release, "%d.%d", &major, &minor) == 2 &&
	    (major < 5 || (major == 5 && minor < 14)))
		say(f, WARN, "%s: Tutti is made for 5.14 and newer", u.release);
	else
		say(f, GOOD, "%s", u.release);
}

static void check_cores(struct finding *f)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	if (n < 2)
		say(f, WARN, "1: spinning does not pay, use --spin 0");
	else
		say(f, GOOD, "%ld", n);
}

static void check_memfd(struct finding *f)
{
	int fd = tt_shm_create("tutti-doctor", 4096);

	if (fd < 0)
		say(f, FAIL, "no sealed memory: %s", strerror(-fd));
	else
		say(f, GOOD, "works");
	if (fd >= 0)
		close(fd);
}

static void check_eventfd(struct finding *f)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	if (fd < 0)
		say(f, FAIL, "no doorbells: %s", strerror(errno));
	else
		say(f, GOOD, "works");
	if (fd >= 0)
		close(fd);
}

static void check_membarrier(struct finding *f)
{
	long have = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);

	if (have >= 0 && (have & MEMBARRIER_CMD_GLOBAL_EXPEDITED))
		say(f, GOOD, "works");
	else
		say(f, WARN, "not here: every message costs a fence");
}

static int socket_with(int option, uint64_t *ret_value)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), err = 0;
	socklen_t len = sizeof(*ret_value);

	if (fd < 0)
		return -errno;
	if (getsockopt(fd, SOL_SOCKET, option, ret_value, &len) < 0)
		err = -errno;
	close(fd);
	return err;
}

static void check_cookie(struct finding *f)
{
	uint64_t v;
	int err = socket_with(SO_COOKIE, &v);

	if (err < 0)
		say(f, FAIL, "sockets cannot be told apart: %s", strerror(-err));
	else
		say(f, GOOD, "works");
}

static void check_netns(struct finding *f)
{
	uint64_t v;

	if (socket_with(SO_NETNS_COOKIE, &v) < 0)
		say(f, WARN, "not here: run programs of one network namespace only");
	else
		say(f, GOOD, "works");
}

static void check_diag(struct finding *f)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);

	if (fd < 0)
		say(f, WARN, "not here: what killed programs held is freed late");
	else
		say(f, GOOD, "works");
	if (fd >= 0)
		close(fd);
}

static void check_pidfd(struct finding *f)
{
	int fd = pidfd_open(getpid(), 0);

	if (fd < 0)
		say(f, WARN, "not here: sleepers are woken more slowly");
	else
		say(f, GOOD, "works");
	if (fd >= 0)
		close(fd);
}

static void check_nofile(struct finding *f)
{
	struct rlimit rl = {0};

	getrlimit(RLIMIT_NOFILE, &rl);
	if (rl.rlim_cur < 256)
		say(f, WARN, "%llu: too few for a server; raise it with ulimit -n",
		    (unsigned long long)rl.rlim_cur);
	else
		say(f, GOOD, "%llu, at most %llu", (unsigned long long)rl.rlim_cur,
		    (unsigned long long)rl.rlim_max);
}

static void check_dir(struct finding *f)
{
	char dir[PATH_MAX];
	int err = tt_cli_dir(dir, sizeof(dir), true);

	if (err == -EPERM)
		say(f, FAIL, "others may write there, or it is not yours: set TUTTI_DIR");
	else if (err < 0)
		say(f, FAIL, "cannot be made: %s: set TUTTI_DIR", strerror(-err));
	else
		say(f, GOOD, "%.300s", dir);
}

static void check_daemon(struct finding *f)
{
	int ctl = tt_ctl_connect();

	if (ctl >= 0)
		say(f, GOOD, "runs");
	else if (ctl == -ENOENT || ctl == -ECONNREFUSED)
		say(f, GOOD, "does not run; 'tutti run' will start it");
	else
		say(f, FAIL, "cannot be reached: %s: try tutti down, tutti up", strerror(-ctl));
	if (ctl >= 0)
		close(ctl);
}

static void check_library(struct finding *f)
{
	char path[PATH_MAX];

	if (tt_cli_preload_path(path, sizeof(path)) < 0)
		say(f, FAIL,
		    "libtutti-preload.so is not beside the command nor in ../lib: build it");
	else if (strpbrk(path, ": "))
		say(f, FAIL, "its path has a space or colon in it: install Tutti elsewhere");
	else
		say(f, GOOD, "%.380s", path);
}

static const struct check {
	const char *name, *label;
	void (*run)(struct finding *f);
} checks[] = {
	{"kernel", "kernel", check_kernel},
	{"cores", "cores", check_cores},
	{"memfd_sealing", "sealed memory", check_memfd},
	{"eventfd", "doorbells", check_eventfd},
	{"membarrier", "membarrier", check_membarrier},
	{"so_cookie", "socket cookies", check_cookie},
	{"so_netns_cookie", "namespace cookies", check_netns},
	{"sock_diag", "socket diagnosis", check_diag},
	{"pidfd", "process descriptors", check_pidfd},
	{"open_files", "open files", check_nofile},
	{"control_directory", "control directory", check_dir},
	{"daemon", "daemon", check_daemon},
	{"preload_library", "preload library", check_library},
};
#define NCHECKS (sizeof(checks) / sizeof(checks[0]))

static const char *const verdicts[] = {"ok", "warning", "failed"};

static bool print_checks(void)
{
	static const char *const marks[] = {"ok  ", "warn", "FAIL"};
	bool ok = true;

	for (size_t i = 0; i < NCHECKS; i++) {
		struct finding f;

		checks[i].run(&f);
		ok = ok && f.verdict != FAIL;
		printf("%s  %-20s %s\n", marks[f.verdict], checks[i].label, f.text);
	}
	return ok;
}

static bool write_checks(struct tt_json *j)
{
	bool ok = true;

	tt_json_open(j, "checks", '[');
	for (size_t i = 0; i < NCHECKS; i++) {
		struct finding f;

		checks[i].run(&f);
		ok = ok && f.verdict != FAIL;
		tt_json_open(j, NULL, '{');
		tt_json_str(j, "name", checks[i].name);
		tt_json_str(j, "state", verdicts[f.verdict]);
		tt_json_str(j, "detail", f.text);
		tt_json_close(j, '}');
	}
	tt_json_close(j, ']');
	return ok;
}

/* ---- a program ---- */

static const char *linking(const struct tt_program *p)
{
	return p->is_unreadable ? "unknown"
	       : !p->bits	? "no ELF file"
	       : p->is_dynamic	? "dynamic"
				: "static";
}

static void write_program(struct tt_json *j, const struct tt_program *p)
{
	tt_json_open(j, "program", '{');
	tt_json_str(j, "path", p->path);
	tt_json_bool(j, "script", *p->script);
	tt_json_str(j, "binary", p->binary);
	tt_json_int(j, "elf_bits", p->bits);
	tt_json_str(j, "linking", linking(p));
	tt_json_str(j, "loader", p->loader);
	tt_json_bool(j, "go", p->is_go);
	tt_json_bool(j, "set_id", p->is_setid);
	tt_json_bool(j, "file_capabilities", p->has_caps);
	tt_json_bool(j, "accelerated", !p->why);
	if (p->why) {
		tt_json_str(j, "reason", p->why);
		tt_json_str(j, "todo", p->todo);
	}
	tt_json_close(j, '}');
}

static void print_program(const struct tt_program *p)
{
	printf("program   %s\n", p->path);
	if (*p->script)
		printf("script    run by %s\n", p->binary);
	if (p->bits)
		printf("binary    %d bits, %s%s%s%s\n", p->bits, linking(p), p->is_go ? ", Go" : "",
		       p->is_setid ? ", set-id" : "",
		       p->has_caps ? ", with file capabilities" : "");
	if (p->is_unreadable)
		printf("binary    may be run, not read: the loader will see\n");
	if (p->why)
		printf("verdict   runs over kernel TCP: %s\nto do     %s\n", p->why, p->todo);
	else
		printf("verdict   will be accelerated by: tutti run -- %s\n", p->path);
}

static int diagnose_program(const char *name, bool json)
{
	static struct tt_program p;
	int err = tt_program_examine(name, &p);
	struct tt_json j;

	if (err < 0)
		return tt_cli_fail(name, strerror(-err),
				   err == -ENOENT ? "is the name right, and on PATH?"
						  : "can it be executed?");
	if (!json) {
		print_program(&p);
		return p.why ? TT_EXIT_FAILED : TT_EXIT_OK;
	}
	tt_json_init(&j);
	tt_json_open(&j, NULL, '{');
	write_program(&j, &p);
	tt_json_close(&j, '}');
	puts(j.failed ? "{}" : j.text);
	tt_json_fini(&j);
	return p.why ? TT_EXIT_FAILED : TT_EXIT_OK;
}

static int diagnose_machine(bool json)
{
	struct tt_json j;
	bool ok = true;

	tt_json_init(&j);
	tt_json_open(&j, NULL, '{');
	tt_json_str(&j, "version", TUTTI_VERSION);
	if (json) {
		ok = write_checks(&j);
		tt_json_bool(&j, "ok", ok);
		tt_json_close(&j, '}');
		puts(j.failed ? "{}" : j.text);
	} else {
		ok = print_checks();
	}
	tt_json_fini(&j);
	return ok ? TT_EXIT_OK : TT_EXIT_FAILED;
}

int tt_cmd_doctor(int argc, char **argv)
{
	static const struct option options[] = {{"help", no_argument, NULL, 'h'},
						{"json", no_argument, NULL, 'j'},
						{NULL, 0, NULL, 0}};
	bool json = false;
	int opt;

	optind = 0;
	opterr = 0;
	while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (opt == 'h') {
			puts("usage: tutti doctor [--json] [PROGRAM]\n\n"
			     "Says what works on this machine, or whether PROGRAM will be accelerated\n"
			     "by 'tutti run', and if not, why and what to do. Runs nothing.\n\n"
			     "  --json   one JSON object");
			return TT_EXIT_OK;
		}
		if (opt == '?')
			return tt_cli_misuse("doctor", "unknown option", argv[optind - 1]);
		json = true;
	}
	if (optind + 1 < argc)
		return tt_cli_misuse("doctor", "one program at a time, without arguments",
				     argv[optind + 1]);
	return optind < argc ? diagnose_program(argv[optind], json) : diagnose_machine(json);
}
