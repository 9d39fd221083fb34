/* SPDX-License-Identifier: MIT */
/*
 * The shipped modules (modules/), each loaded into a switch between members of
 * this process, at a time that the test sets. Each test runs twice: compiled
 * and interpreted.
 */
#include "device/instance.h"

#include <tutti/mdo_module.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* After those. */
#include <cmocka.h>

enum { MEMBERS = 4, GROUP = 5, SECOND = 1000000000 };

struct world {
	struct tt_fabric *fabric;
	struct tt_member maker, members[MEMBERS];
	uint32_t device, instance;
	struct tutti_vm_program *program;
};

static int64_t clock_ns;

static int64_t now_ns(void)
{
	return clock_ns;
}

/* --- a switch with a module in it ---------------------------------------------------------- */

static struct tutti_vm_program *compile(const char *name, unsigned flags)
{
	static char elf[1 << 16];
	struct tutti_vm_error error = {.text = ""};
	struct tutti_vm_object *object;
	struct tutti_vm_program *program;
	char path[1024];
	size_t bytes;
	FILE *f;

	snprintf(path, sizeof path, "%s/modules/%s.o", getenv("TUTTI_BUILD"), name);
	f = fopen(path, "r");
	assert_non_null(f);
	bytes = fread(elf, 1, sizeof elf, f);
	fclose(f);
	if (tutti_vm_object_open(elf, bytes, &object, &error) ||
	    tutti_vm_program_create(object, tt_module_env(), flags, &program, &error))
		fail_msg("%s: %s", path, error.text);
	tutti_vm_object_destroy(object);
	return program;
}

static struct world *open_world(const char *name, unsigned flags)
{
	const struct tt_binding any = {.device = 0, .group = TT_ANY, .port = TT_ANY};
	struct world *w = calloc(1, sizeof *w);
	int instance;

	assert_non_null(w);
	clock_ns = 10ll * SECOND;
	assert_int_equal(tt_fabric_create(&w->fabric), 0);
	assert_int_equal(tt_code_create(&w->fabric->code), 0);
	w->fabric->now_ns = now_ns;
	assert_int_equal(tt_member_join(w->fabric, TT_NO_DEVICE, &w->maker), 0);
	assert_int_equal(tt_device_add(&w->maker, TT_DEVICE_SWITCH, "switch"), 0);
	for (int i = 0; i < MEMBERS; i++)
		assert_int_equal(tt_member_join(w->fabric, w->device, &w->members[i]), 0);
	w->program = compile(name, flags);
	instance = tt_instance_load(&w->maker, w->program, name, &any);
	assert_true(instance >= 0);
	w->instance = (uint32_t)instance;
	return w;
}

static void close_world(struct world *w)
{
	const struct tt_instance_mem *m = &w->fabric->mem->instances[w->instance];
	struct tt_code *code = w->fabric->code;

	assert_true(m->runs > 0);
	assert_int_equal(m->faults, 0);
	for (int i = 0; i < MEMBERS; i++)
		tt_member_leave(&w->members[i]);
	tt_member_leave(&w->maker);
	tt_fabric_destroy(w->fabric);
	tt_code_destroy(code);
	tutti_vm_program_destroy(w->program);
	free(w);
}

static void *entry_of(struct world *w, const char *map, uint32_t key)
{
	struct tt_map m;

	assert_int_equal(tt_instance_map(&w->maker, w->instance, map, &m), 0);
	return tt_map_find(&m, &key);
}

static uint64_t count_of(struct world *w, const char *map, uint32_t key)
{
	const uint64_t *value = entry_of(w, map, key);

	assert_non_null(value);
	return *value;
}

static void post(struct world *w, int from, struct tt_packet_head head, const void *data,
		 size_t bytes)
{
	head.kind = TT_PACKET_DATA;
	head.bytes = head.total = (uint32_t)bytes;
	assert_int_equal(tt_member_post(&w->members[from], &head, data), 0);
}

