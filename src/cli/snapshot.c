/* SPDX-License-Identifier: MIT */
#include "snapshot_int.h"

#include "base/clock.h"
#include "cli_int.h"
#include "sock/side.h"
#include "ulc/ctl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NPORTS 65536

/* ---- reading ---- */

static const char *text_of(const json_t *o, const char *key)
{
	const char *text = json_string_value(json_object_get(o, key));

	return text ? text : "";
}

static uint64_t count_of(const json_t *o, const char *key)
{
	json_int_t v = json_integer_value(json_object_get(o, key));

	return v < 0 ? 0 : (uint64_t)v;
}

static void read_end(json_t *o, struct tt_end *e)
{
	*e = (struct tt_end){
		.json = o,
		.id = text_of(o, "id"),
		.program = text_of(o, "program"),
		.local = text_of(o, "local"),
		.remote = text_of(o, "remote"),
		.reason = text_of(o, "reason"),
		.state = text_of(o, "state"),
		.tx_route = text_of(o, "tx_route"),
		.rx_route = text_of(o, "rx_route"),
		.pid = json_integer_value(json_object_get(o, "pid")),
		.accelerated = strcmp(text_of(o, "path"), "user") == 0,
		.ring_tx_bytes = count_of(o, "ring_tx_bytes"),
		.ring_rx_bytes = count_of(o, "ring_rx_bytes"),
		.shadow_tx_bytes = count_of(o, "shadow_tx_bytes"),
		.shadow_rx_bytes = count_of(o, "shadow_rx_bytes"),
		.queued_bytes = count_of(o, "queued_bytes"),
		.tx_queued_bytes = count_of(o, "tx_queued_bytes"),
		.tx_messages = count_of(o, "tx_messages"),
		.spins = count_of(o, "spins"),
		.sleeps = count_of(o, "sleeps"),
		.wakes = count_of(o, "wakes"),
		.has_credit = json_object_get(o, "credit_bytes") != NULL,
		.credit_bytes = count_of(o, "credit_bytes"),
		.age_s = json_number_value(json_object_get(o, "age_s")),
		.is_final = json_is_true(json_object_get(o, "final")),
	};
}

void tt_end_finish(struct tt_end *e, json_t *counts)
{
	json_object_update(e->json, counts);
	read_end(e->json, e);
}

/* ---- order ---- */

static int compare_ids(const void *x, const void *y, void *ends)
{
	const struct tt_end *e = ends;

	return strcmp(e[*(const uint32_t *)x].id, e[*(const uint32_t *)y].id);
}

/* By the two addresses, the smaller first: what two ends of a connection share. */
static int compare_addresses(const struct tt_end *x, const struct tt_end *y)
{
	bool xs = strcmp(x->local, x->remote) > 0, ys = strcmp(y->local, y->remote) > 0;
	int c = strcmp(xs ? x->remote : x->local, ys ? y->remote : y->local);

	return c ? c : strcmp(xs ? x->local : x->remote, ys ? y->local : y->remote);
}

static int compare_pairs(const void *x, const void *y, void *ends)
{
	const struct tt_end *e = ends;
	uint32_t i = *(const uint32_t *)x, k = *(const uint32_t *)y;
	int c = compare_addresses(&e[i], &e[k]);

	return c ? c : (i > k) - (i < k);
}

static long port_of(const char *address)
{
	const char *colon = strrchr(address, ':');

	return colon ? strtol(colon + 1, NULL, 10) : 0;
}

long tt_end_port(const struct tt_end *e)
{
	return port_of(e->local);
}

bool tt_end_is_peer(const struct tt_end *e, const struct tt_end *other)
{
	return strcmp(e->local, other->remote) == 0 && strcmp(e->remote, other->local) == 0;
}

/* How many ends have each port as their own. */
static uint32_t *count_ports(const struct tt_snapshot *s)
{
	uint32_t *users = calloc(NPORTS, sizeof(*users));

	for (size_t i = 0; users && i < s->nends; i++)
		users[port_of(s->ends[i].local) & (NPORTS - 1)]++;
	return users;
}

/*
 * Who connects has a port of his own, and one of the upper range: so the end
 * whose port is used by fewer, or else is the higher, most probably did.
 */
static struct tt_pair make_pair(const struct tt_snapshot *s, const uint32_t *users, uint32_t i,
				uint32_t k)
{
	long mine = port_of(s->ends[i].local), other = port_of(s->ends[k].local);
	uint32_t n = users[mine & (NPORTS - 1)], m = users[other & (NPORTS - 1)];

	if (n == m ? mine >= other : n < m)
		return (struct tt_pair){(int)i, (int)k};
	return (struct tt_pair){(int)k, (int)i};
}

