/* SPDX-License-Identifier: MIT */
#include "device/map.h"

#include "base/atomic.h"
#include "device/hash.h"

#include <string.h>

enum { MOST_BYTES = 32 << 20, MOST_KEY = 256 };

/* Of a hash; the buckets come next, then the nodes. Numbers of nodes count from 1; 0: none. */
struct top {
	uint32_t unused; /* first of those that were used before */
	uint32_t used;	 /* how many were ever used */
};

/* Then the key, then the value, each at a multiple of eight. */
struct node {
	uint32_t next; /* in its bucket, or of the unused */
	uint32_t hash;
	uint32_t there; /* 1: it is in a bucket */
	uint32_t pad;
};

static uint32_t round8(uint32_t bytes)
{
	return (bytes + 7) & ~7u;
}

static uint32_t buckets_for(uint32_t entries)
{
	uint32_t buckets = 2;

	while (buckets < entries)
		buckets *= 2;
	return buckets;
}

static uint32_t stride_of(const struct tutti_vm_map *def)
{
	return def->type == TT_MAP_ARRAY ? round8(def->value_bytes)
					 : (uint32_t)sizeof(struct node) + round8(def->key_bytes) +
						   round8(def->value_bytes);
}

static uint32_t nodes_off_of(uint32_t buckets)
{
	return (uint32_t)(sizeof(struct top) + buckets * sizeof(uint32_t));
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
	bytes = n * stride_of(def);
	if (def->type == TT_MAP_HASH)
		bytes += nodes_off_of(buckets_for(def->max_entries));
	return bytes > MOST_BYTES ? -E2BIG : (int64_t)((bytes + 63) & ~63ull);
}

void tt_map_init(struct tt_map *map, const struct tutti_vm_map *def, void *memory)
{
	*map = (struct tt_map){.def = def, .memory = memory, .stride = stride_of(def)};
	if (def->type == TT_MAP_HASH) {
		map->buckets = buckets_for(def->max_entries);
		map->nodes_off = nodes_off_of(map->buckets);
	}
}

static struct top *top_of(const struct tt_map *map)
{
	return (void *)map->memory;
}

static uint32_t *bucket_of(const struct tt_map *map, uint32_t hash)
{
	return (uint32_t *)(void *)(map->memory + sizeof(struct top)) + (hash & (map->buckets - 1));
}

/* NULL: there is none of this number, whoever wrote it. */
static struct node *node_at(const struct tt_map *map, uint32_t number)
{
	if (!number || number > map->def->max_entries)
		return NULL;
	return (void *)(map->memory + map->nodes_off + (uint64_t)(number - 1) * map->stride);
}

static uint32_t number_of(const struct tt_map *map, const struct node *node)
{
	return (uint32_t)(((const uint8_t *)node - map->memory - map->nodes_off) / map->stride) + 1;
}

static uint8_t *key_of(struct node *node)
{
	return (uint8_t *)(node + 1);
}

static uint8_t *value_of(const struct tt_map *map, struct node *node)
{
	return key_of(node) + round8(map->def->key_bytes);
}

static uint32_t hash_of(const struct tt_map *map, const void *key)
{
	return (uint32_t)tt_hash(key, map->def->key_bytes, 0);
}

/* The key's node, or NULL; ret_link: the word that leads to it. A chain cannot be endless. */
static struct node *seek(const struct tt_map *map, const void *key, uint32_t hash,
			 uint32_t **ret_link)
{
	uint32_t *link = bucket_of(map, hash);

	for (uint32_t i = 0; i < map->def->max_entries; i++) {
		struct node *node = node_at(map, tt_load_acquire(link));

		if (!node)
			break;
		if (node->hash == hash && !memcmp(key_of(node), key, map->def->key_bytes)) {
			*ret_link = link;
			return node;
		}
		link = &node->next;
	}
	return NULL;
}

static struct node *take_node(const struct tt_map *map)
{
	struct top *top = top_of(map);
	struct node *node = node_at(map, tt_load_relaxed(&top->unused));
	uint32_t used;

	if (node) {
		tt_store_relaxed(&top->unused, tt_load_relaxed(&node->next));
		return node;
	}
	used = tt_load_relaxed(&top->used);
	if (used >= map->def->max_entries)
		return NULL;
	tt_store_relaxed(&top->used, used + 1);
	return node_at(map, used + 1);
}

static uint8_t *element(const struct tt_map *map, const void *key)
{
	uint32_t index;

	memcpy(&index, key, sizeof index);
	return index < map->def->max_entries ? map->memory + (uint64_t)index * map->stride : NULL;
}

void *tt_map_find(const struct tt_map *map, const void *key)
{
	struct node *node;
	uint32_t *link;

	if (map->def->type == TT_MAP_ARRAY)
		return element(map, key);
	node = seek(map, key, hash_of(map, key), &link);
	return node ? value_of(map, node) : NULL;
}

static int add(const struct tt_map *map, const void *key, uint32_t hash, const void *value)
{
	struct node *node = take_node(map);
	uint32_t *bucket = bucket_of(map, hash);

	if (!node)
		return -ENOMEM;
	/* Key and value may be in this map themselves. */
	memmove(value_of(map, node), value, map->def->value_bytes);
	memmove(key_of(node), key, map->def->key_bytes);
	node->hash = hash;
	tt_store_relaxed(&node->next, tt_load_relaxed(bucket));
	tt_store_release(&node->there, 1u);
	tt_store_release(bucket, number_of(map, node));
	return 0;
}

int tt_map_set(const struct tt_map *map, const void *key, const void *value)
{
	struct node *node;
	uint32_t hash, *link;
	void *at;

	if (map->def->type == TT_MAP_ARRAY) {
		at = element(map, key);
		if (!at)
			return -ENOENT;
	} else {
		hash = hash_of(map, key);
		node = seek(map, key, hash, &link);
		if (!node)
			return add(map, key, hash, value);
		at = value_of(map, node);
	}
	memmove(at, value, map->def->value_bytes);
	return 0;
}

int tt_map_delete(const struct tt_map *map, const void *key)
{
	struct node *node;
	uint32_t *link;
	void *at;

	if (map->def->type == TT_MAP_ARRAY) {
		at = element(map, key);
		if (!at)
			return -ENOENT;
		memset(at, 0, map->def->value_bytes);
		return 0;
	}
	node = seek(map, key, hash_of(map, key), &link);
	if (!node)
		return -ENOENT;
	tt_store_release(link, tt_load_relaxed(&node->next));
	tt_store_release(&node->there, 0u);
	tt_store_relaxed(&node->next, tt_load_relaxed(&top_of(map)->unused));
	tt_store_release(&top_of(map)->unused, number_of(map, node));
	return 0;
}

static int next_index(const struct tt_map *map, const void *key, void *ret_key)
{
	uint32_t index = 0;

	if (key) {
		memcpy(&index, key, sizeof index);
		if (index >= map->def->max_entries - 1)
			return -ENOENT;
		index++;
	}
	memcpy(ret_key, &index, sizeof index);
	return 0;
}

int tt_map_next(const struct tt_map *map, const void *key, void *ret_key)
{
	uint32_t number = 1, *link;
	struct node *node;

	if (map->def->type == TT_MAP_ARRAY)
		return next_index(map, key, ret_key);
	node = key ? seek(map, key, hash_of(map, key), &link) : NULL;
	if (node)
		number = number_of(map, node) + 1;
	for (; (node = node_at(map, number)); number++)
		if (tt_load_acquire(&node->there) == 1) {
			memcpy(ret_key, key_of(node), map->def->key_bytes);
			return 0;
		}
	return -ENOENT;
}
