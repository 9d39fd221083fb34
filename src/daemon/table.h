/* SPDX-License-Identifier: MIT */
/*
 * An intrusive hash table that grows. Inserting never fails: without memory
 * for more buckets the chains get longer. The caller hashes, and compares keys
 * among the nodes of equal hash; the newest comes first.
 */
#ifndef TT_DAEMON_TABLE_H
#define TT_DAEMON_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct tt_node {
	struct tt_node *next;
	uint64_t hash;
};

struct tt_table {
	struct tt_node **buckets;
	size_t nbuckets; /* a power of two */
	size_t count;
};

#define tt_container(ptr, type, member)                                                            \
	((type *)(void *)((unsigned char *)(ptr)-offsetof(type, member)))

int tt_table_init(struct tt_table *t);
void tt_table_fini(struct tt_table *t);
void tt_table_insert(struct tt_table *t, struct tt_node *n, uint64_t hash);
/* n must be in the table. */
void tt_table_remove(struct tt_table *t, struct tt_node *n);

/* The nodes of this hash, one after the other; NULL at the end. */
struct tt_node *tt_table_first(const struct tt_table *t, uint64_t hash);
struct tt_node *tt_table_next(const struct tt_node *n);

/* Mixes two numbers into a hash. */
static inline uint64_t tt_hash2(uint64_t a, uint64_t b)
{
	uint64_t h = (a ^ 0x9e3779b97f4a7c15ull) * 0xff51afd7ed558ccdull;

	h ^= h >> 32;
	h = (h ^ b) * 0xc4ceb9fe1a85ec53ull;
	return h ^ h >> 29;
}

#endif
