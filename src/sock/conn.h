/* SPDX-License-Identifier: MIT */
/*
 * A connection as one process sees it, and the table of its descriptors.
 *
 * Everything here is a cache of one process. What must survive fork, exec and
 * passing lies in the side's entry (side.h), under its locks; the descriptor
 * table finds it. Conn objects are recycled but never unmapped: a thread that
 * loaded one and was overtaken by a close may still lock it, sees under the
 * lock that the table no longer leads there, and starts again.
 *
 *   PLAIN ---a few turns, or fork---> CLAIMED ---granted---> ATTACHED
 *     |                                     |
 *     +--------------cannot be--------------+--> FALLBACK, for a recorded reason
 *
 * PLAIN: calls go to the kernel as they are; `raw` counts threads inside them,
 * and c stays PLAIN while another thread is there, for it would sleep on the
 * shadow alone and miss what comes by the ring. From CLAIMED on (entry.claimed
 * says whether the daemon was told) no call blocks in the kernel except in
 * wait.c, which counts its sleepers.
 *
 * Locks, outermost first: table lock (conn.c) > a set's lock (epoll.c) >
 * entry.rx_lock / entry.tx_lock (never both, except in closing: tx then rx; who
 * has both ends, downgrade.c, takes one's rx and then the other's tx).
 */
#ifndef TT_SOCK_CONN_H
#define TT_SOCK_CONN_H

#include "sock/guard.h"
#include "sock/side.h"

#include <sys/types.h>

enum { TT_CONN_FREE, TT_CONN_PLAIN, TT_CONN_CLAIMED, TT_CONN_ATTACHED, TT_CONN_FALLBACK };

struct tt_interest;
struct tt_eset;

struct tt_conn {
	uint32_t mode;	   /* TT_CONN_*; read without lock */
	uint32_t nonblock; /* O_NONBLOCK, while there is no entry to hold it */
	struct tt_entry *e;
	struct tt_stream st;	 /* valid when ATTACHED */
	uint64_t checked;	 /* ticks: when the shadow was last asked */
	struct tt_side_mem *mem; /* whose entry it is */
	uint32_t generation;	 /* of the entry when it became ours */
	int fd;			 /* one of the descriptors that lead here */
	uint32_t refs;		 /* slots of the table */
	uint32_t pins;		 /* threads that use it outside any lock */
	uint32_t used;		 /* this process has moved bytes on it */
	uint32_t raw;		 /* threads inside kernel calls while PLAIN */
	uint32_t turns;		 /* before the claim, by tt_conn_count_turn() */
	uint32_t last_way;	 /* 1: sent, 2: received */
	uint32_t messages;
	uint32_t reason;
	uint32_t connected;
	uint32_t waited_us;	       /* its sends have waited for the ring, all together */
	struct tt_interest *interests; /* under the table of sets' lock */
	uint64_t local_bytes;
	int stand_in; /* a descriptor of ours: the last one was closed while calls go on; 0: none */
	struct tt_conn *next; /* among the free, or among those with a stand-in */
};

enum { TT_FD_UNKNOWN, TT_FD_NONE, TT_FD_CONN, TT_FD_EPOLL };

struct tt_slot {
	uint32_t kind;
	void *obj; /* struct tt_conn or struct tt_eset */
};

/* ---- the table (fdtab.c) ---- */

#define TT_FDTAB_LEAF 1024
#define TT_FDTAB_LEAVES 4096
extern struct tt_slot *tt_fdtab[TT_FDTAB_LEAVES];

/* The slot of fd, or NULL when its number was never used. Lock-free. */
static inline struct tt_slot *tt_fd_slot(int fd)
{
	if ((unsigned)fd >= TT_FDTAB_LEAF * TT_FDTAB_LEAVES)
		return NULL;
	struct tt_slot *leaf = tt_load_acquire(&tt_fdtab[fd / TT_FDTAB_LEAF]);

	return leaf ? &leaf[fd % TT_FDTAB_LEAF] : NULL;
}

/* Whether fd leads to obj now. */
static inline bool tt_fd_is(int fd, const void *obj)
{
	struct tt_slot *s = tt_fd_slot(fd);

	return s && tt_load_acquire(&s->obj) == obj;
}

struct tt_conn *tt_fd_conn_slow(int fd);

