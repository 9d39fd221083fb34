/* SPDX-License-Identifier: MIT */
/*
 * tutti bench NAME: measures paths against each other.
 *
 * A figure on a shared machine means something only beside another that was taken in the same
 * minute. So the paths alternate (A B A B ...), on the same two cores, after a run of each that
 * does not count; what is reported is each path's median and the ratios pair by pair.
 */
#include "bench_int.h"
#include "cli_int.h"
#include "device/fabric_mem.h"

#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WARMUP_SECONDS 0.2

/* Both sides', of every benchmark. */
/* clang-format off */
#define METRICS_OF_CPU                                                                         \
	{ "cpu_s", "CPU s", TT_FROM_BOTH, TT_COMBINE_SUM, TT_UNIT_S, false },                  \
	{ "voluntary_switches", "sleeps", TT_FROM_BOTH, TT_COMBINE_SUM, TT_UNIT_COUNT, true }, \
	{ NULL, NULL, TT_FROM_BOTH, TT_COMBINE_SUM, TT_UNIT_S, false }
/* clang-format on */

static const struct tt_bench_metric latency_metrics[] = {
	{"p50_ns", "p50", TT_FROM_CLIENT, TT_COMBINE_MEAN, TT_UNIT_NS, false},
	{"p99_ns", "p99", TT_FROM_CLIENT, TT_COMBINE_MEAN, TT_UNIT_NS, false},
	{"p999_ns", "p99.9", TT_FROM_CLIENT, TT_COMBINE_MEAN, TT_UNIT_NS, false},
	{"max_ns", "max", TT_FROM_CLIENT, TT_COMBINE_MEAN, TT_UNIT_NS, true},
	{"messages_per_s", "messages", TT_FROM_CLIENT, TT_COMBINE_SUM, TT_UNIT_RATE, true},
	METRICS_OF_CPU,
};

static const struct tt_bench_metric stream_metrics[] = {
	{"bytes_per_s", "bytes", TT_FROM_SERVER, TT_COMBINE_SUM, TT_UNIT_BYTES_RATE, false},
	{"messages_per_s", "messages", TT_FROM_SERVER, TT_COMBINE_SUM, TT_UNIT_RATE, false},
	METRICS_OF_CPU,
};

static const struct tt_bench_metric rate_metrics[] = {
	{"messages_per_s", "messages", TT_FROM_SERVER, TT_COMBINE_SUM, TT_UNIT_RATE, false},
	{"bytes_per_s", "bytes", TT_FROM_SERVER, TT_COMBINE_SUM, TT_UNIT_BYTES_RATE, false},
	METRICS_OF_CPU,
};

static const struct tt_bench_metric connect_metrics[] = {
	{"connections_per_s", "connections", TT_FROM_CLIENT, TT_COMBINE_SUM, TT_UNIT_RATE, false},
	METRICS_OF_CPU,
};

static const struct tt_bench_metric pairs_metrics[] = {
	{"messages_per_s", "messages", TT_FROM_CLIENT, TT_COMBINE_SUM, TT_UNIT_RATE, false},
	{"p50_ns", "p50", TT_FROM_CLIENT, TT_COMBINE_MEAN, TT_UNIT_NS, false},
	{"p99_ns", "p99", TT_FROM_CLIENT, TT_COMBINE_MEAN, TT_UNIT_NS, false},
	METRICS_OF_CPU,
};

/* tb-idle's client reports what a third process saw of both sides. */
static const struct tt_bench_metric idle_metrics[] = {
	{"resident_per_connection_bytes", "bytes/conn.", TT_FROM_CLIENT, TT_COMBINE_MEAN,
	 TT_UNIT_COUNT, false},
	{"shmem_per_connection_bytes", "shmem/conn.", TT_FROM_CLIENT, TT_COMBINE_MEAN,
	 TT_UNIT_COUNT, false},
	{"cpu_ticks", "CPU ticks", TT_FROM_CLIENT, TT_COMBINE_SUM, TT_UNIT_COUNT, false},
	{"cpu_ns", "CPU ns", TT_FROM_CLIENT, TT_COMBINE_SUM, TT_UNIT_COUNT, false},
	{"voluntary_switches", "sleeps", TT_FROM_CLIENT, TT_COMBINE_SUM, TT_UNIT_COUNT, false},
	{"involuntary_switches", "preempted", TT_FROM_CLIENT, TT_COMBINE_SUM, TT_UNIT_COUNT, false},
	{NULL, NULL, TT_FROM_BOTH, TT_COMBINE_SUM, TT_UNIT_S, false},
};

