/* SPDX-License-Identifier: MIT */
/* The memory of a fabric, its members, its devices and the links between them. */
#include "device/fabric.h"

#include "base/clock.h"
#include "base/shm.h"
#include "device/device_int.h"
#include "device/instance.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- memory ------------------------------------------------------------------------------ */

static int open_memory(struct tt_fabric *fabric, bool fresh)
{
	size_t bytes;
	void *base;
	int err = tt_shm_map(fabric->fd, sizeof(struct tt_fabric_mem), &base, &bytes);

	if (err < 0)
		return err;
	fabric->mem = base;
	if (bytes != sizeof(struct tt_fabric_mem))
		err = -EPROTO;
	else if (fresh) {
		fabric->mem->version = TT_FABRIC_VERSION;
		tt_store_release(&fabric->mem->magic, TT_FABRIC_MAGIC);
	} else if (tt_load_acquire(&fabric->mem->magic) != TT_FABRIC_MAGIC ||
		   fabric->mem->version != TT_FABRIC_VERSION) {
		err = -EPROTO;
	}
	if (err)
		tt_shm_unmap(base, bytes);
	return err;
}

static int open_fabric(int fd, bool fresh, struct tt_fabric **ret_fabric)
{
	struct tt_fabric *fabric = calloc(1, sizeof *fabric);
	int err = -ENOMEM;

	if (!fabric || fd < 0) {
		err = fd < 0 ? fd : -ENOMEM;
		goto fail;
	}
	fabric->fd = tt_fd_high(fd);
	fd = fabric->fd;
	fabric->now_ns = tt_now_ns;
	err = open_memory(fabric, fresh);
	if (err)
		goto fail;
	*ret_fabric = fabric;
	return 0;
fail:
	tt_fd_close(fd);
	free(fabric);
	return err;
}

int tt_fabric_create(struct tt_fabric **ret_fabric)
{
	return open_fabric(tt_shm_create("tutti-fabric", sizeof(struct tt_fabric_mem)), true,
			   ret_fabric);
}

int tt_fabric_attach(int fd, struct tt_fabric **ret_fabric)
{
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	return open_fabric(own < 0 ? -errno : own, false, ret_fabric);
}

void tt_fabric_destroy(struct tt_fabric *fabric)
{
	if (!fabric)
		return;
	tt_shm_unmap(fabric->mem, sizeof(struct tt_fabric_mem));
	tt_fd_close(fabric->fd);
	free(fabric);
}

/* --- who lives --------------------------------------------------------------------------- */

/*
 * A member holds a record lock on the byte of the file that has its number.
 * The kernel gives it up when the process ends, however that happens; it is not
 * inherited by children. Closing any descriptor of the file in this process
 * would give it up, too: the fabric keeps one, and nobody opens another.
 */
static int lock_byte(struct tt_fabric *fabric, uint32_t member, short type)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = member, .l_len = 1};

	return fcntl(fabric->fd, F_SETLK, &lock) < 0 ? -errno : 0;
}

/* Not by the pid in the memory: that may be of one long dead, or a lie. */
static bool is_own(const struct tt_fabric *fabric, uint32_t member)
{
	return fabric->pid == getpid() &&
	       tt_load_relaxed(&fabric->own[member / 64]) >> member % 64 & 1;
}

static void set_own(struct tt_fabric *fabric, uint32_t member, bool own)
{
	if (fabric->pid != getpid()) {
		memset(fabric->own, 0, sizeof fabric->own);
		fabric->pid = getpid();
	}
	if (own)
		tt_fetch_or(&fabric->own[member / 64], 1ull << member % 64);
	else
		tt_fetch_and(&fabric->own[member / 64], ~(1ull << member % 64));
}

bool tt_member_alive(struct tt_fabric *fabric, uint32_t member)
{
	struct flock lock = {
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = member, .l_len = 1};

	if (member >= TT_MEMBERS || !tt_load_acquire(&fabric->mem->members[member].state))
		return false;
	if (is_own(fabric, member))
		return true; /* one's own locks do not show */
	return fcntl(fabric->fd, F_GETLK, &lock) < 0 || lock.l_type != F_UNLCK;
}

/* --- ports -------------------------------------------------------------------------------- */

static int free_port(const struct tt_device_mem *dev)
{
	for (int port = 0; port < TT_OWN_PORT; port++)
		if (dev->ports[port].kind == TT_PORT_NONE)
			return port;
	return -ENOSPC;
}

/* What a port is to be. */
struct opening {
	uint32_t kind, member, incarnation, peer_device, peer_port, window;
};

/*
 * The device is taken. What the port is comes last, then that it is there: who
 * dies between leaves nothing that is driven.
 */
