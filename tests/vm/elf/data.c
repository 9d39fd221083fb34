/* SPDX-License-Identifier: MIT */
/* Data of every kind; each function returns the address of one. */
#include "module.h"

struct node {
	struct node *next;
	u64 number;
};

u32 counter = 7;
u8 wide[64] __attribute__((aligned(64))) = {1, 2, 3};
static volatile u64 zeroes[3];
static volatile u32 ones[4] = {11, 12, 13, 14};
static volatile struct node list[2] = {{(struct node *)&list[1], 21},
				       {(struct node *)&list[0], 22}};
const char *const names[2] = {"alpha", "beta"};
const volatile u32 *const places[3] = {&counter, &ones[2], ones + 4};
const u64 table[4] = {31, 32, 33, 34};

SEC("mdo/load") u64 at_counter(void)
{
	return (u64)&counter;
}

SEC("mdo/load") u64 at_wide(void)
{
	return (u64)wide;
}

SEC("mdo/load") u64 at_zeroes(void)
{
	return (u64)zeroes;
}

SEC("mdo/load") u64 at_ones(void)
{
	return (u64)ones;
}

SEC("mdo/load") u64 at_list(void)
{
	return (u64)list;
}

SEC("mdo/load") u64 at_names(void)
{
	return (u64)names;
}

SEC("mdo/load") u64 at_places(void)
{
	return (u64)places;
}

SEC("mdo/load") u64 at_table(void)
{
	return (u64)table;
}

SEC("mdo/load") u64 at_text(void)
{
	return (u64) "gamma";
}
