/* SPDX-License-Identifier: MIT */
/* Peers that die, or leave without a word. */
#include "battery.h"

static void after_death(struct t *t)
{
	char buf[100];

	t_poll(t, t->fd, POLLIN | POLLOUT | POLLRDHUP, 0);
	TD(buf, recv(t->fd, buf, 100, 0));
	TD(buf, recv(t->fd, buf, 100, 0));
	T(send(t->fd, "1", 1, MSG_NOSIGNAL));
	t_settle();
	T(send(t->fd, "2", 1, MSG_NOSIGNAL));
	t_poll(t, t->fd, POLLIN | POLLOUT | POLLRDHUP, 0);
}

static void forever(void)
{
	for (;;)
		pause();
}

static void idle_a(struct t *t)
{
	t_sync(t);
	t_kill_peer(t);
	after_death(t);
}

static void idle_b(struct t *t)
{
	t_sync(t);
	forever();
}

static void data_b(struct t *t)
{
	T(write(t->fd, "my last words", 13));
	t_sync(t);
	forever();
}

static void much_data_a(struct t *t)
{
	t_sync(t);
	t_kill_peer(t);
	t_recv_all(t, t->fd, 60000, 7000);
	after_death(t);
}

static void much_data_b(struct t *t)
{
	t_send_all(t, t->fd, 60000, 3000, 1);
	t_sync(t);
	forever();
}

static void unread_a(struct t *t)
{
	T(write(t->fd, "nobody reads this", 17));
	idle_a(t);
}

static void unread_b(struct t *t)
{
	t_poll(t, t->fd, POLLIN, 1000);
	idle_b(t);
}

static void in_read_b(struct t *t)
{
	char buf[100];

	t_sync(t);
	T(read(t->fd, buf, 100));
}

static void in_read_a(struct t *t)
{
	t_sync(t);
	t_settle();
	t_kill_peer(t);
	after_death(t);
}

/* The peer is in the middle of a write that will never end. */
static void in_write_a(struct t *t)
{
	t_sync(t);
	t_nap_ms(60);
	t_kill_peer(t);
	t_recv_pattern(t, t->fd, 2);
}

static void in_write_b(struct t *t)
{
	t_sync(t);
	t_send_all(t, t->fd, 1u << 30, 10000, 2);
}

/* The peer has shut down its sending before it dies; what was sent to it is read, or is not. */
static void half_b(struct t *t)
{
	T(shutdown(t->fd, SHUT_WR));
	idle_b(t);
}

static void half_data_b(struct t *t)
{
	T(write(t->fd, "and no more", 11));
	half_b(t);
}

static void half_unread_b(struct t *t)
{
	t_poll(t, t->fd, POLLIN, 1000);
	half_b(t);
}

static void half_read_a(struct t *t)
{
	T(write(t->fd, "somebody reads this", 19));
	idle_a(t);
}

static void half_read_b(struct t *t)
{
	char buf[100];

	TD(buf, recv(t->fd, buf, 19, MSG_WAITALL));
	half_b(t);
}

static void *killer(void *arg)
{
	struct t *t = arg;

	t_nap_ms(60);
	kill(t->peer_pid, SIGKILL);
	return NULL;
}

/* We are in a write, in a read, in a poll, in an epoll_wait when the peer dies. */
static void while_writing_a(struct t *t)
{
	pthread_t thread = t_thread(killer, t);
	char *buf = calloc(1, 64u << 20);
	ssize_t r;

	t_sync(t);
	r = send(t->fd, buf, 64u << 20, MSG_NOSIGNAL);
	t_log(t, "send -> %s", r > 0 ? "a part" : t_errno(errno));
	T(send(t->fd, buf, 1, MSG_NOSIGNAL));
	T(send(t->fd, buf, 1, MSG_NOSIGNAL));
	T(recv(t->fd, buf, 1, 0));
	t_join(thread);
	free(buf);
}

/*
 * The peer dies with both ways full, ours blocked, and its own last bytes unread: its end, behind
 * them, cannot come through, but the reset can.
 */
