/* SPDX-License-Identifier: MIT */
#include "ulc/cq.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int tt_cq_init(struct tt_cq *cq, uint32_t owner, uint32_t bell_id)
{
	memset(cq, 0, sizeof(*cq));
	cq->owner = owner;
	return tt_bell_open(&cq->bell, owner, bell_id);
}

void tt_cq_fini(struct tt_cq *cq)
{
	for (uint32_t i = 0; i < cq->nlinks; i++)
		tt_link_waiter_put(cq->links[i].link, cq->links[i].waiter);
	tt_bell_close(&cq->bell);
	free(cq->links);
	cq->links = NULL;
	cq->nlinks = cq->room = 0;
}

static struct tt_cq_link *find(struct tt_cq *cq, const struct tt_link *l)
{
	for (uint32_t i = 0; i < cq->nlinks; i++)
		if (cq->links[i].link == l)
			return &cq->links[i];
	return NULL;
}

int tt_cq_attach(struct tt_cq *cq, struct tt_link *l)
{
	struct tt_cq_link *cl = find(cq, l);

	if (cl) {
		cl->channels++;
		return (int)cl->waiter;
	}
	if (cq->nlinks == cq->room) {
		uint32_t room = cq->room ? cq->room * 2 : 4;
		void *p = realloc(cq->links, room * sizeof(*cq->links));

		if (!p)
			return -ENOMEM;
		cq->links = p;
		cq->room = room;
	}
	int idx = tt_link_waiter_get(l);

	if (idx < 0)
		return idx;
	struct tt_waiter *w = &l->my_waiters[idx];

	memset(w->bits, 0, sizeof(w->bits));
	tt_store_relaxed(&w->bell, cq->bell.id);
	tt_store_release(&w->armed, cq->armed ? 1u : 0u);
	cq->links[cq->nlinks++] = (struct tt_cq_link){l, (uint32_t)idx, 1};
	return idx;
}

void tt_cq_detach(struct tt_cq *cq, struct tt_link *l)
{
	struct tt_cq_link *cl = find(cq, l);

	/* The waiter stays taken for the next channel of this link. */
	if (cl && cl->channels > 0)
		cl->channels--;
}

void tt_cq_forget(struct tt_cq *cq, struct tt_link *l, bool keep)
{
	struct tt_cq_link *cl = find(cq, l);

	if (!cl)
		return;
	if (!keep)
		tt_link_waiter_put(l, cl->waiter);
	*cl = cq->links[--cq->nlinks];
	if (cq->hot > cq->nlinks)
		cq->hot = cq->nlinks;
}

static int poll_link(const struct tt_cq_link *cl, tt_cq_event_fn fn, void *arg)
{
	struct tt_link *l = cl->link;
	struct tt_waiter *w = &l->my_waiters[cl->waiter];
	int n = 0;

	for (uint32_t k = 0; k * 64 < l->g.nslots; k++) {
		uint64_t bits = tt_load_relaxed(&w->bits[k]);

		if (!bits)
			continue;
		/* Take first, look at the channels after: a bit set between is kept. */
		bits = tt_exchange(&w->bits[k], 0);
		while (bits) {
			uint32_t slot = k * 64 + (uint32_t)__builtin_ctzll(bits);

			bits &= bits - 1;
			if (slot >= l->g.nslots)
				break;
			fn(arg, l, slot);
			n++;
		}
	}
	return n;
}

/*
 * Many connections are spread over many links, and few of them are busy at a
 * time: those come first, and while they have events the others are looked at
 * every so often only.
 */
#define HOT_LINKS 4u
#define COLD_EVERY 16u

int tt_cq_poll(struct tt_cq *cq, bool all, tt_cq_event_fn fn, void *arg)
{
	uint32_t hot = cq->nlinks <= HOT_LINKS ? cq->nlinks : cq->hot;
	int n = 0;

	for (uint32_t i = 0; i < hot; i++)
		n += poll_link(&cq->links[i], fn, arg);
	if (!all && n && ++cq->skipped < COLD_EVERY)
		return n;
	cq->skipped = 0;
	for (uint32_t i = hot; i < cq->nlinks; i++) {
		struct tt_cq_link cl = cq->links[i];
		int found = poll_link(&cl, fn, arg);

		if (!found)
			continue;
		n += found;
		/* To the front; the one that has been there longest makes place. */
		memmove(&cq->links[1], &cq->links[0], i * sizeof(cl));
		cq->links[0] = cl;
		if (cq->hot < HOT_LINKS)
			cq->hot++;
	}
	return n;
}

bool tt_cq_pending(const struct tt_cq *cq)
{
	for (uint32_t i = 0; i < cq->nlinks; i++) {
		const struct tt_link *l = cq->links[i].link;
		const struct tt_waiter *w = &l->my_waiters[cq->links[i].waiter];

		for (uint32_t k = 0; k * 64 < l->g.nslots; k++)
			if (tt_load_relaxed(&w->bits[k]))
				return true;
	}
	return false;
}

void tt_cq_arm(struct tt_cq *cq)
{
	cq->armed = true;
	for (uint32_t i = 0; i < cq->nlinks; i++)
		tt_store_relaxed(&cq->links[i].link->my_waiters[cq->links[i].waiter].armed, 1u);
	tt_fence(); /* W3, against W2 in chan.c; the caller polls next */
}

void tt_cq_disarm(struct tt_cq *cq)
{
	cq->armed = false;
	for (uint32_t i = 0; i < cq->nlinks; i++)
		tt_store_relaxed(&cq->links[i].link->my_waiters[cq->links[i].waiter].armed, 0u);
}
