/* SPDX-License-Identifier: MIT */
/*
 * Errors of Tutti's public calls.
 *
 * Every call that can fail returns 0 or a count on success and a negative
 * errno on failure; outputs are written only on success. These errnos have a
 * meaning of their own here:
 *
 *   -EAGAIN      nothing there, or no room: ask again later
 *   -ECONNRESET  the peer closed or died
 *   -EPROTO      the peer sent, or wrote into shared memory, what cannot be
 *   -ERANGE      an offset or length outside the region
 */
#ifndef TUTTI_ERROR_H
#define TUTTI_ERROR_H

#include <errno.h>

#endif
