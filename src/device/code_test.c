/* SPDX-License-Identifier: MIT */
/* The code that all processes run: nobody but its maker can write it. */
#include "device/code.h"

#include "base/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { BYTES = 64 << 20 };

static const void *image_of(const struct tt_code *code, uint32_t index)
{
	uint64_t serial = 0;

	return tt_code_image(code, index, &serial);
}

static void store_and_remove(void **state)
{
	struct tt_code *code, *other;
	uint8_t *image = malloc(10000);
	uint64_t serial;
	int a, b;

	memset(image, 7, 10000);
	assert_int_equal(tt_code_create(&code), 0);
	assert_int_equal(tt_code_attach(tt_code_fd(code), &other), 0);
	assert_null(image_of(code, 0));
	a = tt_code_store(code, image, 10000);
	image[0] = 8;
	b = tt_code_store(code, image, 1);
	assert_true(a >= 0 && b >= 0 && a != b);
	image[0] = 7;
	assert_memory_equal(image_of(other, (uint32_t)a), image, 10000);
	assert_int_equal(*(const uint8_t *)image_of(other, (uint32_t)b), 8);
	assert_int_equal((uintptr_t)image_of(other, (uint32_t)b) % 4096, 0);
	assert_int_equal(tt_code_store(other, image, 1), -EPERM);
	assert_non_null(tt_code_image(other, (uint32_t)a, &serial));
	assert_true(tt_code_is(other, (uint32_t)a, serial));
	tt_code_remove(other, (uint32_t)a); /* not theirs to remove */
	assert_non_null(image_of(code, (uint32_t)a));
	tt_code_remove(code, (uint32_t)a);
	tt_code_remove(code, (uint32_t)a);
	tt_code_remove(code, 12345678);
	assert_null(image_of(other, (uint32_t)a));
	assert_null(image_of(other, UINT32_MAX));
	/* Its place is used again, by what fits into it; who used the old one can tell. */
	assert_false(tt_code_is(other, (uint32_t)a, serial));
	assert_int_equal(tt_code_store(code, image, 10000), a);
	assert_false(tt_code_is(other, (uint32_t)a, serial));
	assert_false(tt_code_is(other, UINT32_MAX, serial));
	assert_int_equal(tt_code_store(code, image, 0), -ENOSPC);
	assert_int_equal(tt_code_store(code, image, (size_t)BYTES + 1), -ENOSPC);
	tt_code_destroy(other);
	tt_code_destroy(code);
	tt_code_destroy(NULL);
	free(image);
}

static void full(void **state)
{
	struct tt_code *code;
	uint8_t *image = calloc(1, 16 << 20);
	int places = 0, last = -1, got;

	assert_int_equal(tt_code_create(&code), 0);
	while ((got = tt_code_store(code, image, 1)) >= 0) {
		last = got;
		places++;
	}
	assert_int_equal(got, -ENOSPC);
	assert_true(places >= 64);
	tt_code_remove(code, (uint32_t)last);
	assert_int_equal(tt_code_store(code, image, 2), last);
	tt_code_destroy(code);

	assert_int_equal(tt_code_create(&code), 0);
	for (places = 0; (got = tt_code_store(code, image, 16 << 20)) >= 0;)
		places++;
	assert_int_equal(got, -ENOSPC);
	assert_int_equal(places, 3);
	tt_code_destroy(code);
	free(image);
}

/* By the descriptor that others get, there is no way to write. */
static void seals(void **state)
{
	struct tt_code *code;
	char path[64];
	void *p;
	int fd;

	assert_int_equal(tt_code_create(&code), 0);
	assert_true(tt_code_store(code, "abc", 4) >= 0);
	fd = tt_code_fd(code);
	assert_int_equal(pwrite(fd, "x", 1, 4096), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(ftruncate(fd, 0), -1);
	assert_int_equal(ftruncate(fd, (off_t)BYTES * 2), -1);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
	p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_equal(p, MAP_FAILED);
	p = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	assert_int_equal(mprotect(p, 4096, PROT_READ | PROT_WRITE), -1);
	munmap(p, 4096);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	/* Nor by opening it anew. */
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0) {
		assert_int_equal(pwrite(fd, "x", 1, 4096), -1);
		close(fd);
	}
	tt_code_destroy(code);
}

static void garbage(void **state)
{
	static const int some_seals[] = {0, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL,
					 F_SEAL_FUTURE_WRITE | F_SEAL_GROW | F_SEAL_SEAL,
					 F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW |
						 F_SEAL_SEAL};
	struct tt_code *code = NULL;
	int fd, fds[2];

	assert_int_equal(tt_code_attach(-1, &code), -EPROTO);
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(tt_code_attach(fds[0], &code), -EPROTO);
	close(fds[0]);
	close(fds[1]);
	fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
	assert_int_equal(tt_code_attach(fd, &code), -EPROTO);
	close(fd);
	for (unsigned i = 0; i < 8; i++) {
		fd = memfd_create("garbage", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		/* Of the wrong size, or of the right one and without contents. */
		assert_int_equal(ftruncate(fd, i % 2 ? BYTES : BYTES - 4096), 0);
		if (some_seals[i / 2])
			assert_int_equal(fcntl(fd, F_ADD_SEALS, some_seals[i / 2]), 0);
		assert_int_equal(tt_code_attach(fd, &code), -EPROTO);
		close(fd);
	}
	assert_null(code);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(store_and_remove),
		cmocka_unit_test(full),
		cmocka_unit_test(seals),
		cmocka_unit_test(garbage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
