/* SPDX-License-Identifier: MIT */
/* Calls that move bytes. */
#include "preload/preload_int.h"

#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <unistd.h>

/* Runs real on a connection that is plain TCP, else way; c is the connection. */
/* out: bytes that it sends; 0 when it receives. */
#define DISPATCH(c, fd, out, real, way)                                                            \
	do {                                                                                       \
		bool raw_;                                                                         \
		if (raw_call(c, fd, (out), &raw_)) {                                               \
			ssize_t n_ = (real);                                                       \
			raw_done(c, fd, raw_, n_, (out) > 0);                                      \
			return n_;                                                                 \
		}                                                                                  \
		return FINISH(way);                                                                \
	} while (0)

static inline bool on_ring(const struct tt_conn *c)
{
	return tt_load_acquire(&c->mode) == TT_CONN_ATTACHED;
}

static ssize_t recv1(struct tt_conn *c, int fd, void *buf, size_t n, int flags)
{
	struct iovec iov = {buf, n};

	if (bad_address(buf, n))
		return -EFAULT;
	return tt_sock_recv(c, fd, &iov, 1, flags);
}

static ssize_t send1(struct tt_conn *c, int fd, const void *buf, size_t n, int flags)
{
	struct iovec iov = {(void *)(uintptr_t)buf, n};

	if (bad_address(buf, n))
		return -EFAULT;
	return tt_sock_send(c, fd, &iov, 1, flags);
}

EXPORT ssize_t read(int fd, void *buf, size_t n)
{
	enter();
	struct tt_conn *c = tt_fd_conn(fd);

	if (!c) {
		tt_sock_touch();
		return tt_sys.read(fd, buf, n);
	}
	if (on_ring(c)) {
		ssize_t r = tt_sock_recv_fast(c, fd, buf, n);

		if (r >= 0)
			return r;
	}
	if (n == 0) /* unlike recv, read of nothing never waits */
		return tt_sys.read(fd, buf, n);
	DISPATCH(c, fd, 0, tt_sys.read(fd, buf, n), recv1(c, fd, buf, n, 0));
}

EXPORT ssize_t write(int fd, const void *buf, size_t n)
{
	enter();
	struct tt_conn *c = tt_fd_conn(fd);

	if (!c) {
		tt_sock_touch();
		return tt_sys.write(fd, buf, n);
	}
	if (on_ring(c)) {
		ssize_t r = tt_sock_send_fast(c, fd, buf, n, 0);

		if (r >= 0)
			return r;
	}
	DISPATCH(c, fd, n, tt_sys.write(fd, buf, n), send1(c, fd, buf, n, 0));
}

EXPORT ssize_t recv(int fd, void *buf, size_t n, int flags)
{
	enter();
	struct tt_conn *c = tt_fd_conn(fd);

	if (!c) {
		tt_sock_touch();
		return tt_sys.recv(fd, buf, n, flags);
	}
	if (on_ring(c) && !(flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL))) {
		ssize_t r = tt_sock_recv_fast(c, fd, buf, n);

		if (r >= 0)
			return r;
	}
	DISPATCH(c, fd, 0, tt_sys.recv(fd, buf, n, flags), recv1(c, fd, buf, n, flags));
}

EXPORT ssize_t send(int fd, const void *buf, size_t n, int flags)
{
	enter();
	struct tt_conn *c = tt_fd_conn(fd);

	if (!c) {
		tt_sock_touch();
		return tt_sys.send(fd, buf, n, flags);
	}
	if (on_ring(c) && !(flags & ~MSG_NOSIGNAL)) {
		ssize_t r = tt_sock_send_fast(c, fd, buf, n, flags);

		if (r >= 0)
			return r;
	}
	if (__builtin_expect(flags & MSG_OOB, 0))
		tt_sock_urgent(c, fd);
	DISPATCH(c, fd, n, tt_sys.send(fd, buf, n, flags), send1(c, fd, buf, n, flags));
}

