/* SPDX-License-Identifier: MIT */
/*
 * Runs in both engines: budget, arguments, programs beside each other, contexts
 * in threads, how the code lies in memory.
 */
#include "vm/engine_test.h"

#include <limits.h>
#include <stdio.h>

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FAILS = 99 }; /* an argument that a helper does not like */

static int sum(struct tutti_vm_call *call)
{
	call->ret = call->arg[0] + call->arg[1];
	return call->arg[0] == FAILS ? -EPERM : 0;
}

static const struct tutti_vm_helper helpers[] = {
	{.name = "sum", .id = 1, .cost = 5, .fn = sum, .arg = {TUTTI_VM_ARG_ANY, TUTTI_VM_ARG_ANY}},
};
static const struct tutti_vm_hook hook = {.args = 2, .helpers = 1};
static const struct tutti_vm_env env = {
	.hooks = &hook, .n_hooks = 1, .helpers = helpers, .n_helpers = 1};

/* --- budget ----------------------------------------------------------------------------- */

static const char busy[] = "mov %r6, %r1\n"
			   "mov %r7, 0\n"
			   "outer: mov %r8, 3\n" /* 2 */
			   "inner: add %r7, 1\n"
			   "sub %r8, 1\n"
			   "jne %r8, 0, inner\n" /* 5: back by 2, costs 3 */
			   "mov %r1, %r7\n"
			   "mov %r2, %r6\n"
			   "call local f\n" /* 8: costs the 11 instructions of f */
			   "mov %r7, %r0\n"
			   "stxdw [%r10-8], %r7\n"
			   "sub %r6, 1\n"
			   "jgt %r6, 0, outer\n" /* 12: back by 10, costs 11 */
			   "mov %r0, %r7\n"
			   "exit\n"
			   "f: mov %r6, %r1\n" /* 15 */
			   "mov %r7, %r2\n"
			   "call 1\n" /* 17: costs 5 */
			   "mov %r8, %r0\n"
			   "again: add %r8, %r6\n"
			   "sub %r7, 1\n"
			   "jsgt %r7, 0, again\n" /* 21: back by 2, costs 3 */
			   "mov %r0, %r8\n"
			   "ja32 +0\n"
			   "exit\n"
			   "exit\n";

/* What a run costs, by long hand: as the header says. */
static uint64_t cost_of(uint64_t n)
{
	uint64_t cost = 0;

	for (uint64_t i = n; i > 0; i--)
		cost += 2 * 3 + 11 + 5 + (i - 1) * 3 + (i > 1 ? 11 : 0);
	return cost;
}

static void every_budget(void **state)
{
	struct engines *e = engines_of(busy, &env);
	const uint64_t args[] = {4, 0};
	uint64_t need = cost_of(4);

	for (uint64_t budget = 0; budget < need; budget++) {
		assert_int_equal(engines_run(e, args, 2, budget), -EFAULT);
		assert_int_equal(e->result.fault, TUTTI_VM_FAULT_BUDGET);
		assert_int_equal(e->result.r0, 0);
		assert_true(e->result.budget_left < 11);
		assert_int_equal(e->result.address | e->result.bytes, 0);
	}
	for (uint64_t budget = need; budget < need + 3; budget++) {
		assert_int_equal(engines_run(e, args, 2, budget), 0);
		assert_int_equal(e->result.budget_left, budget - need);
	}
	/* Where, at a few of them. */
	static const struct {
		uint64_t budget;
		uint32_t pc, left;
	} where[] = {{0, 5, 0},	  {2, 5, 2},   {3, 5, 0},   {6, 8, 0},	 {16, 8, 10},  {17, 17, 0},
		     {21, 17, 4}, {22, 21, 0}, {24, 21, 2}, {31, 12, 0}, {41, 12, 10}, {42, 5, 0}};

	for (size_t i = 0; i < sizeof where / sizeof *where; i++) {
		engines_run(e, args, 2, where[i].budget);
		assert_int_equal(e->result.pc, where[i].pc);
		assert_int_equal(e->result.budget_left, where[i].left);
	}
	engines_run(e, args, 2, UINT64_MAX);
	assert_int_equal(e->result.budget_left, UINT64_MAX - need);
	engines_free(e);
}

