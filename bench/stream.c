/* SPDX-License-Identifier: MIT */
/*
 * tb-stream: the client writes blocks of one size as fast as it can, the server reads them.
 *
 * The rate is the receiver's, from the first bytes to the end of the stream: what was sent but has
 * not arrived counts for nothing. Content is checked by sample, cheaply enough not to be what is
 * measured: each block begins with its number and holds a known pattern otherwise; the receiver
 * looks at the number and one more word of the first and the last block that a read brought whole,
 * and of every block when blocks are large. Lost, doubled or displaced bytes shift all that follow,
 * so that the next sample finds them.
 */
#include "common.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MIN_BUFFER_BYTES 65536
#define LARGE_BLOCK_BYTES 4096
#define WORD_BYTES sizeof(uint64_t)

static const char usage[] = "server|client [--family tcp|unix] [--host A] [--port P] [--path S]\n"
			    "       [--size BYTES] [--seconds S | --bytes N] [--cpu N]\n"
			    "       [--start-at-ns T] [--timeout S]";

/* What a word of a block holds, whichever block it is; the first word is the block's number. */
static uint64_t pattern_word(size_t off_bytes)
{
	return off_bytes * 0x9e3779b97f4a7c15U + 0x5bd1e995U;
}

/*
 * How often to read the clock: a 64-byte write into a ring takes less time than a clock read, a
 * large one over TCP a thousand times more.
 */
static uint64_t writes_per_clock(size_t size_bytes)
{
	uint64_t n = (256U << 10) / size_bytes;

	return n > 1024 ? 1024 : n ? n : 1;
}

static uint64_t send_blocks(const struct tb_opts *o, int fd, char *block)
{
	uint64_t every = writes_per_clock(o->size_bytes), number = 0;
	uint64_t limit = o->bytes ? (o->bytes + o->size_bytes - 1) / o->size_bytes : UINT64_MAX;
	uint64_t end = o->bytes ? UINT64_MAX : tb_now_ns() + (uint64_t)(o->seconds * 1e9);

	while (number < limit) {
		for (uint64_t i = 0; i < every && number < limit; i++, number++) {
			if (o->size_bytes >= WORD_BYTES)
				memcpy(block, &number, WORD_BYTES);
			tb_write_all(fd, block, o->size_bytes);
		}
		if (tb_now_ns() >= end)
			break;
	}
	return number * o->size_bytes;
}

static void run_client(const struct tb_opts *o)
{
	int fd = tb_connect(o);
	char *block = malloc(o->size_bytes), end;
	struct tb_usage start;
	uint64_t sent;

	if (!block)
		tb_die("malloc");
	memset(block, 'x', o->size_bytes);
	for (size_t off = WORD_BYTES; off + WORD_BYTES <= o->size_bytes; off += WORD_BYTES) {
		uint64_t word = pattern_word(off);

		memcpy(block + off, &word, WORD_BYTES);
	}
	tb_wait_until(o->start_at_ns);
	tb_usage_get(&start);
	sent = send_blocks(o, fd, block);
	if (shutdown(fd, SHUT_WR))
		tb_die("shutdown");
	if (tb_read_all(fd, &end, 1))
		tb_fail("the server sent data");
	printf("{\"bench\":\"stream\",\"role\":\"client\",\"tx_bytes\":%llu,\"rx_bytes\":0",
	       (unsigned long long)sent);
	tb_usage_print(&start);
	puts("}");
	close(fd);
	free(block);
}

/* Checks block 'number', which lies at p; the second word it looks at moves from block to block. */
static void check_block(const char *p, size_t size_bytes, uint64_t number)
{
	size_t words = size_bytes / WORD_BYTES, off;
	uint64_t word;

	memcpy(&word, p, WORD_BYTES);
	if (word != number)
		tb_fail("block %llu carries number %llu", (unsigned long long)number,
			(unsigned long long)word);
	if (words < 2)
		return;
	off = (1 + number % (words - 1)) * WORD_BYTES;
	memcpy(&word, p + off, WORD_BYTES);
	if (word != pattern_word(off))
		tb_fail("block %llu is damaged at byte %zu", (unsigned long long)number, off);
}

/* Checks n bytes that begin at byte 'pos' of the stream. */
static void check_bytes(const char *buf, size_t n, uint64_t pos, size_t size_bytes)
{
	uint64_t first = (pos + size_bytes - 1) / size_bytes, past = (pos + n) / size_bytes;
	uint64_t step = 1;

	if (size_bytes < WORD_BYTES || first >= past)
		return;
	if (size_bytes < LARGE_BLOCK_BYTES && past - first > 1)
		step = past - first - 1;
	for (uint64_t i = first; i < past; i += step)
		check_block(buf + (i * size_bytes - pos), size_bytes, i);
}

static uint64_t receive(int fd, char *buf, size_t buf_bytes, size_t size_bytes,
			uint64_t *ret_begin_ns, uint64_t *ret_first_bytes)
{
	uint64_t pos = 0, begin_ns = 0, first_bytes = 0;

	for (;;) {
		ssize_t n = read(fd, buf, buf_bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			tb_die("read");
		if (!n)
			break;
		if (!begin_ns) {
			begin_ns = tb_now_ns();
			first_bytes = (uint64_t)n;
		}
		check_bytes(buf, (size_t)n, pos, size_bytes);
		pos += (uint64_t)n;
	}
	if (!begin_ns)
		tb_fail("the client sent nothing");
	*ret_begin_ns = begin_ns;
	*ret_first_bytes = first_bytes;
	return pos;
}

static void run_server(const struct tb_opts *o)
{
	size_t buf_bytes = o->size_bytes > MIN_BUFFER_BYTES ? o->size_bytes : MIN_BUFFER_BYTES;
	char *buf = malloc(buf_bytes);
	int listener = tb_listen(o, 1), fd = tb_accept(listener);
	uint64_t begin_ns, first_bytes, total;
	struct tb_usage start;
	double elapsed_s, rate;

	if (!buf)
		tb_die("malloc");
	memset(buf, 0, buf_bytes);
	tb_usage_get(&start);
	total = receive(fd, buf, buf_bytes, o->size_bytes, &begin_ns, &first_bytes);
	elapsed_s = (double)(tb_now_ns() - begin_ns) / 1e9;
	close(fd);
	close(listener);
	/* The clock began when the first piece was there already. */
	rate = (double)(total - first_bytes) / elapsed_s;
	printf("{\"bench\":\"stream\",\"role\":\"server\",\"size_bytes\":%zu,"
	       "\"bytes_per_s\":%.1f,\"messages_per_s\":%.1f,\"messages\":%llu,"
	       "\"elapsed_s\":%.6f,\"tx_bytes\":0,\"rx_bytes\":%llu",
	       o->size_bytes, rate, rate / (double)o->size_bytes,
	       (unsigned long long)(total / o->size_bytes), elapsed_s, (unsigned long long)total);
	tb_usage_print(&start);
	puts("}");
	free(buf);
}

int main(int argc, char **argv)
{
	struct tb_opts o = {.size_bytes = 65536, .seconds = 1, .cpu = -1};

	tb_name = "tb-stream";
	tb_parse(&o, argc, argv, true, usage);
	if (o.server)
		run_server(&o);
	else
		run_client(&o);
	return 0;
}
