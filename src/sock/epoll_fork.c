/* SPDX-License-Identifier: MIT */
/*
 * epoll sets across fork. To the kernel a set is an open file, which parent and
 * child share with all that is in it.
 *
 * A child inherits E, I and the bell; to use I and the bell would take the
 * parent's events. So when it first uses an inherited set for connections, and
 *
 *   the parent has ended (a server that forks into the background): the set
 *   becomes the child's, with a queue, a bell and an I of its own;
 *
 *   the parent lives: the set is the kernel's from now on, for both, so that
 *   each sees what the other changes. Its connections go back to TCP and stay
 *   there. Each process finds the word `shared` changed at its next call, or is
 *   rung, and hands over what it has.
 *
 * That a set holds a listener decides nothing yet: the parent may be about to end.
 */
#include "base/clock.h"
#include "base/shm.h"
#include "base/sys.h"
#include "base/usermem.h"
#include "sock/epoll_int.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WORDS 1024u
#define SIFTS 50u	/* milliseconds that a child leaves an owner's bell to it */
static uint32_t *words; /* of the sets that this process makes */
static unsigned words_used;

bool tt_eset_fork_new(struct tt_eset *s)
{
	if (!words || words_used == WORDS) {
		void *p = mmap(NULL, WORDS * sizeof(*words), PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED)
			return false;
		words = p;
		words_used = 0;
	}
	s->shared = &words[words_used++];
	s->owner = tt_proc.pid;
	return true;
}

void tt_eset_fork_prepare(void)
{
	tt_lock(&tt_sets_lock);
	for (struct tt_eset *s = tt_sets; s; s = s->next)
		tt_lock(&s->lock);
}

void tt_eset_fork_parent(void)
{
	for (struct tt_eset *s = tt_sets; s; s = s->next) {
		for (struct tt_interest *i = s->all; i; i = i->next_of_set)
			i->changed = false;
		tt_unlock(&s->lock);
	}
	tt_unlock(&tt_sets_lock);
}

void tt_eset_fork_child(void)
{
	pthread_mutex_init(&tt_sets_lock, NULL);
	for (struct tt_eset *s = tt_sets; s; s = s->next) {
		pthread_mutex_init(&s->lock, NULL);
		s->sleepers = 0;
		s->inherited = true;
	}
	/* The parent goes on using it. */
	words = NULL;
}

/* Calls fn for each of the program's registrations in epfd; it returns false to end it. */
static void each_registration(const struct tt_eset *s, int epfd,
			      bool (*fn)(void *arg, int fd, struct epoll_event *ev), void *arg)
{
	char path[64], line[256];
	bool more = true;
	unsigned events;
	uint64_t data;
	int tfd;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", epfd);
	FILE *f = fopen(path, "re");

	while (f && more && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "tfd: %d events: %x data: %" SCNx64, &tfd, &events, &data) != 3 ||
		    data == s->mark || data == s->mark + 1)
			continue;
		struct epoll_event ev = {.events = events, .data.u64 = data};

		more = fn(arg, tfd, &ev);
	}
	if (f)
		fclose(f);
}

static void forget_ours(struct tt_eset *s)
{
	if (s->inner < 0)
		return;
	tt_sys.epoll_ctl(s->epfd, EPOLL_CTL_DEL, s->cq.bell.fd, NULL);
	tt_sys.epoll_ctl(s->epfd, EPOLL_CTL_DEL, s->inner, NULL);
}

/* The parent has ended: all is ours. tt_sets_lock and set->lock held. */
static void take_over(struct tt_eset *s, int epfd)
{
	s->epfd = epfd;
	forget_ours(s);
	/* The parent's: its waiters in the links, its bell, its I are not ours to end. */
	if (s->inner >= 0)
		tt_fd_close(s->inner);
	free(s->cq.links);
	memset(&s->cq, 0, sizeof(s->cq));
	for (struct tt_eset_link *el = s->links; el; el = el->next)
		memset(el->by_slot, 0, sizeof(el->by_slot));
	s->inner = -1;
	s->rings = 0;
	s->inherited = false;
	s->owner = tt_proc.pid;
	for (struct tt_interest *i = s->all; i; i = i->next_of_set)
		if (i->ring && tt_eset_to_ring(i) < 0)
			i->ring = false;
}

