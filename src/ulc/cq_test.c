/* SPDX-License-Identifier: MIT */
/* Completion queues and bells: events that arrive, wake-ups that are not lost. */
#include "base/sys.h"
#include "ulc/chan.h"
#include "ulc/cq.h"
#include "ulc/link_test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cmocka.h>

#define ME 7u /* this side, for bells */
#define SLOTS 130u
#define HANG_MS 10000

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define EVENTS 20000u
#else
#define EVENTS 200000u
#endif

static struct tt_link *make_link(void)
{
	struct tt_link_geometry g = {
		.nslots = SLOTS, .window_bytes = 256, .nwaiters = 6, .nchunks = 0};
	struct tt_link *l;

	assert_int_equal(tt_link_make(&g, &l), 0);
	return l;
}

/* The peer's end of l, to whom our bells are those of side ME. */
static struct tt_link peer_of(const struct tt_link *l)
{
	struct tt_link p = tt_link_mirror(l);

	p.peer_id = ME;
	return p;
}

/* The wait line of slot that the peer of l looks at. */
static struct tt_wait_line *line_of(const struct tt_link *l, uint32_t slot)
{
	return tt_link_tx_window(l, slot);
}

static void listen_on(struct tt_link *l, uint32_t slot, int waiter)
{
	struct tt_wait_line *w = line_of(l, slot);

	tt_store_relaxed(&w->rx_cq[0], (uint16_t)waiter);
	tt_store_release(&w->rx_flags, (uint32_t)TT_WAIT_CQ);
	tt_store_release(&w->tx_flags, (uint32_t)TT_WAIT_CQ);
}

static int notify(struct tt_link *peer, uint32_t slot)
{
	return tt_chan_notify_data(peer, slot, tt_link_rx_window(peer, slot));
}

static bool rung(int fd)
{
	struct pollfd p = {fd, POLLIN, 0};

	return poll(&p, 1, 0) == 1;
}

struct seen {
	struct tt_link *l[256];
	uint32_t slot[256];
	int n;
};

static void see(void *arg, struct tt_link *l, uint32_t slot)
{
	struct seen *s = arg;

	s->l[s->n] = l;
	s->slot[s->n++] = slot;
}

/* ---- events ---- */

static void test_events_of_two_links(void **state)
{
	static const uint32_t slots[] = {0, 1, 63, 64, 127, 128, 129};
	struct tt_link *l[2] = {make_link(), make_link()};
	struct tt_link peer[2] = {peer_of(l[0]), peer_of(l[1])};
	struct seen s = {.n = 0};
	struct tt_cq cq;

	assert_int_equal(tt_cq_init(&cq, ME, 1), 0);
	for (int i = 0; i < 2; i++)
		for (uint32_t slot = 0; slot < SLOTS; slot++) {
			int w = tt_cq_attach(&cq, l[i]);

			assert_int_equal(w, 1);
			listen_on(l[i], slot, w);
		}
	assert_false(tt_cq_pending(&cq));
	assert_int_equal(tt_cq_poll(&cq, true, see, &s), 0);
	for (size_t k = 0; k < 7; k++)
		for (int i = 0; i < 2; i++) {
			assert_int_equal(notify(&peer[i], slots[k]), 0);
			assert_int_equal(notify(&peer[i], slots[k]), 0); /* once is enough */
		}
	assert_true(tt_cq_pending(&cq));
	assert_false(rung(cq.bell.fd)); /* nobody sleeps */
	assert_int_equal(tt_cq_poll(&cq, true, see, &s), 14);
	for (int n = 0; n < 14; n++) {
		assert_ptr_equal(s.l[n], l[n / 7]);
		assert_int_equal(s.slot[n], slots[n % 7]);
	}
	assert_false(tt_cq_pending(&cq));
	assert_int_equal(tt_cq_poll(&cq, true, see, &s), 0);
	tt_cq_fini(&cq);
	assert_int_equal(l[0]->my_waiters[1].owner, 0);
	tt_link_unmap(l[0]);
	tt_link_unmap(l[1]);
}

