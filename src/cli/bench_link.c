/* SPDX-License-Identifier: MIT */
/*
 * Continuous burst transfer: a NIC that one process drives sends to a switch
 * that another drives, on two cores, over a link with a window of 64 credits,
 * and over one with a single credit, where each packet has to be acknowledged
 * before the next may go. Two pairs of devices that differ in nothing else; the
 * runs alternate.
 *
 * The other process (the child) receives, and checks that nothing is missing.
 * Messages are counted by the devices: packets on the link, and entries that
 * carry credits only, in both directions.
 */
#include "bench_fabric.h"

#include "base/atomic.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUND_PACKETS = 16, KINDS = 2, BURST = 0, SINGLE = 1, REST = KINDS, END };
#define DEADLINE_NS 5000000000ull

static const uint32_t windows[KINDS] = {64, 1};

/* Between the two processes. */
struct control {
	uint32_t phase; /* what the child is to do: a kind, REST, END */
	uint32_t now;	/* what it does; END + 1: not there yet */
	uint32_t member[KINDS];
	uint64_t packets __attribute__((aligned(TT_CACHE_LINE))); /* received in this phase */
	uint64_t wrong;						  /* of these, not the next one */
};

struct link {
	uint32_t nic, sw;
	struct tt_member from;
	double bytes_per_s[TT_BENCH_MAX_PAIRS];
	uint64_t packets, messages; /* of all runs */
};

struct bench_link {
	struct tt_bench *b;
	struct tt_bench_fabric f;
	struct control *control;
	struct link links[KINDS];
	pid_t child;
	int pairs; /* done */
	uint8_t bytes[TT_PAYLOAD_BYTES];
};

/* --- the child: switch and receiver ------------------------------------------------------- */

static void receive(struct bench_link *v, struct tt_member *me, uint64_t *next)
{
	struct control *c = v->control;
	struct tt_packet_head head;
	uint8_t bytes[TT_PAYLOAD_BYTES];
	uint64_t number;

	while (!tt_member_receive(me, &head, bytes, sizeof bytes)) {
		memcpy(&number, bytes, sizeof number);
		if (number != *next || head.bytes != v->b->size_bytes)
			tt_store_relaxed(&c->wrong, c->wrong + 1);
		*next = number + 1;
		tt_store_release(&c->packets, c->packets + 1);
	}
}

static int child_main(struct bench_link *v)
{
	struct control *c = v->control;
	struct tt_member members[KINDS];
	struct tt_fabric *fabric;
	uint64_t next = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	tt_bench_pin(v->b->server_cpu);
	if (tt_fabric_attach(v->f.fabric->fd, &fabric))
		return 1;
	for (int i = 0; i < KINDS; i++) {
		if (tt_member_join(fabric, v->links[i].sw, &members[i]))
			return 1;
		members[i].others = 1u << v->links[i].nic;
		tt_store_relaxed(&c->member[i], members[i].index);
	}
	for (;;) {
		uint32_t phase = tt_load_acquire(&c->phase);

		if (phase == END)
			return 0;
		if (phase != c->now) {
			next = 0;
			c->packets = c->wrong = 0;
			tt_store_release(&c->now, phase);
		}
		if (phase == REST) {
			tt_pause();
			continue;
		}
		tt_device_drive(&members[phase], v->links[phase].sw);
		receive(v, &members[phase], &next);
	}
}

static int tell(struct bench_link *v, uint32_t phase)
{
	uint64_t end = tt_bench_now_ns() + DEADLINE_NS;

	tt_store_release(&v->control->phase, phase);
	while (tt_load_acquire(&v->control->now) != phase) {
		if (tt_bench_interrupted())
			return tt_bench_error(v->b, EINTR, "interrupted");
		if (waitpid(v->child, NULL, WNOHANG) != 0 || tt_bench_now_ns() > end)
			return tt_bench_error(v->b, EPROTO, "the receiver does not start");
		sched_yield();
	}
	return 0;
}

/* --- the parent: sender and NIC ------------------------------------------------------------- */

