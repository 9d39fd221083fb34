/* SPDX-License-Identifier: MIT */
/* The table of descriptors. */
#include "sock/conn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define MOST (TT_FDTAB_LEAF * TT_FDTAB_LEAVES)

static struct tt_conn conns[3];

static void set(int fd, uint32_t kind, void *obj)
{
	tt_fdtab_lock();
	tt_fd_set(fd, kind, obj);
	tt_fdtab_unlock();
}

static uint32_t kind_of(int fd)
{
	return tt_load_acquire(&tt_fd_slot(fd)->kind);
}

static void test_numbers_never_used(void **state)
{
	assert_null(tt_fd_slot(-1));
	assert_null(tt_fd_slot(INT32_MIN));
	assert_null(tt_fd_slot(MOST));
	assert_null(tt_fd_slot(INT32_MAX));
	assert_null(tt_fd_slot(5 * TT_FDTAB_LEAF));
	assert_false(tt_fd_is(5 * TT_FDTAB_LEAF, &conns[0]));
	set(5 * TT_FDTAB_LEAF, TT_FD_UNKNOWN, NULL); /* says nothing new: no memory for it */
	assert_null(tt_fd_slot(5 * TT_FDTAB_LEAF));
	set(-1, TT_FD_CONN, &conns[0]);
	set(MOST, TT_FD_CONN, &conns[0]);
	assert_null(tt_fd_slot(-1));
	assert_null(tt_fd_slot(MOST));
}

static void test_set_and_forget(void **state)
{
	static const int fds[] = {0, 3, TT_FDTAB_LEAF - 1, TT_FDTAB_LEAF, MOST - 1};

	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		int fd = fds[i];

		set(fd, TT_FD_CONN, &conns[0]);
		assert_int_equal(kind_of(fd), TT_FD_CONN);
		assert_ptr_equal(tt_fd_conn(fd), &conns[0]);
		assert_true(tt_fd_is(fd, &conns[0]));
		assert_false(tt_fd_is(fd, &conns[1]));
		set(fd, TT_FD_CONN, &conns[1]);
		assert_ptr_equal(tt_fd_conn(fd), &conns[1]);
		set(fd, TT_FD_EPOLL, &conns[2]);
		assert_null(tt_fd_conn(fd)); /* a set is no connection */
		assert_true(tt_fd_is(fd, &conns[2]));
		set(fd, TT_FD_NONE, NULL);
		assert_null(tt_fd_conn(fd));
		assert_false(tt_fd_is(fd, &conns[2]));
		set(fd, TT_FD_UNKNOWN, NULL);
		assert_int_equal(kind_of(fd), TT_FD_UNKNOWN);
	}
	/* Neighbours were left alone. */
	assert_int_equal(kind_of(4), TT_FD_UNKNOWN);
	assert_int_equal(kind_of(TT_FDTAB_LEAF + 1), TT_FD_UNKNOWN);
}

static int seen_fd[8], nseen;

static void see(int fd, void *obj)
{
	assert_ptr_equal(obj, fd == 9 ? &conns[1] : &conns[0]);
	seen_fd[nseen++] = fd;
}

static void test_others_and_each(void **state)
{
	set(7, TT_FD_CONN, &conns[0]);
	set(9, TT_FD_CONN, &conns[1]);
	set(10, TT_FD_EPOLL, &conns[2]);
	tt_fdtab_lock();
	assert_int_equal(tt_fd_other(&conns[0], 7), -1);
	assert_int_equal(tt_fd_other(&conns[0], 9), 7);
	tt_fd_set(2 * TT_FDTAB_LEAF + 5, TT_FD_CONN, &conns[0]);
	assert_int_equal(tt_fd_other(&conns[0], 7), 2 * TT_FDTAB_LEAF + 5);
	assert_int_equal(tt_fd_other(&conns[0], 2 * TT_FDTAB_LEAF + 5), 7);
	tt_fd_each(TT_FD_CONN, see);
	tt_fdtab_unlock();
	assert_int_equal(nseen, 3);
	assert_int_equal(seen_fd[0], 7);
	assert_int_equal(seen_fd[1], 9);
	assert_int_equal(seen_fd[2], 2 * TT_FDTAB_LEAF + 5);
}

/* A child of fork may be born while another thread holds the lock. */
static void test_fork_child_has_a_free_lock(void **state)
{
	tt_fdtab_lock();
	tt_fdtab_fork_child();
	tt_fdtab_lock();
	tt_fdtab_unlock();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_numbers_never_used),
		cmocka_unit_test(test_set_and_forget),
		cmocka_unit_test(test_others_and_each),
		cmocka_unit_test(test_fork_child_has_a_free_lock),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
