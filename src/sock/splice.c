/* SPDX-License-Identifier: MIT */
/* Bytes between files, pipes and connections: sendfile and splice. */
#include "sock/io_int.h"

#include "base/sys.h"
#include "base/usermem.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Not on the stack, which may be small; not kept, for a signal handler may splice too. */
static char *get_buffer(void)
{
	void *p = mmap(NULL, TT_BOUNCE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void put_buffer(char *buf)
{
	munmap(buf, TT_BOUNCE);
}

static ssize_t send_from(struct tt_conn *c, int out, int in, off_t at, char *buf, size_t want,
			 bool *ret_short)
{
	ssize_t got = pread(in, buf, want, at);
	struct iovec iov = {buf, got > 0 ? (size_t)got : 0};

	if (got <= 0)
		return got == 0 ? 0 : errno == EISDIR ? -EINVAL : -errno;
	ssize_t n = tt_sock_send(c, out, &iov, 1, 0);

	*ret_short = n < got;
	return n;
}

/* Through a buffer of our own. -EAGAIN and others as tt_sock_send. */
static ssize_t send_by_buffer(struct tt_conn *c, int out, int in, off_t at, size_t want,
			      bool *ret_short)
{
	char few[2048], *buf;

	/* The ring is full, most likely: who does not wait asks with few bytes. */
	if (tt_load_relaxed(&c->e->nonblock))
		return send_from(c, out, in, at, few, want < sizeof(few) ? want : sizeof(few),
				 ret_short);
	buf = get_buffer();
	if (!buf)
		return -ENOMEM;
	ssize_t n = send_from(c, out, in, at, buf, want < TT_BOUNCE ? want : TT_BOUNCE, ret_short);

	put_buffer(buf);
	return n;
}

/* The kernel splices to nothing that appends, be it a socket. */
static bool appends(int out)
{
	return tt_sys.fcntl(out, F_GETFL) & O_APPEND;
}

/*
 * Not all files can be sent from: some in /proc cannot be, no pipe, no
 * directory; and not all that can be have places that move. The kernel knows,
 * so it sends to a file of ours, and that is sent on.
 */
static ssize_t send_odd_file(struct tt_conn *c, int out, int in, off_t *offset, size_t count)
{
	off_t at = offset ? *offset : lseek(in, 0, SEEK_CUR);
	int scratch = memfd_create("tutti-sendfile", MFD_CLOEXEC);
	size_t done = 0;
	ssize_t n;

	if (scratch < 0)
		return -errno;
	do {
		off_t from = 0, before = at;
		size_t want = count - done;

		if (want <= SSIZE_MAX && want > TT_BOUNCE)
			want = TT_BOUNCE;
		lseek(scratch, 0, SEEK_SET);
		ssize_t got = tt_sys.sendfile(scratch, in, offset ? &at : NULL, want);

		n = got < 0 ? -errno : appends(out) ? -EINVAL : got;
		if (!offset)
			at = lseek(in, 0, SEEK_CUR);
		if (n <= 0) {
			if (got > 0 && !offset)
				lseek(in, before, SEEK_SET);
			break;
		}
		n = tt_sock_sendfile(c, out, scratch, &from, (size_t)got);
		if (n < got && at != before) {
			at = before + from;
			if (!offset)
				lseek(in, at, SEEK_SET);
		}
		done += n > 0 ? (size_t)n : 0;
		if (n < got)
			break;
	} while (done < count);
	tt_sys.close(scratch);
	if (done && offset)
		*offset = at;
	return done ? (ssize_t)done : n;
}

/* Whether in is a plain file with something at the place; else the kernel knows. */
static bool plain_file(int in, off_t at, size_t count)
{
	struct stat st;

	return count && count <= SSIZE_MAX && at >= 0 && tt_sys.fstat(in, &st) == 0 &&
	       S_ISREG(st.st_mode) && at < st.st_size;
}

ssize_t tt_sock_sendfile(struct tt_conn *c, int out, int in, off_t *offset, size_t count)
{
	if (offset && !tt_user_writable(offset, sizeof(*offset)))
		return -EFAULT;
	off_t at = offset ? *offset : lseek(in, 0, SEEK_CUR);
	size_t done = 0;
	bool stop = false;

	if (!plain_file(in, at, count))
		return send_odd_file(c, out, in, offset, count);
	if (appends(out))
		return -EINVAL;
	if (!tt_conn_pin(c, out))
		return -EBADF;
	ssize_t n = tt_conn_send_file_by_tcp(c, out, in, &at, count);

	if (n != -EINPROGRESS) {
		done = n > 0 ? (size_t)n : 0;
		stop = true;
	} else {
		n = 0;
	}
	while (done < count && !stop) {
		/* In pieces: the receiver begins with the first. */
		size_t want = count - done < TT_BOUNCE ? count - done : TT_BOUNCE;

		n = tt_conn_send_file(c, out, in, at, want);
		if (n == -EAGAIN)
			n = send_by_buffer(c, out, in, at, want, &stop);
		if (n <= 0)
			break;
		at += n;
		done += (size_t)n;
	}
	tt_conn_unpin(c);
	if (done && offset)
		*offset = at;
	else if (done)
		lseek(in, at, SEEK_SET);
	return done ? (ssize_t)done : n;
}

static size_t pipe_room(int pipe)
{
	int used = 0, size = tt_sys.fcntl(pipe, F_GETPIPE_SZ);

	if (size < 0 || tt_sys.ioctl(pipe, FIONREAD, &used) < 0 || used >= size)
		return 0;
	return (size_t)(size - used);
}

static ssize_t splice_out(struct tt_conn *c, int fd, int pipe, size_t len, unsigned flags,
			  char *buf)
{
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
	struct pollfd reader = {pipe, POLLOUT, 0};

	/* Nobody reads the pipe: EPIPE, SIGPIPE, and the stream keeps its bytes. */
	if (tt_sys.poll(&reader, 1, 0) > 0 && (reader.revents & POLLERR))
		return tt_sys.write(pipe, buf, 1) < 0 ? -errno : -EPIPE;
	size_t n = len < room ? len : room;
	struct iovec iov = {buf, n < TT_BOUNCE ? n : TT_BOUNCE};
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

ssize_t tt_sock_splice_out(struct tt_conn *c, int fd, int pipe, size_t len, unsigned flags)
{
	char *buf = get_buffer();

	if (!buf)
		return -ENOMEM;
	ssize_t n = splice_out(c, fd, pipe, len, flags, buf);

	put_buffer(buf);
	return n;
}

/* On the ring or not: one that was claimed goes by TCP until then. */
static bool has_room(struct tt_conn *c, int fd)
{
	struct pollfd p = {fd, POLLOUT, 0};

	if (tt_conn_ready(c, fd))
		return tt_conn_poll(c, fd, POLLOUT) & POLLOUT;
	return tt_sys.poll(&p, 1, 0) > 0;
}

/* Who sends within a time waits for room before bytes are taken from the pipe. */
static int await_room(struct tt_conn *c, int fd)
{
	const int64_t deadline = tt_deadline(c->e->sndtimeo_ns);
	struct tt_signal_mark mark = tt_signal_mark();
	int err = 0;

	while (err == 0 && !has_room(c, fd))
		err = tt_wait_tx(c, fd, deadline, &mark);
	return err;
}

/* One piece. */
static ssize_t splice_in(struct tt_conn *c, int pipe, int fd, size_t len, unsigned flags, char *buf)
{
	bool wait = !(flags & SPLICE_F_NONBLOCK);
	int avail = 0;

	tt_sys.ioctl(pipe, FIONREAD, &avail);
	if (!wait && avail == 0)
		return -EAGAIN;
	/* Bytes leave the pipe only when the stream can take them. */
	if (tt_load_relaxed(&c->e->wr_shut)) {
		struct iovec one = {buf, 1};

		return tt_sock_send(c, fd, &one, 1, 0); /* EPIPE, SIGPIPE */
	}
	const bool timed = wait && !c->e->nonblock && c->e->sndtimeo_ns;

	if (timed) {
		int err = await_room(c, fd);

		if (err < 0)
			return err;
	}
	if (timed || !wait || c->e->nonblock) {
		if (!has_room(c, fd))
			return -EAGAIN;
		if (len > 1024)
			len = 1024;
	}
	ssize_t got = tt_sys.read(pipe, buf, len < TT_BOUNCE ? len : TT_BOUNCE);

	if (got <= 0)
		return got < 0 ? -errno : 0;
	for (ssize_t put = 0; put < got;) {
		struct iovec iov = {buf + put, (size_t)(got - put)};
		ssize_t n = tt_sock_send(c, fd, &iov, 1, 0);

		struct tt_signal_mark mark = tt_signal_mark();

		if (n == -EAGAIN) {
			tt_wait_tx(c, fd, INT64_MAX, &mark);
			continue;
		}
		if (n < 0)
			return put ? put : n;
		put += n;
	}
	return got;
}

ssize_t tt_sock_splice_in(struct tt_conn *c, int pipe, int fd, size_t len, unsigned flags)
{
	char *buf = get_buffer();

	if (!buf)
		return -ENOMEM;
	size_t done = 0;
	ssize_t n;

	int more;

	/* Within a time it goes by small pieces, but is one call: as long as the pipe has some. */
	do {
		n = splice_in(c, pipe, fd, len - done, flags, buf);
		done += n > 0 ? (size_t)n : 0;
		more = 0;
		tt_sys.ioctl(pipe, FIONREAD, &more);
	} while (n > 0 && more > 0 && done < len && c->e->sndtimeo_ns);
	put_buffer(buf);
	return done ? (ssize_t)done : n;
}