/* Back to TCP, outside of all locks of sets: the peers have to help. */
static void stay_on_tcp(struct tt_eset *s)
{
	unsigned n = 0, room = 0;
	int *fds = NULL;

	tt_lock(&s->lock);
	for (struct tt_interest *i = s->all; i; i = i->next_of_set)
		room++;
	fds = room ? malloc(room * sizeof(*fds)) : NULL;
	for (struct tt_interest *i = s->all; fds && i; i = i->next_of_set)
		fds[n++] = i->fd;
	tt_unlock(&s->lock);
	for (unsigned k = 0; k < n; k++)
		tt_sock_stay_on_tcp(fds[k], TT_REASON_SHARED_SET);
	free(fds);
}

/* Where the kernel has another, it is a child's, and ours if it is the newer. */
static void register_in_kernel(struct tt_eset *s, const struct tt_interest *i)
{
	struct epoll_event ev = {.events = i->events, .data = i->data};

	if (i->off) /* ONESHOT that fired */
		ev.events &= ~(uint32_t)(EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI);
	if (!i->parked) {
		if (tt_sys.epoll_ctl(s->epfd, EPOLL_CTL_ADD, i->fd, &ev) < 0 && errno == EEXIST &&
		    i->changed)
			tt_sys.epoll_ctl(s->epfd, EPOLL_CTL_MOD, i->fd, &ev);
	} else if (i->changed) {
		tt_sys.epoll_ctl(s->epfd, EPOLL_CTL_DEL, i->fd, NULL);
	}
	if (!s->inherited)
		tt_sys.epoll_ctl(s->inner, EPOLL_CTL_DEL, i->fd, NULL);
}

static bool on_tcp(const struct tt_conn *c)
{
	return c->mode != TT_CONN_ATTACHED || tt_load_acquire(&c->e->rx_route) == TT_ROUTE_BACK;
}

/* Everything to the kernel, which all processes that have the set share. */
static void give_up(struct tt_eset *s, int epfd)
{
	tt_lock(&tt_sets_lock);
	tt_lock(&s->lock);
	bool now = !s->kernel;

	s->kernel = true; /* nothing more goes to the ring */
	s->epfd = epfd;
	tt_unlock(&s->lock);
	tt_unlock(&tt_sets_lock);
	if (!now)
		return;
	stay_on_tcp(s);
	tt_lock(&tt_sets_lock);
	tt_lock(&s->lock);
	for (struct tt_interest *i = s->all, *next; i; i = next) {
		next = i->next_of_set;
		if (i->ring)
			register_in_kernel(s, i);
		if (on_tcp(i->conn))
			tt_eset_remove(i);
	}
	if (!s->inherited) {
		forget_ours(s);
		tt_store_release(s->shared, (uint32_t)TT_SET_CONVERTED);
	}
	tt_unlock(&s->lock);
	tt_unlock(&tt_sets_lock);
}

static bool has_connections(struct tt_eset *s)
{
	bool any = false;

	tt_lock(&s->lock);
	for (struct tt_interest *i = s->all; i && !any; i = i->next_of_set)
		any = i->ring || !tt_sock_listens(i->fd);
	tt_unlock(&s->lock);
	return any;
}

static bool owner_lives(const struct tt_eset *s)
{
	return kill(s->owner, 0) == 0 || errno == EPERM;
}

void tt_eset_settle_fork(struct tt_eset *s, int epfd, bool connection)
{
	int err = errno;
	uint32_t own = TT_SET_OWN;

	if (s->inherited && !s->kernel && tt_load_acquire(s->shared) == TT_SET_OWN) {
		if (!connection && !has_connections(s)) {
			errno = err;
			return;
		}
		if (owner_lives(s)) {
			/* Rung, it looks at the word. */
			if (tt_cas(s->shared, &own, TT_SET_SHARED) && s->inner >= 0 &&
			    tt_sys.write(s->cq.bell.fd, &(uint64_t){1}, 8) < 0)
				err = errno;
		} else {
			tt_lock(&tt_sets_lock);
			tt_lock(&s->lock);
			if (s->inherited)
				take_over(s, epfd);
			tt_unlock(&s->lock);
			tt_unlock(&tt_sets_lock);
		}
	}
	if (!s->kernel && tt_load_acquire(s->shared) != TT_SET_OWN)
		give_up(s, epfd);
	errno = err;
}

