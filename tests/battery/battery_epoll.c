/* SPDX-License-Identifier: MIT */
/* epoll: triggering, changes of interest, what is carried back, errors. */
#include "battery.h"

static int add(int ep, int fd, unsigned int events, uint64_t data)
{
	struct epoll_event e = {events, {.u64 = data}};

	return epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
}

static int mod(int ep, int fd, unsigned int events, uint64_t data)
{
	struct epoll_event e = {events, {.u64 = data}};

	return epoll_ctl(ep, EPOLL_CTL_MOD, fd, &e);
}

static int by_data(const void *a, const void *b)
{
	const struct epoll_event *x = a, *y = b;

	return x->data.u64 < y->data.u64 ? -1 : x->data.u64 > y->data.u64;
}

/* Events in the order of their data: the kernel's own order is not part of the contract. */
static int wait_for(struct t *t, int ep, int max, int timeout_ms)
{
	struct epoll_event e[64];
	char text[700] = "";
	int n = epoll_wait(ep, e, max, timeout_ms);

	if (n < 0) {
		t_log(t, "epoll_wait -> -1 %s", t_errno(errno));
		return n;
	}
	qsort(e, (size_t)n, sizeof(e[0]), by_data);
	for (int i = 0; i < n && i < 20; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), " %llx:%s",
			 (unsigned long long)e[i].data.u64, t_events(e[i].events));
	t_log(t, "epoll_wait(%d) -> %d%s", timeout_ms, n, text);
	return n;
}

/* b does as it is told, so that a knows what has happened when t_do returns. */
enum { DO_END, DO_WRITE, DO_SHUT, DO_CLOSE, DO_DRAIN, DO_RESET, DO_LATER };

static void t_do(struct t *t, int what)
{
	t_tell(t, what);
	if (what == DO_LATER || what == DO_END)
		return;
	t_hear(t);
	if (what != DO_WRITE)
		t_settle();
}

