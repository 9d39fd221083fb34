/* SPDX-License-Identifier: MIT */
#include "vm_generate.h"

#include "vm/isa.h"

#include <string.h>

enum { UNITS = 512, FUNCS = 4 };

/* Registers with a meaning, all others are any numbers. */
enum { PACKET = TT_R6, MAPS = TT_R7, STACK = TT_R8 };

struct generator {
	const uint8_t *bytes;
	size_t size;
	const struct generate_options *options;
	struct tutti_vm_insn *insns;
	uint32_t n;
	uint32_t units[UNITS]; /* where jumps may lead, of the function being made */
	uint32_t n_units;
	uint32_t jumps[UNITS]; /* whose targets are open */
	uint32_t n_jumps;
	uint32_t calls[UNITS]; /* local, with the function's number in imm */
	uint32_t n_calls;
	uint32_t starts[FUNCS];
	unsigned func, n_funcs;
	int frame; /* bytes that a function uses of its own */
};

/* Linux has 512 bytes for all functions together, that of FUNCS calls included. */
enum { BOUNDED_FRAME = 96 };

static unsigned byte(struct generator *g)
{
	if (!g->size)
		return 0;
	g->size--;
	return *g->bytes++;
}

static unsigned below(struct generator *g, unsigned limit)
{
	return (byte(g) | byte(g) << 8) % limit;
}

static bool one_in(struct generator *g, unsigned n)
{
	return byte(g) % n == 1;
}

static void put(struct generator *g, unsigned code, unsigned dst, unsigned src, int off,
		int32_t imm)
{
	g->insns[g->n++] = (struct tutti_vm_insn){.code = (uint8_t)code,
						  .regs = (uint8_t)(dst | src << 4),
						  .off = (int16_t)off,
						  .imm = imm};
}

/* Numbers that arithmetic trips over. */
static int64_t number(struct generator *g)
{
	static const int64_t numbers[] = {0,
					  1,
					  -1,
					  2,
					  7,
					  8,
					  31,
					  32,
					  33,
					  63,
					  64,
					  255,
					  256,
					  4096,
					  INT16_MAX,
					  INT16_MIN,
					  UINT16_MAX,
					  INT32_MAX,
					  INT32_MIN,
					  UINT32_MAX,
					  1LL << 32,
					  INT64_MAX,
					  INT64_MIN,
					  0x0123456789abcdef,
					  (int64_t)0xfedcba9876543210};
	unsigned kind = byte(g);
	int64_t value = 0;

	if (kind & 1)
		return numbers[(kind >> 1) % (sizeof numbers / sizeof *numbers)];
	for (int i = 0; i < 8; i++)
		value = (int64_t)((uint64_t)value << 8 | byte(g));
	return value >> kind % 64;
}

static void set_number(struct generator *g, unsigned reg)
{
	int64_t value = number(g);

	if (value == (int32_t)value && byte(g) & 1) {
		put(g, TT_ALU64 | TT_MOV | TT_K, reg, 0, 0, (int32_t)value);
		return;
	}
	put(g, TT_LDDW, reg, 0, 0, (int32_t)value);
	put(g, 0, 0, 0, 0, (int32_t)(value >> 32));
}

/* A register for numbers: not one of those with a meaning. */
static unsigned any(struct generator *g)
{
	static const uint8_t regs[] = {TT_R0, TT_R1, TT_R2, TT_R3, TT_R4, TT_R5, TT_R9};

	return regs[byte(g) % sizeof regs];
}

static unsigned source(struct generator *g)
{
	return g->options->bounded ? any(g) : one_in(g, 16) ? byte(g) % TT_REGS : any(g);
}

