/* SPDX-License-Identifier: MIT */
/* Maps against a plain model, and with memory that somebody has written over. */
#include "device/map.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__)
#define OPERATIONS 100000u
#else
#define OPERATIONS 1000000u
#endif

enum { KEYS = 300 };

static struct tutti_vm_map def_of(uint32_t type, uint32_t key, uint32_t value, uint32_t entries)
{
	return (struct tutti_vm_map){.name = "map",
				     .type = type,
				     .key_bytes = key,
				     .value_bytes = value,
				     .max_entries = entries};
}

/* Exactly as large as it says: a sanitizer sees every step beyond. */
static struct tt_map make(const struct tutti_vm_map *def)
{
	int64_t bytes = tt_map_bytes(def);
	struct tt_map map;

	assert_true(bytes > 0 && bytes % 64 == 0);
	tt_map_init(&map, def, calloc(1, (size_t)bytes));
	return map;
}

static void sizes(void **state)
{
	static const struct {
		uint32_t type, key, value, entries;
		int64_t bytes;
	} cases[] = {
		{TT_MAP_ARRAY, 4, 8, 1, 64},
		{TT_MAP_ARRAY, 4, 9, 4, 64},
		{TT_MAP_ARRAY, 4, 8, 9, 128},
		{TT_MAP_ARRAY, 4, 32 << 20, 1, 32 << 20},
		{TT_MAP_ARRAY, 4, 8, 4 << 20, 32 << 20},
		{TT_MAP_ARRAY, 4, 8, (4 << 20) + 1, -E2BIG},
		{TT_MAP_ARRAY, 4, UINT32_MAX, UINT32_MAX, -E2BIG},
		{TT_MAP_ARRAY, 4, UINT32_MAX, 1, -E2BIG},
		{TT_MAP_ARRAY, 8, 8, 1, -EINVAL},
		{TT_MAP_ARRAY, 4, 0, 1, -EINVAL},
		{TT_MAP_ARRAY, 4, 8, 0, -EINVAL},
		{TT_MAP_HASH, 0, 8, 1, -EINVAL},
		{TT_MAP_HASH, 257, 8, 1, -E2BIG},
		{TT_MAP_HASH, UINT32_MAX, 8, 1, -E2BIG},
		{TT_MAP_HASH, 256, 8, 1, 320}, /* 8 + 2 * 4 + 16 + 256 + 8, in whole lines */
		{TT_MAP_HASH, 4, 8, UINT32_MAX, -E2BIG},
		{TT_MAP_HASH, 4, 8, 32 << 20, -E2BIG},
		{0, 4, 8, 1, -EINVAL},
		{9, 4, 8, 1, -EINVAL},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct tutti_vm_map def =
			def_of(cases[i].type, cases[i].key, cases[i].value, cases[i].entries);

		if (tt_map_bytes(&def) != cases[i].bytes)
			fail_msg("case %zu: %lld", i, (long long)tt_map_bytes(&def));
	}
}

static void arrays(void **state)
{
	struct tutti_vm_map def = def_of(TT_MAP_ARRAY, 4, 12, 100);
	struct tt_map map = make(&def);
	uint8_t value[12], zero[12] = {0};
	uint32_t at = 0, seen = 0;

	for (uint32_t key = 0; key < 100; key++)
		assert_memory_equal(tt_map_find(&map, &key), zero, 12);
	for (uint32_t key = 0; key < 100; key++) {
		memset(value, (int)key + 1, sizeof value);
		assert_int_equal(tt_map_set(&map, &key, value), 0);
	}
	for (uint32_t key = 0; key < 100; key++) {
		memset(value, (int)key + 1, sizeof value);
		assert_memory_equal(tt_map_find(&map, &key), value, 12);
	}
	at = 40;
	assert_int_equal(tt_map_delete(&map, &at), 0);
	assert_memory_equal(tt_map_find(&map, &at), zero, 12);
	for (int err = tt_map_next(&map, NULL, &at); !err; err = tt_map_next(&map, &at, &at))
		assert_int_equal(at, seen++);
	assert_int_equal(seen, 100);
	for (uint64_t far = 100; far <= UINT32_MAX; far = far * 3) {
		at = (uint32_t)far;
		assert_null(tt_map_find(&map, &at));
		assert_int_equal(tt_map_set(&map, &at, value), -ENOENT);
		assert_int_equal(tt_map_delete(&map, &at), -ENOENT);
		assert_int_equal(tt_map_next(&map, &at, &at), -ENOENT);
	}
	at = UINT32_MAX; /* the one after it is not the first */
	assert_int_equal(tt_map_next(&map, &at, &at), -ENOENT);
	free(map.memory);
}

