/* SPDX-License-Identifier: MIT */
/*
 * What the kernel says of a connection: its end, its errors, its readiness.
 *
 * The shadow is the connection's life, the ring only its bytes. Who closed,
 * who died, what error is pending: the kernel knows, through the shadow. What
 * it cannot know, because it never saw the bytes, is derived here when the
 * shadow's FIN is first seen:
 *
 *   FIN and the peer's ring says FIN   it shut down; it still reads, so the
 *                                      direction to it goes back to TCP, whose
 *                                      resets then tell when it closes
 *   FIN alone, or after TT_STREAM_HALF it closed or died: also back to TCP, and
 *                                      if it left bytes of ours unread, a
 *                                      kernel would have sent a reset: we
 *                                      deliver one (entry.reset)
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/sys.h"
#include "sock/io_int.h"
#include "ulc/bell.h"
#include "ulc/chan.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/ioctl.h>

/* ---- the shadow ---- */

void tt_conn_drop_kicks(struct tt_conn *c, int fd)
{
	char scratch[256];
	uint32_t sent = tt_load_acquire(&c->st.rx->kicks);

	while (sent - c->e->kicks_dropped > 0 && sent - c->e->kicks_dropped < 1u << 30) {
		uint32_t n = sent - c->e->kicks_dropped;
		ssize_t got = tt_sys.recv(fd, scratch, n < sizeof(scratch) ? n : sizeof(scratch),
					  MSG_DONTWAIT);

		if (got <= 0)
			return;
		c->e->kicks_dropped += (uint32_t)got;
	}
}

int tt_conn_take_reset(struct tt_conn *c)
{
	uint32_t was = TT_RESET_PENDING;

	if (!tt_cas(&c->e->reset, &was, TT_RESET_TOLD))
		return 0;
	if (c->mode == TT_CONN_ATTACHED && (tt_load_relaxed(&c->st.rx->flags) & TT_STREAM_ENDED))
		return EPIPE;
	uint32_t err = tt_load_relaxed(&c->e->reset_errno);

	return err ? (int)err : ECONNRESET;
}

/*
 * The connection is reset; but one whose two directions had ended is none any
 * more, and nobody hears of it.
 */
static void note_reset(struct tt_conn *c)
{
	bool over = tt_load_relaxed(&c->e->wr_shut) &&
		    (tt_load_acquire(&c->st.rx->flags) & TT_STREAM_ENDED);
	uint32_t none = TT_RESET_NONE;

	tt_cas(&c->e->reset, &none, over ? TT_RESET_TOLD : TT_RESET_PENDING);
}

bool tt_conn_reset_by_kick(struct tt_conn *c)
{
	uint64_t head = tt_load_acquire(&c->st.rx->head);

	return tt_load_relaxed(&c->e->kicks_sent) && head == tt_load_relaxed(&c->e->tx.tail);
}

/*
 * The shadow was reset. It does not know all that decides what is reported: an
 * end that only the ring told of, bytes that were left unread there. So its
 * error is taken from it. Where it knows all, it is the one to answer.
 */
static void take_shadow_error(struct tt_conn *c, int fd)
{
	struct tt_entry *e = c->e;
	bool withheld = (tt_load_relaxed(&c->st.rx->flags) & TT_STREAM_HALF) ||
			(tt_load_relaxed(&e->wr_shut) &&
			 (tt_load_relaxed(&c->st.tx->flags) & TT_STREAM_HALF));
	int err = 0;
	socklen_t len = sizeof(err);

	if (tt_load_relaxed(&e->rx_route) != TT_ROUTE_RING && !withheld &&
	    !tt_load_acquire(&e->reset))
		return;
	/* Noted before it is taken: another thread must not find neither, which were an end. */
	if (!tt_conn_reset_by_kick(c))
		note_reset(c);
	if (tt_sys.getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) == 0 && err)
		tt_store_relaxed(&e->reset_errno, (uint32_t)err);
}

