/* SPDX-License-Identifier: MIT */
/* Helper calls in both engines: what helpers get, what ends a run, what the caller may provide. */
#include "vm/engine_test.h"

enum { FAILS = 99 }; /* an argument that a helper does not like */

static int sum(struct tutti_vm_call *call)
{
	call->ret = call->arg[0] + call->arg[1];
	return call->arg[0] == FAILS ? -EPERM : 0;
}

static struct tutti_vm_call seen[2]; /* by which, user of the context says */

static int look(struct tutti_vm_call *call)
{
	seen[*(int *)call->user] = *call;
	if (call->ptr[0] && call->bytes[0])
		call->ret = *(const uint8_t *)call->ptr[0];
	return 0;
}

static int fill(struct tutti_vm_call *call)
{
	seen[*(int *)call->user] = *call;
	if (call->ptr[0])
		memset(call->ptr[0], 7, call->bytes[0]);
	return 0;
}

/* A map's value, by its number: 0 is none. */
static int value(struct tutti_vm_call *call)
{
	seen[*(int *)call->user] = *call;
	call->ret = call->arg[1] ? tutti_vm_address(TUTTI_VM_MAPS) : 0;
	return 0;
}

#if defined(__x86_64__)
int clobber(struct tutti_vm_call *call); /* engine_helper_test.S: changes what a callee may */
#else
#define clobber sum
#endif

enum { SUM, LOOK, FILL, LOOKUP, UPDATE, CONTEXT, QUIET, DEAR, CLOBBER, N_HELPERS };
static const struct tutti_vm_helper helpers[N_HELPERS] = {
	[SUM] = {"sum", 1, 0, {TUTTI_VM_ARG_ANY, TUTTI_VM_ARG_ANY}, 5, sum},
	[LOOK] = {"look", 2, 0, {TUTTI_VM_ARG_READ, TUTTI_VM_ARG_BYTES}, 1, look},
	[FILL] = {"fill", 3, 0, {TUTTI_VM_ARG_WRITE, TUTTI_VM_ARG_BYTES}, 1, fill},
	[LOOKUP] =
		{"lookup", 4, TUTTI_VM_RET_VALUE, {TUTTI_VM_ARG_MAP, TUTTI_VM_ARG_KEY}, 1, value},
	[UPDATE] = {"update",
		    5,
		    0,
		    {TUTTI_VM_ARG_MAP, TUTTI_VM_ARG_KEY, TUTTI_VM_ARG_VALUE},
		    1,
		    value},
	[CONTEXT] = {"context", 6, 0, {TUTTI_VM_ARG_CTX}, 1, look},
	[QUIET] = {"quiet", 7, TUTTI_VM_RET_NONE, {0}, 1, look},
	[DEAR] = {"dear", 8, 0, {TUTTI_VM_ARG_ANY, TUTTI_VM_ARG_ANY}, INT32_MAX, sum},
	[CLOBBER] = {"clobber", 9, 0, {0}, 1, clobber},
};
static const struct tutti_vm_hook hook = {.args = 2, .helpers = (1 << N_HELPERS) - 1};
static const struct tutti_vm_env env = {
	.hooks = &hook, .n_hooks = 1, .helpers = helpers, .n_helpers = N_HELPERS};

static struct engines *with_users(struct engines *e)
{
	static int which[2] = {0, 1};

	for (int i = 0; i < 2; i++)
		tutti_vm_set_user(e->engine[i].context, &which[i]);
	memset(seen, 0, sizeof seen);
	return e;
}

/* --- helpers ---------------------------------------------------------------------------- */

static void helper_faults(void **state)
{
	struct engines *e = engines_of("mov %r6, 6\ncall 1\nadd %r0, %r6\nexit\n", &env);
	const uint64_t good[] = {1, 2}, bad[] = {FAILS, 2};
	char text[256];

	assert_int_equal(engines_run(e, good, 2, 10), 0);
	assert_int_equal(e->result.r0, 9);
	assert_int_equal(engines_run(e, bad, 2, 10), -EFAULT);
	assert_int_equal(e->result.fault, TUTTI_VM_FAULT_HELPER);
	assert_int_equal(e->result.pc, 1);
	assert_int_equal(e->result.helper_error, -EPERM);
	assert_int_equal(e->result.budget_left, 5);
	tutti_vm_fault_text(e->program, &e->result, text, sizeof text);
	assert_string_equal(
		text, "line 2: instruction 1: a helper ended the run: Operation not permitted");
	assert_int_equal(engines_run(e, good, 2, 10), 0);
	/* Nothing of one fault is left in the next. */
	assert_int_equal(engines_run(e, good, 2, 1), -EFAULT);
	assert_int_equal(e->result.fault, TUTTI_VM_FAULT_BUDGET);
	assert_int_equal(e->result.helper_error, 0);
	engines_free(e);
}

