/* SPDX-License-Identifier: MIT */
/*
 * What the translation wants to know of a whole function: which registers are
 * still read after an op (backward data flow), where loops are, and what would
 * best be kept in registers.
 *
 * A register that is dead may hold anything when the interpreter takes over:
 * on no way from there is it read before it is set.
 */
#include "vm/jit_int.h"

#include <string.h>

#define BIT(REG) ((uint16_t)(1u << (REG)))

enum {
	ARGUMENTS = 0x3e,
	ROUNDS = 16,
	/*
	 * Ops that are looked at for one group. Without a limit, accesses that do
	 * not group would each have all that follow looked at.
	 */
	GROUP_REACH = 128,
};

uint16_t tt_jit_reads(const struct tt_vm_op *op)
{
	uint8_t code = op->op;

	switch (TT_CLASS(code)) {
	case TT_LD: /* variants */
		switch (code) {
		case TT_LDDW:
		case TT_NO_OP: return 0;
		case TT_CALL_LOCAL_OP: return ARGUMENTS;
		case TT_MOVSX8_32:
		case TT_MOVSX16_32:
		case TT_MOVSX8_64:
		case TT_MOVSX16_64:
		case TT_MOVSX32_64: return BIT(op->src);
		default: /* division; those by a number have source 0 */
			return BIT(op->dst) | BIT(op->src);
		}
	case TT_LDX: return BIT(op->src);
	case TT_ST: return BIT(op->dst);
	case TT_STX:
		return BIT(op->dst) | BIT(op->src) |
		       (tt_jit_is_atomic(code) && op->imm == TT_CMPXCHG ? BIT(TT_R0) : 0);
	case TT_JMP:
		if (TT_OP(code) == TT_CALL)
			return ARGUMENTS;
		if (TT_OP(code) == TT_EXIT)
			return BIT(TT_R0);
		/* fall through */
	case TT_JMP32:
		if (TT_OP(code) == TT_JA)
			return 0;
		return BIT(op->dst) | (TT_SRC(code) ? BIT(op->src) : 0);
	default:
		return (TT_OP(code) == TT_MOV ? 0 : BIT(op->dst)) |
		       (TT_SRC(code) && TT_OP(code) != TT_END ? BIT(op->src) : 0);
	}
}

uint16_t tt_jit_sets(const struct tt_vm_op *op)
{
	uint8_t code = op->op;

	if (code == TT_CALL_LOCAL_OP || code == (TT_JMP | TT_CALL))
		return ARGUMENTS | BIT(TT_R0);
	if (code == TT_NO_OP || tt_jit_is_jump(code) ||
	    (tt_jit_is_store(code) && !tt_jit_is_atomic(code)))
		return 0;
	if (tt_jit_is_atomic(code))
		return op->imm == TT_CMPXCHG ? BIT(TT_R0) : op->imm & TT_FETCH ? BIT(op->src) : 0;
	return BIT(op->dst);
}

/* One round backwards; true: something changed. before: registers live before each op. */
static bool flow(struct tt_jit *jit, uint16_t *live, uint16_t first_after)
{
	bool changed = false;
	uint16_t after = first_after;

	for (uint32_t pc = jit->n_ops; pc-- > 0;) {
		const struct tt_vm_op *op = &jit->ops[pc];
		uint16_t out = after;

		if (op->op == TT_NO_OP)
			continue;
		if (op->op == (TT_JMP | TT_EXIT))
			out = 0;
		else if (tt_jit_is_jump(op->op) && op->op != TT_CALL_LOCAL_OP &&
			 TT_OP(op->op) != TT_CALL) {
			const struct tt_vm_op *target = &jit->ops[op->off];
			uint16_t there = (uint16_t)((live[op->off] & ~tt_jit_sets(target)) |
						    tt_jit_reads(target));

			out = TT_OP(op->op) == TT_JA ? there : out | there;
		}
		changed |= live[pc] != out;
		live[pc] = out;
		after = (uint16_t)((out & ~tt_jit_sets(op)) | tt_jit_reads(op));
	}
	return changed;
}

static void find_loops(struct tt_jit *jit)
{
	/* Where loops begin (positive) and end, in place: counts fit, they are cut at 100. */
	int depth = 0;

	for (uint32_t pc = 0; pc < jit->n_ops; pc++) {
		const struct tt_vm_op *op = &jit->ops[pc];

		if (tt_jit_is_jump(op->op) && op->op != TT_CALL_LOCAL_OP &&
		    TT_OP(op->op) != TT_CALL && TT_OP(op->op) != TT_EXIT &&
		    (uint32_t)op->off <= pc && jit->loops[op->off] < 100)
			jit->loops[op->off]++;
	}
	/* Each loop ends at its jump: walk with what is open. */
	for (uint32_t pc = 0; pc < jit->n_ops; pc++) {
		const struct tt_vm_op *op = &jit->ops[pc];
		bool back = tt_jit_is_jump(op->op) && op->op != TT_CALL_LOCAL_OP &&
			    TT_OP(op->op) != TT_CALL && TT_OP(op->op) != TT_EXIT &&
			    (uint32_t)op->off <= pc;

		depth += jit->loops[pc];
		jit->loops[pc] = (uint8_t)(depth < 4 ? depth : 4);
		if (back && depth)
			depth--;
	}
}

