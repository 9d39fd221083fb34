/* SPDX-License-Identifier: MIT */
/* What only works when everything is where it belongs: run, not only looked at. */
#include "module.h"

extern u64 join(u64 a, u64 b);
extern u64 less(u64 a, u64 b);
extern u64 limit(void *map);

struct node {
	const struct node *next;
	u64 number;
};

static volatile u64 counter = 5, runs;
static const struct node nodes[3] = {{&nodes[2], 3}, {0, 40}, {&nodes[1], 500}};
const struct node *start = &nodes[0];
const char *const names[2] = {"alpha", "beta"};

struct {
	__uint(type, 1);
	__uint(max_entries, 7);
} small SEC(".maps");
static struct {
	__uint(type, 1);
	__uint(max_entries, 900);
} large SEC(".maps");

SEC("test/run") u64 walk(u64 *ctx)
{
	u64 sum = 0;

	for (const struct node *n = start; n; n = n->next)
		sum += n->number;
	return sum;
}

SEC("test/run") u64 letter(u64 *ctx)
{
	return (u64)names[ctx[0] & 1][ctx[1] & 3];
}

SEC("test/run") u64 count(u64 *ctx)
{
	counter += ctx[0];
	runs++;
	return counter * 1000 + runs;
}

SEC("test/run") u64 helpers(u64 *ctx)
{
	return join(less(ctx[0], ctx[1]), join(ctx[1], 4));
}

SEC("test/other") u64 limits(u64 *ctx)
{
	return limit(&large) * 10 + limit(&small);
}

static NOINLINE u64 weigh(u64 x)
{
	HIDE(x);
	return 3 * x + counter;
}

SEC("test/other") u64 functions(u64 *ctx)
{
	return weigh(ctx[0]) + weigh(ctx[1]);
}