/* Of many links few are busy: the others' events come late, but come. */
static void test_cold_links_are_not_forgotten(void **state)
{
	enum { LINKS = 9 };
	struct tt_link *l[LINKS], peer[LINKS];
	struct tt_cq cq;

	assert_int_equal(tt_cq_init(&cq, ME, 1), 0);
	for (int i = 0; i < LINKS; i++) {
		l[i] = make_link();
		peer[i] = peer_of(l[i]);
		listen_on(l[i], 0, tt_cq_attach(&cq, l[i]));
	}
	for (int cold = 0; cold < LINKS; cold++) {
		int busy = (cold + 1) % LINKS, looks = 0;
		bool found = false;

		assert_int_equal(notify(&peer[cold], 0), 0);
		while (!found) {
			struct seen s = {.n = 0};

			assert_int_equal(notify(&peer[busy], 0), 0);
			assert_true(tt_cq_poll(&cq, false, see, &s) > 0);
			for (int n = 0; n < s.n; n++)
				found = found || s.l[n] == l[cold];
			assert_true(++looks < 100);
		}
		/* Nothing else to do: whatever is there is found at once. */
		struct seen s = {.n = 0};

		assert_int_equal(notify(&peer[cold], 0), 0);
		assert_int_equal(tt_cq_poll(&cq, false, see, &s), 1);
		assert_int_equal(tt_cq_poll(&cq, false, see, &s), 0);
		/* And by who asks for all. */
		s.n = 0;
		for (int i = 0; i < LINKS; i++)
			assert_int_equal(notify(&peer[i], 0), 0);
		assert_int_equal(tt_cq_poll(&cq, true, see, &s), LINKS);
	}
	tt_cq_fini(&cq);
	for (int i = 0; i < LINKS; i++)
		tt_link_unmap(l[i]);
}

static void test_room_and_data_events(void **state)
{
	struct tt_link *l = make_link();
	struct tt_link peer = peer_of(l);
	struct seen s = {.n = 0};
	struct tt_cq cq;

	assert_int_equal(tt_cq_init(&cq, ME, 1), 0);
	listen_on(l, 5, tt_cq_attach(&cq, l));
	line_of(l, 5)->rx_flags = 0;
	assert_int_equal(notify(&peer, 5), 0);
	assert_false(tt_cq_pending(&cq));
	assert_int_equal(tt_chan_notify_room(&peer, 5, tt_link_rx_window(&peer, 5)), 0);
	assert_int_equal(tt_cq_poll(&cq, true, see, &s), 1);
	assert_int_equal(s.slot[0], 5);
	tt_cq_fini(&cq);
	tt_link_unmap(l);
}

static void test_armed_queue_is_rung_once(void **state)
{
	struct tt_link *l = make_link();
	struct tt_link peer = peer_of(l);
	struct seen s = {.n = 0};
	struct tt_cq cq;

	assert_int_equal(tt_cq_init(&cq, ME, 1), 0);
	listen_on(l, 5, tt_cq_attach(&cq, l));
	tt_cq_arm(&cq);
	assert_int_equal(tt_cq_poll(&cq, true, see, &s), 0);
	assert_int_equal(notify(&peer, 5), 1);
	assert_true(rung(cq.bell.fd));
	tt_bell_reset(&cq.bell);
	assert_false(rung(cq.bell.fd));
	assert_int_equal(notify(&peer, 5), 0);
	assert_false(rung(cq.bell.fd)); /* rung already, not armed since */
	tt_cq_arm(&cq);
	tt_cq_disarm(&cq);
	assert_int_equal(notify(&peer, 5), 0);
	assert_false(rung(cq.bell.fd));
	tt_bell_reset(&cq.bell); /* does not block when silent */

	/* A link that joins while the queue is armed is armed too. */
	struct tt_link *late = make_link();
	struct tt_link late_peer = peer_of(late);

	tt_cq_arm(&cq);
	listen_on(late, 9, tt_cq_attach(&cq, late));
	assert_int_equal(notify(&late_peer, 9), 1);
	assert_true(rung(cq.bell.fd));
	tt_cq_fini(&cq);
	tt_link_unmap(l);
	tt_link_unmap(late);
}

/* A waiter that a dead process left behind has its events, and its arms, with it. */
static void test_waiter_starts_clean(void **state)
{
	struct tt_link *l = make_link();
	struct tt_cq cq;

	memset(l->my_waiters[1].bits, 0xff, sizeof(l->my_waiters[1].bits));
	l->my_waiters[1].armed = 1;
	assert_int_equal(tt_cq_init(&cq, ME, 33), 0);
	assert_int_equal(tt_cq_attach(&cq, l), 1);
	assert_false(tt_cq_pending(&cq));
	assert_int_equal(l->my_waiters[1].armed, 0);
	assert_int_equal(l->my_waiters[1].bell, 33);
	tt_cq_detach(&cq, l);
	assert_int_equal(tt_cq_attach(&cq, l), 1);
	tt_cq_fini(&cq);
	tt_link_unmap(l);
}

