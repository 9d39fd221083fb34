/* SPDX-License-Identifier: MIT */
/*
 * Where a program runs: its windows, its stack and data, and one run.
 *
 * The stack is the context's own: what a program finds there and did not write
 * in this run, it left there itself in one before.
 */
#include "vm/share.h"
#include "vm/vm_int.h"

#include <stdlib.h>
#include <string.h>

static const void *at(const struct tutti_vm_program *program, uint32_t off)
{
	return (const uint8_t *)program->image + off;
}

void tt_vm_lay(struct tutti_vm_context *context, unsigned window, void *base, size_t bytes,
	       bool writable)
{
	struct tt_vm_win *win = &context->win[window];

	win->base = base;
	win->bytes = bytes;
	for (unsigned i = 0; i < 4; i++) {
		size_t width = (size_t)1 << i;

		win->read_limit[i] = bytes >= width ? bytes - width + 1 : 0;
		win->write_limit[i] = writable ? win->read_limit[i] : 0;
	}
}

/* Called by compiled code: how it left is what it gets back. */
static int call_helper(struct tutti_vm_context *context, uint32_t helper)
{
	return tt_vm_call_helper(context, helper) ? TT_LEFT_EXIT : TT_LEFT_FAULT;
}

/*
 * Called by compiled code at a side exit: makes the interpreter's frames of
 * those on the machine's stack, innermost at sp, each as jit.c pushes it:
 * return address, r9, r8, r7, r6, index of the instruction after the call.
 */
static void unwind(struct tutti_vm_context *context, const uint64_t *sp)
{
	uint32_t depth = (uint32_t)(((const uint64_t *)context->host_sp - sp) / 6);

	context->depth = depth;
	for (uint32_t i = depth; i-- > 0; sp += 6)
		context->frames[i] = (struct tt_vm_frame){.saved = {sp[4], sp[3], sp[2], sp[1]},
							  .pc = (uint32_t)sp[5]};
}

static int create(const struct tutti_vm_program *program, void *data,
		  struct tutti_vm_context **ret_context)
{
	const struct tt_vm_image *image = program->image;
	struct tutti_vm_context *context = aligned_alloc(64, sizeof *context);

	if (!context)
		return -ENOMEM;
	memset(context, 0, sizeof *context);
	context->program = program;
	context->call_helper = call_helper;
	context->unwind = unwind;
	context->maps = calloc(image->n_maps ? image->n_maps : 1, sizeof *context->maps);
	/* Atomic operations want their windows aligned. */
	context->own_data = !data;
	context->data =
		data ? data : aligned_alloc(64, ((size_t)image->data_bytes + 64) & ~(size_t)63);
	if (!context->maps || !context->data) {
		tutti_vm_context_destroy(context);
		return -ENOMEM;
	}
	if (context->own_data)
		memcpy(context->data, at(program, image->data_off), image->data_bytes);
	context->frame = context->stack + TT_STACK_BYTES;
	context->stack_delta = tutti_vm_address(TUTTI_VM_STACK) - (uintptr_t)context->stack;
	tt_vm_lay(context, TUTTI_VM_STACK, context->stack, TT_STACK_BYTES, true);
	tt_vm_lay(context, TUTTI_VM_DATA, context->data, image->data_bytes, true);
	tt_vm_lay(context, TUTTI_VM_RODATA, (void *)(uintptr_t)at(program, image->rodata_off),
		  image->rodata_bytes, false);
	*ret_context = context;
	return 0;
}

int tutti_vm_context_create(const struct tutti_vm_program *program,
			    struct tutti_vm_context **ret_context)
{
	return create(program, NULL, ret_context);
}

int tt_vm_context_create_at(const struct tutti_vm_program *program, void *data,
			    struct tutti_vm_context **ret_context)
{
	return create(program, data, ret_context);
}

void tutti_vm_context_destroy(struct tutti_vm_context *context)
{
	if (!context)
		return;
	free(context->maps);
	if (context->own_data)
		free(context->data);
	free(context);
}

