/* SPDX-License-Identifier: MIT */
/* A bit of everything in few bytes: the tests break each of them. */
#include "module.h"

extern u64 send(const void *data, u64 bytes);
struct {
	__uint(type, 1);
	__type(key, u32);
	__type(value, u64);
	__uint(max_entries, 4);
} map SEC(".maps");
static volatile u64 zero, number = 3;
const u64 *const table[2] = {(u64 *)&number, (u64 *)&zero};

static NOINLINE u64 add(u64 x)
{
	zero += x;
	return *table[x & 1];
}

SEC("mdo/packet") u64 on_packet(u64 *ctx)
{
	return add(ctx[0]) + send(&map, 8);
}

char module_license[] SEC("license") = "MIT";
