/* SPDX-License-Identifier: MIT */
/*
 * The verifier's frame: control flow, the fixed point, the last pass.
 * verify_int.h has the plan, and why notes may be relied on.
 *
 * Functions are analysed together. A call joins its registers into the callee's
 * first state; exits join r0 into what the callee returns; and a change of that
 * visits the callers again. States are kept at the starts of basic blocks only.
 */
#include "vm/verify_int.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
	/* Changes of a block's state after which bounds are given up: of a loop's head, */
	HEAD_EXACT = 3,
	/* and of others, which follow their heads; */
	BLOCK_EXACT = 16,
	/* after these, at once. */
	BLOCK_THRESHOLDS = 40,
	/*
	 * Visits of an instruction on average. A handful do for what compilers make;
	 * the rules above make at most some sixty of them, only of what is made for it.
	 */
	MAX_VISITS = 32,
};

/* --- control flow ------------------------------------------------------------------ */

static bool is_jump(const struct tutti_vm_insn *insn)
{
	uint8_t class = TT_CLASS(insn->code), op = TT_OP(insn->code);

	return (class == TT_JMP || class == TT_JMP32) && op != TT_CALL && op != TT_EXIT;
}

static bool is_goto(const struct tutti_vm_insn *insn)
{
	return is_jump(insn) && TT_OP(insn->code) == TT_JA;
}

static bool is_exit(const struct tutti_vm_insn *insn)
{
	return insn->code == (TT_JMP | TT_EXIT);
}

static bool is_call(const struct tutti_vm_insn *insn, uint8_t how)
{
	return insn->code == (TT_JMP | TT_CALL) && tt_vm_src(insn) == how;
}

static int64_t target_of(const struct tt_vm_verifier *v, uint32_t i)
{
	const struct tutti_vm_insn *insn = &v->object->insns[i];
	bool far = insn->code == (TT_JMP32 | TT_JA);

	return (int64_t)i + 1 + (far ? insn->imm : insn->off);
}

/* Looks at every instruction alone, and marks second halves. */
static int check_insns(struct tt_vm_verifier *v)
{
	unsigned slots;

	for (uint32_t f = 0; f < v->object->n_funcs; f++) {
		const struct tt_vm_func *func = &v->object->funcs[f];

		for (uint32_t i = func->start; i < func->end; i += slots) {
			const struct tutti_vm_insn *insn = &v->object->insns[i];
			int err = tt_vm_check_insn(v->object, i, &slots, v->error);

			if (err < 0)
				return err;
			if (is_call(insn, TT_CALL_EXTERN))
				return tt_vm_fail(v->error, -ENOENT, v->object, (int32_t)i, -1,
						  "%.60s is not linked (it is no function of the "
						  "object, and no helper)",
						  v->object->externs[insn->imm]);
			v->func_of[i] = f;
			if (slots == 1)
				continue;
			if (i + 1 == func->end)
				return tt_vm_refuse(v, i, -1,
						    "the second half of this wide instruction is "
						    "outside %.40s (two slots)",
						    func->name);
			v->mark[i + 1] |= TT_MARK_SECOND;
		}
	}
	return 0;
}

