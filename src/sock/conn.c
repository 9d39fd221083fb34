/* SPDX-License-Identifier: MIT */
/*
 * Connections as objects: made, found by their descriptor, kept while in use,
 * given back. Their way to the ring is in claim.c, their end in shadow.c.
 */
#include "sock/conn.h"

#include "base/shm.h"
#include "base/sys.h"
#include "sock/sock.h"
#include "ulc/chan.h"
#include "ulc/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

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
			c[n].next = free_conns;
			free_conns = &c[n];
		}
	}
	struct tt_conn *c = free_conns;

	free_conns = c->next;
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

/* What this thread has pinned, as far as it fits: a handler may jump out of the call. */
#define OWN_PINS 8
static _Thread_local struct tt_conn *own_pins[OWN_PINS] __attribute__((tls_model("initial-exec")));

static void note_pin(struct tt_conn *from, struct tt_conn *to)
{
	for (int i = 0; i < OWN_PINS; i++)
		if (own_pins[i] == from) {
			own_pins[i] = to;
			return;
		}
}

void tt_conn_abandon_pins(void)
{
	for (int i = 0; i < OWN_PINS; i++)
		if (own_pins[i])
			tt_conn_unpin(own_pins[i]);
}

bool tt_conn_pin(struct tt_conn *c, int fd)
{
	tt_fetch_add(&c->pins, 1);
	if (tt_fd_is(fd, c)) {
		note_pin(NULL, c);
		return true;
	}
	tt_conn_unpin(c);
	return false;
}

static struct tt_conn *kept; /* those with a stand-in; table lock */

void tt_conn_keep_file(struct tt_conn *c, int fd)
{
	int copy = tt_sys.fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (copy < 0)
		return;
	tt_store_release(&c->stand_in, tt_fd_high(copy));
	c->next = kept;
	kept = c;
}

static void forget_kept(struct tt_conn *c)
{
	for (struct tt_conn **at = &kept; *at; at = &(*at)->next)
		if (*at == c) {
			*at = c->next;
			break;
		}
}

/* Whoever kept the file is gone: so is the child's copy of the descriptor. */
void tt_conn_fork_child(void)
{
	for (struct tt_conn *c = kept; c; c = c->next)
		tt_fd_close(c->stand_in);
	kept = NULL;
}

/* Others may have it: only the kernel knows, and the daemon asks it. */
static void tell_left(struct tt_side_mem *mem)
{
	struct tt_ctl_msg m = tt_ctl_msg(TT_CTL_LEFT, tt_load_relaxed(&mem->id), 0, 0, 0);

	tt_proc_send(&m, -1);
}

static void recycle(struct tt_conn *c)
{
	struct tt_link *link = NULL;
	struct tt_side_mem *mem = NULL;
	int stand_in = 0;

	tt_fdtab_lock();
	if (c->refs == 0 && !tt_load_acquire(&c->pins) && c->mode != TT_CONN_FREE) {
		stand_in = c->stand_in;
		if (stand_in) {
			mem = c->e && c->e->claimed ? c->mem : NULL;
			forget_kept(c);
		}
		link = c->st.link;
		c->st.link = NULL;
		c->mode = TT_CONN_FREE;
		c->next = free_conns;
		free_conns = c;
	}
	tt_fdtab_unlock();
	if (stand_in)
		tt_fd_close(stand_in);
	if (mem)
		tell_left(mem);
	if (link)
		tt_proc_link_put(link);
}

void tt_conn_unpin(struct tt_conn *c)
{
	note_pin(c, NULL);
	uint32_t was = tt_fetch_add(&c->pins, (uint32_t)-1);

	/* A child of a fork inside a signal handler: it began without the pin that it gives back. */
	if (was == 0)
		tt_fetch_add(&c->pins, 1);
	if (was == 1 && tt_load_relaxed(&c->refs) == 0)
		recycle(c);
}

/* A connection that carried less, and whose peer never claimed, says nothing of its peer. */
#define SHORT_BYTES (128u << 10)

