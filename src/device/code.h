/* SPDX-License-Identifier: MIT */
/*
 * The code of a fabric's modules: images (vm/share.h) in one file that its
 * maker alone can write, and all others map to read and run. Who is sent its
 * descriptor cannot write it by any means; which image is where stands in the
 * file itself, so that an index from memory that others write can do no harm.
 */
#ifndef TT_DEVICE_CODE_H
#define TT_DEVICE_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tt_code;

/* -ENOMEM, -EMFILE. The maker may store. */
int tt_code_create(struct tt_code **ret_code);
/* Duplicates fd. -EPROTO: it could be written, or is no such file. */
int tt_code_attach(int fd, struct tt_code **ret_code);
void tt_code_destroy(struct tt_code *code); /* NULL allowed */
int tt_code_fd(const struct tt_code *code);

/* Maker only. Returns the image's index; -ENOSPC. */
int tt_code_store(struct tt_code *code, const void *image, size_t bytes);
/* Maker only, when nobody runs it any more. */
void tt_code_remove(struct tt_code *code, uint32_t index);
/* NULL: there is none. ret_serial: of this image, of no other. */
const void *tt_code_image(const struct tt_code *code, uint32_t index, uint64_t *ret_serial);
/* Is it still that one? */
bool tt_code_is(const struct tt_code *code, uint32_t index, uint64_t serial);

#endif
