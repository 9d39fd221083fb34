/* SPDX-License-Identifier: MIT */
/*
 * Streams, one instruction at a time: one end is stopped inside a call, after
 * every one of its instructions in turn, and there the other end does its
 * part, or the process dies and another goes on. So no race is left to luck.
 *
 * What the ends do is written in letters:
 *
 *   s  send little              r  receive some
 *   m  send 600 bytes           D  receive all
 *   L  send more than the       i  tt_stream_idle
 *      small ring is for
 *   F  send until it is full    w  tt_stream_writable
 *   c  reserve, commit nothing  v  reserve, commit something
 */
#include "base/step_test.h"
#include "stream/bench_test.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define NCHUNKS 3u
#define CHUNK 4096u

static unsigned char scratch[3 * CHUNK];

static ssize_t reserve(struct tt_bench *b, size_t want, bool use)
{
	struct iovec place[2];
	size_t n;
	int err = tt_stream_reserve(&b->out, &b->tx, want, place, &n);

	if (err < 0)
		return err;
	if (!use)
		n = 0;
	tt_bench_fill(place, tt_bench_bytes(b->sent), n);
	tt_stream_commit(&b->out, &b->tx, n);
	b->sent += n;
	return (ssize_t)n;
}

static ssize_t act(struct tt_bench *b, char letter)
{
	bool room;
	ssize_t n = 1;

	switch (letter) {
	case 's': return tt_bench_send(b, 20);
	case 'm': return tt_bench_send(b, 600);
	case 'L': return tt_bench_send(b, 1100);
	case 'F':
		while (n > 0)
			n = tt_bench_send(b, 3000);
		return n;
	case 'c':
	case 'v': return reserve(b, 1100, letter == 'v');
	case 'w': tt_stream_writable(&b->out, &b->tx); return 0;
	case 'r': return tt_bench_recv(b, scratch, 700, &room);
	case 'D':
		while (n > 0)
			n = tt_bench_recv(b, scratch, sizeof(scratch), &room);
		return n;
	default: tt_stream_idle(&b->in, &b->rx); return 0;
	}
}

static void play(struct tt_bench *b, const char *script)
{
	for (; *script; script++) {
		ssize_t n = act(b, *script);

		if (n < 0 && n != -EAGAIN && !b->err)
			b->err = (int)n;
	}
}

struct scene {
	const char *before, *stepped, *between;
};

struct call {
	struct tt_bench *b;
	const char *script;
};

static void play_call(void *arg)
{
	struct call *c = arg;

	play(c->b, c->script);
}

static struct tt_bench *set_up(const struct scene *sc, struct call *call, struct tt_step *step)
{
	struct tt_bench *b = tt_bench_make(NCHUNKS, CHUNK, 1);

	assert_non_null(b);
	play(b, sc->before);
	assert_int_equal(b->err, 0);
	*call = (struct call){b, sc->stepped};
	if (tt_step_begin(step, play_call, call) < 0) {
		print_message("tracing a child is not permitted here\n");
		tt_bench_destroy(b);
		return NULL;
	}
	return b;
}

static void verify(struct tt_bench *b, const struct scene *sc, unsigned at, unsigned lost)
{
	unsigned there = tt_link_free_chunks(b->link);

	if (b->err || b->sent != b->received || there > NCHUNKS || there + lost < NCHUNKS) {
		print_error("before %s, stepped %s, between %s, after instruction %u:\n",
			    sc->before, sc->stepped, sc->between, at);
		fail_msg("error %d, sent %llu, received %llu, %u chunks free", b->err,
			 (unsigned long long)b->sent, (unsigned long long)b->received, there);
	}
}

/* True: the call was over before instruction at. */
static bool interleave(const struct scene *sc, unsigned at, bool reset)
{
	struct call call;
	struct tt_step step;
	struct tt_bench *b = set_up(sc, &call, &step);

	if (!b)
		skip();
	bool over = !tt_step_run(&step, at);

	play(b, sc->between);
	assert_true(tt_step_finish(&step));
	if (reset) {
		/* Both ends close with whatever is on the way. */
		tt_stream_reset(b->link, 1);
		b->received = b->sent;
	} else {
		play(b, "smLDiLDisDi");
	}
	verify(b, sc, at, 0);
	tt_bench_destroy(b);
	return over;
}

/* Instructions from one stop to the next; the argument of the program. */
static unsigned stride = 11 * TT_STEP_STRIDE;

static void each_instruction(const struct scene *scenes, size_t n, bool reset)
{
	for (size_t i = 0; i < n; i++)
		for (unsigned at = (unsigned)i % stride; !interleave(&scenes[i], at, reset);
		     at += stride)
			assert_true(at < 100000);
}

