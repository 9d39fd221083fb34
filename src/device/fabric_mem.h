/* SPDX-License-Identifier: MIT */
/*
 * The shared memory of a fabric: devices, their ports and queues, the packets
 * that lie in them, and the members (processes) that post and receive.
 *
 * Rules that everything here keeps:
 *
 * - Offsets and indexes, no addresses. All sizes are constants of this file:
 *   nobody computes with a size that is in the memory.
 * - Whatever is read from here may have been written by a hostile member:
 *   copied once, checked (tt_slot_valid, ring positions masked), then used.
 * - A packet lies in a slot, a slot belongs for good to one owner (a member or
 *   a device), who alone takes it when nobody holds it any more. Who holds it
 *   is a set of bits, one for each device and member: taking and giving up are
 *   idempotent, so that a process killed between two steps cannot give up
 *   twice, and what a dead one held can be given up for it.
 * - Rings have one producer and one consumer. An entry is written, then the
 *   tail (R0); the consumer reads the tail (R1), the entry, then writes the
 *   head (R2), which the producer reads (R3) before it uses the place again.
 *   Of a device's rings, whoever drives the device is the one.
 */
#ifndef TT_DEVICE_FABRIC_MEM_H
#define TT_DEVICE_FABRIC_MEM_H

#include "base/atomic.h"

#include <stdint.h>

#define TT_FABRIC_MAGIC 0x6369726261667474ull /* "ttfabric" */
#define TT_FABRIC_VERSION 1u

enum {
	TT_MEMBERS = 256,
	TT_DEVICES = 32,
	TT_PORTS = 32, /* of a device, the last of them for what it sends itself */
	TT_OWN_PORT = TT_PORTS - 1,
	TT_OWNER_SLOTS = 128, /* of each member and device; a power of two */
	TT_OWNERS = TT_MEMBERS + TT_DEVICES,
	TT_SLOTS = TT_OWNERS * TT_OWNER_SLOTS,
	TT_RING_ENTRIES = 256, /* a power of two; more than TT_OWNER_SLOTS */
	TT_VOQ_ENTRIES = 64,   /* waiting packets of one input for one output */
	TT_SLOT_BYTES = 2048,
	TT_HEAD_BYTES = 128,
	TT_PAYLOAD_BYTES = TT_SLOT_BYTES - TT_HEAD_BYTES,
	TT_NAME_BYTES = 32,
	TT_GROUPS = 256,
	TT_INSTANCES = 64,
	TT_MODULE_BYTES = 64 << 20, /* data and maps of all instances */
	TT_HOLDER_WORDS = TT_MEMBERS / 64,
};

#define TT_NO_PORT 0xffffffffu

/* --- packets -------------------------------------------------------------------------- */

/* What a module and a receiver see of a packet besides its payload. Written by the sender. */
struct tt_packet_head {
	uint32_t source;      /* member */
	uint32_t destination; /* member; of a multicast: nobody's */
	uint32_t group;	      /* 0: none */
	uint16_t port;	      /* of the member: which of its uses is meant */
	uint8_t kind;	      /* enum tt_packet_kind */
	uint8_t flags;	      /* TT_PACKET_* */
	uint32_t bytes;	      /* of payload in this slot */
	uint32_t message;     /* number of the message that this is a piece of, by source */
	uint32_t offset;      /* of this piece in it */
	uint32_t total;	      /* bytes of the message */
};

enum tt_packet_kind { TT_PACKET_DATA = 1, TT_PACKET_FRAME = 2 };
enum { TT_PACKET_MULTICAST = 1 }; /* to all members of the group but the source */

struct tt_slot {
	uint64_t held_by_members[TT_HOLDER_WORDS]; /* bit: member; written atomically by all */
	uint32_t held_by_devices;		   /* bit: device; likewise */
	uint32_t sequence; /* counts uses; written by the owner while nobody holds it */
	struct tt_packet_head head;
	uint32_t incarnation; /* of the destination that is meant; written with the head */
	uint8_t pad[TT_HEAD_BYTES - 8 * TT_HOLDER_WORDS - 12 - sizeof(struct tt_packet_head)];
	uint8_t payload[TT_PAYLOAD_BYTES];
};

