/* SPDX-License-Identifier: MIT */
/*
 * For tests: runs a call in a child, one instruction at a time, so that a test
 * can put something else between any two of them, or end the child there. What
 * the call works on must lie in shared memory.
 */
#ifndef TT_BASE_STEP_TEST_H
#define TT_BASE_STEP_TEST_H

#include "base/atomic.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

/* Instrumented code has many more instructions: stop at some of them only. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TT_STEP_STRIDE 23u
#else
#define TT_STEP_STRIDE 1u
#endif

enum { TT_STEP_BEFORE, TT_STEP_INSIDE, TT_STEP_OVER };

struct tt_step {
	pid_t pid;
	uint32_t *at; /* TT_STEP_*; shared with the child */
};

/* Stops right before fn(arg). 0 or a negative errno: tracing may be forbidden. */
static inline int tt_step_begin(struct tt_step *s, void (*fn)(void *), void *arg)
{
	int status;

	s->pid = -1;
	s->at = mmap(NULL, sizeof(*s->at), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (s->at == MAP_FAILED)
		return -errno;
	s->pid = fork();
	if (s->pid < 0)
		return -errno;
	if (s->pid == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0 || kill(getpid(), SIGSTOP) < 0)
			_exit(99);
		tt_store_release(s->at, TT_STEP_INSIDE);
		fn(arg);
		tt_store_release(s->at, TT_STEP_OVER);
		_exit(0);
	}
	if (waitpid(s->pid, &status, 0) != s->pid || !WIFSTOPPED(status)) {
		munmap(s->at, sizeof(*s->at));
		return -EPERM;
	}
	return 0;
}

static inline bool tt_step_one(struct tt_step *s)
{
	int status;

	return ptrace(PTRACE_SINGLESTEP, s->pid, NULL, NULL) == 0 &&
	       waitpid(s->pid, &status, 0) == s->pid && WIFSTOPPED(status);
}

/* Lets n instructions of the call go by. False: it is over. */
static inline bool tt_step_run(struct tt_step *s, unsigned n)
{
	while (tt_load_acquire(s->at) == TT_STEP_BEFORE)
		if (!tt_step_one(s))
			return false;
	while (n-- && tt_load_acquire(s->at) == TT_STEP_INSIDE)
		if (!tt_step_one(s))
			return false;
	return tt_load_acquire(s->at) == TT_STEP_INSIDE;
}

/* The rest of the call, at full speed. False: the child did not end well. */
static inline bool tt_step_finish(struct tt_step *s)
{
	int status = 0;

	ptrace(PTRACE_CONT, s->pid, NULL, NULL);
	bool ok = waitpid(s->pid, &status, 0) == s->pid && WIFEXITED(status) &&
		  WEXITSTATUS(status) == 0;

	if (WIFSTOPPED(status)) {
		kill(s->pid, SIGKILL);
		waitpid(s->pid, &status, 0);
	}
	munmap(s->at, sizeof(*s->at));
	return ok;
}

static inline void tt_step_kill(struct tt_step *s)
{
	kill(s->pid, SIGKILL);
	waitpid(s->pid, NULL, 0);
	munmap(s->at, sizeof(*s->at));
}

#endif