static void put_alu(struct generator *g)
{
	static const uint8_t ops[] = {TT_ADD, TT_SUB, TT_MUL, TT_DIV, TT_OR,  TT_AND,  TT_LSH,
				      TT_RSH, TT_NEG, TT_MOD, TT_XOR, TT_MOV, TT_ARSH, TT_END};
	unsigned op = ops[byte(g) % sizeof ops], class = byte(g) & 1 ? TT_ALU64 : TT_ALU;
	unsigned dst = any(g), form = byte(g) & 1 ? TT_X : TT_K;
	static const uint8_t widths[] = {16, 32, 64};
	int off = 0;

	if (op == TT_NEG) {
		put(g, class | op, dst, 0, 0, 0);
		return;
	}
	if (op == TT_END) {
		put(g, class | op | (class == TT_ALU64 ? TT_K : form), dst, 0, 0,
		    widths[byte(g) % 3]);
		return;
	}
	if ((op == TT_DIV || op == TT_MOD) && one_in(g, 2))
		off = !g->options->unsigned_only;
	if (op == TT_MOV && form == TT_X && one_in(g, 2))
		off = 8 << byte(g) % (class == TT_ALU64 ? 3 : 2);
	if (form == TT_X)
		put(g, class | op | TT_X, dst, off ? any(g) : source(g), off, 0);
	else
		put(g, class | op | TT_K, dst, 0, off, (int32_t)number(g));
	/* Other machines refuse these; ours has a meaning for them. */
	if (g->options->bounded && form == TT_K) {
		struct tutti_vm_insn *last = &g->insns[g->n - 1];
		int width = class == TT_ALU64 ? 64 : 32;

		if (op == TT_LSH || op == TT_RSH || op == TT_ARSH)
			last->imm &= width - 1;
		if ((op == TT_DIV || op == TT_MOD) && !last->imm)
			last->imm = 3;
	}
}

/* Which register, and how far into what lies there. */
static unsigned place(struct generator *g, unsigned bytes, int *ret_off)
{
	unsigned kind = byte(g) % 8, limit;
	bool astray = !g->options->bounded && !g->func && one_in(g, 32);

	if (!g->options->bounded && one_in(g, 24)) {
		/* Anywhere at all: a number that the verifier cannot know. */
		put(g, TT_LDX | TT_MEM | TT_DW, TT_R9, PACKET, (int)below(g, GENERATE_PACKET - 8),
		    0);
		*ret_off = (int16_t)(byte(g) << 8 | byte(g));
		return TT_R9;
	}
	if (kind < 4) {
		limit = g->func	   ? (unsigned)g->frame / 2 /* see put_func */
			: kind < 3 ? GENERATE_PACKET
				   : GENERATE_MAPS;
	} else if (kind < 6) {
		/* Own frame, by the frame pointer: never astray, it would be refused. */
		*ret_off = -(int)(below(g, (unsigned)g->frame / 8) + 1) * 8;
		return TT_FP;
	} else {
		*ret_off = (int)below(g, 64 - bytes);
		return STACK;
	}
	*ret_off = (int)below(g, limit - bytes + 1) +
		   (astray ? (int)below(g, 16) - 8 + (int)limit : 0);
	if (g->options->bounded)
		*ret_off &= -(int)bytes;
	return kind < 3 ? PACKET : MAPS;
}

static void put_access(struct generator *g)
{
	static const uint8_t sizes[] = {TT_W, TT_H, TT_B, TT_DW};
	unsigned size = sizes[byte(g) % 4], kind = byte(g) % 8, reg;
	int off;

	reg = place(g, tt_vm_bytes((uint8_t)size), &off);
	if (g->options->bounded && reg == STACK)
		off &= -(int)tt_vm_bytes((uint8_t)size);
	if (kind < 3)
		put(g, TT_LDX | TT_MEM | size, any(g), reg, off, 0);
	else if (kind == 3 && size != TT_DW)
		put(g, TT_LDX | TT_MEMSX | size, any(g), reg, off, 0);
	else if (kind < 6)
		put(g, TT_STX | TT_MEM | size, reg, source(g), off, 0);
	else
		put(g, TT_ST | TT_MEM | size, reg, 0, off, (int32_t)number(g));
}

static void put_atomic(struct generator *g)
{
	static const uint8_t ops[] = {TT_ADD,
				      TT_OR,
				      TT_AND,
				      TT_XOR,
				      TT_ADD | TT_FETCH,
				      TT_OR | TT_FETCH,
				      TT_AND | TT_FETCH,
				      TT_XOR | TT_FETCH,
				      TT_XCHG,
				      TT_CMPXCHG};
	unsigned size = byte(g) & 1 ? TT_DW : TT_W, reg;
	int off;

	reg = place(g, tt_vm_bytes((uint8_t)size), &off);
	if (reg == TT_FP || reg == STACK || g->func || g->options->bounded || !one_in(g, 8))
		off &= -8;
	put(g, TT_STX | TT_ATOMIC | size, reg, any(g), off, ops[byte(g) % sizeof ops]);
}

