/* SPDX-License-Identifier: MIT */
/* Calls that wait for readiness. */
#include "preload/preload_int.h"

#include <limits.h>
#include <sys/epoll.h>

#define NS_PER_MS 1000000LL

static bool bad_time(const struct timespec *ts)
{
	return ts && (ts->tv_sec < 0 || ts->tv_nsec < 0 || ts->tv_nsec > 999999999);
}

/*
 * What the kernel refuses is not worth a look of ours: it gets such calls. (Of
 * times: libc reads most of them itself, and dies of bad ones.)
 */
static bool bad_poll(const struct pollfd *fds, nfds_t n)
{
	return n <= INT_MAX && !tt_user_writable(fds, n * sizeof(*fds));
}

static bool bad_sets(int n, const fd_set *r, const fd_set *w, const fd_set *x)
{
	const size_t word = sizeof(unsigned long);
	size_t bytes = n > 0 ? ((size_t)n + 8 * word - 1) / (8 * word) * word : 0;

	return (r && !tt_user_writable(r, bytes)) || (w && !tt_user_writable(w, bytes)) ||
	       (x && !tt_user_writable(x, bytes));
}

EXPORT int poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	enter();
	struct timespec ts = {timeout_ms / 1000, timeout_ms % 1000 * NS_PER_MS};

	if (!tt_sock_active() || bad_poll(fds, n))
		return tt_sys.poll(fds, n, timeout_ms);
	return (int)FINISH(tt_sock_poll(fds, n, timeout_ms < 0 ? NULL : &ts, NULL));
}

EXPORT int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
	enter();
	if (!tt_sock_active() || bad_poll(fds, n))
		return tt_sys.ppoll(fds, n, timeout, mask);
	return (int)FINISH(tt_sock_poll(fds, n, timeout, mask));
}

EXPORT int select(int n, fd_set *r, fd_set *w, fd_set *x, struct timeval *tv)
{
	enter();
	struct timespec ts;

	if (!tt_sock_active() || bad_sets(n, r, w, x))
		return tt_sys.select(n, r, w, x, tv);
	if (tv && (tv->tv_sec < 0 || tv->tv_usec < 0))
		return (int)finish(-EINVAL);
	if (tv) {
		ts.tv_sec = tv->tv_sec + tv->tv_usec / 1000000;
		ts.tv_nsec = tv->tv_usec % 1000000 * 1000;
	}
	return (int)FINISH(tt_sock_select_left(n, r, w, x, tv ? &ts : NULL, NULL, tv));
}

EXPORT int pselect(int n, fd_set *r, fd_set *w, fd_set *x, const struct timespec *timeout,
		   const sigset_t *mask)
{
	enter();
	if (!tt_sock_active() || bad_sets(n, r, w, x))
		return tt_sys.pselect(n, r, w, x, timeout, mask);
	if (bad_time(timeout))
		return (int)finish(-EINVAL);
	return (int)FINISH(tt_sock_select_left(n, r, w, x, timeout, mask, NULL));
}

EXPORT int epoll_create1(int flags)
{
	enter();
	int fd = tt_sys.epoll_create1(flags);

	if (fd >= 0)
		tt_sock_epoll_created(fd);
	return fd;
}

EXPORT int epoll_create(int size)
{
	if (size <= 0)
		return (int)finish(-EINVAL);
	return epoll_create1(0);
}

EXPORT int epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	enter();
	if (op != EPOLL_CTL_DEL && tt_sock_active() && !tt_user_readable(ev, sizeof(*ev)))
		return (int)finish(-EFAULT);
	return (int)FINISH(tt_sock_epoll_ctl(epfd, op, fd, ev));
}

EXPORT int epoll_wait(int epfd, struct epoll_event *evs, int max, int timeout_ms)
{
	enter();
	int64_t ns = timeout_ms < 0 ? INT64_MAX : timeout_ms * NS_PER_MS;

	if (!tt_sock_active() || bad_address(evs, 0))
		return tt_sys.epoll_wait(epfd, evs, max, timeout_ms);
	return (int)FINISH(tt_sock_epoll_wait(epfd, evs, max, ns, NULL));
}

EXPORT int epoll_pwait(int epfd, struct epoll_event *evs, int max, int timeout_ms,
		       const sigset_t *mask)
{
	enter();
	int64_t ns = timeout_ms < 0 ? INT64_MAX : timeout_ms * NS_PER_MS;

	if (bad_address(evs, 0))
		return tt_sys.epoll_pwait(epfd, evs, max, timeout_ms, mask);
	return (int)FINISH(tt_sock_epoll_wait(epfd, evs, max, ns, mask));
}

EXPORT int epoll_pwait2(int epfd, struct epoll_event *evs, int max, const struct timespec *timeout,
			const sigset_t *mask)
{
	enter();
	int64_t ns = INT64_MAX;

	if (bad_address(evs, 0) || (timeout && !tt_user_readable(timeout, sizeof(*timeout))))
		return (int)finish(-EFAULT);
	if (bad_time(timeout))
		return (int)finish(-EINVAL);
	if (timeout && timeout->tv_sec < 1ll << 32)
		ns = timeout->tv_sec * 1000 * NS_PER_MS + timeout->tv_nsec;
	return (int)FINISH(tt_sock_epoll_wait(epfd, evs, max, ns, mask));
}

extern void __chk_fail(void) __attribute__((noreturn));

EXPORT int __poll_chk(struct pollfd *fds, nfds_t n, int timeout_ms, size_t room)
{
	if (room / sizeof(*fds) < n)
		__chk_fail();
	return poll(fds, n, timeout_ms);
}

EXPORT int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
		       const sigset_t *mask, size_t room)
{
	if (room / sizeof(*fds) < n)
		__chk_fail();
	return ppoll(fds, n, timeout, mask);
}
