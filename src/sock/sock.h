/* SPDX-License-Identifier: MIT */
/*
 * Socket calls with the kernel's semantics over Tutti's streams. Each behaves
 * as the call of the same name, except that it returns a negative errno
 * instead of -1; descriptors that are not Tutti's go to the kernel unchanged.
 *
 * All are thread safe and may block as the call they stand for does; the
 * blocking ones are cancellation points. SIGPIPE is raised where the kernel
 * raises it.
 */
#ifndef TT_SOCK_SOCK_H
#define TT_SOCK_SOCK_H

#include "sock/conn.h"

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

/* Once, before anything else; without a side everything passes through. */
void tt_sock_init(void);
/* At the end of the process: hints to the peers, statistics. */
void tt_sock_fini(void);
void tt_sock_fork_prepare(void);
void tt_sock_fork_parent(void);
void tt_sock_fork_child(void);

/*
 * Counts what this process did to descriptors of the kernel's (a pipe written,
 * a socket closed): sets that hold such look at them at their next wait.
 */
extern uint32_t tt_kernel_touched;
static inline void tt_sock_touch(void)
{
	tt_count(&tt_kernel_touched, 1);
}

static inline bool tt_sock_active(void)
{
	return tt_load_relaxed(&tt_proc.mem) != NULL && !tt_load_relaxed(&tt_proc.left);
}

/* ---- descriptors (files.c) ---- */

/* A new stream socket of the program's. */
void tt_sock_new_stream(int fd, bool nonblock, bool connected);
/* fd is new and something else: what its number stood for is gone. */
void tt_sock_opened(int fd);
/* fd was closed by other means than the calls below. */
void tt_sock_forget(int fd);
int tt_sock_close(int fd);
int tt_sock_close_range(unsigned first, unsigned last, int flags);
/* After dup, F_DUPFD: ret leads where fd does. */
void tt_sock_duped(int fd, int ret);
int tt_sock_dup_onto(int fd, int onto, int flags, bool dup3);
void tt_sock_connected(int fd);
/* By connect to AF_UNSPEC: what becomes of the socket is the kernel's. */
void tt_sock_disconnected(int fd);
void tt_sock_epoll_created(int epfd);
int tt_sock_shutdown(int fd, int how);
void tt_sock_set_nonblock(int fd, bool on);
void tt_sock_set_async(int fd, bool on);
/* A descriptor of fd's socket leaves for another process; all may (exec). */
void tt_sock_shared(int fd);
void tt_sock_share_all(void);

/* ---- programs that cannot be preloaded (handover.c) ---- */

/* Whether executing path (file, looked for in PATH) leaves the library behind. */
bool tt_sock_cannot_preload(const char *path);
bool tt_sock_cannot_preload_in_path(const char *file);
/*
 * Just before such an exec: inherited connections go on through a process that
 * stays. all: those too that are closed on exec, and nobody stays for what is
 * shared. False: one could not be.
 */
bool tt_sock_hand_over(bool all);
/* The same before such a program is spawned, when we go on with the connections too. */
void tt_sock_hand_out(void);
/* fd goes to somebody who is not of our side: it is kernel TCP from now on. */
void tt_sock_stay_on_tcp(int fd, enum tt_reason why);
/* Whether fd is a listening socket. */
bool tt_sock_listens(int fd);

/* ---- sandboxes (leave.c) ---- */

/* The process is about to take a seccomp filter: nothing but its own calls from now on. */
void tt_sock_leave(void);

int tt_sock_setsockopt(int fd, int level, int name, const void *val, socklen_t len);
int tt_sock_getsockopt(int fd, int level, int name, void *val, socklen_t *len);
/* FIONREAD, SIOCOUTQ. False: ask the kernel. */
bool tt_sock_ioctl(int fd, unsigned long req, void *arg, int *ret);

/* Urgent data is about to be sent: this direction is, or becomes, kernel TCP for good. */
void tt_sock_urgent(struct tt_conn *c, int fd);

/* ---- bytes (send.c, recv.c, splice.c) ---- */

ssize_t tt_sock_send(struct tt_conn *c, int fd, const struct iovec *iov, int iovcnt, int flags);
ssize_t tt_sock_recv(struct tt_conn *c, int fd, const struct iovec *iov, int iovcnt, int flags);
ssize_t tt_sock_sendfile(struct tt_conn *c, int out, int in, off_t *offset, size_t count);
ssize_t tt_sock_splice_out(struct tt_conn *c, int fd, int pipe, size_t len, unsigned flags);
ssize_t tt_sock_splice_in(struct tt_conn *c, int pipe, int fd, size_t len, unsigned flags);

/* The peer has gone over to the ring: finds out where. */
void tt_sock_note_up(struct tt_conn *c, int fd);

/*
 * The short way: a small message on an attached connection. Returns the count,
 * or -1 when the long way must decide.
 */
ssize_t tt_sock_send_fast(struct tt_conn *c, int fd, const void *buf, size_t n, int flags);
ssize_t tt_sock_recv_fast(struct tt_conn *c, int fd, void *buf, size_t n);

/* ---- readiness (poll.c, epoll.c) ---- */

int tt_sock_poll(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
		 const sigset_t *mask);
/* left, when given, gets what is left of the timeout, as Linux's select does. */
int tt_sock_select_left(int n, fd_set *r, fd_set *w, fd_set *x, const struct timespec *timeout,
			const sigset_t *mask, struct timeval *left);
int tt_sock_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev);
int tt_sock_epoll_wait(int epfd, struct epoll_event *evs, int max, int64_t timeout_ns,
		       const sigset_t *mask);

#endif
