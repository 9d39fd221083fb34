/* SPDX-License-Identifier: MIT */
/*
 * A process that takes a seccomp filter may make the system calls that its
 * author thought of and no others: from then on every call goes to the kernel
 * as the program made it, and the library makes none of its own.
 *
 * What is on the ring is handed over first (handover.c). What is not is held on
 * TCP while the process lives, by its number in the entry, because others of
 * its side may have the connection too and would take it to the ring: sshd's
 * monitor has what the sandboxed child uses, and takes it over from it.
 *
 * L1: store raw_pid (hold_raw), then look at attached (replace, in handover.c);
 * A0 in claim.c sets attached, then looks at raw_pid.
 */
#include "base/log.h"
#include "sock/sock.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

bool tt_conn_held_raw(struct tt_entry *e)
{
	int32_t pid = tt_load_acquire(&e->raw_pid);

	if (pid == 0)
		return false;
	if (kill(pid, 0) == 0 || errno == EPERM)
		return true;
	tt_cas(&e->raw_pid, &pid, 0);
	return false;
}

static void hold_raw(int fd, void *obj)
{
	struct tt_conn *c = obj;
	struct tt_entry *e = c->e;
	int32_t none = 0;

	(void)fd;
	if (!e || c->mode == TT_CONN_FALLBACK || tt_load_acquire(&e->attached))
		return;
	/* Somebody else is there already: then for as long as the connection lasts. */
	if (tt_conn_held_raw(e) || !tt_cas(&e->raw_pid, &none, (int32_t)getpid()))
		tt_fetch_add(&e->rx_sleepers, 1);
	tt_fence(); /* L1 */
}

static void forget(int fd, void *obj)
{
	(void)obj;
	tt_fd_set(fd, TT_FD_UNKNOWN, NULL);
}

void tt_sock_leave(void)
{
	if (!tt_sock_active())
		return;
	tt_fdtab_lock();
	tt_fd_each(TT_FD_CONN, hold_raw);
	tt_fdtab_unlock();
	if (!tt_sock_hand_over(true)) {
		tt_log(TT_LOG_WARN,
		       "a connection could not be handed over before a seccomp filter");
		return;
	}
	tt_fdtab_lock();
	tt_proc.left = true;
	tt_fd_each(TT_FD_CONN, forget);
	tt_fd_each(TT_FD_EPOLL, forget);
	tt_fdtab_unlock();
}
