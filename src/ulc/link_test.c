/* SPDX-License-Identifier: MIT */
/* Links: what is not let in, and chunks and waiters that belong to one at a time. */
#include "ulc/link_test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cmocka.h>

static const struct tt_link_geometry good = {
	.nslots = 8, .window_bytes = 256, .nwaiters = 4, .nchunks = 70, .chunk_bytes = 4096};

/* ---- geometry ---- */

static void test_geometry_is_checked(void **state)
{
	static const struct tt_link_geometry bad[] = {
		{0, 256, 4, 4, 4096},
		{TT_LINK_MAX_SLOTS + 1, 256, 4, 4, 4096},
		{8, 0, 4, 4, 4096},
		{8, 32, 4, 4, 4096},
		{8, 100, 4, 4, 4096},
		{8, (1u << 30) + 64, 4, 4, 4096},
		{8, 0xffffffc0, 4, 4, 4096},
		{8, 256, 1, 4, 4096},
		{8, 256, TT_LINK_MAX_WAITERS + 1, 4, 4096},
		{8, 256, 4, TT_LINK_MAX_CHUNKS + 1, 4096},
		{8, 256, 4, 4, 0},
		{8, 256, 4, 4, 2048},
		{8, 256, 4, 4, 5000},
		{8, 256, 4, 4, 1u << 25},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(tt_link_bytes(&bad[i]), 0);
		assert_int_equal(tt_link_create(&bad[i]), -EINVAL);
	}
	struct tt_link_geometry bare = {1, 64, 2, 0, 0};

	assert_int_equal(tt_link_bytes(&bare), 5 * 4096);
	assert_int_equal(tt_link_bytes(&good), 5 * 4096 + 70 * 4096);
}

static void test_both_sides_meet(void **state)
{
	struct tt_link *a, *b;
	int fd = tt_link_create(&good);

	assert_true(fd >= 0);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(tt_link_map(fd, 0, &a), 0);
	assert_int_equal(tt_link_map(fd, 1, &b), 0);
	assert_memory_equal(&a->g, &good, sizeof(good));
	for (uint32_t slot = 0; slot < good.nslots; slot++) {
		memset(tt_link_tx_window(a, slot), (int)slot + 1, good.window_bytes);
		memset(tt_link_tx_window(b, slot), (int)slot + 101, good.window_bytes);
	}
	for (uint32_t c = 0; c < good.nchunks; c++)
		*(uint32_t *)tt_link_chunk(a, c) = c;
	for (uint32_t slot = 0; slot < good.nslots; slot++) {
		unsigned char *at_a = tt_link_rx_window(a, slot),
			      *at_b = tt_link_rx_window(b, slot);

		assert_int_equal(at_b[0], slot + 1);
		assert_int_equal(at_b[good.window_bytes - 1], slot + 1);
		assert_int_equal(at_a[0], slot + 101);
		assert_int_equal(at_a[good.window_bytes - 1], slot + 101);
	}
	for (uint32_t c = 0; c < good.nchunks; c++)
		assert_int_equal(*(uint32_t *)tt_link_chunk(b, c), c);
	assert_int_equal(tt_link_free_chunks(a), good.nchunks);
	a->my_waiters[3].bell = 77;
	assert_int_equal(b->peer_waiters[3].bell, 77);
	tt_link_unmap(a);
	tt_link_unmap(b);
	tt_link_unmap(NULL);
	close(fd);
}

static int sealed_file(size_t bytes, const void *head, size_t head_bytes)
{
	int fd = tt_shm_create("test", bytes);
	void *base;
	size_t mapped;

	assert_true(fd >= 0);
	assert_int_equal(tt_shm_map(fd, 0, &base, &mapped), 0);
	memcpy(base, head, head_bytes);
	tt_shm_unmap(base, mapped);
	return fd;
}

static void refuse(int fd)
{
	struct tt_link *l = (void *)1;

	assert_int_equal(tt_link_map(fd, 0, &l), -EPROTO);
	assert_ptr_equal(l, (void *)1);
	close(fd);
}

static struct tt_link_header header(void)
{
	return (struct tt_link_header){
		.magic = TT_LINK_MAGIC, .version = TT_LINK_VERSION, .geometry = good};
}

