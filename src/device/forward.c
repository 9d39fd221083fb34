/* SPDX-License-Identifier: MIT */
/*
 * How packets go through a device: from an input's ring into a queue for each
 * output (out-of-order switching: who waits for a busy output holds up nobody
 * behind it for a free one; within a flow, which has one input and one output,
 * order is kept), from there to the output, inputs and outputs matched in turns
 * (after iSLIP: N. McKeown, The iSLIP scheduling algorithm for input-queued
 * switches, IEEE/ACM Transactions on Networking, 1999).
 *
 * A packet is taken at most once: it is noted as in hand, then the queue's head
 * goes on, and only then anything is done with it. Who takes over from a dead
 * driver finds it there.
 */
#include "device/instance_int.h"

#include <string.h>

/* --- where to ----------------------------------------------------------------------------- */

static uint32_t port_to(const struct tt_driver *d, uint32_t member)
{
	uint32_t port = member < TT_MEMBERS ? tt_load_relaxed(&d->dev->route[member]) : 0;

	port = port ? port - 1 : tt_load_relaxed(&d->dev->default_port);
	return port < TT_PORTS && d->ports & tt_bit(port) ? port : TT_NO_PORT;
}

/* Outputs of a multicast: those of all members but the source, not back to where it came from. */
static uint32_t ports_to_group(const struct tt_driver *d, uint32_t group, uint32_t source,
			       uint32_t input)
{
	uint32_t outputs = 0;

	if (group >= TT_GROUPS)
		return 0;
	for (uint32_t word = 0; word < TT_HOLDER_WORDS; word++)
		for (uint64_t set = tt_load_relaxed(&d->mem->groups[group].members[word]); set;
		     set &= set - 1) {
			uint32_t member = word * 64 + (uint32_t)__builtin_ctzll(set);
			uint32_t port = member == source ? TT_NO_PORT : port_to(d, member);

			if (port != TT_NO_PORT)
				outputs |= tt_bit(port);
		}
	return d->dev->ports[input].kind == TT_PORT_LINK ? outputs & ~tt_bit(input) : outputs;
}

static uint32_t outputs_of(const struct tt_driver *d, const struct tt_packet_head *head,
			   uint32_t input)
{
	uint32_t port;

	if (tt_load_relaxed(&head->flags) & TT_PACKET_MULTICAST)
		return ports_to_group(d, tt_load_relaxed(&head->group),
				      tt_load_relaxed(&head->source), input);
	port = port_to(d, tt_load_relaxed(&head->destination));
	return port == TT_NO_PORT ? 0 : tt_bit(port);
}

/* --- in hand ------------------------------------------------------------------------------- */

static void pick_up(struct tt_driver *d, tt_ring_entry entry, uint32_t from)
{
	tt_store_relaxed(&d->dev->in_hand_from, from);
	tt_store_release(&d->dev->in_hand, entry + 1); /* 0: nothing */
}

static void put_down(struct tt_driver *d)
{
	tt_store_release(&d->dev->in_hand, 0u);
}

/* --- inputs -------------------------------------------------------------------------------- */

/* In a plain device all packets of an input wait in one queue. */
static struct tt_voq *queue(const struct tt_driver *d, uint32_t input, uint32_t output)
{
	return &d->dev->voq[input][d->dev->fifo ? 0 : output];
}

static bool room_in_queues(const struct tt_driver *d, uint32_t input, uint32_t outputs)
{
	for (; outputs; outputs &= outputs - 1)
		if (tt_voq_count(queue(d, input, (uint32_t)__builtin_ctz(outputs))) >=
		    TT_VOQ_ENTRIES)
			return false;
	return true;
}

