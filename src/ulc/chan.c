/* SPDX-License-Identifier: MIT */
#include "ulc/chan.h"

#include "base/sys.h"
#include "ulc/bell.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>

bool tt_membarrier_ok;

void tt_membarrier_init(void)
{
	tt_membarrier_ok =
		tt_sys.syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

bool tt_membarrier_global(void)
{
	return tt_membarrier_ok &&
	       tt_sys.syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0;
}

static int notify_cq(struct tt_link *l, uint32_t slot, uint32_t idx)
{
	if (idx == 0 || idx >= l->g.nwaiters)
		return 0;
	struct tt_waiter *w = &l->peer_waiters[idx];
	uint64_t bit = 1ull << (slot % 64);

	tt_fetch_or(&w->bits[slot / 64], bit); /* W2, against W3 in cq.c */
	if (!tt_load_relaxed(&w->armed) || !tt_exchange(&w->armed, 0))
		return 0;
	return tt_bell_ring(l->peer_id, tt_load_relaxed(&w->bell)) < 0 ? -ENOENT : 1;
}

int tt_chan_notify_slow(struct tt_link *l, uint32_t slot, struct tt_wait_line *peer,
			enum tt_event what)
{
	uint32_t *flags_word = what == TT_EVENT_DATA ? &peer->rx_flags : &peer->tx_flags;
	uint32_t *bells = what == TT_EVENT_DATA ? peer->rx_bell : peer->tx_bell;
	int rung = 0;
	bool missed = false;

	tt_fence(); /* W0, against W1 where a waiter arms */
	uint32_t flags = tt_load_relaxed(flags_word);

	if (flags & TT_WAIT_CQ)
		for (int i = 0; i < TT_WAIT_CQS; i++) {
			uint32_t idx = tt_load_relaxed(&peer->rx_cq[i]);

			int n = idx ? notify_cq(l, slot, idx) : 0;

			missed = missed || n < 0;
			rung += n > 0;
		}
	if (flags & TT_WAIT_BELL)
		for (int i = 0; i < TT_WAIT_BELLS; i++) {
			uint32_t id = tt_load_relaxed(&bells[i]);

			if (!id || !(id = tt_exchange(&bells[i], 0)))
				continue;
			if (tt_bell_ring(l->peer_id, id) < 0)
				missed = true;
			else
				rung++;
		}
	return missed || (flags & (TT_WAIT_OVERFLOW | TT_WAIT_KICK)) ? -ENOENT : rung;
}
