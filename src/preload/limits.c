/* SPDX-License-Identifier: MIT */
/*
 * A process that gives up rights: a seccomp filter, or the right to open
 * descriptors or to map memory. What the library needs for itself it must have done before.
 */
#include "preload/preload_int.h"

#include <linux/seccomp.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

EXPORT int prctl(int option, ...)
{
	static int (*next)(int, ...);
	va_list ap;
	unsigned long a[4];

	enter();
	va_start(ap, option);
	for (int i = 0; i < 4; i++)
		a[i] = va_arg(ap, unsigned long);
	va_end(ap);
	if (!next)
		tt_next("prctl", &next);
	if (option == PR_SET_SECCOMP && (a[0] == SECCOMP_MODE_STRICT || a[1]))
		tt_sock_leave();
	return next(option, a[0], a[1], a[2], a[3]);
}

/*
 * Whoever has the three standard descriptors at most, for good, is building a
 * sandbox (sshd's child), and neither a ring nor a way back from it could be
 * had afterwards.
 */
static bool gives_up_descriptors(int resource, const struct rlimit *limit)
{
	return resource == RLIMIT_NOFILE && tt_user_readable(limit, sizeof(*limit)) &&
	       limit->rlim_max <= 3;
}

/* What we execute could map no link, and so not take up what is on one. We go on with it. */
static bool gives_up_space(int resource, const struct rlimit *limit)
{
	struct tt_link_geometry g = tt_stream_geometry();

	return resource == RLIMIT_AS && tt_user_readable(limit, sizeof(*limit)) &&
	       limit->rlim_cur < 2 * tt_link_bytes(&g);
}

static void before_limit(int resource, const struct rlimit *limit)
{
	if (gives_up_descriptors(resource, limit))
		tt_sock_leave();
	else if (gives_up_space(resource, limit))
		tt_sock_hand_out();
}

EXPORT int setrlimit(__rlimit_resource_t resource, const struct rlimit *limit)
{
	static int (*next)(__rlimit_resource_t, const struct rlimit *);

	enter();
	if (!next)
		tt_next("setrlimit", &next);
	before_limit((int)resource, limit);
	return next(resource, limit);
}

EXPORT int prlimit(__pid_t pid, enum __rlimit_resource resource, const struct rlimit *limit,
		   struct rlimit *old)
{
	static int (*next)(__pid_t, enum __rlimit_resource, const struct rlimit *, struct rlimit *);

	enter();
	if (!next)
		tt_next("prlimit", &next);
	if (pid == 0 || pid == getpid())
		before_limit((int)resource, limit);
	return next(pid, resource, limit, old);
}

/* The same functions: struct rlimit64 is struct rlimit here. */
_Static_assert(sizeof(struct rlimit64) == sizeof(struct rlimit), "an rlimit has 64 bits a limit");

EXPORT int setrlimit64(__rlimit_resource_t resource, const struct rlimit64 *limit)
{
	return setrlimit(resource, (const struct rlimit *)limit);
}

EXPORT int prlimit64(__pid_t pid, enum __rlimit_resource resource, const struct rlimit64 *limit,
		     struct rlimit64 *old)
{
	return prlimit(pid, resource, (const struct rlimit *)limit, (struct rlimit *)old);
}
