/* SPDX-License-Identifier: MIT */
/*
 * A side's own memory: the state of its connections.
 *
 * A side is a family of processes, everything that one `tutti run` started. Its
 * memory is a sealed memfd that the family inherits (by fork, and by exec
 * through a descriptor named in TUTTI_SIDE) and that the daemon maps, to grant
 * and to report. The peer of a connection never sees it; what the two share is
 * a link (ulc/link.h). So locks may live here and what is read here is true,
 * except that the daemon, for which this memory is a client's, checks it all.
 *
 * An entry stands for an open socket, by its SO_COOKIE: whoever of the family
 * holds a descriptor of it finds the entry, however the descriptor came there.
 *
 *   FREE --tt_side_entry_get--> USED --tt_side_entry_put--> FREE
 *
 * `grant` is the daemon's word: written once per claim, when both ends of the
 * connection have claimed. `dead` is too: the daemon saw that the kernel knows
 * the socket no more; an allocation takes the entry back before the table grows.
 */
#ifndef TT_SOCK_SIDE_H
#define TT_SOCK_SIDE_H

#include "base/atomic.h"
#include "stream/stream.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TT_SIDE_MAGIC 0x6564697374747574ull /* "tuttside" */
#define TT_SIDE_VERSION 5u
#define TT_SIDE_MEMFD "tutti-side" /* its name in /proc */
#define TT_SIDE_ENTRIES 65536u
#define TT_SIDE_BUCKETS 32768u

/* Why a connection is on kernel TCP. The names are what `tutti ss` shows. */
#define TT_REASONS(X)                                                                              \
	X(NONE, "none")                                                                            \
	X(PEER_NOT_TUTTI, "peer-not-tutti") /* claimed; the other end did not (yet) */             \
	X(NO_DAEMON, "no-daemon")                                                                  \
	X(OTHER_HOST, "other-host-no-engine")                                                      \
	X(SHORT, "short")	  /* ended before it was worth it */                               \
	X(OPTION, "option")	  /* a socket option that works in the kernel only */              \
	X(INHERITED, "inherited") /* came from a program that is not Tutti's */                    \
	X(TABLE_FULL, "table-full")                                                                \
	X(NO_LINK, "no-link")	      /* the daemon has no memory for it */                        \
	X(PATH_TCP, "path-tcp")	      /* asked for */                                              \
	X(HALF_CLOSED, "half-closed") /* one direction, after the peer's shutdown */               \
	X(URGENT, "urgent-data")                                                                   \
	X(HANDED_OVER, "handed-over")	  /* to a program that cannot be preloaded */              \
	X(SHARED_SET, "shared-epoll-set") /* processes share a set that it is in */                \
	X(BACKLOG, "tcp-backlog")	  /* one direction: the other's bytes pile up on TCP */    \
	X(PROTOCOL, "protocol-error")	  /* the peer wrote what cannot be */                      \
	X(RESOURCES, "resources")	  /* out of memory or descriptors here */

enum tt_reason {
#define X(name, text) TT_REASON_##name,
	TT_REASONS(X)
#undef X
		TT_REASON_COUNT
};
extern const char *const tt_reason_names[TT_REASON_COUNT];

enum { TT_ENTRY_FREE, TT_ENTRY_USED };

/* Which way a direction's bytes go. */
enum tt_route {
	TT_ROUTE_TCP,  /* from the start */
	TT_ROUTE_RING, /* from the position where it went over */
	TT_ROUTE_BACK, /* on TCP again, for good */
};

/* entry.shadow: what the kernel said about the shadow; only ever set. */
enum {
	TT_SHADOW_FIN = 1,  /* the peer's FIN arrived */
	TT_SHADOW_HUP = 2,  /* both directions are down */
	TT_SHADOW_ERR = 4,  /* an error is or was pending in the kernel */
	TT_SHADOW_GONE = 8, /* FIN without a shutdown: the peer has closed or died */
};

/*
 * entry.reset: the connection was reset, and whether a call has reported it: once, as
 * the kernel does. The shadow's own error, if it had one, was taken from it then.
 */
enum { TT_RESET_NONE, TT_RESET_PENDING, TT_RESET_TOLD };

struct tt_entry {
	uint64_t cookie; /* SO_COOKIE of the shadow */
	uint32_t generation;
	uint32_t state; /* TT_ENTRY_* */
	uint32_t next;	/* in its bucket or the free list: index + 1 */
	uint32_t claimed;
	uint64_t grant;	 /* daemon: tt_grant_*(), 0 none */
	uint32_t dead;	 /* daemon: generation + 1 */
	uint32_t seen;	 /* daemon: has read the claim; generation + 1 */
	uint32_t shared; /* more than one process may hold it */
	uint32_t reason; /* enum tt_reason */
	uint32_t family;
	int32_t pid; /* who made the entry */
	/* Of the open file, shared by all its descriptors; as last set or seen. */
	uint32_t nonblock;
	uint32_t rcvlowat;		  /* 0: 1 */
	uint32_t sndbuf, rcvbuf;	  /* 0: nobody set them */
	uint32_t cork;			  /* TCP_CORK; the shadow's too, while we send by TCP */
	int64_t rcvtimeo_ns, sndtimeo_ns; /* 0: none */
	uint64_t inode;			  /* of the shadow; 0: the entry is being made */

