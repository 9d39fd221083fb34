/* SPDX-License-Identifier: MIT */
/*
 * Code for x86-64.
 *
 * Registers of a program and where they live:
 *
 *	r0 rax   r1 rdi   r2 rsi   r3 rdx   r4 r8   r5 r10
 *	r6 rbx   r7 r13   r8 r14   r9 r15   r10 rbp
 *
 * rbp holds the process's address of the frame's end; where a program looks
 * at r10 itself, its own address is computed. r9 is the budget, r12 the
 * context; rcx is scratch within an op, r11 scratch or the group's pointer.
 *
 * Stack, growing down, 16-byte aligned in every function's body:
 *
 *	return address of the caller, its rbp, rbx, r12 - r15
 *	return address into the way out       <- host_sp
 *	for each local call, innermost last:
 *	    index of the op after the call, r6, r7, r8, r9, return address
 *
 * Code holds no addresses: everything outside it is reached through r12.
 */
#include "vm/emit.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum reg {
	RAX,
	RCX,
	RDX,
	RBX,
	RSP,
	RBP,
	RSI,
	RDI,
	R8,
	R9,
	R10,
	R11,
	R12,
	R13,
	R14,
	R15,
	NO_REG = 16,
	CONTEXT = R12,
	BUDGET = R9,
	GROUP = R11,
};

/* Indexed by all that a register field can hold. */
static const uint8_t host_of[16] = {RAX, RDI, RSI, RDX, R8, R10, RBX, R13, R14, R15, RBP};

/* A place in the code that waits for an address. */
struct fixup {
	uint32_t at; /* of four bytes, relative to their end */
	uint32_t to; /* op's index; or which of the shared pieces */
	bool shared;
};

/* The op at pc goes on in the interpreter: what a failed check jumps to. */
struct side {
	uint32_t at; /* as of fixup */
	uint32_t pc;
	uint32_t refund; /* of budget taken */
};

enum shared {
	SIDE_EXIT,
	FAULT_EXIT,
	RESOLVE_READ,
	RESOLVE_WRITE = RESOLVE_READ + 4,
	N_SHARED = RESOLVE_WRITE + 4
};

struct tt_emit {
	uint8_t *bytes;
	uint32_t size, room;
	bool failed;
	uint32_t *native; /* of ops */
	uint32_t n_ops;
	uint32_t enter;
	uint32_t shared[N_SHARED];
	struct fixup *fixups;
	uint32_t n_fixups, fixup_room;
	struct side *sides;
	uint32_t n_sides, side_room;
};

/* --- bytes ------------------------------------------------------------------------- */

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

static void put8(struct tt_emit *e, unsigned value)
{
	if (e->size < e->room)
		e->bytes[e->size++] = (uint8_t)value;
	else
		e->failed = true;
}

static void put32(struct tt_emit *e, uint32_t value)
{
	for (int i = 0; i < 4; i++)
		put8(e, value >> 8 * i);
}

static void put64(struct tt_emit *e, uint64_t value)
{
	put32(e, (uint32_t)value);
	put32(e, (uint32_t)(value >> 32));
}

static bool fits8(int64_t value)
{
	return value == (int8_t)value;
}

static bool fits32(int64_t value)
{
	return value == (int32_t)value;
}

/* How an instruction's operands are wide. */
enum width {
	W8 = 1,	 /* byte registers: sil and dil need a prefix */
	W16 = 2, /* operand-size prefix */
	W32 = 4,
	W64 = 8,
};

static void put_opcode(struct tt_emit *e, unsigned opcode)
{
	if (opcode > 0xffff)
		put8(e, opcode >> 16);
	if (opcode > 0xff)
		put8(e, opcode >> 8 & 0xff);
	put8(e, opcode & 0xff);
}

static void put_prefix(struct tt_emit *e, enum width width, unsigned reg, unsigned index,
		       unsigned base, bool byte_reg)
{
	unsigned rex = (width == W64) << 3 | (reg >= 8) << 2 |
		       (index >= 8 && index != NO_REG) << 1 | (base >= 8);

	if (width == W16)
		put8(e, 0x66);
	if (rex || byte_reg)
		put8(e, 0x40 | rex);
}

