/* SPDX-License-Identifier: MIT */
/*
 * io_uring moves bytes past libc: programs are told that the kernel lacks it,
 * as container engines tell them, and take their other way. Those that ask by
 * libc's syscall() are told in files.c. liburing enters the kernel by itself, so
 * those are its functions that make a ring; they return negative errnos.
 *
 * Not met: liburing linked into a program, and one that is loaded late and was
 * built to call its own functions directly; `tutti run --strict` meets both.
 */
#include "preload/preload_int.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

bool tt_preload_refuses_rings(void)
{
	const char *let;

	enter();
	let = getenv("TUTTI_IO_URING");
	return tt_sock_active() && (!let || !*let || !strcmp(let, "0"));
}

/*
 * The definition after ours, or NULL. A liburing that was loaded late, and for
 * its loader alone, is in no scope of ours: then as the caller would find it.
 */
static void *next_of(const char *name, void *caller)
{
	void *p = dlsym(RTLD_NEXT, name), *handle;
	Dl_info info, self;

	if (p || !dladdr(caller, &info) || !info.dli_fname)
		return p;
	handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	if (!handle)
		return NULL;
	p = dlsym(handle, name);
	dlclose(handle);
	/* Ourselves again: there is no other. */
	if (p && dladdr((void *)next_of, &self) && dladdr(p, &info) &&
	    info.dli_fbase == self.dli_fbase)
		return NULL;
	return p;
}

#define REFUSE_OR_FIND(name, next)                                                                 \
	do {                                                                                       \
		void *p_ = tt_preload_refuses_rings()                                              \
				   ? NULL                                                          \
				   : next_of((name), __builtin_return_address(0));                 \
		if (!p_)                                                                           \
			return -ENOSYS;                                                            \
		__builtin_memcpy(&(next), &p_, sizeof(p_));                                        \
	} while (0)

/* Their structs stay unnamed: they are passed on as they are. */
EXPORT int io_uring_queue_init(unsigned entries, void *ring, unsigned flags)
{
	int (*next)(unsigned, void *, unsigned);

	REFUSE_OR_FIND("io_uring_queue_init", next);
	return next(entries, ring, flags);
}

EXPORT int io_uring_queue_init_params(unsigned entries, void *ring, void *params)
{
	int (*next)(unsigned, void *, void *);

	REFUSE_OR_FIND("io_uring_queue_init_params", next);
	return next(entries, ring, params);
}

EXPORT int io_uring_queue_init_mem(unsigned entries, void *ring, void *params, void *buf,
				   size_t bytes)
{
	int (*next)(unsigned, void *, void *, void *, size_t);

	REFUSE_OR_FIND("io_uring_queue_init_mem", next);
	return next(entries, ring, params, buf, bytes);
}

EXPORT int io_uring_setup(unsigned entries, void *params)
{
	int (*next)(unsigned, void *);

	REFUSE_OR_FIND("io_uring_setup", next);
	return next(entries, params);
}
