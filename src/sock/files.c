/* SPDX-License-Identifier: MIT */
/*
 * Descriptors: how they come, go, and are copied; options; the end of the
 * process. The table follows the kernel: what is closed is taken out before
 * the kernel frees the number, what is new is entered after it was given.
 *
 * A child of vfork shares this memory but not the descriptors: what it closes
 * or copies must not change the table, so every change compares the process.
 */
#include "base/clock.h"
#include "base/shm.h"
#include "base/sys.h"
#include "base/usermem.h"
#include "sock/sock.h"
#include "ulc/bell.h"
#include "ulc/chan.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static bool borrowed_memory(void)
{
	return tt_load_relaxed(&tt_proc.lends) && getpid() != tt_proc.pid;
}

void tt_sock_opened(int fd)
{
	struct tt_slot *s = tt_fd_slot(fd);

	if (!s || s->kind == TT_FD_UNKNOWN || borrowed_memory())
		return;
	/* Closed behind our back: what was there is gone without a word. */
	tt_sock_forget(fd);
}

void tt_sock_new_stream(int fd, bool nonblock, bool connected)
{
	if (fd < 0 || !tt_sock_active() || borrowed_memory())
		return;
	tt_sock_opened(fd);
	tt_fdtab_lock();
	struct tt_conn *c = tt_conn_new(fd);

	if (c) {
		c->nonblock = nonblock;
		c->connected = connected;
		c->refs = 1;
		tt_fd_set(fd, TT_FD_CONN, c);
	}
	tt_fdtab_unlock();
	if (c && connected && tt_proc.eager)
		tt_conn_progress(c, fd, 0);
}

struct gone {
	struct tt_conn *conn;
	struct tt_eset *set;
	bool last;
	bool kept; /* other threads are inside calls on it, which go on */
};

/* A kick left unread would make the kernel send a reset. */
static void drop_kicks(struct tt_conn *c, int fd)
{
	if (c->mode != TT_CONN_ATTACHED ||
	    tt_load_relaxed(&c->st.rx->kicks) == tt_load_relaxed(&c->e->kicks_dropped) ||
	    tt_load_relaxed(&c->e->rx_route) != TT_ROUTE_RING || tt_conn_lock_rx(c) < 0)
		return;
	tt_conn_drop_kicks(c, fd);
	tt_conn_unlock_rx(c);
}

/*
 * A kernel resets when it closes what has unread bytes. The peer derives that
 * from our end and the ring; but after a shutdown our end is no news to it, so
 * the shadow has to tell. Who shares the socket goes on with it.
 */
static void reset_if_unread(struct tt_conn *c, int fd)
{
	static const struct linger reset = {1, 0};
	uint64_t unread = 0;

	if (c->mode != TT_CONN_ATTACHED || tt_load_relaxed(&c->e->shared) ||
	    !(tt_load_relaxed(&c->st.tx->flags) & TT_STREAM_FIN) || tt_conn_lock_rx(c) < 0)
		return;
	if (c->e->rx_route == TT_ROUTE_RING && tt_stream_pending(&c->st, &c->e->rx, &unread) == 0 &&
	    unread)
		tt_sys.setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	tt_conn_unlock_rx(c);
}

/*
 * A claim carries a copy of the descriptor to the daemon. While it is under way
 * our close is not the kernel's last, and the peer would not hear of it. So the
 * daemon is given a moment; after that we do by hand what the last close does:
 * a daemon that is stopped, or starved, holds up nobody.
 */
#define CLAIM_WAIT_NS (5 * 1000000LL)
/* For so long nobody waits again for a daemon that was late. */
#define CLAIM_LATE_NS (100 * 1000000LL)

static bool claim_seen(const struct tt_entry *e)
{
	return tt_load_acquire(&e->seen) == e->generation + 1;
}

static void close_by_hand(int fd)
{
	static const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
	struct linger l = {0};
	socklen_t len = sizeof(l);
	int unread = 0;
	bool reset = (tt_sys.getsockopt(fd, SOL_SOCKET, SO_LINGER, &l, &len) == 0 && l.l_onoff &&
		      l.l_linger == 0) ||
		     (tt_sys.ioctl(fd, FIONREAD, &unread) == 0 && unread > 0);

	if (reset)
		tt_sys.connect(fd, &nobody, sizeof(nobody));
	else
		tt_sys.shutdown(fd, SHUT_RDWR);
}

