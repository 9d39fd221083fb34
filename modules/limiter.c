/* SPDX-License-Identifier: MIT */
/*
 * A limit for each source: a token bucket. A packet takes as many tokens as it
 * has bytes; tokens come at the rate that is set, up to a burst. What finds too
 * few is dropped.
 *
 * Maps:
 *	limit	0 -> rate in bytes a second, burst in bytes (8 bytes each; at most
 *		MOST); the host sets it. Rate 0, as at first: no limit.
 *	buckets	source -> what is left, time of its last packet, packets dropped;
 *		for the host to read
 */
#include <tutti/mdo_module.h>

#define SECOND 1000000000ull
#define MOST 16000000000ull /* so that burst times a second fits into 64 bits */

struct limit {
	__u64 rate, burst;
};

struct bucket {
	__u64 used; /* of the burst, in bytes times nanoseconds: starts full */
	__u64 time;
	__u64 dropped;
};

MDO_MAP(limit, MDO_ARRAY, __u32, struct limit, 1);
MDO_MAP(buckets, MDO_ARRAY, __u32, struct bucket, MDO_SOURCES);

static __u64 lower(__u64 a, __u64 b)
{
	return a < b ? a : b;
}

MDO_HANDLER("mdo/packet") int limiter(const struct mdo_packet *packet)
{
	__u32 key = 0, source = packet->source;
	__u64 now = mdo_time(), rate, burst, past, need;
	struct limit *l = mdo_map_find(&limit, &key);
	struct bucket *b = mdo_map_find(&buckets, &source);

	if (!l || !b)
		return MDO_PASS;
	rate = lower(*(volatile __u64 *)&l->rate, MOST); /* once: the host may set it now */
	if (!rate)
		return MDO_PASS;
	burst = lower(*(volatile __u64 *)&l->burst, MOST) * SECOND;
	need = packet->bytes * SECOND;
	/* What came back since; so long that all came back, counts as just that. */
	past = lower(now > b->time ? now - b->time : 0, b->used / rate + 1);
	b->used -= lower(b->used, past * rate);
	b->time = now;
	if (b->used + need > burst) {
		b->dropped++;
		return MDO_DROP;
	}
	b->used += need;
	return MDO_PASS;
}