static void test_attach_fails_without_waiters(void **state)
{
	struct tt_link *l = make_link();
	struct tt_cq cq[6];

	for (uint32_t i = 0; i < 6; i++) {
		assert_int_equal(tt_cq_init(&cq[i], ME, i + 1), 0);
		assert_int_equal(tt_cq_attach(&cq[i], l), i < 5 ? (int)i + 1 : -EAGAIN);
	}
	for (uint32_t i = 0; i < 6; i++)
		tt_cq_fini(&cq[i]);
	tt_link_unmap(l);
}

static void test_hostile_bits_and_waiters(void **state)
{
	struct tt_link *l = make_link();
	struct tt_link peer = peer_of(l);
	struct seen s = {.n = 0};
	struct tt_cq cq;

	assert_int_equal(tt_cq_init(&cq, ME, 1), 0);
	assert_int_equal(tt_cq_attach(&cq, l), 1);
	memset(l->my_waiters[1].bits, 0xff, sizeof(l->my_waiters[1].bits));
	assert_int_equal(tt_cq_poll(&cq, true, see, &s), SLOTS);
	assert_int_equal(s.slot[SLOTS - 1], SLOTS - 1);

	/* Waiters that do not exist are nobody's: nothing is touched. */
	struct tt_wait_line *w = line_of(l, 3);
	static const uint16_t idx[] = {0, 6, 1024, 65535};

	w->rx_flags = TT_WAIT_CQ;
	for (int i = 0; i < 4; i++)
		w->rx_cq[i] = idx[i];
	size_t bytes = 6 * sizeof(struct tt_waiter);
	unsigned char before[6 * sizeof(struct tt_waiter)];

	memcpy(before, l->my_waiters, bytes);
	assert_int_equal(notify(&peer, 3), 0);
	assert_memory_equal(before, l->my_waiters, bytes);
	w->rx_flags = UINT32_MAX;
	w->rx_bell[0] = UINT32_MAX; /* unknown: somebody else must wake whoever it is */
	assert_int_equal(notify(&peer, 3), -ENOENT);
	assert_int_equal(w->rx_bell[0], 0);
	tt_cq_fini(&cq);
	tt_link_unmap(l);
}

/* ---- bells ---- */

static int fetched, fetch_fd;

static int fetch_it(uint32_t owner, uint32_t id)
{
	fetched++;
	if (owner != 9 || id >= 100000)
		return -ENOENT;
	return dup(fetch_fd);
}

static uint64_t rings_of(int fd)
{
	uint64_t n = 0;

	return read(fd, &n, sizeof(n)) == sizeof(n) ? n : 0;
}

static void test_bells_are_fetched_once(void **state)
{
	fetch_fd = eventfd(0, EFD_NONBLOCK);
	fetched = 0;
	assert_true(fetch_fd >= 0);
	assert_int_equal(tt_bell_ring(9, 4), -ENOENT); /* nobody to ask */
	tt_bell_set_fetch(fetch_it);
	for (int i = 0; i < 5; i++)
		assert_int_equal(tt_bell_ring(9, 4), 0);
	assert_int_equal(fetched, 1);
	assert_int_equal(rings_of(fetch_fd), 5);
	assert_int_equal(tt_bell_ring(8, 4), -ENOENT); /* the same number of another side */
	assert_int_equal(tt_bell_ring(9, 100000), -ENOENT);
	assert_int_equal(fetched, 3);
	assert_int_equal(rings_of(fetch_fd), 0);
	tt_bell_set_fetch(NULL);
	close(fetch_fd);
}

