/* SPDX-License-Identifier: MIT */
#include "vm/forms.h"

#include <string.h>

#define FORM(name, operands, code, src, off, imm)                                                  \
	{                                                                                          \
		name, operands, code, src, off, imm                                                \
	}

#define WIDTHS(name, op, off)                                                                      \
	FORM(name, "di", TT_ALU64 | TT_K | (op), 0, off, 0),                                       \
		FORM(name, "ds", TT_ALU64 | TT_X | (op), 0, off, 0),                               \
		FORM(name "32", "di", TT_ALU | TT_K | (op), 0, off, 0),                            \
		FORM(name "32", "ds", TT_ALU | TT_X | (op), 0, off, 0)

#define JUMPS(name, op)                                                                            \
	FORM(name, "dit", TT_JMP | TT_K | (op), 0, 0, 0),                                          \
		FORM(name, "dst", TT_JMP | TT_X | (op), 0, 0, 0),                                  \
		FORM(name "32", "dit", TT_JMP32 | TT_K | (op), 0, 0, 0),                           \
		FORM(name "32", "dst", TT_JMP32 | TT_X | (op), 0, 0, 0)

#define SWAPS(name, code)                                                                          \
	FORM(name "16", "d", code, 0, 0, 16), FORM(name "32", "d", code, 0, 0, 32),                \
		FORM(name "64", "d", code, 0, 0, 64)

#define MEMORY(letter, size)                                                                       \
	FORM("ldx" letter, "dM", TT_LDX | TT_MEM | (size), 0, 0, 0),                               \
		FORM("st" letter, "mi", TT_ST | TT_MEM | (size), 0, 0, 0),                         \
		FORM("stx" letter, "ms", TT_STX | TT_MEM | (size), 0, 0, 0)

#define ATOMIC(name, op)                                                                           \
	FORM("lock " name, "ms", TT_STX | TT_ATOMIC | TT_DW, 0, 0, op),                            \
		FORM("lock " name "32", "ms", TT_STX | TT_ATOMIC | TT_W, 0, 0, op)

/* Of two spellings the first is the one that the disassembler writes. */
const struct tt_vm_form tt_vm_forms[] = {
	WIDTHS("add", TT_ADD, 0),
	WIDTHS("sub", TT_SUB, 0),
	WIDTHS("mul", TT_MUL, 0),
	WIDTHS("div", TT_DIV, 0),
	WIDTHS("sdiv", TT_DIV, 1),
	WIDTHS("or", TT_OR, 0),
	WIDTHS("and", TT_AND, 0),
	WIDTHS("lsh", TT_LSH, 0),
	WIDTHS("rsh", TT_RSH, 0),
	WIDTHS("mod", TT_MOD, 0),
	WIDTHS("smod", TT_MOD, 1),
	WIDTHS("xor", TT_XOR, 0),
	WIDTHS("mov", TT_MOV, 0),
	WIDTHS("arsh", TT_ARSH, 0),
	{"neg", "d", TT_ALU64 | TT_NEG, 0, 0, 0},
	{"neg32", "d", TT_ALU | TT_NEG, 0, 0, 0},
	{"movsx832", "ds", TT_ALU | TT_X | TT_MOV, 0, 8, 0},
	{"movsx1632", "ds", TT_ALU | TT_X | TT_MOV, 0, 16, 0},
	{"movsx864", "ds", TT_ALU64 | TT_X | TT_MOV, 0, 8, 0},
	{"movsx1664", "ds", TT_ALU64 | TT_X | TT_MOV, 0, 16, 0},
	{"movsx3264", "ds", TT_ALU64 | TT_X | TT_MOV, 0, 32, 0},
	SWAPS("le", TT_ALU | TT_K | TT_END),
	SWAPS("be", TT_ALU | TT_X | TT_END),
	SWAPS("bswap", TT_ALU64 | TT_K | TT_END),
	SWAPS("swap", TT_ALU64 | TT_K | TT_END),

	JUMPS("jeq", TT_JEQ),
	JUMPS("jne", TT_JNE),
	JUMPS("jset", TT_JSET),
	JUMPS("jgt", TT_JGT),
	JUMPS("jge", TT_JGE),
	JUMPS("jlt", TT_JLT),
	JUMPS("jle", TT_JLE),
	JUMPS("jsgt", TT_JSGT),
	JUMPS("jsge", TT_JSGE),
	JUMPS("jslt", TT_JSLT),
	JUMPS("jsle", TT_JSLE),
	{"ja", "t", TT_JMP | TT_JA, 0, 0, 0},
	{"ja32", "T", TT_JMP32 | TT_JA, 0, 0, 0},
	{"gotol", "T", TT_JMP32 | TT_JA, 0, 0, 0},
	{"call", "i", TT_JMP | TT_CALL, TT_CALL_HELPER, 0, 0},
	{"call", "L", TT_JMP | TT_CALL, TT_CALL_LOCAL, 0, 0},
	{"call", "E", TT_JMP | TT_CALL, TT_CALL_EXTERN, 0, 0},
	{"exit", "", TT_JMP | TT_EXIT, 0, 0, 0},

	{"lddw", "dw", TT_LDDW, TT_WIDE_NUMBER, 0, 0},
	{"lddw", "dP", TT_LDDW, TT_WIDE_MAP, 0, 0},
	MEMORY("b", TT_B),
	MEMORY("h", TT_H),
	MEMORY("w", TT_W),
	MEMORY("dw", TT_DW),
	{"ldxsb", "dM", TT_LDX | TT_MEMSX | TT_B, 0, 0, 0},
	{"ldxsh", "dM", TT_LDX | TT_MEMSX | TT_H, 0, 0, 0},
	{"ldxsw", "dM", TT_LDX | TT_MEMSX | TT_W, 0, 0, 0},
	ATOMIC("add", TT_ADD),
	ATOMIC("or", TT_OR),
	ATOMIC("and", TT_AND),
	ATOMIC("xor", TT_XOR),
	ATOMIC("fetch add", TT_ADD | TT_FETCH),
	ATOMIC("fetch or", TT_OR | TT_FETCH),
	ATOMIC("fetch and", TT_AND | TT_FETCH),
	ATOMIC("fetch xor", TT_XOR | TT_FETCH),
	ATOMIC("xchg", TT_XCHG),
	ATOMIC("cmpxchg", TT_CMPXCHG),
};
const unsigned tt_vm_n_forms = sizeof tt_vm_forms / sizeof tt_vm_forms[0];

bool tt_vm_form_has(const struct tt_vm_form *form, const char *letters)
{
	return form->operands[strcspn(form->operands, letters)] != '\0';
}
