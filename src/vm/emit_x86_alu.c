/* SPDX-License-Identifier: MIT */
/* Code for x86-64: arithmetic. */
#include "vm/x86_int.h"

static void shift(struct tt_emit *e, enum width width, unsigned extension, unsigned dst, bool reg,
		  unsigned src, int64_t imm)
{
	if (reg) {
		mov(e, W32, RCX, src);
		rr(e, width, 0xd3, extension, dst);
		return;
	}
	imm &= width == W64 ? 63 : 31;
	if (!imm) {
		if (width == W32)
			mov(e, W32, dst, dst);
		return;
	}
	rr(e, width, 0xc1, extension, dst);
	put8(e, (unsigned)imm);
}

/* A quotient or a remainder into dst; the divisor is in rcx and not zero. */
static void divide(struct tt_emit *e, enum width width, bool is_signed, bool remainder,
		   unsigned dst)
{
	if (dst != RAX) {
		push(e, RAX);
		mov(e, width, RAX, dst);
	}
	if (dst != RDX)
		push(e, RDX);
	if (is_signed) {
		if (width == W64)
			put8(e, 0x48);
		put8(e, 0x99); /* cqo, cdq */
	} else {
		rr(e, W32, 0x31, RDX, RDX);
	}
	rr(e, width, 0xf7, is_signed ? 7 : 6, RCX);
	mov(e, width, RCX, remainder ? RDX : RAX);
	if (dst != RDX)
		pop(e, RDX);
	if (dst != RAX)
		pop(e, RAX);
	mov(e, width, dst, RCX);
}

static void divide_by_number(struct tt_emit *e, enum width width, bool is_signed, bool remainder,
			     unsigned dst, int64_t imm)
{
	uint64_t by = width == W64 ? (uint64_t)imm : (uint32_t)imm;
	bool minus_one = width == W64 ? imm == -1 : (int32_t)imm == -1;

	if (!by && remainder) { /* the dividend */
		if (width == W32)
			mov(e, W32, dst, dst);
		return;
	}
	if (!by || (is_signed && minus_one && remainder)) {
		mov_imm(e, dst, 0);
		return;
	}
	if (is_signed && minus_one) { /* the smallest number stays what it is */
		rr(e, width, 0xf7, 3, dst);
		return;
	}
	if (!is_signed && !(by & (by - 1))) {
		unsigned log2 = (unsigned)__builtin_ctzll(by);

		/* imm has 32 bits: by is 2^31 at most. */
		if (remainder)
			alu_imm(e, W32, 4, dst, (int32_t)(by - 1));
		else
			shift(e, width, 5, dst, false, 0, log2);
		return;
	}
	mov_imm(e, RCX, width == W64 ? imm : (uint32_t)imm);
	divide(e, width, is_signed, remainder, dst);
}

static void divide_by_register(struct tt_emit *e, enum width width, bool is_signed, bool remainder,
			       unsigned dst, unsigned src)
{
	uint32_t zero, done, minus_one = 0, done_too = 0;

	mov(e, width, RCX, src);
	rr(e, width, 0x85, RCX, RCX);
	zero = tt_x86_skip(e, CC_E);
	if (is_signed) {
		alu_imm(e, width, 7, RCX, -1);
		minus_one = tt_x86_skip(e, CC_E);
	}
	divide(e, width, is_signed, remainder, dst);
	done = tt_x86_skip(e, CC_ALWAYS);
	if (is_signed) {
		tt_x86_land(e, minus_one);
		if (remainder)
			mov_imm(e, dst, 0);
		else
			rr(e, width, 0xf7, 3, dst);
		done_too = tt_x86_skip(e, CC_ALWAYS);
	}
	tt_x86_land(e, zero);
	if (!remainder)
		mov_imm(e, dst, 0);
	else if (width == W32)
		mov(e, W32, dst, dst);
	if (is_signed)
		tt_x86_land(e, done_too);
	tt_x86_land(e, done);
}

static void swap(struct tt_emit *e, unsigned dst, int64_t bits)
{
	if (bits == 16) {
		rr(e, W16, 0xc1, 0, dst); /* rol */
		put8(e, 8);
		rr(e, W32, 0x0fb7, dst, dst);
		return;
	}
	put_prefix(e, bits == 64 ? W64 : W32, 0, NO_REG, dst, false);
	put8(e, 0x0f);
	put8(e, 0xc8 | (dst & 7));
}

static void lower(struct tt_emit *e, unsigned dst, int64_t bits)
{
	if (bits == 16)
		rr(e, W32, 0x0fb7, dst, dst);
	else if (bits == 32)
		mov(e, W32, dst, dst);
}

