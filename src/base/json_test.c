/* SPDX-License-Identifier: MIT */
#include "base/json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void expect(struct tt_json *j, const char *text)
{
	assert_false(j->failed);
	assert_string_equal(j->text, text);
	assert_int_equal(j->bytes, strlen(text));
	tt_json_fini(j);
	assert_null(j->text);
}

static void test_structure(void **state)
{
	struct tt_json j;

	tt_json_init(&j);
	tt_json_open(&j, NULL, '{');
	tt_json_int(&j, "a", -1);
	tt_json_open(&j, "b", '[');
	tt_json_close(&j, ']');
	tt_json_open(&j, "c", '[');
	tt_json_str(&j, NULL, "x");
	tt_json_open(&j, NULL, '{');
	tt_json_close(&j, '}');
	tt_json_open(&j, NULL, '{');
	tt_json_bool(&j, "t", true);
	tt_json_bool(&j, "f", false);
	tt_json_close(&j, '}');
	tt_json_close(&j, ']');
	tt_json_uint(&j, "d", 7);
	tt_json_close(&j, '}');
	expect(&j, "{\"a\":-1,\"b\":[],\"c\":[\"x\",{},{\"t\":true,\"f\":false}],\"d\":7}");
}

static void test_numbers(void **state)
{
	struct tt_json j;

	tt_json_init(&j);
	tt_json_open(&j, NULL, '[');
	tt_json_int(&j, NULL, INT64_MIN);
	tt_json_int(&j, NULL, INT64_MAX);
	tt_json_uint(&j, NULL, UINT64_MAX);
	tt_json_num(&j, NULL, 0.5);
	tt_json_num(&j, NULL, -1e300);
	tt_json_num(&j, NULL, 123456.0);
	tt_json_num(&j, NULL, NAN);
	tt_json_num(&j, NULL, INFINITY);
	tt_json_num(&j, NULL, -INFINITY);
	tt_json_close(&j, ']');
	expect(&j, "[-9223372036854775808,9223372036854775807,18446744073709551615,"
		   "0.5,-1e+300,123456,null,null,null]");
}

/* Names come from other programs: whatever they hold, the text stays ASCII JSON. */
static void test_strings(void **state)
{
	static const struct {
		const char *value, *text;
	} cases[] = {
		{"", "[\"\"]"},
		{"a b/'", "[\"a b/'\"]"},
		{"\"", "[\"\\\"\"]"},
		{"C:\\x", "[\"C:\\\\x\"]"},
		{"\n\t\x01\x1f", "[\"\\u000a\\u0009\\u0001\\u001f\"]"},
		{"~\x7f", "[\"~\\u007f\"]"},
		{"\x80\xff", "[\"\\u0080\\u00ff\"]"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct tt_json j;

		tt_json_init(&j);
		tt_json_open(&j, NULL, '[');
		tt_json_str(&j, NULL, cases[i].value);
		tt_json_close(&j, ']');
		expect(&j, cases[i].text);
	}
	struct tt_json j;

	tt_json_init(&j);
	tt_json_open(&j, NULL, '{');
	tt_json_int(&j, "a\"b", 1); /* keys too */
	tt_json_close(&j, '}');
	expect(&j, "{\"a\\\"b\":1}");
}

static void test_growth(void **state)
{
	struct tt_json j;

	tt_json_init(&j);
	assert_null(j.text);
	tt_json_open(&j, NULL, '[');
	for (int i = 0; i < 100000; i++)
		tt_json_int(&j, NULL, i % 10);
	tt_json_close(&j, ']');
	assert_false(j.failed);
	assert_int_equal(j.bytes, 200001);
	assert_int_equal(strlen(j.text), 200001);
	for (size_t i = 0; i < 100000; i++) {
		assert_int_equal(j.text[1 + 2 * i], '0' + (int)(i % 10));
		assert_int_equal(j.text[2 + 2 * i], i == 99999 ? ']' : ',');
	}
	tt_json_fini(&j);
	tt_json_fini(&j); /* half-built and empty ones too */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_structure),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_strings),
		cmocka_unit_test(test_growth),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
