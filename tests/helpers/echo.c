/* SPDX-License-Identifier: MIT */
/*
 * echo server epoll|fork|thread
 * echo client PORT [--mode pingpong|bulk|idle] [--connections N] [--messages N] [--seconds S]
 *                  [--host ADDRESS] [--hold] [--more N]
 *
 * Plain socket programs for tests that kill, count and compare; they link nothing of Tutti.
 *
 * The server prints "port N" and sends back what it gets, until it is killed.
 *
 * The client sends a known pattern and checks every byte that returns. It prints one line when it
 * ends: "ok MESSAGES", "end MESSAGES" (the server closed), "ECONNRESET MESSAGES" (or another
 * errno), or "WRONG at BYTE", which nothing excuses. Before, it prints "ready" when every
 * connection has carried a message; with --hold it then waits for a line on standard input before
 * it goes on, with --more by N connections more.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_CONNECTIONS 4096

static void die(const char *what)
{
	fprintf(stderr, "echo: %s: %s\n", what, strerror(errno));
	exit(1);
}

static bool write_all(int fd, const char *buf, size_t n)
{
	while (n) {
		ssize_t r = send(fd, buf, n, MSG_NOSIGNAL);

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return false;
		buf += r;
		n -= (size_t)r;
	}
	return true;
}

/* --- server ------------------------------------------------------------------------------------ */

static int listen_on(void)
{
	struct sockaddr_in sa = {.sin_family = AF_INET};
	socklen_t len = sizeof(sa);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) || listen(fd, 1024))
		die("listen");
	getsockname(fd, (struct sockaddr *)&sa, &len);
	printf("port %d\n", ntohs(sa.sin_port));
	fflush(stdout);
	return fd;
}

static void serve_one(int fd)
{
	static __thread char buf[65536];
	ssize_t r;

	while ((r = read(fd, buf, sizeof(buf))) > 0 || (r < 0 && errno == EINTR))
		if (r > 0 && !write_all(fd, buf, (size_t)r))
			break;
	close(fd);
}

/* A connection of the epoll server: bytes that could not be sent back yet. */
struct session {
	int fd;
	size_t from, to;
	char buf[65536];
};

static void session_end(struct session *s)
{
	close(s->fd);
	free(s);
}

/* Reads and writes until one of them would block. False when the connection ended. */
static bool session_run(int ep, struct session *s)
{
	struct epoll_event e = {EPOLLIN, {.ptr = s}};
	ssize_t r;

	for (;;) {
		while (s->from < s->to) {
			r = send(s->fd, s->buf + s->from, s->to - s->from, MSG_NOSIGNAL);
			if (r < 0 && errno == EAGAIN) {
				e.events = EPOLLOUT;
				return epoll_ctl(ep, EPOLL_CTL_MOD, s->fd, &e) == 0;
			}
			if (r <= 0)
				return false;
			s->from += (size_t)r;
		}
		r = read(s->fd, s->buf, sizeof(s->buf));
		if (r < 0 && errno == EAGAIN)
			return epoll_ctl(ep, EPOLL_CTL_MOD, s->fd, &e) == 0;
		if (r <= 0)
			return false;
		s->from = 0;
		s->to = (size_t)r;
	}
}

static void session_start(int ep, int listener)
{
	struct session *s;
	struct epoll_event e = {EPOLLIN, {.ptr = NULL}};
	int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd < 0)
		return;
	s = malloc(sizeof(*s)); /* pages are touched when they are needed */
	s->fd = fd;
	s->from = s->to = 0;
	e.data.ptr = s;
	epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
}

static void serve_epoll(int listener)
{
	int ep = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event e[64] = {{EPOLLIN, {.ptr = NULL}}};

	epoll_ctl(ep, EPOLL_CTL_ADD, listener, &e[0]);
	for (;;) {
		int n = epoll_wait(ep, e, 64, -1);

		for (int i = 0; i < n; i++) {
			if (!e[i].data.ptr)
				session_start(ep, listener);
			else if (!session_run(ep, e[i].data.ptr))
				session_end(e[i].data.ptr);
		}
	}
}