static const struct tt_bench_metric crowd_metrics[] = {
	{"messages_per_s", "messages", TT_FROM_CLIENT, TT_COMBINE_SUM, TT_UNIT_RATE, false},
	{"alone_messages_per_s", "alone", TT_FROM_CLIENT, TT_COMBINE_SUM, TT_UNIT_RATE, false},
	{"of_alone", "of alone", TT_FROM_CLIENT, TT_COMBINE_MEAN, TT_UNIT_RATIO, false},
	METRICS_OF_CPU,
};

/* clang-format off */
static const struct tt_bench_spec specs[] = {
	{ .name = "pingpong", .program = "tb-pingpong",
	  .help = "one message each way at a time; one-way latency",
	  .metrics = latency_metrics, .less_is_better = true, .compared = true, .proved = true,
	  .with_line = true, .count_side = TT_FROM_CLIENT, .count_key = "messages",
	  .takes = TT_TAKES_USUAL, .size_bytes = 64, .warmup = 2000, .pairs = 5, .procs = 1,
	  .seconds = 1, .quick_seconds = 0.2 },
	{ .name = "stream", .program = "tb-stream",
	  .help = "large writes one way; bytes a second",
	  .metrics = stream_metrics, .compared = true, .proved = true,
	  .with_ring = true, .count_side = TT_FROM_SERVER, .count_key = "messages",
	  .takes = TT_TAKES_USUAL, .size_bytes = 65536, .pairs = 9, .procs = 1, .seconds = 1, .quick_seconds = 0.2 },
	{ .name = "rate", .program = "tb-stream",
	  .help = "small writes one way; messages a second",
	  .metrics = rate_metrics, .compared = true, .proved = true,
	  .count_side = TT_FROM_SERVER, .count_key = "messages",
	  .takes = TT_TAKES_USUAL, .size_bytes = 64, .pairs = 5, .procs = 1, .seconds = 1, .quick_seconds = 0.2 },
	{ .name = "connect", .program = "tb-connect",
	  .help = "connect, a byte each way, close; connections a second",
	  .metrics = connect_metrics, .compared = true,
	  .count_side = TT_FROM_CLIENT, .count_key = "connections",
	  .takes = TT_TAKES_USUAL, .size_bytes = 1, .warmup = 200, .pairs = 5, .procs = 1,
	  .seconds = 1, .quick_seconds = 0.2 },
	{ .name = "pairs", .program = "tb-pingpong",
	  .help = "several ping-pongs at once on the same two cores; messages a second",
	  .metrics = pairs_metrics, .compared = true, .proved = true,
	  .count_side = TT_FROM_CLIENT, .count_key = "messages",
	  .takes = TT_TAKES_USUAL, .size_bytes = 64, .warmup = 200, .pairs = 5, .procs = 4,
	  .seconds = 1, .quick_seconds = 0.3 },
	{ .name = "idle", .program = "tb-idle",
	  .help = "connections that have moved 1 MiB each way and now do nothing",
	  .metrics = idle_metrics, .less_is_better = true, .proved = true,
	  .count_side = TT_FROM_CLIENT, .count_key = "connections",
	  .takes = TT_TAKES_USUAL | TT_TAKES_CONNECTIONS,
	  .size_bytes = 16384, .pairs = 1, .procs = 1, .connections = 1000, .seconds = 10, .quick_seconds = 2 },
	{ .name = "crowd", .program = "tb-crowd",
	  .help = "10 busy connections, alone and among many idle ones; messages a second",
	  .metrics = crowd_metrics, .compared = true, .proved = true,
	  .count_side = TT_FROM_CLIENT, .count_key = "messages",
	  .takes = TT_TAKES_USUAL | TT_TAKES_CONNECTIONS,
	  .size_bytes = 64, .pairs = 3, .procs = 1, .connections = 10000, .seconds = 2, .quick_seconds = 0.5 },
	{ .name = "line", .program = "tb-line",
	  .help = "a cache line from core to core: the yardstick",
	  .size_bytes = 8, .pairs = 5, .seconds = 1, .quick_seconds = 1 },
	{ .name = "ulc", .program = "tb-ulc",
	  .help = "the raw network, and ucx_perftest where it is installed",
	  .metrics = latency_metrics, .less_is_better = true, .compared = true,
	  .takes = TT_TAKES_SIZE | TT_TAKES_SECONDS, .size_bytes = 8, .pairs = 5, .seconds = 1, .quick_seconds = 0.2 },
	{ .name = "vm", .run = tt_bench_vm,
	  .help = "the module machine against native code and Linux's BPF, on one core",
	  .takes = TT_TAKES_SECONDS, .pairs = 9, .seconds = 0.1, .quick_seconds = 0.01 },
	{ .name = "module", .run = tt_bench_module,
	  .help = "packets through a switch, without and with an empty module, on one core",
	  .takes = TT_TAKES_SIZE | TT_TAKES_SECONDS,
	  .size_bytes = 64, .pairs = 15, .seconds = 0.2, .quick_seconds = 0.02 },
	{ .name = "link", .run = tt_bench_link,
	  .help = "a burst between a NIC and a switch against a packet at a time, on two cores",
	  .takes = TT_TAKES_SIZE | TT_TAKES_SECONDS,
	  .size_bytes = 64, .pairs = 9, .seconds = 0.5, .quick_seconds = 0.1 },
	{ .name = "switch", .run = tt_bench_switch,
	  .help = "a switch's load, with a queue for each output and with plain inputs, in slots",
	  .takes = TT_TAKES_SWITCH, .pairs = 5, .ports = 16, .seconds = 1, .quick_seconds = 0.1 },
	{ .name = NULL },
};
/* clang-format on */

