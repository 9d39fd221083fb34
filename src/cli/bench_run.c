/* SPDX-License-Identifier: MIT */
#include "bench_int.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_ARGS 48
#define ARG_BYTES 64

/* What a run may take beyond the time that it measures. */
#define GRACE_S 60

/* How long pairs that are to measure the same second get to start and warm up. */
#define LINE_UP_NS 1200000000ULL

/* One pair of programs. */
struct pair {
	struct tt_bench_child server;
	struct tt_bench_child client;
	pid_t server_pid; /* the children's fields are cleared when they end */
	pid_t client_pid;
	json_t *server_report;
	json_t *client_report;
	char socket_path[PATH_MAX + 32];
	char server_stats[PATH_MAX + 32];
	char client_stats[PATH_MAX + 32];
	char port[16];
};

/* An argument vector with room for the numbers in it. */
struct args {
	char *v[MAX_ARGS + 1];
	char text[MAX_ARGS][ARG_BYTES];
	char program[PATH_MAX + 32];
	int n;
};

static void arg(struct args *a, const char *text)
{
	if (a->n < MAX_ARGS)
		a->v[a->n++] = (char *)(uintptr_t)text; /* exec's argv is const in all but type */
}

static void arg_number(struct args *a, const char *option, double value)
{
	int i;

	arg(a, option);
	i = a->n;
	if (i >= MAX_ARGS)
		return;
	snprintf(a->text[i], ARG_BYTES, "%.17g", value);
	arg(a, a->text[i]);
}

static bool is_plain(const struct tt_bench_path *path)
{
	return !strcmp(path->name, "tcp") || !strcmp(path->name, "unix");
}

/* The command line of one side, with 'tutti run' before it where the path asks for it. */
static void build_args(struct tt_bench *b, const struct tt_bench_path *path, struct pair *pair,
		       bool server, double seconds, uint64_t start_at_ns, struct args *a)
{
	memset(a, 0, sizeof(*a));
	if (!is_plain(path)) {
		arg(a, b->self);
		arg(a, "run");
		arg(a, "--path");
		arg(a, path->name);
		if (b->spin_usec >= 0)
			arg_number(a, "--spin", b->spin_usec);
		arg(a, "--");
	}
	snprintf(a->program, sizeof(a->program), "%s/%s", b->program_dir, b->spec->program);
	arg(a, a->program);
	arg(a, server ? "server" : "client");
	arg(a, "--family");
	arg(a, !strcmp(path->name, "unix") ? "unix" : "tcp");
	arg(a, "--path");
	arg(a, pair->socket_path);
	arg_number(a, "--size", (double)b->size_bytes);
	arg_number(a, "--warmup", b->spec->warmup);
	arg_number(a, "--connections", b->connections);
	arg_number(a, "--seconds", seconds);
	arg_number(a, "--timeout", ceil(seconds) + GRACE_S);
	if (server) {
		arg_number(a, "--cpu", b->server_cpu);
		return;
	}
	arg_number(a, "--cpu", b->client_cpu);
	arg(a, "--port");
	arg(a, pair->port);
	arg_number(a, "--peer-pid", (double)pair->server_pid);
	if (start_at_ns)
		arg_number(a, "--start-at-ns", (double)start_at_ns);
}

static int start_server(struct tt_bench *b, const struct tt_bench_path *path, struct pair *p,
			double seconds, uint64_t deadline_ns)
{
	struct args a;
	char line[64];
	int ret, port;

	build_args(b, path, p, true, seconds, 0, &a);
	ret = tt_bench_child_start(b, a.v, is_plain(path) ? NULL : p->server_stats, -1, &p->server);
	if (ret)
		return ret;
	p->server_pid = p->server.pid;
	ret = tt_bench_child_line(b, &p->server, deadline_ns, line, sizeof(line));
	if (ret)
		return ret;
	if (sscanf(line, "port %d", &port) != 1)
		return tt_bench_error(b, EIO, "%s said '%s' where its port was expected",
				      b->spec->program, line);
	snprintf(p->port, sizeof(p->port), "%d", port);
	return 0;
}

static int start_client(struct tt_bench *b, const struct tt_bench_path *path, struct pair *p,
			double seconds, uint64_t start_at_ns)
{
	struct args a;
	int ret;

	build_args(b, path, p, false, seconds, start_at_ns, &a);
	ret = tt_bench_child_start(b, a.v, is_plain(path) ? NULL : p->client_stats, -1, &p->client);
	if (!ret)
		p->client_pid = p->client.pid;
	return ret;
}

int tt_bench_report(struct tt_bench *b, const struct tt_bench_child *c, json_t **ret_report)
{
	size_t len = c->out_len;
	const char *begin;
	json_t *report;

	while (len > 0 && c->out[len - 1] == '\n')
		len--;
	begin = memrchr(c->out, '\n', len);
	begin = begin ? begin + 1 : c->out;
	report = json_loadb(begin, len - (size_t)(begin - c->out), 0, NULL);
	if (!json_is_object(report)) {
		json_decref(report);
		return tt_bench_error(b, EIO, "a benchmark program printed no result");
	}
	*ret_report = report;
	return 0;
}

double tt_bench_number(const json_t *report, const char *key)
{
	return json_number_value(json_object_get(report, key));
}