/* Of a plain queue: the output that its first packet waits for. */
static void look_at_first(struct tt_driver *d, uint32_t input)
{
	struct tt_voq *voq = &d->dev->voq[input][0];
	struct tt_slot *slot;
	uint32_t outputs;

	for (uint32_t output = 0; output < TT_PORTS; output++)
		d->dev->waiting[output] &= ~tt_bit(input);
	if (!tt_voq_count(voq))
		return;
	slot = tt_slot_of(d->mem, tt_voq_first(voq));
	outputs = slot ? outputs_of(d, &slot->head, input) : 0;
	/* Gone wrong since it came: any output drops it. */
	d->dev->waiting[outputs ? (uint32_t)__builtin_ctz(outputs) : 0] |= tt_bit(input);
}

static void enqueue(struct tt_driver *d, tt_ring_entry entry, uint32_t input, uint32_t outputs)
{
	uint32_t copies = (uint32_t)__builtin_popcount(outputs);

	if (copies > 1)
		d->dev->copies[tt_entry_slot(entry)] = (uint8_t)copies;
	for (; outputs; outputs &= outputs - 1) {
		uint32_t output = (uint32_t)__builtin_ctz(outputs);

		tt_voq_push(queue(d, input, output), entry);
		if (!d->dev->fifo)
			d->dev->waiting[output] |= tt_bit(input);
	}
	if (d->dev->fifo)
		look_at_first(d, input);
}

/* What rides on an entry, whatever else it is. */
static void take_credits(struct tt_port *port, tt_ring_entry entry)
{
	uint32_t credits = port->credits + tt_entry_credits(entry);

	port->credits = credits < port->window ? credits : port->window;
}

/* Room for a packet whose way a handler may still change. */
static bool room_in_all(const struct tt_driver *d, uint32_t input)
{
	return room_in_queues(d, input, d->dev->fifo ? 1 : d->ports);
}

/* The head as it is now, whatever its owner does to it afterwards. */
static struct tt_packet_head copy_head(const struct tt_slot *slot)
{
	struct tt_packet_head head;

	memcpy(&head, &slot->head, sizeof head);
	if (head.bytes > TT_PAYLOAD_BYTES)
		head.bytes = TT_PAYLOAD_BYTES;
	return head;
}

/* Where the packet in hand goes; 0: nowhere. Handlers are asked. */
static uint32_t handle(struct tt_driver *d, struct tt_slot *slot, struct tt_packet_head *head,
		       uint32_t input)
{
	if (!tt_instances_run(d, slot, input, head))
		return 0;
	memcpy(&slot->head, head, sizeof *head);
	return outputs_of(d, head, input);
}

/* False: it has to stay where it is. */
static bool take_one(struct tt_driver *d, uint32_t input, tt_ring_entry entry)
{
	struct tt_port *port = &d->dev->ports[input];
	struct tt_slot *slot = tt_slot_of(d->mem, entry);
	bool handled = slot && d->dev->bound;
	struct tt_packet_head head = {0};
	uint32_t outputs = 0;

	if (port->kind == TT_PORT_LINK && tt_entry_slot(entry) == TT_NO_SLOT) {
		take_credits(port, entry);
		tt_ring_advance(&port->in);
		return true;
	}
	if (slot) {
		head = copy_head(slot);
		outputs = handled ? 0 : outputs_of(d, &head, input);
	}
	if (handled ? !room_in_all(d, input) : !room_in_queues(d, input, outputs))
		return false;
	if (port->kind == TT_PORT_LINK) {
		take_credits(port, entry);
		port->owed++;
	}
	pick_up(d, entry, input);
	tt_ring_advance(&port->in);
	tt_count(&port->rx_packets, 1);
	tt_count(&port->rx_bytes, head.bytes);
	if (handled)
		outputs = handle(d, slot, &head, input);
	if (d->dev->fifo && outputs & (outputs - 1))
		outputs &= -outputs; /* a plain device has no multicast */
	if (outputs) {
		enqueue(d, entry & ~0xff000000ull, input, outputs);
	} else {
		tt_count(&port->dropped, 1);
		if (slot)
			tt_slot_drop_device(slot, d->device);
	}
	put_down(d);
	return true;
}

