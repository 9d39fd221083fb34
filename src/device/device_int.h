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

/* Bits of a word that the driver alone writes, and members read. */
static inline void tt_note(uint32_t *word, uint32_t on, uint32_t off)
{
	tt_store_relaxed(word, (tt_load_relaxed(word) & ~off) | on);
}

/* The lowest bit of set at or after from, going round; set is not empty. */
static inline uint32_t tt_next_of(uint32_t set, uint32_t from)
{
	uint32_t later = set & (uint32_t)(~0ull << from);

	return (uint32_t)__builtin_ctz(later ? later : set);
}

#define TT_NO_ENTRY (~(tt_ring_entry)0)

/* The other end of a link. */
struct tt_peer {
	struct tt_device_mem *dev;
	struct tt_port *port;
	uint32_t device, number;
};

/* In a plain device all packets of an input wait in one queue. */
static inline struct tt_voq *tt_queue(const struct tt_driver *d, uint32_t input, uint32_t output)
{
	return &d->dev->voq[input][d->dev->fifo ? 0 : output];
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
uint32_t tt_outputs_of(const struct tt_driver *d, const struct tt_packet_head *head,
		       uint32_t input);
/* Of a plain queue: notes the output that its first packet waits for. */
void tt_look_at_first(struct tt_driver *d, uint32_t input);
/* False: what stands there is no link. */
bool tt_peer_of(const struct tt_driver *d, uint32_t output, struct tt_peer *ret_peer);
/* There is room at the output. The receiver holds the slot, too, and knows. */
void tt_deliver(struct tt_driver *d, uint32_t output, struct tt_slot *slot, tt_ring_entry entry);

/* --- recover.c ----------------------------------------------------------------------------- */

/* The device was a dead driver's: what he had in hand, and what he may have left uncertain. */
void tt_recover(struct tt_driver *d);
/* Slots of a dead member that he had made the device hold, but not given to it yet. */
void tt_drop_unposted(struct tt_driver *d, uint32_t member);
/* Counts anew the credits of links for which a driver died. */
void tt_settle_links(struct tt_driver *d);

/* --- drive.c ------------------------------------------------------------------------------ */

struct tt_driver tt_driver_of(struct tt_member *me, uint32_t device);
/* Once, for one that has another device: false, somebody drives. */
bool tt_device_try(struct tt_member *me, uint32_t device);
/* What was posted meanwhile is in touched, to be driven later. */
void tt_device_release(struct tt_member *me, uint32_t device);
/* The driver is known to be dead: takes the device from him and repairs it. */
void tt_device_inherit(struct tt_member *me, uint32_t device, uint32_t driver);

/* --- member.c ---------------------------------------------------------------------------- */

/* Bit: devices in which packets of the member's own are. */
uint32_t tt_member_under_way(const struct tt_fabric_mem *mem, uint32_t member);
/* There is something for the member, or something to do: wakes it if it sleeps. True: it did. */
bool tt_member_wake(struct tt_fabric_mem *mem, uint32_t member);

#endif
