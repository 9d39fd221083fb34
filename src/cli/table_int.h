/* SPDX-License-Identifier: MIT */
/* Connections as lines of a table. */
#ifndef TT_CLI_TABLE_INT_H
#define TT_CLI_TABLE_INT_H

#include "snapshot_int.h"

#define TT_LINE_BYTES 512

enum tt_column {
	TT_COL_END = 0,
	TT_COL_PROGRAM,
	TT_COL_PID,
	TT_COL_PEER,
	TT_COL_PEER_PID,
	TT_COL_LOCAL,
	TT_COL_REMOTE,
	TT_COL_PATH,
	TT_COL_REASON,
	TT_COL_RING_TX,
	TT_COL_RING_RX,
	TT_COL_TCP_TX,
	TT_COL_TCP_RX,
	TT_COL_QUEUED,
	TT_COL_CREDITS,
	TT_COL_SPINS,
	TT_COL_SLEEPS,
	TT_COL_WAKES,
	TT_COL_TX_RATE,
	TT_COL_RX_RATE,
	TT_COL_MESSAGE_RATE,
	TT_COL_SPIN_RATE,
	TT_COL_SLEEP_RATE,
	TT_COL_WAKE_RATE,
	TT_COL_COUNT,
};

struct tt_table {
	const enum tt_column *columns; /* as they stand, up to TT_COL_END */
	/* The same by importance: of those that do not all fit, the first that do. */
	const enum tt_column *important;
	size_t width; /* characters that a line may have; 0: any number */
	const struct tt_snapshot *snapshot;
	const struct tt_rates *rates; /* one a connection; NULL without columns of rates */
	size_t max_rows;
};

typedef void (*tt_line_fn)(void *arg, const char *line);

/*
 * Heading first, then a line a connection, without ends of lines. Returns how
 * many columns were left out.
 */
size_t tt_table_print(const struct tt_table *t, tt_line_fn line, void *arg);
/* Of the terminal that standard output is; 0: it is none, or does not say. */
size_t tt_table_width(void);
/* For people: 0, 999, 1.5k, 12M; decimal, as in bench. */
void tt_format_short(double value, char *ret_text, size_t bytes);
/* "3 connections: 2 accelerated, 1 on kernel TCP (1 peer-not-tutti)" */
void tt_format_counts(const struct tt_snapshot *s, char *ret_text, size_t bytes);
/* What the daemon has counted since it started, as a sentence. */
void tt_format_totals(const json_t *totals, char *ret_text, size_t bytes);
/* Of these, bytes and waits. */
void tt_format_sums(const json_t *totals, char *ret_text, size_t bytes);

#endif
