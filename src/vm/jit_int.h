/* SPDX-License-Identifier: MIT */
/* The translation and what it finds out before. */
#ifndef TT_VM_JIT_INT_H
#define TT_VM_JIT_INT_H

#include "vm/emit.h"

enum {
	TT_GROUP_BYTES = 4096, /* at most */
	TT_MAX_WISHES = TUTTI_VM_WINDOWS + 1,
};

/* Accesses by one register, checked together. */
struct tt_jit_group {
	bool valid;
	uint8_t reg;
	uint8_t window;
	bool write;
	int32_t low, high; /* offsets from the register, high is past the end */
	unsigned accesses;
};

struct tt_jit {
	const struct tutti_vm_env *env;
	const struct tutti_vm_object *object;
	const struct tt_vm_op *ops;
	const struct tt_vm_note *notes;
	uint32_t n_ops;
	uint16_t *live; /* bit R: some way from after the op reads rR before it is set */
	uint8_t *loops; /* how many loops are around the op */
	struct tt_emit *emit;
	struct tt_jit_group group;
	bool groups; /* has a register for its pointer */
};

static inline bool tt_jit_is_store(uint8_t op)
{
	return TT_CLASS(op) == TT_ST || TT_CLASS(op) == TT_STX;
}

static inline bool tt_jit_is_atomic(uint8_t op)
{
	return TT_CLASS(op) == TT_STX && TT_MODE(op) == TT_ATOMIC;
}

static inline bool tt_jit_is_access(uint8_t op)
{
	return TT_CLASS(op) == TT_LDX || tt_jit_is_store(op);
}

static inline bool tt_jit_is_jump(uint8_t op)
{
	return TT_CLASS(op) == TT_JMP || TT_CLASS(op) == TT_JMP32 || op == TT_CALL_LOCAL_OP;
}

static inline uint8_t tt_jit_base(const struct tt_vm_op *op)
{
	return tt_jit_is_store(op->op) ? op->dst : op->src;
}

/* Bit R: the op reads rR, sets rR. */
uint16_t tt_jit_reads(const struct tt_vm_op *op);
uint16_t tt_jit_sets(const struct tt_vm_op *op);

/* Fills live and loops; both n_ops, zeroed. */
void tt_jit_plan(struct tt_jit *jit);
/* What the function would like to have in registers; the best first. Returns how many. */
unsigned tt_jit_wishes(const struct tt_jit *jit, const struct tt_vm_func *func,
		       struct tt_emit_wish wishes[TT_MAX_WISHES], uint32_t *ret_used);

/* The group that begins with the access at pc. */
struct tt_jit_group tt_jit_find_group(const struct tt_jit *jit, uint32_t pc);
/* Is it a load or a store in a known window by a register other than r10? */
bool tt_jit_addressed(const struct tt_jit *jit, uint32_t pc);
/* Could the access be one of a group, as far as it alone says? */
bool tt_jit_groupable(const struct tt_jit *jit, uint32_t pc);

#endif
