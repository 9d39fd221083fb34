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
 * driver finds it there (recover.c).
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

uint32_t tt_outputs_of(const struct tt_driver *d, const struct tt_packet_head *head, uint32_t input)
{
	uint32_t port;

	if (tt_load_relaxed(&head->flags) & TT_PACKET_MULTICAST)
		return ports_to_group(d, tt_load_relaxed(&head->group),
				      tt_load_relaxed(&head->source), input);
	port = port_to(d, tt_load_relaxed(&head->destination));
	return port == TT_NO_PORT ? 0 : tt_bit(port);
}

/* --- in hand ------------------------------------------------------------------------------- */

/* copy: of a slot that others hold, too, for handlers to work on; TT_NO_ENTRY: none. */
static void pick_up(struct tt_driver *d, tt_ring_entry entry, uint32_t from, uint32_t to,
		    tt_ring_entry copy)
{
	tt_store_relaxed(&d->dev->in_hand_from, from);
	tt_store_relaxed(&d->dev->in_hand_to, to);
	tt_store_relaxed(&d->dev->in_hand_ruled, 0u);
	tt_store_relaxed(&d->dev->in_hand_copy, copy + 1);
	tt_store_release(&d->dev->in_hand, entry + 1); /* 0: nothing */
}

static void put_down(struct tt_driver *d)
{
	tt_store_release(&d->dev->in_hand, 0u);
}

/* --- inputs -------------------------------------------------------------------------------- */

static bool room_in_queues(const struct tt_driver *d, uint32_t input, uint32_t outputs)
{
	for (; outputs; outputs &= outputs - 1)
		if (tt_voq_count(tt_queue(d, input, (uint32_t)__builtin_ctz(outputs))) >=
		    TT_VOQ_ENTRIES)
			return false;
	return true;
}

/* Of a plain queue: the output that its first packet waits for. */
void tt_look_at_first(struct tt_driver *d, uint32_t input)
{
	struct tt_voq *voq = &d->dev->voq[input][0];
	struct tt_slot *slot;
	uint32_t outputs;

	for (uint32_t output = 0; output < TT_PORTS; output++)
		tt_note(&d->dev->waiting[output], 0, tt_bit(input));
	if (!tt_voq_count(voq))
		return;
	slot = tt_slot_of(d->mem, tt_voq_first(voq));
	outputs = slot ? tt_outputs_of(d, &slot->head, input) : 0;
	/* Gone wrong since it came: any output drops it. */
	tt_note(&d->dev->waiting[outputs ? (uint32_t)__builtin_ctz(outputs) : 0], tt_bit(input), 0);
}

static void enqueue(struct tt_driver *d, tt_ring_entry entry, uint32_t input, uint32_t outputs)
{
	uint32_t copies = (uint32_t)__builtin_popcount(outputs);

	if (copies > 1)
		d->dev->copies[tt_entry_slot(entry)] = (uint8_t)copies;
	for (; outputs; outputs &= outputs - 1) {
		uint32_t output = (uint32_t)__builtin_ctz(outputs);

		tt_voq_push(tt_queue(d, input, output), entry);
		if (!d->dev->fifo)
			tt_note(&d->dev->waiting[output], tt_bit(input), 0);
	}
	if (d->dev->fifo)
		tt_look_at_first(d, input);
}

/*
 * What rides on entries, as soon as they are there: behind a packet that has to
 * wait there may be the credits that it waits for. For the same reason those
 * that come by themselves are not in the ring.
 */