void tt_eset_settle_nested(void)
{
	for (;;) {
		struct tt_eset *s;

		tt_lock(&tt_sets_lock);
		for (s = tt_sets; s; s = s->next)
			if (s->inherited && s->watched && !s->kernel && !s->asked)
				break;
		if (s)
			s->asked = true;
		tt_unlock(&tt_sets_lock);
		if (!s)
			return;
		tt_eset_settle_fork(s, s->epfd, false);
	}
}

int tt_eset_sift_shared(struct tt_eset *s, struct epoll_event *evs, int n)
{
	int out = 0;

	for (int k = 0; k < n; k++)
		if (evs[k].data.u64 != s->mark && evs[k].data.u64 != s->mark + 1)
			evs[out++] = evs[k];
	if (out < n && s->inherited) {
		/*
		 * For the owner, who takes them out. If it has ended, or is busy
		 * elsewhere for long: at its next call it looks at the word.
		 */
		if (tt_load_acquire(s->shared) == TT_SET_SHARED && owner_lives(s) &&
		    s->sifted++ < SIFTS)
			usleep(1000);
		else
			forget_ours(s);
	}
	return out;
}

/*
 * A peer that was busy when it was asked to go back: what it sends comes with
 * kicks, for the kernel to see; what lay there before is found here.
 */
struct left {
	struct tt_eset *set;
	struct epoll_event *evs;
	int n, max;
};

static bool ready_on_ring(void *arg, int fd, struct epoll_event *ev)
{
	struct left *l = arg;

	for (struct tt_interest *i = l->set->all; i; i = i->next_of_set) {
		if (i->fd != fd)
			continue;
		uint32_t want = ev->events & ~(uint32_t)TT_EPOLL_FLAGS;
		uint32_t got = (uint32_t)(unsigned short)tt_conn_poll(i->conn, fd, (short)want);

		got &= want | EPOLLERR | EPOLLHUP;
		if (got && !tt_user_writable(&l->evs[l->n], sizeof(*l->evs))) {
			l->n = l->n ? l->n : -EFAULT;
			return false;
		}
		if (got)
			l->evs[l->n++] = (struct epoll_event){.events = got, .data = ev->data};
		break;
	}
	return l->n < l->max;
}

int tt_eset_collect_left(struct tt_eset *s, struct epoll_event *evs, int max)
{
	struct left l = {s, evs, 0, max};

	for (;;) {
		struct tt_conn *c = NULL;
		int fd = -1;

		tt_lock(&tt_sets_lock);
		tt_lock(&s->lock);
		for (struct tt_interest *i = s->all, *next; i; i = next) {
			next = i->next_of_set;
			if (on_tcp(i->conn)) {
				tt_eset_remove(i);
			} else if (!i->queued) {
				c = i->conn;
				fd = i->fd;
				i->queued = true; /* asked in this round */
				break;
			}
		}
		tt_unlock(&s->lock);
		tt_unlock(&tt_sets_lock);
		if (!c)
			break;
		if (tt_conn_pin(c, fd)) {
			tt_conn_downgrade(c, fd, TT_REASON_SHARED_SET, TT_NS_PER_SEC / 1000);
			tt_conn_unpin(c);
		}
	}
	tt_lock(&tt_sets_lock);
	tt_lock(&s->lock);
	for (struct tt_interest *i = s->all; i; i = i->next_of_set)
		i->queued = false;
	if (s->all)
		each_registration(s, s->epfd, ready_on_ring, &l);
	tt_unlock(&s->lock);
	tt_unlock(&tt_sets_lock);
	return l.n;
}