/* The connection behind fd, or NULL when fd is none of ours. Looks a new number up once. */
static inline struct tt_conn *tt_fd_conn(int fd)
{
	struct tt_slot *s = tt_fd_slot(fd);

	if (s) {
		uint32_t kind = tt_load_acquire(&s->kind);

		if (kind == TT_FD_CONN) {
			struct tt_conn *c = tt_load_acquire(&s->obj);

			/* Still of that kind: then c is a connection, or was. Else it changes: wait. */
			if (tt_load_relaxed(&s->kind) == TT_FD_CONN)
				return c;
		} else if (kind != TT_FD_UNKNOWN) {
			return NULL;
		}
	}
	return tt_fd_conn_slow(fd);
}

/* False: this thread has it, we are in a signal handler. */
bool tt_fdtab_trylock(void);
void tt_fdtab_lock(void);
void tt_fdtab_unlock(void);
/* The calls below want the lock held. */
void tt_fd_set(int fd, uint32_t kind, void *obj);
/* Some other descriptor of this process that leads to obj, or -1. */
int tt_fd_other(const void *obj, int not_fd);
/* Calls fn for every slot of this kind. */
void tt_fd_each(uint32_t kind, void (*fn)(int fd, void *obj));

/* ---- connections (conn.c, claim.c, shadow.c) ---- */

struct tt_conn *tt_conn_new(int fd);
/*
 * fd, which was closed and no longer leads here, is one descriptor less; after
 * the last, for which the caller has pinned it, c and what it holds is freed
 * (once nobody else pins it). last says so.
 */
void tt_conn_put(struct tt_conn *c, int fd, bool last);
/* Keeps c from being recycled, for calls that wait. False: fd no longer leads to it. */
bool tt_conn_pin(struct tt_conn *c, int fd);
void tt_conn_unpin(struct tt_conn *c);
/* The calls that this thread was inside of will not return: a handler jumps out of them. */
void tt_conn_abandon_pins(void);
void tt_wait_abandon(void);
/*
 * The last descriptor of c is about to be closed, and other threads are inside
 * calls on it: as the kernel would, keep the open file until they have ended.
 * Table lock held.
 */
void tt_conn_keep_file(struct tt_conn *c, int fd);
/*
 * The descriptor by which a pinned c can be reached, which began as fd; -1:
 * none. It may be closed by others at any time; who sleeps looks again when armed.
 */
static inline int tt_conn_fd(struct tt_conn *c, int fd)
{
	if (tt_fd_is(fd, c))
		return fd;
	int other = tt_load_acquire(&c->stand_in);

	if (other > 0)
		return other;
	other = tt_load_acquire(&c->fd);
	return other >= 0 && tt_fd_is(other, c) ? other : -1;
}
/* Rings the bells of our own sleepers. */
void tt_conn_wake_own(struct tt_conn *c);
void tt_conn_fork_child(void);

/*
 * Counts a call on a connection that nobody claimed, which will move more
 * bytes; claims when it is worth it. True: it is PLAIN no longer.
 */
bool tt_conn_progress(struct tt_conn *c, int fd, size_t more);
/*
 * A connection is claimed when it has carried so much; a blocking sender of more
 * waits for the ring then.
 */
#define TT_CLAIM_BYTES (16u << 10)
/* c ends, or its process: it was perhaps too short for the other end to claim. */
void tt_conn_count_short(struct tt_conn *c);
/* Stays on TCP for good. */
void tt_conn_fallback(struct tt_conn *c, int fd, enum tt_reason why);
/*
 * Other processes of the side are going to hold c too: gives it an entry, where
 * they find it. Table lock held.
 */
int tt_conn_share(struct tt_conn *c, int fd);

/* CLAIMED and granted: map the link and say so. True when ATTACHED now. */
bool tt_conn_attach(struct tt_conn *c, int fd);

/* Whether its calls are ours to make; else they go to the kernel as they are. */
static inline bool tt_conn_managed(const struct tt_conn *c)
{
	uint32_t mode = tt_load_acquire(&c->mode);

	return c->e && (mode == TT_CONN_CLAIMED || mode == TT_CONN_ATTACHED);
}

bool tt_conn_ready_slow(struct tt_conn *c, int fd);

