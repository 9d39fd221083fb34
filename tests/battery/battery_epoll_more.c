/* SPDX-License-Identifier: MIT */
/* epoll: sets in sets, closed and duplicated descriptors, other kinds, masks, processes. */
#include "battery.h"

static int add(int ep, int fd, unsigned int events, uint64_t data)
{
	struct epoll_event e = {events, {.u64 = data}};

	return epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
}

static int wait_for(struct t *t, int ep, int timeout_ms)
{
	struct epoll_event e[16];
	unsigned int seen[16] = {0};
	char text[400] = "";
	int n = epoll_wait(ep, e, 16, timeout_ms);

	if (n < 0) {
		t_log(t, "epoll_wait -> -1 %s", t_errno(errno));
		return n;
	}
	for (int i = 0; i < n; i++)
		seen[e[i].data.u64 & 15] = e[i].events;
	for (unsigned int i = 0; i < 16; i++)
		if (seen[i])
			snprintf(text + strlen(text), sizeof(text) - strlen(text), " %u:%s", i,
				 t_events(seen[i]));
	t_log(t, "epoll_wait(%d) -> %d%s", timeout_ms, n, text);
	return n;
}

static void writer_b(struct t *t)
{
	while (t_hear(t) > 0) {
		t_settle();
		if (write(t->fd, "data", 4) != 4)
			t_log(t, "short");
		t_tell(t, 0);
	}
}

/* Returns when the data is there. */
static void get_data(struct t *t)
{
	t_tell(t, 1);
	t_hear(t);
}

static void end(struct t *t)
{
	t_tell(t, 0);
}

/* --- sets in sets ------------------------------------------------------------------------------ */

static void nested_a(struct t *t)
{
	int inner = epoll_create1(0), outer = epoll_create1(0), top = epoll_create1(0);
	char buf[100];

	T(add(inner, t->fd, EPOLLIN, 1));
	T(add(outer, inner, EPOLLIN, 2));
	T(add(top, outer, EPOLLIN, 3));
	T(add(inner, top, EPOLLIN, 4)); /* a circle */
	wait_for(t, top, 10);
	get_data(t);
	wait_for(t, top, 1000);
	wait_for(t, outer, 1000);
	wait_for(t, inner, 1000);
	TD(buf, read(t->fd, buf, 100));
	wait_for(t, top, 10);
	wait_for(t, inner, 10);
	t_tell(t, 1);
	wait_for(t, top, 5000); /* asleep in the outermost */
	t_hear(t);
	TD(buf, read(t->fd, buf, 100));
	wait_for(t, top, 10);
	end(t);
}

static void nested_edge_a(struct t *t)
{
	int inner = epoll_create1(0), outer = epoll_create1(0);
	char buf[100];

	T(add(inner, t->fd, EPOLLIN | EPOLLET, 1));
	T(add(outer, inner, EPOLLIN | EPOLLET, 2));
	t_tell(t, 1);
	wait_for(t, outer, 5000);
	t_hear(t);
	wait_for(t, outer, 20);
	wait_for(t, inner, 1000);
	wait_for(t, inner, 20);
	TD(buf, read(t->fd, buf, 100));
	t_tell(t, 1);
	wait_for(t, outer, 5000);
	t_hear(t);
	wait_for(t, inner, 1000);
	end(t);
}

/* The descriptor of a set can be waited on like any other. */
static void set_is_readable_a(struct t *t)
{
	int ep = epoll_create1(0);
	struct timeval tv = {5, 0};
	char buf[100];
	fd_set r;

	T(add(ep, t->fd, EPOLLIN, 1));
	t_poll(t, ep, POLLIN | POLLOUT, 10);
	t_tell(t, 1);
	t_poll(t, ep, POLLIN, 5000);
	t_hear(t);
	FD_ZERO(&r);
	FD_SET(ep, &r);
	T(select(ep + 1, &r, NULL, NULL, &tv));
	wait_for(t, ep, 0);
	TD(buf, read(t->fd, buf, 100));
	t_poll(t, ep, POLLIN, 10);
	t_tell(t, 1);
	FD_SET(ep, &r);
	T(select(ep + 1, &r, NULL, NULL, &tv));
	t_hear(t);
	T(read(ep, buf, 100));
	T(write(ep, buf, 1));
	end(t);
}

