/* SPDX-License-Identifier: MIT */
/*
 * What the benchmark programs share: options, sockets, pinning, the clock, a histogram.
 *
 * These are plain socket programs. They link nothing of Tutti, so the same binary can be run over
 * kernel TCP, over Unix sockets, over Tutti and over anything else that is put below a program from
 * outside; what differs between two runs is then the path alone.
 *
 * A program writes one JSON line to standard output when it is done. A server first writes
 * "port N" (0 for a Unix socket) as soon as it can be connected to. Errors are one line on standard
 * error; the exit status is 0 done, 1 failed, 2 misuse, 3 out of time.
 */
#ifndef TB_COMMON_H
#define TB_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>

struct tb_opts {
	bool server;
	bool is_unix;
	const char *host;
	int port;
	const char *path; /* of the Unix socket */
	size_t size_bytes;
	uint64_t count;	 /* messages; 0: until the time is over */
	uint64_t warmup; /* messages that are not measured */
	uint64_t bytes;	 /* payload: of the whole run (stream), of each connection (idle) */
	double seconds;
	int cpu; /* -1: wherever the scheduler likes */
	int peer_cpu;
	int connections;
	int threads;
	int peer_pid;
	uint64_t start_at_ns; /* CLOCK_MONOTONIC; 0: at once */
	int timeout_s;
	bool sleep; /* line: wait in the kernel, at once */
	bool ring;  /* line: carry bytes instead of a number */
};

/* The program's name, for error lines. */
extern const char *tb_name;

/*
 * Fills o from the arguments; o holds the program's defaults when called. A program with
 * has_role takes "server" or "client" as its first argument. Exits with 2 on misuse and with 0
 * after --help. Also pins the process, arms the alarm that bounds its life and ignores SIGPIPE.
 */
void tb_parse(struct tb_opts *o, int argc, char **argv, bool has_role, const char *usage);

void tb_die(const char *what) __attribute__((noreturn)); /* reports errno, exits with 1 */
void tb_fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

void tb_pin(int cpu);
uint64_t tb_now_ns(void);
void tb_wait_until(uint64_t at_ns);

/* Listens as o says and announces the port. */
int tb_listen(const struct tb_opts *o, int backlog);
int tb_accept(int listener);
int tb_connect(const struct tb_opts *o);

void tb_write_all(int fd, const void *buf, size_t size_bytes);
/* Fills the buffer; false when the peer closed before its first byte. */
bool tb_read_all(int fd, void *buf, size_t size_bytes);

/* What the process has used up to now. */
struct tb_usage {
	double cpu_s;
	uint64_t voluntary; /* context switches: it slept */
	uint64_t involuntary;
};

void tb_usage_get(struct tb_usage *ret_usage);
/* Prints ',"cpu_s":...,"voluntary_switches":...,"involuntary_switches":...' since a moment. */
void tb_usage_print(const struct tb_usage *since);

/*
 * Log-linear histogram of nanoseconds: 128 steps for every power of two, so that a percentile is
 * true to 0.8 %, whatever its size; exact below 256 ns.
 */
#define TB_HIST_STEP_BITS 7
#define TB_HIST_BUCKETS ((64 - TB_HIST_STEP_BITS + 1) << TB_HIST_STEP_BITS)

struct tb_hist {
	uint64_t count;
	uint64_t max_ns;
	uint64_t buckets[TB_HIST_BUCKETS];
};

void tb_hist_add(struct tb_hist *h, uint64_t ns);
/* The value that a share of the samples, 0 to 1, does not exceed. */
double tb_hist_quantile(const struct tb_hist *h, double share);

/* ---- many connections (echo.c) ---- */

/* Raises the limit of descriptors as far as so many connections need. */
void tb_allow_descriptors(int connections);
/* Adds fd to an epoll set, for reading; its number is the data. */
void tb_watch(int set, int fd);
/* As epoll_wait without a timeout; never fails. */
int tb_wait(int set, struct epoll_event *events, int max);
/* Echoes by epoll until so many connections have come and gone; prints its report. */
void tb_echo_server(const struct tb_opts *o, const char *bench, int connections, char *buf);

#endif