static int open_files(void)
{
	int n = 0;

	for (int fd = 0; fd < 20000; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void test_cache_makes_room(void **state)
{
	struct tt_bell own;
	int files = open_files();

	fetch_fd = eventfd(0, EFD_NONBLOCK);
	fetched = 0;
	tt_bell_set_fetch(fetch_it);
	assert_int_equal(tt_bell_open(&own, ME, 1), 0);
	for (uint32_t id = 101; id <= 2100; id++)
		assert_int_equal(tt_bell_ring(9, id), 0);
	assert_int_equal(fetched, 2000);
	assert_in_range(open_files() - files, 3, 2 + 256); /* the rest was closed */
	int before = fetched;

	for (uint32_t id = 101; id <= 2100; id++)
		assert_int_equal(tt_bell_ring(9, id), 0);
	assert_true(fetched > before); /* those that had gone came again */
	assert_int_equal(rings_of(fetch_fd), 4000);

	/* One's own bell stays, and works. */
	before = fetched;
	assert_int_equal(tt_bell_ring(ME, 1), 0);
	assert_int_equal(fetched, before);
	assert_true(rung(own.fd));
	tt_bell_close(&own);
	tt_bell_close(&own); /* allowed */
	assert_int_equal(tt_bell_ring(ME, 1), -ENOENT);
	tt_bell_set_fetch(NULL);
	close(fetch_fd);
}

static void count_own(void *arg, uint32_t owner, uint32_t id, int fd)
{
	*(uint32_t *)arg += owner == ME && id && fd >= 0;
}

static void test_learned_and_own_bells(void **state)
{
	struct tt_bell a, b;
	uint32_t own = 0;
	int fd = eventfd(0, EFD_NONBLOCK), copy = dup(fd);

	assert_int_equal(tt_bell_learn(11, 3, fd), 0);
	assert_int_equal(tt_bell_ring(11, 3), 0);
	assert_int_equal(rings_of(copy), 1);
	assert_int_equal(tt_bell_open(&a, ME, 1), 0);
	assert_int_equal(tt_bell_open(&b, ME, 2), 0);
	tt_bell_each_own(count_own, &own);
	assert_int_equal(own, 2);
	assert_true(tt_fd_is_internal(a.fd));
	assert_true(fcntl(a.fd, F_GETFD) & FD_CLOEXEC);
	tt_bell_close(&a);
	own = 0;
	tt_bell_each_own(count_own, &own);
	assert_int_equal(own, 1);
	tt_bell_forget_own(); /* as in the child of fork: it may still ring them */
	own = 0;
	tt_bell_each_own(count_own, &own);
	assert_int_equal(own, 0);
	assert_int_equal(tt_bell_ring(ME, 2), 0);
	assert_true(rung(b.fd));
	close(copy);
}

/* A full eventfd is loud enough; ringing it must not block. */
static void test_bell_rings_as_loud_as_it_can(void **state)
{
	struct tt_bell b;
	uint64_t most = UINT64_MAX - 1;

	assert_int_equal(tt_bell_open(&b, ME, 5), 0);
	assert_int_equal(write(b.fd, &most, sizeof(most)), sizeof(most));
	assert_int_equal(tt_bell_ring(ME, 5), 0);
	assert_true(rung(b.fd));
	tt_bell_close(&b);
}

/*
 * A peer names the bell. 0 is none; it must not be found in an empty place of
 * the cache, whose descriptor is 0 or one that was closed.
 */
static void test_bell_zero_is_none(void **state)
{
	struct tt_bell b;
	int saved = dup(0), zero = eventfd(0, EFD_NONBLOCK);

	assert_true(zero >= 0 && dup2(zero, 0) == 0);
	assert_int_equal(tt_bell_ring(0, 0), -ENOENT);
	assert_int_equal(tt_bell_open(&b, ME, 6), 0);
	tt_bell_close(&b);
	assert_int_equal(tt_bell_ring(ME, 0), -ENOENT);
	uint64_t rings = rings_of(0);

	dup2(saved, 0);
	close(saved);
	close(zero);
	assert_int_equal(rings, 0);
}

/* ---- no wake-up is lost ---- */

#define CHANNELS 3

/* In the channel's window, behind the wait line. */
struct counters {
	uint32_t published, taken, stop;
};

/*
 * Three channels on two links. The peer publishes on some of them, and waits
 * until that is taken: the next event would wake a sleeper that missed these.
 */
struct stress {
	struct tt_link peer[2];
	struct counters *c[CHANNELS];
	struct tt_cq cq;
	unsigned sleeps;
	int err;
};

static const struct {
	int link;
	uint32_t slot;
} channels[CHANNELS] = {{0, 3}, {1, 3}, {1, 4}};

static void take(void *arg, struct tt_link *l, uint32_t slot)
{
	struct stress *s = arg;
	int i = l == s->cq.links[0].link ? 0 : slot == 3 ? 1 : 2;

	if (slot != channels[i].slot)
		s->err = -EBADSLT;
	tt_store_release(&s->c[i]->taken, tt_load_acquire(&s->c[i]->published));
}

static bool await_taken(struct counters *c)
{
	for (uint32_t i = 1; tt_load_acquire(&c->taken) != c->published; i++) {
		if (tt_load_relaxed(&c->stop))
			return false;
		if (i % 1000 == 0)
			sched_yield();
		tt_pause();
	}
	return true;
}

static void *publish_all(void *arg)
{
	struct stress *s = arg;
	struct tt_rng rng = {1};

	for (uint32_t n = 1; n <= EVENTS; n++) {
		/* After pauses of all lengths, so that the queue is met at every step. */
		for (uint32_t k = tt_rng_below(&rng, n % 8 ? 600 : 8000); k > 0; k--)
			tt_compiler_barrier();
		uint32_t which = n == EVENTS ? 7 : 1 + tt_rng_below(&rng, 7);

		for (int i = 0; i < CHANNELS; i++) {
			if (!(which >> i & 1))
				continue;
			tt_store_release(&s->c[i]->published, n);
			if (notify(&s->peer[channels[i].link], channels[i].slot) < 0)
				tt_store_relaxed(&s->c[i]->stop, 1u);
		}
		for (int i = 0; i < CHANNELS; i++)
			if (!await_taken(s->c[i]))
				return NULL;
	}
	return NULL;
}

static bool all_taken(const struct stress *s)
{
	for (int i = 0; i < CHANNELS; i++)
		if (tt_load_relaxed(&s->c[i]->taken) != EVENTS)
			return false;
	return true;
}

static void consume_all(struct stress *s)
{
	struct pollfd p = {s->cq.bell.fd, POLLIN, 0};

	while (!s->err) {
		tt_cq_poll(&s->cq, true, take, s);
		if (all_taken(s))
			break;
		tt_cq_arm(&s->cq);
		if (tt_cq_poll(&s->cq, true, take, s) == 0) {
			s->sleeps++;
			if (poll(&p, 1, HANG_MS) != 1)
				s->err = -ETIMEDOUT;
			tt_bell_reset(&s->cq.bell);
		}
		tt_cq_disarm(&s->cq);
	}
	for (int i = 0; s->err && i < CHANNELS; i++)
		tt_store_relaxed(&s->c[i]->stop, 1u);
}

static void start(struct stress *s, struct tt_link *l[2])
{
	memset(s, 0, sizeof(*s));
	assert_int_equal(tt_cq_init(&s->cq, ME, 1), 0);
	for (int i = 0; i < 2; i++) {
		l[i] = make_link();
		s->peer[i] = peer_of(l[i]);
	}
	for (int i = 0; i < CHANNELS; i++) {
		struct tt_link *on = l[channels[i].link];

		s->c[i] = (void *)((char *)tt_link_rx_window(on, channels[i].slot) + 128);
		listen_on(on, channels[i].slot, tt_cq_attach(&s->cq, on));
	}
}

static void end(struct stress *s, struct tt_link *l[2])
{
	assert_int_equal(s->err, 0);
	for (int i = 0; i < CHANNELS; i++) {
		assert_int_equal(s->c[i]->stop, 0);
		assert_int_equal(s->c[i]->taken, EVENTS);
	}
	assert_true(s->sleeps > 100);
	tt_cq_fini(&s->cq);
	tt_link_unmap(l[0]);
	tt_link_unmap(l[1]);
}

static void test_no_wakeup_is_lost_between_threads(void **state)
{
	struct tt_link *l[2];
	struct stress s;
	pthread_t id;

	start(&s, l);
	assert_int_equal(pthread_create(&id, NULL, publish_all, &s), 0);
	consume_all(&s);
	pthread_join(id, NULL);
	end(&s, l);
}

static void test_no_wakeup_is_lost_between_processes(void **state)
{
	struct tt_link *l[2];
	struct stress s;
	int status;

	start(&s, l);
	pid_t child = fork();

	assert_true(child >= 0);
	if (child == 0) {
		tt_bell_forget_own();
		publish_all(&s);
		_exit(0);
	}
	consume_all(&s);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	end(&s, l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bell_zero_is_none),
		cmocka_unit_test(test_events_of_two_links),
		cmocka_unit_test(test_cold_links_are_not_forgotten),
		cmocka_unit_test(test_room_and_data_events),
		cmocka_unit_test(test_armed_queue_is_rung_once),
		cmocka_unit_test(test_waiter_starts_clean),
		cmocka_unit_test(test_attach_fails_without_waiters),
		cmocka_unit_test(test_hostile_bits_and_waiters),
		cmocka_unit_test(test_bells_are_fetched_once),
		cmocka_unit_test(test_cache_makes_room),
		cmocka_unit_test(test_learned_and_own_bells),
		cmocka_unit_test(test_bell_rings_as_loud_as_it_can),
		cmocka_unit_test(test_no_wakeup_is_lost_between_threads),
		cmocka_unit_test(test_no_wakeup_is_lost_between_processes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
