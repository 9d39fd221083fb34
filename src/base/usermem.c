/* SPDX-License-Identifier: MIT */
#include "base/usermem.h"

#include "base/sys.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
/* So many at once: about what a piece of a copy has. */
#define POPULATE_MAX 64u

_Alignas(TT_CACHE_LINE) uint64_t tt_user_pages[TT_USER_PLACES];
/* Counts calls of tt_user_forget. */
static _Alignas(TT_CACHE_LINE) uint32_t changes;

/* seen: the count of changes from before the kernel was asked. */
static void remember(uintptr_t page, bool write, uint32_t seen)
{
	uint64_t *at = &tt_user_pages[page % TT_USER_PLACES];

	tt_store_relaxed(at, (uint64_t)page << 2 | TT_USER_READ | (write ? TT_USER_WRITE : 0));
	tt_fence(); /* U1: who forgets meets the entry, or we its count */
	if (tt_load_relaxed(&changes) != seen)
		tt_store_relaxed(at, 0u);
}

static void *address(uintptr_t page)
{
	return (void *)(page << TT_USER_PAGE_SHIFT);
}

/*
 * The kernel reads a signal set before it looks what to do with it, and refuses
 * to do what there is not. A stack grows by this. Not at 0: no set is fine too.
 */
static bool can_read(uintptr_t page)
{
	return tt_sys.syscall(SYS_rt_sigprocmask, -1, (char *)address(page) + sizeof(uint64_t),
			      NULL, sizeof(uint64_t)) == 0 ||
	       errno != EFAULT;
}

/* The kernel sets no bit in a word of the page, without anything getting between. */
static bool can_write(uintptr_t page)
{
	static uint32_t nobody_waits_here;

	return tt_sys.syscall(SYS_futex, &nobody_waits_here, FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 0,
			      NULL, address(page),
			      FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, 0)) >= 0 ||
	       errno != EFAULT;
}

/* Several pages by one call. Its errors do not tell bad pages from special ones. */
static bool populate(uintptr_t page, size_t pages)
{
	return tt_sys.syscall(SYS_madvise, address(page), pages << TT_USER_PAGE_SHIFT,
			      MADV_POPULATE_WRITE) == 0;
}

static bool ask(uintptr_t first, uintptr_t last, bool write)
{
	uintptr_t page = first;
	bool each = !write;

	while (page <= last) {
		uint32_t seen = tt_load_acquire(&changes);
		size_t good = 1;

		if (tt_user_knows(page, write)) {
			page++;
			continue;
		}
		if (!each && page < last) {
			good = last - page + 1 < POPULATE_MAX ? last - page + 1 : POPULATE_MAX;
			each = !populate(page, good);
			if (each)
				continue;
		} else if (!can_read(page) || (write && !can_write(page))) {
			return false;
		}
		for (; good; good--)
			remember(page++, write, seen);
	}
	return true;
}

bool tt_user_ask(const void *p, size_t n, bool write)
{
	uintptr_t first = (uintptr_t)p >> TT_USER_PAGE_SHIFT;
	uintptr_t last = ((uintptr_t)p + n - 1) >> TT_USER_PAGE_SHIFT;
	int saved = errno;

	if (n == 0)
		return true;
	bool good = n <= UINTPTR_MAX - (uintptr_t)p && ask(first, last, write);

	errno = saved;
	return good;
}

void tt_user_forget(const void *p, size_t n)
{
	uintptr_t first = (uintptr_t)p >> TT_USER_PAGE_SHIFT;
	uintptr_t end = n <= UINTPTR_MAX - (uintptr_t)p ? (uintptr_t)p + n : UINTPTR_MAX;
	uintptr_t last = (end - 1) >> TT_USER_PAGE_SHIFT;

	if (n == 0)
		return;
	tt_fetch_add(&changes, 1u); /* U1 */
	for (uintptr_t k = 0; k < TT_USER_PLACES && k <= last - first; k++) {
		uint64_t *at = &tt_user_pages[(first + k) % TT_USER_PLACES];
		uint64_t page = tt_load_relaxed(at) >> 2;

		if (page >= first && page <= last)
			tt_store_relaxed(at, 0u);
	}
}

void tt_user_forget_all(void)
{
	tt_user_forget(NULL, UINTPTR_MAX);
}
