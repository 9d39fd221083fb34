/* SPDX-License-Identifier: MIT */
/*
 * Waiting: spin, yield, sleep.
 *
 * How long to spin is learned by each thread. A wait that spinning won keeps
 * the budget; one that ended in a sleep shorter than the longest budget says
 * that spinning would have paid, and raises it; a longer sleep halves it. So
 * an idle program stops spinning after a few waits and a busy one keeps it.
 *
 * After twenty pauses the spinner yields between looks: with more runnable
 * processes than cores the one that has our answer must run. A yield that
 * takes long has let somebody run: it counts as many looks. A yield lets run
 * who is of the spinner's scheduling group only (a session, a control group);
 * others take the core when the spinner has used up its share. Who loses it so
 * spins shortly for a while, that they get what it would burn.
 *
 * Sleeping is a wait on the shadow and the thread's bell together, in an epoll
 * set of the thread's own: both are edge-triggered, so a ring need not be read
 * away, and a thread that waits for one connection again and again registers
 * it once. Arm, look again, sleep: W1 of ulc/chan.h. Nothing wakes a sleeper
 * but its peer, its shadow, its deadline or a signal.
 */
#include "base/clock.h"
#include "base/shm.h"
#include "base/sys.h"
#include "sock/conn.h"
#include "ulc/bell.h"
#include "ulc/chan.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define SPIN_MAX_US 50u	   /* adaptive: never longer */
#define SPIN_PURE_US 3u	   /* pauses only, before yields begin */
#define YIELD_LONG_NS 2500 /* a yield of an otherwise idle core takes less */
#define YIELDS_CONTENDED 12u
#define SPIN_CROWDED_US 6u /* while others want the core whom yields do not let run */
#define PREEMPTED_US 100u  /* a gap in pauses that long says so, */
#define CROWDED_US 50000u  /* for so long */
#define HOT_AFTER 16u	   /* waits won by spinning before the peer may skip its fence */
#define SHADOW_US 20u	   /* while spinning, ask the kernel this often */

struct cleanup {
	struct tt_conn *c;
	bool rx;
	uint32_t bell;
	bool by_tcp; /* counted as a sleeper on the shadow alone */
};

struct thread {
	struct tt_bell bell;
	int set;		      /* its epoll set; -1: none */
	const struct tt_conn *in_set; /* whose shadow lies in it */
	uint64_t in_set_cookie;
	int in_set_fd;
	int pid; /* a bell of before fork is the parent's */
	uint32_t budget_us;
	uint32_t wins;
	bool started, contended;
	uint64_t crowded_until; /* ticks */
	/* Signals; touched by handlers too. */
	volatile uint32_t signals, once;
	volatile int ring_on_signal;	 /* an eventfd; 0: nobody is about to sleep */
	struct cleanup *volatile asleep; /* what is armed, while it is */
};
static _Thread_local struct thread me __attribute__((tls_model("initial-exec")));
static pthread_key_t exit_key;
static pthread_once_t exit_once = PTHREAD_ONCE_INIT;

/* What ended threads leave to new ones: the daemon knows these bells already. */
#define SPARE 64
static struct spare {
	struct tt_bell bell;
	int set;
} spare[SPARE];
static int spares, spares_pid;
static pthread_mutex_t spare_lock = PTHREAD_MUTEX_INITIALIZER;

void tt_wait_fork_child(void)
{
	pthread_mutex_init(&spare_lock, NULL);
}

static bool take_spare(struct thread *t)
{
	tt_lock(&spare_lock);
	bool any = spares > 0 && spares_pid == tt_proc.pid;

	if (any) {
		t->bell = spare[--spares].bell;
		t->set = spare[spares].set;
	}
	tt_unlock(&spare_lock);
	return any;
}

static void thread_exit(void *arg)
{
	struct thread *t = arg;

	if (!t->bell.id || t->pid != tt_proc.pid)
		return;
	if (t->in_set)
		tt_sys.epoll_ctl(t->set, EPOLL_CTL_DEL, t->in_set_fd, NULL);
	tt_lock(&spare_lock);
	if (spares_pid != tt_proc.pid) {
		/* Of before fork: the parent's. */
		spares = 0;
		spares_pid = tt_proc.pid;
	}
	bool kept = spares < SPARE;

	if (kept)
		spare[spares++] = (struct spare){t->bell, t->set};
	tt_unlock(&spare_lock);
	if (!kept) {
		tt_bell_close(&t->bell);
		tt_fd_close(t->set);
	}
	t->bell.id = 0;
}

