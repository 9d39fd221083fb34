/* SPDX-License-Identifier: MIT */
/* What a fault is called, and where in the source it happened. */
#include "vm/vm_int.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

const char *tutti_vm_fault_name(enum tutti_vm_fault_kind kind)
{
	static const char *const names[] = {
		[TUTTI_VM_FAULT_NONE] = "none",	       [TUTTI_VM_FAULT_READ] = "read",
		[TUTTI_VM_FAULT_WRITE] = "write",      [TUTTI_VM_FAULT_ALIGN] = "alignment",
		[TUTTI_VM_FAULT_BUDGET] = "budget",    [TUTTI_VM_FAULT_ARGUMENT] = "argument",
		[TUTTI_VM_FAULT_HELPER] = "helper",    [TUTTI_VM_FAULT_DEPTH] = "depth",
		[TUTTI_VM_FAULT_INSN] = "instruction",
	};

	return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : "unknown";
}

/* The line that made the instruction, or NULL. */
static const struct tt_vm_line *line_of(const struct tutti_vm_program *program, uint32_t pc)
{
	const struct tt_vm_line *found = NULL;

	for (uint32_t i = 0; i < program->n_lines && program->lines[i].insn <= pc; i++)
		found = &program->lines[i];
	return found;
}

/* Helpers are the caller's and may return anything: "Input/output error", "error 7". */
static void put_helper_error(char *what, size_t bytes, int error)
{
	const char *name = error < 0 && error != INT_MIN ? strerrordesc_np(-error) : NULL;

	if (name)
		snprintf(what, bytes, "a helper ended the run: %s", name);
	else
		snprintf(what, bytes, "a helper ended the run: error %d", error);
}

int tutti_vm_fault_text(const struct tutti_vm_program *program,
			const struct tutti_vm_result *result, char *ret_text, size_t bytes)
{
	const struct tt_vm_line *line = line_of(program, result->pc);
	char where[128] = "", what[200];

	if (line && line->file)
		snprintf(where, sizeof where, "%.80s:%u: ", line->file, line->line);
	else if (line)
		snprintf(where, sizeof where, "line %u: ", line->line);
	switch (result->fault) {
	case TUTTI_VM_FAULT_READ:
	case TUTTI_VM_FAULT_WRITE:
	case TUTTI_VM_FAULT_ARGUMENT:
		/* Memory that a helper gets has bytes: no memory at all never faults. */
		if (!result->bytes) {
			snprintf(what, sizeof what,
				 "a helper's argument 0x%" PRIx64
				 " is a map that is not set (tutti_vm_set_map), or not the hook's "
				 "first argument (pass it on unchanged)",
				 result->address);
			break;
		}
		snprintf(what, sizeof what,
			 "%s of %" PRIu64 " bytes at 0x%" PRIx64
			 ", which is not inside a window that allows it (compare with the "
			 "window's end before)",
			 result->fault == TUTTI_VM_FAULT_READ	 ? "read"
			 : result->fault == TUTTI_VM_FAULT_WRITE ? "write"
								 : "a helper's argument",
			 result->bytes, result->address);
		break;
	case TUTTI_VM_FAULT_ALIGN:
		snprintf(what, sizeof what,
			 "atomic operation on %" PRIu64 " bytes at 0x%" PRIx64
			 ", no multiple of them (align it)",
			 result->bytes, result->address);
		break;
	case TUTTI_VM_FAULT_BUDGET:
		snprintf(what, sizeof what,
			 "the budget of instructions is used up (loop less, or run with more)");
		break;
	case TUTTI_VM_FAULT_HELPER:
		put_helper_error(what, sizeof what, result->helper_error);
		break;
	case TUTTI_VM_FAULT_DEPTH:
		snprintf(what, sizeof what,
			 "more than %d functions inside each other (inline some)",
			 TUTTI_VM_MAX_DEPTH);
		break;
	case TUTTI_VM_FAULT_INSN:
		snprintf(what, sizeof what, "no such instruction (verify the program)");
		break;
	default: return snprintf(ret_text, bytes, "%s", tutti_vm_fault_name(result->fault));
	}
	return snprintf(ret_text, bytes, "%sinstruction %" PRIu32 ": %s", where, result->pc, what);
}
