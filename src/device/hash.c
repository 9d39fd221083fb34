/* SPDX-License-Identifier: MIT */
#include "device/hash.h"

#include <string.h>

static uint64_t mix(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Multiply and fold, eight bytes at a time. */
uint64_t tt_hash(const void *bytes, size_t n, uint64_t seed)
{
	const uint8_t *at = bytes;
	uint64_t hash = seed ^ (n * 0x9e3779b97f4a7c15u), word;

	for (; n >= 8; n -= 8, at += 8) {
		memcpy(&word, at, 8);
		hash = mix(hash ^ word, 0xd6e8feb86659fd93u);
	}
	word = 0;
	if (n) /* at may be NULL */
		memcpy(&word, at, n);
	hash = mix(hash ^ word, 0xa0761d6478bd642fu);
	return mix(hash ^ 0xe7037ed1a0b428dbu, 0x8ebc6af09c88c6e3u);
}

uint16_t tt_checksum(const void *bytes, size_t n)
{
	const uint8_t *at = bytes;
	uint64_t sum = 0;

	for (; n >= 2; n -= 2, at += 2)
		sum += (unsigned)at[0] | (unsigned)at[1] << 8;
	if (n)
		sum += at[0];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}
