/* SPDX-License-Identifier: MIT */
/* Members, routes, order, back-pressure, multicast, credits, and the load that a switch carries. */
#include "device/fabric_test.h"

#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SCALE 1
#else
#define SCALE 10
#endif

/* --- members ---------------------------------------------------------------------------- */

static void join_and_leave(void **state)
{
	struct net n = net_make();
	uint32_t nic = net_device(&n, TT_DEVICE_NIC, "nic");
	struct tt_member m[TT_OWN_PORT], more;

	assert_int_equal(tt_device_add(&n.admin, TT_DEVICE_NIC, "nic"), -EEXIST);
	assert_int_equal(tt_device_add(&n.admin, TT_DEVICE_NIC, ""), -EINVAL);
	assert_int_equal(tt_member_join(n.fabric, nic + 1, &more), -ENODEV);
	assert_int_equal(tt_member_join(n.fabric, TT_DEVICES, &more), -ENODEV);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < TT_OWN_PORT; i++)
			m[i] = net_member(&n, nic);
		assert_int_equal(tt_member_join(n.fabric, nic, &more), -ENOSPC);
		for (int i = 0; i < TT_OWN_PORT; i++) {
			assert_int_equal(net_send(&m[i], m[(i + 1) % TT_OWN_PORT].index, 1), 0);
			tt_member_leave(&m[i]);
		}
		net_assert_idle(&n);
	}
	net_destroy(&n);
}

