/* SPDX-License-Identifier: MIT */
/*
 * The life of a connection: from plain TCP to the ring, and its end.
 *
 * The shadow is the connection's life, the ring only its bytes. Who closed,
 * who died, what error is pending: the kernel knows, through the shadow. What
 * it cannot know, because it never saw the bytes, is derived here when the
 * shadow's FIN is first seen:
 *
 *   FIN and the peer's ring says FIN   it shut down; it still reads, so the
 *                                      direction to it goes back to TCP, whose
 *                                      resets then tell when it closes
 *   FIN alone                          it closed or died: also back to TCP, and
 *                                      if it left bytes of ours unread, a
 *                                      kernel would have sent a reset: we
 *                                      deliver one (entry.reset)
 */
#include "sock/conn.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/shm.h"
#include "base/sys.h"
#include "sock/sock.h"
#include "ulc/chan.h"
#include "ulc/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>

/* A connection is claimed when it has carried this much: short ones stay on TCP. */
#define CLAIM_OPS 3u
#define CLAIM_BYTES (16u << 10)

/* ---- objects ---- */

static struct tt_conn *free_conns; /* table lock */

static struct tt_conn *alloc_conn(void)
{
	if (!free_conns) {
		size_t n = 256;
		struct tt_conn *c = mmap(NULL, n * sizeof(*c), PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (c == MAP_FAILED)
			return NULL;
		while (n-- > 0) {
			c[n].next_free = free_conns;
			free_conns = &c[n];
		}
	}
	struct tt_conn *c = free_conns;

	free_conns = c->next_free;
	return c;
}

struct tt_conn *tt_conn_new(int fd)
{
	struct tt_conn *c = alloc_conn();

	if (!c)
		return NULL;
	/* Not pins: a thread that was overtaken may still hold one for a moment. */
	uint32_t pins = c->pins;

	memset(c, 0, sizeof(*c));
	c->pins = pins;
	c->fd = fd;
	c->mode = TT_CONN_PLAIN;
	return c;
}

bool tt_conn_pin(struct tt_conn *c, int fd)
{
	tt_fetch_add(&c->pins, 1);
	if (tt_fd_is(fd, c))
		return true;
	tt_conn_unpin(c);
	return false;
}

static void recycle(struct tt_conn *c)
{
	struct tt_link *link = NULL;

	tt_fdtab_lock();
	if (c->refs == 0 && !tt_load_acquire(&c->pins) && c->mode != TT_CONN_FREE) {
		link = c->st.link;
		c->st.link = NULL;
		c->mode = TT_CONN_FREE;
		c->next_free = free_conns;
		free_conns = c;
	}
	tt_fdtab_unlock();
	if (link)
		tt_proc_link_put(link);
}

void tt_conn_unpin(struct tt_conn *c)
{
	if (tt_fetch_add(&c->pins, (uint32_t)-1) == 1 && tt_load_relaxed(&c->refs) == 0)
		recycle(c);
}

/* The end of our end: nobody else has the socket, so its entry and slot are free. */
static void release_entry(struct tt_conn *c)
{
	struct tt_entry *e = c->e;
	struct tt_ctl_msg m = tt_ctl_msg(TT_CTL_RELEASE, tt_load_relaxed(&c->mem->id),
					 tt_side_entry_index(c->mem, e), e->generation, e->cookie);

	if (e->claimed)
		tt_proc_send(&m, -1);
	tt_side_entry_put(c->mem, e, e->generation);
}

/* Others may have it: only the kernel knows, and the daemon asks it. */
static void tell_left(struct tt_conn *c)
{
	struct tt_ctl_msg m = tt_ctl_msg(TT_CTL_LEFT, tt_load_relaxed(&c->mem->id), 0, 0, 0);

	tt_proc_send(&m, -1);
}

void tt_conn_put(struct tt_conn *c, int fd, bool last)
{
	(void)fd;
	if (!last)
		return;
	tt_conn_hint(c);
	if (c->e) {
		/* Whoever still is inside a short call on it finishes first. */
		if (tt_conn_lock_tx(c) == 0)
			tt_conn_unlock_tx(c);
		if (tt_conn_lock_rx(c) == 0) {
			if (c->mode == TT_CONN_ATTACHED)
				tt_stream_idle(&c->st, &c->e->rx);
			tt_conn_unlock_rx(c);
		}
		if (!tt_load_relaxed(&c->e->shared) && !tt_load_acquire(&c->pins))
			release_entry(c);
		else if (c->e->claimed)
			tell_left(c);
	}
	recycle(c);
}

static uint64_t socket_cookie(int fd)
{
	uint64_t cookie = 0;
	socklen_t len = sizeof(cookie);

	if (tt_sys.getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &len) < 0)
		return 0;
	return cookie;
}

/* ---- looking up a descriptor that came without our help ---- */

