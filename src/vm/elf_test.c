/* SPDX-License-Identifier: MIT */
/* What must be in the objects of tests/vm/elf, and why others are refused. */
#include "vm/elf_test.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const char *const cpus[] = {"v1", "v2", "v3"};

static struct tutti_vm_object *open_for(const char *name, const char *cpu)
{
	char file[64];

	snprintf(file, sizeof file, "%s_%s.o", name, cpu);
	return open_object(file);
}

static const struct tt_vm_func *func(const struct tutti_vm_object *o, const char *name)
{
	for (uint32_t i = 0; i < o->n_funcs; i++)
		if (!strcmp(o->funcs[i].name, name))
			return &o->funcs[i];
	fail_msg("no function %s", name);
	return NULL;
}

/* --- functions -------------------------------------------------------------------------- */

static void expect_func(const struct tutti_vm_object *o, const char *name, const char *section,
			bool entry)
{
	const struct tt_vm_func *f = func(o, name);

	assert_string_equal(f->section, section);
	assert_int_equal(f->entry, entry);
}

/* The names of what a function calls, in order; "5": a helper's number. */
static void expect_calls(const struct tutti_vm_object *o, const char *name, const char *calls)
{
	const struct tt_vm_func *f = func(o, name);
	char seen[256] = "";

	for (uint32_t i = f->start; i < f->end; i++) {
		const struct tutti_vm_insn *insn = &o->insns[i];
		size_t used = strlen(seen);
		uint32_t target = i + 1 + (uint32_t)insn->imm;

		if (insn->code == TT_LDDW)
			i++;
		if (insn->code != (TT_JMP | TT_CALL))
			continue;
		if (tt_vm_src(insn) == TT_CALL_HELPER)
			snprintf(seen + used, sizeof seen - used, "%d ", insn->imm);
		else if (tt_vm_src(insn) == TT_CALL_EXTERN)
			snprintf(seen + used, sizeof seen - used, "%s ", o->externs[insn->imm]);
		else {
			const struct tt_vm_func *to = tt_vm_object_func(o, target);

			assert_non_null(to);
			assert_int_equal(to->start, target);
			snprintf(seen + used, sizeof seen - used, "%s() ", to->name);
		}
	}
	assert_string_equal(seen, calls);
}

static void check_functions(const struct tutti_vm_object *o)
{
	assert_int_equal(o->n_funcs, 5);
	expect_func(o, "twice", ".text", false);
	expect_func(o, "thrice", ".text", false);
	expect_func(o, "beside", "mdo/packet", false);
	expect_func(o, "on_packet", "mdo/packet", true);
	expect_func(o, "on_timer", "mdo/timer", true);
	expect_calls(o, "twice", "");
	expect_calls(o, "thrice", "twice() ");
	expect_calls(o, "on_packet", "thrice() beside() twice() drop send ");
	/* The compiler puts on_packet inside. */
	expect_calls(o, "on_timer", "5 send beside() thrice() beside() twice() drop send ");
	assert_int_equal(o->n_externs, 2);
	assert_int_equal(o->n_maps + o->data_bytes + o->rodata_bytes, 0);
	assert_string_equal(o->license, "MIT");
}

static void functions_and_calls(void **state)
{
	for (size_t i = 0; i < COUNT(cpus); i++) {
		struct tutti_vm_object *o = open_for("functions", cpus[i]);

		check_functions(o);
		assert_true(o->n_lines > 5);
		tutti_vm_object_destroy(o);
	}
}

static void no_debug_information(void **state)
{
	struct tutti_vm_object *o = open_object("functions_plain.o");

	check_functions(o);
	assert_int_equal(o->n_lines, 0);
	tutti_vm_object_destroy(o);
}

static void functions_in_sections_of_their_own(void **state)
{
	struct tutti_vm_object *o = open_object("functions_sections.o");

	assert_int_equal(o->n_funcs, 5);
	expect_func(o, "thrice", ".text.thrice", false);
	expect_func(o, "twice", ".text.twice", false);
	expect_calls(o, "thrice", "twice() ");
	expect_calls(o, "on_packet", "thrice() beside() twice() drop send ");
	tutti_vm_object_destroy(o);
}

/* Assembler: a function without a size, and another name for it. */
static void names_without_size(void **state)
{
	struct tutti_vm_object *o = open_object("asm.o");

	assert_int_equal(o->n_funcs, 2);
	expect_func(o, "first", "mdo/packet", true);
	expect_func(o, "second", "mdo/packet", true);
	assert_int_equal(func(o, "second")->start, 2);
	expect_calls(o, "first", "second() ");
	tutti_vm_object_destroy(o);
}