/* OPCODE with two registers; reg is the field of that name, or an opcode's extension. */
static void rr(struct tt_emit *e, enum width width, unsigned opcode, unsigned reg, unsigned rm)
{
	put_prefix(e, width, reg, NO_REG, rm, width == W8 && (reg >= 4 || rm >= 4));
	put_opcode(e, opcode);
	put8(e, 0xc0 | (reg & 7) << 3 | (rm & 7));
}

/* OPCODE with a register and [base + disp]. */
static void rm(struct tt_emit *e, enum width width, unsigned opcode, unsigned reg, unsigned base,
	       int32_t disp)
{
	unsigned mod = !disp && (base & 7) != RBP ? 0 : fits8(disp) ? 1 : 2;

	put_prefix(e, width, reg, NO_REG, base, width == W8 && reg >= 4);
	put_opcode(e, opcode);
	put8(e, mod << 6 | (reg & 7) << 3 | (base & 7));
	if ((base & 7) == RSP)
		put8(e, 0x24);
	if (mod == 1)
		put8(e, (unsigned)disp & 0xff);
	else if (mod == 2)
		put32(e, (uint32_t)disp);
}

static void mov(struct tt_emit *e, enum width width, unsigned to, unsigned from)
{
	rr(e, width, 0x89, from, to);
}

/* op: extension of the immediate group: 0 add, 1 or, 4 and, 5 sub, 6 xor, 7 cmp. */
static void alu_imm(struct tt_emit *e, enum width width, unsigned op, unsigned reg, int32_t imm)
{
	rr(e, width, fits8(imm) ? 0x83 : 0x81, op, reg);
	if (fits8(imm))
		put8(e, (unsigned)imm & 0xff);
	else
		put32(e, (uint32_t)imm);
}

static void mov_imm(struct tt_emit *e, unsigned reg, int64_t value)
{
	if (!value) {
		rr(e, W32, 0x31, reg, reg);
	} else if (value == (uint32_t)value) {
		put_prefix(e, W32, 0, NO_REG, reg, false);
		put8(e, 0xb8 | (reg & 7));
		put32(e, (uint32_t)value);
	} else if (fits32(value)) {
		rr(e, W64, 0xc7, 0, reg);
		put32(e, (uint32_t)value);
	} else {
		put_prefix(e, W64, 0, NO_REG, reg, false);
		put8(e, 0xb8 | (reg & 7));
		put64(e, (uint64_t)value);
	}
}

static void push(struct tt_emit *e, unsigned reg)
{
	put_prefix(e, W32, 0, NO_REG, reg, false);
	put8(e, 0x50 | (reg & 7));
}

static void pop(struct tt_emit *e, unsigned reg)
{
	put_prefix(e, W32, 0, NO_REG, reg, false);
	put8(e, 0x58 | (reg & 7));
}

/* --- jumps --------------------------------------------------------------------------- */

/* Condition codes of jumps. */
enum cc { CC_B = 2, CC_AE, CC_E, CC_NE, CC_BE, CC_A, CC_L = 12, CC_GE, CC_LE, CC_G, CC_ALWAYS };

static void jump_opcode(struct tt_emit *e, enum cc cc)
{
	if (cc == CC_ALWAYS)
		put8(e, 0xe9);
	else
		put_opcode(e, 0x0f80 | (unsigned)cc);
}

static void wait_for(struct tt_emit *e, uint32_t to, bool shared)
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
	wait_for(e, index, false);
}

static void jump_to_shared(struct tt_emit *e, enum cc cc, enum shared shared)
{
	jump_opcode(e, cc);
	wait_for(e, shared, true);
}

static void call_shared(struct tt_emit *e, enum shared shared)
{
	put8(e, 0xe8);
	wait_for(e, shared, true);
}

/* To the interpreter, at the op at pc. */
static void side_exit(struct tt_emit *e, enum cc cc, uint32_t pc, uint32_t refund)
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

/* A short way ahead: returns where its one byte is. */
static uint32_t skip(struct tt_emit *e, enum cc cc)
{
	put8(e, cc == CC_ALWAYS ? 0xeb : 0x70 | (unsigned)cc);
	put8(e, 0);
	return e->size - 1;
}

static void land(struct tt_emit *e, uint32_t at)
{
	if (!e->failed)
		e->bytes[at] = (uint8_t)(e->size - at - 1);
}

/* --- the context ----------------------------------------------------------------------- */