static bool claim_under_way(const struct tt_conn *c)
{
	const struct tt_entry *e = tt_load_acquire(&c->e);

	return e && tt_load_acquire(&e->claimed) && !claim_seen(e);
}

/* Gives the daemon its moment. */
static void wait_for_claim(const struct tt_conn *c)
{
	static int64_t late_ns;

	if (!claim_under_way(c))
		return;
	int64_t now = tt_now_ns(), deadline = now + CLAIM_WAIT_NS, late = tt_load_relaxed(&late_ns);

	if (late && now - late <= CLAIM_LATE_NS)
		return;
	while (claim_under_way(c) && tt_now_ns() < deadline)
		usleep(10);
	if (claim_under_way(c))
		tt_store_relaxed(&late_ns, tt_now_ns());
}

/* What another process may hold goes on. */
static void close_unclaimed(const struct tt_conn *c, int fd)
{
	if (claim_under_way(c) && !tt_load_relaxed(&c->e->shared))
		close_by_hand(fd);
}

/* Before the last descriptor that this process has of a connection goes. */
static void await_claim(const struct tt_conn *c, int fd)
{
	wait_for_claim(c);
	close_unclaimed(c, fd);
}

/*
 * A thread that found c by its descriptor just now, and pins nothing, is still
 * publishing, perhaps: our end must not overtake its bytes. The next will find
 * the descriptor gone.
 */
static void await_sender(struct tt_conn *c)
{
	if (c->mode == TT_CONN_ATTACHED && tt_conn_lock_tx(c) == 0)
		tt_conn_unlock_tx(c);
}

/* Takes fd out of the table; before it is closed, or when it is gone already. Table lock held. */
static struct gone take_out_locked(int fd, bool before)
{
	struct gone g = {0};
	struct tt_slot *s = tt_fd_slot(fd);

	if (!s || s->kind == TT_FD_UNKNOWN)
		return g;
	uint32_t kind = s->kind;
	void *obj = s->obj;

	if (kind == TT_FD_CONN && before) {
		struct tt_conn *c = obj;

		if (c->refs == 1 && tt_load_acquire(&c->pins) && c->mode > TT_CONN_PLAIN) {
			tt_conn_keep_file(c, fd);
			g.kept = c->stand_in != 0;
		}
	}
	tt_fd_set(fd, TT_FD_UNKNOWN, NULL);
	if (kind == TT_FD_CONN) {
		g.conn = obj;
		g.last = --g.conn->refs == 0;
		if (g.last) {
			tt_fetch_add(&g.conn->pins, 1); /* until tt_conn_put */
			await_sender(g.conn);
		}
		if (!g.last && g.conn->fd == fd)
			g.conn->fd = tt_fd_other(obj, fd);
	} else if (kind == TT_FD_EPOLL) {
		g.set = obj;
	}
	return g;
}

/* What follows without the lock. */
static void taken_out(struct gone g, int fd)
{
	if (g.conn)
		tt_eset_conn_closed(g.conn, fd, g.last);
	if (g.kept && g.conn->mode == TT_CONN_ATTACHED) {
		/* Who sleeps by the number that will be another's looks for its stand-in. */
		tt_fence();
		tt_conn_wake_own(g.conn);
	}
}

static struct gone take_out(int fd, bool before)
{
	struct gone none = {0};
	struct tt_slot *s = tt_fd_slot(fd);

	if (!s || s->kind == TT_FD_UNKNOWN)
		return none;
	tt_fdtab_lock();
	struct gone g = take_out_locked(fd, before);

	tt_fdtab_unlock();
	taken_out(g, fd);
	return g;
}

static void before_close(struct gone g, int fd)
{
	if (!g.conn || !g.last || g.kept)
		return;
	drop_kicks(g.conn, fd);
	reset_if_unread(g.conn, fd);
	await_claim(g.conn, fd);
}

static void finish(struct gone g, int fd)
{
	if (g.conn)
		tt_conn_put(g.conn, fd, g.last);
	if (g.set)
		tt_eset_put(g.set, fd);
}

void tt_sock_forget(int fd)
{
	finish(take_out(fd, false), fd);
}

