/* SPDX-License-Identifier: MIT */
#include "vm/count.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const struct tutti_vm_hook hook = {.args = 1};
static const struct tutti_vm_env env = {.hooks = &hook, .n_hooks = 1};

static struct tutti_vm_context *start(const char *source, struct tutti_vm_program **ret_program)
{
	struct tutti_vm_object *object;
	struct tutti_vm_context *context;
	struct tutti_vm_error error = {0};

	if (tutti_vm_assemble(source, strlen(source), &object, &error) ||
	    tutti_vm_program_create(object, &env, 0, ret_program, &error))
		fail_msg("%s", error.text);
	tutti_vm_object_destroy(object);
	assert_int_equal(tutti_vm_context_create(*ret_program, &context), 0);
	return context;
}

static void test_exact(void **state)
{
	/* The budget has another number for it: a jump forward, a call, a wide one. */
	static const char loop[] = "mov %r6, %r1\n"
				   "mov %r0, 0\n"
				   "lddw %r8, 0x100000000\n"
				   "again: jeq %r6, 0, out\n"
				   "sub %r6, 1\n"
				   "ja over\n"
				   "mov %r0, 7\n"
				   "over: call local one\n"
				   "ja again\n"
				   "out: exit\n"
				   "one: mov %r0, 1\n"
				   "exit\n";
	struct tutti_vm_program *program;
	struct tutti_vm_context *context = start(loop, &program);
	struct tutti_vm_result result;

	for (uint64_t n = 0; n < 5; n++) {
		uint64_t insns = 99;

		assert_int_equal(tt_vm_count(context, 0, &n, 1, 1000, &result, &insns), 0);
		assert_int_equal(insns, 3 + 7 * n + 2);
		assert_int_equal(result.r0, n > 0);
	}
	tutti_vm_context_destroy(context);
	tutti_vm_program_destroy(program);
}

static void test_fault(void **state)
{
	struct tutti_vm_program *program;
	struct tutti_vm_context *context = start("mov %r0, 1\nldxb %r0, [%r1]\nexit\n", &program);
	struct tutti_vm_result result;
	uint64_t insns = 99, nowhere = 0;

	assert_int_equal(tt_vm_count(context, 0, &nowhere, 1, 1000, &result, &insns), -EFAULT);
	assert_int_equal(result.fault, TUTTI_VM_FAULT_READ);
	assert_int_equal(insns, 2);
	tutti_vm_context_destroy(context);
	tutti_vm_program_destroy(program);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exact),
		cmocka_unit_test(test_fault),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