int tt_device_emit(struct tt_driver *d, const struct tt_packet_head *head, const void *bytes)
{
	uint32_t outputs = outputs_of(d, head, TT_OWN_PORT),
		 first = (TT_MEMBERS + d->device) * TT_OWNER_SLOTS;

	if (!outputs)
		return -MDO_ENOENT;
	if (!room_in_queues(d, TT_OWN_PORT, outputs))
		return -MDO_EBUSY;
	for (uint32_t i = 0; i < TT_OWNER_SLOTS; i++) {
		uint32_t index = first + (d->dev->next_slot + i) % TT_OWNER_SLOTS;
		struct tt_slot *slot = &d->mem->slots[index];

		if (!tt_slot_free(slot))
			continue;
		d->dev->next_slot = (d->dev->next_slot + i + 1) % TT_OWNER_SLOTS;
		tt_store_relaxed(&slot->sequence, slot->sequence + 1);
		slot->head = *head;
		if (head->bytes) /* bytes may be NULL */
			memcpy(slot->payload, bytes, head->bytes);
		tt_slot_hold_device(slot, d->device);
		enqueue(d, tt_entry_make(index, 0, slot->sequence), TT_OWN_PORT, outputs);
		return 0;
	}
	return -MDO_EBUSY;
}

uint32_t tt_take_inputs(struct tt_driver *d, uint32_t inputs, unsigned most, unsigned *ret_moved)
{
	uint32_t left = 0;

	d->dev->blocked &= ~inputs;
	for (; inputs; inputs &= inputs - 1) {
		uint32_t input = (uint32_t)__builtin_ctz(inputs);
		tt_ring_entry entry;
		unsigned taken = 0;

		while (taken < most && tt_ring_peek(&d->dev->ports[input].in, &entry)) {
			if (!take_one(d, input, entry)) {
				d->dev->blocked |= tt_bit(input);
				break;
			}
			taken++;
		}
		*ret_moved += taken;
		if (taken == most)
			left |= tt_bit(input);
	}
	return left;
}

/* --- outputs ---------------------------------------------------------------------------------- */

static struct tt_device_mem *peer_of(const struct tt_driver *d, const struct tt_port *port,
				     struct tt_port **ret_port)
{
	struct tt_device_mem *peer;
	uint32_t device = tt_load_relaxed(&port->peer_device),
		 number = tt_load_relaxed(&port->peer_port);

	if (device >= TT_DEVICES || number >= TT_PORTS)
		return NULL;
	peer = &d->mem->devices[device];
	*ret_port = &peer->ports[number];
	return peer;
}

static bool room_at(const struct tt_driver *d, uint32_t output)
{
	struct tt_port *port = &d->dev->ports[output], *other;

	if (port->kind == TT_PORT_HOST)
		return !tt_ring_full(&port->out);
	return port->credits > 0 && peer_of(d, port, &other) && !tt_ring_full(&other->in);
}

/* On the ring of the device at the other end of a link. */
static void push_to_peer(struct tt_driver *d, struct tt_port *port, uint32_t slot,
			 uint32_t sequence)
{
	struct tt_port *other;
	struct tt_device_mem *peer = peer_of(d, port, &other);

	if (!peer)
		return;
	tt_ring_push(&other->in,
		     tt_entry_make(slot, port->owed < 255 ? port->owed : 255, sequence));
	port->owed -= port->owed < 255 ? port->owed : 255;
	tt_fetch_or(&peer->posted, tt_bit(tt_load_relaxed(&port->peer_port))); /* L1 */
	d->me->touched |= tt_bit(tt_load_relaxed(&port->peer_device));
}

static void deliver(struct tt_driver *d, struct tt_port *port, struct tt_slot *slot,
		    tt_ring_entry entry)
{
	uint32_t member = tt_load_relaxed(&port->member);

	if (port->kind == TT_PORT_LINK) {
		uint32_t peer = tt_load_relaxed(&port->peer_device);

		if (peer >= TT_DEVICES)
			return;
		tt_slot_hold_device(slot, peer);
		port->credits--;
		push_to_peer(d, port, tt_entry_slot(entry), tt_entry_sequence(entry));
	} else if (member < TT_MEMBERS) {
		tt_slot_hold_member(slot, member);
		tt_ring_push(&port->out, entry);
	}
	tt_count(&port->tx_packets, 1);
	tt_count(&port->tx_bytes, tt_load_relaxed(&slot->head.bytes));
}

