/* SPDX-License-Identifier: MIT */
/*
 * What arithmetic and comparisons do to what is known of registers. Every rule
 * gives an interval that holds all results of all operands in their intervals;
 * where none is worth its lines, the result is any number of the width.
 */
#include "vm/verify_int.h"

static uint64_t limit_of(bool narrow)
{
	return narrow ? UINT32_MAX : UINT64_MAX;
}

/* The lower half of what a register may hold. */
static struct tt_vm_reg lower_half(struct tt_vm_reg r)
{
	if (r.kind == TT_NUMBER && r.max <= UINT32_MAX)
		return r;
	if (tt_vm_is_known(&r))
		return tt_vm_range((uint32_t)r.min, (uint32_t)r.min, r.window);
	return tt_vm_range(0, UINT32_MAX, 0);
}

/* All ones up to the highest bit of number. */
static uint64_t filled(uint64_t number)
{
	return number ? UINT64_MAX >> __builtin_clzll(number) : 0;
}

/* The operation on two numbers; those whose sign matters are not here but ARSH. */
static uint64_t fold(uint8_t op, uint64_t a, uint64_t b, bool narrow)
{
	unsigned shift = (unsigned)b & (narrow ? 31 : 63);

	switch (op) {
	case TT_ADD: return a + b;
	case TT_SUB: return a - b;
	case TT_MUL: return a * b;
	case TT_DIV: return b ? a / b : 0;
	case TT_MOD: return b ? a % b : a;
	case TT_OR: return a | b;
	case TT_AND: return a & b;
	case TT_XOR: return a ^ b;
	case TT_LSH: return a << shift;
	case TT_RSH: return a >> shift;
	default: /* TT_ARSH */
		if (narrow)
			return (uint32_t)((int32_t)(uint32_t)a >> shift);
		return (uint64_t)((int64_t)a >> shift);
	}
}

/* Sums of 32-bit numbers do not wrap here, but show their carry above bit 31. */
static struct tt_vm_reg range_of_sum(const struct tt_vm_reg *a, const struct tt_vm_reg *b,
				     bool narrow)
{
	uint64_t low = a->min + b->min, high = a->max + b->max;

	if (narrow) {
		if (low >> 32 != high >> 32)
			return tt_vm_range(0, UINT32_MAX, 0);
		return tt_vm_range((uint32_t)low, (uint32_t)high, 0);
	}
	/* When the smallest sum wraps all do, once; else none may. */
	if ((low < a->min) != (high < a->max))
		return tt_vm_any(0);
	return tt_vm_range(low, high, 0);
}

static struct tt_vm_reg range_of_difference(const struct tt_vm_reg *a, const struct tt_vm_reg *b,
					    bool narrow)
{
	uint64_t limit = limit_of(narrow);

	/* When the largest difference borrows all do, once; else none may. */
	if ((a->min < b->max) != (a->max < b->min))
		return tt_vm_range(0, limit, 0);
	return tt_vm_range((a->min - b->max) & limit, (a->max - b->min) & limit, 0);
}

static struct tt_vm_reg range_of_shift(uint8_t op, const struct tt_vm_reg *a,
				       const struct tt_vm_reg *b, bool narrow)
{
	uint64_t limit = limit_of(narrow);
	unsigned shift = (unsigned)b->min & (narrow ? 31 : 63);

	if (op == TT_LSH) {
		if (!tt_vm_is_known(b) || a->max > limit >> shift)
			return tt_vm_range(0, limit, 0);
		return tt_vm_range(a->min << shift, a->max << shift, 0);
	}
	if (op == TT_ARSH && a->max > limit >> 1)
		return tt_vm_range(0, limit, 0);
	/* To the right, of what is not negative: never larger. */
	if (!tt_vm_is_known(b))
		return tt_vm_range(0, a->max, 0);
	return tt_vm_range(a->min >> shift, a->max >> shift, 0);
}

static struct tt_vm_reg range_of(uint8_t op, const struct tt_vm_reg *a, const struct tt_vm_reg *b,
				 bool narrow)
{
	uint64_t limit = limit_of(narrow), product;

	switch (op) {
	case TT_ADD: return range_of_sum(a, b, narrow);
	case TT_SUB: return range_of_difference(a, b, narrow);
	case TT_MUL:
		if (__builtin_mul_overflow(a->max, b->max, &product) || product > limit)
			return tt_vm_range(0, limit, 0);
		return tt_vm_range(a->min * b->min, product, 0);
	case TT_DIV: /* by zero it gives zero */
		return b->min ? tt_vm_range(a->min / b->max, a->max / b->min, 0)
			      : tt_vm_range(0, a->max, 0);
	case TT_MOD: /* by zero it gives the dividend */
		return tt_vm_range(0, b->min && b->max - 1 < a->max ? b->max - 1 : a->max, 0);
	case TT_AND: return tt_vm_range(0, a->max < b->max ? a->max : b->max, 0);
	case TT_OR:
		return tt_vm_range(a->min > b->min ? a->min : b->min, filled(a->max | b->max), 0);
	case TT_XOR: return tt_vm_range(0, filled(a->max | b->max), 0);
	default: return range_of_shift(op, a, b, narrow);
	}
}

