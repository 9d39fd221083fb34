/* SPDX-License-Identifier: MIT */
/* Looks at a program's file and says whether a preloaded library can get at its sockets. */
#ifndef TT_CLI_ELF_INT_H
#define TT_CLI_ELF_INT_H

#include <limits.h>
#include <link.h>
#include <stdbool.h>

struct tt_program {
	char path[PATH_MAX];   /* of the file that is named */
	char script[PATH_MAX]; /* when that is a script: the same as path; else empty */
	char binary[PATH_MAX]; /* what runs: path, or the interpreter of the script */
	char loader[PATH_MAX]; /* PT_INTERP; empty: none */
	int bits;	       /* 32, 64; 0 no ELF file */
	char glibc[16];	       /* the newest version that it asks for; empty: none */
	bool is_dynamic, is_pie, is_musl, uses_io_uring, is_go, is_setid, has_caps, is_unreadable;
	/* NULL when it can be accelerated; else why not, and what to do (NULL: nothing helps). */
	const char *why, *todo;
};

/* elf_dyn.c: is_pie, is_musl, uses_io_uring, glibc. */
void tt_elf_read_dynamic(int fd, const ElfW(Phdr) * headers, int nheaders, struct tt_program *p);

/* Finds name as execvp(3) does. 0 or a negative errno. */
int tt_program_find(const char *name, char *ret_path);

/* Fills in everything. 0, or a negative errno when the program cannot be run at all. */
int tt_program_examine(const char *name, struct tt_program *ret);

#endif