/* Of a link's two ends, what has gone over it. */
static uint64_t messages_of(const struct bench_link *v, const struct link *link)
{
	const struct tt_fabric_mem *mem = v->f.fabric->mem;
	const uint32_t ends[] = {link->nic, link->sw};
	uint64_t messages = 0;

	for (int i = 0; i < 2; i++)
		for (int port = 0; port < TT_PORTS; port++) {
			const struct tt_port *p = &mem->devices[ends[i]].ports[port];

			if (tt_load_relaxed(&p->kind) == TT_PORT_LINK)
				messages += tt_load_relaxed(&p->tx_packets) +
					    tt_load_relaxed(&p->grants);
		}
	return messages;
}

static void post(struct bench_link *v, int kind, uint64_t *number)
{
	const struct tt_packet_head head = {.destination = v->control->member[kind],
					    .kind = TT_PACKET_DATA,
					    .bytes = (uint32_t)v->b->size_bytes,
					    .total = (uint32_t)v->b->size_bytes};

	for (int i = 0; i < ROUND_PACKETS; i++) {
		memcpy(v->bytes, number, sizeof *number);
		if (tt_member_post(&v->links[kind].from, &head, v->bytes))
			return;
		++*number;
	}
}

/* Sends for so long, then until all has arrived. */
static int send_all(struct bench_link *v, int kind, double seconds, uint64_t *ret_packets,
		    uint64_t *ret_ns)
{
	struct link *link = &v->links[kind];
	uint64_t start = tt_bench_now_ns(), end = start + (uint64_t)(seconds * 1e9), now = start;
	uint64_t sent = 0;

	while (now < end + DEADLINE_NS) {
		if (now < end)
			post(v, kind, &sent);
		tt_device_drive(&link->from, link->nic);
		now = tt_bench_now_ns();
		if (now >= end && tt_load_acquire(&v->control->packets) == sent) {
			*ret_packets = sent;
			*ret_ns = now - start;
			return 0;
		}
		if (tt_bench_interrupted())
			return tt_bench_error(v->b, EINTR, "interrupted");
	}
	return tt_bench_error(v->b, EPROTO, "of %llu packets only %llu arrived",
			      (unsigned long long)sent,
			      (unsigned long long)tt_load_acquire(&v->control->packets));
}

static int run_kind(struct bench_link *v, int kind, double seconds, double *ret_rate)
{
	struct link *link = &v->links[kind];
	uint64_t before, packets = 0, ns = 1;
	int ret = tell(v, (uint32_t)kind);

	if (ret)
		return ret;
	before = messages_of(v, link);
	ret = send_all(v, kind, seconds, &packets, &ns);
	if (!ret && tt_load_relaxed(&v->control->wrong))
		ret = tt_bench_error(v->b, EPROTO, "%llu packets were not the next one",
				     (unsigned long long)v->control->wrong);
	if (!ret)
		ret = tell(v, REST);
	if (ret)
		return ret;
	link->packets += packets;
	link->messages += messages_of(v, link) - before;
	*ret_rate = (double)(packets * v->b->size_bytes) * 1e9 / (double)ns;
	return 0;
}

/* --- what the runs need ------------------------------------------------------------------------ */

static int open_links(struct bench_link *v)
{
	static const char *const names[KINDS][2] = {{"nic-burst", "switch-burst"},
						    {"nic-single", "switch-single"}};
	int ret = tt_bench_fabric_open(v->b, &v->f), err;

	for (int i = 0; i < KINDS && !ret; i++) {
		struct link *l = &v->links[i];

		ret = tt_bench_device(v->b, &v->f, TT_DEVICE_NIC, names[i][0], &l->nic);
		if (!ret)
			ret = tt_bench_device(v->b, &v->f, TT_DEVICE_SWITCH, names[i][1], &l->sw);
		if (ret)
			break;
		err = tt_device_connect(&v->f.maker, l->nic, l->sw, windows[i]);
		if (err)
			return tt_bench_error(v->b, -err, "no link: %s", strerror(-err));
		ret = tt_bench_member(v->b, v->f.fabric, l->nic, &l->from);
		l->from.others = 1u << l->sw;
	}
	return ret;
}

