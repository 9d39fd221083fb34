/* SPDX-License-Identifier: MIT */
/*
 * Handlers of the program, by way of a step of ours that counts them.
 *
 * A system call that would sleep is interrupted when a handler has run since it
 * was entered. While a call spins or copies here, in user space, the kernel
 * interrupts nothing: without the count the handler would leave no trace, and
 * the call would go to sleep. The program sees its own handlers and flags
 * wherever it asks; signals of faults are left alone, they interrupt no wait.
 *
 * A handler is known by its signal's number; whether it takes three arguments
 * and whether it wants calls restarted, by which of our four was installed for
 * it. So there is one word for each signal, written at once, and a signal that
 * comes in the middle of a change finds one or the other.
 */
#include "preload/preload_int.h"

#include <setjmp.h>
#include <signal.h>

typedef void short_handler(int);
typedef void long_handler(int, siginfo_t *, void *);

static void *handlers[NSIG];
static bool is_short[NSIG];
static bool interrupts[NSIG]; /* siginterrupt() */

static struct sigaction installed[NSIG];
static _Thread_local int inside __attribute__((tls_model("initial-exec"))); /* handlers */
static int (*next_sigaction)(int, const struct sigaction *, struct sigaction *);

static void step(int sig, siginfo_t *info, void *context, bool is_long, bool restart)
{
	if (tt_guard_defer(sig, info, context)) {
		if (installed[sig].sa_flags & (int)SA_RESETHAND)
			next_sigaction(sig, &installed[sig], NULL);
		return;
	}
	void *h = tt_load_acquire(&handlers[sig]);

	tt_signal_came(restart);
	inside++;
	if (is_long)
		((long_handler *)h)(sig, info, context);
	else
		((short_handler *)h)(sig);
	inside--;
}

static void short_once(int sig, siginfo_t *info, void *context)
{
	step(sig, info, context, false, false);
}

static void short_restart(int sig, siginfo_t *info, void *context)
{
	step(sig, info, context, false, true);
}

static void long_once(int sig, siginfo_t *info, void *context)
{
	step(sig, info, context, true, false);
}

static void long_restart(int sig, siginfo_t *info, void *context)
{
	step(sig, info, context, true, true);
}

static long_handler *const steps[2][2] = {{short_once, short_restart}, {long_once, long_restart}};

static bool followed(int sig)
{
	return sig > 0 && sig < NSIG && sig != SIGSEGV && sig != SIGBUS && sig != SIGFPE &&
	       sig != SIGILL && sig != SIGTRAP && sig != SIGSYS;
}

static bool is_handler(const struct sigaction *act)
{
	return (act->sa_flags & SA_SIGINFO) ||
	       (act->sa_handler != SIG_DFL && act->sa_handler != SIG_IGN);
}

/* What the program had set, from what the kernel has. */
static void translate(struct sigaction *old, void *handler, bool was_short)
{
	/* Reset by SA_RESETHAND: only the flag is left of us. */
	if (was_short && old->sa_handler == SIG_DFL)
		old->sa_flags &= ~SA_SIGINFO;
	for (int i = 0; i < 4; i++) {
		if (!(old->sa_flags & SA_SIGINFO) || old->sa_sigaction != steps[i / 2][i % 2])
			continue;
		if (i / 2) {
			old->sa_sigaction = (long_handler *)handler;
		} else {
			old->sa_flags &= ~SA_SIGINFO;
			old->sa_handler = (short_handler *)handler;
		}
		return;
	}
}

EXPORT int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction ours, had;

	enter();
	if (!next_sigaction)
		tt_next("sigaction", &next_sigaction);
	if (!followed(sig))
		return next_sigaction(sig, act, old);
	void *before = tt_load_acquire(&handlers[sig]);
	bool was_short = is_short[sig];
	bool handled = act && is_handler(act);

	if (handled) {
		bool is_long = act->sa_flags & SA_SIGINFO;

		ours = *act;
		is_short[sig] = !is_long;
		tt_store_release(&handlers[sig],
				 is_long ? (void *)act->sa_sigaction : (void *)act->sa_handler);
		ours.sa_sigaction = steps[is_long][(act->sa_flags & SA_RESTART) != 0];
		ours.sa_flags |= SA_SIGINFO;
		installed[sig] = ours;
		act = &ours;
	}
	int r = next_sigaction(sig, act, &had);

	if (r < 0 && handled) {
		tt_store_release(&handlers[sig], before);
		is_short[sig] = was_short;
	}
	if (r == 0 && old) {
		translate(&had, before, was_short);
		*old = had;
	}
	return r;
}

static sighandler_t install(int sig, sighandler_t handler, int flags, bool block_itself)
{
	struct sigaction act = {.sa_handler = handler, .sa_flags = flags}, old;

	if (handler == SIG_ERR || sig <= 0 || sig >= NSIG) {
		errno = EINVAL;
		return SIG_ERR;
	}
	sigemptyset(&act.sa_mask);
	if (block_itself)
		sigaddset(&act.sa_mask, sig);
	return sigaction(sig, &act, &old) < 0 ? SIG_ERR : old.sa_handler;
}

EXPORT sighandler_t signal(int sig, sighandler_t handler)
{
	bool once = sig > 0 && sig < NSIG && interrupts[sig];

	return install(sig, handler, once ? 0 : SA_RESTART, true);
}

EXPORT sighandler_t bsd_signal(int sig, sighandler_t handler)
{
	return signal(sig, handler);
}

EXPORT sighandler_t ssignal(int sig, sighandler_t handler)
{
	return signal(sig, handler);
}

EXPORT sighandler_t __sysv_signal(int sig, sighandler_t handler)
{
	return install(sig, handler, SA_RESETHAND | SA_NODEFER, false);
}

EXPORT sighandler_t sysv_signal(int sig, sighandler_t handler)
{
	return __sysv_signal(sig, handler);
}

EXPORT int siginterrupt(int sig, int interrupt)
{
	struct sigaction act;

	if (sigaction(sig, NULL, &act) < 0)
		return -1;
	if (sig > 0 && sig < NSIG)
		interrupts[sig] = interrupt != 0;
	act.sa_flags = interrupt ? act.sa_flags & ~SA_RESTART : act.sa_flags | SA_RESTART;
	return sigaction(sig, &act, NULL);
}

/* ---- jumps out of handlers ---- */

/* The call that was interrupted does not return: what it held of ours is given back. */
static void jump(void)
{
	if (!inside)
		return;
	inside = 0;
	tt_wait_abandon();
	tt_conn_abandon_pins();
}

EXPORT void longjmp(jmp_buf env, int value)
{
	static void (*next)(jmp_buf, int);

	enter();
	if (!next)
		tt_next("longjmp", &next);
	jump();
	next(env, value);
	__builtin_unreachable();
}

EXPORT void _longjmp(jmp_buf env, int value)
{
	static void (*next)(jmp_buf, int);

	enter();
	if (!next)
		tt_next("_longjmp", &next);
	jump();
	next(env, value);
	__builtin_unreachable();
}

EXPORT void siglongjmp(sigjmp_buf env, int value)
{
	static void (*next)(sigjmp_buf, int);

	enter();
	if (!next)
		tt_next("siglongjmp", &next);
	jump();
	next(env, value);
	__builtin_unreachable();
}

extern void __longjmp_chk(jmp_buf env, int value) __attribute__((noreturn));

EXPORT void __longjmp_chk(jmp_buf env, int value)
{
	static void (*next)(jmp_buf, int);

	enter();
	if (!next)
		tt_next("__longjmp_chk", &next);
	jump();
	next(env, value);
	__builtin_unreachable();
}
