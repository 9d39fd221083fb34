/* SPDX-License-Identifier: MIT */
/*
 * tb-mcload: loads a memcached by its text protocol.
 *
 * N connections are dealt to T threads, each of which waits in epoll_wait; every connection has
 * one request under way. Of ten requests nine are gets, one is a set, by chance. All keys are set
 * beforehand, and a key's value is always the same, so the whole text of each answer is known; an
 * answer that differs in one byte ends the program. Requests and answers are made beforehand too:
 * what is measured is the server and the path, not this program's formatting.
 */
#include "common.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEYS 1000
#define KEY_FORMAT "key-%04u" /* all of one length */
#define SETS_IN 10
#define MAX_EVENTS 64
#define MAX_THREADS 64
#define LINE_BYTES 64

static const char usage[] = "--port P [--host A] [--connections N] [--threads N] [--size BYTES]\n"
			    "       [--seconds S] [--warmup REQUESTS] [--timeout S]";
static const char stored[] = "STORED\r\n";

/* Texts of one kind for all keys, each of them so long. */
struct texts {
	size_t len;
	char *all;
};

static struct texts gets, sets, values;

struct conn {
	int fd;
	const char *want; /* the answer; what is left of it */
	size_t left;
	uint64_t sent_ns;
};

struct worker {
	pthread_t thread;
	const struct tb_opts *o;
	struct conn *conns;
	int nconns, set;
	bool first;
	uint64_t random;
	uint64_t gets, sets, tx_bytes, rx_bytes; /* of all its life */
	uint64_t measured, elapsed_ns;
	struct tb_hist hist;
};

static pthread_barrier_t start_line;
static struct tb_usage start_usage;

/* Text number i of a kind, in order: a line that names the key, and the value behind it. */
static void make_text(struct texts *t, unsigned int i, const char *line, size_t value_bytes,
		      const char *tail)
{
	char *p;

	t->len = strlen(line) + value_bytes + strlen(tail);
	if (!t->all)
		t->all = malloc(KEYS * t->len + 1); /* 1: the last one's end */
	if (!t->all)
		tb_die("malloc");
	p = stpcpy(t->all + i * t->len, line);
	for (size_t k = 0; k < value_bytes; k++)
		*p++ = (char)('a' + (i + k * 7) % 26);
	strcpy(p, tail);
}

static void make_texts(size_t size_bytes)
{
	char line[LINE_BYTES];

	for (unsigned int i = 0; i < KEYS; i++) {
		snprintf(line, sizeof(line), "get " KEY_FORMAT "\r\n", i);
		make_text(&gets, i, line, 0, "");
		snprintf(line, sizeof(line), "set " KEY_FORMAT " 0 0 %zu\r\n", i, size_bytes);
		make_text(&sets, i, line, size_bytes, "\r\n");
		snprintf(line, sizeof(line), "VALUE " KEY_FORMAT " 0 %zu\r\n", i, size_bytes);
		make_text(&values, i, line, size_bytes, "\r\nEND\r\n");
	}
}

static void fill_cache(const struct tb_opts *o)
{
	char answer[sizeof(stored) - 1];
	int fd = tb_connect(o);

	for (unsigned int i = 0; i < KEYS; i++) {
		tb_write_all(fd, sets.all + i * sets.len, sets.len);
		if (!tb_read_all(fd, answer, sizeof(answer)) ||
		    memcmp(answer, stored, sizeof(answer)) != 0)
			tb_fail("the server did not store key %u: is it a memcached?", i);
	}
	close(fd);
}

/* xorshift64: good enough to choose keys, and nearly free. */
static uint64_t next_random(struct worker *w)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return w->random;
}

static void send_request(struct worker *w, struct conn *c)
{
	uint64_t r = next_random(w);
	size_t key = (size_t)(r % KEYS);
	bool set = (r >> 32) % SETS_IN == 0;
	const struct texts *t = set ? &sets : &gets;

	c->want = set ? stored : values.all + key * values.len;
	c->left = set ? sizeof(stored) - 1 : values.len;
	c->sent_ns = tb_now_ns();
	tb_write_all(c->fd, t->all + key * t->len, t->len);
	w->tx_bytes += t->len;
	if (set)
		w->sets++;
	else
		w->gets++;
}

/* Takes what is there; true when the answer is complete. */
static bool take_answer(struct worker *w, struct conn *c, char *buf, size_t buf_bytes)
{
	ssize_t n = read(c->fd, buf, buf_bytes);

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return false;
	if (n < 0)
		tb_die("read");
	if (!n)
		tb_fail("the server closed the connection");
	if ((size_t)n > c->left || memcmp(buf, c->want, (size_t)n) != 0)
		tb_fail("a wrong answer: %.*s", (int)(n < 200 ? n : 200), buf);
	w->rx_bytes += (uint64_t)n;
	c->want += n;
	c->left -= (size_t)n;
	return !c->left;
}

/* Requests on all connections, so many or for so long; returns how many there were. */
static uint64_t exchange(struct worker *w, char *buf, size_t buf_bytes, uint64_t count,
			 uint64_t end_ns, struct tb_hist *hist)
{
	struct epoll_event events[MAX_EVENTS];
	uint64_t done = 0;
	int under_way = w->nconns;

	for (int i = 0; i < w->nconns; i++)
		send_request(w, &w->conns[i]);
	while (under_way) {
		int n = tb_wait(w->set, events, MAX_EVENTS);

		for (int i = 0; i < n; i++) {
			struct conn *c = events[i].data.ptr;
			uint64_t now_ns;

			if (!take_answer(w, c, buf, buf_bytes))
				continue;
			now_ns = tb_now_ns();
			done++;
			if (hist)
				tb_hist_add(hist, now_ns - c->sent_ns);
			if (end_ns ? now_ns >= end_ns : done >= count)
				under_way--;
			else
				send_request(w, c);
		}
	}
	return done;
}

