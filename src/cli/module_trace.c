/* SPDX-License-Identifier: MIT */
/*
 * Traces: packets as they came to a device, one a line, in text. Nothing in a
 * file is trusted: numbers, lengths and words are checked here, and whoever
 * gets an event may use it as it is.
 */
#include "module_int.h"

#include "cli_int.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_LINE "tutti-trace 1"

/* A part of the text. */
struct word {
	const char *at;
	size_t len;
};

__attribute__((format(printf, 3, 4))) static int
fail(const struct tt_trace *t, struct tutti_vm_error *error, const char *format, ...)
{
	char why[160];
	va_list args;

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	*error = (struct tutti_vm_error){.insn = -1, .reg = -1, .line = t->line};
	snprintf(error->text, sizeof(error->text), "line %u: %s", t->line, why);
	return -EINVAL;
}

/* --- words ---------------------------------------------------------------------------- */

static bool next_line(struct tt_trace *t, struct word *ret_line)
{
	const char *end;

	if (t->at >= t->bytes)
		return false;
	ret_line->at = t->text + t->at;
	end = memchr(ret_line->at, '\n', t->bytes - t->at);
	ret_line->len = end ? (size_t)(end - ret_line->at) : t->bytes - t->at;
	t->at += ret_line->len + 1;
	t->line++;
	return true;
}

static bool next_word(struct word *line, struct word *ret_word)
{
	while (line->len && isspace((unsigned char)*line->at)) {
		line->at++;
		line->len--;
	}
	if (!line->len || *line->at == '#')
		return false;
	ret_word->at = line->at;
	while (line->len && !isspace((unsigned char)*line->at)) {
		line->at++;
		line->len--;
	}
	ret_word->len = (size_t)(line->at - ret_word->at);
	return true;
}

static bool is(struct word w, const char *text)
{
	return w.len == strlen(text) && !memcmp(w.at, text, w.len);
}

/* Decimal, at most most. */
static bool number(struct word w, uint64_t most, uint64_t *ret)
{
	uint64_t value = 0;

	if (!w.len)
		return false;
	for (size_t i = 0; i < w.len; i++) {
		uint64_t digit = (uint64_t)(w.at[i] - '0');

		if (!isdigit((unsigned char)w.at[i]) || value > (most - digit) / 10 || digit > most)
			return false;
		value = value * 10 + digit;
	}
	*ret = value;
	return true;
}