void tutti_vm_set_user(struct tutti_vm_context *context, void *user)
{
	context->user = user;
}

int tutti_vm_set_map(struct tutti_vm_context *context, uint32_t index, void *map)
{
	if (index >= context->program->image->n_maps)
		return -EINVAL;
	context->maps[index] = map;
	return 0;
}

int tutti_vm_set_window(struct tutti_vm_context *context, enum tutti_vm_window window, void *base,
			size_t bytes, bool writable)
{
	if (window < TUTTI_VM_CTX || window >= TUTTI_VM_WINDOWS || bytes >= TUTTI_VM_WINDOW_BYTES ||
	    (uintptr_t)base % 8 || (!base && bytes))
		return -EINVAL;
	tt_vm_lay(context, window, base, bytes, writable);
	return 0;
}

void *tutti_vm_pointer(const struct tutti_vm_context *context, uint64_t address, uint64_t bytes,
		       bool write)
{
	uint64_t window = address >> TUTTI_VM_WINDOW_SHIFT;
	uint64_t off = address & (TUTTI_VM_WINDOW_BYTES - 1);
	const struct tt_vm_win *win;

	if (!window || window >= TUTTI_VM_WINDOWS)
		return NULL;
	win = &context->win[window];
	if (off > win->bytes || bytes > win->bytes - off ||
	    (write && win->bytes && !win->write_limit[0]))
		return NULL;
	return win->base ? win->base + off : NULL;
}

/* --- helper calls -------------------------------------------------------------- */

static bool argument_fault(struct tutti_vm_context *context, uint64_t address, uint64_t bytes)
{
	context->result = (struct tutti_vm_result){.fault = TUTTI_VM_FAULT_ARGUMENT,
						   .pc = context->pc,
						   .address = address,
						   .bytes = bytes};
	return false;
}

static bool check_memory(struct tutti_vm_context *context, struct tutti_vm_call *call, int i,
			 uint64_t bytes, bool write)
{
	call->bytes[i] = bytes;
	call->ptr[i] = bytes ? tutti_vm_pointer(context, call->arg[i], bytes, write) : NULL;
	return !bytes || call->ptr[i] ? true : argument_fault(context, call->arg[i], bytes);
}

bool tt_vm_call_helper(struct tutti_vm_context *context, uint32_t index)
{
	const struct tutti_vm_program *program = context->program;
	const struct tutti_vm_helper *helper = &program->env->helpers[index];
	const struct tutti_vm_map *map = NULL;
	struct tutti_vm_call call = {.context = context, .user = context->user};
	int err;

	for (int i = 0; i < 5; i++) {
		bool good = true;

		call.arg[i] = context->regs[TT_R1 + i];
		switch (helper->arg[i]) {
		case TUTTI_VM_ARG_READ:
		case TUTTI_VM_ARG_WRITE:
			good = check_memory(context, &call, i, context->regs[TT_R1 + i + 1],
					    helper->arg[i] == TUTTI_VM_ARG_WRITE);
			break;
		case TUTTI_VM_ARG_MAP:
			/* The verifier has seen to it; looked at again, for it indexes memory of ours. */
			if (call.arg[i] >= program->image->n_maps || !context->maps[call.arg[i]])
				return argument_fault(context, call.arg[i], 0);
			map = &program->maps[call.arg[i]];
			call.ptr[i] = context->maps[call.arg[i]];
			break;
		case TUTTI_VM_ARG_KEY:
			good = check_memory(context, &call, i, map ? map->key_bytes : 0, false);
			break;
		case TUTTI_VM_ARG_VALUE:
			good = check_memory(context, &call, i, map ? map->value_bytes : 0, false);
			break;
		case TUTTI_VM_ARG_CTX:
			/* The verifier knows where it points, but not what was kept in memory. */
			if (call.arg[i] != context->first_arg)
				return argument_fault(context, call.arg[i], 0);
			break;
		case TUTTI_VM_ARG_NONE:
			call.arg[i] = 0; /* whatever the register happens to hold */
			break;
		default: break;
		}
		if (!good)
			return false;
	}
	err = helper->fn(&call);
	if (err) {
		context->result = (struct tutti_vm_result){
			.fault = TUTTI_VM_FAULT_HELPER, .pc = context->pc, .helper_error = err};
		return false;
	}
	context->regs[TT_R0] = call.ret;
	return true;
}