/* Jumps lead to instructions of the same function, and its end is never passed. */
static int check_jumps(struct tt_vm_verifier *v)
{
	for (uint32_t f = 0; f < v->object->n_funcs; f++) {
		const struct tt_vm_func *func = &v->object->funcs[f];
		uint32_t last = func->start;

		v->mark[func->start] |= TT_MARK_START;
		for (uint32_t i = func->start; i < func->end; i++) {
			const struct tutti_vm_insn *insn = &v->object->insns[i];
			int64_t target;

			if (v->mark[i] & TT_MARK_SECOND)
				continue;
			last = i;
			if (!is_jump(insn))
				continue;
			target = target_of(v, i);
			if (target < func->start || target >= func->end)
				return tt_vm_refuse(v, i, -1,
						    "the jump leads to instruction %" PRId64
						    ", outside %.40s (%u to %u)",
						    target, func->name, func->start, func->end - 1);
			if (v->mark[target] & TT_MARK_SECOND)
				return tt_vm_refuse(v, i, -1,
						    "the jump leads into the middle of the wide "
						    "instruction %" PRId64 " (jump to its start)",
						    target - 1);
			v->mark[target] |= TT_MARK_START | (target <= i ? TT_MARK_HEAD : 0);
			if (!is_goto(insn))
				v->mark[i + 1] |= TT_MARK_START;
		}
		if (!is_exit(&v->object->insns[last]) && !is_goto(&v->object->insns[last]))
			return tt_vm_refuse(v, last, -1,
					    "%.40s can run past its end (end it with an exit or a "
					    "jump)",
					    func->name);
	}
	return 0;
}

static int out_of_memory(struct tt_vm_verifier *v)
{
	return tt_vm_fail(v->error, -ENOMEM, NULL, -1, -1, "out of memory");
}

/* After a local call a block starts, so that a change of what it returns costs little. */
static int make_blocks(struct tt_vm_verifier *v)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < v->n_calls; i++) {
		uint32_t next = v->calls[i].insn + 1;

		/* The last of a function is no call: next is one of its instructions. */
		v->mark[next] |= TT_MARK_START;
	}
	for (uint32_t i = 0; i < v->object->n_insns; i++)
		n += (v->mark[i] & TT_MARK_START) != 0;
	v->blocks = calloc(n, sizeof *v->blocks);
	v->states = malloc(n * sizeof *v->states);
	v->pending = calloc(n / 64 + 1, sizeof *v->pending);
	if (!v->blocks || !v->states || !v->pending)
		return out_of_memory(v);
	for (uint32_t i = 0; i < v->object->n_insns; i++) {
		if (!(v->mark[i] & TT_MARK_START))
			continue;
		v->blocks[v->n_blocks] = (struct tt_vm_block){
			.insn = i, .func = v->func_of[i], .head = v->mark[i] & TT_MARK_HEAD};
		v->block_of[i] = ++v->n_blocks;
	}
	return 0;
}

/* --- fixed point ------------------------------------------------------------------- */

static void set_pending(struct tt_vm_verifier *v, uint32_t block)
{
	v->pending[block / 64] |= 1ULL << block % 64;
}

static enum tt_vm_widen widening(uint8_t changes, bool head)
{
	if (changes < (head ? HEAD_EXACT : BLOCK_EXACT))
		return TT_EXACT;
	return changes < BLOCK_THRESHOLDS ? TT_TO_THRESHOLD : TT_TO_TOP;
}

static void count_change(uint8_t *changes)
{
	if (*changes < UINT8_MAX)
		++*changes;
}

/* A way leads to this instruction, the start of a block, in this state. */
static void flow_to(struct tt_vm_verifier *v, uint32_t insn, const struct tt_vm_state *state)
{
	uint32_t i = v->block_of[insn] - 1;
	struct tt_vm_block *block = &v->blocks[i];

	if (!block->seen) {
		block->seen = true;
		v->states[i] = *state;
	} else if (!tt_vm_join(v, &v->states[i], state, widening(block->changes, block->head))) {
		return;
	}
	count_change(&block->changes);
	set_pending(v, i);
}

/* The block whose visit passes this instruction on. */
static uint32_t block_before(const struct tt_vm_verifier *v, uint32_t insn)
{
	while (!v->block_of[insn])
		insn--;
	return v->block_of[insn] - 1;
}