/* To member to. True: it came, as it was. */
static bool passes(struct world *w, int from, int to, const void *data, size_t bytes)
{
	uint8_t got[TT_PAYLOAD_BYTES];
	struct tt_packet_head head = {.destination = w->members[to].index, .port = 7};

	post(w, from, head, data, bytes);
	tt_device_drive(&w->maker, w->device);
	if (tt_member_receive(&w->members[to], &head, got, sizeof got))
		return false;
	assert_int_equal(head.bytes, bytes);
	assert_int_equal(head.port, 7);
	assert_int_equal(head.source, w->members[from].index);
	assert_memory_equal(got, data, bytes);
	return true;
}

/* --- count ------------------------------------------------------------------------------------- */

static void count(unsigned flags)
{
	static const struct {
		size_t bytes;
		uint32_t size;
	} sent[] = {{0, 0}, {1, 1}, {2, 2}, {3, 2}, {4, 3}, {1023, 10}, {1024, 11}, {1920, 11}};
	enum { MADE_UP = 2000 };
	struct world *w = open_world("count", flags);
	struct tt_map sources;
	uint32_t key;
	uint64_t others, n = 0;
	uint64_t sizes[12] = {0}, bytes = 0, *of_source;
	uint8_t data[TT_PAYLOAD_BYTES] = {1, 2, 3};

	for (size_t i = 0; i < sizeof sent / sizeof sent[0]; i++) {
		assert_true(passes(w, 0, 1, data, sent[i].bytes));
		sizes[sent[i].size]++;
		bytes += sent[i].bytes;
	}
	assert_true(passes(w, 2, 0, data, 100));
	sizes[7]++;
	for (uint32_t i = 0; i < 12; i++)
		assert_int_equal(count_of(w, "sizes", i), sizes[i]);
	of_source = entry_of(w, "sources", w->members[0].index);
	assert_int_equal(of_source[0], sizeof sent / sizeof sent[0]);
	assert_int_equal(of_source[1], bytes);
	of_source = entry_of(w, "sources", w->members[2].index);
	assert_int_equal(of_source[0], 1);
	assert_int_equal(of_source[1], 100);
	assert_null(entry_of(w, "sources", w->members[1].index));
	/* Sources that are none fill the map; from then on they are counted together. */
	for (uint32_t i = 0; i < MADE_UP; i++) {
		struct tt_packet_head head = {.source = 1000 + i,
					      .kind = TT_PACKET_DATA,
					      .destination = w->members[1].index};

		assert_int_equal(tt_member_replay(&w->members[0], &head, data), 0);
		tt_device_drive(&w->maker, w->device);
		assert_int_equal(tt_member_receive(&w->members[1], &head, data, sizeof data), 0);
	}
	others = count_of(w, "others", 0);
	assert_in_range(others, 1, MADE_UP + 2 - 512);
	assert_int_equal(tt_instance_map(&w->maker, w->instance, "sources", &sources), 0);
	for (int more = tt_map_next(&sources, NULL, &key); !more;
	     more = tt_map_next(&sources, &key, &key))
		n++;
	assert_int_equal(n + others, MADE_UP + 2);
	close_world(w);
}

/* --- limiter ----------------------------------------------------------------------------------- */

static void limiter(unsigned flags)
{
	struct world *w = open_world("limiter", flags);
	uint8_t data[TT_PAYLOAD_BYTES] = {0};
	uint64_t *limit = entry_of(w, "limit", 0), *bucket;

	for (int i = 0; i < 20; i++)
		assert_true(passes(w, 0, 1, data, 1900)); /* no limit is set */
	limit[0] = 1000;				  /* bytes a second */
	limit[1] = 2500;
	assert_true(passes(w, 0, 1, data, 1000));
	assert_true(passes(w, 0, 1, data, 1000));
	assert_false(passes(w, 0, 1, data, 501));
	assert_true(passes(w, 0, 1, data, 500));
	assert_false(passes(w, 0, 1, data, 1));
	assert_true(passes(w, 0, 1, data, 0));
	assert_true(passes(w, 2, 1, data, 1900)); /* another source has its own */
	clock_ns += SECOND / 2;
	assert_false(passes(w, 0, 1, data, 501));
	assert_true(passes(w, 0, 1, data, 500));
	assert_false(passes(w, 0, 1, data, 1));
	/* Tokens of less than a byte are kept. */
	for (int i = 0; i < 4; i++) {
		clock_ns += SECOND / 4000;
		assert_int_equal(passes(w, 0, 1, data, 1), i == 3);
	}
	/* A long time fills it, and no more than that. */
	clock_ns += 1000000ll * SECOND;
	assert_true(passes(w, 0, 1, data, 1900));
	assert_true(passes(w, 0, 1, data, 600));
	assert_false(passes(w, 0, 1, data, 1));
	bucket = entry_of(w, "buckets", w->members[0].index);
	assert_int_equal(bucket[2], 8);
	/* Whatever the host sets, nothing wraps. */
	limit[0] = limit[1] = UINT64_MAX;
	for (int i = 0; i < 20; i++)
		assert_true(passes(w, 0, 1, data, 1900));
	limit[1] = 0;
	clock_ns += SECOND;
	assert_false(passes(w, 0, 1, data, 1));
	close_world(w);
}

