/* SPDX-License-Identifier: MIT */
#include "sock/side.h"

#include "sock/guard.h"

#include "base/shm.h"
#include "base/sys.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

const char *const tt_reason_names[TT_REASON_COUNT] = {
#define X(name, text) text,
	TT_REASONS(X)
#undef X
};

static int init_lock(pthread_mutex_t *m)
{
	pthread_mutexattr_t a;
	int err = pthread_mutexattr_init(&a);

	if (err)
		return -err;
	pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ERRORCHECK);
	err = pthread_mutex_init(m, &a);
	pthread_mutexattr_destroy(&a);
	return -err;
}

int tt_side_lock(pthread_mutex_t *m)
{
	int err = tt_lock(m);

	if (err == EOWNERDEAD)
		pthread_mutex_consistent(m);
	return -err;
}

void tt_side_unlock(pthread_mutex_t *m)
{
	tt_unlock(m);
}

int tt_side_create(const char *name)
{
	void *base;
	size_t bytes;
	int fd = tt_shm_create(TT_SIDE_MEMFD, sizeof(struct tt_side_mem));

	if (fd < 0)
		return fd;
	int err = tt_shm_map(fd, sizeof(struct tt_side_mem), &base, &bytes);

	if (err < 0) {
		tt_sys.close(fd);
		return err;
	}
	struct tt_side_mem *m = base;

	m->version = TT_SIDE_VERSION;
	m->spin_usec = UINT32_MAX;
	strncpy(m->name, name, sizeof(m->name) - 1);
	if (getrandom(&m->secret, sizeof(m->secret), 0) != sizeof(m->secret))
		m->secret = 0;
	err = init_lock(&m->lock);
	tt_store_release(&m->magic, TT_SIDE_MAGIC);
	tt_shm_unmap(base, bytes);
	if (err < 0) {
		tt_sys.close(fd);
		return err;
	}
	return fd;
}

int tt_side_map(int fd, struct tt_side_mem **ret_mem)
{
	void *base;
	size_t bytes;
	int err = tt_shm_map(fd, sizeof(struct tt_side_mem), &base, &bytes);

	if (err < 0)
		return err;
	struct tt_side_mem *m = base;

	if (tt_load_acquire(&m->magic) != TT_SIDE_MAGIC || m->version != TT_SIDE_VERSION) {
		tt_shm_unmap(base, bytes);
		return -EPROTO;
	}
	*ret_mem = m;
	return 0;
}

static uint32_t *bucket_of(struct tt_side_mem *m, uint64_t cookie)
{
	return &m->buckets[(cookie * 0x9e3779b97f4a7c15ull) >> 49];
}
_Static_assert(TT_SIDE_BUCKETS == 1u << 15, "bucket_of takes the top 15 bits");

/*
 * Lists change by single stores, in an order that leaves them whole: a holder
 * of the lock who dies in the middle loses at most the entry it was at.
 */
static void unlink_entry(struct tt_side_mem *m, struct tt_entry *e)
{
	uint32_t idx = tt_side_entry_index(m, e) + 1;
	uint32_t *at = bucket_of(m, e->cookie);

	while (*at && *at <= TT_SIDE_ENTRIES) {
		if (*at == idx) {
			tt_store_release(at, e->next);
			break;
		}
		at = &m->entries[*at - 1].next;
	}
	tt_store_release(&e->state, TT_ENTRY_FREE);
	e->generation++;
	e->cookie = 0;
	e->next = m->free_list;
	tt_store_release(&m->free_list, idx);
}

/* The daemon marks entries whose socket is gone. Returns how many were taken back. */
static uint32_t reap_dead(struct tt_side_mem *m)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < m->used; i++) {
		struct tt_entry *e = &m->entries[i];

		if (e->state == TT_ENTRY_USED && tt_load_acquire(&e->dead) &&
		    tt_load_relaxed(&e->dead) == e->generation + 1) {
			unlink_entry(m, e);
			n++;
		}
	}
	return n;
}

/*
 * Looks for the dead before the table doubles. When that brings little the
 * table grows all the same, so that not every allocation looks.
 */
static bool may_grow(struct tt_side_mem *m)
{
	if (m->used == TT_SIDE_ENTRIES) {
		reap_dead(m);
		return false;
	}
	bool doubles = m->used >= 64 && !(m->used & (m->used - 1));

	return !doubles || reap_dead(m) < m->used / 8;
}

static struct tt_entry *take_free(struct tt_side_mem *m)
{
	if (!m->free_list && may_grow(m))
		return &m->entries[m->used++];
	if (m->free_list) {
		struct tt_entry *e = &m->entries[m->free_list - 1];

		m->free_list = e->next;
		return e;
	}
	return NULL;
}

static void init_entry(struct tt_entry *e, uint64_t cookie)
{
	uint32_t generation = e->generation;

	memset(e, 0, sizeof(*e));
	e->generation = generation;
	e->cookie = cookie;
	e->pid = getpid();
	init_lock(&e->tx_lock);
	init_lock(&e->rx_lock);
	tt_stream_tx_init(&e->tx);
	tt_stream_rx_init(&e->rx);
}

static struct tt_entry *find(struct tt_side_mem *m, uint64_t cookie)
{
	for (uint32_t i = *bucket_of(m, cookie); i; i = m->entries[i - 1].next)
		if (m->entries[i - 1].cookie == cookie && m->entries[i - 1].state == TT_ENTRY_USED)
			return &m->entries[i - 1];
	return NULL;
}

struct tt_entry *tt_side_entry_get(struct tt_side_mem *m, uint64_t cookie, bool create,
				   bool *ret_new)
{
	*ret_new = false;
	if (tt_side_lock(&m->lock) == -EDEADLK)
		return NULL;
	struct tt_entry *e = find(m, cookie);

	if (!e && create && (e = take_free(m))) {
		uint32_t *b = bucket_of(m, cookie);

		init_entry(e, cookie);
		e->next = *b;
		e->state = TT_ENTRY_USED;
		tt_store_release(b, tt_side_entry_index(m, e) + 1);
		*ret_new = true;
	}
	tt_side_unlock(&m->lock);
	return e;
}

void tt_side_entry_put(struct tt_side_mem *m, struct tt_entry *e, uint32_t generation)
{
	if (tt_side_lock(&m->lock) == -EDEADLK)
		return;
	if (e->state == TT_ENTRY_USED && e->generation == generation)
		unlink_entry(m, e);
	tt_side_unlock(&m->lock);
}
