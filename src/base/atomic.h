/* SPDX-License-Identifier: MIT */
/*
 * The only raw atomics of the project. Everything that two threads or two
 * processes touch without a lock goes through these.
 *
 * Memory that a peer maps is hostile: tt_load_*() reads it exactly once; check
 * and use the copy, never read again what was checked.
 */
#ifndef TT_BASE_ATOMIC_H
#define TT_BASE_ATOMIC_H

#include <stdbool.h>
#include <stdint.h>

#define TT_CACHE_LINE 64

#define tt_load_relaxed(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define tt_load_acquire(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define tt_store_relaxed(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define tt_store_release(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)

/* Read-modify-write: full barriers, both ways. */
#define tt_exchange(p, v) __atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST)
#define tt_fetch_add(p, v) __atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST)
#define tt_fetch_or(p, v) __atomic_fetch_or((p), (v), __ATOMIC_SEQ_CST)
#define tt_fetch_xor(p, v) __atomic_fetch_xor((p), (v), __ATOMIC_SEQ_CST)
#define tt_fetch_and(p, v) __atomic_fetch_and((p), (v), __ATOMIC_SEQ_CST)

/* Statistics: no ordering wanted. */
#define tt_count(p, v)                                                                             \
	__atomic_store_n((p), __atomic_load_n((p), __ATOMIC_RELAXED) + (v), __ATOMIC_RELAXED)

#define tt_cas(p, expected, desired)                                                               \
	__atomic_compare_exchange_n((p), (expected), (desired), false, __ATOMIC_SEQ_CST,           \
				    __ATOMIC_ACQUIRE)

/* Store-load barrier; each use names its partner (label pairs such as W0/W1). */
static inline void tt_fence(void)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* Keeps the compiler from moving accesses across; the processor may. */
static inline void tt_compiler_barrier(void)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* One step of a spinning wait. */
static inline void tt_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield");
#endif
}

#endif
