/* SPDX-License-Identifier: MIT */
/*
 * Ordered multicast: all members of a group get its messages in one order,
 * numbered without gaps, whoever sent them; the sender gets its own, too. Load
 * it at one switch that all members' packets pass.
 *
 * A message is a multicast packet to the group. Its payload begins with a
 * struct stamp, which the sender leaves for this module to fill in; what comes
 * out is a packet of the device's own to the same port. A message that the
 * device has no room for is dropped before it gets a number: its sender, who
 * does not see it come back, sends it again.
 *
 * Maps:
 *	next	group -> number of its next message, from 0
 *	counts	0 -> numbered, 1 -> dropped for want of room, 2 -> too short, or
 *		a piece of something longer
 */
#include <tutti/mdo_module.h>

enum { NUMBERED, NO_ROOM, NOT_ONE, COUNTS };

struct stamp {
	__u64 number;
	__u32 source;  /* who sent it */
	__u32 message; /* as the sender's packet had it */
};

MDO_MAP(next, MDO_ARRAY, __u32, __u64, MDO_GROUPS);
MDO_MAP(counts, MDO_ARRAY, __u32, __u64, COUNTS);

static void add(__u32 key)
{
	__u64 *count = mdo_map_find(&counts, &key);

	if (count)
		++*count;
}

MDO_HANDLER("mdo/packet") int sequencer(const struct mdo_packet *packet)
{
	struct stamp *stamp = mdo_data(packet);
	__u32 group = packet->group;
	__u64 *number = mdo_map_find(&next, &group);

	if (!(packet->flags & MDO_MULTICAST) || packet->source >= MDO_MEMBERS || !group || !number)
		return MDO_PASS;
	if (packet->bytes < sizeof *stamp || packet->total != packet->bytes) {
		add(NOT_ONE);
		return MDO_DROP;
	}
	stamp->number = *number;
	stamp->source = packet->source;
	stamp->message = packet->message;
	if (mdo_multicast(group, packet->port, stamp, packet->bytes)) {
		add(NO_ROOM);
		return MDO_DROP;
	}
	++*number;
	add(NUMBERED);
	return MDO_DROP; /* the numbered one goes in its place */
}
