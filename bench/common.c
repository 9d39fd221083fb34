/* SPDX-License-Identifier: MIT */
#include "common.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

const char *tb_name = "tb";

void tb_die(const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", tb_name, what, strerror(errno));
	exit(1);
}

void tb_fail(const char *format, ...)
{
	va_list args;

	fprintf(stderr, "%s: ", tb_name);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

static void on_alarm(int sig)
{
	static const char text[] = ": out of time: the peer is stuck or gone\n";

	(void)sig;
	if (write(STDERR_FILENO, tb_name, strlen(tb_name)) < 0 ||
	    write(STDERR_FILENO, text, sizeof(text) - 1) < 0)
		_exit(3);
	_exit(3);
}

enum {
	OPT_FAMILY = 256,
	OPT_HOST,
	OPT_PORT,
	OPT_PATH,
	OPT_SIZE,
	OPT_COUNT,
	OPT_WARMUP,
	OPT_BYTES,
	OPT_SECONDS,
	OPT_CPU,
	OPT_PEER_CPU,
	OPT_CONNECTIONS,
	OPT_THREADS,
	OPT_PEER_PID,
	OPT_START_AT,
	OPT_TIMEOUT,
	OPT_SLEEP,
	OPT_RING,
};

static const struct option options[] = {
	{"family", required_argument, NULL, OPT_FAMILY},
	{"host", required_argument, NULL, OPT_HOST},
	{"port", required_argument, NULL, OPT_PORT},
	{"path", required_argument, NULL, OPT_PATH},
	{"size", required_argument, NULL, OPT_SIZE},
	{"count", required_argument, NULL, OPT_COUNT},
	{"warmup", required_argument, NULL, OPT_WARMUP},
	{"bytes", required_argument, NULL, OPT_BYTES},
	{"seconds", required_argument, NULL, OPT_SECONDS},
	{"cpu", required_argument, NULL, OPT_CPU},
	{"peer-cpu", required_argument, NULL, OPT_PEER_CPU},
	{"connections", required_argument, NULL, OPT_CONNECTIONS},
	{"threads", required_argument, NULL, OPT_THREADS},
	{"peer-pid", required_argument, NULL, OPT_PEER_PID},
	{"start-at-ns", required_argument, NULL, OPT_START_AT},
	{"timeout", required_argument, NULL, OPT_TIMEOUT},
	{"sleep", no_argument, NULL, OPT_SLEEP},
	{"ring", no_argument, NULL, OPT_RING},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

static void misuse(const char *what, const char *value)
{
	fprintf(stderr, "%s: %s%s%s (see: %s --help)\n", tb_name, what, value ? ": " : "",
		value ? value : "", tb_name);
	exit(2);
}

static uint64_t parse_number(const char *text, uint64_t max)
{
	char *end;
	unsigned long long value;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || end == text || *end || text[0] == '-' || value > max)
		misuse("bad number", text);
	return value;
}

static double parse_seconds(const char *text)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end || !(value > 0 && value < 86400))
		misuse("bad time", text);
	return value;
}

static void parse_one(struct tb_opts *o, int opt, const char *arg, const char *usage)
{
	switch (opt) {
	case OPT_FAMILY:
		if (strcmp(arg, "tcp") && strcmp(arg, "unix"))
			misuse("bad family", arg);
		o->is_unix = !strcmp(arg, "unix");
		break;
	case OPT_HOST: o->host = arg; break;
	case OPT_PORT: o->port = (int)parse_number(arg, 65535); break;
	case OPT_PATH: o->path = arg; break;
	case OPT_SIZE: o->size_bytes = parse_number(arg, 1U << 30); break;
	case OPT_COUNT: o->count = parse_number(arg, UINT64_MAX); break;
	case OPT_WARMUP: o->warmup = parse_number(arg, UINT64_MAX); break;
	case OPT_BYTES: o->bytes = parse_number(arg, UINT64_MAX); break;
	case OPT_SECONDS: o->seconds = parse_seconds(arg); break;
	case OPT_CPU: o->cpu = (int)parse_number(arg, CPU_SETSIZE - 1); break;
	case OPT_PEER_CPU: o->peer_cpu = (int)parse_number(arg, CPU_SETSIZE - 1); break;
	case OPT_CONNECTIONS: o->connections = (int)parse_number(arg, 1000000); break;
	case OPT_THREADS: o->threads = (int)parse_number(arg, 1000); break;
	case OPT_PEER_PID: o->peer_pid = (int)parse_number(arg, INT_MAX); break;
	case OPT_START_AT: o->start_at_ns = parse_number(arg, UINT64_MAX); break;
	case OPT_TIMEOUT: o->timeout_s = (int)parse_number(arg, 86400); break;
	case OPT_SLEEP: o->sleep = true; break;
	case OPT_RING: o->ring = true; break;
	case 'h': printf("usage: %s %s\n", tb_name, usage); exit(0);
	default: exit(2); /* getopt has said why */
	}
}

