/* SPDX-License-Identifier: MIT */
/* Waiting on epoll sets: look, spin, sleep. The note is in epoll.c. */
#include "base/clock.h"
#include "base/sys.h"
#include "base/usermem.h"
#include "sock/epoll_int.h"

#include <errno.h>
#include <string.h>

#define KERNEL_US 50u /* look at the kernel's events at least this often while busy */
/*
 * A listener that several processes wait on exclusively: the kernel has woken
 * one of those that sleep. Who spins must not be there first each time, or one
 * worker gets all connections.
 */
#define KERNEL_EXCLUSIVE_US 400u
#define SHADOWS_AT_ONCE 32

uint32_t tt_kernel_touched;

/* EPOLL bits are poll's, beyond the flags. */
uint32_t tt_eset_evaluate(struct tt_interest *i)
{
	struct tt_conn *c = i->conn;
	uint32_t want = i->events & ~(uint32_t)TT_EPOLL_FLAGS;
	uint32_t ev = (uint32_t)(unsigned short)tt_conn_poll(c, i->fd, (short)want);

	ev &= want | EPOLLERR | EPOLLHUP;
	if ((want & EPOLLOUT) && !(ev & EPOLLOUT) && !i->waiting) {
		/* To be told when there is room; then look once more (W1). */
		i->waiting = true;
		tt_fetch_or(&c->st.tx->wait.tx_flags, TT_WAIT_CQ);
		ev |= (uint32_t)(unsigned short)tt_conn_poll(c, i->fd, (short)want) &
		      (want | EPOLLERR | EPOLLHUP);
	}
	return ev;
}

/* Memory follows the traffic: a connection that was drained gives its chunk back. */
static void drained(struct tt_conn *c)
{
	if (tt_load_relaxed(&c->e->rx.store) <= TT_LINK_KEEP_CHUNKS || tt_conn_lock_rx(c) < 0)
		return;
	tt_stream_idle(&c->st, &c->e->rx);
	tt_conn_unlock_rx(c);
}

/* Those not reached come first next time: i and what follows it, before the others. */
static void put_back(struct tt_eset *s, struct tt_interest *i)
{
	struct tt_interest *last = i;

	while (last->next_ready)
		last = last->next_ready;
	last->next_ready = s->ready;
	if (!s->ready)
		s->ready_tail = &last->next_ready;
	s->ready = i;
}

/*
 * set->lock held. Moves what is ready from the list into evs. -EFAULT: there is
 * something, and no place for it.
 */
static int collect(struct tt_eset *s, struct epoll_event *evs, int max)
{
	struct tt_interest *list, *i, *next;
	int n = 0;

	tt_cq_poll(&s->cq, false, tt_eset_on_event, s);
	list = s->ready;
	s->ready = NULL;
	s->ready_tail = &s->ready;
	for (i = list; i; i = next) {
		next = i->next_ready;
		if (n == max) {
			put_back(s, i);
			break;
		}
		i->queued = false;
		uint32_t ev = i->off ? 0 : tt_eset_evaluate(i);

		if (!ev) {
			drained(i->conn);
			continue;
		}
		if (!tt_user_writable(&evs[n], sizeof(*evs))) {
			i->queued = true;
			put_back(s, i);
			return n ? n : -EFAULT;
		}
		evs[n].events = ev;
		evs[n++].data = i->data;
		i->waiting = false;
		if (i->events & EPOLLONESHOT)
			i->off = true;
		else if (!(i->events & EPOLLET))
			tt_eset_queue(i);
	}
	return n;
}

/* Behind n events that are there. */
static int collect_more(struct tt_eset *s, struct epoll_event *evs, int n, int max)
{
	int more = collect(s, evs + n, max - n);

	return more >= 0 ? n + more : n ? n : more;
}

/* Events of I: the kernel has news of some shadows. set->lock held. */
void tt_eset_take_shadows(struct tt_eset *s)
{
	struct epoll_event evs[SHADOWS_AT_ONCE];
	uint32_t taken = 0;
	int n;

	/* All that there is, but each shadow once: new news may come all the time. */
	do {
		n = tt_sys.epoll_wait(s->inner, evs, SHADOWS_AT_ONCE, 0);
		for (int k = 0; k < n; k++) {
			struct tt_interest *i = evs[k].data.ptr;

			tt_conn_check_shadow(i->conn, i->fd);
			tt_eset_queue(i);
		}
		taken += n > 0 ? (uint32_t)n : 0;
	} while (n == SHADOWS_AT_ONCE && taken < tt_load_relaxed(&s->rings));
}

