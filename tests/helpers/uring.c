/* SPDX-License-Identifier: MIT */
/*
 * uring try     prints what each of liburing's ways to a ring comes to
 * uring serve   an echo server by io_uring, or by poll where there is none
 *
 * The server prints "port N", sends back what one client sends until that ends, and prints how
 * many bytes that were: the same whichever way it took.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <liburing.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int die(const char *what)
{
	fprintf(stderr, "uring: %s: %s\n", what, strerror(errno));
	return 1;
}

static int try_all(void)
{
	struct io_uring_params params = {0}, none = {0};
	struct io_uring ring;
	int r = io_uring_queue_init(4, &ring, 0);

	printf("io_uring_queue_init %d\n", r);
	if (r >= 0)
		io_uring_queue_exit(&ring);
	r = io_uring_queue_init_params(4, &ring, &params);
	printf("io_uring_queue_init_params %d\n", r);
	if (r >= 0)
		io_uring_queue_exit(&ring);
	r = io_uring_setup(4, &none);
	printf("io_uring_setup %d\n", r < 0 ? r : 0);
	if (r >= 0)
		close(r);
	return 0;
}

/* --- one call, by either way ------------------------------------------------------------------- */

struct server {
	struct io_uring ring;
	bool has_ring;
	int fd;
};

static ssize_t by_ring(struct server *s, char *buf, size_t n, bool send)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&s->ring);
	struct io_uring_cqe *cqe;
	ssize_t r;

	if (send)
		io_uring_prep_send(sqe, s->fd, buf, n, 0);
	else
		io_uring_prep_recv(sqe, s->fd, buf, n, 0);
	if (io_uring_submit(&s->ring) < 0 || io_uring_wait_cqe(&s->ring, &cqe) < 0)
		return -1;
	r = cqe->res;
	io_uring_cqe_seen(&s->ring, cqe);
	return r;
}

static ssize_t by_poll(struct server *s, char *buf, size_t n, bool send_it)
{
	struct pollfd p = {s->fd, send_it ? POLLOUT : POLLIN, 0};

	if (poll(&p, 1, -1) != 1)
		return -1;
	return send_it ? send(s->fd, buf, n, MSG_NOSIGNAL) : recv(s->fd, buf, n, 0);
}

static ssize_t move(struct server *s, char *buf, size_t n, bool send_it)
{
	return s->has_ring ? by_ring(s, buf, n, send_it) : by_poll(s, buf, n, send_it);
}

static int serve(void)
{
	static struct server s;
	static char buf[65536];
	struct sockaddr_in sa = {.sin_family = AF_INET};
	socklen_t len = sizeof(sa);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	long long total = 0;
	ssize_t n, sent;

	s.has_ring = io_uring_queue_init(8, &s.ring, 0) == 0;
	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (listener < 0 || bind(listener, (struct sockaddr *)&sa, sizeof(sa)) ||
	    listen(listener, 8) || getsockname(listener, (struct sockaddr *)&sa, &len))
		return die("listen");
	printf("port %d\n", ntohs(sa.sin_port));
	fflush(stdout);
	s.fd = accept(listener, NULL, NULL);
	if (s.fd < 0)
		return die("accept");
	while ((n = move(&s, buf, sizeof(buf), false)) > 0) {
		for (ssize_t at = 0; at < n; at += sent) {
			sent = move(&s, buf + at, (size_t)(n - at), true);
			if (sent <= 0)
				return die("send");
		}
		total += n;
	}
	printf("%lld bytes, then %zd\n", total, n);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "try"))
		return try_all();
	if (argc == 2 && !strcmp(argv[1], "serve"))
		return serve();
	fputs("usage: uring try|serve\n", stderr);
	return 2;
}
