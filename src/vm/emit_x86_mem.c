/* SPDX-License-Identifier: MIT */
/*
 * Code for x86-64: loads, stores, atomic operations, and what of them is kept
 * in registers.
 */
#include "vm/x86_int.h"

static unsigned log2_of(uint8_t code)
{
	return (unsigned)__builtin_ctz(tt_vm_bytes(code));
}

static size_t limit_off(unsigned log2_bytes, bool write)
{
	return (write ? offsetof(struct tt_vm_win, write_limit)
		      : offsetof(struct tt_vm_win, read_limit)) +
	       log2_bytes * sizeof(uint64_t);
}

static int32_t base_field(unsigned window)
{
	return win_field(window, offsetof(struct tt_vm_win, base));
}

/* --- pins ------------------------------------------------------------------------------ */

void tt_x86_pins(struct tt_emit *e, bool r11_only)
{
	for (unsigned window = 0; window < TUTTI_VM_WINDOWS; window++)
		if (e->base_in[window] != NO_REG && (!r11_only || e->base_in[window] == R11))
			rm(e, W64, 0x8b, e->base_in[window], CONTEXT, base_field(window));
}

uint32_t tt_emit_function(struct tt_emit *e, uint32_t used, const struct tt_emit_wish *wishes,
			  unsigned n)
{
	uint8_t room[TT_REGS];
	unsigned rooms = 0;
	uint32_t granted = 0;

	/* r11 last: it is scratch now and then, and loaded again. */
	for (unsigned reg = TT_R9; reg >= TT_R1; reg--)
		if (!(used & 1u << reg))
			room[rooms++] = tt_x86_reg[reg];
	room[rooms++] = R11;
	e->group = NO_REG;
	for (unsigned window = 0; window < TUTTI_VM_WINDOWS; window++)
		e->base_in[window] = NO_REG;
	for (unsigned i = 0; i < n && i < rooms; i++) {
		if (wishes[i].kind == TT_WISH_GROUP)
			e->group = room[i];
		else
			e->base_in[wishes[i].window] = room[i];
		granted |= 1u << i;
	}
	tt_x86_pins(e, false);
	return granted;
}

/* --- where ----------------------------------------------------------------------------- */

static struct mem operand(struct tt_emit *e, const struct tt_emit_address *address, int64_t add)
{
	struct mem mem = {tt_x86_value(e, address->reg, RCX), NO_REG,
			  (int32_t)(address->off + add)};

	if (address->index != TT_REGS)
		mem.index = tt_x86_reg[address->index];
	return mem;
}

/* What the op accesses, checked; or the interpreter. */
static struct mem check(struct tt_emit *e, const struct tt_vm_op *op,
			const struct tt_emit_address *address, uint32_t pc, bool write)
{
	unsigned log2 = log2_of(op->op);
	uint8_t base = e->base_in[op->window];

	if (!op->window) {
		rx(e, W64, 0x8d, RCX, operand(e, address, 0));
		put8(e, 0xe8);
		tt_x86_wait_for(e, (write ? RESOLVE_WRITE : RESOLVE_READ) + log2, true);
		tt_x86_pins(e, true);
		tt_x86_side_exit(e, CC_AE, pc, 0);
		return (struct mem){RCX, NO_REG, 0};
	}
	rx(e, W64, 0x8d, RCX, operand(e, address, -((int64_t)op->window << TUTTI_VM_WINDOW_SHIFT)));
	rm(e, W64, 0x3b, RCX, CONTEXT, win_field(op->window, limit_off(log2, write)));
	tt_x86_side_exit(e, CC_AE, pc, 0);
	if (base != NO_REG)
		return (struct mem){base, RCX, 0};
	rm(e, W64, 0x03, RCX, CONTEXT, base_field(op->window));
	return (struct mem){RCX, NO_REG, 0};
}

static struct mem in_window(struct tt_emit *e, unsigned window, int32_t off)
{
	if (e->base_in[window] != NO_REG)
		return (struct mem){e->base_in[window], NO_REG, off};
	rm(e, W64, 0x8b, RCX, CONTEXT, base_field(window));
	return (struct mem){RCX, NO_REG, off};
}

/* The address less the window's is the distance from its first byte. */
static struct mem within(struct tt_emit *e, const struct tt_vm_op *op,
			 const struct tt_emit_address *address)
{
	struct mem mem = operand(e, address, -((int64_t)op->window << TUTTI_VM_WINDOW_SHIFT));
	uint8_t base = e->base_in[op->window];

	if (base != NO_REG && mem.index == NO_REG) {
		mem.index = base;
		return mem;
	}
	rx(e, W64, 0x8d, RCX, mem);
	if (base != NO_REG)
		return (struct mem){base, RCX, 0};
	rm(e, W64, 0x03, RCX, CONTEXT, base_field(op->window));
	return (struct mem){RCX, NO_REG, 0};
}

void tt_emit_group(struct tt_emit *e, unsigned reg, int32_t off, uint32_t bytes, unsigned window,
		   bool write, uint32_t pc)
{
	int32_t limit = win_field(window, limit_off(0, write));
	unsigned group = e->group;

	rm(e, W64, 0x8d, RCX, tt_x86_reg[reg], off - (int32_t)(window << TUTTI_VM_WINDOW_SHIFT));
	rm(e, W64, 0x3b, RCX, CONTEXT, limit);
	tt_x86_side_exit(e, CC_AE, pc, 0);
	/* The first byte is inside, so that this cannot wrap. */
	rm(e, W64, 0x8d, group, RCX, (int32_t)bytes - 1);
	rm(e, W64, 0x3b, group, CONTEXT, limit);
	tt_x86_side_exit(e, CC_AE, pc, 0);
	if (e->base_in[window] != NO_REG) {
		rx(e, W64, 0x8d, group, (struct mem){e->base_in[window], RCX, 0});
		return;
	}
	rm(e, W64, 0x8b, group, CONTEXT, base_field(window));
	rr(e, W64, 0x01, RCX, group);
}

