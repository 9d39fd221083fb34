/* SPDX-License-Identifier: MIT */
/*
 * Between the machine's own files: decoded programs, contexts, engines.
 *
 *	object --link, verify, decode--> ops --jit--> code
 *	                                   \__________ /
 *	                                      image (sealed, read-only, no addresses in it)
 *
 * One semantics, two engines. The interpreter has all of it. Compiled code
 * has the ways that end well; wherever a check fails it stores the registers
 * and leaves ("side exit"), and the interpreter goes on at that instruction:
 * it finds the fault and reports it, or finds none (a hint was wrong) and runs
 * to the end. So faults cannot differ, and compiled code needs none of the
 * rare cases. Decision 0020.
 */
#ifndef TT_VM_INT_H
#define TT_VM_INT_H

#include "vm/isa.h"
#include "vm/object.h"
#include "vm/verify.h"

/*
 * A decoded instruction; index as in the object, the second half of a wide
 * one is left empty. op is the instruction's code, or one of tt_vm_variant
 * where the code does not say all.
 */
struct tt_vm_op {
	uint8_t op;
	uint8_t dst;
	uint8_t src;
	uint8_t window; /* loads, stores, atomics: where it probably goes, 0: no idea */
	int32_t off;	/* loads, stores, atomics: offset; jumps, local calls: target's index */
	int64_t imm;	/* helper calls: the helper's index; local calls: what they cost */
};

_Static_assert(sizeof(struct tt_vm_op) == 16, "one op, one index");

/* Codes that no instruction has (class LD). */
enum tt_vm_variant {
	TT_SDIV32_K = 0x00,
	TT_SDIV32_X = 0x08,
	TT_SDIV64_K = 0x10,
	TT_SDIV64_X = 0x20,
	TT_SMOD32_K = 0x28,
	TT_SMOD32_X = 0x30,
	TT_SMOD64_K = 0x38,
	TT_SMOD64_X = 0x40,
	TT_MOVSX8_32 = 0x48,
	TT_MOVSX16_32 = 0x50,
	TT_MOVSX8_64 = 0x58,
	TT_MOVSX16_64 = 0x60,
	TT_MOVSX32_64 = 0x68,
	TT_CALL_LOCAL_OP = 0x70,
	TT_NO_OP = 0x78, /* second half of a wide one, or never reached */
};

/* What a caller may call. */
struct tt_vm_entry {
	uint32_t name_off; /* of the image */
	uint32_t section_off;
	uint32_t pc;
	uint32_t hook;	   /* index in the environment */
	uint32_t code_off; /* of the image; 0: not compiled */
};

/*
 * A program as it runs: position-independent, never written after it was
 * made. Offsets are of the image's first byte.
 */
struct tt_vm_image {
	uint64_t bytes;	   /* of all of it */
	uint32_t code_off; /* page-aligned; compiled code; 0: none */
	uint32_t code_bytes;
	uint32_t enter_off; /* how compiled code is called: tt_vm_enter_fn */
	uint32_t ops_off, n_ops;
	uint32_t entries_off, n_entries;
	uint32_t data_off, data_bytes;
	uint32_t rodata_off, rodata_bytes;
	uint32_t maps_off, n_maps;
};

/* Memory that was written, then sealed and mapped anew: never writable and executable. */
struct tt_vm_arena {
	void *address; /* read-only; from exec_off on executable as well */
	size_t bytes;
	int fd;
};

struct tutti_vm_program {
	const struct tt_vm_image *image;
	struct tt_vm_arena arena;
	const struct tutti_vm_env *env;
	const struct tutti_vm_map *maps; /* of the image */
	struct tt_vm_line *lines;	 /* for messages */
	uint32_t n_lines;
};

/* One window as both engines check it: an access at offset O is inside if O < limit. */
struct tt_vm_win {
	uint8_t *base;
	uint64_t bytes;
	uint64_t read_limit[4];	 /* of 1, 2, 4, 8 bytes */
	uint64_t write_limit[4]; /* 0: read-only */
};

_Static_assert(sizeof(struct tt_vm_win) == 80, "known to compiled code");

/* A caller that waits for a local call to return. */
struct tt_vm_frame {
	uint64_t saved[4]; /* r6 to r9 */
	uint32_t pc;	   /* where it goes on */
};

