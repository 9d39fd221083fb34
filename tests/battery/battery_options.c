/* SPDX-License-Identifier: MIT */
/* Options, flags and descriptor numbers: what is set is what one gets. */
#include "battery.h"

static long get(int fd, int level, int option)
{
	int value = -1;
	socklen_t len = sizeof(value);

	return getsockopt(fd, level, option, &value, &len) ? -1 : value;
}

static int set(int fd, int level, int option, int value)
{
	return setsockopt(fd, level, option, &value, sizeof(value));
}

static void exchange(struct t *t)
{
	char buf[100];

	T(write(t->fd, "there", 5));
	TD(buf, read(t->peer, buf, 100));
	T(write(t->peer, "back", 4));
	TD(buf, read(t->fd, buf, 100));
}

static void plain(struct t *t)
{
	T(get(t->fd, IPPROTO_TCP, TCP_NODELAY));
	T(set(t->fd, IPPROTO_TCP, TCP_NODELAY, 1));
	T(get(t->fd, IPPROTO_TCP, TCP_NODELAY));
	T(set(t->fd, SOL_SOCKET, SO_KEEPALIVE, 1));
	T(get(t->fd, SOL_SOCKET, SO_KEEPALIVE));
	T(set(t->fd, IPPROTO_TCP, TCP_KEEPIDLE, 33));
	T(get(t->fd, IPPROTO_TCP, TCP_KEEPIDLE));
	T(set(t->fd, IPPROTO_TCP, TCP_KEEPINTVL, 7));
	T(get(t->fd, IPPROTO_TCP, TCP_KEEPINTVL));
	T(set(t->fd, IPPROTO_TCP, TCP_KEEPCNT, 5));
	T(get(t->fd, IPPROTO_TCP, TCP_KEEPCNT));
	T(set(t->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 12345));
	T(get(t->fd, IPPROTO_TCP, TCP_USER_TIMEOUT));
	T(set(t->fd, IPPROTO_TCP, TCP_QUICKACK, 1));
	T(set(t->fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 16384));
	T(get(t->fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT));
	T(set(t->fd, SOL_SOCKET, SO_REUSEADDR, 1));
	T(get(t->fd, SOL_SOCKET, SO_REUSEADDR));
	T(set(t->fd, SOL_SOCKET, SO_PRIORITY, 3));
	T(get(t->fd, SOL_SOCKET, SO_PRIORITY));
	exchange(t);
}

static void buffers(struct t *t)
{
	T(set(t->fd, SOL_SOCKET, SO_SNDBUF, 50000));
	T(get(t->fd, SOL_SOCKET, SO_SNDBUF));
	T(set(t->fd, SOL_SOCKET, SO_RCVBUF, 60000));
	T(get(t->fd, SOL_SOCKET, SO_RCVBUF));
	T(set(t->fd, SOL_SOCKET, SO_SNDBUF, 1));
	T(get(t->fd, SOL_SOCKET, SO_SNDBUF));
	T(set(t->peer, SOL_SOCKET, SO_RCVBUF, 1));
	T(get(t->peer, SOL_SOCKET, SO_RCVBUF));
	exchange(t);
}

/* A small buffer does not keep a large write from being whole. */
static void small_buffers_a(struct t *t)
{
	T(set(t->fd, SOL_SOCKET, SO_SNDBUF, 5000));
	t_send_all(t, t->fd, 300000, 100000, 1);
	t_sync(t);
}

static void small_buffers_b(struct t *t)
{
	T(set(t->fd, SOL_SOCKET, SO_RCVBUF, 5000));
	t_recv_all(t, t->fd, 300000, 10000);
	t_sync(t);
}

static void cork_a(struct t *t)
{
	T(set(t->fd, IPPROTO_TCP, TCP_CORK, 1));
	T(get(t->fd, IPPROTO_TCP, TCP_CORK));
	T(write(t->fd, "part one,", 9));
	T(write(t->fd, "part two", 8));
	T(set(t->fd, IPPROTO_TCP, TCP_CORK, 0));
	T(get(t->fd, IPPROTO_TCP, TCP_CORK));
	t_sync(t);
	T(set(t->fd, IPPROTO_TCP, TCP_CORK, 1));
	T(write(t->fd, "the cork goes with the end", 26));
	T(close(t->fd));
}