static void make_key(void)
{
	pthread_key_create(&exit_key, thread_exit);
}

static void open_set(void)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET, .data.u32 = 1};
	int set = tt_sys.epoll_create1(EPOLL_CLOEXEC);

	me.set = set < 0 ? -1 : tt_fd_high(set);
	if (me.set >= 0 && tt_sys.epoll_ctl(me.set, EPOLL_CTL_ADD, me.bell.fd, &ev) < 0) {
		tt_fd_close(me.set);
		me.set = -1;
	}
}

const struct tt_bell *tt_thread_bell(void)
{
	static const struct tt_bell none = {-1, 0};

	if (me.bell.id && me.pid == tt_proc.pid)
		return &me.bell;
	pthread_once(&exit_once, make_key);
	me.pid = tt_proc.pid;
	me.in_set = NULL;
	if (!take_spare(&me)) {
		if (tt_proc_bell(&me.bell) < 0) {
			me.bell.id = 0;
			return &none;
		}
		open_set();
	}
	pthread_setspecific(exit_key, &me);
	return &me.bell;
}

/* ---- spinning ---- */

void tt_spin_start(struct tt_spinner *sp)
{
	if (!me.started) {
		me.started = true;
		me.budget_us = SPIN_MAX_US;
	}
	bool adaptive = tt_proc.spin_usec == UINT32_MAX;
	uint32_t us = adaptive ? me.budget_us : tt_proc.spin_usec;

	sp->rounds = 0;
	sp->start = us ? tt_ticks() : 0;
	sp->last = sp->start;
	if (adaptive && us > SPIN_CROWDED_US && sp->start < me.crowded_until)
		us = SPIN_CROWDED_US;
	sp->limit = us * tt_ticks_per_us();
	sp->yields = me.contended;
}

bool tt_spin_next(struct tt_spinner *sp)
{
	if (!sp->limit)
		return false;
	if (++sp->rounds % 16)
		goto pause;
	uint64_t now = tt_ticks(), spent = now - sp->start;

	/* Taken from the core in the midst of pauses: yields did not let them run. */
	if (now - sp->last > PREEMPTED_US * tt_ticks_per_us())
		me.crowded_until = now + CROWDED_US * tt_ticks_per_us();
	sp->last = now;
	if (spent >= sp->limit)
		return false;
	if (!sp->yields && spent < SPIN_PURE_US * tt_ticks_per_us())
		goto pause;
	uint64_t t0 = tt_ticks();

	sched_yield();
	uint64_t took = tt_ticks() - t0;

	sp->last = t0 + took;

	if (took * 1000 > YIELD_LONG_NS * tt_ticks_per_us()) {
		/* Somebody else ran. Time that was not ours to spin does not count. */
		me.contended = true;
		sp->yields = true;
		sp->start += took;
		sp->limit -= sp->limit / YIELDS_CONTENDED + 1 < sp->limit
				     ? sp->limit / YIELDS_CONTENDED + 1
				     : sp->limit;
	}
	return true;
pause:
	tt_pause();
	return true;
}

void tt_spin_won(struct tt_spinner *sp)
{
	if (!sp->limit || !sp->rounds)
		return;
	if (!sp->yields)
		me.contended = false;
	if (me.wins < HOT_AFTER)
		me.wins++;
}

void tt_spin_slept(struct tt_spinner *sp, int64_t ns)
{
	(void)sp;
	me.wins = 0;
	me.contended = false;
	if (ns < SPIN_MAX_US * 1000)
		me.budget_us = SPIN_MAX_US;
	else
		me.budget_us /= 2;
}

bool tt_spin_hot(void)
{
	return me.wins >= HOT_AFTER && !me.contended;
}

/* ---- arming ---- */

static void put_bell(uint32_t *bells, uint32_t *flags, uint32_t id)
{
	uint32_t set = TT_WAIT_OVERFLOW;

	for (int i = 0; i < TT_WAIT_BELLS; i++) {
		uint32_t none = 0;

		if (id && tt_cas(&bells[i], &none, id)) {
			set = TT_WAIT_BELL;
			break;
		}
	}
	uint32_t old = tt_load_relaxed(flags);

	tt_store_relaxed(flags, (old & ~(uint32_t)TT_WAIT_HOT) | set);
	/* W1', then W1: see ulc/chan.h. */
	if (old & TT_WAIT_HOT)
		tt_membarrier_global();
	else
		tt_fence();
}

