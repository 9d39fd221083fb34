/* SPDX-License-Identifier: MIT */
/*
 * Raw ULC: 8-byte (or --size) ping-pong between two processes on two cores.
 * Unlike the other programs here this one links Tutti: it measures its library.
 *
 * A message of at most 8 bytes is the immediate of a notification; a longer
 * one is a remote write with a notification.
 */
#include "common.h"

#include <tutti/ulc.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct end {
	struct tutti_region *region;
	struct tutti_cq *cq;
	struct tutti_channel *ch;
	size_t size;
	bool write; /* remote write, not immediate only */
	bool sleeps;
};

static void fail(const char *what, int err)
{
	fprintf(stderr, "tb-ulc: %s: %s\n", what, strerror(-err));
	exit(1);
}

static void open_end(struct end *e, int sock)
{
	int err = tutti_region_create(e->size < 4096 ? 4096 : e->size, &e->region);

	if (err == 0)
		err = tutti_cq_create(&e->cq);
	if (err == 0)
		err = tutti_channel_open(sock, e->region, e->cq, &e->ch);
	if (err < 0)
		fail("channel", err);
	tutti_cq_set_spin(e->cq, e->sleeps ? 0 : 1000000);
}

static void send_one(struct end *e, const void *buf, uint64_t imm)
{
	int err = e->write ? tutti_write_notify(e->ch, 0, buf, e->size, imm)
			   : tutti_notify(e->ch, imm);

	if (err < 0)
		fail("notify", err);
}

static void receive_one(struct end *e, void *buf, uint64_t imm)
{
	struct tutti_event ev;
	int n;

	do
		n = tutti_cq_wait(e->cq, &ev, 1, -1);
	while (n == -EINTR);
	if (n < 0)
		fail("wait", n);
	if (ev.kind != TUTTI_EVENT_NOTIFY || ev.imm != imm)
		fail("message", -EPROTO);
	if (e->write)
		memcpy(buf, tutti_region_address(e->region), e->size);
}

static void echo(struct end *e, char *buf, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		receive_one(e, buf, i);
		send_one(e, buf, i);
	}
}

static int64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void report(double *one_way, uint64_t n, double seconds, const struct end *e)
{
	qsort(one_way, n, sizeof(*one_way), by_value);
	printf("{\"bench\":\"ulc\",\"size_bytes\":%zu,\"write\":%s,\"messages\":%llu,"
	       "\"p50_ns\":%.1f,\"p99_ns\":%.1f,\"p999_ns\":%.1f,\"messages_per_s\":%.0f,"
	       "\"bytes_per_s\":%.0f}\n",
	       e->size, e->write ? "true" : "false", (unsigned long long)n * 2, one_way[n / 2],
	       one_way[n * 99 / 100], one_way[n * 999 / 1000], (double)n * 2 / seconds,
	       (double)n * 2 * (double)e->size / seconds);
}

int main(int argc, char **argv)
{
	struct end e = {.size = 8};
	uint64_t count = 200000, warmup = 20000;
	int sock[2];

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--size") == 0 && i + 1 < argc)
			e.size = strtoul(argv[++i], NULL, 10);
		else if (strcmp(argv[i], "--count") == 0 && i + 1 < argc)
			count = strtoul(argv[++i], NULL, 10);
		else if (strcmp(argv[i], "--write") == 0)
			e.write = true;
		else if (strcmp(argv[i], "--sleep") == 0)
			e.sleeps = true;
		else if (strcmp(argv[i], "--json") != 0) {
			fprintf(stderr, "usage: tb-ulc [--size BYTES] [--count N] [--write] "
					"[--sleep] [--json]\n");
			return 2;
		}
	}
	if (e.size == 0 || e.size > 1u << 30 || count < 1000)
		return 2;
	if (e.size > 8)
		e.write = true;
	if (warmup > count)
		warmup = count;
	char *buf = calloc(1, e.size);
	double *one_way = calloc(count, sizeof(*one_way));

	if (!buf || !one_way || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sock) < 0)
		fail("start", -ENOMEM);
	alarm(60);
	pid_t child = fork();

	if (child < 0)
		fail("fork", -errno);
	tb_pin(child == 0 ? 1 : 0);
	open_end(&e, sock[child == 0]);
	close(sock[0]);
	close(sock[1]);
	if (child == 0) {
		echo(&e, buf, warmup);
		echo(&e, buf, count);
		_exit(0);
	}
	for (uint64_t i = 0; i < warmup; i++) {
		send_one(&e, buf, i);
		receive_one(&e, buf, i);
	}
	int64_t t0 = now(), before = t0;

	for (uint64_t i = 0; i < count; i++) {
		send_one(&e, buf, i);
		receive_one(&e, buf, i);
		int64_t t = now();

		one_way[i] = (double)(t - before) / 2;
		before = t;
	}
	report(one_way, count, (double)(before - t0) / 1e9, &e);
	int status;

	waitpid(child, &status, 0);
	return status == 0 ? 0 : 1;
}
