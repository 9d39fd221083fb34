/* SPDX-License-Identifier: MIT */
/*
 * The daemon from inside.
 *
 *   daemon.c   start, log, the loop, the end
 *   conn.c     control connections: who may talk, what is a message, the answers
 *   adopt.c    sides of a daemon before this one
 *   party.c    sides as the daemon sees them ("parties"), their processes and bells
 *   grant.c    claims and their matching, links and their slots
 *   reap.c     which sockets are gone without a word, and what they held
 *   probe.c    asks the kernel about sockets
 *   ended.c    the last counts of connections that have ended
 *   report.c   status and connections as JSON
 *   match.c    the book-keeping of grant.c without I/O
 *   table.c    hash table
 *
 * One thread, one epoll set, no timers: nothing happens unless a client says
 * something, a connection ends, or a process exits. (One exception to "one
 * thread": conn.c, tt_close_foreign.)
 *
 * Everything that comes from clients is hostile: messages, the descriptors
 * with them, and the sides' memory, which its owner rewrites at any time. A
 * word there is read once, checked, and the copy is used; locks there are
 * never taken and lists never followed. A mapping cannot fault: it is sealed.
 *
 *   tt_conn  *---*  tt_party  1---*  tt_claim  *---1  tt_dlink (2 parties)
 *                            1---*  tt_dproc  1---*  tt_dbell
 *
 * A party lives as long as a control connection that said HELLO for it; that
 * is, until the last process that holds it has ended. (Of those that have not
 * come back since the last daemon ended, the processes are watched: adopt.c.) A link lives as long as
 * a living party has a slot in it, or both parties live.
 *
 * Numbers of parties and links are never used twice, not by later daemons
 * either: clients keep them beyond this daemon's life (see daemon.c, next_id).
 */
#ifndef TT_DAEMON_INT_H
#define TT_DAEMON_INT_H

#include "base/json.h"
#include "base/log.h"
#include "daemon.h"
#include "match.h"
#include "sock/side.h"
#include "table.h"
#include "ulc/ctl.h"

#include <sys/types.h>

#define TT_MAX_CONNS 16384u
#define TT_MAX_CONN_PARTIES 4
#define TT_MAX_PARTIES 16384u
#define TT_MAX_BELLS 65536u /* a party */
#define TT_MAX_PAIR_LINKS 64u
#define TT_MAX_LINKS 8192u

struct tt_daemon;

/* Something in the epoll set. Freed at the end of a round of events, never within. */
struct tt_source {
	int fd; /* -1: gone, waits to be freed */
	void (*ready)(struct tt_daemon *d, struct tt_source *s, uint32_t events);
	struct tt_source *next_gone;
};

struct tt_conn {
	struct tt_source src; /* first */
	pid_t pid;	      /* who opened it */
	struct tt_party *parties[TT_MAX_CONN_PARTIES];
	int nparties;
	struct tt_conn *prev, *next;
};

/* A process that has bells. */
struct tt_dproc {
	struct tt_source src; /* first; a pidfd */
	struct tt_party *party;
	pid_t pid;
	bool adopted; /* has not come back since it was found, see adopt.c */
	struct tt_dbell *bells;
	struct tt_dproc *next; /* of the party */
};

struct tt_dbell {
	struct tt_node by_id;
	uint32_t party_id, id;
	int fd;
	struct tt_dproc *proc;
	struct tt_dbell *prev, *next; /* of the process */
};

#define TT_MISSED_BELLS 16

struct tt_party {
	struct tt_node by_id;
	uint32_t id;
	int fd; /* its memory */
	dev_t dev;
	ino_t ino;
	struct tt_side_mem *mem;
	uint32_t refs;		  /* control connections; 0: see adopt.c */
	struct tt_claim **claims; /* by entry */
	uint32_t nclaims;
	uint32_t claims_top;  /* none at or above */
	uint32_t since_reap;  /* claims since the last look for dead ones */
	uint32_t exit_credit; /* see reap.c */
	uint32_t since_sweep; /* exits since the last look at what is not claimed */
	struct tt_dproc *procs;
	uint32_t nbells;
	uint32_t missed[TT_MISSED_BELLS]; /* to be rung before they were known; 0: none */
	uint32_t nmissed;
	struct tt_party *prev, *next;
};

