/* SPDX-License-Identifier: MIT */
/*
 * Who drives a device. Whoever has posted to it, or waits for it, takes it if
 * it is free and works until nothing is left; whoever finds it taken leaves its
 * work to the one who has it (flat combining: Flat combining and the synchronization-parallelism tradeoff,
 * SPAA 2010). Nothing is lost between the two:
 *
 *	poster: posts, sets its bit in posted (L1, full barrier), tries to take
 *	driver: gives the device up, full barrier (L0), looks at posted again
 *
 * Nobody drives for ever: after some packets the driver lets others come, and
 * wakes one that sleeps.
 *
 * A driver that died is found by its lock (alive.c) by whoever would like to
 * drive; that one repairs what it left.
 */
#include "base/clock.h"
#include "device/device_int.h"

#include <sched.h>

enum {
	INPUT_BATCH = 16,
	LET_OTHERS = 512,	     /* packets */
	SUSPECT_NS = 1000 * 1000,    /* the same driver for so long: does it live? */
	TAKE_NS = 200 * 1000 * 1000, /* how long a change of the device waits */
	ROUNDS = 1 << 20,
	ISLIP_ROUNDS = 4,
};

struct tt_driver tt_driver_of(struct tt_member *me, uint32_t device)
{
	struct tt_fabric_mem *mem = me->fabric->mem;
	struct tt_driver d = {.me = me, .mem = mem, .dev = &mem->devices[device], .device = device};

	d.ports = tt_load_relaxed(&d.dev->ports_here);
	return d;
}

/* It is taken by somebody who is dead, as far as we can see: takes it from him. */
static bool take_from_dead(struct tt_member *me, uint32_t device, uint32_t driver)
{
	uint64_t now = (uint64_t)tt_now_ns(); /* how people are: not the devices' time */
	uint32_t mark = driver | device << 16;

	if (me->suspect_driver != mark) {
		me->suspect_driver = mark;
		me->suspect = now;
		return false;
	}
	if (now - me->suspect < SUSPECT_NS)
		return false;
	me->suspect = now;
	if (driver <= TT_MEMBERS && tt_member_alive(me->fabric, driver - 1))
		return false;
	if (!tt_cas(&me->fabric->mem->devices[device].driver, &driver, me->index + 1))
		return false;
	me->suspect_driver = 0;
	struct tt_driver d = tt_driver_of(me, device);

	tt_recover(&d);
	return true;
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
	int64_t slot;

	if (!d->dev->slot_ns)
		return true;
	slot = d->me->fabric->now_ns() / d->dev->slot_ns;
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

/* Until nothing is left to do; false: somebody else goes on. */
static bool run(struct tt_member *me, uint32_t device)
{
	struct tt_driver d = tt_driver_of(me, device);
	unsigned most = d.dev->slot_ns ? 1 : INPUT_BATCH, since = 0;
	uint32_t inputs = d.dev->blocked;

	tt_count(&d.dev->drives, 1);
	for (;;) {
		unsigned moved = 0;

		if (tt_load_relaxed(&d.dev->posted))
			inputs |= tt_exchange(&d.dev->posted, 0u);
		if (!slot_begins(&d)) {
			d.dev->blocked |= inputs & d.ports;
			return true;
		}
		inputs = tt_take_inputs(&d, inputs & d.ports, most, &moved);
		moved += tt_match(&d, d.dev->slot_ns ? ISLIP_ROUNDS : 1);
		tt_return_credits(&d);
		if (!moved)
			return true;
		inputs |= d.dev->blocked;
		tt_count(&d.dev->packets, moved);
		since += moved;
		if (since >= LET_OTHERS) {
			since = 0;
			tt_count(&d.dev->handovers, 1);
			tt_fetch_or(&d.dev->posted, inputs);
			if (let_others(&d))
				return false;
		}
	}
}

static void drive_one(struct tt_member *me, uint32_t device)
{
	struct tt_device_mem *dev = &me->fabric->mem->devices[device];

	for (unsigned round = 0; round < ROUNDS; round++) {
		if (!take(me, device) || !run(me, device))
			return;
		give(me, device);
		if (!tt_load_relaxed(&dev->posted))
			return;
	}
}

void tt_device_drive(struct tt_member *me, uint32_t device)
{
	uint32_t todo = device < TT_DEVICES ? tt_bit(device) : 0;

	for (unsigned round = 0; round < ROUNDS; round++) {
		todo = (todo | me->touched) & ~me->others;
		me->touched = 0;
		if (!todo)
			return;
		device = (uint32_t)__builtin_ctz(todo);
		todo &= todo - 1;
		drive_one(me, device);
	}
}
