/* SPDX-License-Identifier: MIT */
/* The end of a connection: by close, by shutdown, by reset, and what comes after it. */
#include "battery.h"

#include <sys/syscall.h>

/* Everything that one may ask of a connection whose peer did something to it. */
static void look(struct t *t, int fd)
{
	char buf[100];

	t_poll(t, fd, POLLIN | POLLOUT | POLLRDHUP | POLLPRI, 0);
	TD(buf, recv(fd, buf, 100, MSG_DONTWAIT));
	TD(buf, recv(fd, buf, 100, MSG_DONTWAIT));
	TD(buf, recv(fd, buf, 100, MSG_DONTWAIT));
	t_poll(t, fd, POLLIN | POLLOUT | POLLRDHUP | POLLPRI, 0);
	t_poll(t, fd, 0, 0);
}

static void write_twice(struct t *t, int fd)
{
	T(send(fd, "1", 1, 0));
	t_sigpipes(t);
	t_settle();
	T(send(fd, "2", 1, 0));
	t_sigpipes(t);
	T(send(fd, "3", 1, MSG_NOSIGNAL));
	T(write(fd, "4", 1));
	t_sigpipes(t);
}

static void synced_look(struct t *t)
{
	t_sync(t);
	t_settle();
	look(t, t->fd);
}

static void close_b(struct t *t)
{
	T(close(t->fd));
	t_sync(t);
}

static void data_close_b(struct t *t)
{
	T(write(t->fd, "bye", 3));
	T(close(t->fd));
	t_sync(t);
}

static void eof_blocking_a(struct t *t)
{
	char buf[100];

	TD(buf, recv(t->fd, buf, 4, MSG_WAITALL));
	T(read(t->fd, buf, 100));
	T(read(t->fd, buf, 100));
	t_sync(t);
}

/* --- half-close -------------------------------------------------------------------------------- */

static void half_a(struct t *t)
{
	char buf[100];

	T(write(t->fd, "last", 4));
	T(shutdown(t->fd, SHUT_WR));
	t_poll(t, t->fd, POLLIN | POLLOUT | POLLRDHUP, 0);
	T(write(t->fd, "no", 2));
	t_sigpipes(t);
	T(send(t->fd, "no", 2, MSG_NOSIGNAL));
	t_sync(t);
	t_sync(t);
	TD(buf, read(t->fd, buf, 100));
	t_sync(t);
	t_recv_all(t, t->fd, 100000, 5000);
	T(read(t->fd, buf, 100));
	t_sync(t);
	t_poll(t, t->fd, POLLIN | POLLOUT | POLLRDHUP, 0);
}

static void half_b(struct t *t)
{
	char buf[100];

	t_sync(t);
	t_settle();
	t_poll(t, t->fd, POLLIN | POLLOUT | POLLRDHUP, 0);
	TD(buf, read(t->fd, buf, 100));
	T(read(t->fd, buf, 100));
	T(read(t->fd, buf, 100));
	T(write(t->fd, "still here", 10));
	t_sync(t);
	t_sync(t);
	t_send_all(t, t->fd, 100000, 7000, 1);
	T(shutdown(t->fd, SHUT_WR));
	t_settle();
	t_poll(t, t->fd, POLLIN | POLLOUT | POLLRDHUP, 0);
	t_sync(t);
}

/* The same, begun by the other end. */
static void half_other_a(struct t *t)
{
	half_b(t);
}

static void half_other_b(struct t *t)
{
	half_a(t);
}

/* After a half-close the other way carries much. */
static void half_bulk_a(struct t *t)
{
	T(write(t->fd, "request", 7));
	T(shutdown(t->fd, SHUT_WR));
	T(shutdown(t->fd, SHUT_WR));
	t_recv_all(t, t->fd, 20u << 20, 100000);
	t_poll(t, t->fd, POLLIN | POLLOUT | POLLRDHUP, 0);
	t_sync(t);
	t_recv_all(t, t->fd, 1, 1);
	t_poll(t, t->fd, POLLIN | POLLOUT | POLLRDHUP, 0);
}

