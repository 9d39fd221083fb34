/* SPDX-License-Identifier: MIT */
/* The table of descriptors: two levels, allocated by use, read without a lock. */
#include "base/shm.h"
#include "base/sys.h"
#include "sock/conn.h"

#include <sys/mman.h>

struct tt_slot *tt_fdtab[TT_FDTAB_LEAVES];

static pthread_mutex_t lock = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;

bool tt_fdtab_trylock(void)
{
	return tt_lock(&lock) == 0;
}

void tt_fdtab_lock(void)
{
	tt_lock(&lock);
}

void tt_fdtab_unlock(void)
{
	tt_unlock(&lock);
}

void tt_fdtab_fork_child(void)
{
	lock = (pthread_mutex_t)PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
}

void tt_fd_set(int fd, uint32_t kind, void *obj)
{
	if ((unsigned)fd >= TT_FDTAB_LEAF * TT_FDTAB_LEAVES)
		return;
	struct tt_slot **at = &tt_fdtab[fd / TT_FDTAB_LEAF];

	if (!*at) {
		if (kind == TT_FD_UNKNOWN)
			return;
		/* Not malloc: the program may be inside it, or have none of its own. */
		void *leaf = mmap(NULL, TT_FDTAB_LEAF * sizeof(struct tt_slot),
				  PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (leaf == MAP_FAILED)
			return;
		tt_store_release(at, leaf);
	}
	struct tt_slot *s = &(*at)[fd % TT_FDTAB_LEAF];

	/* A reader sees kind first: it must never meet a kind with another's object. */
	if (obj) {
		tt_store_release(&s->kind, TT_FD_UNKNOWN);
		tt_store_release(&s->obj, obj);
		tt_store_release(&s->kind, kind);
	} else {
		tt_store_release(&s->kind, kind);
		tt_store_release(&s->obj, NULL);
	}
}

int tt_fd_other(const void *obj, int not_fd)
{
	for (int i = 0; i < TT_FDTAB_LEAVES; i++)
		for (int k = 0; tt_fdtab[i] && k < TT_FDTAB_LEAF; k++)
			if (tt_fdtab[i][k].obj == obj && i * TT_FDTAB_LEAF + k != not_fd)
				return i * TT_FDTAB_LEAF + k;
	return -1;
}

void tt_fd_each(uint32_t kind, void (*fn)(int fd, void *obj))
{
	for (int i = 0; i < TT_FDTAB_LEAVES; i++)
		for (int k = 0; tt_fdtab[i] && k < TT_FDTAB_LEAF; k++)
			if (tt_fdtab[i][k].kind == kind)
				fn(i * TT_FDTAB_LEAF + k, tt_fdtab[i][k].obj);
}