int tt_conn_tcp_state(int fd)
{
	struct tcp_info ti;
	socklen_t len = sizeof(ti);

	return tt_sys.getsockopt(fd, IPPROTO_TCP, TCP_INFO, &ti, &len) < 0 ? 0 : ti.tcpi_state;
}

static bool peer_fin(int fd)
{
	int state = tt_conn_tcp_state(fd);

	return state == TCP_CLOSE_WAIT || state == TCP_LAST_ACK || state == TCP_CLOSING ||
	       state == TCP_TIME_WAIT || state == TCP_CLOSE;
}

/* What is in the ring stays there to be read. */
void tt_conn_go_back(struct tt_conn *c, enum tt_reason why)
{
	struct tt_entry *e = c->e;

	/* Nothing follows a direction that has ended, by whichever way. */
	if (!(tt_load_relaxed(&c->st.tx->flags) & TT_STREAM_ENDED))
		tt_fetch_or(&c->st.tx->flags, TT_STREAM_DOWN);
	tt_store_relaxed(&e->down_reason, (uint32_t)why);
	if (e->tx_route == TT_ROUTE_RING)
		tt_conn_cork_shadow(c, tt_conn_fd(c, c->fd), true);
	tt_store_release(&e->tx_route, TT_ROUTE_BACK);
	/* Without a kick, which would be among the data now: that is what wakes who has no bell. */
	tt_chan_notify_data(c->st.link, c->st.slot, &c->st.rx->wait);
}

/*
 * The kernel counts an urgent byte among those sent, the receiver does not read
 * it with them: from where such a direction went over nobody could tell.
 */
void tt_sock_urgent(struct tt_conn *c, int fd)
{
	if (tt_load_acquire(&c->mode) == TT_CONN_PLAIN && tt_fdtab_trylock()) {
		if (c->mode == TT_CONN_PLAIN)
			tt_conn_fallback(c, fd, TT_REASON_URGENT);
		tt_fdtab_unlock();
	}
	if (!tt_conn_managed(c) || tt_conn_lock_tx(c) < 0)
		return;
	if (c->e->tx_route == TT_ROUTE_TCP) {
		tt_store_relaxed(&c->e->down_reason, (uint32_t)TT_REASON_URGENT);
		tt_store_release(&c->e->tx_route, TT_ROUTE_BACK);
	}
	tt_conn_unlock_tx(c);
}

bool tt_conn_leave_full_ring(struct tt_conn *c, int fd)
{
	bool all_by_ring = tt_load_relaxed(&c->e->rx_route) == TT_ROUTE_RING &&
			   !(tt_load_acquire(&c->st.rx->flags) & TT_STREAM_DOWN);
	int waiting = 0;

	if (all_by_ring || tt_sys.ioctl(fd, FIONREAD, &waiting) < 0 || waiting == 0)
		return false;
	tt_conn_go_back(c, TT_REASON_BACKLOG);
	return true;
}

static void peer_ended(struct tt_conn *c, int fd)
{
	struct tt_entry *e = c->e;
	uint64_t unread = 0;

	if (tt_conn_lock_tx(c) < 0)
		return;
	if (!(tt_load_relaxed(&e->shadow) & TT_SHADOW_FIN)) {
		bool shut = tt_load_acquire(&c->st.rx->flags) & TT_STREAM_FIN;

		if (!shut && e->tx_route != TT_ROUTE_TCP)
			tt_stream_unread(&c->st, &e->tx, &unread);
		if (!shut) {
			tt_fetch_or(&e->shadow, TT_SHADOW_GONE);
			if (unread)
				note_reset(c);
		}
		if (e->tx_route == TT_ROUTE_RING)
			tt_conn_go_back(c, TT_REASON_HALF_CLOSED);
		else
			tt_store_release(&e->tx_route, TT_ROUTE_BACK);
		tt_fetch_or(&e->shadow, TT_SHADOW_FIN);
	}
	tt_conn_unlock_tx(c);
}