struct tt_dlink {
	struct tt_node by_id, by_pair;
	uint32_t id;
	uint32_t party_id[2];
	struct tt_party *party[2]; /* NULL: ended */
	int fd;
	struct tt_link *map;
	struct tt_slots slots;
	struct tt_dlink *prev, *next;
};

/* Of an end of a connection, at its end. */
struct tt_ended {
	uint32_t side, entry, generation;
	uint64_t ring_tx_bytes, ring_rx_bytes, shadow_tx_bytes, shadow_rx_bytes;
	uint64_t tx_messages, spins, sleeps, wakes;
};
#define TT_ENDED_KEPT 1024u

struct tt_daemon_stats {
	uint64_t claims, granted, refused, reaped, parties, accepted;
};

struct tt_daemon {
	int epoll, listener, lock, log, spare, signals, inotify, netlink;
	bool stop, foreground, draining, adopted;
	uint64_t dev, ino; /* of our folder */
	uint64_t netns;	   /* cookie of our network namespace; 0 unknown */
	int64_t start_ns;
	uint32_t id_next, id_end; /* see next_id */

	struct tt_conn *conns;
	uint32_t nconns;
	struct tt_party *parties;
	uint32_t nparties;
	struct tt_dlink *links;
	uint32_t nlinks;
	uint32_t nbells;
	struct tt_table party_ids, link_ids, link_pairs, bell_ids;
	struct tt_matcher matcher;
	struct tt_source *gone;

	struct tt_daemon_stats stats;
	struct tt_side_totals ended; /* of parties that are no more */
	struct tt_ended *ended_ends; /* a ring; NULL until there is one */
	uint64_t nended;	     /* that were ever in it */
};

/* A list through prev and next; head is of the elements' type. */
#define tt_list_push(head, e)                                                                      \
	do {                                                                                       \
		(e)->prev = NULL;                                                                  \
		(e)->next = (head);                                                                \
		if (head)                                                                          \
			(head)->prev = (e);                                                        \
		(head) = (e);                                                                      \
	} while (0)
#define tt_list_drop(head, e)                                                                      \
	do {                                                                                       \
		if ((e)->next)                                                                     \
			(e)->next->prev = (e)->prev;                                               \
		if ((e)->prev)                                                                     \
			(e)->prev->next = (e)->next;                                               \
		else                                                                               \
			(head) = (e)->next;                                                        \
	} while (0)

