/* SPDX-License-Identifier: MIT */
/* Between bench_vm.c, which measures, and bench_vm_out.c, which prints. */
#ifndef TT_BENCH_VM_INT_H
#define TT_BENCH_VM_INT_H

#include "bench_int.h"

enum { TT_VM_KERNELS = 6 };

/* Nanoseconds of one run in each engine, a value for each pair. */
struct tt_vm_times {
	double native[TT_BENCH_MAX_PAIRS];
	double jit[TT_BENCH_MAX_PAIRS];
	double interp[TT_BENCH_MAX_PAIRS];
	double linux_jit[TT_BENCH_MAX_PAIRS];
};

struct tt_vm_measured {
	const char *name;
	uint64_t insns; /* that one run executes */
	struct tt_vm_times times;
	char linux_why[200]; /* why Linux's JIT did not run it; empty: it did */
};

struct tt_vm_bench {
	int pairs; /* done */
	struct tt_vm_measured kernels[TT_VM_KERNELS];
	double empty_ns[TT_BENCH_MAX_PAIRS];
	double load_us[TT_BENCH_MAX_PAIRS];
	uint32_t load_insns;
};

int tt_bench_vm_print(struct tt_bench *b, const struct tt_vm_bench *vm);

#endif
