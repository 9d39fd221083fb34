/* SPDX-License-Identifier: MIT */
#include "top_int.h"

#include "cli_int.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char *const tt_sort_names[TT_SORT_COUNT] = {
	[TT_SORT_RATE] = "rate",       [TT_SORT_BYTES] = "bytes",   [TT_SORT_MESSAGES] = "messages",
	[TT_SORT_QUEUED] = "queued",   [TT_SORT_SLEEPS] = "sleeps", [TT_SORT_WAKES] = "wakes",
	[TT_SORT_PROGRAM] = "program",
};
#define SORT_ALLOWED "rate, bytes, messages, queued, sleeps, wakes or program"

static const enum tt_column columns[] = {
	TT_COL_PROGRAM, TT_COL_PID,	  TT_COL_PEER,	     TT_COL_PEER_PID,  TT_COL_LOCAL,
	TT_COL_REMOTE,	TT_COL_PATH,	  TT_COL_TX_RATE,    TT_COL_RX_RATE,   TT_COL_MESSAGE_RATE,
	TT_COL_QUEUED,	TT_COL_SPIN_RATE, TT_COL_SLEEP_RATE, TT_COL_WAKE_RATE, TT_COL_REASON,
	TT_COL_CREDITS, TT_COL_END,
};
static const enum tt_column important[] = {
	TT_COL_PROGRAM,	   TT_COL_TX_RATE,   TT_COL_RX_RATE,   TT_COL_MESSAGE_RATE, TT_COL_PATH,
	TT_COL_PEER,	   TT_COL_PID,	     TT_COL_QUEUED,    TT_COL_LOCAL,	    TT_COL_REASON,
	TT_COL_SLEEP_RATE, TT_COL_WAKE_RATE, TT_COL_SPIN_RATE, TT_COL_REMOTE,	    TT_COL_PEER_PID,
	TT_COL_CREDITS,	   TT_COL_END,
};

static int usage(void)
{
	puts("usage: tutti top [--delay SECONDS] [--sort KEY] [FILTER...]\n"
	     "       tutti top --batch [-n N] [--delay SECONDS] [--sort KEY] [FILTER...]\n"
	     "       tutti top --json [-n N] [--delay SECONDS] [--sort KEY] [FILTER...]\n\n"
	     "Shows the connections of programs under 'tutti run' and what moves on them.\n"
	     "Keys: q quit, s next sort, p pause, h help.\n\n"
	     "  -b, --batch          text, a table an interval; for scripts and files\n"
	     "  -n, --rounds N       end after N intervals\n"
	     "  -d, --delay SECONDS  of an interval (default 1)\n"
	     "  --sort KEY           " SORT_ALLOWED "\n"
	     "                       (default rate); descending, but for program\n"
	     "  --json               one JSON object a line, one an interval\n" TT_FILTER_USAGE);
	return TT_EXIT_OK;
}

/* ---- looking ---- */

/* A list without anything in it. */
static const char nothing[] = "{\"connections\":[]}";

static struct tt_rates *rates_of(const struct tt_snapshot *old, const struct tt_snapshot *now)
{
	struct tt_rates *rates = calloc(now->npairs + 1, sizeof(*rates));

	for (size_t i = 0; rates && i < now->npairs; i++)
		tt_pair_rates(old, now, &now->pairs[i], &rates[i]);
	return rates;
}

void tt_top_look(struct tt_top *t)
{
	struct tt_snapshot old = t->now;

	memset(&t->now, 0, sizeof(t->now));
	t->err = tt_snapshot_take(&t->filter, &t->now);
	if (t->err < 0 && tt_snapshot_parse(nothing, &t->now) < 0)
		t->err = -ENOMEM;
	free(t->rates);
	t->rates = rates_of(&old, &t->now);
	if (!t->rates) {
		t->now.npairs = 0;
		t->err = -ENOMEM;
	}
	tt_snapshot_fini(&old);
	tt_top_sort(t);
}

