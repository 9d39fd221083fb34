/* SPDX-License-Identifier: MIT */
/*
 * The cache is a small open hash under a mutex; on the way of a wake-up, which
 * costs microseconds, that is nothing. It holds at most CACHE bells; a new one
 * then takes the place of an old one, which is fetched again when needed.
 */
#include "ulc/bell.h"

#include "base/atomic.h"
#include "base/shm.h"
#include "base/sys.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define CACHE 256u
#define PROBES 8u

struct known {
	uint32_t owner, id; /* id 0: empty */
	int fd;
	bool own; /* the descriptor belongs to a tt_bell of this process */
};

static struct known cache[CACHE];
static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;
static tt_bell_fetch_fn fetch;

static uint32_t hash(uint32_t owner, uint32_t id)
{
	return (owner * 0x9e3779b1u ^ id * 0x85ebca77u) >> 16;
}

static struct known *find(uint32_t owner, uint32_t id)
{
	for (uint32_t i = 0, h = hash(owner, id); i < PROBES; i++) {
		struct known *k = &cache[(h + i) % CACHE];

		if (k->id == id && k->owner == owner)
			return k;
	}
	return NULL;
}

static void enter(uint32_t owner, uint32_t id, int fd, bool own)
{
	uint32_t h = hash(owner, id);
	struct known *k = find(owner, id);

	for (uint32_t i = 0; !k && i < PROBES; i++)
		if (!cache[(h + i) % CACHE].id)
			k = &cache[(h + i) % CACHE];
	/* Full: one that can be fetched again makes room. */
	for (uint32_t i = 0; !k && i < PROBES; i++)
		if (!cache[(h + i) % CACHE].own)
			k = &cache[(h + i) % CACHE];
	if (!k) {
		if (!own)
			tt_fd_close(fd);
		return;
	}
	if (k->id && !k->own && k->fd != fd)
		tt_fd_close(k->fd);
	*k = (struct known){owner, id, fd, own};
}

int tt_bell_open(struct tt_bell *b, uint32_t owner, uint32_t id)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	if (fd < 0)
		return -errno;
	b->fd = tt_fd_high(fd);
	b->id = id;
	pthread_mutex_lock(&cache_lock);
	enter(owner, id, b->fd, true);
	pthread_mutex_unlock(&cache_lock);
	return 0;
}

void tt_bell_close(struct tt_bell *b)
{
	if (b->fd < 0)
		return;
	pthread_mutex_lock(&cache_lock);
	for (uint32_t i = 0; i < CACHE; i++)
		if (cache[i].id && cache[i].own && cache[i].fd == b->fd)
			cache[i].id = 0;
	pthread_mutex_unlock(&cache_lock);
	tt_fd_close(b->fd);
	b->fd = -1;
}

void tt_bell_reset(const struct tt_bell *b)
{
	uint64_t n;

	while (tt_sys.read(b->fd, &n, sizeof(n)) < 0 && errno == EINTR)
		;
}

static int ring(int fd)
{
	uint64_t one = 1;

	while (tt_sys.write(fd, &one, sizeof(one)) < 0) {
		/* EAGAIN: it rings as loud as it can. */
		if (errno == EAGAIN)
			return 0;
		if (errno != EINTR)
			return -errno;
	}
	return 0;
}

static int ring_known(uint32_t owner, uint32_t id)
{
	int err = -ENOENT;

	/* A peer may say so; in the cache it stands for an empty place. */
	if (!id)
		return -ENOENT;
	pthread_mutex_lock(&cache_lock);
	struct known *k = find(owner, id);

	if (k)
		err = ring(k->fd);
	tt_bell_fetch_fn fn = fetch;

	pthread_mutex_unlock(&cache_lock);
	if (k || !fn)
		return err ? -ENOENT : 0;
	int fd = fn(owner, id);

	if (fd < 0)
		return -ENOENT;
	fd = tt_fd_high(fd);
	err = ring(fd);
	tt_bell_learn(owner, id, fd);
	return err ? -ENOENT : 0;
}

int tt_bell_ring(uint32_t owner, uint32_t id)
{
	/* It is called in the middle of calls that succeed. */
	int saved = errno, err = ring_known(owner, id);

	errno = saved;
	return err;
}

int tt_bell_learn(uint32_t owner, uint32_t id, int fd)
{
	pthread_mutex_lock(&cache_lock);
	enter(owner, id, fd, false);
	pthread_mutex_unlock(&cache_lock);
	return 0;
}

void tt_bell_set_fetch(tt_bell_fetch_fn fn)
{
	fetch = fn;
}

void tt_bell_forget(uint32_t owner)
{
	pthread_mutex_lock(&cache_lock);
	for (uint32_t i = 0; i < CACHE; i++)
		if (cache[i].id && cache[i].owner == owner && !cache[i].own) {
			tt_fd_close(cache[i].fd);
			cache[i].id = 0;
		}
	pthread_mutex_unlock(&cache_lock);
}

void tt_bell_each_own(void (*fn)(void *arg, uint32_t owner, uint32_t id, int fd), void *arg)
{
	pthread_mutex_lock(&cache_lock);
	for (uint32_t i = 0; i < CACHE; i++)
		if (cache[i].id && cache[i].own)
			fn(arg, cache[i].owner, cache[i].id, cache[i].fd);
	pthread_mutex_unlock(&cache_lock);
}

void tt_bell_forget_own(void)
{
	/*
	 * The parent's eventfds are inherited: for the child they are somebody
	 * else's bells, and good descriptors to ring them. Also the lock may
	 * have been held by a thread that does not exist here.
	 */
	pthread_mutex_init(&cache_lock, NULL);
	for (uint32_t i = 0; i < CACHE; i++)
		cache[i].own = false;
}
