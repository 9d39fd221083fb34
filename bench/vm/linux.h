/* SPDX-License-Identifier: MIT */
/*
 * The Linux kernel's own BPF as another engine for the same instructions: a
 * classifier, which BPF_PROG_TEST_RUN runs, calls them as a local function and
 * keeps the 64 bits of r0. Their memory is the value of an array map, which the
 * process has mapped: what one side writes, the other sees.
 */
#ifndef TT_BENCH_VM_LINUX_H
#define TT_BENCH_VM_LINUX_H

#include <tutti/vm.h>

enum { LINUX_ARGS = 2, LINUX_MAX_INSNS = 4096 };

struct linux_bpf {
	int map_fd;
	int prog_fd;	 /* -1: none */
	bool compiled;	 /* the program, by the kernel's JIT */
	uint8_t *memory; /* bytes, zero at first */
	size_t bytes;
	size_t mapped_bytes;
	char why[256]; /* the last failure, one line */
};

/* What the function gets in r1 and r2. */
struct linux_arg {
	enum linux_arg_kind {
		LINUX_NUMBER,  /* value */
		LINUX_ADDRESS, /* of the memory's byte at value */
		LINUX_PAIR,    /* of two such addresses, side by side, of value and second */
	} kind;
	uint32_t value, second;
};

/* -EPERM: no rights; whatever else bpf(2) has. Holds a map until linux_bpf_destroy. */
int linux_bpf_create(size_t bytes, struct linux_bpf *ret);
void linux_bpf_destroy(struct linux_bpf *linux_bpf);

/*
 * Puts a program in the place of the one before. The first instruction is the
 * function's, and everything in it is reached. -EACCES, -EINVAL and the like
 * when the kernel refuses it: why has its verifier's words.
 */
int linux_bpf_load(struct linux_bpf *linux_bpf, const struct tutti_vm_insn *insns, uint32_t count,
		   const struct linux_arg args[LINUX_ARGS]);

/* Runs it so many times. ret_ns: of one, as the kernel measures it; NULL allowed. */
int linux_bpf_run(struct linux_bpf *linux_bpf, uint32_t repeat, uint64_t *ret_r0, double *ret_ns);

#endif
