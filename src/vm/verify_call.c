/* SPDX-License-Identifier: MIT */
/*
 * Calls: which functions call which (a tree without rounds, at most eight
 * deep), which hook an entry has, what a function may rely on whichever entry
 * led to it, and whether helpers get what they ask for.
 */
#include "vm/verify_int.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- call graph -------------------------------------------------------------------- */

int64_t tt_vm_callee(const struct tutti_vm_object *object, uint32_t insn)
{
	int64_t start = (int64_t)insn + 1 + object->insns[insn].imm;
	uint32_t low = 0, high = object->n_funcs;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (object->funcs[middle].start < start)
			low = middle + 1;
		else
			high = middle;
	}
	return low < object->n_funcs && object->funcs[low].start == start ? (int64_t)low : -1;
}

static bool is_local_call(const struct tutti_vm_insn *insn)
{
	return insn->code == (TT_JMP | TT_CALL) && tt_vm_src(insn) == TT_CALL_LOCAL;
}

static int list_calls(struct tt_vm_verifier *v)
{
	const struct tutti_vm_object *object = v->object;
	uint32_t n = 0;

	for (uint32_t i = 0; i < object->n_insns; i++)
		n += is_local_call(&object->insns[i]);
	v->calls = calloc(n ? n : 1, sizeof *v->calls);
	if (!v->calls)
		return tt_vm_fail(v->error, -ENOMEM, NULL, -1, -1, "out of memory");
	for (uint32_t f = 0; f < object->n_funcs; f++) {
		v->funcs[f].calls = v->n_calls;
		for (uint32_t i = object->funcs[f].start; i < object->funcs[f].end; i++) {
			struct tt_vm_vcall *call = &v->calls[v->n_calls];
			int64_t callee;

			if (!is_local_call(&object->insns[i]))
				continue;
			callee = tt_vm_callee(object, i);
			if (callee < 0)
				return tt_vm_refuse(v, i, -1,
						    "the call leads to instruction %" PRId64
						    ", where no function starts (call the first "
						    "instruction of a function)",
						    (int64_t)i + 1 + object->insns[i].imm);
			*call = (struct tt_vm_vcall){.insn = i,
						     .caller = f,
						     .callee = (uint32_t)callee,
						     .next = v->funcs[callee].sites};
			v->funcs[callee].sites = ++v->n_calls;
			v->funcs[f].n_calls++;
		}
	}
	return 0;
}

/*
 * Follows calls from a function at this level. A function is entered again only
 * at a deeper level, so at most eight times; the depth of this recursion is
 * bounded likewise.
 */
static int follow_calls(struct tt_vm_verifier *v, uint32_t f, unsigned level)
{
	struct tt_vm_vfunc *func = &v->funcs[f];
	int err = 0;

	if (level <= func->level)
		return 0;
	func->level = level;
	func->active = true;
	for (uint32_t i = 0; i < func->n_calls && !err; i++) {
		const struct tt_vm_vcall *call = &v->calls[func->calls + i];

		if (v->funcs[call->callee].active)
			return tt_vm_refuse(v, call->insn, -1,
					    "%.40s calls itself by this call (recursion is not "
					    "taken: use a loop)",
					    v->object->funcs[call->callee].name);
		if (level == TUTTI_VM_MAX_DEPTH)
			return tt_vm_refuse(v, call->insn, -1,
					    "this call of %.40s is %u functions deep, more than %d "
					    "(inline some)",
					    v->object->funcs[call->callee].name, level + 1,
					    TUTTI_VM_MAX_DEPTH);
		err = follow_calls(v, call->callee, level + 1);
	}
	func->active = false;
	return err;
}

/* --- hooks ------------------------------------------------------------------------- */

static int find_hook(const struct tutti_vm_env *env, const char *section)
{
	int best = -1;
	size_t best_bytes = 0;

	for (uint32_t i = 0; i < env->n_hooks; i++) {
		const char *name = env->hooks[i].section;
		size_t bytes = name ? strlen(name) : 0;

		if (name && (strncmp(name, section, bytes) != 0 ||
			     (section[bytes] != '\0' && section[bytes] != '/')))
			continue;
		if (best >= 0 && bytes <= best_bytes)
			continue;
		best = (int)i;
		best_bytes = bytes;
	}
	return best;
}

