/* SPDX-License-Identifier: MIT */
/*
 * Time. Protocol code takes it only from here, so that a simulated clock can
 * stand in its place.
 */
#ifndef TT_BASE_CLOCK_H
#define TT_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define TT_NS_PER_SEC 1000000000LL

/* Monotonic time in nanoseconds. No system call (vDSO). Signal safe. */
static inline int64_t tt_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * TT_NS_PER_SEC + ts.tv_nsec;
}

/*
 * A cheap tick counter for "has about this much time passed": about 10 ns, rate
 * from tt_ticks_per_us(). Not comparable between machines.
 */
static inline uint64_t tt_ticks(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#else
	return (uint64_t)tt_now_ns();
#endif
}

/* Ticks in a microsecond; measured once (about 200 us at the first call). */
uint64_t tt_ticks_per_us(void);

#endif