static void half_bulk_b(struct t *t)
{
	char buf[100];

	TD(buf, recv(t->fd, buf, 7, MSG_WAITALL));
	T(read(t->fd, buf, 100));
	t_send_all(t, t->fd, 20u << 20, 64000, 3);
	t_poll(t, t->fd, POLLIN | POLLRDHUP, 0);
	t_sync(t);
	T(close(t->fd));
}

/*
 * The end must not be seen before the bytes: who gets POLLHUP and a read that does not fill its
 * buffer may stop there, as libuv does. The other side writes until nothing goes any more, shuts
 * down, and only then is read.
 */
static void behind_backlog_a(struct t *t)
{
	char *buf = malloc(65536);
	uint64_t got = 0, total;
	bool wrong = false;
	ssize_t r = 0;

	T(shutdown(t->fd, SHUT_WR));
	t_sync(t);
	total = (uint64_t)(unsigned)t_hear(t);
	t_nonblock(t->fd, true);
	for (;;) {
		struct pollfd p = {t->fd, POLLIN | POLLRDHUP, 0};

		if (poll(&p, 1, 5000) != 1)
			break;
		r = read(t->fd, buf, 65536);
		if (r > 0) {
			wrong = wrong || !t_same(buf, (size_t)r, got, 3);
			got += (uint64_t)r;
		}
		if (r == 0 || (r < 0 && errno != EAGAIN) || (r < 65536 && (p.revents & POLLHUP)))
			break;
	}
	t_log(t, "%s, %s", got == total ? "all" : "a part", wrong ? "changed" : "as it was");
	free(buf);
}

static void behind_backlog_b(struct t *t)
{
	char *buf = malloc(16384);
	uint64_t sent = 0;
	ssize_t r;

	for (;;) {
		t_fill(buf, 16384, sent, 3);
		r = send(t->fd, buf, 16384, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (r <= 0)
			break;
		sent += (uint64_t)r;
	}
	T(shutdown(t->fd, SHUT_WR));
	t_sync(t);
	t_tell(t, (int)sent);
	free(buf);
	t_poll(t, t->fd, POLLIN | POLLRDHUP, 1000);
	t_nap_ms(100);
}

/* Closed after a half-close, with bytes of the other side read or unread. */
static void half_close(struct t *t, size_t take)
{
	char buf[100];

	t_sync(t);
	T(recv(t->fd, buf, take, MSG_WAITALL));
	T(close(t->fd));
	t_sync(t);
}

static void half_then_a(struct t *t)
{
	char buf[100];

	T(write(t->fd, "goodbye", 7));
	T(shutdown(t->fd, SHUT_WR));
	t_sync(t);
	t_sync(t);
	t_settle();
	t_poll(t, t->fd, POLLIN | POLLOUT | POLLRDHUP, 0);
	T(read(t->fd, buf, 100));
	T(read(t->fd, buf, 100));
	T(send(t->fd, "x", 1, MSG_NOSIGNAL));
	t_poll(t, t->fd, POLLIN | POLLOUT | POLLRDHUP, 0);
}

static void half_all_read_b(struct t *t)
{
	half_close(t, 7);
}

static void half_unread_b(struct t *t)
{
	half_close(t, 3);
}

/* The one that shut down closes or reads no more, while the other writes on. */
static void half_writer(struct t *t)
{
	char buf[100];
	int err = 0;
	socklen_t len = sizeof(err);

	T(write(t->fd, "for you", 7));
	t_sync(t);
	t_sync(t);
	t_settle();
	t_poll(t, t->fd, POLLIN | POLLOUT | POLLRDHUP, 0);
	T(recv(t->fd, buf, 100, MSG_DONTWAIT));
	T(getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &err, &len));
	t_log(t, "SO_ERROR %s", t_errno(err));
	T(send(t->fd, "x", 1, MSG_NOSIGNAL));
	t_settle();
	t_poll(t, t->fd, POLLIN | POLLOUT | POLLRDHUP, 0);
	T(send(t->fd, "x", 1, MSG_NOSIGNAL));
	T(recv(t->fd, buf, 100, MSG_DONTWAIT));
}