#define FIELD(NAME) ((int32_t)offsetof(struct tutti_vm_context, NAME))

static int32_t win_field(unsigned window, size_t off)
{
	return (int32_t)(window * sizeof(struct tt_vm_win) + off);
}

static size_t limit_off(unsigned log2_bytes, bool write)
{
	return (write ? offsetof(struct tt_vm_win, write_limit)
		      : offsetof(struct tt_vm_win, read_limit)) +
	       log2_bytes * sizeof(uint64_t);
}

/* The register that holds the program's value: r10's is made in to. */
static unsigned value_of(struct tt_emit *e, unsigned reg, unsigned to)
{
	if (reg != TT_FP)
		return host_of[reg];
	mov(e, W64, to, RBP);
	rm(e, W64, 0x03, to, CONTEXT, FIELD(stack_delta));
	return to;
}

/* --- arithmetic --------------------------------------------------------------------------- */

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
	zero = skip(e, CC_E);
	if (is_signed) {
		alu_imm(e, width, 7, RCX, -1);
		minus_one = skip(e, CC_E);
	}
	divide(e, width, is_signed, remainder, dst);
	done = skip(e, CC_ALWAYS);
	if (is_signed) {
		land(e, minus_one);
		if (remainder)
			mov_imm(e, dst, 0);
		else
			rr(e, width, 0xf7, 3, dst);
		done_too = skip(e, CC_ALWAYS);
	}
	land(e, zero);
	if (!remainder)
		mov_imm(e, dst, 0);
	else if (width == W32)
		mov(e, W32, dst, dst);
	if (is_signed)
		land(e, done_too);
	land(e, done);
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
	unsigned dst = host_of[op->dst];
	unsigned src = reg ? value_of(e, op->src, RCX) : 0;

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
	unsigned dst = host_of[op->dst];

	switch (op->op) {
	case TT_MOVSX8_32: rr(e, W8, 0x0fbe, dst, value_of(e, op->src, RCX)); break;
	case TT_MOVSX8_64: rr(e, W64, 0x0fbe, dst, value_of(e, op->src, RCX)); break;
	case TT_MOVSX16_32: rr(e, W32, 0x0fbf, dst, value_of(e, op->src, RCX)); break;
	case TT_MOVSX16_64: rr(e, W64, 0x0fbf, dst, value_of(e, op->src, RCX)); break;
	case TT_MOVSX32_64: rr(e, W64, 0x63, dst, value_of(e, op->src, RCX)); break;
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
				   value_of(e, op->src, RCX));
		break;
	case TT_SDIV64_X:
	case TT_SMOD64_X:
		divide_by_register(e, W64, true, op->op == TT_SMOD64_X, dst,
				   value_of(e, op->src, RCX));
		break;
	default: /* TT_LDDW */ mov_imm(e, dst, op->imm); break;
	}
}

void tt_emit_alu(struct tt_emit *e, const struct tt_vm_op *op)
{
	switch (op->op) {
	case TT_ALU | TT_END | TT_K: lower(e, host_of[op->dst], op->imm); break;
	case TT_ALU | TT_END | TT_X:
	case TT_ALU64 | TT_END: swap(e, host_of[op->dst], op->imm); break;
	default:
		if (TT_CLASS(op->op) == TT_LD)
			variant(e, op);
		else
			alu(e, TT_CLASS(op->op) == TT_ALU64 ? W64 : W32, op);
		break;
	}
}

/* --- memory ----------------------------------------------------------------------------- */

static unsigned log2_of(uint8_t code)
{
	return (unsigned)__builtin_ctz(tt_vm_bytes(code));
}

/* rcx = the process's address of what the op accesses, or the interpreter. */
static void check(struct tt_emit *e, const struct tt_vm_op *op, uint32_t pc, bool write)
{
	unsigned base = value_of(e, TT_CLASS(op->op) == TT_LDX ? op->src : op->dst, RCX);
	unsigned log2 = log2_of(op->op);

	if (!op->window) {
		rm(e, W64, 0x8d, RCX, base, op->off);
		call_shared(e, (write ? RESOLVE_WRITE : RESOLVE_READ) + log2);
		side_exit(e, CC_AE, pc, 0);
		return;
	}
	rm(e, W64, 0x8d, RCX, base, op->off - (op->window << TUTTI_VM_WINDOW_SHIFT));
	rm(e, W64, 0x3b, RCX, CONTEXT, win_field(op->window, limit_off(log2, write)));
	side_exit(e, CC_AE, pc, 0);
	rm(e, W64, 0x03, RCX, CONTEXT, win_field(op->window, offsetof(struct tt_vm_win, base)));
}

