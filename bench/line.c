/* SPDX-License-Identifier: MIT */
/*
 * tb-line: the yardstick. Two pinned processes hand a number to each other through shared memory;
 * half a round trip is what a cache line needs to cross from one core to the other, and nothing
 * that talks through memory can be faster.
 *
 * With --sleep each waits in a bare futex instead, without a look at the memory before: half a
 * round trip is what the kernel needs to wake a process on an idle core, and nothing that sleeps
 * can be faster. Its figure is of single round trips, p50 and so on, not of batches.
 *
 * With --ring one carries bytes to the other through a ring in shared memory, published piece by
 * piece: one copy in, one copy out, and nothing else. Its figure is bytes_per_s, and tells what the
 * two cores share at the moment: a virtual machine's may be two threads of one core or lie apart.
 *
 * Each direction has a line of its own, with one writer, as the indices of a ring have. A batch of
 * round trips is timed as a whole, so that the clock is no part of the figure.
 */
#include "common.h"

#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define BATCH 1000
#define SLEEPS 20000 /* round trips by futex */
#define DEFAULT_BATCHES 500
#define WARMUP_BATCHES 20
#define STOP UINT64_MAX
#define RING_BYTES (256u << 10)
#define PIECE (16u << 10)
#define RING_SECONDS 0.2

static const char usage[] =
	"[--sleep | --ring] [--count BATCHES] [--cpu N] [--peer-cpu N] [--timeout S]";

struct lines {
	_Alignas(128) uint64_t there; /* written by the parent, read by the child */
	_Alignas(128) uint64_t back;  /* written by the child, read by the parent */
};

static inline void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static void answer(struct lines *l)
{
	uint64_t seen = 0, now;

	while (seen != STOP) {
		while ((now = __atomic_load_n(&l->there, __ATOMIC_ACQUIRE)) == seen)
			relax();
		seen = now;
		__atomic_store_n(&l->back, seen, __ATOMIC_RELEASE);
	}
}

static uint64_t one_batch(struct lines *l, uint64_t *number)
{
	uint64_t begin = tb_now_ns();

	for (int i = 0; i < BATCH; i++) {
		__atomic_store_n(&l->there, ++*number, __ATOMIC_RELEASE);
		while (__atomic_load_n(&l->back, __ATOMIC_ACQUIRE) != *number)
			relax();
	}
	return tb_now_ns() - begin;
}

/* A number's first word, alone, is enough for a futex. */
static uint32_t *word(uint64_t *number)
{
	return (uint32_t *)(void *)number;
}

static void tell(uint64_t *to, uint64_t number)
{
	__atomic_store_n(word(to), (uint32_t)number, __ATOMIC_RELEASE);
	syscall(SYS_futex, word(to), FUTEX_WAKE, 1, NULL, NULL, 0);
}

static uint32_t hear(uint64_t *from, uint32_t seen)
{
	uint32_t now;

	do
		syscall(SYS_futex, word(from), FUTEX_WAIT, seen, NULL, NULL, 0);
	while ((now = __atomic_load_n(word(from), __ATOMIC_ACQUIRE)) == seen);
	return now;
}

static void answer_asleep(struct lines *l)
{
	uint32_t seen = 0;

	while (seen != UINT32_MAX) {
		seen = hear(&l->there, seen);
		tell(&l->back, seen);
	}
}

struct ring {
	_Alignas(128) uint64_t head;
	_Alignas(128) uint64_t tail;
	_Alignas(128) unsigned char bytes[RING_BYTES];
};

/* Takes pieces until the tail says that there are no more; the figure is in what it prints. */
static void drain(struct ring *r)
{
	static unsigned char to[4 * PIECE];
	uint64_t head = 0, tail = 0;

	for (;;) {
		while (tail == head) {
			tail = __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE);
			if (tail == STOP)
				return;
			relax();
		}
		memcpy(to + head % sizeof(to), r->bytes + head % RING_BYTES, PIECE);
		head += PIECE;
		__atomic_store_n(&r->head, head, __ATOMIC_RELEASE);
	}
}