static void half_end(struct t *t, size_t take, int how)
{
	char buf[100];

	t_sync(t);
	T(recv(t->fd, buf, take, MSG_WAITALL));
	T(shutdown(t->fd, SHUT_WR));
	t_nap_ms(5);
	if (how < 0)
		T(close(t->fd));
	else
		T(shutdown(t->fd, how));
	t_sync(t);
	t_settle();
}

static void half_closed_read_b(struct t *t)
{
	half_end(t, 7, -1);
}

static void half_closed_unread_b(struct t *t)
{
	half_end(t, 3, -1);
}

static void half_rdwr_b(struct t *t)
{
	half_end(t, 7, SHUT_RDWR);
}

static void half_rd_b(struct t *t)
{
	half_end(t, 3, SHUT_RD);
}

/* Both shut down at the same moment, again and again. */
static void half_at_once(struct t *t)
{
	char buf[100];

	for (int i = 0; i < 20; i++) {
		int fd = t_open(t);

		t_sync(t);
		if (shutdown(fd, SHUT_WR) != 0 || read(fd, buf, 1) != 0)
			t_log(t, "round %d: %s", i, t_errno(errno));
		t_sync(t);
		t_settle();
		if (i % 10 == 0)
			t_poll(t, fd, POLLIN | POLLOUT | POLLRDHUP, 0);
		close(fd);
	}
}

/* Those who wait for the half-close alone. */
static void half_waiters_a(struct t *t)
{
	struct epoll_event e = {EPOLLRDHUP, {.u64 = 7}};
	int ep = epoll_create1(0), n;

	epoll_ctl(ep, EPOLL_CTL_ADD, t->fd, &e);
	t_sync(t);
	t_poll(t, t->fd, POLLRDHUP, 5000);
	n = epoll_wait(ep, &e, 1, 5000);
	t_log(t, "epoll_wait -> %d %s", n, t_events(n > 0 ? e.events : 0));
	e.events = EPOLLIN | EPOLLRDHUP | EPOLLET;
	T(epoll_ctl(ep, EPOLL_CTL_MOD, t->fd, &e));
	n = epoll_wait(ep, &e, 1, 5000);
	t_log(t, "epoll_wait -> %d %s", n, t_events(n > 0 ? e.events : 0));
	T(epoll_wait(ep, &e, 1, 20));
	T(write(t->fd, "go on", 5));
	t_sync(t);
	/* Both ways: POLLHUP needs no asking. */
	t_sync(t);
	T(shutdown(t->fd, SHUT_WR));
	t_poll(t, t->fd, 0, 5000);
	n = epoll_wait(ep, &e, 1, 5000);
	t_log(t, "epoll_wait -> %d %s", n, t_events(n > 0 ? e.events : 0));
	close(ep);
}

static void half_waiters_b(struct t *t)
{
	char buf[8];

	t_sync(t);
	t_nap_ms(20);
	T(shutdown(t->fd, SHUT_WR));
	TD(buf, read(t->fd, buf, 8));
	t_sync(t);
	t_sync(t);
	t_poll(t, t->fd, 0, 5000);
}

static void half_both(struct t *t)
{
	char buf[100];

	T(write(t->fd, "x", 1));
	T(shutdown(t->fd, SHUT_WR));
	t_sync(t);
	t_settle();
	TD(buf, read(t->fd, buf, 100));
	T(read(t->fd, buf, 100));
	t_poll(t, t->fd, POLLIN | POLLOUT | POLLRDHUP, 0);
	T(shutdown(t->fd, SHUT_WR));
	T(shutdown(t->fd, SHUT_RDWR));
	T(close(t->fd));
}

