/* SPDX-License-Identifier: MIT */
/*
 * What a processor must offer to the translation (jit.c): one function for
 * each kind of thing that a program does. emit_x86.c is the one that there is;
 * another processor gets another file.
 *
 * Compiled code has one scratch address ("the group's pointer") that the
 * translation sets by tt_emit_group and uses by tt_emit_access with
 * TT_BY_GROUP until something that clobbers it is emitted: tt_emit_clobbers
 * says which ops do.
 *
 * Every way out before the exit leads to the interpreter, at the op given by
 * pc, with all that the op itself would have done undone or not begun.
 */
#ifndef TT_VM_EMIT_H
#define TT_VM_EMIT_H

#include "vm/vm_int.h"

struct tt_emit; /* code in the making; what fails is remembered until tt_emit_finish */

/* -ENOTSUP where code cannot be made for this processor. n_ops: how many labels there are. */
int tt_emit_create(uint32_t n_ops, struct tt_emit **ret);
void tt_emit_destroy(struct tt_emit *emit);

/* The ways in and out that all functions share: first of all. */
void tt_emit_frame(struct tt_emit *emit);
/* The op at this index comes next. */
void tt_emit_label(struct tt_emit *emit, uint32_t index);

/* What the accesses of a function would like to have in a register. */
enum tt_emit_wish_kind { TT_WISH_BASE, TT_WISH_GROUP };
struct tt_emit_wish {
	uint8_t kind;
	uint8_t window; /* TT_WISH_BASE */
};

/*
 * The ops that follow are another function's, which uses the registers in used
 * (bit I: rI); wishes, the best first. Returns bit I for wish I granted;
 * without TT_WISH_GROUP there are no groups.
 */
uint32_t tt_emit_function(struct tt_emit *emit, uint32_t used, const struct tt_emit_wish *wishes,
			  unsigned n);

/* Arithmetic, moves, byte swaps, the wide load of a number. */
void tt_emit_alu(struct tt_emit *emit, const struct tt_vm_op *op);

enum tt_emit_by {
	TT_BY_FRAME,  /* off from the function's frame pointer; proved */
	TT_BY_WINDOW, /* off from the start of the op's window; proved */
	TT_BY_WITHIN, /* the op's register and offset, proved to be inside its window */
	TT_BY_GROUP,  /* off from the group's pointer */
	TT_BY_CHECK,  /* the op's register and offset, checked against its window, 0: all of them */
};

/* What a register, another one or none (TT_REGS), and a number give together. */
struct tt_emit_address {
	uint8_t reg;
	uint8_t index;
	int32_t off; /* TT_BY_FRAME, WINDOW and GROUP: alone */
};

/* A load, a store or an atomic operation. A check that fails leads to pc. */
void tt_emit_access(struct tt_emit *emit, const struct tt_vm_op *op, uint32_t pc,
		    enum tt_emit_by by, const struct tt_emit_address *address);
/* dst = the address, 64 bits; index not r10. */
void tt_emit_lea(struct tt_emit *emit, unsigned dst, const struct tt_emit_address *address);
void tt_emit_rotate(struct tt_emit *emit, unsigned dst, bool wide, unsigned left);

/* Checks bytes from the address in reg plus off against a window and keeps its pointer. */
void tt_emit_group(struct tt_emit *emit, unsigned reg, int32_t off, uint32_t bytes, unsigned window,
		   bool write, uint32_t pc);
bool tt_emit_clobbers(const struct tt_vm_op *op);

/* Jumps, with the budget of those that go back. */
void tt_emit_jump(struct tt_emit *emit, const struct tt_vm_op *op, uint32_t pc);
void tt_emit_call_local(struct tt_emit *emit, const struct tt_vm_op *op, uint32_t pc);
void tt_emit_call_helper(struct tt_emit *emit, uint32_t helper, uint32_t cost, uint32_t pc);
void tt_emit_exit(struct tt_emit *emit);

/* Binds what is open. -ENOMEM. */
int tt_emit_finish(struct tt_emit *emit, struct tt_vm_code *ret);

#endif
