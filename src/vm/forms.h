/* SPDX-License-Identifier: MIT */
/*
 * Every instruction as text and as bytes, in one table, which assembler and
 * disassembler walk in opposite directions: what one of them knows the other
 * does, so that a round trip is exact.
 */
#ifndef TT_VM_FORMS_H
#define TT_VM_FORMS_H

#include "vm/isa.h"

/*
 * A form's operands, one letter each, say where they go; a field that none of
 * them fills has the value of the form, or 0.
 */
enum {
	TT_OPERAND_DST = 'd',	 /* %r1 */
	TT_OPERAND_SRC = 's',	 /* %r1 */
	TT_OPERAND_TO = 'm',	 /* [%r1+2]: destination register and offset */
	TT_OPERAND_FROM = 'M',	 /* [%r1+2]: source register and offset */
	TT_OPERAND_IMM = 'i',	 /* a number of 32 bits */
	TT_OPERAND_WIDE = 'w',	 /* of 64: imm of both halves */
	TT_OPERAND_TARGET = 't', /* a label, or +2: offset */
	TT_OPERAND_LONG = 'T',	 /* the same: imm */
	TT_OPERAND_LOCAL = 'L',	 /* local and a target: imm */
	TT_OPERAND_EXTERN = 'E', /* extern and a name or an index: imm */
	TT_OPERAND_MAP = 'P',	 /* map and a name or an index: imm */
};

struct tt_vm_form {
	const char *name; /* one space between words: "lock fetch add" */
	const char *operands;
	uint8_t code;
	uint8_t src;
	int16_t off;
	int32_t imm;
};

extern const struct tt_vm_form tt_vm_forms[];
extern const unsigned tt_vm_n_forms;

/* Whether one of these letters is among the form's operands. */
bool tt_vm_form_has(const struct tt_vm_form *form, const char *letters);

#define TT_FILLS_DST "dm"
#define TT_FILLS_SRC "sM"
#define TT_FILLS_OFF "mMt"
#define TT_FILLS_IMM "iwTLEP"

#endif
