/* SPDX-License-Identifier: MIT */
/*
 * Who drives a device. Whoever has posted to it, or waits for it, takes it if
 * it is free and works until nothing is left; whoever finds it taken leaves its
 * work to the one who has it (after "Flat combining and the synchronization-
 * parallelism tradeoff", SPAA 2010). Nothing is lost between the two:
 *
 *	poster: posts, sets its bit in posted (L1, full barrier), tries to take
 *	driver: gives the device up, full barrier (L0), looks at posted again
 *
 * Nobody drives for ever: after some packets the driver lets others come, and
 * wakes one that sleeps.
 *
 * A driver that died is found by its lock (fabric.c) by whoever would like to
 * drive; that one repairs what it left (recover.c). Who sleeps with packets of
 * its own under way looks from time to time (member.c).
 */
#include "base/clock.h"
#include "device/device_int.h"

#include <sched.h>

enum {
	INPUT_BATCH = 16,
	LET_OTHERS = 512,	     /* packets */
	LONGEST_DRIVE = 256,	     /* times that others were let, and did not come */
	SUSPECT_NS = 1000 * 1000,    /* the same driver for so long: does it live? */
	MOST_ROUNDS = 1 << 16,	     /* from device to device */
	TAKE_NS = 200 * 1000 * 1000, /* how long a change of the device waits */
	ISLIP_ROUNDS = 4,
};

struct tt_driver tt_driver_of(struct tt_member *me, uint32_t device)
{
	struct tt_fabric_mem *mem = me->fabric->mem;
	struct tt_driver d = {.me = me, .mem = mem, .dev = &mem->devices[device], .device = device};

	d.ports = tt_load_relaxed(&d.dev->ports_here);
	return d;
}

/* Whoever drove is dead. */
static bool inherit(struct tt_member *me, uint32_t device, uint32_t driver)
{
	struct tt_driver d;

	if (!tt_cas(&me->fabric->mem->devices[device].driver, &driver, me->index + 1))
		return false;
	me->suspects[device].driver = 0;
	d = tt_driver_of(me, device);
	tt_recover(&d);
	return true;
}

/* It is taken by somebody who is dead, as far as we can see: takes it from him. */
static bool take_from_dead(struct tt_member *me, uint32_t device, uint32_t driver)
{
	int64_t now = tt_now_ns(); /* how people are: not the devices' time */
	struct tt_suspect *suspect = &me->suspects[device];

	if (suspect->driver != driver) {
		*suspect = (struct tt_suspect){driver, now};
		return false;
	}
	if (now - suspect->since_ns < SUSPECT_NS)
		return false;
	suspect->since_ns = now;
	if (driver <= TT_MEMBERS && tt_member_alive(me->fabric, driver - 1))
		return false;
	return inherit(me, device, driver);
}

static bool take(struct tt_member *me, uint32_t device)
{
	uint32_t *driver = &me->fabric->mem->devices[device].driver, nobody = 0;

	if (!tt_load_relaxed(driver) && tt_cas(driver, &nobody, me->index + 1))
		return true;
	nobody = tt_load_relaxed(driver);
	return nobody && take_from_dead(me, device, nobody);
}

static void give(struct tt_member *me, uint32_t device)
{
	/* L0: whoever posted before sees that it is free, or we what it posted */
	tt_exchange(&me->fabric->mem->devices[device].driver, 0u);
}

bool tt_device_try(struct tt_member *me, uint32_t device)
{
	return take(me, device);
}

void tt_device_release(struct tt_member *me, uint32_t device)
{
	give(me, device);
	if (tt_load_relaxed(&me->fabric->mem->devices[device].posted))
		me->touched |= tt_bit(device);
}

void tt_device_inherit(struct tt_member *me, uint32_t device, uint32_t driver)
{
	if (inherit(me, device, driver))
		tt_device_give(me, device);
}

bool tt_device_take(struct tt_member *me, uint32_t device)
{
	int64_t end = tt_now_ns() + TAKE_NS;

	while (!take(me, device)) {
		if (tt_now_ns() > end)
			return false;
		sched_yield();
	}
	return true;
}

void tt_device_give(struct tt_member *me, uint32_t device)
{
	give(me, device);
	if (tt_load_relaxed(&me->fabric->mem->devices[device].posted))
		tt_device_drive(me, device);
}

