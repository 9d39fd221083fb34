/* SPDX-License-Identifier: MIT */
#include "cli_int.h"
#include "ulc/ctl.h"

#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN_LEFT, ALIGN_RIGHT };

static const struct column {
	const char *heading;
	const char *key;
	int align;
} columns[] = {
	{"PROGRAM", "program", ALIGN_LEFT},
	{"PID", "pid", ALIGN_RIGHT},
	{"LOCAL", "local", ALIGN_LEFT},
	{"REMOTE", "remote", ALIGN_LEFT},
	{"PATH", "path", ALIGN_LEFT},
	{"REASON", "reason", ALIGN_LEFT},
	{"RING TX", "ring_tx_bytes", ALIGN_RIGHT},
	{"RING RX", "ring_rx_bytes", ALIGN_RIGHT},
	{"TCP TX", "shadow_tx_bytes", ALIGN_RIGHT},
	{"TCP RX", "shadow_rx_bytes", ALIGN_RIGHT},
	{"QUEUED", "queued_bytes", ALIGN_RIGHT},
	{"SLEEPS", "sleeps", ALIGN_RIGHT},
	{"WAKES", "wakes", ALIGN_RIGHT},
};
#define NCOLUMNS (sizeof(columns) / sizeof(columns[0]))
#define CELL_BYTES 80

static void format_cell(const json_t *connection, const char *key, char *text)
{
	const json_t *v = json_object_get(connection, key);

	if (json_is_string(v))
		snprintf(text, CELL_BYTES, "%s",
			 strcmp(json_string_value(v), "none") == 0 ? "-" : json_string_value(v));
	else
		snprintf(text, CELL_BYTES, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
}

static void print_cell(size_t column, const char *text, size_t width)
{
	if (columns[column].align == ALIGN_RIGHT)
		printf("%*s", (int)width, text);
	else if (column + 1 < NCOLUMNS)
		printf("%-*s", (int)width, text);
	fputs(column + 1 < NCOLUMNS ? "  " : "\n", stdout);
}

static void print_table(const json_t *connections)
{
	size_t width[NCOLUMNS], i;
	char text[CELL_BYTES];
	json_t *c;

	for (size_t k = 0; k < NCOLUMNS; k++) {
		width[k] = strlen(columns[k].heading);
		json_array_foreach(connections, i, c)
		{
			format_cell(c, columns[k].key, text);
			if (strlen(text) > width[k])
				width[k] = strlen(text);
		}
	}
	for (size_t k = 0; k < NCOLUMNS; k++)
		print_cell(k, columns[k].heading, width[k]);
	json_array_foreach(connections, i, c)
	{
		for (size_t k = 0; k < NCOLUMNS; k++) {
			format_cell(c, columns[k].key, text);
			print_cell(k, text, width[k]);
		}
	}
}

static void print_totals(const json_t *totals)
{
	const char *reason, *separator = ": ";
	json_t *n;

	printf("since the daemon's start: %" JSON_INTEGER_FORMAT
	       " connections accelerated, %" JSON_INTEGER_FORMAT " on TCP",
	       json_integer_value(json_object_get(totals, "accelerated")),
	       json_integer_value(json_object_get(totals, "fallback")));
	json_object_foreach(json_object_get(totals, "fallback_reasons"), reason, n)
	{
		printf("%s%" JSON_INTEGER_FORMAT " %s", separator, json_integer_value(n), reason);
		separator = ", ";
	}
	putchar('\n');
}

int tt_cmd_ss(int argc, char **argv)
{
	static const struct option options[] = {{"help", no_argument, NULL, 'h'},
						{"json", no_argument, NULL, 'j'},
						{NULL, 0, NULL, 0}};
	bool json = false;
	int opt, err;
	char *text;
	json_t *r;

	optind = 0;
	opterr = 0;
	while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (opt == 'h') {
			puts("usage: tutti ss [--json]\n\n"
			     "Lists the TCP connections of programs under 'tutti run': which path\n"
			     "their bytes take, and why when it is kernel TCP.\n\n"
			     "  --json   one JSON object");
			return TT_EXIT_OK;
		}
		if (opt == '?')
			return tt_cli_misuse("ss", "unknown option", argv[optind - 1]);
		json = true;
	}
	if (optind < argc)
		return tt_cli_misuse("ss", "unexpected word", argv[optind]);
	err = tt_cli_report(TT_CTL_SS, &text);
	if (err < 0)
		return tt_cli_no_report("ss", err);
	if (json) {
		puts(text);
		free(text);
		return TT_EXIT_OK;
	}
	r = json_loads(text, 0, NULL);
	free(text);
	if (!r)
		return tt_cli_fail("ss", "the daemon's answer is no JSON", NULL);
	print_table(json_object_get(r, "connections"));
	print_totals(json_object_get(r, "totals"));
	json_decref(r);
	return TT_EXIT_OK;
}