static void check_argument(struct engines *e, unsigned window, int64_t off, uint64_t bytes,
			   bool good)
{
	const uint64_t args[] = {at_window(window, off), bytes};

	memset(seen, 0, sizeof seen);
	engines_run(e, args, 2, 10);
	if (!good) {
		assert_int_equal(e->err, -EFAULT);
		assert_int_equal(e->result.fault, TUTTI_VM_FAULT_ARGUMENT);
		assert_int_equal(e->result.pc, 0);
		assert_int_equal(e->result.address, args[0]);
		assert_int_equal(e->result.bytes, bytes);
		assert_null(seen[0].context);
		assert_null(seen[1].context);
		return;
	}
	assert_int_equal(e->err, 0);
	for (int i = 0; i < 2; i++) {
		assert_ptr_equal(seen[i].context, e->engine[i].context);
		assert_int_equal(seen[i].bytes[0], bytes);
		assert_ptr_equal(seen[i].ptr[0],
				 bytes ? e->engine[i].context->win[window].base + off : NULL);
		assert_int_equal(seen[i].arg[0], args[0]);
		assert_int_equal(seen[i].arg[2] | seen[i].arg[3] | seen[i].arg[4], 0);
	}
}

/* Memory for a helper, at the borders of every window; sizes that wrap. */
static void memory_arguments(void **state)
{
	for (int write = 0; write < 2; write++) {
		struct engines *e =
			with_users(engines_of(write ? "call 3\nexit\n" : "call 2\nexit\n", &env));

		engines_window(e, TUTTI_VM_PACKET, 24, false);
		engines_window(e, TUTTI_VM_EXTRA, 0, true);
		for (unsigned w = 0; w < 16; w++) {
			int64_t there = w < TUTTI_VM_WINDOWS
						? (int64_t)e->engine[0].context->win[w].bytes
						: 0;
			bool allowed = !write || w != TUTTI_VM_PACKET;

			for (int64_t off = -2; off <= 2; off++)
				for (int64_t bytes = 0; bytes <= 3; bytes++) {
					check_argument(e, w, off, (uint64_t)bytes,
						       !bytes || (allowed && off >= 0 &&
								  off + bytes <= there));
					check_argument(e, w, there + off, (uint64_t)bytes,
						       !bytes || (allowed && there + off >= 0 &&
								  off + bytes <= 0));
				}
			for (int k = 0; k < 64; k++) {
				check_argument(e, w, 1, 0 - (1ULL << k), false);
				check_argument(e, w, there, 1ULL << k, false);
				if (k >= 13)
					check_argument(e, w, 0, 1ULL << k, false);
			}
			if (there)
				check_argument(e, w, 0, (uint64_t)there, allowed);
		}
		engines_free(e);
	}
}

