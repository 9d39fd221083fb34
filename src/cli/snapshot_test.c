/* SPDX-License-Identifier: MIT */
#include "follow_int.h"
#include "snapshot_int.h"
#include "table_int.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A client and its server, the server's end first; and a client whose peer is not Tutti's. */
#define SERVER                                                                                     \
	"{\"id\":\"2.0.0\",\"program\":\"server\",\"pid\":20,\"local\":\"127.0.0.1:80\","          \
	"\"remote\":\"127.0.0.1:40000\",\"path\":\"user\",\"reason\":\"none\","                    \
	"\"state\":\"attached\",\"tx_route\":\"ring\",\"rx_route\":\"ring\","                      \
	"\"queued_bytes\":7,\"tx_queued_bytes\":9,\"credit_bytes\":100,\"ring_tx_bytes\":500}"
#define CLIENT(ring_tx, messages)                                                                   \
	"{\"id\":\"1.0.0\",\"program\":\"client\",\"pid\":10,\"local\":\"127.0.0.1:40000\","        \
	"\"remote\":\"127.0.0.1:80\",\"path\":\"user\",\"reason\":\"none\",\"state\":\"attached\"," \
	"\"tx_route\":\"ring\",\"rx_route\":\"ring\",\"queued_bytes\":9,\"ring_tx_bytes\":" ring_tx \
	",\"tx_messages\":" messages "}"
#define ALONE                                                                                      \
	"{\"id\":\"1.1.0\",\"program\":\"client\",\"pid\":10,\"local\":\"127.0.0.1:40001\","       \
	"\"remote\":\"127.0.0.1:81\",\"path\":\"tcp\",\"reason\":\"peer-not-tutti\","              \
	"\"state\":\"claimed\",\"tx_route\":\"tcp\",\"rx_route\":\"tcp\"}"
#define LIST(ends) "{\"connections\":[" ends "]}"

static struct tt_snapshot parse(const char *text)
{
	struct tt_snapshot s;

	assert_int_equal(tt_snapshot_parse(text, &s), 0);
	return s;
}

/* ---- connections ---- */

static void test_two_ends_are_one_connection(void **state)
{
	struct tt_snapshot s = parse(LIST(SERVER "," ALONE "," CLIENT("0", "0")));
	struct tt_counts n = tt_snapshot_counts(&s);

	assert_int_equal(s.nends, 3);
	assert_int_equal(n.connections, 2);
	assert_int_equal(n.accelerated, 1);
	/* Who connected comes first, whatever the order in the list. */
	assert_string_equal(tt_end_a(&s, &s.pairs[0])->program, "client");
	assert_string_equal(tt_end_b(&s, &s.pairs[0])->program, "server");
	assert_string_equal(tt_pair_path(&s, &s.pairs[0]), "user");
	assert_null(tt_end_b(&s, &s.pairs[1]));
	assert_string_equal(tt_pair_path(&s, &s.pairs[1]), "tcp");
	assert_string_equal(tt_pair_reason(&s, &s.pairs[1]), "peer-not-tutti");
	tt_snapshot_fini(&s);
}

static void test_many_connections_are_paired(void **state)
{
	enum { N = 1000 };
	char *text = malloc(N * 400), *at = text;

	at += sprintf(at, "{\"connections\":[");
	for (int end = 0; end < 2; end++)
		for (int i = 0; i < N; i++) {
			int k = end ? (i * 7 + 3) % N : i; /* in another order */

			at += sprintf(at,
				      "%s{\"id\":\"%d.%d.0\",\"local\":\"127.0.0.1:%d\","
				      "\"remote\":\"127.0.0.1:%d\",\"path\":\"user\"}",
				      end || i ? "," : "", end, k, end ? 80 : 30000 + k,
				      end ? 30000 + k : 80);
		}
	sprintf(at, "]}");
	struct tt_snapshot s = parse(text);

	assert_int_equal(s.npairs, N);
	for (size_t i = 0; i < N; i++) {
		assert_non_null(tt_end_b(&s, &s.pairs[i]));
		assert_true(tt_end_is_peer(tt_end_a(&s, &s.pairs[i]), tt_end_b(&s, &s.pairs[i])));
	}
	for (int i = 0; i < N; i++) {
		char id[32];

		snprintf(id, sizeof(id), "1.%d.0", i);
		assert_string_equal(tt_snapshot_end(&s, id)->id, id);
	}
	assert_null(tt_snapshot_end(&s, "1.1000.0"));
	tt_snapshot_fini(&s);
	free(text);
}

