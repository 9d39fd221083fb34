/* SPDX-License-Identifier: MIT */
#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tt_json_init(struct tt_json *j)
{
	memset(j, 0, sizeof(*j));
}

void tt_json_fini(struct tt_json *j)
{
	free(j->text);
	memset(j, 0, sizeof(*j));
}

static void put(struct tt_json *j, const char *s, size_t n)
{
	if (j->failed)
		return;
	if (j->bytes + n + 1 > j->room) {
		size_t room = (j->bytes + n + 1) * 2 + 256;
		char *t = realloc(j->text, room);

		if (!t) {
			j->failed = true;
			return;
		}
		j->text = t;
		j->room = room;
	}
	memcpy(j->text + j->bytes, s, n);
	j->bytes += n;
	j->text[j->bytes] = '\0';
}

static void put_quoted(struct tt_json *j, const char *s)
{
	put(j, "\"", 1);
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;
		char esc[8];

		if (c == '"' || c == '\\') {
			esc[0] = '\\';
			esc[1] = (char)c;
			put(j, esc, 2);
		} else if (c < 0x20 || c >= 0x7f) {
			/* Names come from other programs and may be no UTF-8. */
			int n = snprintf(esc, sizeof(esc), "\\u%04x", c);

			put(j, esc, (size_t)n);
		} else {
			put(j, s, 1);
		}
	}
	put(j, "\"", 1);
}

static void begin(struct tt_json *j, const char *key)
{
	if (j->comma)
		put(j, ",", 1);
	j->comma = true;
	if (key) {
		put_quoted(j, key);
		put(j, ":", 1);
	}
}

void tt_json_open(struct tt_json *j, const char *key, char bracket)
{
	begin(j, key);
	put(j, &bracket, 1);
	j->comma = false;
}

void tt_json_close(struct tt_json *j, char bracket)
{
	put(j, &bracket, 1);
	j->comma = true;
}

void tt_json_str(struct tt_json *j, const char *key, const char *value)
{
	begin(j, key);
	put_quoted(j, value);
}

static void put_number(struct tt_json *j, const char *key, const char *text)
{
	begin(j, key);
	put(j, text, strlen(text));
}

void tt_json_int(struct tt_json *j, const char *key, int64_t value)
{
	char t[32];

	snprintf(t, sizeof(t), "%" PRId64, value);
	put_number(j, key, t);
}

void tt_json_uint(struct tt_json *j, const char *key, uint64_t value)
{
	char t[32];

	snprintf(t, sizeof(t), "%" PRIu64, value);
	put_number(j, key, t);
}

void tt_json_num(struct tt_json *j, const char *key, double value)
{
	char t[40];

	snprintf(t, sizeof(t), "%.6g", value);
	put_number(j, key, isfinite(value) ? t : "null");
}

void tt_json_bool(struct tt_json *j, const char *key, bool value)
{
	put_number(j, key, value ? "true" : "false");
}
