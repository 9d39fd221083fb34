/* SPDX-License-Identifier: MIT */
/*
 * vm_kernel_test [PROGRAMS [SEED]]: the module machine against Linux's own BPF.
 *
 * The same instructions, in the same memory, by our interpreter, our JIT and
 * Linux (BPF_PROG_TEST_RUN, with whatever it has, its JIT as a rule): the same
 * 64 bits of r0, the same memory afterwards. The programs are the conformance
 * data ($TUTTI_CASES, by default ../shared/cases beside the sources) and
 * PROGRAMS (1,000) generated ones that both sides accept, out of SEED (the
 * time). What Linux refuses is counted, with its reasons; what both accept must
 * be enough, where Linux is new enough to know all instructions.
 */
#include "bench/vm/linux.h"
#include "fuzz/vm_generate.h"
#include "vm/isa.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

enum {
	SKIP = 77,
	MEMORY = 4096, /* the most that a conformance file may have */
	MIN_FILES = 150,
	MAX_REASONS = 32,
	MAX_DIFFERENCES = 5,
	BUDGET = 10000000,
	/* Of generated programs, for each that is wanted. */
	TRIES = 20,
};

_Static_assert(GENERATE_PACKET + GENERATE_MAPS <= MEMORY, "both windows, one after the other");

/* --- what came of it --------------------------------------------------------------- */

struct reason {
	char text[120];
	unsigned times;
};

struct tally {
	bool unsigned_only; /* Linux would die of a signed division */
	unsigned compared, different, refused_here, faults, refused_by_linux, left_out;
	struct reason reasons[MAX_REASONS];
};

/* Numbers in a reason do not make it another one. */
static void note_refusal(struct tally *tally, const char *why)
{
	char text[sizeof tally->reasons[0].text];
	size_t n = 0;

	tally->refused_by_linux++;
	for (const char *c = why; *c && n < sizeof text - 1; c++) {
		bool digit = isdigit((unsigned char)*c);

		if (!digit || !n || text[n - 1] != '#')
			text[n++] = digit ? '#' : *c;
	}
	text[n] = '\0';
	for (int i = 0; i < MAX_REASONS; i++) {
		struct reason *reason = &tally->reasons[i];

		if (!reason->times)
			memcpy(reason->text, text, sizeof text);
		if (!strcmp(reason->text, text)) {
			reason->times++;
			return;
		}
	}
}

static int by_times(const void *a, const void *b)
{
	return (int)((const struct reason *)b)->times - (int)((const struct reason *)a)->times;
}

static void report(const char *what, struct tally *tally)
{
	printf("%s: %u compared, %u different; refused by Linux %u, by us %u; ended by a fault "
	       "here %u; left out for the kernel's sake %u\n",
	       what, tally->compared, tally->different, tally->refused_by_linux,
	       tally->refused_here, tally->faults, tally->left_out);
	qsort(tally->reasons, MAX_REASONS, sizeof tally->reasons[0], by_times);
	for (int i = 0; i < 5 && tally->reasons[i].times; i++)
		printf("  Linux, %u times: %s\n", tally->reasons[i].times, tally->reasons[i].text);
}

/* --- one program in three engines ----------------------------------------------------- */

struct run {
	uint64_t r0;
	_Alignas(64) uint8_t memory[MEMORY];
};

struct subject {
	const char *name;
	const struct tutti_vm_object *object;
	uint8_t memory[MEMORY]; /* before */
	size_t packet_bytes;	/* r1 points there */
	size_t maps_bytes;	/* behind it, r2 points there; 0: r2 has packet_bytes */
};

/* Lengths are unknown to our verifier, as they are different in each case: checked at run time. */
static const struct tutti_vm_hook hook_of_two = {
	.args = 2, .arg = {{.window = TUTTI_VM_PACKET}, {.window = TUTTI_VM_MAPS}}};
static const struct tutti_vm_hook hook_of_length = {.args = 2,
						    .arg = {{.window = TUTTI_VM_PACKET}, {0}}};
static const struct tutti_vm_env env_of_two = {.hooks = &hook_of_two, .n_hooks = 1};
static const struct tutti_vm_env env_of_length = {.hooks = &hook_of_length, .n_hooks = 1};

