/* SPDX-License-Identifier: MIT */
/*
 * The raw network against UCX, the peer that a programmer would take: 8-byte messages one way over
 * shared memory, tb-ulc and ucx_perftest alternating on the same two cores.
 *
 * UCX has several operations; the one that is compared, "ucx", is the active message of its lower
 * layer, the one that, like a notified write here, tells the receiver that something came. The
 * tagged message of its upper layer ("ucx-tag") and the bare write that is found by polling memory
 * ("ucx-put") are reported beside it. ucx_perftest 1.13 prints one percentile (here the median) and
 * averages; there are no further ones to report.
 */
#include "bench_int.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define RUN_LIMIT_NS 60000000000ULL
#define UCX_TRIES 40
#define UCX_RETRY_NS 50000000L
#define MESSAGES_PER_S 1500000 /* about; so that a run takes about as long as was asked */
#define MAX_ARGS 16

enum { METRIC_P50, METRIC_P99, METRIC_P999, METRIC_MAX, METRIC_RATE };

struct ucx_test {
	const char *name;
	const char *args[MAX_ARGS];
};

static const struct ucx_test ucx_tests[] = {
	{"ucx", {"-t", "am_lat", "-d", "memory", "-x", "posix"}},
	{"ucx-tag", {"-t", "tag_lat"}},
	{"ucx-put", {"-t", "put_lat", "-d", "memory", "-x", "posix"}},
};

#define N_UCX_TESTS ((int)(sizeof(ucx_tests) / sizeof(ucx_tests[0])))

static bool has_ucx(void)
{
	const char *path = getenv("PATH");
	char *copy = path ? strdup(path) : NULL, *save = NULL, file[PATH_MAX];
	bool found = false;

	if (!copy)
		return false;
	for (char *dir = strtok_r(copy, ":", &save); dir && !found;
	     dir = strtok_r(NULL, ":", &save)) {
		snprintf(file, sizeof(file), "%s/ucx_perftest", dir);
		found = !access(file, X_OK);
	}
	free(copy);
	return found;
}

static int free_port(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port = 13337;

	if (fd < 0)
		return port;
	if (!bind(fd, (struct sockaddr *)&a, len) && !getsockname(fd, (struct sockaddr *)&a, &len))
		port = ntohs(a.sin_port);
	close(fd);
	return port;
}

