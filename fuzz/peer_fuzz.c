/* SPDX-License-Identifier: MIT */
/*
 * peer_fuzz PORT SEED MILLISECONDS: a hostile peer.
 *
 * It attaches as any other process does (it runs under `tutti run`), makes connections to a victim
 * until they are accelerated, finds the links that it shares with it among its own mappings, and
 * writes what must not be there: single words, indices far out of range, flags, doors and bells
 * that do not exist, storage that is not its own, the header, everything at once; while its other
 * threads keep its connections busy, so that the victim looks at what was written.
 *
 * The layouts come from the headers of the library; nothing of it is linked. It may well break
 * itself: that is no finding. What it prints: "links N" and, at the end, "writes N".
 *
 * The same seed makes the same writes, but what they meet depends on timing.
 */
#include "stream/stream.h"
#include "ulc/link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS 4
#define MAX_LINKS 8

struct target {
	unsigned char *base;
	size_t bytes;
	struct tt_link_geometry g;
	/* Offsets of the two sides' waiters and windows, and of the chunks. */
	size_t waiters[2], windows[2], chunks;
};

static struct target targets[MAX_LINKS];
static int ntargets;
static uint64_t rng_state;
static unsigned long writes;

static uint64_t rng(void)
{
	rng_state ^= rng_state << 13;
	rng_state ^= rng_state >> 7;
	rng_state ^= rng_state << 17;
	return rng_state * 0x2545f4914f6cdd1dull;
}

static uint64_t below(uint64_t n)
{
	return rng() % n;
}

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* --- attaching --------------------------------------------------------------------------------- */

static int connect_to(int port)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	struct timeval limit = {0, 100000};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa))) {
		fprintf(stderr, "peer_fuzz: connect: %s\n", strerror(errno));
		exit(1);
	}
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	return fd;
}

static void warm_up(int fd)
{
	char buf[16] = "warm";

	for (int i = 0; i < 16; i++) {
		if (send(fd, buf, sizeof(buf), MSG_NOSIGNAL) != sizeof(buf) ||
		    recv(fd, buf, sizeof(buf), MSG_WAITALL) != sizeof(buf))
			return;
		usleep(1000);
	}
}

/* Keeps the victim reading and writing; whatever happens to it is our own fault. */
static void *traffic(void *arg)
{
	int fd = (int)(intptr_t)arg;
	static __thread char buf[40000];
	unsigned int turn = 0;

	for (;;) {
		size_t n = turn++ % 7 ? turn * 37 % 900 + 1 : sizeof(buf);

		if (send(fd, buf, n, MSG_NOSIGNAL) < 0 && errno != EAGAIN && errno != EINTR)
			break;
		if (recv(fd, buf, sizeof(buf), 0) < 0 && errno != EAGAIN && errno != EINTR)
			break;
	}
	return NULL;
}

static size_t page_up(size_t n)
{
	return (n + 4095) & ~(size_t)4095;
}

/* The order in link.h, each part on pages of its own. */
static void lay_out(struct target *x)
{
	size_t at = page_up(sizeof(struct tt_link_header));

	for (int i = 0; i < 2; i++) {
		x->waiters[i] = at;
		at = page_up(at + (size_t)x->g.nwaiters * sizeof(struct tt_waiter));
	}
	for (int i = 0; i < 2; i++) {
		x->windows[i] = at;
		at = page_up(at + (size_t)x->g.nslots * x->g.window_bytes);
	}
	x->chunks = at;
	if (at + (size_t)x->g.nchunks * x->g.chunk_bytes != x->bytes) {
		fputs("peer_fuzz: another layout than link.h says\n", stderr);
		exit(1);
	}
}

static void find_links(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];

	while (f && fgets(line, sizeof(line), f)) {
		struct target *x = &targets[ntargets];
		struct tt_link_header *h;
		unsigned long from, to;

		if (!strstr(line, "memfd:tutti-link") || !strstr(line, "rw-s") ||
		    ntargets == MAX_LINKS || sscanf(line, "%lx-%lx", &from, &to) != 2)
			continue;
		h = (void *)from;
		if (h->magic != TT_LINK_MAGIC)
			continue;
		x->base = (unsigned char *)from;
		x->bytes = to - from;
		x->g = h->geometry;
		lay_out(x);
		ntargets++;
	}
	if (f)
		fclose(f);
}

/* --- what is written --------------------------------------------------------------------------- */

/* Values at the edges of every check, and noise. */
static uint64_t nasty(uint64_t old)
{
	switch (below(14)) {
	case 0: return 0;
	case 1: return ~0ull;
	case 2: return old + 1;
	case 3: return old - 1;
	case 4: return old ^ 1ull << below(64);
	case 5: return old + below(1 << 20);
	case 6: return old - below(1 << 20);
	case 7: return old + (1ull << 31);
	case 8: return 1ull << below(64);
	case 9: return below(1024);
	case 10: return 0x7fffffffffffffffull;
	case 11: return 0x80000000ull;
	case 12: return old << 32 | old >> 32;
	default: return rng();
	}
}

static void write64(void *place)
{
	uint64_t *p = (uint64_t *)((uintptr_t)place & ~7ul);

	__atomic_store_n(p, nasty(__atomic_load_n(p, __ATOMIC_RELAXED)), __ATOMIC_RELAXED);
	writes++;
}

static void write32(void *place)
{
	uint32_t *p = (uint32_t *)((uintptr_t)place & ~3ul);

	__atomic_store_n(p, (uint32_t)nasty(__atomic_load_n(p, __ATOMIC_RELAXED)),
			 __ATOMIC_RELAXED);
	writes++;
}