static void shut_rdwr_a(struct t *t)
{
	char buf[100];

	T(shutdown(t->fd, SHUT_RDWR));
	t_poll(t, t->fd, POLLIN | POLLOUT | POLLRDHUP, 0);
	T(read(t->fd, buf, 100));
	T(write(t->fd, "x", 1));
	t_sigpipes(t);
	t_sync(t);
	t_sync(t);
	t_poll(t, t->fd, POLLIN | POLLOUT | POLLRDHUP, 0);
}

static void shut_rdwr_b(struct t *t)
{
	t_sync(t);
	t_settle();
	look(t, t->fd);
	t_sync(t);
}

static void shut_rd_a(struct t *t)
{
	char buf[100];

	t_sync(t);
	T(shutdown(t->fd, SHUT_RD));
	t_poll(t, t->fd, POLLIN | POLLOUT | POLLRDHUP, 0);
	TD(buf, read(t->fd, buf, 100)); /* what was there stays readable */
	T(read(t->fd, buf, 100));
	t_sync(t);
	t_sync(t);
	t_settle();
	TD(buf, read(t->fd, buf, 100)); /* and what comes later does too */
	T(read(t->fd, buf, 100));
	T(write(t->fd, "back", 4));
	t_sync(t);
}

static void shut_rd_b(struct t *t)
{
	char buf[100];

	T(write(t->fd, "before", 6));
	t_sync(t);
	t_sync(t);
	t_poll(t, t->fd, POLLIN | POLLOUT | POLLRDHUP, 0);
	T(write(t->fd, "after", 5));
	t_sync(t);
	t_sync(t);
	TD(buf, read(t->fd, buf, 100));
}

static void shut_errors(struct t *t)
{
	int fd = t_socket(t);
	char buf[8];

	T(shutdown(fd, SHUT_RD));
	T(shutdown(fd, SHUT_WR));
	T(shutdown(fd, 7));
	T(recv(fd, buf, 8, MSG_DONTWAIT));
	T(send(fd, buf, 8, MSG_NOSIGNAL));
	T(shutdown(t->fd, 7));
	T(shutdown(t->fd, -1));
	T(shutdown(-1, SHUT_RD));
	T(shutdown(t->fd, SHUT_WR));
	T(shutdown(t->fd, SHUT_WR));
	T(close(t->peer));
	t_settle();
	T(shutdown(t->fd, SHUT_RD));
	T(shutdown(t->fd, SHUT_WR));
	t_poll(t, t->fd, POLLIN | POLLOUT | POLLRDHUP, 0);
}

/* --- reset ------------------------------------------------------------------------------------- */

static void unread_a(struct t *t)
{
	T(write(t->fd, "never read", 10));
	t_sync(t);
	synced_look(t);
	write_twice(t, t->fd);
}

static void unread_b(struct t *t)
{
	t_sync(t);
	t_poll(t, t->fd, POLLIN, 1000);
	T(close(t->fd));
	t_sync(t);
}

static void unread_data_b(struct t *t)
{
	char buf[4];

	t_sync(t);
	T(write(t->fd, "read this", 9));
	TD(buf, read(t->fd, buf, 3)); /* a part is read, the rest is not */
	t_settle();
	T(close(t->fd));
	t_sync(t);
}

/* Data arrives at a socket that is closed already. */
static void late_data_a(struct t *t)
{
	int err = -1;
	socklen_t len = sizeof(err);

	t_sync(t);
	t_settle();
	T(write(t->fd, "late", 4));
	t_settle();
	t_poll(t, t->fd, POLLIN | POLLOUT | POLLRDHUP, 0);
	T(getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &err, &len));
	t_log(t, "SO_ERROR %s", err ? t_errno(err) : "0");
	T(getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &err, &len));
	t_log(t, "SO_ERROR %s", err ? t_errno(err) : "0");
	look(t, t->fd);
}

