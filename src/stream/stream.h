/* SPDX-License-Identifier: MIT */
/*
 * An ordered byte stream in each direction of a channel.
 *
 * Positions count bytes of one direction from its first byte on the channel,
 * in 64 bits, and never wrap. What the sender publishes ("tail") and what the
 * receiver has consumed ("head") are the only words that move per message, on
 * cache lines of their own; each end keeps a copy of the other's word and
 * reads the shared one only when the copy no longer suffices.
 *
 * Storage. A direction has a small ring inside the receiver's window, and may
 * borrow a chunk of the link when more is needed. The sender names the storage
 * for positions from sw_pos on (sw_pos and sw_store of the switch's parity,
 * then sw_seq, all before the tail that needs them); positions before stay
 * where they were. In either storage byte p lies at (p - base) & (size - 1),
 * base being the sw_pos from which the storage was in use.
 *
 * At most two switches are ahead of the receiver: the way out of a chunk opens
 * only when the receiver has taken it away (below), so has followed so far;
 * then may come the small ring, and from there one more chunk.
 *
 * A chunk is leased, not owned: `lease` is 0 or (chunk + 1) << 1, with bit 0
 * set while the sender writes. A receiver that has read everything and will
 * sleep takes the lease away (compare and swap from "not writing" to 0) and
 * returns the chunk; the sender, finding 0, picks storage anew at its tail. If
 * bytes arrived just before the swap, they stay in that chunk and the receiver
 * returns it when it has read them (`orphan`).
 *
 *          sender's end of a direction, in the receiver's window
 *    TCP ----UP at up_pos----> RING ----DOWN at the tail----> TCP (for good)
 *
 * up_pos counts bytes on the shadow (the TCP connection behind): before it the
 * bytes came by TCP. After DOWN they come by TCP again. What travels on the
 * shadow between are kicks, bytes without meaning that wake a sleeper; `kicks`
 * counts them, and the receiver drops as many.
 *
 * Every word in a window is the peer's to scribble on. A value that cannot be
 * makes the stream fail with -EPROTO, which ends this connection.
 *
 * No call blocks. The caller serialises senders and, separately, receivers.
 */
#ifndef TT_STREAM_STREAM_H
#define TT_STREAM_STREAM_H

#include "ulc/link.h"

#include <sys/types.h>
#include <sys/uio.h>

#define TT_STREAM_SMALL 2048u

enum {
	TT_STREAM_UP = 1,    /* bytes from up_pos of the shadow on are in the ring */
	TT_STREAM_FIN = 2,   /* the sender shut down: nothing follows the tail */
	TT_STREAM_DOWN = 4,  /* bytes after the tail are on the shadow again */
	TT_STREAM_HINT = 8,  /* the sender's process closed or ended: ask the shadow */
	TT_STREAM_HALF = 16, /* as FIN, but the shadow was not shut down with it */
	TT_STREAM_ENDED = TT_STREAM_FIN | TT_STREAM_HALF,
	TT_STREAM_RCVBUF = 32, /* of the one who reads the other direction: see rcvbuf */
	TT_STREAM_TIGHT = 64,  /* the sender keeps below a limit: all room that is made matters */
	TT_STREAM_LEAVE = 128, /* of the one who reads the other direction: send by TCP, please */
	TT_STREAM_AGAIN = 256, /* with DOWN: what was unread comes again by TCP */
	TT_STREAM_STAYS = 512, /* the sender will not, or cannot, go back to TCP */
};

/* A window of a channel that carries streams. Written by the peer, all but line 3. */
struct tt_stream_window {
	struct tt_wait_line wait;

	/* line 1: peer as sender, per message */
	_Alignas(TT_CACHE_LINE) uint64_t tail;
	uint32_t flags; /* TT_STREAM_*; set by atomic OR */
	uint32_t kicks;
	uint64_t sw_pos[2];
	uint32_t sw_store[2]; /* 0 small ring, else chunk + 1 */
	uint32_t sw_seq;
	uint32_t reserved1;
	uint64_t up_pos;

	/* line 2: peer as receiver of the other direction */
	_Alignas(TT_CACHE_LINE) uint64_t head;
	uint32_t rcvbuf; /* the most that it wants to lie unread; with TT_STREAM_RCVBUF */
	uint32_t reserved2[13];

	/* line 3: the lease both write */
	_Alignas(TT_CACHE_LINE) uint32_t lease;
	uint32_t orphan; /* written by the receiver: chunk + 1 that it took away and still reads */
	uint32_t reserved3[14];

	_Alignas(TT_CACHE_LINE) unsigned char small[TT_STREAM_SMALL];
};
_Static_assert(sizeof(struct tt_stream_window) == 4 * 64 + TT_STREAM_SMALL, "two sides share it");

