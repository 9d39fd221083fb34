/* SPDX-License-Identifier: MIT */
/*
 * Whether memory that a program named can be read or written: the kernel
 * answers a bad pointer with EFAULT, where a copy in user space would be
 * SIGSEGV.
 *
 * Pages that were found good are remembered, in a table that each page has one
 * place in: a hit is a load and a comparison. Of others the kernel is asked, by
 * calls that really access them: so a stack grows, a file's page is read, and
 * one behind the file's end is bad. Nothing is changed in memory, and errno is
 * left alone.
 *
 * What is remembered must be forgotten when the program takes pages away
 * (tt_user_forget, after the call that did it). A change that no call of the
 * program's tells of (libc's own unmapping, inside free(); a file cut short) is
 * not noticed while the page's place in the table is not taken by another.
 *
 * Any thread calls, handlers of signals too. Forgetting may run before anything
 * else of the library; asking needs tt_sys.
 */
#ifndef TT_BASE_USERMEM_H
#define TT_BASE_USERMEM_H

#include "base/atomic.h"

#include <stddef.h>

/* The smallest page there is: where they are larger, each has several places. */
#define TT_USER_PAGE_SHIFT 12
#define TT_USER_PLACES 8192u

enum { TT_USER_READ = 1, TT_USER_WRITE = 2 };

/* Page number << 2 | what is known of it; what can be written can be read. */
extern uint64_t tt_user_pages[TT_USER_PLACES] __attribute__((visibility("hidden")));

bool tt_user_ask(const void *p, size_t n, bool write);

/* All that is known of the pages of [p, p + n). */
void tt_user_forget(const void *p, size_t n);

/* Of all pages. */
void tt_user_forget_all(void);

static inline bool tt_user_knows(uintptr_t page, bool write)
{
	uint64_t entry = tt_load_relaxed(&tt_user_pages[page % TT_USER_PLACES]);

	return (write ? entry : entry | TT_USER_WRITE) ==
	       ((uint64_t)page << 2 | TT_USER_READ | TT_USER_WRITE);
}

static inline bool tt_user_check(const void *p, size_t n, bool write)
{
	uintptr_t first = (uintptr_t)p >> TT_USER_PAGE_SHIFT;
	uintptr_t last = ((uintptr_t)p + n - 1) >> TT_USER_PAGE_SHIFT;

	if (__builtin_expect(first == last && tt_user_knows(first, write), 1))
		return true;
	return tt_user_ask(p, n, write);
}

/* Nothing (n is 0) can be read and written everywhere. */
static inline bool tt_user_readable(const void *p, size_t n)
{
	return tt_user_check(p, n, false);
}

static inline bool tt_user_writable(const void *p, size_t n)
{
	return tt_user_check(p, n, true);
}

#endif
