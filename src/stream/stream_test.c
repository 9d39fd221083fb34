/* SPDX-License-Identifier: MIT */
/*
 * Streams in one thread: random calls against a model, room that is told,
 * and a peer that writes garbage.
 */
#include "stream/bench_test.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define GUARD 0xa5

#ifdef __SANITIZE_ADDRESS__
#define SCALE 4
#else
#define SCALE 1
#endif

static unsigned char scratch[TT_BENCH_MAX];

/* Says where it was, for a repetition with the same seed. */
#define check(b, cond)                                                                             \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			print_error(                                                               \
				"seed %llu: sent %llu, received %llu, storage %u, switches %u\n",  \
				(unsigned long long)seed, (unsigned long long)(b)->sent,           \
				(unsigned long long)(b)->received, (b)->tx.store, (b)->tx.seq);    \
			fail_msg("%s", #cond);                                                     \
		}                                                                                  \
	} while (0)

/* ---- random calls ---- */

struct config {
	uint32_t nchunks, chunk_bytes;
	uint32_t max_send, max_recv;
	uint32_t bulk; /* percent of sends that may be large */
	uint32_t steps;
};

struct run {
	struct config c;
	struct tt_bench *b;
	uint64_t seed;
	int held[16]; /* chunks that somebody else has */
	unsigned nheld;
};

static size_t capacity(const struct run *r)
{
	return r->b->tx.store ? r->c.chunk_bytes : TT_STREAM_SMALL;
}

/* How the storage in use looks to a sender that knows all. */
static size_t used(const struct tt_bench *b)
{
	return (size_t)(b->tx.tail - (b->received > b->tx.base ? b->received : b->tx.base));
}

static void after_send(struct run *r, int err, size_t want, size_t n)
{
	struct tt_bench *b = r->b;
	uint64_t seed = r->seed;

	check(b, n <= want);
	check(b, err == (n ? 0 : -EAGAIN));
	b->sent += n;
	check(b, b->tx.tail == b->sent);
	check(b, n == want || used(b) == capacity(r));
}

static void send_vector(struct run *r, size_t want)
{
	struct tt_bench *b = r->b;
	struct iovec iov[5];
	size_t skip = tt_rng_below(&b->rng, 100), left = want + skip, n = 0;
	const unsigned char *at = tt_bench_bytes(b->sent + TT_BENCH_PERIOD - skip);
	int count = 0;

	while (count < 4) {
		size_t len = tt_rng_below(&b->rng, (uint32_t)left + 1);

		iov[count++] = (struct iovec){(void *)at, len};
		at += len;
		left -= len;
	}
	iov[count++] = (struct iovec){(void *)at, left};
	int err = tt_stream_send(&b->out, &b->tx, iov, count, skip, &n);

	after_send(r, err, want, n);
}

static void send_reserved(struct run *r, size_t want)
{
	struct tt_bench *b = r->b;
	uint64_t seed = r->seed;
	struct iovec place[2];
	size_t room = 0;
	int err = tt_stream_reserve(&b->out, &b->tx, want, place, &room);

	if (err < 0) {
		check(b, err == -EAGAIN && used(b) == capacity(r));
		return;
	}
	check(b, room >= 1 && room <= want);
	size_t n = tt_rng_below(&b->rng, 4) ? tt_rng_below(&b->rng, (uint32_t)room + 1) : room;

	tt_bench_fill(place, tt_bench_bytes(b->sent), n);
	tt_stream_commit(&b->out, &b->tx, n);
	b->sent += n;
}

static void op_send(struct run *r)
{
	struct tt_bench *b = r->b;
	bool large = tt_rng_below(&b->rng, 100) < r->c.bulk;
	size_t want = tt_rng_size(&b->rng, large ? r->c.max_send : 1024), n = 0;

	switch (tt_rng_below(&b->rng, 3)) {
	case 0: send_vector(r, want); break;
	case 1: send_reserved(r, want); break;
	default:;
		int err = tt_stream_send1(&b->out, &b->tx, tt_bench_bytes(b->sent), want, &n);

		after_send(r, err, want, n);
	}
}

