/* SPDX-License-Identifier: MIT */
/*
 * bool keeps(fn, context, code): calls fn(context, code) with patterns in all
 * registers that a function must keep; true if they are there afterwards.
 */
#if defined(__x86_64__)
	.text
	.globl keeps
	.type keeps, @function
keeps:
	push %rbp
	push %rbx
	push %r12
	push %r13
	push %r14
	push %r15
	sub $8, %rsp
	mov %rdi, %rax
	mov %rsi, %rdi
	mov %rdx, %rsi
	mov $0x1111, %ebp
	mov $0x2222, %ebx
	mov $0x3333, %r12d
	mov $0x4444, %r13d
	mov $0x5555, %r14d
	mov $0x6666, %r15d
	call *%rax
	sub $0x1111, %rbp
	sub $0x2222, %rbx
	sub $0x3333, %r12
	sub $0x4444, %r13
	sub $0x5555, %r14
	sub $0x6666, %r15
	or %rbp, %rbx
	or %rbx, %r12
	or %r12, %r13
	or %r13, %r14
	or %r14, %r15
	setz %al
	add $8, %rsp
	pop %r15
	pop %r14
	pop %r13
	pop %r12
	pop %rbx
	pop %rbp
	ret
	.size keeps, . - keeps
#endif
	.section .note.GNU-stack, "", @progbits
