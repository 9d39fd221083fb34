/* SPDX-License-Identifier: MIT */
/* Compute kernels of modules: what hashing, caching, filtering and reducing come down to. */
#include "kernels.h"

#define IN(TYPE) ((const TYPE *)(unsigned long)ctx->in)
#define OUT(TYPE) ((TYPE *)(unsigned long)ctx->out)

KERNEL(empty)
{
	return 0;
}

static inline u64 rotate(u64 value, unsigned by)
{
	return value << by | value >> (64 - by);
}

/* Four lanes of eight bytes, multiplied and rotated, over 1 KiB. */
KERNEL(hash)
{
	const u64 *in = IN(u64);
	u64 a = 1, b = 2, c = 3, d = 4;

	for (u32 i = 0; i < 1024 / 8; i += 4) {
		a = rotate(a + in[i] * 0x9e3779b185ebca87ULL, 31) * 0xc2b2ae3d27d4eb4fULL;
		b = rotate(b + in[i + 1] * 0x9e3779b185ebca87ULL, 31) * 0xc2b2ae3d27d4eb4fULL;
		c = rotate(c + in[i + 2] * 0x9e3779b185ebca87ULL, 31) * 0xc2b2ae3d27d4eb4fULL;
		d = rotate(d + in[i + 3] * 0x9e3779b185ebca87ULL, 31) * 0xc2b2ae3d27d4eb4fULL;
	}
	return rotate(a, 1) ^ rotate(b, 7) ^ rotate(c, 12) ^ rotate(d, 18);
}

/* The Internet's ones' complement sum over a packet of 1,500 bytes. */
KERNEL(checksum)
{
	const u16 *in = IN(u16);
	u32 sum = 0;

	for (u32 i = 0; i < 750; i++)
		sum += in[i];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (u16)~sum;
}

static inline void sift(u32 *heap, u32 root, u32 count)
{
	u32 value = heap[root];

	for (;;) {
		u32 child = 2 * root + 1;

		if (child >= count)
			break;
		if (child + 1 < count && heap[child + 1] > heap[child])
			child++;
		if (heap[child] <= value)
			break;
		heap[root] = heap[child];
		root = child;
	}
	heap[root] = value;
}

/* Heap sort of 256 numbers. */
KERNEL(sort)
{
	const u32 *in = IN(u32);
	u32 *out = OUT(u32);
	u32 n = 256;

	for (u32 i = 0; i < n; i++)
		out[i] = in[i];
	for (u32 i = n / 2; i-- > 0;)
		sift(out, i, n);
	for (u32 i = n; i-- > 1;) {
		u32 last = out[i];

		out[i] = out[0];
		out[0] = last;
		sift(out, 0, i);
	}
	return out[0] + out[n - 1];
}

/* Horspool: eight bytes in 4 KiB, where they are not. */
KERNEL(search)
{
	const u8 *text = IN(u8);
	const u8 pattern[8] = {'c', 'l', 'u', 's', 't', 'e', 'r', 0xff};
	u8 *skip = OUT(u8);
	u32 at = 0, compared = 0;

	for (u32 i = 0; i < 256; i++)
		skip[i] = 8;
	for (u32 i = 0; i < 7; i++)
		skip[pattern[i]] = (u8)(7 - i);
	while (at + 8 <= 4096) {
		u32 left = 8;

		while (left && text[at + left - 1] == pattern[left - 1])
			left--;
		if (!left)
			return at;
		compared += 8 - left;
		at += skip[text[at + 7]];
	}
	return compared;
}

/* Product of two matrices of 16 by 16. */
KERNEL(matrix)
{
	const int *a = IN(int), *b = a + 256;
	int *out = OUT(int);

	for (u32 i = 0; i < 16; i++)
		for (u32 j = 0; j < 16; j++) {
			int sum = 0;

			for (u32 k = 0; k < 16; k++)
				sum += a[i * 16 + k] * b[k * 16 + j];
			out[i * 16 + j] = sum;
		}
	return (u32)out[255];
}

/* Four bits of 32 Kibit for each of 64 keys, set and asked for. */
KERNEL(bloom)
{
	const u64 *keys = IN(u64);
	u64 *bits = OUT(u64);
	u64 hits = 0;

	for (u32 i = 0; i < 512; i++)
		bits[i] = 0;
	for (u32 i = 0; i < 128; i++) {
		u64 hash = keys[i % 96] * 0x9e3779b97f4a7c15ULL;
		u64 present = 1;

		for (u32 k = 0; k < 4; k++) {
			u32 bit = (u32)(hash >> (16 * k)) & 32767;

			if (i < 64)
				bits[bit / 64] |= 1ULL << (bit % 64);
			else
				present &= bits[bit / 64] >> (bit % 64);
		}
		hits += present;
	}
	return hits;
}
