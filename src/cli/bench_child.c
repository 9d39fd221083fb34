/* SPDX-License-Identifier: MIT */
#include "bench_int.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
	(void)sig;
	interrupted = 1;
}

void tt_bench_pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	(void)sched_setaffinity(0, sizeof set, &set);
}

void tt_bench_catch_signals(void)
{
	struct sigaction a = {.sa_handler = on_signal};

	/* No SA_RESTART: the waits are to notice. */
	sigaction(SIGINT, &a, NULL);
	sigaction(SIGTERM, &a, NULL);
	sigaction(SIGHUP, &a, NULL);
}

bool tt_bench_interrupted(void)
{
	return interrupted;
}

uint64_t tt_bench_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

static void run_child(char *const argv[], const char *stats_file, int cpu, int out_fd, int err_fd)
{
	int null = open("/dev/null", O_RDONLY);
	cpu_set_t set;

	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	signal(SIGHUP, SIG_DFL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (cpu >= 0) {
		CPU_ZERO(&set);
		CPU_SET((size_t)cpu, &set);
		sched_setaffinity(0, sizeof(set), &set);
	}
	if (stats_file)
		setenv("TUTTI_STATS", stats_file, 1);
	/* What is measured is what everybody gets. */
	setenv("TUTTI_CONFIG", "", 1);
	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(out_fd, STDOUT_FILENO) < 0 ||
	    dup2(err_fd, STDERR_FILENO) < 0)
		_exit(127);
	execvp(argv[0], argv);
	dprintf(STDERR_FILENO, "%s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

/*
 * Output goes to a pipe (the first line is waited for) that is far larger than what a benchmark
 * prints; errors go to a file in memory, so that a talkative child never blocks. Neither is read
 * to its end-of-file: a daemon that 'tutti run' started may keep both open.
 */
int tt_bench_child_start(struct tt_bench *b, char *const argv[], const char *stats_file, int cpu,
			 struct tt_bench_child *ret_child)
{
	struct tt_bench_child c = {.pidfd = -1, .out_fd = -1, .err_fd = -1};
	int out[2], err;

	if (pipe2(out, O_CLOEXEC))
		return tt_bench_error(b, errno, "cannot make a pipe: %s", strerror(errno));
	c.out_fd = out[0];
	c.err_fd = memfd_create("tutti-bench-errors", MFD_CLOEXEC);
	if (c.err_fd < 0) {
		err = errno;
		goto close_out;
	}
	c.pid = fork();
	if (c.pid < 0) {
		err = errno;
		goto close_err;
	}
	if (!c.pid)
		run_child(argv, stats_file, cpu, out[1], c.err_fd);
	close(out[1]);
	fcntl(c.out_fd, F_SETFL, O_NONBLOCK);
	c.pidfd = pidfd_open(c.pid, 0);
	if (c.pidfd < 0) {
		err = errno;
		tt_bench_child_stop(&c);
		return tt_bench_error(b, err, "cannot watch a process: %s", strerror(err));
	}
	fcntl(c.pidfd, F_SETFD, FD_CLOEXEC);
	*ret_child = c;
	return 0;

close_err:
	close(c.err_fd);
close_out:
	close(out[0]);
	close(out[1]);
	return tt_bench_error(b, err, "cannot start %s: %s", argv[0], strerror(err));
}

static void read_output(struct tt_bench_child *c)
{
	ssize_t n;

	while (c->out_len < sizeof(c->out) - 1) {
		n = read(c->out_fd, c->out + c->out_len, sizeof(c->out) - 1 - c->out_len);
		if (n <= 0)
			break;
		c->out_len += (size_t)n;
	}
	c->out[c->out_len] = '\0';
}

/* The last line that the child wrote to standard error. */
static void last_error_line(const struct tt_bench_child *c, char *ret_line, size_t size_bytes)
{
	char text[1024], *line;
	off_t end = lseek(c->err_fd, 0, SEEK_END);
	off_t from = end > (off_t)sizeof(text) - 1 ? end - ((off_t)sizeof(text) - 1) : 0;
	ssize_t n = pread(c->err_fd, text, sizeof(text) - 1, from);

	if (n < 0)
		n = 0;
	while (n > 0 && text[n - 1] == '\n')
		n--;
	text[n] = '\0';
	line = strrchr(text, '\n');
	snprintf(ret_line, size_bytes, "%.200s", line ? line + 1 : text);
}

/* Reaps a child that has ended and judges its end. */
static int reap(struct tt_bench *b, struct tt_bench_child *c)
{
	char line[256];
	int status = 0;
	pid_t pid;

	do
		pid = waitpid(c->pid, &status, 0);
	while (pid < 0 && errno == EINTR);
	c->pid = 0;
	read_output(c);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	last_error_line(c, line, sizeof(line));
	if (WIFSIGNALED(status))
		return tt_bench_error(b, EIO, "a benchmark program was killed by signal %d%s%s",
				      WTERMSIG(status), line[0] ? ": " : "", line);
	return tt_bench_error(b, EIO, "%s", line[0] ? line : "a benchmark program failed");
}

/* Waits until the child has output or has ended, which *ret_ended tells. */
static int await_child(struct tt_bench *b, struct tt_bench_child *c, uint64_t deadline_ns,
		       bool want_output, bool *ret_ended)
{
	struct pollfd fds[2] = {{.fd = c->pidfd, .events = POLLIN},
				{.fd = want_output ? c->out_fd : -1, .events = POLLIN}};

	for (;;) {
		uint64_t now = tt_bench_now_ns();
		int n;

		if (interrupted)
			return tt_bench_error(b, EINTR, "interrupted");
		if (now >= deadline_ns)
			return tt_bench_error(b, ETIMEDOUT,
					      "a benchmark program did not end in "
					      "time (a path that hangs?)");
		n = poll(fds, 2, (int)((deadline_ns - now) / 1000000) + 1);
		if (n > 0) {
			*ret_ended = fds[0].revents;
			return 0;
		}
	}
}

int tt_bench_child_line(struct tt_bench *b, struct tt_bench_child *c, uint64_t deadline_ns,
			char *ret_line, size_t size_bytes)
{
	bool ended = false;
	char *end;
	int ret;

	for (;;) {
		read_output(c);
		c->out[c->out_len] = '\0';
		end = strchr(c->out, '\n');
		if (end) {
			snprintf(ret_line, size_bytes, "%.*s", (int)(end - c->out), c->out);
			return 0;
		}
		if (ended) {
			ret = reap(b, c);
			return ret ? ret : tt_bench_error(b, EIO, "a server ended at once");
		}
		ret = await_child(b, c, deadline_ns, true, &ended);
		if (ret)
			return ret;
	}
}

int tt_bench_child_wait(struct tt_bench *b, struct tt_bench_child *c, uint64_t deadline_ns)
{
	bool ended = false;
	int ret;

	while (!ended) {
		ret = await_child(b, c, deadline_ns, false, &ended);
		if (ret)
			return ret;
	}
	return reap(b, c);
}

void tt_bench_child_stop(struct tt_bench_child *c)
{
	if (c->pid > 0) {
		kill(c->pid, SIGKILL);
		while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	if (c->out_fd > 0)
		close(c->out_fd);
	if (c->err_fd > 0)
		close(c->err_fd);
	if (c->pidfd > 0)
		close(c->pidfd);
	memset(c, 0, sizeof(*c));
}
