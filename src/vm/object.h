/* SPDX-License-Identifier: MIT */
/*
 * What the assembler and the ELF loader make and the verifier reads: the
 * instructions of all functions side by side, with what belongs to them.
 *
 * Invariants, which the makers keep and nobody checks again:
 * - functions are in the order of their starts, none is empty, and they cover
 *   all instructions without a gap;
 * - lines are in the order of their instructions;
 * - data and rodata fit into their windows; addresses of either inside
 *   instructions and data are the program's (window << 28, plus offset);
 * - TT_CALL_EXTERN has an index below n_externs, TT_WIDE_MAP one below n_maps,
 *   when a maker wrote it. Instructions as such are whatever the file held:
 *   the verifier looks at each.
 */
#ifndef TT_VM_OBJECT_H
#define TT_VM_OBJECT_H

#include <tutti/vm.h>

/* Of an object; names are compared with all before. */
enum { TT_MAX_MAPS = 256 };

struct tt_vm_func {
	char *name;
	char *section;	/* "mdo/packet", ".text" */
	uint32_t start; /* first instruction */
	uint32_t end;	/* one past the last */
	bool entry;	/* global, in a section other than .text: the caller may call it */
};

struct tt_vm_line {
	uint32_t insn; /* the first that the line made */
	uint32_t line;
	uint32_t column;
	char *file;
	char *text; /* the source line, trimmed; NULL: unknown */
};

struct tutti_vm_object {
	struct tutti_vm_insn *insns;
	uint32_t n_insns;
	struct tt_vm_func *funcs;
	uint32_t n_funcs;
	struct tutti_vm_map *maps;
	uint32_t n_maps;
	char **externs; /* names of helpers that the object asks for by name */
	uint32_t n_externs;
	struct tt_vm_line *lines;
	uint32_t n_lines;
	uint8_t *data; /* window TUTTI_VM_DATA: .data, .bss and their like */
	uint32_t data_bytes;
	uint8_t *rodata; /* window TUTTI_VM_RODATA */
	uint32_t rodata_bytes;
	char license[32];
};

/* An empty object, or NULL. All pointers in it are freed one by one by tutti_vm_object_destroy. */
struct tutti_vm_object *tt_vm_object_create(void);

/*
 * Makes the functions of an object that has only instructions, at least one:
 * "main", the entry, at the first, and "func_N" at each instruction N that a
 * local call names. 0 or -ENOMEM.
 */
int tt_vm_object_split(struct tutti_vm_object *object);

/* The line that made the instruction, or NULL. */
const struct tt_vm_line *tt_vm_object_line(const struct tutti_vm_object *object, uint32_t insn);
/* The function that the instruction belongs to, or NULL. */
const struct tt_vm_func *tt_vm_object_func(const struct tutti_vm_object *object, uint32_t insn);

/*
 * Writes an error about an instruction (-1: none) and a register (-1: none):
 * "prog.c:12: instruction 7: ", of a line without a file "line 12: instruction
 * 7: ", and then the format; without the line when it is unknown. object may
 * be NULL. error may be NULL. Returns code.
 */
int tt_vm_fail(struct tutti_vm_error *error, int code, const struct tutti_vm_object *object,
	       int32_t insn, int32_t reg, const char *format, ...)
	__attribute__((format(printf, 6, 7)));

#endif