/* --- a run ---------------------------------------------------------------------- */

/* What the verifier took for granted about the arguments. */
static bool as_promised(const struct tutti_vm_context *context, const struct tutti_vm_hook *hook,
			const uint64_t *args, unsigned n_args)
{
	if (n_args != hook->args)
		return false;
	for (unsigned i = 0; i < n_args; i++) {
		const struct tutti_vm_value *value = &hook->arg[i];

		if (value->window && value->bytes &&
		    (args[i] != (uint64_t)value->window << TUTTI_VM_WINDOW_SHIFT ||
		     context->win[value->window].bytes < value->bytes))
			return false;
	}
	return true;
}

static int run(struct tutti_vm_context *context, int entry_index, const uint64_t *args,
	       unsigned n_args, uint64_t budget, bool compiled, tt_vm_interpret_fn interpret,
	       struct tutti_vm_result *ret_result)
{
	const struct tutti_vm_program *program = context->program;
	const struct tt_vm_image *image = program->image;
	const struct tt_vm_entry *entry;
	enum tt_vm_left left = TT_LEFT_SIDE;

	if (entry_index < 0 || (uint32_t)entry_index >= image->n_entries)
		return -EINVAL;
	entry = (const struct tt_vm_entry *)at(program, image->entries_off) + entry_index;
	if (!as_promised(context, &program->env->hooks[entry->hook], args, n_args))
		return -EINVAL;
	for (unsigned i = 0; i < 5; i++)
		context->regs[TT_R1 + i] = i < n_args ? args[i] : 0;
	context->first_arg = context->regs[TT_R1];
	context->budget = budget;
	if (compiled && entry->code_off) {
		tt_vm_enter_fn enter;
		const void *address = at(program, image->enter_off);

		memcpy(&enter, &address, sizeof enter);
		left = enter(context, at(program, entry->code_off));
	} else {
		context->regs[TT_R0] = 0;
		for (unsigned i = TT_R6; i <= TT_R9; i++)
			context->regs[i] = 0;
		context->depth = 0;
		context->pc = entry->pc;
	}
	if (left == TT_LEFT_SIDE)
		left = interpret(context, context->pc) ? TT_LEFT_EXIT : TT_LEFT_FAULT;
	ret_result->budget_left = context->budget;
	if (left == TT_LEFT_EXIT) {
		ret_result->r0 = context->regs[TT_R0];
		ret_result->fault = TUTTI_VM_FAULT_NONE;
		return 0;
	}
	*ret_result = context->result;
	ret_result->r0 = 0;
	ret_result->budget_left = context->budget;
	return -EFAULT;
}

int tutti_vm_run(struct tutti_vm_context *context, int entry, const uint64_t *args, unsigned n_args,
		 uint64_t budget, struct tutti_vm_result *ret_result)
{
	return run(context, entry, args, n_args, budget, true, tt_vm_interpret, ret_result);
}

int tutti_vm_interpret(struct tutti_vm_context *context, int entry, const uint64_t *args,
		       unsigned n_args, uint64_t budget, struct tutti_vm_result *ret_result)
{
	return run(context, entry, args, n_args, budget, false, tt_vm_interpret, ret_result);
}

int tt_vm_interpret_by(struct tutti_vm_context *context, int entry, const uint64_t *args,
		       unsigned n_args, uint64_t budget, tt_vm_interpret_fn interpret,
		       struct tutti_vm_result *ret_result)
{
	return run(context, entry, args, n_args, budget, false, interpret, ret_result);
}
