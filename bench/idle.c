/* SPDX-License-Identifier: MIT */
/*
 * tb-idle: what many connections cost while nothing happens on them.
 *
 * The client opens N connections and moves some bytes both ways over each (checked echoes), then
 * both sides sleep in epoll_wait for all of them. What that costs is measured by a third process,
 * the watcher, so that the measuring does not show in the figures: CPU time and context switches
 * of both sides over the idle time, and their resident memory before and after. It is forked before
 * the client has any socket and talks to it through pipes. The client's epoll set thus also holds
 * a pipe, which wakes it at the end.
 *
 * Resident memory is the proportional set size of both sides together, which counts a page that
 * both have mapped once. Pages of shared memory that neither has mapped do not show there; the
 * growth of the machine's Shmem is reported beside it.
 */
#include "common.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_EVENTS 64
#define SETTLE_MS 300

static const char usage[] =
	"server|client [--family tcp|unix] [--host A] [--port P] [--path S]\n"
	"       [--connections N] [--bytes PER_CONNECTION] [--size BYTES] [--seconds S]\n"
	"       [--peer-pid PID] [--cpu N] [--timeout S]\n"
	"       a client needs the server's --peer-pid";

/* ---- the watcher ---- */

struct memory {
	uint64_t rss_bytes;
	uint64_t pss_bytes;
};

struct activity {
	uint64_t ticks; /* user and system, of /proc/PID/stat */
	uint64_t run_ns;
	uint64_t voluntary;
	uint64_t involuntary;
};

/* Reads the number behind a key at the beginning of a line of a file of /proc. */
static uint64_t proc_value(const char *file, const char *key)
{
	char line[256];
	unsigned long long value;
	FILE *f = fopen(file, "re");

	if (!f)
		tb_die(file);
	while (fgets(line, sizeof(line), f)) {
		if (strncmp(line, key, strlen(key)) ||
		    sscanf(line + strlen(key), "%llu", &value) != 1)
			continue;
		fclose(f);
		return value;
	}
	fclose(f);
	tb_fail("no %s in %s", key, file);
}

static void read_memory(pid_t pid, struct memory *ret_memory)
{
	char file[64];

	snprintf(file, sizeof(file), "/proc/%d/smaps_rollup", (int)pid);
	ret_memory->rss_bytes = proc_value(file, "Rss:") << 10;
	ret_memory->pss_bytes = proc_value(file, "Pss:") << 10;
}

static uint64_t read_ticks(pid_t pid)
{
	unsigned long long user, system;
	char file[64], line[1024], *p;
	FILE *f;

	snprintf(file, sizeof(file), "/proc/%d/stat", (int)pid);
	f = fopen(file, "re");
	if (!f || !fgets(line, sizeof(line), f))
		tb_die(file);
	fclose(f);
	/* The name in parentheses may hold anything, so count from the last one. */
	p = strrchr(line, ')');
	if (!p || sscanf(p, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user,
			 &system) != 2)
		tb_fail("cannot understand %s", file);
	return user + system;
}

static uint64_t read_run_ns(const char *file)
{
	unsigned long long run_ns;
	FILE *f = fopen(file, "re");

	if (!f || fscanf(f, "%llu", &run_ns) != 1)
		tb_die(file);
	fclose(f);
	return run_ns;
}

/* Sums over all threads: what lies below the program may have brought some of its own. */
static void read_activity(pid_t pid, struct activity *ret_activity)
{
	struct activity sum = {.ticks = read_ticks(pid)};
	char dir[64], file[384];
	struct dirent *entry;
	DIR *tasks;

	snprintf(dir, sizeof(dir), "/proc/%d/task", (int)pid);
	tasks = opendir(dir);
	if (!tasks)
		tb_die(dir);
	while ((entry = readdir(tasks))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(file, sizeof(file), "%s/%s/schedstat", dir, entry->d_name);
		sum.run_ns += read_run_ns(file);
		snprintf(file, sizeof(file), "%s/%s/status", dir, entry->d_name);
		sum.voluntary += proc_value(file, "voluntary_ctxt_switches:");
		sum.involuntary += proc_value(file, "nonvoluntary_ctxt_switches:");
	}
	closedir(tasks);
	*ret_activity = sum;
}