static void flow_to_exit(struct tt_vm_verifier *v, uint32_t f, const struct tt_vm_state *state)
{
	struct tt_vm_vfunc *func = &v->funcs[f];
	struct tt_vm_reg r0 = tt_vm_outside(state->reg[TT_R0]);

	if (r0.kind == TT_UNSET)
		r0 = tt_vm_unset(TT_NOT_RETURNED);
	if (!func->returns) {
		func->returns = true;
		func->ret = r0;
	} else if (!tt_vm_join_reg(v, &func->ret, &r0, widening(func->ret_changes, true))) {
		return;
	}
	count_change(&func->ret_changes);
	for (uint32_t site = func->sites; site; site = v->calls[site - 1].next) {
		uint32_t block = block_before(v, v->calls[site - 1].insn);

		if (v->blocks[block].seen)
			set_pending(v, block);
	}
}

/* Effects of an instruction that always goes on to the next. */
static void step(const struct tt_vm_verifier *v, const struct tt_vm_vfunc *func,
		 struct tt_vm_state *state, uint32_t i)
{
	const struct tutti_vm_insn *insn = &v->object->insns[i];
	struct tt_vm_reg *dst = &state->reg[tt_vm_dst(insn)];

	switch (TT_CLASS(insn->code)) {
	case TT_ALU:
	case TT_ALU64: tt_vm_alu(state, insn); return;
	case TT_JMP: tt_vm_helper_call(v, state, insn); return;
	case TT_LD:
		if (tt_vm_src(insn) == TT_WIDE_MAP) {
			*dst = (struct tt_vm_reg){.kind = TT_MAPREF,
						  .min = (uint32_t)insn->imm,
						  .max = (uint32_t)insn->imm};
		} else {
			uint64_t number = tt_vm_wide(insn),
				 window = number >> TUTTI_VM_WINDOW_SHIFT;
			bool own = window == TUTTI_VM_DATA || window == TUTTI_VM_RODATA;

			*dst = tt_vm_range(number, number, own ? (uint8_t)window : 0);
		}
		return;
	default: tt_vm_access(v, func, state, insn);
	}
}

/* Instructions that end a block: the state goes to where they lead. False: i is none. */
static bool leave(struct tt_vm_verifier *v, const struct tt_vm_block *block,
		  struct tt_vm_state *state, uint32_t i)
{
	const struct tutti_vm_insn *insn = &v->object->insns[i];

	if (is_exit(insn)) {
		flow_to_exit(v, block->func, state);
		return true;
	}
	if (is_call(insn, TT_CALL_LOCAL)) {
		const struct tt_vm_vfunc *callee;
		struct tt_vm_state begin;
		int64_t f = tt_vm_callee(v->object, i);

		callee = &v->funcs[f];
		tt_vm_callee_state(state, &begin);
		flow_to(v, v->object->funcs[f].start, &begin);
		if (callee->returns) {
			tt_vm_after_call(state, &callee->ret);
			flow_to(v, i + 1, state);
		}
		return true;
	}
	if (!is_jump(insn))
		return false;
	if (is_goto(insn)) {
		flow_to(v, (uint32_t)target_of(v, i), state);
	} else {
		struct tt_vm_state taken = *state;

		tt_vm_refine(&taken, insn, true);
		flow_to(v, (uint32_t)target_of(v, i), &taken);
		tt_vm_refine(state, insn, false);
		flow_to(v, i + 1, state);
	}
	return true;
}

static uint32_t after(const struct tt_vm_verifier *v, uint32_t i)
{
	return i + (v->object->insns[i].code == TT_LDDW ? 2 : 1);
}

static void visit(struct tt_vm_verifier *v, uint32_t b)
{
	const struct tt_vm_block *block = &v->blocks[b];
	const struct tt_vm_vfunc *func = &v->funcs[block->func];
	struct tt_vm_state state = v->states[b];
	uint32_t i = block->insn;

	for (;;) {
		v->steps++;
		if (leave(v, block, &state, i))
			return;
		step(v, func, &state, i);
		i = after(v, i);
		if (v->block_of[i]) {
			flow_to(v, i, &state);
			return;
		}
	}
}