static void several_a(struct t *t)
{
	int ep[4];
	char buf[100];

	for (int i = 0; i < 4; i++) {
		ep[i] = epoll_create1(0);
		T(add(ep[i], t->fd, i == 3 ? EPOLLIN | EPOLLONESHOT : EPOLLIN, (uint64_t)i));
	}
	get_data(t);
	for (int i = 0; i < 4; i++)
		wait_for(t, ep[i], 1000);
	T(close(ep[0]));
	for (int i = 1; i < 4; i++)
		wait_for(t, ep[i], i == 3 ? 10 : 1000);
	TD(buf, read(t->fd, buf, 100));
	for (int i = 1; i < 4; i++)
		wait_for(t, ep[i], 10);
	end(t);
}

/* --- descriptors come and go ------------------------------------------------------------------- */

static void close_in_set(struct t *t)
{
	int ep = epoll_create1(0), fd2, peer2;

	T(add(ep, t->fd, EPOLLIN, 1));
	T(write(t->peer, "x", 1));
	wait_for(t, ep, 1000);
	T(close(t->fd)); /* the last descriptor: the set forgets it */
	wait_for(t, ep, 20);
	t_open_pair(t, &fd2, &peer2);
	T(add(ep, fd2, EPOLLIN, 2));
	T(write(peer2, "y", 1));
	wait_for(t, ep, 1000);
	t->fd = -1;
}

static void dup_in_set(struct t *t)
{
	int ep = epoll_create1(0), other = dup(t->fd), fd = t->fd;
	struct epoll_event e = {EPOLLIN, {.u64 = 3}};
	char buf[8];

	T(add(ep, fd, EPOLLIN, 1));
	T(add(ep, other, EPOLLIN, 2)); /* both may be in it */
	T(write(t->peer, "x", 1));
	wait_for(t, ep, 1000);
	T(close(other));
	wait_for(t, ep, 1000); /* the open file lives on, and so does its entry */
	T(epoll_ctl(ep, EPOLL_CTL_DEL, other, NULL));
	T(epoll_ctl(ep, EPOLL_CTL_MOD, fd, &e));
	wait_for(t, ep, 1000);
	T(read(fd, buf, 8));
	wait_for(t, ep, 10);
	T(close(t->peer));
	wait_for(t, ep, 1000);
}

/* The number was closed and is now another connection; the set has the old one's dup. */
static void dup_reused(struct t *t)
{
	int ep = epoll_create1(0), other = dup(t->fd), fd2, peer2;

	T(add(ep, t->fd, EPOLLIN, 1));
	T(close(t->fd));
	t_open_pair(t, &fd2, &peer2);
	T(write(t->peer, "old", 3));
	wait_for(t, ep, 1000);
	T(add(ep, fd2, EPOLLIN, 2));
	T(write(peer2, "new", 3));
	wait_for(t, ep, 1000);
	T(close(other));
	wait_for(t, ep, 1000);
}

static void dup_set(struct t *t)
{
	int ep = epoll_create1(0), ep2 = dup(ep);

	T(add(ep, t->fd, EPOLLIN, 1));
	T(add(ep2, t->fd, EPOLLIN, 1));
	T(write(t->peer, "x", 1));
	wait_for(t, ep2, 1000);
	T(close(ep));
	wait_for(t, ep2, 1000);
	T(epoll_ctl(ep2, EPOLL_CTL_DEL, t->fd, NULL));
	wait_for(t, ep2, 10);
}

/* Added before it is connected, as non-blocking clients do. */
static void before_connect(struct t *t)
{
	struct sockaddr_storage sa;
	int port, listener = t_listen(t, &port), ep = epoll_create1(0), fd, peer;
	socklen_t len = t_address(t, port, &sa);
	struct epoll_event e = {EPOLLIN, {.u64 = 2}};
	char buf[8];

	fd = t_socket(t);
	t_nonblock(fd, true);
	T(add(ep, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP, 1));
	wait_for(t, ep, 10); /* not connected: OUT and HUP */
	T(connect(fd, (struct sockaddr *)&sa, len));
	wait_for(t, ep, 1000);
	peer = accept(listener, NULL, NULL);
	t_nonblock(fd, false);
	if (t->warm)
		for (int i = 0; i < 12; i++) {
			if (write(fd, "w", 1) != 1 || read(peer, buf, 1) != 1 ||
			    write(peer, "w", 1) != 1 || read(fd, buf, 1) != 1)
				t_log(t, "warm-up failed");
			t_nap_ms(2);
		}
	T(epoll_ctl(ep, EPOLL_CTL_MOD, fd, &e));
	wait_for(t, ep, 10);
	T(write(peer, "x", 1));
	wait_for(t, ep, 1000);
	T(close(peer));
	T(read(fd, buf, 8));
	wait_for(t, ep, 1000);
}

