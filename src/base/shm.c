/* SPDX-License-Identifier: MIT */
#include "base/shm.h"

#include "base/atomic.h"
#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* RLIMIT_FSIZE counts here too, and its signal ends a program that has done nothing. */
static int set_size(int fd, size_t bytes)
{
	const struct timespec now = {0, 0};
	sigset_t excess, old, pending;
	int err = 0;

	sigemptyset(&excess);
	sigaddset(&excess, SIGXFSZ);
	pthread_sigmask(SIG_BLOCK, &excess, &old);
	sigpending(&pending);
	if (ftruncate(fd, (off_t)bytes) < 0)
		err = -errno;
	if (err == -EFBIG && !sigismember(&pending, SIGXFSZ))
		sigtimedwait(&excess, NULL, &now);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return err;
}

int tt_shm_create(const char *name, size_t bytes)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	int err = set_size(fd, bytes);

	if (err == 0 &&
	    tt_sys.fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		err = -errno;
	if (err < 0) {
		tt_sys.close(fd);
		return err;
	}
	return fd;
}

int tt_shm_map(int fd, size_t min_bytes, void **ret_base, size_t *ret_bytes)
{
	struct stat st;
	int seals = tt_sys.fcntl(fd, F_GET_SEALS);

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || tt_sys.fstat(fd, &st) < 0)
		return -EPROTO;
	if (st.st_size <= 0 || (uint64_t)st.st_size < min_bytes)
		return -EPROTO;
	void *p = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return -errno;
	/* A dump of the program is the program's own memory, not the network's. */
	madvise(p, (size_t)st.st_size, MADV_DONTDUMP);
	*ret_base = p;
	*ret_bytes = (size_t)st.st_size;
	return 0;
}

void tt_shm_unmap(void *base, size_t bytes)
{
	if (base)
		munmap(base, bytes);
}

/* One bit a descriptor; those above are never handed to programs by mistake. */
#define INTERNAL_MAX 65536
static uint64_t internal[INTERNAL_MAX / 64];

bool tt_fd_is_internal(int fd)
{
	return fd >= 0 && fd < INTERNAL_MAX &&
	       (tt_load_relaxed(&internal[fd / 64]) >> (fd % 64) & 1);
}

void tt_fd_mark_internal(int fd)
{
	if (fd >= 0 && fd < INTERNAL_MAX)
		tt_fetch_or(&internal[fd / 64], 1ull << (fd % 64));
}

unsigned tt_fd_internal_top(void)
{
	for (unsigned i = INTERNAL_MAX / 64; i-- > 0;) {
		uint64_t bits = tt_load_relaxed(&internal[i]);

		if (bits)
			return i * 64 + 63 - (unsigned)__builtin_clzll(bits);
	}
	return 0;
}

static int mark_internal(int fd)
{
	tt_fd_mark_internal(fd);
	return fd;
}

void tt_fd_close(int fd)
{
	if (fd < 0)
		return;
	if (fd < INTERNAL_MAX)
		tt_fetch_and(&internal[fd / 64], ~(1ull << (fd % 64)));
	tt_sys.close(fd);
}

int tt_fd_high(int fd)
{
	struct rlimit rl;
	int low = 4096;

	/* The kernel's table of descriptors grows to the highest number used: stay moderate. */
	if (getrlimit(RLIMIT_NOFILE, &rl) == 0 && rl.rlim_cur != RLIM_INFINITY) {
		if (rl.rlim_cur < 64)
			return mark_internal(fd);
		if (rl.rlim_cur < 8192)
			low = (int)(rl.rlim_cur - rl.rlim_cur / 4);
	}
	int hi = tt_sys.fcntl(fd, F_DUPFD_CLOEXEC, low);

	if (hi < 0)
		return mark_internal(fd);
	tt_sys.close(fd);
	return mark_internal(hi);
}