static void op_recv(struct run *r)
{
	struct tt_bench *b = r->b;
	uint64_t seed = r->seed;
	size_t want = tt_rng_size(&b->rng, r->c.max_recv), there = (size_t)(b->sent - b->received);
	size_t first = tt_rng_below(&b->rng, (uint32_t)want + 1), n = 0;
	bool peek = tt_rng_below(&b->rng, 4) == 0, room;
	struct iovec iov[2] = {{scratch, first}, {scratch + first, want - first}};

	check(b, tt_stream_peek(&b->in, b->rx.head) == (there > 0));
	int err = tt_stream_recv(&b->in, &b->rx, iov, 2, peek, &n, &room);

	check(b, n == (want < there ? want : there));
	check(b, err == (n ? 0 : -EAGAIN));
	check(b, memcmp(scratch, tt_bench_bytes(b->received), n) == 0);
	check(b, !peek || !room);
	if (!peek)
		b->received += n;
	check(b, b->rx.head == b->received);
}

static void op_idle(struct run *r)
{
	struct tt_bench *b = r->b;
	uint64_t seed = r->seed;

	tt_stream_idle(&b->in, &b->rx);
	if (b->sent == b->received)
		check(b, tt_link_free_chunks(b->link) + r->nheld == r->c.nchunks);
}

static void op_ask(struct run *r)
{
	struct tt_bench *b = r->b;
	uint64_t n = 0, seed = r->seed;

	check(b, tt_stream_unread(&b->out, &b->tx, &n) == 0 && n == b->sent - b->received);
	n = 0;
	check(b, tt_stream_pending(&b->in, &b->rx, &n) == 0 && n == b->sent - b->received);
	bool small = !b->tx.store, full = used(b) > capacity(r) / 2;
	bool chunks = tt_link_free_chunks(b->link) > 0, ok = tt_stream_writable(&b->out, &b->tx);

	check(b, ok == (!full || (small && chunks)));
}

/* Other channels of the link take chunks and give them back. */
static void op_others(struct run *r)
{
	if (r->nheld && tt_rng_below(&r->b->rng, 2)) {
		tt_link_chunk_put(r->b->link, (uint32_t)r->held[--r->nheld], SIZE_MAX);
	} else if (r->nheld < 16) {
		int c = tt_link_chunk_get(r->b->link);

		if (c >= 0)
			r->held[r->nheld++] = c;
	}
}

static void finish(struct run *r)
{
	struct tt_bench *b = r->b;
	uint64_t seed = r->seed;
	bool room;

	while (b->received < b->sent)
		check(b, tt_bench_recv(b, scratch, sizeof(scratch), &room) > 0);
	op_idle(r);
	/* The way over chunks and back was taken, or the test tested nothing. */
	check(b, !r->c.nchunks || b->tx.seq > r->c.steps / 1000);
}

static void *guarded_link(uint32_t nchunks, uint32_t chunk_bytes, struct tt_link **ret_link);
static void check_guards(struct tt_link *l, size_t from_chunk);

static void run_random(const struct config *c, uint64_t seed)
{
	struct run r = {.c = *c, .seed = seed};
	struct tt_link *l;

	guarded_link(c->nchunks, c->chunk_bytes, &l);
	r.b = tt_bench_on(l, 1, seed);
	assert_non_null(r.b);
	for (uint32_t i = 0; i < c->steps / SCALE; i++) {
		/* Phases in which one end is the faster. */
		uint32_t roll = tt_rng_below(&r.b->rng, 100);
		uint32_t sends = (i / 256) % 3 * 20 + 25;

		if (roll < sends)
			op_send(&r);
		else if (roll < 80)
			op_recv(&r);
		else if (roll < 88)
			op_idle(&r);
		else if (roll < 96)
			op_ask(&r);
		else if (c->nchunks)
			op_others(&r);
	}
	while (r.nheld)
		tt_link_chunk_put(l, (uint32_t)r.held[--r.nheld], SIZE_MAX);
	finish(&r);
	check_guards(l, c->nchunks);
	tt_bench_destroy(r.b);
}

