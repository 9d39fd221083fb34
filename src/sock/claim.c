/* SPDX-License-Identifier: MIT */
/*
 * From plain TCP to the ring: a connection that is worth it is claimed, which
 * tells the daemon; when both ends have claimed, the daemon grants, and whoever
 * of the side looks next attaches. Or it cannot be: then it falls back, for a
 * recorded reason.
 */
#include "sock/conn.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/sys.h"
#include "sock/sock.h"
#include "ulc/chan.h"
#include "ulc/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>

/*
 * A connection is claimed when it has cost about what the ring costs to have
 * (some ten messages, or the copies of this much): short ones stay on TCP.
 */
#define CLAIM_TURNS 8u
#define CLAIM_MESSAGES 16u

/* ---- claiming ---- */

static void read_file_state(struct tt_entry *e, int fd)
{
	int fl = tt_sys.fcntl(fd, F_GETFL), lowat = 1;
	struct timeval tv;
	socklen_t len = sizeof(tv);

	if (fl >= 0)
		e->nonblock = (fl & O_NONBLOCK) != 0;
	if (tt_sys.getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, &len) == 0)
		e->rcvtimeo_ns = tv.tv_sec * TT_NS_PER_SEC + tv.tv_usec * 1000LL;
	len = sizeof(tv);
	if (tt_sys.getsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, &len) == 0)
		e->sndtimeo_ns = tv.tv_sec * TT_NS_PER_SEC + tv.tv_usec * 1000LL;
	len = sizeof(lowat);
	if (tt_sys.getsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &lowat, &len) == 0)
		e->rcvlowat = lowat > 1 ? (uint32_t)lowat : 0;
}

static void fill_address(struct sockaddr_storage_small *out, const struct sockaddr_storage *ss)
{
	memset(out, 0, sizeof(*out));
	out->family = ss->ss_family;
	if (ss->ss_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)ss;

		out->port = ntohs(in->sin_port);
		memcpy(out->addr, &in->sin_addr, 4);
	} else if (ss->ss_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const void *)ss;

		out->port = ntohs(in6->sin6_port);
		memcpy(out->addr, &in6->sin6_addr, 16);
	}
}

static bool is_loopback(const struct sockaddr_storage_small *a)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	static const uint8_t one[16] = {[15] = 1};

	if (a->family == AF_INET)
		return a->addr[0] == 127;
	if (memcmp(a->addr, mapped, 12) == 0)
		return a->addr[12] == 127;
	return memcmp(a->addr, one, 16) == 0;
}

/* Both ends on this machine: loopback, or an address that talks to itself. */
static bool same_machine(const struct tt_entry *e)
{
	return (is_loopback(&e->local) && is_loopback(&e->remote)) ||
	       memcmp(e->local.addr, e->remote.addr, sizeof(e->local.addr)) == 0;
}

static uint64_t inode_of(int fd)
{
	struct stat st;

	return tt_sys.fstat(fd, &st) == 0 ? st.st_ino : 0;
}

static int entry_of(struct tt_conn *c, int fd)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	uint64_t cookie;
	bool fresh;

	if (c->e)
		return 0;
	cookie = tt_conn_cookie(fd);
	if (!cookie)
		return -ENOTSOCK;
	struct tt_entry *e = tt_side_entry_get(tt_proc.mem, cookie, true, &fresh);

	if (!e)
		return -ENOSPC;
	if (fresh) {
		prctl(PR_GET_NAME, e->comm);
		if (getsockname(fd, (struct sockaddr *)&ss, &len) == 0)
			fill_address(&e->local, &ss);
		len = sizeof(ss);
		if (getpeername(fd, (struct sockaddr *)&ss, &len) == 0)
			fill_address(&e->remote, &ss);
		read_file_state(e, fd);
		tt_store_release(&e->inode, inode_of(fd));
		tt_count(&tt_proc.mem->totals.connections, 1);
	}
	c->mem = tt_proc.mem;
	c->generation = e->generation;
	tt_store_release(&c->e, e);
	return 0;
}

