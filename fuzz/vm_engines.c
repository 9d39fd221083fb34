/* SPDX-License-Identifier: MIT */
/*
 * vm_engines [SECONDS [SEED]]: programs of random bytes, interpreted and
 * compiled; everything that can be seen of the two runs must be the same: the
 * result or the fault, where it was, what it left in memory, the budget left.
 * With libFuzzer (-DTT_LIBFUZZER) the bytes are the fuzzer's.
 */
#include "vm_generate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t mix(uint64_t value)
{
	value = (value ^ value >> 31) * 0x9e3779b97f4a7c15;
	return value ^ value >> 29;
}

static int add_numbers(struct tutti_vm_call *call)
{
	call->ret = call->arg[0] * 3 + mix(call->arg[1]);
	return call->arg[0] == 77 ? -EPERM : 0;
}

static int read_memory(struct tutti_vm_call *call)
{
	const uint8_t *bytes = call->ptr[0];

	for (uint64_t i = 0; i < call->bytes[0]; i++)
		call->ret = mix(call->ret + bytes[i]);
	return 0;
}

static int write_memory(struct tutti_vm_call *call)
{
	memset(call->ptr[0] ? call->ptr[0] : (void *)"", (int)call->arg[2] & 0xff,
	       call->ptr[0] ? call->bytes[0] : 0);
	return 0;
}

static const struct tutti_vm_helper helpers[] = {
	{.name = "add_numbers",
	 .id = 1,
	 .cost = 3,
	 .fn = add_numbers,
	 .arg = {TUTTI_VM_ARG_ANY, TUTTI_VM_ARG_ANY}},
	{.name = "read_memory",
	 .id = 2,
	 .cost = 5,
	 .fn = read_memory,
	 .arg = {TUTTI_VM_ARG_READ, TUTTI_VM_ARG_BYTES}},
	{.name = "write_memory",
	 .id = 3,
	 .cost = 7,
	 .fn = write_memory,
	 .arg = {TUTTI_VM_ARG_WRITE, TUTTI_VM_ARG_BYTES, TUTTI_VM_ARG_ANY}},
};
static const struct tutti_vm_hook hook = {
	.args = 2,
	.helpers = 7,
	.arg = {{.window = TUTTI_VM_PACKET}, {.window = TUTTI_VM_MAPS}},
};
static const struct tutti_vm_env env = {
	.hooks = &hook, .n_hooks = 1, .helpers = helpers, .n_helpers = GENERATE_HELPERS};

struct seen {
	int err;
	struct tutti_vm_result result;
	_Alignas(64) uint8_t packet[GENERATE_PACKET];
	_Alignas(64) uint8_t maps[GENERATE_MAPS];
};

static uint64_t runs, faults, refused;

static void execute(const struct tutti_vm_program *program, bool compiled, uint64_t budget,
		    struct seen *seen)
{
	const uint64_t args[] = {tutti_vm_address(TUTTI_VM_PACKET),
				 tutti_vm_address(TUTTI_VM_MAPS)};
	struct tutti_vm_context *context;

	memset(seen, 0, sizeof *seen);
	for (unsigned i = 0; i < GENERATE_PACKET; i++)
		seen->packet[i] = (uint8_t)(i * 7);
	for (unsigned i = 0; i < GENERATE_MAPS; i++)
		seen->maps[i] = (uint8_t)mix(i);
	if (tutti_vm_context_create(program, &context))
		exit(1);
	tutti_vm_set_window(context, TUTTI_VM_PACKET, seen->packet, sizeof seen->packet, true);
	tutti_vm_set_window(context, TUTTI_VM_MAPS, seen->maps, sizeof seen->maps, true);
	seen->err = (compiled ? tutti_vm_run : tutti_vm_interpret)(context, 0, args, 2, budget,
								   &seen->result);
	tutti_vm_context_destroy(context);
}