static void test_random_calls(void **state)
{
	static const struct config configs[] = {
		{.nchunks = 0, .max_send = 5000, .max_recv = 3000, .bulk = 50, .steps = 500000},
		{1, 4096, 9000, 6000, 30, 500000},
		{3, 4096, 9000, 6000, 5, 500000},
		{12, 65536, 100000, 70000, 20, 100000},
		{4, 256 << 10, 600000, 300000, 50, 20000},
	};

	for (size_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++)
		for (uint64_t seed = 1; seed <= 3; seed++)
			run_random(&configs[i], seed + 10 * i);
}

/* ---- guards ---- */

#define TAIL_BYTES 65536u

/*
 * A link in a file that goes on behind it; what slot 1 must leave alone is
 * filled with GUARD: other slots, waiters, the end of the file.
 */
static void *guarded_link(uint32_t nchunks, uint32_t chunk_bytes, struct tt_link **ret_link)
{
	struct tt_link_geometry g = tt_bench_geometry(nchunks, chunk_bytes);
	size_t bytes = tt_link_bytes(&g), mapped;
	int fd = tt_shm_create("test", bytes + TAIL_BYTES);
	void *base;

	assert_true(fd >= 0);
	assert_int_equal(tt_shm_map(fd, bytes, &base, &mapped), 0);
	struct tt_link_header *h = base;

	h->magic = TT_LINK_MAGIC;
	h->version = TT_LINK_VERSION;
	h->geometry = g;
	h->free_chunks[0] = nchunks ? ~0ull >> (64 - nchunks) : 0;
	memset((char *)base + bytes, GUARD, TAIL_BYTES);
	assert_int_equal(tt_link_map(fd, 0, ret_link), 0);
	tt_shm_unmap(base, mapped);
	close(fd);

	struct tt_link *l = *ret_link;

	memset(l->my_waiters, GUARD, 4 * sizeof(struct tt_waiter));
	memset(l->peer_waiters, GUARD, 4 * sizeof(struct tt_waiter));
	for (uint32_t slot = 0; slot < 4; slot++)
		if (slot != 1) {
			memset(tt_link_rx_window(l, slot), GUARD, g.window_bytes);
			memset(tt_link_tx_window(l, slot), GUARD, g.window_bytes);
		}
	return l->hdr;
}

static bool all_guard(const void *p, size_t n)
{
	const unsigned char *c = p;

	return n == 0 || (c[0] == GUARD && memcmp(c, c + 1, n - 1) == 0);
}

static void check_guards(struct tt_link *l, size_t nchunks)
{
	struct tt_link_geometry g = tt_bench_geometry((uint32_t)nchunks, l->g.chunk_bytes);

	assert_memory_equal(&l->hdr->geometry, &g, sizeof(g));
	assert_true(all_guard(l->my_waiters, 4 * sizeof(struct tt_waiter)));
	assert_true(all_guard(l->peer_waiters, 4 * sizeof(struct tt_waiter)));
	for (uint32_t slot = 0; slot < 4; slot++)
		if (slot != 1) {
			assert_true(all_guard(tt_link_rx_window(l, slot), g.window_bytes));
			assert_true(all_guard(tt_link_tx_window(l, slot), g.window_bytes));
		}
	assert_true(all_guard(l->chunks + nchunks * g.chunk_bytes, TAIL_BYTES));
}

/* ---- room is told ---- */

/*
 * A sender that met a full ring and then !writable sleeps until a receive says
 * ret_room. It must be told before all is read: else both wait for ever.
 */
static void run_told(uint32_t nchunks, uint32_t chunk_bytes, uint32_t max_recv, bool fixed,
		     uint64_t seed)
{
	struct tt_bench *b = tt_bench_make(nchunks, chunk_bytes, seed);
	bool asleep = false, room;
	unsigned sleeps = 0;

	assert_non_null(b);
	for (int i = 0; i < 100000 / SCALE; i++) {
		/* Between two receives the sender may get far or nowhere. */
		for (uint32_t k = tt_rng_below(&b->rng, 4); k > 0 && !asleep; k--) {
			ssize_t n = tt_bench_send(b, tt_rng_size(&b->rng, 3000));

			check(b, n > 0 || n == -EAGAIN);
			asleep = n == -EAGAIN && !tt_stream_writable(&b->out, &b->tx);
			sleeps += asleep;
		}
		uint32_t want = fixed ? max_recv : 1 + tt_rng_below(&b->rng, max_recv);
		ssize_t n = tt_bench_recv(b, scratch, want, &room);

		check(b, n > 0 || n == -EAGAIN);
		if (n > 0 && room)
			asleep = asleep && !tt_stream_writable(&b->out, &b->tx);
		check(b, !asleep || b->received < b->sent);
	}
	check(b, sleeps > 0 || max_recv > 4096 || nchunks);
	tt_bench_destroy(b);
}

