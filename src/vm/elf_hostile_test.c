/* SPDX-License-Identifier: MIT */
/*
 * Broken objects: each number that the loader looks at is set to something
 * that it must not believe; then an object is cut at every length, and every
 * byte of it changed. Refused, or the promises of object.h hold.
 */
#include "vm/elf_test.h"

#include <elf.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* --- places in an object ----------------------------------------------------------------- */

static Elf64_Shdr *section(const struct bytes b, const char *name)
{
	Elf64_Ehdr *eh = (void *)b.at;
	Elf64_Shdr *sh = (void *)(b.at + eh->e_shoff);

	for (unsigned i = 1; i < eh->e_shnum; i++)
		if (!strcmp((char *)b.at + sh[eh->e_shstrndx].sh_offset + sh[i].sh_name, name))
			return &sh[i];
	fail_msg("no section %s", name);
	return NULL;
}

static Elf64_Sym *symbol(const struct bytes b, const char *name)
{
	const Elf64_Shdr *table = section(b, ".symtab");
	const char *names = (const char *)b.at + section(b, ".strtab")->sh_offset;
	Elf64_Sym *sym = (void *)(b.at + table->sh_offset);

	for (size_t i = 0; i < table->sh_size / sizeof *sym; i++)
		if (!strcmp(names + sym[i].st_name, name))
			return &sym[i];
	fail_msg("no symbol %s", name);
	return NULL;
}

/* A text, with the NUL before and behind it, in a section. */
static uint8_t *text(const struct bytes b, const char *section_name, const char *name)
{
	const Elf64_Shdr *s = section(b, section_name);
	size_t n = strlen(name) + 1;

	for (size_t i = 1; i + n <= s->sh_size; i++)
		if (!b.at[s->sh_offset + i - 1] && !memcmp(b.at + s->sh_offset + i, name, n))
			return b.at + s->sh_offset + i;
	fail_msg("no %s in %s", name, section_name);
	return NULL;
}

/* Numbers of the headers of .BTF and .BTF.ext, from the section's start. */
static uint32_t header_number(const struct bytes b, const char *name, size_t off)
{
	uint32_t n;

	memcpy(&n, b.at + section(b, name)->sh_offset + off, sizeof n);
	return n;
}

/* What starts with this name in the types of .BTF: a type or a member. */
static uint8_t *type(const struct bytes b, const char *name)
{
	uint8_t *btf = b.at + section(b, ".BTF")->sh_offset;
	uint8_t *types = btf + header_number(b, ".BTF", 4) + header_number(b, ".BTF", 8);
	uint8_t *strings = btf + header_number(b, ".BTF", 4) + header_number(b, ".BTF", 16);
	uint32_t want = (uint32_t)(text(b, ".BTF", name) - strings);

	for (uint32_t i = 0; i < header_number(b, ".BTF", 12); i += 4)
		if (!memcmp(types + i, &want, sizeof want))
			return types + i;
	fail_msg("no type %s", name);
	return NULL;
}

enum where {
	HEADER,
	SECTION, /* its header */
	BODY,
	SYMBOL,
	TEXT_ELF, /* of the names of sections and symbols */
	TEXT_BTF,
	TYPE,
	LINES, /* of .BTF.ext */
};

static uint8_t *find(const struct bytes b, enum where where, const char *name)
{
	switch (where) {
	case HEADER: return b.at;
	case SECTION: return (uint8_t *)section(b, name);
	case BODY: return b.at + section(b, name)->sh_offset;
	case SYMBOL: return (uint8_t *)symbol(b, name);
	case TEXT_ELF: return text(b, ".strtab", name);
	case TEXT_BTF: return text(b, ".BTF", name);
	case TYPE: return type(b, name);
	case LINES:
		return b.at + section(b, ".BTF.ext")->sh_offset + header_number(b, ".BTF.ext", 4) +
		       header_number(b, ".BTF.ext", 16);
	}
	return NULL;
}

/* --- one number --------------------------------------------------------------------------- */

