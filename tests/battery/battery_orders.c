/* SPDX-License-Identifier: MIT */
/*
 * Every short order of what two ends may do to a connection: write, read, shut down, close, reset;
 * then each end that is left is asked what it makes of it. An order is a word of steps, an end and
 * a letter each; the ends take the same step of many orders at once, on a connection per order, and
 * rest after it, so that the kernel's answer does not depend on time.
 */
#include "battery.h"

enum { LONGEST = 4, ASKED = 6, STEPS = LONGEST + 2 * ASKED, AT_ONCE = 256, REST_MS = 6 };

/*
 * W send, R recv, E SO_ERROR, P poll, Q epoll_wait; D, S, X shut down reading, writing, both; C
 * close, L close with SO_LINGER 0 (a reset).
 */
static const char ending[] = "WRSDXCL", looking[] = "WRESXLPQ";
/* Who is asked first tells the error, so all are, by turns. */
static const char *const asked[] = {"PERWSQ", "REWQSP", "WWERPS", "SRWEQP", "QRRWEP", "XPEWRQ"};
#define WAYS_TO_ASK (sizeof(asked) / sizeof(*asked))

struct order {
	char end[STEPS], deed[STEPS];
	int steps;
	int fd;
	unsigned ready; /* what epoll_wait said in this step */
	char said[512];
};

static bool closes(char deed)
{
	return deed == 'C' || deed == 'L';
}

static void add(struct order *o, char end, char deed)
{
	o->end[o->steps] = end;
	o->deed[o->steps++] = deed;
}

/* The order of this number among those of so many deeds. False: an end does more after its close.
 */
static bool make_order(struct order *o, const char *deeds, unsigned number, int length,
		       unsigned turn)
{
	const unsigned kinds = (unsigned)strlen(deeds);
	bool closed[2] = {false, false};
	unsigned mix = number * 2654435761u;

	memset(o, 0, sizeof(*o));
	for (int i = 0; i < length; i++) {
		/* By symmetry it is b that begins; the case has a variant with swapped ends. */
		unsigned which = i ? number % (2 * kinds) : kinds + number % kinds;
		bool b = which >= kinds;

		number /= i ? 2 * kinds : kinds;
		if (closed[b])
			return false;
		add(o, b ? 'b' : 'a', deeds[which % kinds]);
		closed[b] = closes(deeds[which % kinds]);
	}
	for (int b = 0; b < 2; b++) {
		const char *ask = asked[((mix >> 16) + turn + (unsigned)b) % WAYS_TO_ASK];

		for (int i = 0; !closed[b] && ask[i]; i++)
			add(o, b ? 'b' : 'a', ask[i]);
	}
	return true;
}

static void say(struct order *o, char deed, long ret, const char *what)
{
	size_t n = strlen(o->said);

	snprintf(o->said + n, sizeof(o->said) - n, " %c %ld%s%s", deed, ret, *what ? " " : "",
		 what);
}

static void take_step(struct order *o, char deed)
{
	struct linger reset = {1, 0};
	struct pollfd p = {o->fd, POLLIN | POLLOUT | POLLRDHUP, 0};
	int err = 0;
	socklen_t len = sizeof(err);
	char buf[64];
	long ret = 0;

	switch (deed) {
	case 'W': ret = send(o->fd, "w", 1, MSG_NOSIGNAL | MSG_DONTWAIT); break;
	case 'R': ret = recv(o->fd, buf, sizeof(buf), MSG_DONTWAIT); break;
	case 'D': ret = shutdown(o->fd, SHUT_RD); break;
	case 'S': ret = shutdown(o->fd, SHUT_WR); break;
	case 'X': ret = shutdown(o->fd, SHUT_RDWR); break;
	case 'P':
		ret = poll(&p, 1, 0);
		say(o, deed, ret, t_events((unsigned short)p.revents));
		return;
	case 'Q': say(o, deed, o->ready != 0, t_events(o->ready)); return;
	case 'E':
		ret = getsockopt(o->fd, SOL_SOCKET, SO_ERROR, &err, &len);
		say(o, deed, ret, err ? t_errno(err) : "");
		return;
	case 'L':
		setsockopt(o->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
		/* fall through */
	default: ret = close(o->fd); o->fd = -1;
	}
	say(o, deed, ret, ret < 0 ? t_errno(errno) : "");
}

static void write_down(struct t *t, struct order *o)
{
	char word[2 * STEPS + 1] = "";

	if (!*o->said)
		return;
	for (int i = 0; i < o->steps; i++) {
		word[2 * i] = o->end[i];
		word[2 * i + 1] = o->deed[i];
	}
	t_log(t, "%s:%s", word, o->said);
}

static void ask_set(int set, struct order *o, int n)
{
	struct epoll_event ev[AT_ONCE];
	int ready = epoll_wait(set, ev, n, 0);

	for (int i = 0; i < n; i++)
		o[i].ready = 0;
	for (int i = 0; i < ready; i++)
		o[ev[i].data.u32].ready = ev[i].events;
}

static void run_orders(struct t *t, struct order *o, int n)
{
	int fds[AT_ONCE], set = epoll_create1(0);

	t_open_many(t, fds, n);
	for (int i = 0; i < n; i++) {
		struct epoll_event ev = {EPOLLIN | EPOLLOUT | EPOLLRDHUP, {.u32 = (uint32_t)i}};

		o[i].fd = fds[i];
		epoll_ctl(set, EPOLL_CTL_ADD, fds[i], &ev);
	}
	for (int step = 0; step < STEPS; step++) {
		ask_set(set, o, n);
		for (int i = 0; i < n; i++)
			if (step < o[i].steps && o[i].end[step] == t->role)
				take_step(&o[i], o[i].deed[step]);
		t_sync(t);
		t_nap_ms(REST_MS);
	}
	for (int i = 0; i < n; i++) {
		write_down(t, &o[i]);
		if (o[i].fd >= 0)
			close(o[i].fd);
	}
	close(set);
	t_sync(t);
}

/* Orders of so many deeds: one of every so many, from the first on. */
static void orders(struct t *t, const char *deeds, int length, unsigned first, unsigned every)
{
	struct order *o = calloc(AT_ONCE, sizeof(*o));
	const unsigned kinds = (unsigned)strlen(deeds);
	unsigned all = kinds;
	int n = 0;

	for (int i = 1; i < length; i++)
		all *= 2 * kinds;
	for (unsigned number = first; number < all; number += every) {
		if (make_order(&o[n], deeds, number, length, first) && ++n == AT_ONCE) {
			run_orders(t, o, n);
			n = 0;
		}
	}
	if (n)
		run_orders(t, o, n);
	free(o);
}

static void two(struct t *t)
{
	orders(t, ending, 1, 0, 1);
	orders(t, ending, 2, 0, 1);
}

static void three(struct t *t)
{
	orders(t, ending, 3, 0, 1);
}

static void four(struct t *t)
{
	orders(t, ending, 4, 3, 17);
}

static void looked_at(struct t *t)
{
	orders(t, looking, 3, 1, 2);
}

const struct t_case t_orders_cases[] = {
	{"orders.two", two, two, 0, NULL},    {"orders.three", three, three, 0, NULL},
	{"orders.four", four, four, 0, NULL}, {"orders.looked_at", looked_at, looked_at, 0, NULL},
	{NULL, NULL, NULL, 0, NULL},
};
