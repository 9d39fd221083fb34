/* SPDX-License-Identifier: MIT */
/*
 * A link: the memory that two sides share, transport `shm`.
 *
 * One segment (a sealed memfd) carries all channels between two sides; a
 * channel is a slot in it, so a new channel costs no descriptor and no mmap.
 * Every slot has two windows. A side's window is the region that its PEER
 * writes ("remote write") and that the side itself reads; a side never writes
 * its own window, except for the words that say so. Offsets, never pointers,
 * cross the border.
 *
 *   header | waiters of side 0 | waiters of side 1
 *          | windows of side 0 (nslots) | windows of side 1 | chunks
 *
 * Whatever lies in a link may be garbage: the peer maps it writable. Words are
 * read once with tt_load_*(), checked, and the copy is used. The geometry is
 * read and checked once, when the segment is mapped; the file is sealed, so it
 * cannot shrink under a reader. What a peer can reach by writing is the
 * channels of this link and no other memory.
 *
 * Chunks are larger buffers that channels borrow while they need them: who
 * idles holds none, so memory follows the traffic, not the number of channels.
 */
#ifndef TT_ULC_LINK_H
#define TT_ULC_LINK_H

#include "base/atomic.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TT_LINK_MAGIC 0x6b6e696c74747574ull /* "tuttlink" */
#define TT_LINK_VERSION 1u

#define TT_LINK_MAX_SLOTS 512u
#define TT_LINK_MAX_WAITERS 1024u
#define TT_LINK_MAX_CHUNKS 256u
/*
 * What free chunks keep of their pages, by index (the lowest is taken first):
 * the first few all, some more their head, so that many short bursts need no
 * system call; the rest goes back.
 */
#define TT_LINK_KEEP_CHUNKS 2u
#define TT_LINK_KEEP_HEADS 24u
#define TT_LINK_HEAD_BYTES (128u << 10)

struct tt_link_geometry {
	uint32_t nslots;       /* at most TT_LINK_MAX_SLOTS */
	uint32_t window_bytes; /* of one window; a multiple of 64 */
	uint32_t nwaiters;     /* a side; index 0 stays unused */
	uint32_t nchunks;      /* at most TT_LINK_MAX_CHUNKS */
	uint32_t chunk_bytes;  /* a power of two, at least 4096; 0 without chunks */
};

/* Written by the creator before anyone else maps it; free_chunks by both sides. */
struct tt_link_header {
	uint64_t magic;
	uint32_t version;
	struct tt_link_geometry geometry;
	uint32_t reserved[8];
	_Alignas(TT_CACHE_LINE) uint64_t free_chunks[TT_LINK_MAX_CHUNKS / 64];
};

/*
 * Where one completion queue of a side hears from this link. The side arms it,
 * the peer sets the bits of slots where something happened and, when it was
 * armed, rings the bell.
 */
struct tt_waiter {
	/* Written by the side; the peer sets armed to 0 when it rings. */
	_Alignas(TT_CACHE_LINE) uint32_t armed;
	uint32_t bell; /* identifies the doorbell within the side */
	int32_t owner; /* process of the side that took it; 0: free */
	/* Set by the peer, cleared by the side. */
	_Alignas(TT_CACHE_LINE) uint64_t bits[TT_LINK_MAX_SLOTS / 64];
};
_Static_assert(sizeof(struct tt_waiter) == 128, "two sides share it");

/*
 * The first line of every window: how the PEER (who writes it) waits, read by
 * the window's side after it published data (rx_*) or freed room (tx_*).
 * The side takes a bell word out (exchange with 0) before it rings it.
 */
#define TT_WAIT_BELLS 2
#define TT_WAIT_CQS 4
struct tt_wait_line {
	_Alignas(TT_CACHE_LINE) uint32_t rx_flags; /* TT_WAIT_* */
	uint32_t rx_bell[TT_WAIT_BELLS];	   /* sleepers; 0: none */
	uint16_t rx_cq[TT_WAIT_CQS];		   /* waiters of the peer; 0: none */
	uint32_t tx_flags;
	uint32_t tx_bell[TT_WAIT_BELLS];
	uint32_t attached; /* the peer has mapped this slot and waits on it */
	uint32_t reserved[4];
};
_Static_assert(sizeof(struct tt_wait_line) == 64, "two sides share it");

enum {
	TT_WAIT_HOT = 1,      /* spins: no fence, no bell needed (see chan.h) */
	TT_WAIT_BELL = 2,     /* look at the bells */
	TT_WAIT_CQ = 4,	      /* look at rx_cq */
	TT_WAIT_KICK = 16,    /* wake by other means, always */
	TT_WAIT_OVERFLOW = 8, /* more sleepers than bells: wake them by other means */
};

/* A mapped link; process-local. */
struct tt_link {
	struct tt_link_header *hdr;
	size_t bytes;
	struct tt_link_geometry g; /* the checked copy */
	uint32_t id;		   /* of the connection manager; 0: none */
	uint32_t peer_id;	   /* the peer side's identity: bells belong to it */
	int side;		   /* 0 or 1 */
	struct tt_waiter *my_waiters, *peer_waiters;
	unsigned char *my_windows, *peer_windows;
	unsigned char *chunks;
	uint32_t refs; /* of the owner's counting */
};

/* Bytes of a segment of this geometry; 0 when the geometry is not allowed. */
size_t tt_link_bytes(const struct tt_link_geometry *g);

/* Creates a segment; returns its descriptor (close-on-exec) or a negative errno. */
int tt_link_create(const struct tt_link_geometry *g);

/*
 * Maps fd as side 0 or 1. -EPROTO when it is not a link of this version or its
 * geometry does not fit the file. fd stays the caller's.
 */
int tt_link_map(int fd, int side, struct tt_link **ret_link);
void tt_link_unmap(struct tt_link *l); /* NULL allowed */

/* The window that the peer writes and we read. */
static inline void *tt_link_rx_window(const struct tt_link *l, uint32_t slot)
{
	return l->my_windows + (size_t)slot * l->g.window_bytes;
}

/* The peer's window, which we write. */
static inline void *tt_link_tx_window(const struct tt_link *l, uint32_t slot)
{
	return l->peer_windows + (size_t)slot * l->g.window_bytes;
}

static inline void *tt_link_chunk(const struct tt_link *l, uint32_t chunk)
{
	return l->chunks + (size_t)chunk * l->g.chunk_bytes;
}

/*
 * Takes a waiter of our side for this process; one whose owner is dead too.
 * Returns its index, or -EAGAIN.
 */
int tt_link_waiter_get(struct tt_link *l);
void tt_link_waiter_put(struct tt_link *l, uint32_t idx);

/* Takes the lowest free chunk. Returns its index or -EAGAIN. Lock-free. */
int tt_link_chunk_get(struct tt_link *l);
/*
 * Gives it back, of which the first touched bytes were in use; and pages, as
 * told above. Out of range: ignored.
 */
void tt_link_chunk_put(struct tt_link *l, uint32_t chunk, size_t touched);

#endif
