/* SPDX-License-Identifier: MIT */
/* Streams with their two ends in two threads, at full speed. */
#include "base/sys.h"
#include "stream/bench_test.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/eventfd.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SCALE 16u
#else
#define SCALE 1u
#endif
#define HANG_MS 10000

/* What the two threads agree on; errors are told after both have ended. */
struct race {
	struct tt_bench *b;
	uint64_t total;
	uint32_t max_send, max_recv;
	bool fixed_recv; /* always max_recv */
	bool idles;	 /* the receiver gives chunks back now and then */
	bool told;	 /* the sender goes on only when it is told */
	int bell;	 /* eventfd */
	uint32_t armed;
	int tx_err, rx_err;
	unsigned sleeps;
};

static bool sleep_until_told(struct race *r)
{
	struct tt_bench *b = r->b;
	struct pollfd p = {r->bell, POLLIN, 0};
	uint64_t n;

	tt_store_relaxed(&r->armed, 1u);
	tt_fence(); /* against the fence in tell() */
	if (tt_stream_writable(&b->out, &b->tx)) {
		tt_store_relaxed(&r->armed, 0u);
		return true;
	}
	r->sleeps++;
	return poll(&p, 1, HANG_MS) == 1 && read(r->bell, &n, sizeof(n)) == sizeof(n);
}

static void tell(struct race *r)
{
	uint64_t one = 1;

	tt_fence(); /* against the fence in sleep_until_told() */
	if (tt_load_relaxed(&r->armed) && tt_exchange(&r->armed, 0) &&
	    write(r->bell, &one, sizeof(one)) < 0)
		r->rx_err = -errno;
}

static void *sender(void *arg)
{
	struct race *r = arg;
	struct tt_bench *b = r->b;
	struct tt_rng rng = {b->rng.s + 1};

	while (b->sent < r->total && !tt_load_relaxed(&r->rx_err)) {
		size_t want = tt_rng_size(&rng, r->max_send);

		if (want > r->total - b->sent)
			want = (size_t)(r->total - b->sent);
		ssize_t n = tt_bench_send(b, want);

		if (n == -EAGAIN && !r->told)
			sched_yield();
		else if (n == -EAGAIN && !sleep_until_told(r))
			n = -ETIMEDOUT;
		if (n < 0 && n != -EAGAIN) {
			tt_store_relaxed(&r->tx_err, (int)n);
			break;
		}
	}
	return NULL;
}

static void *receiver(void *arg)
{
	static _Thread_local unsigned char buf[256 << 10];
	struct race *r = arg;
	struct tt_bench *b = r->b;
	struct tt_rng rng = {b->rng.s + 2};
	bool room;

	while (b->received < r->total && !tt_load_relaxed(&r->tx_err)) {
		uint32_t want = r->fixed_recv ? r->max_recv : tt_rng_size(&rng, r->max_recv);
		ssize_t n = tt_bench_recv(b, buf, want, &room);

		if (n > 0 && room)
			tell(r);
		if (r->idles && (n == -EAGAIN || tt_rng_below(&rng, 64) == 0))
			tt_stream_idle(&b->in, &b->rx);
		if (n == -EAGAIN)
			sched_yield();
		else if (n < 0)
			tt_store_relaxed(&r->rx_err, (int)n);
		if (n < 0 && n != -EAGAIN)
			break;
	}
	return NULL;
}

static void run_race(struct race *r, uint32_t nchunks, uint32_t chunk_bytes, uint64_t seed)
{
	pthread_t tx, rx;

	r->b = tt_bench_make(nchunks, chunk_bytes, seed);
	r->bell = eventfd(0, EFD_CLOEXEC);
	assert_non_null(r->b);
	assert_true(r->bell >= 0);
	assert_int_equal(pthread_create(&tx, NULL, sender, r), 0);
	assert_int_equal(pthread_create(&rx, NULL, receiver, r), 0);
	pthread_join(tx, NULL);
	pthread_join(rx, NULL);
	if (r->tx_err || r->rx_err || r->b->received != r->total)
		fail_msg("seed %llu: errors %d %d, reads %u, sent %llu, received %llu",
			 (unsigned long long)seed, r->tx_err, r->rx_err, r->max_recv,
			 (unsigned long long)r->b->sent, (unsigned long long)r->b->received);
	tt_stream_idle(&r->b->in, &r->b->rx);
	assert_int_equal(tt_link_free_chunks(r->b->link), nchunks);
	tt_bench_destroy(r->b);
	close(r->bell);
}

static void test_full_speed(void **state)
{
	uint32_t chunk = tt_stream_geometry().chunk_bytes;
	struct race small = {.total = (128u << 20) / SCALE, .max_send = 800, .max_recv = 3000};
	struct race bulk = {.total = (1u << 30) / SCALE, .max_send = 400000, .max_recv = 200000};
	struct race mixed = {.total = (256u << 20) / SCALE, .max_send = 9000, .max_recv = 9000};

	run_race(&small, 2, chunk, 1);
	run_race(&bulk, 2, chunk, 2);
	run_race(&mixed, 2, 4096, 3);
	run_race(&mixed, 0, 0, 4);
}

static void test_chunks_are_taken_away(void **state)
{
	struct race bulk = {
		.total = (512u << 20) / SCALE, .max_send = 60000, .max_recv = 50000, .idles = true};
	struct race mixed = {
		.total = (128u << 20) / SCALE, .max_send = 3000, .max_recv = 9000, .idles = true};

	run_race(&bulk, 4, 65536, 5);
	run_race(&mixed, 4, 4096, 6);
	run_race(&mixed, 1, 4096, 7);
}

/* The quarter and the half: see room_matters() in stream.c. */
static void test_room_is_told(void **state)
{
	static const uint32_t reads[] = {1,    7,    100,  511,	 512,  513,  1023, 1024,
					 1025, 1500, 2047, 2048, 2049, 4095, 5000, 65535};
	unsigned sleeps = 0;

	for (size_t i = 0; i < sizeof(reads) / sizeof(reads[0]); i++)
		for (unsigned k = 0; k < 4; k++) {
			struct race r = {.total = (reads[i] < 64 ? 128u << 10 : 2u << 20) / SCALE,
					 .max_send = k & 1 ? 300 : 5000,
					 .max_recv = reads[i],
					 .fixed_recv = true,
					 .idles = k == 3,
					 .told = true};

			run_race(&r, k < 2 ? 0 : 2, k < 2 ? 0 : 8192, 100 + i * 4 + k);
			sleeps += r.sleeps;
		}
	assert_true(sleeps > 0); /* else nothing was tested */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_full_speed),
		cmocka_unit_test(test_chunks_are_taken_away),
		cmocka_unit_test(test_room_is_told),
	};

	tt_bench_fill_pattern();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
