/* SPDX-License-Identifier: MIT */
/*
 * The module machine against native code: the same kernels (bench/vm/kernels.c), compiled by the
 * compiler of this program with -O2 and by clang for BPF, run natively, by the JIT, by the
 * interpreter and, where it lets us and accepts them, by Linux's own JIT. All in this process, on
 * one core, the engines alternating.
 *
 * A run's figure is the median of its batches, so that what interrupts one of them does not count.
 * Instructions are counted exactly, by an interpreter that counts (vm/count.h).
 */
#include "bench_vm_int.h"

#include "bench/vm/kernels.h"
#include "bench/vm/linux.h"
#include "bench/vm/modules.h"
#include "vm/count.h"
#include "vm/object.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCHES 20
#define BUDGET (1U << 30)
#define MIN_LOADS 10

typedef u64 (*native_fn)(struct kernel_ctx *ctx);

static const struct {
	const char *name, *section;
	native_fn native;
} kernels[TT_VM_KERNELS] = {
	{"hash", "bench/hash", kernel_hash},	   {"checksum", "bench/checksum", kernel_checksum},
	{"sort", "bench/sort", kernel_sort},	   {"search", "bench/search", kernel_search},
	{"matrix", "bench/matrix", kernel_matrix}, {"bloom", "bench/bloom", kernel_bloom},
};

static const struct tutti_vm_field fields[] = {
	{.off = 0, .window = TUTTI_VM_PACKET},
	{.off = 8, .window = TUTTI_VM_MAPS},
};
static const struct tutti_vm_hook hook = {
	.args = 1,
	.arg = {{.window = TUTTI_VM_CTX, .bytes = sizeof(struct kernel_ctx)}},
	.fields = fields,
	.n_fields = 2,
};
static const struct tutti_vm_env env = {.hooks = &hook, .n_hooks = 1};

struct bench_vm {
	struct tt_bench *b;
	struct tt_vm_bench figures;
	struct tutti_vm_object *object;
	struct tutti_vm_program *program;
	struct tutti_vm_context *context;
	struct kernel_ctx module_ctx, native_ctx;
	struct linux_bpf linux_bpf; /* memory NULL: not to be had */
	_Alignas(64) uint8_t in[KERNEL_IN];
	_Alignas(64) uint8_t out[KERNEL_OUT];
	uint8_t first_out[KERNEL_OUT]; /* what an engine must write */
};

/* ---- one run of an engine ---- */

struct engine {
	const char *name;
	/* Runs the kernel so often; *ret_r0 is the last run's. */
	int (*run)(struct bench_vm *v, int kernel, uint64_t times, uint64_t *ret_r0);
};

static int run_native(struct bench_vm *v, int kernel, uint64_t times, uint64_t *ret_r0)
{
	/* The compiler must not see through it. */
	native_fn volatile fn = kernels[kernel].native;

	while (times--)
		*ret_r0 = fn(&v->native_ctx);
	return 0;
}

static const uint64_t args[] = {(uint64_t)TUTTI_VM_CTX << TUTTI_VM_WINDOW_SHIFT};

static int entry_of(const struct bench_vm *v, int kernel)
{
	return tutti_vm_program_entry(v->program,
				      kernel < 0 ? "bench/empty" : kernels[kernel].section);
}

static int run_jit(struct bench_vm *v, int kernel, uint64_t times, uint64_t *ret_r0)
{
	struct tutti_vm_result result = {0};
	int entry = entry_of(v, kernel), ret = 0;

	while (times-- && !ret)
		ret = tutti_vm_run(v->context, entry, args, 1, BUDGET, &result);
	*ret_r0 = result.r0;
	return ret;
}

static int run_interp(struct bench_vm *v, int kernel, uint64_t times, uint64_t *ret_r0)
{
	struct tutti_vm_result result = {0};
	int entry = entry_of(v, kernel), ret = 0;

	while (times-- && !ret)
		ret = tutti_vm_interpret(v->context, entry, args, 1, BUDGET, &result);
	*ret_r0 = result.r0;
	return ret;
}

