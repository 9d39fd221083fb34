/* SPDX-License-Identifier: MIT */
/*
 * The module machine: eBPF (RFC 9669) programs, checked when they are loaded
 * and confined while they run. It knows nothing of networks and can be used on
 * its own:
 *
 *	struct tutti_vm_object *object;     // what a file or a text holds
 *	struct tutti_vm_program *program;   // verified, linked, compiled
 *	struct tutti_vm_context *context;   // where one run at a time happens
 *
 *	tutti_vm_object_open(elf, bytes, &object, &error);
 *	tutti_vm_program_create(object, &env, TUTTI_VM_JIT, &program, &error);
 *	tutti_vm_context_create(program, &context);
 *	tutti_vm_set_window(context, TUTTI_VM_PACKET, packet, bytes, true);
 *	tutti_vm_run(context, entry, args, 2, 10000, &result);
 *
 * Address space. A program sees numbers, never addresses of the process: the
 * address of byte OFFSET of window W is (W << 28) + OFFSET, so that no window
 * lies at 0 and none has more than 256 MiB. Every access is checked against
 * its window unless the verifier has proved that it cannot leave it. An access
 * outside ends the run with a fault; no signal is involved.
 *
 * Budget. Counted at backward jumps (as many instructions as they go back, and
 * one), at local calls (as many as the callee has) and at helper calls (the
 * helper's cost). What the budget does not cover ends the run with a fault.
 * Forward code is bounded by the program's length.
 *
 * Division by zero gives 0, a remainder by zero the dividend (32-bit forms:
 * its lower half), the smallest number divided by -1 itself, remainder 0; a
 * shift counts modulo the width; all as RFC 9669 has it.
 *
 * Threads: objects and programs do not change once they are there and may be
 * used by any number of threads; a context by one at a time. Fork: all of them
 * work in a child. Signals: none of the calls is for signal handlers.
 *
 * All calls return 0 or a count, or a negative errno (see tutti/error.h).
 */
#ifndef TUTTI_VM_H
#define TUTTI_VM_H

#include <tutti/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The library hides all else. */
#pragma GCC visibility push(default)

enum {
	TUTTI_VM_MAX_INSNS = 65536, /* of an object */
	TUTTI_VM_MAX_DEPTH = 8,	    /* functions active at once, the entry included */
	TUTTI_VM_FRAME_BYTES = 512, /* of stack, of each function */
	TUTTI_VM_MAX_HELPERS = 64,  /* of an environment: hooks allow them by a 64-bit mask */
	TUTTI_VM_WINDOW_SHIFT = 28,
	TUTTI_VM_WINDOW_BYTES = 1 << TUTTI_VM_WINDOW_SHIFT,
};

/* One instruction as RFC 9669 lays it out, little-endian; the wide one has two of these. */
struct tutti_vm_insn {
	uint8_t code;
	uint8_t regs; /* destination: lower four bits; source: upper four */
	int16_t off;
	int32_t imm;
};

/* Windows of a program's address space. The first three are the machine's own. */
enum tutti_vm_window {
	TUTTI_VM_STACK = 1,
	TUTTI_VM_DATA = 2,   /* .data and .bss: the context's copy, kept between runs */
	TUTTI_VM_RODATA = 3, /* read-only */
	TUTTI_VM_CTX = 4,    /* what the hook describes its event by */
	TUTTI_VM_PACKET = 5,
	TUTTI_VM_MAPS = 6, /* values of maps */
	TUTTI_VM_EXTRA = 7,
	TUTTI_VM_WINDOWS = 8,
};

/* --- errors and faults ----------------------------------------------------------- */

/* Why an object was refused. */
struct tutti_vm_error {
	int32_t insn;	/* the instruction's index; -1: none in particular */
	int32_t reg;	/* the register's number; -1: none in particular */
	uint32_t line;	/* of the assembler's text, or of the source by its line info; 0: unknown */
	char text[232]; /* one line: where, what is wrong, and what would mend it */
};

/* Why a run ended before its exit. */
enum tutti_vm_fault_kind {
	TUTTI_VM_FAULT_NONE = 0,
	TUTTI_VM_FAULT_READ = 1,  /* outside every window */
	TUTTI_VM_FAULT_WRITE = 2, /* outside every window, or a read-only one */
	TUTTI_VM_FAULT_ALIGN =
		3, /* an atomic operation on an address that is no multiple of its size */
	TUTTI_VM_FAULT_BUDGET = 4,   /* used up */
	TUTTI_VM_FAULT_ARGUMENT = 5, /* memory given to a helper is outside every window, or
				        its map is not set, or its ctx another number */
	TUTTI_VM_FAULT_HELPER = 6,   /* a helper ended the run */
	TUTTI_VM_FAULT_DEPTH = 7,    /* too many calls inside each other */
	TUTTI_VM_FAULT_INSN = 8,     /* no such instruction: never after verification */
};

