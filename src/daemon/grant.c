/* SPDX-License-Identifier: MIT */
/*
 * Claims, links and slots.
 *
 *   CLAIM --> pending --the other end's CLAIM--> granted --RELEASE, dead--> gone
 *
 * A claim is proved by its socket: what it is and where it leads is read from
 * there and from nowhere else. Two claims that fit get a slot in a link
 * between their parties; a pair of parties has as many links as its
 * connections need. A slot is free again when both ends have given it up, and
 * is wiped before the next two get it.
 *
 * The grant is written into each party's memory. Its owner may free and reuse
 * the entry between our look at it and our store, so the grant carries the low
 * bits of the generation that it is for, where the owner checks them.
 */
#include "base/clock.h"
#include "daemon_int.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif
#ifndef SO_BINDTOIFINDEX
#define SO_BINDTOIFINDEX 62
#endif

/* Bits 2 to 7 of a grant, which tt_grant_pack leaves free. */
#define GRANT_GENERATION_SHIFT 2
#define GRANT_GENERATION_MASK 0x3fu

/* ---- links ---- */

static uint64_t hash_pair(const struct tt_party *a, const struct tt_party *b)
{
	uint32_t lo = a->id < b->id ? a->id : b->id, hi = a->id < b->id ? b->id : a->id;

	return tt_hash2(lo, hi);
}

static bool joins(const struct tt_dlink *l, const struct tt_party *a, const struct tt_party *b)
{
	return (l->party[0] == a && l->party[1] == b) || (l->party[0] == b && l->party[1] == a);
}

struct tt_dlink *tt_dlink_find(struct tt_daemon *d, uint64_t id)
{
	for (struct tt_node *n = tt_table_first(&d->link_ids, tt_hash2(id, 0)); n;
	     n = tt_table_next(n)) {
		struct tt_dlink *l = tt_container(n, struct tt_dlink, by_id);

		if (l->id == id)
			return l;
	}
	return NULL;
}

bool tt_parties_linked(struct tt_daemon *d, const struct tt_party *a, const struct tt_party *b)
{
	if (a == b)
		return true;
	for (struct tt_node *n = tt_table_first(&d->link_pairs, hash_pair(a, b)); n;
	     n = tt_table_next(n))
		if (joins(tt_container(n, struct tt_dlink, by_pair), a, b))
			return true;
	return false;
}

static int create_link(struct tt_daemon *d, struct tt_party *a, struct tt_party *b,
		       struct tt_dlink **ret)
{
	struct tt_link_geometry g = tt_stream_geometry();
	struct tt_dlink *l;
	int err;

	if (d->nlinks >= TT_MAX_LINKS)
		return -EMFILE;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->fd = tt_link_create(&g);
	err = l->fd < 0 ? l->fd : tt_link_map(l->fd, 0, &l->map);
	if (err < 0)
		goto undo;
	l->id = tt_daemon_next_id(d);
	if (!l->id) {
		err = -ENOSPC;
		goto undo;
	}
	l->party[0] = a;
	l->party[1] = b;
	l->party_id[0] = a->id;
	l->party_id[1] = b->id;
	tt_slots_init(&l->slots, g.nslots);
	tt_table_insert(&d->link_ids, &l->by_id, tt_hash2(l->id, 0));
	tt_table_insert(&d->link_pairs, &l->by_pair, hash_pair(a, b));
	tt_list_push(d->links, l);
	d->nlinks++;
	*ret = l;
	return 0;
undo:
	tt_link_unmap(l->map);
	if (l->fd >= 0)
		close(l->fd);
	free(l);
	return err;
}

static void destroy_link(struct tt_daemon *d, struct tt_dlink *l)
{
	tt_table_remove(&d->link_ids, &l->by_id);
	tt_table_remove(&d->link_pairs, &l->by_pair);
	tt_list_drop(d->links, l);
	d->nlinks--;
	tt_link_unmap(l->map);
	close(l->fd);
	free(l);
}

