/* SPDX-License-Identifier: MIT */
/*
 * Sending and receiving on a connection, whichever way its bytes go.
 *
 * Under the direction's lock one look at the route decides: the ring, or the
 * kernel without blocking. Blocking happens outside the lock (wait.c), then
 * all is looked at again. A sender goes over to the ring when the peer has
 * attached and no other call is inside the kernel's send (tx_raw); it records
 * how many bytes it had written by TCP since the connection began, which the
 * kernel counts; the receiver takes as many by TCP before it looks at the ring.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/sys.h"
#include "sock/sock.h"
#include "ulc/chan.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define IOV_AT_ONCE IOV_MAX
/*
 * A fresh connection that sends much waits a moment for the ring, once so many
 * bytes went by TCP; all its waits together are bounded. For a peer that is
 * known to be Tutti's and only has to come by, longer; for one that may not be,
 * as long as that has paid off lately in this process: a server whose clients
 * are not Tutti's soon waits next to nothing.
 */
#define TCP_BEFORE_RING (16u << 10)
#define WAIT_UNKNOWN_MAX_US 50000u
#define WAIT_UNKNOWN_MIN_US 200u
#define WAIT_KNOWN_US 200000u
static uint32_t wait_unknown_us = WAIT_UNKNOWN_MAX_US;
/* Unasked, a sender looks at its shadow this often at most. */
#define CHECK_US 1000u
#define BOUNCE (64u << 10)

static size_t total_bytes(const struct iovec *iov, int iovcnt)
{
	size_t n = 0;

	for (int i = 0; i < iovcnt; i++)
		n += iov[i].iov_len;
	return n;
}

