/* SPDX-License-Identifier: MIT */
/*
 * The assembler's reading of one line: words, numbers, operands. Where nothing
 * was found to be wrong a function returns 0, else -EINVAL, and the error says
 * what, with the line.
 */
#ifndef TT_VM_ASM_INT_H
#define TT_VM_ASM_INT_H

#include <tutti/vm.h>

/* A part of the text; not terminated. */
struct tt_asm_piece {
	const char *at;
	size_t len;
};

struct tt_asm_line {
	const char *at, *end; /* what is left of it, without its comment */
	uint32_t number;
	struct tutti_vm_error *error;
};

struct tt_asm_number {
	uint64_t magnitude;
	bool negative, hex;
	bool sign; /* it was written */
};

enum tt_asm_operand_kind {
	TT_ASM_REG = 1,
	TT_ASM_MEM,
	TT_ASM_NUMBER,
	TT_ASM_NAME,
};

struct tt_asm_operand {
	enum tt_asm_operand_kind kind;
	char qualifier; /* TT_OPERAND_LOCAL, EXTERN, MAP: its word stood before; 0: none did */
	uint8_t reg;	/* REG, MEM */
	int16_t off;	/* MEM */
	struct tt_asm_number number;
	struct tt_asm_piece name;
};

/* Writes "line 7: " and the format, anything unprintable in it as '?'. Returns -EINVAL. */
int tt_asm_fail(const struct tt_asm_line *line, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

bool tt_asm_is(struct tt_asm_piece piece, const char *word);
/* Whether nothing but white space is left. */
bool tt_asm_at_end(struct tt_asm_line *line);
/* Takes this character, if it is the next after white space. */
bool tt_asm_take(struct tt_asm_line *line, char c);
/* Takes a word ([A-Za-z_.][A-Za-z0-9_.]*); of length 0: there is none. */
struct tt_asm_piece tt_asm_word(struct tt_asm_line *line);

/* Takes the operands up to the line's end; more than max are wrong. */
int tt_asm_operands(struct tt_asm_line *line, struct tt_asm_operand *ret_list, unsigned max,
		    unsigned *ret_count);

/*
 * Range checks. A decimal number is what it says, a hexadecimal one may also
 * be the pattern of bits: 0xffffffff is -1 in 32 bits. Numbers of 64 bits
 * are patterns in either way.
 */
int tt_asm_imm32(const struct tt_asm_line *line, const struct tt_asm_number *number,
		 int32_t *ret_value);
int tt_asm_imm64(const struct tt_asm_line *line, const struct tt_asm_number *number,
		 uint64_t *ret_value);
/* From low to high, what it is called in the error. */
int tt_asm_range(const struct tt_asm_line *line, const struct tt_asm_number *number, int64_t low,
		 int64_t high, const char *what, int64_t *ret_value);

#endif
