/* SPDX-License-Identifier: MIT */
/*
 * Doorbells. A sleeper has a bell, an eventfd; its number, unique within its
 * side, stands in shared memory where the peer finds it. The peer needs the
 * descriptor: it asks for it once (bell_fetch), keeps it in a cache, and rings
 * by one write(2).
 */
#ifndef TT_ULC_BELL_H
#define TT_ULC_BELL_H

#include <stdint.h>

struct tt_bell {
	int fd;	     /* eventfd, non-blocking, close-on-exec, high; -1: none */
	uint32_t id; /* never 0 */
};

/* Opens a bell with a number that the caller made unique within its side. */
int tt_bell_open(struct tt_bell *b, uint32_t owner, uint32_t id);
void tt_bell_close(struct tt_bell *b);
/* Takes back rings that were heard. Never blocks. */
void tt_bell_reset(const struct tt_bell *b);

/*
 * Rings bell id of side owner. From the cache or, the first time, by asking
 * the fetch function (which may block for as long as it likes to bound it).
 * 0, or -ENOENT when nobody knows the bell: the caller must wake the sleeper
 * by other means. Thread safe; not signal safe for the first ring of a bell.
 */
int tt_bell_ring(uint32_t owner, uint32_t id);

/* Enters a descriptor by hand (takes it over). */
int tt_bell_learn(uint32_t owner, uint32_t id, int fd);

/* Returns a descriptor of bell id of side owner, or a negative errno. */
typedef int (*tt_bell_fetch_fn)(uint32_t owner, uint32_t id);
void tt_bell_set_fetch(tt_bell_fetch_fn fn);

/* Forgets what was fetched of this side. */
void tt_bell_forget(uint32_t owner);

/* Calls fn for every bell that this process has open. */
void tt_bell_each_own(void (*fn)(void *arg, uint32_t owner, uint32_t id, int fd), void *arg);

/* In the child of fork: own bells are no longer its own; the cache stays. */
void tt_bell_forget_own(void);

#endif