/* Whether c is on the ring; claims and attaches when it is time. */
static inline bool tt_conn_ready(struct tt_conn *c, int fd)
{
	return tt_load_acquire(&c->mode) == TT_CONN_ATTACHED || tt_conn_ready_slow(c, fd);
}

/* A call that goes to the kernel as it is begins and ends. False: no longer PLAIN. */
bool tt_conn_raw_begin(struct tt_conn *c);
void tt_conn_raw_end(struct tt_conn *c);
/*
 * What is counted before the claim, beside bytes: how often the connection has
 * changed its direction, and its messages. A line that is read byte by byte is
 * none, and an answer may be sent in pieces; so turns count for more.
 */
static inline void tt_conn_count_turn(struct tt_conn *c, size_t n, bool sent)
{
	uint32_t way = sent ? 1 : 2;

	if (tt_load_relaxed(&c->last_way) != way) {
		tt_store_relaxed(&c->last_way, way);
		tt_count(&c->turns, 1);
	}
	if (n >= 16)
		tt_count(&c->messages, 1);
}

/* A call that goes to the kernel as it is has moved n bytes. */
static inline void tt_conn_count_raw(struct tt_conn *c, size_t n, bool sent)
{
	tt_count(&c->local_bytes, (uint64_t)n);
	tt_conn_count_turn(c, n, sent);
}

/* A call of a managed connection has moved n bytes by TCP. */
static inline void tt_conn_count_tcp(struct tt_conn *c, size_t n, bool sent)
{
	struct tt_side_totals *t = &c->mem->totals;

	tt_count(sent ? &c->e->tx_tcp_bytes : &c->e->rx_tcp_bytes, (uint64_t)n);
	tt_count(sent ? &t->shadow_tx_bytes : &t->shadow_rx_bytes, (uint64_t)n);
	if (n && !tt_load_relaxed(&c->e->claimed))
		tt_conn_count_turn(c, n, sent);
}

/* SO_COOKIE; 0 when fd is no socket. */
uint64_t tt_conn_cookie(int fd);
/* TCP_ESTABLISHED and so on; 0 when fd is no TCP socket. */
int tt_conn_tcp_state(int fd);
/* Asks the kernel about the shadow; updates entry.shadow, drops kicks. */
void tt_conn_check_shadow(struct tt_conn *c, int fd);
/* Drops kick bytes that wait on the shadow. rx_lock held. */
void tt_conn_drop_kicks(struct tt_conn *c, int fd);
/* If the program has set TCP_CORK, the shadow has it or not. tx_lock held. */
void tt_conn_cork_shadow(struct tt_conn *c, int fd, bool on);
/* SO_SNDBUF and SO_RCVBUF, if somebody set them, bound what lies unread on the ring too. */
void tt_conn_take_buffer_sizes(struct tt_conn *c, int fd);
/* Whether a sender may expect progress by the ring. tx_lock held. */
bool tt_conn_writable(struct tt_conn *c);
/*
 * What a kernel would report of e->reset, once: ECONNRESET, or EPIPE after the
 * peer's shutdown. 0: it was reported, or there was no reset.
 */
int tt_conn_take_reset(struct tt_conn *c);
/*
 * A kick that the peer had not read when it closed makes its kernel send a
 * reset. If the peer left none of our bytes unread, it was an orderly end.
 */
bool tt_conn_reset_by_kick(struct tt_conn *c);
/* The peer broke the protocol: end the connection as a reset would. */
void tt_conn_break(struct tt_conn *c, int fd);
/* Sends a kick byte: the doorbell of last resort. tx_lock held. */
void tt_conn_kick(struct tt_conn *c, int fd);
/* After tt_chan_notify_*(), which returned rung: kicks when a bell is missing, counts the others. */
static inline void tt_conn_tell(struct tt_conn *c, int fd, int rung)
{
	if (rung < 0) {
		tt_conn_kick(c, fd);
	} else if (rung > 0) {
		tt_count(&c->e->wakes, (uint32_t)rung);
		tt_count(&c->mem->totals.wakes, (uint64_t)rung);
	}
}
/* Every message shall come with a kick: SIGIO is the kernel's to send. */
void tt_conn_want_kicks(struct tt_conn *c, bool on);
/* What is sent from now on goes by TCP again, for good. tx_lock held, the route is the ring. */
void tt_conn_go_back(struct tt_conn *c, enum tt_reason why);
/*
 * The ring has no room, and bytes of the peer's wait on TCP: its end, if it
 * dies now, would stay behind them and nobody would hear of it. So what is sent
 * goes by TCP again, where the kernel answers for the dead. True when it does.
 * tx_lock held, the route is the ring.
 */