void tb_parse(struct tb_opts *o, int argc, char **argv, bool has_role, const char *usage)
{
	int opt;

	o->host = "127.0.0.1";
	while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1)
		parse_one(o, opt, optarg, usage);
	if (has_role) {
		if (optind != argc - 1 ||
		    (strcmp(argv[optind], "server") && strcmp(argv[optind], "client")))
			misuse("server or client?", NULL);
		o->server = !strcmp(argv[optind], "server");
		if (o->is_unix && !o->path)
			misuse("a Unix socket needs a --path", NULL);
		if (!o->is_unix && !o->server && !o->port)
			misuse("a client needs a --port", NULL);
	} else if (optind != argc) {
		misuse("too many arguments", argv[optind]);
	}
	if (!o->size_bytes)
		misuse("bad number", "--size 0");
	if (!o->timeout_s)
		o->timeout_s = 60 + 2 * (int)o->seconds;
	signal(SIGALRM, on_alarm);
	alarm((unsigned int)o->timeout_s);
	/* A peer that goes away shall be an error line, not a silent death. */
	signal(SIGPIPE, SIG_IGN);
	tb_pin(o->cpu);
}

void tb_pin(int cpu)
{
	cpu_set_t set;

	if (cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		tb_die("cannot pin to the core");
}

uint64_t tb_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

void tb_wait_until(uint64_t at_ns)
{
	struct timespec t = {.tv_sec = (time_t)(at_ns / 1000000000U),
			     .tv_nsec = (long)(at_ns % 1000000000U)};

	while (at_ns && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

union address {
	struct sockaddr any;
	struct sockaddr_in in;
	struct sockaddr_un un;
};

static socklen_t fill_address(const struct tb_opts *o, union address *a)
{
	memset(a, 0, sizeof(*a));
	if (o->is_unix) {
		a->un.sun_family = AF_UNIX;
		if (strlen(o->path) >= sizeof(a->un.sun_path))
			tb_fail("the path of the socket is too long: %s", o->path);
		strcpy(a->un.sun_path, o->path);
		return sizeof(a->un);
	}
	a->in.sin_family = AF_INET;
	a->in.sin_port = htons((uint16_t)o->port);
	if (inet_pton(AF_INET, o->host, &a->in.sin_addr) != 1)
		tb_fail("not an IPv4 address: %s", o->host);
	return sizeof(a->in);
}

static int new_socket(const struct tb_opts *o)
{
	int fd = socket(o->is_unix ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		tb_die("socket");
	return fd;
}

/* Every program here wants its small messages at once; a Unix socket has nothing to switch off. */
static void set_nodelay(int fd)
{
	int one = 1;

	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) && errno != EOPNOTSUPP)
		tb_die("TCP_NODELAY");
}

int tb_listen(const struct tb_opts *o, int backlog)
{
	union address a;
	socklen_t len = fill_address(o, &a);
	int fd = new_socket(o), one = 1;

	if (!o->is_unix && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)))
		tb_die("SO_REUSEADDR");
	if (bind(fd, &a.any, len))
		tb_die("bind");
	if (listen(fd, backlog))
		tb_die("listen");
	len = sizeof(a);
	if (!o->is_unix && getsockname(fd, &a.any, &len))
		tb_die("getsockname");
	printf("port %d\n", o->is_unix ? 0 : ntohs(a.in.sin_port));
	fflush(stdout);
	return fd;
}

