/* SPDX-License-Identifier: MIT */
#include "device/code.h"

#include "base/atomic.h"
#include "base/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAGIC 0x65646f6374747574ull /* "tuttcode" */

enum { IMAGES = 256, BYTES = 64 << 20, PAGE = 4096 };

struct place {
	uint32_t off;
	uint32_t room;	/* bytes that were set aside */
	uint32_t bytes; /* 0: free; written last */
	uint32_t pad;
	uint64_t serial; /* of what is there; no other image ever has it */
};

/* At the start of the file. */
struct table {
	uint64_t magic;
	uint32_t n;	 /* places that were ever used */
	uint32_t next;	 /* offset from which on all is free */
	uint64_t stored; /* images, ever */
	struct place places[IMAGES];
};

struct tt_code {
	int fd;
	const struct table *table; /* and all that follows: read and run */
	struct table *writable;	   /* NULL: not ours */
};

static const int seals = F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

static int map_to_run(struct tt_code *code)
{
	void *address = mmap(NULL, BYTES, PROT_READ | PROT_EXEC, MAP_SHARED, code->fd, 0);

	if (address == MAP_FAILED)
		return -errno;
	code->table = address;
	return 0;
}

int tt_code_create(struct tt_code **ret_code)
{
	struct tt_code *code = calloc(1, sizeof *code);
	void *writable;
	int err;

	if (!code)
		return -ENOMEM;
	code->fd = memfd_create("tutti-code", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (code->fd < 0 || ftruncate(code->fd, BYTES) < 0) {
		err = -errno;
		goto fail;
	}
	writable = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, code->fd, 0);
	if (writable == MAP_FAILED) {
		err = -errno;
		goto fail;
	}
	code->writable = writable;
	code->writable->next = (sizeof(struct table) + PAGE - 1) & ~(PAGE - 1u);
	code->writable->magic = MAGIC;
	if (fcntl(code->fd, F_ADD_SEALS, seals) < 0) {
		err = -errno;
		goto fail;
	}
	err = map_to_run(code);
	if (err)
		goto fail;
	code->fd = tt_fd_high(code->fd);
	*ret_code = code;
	return 0;
fail:
	tt_code_destroy(code);
	return err;
}

int tt_code_attach(int fd, struct tt_code **ret_code)
{
	int have = fcntl(fd, F_GET_SEALS), err;
	struct tt_code *code;

	if (have < 0 || (have & seals) != seals || lseek(fd, 0, SEEK_END) != BYTES)
		return -EPROTO;
	code = calloc(1, sizeof *code);
	if (!code)
		return -ENOMEM;
	code->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (code->fd < 0) {
		err = -errno;
		goto fail;
	}
	code->fd = tt_fd_high(code->fd);
	err = map_to_run(code);
	if (err)
		goto fail;
	if (code->table->magic != MAGIC) {
		err = -EPROTO;
		goto fail;
	}
	*ret_code = code;
	return 0;
fail:
	tt_code_destroy(code);
	return err;
}

void tt_code_destroy(struct tt_code *code)
{
	if (!code)
		return;
	if (code->table)
		munmap((void *)(uintptr_t)code->table, BYTES);
	if (code->writable)
		munmap(code->writable, BYTES);
	tt_fd_close(code->fd);
	free(code);
}

int tt_code_fd(const struct tt_code *code)
{
	return code->fd;
}

/* A free place that is large enough, or a new one. */
static struct place *find_place(struct table *table, uint32_t bytes)
{
	struct place *place;

	for (uint32_t i = 0; i < table->n; i++)
		if (!table->places[i].bytes && table->places[i].room >= bytes)
			return &table->places[i];
	if (table->n == IMAGES || bytes > BYTES - table->next)
		return NULL;
	place = &table->places[table->n];
	place->off = table->next;
	place->room = bytes;
	table->next += bytes;
	tt_store_release(&table->n, table->n + 1);
	return place;
}

int tt_code_store(struct tt_code *code, const void *image, size_t bytes)
{
	struct table *table = code->writable;
	struct place *place;

	if (!table)
		return -EPERM;
	if (!bytes || bytes > BYTES)
		return -ENOSPC;
	place = find_place(table, (uint32_t)((bytes + PAGE - 1) & ~(size_t)(PAGE - 1)));
	if (!place)
		return -ENOSPC;
	memcpy((uint8_t *)table + place->off, image, bytes);
	tt_store_relaxed(&place->serial, ++table->stored);
	tt_store_release(&place->bytes, (uint32_t)bytes);
	return (int)(place - table->places);
}

void tt_code_remove(struct tt_code *code, uint32_t index)
{
	if (code->writable && index < code->writable->n)
		tt_store_release(&code->writable->places[index].bytes, 0u);
}

bool tt_code_is(const struct tt_code *code, uint32_t index, uint64_t serial)
{
	const struct place *place = &code->table->places[index % IMAGES];

	return index < IMAGES && tt_load_acquire(&place->bytes) &&
	       tt_load_relaxed(&place->serial) == serial;
}

const void *tt_code_image(const struct tt_code *code, uint32_t index, uint64_t *ret_serial)
{
	const struct table *table = code->table;

	if (index >= IMAGES || index >= tt_load_acquire(&table->n) ||
	    !tt_load_acquire(&table->places[index].bytes))
		return NULL;
	*ret_serial = tt_load_relaxed(&table->places[index].serial);
	return (const uint8_t *)table + table->places[index].off;
}