static void serve_fork(int listener)
{
	signal(SIGCHLD, SIG_IGN);
	for (;;) {
		int fd = accept(listener, NULL, NULL);

		if (fd < 0)
			continue;
		if (fork() == 0) {
			close(listener);
			serve_one(fd);
			exit(0);
		}
		close(fd);
	}
}

static void *thread_main(void *arg)
{
	serve_one((int)(intptr_t)arg);
	return NULL;
}

static void serve_thread(int listener)
{
	pthread_attr_t attr;
	pthread_t thread;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	for (;;) {
		int fd = accept(listener, NULL, NULL);

		if (fd >= 0)
			pthread_create(&thread, &attr, thread_main, (void *)(intptr_t)fd);
	}
}

static int server(const char *how)
{
	int listener = listen_on();

	if (!strcmp(how, "epoll"))
		serve_epoll(listener);
	else if (!strcmp(how, "fork"))
		serve_fork(listener);
	else if (!strcmp(how, "thread"))
		serve_thread(listener);
	return 2;
}

/* --- client ------------------------------------------------------------------------------------ */

struct client {
	const char *host, *mode;
	int port, connections, more;
	long messages;
	double seconds;
	bool hold;
	int fds[MAX_CONNECTIONS];
	long done;
};

static void fill(char *buf, size_t n, uint64_t pos, int which)
{
	for (size_t i = 0; i < n; i++)
		buf[i] = (char)((pos + i) * 167 + ((pos + i) >> 8) * 13 + (uint64_t)which * 71);
}

static void check(const char *buf, size_t n, uint64_t pos, int which)
{
	for (size_t i = 0; i < n; i++)
		if (buf[i] !=
		    (char)((pos + i) * 167 + ((pos + i) >> 8) * 13 + (uint64_t)which * 71)) {
			printf("WRONG at %llu of connection %d\n", (unsigned long long)(pos + i),
			       which);
			fflush(stdout);
			_exit(1);
		}
}

static void finish(struct client *c, const char *how)
{
	printf("%s %ld\n", how, c->done);
	fflush(stdout);
	exit(0);
}

static void finish_errno(struct client *c, ssize_t r)
{
	finish(c, r == 0 ? "end" : strerrorname_np(errno));
}

static int connect_to(struct client *c)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons((uint16_t)c->port)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	inet_pton(AF_INET, c->host, &sa.sin_addr);
	if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa)))
		finish_errno(c, -1); /* whom a test kills may not have listened yet */
	return fd;
}

static void read_exactly(struct client *c, int fd, char *buf, size_t n)
{
	for (size_t got = 0; got < n;) {
		ssize_t r = read(fd, buf + got, n - got);

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			finish_errno(c, r);
		got += (size_t)r;
	}
}

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* One message there and back on connection which. */
static void ask(struct client *c, int which, uint64_t *pos)
{
	static char out[20000], in[20000];
	size_t n = (size_t)(*pos * 2654435761u % 977) + 1;

	if (*pos % 13 == 5)
		n = sizeof(out);
	fill(out, n, *pos, which);
	if (!write_all(c->fds[which], out, n))
		finish_errno(c, -1);
	read_exactly(c, c->fds[which], in, n);
	check(in, n, *pos, which);
	*pos += n;
	c->done++;
}

static void wait_for_line(void)
{
	char c;

	while (read(STDIN_FILENO, &c, 1) == 1 && c != '\n')
		;
}

