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
	while (tt_ring_peek(&port->out, &entry)) {
		struct tt_slot *slot = tt_slot_of(me->fabric->mem, entry);
		struct tt_packet_head head;

		if (!slot) {
			tt_ring_advance(&port->out);
			continue;
		}
		memcpy(&head, &slot->head, sizeof head);
		if (head.bytes > TT_PAYLOAD_BYTES)
			head.bytes = TT_PAYLOAD_BYTES;
		memcpy(ret_bytes, slot->payload, head.bytes < room ? head.bytes : room);
		tt_ring_advance(&port->out);
		tt_slot_drop_member(
			slot,
			me->index); /* full barrier: the driver sees the room, or we its wait */
		if (tt_load_relaxed(&dev->waiting[me->port])) {
			tt_fetch_or(&dev->posted, tt_bit(me->port));
			me->touched |= tt_bit(me->device);
		}
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

static int sleep_once(struct tt_member *me, int64_t left_ns)
{
	struct tt_member_mem *m = &me->fabric->mem->members[me->index];
	/* Should a driver die with our packet, somebody has to look. */
	const int64_t longest = 100 * 1000 * 1000;
	struct timespec ts;

	if (left_ns < 0 || left_ns > longest)
		left_ns = longest;
	ts = (struct timespec){left_ns / TT_NS_PER_SEC, left_ns % TT_NS_PER_SEC};
	tt_store_relaxed(&m->asleep, 1u);
	tt_fence(); /* S0 */
	if (something_there(me) || work_there(me)) {
		tt_store_relaxed(&m->asleep, 0u);
		return 0;
	}
	tt_count(&m->sleeps, 1);
	int err = futex(&m->asleep, FUTEX_WAIT, 1, &ts) < 0 ? -errno : 0;

	tt_store_relaxed(&m->asleep, 0u);
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

		if (something_there(me))
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
