/* SPDX-License-Identifier: MIT */
/* A side's table of connections, shared by processes that may die at any step. */
#include "base/shm.h"
#include "base/step_test.h"
#include "sock/side.h"
#include "ulc/link_test.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static struct tt_side_mem *make_side(void)
{
	struct tt_side_mem *m;
	int fd = tt_side_create("a program with a name of more than 31 letters");

	assert_true(fd >= 0);
	assert_int_equal(tt_side_map(fd, &m), 0);
	close(fd);
	return m;
}

static void drop_side(struct tt_side_mem *m)
{
	tt_shm_unmap(m, sizeof(*m));
}

/* ---- soundness ---- */

struct census {
	uint32_t listed, free, lost;
};

static uint32_t bucket(uint64_t cookie)
{
	return (uint32_t)((cookie * 0x9e3779b97f4a7c15ull) >> 49);
}

/*
 * Every list ends, nothing is in two places, what is in a bucket belongs
 * there. 0: sound; else the line of the check that failed.
 */
static int take_census(struct tt_side_mem *m, struct census *ret)
{
	static unsigned char where[TT_SIDE_ENTRIES];

	memset(ret, 0, sizeof(*ret));
	memset(where, 0, m->used);
	if (m->used > TT_SIDE_ENTRIES)
		return __LINE__;
	for (uint32_t b = 0; b < TT_SIDE_BUCKETS; b++)
		for (uint32_t i = m->buckets[b]; i; i = m->entries[i - 1].next) {
			if (i > m->used || where[i - 1]++)
				return __LINE__;
			if (m->entries[i - 1].state == TT_ENTRY_USED &&
			    bucket(m->entries[i - 1].cookie) != b)
				return __LINE__;
			ret->listed++;
		}
	for (uint32_t i = m->free_list; i; i = m->entries[i - 1].next) {
		if (i > m->used || where[i - 1]++ || m->entries[i - 1].state != TT_ENTRY_FREE)
			return __LINE__;
		ret->free++;
	}
	ret->lost = m->used - ret->listed - ret->free;
	return 0;
}

static struct tt_entry *get(struct tt_side_mem *m, uint64_t cookie, bool create, bool want_new)
{
	bool is_new = !want_new;
	struct tt_entry *e = tt_side_entry_get(m, cookie, create, &is_new);

	assert_int_equal(is_new, want_new);
	return e;
}

/* ---- one process ---- */

static void test_create_and_map(void **state)
{
	struct tt_side_mem *m = make_side();

	assert_int_equal(m->magic, TT_SIDE_MAGIC);
	assert_int_equal(m->spin_usec, UINT32_MAX);
	assert_int_equal(m->id, 0);
	assert_int_not_equal(m->secret, 0);
	assert_string_equal(m->name, "a program with a name of more t");
	drop_side(m);

	struct tt_side_mem *none = NULL;
	int fd = tt_shm_create("test", sizeof(*m));

	assert_int_equal(tt_side_map(fd, &none), -EPROTO); /* no magic */
	close(fd);
	fd = tt_shm_create("test", 4096);
	assert_int_equal(tt_side_map(fd, &none), -EPROTO); /* too short */
	close(fd);
	assert_null(none);
}

static void test_get_and_put(void **state)
{
	struct tt_side_mem *m = make_side();

	assert_null(get(m, 42, false, false));
	struct tt_entry *e = get(m, 42, true, true);

	assert_non_null(e);
	assert_int_equal(e->cookie, 42);
	assert_int_equal(e->state, TT_ENTRY_USED);
	assert_int_equal(e->pid, getpid());
	assert_int_equal(e->grant, 0);
	assert_int_equal(e->rx.next_pos[0], UINT64_MAX);
	assert_int_equal(tt_side_entry_index(m, e), 0);
	assert_ptr_equal(get(m, 42, false, false), e);
	assert_ptr_equal(get(m, 42, true, false), e);
	assert_int_equal(tt_side_lock(&e->tx_lock), 0);
	assert_int_equal(tt_side_lock(&e->tx_lock), -EDEADLK);
	tt_side_unlock(&e->tx_lock);

	uint32_t generation = e->generation;

	tt_side_entry_put(m, e, generation + 1); /* somebody else's: no effect */
	assert_ptr_equal(get(m, 42, false, false), e);
	e->grant = e->shadow = e->reason = 3;
	tt_side_entry_put(m, e, generation);
	assert_null(get(m, 42, false, false));
	tt_side_entry_put(m, e, generation + 1); /* free already: no effect */

	struct tt_entry *again = get(m, 43, true, true);

	assert_ptr_equal(again, e); /* reused, and clean */
	assert_int_equal(again->generation, generation + 1);
	assert_int_equal(again->grant + again->shadow + again->reason, 0);
	tt_side_entry_put(m, e, generation); /* a late one of the old connection */
	assert_ptr_equal(get(m, 43, false, false), e);
	drop_side(m);
}