/* Frame pointer plus or minus numbers; offsets beyond reason are forgotten. */
static struct tt_vm_reg frame_moved(const struct tt_vm_reg *frame, const struct tt_vm_reg *by,
				    bool minus)
{
	int64_t low = (int64_t)by->min, high = (int64_t)by->max;

	if (by->kind != TT_NUMBER || low > high || low < -TT_FRAME_OFF_MAX ||
	    high > TT_FRAME_OFF_MAX)
		return tt_vm_any(TUTTI_VM_STACK);
	if (minus) {
		int64_t swap = low;

		low = -high;
		high = -swap;
	}
	low += (int64_t)frame->min;
	high += (int64_t)frame->max;
	if (low < -TT_FRAME_OFF_MAX || high > TT_FRAME_OFF_MAX)
		return tt_vm_any(TUTTI_VM_STACK);
	return (struct tt_vm_reg){.kind = TT_FRAME,
				  .window = TUTTI_VM_STACK,
				  .min = (uint64_t)low,
				  .max = (uint64_t)high};
}

/* A hint: an address and a number give an address, and so does masking one. */
static uint8_t window_of(uint8_t op, const struct tt_vm_reg *a, const struct tt_vm_reg *b)
{
	switch (op) {
	case TT_ADD: return a->window && b->window ? 0 : a->window | b->window;
	case TT_SUB:
	case TT_AND: return b->window ? 0 : a->window;
	default: return 0;
	}
}

static struct tt_vm_reg operate(const struct tutti_vm_insn *insn, const struct tt_vm_reg *dst,
				const struct tt_vm_reg *src)
{
	uint8_t op = TT_OP(insn->code);
	bool narrow = TT_CLASS(insn->code) == TT_ALU;
	struct tt_vm_reg a = *dst, b = *src, r;

	if (!narrow && a.kind == TT_FRAME && (op == TT_ADD || op == TT_SUB))
		return b.kind == TT_FRAME ? tt_vm_any(0) : frame_moved(&a, &b, op == TT_SUB);
	if (!narrow && b.kind == TT_FRAME && op == TT_ADD)
		return frame_moved(&b, &a, false);
	/* The signed forms; and what is no number is any number. */
	if ((op == TT_DIV || op == TT_MOD) && insn->off)
		return tt_vm_range(0, limit_of(narrow), 0);
	if (a.kind != TT_NUMBER)
		a = tt_vm_any(a.kind == TT_FRAME ? TUTTI_VM_STACK : 0);
	if (b.kind != TT_NUMBER)
		b = tt_vm_any(b.kind == TT_FRAME ? TUTTI_VM_STACK : 0);
	if (narrow) {
		a = lower_half(a);
		b = lower_half(b);
	}
	if (tt_vm_is_known(&a) && tt_vm_is_known(&b)) {
		uint64_t result = fold(op, a.min, b.min, narrow) & limit_of(narrow);

		r = tt_vm_range(result, result, 0);
	} else {
		r = range_of(op, &a, &b, narrow);
	}
	r.window = window_of(op, &a, &b);
	return r;
}

static struct tt_vm_reg moved(const struct tutti_vm_insn *insn, const struct tt_vm_reg *src)
{
	bool narrow = TT_CLASS(insn->code) == TT_ALU;

	if (insn->off) { /* sign-extending: what is not negative stays */
		if (src->kind == TT_NUMBER && src->max < 1ULL << (insn->off - 1))
			return tt_vm_range(src->min, src->max, 0);
		return tt_vm_range(0, limit_of(narrow), 0);
	}
	return narrow ? lower_half(*src) : *src;
}

void tt_vm_alu(struct tt_vm_state *state, const struct tutti_vm_insn *insn)
{
	struct tt_vm_reg *dst = &state->reg[tt_vm_dst(insn)];
	bool narrow = TT_CLASS(insn->code) == TT_ALU;
	uint64_t number = narrow ? (uint32_t)insn->imm : (uint64_t)(int64_t)insn->imm;
	struct tt_vm_reg imm = tt_vm_range(number, number, 0);
	const struct tt_vm_reg *src =
		TT_SRC(insn->code) == TT_X ? &state->reg[tt_vm_src(insn)] : &imm;
	struct tt_vm_reg zero = tt_vm_range(0, 0, 0), old = *dst;

	switch (TT_OP(insn->code)) {
	case TT_MOV:
		*dst = moved(insn, src);
		/* An unset register is refused where it is read, once. */
		if (dst->kind == TT_UNSET)
			*dst = tt_vm_any(0);
		break;
	case TT_NEG:
		if (old.kind != TT_NUMBER)
			old = tt_vm_any(0);
		if (narrow)
			old = lower_half(old);
		*dst = range_of_difference(&zero, &old, narrow);
		break;
	case TT_END: *dst = tt_vm_range(0, UINT64_MAX >> (64 - insn->imm), 0); break;
	default: *dst = operate(insn, dst, src);
	}
}