int tt_sock_close(int fd)
{
	/* A program that closes all it does not know must not take ours. */
	if (tt_sock_active() && tt_fd_is_internal(fd))
		return -EBADF;
	if (!tt_sock_active() || borrowed_memory())
		return tt_sys.close(fd) < 0 ? -errno : 0;
	struct gone g = take_out(fd, true);

	/* Files are closed all the time, and nobody hears of it: not for them. */
	if (g.conn)
		tt_sock_touch();
	before_close(g, fd);
	int ret = tt_sys.close(fd) < 0 ? -errno : 0;

	finish(g, fd);
	return ret;
}

int tt_sock_close_range(unsigned first, unsigned last, int flags)
{
	if (!tt_sock_active())
		return tt_sys.close_range(first, last, flags) < 0 ? -errno : 0;
	if (first > last)
		return -EINVAL;
	/* A child of vfork leaves ours open too: the program that it executes needs them. */
	bool close = !borrowed_memory() && !(flags & CLOSE_RANGE_CLOEXEC);
	unsigned top = tt_fd_internal_top();

	/* Around our own, one stretch at a time. */
	while (first <= last) {
		unsigned end = first;

		while (end <= last && end <= top && !tt_fd_is_internal((int)end)) {
			if (close && tt_fd_slot((int)end) &&
			    tt_fd_slot((int)end)->kind != TT_FD_UNKNOWN) {
				struct gone g = take_out((int)end, true);

				before_close(g, (int)end);
				finish(g, (int)end);
			}
			end++;
		}
		if (end > top)
			end = last == UINT32_MAX ? last : last + 1;
		if (end > first || end == UINT32_MAX) {
			unsigned to = end == UINT32_MAX && last == UINT32_MAX ? last : end - 1;

			if (tt_sys.close_range(first, to, flags) < 0)
				return -errno;
			if (to == UINT32_MAX)
				break;
		}
		first = end + (end <= top ? 1 : 0);
	}
	return 0;
}

static void duplicate_locked(int fd, int ret)
{
	struct tt_slot *s = tt_fd_slot(fd);

	if (!s)
		return;
	if (s->kind == TT_FD_CONN || s->kind == TT_FD_EPOLL) {
		if (s->kind == TT_FD_CONN)
			((struct tt_conn *)s->obj)->refs++;
		else
			tt_eset_get(s->obj);
		tt_fd_set(ret, s->kind, s->obj);
	}
}

void tt_sock_duped(int fd, int ret)
{
	tt_sock_opened(ret);
	/* Known before it is copied: both then lead to one object. */
	tt_fd_conn(fd);
	if (borrowed_memory())
		return;
	tt_fdtab_lock();
	duplicate_locked(fd, ret);
	tt_fdtab_unlock();
}

/* Of what a copy is about to close: the lock cannot be held for so long. */
static void await_claim_onto(int onto)
{
	struct tt_slot *s = tt_fd_slot(onto);

	if (!s || tt_load_acquire(&s->kind) != TT_FD_CONN)
		return;
	const struct tt_conn *c = tt_load_acquire(&s->obj);

	if (tt_load_relaxed(&s->kind) == TT_FD_CONN && tt_load_relaxed(&c->refs) == 1)
		wait_for_claim(c);
}

int tt_sock_dup_onto(int fd, int onto, int flags, bool dup3)
{
	int ret;

	if (!tt_sock_active() || borrowed_memory() || fd == onto) {
		ret = dup3 ? tt_sys.dup3(fd, onto, flags) : tt_sys.dup2(fd, onto);
		return ret < 0 ? -errno : ret;
	}
	if (tt_fd_is_internal(onto))
		return -EBUSY; /* high numbers of ours; nobody aims there */
	/* What is going to fail must not take anything out first. */
	if (dup3 && (flags & ~O_CLOEXEC))
		return -EINVAL;
	if (tt_sys.fcntl(fd, F_GETFD) < 0)
		return -EBADF;
	await_claim_onto(onto);
	/* In one step for other threads: whoever asks for the number meanwhile waits for the lock. */
	tt_fd_conn(fd);
	tt_fdtab_lock();
	struct gone g = take_out_locked(onto, true);

	if (g.conn && g.last && !g.kept) {
		drop_kicks(g.conn, onto);
		reset_if_unread(g.conn, onto);
		close_unclaimed(g.conn, onto);
	}
	ret = dup3 ? tt_sys.dup3(fd, onto, flags) : tt_sys.dup2(fd, onto);
	if (ret < 0)
		ret = -errno;
	else
		duplicate_locked(fd, ret);
	tt_fdtab_unlock();
	if (g.conn)
		tt_sock_touch();
	taken_out(g, onto);
	finish(g, onto);
	return ret;
}

