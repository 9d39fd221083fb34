/* SPDX-License-Identifier: MIT */
/*
 * What the module machine is measured by: the same source compiled for the
 * machine (clang -target bpf) and natively (gcc -O2).
 */
#ifndef TT_BENCH_VM_KERNELS_H
#define TT_BENCH_VM_KERNELS_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

/* Addresses are the program's own: of the machine's windows, or of the process. */
struct kernel_ctx {
	u64 in;	 /* KERNEL_IN bytes, read */
	u64 out; /* KERNEL_OUT bytes, written */
};

enum { KERNEL_IN = 8192, KERNEL_OUT = 8192 };

#ifdef __bpf__
#define KERNEL(NAME)                                                                               \
	__attribute__((section("bench/" #NAME), used)) u64 kernel_##NAME(struct kernel_ctx *ctx)
#else
#define KERNEL(NAME) u64 kernel_##NAME(struct kernel_ctx *ctx)
#endif

KERNEL(empty);
KERNEL(hash);
KERNEL(checksum);
KERNEL(sort);
KERNEL(search);
KERNEL(matrix);
KERNEL(bloom);

#endif
