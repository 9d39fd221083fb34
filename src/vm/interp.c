/* SPDX-License-Identifier: MIT */
/*
 * The interpreter: threaded code, each op a label. It checks every access,
 * those that the verifier has proved as well.
 *
 * Safety rests on what the verifier has checked of the ops: register numbers,
 * targets of jumps, helper indices, that no way falls off the end. Memory and
 * the budget are checked here.
 */
#include "base/atomic.h"
#include "vm/vm_int.h"

#include <string.h>

/* Signed arithmetic as RFC 9669 has it: by zero, and the smallest number by -1. */
static uint64_t sdiv64(int64_t a, int64_t b)
{
	return !b ? 0 : b == -1 ? -(uint64_t)a : (uint64_t)(a / b);
}

static uint64_t smod64(int64_t a, int64_t b)
{
	return !b ? (uint64_t)a : b == -1 ? 0 : (uint64_t)(a % b);
}

static uint32_t sdiv32(int32_t a, int32_t b)
{
	return !b ? 0 : b == -1 ? -(uint32_t)a : (uint32_t)(a / b);
}

static uint32_t smod32(int32_t a, int32_t b)
{
	return !b ? (uint32_t)a : b == -1 ? 0 : (uint32_t)(a % b);
}

static uint64_t swap(uint64_t value, int64_t bits)
{
	return bits == 16   ? __builtin_bswap16((uint16_t)value)
	       : bits == 32 ? __builtin_bswap32((uint32_t)value)
			    : __builtin_bswap64(value);
}

static uint64_t lower(uint64_t value, int64_t bits)
{
	return bits == 64 ? value : value & ((1ULL << bits) - 1);
}

/* Atomic operations; src takes the old value where the op says so, r0 at a compare and exchange. */
static void atomic64(uint64_t *p, int64_t op, uint64_t *src, uint64_t *r0)
{
	uint64_t old;

	switch (op) {
	case TT_XCHG: *src = tt_exchange(p, *src); return;
	case TT_CMPXCHG: (void)tt_cas(p, r0, *src); return;
	case TT_ADD:
	case TT_ADD | TT_FETCH: old = tt_fetch_add(p, *src); break;
	case TT_OR:
	case TT_OR | TT_FETCH: old = tt_fetch_or(p, *src); break;
	case TT_AND:
	case TT_AND | TT_FETCH: old = tt_fetch_and(p, *src); break;
	default: old = tt_fetch_xor(p, *src); break;
	}
	if (op & TT_FETCH)
		*src = old;
}

static void atomic32(uint32_t *p, int64_t op, uint64_t *src, uint64_t *r0)
{
	uint32_t value = (uint32_t)*src, expected = (uint32_t)*r0, old;

	switch (op) {
	case TT_XCHG: *src = tt_exchange(p, value); return;
	case TT_CMPXCHG:
		(void)tt_cas(p, &expected, value);
		*r0 = expected;
		return;
	case TT_ADD:
	case TT_ADD | TT_FETCH: old = tt_fetch_add(p, value); break;
	case TT_OR:
	case TT_OR | TT_FETCH: old = tt_fetch_or(p, value); break;
	case TT_AND:
	case TT_AND | TT_FETCH: old = tt_fetch_and(p, value); break;
	default: old = tt_fetch_xor(p, value); break;
	}
	if (op & TT_FETCH)
		*src = old;
}

static bool fault(struct tutti_vm_context *context, enum tutti_vm_fault_kind kind, uint32_t pc,
		  uint64_t address, unsigned bytes)
{
	context->result = (struct tutti_vm_result){
		.fault = kind, .pc = pc, .address = address, .bytes = bytes};
	return false;
}

#define DST r[op->dst]
#define SRC r[op->src]
#define IMM ((uint64_t)op->imm)
/* Every instruction goes by one of these; count.c has its own step. */
#ifndef TT_VM_STEP
#define TT_VM_STEP
#endif
#define GO                                                                                         \
	do {                                                                                       \
		TT_VM_STEP;                                                                        \
		goto *labels[op->op];                                                              \
	} while (0)