static void load(struct tt_emit *e, uint8_t code, unsigned dst, unsigned base, int32_t disp)
{
	bool sign = TT_MODE(code) == TT_MEMSX;

	switch (TT_SIZE(code)) {
	case TT_B: rm(e, sign ? W64 : W32, sign ? 0x0fbe : 0x0fb6, dst, base, disp); break;
	case TT_H: rm(e, sign ? W64 : W32, sign ? 0x0fbf : 0x0fb7, dst, base, disp); break;
	case TT_W: rm(e, sign ? W64 : W32, sign ? 0x63 : 0x8b, dst, base, disp); break;
	default: rm(e, W64, 0x8b, dst, base, disp); break;
	}
}

static void store(struct tt_emit *e, const struct tt_vm_op *op, unsigned base, int32_t disp)
{
	enum width width = (enum width)tt_vm_bytes(op->op);

	if (TT_CLASS(op->op) == TT_STX) {
		unsigned src = value_of(e, op->src, base == RCX ? R11 : RCX);

		rm(e, width, width == W8 ? 0x88 : 0x89, src, base, disp);
		return;
	}
	rm(e, width, width == W8 ? 0xc6 : 0xc7, 0, base, disp);
	if (width == W8)
		put8(e, (unsigned)op->imm & 0xff);
	else if (width == W16)
		put8(e, (unsigned)op->imm & 0xff), put8(e, (unsigned)op->imm >> 8 & 0xff);
	else
		put32(e, (uint32_t)op->imm);
}

/* Fetching and, or, xor: until nobody came between. The address is in rcx. */
static void fetch_loop(struct tt_emit *e, enum width width, unsigned opcode, unsigned src)
{
	unsigned value = src == RAX ? RDX : src;
	uint32_t again;

	push(e, value == RDX && src == RAX ? RDX : RAX);
	if (src == RAX)
		mov(e, W64, RDX, RAX);
	rm(e, width, 0x8b, RAX, RCX, 0);
	again = e->size;
	mov(e, width, R11, RAX);
	rr(e, width, opcode, value, R11);
	put8(e, 0xf0);
	rm(e, width, 0x0fb1, R11, RCX, 0);
	put8(e, 0x75);
	put8(e, (again - e->size - 1) & 0xff);
	if (src == RAX) {
		mov(e, width, RAX, RAX);
		pop(e, RDX);
	} else {
		mov(e, width, src, RAX);
		pop(e, RAX);
	}
}

/* The address is in rcx. */
static void atomic(struct tt_emit *e, const struct tt_vm_op *op)
{
	enum width width = TT_SIZE(op->op) == TT_DW ? W64 : W32;
	unsigned src = value_of(e, op->src, R11), opcode;

	switch (op->imm & ~TT_FETCH) {
	case TT_ADD: opcode = 0x01; break;
	case TT_OR: opcode = 0x09; break;
	case TT_AND: opcode = 0x21; break;
	default: opcode = 0x31; break;
	}
	if (op->imm == TT_XCHG) {
		rm(e, width, 0x87, src, RCX, 0);
	} else if (op->imm == TT_CMPXCHG) {
		put8(e, 0xf0);
		rm(e, width, 0x0fb1, src, RCX, 0);
		if (width == W32)
			mov(e, W32, RAX, RAX);
	} else if (op->imm == (TT_ADD | TT_FETCH)) {
		put8(e, 0xf0);
		rm(e, width, 0x0fc1, src, RCX, 0);
	} else if (op->imm & TT_FETCH) {
		fetch_loop(e, width, opcode, src);
	} else {
		put8(e, 0xf0);
		rm(e, width, opcode, src, RCX, 0);
	}
}

