/* SPDX-License-Identifier: MIT */
/*
 * tb-connect: connections per second, one after the other: connect, a byte there, a byte back,
 * close.
 *
 * The client closes first, so every connection leaves a TIME_WAIT behind, and a minute of them is
 * more than the ports to one address. The client therefore goes round a few addresses of the
 * loopback network, alike for every path; the server listens on all of them.
 */
#include "common.h"

#include <stdio.h>
#include <unistd.h>

#define ADDRESSES 16

/* What the last connection says, so that the server knows that it may leave. */
#define BYTE_MORE 'm'
#define BYTE_LAST 'q'

static const char usage[] = "server|client [--family tcp|unix] [--port P] [--path S]\n"
			    "       [--count N] [--seconds S] [--warmup N] [--cpu N]\n"
			    "       [--start-at-ns T] [--timeout S]";

static void run_server(struct tb_opts *o)
{
	struct tb_usage start;
	uint64_t connections = 0, empty = 0;
	char byte = 0, more;
	int listener;

	o->host = "0.0.0.0";
	listener = tb_listen(o, 128);
	tb_usage_get(&start);
	while (byte != BYTE_LAST) {
		int fd = tb_accept(listener);

		if (tb_read_all(fd, &byte, 1)) {
			tb_write_all(fd, &byte, 1);
			if (tb_read_all(fd, &more, 1))
				tb_fail("the client sent too much");
		} else {
			empty++;
		}
		close(fd);
		if (++connections == o->warmup)
			tb_usage_get(&start);
	}
	close(listener);
	if (empty)
		tb_fail("%llu connections brought no byte", (unsigned long long)empty);
	printf("{\"bench\":\"connect\",\"role\":\"server\",\"connections\":%llu,"
	       "\"tx_bytes\":%llu,\"rx_bytes\":%llu",
	       (unsigned long long)connections, (unsigned long long)connections,
	       (unsigned long long)connections);
	tb_usage_print(&start);
	puts("}");
}

static void one_connection(struct tb_opts *o, uint64_t number, char byte)
{
	char host[16], answer = 0;
	int fd;

	snprintf(host, sizeof(host), "127.0.0.%u", (unsigned int)(1 + number % ADDRESSES));
	o->host = host;
	fd = tb_connect(o);
	tb_write_all(fd, &byte, 1);
	if (!tb_read_all(fd, &answer, 1) || answer != byte)
		tb_fail("connection %llu got a wrong answer", (unsigned long long)number);
	close(fd);
}

static void run_client(struct tb_opts *o)
{
	struct tb_usage start;
	uint64_t begin, now, end, measured = 0, total;

	for (uint64_t i = 0; i < o->warmup; i++)
		one_connection(o, i, BYTE_MORE);
	tb_wait_until(o->start_at_ns);
	tb_usage_get(&start);
	begin = now = tb_now_ns();
	end = o->seconds > 0 ? begin + (uint64_t)(o->seconds * 1e9) : UINT64_MAX;
	while ((!o->count || measured < o->count) && now < end) {
		one_connection(o, o->warmup + measured, BYTE_MORE);
		measured++;
		now = tb_now_ns();
	}
	one_connection(o, o->warmup + measured, BYTE_LAST);
	total = o->warmup + measured + 1;
	printf("{\"bench\":\"connect\",\"role\":\"client\",\"connections\":%llu,"
	       "\"connections_per_s\":%.1f,\"elapsed_s\":%.6f,\"tx_bytes\":%llu,\"rx_bytes\":%llu",
	       (unsigned long long)total, (double)measured * 1e9 / (double)(now - begin),
	       (double)(now - begin) / 1e9, (unsigned long long)total, (unsigned long long)total);
	tb_usage_print(&start);
	puts("}");
}

int main(int argc, char **argv)
{
	struct tb_opts o = {.size_bytes = 1, .warmup = 100, .cpu = -1};

	tb_name = "tb-connect";
	tb_parse(&o, argc, argv, true, usage);
	if (!o.server && !o.count && !(o.seconds > 0))
		o.seconds = 1;
	if (o.server)
		run_server(&o);
	else
		run_client(&o);
	return 0;
}