/* Visits blocks in the order of the code, round after round: few rounds do, even if loops nest. */
static int find_states(struct tt_vm_verifier *v)
{
	uint64_t most = (uint64_t)MAX_VISITS * v->object->n_insns;
	uint32_t words = v->n_blocks / 64 + 1;
	bool any;

	for (uint32_t f = 0; f < v->object->n_funcs; f++) {
		struct tt_vm_state state;

		if (v->funcs[f].hook < 0)
			continue;
		tt_vm_entry_state(v, &v->funcs[f], &state);
		flow_to(v, v->object->funcs[f].start, &state);
	}
	do {
		any = false;
		for (uint32_t w = 0; w < words; w++) {
			while (v->pending[w]) {
				unsigned bit = (unsigned)__builtin_ctzll(v->pending[w]);

				any = true;
				v->pending[w] &= ~(1ULL << bit);
				visit(v, w * 64 + bit);
				if (v->steps > most)
					return tt_vm_refuse(v, v->blocks[w * 64 + bit].insn, -1,
							    "the ways to this instruction are too "
							    "many to check (use fewer branches and "
							    "loops)");
			}
		}
	} while (any);
	return 0;
}

/* --- last pass --------------------------------------------------------------------- */

static int check_jump(struct tt_vm_verifier *v, const struct tt_vm_state *state, uint32_t i)
{
	const struct tutti_vm_insn *insn = &v->object->insns[i];
	int err = 0;

	v->notes[target_of(v, i)].target = 1;
	if (!is_goto(insn))
		err = tt_vm_check_set(v, state, i, tt_vm_dst(insn));
	if (!err && TT_SRC(insn->code) == TT_X)
		err = tt_vm_check_set(v, state, i, tt_vm_src(insn));
	return err;
}

static int check_alu(struct tt_vm_verifier *v, const struct tt_vm_state *state, uint32_t i)
{
	const struct tutti_vm_insn *insn = &v->object->insns[i];
	int err = 0;

	if (TT_OP(insn->code) != TT_MOV)
		err = tt_vm_check_set(v, state, i, tt_vm_dst(insn));
	if (!err && TT_SRC(insn->code) == TT_X && TT_OP(insn->code) != TT_END)
		err = tt_vm_check_set(v, state, i, tt_vm_src(insn));
	return err;
}

static int check_step(struct tt_vm_verifier *v, const struct tt_vm_vfunc *func,
		      const struct tt_vm_state *state, uint32_t i)
{
	const struct tutti_vm_insn *insn = &v->object->insns[i];

	switch (TT_CLASS(insn->code)) {
	case TT_ALU:
	case TT_ALU64: return check_alu(v, state, i);
	case TT_LD: return 0;
	case TT_JMP:
	case TT_JMP32: break;
	default: return tt_vm_check_access(v, func, state, i);
	}
	if (is_jump(insn))
		return check_jump(v, state, i);
	if (is_call(insn, TT_CALL_HELPER))
		return tt_vm_check_helper_call(v, func, state, i);
	/* Another function of the object may do without a result. */
	if (is_exit(insn) && func->hook >= 0 && state->reg[TT_R0].kind == TT_UNSET)
		return tt_vm_refuse(v, i, TT_R0,
				    "r0 is not set at the exit (set it on every path that leads "
				    "here: it is the result)");
	return 0;
}

static int check_block(struct tt_vm_verifier *v, uint32_t b)
{
	const struct tt_vm_block *block = &v->blocks[b];
	const struct tt_vm_vfunc *func = &v->funcs[block->func];
	struct tt_vm_state state = v->states[b];

	for (uint32_t i = block->insn;;) {
		const struct tutti_vm_insn *insn = &v->object->insns[i];
		int err = check_step(v, func, &state, i);

		if (err < 0)
			return err;
		v->notes[i].reached = 1;
		if (is_exit(insn) || is_jump(insn) || is_call(insn, TT_CALL_LOCAL))
			return 0;
		step(v, func, &state, i);
		i = after(v, i);
		if (v->block_of[i])
			return 0;
	}
}