/* A map: its key and value sizes, and none after the caller took it away. */
static void maps(void **state)
{
	struct tutti_vm_object *object = assembled("mov %r3, %r2\nmov %r2, %r1\nlddw %r1, map 0\n"
						   "call 5\nexit\n");
	const uint64_t args[] = {at_window(TUTTI_VM_PACKET, 4), at_window(TUTTI_VM_CTX, 8)};
	int map = 0;
	struct engines *e;

	object->maps = calloc(1, sizeof *object->maps);
	object->n_maps = 1;
	*object->maps = (struct tutti_vm_map){.name = "m", .key_bytes = 12, .value_bytes = 20};
	e = with_users(engines_of_object(object, &env));
	for (int round = 0; round < 2; round++) {
		assert_int_equal(engines_run(e, args, 2, 10), -EFAULT);
		assert_int_equal(e->result.fault, TUTTI_VM_FAULT_ARGUMENT);
		assert_int_equal(e->result.pc, 4);
		for (int i = 0; i < 2; i++)
			assert_int_equal(tutti_vm_set_map(e->engine[i].context, 0, &map), 0);
		engines_window(e, TUTTI_VM_PACKET, 16, false);
		engines_window(e, TUTTI_VM_CTX, 28, false);
		assert_int_equal(engines_run(e, args, 2, 10), 0);
		for (int i = 0; i < 2; i++) {
			assert_ptr_equal(seen[i].ptr[0], &map);
			assert_int_equal(seen[i].bytes[1], 12);
			assert_int_equal(seen[i].bytes[2], 20);
		}
		engines_window(e, TUTTI_VM_PACKET, 15, false);
		assert_int_equal(engines_run(e, args, 2, 10), -EFAULT);
		assert_int_equal(e->result.bytes, 12);
		engines_window(e, TUTTI_VM_PACKET, 16, false);
		engines_window(e, TUTTI_VM_CTX, 27, false);
		assert_int_equal(engines_run(e, args, 2, 10), -EFAULT);
		assert_int_equal(e->result.bytes, 20);
		/* Deleted. */
		for (int i = 0; i < 2; i++)
			tutti_vm_set_map(e->engine[i].context, 0, NULL);
	}
	assert_int_equal(tutti_vm_set_map(e->engine[0].context, 1, &map), -EINVAL);
	engines_free(e);
}

/* Where a value lay is remembered in data; once the map is gone, the address leads nowhere. */
static void value_after_deletion(void **state)
{
	struct tutti_vm_object *object =
		assembled("lddw %r6, 0x20000000\nldxdw %r0, [%r6]\njne %r0, 0, +5\n"
			  "stdw [%r10-8], 1\nlddw %r1, map 0\nmov %r2, %r10\nadd %r2, -8\n"
			  "call 4\nstxdw [%r6], %r0\njeq %r0, 0, +1\nldxdw %r0, [%r0]\nexit\n");
	const uint64_t args[] = {0, 0};
	int map = 0;
	struct engines *e;

	object->insns[3].off = 7; /* to the test of the address */
	object->maps = calloc(1, sizeof *object->maps);
	object->n_maps = 1;
	*object->maps = (struct tutti_vm_map){.name = "m", .key_bytes = 8, .value_bytes = 8};
	object->data = calloc(1, 8);
	object->data_bytes = 8;
	e = with_users(engines_of_object(object, &env));
	for (int i = 0; i < 2; i++)
		tutti_vm_set_map(e->engine[i].context, 0, &map);
	assert_int_equal(engines_run(e, args, 2, 10), 0);
	assert_true(e->result.r0 != 0);
	engines_window(e, TUTTI_VM_MAPS, 0, true);
	for (int i = 0; i < 2; i++)
		tutti_vm_set_map(e->engine[i].context, 0, NULL);
	assert_int_equal(engines_run(e, args, 2, 10), -EFAULT);
	assert_int_equal(e->result.fault, TUTTI_VM_FAULT_READ);
	assert_int_equal(e->result.address, tutti_vm_address(TUTTI_VM_MAPS));
	engines_free(e);
}

/* The hook's first argument: a number that only looks like it is no such thing. */
static void context_argument(void **state)
{
	struct engines *e = with_users(engines_of("mov %r1, %r2\ncall 6\nexit\n", &env));
	const uint64_t same[] = {at_window(TUTTI_VM_CTX, 0), at_window(TUTTI_VM_CTX, 0)};
	const uint64_t other[] = {at_window(TUTTI_VM_CTX, 0), at_window(TUTTI_VM_CTX, 8)};

	assert_int_equal(engines_run(e, same, 2, 10), 0);
	assert_int_equal(seen[1].arg[0], same[0]);
	assert_int_equal(engines_run(e, other, 2, 10), -EFAULT);
	assert_int_equal(e->result.fault, TUTTI_VM_FAULT_ARGUMENT);
	assert_int_equal(e->result.address, other[1]);
	engines_free(e);
}

