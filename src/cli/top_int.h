/* SPDX-License-Identifier: MIT */
/* tutti top: connections, live. */
#ifndef TT_CLI_TOP_INT_H
#define TT_CLI_TOP_INT_H

#include "snapshot_int.h"
#include "table_int.h"

enum tt_sort {
	TT_SORT_RATE,
	TT_SORT_BYTES,
	TT_SORT_MESSAGES,
	TT_SORT_QUEUED,
	TT_SORT_SLEEPS,
	TT_SORT_WAKES,
	TT_SORT_PROGRAM,
	TT_SORT_COUNT,
};
extern const char *const tt_sort_names[TT_SORT_COUNT];

struct tt_top {
	struct tt_filter filter;
	enum tt_sort sort;
	double delay_s;
	long rounds; /* 0: for ever */

	struct tt_snapshot now;
	struct tt_rates *rates; /* of now's connections */
	int err;		/* of the last look; there is nothing then */
};

/* Looks again: now, rates and err. Not there before, or no daemon: rates are 0. */
void tt_top_look(struct tt_top *t);
/* Sorts what was seen, as t->sort says. */
void tt_top_sort(struct tt_top *t);
/* "12 connections: ...", and what moves. */
void tt_top_sums(const struct tt_top *t, char *ret_text, size_t bytes);
void tt_top_clock(char *ret_text, size_t bytes);
/* Why nothing was seen. */
const char *tt_top_why(const struct tt_top *t);
/* A table of at most max_rows connections, in lines of at most width characters (0: any). */
void tt_top_table(const struct tt_top *t, size_t max_rows, size_t width, tt_line_fn line,
		  void *arg);

/* top_screen.c: returns the exit status. */
int tt_top_screen(struct tt_top *t);

#endif
