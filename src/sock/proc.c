/* SPDX-License-Identifier: MIT */
/*
 * What a process of a side has once: the side's memory, the control
 * connection, the links it mapped.
 *
 * The control connection is inherited and shared by the family (ctl.h says how
 * that works). When the daemon has ended, the next need connects to a new one,
 * says HELLO for the side and registers this process's bells again; nothing
 * watches or retries in between.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/shm.h"
#include "base/sys.h"
#include "sock/conn.h"
#include "sock/sock.h"
#include "ulc/bell.h"
#include "ulc/chan.h"
#include "ulc/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_TIMEOUT_MS 1000
#define RETRY_NS (100 * 1000000LL)
/* Links without connections that stay mapped: the next one may be between the same two. */
#define IDLE_LINKS 4

struct tt_proc tt_proc = {.side_fd = -1};

static int ctl = -1;
static int64_t ctl_failed_ns;
static pthread_mutex_t ctl_lock = PTHREAD_MUTEX_INITIALIZER;

struct link_here {
	struct link_here *next;
	uint32_t id;
	int side;
	struct tt_link *link;
	uint64_t idle_since; /* counts, no time */
};
static struct link_here *links;
static pthread_mutex_t links_lock = PTHREAD_MUTEX_INITIALIZER;

static void tell_bell(void *arg, uint32_t owner, uint32_t id, int fd)
{
	struct tt_ctl_msg m = tt_ctl_msg(TT_CTL_BELL, owner, id, (uint64_t)tt_proc.pid, 0);

	(void)arg;
	tt_ctl_send(ctl, &m, fd);
}

static int say_hello(int fd)
{
	struct tt_ctl_msg m = tt_ctl_msg(TT_CTL_HELLO, tt_load_relaxed(&tt_proc.mem->id), 0, 0, 0);

	return tt_ctl_request(fd, &m, tt_proc.side_fd, NULL, ANSWER_TIMEOUT_MS);
}

/* ctl_lock held. */
static int reconnect(void)
{
	int64_t now = tt_now_ns();

	if (ctl >= 0)
		tt_fd_close(ctl);
	ctl = -1;
	if (now - ctl_failed_ns < RETRY_NS && ctl_failed_ns)
		return -ENOTCONN;
	int fd = tt_ctl_connect();

	if (fd >= 0) {
		fd = tt_fd_high(fd);
		int err = say_hello(fd);

		if (err < 0) {
			tt_fd_close(fd);
			fd = err;
		}
	}
	if (fd < 0) {
		ctl_failed_ns = now;
		return -ENOTCONN;
	}
	ctl = fd;
	tt_bell_each_own(tell_bell, NULL);
	return 0;
}

static bool connection_lost(int err)
{
	return err == -EPIPE || err == -ECONNRESET || err == -ENOTCONN || err == -EBADF ||
	       err == -ENOTSOCK || err == -ECONNREFUSED;
}

int tt_proc_send(const struct tt_ctl_msg *m, int fd)
{
	tt_lock(&ctl_lock);
	int err = ctl >= 0 ? tt_ctl_send(ctl, m, fd) : -ENOTCONN;

	if (connection_lost(err)) {
		err = reconnect();
		if (err == 0)
			err = tt_ctl_send(ctl, m, fd);
	}
	tt_unlock(&ctl_lock);
	return err;
}

int tt_proc_request(struct tt_ctl_msg *m, int fd, int *ret_fd)
{
	struct tt_ctl_msg copy = *m;

	tt_lock(&ctl_lock);
	int err = ctl >= 0 ? tt_ctl_request(ctl, m, fd, ret_fd, ANSWER_TIMEOUT_MS) : -ENOTCONN;

	if (connection_lost(err)) {
		err = reconnect();
		if (err == 0) {
			*m = copy;
			err = tt_ctl_request(ctl, m, fd, ret_fd, ANSWER_TIMEOUT_MS);
		}
	}
	tt_unlock(&ctl_lock);
	return err;
}

/* ---- links ---- */

static struct link_here *find_link(uint32_t id, int side)
{
	for (struct link_here *h = links; h; h = h->next)
		if (h->id == id && h->side == side)
			return h;
	return NULL;
}

static struct link_here *fetch_link(uint32_t side_id, uint32_t id, int side)
{
	struct tt_ctl_msg m = tt_ctl_msg(TT_CTL_GET_LINK, side_id, id, 0, 0);
	int fd = -1, err = tt_proc_request(&m, -1, &fd);

	if (err < 0 || fd < 0)
		return NULL;
	struct link_here *h = calloc(1, sizeof(*h));

	if (!h || tt_link_map(fd, side, &h->link) < 0 ||
	    h->link->g.window_bytes != sizeof(struct tt_stream_window)) {
		if (h)
			tt_link_unmap(h->link);
		free(h);
		h = NULL;
	} else {
		h->id = h->link->id = id;
		h->side = side;
		h->link->peer_id = (uint32_t)m.arg[0];
		h->next = links;
		links = h;
	}
	tt_sys.close(fd);
	return h;
}

struct tt_link *tt_proc_link_get(uint32_t side_id, uint32_t id, int side)
{
	tt_lock(&links_lock);
	struct link_here *h = find_link(id, side);