/* --- lines ------------------------------------------------------------------------------ */

/* Line number of the text, trimmed, in the source. */
static void expect_line(const struct bytes source, const struct tt_vm_line *line)
{
	const char *at = (const char *)source.at;
	size_t length;

	for (uint32_t i = 1; i < line->line; i++) {
		at = strchr(at, '\n');
		assert_non_null(at);
		at++;
	}
	at += strspn(at, " \t");
	length = strcspn(at, "\n");
	assert_int_equal(strlen(line->text), length);
	assert_memory_equal(line->text, at, length);
}

static void lines_of_the_source(void **state)
{
	static const char *const names[] = {"functions", "data", "maps", "run", "small"};

	for (size_t i = 0; i < COUNT(names) * COUNT(cpus); i++) {
		const char *name = names[i / COUNT(cpus)];
		struct tutti_vm_object *o = open_for(name, cpus[i % COUNT(cpus)]);
		struct bytes source;
		char file[64];

		snprintf(file, sizeof file, "%s.c", name);
		source = read_file(sources_dir, file);
		assert_true(o->n_lines >= o->n_funcs);
		for (uint32_t j = 0; j < o->n_lines; j++) {
			assert_string_equal(o->lines[j].file, file);
			assert_true(o->lines[j].line > 0);
			expect_line(source, &o->lines[j]);
		}
		for (uint32_t j = 0; j < o->n_funcs; j++)
			assert_non_null(tt_vm_object_line(o, o->funcs[j].start));
		free(source.at);
		tutti_vm_object_destroy(o);
	}
}

static void line_of_a_call(void **state)
{
	struct tutti_vm_object *o = open_for("functions", "v3");
	const struct tt_vm_func *f = func(o, "on_timer");
	bool seen = false;

	for (uint32_t i = f->start; i < f->end; i++)
		if (o->insns[i].code == (TT_JMP | TT_CALL) &&
		    tt_vm_src(&o->insns[i]) == TT_CALL_HELPER) {
			assert_string_equal(tt_vm_object_line(o, i)->text, "u64 sum = now();");
			assert_int_equal(tt_vm_object_line(o, i)->column, 12);
			seen = true;
		}
	assert_true(seen);
	tutti_vm_object_destroy(o);
}

/* --- data ------------------------------------------------------------------------------- */

/* The address that a function returns: of its wide instruction. */
static uint64_t address(const struct tutti_vm_object *o, const char *name)
{
	const struct tt_vm_func *f = func(o, name);

	assert_int_equal(o->insns[f->start].code, TT_LDDW);
	assert_int_equal(tt_vm_src(&o->insns[f->start]), TT_WIDE_NUMBER);
	return tt_vm_wide(&o->insns[f->start]);
}

/* Bytes of the program's address space; window: where they must be. */
static const uint8_t *memory(const struct tutti_vm_object *o, uint64_t at, uint64_t bytes,
			     enum tutti_vm_window window)
{
	uint64_t off = at - tutti_vm_address(window);
	uint64_t size = window == TUTTI_VM_DATA ? o->data_bytes : o->rodata_bytes;

	assert_int_equal(at >> TUTTI_VM_WINDOW_SHIFT, window);
	assert_true(off <= size && bytes <= size - off);
	return (window == TUTTI_VM_DATA ? o->data : o->rodata) + off;
}

static uint64_t number(const struct tutti_vm_object *o, uint64_t at, size_t bytes,
		       enum tutti_vm_window window)
{
	uint64_t n = 0;

	memcpy(&n, memory(o, at, bytes, window), bytes);
	return n;
}

static void check_data(const struct tutti_vm_object *o)
{
	const enum tutti_vm_window rw = TUTTI_VM_DATA, ro = TUTTI_VM_RODATA;
	uint64_t counter = address(o, "at_counter"), wide = address(o, "at_wide");
	uint64_t ones = address(o, "at_ones"), list = address(o, "at_list");
	uint64_t names = address(o, "at_names"), places = address(o, "at_places");
	uint64_t table = address(o, "at_table");
	static const uint8_t zeroes[24];

	assert_int_equal(number(o, counter, 4, rw), 7);
	assert_int_equal(wide % 64, 0);
	assert_int_equal(number(o, wide, 4, rw), 0x00030201);
	assert_memory_equal(memory(o, address(o, "at_zeroes"), 24, rw), zeroes, 24);
	assert_int_equal(number(o, ones + 8, 4, rw), 13);
	/* Pointers from data to the same section, to another one, and behind an array. */
	assert_int_equal(number(o, list, 8, rw), list + 16);
	assert_int_equal(number(o, list + 8, 8, rw), 21);
	assert_int_equal(number(o, list + 16, 8, rw), list);
	assert_string_equal(memory(o, number(o, names, 8, ro), 6, ro), "alpha");
	assert_string_equal(memory(o, number(o, names + 8, 8, ro), 5, ro), "beta");
	assert_int_equal(number(o, places, 8, ro), counter);
	assert_int_equal(number(o, places + 8, 8, ro), ones + 8);
	assert_int_equal(number(o, places + 16, 8, ro), ones + 16);
	assert_int_equal(number(o, table + 24, 8, ro), 34);
	assert_string_equal(memory(o, address(o, "at_text"), 6, ro), "gamma");
}