static int nibble(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)tolower((unsigned char)c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Pairs of hexadecimal digits; "-": none. */
static bool hex(struct word w, uint8_t *ret_bytes, size_t room, size_t *ret_count)
{
	if (is(w, "-")) {
		*ret_count = 0;
		return true;
	}
	if (w.len % 2 || w.len / 2 > room)
		return false;
	for (size_t i = 0; i < w.len; i += 2) {
		int high = nibble(w.at[i]), low = nibble(w.at[i + 1]);

		if (high < 0 || low < 0)
			return false;
		ret_bytes[i / 2] = (uint8_t)(high << 4 | low);
	}
	*ret_count = w.len / 2;
	return true;
}

/* --- packets ----------------------------------------------------------------------------- */

enum field { TIME, INPUT, SOURCE, DESTINATION, GROUP, PORT, KIND, MESSAGE, OFFSET, TOTAL, FIELDS };

static const struct {
	const char *name;
	uint64_t most;
} fields[FIELDS] = {
	[TIME] = {"time", INT64_MAX},	       [INPUT] = {"input", TT_OWN_PORT - 1},
	[SOURCE] = {"source", TT_MEMBERS - 1}, [DESTINATION] = {"destination", TT_MEMBERS - 1},
	[GROUP] = {"group", TT_GROUPS - 1},    [PORT] = {"port", UINT16_MAX},
	[KIND] = {"kind", TT_PACKET_FRAME},    [MESSAGE] = {"message", UINT32_MAX},
	[OFFSET] = {"offset", UINT32_MAX},     [TOTAL] = {"total", UINT32_MAX},
};

static int parse_field(struct tt_trace *t, struct word w, uint64_t *values, uint32_t *given,
		       struct tutti_vm_error *error)
{
	const char *equals = memchr(w.at, '=', w.len);
	struct word name = {w.at, equals ? (size_t)(equals - w.at) : w.len};
	struct word value = {w.at + name.len + 1, equals ? w.len - name.len - 1 : 0};

	for (int i = 0; i < FIELDS; i++) {
		if (!equals || !is(name, fields[i].name))
			continue;
		if (*given >> i & 1)
			return fail(t, error, "%s stands here twice", fields[i].name);
		*given |= 1u << i;
		if (!number(value, fields[i].most, &values[i]))
			return fail(t, error, "%s is a number, 0 to %llu", fields[i].name,
				    (unsigned long long)fields[i].most);
		return 0;
	}
	return fail(t, error, "a packet has no '%.*s' (tutti-module(1) has the format)",
		    (int)(w.len < 40 ? w.len : 40), w.at);
}

static int parse_packet(struct tt_trace *t, struct word line, struct tt_trace_event *e,
			struct tutti_vm_error *error)
{
	uint64_t values[FIELDS] = {[TIME] = (uint64_t)t->time_ns, [KIND] = TT_PACKET_DATA};
	uint32_t given = 0;
	uint8_t flags = 0;
	size_t bytes = 0;
	struct word w;

	while (next_word(&line, &w)) {
		int err = 0;

		if (is(w, "multicast"))
			flags |= TT_PACKET_MULTICAST;
		else if (w.len >= 5 && !memcmp(w.at, "data=", 5)) {
			if (!hex((struct word){w.at + 5, w.len - 5}, e->data, sizeof(e->data),
				 &bytes))
				return fail(t, error,
					    "data is pairs of hexadecimal digits, at most %d",
					    TT_PAYLOAD_BYTES);
		} else {
			err = parse_field(t, w, values, &given, error);
		}
		if (err)
			return err;
	}
	t->time_ns = (int64_t)values[TIME];
	e->kind = TT_TRACE_PACKET;
	e->time_ns = t->time_ns;
	e->input = (uint32_t)values[INPUT];
	e->head = (struct tt_packet_head){
		.source = (uint32_t)values[SOURCE],
		.destination = (uint32_t)values[DESTINATION],
		.group = (uint32_t)values[GROUP],
		.port = (uint16_t)values[PORT],
		.kind = (uint8_t)values[KIND],
		.flags = flags,
		.bytes = (uint32_t)bytes,
		.message = (uint32_t)values[MESSAGE],
		.offset = (uint32_t)values[OFFSET],
		.total = given >> TOTAL & 1 ? (uint32_t)values[TOTAL] : (uint32_t)bytes,
	};
	return 1;
}

/* --- the other lines ----------------------------------------------------------------------- */

static int parse_group(struct tt_trace *t, struct word line, struct tt_trace_event *e,
		       struct tutti_vm_error *error)
{
	struct word w;
	uint64_t value;

	if (!next_word(&line, &w) || !number(w, TT_GROUPS - 1, &value) || !value)
		return fail(t, error, "a group is a number, 1 to %d", TT_GROUPS - 1);
	e->kind = TT_TRACE_GROUP;
	e->group = (uint32_t)value;
	memset(e->members, 0, sizeof(e->members));
	while (next_word(&line, &w)) {
		if (!number(w, TT_MEMBERS - 1, &value))
			return fail(t, error, "a member is a number, 0 to %d", TT_MEMBERS - 1);
		e->members[value / 64] |= 1ull << value % 64;
	}
	return 1;
}

static int parse_map(struct tt_trace *t, struct word line, struct tt_trace_event *e,
		     struct tutti_vm_error *error)
{
	struct word name, key, value, more;

	if (!next_word(&line, &name) || !next_word(&line, &key) || !next_word(&line, &value) ||
	    next_word(&line, &more) || name.len >= sizeof(e->name) ||
	    !hex(key, e->key, sizeof(e->key), &e->key_bytes) ||
	    !hex(value, e->value, sizeof(e->value), &e->value_bytes))
		return fail(t, error,
			    "map has a name, a key and a value, both pairs of hexadecimal digits");
	e->kind = TT_TRACE_MAP;
	memcpy(e->name, name.at, name.len);
	e->name[name.len] = '\0';
	return 1;
}

int tt_trace_next(struct tt_trace *t, struct tt_trace_event *ret_event,
		  struct tutti_vm_error *ret_error)
{
	struct word line, w;

	if (!t->line && (!next_line(t, &line) || !is(line, FIRST_LINE)))
		return fail(t, ret_error, "a trace begins with a line '" FIRST_LINE "'");
	while (next_line(t, &line)) {
		if (!next_word(&line, &w))
			continue;
		ret_event->line = t->line;
		if (is(w, "packet"))
			return parse_packet(t, line, ret_event, ret_error);
		if (is(w, "group"))
			return parse_group(t, line, ret_event, ret_error);
		if (is(w, "map"))
			return parse_map(t, line, ret_event, ret_error);
		return fail(t, ret_error, "a line is a packet, a group or a map, not '%.*s'",
			    (int)(w.len < 40 ? w.len : 40), w.at);
	}
	return 0;
}