static int compare_first(const void *x, const void *y)
{
	const struct tt_pair *p = x, *q = y;
	int i = p->b >= 0 && p->b < p->a ? p->b : p->a, k = q->b >= 0 && q->b < q->a ? q->b : q->a;

	return (i > k) - (i < k);
}

static int make_pairs(struct tt_snapshot *s, uint32_t *order)
{
	uint32_t *users = count_ports(s);

	if (!users)
		return -ENOMEM;
	qsort_r(order, s->nends, sizeof(*order), compare_pairs, s->ends);
	for (size_t n = 0; n < s->nends; n++) {
		const struct tt_end *e = &s->ends[order[n]];

		if (n + 1 < s->nends && tt_end_is_peer(e, &s->ends[order[n + 1]])) {
			s->pairs[s->npairs++] = make_pair(s, users, order[n], order[n + 1]);
			n++;
		} else {
			s->pairs[s->npairs++] = (struct tt_pair){(int)order[n], -1};
		}
	}
	/* In the daemon's order again. */
	qsort(s->pairs, s->npairs, sizeof(*s->pairs), compare_first);
	free(users);
	return 0;
}

/* ---- making ---- */

static int fill(struct tt_snapshot *s)
{
	json_t *list = json_object_get(s->root, "connections"), *o;
	size_t n = json_array_size(list), i;

	if (!json_is_array(list))
		return -EPROTO;
	/* Room for one at least: nothing here is NULL afterwards. */
	s->ends = calloc(n + 1, sizeof(*s->ends));
	s->by_id = calloc(n + 1, sizeof(*s->by_id));
	s->pairs = calloc(n + 1, sizeof(*s->pairs));
	if (!s->ends || !s->by_id || !s->pairs)
		return -ENOMEM;
	json_array_foreach(list, i, o)
	{
		read_end(o, &s->ends[i]);
		s->by_id[i] = (uint32_t)i;
	}
	s->nends = n;
	if (make_pairs(s, s->by_id) < 0)
		return -ENOMEM;
	qsort_r(s->by_id, n, sizeof(*s->by_id), compare_ids, s->ends);
	return 0;
}

int tt_snapshot_parse(const char *text, struct tt_snapshot *ret)
{
	struct tt_snapshot s = {.root = json_loads(text, 0, NULL)};
	int err = s.root ? fill(&s) : -EPROTO;

	if (err < 0) {
		tt_snapshot_fini(&s);
		return err;
	}
	*ret = s;
	return 0;
}

int tt_snapshot_take(const struct tt_filter *f, struct tt_snapshot *ret)
{
	char *text;
	int err = tt_cli_report(TT_CTL_SS, (uint64_t)f->port, f->ended, &text);

	if (err < 0)
		return err;
	err = tt_snapshot_parse(text, ret);
	free(text);
	if (err < 0)
		return err;
	ret->at_s = (double)tt_now_ns() / TT_NS_PER_SEC;
	tt_snapshot_filter(ret, f);
	return 0;
}

void tt_snapshot_fini(struct tt_snapshot *s)
{
	json_decref(s->root);
	free(s->ends);
	free(s->by_id);
	free(s->pairs);
	memset(s, 0, sizeof(*s));
}

const struct tt_end *tt_snapshot_end(const struct tt_snapshot *s, const char *id)
{
	size_t low = 0, high = s->nends;

	while (low < high) {
		size_t mid = (low + high) / 2;
		const struct tt_end *e = &s->ends[s->by_id[mid]];
		int c = strcmp(id, e->id);

		if (c == 0)
			return e;
		if (c < 0)
			high = mid;
		else
			low = mid + 1;
	}
	return NULL;
}

/* ---- choosing ---- */

static bool is_like(const struct tt_end *e, const struct tt_filter *f)
{
	return (!f->pid || e->pid == f->pid) &&
	       (!f->port || port_of(e->local) == f->port || port_of(e->remote) == f->port) &&
	       (!f->program || strcmp(e->program, f->program) == 0);
}

static bool is_chosen(const struct tt_snapshot *s, const struct tt_pair *p,
		      const struct tt_filter *f)
{
	const struct tt_end *a = tt_end_a(s, p), *b = tt_end_b(s, p);

	return (is_like(a, f) || (b && is_like(b, f))) &&
	       (!f->path || strcmp(tt_pair_path(s, p), f->path) == 0) &&
	       (!f->reason || strcmp(tt_pair_reason(s, p), f->reason) == 0);
}

