/* SPDX-License-Identifier: MIT */
/*
 * The translation: op by op, in order, for any processor (emit.h).
 *
 * Accesses, cheapest first: proved ones go straight to memory. Of the others,
 * those of one run of instructions that use the same register with different
 * offsets are checked together, once (a group): should the check fail, the
 * interpreter takes over at the first of them and finds which one it is that
 * fails. Whoever is alone is checked alone.
 */
#include "vm/emit.h"

#include <stdlib.h>

/* A group costs two comparisons, an access alone one. */
enum { GROUP_ACCESSES = 2, GROUP_BYTES = 4096 };

struct group {
	bool valid;
	uint8_t reg;
	uint8_t window;
	bool write;
	int32_t low, high; /* offsets from the register, high is past the end */
};

struct jit {
	const struct tutti_vm_env *env;
	const struct tt_vm_op *ops;
	const struct tt_vm_note *notes;
	uint32_t n_ops;
	struct tt_emit *emit;
	struct group group;
};

static bool is_store(uint8_t op)
{
	return TT_CLASS(op) == TT_ST || TT_CLASS(op) == TT_STX;
}

static bool is_atomic(uint8_t op)
{
	return TT_CLASS(op) == TT_STX && TT_MODE(op) == TT_ATOMIC;
}

static bool is_access(uint8_t op)
{
	return TT_CLASS(op) == TT_LDX || is_store(op);
}

static bool is_jump(uint8_t op)
{
	return TT_CLASS(op) == TT_JMP || TT_CLASS(op) == TT_JMP32 || op == TT_CALL_LOCAL_OP;
}

static uint8_t base_of(const struct tt_vm_op *op)
{
	return is_store(op->op) ? op->dst : op->src;
}

/* The register that the op changes, or TT_REGS. */
static uint8_t changes(const struct tt_vm_op *op)
{
	if (is_jump(op->op) || (is_store(op->op) && !is_atomic(op->op)))
		return TT_REGS;
	if (is_atomic(op->op))
		return op->imm == TT_CMPXCHG ? TT_R0 : op->imm & TT_FETCH ? op->src : TT_REGS;
	return op->dst;
}

/* May the access be one of a group, as far as it alone says? */
static bool groupable(const struct jit *jit, uint32_t pc)
{
	const struct tt_vm_op *op = &jit->ops[pc];

	return is_access(op->op) && !is_atomic(op->op) && !jit->notes[pc].proved && op->window &&
	       base_of(op) != TT_FP;
}

/* Looks what a group that begins here would hold; opens it when it pays. */
static void open_group(struct jit *jit, uint32_t pc)
{
	const struct tt_vm_op *first = &jit->ops[pc];
	struct group group = {.valid = true,
			      .reg = base_of(first),
			      .window = first->window,
			      .low = first->off,
			      .high = first->off};
	unsigned accesses = 0;

	for (uint32_t i = pc; i < jit->n_ops; i++) {
		const struct tt_vm_op *op = &jit->ops[i];

		if (op->op == TT_NO_OP)
			continue;
		if ((i > pc && jit->notes[i].target) || is_jump(op->op) || !jit->notes[i].reached)
			break;
		if (groupable(jit, i) && base_of(op) == group.reg && op->window == group.window) {
			int32_t end = op->off + (int32_t)tt_vm_bytes(op->op);
			int32_t low = op->off < group.low ? op->off : group.low;
			int32_t high = end > group.high ? end : group.high;

			if (high - low <= GROUP_BYTES) {
				group.low = low;
				group.high = high;
				group.write |= is_store(op->op);
				accesses++;
			}
		}
		if (changes(op) == group.reg || tt_emit_clobbers(op))
			break;
	}
	if (accesses < GROUP_ACCESSES)
		return;
	tt_emit_group(jit->emit, group.reg, group.low, (uint32_t)(group.high - group.low),
		      group.window, group.write, pc);
	jit->group = group;
}

static bool in_group(const struct jit *jit, const struct tt_vm_op *op)
{
	const struct group *group = &jit->group;

	return group->valid && base_of(op) == group->reg && op->window == group->window &&
	       op->off >= group->low && op->off + (int32_t)tt_vm_bytes(op->op) <= group->high &&
	       (group->write || !is_store(op->op));
}

static void translate_access(struct jit *jit, uint32_t pc)
{
	const struct tt_vm_op *op = &jit->ops[pc];
	const struct tt_vm_note *note = &jit->notes[pc];

	if (note->proved) {
		tt_emit_access(jit->emit, op, pc,
			       note->window == TUTTI_VM_STACK ? TT_BY_FRAME : TT_BY_WINDOW,
			       note->off);
		return;
	}
	if (groupable(jit, pc)) {
		if (!in_group(jit, op))
			open_group(jit, pc);
		if (in_group(jit, op)) {
			tt_emit_access(jit->emit, op, pc, TT_BY_GROUP, op->off - jit->group.low);
			return;
		}
	}
	tt_emit_access(jit->emit, op, pc, TT_BY_CHECK, op->off);
}

static void translate(struct jit *jit, uint32_t pc)
{
	const struct tt_vm_op *op = &jit->ops[pc];

	if (jit->notes[pc].target)
		jit->group.valid = false;
	tt_emit_label(jit->emit, pc);
	if (is_access(op->op)) {
		translate_access(jit, pc);
	} else if (op->op == TT_CALL_LOCAL_OP) {
		tt_emit_call_local(jit->emit, op, pc);
	} else if (op->op == (TT_JMP | TT_CALL)) {
		tt_emit_call_helper(jit->emit, (uint32_t)op->imm, jit->env->helpers[op->imm].cost,
				    pc);
	} else if (op->op == (TT_JMP | TT_EXIT)) {
		tt_emit_exit(jit->emit);
	} else if (is_jump(op->op)) {
		tt_emit_jump(jit->emit, op, pc);
	} else {
		tt_emit_alu(jit->emit, op);
	}
	if (is_jump(op->op) || tt_emit_clobbers(op) || changes(op) == jit->group.reg)
		jit->group.valid = false;
}

int tt_vm_compile(const struct tutti_vm_env *env, const struct tt_vm_op *ops,
		  const struct tt_vm_note *notes, uint32_t n_ops, struct tt_vm_code *ret)
{
	struct jit jit = {.env = env, .ops = ops, .notes = notes, .n_ops = n_ops};
	int err = tt_emit_create(n_ops, &jit.emit);

	if (err)
		return err;
	tt_emit_frame(jit.emit);
	for (uint32_t pc = 0; pc < n_ops; pc++)
		if (ops[pc].op != TT_NO_OP)
			translate(&jit, pc);
	err = tt_emit_finish(jit.emit, ret);
	tt_emit_destroy(jit.emit);
	return err;
}
