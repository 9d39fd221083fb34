/* SPDX-License-Identifier: MIT */
/* poll, ppoll, select, pselect: states, sleeping and waking, company of other descriptors. */
#include "battery.h"

#define ALL (POLLIN | POLLOUT | POLLPRI | POLLRDHUP)

static void states_a(struct t *t)
{
	char buf[100];

	t_poll(t, t->fd, ALL, 0);
	t_poll(t, t->fd, POLLIN, 0);
	t_poll(t, t->fd, 0, 0);
	t_sync(t);
	t_sync(t);
	t_poll(t, t->fd, ALL, 0);
	t_poll(t, t->fd, POLLOUT, 0);
	t_poll(t, t->fd, 0, 0);
	t_poll(t, t->fd, POLLRDNORM | POLLWRNORM | POLLRDBAND | POLLWRBAND, 0);
	TD(buf, read(t->fd, buf, 2));
	t_poll(t, t->fd, ALL, 0);
	TD(buf, read(t->fd, buf, 100));
	t_poll(t, t->fd, ALL, 0);
	t_sync(t);
	t_sync(t);
	t_settle();
	t_poll(t, t->fd, ALL, 0);
	t_poll(t, t->fd, POLLIN, 0);
	t_poll(t, t->fd, POLLRDHUP, 0);
	T(shutdown(t->fd, SHUT_WR));
	t_settle();
	t_poll(t, t->fd, ALL, 0);
	t_poll(t, t->fd, 0, 0);
}

static void states_b(struct t *t)
{
	t_sync(t);
	T(write(t->fd, "12345", 5));
	t_sync(t);
	t_sync(t);
	T(shutdown(t->fd, SHUT_WR));
	t_poll(t, t->fd, ALL, 0);
	t_sync(t);
}

static void timeout_a(struct t *t)
{
	t_poll(t, t->fd, POLLIN, 0);
	t_poll(t, t->fd, POLLIN, 1);
	t_poll(t, t->fd, POLLIN, 40);
	t_poll(t, t->fd, POLLIN | POLLOUT, -1);
	t_sync(t);
	t_poll(t, t->fd, POLLIN, -1);
	t_poll(t, t->fd, POLLIN, -7);
}

static void timeout_b(struct t *t)
{
	t_sync(t);
	t_settle();
	T(write(t->fd, "x", 1));
}

/* Sleeps and is woken, again and again; each side waits by poll alone. */
static void pingpong(struct t *t)
{
	char c = 0;
	int wrong = 0;

	for (int i = 0; i < 200; i++) {
		struct pollfd p = {t->fd, POLLIN, 0};

		if (t->role == 'a' && write(t->fd, &c, 1) != 1)
			wrong++;
		if (poll(&p, 1, 5000) != 1 || p.revents != POLLIN || read(t->fd, &c, 1) != 1)
			wrong++;
		if (t->role == 'b' && write(t->fd, &c, 1) != 1)
			wrong++;
		c = (char)(c + 1);
	}
	t_log(t, "wrong: %d", wrong);
}

static void wake_hup_a(struct t *t)
{
	t_sync(t);
	t_poll(t, t->fd, POLLIN, 5000);
	t_sync(t);
	t_settle();
	t_poll(t, t->fd, ALL, 5000);
}

static void wake_hup_b(struct t *t)
{
	t_sync(t);
	t_settle();
	T(close(t->fd));
	t_sync(t);
}

static void wake_rdhup_a(struct t *t)
{
	t_sync(t);
	t_poll(t, t->fd, POLLRDHUP, 5000);
	t_sync(t);
}

static void wake_rdhup_b(struct t *t)
{
	t_sync(t);
	t_settle();
	T(shutdown(t->fd, SHUT_WR));
	t_sync(t);
}

static void wake_err_a(struct t *t)
{
	t_sync(t);
	t_poll(t, t->fd, 0, 5000); /* errors are told though nothing was asked */
	t_settle();
	t_poll(t, t->fd, ALL, 0);
}

static void wake_err_b(struct t *t)
{
	struct linger l = {1, 0};

	t_sync(t);
	t_settle();
	T(setsockopt(t->fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l)));
	T(close(t->fd));
}

