/* SPDX-License-Identifier: MIT */
/*
 * The public calls of tutti/ulc.h, transport shm.
 *
 * A channel is a link with one slot, whose window holds the wait line and a
 * ring of notifications, one cache line each: sequence number and immediate
 * travel together, so a notification is one line's trip. The regions are
 * memfds of their own; each side maps the other's.
 *
 * Opening is symmetric: both ends send {hello, region, link, bell}, both
 * receive, and the link of the one whose random number is larger is used.
 *
 * A queue polls its channels directly; while it polls, peers need no fence
 * (TT_WAIT_HOT, see chan.h). To sleep it arms every channel with its bell. The
 * peer's death is the end of the socket that the channel was opened over,
 * which lies with the bell in one epoll set; that set is tutti_cq_fd().
 */
#include "base/clock.h"
#include "base/fdpass.h"
#include "base/shm.h"
#include "base/sys.h"
#include "tutti/ulc.h"
#include "ulc/bell.h"
#include "ulc/chan.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

#define RING 64u
#define HELLO_MAGIC 0x31636c7574747574ull /* "tuttulc1" */
#define OPEN_TIMEOUT_MS 10000
#define REGION_MAX (1ull << 30)
#define DEFAULT_SPIN_NS 20000
#define HOT_AFTER 16u

/* A notification; written by the peer, whole before seq. */
struct note {
	_Alignas(TT_CACHE_LINE) uint64_t seq; /* its number, from 1; 0: none yet */
	uint64_t imm;
};

struct api_window {
	struct tt_wait_line wait;
	_Alignas(TT_CACHE_LINE) uint64_t taken; /* of ours, by the peer */
	uint32_t closed;			/* the peer closed the channel */
	struct note ring[RING];
};

struct tutti_region {
	void *base;
	size_t bytes;
	int fd;
};

struct tutti_channel {
	struct api_window *rx, *tx;
	struct tt_link *link;
	uint64_t sent, taken_seen; /* sending */
	uint64_t received;	   /* receiving; also published to the peer */
	unsigned char *remote;
	size_t remote_bytes, remote_mapped;
	struct tutti_cq *cq;
	int sock;
	bool gone; /* CLOSED was delivered */
	bool dead; /* the socket has ended */
	void *user;
	struct tutti_channel *next;
};

struct tutti_cq {
	struct tt_bell bell;
	uint32_t owner;
	int epfd;
	int64_t spin_ns;
	uint32_t polls_won; /* without a sleep between */
	bool armed;
	struct tutti_channel *channels;
};

static uint32_t next_owner; /* names queues in the bell cache */

/* ---- regions ---- */

EXPORT int tutti_region_create(size_t bytes, struct tutti_region **ret_region)
{
	if (bytes == 0 || bytes > REGION_MAX)
		return -EINVAL;
	struct tutti_region *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->bytes = (bytes + 4095) & ~(size_t)4095;
	r->fd = tt_shm_create("tutti-region", r->bytes);
	int err = r->fd < 0 ? r->fd : tt_shm_map(r->fd, r->bytes, &r->base, &r->bytes);

	if (err < 0) {
		tutti_region_destroy(r);
		return err;
	}
	*ret_region = r;
	return 0;
}

EXPORT void tutti_region_destroy(struct tutti_region *region)
{
	if (!region)
		return;
	tt_shm_unmap(region->base, region->bytes);
	if (region->fd >= 0)
		close(region->fd);
	free(region);
}

EXPORT void *tutti_region_address(const struct tutti_region *region)
{
	return region->base;
}

EXPORT size_t tutti_region_bytes(const struct tutti_region *region)
{
	return region->bytes;
}

/* ---- opening ---- */

struct hello {
	uint64_t magic, nonce;
	uint64_t region_bytes; /* 0: no region, no descriptor of one */
	uint32_t owner, bell;
};

static struct tt_link_geometry geometry(void)
{
	return (struct tt_link_geometry){
		.nslots = 1, .window_bytes = sizeof(struct api_window), .nwaiters = 2};
}

static int check_peer(int sock)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (tt_sys.getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		return -errno;
	return peer.uid == geteuid() || peer.uid == 0 || geteuid() == 0 ? 0 : -EPERM;
}

static int receive_hello(int sock, struct hello *h, int *fds, int *nfds)
{
	struct pollfd p = {sock, POLLIN, 0};
	int n = tt_sys.poll(&p, 1, OPEN_TIMEOUT_MS);

	if (n <= 0)
		return n < 0 ? -errno : -ETIMEDOUT;
	ssize_t got = tt_fdpass_recv(sock, h, sizeof(*h), fds, nfds, 0);

	if (got == 0)
		return -ECONNRESET;
	if (got < 0)
		return (int)got;
	if (got != sizeof(*h) || h->magic != HELLO_MAGIC || h->region_bytes > REGION_MAX ||
	    *nfds != (h->region_bytes ? 3 : 2))
		return -EPROTO;
	return 0;
}