static void take_bell(uint32_t *bells, uint32_t *flags, uint32_t id, bool last)
{
	bool left = false;

	for (int i = 0; i < TT_WAIT_BELLS; i++) {
		uint32_t mine = id;

		if (!tt_cas(&bells[i], &mine, 0) && mine)
			left = true;
	}
	uint32_t old = tt_load_relaxed(flags), drop = left ? 0 : TT_WAIT_BELL;

	if (last)
		drop |= TT_WAIT_OVERFLOW;
	tt_store_relaxed(flags, old & ~drop);
}

void tt_wait_arm(struct tt_conn *c, bool rx, bool tx, uint32_t bell)
{
	struct tt_wait_line *w = &c->st.tx->wait;

	if (rx && tt_conn_lock_rx(c) == 0) {
		tt_stream_idle(&c->st, &c->e->rx);
		c->e->rx_sleepers++;
		put_bell(w->rx_bell, &w->rx_flags, bell);
		tt_conn_unlock_rx(c);
	}
	if (tx && tt_conn_lock_tx(c) == 0) {
		c->e->tx_sleepers++;
		put_bell(w->tx_bell, &w->tx_flags, bell);
		tt_conn_unlock_tx(c);
	}
}

void tt_wait_disarm(struct tt_conn *c, bool rx, bool tx, uint32_t bell)
{
	struct tt_wait_line *w = &c->st.tx->wait;

	if (rx && tt_conn_lock_rx(c) == 0) {
		if (c->e->rx_sleepers)
			c->e->rx_sleepers--;
		take_bell(w->rx_bell, &w->rx_flags, bell, c->e->rx_sleepers == 0);
		tt_conn_unlock_rx(c);
	}
	if (tx && tt_conn_lock_tx(c) == 0) {
		if (c->e->tx_sleepers)
			c->e->tx_sleepers--;
		take_bell(w->tx_bell, &w->tx_flags, bell, c->e->tx_sleepers == 0);
		tt_conn_unlock_tx(c);
	}
}

/* ---- signals ---- */

struct tt_signal_mark tt_signal_mark(void)
{
	struct tt_signal_mark m = {me.signals, me.once};

	/* A handler may have jumped out of a sleep. */
	me.ring_on_signal = 0;
	return m;
}

bool tt_signal_since(const struct tt_signal_mark *m)
{
	return me.signals != m->all;
}

void tt_signal_came(bool restart)
{
	int fd = me.ring_on_signal, err = errno;
	const uint64_t one = 1;

	me.signals++;
	if (!restart)
		me.once++;
	if (fd > 0 && tt_fd_is_internal(fd) && tt_sys.write(fd, &one, sizeof(one)) < 0)
		errno = err; /* it rings already */
	errno = err;
}

bool tt_sleep_begin(int eventfd, const struct tt_signal_mark *m)
{
	me.ring_on_signal = eventfd;
	tt_compiler_barrier();
	return !tt_signal_since(m);
}

void tt_sleep_end(void)
{
	me.ring_on_signal = 0;
}

/*
 * Handlers are counted on their way (preload/signal.c). One that was installed
 * by other means is not; then, when all that could have run are of one kind, it
 * does not matter which it was, and when they differ we report EINTR, which is
 * always allowed.
 */
static bool all_restart(void)
{
	sigset_t blocked;

	pthread_sigmask(SIG_BLOCK, NULL, &blocked);
	for (int sig = 1; sig < NSIG; sig++) {
		struct sigaction sa;

		if (sig == SIGSEGV || sig == SIGBUS || sig == SIGFPE || sig == SIGILL ||
		    sigismember(&blocked, sig) == 1 || sigaction(sig, NULL, &sa) < 0)
			continue;
		if (!(sa.sa_flags & SA_SIGINFO) &&
		    (sa.sa_handler == SIG_DFL || sa.sa_handler == SIG_IGN))
			continue;
		if (!(sa.sa_flags & SA_RESTART))
			return false;
	}
	return true;
}

bool tt_signal_restarts(const struct tt_signal_mark *m)
{
	return tt_signal_since(m) ? me.once == m->once : all_restart();
}

/* ---- one connection ---- */

static bool rx_news(struct tt_conn *c)
{
	struct tt_entry *e = c->e;
	uint32_t route = tt_load_relaxed(&e->rx_route);
	uint32_t flags = tt_load_acquire(&c->st.rx->flags);

	if (tt_conn_asked_to_leave(c))
		return true;
	if (route == TT_ROUTE_RING)
		return tt_stream_peek(&c->st, tt_load_relaxed(&e->rx.head)) ||
		       (flags & (TT_STREAM_ENDED | TT_STREAM_DOWN)) ||
		       tt_load_relaxed(&e->shadow) || tt_load_relaxed(&e->rd_shut) ||
		       tt_load_relaxed(&e->reset);
	return route == TT_ROUTE_TCP && (flags & TT_STREAM_UP) && !tt_load_relaxed(&e->up_known);
}