#define NEXT                                                                                       \
	do {                                                                                       \
		op++;                                                                              \
		GO;                                                                                \
	} while (0)

/* An op on 64 bits and on 32, with a register and with a constant. */
#define ALU(NAME, EXPR64, EXPR32)                                                                  \
	NAME##_64_x:                                                                               \
	{                                                                                          \
		uint64_t a = DST, b = SRC;                                                         \
		DST = (EXPR64);                                                                    \
		NEXT;                                                                              \
	}                                                                                          \
	NAME##_64_k:                                                                               \
	{                                                                                          \
		uint64_t a = DST, b = IMM;                                                         \
		DST = (EXPR64);                                                                    \
		NEXT;                                                                              \
	}                                                                                          \
	NAME##_32_x:                                                                               \
	{                                                                                          \
		uint32_t a = (uint32_t)DST, b = (uint32_t)SRC;                                     \
		DST = (uint32_t)(EXPR32);                                                          \
		NEXT;                                                                              \
	}                                                                                          \
	NAME##_32_k:                                                                               \
	{                                                                                          \
		uint32_t a = (uint32_t)DST, b = (uint32_t)IMM;                                     \
		DST = (uint32_t)(EXPR32);                                                          \
		NEXT;                                                                              \
	}

#define JUMP_IF(COND)                                                                              \
	do {                                                                                       \
		if (COND)                                                                          \
			goto taken;                                                                \
		NEXT;                                                                              \
	} while (0)

#define JUMP(NAME, T64, T32, OPERATOR)                                                             \
	NAME##_64_x : JUMP_IF((T64)DST OPERATOR(T64) SRC);                                         \
	NAME##_64_k : JUMP_IF((T64)DST OPERATOR(T64) IMM);                                         \
	NAME##_32_x : JUMP_IF((T32)DST OPERATOR(T32) SRC);                                         \
	NAME##_32_k : JUMP_IF((T32)DST OPERATOR(T32) IMM);

/* The hint first: it is right nearly always. */
#define RESOLVE(BASE, LOG2, LIMIT, WRITE)                                                          \
	do {                                                                                       \
		const struct tt_vm_win *win = &context->win[op->window];                           \
		uint64_t off;                                                                      \
                                                                                                   \
		address = (BASE) + (uint64_t)(int64_t)op->off;                                     \
		off = address - ((uint64_t)op->window << TUTTI_VM_WINDOW_SHIFT);                   \
		p = off < win->LIMIT[LOG2] ? win->base + off                                       \
					   : tt_vm_resolve(context, address, LOG2, WRITE);         \
		if (__builtin_expect(!p, 0)) {                                                     \
			bytes = 1u << (LOG2);                                                      \
			goto bad_##LIMIT;                                                          \
		}                                                                                  \
	} while (0)

#define LOAD(NAME, LOG2, TYPE, AS)                                                                 \
	NAME : {                                                                                   \
		TYPE value;                                                                        \
                                                                                                   \
		RESOLVE(SRC, LOG2, read_limit, false);                                             \
		memcpy(&value, p, sizeof value);                                                   \
		DST = (uint64_t)(AS)value;                                                         \
		NEXT;                                                                              \
	}

#define STORE(NAME, LOG2, TYPE, WHAT)                                                              \
	NAME : {                                                                                   \
		TYPE value = (TYPE)(WHAT);                                                         \
                                                                                                   \
		RESOLVE(DST, LOG2, write_limit, true);                                             \
		memcpy(p, &value, sizeof value);                                                   \
		NEXT;                                                                              \
	}

#define LABELS_ALU(CODE, NAME)                                                                     \
	[TT_ALU64 | TT_X | (CODE)] = &&NAME##_64_x, [TT_ALU64 | TT_K | (CODE)] = &&NAME##_64_k,    \
			   [TT_ALU | TT_X | (CODE)] = &&NAME##_32_x,                               \
			   [TT_ALU | TT_K | (CODE)] = &&NAME##_32_k
