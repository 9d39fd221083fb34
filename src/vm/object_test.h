/* SPDX-License-Identifier: MIT */
/* For tests: the promises of object.h, looked at. */
#ifndef TT_VM_OBJECT_TEST_H
#define TT_VM_OBJECT_TEST_H

#include "vm/isa.h"
#include "vm/object.h"

#include <string.h>

static inline const char *tt_vm_broken_funcs(const struct tutti_vm_object *o)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < o->n_funcs; i++) {
		const struct tt_vm_func *f = &o->funcs[i];

		if (f->start != at || f->end <= f->start)
			return "functions leave a gap, overlap, or one is empty";
		if (!f->name || !*f->name || !f->section)
			return "a function has no name";
		at = f->end;
	}
	return at == o->n_insns ? NULL : "instructions behind the last function";
}

static inline const char *tt_vm_broken_insns(const struct tutti_vm_object *o)
{
	for (uint32_t i = 0; i < o->n_insns; i++) {
		const struct tutti_vm_insn *insn = &o->insns[i];

		if (insn->code == TT_LDDW && tt_vm_src(insn) == TT_WIDE_MAP &&
		    (uint32_t)insn->imm >= o->n_maps)
			return "a map's index is out of range";
		if (insn->code == (TT_JMP | TT_CALL) && tt_vm_src(insn) == TT_CALL_EXTERN &&
		    (uint32_t)insn->imm >= o->n_externs)
			return "an extern's index is out of range";
	}
	return NULL;
}

/* What is broken, or NULL. Reads every byte that the object has, for the sanitizers. */
static inline const char *tt_vm_broken_object(const struct tutti_vm_object *o)
{
	const char *broken = tt_vm_broken_funcs(o);
	volatile uint8_t sink = 0;

	if (!broken)
		broken = tt_vm_broken_insns(o);
	if (!o->n_insns || o->n_insns > TUTTI_VM_MAX_INSNS || o->n_lines > o->n_insns)
		return "more than there may be";
	if (o->data_bytes >= TUTTI_VM_WINDOW_BYTES || o->rodata_bytes >= TUTTI_VM_WINDOW_BYTES)
		return "data does not fit into its window";
	for (uint32_t i = 0; i < o->n_lines; i++) {
		if (o->lines[i].insn >= o->n_insns ||
		    (i && o->lines[i].insn < o->lines[i - 1].insn))
			return "lines are not in order";
		sink ^= o->lines[i].text ? (uint8_t)strlen(o->lines[i].text) : 0;
		sink ^= o->lines[i].file ? (uint8_t)strlen(o->lines[i].file) : 0;
	}
	for (uint32_t i = 0; i < o->n_maps; i++)
		if (!*o->maps[i].name || !memchr(o->maps[i].name, 0, sizeof o->maps[i].name))
			return "a map's name is empty or does not end";
	for (uint32_t i = 0; i < o->n_externs; i++)
		if (!o->externs[i] || !*o->externs[i])
			return "an extern has no name";
	if (!memchr(o->license, 0, sizeof o->license))
		return "the licence does not end";
	/* Not each of a hostile file's 200 MiB of zeroes. */
	for (uint32_t i = 0; i < o->data_bytes; i += i < 65536 ? 1 : 65536)
		sink ^= o->data[i];
	for (uint32_t i = 0; i < o->rodata_bytes; i += i < 65536 ? 1 : 65536)
		sink ^= o->rodata[i];
	if (o->data_bytes)
		sink ^= o->data[o->data_bytes - 1];
	if (o->rodata_bytes)
		sink ^= o->rodata[o->rodata_bytes - 1];
	return broken;
}

#endif