static void measure_ring(struct ring *r)
{
	static unsigned char from[4 * PIECE];
	uint64_t tail = 0, head = 0, begin, end;

	memset(from, 7, sizeof(from));
	begin = tb_now_ns();
	do {
		while (tail - head >= RING_BYTES)
			head = __atomic_load_n(&r->head, __ATOMIC_ACQUIRE);
		memcpy(r->bytes + tail % RING_BYTES, from + tail % sizeof(from), PIECE);
		tail += PIECE;
		__atomic_store_n(&r->tail, tail, __ATOMIC_RELEASE);
		end = tb_now_ns();
	} while ((double)(end - begin) < RING_SECONDS * 1e9);
	while (__atomic_load_n(&r->head, __ATOMIC_ACQUIRE) != tail)
		relax();
	end = tb_now_ns();
	__atomic_store_n(&r->tail, STOP, __ATOMIC_RELEASE);
	printf("{\"bench\":\"line\",\"bytes_per_s\":%.0f}\n",
	       (double)tail / ((double)(end - begin) / 1e9));
}

static void report(const struct tb_hist *h, uint64_t batches, double trips)
{
	printf("{\"bench\":\"line\",\"batches\":%llu,\"p50_ns\":%.1f,\"p99_ns\":%.1f,"
	       "\"p999_ns\":%.1f,\"max_ns\":%.1f}\n",
	       (unsigned long long)batches, tb_hist_quantile(h, 0.5) / trips,
	       tb_hist_quantile(h, 0.99) / trips, tb_hist_quantile(h, 0.999) / trips,
	       (double)h->max_ns / trips);
}

static void measure_asleep(struct lines *l, uint64_t count)
{
	static struct tb_hist h;

	for (uint32_t i = 0; i < count; i++) {
		uint64_t begin = tb_now_ns();

		tell(&l->there, i + 1);
		hear(&l->back, i);
		if (i >= count / 10)
			tb_hist_add(&h, tb_now_ns() - begin);
	}
	tell(&l->there, UINT32_MAX);
	report(&h, count, 2);
}

static void measure(struct lines *l, uint64_t batches)
{
	static struct tb_hist h;
	uint64_t number = 0;
	const double trips = 2.0 * BATCH;

	for (int i = 0; i < WARMUP_BATCHES; i++)
		one_batch(l, &number);
	for (uint64_t i = 0; i < batches; i++)
		tb_hist_add(&h, one_batch(l, &number));
	__atomic_store_n(&l->there, STOP, __ATOMIC_RELEASE);
	report(&h, batches, trips);
}

int main(int argc, char **argv)
{
	struct tb_opts o = {.size_bytes = 8, .count = DEFAULT_BATCHES, .cpu = 0, .peer_cpu = 1};
	struct lines *l;
	struct ring *r;
	pid_t child;
	int status;

	tb_name = "tb-line";
	tb_parse(&o, argc, argv, false, usage);
	l = mmap(NULL, sizeof(*l), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	r = mmap(NULL, sizeof(*r), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (l == MAP_FAILED || r == MAP_FAILED)
		tb_die("mmap");
	memset(l, 0, sizeof(*l));
	memset(r, 0, sizeof(*r));
	child = fork();
	if (child < 0)
		tb_die("fork");
	if (!child) {
		/* A child that spins for a parent that is gone would spin for ever. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		tb_pin(o.peer_cpu);
		if (o.ring)
			drain(r);
		else if (o.sleep)
			answer_asleep(l);
		else
			answer(l);
		_exit(0);
	}
	if (o.ring)
		measure_ring(r);
	else if (o.sleep)
		measure_asleep(l, o.count == DEFAULT_BATCHES ? SLEEPS : o.count);
	else
		measure(l, o.count);
	if (waitpid(child, &status, 0) != child || status)
		tb_fail("the peer failed");
	return 0;
}
