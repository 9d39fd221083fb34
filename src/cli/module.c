/* SPDX-License-Identifier: MIT */
/* Modules: objects as a compiler made them, looked at and verified. */
#include "module_int.h"

#include "cli_int.h"
#include "device/instance.h"
#include "vm/isa.h"
#include "vm/object.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int tt_module_usage(void)
{
	puts("usage: tutti module build [-o FILE.o] [-D NAME[=VALUE]] [-I DIR] [--json] FILE.c\n"
	     "       tutti module verify [--json] FILE.o\n"
	     "       tutti module disasm [--json] FILE.o\n"
	     "       tutti module run [--engine interp|jit] [--maps] [--json] FILE.o TRACE\n\n"
	     "build: compiles a module with clang, verifies it and says what it has.\n"
	     "verify: says whether devices would run it; an object without sections mdo/...\n"
	     "gets a piece of memory and no functions. disasm: prints its functions, with\n"
	     "the lines of its source where the object has them. run: packets of a trace\n"
	     "through a switch with the module in it; prints what became of each.\n\n"
	     "  -o, --output FILE.o   where the object goes (default: beside the source)\n"
	     "  -D, -I                for clang\n"
	     "  --engine E            interp, or jit: compiled (default: where that works)\n"
	     "  --maps                what the maps hold at the end, too\n"
	     "  --json                one JSON object\n\n"
	     "Exit status: 0 done, or accepted; 1 not an object, or refused; 2 misuse.");
	return TT_EXIT_OK;
}

/* --- objects ------------------------------------------------------------------------------ */

static bool is_for_devices(const struct tutti_vm_object *object)
{
	for (uint32_t i = 0; i < object->n_funcs; i++)
		if (!strncmp(object->funcs[i].section, "mdo/", 4))
			return true;
	return false;
}

/* Maps are the devices' affair, of which the machine knows nothing. */
static int check_maps(const struct tutti_vm_object *object, struct tutti_vm_error *error)
{
	for (uint32_t i = 0; i < object->n_maps; i++) {
		const struct tutti_vm_map *map = &object->maps[i];
		int64_t bytes = tt_map_bytes(map);

		if (bytes >= 0)
			continue;
		*error = (struct tutti_vm_error){.insn = -1, .reg = -1};
		snprintf(error->text, sizeof(error->text), "map %s: %s", map->name,
			 bytes == -E2BIG ? "too large for a device (fewer, or smaller, entries)"
					 : "devices have no such map (MDO_ARRAY, by a __u32, or "
					   "MDO_HASH, neither of nothing)");
		return (int)bytes;
	}
	return 0;
}

int tt_module_program(const struct tutti_vm_object *object, unsigned flags,
		      struct tutti_vm_program **ret_program, struct tutti_vm_error *ret_error)
{
	bool devices = is_for_devices(object);
	int err = devices ? check_maps(object, ret_error) : 0;

	if (err)
		return err;
	return tutti_vm_program_create(object, devices ? tt_module_env() : &tt_vm_plain_env, flags,
				       ret_program, ret_error);
}

int tt_module_open(const char *path, struct tutti_vm_object **ret_object)
{
	struct tutti_vm_error error;
	size_t bytes;
	char *elf;
	int err = tt_vm_read_file(path, &elf, &bytes);

	if (err) {
		tt_cli_fail(path, strerror(-err), tt_vm_read_hint(err));
		return err;
	}
	err = tutti_vm_object_open(elf, bytes, ret_object, &error);
	free(elf);
	if (err)
		tt_cli_fail(path, error.text, NULL);
	return err;
}

void tt_module_write_maps(struct tt_json *j, const struct tutti_vm_object *object)
{
	tt_json_open(j, "maps", '[');
	for (uint32_t i = 0; i < object->n_maps; i++) {
		const struct tutti_vm_map *map = &object->maps[i];

		tt_json_open(j, NULL, '{');
		tt_json_str(j, "name", map->name);
		tt_json_uint(j, "type", map->type);
		tt_json_uint(j, "key_bytes", map->key_bytes);
		tt_json_uint(j, "value_bytes", map->value_bytes);
		tt_json_uint(j, "max_entries", map->max_entries);
		tt_json_uint(j, "flags", map->flags);
		tt_json_close(j, '}');
	}
	tt_json_close(j, ']');
}