bool tt_conn_leave_full_ring(struct tt_conn *c, int fd);
/* The FIN that a half-close withheld. */
void tt_conn_shut_shadow(struct tt_conn *c, int fd);
/*
 * Back to kernel TCP both ways, for whoever has the connection. Waits at most
 * wait_ns for the peer. False: it could not be, the ring is in use as before,
 * but for what we send. (downgrade.c)
 */
#define TT_DOWNGRADE_NS (300 * 1000000LL)
bool tt_conn_downgrade(struct tt_conn *c, int fd, enum tt_reason why, int64_t wait_ns);
/*
 * The same for what c receives, when peer is its other end, answering for that.
 * False: it is not, or it could not be; tt_conn_downgrade has to be asked.
 */
bool tt_conn_downgrade_here(struct tt_conn *c, int fd, struct tt_conn *peer, int peer_fd);
/* The peer asks us to send by TCP again, and we have not answered. */
static inline bool tt_conn_asked_to_leave(const struct tt_conn *c)
{
	return (tt_load_acquire(&c->st.rx->flags) & TT_STREAM_LEAVE) &&
	       !(tt_load_relaxed(&c->st.tx->flags) & (TT_STREAM_DOWN | TT_STREAM_STAYS));
}
void tt_conn_serve_leave_slow(struct tt_conn *c, int fd);
/* c is ATTACHED; no lock held. */
static inline void tt_conn_serve_leave(struct tt_conn *c, int fd)
{
	if (__builtin_expect(tt_conn_asked_to_leave(c), 0))
		tt_conn_serve_leave_slow(c, fd);
}
/* The peer's next call shall ask the kernel (we close or end). */
void tt_conn_hint(struct tt_conn *c);
/*
 * From here on what is read by TCP is counted. The kernel's own count would not
 * do later: when a connection has ended it may hold a FIN as if it were a byte.
 */
void tt_conn_count_from_here(struct tt_conn *c, int fd);
/* Whether the peer has shut down, as far as a kernel would have told by now. */
bool tt_conn_rx_ended(struct tt_conn *c, int fd);
/* Which of POLLIN.. hold now. want narrows what must be exact. */
short tt_conn_poll(struct tt_conn *c, int fd, short want);

/* Whether a process that left the side, and lives, has the connection. */
bool tt_conn_held_raw(struct tt_entry *e);

/* Locks with the recovery that a dead holder asks for. 0, or -EDEADLK inside a signal handler. */
int tt_conn_lock_tx_of(struct tt_conn *c, struct tt_entry *e);
int tt_conn_lock_rx_of(struct tt_conn *c, struct tt_entry *e);

static inline int tt_conn_lock_tx(struct tt_conn *c)
{
	return tt_conn_lock_tx_of(c, c->e);
}

static inline int tt_conn_lock_rx(struct tt_conn *c)
{
	return tt_conn_lock_rx_of(c, c->e);
}

static inline void tt_conn_unlock_tx(struct tt_conn *c)
{
	tt_side_unlock(&c->e->tx_lock);
}

static inline void tt_conn_unlock_rx(struct tt_conn *c)
{
	tt_side_unlock(&c->e->rx_lock);
}

/* ---- waiting (wait.c) ---- */

/*
 * Waits until c may be readable (writable), or its shadow has news. deadline
 * in tt_now_ns() or INT64_MAX. 0, -EAGAIN at the deadline, -EINTR.
 * Takes no lock of its caller's.
 */
struct tt_signal_mark;
int tt_wait_rx(struct tt_conn *c, int fd, int64_t deadline_ns, const struct tt_signal_mark *m);
int tt_wait_tx(struct tt_conn *c, int fd, int64_t deadline_ns, const struct tt_signal_mark *m);

/*
 * Signals: a call takes a mark when it begins; a handler that has run in this
 * thread since then interrupts it where it would wait.
 */
