/* SPDX-License-Identifier: MIT */
/*
 * Control connections. A connection belongs to a family of processes and is
 * shared by them, so a message that cannot be understood is refused, but the
 * connection stays: its other users did nothing wrong.
 *
 * A request that has an answer brings the socket for it as its first
 * descriptor. Answers are sent without waiting and dropped when that fails.
 */
#include "base/fdpass.h"
#include "base/shm.h"
#include "daemon_int.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Messages that one connection may send before others get their turn. */
#define TURN 64
/* Closes that may wait at a time for sockets that linger. */
#define MAX_LINGERING 16

static uint32_t lingering;

static void *close_lingering(void *arg)
{
	close((int)(intptr_t)arg);
	tt_fetch_add(&lingering, (uint32_t)-1);
	return NULL;
}

/*
 * When the client has closed its own descriptor meanwhile, ours is the last
 * one, and the close may wait for a socket with SO_LINGER: that is done in a
 * thread. With too many of them the option is taken away instead.
 */
void tt_close_foreign(int fd)
{
	static const struct linger off;
	struct linger l;
	socklen_t len = sizeof(l);
	pthread_t t;

	if (fd < 0)
		return;
	if (getsockopt(fd, SOL_SOCKET, SO_LINGER, &l, &len) == 0 && l.l_onoff && l.l_linger > 0) {
		if (tt_load_relaxed(&lingering) < MAX_LINGERING) {
			tt_fetch_add(&lingering, 1u);
			if (pthread_create(&t, NULL, close_lingering, (void *)(intptr_t)fd) == 0) {
				pthread_detach(t);
				return;
			}
			tt_fetch_add(&lingering, (uint32_t)-1);
		}
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &off, sizeof(off));
	}
	close(fd);
}

/* What came with a message; descriptors are closed after it unless taken (-1). */
struct request {
	struct tt_conn *conn;
	struct tt_ctl_msg m;
	int fds[TT_FDPASS_MAX];
	int nfds;
	bool refused;
};

__attribute__((format(printf, 3, 4))) static void refuse(struct tt_daemon *d, struct request *r,
							 const char *fmt, ...)
{
	char text[160];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	r->refused = true;
	tt_daemon_refuse(d, r->conn->pid, "%s", text);
}

static void answer(struct request *r, int status, uint64_t a, uint64_t b, int fd)
{
	struct tt_ctl_msg m = tt_ctl_msg(TT_CTL_ANSWER, a, b, 0, 0);

	m.status = status;
	tt_fdpass_send(r->fds[0], &m, sizeof(m), &fd, fd >= 0 ? 1 : 0, MSG_DONTWAIT);
}

/* The side that a message speaks for; it must be one of its connection's. */
static struct tt_party *own_party(struct tt_daemon *d, struct request *r)
{
	for (int i = 0; i < r->conn->nparties; i++)
		if (r->conn->parties[i]->id == r->m.arg[0])
			return r->conn->parties[i];
	refuse(d, r, "side %llu is not of this connection", (unsigned long long)r->m.arg[0]);
	return NULL;
}

static void on_hello(struct tt_daemon *d, struct request *r)
{
	uint32_t id = 0;
	int err = r->m.arg[0] > UINT32_MAX
			  ? -EINVAL
			  : tt_party_hello(d, r->conn, (uint32_t)r->m.arg[0], &r->fds[1], &id);

	if (err < 0)
		refuse(d, r, "HELLO: %s", strerror(-err));
	answer(r, err, id, 0, -1);
}

static void on_claim(struct tt_daemon *d, struct request *r)
{
	struct tt_party *p = own_party(d, r);

	if (!p)
		return;
	int err = tt_claim_add(d, p, r->m.arg[1], (uint32_t)r->m.arg[2], &r->fds[0]);

	if (err < 0)
		refuse(d, r, "CLAIM of entry %llu: %s", (unsigned long long)r->m.arg[1],
		       strerror(-err));
}

static void on_release(struct tt_daemon *d, struct request *r)
{
	struct tt_party *p = own_party(d, r);

	if (!p)
		return;
	if (r->m.arg[1] >= TT_SIDE_ENTRIES) {
		refuse(d, r, "RELEASE of entry %llu", (unsigned long long)r->m.arg[1]);
		return;
	}
	tt_ended_note(d, p, (uint32_t)r->m.arg[1], (uint32_t)r->m.arg[2]);
	struct tt_claim *c = tt_claim_find(p, r->m.arg[1]);

	/* Not there: it was found dead before, or was of another daemon. */
	if (c && c->generation == (uint32_t)r->m.arg[2] && c->cookie == r->m.arg[3])
		tt_claim_release(d, c);
}