static void pollout_a(struct t *t)
{
	size_t n = t_fill_up(t, t->fd, 1);

	t_poll(t, t->fd, POLLIN | POLLOUT, 0);
	t_poll(t, t->fd, POLLOUT, 20);
	t_tell(t, (int)n);
	t_poll(t, t->fd, POLLIN | POLLOUT, 5000); /* sleeps until the other side reads */
	t_sync(t);
	T(send(t->fd, "more", 4, MSG_DONTWAIT));
}

static void pollout_b(struct t *t)
{
	int n = t_hear(t);
	char buf[8];

	t_settle();
	t_drain(t, t->fd, (size_t)n, 1);
	t_sync(t);
	TD(buf, read(t->fd, buf, 8));
}

static void pollout_hup_a(struct t *t)
{
	t_fill_up(t, t->fd, 1);
	t_sync(t);
	t_poll(t, t->fd, POLLOUT, 5000);
	t_settle();
	t_poll(t, t->fd, ALL, 0);
}

static void pollout_hup_b(struct t *t)
{
	t_sync(t);
	t_settle();
	T(close(t->fd));
}

/* --- among others ------------------------------------------------------------------------------ */

struct mixed {
	int pipe[2], timer, event, udp[2], listener, port, client;
};

static void mixed_open(struct t *t, struct mixed *m)
{
	struct sockaddr_storage sa;
	socklen_t len = t_address(t, 0, &sa);

	if (pipe(m->pipe))
		abort();
	m->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	m->event = eventfd(0, EFD_NONBLOCK);
	m->udp[0] = socket(t->family, SOCK_DGRAM, 0);
	m->udp[1] = socket(t->family, SOCK_DGRAM, 0);
	bind(m->udp[0], (struct sockaddr *)&sa, len);
	getsockname(m->udp[0], (struct sockaddr *)&sa, &len);
	connect(m->udp[1], (struct sockaddr *)&sa, len);
	m->listener = t_listen(t, &m->port);
	m->client = -1;
}

static void mixed_poll(struct t *t, struct mixed *m, int timeout_ms)
{
	struct pollfd p[] = {
		{m->pipe[0], POLLIN, 0}, {m->timer, POLLIN, 0}, {m->event, POLLIN, 0},
		{m->udp[0], POLLIN, 0},	 {-1, POLLIN, 0},	{m->listener, POLLIN, 0},
		{t->fd, POLLIN, 0},
	};
	int r = poll(p, 7, timeout_ms);

	t_log(t, "poll -> %d: pipe %s timer %s event %s udp %s none %s listener %s socket %s", r,
	      t_events((unsigned short)p[0].revents), p[1].revents ? "IN" : "0",
	      p[2].revents ? "IN" : "0", p[3].revents ? "IN" : "0", p[4].revents ? "IN" : "0",
	      p[5].revents ? "IN" : "0", t_events((unsigned short)p[6].revents));
}

static void mixed_a(struct t *t)
{
	struct itimerspec soon = {{0, 0}, {0, 20000000}};
	uint64_t one = 1;
	struct mixed m;
	char buf[8];

	mixed_open(t, &m);
	mixed_poll(t, &m, 0);
	T(write(m.pipe[1], "p", 1));
	mixed_poll(t, &m, 1000);
	TD(buf, read(m.pipe[0], buf, 8));
	timerfd_settime(m.timer, 0, &soon, NULL);
	mixed_poll(t, &m, 1000);
	T(read(m.timer, &one, 8));
	one = 1;
	T(write(m.event, &one, 8));
	mixed_poll(t, &m, 1000);
	T(read(m.event, &one, 8));
	T(write(m.udp[1], "u", 1));
	mixed_poll(t, &m, 1000);
	TD(buf, read(m.udp[0], buf, 8));
	m.client = t_connect(t, m.port);
	mixed_poll(t, &m, 1000);
	close(accept(m.listener, NULL, NULL));
	t_sync(t);
	mixed_poll(t, &m, 5000);
	T(write(m.pipe[1], "p", 1));
	mixed_poll(t, &m, 5000);
	TD(buf, read(t->fd, buf, 8));
	mixed_poll(t, &m, 5000);
	close(m.pipe[1]);
	TD(buf, read(m.pipe[0], buf, 8));
	mixed_poll(t, &m, 5000);
}

