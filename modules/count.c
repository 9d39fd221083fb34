/* SPDX-License-Identifier: MIT */
/*
 * Telemetry: who sends how much, and how large packets are. Changes nothing.
 *
 * Maps, for the host to read:
 *	sources	source (4 bytes) -> packets, bytes (8 bytes each)
 *	sizes	0 to 11 -> packets of 0, 1, 2 to 3, 4 to 7, ... 1024 and more bytes
 *	others	0 -> packets of sources for which there was no room
 */
#include <tutti/mdo_module.h>

enum { SOURCES = 512, SIZES = 12 };

struct sent {
	__u64 packets, bytes;
};

MDO_MAP(sources, MDO_HASH, __u32, struct sent, SOURCES);
MDO_MAP(sizes, MDO_ARRAY, __u32, __u64, SIZES);
MDO_MAP(others, MDO_ARRAY, __u32, __u64, 1);

static void add(void *map, __u32 key)
{
	__u64 *count = mdo_map_find(map, &key);

	if (count)
		++*count;
}

MDO_HANDLER("mdo/packet") int count(const struct mdo_packet *packet)
{
	__u32 source = packet->source, bytes = packet->bytes, size = 0;
	struct sent *sent = mdo_map_find(&sources, &source);

	if (sent) {
		sent->packets++;
		sent->bytes += bytes;
	} else {
		struct sent first = {1, bytes};

		if (mdo_map_set(&sources, &source, &first))
			add(&others, 0);
	}
	while (size < SIZES - 1 && bytes >> size)
		size++;
	add(&sizes, size);
	return MDO_PASS;
}
