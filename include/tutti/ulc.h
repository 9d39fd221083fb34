/* SPDX-License-Identifier: MIT */
/*
 * User-level communication (ULC): memory that a peer may write, channels with
 * ordered remote writes and notifications, completion queues that are polled
 * or slept on. No system call on the data path.
 *
 *	int sock[2];                       // any connected AF_UNIX socket
 *	struct tutti_region *mine;         // memory that the peer writes
 *	struct tutti_cq *cq;               // where its notifications arrive
 *	struct tutti_channel *ch;
 *
 *	tutti_region_create(4096, &mine);
 *	tutti_cq_create(&cq);
 *	tutti_channel_open(sock[0], mine, cq, &ch);   // the peer does the same
 *	tutti_write_notify(ch, 0, "hello", 6, 1);     // into the peer's region
 *	tutti_cq_wait(cq, &event, 1, -1);             // what the peer sent us
 *
 * Order: what was written before a notification is visible to whoever has
 * taken that notification; writes and notifications of one channel arrive in
 * the order of the calls.
 *
 * The peer may be hostile: it can write any value into the memory that it
 * shares with us, at any time, also into what it sent before; so copy, check,
 * use the copy. It cannot reach other memory, and no call here trusts it.
 *
 * Threads: calls on different channels and queues are independent. Calls that
 * send on one channel must be serialised by the caller, and so must calls on
 * one completion queue; sending on a channel and polling its queue may be done
 * by two threads at once.
 * Fork: a child must not use what its parent opened.
 * Signals: tutti_write, tutti_notify, tutti_write_notify and tutti_cq_poll may
 * be called in a handler that did not interrupt a call on the same object.
 *
 * All calls return 0 or a count, or a negative errno (see tutti/error.h).
 */
#ifndef TUTTI_ULC_H
#define TUTTI_ULC_H

#include <tutti/error.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Memory registered with the network: peers of channels opened with it write there. */
struct tutti_region;
/* A connected pair of endpoints; this is one end. */
struct tutti_channel;
/* Where the notifications of many channels arrive. */
struct tutti_cq;

enum tutti_event_kind {
	TUTTI_EVENT_NOTIFY = 1, /* the peer called tutti_notify or tutti_write_notify */
	TUTTI_EVENT_CLOSED = 2, /* the peer closed the channel or died; the last event */
};

struct tutti_event {
	enum tutti_event_kind kind;
	struct tutti_channel *channel;
	uint64_t imm; /* of the notification */
};

/*
 * Creates a region of bytes (1 to 1 GiB, rounded up to whole pages), zeroed.
 * The caller owns it and destroys it after the channels that use it are closed.
 * -EINVAL, -ENOMEM, -EMFILE. Does not block.
 */
int tutti_region_create(size_t bytes, struct tutti_region **ret_region);
void tutti_region_destroy(struct tutti_region *region); /* NULL allowed */
void *tutti_region_address(const struct tutti_region *region);
size_t tutti_region_bytes(const struct tutti_region *region);

/* -ENOMEM, -EMFILE. Does not block. Destroy it after the channels that use it. */
int tutti_cq_create(struct tutti_cq **ret_cq);
void tutti_cq_destroy(struct tutti_cq *cq); /* NULL allowed */

/*
 * Takes up to max events, the oldest of each channel first. Returns their
 * number, 0 when there is none. Never blocks, no system call. That a peer died
 * without closing is seen by tutti_cq_wait and tutti_cq_arm, not here.
 */
int tutti_cq_poll(struct tutti_cq *cq, struct tutti_event *ret_events, int max);

/*
 * As tutti_cq_poll, but waits until there is an event: spins for a while (see
 * tutti_cq_set_spin), then sleeps in the kernel. timeout_ns < 0: for ever.
 * Returns the number of events, 0 at the timeout, -EINTR after a signal.
 */
int tutti_cq_wait(struct tutti_cq *cq, struct tutti_event *ret_events, int max, int64_t timeout_ns);

/* How long tutti_cq_wait spins before it sleeps; 20,000 ns unless set. 0: not at all. */
void tutti_cq_set_spin(struct tutti_cq *cq, int64_t spin_ns);

/*
 * For programs with an event loop of their own: after tutti_cq_arm returned 0,
 * the descriptor becomes readable when there is an event; a return of 1 says
 * that there is one already. Poll the queue, then arm it again. The descriptor
 * belongs to the queue.
 */
int tutti_cq_fd(const struct tutti_cq *cq);
int tutti_cq_arm(struct tutti_cq *cq);

/*
 * Opens a channel with whoever is at the other end of sock, a connected
 * AF_UNIX socket (stream or seqpacket), and calls this too. The peer will
 * write into region (NULL: it may only notify), its notifications arrive at
 * cq. Blocks until the peer has answered, at most ten seconds (-ETIMEDOUT).
 * sock is used for the exchange of descriptors, and kept (duplicated) to learn
 * of the peer's end; the caller may close its own descriptor afterwards.
 * -EPROTO when the peer speaks something else; -ECONNRESET.
 * Only peers of the same user, or root, are accepted (-EPERM).
 */
int tutti_channel_open(int sock, struct tutti_region *region, struct tutti_cq *cq,
		       struct tutti_channel **ret_channel);
/* The peer gets TUTTI_EVENT_CLOSED after what was sent before. NULL allowed. */
void tutti_channel_close(struct tutti_channel *channel);

/* For the caller's use: comes back with every event's channel. */
void tutti_channel_set_user(struct tutti_channel *channel, void *user);
void *tutti_channel_user(const struct tutti_channel *channel);

/* Bytes of the peer's region. */
size_t tutti_channel_peer_bytes(const struct tutti_channel *channel);

/*
 * Writes bytes into the peer's region at offset. The peer sees them at the
 * latest with the next notification of this channel. -ERANGE. Never blocks.
 */
int tutti_write(struct tutti_channel *channel, size_t offset, const void *buf, size_t bytes);

/*
 * Notifies the peer: an event with imm arrives at its queue, and wakes it when
 * it sleeps. -EAGAIN: 64 notifications are on the way, the peer has to take
 * some first. Never blocks; a system call only when the peer sleeps.
 */
int tutti_notify(struct tutti_channel *channel, uint64_t imm);

/* Both. Nothing is written when the answer is -EAGAIN. */
int tutti_write_notify(struct tutti_channel *channel, size_t offset, const void *buf, size_t bytes,
		       uint64_t imm);

/*
 * The place in the peer's region itself, to be written in place and then
 * notified; NULL when out of range, or where the transport has none.
 */
void *tutti_channel_place(struct tutti_channel *channel, size_t offset, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
