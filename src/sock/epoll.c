/* SPDX-License-Identifier: MIT */
/*
 * epoll sets that hold connections of both kinds.
 *
 * The program's descriptor stays a real epoll set (E). What is the kernel's
 * stays in it, untouched: its events come back as the program registered them.
 * A connection on the ring leaves E; its interest is kept here, so that
 * changing it is no system call, and its readiness is found in two ways:
 *
 *   ring    the set's completion queue (ulc/cq.h) tells which connections to
 *           look at, whatever their number
 *   shadow  lies, edge-triggered, in a second set (I), for the peer's end and
 *           for what still goes by TCP
 *
 * E holds two more descriptors, the queue's bell and I, under a random mark
 * that no program uses: so E itself becomes readable when a sleeper is rung,
 * for whoever waits on it without us or has put it into another set.
 *
 * The ready list is the kernel's: an interest is on it from the moment
 * something may have happened; a wait evaluates those on the list, reports
 * what holds, and keeps level-triggered ones for the next look.
 *
 * A set belongs to the process that made it; its lock is sets_lock for
 * membership (table of sets) and set->lock for the rest. What becomes of it in
 * a child of fork is epoll_fork.c's.
 */
#include "base/clock.h"
#include "base/shm.h"
#include "base/sys.h"
#include "sock/epoll_int.h"
#include "ulc/chan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

pthread_mutex_t tt_sets_lock = PTHREAD_MUTEX_INITIALIZER;
struct tt_eset *tt_sets;

/* ---- life ---- */

void tt_sock_epoll_created(int epfd)
{
	if (epfd < 0 || !tt_sock_active())
		return;
	tt_sock_opened(epfd);
	struct tt_eset *s = calloc(1, sizeof(*s));

	if (!s)
		return; /* everything in it stays the kernel's */
	pthread_mutex_init(&s->lock, NULL);
	s->epfd = epfd;
	s->inner = -1;
	s->refs = 1;
	s->ready_tail = &s->ready;
	if (getrandom(&s->mark, sizeof(s->mark), 0) < 0)
		s->mark = (uintptr_t)s * 0x9e3779b97f4a7c15ull;
	tt_lock(&tt_sets_lock);
	if (!tt_eset_fork_new(s)) {
		tt_unlock(&tt_sets_lock);
		free(s);
		return;
	}
	s->next = tt_sets;
	tt_sets = s;
	tt_unlock(&tt_sets_lock);
	tt_fdtab_lock();
	tt_fd_set(epfd, TT_FD_EPOLL, s);
	tt_fdtab_unlock();
}

/* A set without memory of what is in it must not take connections to the ring. */
struct tt_eset *tt_eset_of(int epfd)
{
	struct tt_slot *sl = tt_fd_slot(epfd);

	if (!sl || tt_load_acquire(&sl->kind) != TT_FD_EPOLL)
		return NULL;
	struct tt_eset *s = tt_load_acquire(&sl->obj);

	if (s && tt_eset_forked(s))
		tt_eset_settle_fork(s, epfd, false);
	return s;
}

void tt_eset_get(struct tt_eset *s)
{
	tt_fetch_add(&s->refs, 1);
}

/* Makes I, the bell, the queue. set->lock held. */
static int open_inner(struct tt_eset *s)
{
	struct epoll_event bell = {.events = EPOLLIN, .data.u64 = s->mark};
	struct epoll_event inner = {.events = EPOLLIN, .data.u64 = s->mark + 1};

	if (s->inner >= 0)
		return 0;
	memset(&s->cq, 0, sizeof(s->cq));
	s->cq.owner = tt_load_relaxed(&tt_proc.mem->id);
	int err = tt_proc_bell(&s->cq.bell);

	if (err < 0)
		return err;
	int in = tt_sys.epoll_create1(EPOLL_CLOEXEC);

	if (in < 0) {
		err = -errno;
		tt_bell_close(&s->cq.bell);
		return err;
	}
	in = tt_fd_high(in);
	if (tt_sys.epoll_ctl(s->epfd, EPOLL_CTL_ADD, s->cq.bell.fd, &bell) < 0 ||
	    tt_sys.epoll_ctl(s->epfd, EPOLL_CTL_ADD, in, &inner) < 0) {
		err = -errno;
		tt_sys.epoll_ctl(s->epfd, EPOLL_CTL_DEL, s->cq.bell.fd, NULL);
		tt_fd_close(in);
		tt_bell_close(&s->cq.bell);
		return err;
	}
	s->inner = in;
	return 0;
}