/* What is left of iov after skip bytes, at most max; returns the count of pieces. */
static int slice(const struct iovec *iov, int iovcnt, size_t skip, size_t max, struct iovec *out)
{
	int n = 0;

	for (int i = 0; i < iovcnt && n < IOV_AT_ONCE && max; i++) {
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

static int64_t deadline_of(int64_t timeout_ns)
{
	return timeout_ns ? tt_now_ns() + timeout_ns : INT64_MAX;
}

static ssize_t broken_pipe(int flags)
{
	if (!(flags & MSG_NOSIGNAL))
		raise(SIGPIPE);
	return -EPIPE;
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

static bool tcp_counts(int fd, uint64_t *ret_written, uint64_t *ret_received, uint32_t *ret_state)
{
	struct tcp_info ti;
	socklen_t len = sizeof(ti);

	memset(&ti, 0, sizeof(ti));
	if (tt_sys.getsockopt(fd, IPPROTO_TCP, TCP_INFO, &ti, &len) < 0 ||
	    len < offsetof(struct tcp_info, tcpi_bytes_retrans) + sizeof(ti.tcpi_bytes_retrans))
		return false;
	*ret_written = ti.tcpi_bytes_sent - ti.tcpi_bytes_retrans + ti.tcpi_notsent_bytes;
	*ret_received = ti.tcpi_bytes_received;
	*ret_state = ti.tcpi_state;
	/* The FIN is counted as if it were a byte. */
	if (ti.tcpi_state == TCP_CLOSE_WAIT || ti.tcpi_state == TCP_LAST_ACK ||
	    ti.tcpi_state == TCP_CLOSING || ti.tcpi_state == TCP_TIME_WAIT)
		--*ret_received;
	return true;
}

/* Bytes that the kernel holds because the receiver's buffer is full. */
static bool backlog(int fd)
{
	struct tcp_info ti;
	socklen_t len = sizeof(ti);

	memset(&ti, 0, sizeof(ti));
	return tt_sys.getsockopt(fd, IPPROTO_TCP, TCP_INFO, &ti, &len) == 0 &&
	       ti.tcpi_notsent_bytes > 0;
}

/* tx_lock held; true when the route is the ring now. */
static bool go_up(struct tt_conn *c, int fd)
{
	struct tt_entry *e = c->e;
	uint64_t written, received;
	uint32_t state;

	if (!tt_load_acquire(&c->st.rx->wait.attached) || e->tx_raw || e->wr_shut ||
	    tt_load_relaxed(&e->shadow))
		return false;
	if (!tcp_counts(fd, &written, &received, &state)) {
		e->tx_route = TT_ROUTE_BACK;
		return false;
	}
	/* Half closed, or worse: what is left goes by TCP. */
	if (state != TCP_ESTABLISHED)
		return false;
	/* The peer does not keep up: who met a full buffer must not find room of another kind. */
	if (backlog(fd))
		return false;
	tt_store_relaxed(&c->st.tx->up_pos, written);
	tt_fetch_or(&c->st.tx->flags, TT_STREAM_UP);
	tt_store_release(&e->tx_route, TT_ROUTE_RING);
	return true;
}

/* rx_lock held: bytes that TCP holds for us, and our position in them. */
static bool tcp_position(int fd, uint64_t *ret_pos)
{
	uint64_t written, r0, r1;
	uint32_t state;
	int inq;

	/* Bytes may arrive between the two questions: ask until they agree. */
	for (int i = 0; i < 100; i++) {
		if (!tcp_counts(fd, &written, &r0, &state) ||
		    tt_sys.ioctl(fd, FIONREAD, &inq) < 0 || !tcp_counts(fd, &written, &r1, &state))
			return false;
		if (r0 == r1) {
			*ret_pos = r0 - (uint64_t)inq;
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
	if (!tcp_position(fd, &pos))
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

/* ---- sending ---- */

static ssize_t kernel_send(struct tt_conn *c, int fd, const struct iovec *iov, int iovcnt,
			   size_t skip, size_t max, int flags)
{
	struct iovec part[IOV_AT_ONCE];
	struct msghdr mh = {.msg_iov = part};

	mh.msg_iovlen = (size_t)slice(iov, iovcnt, skip, max, part);
	ssize_t n = tt_sys.sendmsg(fd, &mh, flags);

	if (n < 0)
		return -errno;
	tt_count(&c->e->tx_tcp_bytes, (uint64_t)n);
	tt_count(&c->mem->totals.shadow_tx_bytes, (uint64_t)n);
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
	size_t n = total_bytes(iov, iovcnt) - skip;

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
		memcpy(deferred.buf + deferred.bytes, (char *)iov[i].iov_base + skip, len - skip);
		deferred.bytes += (uint32_t)(len - skip);
		skip = 0;
	}
	return (ssize_t)n;
}

static void send_deferred(void)
{
	char buf[DEFER_MAX];
	uint32_t n = deferred.bytes;
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

static bool want_check(struct tt_conn *c)
{
	return (tt_load_relaxed(&c->st.rx->flags) & TT_STREAM_HINT) ||
	       tt_ticks() - c->checked > CHECK_US * tt_ticks_per_us();
}

static void count_sent(struct tt_conn *c, size_t n)
{
	tt_count(&c->e->tx_bytes, n);
	tt_count(&c->e->tx_messages, 1);
	tt_count(&c->mem->totals.ring_tx_bytes, n);
}

/* tx_lock held, route is the ring. Bytes put, or -EAGAIN, -EPROTO. */
static ssize_t ring_send(struct tt_conn *c, int fd, const struct iovec *iov, int iovcnt,
			 size_t skip)
{
	struct tt_entry *e = c->e;
	size_t n = 0;
	int err = tt_stream_send(&c->st, &e->tx, iov, iovcnt, skip, &n);

	if (err < 0)
		return err;
	count_sent(c, n);
	if (tt_chan_notify_data(c->st.link, c->st.slot, &c->st.rx->wait) < 0)
		tt_conn_kick(c, fd);
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
		tt_conn_go_back(c, fd, TT_REASON_URGENT);
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

	if (attached && tt_load_relaxed(&e->tx_route) == TT_ROUTE_RING && want_check(c))
		tt_conn_check_shadow(c, fd);
	if (begun && (tt_load_acquire(&e->reset) || kernel_error(fd, e)))
		return -EPIPE;
	if (tt_load_acquire(&e->reset)) {
		if (tt_exchange(&e->reset, TT_RESET_TOLD) == TT_RESET_PENDING)
			return -ECONNRESET;
		return broken_pipe(flags);
	}
	if (tt_conn_lock_tx(c) < 0)
		return defer(c, fd, iov, iovcnt, skip);
	if (!tt_fd_is(fd, c)) {
		tt_conn_unlock_tx(c);
		return -EBADF;
	}
	if (e->tx_route == TT_ROUTE_TCP && attached)
		go_up(c, fd);
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
	e->tx_raw++;
	tt_conn_unlock_tx(c);
	n = kernel_send(c, fd, iov, iovcnt, skip, limit, flags | MSG_DONTWAIT);
	if (tt_conn_lock_tx(c) == 0) {
		e->tx_raw--;
		tt_conn_unlock_tx(c);
	}
	return n;
}

/* The peer's ring is open to us, or will never be, or we have waited enough. */
static void await_ring(struct tt_conn *c, int fd)
{
	int64_t t0 = tt_now_ns();

	for (;;) {
		/* Until the daemon has looked nobody knows; it may want our core. */
		bool known = (tt_load_acquire(&c->e->grant) & 1) ||
			     tt_load_acquire(&c->e->seen) != c->e->generation + 1;
		int64_t us = (tt_now_ns() - t0) / 1000;

		if (tt_conn_ready(c, fd) && tt_load_acquire(&c->st.rx->wait.attached)) {
			tt_store_relaxed(&wait_unknown_us, WAIT_UNKNOWN_MAX_US);
			return;
		}
		if (c->mode == TT_CONN_FALLBACK ||
		    c->waited_us + us > (known ? WAIT_KNOWN_US : tt_load_relaxed(&wait_unknown_us)))
			break;
		usleep(20);
	}
	c->waited_us += (uint32_t)((tt_now_ns() - t0) / 1000);
	if (!(tt_load_relaxed(&c->e->grant) & 1) && wait_unknown_us > WAIT_UNKNOWN_MIN_US)
		tt_store_relaxed(&wait_unknown_us, wait_unknown_us / 2);
	tt_log(TT_LOG_DEBUG, "fd %d: waited %u us for the ring, in vain", fd, c->waited_us);
}

static bool should_await(struct tt_conn *c)
{
	uint32_t mode = tt_load_acquire(&c->mode);

	return (mode == TT_CONN_CLAIMED || mode == TT_CONN_ATTACHED) && !backlog(c->fd) &&
	       tt_load_relaxed(&c->e->tx_route) == TT_ROUTE_TCP &&
	       tt_load_relaxed(&c->e->claimed) && c->waited_us <= WAIT_KNOWN_US &&
	       tt_load_relaxed(&c->local_bytes) + tt_load_relaxed(&c->e->tx_tcp_bytes) >=
		       TCP_BEFORE_RING;
}

static ssize_t send_long(struct tt_conn *c, int fd, const struct iovec *iov, int iovcnt,
			 size_t done, int flags)
{
	size_t total = total_bytes(iov, iovcnt);
	bool wait = !tt_load_relaxed(&c->e->nonblock) && !(flags & MSG_DONTWAIT);
	int64_t deadline = INT64_MAX;

	if (total == 0) {
		struct msghdr mh = {0};

		return tt_sys.sendmsg(fd, &mh, flags) < 0 ? -errno : 0;
	}
	for (;;) {
		/* By TCP in pieces: the ring may open meanwhile. */
		size_t limit = TCP_BEFORE_RING;

		if (wait && should_await(c))
			await_ring(c, fd);
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
			deadline = deadline_of(c->e->sndtimeo_ns);
		int err = tt_wait_tx(c, fd, deadline);

		if (err == -EINTR && deadline == INT64_MAX && tt_signals_restart())
			continue;
		if (err < 0)
			return done ? (ssize_t)done : err;
	}
}

/* The first done bytes went already. */
static ssize_t send_from(struct tt_conn *c, int fd, const struct iovec *iov, int iovcnt,
			 size_t done, int flags)
{
	if (!tt_conn_pin(c, fd))
		return done ? (ssize_t)done : -EBADF;
	c->used = 1;
	ssize_t n = send_long(c, fd, iov, iovcnt, done, flags);

	after_send();
	tt_conn_unpin(c);
	return n;
}

ssize_t tt_sock_send(struct tt_conn *c, int fd, const struct iovec *iov, int iovcnt, int flags)
{
	return send_from(c, fd, iov, iovcnt, 0, flags);
}

ssize_t tt_sock_send_fast(struct tt_conn *c, int fd, const void *buf, size_t n, int flags)
{
	struct tt_entry *e = tt_load_relaxed(&c->e);
	size_t done;

	if (!e || tt_load_relaxed(&e->tx_route) != TT_ROUTE_RING || n == 0 || want_check(c))
		return -1;
	if (tt_conn_lock_tx_of(c, e) != 0)
		return -1;
	if (!tt_fd_is(fd, c) || c->e != e || e->tx_route != TT_ROUTE_RING || e->wr_shut ||
	    e->reset || tt_stream_send1(&c->st, &e->tx, buf, n, &done) < 0) {
		tt_side_unlock(&e->tx_lock);
		return -1;
	}
	c->used = 1;
	count_sent(c, done);
	if (tt_chan_notify_data(c->st.link, c->st.slot, &c->st.rx->wait) < 0)
		tt_conn_kick(c, fd);
	tt_side_unlock(&e->tx_lock);
	after_send();
	/* The rest: by waiting, or to be told when there is room. */
	if (done < n) {
		struct iovec all = {(char *)(uintptr_t)buf, n};

		return send_from(c, fd, &all, 1, done, flags);
	}
	return (ssize_t)done;
}

/* ---- receiving ---- */

static ssize_t kernel_recv(struct tt_conn *c, int fd, const struct iovec *iov, int iovcnt,
			   size_t skip, size_t max, int flags)
{
	struct iovec part[IOV_AT_ONCE];
	struct msghdr mh = {.msg_iov = part};

	mh.msg_iovlen = (size_t)slice(iov, iovcnt, skip, max, part);
	int saved = errno;
	ssize_t n = tt_sys.recvmsg(fd, &mh, flags);

	if (n < 0) {
		n = -errno;
		errno = saved;
		return n;
	}
	if (!(flags & MSG_PEEK)) {
		tt_count(&c->e->rx_tcp_bytes, (uint64_t)n);
		tt_count(&c->mem->totals.shadow_rx_bytes, (uint64_t)n);
	}
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
 * A kick that the peer had not read when it closed makes its kernel send a
 * reset. If the peer left none of our bytes unread, it was an orderly end.
 */
static bool reset_by_kick(struct tt_conn *c)
{
	uint64_t head = tt_load_acquire(&c->st.rx->head);

	return tt_load_relaxed(&c->e->kicks_sent) && head == tt_load_relaxed(&c->e->tx.tail);
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
	if (tt_load_acquire(&e->reset)) {
		uint32_t was = TT_RESET_PENDING;

		return tt_cas(&e->reset, &was, TT_RESET_TOLD) ? -ECONNRESET : 0;
	}
	if (fl & TT_STREAM_DOWN) {
		tt_conn_drop_kicks(c, fd);
		if (e->kicks_dropped == tt_load_relaxed(&c->st.rx->kicks) ||
		    (shadow & TT_SHADOW_FIN))
			tt_store_release(&e->rx_route, TT_ROUTE_BACK);
		return kernel_recv(c, fd, iov, iovcnt, skip, SSIZE_MAX, flags | MSG_DONTWAIT);
	}
	if ((fl & TT_STREAM_FIN) || e->rd_shut)
		return 0;
	if (shadow & (TT_SHADOW_FIN | TT_SHADOW_HUP | TT_SHADOW_ERR)) {
		tt_conn_drop_kicks(c, fd);
		ssize_t n = kernel_recv(c, fd, iov, iovcnt, skip, SSIZE_MAX, flags | MSG_DONTWAIT);

		return n == -ECONNRESET && reset_by_kick(c) ? 0 : n;
	}
	return -EAGAIN;
}

/* rx_lock held, route RING. */
static ssize_t ring_recv(struct tt_conn *c, int fd, const struct iovec *iov, int iovcnt,
			 size_t skip, int flags)
{
	struct tt_entry *e = c->e;
	struct iovec part[IOV_AT_ONCE];
	bool room = false;
	size_t n = 0;

	if (skip) {
		iovcnt = slice(iov, iovcnt, skip, SSIZE_MAX, part);
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
	if (room && tt_chan_notify_room(c->st.link, c->st.slot, &c->st.rx->wait) < 0)
		tt_conn_kick(c, fd);
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
	struct pollfd p = {fd, POLLIN, 0};

	if (e->rx_route != TT_ROUTE_RING)
		return false;
	if (tt_stream_peek(&c->st, e->rx.head))
		return true;
	return (tt_load_acquire(&c->st.rx->flags) & TT_STREAM_DOWN) && tt_sys.poll(&p, 1, 0) > 0 &&
	       (p.revents & POLLIN) && !(p.revents & POLLERR);
}

static ssize_t recv_once(struct tt_conn *c, int fd, const struct iovec *iov, int iovcnt,
			 size_t skip, int flags)
{
	struct tt_entry *e = c->e;
	ssize_t n;

	tt_conn_ready(c, fd);
	if (tt_conn_lock_rx(c) < 0)
		return -EAGAIN;
	if (!tt_fd_is(fd, c)) {
		tt_conn_unlock_rx(c);
		return -EBADF;
	}
	n = recv_by_route(c, fd, iov, iovcnt, skip, flags);
	if (n > 0 && !(flags & MSG_PEEK) && c->mode == TT_CONN_ATTACHED &&
	    skip + (size_t)n < total_bytes(iov, iovcnt) && goes_on(c, fd)) {
		ssize_t more = recv_by_route(c, fd, iov, iovcnt, skip + (size_t)n, flags);

		n += more > 0 ? more : 0;
	}
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
	if (c->mode != TT_CONN_ATTACHED || !want_check(c))
		return -EAGAIN;
	tt_conn_check_shadow(c, fd);
	return tt_load_relaxed(&c->e->shadow) ? recv_once(c, fd, iov, iovcnt, skip, flags)
					      : -EAGAIN;
}

/* For TCP, MSG_TRUNC throws the bytes away instead of copying them. */
static ssize_t discard(struct tt_conn *c, int fd, size_t want, int flags)
{
	char bin[BOUNCE];
	struct iovec iov = {bin, want < sizeof(bin) ? want : sizeof(bin)};

	return tt_sock_recv(c, fd, &iov, 1, flags & ~MSG_TRUNC);
}

static ssize_t recv_long(struct tt_conn *c, int fd, const struct iovec *iov, int iovcnt, int flags)
{
	size_t done = 0, total = total_bytes(iov, iovcnt);
	bool wait = !tt_load_relaxed(&c->e->nonblock) && !(flags & MSG_DONTWAIT);
	size_t enough = (flags & MSG_WAITALL) && !(flags & MSG_PEEK) ? total : 1;
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
			deadline = deadline_of(c->e->rcvtimeo_ns);
		int err = tt_wait_rx(c, fd, deadline);

		if (err == -EINTR && deadline == INT64_MAX && tt_signals_restart())
			continue;
		if (err < 0)
			return done ? (ssize_t)done : err;
	}
}

ssize_t tt_sock_recv(struct tt_conn *c, int fd, const struct iovec *iov, int iovcnt, int flags)
{
	if (!tt_conn_pin(c, fd))
		return -EBADF;
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
	if (room && tt_chan_notify_room(c->st.link, c->st.slot, &c->st.rx->wait) < 0)
		tt_conn_kick(c, fd);
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

/* ---- between files, pipes and streams ---- */

/*
 * Through a buffer of our own: reading straight into the ring would hold its
 * lock across a call that may block.
 */
ssize_t tt_sock_sendfile(struct tt_conn *c, int out, int in, off_t *offset, size_t count)
{
	char buf[BOUNCE];
	size_t done = 0;

	if (offset && *offset < 0)
		return -EINVAL;
	while (done < count) {
		size_t want = count - done < sizeof(buf) ? count - done : sizeof(buf);
		off_t at = offset ? *offset : lseek(in, 0, SEEK_CUR);

		ssize_t got = at < 0 ? -1 : pread(in, buf, want, at);

		if (got < 0)
			return done ? (ssize_t)done : errno == ESPIPE ? -EINVAL : -errno;
		if (got == 0)
			break;
		struct iovec iov = {buf, (size_t)got};
		ssize_t n = tt_sock_send(c, out, &iov, 1, 0);

		if (n <= 0)
			return done ? (ssize_t)done : n;
		if (offset)
			*offset = at + n;
		else
			lseek(in, at + n, SEEK_SET);
		done += (size_t)n;
		if (n < got)
			break;
	}
	return (ssize_t)done;
}

static size_t pipe_room(int pipe)
{
	int used = 0, size = tt_sys.fcntl(pipe, F_GETPIPE_SZ);

	if (size < 0 || tt_sys.ioctl(pipe, FIONREAD, &used) < 0 || used >= size)
		return 0;
	return (size_t)(size - used);
}

ssize_t tt_sock_splice_out(struct tt_conn *c, int fd, int pipe, size_t len, unsigned flags)
{
	char buf[BOUNCE];
	size_t room = pipe_room(pipe);
	bool wait = !(flags & SPLICE_F_NONBLOCK);

	/* A full pipe is waited for before bytes are taken from the stream. */
	while (!room) {
		struct pollfd p = {pipe, POLLOUT, 0};

		if (!wait)
			return -EAGAIN;
		if (tt_sys.poll(&p, 1, -1) < 0)
			return -errno;
		room = pipe_room(pipe);
		if (!room)
			room = 4096;
	}
	size_t n = len < room ? len : room;
	struct iovec iov = {buf, n < sizeof(buf) ? n : sizeof(buf)};
	ssize_t got = tt_sock_recv(c, fd, &iov, 1, wait ? 0 : MSG_DONTWAIT);

	for (ssize_t put = 0; got > 0 && put < got;) {
		ssize_t w = tt_sys.write(pipe, buf + put, (size_t)(got - put));

		if (w < 0 && errno == EAGAIN) {
			struct pollfd p = {pipe, POLLOUT, 0};

			tt_sys.poll(&p, 1, -1);
			continue;
		}
		if (w < 0)
			return put ? put : -errno;
		put += w;
	}
	return got;
}

ssize_t tt_sock_splice_in(struct tt_conn *c, int pipe, int fd, size_t len, unsigned flags)
{
	char buf[BOUNCE];
	bool wait = !(flags & SPLICE_F_NONBLOCK);
	int avail = 0;

	tt_sys.ioctl(pipe, FIONREAD, &avail);
	if (!wait && avail == 0)
		return -EAGAIN;
	/* Bytes leave the pipe only when the stream can take them. */
	if (!wait || c->e->nonblock) {
		if (!(tt_conn_poll(c, fd, POLLOUT) & POLLOUT))
			return -EAGAIN;
		if (len > 1024)
			len = 1024;
	}
	ssize_t got = tt_sys.read(pipe, buf, len < sizeof(buf) ? len : sizeof(buf));

	if (got <= 0)
		return got < 0 ? -errno : 0;
	for (ssize_t put = 0; put < got;) {
		struct iovec iov = {buf + put, (size_t)(got - put)};
		ssize_t n = tt_sock_send(c, fd, &iov, 1, 0);

		if (n == -EAGAIN) {
			tt_wait_tx(c, fd, INT64_MAX);
			continue;
		}
		if (n < 0)
			return put ? put : n;
		put += n;
	}
	return got;
}