/* The inverse of the hash's factor: cookies of one bucket. */
static uint64_t colliding(uint64_t n)
{
	uint64_t f = 0x9e3779b97f4a7c15ull, inv = f;

	for (int i = 0; i < 6; i++)
		inv *= 2 - f * inv;
	return (5ull << 49 | n) * inv;
}

static void test_collisions(void **state)
{
	struct tt_side_mem *m = make_side();
	struct tt_entry *e[20];
	struct census c;

	for (uint32_t i = 0; i < 20; i++) {
		assert_int_equal(bucket(colliding(i)), 5);
		e[i] = get(m, colliding(i), true, true);
	}
	for (uint32_t i = 0; i < 20; i++)
		assert_ptr_equal(get(m, colliding(i), false, false), e[i]);
	/* From the head, the middle and the end of the bucket. */
	static const uint32_t out[] = {19, 7, 0, 8};

	for (uint32_t k = 0; k < 4; k++)
		tt_side_entry_put(m, e[out[k]], e[out[k]]->generation);
	for (uint32_t i = 0; i < 20; i++) {
		bool gone = i == 19 || i == 7 || i == 0 || i == 8;

		assert_ptr_equal(get(m, colliding(i), false, false), gone ? NULL : e[i]);
	}
	assert_int_equal(take_census(m, &c), 0);
	assert_int_equal(c.listed, 16);
	assert_int_equal(c.free, 4);
	drop_side(m);
}

static void test_dead_before_growth(void **state)
{
	struct tt_side_mem *m = make_side();
	struct census c;

	for (uint64_t i = 1; i <= 128; i++)
		assert_non_null(get(m, i, true, true));
	/* Few are dead: the table grows, and what was taken back is used next. */
	get(m, 5, false, false)->dead = get(m, 5, false, false)->generation + 1;
	assert_non_null(get(m, 129, true, true));
	assert_int_equal(m->used, 129);
	assert_null(get(m, 5, false, false));
	assert_non_null(get(m, 130, true, true));
	assert_int_equal(m->used, 129);

	/* A thousand that come and go, found dead by and by: it does not grow further. */
	for (uint64_t i = 131; i <= 1000; i++) {
		struct tt_entry *e = get(m, i, true, true);

		e->dead = e->generation + 1;
	}
	assert_in_range(m->used, 130, 256);
	assert_int_equal(take_census(m, &c), 0);
	assert_int_equal(c.lost, 0);
	drop_side(m);
}

static void test_full_table(void **state)
{
	struct tt_side_mem *m = make_side();
	struct census c;

	for (uint64_t i = 1; i <= TT_SIDE_ENTRIES; i++)
		assert_non_null(get(m, i, true, true));
	assert_int_equal(m->used, TT_SIDE_ENTRIES);
	assert_null(get(m, 1 << 20, true, false));
	assert_non_null(get(m, 1, true, false)); /* what is there is found */

	/* The daemon's word counts for the generation that it saw. */
	struct tt_entry *gone = get(m, 1000, false, false), *late = get(m, 1001, false, false);

	gone->dead = gone->generation + 1;
	late->dead = late->generation + 2;
	assert_ptr_equal(get(m, 1 << 20, true, true), gone);
	assert_null(get(m, 1000, false, false));
	assert_ptr_equal(get(m, 1001, false, false), late);
	assert_null(get(m, 2 << 20, true, false));
	assert_int_equal(take_census(m, &c), 0);
	assert_int_equal(c.listed, TT_SIDE_ENTRIES);
	drop_side(m);
}

/* ---- death under the lock ---- */

struct call {
	struct tt_side_mem *m;
	uint64_t cookie;
	bool put;
};

static void do_call(void *arg)
{
	struct call *c = arg;
	bool is_new;
	struct tt_entry *e = tt_side_entry_get(c->m, c->cookie, !c->put, &is_new);

	if (c->put)
		tt_side_entry_put(c->m, e, e->generation);
}

/* Three in one bucket, one elsewhere, two free. */
static struct tt_side_mem *populated_side(void)
{
	struct tt_side_mem *m = make_side();
	struct tt_entry *e;