/*
 * Nobody uses a slot: every chunk is free, also those that were lost with a
 * process that died while it held one.
 */
static void restore_chunks(struct tt_link *map)
{
	for (uint32_t c = 0; c < map->g.nchunks; c++) {
		if (tt_load_relaxed(&map->hdr->free_chunks[c / 64]) >> (c % 64) & 1)
			continue;
		tt_link_chunk_put(map, c, map->g.chunk_bytes);
	}
	/* Nor is their memory wanted. */
	madvise(map->chunks, (size_t)map->g.nchunks * map->g.chunk_bytes, MADV_REMOVE);
}

/*
 * A link that has lost a party is not used for new connections, so its slots
 * need no wiping, and must not be: a party that lost its control connection
 * may live and go on with those that it has. The same when the daemon ends.
 */
static void put_end(struct tt_daemon *d, struct tt_dlink *l, uint32_t slot, int end)
{
	if (!tt_slots_put(&l->slots, slot, end))
		return;
	if (!l->party[0] || !l->party[1]) {
		if (!l->slots.used)
			destroy_link(d, l);
	} else if (!d->stop) {
		tt_stream_reset(l->map, slot);
		if (!l->slots.used)
			restore_chunks(l->map);
	}
}

void tt_links_forget(struct tt_daemon *d, struct tt_party *p)
{
	for (struct tt_dlink *l = d->links, *next; l; l = next) {
		next = l->next;
		for (int i = 0; i < 2; i++)
			if (l->party[i] == p)
				l->party[i] = NULL;
		if ((!l->party[0] || !l->party[1]) && !l->slots.used)
			destroy_link(d, l);
	}
}

static int slot_in_links(struct tt_daemon *d, struct tt_party *a, struct tt_party *b,
			 struct tt_dlink **ret, uint32_t *ret_nlinks)
{
	*ret_nlinks = 0;
	for (struct tt_node *n = tt_table_first(&d->link_pairs, hash_pair(a, b)); n;
	     n = tt_table_next(n)) {
		struct tt_dlink *l = tt_container(n, struct tt_dlink, by_pair);
		int slot;

		if (!joins(l, a, b))
			continue;
		++*ret_nlinks;
		slot = tt_slots_get(&l->slots);
		if (slot >= 0) {
			*ret = l;
			return slot;
		}
	}
	return -EAGAIN;
}

static int take_slot(struct tt_daemon *d, struct tt_party *a, struct tt_party *b,
		     struct tt_dlink **ret)
{
	uint32_t nlinks;
	int slot = slot_in_links(d, a, b, ret, &nlinks);

	if (slot < 0 && nlinks >= TT_MAX_PAIR_LINKS)
		return -EMFILE;
	if (slot < 0) {
		int err = create_link(d, a, b, ret);

		if (err < 0)
			return err;
		slot = tt_slots_get(&(*ret)->slots);
	}
	return slot;
}

/* ---- claims ---- */

struct tt_claim *tt_claim_find(struct tt_party *p, uint64_t entry)
{
	return entry < TT_SIDE_ENTRIES ? p->claims[entry] : NULL;
}

void tt_claim_release(struct tt_daemon *d, struct tt_claim *c)
{
	struct tt_party *p = c->party;

	tt_matcher_remove(&d->matcher, c);
	p->claims[c->entry] = NULL;
	p->nclaims--;
	while (p->claims_top && !p->claims[p->claims_top - 1])
		p->claims_top--;
	if (c->link)
		put_end(d, c->link, c->slot, c->end);
	free(c);
}

/* Whether the entry is still that of the claim, as far as its owner's memory says. */
static bool is_current(const struct tt_claim *c)
{
	const struct tt_entry *e = &c->party->mem->entries[c->entry];

	return tt_load_relaxed(&e->cookie) == c->cookie &&
	       tt_load_relaxed(&e->generation) == c->generation;
}

