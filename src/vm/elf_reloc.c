/* SPDX-License-Identifier: MIT */
/*
 * Relocations: what the compiler left open until the addresses are known.
 *
 *	R_BPF_64_64     wide instruction: a variable's address, or a map
 *	R_BPF_64_32     call: a function of this object, or a helper by name
 *	R_BPF_64_ABS64  data: a variable's address
 *	R_BPF_64_ABS32, R_BPF_64_NODYLD32
 *	                the same in 32 bits, which is enough for our addresses
 *
 * The addend lies in the place itself (SHT_REL). Those of sections that are
 * not loaded, as .BTF, concern nobody here.
 */
#include "vm/elf_int.h"

#include "vm/isa.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* <elf.h> has only some of them. */
enum {
	RELOC_NONE = 0,
	RELOC_64_64 = 1,
	RELOC_ABS64 = 2,
	RELOC_ABS32 = 3,
	RELOC_NODYLD32 = 4,
	RELOC_64_32 = 10,
};

struct place {
	struct tt_elf_section *section; /* loaded */
	uint64_t off;			/* inside it */
	int32_t insn;			/* CODE: index; else -1 */
	uint32_t symbol_idx;
	Elf64_Sym symbol;
	const char *name; /* the symbol's */
	char where
		[64]; /* for messages: data, "section ".data": "; of code the instruction says it */
};

#define fail_at(elf, p, format, ...)                                                               \
	tt_elf_fail(elf, (p)->insn, "%s" format, (p)->where, __VA_ARGS__)

static int compare_start(const void *key, const void *func)
{
	uint32_t start = *(const uint32_t *)key;
	const struct tt_vm_func *f = func;

	return start < f->start ? -1 : start > f->start;
}

/* The function that starts at an offset of a section of code, or NULL. */
static const struct tt_vm_func *find_func(const struct tt_elf *elf, const struct tt_elf_section *s,
					  uint64_t off)
{
	uint32_t start = s->base + (uint32_t)(off / sizeof(struct tutti_vm_insn));

	if (off >= s->size || off % sizeof(struct tutti_vm_insn))
		return NULL;
	return bsearch(&start, elf->object->funcs, elf->object->n_funcs, sizeof *elf->object->funcs,
		       compare_start);
}

/* A variable's address in the program. */
static int resolve_data(struct tt_elf *elf, const struct place *p, uint64_t addend,
			uint64_t *ret_address)
{
	const struct tt_elf_section *s = tt_elf_symbol_section(elf, &p->symbol);
	uint64_t off = p->symbol.st_value + addend; /* may wrap: checked against the size */
	const struct tt_vm_func *func = s && s->kind == TT_ELF_CODE ? find_func(elf, s, off) : NULL;

	if (!s && p->symbol.st_shndx == SHN_UNDEF)
		return fail_at(elf, p,
			       "\"%.40s\" is not defined: define it in the "
			       "module; only functions that are called may come from outside",
			       p->name);
	if (!s && p->symbol.st_shndx == SHN_COMMON)
		return fail_at(elf, p,
			       "variable \"%.40s\" has no place yet: compile with "
			       "-fno-common",
			       p->name);
	if (!s)
		return fail_at(elf, p,
			       "symbol \"%.40s\" lies in no section: define it as "
			       "a variable",
			       p->name);
	if (s->kind == TT_ELF_CODE)
		return fail_at(elf, p,
			       "the address of function \"%.40s\" is taken; there are no calls by "
			       "address: call it by its name",
			       func ? func->name : p->name);
	if (s->kind == TT_ELF_MAPS)
		return fail_at(elf, p,
			       "the address of map \"%.40s\" in data: use maps "
			       "in functions, as arguments of helpers",
			       p->name);
	if (s->kind == TT_ELF_OTHER)
		return fail_at(elf, p,
			       "\"%.40s\" lies in section \"%.40s\", which is not "
			       "loaded: move it to plain data",
			       p->name, s->name);
	if (off > s->size)
		return fail_at(elf, p,
			       "an address outside of section \"%.40s\", by way of "
			       "\"%.40s\": look for an index that is out of range",
			       s->name, p->name);
	*ret_address = tutti_vm_address(s->kind == TT_ELF_DATA ? TUTTI_VM_DATA : TUTTI_VM_RODATA) +
		       s->base + off;
	return 0;
}

/* --- instructions ---------------------------------------------------------------------- */

static int relocate_map(struct tt_elf *elf, const struct place *p, uint64_t off)
{
	struct tutti_vm_insn *insn = &elf->object->insns[p->insn];

	for (uint32_t i = 0; i < elf->object->n_maps; i++) {
		if (elf->map_off[i] != off)
			continue;
		insn[0].regs = (uint8_t)(tt_vm_dst(insn) | TT_WIDE_MAP << 4);
		insn[0].imm = (int32_t)i;
		insn[1].imm = 0;
		return 0;
	}
	return tt_elf_fail(elf, p->insn,
			   "\"%.40s\" with offset %llu is no map of section \".maps\": "
			   "a map has no members that a module could read",
			   p->name, (unsigned long long)off);
}

