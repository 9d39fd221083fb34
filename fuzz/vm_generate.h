/* SPDX-License-Identifier: MIT */
/*
 * Programs out of bytes: whatever the bytes are, the verifier accepts what
 * comes of them, and most of it runs far. Every register is set before any
 * jump can be taken; jumps lead anywhere inside their function; addresses are
 * good ones, nearly good ones and sometimes none.
 */
#ifndef TT_FUZZ_VM_GENERATE_H
#define TT_FUZZ_VM_GENERATE_H

#include <tutti/vm.h>

enum {
	GENERATE_INSNS = 2048, /* at most */
	GENERATE_PACKET = 256, /* bytes that the windows should have */
	GENERATE_MAPS = 512,
	GENERATE_HELPERS = 3, /* ids 1, 2, 3: numbers; memory read; memory written */
};

struct generate_options {
	bool helpers;	    /* calls of helpers */
	bool bounded;	    /* no jumps back, nothing unreached, little stack, and addresses that
			  are always good: for engines that refuse what they cannot prove */
	bool unsigned_only; /* no signed division: Linux before 6.12 dies of the smallest
			       number by -1 */
};

/* Writes at most GENERATE_INSNS instructions, the entry first. Returns how many. */
uint32_t generate(const uint8_t *bytes, size_t size, const struct generate_options *options,
		  struct tutti_vm_insn *ret_insns);

#endif
