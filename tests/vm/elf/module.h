/* SPDX-License-Identifier: MIT */
/* What the modules of these tests need; no header of the system is for BPF. */
#ifndef MODULE_H
#define MODULE_H

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define NOINLINE __attribute__((noinline))
/* The compiler must not know the value. */
#define HIDE(x) __asm__ volatile("" : "+r"(x))

#define __uint(name, number) int(*name)[number]
#define __type(name, type) __typeof__(type) *name

#endif
