/* SPDX-License-Identifier: MIT */
/*
 * Receiving on a connection, whichever way its bytes come; the note is in
 * send.c. The border between TCP and the ring is learned here.
 */
#include "sock/io_int.h"

#include "base/sys.h"
#include "ulc/chan.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* ---- going over ---- */

/* rx_lock held: bytes that TCP holds for us, and our position in them. */
static bool tcp_position(int fd, uint64_t *ret_pos)
{
	struct tt_tcp_counts before, after;
	int inq;

	/* Bytes may arrive between the two questions: ask until they agree. */
	for (int i = 0; i < 100; i++) {
		if (!tt_tcp_counts(fd, &before) || tt_sys.ioctl(fd, FIONREAD, &inq) < 0 ||
		    !tt_tcp_counts(fd, &after))
			return false;
		if (before.received == after.received) {
			*ret_pos = before.received - (uint64_t)inq;
			return true;
		}
	}
	return false;
}

/*
 * rx_lock held: the peer has gone over; learn how much comes by TCP before.
 * over says how many bytes past it were just read (kicks, which are no data).
 */
static int learn_up(struct tt_conn *c, int fd, size_t just_read, size_t *ret_over)
{
	struct tt_entry *e = c->e;
	uint64_t up = tt_load_acquire(&c->st.rx->up_pos), pos;

	*ret_over = 0;
	if (e->tcp_pos_known)
		pos = e->tcp_pos;
	else if (!tcp_position(fd, &pos))
		return -EPROTO;
	if (pos > up) {
		uint64_t over = pos - up;

		if (over > just_read)
			return -EPROTO;
		*ret_over = (size_t)over;
		e->kicks_dropped += (uint32_t)over;
		e->up_left = 0;
	} else {
		e->up_left = up - pos;
	}
	e->up_known = 1;
	if (!e->up_left)
		tt_store_release(&e->rx_route, TT_ROUTE_RING);
	return 0;
}

void tt_conn_count_from_here(struct tt_conn *c, int fd)
{
	struct tt_entry *e = c->e;

	if (tt_conn_lock_rx(c) < 0)
		return;
	if (!e->tcp_pos_known && e->rx_route == TT_ROUTE_TCP && !e->up_known)
		e->tcp_pos_known = tcp_position(fd, &e->tcp_pos);
	tt_conn_unlock_rx(c);
}

bool tt_conn_rx_ended(struct tt_conn *c, int fd)
{
	struct tt_entry *e = c->e;
	uint32_t flags = tt_load_acquire(&c->st.rx->flags);
	uint32_t route = tt_load_acquire(&e->rx_route);
	int arrived = 0;

	/* What the peer sent by TCP has its end there too. */
	if (!(flags & TT_STREAM_ENDED) || (flags & TT_STREAM_DOWN))
		return false;
	if (route == TT_ROUTE_RING)
		return true;
	/* The ring follows, and in it the end; but not before all that comes by TCP is here. */
	return route == TT_ROUTE_TCP && tt_load_relaxed(&e->up_known) &&
	       tt_sys.ioctl(fd, FIONREAD, &arrived) == 0 &&
	       (uint64_t)arrived >= tt_load_relaxed(&e->up_left);
}

void tt_sock_note_up(struct tt_conn *c, int fd)
{
	size_t over;

	if (tt_conn_lock_rx(c) < 0)
		return;
	if (c->e->rx_route == TT_ROUTE_TCP && !c->e->up_known &&
	    (tt_load_acquire(&c->st.rx->flags) & TT_STREAM_UP))
		learn_up(c, fd, 0, &over);
	tt_conn_unlock_rx(c);
}

/* ---- receiving ---- */

static ssize_t kernel_recv(struct tt_conn *c, int fd, const struct iovec *iov, int iovcnt,
			   size_t skip, size_t max, int flags)
{
	struct iovec *part = TT_IOV_ROOM(iovcnt);
	struct msghdr mh = {.msg_iov = part};

	mh.msg_iovlen = (size_t)tt_iov_slice(iov, iovcnt, skip, max, part);
	int saved = errno;
	ssize_t n = tt_sys.recvmsg(fd, &mh, flags);

	if (n < 0) {
		n = -errno;
		errno = saved;
		return n;
	}
	if (!(flags & MSG_PEEK))
		tt_conn_count_tcp(c, (size_t)n, false);
	return n;
}

