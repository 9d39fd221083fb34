/* SPDX-License-Identifier: MIT */
/* A module of clang's through the whole machine: addresses, maps, helpers and calls fit together. */
#include "vm/elf_test.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static int help_join(struct tutti_vm_call *call)
{
	call->ret = call->arg[0] * 100 + call->arg[1];
	return 0;
}

static int help_less(struct tutti_vm_call *call)
{
	call->ret = call->arg[0] - call->arg[1];
	return 0;
}

static int help_limit(struct tutti_vm_call *call)
{
	const struct tutti_vm_map *map = call->ptr[0];

	call->ret = map->max_entries;
	return 0;
}

static const struct tutti_vm_helper helpers[] = {
	{"less", 11, TUTTI_VM_RET_NUMBER, {TUTTI_VM_ARG_ANY, TUTTI_VM_ARG_ANY}, 1, help_less},
	{"limit", 12, TUTTI_VM_RET_NUMBER, {TUTTI_VM_ARG_MAP}, 1, help_limit},
	{"join", 13, TUTTI_VM_RET_NUMBER, {TUTTI_VM_ARG_ANY, TUTTI_VM_ARG_ANY}, 1, help_join},
};
static const struct tutti_vm_hook hook = {
	.section = "test",
	.args = 1,
	.arg = {{.window = TUTTI_VM_CTX, .bytes = 16}},
	.helpers = 7,
};
static const struct tutti_vm_env env = {
	.hooks = &hook, .n_hooks = 1, .helpers = helpers, .n_helpers = COUNT(helpers)};

static const struct {
	const char *entry;
	uint64_t ctx[2];
	uint64_t r0;
} runs[] = {
	{"walk", {0}, 543},
	{"letter", {0, 1}, 'l'},
	{"letter", {1, 0}, 'b'},
	{"count", {7}, 12001},
	{"count", {1}, 13002}, /* data is kept between runs */
	{"helpers", {9, 2}, 700 + 204},
	{"limits", {0}, 9007},
	{"functions", {10, 20}, 90 + 2 * 13},
};

static void run_all(const char *name, unsigned flags)
{
	struct tutti_vm_object *object = open_object(name);
	struct tutti_vm_program *program;
	struct tutti_vm_context *context;
	struct tutti_vm_error error;
	const struct tutti_vm_map *maps;
	uint32_t n_maps = tutti_vm_object_maps(object, &maps);
	uint64_t ctx[2], address = tutti_vm_address(TUTTI_VM_CTX);

	if (tutti_vm_program_create(object, &env, flags, &program, &error))
		fail_msg("%s: %s", name, error.text);
	assert_int_equal(tutti_vm_context_create(program, &context), 0);
	assert_int_equal(tutti_vm_set_window(context, TUTTI_VM_CTX, ctx, sizeof ctx, false), 0);
	for (uint32_t i = 0; i < n_maps; i++)
		assert_int_equal(tutti_vm_set_map(context, i, (void *)&maps[i]), 0);
	for (size_t i = 0; i < COUNT(runs); i++) {
		int entry = tutti_vm_program_entry(program, runs[i].entry);
		struct tutti_vm_result result;

		assert_true(entry >= 0);
		memcpy(ctx, runs[i].ctx, sizeof ctx);
		if (tutti_vm_run(context, entry, &address, 1, 10000, &result))
			fail_msg("%s: %s: %s", name, runs[i].entry,
				 tutti_vm_fault_name(result.fault));
		assert_int_equal(result.r0, runs[i].r0);
	}
	tutti_vm_context_destroy(context);
	tutti_vm_program_destroy(program);
	tutti_vm_object_destroy(object);
}

static void everything_in_its_place(void **state)
{
	static const char *const names[] = {"run_v1.o", "run_v2.o", "run_v3.o"};

	for (size_t i = 0; i < COUNT(names); i++) {
		run_all(names[i], 0);
		run_all(names[i], TUTTI_VM_JIT);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(everything_in_its_place)};

	set_folders(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