static int relocate_wide(struct tt_elf *elf, const struct place *p)
{
	struct tutti_vm_insn *insn = &elf->object->insns[p->insn];
	const struct tt_elf_section *s = tt_elf_symbol_section(elf, &p->symbol);
	uint64_t address;
	int err;

	if (insn->code != TT_LDDW || tt_vm_src(insn) != TT_WIDE_NUMBER ||
	    p->section->size - p->off < 2 * sizeof *insn)
		return fail_at(elf, p,
			       "broken file: no wide instruction for the address of \"%.40s\"",
			       p->name);
	if (s && s->kind == TT_ELF_MAPS)
		return relocate_map(elf, p, p->symbol.st_value + tt_vm_wide(insn));
	err = resolve_data(elf, p, tt_vm_wide(insn), &address);
	if (err)
		return err;
	insn[0].imm = (int32_t)address;
	insn[1].imm = (int32_t)(address >> 32);
	return 0;
}

/* The index of the symbol among the externs, made when it is the first call. */
static int extern_index(struct tt_elf *elf, const struct place *p, int32_t *ret_index)
{
	struct tutti_vm_object *object = elf->object;

	if (!elf->extern_of) {
		elf->extern_of = malloc(elf->n_symbols * sizeof *elf->extern_of);
		if (!elf->extern_of)
			return tt_elf_no_memory(elf);
		memset(elf->extern_of, 0xff, elf->n_symbols * sizeof *elf->extern_of);
	}
	if (elf->extern_of[p->symbol_idx] < 0) {
		/* There are no more of them than calls. */
		if (!object->externs)
			object->externs = calloc(object->n_insns, sizeof *object->externs);
		if (!object->externs)
			return tt_elf_no_memory(elf);
		object->externs[object->n_externs] = strdup(p->name);
		if (!object->externs[object->n_externs])
			return tt_elf_no_memory(elf);
		elf->extern_of[p->symbol_idx] = (int32_t)object->n_externs++;
	}
	*ret_index = elf->extern_of[p->symbol_idx];
	return 0;
}

static int relocate_call(struct tt_elf *elf, const struct place *p)
{
	struct tutti_vm_insn *insn = &elf->object->insns[p->insn];
	const struct tt_elf_section *s = tt_elf_symbol_section(elf, &p->symbol);
	uint64_t off = p->symbol.st_value + ((uint64_t)(int64_t)insn->imm + 1) * sizeof *insn;
	const struct tt_vm_func *func = s && s->kind == TT_ELF_CODE ? find_func(elf, s, off) : NULL;

	if (insn->code != (TT_JMP | TT_CALL) || tt_vm_src(insn) != TT_CALL_LOCAL)
		return fail_at(elf, p, "broken file: \"%.40s\" is called where no call is",
			       p->name);
	if (p->symbol.st_shndx == SHN_UNDEF) {
		if (!*p->name)
			return fail_at(elf, p, "broken file: a call of %s", "nothing");
		insn->regs = (uint8_t)(tt_vm_dst(insn) | TT_CALL_EXTERN << 4);
		return extern_index(elf, p, &insn->imm);
	}
	if (!func)
		return fail_at(elf, p,
			       "broken file: the call of \"%.40s\" does not lead to the start of a "
			       "function",
			       p->name);
	insn->imm = (int32_t)func->start - (p->insn + 1);
	return 0;
}

static int unknown_type(struct tt_elf *elf, const struct place *p, uint32_t type)
{
	return fail_at(
		elf, p,
		"relocation of unknown type %u, for \"%.40s\": compile with clang 14 or alike, "
		"-target bpf",
		type, p->name);
}

static int relocate_code(struct tt_elf *elf, const struct place *p, uint32_t type)
{
	switch (type) {
	case RELOC_64_64: return relocate_wide(elf, p);
	case RELOC_64_32: return relocate_call(elf, p);
	default: return unknown_type(elf, p, type);
	}
}

/* --- data ------------------------------------------------------------------------------ */

