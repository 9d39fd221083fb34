/* SPDX-License-Identifier: MIT */
#include "ulc/link.h"

#include "base/shm.h"
#include "base/sys.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096u

struct layout {
	size_t waiters[2], windows[2], chunks, total;
};

static size_t page_up(size_t n)
{
	return (n + PAGE - 1) & ~(size_t)(PAGE - 1);
}

static bool compute_layout(const struct tt_link_geometry *g, struct layout *ret)
{
	if (g->nslots < 1 || g->nslots > TT_LINK_MAX_SLOTS || g->nwaiters < 2 ||
	    g->nwaiters > TT_LINK_MAX_WAITERS || g->nchunks > TT_LINK_MAX_CHUNKS)
		return false;
	if (g->window_bytes < sizeof(struct tt_wait_line) || g->window_bytes % TT_CACHE_LINE ||
	    g->window_bytes > 1u << 30)
		return false;
	if (g->nchunks && (g->chunk_bytes < PAGE || g->chunk_bytes > 1u << 24 ||
			   (g->chunk_bytes & (g->chunk_bytes - 1))))
		return false;
	size_t at = page_up(sizeof(struct tt_link_header));

	for (int i = 0; i < 2; i++) {
		ret->waiters[i] = at;
		at = page_up(at + (size_t)g->nwaiters * sizeof(struct tt_waiter));
	}
	for (int i = 0; i < 2; i++) {
		ret->windows[i] = at;
		at = page_up(at + (size_t)g->nslots * g->window_bytes);
	}
	ret->chunks = at;
	ret->total = at + (size_t)g->nchunks * g->chunk_bytes;
	return true;
}

size_t tt_link_bytes(const struct tt_link_geometry *g)
{
	struct layout l;

	return compute_layout(g, &l) ? l.total : 0;
}

int tt_link_create(const struct tt_link_geometry *g)
{
	size_t bytes = tt_link_bytes(g);
	void *base;

	if (!bytes)
		return -EINVAL;
	int fd = tt_shm_create("tutti-link", bytes);

	if (fd < 0)
		return fd;
	int err = tt_shm_map(fd, bytes, &base, &bytes);

	if (err < 0) {
		tt_sys.close(fd);
		return err;
	}
	struct tt_link_header *h = base;

	h->geometry = *g;
	h->version = TT_LINK_VERSION;
	for (uint32_t c = 0; c < g->nchunks; c++)
		h->free_chunks[c / 64] |= 1ull << (c % 64);
	tt_store_release(&h->magic, TT_LINK_MAGIC);
	tt_shm_unmap(base, bytes);
	return fd;
}

int tt_link_map(int fd, int side, struct tt_link **ret_link)
{
	void *base;
	size_t bytes;
	struct layout at;
	int err = tt_shm_map(fd, sizeof(struct tt_link_header), &base, &bytes);

	if (err < 0)
		return err;
	struct tt_link *l = calloc(1, sizeof(*l));

	if (!l) {
		tt_shm_unmap(base, bytes);
		return -ENOMEM;
	}
	l->hdr = base;
	l->bytes = bytes;
	l->side = side;
	/* Copy, check, use the copy: the peer may rewrite the header at any time. */
	memcpy(&l->g, &l->hdr->geometry, sizeof(l->g));
	tt_compiler_barrier();
	if (tt_load_acquire(&l->hdr->magic) != TT_LINK_MAGIC ||
	    l->hdr->version != TT_LINK_VERSION || !compute_layout(&l->g, &at) || at.total > bytes) {
		tt_link_unmap(l);
		return -EPROTO;
	}
	unsigned char *b = base;

	l->my_waiters = (void *)(b + at.waiters[side]);
	l->peer_waiters = (void *)(b + at.waiters[!side]);
	l->my_windows = b + at.windows[side];
	l->peer_windows = b + at.windows[!side];
	l->chunks = b + at.chunks;
	*ret_link = l;
	return 0;
}

void tt_link_unmap(struct tt_link *l)
{
	if (!l)
		return;
	tt_shm_unmap(l->hdr, l->bytes);
	free(l);
}

static int waiter_take(struct tt_link *l, bool also_dead)
{
	int32_t me = getpid();

	for (uint32_t i = 1; i < l->g.nwaiters; i++) {
		int32_t owner = tt_load_relaxed(&l->my_waiters[i].owner);

		if (owner && (!also_dead || owner < 0 || kill(owner, 0) == 0 || errno != ESRCH))
			continue;
		if (tt_cas(&l->my_waiters[i].owner, &owner, me))
			return (int)i;
	}
	return -EAGAIN;
}

int tt_link_waiter_get(struct tt_link *l)
{
	int idx = waiter_take(l, false);

	return idx < 0 ? waiter_take(l, true) : idx;
}

void tt_link_waiter_put(struct tt_link *l, uint32_t idx)
{
	if (idx == 0 || idx >= l->g.nwaiters)
		return;
	tt_store_relaxed(&l->my_waiters[idx].armed, 0u);
	tt_store_release(&l->my_waiters[idx].owner, 0);
}

int tt_link_chunk_get(struct tt_link *l)
{
	for (uint32_t w = 0; w * 64 < l->g.nchunks; w++) {
		uint64_t bits = tt_load_relaxed(&l->hdr->free_chunks[w]);

		while (bits) {
			uint32_t c = (uint32_t)__builtin_ctzll(bits);

			/* A hostile peer may set bits that stand for no chunk. */
			if (w * 64 + c >= l->g.nchunks)
				break;
			if (tt_cas(&l->hdr->free_chunks[w], &bits, bits & ~(1ull << c)))
				return (int)(w * 64 + c);
		}
	}
	return -EAGAIN;
}

void tt_link_chunk_put(struct tt_link *l, uint32_t chunk, size_t touched)
{
	if (chunk >= l->g.nchunks)
		return;
	size_t keep = chunk < TT_LINK_KEEP_HEADS ? TT_LINK_HEAD_BYTES : 0;

	if (chunk >= TT_LINK_KEEP_CHUNKS && touched > keep && l->g.chunk_bytes > keep)
		madvise((unsigned char *)tt_link_chunk(l, chunk) + keep, l->g.chunk_bytes - keep,
			MADV_REMOVE);
	tt_fetch_or(&l->hdr->free_chunks[chunk / 64], 1ull << (chunk % 64));
}