static void look_later(struct tt_top *t)
{
	struct timespec ts = {.tv_sec = (time_t)t->delay_s};

	ts.tv_nsec = (long)((t->delay_s - (double)ts.tv_sec) * 1e9);
	nanosleep(&ts, NULL);
	tt_top_look(t);
}

const char *tt_top_why(const struct tt_top *t)
{
	const char *todo;

	if (tt_cli_is_absent(t->err))
		return "no daemon is running; waiting for one";
	return t->err == -EPROTO ? "the daemon is of another version" : tt_cli_why(t->err, &todo);
}

/* ---- order ---- */

struct row {
	struct tt_pair pair;
	struct tt_rates rates;
	double key;
	const char *program;
	size_t place; /* of equal ones, so that rows do not jump */
};

static double sum(const struct tt_snapshot *s, const struct tt_pair *p,
		  uint64_t (*of)(const struct tt_end *e))
{
	const struct tt_end *b = tt_end_b(s, p);

	return (double)of(tt_end_a(s, p)) + (b ? (double)of(b) : 0);
}

static uint64_t moved(const struct tt_end *e)
{
	return e->ring_tx_bytes + e->ring_rx_bytes + e->shadow_tx_bytes + e->shadow_rx_bytes;
}

static uint64_t queued(const struct tt_end *e)
{
	return e->queued_bytes + e->tx_queued_bytes;
}

static double key_of(const struct tt_top *t, size_t i)
{
	const struct tt_pair *p = &t->now.pairs[i];
	const struct tt_rates *r = &t->rates[i];

	switch (t->sort) {
	case TT_SORT_RATE: return r->tx_bytes + r->rx_bytes;
	case TT_SORT_BYTES: return sum(&t->now, p, moved);
	case TT_SORT_MESSAGES: return r->messages;
	case TT_SORT_QUEUED: return sum(&t->now, p, queued);
	case TT_SORT_SLEEPS: return r->sleeps;
	case TT_SORT_WAKES: return r->wakes;
	default: return 0;
	}
}

static int compare(const void *x, const void *y)
{
	const struct row *r = x, *q = y;
	int c = r->program && q->program ? strcmp(r->program, q->program) : 0;

	if (c)
		return c;
	if (r->key < q->key || r->key > q->key)
		return r->key < q->key ? 1 : -1;
	return (r->place > q->place) - (r->place < q->place);
}

void tt_top_sort(struct tt_top *t)
{
	struct row *rows = calloc(t->now.npairs + 1, sizeof(*rows));

	if (!rows)
		return; /* unsorted, then */
	for (size_t i = 0; i < t->now.npairs; i++)
		rows[i] = (struct row){t->now.pairs[i], t->rates[i], key_of(t, i),
				       t->sort == TT_SORT_PROGRAM
					       ? tt_end_a(&t->now, &t->now.pairs[i])->program
					       : NULL,
				       i};
	qsort(rows, t->now.npairs, sizeof(*rows), compare);
	for (size_t i = 0; i < t->now.npairs; i++) {
		t->now.pairs[i] = rows[i].pair;
		t->rates[i] = rows[i].rates;
	}
	free(rows);
}

/* ---- text ---- */

void tt_top_clock(char *ret_text, size_t bytes)
{
	time_t now = time(NULL);
	struct tm tm;

	localtime_r(&now, &tm);
	strftime(ret_text, bytes, "%T", &tm);
}

void tt_top_sums(const struct tt_top *t, char *ret_text, size_t bytes)
{
	char counts[256], moving[16];
	double total = 0, messages = 0;

	for (size_t i = 0; i < t->now.npairs; i++) {
		total += t->rates[i].tx_bytes + t->rates[i].rx_bytes;
		messages += t->rates[i].messages;
	}
	tt_format_counts(&t->now, counts, sizeof(counts));
	tt_format_short(total, moving, sizeof(moving));
	snprintf(ret_text, bytes, "%s; %s B/s, %.0f messages/s", counts, moving, messages);
}