#define LABELS_JUMP(CODE, NAME)                                                                    \
	[TT_JMP | TT_X | (CODE)] = &&NAME##_64_x, [TT_JMP | TT_K | (CODE)] = &&NAME##_64_k,        \
			 [TT_JMP32 | TT_X | (CODE)] = &&NAME##_32_x,                               \
			 [TT_JMP32 | TT_K | (CODE)] = &&NAME##_32_k

/* The table says first what holds for all codes, then what for each. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
bool tt_vm_interpret(struct tutti_vm_context *context, uint32_t pc)
{
	static const void *const labels[256] = {
		[0 ... 255] = &&unknown,
		LABELS_ALU(TT_ADD, add),
		LABELS_ALU(TT_SUB, sub),
		LABELS_ALU(TT_MUL, mul),
		LABELS_ALU(TT_DIV, div),
		LABELS_ALU(TT_OR, or),
		LABELS_ALU(TT_AND, and),
		LABELS_ALU(TT_LSH, lsh),
		LABELS_ALU(TT_RSH, rsh),
		LABELS_ALU(TT_MOD, mod),
		LABELS_ALU(TT_XOR, xor),
		LABELS_ALU(TT_MOV, mov),
		LABELS_ALU(TT_ARSH, arsh),
		[TT_SDIV64_X] = &&sdiv_64_x,
		[TT_SDIV64_K] = &&sdiv_64_k,
		[TT_SDIV32_X] = &&sdiv_32_x,
		[TT_SDIV32_K] = &&sdiv_32_k,
		[TT_SMOD64_X] = &&smod_64_x,
		[TT_SMOD64_K] = &&smod_64_k,
		[TT_SMOD32_X] = &&smod_32_x,
		[TT_SMOD32_K] = &&smod_32_k,
		[TT_MOVSX8_32] = &&movsx8_32,
		[TT_MOVSX16_32] = &&movsx16_32,
		[TT_MOVSX8_64] = &&movsx8_64,
		[TT_MOVSX16_64] = &&movsx16_64,
		[TT_MOVSX32_64] = &&movsx32_64,
		[TT_ALU64 | TT_NEG] = &&neg64,
		[TT_ALU | TT_NEG] = &&neg32,
		[TT_ALU | TT_END | TT_K] = &&to_little,
		[TT_ALU | TT_END | TT_X] = &&to_big,
		[TT_ALU64 | TT_END] = &&to_big,
		[TT_LDDW] = &&lddw,
		LABELS_JUMP(TT_JEQ, jeq),
		LABELS_JUMP(TT_JNE, jne),
		LABELS_JUMP(TT_JGT, jgt),
		LABELS_JUMP(TT_JGE, jge),
		LABELS_JUMP(TT_JLT, jlt),
		LABELS_JUMP(TT_JLE, jle),
		LABELS_JUMP(TT_JSGT, jsgt),
		LABELS_JUMP(TT_JSGE, jsge),
		LABELS_JUMP(TT_JSLT, jslt),
		LABELS_JUMP(TT_JSLE, jsle),
		LABELS_JUMP(TT_JSET, jset),
		[TT_JMP | TT_JA] = &&taken,
		[TT_JMP32 | TT_JA] = &&taken,
		[TT_JMP | TT_CALL] = &&call_helper,
		[TT_CALL_LOCAL_OP] = &&call_local,
		[TT_JMP | TT_EXIT] = &&leave,
		[TT_LDX | TT_MEM | TT_B] = &&load8,
		[TT_LDX | TT_MEM | TT_H] = &&load16,
		[TT_LDX | TT_MEM | TT_W] = &&load32,
		[TT_LDX | TT_MEM | TT_DW] = &&load64,
		[TT_LDX | TT_MEMSX | TT_B] = &&load8s,
		[TT_LDX | TT_MEMSX | TT_H] = &&load16s,
		[TT_LDX | TT_MEMSX | TT_W] = &&load32s,
		[TT_STX | TT_MEM | TT_B] = &&store8,
		[TT_STX | TT_MEM | TT_H] = &&store16,
		[TT_STX | TT_MEM | TT_W] = &&store32,
		[TT_STX | TT_MEM | TT_DW] = &&store64,
		[TT_ST | TT_MEM | TT_B] = &&put8,
		[TT_ST | TT_MEM | TT_H] = &&put16,
		[TT_ST | TT_MEM | TT_W] = &&put32,
		[TT_ST | TT_MEM | TT_DW] = &&put64,
		[TT_STX | TT_ATOMIC | TT_W] = &&atomic_32,
		[TT_STX | TT_ATOMIC | TT_DW] = &&atomic_64,
	};
	const struct tt_vm_image *image = context->program->image;
	const struct tt_vm_op *ops = (const void *)((const uint8_t *)image + image->ops_off);
	const struct tt_vm_op *op = ops + pc;
	uint64_t budget = context->budget;
	uint32_t depth = context->depth;
	uint64_t r[16]; /* as many as a field has values, so that none can miss it */
	uint64_t address = 0;
	unsigned bytes = 0;
	uint8_t *p;

	memcpy(r, context->regs, sizeof context->regs);
	r[TT_FP] = tutti_vm_address(TUTTI_VM_STACK) + TT_STACK_BYTES -
		   (uint64_t)depth * TUTTI_VM_FRAME_BYTES;
	GO;

	ALU(add, a + b, a + b)
	ALU(sub, a - b, a - b)
	ALU(mul, a * b, a * b)
	ALU(div, b ? a / b : 0, b ? a / b : 0)
	ALU(mod, b ? a % b : a, b ? a % b : a)
	ALU(or, a | b, a | b)
	ALU(and, a & b, a & b)
	ALU(xor, a ^ b, a ^ b)
	ALU(lsh, a << (b & 63), a << (b & 31))
	ALU(rsh, a >> (b & 63), a >> (b & 31))
	ALU(arsh, (uint64_t)((int64_t)a >> (b & 63)), (int32_t)a >> (b & 31))
	ALU(mov, ((void)a, b), ((void)a, b))
	ALU(sdiv, sdiv64((int64_t)a, (int64_t)b), sdiv32((int32_t)a, (int32_t)b))
	ALU(smod, smod64((int64_t)a, (int64_t)b), smod32((int32_t)a, (int32_t)b))