static void obey(struct t *t)
{
	static __thread char buf[65536];
	struct linger l = {1, 0};
	int what;

	while ((what = t_hear(t)) > 0) {
		switch (what) {
		case DO_LATER:
			t_settle();
			/* fall through */
		case DO_WRITE:
			if (write(t->fd, "data", 4) != 4)
				t_log(t, "short");
			break;
		case DO_SHUT: shutdown(t->fd, SHUT_WR); break;
		case DO_RESET:
			setsockopt(t->fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
			/* fall through */
		case DO_CLOSE: close(t->fd); break;
		case DO_DRAIN:
			t_nap_ms(10);
			while (recv(t->fd, buf, sizeof(buf), MSG_DONTWAIT) > 0)
				t_nap_ms(2);
			break;
		}
		if (what != DO_LATER)
			t_tell(t, 0);
	}
}

/* --- triggering -------------------------------------------------------------------------------- */

static void level_a(struct t *t)
{
	int ep = epoll_create1(EPOLL_CLOEXEC);
	char buf[100];

	T(add(ep, t->fd, EPOLLIN, 7));
	wait_for(t, ep, 8, 0);
	wait_for(t, ep, 8, 20);
	t_do(t, DO_WRITE);
	wait_for(t, ep, 8, 1000);
	wait_for(t, ep, 8, 1000);
	TD(buf, read(t->fd, buf, 1));
	wait_for(t, ep, 8, 1000);
	TD(buf, read(t->fd, buf, 100));
	wait_for(t, ep, 8, 20);
	t_do(t, DO_LATER);
	wait_for(t, ep, 8, -1);
	TD(buf, read(t->fd, buf, 100));
	T(mod(ep, t->fd, EPOLLIN | EPOLLOUT, 8));
	wait_for(t, ep, 8, -1);
	t_do(t, DO_WRITE);
	wait_for(t, ep, 8, -1);
	T(mod(ep, t->fd, EPOLLOUT, 9));
	wait_for(t, ep, 8, -1);
	T(mod(ep, t->fd, 0, 10));
	wait_for(t, ep, 8, 20);
	T(mod(ep, t->fd, EPOLLIN | EPOLLRDHUP, 11));
	t_do(t, DO_SHUT);
	wait_for(t, ep, 8, -1);
	TD(buf, read(t->fd, buf, 100));
	T(read(t->fd, buf, 100));
	wait_for(t, ep, 8, -1);
	T(close(ep));
	t_do(t, DO_END);
}

static void edge_a(struct t *t)
{
	int ep = epoll_create1(0);
	char buf[100];

	T(add(ep, t->fd, EPOLLIN | EPOLLET, 1));
	wait_for(t, ep, 8, 10);
	t_do(t, DO_WRITE);
	wait_for(t, ep, 8, 1000);
	wait_for(t, ep, 8, 20);	      /* once only */
	TD(buf, read(t->fd, buf, 1)); /* reading a part does not re-arm */
	wait_for(t, ep, 8, 20);
	t_do(t, DO_WRITE); /* more data does */
	wait_for(t, ep, 8, 1000);
	wait_for(t, ep, 8, 20);
	TD(buf, read(t->fd, buf, 100));
	wait_for(t, ep, 8, 20);
	t_do(t, DO_WRITE);
	t_do(t, DO_WRITE);
	wait_for(t, ep, 8, 1000); /* two arrivals, one event */
	wait_for(t, ep, 8, 20);
	T(mod(ep, t->fd, EPOLLIN | EPOLLET, 2)); /* a change re-arms what is ready */
	wait_for(t, ep, 8, 1000);
	wait_for(t, ep, 8, 20);
	TD(buf, read(t->fd, buf, 100));
	t_do(t, DO_LATER);
	wait_for(t, ep, 8, -1);
	t_do(t, DO_SHUT);
	wait_for(t, ep, 8, 1000);
	wait_for(t, ep, 8, 20);
	t_do(t, DO_END);
}

static void edge_out_a(struct t *t)
{
	int ep = epoll_create1(0);
	char buf[100];

	T(add(ep, t->fd, EPOLLIN | EPOLLOUT | EPOLLET | EPOLLRDHUP, 1));
	wait_for(t, ep, 8, 1000);
	wait_for(t, ep, 8, 20);
	t_do(t, DO_WRITE);
	wait_for(t, ep, 8, 1000); /* tells all that is ready, not what changed */
	TD(buf, read(t->fd, buf, 100));
	T(write(t->fd, "x", 1)); /* never was full: no event */
	wait_for(t, ep, 8, 30);
	t_fill_up(t, t->fd, 1);
	wait_for(t, ep, 8, 0);
	t_do(t, DO_DRAIN);
	wait_for(t, ep, 8, 1000);
	wait_for(t, ep, 8, 20);
	t_do(t, DO_CLOSE);
	wait_for(t, ep, 8, 1000);
	wait_for(t, ep, 8, 20);
	t_do(t, DO_END);
}

static void out_full_a(struct t *t)
{
	int ep = epoll_create1(0);

	T(add(ep, t->fd, EPOLLOUT, 3));
	wait_for(t, ep, 8, 0);
	t_fill_up(t, t->fd, 1);
	wait_for(t, ep, 8, 0);
	wait_for(t, ep, 8, 20);
	t_do(t, DO_DRAIN);
	wait_for(t, ep, 8, 1000);
	wait_for(t, ep, 8, 1000);
	t_do(t, DO_END);
}

/* Sleeps in epoll_wait for room. */
static void out_wake_a(struct t *t)
{
	int ep = epoll_create1(0);

	T(add(ep, t->fd, EPOLLIN | EPOLLOUT | EPOLLET, 3));
	wait_for(t, ep, 8, 0);
	t_fill_up(t, t->fd, 1);
	wait_for(t, ep, 8, 0);
	t_tell(t, DO_DRAIN);
	wait_for(t, ep, 8, 5000);
	t_hear(t);
	t_do(t, DO_END);
}

static void add_ready_a(struct t *t)
{
	int ep = epoll_create1(0), ep2 = epoll_create1(0);
	char buf[100];

	t_do(t, DO_WRITE);
	T(add(ep, t->fd, EPOLLIN | EPOLLET, 1));
	T(add(ep2, t->fd, EPOLLIN, 2));
	wait_for(t, ep, 8, 1000);
	wait_for(t, ep, 8, 10);
	wait_for(t, ep2, 8, 1000);
	wait_for(t, ep2, 8, 1000);
	TD(buf, read(t->fd, buf, 100));
	wait_for(t, ep2, 8, 10);
	t_do(t, DO_WRITE);
	wait_for(t, ep, 8, 1000); /* both sets hear of it */
	wait_for(t, ep2, 8, 1000);
	t_do(t, DO_END);
}

static void oneshot_a(struct t *t)
{
	int ep = epoll_create1(0);
	char buf[100];

	T(add(ep, t->fd, EPOLLIN | EPOLLONESHOT, 1));
	t_do(t, DO_WRITE);
	wait_for(t, ep, 8, 1000);
	wait_for(t, ep, 8, 20);
	TD(buf, read(t->fd, buf, 1));
	t_do(t, DO_WRITE);
	wait_for(t, ep, 8, 20);
	t_poll(t, t->fd, POLLIN, 0); /* others see it */
	T(mod(ep, t->fd, EPOLLIN | EPOLLONESHOT, 2));
	wait_for(t, ep, 8, 1000);
	wait_for(t, ep, 8, 20);
	TD(buf, read(t->fd, buf, 100));
	T(mod(ep, t->fd, EPOLLIN | EPOLLONESHOT | EPOLLET, 3));
	wait_for(t, ep, 8, 20);
	t_do(t, DO_LATER);
	wait_for(t, ep, 8, -1);
	T(mod(ep, t->fd, EPOLLIN | EPOLLOUT | EPOLLONESHOT, 4));
	wait_for(t, ep, 8, 1000);
	t_do(t, DO_CLOSE); /* not even the end is told when it is disarmed */
	wait_for(t, ep, 8, 30);
	T(mod(ep, t->fd, EPOLLIN | EPOLLRDHUP, 5));
	wait_for(t, ep, 8, 1000);
	t_do(t, DO_END);
}

static void ends_a(struct t *t)
{
	int ep = epoll_create1(0);
	char buf[100];

	T(add(ep, t->fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI, 1));
	wait_for(t, ep, 8, 0);
	t_do(t, DO_SHUT);
	wait_for(t, ep, 8, 1000);
	T(mod(ep, t->fd, EPOLLIN, 1));
	wait_for(t, ep, 8, 1000);
	T(mod(ep, t->fd, EPOLLRDHUP, 1));
	wait_for(t, ep, 8, 1000);
	T(mod(ep, t->fd, 0, 1));
	wait_for(t, ep, 8, 20);
	T(shutdown(t->fd, SHUT_WR));
	t_settle();
	wait_for(t, ep, 8, 1000); /* HUP without being asked */
	T(mod(ep, t->fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP, 1));
	wait_for(t, ep, 8, 1000);
	T(read(t->fd, buf, 100));
	t_do(t, DO_END);
}

static void reset_a(struct t *t)
{
	int ep = epoll_create1(0);
	char buf[100];

	T(add(ep, t->fd, 0, 1));
	wait_for(t, ep, 8, 10);
	t_do(t, DO_RESET);
	wait_for(t, ep, 8, 1000);
	T(mod(ep, t->fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP, 1));
	wait_for(t, ep, 8, 1000);
	T(read(t->fd, buf, 100));
	wait_for(t, ep, 8, 1000);
	t_do(t, DO_END);
}

static void wake_reset_a(struct t *t)
{
	int ep = epoll_create1(0);

	T(add(ep, t->fd, EPOLLIN | EPOLLET, 1));
	t_tell(t, DO_RESET);
	wait_for(t, ep, 8, 5000);
	t_hear(t);
	t_do(t, DO_END);
}

/* --- changes of interest ----------------------------------------------------------------------- */

static void errors_a(struct t *t)
{
	int ep = epoll_create1(0), file = open("/proc/self/status", O_RDONLY), p[2];
	struct epoll_event e = {EPOLLIN, {.u64 = 1}};

	if (pipe(p))
		return;
	T(add(ep, t->fd, EPOLLIN, 1));
	T(add(ep, t->fd, EPOLLIN, 2));
	T(mod(ep, p[0], EPOLLIN, 1));
	T(epoll_ctl(ep, EPOLL_CTL_DEL, p[0], NULL));
	T(epoll_ctl(ep, EPOLL_CTL_DEL, t->fd, NULL));
	T(epoll_ctl(ep, EPOLL_CTL_DEL, t->fd, NULL));
	T(mod(ep, t->fd, EPOLLIN, 1));
	T(add(ep, t->fd, EPOLLIN, 3));
	T(epoll_ctl(ep, 9, t->fd, &e));
	T(add(ep, file, EPOLLIN, 1));
	T(add(ep, ep, EPOLLIN, 1));
	T(add(ep, 65000, EPOLLIN, 1));
	T(add(-1, t->fd, EPOLLIN, 1));
	T(add(file, t->fd, EPOLLIN, 1));
	T(add(t->fd, p[0], EPOLLIN, 1));
	T(epoll_ctl(ep, EPOLL_CTL_MOD, t->fd, (struct epoll_event *)8));
	T(epoll_wait(ep, &e, 0, 0));
	T(epoll_wait(ep, &e, -1, 0));
	T(epoll_wait(t->fd, &e, 1, 0));
	T(epoll_wait(-1, &e, 1, 0));
	T(epoll_create1(12345));
	T(epoll_create(0));
	t_do(t, DO_WRITE);
	T(epoll_wait(ep, (struct epoll_event *)8, 1, 1000));
	wait_for(t, ep, 8, 1000);
	t_do(t, DO_END);
}

static void exclusive_a(struct t *t)
{
	int ep = epoll_create1(0), ep2 = epoll_create1(0);
	char buf[100];

	T(add(ep, t->fd, EPOLLIN | EPOLLEXCLUSIVE, 1));
	T(add(ep2, t->fd, EPOLLIN | EPOLLEXCLUSIVE | EPOLLET, 2));
	T(mod(ep, t->fd, EPOLLIN, 1));
	T(mod(ep, t->fd, EPOLLIN | EPOLLEXCLUSIVE, 1));
	T(epoll_ctl(ep2, EPOLL_CTL_DEL, t->fd, NULL));
	T(add(ep2, t->fd, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT, 1));
	t_do(t, DO_WRITE);
	wait_for(t, ep, 8, 1000);
	TD(buf, read(t->fd, buf, 100));
	wait_for(t, ep, 8, 10);
	t_do(t, DO_END);
}

static void del_add_a(struct t *t)
{
	int ep = epoll_create1(0);
	char buf[100];

	T(add(ep, t->fd, EPOLLIN, 1));
	t_do(t, DO_WRITE);
	T(epoll_ctl(ep, EPOLL_CTL_DEL, t->fd, NULL));
	wait_for(t, ep, 8, 20);
	T(add(ep, t->fd, EPOLLIN, 2));
	wait_for(t, ep, 8, 1000);
	TD(buf, read(t->fd, buf, 100));
	for (int i = 0; i < 100; i++) {
		struct epoll_event e = {EPOLLIN, {.u64 = 3}};

		if (epoll_ctl(ep, EPOLL_CTL_DEL, t->fd, NULL) ||
		    epoll_ctl(ep, EPOLL_CTL_ADD, t->fd, &e))
			t_log(t, "refused");
	}
	t_do(t, DO_LATER);
	wait_for(t, ep, 8, -1);
	t_do(t, DO_END);
}

/* As redis-benchmark does: the interest changes with every message. */
static void churn_a(struct t *t)
{
	int ep = epoll_create1(0), wrong = 0;
	struct epoll_event e = {EPOLLOUT, {.u64 = 1}};
	char buf[8];

	epoll_ctl(ep, EPOLL_CTL_ADD, t->fd, &e);
	for (int i = 0; i < 300; i++) {
		wrong += epoll_wait(ep, &e, 1, 5000) != 1 || e.events != EPOLLOUT;
		wrong += write(t->fd, "ping", 4) != 4;
		e.events = EPOLLIN;
		wrong += epoll_ctl(ep, EPOLL_CTL_MOD, t->fd, &e) != 0;
		wrong += epoll_wait(ep, &e, 1, 5000) != 1 || e.events != EPOLLIN;
		wrong += read(t->fd, buf, 8) != 4;
		e.events = EPOLLOUT;
		wrong += epoll_ctl(ep, EPOLL_CTL_MOD, t->fd, &e) != 0;
	}
	t_log(t, "wrong: %d", wrong);
}

static void churn_b(struct t *t)
{
	int ep = epoll_create1(0), wrong = 0;
	struct epoll_event e = {EPOLLIN | EPOLLET, {.u64 = 1}};
	char buf[8];

	epoll_ctl(ep, EPOLL_CTL_ADD, t->fd, &e);
	t_nonblock(t->fd, true);
	for (int i = 0; i < 300; i++) {
		wrong += epoll_wait(ep, &e, 1, 5000) != 1;
		wrong += read(t->fd, buf, 8) != 4;
		wrong += read(t->fd, buf, 8) != -1 || errno != EAGAIN;
		wrong += write(t->fd, "pong", 4) != 4;
	}
	t_log(t, "wrong: %d", wrong);
}

/* --- data, fairness ---------------------------------------------------------------------------- */

#define MANY 12

static void many_a(struct t *t)
{
	int ep = epoll_create1(0), fds[MANY];
	char buf[8];

	for (int i = 0; i < MANY; i++) {
		fds[i] = t_open(t);
		add(ep, fds[i], EPOLLIN, 0xfedcba9876543200u + (unsigned int)i);
	}
	wait_for(t, ep, 64, 0);
	t_tell(t, 0x0a5); /* who writes */
	t_hear(t);
	wait_for(t, ep, 64, 1000);
	for (int i = 0; i < MANY; i++)
		if (0x0a5 & 1 << i)
			TD(buf, read(fds[i], buf, 8));
	wait_for(t, ep, 64, 10);
	t_tell(t, 0xfff);
	t_hear(t);
	wait_for(t, ep, 64, 1000);
	wait_for(t, ep, 64, 1000);
	t_tell(t, 0);
}

/* With room for one event every ready descriptor has its turn. */
static void fair_a(struct t *t)
{
	int ep = epoll_create1(0), fds[MANY], seen = 0;
	struct epoll_event e;

	for (int i = 0; i < MANY; i++) {
		fds[i] = t_open(t);
		add(ep, fds[i], EPOLLIN, (uint64_t)i);
	}
	t_tell(t, 0xfff);
	t_hear(t);
	for (int i = 0; i < MANY; i++)
		if (epoll_wait(ep, &e, 1, 1000) == 1)
			seen |= 1 << e.data.u64;
	t_log(t, "seen %03x", (unsigned int)seen);
	seen = 0;
	for (int i = 0; i < MANY / 4; i++) {
		struct epoll_event e4[4];
		int n = epoll_wait(ep, e4, 4, 1000);

		for (int k = 0; k < n; k++)
			seen |= 1 << e4[k].data.u64;
	}
	t_log(t, "seen %03x", (unsigned int)seen);
	t_tell(t, 0);
}

static void many_b(struct t *t)
{
	int fds[MANY], who;

	for (int i = 0; i < MANY; i++)
		fds[i] = t_open(t);
	while ((who = t_hear(t)) > 0) {
		for (int i = 0; i < MANY; i++)
			if (who & 1 << i && write(fds[i], "data", 4) != 4)
				t_log(t, "short");
		t_tell(t, 0);
	}
}

const struct t_case t_epoll_cases[] = {
	{"epoll.level", level_a, obey, T_FAMILIES, NULL},
	{"epoll.edge", edge_a, obey, T_FAMILIES, NULL},
	{"epoll.edge_out", edge_out_a, obey, 0, NULL},
	{"epoll.out_full", out_full_a, obey, 0, NULL},
	{"epoll.out_wake", out_wake_a, obey, 0, NULL},
	{"epoll.add_ready", add_ready_a, obey, 0, NULL},
	{"epoll.oneshot", oneshot_a, obey, 0, NULL},
	{"epoll.ends", ends_a, obey, 0, NULL},
	{"epoll.reset", reset_a, obey, 0, NULL},
	{"epoll.wake_reset", wake_reset_a, obey, 0, NULL},
	{"epoll.errors", errors_a, obey, 0, NULL},
	{"epoll.exclusive", exclusive_a, obey, 0, NULL},
	{"epoll.del_add", del_add_a, obey, 0, NULL},
	{"epoll.churn", churn_a, churn_b, 0, NULL},
	{"epoll.many", many_a, many_b, T_FAMILIES, NULL},
	{"epoll.fair", fair_a, many_b, 0, NULL},
	{NULL, NULL, NULL, 0, NULL},
};