void tt_sock_connected(int fd)
{
	struct tt_conn *c = tt_fd_conn(fd);

	if (!c)
		return;
	c->connected = 1;
	if (tt_proc.eager)
		tt_conn_progress(c, fd, 0);
}

void tt_sock_disconnected(int fd)
{
	struct tt_conn *c = tt_fd_conn(fd);

	if (!c || c->mode != TT_CONN_ATTACHED || tt_conn_lock_tx(c) < 0)
		return;
	struct tt_entry *e = c->e;

	tt_store_release(&e->tx_route, TT_ROUTE_BACK);
	tt_store_release(&e->wr_shut, 0u);
	tt_conn_unlock_tx(c);
	if (tt_conn_lock_rx(c) < 0)
		return;
	/* What was unread is gone, and the next connection has not ended. */
	tt_store_release(&e->rx_route, TT_ROUTE_BACK);
	tt_store_release(&e->rd_shut, 0u);
	tt_fetch_and(&c->st.rx->flags, ~(uint32_t)(TT_STREAM_ENDED | TT_STREAM_LEAVE));
	tt_store_release(&e->shadow, 0u);
	tt_store_release(&e->reset_errno, 0u);
	tt_store_release(&e->reset, TT_RESET_NONE);
	tt_conn_unlock_rx(c);
}

void tt_sock_set_async(int fd, bool on)
{
	struct tt_slot *s = tt_fd_slot(fd);
	struct tt_conn *c = s && s->kind == TT_FD_CONN ? s->obj : NULL;

	if (c && c->mode == TT_CONN_ATTACHED)
		tt_conn_want_kicks(c, on);
}

void tt_sock_set_nonblock(int fd, bool on)
{
	struct tt_slot *s = tt_fd_slot(fd);

	if (s && s->kind == TT_FD_CONN) {
		struct tt_conn *c = s->obj;

		c->nonblock = on;
		if (c->e)
			tt_store_relaxed(&c->e->nonblock, (uint32_t)on);
	}
}

void tt_sock_shared(int fd)
{
	struct tt_conn *c = tt_fd_conn(fd);

	if (!c)
		return;
	tt_fdtab_lock();
	if (tt_fd_is(fd, c))
		tt_conn_share(c, fd);
	tt_fdtab_unlock();
}

/* ---- fork, end ---- */

static void share_conn(int fd, void *obj)
{
	tt_conn_share(obj, fd);
}

void tt_sock_share_all(void)
{
	if (!tt_sock_active())
		return;
	tt_fdtab_lock();
	tt_fd_each(TT_FD_CONN, share_conn);
	tt_fdtab_unlock();
}

void tt_sock_fork_prepare(void)
{
	if (!tt_sock_active())
		return;
	tt_fdtab_lock();
	tt_fd_each(TT_FD_CONN, share_conn);
	tt_eset_fork_prepare();
	tt_proc_fork_prepare();
}

void tt_sock_fork_parent(void)
{
	if (!tt_sock_active())
		return;
	tt_proc_fork_parent();
	tt_eset_fork_parent();
	tt_fdtab_unlock();
}

static void child_conn(int fd, void *obj)
{
	struct tt_conn *c = obj;

	(void)fd;
	c->pins = 0;
	c->raw = 0;
	c->turns = c->messages = 0;
	c->used = 0;
}

void tt_sock_fork_child(void)
{
	if (!tt_sock_active())
		return;
	tt_guard_fork_child();
	tt_user_forget_all(); /* MADV_DONTFORK */
	tt_proc_fork_child();
	tt_fdtab_fork_child();
	tt_conn_fork_child();
	tt_eset_fork_child();
	tt_wait_fork_child();
	tt_fd_each(TT_FD_CONN, child_conn);
}

static void end_conn(int fd, void *obj)
{
	struct tt_conn *c = obj;

	await_claim(c, fd);
	tt_conn_count_short(c);
	if (!c->used)
		return;
	drop_kicks(c, fd);
	reset_if_unread(c, fd);
	tt_conn_hint(c);
}

void tt_sock_fini(void)
{
	if (!tt_sock_active() || borrowed_memory())
		return;
	tt_fd_each(TT_FD_CONN, end_conn);
	tt_stats_write();
}