static void *run_worker(void *arg)
{
	struct worker *w = arg;
	size_t buf_bytes = values.len + 1; /* one more, to see an answer that is too long */
	char *buf = malloc(buf_bytes);
	uint64_t start_ns;

	w->set = epoll_create1(EPOLL_CLOEXEC);
	if (!buf || w->set < 0)
		tb_die("epoll_create1");
	for (int i = 0; i < w->nconns; i++) {
		struct epoll_event e = {.events = EPOLLIN, .data.ptr = &w->conns[i]};

		w->conns[i].fd = tb_connect(w->o);
		if (epoll_ctl(w->set, EPOLL_CTL_ADD, w->conns[i].fd, &e))
			tb_die("epoll_ctl");
	}
	exchange(w, buf, buf_bytes, w->o->warmup * (uint64_t)w->nconns, 0, NULL);
	pthread_barrier_wait(&start_line);
	if (w->first)
		tb_usage_get(&start_usage);
	start_ns = tb_now_ns();
	w->measured = exchange(w, buf, buf_bytes, 0, start_ns + (uint64_t)(w->o->seconds * 1e9),
			       &w->hist);
	w->elapsed_ns = tb_now_ns() - start_ns;
	for (int i = 0; i < w->nconns; i++)
		close(w->conns[i].fd);
	close(w->set);
	free(buf);
	return NULL;
}

/* Adds what a worker has counted to another's. */
static void add_worker(struct worker *sum, const struct worker *w)
{
	sum->gets += w->gets;
	sum->sets += w->sets;
	sum->tx_bytes += w->tx_bytes;
	sum->rx_bytes += w->rx_bytes;
	sum->measured += w->measured;
	if (w->elapsed_ns > sum->elapsed_ns)
		sum->elapsed_ns = w->elapsed_ns;
	for (unsigned int i = 0; i < TB_HIST_BUCKETS; i++)
		sum->hist.buckets[i] += w->hist.buckets[i];
	sum->hist.count += w->hist.count;
	if (w->hist.max_ns > sum->hist.max_ns)
		sum->hist.max_ns = w->hist.max_ns;
}

static void report(const struct tb_opts *o, const struct worker *sum)
{
	printf("{\"bench\":\"mcload\",\"connections\":%d,\"threads\":%d,\"requests\":%llu,"
	       "\"gets\":%llu,\"sets\":%llu,\"requests_per_s\":%.1f,\"elapsed_s\":%.6f,"
	       "\"p50_ns\":%.0f,\"p99_ns\":%.0f,\"p999_ns\":%.0f,\"max_ns\":%llu,"
	       "\"tx_bytes\":%llu,\"rx_bytes\":%llu",
	       o->connections, o->threads, (unsigned long long)sum->measured,
	       (unsigned long long)sum->gets, (unsigned long long)sum->sets,
	       (double)sum->measured * 1e9 / (double)sum->elapsed_ns, (double)sum->elapsed_ns / 1e9,
	       tb_hist_quantile(&sum->hist, 0.5), tb_hist_quantile(&sum->hist, 0.99),
	       tb_hist_quantile(&sum->hist, 0.999), (unsigned long long)sum->hist.max_ns,
	       (unsigned long long)sum->tx_bytes, (unsigned long long)sum->rx_bytes);
	tb_usage_print(&start_usage);
	puts("}");
}

int main(int argc, char **argv)
{
	struct tb_opts o = {.size_bytes = 100,
			    .warmup = 100,
			    .connections = 16,
			    .threads = 2,
			    .seconds = 1,
			    .cpu = -1};
	struct worker *workers, *sum;
	struct conn *conns;
	int given = 0;

	tb_name = "tb-mcload";
	tb_parse(&o, argc, argv, false, usage);
	if (!o.port || o.threads < 1 || o.threads > MAX_THREADS || o.connections < o.threads)
		tb_fail("a --port, --threads of 1 to %d and as many --connections are needed",
			MAX_THREADS);
	tb_allow_descriptors(o.connections + o.threads);
	make_texts(o.size_bytes);
	fill_cache(&o);
	workers = calloc((size_t)o.threads + 1, sizeof(*workers)); /* the last one: the sum */
	conns = calloc((size_t)o.connections, sizeof(*conns));
	if (!workers || !conns || pthread_barrier_init(&start_line, NULL, (unsigned int)o.threads))
		tb_die("calloc");
	for (int i = 0; i < o.threads; i++) {
		struct worker *w = &workers[i];

		w->o = &o;
		w->first = !i;
		w->random = 0x9e3779b97f4a7c15U * (uint64_t)(i + 1);
		w->conns = conns + given;
		w->nconns = (o.connections - given) / (o.threads - i);
		given += w->nconns;
		errno = pthread_create(&w->thread, NULL, run_worker, w);
		if (errno)
			tb_die("pthread_create");
	}
	sum = &workers[o.threads];
	for (int i = 0; i < o.threads; i++) {
		pthread_join(workers[i].thread, NULL);
		add_worker(sum, &workers[i]);
	}
	report(&o, sum);
	pthread_barrier_destroy(&start_line);
	free(conns);
	free(workers);
	free(values.all);
	free(sets.all);
	free(gets.all);
	return 0;
}