/* Of registers that a helper does not ask for it sees nothing, and what follows neither. */
static void unused_arguments(void **state)
{
	struct engines *e = with_users(engines_of("mov %r3, 3\nmov %r4, 4\nmov %r5, 5\ncall 7\n"
						  "mov %r0, 8\nexit\n",
						  &env));
	const uint64_t args[] = {1, 2};

	assert_int_equal(engines_run(e, args, 2, 10), 0);
	for (int i = 0; i < 2; i++)
		for (int k = 0; k < 5; k++)
			assert_int_equal(seen[i].arg[k], 0);
	engines_free(e);
}

/*
 * What compiled code keeps in registers of the processor that the program does
 * not use: calls of both kinds take them, a callee for windows of its own.
 */
static void kept_registers(void **state)
{
	static const struct tutti_vm_hook windows = {
		.args = 2,
		.arg = {{.window = TUTTI_VM_PACKET}, {.window = TUTTI_VM_MAPS}},
		.helpers = 1 << SUM | 1 << CLOBBER};
	static const struct tutti_vm_env two = {
		.hooks = &windows, .n_hooks = 1, .helpers = helpers, .n_helpers = N_HELPERS};
	static const char *const calls[] = {
		"stxdw [%r10-12], %r7\nldxdw %r0, [%r10-12]\nldxdw %r0, [%r0]\n",
		"call 1\n",
		"call 9\n",
		"call local f\n",
		"mov %r3, %r10\n",
		"jeq %r6, %r10, +0\n",
		"stxdw [%r7+8], %r10\n",
		"lock fetch add [%r7+8], %r0\n",
		"mov %r0, 5\nlock fetch xor [%r6+8], %r0\n"};
	const uint64_t args[] = {at_window(TUTTI_VM_PACKET, 0), at_window(TUTTI_VM_MAPS, 8)};

	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
		for (int used = 0; used < 3; used++) {
			char text[2048];
			int n = sprintf(text, "mov %%r6, %%r1\nmov %%r7, %%r2\nmov %%r8, 0\n");
			struct engines *e;
			uint64_t expected = 0;

			/* The fewer registers are free, the more must be in the last of them. */
			if (used)
				n += sprintf(text + n, "mov %%r3, 3\nmov %%r4, 4\nmov %%r5, 5\n"
						       "add %%r8, %%r3\nadd %%r8, %%r4\n"
						       "add %%r8, %%r5\n");
			for (int round = 0; round < 2; round++) {
				for (int k = 0; k < 6; k++)
					n += sprintf(text + n,
						     "ldxb %%r0, [%%r%d+%d]\nadd %%r8, %%r0\n",
						     used == 2 || k & 1 ? 6 : 7, 16 + k);
				if (!round)
					n += sprintf(text + n, "%s",
						     strstr(calls[i], "call")
							     ? "mov %r1, 1\nmov %r2, 2\n"
							     : "");
				if (!round)
					n += sprintf(text + n, "%s", calls[i]);
			}
			n += sprintf(text + n, "mov %%r0, %%r8\nexit\n");
			if (strstr(calls[i], "local"))
				sprintf(text + n,
					"f: lddw %%r6, 0x70000000\nlddw %%r7, 0x40000000\n"
					"stxdw [%%r10-8], %%r6\nldxdw %%r6, [%%r10-8]\n"
					"stxdw [%%r10-8], %%r7\nldxdw %%r7, [%%r10-8]\n"
					"ldxdw %%r0, [%%r6]\nldxdw %%r0, [%%r6+8]\n"
					"ldxdw %%r0, [%%r6+16]\nldxdw %%r0, [%%r7]\n"
					"ldxdw %%r0, [%%r7+8]\nexit\n");
			for (int k = 0; k < 6; k++)
				expected += used == 2 || k & 1
						    ? pattern(TUTTI_VM_PACKET, (uint64_t)(16 + k))
						    : pattern(TUTTI_VM_MAPS, (uint64_t)(24 + k));
			e = engines_of(text, &two);
			assert_int_equal(engines_run(e, args, 2, 100), 0);
			assert_int_equal(e->result.r0, 2 * expected + (used ? 12 : 0));
			engines_free(e);
		}
}

