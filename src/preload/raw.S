/* SPDX-License-Identifier: MIT */
/*
 * long tt_preload_raw(long number, ...six arguments): a system call; its result,
 * or a negative errno. For calls that come before anything can be looked up.
 */
	.text
	.globl	tt_preload_raw
	.hidden	tt_preload_raw
	.type	tt_preload_raw, %function
#if defined(__x86_64__)
tt_preload_raw:
	movq	%rdi, %rax
	movq	%rsi, %rdi
	movq	%rdx, %rsi
	movq	%rcx, %rdx
	movq	%r8, %r10
	movq	%r9, %r8
	movq	8(%rsp), %r9
	syscall
	ret
#elif defined(__aarch64__)
tt_preload_raw:
	mov	x8, x0
	mov	x0, x1
	mov	x1, x2
	mov	x2, x3
	mov	x3, x4
	mov	x4, x5
	mov	x5, x6
	svc	#0
	ret
#else
#error "raw.S: write these instructions for this machine"
#endif
	.size	tt_preload_raw, . - tt_preload_raw
	.section .note.GNU-stack, "", %progbits