static void test_filters_choose_connections_by_either_end(void **state)
{
	static const struct {
		struct tt_filter f;
		size_t n;
	} cases[] = {
		{{0}, 2},
		{{.pid = 20}, 1},
		{{.pid = 10}, 2},
		{{.pid = 30}, 0},
		{{.port = 80}, 1},
		{{.port = 40001}, 1},
		{{.port = 8}, 0},
		{{.program = "server"}, 1},
		{{.program = "client", .port = 81}, 1},
		{{.program = "clien"}, 0},
		{{.path = "tcp"}, 1},
		{{.path = "user", .pid = 10}, 1},
		{{.reason = "peer-not-tutti"}, 1},
		{{.reason = "none"}, 1},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct tt_snapshot s = parse(LIST(SERVER "," ALONE "," CLIENT("0", "0")));

		tt_snapshot_filter(&s, &cases[i].f);
		assert_int_equal(s.npairs, cases[i].n);
		tt_snapshot_fini(&s);
	}
}

static void test_no_report_is_refused(void **state)
{
	struct tt_snapshot s;

	assert_int_equal(tt_snapshot_parse("", &s), -EPROTO);
	assert_int_equal(tt_snapshot_parse("{}", &s), -EPROTO);
	assert_int_equal(tt_snapshot_parse("{\"connections\":1}", &s), -EPROTO);
	/* What is missing, or of another type, is nothing. */
	s = parse("{\"connections\":[{},{\"id\":1,\"local\":[],\"ring_tx_bytes\":-1},2]}");
	assert_int_equal(s.nends, 3);
	assert_int_equal(s.ends[1].ring_tx_bytes, 0);
	assert_string_equal(s.ends[1].local, "");
	tt_snapshot_fini(&s);
	s = parse(LIST(""));
	assert_int_equal(s.npairs, 0);
	tt_snapshot_fini(&s);
}

static void test_rates_are_differences(void **state)
{
	struct tt_snapshot none = {0}, old = parse(LIST(SERVER "," CLIENT("1000", "10")));
	struct tt_snapshot now = parse(LIST(SERVER "," CLIENT("5000", "30") "," ALONE));
	struct tt_rates r;

	old.at_s = 100;
	now.at_s = 102;
	tt_pair_rates(&old, &now, &now.pairs[0], &r);
	assert_true(r.tx_bytes > 1999 && r.tx_bytes < 2001);
	assert_true(r.messages > 9.9 && r.messages < 10.1);
	assert_true(r.rx_bytes <= 0);
	/* A count that goes back is no rate; nor is anything, the first time. */
	now.at_s = 90;
	old.at_s = 80;
	tt_pair_rates(&now, &old, &old.pairs[0], &r);
	assert_true(r.tx_bytes <= 0 && r.messages <= 0);
	tt_pair_rates(&none, &now, &now.pairs[0], &r);
	assert_true(r.tx_bytes <= 0);
	tt_snapshot_fini(&old);
	tt_snapshot_fini(&now);
}

/* A server on a high port: it is the port that many ends have. */
static void test_a_server_is_known_by_its_port(void **state)
{
	char text[2048] = "", *at = text;

	at += sprintf(at, "{\"connections\":[");
	for (int i = 0; i < 3; i++) {
		const char *client = "127.0.0.1:%d", *server = "127.0.0.1:50051";
		char address[32];

		snprintf(address, sizeof(address), client, 40000 + i);
		at += sprintf(at,
			      "%s{\"id\":\"1.%d.0\",\"program\":\"server\",\"local\":\"%s\","
			      "\"remote\":\"%s\"},{\"id\":\"2.%d.0\",\"program\":\"client\","
			      "\"local\":\"%s\",\"remote\":\"%s\"}",
			      i ? "," : "", i, server, address, i, address, server);
	}
	sprintf(at, "]}");
	struct tt_snapshot s = parse(text);

	assert_int_equal(s.npairs, 3);
	for (size_t i = 0; i < 3; i++) {
		assert_string_equal(tt_end_a(&s, &s.pairs[i])->program, "client");
		assert_string_equal(tt_end_b(&s, &s.pairs[i])->program, "server");
	}
	tt_snapshot_fini(&s);
}

/* ---- text ---- */

static void join(void *arg, const char *line)
{
	strcat(arg, line);
	strcat(arg, "\n");
}

