/* SPDX-License-Identifier: MIT */
#include "bench_int.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CELL_BYTES 32

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double tt_bench_median(const double *values, int n)
{
	double sorted[TT_BENCH_MAX_PAIRS];

	if (n < 1)
		return 0;
	memcpy(sorted, values, (size_t)n * sizeof(*values));
	qsort(sorted, (size_t)n, sizeof(*sorted), compare_doubles);
	return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

struct tt_bench_spread tt_bench_spread_of(const double *values, int n)
{
	struct tt_bench_spread s = {tt_bench_median(values, n), values[0], values[0]};

	for (int i = 1; i < n; i++) {
		s.low = fmin(s.low, values[i]);
		s.high = fmax(s.high, values[i]);
	}
	return s;
}

struct tt_bench_spread tt_bench_ratio_of(const double *above, const double *below, int n)
{
	double ratios[TT_BENCH_MAX_PAIRS];

	for (int i = 0; i < n; i++)
		ratios[i] = above[i] / below[i];
	return tt_bench_spread_of(ratios, n);
}

void tt_bench_set_spread(json_t *object, const char *key, struct tt_bench_spread spread)
{
	json_t *o = json_object();

	json_object_set_new(o, "median", json_real(spread.median));
	json_object_set_new(o, "min", json_real(spread.low));
	json_object_set_new(o, "max", json_real(spread.high));
	json_object_set_new(object, key, o);
}

/* The median over the runs of a figure divided by the messages of its run. */
static double per_message(const struct tt_bench_path *path, int metric, double factor)
{
	double values[TT_BENCH_MAX_PAIRS];

	for (int i = 0; i < path->runs; i++)
		values[i] = path->messages[i] > 0
				    ? path->values[metric][i] * factor / path->messages[i]
				    : 0;
	return tt_bench_median(values, path->runs);
}

void tt_bench_speedup(const struct tt_bench *b, const struct tt_bench_path *path,
		      double *ret_median, double *ret_min, double *ret_max)
{
	const struct tt_bench_path *first = &b->paths[0];
	double ratios[TT_BENCH_MAX_PAIRS], low = INFINITY, high = 0;
	int n = path->runs < first->runs ? path->runs : first->runs;

	if (n < 1) {
		*ret_median = *ret_min = *ret_max = 0;
		return;
	}
	for (int i = 0; i < n; i++) {
		double mine = path->values[0][i], theirs = first->values[0][i];
		double better = b->spec->less_is_better ? theirs : mine;
		double worse = b->spec->less_is_better ? mine : theirs;

		ratios[i] = worse > 0 ? better / worse : 0;
		low = fmin(low, ratios[i]);
		high = fmax(high, ratios[i]);
	}
	*ret_median = tt_bench_median(ratios, n);
	*ret_min = low;
	*ret_max = high;
}

/* ---- JSON ---- */

/* Whole numbers from a thousand up: nobody needs the fraction of a nanosecond in a second. */
static json_t *figure(double value)
{
	if (value >= 1000)
		return json_integer((json_int_t)llround(value));
	return json_real(round(value * 1e6) / 1e6);
}

static json_t *whole(uint64_t value)
{
	return json_integer((json_int_t)value);
}

static json_t *proof_json(const struct tt_bench *b, const struct tt_bench_proof *p)
{
	json_t *o = json_object();

	json_object_set_new(o, "ring_bytes", whole(p->ring_bytes));
	json_object_set_new(o, "shadow_bytes", whole(p->shadow_bytes));
	json_object_set_new(o, "payload_bytes", whole(p->payload_bytes));
	json_object_set_new(o, "connections", whole(p->connections));
	json_object_set_new(o, "accelerated", whole(p->accelerated));
	/* Short connections stay on TCP by policy: their bytes prove nothing either way. */
	json_object_set_new(o, "ok", b->spec->proved ? json_boolean(p->ok) : json_null());
	return o;
}

static json_t *path_json(const struct tt_bench *b, const struct tt_bench_path *path)
{
	const struct tt_bench_metric *m = b->spec->metrics;
	json_t *o = json_object(), *runs = json_array();
	const struct tt_bench_proof *p = &path->proof;

	json_object_set_new(o, "path", json_string(path->name));
	for (int i = 0; m[i].key; i++) {
		json_object_set_new(o, m[i].key,
				    figure(tt_bench_median(path->values[i], path->runs)));
		if (!strcmp(m[i].key, "cpu_s"))
			json_object_set_new(o, "cpu_ns_per_message",
					    figure(per_message(path, i, 1e9)));
		if (!strcmp(m[i].key, "voluntary_switches") && b->spec->compared)
			json_object_set_new(o, "switches_per_message",
					    figure(per_message(path, i, 1)));
	}
	for (int i = 0; i < path->runs; i++)
		json_array_append_new(runs, figure(path->values[0][i]));
	json_object_set_new(o, "runs", runs);
	if (p->present && p->messages) {
		json_object_set_new(o, "sleeps_per_message",
				    figure((double)p->sleeps / (double)p->messages));
		json_object_set_new(o, "wakes_per_message",
				    figure((double)p->wakes / (double)p->messages));
	}
	if (p->present)
		json_object_set_new(o, "proof", proof_json(b, p));
	return o;
}

static json_t *speedup_json(const struct tt_bench *b)
{
	json_t *all = json_object();

	for (int i = 1; i < b->n_paths && b->spec->compared; i++) {
		double median, low, high;
		json_t *o = json_object();

		tt_bench_speedup(b, &b->paths[i], &median, &low, &high);
		json_object_set_new(o, "median", figure(median));
		json_object_set_new(o, "min", figure(low));
		json_object_set_new(o, "max", figure(high));
		json_object_set_new(all, b->paths[i].name, o);
	}
	return all;
}

int tt_bench_print_json(struct tt_bench *b, json_t *object)
{
	char *text = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
	int ret = 0;

	json_decref(object);
	if (!text)
		return tt_bench_error(b, ENOMEM, "out of memory");
	if (puts(text) < 0 || fflush(stdout))
		ret = tt_bench_error(b, EIO, "cannot write the result");
	free(text);
	return ret;
}

static int print_json(struct tt_bench *b)
{
	json_t *o = json_object(), *results = json_array();

	json_object_set_new(o, "bench", json_string(b->spec->name));
	json_object_set_new(o, "size_bytes", whole(b->size_bytes));
	json_object_set_new(o, "spin_usec",
			    b->spin_usec < 0 ? json_null() : json_integer(b->spin_usec));
	json_object_set_new(o, "pairs", json_integer(b->pairs));
	json_object_set_new(o, "procs", json_integer(b->procs));
	json_object_set_new(o, "seconds", figure(b->seconds));
	if (b->spec->connections)
		json_object_set_new(o, "connections", json_integer(b->connections));
	for (int i = 0; i < b->n_paths; i++)
		json_array_append_new(results, path_json(b, &b->paths[i]));
	json_object_set_new(o, "results", results);
	json_object_set_new(o, "speedup", speedup_json(b));
	if (b->lines)
		json_object_set_new(o, "line_ns", figure(tt_bench_median(b->line_ns, b->lines)));
	if (b->rings)
		json_object_set_new(o, "ring_bytes_per_s",
				    figure(tt_bench_median(b->ring_bytes_per_s, b->rings)));
	if (b->futexes)
		json_object_set_new(o, "futex_ns",
				    figure(tt_bench_median(b->futex_ns, b->futexes)));
	return tt_bench_print_json(b, o);
}

/* ---- the table ---- */

void tt_bench_format(char *ret_text, size_t size_bytes, double value, enum tt_bench_unit unit)
{
	static const char *const steps[] = {"", " k", " M", " G"};
	int step = 0;

	switch (unit) {
	case TT_UNIT_NS:
		if (value < 1000)
			snprintf(ret_text, size_bytes, "%.0f ns", value);
		else if (value < 1e6)
			snprintf(ret_text, size_bytes, "%.2f us", value / 1e3);
		else
			snprintf(ret_text, size_bytes, "%.2f ms", value / 1e6);
		break;
	case TT_UNIT_RATE:
	case TT_UNIT_BYTES_RATE:
		while (value >= 1000 && step < 3) {
			value /= 1000;
			step++;
		}
		snprintf(ret_text, size_bytes, "%.2f%s%s", value, steps[step],
			 unit == TT_UNIT_RATE ? "/s"
			 : step		      ? "B/s"
					      : " B/s");
		break;
	case TT_UNIT_S: snprintf(ret_text, size_bytes, "%.2f s", value); break;
	case TT_UNIT_RATIO: snprintf(ret_text, size_bytes, "%.2f", value); break;
	case TT_UNIT_COUNT: snprintf(ret_text, size_bytes, "%.0f", value); break;
	}
}

static void print_head(const struct tt_bench *b)
{
	const struct tt_bench_metric *m = b->spec->metrics;

	printf("%s, %zu bytes, ", b->spec->name, b->size_bytes);
	if (b->procs > 1)
		printf("%d pairs of programs at once, ", b->procs);
	if (b->spin_usec >= 0)
		printf("spin %d us, ", b->spin_usec);
	printf("medians of %d run%s each, alternating\n\n", b->pairs, b->pairs > 1 ? "s" : "");
	printf("%-6s", "path");
	for (int i = 0; m[i].key; i++)
		if (!m[i].hidden)
			printf(" %13s", m[i].heading);
	if (b->n_paths > 1 && b->spec->compared)
		printf("   times better (min - max)");
	putchar('\n');
}

static void print_path(const struct tt_bench *b, int index)
{
	const struct tt_bench_metric *m = b->spec->metrics;
	const struct tt_bench_path *path = &b->paths[index];
	char cell[CELL_BYTES];

	printf("%-6s", path->name);
	for (int i = 0; m[i].key; i++) {
		if (m[i].hidden)
			continue;
		tt_bench_format(cell, sizeof(cell), tt_bench_median(path->values[i], path->runs),
				m[i].unit);
		printf(" %13s", cell);
	}
	if (index && b->spec->compared) {
		double median, low, high;

		tt_bench_speedup(b, path, &median, &low, &high);
		printf("   %.2f (%.2f - %.2f)", median, low, high);
	}
	putchar('\n');
}

static void print_notes(const struct tt_bench *b)
{
	if (b->lines)
		printf("\na cache line, one way, in the same run: %.0f ns\n",
		       tt_bench_median(b->line_ns, b->lines));
	if (b->rings)
		printf("\na bare ring of 256 KiB between the same cores: %.2f GB/s\n",
		       tt_bench_median(b->ring_bytes_per_s, b->rings) / 1e9);
	if (b->futexes)
		printf("a bare futex, woken by one and waited for by the other, one way: %.0f ns\n",
		       tt_bench_median(b->futex_ns, b->futexes));
	for (int i = 0; i < b->n_paths; i++) {
		const struct tt_bench_proof *p = &b->paths[i].proof;

		if (!p->present)
			continue;
		printf("\n%s: %llu of %llu connections accelerated, %llu bytes by rings and %llu "
		       "over TCP; payload %llu%s\n",
		       b->paths[i].name, (unsigned long long)p->accelerated,
		       (unsigned long long)p->connections, (unsigned long long)p->ring_bytes,
		       (unsigned long long)p->shadow_bytes, (unsigned long long)p->payload_bytes,
		       !b->spec->proved ? ""
		       : p->ok		? ": proved"
					: ": NOT PROVED");
		if (p->messages)
			printf("%s: %.3f sleeps and %.3f wakes a message\n", b->paths[i].name,
			       (double)p->sleeps / (double)p->messages,
			       (double)p->wakes / (double)p->messages);
	}
}

int tt_bench_print(struct tt_bench *b)
{
	if (b->json)
		return print_json(b);
	print_head(b);
	for (int i = 0; i < b->n_paths; i++)
		print_path(b, i);
	print_notes(b);
	return fflush(stdout) ? tt_bench_error(b, EIO, "cannot write the result") : 0;
}
