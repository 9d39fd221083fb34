/* SPDX-License-Identifier: MIT */
#include "table.h"

#include <errno.h>
#include <stdlib.h>

#define FIRST_BUCKETS 64u

int tt_table_init(struct tt_table *t)
{
	t->buckets = calloc(FIRST_BUCKETS, sizeof(*t->buckets));
	t->nbuckets = FIRST_BUCKETS;
	t->count = 0;
	return t->buckets ? 0 : -ENOMEM;
}

void tt_table_fini(struct tt_table *t)
{
	free(t->buckets);
	t->buckets = NULL;
}

static struct tt_node **bucket(const struct tt_table *t, uint64_t hash)
{
	return &t->buckets[hash & (t->nbuckets - 1)];
}

static void grow(struct tt_table *t)
{
	struct tt_table bigger = {NULL, t->nbuckets * 2, t->count};

	bigger.buckets = calloc(bigger.nbuckets, sizeof(*bigger.buckets));
	if (!bigger.buckets)
		return;
	for (size_t i = 0; i < t->nbuckets; i++) {
		/* Reversed twice, once here and once below, the order stays. */
		struct tt_node *reversed = NULL, *n = t->buckets[i], *next;

		for (; n; n = next) {
			next = n->next;
			n->next = reversed;
			reversed = n;
		}
		for (n = reversed; n; n = next) {
			struct tt_node **b = bucket(&bigger, n->hash);

			next = n->next;
			n->next = *b;
			*b = n;
		}
	}
	free(t->buckets);
	*t = bigger;
}

void tt_table_insert(struct tt_table *t, struct tt_node *n, uint64_t hash)
{
	if (t->count >= t->nbuckets * 2)
		grow(t);
	struct tt_node **b = bucket(t, hash);

	n->hash = hash;
	n->next = *b;
	*b = n;
	t->count++;
}

void tt_table_remove(struct tt_table *t, struct tt_node *n)
{
	for (struct tt_node **at = bucket(t, n->hash); *at; at = &(*at)->next) {
		if (*at != n)
			continue;
		*at = n->next;
		t->count--;
		return;
	}
}

static struct tt_node *skip_to(struct tt_node *n, uint64_t hash)
{
	while (n && n->hash != hash)
		n = n->next;
	return n;
}

struct tt_node *tt_table_first(const struct tt_table *t, uint64_t hash)
{
	return skip_to(*bucket(t, hash), hash);
}

struct tt_node *tt_table_next(const struct tt_node *n)
{
	return skip_to(n->next, n->hash);
}