void tt_emit_access(struct tt_emit *e, const struct tt_vm_op *op, uint32_t pc, enum tt_emit_by by,
		    int32_t off)
{
	bool write = TT_CLASS(op->op) != TT_LDX;
	unsigned base = RCX;

	switch (by) {
	case TT_BY_FRAME: base = RBP; break;
	case TT_BY_WINDOW:
		rm(e, W64, 0x8b, RCX, CONTEXT,
		   win_field(op->window, offsetof(struct tt_vm_win, base)));
		break;
	case TT_BY_GROUP: base = GROUP; break;
	case TT_BY_CHECK:
		check(e, op, pc, write);
		off = 0;
		break;
	}
	if (!write) {
		load(e, op->op, host_of[op->dst], base, off);
	} else if (TT_MODE(op->op) != TT_ATOMIC) {
		store(e, op, base, off);
	} else {
		if (base != RCX || off)
			rm(e, W64, 0x8d, RCX, base, off);
		if (by == TT_BY_CHECK) {
			rr(e, W8, 0xf6, 0, RCX); /* test cl */
			put8(e, tt_vm_bytes(op->op) - 1);
			side_exit(e, CC_NE, pc, 0);
		}
		atomic(e, op);
	}
}

void tt_emit_group(struct tt_emit *e, unsigned reg, int32_t off, uint32_t bytes, unsigned window,
		   bool write, uint32_t pc)
{
	int32_t limit = win_field(window, limit_off(0, write));

	rm(e, W64, 0x8d, RCX, host_of[reg], off - (int32_t)(window << TUTTI_VM_WINDOW_SHIFT));
	rm(e, W64, 0x3b, RCX, CONTEXT, limit);
	side_exit(e, CC_AE, pc, 0);
	/* The first byte is inside, so that this cannot wrap. */
	rm(e, W64, 0x8d, R11, RCX, (int32_t)bytes - 1);
	rm(e, W64, 0x3b, R11, CONTEXT, limit);
	side_exit(e, CC_AE, pc, 0);
	rm(e, W64, 0x8b, GROUP, CONTEXT, win_field(window, offsetof(struct tt_vm_win, base)));
	rr(e, W64, 0x01, RCX, GROUP);
}

bool tt_emit_clobbers(const struct tt_vm_op *op)
{
	switch (TT_CLASS(op->op)) {
	case TT_STX: return !op->window || op->src == TT_FP || TT_MODE(op->op) == TT_ATOMIC;
	case TT_LDX:
	case TT_ST: return !op->window;
	case TT_JMP: return TT_OP(op->op) == TT_CALL;
	default: return op->op == TT_CALL_LOCAL_OP;
	}
}

/* --- control ------------------------------------------------------------------------------ */

