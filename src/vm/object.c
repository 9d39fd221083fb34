/* SPDX-License-Identifier: MIT */
#include "vm/object.h"
#include "vm/isa.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tutti_vm_object *tt_vm_object_create(void)
{
	return calloc(1, sizeof(struct tutti_vm_object));
}

void tutti_vm_object_destroy(struct tutti_vm_object *object)
{
	if (!object)
		return;
	for (uint32_t i = 0; i < object->n_funcs; i++) {
		free(object->funcs[i].name);
		free(object->funcs[i].section);
	}
	for (uint32_t i = 0; i < object->n_externs; i++)
		free(object->externs[i]);
	for (uint32_t i = 0; i < object->n_lines; i++) {
		free(object->lines[i].file);
		free(object->lines[i].text);
	}
	free(object->insns);
	free(object->funcs);
	free(object->maps);
	free(object->externs);
	free(object->lines);
	free(object->data);
	free(object->rodata);
	free(object);
}

int tutti_vm_object_from_insns(const struct tutti_vm_insn *insns, uint32_t count,
			       struct tutti_vm_object **ret_object)
{
	struct tutti_vm_object *object;

	if (!count || count > TUTTI_VM_MAX_INSNS)
		return -EINVAL;
	object = tt_vm_object_create();
	if (!object)
		return -ENOMEM;
	object->insns = malloc(count * sizeof *insns);
	if (!object->insns)
		goto fail;
	memcpy(object->insns, insns, count * sizeof *insns);
	object->n_insns = count;
	if (tt_vm_object_split(object))
		goto fail;
	*ret_object = object;
	return 0;
fail:
	tutti_vm_object_destroy(object);
	return -ENOMEM;
}

static int add_func(struct tutti_vm_object *object, uint32_t start)
{
	struct tt_vm_func *func = &object->funcs[object->n_funcs++];
	char name[16] = "main";

	if (start) {
		snprintf(name, sizeof name, "func_%u", start);
		func[-1].end = start;
	}
	*func = (struct tt_vm_func){.name = strdup(name),
				    .section = strdup("main"),
				    .start = start,
				    .end = object->n_insns,
				    .entry = start == 0};
	return func->name && func->section ? 0 : -ENOMEM;
}

int tt_vm_object_split(struct tutti_vm_object *object)
{
	uint32_t count = object->n_insns, n_funcs = 0;
	bool *starts = calloc(count, sizeof *starts);
	int err = starts ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < count && !err; i++) {
		const struct tutti_vm_insn *insn = &object->insns[i];
		int64_t target = (int64_t)i + 1 + insn->imm;

		if (insn->code == (TT_JMP | TT_CALL) && tt_vm_src(insn) == TT_CALL_LOCAL &&
		    target >= 0 && target < count)
			starts[target] = true;
		i += insn->code == TT_LDDW;
	}
	if (!err)
		starts[0] = true;
	/* No function begins in the middle of a wide instruction. */
	for (uint32_t i = 0; i < count && !err; i++) {
		n_funcs += starts[i];
		if (object->insns[i].code == TT_LDDW && i + 1 < count)
			starts[++i] = false;
	}
	if (!err) {
		object->funcs = calloc(n_funcs, sizeof *object->funcs);
		err = object->funcs ? 0 : -ENOMEM;
	}
	for (uint32_t i = 0; i < count && !err; i++)
		if (starts[i])
			err = add_func(object, i);
	free(starts);
	return err;
}

uint32_t tutti_vm_object_insns(const struct tutti_vm_object *object,
			       const struct tutti_vm_insn **ret_insns)
{
	*ret_insns = object->insns;
	return object->n_insns;
}

uint32_t tutti_vm_object_maps(const struct tutti_vm_object *object,
			      const struct tutti_vm_map **ret_maps)
{
	*ret_maps = object->maps;
	return object->n_maps;
}

const struct tt_vm_line *tt_vm_object_line(const struct tutti_vm_object *object, uint32_t insn)
{
	uint32_t low = 0, high = object->n_lines;
	const struct tt_vm_func *func = tt_vm_object_func(object, insn);

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (object->lines[middle].insn <= insn)
			low = middle + 1;
		else
			high = middle;
	}
	/* A line before the function's first belongs to another one. */
	if (!low || (func && object->lines[low - 1].insn < func->start))
		return NULL;
	return &object->lines[low - 1];
}

const struct tt_vm_func *tt_vm_object_func(const struct tutti_vm_object *object, uint32_t insn)
{
	for (uint32_t i = 0; i < object->n_funcs; i++)
		if (object->funcs[i].start <= insn && insn < object->funcs[i].end)
			return &object->funcs[i];
	return NULL;
}

int tt_vm_fail(struct tutti_vm_error *error, int code, const struct tutti_vm_object *object,
	       int32_t insn, int32_t reg, const char *format, ...)
{
	const struct tt_vm_line *line = NULL;
	size_t used = 0;
	va_list list;

	if (!error)
		return code;
	if (object && insn >= 0)
		line = tt_vm_object_line(object, (uint32_t)insn);
	*error = (struct tutti_vm_error){.insn = insn, .reg = reg, .line = line ? line->line : 0};
	if (line && line->file)
		used = (size_t)snprintf(error->text, sizeof error->text, "%.80s:%u: ", line->file,
					line->line);
	else if (line)
		used = (size_t)snprintf(error->text, sizeof error->text, "line %u: ", line->line);
	if (insn >= 0)
		used += (size_t)snprintf(error->text + used, sizeof error->text - used,
					 "instruction %d: ", insn);
	va_start(list, format);
	vsnprintf(error->text + used, sizeof error->text - used, format, list);
	va_end(list);
	return code;
}
