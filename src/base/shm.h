/* SPDX-License-Identifier: MIT */
/* Shared memory in anonymous files, and descriptors of the library's own. */
#ifndef TT_BASE_SHM_H
#define TT_BASE_SHM_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Creates a memfd of bytes, sealed against shrinking and growing, so that
 * whoever maps it can never meet SIGBUS.
 * Returns a close-on-exec descriptor, or a negative errno.
 */
int tt_shm_create(const char *name, size_t bytes);

/*
 * Maps all of fd, which another process sent: it must be a memfd sealed
 * against shrinking and at least min_bytes long (0: any), else -EPROTO.
 * Writes the address and the length. Does not take over fd.
 */
int tt_shm_map(int fd, size_t min_bytes, void **ret_base, size_t *ret_bytes);

void tt_shm_unmap(void *base, size_t bytes);

/*
 * Moves fd to a high number, out of the way of programs that count on low
 * ones; keeps close-on-exec. Always succeeds: at worst it returns fd itself.
 */
int tt_fd_high(int fd);

/*
 * Descriptors that went through tt_fd_high() are the library's own: a program
 * that closes everything it does not know must not get at them.
 */
bool tt_fd_is_internal(int fd);
/* The highest of them, or 0. */
unsigned tt_fd_internal_top(void);
/* Says so of one that was inherited. */
void tt_fd_mark_internal(int fd);
/* Closes a descriptor of the library's own; -1 allowed. */
void tt_fd_close(int fd);

#endif
