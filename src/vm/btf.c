/* SPDX-License-Identifier: MIT */
#include "vm/btf_int.h"

#include <stdlib.h>
#include <string.h>

enum {
	MAX_INSIDE = 32, /* types that lead to each other: more are a circle, or might be one */
};

const char *tt_btf_text(const struct tt_btf *btf, uint32_t off)
{
	return off < btf->strings_bytes ? btf->strings + off : NULL;
}

/* --- types ----------------------------------------------------------------------------- */

/* Bytes that follow a type; -1: unknown kind. */
static int64_t extra_bytes(const struct tt_btf_type *type)
{
	static const struct {
		uint8_t known, once, each;
	} sizes[TT_BTF_KINDS] = {
		[TT_BTF_INT] = {1, 4, 0},	 [TT_BTF_PTR] = {1, 0, 0},
		[TT_BTF_ARRAY] = {1, 12, 0},	 [TT_BTF_STRUCT] = {1, 0, 12},
		[TT_BTF_UNION] = {1, 0, 12},	 [TT_BTF_ENUM] = {1, 0, 8},
		[TT_BTF_FWD] = {1, 0, 0},	 [TT_BTF_TYPEDEF] = {1, 0, 0},
		[TT_BTF_VOLATILE] = {1, 0, 0},	 [TT_BTF_CONST] = {1, 0, 0},
		[TT_BTF_RESTRICT] = {1, 0, 0},	 [TT_BTF_FUNC] = {1, 0, 0},
		[TT_BTF_FUNC_PROTO] = {1, 0, 8}, [TT_BTF_VAR] = {1, 4, 0},
		[TT_BTF_DATASEC] = {1, 0, 12},	 [TT_BTF_FLOAT] = {1, 0, 0},
		[TT_BTF_DECL_TAG] = {1, 4, 0},	 [TT_BTF_TYPE_TAG] = {1, 0, 0},
		[TT_BTF_ENUM64] = {1, 0, 12},
	};
	unsigned kind = tt_btf_kind(type);

	if (kind >= TT_BTF_KINDS || !sizes[kind].known)
		return -1;
	return sizes[kind].once + (int64_t)sizes[kind].each * tt_btf_count(type);
}

bool tt_btf_type(const struct tt_btf *btf, uint32_t id, struct tt_btf_type *ret,
		 const uint8_t **ret_extra)
{
	if (!id || id > btf->n_types)
		return false;
	memcpy(ret, btf->types + btf->type_off[id - 1], sizeof *ret);
	if (ret_extra)
		*ret_extra = btf->types + btf->type_off[id - 1] + sizeof *ret;
	return true;
}

bool tt_btf_bare(const struct tt_btf *btf, uint32_t id, struct tt_btf_type *ret,
		 const uint8_t **ret_extra)
{
	for (int i = 0; i < MAX_INSIDE && tt_btf_type(btf, id, ret, ret_extra); i++) {
		switch (tt_btf_kind(ret)) {
		case TT_BTF_TYPEDEF:
		case TT_BTF_VOLATILE:
		case TT_BTF_CONST:
		case TT_BTF_RESTRICT:
		case TT_BTF_TYPE_TAG: id = ret->size; break;
		default: return true;
		}
	}
	return false;
}

bool tt_btf_size(const struct tt_btf *btf, uint32_t id, uint32_t *ret_bytes)
{
	uint64_t times = 1;
	struct tt_btf_type type;
	const uint8_t *extra;
	struct tt_btf_array array;

	for (int i = 0; i < MAX_INSIDE && tt_btf_bare(btf, id, &type, &extra); i++) {
		switch (tt_btf_kind(&type)) {
		case TT_BTF_ARRAY:
			memcpy(&array, extra, sizeof array);
			times *= array.count;
			id = array.type;
			break;
		case TT_BTF_PTR: type.size = sizeof(uint64_t); /* fall through */
		case TT_BTF_INT:
		case TT_BTF_STRUCT:
		case TT_BTF_UNION:
		case TT_BTF_ENUM:
		case TT_BTF_ENUM64:
		case TT_BTF_FLOAT:
			if (type.size >= TUTTI_VM_WINDOW_BYTES ||
			    times * type.size >= TUTTI_VM_WINDOW_BYTES)
				return false;
			*ret_bytes = (uint32_t)(times * type.size);
			return true;
		default: return false;
		}
		if (times >= TUTTI_VM_WINDOW_BYTES)
			return false;
	}
	return false;
}

/* --- opening --------------------------------------------------------------------------- */

static int index_types(struct tt_elf *elf)
{
	struct tt_btf *btf = &elf->btf;
	uint32_t at = 0;

	btf->type_off =
		malloc((btf->types_bytes / sizeof(struct tt_btf_type) + 1) * sizeof *btf->type_off);
	if (!btf->type_off)
		return tt_elf_no_memory(elf);
	while (at < btf->types_bytes) {
		struct tt_btf_type type;
		int64_t extra;

		if (btf->types_bytes - at < sizeof type)
			return tt_elf_fail(elf, -1,
					   "section \".BTF\" is broken: its types end "
					   "within one");
		memcpy(&type, btf->types + at, sizeof type);
		extra = extra_bytes(&type);
		if (extra < 0)
			return tt_elf_fail(elf, -1,
					   "section \".BTF\": type %u is of unknown kind %u: "
					   "compile with clang 14 or alike",
					   btf->n_types + 1, tt_btf_kind(&type));
		if (extra > (int64_t)(btf->types_bytes - at - sizeof type))
			return tt_elf_fail(elf, -1,
					   "section \".BTF\" is broken: its types end "
					   "within one");
		btf->type_off[btf->n_types++] = at;
		at += (uint32_t)(sizeof type + (size_t)extra);
	}
	return 0;
}

static bool is_inside(uint32_t off, uint32_t bytes, uint64_t all)
{
	return off <= all && bytes <= all - off;
}

int tt_btf_open(struct tt_elf *elf)
{
	const struct tt_elf_section *s = tt_elf_find(elf, ".BTF");
	struct tt_btf *btf = &elf->btf;
	struct tt_btf_header header;
	uint64_t rest;

	if (!s)
		return 0;
	if (s->size < sizeof header || !s->bytes || s->flags & SHF_COMPRESSED)
		return tt_elf_fail(elf, -1, "section \".BTF\" is truncated or compressed");
	memcpy(&header, s->bytes, sizeof header);
	if (header.magic != TT_BTF_MAGIC || header.version != TT_BTF_VERSION ||
	    header.bytes < sizeof header || header.bytes > s->size)
		return tt_elf_fail(elf, -1,
				   "section \".BTF\" is of an unknown form: compile with "
				   "clang 14 or alike, -target bpf");
	rest = s->size - header.bytes;
	if (!is_inside(header.type_off, header.type_bytes, rest) ||
	    !is_inside(header.string_off, header.string_bytes, rest) || !header.string_bytes)
		return tt_elf_fail(elf, -1, "section \".BTF\" is truncated or broken");
	btf->types = s->bytes + header.bytes + header.type_off;
	btf->types_bytes = header.type_bytes;
	btf->strings = (const char *)s->bytes + header.bytes + header.string_off;
	btf->strings_bytes = header.string_bytes;
	if (btf->strings[btf->strings_bytes - 1])
		return tt_elf_fail(elf, -1, "section \".BTF\" is broken: its names do not end");
	return index_types(elf);
}
