/* SPDX-License-Identifier: MIT */
#include "base/usermem.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static size_t page;

static char *map(size_t pages)
{
	char *p = mmap(NULL, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);

	assert_ptr_not_equal(p, MAP_FAILED);
	tt_user_forget(p, pages * page);
	return p;
}

static void protect(char *p, size_t n, int prot)
{
	assert_int_equal(mprotect(p, n, prot), 0);
	tt_user_forget(p, n);
}

static void unmap(char *p, size_t pages)
{
	munmap(p, pages * page);
	tt_user_forget(p, pages * page);
}

static void test_kinds(void **state)
{
	char *p = map(5);

	(void)state;
	memset(p, 'x', 5 * page);
	protect(p + page, page, PROT_NONE);
	protect(p + 2 * page, page, PROT_READ);
	unmap(p + 3 * page, 1);
	errno = 77;
	/* Twice: asked and remembered. */
	for (int i = 0; i < 2; i++) {
		assert_true(tt_user_readable(p, page));
		assert_true(tt_user_writable(p, page));
		assert_false(tt_user_readable(p + page, 1));
		assert_false(tt_user_writable(p + page, 1));
		assert_true(tt_user_readable(p + 2 * page, page));
		assert_false(tt_user_writable(p + 2 * page, page));
		assert_false(tt_user_readable(p + 3 * page, 1));
		assert_false(tt_user_writable(p + 3 * page, 1));
		assert_true(tt_user_writable(p + 4 * page, page));
	}
	assert_false(tt_user_readable(NULL, 1));
	assert_false(tt_user_readable((char *)8, 1));
	assert_false(tt_user_writable((char *)8, 4));
	assert_false(tt_user_readable((char *)-4096, 8));
	assert_false(tt_user_writable((char *)-4096, 8));
	assert_false(tt_user_readable(p, SIZE_MAX));
	assert_true(tt_user_readable(NULL, 0));
	assert_true(tt_user_writable(p + page, 0));
	assert_int_equal(errno, 77);
	for (size_t i = 0; i < page; i++)
		assert_int_equal(p[i], 'x');
	unmap(p, 5);
}

static void test_ranges(void **state)
{
	const size_t many = 200;
	char *p = map(many);

	(void)state;
	protect(p + 150 * page, page, PROT_READ);
	assert_true(tt_user_writable(p + 1, 150 * page - 1));
	assert_false(tt_user_writable(p + 1, 150 * page));
	assert_false(tt_user_writable(p + 149 * page, 2 * page));
	assert_true(tt_user_readable(p, many * page));
	assert_true(tt_user_writable(p + 151 * page, 49 * page));
	protect(p + 7 * page, page, PROT_NONE);
	assert_false(tt_user_readable(p, many * page));
	assert_false(tt_user_readable(p + 7 * page - 1, 2));
	assert_true(tt_user_readable(p + 7 * page - 1, 1));
	assert_true(tt_user_readable(p + 8 * page, 1));
	unmap(p, many);
	for (size_t i = 0; i < many; i++)
		assert_false(tt_user_readable(p + i * page, 1));
}

static void test_forget(void **state)
{
	char *p = map(3);

	(void)state;
	assert_true(tt_user_writable(p, 3 * page));
	/* Of a part, by a range that is larger than the table, of all. */
	munmap(p, page);
	tt_user_forget(p + page - 1, 1);
	assert_false(tt_user_readable(p, 1));
	assert_true(tt_user_knows((uintptr_t)(p + page) >> TT_USER_PAGE_SHIFT, true));
	munmap(p + page, page);
	tt_user_forget(p - 10000 * page, 20000 * page);
	assert_false(tt_user_readable(p + page, 1));
	assert_true(tt_user_readable(p + 2 * page, 1));
	munmap(p + 2 * page, page);
	tt_user_forget_all();
	assert_false(tt_user_readable(p + 2 * page, 1));
}

static void test_places(void **state)
{
	/* Two pages of one place. */
	size_t pages = (TT_USER_PLACES << TT_USER_PAGE_SHIFT) / page + 1;
	char *p = map(pages), *q = p + (pages - 1) * page;

	(void)state;
	protect(q, page, PROT_NONE);
	for (int i = 0; i < 3; i++) {
		assert_true(tt_user_writable(p, 1));
		assert_false(tt_user_readable(q, 1));
	}
	protect(q, page, PROT_READ | PROT_WRITE);
	protect(p, page, PROT_NONE);
	for (int i = 0; i < 3; i++) {
		assert_true(tt_user_writable(q, 1));
		assert_false(tt_user_readable(p, 1));
	}
	unmap(p, pages);
}

static void test_file_end(void **state)
{
	FILE *f = tmpfile();

	(void)state;
	assert_non_null(f);
	assert_int_equal(ftruncate(fileno(f), (off_t)page), 0);
	char *p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(f), 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	tt_user_forget(p, 2 * page);
	assert_true(tt_user_writable(p, page));
	assert_false(tt_user_readable(p + page, 1));
	assert_false(tt_user_writable(p + page, 1));
	assert_false(tt_user_writable(p, 2 * page));
	unmap(p, 2);
	fclose(f);
}

/* The part of the stack that nobody has been in yet. */
__attribute__((noinline)) static int in_deep_stack(void)
{
	char deep[1 << 20];
	char *volatile low = deep;
	bool good = tt_user_writable(low, 100) && tt_user_readable(low, sizeof(deep));

	return good ? 0 : 1;
}

static void test_stack(void **state)
{
	int status = -1;
	pid_t pid = fork();

	(void)state;
	if (pid == 0)
		_exit(in_deep_stack());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* ---- threads ---- */

#define ROUNDS 3000

struct shared {
	char *p;
	uint32_t stop;
};

static void *ask_always(void *arg)
{
	struct shared *s = arg;
	uintptr_t n = 0;

	while (!tt_load_acquire(&s->stop))
		for (size_t i = 0; i < 4; i++)
			n += tt_user_writable(s->p + i * page, page);
	return (void *)n;
}

/* Whatever others learn meanwhile: what was taken away is not good afterwards. */
static void test_threads(void **state)
{
	struct shared s = {map(4), 0};
	pthread_t threads[3];

	(void)state;
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, ask_always, &s), 0);
	for (int i = 0; i < ROUNDS; i++) {
		char *p = s.p + (size_t)(i % 4) * page;

		assert_true(tt_user_writable(p, 1));
		protect(p, page, i & 4 ? PROT_READ : PROT_NONE);
		for (int k = 0; k < 3; k++)
			assert_false(tt_user_writable(p, 1));
		protect(p, page, PROT_READ | PROT_WRITE);
	}
	tt_store_release(&s.stop, 1u);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	unmap(s.p, 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kinds),	cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_forget),	cmocka_unit_test(test_places),
		cmocka_unit_test(test_stack),	cmocka_unit_test(test_file_end),
		cmocka_unit_test(test_threads),
	};

	page = (size_t)sysconf(_SC_PAGESIZE);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
