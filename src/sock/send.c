/* SPDX-License-Identifier: MIT */
/*
 * Sending on a connection, whichever way its bytes go; the other half is recv.c.
 *
 * Under the direction's lock one look at the route decides: the ring, or the
 * kernel without blocking. Blocking happens outside the lock (wait.c), then
 * all is looked at again. A sender goes over to the ring when the peer has
 * attached and no other call is inside the kernel's send (tx_raw); it records
 * how many bytes it had written by TCP since the connection began, which the
 * kernel counts; the receiver takes as many by TCP before it looks at the ring.
 */
#include "sock/io_int.h"

#include "base/log.h"
#include "base/sys.h"
#include "base/usermem.h"
#include "ulc/chan.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * A fresh connection that sends much waits a moment for the ring, once so many
 * bytes went by TCP; all its waits together are bounded. For a peer that is
 * known to be Tutti's and only has to come by, longer; for one that may not be,
 * as long as that has paid off lately in this process: a server whose clients
 * are not Tutti's soon waits next to nothing.
 */
#define WAIT_UNKNOWN_MAX_US 10000u
#define WAIT_UNKNOWN_MIN_US 200u
#define WAIT_SOON_US 2000
/* A signal may well come while so much is copied. */
#define LONG_COPY 4096u
#define WAIT_KNOWN_US 20000u
static uint32_t wait_unknown_us = WAIT_UNKNOWN_MAX_US;

size_t tt_iov_total(const struct iovec *iov, int iovcnt)
{
	size_t n = 0;

	for (int i = 0; i < iovcnt; i++)
		n += iov[i].iov_len;
	return n;
}

int tt_iov_slice(const struct iovec *iov, int iovcnt, size_t skip, size_t max, struct iovec *out)
{
	int n = 0;

	for (int i = 0; i < iovcnt && n < IOV_MAX && max; i++) {
		if (skip >= iov[i].iov_len) {
			skip -= iov[i].iov_len;
			continue;
		}
		size_t len = iov[i].iov_len - skip;

		out[n].iov_base = (char *)iov[i].iov_base + skip;
		out[n].iov_len = len < max ? len : max;
		max -= out[n++].iov_len;
		skip = 0;
	}
	return n;
}

static ssize_t broken_pipe(int flags)
{
	if (!(flags & MSG_NOSIGNAL))
		raise(SIGPIPE);
	return -EPIPE;
}

/* What a call that would send says of a connection that was reset. */
static ssize_t after_reset(struct tt_conn *c, int flags)
{
	int err = tt_conn_take_reset(c);

	return err && err != EPIPE ? -err : broken_pipe(flags);
}

/* ---- going over ---- */

/* linux/tcp.h has the counters, netinet/tcp.h the states; both cannot be had. */
enum {
	TCP_ESTABLISHED = 1,
	TCP_TIME_WAIT = 6,
	TCP_CLOSE_WAIT = 8,
	TCP_LAST_ACK = 9,
	TCP_CLOSING = 11
};

bool tt_tcp_counts(int fd, struct tt_tcp_counts *ret)
{
	struct tcp_info ti;
	socklen_t len = sizeof(ti);

	memset(&ti, 0, sizeof(ti));
	if (tt_sys.getsockopt(fd, IPPROTO_TCP, TCP_INFO, &ti, &len) < 0 ||
	    len < offsetof(struct tcp_info, tcpi_bytes_retrans) + sizeof(ti.tcpi_bytes_retrans))
		return false;
	ret->written = ti.tcpi_bytes_sent - ti.tcpi_bytes_retrans + ti.tcpi_notsent_bytes;
	ret->received = ti.tcpi_bytes_received;
	ret->state = ti.tcpi_state;
	ret->unsent = ti.tcpi_notsent_bytes;
	/* The FIN is counted as if it were a byte. */
	if (ti.tcpi_state == TCP_CLOSE_WAIT || ti.tcpi_state == TCP_LAST_ACK ||
	    ti.tcpi_state == TCP_CLOSING || ti.tcpi_state == TCP_TIME_WAIT)
		ret->received--;
	return true;
}

/* The receiver does not keep up. */
static bool backlog(int fd)
{
	struct tt_tcp_counts k;

	return tt_tcp_counts(fd, &k) && k.unsent > 0;
}

static bool has_room(int fd)
{
	struct pollfd p = {fd, POLLOUT, 0};

	return tt_sys.poll(&p, 1, 0) > 0 && (p.revents & POLLOUT);
}

