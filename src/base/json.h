/* SPDX-License-Identifier: MIT */
/*
 * A small JSON writer into a growing buffer. Commas and escapes are its own
 * affair: the caller opens, names, writes and closes.
 */
#ifndef TT_BASE_JSON_H
#define TT_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tt_json {
	char *text;   /* NUL-terminated once anything was written */
	size_t bytes; /* length without the NUL */
	size_t room;
	bool comma;  /* the next element needs one */
	bool failed; /* out of memory: text is not to be used */
};

void tt_json_init(struct tt_json *j);
void tt_json_fini(struct tt_json *j);

/* key NULL inside an array or at the top. */
void tt_json_open(struct tt_json *j, const char *key, char bracket); /* '{' or '[' */
void tt_json_close(struct tt_json *j, char bracket);		     /* '}' or ']' */
void tt_json_str(struct tt_json *j, const char *key, const char *value);
void tt_json_int(struct tt_json *j, const char *key, int64_t value);
void tt_json_uint(struct tt_json *j, const char *key, uint64_t value);
void tt_json_num(struct tt_json *j, const char *key, double value); /* not finite: null */
void tt_json_bool(struct tt_json *j, const char *key, bool value);

#endif