/* --- comparisons ------------------------------------------------------------------- */

/* a < b, or a <= b. What cannot be is not on a way that is taken: then nothing is said. */
static void refine_less(struct tt_vm_reg *a, struct tt_vm_reg *b, bool or_equal)
{
	uint64_t step = or_equal ? 0 : 1;
	uint64_t a_max, b_min;

	if (!or_equal && (b->max == 0 || a->min == UINT64_MAX))
		return;
	a_max = b->max - step < a->max ? b->max - step : a->max;
	b_min = a->min + step > b->min ? a->min + step : b->min;
	if (a_max < a->min || b_min > b->max)
		return;
	a->max = a_max;
	b->min = b_min;
}

static void refine_equal(struct tt_vm_reg *a, struct tt_vm_reg *b)
{
	uint64_t min = a->min > b->min ? a->min : b->min, max = a->max < b->max ? a->max : b->max;

	if (min > max)
		return;
	a->min = b->min = min;
	a->max = b->max = max;
}

static void refine_unequal(struct tt_vm_reg *a, const struct tt_vm_reg *b)
{
	if (!tt_vm_is_known(b) || a->min == a->max)
		return;
	if (a->min == b->min)
		a->min++;
	else if (a->max == b->min)
		a->max--;
}

/*
 * Signed: as unsigned when neither is negative. And what is above -1, or above a
 * number that is not negative, is not negative itself.
 */
static void refine_signed_less(struct tt_vm_reg *a, struct tt_vm_reg *b, bool or_equal,
			       uint64_t largest)
{
	bool above_minus_one = !or_equal && a->min == 2 * largest + 1;

	if (a->max > largest && !above_minus_one)
		return;
	if (b->max > largest && b->min <= largest)
		b->max = largest;
	if (above_minus_one)
		return;
	if (b->max <= largest)
		refine_less(a, b, or_equal);
}

/* The comparison that holds where op does not. */
static uint8_t opposite(uint8_t op)
{
	switch (op) {
	case TT_JEQ: return TT_JNE;
	case TT_JNE: return TT_JEQ;
	case TT_JGT: return TT_JLE;
	case TT_JLE: return TT_JGT;
	case TT_JGE: return TT_JLT;
	case TT_JLT: return TT_JGE;
	case TT_JSGT: return TT_JSLE;
	case TT_JSLE: return TT_JSGT;
	case TT_JSGE: return TT_JSLT;
	case TT_JSLT: return TT_JSGE;
	default: return TT_JA; /* of bits: nothing is said */
	}
}

void tt_vm_refine(struct tt_vm_state *state, const struct tutti_vm_insn *insn, bool taken)
{
	bool narrow = TT_CLASS(insn->code) == TT_JMP32, by_reg = TT_SRC(insn->code) == TT_X;
	uint64_t number = narrow ? (uint32_t)insn->imm : (uint64_t)(int64_t)insn->imm;
	struct tt_vm_reg imm = tt_vm_range(number, number, 0);
	struct tt_vm_reg *a = &state->reg[tt_vm_dst(insn)];
	struct tt_vm_reg *b = by_reg ? &state->reg[tt_vm_src(insn)] : &imm;
	uint64_t largest = narrow ? INT32_MAX : INT64_MAX;
	uint8_t op = taken ? TT_OP(insn->code) : opposite(TT_OP(insn->code));

	if (a == b || a->kind != TT_NUMBER || b->kind != TT_NUMBER)
		return;
	/* Of the upper halves a 32-bit comparison says nothing. */
	if (narrow && (a->max > UINT32_MAX || b->max > UINT32_MAX))
		return;
	switch (op) {
	case TT_JEQ: refine_equal(a, b); break;
	case TT_JNE:
		refine_unequal(a, b);
		refine_unequal(b, a);
		break;
	case TT_JLT: refine_less(a, b, false); break;
	case TT_JLE: refine_less(a, b, true); break;
	case TT_JGT: refine_less(b, a, false); break;
	case TT_JGE: refine_less(b, a, true); break;
	case TT_JSLT: refine_signed_less(a, b, false, largest); break;
	case TT_JSLE: refine_signed_less(a, b, true, largest); break;
	case TT_JSGT: refine_signed_less(b, a, false, largest); break;
	case TT_JSGE: refine_signed_less(b, a, true, largest); break;
	default: break;
	}
}
