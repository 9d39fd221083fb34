/* SPDX-License-Identifier: MIT */
/*
 * tutti run: prepares a side and becomes the program. Whatever fails on the
 * way costs the acceleration, never the program: it then runs over kernel TCP,
 * with one line on standard error that says why.
 */
#include "base/shm.h"
#include "cli_int.h"
#include "config.h"
#include "elf_int.h"
#include "sock/side.h"
#include "ulc/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <libgen.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HELLO_TIMEOUT_MS 3000
#define EXIT_NOT_RUNNABLE 126
#define EXIT_NOT_FOUND 127

struct options {
	bool tcp; /* --path tcp */
	bool stats;
	bool strict;
	uint32_t spin_usec; /* UINT32_MAX: adaptive */
	char **program;
};

static int usage(void)
{
	puts("usage: tutti run [OPTION...] -- PROGRAM [ARGUMENT...]\n\n"
	     "Becomes PROGRAM, whose TCP connections to others under 'tutti run' on this\n"
	     "machine are accelerated. Starts the daemon when there is none.\n\n"
	     "  --path auto|user|tcp   user: through shared memory; tcp: the plain kernel, for\n"
	     "                         comparison; auto (default): the best there is\n"
	     "  --spin USEC            how long a receiver may spin before it sleeps; 0 never,\n"
	     "                         default: as long as it has paid off lately\n"
	     "  --strict               a seccomp filter refuses io_uring also to those who enter\n"
	     "                         the kernel by themselves; set-user-id programs that\n"
	     "                         PROGRAM starts lose their privilege by it\n"
	     "  --stats                print counters on standard error at the end\n"
	     "  -h, --help             this\n\n"
	     "Defaults come from tutti.conf(5), then from TUTTI_PATH and TUTTI_SPIN_USEC.");
	return TT_EXIT_OK;
}

/* ---- options ---- */

/* What the option or, without it, the environment says. 0, or the exit status. */
static int parse_path(const char *path, bool by_option, struct options *o)
{
	if (!strcmp(path, "kernel") || !strcmp(path, "lan")) {
		char text[64];

		snprintf(text, sizeof(text), "%s %s is not in this version",
			 by_option ? "--path" : "TUTTI_PATH", path);
		tt_cli_fail("run", text,
			    by_option ? "use --path user, or leave it out" : "unset it");
		return TT_EXIT_MISUSE;
	}
	if (!tt_arg_path(path) && by_option)
		return tt_cli_bad_value("run", "path", path, TT_PATH_ALLOWED);
	if (!tt_arg_path(path))
		return tt_cli_misuse("run", "TUTTI_PATH takes " TT_PATH_ALLOWED ", not", path);
	o->tcp = !strcmp(path, "tcp");
	return 0;
}

static int not_here(const char *option)
{
	char text[64];

	snprintf(text, sizeof(text), "%s is not in this version", option);
	tt_cli_fail("run", text, "leave it out");
	return TT_EXIT_MISUSE;
}

/* What holds when the command line says nothing: the files, then the environment. */
static int defaults(const char *program, struct options *o, char path[16])
{
	struct tt_run_config c = {.spin_usec = UINT32_MAX};
	const char *env_path = getenv("TUTTI_PATH"), *spin = getenv("TUTTI_SPIN_USEC");
	char why[PATH_MAX + 160];

	if (!tt_run_config_read(program, &c, why, sizeof(why))) {
		tt_cli_fail("run", why, "see tutti.conf(5)");
		return TT_EXIT_MISUSE;
	}
	o->spin_usec = c.spin_usec;
	o->stats = c.stats;
	o->strict = c.strict;
	if (spin && *spin && !tt_arg_spin(spin, &o->spin_usec))
		return tt_cli_misuse("run", "TUTTI_SPIN_USEC takes " TT_SPIN_ALLOWED ", not", spin);
	snprintf(path, 16, "%s", env_path && *env_path ? env_path : c.path[0] ? c.path : "auto");
	return 0;
}