/* In the set from its first byte, while it goes over to another path. */
static void long_stay_a(struct t *t)
{
	int ep = epoll_create1(0), wrong = 0;
	char buf[100];

	add(ep, t->fd, EPOLLIN, 1);
	for (int i = 0; i < 60; i++) {
		struct epoll_event e;

		if (write(t->fd, "ask", 3) != 3 || epoll_wait(ep, &e, 1, 5000) != 1 ||
		    e.events != EPOLLIN || read(t->fd, buf, 100) != 6)
			wrong++;
		if (epoll_wait(ep, &e, 1, 0))
			wrong++;
		t_nap_ms(1);
	}
	t_log(t, "wrong: %d", wrong);
	t_sync(t);
	wait_for(t, ep, 5000);
	T(read(t->fd, buf, 100));
}

static void long_stay_b(struct t *t)
{
	int ep = epoll_create1(0), wrong = 0;
	char buf[100];

	add(ep, t->fd, EPOLLIN | EPOLLET, 1);
	for (int i = 0; i < 60; i++) {
		struct epoll_event e;

		if (epoll_wait(ep, &e, 1, 5000) != 1 || read(t->fd, buf, 100) != 3 ||
		    write(t->fd, "answer", 6) != 6)
			wrong++;
	}
	t_log(t, "wrong: %d", wrong);
	t_sync(t);
	t_settle();
	T(close(t->fd));
}

/* --- other kinds ------------------------------------------------------------------------------- */

static void mixed_a(struct t *t)
{
	int ep = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	int event = eventfd(0, EFD_NONBLOCK), p[2], port, listener = t_listen(t, &port), client;
	struct itimerspec soon = {{0, 0}, {0, 20000000}};
	uint64_t one = 1;
	char buf[8];

	if (pipe(p))
		return;
	T(add(ep, p[0], EPOLLIN, 1));
	T(add(ep, timer, EPOLLIN, 2));
	T(add(ep, event, EPOLLIN | EPOLLET, 3));
	T(add(ep, listener, EPOLLIN, 4));
	T(add(ep, t->fd, EPOLLIN, 5));
	wait_for(t, ep, 10);
	timerfd_settime(timer, 0, &soon, NULL);
	wait_for(t, ep, 5000);
	T(read(timer, &one, 8));
	T(write(p[1], "p", 1));
	wait_for(t, ep, 5000);
	get_data(t);
	wait_for(t, ep, 5000); /* both */
	TD(buf, read(p[0], buf, 8));
	wait_for(t, ep, 5000);
	one = 5;
	T(write(event, &one, 8));
	wait_for(t, ep, 5000);
	TD(buf, read(t->fd, buf, 8));
	wait_for(t, ep, 10);
	client = t_connect(t, port);
	wait_for(t, ep, 5000);
	close(accept(listener, NULL, NULL));
	wait_for(t, ep, 10);
	t_tell(t, 1);
	wait_for(t, ep, 5000);
	t_hear(t);
	close(p[1]);
	wait_for(t, ep, 5000);
	close(client);
	end(t);
}

/* --- masks, times ------------------------------------------------------------------------------ */