static void mixed_b(struct t *t)
{
	t_sync(t);
	t_settle();
	T(write(t->fd, "s", 1));
}

static void odd_entries(struct t *t)
{
	struct pollfd p[] = {{t->fd, POLLIN, 0}, {t->fd, POLLOUT, 0}, {-5, POLLIN, 9},
			     {65000, POLLIN, 0}, {t->fd, 0, 0},	      {t->peer, POLLIN, 0}};
	int r;

	T(write(t->peer, "x", 1));
	r = poll(p, 6, 1000);
	t_log(t, "poll -> %d", r);
	for (int i = 0; i < 6; i++)
		t_log(t, "  %s", t_events((unsigned short)p[i].revents));
	T(poll(NULL, 0, 5));
	T(poll((struct pollfd *)8, 1, 0));
	T(poll(p, 1u << 30, 0));
}

#define MANY 20

/* Many connections: each in turn has something. */
static void many_a(struct t *t)
{
	struct pollfd p[MANY];
	char buf[8];

	for (int i = 0; i < MANY; i++)
		p[i] = (struct pollfd){t_open(t), POLLIN, 0};
	for (int i = 0; i < MANY; i++) {
		int who = i * 7 % MANY, r, ready = -1;

		t_tell(t, who);
		r = poll(p, MANY, 5000);
		for (int k = 0; k < MANY; k++)
			if (p[k].revents)
				ready = k;
		t_log(t, "poll -> %d, number %d %s", r, ready,
		      ready < 0 ? "" : t_events((unsigned short)p[ready].revents));
		TD(buf, read(p[who].fd, buf, 8));
	}
	t_tell(t, -1);
}

static void many_b(struct t *t)
{
	int fds[MANY], who;

	for (int i = 0; i < MANY; i++)
		fds[i] = t_open(t);
	while ((who = t_hear(t)) >= 0)
		if (write(fds[who], "hi", 2) != 2)
			t_log(t, "short write");
}

/* --- signals ----------------------------------------------------------------------------------- */

static void ppoll_mask_a(struct t *t)
{
	struct pollfd p = {t->fd, POLLIN, 0};
	struct timespec ts = {0, 20000000}, none = {0, 0};
	sigset_t block, open;

	t_count_signal(SIGUSR1, SA_RESTART);
	sigemptyset(&block);
	sigaddset(&block, SIGUSR1);
	sigprocmask(SIG_BLOCK, &block, &open);
	raise(SIGUSR1);
	T(ppoll(&p, 1, &ts, &block));
	t_log(t, "signals %d", t_signals(SIGUSR1));
	T(ppoll(&p, 1, NULL, &open));
	t_log(t, "signals %d", t_signals(SIGUSR1));
	T(ppoll(&p, 1, &ts, NULL));
	T(ppoll(&p, 1, &none, NULL));
	t_sync(t);
	raise(SIGUSR1);
	T(ppoll(&p, 1, NULL, &block));
	t_log(t, "%s, signals %d", t_events((unsigned short)p.revents), t_signals(SIGUSR1));
	/* Ready and a signal pending: the kernel tells of what is ready. */
	T(ppoll(&p, 1, NULL, &open));
	t_log(t, "signals %d", t_signals(SIGUSR1));
	sigprocmask(SIG_SETMASK, &open, NULL);
	t_log(t, "signals %d", t_signals(SIGUSR1));
}

static void ppoll_mask_b(struct t *t)
{
	t_sync(t);
	t_settle();
	T(write(t->fd, "x", 1));
}

static void eintr_a(struct t *t)
{
	struct pollfd p = {t->fd, POLLIN, 0};

	t_count_signal(SIGALRM, SA_RESTART);
	t_alarm_ms(30);
	T(poll(&p, 1, -1));
	t_log(t, "signals %d", t_signals(SIGALRM));
	t_alarm_ms(30);
	T(poll(&p, 1, 5000));
	t_count_signal(SIGALRM, 0);
	t_alarm_ms(30);
	T(poll(&p, 1, 5000));
	t_sync(t);
	T(poll(&p, 1, 5000));
}