EXPORT ssize_t recvfrom(int fd, void *buf, size_t n, int flags, struct sockaddr *from,
			socklen_t *len)
{
	enter();
	struct tt_conn *c = tt_fd_conn(fd);
	bool raw;

	if (!c)
		return tt_sys.recvfrom(fd, buf, n, flags, from, len);
	if (raw_call(c, fd, 0, &raw)) {
		ssize_t r = tt_sys.recvfrom(fd, buf, n, flags, from, len);

		raw_done(c, fd, raw, r, false);
		return r;
	}
	ssize_t r = FINISH(recv1(c, fd, buf, n, flags));

	/* A stream names no sender. */
	if (r < 0 || !from)
		return r;
	if (!tt_user_writable(len, sizeof(*len)))
		return finish(-EFAULT);
	if ((int)*len < 0)
		return finish(-EINVAL);
	*len = 0;
	return r;
}

EXPORT ssize_t sendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *to,
		      socklen_t len)
{
	enter();
	struct tt_conn *c = tt_fd_conn(fd);

	if (!c) {
		tt_sock_touch();
		return tt_sys.sendto(fd, buf, n, flags, to, len);
	}
	if (__builtin_expect(flags & MSG_OOB, 0))
		tt_sock_urgent(c, fd);
	DISPATCH(c, fd, n, tt_sys.sendto(fd, buf, n, flags, to, len), send1(c, fd, buf, n, flags));
}

/* 0, or why the kernel would refuse it. */
static int check_iov(const struct iovec *iov, int n, int too_many)
{
	size_t total = 0;

	if (n < 0 || n > IOV_MAX)
		return too_many;
	if (!tt_user_readable(iov, (size_t)n * sizeof(*iov)))
		return -EFAULT;
	for (int i = 0; i < n; i++) {
		if (iov[i].iov_len > SSIZE_MAX - total)
			return -EINVAL;
		if (bad_address(iov[i].iov_base, iov[i].iov_len))
			return -EFAULT;
		total += iov[i].iov_len;
	}
	return 0;
}

static size_t iov_bytes(const struct iovec *iov, int n)
{
	size_t total = 0;

	for (int i = 0; i < n; i++)
		total += iov[i].iov_len;
	return total;
}

EXPORT ssize_t readv(int fd, const struct iovec *iov, int n)
{
	enter();
	struct tt_conn *c = tt_fd_conn(fd);

	if (!c)
		return tt_sys.readv(fd, iov, n);
	int bad = check_iov(iov, n, -EINVAL);

	if (bad)
		return finish(bad);
	if (iov_bytes(iov, n) == 0)
		return tt_sys.readv(fd, iov, n);
	DISPATCH(c, fd, 0, tt_sys.readv(fd, iov, n), tt_sock_recv(c, fd, iov, n, 0));
}

/* With the offset -1 these are readv and writev. */
EXPORT ssize_t preadv64v2(int fd, const struct iovec *iov, int n, off64_t offset, int flags)
{
	static ssize_t (*next)(int, const struct iovec *, int, off64_t, int);

	enter();
	if (!next)
		tt_next("preadv64v2", &next);
	struct tt_conn *c = offset == -1 ? tt_fd_conn(fd) : NULL;

	if (!c)
		return next(fd, iov, n, offset, flags);
	int bad = check_iov(iov, n, -EINVAL);

	if (bad)
		return finish(bad);
	DISPATCH(c, fd, 0, next(fd, iov, n, offset, flags),
		 tt_sock_recv(c, fd, iov, n, flags & RWF_NOWAIT ? MSG_DONTWAIT : 0));
}

EXPORT ssize_t pwritev64v2(int fd, const struct iovec *iov, int n, off64_t offset, int flags)
{
	static ssize_t (*next)(int, const struct iovec *, int, off64_t, int);

	enter();
	if (!next)
		tt_next("pwritev64v2", &next);
	struct tt_conn *c = offset == -1 ? tt_fd_conn(fd) : NULL;

	if (!c)
		return next(fd, iov, n, offset, flags);
	int bad = check_iov(iov, n, -EINVAL);

	if (bad)
		return finish(bad);
	DISPATCH(c, fd, iov_bytes(iov, n), next(fd, iov, n, offset, flags),
		 tt_sock_send(c, fd, iov, n, flags & RWF_NOWAIT ? MSG_DONTWAIT : 0));
}

