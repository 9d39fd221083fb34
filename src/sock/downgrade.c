/* SPDX-License-Identifier: MIT */
/*
 * A live connection back to kernel TCP, both ways, in order, with the peer's
 * help: before its descriptor reaches a program that knows nothing of rings.
 *
 *   we                                    the peer
 *   send by TCP from our tail (DOWN)
 *   LEAVE, and take nothing more      ->  at its next call, or woken from its wait:
 *                                         sends by TCP what we have not taken,
 *                                         then all the rest (DOWN, AGAIN)
 *   throw away what is in the ring    <-
 *
 * The peer refuses (STAYS) what does not fit into TCP's buffers at once; and it
 * may be busy with other things for long. Then handover.c decides.
 *
 * A process that has both ends, as the child of one with threads may, is its own
 * peer: whoever uses the other end may be waiting for this very process.
 */
#include "sock/io_int.h"

#include "base/sys.h"
#include "ulc/chan.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#define AGAIN_MAX (64u << 10)

/* tx_lock held, route is the ring: what the peer has not taken, once more, by TCP. */
static int send_again(struct tt_conn *c, int fd, bool *ret_any)
{
	char *buf =
		mmap(NULL, AGAIN_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t n = 0;
	int err = buf == MAP_FAILED ? -ENOMEM
				    : tt_stream_copy_unread(&c->st, &c->e->tx, buf, AGAIN_MAX, &n);

	if (err == 0 && n) {
		ssize_t sent = tt_sys.send(fd, buf, n, MSG_DONTWAIT | MSG_NOSIGNAL);

		/* A part is there now and the rest cannot be: better an end than a gap. */
		if (sent > 0 && (size_t)sent < n)
			err = -EPROTO;
		else if (sent < 0)
			err = -errno;
		else
			tt_count(&c->e->tx_tcp_bytes, (uint64_t)sent);
	}
	if (buf != MAP_FAILED)
		munmap(buf, AGAIN_MAX);
	*ret_any = n > 0;
	return err;
}

void tt_conn_serve_leave_slow(struct tt_conn *c, int fd)
{
	struct tt_entry *e = c->e;
	bool again = false;
	int err = 0;

	if (tt_conn_lock_tx(c) < 0)
		return;
	if (!tt_conn_asked_to_leave(c)) {
		tt_conn_unlock_tx(c);
		return;
	}
	if (e->tx_route == TT_ROUTE_RING)
		err = send_again(c, fd, &again);
	if (err == 0) {
		/* The answer, also where the direction has ended and there is nothing to send. */
		tt_fetch_or(&c->st.tx->flags,
			    TT_STREAM_DOWN | (again ? TT_STREAM_AGAIN : (uint32_t)0));
		tt_conn_go_back(c, TT_REASON_HANDED_OVER);
	} else {
		tt_fetch_or(&c->st.tx->flags, TT_STREAM_STAYS);
	}
	tt_conn_unlock_tx(c);
	if (err == -EPROTO)
		tt_conn_break(c, fd);
	else if (err == 0)
		tt_conn_shut_shadow(c, fd);
}

/* rx_lock held, the peer sends by TCP now. True: nothing but TCP is left for us to read. */
static bool leave_ring(struct tt_conn *c, int fd, uint32_t flags)
{
	struct tt_entry *e = c->e;
	uint64_t pending = 0;
	char scratch[1024];
	size_t n;
	bool room;

	if (e->rx_route == TT_ROUTE_BACK)
		return true;
	if ((flags & TT_STREAM_UP) && tt_stream_pending(&c->st, &e->rx, &pending) < 0)
		return false;
	if (pending && !(flags & TT_STREAM_AGAIN))
		return false;
	if (e->rx_route == TT_ROUTE_RING)
		tt_conn_drop_kicks(c, fd);
	/* Kicks among bytes of data cannot be told from them by who reads raw. */
	if (e->kicks_dropped != tt_load_acquire(&c->st.rx->kicks))
		return false;
	while (pending &&
	       tt_stream_recv1(&c->st, &e->rx, scratch, sizeof(scratch), false, &n, &room) == 0 &&
	       n)
		;
	tt_stream_idle(&c->st, &e->rx);
	tt_store_release(&e->rx_route, TT_ROUTE_BACK);
	return true;
}

/*
 * rx_lock held. A peer that has not come to the ring need not be asked: it sets
 * UP and then sees LEAVE (D1, in tt_conn_go_up), or we, who set LEAVE, see UP; if
 * both, it takes UP back, so look for a while.
 */
static bool stays_on_tcp(struct tt_conn *c)
{
	if (c->e->rx_route != TT_ROUTE_TCP || c->e->up_known)
		return false;
	for (int i = 0; i < 20; i++) {
		if (!(tt_load_acquire(&c->st.rx->flags) & TT_STREAM_UP))
			return true;
		usleep(50);
	}
	return false;
}

static bool is_peer(const struct tt_conn *a, const struct tt_conn *b)
{
	return a->st.link->id == b->st.link->id && a->st.slot == b->st.slot &&
	       a->st.link->side != b->st.link->side;
}

bool tt_conn_downgrade_here(struct tt_conn *c, int fd, struct tt_conn *peer, int peer_fd)
{
	bool ok = false;

	if (!is_peer(c, peer) || tt_conn_lock_rx(c) < 0)
		return false;
	/* Before either has gone back by itself: after that nothing is sent again. */
	if (tt_load_relaxed(&peer->e->tx_route) == TT_ROUTE_RING) {
		tt_fetch_or(&c->st.tx->flags, TT_STREAM_LEAVE);
		tt_conn_serve_leave_slow(peer, peer_fd);
		uint32_t flags = tt_load_acquire(&c->st.rx->flags);

		ok = (flags & TT_STREAM_DOWN) && leave_ring(c, fd, flags);
		if (!ok)
			tt_fetch_and(&c->st.tx->flags, ~(uint32_t)TT_STREAM_LEAVE);
	}
	tt_conn_unlock_rx(c);
	return ok;
}

bool tt_conn_downgrade(struct tt_conn *c, int fd, enum tt_reason why, int64_t wait_ns)
{
	const uint32_t answers = TT_STREAM_DOWN | TT_STREAM_STAYS;
	int64_t deadline = tt_now_ns() + wait_ns;
	struct tt_entry *e = c->e;
	uint32_t flags;
	bool ok = false;

	if (tt_conn_lock_tx(c) < 0)
		return false;
	if (e->tx_raw == 0 && e->tx_route != TT_ROUTE_BACK)
		tt_conn_go_back(c, why);
	bool back = e->tx_route == TT_ROUTE_BACK;

	tt_conn_unlock_tx(c);
	if (!back || tt_conn_lock_rx(c) < 0)
		return false;
	tt_conn_shut_shadow(c, fd);
	tt_fetch_or(&c->st.tx->flags, TT_STREAM_LEAVE);
	/* No kick: it would be a byte of data now. Whoever has no bell is not woken, and not asked. */
	tt_chan_notify_data(c->st.link, c->st.slot, &c->st.rx->wait);
	tt_chan_notify_room(c->st.link, c->st.slot, &c->st.rx->wait);
	if (stays_on_tcp(c)) {
		tt_store_release(&e->rx_route, TT_ROUTE_BACK);
		tt_conn_unlock_rx(c);
		return true;
	}
	while (!((flags = tt_load_acquire(&c->st.rx->flags)) & answers) && tt_now_ns() < deadline)
		usleep(50);
	if (flags & TT_STREAM_DOWN)
		ok = leave_ring(c, fd, flags);
	if (!ok)
		tt_fetch_and(&c->st.tx->flags, ~(uint32_t)TT_STREAM_LEAVE);
	tt_conn_unlock_rx(c);
	return ok;
}
