/* SPDX-License-Identifier: MIT */
#include "cli_int.h"
#include "daemon/daemon.h"
#include "table_int.h"
#include "ulc/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_TIMEOUT_MS 5000
#define ANSWER_TIMEOUT_MS 5000
/* Where the daemon finds the pipe that it reports to. */
#define READY_FD 3

extern char **environ;

/* ---- starting ---- */

/* The daemon is nobody's program: nothing of this command's surroundings concerns it. */
static char **daemon_environment(const char *dir)
{
	static char dir_var[PATH_MAX + 16];
	size_t n = 0;
	char **env;

	for (char **e = environ; *e; e++)
		n++;
	env = calloc(n + 2, sizeof(*env));
	if (!env)
		return NULL;
	n = 0;
	for (char **e = environ; *e; e++)
		if (strncmp(*e, "LD_PRELOAD=", 11) != 0 && strncmp(*e, "TUTTI_", 6) != 0)
			env[n++] = *e;
	snprintf(dir_var, sizeof(dir_var), "TUTTI_DIR=%s", dir);
	env[n] = dir_var;
	return env;
}

static void exec_daemon(char *const argv[], const char *dir)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char **env = daemon_environment(dir);

	if (!env)
		return;
	self[n < 0 ? 0 : n] = '\0';
	execve(self, argv, env);
	/* The file was replaced; what runs can still be run again. */
	execve("/proc/self/exe", argv, env);
}

static void become_daemon(int ready_fd, const char *dir)
{
	char name[] = "tuttid", option[] = "--ready";
	char *argv[] = {name, option, NULL};
	int null = open("/dev/null", O_RDWR);

	/* The pipe first out of the way of what dup2 overwrites. */
	ready_fd = fcntl(ready_fd, F_DUPFD, 10);
	for (int fd = 0; fd < 3; fd++)
		dup2(null, fd);
	dup2(ready_fd, READY_FD);
	exec_daemon(argv, dir);
	_exit(127);
}

/* 0, TT_DAEMON_RUNNING, or why not. */
static int start_daemon(const char *dir)
{
	int pipe_fds[2], status = -EPIPE;
	pid_t child;

	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return -errno;
	child = fork();
	if (child == 0) {
		/* Twice, so that it is no child of the program that we become. */
		setsid();
		if (fork() == 0)
			become_daemon(pipe_fds[1], dir);
		_exit(0);
	}
	close(pipe_fds[1]);
	if (child < 0) {
		close(pipe_fds[0]);
		return -EAGAIN;
	}
	while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	struct pollfd p = {pipe_fds[0], POLLIN, 0};
	int n;

	do
		n = poll(&p, 1, START_TIMEOUT_MS);
	while (n < 0 && errno == EINTR);
	if (n == 0)
		status = -ETIMEDOUT;
	else if (read(pipe_fds[0], &status, sizeof(status)) != sizeof(status))
		status = -EPIPE;
	close(pipe_fds[0]);
	return status;
}

int tt_cli_connect_or_start(void)
{
	char dir[PATH_MAX];
	int err = tt_cli_dir(dir, sizeof(dir), true);

	if (err < 0)
		return err;
	for (int tries = 0; tries < 200; tries++) {
		int ctl = tt_ctl_connect();

		if (ctl >= 0)
			return ctl;
		if (ctl != -ENOENT && ctl != -ECONNREFUSED && ctl != -EAGAIN)
			return ctl;
		err = ctl == -EAGAIN ? ctl : start_daemon(dir);
		if (err < 0 && err != TT_DAEMON_RUNNING && err != -EAGAIN)
			return err;
		/* Another one starts, or ends, at this moment. */
		if (err < 0)
			usleep(10000);
	}
	return err == 0 ? -ECONNREFUSED : err;
}

static void reset_surroundings(void)
{
	struct sigaction dfl = {.sa_handler = SIG_DFL};
	struct sched_param normal = {0};
	cpu_set_t all;

	for (int s = 1; s < NSIG; s++)
		sigaction(s, &dfl, NULL);
	/* Who starts us may have pinned itself, or raised its priority. */
	memset(&all, 0xff, sizeof(all));
	sched_setaffinity(0, sizeof(all), &all);
	sched_setscheduler(0, SCHED_OTHER, &normal);
	prctl(PR_SET_NAME, "tuttid");
}

