/* SPDX-License-Identifier: MIT */
/*
 * Members: sending, receiving, waiting.
 *
 * A sleeper says so and looks again (S0), whoever gives it something puts that
 * into its ring first and then looks whether it sleeps (S1).
 */
#include "base/clock.h"
#include "device/device_int.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The next own slot that nobody holds; looked for in turn, so mostly at once. */
static struct tt_slot *free_slot(struct tt_member *me, uint32_t *ret_index)
{
	for (uint32_t i = 0; i < TT_OWNER_SLOTS; i++) {
		uint32_t index = me->index * TT_OWNER_SLOTS + (me->next_slot + i) % TT_OWNER_SLOTS;
		struct tt_slot *slot = &me->fabric->mem->slots[index];

		if (!tt_slot_free(slot))
			continue;
		me->next_slot = (me->next_slot + i + 1) % TT_OWNER_SLOTS;
		*ret_index = index;
		return slot;
	}
	return NULL;
}

static int post_from(struct tt_member *me, uint32_t source, const struct tt_packet_head *head,
		     const void *bytes)
{
	struct tt_member_mem *m = &me->fabric->mem->members[me->index];
	struct tt_device_mem *dev;
	struct tt_port *port;
	struct tt_slot *slot;
	uint32_t index;

	if (me->device >= TT_DEVICES)
		return -ENODEV;
	if (head->bytes > TT_PAYLOAD_BYTES)
		return -EMSGSIZE;
	dev = &me->fabric->mem->devices[me->device];
	port = &dev->ports[me->port];
	if (tt_ring_full(&port->in))
		return -EAGAIN;
	slot = free_slot(me, &index);
	if (!slot)
		return -EAGAIN;
	tt_store_relaxed(&slot->sequence, slot->sequence + 1);
	slot->head = *head;
	slot->head.source = source;
	slot->incarnation =
		head->destination < TT_MEMBERS
			? tt_load_relaxed(&me->fabric->mem->members[head->destination].incarnation)
			: 0;
	if (head->bytes)
		memcpy(slot->payload, bytes, head->bytes);
	tt_slot_hold_device(slot, me->device);
	tt_ring_push(&port->in, tt_entry_make(index, 0, slot->sequence));
	tt_fetch_or(&dev->posted, tt_bit(me->port)); /* L1 */
	me->touched |= tt_bit(me->device);
	tt_count(&m->posted_packets, 1);
	tt_count(&m->posted_bytes, head->bytes);
	return 0;
}

int tt_member_post(struct tt_member *me, const struct tt_packet_head *head, const void *bytes)
{
	return post_from(me, me->index, head, bytes);
}

int tt_member_replay(struct tt_member *me, const struct tt_packet_head *head, const void *bytes)
{
	return post_from(me, head->source, head, bytes);
}

int tt_member_send(struct tt_member *me, const struct tt_packet_head *head, const void *bytes)
{
	int err = tt_member_post(me, head, bytes);

	tt_device_drive(me, me->device);
	if (err == -EAGAIN)
		err = tt_member_post(me, head, bytes);
	return err;
}

/* A device may have waited for a slot of its own. */
static void note_room(struct tt_member *me, tt_ring_entry entry)
{
	uint32_t owner = tt_entry_slot(entry) / TT_OWNER_SLOTS, device = owner - TT_MEMBERS;
	struct tt_device_mem *dev;

	if (owner < TT_MEMBERS || device >= TT_DEVICES)
		return;
	dev = &me->fabric->mem->devices[device];
	if (!tt_load_relaxed(&dev->blocked))
		return;
	tt_fetch_or(&dev->posted, tt_load_relaxed(&dev->blocked));
	me->touched |= tt_bit(device);
}

