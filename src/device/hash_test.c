/* SPDX-License-Identifier: MIT */
/* Known answers: what modules got yesterday they get tomorrow, wherever they run. */
#include "device/hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void hashes(void **state)
{
	/* Worked out apart from this code, with integers that have no limit. */
	assert_int_equal(tt_hash("", 0, 0), 0xe6d24d7e0390ae94u);
	assert_int_equal(tt_hash("a", 1, 0), 0x188f214750606981u);
	assert_int_equal(tt_hash("12345678", 8, 0), 0x4619b485d11b934eu);
	assert_int_equal(tt_hash("The quick brown fox", 19, 7), 0x5c55685434d3fe43u);
}

/* Every length, at every alignment, reads its bytes and no others. */
static void lengths(void **state)
{
	for (size_t n = 0; n < 70; n++) {
		uint8_t *exact = malloc(n ? n : 1), apart[100];
		uint64_t hash;

		for (size_t i = 0; i < n; i++)
			exact[i] = (uint8_t)(i * 31 + n);
		hash = tt_hash(exact, n, 3);
		for (size_t at = 0; at < 9; at++) {
			memset(apart, 0xff, sizeof apart);
			memcpy(apart + at, exact, n);
			assert_int_equal(tt_hash(apart + at, n, 3), hash);
			assert_int_equal(tt_checksum(apart + at, n), tt_checksum(exact, n));
		}
		for (size_t i = 0; i < n; i++) {
			exact[i] ^= 1;
			assert_int_not_equal(tt_hash(exact, n, 3), hash);
			exact[i] ^= 1;
		}
		assert_int_not_equal(tt_hash(exact, n, 4), hash);
		free(exact);
	}
}

static void checksums(void **state)
{
	/* RFC 1071, section 3: the sum is dd f2 in the order of memory. */
	static const uint8_t example[] = {0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7};
	uint8_t ones[65535];
	uint16_t sum = tt_checksum(example, sizeof example);
	uint8_t bytes[10];

	assert_int_equal(sum & 0xff, 0xff & ~0xdd);
	assert_int_equal(sum >> 8, 0xff & ~0xf2);
	assert_int_equal(tt_checksum("", 0), 0xffff);
	assert_int_equal(tt_checksum("\x01", 1), 0xfffe);
	memset(ones, 0xff, sizeof ones);
	assert_int_equal(tt_checksum(ones, sizeof ones - 1), 0);
	/* With its own sum behind it, it sums up to nothing. */
	memcpy(bytes, example, 8);
	memcpy(bytes + 8, &sum, 2);
	assert_int_equal(tt_checksum(bytes, sizeof bytes), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hashes),
		cmocka_unit_test(lengths),
		cmocka_unit_test(checksums),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