int tt_cmd_daemon(int argc, char **argv)
{
	struct tt_daemon_options opt = {.ready_fd = -1};

	if (argc == 2 && !strcmp(argv[1], "--ready"))
		opt.ready_fd = READY_FD;
	else if (argc == 2 && !strcmp(argv[1], "--foreground"))
		opt.foreground = true;
	else
		return tt_cli_misuse("up", "the daemon is started by 'tutti up'", NULL);
	/* Whatever was inherited would live as long as we do. */
	syscall(SYS_close_range, opt.ready_fd < 0 ? 3 : READY_FD + 1, ~0u, 0);
	if (opt.ready_fd >= 0)
		fcntl(opt.ready_fd, F_SETFD, FD_CLOEXEC);
	reset_surroundings();
	int err = tt_daemon_main(&opt);

	/* In the background, who waits at the pipe has been told. */
	if (err < 0 && opt.foreground) {
		const char *todo, *why = tt_cli_why(err, &todo);

		return tt_cli_fail("cannot start the daemon", why, todo);
	}
	return err < 0 ? TT_EXIT_FAILED : TT_EXIT_OK;
}

/* ---- asking ---- */

static int read_all(int fd, char **ret_text)
{
	struct stat st;
	char *text;
	size_t size, done = 0;

	if (fstat(fd, &st) < 0)
		return -errno;
	size = (size_t)st.st_size;
	text = malloc(size + 1);
	if (!text)
		return -ENOMEM;
	while (done < size) {
		ssize_t n = pread(fd, text + done, size - done, (off_t)done);

		if (n <= 0)
			break;
		done += (size_t)n;
	}
	text[done] = '\0';
	*ret_text = text;
	return 0;
}

int tt_cli_report(int type, uint64_t arg, uint64_t more, char **ret_text)
{
	struct tt_ctl_msg m = tt_ctl_msg((enum tt_ctl_type)type, arg, more, 0, 0);
	int ctl = tt_ctl_connect(), fd, err;

	if (ctl < 0)
		return ctl;
	err = tt_ctl_request(ctl, &m, -1, &fd, ANSWER_TIMEOUT_MS);
	if (err == 0 && fd < 0)
		err = -EPROTO;
	if (err == 0)
		err = read_all(fd, ret_text);
	if (fd >= 0)
		close(fd);
	close(ctl);
	return err;
}

/* ---- the commands ---- */

static int up_usage(void)
{
	puts("usage: tutti up [--foreground]\n\n"
	     "Starts this user's daemon, unless it runs. 'tutti run' does this by itself.\n\n"
	     "  --foreground   stay, and log to standard error\n"
	     "  -h, --help     this");
	return TT_EXIT_OK;
}

static int up_foreground(void)
{
	char name[] = "tuttid", option[] = "--foreground", dir[PATH_MAX];
	char *argv[] = {name, option, NULL};
	const char *todo, *why;
	int err = tt_cli_dir(dir, sizeof(dir), true);

	if (err < 0) {
		why = tt_cli_dir_why(err, &todo);
		return tt_cli_fail("cannot start the daemon", why, todo);
	}
	exec_daemon(argv, dir);
	return tt_cli_fail("cannot start the daemon", strerror(errno), NULL);
}

int tt_cmd_up(int argc, char **argv)
{
	static const struct option options[] = {{"help", no_argument, NULL, 'h'},
						{"foreground", no_argument, NULL, 'f'},
						{"system", no_argument, NULL, 's'},
						{NULL, 0, NULL, 0}};
	int opt;

	optind = 0;
	opterr = 0;
	while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (opt) {
		case 'h': return up_usage();
		case 'f': return up_foreground();
		case 's':
			return tt_cli_fail("up",
					   "a daemon for the whole machine is not in this version",
					   "use 'tutti up', as each user");
		default: return tt_cli_bad_option("up", opt, argv);
		}
	}
	if (optind < argc)
		return tt_cli_misuse("up", "unexpected word", argv[optind]);
	int ctl = tt_cli_connect_or_start();

	if (ctl < 0) {
		const char *todo, *why = tt_cli_why(ctl, &todo);

		return tt_cli_fail("cannot start the daemon", why, todo);
	}
	close(ctl);
	return TT_EXIT_OK;
}

/* Of who listens; a negative errno when it cannot be had. */
static int open_daemon(int ctl)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);
	int fd;

	if (getsockopt(ctl, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || peer.pid <= 0)
		return -EPIPE;
	fd = pidfd_open(peer.pid, 0);
	return fd < 0 ? -errno : fd;
}

/* 0: what fd is of has ended. */
static int await_end(int fd)
{
	struct pollfd p = {fd, POLLIN, 0};

	return poll(&p, 1, ANSWER_TIMEOUT_MS) == 0 ? -ETIMEDOUT : 0;
}

static int end_by_signal(int pidfd)
{
	if (pidfd < 0)
		return pidfd == -ESRCH ? 0 : pidfd;
	return pidfd_send_signal(pidfd, SIGTERM, NULL, 0) < 0 ? -errno : await_end(pidfd);
}

