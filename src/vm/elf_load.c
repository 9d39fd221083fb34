/* SPDX-License-Identifier: MIT */
/*
 * What is loaded: code, section after section, as the object's instructions;
 * writable and read-only data, each in a window of its own, aligned as the
 * file says. Sections that take no memory (debug information) stay outside.
 */
#include "vm/elf_int.h"

#include <stdlib.h>
#include <string.h>

static bool is_named(const struct tt_elf_section *s, const char *name, char follows)
{
	size_t length = strlen(name);

	return !strncmp(s->name, name, length) && (!s->name[length] || s->name[length] == follows);
}

/* --- kinds ----------------------------------------------------------------------------- */

static int check_loaded(struct tt_elf *elf, const struct tt_elf_section *s)
{
	if (is_named(s, "maps", '/'))
		return tt_elf_fail(elf, -1,
				   "section \"%.40s\": maps in the old form; define them in "
				   "SEC(\".maps\") with __uint and __type",
				   s->name);
	if (s->flags & SHF_TLS)
		return tt_elf_fail(elf, -1,
				   "section \"%.40s\": thread-local data; a module has one "
				   "thread, use plain static variables",
				   s->name);
	if (s->flags & SHF_COMPRESSED)
		return tt_elf_fail(elf, -1, "section \"%.40s\" is compressed: compile without -gz",
				   s->name);
	if (s->type != SHT_PROGBITS && s->type != SHT_NOBITS)
		return tt_elf_fail(elf, -1,
				   "section \"%.40s\" is of type %u, which is not taken: "
				   "leave out constructors and the like",
				   s->name, s->type);
	if (s->align > TT_ELF_MAX_ALIGN || s->align & (s->align - 1))
		return tt_elf_fail(elf, -1,
				   "section \"%.40s\": aligned to %llu; take a power of "
				   "two of at most %d",
				   s->name, (unsigned long long)s->align, TT_ELF_MAX_ALIGN);
	if (s->size >= TUTTI_VM_WINDOW_BYTES)
		return tt_elf_fail(elf, -1,
				   "section \"%.40s\" is too large: a program has less than "
				   "%d bytes",
				   s->name, TUTTI_VM_WINDOW_BYTES);
	return 0;
}

static int set_license(struct tt_elf *elf, const struct tt_elf_section *s)
{
	char *license = elf->object->license;

	if (!s->bytes || s->size > sizeof elf->object->license || s->bytes[s->size - 1])
		return tt_elf_fail(elf, -1,
				   "section \"license\": wanted is one text of at most %zu "
				   "characters",
				   sizeof elf->object->license - 1);
	for (uint64_t i = 0; i < s->size; i++)
		license[i] = (char)(s->bytes[i] < 0x20 && s->bytes[i] ? '?' : s->bytes[i]);
	return 0;
}

static int set_kind(struct tt_elf *elf, struct tt_elf_section *s)
{
	int err;

	if (!(s->flags & SHF_ALLOC))
		return 0;
	err = check_loaded(elf, s);
	if (err)
		return err;
	if (s->flags & SHF_EXECINSTR) {
		if (s->size % sizeof(struct tutti_vm_insn) || (s->size && !s->bytes))
			return tt_elf_fail(elf, -1,
					   "broken file: section \"%.40s\" is code, but no "
					   "row of instructions",
					   s->name);
		s->kind = TT_ELF_CODE;
	} else if (!strcmp(s->name, ".maps")) {
		if (elf->maps_section)
			return tt_elf_fail(elf, -1, "broken file: two sections \".maps\"");
		elf->maps_section = (uint32_t)(s - elf->sections);
		s->kind = TT_ELF_MAPS;
	} else if (!strcmp(s->name, "license")) {
		return set_license(elf, s);
	} else {
		/* .data.rel.ro is written by relocation alone. */
		s->kind = s->flags & SHF_WRITE && !is_named(s, ".data.rel.ro", '.') ? TT_ELF_DATA
										    : TT_ELF_RODATA;
	}
	return 0;
}

/* --- functions ------------------------------------------------------------------------- */

