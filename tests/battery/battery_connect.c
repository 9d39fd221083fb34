/* SPDX-License-Identifier: MIT */
/* How connections begin: addresses, refusals, orders of events. */
#include "battery.h"

static int so_error(int fd)
{
	int err = -1;
	socklen_t len = sizeof(err);

	getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len);
	return err;
}

/* A port where nobody listens. */
static int dead_port(struct t *t)
{
	int port, fd = t_listen(t, &port);

	close(fd);
	return port;
}

static void warm_pair(struct t *t, int a, int b)
{
	char c;

	for (int i = 0; t->warm && i < 14; i++) {
		if (write(a, "w", 1) != 1 || read(b, &c, 1) != 1 || write(b, "w", 1) != 1 ||
		    read(a, &c, 1) != 1)
			t_log(t, "warm-up failed");
		t_nap_ms(1);
	}
}

static void talk(struct t *t, int a, int b)
{
	char buf[100];

	T(write(a, "hello", 5));
	TD(buf, read(b, buf, 100));
	T(write(b, "hi", 2));
	TD(buf, read(a, buf, 100));
}

static void dead(struct t *t)
{
	struct sockaddr_storage sa;
	socklen_t len = t_address(t, dead_port(t), &sa);
	int fd = t_socket(t);

	T(connect(fd, (struct sockaddr *)&sa, len));
	T(connect(fd, (struct sockaddr *)&sa, len));
	t_poll(t, fd, POLLIN | POLLOUT | POLLRDHUP, 0);
	t_log(t, "SO_ERROR %d", so_error(fd));
	T(write(fd, "x", 1));
	t_sigpipes(t);
	close(fd);
}

static void dead_nonblock(struct t *t)
{
	struct sockaddr_storage sa;
	socklen_t len = t_address(t, dead_port(t), &sa);
	int fd = t_socket(t);
	char buf[8];

	t_nonblock(fd, true);
	T(connect(fd, (struct sockaddr *)&sa, len));
	t_poll(t, fd, POLLIN | POLLOUT | POLLRDHUP, 1000);
	t_log(t, "SO_ERROR %s", t_errno(so_error(fd)));
	t_log(t, "SO_ERROR %d", so_error(fd));
	T(read(fd, buf, 8));
	close(fd);
}

static void nonblock(struct t *t)
{
	struct sockaddr_storage sa;
	int port, listener = t_listen(t, &port), fd = t_socket(t), peer;
	socklen_t len = t_address(t, port, &sa);

	t_nonblock(fd, true);
	T(connect(fd, (struct sockaddr *)&sa, len));
	t_poll(t, fd, POLLIN | POLLOUT, 1000);
	t_log(t, "SO_ERROR %d", so_error(fd));
	T(connect(fd, (struct sockaddr *)&sa, len));
	T(connect(fd, (struct sockaddr *)&sa, len));
	peer = accept(listener, NULL, NULL);
	t_nonblock(fd, false);
	warm_pair(t, fd, peer);
	talk(t, fd, peer);
	T(connect(fd, (struct sockaddr *)&sa, len));
}

static void bad(struct t *t)
{
	struct sockaddr_storage sa;
	socklen_t len = t_address(t, 1, &sa);
	int fd = t_socket(t), port, listener = t_listen(t, &port);
	char buf[8];

	T(connect(fd, (struct sockaddr *)&sa, 3));
	T(connect(fd, (struct sockaddr *)8, len));
	T(connect(-1, (struct sockaddr *)&sa, len));
	T(connect(0, (struct sockaddr *)&sa, len));
	T(connect(listener, (struct sockaddr *)&sa, len));
	T(recv(listener, buf, 8, 0));
	T(send(listener, buf, 8, MSG_NOSIGNAL));
	T(read(fd, buf, 8));
	T(getpeername(fd, (struct sockaddr *)&sa, &len));
	T(socket(AF_INET, SOCK_STREAM, IPPROTO_UDP));
	T(socket(9999, SOCK_STREAM, 0));
	len = t_address(t, port, &sa);
	T(bind(fd, (struct sockaddr *)&sa, len));
	T(listen(t->sync_fd, 1));
}

