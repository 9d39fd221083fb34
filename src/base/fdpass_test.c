/* SPDX-License-Identifier: MIT */
/* Descriptors that travel, and the memory and numbers of those that stay. */
#include "base/fdpass.h"
#include "base/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static int pair[2];

static int set_up(void **state)
{
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
}

static int tear_down(void **state)
{
	close(pair[0]);
	close(pair[1]);
	return 0;
}

static int open_files(void)
{
	int n = 0;

	for (int fd = 0; fd < 20000; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static bool same_file(int a, int b)
{
	struct stat x, y;

	return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_ino == y.st_ino &&
	       x.st_dev == y.st_dev;
}

/* ---- fdpass ---- */

static void test_message_with_descriptors(void **state)
{
	int fds[TT_FDPASS_MAX], got[TT_FDPASS_MAX], n = 0;
	char buf[32];

	for (int i = 0; i < TT_FDPASS_MAX; i++)
		fds[i] = memfd_create("test", 0);
	for (int count = 0; count <= TT_FDPASS_MAX; count++) {
		assert_int_equal(tt_fdpass_send(pair[0], "hello", 5, fds, count, 0), 0);
		assert_int_equal(tt_fdpass_recv(pair[1], buf, sizeof(buf), got, &n, 0), 5);
		assert_memory_equal(buf, "hello", 5);
		assert_int_equal(n, count);
		for (int i = 0; i < n; i++) {
			assert_true(same_file(got[i], fds[i]));
			assert_true(fcntl(got[i], F_GETFD) & FD_CLOEXEC);
			close(got[i]);
		}
	}
	assert_int_equal(tt_fdpass_send(pair[0], "x", 1, fds, TT_FDPASS_MAX + 1, 0), -EINVAL);
	assert_int_equal(tt_fdpass_send(pair[0], "x", 1, fds, -1, 0), -EINVAL);
	for (int i = 0; i < TT_FDPASS_MAX; i++)
		close(fds[i]);
}

static void test_end_and_errors(void **state)
{
	int got[TT_FDPASS_MAX], n = 0, bad = -1;
	char buf[32];

	assert_int_equal(tt_fdpass_recv(pair[1], buf, sizeof(buf), got, &n, MSG_DONTWAIT), -EAGAIN);
	assert_int_equal(tt_fdpass_send(pair[0], "x", 1, &bad, 1, 0), -EBADF);
	close(pair[0]);
	assert_int_equal(tt_fdpass_recv(pair[1], buf, sizeof(buf), got, &n, 0), 0);
	assert_int_equal(n, 0);
	/* No SIGPIPE: it would end this test. */
	assert_int_equal(tt_fdpass_send(pair[1], "x", 1, NULL, 0, 0), -EPIPE);
	pair[0] = -1;
	assert_int_equal(tt_fdpass_recv(-1, buf, sizeof(buf), got, &n, 0), -EBADF);
}

static void test_cut_message_leaves_nothing_open(void **state)
{
	int fds[2] = {pair[0], pair[1]}, got[TT_FDPASS_MAX], n = 77, files = open_files();
	char buf[4];

	assert_int_equal(tt_fdpass_send(pair[0], "hello", 5, fds, 2, 0), 0);
	assert_int_equal(tt_fdpass_recv(pair[1], buf, sizeof(buf), got, &n, 0), -EMSGSIZE);
	assert_int_equal(n, 0);
	assert_int_equal(open_files(), files);
	/* The next message is whole. */
	assert_int_equal(tt_fdpass_send(pair[0], "abcd", 4, NULL, 0, 0), 0);
	assert_int_equal(tt_fdpass_recv(pair[1], buf, sizeof(buf), got, &n, 0), 4);
	assert_memory_equal(buf, "abcd", 4);
}

/* More descriptors than we would ever send, from a hostile peer. */
static void test_too_many_descriptors(void **state)
{
	enum { MANY = 40 };
	union {
		struct cmsghdr hdr;
		char room[CMSG_SPACE(sizeof(int) * MANY)];
	} ctl;
	char buf[8] = "x";
	struct iovec iov = {buf, 1};
	struct msghdr mh = {.msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = ctl.room,
			    .msg_controllen = sizeof(ctl.room)};
	int got[TT_FDPASS_MAX], n = 77, files = open_files();

	memset(&ctl, 0, sizeof(ctl));
	ctl.hdr.cmsg_level = SOL_SOCKET;
	ctl.hdr.cmsg_type = SCM_RIGHTS;
	ctl.hdr.cmsg_len = CMSG_LEN(sizeof(int) * MANY);
	for (int i = 0; i < MANY; i++)
		memcpy(CMSG_DATA(&ctl.hdr) + (size_t)i * sizeof(int), &pair[0], sizeof(int));
	assert_int_equal(sendmsg(pair[0], &mh, 0), 1);
	assert_int_equal(tt_fdpass_recv(pair[1], buf, sizeof(buf), got, &n, 0), -EMSGSIZE);
	assert_int_equal(n, 0);
	assert_int_equal(open_files(), files);
}

/* ---- shm ---- */

static void test_shared_memory(void **state)
{
	void *a, *b;
	size_t bytes = 0;
	int fd = tt_shm_create("test", 10000);

	assert_true(fd >= 0);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(tt_shm_map(fd, 10000, &a, &bytes), 0);
	assert_int_equal(bytes, 10000);
	assert_int_equal(tt_shm_map(fd, 0, &b, &bytes), 0);
	((char *)a)[9999] = 5;
	assert_int_equal(((char *)b)[9999], 5);
	/* It cannot change its size under a reader. */
	assert_int_equal(ftruncate(fd, 0), -1);
	assert_int_equal(ftruncate(fd, 20000), -1);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	tt_shm_unmap(a, bytes);
	tt_shm_unmap(b, bytes);
	tt_shm_unmap(NULL, 0);
	close(fd);
}

static void test_what_is_not_mapped(void **state)
{
	void *base = (void *)1;
	size_t bytes = 1;
	int fd = tt_shm_create("test", 4096);

	assert_int_equal(tt_shm_map(fd, 4097, &base, &bytes), -EPROTO);
	close(fd);
	fd = tt_shm_create("test", 0);
	assert_int_equal(tt_shm_map(fd, 0, &base, &bytes), -EPROTO);
	close(fd);
	fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(fd, 4096), 0);
	assert_int_equal(tt_shm_map(fd, 0, &base, &bytes), -EPROTO);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW), 0);
	assert_int_equal(tt_shm_map(fd, 0, &base, &bytes), -EPROTO);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	close(fd);
	fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	assert_int_equal(tt_shm_map(fd, 0, &base, &bytes), -EPROTO);
	close(fd);
	assert_int_equal(tt_shm_map(-1, 0, &base, &bytes), -EPROTO);
	assert_int_equal(tt_shm_map(pair[0], 0, &base, &bytes), -EPROTO);
	assert_ptr_equal(base, (void *)1);
	assert_int_equal(bytes, 1);
}