void tt_top_table(const struct tt_top *t, size_t max_rows, size_t width, tt_line_fn line, void *arg)
{
	struct tt_table table = {columns, important, width, &t->now, t->rates, max_rows};

	tt_table_print(&table, line, arg);
}

static void print_line(void *arg, const char *line)
{
	puts(line);
}

static void print_text(const struct tt_top *t)
{
	char clock[16], text[TT_LINE_BYTES];

	tt_top_clock(clock, sizeof(clock));
	if (t->err < 0) {
		printf("%s  %s\n\n", clock, tt_top_why(t));
		return;
	}
	tt_top_sums(t, text, sizeof(text));
	printf("%s  %s\n", clock, text);
	tt_format_totals(json_object_get(t->now.root, "totals"), text, sizeof(text));
	printf("since the daemon's start: %s\n", text);
	tt_top_table(t, t->now.npairs, tt_table_width(), print_line, NULL);
	putchar('\n');
}

/* ---- JSON ---- */

static void put_both(json_t *o, const char *key, const char *peer_key, uint64_t a,
		     const uint64_t *b)
{
	json_object_set_new(o, key, json_integer((json_int_t)a));
	if (b)
		json_object_set_new(o, peer_key, json_integer((json_int_t)*b));
}

static json_t *connection(const struct tt_top *t, size_t i)
{
	const struct tt_pair *p = &t->now.pairs[i];
	const struct tt_end *a = tt_end_a(&t->now, p), *b = tt_end_b(&t->now, p);
	const struct tt_rates *r = &t->rates[i];
	uint64_t rx_bytes = a->ring_rx_bytes + a->shadow_rx_bytes;
	json_t *o = json_object();

	json_object_set_new(o, "id", json_string(a->id));
	json_object_set_new(o, "program", json_string(a->program));
	json_object_set_new(o, "pid", json_integer(a->pid));
	if (b) {
		json_object_set_new(o, "peer_program", json_string(b->program));
		json_object_set_new(o, "peer_pid", json_integer(b->pid));
	}
	json_object_set_new(o, "local", json_string(a->local));
	json_object_set_new(o, "remote", json_string(a->remote));
	json_object_set_new(o, "path", json_string(tt_pair_path(&t->now, p)));
	json_object_set_new(o, "reason", json_string(tt_pair_reason(&t->now, p)));
	json_object_set_new(o, "tx_bytes_per_s", json_real(r->tx_bytes));
	json_object_set_new(o, "rx_bytes_per_s", json_real(r->rx_bytes));
	json_object_set_new(o, "messages_per_s", json_real(r->messages));
	json_object_set_new(o, "spins_per_s", json_real(r->spins));
	json_object_set_new(o, "sleeps_per_s", json_real(r->sleeps));
	json_object_set_new(o, "wakes_per_s", json_real(r->wakes));
	put_both(o, "tx_bytes", "rx_bytes", a->ring_tx_bytes + a->shadow_tx_bytes, &rx_bytes);
	put_both(o, "queued_bytes", "peer_queued_bytes", a->queued_bytes,
		 b ? &b->queued_bytes : &a->tx_queued_bytes);
	if (a->has_credit)
		put_both(o, "credit_bytes", NULL, a->credit_bytes, NULL);
	if (b && b->has_credit)
		put_both(o, "peer_credit_bytes", NULL, b->credit_bytes, NULL);
	return o;
}

