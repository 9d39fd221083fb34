/* SPDX-License-Identifier: MIT */
/*
 * Loading, running, faults. One loads at a time: the caller sees to that.
 *
 * Memory of an instance: its data as the program has them, then its maps in
 * their order. Sizes come from the program's image, never from the fabric's
 * memory, where only the place stands, which is checked.
 */
#include "device/instance_int.h"

#include "vm/share.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t round64(uint64_t bytes)
{
	return (bytes + 63) & ~63ull;
}

/* Bytes of memory that a program wants; ret_data: of these, data. */
static int64_t memory_of(const struct tutti_vm_program *program, uint64_t *ret_data)
{
	const struct tutti_vm_map *defs;
	const void *data;
	uint32_t n = tt_vm_program_maps(program, &defs);
	int64_t bytes = (int64_t)round64(tt_vm_program_data(program, &data));

	*ret_data = (uint64_t)bytes;
	if (n > TT_INSTANCE_MAPS)
		return -E2BIG;
	for (uint32_t i = 0; i < n; i++) {
		int64_t map = tt_map_bytes(&defs[i]);

		if (map < 0)
			return map;
		bytes += map;
	}
	return bytes > TT_MODULE_BYTES ? -E2BIG : bytes;
}

/* --- a member's side -------------------------------------------------------------------- */

static void drop_side(struct tt_instance *side)
{
	tutti_vm_context_destroy(side->context);
	tutti_vm_program_destroy(side->program);
	*side = (struct tt_instance){0};
}

void tt_instances_forget(struct tt_member *me)
{
	for (uint32_t i = 0; me->instances && i < TT_INSTANCES; i++)
		drop_side(&me->instances[i]);
	free(me->instances);
	me->instances = NULL;
}

static int lay_maps(struct tt_instance *side, uint8_t *memory, uint64_t bytes)
{
	const struct tutti_vm_map *defs;
	uint64_t at = 0;

	side->n_maps = tt_vm_program_maps(side->program, &defs);
	side->maps_memory = memory;
	for (uint32_t i = 0; i < side->n_maps; i++) {
		tt_map_init(&side->maps[i], &defs[i], memory + at);
		tutti_vm_set_map(side->context, i, &side->maps[i]);
		at += (uint64_t)tt_map_bytes(&defs[i]);
	}
	return tutti_vm_set_window(side->context, TUTTI_VM_MAPS, memory, bytes, true);
}

/* Makes what it takes to run an instance here. -ENOENT, -EPROTO: what stands there cannot be. */
static int make_side(struct tt_fabric *fabric, const struct tt_instance_mem *m,
		     struct tt_instance *side)
{
	uint32_t index = tt_load_relaxed(&m->image);
	const void *image = fabric->code ? tt_code_image(fabric->code, index, &side->serial) : NULL;
	uint32_t off = tt_load_relaxed(&m->memory_off);
	uint64_t data;
	int64_t bytes;
	int err;

	if (!image)
		return -ENOENT;
	side->image = index;
	err = tt_vm_program_attach(image, tt_module_env(), &side->program);
	if (err)
		return err;
	bytes = memory_of(side->program, &data);
	if (bytes < 0 || off % 64 || off > TT_MODULE_BYTES ||
	    (uint64_t)bytes > TT_MODULE_BYTES - off)
		return -EPROTO;
	err = tt_vm_context_create_at(side->program, fabric->mem->modules + off, &side->context);
	if (err)
		return err;
	side->entry = tutti_vm_program_entry(side->program, "mdo/packet");
	tutti_vm_set_window(side->context, TUTTI_VM_CTX, &side->packet, sizeof side->packet, false);
	return lay_maps(side, fabric->mem->modules + off + data, (uint64_t)bytes - data);
}

static struct tt_instance *side_of(struct tt_member *me, uint32_t index)
{
	const struct tt_instance_mem *m = &me->fabric->mem->instances[index];
	uint32_t generation = tt_load_acquire(&m->generation);
	struct tt_instance *side;

	if (!me->instances) {
		me->instances = calloc(TT_INSTANCES, sizeof *me->instances);
		if (!me->instances)
			return NULL;
	}
	side = &me->instances[index];
	/* Whatever generation somebody wrote there: an image that is gone is not run. */
	if (side->generation == generation &&
	    (!side->context || tt_code_is(me->fabric->code, side->image, side->serial)))
		return side->context ? side : NULL;
	drop_side(side);
	if (make_side(me->fabric, m, side))
		drop_side(side);
	side->generation = generation;
	return side->context ? side : NULL;
}

/* --- running ----------------------------------------------------------------------------------- */