static void test_internal_descriptors(void **state)
{
	struct rlimit rl;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &rl), 0);
	assert_int_equal(tt_fd_internal_top(), 0);
	int low = memfd_create("test", 0), other = dup(low), fd = tt_fd_high(low);

	assert_true(fd >= 48 || rl.rlim_cur < 64);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	assert_true(same_file(fd, other));
	assert_int_equal(fcntl(low, F_GETFD), -1); /* moved, not copied */
	assert_true(tt_fd_is_internal(fd));
	assert_false(tt_fd_is_internal(other));
	assert_int_equal(tt_fd_internal_top(), fd);
	tt_fd_mark_internal(fd + 70);
	assert_int_equal(tt_fd_internal_top(), fd + 70);
	tt_fd_close(fd + 70);
	tt_fd_close(fd);
	assert_false(tt_fd_is_internal(fd));
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	assert_int_equal(tt_fd_internal_top(), 0);
	tt_fd_close(-1);
	tt_fd_mark_internal(-1);
	tt_fd_mark_internal(INT32_MAX);
	assert_false(tt_fd_is_internal(-1));
	assert_false(tt_fd_is_internal(INT32_MAX));
	assert_int_equal(tt_fd_internal_top(), 0);
	close(other);
}

static void test_few_descriptors_allowed(void **state)
{
	struct rlimit old, few;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	few = old;
	few.rlim_cur = 1024;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	int fd = tt_fd_high(memfd_create("test", 0));

	assert_in_range(fd, 768, 1023);
	tt_fd_close(fd);
	few.rlim_cur = 32;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	int low = memfd_create("test", 0);

	fd = tt_fd_high(low);
	assert_int_equal(fd, low); /* no room to move */
	assert_true(tt_fd_is_internal(fd));
	tt_fd_close(fd);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
}

#define with_pair(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_pair(test_message_with_descriptors),
		with_pair(test_end_and_errors),
		with_pair(test_cut_message_leaves_nothing_open),
		with_pair(test_too_many_descriptors),
		cmocka_unit_test(test_shared_memory),
		with_pair(test_what_is_not_mapped),
		cmocka_unit_test(test_internal_descriptors),
		cmocka_unit_test(test_few_descriptors_allowed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