int tt_bench_error(struct tt_bench *b, int err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(b->error, sizeof(b->error), format, args);
	va_end(args);
	return -err;
}

/* A line that is overwritten; only where somebody looks at it. */
void tt_bench_progress(const struct tt_bench *b, const char *what, int done, int total)
{
	if (!isatty(STDERR_FILENO))
		return;
	if (done >= total)
		fprintf(stderr, "\r%*s\r", 60, "");
	else
		fprintf(stderr, "\r%s: %d of %d runs done, now %-12s", b->spec->name, done, total,
			what);
}

static void print_usage(FILE *f)
{
	fputs("usage: tutti bench NAME [OPTION...]\n\n"
	      "Measures paths against each other, alternating, on the same two cores.\n\n",
	      f);
	for (const struct tt_bench_spec *s = specs; s->name; s++)
		fprintf(f, "  %-10s %s\n", s->name, s->help);
	fputs("\n"
	      "  --paths A,B,...   tcp, user, unix; the first is what the others are compared to\n"
	      "                    (default tcp,user); of benchmarks of paths only\n"
	      "  --size BYTES      of a message (connect: 1; module, link: of a packet, 16 to\n"
	      "                    1920); not of line, vm, switch\n"
	      "  --pairs N         how often the paths alternate (default 5; idle 1, vm and link 9,\n"
	      "                    module 15)\n"
	      "  --seconds S       that one run measures; not of line and switch\n"
	      "  --spin USEC       how long the user path may spin before it sleeps, at most 1000000;\n"
	      "                    0: not at all; auto (default): as long as it pays off; of\n"
	      "                    benchmarks of paths only\n"
	      "  --procs N         pairs of programs that run at once (default 1; pairs 4); of\n"
	      "                    benchmarks of paths only\n"
	      "  --connections N   idle ones, of idle (default 1000) and crowd (default 10000) only\n"
	      "  --ports N         of the switch, 2 to 31 (default 16); of switch only\n"
	      "  --pattern P       uniform (default), hotspot, permutation; of switch only\n"
	      "  --quick           short runs, to see that it works\n"
	      "  --json            one JSON object instead of the table\n"
	      "  -h, --help        this\n",
	      f);
}