#define EH(member) offsetof(Elf64_Ehdr, member), sizeof(((Elf64_Ehdr *)0)->member)
#define SH(member) offsetof(Elf64_Shdr, member), sizeof(((Elf64_Shdr *)0)->member)
#define SYM(member) offsetof(Elf64_Sym, member), sizeof(((Elf64_Sym *)0)->member)
#define REL_TYPE 8, 4
#define REL_SYM 12, 4

static const struct {
	enum where where;
	const char *name;
	size_t off, bytes;
	uint64_t value;
	const char *text;
} numbers[] = {
	{HEADER, "", 0, 1, 0, "no ELF object: compile it with clang -target bpf -c"},
	{HEADER, "", EI_CLASS, 1, ELFCLASS32,
	 "an ELF object, but not of 64 bits: compile it with clang -target bpf -c"},
	{HEADER, "", EI_DATA, 1, ELFDATA2MSB,
	 "an ELF object, but big-endian: compile it with clang -target bpfel -c"},
	{HEADER, "", EH(e_machine), EM_X86_64,
	 "an ELF object for another machine (number 62, BPF is 247): compile it with clang -target "
	 "bpf -c"},
	{HEADER, "", EH(e_type), ET_EXEC,
	 "an ELF file, but no relocatable object: compile it with clang -target bpf -c"},
	{HEADER, "", EH(e_version), 2, "broken file: the ELF header makes no sense"},
	{HEADER, "", EH(e_phnum), 1, "broken file: the ELF header makes no sense"},
	{HEADER, "", EH(e_shnum), 0,
	 "0 sections, of 1 to 4096: compile without -ffunction-sections, or split the module"},
	{HEADER, "", EH(e_shnum), 4097,
	 "4097 sections, of 1 to 4096: compile without -ffunction-sections, or split the module"},
	{HEADER, "", EH(e_shnum), 4096,
	 "truncated or broken: the table of 4096 sections lies outside the # bytes"},
	{HEADER, "", EH(e_shentsize), 63,
	 "truncated or broken: the table of # sections lies outside the # bytes"},
	{HEADER, "", EH(e_shoff), ~0ull - 7,
	 "truncated or broken: the table of # sections lies outside the # bytes"},
	{HEADER, "", EH(e_shoff), 65,
	 "truncated or broken: the table of # sections lies outside the # bytes"},
	{HEADER, "", EH(e_shstrndx), 9999, "broken file: no section has the sections' names"},
	{HEADER, "", EH(e_shstrndx), 0, "broken file: the sections' names do not end"},

	{SECTION, "mdo/packet", SH(sh_offset), 1ull << 40,
	 "truncated or broken: section # lies outside the # bytes"},
	{SECTION, "mdo/packet", SH(sh_size), ~0ull - 7,
	 "truncated or broken: section # lies outside the # bytes"},
	{SECTION, "mdo/packet", SH(sh_name), 0xffffff,
	 "broken file: a name at offset 16777215 of # bytes of names"},
	{SECTION, ".strtab", SH(sh_type), SHT_PROGBITS,
	 "broken file: the sections' names do not end"},
	{SECTION, ".strtab", SH(sh_size), 0, "broken file: the sections' names do not end"},
	{SECTION, ".strtab", SH(sh_flags), SHF_COMPRESSED,
	 "broken file: the sections' names do not end"},
	{TEXT_ELF, ".maps", 0, 1, 27,
	 "a name is longer than 255 bytes or has control characters in it: give it a plain one"},
	{SECTION, ".symtab", SH(sh_type), SHT_PROGBITS,
	 "no table of symbols: do not strip the object"},
	{SECTION, ".symtab", SH(sh_entsize), 8, "broken file: the table of symbols makes no sense"},
	{SECTION, ".symtab", SH(sh_link), 9999, "broken file: the table of symbols makes no sense"},
	{SECTION, ".symtab", SH(sh_link), 2, "broken file: the table of symbols makes no sense"},

	{SECTION, ".text", SH(sh_flags), SHF_ALLOC | SHF_EXECINSTR | SHF_TLS,
	 "section \".text\": thread-local data; a module has one thread, use plain static variables"},
	{SECTION, ".text", SH(sh_flags), SHF_ALLOC | SHF_EXECINSTR | SHF_COMPRESSED,
	 "section \".text\" is compressed: compile without -gz"},
	{SECTION, ".text", SH(sh_size), 12,
	 "broken file: section \".text\" is code, but no row of instructions"},
	{SECTION, ".text", SH(sh_type), SHT_NOBITS,
	 "broken file: section \".text\" is code, but no row of instructions"},
	{SECTION, ".text", SH(sh_size), 8,
	 "broken file: function \"add\" does not lie in section \".text\""},
	{SECTION, ".data", SH(sh_addralign), 3,
	 "section \".data\": aligned to 3; take a power of two of at most 4096"},
	{BODY, "license", 3, 1, 'x',
	 "section \"license\": wanted is one text of at most 31 characters"},

	{SYMBOL, "on_packet", SYM(st_info), STT_TLS,
	 "thread-local data; a module has one thread, use plain static variables"},
	{SYMBOL, "on_packet", SYM(st_name), 0xffffff,
	 "broken file: a name at offset 16777215 of # bytes of names"},
	{SYMBOL, "on_packet", SYM(st_name), 0,
	 "broken file: function \"\" does not lie in section \"mdo/packet\""},
	{SYMBOL, "on_packet", SYM(st_value), 4,
	 "broken file: function \"on_packet\" does not lie in section \"mdo/packet\""},
	{SYMBOL, "on_packet", SYM(st_size), ~0ull - 7,
	 "broken file: function \"on_packet\" does not lie in section \"mdo/packet\""},
	{SYMBOL, "on_packet", SYM(st_info), STT_NOTYPE,
	 "section \"mdo/packet\" does not start with a function: in assembler, mark it with .type "
	 "NAME,@function"},
	{SYMBOL, "send", SYM(st_name), 0,
	 "small.c:#: instruction #: broken file: a call of nothing"},
	{SYMBOL, "send", SYM(st_shndx), SHN_ABS,
	 "small.c:#: instruction #: broken file: the call of \"send\" does not lead to the start of a "
	 "function"},

	{SECTION, ".BTF", SH(sh_size), 10, "section \".BTF\" is truncated or compressed"},
	{SECTION, ".BTF", SH(sh_flags), SHF_COMPRESSED,
	 "section \".BTF\" is truncated or compressed"},
	{BODY, ".BTF", 0, 2, 0x9feb,
	 "section \".BTF\" is of an unknown form: compile with clang 14 or alike, -target bpf"},
	{BODY, ".BTF", 4, 4, 8,
	 "section \".BTF\" is of an unknown form: compile with clang 14 or alike, -target bpf"},
	{BODY, ".BTF", 8, 4, 0xfffffff0, "section \".BTF\" is truncated or broken"},
	{BODY, ".BTF", 20, 4, 0xfffffff0, "section \".BTF\" is truncated or broken"},
	{BODY, ".BTF", 20, 4, 0, "section \".BTF\" is truncated or broken"},
	{BODY, ".BTF", 20, 4, 2, "section \".BTF\" is broken: its names do not end"},
	{BODY, ".BTF", 12, 4, 8, "section \".BTF\" is broken: its types end within one"},
	{BODY, ".BTF", 28, 4, 0x0d00ffff, "section \".BTF\" is broken: its types end within one"},
	{BODY, ".BTF", 28, 4, 0x1f000000,
	 "section \".BTF\": type 1 is of unknown kind 31: compile with clang 14 or alike"},
	{BODY, ".BTF", 28, 4, 0,
	 "section \".BTF\": type 1 is of unknown kind 0: compile with clang 14 or alike"},
	{TYPE, ".maps", 0, 4, 0, "section \".maps\": its maps have no types: compile with -g"},
	{TYPE, ".maps", 12, 4, 0, "section \".BTF\" is broken: a map that is no variable"},
	{TYPE, ".maps", 12, 4, 1, "section \".BTF\" is broken: a map that is no variable"},
	{TYPE, "map", 0, 4, 0, "section \".BTF\" is broken: a map that is no variable"},
	{TYPE, "map", 0, 4, 0xffffff, "section \".BTF\" is broken: a map that is no variable"},
	{TYPE, "map", 8, 4, 0xffffff,
	 "map \"map\" is in the wrong form: define it as a struct of __uint and __type"},
	{TEXT_BTF, "map", 0, 1, 27, "section \".BTF\" is broken: a map's name is none"},
	{TEXT_BTF, "map", 0, 1, 'n', "map \"nap\" has no symbol: do not strip the object"},
	{SYMBOL, "map", SYM(st_name), 0xffffff,
	 "broken file: a name at offset 16777215 of # bytes of names"},
	{TYPE, "max_entries", 0, 4, 0xffffff,
	 "section \".BTF\" is broken: a member without a name"},
	{TYPE, "max_entries", 4, 4, 0,
	 "map \"map\": member \"max_entries\" is in the wrong form: write it with __uint or __type"},

	{SECTION, ".BTF.ext", SH(sh_size), 20, "section \".BTF.ext\" is truncated or compressed"},
	{BODY, ".BTF.ext", 0, 2, 0x9feb,
	 "section \".BTF.ext\" is of an unknown form: compile with clang 14 or alike, -target bpf"},
	{BODY, ".BTF.ext", 16, 4, 0xffffffff, "section \".BTF.ext\" is truncated or broken"},
	{BODY, ".BTF.ext", 20, 4, 0xffffffff, "section \".BTF.ext\" is truncated or broken"},
	{BODY, ".BTF.ext", 20, 4, 3, "section \".BTF.ext\" is truncated or broken"},
	{BODY, ".BTF.ext", 20, 4, 5, "section \".BTF.ext\" is truncated or broken"},
	{BODY, ".BTF.ext", 28, 4, 0xffffffff, "section \".BTF.ext\" is truncated or broken"},
	{BODY, ".BTF.ext", 24, 8, 1ull << 32,
	 "a CO-RE relocation: here are no kernel structures to fit to; compile without "
	 "preserve_access_index and __builtin_preserve_*"},
	/* The functions' part, for once taken for this: the same but for the instruction. */
	{BODY, ".BTF.ext", 24, 8, 16ull << 32,
	 "small.c:#: instruction #: a CO-RE relocation: here are no kernel structures to fit to; "
	 "compile without preserve_access_index and __builtin_preserve_*"},
	{LINES, "", 0, 4, 8, "section \".BTF.ext\" is truncated or broken"},
	{LINES, "", 4, 4, 0xffffffff, "section \".BTF.ext\" is truncated or broken"},
	{LINES, "", 8, 4, 0xffffffff, "section \".BTF.ext\" is truncated or broken"},
	{LINES, "", 12, 4, 4,
	 "section \".BTF.ext\" is broken: a line of section \"mdo/packet\" makes no sense"},
	{LINES, "", 12, 4, 0xfffffff8,
	 "section \".BTF.ext\" is broken: a line of section \"mdo/packet\" makes no sense"},
	{LINES, "", 16, 4, 0xffffff,
	 "section \".BTF.ext\" is broken: a line of section \"mdo/packet\" makes no sense"},
	{LINES, "", 20, 4, 0xffffff,
	 "section \".BTF.ext\" is broken: a line of section \"mdo/packet\" makes no sense"},

	{SECTION, ".rel.text", SH(sh_info), 9999,
	 "broken file: relocations of a section that is not there"},
	{SECTION, ".rel.text", SH(sh_type), SHT_RELA,
	 "relocations of section \".text\" in an unknown form: compile with clang 14 or alike"},
	{SECTION, ".rel.text", SH(sh_link), 1,
	 "relocations of section \".text\" in an unknown form: compile with clang 14 or alike"},
	{SECTION, ".rel.text", SH(sh_size), 17,
	 "relocations of section \".text\" in an unknown form: compile with clang 14 or alike"},
	{BODY, ".rel.text", 0, 8, 4,
	 "broken file: section \".text\": a relocation inside of an instruction"},
	{BODY, ".rel.text", 0, 8, 1ull << 63,
	 "broken file: section \".text\": a relocation outside of it, or without a symbol"},
	{BODY, ".rel.text", REL_SYM, 0xffffffff,
	 "broken file: section \".text\": a relocation outside of it, or without a symbol"},
	{BODY, ".rel.text", REL_TYPE, 77,
	 "small.c:#: instruction 0: relocation of unknown type 77, for \".bss\": compile with clang 14 "
	 "or alike, -target bpf"},
	{BODY, ".rel.text", REL_TYPE, 10,
	 "small.c:#: instruction 0: broken file: \".bss\" is called where no call is"},
	{BODY, ".relmdo/packet", REL_TYPE, 1,
	 "small.c:#: instruction #: broken file: no wide instruction for the address of \".text\""},
	{BODY, ".rel.rodata", REL_TYPE, 77,
	 "section \".rodata\": relocation of unknown type 77, for \".data\": compile with clang 14 or "
	 "alike, -target bpf"},
	{BODY, ".rel.rodata", 0, 8, 12,
	 "section \".rodata\": broken file: the place for \".data\" is not there"},
};

