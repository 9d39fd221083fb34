/* SPDX-License-Identifier: MIT */
/*
 * Every number in the file may be garbage: offsets and counts are checked
 * against limits, and pread(2) itself says where the file ends.
 */
#include "elf_int.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#define MAX_HEADERS 4096u
#define MAX_KEPT 32
#define MAX_NOTES 65536u
#define MAX_SCRIPTS 4 /* as the kernel: a script's interpreter may be one */

#if __ELF_NATIVE_CLASS == 64
#define NATIVE_CLASS ELFCLASS64
#define NATIVE_BITS 64
#else
#define NATIVE_CLASS ELFCLASS32
#define NATIVE_BITS 32
#endif
#if defined(__x86_64__)
#define NATIVE_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define NATIVE_MACHINE EM_AARCH64
#else
#define NATIVE_MACHINE EM_NONE
#endif

/* ---- finding ---- */

static int is_runnable(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) < 0)
		return -EACCES;
	return 0;
}

int tt_program_find(const char *name, char *ret_path)
{
	const char *dirs = getenv("PATH");
	int err = -ENOENT;

	if (!*name)
		return -ENOENT;
	if (strchr(name, '/')) {
		if (strlen(name) >= PATH_MAX)
			return -ENAMETOOLONG;
		err = is_runnable(name);
		if (err == 0)
			strcpy(ret_path, name);
		return err;
	}
	if (!dirs)
		dirs = "/bin:/usr/bin";
	for (;;) {
		char path[PATH_MAX];
		size_t len = strcspn(dirs, ":");
		int n = snprintf(path, sizeof(path), "%.*s%s%s", (int)len, dirs, len ? "/" : "",
				 name);

		if (n > 0 && n < PATH_MAX) {
			int e = is_runnable(path);

			if (e == 0) {
				strcpy(ret_path, path);
				return 0;
			}
			if (e == -EACCES)
				err = e;
		}
		if (!dirs[len])
			return err;
		dirs += len + 1;
	}
}

/* ---- ELF ---- */

static bool read_at(int fd, uint64_t off, void *buf, size_t bytes)
{
	return off <= INT64_MAX && pread(fd, buf, bytes, (off_t)off) == (ssize_t)bytes;
}

static size_t align4(size_t n)
{
	return (n + 3) & ~(size_t)3;
}

/* Go's linker leaves a note of owner "Go". */
static bool has_go_note(int fd, const ElfW(Phdr) * ph)
{
	unsigned char *notes;
	bool found = false;
	size_t size = ph->p_filesz;

	if (size > MAX_NOTES || !(notes = malloc(size ? size : 1)))
		return false;
	if (read_at(fd, ph->p_offset, notes, size)) {
		for (size_t at = 0; !found && at + sizeof(ElfW(Nhdr)) <= size;) {
			ElfW(Nhdr) nh;

			memcpy(&nh, notes + at, sizeof(nh));
			at += sizeof(nh);
			if (nh.n_namesz > size - at)
				break;
			found = nh.n_namesz >= 3 && memcmp(notes + at, "Go", 3) == 0;
			at += align4(nh.n_namesz);
			if (at > size || nh.n_descsz > size - at)
				break;
			at += align4(nh.n_descsz);
		}
	}
	free(notes);
	return found;
}

static bool has_go_section(int fd, const ElfW(Ehdr) * eh)
{
	ElfW(Shdr) names, sh;
	char name[32];

	if (eh->e_shentsize != sizeof(sh) || eh->e_shnum > MAX_HEADERS ||
	    eh->e_shstrndx >= eh->e_shnum ||
	    !read_at(fd, eh->e_shoff + (uint64_t)eh->e_shstrndx * sizeof(sh), &names,
		     sizeof(names)))
		return false;
	for (uint32_t i = 0; i < eh->e_shnum; i++) {
		if (!read_at(fd, eh->e_shoff + (uint64_t)i * sizeof(sh), &sh, sizeof(sh)))
			return false;
		if (sh.sh_name >= names.sh_size)
			continue;
		ssize_t n = names.sh_offset + sh.sh_name <= INT64_MAX
				    ? pread(fd, name, sizeof(name) - 1,
					    (off_t)(names.sh_offset + sh.sh_name))
				    : -1;

		if (n <= 0)
			continue;
		name[n] = '\0';
		if (!strcmp(name, ".go.buildinfo") || !strcmp(name, ".note.go.buildid"))
			return true;
	}
	return false;
}

static void read_loader(int fd, const ElfW(Phdr) * ph, struct tt_program *p)
{
	size_t size = ph->p_filesz;

	if (!size || size > sizeof(p->loader) || !read_at(fd, ph->p_offset, p->loader, size)) {
		p->loader[0] = '\0';
		return;
	}
	p->loader[size - 1] = '\0';
}

static void read_native(int fd, struct tt_program *p)
{
	ElfW(Phdr) ph, kept[MAX_KEPT];
	ElfW(Ehdr) eh;
	int nkept = 0;

	if (!read_at(fd, 0, &eh, sizeof(eh)) || eh.e_phentsize != sizeof(ph) ||
	    eh.e_phnum > MAX_HEADERS)
		return;
	for (uint32_t i = 0; i < eh.e_phnum; i++) {
		if (!read_at(fd, eh.e_phoff + (uint64_t)i * sizeof(ph), &ph, sizeof(ph)))
			break;
		if (ph.p_type == PT_INTERP)
			read_loader(fd, &ph, p);
		else if (ph.p_type == PT_DYNAMIC)
			p->is_dynamic = true;
		else if (ph.p_type == PT_NOTE && has_go_note(fd, &ph))
			p->is_go = true;
		if ((ph.p_type == PT_DYNAMIC || ph.p_type == PT_LOAD) && nkept < MAX_KEPT)
			kept[nkept++] = ph;
	}
	tt_elf_read_dynamic(fd, kept, nkept, p);
	/* A static executable that can be loaded anywhere has a dynamic section, and no loader. */
	if (!p->loader[0])
		p->is_dynamic = false;
	if (!p->is_go)
		p->is_go = has_go_section(fd, &eh);
}