static void data_and_pointers(void **state)
{
	for (size_t i = 0; i < COUNT(cpus); i++) {
		struct tutti_vm_object *o = open_for("data", cpus[i]);

		check_data(o);
		tutti_vm_object_destroy(o);
	}
}

/* -fPIC has constants with pointers in them in .data.rel.ro, which is marked writable. */
static void constants_of_position_independent_code(void **state)
{
	struct tutti_vm_object *o = open_object("data_pic.o");

	check_data(o);
	tutti_vm_object_destroy(o);
}

static void addresses_of_32_bits(void **state)
{
	struct tutti_vm_object *o = open_object("asm.o");
	uint64_t at;

	assert_int_equal(o->data_bytes, 16);
	memcpy(&at, o->data + 8, 4);
	at &= 0xffffffff;
	assert_int_equal(at, tutti_vm_address(TUTTI_VM_DATA) + 4);
	tutti_vm_object_destroy(o);
}

/* --- maps ------------------------------------------------------------------------------- */

static void expect_map(const struct tutti_vm_object *o, const char *name,
		       const struct tutti_vm_map *want)
{
	char user[64];
	const struct tt_vm_func *f;
	const struct tutti_vm_insn *wide = NULL;
	const struct tutti_vm_map *map;

	snprintf(user, sizeof user, "use_%s", name);
	f = func(o, user);
	for (uint32_t i = f->start; i < f->end; i++)
		if (o->insns[i].code == TT_LDDW)
			wide = &o->insns[i];
	assert_non_null(wide);
	assert_int_equal(tt_vm_src(wide), TT_WIDE_MAP);
	assert_int_equal(wide[1].imm, 0);
	map = &o->maps[wide->imm];
	assert_string_equal(map->name, name);
	assert_int_equal(map->type, want->type);
	assert_int_equal(map->key_bytes, want->key_bytes);
	assert_int_equal(map->value_bytes, want->value_bytes);
	assert_int_equal(map->max_entries, want->max_entries);
	assert_int_equal(map->flags, want->flags);
}

static void maps(void **state)
{
	for (size_t i = 0; i < COUNT(cpus); i++) {
		struct tutti_vm_object *o = open_for("maps", cpus[i]);
		const struct tutti_vm_map *all;

		assert_int_equal(tutti_vm_object_maps(o, &all), 4);
		assert_ptr_equal(all, o->maps);
		expect_map(o, "places", &(struct tutti_vm_map){"", 1, 4, 16, 16, 0});
		expect_map(o, "hidden", &(struct tutti_vm_map){"", 2, 4, 24, 1000, 5});
		expect_map(o, "bigs", &(struct tutti_vm_map){"", 3, 32, 64, 1, 0});
		expect_map(o, "counters", &(struct tutti_vm_map){"", 4, 0, 800, 0, 0});
		assert_int_equal(o->data_bytes, 0);
		tutti_vm_object_destroy(o);
	}
}

/* --- what is refused -------------------------------------------------------------------- */

