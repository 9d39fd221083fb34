/* SPDX-License-Identifier: MIT */
/*
 * Whether what the verifier says is true. The interpreter checks every access,
 * also where notes say that it need not; so here it is the judge:
 * - of each operation's rule: results of random operands lie in the interval;
 * - of each comparison's: operands that took a branch lie in what it refines;
 * - of proofs: random programs never fault where an access is proved, nor come to
 *   an instruction that is not reached; and the address at a proved access,
 *   which a jump away from there returns, is the one that the note says.
 */
#include "vm/verify_int.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed = 1;

static uint64_t rnd(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed * 0x2545f4914f6cdd1dULL;
}

static unsigned below(unsigned n)
{
	return (unsigned)(rnd() >> 32) % n;
}

/* Numbers at and around all borders that matter, small ones, and any. */
static uint64_t number(void)
{
	static const uint64_t borders[] = {0,	       0x80,	   0x8000,	0x7fffffff,
					   0x80000000, UINT32_MAX, 0x100000000, INT64_MAX,
					   1ULL << 63, UINT64_MAX};

	switch (below(4)) {
	case 0: return borders[below(10)] + below(5) - 2;
	case 1: return below(100);
	case 2: return rnd() >> below(64);
	default: return 0 - (uint64_t)below(100);
	}
}

static struct tt_vm_reg interval(void)
{
	uint64_t a = number(), b = below(3) ? a + below(200) : number();

	if (below(6) == 0)
		b = a;
	return a < b ? tt_vm_range(a, b, 0) : tt_vm_range(b, a, 0);
}

static uint64_t within(const struct tt_vm_reg *r)
{
	uint64_t size = r->max - r->min;

	switch (below(4)) {
	case 0: return r->min;
	case 1: return r->max;
	default: return size == UINT64_MAX ? rnd() : r->min + rnd() % (size + 1);
	}
}

#define I(code_, dst_, src_, off_, imm_)                                                           \
	((struct tutti_vm_insn){.code = (uint8_t)(code_),                                          \
				.regs = (uint8_t)((dst_) | (src_) << 4),                           \
				.off = (int16_t)(off_),                                            \
				.imm = (int32_t)(imm_)})
#define EXIT I(TT_JMP | TT_EXIT, 0, 0, 0, 0)

static const struct tutti_vm_hook hook = {.args = 3, .arg = {{0, 0}, {0, 0}, {TUTTI_VM_CTX, 48}}};
static const struct tutti_vm_env env = {.hooks = &hook, .n_hooks = 1};

static uint64_t memory[8];

struct machine {
	struct tutti_vm_program *program;
	struct tutti_vm_context *context;
};

/* False: the verifier refuses it. */
static bool start(const struct tutti_vm_object *object, struct machine *ret)
{
	struct tutti_vm_error error;

	if (tutti_vm_program_create(object, &env, 0, &ret->program, &error) < 0)
		return false;
	assert_int_equal(tutti_vm_context_create(ret->program, &ret->context), 0);
	assert_int_equal(tutti_vm_set_window(ret->context, TUTTI_VM_CTX, memory, 48, true), 0);
	return true;
}

static void stop(struct machine *m)
{
	tutti_vm_context_destroy(m->context);
	tutti_vm_program_destroy(m->program);
}

static int run(struct machine *m, uint64_t a, uint64_t b, struct tutti_vm_result *result)
{
	uint64_t args[3] = {a, b, tutti_vm_address(TUTTI_VM_CTX)};

	return tutti_vm_interpret(m->context, 0, args, 3, 500, result);
}

static struct machine start_insns(const struct tutti_vm_insn *insns, uint32_t n)
{
	struct tutti_vm_object *object;
	struct machine m;

	assert_int_equal(tutti_vm_object_from_insns(insns, n, &object), 0);
	assert_true(start(object, &m));
	tutti_vm_object_destroy(object);
	return m;
}

static bool holds(const struct tt_vm_reg *r, uint64_t value)
{
	return r->kind == TT_NUMBER && r->min <= value && value <= r->max;
}

