/* SPDX-License-Identifier: MIT */
#include "device/map.h"

#include "base/atomic.h"
#include "device/hash.h"

#include <string.h>

enum { MOST_BYTES = 32 << 20, MOST_KEY = 256 };

/* A place of a hash: this, then the key, then the value, each at a multiple of eight. */
enum place_state { EMPTY = 0, USED = 1, DELETED = 2 };

struct place {
	uint32_t state;
	uint32_t hash;
};

static uint32_t round8(uint32_t bytes)
{
	return (bytes + 7) & ~7u;
}

static uint32_t places_for(uint32_t entries)
{
	uint32_t places = 8;

	while (places < entries + entries / 2)
		places *= 2;
	return places;
}

static uint32_t stride_of(const struct tutti_vm_map *def)
{
	return def->type == TT_MAP_ARRAY ? round8(def->value_bytes)
					 : (uint32_t)sizeof(struct place) + round8(def->key_bytes) +
						   round8(def->value_bytes);
}

int64_t tt_map_bytes(const struct tutti_vm_map *def)
{
	uint64_t n = def->max_entries, bytes;

	if ((def->type != TT_MAP_ARRAY && def->type != TT_MAP_HASH) || !def->max_entries ||
	    !def->value_bytes || !def->key_bytes ||
	    (def->type == TT_MAP_ARRAY && def->key_bytes != 4))
		return -EINVAL;
	if (def->max_entries > MOST_BYTES || def->value_bytes > MOST_BYTES ||
	    def->key_bytes > MOST_KEY)
		return -E2BIG;
	if (def->type == TT_MAP_HASH)
		n = places_for(def->max_entries);
	bytes = n * stride_of(def);
	return bytes > MOST_BYTES ? -E2BIG : (int64_t)((bytes + 63) & ~63ull);
}

void tt_map_init(struct tt_map *map, const struct tutti_vm_map *def, void *memory)
{
	*map = (struct tt_map){.def = def, .memory = memory, .stride = stride_of(def)};
	if (def->type == TT_MAP_HASH)
		map->places = places_for(def->max_entries);
}

static struct place *place_at(const struct tt_map *map, uint32_t index)
{
	return (void *)(map->memory + (uint64_t)(index & (map->places - 1)) * map->stride);
}

static uint8_t *key_of(struct place *place)
{
	return (uint8_t *)(place + 1);
}

static uint8_t *value_of(const struct tt_map *map, struct place *place)
{
	return key_of(place) + round8(map->def->key_bytes);
}

/* The key's place, or NULL; ret_free: the first that it could have, NULL: the map is full. */
static struct place *seek(const struct tt_map *map, const void *key, uint32_t *ret_hash,
			  struct place **ret_free)
{
	uint32_t hash = (uint32_t)tt_hash(key, map->def->key_bytes, 0);
	struct place *unused = NULL;

	*ret_hash = hash;
	for (uint32_t i = 0; i < map->places; i++) {
		struct place *place = place_at(map, hash + i);
		uint32_t state = tt_load_acquire(&place->state);

		if (state != USED) {
			unused = unused ? unused : place;
			if (state == EMPTY)
				break;
		} else if (place->hash == hash &&
			   !memcmp(key_of(place), key, map->def->key_bytes)) {
			*ret_free = unused;
			return place;
		}
	}
	*ret_free = unused;
	return NULL;
}

static uint8_t *element(const struct tt_map *map, const void *key)
{
	uint32_t index;

	memcpy(&index, key, sizeof index);
	return index < map->def->max_entries ? map->memory + (uint64_t)index * map->stride : NULL;
}

void *tt_map_find(const struct tt_map *map, const void *key)
{
	struct place *place, *unused;
	uint32_t hash;

	if (map->def->type == TT_MAP_ARRAY)
		return element(map, key);
	place = seek(map, key, &hash, &unused);
	return place ? value_of(map, place) : NULL;
}

int tt_map_set(const struct tt_map *map, const void *key, const void *value)
{
	struct place *place, *unused;
	uint32_t hash;
	void *at;

	if (map->def->type == TT_MAP_ARRAY) {
		at = element(map, key);
		if (!at)
			return -ENOENT;
		memcpy(at, value, map->def->value_bytes);
		return 0;
	}
	place = seek(map, key, &hash, &unused);
	if (!place && !unused)
		return -ENOMEM;
	if (!place) {
		place = unused;
		place->hash = hash;
		memcpy(key_of(place), key, map->def->key_bytes);
	}
	memcpy(value_of(map, place), value, map->def->value_bytes);
	tt_store_release(&place->state, (uint32_t)USED);
	return 0;
}

int tt_map_delete(const struct tt_map *map, const void *key)
{
	struct place *place, *unused;
	uint32_t hash;
	void *at;

	if (map->def->type == TT_MAP_ARRAY) {
		at = element(map, key);
		if (!at)
			return -ENOENT;
		memset(at, 0, map->def->value_bytes);
		return 0;
	}
	place = seek(map, key, &hash, &unused);
	if (!place)
		return -ENOENT;
	tt_store_release(&place->state, (uint32_t)DELETED);
	/* Deleted places before an empty one are of no use to any search. */
	for (uint32_t i = (uint32_t)(((uint8_t *)place - map->memory) / map->stride);
	     tt_load_relaxed(&place_at(map, i + 1)->state) == EMPTY &&
	     tt_load_relaxed(&place_at(map, i)->state) == DELETED;
	     i--)
		tt_store_release(&place_at(map, i)->state, (uint32_t)EMPTY);
	return 0;
}

int tt_map_next(const struct tt_map *map, const void *key, void *ret_key)
{
	uint32_t from = 0;

	if (map->def->type == TT_MAP_ARRAY) {
		if (key) {
			memcpy(&from, key, sizeof from);
			from++;
		}
		if (from >= map->def->max_entries)
			return -ENOENT;
		memcpy(ret_key, &from, sizeof from);
		return 0;
	}
	if (key) {
		struct place *unused, *place;
		uint32_t hash;

		place = seek(map, key, &hash, &unused);
		if (place)
			from = (uint32_t)(((uint8_t *)place - map->memory) / map->stride) + 1;
	}
	for (; from < map->places; from++) {
		struct place *place = place_at(map, from);

		if (tt_load_acquire(&place->state) == USED) {
			memcpy(ret_key, key_of(place), map->def->key_bytes);
			return 0;
		}
	}
	return -ENOENT;
}