/* A socket that connects to itself: both roles in one. */
static void self(struct t *t)
{
	struct sockaddr_storage sa;
	socklen_t len = t_address(t, 0, &sa);
	int fd = t_socket(t);
	char buf[100];

	T(bind(fd, (struct sockaddr *)&sa, len));
	len = t_address(t, t_port(fd), &sa);
	T(connect(fd, (struct sockaddr *)&sa, len));
	for (int i = 0; i < 20; i++) {
		if (write(fd, "me", 2) != 2 || read(fd, buf, 100) != 2)
			t_log(t, "failed in round %d", i);
		t_nap_ms(1);
	}
	T(write(fd, "to myself", 9));
	t_poll(t, fd, POLLIN | POLLOUT, 0);
	TD(buf, read(fd, buf, 100));
	T(shutdown(fd, SHUT_WR));
	T(read(fd, buf, 100));
	t_poll(t, fd, POLLIN | POLLOUT | POLLRDHUP, 0);
	T(close(fd));
}

/* Accepted in the order of arrival, with what was sent before. */
static void backlog(struct t *t)
{
	int port, listener = t_listen(t, &port), client[4], peer[4];
	char buf[100];

	for (int i = 0; i < 4; i++) {
		client[i] = t_connect(t, port);
		T(write(client[i], &"ABCD"[i], 1));
	}
	for (int i = 0; i < 4; i++) {
		peer[i] = accept(listener, NULL, NULL);
		warm_pair(t, peer[i], client[i]);
		TD(buf, read(peer[i], buf, 1));
		T(write(peer[i], "ok", 2));
	}
	for (int i = 0; i < 4; i++) {
		t_log(t, "port: %d", t_port(client[i]) != 0);
		TD(buf, recv(client[i], buf, 2, MSG_WAITALL));
	}
}

/* The data before accept is more than one buffer, then the connection becomes fast. */
static void data_before_accept_a(struct t *t)
{
	int port, listener = t_listen(t, &port);

	t_tell(t, port);
	t_sync(t);
	t->fd = accept(listener, NULL, NULL);
	t_recv_all(t, t->fd, 400000, 1000);
	t_send_all(t, t->fd, 400000, 9000, 2);
	t_recv_all(t, t->fd, 400000, 65536);
}

static void data_before_accept_b(struct t *t)
{
	t->fd = t_connect(t, t_hear(t));
	t_send_all(t, t->fd, 20000, 20000, 1);
	t_sync(t);
	t_send_all(t, t->fd, 380000, 3000, 3);
	t_recv_all(t, t->fd, 400000, 10000);
	t_send_all(t, t->fd, 400000, 400000, 4);
}

static void closed_before_accept(struct t *t)
{
	int port, listener = t_listen(t, &port), client = t_connect(t, port), peer;
	struct linger l = {1, 0};
	char buf[100];

	T(write(client, "gone", 4));
	T(close(client));
	t_settle();
	peer = accept(listener, NULL, NULL);
	TD(buf, read(peer, buf, 100));
	T(read(peer, buf, 100));
	T(close(peer));
	client = t_connect(t, port);
	T(setsockopt(client, SOL_SOCKET, SO_LINGER, &l, sizeof(l)));
	T(close(client));
	t_settle();
	t_poll(t, listener, POLLIN, 0);
	peer = accept(listener, NULL, NULL);
	T(read(peer, buf, 100));
	T(close(peer));
}

/* --- addresses --------------------------------------------------------------------------------- */

static void name(struct t *t, const char *what, int fd, bool remote)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);
	char text[64] = "?";
	void *address = &((struct sockaddr_in *)&sa)->sin_addr;

	memset(&sa, 0, sizeof(sa));
	if (remote ? getpeername(fd, (struct sockaddr *)&sa, &len)
		   : getsockname(fd, (struct sockaddr *)&sa, &len)) {
		t_log(t, "%s: %s", what, t_errno(errno));
		return;
	}
	if (sa.ss_family == AF_INET6)
		address = &((struct sockaddr_in6 *)&sa)->sin6_addr;
	inet_ntop(sa.ss_family, address, text, sizeof(text));
	t_log(t, "%s: %s, %u bytes", what, text, len);
}

