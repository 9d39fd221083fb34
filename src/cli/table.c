/* SPDX-License-Identifier: MIT */
#include "table_int.h"

#include "sock/side.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define CELL_BYTES 80
#define GAP 2 /* between columns */

/* ---- cells ---- */

void tt_format_short(double value, char *ret_text, size_t bytes)
{
	static const char units[] = "kMGTPE";
	int unit = -1;

	/* What would be written as 1000. */
	while (value >= 999.5 && unit < 5) {
		value /= 1000;
		unit++;
	}
	if (unit < 0)
		snprintf(ret_text, bytes, "%.0f", value);
	else
		snprintf(ret_text, bytes, value < 9.95 ? "%.1f%c" : "%.0f%c", value, units[unit]);
}

static void text_cell(char *cell, const char *text)
{
	snprintf(cell, CELL_BYTES, "%s", *text && strcmp(text, "none") != 0 ? text : "-");
}

static void count_cell(char *cell, uint64_t v)
{
	snprintf(cell, CELL_BYTES, "%llu", (unsigned long long)v);
}

/* Of PROGRAM and of PEER. */
static void both_cell(char *cell, bool has_a, uint64_t a, bool has_b, uint64_t b)
{
	char x[24] = "-", y[24] = "-";

	if (has_a)
		count_cell(x, a);
	if (has_b)
		count_cell(y, b);
	snprintf(cell, CELL_BYTES, "%s/%s", x, y);
}

static void fill_cell(const struct tt_table *t, size_t row, enum tt_column column, char *cell)
{
	const struct tt_pair *p = &t->snapshot->pairs[row];
	const struct tt_end *a = tt_end_a(t->snapshot, p), *b = tt_end_b(t->snapshot, p);
	const struct tt_rates *r = t->rates ? &t->rates[row] : NULL;

	switch (column) {
	case TT_COL_PROGRAM: text_cell(cell, a->program); break;
	case TT_COL_PID: count_cell(cell, (uint64_t)a->pid); break;
	case TT_COL_PEER: text_cell(cell, b ? b->program : ""); break;
	case TT_COL_PEER_PID:
		strcpy(cell, "-");
		if (b)
			count_cell(cell, (uint64_t)b->pid);
		break;
	case TT_COL_LOCAL: text_cell(cell, a->local); break;
	case TT_COL_REMOTE: text_cell(cell, a->remote); break;
	case TT_COL_PATH: text_cell(cell, tt_pair_path(t->snapshot, p)); break;
	case TT_COL_REASON: text_cell(cell, tt_pair_reason(t->snapshot, p)); break;
	case TT_COL_RING_TX: count_cell(cell, a->ring_tx_bytes); break;
	case TT_COL_RING_RX: count_cell(cell, a->ring_rx_bytes); break;
	case TT_COL_TCP_TX: count_cell(cell, a->shadow_tx_bytes); break;
	case TT_COL_TCP_RX: count_cell(cell, a->shadow_rx_bytes); break;
	case TT_COL_QUEUED:
		both_cell(cell, true, a->queued_bytes, true,
			  b ? b->queued_bytes : a->tx_queued_bytes);
		break;
	case TT_COL_CREDITS:
		both_cell(cell, a->has_credit, a->credit_bytes, b && b->has_credit,
			  b ? b->credit_bytes : 0);
		break;
	case TT_COL_SPINS: both_cell(cell, true, a->spins, b, b ? b->spins : 0); break;
	case TT_COL_SLEEPS: both_cell(cell, true, a->sleeps, b, b ? b->sleeps : 0); break;
	case TT_COL_WAKES: both_cell(cell, true, a->wakes, b, b ? b->wakes : 0); break;
	case TT_COL_TX_RATE: tt_format_short(r ? r->tx_bytes : 0, cell, CELL_BYTES); break;
	case TT_COL_RX_RATE: tt_format_short(r ? r->rx_bytes : 0, cell, CELL_BYTES); break;
	case TT_COL_MESSAGE_RATE: tt_format_short(r ? r->messages : 0, cell, CELL_BYTES); break;
	case TT_COL_SPIN_RATE: tt_format_short(r ? r->spins : 0, cell, CELL_BYTES); break;
	case TT_COL_SLEEP_RATE: tt_format_short(r ? r->sleeps : 0, cell, CELL_BYTES); break;
	case TT_COL_WAKE_RATE: tt_format_short(r ? r->wakes : 0, cell, CELL_BYTES); break;
	case TT_COL_END:
	case TT_COL_COUNT: *cell = '\0'; break;
	}
}

