/* SPDX-License-Identifier: MIT */
#include "cli_int.h"
#include "follow_int.h"
#include "table_int.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

static const enum tt_column columns[] = {
	TT_COL_PROGRAM, TT_COL_PID,    TT_COL_PEER,   TT_COL_PEER_PID, TT_COL_LOCAL,
	TT_COL_REMOTE,	TT_COL_PATH,   TT_COL_REASON, TT_COL_RING_TX,  TT_COL_RING_RX,
	TT_COL_TCP_TX,	TT_COL_TCP_RX, TT_COL_QUEUED, TT_COL_CREDITS,  TT_COL_SPINS,
	TT_COL_SLEEPS,	TT_COL_WAKES,  TT_COL_END,
};
static const enum tt_column important[] = {
	TT_COL_PROGRAM, TT_COL_PATH,	TT_COL_REASON, TT_COL_PEER,	TT_COL_QUEUED,
	TT_COL_WAKES,	TT_COL_PID,	TT_COL_REMOTE, TT_COL_RING_TX,	TT_COL_RING_RX,
	TT_COL_LOCAL,	TT_COL_TCP_TX,	TT_COL_TCP_RX, TT_COL_PEER_PID, TT_COL_SLEEPS,
	TT_COL_SPINS,	TT_COL_CREDITS, TT_COL_END,
};

static int usage(void)
{
	puts("usage: tutti ss [--json] [FILTER...]\n"
	     "       tutti ss --follow [--wait] [--delay SECONDS] [--json] [FILTER...]\n\n"
	     "Lists the TCP connections of programs under 'tutti run': the programs at both\n"
	     "ends, which path their bytes take, and why when it is kernel TCP. Columns with\n"
	     "two numbers are of PROGRAM and of PEER; RING and TCP are bytes of PROGRAM's.\n\n"
	     "  -f, --follow         print what happens to the connections that match, as lines\n"
	     "                       with the time, until they have ended\n"
	     "  --wait               with --follow: wait for the first that matches\n"
	     "  -d, --delay SECONDS  with --follow: how often rates are printed (default 1)\n"
	     "  --json               one JSON object; with --follow one a line\n" TT_FILTER_USAGE);
	return TT_EXIT_OK;
}

/* ---- out ---- */

static void print_line(void *arg, const char *line)
{
	puts(line);
}

static void print_text(const struct tt_snapshot *s)
{
	struct tt_table t = {columns, important, tt_table_width(), s, NULL, s->npairs};
	size_t left_out = tt_table_print(&t, print_line, NULL);
	char text[TT_LINE_BYTES];

	if (left_out)
		printf("%zu columns do not fit (tutti ss | less -S shows all)\n", left_out);
	tt_format_counts(s, text, sizeof(text));
	puts(text);
	if (json_is_true(json_object_get(s->root, "truncated")))
		puts("not all are listed: there are too many");
	tt_format_totals(json_object_get(s->root, "totals"), text, sizeof(text));
	printf("since the daemon's start: %s\n", text);
	tt_format_sums(json_object_get(s->root, "totals"), text, sizeof(text));
	printf("                          %s\n", text);
}

static void name_peer(const struct tt_end *e, const struct tt_end *peer)
{
	if (!peer)
		return;
	json_object_set_new(e->json, "peer_program", json_string(peer->program));
	json_object_set_new(e->json, "peer_pid", json_integer(peer->pid));
}

static int print_json(const struct tt_snapshot *s)
{
	struct tt_counts n = tt_snapshot_counts(s);
	json_t *list = json_array(), *counts = json_object();

	for (size_t i = 0; i < s->npairs; i++) {
		const struct tt_end *a = tt_end_a(s, &s->pairs[i]), *b = tt_end_b(s, &s->pairs[i]);

		name_peer(a, b);
		json_array_append(list, a->json);
		if (!b)
			continue;
		name_peer(b, a);
		json_array_append(list, b->json);
	}
	json_object_set_new(s->root, "connections", list);
	json_object_set_new(counts, "connections", json_integer((json_int_t)n.connections));
	json_object_set_new(counts, "accelerated", json_integer((json_int_t)n.accelerated));
	json_object_set_new(counts, "fallback",
			    json_integer((json_int_t)(n.connections - n.accelerated)));
	json_object_set_new(s->root, "listed", counts);
	if (json_dumpf(s->root, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9)) < 0)
		return tt_cli_fail("ss", "out of memory", NULL);
	putchar('\n');
	return TT_EXIT_OK;
}

static int list(const struct tt_filter *f, bool json)
{
	struct tt_snapshot s;
	int err = tt_snapshot_take(f, &s), status = TT_EXIT_OK;

	if (err == -EPROTO)
		return tt_cli_fail("ss", "the daemon's answer is no report",
				   "is it of another version? tutti down, tutti up");
	if (err < 0)
		return tt_cli_no_report("ss", err);
	if (json)
		status = print_json(&s);
	else
		print_text(&s);
	tt_snapshot_fini(&s);
	return status;
}

int tt_cmd_ss(int argc, char **argv)
{
	static const struct option options[] = {{"help", no_argument, NULL, 'h'},
						{"json", no_argument, NULL, 'j'},
						{"follow", no_argument, NULL, 'f'},
						{"wait", no_argument, NULL, 'w'},
						{"delay", required_argument, NULL, 'd'},
						TT_FILTER_OPTIONS,
						{NULL, 0, NULL, 0}};
	struct tt_follow_options o = {.delay_s = 1};
	bool follow = false;
	const char *only_followed = NULL;
	int opt, status;

	optind = 0;
	opterr = 0;
	while ((opt = getopt_long(argc, argv, ":hfd:", options, NULL)) != -1) {
		switch (opt) {
		case 'h': return usage();
		case 'j': o.json = true; break;
		case 'f': follow = true; break;
		case 'w':
			o.wait = true;
			only_followed = "--wait";
			break;
		case 'd':
			if (!tt_arg_seconds(optarg, &o.delay_s))
				return tt_cli_bad_value("ss", "delay", optarg, TT_SECONDS_ALLOWED);
			only_followed = "--delay";
			break;
		default:
			status = tt_filter_option("ss", opt, optarg, &o.filter);
			if (status < 0)
				return tt_cli_bad_option("ss", opt, argv);
			if (status > 0)
				return status;
		}
	}
	if (optind < argc)
		return tt_cli_misuse("ss", "unexpected word", argv[optind]);
	if (!follow && only_followed)
		return tt_cli_misuse("ss", "only with --follow", only_followed);
	return follow ? tt_follow(&o) : list(&o.filter, o.json);
}
