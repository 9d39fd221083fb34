/* SPDX-License-Identifier: MIT */
/* Functions in several sections that call each other, helpers by name and by number. */
#include "module.h"

static u64 (*const now)(void) = (void *)5;
extern u64 send(const void *data, u64 bytes);
extern u64 drop(void);

static NOINLINE u64 twice(u64 x)
{
	HIDE(x);
	return 2 * x;
}

NOINLINE u64 thrice(u64 x)
{
	HIDE(x);
	return x + twice(x);
}

static NOINLINE SEC("mdo/packet") u64 beside(u64 x)
{
	HIDE(x);
	return x - 1;
}

SEC("mdo/packet") u64 on_packet(u64 *ctx)
{
	u64 sum = thrice(ctx[0]);

	sum += beside(sum);
	sum += twice(sum);
	if (sum > 100)
		return drop();
	return send(ctx, sum);
}

SEC("mdo/timer") u64 on_timer(u64 *ctx)
{
	u64 sum = now();

	sum += send(ctx, 8);
	sum += beside(sum);
	return sum + on_packet(ctx);
}

char module_license[] SEC("license") = "MIT";