/* Joins the two hellos; takes descriptors out of fds (set to -1) that it keeps. */
static int join(struct tutti_channel *ch, const struct hello *mine, int my_link,
		const struct hello *theirs, int *fds)
{
	bool first = mine->nonce > theirs->nonce;
	int err = tt_link_map(first ? my_link : fds[0], first ? 0 : 1, &ch->link);

	if (err < 0)
		return err;
	if (mine->nonce == theirs->nonce || ch->link->g.nslots != 1 ||
	    ch->link->g.window_bytes != sizeof(struct api_window))
		return -EPROTO;
	if (theirs->region_bytes) {
		void *base;

		err = tt_shm_map(fds[2], theirs->region_bytes, &base, &ch->remote_mapped);
		if (err < 0)
			return err;
		ch->remote = base;
		ch->remote_bytes = theirs->region_bytes;
	}
	ch->rx = tt_link_rx_window(ch->link, 0);
	ch->tx = tt_link_tx_window(ch->link, 0);
	/* Bells of the peer are looked up under a name of ours: it chooses no names here. */
	ch->link->peer_id = tt_fetch_add(&next_owner, 1) + 1;
	tt_bell_learn(ch->link->peer_id, theirs->bell, tt_fd_high(fds[1]));
	fds[1] = -1;
	return 0;
}

