/* SPDX-License-Identifier: MIT */
#include "elf_int.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

/* A copy of this very test, to be spoiled: in memory, under a name that can be run. */
struct copy {
	int fd;
	size_t bytes;
	char path[64];
};

static struct copy make_copy(void)
{
	struct copy c = {.fd = memfd_create("copy", MFD_CLOEXEC)};
	int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	char buf[65536];
	ssize_t n;

	assert_true(c.fd >= 0 && self >= 0);
	while ((n = read(self, buf, sizeof(buf))) > 0) {
		assert_int_equal(write(c.fd, buf, (size_t)n), n);
		c.bytes += (size_t)n;
	}
	close(self);
	snprintf(c.path, sizeof(c.path), "/proc/self/fd/%d", c.fd);
	return c;
}

static void put(const struct copy *c, size_t at, const void *bytes, size_t n)
{
	assert_int_equal(pwrite(c->fd, bytes, n, (off_t)at), n);
}

static void test_this_program(void **state)
{
	struct copy c = make_copy();
	static struct tt_program p;

	assert_int_equal(tt_program_examine(c.path, &p), 0);
	assert_int_equal(p.bits, sizeof(void *) * 8);
	assert_true(p.is_dynamic);
	assert_false(p.is_go || p.is_musl || p.uses_io_uring);
	assert_int_equal(strncmp(p.glibc, "2.", 2), 0);
	assert_null(p.why);
	close(c.fd);
}

static void test_other_machines(void **state)
{
	static const struct {
		size_t at;
		uint16_t value;
		size_t bytes;
		const char *why;
	} cases[] = {
		{EI_CLASS, ELFCLASS32, 1, "word size"},
		{offsetof(Elf64_Ehdr, e_machine), EM_S390, 2, "architecture"},
		/* Without program headers there is no loader. */
		{offsetof(Elf64_Ehdr, e_phnum), 0, 2, "statically linked"},
	};
	static struct tt_program p;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct copy c = make_copy();

		put(&c, cases[i].at, &cases[i].value, cases[i].bytes);
		assert_int_equal(tt_program_examine(c.path, &p), 0);
		assert_non_null(p.why);
		assert_non_null(strstr(p.why, cases[i].why));
		assert_non_null(p.todo);
		close(c.fd);
	}
}

static void test_no_program(void **state)
{
	static struct tt_program p;

	assert_int_equal(tt_program_examine("", &p), -ENOENT);
	assert_int_equal(tt_program_examine("/nonexistent", &p), -ENOENT);
	assert_int_equal(tt_program_examine("/", &p), -EACCES);
	assert_int_equal(tt_program_examine("no-such-program-anywhere", &p), -ENOENT);
}

/* Garbage in the headers, the dynamic section and anywhere: some answer, and no harm. */
static void test_garbage(void **state)
{
	static struct tt_program p;
	struct copy c = make_copy();
	char head[4096], any[256];
	unsigned seed = 1;

	assert_int_equal(pread(c.fd, head, sizeof(head), 0), sizeof(head));
	for (int round = 0; round < 2000; round++) {
		size_t far = (size_t)rand_r(&seed) % (c.bytes - sizeof(any));

		assert_int_equal(pread(c.fd, any, sizeof(any), (off_t)far), sizeof(any));
		for (int i = 0; i < 8; i++) {
			uint64_t junk = rand_r(&seed) % 3 ? (uint64_t)rand_r(&seed) : UINT64_MAX;
			size_t limit = rand_r(&seed) % 2 ? 1024 : sizeof(head);

			put(&c, 16 + (size_t)rand_r(&seed) % (limit - 32), &junk,
			    1 + (size_t)rand_r(&seed) % 8);
			put(&c, far + (size_t)rand_r(&seed) % (sizeof(any) - 8), &junk, 8);
		}
		assert_int_equal(tt_program_examine(c.path, &p), 0);
		assert_true(!p.why == !p.todo);
		put(&c, 0, head, sizeof(head));
		put(&c, far, any, sizeof(any));
	}
	close(c.fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_this_program),
		cmocka_unit_test(test_other_machines),
		cmocka_unit_test(test_no_program),
		cmocka_unit_test(test_garbage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