/* An endless loop ends, whichever kind of jump makes it, at the same instruction. */
static void endless(void **state)
{
	static const char *const loops[] = {
		"mov %r0, 0\nja -1\nexit\n",
		"mov %r0, 0\nja -2\nexit\n",
		"mov %r0, 0\nja32 -1\nexit\n",
		"mov %r0, 0\njeq %r0, 0, -1\nexit\n",
		"mov %r0, 0\njeq32 %r0, 0, -2\nexit\n",
		"mov %r6, 1\nmov %r0, 0\ncall local f\njset %r6, 1, -3\nexit\nf: mov %r0, 0\nexit\n",
		"mov %r6, 1\nmov %r2, 0\nmov %r1, 0\ncall 1\njset %r6, 1, -4\nexit\n",
	};
	const uint64_t args[] = {0, 0};

	for (size_t i = 0; i < sizeof loops / sizeof *loops; i++) {
		struct engines *e = engines_of(loops[i], &env);

		for (uint64_t budget = 0; budget < 100; budget++) {
			assert_int_equal(engines_run(e, args, 2, budget), -EFAULT);
			assert_int_equal(e->result.fault, TUTTI_VM_FAULT_BUDGET);
		}
		engines_free(e);
	}
}

/* --- arguments of a run ------------------------------------------------------------------ */

static void promises(void **state)
{
	static const struct tutti_vm_hook promising = {
		.args = 1, .arg = {{.window = TUTTI_VM_CTX, .bytes = 16}}};
	static const struct tutti_vm_env promised = {.hooks = &promising, .n_hooks = 1};
	struct engines *e = engines_of("ldxdw %r0, [%r1+8]\nexit\n", &promised);
	const uint64_t good[] = {at_window(TUTTI_VM_CTX, 0), 0},
		       bad[] = {at_window(TUTTI_VM_CTX, 1)};
	struct tutti_vm_context *context = e->engine[1].context;
	struct tutti_vm_result result;
	_Alignas(8) static uint8_t memory[16];

	assert_int_equal(engines_run(e, good, 1, 0), 0);
	assert_int_equal(engines_run(e, good, 2, 0), -EINVAL);
	assert_int_equal(engines_run(e, good, 0, 0), -EINVAL);
	assert_int_equal(engines_run(e, bad, 1, 0), -EINVAL);
	assert_int_equal(engines_run_entry(e, 1, good, 1, 0), -EINVAL);
	assert_int_equal(engines_run_entry(e, -1, good, 1, 0), -EINVAL);
	engines_window(e, TUTTI_VM_CTX, 15, true);
	assert_int_equal(engines_run(e, good, 1, 0), -EINVAL);
	engines_window(e, TUTTI_VM_CTX, 16, false);
	assert_int_equal(engines_run(e, good, 1, 0), 0);

	for (int w = -1; w <= TUTTI_VM_WINDOWS; w++)
		assert_int_equal(
			tutti_vm_set_window(context, (enum tutti_vm_window)w, memory, 16, true),
			w >= TUTTI_VM_CTX && w < TUTTI_VM_WINDOWS ? 0 : -EINVAL);
	assert_int_equal(tutti_vm_set_window(context, TUTTI_VM_CTX, memory + 4, 8, true), -EINVAL);
	assert_int_equal(tutti_vm_set_window(context, TUTTI_VM_CTX, NULL, 8, true), -EINVAL);
	assert_int_equal(
		tutti_vm_set_window(context, TUTTI_VM_CTX, memory, TUTTI_VM_WINDOW_BYTES, true),
		-EINVAL);
	assert_int_equal(tutti_vm_run(context, 0, good, 1, 0, &result), 0);
	assert_int_equal(tutti_vm_program_entry(e->program, "main"), 0);
	assert_int_equal(tutti_vm_program_entry(e->program, NULL), 0);
	assert_int_equal(tutti_vm_program_entry(e->program, "other"), -ENOENT);
	engines_free(e);
	tutti_vm_context_destroy(NULL);
	tutti_vm_program_destroy(NULL);
	tutti_vm_object_destroy(NULL);
}

