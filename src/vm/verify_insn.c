/* SPDX-License-Identifier: MIT */
/*
 * What an instruction is, looked at alone: its code is known (RFC 9669 with the
 * fourth version's instructions), fields that it does not use are zero, its
 * registers exist, r10 is not written.
 */
#include "vm/isa.h"
#include "vm/verify.h"

#include <errno.h>

/* What a code allows in its fields; what it does not name must be zero. */
enum {
	USES_DST = 1,
	USES_SRC = 2,
	USES_OFF = 4,
	USES_IMM = 8,
	WRITES_DST = 16,
	WRITES_SRC = 32,
	UNKNOWN = 64,
};

static unsigned uses_of_alu(const struct tutti_vm_insn *insn)
{
	bool wide = TT_CLASS(insn->code) == TT_ALU64, by_reg = TT_SRC(insn->code) == TT_X;
	unsigned uses = USES_DST | WRITES_DST | (by_reg ? USES_SRC : USES_IMM);

	switch (TT_OP(insn->code)) {
	case TT_NEG: return by_reg ? UNKNOWN : USES_DST | WRITES_DST;
	case TT_END: return wide && by_reg ? UNKNOWN : USES_DST | WRITES_DST | USES_IMM;
	case TT_DIV:
	case TT_MOD: return uses | USES_OFF;
	case TT_MOV: return by_reg ? uses | USES_OFF : uses;
	case 0xe0:
	case 0xf0: return UNKNOWN;
	default: return uses;
	}
}

static unsigned uses_of_jump(uint8_t code)
{
	bool narrow = TT_CLASS(code) == TT_JMP32, by_reg = TT_SRC(code) == TT_X;

	switch (TT_OP(code)) {
	case TT_JA:
		if (by_reg)
			return UNKNOWN;
		return narrow ? USES_IMM : USES_OFF;
	case TT_CALL: return narrow || by_reg ? UNKNOWN : USES_SRC | USES_IMM;
	case TT_EXIT: return narrow || by_reg ? UNKNOWN : 0;
	case 0xe0:
	case 0xf0: return UNKNOWN;
	default: return USES_DST | USES_OFF | (by_reg ? USES_SRC : USES_IMM);
	}
}

static unsigned uses_of_memory(const struct tutti_vm_insn *insn)
{
	uint8_t code = insn->code;
	unsigned uses = USES_DST | USES_OFF;

	switch (TT_CLASS(code)) {
	case TT_LD: return code == TT_LDDW ? USES_DST | USES_SRC | USES_IMM | WRITES_DST : UNKNOWN;
	case TT_LDX:
		if (TT_MODE(code) == TT_MEM)
			return uses | USES_SRC | WRITES_DST;
		return TT_MODE(code) == TT_MEMSX && TT_SIZE(code) != TT_DW
			       ? uses | USES_SRC | WRITES_DST
			       : UNKNOWN;
	case TT_ST: return TT_MODE(code) == TT_MEM ? uses | USES_IMM : UNKNOWN;
	default:
		if (TT_MODE(code) == TT_MEM)
			return uses | USES_SRC;
		if (TT_MODE(code) != TT_ATOMIC || tt_vm_bytes(code) < 4)
			return UNKNOWN;
		uses |= USES_SRC | USES_IMM;
		/* Compare-and-exchange writes r0 instead. */
		return (insn->imm & TT_FETCH) && insn->imm != TT_CMPXCHG ? uses | WRITES_SRC : uses;
	}
}

static unsigned uses_of(const struct tutti_vm_insn *insn)
{
	switch (TT_CLASS(insn->code)) {
	case TT_ALU:
	case TT_ALU64: return uses_of_alu(insn);
	case TT_JMP:
	case TT_JMP32: return uses_of_jump(insn->code);
	default: return uses_of_memory(insn);
	}
}

static int unknown(const struct tutti_vm_object *object, uint32_t index,
		   struct tutti_vm_error *error)
{
	uint8_t code = object->insns[index].code;

	if (code == (TT_JMP | TT_CALL | TT_X))
		return tt_vm_fail(error, -EACCES, object, (int32_t)index, -1,
				  "a call by register is not taken (call the function by name)");
	if (TT_CLASS(code) == TT_LD && (TT_MODE(code) == 0x20 || TT_MODE(code) == 0x40))
		return tt_vm_fail(error, -EACCES, object, (int32_t)index, -1,
				  "the old packet load 0x%02x is not taken (load by an address)",
				  code);
	return tt_vm_fail(error, -EACCES, object, (int32_t)index, -1,
			  "code 0x%02x is no instruction (compile for -target bpf, -mcpu=v4 "
			  "or older)",
			  code);
}

/* Fields that are used, but hold what the code has no meaning for. */
static int check_values(const struct tutti_vm_object *object, uint32_t index,
			struct tutti_vm_error *error)
{
	const struct tutti_vm_insn *insn = &object->insns[index];
	uint8_t class = TT_CLASS(insn->code), op = TT_OP(insn->code);
	bool alu = class == TT_ALU || class == TT_ALU64;