/* --- sequencer ---------------------------------------------------------------------------------- */

struct message {
	uint64_t number;
	uint32_t source, message, text;
};

static void sequencer(unsigned flags)
{
	enum { EACH = 10, SENDERS = 3, ALL = EACH * SENDERS };
	const struct tt_packet_head to_group = {
		.destination = TT_ANY, .group = GROUP, .port = 9, .flags = TT_PACKET_MULTICAST};
	struct world *w = open_world("sequencer", flags);
	struct message orders[SENDERS][ALL], m = {0}, more;
	struct tt_packet_head head;

	for (int i = 0; i < SENDERS; i++)
		assert_int_equal(tt_group_enter(&w->members[i], GROUP, true), 0);
	for (uint32_t i = 0; i < EACH; i++)
		for (int from = SENDERS - 1; from >= 0; from--) {
			m = (struct message){.number = 77, .text = 100 * (uint32_t)from + i};
			head = to_group;
			head.message = i;
			post(w, from, head, &m, sizeof m);
			if (i % 3 == 0)
				tt_device_drive(&w->maker, w->device);
		}
	tt_device_drive(&w->maker, w->device);
	for (int to = 0; to < SENDERS; to++) {
		uint32_t next_of[SENDERS] = {0};

		for (uint32_t i = 0; i < ALL; i++) {
			struct message *got = &orders[to][i];
			uint32_t from;

			assert_int_equal(
				tt_member_receive(&w->members[to], &head, got, sizeof *got), 0);
			assert_int_equal(head.source, TT_MEMBERS + w->device);
			assert_int_equal(head.port, 9);
			assert_int_equal(got->number, i);
			from = got->text / 100;
			assert_in_range(from, 0, SENDERS - 1);
			assert_int_equal(got->source, w->members[from].index);
			assert_int_equal(got->text % 100, next_of[from]++);
			assert_int_equal(got->message, got->text % 100);
		}
		assert_int_equal(tt_member_receive(&w->members[to], &head, &more, sizeof more),
				 -EAGAIN);
		assert_memory_equal(orders[to], orders[0], sizeof orders[0]);
	}
	/* Who is not in the group gets nothing; what is no such message goes its way, or nowhere. */
	assert_int_equal(tt_member_receive(&w->members[SENDERS], &head, &m, sizeof m), -EAGAIN);
	assert_true(passes(w, 0, 1, &m, sizeof m));
	post(w, 0, to_group, &m, 15);
	tt_device_drive(&w->maker, w->device);
	for (int to = 0; to < MEMBERS; to++)
		assert_int_equal(tt_member_receive(&w->members[to], &head, &m, sizeof m), -EAGAIN);
	assert_int_equal(count_of(w, "next", GROUP), ALL);
	assert_int_equal(count_of(w, "counts", 0), ALL);
	assert_int_equal(count_of(w, "counts", 2), 1);
	close_world(w);
}