/* A symbol that is a function's. */
struct found {
	uint32_t start; /* first instruction */
	uint32_t insns; /* as the symbol says; 0: until the next */
	uint32_t symbol;
	bool global;
};

static int compare_found(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	if (x->global != y->global)
		return x->global ? -1 : 1;
	return x->symbol < y->symbol ? -1 : x->symbol > y->symbol;
}

static bool is_reltable(const char *name)
{
	return !strncmp(name, "reltable.", strlen("reltable."));
}

/* Returns how many functions there are, or a negative errno. */
static int find_functions(struct tt_elf *elf, struct found *ret_found)
{
	int n = 0;

	for (uint32_t i = 1; i < elf->n_symbols; i++) {
		Elf64_Sym symbol = tt_elf_symbol(elf, i);
		struct tt_elf_section *s = tt_elf_symbol_section(elf, &symbol);
		const char *name;
		int err;

		if (ELF64_ST_TYPE(symbol.st_info) == STT_TLS)
			return tt_elf_fail(elf, -1,
					   "thread-local data; a module has one thread, "
					   "use plain static variables");
		if (!s || (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC &&
			   ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT))
			continue;
		err = tt_elf_symbol_name(elf, &symbol, &name);
		if (err)
			return err;
		if (ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT)
			s->has_reltable |= is_reltable(name);
		if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || s->kind != TT_ELF_CODE)
			continue;
		if (!*name || symbol.st_value >= s->size ||
		    symbol.st_value % sizeof(struct tutti_vm_insn) ||
		    symbol.st_size > s->size - symbol.st_value ||
		    symbol.st_size % sizeof(struct tutti_vm_insn))
			return tt_elf_fail(elf, -1,
					   "broken file: function \"%.40s\" does not lie in "
					   "section \"%.40s\"",
					   name, s->name);
		ret_found[n++] = (struct found){
			.start = s->base +
				 (uint32_t)(symbol.st_value / sizeof(struct tutti_vm_insn)),
			.insns = (uint32_t)(symbol.st_size / sizeof(struct tutti_vm_insn)),
			.symbol = i,
			.global = ELF64_ST_BIND(symbol.st_info) != STB_LOCAL};
	}
	return n;
}

/* From a start to the next one, or to the section's end; the symbol must agree. */
static int set_function(struct tt_elf *elf, const struct found *found, uint32_t end,
			struct tt_vm_func *func)
{
	Elf64_Sym symbol = tt_elf_symbol(elf, found->symbol);
	const struct tt_elf_section *s = tt_elf_symbol_section(elf, &symbol);
	const char *name;
	int err = tt_elf_symbol_name(elf, &symbol, &name);

	if (err)
		return err;
	if (found->insns && found->start + found->insns != end)
		return tt_elf_fail(
			elf, -1,
			"section \"%.40s\": function \"%.40s\" has %u "
			"instructions, but the next one starts, or the section ends, after "
			"%u: all code must be in functions that do not overlap",
			s->name, name, found->insns, end - found->start);
	*func = (struct tt_vm_func){.name = strdup(name),
				    .section = strdup(s->name),
				    .start = found->start,
				    .end = end,
				    .entry = found->global && !is_named(s, ".text", '.')};
	return func->name && func->section ? 0 : tt_elf_no_memory(elf);
}

static int set_functions(struct tt_elf *elf, const struct found *found, uint32_t n)
{
	uint32_t at = 0;

	for (uint32_t i = 1; i < elf->n_sections; i++) {
		const struct tt_elf_section *s = &elf->sections[i];
		uint32_t end = s->base + (uint32_t)(s->size / sizeof(struct tutti_vm_insn));

		if (s->kind != TT_ELF_CODE || !s->size)
			continue;
		if (at == n || found[at].start != s->base)
			return tt_elf_fail(
				elf, -1,
				"section \"%.40s\" does not start with a "
				"function: in assembler, mark it with .type NAME,@function",
				s->name);
		while (at < n && found[at].start < end) {
			uint32_t next = at + 1;
			int err;

			/* Other names for the same function. */
			while (next < n && found[next].start == found[at].start)
				next++;
			err = set_function(elf, &found[at],
					   next < n && found[next].start < end ? found[next].start
									       : end,
					   &elf->object->funcs[elf->object->n_funcs]);
			elf->object->n_funcs++;
			if (err)
				return err;
			at = next;
		}
	}
	return 0;
}

