/* SPDX-License-Identifier: MIT */
/*
 * tb-crowd: what a crowd of idle connections costs the few that are busy.
 *
 * Both sides wait in epoll_wait. BUSY connections each carry one message at a time, there and
 * back; first they alone are open, then N others lie beside them in the sets of both sides, each
 * after a few messages of its own. The same time is measured for both.
 */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUSY 10
#define MAX_EVENTS 64
#define GREETINGS 10 /* enough for a connection to be taken for one that lasts */

static const char usage[] = "server|client [--family tcp|unix] [--host A] [--port P] [--path S]\n"
			    "       [--connections IDLE] [--size BYTES] [--seconds S] [--cpu N]\n"
			    "       [--timeout S]";

static void greet(int fd, char *buf, size_t size_bytes)
{
	for (int i = 0; i < GREETINGS; i++) {
		tb_write_all(fd, buf, size_bytes);
		if (!tb_read_all(fd, buf, size_bytes))
			tb_fail("the server closed");
	}
}

/* Messages there and back on all of the busy connections for so long; how many in a second. */
static double measure(int set, const int *fds, char *buf, size_t size_bytes, double seconds,
		      uint64_t *messages)
{
	uint64_t start = tb_now_ns(), end = start + (uint64_t)(seconds * 1e9), count = 0;
	struct epoll_event events[MAX_EVENTS];
	int under_way = BUSY;

	for (int i = 0; i < BUSY; i++)
		tb_write_all(fds[i], buf, size_bytes);
	while (under_way) {
		int n = tb_wait(set, events, MAX_EVENTS);
		bool over = tb_now_ns() >= end;

		for (int i = 0; i < n; i++) {
			if (!tb_read_all(events[i].data.fd, buf, size_bytes))
				tb_fail("the server closed");
			count++;
			if (over)
				under_way--;
			else
				tb_write_all(events[i].data.fd, buf, size_bytes);
		}
	}
	*messages += count;
	return (double)count / ((double)(tb_now_ns() - start) / 1e9);
}

static void run_client(const struct tb_opts *o, char *buf)
{
	int *idle = calloc((size_t)o->connections + 1, sizeof(*idle));
	int busy[BUSY], set = epoll_create1(EPOLL_CLOEXEC);
	uint64_t messages = 0, greetings = (uint64_t)(BUSY + o->connections) * GREETINGS;
	double alone, crowd;
	struct tb_usage start;

	if (!idle || set < 0)
		tb_die("epoll_create1");
	for (int i = 0; i < BUSY; i++) {
		busy[i] = tb_connect(o);
		greet(busy[i], buf, o->size_bytes);
		tb_watch(set, busy[i]);
	}
	measure(set, busy, buf, o->size_bytes, o->seconds / 10, &messages);
	alone = measure(set, busy, buf, o->size_bytes, o->seconds / 2, &messages);
	for (int i = 0; i < o->connections; i++) {
		idle[i] = tb_connect(o);
		greet(idle[i], buf, o->size_bytes);
		tb_watch(set, idle[i]);
	}
	measure(set, busy, buf, o->size_bytes, o->seconds / 10, &messages);
	tb_usage_get(&start);
	crowd = measure(set, busy, buf, o->size_bytes, o->seconds / 2, &messages);
	printf("{\"bench\":\"crowd\",\"role\":\"client\",\"connections\":%d,\"messages\":%llu,"
	       "\"tx_bytes\":%llu,\"rx_bytes\":%llu,\"messages_per_s\":%.0f,"
	       "\"alone_messages_per_s\":%.0f,\"of_alone\":%.4f",
	       o->connections, (unsigned long long)messages,
	       (unsigned long long)((messages + greetings) * o->size_bytes),
	       (unsigned long long)((messages + greetings) * o->size_bytes), crowd, alone,
	       crowd / alone);
	tb_usage_print(&start);
	puts("}");
	free(idle);
}

int main(int argc, char **argv)
{
	struct tb_opts o = {.size_bytes = 64, .connections = 10000, .seconds = 2, .cpu = -1};
	char *buf;

	tb_name = "tb-crowd";
	tb_parse(&o, argc, argv, true, usage);
	tb_allow_descriptors(o.connections + BUSY);
	buf = calloc(1, o.size_bytes);
	if (!buf)
		tb_die("calloc");
	if (o.server)
		tb_echo_server(&o, "crowd", o.connections + BUSY, buf);
	else
		run_client(&o, buf);
	free(buf);
	return 0;
}
