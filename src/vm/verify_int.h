/* SPDX-License-Identifier: MIT */
/*
 * Inside the verifier. The parts:
 *
 *   verify_insn.c    instructions looked at alone
 *   verify.c         control flow, the way to the fixed point, the last pass
 *   verify_state.c   what is known of registers: joins and widening
 *   verify_alu.c     what arithmetic and comparisons do to it
 *   verify_access.c  loads, stores, atomics: refusals and proofs
 *   verify_call.c    call graph, hooks, helper calls
 *
 * The analysis has two phases. The first finds, for each start of a basic
 * block, a state that covers every way to it; it refuses nothing (an unset
 * register that is read gives an unknown number there). The second walks every
 * reached block once with its final state, refuses what must be refused and
 * writes the notes. So what is refused does not depend on the order of visits.
 *
 * Soundness: compiled code omits checks on the word of the notes. A proof
 * rests on three things only:
 * - the interval [min, max] of a TT_NUMBER, which holds every value that the
 *   register can have as a 64-bit number: each rule of verify_alu.c keeps that,
 *   or gives up to [0, 2^64 - 1] (2^32 - 1 after a 32-bit operation);
 * - the interval of a TT_FRAME, of offsets from the frame pointer of the
 *   function that runs; it never leaves that function (calls and exits turn it
 *   into a number of which nothing is known);
 * - sizes that hold during a run: the frame's own 512 bytes, the object's data
 *   and rodata, and the bytes that a hook declares for its arguments, which
 *   tutti_vm_run holds its caller to.
 * Never on memory: what is loaded is unknown. `window` of a register and the
 * slots are hints; they choose which window an access tries first, and which
 * words a refusal has.
 */
#ifndef TT_VM_VERIFY_INT_H
#define TT_VM_VERIFY_INT_H

#include "vm/isa.h"
#include "vm/verify.h"

enum tt_vm_reg_kind {
	TT_UNSET, /* read only to be refused; window: enum tt_vm_unset */
	TT_NUMBER,
	TT_FRAME,  /* own frame pointer plus (int64_t)min to (int64_t)max */
	TT_MAPREF, /* min: index */
};

/* Why a register is unset: for the message. */
enum tt_vm_unset { TT_NEVER_SET, TT_LOST_IN_CALL, TT_NOT_RETURNED };

struct tt_vm_reg {
	uint64_t min, max; /* TT_NUMBER: unsigned */
	uint8_t kind;
	uint8_t window; /* a hint: where it points, as an address; 0: no idea */
};

/* Offsets of TT_FRAME stay this small, so that sums of them cannot wrap. */
#define TT_FRAME_OFF_MAX (1 << 29)

enum { TT_SLOTS = TUTTI_VM_FRAME_BYTES / 8 };

struct tt_vm_state {
	struct tt_vm_reg reg[TT_REGS];
	uint8_t slot[TT_SLOTS]; /* of the own frame, lowest first: the window that was stored */
};

/* Where a state is kept: the start of a basic block. */
struct tt_vm_block {
	uint32_t insn, func;
	bool seen; /* its state means something */
	bool head; /* some jump goes back to it */
	uint8_t changes;
};

struct tt_vm_vcall {
	uint32_t insn, caller, callee;
	uint32_t next; /* call of the same callee, plus one; 0: none */
};

struct tt_vm_vfunc {
	int hook;	/* of an entry; -1 */
	unsigned level; /* longest way from an entry, which has 1; 0: no entry leads here */
	bool active;	/* on the way that is followed just now */
	bool returns;	/* an exit is reached */
	bool relied;	/* what it may rely on has been told by a caller */
	uint8_t ret_changes;
	uint32_t calls; /* first of its calls; they lie side by side */
	uint32_t n_calls;
	uint32_t sites;			  /* first call of it, plus one */
	struct tt_vm_reg ret;		  /* r0 at its exits */
	uint64_t helpers;		  /* allowed, whichever entry led here */
	uint32_t bytes[TUTTI_VM_WINDOWS]; /* always there, whichever entry led here */
	uint32_t ctx_window; /* of the hooks' first arguments; 0: a number, or they differ */
};

enum { TT_THRESHOLDS = 20 };

struct tt_vm_verifier {
	const struct tutti_vm_object *object;
	const struct tutti_vm_env *env;
	struct tutti_vm_error *error;
	struct tt_vm_note *notes;
	uint8_t *mark;	    /* per instruction: TT_MARK_... */
	uint32_t *func_of;  /* per instruction; kept for block starts and calls */
	uint32_t *block_of; /* per instruction: index plus one, for block starts */
	struct tt_vm_block *blocks;
	struct tt_vm_state *states; /* per block */
	uint32_t n_blocks;
	uint64_t *pending; /* a bit per block */
	struct tt_vm_vfunc *funcs;
	struct tt_vm_vcall *calls;
	uint32_t n_calls;
	uint64_t threshold[TT_THRESHOLDS]; /* ascending; the last is the largest number */
	unsigned n_thresholds;
	uint64_t steps; /* instructions visited */
};