/* Each kind of fault in words, with the source line where there is one. */
static void fault_texts(void **state)
{
	struct tutti_vm_object *object = assembled("mov %r0, 1\nmov %r0, 2\nexit\n");
	struct tutti_vm_result result = {
		.pc = 1, .address = 0x50000010, .bytes = 8, .helper_error = -EIO};
	static const char *const texts[] = {
		[TUTTI_VM_FAULT_NONE] = "none",
		[TUTTI_VM_FAULT_READ] =
			"a.c:7: instruction 1: read of 8 bytes at 0x50000010, which is "
			"not inside a window that allows it (compare with the window's "
			"end before)",
		[TUTTI_VM_FAULT_WRITE] =
			"a.c:7: instruction 1: write of 8 bytes at 0x50000010, which "
			"is not inside a window that allows it (compare with the "
			"window's end before)",
		[TUTTI_VM_FAULT_ALIGN] = "a.c:7: instruction 1: atomic operation on 8 bytes at "
					 "0x50000010, no multiple of them (align it)",
		[TUTTI_VM_FAULT_BUDGET] =
			"a.c:7: instruction 1: the budget of instructions is used up "
			"(loop less, or run with more)",
		[TUTTI_VM_FAULT_ARGUMENT] =
			"a.c:7: instruction 1: a helper's argument of 8 bytes at "
			"0x50000010, which is not inside a window that allows it "
			"(compare with the window's end before)",
		[TUTTI_VM_FAULT_HELPER] =
			"a.c:7: instruction 1: a helper ended the run: Input/output "
			"error",
		[TUTTI_VM_FAULT_DEPTH] =
			"a.c:7: instruction 1: more than 8 functions inside each other "
			"(inline some)",
		[TUTTI_VM_FAULT_INSN] =
			"a.c:7: instruction 1: no such instruction (verify the program)",
	};
	struct engines *e;
	char text[256];

	for (uint32_t i = 0; i < object->n_lines; i++) {
		free(object->lines[i].file);
		free(object->lines[i].text);
	}
	free(object->lines);
	object->n_lines = 2;
	object->lines = calloc(2, sizeof *object->lines);
	object->lines[0] = (struct tt_vm_line){.insn = 1, .line = 7, .file = strdup("a.c")};
	object->lines[1] = (struct tt_vm_line){.insn = 2, .line = 8};
	e = engines_of_object(object, &env);
	for (unsigned kind = 0; kind < sizeof texts / sizeof *texts; kind++) {
		int length;

		result.fault = (enum tutti_vm_fault_kind)kind;
		length = tutti_vm_fault_text(e->program, &result, text, sizeof text);
		assert_string_equal(text, texts[kind]);
		assert_int_equal(length, strlen(text));
		assert_string_not_equal(tutti_vm_fault_name(result.fault), "unknown");
	}
	/* No memory: a map that is not set, or a ctx that is another number. */
	result.fault = TUTTI_VM_FAULT_ARGUMENT;
	result.bytes = 0;
	tutti_vm_fault_text(e->program, &result, text, sizeof text);
	assert_string_equal(text, "a.c:7: instruction 1: a helper's argument 0x50000010 is a map "
				  "that is not set (tutti_vm_set_map), or not the hook's first "
				  "argument (pass it on unchanged)");
	/* Whatever a helper returns has a text. */
	result.fault = TUTTI_VM_FAULT_HELPER;
	for (size_t i = 0; i < 4; i++) {
		static const int errors[] = {5, -4000, INT_MIN, INT_MAX};
		char expected[96];

		result.helper_error = errors[i];
		snprintf(expected, sizeof expected,
			 "a.c:7: instruction 1: a helper ended the run: error %d", errors[i]);
		tutti_vm_fault_text(e->program, &result, text, sizeof text);
		assert_string_equal(text, expected);
	}
	result.fault = TUTTI_VM_FAULT_BUDGET;
	result.pc = 0;
	tutti_vm_fault_text(e->program, &result, text, sizeof text);
	assert_memory_equal(text, "instruction 0: ", 15);
	result.pc = 2;
	assert_int_equal(tutti_vm_fault_text(e->program, &result, text, 8),
			 (int)strlen("line 8: ") + (int)strlen(texts[TUTTI_VM_FAULT_BUDGET]) -
				 (int)strlen("a.c:7: "));
	assert_string_equal(text, "line 8:");
	assert_string_equal(
		tutti_vm_fault_name((enum tutti_vm_fault_kind)(TUTTI_VM_FAULT_INSN + 1)),
		"unknown");
	engines_free(e);
}

/* --- the interpreter goes on ------------------------------------------------------------- */

/*
 * A guess of a window that was wrong, at every depth of calls: compiled code
 * leaves, and the interpreter ends what is begun, frame by frame, to the exit.
 */
