/* SPDX-License-Identifier: MIT */
/*
 * Maps of modules, in memory that several processes share: one writes (the
 * device's driver), others may read at any time. Nothing in that memory is
 * trusted: sizes come from the module's image.
 *
 * Array: the values, side by side. Hash: chains of nodes that never move (a
 * module may keep a value's address while it adds and deletes others), of which
 * there are as many as entries. Zeros are an empty map. A node is filled before
 * it is linked, by one word: a kill between costs a node at most.
 */
#ifndef TT_DEVICE_MAP_H
#define TT_DEVICE_MAP_H

#include <tutti/vm.h>

enum tt_map_kind { TT_MAP_HASH = 1, TT_MAP_ARRAY = 2 };

struct tt_map {
	const struct tutti_vm_map *def;
	uint8_t *memory;
	uint32_t stride;    /* from value to value, or node to node */
	uint32_t buckets;   /* hash: a power of two */
	uint32_t nodes_off; /* hash: where nodes begin */
};

/* How much memory a map takes, a multiple of 64; -EINVAL: not such a map, -E2BIG. */
int64_t tt_map_bytes(const struct tutti_vm_map *def);
void tt_map_init(struct tt_map *map, const struct tutti_vm_map *def, void *memory);

/* The value, or NULL. */
void *tt_map_find(const struct tt_map *map, const void *key);
/* 0; -ENOENT: index outside an array; -ENOMEM: full. */
int tt_map_set(const struct tt_map *map, const void *key, const void *value);
int tt_map_delete(const struct tt_map *map, const void *key);
/* The key after this one (NULL: the first), in no order, into ret_key. -ENOENT: there is none. */
int tt_map_next(const struct tt_map *map, const void *key, void *ret_key);

#endif