#define count_of(a) (sizeof(a) / sizeof((a)[0]))

static const struct scene idle_scenes[] = {
	{"LD", "i", "s"},    {"LD", "i", "F"},	   {"LD", "i", "sL"},	{"LD", "i", "c"},
	{"LDi", "i", "sL"},  {"LDi", "i", "LL"},   {"LDi", "i", "ssF"}, {"LDi", "i", "vs"},
	{"LDisD", "i", "L"}, {"LDiLD", "i", "sL"}, {"mmw", "i", "s"},
};

static void test_receiver_idles(void **state)
{
	each_instruction(idle_scenes, count_of(idle_scenes), false);
}

static void test_receiver_idles_then_both_close(void **state)
{
	each_instruction(idle_scenes, 4, true);
}

static void test_receiver_reads(void **state)
{
	static const struct scene scenes[] = {
		{"s", "r", "L"},
		{"LDis", "r", "LL"},
		{"LDism", "r", "Fw"},
		{"mL", "r", "s"},
	};

	each_instruction(scenes, count_of(scenes), false);
}

static void test_sender_sends(void **state)
{
	static const struct scene scenes[] = {
		{"LD", "s", "Di"}, {"LD", "L", "Di"},  {"LDi", "L", "Di"}, {"LDis", "L", "Di"},
		{"m", "m", "Di"},  {"mmm", "w", "Di"}, {"LD", "c", "i"},   {"", "v", "Di"},
	};

	each_instruction(scenes, count_of(scenes), false);
}

/* ---- death ---- */

/* All that the two ends have: the bench, then the link. */
struct picture {
	size_t link_bytes;
	unsigned char bytes[];
};

static bool differs(const struct picture *p, const struct tt_bench *b)
{
	return memcmp(p->bytes, b, sizeof(*b)) != 0 ||
	       memcmp(p->bytes + sizeof(*b), b->link->hdr, p->link_bytes) != 0;
}

static void take(struct picture *p, const struct tt_bench *b)
{
	memcpy(p->bytes, b, sizeof(*b));
	memcpy(p->bytes + sizeof(*b), b->link->hdr, p->link_bytes);
}

static void put_back(const struct picture *p, struct tt_bench *b)
{
	memcpy(b, p->bytes, sizeof(*b));
	memcpy(b->link->hdr, p->bytes + sizeof(*b), p->link_bytes);
}

/* Another process of the side goes on from where the dead one was. */
static void go_on(struct tt_bench *b, const struct scene *sc, unsigned at)
{
	uint64_t sent = b->sent;

	tt_stream_tx_recover(&b->out, &b->tx);
	assert_in_range(b->tx.tail, sent, sent + 1100);
	assert_int_equal(b->tx.tail, tt_load_acquire(&b->out.tx->tail));
	b->sent = b->tx.tail;
	play(b, sc->between);
	play(b, "smLDisLDisDi");
	/* One that it had just taken may be lost to the link, no more. */
	verify(b, sc, at, 1);
}

/*
 * What a death leaves is what the memory holds: wherever that changed, the
 * others go on from it, and then it is put back for the next instruction.
 */
static void die_everywhere(const struct scene *sc)
{
	struct call call;
	struct tt_step step;
	struct tt_bench *b = set_up(sc, &call, &step);
	unsigned at = 0, deaths = 0;

	if (!b)
		skip();
	struct picture *p = calloc(1, sizeof(*p) + sizeof(*b) + b->link->bytes);

	assert_non_null(p);
	p->link_bytes = b->link->bytes;
	for (bool more = true; more; more = tt_step_run(&step, 1), at++)
		if (differs(p, b)) {
			take(p, b);
			go_on(b, sc, at);
			put_back(p, b);
			deaths++;
		}
	assert_true(deaths > 3);
	assert_true(tt_step_finish(&step));
	free(p);
	tt_bench_destroy(b);
}

static void test_sender_dies(void **state)
{
	static const struct scene scenes[] = {
		{"", "s", ""},	     {"LD", "s", ""},  {"LDi", "s", ""},
		{"", "L", "s"},	     {"m", "m", "D"},  {"LDi", "L", "LL"},
		{"LDis", "L", "Di"}, {"mmm", "w", ""}, {"LD", "v", ""},
	};

	for (size_t i = 0; i < count_of(scenes); i++)
		die_everywhere(&scenes[i]);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_receiver_idles),
		cmocka_unit_test(test_receiver_idles_then_both_close),
		cmocka_unit_test(test_receiver_reads),
		cmocka_unit_test(test_sender_sends),
		cmocka_unit_test(test_sender_dies),
	};

	if (argc > 1)
		stride = (unsigned)atoi(argv[1]);
	tt_bench_fill_pattern();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
