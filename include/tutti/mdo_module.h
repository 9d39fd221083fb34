/* SPDX-License-Identifier: MIT */
/*
 * What a module is written against. A module is code that runs in a network's
 * device (a NIC or a switch) or on the host, in the way of packets:
 *
 *	#include <tutti/mdo_module.h>
 *
 *	MDO_MAP(seen, MDO_ARRAY, __u32, __u64, 1);
 *
 *	MDO_HANDLER("mdo/packet") int count(const struct mdo_packet *packet)
 *	{
 *		__u32 key = 0;
 *		__u64 *n = mdo_map_find(&seen, &key);
 *
 *		if (n)
 *			*n += packet->bytes;
 *		return MDO_PASS;
 *	}
 *
 * The same source is compiled for the module machine (tutti module build, or
 * clang -target bpf) and natively, with the wrapper library (tutti/mdo.h).
 *
 * Limits. No floating point (reductions over floats are mdo_reduce), 512 bytes
 * of stack in a function, 8 functions inside each other, no recursion, no
 * signed division with clang 14. A handler runs within a budget of
 * instructions; a loop that uses it up ends the handler, and its packet goes on
 * as if there were no module. Division by zero gives zero: natively it traps.
 *
 * Units: lengths and offsets in bytes, times in nanoseconds, members, groups
 * and ports by number. A function that returns int returns 0 or a count, or one
 * of -MDO_E*. "Hooks" says in which handlers a function may be called; a module
 * that calls it elsewhere is refused when it is loaded.
 */
#ifndef TUTTI_MDO_MODULE_H
#define TUTTI_MDO_MODULE_H

#include <linux/types.h>

#define MDO_ABI 1

/* What a handler says of its packet. */
enum mdo_verdict {
	MDO_PASS = 0, /* it goes on, as its head says now */
	MDO_DROP = 1, /* it ends here */
};

enum mdo_error {
	MDO_ENOENT = 2,	   /* no such key, group or member */
	MDO_ENOMEM = 12,   /* the map is full */
	MDO_EBUSY = 16,	   /* no room to send: the device's slots or the quota are used up */
	MDO_EINVAL = 22,   /* a size, a type or an operation that is none */
	MDO_EMSGSIZE = 90, /* more than MDO_PAYLOAD */
};

enum {
	MDO_PAYLOAD = 1920, /* bytes that one packet carries at most */
	MDO_MEMBERS = 256,  /* members are numbered below that */
	MDO_SOURCES =
		288,	  /* and sources below that: what a device sends has MDO_MEMBERS + device */
	MDO_GROUPS = 256, /* groups, from 1 */
};

enum mdo_flags {
	MDO_MULTICAST = 1, /* to all members of the group but the source */
};

/*
 * The packet that a handler sees. It cannot be written (that is a fault; const
 * in a handler's argument lets the compiler see it); mdo_set_* change what may
 * be changed. The payload can be, at packet->data.
 */
struct mdo_packet {
	__u64 data;	   /* address of the payload, as a number: see mdo_data() */
	__u32 bytes;	   /* of it */
	__u32 source;	   /* member, or MDO_MEMBERS + device */
	__u32 destination; /* member; of a multicast: none */
	__u32 group;	   /* 0: none */
	__u32 message;	   /* number of the message that this is a piece of, by source */
	__u32 offset;	   /* of this piece in it */
	__u32 total;	   /* bytes of the message */
	__u32 input;	   /* the device's port that it came in by */
	__u16 port;	   /* of the member: which of its uses is meant */
	__u8 kind;	   /* 1 data, 2 frame */
	__u8 flags;	   /* enum mdo_flags */
	__u32 device;	   /* this one */
};

/* --- how it is compiled ---------------------------------------------------------------------- */

enum mdo_map_kind {
	MDO_ARRAY =
		2, /* as in Linux: arrays by a __u32 below max_entries, all there, zero at first */
	MDO_HASH = 1,
	MDO_LRU = 9, /* a hash that gives up the key that was not used for longest */
};

