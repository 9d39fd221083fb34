/* SPDX-License-Identifier: MIT */
/* How many instructions a run executes: for measurements. */
#ifndef TT_VM_COUNT_H
#define TT_VM_COUNT_H

#include <tutti/vm.h>

/*
 * As tutti_vm_interpret, somewhat slower. *ret_insns: instructions begun, the
 * wide one as one, one that faults included; also after a fault.
 */
int tt_vm_count(struct tutti_vm_context *context, int entry, const uint64_t *args, unsigned n_args,
		uint64_t budget, struct tutti_vm_result *ret_result, uint64_t *ret_insns);

#endif