/* rx_lock held, route TCP: by the kernel, up to where the ring begins. */
static ssize_t recv_before_ring(struct tt_conn *c, int fd, const struct iovec *iov, int iovcnt,
				size_t skip, int flags)
{
	struct tt_entry *e = c->e;
	bool attached = c->mode == TT_CONN_ATTACHED;
	size_t over;

	if (attached && !e->up_known && (tt_load_acquire(&c->st.rx->flags) & TT_STREAM_UP) &&
	    learn_up(c, fd, 0, &over) < 0)
		return -EPROTO;
	if (e->rx_route == TT_ROUTE_RING)
		return -EAGAIN;
	bool bounded = e->up_known;
	ssize_t n = kernel_recv(c, fd, iov, iovcnt, skip, bounded ? e->up_left : SSIZE_MAX,
				flags | MSG_DONTWAIT);

	if (n > 0 && !(flags & MSG_PEEK))
		e->tcp_pos += (uint64_t)n;

	/* The peer went over and ended after we looked: the end is not here but in the ring. */
	if (n <= 0 && n != -EAGAIN && !bounded && tt_load_acquire(&e->attached)) {
		if (!attached)
			return -EAGAIN;
		if (tt_load_acquire(&c->st.rx->flags) & TT_STREAM_UP) {
			if (learn_up(c, fd, 0, &over) < 0)
				return -EPROTO;
			/* An end before the ring begins: the rest died with the peer. */
			return e->rx_route == TT_ROUTE_RING ? -EAGAIN : n;
		}
	}
	if (n <= 0 || (flags & MSG_PEEK))
		return n;
	if (bounded) {
		e->up_left -= (uint64_t)n;
		if (!e->up_left)
			tt_store_release(&e->rx_route, TT_ROUTE_RING);
	} else if (attached && (tt_load_acquire(&c->st.rx->flags) & TT_STREAM_UP)) {
		if (learn_up(c, fd, (size_t)n, &over) < 0)
			return -EPROTO;
		n -= (ssize_t)over;
		if (n == 0)
			return -EAGAIN;
	}
	return n;
}

/*
 * What a call that would receive says of a connection that was reset, when all
 * is read. After the peer's end nothing was lost: the sender hears of it.
 */
static ssize_t after_reset(struct tt_conn *c)
{
	if ((tt_load_acquire(&c->st.rx->flags) & TT_STREAM_ENDED) ||
	    tt_load_relaxed(&c->e->reset_errno) == EPIPE)
		return 0;
	return -tt_conn_take_reset(c);
}

/* rx_lock held, the ring is empty: is there anything to follow? */
static ssize_t ring_ended(struct tt_conn *c, int fd, const struct iovec *iov, int iovcnt,
			  size_t skip, int flags)
{
	struct tt_entry *e = c->e;
	uint32_t fl = tt_load_acquire(&c->st.rx->flags);
	uint32_t shadow = tt_load_acquire(&e->shadow);
	uint64_t pending = 0;

	/* What was published before the flag was set is to be read first. */
	if (tt_stream_pending(&c->st, &e->rx, &pending) < 0)
		return -EPROTO;
	if (pending)
		return -EINPROGRESS;
	if (tt_load_acquire(&e->reset))
		return after_reset(c);
	if (fl & TT_STREAM_DOWN) {
		tt_conn_drop_kicks(c, fd);
		if (e->kicks_dropped == tt_load_relaxed(&c->st.rx->kicks) ||
		    (shadow & TT_SHADOW_FIN))
			tt_store_release(&e->rx_route, TT_ROUTE_BACK);
		return kernel_recv(c, fd, iov, iovcnt, skip, SSIZE_MAX, flags | MSG_DONTWAIT);
	}
	if (fl & TT_STREAM_ENDED)
		return 0;
	if (shadow & (TT_SHADOW_FIN | TT_SHADOW_HUP | TT_SHADOW_ERR)) {
		tt_conn_drop_kicks(c, fd);
		ssize_t n = kernel_recv(c, fd, iov, iovcnt, skip, SSIZE_MAX, flags | MSG_DONTWAIT);

		return n == -ECONNRESET && tt_conn_reset_by_kick(c) ? 0 : n;
	}
	return e->rd_shut ? 0 : -EAGAIN;
}