static void pwait_a(struct t *t)
{
	int ep = epoll_create1(0);
	struct timespec ts = {0, 20000000};
	struct epoll_event e;
	sigset_t block, open;

	t_count_signal(SIGUSR1, SA_RESTART);
	sigemptyset(&block);
	sigaddset(&block, SIGUSR1);
	sigprocmask(SIG_BLOCK, &block, &open);
	T(add(ep, t->fd, EPOLLIN, 1));
	raise(SIGUSR1);
	T(epoll_pwait(ep, &e, 1, 20, &block));
	T(epoll_pwait(ep, &e, 1, 20, NULL));
	t_log(t, "signals %d", t_signals(SIGUSR1));
	T(epoll_pwait(ep, &e, 1, -1, &open));
	t_log(t, "signals %d", t_signals(SIGUSR1));
	T(epoll_pwait2(ep, &e, 1, &ts, NULL));
	raise(SIGUSR1);
	T(epoll_pwait2(ep, &e, 1, NULL, &open));
	t_log(t, "signals %d", t_signals(SIGUSR1));
	t_tell(t, 1);
	T(epoll_pwait2(ep, &e, 1, NULL, &block));
	t_hear(t);
	t_log(t, "%s", t_events(e.events));
	sigprocmask(SIG_SETMASK, &open, NULL);
	end(t);
}

static void eintr_a(struct t *t)
{
	int ep = epoll_create1(0);
	struct epoll_event e;

	T(add(ep, t->fd, EPOLLIN, 1));
	t_count_signal(SIGALRM, SA_RESTART);
	t_alarm_ms(30);
	T(epoll_wait(ep, &e, 1, -1));
	t_count_signal(SIGALRM, 0);
	t_alarm_ms(30);
	T(epoll_wait(ep, &e, 1, 5000));
	get_data(t);
	T(epoll_wait(ep, &e, 1, 5000));
	end(t);
}

/* --- processes, threads ------------------------------------------------------------------------ */

/* A child waits on the set that it inherited. */
static void fork_set_a(struct t *t)
{
	int ep = epoll_create1(0);
	char buf[8];
	pid_t pid;

	T(add(ep, t->fd, EPOLLIN, 1));
	pid = fork();
	if (pid == 0) {
		t->role = 'c';
		wait_for(t, ep, 5000);
		TD(buf, read(t->fd, buf, 8));
		/* The parent makes no call meanwhile. */
		wait_for(t, ep, 100);
		wait_for(t, ep, 0);
		_exit(0);
	}
	t_settle();
	get_data(t);
	t_wait_child(t, pid);
	wait_for(t, ep, 10);
	get_data(t);
	wait_for(t, ep, 1000);
	end(t);
}

/* A set inside a set, which the parent closes. */
static void fork_nested_a(struct t *t)
{
	int ep = epoll_create1(0), outer = epoll_create1(0);
	char buf[8];
	pid_t pid;

	T(add(ep, t->fd, EPOLLIN, 1));
	T(add(outer, ep, EPOLLIN, 2));
	pid = fork();
	if (pid == 0) {
		t->role = 'c';
		wait_for(t, outer, 5000);
		wait_for(t, ep, 5000);
		TD(buf, read(t->fd, buf, 8));
		_exit(0);
	}
	close(ep);
	close(outer);
	t_settle();
	get_data(t);
	t_wait_child(t, pid);
	get_data(t);
	end(t);
}

/* An entry that the child adds is there for the parent. */
static void fork_adds_a(struct t *t)
{
	int ep = epoll_create1(0);
	pid_t pid = fork();

	if (pid == 0) {
		t->role = 'c';
		T(add(ep, t->fd, EPOLLIN, 2));
		_exit(0);
	}
	t_wait_child(t, pid);
	T(add(ep, t->fd, EPOLLIN, 1));
	get_data(t);
	wait_for(t, ep, 1000);
	end(t);
}

/* What a child changes of an entry that carried data before, too; and it may wait there itself. */
static void fork_changes_a(struct t *t)
{
	int ep = epoll_create1(0);
	char buf[8];
	pid_t pid;

	T(add(ep, t->fd, EPOLLIN, 1));
	get_data(t);
	wait_for(t, ep, 1000);
	TD(buf, read(t->fd, buf, 1));
	pid = fork();
	if (pid == 0) {
		struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT, .data.u64 = 7};

		t->role = 'c';
		T(epoll_ctl(ep, EPOLL_CTL_MOD, t->fd, &ev));
		wait_for(t, ep, 1000);
		_exit(0);
	}
	t_wait_child(t, pid);
	wait_for(t, ep, 1000);
	get_data(t);
	wait_for(t, ep, 1000);
	TD(buf, read(t->fd, buf, 8));
	T(epoll_ctl(ep, EPOLL_CTL_DEL, t->fd, NULL));
	T(epoll_ctl(ep, EPOLL_CTL_MOD, t->fd, &(struct epoll_event){0}));
	wait_for(t, ep, 10);
	end(t);
}

