/* SPDX-License-Identifier: MIT */
/*
 * A fabric: the devices (NICs and switches) of one user on one machine, and
 * the members (processes, or parts of one) that send and receive by them.
 *
 *	tt_fabric_create(&fabric);                     // or attach to a descriptor
 *	tt_member_join(fabric, TT_NO_DEVICE, &me);     // whoever does anything is a member
 *	nic = tt_device_add(me, TT_DEVICE_NIC, "nic0");
 *	sw = tt_device_add(me, TT_DEVICE_SWITCH, "switch0");
 *	tt_device_connect(me, nic, sw, 64);            // a link, and its window of credits
 *	tt_member_join(fabric, nic, &other);           // on a port of the NIC
 *	tt_member_send(me, &head, bytes); tt_member_receive(other, ...);
 *
 * Devices run when somebody posts to them: whoever posts, or waits, takes the
 * device if it is free and does all that there is to do (drive.c). No call
 * blocks but tt_member_wait.
 *
 * Threads: calls of different members are independent, those of one must be
 * serialised. Fork: a child must join by itself. Not for signal handlers.
 */
#ifndef TT_DEVICE_FABRIC_H
#define TT_DEVICE_FABRIC_H

#include "device/fabric_mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TT_NO_DEVICE 0xffffffffu

struct tt_code;
struct tt_instance;

struct tt_fabric {
	struct tt_fabric_mem *mem;
	struct tt_code *code; /* NULL: modules are passed by */
	int fd; /* kept open: the locks by which members are known to live hang on it */
	int64_t (*now_ns)(void);
	uint32_t images[TT_INSTANCES]; /* where code is made: the image of each instance */
	int pid;		       /* of the process whose members are in: a child has others */
	uint64_t own[TT_HOLDER_WORDS]; /* bit: member that joined in this process */
};

/* A driver that is met again and again: does it live? */
struct tt_suspect {
	uint32_t driver; /* member + 1 */
	int64_t since_ns;
};

struct tt_member {
	struct tt_fabric *fabric;
	uint32_t index;
	uint32_t device, port; /* TT_NO_DEVICE: only drives */
	uint32_t next_slot;
	uint32_t next_message;
	uint32_t touched; /* bit: devices that what we did gave work, to be driven yet */
	uint32_t others;  /* bit: devices that we leave to who drives them all the time */
	struct tt_suspect suspects[TT_DEVICES];
	struct tt_instance *instances; /* TT_INSTANCES: what it runs them by; NULL: none yet */
};

/* -ENOMEM, -EMFILE. */
int tt_fabric_create(struct tt_fabric **ret_fabric);
/* Of a descriptor that another process created; it is duplicated. -EPROTO: it is no fabric. */
int tt_fabric_attach(int fd, struct tt_fabric **ret_fabric);
/* After all its members have left. NULL allowed. */
void tt_fabric_destroy(struct tt_fabric *fabric);

/*
 * Becomes a member, on a port of a device or of none. -EUSERS: all places are
 * taken, -ENODEV, -ENOSPC: all ports are taken, -EAGAIN: the device is driven
 * by somebody else all the time.
 */
int tt_member_join(struct tt_fabric *fabric, uint32_t device, struct tt_member *ret_member);
void tt_member_leave(struct tt_member *member);
/* Is there such a member, and does it live? */
bool tt_member_alive(struct tt_fabric *fabric, uint32_t member);
/* Takes away what is left of members that died. Returns how many. */
int tt_fabric_bury(struct tt_member *me);

/* -EEXIST, -ENOSPC, -EINVAL (name). Returns the device's index. */
int tt_device_add(struct tt_member *me, enum tt_device_kind kind, const char *name);
/* -ENOENT. */
int tt_device_find(struct tt_fabric *fabric, const char *name);
/*
 * A link between a port of each; window: packets that may be under way without
 * having been taken, 1 to TT_OWNER_SLOTS. -ENOSPC, -EINVAL, -EAGAIN as above.
 */
int tt_device_connect(struct tt_member *me, uint32_t device, uint32_t other, uint32_t window);
/* Plain inputs, first in first out, instead of a queue for each output. */
int tt_device_set_fifo(struct tt_member *me, uint32_t device, bool fifo);
/* A port moves one packet in and one out in each slot of the fabric's time; 0: no such limit. */
int tt_device_set_slots(struct tt_member *me, uint32_t device, int64_t slot_ns);
/* Into a group, 1 to TT_GROUPS - 1, or out of it: who gets what is sent to it. -EINVAL. */
int tt_group_enter(struct tt_member *me, uint32_t group, bool in);
/* Members beyond a port that the device could not know by itself. */
int tt_device_route(struct tt_member *me, uint32_t device, uint32_t member, uint32_t port);

/* --- members' traffic (member.c) ------------------------------------------------------- */

/*
 * Sends one packet of up to TT_PAYLOAD_BYTES and drives the devices. source is
 * filled in. -EAGAIN: all own slots are under way, or the port is full;
 * -EMSGSIZE; -ENODEV: on no port.
 */
int tt_member_send(struct tt_member *me, const struct tt_packet_head *head, const void *bytes);
/* As tt_member_send, but leaves driving to the next call. */
int tt_member_post(struct tt_member *me, const struct tt_packet_head *head, const void *bytes);
/* As tt_member_post, with the source that the head names: of a packet that was recorded. */
int tt_member_replay(struct tt_member *me, const struct tt_packet_head *head, const void *bytes);
/*
 * Takes the next packet: its head, and of its payload as much as there is room
 * for. -EAGAIN: none. Does not drive.
 */
int tt_member_receive(struct tt_member *me, struct tt_packet_head *ret_head, void *ret_bytes,
		      size_t room);
/*
 * Until there is a packet: drives its device and spins for spin_ns, then
 * sleeps. timeout_ns < 0: for ever. 0; -ETIMEDOUT, -EINTR.
 */
int tt_member_wait(struct tt_member *me, int64_t spin_ns, int64_t timeout_ns);

/* --- driving (drive.c) -------------------------------------------------------------------- */

/* Does what there is to do at this device and those that it gives work. */
void tt_device_drive(struct tt_member *me, uint32_t device);

/* For changes of a device: keeps drivers out. False: somebody drives. */
bool tt_device_take(struct tt_member *me, uint32_t device);
void tt_device_give(struct tt_member *me, uint32_t device);

#endif