static bool parse_int(const char *text, long min, long max, int *ret_value)
{
	long value;

	if (!tt_arg_number(text, min, max, &value))
		return false;
	*ret_value = (int)value;
	return true;
}

static bool parse_spin(const char *text, int *ret_usec)
{
	uint32_t usec;

	if (!tt_arg_spin(text, &usec))
		return false;
	*ret_usec = usec == UINT32_MAX ? -1 : (int)usec;
	return true;
}

/* Splits the list in place; the names stay in it. */
static bool parse_paths(char *list, struct tt_bench *b)
{
	static const char *const known[] = {"tcp", "user", "unix", NULL};
	char *save = NULL;

	b->n_paths = 0;
	for (char *name = strtok_r(list, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
		int i = 0;

		while (known[i] && strcmp(known[i], name) != 0)
			i++;
		for (int j = 0; j < b->n_paths; j++)
			if (!strcmp(b->paths[j].name, name))
				return false;
		if (!known[i] || b->n_paths == TT_BENCH_MAX_PATHS)
			return false;
		b->paths[b->n_paths++].name = known[i];
	}
	return b->n_paths > 0;
}

enum {
	OPT_SIZE = 256,
	OPT_PATHS,
	OPT_PAIRS,
	OPT_SPIN,
	OPT_PROCS,
	OPT_CONNECTIONS,
	OPT_SECONDS,
	OPT_PORTS,
	OPT_PATTERN
};

static const struct option options[] = {
	{"size", required_argument, NULL, OPT_SIZE},
	{"paths", required_argument, NULL, OPT_PATHS},
	{"pairs", required_argument, NULL, OPT_PAIRS},
	{"spin", required_argument, NULL, OPT_SPIN},
	{"procs", required_argument, NULL, OPT_PROCS},
	{"connections", required_argument, NULL, OPT_CONNECTIONS},
	{"seconds", required_argument, NULL, OPT_SECONDS},
	{"ports", required_argument, NULL, OPT_PORTS},
	{"pattern", required_argument, NULL, OPT_PATTERN},
	{"json", no_argument, NULL, 'j'},
	{"quick", no_argument, NULL, 'q'},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

/* What an option takes, for whoever gave it something else; and what takes it (0: all). */
static const struct {
	int opt;
	const char *name, *allowed;
	unsigned int bit;
} values[] = {
	{OPT_SIZE, "size", "bytes, 1 to 1073741824", TT_TAKES_SIZE},
	{OPT_PATHS, "paths", "tcp, user, unix, each once, with commas between", TT_TAKES_PATHS},
	{OPT_PAIRS, "pairs", "a count, 1 to 1000", 0},
	{OPT_SPIN, "spin", TT_SPIN_ALLOWED, TT_TAKES_SPIN},
	{OPT_PROCS, "procs", "a count, 1 to 64", TT_TAKES_PROCS},
	{OPT_CONNECTIONS, "connections", "a count, 1 to 1000000", TT_TAKES_CONNECTIONS},
	{OPT_SECONDS, "seconds", TT_SECONDS_ALLOWED, TT_TAKES_SECONDS},
	{OPT_PORTS, "ports", "a count, 2 to 31", TT_TAKES_SWITCH},
	{OPT_PATTERN, "pattern", "uniform, hotspot or permutation", TT_TAKES_SWITCH},
};
#define NVALUES (sizeof(values) / sizeof(values[0]))
_Static_assert(TT_BENCH_MAX_PAIRS == 1000 && TT_BENCH_MAX_PROCS == 64, "as the table says");

static int bad_value(int opt, const char *text)
{
	for (size_t i = 0; i < NVALUES; i++)
		if (values[i].opt == opt)
			return tt_cli_bad_value("bench", values[i].name, text, values[i].allowed);
	return TT_EXIT_MISUSE;
}

/* Of the options that were given, one that means nothing to this benchmark. */
static int refuse_options(const struct tt_bench_spec *spec, unsigned int given)
{
	char text[256];

	for (size_t i = 0; i < NVALUES; i++) {
		int n;

		if (!(values[i].bit & given & ~spec->takes))
			continue;
		n = snprintf(text, sizeof(text), "--%s means nothing to %s, only to",
			     values[i].name, spec->name);
		for (const struct tt_bench_spec *s = specs; s->name; s++)
			if (s->takes & values[i].bit && n < (int)sizeof(text))
				n += snprintf(text + n, sizeof(text) - (size_t)n, " %s", s->name);
		return tt_cli_misuse("bench", text, NULL);
	}
	return 0;
}

static unsigned int bit_of(int opt)
{
	for (size_t i = 0; i < NVALUES; i++)
		if (values[i].opt == opt)
			return values[i].bit;
	return 0;
}

static bool parse_pattern(const char *text, const char **ret_pattern)
{
	static const char *const known[] = {"uniform", "hotspot", "permutation"};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(known[i], text)) {
			*ret_pattern = known[i];
			return true;
		}
	return false;
}

static bool parse_option(struct tt_bench *b, int opt, const char *text)
{
	char list[256];
	int value = 0;
	bool ok = true;

	switch (opt) {
	case OPT_SIZE:
		ok = parse_int(text, 1, 1 << 30, &value);
		b->size_bytes = (size_t)value;
		break;
	case OPT_PATHS:
		snprintf(list, sizeof(list), "%s", text);
		ok = parse_paths(list, b);
		break;
	case OPT_PAIRS: ok = parse_int(text, 1, TT_BENCH_MAX_PAIRS, &b->pairs); break;
	case OPT_SPIN: ok = parse_spin(text, &b->spin_usec); break;
	case OPT_PROCS: ok = parse_int(text, 1, TT_BENCH_MAX_PROCS, &b->procs); break;
	case OPT_CONNECTIONS: ok = parse_int(text, 1, 1000000, &b->connections); break;
	case OPT_SECONDS: ok = tt_arg_seconds(text, &b->seconds); break;
	case OPT_PORTS: ok = parse_int(text, 2, TT_OWN_PORT, &b->ports); break;
	case OPT_PATTERN: ok = parse_pattern(text, &b->pattern); break;
	case 'j': b->json = true; break;
	case 'q': b->quick = true; break;
	default: ok = false; break;
	}
	return ok;
}

/* What was not said comes from the benchmark's own line in the table. */
static void fill_defaults(struct tt_bench *b)
{
	const struct tt_bench_spec *s = b->spec;

	if (!b->size_bytes)
		b->size_bytes = s->size_bytes;
	if (!b->pairs)
		b->pairs = s->pairs;
	if (!b->procs)
		b->procs = s->procs;
	if (!(b->seconds > 0))
		b->seconds = b->quick ? s->quick_seconds : s->seconds;
	if (!b->connections)
		b->connections = b->quick ? (b->spec->connections + 9) / 10 : b->spec->connections;
	if (!b->ports)
		b->ports = s->ports;
	if (!b->pattern)
		b->pattern = "uniform";
	if (!b->n_paths) {
		b->paths[b->n_paths++].name = "tcp";
		b->paths[b->n_paths++].name = "user";
	}
}

/* 0: go on; otherwise the exit status plus one, since --help is a good end. */
static int parse(struct tt_bench *b, int argc, char **argv)
{
	unsigned int given = 0;
	char size[24];
	int opt, status;

	optind = 0; /* the command's own options were read with getopt already */
	opterr = 0;
	while ((opt = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
		if (opt == 'h') {
			print_usage(stdout);
			return 1;
		}
		if (opt == '?' || opt == ':')
			return 1 + tt_cli_bad_option("bench", opt, argv);
		if (!parse_option(b, opt, optarg))
			return 1 + bad_value(opt, optarg);
		given |= bit_of(opt);
	}
	if (optind >= argc)
		return 1 + tt_cli_misuse("bench", "which benchmark?", NULL);
	if (optind + 1 < argc)
		return 1 + tt_cli_misuse("bench", "more than one benchmark", argv[optind + 1]);
	for (b->spec = specs; b->spec->name; b->spec++)
		if (!strcmp(b->spec->name, argv[optind]))
			break;
	if (!b->spec->name)
		return 1 + tt_cli_misuse("bench", "unknown benchmark", argv[optind]);
	status = refuse_options(b->spec, given);
	if (status)
		return 1 + status;
	fill_defaults(b);
	snprintf(size, sizeof(size), "%zu", b->size_bytes);
	if (!strcmp(b->spec->name, "idle") && (1 << 20) % b->size_bytes)
		return 1 + tt_cli_bad_value("bench", "size", size, "a divisor of 1 MiB for idle");
	if ((b->spec->run == tt_bench_module || b->spec->run == tt_bench_link) &&
	    (b->size_bytes < 16 || b->size_bytes > TT_PAYLOAD_BYTES))
		return 1 + tt_cli_bad_value("bench", "size", size, "16 to 1920 for packets");
	if (!strcmp(b->spec->name, "connect") && b->size_bytes != 1)
		return 1 + tt_cli_bad_value("bench", "size", size,
					    "1 for connect, which sends one byte");
	return 0;
}

static bool has_programs(const char *dir, const char *program)
{
	char file[PATH_MAX + 64];

	snprintf(file, sizeof(file), "%s/%s", dir, program);
	return !access(file, X_OK);
}

/* In the build folder, or where they are installed, or where the user says. */
static int find_programs(struct tt_bench *b)
{
	const char *given = getenv("TUTTI_BENCH_DIR");
	char dir[PATH_MAX], *slash;
	ssize_t n = readlink("/proc/self/exe", b->self, sizeof(b->self) - 1);

	if (n < 0)
		return tt_bench_error(b, errno, "cannot find this program's own file: %s",
				      strerror(errno));
	b->self[n] = '\0';
	snprintf(dir, sizeof(dir), "%s", b->self);
	slash = strrchr(dir, '/');
	if (slash)
		*slash = '\0';
	if (given) {
		snprintf(b->program_dir, sizeof(b->program_dir), "%s", given);
		if (has_programs(b->program_dir, b->spec->program))
			return 0;
	}
	for (int i = 0; i < 2; i++) {
		n = snprintf(b->program_dir, sizeof(b->program_dir), "%s/%s", dir,
			     i ? "../libexec/tutti" : "bench");
		if (n < (ssize_t)sizeof(b->program_dir) &&
		    has_programs(b->program_dir, b->spec->program))
			return 0;
	}
	return tt_bench_error(b, ENOENT,
			      "%s is neither beside %s nor in ../libexec/tutti (run 'make build', "
			      "or set TUTTI_BENCH_DIR)",
			      b->spec->program, b->self);
}

/* The first two cores that we may use; with one only, both sides share it. */
static int choose_cores(struct tt_bench *b)
{
	cpu_set_t set;
	int found = 0;

	if (sched_getaffinity(0, sizeof(set), &set))
		return tt_bench_error(b, errno, "cannot see the cores: %s", strerror(errno));
	for (int i = 0; i < CPU_SETSIZE && found < 2; i++) {
		if (!CPU_ISSET((size_t)i, &set))
			continue;
		if (!found++)
			b->client_cpu = i;
		b->server_cpu = i;
	}
	return 0;
}

static int make_tmp_dir(struct tt_bench *b)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(b->tmp_dir, sizeof(b->tmp_dir), "%s/tutti-bench-XXXXXX",
		 tmp && *tmp ? tmp : "/tmp");
	if (!mkdtemp(b->tmp_dir))
		return tt_bench_error(b, errno, "cannot make a folder in %s: %s (set TMPDIR)",
				      tmp && *tmp ? tmp : "/tmp", strerror(errno));
	return 0;
}

static int run_yardsticks(struct tt_bench *b)
{
	int ret = 0;

	if (b->client_cpu == b->server_cpu)
		return 0;
	if (b->spec->with_line)
		ret = tt_bench_run_line(b, TT_YARDSTICK_LINE, &b->line_ns[b->lines++]);
	if (!ret && b->spec->with_line && b->spin_usec == 0)
		ret = tt_bench_run_line(b, TT_YARDSTICK_FUTEX, &b->futex_ns[b->futexes++]);
	if (!ret && b->spec->with_ring)
		ret = tt_bench_run_line(b, TT_YARDSTICK_RING, &b->ring_bytes_per_s[b->rings++]);
	return ret;
}

static int run_paths(struct tt_bench *b)
{
	double warmup = b->seconds < WARMUP_SECONDS ? b->seconds : WARMUP_SECONDS;
	int total = b->pairs * b->n_paths, ret = 0;

	/* Many connections take long to make, and warm up by themselves. */
	for (int i = 0; i < b->n_paths && !ret && !b->spec->connections; i++) {
		tt_bench_progress(b, "warming up", 0, total);
		ret = tt_bench_run(b, &b->paths[i], warmup, false);
	}
	for (int pair = 0; pair < b->pairs && !ret; pair++) {
		ret = run_yardsticks(b);
		for (int i = 0; i < b->n_paths && !ret; i++) {
			tt_bench_progress(b, b->paths[i].name, pair * b->n_paths + i, total);
			ret = tt_bench_run(b, &b->paths[i], b->seconds, true);
		}
	}
	tt_bench_progress(b, "", total, total);
	return ret ? ret : tt_bench_print(b);
}

static int run_line(struct tt_bench *b)
{
	int ret = 0;
	double median;
	json_t *o;

	if (b->client_cpu == b->server_cpu)
		return tt_bench_error(b, ENOTSUP, "it takes two cores, and only one may be used");
	for (int pair = 0; pair < b->pairs && !ret; pair++)
		ret = tt_bench_run_line(b, TT_YARDSTICK_LINE, &b->line_ns[b->lines++]);
	if (ret)
		return ret;
	median = tt_bench_median(b->line_ns, b->lines);
	if (!b->json) {
		printf("a cache line, one way: %.1f ns (median of %d runs)\n", median, b->lines);
		return 0;
	}
	o = json_object();
	json_object_set_new(o, "bench", json_string("line"));
	json_object_set_new(o, "pairs", json_integer(b->pairs));
	json_object_set_new(o, "line_ns", json_real(median));
	return tt_bench_print_json(b, o);
}

static int run_bench(struct tt_bench *b)
{
	int ret = b->spec->run ? 0 : find_programs(b);

	if (!ret)
		ret = choose_cores(b);
	if (!ret && b->spec->run) {
		tt_bench_catch_signals();
		return b->spec->run(b);
	}
	if (!ret)
		ret = make_tmp_dir(b);
	if (ret)
		return ret;
	tt_bench_catch_signals();
	if (!strcmp(b->spec->name, "line"))
		ret = run_line(b);
	else if (!strcmp(b->spec->name, "ulc"))
		ret = tt_bench_ulc(b);
	else
		ret = run_paths(b);
	rmdir(b->tmp_dir);
	return ret;
}

int tt_cmd_bench(int argc, char **argv)
{
	struct tt_bench *b = calloc(1, sizeof(*b));
	int ret, status = 1;

	if (b)
		b->paths = calloc(TT_BENCH_MAX_PATHS, sizeof(*b->paths));
	if (!b || !b->paths) {
		fputs("tutti: bench: out of memory\n", stderr);
		goto out;
	}
	b->spin_usec = -1;
	ret = parse(b, argc, argv);
	if (ret) {
		status = ret - 1;
		goto out;
	}
	ret = run_bench(b);
	if (ret)
		fprintf(stderr, "tutti: bench %s: %s\n", b->spec->name, b->error);
	else if (b->unproved[0])
		fprintf(stderr,
			"tutti: bench %s: the path is not proved: %s (see: tutti doctor, tutti ss)\n",
			b->spec->name, b->unproved);
	else
		status = 0;
out:
	if (b)
		free(b->paths);
	free(b);
	return status;
}