/* --- select ------------------------------------------------------------------------------------ */

static void do_select(struct t *t, int nfds, int fd, const char *which, int ms)
{
	struct timeval tv = {ms / 1000, ms % 1000 * 1000};
	fd_set r, w, e;
	int n;

	FD_ZERO(&r);
	FD_ZERO(&w);
	FD_ZERO(&e);
	FD_SET(fd, &r);
	FD_SET(fd, &w);
	FD_SET(fd, &e);
	n = select(nfds, strchr(which, 'r') ? &r : NULL, strchr(which, 'w') ? &w : NULL,
		   strchr(which, 'e') ? &e : NULL, ms < 0 ? NULL : &tv);
	if (n < 0)
		t_log(t, "select(%s) -> -1 %s", which, t_errno(errno));
	else
		t_log(t, "select(%s) -> %d %s%s%s, time %s", which, n,
		      strchr(which, 'r') && FD_ISSET(fd, &r) ? "r" : "",
		      strchr(which, 'w') && FD_ISSET(fd, &w) ? "w" : "",
		      strchr(which, 'e') && FD_ISSET(fd, &e) ? "e" : "",
		      tv.tv_sec || tv.tv_usec ? "left" : "over");
}

static void select_a(struct t *t)
{
	int fd = t->fd;
	char buf[8];

	do_select(t, fd + 1, fd, "rwe", 0);
	do_select(t, fd + 1, fd, "r", 20);
	do_select(t, fd + 1, fd, "w", -1);
	do_select(t, fd, fd, "rw", 10); /* not among the first nfds */
	t_sync(t);
	do_select(t, fd + 1, fd, "r", -1);
	do_select(t, fd + 1, fd, "rwe", 2000);
	TD(buf, read(fd, buf, 8));
	t_sync(t);
	do_select(t, fd + 1, fd, "re", 5000); /* the end is readable, not exceptional */
	T(read(fd, buf, 8));
	close(fd);
	do_select(t, fd + 1, fd, "r", 0);
	do_select(t, -1, fd, "r", 0);
}

static void select_b(struct t *t)
{
	t_sync(t);
	t_settle();
	T(write(t->fd, "s", 1));
	t_sync(t);
	t_settle();
	T(shutdown(t->fd, SHUT_WR));
}

/* High numbers, and all of them full of other descriptors. */
static void select_many_a(struct t *t)
{
	struct timeval tv = {5, 0};
	int pipes[200][2], fd, n, top = 0;
	fd_set r, w;
	char buf[8];

	for (int i = 0; i < 200; i++)
		if (pipe(pipes[i]))
			abort();
	fd = fcntl(t->fd, F_DUPFD, 650);
	t_sync(t);
	FD_ZERO(&r);
	FD_ZERO(&w);
	for (int i = 0; i < 200; i++) {
		FD_SET(pipes[i][0], &r);
		top = pipes[i][0] > top ? pipes[i][0] : top;
	}
	FD_SET(fd, &r);
	FD_SET(t->fd, &r);
	T(write(pipes[77][1], "p", 1));
	n = select((fd > top ? fd : top) + 1, &r, NULL, NULL, &tv);
	t_log(t, "select -> %d, pipe %d, socket %d", n, FD_ISSET(pipes[77][0], &r) != 0,
	      FD_ISSET(fd, &r) != 0);
	TD(buf, read(pipes[77][0], buf, 8));
	t_sync(t);
	FD_ZERO(&r);
	for (int i = 0; i < 200; i++)
		FD_SET(pipes[i][0], &r);
	FD_SET(fd, &r);
	FD_SET(t->fd, &r);
	FD_SET(fd, &w);
	n = select((fd > top ? fd : top) + 1, &r, NULL, NULL, &tv);
	t_log(t, "select -> %d, pipe %d, socket %d %d", n, FD_ISSET(pipes[77][0], &r) != 0,
	      FD_ISSET(fd, &r) != 0, FD_ISSET(t->fd, &r) != 0);
	n = select(fd + 1, NULL, &w, NULL, &tv);
	t_log(t, "select -> %d, %d", n, FD_ISSET(fd, &w) != 0);
	TD(buf, read(fd, buf, 8));
}