static void fault(struct tt_driver *d, uint32_t index, const struct tutti_vm_result *result)
{
	struct tt_instance_mem *m = &d->mem->instances[index];
	int64_t now =
		d->me->fabric->now_ns(); /* the devices' time: a trace ends the same each time */

	tt_count(&m->faults, 1);
	m->fault = result->fault;
	m->fault_pc = result->pc;
	m->fault_address = result->address;
	if ((uint64_t)now - (uint64_t)m->first_fault_ns > TT_QUARANTINE_MS * 1000000ull) {
		m->first_fault_ns = now;
		m->recent_faults = 0;
	}
	if (++m->recent_faults < TT_QUARANTINE_FAULTS)
		return;
	tt_store_release(&m->state, (uint32_t)TT_INSTANCE_QUARANTINED);
	d->dev->bound &= ~(1ull << index);
}

/* As modules see it. */
static void describe(const struct tt_driver *d, const struct tt_packet_head *head, uint32_t input,
		     struct mdo_packet *packet)
{
	*packet = (struct mdo_packet){.data = tutti_vm_address(TUTTI_VM_PACKET),
				      .bytes = head->bytes,
				      .source = head->source,
				      .destination = head->destination,
				      .group = head->group,
				      .message = head->message,
				      .offset = head->offset,
				      .total = head->total,
				      .input = input,
				      .port = head->port,
				      .kind = head->kind,
				      .flags = head->flags,
				      .device = d->device};
}

static bool run_one(struct tt_driver *d, uint32_t index, struct tt_slot *slot, uint32_t input,
		    struct tt_packet_head *head)
{
	struct tt_instance_mem *m = &d->mem->instances[index];
	struct tt_instance *side = side_of(d->me, index);
	const uint64_t arg = tutti_vm_address(TUTTI_VM_CTX);
	uint64_t budget = tt_load_relaxed(&m->budget);
	struct tutti_vm_result result;
	struct tt_call call;
	int err;

	if (!side)
		return true;
	call = (struct tt_call){d, m, side, head, index};
	describe(d, head, input, &side->packet);
	tutti_vm_set_user(side->context, &call);
	tutti_vm_set_window(side->context, TUTTI_VM_PACKET, slot->payload, head->bytes, true);
	tt_store_relaxed(&d->dev->handler, index + 1);
	err = tutti_vm_run(side->context, side->entry, &arg, 1,
			   budget < TT_MOST_BUDGET ? budget : TT_MOST_BUDGET, &result);
	tt_store_relaxed(&d->dev->handler, 0u);
	tt_count(&m->runs, 1);
	if (err) {
		fault(d, index, &result);
		return true;
	}
	if (result.r0 == MDO_DROP)
		tt_count(&m->dropped, 1);
	return result.r0 != MDO_DROP;
}

static bool wanted(const struct tt_instance_mem *m, const struct tt_packet_head *head)
{
	uint32_t group = tt_load_relaxed(&m->group), port = tt_load_relaxed(&m->port);

	return (group == TT_ANY || group == head->group) && (port == TT_ANY || port == head->port);
}

bool tt_instances_want(const struct tt_driver *d, const struct tt_packet_head *head)
{
	for (uint64_t set = tt_load_relaxed(&d->dev->bound); set; set &= set - 1)
		if (wanted(&d->mem->instances[__builtin_ctzll(set)], head))
			return true;
	return false;
}

bool tt_instances_run(struct tt_driver *d, struct tt_slot *slot, uint32_t input,
		      struct tt_packet_head *head)
{
	for (uint64_t set = d->dev->bound; set; set &= set - 1) {
		uint32_t index = (uint32_t)__builtin_ctzll(set);

		if (wanted(&d->mem->instances[index], head) &&
		    !run_one(d, index, slot, input, head))
			return false;
	}
	return true;
}

/* --- loading -------------------------------------------------------------------------------------- */

/* Places that cannot be, and instances that have none yet, are in nobody's way. */
static bool overlaps(const struct tt_fabric_mem *mem, uint64_t off, uint32_t bytes,
		     uint32_t *ret_end)
{
	for (uint32_t i = 0; i < TT_INSTANCES; i++) {
		const struct tt_instance_mem *m = &mem->instances[i];

		uint64_t start = tt_load_relaxed(&m->memory_off),
			 end = start + tt_load_relaxed(&m->memory_bytes);

		if (tt_load_relaxed(&m->state) == TT_INSTANCE_FREE || start == end || off >= end ||
		    start >= off + bytes || end > TT_MODULE_BYTES)
			continue;
		*ret_end = (uint32_t)end;
		return true;
	}
	return false;
}

/* The first gap that is large enough. */
static int64_t find_memory(const struct tt_fabric_mem *mem, uint32_t bytes)
{
	uint32_t off = 0, end = 0;

	for (uint32_t i = 0; i <= TT_INSTANCES; i++) {
		if (off > TT_MODULE_BYTES - bytes)
			return -ENOSPC;
		if (!overlaps(mem, off, bytes, &end))
			return off;
		off = end;
	}
	return -ENOSPC;
}