static void judge_elf(int fd, const unsigned char *ident, struct tt_program *p)
{
	uint16_t machine = 0;

	p->bits = ident[EI_CLASS] == ELFCLASS64 ? 64 : 32;
	if (!read_at(fd, offsetof(Elf64_Ehdr, e_machine), &machine, sizeof(machine)))
		machine = EM_NONE;
	if (ident[EI_CLASS] != NATIVE_CLASS || machine != NATIVE_MACHINE) {
		p->why = p->bits != NATIVE_BITS ? "for another word size than Tutti"
						: "for another architecture than Tutti";
		p->todo = "use a native build of it";
		return;
	}
	read_native(fd, p);
	const char *loader = strrchr(p->loader, '/');

	loader = loader ? loader + 1 : p->loader;
	if (p->is_go) {
		p->why = "a Go program, which enters the kernel without libc";
	} else if (!p->is_dynamic) {
		p->why = p->is_pie ? "statically linked (static-pie)" : "statically linked";
		p->todo = "use a dynamically linked build of it";
	} else if (strncmp(loader, "ld-linux", 8) != 0 && strncmp(loader, "ld64.so", 7) != 0 &&
		   strncmp(loader, "ld.so", 5) != 0) {
		p->is_musl = p->is_musl || strncmp(loader, "ld-musl", 7) == 0;
		p->why = p->is_musl ? "linked with musl, another C library than Tutti"
				    : "linked with another C library than Tutti";
		p->todo = "use a build for glibc";
	} else if (access(p->loader, X_OK) < 0) {
		p->why = "its loader is not on this machine";
		p->todo = "use a build of it for this system";
	}
}

/* ---- rights ---- */

/* With other rights than its caller's, a program's loader takes no library from the caller. */
static void judge_rights(int fd, const struct stat *st, struct tt_program *p)
{
	struct statvfs fs;
	bool ignored = (fstatvfs(fd, &fs) == 0 && (fs.f_flag & ST_NOSUID)) ||
		       prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;

	if (ignored)
		return;
	p->is_setid = ((st->st_mode & S_ISUID) && st->st_uid != getuid()) ||
		      ((st->st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) &&
		       st->st_gid != getgid());
	p->has_caps = fgetxattr(fd, "security.capability", NULL, 0) > 0 && getuid() != 0;
	if (p->is_setid) {
		p->why = "runs with another user's or group's rights (set-id)";
		p->todo = "run it under Tutti as the user whose rights it takes";
	} else if (p->has_caps) {
		p->why = "has file capabilities";
		p->todo = "run a copy without them, its rights given as ambient capabilities: "
			  "setpriv --inh-caps +NAME --ambient-caps +NAME tutti run -- COPY";
	}
}

/* ---- scripts ---- */

/* "#!interpreter [argument]": what will run, and for env(1) what that will look for. */
static int follow_script(const char *head, char *ret_next)
{
	char line[512], path[PATH_MAX];
	char *save = NULL, *word;
	const char *base;

	snprintf(line, sizeof(line), "%.*s", (int)strcspn(head + 2, "\n"), head + 2);
	word = strtok_r(line, " \t", &save);
	if (!word)
		return -ENOEXEC;
	base = strrchr(word, '/');
	base = base ? base + 1 : word;
	if (!strcmp(base, "env")) {
		char *arg;

		while ((arg = strtok_r(NULL, " \t", &save)) && (*arg == '-' || strchr(arg, '=')))
			;
		if (arg && tt_program_find(arg, path) == 0) {
			strcpy(ret_next, path);
			return 0;
		}
	}
	if (strlen(word) >= PATH_MAX)
		return -ENAMETOOLONG;
	strcpy(ret_next, word);
	return 0;
}

/* Looks at p->binary. 1: it is a script, and p->binary is now its interpreter. */
static int look(struct tt_program *p)
{
	char head[512] = {0};
	struct stat st;
	int fd = open(p->binary, O_RDONLY | O_CLOEXEC), ret = 0;

	if (fd < 0) {
		if (errno != EACCES)
			return -errno;
		/* May be run, not read: the loader will see. */
		p->is_unreadable = true;
		return 0;
	}
	ssize_t n = pread(fd, head, sizeof(head) - 1, 0);

	if (n < 0 || fstat(fd, &st) < 0) {
		ret = -errno;
	} else if (n >= EI_NIDENT && memcmp(head, ELFMAG, SELFMAG) == 0) {
		judge_elf(fd, (unsigned char *)head, p);
		judge_rights(fd, &st, p);
	} else if (n > 2 && head[0] == '#' && head[1] == '!') {
		ret = follow_script(head, p->binary);
		ret = ret < 0 ? ret : 1;
	} else {
		/* execvp(3) gives what is no program to the shell. */
		strcpy(p->binary, "/bin/sh");
		ret = 1;
	}
	close(fd);
	return ret;
}

int tt_program_examine(const char *name, struct tt_program *ret)
{
	int err;

	memset(ret, 0, sizeof(*ret));
	err = tt_program_find(name, ret->path);
	if (err < 0)
		return err;
	strcpy(ret->binary, ret->path);
	for (int i = 0; i <= MAX_SCRIPTS; i++) {
		err = look(ret);
		if (err <= 0)
			return err;
		strcpy(ret->script, ret->path);
	}
	return -ELOOP;
}