/* ---- interests ---- */

static struct tt_interest *find_interest(struct tt_eset *s, const struct tt_conn *c, int fd)
{
	for (struct tt_interest *i = c->interests; i; i = i->next_of_conn)
		if (i->set == s && i->fd == fd)
			return i;
	return NULL;
}

void tt_eset_queue(struct tt_interest *i)
{
	if (i->queued || i->off || i->parked)
		return;
	i->queued = true;
	i->next_ready = NULL;
	*i->set->ready_tail = i;
	i->set->ready_tail = &i->next_ready;
}

void tt_eset_unqueue(struct tt_interest *i)
{
	struct tt_eset *s = i->set;

	if (!i->queued)
		return;
	for (struct tt_interest **at = &s->ready; *at; at = &(*at)->next_ready)
		if (*at == i) {
			*at = i->next_ready;
			if (s->ready_tail == &i->next_ready)
				s->ready_tail = at;
			break;
		}
	i->queued = false;
}

/* tt_sets_lock and set->lock held. */
static struct tt_interest *add_interest(struct tt_eset *s, struct tt_conn *c, int fd,
					const struct epoll_event *ev)
{
	struct tt_interest *i = calloc(1, sizeof(*i));

	if (!i)
		return NULL;
	i->set = s;
	i->conn = c;
	i->fd = fd;
	i->events = ev->events;
	i->data = ev->data;
	i->next_of_conn = c->interests;
	i->next_of_set = s->all;
	if (s->all)
		s->all->prev_of_set = i;
	s->all = i;
	tt_store_release(&c->interests, i);
	return i;
}

/* The wait line tells the peer which of our queues to post to. rx_lock taken here. */
static int listen_to(struct tt_conn *c, uint32_t waiter, bool on)
{
	struct tt_wait_line *w = &c->st.tx->wait;
	bool any = false, done = !on;

	if (tt_conn_lock_rx(c) < 0)
		return -EAGAIN;
	for (int k = 0; k < TT_WAIT_CQS; k++) {
		uint32_t at = tt_load_relaxed(&w->rx_cq[k]);

		if (on && !done && at == 0) {
			tt_store_relaxed(&w->rx_cq[k], (uint16_t)waiter);
			done = true;
		} else if (!on && at == waiter) {
			tt_store_relaxed(&w->rx_cq[k], (uint16_t)0);
		}
		any = any || tt_load_relaxed(&w->rx_cq[k]) != 0;
	}
	uint32_t old = tt_load_relaxed(&w->rx_flags), now = old & ~(uint32_t)TT_WAIT_HOT;

	now = any ? now | TT_WAIT_CQ : now & ~(uint32_t)TT_WAIT_CQ;
	/* More queues than places: the peer kicks the shadow, which lies in every I. */
	if (on && !done)
		now |= TT_WAIT_OVERFLOW;
	tt_store_relaxed(&w->rx_flags, now);
	if (old & TT_WAIT_HOT)
		tt_membarrier_global();
	else
		tt_fence();
	tt_conn_unlock_rx(c);
	return 0;
}

static struct tt_interest **slot_list(struct tt_eset *s, struct tt_link *l, uint32_t slot,
				      bool create)
{
	for (struct tt_eset_link **at = &s->links, *el; (el = *at); at = &el->next) {
		if (el->link != l)
			continue;
		/* To the front: the busy ones are asked for again and again. */
		*at = el->next;
		el->next = s->links;
		s->links = el;
		return &el->by_slot[slot];
	}
	struct tt_eset_link *el = create ? calloc(1, sizeof(*el)) : NULL;

	if (!el)
		return NULL;
	el->link = l;
	el->next = s->links;
	s->links = el;
	return &el->by_slot[slot];
}

void tt_eset_forget_link(struct tt_link *l)
{
	tt_lock(&tt_sets_lock);
	for (struct tt_eset *s = tt_sets; s; s = s->next) {
		tt_lock(&s->lock);
		if (s->inner >= 0)
			tt_cq_forget(&s->cq, l, s->inherited);
		for (struct tt_eset_link **at = &s->links; *at; at = &(*at)->next)
			if ((*at)->link == l) {
				struct tt_eset_link *el = *at;

				*at = el->next;
				free(el);
				break;
			}
		tt_unlock(&s->lock);
	}
	tt_unlock(&tt_sets_lock);
}

