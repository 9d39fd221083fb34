/* SPDX-License-Identifier: MIT */
/* Start and end of the preloaded library. */
#include "preload/preload_int.h"

#include <dlfcn.h>
#include <pthread.h>

bool tt_preload_ready;

void tt_next(const char *name, void *ret_fn)
{
	void *p = dlsym(RTLD_NEXT, name);

	__builtin_memcpy(ret_fn, &p, sizeof(p));
}

static void find_next(void)
{
#define X(type, name, params) tt_next(#name, &tt_sys.name);
	TT_SYS_CALLS(X)
#undef X
}

void tt_preload_init(void)
{
	static bool begun;

	/* A second thread cannot exist yet; what comes back here is ourselves. */
	if (begun)
		return;
	begun = true;
	int err = errno;

	find_next();
	tt_preload_find_memory();
	tt_preload_ready = true;
	tt_sock_init();
	tt_preload_keep_environment();
	tt_preload_adopt_stdio();
	pthread_atfork(tt_sock_fork_prepare, tt_sock_fork_parent, tt_sock_fork_child);
	errno = err;
}

__attribute__((constructor)) static void start(void)
{
	tt_preload_init();
}

__attribute__((destructor)) static void stop(void)
{
	if (tt_preload_ready)
		tt_sock_fini();
}