static void charge(struct tt_emit *e, uint32_t cost, uint32_t pc)
{
	alu_imm(e, W64, 5, BUDGET, (int32_t)cost);
	side_exit(e, CC_B, pc, cost);
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
	unsigned dst = value_of(e, op->dst, RCX);
	bool set = TT_OP(op->op) == TT_JSET;

	if (TT_SRC(op->op)) {
		rr(e, width, set ? 0x85 : 0x39, value_of(e, op->src, R11), dst);
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
		over = skip(e, cc ^ 1);
	alu_imm(e, W64, 5, BUDGET, (int32_t)(pc - target + 1));
	jump_to_op(e, CC_AE, target);
	side_exit(e, CC_ALWAYS, pc, pc - target + 1);
	if (cc != CC_ALWAYS)
		land(e, over);
}

void tt_emit_call_local(struct tt_emit *e, const struct tt_vm_op *op, uint32_t pc)
{
	charge(e, (uint32_t)op->imm, pc);
	/* Is there a frame below this one? The verifier has seen to it; asked again. */
	rm(e, W64, 0x8d, RCX, RBP, -2 * TUTTI_VM_FRAME_BYTES);
	rm(e, W64, 0x3b, RCX, CONTEXT, win_field(TUTTI_VM_STACK, offsetof(struct tt_vm_win, base)));
	side_exit(e, CC_B, pc, (uint32_t)op->imm);
	put8(e, 0x68);
	put32(e, pc + 1);
	for (unsigned i = TT_R6; i <= TT_R9; i++)
		push(e, host_of[i]);
	alu_imm(e, W64, 5, RBP, TUTTI_VM_FRAME_BYTES);
	put8(e, 0xe8);
	wait_for(e, (uint32_t)op->off, false);
	alu_imm(e, W64, 0, RBP, TUTTI_VM_FRAME_BYTES);
	for (unsigned i = TT_R9; i >= TT_R6; i--)
		pop(e, host_of[i]);
	rm(e, W64, 0x8d, RSP, RSP, 8);
}

void tt_emit_call_helper(struct tt_emit *e, uint32_t helper, uint32_t cost, uint32_t pc)
{
	charge(e, cost, pc);
	for (unsigned i = TT_R1; i <= TT_R5; i++)
		rm(e, W64, 0x89, host_of[i], CONTEXT, FIELD(regs) + (int32_t)i * 8);
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
		mov_imm(e, host_of[i], 0);
}

void tt_emit_exit(struct tt_emit *e)
{
	put8(e, 0xc3);
}

/* --- the ways in and out --------------------------------------------------------------------- */

static const uint8_t saved[] = {RBP, RBX, R12, R13, R14, R15};

static void begin_shared(struct tt_emit *e, enum shared which)
{
	e->shared[which] = e->size;
}

/* rcx = address in the program's space -> in the process's, carry set; or carry clear. */
static void put_resolve(struct tt_emit *e, unsigned log2, bool write)
{
	uint32_t beyond;

	mov(e, W64, R11, RCX);
	rr(e, W64, 0xc1, 5, R11);
	put8(e, TUTTI_VM_WINDOW_SHIFT);
	alu_imm(e, W64, 7, R11, TUTTI_VM_WINDOWS);
	beyond = skip(e, CC_AE);
	rr(e, W32, 0x69, R11, R11);
	put32(e, sizeof(struct tt_vm_win));
	rr(e, W64, 0x01, CONTEXT, R11);
	alu_imm(e, W32, 4, RCX, TUTTI_VM_WINDOW_BYTES - 1);
	rm(e, W64, 0x3b, RCX, R11, (int32_t)limit_off(log2, write));
	land(e, beyond); /* not below: carry is clear in both cases */
	put8(e, 0x73);	 /* jae over the next two */
	put8(e, 4 + 1);
	rm(e, W64, 0x03, RCX, R11, (int32_t)offsetof(struct tt_vm_win, base)); /* three bytes */
	put8(e, 0xf9);							       /* stc */
	put8(e, 0xc3);
	put8(e, 0xf8); /* clc */
	put8(e, 0xc3);
}

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
		rm(e, W64, 0x8b, host_of[i], CONTEXT, FIELD(regs) + (int32_t)i * 8);
	mov_imm(e, host_of[TT_R0], 0);
	for (unsigned i = TT_R6; i <= TT_R9; i++)
		mov_imm(e, host_of[i], 0);
	rr(e, W32, 0xff, 2, RCX);
	rm(e, W64, 0x89, RAX, CONTEXT, FIELD(regs));
	rm(e, W64, 0x89, BUDGET, CONTEXT, FIELD(budget));
	mov_imm(e, RAX, TT_LEFT_EXIT);
	out = e->size;
	for (size_t i = sizeof saved; i-- > 0;)
		pop(e, saved[i]);
	put8(e, 0xc3);

	begin_shared(e, SIDE_EXIT);
	for (unsigned i = TT_R0; i <= TT_R9; i++)
		rm(e, W64, 0x89, host_of[i], CONTEXT, FIELD(regs) + (int32_t)i * 8);
	rm(e, W64, 0x89, BUDGET, CONTEXT, FIELD(budget));
	mov(e, W64, RDI, CONTEXT);
	mov(e, W64, RSI, RSP);
	rm(e, W32, 0xff, 2, CONTEXT, FIELD(unwind));
	mov_imm(e, RAX, TT_LEFT_SIDE);
	put8(e, 0xeb);
	put8(e, 5);
	begin_shared(e, FAULT_EXIT);
	put8(e, 0xb8); /* mov eax, five bytes */
	put32(e, TT_LEFT_FAULT);
	rm(e, W64, 0x8b, RSP, CONTEXT, FIELD(host_sp));
	rm(e, W64, 0x8d, RSP, RSP, 8);
	put8(e, 0xe9);
	put32(e, out - (e->size + 4));

	for (unsigned log2 = 0; log2 < 4; log2++) {
		room_for_op(e);
		begin_shared(e, RESOLVE_READ + log2);
		put_resolve(e, log2, false);
		begin_shared(e, RESOLVE_WRITE + log2);
		put_resolve(e, log2, true);
	}
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
	e->n_ops = n_ops;
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