static void open_port(struct tt_device_mem *dev, int number, const struct opening *as)
{
	struct tt_port *port = &dev->ports[number];

	memset(port, 0, sizeof *port);
	port->member = as->member;
	port->incarnation = as->incarnation;
	port->peer_device = as->peer_device;
	port->peer_port = as->peer_port;
	port->window = port->credits = as->window;
	tt_store_release(&port->kind, as->kind);
	if (as->kind == TT_PORT_LINK)
		dev->links |= tt_bit((uint32_t)number);
	tt_store_release(&dev->ports_here, dev->ports_here | tt_bit((uint32_t)number));
}

static void close_port(struct tt_member *me, uint32_t device, uint32_t number)
{
	struct tt_driver d = tt_driver_of(me, device);

	d.dev->ports_here &= ~tt_bit(number);
	d.dev->links &= ~tt_bit(number);
	tt_store_release(&d.dev->ports[number].kind, (uint32_t)TT_PORT_NONE);
	tt_forget_port(&d, number);
}

/* Tells all devices on the way which of their ports lead to a member; breadth first over links. */
static int spread_route(struct tt_member *me, uint32_t device, uint32_t member, uint32_t port)
{
	struct tt_fabric_mem *mem = me->fabric->mem;
	uint32_t from[TT_DEVICES], seen = tt_bit(device), todo = tt_bit(device);

	from[device] = port;
	while (todo) {
		uint32_t at = (uint32_t)__builtin_ctz(todo);
		struct tt_device_mem *dev = &mem->devices[at];

		todo &= todo - 1;
		if (!tt_device_take(me, at))
			return -EAGAIN;
		tt_store_relaxed(&dev->route[member],
				 (uint8_t)(from[at] == TT_NO_PORT ? 0 : from[at] + 1));
		for (uint32_t i = 0; i < TT_PORTS; i++) {
			uint32_t peer = tt_load_relaxed(&dev->ports[i].peer_device),
				 peer_port = tt_load_relaxed(&dev->ports[i].peer_port);

			if (dev->ports[i].kind != TT_PORT_LINK || peer >= TT_DEVICES ||
			    peer_port >= TT_PORTS || seen & tt_bit(peer))
				continue;
			from[peer] = port == TT_NO_PORT ? TT_NO_PORT : peer_port;
			seen |= tt_bit(peer);
			todo |= tt_bit(peer);
		}
		tt_device_give(me, at);
	}
	return 0;
}

int tt_device_route(struct tt_member *me, uint32_t device, uint32_t member, uint32_t port)
{
	if (device >= TT_DEVICES || member >= TT_MEMBERS ||
	    (port >= TT_PORTS && port != TT_NO_PORT))
		return -EINVAL;
	if (!tt_device_take(me, device))
		return -EAGAIN;
	tt_store_relaxed(&me->fabric->mem->devices[device].route[member],
			 (uint8_t)(port == TT_NO_PORT ? 0 : port + 1));
	tt_device_give(me, device);
	return 0;
}

/* --- members ------------------------------------------------------------------------------- */

static int take_place(struct tt_fabric *fabric, uint32_t *ret_member)
{
	for (uint32_t i = 0; i < TT_MEMBERS; i++) {
		struct tt_member_mem *m = &fabric->mem->members[i];
		uint32_t state = TT_MEMBER_FREE;

		if (tt_load_relaxed(&m->state) != TT_MEMBER_FREE ||
		    lock_byte(fabric, i, F_WRLCK) < 0)
			continue;
		if (tt_cas(&m->state, &state, (uint32_t)TT_MEMBER_JOINING)) {
			m->pid = getpid();
			tt_store_relaxed(&m->incarnation, m->incarnation + 1);
			set_own(fabric, i, true);
			*ret_member = i;
			return 0;
		}
		lock_byte(fabric, i, F_UNLCK);
	}
	return -EUSERS;
}

static void give_place(struct tt_fabric *fabric, uint32_t member)
{
	fabric->mem->members[member].pid = 0;
	set_own(fabric, member, false);
	tt_store_release(&fabric->mem->members[member].state, (uint32_t)TT_MEMBER_FREE);
	lock_byte(fabric, member, F_UNLCK);
}

static int join_port(struct tt_member *me, uint32_t device)
{
	struct tt_device_mem *dev = &me->fabric->mem->devices[device];
	int port;

	if (!tt_device_take(me, device))
		return -EAGAIN;
	port = free_port(dev);
	if (port >= 0) {
		struct opening as = {.kind = TT_PORT_HOST,
				     .member = me->index,
				     .incarnation =
					     me->fabric->mem->members[me->index].incarnation};

		open_port(dev, port, &as);
		me->device = device;
		me->port = (uint32_t)port;
	}
	tt_device_give(me, device);
	return port < 0 ? port : spread_route(me, device, me->index, (uint32_t)port);
}