static const struct {
	const char *name, *text;
} refused[] = {
	{"CORE",
	 "refused.c:12: instruction 0: a CO-RE relocation: here are no kernel structures to "
	 "fit to; compile without preserve_access_index and __builtin_preserve_*"},
	{"UNDEFINED", "refused.c:20: instruction 0: \"elsewhere\" is not defined: define it in the "
		      "module; only functions that are called may come from outside"},
	{"UNDEFINED_IN_DATA",
	 "section \".data\": \"elsewhere\" is not defined: define it in the module; only functions "
	 "that are called may come from outside"},
	{"COMMON",
	 "refused.c:37: instruction 0: variable \"anywhere\" has no place yet: compile with "
	 "-fno-common"},
	{"FUNCTION_ADDRESS", "refused.c:48: instruction 2: the address of function \"g\" is taken; "
			     "there are no calls by address: call it by its name"},
	{"FUNCTION_TABLE",
	 "section \".data\": the address of function \"g\" is taken; there are no "
	 "calls by address: call it by its name"},
	{"OLD_MAPS", "section \"maps\": maps in the old form; define them in SEC(\".maps\") with "
		     "__uint and __type"},
	{"LICENSE_READ", "refused.c:78: instruction 0: \"module_license\" lies in section "
			 "\"license\", which is not loaded: move it to plain data"},
	{"LICENSE_LONG", "section \"license\": wanted is one text of at most 31 characters"},
	{"NO_CODE", "no code: write a function in a section that the machine's user calls"},
	{"CONSTRUCTOR", "section \".init_array\" is of type 14, which is not taken: leave out "
			"constructors and the like"},
	{"ALIGNED", "section \".data\": aligned to 8192; take a power of two of at most 4096"},
	{"LARGE", "section \".bss\" is too large: a program has less than 268435456 bytes"},
	{"LARGE_TOGETHER", "section \".bss\": too much writable data; a program has less than "
			   "268435456 bytes"},
	{"LONG_CODE", "section \"mdo/packet\": too much code; a module has at most 65536 "
		      "instructions"},
	{"RELATIVE", "section \".rodata\": a table of relative addresses: compile without -fPIC"},
	{"NO_FUNCTION",
	 "section \"mdo/bare\" does not start with a function: in assembler, mark it "
	 "with .type NAME,@function"},
	{"GAP",
	 "section \"mdo/gap\": function \"f\" has 1 instructions, but the next one starts, or "
	 "the section ends, after 2: all code must be in functions that do not overlap"},
	{"INTO_FUNCTION",
	 "instruction 2: broken file: the call of \"f\" does not lead to the start "
	 "of a function"},
	{"KERNEL_CALL", "instruction 0: a map or a function by a number that the file holds: the "
			"object was linked for a kernel; compile it anew"},
	{"KERNEL_MAP", "instruction 0: a map or a function by a number that the file holds: the "
		       "object was linked for a kernel; compile it anew"},
	{"ADDRESS_OUTSIDE", "section \".data\": an address outside of section \".data\", by way of "
			    "\"array\": look for an index that is out of range"},
	{"MAP_IN_DATA", "section \".data\": the address of map \"map\" in data: use maps in "
			"functions, as arguments of helpers"},
	{"MAP_PLAIN", "section \".maps\": its maps have no types: compile with -g"},
	{"MAP_PINNED", "map \"map\": member \"pinning\" is not taken; these are: type, key, value, "
		       "key_size, value_size, max_entries, map_flags"},
	{"MAP_VALUES",
	 "map \"map\": member \"values\" is in the wrong form: write it with __uint or "
	 "__type"},
	{"MAP_UNTYPED", "map \"map\" has no type: write __uint(type, NUMBER)"},
	{"MAP_NUMBER", "map \"map\": member \"max_entries\" is in the wrong form: write "
		       "__uint(max_entries, NUMBER)"},
	{"MAP_TWICE", "map \"map\": \"value_size\" says 8, another member 4: leave one out"},
	{"MAP_INCOMPLETE", "map \"map\": the type of its value has no size, or too large a one: "
			   "complete it, or say value_size"},
	{"MAP_LARGE",
	 "map \"map\": the type of its value has no size, or too large a one: complete "
	 "it, or say value_size"},
	{"MAP_SCALAR", "map \"map\" is in the wrong form: define it as a struct of __uint and "
		       "__type"},
	{"MAP_NAME", "map \"a_name_with_many_characters_a_name_with_...\": a name of more than 63 "
		     "characters"},
	{"MAP_MANY", "257 maps, of at most 256"},
	{"MAP_DEEP", "map \"map\": the type of its value has no size, or too large a one: complete "
		     "it, or say value_size"},
	{"MAP_DIMENSIONS", "map \"map\": the type of its value has no size, or too large a one: "
			   "complete it, or say value_size"},
};

static void refusals(void **state)
{
	for (size_t i = 0; i < COUNT(refused); i++) {
		char file[64];
		struct bytes b;

		snprintf(file, sizeof file, "refused_%s.o", refused[i].name);
		b = read_file(objects_dir, file);
		expect_refused(refused[i].name, b, refused[i].text);
		free(b.at);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(functions_and_calls),
		cmocka_unit_test(no_debug_information),
		cmocka_unit_test(functions_in_sections_of_their_own),
		cmocka_unit_test(names_without_size),
		cmocka_unit_test(lines_of_the_source),
		cmocka_unit_test(line_of_a_call),
		cmocka_unit_test(data_and_pointers),
		cmocka_unit_test(constants_of_position_independent_code),
		cmocka_unit_test(addresses_of_32_bits),
		cmocka_unit_test(maps),
		cmocka_unit_test(refusals),
	};

	set_folders(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
