/* SPDX-License-Identifier: MIT */
/* Sums over bytes: the same on every placement. */
#ifndef TT_DEVICE_HASH_H
#define TT_DEVICE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* 64 bits; not fit against an adversary. */
uint64_t tt_hash(const void *bytes, size_t n, uint64_t seed);
/* RFC 1071, folded and complemented, of the bytes in the order that they have in memory. */
uint16_t tt_checksum(const void *bytes, size_t n);

#endif