struct tt_signal_mark {
	uint32_t all, once; /* handlers so far; those that want no restart */
};
struct tt_signal_mark tt_signal_mark(void);
bool tt_signal_since(const struct tt_signal_mark *m);
/* After -EINTR: would the kernel have restarted the call? */
bool tt_signal_restarts(const struct tt_signal_mark *m);
/* A handler of the program's is about to run. Async-signal-safe. */
void tt_signal_came(bool restart);
/*
 * Around a sleep that this eventfd ends: a handler that comes before the kernel
 * sleeps writes to it. begin is false when one has come since the mark: do not
 * sleep then. end always follows.
 */
bool tt_sleep_begin(int eventfd, const struct tt_signal_mark *m);
void tt_sleep_end(void);

/* Arms the thread's bell on c for these events; the caller checks again, then sleeps. */
void tt_wait_arm(struct tt_conn *c, bool rx, bool tx, uint32_t bell);
void tt_wait_disarm(struct tt_conn *c, bool rx, bool tx, uint32_t bell);

void tt_wait_fork_child(void);

/* The calling thread's bell; id 0 when it cannot have one. */
struct tt_bell;
const struct tt_bell *tt_thread_bell(void);

/* Adaptive spinning: one per thread and kind of wait. */
struct tt_spinner {
	uint64_t start, limit; /* ticks */
	uint32_t rounds;
	bool yields;
	uint64_t last; /* look at the clock; ticks */
};
void tt_spin_start(struct tt_spinner *sp);
/* False: stop spinning, sleep. */
bool tt_spin_next(struct tt_spinner *sp);
void tt_spin_won(struct tt_spinner *sp);
/* After a sleep of this long: would spinning have paid? */
void tt_spin_slept(struct tt_spinner *sp, int64_t ns);
/* Whether the last waits of this thread were won by spinning. */
bool tt_spin_hot(void);

/* ---- the process (proc.c) ---- */

struct tt_proc {
	struct tt_side_mem *mem; /* NULL: everything stays on TCP */
	int side_fd;
	uint32_t spin_usec; /* UINT32_MAX: adaptive */
	bool eager;	    /* TUTTI_EAGER: claims whatever connects, and waits for the ring */
	int pid;
	bool lends; /* a child that uses this memory may be there: vfork and kin were called */
	bool left;  /* for good: everything passes through */
};
extern struct tt_proc tt_proc;

/* Sends to the daemon; connects first when need be. -ENOTCONN: there is none. */
struct tt_ctl_msg;
int tt_proc_send(const struct tt_ctl_msg *m, int fd);
int tt_proc_request(struct tt_ctl_msg *m, int fd, int *ret_fd);

/* The link of this id, mapped and counted; NULL. Table lock may be held for get, not for put. */
struct tt_link *tt_proc_link_get(uint32_t side_id, uint32_t id, int side);
void tt_proc_link_put(struct tt_link *l);
void tt_proc_fork_prepare(void);
void tt_proc_fork_parent(void);
void tt_proc_fork_child(void);
void tt_fdtab_fork_child(void);
/* One line of JSON where TUTTI_STATS says. */
void tt_stats_write(void);
/* Opens a bell and tells the daemon. */
int tt_proc_bell(struct tt_bell *ret_bell);

/* ---- epoll (epoll.c), as the rest needs it ---- */

/* c is about to be claimed: a grant shall wake a set that has it. Table lock held. */
void tt_eset_conn_claimed(struct tt_conn *c);
/* c was attached: its interests leave the kernel's sets. Table lock not held. */
void tt_eset_conn_attached(struct tt_conn *c, int fd);
/* fd is being closed while it leads to c; last: no other descriptor does. */
void tt_eset_conn_closed(struct tt_conn *c, int fd, bool last);
/* fd may be a set that is waited on from outside: keep its readability true. */
void tt_eset_watched(int fd);
void tt_eset_get(struct tt_eset *s);
void tt_eset_put(struct tt_eset *s, int fd);
void tt_eset_fork_prepare(void);
void tt_eset_fork_parent(void);
void tt_eset_fork_child(void);
/* l is being unmapped. */
void tt_eset_forget_link(struct tt_link *l);
/* Puts c up for evaluation in every set that has it. */
void tt_eset_conn_changed(struct tt_conn *c);

#endif
