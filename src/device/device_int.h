/* SPDX-License-Identifier: MIT */
/* A driver's view of the device that it drives. */
#ifndef TT_DEVICE_INT_H
#define TT_DEVICE_INT_H

#include "device/fabric.h"
#include "device/slot.h"

struct tt_driver {
	struct tt_member *me;
	struct tt_fabric_mem *mem;
	struct tt_device_mem *dev;
	uint32_t device;
	uint32_t ports; /* bit: port that is there */
};

static inline uint32_t tt_bit(uint32_t index)
{
	return 1u << index;
}

/* The lowest bit of set at or after from, going round; set is not empty. */
static inline uint32_t tt_next_of(uint32_t set, uint32_t from)
{
	uint32_t later = set & (uint32_t)(~0ull << from);

	return (uint32_t)__builtin_ctz(later ? later : set);
}

/* --- forward.c ------------------------------------------------------------------------- */

/* The device is taken. Gives up what waits for this output, and what came in by it and was not taken. */
void tt_forget_port(struct tt_driver *d, uint32_t port);
/* Takes packets that came in at the ports in inputs. Returns those at which more is to be had. */
uint32_t tt_take_inputs(struct tt_driver *d, uint32_t inputs, unsigned most, unsigned *ret_moved);
/* One packet from each input to each output at most. Returns how many. */
unsigned tt_match(struct tt_driver *d, unsigned rounds);
/* Says what is owed on links on which nothing goes back by itself. */
void tt_return_credits(struct tt_driver *d);
/* After a driver died: what it had in hand. */
void tt_recover(struct tt_driver *d);

/* --- drive.c ------------------------------------------------------------------------------ */

struct tt_driver tt_driver_of(struct tt_member *me, uint32_t device);

/* --- member.c ---------------------------------------------------------------------------- */

/* There is something for the member, or something to do: wakes it if it sleeps. True: it did. */
bool tt_member_wake(struct tt_fabric_mem *mem, uint32_t member);

#endif