bool tt_conn_go_up(struct tt_conn *c, int fd)
{
	struct tt_entry *e = c->e;
	struct tt_tcp_counts k;

	if (!tt_load_acquire(&c->st.rx->wait.attached) || e->tx_raw || e->wr_shut ||
	    tt_load_relaxed(&e->shadow))
		return false;
	if (!tt_tcp_counts(fd, &k)) {
		e->tx_route = TT_ROUTE_BACK;
		return false;
	}
	/*
	 * Half closed, or worse: what is left goes by TCP. And while its buffer is
	 * full: who met that must not find room of another kind.
	 */
	if (k.state != TCP_ESTABLISHED || (k.unsent > 0 && !has_room(fd)))
		return false;
	tt_store_relaxed(&c->st.tx->up_pos, k.written);
	tt_fetch_or(&c->st.tx->flags, TT_STREAM_UP); /* D1: then look whether it is wanted */
	if (tt_load_acquire(&c->st.rx->flags) & TT_STREAM_LEAVE) {
		tt_fetch_and(&c->st.tx->flags, ~(uint32_t)TT_STREAM_UP);
		return false;
	}
	tt_conn_cork_shadow(c, fd, false);
	tt_store_release(&e->tx_route, TT_ROUTE_RING);
	return true;
}

/* ---- sending ---- */

static ssize_t kernel_send(struct tt_conn *c, int fd, const struct iovec *iov, int iovcnt,
			   size_t skip, size_t max, int flags)
{
	struct iovec *part = TT_IOV_ROOM(iovcnt);
	struct msghdr mh = {.msg_iov = part};

	mh.msg_iovlen = (size_t)tt_iov_slice(iov, iovcnt, skip, max, part);
	ssize_t n = tt_sys.sendmsg(fd, &mh, flags);

	if (n < 0)
		return -errno;
	tt_conn_count_tcp(c, (size_t)n, true);
	return n;
}

/*
 * A signal handler that sends on the connection whose send lock its own thread
 * holds cannot wait for it: its bytes are kept and go right after the call
 * that it interrupted.
 */
#define DEFER_MAX 4096
static _Thread_local struct deferred {
	struct tt_conn *conn;
	int fd;
	uint32_t bytes;
	char buf[DEFER_MAX];
} deferred __attribute__((tls_model("initial-exec")));

static ssize_t defer(struct tt_conn *c, int fd, const struct iovec *iov, int iovcnt, size_t skip)
{
	size_t n = tt_iov_total(iov, iovcnt) - skip;
	const uint32_t had = deferred.bytes;

	if ((deferred.bytes && deferred.conn != c) || n > DEFER_MAX - deferred.bytes)
		return -EAGAIN;
	deferred.conn = c;
	deferred.fd = fd;
	for (int i = 0; i < iovcnt; i++) {
		size_t len = iov[i].iov_len;

		if (skip >= len) {
			skip -= len;
			continue;
		}
		if (!tt_user_readable((char *)iov[i].iov_base + skip, len - skip)) {
			deferred.bytes = had;
			return -EFAULT;
		}
		memcpy(deferred.buf + deferred.bytes, (char *)iov[i].iov_base + skip, len - skip);
		deferred.bytes += (uint32_t)(len - skip);
		skip = 0;
	}
	return (ssize_t)n;
}

static void send_deferred(void)
{
	uint32_t n = deferred.bytes;
	char *buf = alloca(n);
	struct iovec iov = {buf, n};

	/* We are in the handler still: whoever it interrupted comes by here too. */
	if (tt_conn_lock_tx(deferred.conn) < 0)
		return;
	tt_conn_unlock_tx(deferred.conn);
	memcpy(buf, deferred.buf, n);
	deferred.bytes = 0;
	tt_sock_send(deferred.conn, deferred.fd, &iov, 1, MSG_NOSIGNAL);
}

static inline void after_send(void)
{
	if (__builtin_expect(deferred.bytes != 0, 0))
		send_deferred();
}

static void count_sent(struct tt_conn *c, size_t n)
{
	tt_count(&c->e->tx_bytes, n);
	tt_count(&c->e->tx_messages, 1);
	tt_count(&c->mem->totals.ring_tx_bytes, n);
}

/*
 * A program that sets its buffers small limits what may lie unread, and so what
 * can be lost and how late a message may come. The kernel's measure counts its
 * own overhead in; ours are bytes.
 */