	if (!h)
		h = fetch_link(side_id, id, side);
	if (h && h->link->refs++ == 0)
		h->idle_since = 0;
	tt_unlock(&links_lock);
	return h ? h->link : NULL;
}

/* The longest idle link, when more than a few are. links_lock held; taken out of the list. */
static struct link_here *take_oldest(void)
{
	struct link_here **oldest = NULL;
	int idle = 0;

	for (struct link_here **at = &links; *at; at = &(*at)->next) {
		if ((*at)->link->refs)
			continue;
		idle++;
		if (!oldest || (*at)->idle_since < (*oldest)->idle_since)
			oldest = at;
	}
	if (idle <= IDLE_LINKS)
		return NULL;
	struct link_here *h = *oldest;

	*oldest = h->next;
	return h;
}

static bool has_links_to(uint32_t peer)
{
	for (struct link_here *h = links; h; h = h->next)
		if (h->link->peer_id == peer)
			return true;
	return false;
}

void tt_proc_link_put(struct tt_link *l)
{
	static uint64_t clock;

	tt_lock(&links_lock);
	struct link_here *h = links;

	while (h && h->link != l)
		h = h->next;
	if (h && --l->refs == 0)
		h->idle_since = ++clock;
	h = take_oldest();
	bool forget = h && !has_links_to(h->link->peer_id);

	tt_unlock(&links_lock);
	if (!h)
		return;
	/* Nobody finds it any more; queues that listened there let go of it. */
	tt_eset_forget_link(h->link);
	if (forget)
		tt_bell_forget(h->link->peer_id);
	tt_link_unmap(h->link);
	free(h);
}

/* ---- bells ---- */

int tt_proc_bell(struct tt_bell *ret_bell)
{
	uint32_t side = tt_load_relaxed(&tt_proc.mem->id);
	uint32_t id = tt_fetch_add(&tt_proc.mem->next_bell, 1) + 1;
	int err = tt_bell_open(ret_bell, side, id ? id : 1);

	if (err < 0)
		return err;
	struct tt_ctl_msg m = tt_ctl_msg(TT_CTL_BELL, side, ret_bell->id, (uint64_t)getpid(), 0);

	/* Without a daemon nobody can ask for it; peers then kick the shadow. */
	tt_proc_send(&m, ret_bell->fd);
	return 0;
}

static int fetch_bell(uint32_t owner, uint32_t id)
{
	struct tt_ctl_msg m =
		tt_ctl_msg(TT_CTL_GET_BELL, tt_load_relaxed(&tt_proc.mem->id), owner, id, 0);
	int fd = -1, err = tt_proc_request(&m, -1, &fd);

	return err < 0 ? err : fd;
}

/* ---- start, fork ---- */

static int env_fd(const char *name)
{
	const char *text = getenv(name);
	char *end;

	if (!text || !*text)
		return -1;
	long n = strtol(text, &end, 10);

	return *end || n < 0 || n > 1 << 24 ? -1 : (int)n;
}

static bool is_control_socket(int fd)
{
	int type = 0, domain = 0;
	socklen_t len = sizeof(type);

	return tt_sys.getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 &&
	       tt_sys.getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 &&
	       type == SOCK_SEQPACKET && domain == AF_UNIX;
}

void tt_sock_init(void)
{
	tt_log_set(NULL, TT_LOG_ERROR);
	tt_proc.pid = getpid();
	tt_proc.spin_usec = UINT32_MAX;
	int fd = env_fd("TUTTI_SIDE");
	struct tt_side_mem *mem;

	if (fd < 0 || tt_side_map(fd, &mem) < 0)
		return;
	tt_fd_mark_internal(fd);
	tt_proc.side_fd = fd;
	tt_proc.spin_usec = mem->spin_usec;
	tt_proc.eager = getenv("TUTTI_EAGER") != NULL;
	int c = env_fd("TUTTI_CTL");

	if (c >= 0 && is_control_socket(c)) {
		tt_fd_mark_internal(c);
		ctl = c;
	}
	tt_ctl_keep_path();
	tt_membarrier_init();
	tt_ticks_per_us();
	tt_bell_set_fetch(fetch_bell);
	tt_store_release(&tt_proc.mem, mem);
}

/*
 * A child may become another user, who is not let in by the daemon but may use
 * what it inherited. So the parent sees to it that there is a live connection.
 */
static void renew(void)
{
	struct pollfd p = {ctl, 0, 0};
	int err = errno;

	if (ctl < 0 || tt_sys.poll(&p, 1, 0) > 0)
		reconnect();
	errno = err;
}

void tt_proc_fork_prepare(void)
{
	tt_lock(&ctl_lock);
	renew();
	tt_lock(&links_lock);
}

void tt_proc_fork_parent(void)
{
	tt_unlock(&links_lock);
	tt_unlock(&ctl_lock);
}

void tt_proc_fork_child(void)
{
	pthread_mutex_init(&links_lock, NULL);
	pthread_mutex_init(&ctl_lock, NULL);
	tt_proc.pid = getpid();
	tt_bell_forget_own();
}