/* r0 OP= r2, or an immediate: operands are r1 and r2. */
static void try_operation(struct tutti_vm_insn op)
{
	const struct tutti_vm_insn insns[] = {I(TT_ALU64 | TT_MOV | TT_X, 0, 1, 0, 0), op, EXIT};
	struct machine m = start_insns(insns, 3);

	for (int i = 0; i < 1500; i++) {
		struct tt_vm_state state = {0};
		struct tt_vm_reg a = interval(), b = interval();
		uint64_t x = within(&a), y = within(&b);
		struct tutti_vm_result result;

		state.reg[0] = a;
		state.reg[2] = b;
		tt_vm_alu(&state, &op);
		assert_int_equal(run(&m, x, y, &result), 0);
		if (!holds(&state.reg[0], result.r0))
			fail_msg("code 0x%02x off %d imm %d: 0x%" PRIx64 " 0x%" PRIx64
				 " gives 0x%" PRIx64 ", not in 0x%" PRIx64 " to 0x%" PRIx64,
				 op.code, op.off, op.imm, x, y, result.r0, state.reg[0].min,
				 state.reg[0].max);
	}
	stop(&m);
}

static void test_operations(void **state)
{
	static const int32_t imms[] = {0, 1, -1, 7, 63, 64, INT32_MIN, INT32_MAX};

	for (unsigned class = TT_ALU; class <= TT_ALU64; class += TT_ALU64 - TT_ALU) {
		for (unsigned op = TT_ADD; op <= TT_ARSH; op += 0x10) {
			if (op == TT_NEG) {
				try_operation(I(class | op, 0, 0, 0, 0));
				continue;
			}
			try_operation(I(class | op | TT_X, 0, 2, 0, 0));
			for (size_t i = 0; i < sizeof imms / sizeof *imms; i++)
				try_operation(I(class | op | TT_K, 0, 0, 0, imms[i]));
			if (op == TT_DIV || op == TT_MOD) {
				try_operation(I(class | op | TT_X, 0, 2, 1, 0));
				try_operation(I(class | op | TT_K, 0, 0, 1, -7));
			}
		}
		for (int bits = 8; bits <= (class == TT_ALU ? 16 : 32); bits *= 2)
			try_operation(I(class | TT_MOV | TT_X, 0, 2, bits, 0));
		for (int bits = 16; bits <= 64; bits *= 2)
			try_operation(I(class | TT_END, 0, 0, 0, bits));
	}
	for (int bits = 16; bits <= 64; bits *= 2)
		try_operation(I(TT_ALU | TT_END | TT_X, 0, 0, 0, bits));
}

/* if r1 OP r2, or an immediate. */
static void try_comparison(struct tutti_vm_insn op)
{
	const struct tutti_vm_insn insns[] = {I(TT_ALU64 | TT_MOV | TT_K, 0, 0, 0, 1), op,
					      I(TT_ALU64 | TT_MOV | TT_K, 0, 0, 0, 0), EXIT};
	struct machine m = start_insns(insns, 4);

	for (int i = 0; i < 4000; i++) {
		struct tt_vm_state state = {0};
		struct tt_vm_reg a = interval(), b = below(3) ? interval() : a;
		uint64_t x, y;
		struct tutti_vm_result result;

		if (TT_CLASS(op.code) == TT_JMP32 && below(2)) {
			a = tt_vm_range((uint32_t)a.min, UINT32_MAX, 0);
			b = tt_vm_range(0, (uint32_t)b.max, 0);
		}
		x = within(&a);
		y = within(&b);
		state.reg[1] = a;
		state.reg[2] = b;
		assert_int_equal(run(&m, x, y, &result), 0);
		tt_vm_refine(&state, &op, result.r0);
		if (!holds(&state.reg[1], x) || !holds(&state.reg[2], y))
			fail_msg("code 0x%02x imm %d %s: 0x%" PRIx64 " 0x%" PRIx64
				 " not in 0x%" PRIx64 " to 0x%" PRIx64 ", 0x%" PRIx64
				 " to 0x%" PRIx64,
				 op.code, op.imm, result.r0 ? "taken" : "not taken", x, y,
				 state.reg[1].min, state.reg[1].max, state.reg[2].min,
				 state.reg[2].max);
	}
	stop(&m);
}

