/* SPDX-License-Identifier: MIT */
/*
 * What the verifier costs at worst: shapes that are made for it. Of 1,000
 * instructions, and of as many as an object may have; the times are printed.
 */
#include "vm/isa.h"
#include "vm/verify.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static const struct tutti_vm_hook hook = {.args = 2, .arg = {{TUTTI_VM_PACKET, 0}, {0, 0}}};
static const struct tutti_vm_env env = {.hooks = &hook, .n_hooks = 1};

#define I(code_, dst_, src_, off_, imm_)                                                           \
	((struct tutti_vm_insn){.code = (code_),                                                   \
				.regs = (uint8_t)((dst_) | (src_) << 4),                           \
				.off = (int16_t)(off_),                                            \
				.imm = (imm_)})
#define MOV(dst, imm) I(TT_ALU64 | TT_MOV | TT_K, dst, 0, 0, imm)
#define EXIT I(TT_JMP | TT_EXIT, 0, 0, 0, 0)

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static struct tutti_vm_insn many[TUTTI_VM_MAX_INSNS];

/* Verifies the first n of many; returns what it took, in ns. */
static uint64_t verify_many(const char *name, uint32_t n, int expected)
{
	struct tutti_vm_object *object = tt_vm_object_create();
	struct tutti_vm_error error = {0};
	struct tt_vm_verified verified = {0};
	uint64_t start, took;
	int err;

	object->n_insns = n;
	object->insns = malloc(n * sizeof *many);
	memcpy(object->insns, many, n * sizeof *many);
	assert_int_equal(tt_vm_object_split(object), 0);
	start = now_ns();
	err = tt_vm_verify(object, &env, &verified, &error);
	took = now_ns() - start;
	print_message("%-16s %6u instructions: %8.1f us %s\n", name, n, (double)took / 1000,
		      error.text);
	assert_int_equal(err, expected);
	free(verified.notes);
	free(verified.hook_of_func);
	tutti_vm_object_destroy(object);
	return took;
}

static void all_registers(void)
{
	for (int r = 0; r < 10; r++)
		many[r] = MOV((r + 3) % 10, r);
}

/* Every second instruction branches over the next: 2^n ways. */
static void make_ladder(uint32_t n)
{
	all_registers();
	for (uint32_t i = 10; i < n - 1; i += 2) {
		many[i] = I(TT_JMP | TT_JEQ | TT_X, i / 2 % 10, i / 3 % 10, 1, 0);
		many[i + 1] = I(TT_ALU64 | TT_ADD | TT_K, i / 2 % 10, 0, 0, (int32_t)i);
	}
	many[n - 2] = MOV(0, 0);
	many[n - 1] = EXIT;
}

/* Jumps back and forth: each instruction may go on, or to a place that changes with it. */
static void make_tangle(uint32_t n)
{
	all_registers();
	for (uint32_t i = 10; i < n - 2; i++) {
		int64_t to = 10 + (int64_t)((uint64_t)i * 2654435761u % (n - 12)) - (int64_t)i - 1;

		if (to > INT16_MAX || to < INT16_MIN)
			to /= 4;
		many[i] = i % 3 ? I(TT_JMP | TT_JGT | TT_X, i % 10, i / 10 % 10, to, 0)
				: I(TT_ALU64 | TT_ADD | TT_X, i % 10, i / 7 % 10, 0, 0);
	}
	many[n - 2] = MOV(0, 0);
	many[n - 1] = EXIT;
}

/* Loops inside each other, as deep as there is room, with counters and stores to spill slots. */
static void make_nest(uint32_t n)
{
	uint32_t half = n / 2;

	all_registers();
	for (uint32_t i = 10; i < half; i++)
		many[i] = i % 2 ? I(TT_ALU64 | TT_ADD | TT_K, i / 2 % 10, 0, 0, 1)
				: I(TT_STX | TT_MEM | TT_DW, TT_FP, i / 2 % 10,
				    -8 - (int)(i / 2 % 64) * 8, 0);
	for (uint32_t i = half; i < n - 2; i++) {
		int64_t back = -2 * (int64_t)(i - half) - 2;

		if (back < INT16_MIN)
			back = INT16_MIN;
		if ((int64_t)i + 1 + back < 10)
			back = 10 - (int64_t)i - 1;
		many[i] = I(TT_JMP | TT_JLT | TT_K, i % 10, 0, back, (int32_t)i);
	}
	many[n - 2] = MOV(0, 0);
	many[n - 1] = EXIT;
}

/* Backward all the way: a jump over everything, then each block leads to the one before. */
static void make_backward(uint32_t n)
{
	all_registers();
	many[10] = I(TT_JMP32 | TT_JA, 0, 0, 0, (int32_t)n - 14);
	many[11] = MOV(0, 0);
	many[12] = EXIT;
	many[13] = EXIT;
	for (uint32_t i = 14; i + 1 < n; i += 2) {
		many[i] = I(TT_ALU64 | TT_ADD | TT_K, i / 2 % 10, 0, 0, 1);
		many[i + 1] = I(TT_JMP | TT_JA, 0, 0, i == 14 ? -5 : -4, 0);
	}
	many[10].imm = (int32_t)n - 2 - 11;
}

