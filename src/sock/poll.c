/* SPDX-License-Identifier: MIT */
/*
 * poll and select over descriptors of both kinds.
 *
 * What is on the ring is looked at here; the rest is the kernel's, in the same
 * wait. Connections that are not on the ring yet are kept from going there
 * while somebody polls them in the kernel (their sleeper counts).
 */
#include "base/clock.h"
#include "base/sys.h"
#include "sock/sock.h"
#include "ulc/bell.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ON_STACK 64

struct watch {
	struct pollfd *user; /* the caller's */
	struct pollfd *kern; /* n + 1: the last is the bell */
	struct tt_conn **conns;
	uint32_t *modes; /* how each conn was entered */
	nfds_t n;
	nfds_t rings;  /* attached ones */
	nfds_t claims; /* those that the daemon may grant while we sleep */
};

/* Of wait_rounds: something was granted, begin again. */
#define GRANTED (-EINPROGRESS)

/* How the kernel may be asked about c: what was counted here is uncounted by watch_end. */
static uint32_t watch_conn(struct tt_conn *c, int fd)
{
	uint32_t mode = tt_load_acquire(&c->mode);

	if (mode == TT_CONN_PLAIN) {
		if (tt_conn_raw_begin(c) && tt_load_acquire(&c->mode) == TT_CONN_PLAIN)
			return TT_CONN_PLAIN;
		mode = tt_load_acquire(&c->mode);
	}
	if (mode != TT_CONN_CLAIMED)
		return mode;
	if (tt_conn_ready(c, fd))
		return TT_CONN_ATTACHED;
	tt_fetch_add(&c->e->rx_sleepers, 1); /* A1 in claim.c */
	if (!tt_load_acquire(&c->e->attached))
		return TT_CONN_CLAIMED;
	tt_fetch_add(&c->e->rx_sleepers, (uint32_t)-1);
	return tt_conn_ready(c, fd) ? TT_CONN_ATTACHED : TT_CONN_FALLBACK;
}

static void watch_begin(struct watch *w)
{
	w->rings = 0;
	w->claims = 0;
	for (nfds_t i = 0; i < w->n; i++) {
		int fd = w->user[i].fd;

		/* What the caller left there is no answer of a kernel that was not asked. */
		w->user[i].revents = 0;
		struct tt_conn *c = fd >= 0 ? tt_fd_conn(fd) : NULL;

		w->conns[i] = NULL;
		w->modes[i] = TT_CONN_FREE;
		if (fd >= 0 && !c)
			tt_eset_watched(fd);
		if (!c || !tt_conn_pin(c, fd))
			continue;
		w->conns[i] = c;
		w->modes[i] = watch_conn(c, fd);
		w->rings += w->modes[i] == TT_CONN_ATTACHED;
		w->claims += w->modes[i] == TT_CONN_CLAIMED;
	}
}

static void watch_end(struct watch *w)
{
	for (nfds_t i = 0; i < w->n; i++) {
		struct tt_conn *c = w->conns[i];

		if (!c)
			continue;
		if (w->modes[i] == TT_CONN_PLAIN)
			tt_conn_raw_end(c);
		else if (w->modes[i] == TT_CONN_CLAIMED)
			tt_fetch_add(&c->e->rx_sleepers, (uint32_t)-1);
		tt_conn_unpin(c);
	}
}

static bool is_ring(const struct watch *w, nfds_t i)
{
	return w->conns[i] && w->modes[i] == TT_CONN_ATTACHED;
}

static short asked(short events)
{
	return events | POLLERR | POLLHUP | POLLNVAL;
}

/* Looks at the rings; the number that are ready. */
static int look(struct watch *w)
{
	int ready = 0;

	for (nfds_t i = 0; i < w->n; i++) {
		if (!is_ring(w, i))
			continue;
		short ev = tt_conn_poll(w->conns[i], tt_conn_fd(w->conns[i], w->user[i].fd),
					w->user[i].events);

		w->user[i].revents = ev & asked(w->user[i].events);
		ready += w->user[i].revents != 0;
	}
	return ready;
}

