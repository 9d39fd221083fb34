/* SPDX-License-Identifier: MIT */
#include "vm_int.h"

#include "cli_int.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct options {
	enum tt_vm_engine engine;
	const char *mem;
	long budget;
	bool json;
};

static int usage(void)
{
	puts("usage: tutti vm run [--engine interp|jit] [--mem HEX] [--budget N] [--json] FILE\n"
	     "       tutti vm conformance [--engine interp|jit] [--json] DIR\n\n"
	     "run: assembles and verifies the program of FILE (text, or a case of the BPF\n"
	     "conformance data), runs it and prints r0. It gets r1 = address of its memory,\n"
	     "r2 = its length. conformance: runs every case *.data below DIR; those below a\n"
	     "folder 'negative', and those with a section error, must be refused.\n\n"
	     "  --engine E   interp, or jit: compiled (default: compiled where that works)\n"
	     "  --mem HEX    the program's memory, instead of the file's\n"
	     "  --budget N   instructions before it is stopped (default: 1000000000)\n"
	     "  --json       one JSON object\n\n"
	     "Exit status: 0 it ran, or all cases passed; 1 not; 2 misuse.");
	return TT_EXIT_OK;
}

/* --- run ------------------------------------------------------------------------------- */

static int print_outcome(const char *path, const struct tt_vm_outcome *outcome, bool json)
{
	int status = outcome->end == TT_VM_DONE ? TT_EXIT_OK : TT_EXIT_FAILED;
	struct tt_json j;
	char r0[20];

	snprintf(r0, sizeof(r0), "0x%" PRIx64, outcome->result.r0);
	if (!json && outcome->end != TT_VM_DONE)
		return tt_cli_fail(path, outcome->error.text, NULL);
	if (!json) {
		puts(r0);
		return status;
	}
	tt_json_init(&j);
	tt_json_open(&j, NULL, '{');
	tt_json_str(&j, "file", path);
	if (outcome->end == TT_VM_DONE || outcome->end == TT_VM_FAULT)
		tt_json_str(&j, "engine", outcome->compiled ? "jit" : "interp");
	if (outcome->end == TT_VM_DONE)
		tt_json_str(&j, "r0", r0);
	else
		tt_vm_write_error(&j, &outcome->error);
	if (outcome->end == TT_VM_FAULT)
		tt_json_str(&j, "fault", tutti_vm_fault_name(outcome->result.fault));
	if (outcome->end == TT_VM_DONE || outcome->end == TT_VM_FAULT)
		tt_json_uint(&j, "budget_left", outcome->result.budget_left);
	tt_json_close(&j, '}');
	return tt_vm_print_json("vm run", &j, status);
}

static int take_mem(const char *hex, struct tt_vm_data *data)
{
	void *mem;
	size_t bytes;

	if (tt_vm_parse_hex(hex, strlen(hex), &mem, &bytes))
		return tt_cli_bad_value("vm run", "mem", hex,
					"pairs of hexadecimal digits, such as 00ff");
	free(data->mem);
	data->mem = mem;
	data->mem_bytes = bytes;
	return TT_EXIT_OK;
}

static int run(const char *path, const struct options *options)
{
	struct tt_vm_outcome outcome = {.end = TT_VM_REFUSED};
	struct tt_vm_data data = {.text = NULL};
	struct tutti_vm_object *object = NULL;
	size_t bytes = 0;
	char *text = NULL;
	int err = tt_vm_read_file(path, &text, &bytes), status = TT_EXIT_OK;

	if (err)
		return tt_cli_fail(path, strerror(-err), tt_vm_read_hint(err));
	if (bytes >= 4 && memcmp(text, "\177ELF", 4) == 0) {
		free(text);
		return tt_cli_fail(path, "an ELF object, not a text for the assembler",
				   "tutti module verify, tutti module disasm");
	}
	err = tt_vm_data_parse(text, bytes, &data, &outcome.error);
	free(text);
	if (!err && options->mem)
		status = take_mem(options->mem, &data);
	if (!err && !status)
		err = tt_vm_data_object(&data, &object, &outcome.error);
	if (!err && !status)
		tt_vm_try(object, data.mem, data.mem_bytes, options->engine,
			  (uint64_t)options->budget, &outcome);
	if (!status)
		status = print_outcome(path, &outcome, options->json);
	tutti_vm_object_destroy(object);
	tt_vm_data_fini(&data);
	return status;
}

static int conformance(const char *path, const struct options *options)
{
	return tt_vm_conformance(path, options->engine, options->json);
}

/* --- words ------------------------------------------------------------------------------ */

#define COMMON_OPTIONS                                                                             \
	{"engine", required_argument, NULL, 'e'}, {"json", no_argument, NULL, 'j'},                \
	{                                                                                          \
		"help", no_argument, NULL, 'h'                                                     \
	}

static const struct option run_options[] = {
	{"mem", required_argument, NULL, 'm'},
	{"budget", required_argument, NULL, 'b'},
	COMMON_OPTIONS,
	{NULL, 0, NULL, 0},
};
static const struct option conformance_options[] = {COMMON_OPTIONS, {NULL, 0, NULL, 0}};

static const struct command {
	const char *name, *full_name;
	const struct option *options;
	int (*run)(const char *path, const struct options *options);
	const char *no_path;
} commands[] = {
	{"run", "vm run", run_options, run, "which file?"},
	{"conformance", "vm conformance", conformance_options, conformance, "which folder?"},
};

static int take_options(const struct command *command, int argc, char **argv)
{
	struct options options = {.engine = TT_VM_BEST, .budget = TT_VM_DEFAULT_BUDGET};
	const char *name = command->full_name;
	int opt;

	while ((opt = getopt_long(argc, argv, ":h", command->options, NULL)) != -1)
		switch (opt) {
		case 'e':
			if (!tt_arg_engine(optarg, &options.engine))
				return tt_cli_bad_value(name, "engine", optarg,
							TT_VM_ENGINE_ALLOWED);
			break;
		case 'm': options.mem = optarg; break;
		case 'b':
			if (!tt_arg_number(optarg, 0, INT64_MAX, &options.budget))
				return tt_cli_bad_value(name, "budget", optarg,
							"a number of instructions");
			break;
		case 'j': options.json = true; break;
		case 'h': return usage();
		default: return tt_cli_bad_option(name, opt, argv);
		}
	if (optind == argc)
		return tt_cli_misuse(name, command->no_path, NULL);
	if (optind + 1 < argc)
		return tt_cli_misuse(name, "one at a time", argv[optind + 1]);
	return command->run(argv[optind], &options);
}

int tt_cmd_vm(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";

	if (!strcmp(name, "--help") || !strcmp(name, "-h"))
		return usage();
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(name, commands[i].name))
			return take_options(&commands[i], argc - 1, argv + 1);
	return *name ? tt_cli_misuse("vm", "unknown command", name)
		     : tt_cli_misuse("vm", "run or conformance?", NULL);
}
