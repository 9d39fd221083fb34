/* SPDX-License-Identifier: MIT */
/*
 * How much of its ports' capacity a switch carries, when packets that wait for
 * a busy output hold up none behind them (a queue for each output), and with
 * plain inputs (first in, first out). It is the switch of src/device, under a
 * clock that this file moves on: in each slot a port moves one packet in and
 * one out. So nothing here depends on the machine's speed, and the same seed
 * gives the same figures.
 *
 * In each slot one packet arrives at each source, for a destination that the
 * pattern draws. Queues are finite: it is lost at the source when FLOW_WINDOW
 * packets of its flow are under way, or when the source has no slot left.
 */
#include "bench_fabric.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FLOW_WINDOW = 16, SLOT_NS = 1000, HOT_ONE_IN = 4, WARM_UP_SHARE = 5 };
enum { OUT_OF_ORDER, FIFO, KINDS };

/* What a packet carries. */
struct parcel {
	uint32_t source, destination;
	uint64_t number; /* in its flow */
};

struct flow {
	uint64_t sent, received;
};

struct bench_switch {
	struct tt_bench *b;
	uint32_t ports;
	uint64_t random;
	struct tt_bench_fabric f;
	uint32_t device;
	struct tt_member members[TT_PORTS];
	struct flow flows[TT_PORTS][TT_PORTS]; /* [source][destination] */
	double loads[KINDS][TT_BENCH_MAX_PAIRS];
};

static int64_t clock_ns; /* the switch's time */

static int64_t now_ns(void)
{
	return clock_ns;
}

/* xorshift64 (G. Marsaglia, Xorshift RNGs, 2003). */
static uint32_t draw(struct bench_switch *v, uint32_t below)
{
	v->random ^= v->random << 13;
	v->random ^= v->random >> 7;
	v->random ^= v->random << 17;
	return (uint32_t)((v->random >> 32) * below >> 32);
}

static uint32_t destination_of(struct bench_switch *v, uint32_t source)
{
	if (!strcmp(v->b->pattern, "permutation"))
		return (source + 1) % v->ports;
	if (!strcmp(v->b->pattern, "hotspot") && !draw(v, HOT_ONE_IN))
		return 0;
	return draw(v, v->ports);
}

/* What the outputs could carry of that, if nothing but they were in the way. */
static double possible_load(const struct bench_switch *v)
{
	double ports = v->ports, others = 1 - 1.0 / HOT_ONE_IN;

	if (strcmp(v->b->pattern, "hotspot") != 0)
		return 1;
	return (1 + (ports - 1) * others) / ports; /* the hot one is asked for more than it can */
}

/* --- one slot ------------------------------------------------------------------------------ */

static void arrive(struct bench_switch *v, uint32_t source)
{
	struct parcel parcel = {source, destination_of(v, source), 0};
	struct flow *flow = &v->flows[source][parcel.destination];
	const struct tt_packet_head head = {.destination = v->members[parcel.destination].index,
					    .kind = TT_PACKET_DATA,
					    .bytes = sizeof parcel,
					    .total = sizeof parcel};

	if (flow->sent - flow->received >= FLOW_WINDOW)
		return;
	parcel.number = flow->sent;
	if (!tt_member_post(&v->members[source], &head, &parcel))
		flow->sent++;
}

/* At most one in a slot, and the next of its flow: else the switch is wrong. */
static int receive(struct bench_switch *v, uint32_t port, uint64_t *delivered)
{
	struct tt_packet_head head;
	struct parcel parcel;
	unsigned taken = 0;

	while (!tt_member_receive(&v->members[port], &head, &parcel, sizeof parcel)) {
		struct flow *flow;

		if (head.bytes != sizeof parcel || parcel.source >= v->ports ||
		    parcel.destination != port || ++taken > 1)
			return tt_bench_error(v->b, EPROTO,
					      "port %u got what is not for it, or "
					      "two packets in a slot",
					      port);
		flow = &v->flows[parcel.source][port];
		if (parcel.number != flow->received)
			return tt_bench_error(
				v->b, EPROTO, "from port %u to %u packet %llu came, not %llu",
				parcel.source, port, (unsigned long long)parcel.number,
				(unsigned long long)flow->received);
		flow->received++;
		++*delivered;
	}
	return 0;
}

static int run_slot(struct bench_switch *v, bool arrivals, uint64_t *delivered)
{
	int ret = 0;

	clock_ns += SLOT_NS;
	for (uint32_t i = 0; i < v->ports && arrivals; i++)
		arrive(v, i);
	tt_device_drive(&v->f.maker, v->device);
	for (uint32_t i = 0; i < v->ports && !ret; i++)
		ret = receive(v, i, delivered);
	return ret;
}

/* --- a run ---------------------------------------------------------------------------------- */