/* What the kernel shall watch of a connection on the ring: its end, and what goes by TCP. */
static short shadow_events(const struct tt_conn *c, short want)
{
	const struct tt_entry *e = c->e;
	short ev = 0;

	if (tt_load_relaxed(&e->rx_route) != TT_ROUTE_RING) {
		ev |= want & (POLLIN | POLLRDNORM | POLLPRI | POLLRDHUP);
		/* A full ring is left when bytes wait here: tt_conn_leave_full_ring. */
		if ((want & (POLLOUT | POLLWRNORM)) &&
		    tt_load_relaxed(&e->tx_route) == TT_ROUTE_RING)
			ev |= POLLIN;
	} else if (!(tt_load_relaxed(&e->shadow) & TT_SHADOW_FIN)) {
		ev |= POLLIN | POLLRDHUP;
	}
	if (tt_load_relaxed(&e->tx_route) != TT_ROUTE_RING)
		ev |= want & (POLLOUT | POLLWRNORM);
	return ev;
}

static int ask_kernel(struct watch *w, const struct tt_bell *bell, const struct timespec *timeout,
		      const sigset_t *mask)
{
	nfds_t total = w->n;

	for (nfds_t i = 0; i < w->n; i++) {
		w->kern[i] = w->user[i];
		w->kern[i].revents = 0;
		if (is_ring(w, i)) {
			w->kern[i].fd = tt_conn_fd(w->conns[i], w->user[i].fd);
			w->kern[i].events = shadow_events(w->conns[i], w->user[i].events);
		}
	}
	if (bell && bell->id)
		w->kern[total++] = (struct pollfd){bell->fd, POLLIN, 0};
	int n = tt_sys.ppoll(w->kern, total, timeout, mask);

	if (n < 0)
		return -errno;
	int ready = 0;

	for (nfds_t i = 0; i < w->n; i++) {
		if (is_ring(w, i)) {
			if (w->kern[i].revents)
				tt_conn_check_shadow(w->conns[i], w->kern[i].fd);
			continue;
		}
		w->user[i].revents = w->kern[i].revents;
		ready += w->user[i].revents != 0;
	}
	if (total > w->n && w->kern[w->n].revents)
		tt_bell_reset(bell);
	return ready;
}

static void arm_all(struct watch *w, uint32_t bell, bool on)
{
	for (nfds_t i = 0; i < w->n; i++) {
		if (!is_ring(w, i))
			continue;
		bool rx = w->user[i].events & (POLLIN | POLLRDNORM | POLLRDHUP);
		bool tx = w->user[i].events & (POLLOUT | POLLWRNORM);

		if (on)
			tt_wait_arm(w->conns[i], rx, tx, bell);
		else
			tt_wait_disarm(w->conns[i], rx, tx, bell);
	}
}

/* Who sleeps on a shadow alone keeps its connection from the ring: the grant must wake us. */
static bool any_grant(struct watch *w)
{
	for (nfds_t i = 0; i < w->n && w->claims; i++)
		if (w->modes[i] == TT_CONN_CLAIMED && (tt_load_acquire(&w->conns[i]->e->grant) ||
						       tt_load_acquire(&w->conns[i]->e->attached)))
			return true;
	return false;
}

static bool arm_grants(struct watch *w, uint32_t bell)
{
	for (nfds_t i = 0; i < w->n && w->claims; i++)
		if (w->modes[i] == TT_CONN_CLAIMED)
			tt_store_relaxed(&w->conns[i]->e->grant_bell, bell);
	tt_fence(); /* G1 */
	return any_grant(w);
}

static const struct timespec no_time = {0, 0};