static void linger0(struct t *t)
{
	struct linger l = {1, 0};

	T(setsockopt(t->fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l)));
	T(close(t->fd));
	t_sync(t);
}

static void linger0_a(struct t *t)
{
	synced_look(t);
	write_twice(t, t->fd);
}

static void linger0_data_b(struct t *t)
{
	T(write(t->fd, "then reset", 10));
	t_settle();
	linger0(t);
}

static void linger0_blocked_a(struct t *t)
{
	char buf[100];

	T(read(t->fd, buf, 100));
	T(read(t->fd, buf, 100));
	t_sync(t);
}

static void linger0_blocked_b(struct t *t)
{
	t_settle();
	linger0(t);
}

static void linger_a(struct t *t)
{
	t_recv_all(t, t->fd, 300000, 10000);
	t_recv_all(t, t->fd, 1, 1);
	t_sync(t);
}

static void linger_b(struct t *t)
{
	struct linger l = {1, 5}, got;
	socklen_t len = sizeof(got);

	T(setsockopt(t->fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l)));
	T(getsockopt(t->fd, SOL_SOCKET, SO_LINGER, &got, &len));
	t_log(t, "linger %d %d", got.l_onoff, got.l_linger);
	t_send_all(t, t->fd, 300000, 50000, 2);
	T(close(t->fd));
	t_sync(t);
}

static void so_error_a(struct t *t)
{
	int err = -1;
	socklen_t len = sizeof(err);
	char buf[8];

	t_sync(t);
	t_settle();
	T(getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &err, &len));
	t_log(t, "SO_ERROR %s", err ? t_errno(err) : "0");
	T(getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &err, &len));
	t_log(t, "SO_ERROR %s", err ? t_errno(err) : "0");
	T(recv(t->fd, buf, 8, 0)); /* the error was taken: now it is the end */
	t_poll(t, t->fd, POLLIN | POLLOUT | POLLRDHUP, 0);
}

/* --- writing to who left ----------------------------------------------------------------------- */

static void epipe_a(struct t *t)
{
	char buf[8];

	t_sync(t);
	t_settle();
	write_twice(t, t->fd);
	T(recv(t->fd, buf, 8, 0));
	t_poll(t, t->fd, POLLIN | POLLOUT | POLLRDHUP, 0);
}

static void epipe_after_read_a(struct t *t)
{
	char buf[8];

	T(read(t->fd, buf, 8));
	t_sync(t);
	T(write(t->fd, "1", 1));
	t_settle();
	T(writev(t->fd, (struct iovec[]){{buf, 1}}, 1));
	t_sigpipes(t);
	T(sendmsg(t->fd, &(struct msghdr){.msg_iov = NULL}, MSG_NOSIGNAL));
	T(read(t->fd, buf, 8));
}

static void sigpipe_ignored_a(struct t *t)
{
	signal(SIGPIPE, SIG_IGN);
	t_sync(t);
	t_settle();
	write_twice(t, t->fd);
}

/* By default SIGPIPE ends the process. */
static void sigpipe_kills_a(struct t *t)
{
	t_sync(t);
	t_wait_child(t, t->peer_pid);
	t->peer_pid = 0;
	T(close(t->fd));
}

static void sigpipe_kills_b(struct t *t)
{
	signal(SIGPIPE, SIG_DFL);
	t_sync(t);
	T(shutdown(t->fd, SHUT_WR));
	T(write(t->fd, "x", 1));
	t_log(t, "still alive");
}

/* --- the last bytes ---------------------------------------------------------------------------- */

static void last_bytes_a(struct t *t)
{
	t_sync(t);
	t_recv_all(t, t->fd, 150000, 1000);
	t_recv_all(t, t->fd, 1, 1);
}

