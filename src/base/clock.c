/* SPDX-License-Identifier: MIT */
#include "base/clock.h"

#include "base/atomic.h"

uint64_t tt_ticks_per_us(void)
{
#if defined(__x86_64__)
	static uint64_t cached;
	uint64_t rate = tt_load_relaxed(&cached);

	if (rate)
		return rate;
	int64_t t0 = tt_now_ns(), t1;
	uint64_t c0 = tt_ticks();

	do
		t1 = tt_now_ns();
	while (t1 - t0 < 200000);
	rate = (tt_ticks() - c0) * 1000 / (uint64_t)(t1 - t0);
	if (!rate)
		rate = 1;
	tt_store_relaxed(&cached, rate);
	return rate;
#else
	return 1000;
#endif
}
