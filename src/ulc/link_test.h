/* SPDX-License-Identifier: MIT */
/* For tests: both ends of a link in one process, and repeatable chance. */
#ifndef TT_ULC_LINK_TEST_H
#define TT_ULC_LINK_TEST_H

#include "base/shm.h"
#include "ulc/link.h"

#include <unistd.h>

struct tt_rng {
	uint64_t s;
};

/* splitmix64 (Steele, Lea, Flood 2014). */
static inline uint64_t tt_rng_next(struct tt_rng *r)
{
	uint64_t z = r->s += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static inline uint32_t tt_rng_below(struct tt_rng *r, uint32_t n)
{
	return (uint32_t)((tt_rng_next(r) >> 32) * n >> 32);
}

/* 1 .. max, each power of two as likely: small and large sizes alike. */
static inline uint32_t tt_rng_size(struct tt_rng *r, uint32_t max)
{
	uint32_t bits = 32u - (uint32_t)__builtin_clz(max), top = 1u << tt_rng_below(r, bits + 1);

	return 1 + tt_rng_below(r, top < max ? top : max);
}

/*
 * The other end, at the same addresses: ThreadSanitizer knows memory by its
 * address and would see no order between two mappings of one file.
 */
static inline struct tt_link tt_link_mirror(const struct tt_link *l)
{
	struct tt_link m = *l;

	m.side = !l->side;
	m.my_waiters = l->peer_waiters;
	m.peer_waiters = l->my_waiters;
	m.my_windows = l->peer_windows;
	m.peer_windows = l->my_windows;
	return m;
}

static inline int tt_link_make(const struct tt_link_geometry *g, struct tt_link **ret_link)
{
	int fd = tt_link_create(g);

	if (fd < 0)
		return fd;
	int err = tt_link_map(fd, 0, ret_link);

	close(fd);
	return err;
}

static inline unsigned tt_link_free_chunks(const struct tt_link *l)
{
	unsigned n = 0;

	for (unsigned i = 0; i < TT_LINK_MAX_CHUNKS / 64; i++)
		n += (unsigned)__builtin_popcountll(tt_load_relaxed(&l->hdr->free_chunks[i]));
	return n;
}

#endif