static void every_number_is_looked_at(void **state)
{
	for (size_t i = 0; i < COUNT(numbers); i++) {
		struct bytes b = read_file(objects_dir, "small_v3.o");
		char what[128];

		memcpy(find(b, numbers[i].where, numbers[i].name) + numbers[i].off,
		       &numbers[i].value, numbers[i].bytes);
		snprintf(what, sizeof what, "case %zu, %s+%zu", i, numbers[i].name, numbers[i].off);
		expect_refused(what, b, numbers[i].text);
		free(b.at);
	}
}

/* --- larger changes ----------------------------------------------------------------------- */

static void two_tables_of_symbols(void **state)
{
	struct bytes b = read_file(objects_dir, "small_v3.o");
	Elf64_Shdr *other = section(b, ".debug_info");

	other->sh_type = SHT_SYMTAB;
	expect_refused("two tables", b, "broken file: two tables of symbols");
	free(b.at);
}

static void two_sections_of_maps(void **state)
{
	struct bytes b = read_file(objects_dir, "small_v3.o");

	section(b, ".bss")->sh_name = section(b, ".maps")->sh_name;
	expect_refused("two .maps", b, "broken file: two sections \".maps\"");
	free(b.at);
}

static void two_maps_of_one_name(void **state)
{
	struct bytes b = read_file(objects_dir, "maps_v3.o");

	memcpy(type(b, "hidden"), type(b, "places"), 4);
	expect_refused("two maps", b, "two maps with the name \"places\"");
	free(b.at);
}