static void test_comparisons(void **state)
{
	static const int32_t imms[] = {0, 1, -1, -2, 50, INT32_MIN, INT32_MAX};

	for (unsigned class = TT_JMP; class <= TT_JMP32; class ++) {
		for (unsigned op = TT_JEQ; op <= TT_JSLE; op += 0x10) {
			if (op == TT_CALL || op == TT_EXIT)
				continue;
			try_comparison(I(class | op | TT_X, 1, 2, 1, 0));
			try_comparison(I(class | op | TT_X, 1, 1, 1, 0));
			for (size_t i = 0; i < sizeof imms / sizeof *imms; i++)
				try_comparison(I(class | op | TT_K, 1, 0, 1, imms[i]));
		}
	}
}

/* --- random programs --------------------------------------------------------------- */

enum { INSNS = 72, CALLEE = 20, DATA = 64 };

static const uint8_t operations[] = {TT_ADD, TT_SUB, TT_MUL, TT_DIV, TT_OR,   TT_AND, TT_LSH,
				     TT_RSH, TT_MOD, TT_XOR, TT_MOV, TT_ARSH, TT_AND, TT_ADD};
static const uint8_t comparisons[] = {TT_JEQ,  TT_JGT, TT_JGE, TT_JSET, TT_JNE, TT_JSGT,
				      TT_JSGE, TT_JLT, TT_JLE, TT_JSLT, TT_JSLE};

static int32_t small(void)
{
	return below(4) ? (int32_t)below(DATA) : (int32_t)number();
}

static struct tutti_vm_insn random_alu(void)
{
	uint8_t class = below(4) ? TT_ALU64 : TT_ALU, op = operations[below(sizeof operations)];

	if (below(16) == 0)
		return I(class | TT_NEG, below(6), 0, 0, 0);
	/* Ever new numbers below what there is room for. */
	if (below(3) == 0)
		return I(TT_ALU64 | TT_AND | TT_K, below(6), 0, 0, below(DATA));
	if (below(2))
		return I(class | op | TT_K, below(6), 0, 0, small());
	return I(class | op | TT_X, below(6), below(6), 0, 0);
}

/* r6 to r9: somewhere in data, rodata, the ctx, the frame; r0 to r5 any numbers. */
static struct tutti_vm_insn random_access(void)
{
	static const uint8_t sizes[] = {TT_B, TT_H, TT_W, TT_DW};
	unsigned base = 6 + below(4), size = sizes[below(4)];
	int off = base == 9 ? -(int)below(560) : (int)below(DATA) - 8;

	switch (below(6)) {
	case 0:
		if (base != 7)
			return I(TT_STX | TT_MEM | size, base, below(6), off, 0);
		return I(TT_LDX | TT_MEM | size, below(6), base, off, 0);
	case 1:
		return I(TT_LDX | (size == TT_DW ? TT_MEM : TT_MEMSX) | size, below(6), base, off,
			 0);
	case 2:
		if (base != 7)
			return I(TT_STX | TT_ATOMIC | TT_DW, base, below(6), off & ~7,
				 below(2) ? TT_ADD | TT_FETCH : TT_XOR);
		return I(TT_LDX | TT_MEM | size, below(6), base, off, 0);
	default: return I(TT_LDX | TT_MEM | size, below(6), base, off, 0);
	}
}

/* A call of the object's first function, with what it gets, and new numbers for what it took. */
static uint32_t random_call(struct tutti_vm_insn *insns, uint32_t n)
{
	insns[n++] = I(TT_ALU64 | TT_MOV | TT_X, 1, below(10), 0, 0);
	insns[n] = I(TT_JMP | TT_CALL, 0, TT_CALL_LOCAL, 0, -(int)n - 1);
	n++;
	for (unsigned r = 1; r < 6; r++)
		insns[n++] = I(TT_ALU64 | TT_MOV | TT_K, r, 0, 0, small());
	insns[n++] = I(TT_ALU64 | TT_MOV | TT_X, below(3) ? 0 : 8, 0, 0, 0);
	return n;
}

