/* SPDX-License-Identifier: MIT */
/*
 * What a module in the way of packets costs: packets go from one member to
 * another through one switch, driven by the sender itself, with nothing in
 * their way and with an empty module, compiled. One process on one core; the
 * same switch, the same ports, the module loaded and unloaded between the
 * runs, which alternate.
 *
 * Two ways: one packet at a time (sent, through, received), and bursts (posted,
 * then driven at once, then received), which is what a rate is made of.
 */
#include "bench_fabric.h"

#include "bench/vm/modules.h"
#include "device/instance.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES = 20, BURST = 32, PLAIN = 0, WITH_MODULE = 1, KINDS = 2 };

struct bench_module {
	struct tt_bench *b;
	struct tt_bench_fabric f;
	struct tt_member from, to;
	uint32_t device;
	struct tutti_vm_program *program;
	uint8_t bytes[TT_PAYLOAD_BYTES];
	uint64_t sent; /* since the module was loaded */
	int pairs;     /* done */
	double packet_ns[KINDS][TT_BENCH_MAX_PAIRS];
	double burst_ns[KINDS][TT_BENCH_MAX_PAIRS];
};

/* --- packets -------------------------------------------------------------------------- */

static int take(struct bench_module *v)
{
	struct tt_packet_head head;
	uint8_t bytes[TT_PAYLOAD_BYTES];

	return tt_member_receive(&v->to, &head, bytes, sizeof bytes);
}

static int one_at_a_time(struct bench_module *v, const struct tt_packet_head *head,
			 uint64_t packets)
{
	int err = 0;

	while (packets-- && !err) {
		err = tt_member_send(&v->from, head, v->bytes);
		if (!err)
			err = take(v);
	}
	return err;
}

static int in_bursts(struct bench_module *v, const struct tt_packet_head *head, uint64_t packets)
{
	int err = 0;

	for (; packets && !err; packets -= BURST) {
		for (int i = 0; i < BURST && !err; i++)
			err = tt_member_post(&v->from, head, v->bytes);
		tt_device_drive(&v->from, v->device);
		for (int i = 0; i < BURST && !err; i++)
			err = take(v);
	}
	return err;
}

typedef int (*way_fn)(struct bench_module *v, const struct tt_packet_head *head, uint64_t packets);

static int move(struct bench_module *v, way_fn way, uint64_t packets, double *ret_ns)
{
	const struct tt_packet_head head = {.destination = v->to.index,
					    .kind = TT_PACKET_DATA,
					    .bytes = (uint32_t)v->b->size_bytes,
					    .total = (uint32_t)v->b->size_bytes};
	uint64_t start = tt_bench_now_ns();
	int err = way(v, &head, packets);

	if (err)
		return tt_bench_error(v->b, -err, "a packet did not come through: %s",
				      strerror(-err));
	*ret_ns = (double)(tt_bench_now_ns() - start) / (double)packets;
	v->sent += packets;
	return 0;
}

/* Nanoseconds of a packet: the median of batches that take b->seconds together. */
static int measure(struct bench_module *v, way_fn way, double *ret_ns)
{
	double batch_ns[BATCHES], ns;
	uint64_t packets = BURST;
	int ret = 0;

	/* How many are a batch; warms up, too. */
	do {
		packets *= 2;
		ret = move(v, way, packets, &ns);
	} while (!ret && ns * (double)packets < v->b->seconds * 1e9 / BATCHES);
	for (int i = 0; i < BATCHES && !ret; i++) {
		if (tt_bench_interrupted())
			return tt_bench_error(v->b, EINTR, "interrupted");
		ret = move(v, way, packets, &batch_ns[i]);
	}
	*ret_ns = tt_bench_median(batch_ns, BATCHES);
	return ret;
}

/* --- the rounds ------------------------------------------------------------------------- */

