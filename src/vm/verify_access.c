/* SPDX-License-Identifier: MIT */
/*
 * Loads, stores and atomics: what they do to registers, what is refused because
 * it would fault whenever it is reached, and what is proved never to.
 *
 * An access that is proved is one of these:
 * - stack: the base is a TT_FRAME, and all of [min + off, max + off + bytes)
 *   lies in [-512, 0): every frame has its 512 bytes for as long as it runs;
 * - data, rodata (loads): the base is a TT_NUMBER, and all of the interval lies
 *   within the object's bytes there, which every context has from its creation;
 * - windows of the caller (loads): the same, within the bytes that the hooks of
 *   all entries that lead here declare. Stores there may meet a window that is
 *   read-only, so they are always checked.
 * Atomics only when the address is one number and a multiple of their size:
 * frame pointers are multiples of 512, windows begin at multiples of 8.
 */
#include "vm/verify_int.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static const char *const window_names[TUTTI_VM_WINDOWS] = {
	"memory",  "stack",  "data",	   "read-only data",
	"context", "packet", "map memory", "extra memory"};

/* An access, or what a helper gets: bytes from a base register plus off. */
struct access {
	uint32_t insn;
	unsigned reg;
	int64_t off;
	uint64_t bytes;
	bool write;
	bool atomic;
};

void tt_vm_forget_slots(struct tt_vm_state *state)
{
	memset(state->slot, 0, sizeof state->slot);
}

/* --- effects ----------------------------------------------------------------------- */

/* The slot that a load or store of eight bytes meets exactly, or -1. */
static int slot_of(const struct tt_vm_reg *base, int off, unsigned bytes)
{
	int64_t at = (int64_t)base->min + off + TUTTI_VM_FRAME_BYTES;

	if (base->kind != TT_FRAME || base->min != base->max || bytes != 8 || at % 8 || at < 0 ||
	    at >= TUTTI_VM_FRAME_BYTES)
		return -1;
	return (int)(at / 8);
}

/* Bytes are written at base plus off: what was stored there is forgotten. */
static void overwrite(struct tt_vm_state *state, const struct tt_vm_reg *base, int off,
		      unsigned bytes)
{
	int64_t low, high;

	if (base->kind != TT_FRAME) {
		if (base->window == TUTTI_VM_STACK)
			tt_vm_forget_slots(state);
		return;
	}
	low = (int64_t)base->min + off + TUTTI_VM_FRAME_BYTES;
	high = (int64_t)base->max + off + bytes + TUTTI_VM_FRAME_BYTES;
	if (low < 0)
		low = 0;
	if (high > TUTTI_VM_FRAME_BYTES)
		high = TUTTI_VM_FRAME_BYTES;
	for (int64_t i = low / 8; i * 8 < high; i++)
		state->slot[i] = 0;
}

/* Where a pointer leads that the hook's ctx holds at this place; 0: none is declared. */
static uint8_t field_window(const struct tt_vm_verifier *v, const struct tt_vm_vfunc *func,
			    const struct tt_vm_reg *base, int off)
{
	const struct tutti_vm_hook *hook;
	uint64_t at = base->min + (uint64_t)(int64_t)off - tutti_vm_address(TUTTI_VM_CTX);

	if (func->hook < 0 || !tt_vm_is_known(base) || base->window != TUTTI_VM_CTX)
		return 0;
	hook = &v->env->hooks[func->hook];
	for (uint32_t i = 0; i < hook->n_fields; i++)
		if (hook->fields[i].off == at)
			return hook->fields[i].window;
	return 0;
}

static void load(const struct tt_vm_verifier *v, const struct tt_vm_vfunc *func,
		 struct tt_vm_state *state, const struct tutti_vm_insn *insn)
{
	const struct tt_vm_reg *base = &state->reg[tt_vm_src(insn)];
	struct tt_vm_reg *dst = &state->reg[tt_vm_dst(insn)];
	unsigned bytes = tt_vm_bytes(insn->code);
	int slot = slot_of(base, insn->off, bytes);

	if (slot >= 0)
		*dst = tt_vm_any(state->slot[slot]);
	else if (bytes == 8)
		*dst = tt_vm_any(field_window(v, func, base, insn->off));
	else if (TT_MODE(insn->code) == TT_MEMSX)
		*dst = tt_vm_any(0);
	else
		*dst = tt_vm_range(0, UINT64_MAX >> (64 - 8 * bytes), 0);
}