/* The FIN that was withheld by a half-close. */
void tt_conn_shut_shadow(struct tt_conn *c, int fd)
{
	uint32_t flags = tt_load_acquire(&c->st.tx->flags);

	if (!(flags & TT_STREAM_HALF) || (flags & TT_STREAM_FIN))
		return;
	tt_fetch_or(&c->st.tx->flags, TT_STREAM_FIN);
	tt_sys.shutdown(fd, SHUT_WR);
}

void tt_conn_check_shadow(struct tt_conn *c, int fd)
{
	struct pollfd p = {fd, POLLIN | POLLRDHUP, 0};
	struct tt_entry *e = c->e;
	int err = errno;

	c->checked = tt_ticks();
	if (c->mode == TT_CONN_ATTACHED && (tt_load_relaxed(&c->st.rx->flags) & TT_STREAM_HINT))
		tt_fetch_and(&c->st.rx->flags, ~(uint32_t)TT_STREAM_HINT);
	if (c->mode != TT_CONN_ATTACHED || tt_sys.poll(&p, 1, 0) <= 0)
		goto out;
	if ((p.revents & POLLIN) && tt_load_relaxed(&e->rx_route) == TT_ROUTE_RING &&
	    tt_conn_lock_rx(c) == 0) {
		if (e->rx_route == TT_ROUTE_RING)
			tt_conn_drop_kicks(c, fd);
		tt_conn_unlock_rx(c);
	}
	if (p.revents & POLLERR)
		tt_fetch_or(&e->shadow, TT_SHADOW_ERR);
	if ((p.revents & (POLLRDHUP | POLLHUP | POLLERR)) &&
	    !(tt_load_relaxed(&e->shadow) & TT_SHADOW_FIN) && peer_fin(fd)) {
		peer_ended(c, fd);
		tt_conn_shut_shadow(c, fd);
	}
	if (p.revents & POLLHUP)
		tt_fetch_or(&e->shadow, TT_SHADOW_HUP);
	if ((p.revents & POLLERR) && (p.revents & POLLHUP) && tt_conn_tcp_state(fd) == TCP_CLOSE)
		take_shadow_error(c, fd);
out:
	errno = err;
}