movsx8_32:
	DST = (uint32_t)(int8_t)SRC;
	NEXT;
movsx16_32:
	DST = (uint32_t)(int16_t)SRC;
	NEXT;
movsx8_64:
	DST = (uint64_t)(int8_t)SRC;
	NEXT;
movsx16_64:
	DST = (uint64_t)(int16_t)SRC;
	NEXT;
movsx32_64:
	DST = (uint64_t)(int32_t)SRC;
	NEXT;
neg64:
	DST = -DST;
	NEXT;
neg32:
	DST = (uint32_t) - (uint32_t)DST;
	NEXT;
to_little:
	DST = lower(DST, op->imm);
	NEXT;
to_big:
	DST = swap(DST, op->imm);
	NEXT;
lddw:
	DST = IMM;
	op++;
	NEXT;

	JUMP(jeq, uint64_t, uint32_t, ==)
	JUMP(jne, uint64_t, uint32_t, !=)
	JUMP(jgt, uint64_t, uint32_t, >)
	JUMP(jge, uint64_t, uint32_t, >=)
	JUMP(jlt, uint64_t, uint32_t, <)
	JUMP(jle, uint64_t, uint32_t, <=)
	JUMP(jsgt, int64_t, int32_t, >)
	JUMP(jsge, int64_t, int32_t, >=)
	JUMP(jslt, int64_t, int32_t, <)
	JUMP(jsle, int64_t, int32_t, <=)
	JUMP(jset, uint64_t, uint32_t, &)

