/* SPDX-License-Identifier: MIT */
#include "sock/guard.h"

#include "base/sys.h"

#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define KERNEL_MASK_BYTES 8 /* of a sigset_t, what the kernel knows */

_Thread_local struct tt_guard tt_guard;

void tt_guard_release(void)
{
	sigset_t mask = tt_guard.mask;

	tt_guard.deferred = false;
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
}

bool tt_guard_defer(int sig, siginfo_t *info, void *ucontext)
{
	static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
	ucontext_t *uc = ucontext;
	int err = errno;
	sigset_t all;

	if (tt_guard.depth == 0)
		return false;
	if (tt_sys.syscall(SYS_rt_tgsigqueueinfo, getpid(), tt_sys.syscall(SYS_gettid), sig, info) <
	    0) {
		errno = err;
		return false;
	}
	if (!tt_guard.deferred) {
		sigemptyset(&tt_guard.mask);
		memcpy(&tt_guard.mask, &uc->uc_sigmask, KERNEL_MASK_BYTES);
		tt_guard.deferred = true;
	}
	/* What the interrupted code goes on with. */
	sigfillset(&all);
	for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
		sigdelset(&all, faults[i]);
	memcpy(&uc->uc_sigmask, &all, KERNEL_MASK_BYTES);
	errno = err;
	return true;
}

void tt_guard_fork_child(void)
{
	tt_guard.depth = 0;
	if (tt_guard.deferred)
		tt_guard_release();
}