static void sleep_ns(uint64_t ns)
{
	tb_wait_until(tb_now_ns() + ns);
}

static void print_side(const char *side, const struct memory *before, const struct memory *after,
		       const struct activity *a, const struct activity *b)
{
	printf(",\"%s\":{\"cpu_ticks\":%llu,\"cpu_ns\":%llu,\"voluntary_switches\":%llu,"
	       "\"involuntary_switches\":%llu,\"rss_before_bytes\":%llu,\"rss_after_bytes\":%llu,"
	       "\"pss_before_bytes\":%llu,\"pss_after_bytes\":%llu}",
	       side, (unsigned long long)(b->ticks - a->ticks),
	       (unsigned long long)(b->run_ns - a->run_ns),
	       (unsigned long long)(b->voluntary - a->voluntary),
	       (unsigned long long)(b->involuntary - a->involuntary),
	       (unsigned long long)before->rss_bytes, (unsigned long long)after->rss_bytes,
	       (unsigned long long)before->pss_bytes, (unsigned long long)after->pss_bytes);
}

static void print_report(const struct tb_opts *o, const struct memory before[2],
			 const struct memory after[2], const struct activity from[2],
			 const struct activity to[2], int64_t shmem_bytes)
{
	uint64_t payload = (uint64_t)o->connections * o->bytes;
	double grown = (double)(after[0].pss_bytes + after[1].pss_bytes) -
		       (double)(before[0].pss_bytes + before[1].pss_bytes);
	struct activity sum = {0};

	for (int i = 0; i < 2; i++) {
		sum.ticks += to[i].ticks - from[i].ticks;
		sum.run_ns += to[i].run_ns - from[i].run_ns;
		sum.voluntary += to[i].voluntary - from[i].voluntary;
		sum.involuntary += to[i].involuntary - from[i].involuntary;
	}
	printf("{\"bench\":\"idle\",\"role\":\"client\",\"connections\":%d,\"idle_s\":%.3f,"
	       "\"tx_bytes\":%llu,\"rx_bytes\":%llu,\"cpu_ticks\":%llu,\"cpu_ns\":%llu,"
	       "\"voluntary_switches\":%llu,\"involuntary_switches\":%llu,"
	       "\"resident_per_connection_bytes\":%.0f,\"shmem_per_connection_bytes\":%.0f",
	       o->connections, o->seconds, (unsigned long long)payload, (unsigned long long)payload,
	       (unsigned long long)sum.ticks, (unsigned long long)sum.run_ns,
	       (unsigned long long)sum.voluntary, (unsigned long long)sum.involuntary,
	       grown / o->connections, (double)shmem_bytes / o->connections);
	print_side("client_side", &before[0], &after[0], &from[0], &to[0]);
	print_side("server_side", &before[1], &after[1], &from[1], &to[1]);
	puts("}");
}

static void await_byte(int fd)
{
	char byte;

	if (!tb_read_all(fd, &byte, 1))
		tb_fail("the client gave up");
}

/*
 * Waits for a byte when the client is about to connect, and one when all bytes are moved; sends
 * one when each memory figure or the idle time is done.
 */
static void watch(const struct tb_opts *o, pid_t client, int in, int out)
{
	const pid_t pids[2] = {client, o->peer_pid};
	struct memory before[2], after[2];
	struct activity from[2], to[2];
	uint64_t shmem;

	await_byte(in);
	for (int i = 0; i < 2; i++)
		read_memory(pids[i], &before[i]);
	shmem = proc_value("/proc/meminfo", "Shmem:") << 10;
	tb_write_all(out, "b", 1);

	await_byte(in);
	sleep_ns(SETTLE_MS * 1000000ULL);
	for (int i = 0; i < 2; i++)
		read_memory(pids[i], &after[i]);
	for (int i = 0; i < 2; i++)
		read_activity(pids[i], &from[i]);
	sleep_ns((uint64_t)(o->seconds * 1e9));
	for (int i = 0; i < 2; i++)
		read_activity(pids[i], &to[i]);
	shmem = (proc_value("/proc/meminfo", "Shmem:") << 10) - shmem;
	print_report(o, before, after, from, to, (int64_t)shmem);
	fflush(stdout);
	tb_write_all(out, "e", 1);
}

