/* SPDX-License-Identifier: MIT */
/* One run of a program that knows nothing but a piece of memory. */
#include "vm_int.h"

#include "cli_int.h"

#include <stdio.h>
#include <string.h>

static const struct tutti_vm_hook plain_hook = {
	.section = NULL,
	.args = 2,
	.arg = {{.window = TUTTI_VM_PACKET}, {.window = 0}},
};

const struct tutti_vm_env tt_vm_plain_env = {.hooks = &plain_hook, .n_hooks = 1};

bool tt_arg_engine(const char *text, enum tt_vm_engine *ret)
{
	if (strcmp(text, "interp") != 0 && strcmp(text, "jit") != 0)
		return false;
	*ret = *text == 'i' ? TT_VM_INTERP : TT_VM_COMPILED;
	return true;
}

static void fail(struct tt_vm_outcome *outcome, const char *why)
{
	outcome->end = TT_VM_FAILED;
	snprintf(outcome->error.text, sizeof(outcome->error.text), "%s", why);
}

static void run(const struct tutti_vm_program *program, void *mem, size_t bytes,
		enum tt_vm_engine engine, uint64_t budget, struct tt_vm_outcome *ret)
{
	static uint64_t nothing; /* where an empty window may lie */
	const uint64_t args[] = {tutti_vm_address(TUTTI_VM_PACKET), bytes};
	int entry = tutti_vm_program_entry(program, NULL);
	struct tutti_vm_context *context;
	int err = tutti_vm_context_create(program, &context);

	if (err)
		return fail(ret, strerror(-err));
	err = tutti_vm_set_window(context, TUTTI_VM_PACKET, bytes ? mem : &nothing, bytes, true);
	if (err)
		fail(ret, "the memory does not fit: it must be smaller than 256 MiB");
	else if (engine == TT_VM_INTERP)
		err = tutti_vm_interpret(context, entry, args, 2, budget, &ret->result);
	else
		err = tutti_vm_run(context, entry, args, 2, budget, &ret->result);
	if (err == -EFAULT) {
		ret->end = TT_VM_FAULT;
		ret->error.insn = (int32_t)ret->result.pc;
		tutti_vm_fault_text(program, &ret->result, ret->error.text,
				    sizeof(ret->error.text));
	} else if (!err) {
		ret->end = TT_VM_DONE;
	} else if (ret->end != TT_VM_FAILED) {
		fail(ret, strerror(-err));
	}
	tutti_vm_context_destroy(context);
}

void tt_vm_try(const struct tutti_vm_object *object, void *mem, size_t bytes,
	       enum tt_vm_engine engine, uint64_t budget, struct tt_vm_outcome *ret)
{
	struct tutti_vm_program *program;
	unsigned flags = engine == TT_VM_INTERP ? 0 : TUTTI_VM_JIT;
	int err;

	memset(ret, 0, sizeof(*ret));
	ret->error.insn = ret->error.reg = -1;
	err = tutti_vm_program_create(object, &tt_vm_plain_env, flags, &program, &ret->error);
	if (err) {
		ret->end = err == -EACCES || err == -ENOENT ? TT_VM_REFUSED : TT_VM_FAILED;
		return;
	}
	ret->compiled = engine != TT_VM_INTERP && tutti_vm_program_compiled(program);
	if (engine == TT_VM_COMPILED && !ret->compiled)
		fail(ret, "programs cannot be compiled on this machine: use --engine interp");
	else
		run(program, mem, bytes, engine, budget, ret);
	tutti_vm_program_destroy(program);
}

/* --- JSON ------------------------------------------------------------------------------ */

void tt_vm_write_error(struct tt_json *json, const struct tutti_vm_error *error)
{
	tt_json_open(json, "error", '{');
	tt_json_str(json, "text", error->text);
	if (error->line)
		tt_json_uint(json, "line", error->line);
	if (error->insn >= 0)
		tt_json_int(json, "instruction", error->insn);
	if (error->reg >= 0)
		tt_json_int(json, "register", error->reg);
	tt_json_close(json, '}');
}

int tt_vm_print_json(const char *command, struct tt_json *json, int status)
{
	if (json->failed)
		status = tt_cli_fail(command, "out of memory", NULL);
	else
		puts(json->text);
	tt_json_fini(json);
	return status;
}