/* A client of one kind, a server of another. */
static void meet(struct t *t, int server_family, const char *bind_to, int family, const char *to)
{
	struct sockaddr_in6 sa6 = {.sin6_family = AF_INET6};
	struct sockaddr_in sa4 = {.sin_family = AF_INET};
	int listener = socket(server_family, SOCK_STREAM, 0), fd = socket(family, SOCK_STREAM, 0);
	int peer;

	t_log(t, "%s from %s", bind_to, to);
	inet_pton(server_family, bind_to,
		  server_family == AF_INET ? (void *)&sa4.sin_addr : (void *)&sa6.sin6_addr);
	T(server_family == AF_INET ? bind(listener, (struct sockaddr *)&sa4, sizeof(sa4))
				   : bind(listener, (struct sockaddr *)&sa6, sizeof(sa6)));
	T(listen(listener, 5));
	sa4.sin_port = sa6.sin6_port = htons((uint16_t)t_port(listener));
	inet_pton(family, to, family == AF_INET ? (void *)&sa4.sin_addr : (void *)&sa6.sin6_addr);
	T(family == AF_INET ? connect(fd, (struct sockaddr *)&sa4, sizeof(sa4))
			    : connect(fd, (struct sockaddr *)&sa6, sizeof(sa6)));
	peer = accept(listener, NULL, NULL);
	name(t, "client", fd, false);
	name(t, "client's peer", fd, true);
	name(t, "server", peer, false);
	name(t, "server's peer", peer, true);
	t_log(t, "ports %d %d", t_port(listener) == t_port(peer), t_port(listener) != t_port(fd));
	warm_pair(t, fd, peer);
	talk(t, fd, peer);
	close(fd);
	close(peer);
	close(listener);
}

static void addresses(struct t *t)
{
	meet(t, AF_INET, "127.0.0.1", AF_INET, "127.0.0.1");
	meet(t, AF_INET, "0.0.0.0", AF_INET, "127.0.0.1");
	meet(t, AF_INET, "0.0.0.0", AF_INET, "0.0.0.0");
	meet(t, AF_INET, "127.7.8.9", AF_INET, "127.7.8.9");
	meet(t, AF_INET, "0.0.0.0", AF_INET, "127.1.1.1");
	meet(t, AF_INET6, "::1", AF_INET6, "::1");
	meet(t, AF_INET6, "::", AF_INET6, "::1");
	meet(t, AF_INET6, "::", AF_INET, "127.0.0.1");
	meet(t, AF_INET6, "::", AF_INET6, "::ffff:127.0.0.1");
	meet(t, AF_INET, "127.0.0.1", AF_INET6, "::ffff:127.0.0.1");
	meet(t, AF_INET6, "::ffff:127.0.0.1", AF_INET, "127.0.0.1");
	meet(t, AF_INET6, "::", AF_INET6, "::");
}

static void peer_address(struct t *t)
{
	int port, listener = t_listen(t, &port), fd = t_connect(t, port), peer;
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);

	memset(&sa, 0, sizeof(sa));
	peer = accept(listener, (struct sockaddr *)&sa, &len);
	t_log(t, "length %u, its port %d", len,
	      ntohs(((struct sockaddr_in *)&sa)->sin_port) == t_port(fd));
	close(fd);
	fd = t_connect(t, port);
	len = 5; /* cut short, the true length told */
	close(peer);
	peer = accept(listener, (struct sockaddr *)&sa, &len);
	t_log(t, "length %u", len);
	warm_pair(t, fd, peer);
	talk(t, fd, peer);
}

/* --- again and again --------------------------------------------------------------------------- */

static void many_a(struct t *t)
{
	int port, listener = t_listen(t, &port), wrong = 0;
	char buf[8];

	t_tell(t, port);
	for (int i = 0; i < 150; i++) {
		int fd = accept(listener, NULL, NULL);

		for (int k = 0; k < i % 7; k++)
			if (read(fd, buf, 8) != 3 || write(fd, "answer", 6) != 6)
				wrong++;
		close(fd);
	}
	t_log(t, "wrong: %d", wrong);
}

static void many_b(struct t *t)
{
	int port = t_hear(t), wrong = 0;
	char buf[8];

	for (int i = 0; i < 150; i++) {
		int fd = t_connect(t, port);

		for (int k = 0; k < i % 7; k++)
			if (write(fd, "ask", 3) != 3 || recv(fd, buf, 6, MSG_WAITALL) != 6)
				wrong++;
		if (read(fd, buf, 8))
			wrong++;
		close(fd);
	}
	t_log(t, "wrong: %d", wrong);
}