static bool is_tcp(int fd, int *ret_domain)
{
	int type = 0, protocol = 0, listening = 0;
	socklen_t len = sizeof(int);

	return tt_sys.getsockopt(fd, SOL_SOCKET, SO_DOMAIN, ret_domain, &len) == 0 &&
	       (*ret_domain == AF_INET || *ret_domain == AF_INET6) &&
	       tt_sys.getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 &&
	       type == SOCK_STREAM &&
	       tt_sys.getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) == 0 &&
	       protocol == IPPROTO_TCP &&
	       tt_sys.getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) == 0 &&
	       !listening;
}

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

/* Another side of this user may have the connection: the daemon knows. */
static struct tt_entry *find_elsewhere(int fd, struct tt_side_mem **ret_mem)
{
	struct tt_ctl_msg m = tt_ctl_msg(TT_CTL_FIND, tt_load_relaxed(&tt_proc.mem->id), 0, 0, 0);
	int memfd = -1;

	if (tt_proc_request(&m, fd, &memfd) < 0 || memfd < 0)
		return NULL;
	struct tt_side_mem *mem = NULL;
	struct tt_entry *e = NULL;

	if (m.arg[0] < TT_SIDE_ENTRIES && tt_side_map(memfd, &mem) == 0) {
		e = &mem->entries[m.arg[0]];
		*ret_mem = mem;
	}
	tt_sys.close(memfd);
	return e;
}

struct tt_conn *tt_fd_conn_slow(int fd)
{
	int domain, err = errno;
	struct tt_conn *c = NULL;
	bool fresh;

	if (!tt_sock_active() || fd < 0 || tt_fd_is_internal(fd))
		return NULL;
	if (!tt_fdtab_trylock())
		return NULL;
	struct tt_slot *s = tt_fd_slot(fd);

	if (s && s->kind != TT_FD_UNKNOWN) {
		c = s->kind == TT_FD_CONN ? s->obj : NULL;
	} else if (!is_tcp(fd, &domain)) {
		/* A closed number is asked again; an open one of another kind is remembered. */
		if (errno != EBADF)
			tt_fd_set(fd, TT_FD_NONE, NULL);
	} else {
		uint64_t cookie = socket_cookie(fd);
		struct tt_side_mem *mem = tt_proc.mem;
		struct tt_entry *e = cookie ? tt_side_entry_get(mem, cookie, false, &fresh) : NULL;
		struct sockaddr_storage ss;
		socklen_t len = sizeof(ss);
		bool connected = getpeername(fd, (struct sockaddr *)&ss, &len) == 0;

		if (!e && connected)
			e = find_elsewhere(fd, &mem);
		c = tt_conn_new(fd);
		if (c) {
			c->connected = connected;
			c->refs = 1;
			c->e = e;
			c->mem = mem;
			if (e)
				c->mode = TT_CONN_CLAIMED;
			if (e && !e->claimed && e->reason) {
				c->mode = TT_CONN_FALLBACK;
				c->reason = e->reason;
			}
			tt_fd_set(fd, TT_FD_CONN, c);
			if (!e && connected)
				tt_conn_fallback(c, fd, TT_REASON_INHERITED);
		}
	}
	tt_fdtab_unlock();
	errno = err;
	return c;
}

/* ---- claiming ---- */

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

static int entry_of(struct tt_conn *c, int fd)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	uint64_t cookie;
	bool fresh;

	if (c->e)
		return 0;
	cookie = socket_cookie(fd);
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
		tt_count(&tt_proc.mem->totals.connections, 1);
	}
	c->mem = tt_proc.mem;
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
	int err = tt_proc_send(&m, fd);

	if (err == 0) {
		tt_store_relaxed(&c->e->reason, TT_REASON_PEER_NOT_TUTTI);
		tt_count(&c->mem->totals.fallback[TT_REASON_PEER_NOT_TUTTI], 1);
		tt_store_release(&c->e->claimed, 1u);
	} else if (err != -EAGAIN) {
		tt_conn_fallback(c, fd, TT_REASON_NO_DAEMON);
	}
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
	uint64_t bytes = tt_load_relaxed(&c->local_bytes) + more;

	if (c->e)
		bytes +=
			tt_load_relaxed(&c->e->tx_tcp_bytes) + tt_load_relaxed(&c->e->rx_tcp_bytes);
	return tt_load_relaxed(&c->ops) >= CLAIM_OPS || bytes >= CLAIM_BYTES;
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
	if (!tt_load_relaxed(&e->claimed)) {
		tt_count(&c->ops, 1);
		tt_conn_progress(c, fd, 0);
	}
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
		if (tt_load_acquire(&e->rx_sleepers) || tt_load_acquire(&e->tx_sleepers)) {
			tt_store_release(&e->attached, 0u);
			ok = false;
		} else {
			tt_store_relaxed(&e->reason, TT_REASON_NONE);
			tt_count(&c->mem->totals.fallback[TT_REASON_PEER_NOT_TUTTI], (uint64_t)-1);
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

static int tcp_state(int fd);

/* What happened to the socket before the ring was there to know of it. */
static void take_over_state(struct tt_conn *c, int fd)
{
	int state = tcp_state(fd), fl = tt_sys.fcntl(fd, F_GETFL);

	if (state == TCP_FIN_WAIT1 || state == TCP_FIN_WAIT2 || state == TCP_CLOSING ||
	    state == TCP_LAST_ACK || state == TCP_TIME_WAIT) {
		tt_store_release(&c->e->wr_shut, 1u);
		tt_fetch_or(&c->st.tx->flags, TT_STREAM_FIN);
	}
	if (fl >= 0 && (fl & O_ASYNC))
		tt_conn_want_kicks(c, true);
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
		/* From here on the peer may send by the ring. */
		tt_store_release(&c->st.tx->wait.attached, 1u);
		tt_log(TT_LOG_DEBUG, "fd %d: attached, link %u slot %u", fd, c->st.link->id,
		       c->st.slot);
	}
	errno = err;
	return tt_load_acquire(&c->mode) == TT_CONN_ATTACHED;
}

