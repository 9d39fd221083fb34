/* SPDX-License-Identifier: MIT */
/* Code for x86-64: jumps, calls, the ways in and out, labels. */
#include "vm/x86_int.h"

#include <stdlib.h>
#include <string.h>

const uint8_t tt_x86_reg[16] = {RAX, RDI, RSI, RDX, R8, R10, RBX, R13, R14, R15, RBP};

static void *grow(struct tt_emit *e, void *list, uint32_t *room, size_t each)
{
	uint32_t more = *room ? *room * 2 : 64;
	void *bigger = realloc(list, more * each);

	if (!bigger) {
		e->failed = true;
		return NULL;
	}
	*room = more;
	return bigger;
}

/* So that none of the longest sequences runs over; code stays below 4 GiB by far. */
static bool room_for_op(struct tt_emit *e)
{
	while (!e->failed && e->room - e->size < 512) {
		uint32_t more = e->room * 2;
		uint8_t *bigger = realloc(e->bytes, more);

		if (!bigger) {
			e->failed = true;
			break;
		}
		e->bytes = bigger;
		e->room = more;
	}
	return !e->failed;
}

/* --- jumps --------------------------------------------------------------------------- */

static void jump_opcode(struct tt_emit *e, enum cc cc)
{
	if (cc == CC_ALWAYS)
		put8(e, 0xe9);
	else
		put_opcode(e, 0x0f80 | (unsigned)cc);
}

void tt_x86_wait_for(struct tt_emit *e, uint32_t to, bool shared)
{
	if (e->n_fixups == e->fixup_room) {
		struct fixup *list = grow(e, e->fixups, &e->fixup_room, sizeof *list);

		if (!list)
			return;
		e->fixups = list;
	}
	e->fixups[e->n_fixups++] = (struct fixup){.at = e->size, .to = to, .shared = shared};
	put32(e, 0);
}

static void jump_to_op(struct tt_emit *e, enum cc cc, uint32_t index)
{
	jump_opcode(e, cc);
	tt_x86_wait_for(e, index, false);
}

static void jump_to_shared(struct tt_emit *e, enum cc cc, enum shared shared)
{
	jump_opcode(e, cc);
	tt_x86_wait_for(e, shared, true);
}

void tt_x86_side_exit(struct tt_emit *e, enum cc cc, uint32_t pc, uint32_t refund)
{
	if (e->n_sides == e->side_room) {
		struct side *list = grow(e, e->sides, &e->side_room, sizeof *list);

		if (!list)
			return;
		e->sides = list;
	}
	jump_opcode(e, cc);
	e->sides[e->n_sides++] = (struct side){.at = e->size, .pc = pc, .refund = refund};
	put32(e, 0);
}

uint32_t tt_x86_skip(struct tt_emit *e, enum cc cc)
{
	put8(e, cc == CC_ALWAYS ? 0xeb : 0x70 | (unsigned)cc);
	put8(e, 0);
	return e->size - 1;
}

void tt_x86_land(struct tt_emit *e, uint32_t at)
{
	if (!e->failed)
		e->bytes[at] = (uint8_t)(e->size - at - 1);
}

/* --- values ----------------------------------------------------------------------------- */

unsigned tt_x86_value(struct tt_emit *e, unsigned reg, unsigned to)
{
	if (reg != TT_FP)
		return tt_x86_reg[reg];
	mov(e, W64, to, RBP);
	rm(e, W64, 0x03, to, CONTEXT, FIELD(stack_delta));
	return to;
}

/* --- control ------------------------------------------------------------------------------ */

static void charge(struct tt_emit *e, uint32_t cost, uint32_t pc)
{
	alu_imm(e, W64, 5, BUDGET, (int32_t)cost);
	tt_x86_side_exit(e, CC_B, pc, cost);
}

static enum cc condition(uint8_t op)
{
	switch (TT_OP(op)) {
	case TT_JEQ: return CC_E;
	case TT_JGT: return CC_A;
	case TT_JGE: return CC_AE;
	case TT_JSET:
	case TT_JNE: return CC_NE;
	case TT_JSGT: return CC_G;
	case TT_JSGE: return CC_GE;
	case TT_JLT: return CC_B;
	case TT_JLE: return CC_BE;
	case TT_JSLT: return CC_L;
	case TT_JSLE: return CC_LE;
	default: return CC_ALWAYS;
	}
}