_Static_assert(sizeof(struct tt_slot) == TT_SLOT_BYTES, "slots are side by side");
_Static_assert(TT_DEVICES == 32, "bits of held_by_devices");

/* --- rings --------------------------------------------------------------------------- */

/* Slot in the lower 24 bits, credits that come back in the next 8, the slot's sequence above. */
typedef uint64_t tt_ring_entry;

static inline tt_ring_entry tt_entry_make(uint32_t slot, uint32_t credits, uint32_t sequence)
{
	return slot | (uint64_t)credits << 24 | (uint64_t)sequence << 32;
}

static inline uint32_t tt_entry_slot(tt_ring_entry entry)
{
	return (uint32_t)entry & 0xffffff;
}

static inline uint32_t tt_entry_credits(tt_ring_entry entry)
{
	return (uint32_t)entry >> 24;
}

static inline uint32_t tt_entry_sequence(tt_ring_entry entry)
{
	return (uint32_t)(entry >> 32);
}

struct tt_ring {
	/* written by the producer, read by the consumer */
	uint32_t tail __attribute__((aligned(TT_CACHE_LINE)));
	/* written by the consumer, read by the producer */
	uint32_t head __attribute__((aligned(TT_CACHE_LINE)));
	tt_ring_entry entries[TT_RING_ENTRIES] __attribute__((aligned(TT_CACHE_LINE)));
};

/* Packets of one input that wait for one output; only the device's driver. */
struct tt_voq {
	uint32_t tail; /* written after the entry: the one word that commits */
	uint32_t head;
	tt_ring_entry entries[TT_VOQ_ENTRIES];
};

/* --- devices ------------------------------------------------------------------------- */

enum tt_port_kind { TT_PORT_NONE = 0, TT_PORT_HOST = 1, TT_PORT_LINK = 2 };

struct tt_port {
	/* Written under the device's lock, before the port's kind is. */
	uint32_t kind;
	uint32_t member;      /* HOST, */
	uint32_t incarnation; /* and its number among those that had this place */
	uint32_t peer_device; /* LINK: where the other end is */
	uint32_t peer_port;
	/* LINK, written by this device's driver. */
	uint32_t credits; /* how many packets may still go out */
	uint32_t owed;	  /* taken from the link, not yet said to the peer */
	uint32_t window;  /* credits at the start */
	uint32_t heard;	  /* position in the ring in: the credits of entries before it are taken */
	uint32_t granted; /* credits that came back by themselves: added to by the peer's driver */
	/* Counters, written by the driver. */
	uint64_t rx_packets, rx_bytes, tx_packets, tx_bytes, dropped;
	uint64_t grants;    /* of credits, that rode on no packet */
	struct tt_ring in;  /* towards the device: by the member, or by the peer device's driver */
	struct tt_ring out; /* HOST: towards the member. LINK: the peer's in is used */
};

enum tt_device_kind { TT_DEVICE_NIC = 1, TT_DEVICE_SWITCH = 2 };

struct tt_device_mem {
	uint32_t kind;	       /* 0: not there */
	uint32_t ports_here;   /* bit: port that is in use; written under the lock */
	uint32_t links;	       /* of these, links */
	uint32_t fifo;	       /* plain inputs: one queue each, for comparison */
	uint32_t default_port; /* where to for members that route does not know; TT_NO_PORT */
	char name[TT_NAME_BYTES];
	uint8_t route[TT_MEMBERS]; /* member -> port + 1; 0: unknown */

	uint64_t bound;	    /* bit: instance that looks at packets here; written under the lock */
	uint32_t next_slot; /* of the device's own */