static void complain(const struct tutti_vm_insn *insns, uint32_t n, const struct seen *interpreted,
		     const struct seen *compiled)
{
	char text[256];

	for (uint32_t i = 0; i < n;) {
		int slots = tutti_vm_disassemble(insns, n, i, text, sizeof text);

		fprintf(stderr, "%5u  %s\n", i, text);
		i += slots > 0 ? (uint32_t)slots : 1;
	}
	for (int i = 0; i < 2; i++) {
		const struct seen *seen = i ? compiled : interpreted;

		fprintf(stderr,
			"%s: returns %d, r0 0x%llx, fault %s at %u, address 0x%llx, budget left %llu\n",
			i ? "compiled" : "interpreted", seen->err,
			(unsigned long long)seen->result.r0,
			tutti_vm_fault_name(seen->result.fault), seen->result.pc,
			(unsigned long long)seen->result.address,
			(unsigned long long)seen->result.budget_left);
	}
	fprintf(stderr, "packet %s, maps %s\n",
		memcmp(interpreted->packet, compiled->packet, sizeof compiled->packet) ? "differs"
										       : "same",
		memcmp(interpreted->maps, compiled->maps, sizeof compiled->maps) ? "differ"
										 : "same");
}

static bool same(const struct seen *a, const struct seen *b)
{
	if (a->err != b->err || a->result.budget_left != b->result.budget_left ||
	    memcmp(a->packet, b->packet, sizeof a->packet) ||
	    memcmp(a->maps, b->maps, sizeof a->maps))
		return false;
	if (!a->err)
		return a->result.r0 == b->result.r0;
	return a->result.fault == b->result.fault && a->result.pc == b->result.pc &&
	       a->result.address == b->result.address && a->result.bytes == b->result.bytes &&
	       a->result.helper_error == b->result.helper_error;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	static struct tutti_vm_insn insns[GENERATE_INSNS];
	static struct seen interpreted, compiled;
	const struct generate_options options = {.helpers = true};
	uint32_t n = generate(bytes, size, &options, insns);
	struct tutti_vm_object *object;
	struct tutti_vm_program *program;
	struct tutti_vm_error error;

	if (tutti_vm_object_from_insns(insns, n, &object))
		exit(1);
	if (tutti_vm_program_create(object, &env, TUTTI_VM_JIT, &program, &error)) {
		refused++;
		if (getenv("VM_FUZZ_VERBOSE"))
			fprintf(stderr, "refused: %s\n", error.text);
		tutti_vm_object_destroy(object);
		return 0;
	}
	for (int i = 0; i < 2; i++) {
		uint64_t budget = i ? (size ? bytes[size / 2] * 8u : 0) : 20000;

		execute(program, false, budget, &interpreted);
		execute(program, true, budget, &compiled);
		runs++;
		faults += interpreted.err != 0;
		if (!same(&interpreted, &compiled)) {
			complain(insns, n, &interpreted, &compiled);
			abort();
		}
	}
	tutti_vm_program_destroy(program);
	tutti_vm_object_destroy(object);
	return 0;
}

#ifndef TT_LIBFUZZER
int main(int argc, char **argv)
{
	unsigned seconds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 10;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL);
	static uint8_t bytes[4096];
	time_t end = time(NULL) + seconds;

	printf("seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
	while (time(NULL) < end)
		for (int again = 0; again < 64; again++) {
			size_t size;

			seed = mix(seed + 0x9e3779b97f4a7c15);
			size = 64 + seed % (sizeof bytes - 64);
			for (size_t i = 0; i < size; i += 8) {
				uint64_t word = mix(seed + i * 0xd1342543de82ef95);

				memcpy(bytes + i, &word, sizeof word);
			}
			LLVMFuzzerTestOneInput(bytes, size);
		}
	printf("%llu runs, %llu of them ended by a fault, %llu programs refused\n",
	       (unsigned long long)runs, (unsigned long long)faults, (unsigned long long)refused);
	return runs && refused * 20 < runs ? 0 : 1;
}
#endif
