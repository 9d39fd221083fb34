/* SPDX-License-Identifier: MIT */
/* The modules of this folder, ELF objects for BPF; empty when clang was not there to make them. */
#ifndef TT_BENCH_VM_MODULES_H
#define TT_BENCH_VM_MODULES_H

extern const unsigned char tt_module_kernels[], tt_module_kernels_end[];
extern const unsigned char tt_module_thousand[], tt_module_thousand_end[];
extern const unsigned char tt_module_empty[], tt_module_empty_end[];

#endif