/* --- disasm ---------------------------------------------------------------------------- */

/* The instruction as text, and after it the name of what only its number refers to. */
static uint32_t describe(const struct tutti_vm_object *object, uint32_t i, char *ret_text,
			 size_t bytes)
{
	const struct tutti_vm_insn *insn = &object->insns[i];
	int slots = tutti_vm_disassemble(object->insns, object->n_insns, i, ret_text, bytes);
	const char *kind = NULL, *name = NULL;
	int64_t target = (int64_t)i + 1 + insn->imm;
	size_t used = strlen(ret_text);

	if (slots < 0)
		return 1;
	if (insn->code == TT_LDDW && tt_vm_src(insn) == TT_WIDE_MAP &&
	    (uint32_t)insn->imm < object->n_maps) {
		kind = "map";
		name = object->maps[insn->imm].name;
	} else if (insn->code == (TT_JMP | TT_CALL) && tt_vm_src(insn) == TT_CALL_EXTERN &&
		   (uint32_t)insn->imm < object->n_externs) {
		kind = "extern";
		name = object->externs[insn->imm];
	} else if (insn->code == (TT_JMP | TT_CALL) && tt_vm_src(insn) == TT_CALL_LOCAL &&
		   target >= 0 && tt_vm_object_func(object, (uint32_t)target)) {
		kind = "local";
		name = tt_vm_object_func(object, (uint32_t)target)->name;
	}
	if (name)
		snprintf(ret_text + used, bytes - used, " ; %s %s", kind, name);
	return (uint32_t)slots;
}

static bool is_same_line(const struct tt_vm_line *a, const struct tt_vm_line *b)
{
	return a == b ||
	       (a && b && a->line == b->line && a->file && b->file && !strcmp(a->file, b->file));
}

static void print_func(const struct tutti_vm_object *object, const struct tt_vm_func *func)
{
	const struct tt_vm_line *last = NULL;
	char text[256];

	printf("%s:%s\n", func->name, func->entry ? " # entry" : "");
	for (uint32_t i = func->start; i < func->end;) {
		const struct tt_vm_line *line = tt_vm_object_line(object, i);
		uint32_t slots = describe(object, i, text, sizeof(text));

		if (line && !is_same_line(line, last))
			printf("# %s:%" PRIu32 "%s%s\n", line->file ? line->file : "line",
			       line->line, line->text ? ": " : "", line->text ? line->text : "");
		last = line;
		printf("%6" PRIu32 "  %s\n", i, text);
		i += slots;
	}
}

static void print_object(const struct tutti_vm_object *object)
{
	const char *section = "";

	for (uint32_t i = 0; i < object->n_maps; i++) {
		const struct tutti_vm_map *map = &object->maps[i];

		printf("map %" PRIu32 " %s: type %" PRIu32 ", key %" PRIu32 " bytes, value %" PRIu32
		       " bytes, %" PRIu32 " entries, flags 0x%" PRIx32 "\n",
		       i, map->name, map->type, map->key_bytes, map->value_bytes, map->max_entries,
		       map->flags);
	}
	if (object->data_bytes || object->rodata_bytes)
		printf("data %" PRIu32 " bytes, read-only %" PRIu32 " bytes\n", object->data_bytes,
		       object->rodata_bytes);
	for (uint32_t i = 0; i < object->n_funcs; i++) {
		const struct tt_vm_func *func = &object->funcs[i];

		if (strcmp(func->section, section) != 0)
			printf("\nsection %s\n", func->section);
		section = func->section;
		putchar('\n');
		print_func(object, func);
	}
}

static void write_func(struct tt_json *j, const struct tutti_vm_object *object,
		       const struct tt_vm_func *func)
{
	char text[256];

	tt_json_open(j, NULL, '{');
	tt_json_str(j, "name", func->name);
	tt_json_str(j, "section", func->section);
	tt_json_bool(j, "entry", func->entry);
	tt_json_open(j, "instructions", '[');
	for (uint32_t i = func->start; i < func->end;) {
		const struct tt_vm_line *line = tt_vm_object_line(object, i);
		uint32_t slots = describe(object, i, text, sizeof(text));

		tt_json_open(j, NULL, '{');
		tt_json_uint(j, "index", i);
		tt_json_str(j, "text", text);
		if (line && line->file)
			tt_json_str(j, "file", line->file);
		if (line)
			tt_json_uint(j, "line", line->line);
		if (line && line->text)
			tt_json_str(j, "source", line->text);
		tt_json_close(j, '}');
		i += slots;
	}
	tt_json_close(j, ']');
	tt_json_close(j, '}');
}