struct tutti_vm_result {
	uint64_t r0; /* 0 after a fault */
	enum tutti_vm_fault_kind fault;
	uint32_t pc;	      /* index of the instruction at fault */
	uint64_t address;     /* READ, WRITE, ALIGN, ARGUMENT */
	uint64_t bytes;	      /* of the access */
	int helper_error;     /* HELPER: what it returned */
	uint64_t budget_left; /* after the run */
};

/* A word for the kind, such as "write"; static. */
const char *tutti_vm_fault_name(enum tutti_vm_fault_kind kind);
/*
 * The whole, such as "filter.c:7: instruction 12: write of 8 bytes at 0x50000100,
 * ...": with the source line when the program has it. Returns its length, as
 * snprintf.
 */
struct tutti_vm_program;
int tutti_vm_fault_text(const struct tutti_vm_program *program,
			const struct tutti_vm_result *result, char *ret_text, size_t bytes);

/* --- what the caller provides ------------------------------------------------------ */

struct tutti_vm_context;

/* A helper call in progress. */
struct tutti_vm_call {
	struct tutti_vm_context *context;
	void *user;	 /* of the context */
	uint64_t arg[5]; /* r1 to r5 */
	void *ptr[5];	 /* checked addresses of READ, WRITE, KEY, VALUE; the caller's map of MAP */
	uint64_t bytes[5]; /* what may be read or written there */
	uint64_t ret;	   /* r0, 0 unless set */
};

enum tutti_vm_arg_kind {
	TUTTI_VM_ARG_NONE = 0, /* not used: may be unset */
	TUTTI_VM_ARG_ANY,      /* a number or an address: passed as it is */
	TUTTI_VM_ARG_READ,     /* memory that the helper reads; its bytes in the next argument, */
	TUTTI_VM_ARG_WRITE,    /* or writes */
	TUTTI_VM_ARG_BYTES,    /* the size of the memory in the argument before; 0: ptr is NULL */
	TUTTI_VM_ARG_MAP,      /* a map of the object, by its name */
	TUTTI_VM_ARG_KEY,      /* memory of the key size of the map before it, read */
	TUTTI_VM_ARG_VALUE,    /* memory of its value size, read */
	TUTTI_VM_ARG_CTX,      /* the hook's first argument, unchanged: else the run ends */
};

enum tutti_vm_ret_kind {
	TUTTI_VM_RET_NUMBER = 0,
	TUTTI_VM_RET_NONE,  /* r0 counts as unset after the call */
	TUTTI_VM_RET_VALUE, /* an address in TUTTI_VM_MAPS, or 0 */
};

/*
 * A helper returns 0, or a negative errno that ends the run. It may call
 * tutti_vm_pointer; it must not run, or change windows of, its context.
 */
typedef int (*tutti_vm_helper_fn)(struct tutti_vm_call *call);

struct tutti_vm_helper {
	const char *name; /* by which objects may ask for it */
	uint32_t id;	  /* the immediate of its call instruction; unique */
	uint8_t ret;	  /* enum tutti_vm_ret_kind */
	uint8_t arg[5];	  /* enum tutti_vm_arg_kind */
	uint32_t cost;	  /* in instructions: 1 to INT32_MAX */
	tutti_vm_helper_fn fn;
};

/* Something that a hook's program gets in a register, or finds in its ctx. */
struct tutti_vm_value {
	uint8_t window; /* where it points; 0: a number */
	uint32_t bytes; /* that are always there, and then it points to the window's first;
			    tutti_vm_run refuses others. 0: unknown */
};

struct tutti_vm_field {
	uint32_t off;	/* in the ctx (of which bytes must be declared), of eight bytes */
	uint8_t window; /* where it points */
};

/* A kind of function that the caller calls. */
struct tutti_vm_hook {
	const char *section; /* "mdo/packet": that, or that and "/..."; NULL: any */
	uint8_t args;	     /* how many registers are set, r1 first; at most 5 */
	struct tutti_vm_value arg[5];
	const struct tutti_vm_field *fields; /* of the ctx */
	uint32_t n_fields;
	uint64_t helpers; /* bit I: the environment's helper I may be called here */
};

/* All of it belongs to the caller and must outlive the programs made with it. */
struct tutti_vm_env {
	const struct tutti_vm_hook *hooks;
	uint32_t n_hooks;
	const struct tutti_vm_helper *helpers;
	uint32_t n_helpers; /* at most TUTTI_VM_MAX_HELPERS */
};

/* --- objects ----------------------------------------------------------------------- */

struct tutti_vm_object;

/* A map as the object defines it; what it means is the caller's. */
struct tutti_vm_map {
	char name[64];
	uint32_t type, key_bytes, value_bytes, max_entries, flags;
};

/*
 * Reads an ELF object for BPF (as clang -target bpf makes them) from memory,
 * which the caller may free afterwards. -ENOEXEC when it is none or holds what
 * the machine does not take, -ENOMEM; ret_error says why. Whatever the bytes
 * are, nothing but an error comes of it.
 */