/* Instructions from n up to end, which jump to those from first on. */
static uint32_t random_body(struct tutti_vm_insn *insns, uint32_t n, uint32_t end, bool calls)
{
	uint32_t first = n;

	while (n < end) {
		unsigned base = 6 + below(4);
		int to = (int)first + (int)below(end + 1 - first) - (int)n - 1;

		switch (below(10)) {
		case 0:
			insns[n++] = I((below(3) ? TT_JMP : TT_JMP32) |
					       comparisons[below(sizeof comparisons)] | TT_K,
				       below(6), 0, to, small());
			break;
		case 1:
			insns[n++] = I((below(3) ? TT_JMP : TT_JMP32) |
					       comparisons[below(sizeof comparisons)] | TT_X,
				       below(6), below(6), to, 0);
			break;
		case 2:
		case 3:
			insns[n++] = I(TT_ALU64 | (below(4) ? TT_ADD : TT_SUB) | TT_X, base,
				       below(6), 0, 0);
			break;
		case 4: /* back to the start */
			base = base == 8 ? 9 : base;
			insns[n++] = base == 9 ? I(TT_ALU64 | TT_MOV | TT_X, 9, 10, 0, 0)
					       : I(TT_ALU64 | TT_MOV | TT_K, base, 0, 0,
						   (int32_t)((base - 4) << TUTTI_VM_WINDOW_SHIFT));
			break;
		case 5:
		case 6:
		case 7: insns[n++] = random_access(); break;
		case 8:
			if (calls && n + 8 <= end) {
				n = random_call(insns, n);
				break;
			}
			/* fallthrough */
		default: insns[n++] = random_alu();
		}
	}
	return n;
}

/* r6, r7, r9: data, rodata, frame pointer. */
static uint32_t set_bases(struct tutti_vm_insn *insns, uint32_t n)
{
	for (unsigned w = TUTTI_VM_DATA; w <= TUTTI_VM_RODATA; w++)
		insns[n++] = I(TT_ALU64 | TT_MOV | TT_K, w + 4, 0, 0,
			       (int32_t)(w << TUTTI_VM_WINDOW_SHIFT));
	insns[n++] = I(TT_ALU64 | TT_MOV | TT_X, 9, 10, 0, 0);
	return n;
}

/* A function of CALLEE instructions first, if calls; then the entry. */
static uint32_t random_program(struct tutti_vm_insn *insns, bool calls)
{
	uint32_t n = 0;

	if (calls) {
		insns[n++] = I(TT_ALU64 | TT_MOV | TT_X, 8, 1, 0, 0);
		insns[n++] = I(TT_ALU64 | TT_MOV | TT_K, 0, 0, 0, small());
		n = random_body(insns, set_bases(insns, n), CALLEE - 2, false);
		insns[n++] = I(TT_ALU64 | TT_MOV | TT_X, 0, below(2) ? 0 : 6 + below(4), 0, 0);
		insns[n++] = EXIT;
	}
	insns[n++] = I(TT_ALU64 | TT_MOV | TT_X, 8, 3, 0, 0); /* r1 to r3 come from outside */
	for (unsigned r = 0; r < 6; r++)
		if (r == 0 || r > 2)
			insns[n++] = I(TT_ALU64 | TT_MOV | TT_K, r, 0, 0, small());
	n = random_body(insns, set_bases(insns, n), INSNS - 2, calls);
	insns[n++] = I(TT_ALU64 | TT_MOV | TT_K, 0, 0, 0, 0);
	insns[n++] = EXIT;
	return n;
}

static unsigned long accepted, proofs, faults, looks;

/* Of the entry: no object but this one is needed to know it. */
static uint64_t frame_pointer(void)
{
	const struct tutti_vm_insn insns[] = {I(TT_ALU64 | TT_MOV | TT_X, 0, 10, 0, 0), EXIT};
	struct machine m = start_insns(insns, 2);
	struct tutti_vm_result result;

	assert_int_equal(run(&m, 0, 0, &result), 0);
	stop(&m);
	return result.r0;
}

static struct tutti_vm_object *object_of(const struct tutti_vm_insn *insns, uint32_t n, bool calls)
{
	struct tutti_vm_object *object;

	assert_int_equal(tutti_vm_object_from_insns(insns, n, &object), 0);
	if (calls) {
		object->n_funcs = 2;
		object->funcs = realloc(object->funcs, 2 * sizeof *object->funcs);
		object->funcs[1] = object->funcs[0];
		object->funcs[1].start = CALLEE;
		object->funcs[0] = (struct tt_vm_func){
			.name = strdup("callee"), .section = strdup(".text"), .end = CALLEE};
	}
	object->data = calloc(1, DATA);
	object->rodata = calloc(1, DATA);
	object->data_bytes = object->rodata_bytes = DATA;
	return object;
}