/* The ops whose two forms are one instruction each. False: op is none of them. */
static bool simple_alu(struct tt_emit *e, enum width width, unsigned op, unsigned dst, bool reg,
		       unsigned src, int64_t imm)
{
	static const struct {
		uint8_t op, opcode, extension;
	} table[] = {{TT_ADD, 0x01, 0},
		     {TT_OR, 0x09, 1},
		     {TT_AND, 0x21, 4},
		     {TT_SUB, 0x29, 5},
		     {TT_XOR, 0x31, 6}};

	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		if (table[i].op != op)
			continue;
		if (reg)
			rr(e, width, table[i].opcode, src, dst);
		else
			alu_imm(e, width, table[i].extension, dst, (int32_t)imm);
		return true;
	}
	return false;
}

static void alu(struct tt_emit *e, enum width width, const struct tt_vm_op *op)
{
	bool reg = TT_SRC(op->op);
	unsigned dst = tt_x86_reg[op->dst];
	unsigned src = reg ? tt_x86_value(e, op->src, RCX) : 0;

	if (simple_alu(e, width, TT_OP(op->op), dst, reg, src, op->imm))
		return;
	switch (TT_OP(op->op)) {
	case TT_MOV:
		if (reg)
			mov(e, width, dst, src);
		else
			mov_imm(e, dst, width == W64 ? op->imm : (uint32_t)op->imm);
		break;
	case TT_MUL:
		if (reg) {
			rr(e, width, 0x0faf, dst, src);
		} else {
			rr(e, width, 0x69, dst, dst);
			put32(e, (uint32_t)op->imm);
		}
		break;
	case TT_LSH: shift(e, width, 4, dst, reg, src, op->imm); break;
	case TT_RSH: shift(e, width, 5, dst, reg, src, op->imm); break;
	case TT_ARSH: shift(e, width, 7, dst, reg, src, op->imm); break;
	case TT_NEG: rr(e, width, 0xf7, 3, dst); break;
	default: /* TT_DIV, TT_MOD */
		if (reg)
			divide_by_register(e, width, false, TT_OP(op->op) == TT_MOD, dst, src);
		else
			divide_by_number(e, width, false, TT_OP(op->op) == TT_MOD, dst, op->imm);
		break;
	}
}

/* Variants: no other ops are in class LD. */
static void variant(struct tt_emit *e, const struct tt_vm_op *op)
{
	unsigned dst = tt_x86_reg[op->dst];

	switch (op->op) {
	case TT_MOVSX8_32: rr(e, W8, 0x0fbe, dst, tt_x86_value(e, op->src, RCX)); break;
	case TT_MOVSX8_64: rr(e, W64, 0x0fbe, dst, tt_x86_value(e, op->src, RCX)); break;
	case TT_MOVSX16_32: rr(e, W32, 0x0fbf, dst, tt_x86_value(e, op->src, RCX)); break;
	case TT_MOVSX16_64: rr(e, W64, 0x0fbf, dst, tt_x86_value(e, op->src, RCX)); break;
	case TT_MOVSX32_64: rr(e, W64, 0x63, dst, tt_x86_value(e, op->src, RCX)); break;
	case TT_SDIV32_K:
	case TT_SMOD32_K:
		divide_by_number(e, W32, true, op->op == TT_SMOD32_K, dst, op->imm);
		break;
	case TT_SDIV64_K:
	case TT_SMOD64_K:
		divide_by_number(e, W64, true, op->op == TT_SMOD64_K, dst, op->imm);
		break;
	case TT_SDIV32_X:
	case TT_SMOD32_X:
		divide_by_register(e, W32, true, op->op == TT_SMOD32_X, dst,
				   tt_x86_value(e, op->src, RCX));
		break;
	case TT_SDIV64_X:
	case TT_SMOD64_X:
		divide_by_register(e, W64, true, op->op == TT_SMOD64_X, dst,
				   tt_x86_value(e, op->src, RCX));
		break;
	default: /* TT_LDDW */ mov_imm(e, dst, op->imm); break;
	}
}

void tt_emit_alu(struct tt_emit *e, const struct tt_vm_op *op)
{
	switch (op->op) {
	case TT_ALU | TT_END | TT_K: lower(e, tt_x86_reg[op->dst], op->imm); break;
	case TT_ALU | TT_END | TT_X:
	case TT_ALU64 | TT_END: swap(e, tt_x86_reg[op->dst], op->imm); break;
	default:
		if (TT_CLASS(op->op) == TT_LD)
			variant(e, op);
		else
			alu(e, TT_CLASS(op->op) == TT_ALU64 ? W64 : W32, op);
		break;
	}
}

void tt_emit_rotate(struct tt_emit *e, unsigned dst, bool wide, unsigned left)
{
	rr(e, wide ? W64 : W32, 0xc1, 0, tt_x86_reg[dst]);
	put8(e, left);
}
