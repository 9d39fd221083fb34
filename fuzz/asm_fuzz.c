/* SPDX-License-Identifier: MIT */
/*
 * Assembler and disassembler with any bytes, for libFuzzer.
 *
 * As a text: it is refused with the line, or what it makes keeps the object's
 * invariants, disassembles, and assembles again to the same. As instructions:
 * each is refused, with a text that does not assemble, or makes a text that
 * assembles to the same bytes.
 */
#include "vm/object.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TEXT 128

#define MUST(condition)                                                                            \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);    \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_error(const struct tutti_vm_error *error)
{
	char start[32];

	snprintf(start, sizeof start, "line %u: ", error->line);
	MUST(error->line > 0 && error->insn == -1);
	MUST(strncmp(error->text, start, strlen(start)) == 0);
	MUST(strlen(error->text) > strlen(start));
	for (const char *c = error->text; *c; c++)
		MUST(*c >= 0x20 && *c < 0x7f);
}

static void check_object(const struct tutti_vm_object *object)
{
	uint32_t next = 0, line = 0;

	MUST(object->n_insns > 0 && object->n_insns <= TUTTI_VM_MAX_INSNS);
	for (uint32_t i = 0; i < object->n_funcs; i++) {
		MUST(object->funcs[i].start == next && object->funcs[i].end > next);
		MUST(object->funcs[i].entry == (i == 0));
		MUST(object->funcs[i].name && object->funcs[i].section);
		next = object->funcs[i].end;
	}
	MUST(next == object->n_insns);
	for (uint32_t i = 0; i < object->n_lines; i++) {
		MUST(object->lines[i].insn < object->n_insns && object->lines[i].text);
		MUST(i == 0 || object->lines[i].insn > object->lines[i - 1].insn);
		MUST(object->lines[i].line > line);
		line = object->lines[i].line;
	}
}

/* The whole program as text; for free(). */
static char *listing(const struct tutti_vm_object *object)
{
	char *text = malloc((size_t)object->n_insns * MAX_TEXT + 1), *at = text;

	MUST(text);
	*text = '\0';
	for (uint32_t i = 0; i < object->n_insns;) {
		int slots = tutti_vm_disassemble(object->insns, object->n_insns, i, at, MAX_TEXT);

		MUST(slots > 0 && strlen(at) < MAX_TEXT - 1);
		at = stpcpy(at + strlen(at), "\n");
		i += (uint32_t)slots;
	}
	return text;
}

static void as_text(const char *bytes, size_t size)
{
	struct tutti_vm_object *object = NULL, *again = NULL;
	struct tutti_vm_error error = {0};
	int err = tutti_vm_assemble(bytes, size, &object, &error);
	char *text;

	if (err) {
		MUST(err == -EINVAL && !object);
		check_error(&error);
		return;
	}
	check_object(object);
	text = listing(object);
	MUST(tutti_vm_assemble(text, strlen(text), &again, &error) == 0);
	check_object(again);
	MUST(again->n_insns == object->n_insns && again->n_funcs == object->n_funcs);
	MUST(memcmp(again->insns, object->insns, object->n_insns * sizeof *object->insns) == 0);
	free(text);
	tutti_vm_object_destroy(again);
	tutti_vm_object_destroy(object);
}

static void as_insns(const uint8_t *data, size_t size)
{
	uint32_t count = (uint32_t)(size / sizeof(struct tutti_vm_insn));
	struct tutti_vm_insn *insns = malloc(count ? count * sizeof *insns : 1);

	MUST(insns);
	memcpy(insns, data, count * sizeof *insns);
	for (uint32_t i = 0; i < count; i++) {
		struct tutti_vm_object *object = NULL;
		char text[MAX_TEXT];
		int slots = tutti_vm_disassemble(insns, count, i, text, sizeof text);
		int err = tutti_vm_assemble(text, strlen(text), &object, NULL);

		MUST(strlen(text) < MAX_TEXT - 1);
		MUST(slots > 0 ? !err : err == -EINVAL && slots == -EINVAL);
		if (slots > 0) {
			MUST(object->n_insns == (uint32_t)slots);
			MUST(memcmp(object->insns, &insns[i], (size_t)slots * sizeof *insns) == 0);
		}
		tutti_vm_object_destroy(object);
	}
	free(insns);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	as_text((const char *)data, size);
	as_insns(data, size);
	return 0;
}
