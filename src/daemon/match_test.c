/* SPDX-License-Identifier: MIT */
#include "match.h"

#include <setjmp.h>
#include <stdarg.h>
/* cmocka wants the above first */
#include <arpa/inet.h>
#include <cmocka.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

static struct tt_addr addr(const char *ip, uint16_t port)
{
	struct sockaddr_storage ss = {0};
	struct sockaddr_in *in = (void *)&ss;
	struct sockaddr_in6 *in6 = (void *)&ss;
	struct tt_addr a;

	if (inet_pton(AF_INET, ip, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		in->sin_port = htons(port);
	} else {
		assert_int_equal(inet_pton(AF_INET6, ip, &in6->sin6_addr), 1);
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(port);
	}
	assert_true(tt_addr_from(&ss, &a));
	return a;
}

static struct tt_claim claim(uint64_t cookie, struct tt_addr local, struct tt_addr remote)
{
	return (struct tt_claim){.cookie = cookie, .tuple = {local, remote}};
}

static void test_two_ends_meet(void **state)
{
	struct tt_matcher m;
	struct tt_claim a = claim(1, addr("127.0.0.1", 80), addr("127.0.0.1", 9000));
	struct tt_claim b = claim(2, addr("127.0.0.1", 9000), addr("127.0.0.1", 80));

	assert_int_equal(tt_matcher_init(&m, 7), 0);
	tt_matcher_add(&m, &a);
	assert_null(tt_matcher_peer(&m, &a));
	tt_matcher_add(&m, &b);
	assert_ptr_equal(tt_matcher_peer(&m, &b), &a);
	assert_ptr_equal(tt_matcher_peer(&m, &a), &b);
	tt_matcher_settle(&m, &a);
	assert_null(tt_matcher_peer(&m, &b));
	/* Settled, it is still known by its cookie. */
	assert_ptr_equal(tt_matcher_by_cookie(&m, 1), &a);
	tt_matcher_remove(&m, &a);
	assert_null(tt_matcher_by_cookie(&m, 1));
	assert_ptr_equal(tt_matcher_by_cookie(&m, 2), &b);
	tt_matcher_remove(&m, &b);
	tt_matcher_fini(&m);
}

static void test_mapped_is_ipv4(void **state)
{
	struct tt_matcher m;
	struct tt_claim a = claim(1, addr("::ffff:127.0.0.1", 80), addr("::ffff:127.0.0.1", 9000));
	struct tt_claim b = claim(2, addr("127.0.0.1", 9000), addr("127.0.0.1", 80));
	struct tt_claim c = claim(3, addr("::1", 9000), addr("::1", 80));

	assert_int_equal(tt_matcher_init(&m, 7), 0);
	assert_true(tt_addr_is_ipv4(&a.tuple.local));
	assert_false(tt_addr_is_ipv4(&c.tuple.local));
	tt_matcher_add(&m, &a);
	tt_matcher_add(&m, &c);
	assert_null(tt_matcher_peer(&m, &c));
	tt_matcher_add(&m, &b);
	assert_ptr_equal(tt_matcher_peer(&m, &b), &a);
	tt_matcher_fini(&m);
}

static void test_self_never_meets_itself(void **state)
{
	struct tt_matcher m;
	struct tt_claim a = claim(1, addr("127.0.0.1", 80), addr("127.0.0.1", 80));

	assert_int_equal(tt_matcher_init(&m, 7), 0);
	tt_matcher_add(&m, &a);
	assert_true(tt_tuple_is_self(&a.tuple));
	assert_null(tt_matcher_peer(&m, &a));
	tt_matcher_fini(&m);
}

static void test_the_newer_counts(void **state)
{
	struct tt_matcher m;
	struct tt_claim old = claim(1, addr("127.0.0.1", 80), addr("127.0.0.1", 9000));
	struct tt_claim new = claim(2, addr("127.0.0.1", 80), addr("127.0.0.1", 9000));
	struct tt_claim b = claim(3, addr("127.0.0.1", 9000), addr("127.0.0.1", 80));

	assert_int_equal(tt_matcher_init(&m, 7), 0);
	tt_matcher_add(&m, &old);
	tt_matcher_add(&m, &new);
	tt_matcher_add(&m, &b);
	assert_ptr_equal(tt_matcher_peer(&m, &b), &new);
	tt_matcher_settle(&m, &new);
	assert_ptr_equal(tt_matcher_peer(&m, &b), &old);
	tt_matcher_fini(&m);
}

/* Also while the tables grow, and in any order. */
static void test_many(void **state)
{
	enum { N = 5000 };
	struct tt_matcher m;
	struct tt_claim *c = calloc(2 * N, sizeof(*c));

	assert_non_null(c);
	assert_int_equal(tt_matcher_init(&m, 42), 0);
	for (int i = 0; i < N; i++) {
		struct tt_addr a = addr("127.0.0.1", 80),
			       b = addr("127.0.0.1", (uint16_t)(1000 + i));

		c[i] = claim((uint64_t)i + 1, a, b);
		c[N + i] = claim((uint64_t)N + i + 1, b, a);
		tt_matcher_add(&m, &c[i]);
	}
	for (int i = 0; i < N; i++) {
		int k = (int)((unsigned int)i * 7919u % N);

		tt_matcher_add(&m, &c[N + k]);
		assert_ptr_equal(tt_matcher_peer(&m, &c[N + k]), &c[k]);
		tt_matcher_settle(&m, &c[k]);
		tt_matcher_settle(&m, &c[N + k]);
	}
	assert_int_equal(m.tuples.count, 0);
	for (int i = 0; i < 2 * N; i++) {
		assert_ptr_equal(tt_matcher_by_cookie(&m, (uint64_t)i + 1), &c[i]);
		tt_matcher_remove(&m, &c[i]);
	}
	assert_int_equal(m.cookies.count, 0);
	tt_matcher_fini(&m);
	free(c);
}

static void test_slots(void **state)
{
	struct tt_slots s;

	tt_slots_init(&s, 70);
	for (int i = 0; i < 70; i++)
		assert_int_equal(tt_slots_get(&s), i);
	assert_int_equal(tt_slots_get(&s), -EAGAIN);
	assert_int_equal(s.used, 70);

	/* One end is not enough; the same end twice is nothing. */
	assert_false(tt_slots_put(&s, 66, 0));
	assert_false(tt_slots_put(&s, 66, 0));
	assert_false(tt_slots_is_held(&s, 66, 0));
	assert_true(tt_slots_is_held(&s, 66, 1));
	assert_int_equal(tt_slots_get(&s), -EAGAIN);
	assert_true(tt_slots_put(&s, 66, 1));
	assert_int_equal(s.used, 69);
	assert_int_equal(tt_slots_get(&s), 66);

	/* Numbers that cannot be. */
	assert_false(tt_slots_put(&s, 70, 0));
	assert_false(tt_slots_put(&s, UINT32_MAX, 1));
	assert_int_equal(s.used, 70);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_two_ends_meet),
		cmocka_unit_test(test_mapped_is_ipv4),
		cmocka_unit_test(test_self_never_meets_itself),
		cmocka_unit_test(test_the_newer_counts),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_slots),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