static void count_fallback(struct tt_conn *c, enum tt_reason why)
{
	tt_count(&c->mem->totals.fallback[why], 1);
}

void tt_conn_fallback(struct tt_conn *c, int fd, enum tt_reason why)
{
	c->reason = why;
	if (entry_of(c, fd) == 0) {
		tt_store_relaxed(&c->e->reason, (uint32_t)why);
		count_fallback(c, why);
	}
	tt_store_release(&c->mode, TT_CONN_FALLBACK);
}

static bool kernel_only(int fd)
{
	int v = 0;
	char ulp[16] = "";
	socklen_t len = sizeof(v);

	if (tt_sys.getsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &v, &len) == 0 && v)
		return true;
	len = sizeof(ulp);
	return tt_sys.getsockopt(fd, IPPROTO_TCP, TCP_ULP, ulp, &len) == 0 && len > 0 && ulp[0];
}

/* Why this connection cannot leave TCP; TT_REASON_NONE: it can. */
static enum tt_reason obstacle(struct tt_conn *c, int fd)
{
	int err = entry_of(c, fd);

	if (err < 0)
		return err == -ENOSPC ? TT_REASON_TABLE_FULL : TT_REASON_RESOURCES;
	if (!same_machine(c->e))
		return TT_REASON_OTHER_HOST;
	return kernel_only(fd) ? TT_REASON_OPTION : TT_REASON_NONE;
}

/* Tells the daemon; table lock held. -EAGAIN: it is busy, at a later message. */
static int send_claim(struct tt_conn *c, int fd)
{
	struct tt_ctl_msg m = tt_ctl_msg(TT_CTL_CLAIM, tt_load_relaxed(&c->mem->id),
					 tt_side_entry_index(c->mem, c->e), c->e->generation, 0);

	tt_eset_conn_claimed(c);
	/* The daemon must know the bell before it grants, or it cannot wake us. */
	if (!tt_load_relaxed(&c->e->nonblock))
		tt_thread_bell();
	/* Before: whoever of the side attaches takes the reason back. */
	tt_store_relaxed(&c->e->reason, TT_REASON_PEER_NOT_TUTTI);
	tt_count(&c->mem->totals.fallback[TT_REASON_PEER_NOT_TUTTI], 1);
	int err = tt_proc_send(&m, fd);

	if (err == 0) {
		tt_store_release(&c->e->claimed, 1u);
		return 0;
	}
	tt_store_relaxed(&c->e->reason, TT_REASON_NONE);
	tt_count(&c->mem->totals.fallback[TT_REASON_PEER_NOT_TUTTI], (uint64_t)-1);
	if (err != -EAGAIN)
		tt_conn_fallback(c, fd, TT_REASON_NO_DAEMON);
	return err;
}

/* From PLAIN: threads inside the kernel would not hear of the ring. Table lock held. */
static bool manage(struct tt_conn *c)
{
	if (c->mode != TT_CONN_PLAIN)
		return true;
	tt_exchange(&c->mode, TT_CONN_CLAIMED); /* R0 */
	if (!tt_load_acquire(&c->raw))
		return true;
	tt_store_release(&c->mode, TT_CONN_PLAIN);
	return false;
}

static void claim(struct tt_conn *c, int fd)
{
	enum tt_reason why = obstacle(c, fd);

	if (why != TT_REASON_NONE) {
		tt_conn_fallback(c, fd, why);
		return;
	}
	if (!manage(c) || tt_load_acquire(&c->e->claimed))
		return;
	send_claim(c, fd);
}

int tt_conn_share(struct tt_conn *c, int fd)
{
	if (!c->connected && !c->e)
		return 0;
	int err = entry_of(c, fd);

	if (err < 0)
		return err;
	tt_store_relaxed(&c->e->shared, 1u);
	/* Another process may claim at any time: from now on nobody sleeps unseen. */
	if (!manage(c))
		tt_conn_fallback(c, fd, TT_REASON_INHERITED);
	return 0;
}