#define SNDBUF_DEFAULT (2500u << 10)
#define RCVBUF_DEFAULT (128u << 10)
#define RCVBUF_MIN 2304u
#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72 /* Linux 5.16 */
#endif
#define SNDBUF_LOCKED 1
#define RCVBUF_LOCKED 2

static uint32_t buffer_size(int fd, int name)
{
	int v = 0;
	socklen_t len = sizeof(v);

	return tt_sys.getsockopt(fd, SOL_SOCKET, name, &v, &len) == 0 && v > 0 ? (uint32_t)v : 0;
}

void tt_conn_take_buffer_sizes(struct tt_conn *c, int fd)
{
	uint32_t locks = buffer_size(fd, SO_BUF_LOCK);

	if (locks & SNDBUF_LOCKED)
		tt_store_relaxed(&c->e->sndbuf, buffer_size(fd, SO_SNDBUF));
	if (locks & RCVBUF_LOCKED) {
		c->e->rcvbuf = buffer_size(fd, SO_RCVBUF);
		tt_store_relaxed(&c->st.tx->rcvbuf, c->e->rcvbuf);
		tt_fetch_or(&c->st.tx->flags, TT_STREAM_RCVBUF);
	}
}

static inline bool bounded(struct tt_conn *c)
{
	return tt_load_relaxed(&c->e->sndbuf) ||
	       (tt_load_relaxed(&c->st.rx->flags) & TT_STREAM_RCVBUF);
}

/* tx_lock held: how much more may lie unread, and of how much; -EPROTO. */
static int allowance(struct tt_conn *c, uint64_t *ret_more, uint64_t *ret_limit)
{
	struct tt_entry *e = c->e;
	uint64_t snd = e->sndbuf ? e->sndbuf : SNDBUF_DEFAULT, rcv = RCVBUF_DEFAULT, unread = 0;

	if (tt_load_relaxed(&c->st.rx->flags) & TT_STREAM_RCVBUF) {
		rcv = tt_load_relaxed(&c->st.rx->rcvbuf);
		if (rcv < RCVBUF_MIN)
			rcv = RCVBUF_MIN;
	}
	if (!(tt_load_relaxed(&c->st.tx->flags) & TT_STREAM_TIGHT))
		tt_fetch_or(&c->st.tx->flags, TT_STREAM_TIGHT);
	int err = tt_stream_unread(&c->st, &e->tx, &unread);

	*ret_limit = snd + rcv;
	*ret_more = unread < snd + rcv ? snd + rcv - unread : 0;
	return err;
}

bool tt_conn_writable(struct tt_conn *c)
{
	uint64_t more, limit;

	if (bounded(c) && allowance(c, &more, &limit) == 0 && more < limit / 2)
		return false;
	return tt_stream_writable(&c->st, &c->e->tx);
}

/* tx_lock held, route is the ring. Bytes put, or -EAGAIN, -EPROTO. */
static ssize_t ring_send(struct tt_conn *c, int fd, const struct iovec *iov, int iovcnt,
			 size_t skip)
{
	struct tt_entry *e = c->e;
	struct iovec *part = TT_IOV_ROOM(iovcnt);
	size_t n = 0;

	if (bounded(c)) {
		uint64_t more, limit;

		if (allowance(c, &more, &limit) < 0)
			return -EPROTO;
		if (more == 0)
			return -EAGAIN;
		iovcnt = tt_iov_slice(iov, iovcnt, skip, more, part);
		iov = part;
		skip = 0;
	}
	int err = tt_stream_send(&c->st, &e->tx, iov, iovcnt, skip, &n);

	if (err < 0)
		return err;
	count_sent(c, n);
	tt_conn_tell(c, fd, tt_chan_notify_data(c->st.link, c->st.slot, &c->st.rx->wait));
	return (ssize_t)n;
}

/* No room for a caller that will not wait: its sets shall hear when there is. */
static ssize_t ask_for_room(struct tt_conn *c, int fd, const struct iovec *iov, int iovcnt,
			    size_t skip)
{
	struct tt_wait_line *w = &c->st.tx->wait;

	if (!tt_load_relaxed(&c->interests))
		return -EAGAIN;
	tt_fetch_or(&w->tx_flags, TT_WAIT_CQ); /* W1: a full barrier, then look again */
	return ring_send(c, fd, iov, iovcnt, skip);
}