void tt_conn_count_short(struct tt_conn *c)
{
	uint32_t was = TT_REASON_PEER_NOT_TUTTI;
	struct tt_entry *e = c->e;

	if (e && e->claimed && !e->attached &&
	    c->local_bytes + e->tx_tcp_bytes + e->rx_tcp_bytes < SHORT_BYTES &&
	    tt_cas(&e->reason, &was, (uint32_t)TT_REASON_SHORT)) {
		tt_count(&c->mem->totals.fallback[TT_REASON_PEER_NOT_TUTTI], (uint64_t)-1);
		tt_count(&c->mem->totals.fallback[TT_REASON_SHORT], 1);
	}
}

/* The end of our end: nobody else has the socket, so its entry and slot are free. */
static void release_entry(struct tt_conn *c)
{
	struct tt_entry *e = c->e;
	struct tt_ctl_msg m = tt_ctl_msg(TT_CTL_RELEASE, tt_load_relaxed(&c->mem->id),
					 tt_side_entry_index(c->mem, e), c->generation, e->cookie);

	if (e->claimed)
		tt_proc_send(&m, -1);
	tt_conn_count_short(c);
	if (c->mode == TT_CONN_CLAIMED && !e->tx_tcp_bytes && !e->rx_tcp_bytes && !c->local_bytes)
		tt_count(&c->mem->totals.empty, 1);
	tt_side_entry_put(c->mem, e, c->generation);
}

/*
 * Once the descriptor is closed, which may be long ago and behind our back, the
 * daemon may find the socket gone, and the entry be another connection's.
 */
static bool entry_is_ours(const struct tt_conn *c)
{
	const struct tt_entry *e = c->e;

	return e && tt_load_acquire(&e->generation) == c->generation &&
	       tt_load_acquire(&e->dead) != c->generation + 1;
}

void tt_conn_put(struct tt_conn *c, int fd, bool last)
{
	(void)fd;
	if (!last)
		return;
	tt_conn_hint(c);
	if (entry_is_ours(c)) {
		/* Whoever still is inside a short call on it finishes first. */
		if (tt_conn_lock_tx(c) == 0)
			tt_conn_unlock_tx(c);
		if (tt_conn_lock_rx(c) == 0) {
			if (c->mode == TT_CONN_ATTACHED)
				tt_stream_idle(&c->st, &c->e->rx);
			tt_conn_unlock_rx(c);
		}
		if (!tt_load_relaxed(&c->e->shared) && tt_load_acquire(&c->pins) == 1 &&
		    !c->stand_in)
			release_entry(c);
		else
			tell_left(c->mem);
	}
	tt_conn_unpin(c);
}

uint64_t tt_conn_cookie(int fd)
{
	uint64_t cookie = 0;
	socklen_t len = sizeof(cookie);

	if (tt_sys.getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &len) < 0)
		return 0;
	return cookie;
}

/* ---- looking up a descriptor that came without our help ---- */

bool tt_sock_listens(int fd)
{
	int listening = 0;
	socklen_t len = sizeof(listening);

	return tt_sys.getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) == 0 && listening;
}

static bool is_tcp(int fd, int *ret_domain)
{
	int type = 0, protocol = 0;
	socklen_t len = sizeof(int);

	return tt_sys.getsockopt(fd, SOL_SOCKET, SO_DOMAIN, ret_domain, &len) == 0 &&
	       (*ret_domain == AF_INET || *ret_domain == AF_INET6) &&
	       tt_sys.getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 &&
	       type == SOCK_STREAM &&
	       tt_sys.getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) == 0 &&
	       protocol == IPPROTO_TCP && !tt_sock_listens(fd);
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
		uint64_t cookie = tt_conn_cookie(fd);
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
			c->generation = e ? e->generation : 0;
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
	e->tcp_pos_known = 0; /* it may have read and not counted */
	if (c->e == e && c->mode == TT_CONN_ATTACHED) {
		tt_stream_rx_recover(&c->st, &e->rx);
		tt_chan_notify_room(c->st.link, c->st.slot, &c->st.rx->wait);
	}
	return 0;
}