/* 0, or an errno of tutti_vm_run. */
static int run_here(const struct subject *s, const struct tutti_vm_program *program, bool compiled,
		    struct run *run)
{
	const uint64_t args[] = {tutti_vm_address(TUTTI_VM_PACKET),
				 s->maps_bytes ? tutti_vm_address(TUTTI_VM_MAPS) : s->packet_bytes};
	struct tutti_vm_context *context;
	struct tutti_vm_result result;
	int err = tutti_vm_context_create(program, &context);

	if (err)
		return err;
	memcpy(run->memory, s->memory, MEMORY);
	tutti_vm_set_window(context, TUTTI_VM_PACKET, run->memory, s->packet_bytes, true);
	tutti_vm_set_window(context, TUTTI_VM_MAPS, run->memory + s->packet_bytes, s->maps_bytes,
			    true);
	err = (compiled ? tutti_vm_run : tutti_vm_interpret)(context, 0, args, 2, BUDGET, &result);
	run->r0 = result.r0;
	tutti_vm_context_destroy(context);
	return err;
}

static int run_linux(const struct subject *s, struct linux_bpf *linux_bpf, struct run *run)
{
	int err;

	memcpy(linux_bpf->memory, s->memory, MEMORY);
	err = linux_bpf_run(linux_bpf, 1, &run->r0, NULL);
	memcpy(run->memory, linux_bpf->memory, MEMORY);
	return err;
}

static bool same(const struct run *a, const struct run *b)
{
	return a->r0 == b->r0 && !memcmp(a->memory, b->memory, MEMORY);
}

static void complain(const struct subject *s, const struct run runs[3])
{
	static const char *const names[] = {"interpreter", "JIT", "Linux"};
	const struct tutti_vm_insn *insns;
	uint32_t n = tutti_vm_object_insns(s->object, &insns);
	char text[256];

	printf("DIFFERENT: %s\n", s->name);
	for (uint32_t i = 0; i < n;) {
		int slots = tutti_vm_disassemble(insns, n, i, text, sizeof text);

		printf("%5u  %s\n", i, text);
		i += slots > 0 ? (uint32_t)slots : 1;
	}
	for (int i = 0; i < 3; i++) {
		printf("%s: r0 0x%llx", names[i], (unsigned long long)runs[i].r0);
		for (size_t off = 0; off < MEMORY; off++)
			if (runs[i].memory[off] != runs[0].memory[off]) {
				printf(", memory differs from byte %zu on", off);
				break;
			}
		putchar('\n');
	}
}

static bool divides_signed(const struct tutti_vm_insn *insns, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		unsigned class = TT_CLASS(insns[i].code), op = TT_OP(insns[i].code);

		if ((class == TT_ALU || class == TT_ALU64) && (op == TT_DIV || op == TT_MOD) &&
		    insns[i].off)
			return true;
	}
	return false;
}

static void compare(const struct subject *s, struct linux_bpf *linux_bpf, struct tally *tally)
{
	static struct run runs[3];
	const struct linux_arg args[LINUX_ARGS] = {
		{.kind = LINUX_ADDRESS},
		{.kind = s->maps_bytes ? LINUX_ADDRESS : LINUX_NUMBER,
		 .value = (uint32_t)s->packet_bytes}};
	const struct tutti_vm_env *env = s->maps_bytes ? &env_of_two : &env_of_length;
	struct tutti_vm_program *program;
	struct tutti_vm_error error;
	const struct tutti_vm_insn *insns;
	uint32_t n = tutti_vm_object_insns(s->object, &insns);
	int err;

	if (tally->unsigned_only && divides_signed(insns, n)) {
		tally->left_out++;
		return;
	}
	if (tutti_vm_program_create(s->object, env, TUTTI_VM_JIT, &program, &error)) {
		tally->refused_here++;
		return;
	}
	err = linux_bpf_load(linux_bpf, insns, n, args);
	if (err) {
		note_refusal(tally, linux_bpf->why);
	} else if (run_here(s, program, false, &runs[0])) {
		tally->faults++;
	} else {
		tally->compared++;
		err = run_here(s, program, true, &runs[1]);
		if (!err)
			err = run_linux(s, linux_bpf, &runs[2]);
		if (err || !same(&runs[0], &runs[1]) || !same(&runs[0], &runs[2])) {
			tally->different++;
			if (err)
				printf("%s: error %d: %s\n", s->name, err, linux_bpf->why);
			else
				complain(s, runs);
		}
	}
	tutti_vm_program_destroy(program);
}

