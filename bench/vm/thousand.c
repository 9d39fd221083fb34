/* SPDX-License-Identifier: MIT */
/*
 * A module of a thousand instructions, to be loaded: the kernels, all of them
 * once more under other names, and a handler with constants and data of its
 * own, as modules of several functions have them.
 */
#include "kernels.c" /* NOLINT(bugprone-suspicious-include): see above */

#define rotate again_rotate
#define sift again_sift
#undef KERNEL
#define KERNEL(NAME)                                                                               \
	__attribute__((section("bench/again_" #NAME), used))                                       \
	u64 again_##NAME(struct kernel_ctx *ctx)
#include "kernels.c" /* NOLINT(bugprone-suspicious-include) */

#undef KERNEL
#define KERNEL(NAME)                                                                               \
	__attribute__((section("bench/" #NAME), used)) u64 kernel_##NAME(struct kernel_ctx *ctx)

static const volatile u8 classes[16] = {0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 4};
static volatile u64 counts[8];

/* Counts the words of a packet by the class of their upper bits. */
KERNEL(classify)
{
	const u64 *in = IN(u64);
	u64 longest = 0;

	for (u32 i = 0; i < 64; i++) {
		u64 word = in[i];
		u32 class = classes[word >> 60] & 7;

		counts[class]++;
		if (word > longest)
			longest = word;
		else if (!(word & 0xff))
			OUT(u64)[i] = word ^ longest;
	}
	return longest + counts[0];
}