static int relocate_data(struct tt_elf *elf, const struct place *p, uint32_t type)
{
	const struct tt_elf_section *s = p->section;
	uint8_t *window = s->kind == TT_ELF_DATA ? elf->object->data : elf->object->rodata;
	uint64_t address = 0;
	size_t bytes = type == RELOC_ABS64 ? sizeof(uint64_t) : sizeof(uint32_t);
	int err;

	if (type != RELOC_ABS64 && type != RELOC_ABS32 && type != RELOC_NODYLD32)
		return unknown_type(elf, p, type);
	if (type != RELOC_ABS64 && s->has_reltable)
		return fail_at(elf, p, "a table of relative addresses: compile without %s",
			       "-fPIC");
	if (!s->bytes || s->size - p->off < bytes)
		return fail_at(elf, p, "broken file: the place for \"%.40s\" is not there",
			       p->name);
	/* Little-endian, as the host: the lower half of the number comes first. */
	memcpy(&address, window + s->base + p->off, bytes);
	if (type != RELOC_ABS64)
		address = (uint64_t)(int64_t)(int32_t)address;
	err = resolve_data(elf, p, address, &address);
	if (err)
		return err;
	memcpy(window + s->base + p->off, &address, bytes);
	return 0;
}

/* --- all of them ------------------------------------------------------------------------ */

static int relocate_one(struct tt_elf *elf, struct tt_elf_section *target, const Elf64_Rel *rel)
{
	struct place p = {.section = target,
			  .off = rel->r_offset,
			  .insn = -1,
			  .symbol_idx = (uint32_t)ELF64_R_SYM(rel->r_info)};
	uint32_t type = (uint32_t)ELF64_R_TYPE(rel->r_info);
	int err;

	if (type == RELOC_NONE)
		return 0;
	if (p.off >= target->size || p.symbol_idx >= elf->n_symbols)
		return tt_elf_fail(elf, -1,
				   "broken file: section \"%.40s\": a relocation outside of "
				   "it, or without a symbol",
				   target->name);
	p.symbol = tt_elf_symbol(elf, p.symbol_idx);
	err = tt_elf_symbol_name(elf, &p.symbol, &p.name);
	if (err)
		return err;
	if (target->kind != TT_ELF_CODE) {
		snprintf(p.where, sizeof p.where, "section \"%.40s\": ", target->name);
		return relocate_data(elf, &p, type);
	}
	if (p.off % sizeof(struct tutti_vm_insn))
		return tt_elf_fail(elf, -1,
				   "broken file: section \"%.40s\": a relocation inside of "
				   "an instruction",
				   target->name);
	p.insn = (int32_t)(target->base + p.off / sizeof(struct tutti_vm_insn));
	return relocate_code(elf, &p, type);
}

static int relocate_section(struct tt_elf *elf, const struct tt_elf_section *s)
{
	struct tt_elf_section *target = &elf->sections[s->info];

	if (s->type != SHT_REL || s->flags & SHF_COMPRESSED || s->entsize != sizeof(Elf64_Rel) ||
	    s->size % sizeof(Elf64_Rel) || s->link != elf->symbol_section)
		return tt_elf_fail(elf, -1,
				   "relocations of section \"%.40s\" in an unknown form: "
				   "compile with clang 14 or alike",
				   target->name);
	if (s->size > elf->relocs_left)
		return tt_elf_fail(elf, -1, "broken file: more relocations than fit into it");
	elf->relocs_left -= s->size;
	for (uint64_t at = 0; at < s->size; at += sizeof(Elf64_Rel)) {
		Elf64_Rel rel;
		int err;

		memcpy(&rel, s->bytes + at, sizeof rel);
		err = relocate_one(elf, target, &rel);
		if (err)
			return err;
	}
	return 0;
}

/* What only relocation may write: else a number in the file would be taken for an index. */
static int check_raw(struct tt_elf *elf)
{
	for (uint32_t i = 0; i < elf->object->n_insns; i++) {
		const struct tutti_vm_insn *insn = &elf->object->insns[i];

		if ((insn->code == TT_LDDW && tt_vm_src(insn) == TT_WIDE_MAP) ||
		    (insn->code == (TT_JMP | TT_CALL) && tt_vm_src(insn) == TT_CALL_EXTERN))
			return tt_elf_fail(
				elf, (int32_t)i,
				"a map or a function by a number that the "
				"file holds: the object was linked for a kernel; compile "
				"it anew");
	}
	return 0;
}

int tt_elf_relocate(struct tt_elf *elf)
{
	int err = check_raw(elf);

	elf->relocs_left = elf->bytes;
	for (uint32_t i = 1; !err && i < elf->n_sections; i++) {
		const struct tt_elf_section *s = &elf->sections[i];

		if (s->type != SHT_REL && s->type != SHT_RELA)
			continue;
		if (s->info >= elf->n_sections)
			return tt_elf_fail(elf, -1,
					   "broken file: relocations of a section that is "
					   "not there");
		if (elf->sections[s->info].kind != TT_ELF_OTHER &&
		    elf->sections[s->info].kind != TT_ELF_MAPS)
			err = relocate_section(elf, s);
	}
	return err;
}
