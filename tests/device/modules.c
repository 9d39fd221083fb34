/* SPDX-License-Identifier: MIT */
/* Modules for the tests of devices: one for each name that it is compiled with. */
#include <tutti/mdo_module.h>

#define WORD(packet) (*(volatile __u32 *)mdo_data(packet))

#if defined(DROP)
MDO_HANDLER("mdo/packet") int handler(struct mdo_packet *packet)
{
	return packet->message % 2 ? MDO_DROP : MDO_PASS;
}
#elif defined(REWRITE)
MDO_HANDLER("mdo/packet") int handler(struct mdo_packet *packet)
{
	WORD(packet) += 1000;
	return MDO_PASS;
}
#elif defined(TWICE)
MDO_HANDLER("mdo/packet") int handler(struct mdo_packet *packet)
{
	WORD(packet) *= 2;
	return MDO_PASS;
}
#elif defined(REDIRECT)
/* The first word says to whom. */
MDO_HANDLER("mdo/packet") int handler(struct mdo_packet *packet)
{
	return mdo_set_destination(WORD(packet), 77) ? MDO_DROP : MDO_PASS;
}
#elif defined(REPLY)
MDO_HANDLER("mdo/packet") int handler(struct mdo_packet *packet)
{
	__u32 words[2] = {packet->message, packet->device};

	mdo_send(packet->source, 5, words, sizeof words);
	return MDO_DROP;
}
#elif defined(SPREAD)
MDO_HANDLER("mdo/packet") int handler(struct mdo_packet *packet)
{
	__u32 word = packet->message;

	return mdo_multicast(7, 6, &word, sizeof word) ? MDO_PASS : MDO_DROP;
}
#elif defined(COUNT)
MDO_MAP(counts, MDO_ARRAY, __u32, __u64, 4);
MDO_MAP(sources, MDO_HASH, __u32, __u64, 64);
static __u64 total = 100;

MDO_HANDLER("mdo/packet") int handler(struct mdo_packet *packet)
{
	__u32 key = packet->message % 4, source = packet->source;
	__u64 *n = mdo_map_find(&counts, &key), one = 1;

	if (n)
		*n += 1;
	n = mdo_map_find(&sources, &source);
	if (n)
		*n += 1;
	else
		mdo_map_set(&sources, &source, &one);
	total++;
	key = 3;
	n = mdo_map_find(&counts, &key);
	if (n)
		*n = total;
	return MDO_PASS;
}
#elif defined(FAULT)
MDO_HANDLER("mdo/packet") int handler(struct mdo_packet *packet)
{
	if (packet->message >= 1000)
		*(volatile __u32 *)((char *)mdo_data(packet) + packet->message * 4096ull) = 1;
	return MDO_DROP;
}
#elif defined(LOOP)
MDO_HANDLER("mdo/packet") int handler(struct mdo_packet *packet)
{
	for (volatile __u32 i = 0; i < 3000000000u; i++)
		;
	return MDO_PASS;
}
#elif defined(LONG)
/* Some hundred microseconds, well within a budget of two million. */
MDO_HANDLER("mdo/packet") int handler(struct mdo_packet *packet)
{
	for (volatile __u32 i = 0; i < 100000; i++)
		;
	return MDO_PASS;
}
#elif defined(BIG)
MDO_MAP(big, MDO_ARRAY, __u32, __u64, 4000000);

MDO_HANDLER("mdo/packet") int handler(struct mdo_packet *packet)
{
	__u32 key = 3999999;
	__u64 *n = mdo_map_find(&big, &key);

	if (n)
		*n += 1;
	return MDO_PASS;
}
#elif defined(MAP_KIND)
MDO_MAP(other, 99, __u32, __u64, 4);

MDO_HANDLER("mdo/packet") int handler(struct mdo_packet *packet)
{
	__u32 key = 0;

	return mdo_map_find(&other, &key) ? MDO_DROP : MDO_PASS;
}
#elif defined(MAP_LARGE)
MDO_MAP(large, MDO_ARRAY, __u32, __u64, 5000000);

MDO_HANDLER("mdo/packet") int handler(struct mdo_packet *packet)
{
	__u32 key = 0;

	return mdo_map_find(&large, &key) ? MDO_DROP : MDO_PASS;
}
#elif defined(NO_HANDLER)
MDO_HANDLER("mdo/packet/other") int handler(struct mdo_packet *packet)
{
	return MDO_PASS;
}
#endif