int tt_member_receive(struct tt_member *me, struct tt_packet_head *ret_head, void *ret_bytes,
		      size_t room)
{
	struct tt_member_mem *m = &me->fabric->mem->members[me->index];
	struct tt_device_mem *dev;
	struct tt_port *port;
	tt_ring_entry entry;

	if (me->device >= TT_DEVICES)
		return -ENODEV;
	dev = &me->fabric->mem->devices[me->device];
	port = &dev->ports[me->port];
	for (unsigned i = 0; i < TT_RING_ENTRIES && tt_ring_peek(&port->out, &entry); i++) {
		struct tt_slot *slot = tt_slot_of(me->fabric->mem, entry);
		struct tt_packet_head head;

		if (!slot) {
			tt_ring_advance(&port->out);
			continue;
		}
		memcpy(&head, &slot->head, sizeof head);
		if (head.bytes > TT_PAYLOAD_BYTES)
			head.bytes = TT_PAYLOAD_BYTES;
		if (room && head.bytes)
			memcpy(ret_bytes, slot->payload, head.bytes < room ? head.bytes : room);
		tt_ring_advance(&port->out);
		/* Full barrier, W1: the driver sees the room, or we that something waits (W0). */
		tt_slot_drop_member(slot, me->index);
		if (tt_load_relaxed(&dev->waiting[me->port])) {
			tt_fetch_or(&dev->posted, tt_bit(me->port));
			me->touched |= tt_bit(me->device);
		}
		note_room(me, entry);
		tt_count(&m->received_packets, 1);
		tt_count(&m->received_bytes, head.bytes);
		*ret_head = head;
		return 0;
	}
	return -EAGAIN;
}

/* --- waiting -------------------------------------------------------------------------------- */

static long futex(uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
	return syscall(SYS_futex, word, op, value, timeout, NULL, 0);
}

bool tt_member_wake(struct tt_fabric_mem *mem, uint32_t member)
{
	struct tt_member_mem *m;

	if (member >= TT_MEMBERS)
		return false;
	m = &mem->members[member];
	if (!tt_load_relaxed(&m->asleep) || !tt_exchange(&m->asleep, 0u)) /* S1 */
		return false;
	tt_count(&m->doorbells, 1);
	return futex(&m->asleep, FUTEX_WAKE, 1, NULL) > 0;
}

static bool something_there(struct tt_member *me)
{
	tt_ring_entry entry;

	return tt_ring_peek(&me->fabric->mem->devices[me->device].ports[me->port].out, &entry);
}

/* Our device has work that nobody does: its driver left it to us, or died. */
static bool work_there(const struct tt_member *me)
{
	const struct tt_device_mem *dev = &me->fabric->mem->devices[me->device];

	return tt_load_relaxed(&dev->posted);
}

uint32_t tt_member_under_way(const struct tt_fabric_mem *mem, uint32_t member)
{
	uint32_t devices = 0;

	for (uint32_t i = 0; i < TT_OWNER_SLOTS; i++)
		devices |=
			tt_load_relaxed(&mem->slots[member * TT_OWNER_SLOTS + i].held_by_devices);
	return devices;
}

/*
 * A driver may die with our packets in a device, and nobody else need notice:
 * with some under way we look from time to time, at the devices where they are.
 * Without, we sleep until we are woken.
 */
static int sleep_once(struct tt_member *me, int64_t left_ns)
{
	struct tt_member_mem *m = &me->fabric->mem->members[me->index];
	const int64_t look_ns = 20 * 1000 * 1000;
	uint32_t devices = tt_member_under_way(me->fabric->mem, me->index);
	struct timespec ts;
	int err;

	if (devices && (left_ns < 0 || left_ns > look_ns))
		left_ns = look_ns;
	ts = (struct timespec){left_ns / TT_NS_PER_SEC, left_ns % TT_NS_PER_SEC};
	tt_store_relaxed(&m->asleep, 1u);
	tt_fence(); /* S0 */
	if (something_there(me) || work_there(me) || me->touched) {
		tt_store_relaxed(&m->asleep, 0u);
		return 0;
	}
	tt_count(&m->sleeps, 1);
	err = futex(&m->asleep, FUTEX_WAIT, 1, left_ns < 0 ? NULL : &ts) < 0 ? -errno : 0;
	tt_store_relaxed(&m->asleep, 0u);
	me->touched |= devices;
	return err == -EINTR ? err : 0;
}

int tt_member_wait(struct tt_member *me, int64_t spin_ns, int64_t timeout_ns)
{
	int64_t start = tt_now_ns();

	if (me->device >= TT_DEVICES)
		return -ENODEV;
	for (unsigned i = 0;; i++) {
		int64_t spent;
		int err;

		/* A driver that has left its work to us is not coming back for it. */
		if (something_there(me) && !work_there(me))
			return 0;
		tt_device_drive(me, me->device);
		if (something_there(me))
			return 0;
		spent = tt_now_ns() - start;
		if (timeout_ns >= 0 && spent >= timeout_ns)
			return -ETIMEDOUT;
		if (spent < spin_ns) {
			tt_pause();
			continue;
		}
		err = sleep_once(me, timeout_ns < 0 ? -1 : timeout_ns - spent);
		if (err)
			return err;
	}
}