static void compare(struct tt_emit *e, const struct tt_vm_op *op)
{
	enum width width = TT_CLASS(op->op) == TT_JMP ? W64 : W32;
	unsigned dst = tt_x86_value(e, op->dst, RCX);
	bool set = TT_OP(op->op) == TT_JSET;

	if (TT_SRC(op->op)) {
		rr(e, width, set ? 0x85 : 0x39, tt_x86_value(e, op->src, R11), dst);
		if (op->src == TT_FP)
			tt_x86_pins(e, true);
	} else if (set) {
		rr(e, width, 0xf7, 0, dst);
		put32(e, (uint32_t)op->imm);
	} else if (!op->imm && (TT_OP(op->op) == TT_JEQ || TT_OP(op->op) == TT_JNE)) {
		rr(e, width, 0x85, dst, dst);
	} else {
		alu_imm(e, width, 7, dst, (int32_t)op->imm);
	}
}

void tt_emit_jump(struct tt_emit *e, const struct tt_vm_op *op, uint32_t pc)
{
	enum cc cc = condition(op->op);
	uint32_t target = (uint32_t)op->off, over = 0;

	if (cc != CC_ALWAYS)
		compare(e, op);
	if (target > pc) {
		jump_to_op(e, cc, target);
		return;
	}
	if (cc != CC_ALWAYS)
		over = tt_x86_skip(e, cc ^ 1);
	alu_imm(e, W64, 5, BUDGET, (int32_t)(pc - target + 1));
	jump_to_op(e, CC_AE, target);
	tt_x86_side_exit(e, CC_ALWAYS, pc, pc - target + 1);
	if (cc != CC_ALWAYS)
		tt_x86_land(e, over);
}

void tt_emit_call_local(struct tt_emit *e, const struct tt_vm_op *op, uint32_t pc)
{
	charge(e, (uint32_t)op->imm, pc);
	/* Is there a frame below this one? The verifier has seen to it; asked again. */
	rm(e, W64, 0x8d, RCX, RBP, -2 * TUTTI_VM_FRAME_BYTES);
	rm(e, W64, 0x3b, RCX, CONTEXT, win_field(TUTTI_VM_STACK, offsetof(struct tt_vm_win, base)));
	tt_x86_side_exit(e, CC_B, pc, (uint32_t)op->imm);
	put8(e, 0x68);
	put32(e, pc + 1);
	for (unsigned i = TT_R6; i <= TT_R9; i++)
		push(e, tt_x86_reg[i]);
	alu_imm(e, W64, 5, RBP, TUTTI_VM_FRAME_BYTES);
	put8(e, 0xe8);
	tt_x86_wait_for(e, (uint32_t)op->off, false);
	alu_imm(e, W64, 0, RBP, TUTTI_VM_FRAME_BYTES);
	for (unsigned i = TT_R9; i >= TT_R6; i--)
		pop(e, tt_x86_reg[i]);
	rm(e, W64, 0x8d, RSP, RSP, 8);
	tt_x86_pins(e, false);
}

void tt_emit_call_helper(struct tt_emit *e, uint32_t helper, uint32_t cost, uint32_t pc)
{
	charge(e, cost, pc);
	for (unsigned i = TT_R1; i <= TT_R5; i++)
		rm(e, W64, 0x89, tt_x86_reg[i], CONTEXT, FIELD(regs) + (int32_t)i * 8);
	rm(e, W64, 0x89, BUDGET, CONTEXT, FIELD(budget));
	rm(e, W32, 0xc7, 0, CONTEXT, FIELD(pc));
	put32(e, pc);
	mov(e, W64, RDI, CONTEXT);
	mov_imm(e, RSI, helper);
	rm(e, W32, 0xff, 2, CONTEXT, FIELD(call_helper));
	rr(e, W32, 0x85, RAX, RAX);
	jump_to_shared(e, CC_NE, FAULT_EXIT);
	rm(e, W64, 0x8b, RAX, CONTEXT, FIELD(regs));
	rm(e, W64, 0x8b, BUDGET, CONTEXT, FIELD(budget));
	/* What the helper's caller left there is not the program's. */
	for (unsigned i = TT_R1; i <= TT_R5; i++)
		mov_imm(e, tt_x86_reg[i], 0);
	tt_x86_pins(e, false);
}

void tt_emit_exit(struct tt_emit *e)
{
	put8(e, 0xc3);
}

/* --- the ways in and out --------------------------------------------------------------------- */

static const uint8_t saved[] = {RBP, RBX, R12, R13, R14, R15};

