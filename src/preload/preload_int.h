/* SPDX-License-Identifier: MIT */
/* What the wrappers share. */
#ifndef TT_PRELOAD_INT_H
#define TT_PRELOAD_INT_H

#include "base/sys.h"
#include "base/usermem.h"
#include "sock/sock.h"

#include <errno.h>

#define EXPORT __attribute__((visibility("default")))

extern bool tt_preload_ready;
void tt_preload_init(void);
/* Standard streams that are connections become streams of ours. */
void tt_preload_adopt_stdio(void);
/* Remembers what exec.c puts back into cleared environments. */
void tt_preload_keep_environment(void);
/* memory.c */
void tt_preload_find_memory(void);
/* vfork.S: notes it; returns libc's. */
pid_t (*tt_preload_vfork(void))(void);
/* syscall() of a number that forks. */
long tt_preload_raw_fork(long number, const long a[6]);
/* Whether io_uring is answered with ENOSYS (uring.c). */
bool tt_preload_refuses_rings(void);
/* Writes the next definition of name to the function pointer at ret_fn. */
void tt_next(const char *name, void *ret_fn);

/* Constructors of other libraries may call us before ours has run. */
static inline void enter(void)
{
	if (__builtin_expect(!tt_preload_ready, 0))
		tt_preload_init();
}

/*
 * What the kernel refuses by its number alone, before it waits for data or room.
 * Other bad pointers matter when something is to be copied: base/usermem.h.
 */
static inline bool bad_address(const void *p, size_t n)
{
	uintptr_t end = (uintptr_t)p + (n < INT32_MAX ? n : INT32_MAX);

	return (intptr_t)p < 0 || (intptr_t)end < 0;
}

/* The edge where negative errnos become -1 and errno. */
static inline ssize_t finish(ssize_t r)
{
	if (r >= 0)
		return r;
	errno = (int)-r;
	return -1;
}

/* The same for calls that may meet errors on their way to success. */
#define FINISH(call)                                                                               \
	({                                                                                         \
		int saved_ = errno;                                                                \
		ssize_t got_ = (call);                                                             \
		if (got_ >= 0)                                                                     \
			errno = saved_;                                                            \
		finish(got_);                                                                      \
	})

/*
 * Whether this call on c goes to the kernel as it is; then `raw` says whether
 * it was counted, and raw_done() must follow.
 */
static inline bool raw_call(struct tt_conn *c, int fd, size_t more, bool *ret_raw)
{
	uint32_t mode = tt_load_acquire(&c->mode);

	*ret_raw = false;
	if (mode == TT_CONN_ATTACHED || mode == TT_CONN_CLAIMED)
		return false;
	if (mode == TT_CONN_PLAIN) {
		if (tt_conn_progress(c, fd, more))
			return tt_load_acquire(&c->mode) == TT_CONN_FALLBACK;
		if (!tt_conn_raw_begin(c))
			return false;
		*ret_raw = true;
	}
	return true;
}

static inline void raw_done(struct tt_conn *c, int fd, bool raw, ssize_t n, bool sent)
{
	if (!raw)
		return;
	int err = errno;

	if (n > 0) {
		tt_conn_count_raw(c, (size_t)n, sent);
		tt_count(sent ? &tt_proc.mem->totals.shadow_tx_bytes
			      : &tt_proc.mem->totals.shadow_rx_bytes,
			 (uint64_t)n);
	}
	tt_conn_raw_end(c);
	/* Now, not at the next call: the peer may be waiting for us to come over. */
	if (n > 0)
		tt_conn_progress(c, fd, 0);
	errno = err;
}

#endif