/* In slots of time: one packet for each input and output, once for each slot. */
static bool slot_begins(const struct tt_driver *d)
{
	int64_t slot, slot_ns = tt_load_relaxed(&d->dev->slot_ns);

	if (slot_ns <= 0)
		return true;
	slot = d->me->fabric->now_ns() / slot_ns;
	if (slot == d->dev->last_slot)
		return false;
	d->dev->last_slot = slot;
	return true;
}

/* Somebody else to go on: one that waits awake has a moment, or one that sleeps is woken. */
static bool let_others(struct tt_driver *d)
{
	uint32_t *driver = &d->dev->driver;

	give(d->me, d->device);
	for (int i = 0; i < 64; i++) {
		tt_pause();
		if (tt_load_relaxed(driver))
			return true;
	}
	for (uint32_t set = d->ports; set; set &= set - 1) {
		struct tt_port *port = &d->dev->ports[__builtin_ctz(set)];

		if (port->kind == TT_PORT_HOST && port->member != d->me->index &&
		    tt_member_wake(d->mem, port->member))
			return true;
	}
	return !take(d->me, d->device);
}

/* For room in a receiver's ring, or for a slot that receivers have. */
static bool something_waits(const struct tt_driver *d)
{
	uint32_t waits = d->dev->blocked;

	for (uint32_t set = d->ports; set; set &= set - 1)
		waits |= d->dev->waiting[__builtin_ctz(set)];
	return waits;
}

/* Until nothing is left to do; false: somebody else goes on. */
static bool run(struct tt_member *me, uint32_t device)
{
	struct tt_driver d = tt_driver_of(me, device);
	unsigned most = d.dev->slot_ns > 0 ? 1 : INPUT_BATCH, since = 0, handovers = 0;
	bool looked_again = false;
	uint32_t inputs = d.dev->blocked;

	tt_count(&d.dev->drives, 1);
	if (d.dev->unsettled)
		tt_settle_links(&d);
	for (;;) {
		unsigned moved = 0;

		if (tt_load_relaxed(&d.dev->posted))
			inputs |= tt_exchange(&d.dev->posted, 0u);
		if (!slot_begins(&d)) {
			tt_note(&d.dev->blocked, inputs & d.ports, 0);
			return true;
		}
		inputs = tt_take_inputs(&d, inputs & d.ports, most, &moved);
		moved += tt_match(&d, most == 1 ? ISLIP_ROUNDS : 1);
		tt_return_credits(&d);
		if (!moved) {
			/* W0: a receiver sees that something waits (W1), or we the room that it made. */
			if (looked_again || !something_waits(&d))
				return true;
			tt_fence();
			looked_again = true;
			inputs |= d.dev->blocked;
			continue;
		}
		looked_again = false;
		inputs |= d.dev->blocked;
		tt_count(&d.dev->packets, moved);
		since += moved;
		if (since >= LET_OTHERS) {
			since = 0;
			tt_count(&d.dev->handovers, 1);
			tt_fetch_or(&d.dev->posted, inputs);
			if (let_others(&d))
				return false;
			/* Nobody comes, and there is no end to it: we come back, like others. */
			if (++handovers == LONGEST_DRIVE) {
				give(me, device);
				me->touched |= tt_bit(device);
				return false;
			}
		}
	}
}

/* False: for us, it is enough; there is more. */
static bool drive_one(struct tt_member *me, uint32_t device)
{
	struct tt_device_mem *dev = &me->fabric->mem->devices[device];

	for (unsigned round = 0; round < LONGEST_DRIVE; round++) {
		if (!take(me, device) || !run(me, device))
			return !(me->touched & tt_bit(device));
		give(me, device);
		if (!tt_load_relaxed(&dev->posted))
			return true;
	}
	me->touched |= tt_bit(device);
	return false;
}

void tt_device_drive(struct tt_member *me, uint32_t device)
{
	uint32_t todo = device < TT_DEVICES ? tt_bit(device) : 0;
	bool more = true;

	for (unsigned round = 0; more && round < MOST_ROUNDS; round++) {
		todo = (todo | me->touched) & ~me->others;
		me->touched = 0;
		if (!todo)
			return;
		device = (uint32_t)__builtin_ctz(todo);
		todo &= todo - 1;
		more = drive_one(me, device);
	}
	me->touched |= todo;
}