static void cork_b(struct t *t)
{
	char buf[100];

	t_sync(t);
	TD(buf, recv(t->fd, buf, 17, MSG_WAITALL));
	TD(buf, recv(t->fd, buf, 26, MSG_WAITALL));
	T(read(t->fd, buf, 100));
}

static void kinds(struct t *t)
{
	int port, listener = t_listen(t, &port);
	struct stat st;
	char text[16] = "";
	socklen_t len = sizeof(text);

	T(get(t->fd, SOL_SOCKET, SO_TYPE) == SOCK_STREAM);
	T(get(t->fd, SOL_SOCKET, SO_DOMAIN) == t->family);
	T(get(t->fd, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_TCP);
	T(get(t->fd, SOL_SOCKET, SO_ACCEPTCONN));
	T(get(listener, SOL_SOCKET, SO_ACCEPTCONN));
	T(get(t->fd, SOL_SOCKET, SO_ERROR));
	T(get(t->fd, IPPROTO_TCP, TCP_MAXSEG) > 500);
	T(getsockopt(t->fd, IPPROTO_TCP, TCP_CONGESTION, text, &len));
	t_log(t, "congestion control has a name: %d", text[0] != 0);
	T(fstat(t->fd, &st));
	t_log(t, "a socket: %d", S_ISSOCK(st.st_mode));
	T(isatty(t->fd));
	t_log(t, "incoming %d", get(t->fd, SOL_SOCKET, SO_INCOMING_CPU) >= 0);
}

static void tcp_info(struct t *t)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);

	memset(&info, 0, sizeof(info));
	T(getsockopt(t->fd, IPPROTO_TCP, TCP_INFO, &info, &len));
	t_log(t, "state %d", info.tcpi_state);
	T(shutdown(t->fd, SHUT_WR));
	/* A kernel may take its time to acknowledge the end. */
	for (int i = 0; i < 100 && info.tcpi_state != TCP_FIN_WAIT2; i++) {
		usleep(10000);
		getsockopt(t->fd, IPPROTO_TCP, TCP_INFO, &info, &len);
	}
	t_log(t, "state %d", info.tcpi_state);
	len = sizeof(info);
	T(getsockopt(t->peer, IPPROTO_TCP, TCP_INFO, &info, &len));
	t_log(t, "state %d", info.tcpi_state);
}

static void refused(struct t *t)
{
	int value = 1;
	socklen_t len = sizeof(value);

	T(setsockopt(t->fd, IPPROTO_TCP, 9999, &value, sizeof(value)));
	T(getsockopt(t->fd, IPPROTO_TCP, 9999, &value, &len));
	T(setsockopt(t->fd, 9999, 1, &value, sizeof(value)));
	T(setsockopt(t->fd, SOL_SOCKET, SO_KEEPALIVE, &value, 1));
	T(setsockopt(t->fd, SOL_SOCKET, SO_KEEPALIVE, (void *)8, sizeof(value)));
	T(setsockopt(t->fd, SOL_SOCKET, SO_TYPE, &value, sizeof(value)));
	T(setsockopt(t->fd, IPPROTO_TCP, TCP_KEEPIDLE, &(int){-1}, sizeof(int)));
	T(setsockopt(t->fd, SOL_SOCKET, SO_RCVTIMEO, &value, sizeof(value)));
	len = 2;
	T(getsockopt(t->fd, SOL_SOCKET, SO_TYPE, &value, &len));
	t_log(t, "length %u", len);
	T(getsockopt(t->fd, SOL_SOCKET, SO_TYPE, &value, NULL));
	T(getsockopt(t->fd, SOL_SOCKET, SO_TYPE, (void *)8, &(socklen_t){4}));
	T(getsockopt(-1, SOL_SOCKET, SO_TYPE, &value, &len));
	T(ioctl(t->fd, 0x5401 /* TCGETS */, &value));
	exchange(t);
}

/* --- flags of descriptors ---------------------------------------------------------------------- */