/* daemon.c */
int tt_source_add(struct tt_daemon *d, struct tt_source *s, int fd, uint32_t events);
/* Closes its descriptor; the memory (allocated by malloc) goes at the end of the round. */
void tt_source_drop(struct tt_daemon *d, struct tt_source *s);
/* A number that no party or link had before; 0 when none can be had. */
uint32_t tt_daemon_next_id(struct tt_daemon *d);
/* Counts what was refused, and says so in the log, not too often. */
void tt_daemon_refuse(struct tt_daemon *d, pid_t pid, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* conn.c */
void tt_listener_ready(struct tt_daemon *d, struct tt_source *s, uint32_t events);
/* Reads what control connections have to say; party NULL: all, else those of that party. */
void tt_conns_drain(struct tt_daemon *d, const struct tt_party *party, const struct tt_conn *but);
void tt_conn_close(struct tt_daemon *d, struct tt_conn *c);
/* Closes a descriptor that a client sent. Never blocks. */
void tt_close_foreign(int fd);

/* party.c; descriptors in fds that a call keeps are set to -1 there */
int tt_party_hello(struct tt_daemon *d, struct tt_conn *c, uint32_t wanted, int *memfd,
		   uint32_t *ret_id);
void tt_party_put(struct tt_daemon *d, struct tt_party *p);
/* Those that are left without a control connection; at the daemon's end. */
void tt_parties_drop(struct tt_daemon *d);
/*
 * Process pid holds this side, which may be one of a daemon before this one. 0,
 * or why it is none that we take.
 */
int tt_party_adopt(struct tt_daemon *d, pid_t pid, int *memfd);
struct tt_party *tt_party_find(struct tt_daemon *d, uint64_t id);
int tt_bell_add(struct tt_daemon *d, struct tt_party *p, uint32_t id, pid_t pid, int *fd);
/* The descriptor stays the daemon's; -ENOENT. */
int tt_bell_find(struct tt_daemon *d, const struct tt_party *p, uint32_t id);
/* Wakes who sleeps on the bell; now, or as soon as we are told of it. */
void tt_bell_wake(struct tt_daemon *d, struct tt_party *p, uint32_t id);

/* adopt.c */
/* Before a report: the sides whose programs have not come back to this daemon. */
void tt_adopt(struct tt_daemon *d);
/* Looks anew: for those that hold a side whose known holders have ended. */
void tt_adopt_again(struct tt_daemon *d);

/* grant.c */
int tt_claim_add(struct tt_daemon *d, struct tt_party *p, uint64_t entry, uint32_t generation,
		 int *sock);
void tt_claim_release(struct tt_daemon *d, struct tt_claim *c);
struct tt_claim *tt_claim_find(struct tt_party *p, uint64_t entry);
struct tt_dlink *tt_dlink_find(struct tt_daemon *d, uint64_t id);
bool tt_parties_linked(struct tt_daemon *d, const struct tt_party *a, const struct tt_party *b);
void tt_links_forget(struct tt_daemon *d, struct tt_party *p);
/* SO_COOKIE of a TCP socket, or 0. */
uint64_t tt_sock_cookie(int sock);

/* reap.c */
/* port 0: all claims; else those of connections that have it. */
void tt_reap(struct tt_daemon *d, struct tt_party *p, uint64_t port);
/* Only when it has been long enough, measured in claims. */
#define TT_CLAIMS_PER_REAP 1024u
void tt_reap_sometimes(struct tt_daemon *d, struct tt_party *p, uint32_t min_claims);
void tt_reap_after_exit(struct tt_daemon *d, struct tt_party *p);
/* The same for what nobody claimed from this daemon. */
void tt_sweep(struct tt_daemon *d, struct tt_party *p, uint64_t port);

/* ended.c */
/* This end has ended; nothing is noted when its entry has another user already. */
void tt_ended_note(struct tt_daemon *d, const struct tt_party *p, uint32_t entry,
		   uint32_t generation);
/* The whole side has. */
void tt_ended_note_all(struct tt_daemon *d, const struct tt_party *p);
void tt_ended_write(const struct tt_daemon *d, struct tt_json *j, uint64_t since);

/* probe.c */
enum tt_life {
	TT_LIFE_ALIVE,	/* or we could not find out */
	TT_LIFE_ORPHAN, /* the kernel has it, no process does */
	TT_LIFE_ABSENT, /* the kernel's tables have it no more; a descriptor may still exist */
};
#define TT_PROBE_BATCH 64
int tt_probe_open(void);
void tt_probe(int netlink, struct tt_claim *const *claims, uint32_t n, enum tt_life *ret_life);

/* report.c: JSON text in a sealed memfd, or a negative errno */
int tt_report_status(struct tt_daemon *d);
/*
 * port 0: all connections; else those that have it at one of their ends. ended:
 * also the ends that ended since a report whose "ended_until" it is; UINT64_MAX:
 * only that number, for later; 0: nothing of it.
 */
int tt_report_ss(struct tt_daemon *d, uint64_t port, uint64_t ended);
struct tt_tuple tt_entry_tuple(const struct tt_party *p, uint32_t entry);
/* How many entries of its memory were ever used. */
uint32_t tt_party_entries(const struct tt_party *p);
/* A count from a side's memory; one that cannot be is written as 2^53. */
void tt_report_count(struct tt_json *j, const char *key, uint64_t hostile);
void tt_totals_add(struct tt_side_totals *sum, const struct tt_side_totals *hostile);

#endif
