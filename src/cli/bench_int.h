/* SPDX-License-Identifier: MIT */
/*
 * tutti bench: runs the programs of bench/ from outside, over one path after the other.
 *
 *   bench.c        options, the table of benchmarks, the alternation
 *   bench_run.c    one run: starts the pairs of programs, collects what they print
 *   bench_child.c  a child process: start, wait with a deadline, output, the end
 *   bench_proof.c  did the bytes really take the path: the library's counters against the payload
 *   bench_out.c    medians, speed-ups, JSON and the table
 *   bench_ulc.c    the raw network against ucx_perftest
 *   bench_vm*.c    the module machine against native code
 *   bench_module.c, bench_link.c, bench_switch.c, bench_fabric.c
 *                  devices: a module in the way, bursts on a link, a switch's queues
 *
 * Single-threaded. Functions return 0 or a negative errno; the reason, one line for the user, is
 * then in bench->error and is printed once, by tt_cmd_bench.
 */
#ifndef TT_BENCH_INT_H
#define TT_BENCH_INT_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define TT_BENCH_MAX_PATHS 8
#define TT_BENCH_MAX_PAIRS 1000
#define TT_BENCH_MAX_PROCS 64
#define TT_BENCH_MAX_METRICS 12

int tt_cmd_bench(int argc, char **argv);

/* Where a program's figure comes from and how those of several programs become one. */
enum tt_bench_side { TT_FROM_CLIENT, TT_FROM_SERVER, TT_FROM_BOTH };
enum tt_bench_combine { TT_COMBINE_SUM, TT_COMBINE_MEAN };

/* How the table shows a figure; JSON has the plain number. */
enum tt_bench_unit {
	TT_UNIT_NS,
	TT_UNIT_RATE,
	TT_UNIT_BYTES_RATE,
	TT_UNIT_S,
	TT_UNIT_COUNT,
	TT_UNIT_RATIO
};

struct tt_bench_metric {
	const char *key; /* in the programs' JSON and in ours */
	const char *heading;
	enum tt_bench_side side;
	enum tt_bench_combine combine;
	enum tt_bench_unit unit;
	bool hidden; /* JSON only */
};

/* Options that not every benchmark takes. */
enum {
	TT_TAKES_SIZE = 1,
	TT_TAKES_PATHS = 2,
	TT_TAKES_SPIN = 4,
	TT_TAKES_PROCS = 8,
	TT_TAKES_CONNECTIONS = 16,
	TT_TAKES_SECONDS = 32,
	TT_TAKES_SWITCH = 64, /* ports and pattern */
	/* Of benchmarks that run programs over paths. */
	TT_TAKES_USUAL =
		TT_TAKES_SIZE | TT_TAKES_PATHS | TT_TAKES_SPIN | TT_TAKES_PROCS | TT_TAKES_SECONDS,
};

struct tt_bench;

struct tt_bench_spec {
	const char *name;
	const char *program;
	int (*run)(struct tt_bench *b); /* instead of a program: in this process */
	const char *help;
	const struct tt_bench_metric *metrics; /* the first is the one that is compared */
	bool less_is_better;
	bool compared; /* a speed-up makes sense */
	bool proved;   /* ring bytes must equal the payload */
	bool with_line;
	bool with_ring;
	unsigned int takes;	       /* TT_TAKES_* */
	enum tt_bench_side count_side; /* who knows how many messages there were, and as what */
	const char *count_key;
	size_t size_bytes; /* defaults from here on */
	int warmup;
	int pairs;
	int procs;
	int connections; /* 0: the program does not ask */
	int ports;
	double seconds;
	double quick_seconds;
};

/* What a path's runs proved, all of them together. */
struct tt_bench_proof {
	bool present;
	bool ok;
	uint64_t payload_bytes; /* as the clients count it, both directions */
	uint64_t ring_bytes;
	uint64_t shadow_bytes;
	uint64_t connections;
	uint64_t accelerated;
	uint64_t sleeps; /* both sides */
	uint64_t wakes;
	uint64_t messages; /* that the sleeps and wakes served */
};

struct tt_bench_path {
	const char *name;
	/* values[metric][pair] */
	double values[TT_BENCH_MAX_METRICS][TT_BENCH_MAX_PAIRS];
	double messages[TT_BENCH_MAX_PAIRS]; /* measured ones */
	int runs;
	struct tt_bench_proof proof;
};

struct tt_bench {
	const struct tt_bench_spec *spec;
	size_t size_bytes;
	int pairs;
	int procs;
	int connections;
	int ports;
	const char *pattern;
	int spin_usec; /* -1: not given, the library's own default */
	double seconds;
	bool json;
	bool quick;
	int n_paths;
	struct tt_bench_path *paths;
	double line_ns[TT_BENCH_MAX_PAIRS];
	int lines;
	double futex_ns[TT_BENCH_MAX_PAIRS]; /* when nothing spins */
	int futexes;
	double ring_bytes_per_s[TT_BENCH_MAX_PAIRS]; /* of streams */
	int rings;