void tt_conn_kick(struct tt_conn *c, int fd)
{
	struct tt_entry *e = c->e;

	/* Only while nothing but kicks goes by the shadow from us: else it would be data. */
	if (tt_load_acquire(&e->tx_route) != TT_ROUTE_RING)
		return;
	/* Counted before it is sent: the receiver must never take it for data. */
	tt_store_release(&c->st.tx->kicks, ++e->kicks_sent);
	tt_count(&e->kicks, 1);
	tt_count(&c->mem->totals.kicks, 1);
	tt_count(&c->mem->totals.shadow_tx_bytes, 1);
	if (tt_sys.send(fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1)
		tt_store_release(&c->st.tx->kicks, --e->kicks_sent);
}

void tt_conn_hint(struct tt_conn *c)
{
	if (tt_load_acquire(&c->mode) == TT_CONN_ATTACHED)
		tt_fetch_or(&c->st.tx->flags, TT_STREAM_HINT);
}

void tt_conn_break(struct tt_conn *c, int fd)
{
	struct tt_entry *e = c->e;

	tt_log(TT_LOG_WARN, "fd %d: the peer broke the protocol, connection reset", fd);
	tt_store_relaxed(&e->reason, TT_REASON_PROTOCOL);
	if (tt_load_relaxed(&e->reset) == TT_RESET_NONE)
		tt_store_release(&e->reset, TT_RESET_PENDING);
	tt_fetch_or(&e->shadow, TT_SHADOW_GONE | TT_SHADOW_FIN | TT_SHADOW_HUP);
	tt_sys.shutdown(fd, SHUT_RDWR);
}

/* ---- shutdown ---- */

void tt_conn_wake_own(struct tt_conn *c)
{
	struct tt_wait_line *w = &c->st.tx->wait;

	for (int i = 0; i < TT_WAIT_BELLS; i++) {
		uint32_t rx = tt_load_relaxed(&w->rx_bell[i]), tx = tt_load_relaxed(&w->tx_bell[i]);

		if (rx)
			tt_bell_ring(tt_load_relaxed(&c->mem->id), rx);
		if (tx)
			tt_bell_ring(tt_load_relaxed(&c->mem->id), tx);
	}
}

/*
 * Half-close. While the other way goes on by the ring the shadow must tell when
 * the peer ends, so no FIN is sent: the ring says that the direction has ended
 * (TT_STREAM_HALF), and a FIN that the peer then sees is our end, as without a
 * shutdown. When both directions have ended, or the reading side is shut down
 * too, the shadow follows. Two that half-close at once: each says so, then
 * looks at the other (both with a full barrier), and one of them at least sees.
 *
 * True: done. tx_lock is taken here.
 */
static bool half_close(struct tt_conn *c, int fd)
{
	struct tt_entry *e = c->e;
	bool done = false;

	if (tt_conn_lock_tx(c) < 0)
		return false;
	if (e->wr_shut) {
		/* Again: nothing, while the FIN is withheld. */
		done = (tt_load_acquire(&c->st.tx->flags) & TT_STREAM_ENDED) == TT_STREAM_HALF;
	} else {
		if (e->tx_route == TT_ROUTE_TCP)
			tt_conn_go_up(c, fd);
		done = e->tx_route == TT_ROUTE_RING && !e->rd_shut && !e->reset && !e->shadow &&
		       tt_conn_tcp_state(fd) == TCP_ESTABLISHED;
		tt_store_release(&e->wr_shut, 1u);
		tt_fetch_or(&c->st.tx->flags, done ? TT_STREAM_HALF : TT_STREAM_FIN);
		if (done)
			tt_conn_tell(c, fd,
				     tt_chan_notify_data(c->st.link, c->st.slot, &c->st.rx->wait));
	}
	tt_conn_unlock_tx(c);
	if (done && (tt_load_acquire(&c->st.rx->flags) & TT_STREAM_ENDED))
		tt_conn_shut_shadow(c, fd);
	return done;
}

int tt_sock_shutdown(int fd, int how)
{
	struct tt_conn *c = tt_fd_conn(fd);
	bool valid = how == SHUT_RD || how == SHUT_WR || how == SHUT_RDWR;
	bool ring = valid && c && c->e && tt_load_acquire(&c->e->grant) && tt_conn_ready(c, fd);
	int ret = 0;

	if (ring) {
		tt_conn_check_shadow(c, fd);
		/* Reset, or both ways have ended: the connection is none any more. */
		if (tt_load_acquire(&c->e->reset))
			return -ENOTCONN;
		if ((tt_load_relaxed(&c->st.tx->flags) & TT_STREAM_ENDED) &&
		    tt_conn_rx_ended(c, fd)) {
			tt_conn_shut_shadow(c, fd);
			return -ENOTCONN;
		}
		ring = tt_conn_tcp_state(fd) != TCP_CLOSE;
	}
	if (ring && (how == SHUT_RD || how == SHUT_RDWR))
		tt_store_release(&c->e->rd_shut, 1u);
	if (ring && how == SHUT_RDWR && tt_conn_lock_tx(c) == 0) {
		tt_store_release(&c->e->wr_shut, 1u);
		tt_fetch_or(&c->st.tx->flags, TT_STREAM_FIN);
		tt_conn_unlock_tx(c);
	}
	if (ring && how == SHUT_RD)
		tt_conn_shut_shadow(c, fd);
	if (!ring || how != SHUT_WR || !half_close(c, fd))
		ret = tt_sys.shutdown(fd, how) < 0 ? -errno : 0;
	/* A FIN wakes who sleeps on the shadow, but not our own who wait for room. */
	if (ring) {
		tt_conn_wake_own(c);
		/* What the peer sends now is TCP's to refuse. */
		tt_conn_hint(c);
	}
	if (c)
		tt_eset_conn_changed(c);
	return ret;
}

/* ---- readiness ---- */

static short kernel_poll(int fd, short want)
{
	struct pollfd p = {fd, want, 0};

	return tt_sys.poll(&p, 1, 0) > 0 ? p.revents : 0;
}

static short poll_reset(const struct tt_entry *e)
{
	short ev = POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM | POLLHUP | POLLRDHUP;

	return tt_load_relaxed(&e->reset) == TT_RESET_PENDING ? ev | POLLERR : ev;
}

/* Room in the ring; without any, the route may change. */
static short poll_tx(struct tt_conn *c, int fd)
{
	bool ok = true;

	if (tt_conn_lock_tx(c) == 0) {
		if (c->e->tx_route == TT_ROUTE_RING) {
			ok = tt_conn_writable(c);
			if (!ok)
				tt_conn_leave_full_ring(c, fd);
		}
		tt_conn_unlock_tx(c);
	}
	return ok ? POLLOUT | POLLWRNORM : 0;
}

/* SO_RCVLOWAT: less than this is not readable. */
static bool enough(struct tt_conn *c)
{
	uint64_t n = 0;

	if (!c->e->rcvlowat || tt_conn_lock_rx(c) < 0)
		return true;
	if (tt_stream_pending(&c->st, &c->e->rx, &n) < 0)
		n = UINT64_MAX;
	tt_conn_unlock_rx(c);
	return n >= c->e->rcvlowat;
}

short tt_conn_poll(struct tt_conn *c, int fd, short want)
{
	struct tt_entry *e = c->e;
	const short in = POLLIN | POLLRDNORM, out = POLLOUT | POLLWRNORM;

	tt_conn_serve_leave(c, fd);
	if (tt_load_acquire(&e->reset))
		return poll_reset(e);
	uint32_t rx = tt_load_acquire(&e->rx_route), tx = tt_load_acquire(&e->tx_route);
	uint32_t flags = tt_load_acquire(&c->st.rx->flags);
	uint32_t shadow = tt_load_acquire(&e->shadow);
	short ev = 0, ask = 0;

	if (rx == TT_ROUTE_TCP && (flags & TT_STREAM_UP) && !tt_load_relaxed(&e->up_known)) {
		tt_sock_note_up(c, fd);
		rx = tt_load_acquire(&e->rx_route);
	}

	if (rx == TT_ROUTE_RING) {
		if (tt_stream_peek(&c->st, tt_load_relaxed(&e->rx.head)) && enough(c))
			ev |= in;
		/* After the ring comes TCP again; urgent data is ahead of it all. */
		if (flags & TT_STREAM_DOWN)
			ask |= ev ? POLLPRI | POLLRDBAND : in | POLLPRI | POLLRDBAND | POLLRDHUP;
	} else {
		ask |= in | POLLPRI | POLLRDBAND | POLLRDHUP;
	}
	if (tx == TT_ROUTE_RING && (want & out)) {
		ev |= poll_tx(c, fd);
		tx = tt_load_acquire(&e->tx_route);
	}
	if (tx != TT_ROUTE_RING)
		ask |= out;
	/* A FIN on the shadow lies behind what came by TCP; what is in the ring came before it. */
	if (tt_conn_rx_ended(c, fd) || (shadow & TT_SHADOW_FIN) || e->rd_shut) {
		ev |= in | POLLRDHUP;
		/* Both ways are closed: the shadow may not know it yet. */
		if (tt_load_relaxed(&e->wr_shut))
			ev |= POLLHUP;
	}
	if (shadow & (TT_SHADOW_HUP | TT_SHADOW_ERR))
		ask |= POLLRDHUP;
	if (ask || shadow)
		ev |= kernel_poll(fd, ask);
	return ev;
}