static void pingpong(struct client *c)
{
	static uint64_t pos[MAX_CONNECTIONS];
	double end = now_s() + c->seconds;
	bool ready = false;

	for (long i = 0; c->messages ? i < c->messages : now_s() < end; i++) {
		for (int k = 0; k < c->connections; k++)
			ask(c, k, &pos[k]);
		/* Time for connections to become fast, then as fast as they are. */
		if (i < 12)
			usleep(1000);
		if (i == 12 && !ready) {
			ready = true;
			printf("ready\n");
			fflush(stdout);
			if (c->hold)
				wait_for_line();
			end = now_s() + c->seconds;
			for (int k = 0; k < c->more; k++)
				c->fds[c->connections++] = connect_to(c);
		}
	}
}

static void *bulk_writer(void *arg)
{
	struct client *c = arg;
	static char buf[65536];
	uint64_t pos = 0;

	for (;;) {
		fill(buf, sizeof(buf), pos, 0);
		if (!write_all(c->fds[0], buf, sizeof(buf)))
			return NULL; /* the reader says why */
		pos += sizeof(buf);
	}
}

/* Both directions full, as fast as it goes; ends when the server does. */
static void bulk(struct client *c)
{
	static char buf[65536];
	pthread_t thread;
	uint64_t pos = 0;
	double end = now_s() + c->seconds;

	pthread_create(&thread, NULL, bulk_writer, c);
	while (now_s() < end) {
		ssize_t r = read(c->fds[0], buf, sizeof(buf));

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			finish_errno(c, r);
		check(buf, (size_t)r, pos, 0);
		pos += (uint64_t)r;
		if (!c->done++) {
			printf("ready\n");
			fflush(stdout);
		}
	}
}

/* Warm, then asleep in a read that only the server's end can end. */
static void idle(struct client *c)
{
	char buf[1];

	c->messages = 13;
	pingpong(c);
	for (;;) {
		struct pollfd p = {c->fds[0], POLLIN, 0};
		ssize_t r;

		poll(&p, 1, -1);
		r = recv(c->fds[0], buf, 1, MSG_DONTWAIT);
		if (r < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		finish_errno(c, r);
	}
}

static int client(struct client *c)
{
	for (int i = 0; i < c->connections; i++)
		c->fds[i] = connect_to(c);
	if (!strcmp(c->mode, "bulk"))
		bulk(c);
	else if (!strcmp(c->mode, "idle"))
		idle(c);
	else
		pingpong(c);
	finish(c, "ok");
	return 0;
}

static int misuse(void)
{
	fputs("usage: echo server epoll|fork|thread\n"
	      "       echo client PORT [--mode pingpong|bulk|idle] [--connections N]\n"
	      "            [--messages N] [--seconds S] [--host ADDRESS] [--hold] [--more N]\n",
	      stderr);
	return 2;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"mode", 1, NULL, 'm'},	    {"connections", 1, NULL, 'c'},
		{"messages", 1, NULL, 'n'}, {"seconds", 1, NULL, 's'},
		{"host", 1, NULL, 'h'},	    {"hold", 0, NULL, 'w'},
		{"more", 1, NULL, 'M'},	    {NULL, 0, NULL, 0},
	};
	static struct client c = {
		.host = "127.0.0.1", .mode = "pingpong", .connections = 1, .seconds = 3600};
	struct rlimit files;
	int o;

	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	if (argc == 3 && !strcmp(argv[1], "server"))
		return server(argv[2]);
	if (argc < 3 || strcmp(argv[1], "client"))
		return misuse();
	c.port = atoi(argv[2]);
	optind = 3;
	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (o) {
		case 'm': c.mode = optarg; break;
		case 'c': c.connections = atoi(optarg); break;
		case 'n': c.messages = atol(optarg); break;
		case 's': c.seconds = atof(optarg); break;
		case 'h': c.host = optarg; break;
		case 'M': c.more = atoi(optarg); break;
		case 'w': c.hold = true; break;
		default: return misuse();
		}
	}
	if (c.connections < 1 || c.more < 0 || c.connections + c.more > MAX_CONNECTIONS)
		return misuse();
	return client(&c);
}
