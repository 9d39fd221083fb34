/* SPDX-License-Identifier: MIT */
/*
 * Arithmetic, control flow and calls in both engines, by the faults that were
 * reported against other machines: each test is named for one of them.
 */
#include "vm/engine_test.h"

static int one(struct tutti_vm_call *call)
{
	call->ret = 1;
	return 0;
}

static int two(struct tutti_vm_call *call)
{
	call->ret = 2;
	return 0;
}

/* Every register that a call may change is changed. */
static int three(struct tutti_vm_call *call)
{
	call->ret = call->arg[0] + 3 * call->arg[1] + 5 * call->arg[2] + 7 * call->arg[3] +
		    11 * call->arg[4];
	return 0;
}

#define ANY TUTTI_VM_ARG_ANY
static const struct tutti_vm_helper helpers[] = {
	{.name = "one", .id = 10, .cost = 1, .fn = one},
	{.name = "two", .id = 20, .cost = 1, .fn = two},
	{.name = "three", .id = 30, .cost = 1, .fn = three, .arg = {ANY, ANY, ANY, ANY, ANY}},
};
static const struct tutti_vm_hook hook = {.args = 2, .helpers = 7};
static const struct tutti_vm_env env = {
	.hooks = &hook, .n_hooks = 1, .helpers = helpers, .n_helpers = 3};

static void expect(const char *text, uint64_t a, uint64_t b, uint64_t r0)
{
	uint64_t got = result_of(text, &env, a, b);

	if (got != r0)
		fail_msg("%s\nof 0x%llx, 0x%llx: 0x%llx instead of 0x%llx", text,
			 (unsigned long long)a, (unsigned long long)b, (unsigned long long)got,
			 (unsigned long long)r0);
}

/* --- arithmetic ------------------------------------------------------------------------ */

#define MIN64 0x8000000000000000u
#define MIN32 0x80000000u
#define MINUS(N) ((uint64_t)0 - (N))

struct two_operands {
	const char *op; /* of r0 = a and r1 = b */
	uint64_t a, b, r0;
};

/*
 * With the operands in every pair of registers, the processor's special ones
 * among them, and with b as a number; all others must stay what they are.
 */
static void in_all_registers(const struct two_operands *c)
{
	char text[1024];

	for (unsigned dst = 0; dst < 10; dst++)
		for (unsigned src = 0; src < 10; src++) {
			int n = 0;

			if (dst == src)
				continue;
			n += sprintf(text + n, "stxdw [%%r10-8], %%r1\nstxdw [%%r10-16], %%r2\n");
			for (unsigned r = 0; r < 10; r++)
				if (r != dst && r != src)
					n += sprintf(text + n, "mov %%r%u, %u\n", r, 100 + r);
			n += sprintf(text + n,
				     "ldxdw %%r%u, [%%r10-8]\nldxdw %%r%u, [%%r10-16]\n"
				     "%s %%r%u, %%r%u\n",
				     dst, src, c->op, dst, src);
			n += sprintf(text + n, "stxdw [%%r10-24], %%r%u\n", dst);
			n += sprintf(text + n, "ldxdw %%r%u, [%%r10-16]\nsub %%r%u, %%r%u\n", dst,
				     src, dst);
			/* The source less itself, and the others. */
			for (unsigned r = 0; r < 10; r++)
				if (r != dst && r != src)
					n += sprintf(text + n, "sub %%r%u, %u\nor %%r%u, %%r%u\n",
						     r, 100 + r, src, r);
			n += sprintf(text + n,
				     "mov %%r1, %%r%u\nldxdw %%r0, [%%r10-24]\n"
				     "jeq %%r1, 0, +1\nmov %%r0, 0xbad\nexit\n",
				     src);
			assert_true(n < (int)sizeof text);
			expect(text, c->a, c->b, c->r0);
		}
	sprintf(text, "mov %%r3, %%r1\n%s %%r3, %%r2\nmov %%r0, %%r3\nexit\n", c->op);
	expect(text, c->a, c->b, c->r0);
	if (c->b == (uint64_t)(int64_t)(int32_t)c->b) {
		for (unsigned dst = 0; dst < 10; dst++) {
			sprintf(text, "mov %%r%u, %%r1\n%s %%r%u, %d\nmov %%r0, %%r%u\nexit\n", dst,
				c->op, dst, (int32_t)c->b, dst);
			expect(text, c->a, c->b, c->r0);
		}
	}
}