/* --- conformance files ----------------------------------------------------------------- */

/* The section's text in the file's, between its line and the next one's; NULL: none. */
static char *section(const char *file, const char *name)
{
	char head[32];
	const char *start, *end;

	snprintf(head, sizeof head, "\n-- %s\n", name);
	start = strstr(file, head);
	if (!start)
		return NULL;
	start += strlen(head);
	end = strstr(start, "\n-- ");
	return end ? strndup(start, (size_t)(end + 1 - start)) : strdup(start);
}

/* Bytes in hex, comments and blanks between them. Returns how many, or -1. */
static int read_hex(const char *text, uint8_t *bytes, size_t limit)
{
	size_t n = 0;

	for (const char *c = text; *c;) {
		unsigned value;

		if (*c == '#') {
			c += strcspn(c, "\n");
			continue;
		}
		if (isspace((unsigned char)*c)) {
			c++;
			continue;
		}
		if (n == limit || !isxdigit((unsigned char)c[0]) ||
		    !isxdigit((unsigned char)c[1]) || sscanf(c, "%2x", &value) != 1)
			return -1;
		bytes[n++] = (uint8_t)value;
		c += 2;
	}
	return (int)n;
}

/* A raw section: eight bytes an instruction, as one number of 16 digits. */
static int from_raw(const char *text, struct tutti_vm_object **ret_object)
{
	static struct tutti_vm_insn insns[LINUX_MAX_INSNS];
	uint32_t n = 0;
	int used;

	for (unsigned long long word;
	     n < LINUX_MAX_INSNS && sscanf(text, "%llx%n", &word, &used) == 1; text += used)
		memcpy(&insns[n++], &word, sizeof word);
	return tutti_vm_object_from_insns(insns, n, ret_object);
}

static char *read_file(const char *path)
{
	FILE *f = fopen(path, "re");
	char *text = calloc(1, 1 << 16);

	if (f && text) {
		text[0] = '\n'; /* so that every section's line has one before it */
		(void)!fread(text + 1, 1, (1 << 16) - 2, f);
	}
	if (f)
		fclose(f);
	return text;
}

static void try_file(const char *folder, const char *name, struct linux_bpf *linux_bpf,
		     struct tally *tally)
{
	char path[PATH_MAX + 256];
	struct subject s = {.name = name};
	struct tutti_vm_object *object = NULL;
	struct tutti_vm_error error;
	char *text, *code, *raw, *memory;
	int bytes = 0;

	snprintf(path, sizeof path, "%s/%s", folder, name);
	text = read_file(path);
	code = section(text, "asm");
	raw = section(text, "raw");
	memory = section(text, "mem");
	if (memory)
		bytes = read_hex(memory, s.memory, sizeof s.memory);
	if (bytes < 0 || (!raw && !code)) {
		printf("%s: cannot be read\n", name);
		tally->different++;
	} else if (raw ? from_raw(raw, &object)
		       : tutti_vm_assemble(code, strlen(code), &object, &error)) {
		tally->refused_here++;
	} else {
		s.object = object;
		s.packet_bytes = (size_t)bytes;
		compare(&s, linux_bpf, tally);
	}
	tutti_vm_object_destroy(object);
	free(memory);
	free(raw);
	free(code);
	free(text);
}

/* Whether there are any. */
static bool try_files(struct linux_bpf *linux_bpf, struct tally *tally)
{
	const char *cases = getenv("TUTTI_CASES"), *source = getenv("TUTTI_SOURCE");
	char folder[PATH_MAX];
	struct dirent **names;
	int n;

	if (cases)
		snprintf(folder, sizeof folder, "%s/bpf_conformance/tests", cases);
	else
		snprintf(folder, sizeof folder, "%s/../shared/cases/bpf_conformance/tests",
			 source ? source : ".");
	n = scandir(folder, &names, NULL, alphasort);
	if (n < 0) {
		printf("conformance files: left out: there is no %s (set TUTTI_CASES)\n", folder);
		return false;
	}
	for (int i = 0; i < n; i++) {
		const char *dot = strrchr(names[i]->d_name, '.');

		if (dot && !strcmp(dot, ".data") && tally->different < MAX_DIFFERENCES)
			try_file(folder, names[i]->d_name, linux_bpf, tally);
		free(names[i]);
	}
	free(names);
	return true;
}