/* rx_lock held, route RING. */
static ssize_t ring_recv(struct tt_conn *c, int fd, const struct iovec *iov, int iovcnt,
			 size_t skip, int flags)
{
	struct tt_entry *e = c->e;
	struct iovec *part = TT_IOV_ROOM(iovcnt);
	bool room = false;
	size_t n = 0;

	if (skip) {
		iovcnt = tt_iov_slice(iov, iovcnt, skip, SSIZE_MAX, part);
		iov = part;
		skip = 0;
	}
	int err = tt_stream_recv(&c->st, &e->rx, iov, iovcnt, flags & MSG_PEEK, &n, &room);

	if (err == -EAGAIN) {
		ssize_t r = ring_ended(c, fd, iov, iovcnt, skip, flags);

		if (r != -EINPROGRESS)
			return r;
		err = tt_stream_recv(&c->st, &e->rx, iov, iovcnt, flags & MSG_PEEK, &n, &room);
	}
	if (err < 0)
		return err;
	if (!(flags & MSG_PEEK)) {
		tt_count(&e->rx_bytes, n);
		tt_count(&c->mem->totals.ring_rx_bytes, n);
		if (e->rx.store > TT_LINK_KEEP_CHUNKS)
			tt_stream_idle(&c->st, &e->rx);
	}
	if (room)
		tt_conn_tell(c, fd, tt_chan_notify_room(c->st.link, c->st.slot, &c->st.rx->wait));
	return (ssize_t)n;
}

/* rx_lock held. */
static ssize_t recv_by_route(struct tt_conn *c, int fd, const struct iovec *iov, int iovcnt,
			     size_t skip, int flags)
{
	struct tt_entry *e = c->e;
	ssize_t n;

	if (e->rx_route == TT_ROUTE_TCP) {
		n = recv_before_ring(c, fd, iov, iovcnt, skip, flags);
		if (n != -EAGAIN || e->rx_route != TT_ROUTE_RING)
			return n;
	}
	if (e->rx_route == TT_ROUTE_RING)
		return ring_recv(c, fd, iov, iovcnt, skip, flags);
	return kernel_recv(c, fd, iov, iovcnt, skip, SSIZE_MAX, flags | MSG_DONTWAIT);
}

/*
 * A short read says "drained" to who waits for edges: where TCP and ring meet,
 * it has to go on beyond the border. True when bytes are there for certain; an
 * error or the end is left for the next call. (A peek stops at the border.)
 */
static bool goes_on(struct tt_conn *c, int fd)
{
	struct tt_entry *e = c->e;
	struct pollfd p = {fd, POLLIN | POLLPRI, 0};

	if (e->rx_route != TT_ROUTE_RING)
		return false;
	if (tt_stream_peek(&c->st, e->rx.head))
		return true;
	/* A reset is an error to be reported. */
	if (tt_load_acquire(&e->reset))
		return false;
	return (tt_load_acquire(&c->st.rx->flags) & TT_STREAM_DOWN) && tt_sys.poll(&p, 1, 0) > 0 &&
	       (p.revents & POLLIN) && !(p.revents & (POLLERR | POLLPRI)); /* not past the mark */
}