static int start_child(struct bench_link *v)
{
	v->control = mmap(NULL, sizeof *v->control, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (v->control == MAP_FAILED) {
		v->control = NULL;
		return tt_bench_error(v->b, errno, "no memory to share: %s", strerror(errno));
	}
	v->control->phase = REST;
	v->control->now = END + 1;
	v->child = fork();
	if (v->child < 0)
		return tt_bench_error(v->b, errno, "cannot fork: %s", strerror(errno));
	if (!v->child)
		_exit(child_main(v));
	return tell(v, REST);
}

static void close_links(struct bench_link *v)
{
	if (v->child > 0) {
		tt_store_release(&v->control->phase, (uint32_t)END);
		if (tt_load_acquire(&v->control->now) > END)
			kill(v->child, SIGKILL); /* it never started */
		while (waitpid(v->child, NULL, 0) < 0 && errno == EINTR)
			;
	}
	if (v->control)
		munmap(v->control, sizeof *v->control);
	tt_bench_fabric_close(&v->f);
}

/* --- what comes of it ---------------------------------------------------------------------------- */

static double messages_per_packet(const struct link *link)
{
	return link->packets ? (double)link->messages / (double)link->packets : 0;
}

static int print(struct bench_link *v)
{
	const struct link *burst = &v->links[BURST], *single = &v->links[SINGLE];
	struct tt_bench_spread ratio =
		tt_bench_ratio_of(burst->bytes_per_s, single->bytes_per_s, v->pairs);
	struct tt_bench_spread rates[KINDS];
	json_t *o;

	for (int i = 0; i < KINDS; i++)
		rates[i] = tt_bench_spread_of(v->links[i].bytes_per_s, v->pairs);
	if (!v->b->json) {
		printf("packets of %zu bytes from a NIC to a switch, on two cores, medians of %d "
		       "runs each, alternating\n\n",
		       v->b->size_bytes, v->pairs);
		printf("a window of 64     %9.1f MB/s, %.3f messages a packet\n",
		       rates[BURST].median / 1e6, messages_per_packet(burst));
		printf("each acknowledged  %9.1f MB/s, %.3f messages a packet\n",
		       rates[SINGLE].median / 1e6, messages_per_packet(single));
		printf("\nthe burst: %.2f times (%.2f - %.2f)\n", ratio.median, ratio.low,
		       ratio.high);
		return 0;
	}
	o = json_object();
	json_object_set_new(o, "bench", json_string("link"));
	json_object_set_new(o, "size_bytes", json_integer((json_int_t)v->b->size_bytes));
	json_object_set_new(o, "pairs", json_integer(v->pairs));
	json_object_set_new(o, "window", json_integer(windows[BURST]));
	json_object_set_new(o, "burst_bytes_per_s", json_real(rates[BURST].median));
	json_object_set_new(o, "per_packet_ack_bytes_per_s", json_real(rates[SINGLE].median));
	tt_bench_set_spread(o, "burst_over_per_packet_ack", ratio);
	json_object_set_new(o, "burst_messages_per_packet", json_real(messages_per_packet(burst)));
	json_object_set_new(o, "per_packet_ack_messages_per_packet",
			    json_real(messages_per_packet(single)));
	tt_bench_set_spread(o, "burst_spread_bytes_per_s", rates[BURST]);
	tt_bench_set_spread(o, "per_packet_ack_spread_bytes_per_s", rates[SINGLE]);
	return tt_bench_print_json(v->b, o);
}

int tt_bench_link(struct tt_bench *b)
{
	struct bench_link *v = calloc(1, sizeof *v);
	double warm;
	int ret;

	if (!v)
		return tt_bench_error(b, ENOMEM, "out of memory");
	v->b = b;
	if (b->client_cpu == b->server_cpu) {
		free(v);
		return tt_bench_error(b, ENOTSUP, "it takes two cores, and only one may be used");
	}
	tt_bench_pin(b->client_cpu);
	ret = open_links(v);
	if (!ret)
		ret = start_child(v);
	for (int kind = 0; kind < KINDS && !ret; kind++)
		ret = run_kind(v, kind, b->seconds / 4, &warm);
	for (int kind = 0; kind < KINDS; kind++)
		v->links[kind].packets = v->links[kind].messages = 0;
	for (int i = 0; i < b->pairs * KINDS && !ret; i++) {
		int kind = i % KINDS;

		tt_bench_progress(b, kind == BURST ? "burst" : "single", i, b->pairs * KINDS);
		ret = run_kind(v, kind, b->seconds, &v->links[kind].bytes_per_s[i / KINDS]);
		v->pairs = i / KINDS + 1;
	}
	tt_bench_progress(b, "", 1, 1);
	if (!ret)
		ret = print(v);
	close_links(v);
	free(v);
	return ret;
}