	/* Who drives: member + 1, 0 nobody (L0). Taken by compare and exchange. */
	uint32_t driver __attribute__((aligned(TT_CACHE_LINE)));
	/* Bit: port at which somebody has posted what no driver has seen (L1). */
	uint32_t posted;
	/* The packet in hand: entry that was taken from its ring and is in no other yet; 0: none. */
	uint64_t in_hand __attribute__((aligned(TT_CACHE_LINE)));
	uint64_t in_hand_copy;	/* entry of the copy that is forwarded instead; 0: none */
	uint32_t in_hand_from;	/* input port */
	uint32_t in_hand_to;	/* output port; TT_NO_PORT: it comes from the input's ring */
	uint32_t in_hand_ways;	/* bit: outputs that handlers have left it, once they all ran; */
	uint32_t in_hand_ruled; /* then this is 1 */
	uint32_t handler;	/* instance + 1 whose handler runs */
	uint64_t drives, packets, handovers, takeovers, lost, dropped;
	int64_t slot_ns;    /* a port moves one packet in each such time; 0: as fast as it goes */
	int64_t last_slot;  /* number of the last one that was used */
	uint32_t blocked;   /* bit: input with a packet for which there was no room */
	uint32_t unsettled; /* bit: link whose credits are uncertain, for a driver died */
	uint32_t next_input[TT_PORTS];	/* of an output: whose turn it is */
	uint32_t next_output[TT_PORTS]; /* of an input */
	uint32_t waiting[TT_PORTS];	/* of an output: bit of the inputs with packets for it */
	uint8_t copies[TT_SLOTS];	/* of a multicast: in how many queues it still is */
	struct tt_port ports[TT_PORTS];
	struct tt_voq voq[TT_PORTS][TT_PORTS]; /* [input][output] */
};

_Static_assert(TT_PORTS <= 32, "bits of waiting and posted");

/* --- members ------------------------------------------------------------------------- */

enum { TT_MEMBER_FREE = 0, TT_MEMBER_JOINING = 1, TT_MEMBER_HERE = 2 };

/* A process. While it lives it has a lock on the byte of the file with its number (alive.c). */
struct tt_member_mem {
	uint32_t state; /* taken by compare and exchange */
	uint32_t device, port;
	int32_t pid;	      /* for people */
	uint32_t incarnation; /* counts who had this place; written by who joins */
	/* Sleeping: the futex that whoever puts something into its out ring wakes (S0, S1). */
	uint32_t asleep __attribute__((aligned(TT_CACHE_LINE)));
	/* To and from devices, in sum: what would cross a bus. Written by the member. */
	uint64_t posted_packets, posted_bytes, received_packets, received_bytes, doorbells, sleeps;
};

/* --- instances of modules --------------------------------------------------------------- */

enum tt_instance_state {
	TT_INSTANCE_FREE = 0,
	TT_INSTANCE_LOADING = 1,
	TT_INSTANCE_RUNNING = 2,
	TT_INSTANCE_BROKEN = 3, /* who drove died in its handler: its state may be half changed */
	TT_INSTANCE_QUARANTINED = 4, /* too many faults */
};

/* Written by whoever loads, and by the device's driver. */
struct tt_instance_mem {
	uint32_t state;
	uint32_t generation; /* of this place: who has an older one looks again */
	uint32_t image;	     /* index in the code of the fabric */
	uint32_t device;
	uint32_t group;	     /* bound to: packets of this group, TT_ANY: of any */
	uint32_t port;	     /* and to this port, TT_ANY */
	uint32_t memory_off; /* in modules: data, then maps; a multiple of 64 */
	uint32_t memory_bytes;
	uint64_t budget; /* of a handler, instructions */
	char name[TT_NAME_BYTES];
	/* Counters and the last fault. */
	uint64_t runs, passed, dropped, faults, sent;
	int64_t first_fault_ns; /* of those that count for the quarantine */
	uint32_t recent_faults;
	uint32_t fault, fault_pc;
	uint64_t fault_address;
	uint64_t random; /* state of mdo_random */
};

#define TT_ANY 0xffffffffu

struct tt_group_mem {
	uint64_t members[TT_HOLDER_WORDS];
};

struct tt_fabric_mem {
	uint64_t magic;
	uint32_t version;
	uint32_t pad;
	struct tt_member_mem members[TT_MEMBERS];
	struct tt_group_mem groups[TT_GROUPS];
	struct tt_device_mem devices[TT_DEVICES];
	struct tt_instance_mem instances[TT_INSTANCES];
	uint8_t modules[TT_MODULE_BYTES] __attribute__((aligned(4096)));
	struct tt_slot slots[TT_SLOTS] __attribute__((aligned(4096)));
};

#endif