/* One socket, disconnected by AF_UNSPEC and connected once more. */
static void again(struct t *t)
{
	struct sockaddr none = {.sa_family = AF_UNSPEC};
	struct sockaddr_storage sa;
	int port, listener = t_listen(t, &port), fd = t_connect(t, port), peer;
	socklen_t len = t_address(t, port, &sa);
	char buf[8];

	peer = accept(listener, NULL, NULL);
	warm_pair(t, fd, peer);
	talk(t, fd, peer);
	T(connect(fd, &none, sizeof(none)));
	t_settle();
	T(recv(peer, buf, 8, 0));
	T(send(fd, "x", 1, MSG_NOSIGNAL));
	close(peer);
	T(connect(fd, (struct sockaddr *)&sa, len));
	peer = accept(listener, NULL, NULL);
	talk(t, fd, peer);
	warm_pair(t, fd, peer);
	talk(t, fd, peer);
}

/* --- listeners --------------------------------------------------------------------------------- */

static void *accept_thread(void *arg)
{
	struct t *t = arg;

	T(accept(t->fd, NULL, NULL));
	return NULL;
}

static void listener_shutdown(struct t *t)
{
	pthread_t thread;
	int port;

	t->fd = t_listen(t, &port);
	thread = t_second(accept_thread, t);
	t_settle();
	T(shutdown(t->fd, SHUT_RD));
	t_join(thread);
	T(accept(t->fd, NULL, NULL));
	T(listen(t->fd, 5)); /* and back */
	close(t_connect(t, t_port(t->fd)));
	t_poll(t, t->fd, POLLIN, 1000);
	t_poll(t, t->fd, POLLIN | POLLOUT | POLLRDHUP, 0);
	close(accept(t->fd, NULL, NULL));
	t_poll(t, t->fd, POLLIN | POLLOUT, 0);
	T(close(t->fd));
}

static void reuse(struct t *t)
{
	struct sockaddr_storage sa;
	int port, on = 1, a = t_socket(t), b = t_socket(t), c;
	socklen_t len = t_address(t, 0, &sa);

	T(setsockopt(a, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)));
	T(setsockopt(b, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)));
	T(bind(a, (struct sockaddr *)&sa, len));
	port = t_port(a);
	len = t_address(t, port, &sa);
	T(bind(b, (struct sockaddr *)&sa, len));
	T(listen(a, 5));
	T(listen(b, 5));
	c = t_socket(t);
	T(bind(c, (struct sockaddr *)&sa, len));
	for (int i = 0; i < 8; i++) {
		struct pollfd p[2] = {{a, POLLIN, 0}, {b, POLLIN, 0}};
		int fd = t_connect(t, port), peer;

		poll(p, 2, 1000);
		peer = accept(p[0].revents ? a : b, NULL, NULL);
		warm_pair(t, fd, peer);
		talk(t, fd, peer);
		close(fd);
		close(peer);
	}
}

const struct t_case t_connect_cases[] = {
	{"connect.dead", dead, NULL, T_SOLO | T_RAW | T_COLD | T_FAMILIES, NULL},
	{"connect.dead_nonblock", dead_nonblock, NULL, T_SOLO | T_RAW | T_COLD, NULL},
	{"connect.nonblock", nonblock, NULL, T_SOLO | T_RAW | T_FAMILIES, NULL},
	{"connect.bad", bad, NULL, T_SOLO | T_RAW | T_COLD, NULL},
	{"connect.self", self, NULL, T_SOLO | T_RAW | T_TCP_OK, "one end claims both"},
	{"connect.backlog", backlog, NULL, T_SOLO | T_RAW, NULL},
	{"connect.data_before_accept", data_before_accept_a, data_before_accept_b, T_RAW, NULL},
	{"connect.closed_before_accept", closed_before_accept, NULL, T_SOLO | T_RAW | T_COLD, NULL},
	{"connect.addresses", addresses, NULL, T_SOLO | T_RAW, NULL},
	{"connect.peer_address", peer_address, NULL, T_SOLO | T_RAW | T_FAMILIES, NULL},
	{"connect.many", many_a, many_b, T_RAW | T_TCP_OK, "connections may be too short"},
	{"connect.again", again, NULL, T_SOLO | T_RAW, NULL},
	{"connect.listener_shutdown", listener_shutdown, NULL, T_SOLO | T_RAW | T_COLD, NULL},
	{"connect.reuse", reuse, NULL, T_SOLO | T_RAW, NULL},
	{NULL, NULL, NULL, 0, NULL},
};