static void test_table(void **state)
{
	static const enum tt_column columns[] = {TT_COL_PROGRAM, TT_COL_PID,	 TT_COL_PEER,
						 TT_COL_PATH,	 TT_COL_REASON,	 TT_COL_QUEUED,
						 TT_COL_CREDITS, TT_COL_RING_TX, TT_COL_END};
	struct tt_snapshot s = parse(LIST(SERVER "," CLIENT("12345", "0") "," ALONE));
	static const enum tt_column important[] = {TT_COL_PATH,	   TT_COL_RING_TX, TT_COL_REASON,
						   TT_COL_PROGRAM, TT_COL_PEER,	   TT_COL_PID,
						   TT_COL_QUEUED,  TT_COL_CREDITS, TT_COL_END};
	struct tt_table t = {columns, important, 0, &s, NULL, 9};
	char text[1024] = "";

	assert_int_equal(tt_table_print(&t, join, text), 0);
	assert_string_equal(
		text, "PROGRAM  PID  PEER    PATH  REASON          QUEUED  CREDITS  RING TX\n"
		      "client    10  server  user  -                  9/7    -/100    12345\n"
		      "client    10  -       tcp   peer-not-tutti     0/0      -/-        0\n");
	/* PATH, RING TX and REASON take 29; PROGRAM does not fit, nor PEER, but PID. */
	t.width = 34;
	*text = '\0';
	assert_int_equal(tt_table_print(&t, join, text), 4);
	assert_string_equal(text, "PID  PATH  REASON          RING TX\n"
				  " 10  user  -                 12345\n"
				  " 10  tcp   peer-not-tutti        0\n");
	t.width = 1; /* the most important at least */
	*text = '\0';
	assert_int_equal(tt_table_print(&t, join, text), 7);
	assert_string_equal(text, "PATH\nuser\ntcp\n");
	t.width = 0;
	t.max_rows = 1;
	*text = '\0';
	tt_table_print(&t, join, text);
	assert_non_null(strstr(text, "server"));
	assert_null(strstr(text, "peer-not-tutti"));
	tt_format_counts(&s, text, sizeof(text));
	assert_string_equal(text,
			    "2 connections: 1 accelerated, 1 on kernel TCP (1 peer-not-tutti)");
	tt_snapshot_fini(&s);
}

static void test_totals(void **state)
{
	json_t *totals = json_loads("{\"accelerated\":6,\"fallback\":3,"
				    "\"fallback_reasons\":{\"short\":2,\"option\":1}}",
				    0, NULL);
	char text[256];

	tt_format_totals(totals, text, sizeof(text));
	assert_string_equal(text, "3 connections accelerated, 3 sockets stayed on kernel TCP: "
				  "2 short, 1 option");
	json_decref(totals);
	totals = json_loads("{\"ring_tx_bytes\":2048,\"shadow_tx_bytes\":5,\"spins\":1,"
			    "\"sleeps\":2,\"wakes\":3}",
			    0, NULL);
	tt_format_sums(totals, text, sizeof(text));
	assert_string_equal(text, "2.0kB sent by rings, 5B by TCP; 1 spins, 2 sleeps, 3 wakes");
	json_decref(totals);
	tt_format_totals(NULL, text, sizeof(text));
	assert_string_equal(text, "0 connections accelerated, 0 sockets stayed on kernel TCP");
}

static void test_short_numbers(void **state)
{
	static const struct {
		double v;
		const char *text;
	} cases[] = {{0, "0"},	     {999, "999"},     {1000, "1.0k"},	  {1536, "1.5k"},
		     {10240, "10k"}, {999600, "1.0M"}, {4194304, "4.2M"}, {1e12, "1.0T"},
		     {999.4, "999"}, {999.6, "1.0k"}};
	char text[16];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		tt_format_short(cases[i].v, text, sizeof(text));
		assert_string_equal(text, cases[i].text);
	}
}

/* ---- events ---- */

static void note(void *arg, const struct tt_end *e, const char *event, const char *detail)
{
	strcat(arg, event);
	strcat(arg, " ");
}

static struct tt_end end(const char *state, const char *tx, const char *rx, const char *reason)
{
	return (struct tt_end){
		.state = state,
		.tx_route = tx,
		.rx_route = rx,
		.reason = reason,
		.accelerated = !strcmp(state, "attached") && strcmp(tx, "back") != 0,
	};
}

static void test_events(void **state)
{
	const struct tt_end plain = end("plain", "tcp", "tcp", "none"),
			    claimed = end("claimed", "tcp", "tcp", "peer-not-tutti"),
			    attached = end("attached", "tcp", "tcp", "none"),
			    up = end("attached", "ring", "ring", "none"),
			    half = end("attached", "back", "ring", "urgent-data"),
			    option = end("plain", "tcp", "tcp", "option");
	const struct {
		const struct tt_end *old, *now;
		const char *events;
	} cases[] = {
		{NULL, &plain, "found "},
		{&plain, &plain, ""},
		{&plain, &claimed, "claimed "},
		{&claimed, &attached, "granted attached "},
		{&plain, &up, "claimed granted attached tx-up rx-up "},
		{&attached, &up, "tx-up rx-up "},
		{&up, &half, "tx-down "},
		{&plain, &option, "fallback "},
		{&option, &option, ""},
		{&half, NULL, "closed "},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[256] = "";

		tt_follow_diff(cases[i].old, cases[i].now, note, text);
		assert_string_equal(text, cases[i].events);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_two_ends_are_one_connection),
		cmocka_unit_test(test_many_connections_are_paired),
		cmocka_unit_test(test_filters_choose_connections_by_either_end),
		cmocka_unit_test(test_no_report_is_refused),
		cmocka_unit_test(test_rates_are_differences),
		cmocka_unit_test(test_a_server_is_known_by_its_port),
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_totals),
		cmocka_unit_test(test_short_numbers),
		cmocka_unit_test(test_events),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