/*
 * Rung without an event: the daemon has granted something, perhaps. No lock
 * held; returns whether any connection was attached.
 */
static bool take_grants(struct tt_eset *s)
{
	struct tt_conn *found[16];
	int fds[16], n = 0;

	tt_lock(&s->lock);
	for (struct tt_interest *i = s->all; i && s->claimed && n < 16; i = i->next_of_set)
		if (!i->ring && i->conn->mode == TT_CONN_CLAIMED &&
		    tt_load_acquire(&i->conn->e->grant)) {
			found[n] = i->conn;
			fds[n++] = i->fd;
		}
	if (n < 16)
		s->claimed = false;
	tt_unlock(&s->lock);
	for (int k = 0; k < n; k++)
		if (tt_conn_pin(found[k], fds[k])) {
			tt_conn_ready(found[k], fds[k]);
			tt_conn_unpin(found[k]);
		}
	return n > 0;
}

/* Takes our own two out of what the kernel returned; the rest moves up. set->lock held. */
static int sift(struct tt_eset *s, struct epoll_event *evs, int n)
{
	int out = 0;

	for (int k = 0; k < n; k++) {
		if (evs[k].data.u64 == s->mark)
			tt_bell_reset(&s->cq.bell);
		else if (evs[k].data.u64 == s->mark + 1)
			tt_eset_take_shadows(s);
		else
			evs[out++] = evs[k];
	}
	return out;
}

static bool kernel_due(struct tt_eset *s)
{
	uint64_t now = tt_ticks();

	/* What this process itself did to the kernel's descriptors shows at once. */
	uint32_t touched = tt_load_relaxed(&tt_kernel_touched);

	uint32_t us = s->exclusive ? KERNEL_EXCLUSIVE_US : KERNEL_US;

	if (touched == s->touched && now - s->kernel_at < us * tt_ticks_per_us())
		return false;
	s->touched = touched;
	s->kernel_at = now;
	return true;
}

/* One look without waiting. set->lock held. */
static int look(struct tt_eset *s, struct epoll_event *evs, int max, bool ask_kernel)
{
	int n = 0;

	if (ask_kernel) {
		n = tt_sys.epoll_wait(s->epfd, evs, max, 0);
		n = n > 0 ? sift(s, evs, n) : 0;
	}
	return n < max ? collect_more(s, evs, n, max) : n;
}

/* Before the lock is left: who waits from outside finds E readable if and only if it is. */
void tt_eset_settle(struct tt_eset *s)
{
	if (!s->watched && !s->sleepers)
		return;
	if (s->ready) {
		tt_bell_ring(s->cq.owner, s->cq.bell.id);
		return;
	}
	tt_cq_arm(&s->cq);
	if (tt_cq_pending(&s->cq))
		tt_bell_ring(s->cq.owner, s->cq.bell.id);
}

void tt_eset_refresh(struct tt_eset *s)
{
	struct pollfd rung = {s->cq.bell.fd, POLLIN, 0};

	tt_eset_take_shadows(s);
	tt_cq_poll(&s->cq, true, tt_eset_on_event, s);
	/* Level-triggered leftovers that no longer hold must not keep E readable. */
	for (struct tt_interest *i = s->ready, *next; i; i = next) {
		next = i->next_ready;
		if (!tt_eset_evaluate(i))
			tt_eset_unqueue(i);
	}
	/* Rung and still ready: to ring again would be a new edge for who waits for edges. */
	if (s->ready && tt_sys.poll(&rung, 1, 0) > 0)
		return;
	tt_bell_reset(&s->cq.bell);
	tt_eset_settle(s);
}

/* How many sets somebody may wait on from outside; they are kept true at every wait. */
static uint32_t watched_sets;

static void refresh_others(struct tt_eset *self)
{
	tt_eset_settle_nested();
	tt_lock(&tt_sets_lock);
	for (struct tt_eset *s = tt_sets; s; s = s->next) {
		if (s == self || !s->watched || s->inner < 0 || s->inherited || s->kernel)
			continue;
		tt_lock(&s->lock);
		tt_eset_refresh(s);
		tt_unlock(&s->lock);
	}
	tt_unlock(&tt_sets_lock);
}

