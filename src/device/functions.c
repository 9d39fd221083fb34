/* SPDX-License-Identifier: MIT */
/* The functions that modules call (tutti/mdo_module.h); ids and order as there. */
#include "device/hash.h"
#include "device/instance_int.h"

#include <errno.h>
#include <string.h>

_Static_assert((int)MDO_PAYLOAD == (int)TT_PAYLOAD_BYTES && (int)MDO_MEMBERS == (int)TT_MEMBERS &&
		       (int)MDO_SOURCES == (int)TT_OWNERS && (int)MDO_GROUPS == (int)TT_GROUPS &&
		       (int)MDO_MULTICAST == (int)TT_PACKET_MULTICAST,
	       "what modules are told");

static int map_find(struct tutti_vm_call *call)
{
	const struct tt_call *c = call->user;
	uint8_t *value = tt_map_find(call->ptr[0], call->ptr[1]);

	if (value)
		call->ret =
			tutti_vm_address(TUTTI_VM_MAPS) + (uint64_t)(value - c->side->maps_memory);
	return 0;
}

static int map_set(struct tutti_vm_call *call)
{
	call->ret = (uint64_t)tt_map_set(call->ptr[0], call->ptr[1], call->ptr[2]);
	return 0;
}

static int map_delete(struct tutti_vm_call *call)
{
	call->ret = (uint64_t)tt_map_delete(call->ptr[0], call->ptr[1]);
	return 0;
}

static int emit(struct tutti_vm_call *call, struct tt_packet_head *head)
{
	struct tt_call *c = call->user;
	int err = call->bytes[2] > TT_PAYLOAD_BYTES ? -MDO_EMSGSIZE : 0;

	head->kind = TT_PACKET_DATA;
	head->port = (uint16_t)call->arg[1];
	head->source = TT_MEMBERS + c->driver->device;
	head->bytes = head->total = (uint32_t)call->bytes[2];
	if (!err)
		err = tt_device_emit(c->driver, head, call->ptr[2]);
	if (!err)
		tt_count(&c->instance->sent, 1);
	call->ret = (uint64_t)(int64_t)err;
	return 0;
}

static int send_to(struct tutti_vm_call *call)
{
	struct tt_packet_head head = {.destination = (uint32_t)call->arg[0]};

	return emit(call, &head);
}

static int multicast(struct tutti_vm_call *call)
{
	struct tt_packet_head head = {.group = (uint32_t)call->arg[0],
				      .destination = TT_ANY,
				      .flags = TT_PACKET_MULTICAST};

	return emit(call, &head);
}

static int set_destination(struct tutti_vm_call *call)
{
	struct tt_call *c = call->user;

	if (call->arg[0] >= TT_MEMBERS) {
		call->ret = (uint64_t)-MDO_ENOENT;
		return 0;
	}
	c->head->destination = (uint32_t)call->arg[0];
	c->head->port = (uint16_t)call->arg[1];
	c->head->flags &= (uint8_t)~TT_PACKET_MULTICAST;
	return 0;
}

static int time_now(struct tutti_vm_call *call)
{
	const struct tt_call *c = call->user;

	call->ret = (uint64_t)c->driver->me->fabric->now_ns();
	return 0;
}

/* splitmix64 (G. Steele, D. Lea, C. Flood, Fast splittable pseudorandom number generators, 2014). */
static int random_next(struct tutti_vm_call *call)
{
	struct tt_call *c = call->user;
	uint64_t z = c->instance->random += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	call->ret = z ^ z >> 31;
	return 0;
}

static int hash(struct tutti_vm_call *call)
{
	call->ret = tt_hash(call->ptr[0], call->bytes[0], call->arg[2]);
	return 0;
}

static int checksum(struct tutti_vm_call *call)
{
	call->ret = tt_checksum(call->ptr[0], call->bytes[0]);
	return 0;
}

static int group_size(struct tutti_vm_call *call)
{
	const struct tt_call *c = call->user;

	for (uint32_t i = 0; call->arg[0] < TT_GROUPS && i < TT_HOLDER_WORDS; i++)
		call->ret += (uint64_t)__builtin_popcountll(
			tt_load_relaxed(&c->driver->mem->groups[call->arg[0]].members[i]));
	return 0;
}

static int group_rank(struct tutti_vm_call *call)
{
	const struct tt_call *c = call->user;
	uint64_t group = call->arg[0], member = call->arg[1];
	const uint64_t *words;

	call->ret = (uint64_t)-MDO_ENOENT;
	if (group >= TT_GROUPS || member >= TT_MEMBERS)
		return 0;
	words = c->driver->mem->groups[group].members;
	if (!(tt_load_relaxed(&words[member / 64]) >> member % 64 & 1))
		return 0;
	call->ret = (uint64_t)__builtin_popcountll(tt_load_relaxed(&words[member / 64]) &
						   ((1ull << member % 64) - 1));
	for (uint64_t i = 0; i < member / 64; i++)
		call->ret += (uint64_t)__builtin_popcountll(tt_load_relaxed(&words[i]));
	return 0;
}

#define ANY TUTTI_VM_ARG_ANY
#define READ TUTTI_VM_ARG_READ, TUTTI_VM_ARG_BYTES
#define MAP TUTTI_VM_ARG_MAP
#define KEY TUTTI_VM_ARG_KEY
#define VALUE TUTTI_VM_ARG_VALUE

static const struct tutti_vm_helper helpers[] = {
	{"mdo_map_find", 1, TUTTI_VM_RET_VALUE, {MAP, KEY}, 20, map_find},
	{"mdo_map_set", 2, TUTTI_VM_RET_NUMBER, {MAP, KEY, VALUE}, 40, map_set},
	{"mdo_map_delete", 3, TUTTI_VM_RET_NUMBER, {MAP, KEY}, 40, map_delete},
	{"mdo_send", 4, TUTTI_VM_RET_NUMBER, {ANY, ANY, READ}, 200, send_to},
	{"mdo_multicast", 5, TUTTI_VM_RET_NUMBER, {ANY, ANY, READ}, 400, multicast},
	{"mdo_set_destination", 6, TUTTI_VM_RET_NUMBER, {ANY, ANY}, 10, set_destination},
	{"mdo_time", 7, TUTTI_VM_RET_NUMBER, {0}, 50, time_now},
	{"mdo_random", 8, TUTTI_VM_RET_NUMBER, {0}, 10, random_next},
	{"mdo_hash", 9, TUTTI_VM_RET_NUMBER, {READ, ANY}, 50, hash},
	{"mdo_checksum", 10, TUTTI_VM_RET_NUMBER, {READ}, 50, checksum},
	{"mdo_group_size", 11, TUTTI_VM_RET_NUMBER, {ANY}, 10, group_size},
	{"mdo_group_rank", 12, TUTTI_VM_RET_NUMBER, {ANY, ANY}, 10, group_rank},
};

static const struct tutti_vm_field fields[] = {
	{offsetof(struct mdo_packet, data), TUTTI_VM_PACKET},
};

static const struct tutti_vm_hook hooks[] = {
	{.section = "mdo/packet",
	 .args = 1,
	 .arg = {{.window = TUTTI_VM_CTX, .bytes = sizeof(struct mdo_packet)}},
	 .fields = fields,
	 .n_fields = 1,
	 .helpers = ~0ull},
};

const struct tutti_vm_env *tt_module_env(void)
{
	static const struct tutti_vm_env env = {.hooks = hooks,
						.n_hooks = sizeof hooks / sizeof *hooks,
						.helpers = helpers,
						.n_helpers = sizeof helpers / sizeof *helpers};

	return &env;
}
