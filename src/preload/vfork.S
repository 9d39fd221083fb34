/* SPDX-License-Identifier: MIT */
/*
 * vfork returns twice to the same frame, so nothing written in C can stand
 * before it: what there is to note is noted, then libc's takes over our call.
 */
	.text
	.globl	vfork
	.type	vfork, %function
#if defined(__x86_64__)
vfork:
	subq	$8, %rsp
	call	tt_preload_vfork
	addq	$8, %rsp
	jmp	*%rax
#elif defined(__aarch64__)
vfork:
	stp	x29, x30, [sp, -16]!
	bl	tt_preload_vfork
	ldp	x29, x30, [sp], 16
	br	x0
#else
#error "vfork.S: write these five instructions for this machine"
#endif
	.size	vfork, . - vfork
	.globl	__vfork
	.set	__vfork, vfork
	.section .note.GNU-stack, "", %progbits
