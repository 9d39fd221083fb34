/* SPDX-License-Identifier: MIT */
/* The parts of `tutti module`: module.c (words, disasm, verify), module_build.c, module_run.c. */
#ifndef TT_CLI_MODULE_INT_H
#define TT_CLI_MODULE_INT_H

#include "vm_int.h"

#include "device/fabric_mem.h"

#include <tutti/vm.h>

/*
 * Verified for where it would run: an object with sections mdo/... by what
 * devices provide, maps included; others with a piece of memory and no
 * functions. As tutti_vm_program_create.
 */
int tt_module_program(const struct tutti_vm_object *object, unsigned flags,
		      struct tutti_vm_program **ret_program, struct tutti_vm_error *ret_error);
/* Opens an object. 0, or a negative errno after it has said why. */
int tt_module_open(const char *path, struct tutti_vm_object **ret_object);
/* "maps": [...]. */
void tt_module_write_maps(struct tt_json *j, const struct tutti_vm_object *object);

/* argv[0] is the command's name. They return the exit status. */
int tt_module_build(int argc, char **argv);
int tt_module_run(int argc, char **argv);
/* `tutti module --help`. */
int tt_module_usage(void);

/* --- module_trace.c: files of recorded packets; tutti-module(1) has the format ------------ */

enum { TT_TRACE_KEY_BYTES = 512, TT_TRACE_VALUE_BYTES = 4096 };

enum tt_trace_kind { TT_TRACE_PACKET, TT_TRACE_GROUP, TT_TRACE_MAP };

struct tt_trace_event {
	enum tt_trace_kind kind;
	uint32_t line;
	/* PACKET */
	int64_t time_ns;
	uint32_t input;
	struct tt_packet_head head;
	uint8_t data[TT_PAYLOAD_BYTES];
	/* GROUP */
	uint32_t group;
	uint64_t members[TT_HOLDER_WORDS];
	/* MAP */
	char name[64];
	uint8_t key[TT_TRACE_KEY_BYTES], value[TT_TRACE_VALUE_BYTES];
	size_t key_bytes, value_bytes;
};

/* A text, and where in it we are. All zero but text and bytes at first. */
struct tt_trace {
	const char *text;
	size_t bytes, at;
	uint32_t line;
	int64_t time_ns; /* of the packet before */
};

/* 1: an event; 0: the end; -EINVAL: ret_error says which line, and why. */
int tt_trace_next(struct tt_trace *trace, struct tt_trace_event *ret_event,
		  struct tutti_vm_error *ret_error);

#endif