static ssize_t recv_once(struct tt_conn *c, int fd, const struct iovec *iov, int iovcnt,
			 size_t skip, int flags)
{
	struct tt_entry *e = c->e;
	ssize_t n;

	if (tt_conn_ready(c, fd)) {
		tt_conn_serve_leave(c, fd);
		/* Shut down by ourselves, it never waits; a reset comes before that end. */
		if (tt_load_relaxed(&e->rd_shut) && tt_load_relaxed(&e->rx_route) == TT_ROUTE_RING)
			tt_conn_check_shadow(c, fd);
	}
	if (tt_conn_lock_rx(c) < 0)
		return -EAGAIN;
	fd = tt_conn_fd(c, fd);
	if (fd < 0) {
		tt_conn_unlock_rx(c);
		return -EBADF;
	}
	n = recv_by_route(c, fd, iov, iovcnt, skip, flags);
	if (n > 0 && !(flags & MSG_PEEK) && c->mode == TT_CONN_ATTACHED &&
	    skip + (size_t)n < tt_iov_total(iov, iovcnt) && goes_on(c, fd)) {
		ssize_t more = recv_by_route(c, fd, iov, iovcnt, skip + (size_t)n, flags);

		n += more > 0 ? more : 0;
	}
	/* Its end on TCP may be but what is left of a reset. */
	if ((n == 0 || n == -ECONNRESET) && c->mode == TT_CONN_ATTACHED &&
	    e->rx_route != TT_ROUTE_RING && tt_load_acquire(&e->reset))
		n = after_reset(c);
	if (n == -EAGAIN && c->mode == TT_CONN_ATTACHED && e->rx.store)
		tt_stream_idle(&c->st, &e->rx);
	tt_conn_unlock_rx(c);
	if (n == -EPROTO) {
		tt_conn_break(c, fd);
		return -ECONNRESET;
	}
	return n;
}

/* Someone who asks again and again without waiting must learn of the peer's end too. */
static ssize_t look_at_shadow(struct tt_conn *c, int fd, const struct iovec *iov, int iovcnt,
			      size_t skip, int flags)
{
	if (c->mode != TT_CONN_ATTACHED || !tt_want_check(c))
		return -EAGAIN;
	tt_conn_check_shadow(c, fd);
	return tt_load_relaxed(&c->e->shadow) ? recv_once(c, fd, iov, iovcnt, skip, flags)
					      : -EAGAIN;
}

/* For TCP, MSG_TRUNC throws the bytes away instead of copying them. */
static ssize_t discard(struct tt_conn *c, int fd, size_t want, int flags)
{
	char bin[1024] = "";
	struct iovec same[32] = {{0}};
	int n = 0;

	for (; n < 32 && want > 0; n++) {
		same[n] = (struct iovec){bin, want < sizeof(bin) ? want : sizeof(bin)};
		want -= same[n].iov_len;
	}
	return tt_sock_recv(c, fd, same, n, flags & ~MSG_TRUNC);
}

/*
 * MSG_PEEK with MSG_WAITALL: as much as fits, or the end, or a while. Nobody
 * rings for bytes behind those that wait already, so this one looks now and then.
 */
#define PEEK_US 500
static ssize_t peek_all(struct tt_conn *c, int fd, const struct iovec *iov, int iovcnt, int flags)
{
	int64_t deadline = c->e->rcvtimeo_ns ? tt_deadline(c->e->rcvtimeo_ns) : INT64_MAX;
	struct tt_signal_mark mark = tt_signal_mark();
	size_t total = tt_iov_total(iov, iovcnt);

	for (;;) {
		ssize_t n = recv_once(c, fd, iov, iovcnt, 0, flags);

		if (n == -EAGAIN) {
			int err = tt_wait_rx(c, fd, deadline, &mark);

			if (err < 0)
				return err;
			continue;
		}
		if (n <= 0 || (size_t)n >= total || tt_signal_since(&mark) ||
		    (deadline != INT64_MAX && tt_now_ns() >= deadline))
			return n;
		if (c->mode == TT_CONN_ATTACHED) {
			tt_conn_check_shadow(c, fd);
			if (tt_conn_rx_ended(c, fd))
				return recv_once(c, fd, iov, iovcnt, 0, flags);
		}
		struct pollfd end = {fd, POLLRDHUP, 0};

		if (tt_sys.poll(&end, 1, 0) > 0)
			return recv_once(c, fd, iov, iovcnt, 0, flags);
		usleep(PEEK_US);
	}
}