void tt_emit_frame(struct tt_emit *e)
{
	uint32_t out;

	room_for_op(e);
	/* uint32_t enter(rdi: context, rsi: code) */
	e->enter = e->size;
	for (size_t i = 0; i < sizeof saved; i++)
		push(e, saved[i]);
	mov(e, W64, CONTEXT, RDI);
	mov(e, W64, RCX, RSI);
	rm(e, W64, 0x8d, RAX, RSP, -8);
	rm(e, W64, 0x89, RAX, CONTEXT, FIELD(host_sp));
	rm(e, W64, 0x8b, RBP, CONTEXT, FIELD(frame));
	rm(e, W64, 0x8b, BUDGET, CONTEXT, FIELD(budget));
	for (unsigned i = TT_R1; i <= TT_R5; i++)
		rm(e, W64, 0x8b, tt_x86_reg[i], CONTEXT, FIELD(regs) + (int32_t)i * 8);
	mov_imm(e, tt_x86_reg[TT_R0], 0);
	for (unsigned i = TT_R6; i <= TT_R9; i++)
		mov_imm(e, tt_x86_reg[i], 0);
	rr(e, W32, 0xff, 2, RCX);
	rm(e, W64, 0x89, RAX, CONTEXT, FIELD(regs));
	rm(e, W64, 0x89, BUDGET, CONTEXT, FIELD(budget));
	mov_imm(e, RAX, TT_LEFT_EXIT);
	out = e->size;
	for (size_t i = sizeof saved; i-- > 0;)
		pop(e, saved[i]);
	put8(e, 0xc3);

	e->shared[SIDE_EXIT] = e->size;
	for (unsigned i = TT_R0; i <= TT_R9; i++)
		rm(e, W64, 0x89, tt_x86_reg[i], CONTEXT, FIELD(regs) + (int32_t)i * 8);
	rm(e, W64, 0x89, BUDGET, CONTEXT, FIELD(budget));
	mov(e, W64, RDI, CONTEXT);
	mov(e, W64, RSI, RSP);
	rm(e, W32, 0xff, 2, CONTEXT, FIELD(unwind));
	mov_imm(e, RAX, TT_LEFT_SIDE);
	put8(e, 0xeb);
	put8(e, 5);
	e->shared[FAULT_EXIT] = e->size;
	put8(e, 0xb8); /* mov eax, five bytes */
	put32(e, TT_LEFT_FAULT);
	rm(e, W64, 0x8b, RSP, CONTEXT, FIELD(host_sp));
	rm(e, W64, 0x8d, RSP, RSP, 8);
	put8(e, 0xe9);
	put32(e, out - (e->size + 4));

	tt_x86_resolvers(e);
}

/* --- making ------------------------------------------------------------------------------------ */

int tt_emit_create(uint32_t n_ops, struct tt_emit **ret)
{
#if defined(__x86_64__)
	struct tt_emit *e = calloc(1, sizeof *e);

	if (!e)
		return -ENOMEM;
	e->room = 4096;
	e->bytes = malloc(e->room);
	e->native = calloc(n_ops, sizeof *e->native);
	if (!e->bytes || !e->native) {
		tt_emit_destroy(e);
		return -ENOMEM;
	}
	*ret = e;
	return 0;
#else
	return -ENOTSUP;
#endif
}

void tt_emit_destroy(struct tt_emit *e)
{
	if (!e)
		return;
	free(e->bytes);
	free(e->native);
	free(e->fixups);
	free(e->sides);
	free(e);
}

void tt_emit_label(struct tt_emit *e, uint32_t index)
{
	room_for_op(e);
	e->native[index] = e->size;
}

static void patch(struct tt_emit *e, uint32_t at, uint32_t to)
{
	uint32_t distance = to - (at + 4);

	memcpy(e->bytes + at, &distance, sizeof distance);
}

int tt_emit_finish(struct tt_emit *e, struct tt_vm_code *ret)
{
	for (uint32_t i = 0; i < e->n_sides && room_for_op(e); i++) {
		patch(e, e->sides[i].at, e->size);
		if (e->sides[i].refund)
			alu_imm(e, W64, 0, BUDGET, (int32_t)e->sides[i].refund);
		rm(e, W32, 0xc7, 0, CONTEXT, FIELD(pc));
		put32(e, e->sides[i].pc);
		jump_to_shared(e, CC_ALWAYS, SIDE_EXIT);
	}
	if (e->failed)
		return -ENOMEM;
	for (uint32_t i = 0; i < e->n_fixups; i++)
		patch(e, e->fixups[i].at,
		      e->fixups[i].shared ? e->shared[e->fixups[i].to]
					  : e->native[e->fixups[i].to]);
	*ret = (struct tt_vm_code){
		.bytes = e->bytes, .size = e->size, .enter = e->enter, .native = e->native};
	e->bytes = NULL;
	e->native = NULL;
	return 0;
}