/* Functions of eight: each calls two of the next levels, thousands call one. */
static void make_calls(uint32_t n)
{
	uint32_t funcs = n / 8, per_level = funcs / 7;

	for (uint32_t f = 0; f < funcs; f++) {
		uint32_t level = f ? 1 + (f - 1) / per_level : 0, at = f * 8;
		uint32_t first = 1 + level * per_level, count = per_level;

		for (uint32_t i = 0; i < 7; i++) {
			uint32_t to = first + (f * 7 + i) * 2654435761u % count;

			many[at + i] = MOV(i % 5 + 1, (int32_t)(f * i));
			if (i % 2 == 1 && level < 6 && to < funcs && first + count <= funcs)
				many[at + i] = I(TT_JMP | TT_CALL, 0, TT_CALL_LOCAL, 0,
						 (int32_t)(to * 8) - (int32_t)(at + i) - 1);
		}
		many[at + 6] = MOV(0, (int32_t)f);
		many[at + 7] = EXIT;
	}
}

/* One callee for all, and it returns something else for each. */
static void make_crowd(uint32_t n)
{
	uint32_t callee = n - 8;

	for (uint32_t i = 0; i < n; i++) {
		if (i >= callee)
			many[i] = I(TT_ALU64 | TT_MOV | TT_X, 0, 1, 0, 0);
		else
			many[i] = i % 2 ? I(TT_JMP | TT_CALL, 0, TT_CALL_LOCAL, 0,
					    (int32_t)callee - (int32_t)i - 1)
					: MOV(1, (int32_t)i);
		if (i + 1 == callee || i + 1 == n)
			many[i] = EXIT;
	}
}

/* A loop that comes to rest slowly, and costs much each time: one more kept address changes. */
static void make_mill(uint32_t n)
{
	uint32_t i = 0, loop;

	all_registers();
	many[9] = I(TT_ALU64 | TT_MOV | TT_X, 9, TT_FP, 0, 0);
	for (i = 10; i < 74; i++)
		many[i] = I(TT_STX | TT_MEM | TT_DW, TT_FP, 9, -512 + 8 * ((int)i - 10), 0);
	loop = i;
	for (int slot = 63; slot > 0; slot--) {
		many[i++] = I(TT_LDX | TT_MEM | TT_DW, 3, TT_FP, -512 + 8 * (slot - 1), 0);
		many[i++] = I(TT_STX | TT_MEM | TT_DW, TT_FP, 3, -512 + 8 * slot, 0);
	}
	many[i++] = I(TT_STX | TT_MEM | TT_DW, TT_FP, 2, -512, 0);
	for (; i < n - 3; i++)
		many[i] = I(TT_JMP | TT_JEQ | TT_X, i / 2 % 10, i / 3 % 10, 0, 0);
	many[n - 3] = I(TT_JMP | TT_JEQ | TT_K, 0, 0, 1, 0);
	many[n - 2] = I(TT_JMP32 | TT_JA, 0, 0, 0, (int32_t)loop - (int32_t)n + 1);
	many[n - 1] = EXIT;
}

static void test_hostile(void **state)
{
	static const struct {
		const char *name;
		void (*make)(uint32_t n);
		int expected;
	} shapes[] = {{"ladder", make_ladder, 0},  {"tangle", make_tangle, 0},
		      {"nest", make_nest, 0},	   {"backward", make_backward, 0},
		      {"calls", make_calls, 0},	   {"crowd", make_crowd, 0},
		      {"mill", make_mill, -EACCES}};

	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
		uint64_t small, large;

		shapes[i].make(1000);
		small = verify_many(shapes[i].name, 1000, shapes[i].expected);
		shapes[i].make(TUTTI_VM_MAX_INSNS);
		large = verify_many(shapes[i].name, TUTTI_VM_MAX_INSNS, shapes[i].expected);
		/* A second is the aim; sanitizers and a busy machine take ten times more. */
		assert_true(small < 1000000000u && large < 10000000000u);
	}
}

/*
 * A loop that changes one more of 64 kept addresses each time it is looked at,
 * with more to look at each time.
 */
static int verify_slow_loop(unsigned more, struct tutti_vm_error *error)
{
	struct tutti_vm_object *object;
	struct tt_vm_verified verified = {0};
	uint32_t n = 0, loop;
	int err;

	many[n++] = MOV(0, 0);
	for (int slot = 0; slot < 64; slot++)
		many[n++] = I(TT_STX | TT_MEM | TT_DW, TT_FP, 1, -512 + 8 * slot, 0);
	loop = n;
	for (int slot = 63; slot > 0; slot--) {
		many[n++] = I(TT_LDX | TT_MEM | TT_DW, 3, TT_FP, -512 + 8 * (slot - 1), 0);
		many[n++] = I(TT_STX | TT_MEM | TT_DW, TT_FP, 3, -512 + 8 * slot, 0);
	}
	many[n++] = I(TT_STX | TT_MEM | TT_DW, TT_FP, 2, -512, 0);
	for (unsigned i = 0; i < more; i++)
		many[n++] = MOV(3, (int32_t)i);
	many[n] = I(TT_JMP | TT_JNE | TT_K, 2, 0, (int)loop - (int)n - 1, 77);
	many[++n] = EXIT;
	assert_int_equal(tutti_vm_object_from_insns(many, n + 1, &object), 0);
	err = tt_vm_verify(object, &env, &verified, error);
	free(verified.notes);
	free(verified.hook_of_func);
	tutti_vm_object_destroy(object);
	return err;
}

static void test_too_many_visits(void **state)
{
	struct tutti_vm_error error;

	assert_int_equal(verify_slow_loop(0, &error), 0);
	assert_int_equal(verify_slow_loop(1000, &error), -EACCES);
	assert_int_equal(error.insn, 65);
	assert_string_equal(strstr(error.text, ": "),
			    ": the ways to this instruction are too many to check (use fewer "
			    "branches and loops)");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_too_many_visits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