static void put_jump(struct generator *g)
{
	static const uint8_t ops[] = {TT_JA,   TT_JEQ,	TT_JGT, TT_JGE, TT_JSET, TT_JNE,
				      TT_JSGT, TT_JSGE, TT_JLT, TT_JLE, TT_JSLT, TT_JSLE};
	unsigned op = ops[byte(g) % sizeof ops], class = byte(g) & 1 ? TT_JMP : TT_JMP32;

	if (g->n_jumps == UNITS)
		return;
	/* So that what follows is reached. */
	if (op == TT_JA && g->options->bounded)
		put(g, TT_JMP | TT_JGT | TT_X, any(g), any(g), 1, 0);
	g->jumps[g->n_jumps++] = g->n;
	/* The target's unit is kept where the offset will be. */
	if (op == TT_JA)
		put(g, class | op, 0, 0, 0, (int32_t)(byte(g) << 8 | byte(g)));
	else if (byte(g) & 1)
		put(g, class | op | TT_X, any(g), source(g), byte(g) << 7 | byte(g), 0);
	else
		put(g, class | op | TT_K, any(g), 0, byte(g) << 7 | byte(g), (int32_t)number(g));
}

/* What a call leaves unset. */
static void set_again(struct generator *g)
{
	for (unsigned reg = TT_R1; reg <= TT_R5; reg++)
		put(g, TT_ALU64 | TT_MOV | (byte(g) & 1 ? TT_X : TT_K), reg, 0, 0, 0);
	for (uint32_t i = g->n - 5; i < g->n; i++) {
		if (!TT_SRC(g->insns[i].code))
			g->insns[i].imm = (int8_t)byte(g);
		else
			g->insns[i].regs |= TT_R9 << 4;
	}
}

static void put_local_call(struct generator *g, unsigned to)
{
	g->calls[g->n_calls++] = g->n;
	put(g, TT_JMP | TT_CALL, 0, TT_CALL_LOCAL, 0, (int32_t)to);
	set_again(g);
}

static void put_call(struct generator *g)
{
	int id = byte(g) % (GENERATE_HELPERS + 1);
	int off = 0;

	if (id && g->options->helpers) {
		unsigned where = TT_R1;

		if (id > 1) {
			put(g, TT_ALU64 | TT_MOV | TT_X, where, place(g, 8, &off), 0, 0);
			put(g, TT_ALU64 | TT_ADD | TT_K, where, 0, 0, off);
			put(g, TT_ALU64 | TT_MOV | TT_K, TT_R2, 0, 0,
			    one_in(g, 8) ? (int)byte(g) : 8);
		}
		put(g, TT_JMP | TT_CALL, 0, 0, 0, id);
		set_again(g);
	} else if (g->func + 1 < g->n_funcs && g->n_calls < UNITS - FUNCS) {
		put_local_call(g, g->func + 1 + byte(g) % (g->n_funcs - g->func - 1));
	}
}

/* One to three instructions that make a new address of a good one. */
static void put_address(struct generator *g)
{
	unsigned reg = any(g), index = any(g);
	bool bounded = g->options->bounded;

	if (reg == index || (bounded && (g->func || reg == TT_R9)))
		return;
	put(g, TT_ALU64 | TT_MOV | TT_X, reg, byte(g) & 1 ? PACKET : MAPS, 0, 0);
	put(g, TT_ALU64 | TT_AND | TT_K, index, 0, 0,
	    !g->func && !bounded && one_in(g, 8) ? 0x1ff : 0x7f);
	put(g, TT_ALU64 | TT_ADD | TT_X, reg, index, 0, 0);
	for (unsigned i = byte(g) % 4; i > 0; i--)
		put(g, TT_LDX | TT_MEM | (byte(g) & 1 ? TT_B : TT_DW), TT_R9, reg, byte(g) % 64, 0);
	if (byte(g) & 1)
		put(g, TT_STX | TT_MEM | TT_W, reg, TT_R9, byte(g) % 64, 0);
	if (bounded) /* other machines let nobody reckon with addresses */
		set_number(g, reg);
}

