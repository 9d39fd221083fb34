/* SPDX-License-Identifier: MIT */
/*
 * After a driver died: what it left half done is done, or was not begun.
 *
 * The packet in hand goes on, once: if it came from an input, it is put into
 * the queues in which it is not the last; if it came from a queue, it is
 * delivered unless it is the last in the output's ring. A handler that ran is
 * not run again, its instance is broken. What is counted of queues, and the
 * credits of links, are counted anew.
 */
#include "device/instance_int.h"

#include <string.h>

/* The credits that ride on an entry, or the lack of them, make it no other. */
static bool same(tt_ring_entry a, tt_ring_entry b)
{
	return !((a ^ b) & ~0xff000000ull);
}

static uint32_t ways_of(const struct tt_driver *d, struct tt_slot *slot, uint32_t from)
{
	struct tt_packet_head head;
	uint32_t ways;

	if (tt_load_relaxed(&d->dev->in_hand_ruled) == 1)
		return tt_load_relaxed(&d->dev->in_hand_ways);
	memcpy(&head, &slot->head, sizeof head);
	ways = tt_outputs_of(d, &head, from);
	return d->dev->fifo ? ways & -ways : ways;
}

/* It came from an input. */
static void finish_taking(struct tt_driver *d, tt_ring_entry raw, uint32_t from)
{
	tt_ring_entry entry = raw, first, copy = tt_load_relaxed(&d->dev->in_hand_copy);
	struct tt_slot *slot = tt_slot_of(d->mem, raw);

	if (tt_ring_peek(&d->dev->ports[from].in, &first) && first == raw)
		return; /* not even taken; the copy is nobody's */
	if (copy) {
		if (slot)
			tt_slot_drop_device(slot, d->device);
		entry = copy - 1;
		slot = tt_slot_of(d->mem, entry);
	}
	entry &= ~0xff000000ull;
	for (uint32_t set = slot ? ways_of(d, slot, from) : 0; set; set &= set - 1) {
		struct tt_voq *voq = tt_queue(d, from, (uint32_t)__builtin_ctz(set));

		if (tt_voq_count(voq) >= TT_VOQ_ENTRIES ||
		    (tt_load_relaxed(&voq->tail) && same(tt_voq_last(voq), entry)))
			continue;
		tt_voq_push(voq, entry);
	}
}

/* It came from a queue. */
static void finish_sending(struct tt_driver *d, tt_ring_entry entry, uint32_t from, uint32_t to)
{
	struct tt_voq *voq = tt_queue(d, from, to);
	struct tt_slot *slot = tt_slot_of(d->mem, entry);
	const struct tt_ring *ring = &d->dev->ports[to].out;
	struct tt_peer peer;

	if (!slot || (tt_voq_count(voq) && same(tt_voq_first(voq), entry)))
		return;
	if (d->dev->ports[to].kind == TT_PORT_LINK) {
		if (!tt_peer_of(d, to, &peer))
			return;
		ring = &peer.port->in;
	}
	if ((tt_load_relaxed(&ring->tail) && same(tt_ring_last(ring), entry)) || tt_ring_full(ring))
		return;
	tt_deliver(d, to, slot, entry);
}

/* In how many queues each slot is, and which outputs have something to do. */
static void count_waiting(struct tt_driver *d)
{
	for (uint32_t output = 0; output < TT_PORTS; output++)
		tt_note(&d->dev->waiting[output], 0, ~0u);
	memset(d->dev->copies, 0, sizeof d->dev->copies);
	for (uint32_t input = 0; input < TT_PORTS; input++)
		for (uint32_t output = 0; output < TT_PORTS; output++) {
			struct tt_voq *voq = &d->dev->voq[input][output];
			uint32_t count = tt_voq_count(voq), head = tt_load_relaxed(&voq->head);

			for (uint32_t i = 0; i < count; i++) {
				uint32_t slot = tt_entry_slot(tt_load_relaxed(
					&voq->entries[(head + i) % TT_VOQ_ENTRIES]));

				if (slot < TT_SLOTS)
					d->dev->copies[slot]++;
			}
			if (count && !d->dev->fifo)
				tt_note(&d->dev->waiting[output], tt_bit(input), 0);
		}
	if (d->dev->fifo)
		for (uint32_t input = 0; input < TT_PORTS; input++)
			tt_look_at_first(d, input);
}

static void drop_unless_queued(struct tt_driver *d, uint32_t slot)
{
	if (slot < TT_SLOTS && !d->dev->copies[slot])
		tt_slot_drop_device(&d->mem->slots[slot], d->device);
}