/* As ring_send. -ENOLINK: what follows goes by TCP. */
static ssize_t send_or_leave(struct tt_conn *c, int fd, const struct iovec *iov, int iovcnt,
			     size_t skip, int flags)
{
	if (flags & MSG_OOB) {
		tt_conn_go_back(c, TT_REASON_URGENT);
		return -ENOLINK;
	}
	ssize_t n = ring_send(c, fd, iov, iovcnt, skip);

	if (n != -EAGAIN)
		return n;
	if (tt_conn_leave_full_ring(c, fd))
		return -ENOLINK;
	return c->e->nonblock || (flags & MSG_DONTWAIT) ? ask_for_room(c, fd, iov, iovcnt, skip)
							: n;
}

static bool kernel_error(int fd, const struct tt_entry *e)
{
	struct pollfd p = {fd, 0, 0};

	return tt_load_relaxed(&e->tx_route) != TT_ROUTE_RING && tt_sys.poll(&p, 1, 0) > 0 &&
	       (p.revents & POLLERR);
}

/*
 * One attempt, by TCP of at most limit bytes. Bytes that went, -EAGAIN, or an error.
 */
static ssize_t send_once(struct tt_conn *c, int fd, const struct iovec *iov, int iovcnt,
			 size_t skip, size_t limit, int flags)
{
	const bool begun = skip > 0; /* then an error is left for the next call */
	struct tt_entry *e = c->e;
	bool attached = tt_conn_ready(c, fd);
	ssize_t n;

	if (attached)
		tt_conn_serve_leave(c, fd);
	if (attached && tt_want_check(c) &&
	    (tt_load_relaxed(&e->tx_route) == TT_ROUTE_RING ||
	     (tt_load_relaxed(&c->st.tx->flags) & TT_STREAM_HALF)))
		tt_conn_check_shadow(c, fd);
	if (begun && (tt_load_acquire(&e->reset) || kernel_error(fd, e)))
		return -EPIPE;
	if (tt_load_acquire(&e->reset))
		return after_reset(c, flags);
	if (tt_conn_lock_tx(c) < 0)
		return defer(c, fd, iov, iovcnt, skip);
	fd = tt_conn_fd(c, fd);
	if (fd < 0) {
		tt_conn_unlock_tx(c);
		return -EBADF;
	}
	if (e->tx_route == TT_ROUTE_TCP && attached)
		tt_conn_go_up(c, fd);
	if (e->tx_route == TT_ROUTE_RING && !e->wr_shut) {
		n = send_or_leave(c, fd, iov, iovcnt, skip, flags);
		if (n != -ENOLINK) {
			tt_conn_unlock_tx(c);
			if (n == -EPROTO) {
				tt_conn_break(c, fd);
				return -ECONNRESET;
			}
			return n;
		}
	}
	/* Shut down, but the shadow does not know: see half_close. */
	if (e->wr_shut && attached && (tt_load_relaxed(&c->st.tx->flags) & TT_STREAM_HALF)) {
		tt_conn_unlock_tx(c);
		return broken_pipe(flags);
	}
	e->tx_raw++;
	tt_conn_unlock_tx(c);
	n = kernel_send(c, fd, iov, iovcnt, skip, limit, flags | MSG_DONTWAIT);
	if (tt_conn_lock_tx(c) == 0) {
		e->tx_raw--;
		tt_conn_unlock_tx(c);
	}
	return n;
}

/* The peer is Tutti's, and has only to come by. */
static bool peer_known(const struct tt_conn *c)
{
	return tt_load_acquire(&c->e->grant) & 1;
}

/* It has ended or reset: it will not come any more. */
static bool peer_left(int fd)
{
	struct pollfd p = {fd, POLLRDHUP, 0};

	return tt_sys.poll(&p, 1, 0) > 0;
}

/* The peer's ring is open to us, or will never be, or we have waited enough. */
static void await_ring(struct tt_conn *c, int fd, const struct tt_signal_mark *m)
{
	int64_t t0 = tt_now_ns();

	for (unsigned round = 0;; round++) {
		bool known = peer_known(c);
		int64_t us = (tt_now_ns() - t0) / 1000;

		if (tt_conn_ready(c, fd) && tt_load_acquire(&c->st.rx->wait.attached)) {
			/* It has paid off; but if it took that long, do not wait longer. */
			if (us <= WAIT_SOON_US)
				tt_store_relaxed(&wait_unknown_us, WAIT_UNKNOWN_MAX_US);
			return;
		}
		/* A handler has run: the caller would not wait but be interrupted. */
		if (tt_signal_since(m))
			return;
		if (round % 16 == 0 && peer_left(fd)) {
			c->waited_us = UINT32_MAX / 2;
			return;
		}
		if (c->mode == TT_CONN_FALLBACK ||
		    c->waited_us + us > (known ? WAIT_KNOWN_US : tt_load_relaxed(&wait_unknown_us)))
			break;
		usleep(20);
	}
	c->waited_us += (uint32_t)((tt_now_ns() - t0) / 1000);
	tt_log(TT_LOG_DEBUG, "fd %d: waited %u us for the ring, in vain", fd, c->waited_us);
	if (!(tt_load_relaxed(&c->e->grant) & 1) && wait_unknown_us > WAIT_UNKNOWN_MIN_US)
		tt_store_relaxed(&wait_unknown_us, wait_unknown_us / 2);
}