static void a_map_of_another_section(void **state)
{
	struct bytes b = read_file(objects_dir, "small_v3.o");

	/* The static variable is in .bss; what is there is no offset in .maps. */
	symbol(b, "map")->st_shndx = SHN_COMMON;
	expect_refused("map", b, "map \"map\" has no symbol: do not strip the object");
	free(b.at);
}

static void behind_the_start_of_a_map(void **state)
{
	struct bytes b = read_file(objects_dir, "small_v3.o");
	struct tutti_vm_insn *insn = (void *)(b.at + section(b, "mdo/packet")->sh_offset);

	while (insn->code != TT_LDDW)
		insn++;
	insn->imm = 8;
	expect_refused("map", b,
		       "small.c:#: instruction #: \"map\" with offset 8 is no map of section "
		       "\".maps\": a map has no members that a module could read");
	free(b.at);
}

static void a_variable_without_a_section(void **state)
{
	struct bytes b = read_file(objects_dir, "data_v3.o");

	symbol(b, "counter")->st_shndx = SHN_ABS;
	expect_refused("counter", b,
		       "data.c:#: instruction 0: symbol \"counter\" lies in no section: "
		       "define it as a variable");
	free(b.at);
}

static void two_names_at_one_place(void **state)
{
	struct bytes b = read_file(objects_dir, "functions_v3.o");

	symbol(b, "on_packet")->st_value = symbol(b, "beside")->st_value;
	symbol(b, "on_packet")->st_size = symbol(b, "beside")->st_size;
	expect_refused(
		"on_packet", b,
		"section \"mdo/packet\": function \"on_packet\" has 3 instructions, but the "
		"next one starts, or the section ends, after #: all code must be in functions "
		"that do not overlap");
	free(b.at);
}