/* The client ends first; a client that fails tells more than a server that waits for it. */
static int finish_pair(struct tt_bench *b, struct pair *p, uint64_t deadline_ns)
{
	int ret = tt_bench_child_wait(b, &p->client, deadline_ns);

	if (!ret)
		ret = tt_bench_child_wait(b, &p->server, deadline_ns);
	if (!ret)
		ret = tt_bench_report(b, &p->client, &p->client_report);
	if (!ret)
		ret = tt_bench_report(b, &p->server, &p->server_report);
	return ret;
}

static double side_number(const struct pair *p, enum tt_bench_side side, const char *key)
{
	double value = 0;

	if (side != TT_FROM_SERVER)
		value += tt_bench_number(p->client_report, key);
	if (side != TT_FROM_CLIENT)
		value += tt_bench_number(p->server_report, key);
	return value;
}

static void keep_figures(struct tt_bench *b, struct tt_bench_path *path, const struct pair *pairs)
{
	const struct tt_bench_spec *s = b->spec;
	int run = path->runs++;

	for (int m = 0; s->metrics[m].key; m++) {
		double sum = 0;

		for (int i = 0; i < b->procs; i++)
			sum += side_number(&pairs[i], s->metrics[m].side, s->metrics[m].key);
		if (s->metrics[m].combine == TT_COMBINE_MEAN)
			sum /= b->procs;
		path->values[m][run] = sum;
	}
	path->messages[run] = 0;
	for (int i = 0; i < b->procs; i++)
		path->messages[run] += side_number(&pairs[i], s->count_side, s->count_key);
}

static void prove_pairs(struct tt_bench *b, struct tt_bench_path *path, const struct pair *pairs)
{
	for (int i = 0; i < b->procs; i++) {
		const struct pair *p = &pairs[i];
		struct tt_bench_end client = {"client", p->client_report, p->client_stats,
					      p->client_pid};
		struct tt_bench_end server = {"server", p->server_report, p->server_stats,
					      p->server_pid};

		tt_bench_prove(b, path, &client, &server);
	}
}

static int run_pairs(struct tt_bench *b, struct tt_bench_path *path, struct pair *pairs,
		     double seconds)
{
	uint64_t deadline_ns = tt_bench_now_ns() + (uint64_t)((seconds + GRACE_S) * 1e9);
	uint64_t start_at_ns = 0;
	int ret = 0;

	for (int i = 0; i < b->procs && !ret; i++)
		ret = start_server(b, path, &pairs[i], seconds, deadline_ns);
	if (b->procs > 1)
		start_at_ns = tt_bench_now_ns() + LINE_UP_NS;
	for (int i = 0; i < b->procs && !ret; i++)
		ret = start_client(b, path, &pairs[i], seconds, start_at_ns);
	for (int i = 0; i < b->procs && !ret; i++)
		ret = finish_pair(b, &pairs[i], deadline_ns);
	return ret;
}

static void release_pair(struct pair *p)
{
	tt_bench_child_stop(&p->client);
	tt_bench_child_stop(&p->server);
	json_decref(p->client_report);
	json_decref(p->server_report);
	unlink(p->socket_path);
	unlink(p->client_stats);
	unlink(p->server_stats);
}

int tt_bench_run(struct tt_bench *b, struct tt_bench_path *path, double seconds, bool keep)
{
	struct pair *pairs = calloc((size_t)b->procs, sizeof(*pairs));
	int ret;

	if (!pairs)
		return tt_bench_error(b, ENOMEM, "out of memory");
	for (int i = 0; i < b->procs; i++) {
		struct pair *p = &pairs[i];

		snprintf(p->socket_path, sizeof(p->socket_path), "%s/s%d", b->tmp_dir, i);
		snprintf(p->server_stats, sizeof(p->server_stats), "%s/server%d", b->tmp_dir, i);
		snprintf(p->client_stats, sizeof(p->client_stats), "%s/client%d", b->tmp_dir, i);
	}
	ret = run_pairs(b, path, pairs, seconds);
	if (!ret && keep) {
		keep_figures(b, path, pairs);
		if (!is_plain(path))
			prove_pairs(b, path, pairs);
	}
	for (int i = 0; i < b->procs; i++)
		release_pair(&pairs[i]);
	free(pairs);
	return ret;
}

int tt_bench_run_line(struct tt_bench *b, enum tt_bench_yardstick what, double *ret_value)
{
	struct tt_bench_child c = {0};
	struct args a = {0};
	json_t *report = NULL;
	int ret;

	snprintf(a.program, sizeof(a.program), "%s/tb-line", b->program_dir);
	arg(&a, a.program);
	if (what != TT_YARDSTICK_LINE)
		arg(&a, what == TT_YARDSTICK_FUTEX ? "--sleep" : "--ring");
	arg_number(&a, "--cpu", b->client_cpu);
	arg_number(&a, "--peer-cpu", b->server_cpu);
	ret = tt_bench_child_start(b, a.v, NULL, -1, &c);
	if (!ret)
		ret = tt_bench_child_wait(b, &c, tt_bench_now_ns() + GRACE_S * 1000000000ULL);
	if (!ret)
		ret = tt_bench_report(b, &c, &report);
	if (!ret)
		*ret_value = tt_bench_number(report,
					     what == TT_YARDSTICK_RING ? "bytes_per_s" : "p50_ns");
	json_decref(report);
	tt_bench_child_stop(&c);
	return ret;
}