static int find_place(struct tt_fabric_mem *mem)
{
	for (uint32_t i = 0; i < TT_INSTANCES; i++) {
		uint32_t state = TT_INSTANCE_FREE;

		if (!tt_cas(&mem->instances[i].state, &state, (uint32_t)TT_INSTANCE_LOADING))
			continue;
		mem->instances[i].memory_bytes = 0; /* what it had is free */
		return (int)i;
	}
	return -ENOSPC;
}

/* Everything of an instance but its state; nobody looks at it yet. Returns the image's index. */
static int fill(struct tt_member *me, struct tt_instance_mem *m,
		const struct tutti_vm_program *program, const char *name,
		const struct tt_binding *binding)
{
	struct tt_fabric_mem *mem = me->fabric->mem;
	const void *image, *data;
	size_t image_bytes;
	uint64_t data_bytes;
	int64_t bytes = memory_of(program, &data_bytes), off;
	int index;

	if (bytes < 0)
		return (int)bytes;
	off = find_memory(mem, (uint32_t)bytes);
	if (off < 0)
		return (int)off;
	image = tt_vm_program_image(program, &image_bytes);
	index = tt_code_store(me->fabric->code, image, image_bytes);
	if (index < 0)
		return index;
	memset(&m->image, 0, sizeof *m - offsetof(struct tt_instance_mem, image));
	m->image = (uint32_t)index;
	m->device = binding->device;
	m->group = binding->group;
	m->port = binding->port;
	m->budget = binding->budget ? binding->budget : TT_DEFAULT_BUDGET;
	m->memory_off = (uint32_t)off;
	m->memory_bytes = (uint32_t)bytes;
	m->random = 1;
	strncpy(m->name, name, TT_NAME_BYTES - 1);
	memset(mem->modules + off, 0, (size_t)bytes);
	data_bytes = tt_vm_program_data(program, &data);
	if (data_bytes)
		memcpy(mem->modules + off, data, data_bytes);
	return index;
}

int tt_instance_load(struct tt_member *me, const struct tutti_vm_program *program, const char *name,
		     const struct tt_binding *binding)
{
	struct tt_fabric_mem *mem = me->fabric->mem;
	struct tt_instance_mem *m;
	int index, image, err;

	if (!me->fabric->code)
		return -EPERM;
	if (binding->device >= TT_DEVICES || !tt_load_acquire(&mem->devices[binding->device].kind))
		return -ENODEV;
	if (tutti_vm_program_entry(program, "mdo/packet") < 0)
		return -ENOENT;
	if (!*name || strlen(name) >= TT_NAME_BYTES)
		return -EINVAL;
	if (binding->budget > TT_MOST_BUDGET)
		return -EINVAL;
	index = find_place(mem);
	if (index < 0)
		return index;
	m = &mem->instances[index];
	image = fill(me, m, program, name, binding);
	if (image < 0) {
		err = image;
		goto free_place;
	}
	if (!tt_device_take(me, binding->device)) {
		err = -EAGAIN;
		goto remove_image;
	}
	me->fabric->images[index] = (uint32_t)image;
	tt_store_release(&m->generation, m->generation + 1);
	tt_store_release(&m->state, (uint32_t)TT_INSTANCE_RUNNING);
	mem->devices[binding->device].bound |= 1ull << index;
	tt_device_give(me, binding->device);
	return index;
remove_image:
	tt_code_remove(me->fabric->code, (uint32_t)image);
free_place:
	tt_store_release(&m->state, (uint32_t)TT_INSTANCE_FREE);
	return err;
}

int tt_instance_unload(struct tt_member *me, uint32_t index)
{
	struct tt_fabric_mem *mem = me->fabric->mem;
	struct tt_instance_mem *m;
	uint32_t device;

	if (index >= TT_INSTANCES ||
	    tt_load_acquire(&mem->instances[index].state) < TT_INSTANCE_RUNNING)
		return -ENOENT;
	m = &mem->instances[index];
	device = tt_load_relaxed(&m->device);
	if (device >= TT_DEVICES || !tt_device_take(me, device))
		return -EAGAIN;
	mem->devices[device].bound &= ~(1ull << index);
	tt_store_release(&m->generation, m->generation + 1);
	tt_device_give(me, device);
	/* Nobody runs it now, nor will: handlers run under the device's lock. Which image it is, the
	 * memory cannot tell: that may be another's by now. */
	if (me->fabric->code)
		tt_code_remove(me->fabric->code, me->fabric->images[index]);
	tt_store_release(&m->state, (uint32_t)TT_INSTANCE_FREE);
	return 0;
}

int tt_instance_map(struct tt_member *me, uint32_t index, const char *name, struct tt_map *ret_map)
{
	struct tt_instance *side;

	if (index >= TT_INSTANCES ||
	    tt_load_acquire(&me->fabric->mem->instances[index].state) < TT_INSTANCE_RUNNING)
		return -ENOENT;
	side = side_of(me, index);
	for (uint32_t i = 0; side && i < side->n_maps; i++)
		if (!strcmp(side->maps[i].def->name, name)) {
			*ret_map = side->maps[i];
			return 0;
		}
	return -ENOENT;
}