/* The parent sleeps in the set while the child puts into it what then becomes ready. */
static void fork_wakes_a(struct t *t)
{
	int ep = epoll_create1(0), p[2];
	char buf[8];
	pid_t pid;

	T(pipe(p));
	T(add(ep, t->fd, EPOLLIN, 1));
	get_data(t);
	wait_for(t, ep, 1000);
	TD(buf, read(t->fd, buf, 1));
	pid = fork();
	if (pid == 0) {
		t_settle();
		add(ep, p[0], EPOLLIN, 9);
		epoll_ctl(ep, EPOLL_CTL_DEL, t->fd, NULL);
		add(ep, t->fd, EPOLLIN, 5);
		t_settle();
		if (write(p[1], "x", 1) != 1)
			_exit(1);
		_exit(0);
	}
	wait_for(t, ep, 5000);
	t_wait_child(t, pid);
	TD(buf, read(p[0], buf, 8));
	get_data(t);
	wait_for(t, ep, 5000);
	TD(buf, read(t->fd, buf, 8));
	end(t);
}

struct waiting {
	int ep;
	int got;
};

static void *wait_thread(void *arg)
{
	struct waiting *w = arg;
	struct epoll_event e;

	w->got = epoll_wait(w->ep, &e, 1, 400);
	return NULL;
}

/* One event, armed for once: one of two sleeping threads gets it. */
static void threads_oneshot_a(struct t *t)
{
	int ep = epoll_create1(0);
	struct waiting w[2] = {{ep, 0}, {ep, 0}};
	pthread_t thread[2];

	T(add(ep, t->fd, EPOLLIN | EPOLLONESHOT, 1));
	for (int i = 0; i < 2; i++)
		thread[i] = t_thread(wait_thread, &w[i]);
	t_settle();
	get_data(t);
	for (int i = 0; i < 2; i++)
		t_join(thread[i]);
	t_log(t, "events: %d", w[0].got + w[1].got);
	end(t);
}

/* The same by the edge. */
static void threads_edge_a(struct t *t)
{
	int ep = epoll_create1(0);
	struct waiting w[2] = {{ep, 0}, {ep, 0}};
	pthread_t thread[2];

	T(add(ep, t->fd, EPOLLIN | EPOLLET, 1));
	for (int i = 0; i < 2; i++)
		thread[i] = t_thread(wait_thread, &w[i]);
	t_settle();
	get_data(t);
	for (int i = 0; i < 2; i++)
		t_join(thread[i]);
	t_log(t, "events: %d", w[0].got + w[1].got);
	end(t);
}

/* A descriptor added while another thread sleeps in the set wakes it. */
static void add_while_waiting_a(struct t *t)
{
	int ep = epoll_create1(0);
	struct waiting w = {ep, 0};
	pthread_t thread;

	get_data(t);
	thread = t_thread(wait_thread, &w);
	t_settle();
	T(add(ep, t->fd, EPOLLIN, 1));
	t_join(thread);
	t_log(t, "events: %d", w.got);
	end(t);
}

/* And so does a change of interest. */
static void mod_while_waiting_a(struct t *t)
{
	int ep = epoll_create1(0);
	struct waiting w = {ep, 0};
	struct epoll_event e = {EPOLLIN | EPOLLOUT, {.u64 = 1}};
	pthread_t thread;

	T(add(ep, t->fd, EPOLLIN, 1));
	thread = t_thread(wait_thread, &w);
	t_settle();
	T(epoll_ctl(ep, EPOLL_CTL_MOD, t->fd, &e));
	t_join(thread);
	t_log(t, "events: %d", w.got);
	end(t);
}

/* A server of one thread with several clients, which come, talk and go. */
#define CLIENTS 6

