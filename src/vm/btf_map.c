/* SPDX-License-Identifier: MIT */
/*
 * Maps, as libbpf's headers have their users write them: a variable in section
 * ".maps", whose type is a struct with members that are never there, but have
 * types:
 *
 *	int (*max_entries)[16];    __uint(max_entries, 16)
 *	struct value *value;       __type(value, struct value)
 */
#include "vm/btf_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The members that say numbers, and where they go. */
static const struct {
	const char *name;
	size_t off;
} numbers[] = {
	{"type", offsetof(struct tutti_vm_map, type)},
	{"key_size", offsetof(struct tutti_vm_map, key_bytes)},
	{"value_size", offsetof(struct tutti_vm_map, value_bytes)},
	{"max_entries", offsetof(struct tutti_vm_map, max_entries)},
	{"map_flags", offsetof(struct tutti_vm_map, flags)},
};
static const struct {
	const char *name;
	size_t off;
} types[] = {
	{"key", offsetof(struct tutti_vm_map, key_bytes)},
	{"value", offsetof(struct tutti_vm_map, value_bytes)},
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* What is said twice must be the same, as a key and its size. */
static int set(struct tt_elf *elf, struct tutti_vm_map *map, size_t off, const char *member,
	       uint32_t number)
{
	uint32_t *place = (void *)((char *)map + off);

	if (*place && *place != number)
		return tt_elf_fail(elf, -1,
				   "map \"%.40s\": \"%s\" says %u, another member %u: leave "
				   "one out",
				   map->name, member, number, *place);
	*place = number;
	return 0;
}

static int read_member(struct tt_elf *elf, struct tutti_vm_map *map,
		       const struct tt_btf_member *member)
{
	const struct tt_btf *btf = &elf->btf;
	const char *name = tt_btf_text(btf, member->name);
	struct tt_btf_type pointer, type;
	const uint8_t *extra;
	struct tt_btf_array array;
	uint32_t bytes;

	if (!name)
		return tt_elf_fail(elf, -1, "section \".BTF\" is broken: a member without a name");
	if (!tt_btf_bare(btf, member->type, &pointer, NULL) || tt_btf_kind(&pointer) != TT_BTF_PTR)
		return tt_elf_fail(elf, -1,
				   "map \"%.40s\": member \"%.20s\" is in the wrong form: "
				   "write it with __uint or __type",
				   map->name, name);
	for (size_t i = 0; i < COUNT(numbers); i++) {
		if (strcmp(name, numbers[i].name) != 0)
			continue;
		if (!tt_btf_bare(btf, pointer.size, &type, &extra) ||
		    tt_btf_kind(&type) != TT_BTF_ARRAY)
			return tt_elf_fail(elf, -1,
					   "map \"%.40s\": member \"%s\" is in the wrong "
					   "form: write __uint(%s, NUMBER)",
					   map->name, numbers[i].name, numbers[i].name);
		memcpy(&array, extra, sizeof array);
		return set(elf, map, numbers[i].off, name, array.count);
	}
	for (size_t i = 0; i < COUNT(types); i++) {
		if (strcmp(name, types[i].name) != 0)
			continue;
		if (!tt_btf_size(btf, pointer.size, &bytes))
			return tt_elf_fail(elf, -1,
					   "map \"%.40s\": the type of its %s has no size, "
					   "or too large a one: complete it, or say %s_size",
					   map->name, types[i].name, types[i].name);
		return set(elf, map, types[i].off, name, bytes);
	}
	return tt_elf_fail(elf, -1,
			   "map \"%.40s\": member \"%.20s\" is not taken; these are: type, "
			   "key, value, key_size, value_size, max_entries, map_flags",
			   map->name, name);
}

static int read_definition(struct tt_elf *elf, struct tutti_vm_map *map, uint32_t type_id)
{
	struct tt_btf_type type;
	const uint8_t *extra;

	if (!tt_btf_bare(&elf->btf, type_id, &type, &extra) || tt_btf_kind(&type) != TT_BTF_STRUCT)
		return tt_elf_fail(elf, -1,
				   "map \"%.40s\" is in the wrong form: define it as a struct "
				   "of __uint and __type",
				   map->name);
	for (uint32_t i = 0; i < tt_btf_count(&type); i++) {
		struct tt_btf_member member;
		int err;

		memcpy(&member, extra + i * sizeof member, sizeof member);
		err = read_member(elf, map, &member);
		if (err)
			return err;
	}
	if (!map->type)
		return tt_elf_fail(elf, -1, "map \"%.40s\" has no type: write __uint(type, NUMBER)",
				   map->name);
	return 0;
}

/*
 * Of a static variable the offset is there; for a global one it is the
 * symbol's, and what is there is added by relocation.
 */
static int find_off(struct tt_elf *elf, const struct tutti_vm_map *map, uint32_t linkage,
		    uint64_t off, uint64_t *ret_off)
{
	if (linkage == TT_BTF_STATIC) {
		*ret_off = off;
		return 0;
	}
	for (uint32_t i = 1; i < elf->n_symbols; i++) {
		Elf64_Sym symbol = tt_elf_symbol(elf, i);
		const char *name;
		int err;

		if (symbol.st_shndx != elf->maps_section ||
		    ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT)
			continue;
		err = tt_elf_symbol_name(elf, &symbol, &name);
		if (err)
			return err;
		if (!strcmp(name, map->name)) {
			*ret_off = symbol.st_value;
			return 0;
		}
	}
	return tt_elf_fail(elf, -1, "map \"%.40s\" has no symbol: do not strip the object",
			   map->name);
}

static int read_map(struct tt_elf *elf, const struct tt_btf_variable *variable)
{
	struct tutti_vm_object *object = elf->object;
	struct tutti_vm_map *map = &object->maps[object->n_maps];
	uint64_t *off = &elf->map_off[object->n_maps];
	struct tt_btf_type var;
	const uint8_t *extra;
	const char *name = NULL;
	uint32_t linkage;
	int err;

	if (tt_btf_type(&elf->btf, variable->type, &var, &extra) && tt_btf_kind(&var) == TT_BTF_VAR)
		name = tt_btf_text(&elf->btf, var.name);
	if (!name || !*name)
		return tt_elf_fail(elf, -1,
				   "section \".BTF\" is broken: a map that is no variable");
	if (strnlen(name, sizeof map->name) == sizeof map->name)
		return tt_elf_fail(elf, -1, "map \"%.40s...\": a name of more than %zu characters",
				   name, sizeof map->name - 1);
	for (const char *c = name; *c; c++)
		if (*c <= 0x20 || *c == 0x7f)
			return tt_elf_fail(elf, -1,
					   "section \".BTF\" is broken: a map's name is none");
	snprintf(map->name, sizeof map->name, "%s", name);
	for (uint32_t i = 0; i < object->n_maps; i++)
		if (!strcmp(object->maps[i].name, name))
			return tt_elf_fail(elf, -1, "two maps with the name \"%.40s\"", name);
	memcpy(&linkage, extra, sizeof linkage);
	err = find_off(elf, map, linkage, variable->off, off);
	if (!err)
		err = read_definition(elf, map, var.size);
	if (!err)
		object->n_maps++;
	return err;
}

static int read_section(struct tt_elf *elf, const struct tt_btf_type *section, const uint8_t *extra)
{
	uint32_t count = tt_btf_count(section);

	if (count > TT_MAX_MAPS)
		return tt_elf_fail(elf, -1, "%u maps, of at most %d", count, TT_MAX_MAPS);
	elf->object->maps = calloc(count + 1, sizeof *elf->object->maps);
	if (!elf->object->maps)
		return tt_elf_no_memory(elf);
	for (uint32_t i = 0; i < count; i++) {
		struct tt_btf_variable variable;
		int err;

		memcpy(&variable, extra + i * sizeof variable, sizeof variable);
		err = read_map(elf, &variable);
		if (err)
			return err;
	}
	return 0;
}

int tt_btf_maps(struct tt_elf *elf)
{
	const struct tt_btf *btf = &elf->btf;

	if (!elf->maps_section || !elf->sections[elf->maps_section].size)
		return 0;
	for (uint32_t id = 1; id <= btf->n_types; id++) {
		struct tt_btf_type type;
		const uint8_t *extra;
		const char *name;

		if (!tt_btf_type(btf, id, &type, &extra) || tt_btf_kind(&type) != TT_BTF_DATASEC)
			continue;
		name = tt_btf_text(btf, type.name);
		if (name && !strcmp(name, ".maps"))
			return read_section(elf, &type, extra);
	}
	return tt_elf_fail(elf, -1, "section \".maps\": its maps have no types: compile with -g");
}