/* ---- locks ---- */

int tt_conn_lock_tx_of(struct tt_conn *c, struct tt_entry *e)
{
	int err = tt_side_lock(&e->tx_lock);

	if (err == 0)
		return 0;
	if (err == -EOWNERDEAD) {
		if (c->e == e && c->mode == TT_CONN_ATTACHED)
			tt_stream_tx_recover(&c->st, &e->tx);
		return 0;
	}
	return err;
}

int tt_conn_lock_rx_of(struct tt_conn *c, struct tt_entry *e)
{
	int err = tt_side_lock(&e->rx_lock);

	if (err != -EOWNERDEAD)
		return err;
	if (c->e == e && c->mode == TT_CONN_ATTACHED) {
		tt_stream_rx_recover(&c->st, &e->rx);
		tt_chan_notify_room(c->st.link, c->st.slot, &c->st.rx->wait);
	}
	return 0;
}

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

static int tcp_state(int fd)
{
	struct tcp_info ti;
	socklen_t len = sizeof(ti);

	return tt_sys.getsockopt(fd, IPPROTO_TCP, TCP_INFO, &ti, &len) < 0 ? 0 : ti.tcpi_state;
}

static bool peer_fin(int fd)
{
	int state = tcp_state(fd);

	return state == TCP_CLOSE_WAIT || state == TCP_LAST_ACK || state == TCP_CLOSING ||
	       state == TCP_TIME_WAIT || state == TCP_CLOSE;
}

/* What is in the ring stays there to be read. */
void tt_conn_go_back(struct tt_conn *c, int fd, enum tt_reason why)
{
	struct tt_entry *e = c->e;

	tt_fetch_or(&c->st.tx->flags, TT_STREAM_DOWN);
	tt_store_relaxed(&e->down_reason, (uint32_t)why);
	tt_store_release(&e->tx_route, TT_ROUTE_BACK);
	if (tt_chan_notify_data(c->st.link, c->st.slot, &c->st.rx->wait) < 0)
		tt_conn_kick(c, fd);
}

bool tt_conn_leave_full_ring(struct tt_conn *c, int fd)
{
	int waiting = 0;

	if (tt_load_relaxed(&c->e->rx_route) != TT_ROUTE_TCP ||
	    tt_sys.ioctl(fd, FIONREAD, &waiting) < 0 || waiting == 0)
		return false;
	tt_conn_go_back(c, fd, TT_REASON_BACKLOG);
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
			if (unread && !e->wr_shut)
				tt_store_release(&e->reset, TT_RESET_PENDING);
		}
		if (e->tx_route == TT_ROUTE_RING)
			tt_conn_go_back(c, fd, TT_REASON_HALF_CLOSED);
		else
			tt_store_release(&e->tx_route, TT_ROUTE_BACK);
		tt_fetch_or(&e->shadow, TT_SHADOW_FIN);
	}
	tt_conn_unlock_tx(c);
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
	    !(tt_load_relaxed(&e->shadow) & TT_SHADOW_FIN) && peer_fin(fd))
		peer_ended(c, fd);
	if (p.revents & POLLHUP)
		tt_fetch_or(&e->shadow, TT_SHADOW_HUP);
out:
	errno = err;
}

void tt_conn_kick(struct tt_conn *c, int fd)
{
	struct tt_entry *e = c->e;

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
			ok = tt_stream_writable(&c->st, &c->e->tx);
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
	if ((flags & TT_STREAM_FIN) || (shadow & TT_SHADOW_FIN) || e->rd_shut)
		ev |= in | POLLRDHUP;
	if (shadow & (TT_SHADOW_HUP | TT_SHADOW_ERR))
		ask |= POLLRDHUP;
	if (ask || shadow)
		ev |= kernel_poll(fd, ask);
	return ev;
}