static const struct engine native = {"native code", run_native};
static const struct engine jit = {"the JIT", run_jit};
static const struct engine interp = {"the interpreter", run_interp};

/* Nanoseconds of a run: the median of batches that take the given time together. */
static int measure(struct bench_vm *v, const struct engine *engine, int kernel, double seconds,
		   double *ret_ns)
{
	double batch_ns[BATCHES], took = 0;
	uint64_t times = 1, r0;
	int ret = 0;

	/* How many are a batch; warms up, too. */
	while (!ret && took < seconds * 1e9 / BATCHES / 4) {
		uint64_t start = tt_bench_now_ns();

		times *= 2;
		ret = engine->run(v, kernel, times, &r0);
		took = (double)(tt_bench_now_ns() - start);
	}
	times = (uint64_t)((double)times * (seconds * 1e9 / BATCHES) / took) + 1;
	for (int i = 0; i < BATCHES && !ret; i++) {
		uint64_t start = tt_bench_now_ns();

		if (tt_bench_interrupted())
			return tt_bench_error(v->b, EINTR, "interrupted");
		ret = engine->run(v, kernel, times, &r0);
		batch_ns[i] = (double)(tt_bench_now_ns() - start) / (double)times;
	}
	if (ret)
		return tt_bench_error(v->b, -ret, "%s in %s: %s", engine->name,
				      kernel < 0 ? "empty" : kernels[kernel].name, strerror(-ret));
	*ret_ns = tt_bench_median(batch_ns, BATCHES);
	return 0;
}

/* ---- the results of all engines are the same ---- */

static int check(struct bench_vm *v, const struct engine *engine, int kernel, uint64_t want_r0)
{
	uint64_t r0 = 0;
	int ret;

	memset(v->out, 0, sizeof v->out);
	ret = engine->run(v, kernel, 1, &r0);
	if (ret)
		return tt_bench_error(v->b, -ret, "%s in %s: %s", engine->name,
				      kernels[kernel].name, strerror(-ret));
	if (r0 != want_r0)
		return tt_bench_error(v->b, EPROTO, "%s in %s returns 0x%llx, native code 0x%llx",
				      engine->name, kernels[kernel].name, (unsigned long long)r0,
				      (unsigned long long)want_r0);
	if (memcmp(v->out, v->first_out, sizeof v->out) != 0)
		return tt_bench_error(v->b, EPROTO, "%s in %s writes other bytes than native code",
				      engine->name, kernels[kernel].name);
	return 0;
}

/* Loads the module's own instructions of a kernel into Linux. */
static int load_linux(struct bench_vm *v, int kernel)
{
	const struct linux_arg linux_args[LINUX_ARGS] = {
		{.kind = LINUX_PAIR, .value = 0, .second = KERNEL_IN}, {.kind = LINUX_NUMBER}};

	for (uint32_t i = 0; i < v->object->n_funcs; i++) {
		const struct tt_vm_func *func = &v->object->funcs[i];

		if (!strcmp(func->section, kernels[kernel].section))
			return linux_bpf_load(&v->linux_bpf, v->object->insns + func->start,
					      func->end - func->start, linux_args);
	}
	return -ENOENT;
}

/* What Linux refuses is not an error. */
static int check_linux(struct bench_vm *v, int kernel, uint64_t want_r0)
{
	struct tt_vm_measured *m = &v->figures.kernels[kernel];
	uint64_t r0;
	int ret;

	if (!v->linux_bpf.memory) {
		snprintf(m->linux_why, sizeof m->linux_why, "%.180s", v->linux_bpf.why);
		return 0;
	}
	ret = load_linux(v, kernel);
	if (ret || !v->linux_bpf.compiled) {
		snprintf(m->linux_why, sizeof m->linux_why, "%.190s",
			 ret ? v->linux_bpf.why : "its JIT is off");
		return 0;
	}
	memcpy(v->linux_bpf.memory, v->in, KERNEL_IN);
	memset(v->linux_bpf.memory + KERNEL_IN, 0, KERNEL_OUT);
	ret = linux_bpf_run(&v->linux_bpf, 1, &r0, NULL);
	if (ret)
		return tt_bench_error(v->b, -ret, "Linux's BPF in %s: %s", kernels[kernel].name,
				      v->linux_bpf.why);
	if (r0 != want_r0 ||
	    memcmp(v->linux_bpf.memory + KERNEL_IN, v->first_out, sizeof v->out) != 0)
		return tt_bench_error(v->b, EPROTO,
				      "Linux's BPF in %s has another result than native code",
				      kernels[kernel].name);
	return 0;
}