EXPORT ssize_t preadv2(int fd, const struct iovec *iov, int n, off_t offset, int flags)
{
	return preadv64v2(fd, iov, n, offset, flags);
}

EXPORT ssize_t pwritev2(int fd, const struct iovec *iov, int n, off_t offset, int flags)
{
	return pwritev64v2(fd, iov, n, offset, flags);
}

EXPORT ssize_t writev(int fd, const struct iovec *iov, int n)
{
	enter();
	struct tt_conn *c = tt_fd_conn(fd);

	if (!c) {
		tt_sock_touch();
		return tt_sys.writev(fd, iov, n);
	}
	int bad = check_iov(iov, n, -EINVAL);

	if (bad)
		return finish(bad);
	DISPATCH(c, fd, iov_bytes(iov, n), tt_sys.writev(fd, iov, n),
		 tt_sock_send(c, fd, iov, n, 0));
}

/* Descriptors that came with a message are new here, whatever their numbers stood for. */
static void note_received(const struct msghdr *m)
{
	struct msghdr *mh = (struct msghdr *)(uintptr_t)m;

	for (struct cmsghdr *cm = CMSG_FIRSTHDR(mh); cm; cm = CMSG_NXTHDR(mh, cm)) {
		if (cm->cmsg_level != SOL_SOCKET || cm->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < (cm->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(cm) + i * sizeof(int), sizeof(fd));
			tt_sock_opened(fd);
		}
	}
}

/* Another user's processes are not of our side, and must not get at its memory. */
static bool is_foreign(int to)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	return tt_sys.getsockopt(to, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.pid > 0 &&
	       peer.uid != geteuid();
}

/* Descriptors that leave: whoever gets them must find their connections. */
static void note_sent(int to, const struct msghdr *m)
{
	struct msghdr *mh = (struct msghdr *)(uintptr_t)m;
	bool foreign = is_foreign(to);

	for (struct cmsghdr *cm = CMSG_FIRSTHDR(mh); cm; cm = CMSG_NXTHDR(mh, cm)) {
		if (cm->cmsg_level != SOL_SOCKET || cm->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < (cm->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(cm) + i * sizeof(int), sizeof(fd));
			tt_sock_shared(fd);
			if (foreign)
				tt_sock_stay_on_tcp(fd, TT_REASON_HANDED_OVER);
		}
	}
}

static ssize_t recvmsg_kernel(int fd, struct msghdr *m, int flags)
{
	ssize_t r = tt_sys.recvmsg(fd, m, flags);

	if (r >= 0 && m->msg_controllen)
		note_received(m);
	return r;
}

static ssize_t recvmsg_ring(struct tt_conn *c, int fd, struct msghdr *m, int flags)
{
	int bad = check_iov(m->msg_iov, (int)m->msg_iovlen, -EMSGSIZE);

	if (bad)
		return bad;
	if (flags & (MSG_ERRQUEUE | MSG_OOB)) {
		ssize_t r = tt_sys.recvmsg(fd, m, flags);

		return r < 0 ? -errno : r;
	}
	ssize_t r = tt_sock_recv(c, fd, m->msg_iov, (int)m->msg_iovlen, flags);

	if (r >= 0) {
		if (!tt_user_writable(m, sizeof(*m)))
			return -EFAULT;
		m->msg_namelen = 0;
		m->msg_controllen = 0;
		m->msg_flags = flags & MSG_CMSG_CLOEXEC;
	}
	return r;
}