taken : {
	const struct tt_vm_op *target = ops + op->off;

	if (target <= op) {
		uint64_t cost = (uint64_t)(op - target) + 1;

		if (budget < cost)
			goto out_of_budget;
		budget -= cost;
	}
	op = target;
	GO;
}

call_local:
	if (budget < IMM)
		goto out_of_budget;
	if (depth + 1 >= TUTTI_VM_MAX_DEPTH) {
		fault(context, TUTTI_VM_FAULT_DEPTH, (uint32_t)(op - ops), 0, 0);
		goto stop;
	}
	budget -= IMM;
	context->frames[depth] = (struct tt_vm_frame){
		.saved = {r[TT_R6], r[TT_R7], r[TT_R8], r[TT_R9]}, .pc = (uint32_t)(op - ops) + 1};
	depth++;
	r[TT_FP] -= TUTTI_VM_FRAME_BYTES;
	op = ops + op->off;
	GO;

leave:
	if (!depth) {
		context->regs[TT_R0] = r[TT_R0];
		context->budget = budget;
		return true;
	}
	depth--;
	r[TT_FP] += TUTTI_VM_FRAME_BYTES;
	memcpy(&r[TT_R6], context->frames[depth].saved, sizeof context->frames[depth].saved);
	op = ops + context->frames[depth].pc;
	GO;

call_helper : {
	uint64_t cost = context->program->env->helpers[op->imm].cost;

	if (budget < cost)
		goto out_of_budget;
	budget -= cost;
	memcpy(context->regs, r, sizeof context->regs);
	context->budget = budget;
	context->depth = depth;
	context->pc = (uint32_t)(op - ops);
	if (!tt_vm_call_helper(context, (uint32_t)op->imm))
		return false;
	r[TT_R0] = context->regs[TT_R0];
	NEXT;
}

	LOAD(load8, 0, uint8_t, uint8_t)
	LOAD(load16, 1, uint16_t, uint16_t)
	LOAD(load32, 2, uint32_t, uint32_t)
	LOAD(load64, 3, uint64_t, uint64_t)
	LOAD(load8s, 0, int8_t, int64_t)
	LOAD(load16s, 1, int16_t, int64_t)
	LOAD(load32s, 2, int32_t, int64_t)
	STORE(store8, 0, uint8_t, SRC)
	STORE(store16, 1, uint16_t, SRC)
	STORE(store32, 2, uint32_t, SRC)
	STORE(store64, 3, uint64_t, SRC)
	STORE(put8, 0, uint8_t, IMM)
	STORE(put16, 1, uint16_t, IMM)
	STORE(put32, 2, uint32_t, IMM)
	STORE(put64, 3, uint64_t, IMM)

atomic_32:
	RESOLVE(DST, 2, write_limit, true);
	if (address & 3)
		goto bad_alignment;
	atomic32((uint32_t *)(void *)p, op->imm, &SRC, &r[TT_R0]);
	NEXT;
atomic_64:
	RESOLVE(DST, 3, write_limit, true);
	if (address & 7)
		goto bad_alignment;
	atomic64((uint64_t *)(void *)p, op->imm, &SRC, &r[TT_R0]);
	NEXT;

bad_read_limit:
	fault(context, TUTTI_VM_FAULT_READ, (uint32_t)(op - ops), address, bytes);
	goto stop;
bad_write_limit:
	fault(context, TUTTI_VM_FAULT_WRITE, (uint32_t)(op - ops), address, bytes);
	goto stop;
bad_alignment:
	fault(context, TUTTI_VM_FAULT_ALIGN, (uint32_t)(op - ops), address,
	      1u << (op->op & TT_DW ? 3 : 2));
	goto stop;
out_of_budget:
	fault(context, TUTTI_VM_FAULT_BUDGET, (uint32_t)(op - ops), 0, 0);
	goto stop;
unknown:
	fault(context, TUTTI_VM_FAULT_INSN, (uint32_t)(op - ops), 0, 0);
stop:
	memcpy(context->regs, r, sizeof context->regs);
	context->budget = budget;
	return false;
}
#pragma GCC diagnostic pop
