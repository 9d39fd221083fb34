/* SPDX-License-Identifier: MIT */
/* Bytes between files, pipes and connections: sendfile and splice. */
#include "sock/io_int.h"

#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

/*
 * Through a buffer of our own: reading straight into the ring would hold its
 * lock across a call that may block.
 */
ssize_t tt_sock_sendfile(struct tt_conn *c, int out, int in, off_t *offset, size_t count)
{
	char buf[TT_BOUNCE];
	size_t done = 0;

	if (offset && *offset < 0)
		return -EINVAL;
	while (done < count) {
		size_t want = count - done < sizeof(buf) ? count - done : sizeof(buf);
		off_t at = offset ? *offset : lseek(in, 0, SEEK_CUR);

		ssize_t got = at < 0 ? -1 : pread(in, buf, want, at);

		if (got < 0)
			return done ? (ssize_t)done : errno == ESPIPE ? -EINVAL : -errno;
		if (got == 0)
			break;
		struct iovec iov = {buf, (size_t)got};
		ssize_t n = tt_sock_send(c, out, &iov, 1, 0);

		if (n <= 0)
			return done ? (ssize_t)done : n;
		if (offset)
			*offset = at + n;
		else
			lseek(in, at + n, SEEK_SET);
		done += (size_t)n;
		if (n < got)
			break;
	}
	return (ssize_t)done;
}

static size_t pipe_room(int pipe)
{
	int used = 0, size = tt_sys.fcntl(pipe, F_GETPIPE_SZ);

	if (size < 0 || tt_sys.ioctl(pipe, FIONREAD, &used) < 0 || used >= size)
		return 0;
	return (size_t)(size - used);
}

ssize_t tt_sock_splice_out(struct tt_conn *c, int fd, int pipe, size_t len, unsigned flags)
{
	char buf[TT_BOUNCE];
	size_t room = pipe_room(pipe);
	bool wait = !(flags & SPLICE_F_NONBLOCK);

	/* A full pipe is waited for before bytes are taken from the stream. */
	while (!room) {
		struct pollfd p = {pipe, POLLOUT, 0};

		if (!wait)
			return -EAGAIN;
		if (tt_sys.poll(&p, 1, -1) < 0)
			return -errno;
		room = pipe_room(pipe);
		if (!room)
			room = 4096;
	}
	size_t n = len < room ? len : room;
	struct iovec iov = {buf, n < sizeof(buf) ? n : sizeof(buf)};
	ssize_t got = tt_sock_recv(c, fd, &iov, 1, wait ? 0 : MSG_DONTWAIT);

	for (ssize_t put = 0; got > 0 && put < got;) {
		ssize_t w = tt_sys.write(pipe, buf + put, (size_t)(got - put));

		if (w < 0 && errno == EAGAIN) {
			struct pollfd p = {pipe, POLLOUT, 0};

			tt_sys.poll(&p, 1, -1);
			continue;
		}
		if (w < 0)
			return put ? put : -errno;
		put += w;
	}
	return got;
}

ssize_t tt_sock_splice_in(struct tt_conn *c, int pipe, int fd, size_t len, unsigned flags)
{
	char buf[TT_BOUNCE];
	bool wait = !(flags & SPLICE_F_NONBLOCK);
	int avail = 0;

	tt_sys.ioctl(pipe, FIONREAD, &avail);
	if (!wait && avail == 0)
		return -EAGAIN;
	/* Bytes leave the pipe only when the stream can take them. */
	if (!wait || c->e->nonblock) {
		if (!(tt_conn_poll(c, fd, POLLOUT) & POLLOUT))
			return -EAGAIN;
		if (len > 1024)
			len = 1024;
	}
	ssize_t got = tt_sys.read(pipe, buf, len < sizeof(buf) ? len : sizeof(buf));

	if (got <= 0)
		return got < 0 ? -errno : 0;
	for (ssize_t put = 0; put < got;) {
		struct iovec iov = {buf + put, (size_t)(got - put)};
		ssize_t n = tt_sock_send(c, fd, &iov, 1, 0);

		if (n == -EAGAIN) {
			tt_wait_tx(c, fd, INT64_MAX);
			continue;
		}
		if (n < 0)
			return put ? put : n;
		put += n;
	}
	return got;
}
