/* SPDX-License-Identifier: MIT */
/*
 * Calls that take memory away, or put something else in its place: what is
 * remembered of those pages (base/usermem.h) is forgotten.
 *
 * Allocators and sanitizers call these before our constructor has run, and from
 * inside dlsym(); handlers of signals call them too. So nothing is looked up
 * here: the next definitions are there once tt_preload_init has found them, and
 * before it is the kernel.
 */
#include "preload/preload_int.h"

#include "base/usermem.h"

#include <stdarg.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102 /* Linux 6.13 */
#endif

/* raw.S */
long tt_preload_raw(long number, long a, long b, long c, long d, long e, long f);

/* X(return type, name, parameters) */
#define MEMORY_CALLS(X)                                                                            \
	X(void *, mmap, (void *, size_t, int, int, int, off_t))                                    \
	X(int, munmap, (void *, size_t))                                                           \
	X(int, mprotect, (void *, size_t, int))                                                    \
	X(int, pkey_mprotect, (void *, size_t, int, int))                                          \
	X(void *, mremap, (void *, size_t, size_t, int, ...))                                      \
	X(int, madvise, (void *, size_t, int))                                                     \
	X(int, shmdt, (const void *))                                                              \
	X(void *, shmat, (int, const void *, int))

static struct {
#define X(type, name, params) type(*name) params;
	MEMORY_CALLS(X)
#undef X
} next;

void tt_preload_find_memory(void)
{
#define X(type, name, params) tt_next(#name, &next.name);
	MEMORY_CALLS(X)
#undef X
}

/* By the kernel, with the result as libc gives it. */
static long raw(long number, long a, long b, long c, long d, long e, long f)
{
	long r = tt_preload_raw(number, a, b, c, d, e, f);

	if (r >= 0 || r < -4095)
		return r;
	errno = (int)-r;
	return -1;
}

static long number_of(const void *p)
{
	return (long)(uintptr_t)p;
}

EXPORT void *mmap(void *p, size_t n, int prot, int flags, int fd, off_t offset)
{
	void *r = next.mmap ? next.mmap(p, n, prot, flags, fd, offset)
			    : (void *)raw(SYS_mmap, number_of(p), (long)n, prot, flags, fd, offset);

	/* Not only with MAP_FIXED: what lay there may have gone past us. */
	if (r != MAP_FAILED)
		tt_user_forget(r, n);
	return r;
}

/* The same function: an off64_t is an off_t here. */
_Static_assert(sizeof(off64_t) == sizeof(off_t), "an offset has 64 bits");

EXPORT void *mmap64(void *p, size_t n, int prot, int flags, int fd, off64_t offset)
{
	return mmap(p, n, prot, flags, fd, offset);
}

EXPORT int munmap(void *p, size_t n)
{
	int r = next.munmap ? next.munmap(p, n)
			    : (int)raw(SYS_munmap, number_of(p), (long)n, 0, 0, 0, 0);

	tt_user_forget(p, n);
	return r;
}

EXPORT int mprotect(void *p, size_t n, int prot)
{
	int r = next.mprotect ? next.mprotect(p, n, prot)
			      : (int)raw(SYS_mprotect, number_of(p), (long)n, prot, 0, 0, 0);

	/* Also when it failed: it may have changed a part. */
	tt_user_forget(p, n);
	return r;
}

EXPORT int pkey_mprotect(void *p, size_t n, int prot, int key)
{
	int r = next.pkey_mprotect
			? next.pkey_mprotect(p, n, prot, key)
			: (int)raw(SYS_pkey_mprotect, number_of(p), (long)n, prot, key, 0, 0);

	tt_user_forget(p, n);
	return r;
}

EXPORT void *mremap(void *p, size_t n, size_t to_n, int flags, ...)
{
	va_list ap;

	va_start(ap, flags);
	void *to = flags & MREMAP_FIXED ? va_arg(ap, void *) : NULL;

	va_end(ap);
	void *r = next.mremap ? next.mremap(p, n, to_n, flags, to)
			      : (void *)raw(SYS_mremap, number_of(p), (long)n, (long)to_n, flags,
					    number_of(to), 0);

	tt_user_forget(p, n);
	if (r != MAP_FAILED)
		tt_user_forget(r, to_n);
	return r;
}

EXPORT int madvise(void *p, size_t n, int advice)
{
	int r = next.madvise ? next.madvise(p, n, advice)
			     : (int)raw(SYS_madvise, number_of(p), (long)n, advice, 0, 0, 0);

	/* Other advice takes contents, not the right to access. */
	if (advice == MADV_GUARD_INSTALL)
		tt_user_forget(p, n);
	return r;
}

EXPORT int shmdt(const void *p)
{
	int r = next.shmdt ? next.shmdt(p) : (int)raw(SYS_shmdt, number_of(p), 0, 0, 0, 0, 0);

	tt_user_forget_all(); /* how much it was, the kernel knows */
	return r;
}

EXPORT void *shmat(int id, const void *p, int flags)
{
	void *r = next.shmat ? next.shmat(id, p, flags)
			     : (void *)raw(SYS_shmat, id, number_of(p), flags, 0, 0, 0);

	tt_user_forget_all();
	return r;
}