	for (uint32_t i = 0; i < 5; i++)
		assert_non_null(get(m, colliding(i), true, true));
	assert_non_null(get(m, 77, true, true));
	for (uint32_t i = 1; i < 4; i += 2) {
		e = get(m, colliding(i), false, false);
		tt_side_entry_put(m, e, e->generation);
	}
	return m;
}

/* True: the call was over before instruction at. */
static bool die_at(const struct call *what, unsigned at)
{
	struct call c = *what;
	struct tt_step step;
	struct census seen;

	c.m = populated_side();
	if (tt_step_begin(&step, do_call, &c) < 0) {
		print_message("tracing a child is not permitted here\n");
		skip();
		return true;
	}
	bool over = !tt_step_run(&step, at);

	tt_step_kill(&step);
	/* The others go on. */
	struct tt_entry *e = get(c.m, 77, true, false);

	tt_side_entry_put(c.m, e, e->generation);
	for (uint64_t i = 0; i < 9; i++) {
		bool is_new;

		assert_non_null(tt_side_entry_get(c.m, colliding(i), true, &is_new));
	}
	for (uint64_t i = 0; i < 9; i++) {
		e = get(c.m, colliding(i), true, false);
		assert_int_equal(e->cookie, colliding(i));
	}
	int line = take_census(c.m, &seen);

	if (line || seen.lost > 1 || seen.listed > 10)
		fail_msg("%s, killed after instruction %u: line %d, %u listed, %u free, %u lost",
			 c.put ? "put" : "get", at, line, seen.listed, seen.free, seen.lost);
	drop_side(c.m);
	return over;
}

/* Instructions from one death to the next; the argument of the program. */
static unsigned stride = 11 * TT_STEP_STRIDE;

static void test_holder_dies(void **state)
{
	const struct call calls[] = {
		{NULL, colliding(20), false}, /* a new one, from the free list */
		{NULL, colliding(4), true},   /* the head of a bucket */
		{NULL, colliding(0), true},   /* its end */
	};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		for (unsigned at = (unsigned)i; !die_at(&calls[i], at); at += stride)
			assert_true(at < 100000);
}

/* ---- several processes ---- */

static void churn(struct tt_side_mem *m, uint64_t seed)
{
	struct tt_rng rng = {seed};

	for (;;) {
		uint64_t cookie = 1 + tt_rng_below(&rng, 300);
		bool is_new;
		struct tt_entry *e = tt_side_entry_get(m, cookie, true, &is_new);

		if (!e)
			_exit(1);
		if (tt_rng_below(&rng, 2))
			tt_side_entry_put(m, e, tt_load_relaxed(&e->generation));
	}
}

static pid_t start_churn(struct tt_side_mem *m, uint64_t seed)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		churn(m, seed);
	return pid;
}

static void test_killed_at_random(void **state)
{
	struct tt_side_mem *m = make_side();
	struct tt_rng rng = {1};
	struct census c;
	unsigned kills = 0;
	pid_t pid[2] = {start_churn(m, 1), start_churn(m, 2)};
	struct timespec t0, now;

	clock_gettime(CLOCK_MONOTONIC, &t0);
	do {
		struct timespec ts = {0, 100000 + tt_rng_below(&rng, 2000000)};
		unsigned k = kills % 2;
		int status;

		nanosleep(&ts, NULL);
		kill(pid[k], SIGKILL);
		assert_int_equal(waitpid(pid[k], &status, 0), pid[k]);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		kills++;
		/* -EOWNERDEAD at most: the lock lives on. */
		int err = tt_side_lock(&m->lock);

		assert_true(err == 0 || err == -EOWNERDEAD);
		int line = take_census(m, &c);

		tt_side_unlock(&m->lock);
		if (line || c.lost > kills)
			fail_msg("kill %u: line %d, %u lost", kills, line, c.lost);
		pid[k] = start_churn(m, kills + 2);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec - t0.tv_sec < 2);
	for (unsigned k = 0; k < 2; k++) {
		kill(pid[k], SIGKILL);
		waitpid(pid[k], NULL, 0);
	}
	assert_true(kills > 10);
	assert_in_range(m->used, 150, 300 + kills + 2);
	drop_side(m);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_create_and_map),	 cmocka_unit_test(test_get_and_put),
		cmocka_unit_test(test_collisions),	 cmocka_unit_test(test_dead_before_growth),
		cmocka_unit_test(test_full_table),	 cmocka_unit_test(test_holder_dies),
		cmocka_unit_test(test_killed_at_random),
	};

	if (argc > 1)
		stride = (unsigned)atoi(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