	_Alignas(TT_CACHE_LINE) struct sockaddr_storage_small {
		uint16_t family, port; /* host order */
		uint8_t addr[16];      /* IPv4: the first four */
		uint8_t reserved[4];
	} local, remote;
	char comm[16];

	_Alignas(TT_CACHE_LINE) pthread_mutex_t tx_lock; /* robust; tx_*, tx */
	uint32_t tx_route;
	uint32_t tx_raw; /* calls inside the kernel's send on the shadow */
	struct tt_stream_tx tx;
	uint32_t kicks_sent;
	uint32_t tx_sleepers;
	uint64_t tx_bytes, tx_messages, tx_tcp_bytes, tx_sleeps, tx_spins;

	_Alignas(TT_CACHE_LINE) pthread_mutex_t rx_lock; /* robust; rx_*, rx */
	uint32_t rx_route;
	uint32_t kicks_dropped;
	struct tt_stream_rx rx;
	uint64_t tcp_pos; /* bytes read by TCP since the connection began; with tcp_pos_known */
	uint64_t up_left; /* bytes that still come by TCP before the ring's */
	uint32_t up_known, tcp_pos_known;
	uint32_t rx_sleepers;
	uint64_t rx_bytes, rx_tcp_bytes, rx_sleeps, rx_spins;

	_Alignas(TT_CACHE_LINE) uint32_t shadow; /* TT_SHADOW_*; atomic OR */
	uint32_t reset;				 /* TT_RESET_* */
	uint32_t reset_errno;			 /* what the shadow reported; 0: nothing */
	uint32_t rd_shut, wr_shut;		 /* our own shutdown() */
	uint32_t wakes, kicks;
	uint32_t attached;
	int32_t raw_pid; /* this process uses the shadow without us, see leave.c */
	/*
	 * Rung by the daemon when it grants: a sleeper stores its bell, fences,
	 * looks at grant (G1); the daemon stores grant, fences, looks here (G0).
	 */
	uint32_t grant_bell;
	uint32_t down_reason; /* of a direction that went back */
};

/* Totals over the side's life; relaxed counts. */
struct tt_side_totals {
	uint64_t connections, accelerated;
	uint64_t empty; /* closed before they carried a byte; not among the accelerated */
	uint64_t fallback[TT_REASON_COUNT];
	uint64_t ring_tx_bytes, ring_rx_bytes, shadow_tx_bytes, shadow_rx_bytes;
	uint64_t spins, sleeps, wakes, kicks;
};

struct tt_side_mem {
	uint64_t magic;
	uint32_t version;
	uint32_t id;	 /* the daemon's; 0 until it is known */
	uint64_t secret; /* lets a process that lost the descriptor ask for it */
	uint32_t next_bell;
	uint32_t used; /* entries ever used are below this */
	uint32_t free_list;
	uint32_t spin_usec; /* UINT32_MAX: adaptive */
	uint32_t path;	    /* 0 user, 1 tcp */
	char name[32];	    /* the program that was run */
	/* The folder of the daemon, by which the next one there knows the side as its own. */
	uint64_t daemon_dev, daemon_ino;
	pthread_mutex_t lock; /* robust: allocation, buckets */
	_Alignas(TT_CACHE_LINE) struct tt_side_totals totals;
	uint32_t buckets[TT_SIDE_BUCKETS]; /* index + 1 */
	_Alignas(4096) struct tt_entry entries[TT_SIDE_ENTRIES];
};

#define tt_grant_pack(link, slot, side)                                                            \
	((uint64_t)(link) << 32 | (uint64_t)(slot) << 8 | (uint64_t)(side) << 1 | 1)
#define tt_grant_link(g) ((uint32_t)((g) >> 32))
#define tt_grant_slot(g) ((uint32_t)((g) >> 8) & 0xffffff)
#define tt_grant_side(g) ((int)((g) >> 1) & 1)
/* The low bits of the entry's generation that the grant was meant for. */
#define tt_grant_generation(g) ((uint32_t)((g) >> 2) & 0x3f)

/* Creates a side's memory, initialised; returns its descriptor or a negative errno. */
int tt_side_create(const char *name);
/* Maps it; -EPROTO when it is none. */
int tt_side_map(int fd, struct tt_side_mem **ret_mem);

/*
 * Finds the entry of cookie, or with create makes one (initialised, *ret_new).
 * NULL: not there, or the table is full. Thread and fork safe.
 */
struct tt_entry *tt_side_entry_get(struct tt_side_mem *m, uint64_t cookie, bool create,
				   bool *ret_new);
/* Frees it, if its generation is still this one. */
void tt_side_entry_put(struct tt_side_mem *m, struct tt_entry *e, uint32_t generation);

static inline uint32_t tt_side_entry_index(const struct tt_side_mem *m, const struct tt_entry *e)
{
	return (uint32_t)(e - m->entries);
}

/*
 * Locks a robust mutex of the side. 0; -EOWNERDEAD when its holder died (the
 * lock is ours and consistent again, what it guards may be half done);
 * -EDEADLK when this very thread holds it (a signal handler).
 */
int tt_side_lock(pthread_mutex_t *m);
void tt_side_unlock(pthread_mutex_t *m);

#endif