/* ---- lines ---- */

static const struct {
	const char *text;
	bool is_left;
} headings[TT_COL_COUNT] = {
	[TT_COL_PROGRAM] = {"PROGRAM", true},	[TT_COL_PID] = {"PID", false},
	[TT_COL_PEER] = {"PEER", true},		[TT_COL_PEER_PID] = {"PID", false},
	[TT_COL_LOCAL] = {"LOCAL", true},	[TT_COL_REMOTE] = {"REMOTE", true},
	[TT_COL_PATH] = {"PATH", true},		[TT_COL_REASON] = {"REASON", true},
	[TT_COL_RING_TX] = {"RING TX", false},	[TT_COL_RING_RX] = {"RING RX", false},
	[TT_COL_TCP_TX] = {"TCP TX", false},	[TT_COL_TCP_RX] = {"TCP RX", false},
	[TT_COL_QUEUED] = {"QUEUED", false},	[TT_COL_CREDITS] = {"CREDITS", false},
	[TT_COL_SPINS] = {"SPINS", false},	[TT_COL_SLEEPS] = {"SLEEPS", false},
	[TT_COL_WAKES] = {"WAKES", false},	[TT_COL_TX_RATE] = {"TX B/s", false},
	[TT_COL_RX_RATE] = {"RX B/s", false},	[TT_COL_MESSAGE_RATE] = {"MSG/s", false},
	[TT_COL_SPIN_RATE] = {"SPIN/s", false}, [TT_COL_SLEEP_RATE] = {"SLEEP/s", false},
	[TT_COL_WAKE_RATE] = {"WAKE/s", false},
};

/* bytes is of the whole line; what does not fit is left out. */
__attribute__((format(printf, 3, 4))) static void append(char *line, size_t bytes, const char *fmt,
							 ...)
{
	size_t n = strlen(line);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line + n, bytes - n, fmt, ap);
	va_end(ap);
}

static void append_cell(char *line, enum tt_column column, const char *cell, int width)
{
	append(line, TT_LINE_BYTES, headings[column].is_left ? "%-*s  " : "%*s  ", width, cell);
}

/* Whether it fits beside those that were chosen before; then it is chosen. */
static bool choose(const struct tt_table *t, size_t width, size_t *used)
{
	size_t more = width + (*used ? GAP : 0);

	if (t->width && *used && *used + more > t->width)
		return false;
	*used += more;
	return true;
}

static void end_line(char *line, tt_line_fn fn, void *arg)
{
	size_t n = strlen(line);

	while (n && line[n - 1] == ' ')
		line[--n] = '\0';
	fn(arg, line);
}

