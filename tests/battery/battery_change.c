/* SPDX-License-Identifier: MIT */
/* The moment when a connection goes over to another path, with everything in flight. */
#include "battery.h"

/* Each begins at another point of the connection's life, so that some meet the moment itself. */
static void staged_a(struct t *t, int before)
{
	char c = 0;

	for (int i = 0; i < before; i++) {
		if (write(t->fd, &c, 1) != 1 || read(t->fd, &c, 1) != 1)
			t_log(t, "failed");
		c = (char)(c + 1);
	}
	t_send_all(t, t->fd, 100000, 1 + (size_t)before * 700, 1);
	t_recv_all(t, t->fd, 100000, 999);
	T(shutdown(t->fd, SHUT_WR));
	t_recv_all(t, t->fd, 1, 1);
}

static void staged_b(struct t *t, int before)
{
	char c;

	for (int i = 0; i < before; i++)
		if (read(t->fd, &c, 1) != 1 || write(t->fd, &c, 1) != 1)
			t_log(t, "failed");
	t_recv_all(t, t->fd, 100000, 10000);
	t_send_all(t, t->fd, 100000, 3333, 2);
	t_recv_all(t, t->fd, 1, 1);
	T(close(t->fd));
}

static void stages_a(struct t *t)
{
	for (int i = 0; i < 12; i++) {
		t->fd = t_open(t);
		staged_a(t, i);
		close(t->fd);
	}
}

static void stages_b(struct t *t)
{
	for (int i = 0; i < 12; i++) {
		t->fd = t_open(t);
		staged_b(t, i);
	}
}

/* Both write without waiting for each other, in small messages, for a while. */
static void *chatter(void *arg)
{
	struct t *t = arg;
	uint64_t pos = 0;
	char buf[256];

	for (int i = 0; i < 400; i++) {
		size_t n = (size_t)(i * 37) % sizeof(buf) + 1;

		t_fill(buf, n, pos, 9);
		if (write(t->fd, buf, n) != (ssize_t)n)
			t_log(t, "short");
		pos += n;
		if (i % 16 == 0)
			t_nap_ms(1);
	}
	t_log(t, "written %lu", (unsigned long)pos);
	shutdown(t->fd, SHUT_WR);
	return NULL;
}

static void both_talk(struct t *t)
{
	pthread_t thread = t_second(chatter, t);

	t_recv_pattern(t, t->fd, 9);
	t_join(thread);
}

/* One direction alone: the receiver never says a word. */
static void one_way_a(struct t *t)
{
	for (int i = 0; i < 40; i++) {
		if (write(t->fd, "tick", 4) != 4)
			t_log(t, "short");
		t_nap_ms(1);
	}
	t_send_all(t, t->fd, 200000, 100, 1);
	T(close(t->fd));
}

static void one_way_b(struct t *t)
{
	t_recv_all(t, t->fd, 160, 1000);
	t_recv_all(t, t->fd, 200000, 1000);
	t_recv_all(t, t->fd, 1, 1);
}

/* The receiver sleeps in one long read while the sender's direction goes over. */
static void asleep_a(struct t *t)
{
	char buf[8];

	t_sync(t);
	for (int i = 0; i < 30; i++) {
		T(write(t->fd, "x", 1));
		t_nap_ms(2);
	}
	T(read(t->fd, buf, 8));
}

static void asleep_b(struct t *t)
{
	char buf[30];

	t_sync(t);
	TD(buf, recv(t->fd, buf, 30, MSG_WAITALL));
	T(write(t->fd, "done", 4));
}

/* Unread bytes wait while many more come by the other path. */
static void waiting_a(struct t *t)
{
	T(write(t->fd, "first of all ", 13));
	for (int i = 0; i < 20; i++) {
		T(write(t->fd, ".", 1));
		t_nap_ms(2);
	}
	t_sync(t);
	t_sync(t);
}

static void waiting_b(struct t *t)
{
	char buf[100];
	int n = -1;

	t_sync(t);
	T(ioctl(t->fd, FIONREAD, &n));
	t_log(t, "FIONREAD %d", n);
	TD(buf, recv(t->fd, buf, 100, MSG_PEEK));
	TD(buf, recv(t->fd, buf, 15, 0));
	TD(buf, recv(t->fd, buf, 100, 0));
	T(recv(t->fd, buf, 100, MSG_DONTWAIT));
	t_sync(t);
}

const struct t_case t_change_cases[] = {
	{"change.stages", stages_a, stages_b, T_RAW | T_FAMILIES, NULL},
	{"change.both_talk", both_talk, both_talk, T_FAMILIES, NULL},
	{"change.one_way", one_way_a, one_way_b, 0, NULL},
	{"change.asleep", asleep_a, asleep_b, 0, NULL},
	{"change.waiting", waiting_a, waiting_b, 0, NULL},
	{NULL, NULL, NULL, 0, NULL},
};