/* What holds for a function however it was reached: the least of all ways. */
static void rely_on(struct tt_vm_vfunc *func, uint64_t helpers, const uint32_t *bytes,
		    uint32_t ctx_window, bool first)
{
	func->helpers = first ? helpers : func->helpers & helpers;
	if (first || func->ctx_window != ctx_window)
		func->ctx_window = first ? ctx_window : 0;
	for (unsigned i = 0; i < TUTTI_VM_WINDOWS; i++)
		if (first || bytes[i] < func->bytes[i])
			func->bytes[i] = bytes[i];
}

static void rely_on_hook(struct tt_vm_vfunc *func, const struct tutti_vm_hook *hook)
{
	uint32_t bytes[TUTTI_VM_WINDOWS] = {0};

	for (unsigned i = 0; i < hook->args; i++)
		if (hook->arg[i].window >= TUTTI_VM_CTX &&
		    hook->arg[i].bytes > bytes[hook->arg[i].window])
			bytes[hook->arg[i].window] = hook->arg[i].bytes;
	rely_on(func, hook->helpers, bytes, hook->args ? hook->arg[0].window : 0, true);
}

static int find_entries(struct tt_vm_verifier *v)
{
	bool any = false;

	for (uint32_t f = 0; f < v->object->n_funcs; f++) {
		const struct tt_vm_func *func = &v->object->funcs[f];

		v->funcs[f].hook = -1;
		if (!func->entry)
			continue;
		any = true;
		v->funcs[f].hook = find_hook(v->env, func->section);
		if (v->funcs[f].hook < 0)
			return tt_vm_fail(v->error, -ENOENT, v->object, (int32_t)func->start, -1,
					  "%.40s is in section \"%.40s\", which nothing calls here "
					  "(name it as one of the hooks, such as \"%.40s\")",
					  func->name, func->section,
					  v->env->n_hooks ? v->env->hooks[0].section : "");
		rely_on_hook(&v->funcs[f], &v->env->hooks[v->funcs[f].hook]);
	}
	if (!any)
		return tt_vm_fail(v->error, -ENOENT, v->object, -1, -1,
				  "no function can be called from outside (give one a section, and "
				  "do not make it static)");
	return 0;
}

int tt_vm_find_calls(struct tt_vm_verifier *v)
{
	int err = list_calls(v);

	if (!err)
		err = find_entries(v);
	for (uint32_t f = 0; f < v->object->n_funcs && !err; f++)
		if (v->object->funcs[f].entry)
			err = follow_calls(v, f, 1);
	if (err < 0)
		return err;
	/* A caller's level is below its callee's: each is complete before it is passed on. */
	for (unsigned level = 1; level < TUTTI_VM_MAX_DEPTH; level++) {
		for (uint32_t i = 0; i < v->n_calls; i++) {
			const struct tt_vm_vfunc *from = &v->funcs[v->calls[i].caller];
			struct tt_vm_vfunc *to = &v->funcs[v->calls[i].callee];

			if (from->level != level)
				continue;
			rely_on(to, from->helpers, from->bytes, from->ctx_window,
				!to->relied && to->hook < 0);
			to->relied = true;
		}
	}
	return 0;
}

/* --- states at the borders of functions -------------------------------------------- */

static void nothing_set(struct tt_vm_state *ret)
{
	memset(ret, 0, sizeof *ret);
	for (unsigned i = 0; i < TT_FP; i++)
		ret->reg[i] = tt_vm_unset(TT_NEVER_SET);
	ret->reg[TT_FP] = (struct tt_vm_reg){.kind = TT_FRAME, .window = TUTTI_VM_STACK};
}

void tt_vm_entry_state(const struct tt_vm_verifier *v, const struct tt_vm_vfunc *func,
		       struct tt_vm_state *ret)
{
	const struct tutti_vm_hook *hook = &v->env->hooks[func->hook];

	nothing_set(ret);
	for (unsigned i = 0; i < hook->args; i++) {
		const struct tutti_vm_value *arg = &hook->arg[i];
		uint64_t address = tutti_vm_address((enum tutti_vm_window)arg->window);

		/* Where bytes are declared, it is the address of the first. */
		ret->reg[TT_R1 + i] = arg->bytes && arg->window >= TUTTI_VM_CTX
					      ? tt_vm_range(address, address, arg->window)
					      : tt_vm_any(arg->window);
	}
}

