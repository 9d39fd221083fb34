/* SPDX-License-Identifier: MIT */
/*
 * The checked variants of libc (__read_chk, __recv_chk, __recvfrom_chk, __poll_chk, ...), which
 * programs built with _FORTIFY_SOURCE call; this file alone is built so. The sizes are read from
 * volatile variables, or the compiler would choose the plain functions.
 */
#include "battery.h"

static volatile size_t ten = 10;
static volatile nfds_t one = 1;

static void checked_a(struct t *t)
{
	char buf[100];
	struct pollfd p[2] = {{t->fd, POLLIN, 0}};
	struct timespec ts = {2, 0};

	for (int i = 0; i < 4; i++) {
		t_sync(t);
		T(poll(p, one, 2000));
		T(ppoll(p, one, &ts, NULL));
		if (i == 0)
			TD(buf, read(t->fd, buf, ten));
		if (i == 1)
			TD(buf, recv(t->fd, buf, ten, 0));
		if (i == 2)
			TD(buf, recvfrom(t->fd, buf, ten, 0, NULL, NULL));
	}
	T(dprintf(t->fd, "number %zu", ten));
}

static void checked_b(struct t *t)
{
	char buf[100];

	for (int i = 0; i < 4; i++) {
		T(write(t->fd, "0123456789", 10));
		t_sync(t);
	}
	TD(buf, recv(t->fd, buf, 9, MSG_WAITALL));
}

const struct t_case t_fortify_cases[] = {
	{"fortify.checked", checked_a, checked_b, 0, NULL},
	{NULL, NULL, NULL, 0, NULL},
};