static void write8(unsigned char *place)
{
	*place = (unsigned char)rng();
	writes++;
}

/* Slots that are in use are the low ones. */
static struct tt_stream_window *some_window(struct target *x, bool *ret_fits)
{
	uint64_t slot = below(8) ? below(CONNECTIONS * 2) : below(x->g.nslots);

	*ret_fits = slot < x->g.nslots && x->g.window_bytes >= sizeof(struct tt_stream_window);
	return (void *)(x->base + x->windows[below(2)] + slot * x->g.window_bytes);
}

static void write_positions(struct tt_stream_window *w)
{
	switch (below(5)) {
	case 0: write64(&w->tail); break;
	case 1: write64(&w->head); break;
	case 2: write64(&w->sw_pos); break;
	case 3: write64(&w->up_pos); break;
	case 4: /* torn: half of a word, then the other */
		write32((unsigned char *)&w->tail + 4 * below(2));
		break;
	}
}

/* Storage that is not ours to use: chunks out of range, leases of others. */
static void write_storage(struct tt_stream_window *w)
{
	write32(&w->sw_store);
	write64(&w->sw_pos);
	write32(&w->lease);
	__atomic_fetch_add(&w->sw_seq, 1, __ATOMIC_RELEASE);
	write64(&w->tail);
}

static void write_wait_line(struct tt_stream_window *w)
{
	struct tt_wait_line *l = &w->wait;

	switch (below(6)) {
	case 0: write32(&l->rx_flags); break;
	case 1: write32(&l->rx_bell[below(TT_WAIT_BELLS)]); break;
	case 2: write32(&l->rx_cq[below(TT_WAIT_CQS)]); break;
	case 3: write32(&l->tx_flags); break;
	case 4: write32(&l->tx_bell[below(TT_WAIT_BELLS)]); break;
	case 5: write32(&l->attached); break;
	}
	__atomic_store_n(below(2) ? &l->rx_flags : &l->tx_flags, (uint32_t)below(16),
			 __ATOMIC_RELEASE);
}

static void write_window(struct target *x)
{
	bool fits;
	struct tt_stream_window *w = some_window(x, &fits);

	if (!fits)
		return;
	switch (below(6)) {
	case 0: write_positions(w); break;
	case 1: write_storage(w); break;
	case 2: write_wait_line(w); break;
	case 3: write32(&w->flags); break;
	case 4: write32(&w->kicks); break;
	case 5: write32((unsigned char *)w + below(sizeof(*w))); break;
	}
}

static void write_waiter(struct target *x)
{
	struct tt_waiter *w = (void *)(x->base + x->waiters[below(2)]);

	w += below(4) ? below(8) % x->g.nwaiters : below(x->g.nwaiters);
	switch (below(3)) {
	case 0: write32(&w->armed); break;
	case 1: write32(&w->bell); break;
	case 2: write64(&w->bits[below(TT_LINK_MAX_SLOTS / 64)]); break;
	}
}

static void write_header(struct target *x)
{
	struct tt_link_header *h = (void *)x->base;

	if (below(4))
		write64(&h->free_chunks[below(TT_LINK_MAX_CHUNKS / 64)]);
	else
		write32(x->base + below(sizeof(*h)));
}

static void write_chunk(struct target *x)
{
	if (x->g.nchunks && x->g.chunk_bytes >= 64)
		for (int i = 0; i < 16; i++)
			write8(x->base + x->chunks + below((uint64_t)x->g.chunk_bytes * 4));
}

/* A whole piece at once, the windows in use above all. */
static void write_all_over(struct target *x)
{
	size_t start = below(3) ? x->windows[below(2)] : below(x->bytes - 4096);

	for (size_t i = 0; i < 512; i++)
		write64(x->base + (start + i * 8) % (x->bytes - 8));
}

/* Set for one run: a plan that mixes everything hides what one kind alone would find. */
static void write_by_plan(struct target *x, int plan)
{
	switch (plan) {
	case 0: write_window(x); break;
	case 1: write_waiter(x); break;
	case 2: write_header(x); break;
	case 3: write_chunk(x); break;
	case 4: write_all_over(x); break;
	case 5: write64(x->base + below(x->bytes - 8)); break;
	default: write_by_plan(x, (int)below(6)); break;
	}
}

static void attack(uint64_t until_ms)
{
	int plan = (int)below(9);
	uint64_t pause_us = (uint64_t[]){0, 1, 20, 300}[below(4)];

	while (now_ms() < until_ms) {
		for (uint64_t i = below(20); i < 20; i++)
			write_by_plan(&targets[below((uint64_t)ntargets)], plan);
		if (pause_us)
			usleep((useconds_t)below(pause_us) + 1);
	}
}

int main(int argc, char **argv)
{
	pthread_t thread;
	int fds[CONNECTIONS];

	if (argc != 4) {
		fputs("usage: peer_fuzz PORT SEED MILLISECONDS\n", stderr);
		return 2;
	}
	rng_state = strtoull(argv[2], NULL, 0) * 2 + 1;
	for (int i = 0; i < 20; i++)
		rng();
	alarm(60); /* it may have broken its own library */
	for (int i = 0; i < CONNECTIONS; i++) {
		fds[i] = connect_to(atoi(argv[1]));
		warm_up(fds[i]);
	}
	find_links();
	printf("links %d\n", ntargets);
	fflush(stdout);
	if (!ntargets)
		return 1;
	for (int i = 0; i < CONNECTIONS; i++)
		pthread_create(&thread, NULL, traffic, (void *)(intptr_t)fds[i]);
	attack(now_ms() + strtoull(argv[3], NULL, 0));
	printf("writes %lu\n", writes);
	fflush(stdout);
	_exit(0);
}