/* --- all of it --------------------------------------------------------------------- */

static int check_env(struct tt_vm_verifier *v)
{
	const struct tutti_vm_env *env = v->env;

	if (env->n_helpers > TUTTI_VM_MAX_HELPERS)
		return tt_vm_fail(v->error, -EINVAL, NULL, -1, -1,
				  "the environment has %u helpers, more than %d", env->n_helpers,
				  TUTTI_VM_MAX_HELPERS);
	if (env->n_hooks > INT16_MAX) /* hook_of_func */
		return tt_vm_fail(v->error, -EINVAL, NULL, -1, -1,
				  "the environment has %u hooks, more than %d", env->n_hooks,
				  INT16_MAX);
	for (uint32_t i = 0; i < env->n_hooks; i++) {
		const struct tutti_vm_hook *hook = &env->hooks[i];

		if (hook->args > 5)
			return tt_vm_fail(v->error, -EINVAL, NULL, -1, -1,
					  "a hook of the environment has %u arguments, more than 5",
					  hook->args);
		for (unsigned a = 0; a < hook->args; a++)
			if (hook->arg[a].window >= TUTTI_VM_WINDOWS)
				return tt_vm_fail(v->error, -EINVAL, NULL, -1, -1,
						  "a hook of the environment has an argument in "
						  "window %u, of %d",
						  hook->arg[a].window, TUTTI_VM_WINDOWS);
		for (uint32_t f = 0; f < hook->n_fields; f++)
			if (hook->fields[f].window >= TUTTI_VM_WINDOWS)
				return tt_vm_fail(v->error, -EINVAL, NULL, -1, -1,
						  "a hook of the environment has a field in "
						  "window %u, of %d",
						  hook->fields[f].window, TUTTI_VM_WINDOWS);
	}
	return 0;
}

static int verify(struct tt_vm_verifier *v)
{
	int err = check_env(v);

	if (!err)
		err = check_insns(v);
	if (!err)
		err = check_jumps(v);
	if (!err)
		err = tt_vm_find_calls(v);
	if (!err)
		err = make_blocks(v);
	if (err < 0)
		return err;
	tt_vm_find_thresholds(v);
	err = find_states(v);
	for (uint32_t b = 0; b < v->n_blocks && !err; b++)
		if (v->blocks[b].seen)
			err = check_block(v, b);
	return err;
}

int tt_vm_verify(const struct tutti_vm_object *object, const struct tutti_vm_env *env,
		 struct tt_vm_verified *ret, struct tutti_vm_error *ret_error)
{
	uint32_t n = object->n_insns;
	struct tt_vm_verifier v = {.object = object, .env = env, .error = ret_error};
	int16_t *hooks = calloc(object->n_funcs + 1, sizeof *hooks);
	int err;

	v.notes = calloc(n + 1, sizeof *v.notes);
	v.mark = calloc(n + 1, sizeof *v.mark);
	v.func_of = calloc(n + 1, sizeof *v.func_of);
	v.block_of = calloc(n + 1, sizeof *v.block_of);
	v.funcs = calloc(object->n_funcs + 1, sizeof *v.funcs);
	if (!hooks || !v.notes || !v.mark || !v.func_of || !v.block_of || !v.funcs)
		err = out_of_memory(&v);
	else
		err = verify(&v);
	if (!err) {
		for (uint32_t f = 0; f < object->n_funcs; f++)
			hooks[f] = (int16_t)v.funcs[f].hook;
		*ret = (struct tt_vm_verified){.notes = v.notes, .hook_of_func = hooks};
	} else {
		free(v.notes);
		free(hooks);
	}
	free(v.mark);
	free(v.func_of);
	free(v.block_of);
	free(v.blocks);
	free(v.states);
	free(v.pending);
	free(v.funcs);
	free(v.calls);
	return err;
}