/* The time that a connection may wait, all together, is not over. */
static bool may_wait(const struct tt_conn *c)
{
	uint32_t unknown_us = tt_load_relaxed(&wait_unknown_us);

	if (peer_known(c))
		return c->waited_us <= WAIT_KNOWN_US;
	return unknown_us > WAIT_UNKNOWN_MIN_US && c->waited_us < unknown_us;
}

ssize_t tt_conn_send_file_by_tcp(struct tt_conn *c, int fd, int in, off_t *at, size_t want)
{
	struct tt_entry *e = c->e;
	bool attached;

	if (!e || !tt_load_relaxed(&e->nonblock))
		return -EINPROGRESS;
	attached = tt_conn_ready(c, fd);
	if (tt_load_acquire(&e->reset) || tt_conn_lock_tx(c) < 0)
		return -EINPROGRESS;
	if (e->tx_route == TT_ROUTE_TCP && attached)
		tt_conn_go_up(c, fd);
	bool by_tcp = tt_fd_is(fd, c) && e->tx_route != TT_ROUTE_RING && !e->wr_shut;

	e->tx_raw += by_tcp;
	tt_conn_unlock_tx(c);
	if (!by_tcp)
		return -EINPROGRESS;
	ssize_t n = tt_sys.sendfile(fd, in, at, want);

	if (n < 0)
		n = -errno;
	if (tt_conn_lock_tx(c) == 0) {
		e->tx_raw--;
		tt_conn_unlock_tx(c);
	}
	if (n > 0)
		tt_conn_count_tcp(c, (size_t)n, true);
	return n;
}

/* Whether a sender that blocks had better wait for the ring than send all by TCP. */
static bool ring_may_come(struct tt_conn *c)
{
	uint32_t mode = tt_load_acquire(&c->mode);

	return (mode == TT_CONN_CLAIMED || mode == TT_CONN_ATTACHED) &&
	       tt_load_relaxed(&c->e->tx_route) == TT_ROUTE_TCP &&
	       tt_load_relaxed(&c->e->claimed) && may_wait(c) && !backlog(c->fd);
}

ssize_t tt_conn_send_file(struct tt_conn *c, int fd, int in, off_t at, size_t want)
{
	struct tt_entry *e = tt_load_relaxed(&c->e);
	struct iovec place[2];
	size_t room;

	if (!e || tt_load_relaxed(&e->tx_route) != TT_ROUTE_RING || tt_want_check(c) ||
	    bounded(c) || tt_conn_lock_tx_of(c, e) != 0)
		return -EAGAIN;
	ssize_t n = -EAGAIN;

	if (tt_fd_is(fd, c) && c->e == e && e->tx_route == TT_ROUTE_RING && !e->wr_shut &&
	    !e->reset && tt_stream_reserve(&c->st, &e->tx, want, place, &room) == 0) {
		/* Not pread: a thread that is cancelled in it would leave the lock behind. */
		if (!place[1].iov_len)
			n = tt_sys.syscall(SYS_pread64, in, place[0].iov_base, room, at);
		else
			n = tt_sys.syscall(SYS_preadv, in, place, 2, at, 0);
		if (n < 0)
			n = errno == EISDIR ? -EINVAL : -errno;
		tt_stream_commit(&c->st, &e->tx, n > 0 ? (size_t)n : 0);
		if (n > 0) {
			c->used = 1;
			count_sent(c, (size_t)n);
			tt_conn_tell(c, fd,
				     tt_chan_notify_data(c->st.link, c->st.slot, &c->st.rx->wait));
		}
	}
	tt_side_unlock(&e->tx_lock);
	after_send();
	return n;
}