/* -1: run; else the exit status. */
static int parse(int argc, char **argv, struct options *o)
{
	static const struct option options[] = {{"help", no_argument, NULL, 'h'},
						{"path", required_argument, NULL, 'p'},
						{"spin", required_argument, NULL, 's'},
						{"stats", no_argument, NULL, 't'},
						{"strict", no_argument, NULL, 'S'},
						{"mpi", no_argument, NULL, 'm'},
						{NULL, 0, NULL, 0}};
	const char *path = NULL, *spin = NULL;
	bool stats = false, strict = false;
	char path_default[16];
	int opt, err;

	optind = 0;
	opterr = 0;
	while ((opt = getopt_long(argc, argv, "+:h", options, NULL)) != -1) {
		switch (opt) {
		case 'h': return usage();
		case 'p': path = optarg; break;
		case 's': spin = optarg; break;
		case 't': stats = true; break;
		case 'S': strict = true; break;
		case 'm': return not_here("--mpi");
		default: return tt_cli_bad_option("run", opt, argv);
		}
	}
	if (spin && !tt_arg_spin(spin, &o->spin_usec))
		return tt_cli_bad_value("run", "spin", spin, TT_SPIN_ALLOWED);
	if (optind >= argc)
		return tt_cli_misuse("run", "which program?", NULL);
	o->program = argv + optind;
	err = defaults(o->program[0], o, path_default);
	if (err)
		return err;
	if (spin)
		tt_arg_spin(spin, &o->spin_usec);
	o->stats |= stats;
	o->strict |= strict;
	err = parse_path(path ? path : path_default, path, o);
	return err ? err : -1;
}

/* ---- the environment ---- */

/* LD_PRELOAD with our library first (NULL: without it); other libraries stay. */
static int set_preload(const char *library)
{
	const char *old = getenv("LD_PRELOAD");
	char *value = malloc((library ? strlen(library) : 0) + (old ? strlen(old) : 0) + 2);

	if (!value)
		return -ENOMEM;
	strcpy(value, library ? library : "");
	while (old && *old) {
		size_t len = strcspn(old, ": ");

		if (len && !tt_cli_is_preload(old, len)) {
			if (*value)
				strcat(value, ":");
			strncat(value, old, len);
		}
		old += len + (old[len] ? 1 : 0);
	}
	int err = *value ? setenv("LD_PRELOAD", value, 1) : unsetenv("LD_PRELOAD");

	free(value);
	return err < 0 ? -errno : 0;
}

/* The side that this very command belongs to, when a program under Tutti calls it. */
static void leave_outer_side(void)
{
	static const char *const names[] = {"TUTTI_SIDE", "TUTTI_CTL"};

	for (int i = 0; i < 2; i++) {
		const char *v = getenv(names[i]);
		int fd = v ? atoi(v) : -1;

		/* Not by fcntl(): the library that we run under hides its own from programs. */
		if (fd > 2)
			syscall(SYS_fcntl, fd, F_SETFD, FD_CLOEXEC);
		/* Empty, not absent: the library that we run under would put it back. */
		if (v)
			setenv(names[i], "", 1);
	}
}

static int set_fd(const char *name, int fd)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", fd);
	return setenv(name, text, 1);
}

/* ---- the side ---- */

/* Moved high, out of the program's way, and inherited by everything that it starts. */
static int make_inherited(int fd)
{
	fd = tt_fd_high(fd);
	fcntl(fd, F_SETFD, 0);
	return fd;
}

static int create_side(const struct options *o)
{
	char name[PATH_MAX];
	struct tt_side_mem *mem;
	int fd, err;

	snprintf(name, sizeof(name), "%s", o->program[0]);
	fd = tt_side_create(basename(name));
	if (fd < 0)
		return fd;
	err = tt_side_map(fd, &mem);
	if (err < 0) {
		close(fd);
		return err;
	}
	mem->spin_usec = o->spin_usec;
	mem->path = 0;
	tt_shm_unmap(mem, sizeof(*mem));
	return fd;
}

