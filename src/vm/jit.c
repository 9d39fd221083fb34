/* SPDX-License-Identifier: MIT */
/*
 * The translation: op by op, in order, for any processor (emit.h).
 *
 * Accesses, cheapest first: proved ones go straight to memory, those that are
 * within a window for certain to its base and what the register says. Of the others,
 * those of one run of instructions that use the same register with different
 * offsets are checked together, once (a group): should the check fail, the
 * interpreter takes over at the first of them and finds which one it is that
 * fails. Whoever is alone is checked alone.
 *
 * A few sequences that compilers for BPF cannot avoid become one instruction:
 * a copy and an addition, such an address and its one use, a rotation.
 */
#include "vm/jit_int.h"

#include <stdlib.h>

/* Checked together costs two comparisons, alone one each. */
enum { GROUP_ACCESSES = 3 };

static bool in_group(const struct tt_jit *jit, const struct tt_vm_op *op)
{
	const struct tt_jit_group *group = &jit->group;

	return group->valid && tt_jit_base(op) == group->reg && op->window == group->window &&
	       op->off >= group->low && op->off + (int32_t)tt_vm_bytes(op->op) <= group->high &&
	       (group->write || !tt_jit_is_store(op->op));
}

static void open_group(struct tt_jit *jit, uint32_t pc)
{
	struct tt_jit_group group = tt_jit_find_group(jit, pc);

	if (group.accesses < GROUP_ACCESSES)
		return;
	tt_emit_group(jit->emit, group.reg, group.low, (uint32_t)(group.high - group.low),
		      group.window, group.write, pc);
	jit->group = group;
}

static void translate_access(struct tt_jit *jit, uint32_t pc)
{
	const struct tt_vm_op *op = &jit->ops[pc];
	const struct tt_vm_note *note = &jit->notes[pc];
	struct tt_emit_address address = {.reg = tt_jit_base(op), .index = TT_REGS, .off = op->off};
	enum tt_emit_by by = TT_BY_CHECK;

	if (note->proved) {
		by = note->window == TUTTI_VM_STACK ? TT_BY_FRAME : TT_BY_WINDOW;
		address.off = note->off;
	} else if (note->within) {
		by = TT_BY_WITHIN;
	} else if (jit->groups && tt_jit_groupable(jit, pc)) {
		if (!in_group(jit, op))
			open_group(jit, pc);
		if (in_group(jit, op)) {
			by = TT_BY_GROUP;
			address.off = op->off - jit->group.low;
		}
	}
	tt_emit_access(jit->emit, op, pc, by, &address);
}

/* --- sequences ------------------------------------------------------------------------ */

/* The op that comes after pc on the only way there is; TT_NO_OP's: none such. */
static const struct tt_vm_op *follower(const struct tt_jit *jit, uint32_t pc)
{
	static const struct tt_vm_op none = {.op = TT_NO_OP};

	return pc < jit->n_ops && !jit->notes[pc].target ? &jit->ops[pc] : &none;
}

static bool dead_after(const struct tt_jit *jit, uint32_t pc, unsigned reg)
{
	return !(jit->live[pc] & 1u << reg);
}

/*
 * a = b; a += c or a number; and then, if that is a's only use, the access by
 * a. A check that fails leads to the first of them. Returns how many ops it
 * took, 0: it is no such sequence.
 */
static uint32_t translate_address(struct tt_jit *jit, uint32_t pc)
{
	const struct tt_vm_op *move = &jit->ops[pc], *add = follower(jit, pc + 1),
			      *access = follower(jit, pc + 2);
	struct tt_emit_address address = {.reg = move->src, .index = TT_REGS};

	if (move->op != (TT_ALU64 | TT_MOV | TT_X) || move->src == TT_FP || add->dst != move->dst)
		return 0;
	if (add->op == (TT_ALU64 | TT_ADD | TT_X)) {
		if (add->src == move->dst || add->src == TT_FP)
			return 0;
		address.index = add->src;
	} else if (add->op == (TT_ALU64 | TT_ADD | TT_K)) {
		address.off = (int32_t)add->imm;
	} else {
		return 0;
	}
	if (access->op != TT_NO_OP && tt_jit_addressed(jit, pc + 2) &&
	    tt_jit_base(access) == move->dst &&
	    !(TT_CLASS(access->op) == TT_STX && access->src == move->dst) &&
	    (tt_jit_sets(access) & 1u << move->dst || dead_after(jit, pc + 2, move->dst)) &&
	    address.off >= -(1 << 24) && address.off <= 1 << 24) {
		address.off += access->off;
		tt_emit_access(jit->emit, access, pc,
			       jit->notes[pc + 2].within ? TT_BY_WITHIN : TT_BY_CHECK, &address);
		return 3;
	}
	tt_emit_lea(jit->emit, move->dst, &address);
	return 2;
}

