/* SPDX-License-Identifier: MIT */
/* Modules as clang made them, inside the command; empty when there was no clang. See modules.h. */
	.section .rodata

	.macro module name
	.global \name
	.global \name\()_end
	.hidden \name
	.hidden \name\()_end
	.balign 8
\name:
	.endm

	module tt_module_kernels
#ifdef KERNELS
	.incbin KERNELS
#endif
tt_module_kernels_end:

	module tt_module_thousand
#ifdef THOUSAND
	.incbin THOUSAND
#endif
tt_module_thousand_end:

	module tt_module_empty
#ifdef EMPTY
	.incbin EMPTY
#endif
tt_module_empty_end:

	.section .note.GNU-stack, "", @progbits