/* --- hashes ------------------------------------------------------------------------------- */

struct model {
	bool there[KEYS];
	uint64_t value[KEYS];
	uint32_t n;
};

/* Keys of 12 bytes, so that there is some room behind them. */
static void key_of(uint32_t number, uint8_t *ret_key)
{
	memset(ret_key, 0, 12);
	memcpy(ret_key + number % 9, &number, sizeof number);
}

static void compare(const struct tt_map *map, const struct model *m)
{
	uint8_t key[12], found[KEYS] = {0};
	uint32_t n = 0;

	for (uint32_t i = 0; i < KEYS; i++) {
		uint64_t *value;

		key_of(i, key);
		value = tt_map_find(map, key);
		assert_int_equal(value != NULL, m->there[i]);
		if (value)
			assert_int_equal(*value, m->value[i]);
	}
	for (int err = tt_map_next(map, NULL, key); !err; err = tt_map_next(map, key, key)) {
		uint32_t number = KEYS;
		uint8_t other[12];

		for (uint32_t i = 0; i < KEYS; i++) {
			key_of(i, other);
			if (!memcmp(key, other, sizeof key))
				number = i;
		}
		assert_true(number < KEYS && m->there[number] && !found[number]);
		found[number] = 1;
		n++;
	}
	assert_int_equal(n, m->n);
}

/* Random operations; as many keys as the map promises, and no more. */
static void hashes(void **state)
{
	struct tutti_vm_map def = def_of(TT_MAP_HASH, 12, 8, 200);
	struct tt_map map = make(&def);
	struct model m = {0};
	uint64_t value;
	uint8_t key[12];

	srand(1);
	for (uint32_t i = 0; i < OPERATIONS; i++) {
		uint32_t number = (uint32_t)rand() % KEYS;
		int err;

		key_of(number, key);
		if (rand() % 5 < 3) {
			value = i;
			err = tt_map_set(&map, key, &value);
			if (!m.there[number] && m.n == def.max_entries) {
				assert_int_equal(err, -ENOMEM);
			} else {
				assert_int_equal(err, 0);
				m.n += !m.there[number];
				m.there[number] = true;
				m.value[number] = i;
			}
		} else {
			err = tt_map_delete(&map, key);
			assert_int_equal(err, m.there[number] ? 0 : -ENOENT);
			m.n -= m.there[number];
			m.there[number] = false;
		}
		if (i % (OPERATIONS / 50) == 0)
			compare(&map, &m);
	}
	compare(&map, &m);
	free(map.memory);
}

/*
 * Keys that come and go for ever leave no search longer than the map's fullness
 * makes it.
 */
