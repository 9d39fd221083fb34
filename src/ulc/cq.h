/* SPDX-License-Identifier: MIT */
/*
 * Completion queue: where events of many channels, on any number of links,
 * arrive. Cost of looking is in the number of links, not of channels.
 *
 * A queue belongs to one process and is used under its owner's lock: none of
 * these calls is thread safe by itself, except that peers set bits at any
 * time. Events say "look at this channel"; a spurious one is allowed, a missed
 * one is not.
 */
#ifndef TT_ULC_CQ_H
#define TT_ULC_CQ_H

#include "ulc/bell.h"
#include "ulc/link.h"

struct tt_cq_link {
	struct tt_link *link;
	uint32_t waiter;   /* ours in that link */
	uint32_t channels; /* attached through it */
};

struct tt_cq {
	struct tt_bell bell; /* rung by peers while armed */
	uint32_t owner;
	struct tt_cq_link *links;
	uint32_t nlinks, room;
	uint32_t hot;	  /* links that had events lately; they come first */
	uint32_t skipped; /* looks at these alone */
	bool armed;
};

/* Channel (l, slot) wants a look. */
typedef void (*tt_cq_event_fn)(void *arg, struct tt_link *l, uint32_t slot);

/* owner, bell_id: see bell.h. */
int tt_cq_init(struct tt_cq *cq, uint32_t owner, uint32_t bell_id);
void tt_cq_fini(struct tt_cq *cq);

/*
 * Makes events of a channel on l arrive here; returns the waiter index to be
 * put into the channel's wait line (by the caller), or a negative errno.
 */
int tt_cq_attach(struct tt_cq *cq, struct tt_link *l);
void tt_cq_detach(struct tt_cq *cq, struct tt_link *l);
/* l is going to be unmapped: lets go of it. keep: its waiter there is not ours to free. */
void tt_cq_forget(struct tt_cq *cq, struct tt_link *l, bool keep);

/*
 * Calls fn for channels with events since the last look; returns their number.
 * Events of links that had none lately may be left for one of the next looks,
 * but never when there are no others; with all set they are not.
 */
int tt_cq_poll(struct tt_cq *cq, bool all, tt_cq_event_fn fn, void *arg);

/* Whether a look would find something. */
bool tt_cq_pending(const struct tt_cq *cq);

/*
 * Announces a sleep on the bell's descriptor; the caller must poll once more
 * after it, and sleep only if that finds nothing.
 */
void tt_cq_arm(struct tt_cq *cq);
void tt_cq_disarm(struct tt_cq *cq);

#endif