static int exchange(struct tutti_channel *ch, int sock, struct tutti_region *region)
{
	struct tt_link_geometry g = geometry();
	struct hello mine = {.magic = HELLO_MAGIC, .owner = ch->cq->owner, .bell = ch->cq->bell.id};
	struct hello theirs;
	int fds[TT_FDPASS_MAX], nfds = 0, link = tt_link_create(&g), err;

	if (link < 0)
		return link;
	if (getrandom(&mine.nonce, sizeof(mine.nonce), 0) != sizeof(mine.nonce)) {
		close(link);
		return -errno;
	}
	mine.region_bytes = region ? region->bytes : 0;
	int out[3] = {link, ch->cq->bell.fd, region ? region->fd : -1};

	err = tt_fdpass_send(sock, &mine, sizeof(mine), out, region ? 3 : 2, 0);
	if (err == 0)
		err = receive_hello(sock, &theirs, fds, &nfds);
	if (err == 0)
		err = join(ch, &mine, link, &theirs, fds);
	for (int i = 0; i < nfds; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	close(link);
	return err;
}

static void free_channel(struct tutti_channel *ch)
{
	if (ch->sock >= 0)
		close(ch->sock);
	tt_link_unmap(ch->link);
	if (ch->remote)
		munmap(ch->remote, ch->remote_mapped);
	free(ch);
}

EXPORT int tutti_channel_open(int sock, struct tutti_region *region, struct tutti_cq *cq,
			      struct tutti_channel **ret_channel)
{
	int err = check_peer(sock);

	if (err < 0)
		return err;
	struct tutti_channel *ch = calloc(1, sizeof(*ch));

	if (!ch)
		return -ENOMEM;
	ch->cq = cq;
	ch->sock = tt_sys.fcntl(sock, F_DUPFD_CLOEXEC, 0);
	err = ch->sock < 0 ? -errno : exchange(ch, sock, region);

	struct epoll_event ev = {.events = EPOLLRDHUP | EPOLLET, .data.ptr = ch};

	if (err == 0 && tt_sys.epoll_ctl(cq->epfd, EPOLL_CTL_ADD, ch->sock, &ev) < 0)
		err = -errno;
	if (err < 0) {
		free_channel(ch);
		return err;
	}
	ch->next = cq->channels;
	cq->channels = ch;
	*ret_channel = ch;
	return 0;
}

EXPORT void tutti_channel_close(struct tutti_channel *channel)
{
	if (!channel)
		return;
	struct tutti_channel **at = &channel->cq->channels;

	while (*at && *at != channel)
		at = &(*at)->next;
	if (*at)
		*at = channel->next;
	tt_store_release(&channel->tx->closed, 1u);
	tt_chan_notify_slow(channel->link, 0, &channel->rx->wait, TT_EVENT_DATA);
	free_channel(channel);
}

EXPORT void tutti_channel_set_user(struct tutti_channel *channel, void *user)
{
	channel->user = user;
}

EXPORT void *tutti_channel_user(const struct tutti_channel *channel)
{
	return channel->user;
}

EXPORT size_t tutti_channel_peer_bytes(const struct tutti_channel *channel)
{
	return channel->remote_bytes;
}

/* ---- sending ---- */

EXPORT void *tutti_channel_place(struct tutti_channel *ch, size_t offset, size_t bytes)
{
	if (offset > ch->remote_bytes || bytes > ch->remote_bytes - offset)
		return NULL;
	return ch->remote + offset;
}

EXPORT int tutti_write(struct tutti_channel *ch, size_t offset, const void *buf, size_t bytes)
{
	void *place = tutti_channel_place(ch, offset, bytes);

	if (!place)
		return -ERANGE;
	memcpy(place, buf, bytes);
	return 0;
}

static bool full(struct tutti_channel *ch)
{
	if (ch->sent - ch->taken_seen < RING)
		return false;
	uint64_t taken = tt_load_acquire(&ch->rx->taken);

	/* A peer that claims to have taken what was not sent hurts only itself. */
	if (taken <= ch->sent && taken > ch->taken_seen)
		ch->taken_seen = taken;
	return ch->sent - ch->taken_seen >= RING;
}

static void post(struct tutti_channel *ch, uint64_t imm)
{
	struct note *n = &ch->tx->ring[ch->sent % RING];

	tt_store_relaxed(&n->imm, imm);
	tt_store_release(&n->seq, ++ch->sent);
	tt_chan_notify_data(ch->link, 0, &ch->rx->wait);
}

EXPORT int tutti_notify(struct tutti_channel *ch, uint64_t imm)
{
	if (full(ch))
		return ch->dead || tt_load_relaxed(&ch->rx->closed) ? -ECONNRESET : -EAGAIN;
	post(ch, imm);
	return 0;
}

EXPORT int tutti_write_notify(struct tutti_channel *ch, size_t offset, const void *buf,
			      size_t bytes, uint64_t imm)
{
	void *place = tutti_channel_place(ch, offset, bytes);

	if (!place)
		return -ERANGE;
	if (full(ch))
		return ch->dead || tt_load_relaxed(&ch->rx->closed) ? -ECONNRESET : -EAGAIN;
	memcpy(place, buf, bytes);
	post(ch, imm);
	return 0;
}

/* ---- completion queues ---- */

EXPORT int tutti_cq_create(struct tutti_cq **ret_cq)
{
	struct tutti_cq *cq = calloc(1, sizeof(*cq));
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL};
	int err;

	if (!cq)
		return -ENOMEM;
	tt_membarrier_init();
	cq->owner = tt_fetch_add(&next_owner, 1) + 1;
	cq->spin_ns = DEFAULT_SPIN_NS;
	cq->epfd = tt_sys.epoll_create1(EPOLL_CLOEXEC);
	if (cq->epfd < 0) {
		err = -errno;
		goto free_it;
	}
	err = tt_bell_open(&cq->bell, cq->owner, 1);
	if (err < 0)
		goto close_set;
	if (tt_sys.epoll_ctl(cq->epfd, EPOLL_CTL_ADD, cq->bell.fd, &ev) < 0) {
		err = -errno;
		goto close_bell;
	}
	*ret_cq = cq;
	return 0;
close_bell:
	tt_bell_close(&cq->bell);
close_set:
	close(cq->epfd);
free_it:
	free(cq);
	return err;
}

EXPORT void tutti_cq_destroy(struct tutti_cq *cq)
{
	if (!cq)
		return;
	tt_bell_close(&cq->bell);
	close(cq->epfd);
	free(cq);
}

EXPORT void tutti_cq_set_spin(struct tutti_cq *cq, int64_t spin_ns)
{
	cq->spin_ns = spin_ns < 0 ? 0 : spin_ns;
}

EXPORT int tutti_cq_fd(const struct tutti_cq *cq)
{
	return cq->epfd;
}

/* The next notification of ch, or its end. */
static bool take(struct tutti_channel *ch, struct tutti_event *ev)
{
	struct note *n = &ch->rx->ring[ch->received % RING];

	if (tt_load_acquire(&n->seq) == ch->received + 1) {
		ev->kind = TUTTI_EVENT_NOTIFY;
		ev->channel = ch;
		ev->imm = tt_load_relaxed(&n->imm);
		ch->received++;
		/* Credits ride along: the sender looks only when its ring seems full. */
		tt_store_release(&ch->tx->taken, ch->received);
		return true;
	}
	if (ch->gone || !(ch->dead || tt_load_acquire(&ch->rx->closed)))
		return false;
	/* What was posted before the end is taken first. */
	if (tt_load_acquire(&n->seq) == ch->received + 1)
		return take(ch, ev);
	ch->gone = true;
	*ev = (struct tutti_event){TUTTI_EVENT_CLOSED, ch, 0};
	return true;
}