static void wrong_guess_in_callee(void **state)
{
	static const struct tutti_vm_hook guess = {
		.args = 2, .arg = {{.window = TUTTI_VM_PACKET}}, .helpers = 1};
	static const struct tutti_vm_env guessing = {
		.hooks = &guess, .n_hooks = 1, .helpers = helpers, .n_helpers = 1};

	for (unsigned deep = 1; deep <= TUTTI_VM_MAX_DEPTH; deep++) {
		char text[4096];
		const uint64_t args[] = {at_window(TUTTI_VM_MAPS, 16), 1};
		uint64_t expected = pattern(TUTTI_VM_MAPS, 16);
		struct engines *e;
		int n = 0;

		for (unsigned i = 0; i < deep; i++) {
			n += sprintf(text + n, "f%u: ", i);
			for (unsigned r = 6; r < 10; r++)
				n += sprintf(text + n, "mov %%r%u, %u\n", r, 10 * i + r);
			n += sprintf(text + n, "stdw [%%r10-512], %u\n", i);
			n += i + 1 < deep ? sprintf(text + n, "call local f%u\n", i + 1)
					  : sprintf(text + n, "ldxb %%r0, [%%r1]\n");
			n += sprintf(text + n, "mul %%r0, 3\nldxdw %%r1, [%%r10-512]\n"
					       "add %%r0, %%r1\n");
			for (unsigned r = 6; r < 10; r++)
				n += sprintf(text + n, "add %%r0, %%r%u\nmul %%r0, 7\n", r);
			n += sprintf(text + n, "exit\n");
		}
		for (unsigned i = deep; i-- > 0;) {
			expected = expected * 3 + i;
			for (unsigned r = 6; r < 10; r++)
				expected = (expected + 10 * i + r) * 7;
		}
		e = engines_of(text, &guessing);
		assert_int_equal(engines_run(e, args, 2, 1000), 0);
		assert_int_equal(e->result.r0, expected);
		engines_free(e);
	}
}

/* --- programs beside each other ----------------------------------------------------------- */

/* A second load leaves the first as it was; so does the end of either; objects are gone already. */
static void second_load(void **state)
{
	struct engines *first = engines_of(busy, &env);
	const uint64_t args[] = {4, 0};
	uint64_t r0;

	assert_int_equal(engines_run(first, args, 2, PLENTY), 0);
	r0 = first->result.r0;
	for (int i = 0; i < 20; i++) {
		struct engines *second = engines_of(i & 1 ? busy : "mov %r0, 5\nexit\n", &env);

		assert_int_equal(engines_run(second, args, 2, PLENTY), 0);
		assert_int_equal(second->result.r0, i & 1 ? r0 : 5);
		assert_int_equal(engines_run(first, args, 2, PLENTY), 0);
		assert_int_equal(first->result.r0, r0);
		engines_free(second);
		assert_int_equal(engines_run(first, args, 2, PLENTY), 0);
		assert_int_equal(first->result.r0, r0);
	}
	engines_free(first);
}

static void *in_thread(void *arg)
{
	const struct tutti_vm_program *program = arg;
	struct tutti_vm_context *context;
	struct tutti_vm_result result = {0};
	uint64_t total = 0;

	if (tutti_vm_context_create(program, &context))
		return NULL;
	for (uint64_t i = 1; i <= 300; i++) {
		const uint64_t args[] = {i % 9 + 1, 0};

		if ((i & 1 ? tutti_vm_run : tutti_vm_interpret)(context, 0, args, 2, PLENTY,
								&result))
			break;
		total += result.r0;
	}
	tutti_vm_context_destroy(context);
	return (void *)(uintptr_t)total;
}

static void threads(void **state)
{
	struct engines *e = engines_of(busy, &env);
	void *alone = in_thread(e->program);
	pthread_t thread[4];

	assert_non_null(alone);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, in_thread, e->program), 0);
	for (int i = 0; i < 4; i++) {
		void *total;

		pthread_join(thread[i], &total);
		assert_ptr_equal(total, alone);
	}
	engines_free(e);
}

/* --- the code in memory -------------------------------------------------------------------- */

/* The permissions of the mapping at an address, or of any that can be written and run: "". */
static void permissions(const void *address, char ret[5])
{
	FILE *file = fopen("/proc/self/maps", "r");
	char line[512];

	strcpy(ret, "");
	assert_non_null(file);
	while (fgets(line, sizeof line, file)) {
		unsigned long low, high;
		char mode[5];

		if (sscanf(line, "%lx-%lx %4s", &low, &high, mode) != 3)
			continue;
		if (mode[1] == 'w')
			assert_int_not_equal(mode[2], 'x');
		if (low <= (uintptr_t)address && (uintptr_t)address < high)
			strcpy(ret, mode);
	}
	fclose(file);
}