/* Who sleeps on the shadow alone shall come and attach. */
static void wake_claimant(struct tt_daemon *d, struct tt_claim *c)
{
	tt_fence(); /* G0, against G1 in sock/wait.c */
	uint32_t bell = tt_load_relaxed(&c->party->mem->entries[c->entry].grant_bell);

	if (bell)
		tt_bell_wake(d, c->party, bell);
}

static void write_grant(struct tt_daemon *d, struct tt_claim *c)
{
	struct tt_entry *e = &c->party->mem->entries[c->entry];
	uint64_t grant = tt_grant_pack(c->link->id, c->slot, c->end) |
			 (uint64_t)(c->generation & GRANT_GENERATION_MASK)
				 << GRANT_GENERATION_SHIFT;

	if (!is_current(c))
		return;
	tt_store_release(&e->grant, grant);
	if (!is_current(c))
		tt_cas(&e->grant, &grant, 0);
	wake_claimant(d, c);
}

static void give(struct tt_claim *c, struct tt_dlink *l, int slot, int end)
{
	c->link = l;
	c->slot = (uint32_t)slot;
	c->end = end;
}

static void grant(struct tt_daemon *d, struct tt_claim *c, struct tt_claim *peer)
{
	struct tt_dlink *l;
	enum tt_life life;
	int slot;

	/*
	 * A process that was killed leaves its claim behind, and its addresses may
	 * be in use again by somebody else.
	 */
	tt_probe(d->netlink, &peer, 1, &life);
	if (life != TT_LIFE_ALIVE) {
		tt_matcher_settle(&d->matcher, peer);
		return;
	}
	slot = take_slot(d, c->party, peer->party, &l);
	if (slot < 0) {
		tt_daemon_refuse(d, 0, "no slot between sides %u and %u: %s", c->party->id,
				 peer->party->id, strerror(-slot));
		tt_matcher_settle(&d->matcher, c);
		tt_matcher_settle(&d->matcher, peer);
		return;
	}
	tt_stream_reset(l->map, (uint32_t)slot);
	/* Of a link that leads back to the same party, the two get one end each. */
	int end = l->party[0] == c->party ? 0 : 1;

	give(c, l, slot, end);
	give(peer, l, slot, !end);
	tt_matcher_settle(&d->matcher, c);
	tt_matcher_settle(&d->matcher, peer);
	write_grant(d, peer);
	write_grant(d, c);
	d->stats.granted++;
}

static bool is_full(struct tt_daemon *d, const struct tt_party *a, const struct tt_party *b)
{
	for (struct tt_node *n = tt_table_first(&d->link_pairs, hash_pair(a, b)); n;
	     n = tt_table_next(n)) {
		struct tt_dlink *l = tt_container(n, struct tt_dlink, by_pair);

		if (joins(l, a, b) && l->slots.used < l->slots.nslots)
			return false;
	}
	return true;
}

static void match(struct tt_daemon *d, struct tt_claim *c)
{
	struct tt_party *p = c->party;
	uint32_t entry = c->entry;
	struct tt_claim *peer = tt_matcher_peer(&d->matcher, c);

	if (peer && is_full(d, p, peer->party)) {
		/* Before they get another link: perhaps some slots are held by the dead. */
		struct tt_party *other = peer->party;

		tt_reap_sometimes(d, p, TT_LINK_MAX_SLOTS);
		if (other != p)
			tt_reap_sometimes(d, other, TT_LINK_MAX_SLOTS);
		if (p->claims[entry] != c)
			return;
	}
	while (c->pending && (peer = tt_matcher_peer(&d->matcher, c)))
		grant(d, c, peer);
}

static int int_option(int sock, int level, int option, int fallback)
{
	int value;
	socklen_t len = sizeof(value);

	return getsockopt(sock, level, option, &value, &len) < 0 ? fallback : value;
}

static uint64_t u64_option(int sock, int option)
{
	uint64_t value = 0;
	socklen_t len = sizeof(value);

	return getsockopt(sock, SOL_SOCKET, option, &value, &len) < 0 ? 0 : value;
}

