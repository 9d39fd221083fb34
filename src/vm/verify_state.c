/* SPDX-License-Identifier: MIT */
/*
 * What is known of registers, as a lattice: from one number over intervals to
 * any number, and then to unset, which covers all (a register that is unset on
 * one of the ways to an instruction cannot be read there). Widening makes every
 * climb short: bounds go to the next of a few thresholds, later to the end.
 */
#include "vm/verify_int.h"

#include <string.h>

struct tt_vm_reg tt_vm_outside(struct tt_vm_reg r)
{
	return r.kind == TT_FRAME ? tt_vm_any(TUTTI_VM_STACK) : r;
}

/*
 * A hint for what may be either; NULL beside an address leaves the hint. It
 * climbs, too: none of NULL, a window of NULL, that or another of what is not
 * NULL, none.
 */
static uint8_t join_windows(const struct tt_vm_reg *into, const struct tt_vm_reg *r)
{
	bool null = tt_vm_is_known(into) && into->min == 0;

	if (into->window == r->window)
		return into->window;
	if (tt_vm_is_known(r) && r->min == 0)
		return null && !into->window ? r->window : into->window;
	return null ? r->window : 0;
}

static void widen_number(const struct tt_vm_verifier *v, struct tt_vm_reg *into,
			 const struct tt_vm_reg *old, enum tt_vm_widen widen)
{
	if (widen == TT_TO_TOP) {
		*into = tt_vm_any(0);
		return;
	}
	if (into->min != old->min)
		into->min = 0;
	if (into->max == old->max)
		return;
	for (unsigned i = 0; i < v->n_thresholds; i++) {
		if (v->threshold[i] >= into->max) {
			into->max = v->threshold[i];
			return;
		}
	}
}

bool tt_vm_join_reg(const struct tt_vm_verifier *v, struct tt_vm_reg *into,
		    const struct tt_vm_reg *r, enum tt_vm_widen widen)
{
	struct tt_vm_reg old = *into;

	if (into->kind == r->kind && into->min == r->min && into->max == r->max &&
	    into->window == r->window)
		return false;
	if (into->kind == TT_UNSET)
		return false;
	if (r->kind == TT_UNSET) {
		*into = *r;
		return true;
	}
	into->window = join_windows(&old, r);
	if (into->kind != r->kind || into->kind == TT_MAPREF) {
		*into = tt_vm_any(into->window);
	} else if (into->kind == TT_FRAME) {
		if ((int64_t)r->min < (int64_t)into->min)
			into->min = r->min;
		if ((int64_t)r->max > (int64_t)into->max)
			into->max = r->max;
		if (widen != TT_EXACT && (into->min != old.min || into->max != old.max))
			*into = tt_vm_any(TUTTI_VM_STACK);
	} else {
		if (r->min < into->min)
			into->min = r->min;
		if (r->max > into->max)
			into->max = r->max;
		if (widen != TT_EXACT &&
		    (into->min != old.min || into->max != old.max || into->window != old.window))
			widen_number(v, into, &old, widen);
	}
	return into->kind != old.kind || into->min != old.min || into->max != old.max ||
	       into->window != old.window;
}

bool tt_vm_join(const struct tt_vm_verifier *v, struct tt_vm_state *into,
		const struct tt_vm_state *state, enum tt_vm_widen widen)
{
	bool changed = false;

	for (unsigned i = 0; i < TT_FP; i++)
		changed |= tt_vm_join_reg(v, &into->reg[i], &state->reg[i], widen);
	if (memcmp(into->slot, state->slot, sizeof into->slot) == 0)
		return changed;
	for (unsigned i = 0; i < TT_SLOTS; i++) {
		if (into->slot[i] == state->slot[i] || !into->slot[i])
			continue;
		into->slot[i] = 0;
		changed = true;
	}
	if (changed && widen == TT_TO_TOP)
		memset(into->slot, 0, sizeof into->slot);
	return changed;
}

static void add_threshold(struct tt_vm_verifier *v, uint64_t number)
{
	unsigned i = 0;

	while (i < v->n_thresholds && v->threshold[i] < number)
		i++;
	if (i < v->n_thresholds && v->threshold[i] == number)
		return;
	memmove(&v->threshold[i + 1], &v->threshold[i],
		(v->n_thresholds - i) * sizeof v->threshold[0]);
	v->threshold[i] = number;
	v->n_thresholds++;
}

void tt_vm_find_thresholds(struct tt_vm_verifier *v)
{
	/* Signed comparisons want to know that a number is not negative. */
	add_threshold(v, UINT64_MAX);
	add_threshold(v, INT64_MAX);
	add_threshold(v, UINT32_MAX);
	add_threshold(v, INT32_MAX);
	for (uint32_t i = 0; i < v->object->n_insns && v->n_thresholds + 2 <= TT_THRESHOLDS; i++) {
		const struct tutti_vm_insn *insn = &v->object->insns[i];
		bool narrow = TT_CLASS(insn->code) == TT_JMP32;

		if ((v->mark[i] & TT_MARK_SECOND) || TT_SRC(insn->code) != TT_K ||
		    (TT_CLASS(insn->code) != TT_JMP && !narrow))
			continue;
		switch (TT_OP(insn->code)) {
		case TT_JA:
		case TT_CALL:
		case TT_EXIT:
		case TT_JSET: break;
		default:
			/* A counter stays below what it is compared with, or reaches it. */
			if (insn->imm <= 0)
				break;
			add_threshold(v, (uint64_t)insn->imm - 1);
			add_threshold(v, (uint64_t)insn->imm);
		}
	}
}