static int wait_rounds(struct watch *w, int64_t deadline, const sigset_t *mask,
		       const struct tt_signal_mark *m)
{
	struct tt_spinner sp;
	int ready = look(w);
	bool others = w->n > w->rings;

	/* What the kernel has ready comes along, without waiting for it. */
	if (ready || deadline == 0) {
		/* What is ready wins over signals that the mask would let in. */
		int more = others || deadline == 0
				   ? ask_kernel(w, NULL, &no_time, ready ? NULL : mask)
				   : 0;

		if (more < 0)
			return more;
		return deadline == 0 ? look(w) + more : ready + more;
	}
	if (w->rings)
		tt_spin_start(&sp);
	while (w->rings && tt_spin_next(&sp)) {
		if (tt_signal_since(m))
			return -EINTR;
		ready = look(w);
		if (ready) {
			tt_spin_won(&sp);
			tt_count(&tt_proc.mem->totals.spins, 1);
			if (others && (ready += ask_kernel(w, NULL, &no_time, NULL)) < 0)
				return look(w);
			return ready;
		}
	}
	const struct tt_bell *bell = tt_thread_bell();

	for (;;) {
		struct timespec ts, *timeout = NULL;
		int64_t t0 = tt_now_ns();
		int err = 0;

		if (deadline != INT64_MAX) {
			int64_t left = deadline > t0 ? deadline - t0 : 0;

			ts = (struct timespec){left / TT_NS_PER_SEC, left % TT_NS_PER_SEC};
			timeout = &ts;
		}
		arm_all(w, bell->id, true);
		ready = look(w);
		if (w->claims && arm_grants(w, bell->id) && !ready) {
			err = GRANTED;
		} else if (!ready && tt_sleep_begin(bell->fd, m)) {
			if (w->rings)
				tt_count(&tt_proc.mem->totals.sleeps, 1);
			err = ask_kernel(w, bell, timeout, mask);
		} else if (!ready) {
			err = -EINTR;
		} else if (others) {
			err = ask_kernel(w, NULL, &no_time, NULL);
		}
		tt_sleep_end();
		arm_all(w, bell->id, false);
		if (w->rings)
			tt_spin_slept(&sp, tt_now_ns() - t0);
		if (err < 0)
			return err;
		ready = look(w) + err;
		if (!ready && tt_signal_since(m))
			return -EINTR;
		if (!ready && any_grant(w))
			return GRANTED;
		if (ready || (deadline != INT64_MAX && tt_now_ns() >= deadline))
			return ready;
	}
}

static bool any_ours(const struct pollfd *fds, nfds_t n)
{
	for (nfds_t i = 0; i < n; i++) {
		struct tt_slot *s = fds[i].fd >= 0 ? tt_fd_slot(fds[i].fd) : NULL;

		if (s && (s->kind == TT_FD_CONN || s->kind == TT_FD_EPOLL))
			return true;
		if (fds[i].fd >= 0 && (!s || s->kind == TT_FD_UNKNOWN) && tt_fd_conn(fds[i].fd))
			return true;
	}
	return false;
}

static int64_t deadline_from(const struct timespec *timeout)
{
	if (!timeout)
		return INT64_MAX;
	if (timeout->tv_sec == 0 && timeout->tv_nsec == 0)
		return 0;
	if (timeout->tv_sec > 1ll << 32)
		return INT64_MAX;
	return tt_now_ns() + timeout->tv_sec * TT_NS_PER_SEC + timeout->tv_nsec;
}

static int poll_kernel(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
		       const sigset_t *mask)
{
	int ret = tt_sys.ppoll(fds, n, timeout, mask);

	return ret < 0 ? -errno : ret;
}

struct unwind {
	struct watch *w;
	void *heap;
};

static void unwind_poll(void *arg)
{
	struct unwind *u = arg;

	watch_end(u->w);
	free(u->heap);
}

int tt_sock_poll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
	if (timeout &&
	    (timeout->tv_nsec < 0 || timeout->tv_nsec >= TT_NS_PER_SEC || timeout->tv_sec < 0))
		return -EINVAL;
	if (!tt_sock_active() || n == 0 || n > 1u << 20 || !any_ours(fds, n))
		return poll_kernel(fds, n, timeout, mask);

	struct pollfd kern[ON_STACK + 1];
	struct tt_conn *conns[ON_STACK];
	uint32_t modes[ON_STACK];
	struct watch w = {fds, kern, conns, modes, n, 0, 0};
	struct unwind u = {&w, NULL};
	int ret;

	if (n > ON_STACK) {
		size_t kb = (n + 1) * sizeof(*kern), cb = n * sizeof(*conns);
		char *heap = malloc(kb + cb + n * sizeof(*modes));

		if (!heap)
			return -ENOMEM;
		w.conns = (void *)heap;
		w.kern = (void *)(heap + cb);
		w.modes = (void *)(heap + cb + kb);
		u.heap = heap;
	}
	struct tt_signal_mark mark = tt_signal_mark();
	int64_t deadline = deadline_from(timeout);

	pthread_cleanup_push(unwind_poll, &u);
	watch_begin(&w);
	if (w.rings || (w.claims && deadline != 0))
		ret = wait_rounds(&w, deadline, mask, &mark);
	else
		ret = poll_kernel(fds, n, timeout, mask);
	while (ret == GRANTED) {
		watch_end(&w);
		watch_begin(&w);
		/* Another thread keeps it on TCP: the grant is no news any more. */
		if (any_grant(&w))
			w.claims = 0;
		ret = wait_rounds(&w, deadline, mask, &mark);
	}
	pthread_cleanup_pop(1);
	return ret;
}