EXPORT int tutti_cq_poll(struct tutti_cq *cq, struct tutti_event *ret_events, int max)
{
	int n = 0;

	for (struct tutti_channel *ch = cq->channels; ch && n < max; ch = ch->next)
		while (n < max && take(ch, &ret_events[n]))
			n++;
	return n;
}

/* Peers may skip their fence, or ring; see chan.h. */
static void set_wait(struct tutti_cq *cq, uint32_t flags)
{
	for (struct tutti_channel *ch = cq->channels; ch; ch = ch->next) {
		tt_store_relaxed(&ch->tx->wait.rx_bell[0], flags & TT_WAIT_BELL ? cq->bell.id : 0);
		tt_store_release(&ch->tx->wait.rx_flags, flags);
	}
}

static bool pending(struct tutti_cq *cq)
{
	for (struct tutti_channel *ch = cq->channels; ch; ch = ch->next)
		if (tt_load_acquire(&ch->rx->ring[ch->received % RING].seq) == ch->received + 1 ||
		    (!ch->gone && (ch->dead || tt_load_acquire(&ch->rx->closed))))
			return true;
	return false;
}

/* Which sockets have ended; resets the bell. */
static void look_at_kernel(struct tutti_cq *cq, int timeout_ms)
{
	struct epoll_event evs[16];
	int n = tt_sys.epoll_wait(cq->epfd, evs, 16, timeout_ms);

	for (int i = 0; i < n; i++) {
		struct tutti_channel *ch = evs[i].data.ptr;

		if (ch)
			ch->dead = true;
		else
			tt_bell_reset(&cq->bell);
	}
}

EXPORT int tutti_cq_arm(struct tutti_cq *cq)
{
	bool was_hot = cq->polls_won >= HOT_AFTER;

	look_at_kernel(cq, 0);
	set_wait(cq, TT_WAIT_BELL);
	cq->polls_won = 0;
	cq->armed = true;
	if (was_hot)
		tt_membarrier_global(); /* W1' */
	tt_fence();			/* W1, against W0 in chan.c */
	return pending(cq) ? 1 : 0;
}

static void disarm(struct tutti_cq *cq)
{
	if (cq->armed)
		set_wait(cq, 0);
	cq->armed = false;
}

static void won(struct tutti_cq *cq)
{
	if (cq->polls_won < HOT_AFTER && ++cq->polls_won == HOT_AFTER && tt_membarrier_ok)
		set_wait(cq, TT_WAIT_HOT);
}

static int spin(struct tutti_cq *cq, struct tutti_event *events, int max)
{
	uint64_t t0 = tt_ticks(), limit = (uint64_t)cq->spin_ns * tt_ticks_per_us() / 1000;

	for (uint32_t i = 0;; i++) {
		int n = tutti_cq_poll(cq, events, max);

		if (n) {
			won(cq);
			return n;
		}
		tt_pause();
		if (i % 16 != 15)
			continue;
		if (tt_ticks() - t0 >= limit)
			return 0;
		/* After some microseconds, whoever has our answer may want this core. */
		if (i > 1024)
			sched_yield();
	}
}

EXPORT int tutti_cq_wait(struct tutti_cq *cq, struct tutti_event *ret_events, int max,
			 int64_t timeout_ns)
{
	int64_t deadline = timeout_ns < 0 ? INT64_MAX : tt_now_ns() + timeout_ns;

	for (;;) {
		int n = cq->spin_ns ? spin(cq, ret_events, max)
				    : tutti_cq_poll(cq, ret_events, max);

		if (n)
			return n;
		struct pollfd p = {cq->epfd, POLLIN, 0};
		struct timespec ts, *timeout = NULL;

		if (deadline != INT64_MAX) {
			int64_t left = deadline - tt_now_ns();

			if (left <= 0)
				return 0;
			ts = (struct timespec){left / TT_NS_PER_SEC, left % TT_NS_PER_SEC};
			timeout = &ts;
		}
		n = tutti_cq_arm(cq) ? 1 : tt_sys.ppoll(&p, 1, timeout, NULL);
		int err = n < 0 ? -errno : 0;

		disarm(cq);
		look_at_kernel(cq, 0);
		n = tutti_cq_poll(cq, ret_events, max);
		if (n || err)
			return n ? n : err;
	}
}
