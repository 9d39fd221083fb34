/* SPDX-License-Identifier: MIT */
/* libFuzzer: an ELF object of any bytes is refused, or keeps the promises of object.h. */
#include "vm/object_test.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	struct tutti_vm_object *object;
	struct tutti_vm_error error = {0};
	int err = tutti_vm_object_open(bytes, n, &object, &error);
	const char *broken = NULL;

	if (!err)
		broken = tt_vm_broken_object(object);
	else if (err != -ENOEXEC || !*error.text)
		broken = "refused for another reason than it may be, or for none";
	if (broken) {
		fprintf(stderr, "elf_fuzz: %s\n", broken);
		abort();
	}
	if (!err)
		tutti_vm_object_destroy(object);
	return 0;
}
