/* SPDX-License-Identifier: MIT */
/*
 * For tests: one direction of a channel with both of its ends. Byte p of the
 * stream is pattern[p mod PERIOD], so that what was sent need not be kept.
 */
#ifndef TT_STREAM_BENCH_TEST_H
#define TT_STREAM_BENCH_TEST_H

#include "stream/stream.h"
#include "ulc/link_test.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define TT_BENCH_PERIOD 65521u
#define TT_BENCH_MAX (1u << 20)

/* In shared memory, for tests that put an end into another process. */
struct tt_bench {
	struct tt_link *link, mirror;
	struct tt_stream out, in;
	struct tt_stream_tx tx;
	struct tt_stream_rx rx;
	uint64_t sent, received;
	struct tt_rng rng;
	int err; /* the first of a script */
};

static unsigned char tt_bench_pattern[TT_BENCH_PERIOD + TT_BENCH_MAX];

static inline const unsigned char *tt_bench_bytes(uint64_t pos)
{
	return tt_bench_pattern + pos % TT_BENCH_PERIOD;
}

static inline void tt_bench_fill_pattern(void)
{
	struct tt_rng rng = {1};

	for (size_t i = 0; i < sizeof(tt_bench_pattern); i++)
		tt_bench_pattern[i] = i < TT_BENCH_PERIOD ? (unsigned char)tt_rng_next(&rng)
							  : tt_bench_pattern[i - TT_BENCH_PERIOD];
}

static inline struct tt_link_geometry tt_bench_geometry(uint32_t nchunks, uint32_t chunk_bytes)
{
	return (struct tt_link_geometry){.nslots = 4,
					 .window_bytes = sizeof(struct tt_stream_window),
					 .nwaiters = 4,
					 .nchunks = nchunks,
					 .chunk_bytes = chunk_bytes};
}

/* The bench's link is given; NULL: out of memory. */
static inline struct tt_bench *tt_bench_on(struct tt_link *l, uint32_t slot, uint64_t seed)
{
	struct tt_bench *b =
		mmap(NULL, sizeof(*b), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (b == MAP_FAILED)
		return NULL;
	if (!tt_bench_pattern[1])
		tt_bench_fill_pattern();
	b->link = l;
	b->mirror = tt_link_mirror(l);
	tt_stream_bind(&b->out, l, slot);
	tt_stream_bind(&b->in, &b->mirror, slot);
	tt_stream_tx_init(&b->tx);
	tt_stream_rx_init(&b->rx);
	b->rng.s = seed;
	return b;
}

static inline struct tt_bench *tt_bench_make(uint32_t nchunks, uint32_t chunk_bytes, uint64_t seed)
{
	struct tt_link_geometry g = tt_bench_geometry(nchunks, chunk_bytes);
	struct tt_link *l;

	return tt_link_make(&g, &l) < 0 ? NULL : tt_bench_on(l, 1, seed);
}

static inline void tt_bench_destroy(struct tt_bench *b)
{
	tt_link_unmap(b->link);
	munmap(b, sizeof(*b));
}

/* Sends the next bytes of the pattern; their number or a negative errno. */
static inline ssize_t tt_bench_send(struct tt_bench *b, size_t want)
{
	size_t n = 0;
	int err = tt_stream_send1(&b->out, &b->tx, tt_bench_bytes(b->sent), want, &n);

	b->sent += n;
	return err < 0 ? err : (ssize_t)n;
}

/* The first n bytes of what tt_stream_reserve() gave. */
static inline void tt_bench_fill(const struct iovec place[2], const unsigned char *bytes, size_t n)
{
	size_t first = n < place[0].iov_len ? n : place[0].iov_len;

	memcpy(place[0].iov_base, bytes, first);
	memcpy(place[1].iov_base, bytes + first, n - first);
}

/* Receives and compares; -EBADMSG when other bytes came than were sent. */
static inline ssize_t tt_bench_recv(struct tt_bench *b, void *buf, size_t want, bool *ret_room)
{
	size_t n = 0;
	int err = tt_stream_recv1(&b->in, &b->rx, buf, want, false, &n, ret_room);

	if (err < 0)
		return err;
	if (n > want || memcmp(buf, tt_bench_bytes(b->received), n) != 0)
		return -EBADMSG;
	b->received += n;
	return (ssize_t)n;
}

#endif