/* Is the access at pc where its note says? */
static void look_at(const struct tutti_vm_object *object, const struct tt_vm_note *note,
		    uint32_t pc)
{
	const struct tutti_vm_insn *at = &object->insns[pc];
	unsigned base = TT_CLASS(at->code) == TT_LDX ? tt_vm_src(at) : tt_vm_dst(at);
	uint64_t window = tutti_vm_address((enum tutti_vm_window)note->window);
	struct tutti_vm_insn insns[INSNS + 2];
	struct tutti_vm_object *patched;
	uint32_t n = object->n_insns;
	struct machine m;

	memcpy(insns, object->insns, n * sizeof *insns);
	insns[pc] = I(TT_JMP | TT_JA, 0, 0, (int)(n - pc) - 1, 0);
	insns[n] = I(TT_ALU64 | TT_MOV | TT_X, 0, base, 0, 0);
	insns[n + 1] = EXIT;
	patched = object_of(insns, n + 2, object->n_funcs > 1);
	/* Without what was replaced, something else may be known to be wrong. */
	if (!start(patched, &m)) {
		tutti_vm_object_destroy(patched);
		return;
	}
	for (int i = 0; i < 4; i++) {
		struct tutti_vm_result result;
		uint64_t bytes = tt_vm_bytes(at->code), off;

		if (run(&m, number(), number(), &result) < 0 || !result.r0)
			continue;
		looks++;
		if (note->window == TUTTI_VM_STACK) {
			off = result.r0 + (uint64_t)(int64_t)at->off - frame_pointer() +
			      TUTTI_VM_FRAME_BYTES;
			if (note->proved)
				assert_int_equal(off, note->off + TUTTI_VM_FRAME_BYTES);
			assert_true(off <= TUTTI_VM_FRAME_BYTES - bytes);
			continue;
		}
		off = result.r0 + (uint64_t)(int64_t)at->off - window;
		if (note->proved)
			assert_int_equal(off, note->off);
		assert_true(off <= (note->window == TUTTI_VM_CTX ? 48 : DATA) - bytes);
	}
	stop(&m);
	tutti_vm_object_destroy(patched);
}

static void judge(const struct tutti_vm_object *object, const struct tt_vm_verified *verified)
{
	struct machine m;

	assert_true(start(object, &m));
	for (uint32_t i = 0; i < object->n_insns; i++) {
		if (!verified->notes[i].proved && !verified->notes[i].within)
			continue;
		proofs++;
		/* What a jump away from the callee would meet is another frame. */
		if (i >= object->funcs[object->n_funcs - 1].start)
			look_at(object, &verified->notes[i], i);
	}
	for (int i = 0; i < 4; i++) {
		const struct tt_vm_note *note;
		struct tutti_vm_result result;

		for (int w = 0; w < 8; w++)
			memory[w] = number();
		if (run(&m, number(), number(), &result) == 0)
			continue;
		note = &verified->notes[result.pc];
		faults++;
		if (!note->reached)
			fail_msg("instruction %u is not reached, but run", result.pc);
		if (result.fault != TUTTI_VM_FAULT_BUDGET && (note->proved || note->within))
			fail_msg("instruction %u is %s, but faults at 0x%" PRIx64, result.pc,
				 note->proved ? "proved" : "within", result.address);
	}
	stop(&m);
}

static void test_programs(void **state)
{
	const char *given = getenv("TUTTI_FUZZ_PROGRAMS");
	unsigned long programs = given ? strtoul(given, NULL, 10) : 4000;

	for (unsigned long i = 0; i < programs; i++) {
		struct tutti_vm_insn insns[INSNS];
		struct tutti_vm_object *object;
		struct tt_vm_verified verified;
		struct tutti_vm_error error;
		bool calls = i % 2;
		uint32_t n = random_program(insns, calls);

		object = object_of(insns, n, calls);
		if (tt_vm_verify(object, &env, &verified, &error) == 0) {
			accepted++;
			judge(object, &verified);
			free(verified.notes);
			free(verified.hook_of_func);
		}
		tutti_vm_object_destroy(object);
	}
	print_message("%lu of %lu programs accepted, %lu accesses proved, %lu looked at, "
		      "%lu faults elsewhere\n",
		      accepted, programs, proofs, looks, faults);
	assert_true(accepted > programs / 20 && proofs > accepted && faults > accepted / 20 &&
		    looks > proofs / 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_operations),
		cmocka_unit_test(test_comparisons),
		cmocka_unit_test(test_programs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
