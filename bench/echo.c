/* SPDX-License-Identifier: MIT */
/* An echo server by epoll, for the benchmarks of many connections, and what their clients share. */
#include "common.h"

#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#define MAX_EVENTS 64

void tb_allow_descriptors(int connections)
{
	struct rlimit limit;
	rlim_t want = (rlim_t)connections + 64;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		tb_die("getrlimit");
	if (limit.rlim_cur >= want)
		return;
	if (limit.rlim_max < want)
		tb_fail("%d connections need more descriptors than allowed (ulimit -n)",
			connections);
	limit.rlim_cur = want;
	if (setrlimit(RLIMIT_NOFILE, &limit))
		tb_die("setrlimit");
}

void tb_watch(int set, int fd)
{
	struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};

	if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &e))
		tb_die("epoll_ctl");
}

int tb_wait(int set, struct epoll_event *events, int max)
{
	int n;

	do
		n = epoll_wait(set, events, max, -1);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		tb_die("epoll_wait");
	return n;
}

/* Echoes what is there; false when the connection ended. */
static bool echo_some(int fd, char *buf, size_t size_bytes, uint64_t *bytes)
{
	ssize_t n = read(fd, buf, size_bytes);

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return true;
	if (n < 0)
		tb_die("read");
	if (!n)
		return false;
	tb_write_all(fd, buf, (size_t)n);
	*bytes += (uint64_t)n;
	return true;
}

void tb_echo_server(const struct tb_opts *o, const char *bench, int connections, char *buf)
{
	struct epoll_event events[MAX_EVENTS];
	int listener = tb_listen(o, 1024), set = epoll_create1(EPOLL_CLOEXEC);
	int accepted = 0, closed = 0;
	uint64_t bytes = 0;
	struct tb_usage start;

	if (set < 0)
		tb_die("epoll_create1");
	tb_usage_get(&start);
	tb_watch(set, listener);
	while (closed < connections) {
		int n = tb_wait(set, events, MAX_EVENTS);

		for (int i = 0; i < n; i++) {
			int fd = events[i].data.fd;

			if (fd == listener) {
				tb_watch(set, tb_accept(listener));
				accepted++;
			} else if (!echo_some(fd, buf, o->size_bytes, &bytes)) {
				close(fd);
				closed++;
			}
		}
	}
	close(set);
	close(listener);
	printf("{\"bench\":\"%s\",\"role\":\"server\",\"connections\":%d,\"tx_bytes\":%llu,"
	       "\"rx_bytes\":%llu",
	       bench, accepted, (unsigned long long)bytes, (unsigned long long)bytes);
	tb_usage_print(&start);
	puts("}");
}