void tt_jit_plan(struct tt_jit *jit)
{
	int round = 0;

	while (flow(jit, jit->live, 0))
		if (++round == ROUNDS) { /* such a function is not worth more */
			memset(jit->live, 0xff, jit->n_ops * sizeof *jit->live);
			break;
		}
	find_loops(jit);
}

bool tt_jit_addressed(const struct tt_jit *jit, uint32_t pc)
{
	const struct tt_vm_op *op = &jit->ops[pc];

	return tt_jit_is_access(op->op) && !tt_jit_is_atomic(op->op) && !jit->notes[pc].proved &&
	       op->window && tt_jit_base(op) != TT_FP;
}

bool tt_jit_groupable(const struct tt_jit *jit, uint32_t pc)
{
	return tt_jit_addressed(jit, pc) && !jit->notes[pc].within;
}

struct tt_jit_group tt_jit_find_group(const struct tt_jit *jit, uint32_t pc)
{
	const struct tt_vm_op *first = &jit->ops[pc];
	struct tt_jit_group group = {.valid = true,
				     .reg = tt_jit_base(first),
				     .window = first->window,
				     .low = first->off,
				     .high = first->off};

	for (uint32_t i = pc; i < jit->n_ops && i < pc + GROUP_REACH; i++) {
		const struct tt_vm_op *op = &jit->ops[i];

		if (op->op == TT_NO_OP)
			continue;
		if ((i > pc && jit->notes[i].target) || tt_jit_is_jump(op->op) ||
		    !jit->notes[i].reached)
			break;
		if (tt_jit_groupable(jit, i) && tt_jit_base(op) == group.reg &&
		    op->window == group.window) {
			int32_t end = op->off + (int32_t)tt_vm_bytes(op->op);
			int32_t low = op->off < group.low ? op->off : group.low;
			int32_t high = end > group.high ? end : group.high;

			if (high - low <= TT_GROUP_BYTES) {
				group.low = low;
				group.high = high;
				group.write |= tt_jit_is_store(op->op);
				group.accesses++;
			}
		}
		if (tt_jit_sets(op) & BIT(group.reg) || tt_emit_clobbers(op))
			break;
	}
	return group;
}

unsigned tt_jit_wishes(const struct tt_jit *jit, const struct tt_vm_func *func,
		       struct tt_emit_wish wishes[TT_MAX_WISHES], uint32_t *ret_used)
{
	uint64_t worth[TT_MAX_WISHES] = {0}; /* last: groups */
	struct tt_jit_group group = {0};
	unsigned n = 0;

	*ret_used = 0;
	for (uint32_t pc = func->start; pc < func->end; pc++) {
		const struct tt_vm_op *op = &jit->ops[pc];
		uint64_t weight = 1ULL << 3 * jit->loops[pc];

		if (op->op == TT_NO_OP)
			continue;
		*ret_used |= tt_jit_reads(op) | tt_jit_sets(op);
		if (jit->notes[pc].target)
			group.valid = false;
		if (tt_jit_is_access(op->op) && op->window &&
		    (!jit->notes[pc].proved || op->window != TUTTI_VM_STACK))
			worth[op->window] += 2 * weight;
		if (tt_jit_groupable(jit, pc) && !(group.valid && tt_jit_base(op) == group.reg)) {
			group = tt_jit_find_group(jit, pc);
			/* An access alone costs 3, a group 5 and 1 for each. */
			if (group.accesses > 2)
				worth[TT_MAX_WISHES - 1] += (2 * group.accesses - 5) * weight;
		}
		if (tt_jit_is_jump(op->op) || tt_jit_sets(op) & BIT(group.reg))
			group.valid = false;
	}
	for (;;) {
		unsigned best = 0;

		for (unsigned i = 1; i < TT_MAX_WISHES; i++)
			if (worth[i] > worth[best])
				best = i;
		if (!worth[best])
			return n;
		worth[best] = 0;
		wishes[n].kind = best == TT_MAX_WISHES - 1 ? TT_WISH_GROUP : TT_WISH_BASE;
		wishes[n++].window = (uint8_t)best;
	}
}