void tt_eset_on_event(void *set, struct tt_link *l, uint32_t slot)
{
	struct tt_interest **at = slot_list(set, l, slot, false);

	for (struct tt_interest *i = at ? *at : NULL; i; i = i->next_of_slot)
		tt_eset_queue(i);
}

/* Puts an attached connection under our care. set->lock held. */
int tt_eset_to_ring(struct tt_interest *i)
{
	struct tt_eset *s = i->set;
	struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI | EPOLLET,
				 .data.ptr = i};
	int err = s->kernel ? -EXDEV : open_inner(s);

	if (err < 0)
		return err;
	int waiter = tt_cq_attach(&s->cq, i->conn->st.link);

	if (waiter < 0)
		return waiter;
	if (tt_sys.epoll_ctl(s->inner, EPOLL_CTL_ADD, i->fd, &ev) < 0 && errno != EEXIST) {
		err = -errno;
		tt_cq_detach(&s->cq, i->conn->st.link);
		return err;
	}
	struct tt_interest **at = slot_list(s, i->conn->st.link, i->conn->st.slot, true);

	if (!at) {
		tt_sys.epoll_ctl(s->inner, EPOLL_CTL_DEL, i->fd, NULL);
		tt_cq_detach(&s->cq, i->conn->st.link);
		return -ENOMEM;
	}
	i->next_of_slot = *at;
	*at = i;
	listen_to(i->conn, (uint32_t)waiter, true);
	i->ring = true;
	s->rings++;
	tt_eset_queue(i);
	/* A socket is writable when it is put in: that event is none, and must not show in E. */
	if (s->watched)
		tt_eset_take_shadows(s);
	return 0;
}

static uint32_t waiter_of(struct tt_eset *s, const struct tt_link *l)
{
	for (uint32_t k = 0; k < s->cq.nlinks; k++)
		if (s->cq.links[k].link == l)
			return s->cq.links[k].waiter;
	return 0;
}

/* tt_sets_lock and set->lock held. The kernel's registration is the caller's affair. */
void tt_eset_remove(struct tt_interest *i)
{
	struct tt_eset *s = i->set;
	struct tt_interest **at = &i->conn->interests;

	tt_eset_unqueue(i);
	/* What came by fork is the parent's: its queue goes on listening. */
	if (i->ring && !s->inherited) {
		uint32_t waiter = waiter_of(s, i->conn->st.link);
		struct tt_interest **l = slot_list(s, i->conn->st.link, i->conn->st.slot, false);

		while (l && *l && *l != i)
			l = &(*l)->next_of_slot;
		if (l && *l)
			*l = i->next_of_slot;

		if (waiter && i->conn->e)
			listen_to(i->conn, waiter, false);
		tt_cq_detach(&s->cq, i->conn->st.link);
		s->rings--;
	}
	while (*at && *at != i)
		at = &(*at)->next_of_conn;
	if (*at)
		tt_store_release(at, i->next_of_conn);
	if (i->prev_of_set)
		i->prev_of_set->next_of_set = i->next_of_set;
	else
		s->all = i->next_of_set;
	if (i->next_of_set)
		i->next_of_set->prev_of_set = i->prev_of_set;
	free(i);
}

void tt_eset_put(struct tt_eset *s, int fd)
{
	if (tt_fetch_add(&s->refs, (uint32_t)-1) != 1) {
		if (s->epfd == fd)
			s->epfd = tt_fd_other(s, fd);
		return;
	}
	tt_lock(&tt_sets_lock);
	tt_lock(&s->lock);
	while (s->all)
		tt_eset_remove(s->all);
	for (struct tt_eset **at = &tt_sets; *at; at = &(*at)->next)
		if (*at == s) {
			*at = s->next;
			break;
		}
	if (s->inner >= 0) {
		tt_fd_close(s->inner);
		if (!s->inherited)
			tt_cq_fini(&s->cq);
		s->inner = -1;
	}
	for (struct tt_eset_link *el = s->links, *next; el; el = next) {
		next = el->next;
		free(el);
	}
	s->links = NULL;
	tt_unlock(&s->lock);
	tt_unlock(&tt_sets_lock);
	/* A thread may still wait in it; sets are few, their memory is kept. */
}

