/* SPDX-License-Identifier: MIT */
/* What nobody but an assembler writes, and the loader takes all the same. */

__asm__(".section mdo/packet,\"ax\",@progbits;"
	".globl first; .type first,@function; .type also_first,@function;"
	"first: also_first: call second; exit;"
	".globl second; .type second,@function;"
	"second: r0 = 0; exit;"
	".data; word: .quad 1; .long word + 4; .long 0");