/* A process has closed its last descriptor of a connection that others may hold too. */
static void on_left(struct tt_daemon *d, struct request *r)
{
	struct tt_party *p = own_party(d, r);

	if (p)
		tt_reap_after_exit(d, p);
}

static void on_bell(struct tt_daemon *d, struct request *r)
{
	struct tt_party *p = own_party(d, r);

	if (!p)
		return;
	int err = -EINVAL;

	if (r->m.arg[1] && r->m.arg[1] <= UINT32_MAX && r->m.arg[2] && r->m.arg[2] <= INT32_MAX)
		err = tt_bell_add(d, p, (uint32_t)r->m.arg[1], (pid_t)r->m.arg[2], &r->fds[0]);
	if (err < 0)
		refuse(d, r, "BELL %llu: %s", (unsigned long long)r->m.arg[1], strerror(-err));
}

static void on_get_link(struct tt_daemon *d, struct request *r)
{
	struct tt_party *p = own_party(d, r);
	struct tt_dlink *l = tt_dlink_find(d, r->m.arg[1]);

	if (!p || !l || (l->party_id[0] != p->id && l->party_id[1] != p->id)) {
		answer(r, p ? -ENOENT : -EPERM, 0, 0, -1);
		return;
	}
	answer(r, 0, l->party_id[l->party_id[0] == p->id], l->slots.nslots, l->fd);
}

static void on_get_bell(struct tt_daemon *d, struct request *r)
{
	struct tt_party *p = own_party(d, r), *owner = tt_party_find(d, r->m.arg[1]);
	uint64_t id = r->m.arg[2];

	if (!p || !owner || id > UINT32_MAX || !tt_parties_linked(d, p, owner)) {
		answer(r, p ? -ENOENT : -EPERM, 0, 0, -1);
		return;
	}
	int fd = tt_bell_find(d, owner, (uint32_t)id);

	if (fd < 0) {
		/* Its owner may have sent it, and we not have come to it. */
		tt_conns_drain(d, owner, r->conn);
		owner = tt_party_find(d, r->m.arg[1]);
		fd = owner ? tt_bell_find(d, owner, (uint32_t)id) : -ENOENT;
	}
	answer(r, fd < 0 ? -ENOENT : 0, 0, 0, fd);
}

static void on_find(struct tt_daemon *d, struct request *r)
{
	struct tt_party *p = own_party(d, r);

	if (!p) {
		answer(r, -EPERM, 0, 0, -1);
		return;
	}
	uint64_t cookie = tt_sock_cookie(r->fds[1]);
	struct tt_claim *c = cookie ? tt_matcher_by_cookie(&d->matcher, cookie) : NULL;

	if (c)
		answer(r, 0, c->entry, c->party->id, c->party->fd);
	else
		answer(r, -ENOENT, 0, 0, -1);
}

static void on_report(struct tt_daemon *d, struct request *r)
{
	/* What was said before this question belongs into its answer. */
	tt_conns_drain(d, NULL, r->conn);
	int fd = r->m.type == TT_CTL_SS ? tt_report_ss(d, r->m.arg[0], r->m.arg[1])
					: tt_report_status(d);

	answer(r, fd < 0 ? fd : 0, 0, 0, fd);
	if (fd >= 0)
		close(fd);
}

static void on_down(struct tt_daemon *d, struct request *r)
{
	tt_log(TT_LOG_INFO, "told to end by pid %d", r->conn->pid);
	d->stop = true;
	/* No new client shall find us once the answer is out. */
	unlink("ctl");
	answer(r, 0, 0, 0, -1);
}

static const struct handler {
	void (*fn)(struct tt_daemon *d, struct request *r);
	const char *name;
	int nfds;
} handlers[] = {
	[TT_CTL_HELLO] = {on_hello, "HELLO", 2},
	[TT_CTL_CLAIM] = {on_claim, "CLAIM", 1},
	[TT_CTL_RELEASE] = {on_release, "RELEASE", 0},
	[TT_CTL_LEFT] = {on_left, "LEFT", 0},
	[TT_CTL_BELL] = {on_bell, "BELL", 1},
	[TT_CTL_GET_LINK] = {on_get_link, "GET_LINK", 1},
	[TT_CTL_GET_BELL] = {on_get_bell, "GET_BELL", 1},
	[TT_CTL_FIND] = {on_find, "FIND", 2},
	[TT_CTL_STATUS] = {on_report, "STATUS", 1},
	[TT_CTL_SS] = {on_report, "SS", 1},
	[TT_CTL_DOWN] = {on_down, "DOWN", 1},
};
#define NHANDLERS (sizeof(handlers) / sizeof(handlers[0]))