EXPORT ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
	enter();
	struct tt_conn *c = tt_fd_conn(fd);

	if (!c)
		return recvmsg_kernel(fd, m, flags);
	if (!tt_user_readable(m, sizeof(*m)))
		return finish(-EFAULT);
	DISPATCH(c, fd, 0, tt_sys.recvmsg(fd, m, flags), recvmsg_ring(c, fd, m, flags));
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	enter();
	struct tt_conn *c = tt_fd_conn(fd);

	if (!c) {
		if (tt_sock_active() && tt_user_readable(m, sizeof(*m)) && m->msg_controllen &&
		    tt_user_readable(m->msg_control, m->msg_controllen))
			note_sent(fd, m);
		tt_sock_touch();
		return tt_sys.sendmsg(fd, m, flags);
	}
	if (!tt_user_readable(m, sizeof(*m)))
		return finish(-EFAULT);
	int bad = check_iov(m->msg_iov, (int)m->msg_iovlen, -EMSGSIZE);

	if (bad)
		return finish(bad);
	if (__builtin_expect(flags & MSG_OOB, 0))
		tt_sock_urgent(c, fd);
	DISPATCH(c, fd, iov_bytes(m->msg_iov, (int)m->msg_iovlen), tt_sys.sendmsg(fd, m, flags),
		 tt_sock_send(c, fd, m->msg_iov, (int)m->msg_iovlen, flags));
}

EXPORT int sendmmsg(int fd, struct mmsghdr *v, unsigned int n, int flags)
{
	enter();
	struct tt_conn *c = tt_fd_conn(fd);

	if (!c)
		return tt_sys.sendmmsg(fd, v, n, flags);
	for (unsigned int i = 0; i < n; i++) {
		ssize_t r = sendmsg(fd, &v[i].msg_hdr, flags);

		if (r >= 0 && !tt_user_writable(&v[i].msg_len, sizeof(v[i].msg_len)))
			r = finish(-EFAULT);
		if (r < 0)
			return i ? (int)i : -1;
		v[i].msg_len = (unsigned int)r;
	}
	return (int)n;
}

EXPORT int recvmmsg(int fd, struct mmsghdr *v, unsigned int n, int flags, struct timespec *timeout)
{
	enter();
	struct tt_conn *c = tt_fd_conn(fd);

	if (!c)
		return tt_sys.recvmmsg(fd, v, n, flags, timeout);
	if (timeout && !tt_user_readable(timeout, sizeof(*timeout)))
		return (int)finish(-EFAULT);
	if (timeout &&
	    (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec > 999999999))
		return (int)finish(-EINVAL);
	for (unsigned int i = 0; i < n; i++) {
		int wait = i && (flags & MSG_WAITFORONE) ? MSG_DONTWAIT : 0;
		ssize_t r = recvmsg(fd, &v[i].msg_hdr, (flags & ~MSG_WAITFORONE) | wait);

		if (r >= 0 && !tt_user_writable(&v[i].msg_len, sizeof(v[i].msg_len)))
			r = finish(-EFAULT);
		if (r < 0)
			return i ? (int)i : -1;
		v[i].msg_len = (unsigned int)r;
	}
	return (int)n;
}

static ssize_t sendfile_any(int out, int in, off_t *offset, size_t count)
{
	enter();
	struct tt_conn *c = tt_fd_conn(out);

	if (!c)
		return tt_sys.sendfile(out, in, offset, count);
	DISPATCH(c, out, count, tt_sys.sendfile(out, in, offset, count),
		 tt_sock_sendfile(c, out, in, offset, count));
}

EXPORT ssize_t sendfile(int out, int in, off_t *offset, size_t count)
{
	return sendfile_any(out, in, offset, count);
}

EXPORT ssize_t sendfile64(int out, int in, off64_t *offset, size_t count)
{
	return sendfile_any(out, in, (off_t *)offset, count);
}

