/* SPDX-License-Identifier: MIT */
/*
 * Hostile modules beside a good one in the same process, in alternation: one
 * that does not end, and one that tries every kind of access, helper arguments
 * included, all over the 64-bit range. What they cannot reach, the good one's
 * memory and results among it, must be as it was; each run is over when its
 * budget is.
 */
#include "vm/engine_test.h"

#include "base/clock.h"

static int sum_of(struct tutti_vm_call *call)
{
	for (uint64_t i = 0; i < call->bytes[0]; i++)
		call->ret += ((const uint8_t *)call->ptr[0])[i];
	return 0;
}

static int scribble(struct tutti_vm_call *call)
{
	if (call->ptr[0])
		memset(call->ptr[0], 0x5a, call->bytes[0]);
	return 0;
}

static const struct tutti_vm_helper helpers[] = {
	{.name = "sum_of",
	 .id = 1,
	 .cost = 5,
	 .fn = sum_of,
	 .arg = {TUTTI_VM_ARG_READ, TUTTI_VM_ARG_BYTES}},
	{.name = "scribble",
	 .id = 2,
	 .cost = 5,
	 .fn = scribble,
	 .arg = {TUTTI_VM_ARG_WRITE, TUTTI_VM_ARG_BYTES}},
};
static const struct tutti_vm_hook hook = {.args = 2, .helpers = 3};
static const struct tutti_vm_env env = {
	.hooks = &hook, .n_hooks = 1, .helpers = helpers, .n_helpers = 2};

/* Counts its runs in its data and sums the packet up. */
static const char good_text[] = "lddw %r6, 0x20000000\n"
				"mov %r3, 1\n"
				"lock fetch add [%r6], %r3\n"
				"mov %r2, 64\n"
				"call 1\n"
				"ldxdw %r3, [%r6]\n"
				"lsh %r3, 32\n"
				"or %r0, %r3\n"
				"exit\n";

static const char endless_text[] = "mov %r0, 0\n"
				   "again: add %r0, 1\n"
				   "stxdw [%r10-8], %r0\n"
				   "jne %r0, 0, again\n"
				   "ja again\n"
				   "exit\n";

/* Each tries one kind at r1; r2: bytes, a value. */
static const char *const probes[] = {
	"ldxb %r0, [%r1]\nexit\n",
	"ldxh %r0, [%r1-1]\nexit\n",
	"ldxw %r0, [%r1+32767]\nexit\n",
	"ldxdw %r0, [%r1-32768]\nexit\n",
	"ldxsb %r0, [%r1]\nexit\n",
	"ldxsw %r0, [%r1+4]\nexit\n",
	"mov %r0, 0\nstb [%r1], 0x5a\nexit\n",
	"mov %r0, 0\nsth [%r1+2], 0x5a5a\nexit\n",
	"mov %r0, 0\nstxw [%r1-4], %r2\nexit\n",
	"mov %r0, 0\nstxdw [%r1], %r2\nexit\n",
	"mov %r0, 0\nlock add [%r1], %r2\nexit\n",
	"mov %r0, 0\nlock fetch or32 [%r1], %r2\nexit\n",
	"mov %r0, 0\nlock xchg [%r1], %r2\nexit\n",
	"mov %r0, 0\nlock cmpxchg32 [%r1], %r2\nexit\n",
	"call 1\nexit\n",
	"call 2\nexit\n",
	"mov %r3, %r1\nadd %r3, %r2\nstxdw [%r3+8], %r2\nmov %r0, 0\nexit\n",
	"mov %r0, 0\nstxw [%r1], %r2\nstxw [%r1+4], %r2\nstxw [%r1+8], %r2\nstxw [%r1+12], %r2\n"
	"exit\n",
	"stxdw [%r10-8], %r1\nldxdw %r3, [%r10-8]\nldxdw %r0, [%r3]\nstxdw [%r3], %r2\nexit\n",
	/* All of its window, word by word, until it leaves it. */
	"mov %r0, 0\nagain: stxdw [%r1], %r2\nadd %r1, 8\nja again\n",
	"mov %r0, 0\nagain: stxdw [%r1], %r2\nsub %r1, 8\nja again\n",
};

