/* SPDX-License-Identifier: MIT */
/*
 * The instruction set: RFC 9669, names in its words. Not <linux/bpf.h>, which
 * on the oldest kernels that we build on lacks the newer instructions.
 */
#ifndef TT_VM_ISA_H
#define TT_VM_ISA_H

#include <tutti/vm.h>

enum { TT_R0, TT_R1, TT_R2, TT_R3, TT_R4, TT_R5, TT_R6, TT_R7, TT_R8, TT_R9, TT_FP, TT_REGS };

/* Class: the lowest three bits of the code. */
#define TT_CLASS(code) ((code)&0x07)
enum {
	TT_LD = 0,
	TT_LDX = 1,
	TT_ST = 2,
	TT_STX = 3,
	TT_ALU = 4, /* 32 bits */
	TT_JMP = 5,
	TT_JMP32 = 6,
	TT_ALU64 = 7,
};

/* Arithmetic and jumps: operation in the upper four bits, source in bit 3. */
#define TT_OP(code) ((code)&0xf0)
#define TT_SRC(code) ((code)&0x08)
enum { TT_K = 0, TT_X = 8 };

enum {
	TT_ADD = 0x00,
	TT_SUB = 0x10,
	TT_MUL = 0x20,
	TT_DIV = 0x30, /* off 1: signed */
	TT_OR = 0x40,
	TT_AND = 0x50,
	TT_LSH = 0x60,
	TT_RSH = 0x70,
	TT_NEG = 0x80,
	TT_MOD = 0x90, /* off 1: signed */
	TT_XOR = 0xa0,
	TT_MOV = 0xb0, /* register form, off 8, 16, 32: sign-extending */
	TT_ARSH = 0xc0,
	TT_END = 0xd0, /* ALU: source bit 0 to little, 1 to big; ALU64, source bit 0: swap */
};

enum {
	TT_JA = 0x00, /* JMP: target in off; JMP32: in imm */
	TT_JEQ = 0x10,
	TT_JGT = 0x20,
	TT_JGE = 0x30,
	TT_JSET = 0x40,
	TT_JNE = 0x50,
	TT_JSGT = 0x60,
	TT_JSGE = 0x70,
	TT_CALL = 0x80,
	TT_EXIT = 0x90,
	TT_JLT = 0xa0,
	TT_JLE = 0xb0,
	TT_JSLT = 0xc0,
	TT_JSLE = 0xd0,
};

/* What the source field of a call and of the wide instruction says. */
enum {
	TT_CALL_HELPER = 0, /* imm: the helper's id */
	TT_CALL_LOCAL = 1,  /* imm: instructions from the next one to the function */
	TT_CALL_EXTERN = 2, /* imm: index into the object's externs; linked to a helper by name */
	TT_WIDE_NUMBER = 0, /* imm, and imm of the second half above it */
	TT_WIDE_MAP = 1,    /* imm: index into the object's maps */
};

/* Loads and stores: mode in the upper three bits, size in the next two. */
#define TT_MODE(code) ((code)&0xe0)
#define TT_SIZE(code) ((code)&0x18)
enum { TT_W = 0x00, TT_H = 0x08, TT_B = 0x10, TT_DW = 0x18 };
enum {
	TT_IMM = 0x00,
	TT_MEM = 0x60,
	TT_MEMSX = 0x80,
	TT_ATOMIC = 0xc0,
};

/* Atomic operations, in imm; those of arithmetic are TT_ADD, OR, AND, XOR. */
enum { TT_FETCH = 0x01, TT_XCHG = 0xe1, TT_CMPXCHG = 0xf1 };

enum { TT_LDDW = TT_LD | TT_DW | TT_IMM };

static inline uint8_t tt_vm_dst(const struct tutti_vm_insn *insn)
{
	return insn->regs & 0x0f;
}

static inline uint8_t tt_vm_src(const struct tutti_vm_insn *insn)
{
	return insn->regs >> 4;
}

/* Bytes that a load or a store moves. */
static inline unsigned tt_vm_bytes(uint8_t code)
{
	static const uint8_t bytes[] = {4, 2, 1, 8};

	return bytes[TT_SIZE(code) >> 3];
}

/* The 64 bits of a wide instruction, of which insn is the first half. */
static inline uint64_t tt_vm_wide(const struct tutti_vm_insn *insn)
{
	return (uint32_t)insn[0].imm | (uint64_t)(uint32_t)insn[1].imm << 32;
}

#endif
