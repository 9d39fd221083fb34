/* SPDX-License-Identifier: MIT */
/*
 * Ops as no verifier would let them be: both engines ask again what a run's
 * safety rests on. The program is laid out by hand, as program.c does it.
 */
#include "vm/engine_test.h"

static const struct tutti_vm_hook hook = {.args = 2};
static const struct tutti_vm_env env = {.hooks = &hook, .n_hooks = 1};

enum { RAW_OPS = 64, RAW_CODE = 8192 };
struct raw {
	struct tt_vm_image image;
	struct tt_vm_op ops[RAW_OPS];
	struct tt_vm_entry entry;
};

static void run_raw(const struct tt_vm_op *ops, const struct tt_vm_func *funcs, uint32_t n_funcs,
		    struct tutti_vm_result ret[2])
{
	static struct tt_vm_note notes[RAW_OPS];
	static struct raw raw;
	uint32_t n = funcs[n_funcs - 1].end;
	struct tutti_vm_object object = {
		.n_insns = n, .funcs = (struct tt_vm_func *)(uintptr_t)funcs, .n_funcs = n_funcs};
	struct tutti_vm_program program = {.env = &env};
	const uint64_t args[] = {0, 0};
	struct tt_vm_code code;
	uint8_t *bytes = calloc(1, RAW_CODE + 4096);

	memset(notes, 0, sizeof notes);
	for (uint32_t i = 0; i < n; i++)
		notes[i].reached = 1;
	raw = (struct raw){.image = {.ops_off = offsetof(struct raw, ops),
				     .n_ops = n,
				     .entries_off = offsetof(struct raw, entry),
				     .n_entries = 1}};
	memcpy(raw.ops, ops, n * sizeof *ops);
	assert_true(sizeof raw <= 4096);
	if (!tt_vm_compile(&object, &env, raw.ops, notes, &code)) {
		assert_true(code.size <= RAW_CODE);
		raw.image.code_off = 4096;
		raw.image.enter_off = 4096 + code.enter;
		raw.entry.code_off = 4096 + code.native[0];
		memcpy(bytes + 4096, code.bytes, code.size);
		free(code.bytes);
		free(code.native);
	}
	memcpy(bytes, &raw, sizeof raw);
	assert_int_equal(tt_vm_arena_create(bytes, RAW_CODE + 4096, 4096, &program.arena), 0);
	program.image = program.arena.address;
	for (int i = 0; i < 2; i++) {
		struct tutti_vm_context *context;

		memset(&ret[i], 0, sizeof ret[i]);
		assert_int_equal(tutti_vm_context_create(&program, &context), 0);
		(i ? tutti_vm_run : tutti_vm_interpret)(context, 0, args, 2, PLENTY, &ret[i]);
		tutti_vm_context_destroy(context);
	}
	assert_same_result(&ret[0], &ret[1]);
	tt_vm_arena_destroy(&program.arena);
	free(bytes);
}

/* Functions inside each other, eight and nine deep, and one that calls itself. */
static void depth(void **state)
{
	struct tt_vm_op ops[RAW_OPS];
	struct tt_vm_func funcs[9];
	struct tutti_vm_result result[2];

	for (uint32_t deep = 8; deep <= 9; deep++) {
		uint32_t n = 0;

		for (uint32_t i = 0; i < deep; i++) {
			funcs[i] = (struct tt_vm_func){.start = n, .end = n + 3};
			/* The innermost frame is written down to its last byte. */
			ops[n++] = (struct tt_vm_op){
				.op = TT_ST | TT_MEM | TT_DW, .dst = TT_FP, .off = -512, .imm = 1};
			ops[n] = (struct tt_vm_op){
				.op = TT_CALL_LOCAL_OP, .off = (int32_t)n + 2, .imm = 3};
			if (i == deep - 1)
				ops[n] =
					(struct tt_vm_op){.op = TT_ALU64 | TT_MOV | TT_K, .imm = 7};
			n++;
			ops[n++] = (struct tt_vm_op){.op = TT_JMP | TT_EXIT};
		}
		run_raw(ops, funcs, deep, result);
		assert_int_equal(result[1].r0, deep == 8 ? 7 : 0);
		assert_int_equal(result[1].fault,
				 deep == 8 ? TUTTI_VM_FAULT_NONE : TUTTI_VM_FAULT_DEPTH);
		assert_int_equal(result[1].pc, deep == 8 ? 0 : 7 * 3 + 1);
		assert_int_equal(result[1].budget_left, PLENTY - 7 * 3);
	}
	ops[0] = (struct tt_vm_op){.op = TT_CALL_LOCAL_OP, .off = 0, .imm = 2};
	ops[1] = (struct tt_vm_op){.op = TT_JMP | TT_EXIT};
	funcs[0] = (struct tt_vm_func){.start = 0, .end = 2};
	run_raw(ops, funcs, 1, result);
	assert_int_equal(result[1].fault, TUTTI_VM_FAULT_DEPTH);
	assert_int_equal(result[1].pc, 0);
}

/* By the frame pointer beyond the stack's ends, when nothing has been proved. */
static void beyond_the_stack(void **state)
{
	static const int offs[] = {-4096, -4097, -4104, -8, -7, 0, INT16_MAX, INT16_MIN};
	const struct tt_vm_func func = {.start = 0, .end = 3};
	struct tutti_vm_result result[2];

	for (unsigned hint = 0; hint <= 1; hint++)
		for (size_t i = 0; i < sizeof offs / sizeof *offs; i++) {
			const struct tt_vm_op ops[] = {{.op = TT_ST | TT_MEM | TT_DW,
							.dst = TT_FP,
							.off = offs[i],
							.window = (uint8_t)hint},
						       {.op = TT_ALU64 | TT_MOV | TT_K, .imm = 7},
						       {.op = TT_JMP | TT_EXIT}};
			bool good = offs[i] >= -4096 && offs[i] <= -8;

			run_raw(ops, &func, 1, result);
			assert_int_equal(result[1].fault,
					 good ? TUTTI_VM_FAULT_NONE : TUTTI_VM_FAULT_WRITE);
			assert_int_equal(result[1].r0, good ? 7 : 0);
		}
}

/* What the interpreter does not know ends the run. */
static void unknown_op(void **state)
{
	const struct tt_vm_op ops[] = {{.op = TT_ALU64 | TT_MOV | TT_K, .imm = 7}, {.op = 0xff}};
	struct tutti_vm_context *context;
	struct tutti_vm_program program = {0};
	struct tutti_vm_result result;
	static struct raw raw;
	const uint64_t args[] = {0, 0};
	char text[64];

	raw = (struct raw){.image = {.ops_off = offsetof(struct raw, ops),
				     .n_ops = 2,
				     .entries_off = offsetof(struct raw, entry),
				     .n_entries = 1}};
	memcpy(raw.ops, ops, sizeof ops);
	program.image = &raw.image;
	program.env = &env;
	assert_int_equal(tutti_vm_context_create(&program, &context), 0);
	assert_int_equal(tutti_vm_interpret(context, 0, args, 2, 1, &result), -EFAULT);
	assert_int_equal(result.fault, TUTTI_VM_FAULT_INSN);
	assert_int_equal(result.pc, 1);
	tutti_vm_fault_text(&program, &result, text, sizeof text);
	assert_string_equal(text, "instruction 1: no such instruction (verify the program)");
	tutti_vm_context_destroy(context);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(depth),
		cmocka_unit_test(beyond_the_stack),
		cmocka_unit_test(unknown_op),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