int tt_cmd_down(int argc, char **argv)
{
	struct tt_ctl_msg m = tt_ctl_msg(TT_CTL_DOWN, 0, 0, 0, 0);
	int ctl, pidfd, err;

	if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		puts("usage: tutti down\n\n"
		     "Ends this user's daemon. Live connections go on.\n\n"
		     "  -h, --help   this");
		return TT_EXIT_OK;
	}
	if (argc > 1)
		return tt_cli_misuse("down", "unexpected word", argv[1]);
	ctl = tt_ctl_connect();
	if (tt_cli_is_absent(ctl)) /* what was wanted */
		return TT_EXIT_OK;
	if (ctl < 0)
		return tt_cli_no_report("down", ctl);
	pidfd = open_daemon(ctl);
	err = tt_ctl_request(ctl, &m, -1, NULL, ANSWER_TIMEOUT_MS);
	/* Until it is really gone, its lock with it: the next one shall find its place free. */
	if (err == 0)
		err = await_end(pidfd < 0 ? ctl : pidfd);
	/* It is there and cannot listen: out of descriptors, say. The socket names its process. */
	else if (err != -ETIMEDOUT)
		err = end_by_signal(pidfd);
	if (pidfd >= 0)
		close(pidfd);
	close(ctl);
	return err < 0 ? tt_cli_no_report("down", err) : TT_EXIT_OK;
}

static void print_metric(const char *name, const char *suffix, const json_t *value)
{
	bool counter = *suffix || strstr(name, "_total");

	printf("# TYPE tutti_%s%s %s\n", name, suffix, counter ? "counter" : "gauge");
	printf("tutti_%s%s %.15g\n", name, suffix, json_number_value(value));
}

static void print_reasons(json_t *reasons)
{
	const char *reason;
	json_t *count;

	puts("# TYPE tutti_fallback_reasons_total counter");
	json_object_foreach(reasons, reason, count)
		printf("tutti_fallback_reasons_total{reason=\"%s\"} %.15g\n", reason,
		       json_number_value(count));
}

/* Every number of the report; those of the object "totals" are counters. */
static void print_metrics(json_t *object, const char *suffix)
{
	const char *key;
	json_t *value;

	json_object_foreach(object, key, value)
	{
		if (!strcmp(key, "fallback_reasons"))
			print_reasons(value);
		else if (json_is_object(value))
			print_metrics(value, "_total");
		else if (json_is_number(value) && strcmp(key, "pid") != 0)
			print_metric(key, suffix, value);
	}
}

static void print_status(const json_t *r)
{
	static const char *const keys[] = {"sides",	  "links",	   "bells",
					   "claims",	  "granted_total", "refused_total",
					   "memory_bytes"};
	char text[TT_LINE_BYTES];

	printf("daemon of pid %" JSON_INTEGER_FORMAT ", version %s, up for %.0f s\n",
	       json_integer_value(json_object_get(r, "pid")),
	       json_string_value(json_object_get(r, "version")),
	       json_number_value(json_object_get(r, "uptime_s")));
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		printf("  %-14s %" JSON_INTEGER_FORMAT "\n", keys[i],
		       json_integer_value(json_object_get(r, keys[i])));
	tt_format_totals(json_object_get(r, "totals"), text, sizeof(text));
	printf("since its start: %s\n", text);
	tt_format_sums(json_object_get(r, "totals"), text, sizeof(text));
	printf("                 %s\n", text);
}

int tt_cmd_status(int argc, char **argv)
{
	static const struct option options[] = {{"help", no_argument, NULL, 'h'},
						{"json", no_argument, NULL, 'j'},
						{"metrics", no_argument, NULL, 'm'},
						{NULL, 0, NULL, 0}};
	int opt, how = 0;
	char *text;

	optind = 0;
	opterr = 0;
	while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (opt == 'h') {
			puts("usage: tutti status [--json | --metrics]\n\n"
			     "What the daemon does; exit status 1 when none runs.\n\n"
			     "  --json      one JSON object\n"
			     "  --metrics   as Prometheus reads it\n"
			     "  -h, --help  this");
			return TT_EXIT_OK;
		}
		if (opt == '?')
			return tt_cli_bad_option("status", opt, argv);
		if (how && how != opt)
			return tt_cli_misuse("status", "--json or --metrics, not both", NULL);
		how = opt;
	}
	if (optind < argc)
		return tt_cli_misuse("status", "unexpected word", argv[optind]);
	int err = tt_cli_report(TT_CTL_STATUS, 0, 0, &text);

	if (err < 0)
		return tt_cli_no_report("status", err);
	json_t *r = json_loads(text, 0, NULL);

	if (how == 'j')
		puts(text);
	else if (how == 'm')
		print_metrics(r, "");
	else
		print_status(r);
	free(text);
	if (!r)
		return tt_cli_fail("status", "the daemon's answer is no JSON", NULL);
	json_decref(r);
	return TT_EXIT_OK;
}
