/* SPDX-License-Identifier: MIT */
/*
 * The dynamic section of a native ELF file: which libraries it asks for, and
 * which version of libc. As in elf.c, every number may be garbage.
 */
#include "elf_int.h"

#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_LOADS 32
#define MAX_ENTRIES 4096
#define MAX_VERSIONS 256

struct image {
	int fd;
	ElfW(Phdr) loads[MAX_LOADS];
	int nloads;
	uint64_t strings, versions; /* addresses; 0: none */
	uint64_t nversions;
	uint64_t needed[64]; /* offsets of names in strings */
	int needed_count;
	uint64_t flags_1;
};

static bool read_at_address(const struct image *im, uint64_t address, void *buf, size_t bytes)
{
	for (int i = 0; i < im->nloads; i++) {
		const ElfW(Phdr) *ph = &im->loads[i];
		uint64_t into = address - ph->p_vaddr;

		if (address < ph->p_vaddr || into >= ph->p_filesz || bytes > ph->p_filesz - into)
			continue;
		return ph->p_offset + into <= INT64_MAX - bytes &&
		       pread(im->fd, buf, bytes, (off_t)(ph->p_offset + into)) == (ssize_t)bytes;
	}
	return false;
}

/* What fits of a name, always ended. */
static void read_name(const struct image *im, uint64_t off, char *ret_name, size_t bytes)
{
	size_t n = 0;

	while (n + 1 < bytes && read_at_address(im, im->strings + off + n, &ret_name[n], 1) &&
	       ret_name[n])
		n++;
	ret_name[n] = '\0';
}

static void take_entry(struct image *im, const ElfW(Dyn) * d)
{
	switch (d->d_tag) {
	case DT_STRTAB: im->strings = d->d_un.d_ptr; break;
	case DT_VERNEED: im->versions = d->d_un.d_ptr; break;
	case DT_VERNEEDNUM: im->nversions = d->d_un.d_val; break;
	case DT_FLAGS_1: im->flags_1 = d->d_un.d_val; break;
	case DT_NEEDED:
		if (im->needed_count < (int)(sizeof(im->needed) / sizeof(im->needed[0])))
			im->needed[im->needed_count++] = d->d_un.d_val;
		break;
	default: break;
	}
}

/* "GLIBC_2.34" */
static void take_version(const char *name, struct tt_program *p)
{
	int major = 0, minor = 0, had_major = 0, had_minor = 0;

	if (sscanf(name, "GLIBC_%d.%d", &major, &minor) != 2 || major < 0 || minor < 0)
		return;
	sscanf(p->glibc, "%d.%d", &had_major, &had_minor);
	if (major > had_major || (major == had_major && minor > had_minor))
		snprintf(p->glibc, sizeof(p->glibc), "%d.%d", major, minor);
}

static void read_versions(const struct image *im, struct tt_program *p)
{
	uint64_t at = im->versions;
	int budget = MAX_VERSIONS;

	for (uint64_t i = 0; i < im->nversions && budget > 0; i++) {
		ElfW(Verneed) need;

		if (!read_at_address(im, at, &need, sizeof(need)))
			return;
		uint64_t aux_at = at + need.vn_aux;

		for (int k = 0; k < need.vn_cnt && budget-- > 0; k++) {
			ElfW(Vernaux) aux;
			char name[32];

			if (!read_at_address(im, aux_at, &aux, sizeof(aux)))
				return;
			read_name(im, aux.vna_name, name, sizeof(name));
			take_version(name, p);
			if (!aux.vna_next)
				break;
			aux_at += aux.vna_next;
		}
		if (!need.vn_next)
			return;
		at += need.vn_next;
	}
}

void tt_elf_read_dynamic(int fd, const ElfW(Phdr) * headers, int nheaders, struct tt_program *p)
{
	struct image im = {.fd = fd};
	const ElfW(Phdr) *dynamic = NULL;

	for (int i = 0; i < nheaders; i++) {
		if (headers[i].p_type == PT_LOAD && im.nloads < MAX_LOADS)
			im.loads[im.nloads++] = headers[i];
		else if (headers[i].p_type == PT_DYNAMIC)
			dynamic = &headers[i];
	}
	if (!dynamic)
		return;
	for (uint64_t i = 0; i < dynamic->p_filesz / sizeof(ElfW(Dyn)) && i < MAX_ENTRIES; i++) {
		ElfW(Dyn) d;
		uint64_t off = dynamic->p_offset + i * sizeof(d);

		if (off > INT64_MAX || pread(fd, &d, sizeof(d), (off_t)off) != sizeof(d) ||
		    d.d_tag == DT_NULL)
			break;
		take_entry(&im, &d);
	}
	p->is_pie = im.flags_1 & DF_1_PIE;
	for (int i = 0; i < im.needed_count; i++) {
		char name[64];

		read_name(&im, im.needed[i], name, sizeof(name));
		if (strncmp(name, "liburing.so", 11) == 0 ||
		    strncmp(name, "liburing-ffi.so", 15) == 0)
			p->uses_io_uring = true;
		else if (strncmp(name, "libc.musl-", 10) == 0)
			p->is_musl = true;
	}
	read_versions(&im, p);
}