int tb_accept(int listener)
{
	int fd;

	do
		fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	while (fd < 0 && errno == EINTR);
	if (fd < 0)
		tb_die("accept");
	set_nodelay(fd);
	return fd;
}

int tb_connect(const struct tb_opts *o)
{
	union address a;
	socklen_t len = fill_address(o, &a);
	int fd = new_socket(o);

	set_nodelay(fd);
	if (connect(fd, &a.any, len))
		tb_die("connect");
	return fd;
}

void tb_write_all(int fd, const void *buf, size_t size_bytes)
{
	const char *p = buf;

	while (size_bytes) {
		ssize_t n = write(fd, p, size_bytes);

		if (n < 0) {
			if (errno == EINTR)
				continue;
			tb_die("write");
		}
		p += n;
		size_bytes -= (size_t)n;
	}
}

bool tb_read_all(int fd, void *buf, size_t size_bytes)
{
	char *p = buf;

	while (size_bytes) {
		ssize_t n = read(fd, p, size_bytes);

		if (n < 0) {
			if (errno == EINTR)
				continue;
			tb_die("read");
		}
		if (!n) {
			if (p != (char *)buf)
				tb_fail("the peer closed inside a message");
			return false;
		}
		p += n;
		size_bytes -= (size_t)n;
	}
	return true;
}

static double seconds_of(struct timeval t)
{
	return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

void tb_usage_get(struct tb_usage *ret_usage)
{
	struct rusage r;

	if (getrusage(RUSAGE_SELF, &r))
		tb_die("getrusage");
	ret_usage->cpu_s = seconds_of(r.ru_utime) + seconds_of(r.ru_stime);
	ret_usage->voluntary = (uint64_t)r.ru_nvcsw;
	ret_usage->involuntary = (uint64_t)r.ru_nivcsw;
}

void tb_usage_print(const struct tb_usage *since)
{
	struct tb_usage now;

	tb_usage_get(&now);
	printf(",\"cpu_s\":%.6f,\"voluntary_switches\":%llu,\"involuntary_switches\":%llu",
	       now.cpu_s - since->cpu_s, (unsigned long long)(now.voluntary - since->voluntary),
	       (unsigned long long)(now.involuntary - since->involuntary));
}

/*
 * Bucket of a value: its highest TB_HIST_STEP_BITS + 1 bits (the first of them is always one, so
 * it is the bucket's row that says where it stood).
 */
static unsigned int bucket_of(uint64_t ns)
{
	unsigned int shift;

	if (ns < (2U << TB_HIST_STEP_BITS))
		return (unsigned int)ns;
	shift = 63U - (unsigned int)__builtin_clzll(ns) - TB_HIST_STEP_BITS;
	return (shift << TB_HIST_STEP_BITS) + (unsigned int)(ns >> shift);
}

/* The middle of a bucket's values. */
static double bucket_value(unsigned int bucket)
{
	unsigned int shift;
	uint64_t low;

	if (bucket < (2U << TB_HIST_STEP_BITS))
		return bucket;
	shift = (bucket >> TB_HIST_STEP_BITS) - 1;
	low = (uint64_t)(bucket - (shift << TB_HIST_STEP_BITS)) << shift;
	return (double)low + (double)((1ULL << shift) - 1) / 2;
}

void tb_hist_add(struct tb_hist *h, uint64_t ns)
{
	h->buckets[bucket_of(ns)]++;
	h->count++;
	if (ns > h->max_ns)
		h->max_ns = ns;
}

double tb_hist_quantile(const struct tb_hist *h, double share)
{
	uint64_t want = (uint64_t)(share * (double)h->count), seen = 0;

	for (unsigned int i = 0; i < TB_HIST_BUCKETS; i++) {
		seen += h->buckets[i];
		if (seen > want)
			return bucket_value(i) < (double)h->max_ns ? bucket_value(i)
								   : (double)h->max_ns;
	}
	return (double)h->max_ns;
}