static int print_json(const struct tt_top *t)
{
	json_t *o = json_object(), *list = json_array();
	struct tt_counts n = tt_snapshot_counts(&t->now);
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	json_object_set_new(o, "time_s", json_real((double)ts.tv_sec + (double)ts.tv_nsec / 1e9));
	json_object_set_new(o, "daemon", json_boolean(t->err == 0));
	json_object_set_new(o, "interval_s", json_real(t->delay_s));
	for (size_t i = 0; i < t->now.npairs; i++)
		json_array_append_new(list, connection(t, i));
	json_object_set_new(o, "connections", list);
	json_object_set_new(o, "listed",
			    json_pack("{s:I,s:I,s:I}", "connections", (json_int_t)n.connections,
				      "accelerated", (json_int_t)n.accelerated, "fallback",
				      (json_int_t)(n.connections - n.accelerated)));
	if (t->err == 0)
		json_object_set(o, "totals", json_object_get(t->now.root, "totals"));
	int err = json_dumpf(o, stdout, JSON_COMPACT | JSON_REAL_PRECISION(15));

	json_decref(o);
	putchar('\n');
	return err;
}

/* ---- the command ---- */

static int batch(struct tt_top *t, bool json)
{
	bool lost = false;

	tt_top_look(t);
	if (t->err < 0)
		return tt_cli_no_report("top", t->err);
	for (long i = 0; !t->rounds || i < t->rounds; i++) {
		look_later(t);
		if (t->err < 0 && !lost)
			fprintf(stderr, "tutti: top: %s\n", tt_top_why(t));
		lost = t->err < 0;
		if (json && print_json(t) < 0)
			return tt_cli_fail("top", "the result cannot be written",
					   "is the disk full?");
		if (!json)
			print_text(t);
		if (fflush(stdout) != 0)
			break; /* main() says why */
	}
	return TT_EXIT_OK;
}

static int parse_sort(const char *word, enum tt_sort *ret)
{
	for (int i = 0; i < TT_SORT_COUNT; i++) {
		if (strcmp(tt_sort_names[i], word) == 0) {
			*ret = (enum tt_sort)i;
			return 0;
		}
	}
	return tt_cli_bad_value("top", "sort", word, SORT_ALLOWED);
}

static int parse_value(struct tt_top *t, int opt, char **argv)
{
	int status;

	switch (opt) {
	case 'n':
		if (tt_arg_number(optarg, 1, 1000000000, &t->rounds))
			return 0;
		return tt_cli_bad_value("top", "rounds", optarg, "a count, 1 or more");
	case 'd':
		if (tt_arg_seconds(optarg, &t->delay_s))
			return 0;
		return tt_cli_bad_value("top", "delay", optarg, TT_SECONDS_ALLOWED);
	case 'S': return parse_sort(optarg, &t->sort);
	default:
		status = tt_filter_option("top", opt, optarg, &t->filter);
		return status < 0 ? tt_cli_bad_option("top", opt, argv) : status;
	}
}

int tt_cmd_top(int argc, char **argv)
{
	static const struct option options[] = {{"help", no_argument, NULL, 'h'},
						{"batch", no_argument, NULL, 'b'},
						{"json", no_argument, NULL, 'j'},
						{"rounds", required_argument, NULL, 'n'},
						{"delay", required_argument, NULL, 'd'},
						{"sort", required_argument, NULL, 'S'},
						TT_FILTER_OPTIONS,
						{NULL, 0, NULL, 0}};
	struct tt_top t = {.delay_s = 1};
	bool text = false, json = false;
	int opt, status;

	optind = 0;
	opterr = 0;
	while ((opt = getopt_long(argc, argv, ":hbn:d:", options, NULL)) != -1) {
		switch (opt) {
		case 'h': return usage();
		case 'b': text = true; break;
		case 'j': json = true; break;
		default:
			status = parse_value(&t, opt, argv);
			if (status)
				return status;
		}
	}
	if (optind < argc)
		return tt_cli_misuse("top", "unexpected word", argv[optind]);
	if (!text && !json && (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)))
		return tt_cli_fail("top", "there is no terminal", "use --batch or --json");
	status = text || json ? batch(&t, json) : tt_top_screen(&t);
	tt_snapshot_fini(&t.now);
	free(t.rates);
	return status;
}