static void hear_credits(struct tt_port *port)
{
	uint32_t tail = tt_load_acquire(&port->in.tail), at = port->heard, /* R1 */
		credits = port->credits, window = port->window;

	if (at == tail && !tt_load_relaxed(&port->granted))
		return;
	credits += tt_exchange(&port->granted, 0u);
	if (tail - at > TT_RING_ENTRIES)
		at = tail - TT_RING_ENTRIES;
	for (; at != tail; at++)
		credits +=
			tt_entry_credits(tt_load_relaxed(&port->in.entries[at % TT_RING_ENTRIES]));
	port->credits = credits < window ? credits : window;
	port->heard = tail;
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

/* --- slots of the device's own --------------------------------------------------------------- */

/* One that nobody holds, now held by the device; NULL: there is none. */
static struct tt_slot *own_slot(struct tt_driver *d, tt_ring_entry *ret_entry)
{
	uint32_t first = (TT_MEMBERS + d->device) * TT_OWNER_SLOTS, next = d->dev->next_slot;

	for (uint32_t i = 0; i < TT_OWNER_SLOTS; i++) {
		uint32_t index = first + (next + i) % TT_OWNER_SLOTS, sequence;
		struct tt_slot *slot = &d->mem->slots[index];

		if (!tt_slot_free(slot))
			continue;
		d->dev->next_slot = (next + i + 1) % TT_OWNER_SLOTS;
		sequence = tt_load_relaxed(&slot->sequence) + 1;
		tt_store_relaxed(&slot->sequence, sequence);
		tt_slot_hold_device(slot, d->device);
		*ret_entry = tt_entry_make(index, 0, sequence);
		return slot;
	}
	return NULL;
}

/* Who is meant by the destination now: whoever comes in its place does not get the packet. */
static uint32_t incarnation_of(const struct tt_driver *d, uint32_t member)
{
	return member < TT_MEMBERS ? tt_load_relaxed(&d->mem->members[member].incarnation) : 0;
}

int tt_device_emit(struct tt_driver *d, const struct tt_packet_head *head, const void *bytes)
{
	uint32_t outputs = tt_outputs_of(d, head, TT_OWN_PORT);
	tt_ring_entry entry;
	struct tt_slot *slot;

	if (d->dev->fifo)
		outputs &= -outputs;
	if (!outputs)
		return -MDO_ENOENT;
	if (!room_in_queues(d, TT_OWN_PORT, outputs))
		return -MDO_EBUSY;
	slot = own_slot(d, &entry);
	if (!slot)
		return -MDO_EBUSY;
	slot->head = *head;
	slot->incarnation = incarnation_of(d, head->destination);
	if (head->bytes)
		memcpy(slot->payload, bytes, head->bytes);
	enqueue(d, entry, TT_OWN_PORT, outputs);
	return 0;
}

/* --- taking ------------------------------------------------------------------------------------ */

/* Where the packet in hand goes; 0: nowhere. Handlers are asked. */
static uint32_t handle(struct tt_driver *d, struct tt_slot *slot, struct tt_packet_head *head,
		       uint32_t input)
{
	uint32_t destination = head->destination;

	if (!tt_instances_run(d, slot, input, head))
		return 0;
	memcpy(&slot->head, head, sizeof *head);
	if (head->destination != destination)
		slot->incarnation = incarnation_of(d, head->destination);
	return tt_outputs_of(d, head, input);
}

/*
 * The slot that handlers may write: one that others hold, too (members, or
 * devices to which a multicast went), is copied. NULL: there is no room.
 */
static struct tt_slot *writable(struct tt_driver *d, struct tt_slot *slot,
				const struct tt_packet_head *head, tt_ring_entry *ret_copy)
{
	struct tt_slot *copy;

	if (!tt_slot_shared(slot, d->device))
		return slot;
	copy = own_slot(d, ret_copy);
	if (!copy)
		return NULL;
	copy->head = *head;
	copy->incarnation = tt_load_relaxed(&slot->incarnation);
	memcpy(copy->payload, slot->payload, head->bytes);
	return copy;
}

/* What a plain device does of many ways: it has no multicast. */
static uint32_t ways(const struct tt_driver *d, uint32_t outputs)
{
	return d->dev->fifo ? outputs & -outputs : outputs;
}

/* False: it has to stay where it is. */
static bool take_one(struct tt_driver *d, uint32_t input, tt_ring_entry entry)
{
	struct tt_port *port = &d->dev->ports[input];
	struct tt_slot *slot = tt_slot_of(d->mem, entry), *work = slot;
	bool link = port->kind == TT_PORT_LINK, handled = false;
	tt_ring_entry copy = TT_NO_ENTRY;
	struct tt_packet_head head = {0};
	uint32_t outputs = 0;

	if (slot) {
		head = copy_head(slot);
		handled = tt_instances_want(d, &head);
		outputs = handled ? 0 : ways(d, tt_outputs_of(d, &head, input));
	}
	if (handled ? !room_in_all(d, input) : !room_in_queues(d, input, outputs))
		return false;
	if (handled) {
		work = writable(d, slot, &head, &copy);
		if (!work)
			return false;
	}
	pick_up(d, entry, input, TT_NO_PORT, copy);
	tt_ring_advance(&port->in);
	if (link)
		port->owed++;
	tt_count(&port->rx_packets, 1);
	tt_count(&port->rx_bytes, head.bytes);
	if (work != slot)
		tt_slot_drop_device(slot, d->device);
	if (handled) {
		outputs = ways(d, handle(d, work, &head, input));
		tt_store_relaxed(&d->dev->in_hand_ways, outputs);
		tt_store_release(&d->dev->in_hand_ruled, 1u);
		if (copy != TT_NO_ENTRY)
			entry = copy;
	}
	if (outputs) {
		enqueue(d, entry & ~0xff000000ull, input, outputs);
	} else {
		tt_count(&port->dropped, 1);
		if (work)
			tt_slot_drop_device(work, d->device);
	}
	put_down(d);
	return true;
}

uint32_t tt_take_inputs(struct tt_driver *d, uint32_t inputs, unsigned most, unsigned *ret_moved)
{
	uint32_t left = 0;

	tt_note(&d->dev->blocked, 0, inputs);
	for (; inputs; inputs &= inputs - 1) {
		uint32_t input = (uint32_t)__builtin_ctz(inputs);
		tt_ring_entry entry;
		unsigned taken = 0;

		if (d->dev->links & tt_bit(input))
			hear_credits(&d->dev->ports[input]);
		while (taken < most && tt_ring_peek(&d->dev->ports[input].in, &entry)) {
			if (!take_one(d, input, entry)) {
				tt_note(&d->dev->blocked, tt_bit(input), 0);
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

bool tt_peer_of(const struct tt_driver *d, uint32_t output, struct tt_peer *ret_peer)
{
	struct tt_port *port = &d->dev->ports[output];
	uint32_t device = tt_load_relaxed(&port->peer_device),
		 number = tt_load_relaxed(&port->peer_port);

	if (device >= TT_DEVICES || device == d->device || number >= TT_PORTS)
		return false;
	*ret_peer = (struct tt_peer){.dev = &d->mem->devices[device],
				     .port = &d->mem->devices[device].ports[number],
				     .device = device,
				     .number = number};
	return true;
}

static bool room_at(const struct tt_driver *d, uint32_t output)
{
	struct tt_port *port = &d->dev->ports[output];
	struct tt_peer peer;

	if (port->kind == TT_PORT_HOST)
		return !tt_ring_full(&port->out);
	return port->credits > 0 && tt_peer_of(d, output, &peer) && !tt_ring_full(&peer.port->in);
}

static void tell_peer(struct tt_driver *d, const struct tt_peer *peer)
{
	tt_fetch_or(&peer->dev->posted, tt_bit(peer->number)); /* L1 */
	d->me->touched |= tt_bit(peer->device);
}

/* On the ring of the device at the other end of a link. */
static void push_to_peer(struct tt_driver *d, struct tt_port *port, const struct tt_peer *peer,
			 tt_ring_entry entry)
{
	uint32_t owed = port->owed < 255 ? port->owed : 255;

	tt_ring_push(&peer->port->in,
		     tt_entry_make(tt_entry_slot(entry), owed, tt_entry_sequence(entry)));
	port->owed -= owed;
	tell_peer(d, peer);
}

void tt_deliver(struct tt_driver *d, uint32_t output, struct tt_slot *slot, tt_ring_entry entry)
{
	struct tt_port *port = &d->dev->ports[output];
	uint32_t member = tt_load_relaxed(&port->member), kind = tt_load_relaxed(&port->kind);
	struct tt_peer peer;

	if (kind == TT_PORT_LINK && tt_peer_of(d, output, &peer)) {
		tt_slot_hold_device(slot, peer.device);
		port->credits--;
		push_to_peer(d, port, &peer, entry);
	} else if (kind == TT_PORT_HOST && member < TT_MEMBERS) {
		/* Meant for who was here before. A port may also be routed others' packets to. */
		if (!(tt_load_relaxed(&slot->head.flags) & TT_PACKET_MULTICAST) &&
		    tt_load_relaxed(&slot->head.destination) == member &&
		    tt_load_relaxed(&slot->incarnation) != port->incarnation) {
			tt_count(&port->dropped, 1);
			return;
		}
		tt_slot_hold_member(slot, member);
		tt_ring_push(&port->out, entry);
		tt_member_wake(d->mem, member);
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
	struct tt_voq *voq = tt_queue(d, input, output);
	tt_ring_entry entry = tt_voq_first(voq);
	struct tt_slot *slot = tt_slot_of(d->mem, entry);

	pick_up(d, entry, input, output, TT_NO_ENTRY);
	tt_voq_advance(voq);
	if (d->dev->fifo)
		tt_look_at_first(d, input);
	else if (!tt_voq_count(voq))
		tt_note(&d->dev->waiting[output], 0, tt_bit(input));
	if (slot) {
		tt_deliver(d, output, slot, entry);
		leave_queue(d, slot, entry);
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
		uint32_t number = (uint32_t)__builtin_ctz(set);
		struct tt_port *port = &d->dev->ports[number];
		struct tt_peer peer;

		if (port->kind != TT_PORT_LINK || !port->owed || port->owed < port->window / 2 ||
		    !tt_peer_of(d, number, &peer))
			continue;
		tt_count(&port->grants, 1);
		tt_fetch_add(&peer.port->granted, port->owed);
		port->owed = 0;
		tell_peer(d, &peer);
	}
}

/* Each as if it went: a burier that dies in here leaves nothing half done. */
void tt_forget_port(struct tt_driver *d, uint32_t port)
{
	struct tt_ring *in = &d->dev->ports[port].in;
	tt_ring_entry entry;

	for (uint32_t input = 0; input < TT_PORTS && !d->dev->fifo; input++) {
		struct tt_voq *voq = &d->dev->voq[input][port];

		for (uint32_t left = tt_voq_count(voq); left; left--) {
			struct tt_slot *slot;

			entry = tt_voq_first(voq);
			slot = tt_slot_of(d->mem, entry);
			pick_up(d, entry, input, port, TT_NO_ENTRY);
			tt_voq_advance(voq);
			tt_count(&d->dev->dropped, 1);
			if (slot)
				leave_queue(d, slot, entry);
			put_down(d);
		}
	}
	tt_note(&d->dev->waiting[port], 0, ~0u);
	for (unsigned i = 0; i < TT_RING_ENTRIES && tt_ring_peek(in, &entry); i++) {
		struct tt_slot *slot = tt_slot_of(d->mem, entry);

		pick_up(d, entry, port, TT_NO_PORT, TT_NO_ENTRY);
		tt_ring_advance(in);
		if (slot)
			tt_slot_drop_device(slot, d->device);
		put_down(d);
	}
}
