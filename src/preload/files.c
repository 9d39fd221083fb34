/* SPDX-License-Identifier: MIT */
/* Calls that make, copy, close and describe descriptors. */
#include "base/shm.h"
#include "preload/preload_int.h"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <sched.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

static bool is_stream(int domain, int type, int protocol)
{
	return (domain == AF_INET || domain == AF_INET6) &&
	       (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) == SOCK_STREAM &&
	       (protocol == 0 || protocol == IPPROTO_TCP);
}

EXPORT int socket(int domain, int type, int protocol)
{
	enter();
	int fd = tt_sys.socket(domain, type, protocol);

	if (fd < 0)
		return fd;
	if (is_stream(domain, type, protocol))
		tt_sock_new_stream(fd, type & SOCK_NONBLOCK, false);
	else
		tt_sock_opened(fd);
	return fd;
}

EXPORT int connect(int fd, const struct sockaddr *sa, socklen_t len)
{
	enter();
	int r = tt_sys.connect(fd, sa, len);

	if (r == 0 && sa->sa_family == AF_UNSPEC)
		tt_sock_disconnected(fd);
	else if (r == 0)
		tt_sock_connected(fd);
	return r;
}

EXPORT int accept4(int fd, struct sockaddr *sa, socklen_t *len, int flags)
{
	enter();
	struct sockaddr_storage ss;
	socklen_t sslen = sizeof(ss);
	int new = tt_sys.accept4(fd, sa ? sa : (struct sockaddr *)&ss, sa ? len : &sslen, flags);

	if (new < 0)
		return new;
	int family = sa ? (len && *len >= sizeof(sa->sa_family) ? sa->sa_family : AF_UNSPEC)
			: ss.ss_family;

	if (family == AF_INET || family == AF_INET6)
		tt_sock_new_stream(new, flags & SOCK_NONBLOCK, true);
	else
		tt_sock_opened(new);
	return new;
}

EXPORT int accept(int fd, struct sockaddr *sa, socklen_t *len)
{
	enter();
	if (!tt_sock_active())
		return tt_sys.accept(fd, sa, len);
	return accept4(fd, sa, len, 0);
}

EXPORT int shutdown(int fd, int how)
{
	enter();
	return (int)FINISH(tt_sock_shutdown(fd, how));
}

EXPORT int close(int fd)
{
	enter();
	return (int)FINISH(tt_sock_close(fd));
}

EXPORT int close_range(unsigned int first, unsigned int last, int flags)
{
	enter();
	return (int)FINISH(tt_sock_close_range(first, last, flags));
}

EXPORT void closefrom(int first)
{
	close_range(first < 0 ? 0 : (unsigned)first, ~0u, 0);
}

/* The library's own: to the program there is no such descriptor. */
static bool hidden(int fd)
{
	if (!tt_sock_active() || !tt_fd_is_internal(fd))
		return false;
	errno = EBADF;
	return true;
}

/* By these two calls and fcntl(), programs look which descriptors they have. */
EXPORT int fstat(int fd, struct stat *st)
{
	enter();
	return hidden(fd) ? -1 : tt_sys.fstat(fd, st);
}

_Static_assert(sizeof(struct stat64) == sizeof(struct stat), "the same on 64-bit machines");

EXPORT int fstat64(int fd, struct stat64 *st)
{
	return fstat(fd, (struct stat *)(void *)st);
}

/* Of programs that were linked to glibc before 2.33. */
EXPORT int __fxstat(int version, int fd, struct stat *st)
{
	return fstat(fd, st);
}

EXPORT int __fxstat64(int version, int fd, struct stat64 *st)
{
	return fstat64(fd, st);
}

EXPORT int dup(int fd)
{
	enter();
	if (hidden(fd))
		return -1;
	int r = tt_sys.dup(fd);

	if (r >= 0)
		tt_sock_duped(fd, r);
	return r;
}

EXPORT int dup2(int fd, int onto)
{
	enter();
	return (int)FINISH(tt_sock_dup_onto(fd, onto, 0, false));
}