static void flags(struct t *t)
{
	int on = 1, off = 0, other;
	char buf[8];

	T(fcntl(t->fd, F_GETFL));
	T(fcntl(t->fd, F_SETFL, O_NONBLOCK));
	T(fcntl(t->fd, F_GETFL));
	T(read(t->fd, buf, 8));
	other = dup(t->fd);
	T(fcntl(other, F_SETFL, 0)); /* of the open file: for both */
	T(fcntl(t->fd, F_GETFL));
	T(ioctl(t->fd, FIONBIO, &on));
	T(fcntl(other, F_GETFL));
	T(read(other, buf, 8));
	T(ioctl(other, FIONBIO, &off));
	T(fcntl(t->fd, F_GETFD));
	T(fcntl(t->fd, F_SETFD, FD_CLOEXEC)); /* of the descriptor: for one */
	T(fcntl(t->fd, F_GETFD));
	T(fcntl(other, F_GETFD));
	T(ioctl(other, FIOCLEX));
	T(fcntl(other, F_GETFD));
	T(ioctl(other, FIONCLEX));
	T(fcntl(other, F_GETFD));
	T(fcntl(other, F_GETOWN));
	T(fcntl(t->fd, 9999));
	T(fcntl(-1, F_GETFL));
	close(other);
	exchange(t);
}