enum { TT_STACK_BYTES = TUTTI_VM_MAX_DEPTH * TUTTI_VM_FRAME_BYTES };

enum tt_vm_left { TT_LEFT_EXIT = 0, TT_LEFT_SIDE = 1, TT_LEFT_FAULT = 2 };

struct tutti_vm_context {
	/* Read and written by compiled code; offsets are compiled in. */
	struct tt_vm_win win[TUTTI_VM_WINDOWS]; /* 0: always empty */
	uint64_t regs[TT_REGS];			/* at entry, at a side exit; r0 at the exit */
	uint64_t budget;
	uint64_t stack_delta; /* a program's stack address less the process's */
	uint8_t *frame;	      /* entry: end of the first frame, in the process's addresses */
	void *host_sp;	      /* of compiled code's caller */
	int (*call_helper)(struct tutti_vm_context *context, uint32_t helper);
	void (*unwind)(struct tutti_vm_context *context, const uint64_t *sp);
	uint32_t pc; /* side exit, helper call: the instruction */

	uint64_t first_arg; /* of the entry: what TUTTI_VM_ARG_CTX must be */
	uint32_t depth;	    /* callers in frames */
	struct tt_vm_frame frames[TUTTI_VM_MAX_DEPTH];
	struct tutti_vm_result result; /* but r0 and budget_left */

	const struct tutti_vm_program *program;
	void *user;
	void **maps;
	uint8_t *data;
	bool own_data;
	uint8_t stack[TT_STACK_BYTES] __attribute__((aligned(64)));
};

/* Runs compiled code at an entry. Returns enum tt_vm_left. */
typedef uint32_t (*tt_vm_enter_fn)(struct tutti_vm_context *context, const void *code);

/* Goes on at pc with regs, budget, depth and frames of the context. True: exit; else result has the fault. */
typedef bool (*tt_vm_interpret_fn)(struct tutti_vm_context *context, uint32_t pc);
bool tt_vm_interpret(struct tutti_vm_context *context, uint32_t pc);

/* As tutti_vm_interpret, by an interpreter that may do more. */
int tt_vm_interpret_by(struct tutti_vm_context *context, int entry, const uint64_t *args,
		       unsigned n_args, uint64_t budget, tt_vm_interpret_fn interpret,
		       struct tutti_vm_result *ret_result);

/* Checks the arguments and calls; false: result has the fault, at context->pc. */
bool tt_vm_call_helper(struct tutti_vm_context *context, uint32_t helper);

/* The process's address, or NULL. Window 0 as a hint: none. */
static inline uint8_t *tt_vm_resolve(const struct tutti_vm_context *context, uint64_t address,
				     unsigned log2_bytes, bool write)
{
	uint64_t window = address >> TUTTI_VM_WINDOW_SHIFT;
	uint64_t off = address & (TUTTI_VM_WINDOW_BYTES - 1);
	const struct tt_vm_win *win;

	if (window >= TUTTI_VM_WINDOWS)
		return NULL;
	win = &context->win[window];
	return off < (write ? win->write_limit : win->read_limit)[log2_bytes] ? win->base + off
									      : NULL;
}

/* Lays memory into any window, the machine's own included. */
void tt_vm_lay(struct tutti_vm_context *context, unsigned window, void *base, size_t bytes,
	       bool writable);

/* Decoded ops to machine code. -ENOTSUP: not on this processor; -ENOMEM. */
struct tt_vm_code {
	uint8_t *bytes; /* to be freed */
	uint32_t size;
	uint32_t enter;	  /* offset of tt_vm_enter_fn */
	uint32_t *native; /* n_ops: offset of each op's code, 0: none; to be freed */
};
int tt_vm_compile(const struct tutti_vm_object *object, const struct tutti_vm_env *env,
		  const struct tt_vm_op *ops, const struct tt_vm_note *notes,
		  struct tt_vm_code *ret);

/* Copies bytes into memory that nobody can write any more; from exec_off on executable. */
int tt_vm_arena_create(const void *bytes, size_t size, size_t exec_off, struct tt_vm_arena *ret);
void tt_vm_arena_destroy(struct tt_vm_arena *arena);

#endif