void tt_eset_conn_closed(struct tt_conn *c, int fd, bool last)
{
	if (!tt_load_acquire(&c->interests))
		return;
	tt_lock(&tt_sets_lock);
	for (struct tt_interest *i = c->interests, *next; i; i = next) {
		next = i->next_of_conn;
		/* A copy keeps the open file, and with it the registration, alive. */
		if (i->fd != fd && !last)
			continue;
		if (!last)
			continue;
		struct tt_eset *s = i->set;

		tt_lock(&s->lock);
		/* Out of I before i is freed: events of I carry its address. */
		if (i->ring && !s->inherited)
			tt_sys.epoll_ctl(s->inner, EPOLL_CTL_DEL, i->fd, NULL);
		/* A claim under way holds the file, and with it what the program registered. */
		else if (!i->ring && i->fd == fd && c->e && tt_load_acquire(&c->e->claimed))
			tt_sys.epoll_ctl(s->epfd, EPOLL_CTL_DEL, fd, NULL);
		tt_eset_remove(i);
		tt_unlock(&s->lock);
	}
	tt_unlock(&tt_sets_lock);
}

/*
 * Something may have become ready: a sleeper in the kernel's wait looks again;
 * a watcher from outside must see E readable only if it is. set->lock held.
 */
static void stir(struct tt_eset *s)
{
	if (s->inner < 0 || s->kernel)
		return;
	if (s->sleepers)
		tt_bell_ring(s->cq.owner, s->cq.bell.id);
	else if (s->watched)
		tt_eset_refresh(s);
}

void tt_eset_conn_claimed(struct tt_conn *c)
{
	if (!tt_load_acquire(&c->interests))
		return;
	tt_lock(&tt_sets_lock);
	struct tt_interest *i = c->interests;

	/* The bell of one of its sets is enough: whoever is woken attaches for all. */
	if (i) {
		tt_lock(&i->set->lock);
		if (open_inner(i->set) == 0) {
			i->set->claimed = true;
			tt_store_release(&c->e->grant_bell, i->set->cq.bell.id);
		}
		tt_unlock(&i->set->lock);
	}
	tt_unlock(&tt_sets_lock);
}

void tt_eset_conn_attached(struct tt_conn *c, int fd)
{
	(void)fd;
	tt_fence(); /* E1, in ctl_add: the mode is set */
	if (!tt_load_acquire(&c->interests))
		return;
	tt_lock(&tt_sets_lock);
	for (struct tt_interest *i = c->interests; i; i = i->next_of_conn) {
		struct tt_eset *s = i->set;

		tt_lock(&s->lock);
		if (!i->ring) {
			if (tt_eset_to_ring(i) == 0) {
				tt_sys.epoll_ctl(s->epfd, EPOLL_CTL_DEL, i->fd, NULL);
				stir(s);
			}
		}
		tt_unlock(&s->lock);
	}
	tt_unlock(&tt_sets_lock);
}

void tt_eset_conn_changed(struct tt_conn *c)
{
	if (!tt_load_acquire(&c->interests))
		return;
	tt_lock(&tt_sets_lock);
	for (struct tt_interest *i = c->interests; i; i = i->next_of_conn) {
		tt_lock(&i->set->lock);
		if (i->ring) {
			tt_eset_queue(i);
			stir(i->set);
		}
		tt_unlock(&i->set->lock);
	}
	tt_unlock(&tt_sets_lock);
}

/* ---- epoll_ctl ---- */

static bool valid_exclusive(const struct epoll_event *ev)
{
	const uint32_t allowed =
		EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE;

	return !(ev->events & EPOLLEXCLUSIVE) || !(ev->events & ~allowed);
}

/*
 * Programs delete an interest and add it again with every request: a deleted
 * one stays where it is, parked, until its descriptor is closed.
 */
