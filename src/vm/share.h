/* SPDX-License-Identifier: MIT */
/*
 * Programs that several processes run: one makes them, the others use its
 * image, which has no address in it, from memory that only the maker can write.
 */
#ifndef TT_VM_SHARE_H
#define TT_VM_SHARE_H

#include <tutti/vm.h>

/* The program as bytes; they may lie anywhere at a multiple of 4,096. */
const void *tt_vm_program_image(const struct tutti_vm_program *program, size_t *ret_bytes);

/*
 * A program of an image that tt_vm_program_image gave, with the same
 * environment but for the functions' addresses. It is trusted: it must lie
 * where nobody but its maker can write, readable and executable, for as long
 * as the program is used. -ENOMEM.
 */
int tt_vm_program_attach(const void *image, const struct tutti_vm_env *env,
			 struct tutti_vm_program **ret_program);

uint32_t tt_vm_program_maps(const struct tutti_vm_program *program,
			    const struct tutti_vm_map **ret_maps);
/* Data as the object has them. */
uint32_t tt_vm_program_data(const struct tutti_vm_program *program, const void **ret_data);

/*
 * A context whose data lie in memory of the caller's, of as many bytes as
 * tt_vm_program_data says, aligned to 64, as they are there. -ENOMEM.
 */
int tt_vm_context_create_at(const struct tutti_vm_program *program, void *data,
			    struct tutti_vm_context **ret_context);

#endif