static bool tx_news(struct tt_conn *c)
{
	struct tt_entry *e = c->e;

	if (tt_load_relaxed(&e->reset) || tt_conn_asked_to_leave(c))
		return true;
	/* By TCP the kernel says when there is room, or an end: the wait asks for POLLOUT. */
	if (tt_load_relaxed(&e->tx_route) != TT_ROUTE_RING)
		return false;
	if (tt_load_relaxed(&e->shadow) || tt_load_relaxed(&e->wr_shut))
		return true;
	if (tt_conn_lock_tx(c) < 0)
		return true;
	bool ok = tt_conn_writable(c);

	tt_conn_unlock_tx(c);
	return ok;
}

/* Puts the shadow into the thread's set, unless it lies there from last time. */
static bool watch_shadow(struct tt_conn *c, int fd)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
				 .data.u32 = 0};

	if (me.in_set == c && me.in_set_fd == fd && me.in_set_cookie == c->e->cookie)
		return true;
	/* The one before: gone by itself if it was closed and its number has not come back. */
	if (me.in_set)
		tt_sys.epoll_ctl(me.set, EPOLL_CTL_DEL, me.in_set_fd, NULL);
	me.in_set = NULL;
	if (tt_sys.epoll_ctl(me.set, EPOLL_CTL_ADD, fd, &ev) < 0 && errno != EEXIST)
		return false;
	me.in_set = c;
	me.in_set_fd = fd;
	me.in_set_cookie = c->e->cookie;
	return true;
}

/* By the set. Edges that were missed while nobody waited show as an early return. */
static int sleep_in_set(struct tt_conn *c, int fd, const struct timespec *timeout)
{
	struct epoll_event ev[2];
	int n = tt_sys.epoll_pwait2(me.set, ev, 2, timeout, NULL);

	if (n < 0)
		return -errno;
	for (int i = 0; i < n; i++)
		if (ev[i].data.u32 == 0)
			tt_conn_check_shadow(c, fd);
	return n == 0 ? -EAGAIN : 0;
}

static int sleep_in_poll(struct tt_conn *c, int fd, const struct tt_bell *bell, short events,
			 const struct timespec *timeout)
{
	struct pollfd p[2] = {{fd, events, 0}, {bell->fd, POLLIN, 0}};
	int n = tt_sys.ppoll(p, 2, timeout, NULL);

	if (n < 0)
		return -errno;
	if (p[1].revents)
		tt_bell_reset(bell);
	if (p[0].revents)
		tt_conn_check_shadow(c, fd);
	return n == 0 ? -EAGAIN : 0;
}

/* The kernel is older than the C library, or somebody stands between (valgrind). */
static bool no_epoll_pwait2;

/*
 * While bytes go by TCP the shadow's level counts, which poll sees; on the ring
 * only what changes on it does, and an edge cannot be missed: the first wait
 * after the shadow was put in reports what is there already.
 */
static int sleep_on(struct tt_conn *c, int fd, bool rx, const struct tt_bell *bell, short events,
		    int64_t deadline)
{
	uint32_t route = tt_load_relaxed(rx ? &c->e->rx_route : &c->e->tx_route);
	struct timespec ts, *timeout = NULL;

	if (deadline != INT64_MAX) {
		int64_t left = deadline - tt_now_ns();

		if (left <= 0)
			return -EAGAIN;
		ts.tv_sec = left / TT_NS_PER_SEC;
		ts.tv_nsec = left % TT_NS_PER_SEC;
		timeout = &ts;
	}
	if (c->mode == TT_CONN_ATTACHED && route == TT_ROUTE_RING && me.set >= 0 &&
	    tt_sys.epoll_pwait2 && !tt_load_relaxed(&no_epoll_pwait2) && watch_shadow(c, fd)) {
		int ret = sleep_in_set(c, fd, timeout);

		if (ret != -ENOSYS)
			return ret;
		tt_store_relaxed(&no_epoll_pwait2, true);
	}
	return sleep_in_poll(c, fd, bell, events, timeout);
}

static void on_cancel(void *arg)
{
	struct cleanup *u = arg;

	if (u->by_tcp)
		tt_fetch_add(u->rx ? &u->c->e->rx_sleepers : &u->c->e->tx_sleepers, (uint32_t)-1);
	else
		tt_wait_disarm(u->c, u->rx, !u->rx, u->bell);
}