/* Zeroes behind an object, and where they start. */
static struct bytes longer(const char *name, size_t zeroes, size_t *ret_start)
{
	struct bytes b = read_file(objects_dir, name);

	*ret_start = (b.n + 7) & ~(size_t)7;
	b.at = realloc(b.at, *ret_start + zeroes);
	memset(b.at + b.n, 0, *ret_start + zeroes - b.n);
	b.n = *ret_start + zeroes;
	return b;
}

static void too_large(void **state)
{
	size_t start;
	struct bytes b = longer("small_v3.o", 64 << 20, &start);

	expect_refused("64 MiB", b,
		       "too large: # bytes, of at most 67108864; leave out debug "
		       "information (-g) or data");
	free(b.at);
}

static void too_many_symbols(void **state)
{
	size_t start;
	struct bytes b = longer("small_v3.o", sizeof(Elf64_Sym) * 262145, &start);

	section(b, ".symtab")->sh_offset = start;
	section(b, ".symtab")->sh_size = sizeof(Elf64_Sym) * 262145;
	expect_refused("symbols", b, "262145 symbols, of at most 262144: split the module");
	free(b.at);
}

/* Sections may lie over each other, but their relocations do not go on for ever. */
static void relocations_over_each_other(void **state)
{
	size_t start;
	struct bytes b = longer("small_v3.o", 1 << 20, &start);
	struct tutti_vm_object *object;

	section(b, ".rel.text")->sh_offset = start;
	section(b, ".rel.text")->sh_size = 1 << 20;
	assert_int_equal(tutti_vm_object_open(b.at, b.n, &object, NULL), 0);
	assert_null(tt_vm_broken_object(object));
	tutti_vm_object_destroy(object);
	section(b, ".relmdo/packet")->sh_offset = start;
	section(b, ".relmdo/packet")->sh_size = 1 << 20;
	expect_refused("relocations", b, "broken file: more relocations than fit into it");
	free(b.at);
}