static void test_room_is_told(void **state)
{
	static const uint32_t sizes[] = {3,    17,   255,  256,	 257,  511,  512,  513,	 700,
					 1023, 1024, 1025, 1365, 2047, 2048, 2049, 4095, 8191};
	uint64_t seed = 1;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		run_told(0, 0, sizes[i], true, seed++);
		run_told(0, 0, sizes[i], false, seed++);
		run_told(2, 4096, sizes[i], true, seed++);
		run_told(2, 4096, sizes[i], false, seed++);
	}
}

/* ---- single cases ---- */

static void test_first_bytes(void **state)
{
	struct tt_bench *b = tt_bench_make(2, 4096, 1);
	size_t n = 77;
	bool room = true;
	uint64_t left;

	assert_non_null(b);
	assert_int_equal(tt_stream_recv1(&b->in, &b->rx, scratch, 10, false, &n, &room), -EAGAIN);
	assert_false(room);
	assert_int_equal(n, 0);
	assert_int_equal(tt_stream_send1(&b->out, &b->tx, "hello", 5, &n), 0);
	assert_int_equal(n, 5);
	assert_int_equal(tt_stream_unread(&b->out, &b->tx, &left), 0);
	assert_int_equal(left, 5);
	assert_int_equal(tt_stream_recv1(&b->in, &b->rx, scratch, 2, true, &n, &room), 0);
	assert_int_equal(n, 2);
	assert_memory_equal(scratch, "he", 2);
	assert_int_equal(tt_stream_recv1(&b->in, &b->rx, scratch, 10, false, &n, &room), 0);
	assert_int_equal(n, 5);
	assert_memory_equal(scratch, "hello", 5);
	assert_int_equal(tt_stream_unread(&b->out, &b->tx, &left), 0);
	assert_int_equal(left, 0);
	assert_int_equal(tt_link_free_chunks(b->link), 2);
	tt_bench_destroy(b);
}

static void test_nothing_is_sent(void **state)
{
	struct tt_bench *b = tt_bench_make(2, 4096, 1);
	size_t n = 77;

	assert_non_null(b);
	assert_int_equal(tt_stream_send1(&b->out, &b->tx, "", 0, &n), 0);
	assert_int_equal(n, 0);
	n = 77;
	assert_int_equal(tt_stream_send(&b->out, &b->tx, NULL, 0, 0, &n), 0);
	assert_int_equal(n, 0);
	assert_false(tt_stream_peek(&b->in, b->rx.head));
	tt_bench_destroy(b);
}

/* A chunk that was borrowed and not written to goes back like any other. */
static void test_unused_chunk_returns(void **state)
{
	struct tt_bench *b = tt_bench_make(2, 4096, 1);
	struct iovec place[2];
	size_t n;
	bool room;

	assert_non_null(b);
	assert_int_equal(tt_stream_reserve(&b->out, &b->tx, 4000, place, &n), 0);
	tt_stream_commit(&b->out, &b->tx, 0);
	assert_int_equal(tt_link_free_chunks(b->link), 1);
	tt_stream_idle(&b->in, &b->rx);
	assert_int_equal(tt_link_free_chunks(b->link), 2);

	assert_int_equal(tt_bench_send(b, 1000), 1000);
	assert_int_equal(tt_bench_send(b, 1000), 1000);
	assert_true(tt_stream_writable(&b->out, &b->tx)); /* because it borrowed */
	assert_int_equal(tt_bench_recv(b, scratch, 4000, &room), 2000);
	tt_stream_idle(&b->in, &b->rx);
	assert_int_equal(tt_link_free_chunks(b->link), 2);
	assert_int_equal(tt_bench_send(b, 3000), 3000);
	assert_int_equal(tt_bench_recv(b, scratch, 4000, &room), 3000);
	tt_bench_destroy(b);
}

