/* SPDX-License-Identifier: MIT */
/* Maps in libbpf's style: global, static, with types and with sizes. */
#include "module.h"

struct place {
	u8 name[12];
	u32 port;
};
typedef const volatile struct place place_t;
struct big {
	place_t places[3];
	struct {
		u64 *pointer;
		enum { RED, GREEN } colour;
	} inside;
};

struct {
	__uint(type, 1);
	__type(key, u32);
	__type(value, place_t);
	__uint(max_entries, 16);
} places SEC(".maps");

static struct {
	__uint(type, 2);
	__uint(key_size, 4);
	__uint(value_size, 24);
	__uint(max_entries, 1000);
	__uint(map_flags, 5);
} hidden SEC(".maps");

struct {
	__uint(type, 3);
	__type(key, place_t[2]);
	__uint(key_size, 32);
	__type(value, struct big);
	__uint(max_entries, 1);
} bigs SEC(".maps");

struct counters {
	__uint(type, 4);
	__type(value, u64[100]);
};
struct counters counters SEC(".maps");

static void *(*const lookup)(void *map, const void *key) = (void *)1;

SEC("mdo/packet") u64 use_places(void *ctx)
{
	return (u64)lookup(&places, ctx);
}

SEC("mdo/packet") u64 use_hidden(void *ctx)
{
	return (u64)lookup(&hidden, ctx);
}

SEC("mdo/packet") u64 use_bigs(void *ctx)
{
	return (u64)lookup(&bigs, ctx);
}

SEC("mdo/packet") u64 use_counters(void *ctx)
{
	return (u64)lookup(&counters, ctx);
}
