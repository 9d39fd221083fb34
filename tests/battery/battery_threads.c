/* SPDX-License-Identifier: MIT */
/* Several threads on one connection, and many threads that begin at once. */
#include "battery.h"

/* --- writers ----------------------------------------------------------------------------------- */

#define RECORD 512
#define RECORDS 300

struct writer {
	struct t *t;
	char mark;
};

static void *write_records(void *arg)
{
	struct writer *w = arg;
	char record[RECORD];

	memset(record, w->mark, sizeof(record));
	for (int i = 0; i < RECORDS; i++) {
		memcpy(record, &i, sizeof(i));
		if (write(w->t->fd, record, sizeof(record)) != sizeof(record))
			t_log(w->t, "short");
		if (i % 20 == 19)
			t_nap_ms(2); /* the reader keeps up: every record fits */
	}
	return NULL;
}

static void two_writers_a(struct t *t)
{
	struct writer w[3] = {{t, 'x'}, {t, 'y'}, {t, 'z'}};
	pthread_t thread[3];

	for (int i = 0; i < 3; i++)
		thread[i] = t_thread(write_records, &w[i]);
	for (int i = 0; i < 3; i++)
		t_join(thread[i]);
	T(shutdown(t->fd, SHUT_WR));
}

static void two_writers_b(struct t *t)
{
	int next[256] = {0}, torn = 0, order = 0;
	char record[RECORD];

	while (recv(t->fd, record, sizeof(record), MSG_WAITALL) == sizeof(record)) {
		unsigned char mark = (unsigned char)record[RECORD - 1];
		int number;

		for (size_t i = sizeof(number); i < sizeof(record); i++)
			if ((unsigned char)record[i] != mark) {
				torn++;
				break;
			}
		memcpy(&number, record, sizeof(number));
		order += number != next[mark]++;
	}
	t_log(t, "x %d y %d z %d, torn %d, out of order %d", next['x'], next['y'], next['z'], torn,
	      order);
}

/* --- readers ----------------------------------------------------------------------------------- */

struct reader {
	struct t *t;
	size_t got;
	unsigned int sum;
};

static void *read_some(void *arg)
{
	struct reader *r = arg;
	unsigned char buf[1000];
	ssize_t n;

	while ((n = read(r->t->fd, buf, sizeof(buf))) > 0) {
		r->got += (size_t)n;
		for (ssize_t i = 0; i < n; i++)
			r->sum += buf[i];
	}
	return NULL;
}

/* Each byte goes to one of them, and the end to both. */
static void two_readers_a(struct t *t)
{
	struct reader r[2] = {{t, 0, 0}, {t, 0, 0}};
	pthread_t thread[2];

	for (int i = 0; i < 2; i++)
		thread[i] = t_thread(read_some, &r[i]);
	for (int i = 0; i < 2; i++)
		t_join(thread[i]);
	t_log(t, "%zu bytes, sum %u", r[0].got + r[1].got, r[0].sum + r[1].sum);
}

static void two_readers_b(struct t *t)
{
	t_send_all(t, t->fd, 500000, 3001, 1);
	T(shutdown(t->fd, SHUT_WR));
}

struct asker {
	struct t *t;
	int fd;
	long wrong;
};

/* A reader that sleeps in read does not keep a writer out, whoever of them came first. */
static void *sleep_in_read(void *arg)
{
	struct t *t = arg;
	char buf[16] = "";

	TD(buf, read(t->fd, buf, sizeof(buf)));
	return NULL;
}

static void reader_sleeps_a(struct t *t)
{
	pthread_t thread = t_second(sleep_in_read, t);
	size_t n;

	t_settle();
	t_send_all(t, t->fd, 100000, 100000, 1);
	n = t_fill_up(t, t->fd, 2);
	T(send(t->fd, "x", 1, MSG_DONTWAIT));
	t_tell(t, (int)n);
	t_join(thread);
}

static void reader_sleeps_b(struct t *t)
{
	t_recv_all(t, t->fd, 100000, 9999);
	t_drain(t, t->fd, (size_t)t_hear(t), 2);
	T(write(t->fd, "wake up", 7));
}

static void *sleep_in_write(void *arg)
{
	struct t *t = arg;

	t_send_all(t, t->fd, 20000000, 1000000, 1);
	return NULL;
}

static void writer_sleeps_a(struct t *t)
{
	pthread_t thread = t_second(sleep_in_write, t);
	char buf[16];

	t_settle();
	TD(buf, read(t->fd, buf, sizeof(buf)));
	t_tell(t, 0);
	t_join(thread);
}

static void writer_sleeps_b(struct t *t)
{
	t_settle();
	t_settle();
	T(write(t->fd, "past it", 7));
	t_hear(t);
	t_recv_all(t, t->fd, 20000000, 65536);
}

/* --- closing under others ---------------------------------------------------------------------- */

static void shutdown_wakes_a(struct t *t)
{
	pthread_t thread = t_second(sleep_in_read, t);

	t_settle();
	T(shutdown(t->fd, SHUT_RD));
	t_join(thread);
}