static int load(struct bench_module *v, uint32_t *ret_instance)
{
	const struct tt_binding binding = {.device = v->device, .group = TT_ANY, .port = TT_ANY};
	int instance = tt_instance_load(&v->f.maker, v->program, "empty", &binding);

	if (instance < 0)
		return tt_bench_error(v->b, -instance, "the empty module: %s", strerror(-instance));
	*ret_instance = (uint32_t)instance;
	return 0;
}

/* It has seen every packet, and done so without a fault. */
static int prove(struct bench_module *v, uint32_t instance)
{
	const struct tt_instance_mem *m = &v->f.fabric->mem->instances[instance];

	if (m->runs == v->sent && !m->faults)
		return 0;
	return tt_bench_error(v->b, EPROTO, "the module ran for %llu packets of %llu, %llu faults",
			      (unsigned long long)m->runs, (unsigned long long)v->sent,
			      (unsigned long long)m->faults);
}

static int run_kind(struct bench_module *v, int kind, int round)
{
	uint32_t instance = 0;
	int ret = kind == WITH_MODULE ? load(v, &instance) : 0;

	v->sent = 0;
	if (!ret)
		ret = measure(v, one_at_a_time, &v->packet_ns[kind][round]);
	if (!ret)
		ret = measure(v, in_bursts, &v->burst_ns[kind][round]);
	if (ret || kind == PLAIN)
		return ret;
	ret = prove(v, instance);
	tt_instance_unload(&v->f.maker, instance);
	return ret;
}

/* --- what the rounds need ---------------------------------------------------------------- */

static int open_module(struct bench_module *v)
{
	size_t bytes = (size_t)(tt_module_empty_end - tt_module_empty);
	struct tutti_vm_object *object = NULL;
	struct tutti_vm_error error = {.text = ""};
	int ret;

	if (!bytes)
		return tt_bench_error(v->b, ENOENT, "%s", TT_BENCH_NO_CLANG);
	ret = tutti_vm_object_open(tt_module_empty, bytes, &object, &error);
	if (!ret)
		ret = tutti_vm_program_create(object, tt_module_env(), TUTTI_VM_JIT, &v->program,
					      &error);
	tutti_vm_object_destroy(object);
	if (ret)
		return tt_bench_error(v->b, -ret, "the empty module: %s", error.text);
	if (!tutti_vm_program_compiled(v->program))
		return tt_bench_error(v->b, ENOTSUP, "%s", TT_BENCH_NO_JIT);
	return 0;
}

static int open_switch(struct bench_module *v)
{
	int ret = tt_bench_fabric_open(v->b, &v->f), err;

	if (ret)
		return ret;
	err = tt_code_create(&v->f.fabric->code);
	if (err)
		return tt_bench_error(v->b, -err, "no memory for code: %s", strerror(-err));
	ret = tt_bench_device(v->b, &v->f, TT_DEVICE_SWITCH, "switch", &v->device);
	if (!ret)
		ret = tt_bench_member(v->b, v->f.fabric, v->device, &v->from);
	if (!ret)
		ret = tt_bench_member(v->b, v->f.fabric, v->device, &v->to);
	return ret;
}

/* --- what comes of it -------------------------------------------------------------------- */

struct findings {
	struct tt_bench_spread packet[KINDS], burst[KINDS], overhead, burst_overhead;
};

static struct tt_bench_spread difference(const double *above, const double *below, int n)
{
	double differences[TT_BENCH_MAX_PAIRS];

	for (int i = 0; i < n; i++)
		differences[i] = above[i] - below[i];
	return tt_bench_spread_of(differences, n);
}

static struct findings findings_of(const struct bench_module *v)
{
	struct findings f;

	for (int kind = 0; kind < KINDS; kind++) {
		f.packet[kind] = tt_bench_spread_of(v->packet_ns[kind], v->pairs);
		f.burst[kind] = tt_bench_spread_of(v->burst_ns[kind], v->pairs);
	}
	f.overhead = difference(v->packet_ns[WITH_MODULE], v->packet_ns[PLAIN], v->pairs);
	f.burst_overhead = difference(v->burst_ns[WITH_MODULE], v->burst_ns[PLAIN], v->pairs);
	return f;
}

