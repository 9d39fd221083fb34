/* SPDX-License-Identifier: MIT */
#include "bench_int.h"
#include "cli_int.h"
#include "daemon/daemon.h"

#include <libgen.h>
#include <stdio.h>
#include <string.h>

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv); /* NULL: not in this version */
	const char *help;
} commands[] = {
	{"run", tt_cmd_run, "run a program, its TCP connections accelerated"},
	{"up", tt_cmd_up, "start this user's daemon"},
	{"down", tt_cmd_down, "end it"},
	{"status", tt_cmd_status, "what the daemon does"},
	{"ss", tt_cmd_ss, "list connections: path, reason of a fallback, counters, events"},
	{"top", tt_cmd_top, "the same, live: what moves, and how"},
	{"doctor", tt_cmd_doctor, "what works here, and whether a program will be accelerated"},
	{"bench", tt_cmd_bench, "measure paths against each other"},
	{"compare", NULL, NULL},
	{"lab", NULL, NULL},
	{"kernel", NULL, NULL},
	{"lan", NULL, NULL},
	{"nic", NULL, NULL},
	{"switch", NULL, NULL},
	{"module", tt_cmd_module, "look at and verify modules: BPF objects of a compiler"},
	{"vm", tt_cmd_vm, "run programs of the module machine, and its conformance cases"},
	{"capture", NULL, NULL},
	{"coll", NULL, NULL},
};
#define NCOMMANDS (sizeof(commands) / sizeof(commands[0]))

static void print_usage(FILE *out)
{
	fputs("usage: tutti COMMAND [ARGUMENT...]\n\n"
	      "Runs unmodified socket programs over a user-level network.\n\n",
	      out);
	for (size_t i = 0; i < NCOMMANDS; i++)
		if (commands[i].run)
			fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].help);
	fputs("\n'tutti help COMMAND' says more; 'tutti --version' prints the version.\n", out);
}

/* What could not be written was not done. */
static int written(const char *name, int status)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	return tt_cli_fail(name, "the result cannot be written", "is the disk full?");
}

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < NCOMMANDS; i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

static int run_command(const char *name, int argc, char **argv)
{
	const struct command *c = find_command(name);

	if (c && c->run)
		return c->run(argc, argv);
	fprintf(stderr, "tutti: %s%s%s (see: tutti --help)\n", c ? "" : "unknown command: ", name,
		c ? ": not in this version" : "");
	return TT_EXIT_MISUSE;
}

/* 'tutti help COMMAND' is 'tutti COMMAND --help'. */
static int help(int argc, char **argv)
{
	static char option[] = "--help";
	char *words[] = {argv[1], option, NULL};

	if (argc > 2)
		return tt_cli_misuse("help", "one command at a time", argv[2]);
	if (argc == 2 && *argv[1] != '-' && strcmp(argv[1], "help") != 0)
		return run_command(argv[1], 2, words);
	print_usage(stdout);
	return TT_EXIT_OK;
}

static int run(int argc, char **argv);

int main(int argc, char **argv)
{
	int status = run(argc, argv);

	return written(argc > 1 ? argv[1] : "tutti", status);
}

static int run(int argc, char **argv)
{
	if (argc > 0 && strcmp(basename(argv[0]), "tuttid") == 0)
		return tt_cmd_daemon(argc, argv);
	if (argc < 2) {
		fputs("tutti: which command? (see: tutti --help)\n", stderr);
		return TT_EXIT_MISUSE;
	}
	const char *name = argv[1];

	if (!strcmp(name, "--help") || !strcmp(name, "-h")) {
		print_usage(stdout);
		return TT_EXIT_OK;
	}
	if (!strcmp(name, "--version")) {
		puts("tutti " TUTTI_VERSION);
		return TT_EXIT_OK;
	}
	if (!strcmp(name, "help"))
		return help(argc - 1, argv + 1);
	return run_command(name, argc - 1, argv + 1);
}
