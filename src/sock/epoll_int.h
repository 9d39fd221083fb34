/* SPDX-License-Identifier: MIT */
/* What epoll.c, epoll_wait.c and epoll_fork.c share. The note is in epoll.c. */
#ifndef TT_SOCK_EPOLL_INT_H
#define TT_SOCK_EPOLL_INT_H

#include "sock/sock.h"
#include "ulc/bell.h"
#include "ulc/cq.h"

/* Of epoll_event.events: those that are no readiness. */
#define TT_EPOLL_FLAGS (EPOLLET | EPOLLONESHOT | EPOLLEXCLUSIVE | EPOLLWAKEUP)

struct tt_interest {
	struct tt_eset *set;
	struct tt_conn *conn;
	int fd;
	uint32_t events; /* as registered */
	epoll_data_t data;
	bool ring;    /* ours; else in E */
	bool off;     /* ONESHOT that fired */
	bool parked;  /* deleted by the program, kept to be added again without the kernel */
	bool queued;  /* on the ready list */
	bool waiting; /* asked to hear of room */
	bool changed; /* by us, since the last fork */
	struct tt_interest *next_of_conn;
	struct tt_interest *next_of_set, *prev_of_set;
	struct tt_interest *next_ready;
	struct tt_interest *next_of_slot;
};

/* The interests of a set on one link, by slot. */
struct tt_eset_link {
	struct tt_link *link;
	struct tt_eset_link *next;
	struct tt_interest *by_slot[TT_LINK_MAX_SLOTS];
};

struct tt_eset {
	pthread_mutex_t lock;
	int epfd;  /* E: one of its descriptors */
	int inner; /* I; -1 until the first connection on the ring */
	uint32_t refs;
	uint32_t rings;	    /* interests that are ours */
	uint32_t sleepers;  /* threads inside the kernel's wait */
	bool claimed;	    /* holds connections that wait for a grant */
	bool watched;	    /* somebody may wait on E from outside */
	bool exclusive;	    /* something was registered with EPOLLEXCLUSIVE */
	uint64_t mark;	    /* data of the bell; mark + 1: of I */
	uint64_t kernel_at; /* ticks of the last look at E */
	uint32_t touched;   /* tt_kernel_touched at that look */
	struct tt_cq cq;
	struct tt_eset_link *links;
	bool inherited; /* by fork: to be made this process's own, or all the kernel's, before use */
	bool kernel;	/* shared by processes that use it: nothing in it is on the ring */
	uint32_t *shared; /* TT_SET_*, shared by fork; a child sets SHARED, the owner CONVERTED */
	uint32_t sifted;
	bool asked;  /* inherited and in other sets: settled as far as it can be */
	pid_t owner; /* whose queue, bell and I these are */
	struct tt_interest *all;
	struct tt_interest *ready, **ready_tail;
	struct tt_eset *next;
};

enum { TT_SET_OWN, TT_SET_SHARED, TT_SET_CONVERTED }; /* the last: by its owner too */

/* All sets of this process; sets_lock guards the list and who is in which set. */
extern pthread_mutex_t tt_sets_lock;
extern struct tt_eset *tt_sets;

/* The set behind epfd, NULL: the kernel's alone. What fork did to it is settled (epoll_fork.c). */
struct tt_eset *tt_eset_of(int epfd);

/* set->lock held for all of these. */
void tt_eset_queue(struct tt_interest *i);
void tt_eset_unqueue(struct tt_interest *i);
int tt_eset_to_ring(struct tt_interest *i);
void tt_eset_on_event(void *set, struct tt_link *l, uint32_t slot);
/* What holds of an interest now, as it is to be reported. */
uint32_t tt_eset_evaluate(struct tt_interest *i);
/* Events of I: the kernel has news of some shadows. */
void tt_eset_take_shadows(struct tt_eset *s);
/* Makes E readable or not, for watchers, by what holds now. */
void tt_eset_refresh(struct tt_eset *s);
/* Who waits from outside, or sleeps, finds E readable if and only if it is. */
void tt_eset_settle(struct tt_eset *s);

/* A set of this process begins: memory for its word. tt_sets_lock held. False: none. */
bool tt_eset_fork_new(struct tt_eset *s);
/* An inherited set is used, or one that a child uses too. No lock held. */
void tt_eset_settle_fork(struct tt_eset *s, int epfd, bool connection);
static inline bool tt_eset_forked(const struct tt_eset *s)
{
	return s->inherited || (tt_load_relaxed(s->shared) != TT_SET_OWN && !s->kernel);
}
/* Before a wait that inherited sets inside of others may end. No lock held. */
void tt_eset_settle_nested(void);
/* Takes its leave of i. tt_sets_lock and set->lock held; the kernel's registration is the caller's. */
void tt_eset_remove(struct tt_interest *i);
/* Events of a set that is the kernel's alone: without ours. Returns how many are left. */
int tt_eset_sift_shared(struct tt_eset *s, struct epoll_event *evs, int n);
/* Connections in it that are on the ring still: those that are ready. */
int tt_eset_collect_left(struct tt_eset *s, struct epoll_event *evs, int max);

#endif
