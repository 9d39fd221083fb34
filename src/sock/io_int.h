/* SPDX-License-Identifier: MIT */
/* What send.c, recv.c and splice.c share. */
#ifndef TT_SOCK_IO_INT_H
#define TT_SOCK_IO_INT_H

#include "base/clock.h"
#include "sock/sock.h"

#include <alloca.h>
#include <limits.h>

/*
 * Threads may have 16 KiB of stack, and signal handlers less: an array of
 * pieces has room for what the caller passed, and no more.
 */
#define TT_IOV_ROOM(iovcnt)                                                                        \
	((struct iovec *)alloca(sizeof(struct iovec) *                                             \
				((iovcnt) < IOV_MAX ? (size_t)(iovcnt) : IOV_MAX)))
/* A piece that is carried through memory of our own. */
#define TT_BOUNCE (64u << 10)
/* Unasked, a caller looks at its shadow this often at most. */
#define TT_CHECK_US 4000u

/* What the kernel counted on a shadow since the connection began. */
struct tt_tcp_counts {
	uint64_t written, received; /* bytes of data; what was received may be unread */
	uint32_t state;		    /* TCP_* */
	uint32_t unsent;	    /* bytes that the receiver's closed window holds back */
};
bool tt_tcp_counts(int fd, struct tt_tcp_counts *ret);

/*
 * Takes the direction to the peer over to the ring, when the peer is there and
 * TCP has nothing that waits; tx_lock held, the route is TCP. True: it is.
 */
bool tt_conn_go_up(struct tt_conn *c, int fd);

/*
 * Reads up to want bytes of a file, at an offset, straight into the ring. Bytes
 * that went, 0 at the file's end, the file's error; -EAGAIN when the ring has
 * no room or is not the way: tt_sock_send has to be asked then.
 */
ssize_t tt_conn_send_file(struct tt_conn *c, int fd, int in, off_t at, size_t want);
/*
 * The kernel's sendfile, on a connection that does not block and is not on the
 * ring: *at moves. -EINPROGRESS: it is on the ring now, or blocks.
 */
ssize_t tt_conn_send_file_by_tcp(struct tt_conn *c, int fd, int in, off_t *at, size_t want);

size_t tt_iov_total(const struct iovec *iov, int iovcnt);
/*
 * What is left of iov after skip bytes, at most max, into out, which has room
 * for iovcnt or IOV_MAX; returns the count of pieces.
 */
int tt_iov_slice(const struct iovec *iov, int iovcnt, size_t skip, size_t max, struct iovec *out);

static inline int64_t tt_deadline(int64_t timeout_ns)
{
	return timeout_ns ? tt_now_ns() + timeout_ns : INT64_MAX;
}

/* Whether it is time to ask the kernel about the shadow. */
static inline bool tt_want_check(struct tt_conn *c)
{
	return (tt_load_relaxed(&c->st.rx->flags) & (TT_STREAM_HINT | TT_STREAM_LEAVE)) ||
	       tt_ticks() - c->checked > TT_CHECK_US * tt_ticks_per_us();
}

#endif