/* The last queue that it was in gives it up. */
static void leave_queue(struct tt_driver *d, struct tt_slot *slot, tt_ring_entry entry)
{
	uint8_t *copies = &d->dev->copies[tt_entry_slot(entry)];

	if (*copies > 1) {
		--*copies;
		return;
	}
	*copies = 0;
	tt_slot_drop_device(slot, d->device);
}

static void send_one(struct tt_driver *d, uint32_t input, uint32_t output)
{
	struct tt_port *port = &d->dev->ports[output];
	struct tt_voq *voq = queue(d, input, output);
	tt_ring_entry entry = tt_voq_first(voq);
	struct tt_slot *slot = tt_slot_of(d->mem, entry);

	pick_up(d, entry, input);
	tt_voq_advance(voq);
	if (d->dev->fifo)
		look_at_first(d, input);
	else if (!tt_voq_count(voq))
		d->dev->waiting[output] &= ~tt_bit(input);
	if (slot) {
		deliver(d, port, slot, entry);
		leave_queue(d, slot, entry);
		if (port->kind == TT_PORT_HOST)
			tt_member_wake(d->mem, tt_load_relaxed(&port->member));
	} else {
		tt_count(&d->dev->dropped, 1);
	}
	put_down(d);
}

unsigned tt_match(struct tt_driver *d, unsigned rounds)
{
	uint32_t free_inputs = ~0u, free_outputs = 0;
	unsigned sent = 0;

	for (uint32_t set = d->ports; set; set &= set - 1) {
		uint32_t output = (uint32_t)__builtin_ctz(set);

		if (d->dev->waiting[output] && room_at(d, output))
			free_outputs |= tt_bit(output);
	}
	for (unsigned round = 0; round < rounds && free_outputs; round++) {
		uint32_t granted[TT_PORTS] = {0}, inputs = 0;

		/* Each free output grants to one input that has something for it, */
		for (uint32_t set = free_outputs; set; set &= set - 1) {
			uint32_t output = (uint32_t)__builtin_ctz(set), input;
			uint32_t asking = d->dev->waiting[output] & free_inputs;

			if (!asking) {
				free_outputs &= ~tt_bit(output);
				continue;
			}
			input = tt_next_of(asking, d->dev->next_input[output] % TT_PORTS);
			granted[input] |= tt_bit(output);
			inputs |= tt_bit(input);
		}
		if (!inputs)
			break;
		/* each input accepts one grant. Whose turn is next changes in the first round only. */
		for (; inputs; inputs &= inputs - 1) {
			uint32_t input = (uint32_t)__builtin_ctz(inputs);
			uint32_t output =
				tt_next_of(granted[input], d->dev->next_output[input] % TT_PORTS);

			if (round == 0) {
				d->dev->next_input[output] = input + 1;
				d->dev->next_output[input] = output + 1;
			}
			send_one(d, input, output);
			free_inputs &= ~tt_bit(input);
			free_outputs &= ~tt_bit(output);
			sent++;
		}
	}
	return sent;
}

void tt_return_credits(struct tt_driver *d)
{
	for (uint32_t set = d->dev->links & d->ports; set; set &= set - 1) {
		struct tt_port *port = &d->dev->ports[__builtin_ctz(set)], *other;

		if (port->kind != TT_PORT_LINK || !port->owed || port->owed < port->window / 2 ||
		    !peer_of(d, port, &other) || tt_ring_full(&other->in))
			continue;
		tt_count(&port->credit_entries, 1);
		push_to_peer(d, port, TT_NO_SLOT, 0);
	}
}