/* Whoever was to be told of something may not have been. */
static void tell_all(struct tt_driver *d)
{
	for (uint32_t set = d->ports; set; set &= set - 1) {
		uint32_t number = (uint32_t)__builtin_ctz(set);
		struct tt_port *port = &d->dev->ports[number];
		struct tt_peer peer;

		if (port->kind == TT_PORT_HOST) {
			tt_member_wake(d->mem, tt_load_relaxed(&port->member));
		} else if (port->kind == TT_PORT_LINK && tt_peer_of(d, number, &peer)) {
			tt_fetch_or(&peer.dev->posted, tt_bit(peer.number));
			d->me->touched |= tt_bit(peer.device);
		}
	}
	tt_fetch_or(&d->dev->posted, d->ports);
	d->me->touched |= tt_bit(d->device);
}

void tt_recover(struct tt_driver *d)
{
	uint32_t handler = tt_load_relaxed(&d->dev->handler),
		 from = tt_load_relaxed(&d->dev->in_hand_from),
		 to = tt_load_relaxed(&d->dev->in_hand_to);
	uint64_t in_hand = tt_load_relaxed(&d->dev->in_hand);
	bool taking = to == TT_NO_PORT;
	tt_ring_entry entry = in_hand - 1, first;

	tt_count(&d->dev->takeovers, 1);
	if (handler && handler <= TT_INSTANCES) {
		/* What it was about to write may be written in part. */
		tt_store_release(&d->mem->instances[handler - 1].state,
				 (uint32_t)TT_INSTANCE_BROKEN);
		d->dev->bound &= ~(1ull << (handler - 1));
		tt_store_relaxed(&d->dev->handler, 0u);
	}
	if (in_hand && from < TT_PORTS && taking)
		finish_taking(d, entry, from);
	else if (in_hand && from < TT_PORTS && to < TT_PORTS)
		finish_sending(d, entry, from, to);
	count_waiting(d);
	if (in_hand && from < TT_PORTS &&
	    !(taking && tt_ring_peek(&d->dev->ports[from].in, &first) && first == entry) &&
	    tt_slot_of(d->mem, entry))
		drop_unless_queued(d, tt_entry_slot(entry));
	tt_store_release(&d->dev->in_hand, 0u);
	/* Copies, and what a handler was about to send. */
	for (uint32_t i = 0; i < TT_OWNER_SLOTS; i++)
		drop_unless_queued(d, (TT_MEMBERS + d->device) * TT_OWNER_SLOTS + i);
	tt_note(&d->dev->blocked, d->ports, ~0u);
	d->dev->unsettled = d->dev->links & d->ports;
	tell_all(d);
}

/* --- what a dead member was about to post -------------------------------------------------------- */

static bool in_a_ring(const struct tt_driver *d, uint32_t slot)
{
	for (uint32_t set = d->ports; set; set &= set - 1) {
		const struct tt_ring *in = &d->dev->ports[__builtin_ctz(set)].in;
		uint32_t head = tt_load_relaxed(&in->head),
			 count = tt_load_acquire(&in->tail) - head;

		for (uint32_t i = 0; i < count && i < TT_RING_ENTRIES; i++)
			if (tt_entry_slot(tt_load_relaxed(
				    &in->entries[(head + i) % TT_RING_ENTRIES])) == slot)
				return true;
	}
	return false;
}

void tt_drop_unposted(struct tt_driver *d, uint32_t member)
{
	count_waiting(d);
	for (uint32_t i = 0; i < TT_OWNER_SLOTS; i++) {
		uint32_t slot = member * TT_OWNER_SLOTS + i;

		if (tt_load_relaxed(&d->mem->slots[slot].held_by_devices) & tt_bit(d->device) &&
		    !in_a_ring(d, slot))
			drop_unless_queued(d, slot);
	}
}

/* --- links ------------------------------------------------------------------------------------------ */

/* Both ends are taken. Nothing is owed; what may go out is what is not on the way. */
static void settle_end(struct tt_port *port, struct tt_port *other)
{
	uint32_t on_the_way = tt_load_acquire(&other->in.tail) - tt_load_relaxed(&other->in.head);

	port->credits = on_the_way < port->window ? port->window - on_the_way : 0;
	port->heard = tt_load_relaxed(&port->in.tail);
	port->granted = 0;
	other->owed = 0;
}

void tt_settle_links(struct tt_driver *d)
{
	for (uint32_t set = d->dev->unsettled & d->ports; set; set &= set - 1) {
		uint32_t number = (uint32_t)__builtin_ctz(set);
		struct tt_port *port = &d->dev->ports[number];
		struct tt_peer peer;

		if (port->kind == TT_PORT_LINK && tt_peer_of(d, number, &peer)) {
			if (!tt_device_try(d->me, peer.device))
				continue; /* another time */
			settle_end(port, peer.port);
			settle_end(peer.port, port);
			peer.dev->unsettled &= ~tt_bit(peer.number);
			tt_fetch_or(&peer.dev->posted, tt_bit(peer.number));
			d->me->touched |= tt_bit(peer.device);
			tt_device_release(d->me, peer.device);
		}
		d->dev->unsettled &= ~tt_bit(number);
	}
}