void tt_vm_callee_state(const struct tt_vm_state *at_call, struct tt_vm_state *ret)
{
	nothing_set(ret);
	for (unsigned i = TT_R1; i <= TT_R5; i++)
		ret->reg[i] = tt_vm_outside(at_call->reg[i]);
}

void tt_vm_after_call(struct tt_vm_state *state, const struct tt_vm_reg *ret)
{
	/* Who has an address in this frame may write there. */
	for (unsigned i = TT_R1; i <= TT_R5; i++)
		if (state->reg[i].kind != TT_UNSET && state->reg[i].window == TUTTI_VM_STACK)
			tt_vm_forget_slots(state);
	state->reg[TT_R0] = *ret;
	for (unsigned i = TT_R1; i <= TT_R5; i++)
		state->reg[i] = tt_vm_unset(TT_LOST_IN_CALL);
}

int tt_vm_check_set(struct tt_vm_verifier *v, const struct tt_vm_state *state, uint32_t insn,
		    unsigned reg)
{
	if (state->reg[reg].kind != TT_UNSET)
		return 0;
	switch (state->reg[reg].window) {
	case TT_LOST_IN_CALL:
		return tt_vm_refuse(v, insn, (int32_t)reg,
				    "r%u is read after a call, which leaves r1 to r5 unset (keep "
				    "it in r6 to r9, or set it again)",
				    reg);
	case TT_NOT_RETURNED:
		return tt_vm_refuse(v, insn, (int32_t)reg,
				    "r%u is read after a call of what returns nothing (set it, or "
				    "return a value)",
				    reg);
	default:
		return tt_vm_refuse(v, insn, (int32_t)reg,
				    "r%u is read before it is written (set it on every path that "
				    "leads here)",
				    reg);
	}
}

/* --- helpers ----------------------------------------------------------------------- */

static int helper_by_id(const struct tutti_vm_env *env, int32_t id)
{
	for (uint32_t i = 0; i < env->n_helpers; i++)
		if (env->helpers[i].id == (uint32_t)id)
			return (int)i;
	return -1;
}

void tt_vm_helper_call(const struct tt_vm_verifier *v, struct tt_vm_state *state,
		       const struct tutti_vm_insn *insn)
{
	int i = helper_by_id(v->env, insn->imm);
	struct tt_vm_reg ret = tt_vm_any(0);

	if (i >= 0 && v->env->helpers[i].ret == TUTTI_VM_RET_NONE)
		ret = tt_vm_unset(TT_NOT_RETURNED);
	else if (i >= 0 && v->env->helpers[i].ret == TUTTI_VM_RET_VALUE)
		ret = tt_vm_any(TUTTI_VM_MAPS);
	tt_vm_after_call(state, &ret);
}

/* A helper call whose arguments are looked at. */
struct helper_call {
	const struct tutti_vm_helper *helper;
	uint32_t insn;
	const struct tutti_vm_map *map; /* of the MAP argument so far */
};

static int check_bytes(struct tt_vm_verifier *v, const struct helper_call *call,
		       const struct tt_vm_state *state, unsigned reg)
{
	const struct tt_vm_reg *r = &state->reg[reg];

	if (r->kind != TT_NUMBER)
		return tt_vm_refuse(v, call->insn, (int32_t)reg,
				    "%.40s wants a size in r%u, which is an address here (give a "
				    "number of bytes)",
				    call->helper->name, reg);
	if (r->min > TUTTI_VM_WINDOW_BYTES)
		return tt_vm_refuse(v, call->insn, (int32_t)reg,
				    "%.40s gets %" PRIu64
				    " bytes or more in r%u, more than any memory here has (give "
				    "fewer)",
				    call->helper->name, r->min, reg);
	return 0;
}