static void code_is_sealed(void **state)
{
	struct engines *e = engines_of(busy, &env);
	const struct tt_vm_arena *arena = &e->program->arena;
	const struct tt_vm_image *image = e->program->image;
	char mode[5];

	assert_int_equal(image->bytes, arena->bytes);
	permissions(image, mode);
	assert_string_equal(mode, "r--s");
	if (image->code_bytes) {
		permissions((const char *)image + image->code_off, mode);
		assert_string_equal(mode, "r-xs");
	}
	assert_int_equal(mprotect(arena->address, 4096, PROT_READ | PROT_WRITE), -1);
	assert_int_equal(pwrite(arena->fd, "x", 1, 0), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(ftruncate(arena->fd, 0), -1);
	assert_int_equal(ftruncate(arena->fd, (off_t)arena->bytes + 4096), -1);
	assert_ptr_equal(mmap(NULL, arena->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, arena->fd, 0),
			 MAP_FAILED);
	assert_int_equal(fcntl(arena->fd, F_ADD_SEALS, 0), -1);
	assert_true(fcntl(arena->fd, F_GETFD) & FD_CLOEXEC);
	engines_free(e);
}

/* The same image at another address, as another process would have it. */
static void position_independent(void **state)
{
	struct engines *e = engines_of(busy, &env);
	struct tutti_vm_program elsewhere = *e->program;
	const struct tt_vm_image *image = e->program->image;
	const uint64_t args[] = {4, 0};
	struct tutti_vm_result result = {0};
	struct tutti_vm_context *context;
	/* Far away: more than 32 bits of distance, where there is room. */
	void *there = mmap((void *)0x200000000000, image->bytes, PROT_READ | PROT_EXEC, MAP_SHARED,
			   e->program->arena.fd, 0);

	assert_ptr_not_equal(there, MAP_FAILED);
	assert_ptr_not_equal(there, image);
	elsewhere.image = there;
	assert_int_equal(engines_run(e, args, 2, PLENTY), 0);
	assert_int_equal(tutti_vm_context_create(&elsewhere, &context), 0);
	/* Nothing of the first place is used any more. */
	assert_int_equal(mprotect(e->program->arena.address, image->bytes, PROT_NONE), 0);
	assert_int_equal(tutti_vm_run(context, 0, args, 2, PLENTY, &result), 0);
	assert_int_equal(result.r0, e->result.r0);
	assert_int_equal(result.budget_left, e->result.budget_left);
	assert_int_equal(tutti_vm_run(context, 0, args, 2, 22, &result), -EFAULT);
	assert_int_equal(result.pc, 21);
	mprotect(e->program->arena.address, elsewhere.arena.bytes, PROT_READ);
	tutti_vm_context_destroy(context);
	munmap(there, elsewhere.arena.bytes);
	engines_free(e);
}

#if defined(__x86_64__)
/* engine_run_test.S: calls fn with patterns in all registers that it must keep; are they there? */
bool keeps(tt_vm_enter_fn fn, struct tutti_vm_context *context, const void *code);

static void caller_keeps_registers(void **state)
{
	static const uint64_t budgets[] = {PLENTY, 0, 16, 17,
					   22}; /* exits, side exits, deep ones */
	struct engines *e = engines_of(busy, &env);
	const struct tt_vm_image *image = e->program->image;
	const struct tt_vm_entry *entry =
		(const void *)((const uint8_t *)image + image->entries_off);
	struct tutti_vm_context *context = e->engine[1].context;

	for (int fails = 0; fails < 2; fails++)
		for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
			tt_vm_enter_fn enter;
			const uint8_t *address = (const uint8_t *)image + image->enter_off;

			memcpy(&enter, &address, sizeof enter);
			context->regs[TT_R1] = fails ? FAILS : 4;
			context->regs[TT_R2] = 0;
			context->budget = budgets[i];
			assert_true(
				keeps(enter, context, (const uint8_t *)image + entry->code_off));
		}
	engines_free(e);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_budget),
		cmocka_unit_test(endless),
		cmocka_unit_test(promises),
		cmocka_unit_test(fault_texts),
		cmocka_unit_test(wrong_guess_in_callee),
		cmocka_unit_test(second_load),
		cmocka_unit_test(threads),
		cmocka_unit_test(code_is_sealed),
		cmocka_unit_test(position_independent),
#if defined(__x86_64__)
		cmocka_unit_test(caller_keeps_registers),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