EXPORT int dup3(int fd, int onto, int flags)
{
	enter();
	return (int)FINISH(tt_sock_dup_onto(fd, onto, flags, true));
}

static int fcntl_any(int fd, int cmd, void *arg)
{
	enter();
	if (hidden(fd))
		return -1;
	int r = tt_sys.fcntl(fd, cmd, arg);

	if (r < 0)
		return r;
	if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC)
		tt_sock_duped(fd, r);
	else if (cmd == F_SETFL) {
		tt_sock_set_nonblock(fd, (int)(intptr_t)arg & O_NONBLOCK);
		tt_sock_set_async(fd, (int)(intptr_t)arg & O_ASYNC);
	}
	return r;
}

EXPORT int fcntl(int fd, int cmd, ...)
{
	va_list ap;

	va_start(ap, cmd);
	void *arg = va_arg(ap, void *);

	va_end(ap);
	return fcntl_any(fd, cmd, arg);
}

EXPORT int fcntl64(int fd, int cmd, ...)
{
	va_list ap;

	va_start(ap, cmd);
	void *arg = va_arg(ap, void *);

	va_end(ap);
	return fcntl_any(fd, cmd, arg);
}

EXPORT int ioctl(int fd, unsigned long req, ...)
{
	va_list ap;
	int r;

	enter();
	va_start(ap, req);
	void *arg = va_arg(ap, void *);

	va_end(ap);
	if ((req == FIONBIO || req == FIONREAD || req == TIOCOUTQ || req == SIOCATMARK) && arg &&
	    tt_sock_ioctl(fd, req, arg, &r))
		return (int)finish(r);
	return tt_sys.ioctl(fd, req, arg);
}

/* A filter that was written without us in mind. Those who only ask pass no filter. */
EXPORT int getsockopt(int fd, int level, int name, void *val, socklen_t *len)
{
	enter();
	return (int)FINISH(tt_sock_getsockopt(fd, level, name, val, len));
}

EXPORT int setsockopt(int fd, int level, int name, const void *val, socklen_t len)
{
	enter();
	return (int)FINISH(tt_sock_setsockopt(fd, level, name, val, len));
}

/* A child with memory of its own, which goes on where its parent is. */
static bool is_fork(long number, const long a[6])
{
#ifdef SYS_fork
	if (number == SYS_fork)
		return true;
#endif
	if (number == SYS_clone) {
		if (a[0] & CLONE_VM)
			tt_proc.lends = true;
		return !(a[0] & CLONE_VM) && !a[1];
	}
	if (number == SYS_clone3 && (size_t)a[1] >= 64 &&
	    tt_user_readable((const void *)(uintptr_t)a[0], 64)) {
		const uint64_t *args =
			(const uint64_t *)(uintptr_t)a[0]; /* flags; stack is the sixth */

		if (args[0] & CLONE_VM)
			tt_proc.lends = true;
		return !(args[0] & CLONE_VM) && !args[5];
	}
	return false;
}

EXPORT long syscall(long number, ...)
{
	va_list ap;
	long a[6];

	enter();
	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (number == SYS_io_uring_setup && tt_preload_refuses_rings()) {
		errno = ENOSYS;
		return -1;
	}
	if ((number == SYS_seccomp &&
	     (a[0] == SECCOMP_SET_MODE_STRICT || (a[0] == SECCOMP_SET_MODE_FILTER && a[2]))) ||
	    (number == SYS_prctl && a[0] == PR_SET_SECCOMP &&
	     (a[1] == SECCOMP_MODE_STRICT || a[2])))
		tt_sock_leave();
	if (is_fork(number, a))
		return tt_preload_raw_fork(number, a);
	if (number == SYS_close)
		return close((int)a[0]);
	if (number == SYS_close_range)
		return close_range((unsigned)a[0], (unsigned)a[1], (int)a[2]);
	if (number == SYS_munmap)
		return munmap((void *)a[0], (size_t)a[1]);
	if (number == SYS_mprotect)
		return mprotect((void *)a[0], (size_t)a[1], (int)a[2]);
	return tt_sys.syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