static void division(void **state)
{
	static const struct two_operands cases[] = {
		{"div", 17, 5, 3},
		{"div", 17, 0, 0},
		{"div", MINUS(1), 2, 0x7fffffffffffffff},
		{"div", MINUS(1), MINUS(1), 1},
		{"div", 1ULL << 40, 1 << 20, 1 << 20},
		{"div32", 0x1122334400000011, 5, 3},
		{"div32", MINUS(1), 0, 0},
		{"div32", 17, 1ULL << 32, 0}, /* the divisor's lower half is 0 */
		{"div32", MINUS(1), MINUS(1), 1},
		{"mod", 17, 5, 2},
		{"mod", MINUS(1), 0, MINUS(1)},
		{"mod", MINUS(1), 1 << 30, (1 << 30) - 1},
		{"mod32", 0x1122334400000011, 5, 2},
		{"mod32", 0x1122334455667788, 0, 0x55667788},
		{"mod32", 0x1122334455667788, 1ULL << 32, 0x55667788},
		{"sdiv", MINUS(17), 5, MINUS(3)},
		{"sdiv", MINUS(17), 0, 0},
		{"sdiv", MIN64, MINUS(1), MIN64},
		{"sdiv", 17, MINUS(5), MINUS(3)},
		{"sdiv32", MINUS(17), 5, MINUS(3) & UINT32_MAX},
		{"sdiv32", MINUS(17), 0, 0},
		{"sdiv32", MIN32, MINUS(1), MIN32},
		{"sdiv32", 0xf00000000000000f, 3, 5},
		{"smod", MINUS(17), 5, MINUS(2)},
		{"smod", MINUS(17), 0, MINUS(17)},
		{"smod", MIN64, MINUS(1), 0},
		{"smod", 17, MINUS(5), 2},
		{"smod32", MINUS(17), 5, MINUS(2) & UINT32_MAX},
		{"smod32", MINUS(17), 0, MINUS(17) & UINT32_MAX},
		{"smod32", MIN32, MINUS(1), 0},
		{"smod32", 17, MINUS(5), 2},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		in_all_registers(&cases[i]);
}

static void shifts(void **state)
{
	static const struct two_operands cases[] = {
		{"lsh", 3, 63, MIN64},
		{"lsh", 3, 64, 3},
		{"lsh", 3, 65, 6},
		{"lsh", 3, MINUS(1), MIN64},
		{"rsh", MIN64, 63, 1},
		{"rsh", MIN64, 64, MIN64},
		{"arsh", MIN64, 63, MINUS(1)},
		{"arsh", MINUS(5), 64, MINUS(5)},
		{"lsh32", MINUS(1), 31, MIN32},
		{"lsh32", MINUS(1), 32, UINT32_MAX},
		{"rsh32", MINUS(1), 31, 1},
		{"rsh32", MINUS(1), 33, 0x7fffffff},
		{"arsh32", 0x1180000000, 31, UINT32_MAX},
		{"arsh32", 0x1180000000, 0, MIN32},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		in_all_registers(&cases[i]);
}

static void rest_of_arithmetic(void **state)
{
	static const struct two_operands cases[] = {
		{"add", MINUS(1), 2, 1},
		{"add", 1, MINUS(2), MINUS(1)}, /* a negative number is 64 bits of it */
		{"add32", MINUS(1), 2, 1},
		{"add32", 0, MINUS(1), UINT32_MAX},
		{"sub", 1, MINUS(2), 3},
		{"sub32", 0, 1, UINT32_MAX},
		{"mul", 0x100000001, MINUS(3), MINUS(0x300000003)},
		{"mul32", 0x100000001, MINUS(3), MINUS(3) & UINT32_MAX},
		{"or", 0x1000000000, MINUS(16), MINUS(16)},
		{"or32", 0x1000000001, 16, 17},
		{"and", 0x1234567890, MINUS(16), 0x1234567890},
		{"and32", MINUS(1), MINUS(16), 0xfffffff0},
		{"xor", 0, MINUS(1), MINUS(1)},
		{"xor32", 0x1100000000, MINUS(1), UINT32_MAX},
		{"mov", 7, MINUS(1), MINUS(1)},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		in_all_registers(&cases[i]);
}

/* MOV32 that moves 64 bits; a 32-bit number that is not extended, or where it must not be. */
static void moves(void **state)
{
	expect("mov32 %r0, %r1\nexit\n", MINUS(1), 0, UINT32_MAX);
	expect("mov %r0, %r1\nmov32 %r0, %r0\nexit\n", 0x1122334455667788, 0, 0x55667788);
	expect("mov32 %r0, -1\nexit\n", 0, 0, UINT32_MAX);
	expect("mov %r0, -1\nexit\n", 0, 0, MINUS(1));
	expect("mov %r0, -2147483648\nexit\n", 0, 0, 0xffffffff80000000);
	expect("lddw %r0, 0x80000000\nexit\n", 0, 0, 0x80000000);
	expect("lddw %r0, 0xfedcba9876543210\nexit\n", 0, 0, 0xfedcba9876543210);
	expect("stdw [%r10-8], -2\nldxdw %r0, [%r10-8]\nexit\n", 0, 0, MINUS(2));
	expect("stdw [%r10-8], 0\nstw [%r10-8], -2\nldxdw %r0, [%r10-8]\nexit\n", 0, 0, 0xfffffffe);
	for (unsigned dst = 0; dst < 10; dst++) {
		static const struct {
			const char *op;
			uint64_t a, r0;
		} cases[] = {
			{"movsx832", 0x1180, 0xffffff80},
			{"movsx832", 0xff7f, 0x7f},
			{"movsx1632", 0x118000, 0xffff8000},
			{"movsx1632", 0x7fff, 0x7fff},
			{"movsx864", 0x1180, MINUS(0x80)},
			{"movsx864", 0x7f, 0x7f},
			{"movsx1664", 0x118000, MINUS(0x8000)},
			{"movsx3264", 0x1180000000, MINUS(MIN32)},
			{"movsx3264", 0x117fffffff, 0x7fffffff},
		};
		char text[256];

		for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
			for (unsigned src = 0; src < 10; src++) {
				sprintf(text,
					"mov %%r%u, %%r1\n%s %%r%u, %%r%u\nmov %%r0, %%r%u\nexit\n",
					src, cases[i].op, dst, src, dst);
				expect(text, cases[i].a, 0, cases[i].r0);
			}
	}
}

static void swaps(void **state)
{
	static const struct {
		const char *op;
		uint64_t r0;
	} cases[] = {
		{"le16", 0x7788},
		{"le32", 0x55667788},
		{"le64", 0x1122334455667788},
		{"be16", 0x8877},
		{"be32", 0x88776655},
		{"be64", 0x8877665544332211},
		{"bswap16", 0x8877},
		{"bswap32", 0x88776655},
		{"bswap64", 0x8877665544332211},
		{"neg", MINUS(0x1122334455667788)},
		{"neg32", MINUS(0x55667788) & UINT32_MAX},
	};
	char text[128];

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		for (unsigned reg = 0; reg < 10; reg++) {
			sprintf(text, "mov %%r%u, %%r1\n%s %%r%u\nmov %%r0, %%r%u\nexit\n", reg,
				cases[i].op, reg, reg);
			expect(text, 0x1122334455667788, 0, cases[i].r0);
		}
}

/* A rotation is one instruction of the processor's: only where it is one. */
static void rotations(void **state)
{
	char text[256];

	for (int wide = 0; wide < 2; wide++)
		for (unsigned right = 0; right < 2; right++)
			for (unsigned n = 1; n < (wide ? 64u : 32u); n++)
				for (int off = -1; off <= 1; off++) {
					unsigned width = wide ? 64 : 32,
						 m = width - n + (unsigned)off;
					const char *s = wide ? "" : "32";
					uint64_t x = wide ? 0x0123456789abcdef : 0x89abcdef, r, l;

					if (m >= width)
						continue;
					sprintf(text,
						"mov%s %%r3, %%r1\n%s%s %%r3, %u\n%s%s %%r1, %u\n"
						"or%s %%r1, %%r3\nmov %%r0, %%r1\nexit\n",
						s, right ? "rsh" : "lsh", s, n,
						right ? "lsh" : "rsh", s, m, s);
					r = right ? x >> n : x << n;
					l = right ? x << m : x >> m;
					expect(text, x, 0, wide ? r | l : (uint32_t)(r | l));
				}
	/* The copy is read afterwards. */
	expect("mov %r3, %r1\nrsh %r3, 8\nlsh %r1, 56\nor %r1, %r3\nmov %r0, %r3\nexit\n", 0x1234,
	       0, 0x12);
}

/* A copy and an addition, and the access that follows, are one; only where they are. */
static void sums(void **state)
{
	expect("mov %r0, %r1\nadd %r0, %r2\nexit\n", 5, MINUS(7), MINUS(2));
	expect("mov %r0, %r1\nadd %r0, -7\nexit\n", 5, 0, MINUS(2));
	expect("mov %r2, %r1\nadd %r2, %r2\nmov %r0, %r2\nexit\n", 5, 1, 10);
	expect("mov %r0, %r1\nja +0\nadd %r0, %r2\nexit\n", 5, 6, 11);
	expect("mov %r0, %r1\nadd %r0, %r10\nsub %r0, %r10\nexit\n", 5, 6, 5);
	expect("mov %r0, %r10\nadd %r0, 8\nsub %r0, %r10\nexit\n", 5, 6, 8);
	expect("mov %r0, %r1\nadd32 %r0, %r2\nexit\n", UINT32_MAX, 1, 0);
	expect("mov %r0, %r1\nmul %r0, %r10\nmov %r3, %r10\nmul %r3, %r1\nsub %r0, %r3\nexit\n", 9,
	       6, 0);
}

/* --- jumps ----------------------------------------------------------------------------- */

/* What 32-bit jumps look at, and which are signed; both ways, register and number. */
static void jumps(void **state)
{
	static const struct {
		const char *op;
		uint64_t a, b;
		bool taken;
	} cases[] = {
		{"jeq", 5, 5, true},
		{"jeq", 0x100000005, 5, false},
		{"jeq32", 0x100000005, 5, true},
		{"jeq", 0, 0, true},
		{"jeq", MINUS(1), MINUS(1), true},
		{"jeq", UINT32_MAX, MINUS(1), false},
		{"jeq32", UINT32_MAX, MINUS(1), true},
		{"jne", 5, 5, false},
		{"jne", 0x100000000, 0, true},
		{"jne32", 0x100000000, 0, false},
		{"jgt", MINUS(1), 1, true},
		{"jgt", 5, 5, false},
		{"jgt32", 0x100000000, 1, false},
		{"jgt", 1, MINUS(1), false},
		{"jge", 5, 5, true},
		{"jge", 4, 5, false},
		{"jge32", 0x1100000005, 6, false},
		{"jlt", 1, MINUS(1), true},
		{"jlt", 5, 5, false},
		{"jlt32", 0x1100000001, 2, true},
		{"jle", 5, 5, true},
		{"jle", MINUS(1), 5, false},
		{"jle32", 0x1100000005, 5, true},
		{"jsgt", 1, MINUS(1), true},
		{"jsgt", MINUS(1), 1, false},
		{"jsgt32", 0x80000000, 1, false},
		{"jsgt", 0x80000000, 1, true},
		{"jsge", MINUS(1), MINUS(1), true},
		{"jsge32", 0x7fffffff, MINUS(1), true},
		{"jslt", MINUS(1), 1, true},
		{"jslt", 1, MINUS(1), false},
		{"jslt32", 0x80000000, 1, true},
		{"jslt", 0x80000000, 1, false},
		{"jsle", MINUS(2), MINUS(1), true},
		{"jsle32", 0x80000000, 0x7fffffff, true},
		{"jsgt", 5, 5, false},
		{"jsge", MINUS(2), MINUS(1), false},
		{"jslt", 5, 5, false},
		{"jsle", 5, 5, true},
		{"jsle", 6, 5, false},
		{"jset", 6, 2, true},
		{"jset", 6, 1, false},
		{"jset", 0x8000000000000000, MINUS(16), true},
		{"jset32", 0x8000000000000000, MINUS(16), false},
	};
	char text[256];

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		uint64_t a = cases[i].a, b = cases[i].b;
		/* Backwards as well: there the budget is taken. */
		static const char *const forms[] = {
			"mov %%r0, 1\n%s %%r1, %s, +1\nmov %%r0, 0\nexit\n",
			"ja +2\nmov %%r0, 1\nexit\n%s %%r1, %s, -3\nmov %%r0, 0\nexit\n",
		};

		for (size_t f = 0; f < 2; f++) {
			sprintf(text, forms[f], cases[i].op, "%r2");
			expect(text, a, b, cases[i].taken);
			if (b == (uint64_t)(int64_t)(int32_t)b) {
				char number[32];

				sprintf(number, "%d", (int32_t)b);
				sprintf(text, forms[f], cases[i].op, number);
				expect(text, a, b, cases[i].taken);
			}
		}
	}
	/* The frame pointer is compared as the program sees it. */
	expect("mov %r0, 1\nlddw %r3, 0x10001000\njeq %r10, %r3, +1\nmov %r0, 0\nexit\n", 0, 0, 1);
	expect("mov %r0, 1\nlddw %r3, 0x10001000\njeq %r3, %r10, +1\nmov %r0, 0\nexit\n", 0, 0, 1);
	expect("mov %r0, 1\njset %r10, 0x1000, +1\nmov %r0, 0\nexit\n", 0, 0, 1);
	expect("mov %r0, 1\nja32 +1\nmov %r0, 0\nexit\n", 0, 0, 1);
}

/* --- what must not be loaded ----------------------------------------------------------- */

static struct tutti_vm_object *object_of(const struct tutti_vm_insn *insns, uint32_t n)
{
	struct tutti_vm_object *object = NULL;

	assert_int_equal(tutti_vm_object_from_insns(insns, n, &object), 0);
	return object;
}

/* Multiply, divide and modulo of registers with a number that is not zero; exchanges without fetch. */
static void fields_that_must_be_zero(void **state)
{
	static const uint8_t ops[] = {TT_MUL, TT_DIV, TT_MOD, TT_ADD, TT_MOV};

	for (size_t i = 0; i < sizeof ops; i++)
		for (int wide = 0; wide < 2; wide++) {
			const struct tutti_vm_insn insns[] = {
				{.code = TT_ALU64 | TT_MOV | TT_K},
				{.code = (uint8_t)((wide ? TT_ALU64 : TT_ALU) | TT_X | ops[i]),
				 .regs = 0x10,
				 .imm = 1},
				{.code = TT_JMP | TT_EXIT}};

			assert_refused(object_of(insns, 3), &env, -EACCES, "instruction 1");
		}
	for (int32_t imm = 0xe0; imm <= 0xf0; imm += 0x10)
		for (int wide = 0; wide < 2; wide++) {
			const struct tutti_vm_insn insns[] = {
				{.code = TT_ALU64 | TT_MOV | TT_K},
				{.code = TT_ST | TT_MEM | TT_DW, .regs = TT_FP, .off = -8},
				{.code = (uint8_t)(TT_STX | TT_ATOMIC | (wide ? TT_DW : TT_W)),
				 .regs = TT_FP,
				 .off = -8,
				 .imm = imm},
				{.code = TT_JMP | TT_EXIT}};

			assert_refused(object_of(insns, 4), &env, -EACCES, "instruction 2");
		}
}

static void refused_texts(void **state)
{
	static const struct {
		const char *text, *words;
	} cases[] = {
		/* Past the end. */
		{"mov %r0, 0\n", "instruction 0"},
		{"mov %r0, 0\nja -2\nmov %r0, 1\n", "instruction 2"},
		{"mov %r0, 0\njeq %r0, 0, +1\nexit\n", "instruction 1"},
		{"mov %r0, 0\nja +32767\nexit\n", "instruction 1"},
		{"mov %r0, 0\nexit\nja -4\n", "instruction 2"},
		/* Into a wide instruction's second half. */
		{"mov %r0, 0\nja +1\nlddw %r0, 1\nexit\n", "instruction 1"},
		/* r0 unset at the exit. */
		{"exit\n", "r0"},
		{"mov %r6, 1\ncall local f\nexit\nf: exit\n", "r0"},
		{"jeq %r1, 0, +1\nmov %r0, 1\nexit\n", "r0"},
		/* Recursion. */
		{"mov %r0, 0\ncall local +1\nexit\nf: mov %r0, 0\ncall local f\nexit\n", "itself"},
		{"call local f\nexit\nf: call local g\nexit\ng: call local f\nexit\n", "itself"},
		/* The innermost frame's end, and beyond. */
		{"stdw [%r10-513], 0\nmov %r0, 0\nexit\n", "frame"},
		{"stdw [%r10+0], 0\nmov %r0, 0\nexit\n", "frame"},
		{"stb [%r10-513], 0\nmov %r0, 0\nexit\n", "frame"},
		{"call local f\nexit\nf: stdw [%r10-520], 0\nmov %r0, 0\nexit\n", "frame"},
		{"call local f\nexit\nf: stdw [%r10-4], 0\nmov %r0, 0\nexit\n", "frame"},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		assert_refused(assembled(cases[i].text), &env, -EACCES, cases[i].words);
	assert_refused(assembled("call 7\nexit\n"), &env, -ENOENT, "helper 7");
}

/* --- calls ----------------------------------------------------------------------------- */

/* Several helpers bound to one; by number and by name. */
static void each_helper_is_itself(void **state)
{
	struct tutti_vm_object *object =
		assembled("call extern 1\nmov %r6, %r0\ncall extern 0\nmul %r6, 10\nadd %r6, %r0\n"
			  "call 20\nmul %r6, 10\nadd %r6, %r0\nmov %r0, %r6\nexit\n");
	const uint64_t args[] = {0, 0};
	struct engines *e;

	object->n_externs = 2;
	object->externs = calloc(2, sizeof *object->externs);
	object->externs[0] = strdup("one");
	object->externs[1] = strdup("two");
	e = engines_of_object(object, &env);
	assert_int_equal(engines_run(e, args, 2, PLENTY), 0);
	assert_int_equal(e->result.r0, 212);
	engines_free(e);
	object = assembled("call extern 0\nexit\n");
	assert_refused(object, &env, -EACCES, "extern 0");
	object = assembled("call extern 0\nexit\n");
	object->n_externs = 1;
	object->externs = calloc(1, sizeof *object->externs);
	object->externs[0] = strdup("four");
	assert_refused(object, &env, -ENOENT, "four");
}

/* r6 to r9 outlive calls of both kinds, whatever the callee does to them; arguments arrive. */
static void saved_registers(void **state)
{
	expect("mov %r6, 6\nmov %r7, 7\nmov %r8, 8\nmov %r9, 9\ncall local f\n"
	       "mul %r6, 1000\nmul %r7, 100\nmul %r8, 10\nadd %r0, %r6\nadd %r0, %r7\nadd %r0, "
	       "%r8\nadd %r0, %r9\nexit\n"
	       "f: mov %r6, -1\nmov %r7, -1\nmov %r8, -1\nmov %r9, -1\nstdw [%r10-512], -1\n"
	       "mov %r0, %r1\nadd %r0, %r2\nexit\n",
	       10000, 20000, 36789);
	expect("mov %r6, 6\nmov %r7, 7\nmov %r8, 8\nmov %r9, 9\nmov %r3, 3\nmov %r4, 4\n"
	       "mov %r5, 5\ncall 30\n"
	       "mul %r6, 1000\nmul %r7, 100\nmul %r8, 10\nadd %r0, %r6\nadd %r0, %r7\nadd %r0, "
	       "%r8\nadd %r0, %r9\nexit\n",
	       1, 2, 6789 + 1 + 3 * 2 + 5 * 3 + 7 * 4 + 11 * 5);
}

/* Each function's frame is its own: a callee that fills it changes nothing of its callers'. */
static void frames(void **state)
{
	char text[4096];
	int n = sprintf(text, "mov %%r6, 0\n");

	for (int off = -512; off < 0; off += 8)
		n += sprintf(text + n, "stdw [%%r10%d], %d\n", off, off);
	n += sprintf(text + n, "call local f\nmov %%r0, 0\n");
	for (int off = -512; off < 0; off += 64)
		n += sprintf(text + n, "ldxdw %%r1, [%%r10%d]\nadd %%r0, %%r1\n", off);
	n += sprintf(text + n, "exit\nf:\n");
	for (int off = -512; off < 0; off += 32)
		n += sprintf(text + n, "stdw [%%r10%d], 1\n", off);
	sprintf(text + n, "mov %%r0, 0\nexit\n");
	expect(text, 0, 0, MINUS(512 + 448 + 384 + 320 + 256 + 192 + 128 + 64));
	/* Eight of them, down to the last byte of the stack. */
	n = 0;
	for (int i = 0; i < 8; i++) {
		n += sprintf(text + n, "f%d: mov %%r6, %d\nstxdw [%%r10-512], %%r6\n", i, i + 1);
		n += i < 7 ? sprintf(text + n, "call local f%d\n", i + 1)
			   : sprintf(text + n, "mov %%r0, 0\n");
		n += sprintf(text + n,
			     "ldxdw %%r1, [%%r10-512]\nmul %%r0, 10\nadd %%r0, %%r1\nexit\n");
	}
	expect(text, 0, 0, 87654321);
	/* A ninth is refused. */
	n = 0;
	for (int i = 0; i < 9; i++) {
		n += sprintf(text + n, "f%d: mov %%r0, 0\n", i);
		if (i < 8)
			n += sprintf(text + n, "call local f%d\n", i + 1);
		n += sprintf(text + n, "exit\n");
	}
	assert_refused(assembled(text), &env, -EACCES, "deep");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(division),
		cmocka_unit_test(shifts),
		cmocka_unit_test(rest_of_arithmetic),
		cmocka_unit_test(moves),
		cmocka_unit_test(swaps),
		cmocka_unit_test(rotations),
		cmocka_unit_test(sums),
		cmocka_unit_test(jumps),
		cmocka_unit_test(fields_that_must_be_zero),
		cmocka_unit_test(refused_texts),
		cmocka_unit_test(each_helper_is_itself),
		cmocka_unit_test(saved_registers),
		cmocka_unit_test(frames),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
