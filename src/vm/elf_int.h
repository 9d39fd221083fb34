/* SPDX-License-Identifier: MIT */
/*
 * The ELF loader's own. The order of its parts:
 *
 *	elf.c       headers, sections, symbols; the order itself
 *	elf_load.c  what is code and data, where it is laid, functions, licence
 *	btf.c       types: maps
 *	btf_line.c  source lines
 *	elf_reloc.c addresses, maps and call targets in instructions and data
 *
 * Nothing in a file is believed: libelf finds the sections in a private copy,
 * everything else is looked at here before it is used. What costs time or
 * memory is bounded by the file's size or by the limits below, never by a
 * product of two of the file's numbers.
 */
#ifndef TT_VM_ELF_INT_H
#define TT_VM_ELF_INT_H

#include "vm/object.h"

#include <libelf.h>

enum {
	TT_ELF_MAX_BYTES = 64 << 20,
	TT_ELF_MAX_SECTIONS = 4096,
	TT_ELF_MAX_SYMBOLS = 1 << 18,
	TT_ELF_MAX_ALIGN = 4096,
	TT_ELF_MAX_NAME = 255,
};

enum tt_elf_kind {
	TT_ELF_OTHER, /* not loaded */
	TT_ELF_CODE,
	TT_ELF_DATA,
	TT_ELF_RODATA,
	TT_ELF_MAPS,
};

struct tt_elf_section {
	const char *name;     /* plain text, at most TT_ELF_MAX_NAME bytes */
	const uint8_t *bytes; /* size of them; NULL: NOBITS */
	uint64_t size;	      /* loaded ones: below TUTTI_VM_WINDOW_BYTES */
	uint64_t flags, align, entsize;
	uint32_t type, link, info;
	enum tt_elf_kind kind;
	uint32_t base;	   /* CODE: first instruction; DATA, RODATA: offset in the window */
	bool has_lines;	   /* CODE: its line info was seen */
	bool has_reltable; /* the compiler's own tables of distances lie here */
};

struct tt_btf {
	const uint8_t *types;
	const char *strings; /* the last byte is NUL */
	uint32_t types_bytes, strings_bytes;
	uint32_t *type_off; /* n_types: where type I + 1 starts */
	uint32_t n_types;
};

struct tt_elf {
	Elf *elf;
	uint8_t *copy;
	size_t bytes;
	struct tt_elf_section *sections;
	uint32_t n_sections, name_section, symbol_section;
	const uint8_t *symbols; /* n_symbols; not aligned */
	uint32_t n_symbols;
	const struct tt_elf_section *symbol_names;
	int32_t *extern_of;   /* n_symbols: index of the extern, or -1; made when needed */
	uint64_t relocs_left; /* bytes: sections of relocations may overlap, but not for ever */
	uint32_t maps_section;
	uint64_t map_off[TT_MAX_MAPS]; /* of the object's maps, in their section */
	struct tt_btf btf;
	struct tutti_vm_object *object;
	struct tutti_vm_error *error;
};

/* Writes the error; insn -1: none. Value: -ENOEXEC. */
#define tt_elf_fail(elf, insn, ...)                                                                \
	tt_vm_fail((elf)->error, -ENOEXEC, (elf)->object, insn, -1, __VA_ARGS__)
/* Value: -ENOMEM. */
int tt_elf_no_memory(struct tt_elf *elf);

/* The text at an offset of a section of strings, which was checked to end with NUL. */
int tt_elf_text(struct tt_elf *elf, const struct tt_elf_section *strings, uint32_t off,
		const char **ret_text);
/* Index below n_symbols. */
Elf64_Sym tt_elf_symbol(const struct tt_elf *elf, uint32_t index);
int tt_elf_symbol_name(struct tt_elf *elf, const Elf64_Sym *symbol, const char **ret_name);
/* The section where the symbol is defined, or NULL: undefined, common, absolute, out of range. */
struct tt_elf_section *tt_elf_symbol_section(const struct tt_elf *elf, const Elf64_Sym *symbol);
/* The first section of this name, or NULL. */
const struct tt_elf_section *tt_elf_find(const struct tt_elf *elf, const char *name);

int tt_elf_load(struct tt_elf *elf);
int tt_elf_relocate(struct tt_elf *elf);

/* Both allow that there is no .BTF. */
int tt_btf_open(struct tt_elf *elf);
int tt_btf_maps(struct tt_elf *elf);
int tt_btf_lines(struct tt_elf *elf);
/* NULL: out of range. */
const char *tt_btf_text(const struct tt_btf *btf, uint32_t off);

#endif
