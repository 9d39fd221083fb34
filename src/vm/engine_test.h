/* SPDX-License-Identifier: MIT */
/*
 * For tests: one program, run by the interpreter and by compiled code, each
 * with memory of its own; all that can be seen of the two runs must be the
 * same. What a test then looks at, it looks at in both.
 */
#ifndef TT_VM_ENGINE_TEST_H
#define TT_VM_ENGINE_TEST_H

#include "vm/vm_int.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROOM = 512, MARGIN = 64, MARK = 0xa5, PLENTY = 1000000 };

static inline uint64_t at_window(unsigned window, int64_t off)
{
	return ((uint64_t)window << TUTTI_VM_WINDOW_SHIFT) + (uint64_t)off;
}

/* Memory with marks around it, which must stay. */
struct room {
	uint8_t before[MARGIN];
	_Alignas(8) uint8_t bytes[ROOM];
	uint8_t after[MARGIN];
};

struct engine {
	struct tutti_vm_context *context;
	struct room room[TUTTI_VM_WINDOWS];
};

/* [0] interpreted, [1] compiled. */
struct engines {
	struct tutti_vm_program *program;
	struct engine engine[2];
	struct tutti_vm_result result;
	int err;
};

/* Some number for each byte of each window. */
static inline uint8_t pattern(unsigned window, uint64_t off)
{
	return (uint8_t)(window * 29 + off * 7 + (off >> 5) + 1);
}

static inline void engines_fill(struct engines *e)
{
	for (int i = 0; i < 2; i++)
		for (unsigned w = TUTTI_VM_CTX; w < TUTTI_VM_WINDOWS; w++) {
			memset(&e->engine[i].room[w], MARK, sizeof(struct room));
			for (unsigned k = 0; k < ROOM; k++)
				e->engine[i].room[w].bytes[k] = pattern(w, k);
		}
}

static inline void engines_window(struct engines *e, unsigned window, size_t bytes, bool writable)
{
	for (int i = 0; i < 2; i++) {
		struct engine *one = &e->engine[i];

		assert_int_equal(tutti_vm_set_window(one->context, (enum tutti_vm_window)window,
						     one->room[window].bytes, bytes, writable),
				 0);
	}
}

static inline struct tutti_vm_object *assembled(const char *text)
{
	struct tutti_vm_object *object = NULL;
	struct tutti_vm_error error = {0};

	if (tutti_vm_assemble(text, strlen(text), &object, &error))
		fail_msg("%s: %s", text, error.text);
	return object;
}

/* Takes the object. Every window of the caller's has ROOM bytes, which may be written. */
static inline struct engines *engines_of_object(struct tutti_vm_object *object,
						const struct tutti_vm_env *env)
{
	struct engines *e = calloc(1, sizeof *e);
	struct tutti_vm_error error = {0};

	assert_non_null(e);
	if (tutti_vm_program_create(object, env, TUTTI_VM_JIT, &e->program, &error))
		fail_msg("%s", error.text);
	tutti_vm_object_destroy(object);
#if defined(__x86_64__)
	assert_true(tutti_vm_program_compiled(e->program));
#endif
	for (int i = 0; i < 2; i++)
		assert_int_equal(tutti_vm_context_create(e->program, &e->engine[i].context), 0);
	engines_fill(e);
	for (unsigned w = TUTTI_VM_CTX; w < TUTTI_VM_WINDOWS; w++)
		engines_window(e, w, ROOM, true);
	return e;
}

static inline struct engines *engines_of(const char *text, const struct tutti_vm_env *env)
{
	return engines_of_object(assembled(text), env);
}

static inline void engines_free(struct engines *e)
{
	for (int i = 0; i < 2; i++)
		tutti_vm_context_destroy(e->engine[i].context);
	tutti_vm_program_destroy(e->program);
	free(e);
}

static inline void assert_same_result(const struct tutti_vm_result *a,
				      const struct tutti_vm_result *b)
{
	if (a->fault != b->fault || a->pc != b->pc)
		fail_msg("interpreted: %s at %u; compiled: %s at %u", tutti_vm_fault_name(a->fault),
			 a->pc, tutti_vm_fault_name(b->fault), b->pc);
	assert_int_equal(a->r0, b->r0);
	assert_int_equal(a->address, b->address);
	assert_int_equal(a->bytes, b->bytes);
	assert_int_equal(a->helper_error, b->helper_error);
	assert_int_equal(a->budget_left, b->budget_left);
}

static inline void assert_same_memory(const struct engines *e)
{
	const struct engine *a = &e->engine[0], *b = &e->engine[1];

	assert_memory_equal(a->room, b->room, sizeof a->room);
	assert_memory_equal(a->context->stack, b->context->stack, TT_STACK_BYTES);
	assert_memory_equal(a->context->data, b->context->data, e->program->image->data_bytes);
	for (unsigned w = TUTTI_VM_CTX; w < TUTTI_VM_WINDOWS; w++)
		for (unsigned k = 0; k < MARGIN; k++)
			if (a->room[w].before[k] != MARK || a->room[w].after[k] != MARK)
				fail_msg("memory beside window %u was written", w);
}

/* Both; what they return and the result, which are the same. */
static inline int engines_run_entry(struct engines *e, int entry, const uint64_t *args,
				    unsigned n_args, uint64_t budget)
{
	struct tutti_vm_result result[2] = {{0}, {0}};
	int err[2];

	err[0] = tutti_vm_interpret(e->engine[0].context, entry, args, n_args, budget, &result[0]);
	err[1] = tutti_vm_run(e->engine[1].context, entry, args, n_args, budget, &result[1]);
	assert_same_result(&result[0], &result[1]);
	assert_int_equal(err[0], err[1]);
	assert_same_memory(e);
	e->result = result[0];
	e->err = err[0];
	return err[0];
}

static inline int engines_run(struct engines *e, const uint64_t *args, unsigned n_args,
			      uint64_t budget)
{
	return engines_run_entry(e, 0, args, n_args, budget);
}

/* A program of two numbers that ends well: what it returns. */
static inline uint64_t result_of(const char *text, const struct tutti_vm_env *env, uint64_t a,
				 uint64_t b)
{
	struct engines *e = engines_of(text, env);
	const uint64_t args[] = {a, b};
	uint64_t r0;

	if (engines_run(e, args, 2, PLENTY))
		fail_msg("%s: %s at %u", text, tutti_vm_fault_name(e->result.fault), e->result.pc);
	r0 = e->result.r0;
	engines_free(e);
	return r0;
}

/* Two numbers, of which the first probably is an address of this window, 0: of any. */
static inline const struct tutti_vm_env *env_with_hint(unsigned window)
{
	static struct tutti_vm_hook hooks[TUTTI_VM_WINDOWS];
	static struct tutti_vm_env envs[TUTTI_VM_WINDOWS];

	hooks[window] = (struct tutti_vm_hook){.args = 2, .arg = {{.window = (uint8_t)window}}};
	envs[window] = (struct tutti_vm_env){.hooks = &hooks[window], .n_hooks = 1};
	return &envs[window];
}

/* Refused, with these words in the message. */
static inline void assert_refused(struct tutti_vm_object *object, const struct tutti_vm_env *env,
				  int code, const char *words)
{
	struct tutti_vm_program *program = NULL;
	struct tutti_vm_error error = {0};

	assert_int_equal(tutti_vm_program_create(object, env, TUTTI_VM_JIT, &program, &error),
			 code);
	assert_null(program);
	if (!strstr(error.text, words))
		fail_msg("\"%s\" is not in: %s", words, error.text);
	tutti_vm_object_destroy(object);
}

#endif
