/* SPDX-License-Identifier: MIT */
/*
 * Embeds the module machine on its own: a program that looks at packets, and
 * may be anybody's. Shows objects, helpers, hooks, windows, runs and faults.
 *
 *	cc vm.c $(pkg-config --cflags --libs tutti)
 *	./a.out             # the program below
 *	./a.out filter.o    # clang -O2 -target bpf -mcpu=v3 -c filter.c
 */
#include <tutti/vm.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Counts and reports the bytes that are 'x'; at a '!' it does not end, for the budget to show. */
static const char filter[] = "mov %r6, %r1\n" /* the packet */
			     "mov %r7, %r2\n" /* its bytes */
			     "mov %r8, 0\n"
			     "next: jeq %r7, 0, done\n"
			     "ldxb %r9, [%r6]\n"
			     "jeq %r9, 0x21, next\n"
			     "add %r6, 1\n"
			     "sub %r7, 1\n"
			     "jne %r9, 0x78, next\n"
			     "add %r8, 1\n"
			     "mov %r1, %r6\n"
			     "sub %r1, 1\n"
			     "mov %r2, 1\n"
			     "call 1\n"
			     "ja next\n"
			     "done: mov %r0, %r8\n"
			     "exit\n";

/* A helper: memory that it gets has been checked. */
static int report(struct tutti_vm_call *call)
{
	unsigned *reports = call->user;

	++*reports;
	printf("  reported: %.*s\n", (int)call->bytes[0], (const char *)call->ptr[0]);
	return 0;
}

static const struct tutti_vm_helper helpers[] = {
	{.name = "report",
	 .id = 1,
	 .arg = {TUTTI_VM_ARG_READ, TUTTI_VM_ARG_BYTES},
	 .cost = 20,
	 .fn = report},
};

/* What is called: with the packet's address and its length. */
static const struct tutti_vm_hook hook = {
	.args = 2, .arg = {{.window = TUTTI_VM_PACKET}}, .helpers = 1 << 0};
static const struct tutti_vm_env env = {
	.hooks = &hook, .n_hooks = 1, .helpers = helpers, .n_helpers = 1};

static void must(int err, const struct tutti_vm_error *error)
{
	if (err >= 0)
		return;
	fprintf(stderr, "vm: %s\n", error ? error->text : strerror(-err));
	exit(1);
}

static struct tutti_vm_object *open_object(const char *path)
{
	struct tutti_vm_object *object;
	struct tutti_vm_error error;
	static char bytes[1 << 20];
	size_t size;
	FILE *file;

	if (!path) {
		must(tutti_vm_assemble(filter, strlen(filter), &object, &error), &error);
		return object;
	}
	file = fopen(path, "rb");
	if (!file) {
		perror(path);
		exit(1);
	}
	size = fread(bytes, 1, sizeof bytes, file);
	fclose(file);
	must(tutti_vm_object_open(bytes, size, &object, &error), &error);
	return object;
}

static void run(struct tutti_vm_context *context, const struct tutti_vm_program *program,
		const char *text)
{
	_Alignas(8) char packet[64] = ""; /* windows begin at multiples of eight */
	size_t bytes = strlen(text);
	const uint64_t args[] = {tutti_vm_address(TUTTI_VM_PACKET), bytes};
	struct tutti_vm_result result;
	char fault[256];

	memcpy(packet, text, bytes);
	must(tutti_vm_set_window(context, TUTTI_VM_PACKET, packet, bytes, false), NULL);
	if (tutti_vm_run(context, 0, args, 2, 1000, &result) == 0) {
		printf("%s: %llu\n", text, (unsigned long long)result.r0);
		return;
	}
	tutti_vm_fault_text(program, &result, fault, sizeof fault);
	printf("%s: %s\n", text, fault);
}

int main(int argc, char **argv)
{
	struct tutti_vm_object *object = open_object(argc > 1 ? argv[1] : NULL);
	struct tutti_vm_program *program;
	struct tutti_vm_context *context;
	struct tutti_vm_error error;
	unsigned reports = 0;

	must(tutti_vm_program_create(object, &env, TUTTI_VM_JIT, &program, &error), &error);
	tutti_vm_object_destroy(object);
	must(tutti_vm_context_create(program, &context), NULL);
	tutti_vm_set_user(context, &reports);

	run(context, program, "a packet");
	run(context, program, "xylograph, xylem");
	run(context, program, "stop!");
	printf("%u reports, %s\n", reports,
	       tutti_vm_program_compiled(program) ? "compiled" : "interpreted");

	tutti_vm_context_destroy(context);
	tutti_vm_program_destroy(program);
	return 0;
}
