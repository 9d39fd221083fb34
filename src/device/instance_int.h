/* SPDX-License-Identifier: MIT */
/* Instances as the driver of their device runs them. */
#ifndef TT_DEVICE_INSTANCE_INT_H
#define TT_DEVICE_INSTANCE_INT_H

#include "device/device_int.h"
#include "device/instance.h"

#include <tutti/mdo_module.h>

enum { TT_INSTANCE_MAPS = 32 };

/* A member's side of an instance. */
struct tt_instance {
	uint32_t generation; /* 0: none made */
	uint32_t image;	     /* that it was made of, */
	uint64_t serial;     /* and which that was */
	struct tutti_vm_program *program;
	struct tutti_vm_context *context;
	int entry;
	struct mdo_packet packet; /* window TUTTI_VM_CTX */
	struct tt_map maps[TT_INSTANCE_MAPS];
	uint32_t n_maps;
	uint8_t *maps_memory; /* window TUTTI_VM_MAPS */
};

/* A handler in progress: what functions get as their user. */
struct tt_call {
	struct tt_driver *driver;
	struct tt_instance_mem *instance;
	struct tt_instance *side;
	struct tt_packet_head *head; /* a copy, which functions may change */
	uint32_t index;
};

/* Would any look at such a packet? */
bool tt_instances_want(const struct tt_driver *d, const struct tt_packet_head *head);
/*
 * All instances that are bound to the device look at the packet, in their
 * order. head: a copy of the slot's; they may change it. False: it is dropped.
 */
bool tt_instances_run(struct tt_driver *d, struct tt_slot *slot, uint32_t input,
		      struct tt_packet_head *head);

/* A packet of the device's own. -EBUSY: no slot, or no room in a queue. */
int tt_device_emit(struct tt_driver *d, const struct tt_packet_head *head, const void *bytes);

#endif
