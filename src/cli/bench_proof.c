/* SPDX-License-Identifier: MIT */
/*
 * The proof that a path was used. The preloaded library appends a line of counters to the file that
 * TUTTI_STATS names when its process ends; the programs say how many bytes they sent and received.
 * On each side and in each direction the bytes in the rings and those on the shadow must add up to
 * the payload, to the byte, and the shadow may have carried no more than 64 KiB a connection (a
 * connection begins on TCP and goes over to the ring), or a twentieth of the payload (on a busy
 * machine the daemon and the peer come late).
 */
#include "bench_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SHADOW_LIMIT_BYTES 65536
#define SHADOW_SHARE 20

/* Counters of the preloaded library, summed. */
struct tt_bench_stats {
	uint64_t connections;
	uint64_t accelerated;
	uint64_t ring_tx_bytes;
	uint64_t ring_rx_bytes;
	uint64_t shadow_tx_bytes;
	uint64_t shadow_rx_bytes;
	uint64_t sleeps;
	uint64_t wakes;
};

static uint64_t counter(const json_t *line, const char *key)
{
	json_int_t value = json_integer_value(json_object_get(line, key));

	return value > 0 ? (uint64_t)value : 0;
}

static void add_line(const json_t *line, struct tt_bench_stats *sum)
{
	sum->connections += counter(line, "connections");
	sum->accelerated += counter(line, "accelerated");
	sum->ring_tx_bytes += counter(line, "ring_tx_bytes");
	sum->ring_rx_bytes += counter(line, "ring_rx_bytes");
	sum->shadow_tx_bytes += counter(line, "shadow_tx_bytes");
	sum->shadow_rx_bytes += counter(line, "shadow_rx_bytes");
	sum->sleeps += counter(line, "sleeps");
	sum->wakes += counter(line, "wakes");
}

/* Only the lines of that very process count: a child that it forked counts for itself. */
static bool read_stats(const char *file, pid_t pid, struct tt_bench_stats *ret_stats)
{
	struct tt_bench_stats sum = {0};
	char text[8192];
	bool found = false;
	FILE *f = fopen(file, "re");

	if (!f)
		return false;
	while (fgets(text, sizeof(text), f)) {
		json_t *line = json_loads(text, 0, NULL);

		if (line && counter(line, "pid") == (uint64_t)pid) {
			add_line(line, &sum);
			found = true;
		}
		json_decref(line);
	}
	fclose(f);
	*ret_stats = sum;
	return found;
}

/* Keeps the first failure: those that follow are mostly the same. */
static void fail(struct tt_bench *b, struct tt_bench_path *path, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void fail(struct tt_bench *b, struct tt_bench_path *path, const char *format, ...)
{
	va_list args;

	path->proof.ok = false;
	if (b->unproved[0])
		return;
	va_start(args, format);
	vsnprintf(b->unproved, sizeof(b->unproved), format, args);
	va_end(args);
}

static void check_side(struct tt_bench *b, struct tt_bench_path *path,
		       const struct tt_bench_end *end, const struct tt_bench_stats *s)
{
	unsigned long long tx = counter(end->report, "tx_bytes");
	unsigned long long rx = counter(end->report, "rx_bytes");
	unsigned long long shadow = s->shadow_tx_bytes + s->shadow_rx_bytes;

	if (s->ring_tx_bytes + s->shadow_tx_bytes != tx)
		fail(b, path, "the %s sent %llu bytes, but %llu by the ring and %llu over TCP",
		     end->side, tx, (unsigned long long)s->ring_tx_bytes,
		     (unsigned long long)s->shadow_tx_bytes);
	if (s->ring_rx_bytes + s->shadow_rx_bytes != rx)
		fail(b, path, "the %s received %llu bytes, but %llu by the ring and %llu over TCP",
		     end->side, rx, (unsigned long long)s->ring_rx_bytes,
		     (unsigned long long)s->shadow_rx_bytes);
	if (shadow > SHADOW_LIMIT_BYTES * s->connections && shadow > (tx + rx) / SHADOW_SHARE)
		fail(b, path,
		     "the %s moved %llu bytes over TCP on %llu connections, %llu of them "
		     "accelerated",
		     end->side, shadow, (unsigned long long)s->connections,
		     (unsigned long long)s->accelerated);
}

void tt_bench_prove(struct tt_bench *b, struct tt_bench_path *path,
		    const struct tt_bench_end *client, const struct tt_bench_end *server)
{
	struct tt_bench_proof *p = &path->proof;
	uint64_t payload =
		counter(client->report, "tx_bytes") + counter(client->report, "rx_bytes");
	struct tt_bench_stats c, s;

	if (!p->present)
		p->ok = true;
	p->present = true;
	if (!read_stats(client->stats_file, client->pid, &c) ||
	    !read_stats(server->stats_file, server->pid, &s)) {
		fail(b, path, "the library left no counters, so it was not loaded");
		return;
	}
	p->payload_bytes += payload;
	p->ring_bytes += c.ring_tx_bytes + c.ring_rx_bytes;
	p->shadow_bytes += c.shadow_tx_bytes + c.shadow_rx_bytes;
	p->connections += c.connections;
	p->accelerated += c.accelerated;
	p->sleeps += c.sleeps + s.sleeps;
	p->wakes += c.wakes + s.wakes;
	p->messages += payload / b->size_bytes;
	if (b->spec->proved) {
		check_side(b, path, client, &c);
		check_side(b, path, server, &s);
	}
}
