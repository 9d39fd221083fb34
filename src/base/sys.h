/* SPDX-License-Identifier: MIT */
/*
 * libc's descriptor calls, behind a table. Inside the preloaded library the
 * plain names are the program's entry points (our wrappers); everything below
 * them calls the kernel through this table, which the preload layer fills with
 * the next definition of each name before first use. Elsewhere it holds libc's
 * functions from the start.
 */
#ifndef TT_BASE_SYS_H
#define TT_BASE_SYS_H

#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

/* X(return type, name, parameters) */
#define TT_SYS_CALLS(X)                                                                            \
	X(ssize_t, read, (int, void *, size_t))                                                    \
	X(ssize_t, write, (int, const void *, size_t))                                             \
	X(ssize_t, readv, (int, const struct iovec *, int))                                        \
	X(ssize_t, writev, (int, const struct iovec *, int))                                       \
	X(ssize_t, send, (int, const void *, size_t, int))                                         \
	X(ssize_t, recv, (int, void *, size_t, int))                                               \
	X(ssize_t, sendto, (int, const void *, size_t, int, const struct sockaddr *, socklen_t))   \
	X(ssize_t, recvfrom, (int, void *, size_t, int, struct sockaddr *, socklen_t *))           \
	X(ssize_t, sendmsg, (int, const struct msghdr *, int))                                     \
	X(ssize_t, recvmsg, (int, struct msghdr *, int))                                           \
	X(int, sendmmsg, (int, struct mmsghdr *, unsigned int, int))                               \
	X(int, recvmmsg, (int, struct mmsghdr *, unsigned int, int, struct timespec *))            \
	X(ssize_t, sendfile, (int, int, off_t *, size_t))                                          \
	X(ssize_t, splice, (int, off_t *, int, off_t *, size_t, unsigned int))                     \
	X(ssize_t, tee, (int, int, size_t, unsigned int))                                          \
	X(int, socket, (int, int, int))                                                            \
	X(int, connect, (int, const struct sockaddr *, socklen_t))                                 \
	X(int, accept, (int, struct sockaddr *, socklen_t *))                                      \
	X(int, accept4, (int, struct sockaddr *, socklen_t *, int))                                \
	X(int, shutdown, (int, int))                                                               \
	X(int, close, (int))                                                                       \
	X(int, close_range, (unsigned int, unsigned int, int))                                     \
	X(int, dup, (int))                                                                         \
	X(int, dup2, (int, int))                                                                   \
	X(int, dup3, (int, int, int))                                                              \
	X(int, fcntl, (int, int, ...))                                                             \
	X(int, fstat, (int, struct stat *))                                                        \
	X(int, ioctl, (int, unsigned long, ...))                                                   \
	X(int, getsockopt, (int, int, int, void *, socklen_t *))                                   \
	X(int, setsockopt, (int, int, int, const void *, socklen_t))                               \
	X(int, poll, (struct pollfd *, nfds_t, int))                                               \
	X(int, ppoll, (struct pollfd *, nfds_t, const struct timespec *, const sigset_t *))        \
	X(int, select, (int, fd_set *, fd_set *, fd_set *, struct timeval *))                      \
	X(int, pselect,                                                                            \
	  (int, fd_set *, fd_set *, fd_set *, const struct timespec *, const sigset_t *))          \
	X(int, epoll_create1, (int))                                                               \
	X(int, epoll_ctl, (int, int, int, struct epoll_event *))                                   \
	X(int, epoll_wait, (int, struct epoll_event *, int, int))                                  \
	X(int, epoll_pwait, (int, struct epoll_event *, int, int, const sigset_t *))               \
	X(int, epoll_pwait2,                                                                       \
	  (int, struct epoll_event *, int, const struct timespec *, const sigset_t *))             \
	X(pid_t, fork, (void))                                                                     \
	X(long, syscall, (long, ...))

struct tt_sys {
#define X(type, name, params) type(*name) params;
	TT_SYS_CALLS(X)
#undef X
};

extern struct tt_sys tt_sys;

#endif