/* R1: count, then look at the mode; R0, in claim: set the mode, then look at the count. */
bool tt_conn_raw_begin(struct tt_conn *c)
{
	tt_fetch_add(&c->raw, 1);
	uint32_t mode = tt_load_acquire(&c->mode);

	if (mode == TT_CONN_PLAIN || mode == TT_CONN_FALLBACK)
		return true;
	tt_conn_raw_end(c);
	return false;
}

void tt_conn_raw_end(struct tt_conn *c)
{
	tt_fetch_add(&c->raw, (uint32_t)-1);
}

static bool worth_it(struct tt_conn *c, size_t more)
{
	if (tt_proc.eager)
		return true;
	uint64_t bytes = tt_load_relaxed(&c->local_bytes) + more;

	if (c->e)
		bytes +=
			tt_load_relaxed(&c->e->tx_tcp_bytes) + tt_load_relaxed(&c->e->rx_tcp_bytes);
	return tt_load_relaxed(&c->turns) >= CLAIM_TURNS ||
	       tt_load_relaxed(&c->messages) >= CLAIM_MESSAGES || bytes >= TT_CLAIM_BYTES;
}

bool tt_conn_progress(struct tt_conn *c, int fd, size_t more)
{
	int err = errno;

	if (!worth_it(c, more))
		return false;
	if (!c->connected) {
		struct sockaddr_storage ss;
		socklen_t len = sizeof(ss);

		if (getpeername(fd, (struct sockaddr *)&ss, &len) < 0) {
			errno = err;
			return false;
		}
		c->connected = 1;
	}
	if (!tt_fdtab_trylock())
		return false;
	if (tt_fd_is(fd, c) && c->mode <= TT_CONN_CLAIMED && tt_load_acquire(&c->raw) == 0)
		claim(c, fd);
	tt_fdtab_unlock();
	errno = err;
	return tt_load_acquire(&c->mode) != TT_CONN_PLAIN;
}

bool tt_conn_ready_slow(struct tt_conn *c, int fd)
{
	struct tt_entry *e = c->e;

	if (tt_load_acquire(&c->mode) != TT_CONN_CLAIMED)
		return false;
	if (!tt_load_relaxed(&e->claimed))
		tt_conn_progress(c, fd, 0);
	return tt_load_acquire(&e->grant) && tt_conn_attach(c, fd);
}

/* ---- attaching ---- */

/*
 * The first process of the side that attaches does it for all, unless somebody
 * sleeps on the shadow alone: a sleeper counts itself, then looks at attached
 * (A1); we set attached, then look at the count (A0). Those who sleep attach
 * when they wake.
 */
static bool first_attach(struct tt_conn *c)
{
	struct tt_entry *e = c->e;
	bool ok = true;

	if (tt_side_lock(&e->tx_lock) == -EDEADLK)
		return false;
	if (!e->attached) {
		tt_exchange(&e->attached, 1); /* A0 */
		if (tt_load_acquire(&e->rx_sleepers) || tt_load_acquire(&e->tx_sleepers) ||
		    tt_conn_held_raw(e)) {
			tt_store_release(&e->attached, 0u);
			ok = false;
		} else {
			/* Why it was not yet; another process of the side may have given it up. */
			uint32_t was = tt_exchange(&e->reason, (uint32_t)TT_REASON_NONE);

			if (was < TT_REASON_COUNT)
				tt_count(&c->mem->totals.fallback[was], (uint64_t)-1);
			tt_count(&c->mem->totals.accelerated, 1);
		}
	}
	tt_side_unlock(&e->tx_lock);
	return ok;
}