/* A child that becomes a member, does something, and dies of it. Returns its number. */
static uint32_t one_that_died(struct net *n, uint32_t nic,
			      void (*before)(struct net *, struct tt_member *))
{
	int fd[2], status;
	uint32_t index;
	pid_t pid;

	assert_int_equal(pipe(fd), 0);
	pid = fork();
	if (!pid) {
		struct tt_fabric *fabric;
		struct tt_member me;

		if (tt_fabric_attach(n->fabric->fd, &fabric) || tt_member_join(fabric, nic, &me))
			_exit(1);
		before(n, &me);
		_exit(write(fd[1], &me.index, sizeof me.index) != sizeof me.index);
	}
	assert_int_equal(read(fd[0], &index, sizeof index), sizeof index);
	close(fd[0]);
	close(fd[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	return index;
}

static void dies_with_packets(struct net *n, struct tt_member *me)
{
	for (uint32_t i = 0; i < 20; i++)
		net_send(me, n->admin.index + 1, i);
	net_send(me, me->index, 1);
}

static void dies_as_driver(struct net *n, struct tt_member *me)
{
	(void)me;
	tt_device_take(me, (uint32_t)tt_device_find(n->fabric, "switch"));
}

static void the_dead_are_buried(void **state)
{
	struct net n = net_make();
	uint32_t nic = net_device(&n, TT_DEVICE_NIC, "nic"), dead;
	uint32_t sw = net_device(&n, TT_DEVICE_SWITCH, "switch");
	struct tt_member a = net_member(&n, nic), b, c;
	struct tt_packet_head head;

	dead = one_that_died(&n, nic, dies_with_packets);
	assert_false(tt_member_alive(n.fabric, dead));
	assert_true(tt_member_alive(n.fabric, a.index));
	assert_int_equal(tt_fabric_bury(&n.admin), 1);
	assert_int_equal(tt_fabric_bury(&n.admin), 0);
	for (uint32_t i = 0; i < 20; i++) {
		assert_true(net_receive(&a, &head));
		assert_int_equal(head.message, i);
	}
	assert_false(net_receive(&a, &head));
	net_assert_idle(&n);

	/* Somebody comes in the place of one that died with the device in hand: both live on. */
	dead = one_that_died(&n, nic, dies_as_driver);
	assert_int_equal(n.fabric->mem->devices[sw].driver, dead + 1);
	assert_int_equal(tt_fabric_bury(&n.admin), 1);
	b = net_member(&n, nic);
	assert_int_equal(b.index, dead);
	c = net_member(&n, sw);
	assert_int_equal(net_send(&c, c.index, 5), 0);
	assert_true(net_receive(&c, &head));
	tt_member_leave(&a);
	tt_member_leave(&b);
	tt_member_leave(&c);
	net_assert_idle(&n);
	net_destroy(&n);
}

/*
 * Who waits sleeps once when there is no reason to look; with packets of its own
 * in a device whose driver has died, however far, it finds that out.
 */
static void waits(void **state)
{
	struct net n = net_make();
	uint32_t nic[2] = {net_device(&n, TT_DEVICE_NIC, "nic0"),
			   net_device(&n, TT_DEVICE_NIC, "nic1")};
	uint32_t sw = net_device(&n, TT_DEVICE_SWITCH, "switch");
	struct tt_packet_head head;
	struct tt_member a, b;
	uint64_t *sleeps;

	net_connect(&n, nic[0], sw, 4);
	net_connect(&n, sw, nic[1], 4);
	a = net_member(&n, nic[0]);
	b = net_member(&n, nic[1]);
	sleeps = &n.fabric->mem->members[a.index].sleeps;
	assert_int_equal(tt_member_wait(&a, 0, 400 * 1000 * 1000), -ETIMEDOUT);
	assert_int_equal(*sleeps, 1);
	/* A packet that lies with its receiver is no reason. */
	assert_int_equal(net_send(&a, b.index, 1), 0);
	assert_int_equal(tt_member_wait(&a, 0, 400 * 1000 * 1000), -ETIMEDOUT);
	assert_int_equal(*sleeps, 2);
	assert_true(net_receive(&b, &head));

	one_that_died(&n, nic[1], dies_as_driver);
	assert_int_equal(net_send(&a, b.index, 2), 0);
	assert_false(net_receive(&b, &head));
	assert_int_equal(tt_member_wait(&a, 0, 1000 * 1000 * 1000), -ETIMEDOUT);
	assert_true(*sleeps <= 2 + 50 + 5);
	assert_true(net_receive(&b, &head));
	assert_int_equal(head.message, 2);
	assert_int_equal(tt_fabric_bury(&n.admin), 1);
	tt_member_leave(&a);
	tt_member_leave(&b);
	net_assert_idle(&n);
	net_assert_credits(&n);
	net_destroy(&n);
}

/* What is on its way to one that leaves is not for whoever gets its number. */
static void stale_packets(void **state)
{
	struct net n = net_make();
	uint32_t nic[2] = {net_device(&n, TT_DEVICE_NIC, "nic0"),
			   net_device(&n, TT_DEVICE_NIC, "nic1")};
	uint32_t sw = net_device(&n, TT_DEVICE_SWITCH, "switch");
	struct tt_packet_head head;
	struct tt_member a, b, c;
	unsigned sent = 0;

	net_connect(&n, nic[0], sw, 4);
	net_connect(&n, sw, nic[1], 4);
	a = net_member(&n, nic[0]);
	b = net_member(&n, nic[1]);
	/* Nobody drives the second NIC: packets stand in the switch, before it, and in it. */
	assert_true(tt_device_take(&n.admin, nic[1]));
	while (net_send(&a, b.index, sent) == 0)
		sent++;
	/* What is in the switch stays there until b's successor has come: time stands still. */
	n.fabric->mem->devices[sw].slot_ns = INT64_MAX;
	n.fabric->mem->devices[sw].last_slot = 0;
	tt_device_give(&n.admin, nic[1]);
	assert_true(sent > 64);
	tt_member_leave(&b);
	c = net_member(&n, nic[1]);
	assert_int_equal(c.index, b.index);
	n.fabric->mem->devices[sw].slot_ns = 0;
	net_drive_all(&n);
	for (unsigned i = 0; i < 300; i++) {
		if (net_receive(&c, &head))
			fail_msg("packet %u was for the one before", head.message);
		net_drive_all(&n);
	}
	while (net_send(&a, c.index, sent) != 0)
		net_drive_all(&n);
	net_drive_all(&n);
	assert_true(net_receive(&c, &head));
	assert_int_equal(head.message, sent);
	tt_member_leave(&a);
	tt_member_leave(&c);
	net_assert_idle(&n);
	net_assert_credits(&n);
	net_destroy(&n);
}

/* --- traffic ------------------------------------------------------------------------------ */

enum { MOST = 32 };

struct flows {
	uint32_t sent[TT_MEMBERS][TT_MEMBERS], seen[TT_MEMBERS][TT_MEMBERS];
};

static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525 + 1013904223;
	return *state >> 8;
}

static bool take_one_of_flow(struct flows *f, struct tt_member *m)
{
	struct tt_packet_head head;

	if (!net_receive(m, &head))
		return false;
	assert_int_equal(head.destination, m->index);
	assert_int_equal(head.message, f->seen[head.source][m->index]);
	f->seen[head.source][m->index]++;
	return true;
}

static bool send_one_of_flow(struct flows *f, struct tt_member *from, uint32_t to)
{
	int err = net_send(from, to, f->sent[from->index][to]);

	assert_true(err == 0 || err == -EAGAIN);
	if (!err)
		f->sent[from->index][to]++;
	return !err;
}

/* Until everything has arrived: what was sent, once, in order. */
static void drain(struct net *n, struct flows *f, struct tt_member *m, unsigned members)
{
	for (unsigned idle = 0; idle < 10;) {
		bool any = false;

		for (unsigned i = 0; i < members; i++) {
			while (take_one_of_flow(f, &m[i]))
				any = true;
			tt_device_drive(&m[i], m[i].device);
		}
		idle = any ? 0 : idle + 1;
	}
	for (unsigned i = 0; i < members; i++)
		for (unsigned j = 0; j < members; j++)
			if (f->seen[m[i].index][m[j].index] != f->sent[m[i].index][m[j].index])
				fail_msg("from %u to %u: %u of %u", m[i].index, m[j].index,
					 f->seen[m[i].index][m[j].index],
					 f->sent[m[i].index][m[j].index]);
	net_assert_idle(n);
	net_assert_credits(n);
}

/* NICs at the ends of a line of switches. */
static unsigned line_of_switches(struct net *n, unsigned switches, unsigned each, uint32_t window,
				 struct tt_member *m)
{
	static const char *const names[] = {"s0", "s1", "s2", "s3", "s4"};
	uint32_t nic[2] = {net_device(n, TT_DEVICE_NIC, "n0"), net_device(n, TT_DEVICE_NIC, "n1")};
	uint32_t last = nic[0];

	for (unsigned i = 0; i < switches; i++) {
		uint32_t sw = net_device(n, TT_DEVICE_SWITCH, names[i]);

		net_connect(n, last, sw, window);
		last = sw;
	}
	net_connect(n, last, nic[1], window);
	for (unsigned i = 0; i < 2 * each; i++)
		m[i] = net_member(n, nic[i % 2]);
	return 2 * each;
}

static void leave_all(struct net *n, struct tt_member *m, unsigned members)
{
	for (unsigned i = 0; i < members; i++)
		tt_member_leave(&m[i]);
	net_destroy(n);
}

/* All to all, at random, over several switches. */
static void over_switches(void **state)
{
	for (unsigned switches = 0; switches < 5; switches++) {
		struct net n = net_make();
		struct tt_member m[MOST];
		struct flows *f = calloc(1, sizeof *f);
		unsigned members = line_of_switches(&n, switches, 3, 1 + 16 * switches, m);
		uint32_t random = switches;

		for (int i = 0; i < 2000 * SCALE; i++) {
			struct tt_member *who = &m[next_random(&random) % members];

			if (next_random(&random) % 2)
				send_one_of_flow(f, who, m[next_random(&random) % members].index);
			else
				take_one_of_flow(f, who);
		}
		drain(&n, f, m, members);
		leave_all(&n, m, members);
		free(f);
	}
}

/*
 * Everybody sends until nothing more is taken, both ways, and nobody receives;
 * then they do. Whatever stands in whatever queue, it must get out again.
 */
static void full_queues(void **state)
{
	for (uint32_t window = 1; window <= TT_OWNER_SLOTS; window *= 2)
		for (unsigned switches = 0; switches < 4; switches += 3) {
			struct net n = net_make();
			struct tt_member m[MOST];
			struct flows *f = calloc(1, sizeof *f);
			unsigned members = line_of_switches(&n, switches, 12, window, m), stuck = 0;

			for (unsigned i = 0; stuck < 3 * members; i++) {
				struct tt_member *from = &m[i % members];

				stuck = send_one_of_flow(f, from, m[(i + 1) % 2].index) ? 0
											: stuck + 1;
			}
			drain(&n, f, m, members);
			leave_all(&n, m, members);
			free(f);
		}
}

/* Whoever does not receive holds up those that send to it, not what it sends itself. */
static void one_way_stands(void **state)
{
	struct net n = net_make();
	struct tt_member m[MOST];
	struct flows *f = calloc(1, sizeof *f);
	unsigned members = line_of_switches(&n, 2, 12, TT_OWNER_SLOTS, m);

	for (unsigned i = 0, stuck = 0; stuck < 3 * members; i++) {
		/* From the second NIC to the first one's first. */
		struct tt_member *from = &m[1 + 2 * (i % 12)];

		stuck = send_one_of_flow(f, from, m[0].index) ? 0 : stuck + 1;
	}
	for (unsigned i = 0; i < 1000; i++) {
		assert_true(send_one_of_flow(f, &m[0], m[1].index));
		tt_device_drive(&m[1], m[1].device);
		assert_true(take_one_of_flow(f, &m[1]));
	}
	drain(&n, f, m, members);
	leave_all(&n, m, members);
	free(f);
}

static void credits_of_all_windows(void **state)
{
	for (uint32_t window = 1; window <= 64; window++) {
		struct net n = net_make();
		struct tt_member m[MOST];
		struct flows *f = calloc(1, sizeof *f);
		unsigned members = line_of_switches(&n, 1, 2, window, m);

		for (unsigned i = 0; i < 300; i++)
			for (unsigned k = 0; k < members; k++)
				if (!send_one_of_flow(f, &m[k], m[(k + 1 + i % 2) % members].index))
					take_one_of_flow(f, &m[(k + i) % members]);
		drain(&n, f, m, members);
		/* One way only: nothing goes back that credits could ride on. */
		for (unsigned i = 0; i < 300; i++)
			while (!send_one_of_flow(f, &m[0], m[1].index))
				assert_true(take_one_of_flow(f, &m[1]));
		drain(&n, f, m, members);
		leave_all(&n, m, members);
		free(f);
	}
}

static void link_errors(void **state)
{
	struct net n = net_make();
	uint32_t nic = net_device(&n, TT_DEVICE_NIC, "nic"),
		 sw = net_device(&n, TT_DEVICE_SWITCH, "switch");

	assert_int_equal(tt_device_connect(&n.admin, nic, sw, 0), -EINVAL);
	assert_int_equal(tt_device_connect(&n.admin, nic, sw, TT_OWNER_SLOTS + 1), -EINVAL);
	assert_int_equal(tt_device_connect(&n.admin, nic, nic, 4), -EINVAL);
	assert_int_equal(tt_device_connect(&n.admin, nic, sw + 1, 4), -EINVAL);
	assert_int_equal(tt_device_connect(&n.admin, nic, TT_DEVICES, 4), -EINVAL);
	for (int i = 0; i < TT_OWN_PORT; i++)
		net_connect(&n, nic, sw, 1);
	assert_int_equal(tt_device_connect(&n.admin, nic, sw, 4), -ENOSPC);
	net_destroy(&n);
}

/* Each member of the group but the sender gets each packet once, in order. */
static void multicast(void **state)
{
	static const char *const names[] = {"n0", "n1", "n2", "n3"};
	struct net n = net_make();
	uint32_t sw = net_device(&n, TT_DEVICE_SWITCH, "switch");
	struct tt_member m[16];
	uint32_t seen[16] = {0}, sent = 0;
	uint8_t byte = 0;

	for (unsigned i = 0; i < 4; i++)
		net_connect(&n, net_device(&n, TT_DEVICE_NIC, names[i]), sw, 8);
	for (unsigned i = 0; i < 16; i++) {
		m[i] = net_member(&n, (uint32_t)tt_device_find(n.fabric, names[i % 4]));
		if (i % 3)
			assert_int_equal(tt_group_enter(&m[i], 7, true), 0);
	}
	assert_int_equal(tt_group_enter(&m[0], 0, true), -EINVAL);
	assert_int_equal(tt_group_enter(&m[0], TT_GROUPS, true), -EINVAL);
	for (unsigned round = 0; round < 1000 * SCALE; round++) {
		struct tt_packet_head head = {.group = 7,
					      .flags = TT_PACKET_MULTICAST,
					      .kind = TT_PACKET_DATA,
					      .bytes = 1,
					      .message = sent};

		if (tt_member_send(&m[1], &head, &byte) == 0)
			sent++;
		for (unsigned i = 0; i < 16; i++) {
			/* Some are slower than others. */
			if (round % (i + 1) && round + 200 < 1000 * SCALE)
				continue;
			while (tt_member_receive(&m[i], &head, &byte, 1) == 0) {
				assert_true(i % 3 && i != 1);
				assert_int_equal(head.message, seen[i]);
				seen[i]++;
			}
			tt_device_drive(&m[i], m[i].device);
		}
	}
	net_drive_all(&n);
	assert_true(sent > 500);
	for (unsigned i = 0; i < 16; i++) {
		struct tt_packet_head head;

		for (unsigned k = 0; k < 1000; k++) {
			if (tt_member_receive(&m[i], &head, &byte, 1) == 0) {
				assert_int_equal(head.message, seen[i]);
				seen[i]++;
			}
			net_drive_all(&n);
		}
		assert_int_equal(seen[i], i % 3 && i != 1 ? sent : 0);
	}
	net_assert_idle(&n);
	net_assert_credits(&n);
	leave_all(&n, m, 16);
}

/* --- load --------------------------------------------------------------------------------- */

static int64_t clock_ns;

static int64_t injected(void)
{
	return clock_ns;
}

/* Share of all slots of time in which an output got a packet; inputs always have some. */
static double load_of(bool fifo, unsigned ports, unsigned slots)
{
	struct net n = net_make();
	uint32_t sw = net_device(&n, TT_DEVICE_SWITCH, "switch"), random = 1;
	struct flows *f = calloc(1, sizeof *f);
	struct tt_member m[MOST];
	uint64_t delivered = 0;

	n.fabric->now_ns = injected;
	clock_ns = 0;
	for (unsigned i = 0; i < ports; i++)
		m[i] = net_member(&n, sw);
	assert_int_equal(tt_device_set_fifo(&n.admin, sw, fifo), 0);
	assert_int_equal(tt_device_set_slots(&n.admin, sw, 1), 0);
	for (unsigned slot = 0; slot < slots; slot++) {
		for (unsigned i = 0; i < ports; i++)
			while (send_one_of_flow(f, &m[i], m[next_random(&random) % ports].index))
				;
		clock_ns++;
		tt_device_drive(&m[0], sw);
		for (unsigned i = 0; i < ports; i++) {
			unsigned got = 0;

			while (take_one_of_flow(f, &m[i]))
				got++;
			assert_true(got <= 1);
			delivered += got;
		}
	}
	assert_int_equal(tt_device_set_slots(&n.admin, sw, 0), 0);
	drain(&n, f, m, ports);
	leave_all(&n, m, ports);
	free(f);
	return (double)delivered / slots / ports;
}

static void load_under_uniform_traffic(void **state)
{
	double out_of_order = load_of(false, 16, 1000 * SCALE),
	       fifo = load_of(true, 16, 1000 * SCALE);

	print_message("out of order %.3f, first in first out %.3f of full load\n", out_of_order,
		      fifo);
	assert_true(out_of_order >= 0.95);
	assert_true(fifo >= 0.55 && fifo <= 0.65);
}

/* --- threads ------------------------------------------------------------------------------ */

enum { THREADS = 4, PACKETS = 2000 * SCALE };

struct party {
	struct tt_member me;
	uint32_t to, from;
	uint32_t wrong;
};

static void *send_and_receive(void *arg)
{
	struct party *p = arg;
	uint32_t sent = 0, seen = 0;

	while (sent < PACKETS || seen < PACKETS) {
		struct tt_packet_head head = {.destination = p->to, .message = sent, .bytes = 4};
		uint32_t got;

		if (sent < PACKETS && tt_member_send(&p->me, &head, &sent) == 0)
			sent++;
		else if (tt_member_wait(&p->me, 1000, 1000000) == 0)
			while (tt_member_receive(&p->me, &head, &got, sizeof got) == 0)
				p->wrong += got != seen++ || head.source != p->from;
	}
	return NULL;
}

/* A ring of members, each a thread, each driving whatever it meets. */
static void threads(void **state)
{
	struct net n = net_make();
	struct tt_member m[MOST];
	unsigned members = line_of_switches(&n, 1, THREADS / 2, 16, m);
	struct party p[THREADS];
	pthread_t thread[THREADS];

	for (unsigned i = 0; i < members; i++)
		p[i] = (struct party){m[i], m[(i + 1) % members].index,
				      m[(i + members - 1) % members].index, 0};
	for (unsigned i = 0; i < members; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, send_and_receive, &p[i]), 0);
	for (unsigned i = 0; i < members; i++) {
		pthread_join(thread[i], NULL);
		assert_int_equal(p[i].wrong, 0);
	}
	net_drive_all(&n);
	net_assert_idle(&n);
	net_assert_credits(&n);
	for (unsigned i = 0; i < members; i++)
		m[i] = p[i].me;
	leave_all(&n, m, members);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(join_and_leave),
		cmocka_unit_test(the_dead_are_buried),
		cmocka_unit_test(waits),
		cmocka_unit_test(stale_packets),
		cmocka_unit_test(over_switches),
		cmocka_unit_test(full_queues),
		cmocka_unit_test(one_way_stands),
		cmocka_unit_test(credits_of_all_windows),
		cmocka_unit_test(link_errors),
		cmocka_unit_test(multicast),
		cmocka_unit_test(load_under_uniform_traffic),
		cmocka_unit_test(threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