static void atomic(struct tt_vm_state *state, const struct tutti_vm_insn *insn)
{
	unsigned bytes = tt_vm_bytes(insn->code);
	struct tt_vm_reg old = tt_vm_range(0, UINT64_MAX >> (64 - 8 * bytes), 0);

	overwrite(state, &state->reg[tt_vm_dst(insn)], insn->off, bytes);
	if (insn->imm == TT_CMPXCHG)
		state->reg[TT_R0] = old;
	else if (insn->imm & TT_FETCH)
		state->reg[tt_vm_src(insn)] = old;
}

void tt_vm_access(const struct tt_vm_verifier *v, const struct tt_vm_vfunc *func,
		  struct tt_vm_state *state, const struct tutti_vm_insn *insn)
{
	const struct tt_vm_reg *base = &state->reg[tt_vm_dst(insn)];
	unsigned bytes = tt_vm_bytes(insn->code);
	int slot;

	if (TT_CLASS(insn->code) == TT_LDX) {
		load(v, func, state, insn);
		return;
	}
	if (TT_MODE(insn->code) == TT_ATOMIC) {
		atomic(state, insn);
		return;
	}
	overwrite(state, base, insn->off, bytes);
	slot = slot_of(base, insn->off, bytes);
	if (slot >= 0 && TT_CLASS(insn->code) == TT_STX) {
		const struct tt_vm_reg *src = &state->reg[tt_vm_src(insn)];

		state->slot[slot] = src->kind == TT_UNSET ? 0 : src->window;
	}
}

/* --- refusals and proofs ----------------------------------------------------------- */

/* Bytes that are there in a window at any time while the function runs. */
static uint64_t bytes_of(const struct tt_vm_verifier *v, const struct tt_vm_vfunc *func,
			 unsigned window)
{
	switch (window) {
	case TUTTI_VM_DATA: return v->object->data_bytes;
	case TUTTI_VM_RODATA: return v->object->rodata_bytes;
	default: return func->bytes[window];
	}
}

static const char *verb(const struct access *a)
{
	return a->atomic ? "atomic operation" : a->write ? "write" : "read";
}

static int check_frame(struct tt_vm_verifier *v, const struct tt_vm_reg *r, const struct access *a,
		       struct tt_vm_note *note)
{
	int64_t low = (int64_t)r->min + a->off, high = (int64_t)r->max + a->off;

	/* An interval is refused only when no offset in it would do. */
	if (high < -TUTTI_VM_FRAME_BYTES || low + (int64_t)a->bytes > 0)
		return tt_vm_refuse(v, a->insn, (int32_t)a->reg,
				    "%s of %" PRIu64 " bytes at r10%+" PRId64
				    ", outside the function's stack frame (r10-512 to r10-1)",
				    verb(a), a->bytes, low + (int64_t)a->bytes > 0 ? low : high);
	if (a->atomic && low == high && low % (int64_t)a->bytes)
		return tt_vm_refuse(v, a->insn, (int32_t)a->reg,
				    "atomic operation on %" PRIu64 " bytes at r10%+" PRId64
				    " (align the address to %" PRIu64 " bytes)",
				    a->bytes, low, a->bytes);
	note->window = TUTTI_VM_STACK;
	if (low < -TUTTI_VM_FRAME_BYTES || high + (int64_t)a->bytes > 0)
		return 0;
	if (low == high) {
		note->proved = 1;
		note->off = (int32_t)low;
	} else if (!a->atomic) {
		note->within = 1;
	}
	return 0;
}

/* An address that is one number, and cannot do. */
static int check_known(struct tt_vm_verifier *v, const struct tt_vm_vfunc *func,
		       const struct tt_vm_reg *r, const struct access *a)
{
	uint64_t at = r->min + (uint64_t)a->off, window = r->min >> TUTTI_VM_WINDOW_SHIFT;
	uint64_t there, off = at - (window << TUTTI_VM_WINDOW_SHIFT);

	/* A number of the program's own is an address in its own data, or a mistake. */
	if (window == 0 || window >= TUTTI_VM_WINDOWS ||
	    (window != TUTTI_VM_DATA && window != TUTTI_VM_RODATA && window != r->window)) {
		if (r->min == 0)
			return tt_vm_refuse(v, a->insn, (int32_t)a->reg,
					    "%s through r%u, which is NULL here (give it an "
					    "address, or test it before)",
					    verb(a), a->reg);
		return tt_vm_refuse(v, a->insn, (int32_t)a->reg,
				    "%s through r%u, which is the number 0x%" PRIx64
				    " here (use an address: of the stack, of data, of what the "
				    "hook or a helper gives)",
				    verb(a), a->reg, r->min);
	}
	there = bytes_of(v, func, (unsigned)window);
	if ((there || window == TUTTI_VM_DATA || window == TUTTI_VM_RODATA) &&
	    (a->bytes > there || off > there - a->bytes))
		return tt_vm_refuse(v, a->insn, (int32_t)a->reg,
				    "%s of %" PRIu64 " bytes at byte %" PRId64
				    " of the %s, which has %" PRIu64 " (stay inside)",
				    verb(a), a->bytes, (int64_t)off, window_names[window], there);
	if (window == TUTTI_VM_RODATA && a->write)
		return tt_vm_refuse(v, a->insn, (int32_t)a->reg,
				    "%s to read-only data (make the variable not const)", verb(a));
	if (a->atomic && at % a->bytes)
		return tt_vm_refuse(v, a->insn, (int32_t)a->reg,
				    "atomic operation on %" PRIu64 " bytes at byte %" PRId64
				    " of the %s (align the address to %" PRIu64 " bytes)",
				    a->bytes, (int64_t)off, window_names[window], a->bytes);
	return 0;
}

