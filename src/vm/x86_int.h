/* SPDX-License-Identifier: MIT */
/*
 * Code for x86-64: what its files share, and instructions byte by byte.
 *
 * Registers of a program and where they live:
 *
 *	r0 rax   r1 rdi   r2 rsi   r3 rdx   r4 r8   r5 r10
 *	r6 rbx   r7 r13   r8 r14   r9 r15   r10 rbp
 *
 * rbp holds the process's address of the frame's end; where a program looks
 * at r10 itself, its own address is computed. r9 is the budget, r12 the
 * context; rcx is scratch within an op, r11 scratch as well unless something
 * is pinned there. Registers that a function of the program does not use, and
 * r11, hold what its accesses need most (tt_emit_function): the address of a
 * window's first byte, the group's pointer.
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
#ifndef TT_VM_X86_INT_H
#define TT_VM_X86_INT_H

#include "vm/emit.h"

#include <stddef.h>

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
};

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
	RESOLVE_READ, /* and one for each size */
	RESOLVE_WRITE = RESOLVE_READ + 4,
	N_SHARED = RESOLVE_WRITE + 4,
};

struct tt_emit {
	uint8_t *bytes;
	uint32_t size, room;
	bool failed;
	uint32_t *native; /* of ops */
	uint32_t enter;
	uint32_t shared[N_SHARED];
	struct fixup *fixups;
	uint32_t n_fixups, fixup_room;
	struct side *sides;
	uint32_t n_sides, side_room;
	/* Of the function in the making. */
	uint8_t base_in
		[TUTTI_VM_WINDOWS]; /* register that holds the window's first byte, or NO_REG */
	uint8_t group;		    /* register of the group's pointer, or NO_REG */
};

/* The register of the processor for each of a program's; all that a field can hold. */
extern const uint8_t tt_x86_reg[16];

/* --- bytes ------------------------------------------------------------------------- */

static inline void put8(struct tt_emit *e, unsigned value)
{
	if (e->size < e->room)
		e->bytes[e->size++] = (uint8_t)value;
	else
		e->failed = true;
}

static inline void put32(struct tt_emit *e, uint32_t value)
{
	for (int i = 0; i < 4; i++)
		put8(e, value >> 8 * i);
}

static inline void put64(struct tt_emit *e, uint64_t value)
{
	put32(e, (uint32_t)value);
	put32(e, (uint32_t)(value >> 32));
}

static inline bool fits8(int64_t value)
{
	return value == (int8_t)value;
}

static inline bool fits32(int64_t value)
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

static inline void put_opcode(struct tt_emit *e, unsigned opcode)
{
	if (opcode > 0xffff)
		put8(e, opcode >> 16);
	if (opcode > 0xff)
		put8(e, opcode >> 8 & 0xff);
	put8(e, opcode & 0xff);
}

static inline void put_prefix(struct tt_emit *e, enum width width, unsigned reg, unsigned index,
			      unsigned base, bool byte_reg)
{
	unsigned rex = (width == W64) << 3 | (reg >= 8) << 2 |
		       (index >= 8 && index != NO_REG) << 1 | (base >= 8);

	if (width == W16)
		put8(e, 0x66);
	if (rex || byte_reg)
		put8(e, 0x40 | rex);
}

/* Operands in memory: base and, unless NO_REG, index. */
struct mem {
	unsigned base, index;
	int32_t disp;
};

/* OPCODE with two registers; reg is the field of that name, or an opcode's extension. */
static inline void rr(struct tt_emit *e, enum width width, unsigned opcode, unsigned reg,
		      unsigned rm)
{
	put_prefix(e, width, reg, NO_REG, rm, width == W8 && (reg >= 4 || rm >= 4));
	put_opcode(e, opcode);
	put8(e, 0xc0 | (reg & 7) << 3 | (rm & 7));
}

/* OPCODE with a register and memory. */
static inline void rx(struct tt_emit *e, enum width width, unsigned opcode, unsigned reg,
		      struct mem mem)
{
	unsigned mod = !mem.disp && (mem.base & 7) != RBP ? 0 : fits8(mem.disp) ? 1 : 2;
	bool sib = mem.index != NO_REG || (mem.base & 7) == RSP;

	put_prefix(e, width, reg, mem.index, mem.base, width == W8 && reg >= 4);
	put_opcode(e, opcode);
	put8(e, mod << 6 | (reg & 7) << 3 | (sib ? 4 : mem.base & 7));
	if (sib)
		put8(e, (mem.index != NO_REG ? mem.index & 7 : 4) << 3 | (mem.base & 7));
	if (mod == 1)
		put8(e, (unsigned)mem.disp & 0xff);
	else if (mod == 2)
		put32(e, (uint32_t)mem.disp);
}

/* With [base + disp]. */
static inline void rm(struct tt_emit *e, enum width width, unsigned opcode, unsigned reg,
		      unsigned base, int32_t disp)
{
	rx(e, width, opcode, reg, (struct mem){base, NO_REG, disp});
}

static inline void mov(struct tt_emit *e, enum width width, unsigned to, unsigned from)
{
	rr(e, width, 0x89, from, to);
}

/* op: extension of the immediate group: 0 add, 1 or, 4 and, 5 sub, 6 xor, 7 cmp. */
static inline void alu_imm(struct tt_emit *e, enum width width, unsigned op, unsigned reg,
			   int32_t imm)
{
	rr(e, width, fits8(imm) ? 0x83 : 0x81, op, reg);
	if (fits8(imm))
		put8(e, (unsigned)imm & 0xff);
	else
		put32(e, (uint32_t)imm);
}

static inline void mov_imm(struct tt_emit *e, unsigned reg, int64_t value)
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

static inline void push(struct tt_emit *e, unsigned reg)
{
	put_prefix(e, W32, 0, NO_REG, reg, false);
	put8(e, 0x50 | (reg & 7));
}

static inline void pop(struct tt_emit *e, unsigned reg)
{
	put_prefix(e, W32, 0, NO_REG, reg, false);
	put8(e, 0x58 | (reg & 7));
}

/* --- what the files call of each other ------------------------------------------------ */

/* Condition codes of jumps. */
enum cc { CC_B = 2, CC_AE, CC_E, CC_NE, CC_BE, CC_A, CC_L = 12, CC_GE, CC_LE, CC_G, CC_ALWAYS };

/* emit_x86.c */
void tt_x86_wait_for(struct tt_emit *e, uint32_t to, bool shared);
/* To the interpreter, at the op at pc. */
void tt_x86_side_exit(struct tt_emit *e, enum cc cc, uint32_t pc, uint32_t refund);
/* A short way ahead: where its one byte is; and its end. */
uint32_t tt_x86_skip(struct tt_emit *e, enum cc cc);
void tt_x86_land(struct tt_emit *e, uint32_t at);
/* The register that holds the program's value: r10's is made in to. */
unsigned tt_x86_value(struct tt_emit *e, unsigned reg, unsigned to);

/* emit_x86_mem.c */
void tt_x86_resolvers(struct tt_emit *e);
/* Loads what is pinned anew: into r11 only, or wherever. No flags change. */
void tt_x86_pins(struct tt_emit *e, bool r11_only);

#define FIELD(NAME) ((int32_t)offsetof(struct tutti_vm_context, NAME))

static inline int32_t win_field(unsigned window, size_t off)
{
	return (int32_t)(window * sizeof(struct tt_vm_win) + off);
}

#endif
