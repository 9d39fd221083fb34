/* SPDX-License-Identifier: MIT */
/*
 * Memory that is written once, sealed, and only then mapped to run: at no time
 * is a page of it writable and executable, not even by two mappings, and no
 * process that gets the descriptor can write it. Sealed against future writes:
 * there is no mapping that could write from before, and with F_SEAL_WRITE
 * kernels before 6.7 take no shared mapping at all, not even one to read.
 */
#include "vm/vm_int.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

static int write_all(int fd, const uint8_t *bytes, size_t size)
{
	while (size) {
		ssize_t n = write(fd, bytes, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		bytes += n;
		size -= (size_t)n;
	}
	return 0;
}

int tt_vm_arena_create(const void *bytes, size_t size, size_t exec_off, struct tt_vm_arena *ret)
{
	int fd = memfd_create("tutti-vm", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *address;
	int err;

	if (fd < 0)
		return -errno;
	err = write_all(fd, bytes, size);
	if (err)
		goto fail;
	if (fcntl(fd, F_ADD_SEALS,
		  F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
		err = -errno;
		goto fail;
	}
	address = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	if (address == MAP_FAILED) {
		err = -errno;
		goto fail;
	}
	if (exec_off < size &&
	    mprotect((char *)address + exec_off, size - exec_off, PROT_READ | PROT_EXEC) < 0) {
		err = -errno;
		munmap(address, size);
		goto fail;
	}
	*ret = (struct tt_vm_arena){.address = address, .bytes = size, .fd = fd};
	return 0;
fail:
	close(fd);
	return err;
}

void tt_vm_arena_destroy(struct tt_vm_arena *arena)
{
	if (!arena->address)
		return;
	munmap(arena->address, arena->bytes);
	close(arena->fd);
	arena->address = NULL;
}