/* Names that reach to the end of the file must not be read to it, time after time. */
static void names_without_end(void **state)
{
	const uint32_t n = 200000;
	size_t start;
	struct bytes b = longer("small_v3.o", (8 << 20) + n * sizeof(Elf64_Sym), &start);
	Elf64_Sym *symbols = (void *)(b.at + start);
	Elf64_Shdr *names = section(b, ".strtab"), *table = section(b, ".symtab");
	uint8_t *text = b.at + start + n * sizeof(Elf64_Sym);

	memset(text, 'a', (8 << 20) - 1);
	memcpy(text, b.at + names->sh_offset, names->sh_size - 1);
	names->sh_offset = (uint64_t)(text - b.at);
	names->sh_size = 8 << 20;
	memcpy(symbols, b.at + table->sh_offset, table->sh_size);
	for (size_t i = table->sh_size / sizeof *symbols; i < n; i++)
		symbols[i] = (Elf64_Sym){.st_name = 100000,
					 .st_shndx = 1,
					 .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT)};
	table->sh_offset = start;
	table->sh_size = n * sizeof *symbols;
	expect_refused("long name", b,
		       "a name is longer than 255 bytes or has control characters in "
		       "it: give it a plain one");
	free(b.at);
}

static void licence_is_plain(void **state)
{
	struct bytes b = read_file(objects_dir, "small_v3.o");
	struct tutti_vm_object *object;

	b.at[section(b, "license")->sh_offset] = 27;
	assert_int_equal(tutti_vm_object_open(b.at, b.n, &object, NULL), 0);
	assert_string_equal(object->license, "?IT");
	tutti_vm_object_destroy(object);
	free(b.at);
}