static int print_json(struct bench_module *v, const struct findings *f)
{
	json_t *o = json_object();

	json_object_set_new(o, "bench", json_string("module"));
	json_object_set_new(o, "size_bytes", json_integer((json_int_t)v->b->size_bytes));
	json_object_set_new(o, "pairs", json_integer(v->pairs));
	json_object_set_new(o, "packet_ns", json_real(f->packet[PLAIN].median));
	json_object_set_new(o, "packet_with_empty_module_ns",
			    json_real(f->packet[WITH_MODULE].median));
	json_object_set_new(o, "overhead_ns", json_real(f->overhead.median));
	json_object_set_new(o, "packets_per_s", json_real(round(1e9 / f->burst[PLAIN].median)));
	json_object_set_new(o, "packets_with_empty_module_per_s",
			    json_real(round(1e9 / f->burst[WITH_MODULE].median)));
	json_object_set_new(o, "burst_overhead_ns", json_real(f->burst_overhead.median));
	tt_bench_set_spread(o, "packet_spread_ns", f->packet[PLAIN]);
	tt_bench_set_spread(o, "packet_with_empty_module_spread_ns", f->packet[WITH_MODULE]);
	tt_bench_set_spread(o, "overhead_spread_ns", f->overhead);
	tt_bench_set_spread(o, "burst_packet_spread_ns", f->burst[PLAIN]);
	tt_bench_set_spread(o, "burst_packet_with_empty_module_spread_ns", f->burst[WITH_MODULE]);
	tt_bench_set_spread(o, "burst_overhead_spread_ns", f->burst_overhead);
	return tt_bench_print_json(v->b, o);
}

static void print_row(const char *what, struct tt_bench_spread s)
{
	printf("%-34s %8.1f ns (%.1f - %.1f)\n", what, s.median, s.low, s.high);
}

static int print(struct bench_module *v)
{
	struct findings f = findings_of(v);

	if (v->b->json)
		return print_json(v, &f);
	printf("packets of %zu bytes through a switch, medians of %d runs each, alternating\n\n",
	       v->b->size_bytes, v->pairs);
	print_row("one at a time", f.packet[PLAIN]);
	print_row("with an empty module", f.packet[WITH_MODULE]);
	print_row("the module's overhead", f.overhead);
	print_row("in bursts of 32", f.burst[PLAIN]);
	print_row("with an empty module", f.burst[WITH_MODULE]);
	print_row("the module's overhead", f.burst_overhead);
	printf("\n%.2f million packets a second in bursts, with an empty module %.2f\n",
	       1e3 / f.burst[PLAIN].median, 1e3 / f.burst[WITH_MODULE].median);
	return 0;
}

int tt_bench_module(struct tt_bench *b)
{
	struct bench_module *v = calloc(1, sizeof *v);
	struct tt_code *code;
	int ret;

	if (!v)
		return tt_bench_error(b, ENOMEM, "out of memory");
	v->b = b;
	tt_bench_pin(b->client_cpu);
	ret = open_module(v);
	if (!ret)
		ret = open_switch(v);
	for (int round = 0; round < b->pairs && !ret; round++) {
		tt_bench_progress(b, "without", round * KINDS, b->pairs * KINDS);
		ret = run_kind(v, PLAIN, round);
		tt_bench_progress(b, "with", round * KINDS + 1, b->pairs * KINDS);
		if (!ret)
			ret = run_kind(v, WITH_MODULE, round);
		v->pairs = round + 1;
	}
	tt_bench_progress(b, "", 1, 1);
	if (!ret)
		ret = print(v);
	code = v->f.fabric ? v->f.fabric->code : NULL;
	tt_instances_forget(&v->from);
	tt_instances_forget(&v->to);
	tt_bench_fabric_close(&v->f);
	tt_code_destroy(code);
	tutti_vm_program_destroy(v->program);
	free(v);
	return ret;
}