static ssize_t send_long(struct tt_conn *c, int fd, const struct iovec *iov, int iovcnt,
			 size_t done, int flags, struct tt_signal_mark mark)
{
	size_t total = tt_iov_total(iov, iovcnt);
	bool wait = !tt_load_relaxed(&c->e->nonblock) && !(flags & MSG_DONTWAIT);
	int64_t deadline = INT64_MAX;

	if (total == 0) {
		struct msghdr mh = {0};

		if (tt_load_acquire(&c->e->reset))
			return after_reset(c, flags);
		return tt_sys.sendmsg(fd, &mh, flags) < 0 ? -errno : 0;
	}
	for (;;) {
		/*
		 * By TCP a first piece only, while the ring may open; else in one
		 * call, as the program made it: the rest of a message that was cut
		 * waits for an acknowledgement, and that for the rest.
		 */
		size_t limit = SIZE_MAX;

		if (wait && ring_may_come(c)) {
			uint64_t by_tcp = tt_load_relaxed(&c->local_bytes) +
					  tt_load_relaxed(&c->e->tx_tcp_bytes);

			if (by_tcp >= TT_CLAIM_BYTES || tt_proc.eager)
				await_ring(c, fd, &mark);
			else if (total - done > TT_CLAIM_BYTES)
				limit = TT_CLAIM_BYTES;
		}
		ssize_t n = send_once(c, fd, iov, iovcnt, done, limit, flags);

		if (n > 0) {
			done += (size_t)n;
			if (done == total)
				return (ssize_t)done;
			/* Also who does not wait sends all that there is room for. */
			continue;
		}
		if (n != -EAGAIN || !wait)
			return done ? (ssize_t)done : n;
		if (deadline == INT64_MAX && c->e->sndtimeo_ns)
			deadline = tt_deadline(c->e->sndtimeo_ns);
		int err = tt_wait_tx(c, fd, deadline, &mark);

		if (err == -EINTR && deadline == INT64_MAX && tt_signal_restarts(&mark)) {
			mark = tt_signal_mark();
			continue;
		}
		if (err < 0)
			return done ? (ssize_t)done : err;
	}
}

/* The first done bytes went already, since the mark. */
static ssize_t send_from(struct tt_conn *c, int fd, const struct iovec *iov, int iovcnt,
			 size_t done, int flags, struct tt_signal_mark mark)
{
	while (!tt_conn_pin(c, fd)) {
		/* Closed, or by now another's: whose, the table knows. */
		c = done ? NULL : tt_fd_conn(fd);
		if (!c || !tt_conn_managed(c)) {
			struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)iov,
					   .msg_iovlen = (size_t)iovcnt};
			ssize_t n = done ? (ssize_t)done : tt_sys.sendmsg(fd, &m, flags);

			return n < 0 ? -errno : n;
		}
	}
	c->used = 1;
	ssize_t n = send_long(c, fd, iov, iovcnt, done, flags, mark);

	after_send();
	tt_conn_unpin(c);
	return n;
}

ssize_t tt_sock_send(struct tt_conn *c, int fd, const struct iovec *iov, int iovcnt, int flags)
{
	return send_from(c, fd, iov, iovcnt, 0, flags, tt_signal_mark());
}

ssize_t tt_sock_send_fast(struct tt_conn *c, int fd, const void *buf, size_t n, int flags)
{
	struct tt_entry *e = tt_load_relaxed(&c->e);
	const bool is_long = n > LONG_COPY;
	struct tt_signal_mark mark;
	size_t done;

	if (!e || tt_load_relaxed(&e->tx_route) != TT_ROUTE_RING || n == 0 || tt_want_check(c) ||
	    bounded(c))
		return -1;
	if (is_long)
		mark = tt_signal_mark();
	if (tt_conn_lock_tx_of(c, e) != 0)
		return -1;
	if (!tt_fd_is(fd, c) || c->e != e || e->tx_route != TT_ROUTE_RING || e->wr_shut ||
	    e->reset || tt_stream_send1(&c->st, &e->tx, buf, n, &done) < 0) {
		tt_side_unlock(&e->tx_lock);
		return -1;
	}
	c->used = 1;
	count_sent(c, done);
	tt_conn_tell(c, fd, tt_chan_notify_data(c->st.link, c->st.slot, &c->st.rx->wait));
	tt_side_unlock(&e->tx_lock);
	after_send();
	/* The rest: by waiting, or to be told when there is room. */
	if (done < n) {
		struct iovec all = {(char *)(uintptr_t)buf, n};

		return send_from(c, fd, &all, 1, done, flags, is_long ? mark : tt_signal_mark());
	}
	return (ssize_t)done;
}