void tt_wait_abandon(void)
{
	struct cleanup *u = me.asleep;

	me.asleep = NULL;
	me.ring_on_signal = 0;
	if (u)
		on_cancel(u);
}

static int sleep_armed(struct tt_conn *c, int fd, bool rx, short events, int64_t deadline,
		       const struct tt_signal_mark *m)
{
	const struct tt_bell *bell = tt_thread_bell();
	struct cleanup u = {c, rx, bell->id, c->mode != TT_CONN_ATTACHED};
	int err = 0;

	if (u.by_tcp) {
		/* Not on the ring yet, and kept from it while we sleep on the shadow. */
		tt_store_relaxed(&c->e->grant_bell, bell->id);
		tt_fetch_add(rx ? &c->e->rx_sleepers : &c->e->tx_sleepers, 1); /* A1, G1 */
	} else {
		tt_wait_arm(c, rx, !rx, bell->id);
	}
	pthread_cleanup_push(on_cancel, &u);
	me.asleep = &u;
	bool news = u.by_tcp ? tt_load_acquire(&c->e->attached) || tt_load_acquire(&c->e->grant)
		    : rx     ? rx_news(c)
			     : tx_news(c);

	/* Still by this descriptor? tt_conn_keep_file rings those who armed before it. */
	if (!news && tt_conn_fd(c, fd) == fd && tt_sleep_begin(bell->fd, m))
		err = sleep_on(c, fd, rx, bell, events, deadline);
	tt_sleep_end();
	me.asleep = NULL;
	pthread_cleanup_pop(1);
	return err;
}

static int wait_for(struct tt_conn *c, int fd, bool rx, int64_t deadline,
		    const struct tt_signal_mark *m)
{
	bool attached = c->mode == TT_CONN_ATTACHED;

	fd = tt_conn_fd(c, fd);
	if (fd < 0)
		return 0;
	uint64_t asked = tt_ticks(), every = SHADOW_US * tt_ticks_per_us();
	struct tt_spinner sp;

	tt_spin_start(&sp);
	if (attached && rx && tt_spin_hot() && tt_membarrier_ok) {
		/* Nobody else waits and no queue listens: the peer may skip its fence. */
		uint32_t cold = 0;

		tt_cas(&c->st.tx->wait.rx_flags, &cold, TT_WAIT_HOT);
	}
	while (tt_spin_next(&sp)) {
		if (!attached && tt_load_relaxed(&c->e->grant))
			return 0;
		if (tt_signal_since(m))
			return -EINTR;
		if (attached && (rx ? rx_news(c) : tx_news(c))) {
			tt_spin_won(&sp);
			tt_count(rx ? &c->e->rx_spins : &c->e->tx_spins, 1);
			tt_count(&c->mem->totals.spins, 1);
			return 0;
		}
		if (sp.rounds % 16 == 0 && tt_ticks() - asked > every) {
			struct pollfd p = {fd, rx ? POLLIN | POLLRDHUP : POLLOUT, 0};

			asked = tt_ticks();
			if (attached && tt_load_relaxed(&c->e->tx_route) == TT_ROUTE_RING && !rx)
				p.events = POLLRDHUP;
			if (tt_sys.poll(&p, 1, 0) > 0) {
				tt_conn_check_shadow(c, fd);
				return 0;
			}
			if (deadline != INT64_MAX && tt_now_ns() >= deadline)
				return -EAGAIN;
		}
	}
	int64_t t0 = tt_now_ns();
	short events = POLLIN | POLLRDHUP;

	if (!rx)
		events = attached && tt_load_relaxed(&c->e->tx_route) == TT_ROUTE_RING ? POLLRDHUP
										       : POLLOUT;
	int err = sleep_armed(c, fd, rx, events, deadline, m);

	tt_count(rx ? &c->e->rx_sleeps : &c->e->tx_sleeps, 1);
	tt_count(&c->mem->totals.sleeps, 1);
	tt_spin_slept(&sp, tt_now_ns() - t0);
	return err == 0 && tt_signal_since(m) ? -EINTR : err;
}

int tt_wait_rx(struct tt_conn *c, int fd, int64_t deadline_ns, const struct tt_signal_mark *m)
{
	return wait_for(c, fd, true, deadline_ns, m);
}

int tt_wait_tx(struct tt_conn *c, int fd, int64_t deadline_ns, const struct tt_signal_mark *m)
{
	return wait_for(c, fd, false, deadline_ns, m);
}