static int open_switch(struct bench_switch *v, int kind)
{
	int ret = tt_bench_fabric_open(v->b, &v->f), err;

	if (!ret)
		ret = tt_bench_device(v->b, &v->f, TT_DEVICE_SWITCH, "switch", &v->device);
	for (uint32_t i = 0; i < v->ports && !ret; i++)
		ret = tt_bench_member(v->b, v->f.fabric, v->device, &v->members[i]);
	if (ret)
		return ret;
	v->f.fabric->now_ns = now_ns;
	err = tt_device_set_fifo(&v->f.maker, v->device, kind == FIFO);
	if (!err)
		err = tt_device_set_slots(&v->f.maker, v->device, SLOT_NS);
	return err ? tt_bench_error(v->b, -err, "the switch: %s", strerror(-err)) : 0;
}

static uint64_t under_way(const struct bench_switch *v)
{
	uint64_t packets = 0;

	for (uint32_t i = 0; i < v->ports; i++)
		for (uint32_t j = 0; j < v->ports; j++)
			packets += v->flows[i][j].sent - v->flows[i][j].received;
	return packets;
}

static int run_kind(struct bench_switch *v, int kind, uint64_t seed, double *ret_load)
{
	uint64_t slots = (uint64_t)(v->b->seconds * 20000), warm = slots / WARM_UP_SHARE;
	uint64_t delivered = 0, rest = 0;
	int ret;

	v->random = seed * 0x9e3779b97f4a7c15u;
	memset(v->flows, 0, sizeof v->flows);
	ret = open_switch(v, kind);
	for (uint64_t i = 0; i < warm + slots && !ret; i++) {
		if (i == warm)
			delivered = 0;
		ret = run_slot(v, true, &delivered);
		if (!ret && tt_bench_interrupted())
			ret = tt_bench_error(v->b, EINTR, "interrupted");
	}
	*ret_load = (double)delivered / (double)(slots * v->ports);
	/* Nothing is lost inside: what was taken comes out. */
	for (int i = 0; i < TT_OWNER_SLOTS * TT_PORTS && !ret && under_way(v); i++)
		ret = run_slot(v, false, &rest);
	if (!ret && under_way(v))
		ret = tt_bench_error(v->b, EPROTO, "%llu packets did not come out",
				     (unsigned long long)under_way(v));
	tt_bench_fabric_close(&v->f);
	return ret;
}

/* --- what comes of it -------------------------------------------------------------------------- */

static int print(struct bench_switch *v)
{
	struct tt_bench_spread loads[KINDS];
	json_t *o;

	for (int i = 0; i < KINDS; i++)
		loads[i] = tt_bench_spread_of(v->loads[i], v->b->pairs);
	if (!v->b->json) {
		printf("a switch of %u ports, %s, a packet a port and slot offered, medians of %d "
		       "seeds\n\n",
		       v->ports, v->b->pattern, v->b->pairs);
		printf("a queue for each output  %.3f of full load (%.3f - %.3f)\n",
		       loads[OUT_OF_ORDER].median, loads[OUT_OF_ORDER].low,
		       loads[OUT_OF_ORDER].high);
		printf("first in, first out      %.3f (%.3f - %.3f)\n", loads[FIFO].median,
		       loads[FIFO].low, loads[FIFO].high);
		printf("what outputs could carry %.3f\n", possible_load(v));
		return 0;
	}
	o = json_object();
	json_object_set_new(o, "bench", json_string("switch"));
	json_object_set_new(o, "ports", json_integer(v->ports));
	json_object_set_new(o, "pattern", json_string(v->b->pattern));
	json_object_set_new(o, "pairs", json_integer(v->b->pairs));
	json_object_set_new(o, "out_of_order_load", json_real(loads[OUT_OF_ORDER].median));
	json_object_set_new(o, "fifo_load", json_real(loads[FIFO].median));
	json_object_set_new(o, "possible_load", json_real(possible_load(v)));
	tt_bench_set_spread(o, "out_of_order_spread_load", loads[OUT_OF_ORDER]);
	tt_bench_set_spread(o, "fifo_spread_load", loads[FIFO]);
	return tt_bench_print_json(v->b, o);
}

int tt_bench_switch(struct tt_bench *b)
{
	struct bench_switch *v = calloc(1, sizeof *v);
	int ret = 0;

	if (!v)
		return tt_bench_error(b, ENOMEM, "out of memory");
	v->b = b;
	v->ports = (uint32_t)b->ports;
	for (int i = 0; i < b->pairs * KINDS && !ret; i++) {
		tt_bench_progress(b, i % KINDS == FIFO ? "plain" : "out of order", i,
				  b->pairs * KINDS);
		ret = run_kind(v, i % KINDS, (uint64_t)(i / KINDS) + 1,
			       &v->loads[i % KINDS][i / KINDS]);
	}
	tt_bench_progress(b, "", 1, 1);
	if (!ret)
		ret = print(v);
	free(v);
	return ret;
}