static void test_bad_headers_are_refused(void **state)
{
	struct tt_link_header h = header();
	struct tt_link *l;
	size_t bytes = tt_link_bytes(&good);
	int fd = sealed_file(bytes, &h, sizeof(h));

	assert_int_equal(tt_link_map(fd, 0, &l), 0); /* the header as such is good */
	tt_link_unmap(l);
	close(fd);
	h.magic++;
	refuse(sealed_file(bytes, &h, sizeof(h)));
	h = header();
	h.version++;
	refuse(sealed_file(bytes, &h, sizeof(h)));
	h = header();
	h.geometry.nslots = 0;
	refuse(sealed_file(bytes, &h, sizeof(h)));
	h = header();
	h.geometry.nchunks = TT_LINK_MAX_CHUNKS; /* more than the file holds */
	refuse(sealed_file(bytes, &h, sizeof(h)));
	h = header();
	h.geometry.nslots = TT_LINK_MAX_SLOTS;
	h.geometry.window_bytes = 1u << 30;
	refuse(sealed_file(bytes, &h, sizeof(h)));
	h = header();
	refuse(sealed_file(bytes - 1, &h, sizeof(h)));
	refuse(sealed_file(sizeof(h) - 1, &h, sizeof(h) - 1));
}

static void test_unsealed_file_is_refused(void **state)
{
	struct tt_link_header h = header();
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)tt_link_bytes(&good)), 0);
	assert_int_equal(pwrite(fd, &h, sizeof(h), 0), sizeof(h));
	refuse(fd);
	refuse(open("/dev/null", O_RDWR | O_CLOEXEC));
	refuse(-1);
}

/* The peer may rewrite the header later: the copy stands. */
static void test_geometry_is_copied(void **state)
{
	struct tt_link *l;

	assert_int_equal(tt_link_make(&good, &l), 0);
	memset(&l->hdr->geometry, 0xff, sizeof(l->hdr->geometry));
	memset(l->hdr->free_chunks, 0xff, sizeof(l->hdr->free_chunks));
	assert_memory_equal(&l->g, &good, sizeof(good));
	for (uint32_t i = 0; i < good.nchunks; i++)
		assert_int_equal(tt_link_chunk_get(l), i);
	assert_int_equal(tt_link_chunk_get(l), -EAGAIN);
	tt_link_unmap(l);
}

/* ---- chunks ---- */

static void test_chunks_go_and_come(void **state)
{
	struct tt_link *l;
	unsigned char *high;

	assert_int_equal(tt_link_make(&good, &l), 0);
	for (uint32_t i = 0; i < good.nchunks; i++)
		assert_int_equal(tt_link_chunk_get(l), i);
	assert_int_equal(tt_link_chunk_get(l), -EAGAIN);
	assert_int_equal(tt_link_free_chunks(l), 0);
	high = tt_link_chunk(l, 69);
	high[0] = 1;
	tt_link_chunk_put(l, 69, SIZE_MAX);
	assert_int_equal(high[0], 0); /* its page went back to the system */
	high = tt_link_chunk(l, 1);
	high[0] = 1;
	tt_link_chunk_put(l, 1, SIZE_MAX);
	assert_int_equal(high[0], 1);
	tt_link_chunk_put(l, 70, SIZE_MAX);
	tt_link_chunk_put(l, UINT32_MAX, SIZE_MAX);
	assert_int_equal(tt_link_free_chunks(l), 2);
	assert_int_equal(tt_link_chunk_get(l), 1);
	assert_int_equal(tt_link_chunk_get(l), 69);
	tt_link_unmap(l);
}

#define THREADS 4

struct taker {
	struct tt_link *l;
	uint32_t *owned; /* by chunk */
	uint32_t seed;
	int twice, got;
};