/* --- generated programs ---------------------------------------------------------------- */

static uint64_t mix(uint64_t value)
{
	value = (value ^ value >> 31) * 0x9e3779b97f4a7c15;
	return value ^ value >> 29;
}

static void fill(uint8_t *bytes, size_t size, uint64_t seed)
{
	for (size_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)(mix(seed + i / 8 * 0xd1342543de82ef95) >> i % 8 * 8);
}

static void try_generated(uint64_t seed, unsigned wanted, struct linux_bpf *linux_bpf,
			  struct tally *tally)
{
	const struct generate_options options = {.bounded = true,
						 .unsigned_only = tally->unsigned_only};
	static struct tutti_vm_insn insns[GENERATE_INSNS];
	static uint8_t bytes[4096];
	char name[64];
	struct subject s = {
		.name = name, .packet_bytes = GENERATE_PACKET, .maps_bytes = GENERATE_MAPS};

	for (unsigned i = 0;
	     i < wanted * TRIES && tally->compared < wanted && tally->different < MAX_DIFFERENCES;
	     i++) {
		struct tutti_vm_object *object;
		uint64_t state = mix(seed + i * 0x9e3779b97f4a7c15);
		uint32_t n;

		snprintf(name, sizeof name, "seed %llu, program %u", (unsigned long long)seed, i);
		fill(bytes, sizeof bytes, state);
		n = generate(bytes, 64 + state % (sizeof bytes - 64), &options, insns);
		if (tutti_vm_object_from_insns(insns, n, &object))
			abort();
		s.object = object;
		fill(s.memory, s.packet_bytes + s.maps_bytes, ~state);
		compare(&s, linux_bpf, tally);
		tutti_vm_object_destroy(object);
	}
}

/* ---------------------------------------------------------------------------------------- */

static int release(void)
{
	struct utsname name;
	int major = 0, minor = 0;

	uname(&name);
	sscanf(name.release, "%d.%d", &major, &minor);
	return major * 1000 + minor;
}

static bool enough(const char *what, const struct tally *tally, unsigned min)
{
	if (tally->compared >= min)
		return true;
	printf("%s: only %u compared, of at least %u\n", what, tally->compared, min);
	return false;
}

int main(int argc, char **argv)
{
	unsigned wanted = argc > 1 ? (unsigned)atoi(argv[1]) : 1000;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL);
	/* Linux before 6.12 divides the smallest number by -1 as the processor does: it dies. */
	const struct tally none = {.unsigned_only = release() < 6012};
	struct tally files = none, generated = none;
	struct linux_bpf linux_bpf = {0};
	/* The last instructions came with Linux 6.6. */
	bool knows_all = release() >= 6006, has_files, good;
	int err = linux_bpf_create(MEMORY, &linux_bpf);

	if (err == -EPERM || err == -EACCES || err == -ENOSYS || err == -EINVAL) {
		printf("bpf(2) is not for us here (%s): run as root\n", linux_bpf.why);
		return SKIP;
	}
	if (err) {
		printf("%s\n", linux_bpf.why);
		return 1;
	}
	printf("seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
	has_files = try_files(&linux_bpf, &files);
	try_generated(seed, wanted, &linux_bpf, &generated);
	if (has_files)
		report("conformance files", &files);
	report("generated programs", &generated);
	printf("Linux ran them by its %s\n", linux_bpf.compiled ? "JIT" : "interpreter");
	linux_bpf_destroy(&linux_bpf);
	good = !files.different && !generated.different && !generated.faults;
	if (knows_all) {
		good = (!has_files || enough("conformance files", &files, MIN_FILES)) && good;
		good = enough("generated programs", &generated, wanted) && good;
	}
	return good ? 0 : 1;
}
