/* SPDX-License-Identifier: MIT */
#include "match.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>

static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

bool tt_addr_from(const struct sockaddr_storage *ss, struct tt_addr *ret)
{
	if (ss->ss_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)ss;

		memcpy(ret->ip, mapped, sizeof(mapped));
		memcpy(ret->ip + sizeof(mapped), &in->sin_addr, 4);
		ret->port = ntohs(in->sin_port);
		return true;
	}
	if (ss->ss_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const void *)ss;

		memcpy(ret->ip, &in6->sin6_addr, 16);
		ret->port = ntohs(in6->sin6_port);
		return true;
	}
	return false;
}

bool tt_addr_is_ipv4(const struct tt_addr *a)
{
	return memcmp(a->ip, mapped, sizeof(mapped)) == 0;
}

struct tt_tuple tt_tuple_reversed(const struct tt_tuple *t)
{
	return (struct tt_tuple){t->remote, t->local};
}

bool tt_tuple_is_self(const struct tt_tuple *t)
{
	return memcmp(&t->local, &t->remote, sizeof(t->local)) == 0;
}

static uint64_t hash_tuple(const struct tt_matcher *m, const struct tt_tuple *t)
{
	uint64_t words[5] = {0};
	uint64_t h = m->seed;

	memcpy(words, t, sizeof(*t));
	for (int i = 0; i < 5; i++)
		h = tt_hash2(h, words[i]);
	return h;
}

int tt_matcher_init(struct tt_matcher *m, uint64_t seed)
{
	int err = tt_table_init(&m->cookies);

	if (err < 0)
		return err;
	err = tt_table_init(&m->tuples);
	if (err < 0)
		tt_table_fini(&m->cookies);
	m->seed = seed;
	return err;
}

void tt_matcher_fini(struct tt_matcher *m)
{
	tt_table_fini(&m->cookies);
	tt_table_fini(&m->tuples);
}

void tt_matcher_add(struct tt_matcher *m, struct tt_claim *c)
{
	tt_table_insert(&m->cookies, &c->by_cookie, tt_hash2(m->seed, c->cookie));
	tt_table_insert(&m->tuples, &c->by_tuple, hash_tuple(m, &c->tuple));
	c->pending = true;
}

void tt_matcher_settle(struct tt_matcher *m, struct tt_claim *c)
{
	if (c->pending)
		tt_table_remove(&m->tuples, &c->by_tuple);
	c->pending = false;
}

void tt_matcher_remove(struct tt_matcher *m, struct tt_claim *c)
{
	tt_matcher_settle(m, c);
	tt_table_remove(&m->cookies, &c->by_cookie);
}

struct tt_claim *tt_matcher_peer(const struct tt_matcher *m, const struct tt_claim *c)
{
	struct tt_tuple wanted = tt_tuple_reversed(&c->tuple);

	if (tt_tuple_is_self(&c->tuple))
		return NULL;
	for (struct tt_node *n = tt_table_first(&m->tuples, hash_tuple(m, &wanted)); n;
	     n = tt_table_next(n)) {
		struct tt_claim *peer = tt_container(n, struct tt_claim, by_tuple);

		if (memcmp(&peer->tuple, &wanted, sizeof(wanted)) == 0)
			return peer;
	}
	return NULL;
}

struct tt_claim *tt_matcher_by_cookie(const struct tt_matcher *m, uint64_t cookie)
{
	for (struct tt_node *n = tt_table_first(&m->cookies, tt_hash2(m->seed, cookie)); n;
	     n = tt_table_next(n)) {
		struct tt_claim *c = tt_container(n, struct tt_claim, by_cookie);

		if (c->cookie == cookie)
			return c;
	}
	return NULL;
}

void tt_slots_init(struct tt_slots *s, uint32_t nslots)
{
	memset(s, 0, sizeof(*s));
	s->nslots = nslots < TT_LINK_MAX_SLOTS ? nslots : TT_LINK_MAX_SLOTS;
}

int tt_slots_get(struct tt_slots *s)
{
	for (uint32_t w = 0; w * 64 < s->nslots; w++) {
		uint64_t vacant = ~(s->held[0][w] | s->held[1][w]);

		if (!vacant)
			continue;
		uint32_t bit = (uint32_t)__builtin_ctzll(vacant);

		if (w * 64 + bit >= s->nslots)
			break;
		s->held[0][w] |= 1ull << bit;
		s->held[1][w] |= 1ull << bit;
		s->used++;
		return (int)(w * 64 + bit);
	}
	return -EAGAIN;
}

bool tt_slots_is_held(const struct tt_slots *s, uint32_t slot, int end)
{
	return slot < s->nslots && (s->held[end][slot / 64] >> (slot % 64) & 1);
}

bool tt_slots_put(struct tt_slots *s, uint32_t slot, int end)
{
	if (!tt_slots_is_held(s, slot, end))
		return false;
	s->held[end][slot / 64] &= ~(1ull << (slot % 64));
	if (tt_slots_is_held(s, slot, !end))
		return false;
	s->used--;
	return true;
}