static void both_full_b(struct t *t)
{
	char *buf = calloc(1, 1u << 20);
	size_t got = 0;

	while (send(t->fd, buf, 1u << 20, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		;
	t_sync(t);
	/* Some is read, so that what is left of a's is where it goes in the end. */
	while (got < (8u << 20)) {
		ssize_t r = recv(t->fd, buf, 1u << 20, 0);

		if (r <= 0)
			break;
		got += (size_t)r;
		while (send(t->fd, buf, 1u << 20, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
			;
	}
	forever();
}

static void *late_killer(void *arg)
{
	struct t *t = arg;

	t_nap_ms(300);
	kill(t->peer_pid, SIGKILL);
	return NULL;
}

static void both_full(struct t *t, bool by_poll)
{
	char *buf = calloc(1, 64u << 20);
	size_t done = 0;
	pthread_t thread;
	ssize_t r = -1;

	t_sync(t);
	thread = t_thread(late_killer, t);
	do {
		struct pollfd p = {t->fd, POLLOUT, 0};

		if (by_poll && poll(&p, 1, 5000) != 1)
			break;
		r = send(t->fd, buf, 1u << 20, MSG_NOSIGNAL | (by_poll ? MSG_DONTWAIT : 0));
		done += r > 0 ? (size_t)r : 0;
	} while (done < (64u << 20) && (r > 0 || errno == EAGAIN));
	t_log(t, "send -> %s", r > 0 ? "sent" : t_errno(errno));
	T(send(t->fd, buf, 1, MSG_NOSIGNAL));
	t_join(thread);
	free(buf);
}

static void both_full_a(struct t *t)
{
	both_full(t, false);
}

static void both_full_polled_a(struct t *t)
{
	both_full(t, true);
}

static void while_reading_a(struct t *t)
{
	pthread_t thread = t_thread(killer, t);
	char buf[8];

	t_sync(t);
	T(read(t->fd, buf, 8));
	T(read(t->fd, buf, 8));
	t_join(thread);
}

static void while_polling_a(struct t *t)
{
	pthread_t thread = t_thread(killer, t);

	t_sync(t);
	t_poll(t, t->fd, POLLIN | POLLRDHUP, 5000);
	t_join(thread);
	t_settle();
	after_death(t);
}

static void epoll_once(struct t *t, unsigned int events)
{
	struct epoll_event e = {events, {.u64 = 1}};
	int ep = epoll_create1(0), n;

	epoll_ctl(ep, EPOLL_CTL_ADD, t->fd, &e);
	n = epoll_wait(ep, &e, 1, 5000);
	t_log(t, "epoll_wait(%s) -> %d %s", t_events(events & 0x7fffffff), n, t_events(e.events));
	close(ep);
}

static void while_in_epoll_a(struct t *t)
{
	pthread_t thread = t_thread(killer, t);

	t_sync(t);
	epoll_once(t, EPOLLIN | EPOLLRDHUP);
	t_join(thread);
	t_settle();
	after_death(t);
}

static void while_in_epoll_edge_a(struct t *t)
{
	pthread_t thread = t_thread(killer, t);

	t_sync(t);
	epoll_once(t, EPOLLIN | EPOLLRDHUP | EPOLLET);
	t_join(thread);
	t_settle();
	epoll_once(t, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
}

static void unread_while_polling_a(struct t *t)
{
	pthread_t thread;

	T(write(t->fd, "unread", 6));
	t_sync(t);
	thread = t_thread(killer, t);
	t_poll(t, t->fd, POLLIN | POLLRDHUP, 5000);
	t_join(thread);
	t_settle();
	after_death(t);
}

/* A child still holds the connection: the death of one holder is not the end. */
static void child_left_a(struct t *t)
{
	char buf[100];

	t_sync(t);
	t_kill_peer(t);
	t_poll(t, t->fd, POLLIN | POLLRDHUP, 20);
	T(write(t->fd, "child?", 6));
	TD(buf, read(t->fd, buf, 100));
	T(read(t->fd, buf, 100));
}

static void child_left_b(struct t *t)
{
	char buf[100];

	if (fork() == 0) {
		close(t->sync_fd);
		t->role = 'c';
		TD(buf, read(t->fd, buf, 100));
		T(write(t->fd, "here", 4));
		_exit(0);
	}
	idle_b(t);
}

/* --- leaving without close --------------------------------------------------------------------- */

static void exit_a(struct t *t)
{
	t_sync(t);
	t_recv_all(t, t->fd, 60000, 7000);
	t_settle();
	after_death(t);
}

static void exit_b(struct t *t)
{
	t_send_all(t, t->fd, 60000, 3000, 1);
	t_sync(t);
	exit(0);
}

static void fast_exit_b(struct t *t)
{
	t_send_all(t, t->fd, 60000, 3000, 1);
	t_sync(t);
	_exit(0);
}

static void abort_b(struct t *t)
{
	t_send_all(t, t->fd, 60000, 3000, 1);
	t_sync(t);
	abort();
}

static void exit_at_once_a(struct t *t)
{
	t_recv_all(t, t->fd, 3000, 7000);
	t_recv_all(t, t->fd, 1, 1);
}

static void exit_at_once_b(struct t *t)
{
	t_send_all(t, t->fd, 3000, 3000, 1);
	_exit(0);
}

static void kill_self_b(struct t *t)
{
	t_send_all(t, t->fd, 3000, 3000, 1);
	kill(getpid(), SIGKILL);
}

static void stopped_a(struct t *t)
{
	char buf[8];

	t_sync(t);
	kill(t->peer_pid, SIGSTOP);
	t_settle();
	T(write(t->fd, "wake up", 7));
	T(recv(t->fd, buf, 8, MSG_DONTWAIT));
	kill(t->peer_pid, SIGCONT);
	TD(buf, read(t->fd, buf, 8));
}

static void stopped_b(struct t *t)
{
	char buf[100];

	t_sync(t);
	TD(buf, read(t->fd, buf, 100));
	T(write(t->fd, "awake", 5));
}

const struct t_case t_kill_cases[] = {
	{"kill.idle", idle_a, idle_b, T_NO_THREAD | T_FAMILIES, NULL},
	{"kill.data", idle_a, data_b, T_NO_THREAD, NULL},
	{"kill.much_data", much_data_a, much_data_b, T_NO_THREAD, NULL},
	{"kill.unread", unread_a, unread_b, T_NO_THREAD, NULL},
	{"kill.half", idle_a, half_b, T_NO_THREAD, NULL},
	{"kill.half_data", idle_a, half_data_b, T_NO_THREAD, NULL},
	{"kill.half_unread", unread_a, half_unread_b, T_NO_THREAD, NULL},
	{"kill.half_read", half_read_a, half_read_b, T_NO_THREAD, NULL},
	{"kill.half_while_writing", while_writing_a, half_b, T_NO_THREAD, NULL},
	{"kill.half_while_polling", while_polling_a, half_b, T_NO_THREAD, NULL},
	{"kill.in_read", in_read_a, in_read_b, T_NO_THREAD, NULL},
	{"kill.in_write", in_write_a, in_write_b, T_NO_THREAD, NULL},
	{"kill.while_writing", while_writing_a, idle_b, T_NO_THREAD, NULL},
	{"kill.both_full", both_full_a, both_full_b, T_NO_THREAD, NULL},
	{"kill.both_full_polled", both_full_polled_a, both_full_b, T_NO_THREAD, NULL},
	{"kill.while_reading", while_reading_a, idle_b, T_NO_THREAD, NULL},
	{"kill.while_polling", while_polling_a, idle_b, T_NO_THREAD, NULL},
	{"kill.while_in_epoll", while_in_epoll_a, idle_b, T_NO_THREAD, NULL},
	{"kill.while_in_epoll_edge", while_in_epoll_edge_a, idle_b, T_NO_THREAD, NULL},
	{"kill.unread_while_polling", unread_while_polling_a, unread_b, T_NO_THREAD, NULL},
	{"kill.child_left", child_left_a, child_left_b, T_NO_THREAD, NULL},
	{"kill.exit", exit_a, exit_b, T_NO_THREAD, NULL},
	{"kill.fast_exit", exit_a, fast_exit_b, T_NO_THREAD, NULL},
	{"kill.abort", exit_a, abort_b, T_NO_THREAD, NULL},
	{"kill.exit_at_once", exit_at_once_a, exit_at_once_b, T_NO_THREAD, NULL},
	{"kill.self", exit_at_once_a, kill_self_b, T_NO_THREAD, NULL},
	{"kill.stopped", stopped_a, stopped_b, T_NO_THREAD, NULL},
	{NULL, NULL, NULL, 0, NULL},
};