static void last_bytes_b(struct t *t)
{
	t_nonblock(t->fd, false);
	t_send_all(t, t->fd, 8000, 1000, 3);
	t_sync(t);
	t_send_all(t, t->fd, 142000, 142000, 4);
	T(close(t->fd));
}

static void dup_a(struct t *t)
{
	char buf[100];

	t_sync(t);
	t_poll(t, t->fd, POLLIN | POLLRDHUP, 30);
	t_sync(t);
	TD(buf, read(t->fd, buf, 100));
	t_sync(t);
	T(read(t->fd, buf, 100));
}

static void dup_b(struct t *t)
{
	int other = dup(t->fd);

	T(close(t->fd)); /* no end yet */
	t_sync(t);
	t_sync(t);
	T(write(other, "by the other", 12));
	t_sync(t);
	T(close(other));
}

static void names_a(struct t *t)
{
	struct sockaddr_storage before, after;
	socklen_t len1 = sizeof(before), len2 = sizeof(after);
	char buf[8];

	memset(&before, 0, sizeof(before));
	memset(&after, 0, sizeof(after));
	T(getpeername(t->fd, (struct sockaddr *)&before, &len1));
	t_sync(t);
	t_settle();
	T(getpeername(t->fd, (struct sockaddr *)&after, &len2));
	t_log(t, "the same name: %d", !memcmp(&before, &after, sizeof(before)));
	T(read(t->fd, buf, 8));
	T(getpeername(t->fd, (struct sockaddr *)&after, &len2));
	T(write(t->fd, "x", 1));
	t_settle();
	T(getpeername(t->fd, (struct sockaddr *)&after, &len2)); /* after the reset */
	T(getsockname(t->fd, (struct sockaddr *)&after, &len2));
}

/* --- a number that is used again --------------------------------------------------------------- */

static void reuse_file(struct t *t, const char *how)
{
	char buf[16] = "";
	int fds[2];

	if (pipe(fds))
		return;
	t_log(t, "%s: same number again: %d", how, fds[0] == t->fd);
	T(write(fds[1], "pipe", 4));
	TD(buf, read(fds[0], buf, sizeof(buf)));
	close(fds[0]);
	close(fds[1]);
}

static void reuse_a(struct t *t)
{
	T(close(t->fd));
	reuse_file(t, "close");
	t_sync(t);
}

static void reuse_raw_a(struct t *t)
{
	T(syscall(SYS_close, t->fd));
	reuse_file(t, "raw close");
	t_sync(t);
}

static void reuse_range_a(struct t *t)
{
	T(close_range((unsigned int)t->fd, (unsigned int)t->fd, 0));
	reuse_file(t, "close_range");
	t_sync(t);
}

static void reuse_dup2_a(struct t *t)
{
	char buf[16];
	int fds[2];

	if (pipe(fds))
		return;
	t_log(t, "dup2 in place: %d", dup2(fds[0], t->fd) == t->fd);
	T(write(fds[1], "pipe", 4));
	TD(buf, read(t->fd, buf, sizeof(buf)));
	T(write(t->fd, "x", 1));
	t_sync(t);
}

/* The inner function of libc closes a socket that fdopen was told of. */
static void reuse_fclose_a(struct t *t)
{
	FILE *f = fdopen(t->fd, "r+");

	T(fclose(f));
	reuse_file(t, "fclose");
	t_sync(t);
}

static void reuse_b(struct t *t)
{
	char buf[16];

	T(read(t->fd, buf, sizeof(buf)));
	t_sync(t);
}

/* A connection gets the number that another one had. */
static void reuse_socket_a(struct t *t)
{
	int old = t->fd, fd;
	char buf[16];

	T(write(old, "old", 3));
	T(close(old));
	fd = t_open(t);
	t_log(t, "same number again: %d", fd == old);
	T(write(fd, "new", 3));
	TD(buf, read(fd, buf, sizeof(buf)));
}

