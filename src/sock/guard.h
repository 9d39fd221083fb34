/* SPDX-License-Identifier: MIT */
/*
 * No handler of the program runs while this thread holds a lock of the
 * library's: it might jump away with it (siglongjmp), or call us again. A signal
 * that comes in between is put back into the kernel's queue, all are blocked,
 * and the last unlock lets them in.
 *
 * Every lock in sock is taken by these calls; they are as those of pthread, and
 * return its errors.
 */
#ifndef TT_SOCK_GUARD_H
#define TT_SOCK_GUARD_H

#include "base/atomic.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

struct tt_guard {
	uint32_t depth;		/* locks that this thread holds */
	volatile bool deferred; /* signals wait for the last to be given back */
	sigset_t mask;		/* to be restored then */
};
extern _Thread_local struct tt_guard tt_guard __attribute__((tls_model("initial-exec")));

void tt_guard_release(void);
/* In a handler's place: true when it has to wait; the signal comes again. */
bool tt_guard_defer(int sig, siginfo_t *info, void *ucontext);
/* The child of a fork holds nothing. */
void tt_guard_fork_child(void);

static inline void tt_guard_leave(void)
{
	tt_compiler_barrier();
	if (--tt_guard.depth == 0 && __builtin_expect(tt_guard.deferred, 0))
		tt_guard_release();
}

static inline int tt_lock(pthread_mutex_t *m)
{
	tt_guard.depth++;
	tt_compiler_barrier();
	int err = pthread_mutex_lock(m);

	if (err && err != EOWNERDEAD)
		tt_guard_leave();
	return err;
}

static inline int tt_trylock(pthread_mutex_t *m)
{
	tt_guard.depth++;
	tt_compiler_barrier();
	int err = pthread_mutex_trylock(m);

	if (err && err != EOWNERDEAD)
		tt_guard_leave();
	return err;
}

static inline void tt_unlock(pthread_mutex_t *m)
{
	pthread_mutex_unlock(m);
	tt_guard_leave();
}

#endif
