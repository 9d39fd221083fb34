/* SPDX-License-Identifier: MIT */
/*
 * The verifier: whether a linked object may run in an environment, and what it
 * found out that lets it run faster.
 */
#ifndef TT_VM_VERIFY_H
#define TT_VM_VERIFY_H

#include "vm/object.h"

/* What is known of an instruction; for loads, stores and atomics, the last three. */
struct tt_vm_note {
	uint8_t reached; /* some path leads here; others are never compiled */
	uint8_t target;	 /* some jump leads here */
	uint8_t window;	 /* where the access probably goes; 0: no idea. A hint */
	uint8_t proved;	 /* it lies wholly inside that window, whatever happens: window and off
			    hold, and no check is needed */
	uint8_t within;	 /* as proved, but at an address that only the register knows: window
			    holds, and no check is needed. Never with proved */
	int32_t off;	 /* proved: of the access's first byte. STACK: from the function's own
			    frame pointer, negative; others: from the window's start */
};

struct tt_vm_verified {
	struct tt_vm_note *notes; /* n_insns; to be freed */
	int16_t *
		hook_of_func; /* n_funcs; the environment's hook of an entry, -1: no entry; freed */
};

/*
 * Checks every function that an entry reaches; instructions that nothing
 * reaches, too, as far as they can be looked at alone (known code, fields zero,
 * jumps within the function). What follows a call of a function that never
 * exits is not reached, nor is the second half of a wide instruction; targets
 * of reached jumps are. Every function ends with an exit or a jump.
 * Externs must be linked: there are no calls with TT_CALL_EXTERN any more.
 *
 * Relied on: an argument for which the hook declares bytes is the address of
 * its window's first byte, and the window has so many bytes for as long as the
 * run lasts (tutti_vm_run refuses others). Frame pointers are multiples of 512.
 *
 * -EACCES, -ENOENT (no entry, no hook for the section of an entry, no such
 * helper), -EINVAL (env), -ENOMEM: ret_error says why. ret is written on
 * success only.
 */
int tt_vm_verify(const struct tutti_vm_object *object, const struct tutti_vm_env *env,
		 struct tt_vm_verified *ret, struct tutti_vm_error *ret_error);

/*
 * The part of it that knows no state: code known, unused fields zero, register
 * numbers in range, second half of a wide instruction in its place. Returns 0
 * and how many slots the instruction takes, or -EACCES.
 */
int tt_vm_check_insn(const struct tutti_vm_object *object, uint32_t insn, unsigned *ret_slots,
		     struct tutti_vm_error *ret_error);

#endif
