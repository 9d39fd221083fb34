/* SPDX-License-Identifier: MIT */
/* int clobber(call): returns 0 and leaves nothing in the registers that a callee may change. */
#if defined(__x86_64__)
	.text
	.globl clobber
	.type clobber, @function
clobber:
	mov $0x7fff0001, %ecx
	mov %rcx, %rdx
	mov %rcx, %rsi
	mov %rcx, %rdi
	mov %rcx, %r8
	mov %rcx, %r9
	mov %rcx, %r10
	mov %rcx, %r11
	xor %eax, %eax
	ret
	.size clobber, . - clobber
#endif
	.section .note.GNU-stack, "", @progbits
