/* SPDX-License-Identifier: MIT */
/*
 * The daemon's list of connections at one moment, as `ss` and `top` use it.
 *
 * The daemon lists ends: what one program holds. Here two ends whose addresses
 * are each other's become one connection. Of a connection between a program
 * under Tutti and one that is not there is one end only.
 */
#ifndef TT_CLI_SNAPSHOT_INT_H
#define TT_CLI_SNAPSHOT_INT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TT_ENDED_FROM_NOW UINT64_MAX

/* Texts belong to the snapshot. */
struct tt_end {
	json_t *json;
	const char *id, *program, *local, *remote, *reason, *state, *tx_route, *rx_route;
	long long pid;
	bool accelerated;
	uint64_t ring_tx_bytes, ring_rx_bytes, shadow_tx_bytes, shadow_rx_bytes;
	uint64_t queued_bytes, tx_queued_bytes, tx_messages, spins, sleeps, wakes;
	bool has_credit;
	uint64_t credit_bytes;
	double age_s;
	bool is_final; /* counts of when it had ended */
};

/* a is the end that connected, as far as port numbers tell; b is -1 when it is not listed. */
struct tt_pair {
	int a, b;
};

struct tt_snapshot {
	json_t *root;
	struct tt_end *ends;
	uint32_t *by_id; /* indices of ends, sorted by id */
	size_t nends;
	struct tt_pair *pairs;
	size_t npairs;
	double at_s; /* when it was taken, on the monotonic clock */
};

/* What is to be listed; 0 and NULL: anything. */
struct tt_filter {
	long pid, port;
	const char *program, *path, *reason;
	/* "ended_until" of a report: also what ended since; TT_ENDED_FROM_NOW: that number; 0: not */
	uint64_t ended;
};

/* Per second, between two snapshots. tx and rx are what end a sent and received. */
struct tt_rates {
	double tx_bytes, rx_bytes, messages, spins, sleeps, wakes;
};

struct tt_counts {
	size_t connections, accelerated;
};

/* 0, -EPROTO (no report), -ENOMEM. */
int tt_snapshot_parse(const char *text, struct tt_snapshot *ret);
/* Asks the daemon. As above, or why it could not be asked. */
int tt_snapshot_take(const struct tt_filter *f, struct tt_snapshot *ret);
void tt_snapshot_fini(struct tt_snapshot *s); /* of zeros allowed */
/* Leaves the connections of which one end matches. */
void tt_snapshot_filter(struct tt_snapshot *s, const struct tt_filter *f);
const struct tt_end *tt_snapshot_end(const struct tt_snapshot *s, const char *id);
/* It has ended, with these counts, an element of the report's list "ended". */
void tt_end_finish(struct tt_end *e, json_t *counts);
struct tt_counts tt_snapshot_counts(const struct tt_snapshot *s);

static inline const struct tt_end *tt_end_a(const struct tt_snapshot *s, const struct tt_pair *p)
{
	return &s->ends[p->a];
}

static inline const struct tt_end *tt_end_b(const struct tt_snapshot *s, const struct tt_pair *p)
{
	return p->b < 0 ? NULL : &s->ends[p->b];
}

/* "user" when a direction of it moves through shared memory, else "tcp". */
const char *tt_pair_path(const struct tt_snapshot *s, const struct tt_pair *p);
const char *tt_pair_reason(const struct tt_snapshot *s, const struct tt_pair *p);
/* 0 when there is none. */
long tt_end_port(const struct tt_end *e);
/* Whether two ends are of one connection. */
bool tt_end_is_peer(const struct tt_end *e, const struct tt_end *other);
/* old may be empty: then everything is 0. */
void tt_pair_rates(const struct tt_snapshot *old, const struct tt_snapshot *now,
		   const struct tt_pair *p, struct tt_rates *ret);

/*
 * Options that ss and top have in common. Their values start at TT_OPT_FILTER.
 * Returns 0, an exit status, or -1 when it is none of these.
 */
enum { TT_OPT_PID = 512, TT_OPT_PORT, TT_OPT_PROGRAM, TT_OPT_PATH, TT_OPT_REASON };
#define TT_FILTER_OPTIONS                                                                          \
	{"pid", required_argument, NULL, TT_OPT_PID},                                              \
		{"port", required_argument, NULL, TT_OPT_PORT},                                    \
		{"program", required_argument, NULL, TT_OPT_PROGRAM},                              \
		{"path", required_argument, NULL, TT_OPT_PATH},                                    \
	{                                                                                          \
		"reason", required_argument, NULL, TT_OPT_REASON                                   \
	}
#define TT_FILTER_USAGE                                                                            \
	"  --pid PID, --port PORT, --program NAME, --path user|tcp, --reason REASON\n"             \
	"                       only connections of which one end is this\n"                       \
	"  -h, --help           this\n"
int tt_filter_option(const char *command, int opt, const char *value, struct tt_filter *f);

#endif
