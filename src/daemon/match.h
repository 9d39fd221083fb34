/* SPDX-License-Identifier: MIT */
/*
 * The book-keeping of the connection manager, as functions without I/O: which
 * claim belongs to which, and which slots of a link are taken.
 *
 * A claim says "this end of a TCP connection is mine". It is pending until the
 * claim of the other end comes, whose addresses are the same two, exchanged.
 * The kernel has at most one live connection with given addresses; when two
 * claims have the same, the older one's socket is gone, and the newer counts.
 */
#ifndef TT_DAEMON_MATCH_H
#define TT_DAEMON_MATCH_H

#include "table.h"
#include "ulc/link.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* IPv4 in its form as IPv6, ::ffff:a.b.c.d; the port in host order. */
struct tt_addr {
	uint8_t ip[16];
	uint16_t port;
};

struct tt_tuple {
	struct tt_addr local, remote;
};
_Static_assert(sizeof(struct tt_tuple) == 36, "compared and hashed as bytes: no padding");

/* False when it is no IP address. */
bool tt_addr_from(const struct sockaddr_storage *ss, struct tt_addr *ret);
bool tt_addr_is_ipv4(const struct tt_addr *a);
struct tt_tuple tt_tuple_reversed(const struct tt_tuple *t);
/* A socket that is connected to itself: both ends are one. */
bool tt_tuple_is_self(const struct tt_tuple *t);

/* Whether one of its ends has this port; 0: any. */
static inline bool tt_tuple_has_port(const struct tt_tuple *t, uint64_t port)
{
	return !port || t->local.port == port || t->remote.port == port;
}

struct tt_party;
struct tt_dlink;

struct tt_claim {
	struct tt_node by_cookie;
	struct tt_node by_tuple; /* while pending */
	bool pending;
	bool seen; /* scratch of reap.c */
	struct tt_party *party;
	uint32_t entry, generation;
	uint64_t cookie;
	uint64_t inode;	  /* of the socket */
	uint32_t ifindex; /* the interface that it is bound to, or 0 */
	struct tt_tuple tuple;
	struct tt_dlink *link; /* when granted */
	uint32_t slot;
	int end;
	int64_t since_ns;
};

struct tt_matcher {
	struct tt_table cookies, tuples;
	uint64_t seed; /* so that nobody can choose addresses that collide */
};

int tt_matcher_init(struct tt_matcher *m, uint64_t seed);
void tt_matcher_fini(struct tt_matcher *m);

/* Enters a claim with its cookie and tuple filled in; pending. */
void tt_matcher_add(struct tt_matcher *m, struct tt_claim *c);
void tt_matcher_remove(struct tt_matcher *m, struct tt_claim *c);
/* It has been granted, or never can be: nobody finds it by its tuple any more. */
void tt_matcher_settle(struct tt_matcher *m, struct tt_claim *c);
/* The pending claim of the other end, or NULL. */
struct tt_claim *tt_matcher_peer(const struct tt_matcher *m, const struct tt_claim *c);
struct tt_claim *tt_matcher_by_cookie(const struct tt_matcher *m, uint64_t cookie);

/* Who holds the slots of a link: each has two ends, and is free when neither is held. */
struct tt_slots {
	uint64_t held[2][TT_LINK_MAX_SLOTS / 64];
	uint32_t nslots;
	uint32_t used; /* slots that are not free */
};

void tt_slots_init(struct tt_slots *s, uint32_t nslots);
/* Takes both ends of the lowest free slot. Its number, or -EAGAIN. */
int tt_slots_get(struct tt_slots *s);
/* Gives up one end. True when that made the slot free. */
bool tt_slots_put(struct tt_slots *s, uint32_t slot, int end);
bool tt_slots_is_held(const struct tt_slots *s, uint32_t slot, int end);

#endif
