/* SPDX-License-Identifier: MIT */
/*
 * Instances of modules in devices. What an instance is stands in the fabric's
 * memory, its code in the fabric's code; every member that drives the device
 * has its own context to run it in, made when it first does.
 */
#ifndef TT_DEVICE_INSTANCE_H
#define TT_DEVICE_INSTANCE_H

#include "device/code.h"
#include "device/fabric.h"
#include "device/map.h"

#include <tutti/vm.h>

/* What modules may call, and where their handlers are called from (functions.c). */
const struct tutti_vm_env *tt_module_env(void);

struct tt_binding {
	uint32_t device;
	uint32_t group; /* TT_ANY */
	uint32_t port;	/* of the member; TT_ANY */
	uint64_t
		budget; /* instructions for a handler; 0: TT_DEFAULT_BUDGET; at most TT_MOST_BUDGET */
};

enum {
	TT_DEFAULT_BUDGET = 100000,
	TT_MOST_BUDGET = 100000000,
	TT_QUARANTINE_FAULTS = 8,
	TT_QUARANTINE_MS = 1000
};

/*
 * Places a program in a device; from then on its handler "mdo/packet" sees the
 * packets that the binding names. Only where the fabric's code was made
 * (-EPERM elsewhere). -ENOENT: no handler for packets; -EINVAL, -E2BIG: a map
 * that cannot be, the name or the budget; -ENOSPC: no place or memory left; -ENODEV;
 * -EAGAIN: somebody drives the device all the time.
 * Loading and unloading are one at a time in a fabric: the caller's task. Returns the
 * instance's number.
 */
int tt_instance_load(struct tt_member *me, const struct tutti_vm_program *program, const char *name,
		     const struct tt_binding *binding);
/* -ENOENT; -EAGAIN as above. Its maps are gone afterwards. */
int tt_instance_unload(struct tt_member *me, uint32_t instance);

/* The map of this name, to read and write. -ENOENT. Valid until the instance is unloaded. */
int tt_instance_map(struct tt_member *me, uint32_t instance, const char *name,
		    struct tt_map *ret_map);

/* What the member has made for instances. */
void tt_instances_forget(struct tt_member *me);

#endif