int tutti_vm_object_open(const void *elf, size_t bytes, struct tutti_vm_object **ret_object,
			 struct tutti_vm_error *ret_error);

/*
 * Assembles a text (one instruction a line; see tutti-vm(1)), of which the
 * first instruction is the entry "main". -EINVAL: ret_error has the line.
 */
int tutti_vm_assemble(const char *text, size_t bytes, struct tutti_vm_object **ret_object,
		      struct tutti_vm_error *ret_error);

/* An object of bare instructions, copied; its entry "main" is the first. -EINVAL, -ENOMEM. */
int tutti_vm_object_from_insns(const struct tutti_vm_insn *insns, uint32_t count,
			       struct tutti_vm_object **ret_object);

void tutti_vm_object_destroy(struct tutti_vm_object *object); /* NULL allowed */

uint32_t tutti_vm_object_insns(const struct tutti_vm_object *object,
			       const struct tutti_vm_insn **ret_insns);
uint32_t tutti_vm_object_maps(const struct tutti_vm_object *object,
			      const struct tutti_vm_map **ret_maps);

/*
 * Writes the instruction at index as text, without a newline, which assembles
 * to the same bytes. Returns how many instructions it took (1, or 2 for the
 * wide one), or -EINVAL when it is none; then the text says so.
 */
int tutti_vm_disassemble(const struct tutti_vm_insn *insns, uint32_t count, uint32_t index,
			 char *ret_text, size_t bytes);

/* --- programs ---------------------------------------------------------------------- */

enum tutti_vm_flags {
	TUTTI_VM_JIT = 1, /* compile, where the machine can; else it is interpreted */
};

/*
 * Verifies an object against what the caller provides, links and compiles it.
 * The object may be destroyed afterwards. -EACCES: the verifier refuses it,
 * -ENOENT: it asks for a helper, or a section, that is not provided, -ENOMEM,
 * -EINVAL: env. ret_error says why. Some microseconds for each instruction at
 * most.
 */
int tutti_vm_program_create(const struct tutti_vm_object *object, const struct tutti_vm_env *env,
			    unsigned flags, struct tutti_vm_program **ret_program,
			    struct tutti_vm_error *ret_error);
void tutti_vm_program_destroy(
	struct tutti_vm_program *program); /* NULL allowed; after its contexts */

/* Index of the entry with this function or section name; NULL: the first. -ENOENT. */
int tutti_vm_program_entry(const struct tutti_vm_program *program, const char *name);
bool tutti_vm_program_compiled(const struct tutti_vm_program *program);

/* --- runs -------------------------------------------------------------------------- */

/* With a stack and data of its own, data as the object has it. -ENOMEM. */
int tutti_vm_context_create(const struct tutti_vm_program *program,
			    struct tutti_vm_context **ret_context);
void tutti_vm_context_destroy(struct tutti_vm_context *context); /* NULL allowed */

/* Passed to helpers. */
void tutti_vm_set_user(struct tutti_vm_context *context, void *user);
/* What helpers get for the object's map at this index. -EINVAL. */
int tutti_vm_set_map(struct tutti_vm_context *context, uint32_t index, void *map);

/*
 * Lays memory into a window until it is set again: base aligned to 8 bytes (so
 * that atomic operations never cross a cache line), bytes below
 * TUTTI_VM_WINDOW_BYTES, 0: an empty window. The memory belongs to the caller.
 * -EINVAL; TUTTI_VM_STACK, DATA and RODATA are the machine's.
 */
int tutti_vm_set_window(struct tutti_vm_context *context, enum tutti_vm_window window, void *base,
			size_t bytes, bool writable);

/* The program's address of a window's first byte. */
static inline uint64_t tutti_vm_address(enum tutti_vm_window window)
{
	return (uint64_t)window << TUTTI_VM_WINDOW_SHIFT;
}

/* The process's address of a program's, or NULL when it is not wholly inside a window. */
void *tutti_vm_pointer(const struct tutti_vm_context *context, uint64_t address, uint64_t bytes,
		       bool write);

/*
 * Runs an entry with n_args registers set (r1 first; as many as its hook has)
 * and a budget in instructions. Returns 0 after its exit, -EFAULT after a
 * fault (ret_result says which), -EINVAL for an entry that is not there.
 * Nothing is undone after a fault. Does not block, unless a helper does.
 */
int tutti_vm_run(struct tutti_vm_context *context, int entry, const uint64_t *args, unsigned n_args,
		 uint64_t budget, struct tutti_vm_result *ret_result);

/* As tutti_vm_run, but interpreted in any case. */
int tutti_vm_interpret(struct tutti_vm_context *context, int entry, const uint64_t *args,
		       unsigned n_args, uint64_t budget, struct tutti_vm_result *ret_result);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