static void *client_thread(void *arg)
{
	struct t c = *(struct t *)arg;
	char buf[3000], in[3000];
	long wrong = 0;
	int fd = t_connect(&c, c.fd);

	for (int i = 0; i < 60; i++) {
		size_t n = (size_t)(i * 41) % sizeof(buf) + 1;

		t_fill(buf, n, 0, (unsigned int)i);
		wrong += write(fd, buf, n) != (ssize_t)n;
		wrong += recv(fd, in, n, MSG_WAITALL) != (ssize_t)n || memcmp(buf, in, n);
	}
	close(fd);
	return (void *)wrong;
}

static void serve_ready(int fd)
{
	char buf[4096];
	ssize_t r = read(fd, buf, sizeof(buf));

	if (r <= 0 || write(fd, buf, (size_t)r) != r)
		close(fd);
}

static void server_a(struct t *t)
{
	int port, listener = t_listen(t, &port), ep = epoll_create1(0), left = -1;
	struct epoll_event e[8];

	add(ep, listener, EPOLLIN, (uint64_t)listener);
	t_tell(t, port);
	fcntl(t->sync_fd, F_SETFL, O_NONBLOCK);
	while (left) {
		int n = epoll_wait(ep, e, 8, 50);

		for (int i = 0; i < n; i++)
			if (e[i].data.u64 == (uint64_t)listener) {
				int fd = accept(listener, NULL, NULL);

				add(ep, fd, EPOLLIN, (uint64_t)fd);
			} else {
				serve_ready((int)e[i].data.u64);
			}
		if (recv(t->sync_fd, &left, sizeof(left), MSG_PEEK) == sizeof(left))
			break;
	}
	fcntl(t->sync_fd, F_SETFL, 0);
	t_log(t, "clients are done: %d", t_hear(t));
}

static void server_b(struct t *t)
{
	struct t c = *t;
	pthread_t thread[CLIENTS];
	long wrong = 0;

	c.fd = t_hear(t);
	for (int i = 0; i < CLIENTS; i++)
		thread[i] = t_thread(client_thread, &c);
	for (int i = 0; i < CLIENTS; i++)
		wrong += t_join(thread[i]);
	t_log(t, "wrong: %ld", wrong);
	t_tell(t, 1);
}

const struct t_case t_epoll_more_cases[] = {
	{"epoll.nested", nested_a, writer_b, 0, NULL},
	{"epoll.nested_edge", nested_edge_a, writer_b, 0, NULL},
	{"epoll.set_is_readable", set_is_readable_a, writer_b, 0, NULL},
	{"epoll.several", several_a, writer_b, 0, NULL},
	{"epoll.close_in_set", close_in_set, NULL, T_SOLO, NULL},
	{"epoll.dup_in_set", dup_in_set, NULL, T_SOLO, NULL},
	{"epoll.dup_reused", dup_reused, NULL, T_SOLO, NULL},
	{"epoll.dup_set", dup_set, NULL, T_SOLO, NULL},
	{"epoll.before_connect", before_connect, NULL, T_SOLO | T_RAW, NULL},
	{"epoll.long_stay", long_stay_a, long_stay_b, T_FAMILIES, NULL},
	{"epoll.mixed", mixed_a, writer_b, 0, NULL},
	{"epoll.pwait", pwait_a, writer_b, T_NO_THREAD, NULL},
	{"epoll.eintr", eintr_a, writer_b, T_NO_THREAD, NULL},
	{"epoll.fork_set", fork_set_a, writer_b, T_NO_THREAD, NULL},
	{"epoll.fork_nested", fork_nested_a, writer_b, T_NO_THREAD, NULL},
	{"epoll.fork_adds", fork_adds_a, writer_b, T_NO_THREAD, NULL},
	{"epoll.fork_changes", fork_changes_a, writer_b, T_NO_THREAD, NULL},
	{"epoll.fork_wakes", fork_wakes_a, writer_b, T_NO_THREAD, NULL},
	{"epoll.threads_oneshot", threads_oneshot_a, writer_b, 0, NULL},
	{"epoll.threads_edge", threads_edge_a, writer_b, 0, NULL},
	{"epoll.add_while_waiting", add_while_waiting_a, writer_b, 0, NULL},
	{"epoll.mod_while_waiting", mod_while_waiting_a, writer_b, 0, NULL},
	{"epoll.server", server_a, server_b, T_RAW, NULL},
	{NULL, NULL, NULL, 0, NULL},
};