/* --- loads and stores ------------------------------------------------------------------ */

static void load(struct tt_emit *e, uint8_t code, unsigned dst, struct mem mem)
{
	bool sign = TT_MODE(code) == TT_MEMSX;
	enum width width = sign ? W64 : W32;

	switch (TT_SIZE(code)) {
	case TT_B: rx(e, width, sign ? 0x0fbe : 0x0fb6, dst, mem); break;
	case TT_H: rx(e, width, sign ? 0x0fbf : 0x0fb7, dst, mem); break;
	case TT_W: rx(e, width, sign ? 0x63 : 0x8b, dst, mem); break;
	default: rx(e, W64, 0x8b, dst, mem); break;
	}
}

static void store(struct tt_emit *e, const struct tt_vm_op *op, struct mem mem)
{
	enum width width = (enum width)tt_vm_bytes(op->op);

	if (TT_CLASS(op->op) == TT_STX && op->src != TT_FP) {
		rx(e, width, width == W8 ? 0x88 : 0x89, tt_x86_reg[op->src], mem);
		return;
	}
	if (TT_CLASS(op->op) == TT_STX) { /* r10 itself: its value needs a register */
		rx(e, W64, 0x8d, RCX, mem);
		rx(e, width, width == W8 ? 0x88 : 0x89, tt_x86_value(e, TT_FP, R11),
		   (struct mem){RCX, NO_REG, 0});
		tt_x86_pins(e, true);
		return;
	}
	rx(e, width, width == W8 ? 0xc6 : 0xc7, 0, mem);
	put8(e, (unsigned)op->imm & 0xff);
	if (width != W8)
		put8(e, (unsigned)op->imm >> 8 & 0xff);
	if (width > W16) {
		put8(e, (unsigned)op->imm >> 16 & 0xff);
		put8(e, (unsigned)op->imm >> 24 & 0xff);
	}
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
	if (src == RAX) { /* where the old value is */
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
	unsigned src = tt_x86_value(e, op->src, R11), opcode;

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
		    const struct tt_emit_address *address)
{
	bool write = TT_CLASS(op->op) != TT_LDX;
	struct mem mem = {RBP, NO_REG, address->off};

	switch (by) {
	case TT_BY_FRAME: break;
	case TT_BY_WINDOW: mem = in_window(e, op->window, address->off); break;
	case TT_BY_WITHIN: mem = within(e, op, address); break;
	case TT_BY_GROUP: mem.base = e->group; break;
	case TT_BY_CHECK: mem = check(e, op, address, pc, write); break;
	}
	if (!write) {
		load(e, op->op, tt_x86_reg[op->dst], mem);
	} else if (TT_MODE(op->op) != TT_ATOMIC) {
		store(e, op, mem);
	} else {
		if (mem.base != RCX || mem.index != NO_REG || mem.disp)
			rx(e, W64, 0x8d, RCX, mem);
		if (by == TT_BY_CHECK || by == TT_BY_WITHIN) {
			rr(e, W8, 0xf6, 0, RCX); /* test cl */
			put8(e, tt_vm_bytes(op->op) - 1);
			tt_x86_side_exit(e, CC_NE, pc, 0);
		}
		atomic(e, op);
		tt_x86_pins(e, true);
	}
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

void tt_emit_lea(struct tt_emit *e, unsigned dst, const struct tt_emit_address *address)
{
	rx(e, W64, 0x8d, tt_x86_reg[dst], operand(e, address, 0));
}

/* --- windows that nobody could guess ------------------------------------------------------ */

/* rcx = address in the program's space -> in the process's, carry set; or carry clear. */
static void put_resolve(struct tt_emit *e, unsigned log2, bool write)
{
	uint32_t beyond;

	mov(e, W64, R11, RCX);
	rr(e, W64, 0xc1, 5, R11);
	put8(e, TUTTI_VM_WINDOW_SHIFT);
	alu_imm(e, W64, 7, R11, TUTTI_VM_WINDOWS);
	beyond = tt_x86_skip(e, CC_AE);
	rr(e, W32, 0x69, R11, R11);
	put32(e, sizeof(struct tt_vm_win));
	rr(e, W64, 0x01, CONTEXT, R11);
	alu_imm(e, W32, 4, RCX, TUTTI_VM_WINDOW_BYTES - 1);
	rm(e, W64, 0x3b, RCX, R11, (int32_t)limit_off(log2, write));
	tt_x86_land(e, beyond); /* not below: carry is clear in both cases */
	put8(e, 0x73);		/* jae over the next two */
	put8(e, 4 + 1);
	rm(e, W64, 0x03, RCX, R11, (int32_t)offsetof(struct tt_vm_win, base)); /* three bytes */
	put8(e, 0xf9);							       /* stc */
	put8(e, 0xc3);
	put8(e, 0xf8); /* clc */
	put8(e, 0xc3);
}

void tt_x86_resolvers(struct tt_emit *e)
{
	for (unsigned log2 = 0; log2 < 4; log2++) {
		e->shared[RESOLVE_READ + log2] = e->size;
		put_resolve(e, log2, false);
		e->shared[RESOLVE_WRITE + log2] = e->size;
		put_resolve(e, log2, true);
	}
}