void tt_forget_port(struct tt_driver *d, uint32_t port)
{
	tt_ring_entry entry;

	for (uint32_t input = 0; input < TT_PORTS && !d->dev->fifo; input++) {
		struct tt_voq *voq = &d->dev->voq[input][port];

		while (tt_voq_count(voq)) {
			struct tt_slot *slot;

			entry = tt_voq_first(voq);
			slot = tt_slot_of(d->mem, entry);
			tt_voq_advance(voq);
			tt_count(&d->dev->dropped, 1);
			if (slot)
				leave_queue(d, slot, entry);
		}
	}
	d->dev->waiting[port] = 0;
	while (tt_ring_peek(&d->dev->ports[port].in, &entry)) {
		struct tt_slot *slot = tt_slot_of(d->mem, entry);

		tt_ring_advance(&d->dev->ports[port].in);
		if (slot)
			tt_slot_drop_device(slot, d->device);
	}
}

/* --- after a death ------------------------------------------------------------------------------ */

static bool in_some_queue(const struct tt_driver *d, tt_ring_entry entry)
{
	for (uint32_t input = 0; input < TT_PORTS; input++)
		for (uint32_t output = 0; output < TT_PORTS; output++) {
			const struct tt_voq *voq = &d->dev->voq[input][output];

			for (uint32_t i = voq->head;
			     i != voq->tail && i - voq->head < TT_VOQ_ENTRIES; i++)
				if (voq->entries[i % TT_VOQ_ENTRIES] == entry)
					return true;
		}
	return false;
}

/* What is counted of queues may be one packet behind: counted anew. */
static void count_waiting(struct tt_driver *d)
{
	memset(d->dev->waiting, 0, sizeof d->dev->waiting);
	memset(d->dev->copies, 0, sizeof d->dev->copies);
	for (uint32_t input = 0; input < TT_PORTS; input++)
		for (uint32_t output = 0; output < TT_PORTS; output++) {
			struct tt_voq *voq = &d->dev->voq[input][output];

			if (tt_voq_count(voq) > TT_VOQ_ENTRIES)
				voq->head = voq->tail;
			for (uint32_t i = voq->head; i != voq->tail; i++) {
				uint32_t slot = tt_entry_slot(voq->entries[i % TT_VOQ_ENTRIES]);

				if (slot < TT_SLOTS)
					d->dev->copies[slot]++;
			}
			if (tt_voq_count(voq) && !d->dev->fifo)
				d->dev->waiting[output] |= tt_bit(input);
		}
	if (d->dev->fifo)
		for (uint32_t input = 0; input < TT_PORTS; input++)
			look_at_first(d, input);
}

void tt_recover(struct tt_driver *d)
{
	uint64_t in_hand = tt_load_relaxed(&d->dev->in_hand);

	uint32_t handler = tt_load_relaxed(&d->dev->handler);

	tt_count(&d->dev->takeovers, 1);
	if (handler && handler <= TT_INSTANCES) {
		/* What it was about to write may be written in part. */
		tt_store_release(&d->mem->instances[handler - 1].state,
				 (uint32_t)TT_INSTANCE_BROKEN);
		d->dev->bound &= ~(1ull << (handler - 1));
		tt_store_relaxed(&d->dev->handler, 0u);
	}
	if (in_hand) {
		tt_ring_entry entry = (in_hand - 1) & ~0xff000000ull;
		struct tt_slot *slot = tt_slot_of(d->mem, entry);

		/*
		 * Not in a queue of ours: delivered, or lost with who had it. Either
		 * way it is not ours any more; who has it holds it for himself.
		 */
		if (slot && !in_some_queue(d, entry)) {
			tt_slot_drop_device(slot, d->device);
			tt_count(&d->dev->lost, 1);
		}
		put_down(d);
	}
	count_waiting(d);
	/* What a handler was about to send, of the device's own slots. */
	for (uint32_t i = 0; i < TT_OWNER_SLOTS; i++) {
		uint32_t slot = (TT_MEMBERS + d->device) * TT_OWNER_SLOTS + i;

		if (!d->dev->copies[slot])
			tt_slot_drop_device(&d->mem->slots[slot], d->device);
	}
	d->dev->blocked = d->ports;
}