static int load_functions(struct tt_elf *elf)
{
	struct found *found = malloc((elf->n_symbols + 1) * sizeof *found);
	int n, err;

	if (!found)
		return tt_elf_no_memory(elf);
	n = find_functions(elf, found);
	err = n < 0 ? n : 0;
	if (n > 0) {
		qsort(found, (size_t)n, sizeof *found, compare_found);
		elf->object->funcs = calloc((size_t)n, sizeof *elf->object->funcs);
		if (!elf->object->funcs)
			err = tt_elf_no_memory(elf);
	}
	if (!err)
		err = set_functions(elf, found, (uint32_t)n);
	free(found);
	return err;
}

/* --- layout ---------------------------------------------------------------------------- */

static int place(struct tt_elf *elf, struct tt_elf_section *s, uint32_t *end)
{
	uint64_t align = s->align ? s->align : 1;
	uint64_t start = (*end + align - 1) & ~(align - 1);

	if (start + s->size >= TUTTI_VM_WINDOW_BYTES)
		return tt_elf_fail(elf, -1,
				   "section \"%.40s\": too much %s data; a program has less "
				   "than %d bytes",
				   s->name, s->kind == TT_ELF_DATA ? "writable" : "read-only",
				   TUTTI_VM_WINDOW_BYTES);
	s->base = (uint32_t)start;
	*end = (uint32_t)(start + s->size);
	return 0;
}

static int place_all(struct tt_elf *elf)
{
	struct tutti_vm_object *object = elf->object;

	for (uint32_t i = 1; i < elf->n_sections; i++) {
		struct tt_elf_section *s = &elf->sections[i];
		int err = set_kind(elf, s);

		if (!err && s->kind == TT_ELF_DATA)
			err = place(elf, s, &object->data_bytes);
		if (!err && s->kind == TT_ELF_RODATA)
			err = place(elf, s, &object->rodata_bytes);
		if (err)
			return err;
		if (s->kind != TT_ELF_CODE)
			continue;
		if (s->size / sizeof(struct tutti_vm_insn) > TUTTI_VM_MAX_INSNS - object->n_insns)
			return tt_elf_fail(elf, -1,
					   "section \"%.40s\": too much code; a module has "
					   "at most %d instructions",
					   s->name, TUTTI_VM_MAX_INSNS);
		s->base = object->n_insns;
		object->n_insns += (uint32_t)(s->size / sizeof(struct tutti_vm_insn));
	}
	return object->n_insns ? 0
			       : tt_elf_fail(elf, -1,
					     "no code: write a function in a section "
					     "that the machine's user calls");
}

static void fill(struct tt_elf *elf)
{
	struct tutti_vm_object *object = elf->object;

	for (uint32_t i = 1; i < elf->n_sections; i++) {
		const struct tt_elf_section *s = &elf->sections[i];

		if (!s->bytes)
			continue;
		if (s->kind == TT_ELF_CODE)
			memcpy(object->insns + s->base, s->bytes, s->size);
		else if (s->kind == TT_ELF_DATA)
			memcpy(object->data + s->base, s->bytes, s->size);
		else if (s->kind == TT_ELF_RODATA)
			memcpy(object->rodata + s->base, s->bytes, s->size);
	}
}

int tt_elf_load(struct tt_elf *elf)
{
	struct tutti_vm_object *object = elf->object;
	int err = place_all(elf);

	if (err)
		return err;
	object->insns = malloc(object->n_insns * sizeof *object->insns);
	if (object->data_bytes)
		object->data = calloc(1, object->data_bytes);
	if (object->rodata_bytes)
		object->rodata = calloc(1, object->rodata_bytes);
	if (!object->insns || (object->data_bytes && !object->data) ||
	    (object->rodata_bytes && !object->rodata))
		return tt_elf_no_memory(elf);
	fill(elf);
	return load_functions(elf);
}
