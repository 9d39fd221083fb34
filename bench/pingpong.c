/* SPDX-License-Identifier: MIT */
/*
 * tb-pingpong: one message each way at a time, blocking read and write.
 *
 * The client times every round trip and reports the half of it; one clock read a round trip (some
 * 25 ns here) is part of the figure, alike for every path. The first eight bytes of a message carry
 * its number, so a reply that is late, doubled or stale is an error and not a good time.
 */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
	"server|client [--family tcp|unix] [--host A] [--port P] [--path S]\n"
	"       [--size BYTES] [--count N] [--seconds S] [--warmup N] [--cpu N]\n"
	"       [--start-at-ns T] [--timeout S]";

static void serve(const struct tb_opts *o, char *buf)
{
	int listener = tb_listen(o, 1), fd = tb_accept(listener);
	struct tb_usage start;
	uint64_t messages = 0;

	tb_usage_get(&start);
	while (tb_read_all(fd, buf, o->size_bytes)) {
		tb_write_all(fd, buf, o->size_bytes);
		if (++messages == o->warmup)
			tb_usage_get(&start);
	}
	close(fd);
	close(listener);
	printf("{\"bench\":\"pingpong\",\"role\":\"server\",\"tx_bytes\":%llu,\"rx_bytes\":%llu",
	       (unsigned long long)(messages * o->size_bytes),
	       (unsigned long long)(messages * o->size_bytes));
	tb_usage_print(&start);
	puts("}");
}

static void round_trip(int fd, char *out, char *in, size_t size_bytes, uint64_t number)
{
	size_t tag_bytes = size_bytes < sizeof(number) ? size_bytes : sizeof(number);

	memcpy(out, &number, tag_bytes);
	tb_write_all(fd, out, size_bytes);
	if (!tb_read_all(fd, in, size_bytes))
		tb_fail("the server closed");
	if (memcmp(in, &number, tag_bytes) || in[size_bytes - 1] != out[size_bytes - 1])
		tb_fail("message %llu came back changed", (unsigned long long)number);
}

static void report(const struct tb_opts *o, const struct tb_hist *h, double elapsed_s)
{
	uint64_t bytes = (h->count + o->warmup) * o->size_bytes;

	printf("{\"bench\":\"pingpong\",\"role\":\"client\",\"size_bytes\":%zu,"
	       "\"messages\":%llu,\"p50_ns\":%.1f,\"p99_ns\":%.1f,\"p999_ns\":%.1f,"
	       "\"max_ns\":%.1f,\"elapsed_s\":%.6f,\"messages_per_s\":%.1f,"
	       "\"tx_bytes\":%llu,\"rx_bytes\":%llu",
	       o->size_bytes, (unsigned long long)h->count * 2, tb_hist_quantile(h, 0.5) / 2,
	       tb_hist_quantile(h, 0.99) / 2, tb_hist_quantile(h, 0.999) / 2, (double)h->max_ns / 2,
	       elapsed_s, (double)h->count * 2 / elapsed_s, (unsigned long long)bytes,
	       (unsigned long long)bytes);
}

static void ping(const struct tb_opts *o, char *out, char *in)
{
	static struct tb_hist h;
	struct tb_usage start;
	uint64_t begin, end, now, last;
	int fd = tb_connect(o);

	for (uint64_t i = 0; i < o->warmup; i++)
		round_trip(fd, out, in, o->size_bytes, i);
	tb_wait_until(o->start_at_ns);
	tb_usage_get(&start);
	begin = last = tb_now_ns();
	end = o->seconds > 0 ? begin + (uint64_t)(o->seconds * 1e9) : UINT64_MAX;
	for (uint64_t i = 0; (!o->count || i < o->count) && last < end; i++) {
		round_trip(fd, out, in, o->size_bytes, o->warmup + i);
		now = tb_now_ns();
		tb_hist_add(&h, now - last);
		last = now;
	}
	report(o, &h, (double)(last - begin) / 1e9);
	tb_usage_print(&start);
	puts("}");
	close(fd);
}

int main(int argc, char **argv)
{
	struct tb_opts o = {.size_bytes = 64, .warmup = 1000, .cpu = -1};
	char *out, *in;

	tb_name = "tb-pingpong";
	tb_parse(&o, argc, argv, true, usage);
	if (!o.server && !o.count && !(o.seconds > 0))
		o.count = 100000;
	out = malloc(o.size_bytes);
	in = malloc(o.size_bytes);
	if (!out || !in)
		tb_die("malloc");
	memset(out, 'x', o.size_bytes);
	memset(in, 0, o.size_bytes);
	if (o.server)
		serve(&o, in);
	else
		ping(&o, out, in);
	free(out);
	free(in);
	return 0;
}