void tt_eset_watched(int fd)
{
	struct tt_eset *s = tt_eset_of(fd);

	if (!s)
		return;
	tt_lock(&s->lock);
	if (!s->watched)
		tt_fetch_add(&watched_sets, 1);
	s->watched = true;
	if (s->inner >= 0 && !s->kernel)
		tt_eset_refresh(s);
	tt_unlock(&s->lock);
}

static int kernel_wait(int epfd, struct epoll_event *evs, int max, int64_t timeout_ns,
		       const sigset_t *mask)
{
	int n;

	if (timeout_ns == INT64_MAX) {
		n = tt_sys.epoll_pwait(epfd, evs, max, -1, mask);
	} else if (timeout_ns % 1000000 == 0) {
		n = tt_sys.epoll_pwait(epfd, evs, max, (int)(timeout_ns / 1000000), mask);
	} else {
		struct timespec ts = {timeout_ns / TT_NS_PER_SEC, timeout_ns % TT_NS_PER_SEC};

		n = tt_sys.epoll_pwait2 ? tt_sys.epoll_pwait2(epfd, evs, max, &ts, mask) : -1;
		if (n < 0 && (!tt_sys.epoll_pwait2 || errno == ENOSYS))
			n = tt_sys.epoll_pwait(epfd, evs, max, (int)(timeout_ns / 1000000) + 1,
					       mask);
	}
	return n < 0 ? -errno : n;
}

static int64_t time_left(int64_t deadline)
{
	if (deadline == INT64_MAX)
		return INT64_MAX;
	int64_t left = deadline - tt_now_ns();

	if (left <= 0)
		return 0;
	/* Whole milliseconds sleep by the old call, never too short. */
	return left > 2000000 ? (left + 999999) / 1000000 * 1000000 : left;
}

struct in_kernel {
	struct tt_eset *set;
};

static void left_kernel(void *arg)
{
	struct tt_eset *s = ((struct in_kernel *)arg)->set;

	tt_lock(&s->lock);
	s->sleepers--;
	if (!s->sleepers && !s->watched && s->inner >= 0)
		tt_cq_disarm(&s->cq);
	tt_unlock(&s->lock);
}

/* The set's bell may wake another thread: no signal may come between the look and the sleep. */
static int wait_masked(int epfd, struct epoll_event *evs, int max, int64_t timeout_ns,
		       const sigset_t *mask, const struct tt_signal_mark *m)
{
	sigset_t all, old;
	int n = -EINTR;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	if (!tt_signal_since(m))
		n = kernel_wait(epfd, evs, max, timeout_ns, mask ? mask : &old);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return n;
}

/* Sleeps in E. Events found on the way out are in evs, ours taken out. */
static int sleep_in_kernel(struct tt_eset *s, int epfd, struct epoll_event *evs, int max,
			   int64_t deadline, const sigset_t *mask, const struct tt_signal_mark *m)
{
	struct in_kernel u = {s};
	bool alone;
	int n;

	tt_lock(&s->lock);
	s->sleepers++;
	if (s->inner >= 0) {
		tt_cq_arm(&s->cq);
		n = collect(s, evs, max);
		if (n != 0) {
			s->sleepers--;
			if (!s->sleepers && !s->watched)
				tt_cq_disarm(&s->cq);
			tt_unlock(&s->lock);
			return n;
		}
	}
	alone = s->sleepers == 1 && s->inner >= 0;
	tt_unlock(&s->lock);
	pthread_cleanup_push(left_kernel, &u);
	if (s->inner < 0)
		/* Nothing was looked at before: as the kernel does, who is signalled now sleeps. */
		n = kernel_wait(epfd, evs, max, time_left(deadline), mask);
	else if (alone)
		n = tt_sleep_begin(s->cq.bell.fd, m)
			    ? kernel_wait(epfd, evs, max, time_left(deadline), mask)
			    : -EINTR;
	else
		n = wait_masked(epfd, evs, max, time_left(deadline), mask, m);
	tt_sleep_end();
	pthread_cleanup_pop(1);
	if (n > 0 && s->inner >= 0) {
		tt_lock(&s->lock);
		int rung = n;

		n = sift(s, evs, n);
		rung -= n;
		if (n < max)
			n = collect_more(s, evs, n, max);
		tt_eset_settle(s);
		tt_unlock(&s->lock);
		if (rung && !n && s->claimed)
			take_grants(s);
	}
	return n;
}