static void test_reset_returns_chunks(void **state)
{
	struct tt_bench *b = tt_bench_make(4, 4096, 1);
	static const struct tt_stream_window none;

	assert_non_null(b);
	assert_int_equal(tt_bench_send(b, 3000), 3000);
	assert_int_equal(tt_link_free_chunks(b->link), 3);
	tt_stream_reset(b->link, 1);
	assert_int_equal(tt_link_free_chunks(b->link), 4);
	assert_memory_equal(b->out.tx, &none, sizeof(none) - TT_STREAM_SMALL);
	assert_memory_equal(b->out.rx, &none, sizeof(none) - TT_STREAM_SMALL);
	tt_bench_destroy(b);
}

/*
 * All that can be on the way: a chunk that filled up just before the receiver
 * took it away, the small ring behind it, and the next chunk.
 */
static void test_most_unread(void **state)
{
	const uint32_t chunk = 256u << 10;
	struct tt_bench *b = tt_bench_make(4, chunk, 1);
	bool room;

	assert_non_null(b);
	assert_int_equal(tt_bench_send(b, 5000), 5000);
	assert_int_equal(tt_bench_recv(b, scratch, 5000, &room), 5000);
	assert_int_equal(tt_bench_send(b, chunk), chunk);
	/* As tt_stream_idle does whose look at the tail was before that. */
	b->in.rx->lease = 0;
	b->rx.orphan = b->rx.store;
	b->rx.orphan_end = b->sent;
	assert_int_equal(tt_bench_send(b, 1000), 1000);
	assert_int_equal(tt_bench_send(b, 1000), 1000);
	while (tt_bench_send(b, chunk) > 0)
		;
	assert_true(b->sent - b->received >= 2 * chunk + 1000);
	while (b->received < b->sent)
		assert_true(tt_bench_recv(b, scratch, 100000, &room) > 0);
	tt_bench_destroy(b);
}

/* ---- a hostile peer ---- */

static uint64_t odd_value(struct tt_bench *b, uint64_t near)
{
	static const uint64_t values[] = {
		0, 1, 2, 255, 0x7fffffff, 0x80000000, 0xffffffff, 1ull << 63, UINT64_MAX, 12345};

	switch (tt_rng_below(&b->rng, 3)) {
	case 0: return values[tt_rng_below(&b->rng, sizeof(values) / sizeof(values[0]))];
	case 1: return near + tt_rng_below(&b->rng, 6000) - 3000;
	default: return tt_rng_next(&b->rng);
	}
}

static void scribble(struct tt_bench *b)
{
	struct tt_stream_window *w = tt_rng_below(&b->rng, 2) ? b->in.rx : b->out.rx;
	uint32_t k = tt_rng_below(&b->rng, 2);

	switch (tt_rng_below(&b->rng, 8)) {
	case 0: w->tail = odd_value(b, b->tx.tail); break;
	case 1: w->sw_pos[k] = odd_value(b, b->rx.head); break;
	case 2: w->sw_store[k] = (uint32_t)odd_value(b, 4); break;
	case 3: w->sw_seq = (uint32_t)odd_value(b, b->rx.seq + 1); break;
	case 4: w->head = odd_value(b, b->tx.tail); break;
	case 5: w->lease = (uint32_t)odd_value(b, b->tx.store << 1); break;
	case 6: w->flags = (uint32_t)tt_rng_next(&b->rng); break;
	default: b->link->hdr->free_chunks[k * 3] |= tt_rng_next(&b->rng) & tt_rng_next(&b->rng);
	}
}

static bool allowed(int err)
{
	return err == 0 || err == -EAGAIN || err == -EPROTO;
}

static int hostile_recv(struct tt_bench *b)
{
	size_t want = tt_rng_size(&b->rng, 9000), n = 0;
	unsigned char *buf = malloc(want); /* so that a byte too many is seen */
	bool room;

	assert_non_null(buf);
	int err = tt_stream_recv1(&b->in, &b->rx, buf, want, tt_rng_below(&b->rng, 4) == 0, &n,
				  &room);

	assert_true(n <= want);
	free(buf);
	return err;
}

