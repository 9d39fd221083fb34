/* SPDX-License-Identifier: MIT */
/* Messages with descriptors over local sockets. */
#ifndef TT_BASE_FDPASS_H
#define TT_BASE_FDPASS_H

#include <stddef.h>
#include <sys/types.h>

#define TT_FDPASS_MAX 8

/*
 * Sends one message of bytes with nfds (at most TT_FDPASS_MAX) descriptors.
 * flags as for sendmsg(2); never raises SIGPIPE. Blocks as the socket does.
 * Returns 0 or a negative errno.
 */
int tt_fdpass_send(int sock, const void *msg, size_t bytes, const int *fds, int nfds, int flags);

/*
 * Receives one message into buf. ret_fds (room for TT_FDPASS_MAX) and *ret_nfds
 * get the descriptors that came with it, close-on-exec; the caller owns them.
 * A message that was cut short is refused with -EMSGSIZE, its descriptors closed.
 * Returns its length, 0 at the end, or a negative errno.
 */
ssize_t tt_fdpass_recv(int sock, void *buf, size_t bytes, int *ret_fds, int *ret_nfds, int flags);

#endif