static void select_many_b(struct t *t)
{
	t_sync(t);
	t_sync(t);
	t_settle();
	T(write(t->fd, "s", 1));
}

static void pselect_a(struct t *t)
{
	struct timespec ts = {0, 20000000};
	sigset_t block, open;
	fd_set r;

	t_count_signal(SIGUSR1, SA_RESTART);
	sigemptyset(&block);
	sigaddset(&block, SIGUSR1);
	sigprocmask(SIG_BLOCK, &block, &open);
	raise(SIGUSR1);
	FD_ZERO(&r);
	FD_SET(t->fd, &r);
	T(pselect(t->fd + 1, &r, NULL, NULL, &ts, &block));
	t_log(t, "signals %d, time %s", t_signals(SIGUSR1), ts.tv_nsec ? "untouched" : "over");
	FD_SET(t->fd, &r);
	T(pselect(t->fd + 1, &r, NULL, NULL, NULL, &open));
	t_log(t, "signals %d, set %d", t_signals(SIGUSR1), FD_ISSET(t->fd, &r) != 0);
	t_sync(t);
	FD_SET(t->fd, &r);
	T(pselect(t->fd + 1, &r, NULL, NULL, NULL, &block));
	t_log(t, "set %d", FD_ISSET(t->fd, &r) != 0);
	sigprocmask(SIG_SETMASK, &open, NULL);
}

/* Two threads sleep on one socket: data wakes both. */
struct waiter {
	struct t *t;
	int revents;
};

static void *wait_in_poll(void *arg)
{
	struct waiter *w = arg;
	struct pollfd p = {w->t->fd, POLLIN, 0};

	poll(&p, 1, 5000);
	w->revents = p.revents;
	return NULL;
}

static void two_threads_a(struct t *t)
{
	struct waiter w[2] = {{t, 0}, {t, 0}};
	pthread_t thread[2];

	for (int i = 0; i < 2; i++)
		thread[i] = t_thread(wait_in_poll, &w[i]);
	t_settle();
	t_sync(t);
	for (int i = 0; i < 2; i++) {
		t_join(thread[i]);
		t_log(t, "%s", t_events((unsigned int)w[i].revents));
	}
}

const struct t_case t_poll_cases[] = {
	{"poll.states", states_a, states_b, T_FAMILIES, NULL},
	{"poll.timeout", timeout_a, timeout_b, 0, NULL},
	{"poll.pingpong", pingpong, pingpong, 0, NULL},
	{"poll.wake_hup", wake_hup_a, wake_hup_b, 0, NULL},
	{"poll.wake_rdhup", wake_rdhup_a, wake_rdhup_b, 0, NULL},
	{"poll.wake_err", wake_err_a, wake_err_b, 0, NULL},
	{"poll.pollout", pollout_a, pollout_b, 0, NULL},
	{"poll.pollout_hup", pollout_hup_a, pollout_hup_b, 0, NULL},
	{"poll.mixed", mixed_a, mixed_b, T_FAMILIES, NULL},
	{"poll.odd_entries", odd_entries, NULL, T_SOLO, NULL},
	{"poll.many", many_a, many_b, 0, NULL},
	{"poll.ppoll_mask", ppoll_mask_a, ppoll_mask_b, T_NO_THREAD, NULL},
	{"poll.eintr", eintr_a, timeout_b, T_NO_THREAD, NULL},
	{"poll.select", select_a, select_b, T_NO_THREAD, NULL},
	{"poll.select_many", select_many_a, select_many_b, T_NO_THREAD, NULL},
	{"poll.pselect", pselect_a, timeout_b, T_NO_THREAD, NULL},
	{"poll.two_threads", two_threads_a, timeout_b, 0, NULL},
	{NULL, NULL, NULL, 0, NULL},
};