static void shutdown_rdwr_wakes_a(struct t *t)
{
	pthread_t thread = t_second(sleep_in_read, t);

	t_settle();
	T(shutdown(t->fd, SHUT_RDWR));
	t_join(thread);
}

static void nothing_b(struct t *t)
{
	t_sync(t);
}

static void shutdown_wakes_synced_a(struct t *t)
{
	shutdown_wakes_a(t);
	t_sync(t);
}

static void shutdown_rdwr_wakes_synced_a(struct t *t)
{
	shutdown_rdwr_wakes_a(t);
	t_sync(t);
}

static void *sleep_in_poll(void *arg)
{
	struct t *t = arg;

	t_poll(t, t->fd, POLLIN | POLLRDHUP, 5000);
	return NULL;
}

static void shutdown_wakes_poll_a(struct t *t)
{
	pthread_t thread = t_second(sleep_in_poll, t);

	t_settle();
	T(shutdown(t->fd, SHUT_RD));
	t_join(thread);
	t_sync(t);
}

/* The descriptor is gone, the call that was in it goes on and gets its data. */
static void close_while_reading_a(struct t *t)
{
	pthread_t thread = t_second(sleep_in_read, t);

	t_settle();
	T(close(t->fd));
	t_settle();
	t_sync(t);
	t_join(thread);
}

static void close_while_reading_b(struct t *t)
{
	char buf[8];

	t_sync(t);
	T(write(t->fd, "late", 4));
	t_settle();
	T(recv(t->fd, buf, 8, 0)); /* nobody holds it any more: the end, or a reset */
}

/* A descriptor that another thread copies something onto is never closed in between. */
static void *copy_onto(void *arg)
{
	struct t *t = arg;
	int copy = dup(t->fd);

	for (int i = 0; i < 2000; i++)
		if (dup2(copy, t->fd) != t->fd)
			t_log(t, "dup2: %s", t_errno(errno));
	close(copy);
	return NULL;
}

static void dup_onto_a(struct t *t)
{
	pthread_t thread = t_second(copy_onto, t);
	int wrong = 0;
	char c = 'x';

	for (int i = 0; i < 20000; i++) {
		errno = 0;
		if (send(t->fd, &c, 1, 0) != 1 && !wrong++)
			t_log(t, "send %d: %s", i, t_errno(errno));
	}
	t_join(thread);
	T(shutdown(t->fd, SHUT_WR));
	t_log(t, "%d wrong", wrong);
}

static void dup_onto_b(struct t *t)
{
	size_t got = 0;
	char buf[1000];
	ssize_t r;

	while ((r = read(t->fd, buf, sizeof(buf))) > 0)
		got += (size_t)r;
	t_log(t, "%zu bytes, then %s", got, r < 0 ? t_errno(errno) : "the end");
}

/* A child that closes what a thread of its parent sleeps on really gives it up. */
static void fork_while_reading_a(struct t *t)
{
	pthread_t thread = t_second(sleep_in_read, t);
	pid_t child;

	t_settle();
	child = fork();
	if (child == 0) {
		close(t->fd);
		pause();
		_exit(0);
	}
	t_settle();
	T(close(t->fd));
	t_sync(t);
	t_join(thread);
	t_sync(t);
	kill(child, SIGKILL);
	t_wait_child(t, child);
}