static void churn(void **state)
{
	struct tutti_vm_map def = def_of(TT_MAP_HASH, 8, 8, 1000);
	struct tt_map map = make(&def);
	uint32_t longest = 0;

	for (uint64_t i = 0; i < OPERATIONS; i++) {
		uint64_t old = i - 1000;

		if (i >= 1000)
			assert_int_equal(tt_map_delete(&map, &old), 0);
		assert_int_equal(tt_map_set(&map, &i, &i), 0);
	}
	for (uint32_t i = 0; i < map.buckets; i++) {
		uint32_t length = 0, at;

		memcpy(&at, map.memory + 8 + i * 4, 4);
		for (; at; length++)
			memcpy(&at, map.memory + map.nodes_off + (at - 1) * map.stride, 4);
		longest = length > longest ? length : longest;
	}
	/* A thousand balls into as many bins: seven in one is rare. */
	assert_true(longest > 1 && longest < 12);
	free(map.memory);
}

/* A value's address stays while others come and go. */
static void addresses(void **state)
{
	struct tutti_vm_map def = def_of(TT_MAP_HASH, 8, 8, 100);
	struct tt_map map = make(&def);
	uint64_t key = 12345, *at;

	assert_int_equal(tt_map_set(&map, &key, &key), 0);
	at = tt_map_find(&map, &key);
	for (uint64_t i = 0; i < 99; i++)
		assert_int_equal(tt_map_set(&map, &i, &i), 0);
	for (uint64_t i = 0; i < 99; i++)
		assert_int_equal(tt_map_delete(&map, &i), 0);
	assert_ptr_equal(tt_map_find(&map, &key), at);
	assert_int_equal(*at, key);
	free(map.memory);
}

/* The value may be one of the map's own. */
static void own_values(void **state)
{
	struct tutti_vm_map def = def_of(TT_MAP_ARRAY, 4, 64, 4), h = def_of(TT_MAP_HASH, 4, 64, 4);
	struct tt_map maps[2] = {make(&def), make(&h)};

	for (int i = 0; i < 2; i++) {
		uint32_t a = 1;
		uint8_t value[64], *at;

		for (unsigned k = 0; k < 64; k++)
			value[k] = (uint8_t)k;
		assert_int_equal(tt_map_set(&maps[i], &a, value), 0);
		at = tt_map_find(&maps[i], &a);
		/* The memory goes on behind it: some other value, or nothing yet. */
		memset(at + 32, 0x55, 32);
		assert_int_equal(tt_map_set(&maps[i], &a, at - 8), 0);
		assert_memory_equal((uint8_t *)tt_map_find(&maps[i], &a) + 8, value, 32);
		free(maps[i].memory);
	}
}

/* Whatever is in the memory: nothing outside is touched, and every call ends. */
static void hostile(void **state)
{
	struct tutti_vm_map def = def_of(TT_MAP_HASH, 12, 8, 50);
	struct tt_map map = make(&def);
	int64_t bytes = tt_map_bytes(&def);
	uint64_t value = 0;
	uint8_t key[12];

	srand(2);
	for (int round = 0; round < 2000; round++) {
		for (int64_t i = 0; i < bytes; i++)
			map.memory[i] = (uint8_t)rand();
		/* Numbers that some node has, too: chains that end in others, and in themselves. */
		for (uint32_t i = 0; round % 2 && i < map.nodes_off / 4; i++) {
			uint32_t some = (uint32_t)rand() % 52;

			memcpy(map.memory + i * 4, &some, 4);
			some = (uint32_t)rand() % 52;
			memcpy(map.memory + map.nodes_off + i % 50 * map.stride, &some, 4);
		}
		for (int i = 0; i < 20; i++) {
			uint8_t *at;

			key_of((uint32_t)rand() % KEYS, key);
			at = tt_map_find(&map, key);
			assert_true(!at || (at >= map.memory && at + 8 <= map.memory + bytes));
			tt_map_set(&map, key, &value);
			tt_map_delete(&map, key);
			tt_map_next(&map, i % 2 ? key : NULL, key);
		}
	}
	free(map.memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes),      cmocka_unit_test(arrays),
		cmocka_unit_test(hashes),     cmocka_unit_test(churn),
		cmocka_unit_test(own_values), cmocka_unit_test(addresses),
		cmocka_unit_test(hostile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