#ifdef __bpf__
#define MDO_HANDLER(SECTION) __attribute__((section(SECTION), used))
#define MDO_MAP(NAME, KIND, KEY, VALUE, ENTRIES)                                                   \
	struct {                                                                                   \
		int (*type)[KIND];                                                                 \
		KEY *key;                                                                          \
		VALUE *value;                                                                      \
		int (*max_entries)[ENTRIES];                                                       \
	} NAME __attribute__((section(".maps"), used))
#define MDO_FUNCTION(RESULT, NAME, ID, ...) static RESULT (*const NAME)(__VA_ARGS__) = (void *)ID
#else
#define MDO_HANDLER(SECTION)
struct mdo_native_map {
	const char *name;
	unsigned kind, key_bytes, value_bytes, entries;
	void *state;
};
#define MDO_MAP(NAME, KIND, KEY, VALUE, ENTRIES)                                                   \
	struct mdo_native_map NAME = {#NAME, KIND, sizeof(KEY), sizeof(VALUE), ENTRIES, 0}
#define MDO_FUNCTION(RESULT, NAME, ID, ...) extern RESULT NAME(__VA_ARGS__)
#endif

/* The payload's address; valid until the handler returns. */
static inline void *mdo_data(const struct mdo_packet *packet)
{
	return (void *)(unsigned long)packet->data;
}

/* --- maps. Hooks: all ------------------------------------------------------------------------- */

/* The value's address, valid until the handler returns, or 0. Writing it is seen by the host. */
MDO_FUNCTION(void *, mdo_map_find, 1, void *map, const void *key);
/* Sets a value, making it when it is not there. -MDO_ENOMEM; -MDO_ENOENT: index outside an array. */
MDO_FUNCTION(int, mdo_map_set, 2, void *map, const void *key, const void *value);
/* -MDO_ENOENT. An array's value becomes zero. */
MDO_FUNCTION(int, mdo_map_delete, 3, void *map, const void *key);

/* --- sending. Hooks: packet, timer -------------------------------------------------------------- */

/* A new packet to a member's port, from this device. -MDO_EBUSY, -MDO_EMSGSIZE, -MDO_ENOENT. */
MDO_FUNCTION(int, mdo_send, 4, __u32 member, __u32 port, const void *data, __u64 bytes);
/* To all members of a group, who sent the packet in hand among them. As mdo_send. */
MDO_FUNCTION(int, mdo_multicast, 5, __u32 group, __u32 port, const void *data, __u64 bytes);

/* --- the packet in hand. Hooks: packet ------------------------------------------------------------ */

/* It goes to another member, or port of it. -MDO_ENOENT. */
MDO_FUNCTION(int, mdo_set_destination, 6, __u32 member, __u32 port);

/* --- time, chance, sums. Hooks: all ------------------------------------------------------------- */

MDO_FUNCTION(__u64, mdo_time, 7, void);
/* The next of a sequence that depends on the module's seed alone: the same on every placement. */
MDO_FUNCTION(__u64, mdo_random, 8, void);
/* 64 bits of bytes; the same everywhere, not fit against an adversary. */
MDO_FUNCTION(__u64, mdo_hash, 9, const void *data, __u64 bytes, __u64 seed);
/* The Internet's checksum of bytes, folded and complemented. */
MDO_FUNCTION(__u64, mdo_checksum, 10, const void *data, __u64 bytes);

/* --- groups. Hooks: all ------------------------------------------------------------------------- */

/* How many members it has; 0: no such group. */
MDO_FUNCTION(__u64, mdo_group_size, 11, __u32 group);
/* A member's place in it, by number, or -MDO_ENOENT. */
MDO_FUNCTION(int, mdo_group_rank, 12, __u32 group, __u32 member);

#endif
