/* SPDX-License-Identifier: MIT */
/* What `tutti vm` and `tutti module` share: files of cases, and one run of a program. */
#ifndef TT_CLI_VM_INT_H
#define TT_CLI_VM_INT_H

#include "base/json.h"

#include <tutti/vm.h>

#define TT_VM_DEFAULT_BUDGET 1000000000
#define TT_VM_ENGINE_ALLOWED "interp or jit"

/* --- vm_data.c: a file of a case, in the format of the conformance data ------------- */

struct tt_vm_data {
	char *text; /* of the assembler, its lines numbered as the file's; NULL: no such section */
	size_t text_bytes;
	struct tutti_vm_insn *raw; /* NULL: no such section */
	uint32_t n_raw;
	void *mem; /* aligned to 8 bytes, as all that malloc returns; NULL: none */
	size_t mem_bytes;
	bool has_result, has_error;
	uint64_t result;
};

/*
 * Reads a whole file: 0 and memory for free(), or a negative errno. -EFBIG:
 * it has more than 64 MiB.
 */
int tt_vm_read_file(const char *path, char **ret_text, size_t *ret_bytes);
/* What would mend its error. */
const char *tt_vm_read_hint(int err);
/* -EINVAL: ret_error names the line; -ENOMEM. Lines before the first section are assembler text. */
int tt_vm_data_parse(const char *text, size_t bytes, struct tt_vm_data *ret_data,
		     struct tutti_vm_error *ret_error);
void tt_vm_data_fini(struct tt_vm_data *data);
/* Its program: assembled, or raw; where there are both they must be the same. */
int tt_vm_data_object(const struct tt_vm_data *data, struct tutti_vm_object **ret_object,
		      struct tutti_vm_error *ret_error);
/* Pairs of hexadecimal digits, with white space between some. -EINVAL, -ENOMEM. */
int tt_vm_parse_hex(const char *text, size_t len, void **ret_bytes, size_t *ret_count);

/* --- vm_try.c: one run -------------------------------------------------------------- */

enum tt_vm_engine { TT_VM_BEST, TT_VM_INTERP, TT_VM_COMPILED };

/* Programs get r1 = address of memory, r2 = its length; no helper functions. */
extern const struct tutti_vm_env tt_vm_plain_env;

enum tt_vm_end {
	TT_VM_DONE,    /* result.r0 */
	TT_VM_REFUSED, /* by the verifier: error */
	TT_VM_FAULT,   /* result, and its text in error */
	TT_VM_FAILED,  /* not run for want of something here: error.text */
};

struct tt_vm_outcome {
	enum tt_vm_end end;
	bool compiled;
	struct tutti_vm_error error;
	struct tutti_vm_result result;
};

/* mem: aligned to 8 bytes, NULL when bytes is 0; the program may change it. */
void tt_vm_try(const struct tutti_vm_object *object, void *mem, size_t bytes,
	       enum tt_vm_engine engine, uint64_t budget, struct tt_vm_outcome *ret);

bool tt_arg_engine(const char *text, enum tt_vm_engine *ret);

/* --- vm_suite.c: `tutti vm conformance` ---------------------------------------------- */

int tt_vm_conformance(const char *dir, enum tt_vm_engine engine, bool json);

/* --- for all of them ------------------------------------------------------------------ */

/* {"text": ..., "line": ...}, without what is not known. */
void tt_vm_write_error(struct tt_json *json, const struct tutti_vm_error *error);
/* Prints it, and ends it. Returns status, or that of a failure. */
int tt_vm_print_json(const char *command, struct tt_json *json, int status);

#endif