static int join(const struct options *o, int *ret_side, int *ret_ctl)
{
	struct tt_ctl_msg m = tt_ctl_msg(TT_CTL_HELLO, 0, o->spin_usec, 0, 0);
	int ctl = tt_cli_connect_or_start(), side, err;

	if (ctl < 0)
		return ctl;
	side = create_side(o);
	err = side < 0 ? side : tt_ctl_request(ctl, &m, side, NULL, HELLO_TIMEOUT_MS);
	if (err < 0) {
		if (side >= 0)
			close(side);
		close(ctl);
		return err;
	}
	*ret_side = side;
	*ret_ctl = ctl;
	return 0;
}

/* todo NULL: nothing helps. */
static void explain(const struct options *o, const char *why, const char *todo)
{
	fprintf(stderr, "tutti: %s runs over kernel TCP: %s%s%s%s\n", o->program[0], why,
		todo ? " (" : "", todo ? todo : "", todo ? ")" : "");
}

/* Makes the program Tutti's. False, and a line on standard error: it stays as it is. */
static bool accelerate(const struct options *o)
{
	char library[PATH_MAX], dir[PATH_MAX];
	int side, ctl, err;

	const char *why, *todo;

	err = tt_cli_preload_path(library, sizeof(library));
	if (err < 0) {
		why = tt_cli_preload_why(err, &todo);
		explain(o, why, todo);
		return false;
	}
	if (strpbrk(library, ": ")) {
		explain(o, "the preload library's path has a space or colon in it",
			"install Tutti elsewhere");
		return false;
	}
	err = join(o, &side, &ctl);
	if (err < 0) {
		why = tt_cli_why(err, &todo);
		explain(o, why, todo);
		return false;
	}
	side = make_inherited(side);
	ctl = make_inherited(ctl);
	if (tt_cli_dir(dir, sizeof(dir), false) < 0 || set_preload(library) < 0 ||
	    set_fd("TUTTI_SIDE", side) < 0 || set_fd("TUTTI_CTL", ctl) < 0 ||
	    setenv("TUTTI_DIR", dir, 1) < 0 || (o->stats && setenv("TUTTI_STATS", "-", 0) < 0)) {
		explain(o, "out of memory", "free some");
		close(side);
		close(ctl);
		set_preload(NULL);
		return false;
	}
	return true;
}

/*
 * io_uring moves bytes past libc. The library refuses its set-up where libc is
 * asked; this filter where the kernel is. It stays for all that the program
 * starts, and costs set-user-id programs among them their privilege.
 */
static int forbid_io_uring(void)
{
	static const int calls[] = {SCMP_SYS(io_uring_setup), SCMP_SYS(io_uring_enter),
				    SCMP_SYS(io_uring_register)};
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	int err = filter ? 0 : -ENOMEM;

	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls) && !err; i++)
		err = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), calls[i], 0);
	if (!err)
		err = seccomp_load(filter);
	if (filter)
		seccomp_release(filter);
	return err;
}

int tt_cmd_run(int argc, char **argv)
{
	static struct tt_program program;
	struct options o = {0};
	int status = parse(argc, argv, &o), err;

	if (status >= 0)
		return status;
	err = tt_program_examine(o.program[0], &program);
	leave_outer_side();
	if (o.tcp || err < 0) {
		set_preload(NULL);
	} else if (program.why) {
		explain(&o, program.why, program.todo);
		set_preload(NULL);
	} else if (!accelerate(&o)) {
		set_preload(NULL);
	} else if (o.strict && (err = forbid_io_uring()) < 0) {
		return tt_cli_fail("run --strict", strerror(-err),
				   "does this kernel have seccomp filters?");
	}
	/* Also when it looked hopeless: the kernel decides what can be run. */
	execvp(o.program[0], o.program);
	err = errno;
	tt_cli_fail(o.program[0], strerror(err),
		    err == ENOENT ? "is the name right, and on PATH?" : "can it be executed?");
	return err == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_RUNNABLE;
}