static int ctl_ring(struct tt_eset *s, struct tt_interest *i, int op, const struct epoll_event *ev)
{
	if (i->parked != (op == EPOLL_CTL_ADD))
		return i->parked ? -ENOENT : -EEXIST;
	switch (op) {
	case EPOLL_CTL_ADD:
	case EPOLL_CTL_MOD:
		if (op == EPOLL_CTL_MOD && ((ev->events | i->events) & EPOLLEXCLUSIVE))
			return -EINVAL;
		if (!valid_exclusive(ev))
			return -EINVAL;
		i->parked = false;
		i->changed = true;
		i->events = ev->events;
		i->data = ev->data;
		i->off = false;
		i->waiting = false;
		tt_eset_queue(i);
		if (s->sleepers || s->watched)
			stir(s);
		return 0;
	default:
		tt_eset_unqueue(i);
		i->parked = true;
		i->changed = true;
		if (s->watched)
			stir(s);
		return 0;
	}
}

/* Returns -EAGAIN when it is the kernel that has to be asked; i is noted then. */
static int ctl_add(struct tt_eset *s, struct tt_conn *c, int fd, struct epoll_event *ev)
{
	if (!valid_exclusive(ev))
		return -EINVAL;
	struct tt_interest *i = add_interest(s, c, fd, ev);

	if (!i)
		return -ENOMEM;
	tt_fence(); /* E1: put in, then look at the mode; who attaches sets it, then looks for i */
	if (tt_load_acquire(&c->mode) != TT_CONN_ATTACHED)
		return -EAGAIN;
	int err = tt_eset_to_ring(i);

	if (err < 0)
		tt_eset_remove(i);
	else
		stir(s);
	return err;
}

/* The kernel did not want it. */
static void take_back(struct tt_eset *s, struct tt_conn *c, int fd)
{
	tt_lock(&tt_sets_lock);
	tt_lock(&s->lock);
	struct tt_interest *i = find_interest(s, c, fd);

	if (i && !i->ring)
		tt_eset_remove(i);
	tt_unlock(&s->lock);
	tt_unlock(&tt_sets_lock);
}

int tt_sock_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	struct tt_eset *s = tt_eset_of(epfd);
	struct tt_conn *c = s ? tt_fd_conn(fd) : NULL;
	int err;

	if (s && op == EPOLL_CTL_ADD && ev && (ev->events & EPOLLEXCLUSIVE))
		s->exclusive = true;
	if (c && s->inherited && op == EPOLL_CTL_ADD && ev)
		tt_eset_settle_fork(s, epfd, !tt_sock_listens(fd));
	if (c && s->kernel && op == EPOLL_CTL_ADD)
		tt_sock_stay_on_tcp(fd, TT_REASON_SHARED_SET);
	if (!c || s->kernel || c->mode == TT_CONN_FALLBACK || (op != EPOLL_CTL_DEL && !ev) ||
	    (op != EPOLL_CTL_ADD && op != EPOLL_CTL_MOD && op != EPOLL_CTL_DEL)) {
		struct tt_slot *sl = tt_fd_slot(fd);

		/* A set inside a set: the inner one must be readable by itself. */
		if (s && sl && sl->kind == TT_FD_EPOLL && op == EPOLL_CTL_ADD)
			tt_eset_watched(fd);
		return tt_sys.epoll_ctl(epfd, op, fd, ev) < 0 ? -errno : 0;
	}
	/*
	 * The kernel is asked with the set's lock alone, or threads with sets of
	 * their own would wait for each other's system calls.
	 */
	tt_lock(&tt_sets_lock);
	tt_lock(&s->lock);
	struct tt_interest *i = find_interest(s, c, fd);
	bool ask = false, added = false;

	if (i && i->ring) {
		err = ctl_ring(s, i, op, ev);
	} else if (!i && op == EPOLL_CTL_ADD) {
		err = ctl_add(s, c, fd, ev);
		ask = added = err == -EAGAIN;
	} else if (!i && c->mode == TT_CONN_ATTACHED) {
		err = -ENOENT;
	} else {
		ask = true;
		if (i && op == EPOLL_CTL_DEL)
			tt_eset_remove(i);
	}
	tt_unlock(&tt_sets_lock);
	if (ask)
		err = tt_sys.epoll_ctl(s->epfd, op, fd, ev) < 0 ? -errno : 0;
	if (ask && err == 0 && i && op == EPOLL_CTL_MOD) {
		i->events = ev->events;
		i->data = ev->data;
	}
	tt_unlock(&s->lock);
	if (added && err < 0)
		take_back(s, c, fd);
	return err;
}