static void dispatch(struct tt_daemon *d, struct request *r, size_t bytes)
{
	const struct tt_ctl_msg *m = &r->m;

	if (bytes != sizeof(*m)) {
		refuse(d, r, "%zu bytes are no message", bytes);
		return;
	}
	if (m->magic != TT_CTL_MAGIC || m->version != TT_CTL_VERSION) {
		refuse(d, r, "magic %#x, version %u: not ours", m->magic, m->version);
		return;
	}
	if (m->type >= NHANDLERS || !handlers[m->type].fn) {
		refuse(d, r, "unknown type %u", m->type);
		return;
	}
	if (handlers[m->type].nfds != r->nfds) {
		refuse(d, r, "%s with %d descriptors", handlers[m->type].name, r->nfds);
		return;
	}
	handlers[m->type].fn(d, r);
}

/* A message of no bytes looks like the end of the connection; the kernel knows which. */
static bool at_end(int fd)
{
	struct pollfd p = {fd, POLLRDHUP, 0};

	return poll(&p, 1, 0) != 0;
}

/* Handles one message. False: nothing more for now, or the connection is closed. */
static bool take_one(struct tt_daemon *d, struct tt_conn *c)
{
	struct request r = {.conn = c};
	ssize_t n = tt_fdpass_recv(c->src.fd, &r.m, sizeof(r.m), r.fds, &r.nfds, MSG_DONTWAIT);

	if (n == -EAGAIN)
		return false;
	if (n == -EMSGSIZE) {
		refuse(d, &r, "too long, or too many descriptors");
		return true;
	}
	if (n < 0 || (n == 0 && at_end(c->src.fd))) {
		for (int i = 0; i < r.nfds && n == 0; i++)
			tt_close_foreign(r.fds[i]);
		tt_conn_close(d, c);
		return false;
	}
	dispatch(d, &r, (size_t)n);
	for (int i = 0; i < r.nfds; i++)
		tt_close_foreign(r.fds[i]);
	return c->src.fd >= 0 && !d->stop;
}

static void conn_ready(struct tt_daemon *d, struct tt_source *s, uint32_t events)
{
	struct tt_conn *c = (struct tt_conn *)s;

	for (int i = 0; i < TURN && take_one(d, c); i++)
		;
}

static bool is_of(const struct tt_conn *c, const struct tt_party *p)
{
	for (int i = 0; i < c->nparties; i++)
		if (c->parties[i] == p)
			return true;
	return false;
}

void tt_conns_drain(struct tt_daemon *d, const struct tt_party *party, const struct tt_conn *but)
{
	/* What is read here may ask for the same: once is enough. */
	if (d->draining)
		return;
	d->draining = true;
	for (struct tt_conn *c = d->conns, *next; c; c = next) {
		next = c->next;
		if (c == but || (party && !is_of(c, party)))
			continue;
		for (int i = 0; i < 4 * TURN && take_one(d, c); i++)
			;
	}
	d->draining = false;
}

void tt_conn_close(struct tt_daemon *d, struct tt_conn *c)
{
	struct tt_party *parties[TT_MAX_CONN_PARTIES];
	int n = c->nparties;

	memcpy(parties, c->parties, sizeof(parties));
	c->nparties = 0;
	tt_list_drop(d->conns, c);
	d->nconns--;
	tt_source_drop(d, &c->src);
	for (int i = 0; i < n; i++)
		tt_party_put(d, parties[i]);
}

static void admit(struct tt_daemon *d, int fd)
{
	struct ucred who = {0};
	socklen_t len = sizeof(who);
	struct tt_conn *c;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0 || who.uid != geteuid()) {
		tt_daemon_refuse(d, who.pid, "a connection of user %u", who.uid);
		goto refused;
	}
	if (d->nconns >= TT_MAX_CONNS) {
		tt_daemon_refuse(d, who.pid, "too many control connections");
		goto refused;
	}
	c = calloc(1, sizeof(*c));
	if (!c)
		goto refused;
	c->pid = who.pid;
	c->src.ready = conn_ready;
	if (tt_source_add(d, &c->src, fd, EPOLLIN | EPOLLRDHUP) < 0) {
		free(c);
		goto refused;
	}
	tt_list_push(d->conns, c);
	d->nconns++;
	d->stats.accepted++;
	return;
refused:
	close(fd);
}

void tt_listener_ready(struct tt_daemon *d, struct tt_source *s, uint32_t events)
{
	for (int i = 0; i < TURN; i++) {
		int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			admit(d, fd);
			continue;
		}
		if ((errno != EMFILE && errno != ENFILE) || d->spare < 0)
			return;
		/* Out of descriptors: turn the client away, or we would be woken for it for ever. */
		close(d->spare);
		fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0)
			close(fd);
		d->spare = eventfd(0, EFD_CLOEXEC);
		tt_daemon_refuse(d, 0, "no descriptors are left for another connection");
	}
}