size_t tt_table_print(const struct tt_table *t, tt_line_fn fn, void *arg)
{
	size_t rows = t->snapshot->npairs < t->max_rows ? t->snapshot->npairs : t->max_rows;
	char line[TT_LINE_BYTES] = "", cell[CELL_BYTES];
	int width[TT_COL_COUNT];
	bool chosen[TT_COL_COUNT] = {false};
	size_t used = 0, left_out = 0;

	for (const enum tt_column *c = t->columns; *c; c++) {
		width[*c] = (int)strlen(headings[*c].text);
		for (size_t row = 0; row < rows; row++) {
			fill_cell(t, row, *c, cell);
			if ((int)strlen(cell) > width[*c])
				width[*c] = (int)strlen(cell);
		}
	}
	for (const enum tt_column *c = t->important; *c; c++) {
		chosen[*c] = choose(t, (size_t)width[*c], &used);
		left_out += !chosen[*c];
	}
	for (const enum tt_column *c = t->columns; *c; c++)
		if (chosen[*c])
			append_cell(line, *c, headings[*c].text, width[*c]);
	end_line(line, fn, arg);
	for (size_t row = 0; row < rows; row++) {
		*line = '\0';
		for (const enum tt_column *c = t->columns; *c; c++) {
			if (!chosen[*c])
				continue;
			fill_cell(t, row, *c, cell);
			append_cell(line, *c, cell, width[*c]);
		}
		end_line(line, fn, arg);
	}
	return left_out;
}

size_t tt_table_width(void)
{
	struct winsize size;

	return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/* ---- sums ---- */

static const char *plural(size_t n)
{
	return n == 1 ? "" : "s";
}

void tt_format_counts(const struct tt_snapshot *s, char *ret_text, size_t bytes)
{
	struct tt_counts n = tt_snapshot_counts(s);
	size_t reasons[TT_REASON_COUNT] = {0};
	const char *separator = " (";

	for (size_t i = 0; i < s->npairs; i++)
		for (int r = 1; r < TT_REASON_COUNT; r++)
			reasons[r] += !strcmp(tt_pair_path(s, &s->pairs[i]), "tcp") &&
				      !strcmp(tt_pair_reason(s, &s->pairs[i]), tt_reason_names[r]);
	snprintf(ret_text, bytes, "%zu connection%s: %zu accelerated, %zu on kernel TCP",
		 n.connections, plural(n.connections), n.accelerated,
		 n.connections - n.accelerated);
	for (int r = 1; r < TT_REASON_COUNT; r++) {
		if (!reasons[r])
			continue;
		append(ret_text, bytes, "%s%zu %s", separator, reasons[r], tt_reason_names[r]);
		separator = ", ";
	}
	if (*separator == ',')
		append(ret_text, bytes, ")");
}

/*
 * The two programs of an accelerated connection count it both; one that is on
 * kernel TCP may have been seen by one program or by two, so these are sockets.
 */
void tt_format_totals(const json_t *totals, char *ret_text, size_t bytes)
{
	json_int_t ends = json_integer_value(json_object_get(totals, "accelerated"));
	json_int_t fallback = json_integer_value(json_object_get(totals, "fallback"));
	const char *reason, *separator = ": ";
	json_t *n;

	snprintf(ret_text, bytes,
		 "%lld connection%s accelerated, %lld socket%s stayed on kernel TCP",
		 (long long)(ends + 1) / 2, plural((size_t)(ends + 1) / 2), (long long)fallback,
		 plural((size_t)fallback));
	json_object_foreach(json_object_get(totals, "fallback_reasons"), reason, n)
	{
		append(ret_text, bytes, "%s%lld %s", separator, (long long)json_integer_value(n),
		       reason);
		separator = ", ";
	}
}

static double sum_of(const json_t *totals, const char *key)
{
	return json_number_value(json_object_get(totals, key));
}

void tt_format_sums(const json_t *totals, char *ret_text, size_t bytes)
{
	char ring[16], tcp[16];

	tt_format_short(sum_of(totals, "ring_tx_bytes"), ring, sizeof(ring));
	tt_format_short(sum_of(totals, "shadow_tx_bytes"), tcp, sizeof(tcp));
	snprintf(ret_text, bytes,
		 "%sB sent by rings, %sB by TCP; %.0f spins, %.0f sleeps, %.0f wakes", ring, tcp,
		 sum_of(totals, "spins"), sum_of(totals, "sleeps"), sum_of(totals, "wakes"));
}