enum { TT_MARK_SECOND = 1, TT_MARK_START = 2, TT_MARK_HEAD = 4 };

/* How willing a join is to give up bounds, so that loops come to rest. */
enum tt_vm_widen { TT_EXACT, TT_TO_THRESHOLD, TT_TO_TOP };

#define tt_vm_refuse(v, insn, reg, ...)                                                            \
	tt_vm_fail((v)->error, -EACCES, (v)->object, (int32_t)(insn), reg, __VA_ARGS__)

/* --- verify_state.c --- */
static inline struct tt_vm_reg tt_vm_range(uint64_t min, uint64_t max, uint8_t window)
{
	return (struct tt_vm_reg){.min = min, .max = max, .kind = TT_NUMBER, .window = window};
}

static inline struct tt_vm_reg tt_vm_any(uint8_t window)
{
	return tt_vm_range(0, UINT64_MAX, window);
}

static inline struct tt_vm_reg tt_vm_unset(enum tt_vm_unset why)
{
	return (struct tt_vm_reg){.kind = TT_UNSET, .window = (uint8_t)why};
}

static inline bool tt_vm_is_known(const struct tt_vm_reg *r)
{
	return r->kind == TT_NUMBER && r->min == r->max;
}

/* What a register is to another function: an own frame's address is just somewhere in the stack. */
struct tt_vm_reg tt_vm_outside(struct tt_vm_reg r);
/* Makes *into cover both. True when that changed it. */
bool tt_vm_join_reg(const struct tt_vm_verifier *v, struct tt_vm_reg *into,
		    const struct tt_vm_reg *r, enum tt_vm_widen widen);
bool tt_vm_join(const struct tt_vm_verifier *v, struct tt_vm_state *into,
		const struct tt_vm_state *state, enum tt_vm_widen widen);
/* The thresholds: numbers that the object's jumps compare with. */
void tt_vm_find_thresholds(struct tt_vm_verifier *v);

/* --- verify_alu.c --- */
void tt_vm_alu(struct tt_vm_state *state, const struct tutti_vm_insn *insn);
/* What a comparison says of its registers where it jumps (or does not). */
void tt_vm_refine(struct tt_vm_state *state, const struct tutti_vm_insn *insn, bool taken);

/* --- verify_access.c --- */
/* Effects of a load, store or atomic (phase one and two). */
void tt_vm_access(const struct tt_vm_verifier *v, const struct tt_vm_vfunc *func,
		  struct tt_vm_state *state, const struct tutti_vm_insn *insn);
/* Refusals and proofs (phase two). */
int tt_vm_check_access(struct tt_vm_verifier *v, const struct tt_vm_vfunc *func,
		       const struct tt_vm_state *state, uint32_t insn);
/* Memory that a helper gets: at least min_bytes at the register. */
int tt_vm_check_memory(struct tt_vm_verifier *v, const struct tt_vm_vfunc *func,
		       const struct tt_vm_reg *r, uint32_t insn, unsigned reg, uint64_t min_bytes,
		       bool write);
void tt_vm_forget_slots(struct tt_vm_state *state);

/* --- verify_call.c --- */
/* Call graph, hooks, and what of them each function may rely on. */
int tt_vm_find_calls(struct tt_vm_verifier *v);
/* Effects of a helper call, and its refusals. */
void tt_vm_helper_call(const struct tt_vm_verifier *v, struct tt_vm_state *state,
		       const struct tutti_vm_insn *insn);
int tt_vm_check_helper_call(struct tt_vm_verifier *v, const struct tt_vm_vfunc *func,
			    const struct tt_vm_state *state, uint32_t insn);
/* The state that an entry starts with, and that a callee does. */
void tt_vm_entry_state(const struct tt_vm_verifier *v, const struct tt_vm_vfunc *func,
		       struct tt_vm_state *ret);
void tt_vm_callee_state(const struct tt_vm_state *at_call, struct tt_vm_state *ret);
void tt_vm_after_call(struct tt_vm_state *state, const struct tt_vm_reg *ret);
/* The function that a local call calls; its index, or -1 when none starts there. */
int64_t tt_vm_callee(const struct tutti_vm_object *object, uint32_t insn);
/* "r3 is read before ..." */
int tt_vm_check_set(struct tt_vm_verifier *v, const struct tt_vm_state *state, uint32_t insn,
		    unsigned reg);

#endif