int tt_member_join(struct tt_fabric *fabric, uint32_t device, struct tt_member *ret_member)
{
	struct tt_member me = {.fabric = fabric, .device = TT_NO_DEVICE, .port = TT_NO_PORT};
	struct tt_member_mem *m;
	int err;

	if (device != TT_NO_DEVICE &&
	    (device >= TT_DEVICES || !tt_load_acquire(&fabric->mem->devices[device].kind)))
		return -ENODEV;
	err = take_place(fabric, &me.index);
	if (err)
		return err;
	m = &fabric->mem->members[me.index];
	memset(&m->asleep, 0, sizeof *m - offsetof(struct tt_member_mem, asleep));
	if (device != TT_NO_DEVICE) {
		err = join_port(&me, device);
		if (err) {
			tt_member_leave(&me);
			return err;
		}
	}
	m->device = me.device;
	m->port = me.port;
	tt_store_release(&m->state, (uint32_t)TT_MEMBER_HERE);
	*ret_member = me;
	return 0;
}

/* What a member held, in slots anywhere. */
static void drop_all(struct tt_fabric_mem *mem, uint32_t member)
{
	for (uint32_t i = 0; i < TT_SLOTS; i++)
		if (tt_load_relaxed(&mem->slots[i].held_by_members[member / 64]) >> member % 64 & 1)
			tt_slot_drop_member(&mem->slots[i], member);
}

/* Takes a port away; what was posted goes its way before. */
static int remove_port(struct tt_member *me, uint32_t member, uint32_t device, uint32_t port)
{
	struct tt_device_mem *dev = &me->fabric->mem->devices[device];
	struct tt_port *p = &dev->ports[port];

	tt_fetch_or(&dev->posted, tt_bit(port));
	tt_device_drive(me, device);
	if (!tt_device_take(me, device))
		return -EAGAIN;
	if (p->kind == TT_PORT_HOST && p->member == member) {
		struct tt_driver d;

		close_port(me, device, port);
		d = tt_driver_of(me, device);
		tt_drop_unposted(&d, member);
	}
	tt_device_give(me, device);
	return spread_route(me, device, member, TT_NO_PORT);
}

/* Ports are looked for where they are: one that dies while it joins has noted nothing yet. */
static int remove_member(struct tt_member *me, uint32_t member)
{
	struct tt_fabric_mem *mem = me->fabric->mem;

	for (uint32_t device = 0; device < TT_DEVICES; device++)
		for (uint32_t port = 0; port < TT_PORTS; port++) {
			const struct tt_port *p = &mem->devices[device].ports[port];
			int err;

			if (tt_load_acquire(&p->kind) != TT_PORT_HOST ||
			    tt_load_relaxed(&p->member) != member)
				continue;
			err = remove_port(me, member, device, port);
			if (err)
				return err;
		}
	for (uint32_t i = 0; i < TT_GROUPS; i++)
		tt_fetch_and(&mem->groups[i].members[member / 64], ~(1ull << member % 64));
	drop_all(mem, member);
	return 0;
}

void tt_member_leave(struct tt_member *member)
{
	member->touched |= tt_member_under_way(member->fabric->mem, member->index);
	tt_device_drive(member, member->device);
	tt_instances_forget(member);
	if (remove_member(member, member->index) == 0)
		give_place(member->fabric, member->index);
}

/* Before somebody comes in its place, who lives: nobody would look after these devices then. */
static void inherit_devices(struct tt_member *me, uint32_t member)
{
	for (uint32_t device = 0; device < TT_DEVICES; device++)
		if (tt_load_acquire(&me->fabric->mem->devices[device].driver) == member + 1)
			tt_device_inherit(me, device, member + 1);
}

int tt_fabric_bury(struct tt_member *me)
{
	struct tt_fabric *fabric = me->fabric;
	int buried = 0;

	for (uint32_t i = 0; i < TT_MEMBERS; i++) {
		uint32_t state = tt_load_acquire(&fabric->mem->members[i].state);

		/* Its byte is ours while we bury it: one does, and nobody joins in its place. */
		if (state == TT_MEMBER_FREE || tt_member_alive(fabric, i) ||
		    lock_byte(fabric, i, F_WRLCK) < 0)
			continue;
		inherit_devices(me, i);
		if (remove_member(me, i) == 0) {
			give_place(fabric, i);
			buried++;
		} else {
			lock_byte(fabric, i, F_UNLCK);
		}
	}
	/* Whoever died between giving a device up and looking again. */
	for (uint32_t i = 0; buried && i < TT_DEVICES; i++)
		tt_device_drive(me, i);
	return buried;
}