EXPORT ssize_t splice(int in, off64_t *off_in, int out, off64_t *off_out, size_t len,
		      unsigned int flags)
{
	enter();
	struct tt_conn *ci = tt_fd_conn(in), *co = tt_fd_conn(out);

	if ((ci && (off_in || co)) || (co && off_out))
		return finish(-EINVAL);
	if (ci)
		DISPATCH(ci, in, 0, tt_sys.splice(in, off_in, out, off_out, len, flags),
			 tt_sock_splice_out(ci, in, out, len, flags));
	if (co)
		DISPATCH(co, out, len, tt_sys.splice(in, off_in, out, off_out, len, flags),
			 tt_sock_splice_in(co, in, out, len, flags));
	return tt_sys.splice(in, off_in, out, off_out, len, flags);
}

/* ---- libc's checked forms, made by _FORTIFY_SOURCE ---- */

extern void __chk_fail(void) __attribute__((noreturn));

EXPORT ssize_t __read_chk(int fd, void *buf, size_t n, size_t room)
{
	if (n > room)
		__chk_fail();
	return read(fd, buf, n);
}

EXPORT ssize_t __recv_chk(int fd, void *buf, size_t n, size_t room, int flags)
{
	if (n > room)
		__chk_fail();
	return recv(fd, buf, n, flags);
}

EXPORT ssize_t __recvfrom_chk(int fd, void *buf, size_t n, size_t room, int flags,
			      struct sockaddr *from, socklen_t *len)
{
	if (n > room)
		__chk_fail();
	return recvfrom(fd, buf, n, flags, from, len);
}

/* ---- stdio: libc's streams call the kernel from inside ---- */

static ssize_t cookie_read(void *cookie, char *buf, size_t n)
{
	return read((int)(intptr_t)cookie, buf, n);
}

static ssize_t cookie_write(void *cookie, const char *buf, size_t n)
{
	ssize_t r = write((int)(intptr_t)cookie, buf, n);

	return r < 0 ? 0 : r; /* fopencookie wants 0 for an error */
}

static int cookie_close(void *cookie)
{
	return close((int)(intptr_t)cookie);
}

EXPORT FILE *fdopen(int fd, const char *mode)
{
	static FILE *(*next)(int, const char *);

	enter();
	if (!next)
		tt_next("fdopen", &next);
	struct tt_conn *c = tt_fd_conn(fd);

	if (!c)
		return next(fd, mode);
	const cookie_io_functions_t io = {cookie_read, cookie_write, NULL, cookie_close};
	FILE *f = fopencookie((void *)(intptr_t)fd, mode, io);

	if (f)
		f->_fileno = fd; /* for fileno(3) */
	return f;
}

/*
 * A program that was started with a connection as its standard input or output:
 * libc's own streams reach the kernel by inner calls, past us.
 */
void tt_preload_adopt_stdio(void)
{
	static const char *const modes[] = {"r", "w", "w"};
	FILE **const streams[] = {&stdin, &stdout, &stderr};

	if (!tt_sock_active())
		return;
	for (int fd = 0; fd < 3; fd++) {
		FILE *f = tt_fd_conn(fd) ? fdopen(fd, modes[fd]) : NULL;

		if (!f)
			continue;
		if (fd == STDERR_FILENO)
			setvbuf(f, NULL, _IONBF, 0);
		*streams[fd] = f;
	}
}

EXPORT int vdprintf(int fd, const char *fmt, va_list ap)
{
	static int (*next)(int, const char *, va_list);

	enter();
	if (!next)
		tt_next("vdprintf", &next);
	if (!tt_fd_conn(fd))
		return next(fd, fmt, ap);
	char *text;
	int n = vasprintf(&text, fmt, ap);

	if (n < 0)
		return -1;
	for (int done = 0; done < n;) {
		ssize_t w = write(fd, text + done, (size_t)(n - done));

		if (w < 0) {
			n = -1;
			break;
		}
		done += (int)w;
	}
	free(text);
	return n;
}

EXPORT int dprintf(int fd, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	int n = vdprintf(fd, fmt, ap);

	va_end(ap);
	return n;
}

EXPORT int __dprintf_chk(int fd, int flag, const char *fmt, ...)
{
	va_list ap;

	(void)flag;
	va_start(ap, fmt);
	int n = vdprintf(fd, fmt, ap);

	va_end(ap);
	return n;
}