static void fork_while_reading_b(struct t *t)
{
	struct timeval limit = {2, 0};
	char buf[8];

	setsockopt(t->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	t_sync(t);
	T(write(t->fd, "late", 4));
	T(recv(t->fd, buf, 8, 0));
	t_sync(t);
}

static void *write_blocked(void *arg)
{
	struct t *t = arg;
	char *buf = calloc(1, 64u << 20);
	ssize_t r = send(t->fd, buf, 64u << 20, MSG_NOSIGNAL);

	t_log(t, "send -> %s", r > 0 ? "a part" : t_errno(errno));
	r = send(t->fd, buf, 1, MSG_NOSIGNAL);
	t_log(t, "send -> %s", r > 0 ? "a part" : t_errno(errno));
	free(buf);
	return NULL;
}

static void shutdown_while_writing_a(struct t *t)
{
	pthread_t thread = t_second(write_blocked, t);

	t_nap_ms(80);
	T(shutdown(t->fd, SHUT_WR));
	t_join(thread);
	t_sync(t);
}

/* --- many at once ------------------------------------------------------------------------------ */

static void *ask_server(void *arg)
{
	struct asker *a = arg;
	char buf[64], in[64];

	a->fd = t_connect(a->t, a->t->fd);
	for (int i = 0; i < 50; i++) {
		t_fill(buf, sizeof(buf), (uint64_t)i, (unsigned int)a->fd);
		a->wrong += write(a->fd, buf, sizeof(buf)) != sizeof(buf);
		a->wrong += recv(a->fd, in, sizeof(in), MSG_WAITALL) != sizeof(in);
		a->wrong += memcmp(buf, in, sizeof(in)) != 0;
	}
	close(a->fd);
	return NULL;
}

static void *echo_thread(void *arg)
{
	int fd = (int)(long)arg;
	char buf[1000];
	ssize_t r;

	while ((r = read(fd, buf, sizeof(buf))) > 0)
		if (write(fd, buf, (size_t)r) != r)
			break;
	close(fd);
	return NULL;
}

#define ASKERS 12

/* The first sockets of the process, by many threads at the same moment. */
static void storm_a(struct t *t)
{
	struct asker a[ASKERS];
	pthread_t thread[ASKERS];
	struct t c = *t;
	long wrong = 0;

	c.fd = t_hear(t);
	for (int i = 0; i < ASKERS; i++) {
		a[i] = (struct asker){&c, -1, 0};
		thread[i] = t_thread(ask_server, &a[i]);
	}
	for (int i = 0; i < ASKERS; i++) {
		t_join(thread[i]);
		wrong += a[i].wrong;
	}
	t_log(t, "wrong: %ld", wrong);
}

static void storm_b(struct t *t)
{
	int port, listener = t_listen(t, &port);
	pthread_t thread[ASKERS];

	t_tell(t, port);
	for (int i = 0; i < ASKERS; i++)
		thread[i] = t_thread(echo_thread, (void *)(long)accept(listener, NULL, NULL));
	for (int i = 0; i < ASKERS; i++)
		t_join(thread[i]);
	t_log(t, "all clients left");
}

/* Threads open and close numbers while others use theirs. */
static void *churn(void *arg)
{
	struct asker *a = arg;

	for (int i = 0; i < 40; i++) {
		int fds[2], p[2];
		char buf[8];

		t_open_pair(a->t, &fds[0], &fds[1]);
		if (pipe(p))
			break;
		a->wrong += write(fds[0], "sock", 4) != 4 || write(p[1], "pipe", 4) != 4;
		a->wrong += read(fds[1], buf, 8) != 4 || memcmp(buf, "sock", 4);
		a->wrong += read(p[0], buf, 8) != 4 || memcmp(buf, "pipe", 4);
		close(fds[0]);
		close(p[0]);
		a->wrong += read(fds[1], buf, 8) != 0;
		close(fds[1]);
		close(p[1]);
	}
	return NULL;
}

static void churn_solo(struct t *t)
{
	struct t cold = *t;
	struct asker a[4];
	pthread_t thread[4];
	char buf[8];
	long wrong = 0;

	cold.warm = false;
	for (int i = 0; i < 4; i++) {
		a[i] = (struct asker){&cold, -1, 0};
		thread[i] = t_thread(churn, &a[i]);
	}
	for (int i = 0; i < 500; i++)
		wrong += write(t->fd, "mine", 4) != 4 || read(t->peer, buf, 8) != 4 ||
			 memcmp(buf, "mine", 4);
	for (int i = 0; i < 4; i++) {
		t_join(thread[i]);
		wrong += a[i].wrong;
	}
	t_log(t, "wrong: %ld", wrong);
}

/* A thread that is cancelled in read leaves nothing locked. */
static void cancel_a(struct t *t)
{
	pthread_t thread = t_second(sleep_in_read, t);
	char buf[8];

	t_settle();
	T(pthread_cancel(thread));
	t_log(t, "cancelled: %d", t_join(thread) == (long)PTHREAD_CANCELED);
	T(write(t->fd, "ask", 3));
	TD(buf, read(t->fd, buf, 8));
}

static void cancel_b(struct t *t)
{
	char buf[8];

	TD(buf, read(t->fd, buf, 8));
	T(write(t->fd, "answer", 6));
}

const struct t_case t_threads_cases[] = {
	{"threads.writers", two_writers_a, two_writers_b, 0, NULL},
	{"threads.readers", two_readers_a, two_readers_b, 0, NULL},
	{"threads.reader_sleeps", reader_sleeps_a, reader_sleeps_b, 0, NULL},
	{"threads.writer_sleeps", writer_sleeps_a, writer_sleeps_b, 0, NULL},
	{"threads.shutdown_wakes", shutdown_wakes_synced_a, nothing_b, 0, NULL},
	{"threads.shutdown_rdwr_wakes", shutdown_rdwr_wakes_synced_a, nothing_b, 0, NULL},
	{"threads.shutdown_wakes_poll", shutdown_wakes_poll_a, nothing_b, 0, NULL},
	{"threads.shutdown_while_writing", shutdown_while_writing_a, nothing_b, 0, NULL},
	{"threads.close_while_reading", close_while_reading_a, close_while_reading_b, 0, NULL},
	{"threads.dup_onto", dup_onto_a, dup_onto_b, 0, NULL},
	{"threads.fork_while_reading", fork_while_reading_a, fork_while_reading_b, 0, NULL},
	{"threads.storm", storm_a, storm_b, T_RAW | T_FAMILIES, NULL},
	{"threads.churn", churn_solo, NULL, T_SOLO, NULL},
	{"threads.cancel", cancel_a, cancel_b, 0, NULL},
	{NULL, NULL, NULL, 0, NULL},
};