/* Links come and go under the lock; when another thread has it, that one looks. */
static bool news(struct tt_eset *s)
{
	if (tt_load_relaxed(&s->ready))
		return true;
	if (tt_trylock(&s->lock) != 0)
		return false;
	bool any = tt_cq_pending(&s->cq);

	tt_unlock(&s->lock);
	return any;
}

/* A set that processes share is the kernel's, but for what is left of us in it. */
static int wait_shared(struct tt_eset *s, int epfd, struct epoll_event *evs, int max,
		       int64_t deadline, const sigset_t *mask)
{
	for (;;) {
		int n = s->all ? tt_eset_collect_left(s, evs, max) : 0;

		if (n != 0)
			return n;
		n = kernel_wait(epfd, evs, max, time_left(deadline), mask);
		int left = n > 0 ? tt_eset_sift_shared(s, evs, n) : n;

		if (left != 0 || n == 0 || (deadline != INT64_MAX && tt_now_ns() >= deadline))
			return left;
	}
}

/* With no place for an event: waits for one, and leaves it there. */
static int wait_in_vain(int epfd, int64_t timeout_ns, const sigset_t *mask)
{
	struct timespec ts = {timeout_ns / TT_NS_PER_SEC, timeout_ns % TT_NS_PER_SEC};
	struct pollfd p = {epfd, POLLIN, 0};
	int n = tt_sock_poll(&p, 1, timeout_ns == INT64_MAX ? NULL : &ts, mask);

	return n > 0 ? -EFAULT : n;
}

int tt_sock_epoll_wait(int epfd, struct epoll_event *evs, int max, int64_t timeout_ns,
		       const sigset_t *mask)
{
	struct tt_eset *s = tt_eset_of(epfd);
	struct tt_signal_mark mark = tt_signal_mark();
	struct tt_spinner sp;
	int n;

	if (tt_load_relaxed(&watched_sets))
		refresh_others(s);
	if (!s || max <= 0 || (!s->all && !s->kernel))
		return kernel_wait(epfd, evs, max, timeout_ns, mask);
	if (!tt_user_writable(evs, sizeof(*evs)))
		return wait_in_vain(epfd, timeout_ns, mask);
	int64_t deadline = timeout_ns == INT64_MAX ? INT64_MAX : tt_now_ns() + timeout_ns;

	if (s->kernel)
		return wait_shared(s, epfd, evs, max, deadline, mask);
	if (tt_load_relaxed(&s->rings)) {
		tt_lock(&s->lock);
		n = look(s, evs, max, timeout_ns == 0 || mask || kernel_due(s));
		if (s->watched || s->sleepers)
			tt_eset_settle(s);
		tt_unlock(&s->lock);
		if (n != 0 || timeout_ns == 0)
			return n;
		tt_spin_start(&sp);
		while (tt_spin_next(&sp)) {
			bool due = sp.rounds % 64 == 0 && kernel_due(s);

			if (tt_signal_since(&mark))
				return -EINTR;
			if (!news(s) && !due)
				continue;
			tt_lock(&s->lock);
			n = look(s, evs, max, due);
			tt_unlock(&s->lock);
			if (n < 0)
				return n;
			if (n > 0) {
				tt_spin_won(&sp);
				tt_count(&tt_proc.mem->totals.spins, 1);
				return n;
			}
			if (deadline != INT64_MAX && due && tt_now_ns() >= deadline)
				break;
		}
	} else {
		memset(&sp, 0, sizeof(sp));
	}
	for (;;) {
		int64_t t0 = tt_now_ns();

		n = sleep_in_kernel(s, epfd, evs, max, deadline, mask, &mark);
		if (s->rings) {
			tt_spin_slept(&sp, tt_now_ns() - t0);
			tt_count(&tt_proc.mem->totals.sleeps, 1);
		}
		if (n != 0 || (deadline != INT64_MAX && tt_now_ns() >= deadline))
			return n;
		if (tt_signal_since(&mark))
			return -EINTR;
		if (tt_eset_forked(s)) {
			tt_eset_settle_fork(s, epfd, false);
			if (s->kernel)
				return wait_shared(s, epfd, evs, max, deadline, mask);
		}
	}
}