static int check_all(struct bench_vm *v)
{
	int ret = 0;

	for (int i = 0; i < TT_VM_KERNELS && !ret; i++) {
		struct tt_vm_measured *m = &v->figures.kernels[i];
		struct tutti_vm_result result;
		uint64_t r0;

		m->name = kernels[i].name;
		memset(v->out, 0, sizeof v->out);
		run_native(v, i, 1, &r0);
		memcpy(v->first_out, v->out, sizeof v->out);
		ret = check(v, &jit, i, r0);
		if (!ret)
			ret = check(v, &interp, i, r0);
		if (!ret)
			ret = check_linux(v, i, r0);
		if (!ret)
			ret = tt_vm_count(v->context, entry_of(v, i), args, 1, BUDGET, &result,
					  &m->insns);
	}
	return ret;
}

/* ---- the rounds ---- */

static int measure_linux(struct bench_vm *v, int kernel, double *ret_ns)
{
	double batch_ns[BATCHES], once_ns;
	uint32_t times = 100;
	uint64_t r0;
	int ret;

	ret = load_linux(v, kernel);
	if (!ret)
		ret = linux_bpf_run(&v->linux_bpf, times, &r0, &once_ns);
	if (!ret)
		times = (uint32_t)(v->b->seconds * 1e9 / BATCHES / (once_ns + 1)) + 1;
	for (int i = 0; i < BATCHES && !ret; i++)
		ret = linux_bpf_run(&v->linux_bpf, times, &r0, &batch_ns[i]);
	if (ret)
		return tt_bench_error(v->b, -ret, "Linux's BPF in %s: %s", kernels[kernel].name,
				      v->linux_bpf.why);
	*ret_ns = tt_bench_median(batch_ns, BATCHES);
	return 0;
}

/* From the bytes of the object to code that can run: opened, verified, compiled. */
static int measure_load(struct bench_vm *v, double *ret_us)
{
	size_t bytes = (size_t)(tt_module_thousand_end - tt_module_thousand);
	double took[256];
	uint64_t end = tt_bench_now_ns() + (uint64_t)(v->b->seconds * 1e9);
	const struct tutti_vm_insn *insns;
	int n = 0;

	while (n < (int)(sizeof took / sizeof *took) &&
	       (n < MIN_LOADS || tt_bench_now_ns() < end)) {
		struct tutti_vm_object *object = NULL;
		struct tutti_vm_program *program = NULL;
		struct tutti_vm_error error = {.text = ""};
		uint64_t start = tt_bench_now_ns();
		int ret = tutti_vm_object_open(tt_module_thousand, bytes, &object, &error);

		if (!ret)
			ret = tutti_vm_program_create(object, &env, TUTTI_VM_JIT, &program, &error);
		took[n++] = (double)(tt_bench_now_ns() - start) / 1e3;
		if (object)
			v->figures.load_insns = tutti_vm_object_insns(object, &insns);
		tutti_vm_program_destroy(program);
		tutti_vm_object_destroy(object);
		if (ret)
			return tt_bench_error(v->b, -ret, "the module to be loaded: %s",
					      error.text);
	}
	*ret_us = tt_bench_median(took, n);
	return 0;
}