static pid_t start_watcher(const struct tb_opts *o, int *ret_to, int *ret_from)
{
	pid_t client = getpid(), watcher;
	int to[2], from[2];

	if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC))
		tb_die("pipe");
	watcher = fork();
	if (watcher < 0)
		tb_die("fork");
	if (!watcher) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(to[1]);
		close(from[0]);
		watch(o, client, to[0], from[1]);
		_exit(0);
	}
	close(to[0]);
	close(from[1]);
	*ret_to = to[1];
	*ret_from = from[0];
	return watcher;
}

/* ---- the two sides ---- */

/* Fills a message that says which connection and which part of its bytes it is. */
static void fill_message(uint32_t *words, size_t size_bytes, int connection, uint64_t number)
{
	uint32_t seed = (uint32_t)connection * 2654435761U + (uint32_t)number * 40503U;

	for (size_t i = 0; i < size_bytes / sizeof(*words); i++)
		words[i] = seed + (uint32_t)i;
}

static void echo_all(const struct tb_opts *o, const int *fds, uint32_t *out, uint32_t *in)
{
	uint64_t messages = o->bytes / o->size_bytes;

	for (uint64_t m = 0; m < messages; m++) {
		for (int c = 0; c < o->connections; c++) {
			fill_message(out, o->size_bytes, c, m);
			tb_write_all(fds[c], out, o->size_bytes);
			if (!tb_read_all(fds[c], in, o->size_bytes))
				tb_fail("the server closed");
			if (memcmp(in, out, o->size_bytes))
				tb_fail("connection %d: message %llu came back changed", c,
					(unsigned long long)m);
		}
	}
}

static void run_client(struct tb_opts *o, char *buf)
{
	struct epoll_event events[MAX_EVENTS];
	int to, from, set, status;
	int *fds = calloc((size_t)o->connections, sizeof(*fds));
	char *in = malloc(o->size_bytes);
	pid_t watcher = start_watcher(o, &to, &from);

	if (!fds || !in)
		tb_die("malloc");
	memset(in, 0, o->size_bytes);
	tb_write_all(to, "c", 1);
	await_byte(from);
	set = epoll_create1(EPOLL_CLOEXEC);
	if (set < 0)
		tb_die("epoll_create1");
	tb_watch(set, from);
	for (int i = 0; i < o->connections; i++)
		fds[i] = tb_connect(o);
	echo_all(o, fds, (uint32_t *)(void *)buf, (uint32_t *)(void *)in);
	for (int i = 0; i < o->connections; i++)
		tb_watch(set, fds[i]);
	tb_write_all(to, "m", 1);
	/* Here it idles; the only event that may come is the watcher's. */
	if (tb_wait(set, events, MAX_EVENTS) != 1 || events[0].data.fd != from)
		tb_fail("an idle connection became readable");
	for (int i = 0; i < o->connections; i++)
		close(fds[i]);
	if (waitpid(watcher, &status, 0) != watcher || status)
		tb_fail("the measuring process failed");
	free(in);
	free(fds);
}

int main(int argc, char **argv)
{
	struct tb_opts o = {.size_bytes = 16384,
			    .bytes = 1 << 20,
			    .connections = 1000,
			    .seconds = 10,
			    .cpu = -1};
	char *buf;

	tb_name = "tb-idle";
	tb_parse(&o, argc, argv, true, usage);
	if ((!o.server && !o.peer_pid) || o.connections < 1 || o.bytes % o.size_bytes) {
		fprintf(stderr,
			"%s: a client needs --peer-pid, there must be connections, and "
			"--size must divide --bytes\n",
			tb_name);
		return 2;
	}
	tb_allow_descriptors(o.connections);
	buf = malloc(o.size_bytes);
	if (!buf)
		tb_die("malloc");
	memset(buf, 0, o.size_bytes);
	if (o.server)
		tb_echo_server(&o, "idle", o.connections, buf);
	else
		run_client(&o, buf);
	free(buf);
	return 0;
}