enum { N_PROBES = sizeof probes / sizeof *probes };

/* Addresses of the process that a module would like to know of, and of the whole range. */
static unsigned targets(const struct engines *good, const struct engines *probe, uint64_t list[256])
{
	unsigned n = 0;

	for (int i = 0; i < 2; i++) {
		list[n++] = (uintptr_t)good->engine[i].context;
		list[n++] = (uintptr_t)good->engine[i].context->data;
		list[n++] = (uintptr_t)good->engine[i].room[TUTTI_VM_PACKET].bytes;
		list[n++] = (uintptr_t)probe->engine[i].context;
		list[n++] = (uintptr_t)probe->engine[i].context->stack;
	}
	list[n++] = (uintptr_t)good->program->image;
	list[n++] = (uintptr_t)list;
	list[n++] = (uintptr_t)stdout;
	/* The same as distances from a window's memory. */
	list[n++] = (uintptr_t)good->engine[1].context->data -
		    (uintptr_t)probe->engine[1].room[TUTTI_VM_PACKET].bytes +
		    at_window(TUTTI_VM_PACKET, 0);
	for (unsigned bit = 0; bit < 64; bit++) {
		list[n++] = 1ULL << bit;
		list[n++] = 0 - (1ULL << bit);
	}
	for (unsigned w = 0; w <= TUTTI_VM_WINDOWS; w++)
		for (int off = -8; off <= 8; off += 8)
			list[n++] = at_window(w, off);
	for (unsigned w = TUTTI_VM_CTX; w < TUTTI_VM_WINDOWS; w++)
		list[n++] = at_window(w, ROOM);
	return n;
}

static struct engines *good_one(void)
{
	struct tutti_vm_object *object = assembled(good_text);

	object->data = calloc(1, 8);
	object->data_bytes = 8;
	return engines_of_object(object, &env);
}

static void run_good(struct engines *good, uint64_t *runs)
{
	const uint64_t args[] = {at_window(TUTTI_VM_PACKET, 0), 0};
	static struct room before[TUTTI_VM_WINDOWS];
	uint64_t sum = 0;

	for (unsigned k = 0; k < 64; k++)
		sum += pattern(TUTTI_VM_PACKET, k);
	memcpy(before, good->engine[1].room, sizeof before);
	assert_int_equal(engines_run(good, args, 2, 5), 0);
	assert_int_equal(good->result.r0, ++*runs << 32 | sum);
	assert_memory_equal(before, good->engine[1].room, sizeof before);
}

/* The prober's own windows may change, nothing else of its context. */
static void run_probe(struct engines *probe, uint64_t address, uint64_t value)
{
	const uint64_t args[] = {address, value};
	struct tt_vm_win windows[2][TUTTI_VM_WINDOWS];

	for (int i = 0; i < 2; i++)
		memcpy(windows[i], probe->engine[i].context->win, sizeof windows[i]);
	engines_run(probe, args, 2, 10000);
	for (int i = 0; i < 2; i++)
		assert_memory_equal(windows[i], probe->engine[i].context->win, sizeof windows[i]);
	if (probe->err)
		assert_true(probe->result.fault >= TUTTI_VM_FAULT_READ &&
			    probe->result.fault <= TUTTI_VM_FAULT_ARGUMENT);
}