static void source_text_is_plain(void **state)
{
	struct bytes b = read_file(objects_dir, "small_v3.o");
	struct tutti_vm_object *object;

	memcpy(text(b, ".BTF", "\tzero += x;"),
	       "\t \x1b"
	       "er\x7f +\t ",
	       10);
	assert_int_equal(tutti_vm_object_open(b.at, b.n, &object, NULL), 0);
	assert_string_equal(object->lines[0].text, "er  +  ;");
	tutti_vm_object_destroy(object);
	free(b.at);
}

/* Two lines of one instruction: the last counts. */
static void lines_of_one_instruction(void **state)
{
	struct bytes b = read_file(objects_dir, "small_v3.o");
	struct tutti_vm_object *good, *object;
	uint8_t *lines = find(b, LINES, ""); /* of on_packet first */
	uint32_t i = 0;

	assert_int_equal(tutti_vm_object_open(b.at, b.n, &good, NULL), 0);
	memcpy(lines + 12 + 16, lines + 12, 4);
	assert_int_equal(tutti_vm_object_open(b.at, b.n, &object, NULL), 0);
	assert_int_equal(object->n_lines, good->n_lines - 1);
	while (good->lines[i].insn < good->funcs[1].start)
		i++;
	assert_int_equal(object->lines[i].insn, good->lines[i].insn);
	assert_int_not_equal(good->lines[i].column, good->lines[i + 1].column);
	assert_int_equal(object->lines[i].column, good->lines[i + 1].column);
	tutti_vm_object_destroy(object);
	tutti_vm_object_destroy(good);
	free(b.at);
}

/* --- everything --------------------------------------------------------------------------- */

/* Returns whether it was accepted. */
static bool try(const uint8_t *bytes, size_t n, size_t where)
{
	struct tutti_vm_object *object;
	struct tutti_vm_error error;
	int err = tutti_vm_object_open(bytes, n, &object, &error);

	if (err) {
		assert_int_equal(err, -ENOEXEC);
		assert_int_not_equal(strlen(error.text), 0);
		return false;
	}
	if (tt_vm_broken_object(object))
		fail_msg("changed at %zu: %s", where, tt_vm_broken_object(object));
	tutti_vm_object_destroy(object);
	return true;
}

static void cut_at_every_length(void **state)
{
	struct bytes b = read_file(objects_dir, "small_v3.o");

	for (size_t n = 0; n < b.n; n++) {
		/* Of its own size, so that the sanitizer sees a read behind it. */
		uint8_t *copy = malloc(n + !n);

		memcpy(copy, b.at, n);
		assert_false(try(copy, n, n));
		free(copy);
	}
	assert_true(try(b.at, b.n, 0));
	free(b.at);
}

static void change_every_byte(void **state)
{
	static const uint8_t change[] = {0xff, 0x01, 0x80, 0x10};
	struct bytes b = read_file(objects_dir, "small_v3.o");
	size_t accepted = 0;

	for (size_t i = 0; i < b.n * COUNT(change); i++) {
		b.at[i / COUNT(change)] ^= change[i % COUNT(change)];
		accepted += try(b.at, b.n, i / COUNT(change));
		b.at[i / COUNT(change)] ^= change[i % COUNT(change)];
	}
	/* Debug information and instructions may be anything. */
	assert_true(accepted > b.n && accepted < b.n * COUNT(change) - 1000);
	free(b.at);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_number_is_looked_at),
		cmocka_unit_test(two_tables_of_symbols),
		cmocka_unit_test(two_sections_of_maps),
		cmocka_unit_test(two_maps_of_one_name),
		cmocka_unit_test(a_map_of_another_section),
		cmocka_unit_test(behind_the_start_of_a_map),
		cmocka_unit_test(a_variable_without_a_section),
		cmocka_unit_test(two_names_at_one_place),
		cmocka_unit_test(too_large),
		cmocka_unit_test(too_many_symbols),
		cmocka_unit_test(relocations_over_each_other),
		cmocka_unit_test(names_without_end),
		cmocka_unit_test(licence_is_plain),
		cmocka_unit_test(source_text_is_plain),
		cmocka_unit_test(lines_of_one_instruction),
		cmocka_unit_test(cut_at_every_length),
		cmocka_unit_test(change_every_byte),
	};

	set_folders(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
