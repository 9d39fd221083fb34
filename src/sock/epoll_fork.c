/* SPDX-License-Identifier: MIT */
/*
 * epoll sets across fork.
 *
 * A child inherits E, I and the bell as the parent's open files: to use them
 * would take the parent's events. So a child that uses an inherited set gets
 * one of its own under the same number: what the kernel has registered in E is
 * read from /proc/self/fdinfo and registered again, our interests move to a
 * new queue, bell and I. From then on the two sets change independently, which
 * differs from the kernel only for processes that go on sharing one set.
 */
#include "base/shm.h"
#include "base/sys.h"
#include "sock/epoll_int.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void tt_eset_fork_prepare(void)
{
	tt_lock(&tt_sets_lock);
	for (struct tt_eset *s = tt_sets; s; s = s->next)
		tt_lock(&s->lock);
}

void tt_eset_fork_parent(void)
{
	for (struct tt_eset *s = tt_sets; s; s = s->next)
		tt_unlock(&s->lock);
	tt_unlock(&tt_sets_lock);
}

void tt_eset_fork_child(void)
{
	pthread_mutex_init(&tt_sets_lock, NULL);
	for (struct tt_eset *s = tt_sets; s; s = s->next) {
		pthread_mutex_init(&s->lock, NULL);
		s->sleepers = 0;
		s->inherited = s->inner >= 0;
	}
}

static void copy_registrations(const struct tt_eset *s, int from, int to)
{
	char path[64], line[256];
	int tfd;
	unsigned events;
	uint64_t data;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", from);
	FILE *f = fopen(path, "re");

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "tfd: %d events: %x data: %" SCNx64, &tfd, &events, &data) != 3 ||
		    data == s->mark || data == s->mark + 1)
			continue;
		struct epoll_event ev = {.events = events, .data.u64 = data};

		tt_sys.epoll_ctl(to, EPOLL_CTL_ADD, tfd, &ev);
	}
	if (f)
		fclose(f);
}

void tt_eset_rebuild(struct tt_eset *s, int epfd)
{
	int err = errno;

	tt_lock(&tt_sets_lock);
	tt_lock(&s->lock);
	if (s->inherited) {
		int cloexec = tt_sys.fcntl(epfd, F_GETFD), fresh = tt_sys.epoll_create1(0);

		if (fresh >= 0) {
			copy_registrations(s, epfd, fresh);
			tt_sys.dup3(fresh, epfd, cloexec > 0 ? O_CLOEXEC : 0);
			tt_sys.close(fresh);
		}
		/* The parent's: its waiters in the links, its bell, its I are not ours to end. */
		tt_fd_close(s->inner);
		free(s->cq.links);
		memset(&s->cq, 0, sizeof(s->cq));
		for (struct tt_eset_link *el = s->links; el; el = el->next)
			memset(el->by_slot, 0, sizeof(el->by_slot));
		s->inner = -1;
		s->rings = 0;
		s->inherited = false;
		s->epfd = epfd;
		for (struct tt_interest *i = s->all; i; i = i->next_of_set)
			if (i->ring && tt_eset_to_ring(i) < 0)
				i->ring = false;
	}
	tt_unlock(&s->lock);
	tt_unlock(&tt_sets_lock);
	errno = err;
}
