/* SPDX-License-Identifier: MIT */
/*
 * The type information of .BTF and .BTF.ext. Not <linux/btf.h>, which on the
 * oldest kernels that we build on lacks the newer kinds.
 */
#ifndef TT_VM_BTF_INT_H
#define TT_VM_BTF_INT_H

#include "vm/elf_int.h"

enum { TT_BTF_MAGIC = 0xeb9f, TT_BTF_VERSION = 1 };

/* Of .BTF; offsets of its parts are from the header's end. */
struct tt_btf_header {
	uint16_t magic;
	uint8_t version, flags;
	uint32_t bytes;
	uint32_t type_off, type_bytes, string_off, string_bytes;
};

/* Of .BTF.ext; core_* only when bytes says so. */
struct tt_btf_ext_header {
	uint16_t magic;
	uint8_t version, flags;
	uint32_t bytes;
	uint32_t func_off, func_bytes, line_off, line_bytes, core_off, core_bytes;
};

/* What a section of .BTF.ext has for a section of code: records follow. */
struct tt_btf_ext_section {
	uint32_t name, n_records;
};

struct tt_btf_line {
	uint32_t insn_off; /* in bytes, from the section's start */
	uint32_t file, text;
	uint32_t line_column; /* column in the lower 10 bits */
};

struct tt_btf_type {
	uint32_t name;
	uint32_t info;
	uint32_t size; /* or another type */
};

enum tt_btf_kind {
	TT_BTF_INT = 1,
	TT_BTF_PTR = 2,
	TT_BTF_ARRAY = 3,
	TT_BTF_STRUCT = 4,
	TT_BTF_UNION = 5,
	TT_BTF_ENUM = 6,
	TT_BTF_FWD = 7,
	TT_BTF_TYPEDEF = 8,
	TT_BTF_VOLATILE = 9,
	TT_BTF_CONST = 10,
	TT_BTF_RESTRICT = 11,
	TT_BTF_FUNC = 12,
	TT_BTF_FUNC_PROTO = 13,
	TT_BTF_VAR = 14,
	TT_BTF_DATASEC = 15,
	TT_BTF_FLOAT = 16,
	TT_BTF_DECL_TAG = 17,
	TT_BTF_TYPE_TAG = 18,
	TT_BTF_ENUM64 = 19,
	TT_BTF_KINDS,
};

static inline unsigned tt_btf_kind(const struct tt_btf_type *type)
{
	return type->info >> 24 & 0x1f;
}

static inline uint32_t tt_btf_count(const struct tt_btf_type *type)
{
	return type->info & 0xffff;
}

/* What follows a type of ARRAY, and each member of STRUCT and of DATASEC. */
struct tt_btf_array {
	uint32_t type, index_type, count;
};
struct tt_btf_member {
	uint32_t name, type, bit_off;
};
struct tt_btf_variable {
	uint32_t type, off, bytes;
};

enum { TT_BTF_STATIC = 0 }; /* linkage, which follows a VAR */

/*
 * The type with this id; type 0 (void) and those out of range: false. extra,
 * unless NULL, points to what follows it, which is wholly there; not aligned.
 */
bool tt_btf_type(const struct tt_btf *btf, uint32_t id, struct tt_btf_type *ret,
		 const uint8_t **ret_extra);
/* The same behind typedefs, const and the like. */
bool tt_btf_bare(const struct tt_btf *btf, uint32_t id, struct tt_btf_type *ret,
		 const uint8_t **ret_extra);
/* Bytes of a value of the type; false: it has none, or too many. */
bool tt_btf_size(const struct tt_btf *btf, uint32_t id, uint32_t *ret_bytes);

#endif