static int check_memory(struct tt_vm_verifier *v, const struct tt_vm_vfunc *func,
			const struct helper_call *call, const struct tt_vm_state *state,
			unsigned reg)
{
	const struct tt_vm_reg *r = &state->reg[reg];
	uint8_t kind = call->helper->arg[reg - TT_R1];
	uint64_t bytes = 1;
	int err;

	if (kind == TUTTI_VM_ARG_KEY || kind == TUTTI_VM_ARG_VALUE) {
		if (call->map)
			bytes = kind == TUTTI_VM_ARG_KEY ? call->map->key_bytes
							 : call->map->value_bytes;
	} else if (reg < TT_R5 && call->helper->arg[reg] == TUTTI_VM_ARG_BYTES) {
		err = tt_vm_check_set(v, state, call->insn, reg + 1);
		if (!err)
			err = check_bytes(v, call, state, reg + 1);
		if (err < 0)
			return err;
		/* No memory at all: then any number does, and NULL is usual. */
		if (state->reg[reg + 1].max == 0 && r->kind != TT_MAPREF)
			return 0;
		bytes = state->reg[reg + 1].min;
	}
	return tt_vm_check_memory(v, func, r, call->insn, reg, bytes, kind == TUTTI_VM_ARG_WRITE);
}

/* The hook's first argument, as far as it can be told; the rest shows when it runs. */
static int check_ctx(struct tt_vm_verifier *v, const struct tt_vm_vfunc *func,
		     const struct helper_call *call, const struct tt_vm_reg *r, unsigned reg)
{
	if (!func->ctx_window && r->kind == TT_NUMBER)
		return 0;
	if (r->kind == TT_NUMBER && r->window == func->ctx_window &&
	    (r->min != r->max ||
	     r->min == tutti_vm_address((enum tutti_vm_window)func->ctx_window)))
		return 0;
	return tt_vm_refuse(v, call->insn, (int32_t)reg,
			    "%.40s wants the hook's first argument in r%u (pass it on unchanged)",
			    call->helper->name, reg);
}

static int check_argument(struct tt_vm_verifier *v, const struct tt_vm_vfunc *func,
			  struct helper_call *call, const struct tt_vm_state *state, unsigned reg)
{
	const struct tt_vm_reg *r = &state->reg[reg];
	uint8_t kind = call->helper->arg[reg - TT_R1];
	int err;

	if (kind == TUTTI_VM_ARG_NONE)
		return 0;
	err = tt_vm_check_set(v, state, call->insn, reg);
	if (err < 0)
		return err;
	switch (kind) {
	case TUTTI_VM_ARG_MAP:
		if (r->kind != TT_MAPREF)
			return tt_vm_refuse(v, call->insn, (int32_t)reg,
					    "%.40s wants a map in r%u (give it the address of one "
					    "of the object's maps, the same on every path)",
					    call->helper->name, reg);
		call->map = &v->object->maps[r->min];
		return 0;
	case TUTTI_VM_ARG_BYTES: return check_bytes(v, call, state, reg);
	case TUTTI_VM_ARG_CTX: return check_ctx(v, func, call, r, reg);
	case TUTTI_VM_ARG_READ:
	case TUTTI_VM_ARG_WRITE:
	case TUTTI_VM_ARG_KEY:
	case TUTTI_VM_ARG_VALUE: return check_memory(v, func, call, state, reg);
	default: return 0;
	}
}

int tt_vm_check_helper_call(struct tt_vm_verifier *v, const struct tt_vm_vfunc *func,
			    const struct tt_vm_state *state, uint32_t insn)
{
	int32_t id = v->object->insns[insn].imm;
	int i = helper_by_id(v->env, id);
	struct helper_call call = {.insn = insn};

	if (i < 0)
		return tt_vm_fail(v->error, -ENOENT, v->object, (int32_t)insn, -1,
				  "helper %d is not there (it may have a newer or another machine)",
				  id);
	call.helper = &v->env->helpers[i];
	if (!(func->helpers >> i & 1)) {
		if (func->hook >= 0)
			return tt_vm_refuse(
				v, insn, -1,
				"%.40s may not be called in section \"%.40s\" (move the "
				"call to another handler)",
				call.helper->name, v->object->funcs[func - v->funcs].section);
		return tt_vm_refuse(v, insn, -1,
				    "%.40s may not be called by every handler that calls %.40s "
				    "(move the call to the handlers that may)",
				    call.helper->name, v->object->funcs[func - v->funcs].name);
	}
	for (unsigned reg = TT_R1; reg <= TT_R5; reg++) {
		int err = check_argument(v, func, &call, state, reg);

		if (err < 0)
			return err;
	}
	return 0;
}
