/* SPDX-License-Identifier: MIT */
/* What the tests of devices have in common. */
#ifndef TT_DEVICE_FABRIC_TEST_H
#define TT_DEVICE_FABRIC_TEST_H

#include "device/fabric.h"
#include "device/slot.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A fabric, and who builds it. */
struct net {
	struct tt_fabric *fabric;
	struct tt_member admin;
};

static inline struct net net_make(void)
{
	struct net n;

	assert_int_equal(tt_fabric_create(&n.fabric), 0);
	assert_int_equal(tt_member_join(n.fabric, TT_NO_DEVICE, &n.admin), 0);
	return n;
}

static inline uint32_t net_device(struct net *n, enum tt_device_kind kind, const char *name)
{
	int device = tt_device_add(&n->admin, kind, name);

	assert_true(device >= 0);
	return (uint32_t)device;
}

static inline struct tt_member net_member(struct net *n, uint32_t device)
{
	struct tt_member member;

	assert_int_equal(tt_member_join(n->fabric, device, &member), 0);
	return member;
}

static inline void net_connect(struct net *n, uint32_t a, uint32_t b, uint32_t window)
{
	assert_int_equal(tt_device_connect(&n->admin, a, b, window), 0);
}

/* A packet of this number, whose payload says so. */
static inline int net_send(struct tt_member *from, uint32_t to, uint32_t number)
{
	struct tt_packet_head head = {.destination = to,
				      .kind = TT_PACKET_DATA,
				      .message = number,
				      .bytes = 8 + number % 97};
	uint8_t bytes[128];

	memset(bytes, (int)(number * 7 + from->index), sizeof bytes);
	memcpy(bytes, &number, sizeof number);
	return tt_member_send(from, &head, bytes);
}

/* Takes one; false: none. Its contents must be what net_send made. */
static inline bool net_receive(struct tt_member *to, struct tt_packet_head *ret_head)
{
	uint8_t bytes[TT_PAYLOAD_BYTES];
	uint32_t number;
	int err = tt_member_receive(to, ret_head, bytes, sizeof bytes);

	if (err == -EAGAIN)
		return false;
	assert_int_equal(err, 0);
	memcpy(&number, bytes, sizeof number);
	assert_int_equal(number, ret_head->message);
	assert_int_equal(ret_head->bytes, 8 + number % 97);
	for (uint32_t i = 4; i < ret_head->bytes; i++)
		assert_int_equal(bytes[i], (uint8_t)(number * 7 + ret_head->source));
	return true;
}

/* Nobody holds any slot: nothing is under way, and nothing has leaked. */
static inline void net_assert_idle(const struct net *n)
{
	for (uint32_t i = 0; i < TT_SLOTS; i++)
		if (!tt_slot_free(&n->fabric->mem->slots[i]))
			fail_msg("slot %u of owner %u is held: devices %x, members %llx", i,
				 i / TT_OWNER_SLOTS, n->fabric->mem->slots[i].held_by_devices,
				 (unsigned long long)n->fabric->mem->slots[i].held_by_members[0]);
}

/* On links that are at rest: what may go out and what is not yet said make up the window. */
static inline void net_assert_credits(const struct net *n)
{
	const struct tt_device_mem *devices = n->fabric->mem->devices;

	for (uint32_t d = 0; d < TT_DEVICES; d++)
		for (uint32_t p = 0; p < TT_PORTS; p++) {
			const struct tt_port *port = &devices[d].ports[p];

			if (port->kind == TT_PORT_LINK)
				assert_int_equal(port->credits + port->granted +
							 devices[port->peer_device]
								 .ports[port->peer_port]
								 .owed,
						 port->window);
		}
}

static inline void net_drive_all(struct net *n)
{
	for (uint32_t i = 0; i < TT_DEVICES; i++)
		if (n->fabric->mem->devices[i].kind)
			tt_device_drive(&n->admin, i);
}

static inline void net_destroy(struct net *n)
{
	tt_member_leave(&n->admin);
	tt_fabric_destroy(n->fabric);
}

#endif