static int hostile_reserve(struct tt_bench *b)
{
	struct iovec place[2];
	size_t n, want = tt_rng_size(&b->rng, 9000);
	int err = tt_stream_reserve(&b->out, &b->tx, want, place, &n);

	if (err == 0) {
		assert_true(n <= want);
		assert_int_equal(place[0].iov_len + place[1].iov_len, n);
		memset(place[0].iov_base, 1, place[0].iov_len);
		memset(place[1].iov_base, 1, place[1].iov_len);
		tt_stream_commit(&b->out, &b->tx, tt_rng_below(&b->rng, (uint32_t)n + 1));
	}
	return err;
}

static int hostile_call(struct tt_bench *b)
{
	size_t n = 0, want = tt_rng_size(&b->rng, 9000);
	uint64_t u;
	int err = 0;

	switch (tt_rng_below(&b->rng, 9)) {
	case 0:
	case 1:
		err = tt_stream_send1(&b->out, &b->tx, scratch, want, &n);
		assert_true(n <= want);
		return err;
	case 2: return hostile_reserve(b);
	case 3: return tt_stream_unread(&b->out, &b->tx, &u);
	case 4: tt_stream_writable(&b->out, &b->tx); return 0;
	case 5:
		if (tt_rng_below(&b->rng, 4) == 0)
			tt_stream_tx_recover(&b->out, &b->tx);
		return 0;
	case 6: tt_stream_idle(&b->in, &b->rx); return 0;
	case 7: return tt_stream_pending(&b->in, &b->rx, &u);
	default: return hostile_recv(b);
	}
}

static void run_hostile(uint32_t nchunks, uint64_t seed)
{
	struct tt_link *l;

	guarded_link(nchunks, 4096, &l);
	struct tt_bench *b = tt_bench_on(l, 1, seed);
	unsigned broken = 0;

	assert_non_null(b);
	for (int i = 0; i < 400000 / SCALE; i++) {
		int err = hostile_call(b);

		check(b, allowed(err));
		check(b, b->tx.head_seen <= b->tx.tail && b->tx.base <= b->tx.tail);
		check(b, b->tx.store <= nchunks && b->rx.store <= nchunks);
		if (err == -EPROTO) {
			/* The connection is over; the channel serves the next one. */
			broken++;
			tt_stream_reset(l, 1);
			l->hdr->free_chunks[0] = nchunks ? ~0ull >> (64 - nchunks) : 0;
			tt_stream_tx_init(&b->tx);
			tt_stream_rx_init(&b->rx);
		}
		if (tt_rng_below(&b->rng, 8) == 0)
			scribble(b);
	}
	check(b, broken > 100);
	check_guards(l, nchunks);
	tt_bench_destroy(b);
}

static void test_hostile_peer(void **state)
{
	for (uint64_t seed = 1; seed <= 8; seed++)
		run_hostile(seed % 2 ? 3 : 10, seed);
}

/* Recovery reads the tail back from where the peer may have written. */
static void test_hostile_recover(void **state)
{
	struct tt_link *l;
	bool room;

	guarded_link(0, 0, &l);
	struct tt_bench *b = tt_bench_on(l, 1, 1);

	assert_non_null(b);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(tt_bench_send(b, 2048), 2048);
		assert_int_equal(tt_bench_recv(b, scratch, 2048, &room), 2048);
	}
	uint64_t n;

	assert_int_equal(tt_stream_unread(&b->out, &b->tx, &n), 0);
	b->out.tx->tail = 0;
	tt_stream_tx_recover(&b->out, &b->tx);
	assert_true(tt_bench_send(b, 100000) <= 2048);
	check_guards(l, 0);
	tt_bench_destroy(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_first_bytes),
		cmocka_unit_test(test_nothing_is_sent),
		cmocka_unit_test(test_unused_chunk_returns),
		cmocka_unit_test(test_reset_returns_chunks),
		cmocka_unit_test(test_most_unread),
		cmocka_unit_test(test_random_calls),
		cmocka_unit_test(test_room_is_told),
		cmocka_unit_test(test_hostile_recover),
		cmocka_unit_test(test_hostile_peer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