/* State of a sending end; in memory of its own side only, under its send lock. */
struct tt_stream_tx {
	uint64_t tail;
	uint64_t head_seen;
	uint64_t base;	/* storage in use since */
	uint32_t store; /* 0 small ring, else chunk + 1 */
	uint32_t seq;
	uint32_t writing;  /* we hold bit 0 of the lease */
	uint32_t pressure; /* the small ring did not suffice lately */
};

/* State of a receiving end; under its receive lock. */
struct tt_stream_rx {
	uint64_t head;
	uint64_t tail_seen;
	uint64_t base;
	uint64_t next_pos[2]; /* switches of storage read, not reached; UINT64_MAX: none */
	uint32_t next_store[2];
	uint64_t todo_pos; /* the switch being made; UINT64_MAX: none */
	uint32_t todo_store;
	uint32_t store;
	uint32_t given;	 /* store was taken away from the sender */
	uint32_t seq;	 /* of the last switch read */
	uint32_t orphan; /* chunk + 1 to be returned when head reaches the next switch */
	uint64_t orphan_end;
};

/* The channel's two windows; process-local, cheap to build. */
struct tt_stream {
	struct tt_link *link;
	uint32_t slot;
	struct tt_stream_window *rx; /* ours: the peer writes, we read */
	struct tt_stream_window *tx; /* the peer's: we write */
};

void tt_stream_bind(struct tt_stream *s, struct tt_link *l, uint32_t slot);
void tt_stream_tx_init(struct tt_stream_tx *t);
void tt_stream_rx_init(struct tt_stream_rx *r);

/* The geometry of links that carry streams. */
struct tt_link_geometry tt_stream_geometry(void);

/*
 * Puts bytes from iov, skipping the first skip bytes of it, as many as there
 * is room for, and publishes them; *ret_bytes says how many. The caller
 * notifies. -EAGAIN when there is no room at all, -EPROTO; -EFAULT when what
 * is to go first cannot be read.
 */
int tt_stream_send(struct tt_stream *s, struct tt_stream_tx *t, const struct iovec *iov, int iovcnt,
		   size_t skip, size_t *ret_bytes);

/* One flat buffer: the fast case of the above. */
int tt_stream_send1(struct tt_stream *s, struct tt_stream_tx *t, const void *buf, size_t bytes,
		    size_t *ret_bytes);

/*
 * A place for up to want bytes, to be filled and then committed (or not: 0).
 * Where the ring wraps it has two parts; the second may be empty.
 */
int tt_stream_reserve(struct tt_stream *s, struct tt_stream_tx *t, size_t want,
		      struct iovec ret_place[2], size_t *ret_bytes);
void tt_stream_commit(struct tt_stream *s, struct tt_stream_tx *t, size_t bytes);

/* Bytes published and not yet consumed. Reads the peer's word. */
int tt_stream_unread(struct tt_stream *s, struct tt_stream_tx *t, uint64_t *ret_bytes);

/*
 * Copies out what the receiver has not consumed, which must not move meanwhile.
 * -EMSGSIZE when it is more than room, or lies in storage that was left.
 */
int tt_stream_copy_unread(struct tt_stream *s, struct tt_stream_tx *t, char *buf, size_t room,
			  size_t *ret_bytes);

/* Whether a sender that would block may expect progress: half the storage is free. */
bool tt_stream_writable(struct tt_stream *s, struct tt_stream_tx *t);

/* After the death of a process inside a call on t, under the lock it left: makes t sound. */
void tt_stream_tx_recover(struct tt_stream *s, struct tt_stream_tx *t);

/* The same for a receiver; the caller then notifies of room. */
void tt_stream_rx_recover(struct tt_stream *s, struct tt_stream_rx *r);

/*
 * Copies up to the iov's room; consumes unless peek. *ret_bytes, at least 1;
 * -EAGAIN when nothing is there; -EPROTO; -EFAULT when the place for what is
 * first cannot be written. *ret_room says that a sender may wait for the room made: the
 * caller then notifies.
 */
int tt_stream_recv(struct tt_stream *s, struct tt_stream_rx *r, const struct iovec *iov, int iovcnt,
		   bool peek, size_t *ret_bytes, bool *ret_room);
int tt_stream_recv1(struct tt_stream *s, struct tt_stream_rx *r, void *buf, size_t bytes, bool peek,
		    size_t *ret_bytes, bool *ret_room);

/* Bytes that wait to be read; -EPROTO. */
int tt_stream_pending(struct tt_stream *s, struct tt_stream_rx *r, uint64_t *ret_bytes);

/* A look without lock or state, for spinning: something is there for this head. */
static inline bool tt_stream_peek(const struct tt_stream *s, uint64_t head)
{
	return tt_load_acquire(&s->rx->tail) != head;
}

/* The receiver is going to sleep: gives back what an empty stream holds. */
void tt_stream_idle(struct tt_stream *s, struct tt_stream_rx *r);

/* The end of the channel: gives back every chunk that its two directions hold. */
void tt_stream_reset(struct tt_link *l, uint32_t slot);

#endif