static bool attach_locked(struct tt_conn *c, uint64_t grant, struct tt_link **ret_unused)
{
	struct tt_entry *e = c->e;
	struct tt_link *l = tt_proc_link_get(tt_load_relaxed(&c->mem->id), tt_grant_link(grant),
					     tt_grant_side(grant));

	if (!l || tt_grant_slot(grant) >= l->g.nslots) {
		c->reason = TT_REASON_NO_LINK;
		if (e->reason == TT_REASON_PEER_NOT_TUTTI)
			tt_count(&c->mem->totals.fallback[TT_REASON_PEER_NOT_TUTTI], (uint64_t)-1);
		tt_store_relaxed(&e->reason, TT_REASON_NO_LINK);
		count_fallback(c, TT_REASON_NO_LINK);
		/* Others of the side may have attached: then bytes would be lost on TCP. */
		tt_store_release(&c->mode, TT_CONN_FALLBACK);
		return false;
	}
	if (!first_attach(c)) {
		*ret_unused = l;
		return false;
	}
	tt_stream_bind(&c->st, l, tt_grant_slot(grant));
	return true;
}

/* What happened to the socket before the ring was there to know of it. */
static void take_over_state(struct tt_conn *c, int fd)
{
	int state = tt_conn_tcp_state(fd), fl = tt_sys.fcntl(fd, F_GETFL), cork = 0;
	socklen_t len = sizeof(cork);

	if (state == TCP_FIN_WAIT1 || state == TCP_FIN_WAIT2 || state == TCP_CLOSING ||
	    state == TCP_LAST_ACK || state == TCP_TIME_WAIT) {
		tt_store_release(&c->e->wr_shut, 1u);
		tt_fetch_or(&c->st.tx->flags, TT_STREAM_FIN);
	}
	if (fl >= 0 && (fl & O_ASYNC))
		tt_conn_want_kicks(c, true);
	if (tt_sys.getsockopt(fd, IPPROTO_TCP, TCP_CORK, &cork, &len) == 0 && cork)
		tt_store_relaxed(&c->e->cork, 1u);
	tt_conn_take_buffer_sizes(c, fd);
}

void tt_conn_want_kicks(struct tt_conn *c, bool on)
{
	struct tt_wait_line *w = &c->st.tx->wait;

	if (tt_conn_lock_rx(c) < 0)
		return;
	uint32_t old = tt_load_relaxed(&w->rx_flags);

	tt_store_relaxed(&w->rx_flags, on ? (old & ~(uint32_t)TT_WAIT_HOT) | TT_WAIT_KICK
					  : old & ~(uint32_t)TT_WAIT_KICK);
	if (old & TT_WAIT_HOT)
		tt_membarrier_global();
	tt_conn_unlock_rx(c);
}

bool tt_conn_attach(struct tt_conn *c, int fd)
{
	uint64_t grant = tt_load_acquire(&c->e->grant);
	struct tt_link *unused = NULL;
	bool now = false;
	int err = errno;

	if (!(grant & 1) || tt_grant_generation(grant) != (c->e->generation & 0x3f) ||
	    tt_load_relaxed(&c->mode) == TT_CONN_FALLBACK)
		return false;
	/* Its socket is gone for the kernel, and its slot may be somebody else's by now. */
	if (tt_load_acquire(&c->e->dead) == c->e->generation + 1) {
		tt_store_release(&c->mode, TT_CONN_FALLBACK);
		return false;
	}
	if (!tt_fdtab_trylock())
		return false;
	if (tt_fd_is(fd, c) && c->mode == TT_CONN_CLAIMED && attach_locked(c, grant, &unused)) {
		tt_store_release(&c->mode, TT_CONN_ATTACHED);
		now = true;
	}
	tt_fdtab_unlock();
	if (unused)
		tt_proc_link_put(unused);
	if (now) {
		take_over_state(c, fd);
		tt_eset_conn_attached(c, fd);
		tt_conn_count_from_here(c, fd);
		/* From here on the peer may send by the ring. */
		tt_store_release(&c->st.tx->wait.attached, 1u);
		tt_log(TT_LOG_DEBUG, "fd %d: attached, link %u slot %u", fd, c->st.link->id,
		       c->st.slot);
	}
	errno = err;
	return tt_load_acquire(&c->mode) == TT_CONN_ATTACHED;
}
