/* SPDX-License-Identifier: MIT */
/*
 * Notification over a channel, and the lost-wake-up problem.
 *
 * A sender publishes (a release store into the peer's window), then must learn
 * whether the peer sleeps. A receiver announces that it will sleep, then must
 * look once more. Each side stores, then loads what the other stored: without
 * a full barrier between, both can miss each other. The pairs:
 *
 *   W0  sender, cold:   publish;  tt_fence();               load rx_flags
 *   W1  receiver:       store rx_flags/bell; tt_fence();    load what is published
 *
 *   W0' sender, hot:    publish;  (no fence)                load rx_flags == HOT
 *   W1' receiver:       store rx_flags = 0;  membarrier();  then as W1
 *
 * A receiver that spins says HOT: it promises to run a global expedited
 * membarrier before it can sleep, which puts a full barrier into the running
 * sender, between its publish and its load, wherever it is. So the fast path
 * has no fence, and the receiver pays when it stops spinning. A sender that is
 * not registered for membarrier (it is hostile, or its kernel is too old) may
 * not trust HOT and fences always.
 *
 * With a completion queue the sender sets the channel's bit by an atomic OR,
 * which is a full barrier, and then looks whether the queue is armed:
 *
 *   W2  sender:   publish; atomic OR of the bit;  load armed
 *   W3  receiver: store armed = 1; tt_fence();    load the bits
 */
#ifndef TT_ULC_CHAN_H
#define TT_ULC_CHAN_H

#include "ulc/link.h"

enum tt_event { TT_EVENT_DATA, TT_EVENT_ROOM };

/* Set once by tt_membarrier_init() in every process that publishes. */
extern bool tt_membarrier_ok;

/* Registers this process; a child of fork stays registered. */
void tt_membarrier_init(void);
/* W1': returns true when the barrier was run (else HOT must not be used). */
bool tt_membarrier_global(void);

/*
 * Tells the peer that data was published in slot, or room was made. Returns how
 * many bells were rung, or -ENOENT when a sleeper may be left that only the
 * caller can wake.
 */
int tt_chan_notify_slow(struct tt_link *l, uint32_t slot, struct tt_wait_line *peer,
			enum tt_event what);

/* peer: the wait line in our window, which the peer writes. */
static inline int tt_chan_notify_data(struct tt_link *l, uint32_t slot, struct tt_wait_line *peer)
{
	if (tt_load_relaxed(&peer->rx_flags) == TT_WAIT_HOT && tt_membarrier_ok)
		return 0; /* W0' */
	return tt_chan_notify_slow(l, slot, peer, TT_EVENT_DATA);
}

static inline int tt_chan_notify_room(struct tt_link *l, uint32_t slot, struct tt_wait_line *peer)
{
	return tt_chan_notify_slow(l, slot, peer, TT_EVENT_ROOM);
}

#endif