/* --- devices ---------------------------------------------------------------------------------- */

int tt_device_find(struct tt_fabric *fabric, const char *name)
{
	for (int i = 0; i < TT_DEVICES; i++)
		if (tt_load_acquire(&fabric->mem->devices[i].kind) &&
		    !strncmp(fabric->mem->devices[i].name, name, TT_NAME_BYTES))
			return i;
	return -ENOENT;
}

int tt_device_add(struct tt_member *me, enum tt_device_kind kind, const char *name)
{
	struct tt_fabric *fabric = me->fabric;
	int ret = -ENOSPC;

	if (!*name || strlen(name) >= TT_NAME_BYTES)
		return -EINVAL;
	if (tt_device_find(fabric, name) >= 0)
		return -EEXIST;
	for (uint32_t i = 0; i < TT_DEVICES && ret < 0; i++) {
		struct tt_device_mem *dev = &fabric->mem->devices[i];

		if (tt_load_acquire(&dev->kind) || !tt_device_take(me, i))
			continue;
		if (!dev->kind) {
			strncpy(dev->name, name, TT_NAME_BYTES - 1);
			dev->default_port = TT_NO_PORT;
			tt_store_release(&dev->kind, (uint32_t)kind);
			ret = (int)i;
		}
		tt_device_give(me, i);
	}
	return ret;
}

int tt_device_set_slots(struct tt_member *me, uint32_t device, int64_t slot_ns)
{
	struct tt_device_mem *dev = &me->fabric->mem->devices[device];

	if (!tt_device_take(me, device))
		return -EAGAIN;
	dev->slot_ns = slot_ns;
	dev->last_slot = -1;
	tt_device_give(me, device);
	return 0;
}

int tt_group_enter(struct tt_member *me, uint32_t group, bool in)
{
	uint64_t *word, bit = 1ull << me->index % 64;

	if (!group || group >= TT_GROUPS)
		return -EINVAL;
	word = &me->fabric->mem->groups[group].members[me->index / 64];
	if (in)
		tt_fetch_or(word, bit);
	else
		tt_fetch_and(word, ~bit);
	return 0;
}

int tt_device_set_fifo(struct tt_member *me, uint32_t device, bool fifo)
{
	struct tt_device_mem *dev = &me->fabric->mem->devices[device];

	if (!tt_device_take(me, device))
		return -EAGAIN;
	dev->fifo = fifo;
	tt_device_give(me, device);
	return 0;
}

/* Both devices are taken: the lower one first, so that two who connect do not wait for each other. */
int tt_device_connect(struct tt_member *me, uint32_t device, uint32_t other, uint32_t window)
{
	struct tt_fabric_mem *mem = me->fabric->mem;
	uint32_t low = device < other ? device : other, high = device < other ? other : device;
	uint32_t ends[2] = {device, other};
	int ports[2], err = 0;

	if (high >= TT_DEVICES || low == high || !window || window > TT_OWNER_SLOTS ||
	    !mem->devices[low].kind || !mem->devices[high].kind)
		return -EINVAL;
	if (!tt_device_take(me, low))
		return -EAGAIN;
	if (!tt_device_take(me, high)) {
		tt_device_give(me, low);
		return -EAGAIN;
	}
	for (int i = 0; i < 2; i++) {
		ports[i] = free_port(&mem->devices[ends[i]]);
		if (ports[i] < 0)
			err = ports[i];
	}
	for (int i = 0; i < 2 && !err; i++) {
		struct tt_device_mem *dev = &mem->devices[ends[i]];
		struct opening as = {.kind = TT_PORT_LINK,
				     .peer_device = ends[!i],
				     .peer_port = (uint32_t)ports[!i],
				     .window = window};

		open_port(dev, ports[i], &as);
		/* What a NIC does not know is up the link. */
		if (dev->kind == TT_DEVICE_NIC && dev->default_port == TT_NO_PORT)
			dev->default_port = (uint32_t)ports[i];
	}
	tt_device_give(me, high);
	tt_device_give(me, low);
	/* Who is there already becomes known at the other end. */
	for (uint32_t i = 0; i < TT_MEMBERS && !err; i++) {
		uint32_t at = tt_load_relaxed(&mem->members[i].device),
			 port = tt_load_relaxed(&mem->members[i].port);

		if (tt_load_acquire(&mem->members[i].state) == TT_MEMBER_HERE && at < TT_DEVICES &&
		    port < TT_PORTS)
			err = spread_route(me, at, i, port);
	}
	return err;
}