	if (alu && (op == TT_DIV || op == TT_MOD) && insn->off != 0 && insn->off != 1)
		return tt_vm_fail(error, -EACCES, object, (int32_t)index, -1,
				  "offset %d of a division (0: unsigned, 1: signed)", insn->off);
	if (alu && op == TT_MOV && TT_SRC(insn->code) == TT_X && insn->off != 0 && insn->off != 8 &&
	    insn->off != 16 && (insn->off != 32 || class == TT_ALU))
		return tt_vm_fail(error, -EACCES, object, (int32_t)index, -1,
				  "offset %d of a move (0: plain; 8, 16%s: from so many bits)",
				  insn->off, class == TT_ALU ? "" : ", 32");
	if (alu && op == TT_END && insn->imm != 16 && insn->imm != 32 && insn->imm != 64)
		return tt_vm_fail(error, -EACCES, object, (int32_t)index, -1,
				  "a byte swap of %d bits (16, 32 or 64)", insn->imm);
	if (class == TT_STX && TT_MODE(insn->code) == TT_ATOMIC) {
		switch (insn->imm & ~TT_FETCH) {
		case TT_ADD:
		case TT_OR:
		case TT_AND:
		case TT_XOR: return 0;
		case TT_XCHG & ~TT_FETCH:
		case TT_CMPXCHG & ~TT_FETCH:
			if (insn->imm & TT_FETCH)
				return 0;
			return tt_vm_fail(error, -EACCES, object, (int32_t)index, -1,
					  "exchange without the fetch flag (set bit 0 of the "
					  "immediate)");
		default:
			return tt_vm_fail(error, -EACCES, object, (int32_t)index, -1,
					  "0x%x is no atomic operation (add, or, and, xor, xchg, "
					  "cmpxchg)",
					  (unsigned)insn->imm);
		}
	}
	if (insn->code == (TT_JMP | TT_CALL)) {
		uint8_t how = tt_vm_src(insn);

		if (how > TT_CALL_EXTERN ||
		    (how == TT_CALL_EXTERN && (uint32_t)insn->imm >= object->n_externs))
			return tt_vm_fail(error, -EACCES, object, (int32_t)index, -1,
					  "a call of kind %u (helpers and functions of this object "
					  "can be called)",
					  how);
	}
	return 0;
}

static int check_wide(const struct tutti_vm_object *object, uint32_t index,
		      struct tutti_vm_error *error)
{
	const struct tutti_vm_insn *insn = &object->insns[index];
	uint8_t how = tt_vm_src(insn);

	if (index + 1 >= object->n_insns)
		return tt_vm_fail(
			error, -EACCES, object, (int32_t)index, -1,
			"the second half of this wide instruction is missing (two slots)");
	if (insn[1].code || insn[1].regs || insn[1].off)
		return tt_vm_fail(error, -EACCES, object, (int32_t)index + 1, -1,
				  "the second half of a wide instruction has more than an "
				  "immediate (make the rest zero)");
	if (how > TT_WIDE_MAP)
		return tt_vm_fail(error, -EACCES, object, (int32_t)index, -1,
				  "a wide instruction of kind %u (0: number, 1: map)", how);
	if (how == TT_WIDE_MAP && ((uint32_t)insn->imm >= object->n_maps || insn[1].imm))
		return tt_vm_fail(error, -EACCES, object, (int32_t)index, -1,
				  "map %d is not there (the object has %u)", insn->imm,
				  object->n_maps);
	return 0;
}

int tt_vm_check_insn(const struct tutti_vm_object *object, uint32_t index, unsigned *ret_slots,
		     struct tutti_vm_error *error)
{
	const struct tutti_vm_insn *insn = &object->insns[index];
	unsigned dst = tt_vm_dst(insn), src = tt_vm_src(insn), uses = uses_of(insn);
	const char *field = NULL;
	int err;

	if (uses & UNKNOWN)
		return unknown(object, index, error);
	if (!(uses & USES_DST) && dst)
		field = "destination register";
	else if (!(uses & USES_SRC) && src)
		field = "source register";
	else if (!(uses & USES_OFF) && insn->off)
		field = "offset";
	else if (!(uses & USES_IMM) && insn->imm)
		field = "immediate";
	if (field)
		return tt_vm_fail(error, -EACCES, object, (int32_t)index, -1,
				  "the %s is not used here and must be zero", field);
	if (dst >= TT_REGS || src >= TT_REGS)
		return tt_vm_fail(error, -EACCES, object, (int32_t)index,
				  (int32_t)(dst >= TT_REGS ? dst : src),
				  "register %u is not there (r0 to r10)",
				  dst >= TT_REGS ? dst : src);
	if (((uses & WRITES_DST) && dst == TT_FP) || ((uses & WRITES_SRC) && src == TT_FP))
		return tt_vm_fail(error, -EACCES, object, (int32_t)index, TT_FP,
				  "r10 is written, but it is the frame pointer (copy it, and write "
				  "the copy)");
	err = check_values(object, index, error);
	if (!err && insn->code == TT_LDDW)
		err = check_wide(object, index, error);
	if (err < 0)
		return err;
	*ret_slots = insn->code == TT_LDDW ? 2 : 1;
	return 0;
}