/* t = x; t >>= n; x <<= width - n; x |= t, t not read after; or with the shifts exchanged. */
static uint32_t translate_rotation(struct tt_jit *jit, uint32_t pc)
{
	const struct tt_vm_op *move = &jit->ops[pc], *first = follower(jit, pc + 1),
			      *second = follower(jit, pc + 2), *both = follower(jit, pc + 3);
	unsigned class = TT_CLASS(move->op), width = class == TT_ALU64 ? 64 : 32;
	bool right = first->op == (class | TT_RSH | TT_K);

	if ((class != TT_ALU64 && class != TT_ALU) || move->op != (class | TT_MOV | TT_X) ||
	    move->src == TT_FP || move->src == move->dst ||
	    (!right && first->op != (class | TT_LSH | TT_K)) ||
	    second->op != (class | (right ? TT_LSH : TT_RSH) | TT_K) ||
	    both->op != (class | TT_OR | TT_X))
		return 0;
	if (first->dst != move->dst || second->dst != move->src || both->dst != move->src ||
	    both->src != move->dst || first->imm <= 0 || first->imm >= width ||
	    first->imm + second->imm != width || !dead_after(jit, pc + 3, move->dst))
		return 0;
	tt_emit_rotate(jit->emit, move->src, width == 64,
		       (unsigned)(right ? second->imm : first->imm));
	return 4;
}

/* --- ops ------------------------------------------------------------------------------- */

static void translate(struct tt_jit *jit, uint32_t pc)
{
	const struct tt_vm_op *op = &jit->ops[pc];

	if (tt_jit_is_access(op->op))
		translate_access(jit, pc);
	else if (op->op == TT_CALL_LOCAL_OP)
		tt_emit_call_local(jit->emit, op, pc);
	else if (op->op == (TT_JMP | TT_CALL))
		tt_emit_call_helper(jit->emit, (uint32_t)op->imm, jit->env->helpers[op->imm].cost,
				    pc);
	else if (op->op == (TT_JMP | TT_EXIT))
		tt_emit_exit(jit->emit);
	else if (tt_jit_is_jump(op->op))
		tt_emit_jump(jit->emit, op, pc);
	else
		tt_emit_alu(jit->emit, op);
}

static void translate_function(struct tt_jit *jit, const struct tt_vm_func *func)
{
	struct tt_emit_wish wishes[TT_MAX_WISHES];
	uint32_t used, granted;
	unsigned n = tt_jit_wishes(jit, func, wishes, &used);

	jit->groups = false;
	for (uint32_t pc = func->start, next; pc < func->end; pc = next) {
		uint32_t taken = 0;

		next = pc + 1;
		if (jit->ops[pc].op == TT_NO_OP)
			continue;
		if (jit->notes[pc].target)
			jit->group.valid = false;
		tt_emit_label(jit->emit, pc);
		if (pc == func->start) {
			granted = tt_emit_function(jit->emit, used, wishes, n);
			for (unsigned i = 0; i < n; i++)
				jit->groups |= wishes[i].kind == TT_WISH_GROUP && granted & 1u << i;
		}
		taken = translate_rotation(jit, pc);
		if (!taken)
			taken = translate_address(jit, pc);
		if (taken)
			next = pc + taken;
		else
			translate(jit, pc);
		for (uint32_t i = pc; i < next; i++)
			if (tt_jit_is_jump(jit->ops[i].op) || tt_emit_clobbers(&jit->ops[i]) ||
			    tt_jit_sets(&jit->ops[i]) & 1u << jit->group.reg)
				jit->group.valid = false;
	}
	jit->group.valid = false;
}

int tt_vm_compile(const struct tutti_vm_object *object, const struct tutti_vm_env *env,
		  const struct tt_vm_op *ops, const struct tt_vm_note *notes,
		  struct tt_vm_code *ret)
{
	uint32_t n = object->n_insns;
	struct tt_jit jit = {.env = env, .object = object, .ops = ops, .notes = notes, .n_ops = n};
	int err = tt_emit_create(n, &jit.emit);

	if (err)
		return err;
	jit.live = calloc(n, sizeof *jit.live);
	jit.loops = calloc(n, sizeof *jit.loops);
	if (jit.live && jit.loops) {
		tt_jit_plan(&jit);
		tt_emit_frame(jit.emit);
		for (uint32_t i = 0; i < object->n_funcs; i++)
			translate_function(&jit, &object->funcs[i]);
		err = tt_emit_finish(jit.emit, ret);
	} else {
		err = -ENOMEM;
	}
	free(jit.live);
	free(jit.loops);
	tt_emit_destroy(jit.emit);
	return err;
}