static void accepted_flags(struct t *t)
{
	int port, listener = t_listen(t, &port), client[3], got;

	t_nonblock(listener, true);
	T(accept(listener, NULL, NULL));
	T(set(listener, IPPROTO_TCP, TCP_NODELAY, 1));
	T(set(listener, SOL_SOCKET, SO_KEEPALIVE, 1));
	for (int i = 0; i < 3; i++)
		client[i] = t_connect(t, port);
	t_poll(t, listener, POLLIN, 1000);
	got = accept(listener, NULL, NULL);
	t_log(t, "flags %x %x", fcntl(got, F_GETFL), fcntl(got, F_GETFD));
	t_log(t, "options %ld %ld", get(got, IPPROTO_TCP, TCP_NODELAY),
	      get(got, SOL_SOCKET, SO_KEEPALIVE));
	close(got);
	got = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
	t_log(t, "flags %x %x", fcntl(got, F_GETFL), fcntl(got, F_GETFD));
	close(got);
	got = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	t_log(t, "flags %x %x", fcntl(got, F_GETFL), fcntl(got, F_GETFD));
	T(accept4(listener, NULL, NULL, 0x40000000));
	T(accept4(t->fd, NULL, NULL, 0));
	T(accept(-1, NULL, NULL));
	close(got);
	for (int i = 0; i < 3; i++)
		close(client[i]);
	got = socket(t->family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	t_log(t, "flags %x %x", fcntl(got, F_GETFL), fcntl(got, F_GETFD));
}

/* --- numbers ----------------------------------------------------------------------------------- */

/* The lowest free number, found by the kernel itself. */
static int lowest(void)
{
	int fd = open("/dev/null", O_RDONLY);

	close(fd);
	return fd;
}

static void numbers(struct t *t)
{
	int port, listener, free1 = lowest(), fd, gap;

	fd = socket(t->family, SOCK_STREAM, 0);
	t_log(t, "socket: lowest %d", fd == free1);
	close(fd);
	listener = t_listen(t, &port);
	free1 = lowest();
	fd = t_connect(t, port);
	t_log(t, "connect: lowest %d", fd == free1);
	free1 = lowest();
	gap = accept(listener, NULL, NULL);
	t_log(t, "accept: lowest %d", gap == free1);
	free1 = lowest();
	t_log(t, "dup: lowest %d", dup(t->fd) == free1);
	close(fd);
	t_log(t, "after close: lowest %d", dup(gap) == fd);
	t_log(t, "F_DUPFD: %d", fcntl(t->fd, F_DUPFD, 100) == 100);
	t_log(t, "F_DUPFD: %d", fcntl(t->fd, F_DUPFD, 100) == 101);
	t_log(t, "F_DUPFD_CLOEXEC: %d", fcntl(t->fd, F_DUPFD_CLOEXEC, 100) == 102);
	T(fcntl(102, F_GETFD));
	T(fcntl(t->fd, F_DUPFD, 1 << 30));
	free1 = lowest();
	t_log(t, "pipe: lowest %d", pipe((int[2]){0, 0}) == 0 && lowest() == free1 + 2);
	exchange(t);
}

static void dups(struct t *t)
{
	int a = dup(t->fd), b;
	char buf[100];

	T(write(a, "by dup", 6));
	TD(buf, read(t->peer, buf, 100));
	T(dup2(t->fd, 150));
	T(write(150, "by dup2", 7));
	TD(buf, read(t->peer, buf, 100));
	T(dup3(t->fd, 151, O_CLOEXEC));
	T(fcntl(151, F_GETFD));
	T(write(151, "by dup3", 7));
	TD(buf, read(t->peer, buf, 100));
	T(dup3(151, 151, 0));
	T(dup2(151, 151));
	T(dup2(-1, 151));
	T(dup2(t->fd, -1));
	T(dup2(t->fd, 1 << 30));
	T(dup3(t->fd, 152, 0x5));
	b = open("/dev/null", O_RDWR);
	T(dup2(b, 150)); /* over one of the socket's */
	T(write(150, "to nowhere", 10));
	T(close(t->fd));
	T(close(151));
	T(write(a, "the last one", 12));
	TD(buf, read(t->peer, buf, 100));
	T(dup2(b, a)); /* the last descriptor of the connection goes */
	T(read(t->peer, buf, 100));
	T(dup2(t->peer, 0)); /* standard input becomes the other end */
	T(write(0, "x", 1));
}

/* dup2 puts another connection in the place of one. */
static void dup_over(struct t *t)
{
	int fd2, peer2;
	char buf[100];

	t_open_pair(t, &fd2, &peer2);
	T(write(t->fd, "first", 5));
	T(write(fd2, "second", 6));
	t_log(t, "dup2: %d", dup2(peer2, t->peer) == t->peer);
	TD(buf, read(t->peer, buf, 100));
	T(write(t->peer, "to second", 9));
	TD(buf, read(fd2, buf, 100));
	t_settle();
	T(recv(t->fd, buf, 100, MSG_DONTWAIT)); /* closed with something unread */
	T(close(peer2));
	T(write(t->peer, "still", 5));
	TD(buf, read(fd2, buf, 100));
}

/* Small buffers bound what a sender may put before it must wait. */
static void small_buffers(struct t *t)
{
	int n = 4096;

	setsockopt(t->fd, SOL_SOCKET, SO_SNDBUF, &n, sizeof(n));
	setsockopt(t->fd, SOL_SOCKET, SO_RCVBUF, &n, sizeof(n));
}

static void buffers_a(struct t *t)
{
	char *buf = calloc(1, 1u << 20);
	size_t sent = 0;
	ssize_t r;

	small_buffers(t);
	t_sync(t);
	while ((r = send(t->fd, buf, 1u << 20, MSG_DONTWAIT)) > 0)
		sent += (size_t)r;
	t_log(t, "%s before %s", sent < 65536 ? "less than 64 KiB" : "much", t_errno(errno));
	t_poll(t, t->fd, POLLOUT, 0);
	t_tell(t, (int)sent);
	t_poll(t, t->fd, POLLOUT, 5000);
	t_send_all(t, t->fd, 3000000, 50000, 5);
	t_sync(t);
	free(buf);
}

static void buffers_b(struct t *t)
{
	char buf[1000];
	int first;

	small_buffers(t);
	t_sync(t);
	first = t_hear(t);
	while (first > 0) {
		ssize_t r = read(t->fd, buf, first < 1000 ? (size_t)first : 1000);

		if (r <= 0)
			break;
		first -= (int)r;
	}
	t_recv_all(t, t->fd, 3000000, 1000);
	t_sync(t);
}

const struct t_case t_options_cases[] = {
	{"options.plain", plain, NULL, T_SOLO | T_FAMILIES, NULL},
	{"options.buffers", buffers, NULL, T_SOLO, NULL},
	{"options.small_buffers", small_buffers_a, small_buffers_b, 0, NULL},
	{"options.cork", cork_a, cork_b, 0, NULL},
	{"options.kinds", kinds, NULL, T_SOLO | T_FAMILIES, NULL},
	{"options.tcp_info", tcp_info, NULL, T_SOLO, NULL},
	{"options.refused", refused, NULL, T_SOLO, NULL},
	{"options.flags", flags, NULL, T_SOLO, NULL},
	{"options.accepted_flags", accepted_flags, NULL, T_SOLO, NULL},
	{"options.numbers", numbers, NULL, T_SOLO, NULL},
	{"options.dups", dups, NULL, T_SOLO, NULL},
	{"options.dup_over", dup_over, NULL, T_SOLO, NULL},
	{"options.small_buffers", buffers_a, buffers_b, T_FAMILIES, NULL},
	{NULL, NULL, NULL, 0, NULL},
};