/* ---- select ---- */

#define BITS (8 * (int)sizeof(unsigned long))

/* The sets may be longer than an fd_set: programs allocate their own. */
static bool has(const fd_set *s, int fd)
{
	return s && (((const unsigned long *)s)[fd / BITS] >> (fd % BITS) & 1);
}

static void put(fd_set *s, int fd)
{
	((unsigned long *)s)[fd / BITS] |= 1ul << (fd % BITS);
}

static void wipe(fd_set *s, int n)
{
	if (s)
		memset(s, 0, (size_t)((n + BITS - 1) / BITS) * sizeof(unsigned long));
}

static int fill_poll(int n, const fd_set *r, const fd_set *w, const fd_set *x, struct pollfd *out)
{
	int count = 0;

	for (int fd = 0; fd < n; fd++) {
		short ev = 0;

		if (has(r, fd))
			ev |= POLLIN | POLLRDNORM | POLLRDBAND;
		if (has(w, fd))
			ev |= POLLOUT | POLLWRNORM | POLLWRBAND;
		if (has(x, fd))
			ev |= POLLPRI;
		if (ev && out)
			out[count] = (struct pollfd){fd, ev, 0};
		count += ev != 0;
	}
	return count;
}

static int select_any(int n, fd_set *r, fd_set *w, fd_set *x, const struct timespec *timeout,
		      const sigset_t *mask)
{
	int count = n > 0 ? fill_poll(n, r, w, x, NULL) : 0;
	struct pollfd stack[ON_STACK], *p = stack;

	if (count > ON_STACK && !(p = malloc((size_t)count * sizeof(*p))))
		return -ENOMEM;
	fill_poll(n, r, w, x, p);
	int ret, bits = 0;

	if (!tt_sock_active() || count == 0 || !any_ours(p, (nfds_t)count)) {
		if (p != stack)
			free(p);
		ret = tt_sys.pselect(n, r, w, x, timeout, mask);
		return ret < 0 ? -errno : ret;
	}
	ret = tt_sock_poll(p, (nfds_t)count, timeout, mask);
	for (int i = 0; ret > 0 && i < count; i++)
		if (p[i].revents & POLLNVAL)
			ret = -EBADF;
	if (ret >= 0) {
		bool any = ret > 0;
		const short rd = POLLIN | POLLRDNORM | POLLRDBAND | POLLHUP | POLLERR;
		const short wr = POLLOUT | POLLWRNORM | POLLWRBAND | POLLERR;
		/* What was asked for, before the sets are overwritten. */
		wipe(r, n);
		wipe(w, n);
		wipe(x, n);
		for (int i = 0; any && i < count; i++) {
			short ev = p[i].revents, want = p[i].events;

			if ((want & POLLIN) && (ev & rd))
				put(r, p[i].fd), bits++;
			if ((want & POLLOUT) && (ev & wr))
				put(w, p[i].fd), bits++;
			if ((want & POLLPRI) && (ev & POLLPRI))
				put(x, p[i].fd), bits++;
		}
		ret = bits;
	}
	if (p != stack)
		free(p);
	return ret;
}

int tt_sock_select_left(int n, fd_set *r, fd_set *w, fd_set *x, const struct timespec *timeout,
			const sigset_t *mask, struct timeval *left)
{
	int64_t t0 = left ? tt_now_ns() : 0;
	int ret = select_any(n, r, w, x, timeout, mask);

	if (left && timeout) {
		int64_t ns =
			timeout->tv_sec * TT_NS_PER_SEC + timeout->tv_nsec - (tt_now_ns() - t0);

		if (ns < 0)
			ns = 0;
		left->tv_sec = ns / TT_NS_PER_SEC;
		left->tv_usec = ns % TT_NS_PER_SEC / 1000;
	}
	return ret;
}