static void reuse_socket_b(struct t *t)
{
	int old = t->fd, fd = t_open(t);
	char buf[16];

	TD(buf, read(old, buf, sizeof(buf)));
	T(read(old, buf, sizeof(buf)));
	TD(buf, read(fd, buf, sizeof(buf)));
	T(write(fd, "hi", 2));
}

const struct t_case t_close_cases[] = {
	{"close.eof", synced_look, close_b, T_FAMILIES, NULL},
	{"close.data_eof", synced_look, data_close_b, T_FAMILIES, NULL},
	{"close.eof_blocking", eof_blocking_a, data_close_b, 0, NULL},
	{"close.half", half_a, half_b, T_FAMILIES, NULL},
	{"close.half_other", half_other_a, half_other_b, 0, NULL},
	{"close.half_bulk", half_bulk_a, half_bulk_b, T_FAMILIES, NULL},
	{"close.half_bulk_other", half_bulk_b, half_bulk_a, 0, NULL},
	{"close.behind_backlog", behind_backlog_a, behind_backlog_b, T_FAMILIES, NULL},
	{"close.half_all_read", half_then_a, half_all_read_b, 0, NULL},
	{"close.half_unread", half_then_a, half_unread_b, 0, NULL},
	{"close.half_closed_read", half_writer, half_closed_read_b, 0, NULL},
	{"close.half_closed_unread", half_writer, half_closed_unread_b, 0, NULL},
	{"close.half_rdwr", half_writer, half_rdwr_b, 0, NULL},
	{"close.half_rd", half_writer, half_rd_b, 0, NULL},
	{"close.half_at_once", half_at_once, half_at_once, 0, NULL},
	{"close.half_waiters", half_waiters_a, half_waiters_b, 0, NULL},
	{"close.half_both", half_both, half_both, 0, NULL},
	{"close.shut_rdwr", shut_rdwr_a, shut_rdwr_b, 0, NULL},
	{"close.shut_rd", shut_rd_a, shut_rd_b, 0, NULL},
	{"close.shut_errors", shut_errors, NULL, T_SOLO, NULL},
	{"close.unread", unread_a, unread_b, T_FAMILIES, NULL},
	{"close.unread_data", unread_a, unread_data_b, 0, NULL},
	{"close.late_data", late_data_a, close_b, 0, NULL},
	{"close.linger0", linger0_a, linger0, 0, NULL},
	{"close.linger0_data", linger0_a, linger0_data_b, 0, NULL},
	{"close.linger0_blocked", linger0_blocked_a, linger0_blocked_b, 0, NULL},
	{"close.linger", linger_a, linger_b, 0, NULL},
	{"close.so_error", so_error_a, linger0, 0, NULL},
	{"close.epipe", epipe_a, close_b, 0, NULL},
	{"close.epipe_after_read", epipe_after_read_a, close_b, 0, NULL},
	{"close.sigpipe_ignored", sigpipe_ignored_a, close_b, T_NO_THREAD, NULL},
	{"close.sigpipe_kills", sigpipe_kills_a, sigpipe_kills_b, T_NO_THREAD, NULL},
	{"close.last_bytes", last_bytes_a, last_bytes_b, 0, NULL},
	{"close.dup", dup_a, dup_b, 0, NULL},
	{"close.names", names_a, close_b, T_FAMILIES, NULL},
	{"close.reuse", reuse_a, reuse_b, T_NO_THREAD, NULL},
	{"close.reuse_raw", reuse_raw_a, reuse_b, T_NO_THREAD, NULL},
	{"close.reuse_range", reuse_range_a, reuse_b, T_NO_THREAD, NULL},
	{"close.reuse_dup2", reuse_dup2_a, reuse_b, T_NO_THREAD, NULL},
	{"close.reuse_fclose", reuse_fclose_a, reuse_b, T_NO_THREAD, NULL},
	{"close.reuse_socket", reuse_socket_a, reuse_socket_b, T_NO_THREAD, NULL},
	{NULL, NULL, NULL, 0, NULL},
};