static int run_round(struct bench_vm *v, int round)
{
	struct tt_vm_bench *f = &v->figures;
	double seconds = v->b->seconds;
	int ret = measure(v, &jit, -1, seconds, &f->empty_ns[round]);

	if (!ret)
		ret = measure_load(v, &f->load_us[round]);
	for (int i = 0; i < TT_VM_KERNELS && !ret; i++) {
		struct tt_vm_times *t = &f->kernels[i].times;

		tt_bench_progress(v->b, kernels[i].name, round * TT_VM_KERNELS + i,
				  v->b->pairs * TT_VM_KERNELS);
		ret = measure(v, &native, i, seconds, &t->native[round]);
		if (!ret)
			ret = measure(v, &jit, i, seconds, &t->jit[round]);
		if (!ret)
			ret = measure(v, &interp, i, seconds, &t->interp[round]);
		if (!ret && !f->kernels[i].linux_why[0])
			ret = measure_linux(v, i, &t->linux_jit[round]);
	}
	return ret;
}

/* ---- what the rounds need ---- */

/* Any numbers, the same at each start. */
static void fill(uint8_t *bytes, size_t n)
{
	uint64_t state = 88172645463325252ULL;

	for (size_t i = 0; i < n; i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		bytes[i] = (uint8_t)(state >> 32);
	}
}

static int open_module(struct bench_vm *v)
{
	size_t bytes = (size_t)(tt_module_kernels_end - tt_module_kernels);
	struct tutti_vm_error error = {.text = ""};
	int ret;

	if (!bytes)
		return tt_bench_error(v->b, ENOENT, "%s", TT_BENCH_NO_CLANG);
	ret = tutti_vm_object_open(tt_module_kernels, bytes, &v->object, &error);
	if (!ret)
		ret = tutti_vm_program_create(v->object, &env, TUTTI_VM_JIT, &v->program, &error);
	if (ret)
		return tt_bench_error(v->b, -ret, "the module of kernels: %s", error.text);
	if (!tutti_vm_program_compiled(v->program))
		return tt_bench_error(v->b, ENOTSUP, "%s", TT_BENCH_NO_JIT);
	ret = tutti_vm_context_create(v->program, &v->context);
	if (ret)
		return tt_bench_error(v->b, -ret, "no context: %s", strerror(-ret));
	return 0;
}

static void lay_memory(struct bench_vm *v)
{
	fill(v->in, sizeof v->in);
	v->native_ctx.in = (u64)(uintptr_t)v->in;
	v->native_ctx.out = (u64)(uintptr_t)v->out;
	v->module_ctx.in = tutti_vm_address(TUTTI_VM_PACKET);
	v->module_ctx.out = tutti_vm_address(TUTTI_VM_MAPS);
	tutti_vm_set_window(v->context, TUTTI_VM_CTX, &v->module_ctx, sizeof v->module_ctx, false);
	tutti_vm_set_window(v->context, TUTTI_VM_PACKET, v->in, sizeof v->in, false);
	tutti_vm_set_window(v->context, TUTTI_VM_MAPS, v->out, sizeof v->out, true);
}

int tt_bench_vm(struct tt_bench *b)
{
	struct bench_vm *v = aligned_alloc(64, (sizeof *v + 63) & ~(size_t)63);
	int ret;

	if (!v)
		return tt_bench_error(b, ENOMEM, "out of memory");
	memset(v, 0, sizeof *v);
	v->b = b;
	tt_bench_pin(b->client_cpu);
	ret = open_module(v);
	if (ret)
		goto out;
	lay_memory(v);
	(void)linux_bpf_create(KERNEL_IN + KERNEL_OUT, &v->linux_bpf); /* else it says why */
	ret = check_all(v);
	for (int round = 0; round < b->pairs && !ret; round++) {
		ret = run_round(v, round);
		v->figures.pairs = round + 1;
	}
	tt_bench_progress(b, "", 1, 1);
	if (!ret)
		ret = tt_bench_vm_print(b, &v->figures);
	if (v->linux_bpf.memory)
		linux_bpf_destroy(&v->linux_bpf);
out:
	tutti_vm_context_destroy(v->context);
	tutti_vm_program_destroy(v->program);
	tutti_vm_object_destroy(v->object);
	free(v);
	return ret;
}