static ssize_t recv_long(struct tt_conn *c, int fd, const struct iovec *iov, int iovcnt, int flags)
{
	size_t done = 0, total = tt_iov_total(iov, iovcnt);
	bool wait = !tt_load_relaxed(&c->e->nonblock) && !(flags & MSG_DONTWAIT);
	size_t enough = (flags & MSG_WAITALL) && !(flags & MSG_PEEK) ? total : 1;
	struct tt_signal_mark mark = tt_signal_mark();
	int64_t deadline = INT64_MAX;

	if (flags & (MSG_OOB | MSG_ERRQUEUE)) {
		ssize_t n = kernel_recv(c, fd, iov, iovcnt, 0, SSIZE_MAX, flags);

		return n;
	}
	if ((flags & MSG_TRUNC) && !(flags & MSG_PEEK))
		return discard(c, fd, total, flags);
	if (total == 0) {
		/* Waits as any other, then takes nothing. */
		char scratch;
		struct iovec one = {&scratch, 1};
		ssize_t n = recv_long(c, fd, &one, 1, (flags & MSG_DONTWAIT) | MSG_PEEK);

		return n > 0 ? 0 : n;
	}
	if ((flags & MSG_PEEK) && (flags & MSG_WAITALL) && wait)
		return peek_all(c, fd, iov, iovcnt, flags);
	if (!(flags & MSG_PEEK) && c->e->rcvlowat > enough)
		enough = c->e->rcvlowat < total ? c->e->rcvlowat : total;
	for (;;) {
		ssize_t n = recv_once(c, fd, iov, iovcnt, done, flags);

		if (n == -EAGAIN && !wait)
			n = look_at_shadow(c, fd, iov, iovcnt, done, flags);
		if (n > 0) {
			done += (size_t)n;
			if (done >= enough)
				return (ssize_t)done;
			continue;
		}
		if (n != -EAGAIN || !wait)
			return done ? (ssize_t)done : n;
		if (deadline == INT64_MAX && c->e->rcvtimeo_ns)
			deadline = tt_deadline(c->e->rcvtimeo_ns);
		int err = tt_wait_rx(c, fd, deadline, &mark);

		if (err == -EINTR && deadline == INT64_MAX && tt_signal_restarts(&mark)) {
			mark = tt_signal_mark();
			continue;
		}
		if (err < 0)
			return done ? (ssize_t)done : err;
	}
}

ssize_t tt_sock_recv(struct tt_conn *c, int fd, const struct iovec *iov, int iovcnt, int flags)
{
	while (!tt_conn_pin(c, fd)) {
		/* Closed, or by now another's: whose, the table knows. */
		c = tt_fd_conn(fd);
		if (!c || !tt_conn_managed(c)) {
			struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)iov,
					   .msg_iovlen = (size_t)iovcnt};
			ssize_t n = tt_sys.recvmsg(fd, &m, flags);

			return n < 0 ? -errno : n;
		}
	}
	c->used = 1;
	ssize_t n = recv_long(c, fd, iov, iovcnt, flags);

	tt_conn_unpin(c);
	return n;
}

ssize_t tt_sock_recv_fast(struct tt_conn *c, int fd, void *buf, size_t n)
{
	struct tt_entry *e = tt_load_relaxed(&c->e);
	size_t done;
	bool room;

	if (!e || tt_load_relaxed(&e->rx_route) != TT_ROUTE_RING || n == 0 || e->rcvlowat ||
	    !tt_stream_peek(&c->st, tt_load_relaxed(&e->rx.head)))
		return -1;
	if (tt_conn_lock_rx_of(c, e) != 0)
		return -1;
	if (!tt_fd_is(fd, c) || c->e != e || e->rx_route != TT_ROUTE_RING ||
	    tt_stream_recv1(&c->st, &e->rx, buf, n, false, &done, &room) < 0) {
		tt_side_unlock(&e->rx_lock);
		return -1;
	}
	tt_count(&e->rx_bytes, done);
	tt_count(&c->mem->totals.ring_rx_bytes, done);
	/* Chunks beyond the first few go back at once: memory follows the traffic. */
	if (e->rx.store > TT_LINK_KEEP_CHUNKS)
		tt_stream_idle(&c->st, &e->rx);
	if (room)
		tt_conn_tell(c, fd, tt_chan_notify_room(c->st.link, c->st.slot, &c->st.rx->wait));
	bool border =
		done < n && (tt_load_relaxed(&c->st.rx->flags) & TT_STREAM_DOWN) && goes_on(c, fd);

	tt_side_unlock(&e->rx_lock);
	if (border) {
		struct iovec rest = {(char *)buf + done, n - done};
		ssize_t more = tt_sock_recv(c, fd, &rest, 1, MSG_DONTWAIT);

		done += more > 0 ? (size_t)more : 0;
	}
	return (ssize_t)done;
}