static void write_object(struct tt_json *j, const struct tutti_vm_object *object)
{
	tt_module_write_maps(j, object);
	tt_json_uint(j, "data_bytes", object->data_bytes);
	tt_json_uint(j, "rodata_bytes", object->rodata_bytes);
	tt_json_open(j, "functions", '[');
	for (uint32_t i = 0; i < object->n_funcs; i++)
		write_func(j, object, &object->funcs[i]);
	tt_json_close(j, ']');
}

static int disasm(const char *path, const struct tutti_vm_object *object, bool json)
{
	struct tt_json j;

	if (!json) {
		print_object(object);
		return TT_EXIT_OK;
	}
	tt_json_init(&j);
	tt_json_open(&j, NULL, '{');
	tt_json_str(&j, "file", path);
	write_object(&j, object);
	tt_json_close(&j, '}');
	return tt_vm_print_json("module disasm", &j, TT_EXIT_OK);
}

/* --- verify ---------------------------------------------------------------------------- */

static int verify(const char *path, const struct tutti_vm_object *object, bool json)
{
	struct tutti_vm_program *program = NULL;
	struct tutti_vm_error error = {.insn = -1, .reg = -1};
	int err = tt_module_program(object, 0, &program, &error);
	struct tt_json j;

	tutti_vm_program_destroy(program);
	if (!json && err)
		return tt_cli_fail(path, error.text, NULL);
	if (!json) {
		printf("%s: accepted (%" PRIu32 " functions, %" PRIu32 " instructions)\n", path,
		       object->n_funcs, object->n_insns);
		return TT_EXIT_OK;
	}
	tt_json_init(&j);
	tt_json_open(&j, NULL, '{');
	tt_json_str(&j, "file", path);
	tt_json_bool(&j, "accepted", !err);
	tt_json_uint(&j, "functions", object->n_funcs);
	tt_json_uint(&j, "instructions", object->n_insns);
	if (err)
		tt_vm_write_error(&j, &error);
	tt_json_close(&j, '}');
	return tt_vm_print_json("module verify", &j, err ? TT_EXIT_FAILED : TT_EXIT_OK);
}

/* --- words ------------------------------------------------------------------------------ */

static const struct command {
	const char *name, *full_name;
	int (*run)(const char *path, const struct tutti_vm_object *object, bool json);
} commands[] = {
	{"disasm", "module disasm", disasm},
	{"verify", "module verify", verify},
};

static int open_and_run(const struct command *command, const char *path, bool json)
{
	struct tutti_vm_object *object;
	int status;

	if (tt_module_open(path, &object))
		return TT_EXIT_FAILED;
	status = command->run(path, object, json);
	tutti_vm_object_destroy(object);
	return status;
}

static int take_options(const struct command *command, int argc, char **argv)
{
	static const struct option known[] = {
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	bool json = false;
	int opt;

	while ((opt = getopt_long(argc, argv, ":h", known, NULL)) != -1)
		switch (opt) {
		case 'j': json = true; break;
		case 'h': return tt_module_usage();
		default: return tt_cli_bad_option(command->full_name, opt, argv);
		}
	if (optind == argc)
		return tt_cli_misuse(command->full_name, "which file?", NULL);
	if (optind + 1 < argc)
		return tt_cli_misuse(command->full_name, "one at a time", argv[optind + 1]);
	return open_and_run(command, argv[optind], json);
}

int tt_cmd_module(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";

	if (!strcmp(name, "--help") || !strcmp(name, "-h"))
		return tt_module_usage();
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(name, commands[i].name))
			return take_options(&commands[i], argc - 1, argv + 1);
	if (!strcmp(name, "build"))
		return tt_module_build(argc - 1, argv + 1);
	if (!strcmp(name, "run"))
		return tt_module_run(argc - 1, argv + 1);
	return *name ? tt_cli_misuse("module", "unknown command", name)
		     : tt_cli_misuse("module", "build, verify, disasm or run?", NULL);
}