static void close_jumps(struct generator *g)
{
	for (uint32_t i = 0; i < g->n_jumps; i++) {
		struct tutti_vm_insn *insn = &g->insns[g->jumps[i]];
		bool wide = insn->code == (TT_JMP32 | TT_JA), always = TT_OP(insn->code) == TT_JA;
		uint32_t first = 0, pick = always ? (uint32_t)insn->imm : (uint16_t)insn->off;
		int32_t distance;

		if (g->options->bounded)
			while (first < g->n_units - 1 && g->units[first] <= g->jumps[i])
				first++;
		pick = g->units[first + pick % (g->n_units - first)];
		distance = (int32_t)pick - (int32_t)g->jumps[i] - 1;
		insn->off = wide ? 0 : (int16_t)distance;
		insn->imm = wide ? distance : always ? 0 : insn->imm;
	}
	g->n_jumps = 0;
}

static void put_func(struct generator *g, unsigned n_units)
{
	g->starts[g->func] = g->n;
	g->n_units = 0;
	/* r1: packet in the entry. Callees get numbers and make their addresses themselves. */
	if (!g->func)
		put(g, TT_ALU64 | TT_MOV | TT_X, PACKET, TT_R1, 0, 0);
	if (!g->func)
		put(g, TT_ALU64 | TT_MOV | TT_X, MAPS, TT_R2, 0, 0);
	for (unsigned reg = TT_R0; reg <= TT_R9; reg++)
		if (reg == STACK) {
			put(g, TT_ALU64 | TT_MOV | TT_X, reg, TT_FP, 0, 0);
			put(g, TT_ALU64 | TT_ADD | TT_K, reg, 0, 0, -64);
		} else if (g->func && reg >= TT_R1 && reg <= TT_R5) {
			continue;
		} else if (g->func && (reg == PACKET || reg == MAPS)) {
			put(g, TT_ALU64 | TT_MOV | TT_X, reg, TT_FP, 0, 0);
			put(g, TT_ALU64 | TT_ADD | TT_K, reg, 0, 0, -g->frame);
		} else if (reg != PACKET && reg != MAPS) {
			set_number(g, reg);
		}
	/* Stack that is read before it is written would hold what the last run left. */
	for (int off = -g->frame; off < 0; off += 8)
		put(g, TT_ST | TT_MEM | TT_DW, TT_FP, 0, off, off);
	while (n_units-- && g->n < GENERATE_INSNS * (g->func + 1) / (FUNCS + 1) - 64) {
		unsigned kind = byte(g) % 16;

		g->units[g->n_units++] = g->n;
		if (kind < 6)
			put_alu(g);
		else if (kind < 9)
			put_access(g);
		else if (kind < 10)
			put_atomic(g);
		else if (kind < 12)
			put_jump(g);
		else if (kind < 13)
			put_address(g);
		else if (kind < 14)
			put_call(g);
		else
			set_number(g, any(g));
	}
	g->units[g->n_units++] = g->n;
	if (g->options->bounded && g->func + 1 < g->n_funcs)
		put_local_call(g, g->func + 1);
	/* All that there is to see at the end. */
	if (!g->func)
		for (unsigned reg = TT_R1; reg <= TT_R9; reg++)
			if (reg < PACKET || reg == TT_R9) {
				put(g, TT_ALU64 | TT_ADD | TT_X, TT_R0, reg, 0, 0);
				put(g, TT_ALU64 | TT_MUL | TT_K, TT_R0, 0, 0, 0x01000193);
			}
	put(g, TT_JMP | TT_EXIT, 0, 0, 0, 0);
	close_jumps(g);
}

uint32_t generate(const uint8_t *bytes, size_t size, const struct generate_options *options,
		  struct tutti_vm_insn *ret_insns)
{
	struct generator g = {.bytes = bytes, .size = size, .options = options, .insns = ret_insns};

	g.frame = options->bounded ? BOUNDED_FRAME : TUTTI_VM_FRAME_BYTES;
	g.n_funcs = 1 + byte(&g) % FUNCS;
	for (g.func = 0; g.func < g.n_funcs; g.func++)
		put_func(&g, 4 + byte(&g) % (UNITS / 8));
	for (uint32_t i = 0; i < g.n_calls; i++)
		g.insns[g.calls[i]].imm =
			(int32_t)g.starts[g.insns[g.calls[i]].imm] - (int32_t)g.calls[i] - 1;
	return g.n;
}
