/* SPDX-License-Identifier: MIT */
/* Slots, rings and queues in a fabric's memory: each step once, and checked. */
#ifndef TT_DEVICE_SLOT_H
#define TT_DEVICE_SLOT_H

#include "device/fabric_mem.h"

#include <stdbool.h>
#include <stddef.h>

/* --- who holds a slot --------------------------------------------------------------------- */

static inline bool tt_slot_free(const struct tt_slot *slot)
{
	uint64_t held = tt_load_acquire(&slot->held_by_devices);

	for (unsigned i = 0; i < TT_HOLDER_WORDS; i++)
		held |= tt_load_acquire(&slot->held_by_members[i]);
	return !held;
}

static inline void tt_slot_hold_device(struct tt_slot *slot, uint32_t device)
{
	tt_fetch_or(&slot->held_by_devices, 1u << device);
}

static inline void tt_slot_drop_device(struct tt_slot *slot, uint32_t device)
{
	tt_fetch_and(&slot->held_by_devices, ~(1u << device));
}

static inline void tt_slot_hold_member(struct tt_slot *slot, uint32_t member)
{
	tt_fetch_or(&slot->held_by_members[member / 64], 1ull << member % 64);
}

static inline void tt_slot_drop_member(struct tt_slot *slot, uint32_t member)
{
	tt_fetch_and(&slot->held_by_members[member / 64], ~(1ull << member % 64));
}

/* By others than this device. It can only become fewer: who does not hold it cannot pass it on. */
static inline bool tt_slot_shared(const struct tt_slot *slot, uint32_t device)
{
	uint64_t held = tt_load_acquire(&slot->held_by_devices) & ~(1u << device);

	for (unsigned i = 0; i < TT_HOLDER_WORDS; i++)
		held |= tt_load_acquire(&slot->held_by_members[i]);
	return held;
}

/* The slot that an entry names, if it is one and still the use that was meant; else NULL. */
static inline struct tt_slot *tt_slot_of(struct tt_fabric_mem *mem, tt_ring_entry entry)
{
	uint32_t index = tt_entry_slot(entry);
	struct tt_slot *slot;

	if (index >= TT_SLOTS)
		return NULL;
	slot = &mem->slots[index];
	return tt_load_relaxed(&slot->sequence) == tt_entry_sequence(entry) ? slot : NULL;
}

/* --- rings --------------------------------------------------------------------------------- */

static inline bool tt_ring_full(const struct tt_ring *ring)
{
	return tt_load_relaxed(&ring->tail) - tt_load_acquire(&ring->head) >=
	       TT_RING_ENTRIES; /* R3 */
}

/* Not when it is full. */
static inline void tt_ring_push(struct tt_ring *ring, tt_ring_entry entry)
{
	uint32_t tail = tt_load_relaxed(&ring->tail);

	tt_store_relaxed(&ring->entries[tail % TT_RING_ENTRIES], entry);
	tt_store_release(&ring->tail, tail + 1); /* R0 */
}

/* Positions that cannot be are somebody's mischief: the ring is empty then, and works again. */
static inline bool tt_ring_peek(struct tt_ring *ring, tt_ring_entry *ret_entry)
{
	uint32_t head = tt_load_relaxed(&ring->head), tail = tt_load_acquire(&ring->tail); /* R1 */

	if (head == tail)
		return false;
	if (tail - head > TT_RING_ENTRIES) {
		tt_store_release(&ring->head, tail);
		return false;
	}
	*ret_entry = tt_load_relaxed(&ring->entries[head % TT_RING_ENTRIES]);
	return true;
}

/* The last entry that was put in, taken since or not: the producer's own question. */
static inline tt_ring_entry tt_ring_last(const struct tt_ring *ring)
{
	return tt_load_relaxed(
		&ring->entries[(tt_load_relaxed(&ring->tail) - 1) % TT_RING_ENTRIES]);
}

static inline void tt_ring_advance(struct tt_ring *ring)
{
	tt_store_release(&ring->head, tt_load_relaxed(&ring->head) + 1); /* R2 */
}

/* --- queues of a driver ---------------------------------------------------------------------- */

/* As with rings, positions that cannot be make it empty. */
static inline uint32_t tt_voq_count(struct tt_voq *voq)
{
	uint32_t tail = tt_load_relaxed(&voq->tail), count = tail - tt_load_relaxed(&voq->head);

	if (count <= TT_VOQ_ENTRIES)
		return count;
	tt_store_relaxed(&voq->head, tail);
	return 0;
}

static inline void tt_voq_push(struct tt_voq *voq, tt_ring_entry entry)
{
	uint32_t tail = tt_load_relaxed(&voq->tail);

	tt_store_relaxed(&voq->entries[tail % TT_VOQ_ENTRIES], entry);
	tt_store_release(&voq->tail, tail + 1);
}

static inline tt_ring_entry tt_voq_first(const struct tt_voq *voq)
{
	return tt_load_relaxed(&voq->entries[tt_load_relaxed(&voq->head) % TT_VOQ_ENTRIES]);
}

static inline tt_ring_entry tt_voq_last(const struct tt_voq *voq)
{
	return tt_load_relaxed(&voq->entries[(tt_load_relaxed(&voq->tail) - 1) % TT_VOQ_ENTRIES]);
}

static inline void tt_voq_advance(struct tt_voq *voq)
{
	tt_store_release(&voq->head, tt_load_relaxed(&voq->head) + 1);
}

#endif