/* The line of figures: iterations, then microseconds at the percentile, average, overall. */
static int parse_ucx(struct tt_bench *b, char *out, double *ret_p50_ns, double *ret_rate)
{
	unsigned long long iterations;
	double percentile, average, overall;
	char *save = NULL;

	for (char *line = strtok_r(out, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (sscanf(line, " %llu %lf %lf %lf", &iterations, &percentile, &average,
			   &overall) != 4 ||
		    !(overall > 0))
			continue;
		*ret_p50_ns = percentile * 1e3;
		*ret_rate = 1e6 / overall;
		return 0;
	}
	return tt_bench_error(b, EIO, "ucx_perftest printed no figures");
}

/*
 * The server says nowhere reliably that it listens, so the client is tried again until it is
 * there.
 */
static int run_ucx_client(struct tt_bench *b, char *const argv[], double *ret_p50_ns,
			  double *ret_rate)
{
	const struct timespec pause = {.tv_nsec = UCX_RETRY_NS};
	int ret = -EIO;

	for (int i = 0; i < UCX_TRIES && ret && !tt_bench_interrupted(); i++) {
		struct tt_bench_child c = {0};

		nanosleep(&pause, NULL);
		ret = tt_bench_child_start(b, argv, NULL, b->client_cpu, &c);
		if (!ret)
			ret = tt_bench_child_wait(b, &c, tt_bench_now_ns() + RUN_LIMIT_NS);
		if (!ret)
			ret = parse_ucx(b, c.out, ret_p50_ns, ret_rate);
		tt_bench_child_stop(&c);
	}
	return ret;
}

static int run_ucx(struct tt_bench *b, const struct ucx_test *test, const char *count,
		   double *ret_p50_ns, double *ret_rate)
{
	struct tt_bench_child server = {0};
	const char *argv[MAX_ARGS * 2];
	char port[16], size[16];
	int n = 0, ret;

	snprintf(port, sizeof(port), "%d", free_port());
	snprintf(size, sizeof(size), "%zu", b->size_bytes);
	argv[n++] = "ucx_perftest";
	argv[n++] = "-p";
	argv[n++] = port;
	argv[n] = NULL;
	ret = tt_bench_child_start(b, (char *const *)(uintptr_t)argv, NULL, b->server_cpu, &server);
	if (ret)
		return ret;
	argv[n++] = "127.0.0.1";
	argv[n++] = "-f";
	argv[n++] = "-s";
	argv[n++] = size;
	argv[n++] = "-n";
	argv[n++] = count;
	argv[n++] = "-R";
	argv[n++] = "50";
	for (int i = 0; test->args[i]; i++)
		argv[n++] = test->args[i];
	argv[n] = NULL;
	ret = run_ucx_client(b, (char *const *)(uintptr_t)argv, ret_p50_ns, ret_rate);
	tt_bench_child_stop(&server);
	return ret;
}

static int run_ulc(struct tt_bench *b, const char *count, struct tt_bench_path *path)
{
	struct tt_bench_child c = {0};
	char program[PATH_MAX + 16], size[16];
	const char *argv[] = {program, "--size", size, "--count", count, "--json", NULL};
	json_t *report = NULL;
	int ret;

	snprintf(program, sizeof(program), "%s/tb-ulc", b->program_dir);
	snprintf(size, sizeof(size), "%zu", b->size_bytes);
	ret = tt_bench_child_start(b, (char *const *)(uintptr_t)argv, NULL, -1, &c);
	if (!ret)
		ret = tt_bench_child_wait(b, &c, tt_bench_now_ns() + RUN_LIMIT_NS);
	if (!ret)
		ret = tt_bench_report(b, &c, &report);
	if (!ret)
		for (int i = 0; b->spec->metrics[i].key; i++)
			path->values[i][path->runs] =
				tt_bench_number(report, b->spec->metrics[i].key);
	if (!ret)
		path->runs++;
	json_decref(report);
	tt_bench_child_stop(&c);
	return ret;
}

static int run_round(struct tt_bench *b, const char *count, int round)
{
	int ret = 0;

	for (int i = 0; i < b->n_paths && !ret; i++) {
		struct tt_bench_path *path = &b->paths[i];

		tt_bench_progress(b, path->name, round * b->n_paths + i, b->pairs * b->n_paths);
		if (!strcmp(path->name, "ulc")) {
			ret = run_ulc(b, count, path);
			continue;
		}
		ret = run_ucx(b, &ucx_tests[i], count, &path->values[METRIC_P50][path->runs],
			      &path->values[METRIC_RATE][path->runs]);
		path->runs++;
	}
	return ret;
}

/* ---- its own output: UCX has fewer figures than the other paths ---- */

static json_t *path_json(const struct tt_bench *b, const struct tt_bench_path *path)
{
	const struct tt_bench_metric *m = b->spec->metrics;
	json_t *o = json_object(), *runs = json_array();

	json_object_set_new(o, "path", json_string(path->name));
	for (int i = 0; i <= METRIC_RATE; i++)
		if (path->runs && path->values[i][0] > 0)
			json_object_set_new(
				o, m[i].key,
				json_real(tt_bench_median(path->values[i], path->runs)));
	for (int i = 0; i < path->runs; i++)
		json_array_append_new(runs, json_real(path->values[METRIC_P50][i]));
	json_object_set_new(o, "runs", runs);
	return o;
}

static int print_json(struct tt_bench *b, double median, double low, double high)
{
	json_t *o = json_object(), *results = json_array(), *speedup = json_object();

	json_object_set_new(o, "bench", json_string("ulc"));
	json_object_set_new(o, "size_bytes", json_integer((json_int_t)b->size_bytes));
	json_object_set_new(o, "pairs", json_integer(b->pairs));
	for (int i = 0; i < b->n_paths; i++)
		json_array_append_new(results, path_json(b, &b->paths[i]));
	json_object_set_new(o, "results", results);
	if (b->n_paths > 1) {
		json_t *ulc = json_object();

		json_object_set_new(ulc, "median", json_real(median));
		json_object_set_new(ulc, "min", json_real(low));
		json_object_set_new(ulc, "max", json_real(high));
		json_object_set_new(speedup, "ulc", ulc);
	}
	json_object_set_new(o, "speedup", speedup);
	return tt_bench_print_json(b, o);
}

static int print_table(struct tt_bench *b, double median, double low, double high)
{
	const struct tt_bench_metric *m = b->spec->metrics;
	char cell[32];

	printf("raw network, %zu bytes one way, medians of %d runs each, alternating\n\n%-8s",
	       b->size_bytes, b->pairs, "path");
	for (int i = 0; i <= METRIC_RATE; i++)
		printf(" %12s", m[i].heading);
	putchar('\n');
	for (int i = 0; i < b->n_paths; i++) {
		const struct tt_bench_path *path = &b->paths[i];

		printf("%-8s", path->name);
		for (int j = 0; j <= METRIC_RATE; j++) {
			tt_bench_format(cell, sizeof(cell),
					tt_bench_median(path->values[j], path->runs), m[j].unit);
			printf(" %12s", path->values[j][0] > 0 ? cell : "-");
		}
		putchar('\n');
	}
	if (b->n_paths > 1)
		printf("\nulc against ucx, p50: %.2f times better (%.2f - %.2f)\n", median, low,
		       high);
	else
		puts("\nucx_perftest is not installed (apt-get install ucx-utils)");
	return 0;
}

int tt_bench_ulc(struct tt_bench *b)
{
	double median = 0, low = 0, high = 0;
	char count[24];
	int ret = 0;

	b->n_paths = 0;
	if (has_ucx())
		for (int i = 0; i < N_UCX_TESTS; i++)
			b->paths[b->n_paths++].name = ucx_tests[i].name;
	b->paths[b->n_paths++].name = "ulc";
	snprintf(count, sizeof(count), "%.0f", b->seconds * MESSAGES_PER_S);
	/* Shared memory only, whatever else the machine has. */
	setenv("UCX_TLS", "posix,self", 1);
	for (int round = 0; round < b->pairs && !ret; round++)
		ret = run_round(b, count, round);
	tt_bench_progress(b, "", 1, 1);
	if (ret)
		return ret;
	tt_bench_speedup(b, &b->paths[b->n_paths - 1], &median, &low, &high);
	return b->json ? print_json(b, median, low, high) : print_table(b, median, low, high);
}