/* With nobody who takes them there is no room at last: what is dropped takes no number. */
static void sequencer_full(unsigned flags)
{
	enum { SENT = TT_OWNER_SLOTS, ROUNDS = 4 };
	const struct tt_packet_head to_group = {
		.destination = TT_ANY, .group = GROUP, .flags = TT_PACKET_MULTICAST};
	struct world *w = open_world("sequencer", flags);
	struct message m = {0};
	struct tt_packet_head head;
	uint64_t numbered, i = 0;

	for (int member = 0; member < 2; member++)
		assert_int_equal(tt_group_enter(&w->members[member], GROUP, true), 0);
	for (int round = 0; round < ROUNDS; round++) {
		for (int j = 0; j < SENT; j++)
			post(w, 0, to_group, &m, sizeof m);
		tt_device_drive(&w->maker, w->device);
	}
	numbered = count_of(w, "next", GROUP);
	assert_in_range(numbered, 1, TT_OWNER_SLOTS);
	assert_int_equal(count_of(w, "counts", 0), numbered);
	assert_int_equal(count_of(w, "counts", 1), SENT * ROUNDS - numbered);
	for (; !tt_member_receive(&w->members[1], &head, &m, sizeof m); i++)
		assert_int_equal(m.number, i);
	assert_int_equal(i, numbered);
	close_world(w);
}

/* --- filter ------------------------------------------------------------------------------------- */

struct rule {
	uint32_t offset, bytes, op, verdict;
	uint64_t mask, value;
};

static void filter(unsigned flags)
{
	enum { OFF, EQUAL, NOT_EQUAL, LESS, MORE };
	struct world *w = open_world("filter", flags);
	uint8_t data[16] = {9, 8, 7, 6, 0x34, 0x12, 0xff};
	struct rule *rules = entry_of(w, "rules", 0);

	assert_true(passes(w, 0, 1, data, 16));
	rules[3] = (struct rule){4, 2, LESS, MDO_DROP, ~0ull, 0x1234};
	assert_true(passes(w, 0, 1, data, 16)); /* it is equal */
	rules[3].value++;
	assert_false(passes(w, 0, 1, data, 16));
	assert_false(passes(w, 0, 1, data, 6));
	assert_true(passes(w, 0, 1, data, 5)); /* it has no such bytes */
	rules[3].mask = 0xff00;
	rules[3].value = 0x1200;
	assert_true(passes(w, 0, 1, data, 16));
	rules[3].op = EQUAL;
	assert_false(passes(w, 0, 1, data, 16));
	rules[3].op = NOT_EQUAL;
	assert_true(passes(w, 0, 1, data, 16));
	rules[3] = (struct rule){8, 8, MORE, MDO_DROP, ~0ull, UINT64_MAX - 1};
	assert_true(passes(w, 0, 1, data, 16));
	memset(data + 8, 0xff, 8);
	assert_false(passes(w, 0, 1, data, 16));
	/* The first that holds decides. */
	rules[0] = (struct rule){0, 1, EQUAL, MDO_PASS, 0xff, 9};
	assert_true(passes(w, 0, 1, data, 16));
	data[0] = 10;
	assert_false(passes(w, 0, 1, data, 16));
	/* Rules that make no sense hold for nothing. */
	for (uint32_t i = 0; i < 16; i++)
		rules[i] = (struct rule){UINT32_MAX - i, 1 + i % 9, NOT_EQUAL, MDO_DROP, ~0ull, 1};
	rules[5].bytes = 0;
	rules[6].bytes = UINT32_MAX;
	rules[7] = (struct rule){0, 9, NOT_EQUAL, MDO_DROP, ~0ull, 1};
	rules[8] = (struct rule){0, 1, 77, MDO_DROP, ~0ull, 1};
	assert_true(passes(w, 0, 1, data, 16));
	assert_int_equal(count_of(w, "held", 3), 5);
	assert_int_equal(count_of(w, "held", 0), 1);
	close_world(w);
}

/* --- all of them ---------------------------------------------------------------------------------- */

#define BOTH(NAME)                                                                                 \
	static void NAME##_compiled(void **state)                                                  \
	{                                                                                          \
		(void)state;                                                                       \
		NAME(TUTTI_VM_JIT);                                                                \
	}                                                                                          \
	static void NAME##_interpreted(void **state)                                               \
	{                                                                                          \
		(void)state;                                                                       \
		NAME(0);                                                                           \
	}
#define TESTS(NAME) cmocka_unit_test(NAME##_compiled), cmocka_unit_test(NAME##_interpreted)

BOTH(count)
BOTH(limiter)
BOTH(sequencer)
BOTH(sequencer_full)
BOTH(filter)

int main(void)
{
	static const struct CMUnitTest tests[] = {TESTS(count), TESTS(limiter), TESTS(sequencer),
						  TESTS(sequencer_full), TESTS(filter)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