static int check_number(struct tt_vm_verifier *v, const struct tt_vm_vfunc *func,
			const struct tt_vm_reg *r, const struct access *a, struct tt_vm_note *note)
{
	uint64_t low = r->min + (uint64_t)a->off, high = r->max + (uint64_t)a->off, window, there;
	bool known = r->min == r->max;

	note->window = r->window;
	if (known) {
		int err = check_known(v, func, r, a);

		if (err < 0)
			return err;
	}
	/* Offsets are small: one that wraps takes low above high, or both out of every window. */
	window = low >> TUTTI_VM_WINDOW_SHIFT;
	if (low > high || window < TUTTI_VM_DATA || window >= TUTTI_VM_WINDOWS)
		return 0;
	there = bytes_of(v, func, (unsigned)window);
	if (a->bytes > there ||
	    high - tutti_vm_address((enum tutti_vm_window)window) > there - a->bytes)
		return 0;
	note->window = (uint8_t)window;
	if (a->write && window != TUTTI_VM_DATA) {
		if (window == TUTTI_VM_RODATA)
			return tt_vm_refuse(v, a->insn, (int32_t)a->reg,
					    "%s to read-only data (make the variable not const)",
					    verb(a));
		return 0;
	}
	if (known) {
		note->proved = 1;
		note->off = (int32_t)(low - tutti_vm_address((enum tutti_vm_window)window));
	} else if (!a->atomic) {
		note->within = 1;
	}
	return 0;
}

static int check(struct tt_vm_verifier *v, const struct tt_vm_vfunc *func,
		 const struct tt_vm_reg *r, const struct access *a, struct tt_vm_note *note)
{
	switch (r->kind) {
	case TT_FRAME: return check_frame(v, r, a, note);
	case TT_MAPREF:
		return tt_vm_refuse(v, a->insn, (int32_t)a->reg,
				    "%s through r%u, which is the map %s (look a value up, and use "
				    "its address)",
				    verb(a), a->reg, v->object->maps[r->min].name);
	default: return check_number(v, func, r, a, note);
	}
}

int tt_vm_check_access(struct tt_vm_verifier *v, const struct tt_vm_vfunc *func,
		       const struct tt_vm_state *state, uint32_t index)
{
	const struct tutti_vm_insn *insn = &v->object->insns[index];
	bool reads = TT_CLASS(insn->code) == TT_LDX;
	struct access a = {.insn = index,
			   .reg = reads ? tt_vm_src(insn) : tt_vm_dst(insn),
			   .off = insn->off,
			   .bytes = tt_vm_bytes(insn->code),
			   .write = !reads,
			   .atomic = TT_CLASS(insn->code) == TT_STX &&
				     TT_MODE(insn->code) == TT_ATOMIC};
	int err = tt_vm_check_set(v, state, index, a.reg);

	if (!err && TT_CLASS(insn->code) == TT_STX)
		err = tt_vm_check_set(v, state, index, tt_vm_src(insn));
	if (!err && a.atomic && insn->imm == TT_CMPXCHG)
		err = tt_vm_check_set(v, state, index, TT_R0);
	if (err < 0)
		return err;
	return check(v, func, &state->reg[a.reg], &a, &v->notes[index]);
}

int tt_vm_check_memory(struct tt_vm_verifier *v, const struct tt_vm_vfunc *func,
		       const struct tt_vm_reg *r, uint32_t insn, unsigned reg, uint64_t min_bytes,
		       bool write)
{
	struct access a = {.insn = insn, .reg = reg, .bytes = min_bytes, .write = write};
	struct tt_vm_note unused = {0};

	if (min_bytes > TUTTI_VM_WINDOW_BYTES)
		return tt_vm_refuse(v, insn, (int32_t)reg,
				    "%" PRIu64 " bytes of memory are wanted in r%u, more than any "
				    "window has (make them fewer)",
				    min_bytes, reg);
	return check(v, func, r, &a, &unused);
}