uint64_t tt_sock_cookie(int sock)
{
	int domain = int_option(sock, SOL_SOCKET, SO_DOMAIN, -1);

	if ((domain != AF_INET && domain != AF_INET6) ||
	    int_option(sock, SOL_SOCKET, SO_TYPE, -1) != SOCK_STREAM ||
	    int_option(sock, SOL_SOCKET, SO_PROTOCOL, -1) != IPPROTO_TCP)
		return 0;
	return u64_option(sock, SO_COOKIE);
}

/* Reads from the socket what it is. -ENOTCONN: not, or no more, a connection. */
static int identify(struct tt_daemon *d, int sock, struct tt_claim *c)
{
	struct sockaddr_storage local, remote;
	socklen_t local_len = sizeof(local), remote_len = sizeof(remote);
	struct stat st;
	uint64_t netns;
	int ifindex;

	c->cookie = tt_sock_cookie(sock);
	if (!c->cookie || fstat(sock, &st) < 0)
		return -ENOTSOCK;
	netns = u64_option(sock, SO_NETNS_COOKIE);
	if (netns != d->netns)
		return -EXDEV;
	memset(&local, 0, sizeof(local));
	memset(&remote, 0, sizeof(remote));
	if (getsockname(sock, (struct sockaddr *)&local, &local_len) < 0 ||
	    getpeername(sock, (struct sockaddr *)&remote, &remote_len) < 0)
		return -ENOTCONN;
	if (!tt_addr_from(&local, &c->tuple.local) || !tt_addr_from(&remote, &c->tuple.remote))
		return -ENOTSOCK;
	c->inode = st.st_ino;
	ifindex = int_option(sock, SOL_SOCKET, SO_BINDTOIFINDEX, 0);
	c->ifindex = ifindex > 0 ? (uint32_t)ifindex : 0;
	return 0;
}

/* What the daemon knows about this entry or this socket already. 1: nothing to do. */
static int settle_old(struct tt_daemon *d, const struct tt_claim *c)
{
	struct tt_claim *old = c->party->claims[c->entry];

	if (old && old->cookie == c->cookie && old->generation == c->generation) {
		if (old->link)
			write_grant(d, old);
		return 1;
	}
	/* The entry has been reused: its former user is gone. */
	if (old)
		tt_claim_release(d, old);
	old = tt_matcher_by_cookie(&d->matcher, c->cookie);
	if (old && old->party == c->party)
		tt_claim_release(d, old);
	else if (old)
		return -EBUSY; /* another side's, which FIND would have told */
	return 0;
}

int tt_claim_add(struct tt_daemon *d, struct tt_party *p, uint64_t entry, uint32_t generation,
		 int *sock)
{
	struct tt_claim *c;
	int err;

	if (entry >= TT_SIDE_ENTRIES)
		return -ERANGE;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->party = p;
	c->since_ns = tt_now_ns();
	c->entry = (uint32_t)entry;
	c->generation = generation;
	err = identify(d, *sock, c);
	tt_close_foreign(*sock);
	*sock = -1;
	/*
	 * We hold the socket no longer, so that its owner's close is the last; and
	 * a sender that waits for its peer knows that we have looked.
	 */
	tt_store_release(&p->mem->entries[entry].seen, generation + 1);
	if (err == -ENOTCONN)
		err = 1; /* its peer was quicker than we: nothing to do */
	if (err == 0 && !is_current(c))
		err = 1; /* closed meanwhile */
	if (err == 0)
		err = settle_old(d, c);
	if (err) {
		free(c);
		return err < 0 ? err : 0;
	}
	p->claims[c->entry] = c;
	p->nclaims++;
	p->since_reap++;
	if (c->entry >= p->claims_top)
		p->claims_top = c->entry + 1;
	d->stats.claims++;
	tt_matcher_add(&d->matcher, c);
	match(d, c);
	tt_reap_sometimes(d, p, TT_CLAIMS_PER_REAP);
	return 0;
}