/* What the caller provides is looked at, too. */
static void environments(void **state)
{
	static const uint8_t bad_args[][5] = {
		{TUTTI_VM_ARG_READ},
		{TUTTI_VM_ARG_WRITE, TUTTI_VM_ARG_ANY},
		{0, 0, 0, 0, TUTTI_VM_ARG_READ},
		{TUTTI_VM_ARG_KEY},
		{TUTTI_VM_ARG_VALUE, TUTTI_VM_ARG_MAP},
		{TUTTI_VM_ARG_BYTES},
		{TUTTI_VM_ARG_CTX + 1},
	};
	struct tutti_vm_helper helper;
	struct tutti_vm_hook bad_hook;
	struct tutti_vm_field field = {.window = TUTTI_VM_WINDOWS};
	struct tutti_vm_env bad = {
		.hooks = &hook, .n_hooks = 1, .helpers = &helper, .n_helpers = 1};
	static const char text[] = "mov %r0, 0\nexit\n";

	for (size_t i = 0; i < sizeof bad_args / sizeof *bad_args; i++) {
		helper = helpers[SUM];
		memcpy(helper.arg, bad_args[i], 5);
		assert_refused(assembled(text), &bad, -EINVAL, "tutti_vm_env");
	}
	helper = helpers[SUM];
	helper.fn = NULL;
	assert_refused(assembled(text), &bad, -EINVAL, "tutti_vm_env");
	helper = helpers[SUM];
	helper.name = NULL;
	assert_refused(assembled(text), &bad, -EINVAL, "tutti_vm_env");
	helper = helpers[SUM];
	helper.cost = 0;
	assert_refused(assembled(text), &bad, -EINVAL, "tutti_vm_env");
	helper = helpers[SUM];
	helper.ret = TUTTI_VM_RET_VALUE + 1;
	assert_refused(assembled(text), &bad, -EINVAL, "tutti_vm_env");
	bad.helpers = (const struct tutti_vm_helper[]){helpers[SUM], helpers[SUM]};
	bad.n_helpers = 2;
	assert_refused(assembled(text), &bad, -EINVAL, "tutti_vm_env");
	bad.n_helpers = TUTTI_VM_MAX_HELPERS + 1;
	assert_refused(assembled(text), &bad, -EINVAL, "tutti_vm_env");
	bad = (struct tutti_vm_env){.hooks = &bad_hook, .n_hooks = 1};
	bad_hook = (struct tutti_vm_hook){.args = 6};
	assert_refused(assembled(text), &bad, -EINVAL, "tutti_vm_env");
	bad_hook = (struct tutti_vm_hook){.args = 1, .arg = {{.window = TUTTI_VM_WINDOWS}}};
	assert_refused(assembled(text), &bad, -EINVAL, "tutti_vm_env");
	bad_hook = (struct tutti_vm_hook){.fields = &field, .n_fields = 1};
	assert_refused(assembled(text), &bad, -EINVAL, "tutti_vm_env");
}

/* A cost beyond what an instruction of the processor holds is counted all the same. */
static void dear_helpers(void **state)
{
	struct engines *e = engines_of("call 8\nexit\n", &env);
	static const uint64_t budgets[] = {0, INT32_MAX - 1, INT32_MAX, UINT64_MAX};
	const uint64_t args[] = {1, 2};
	struct tutti_vm_helper dearer = helpers[DEAR];
	const struct tutti_vm_env too_dear = {
		.hooks = &hook, .n_hooks = 1, .helpers = &dearer, .n_helpers = 1};

	for (size_t i = 0; i < 4; i++) {
		int err = engines_run(e, args, 2, budgets[i]);

		assert_int_equal(err, budgets[i] < INT32_MAX ? -EFAULT : 0);
		assert_int_equal(e->result.budget_left, err ? budgets[i] : budgets[i] - INT32_MAX);
	}
	engines_free(e);
	dearer.cost = (uint32_t)INT32_MAX + 1;
	assert_refused(assembled("call 8\nexit\n"), &too_dear, -EINVAL, "tutti_vm_env");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(helper_faults),
		cmocka_unit_test(memory_arguments),
		cmocka_unit_test(maps),
		cmocka_unit_test(value_after_deletion),
		cmocka_unit_test(context_argument),
		cmocka_unit_test(unused_arguments),
		cmocka_unit_test(kept_registers),
		cmocka_unit_test(environments),
		cmocka_unit_test(dear_helpers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
