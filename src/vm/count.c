/* SPDX-License-Identifier: MIT */
/*
 * The interpreter once more, counting: every instruction that runs, the wide
 * one once, and nothing else. The budget would not do: it counts at jumps back
 * and calls, what was jumped over as well. The counting interpreter is the
 * same source, so that what it counts is what the other one runs.
 */
#include "vm/count.h"

#include "vm/vm_int.h"

static _Thread_local uint64_t steps;

static bool interpret_and_count(struct tutti_vm_context *context, uint32_t pc);

#define TT_VM_STEP steps++
#define tt_vm_interpret interpret_and_count
#include "vm/interp.c" /* NOLINT(bugprone-suspicious-include): see above */
#undef tt_vm_interpret

int tt_vm_count(struct tutti_vm_context *context, int entry, const uint64_t *args, unsigned n_args,
		uint64_t budget, struct tutti_vm_result *ret_result, uint64_t *ret_insns)
{
	int err;

	steps = 0;
	err = tt_vm_interpret_by(context, entry, args, n_args, budget, interpret_and_count,
				 ret_result);
	*ret_insns = steps;
	return err;
}