static void beside_a_good_one(void **state)
{
	static const uint64_t values[] = {0, 8, 64, 1ULL << 28, 1ULL << 63, UINT64_MAX - 7};
	struct engines *good = good_one(), *endless = engines_of(endless_text, &env);
	uint64_t list[256], runs = 0, faults = 0;

	for (unsigned p = 0; p < N_PROBES; p++) {
		struct engines *probe = engines_of(probes[p], &env);
		unsigned n = targets(good, probe, list);

		assert_true(n <= 256);
		engines_window(probe, TUTTI_VM_MAPS, ROOM, false);
		for (unsigned t = 0; t < n; t++) {
			const uint64_t args[] = {0, 0};

			for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
				run_probe(probe, list[t], values[v]);
				faults += probe->err != 0;
			}
			run_good(good, &runs);
			if (t % 16)
				continue;
			assert_int_equal(engines_run(endless, args, 2, 1000), -EFAULT);
			assert_int_equal(endless->result.fault, TUTTI_VM_FAULT_BUDGET);
			run_good(good, &runs);
		}
		/* Its read-only window is what it was. */
		for (unsigned k = 0; k < ROOM; k++)
			assert_int_equal(probe->engine[1].room[TUTTI_VM_MAPS].bytes[k],
					 pattern(TUTTI_VM_MAPS, k));
		engines_free(probe);
	}
	assert_true(faults > runs); /* most of the range is nobody's */
	engines_free(endless);
	engines_free(good);
}

/* The budget bounds the time: a million instructions take some milliseconds; best of five. */
static void time_is_bounded(void **state)
{
	struct engines *endless = engines_of(endless_text, &env);
	const uint64_t args[] = {0, 0};
	int64_t best_ns = INT64_MAX;

	for (int i = 0; i < 5; i++) {
		int64_t start_ns = tt_now_ns(), took_ns;

		assert_int_equal(engines_run(endless, args, 2, 1000000), -EFAULT);
		assert_int_equal(endless->result.fault, TUTTI_VM_FAULT_BUDGET);
		took_ns = tt_now_ns() - start_ns;
		if (took_ns < best_ns)
			best_ns = took_ns;
	}
	assert_true(best_ns < 200 * 1000 * 1000);
	engines_free(endless);
}

/* Accesses by two registers in turn, or far apart: none goes with those around it. */
static void compiling_takes_no_square(void **state)
{
	static struct tutti_vm_insn insns[TUTTI_VM_MAX_INSNS];
	static const struct tutti_vm_hook packet = {.args = 1, .arg = {{TUTTI_VM_PACKET, 0}}};
	static const struct tutti_vm_env no_helpers = {.hooks = &packet, .n_hooks = 1};
	const uint32_t n = TUTTI_VM_MAX_INSNS;

	for (int far = 0; far < 2; far++) {
		struct tutti_vm_object *object;
		struct tutti_vm_program *program;
		int64_t start_ns;

		for (uint32_t i = 2; i < n - 1; i++)
			insns[i] = (struct tutti_vm_insn){
				.code = TT_LDX | TT_MEM | TT_B,
				.regs = (uint8_t)((far ? 6 : 6 + i % 2) << 4),
				.off = (int16_t)(i * (far ? 5000 : 200) % 30000)};
		for (uint8_t i = 0; i < 2; i++)
			insns[i] = (struct tutti_vm_insn){.code = TT_ALU64 | TT_MOV | TT_X,
							  .regs = (uint8_t)((6 + i) | 1 << 4)};
		insns[n - 1] = (struct tutti_vm_insn){.code = TT_JMP | TT_EXIT};
		assert_int_equal(tutti_vm_object_from_insns(insns, n, &object), 0);
		start_ns = tt_now_ns();
		assert_int_equal(
			tutti_vm_program_create(object, &no_helpers, TUTTI_VM_JIT, &program, NULL),
			0);
		/* A tenth of a second; sanitizers and a busy machine take ten times more. */
		assert_true(tt_now_ns() - start_ns < 5000000000);
		tutti_vm_program_destroy(program);
		tutti_vm_object_destroy(object);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(beside_a_good_one),
		cmocka_unit_test(compiling_takes_no_square),
		cmocka_unit_test(time_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