	int client_cpu;
	int server_cpu;
	char self[PATH_MAX];	    /* this program */
	char program_dir[PATH_MAX]; /* where the benchmark programs are */
	char tmp_dir[PATH_MAX];	    /* sockets and statistics of the runs */
	char error[512];
	char unproved[512]; /* empty: every proof held */
};

/* bench.c */
int tt_bench_error(struct tt_bench *b, int err, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void tt_bench_progress(const struct tt_bench *b, const char *what, int done, int total);

/* bench_child.c */
struct tt_bench_child {
	pid_t pid; /* 0: none, or reaped */
	int pidfd;
	int out_fd;
	int err_fd;
	char out[8192];
	size_t out_len;
};

/* This process to one core; where that cannot be, the kernel's choice will do. */
void tt_bench_pin(int cpu);
/* Told by SIGINT and SIGTERM; every wait ends then. */
void tt_bench_catch_signals(void);
bool tt_bench_interrupted(void);

/*
 * Starts a program. stats_file, when not NULL, becomes its TUTTI_STATS; cpu, when not negative,
 * pins it. The child dies with us.
 */
int tt_bench_child_start(struct tt_bench *b, char *const argv[], const char *stats_file, int cpu,
			 struct tt_bench_child *ret_child);
/* Waits for the first line of output; copies it without its end. */
int tt_bench_child_line(struct tt_bench *b, struct tt_bench_child *c, uint64_t deadline_ns,
			char *ret_line, size_t size_bytes);
/* Waits for a good end; afterwards c->out holds all the output. */
int tt_bench_child_wait(struct tt_bench *b, struct tt_bench_child *c, uint64_t deadline_ns);
/* Ends the child if it still runs. Takes a child that was never started (all zero). */
void tt_bench_child_stop(struct tt_bench_child *c);
uint64_t tt_bench_now_ns(void);

/* bench_run.c */

/* One run of a path; with 'keep' its figures become run number path->runs. */
int tt_bench_run(struct tt_bench *b, struct tt_bench_path *path, double seconds, bool keep);
/* Runs tb-line: what the machine itself can do between the two cores. */
enum tt_bench_yardstick {
	TT_YARDSTICK_LINE,  /* ns that a cache line takes, one way */
	TT_YARDSTICK_FUTEX, /* ns that a wake takes, one way */
	TT_YARDSTICK_RING,  /* bytes a second through a bare ring */
};
int tt_bench_run_line(struct tt_bench *b, enum tt_bench_yardstick what, double *ret_value);
/* The last line of a program's output, which is its report. */
int tt_bench_report(struct tt_bench *b, const struct tt_bench_child *c, json_t **ret_report);
/* A number in a report; 0 when it is not there. */
double tt_bench_number(const json_t *report, const char *key);

/* bench_proof.c */

/* One end of a pair of programs that ran on a path with counters. */
struct tt_bench_end {
	const char *side; /* "client", "server" */
	const json_t *report;
	const char *stats_file;
	pid_t pid;
};

/*
 * Checks a pair of programs and adds it to the path's proof. A failed proof does not end the
 * benchmark: its figures are still worth seeing, marked as what they are; b->unproved says why.
 */
void tt_bench_prove(struct tt_bench *b, struct tt_bench_path *path,
		    const struct tt_bench_end *client, const struct tt_bench_end *server);

/* bench_out.c */
double tt_bench_median(const double *values, int n);
/* Of figures, or of ratios pair by pair. */
struct tt_bench_spread {
	double median, low, high;
};
struct tt_bench_spread tt_bench_spread_of(const double *values, int n);
struct tt_bench_spread tt_bench_ratio_of(const double *above, const double *below, int n);
/* Into object: "key": {"median": N, "min": N, "max": N}. */
void tt_bench_set_spread(json_t *object, const char *key, struct tt_bench_spread spread);
/* How many times better b is than the first path, pair by pair. */
void tt_bench_speedup(const struct tt_bench *b, const struct tt_bench_path *path,
		      double *ret_median, double *ret_min, double *ret_max);
int tt_bench_print(struct tt_bench *b);
/* Prints an object on a line of its own and releases it. */
int tt_bench_print_json(struct tt_bench *b, json_t *object);
/* A figure in the unit that people read. */
void tt_bench_format(char *ret_text, size_t size_bytes, double value, enum tt_bench_unit unit);

/* bench_ulc.c */
int tt_bench_ulc(struct tt_bench *b);

#define TT_BENCH_NO_CLANG                                                                          \
	"there was no clang when this was built, so that there is no module to run: apt-get "      \
	"install clang, then meson setup --wipe build and make build"
#define TT_BENCH_NO_JIT                                                                            \
	"the machine's JIT is for x86-64, and this is another processor: nothing to compare"

/* These run in this process, or one that they fork: no programs. */
int tt_bench_vm(struct tt_bench *b);
int tt_bench_module(struct tt_bench *b);
int tt_bench_link(struct tt_bench *b);
int tt_bench_switch(struct tt_bench *b);

#endif