static void *take_and_put(void *arg)
{
	struct taker *t = arg;
	struct tt_rng rng = {t->seed};
	int held[24], n = 0;

	for (int i = 0; i < 40000; i++) {
		if (n < 24 && tt_rng_below(&rng, 2)) {
			int c = tt_link_chunk_get(t->l);

			if (c < 0)
				continue;
			if (tt_exchange(&t->owned[c], 1))
				t->twice++;
			/* Plain writes: ThreadSanitizer sees if two have it without order. */
			*(uint32_t *)tt_link_chunk(t->l, (uint32_t)c) = t->seed;
			held[n++] = c;
			t->got++;
		} else if (n > 0) {
			int c = held[--n];

			tt_store_relaxed(&t->owned[c], 0u);
			tt_link_chunk_put(t->l, (uint32_t)c, SIZE_MAX);
		}
	}
	while (n > 0) {
		tt_store_relaxed(&t->owned[held[--n]], 0u);
		tt_link_chunk_put(t->l, (uint32_t)held[n], SIZE_MAX);
	}
	return NULL;
}

static void test_chunks_have_one_owner(void **state)
{
	/* Few enough that they run out, in two words of the map. */
	struct tt_link_geometry g = good;
	struct taker t[THREADS];
	pthread_t id[THREADS];
	static uint32_t owned[TT_LINK_MAX_CHUNKS];
	struct tt_link *l;

	assert_int_equal(tt_link_make(&g, &l), 0);
	for (uint32_t i = 0; i < THREADS; i++) {
		t[i] = (struct taker){l, owned, i + 1, 0, 0};
		assert_int_equal(pthread_create(&id[i], NULL, take_and_put, &t[i]), 0);
	}
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_join(id[i], NULL);
	for (uint32_t i = 0; i < THREADS; i++) {
		assert_int_equal(t[i].twice, 0);
		assert_true(t[i].got > 1000);
	}
	assert_int_equal(tt_link_free_chunks(l), g.nchunks);
	tt_link_unmap(l);
}

/* ---- waiters ---- */

static void test_waiters(void **state)
{
	struct tt_link *l;

	assert_int_equal(tt_link_make(&good, &l), 0);
	assert_int_equal(tt_link_waiter_get(l), 1); /* 0 means none */
	assert_int_equal(tt_link_waiter_get(l), 2);
	assert_int_equal(tt_link_waiter_get(l), 3);
	assert_int_equal(tt_link_waiter_get(l), -EAGAIN);
	assert_int_equal(l->my_waiters[2].owner, getpid());
	l->my_waiters[2].armed = 1;
	tt_link_waiter_put(l, 2);
	assert_int_equal(l->my_waiters[2].armed, 0);
	assert_int_equal(l->my_waiters[2].owner, 0);
	tt_link_waiter_put(l, 0);
	tt_link_waiter_put(l, 4);
	tt_link_waiter_put(l, UINT32_MAX);
	assert_int_equal(tt_link_waiter_get(l), 2);
	assert_int_equal(tt_link_waiter_get(l), -EAGAIN);

	struct tt_link peer = tt_link_mirror(l);

	assert_int_equal(tt_link_waiter_get(&peer), 1); /* each side has its own */
	tt_link_unmap(l);
}

static void test_waiters_of_the_dead(void **state)
{
	struct tt_link *l;

	assert_int_equal(tt_link_make(&good, &l), 0);
	assert_int_equal(tt_link_waiter_get(l), 1);
	pid_t child = fork();

	assert_true(child >= 0);
	if (child == 0)
		_exit(tt_link_waiter_get(l) == 2 && tt_link_waiter_get(l) == 3 ? 0 : 1);
	int status;

	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(l->my_waiters[3].owner, child);
	assert_int_equal(tt_link_waiter_get(l), 2);
	assert_int_equal(tt_link_waiter_get(l), 3);
	assert_int_equal(l->my_waiters[3].owner, getpid());
	/* The living keep theirs. What is no process, a peer's garbage, too. */
	assert_int_equal(tt_link_waiter_get(l), -EAGAIN);
	l->my_waiters[2].owner = -1;
	assert_int_equal(tt_link_waiter_get(l), -EAGAIN);
	tt_link_unmap(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_geometry_is_checked),
		cmocka_unit_test(test_both_sides_meet),
		cmocka_unit_test(test_bad_headers_are_refused),
		cmocka_unit_test(test_unsealed_file_is_refused),
		cmocka_unit_test(test_geometry_is_copied),
		cmocka_unit_test(test_chunks_go_and_come),
		cmocka_unit_test(test_chunks_have_one_owner),
		cmocka_unit_test(test_waiters),
		cmocka_unit_test(test_waiters_of_the_dead),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
