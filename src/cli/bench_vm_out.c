/* SPDX-License-Identifier: MIT */
#include "bench_vm_int.h"

#include <math.h>
#include <stdio.h>

/* What is said of all kernels together. */
struct summary {
	double geomean;	    /* JIT over native, of the kernels' medians */
	double insns_per_s; /* interpreter: the mean of the kernels' rates */
};

static double rate_of(const struct tt_vm_measured *k, int n)
{
	return (double)k->insns * 1e9 / tt_bench_median(k->times.interp, n);
}

static struct summary summary_of(const struct tt_vm_bench *vm)
{
	double logs = 0, rates = 0;

	for (int i = 0; i < TT_VM_KERNELS; i++) {
		const struct tt_vm_measured *k = &vm->kernels[i];

		logs += log(tt_bench_ratio_of(k->times.jit, k->times.native, vm->pairs).median);
		rates += rate_of(k, vm->pairs);
	}
	return (struct summary){exp(logs / TT_VM_KERNELS), rates / TT_VM_KERNELS};
}

/* ---- JSON ---- */

static json_t *kernel_json(const struct tt_vm_measured *k, int n)
{
	const struct tt_vm_times *t = &k->times;
	json_t *o = json_object();

	json_object_set_new(o, "name", json_string(k->name));
	json_object_set_new(o, "native_ns", json_real(tt_bench_median(t->native, n)));
	json_object_set_new(o, "jit_ns", json_real(tt_bench_median(t->jit, n)));
	json_object_set_new(o, "interp_ns", json_real(tt_bench_median(t->interp, n)));
	tt_bench_set_spread(o, "jit_over_native", tt_bench_ratio_of(t->jit, t->native, n));
	json_object_set_new(o, "insns", json_integer((json_int_t)k->insns));
	json_object_set_new(o, "interp_insn_per_s", json_real(round(rate_of(k, n))));
	if (k->linux_why[0]) {
		json_object_set_new(o, "kernel_refuses", json_string(k->linux_why));
	} else {
		json_object_set_new(o, "kernel_jit_ns",
				    json_real(tt_bench_median(t->linux_jit, n)));
		tt_bench_set_spread(o, "jit_over_kernel_jit",
				    tt_bench_ratio_of(t->jit, t->linux_jit, n));
	}
	return o;
}

static int print_json(struct tt_bench *b, const struct tt_vm_bench *vm)
{
	struct summary all = summary_of(vm);
	json_t *o = json_object(), *kernels = json_array();

	for (int i = 0; i < TT_VM_KERNELS; i++)
		json_array_append_new(kernels, kernel_json(&vm->kernels[i], vm->pairs));
	json_object_set_new(o, "bench", json_string("vm"));
	json_object_set_new(o, "pairs", json_integer(vm->pairs));
	json_object_set_new(o, "native_compiler", json_string(__VERSION__));
	json_object_set_new(o, "empty_call_ns",
			    json_real(tt_bench_median(vm->empty_ns, vm->pairs)));
	tt_bench_set_spread(o, "empty_call_spread_ns", tt_bench_spread_of(vm->empty_ns, vm->pairs));
	json_object_set_new(o, "kernels", kernels);
	json_object_set_new(o, "geomean_jit_over_native", json_real(all.geomean));
	json_object_set_new(o, "interp_insn_per_s", json_real(round(all.insns_per_s)));
	json_object_set_new(o, "load_us_1000_insn",
			    json_real(tt_bench_median(vm->load_us, vm->pairs)));
	tt_bench_set_spread(o, "load_spread_us", tt_bench_spread_of(vm->load_us, vm->pairs));
	json_object_set_new(o, "load_insns", json_integer(vm->load_insns));
	return tt_bench_print_json(b, o);
}

/* ---- the table ---- */

static void print_kernel(const struct tt_vm_measured *k, int n)
{
	const struct tt_vm_times *t = &k->times;
	struct tt_bench_spread s = tt_bench_ratio_of(t->jit, t->native, n);
	char cells[4][32], ratio[40];

	tt_bench_format(cells[0], sizeof cells[0], tt_bench_median(t->native, n), TT_UNIT_NS);
	tt_bench_format(cells[1], sizeof cells[1], tt_bench_median(t->jit, n), TT_UNIT_NS);
	tt_bench_format(cells[2], sizeof cells[2], tt_bench_median(t->interp, n), TT_UNIT_NS);
	snprintf(cells[3], sizeof cells[3], "refused");
	if (!k->linux_why[0])
		tt_bench_format(cells[3], sizeof cells[3], tt_bench_median(t->linux_jit, n),
				TT_UNIT_NS);
	snprintf(ratio, sizeof ratio, "%.2f (%.2f - %.2f)", s.median, s.low, s.high);
	printf("%-9s %10s %10s %20s %10s %10s %10.0f\n", k->name, cells[0], cells[1], ratio,
	       cells[3], cells[2], rate_of(k, n) / 1e6);
}

static int print_table(const struct tt_vm_bench *vm)
{
	struct summary all = summary_of(vm);
	struct tt_bench_spread empty = tt_bench_spread_of(vm->empty_ns, vm->pairs);
	struct tt_bench_spread load = tt_bench_spread_of(vm->load_us, vm->pairs);

	printf("the module machine, medians of %d runs each, alternating\n\n"
	       "%-9s %10s %10s %20s %10s %10s %10s\n",
	       vm->pairs, "kernel", "native", "JIT", "times native", "Linux JIT", "interp.",
	       "M insn/s");
	for (int i = 0; i < TT_VM_KERNELS; i++)
		print_kernel(&vm->kernels[i], vm->pairs);
	printf("\nJIT over native, geometric mean: %.2f\n"
	       "interpreter, mean: %.0f million instructions a second\n"
	       "an empty call, JIT: %.1f ns (%.1f - %.1f)\n"
	       "load of %u instructions, verified and compiled: %.0f us (%.0f - %.0f)\n",
	       all.geomean, all.insns_per_s / 1e6, empty.median, empty.low, empty.high,
	       vm->load_insns, load.median, load.low, load.high);
	for (int i = 0; i < TT_VM_KERNELS; i++)
		if (vm->kernels[i].linux_why[0])
			printf("%s is not run by Linux's JIT: %s\n", vm->kernels[i].name,
			       vm->kernels[i].linux_why);
	return 0;
}

int tt_bench_vm_print(struct tt_bench *b, const struct tt_vm_bench *vm)
{
	return b->json ? print_json(b, vm) : print_table(vm);
}