void tt_snapshot_filter(struct tt_snapshot *s, const struct tt_filter *f)
{
	size_t n = 0;

	for (size_t i = 0; i < s->npairs; i++)
		if (is_chosen(s, &s->pairs[i], f))
			s->pairs[n++] = s->pairs[i];
	s->npairs = n;
}

static bool is_reason(const char *word)
{
	for (int i = 0; i < TT_REASON_COUNT; i++)
		if (strcmp(tt_reason_names[i], word) == 0)
			return true;
	return false;
}

int tt_filter_option(const char *command, int opt, const char *value, struct tt_filter *f)
{
	switch (opt) {
	case TT_OPT_PID:
		if (!tt_arg_number(value, 1, INT32_MAX, &f->pid))
			return tt_cli_bad_value(command, "pid", value, "the number of a process");
		return 0;
	case TT_OPT_PORT:
		if (!tt_arg_number(value, 1, 65535, &f->port))
			return tt_cli_bad_value(command, "port", value, "1 to 65535");
		return 0;
	case TT_OPT_PROGRAM: f->program = value; return 0;
	case TT_OPT_PATH:
		if (strcmp(value, "user") != 0 && strcmp(value, "tcp") != 0)
			return tt_cli_bad_value(command, "path", value, "user or tcp");
		f->path = value;
		return 0;
	case TT_OPT_REASON:
		if (!is_reason(value))
			return tt_cli_bad_value(command, "reason", value,
						"a reason of tutti-ss(1), or none");
		f->reason = value;
		return 0;
	default: return -1;
	}
}

/* ---- connections ---- */

const char *tt_pair_path(const struct tt_snapshot *s, const struct tt_pair *p)
{
	const struct tt_end *b = tt_end_b(s, p);

	return tt_end_a(s, p)->accelerated || (b && b->accelerated) ? "user" : "tcp";
}

const char *tt_pair_reason(const struct tt_snapshot *s, const struct tt_pair *p)
{
	const struct tt_end *a = tt_end_a(s, p), *b = tt_end_b(s, p);

	if (b && strcmp(a->reason, "none") == 0)
		return b->reason;
	return a->reason;
}

struct tt_counts tt_snapshot_counts(const struct tt_snapshot *s)
{
	struct tt_counts n = {.connections = s->npairs};

	for (size_t i = 0; i < s->npairs; i++)
		n.accelerated += strcmp(tt_pair_path(s, &s->pairs[i]), "user") == 0;
	return n;
}

/* A count that went back is of somebody who writes what he likes. */
static double rate(uint64_t old, uint64_t now, double seconds)
{
	return now > old && seconds > 0 ? (double)(now - old) / seconds : 0;
}

static void add_end(const struct tt_end *old, const struct tt_end *e, double seconds,
		    struct tt_rates *r)
{
	static const struct tt_end zero = {.json = NULL};

	/* One that was not there before began meanwhile. */
	if (!old)
		old = &zero;
	r->messages += rate(old->tx_messages, e->tx_messages, seconds);
	r->spins += rate(old->spins, e->spins, seconds);
	r->sleeps += rate(old->sleeps, e->sleeps, seconds);
	r->wakes += rate(old->wakes, e->wakes, seconds);
}

void tt_pair_rates(const struct tt_snapshot *old, const struct tt_snapshot *now,
		   const struct tt_pair *p, struct tt_rates *ret)
{
	static const struct tt_end zero = {.json = NULL};
	const struct tt_end *a = tt_end_a(now, p), *b = tt_end_b(now, p);
	double seconds = now->at_s - old->at_s;

	memset(ret, 0, sizeof(*ret));
	if (!old->root)
		return;
	const struct tt_end *a0 = tt_snapshot_end(old, a->id);

	add_end(a0, a, seconds, ret);
	if (b)
		add_end(tt_snapshot_end(old, b->id), b, seconds, ret);
	if (!a0)
		a0 = &zero;
	ret->tx_bytes = rate(a0->ring_tx_bytes + a0->shadow_tx_bytes,
			     a->ring_tx_bytes + a->shadow_tx_bytes, seconds);
	ret->rx_bytes = rate(a0->ring_rx_bytes + a0->shadow_rx_bytes,
			     a->ring_rx_bytes + a->shadow_rx_bytes, seconds);
}
