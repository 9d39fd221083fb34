/* SPDX-License-Identifier: MIT */
/* tutti ss --follow: what happens to connections, event by event. */
#ifndef TT_CLI_FOLLOW_INT_H
#define TT_CLI_FOLLOW_INT_H

#include "snapshot_int.h"

struct tt_follow_options {
	struct tt_filter filter;
	bool json, wait;
	double delay_s; /* between rates */
};

/* Returns the exit status. */
int tt_follow(const struct tt_follow_options *o);

typedef void (*tt_event_fn)(void *arg, const struct tt_end *e, const char *event,
			    const char *detail);

/*
 * Tells fn, in order, what has happened to an end between two looks. old NULL:
 * it was not listed before; now NULL: it is no more.
 */
void tt_follow_diff(const struct tt_end *old, const struct tt_end *now, tt_event_fn fn, void *arg);

#endif
