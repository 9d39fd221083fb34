/* SPDX-License-Identifier: MIT */
/* Modules in devices. Argument: the folder of the objects of tests/device, "-": there is no clang. */
#include "device/instance.h"

#include "base/clock.h"
#include "device/fabric_test.h"

#include <pthread.h>
#include <stdio.h>

static const char *folder;

static struct tutti_vm_program *program_of(const char *name)
{
	static uint8_t elf[1 << 20];
	struct tutti_vm_program *program;
	struct tutti_vm_object *object;
	struct tutti_vm_error error;
	char path[1024];
	size_t bytes;
	FILE *file;

	snprintf(path, sizeof path, "%s/%s.o", folder, name);
	file = fopen(path, "rb");
	assert_non_null(file);
	bytes = fread(elf, 1, sizeof elf, file);
	fclose(file);
	if (tutti_vm_object_open(elf, bytes, &object, &error))
		fail_msg("%s: %s", name, error.text);
	if (tutti_vm_program_create(object, tt_module_env(), TUTTI_VM_JIT, &program, &error))
		fail_msg("%s: %s", name, error.text);
	tutti_vm_object_destroy(object);
	return program;
}

static int load_at(struct net *n, const char *name, const struct tt_binding *binding)
{
	struct tutti_vm_program *program = program_of(name);
	int instance = tt_instance_load(&n->admin, program, name, binding);

	tutti_vm_program_destroy(program);
	return instance;
}

static int load(struct net *n, const char *name, uint32_t device)
{
	struct tt_binding binding = {.device = device, .group = TT_ANY, .port = TT_ANY};

	return load_at(n, name, &binding);
}

/* A NIC with some members. */
static struct net make(uint32_t *ret_nic, struct tt_member *m, unsigned members)
{
	struct net n = net_make();

	assert_int_equal(tt_code_create(&n.fabric->code), 0);
	*ret_nic = net_device(&n, TT_DEVICE_NIC, "nic");
	for (unsigned i = 0; i < members; i++)
		m[i] = net_member(&n, *ret_nic);
	return n;
}

static void end(struct net *n, struct tt_member *m, unsigned members)
{
	struct tt_code *code = n->fabric->code;

	for (unsigned i = 0; i < members; i++)
		tt_member_leave(&m[i]);
	net_assert_idle(n);
	net_destroy(n);
	tt_code_destroy(code);
}

static int send_word(struct tt_member *from, uint32_t to, uint32_t message, uint32_t word)
{
	struct tt_packet_head head = {.destination = to,
				      .kind = TT_PACKET_DATA,
				      .message = message,
				      .bytes = sizeof word};

	return tt_member_send(from, &head, &word);
}

/* The word that came; ~0: none. */
static uint32_t word_at(struct tt_member *m, struct tt_packet_head *ret_head)
{
	uint32_t word[2] = {0};

	return tt_member_receive(m, ret_head, word, sizeof word) ? ~0u : word[0];
}

static void passing(void **state)
{
	struct tt_packet_head head;
	struct tt_member m[3];
	uint32_t nic;
	struct net n = make(&nic, m, 3);
	int drop = load(&n, "DROP", nic), other;

	assert_true(drop >= 0);
	for (uint32_t i = 0; i < 20; i++)
		assert_int_equal(send_word(&m[0], m[1].index, i, i), 0);
	for (uint32_t i = 0; i < 20; i += 2)
		assert_int_equal(word_at(&m[1], &head), i);
	assert_int_equal(word_at(&m[1], &head), ~0u);
	assert_int_equal(n.fabric->mem->instances[drop].runs, 20);
	assert_int_equal(n.fabric->mem->instances[drop].dropped, 10);
	assert_int_equal(tt_instance_unload(&n.admin, (uint32_t)drop), 0);
	assert_int_equal(tt_instance_unload(&n.admin, (uint32_t)drop), -ENOENT);

	/* Two, in their order. */
	drop = load(&n, "REWRITE", nic);
	other = load(&n, "TWICE", nic);
	assert_int_equal(send_word(&m[0], m[1].index, 1, 5), 0);
	assert_int_equal(word_at(&m[1], &head), (5 + 1000) * 2);
	assert_int_equal(tt_instance_unload(&n.admin, (uint32_t)drop), 0);
	assert_int_equal(send_word(&m[0], m[1].index, 1, 5), 0);
	assert_int_equal(word_at(&m[1], &head), 10);
	assert_int_equal(tt_instance_unload(&n.admin, (uint32_t)other), 0);

	drop = load(&n, "REDIRECT", nic);
	assert_int_equal(send_word(&m[0], m[1].index, 1, m[2].index), 0);
	assert_int_equal(word_at(&m[1], &head), ~0u);
	assert_int_equal(word_at(&m[2], &head), m[2].index);
	assert_int_equal(head.port, 77);
	assert_int_equal(head.source, m[0].index);
	assert_int_equal(send_word(&m[0], m[1].index, 1, 123456), 0);
	assert_int_equal(tt_instance_unload(&n.admin, (uint32_t)drop), 0);
	assert_int_equal(send_word(&m[0], m[1].index, 1, 3), 0);
	assert_int_equal(word_at(&m[1], &head), 3);
	end(&n, m, 3);
}

static void sending(void **state)
{
	struct tt_packet_head head;
	struct tt_member m[4];
	uint32_t nic;
	struct net n = make(&nic, m, 4);
	int instance = load(&n, "REPLY", nic);

	for (uint32_t i = 0; i < 1000; i++) {
		assert_int_equal(send_word(&m[0], m[1].index, i, 0), 0);
		assert_int_equal(word_at(&m[0], &head), i);
		assert_int_equal(head.port, 5);
		assert_int_equal(head.bytes, 8);
		assert_int_equal(head.source, TT_MEMBERS + nic);
	}
	/* Nobody takes the replies: the device runs out of room, not over. */
	for (uint32_t i = 0; i < 1000; i++)
		send_word(&m[0], m[1].index, i, 0);
	for (uint32_t i = 0; i < 64; i++)
		assert_int_equal(word_at(&m[0], &head), i);
	while (word_at(&m[0], &head) != ~0u)
		tt_device_drive(&m[0], nic);
	assert_int_equal(word_at(&m[1], &head), ~0u);
	assert_int_equal(tt_instance_unload(&n.admin, (uint32_t)instance), 0);

	instance = load(&n, "SPREAD", nic);
	for (int i = 1; i < 4; i++)
		assert_int_equal(tt_group_enter(&m[i], 7, true), 0);
	for (uint32_t i = 0; i < 1000; i++) {
		assert_int_equal(send_word(&m[0], m[1].index, i, 0), 0);
		assert_int_equal(word_at(&m[0], &head), ~0u);
		for (int k = 1; k < 4; k++) {
			assert_int_equal(word_at(&m[k], &head), i);
			assert_int_equal(word_at(&m[k], &head), ~0u);
		}
	}
	end(&n, m, 4);
}

static void binding(void **state)
{
	struct tt_packet_head head = {.bytes = 4, .group = 3, .port = 9, .message = 1};
	static const struct {
		uint32_t group, port;
		bool seen;
	} cases[] = {
		{TT_ANY, TT_ANY, true}, {3, TT_ANY, true},  {TT_ANY, 9, true}, {3, 9, true},
		{4, TT_ANY, false},	{TT_ANY, 8, false}, {3, 8, false},     {4, 9, false},
	};
	struct tt_member m[2];
	uint32_t nic, word = 1;
	struct net n = make(&nic, m, 2);

	head.destination = m[1].index;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct tt_binding b = {
			.device = nic, .group = cases[i].group, .port = cases[i].port};
		int instance = load_at(&n, "DROP", &b);
		struct tt_packet_head got;

		assert_int_equal(tt_member_send(&m[0], &head, &word), 0);
		assert_int_equal(word_at(&m[1], &got), cases[i].seen ? ~0u : 1u);
		assert_int_equal(tt_instance_unload(&n.admin, (uint32_t)instance), 0);
	}
	end(&n, m, 2);
}

static void maps(void **state)
{
	struct tt_packet_head head;
	struct tt_map map;
	struct tt_member m[2];
	uint32_t nic;
	struct net n = make(&nic, m, 2);
	int instance = load(&n, "COUNT", nic);

	for (uint32_t i = 0; i < 30; i++) {
		assert_int_equal(send_word(&m[i % 2], m[1].index, i % 3, 0), 0);
		word_at(&m[1], &head);
	}
	assert_int_equal(tt_instance_map(&n.admin, (uint32_t)instance, "none", &map), -ENOENT);
	assert_int_equal(tt_instance_map(&n.admin, 63, "counts", &map), -ENOENT);
	assert_int_equal(tt_instance_map(&n.admin, TT_INSTANCES, "counts", &map), -ENOENT);
	assert_int_equal(tt_instance_map(&n.admin, (uint32_t)instance, "counts", &map), 0);
	for (uint32_t key = 0; key < 3; key++)
		assert_int_equal(*(uint64_t *)tt_map_find(&map, &key), 10);
	for (uint32_t key = 3; key < 4; key++)
		assert_int_equal(*(uint64_t *)tt_map_find(&map, &key), 130);
	assert_int_equal(tt_instance_map(&n.admin, (uint32_t)instance, "sources", &map), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(*(uint64_t *)tt_map_find(&map, &m[i].index), 15);
	/* What the host writes the module sees. */
	assert_int_equal(tt_map_set(&map, &m[0].index, &(uint64_t){1000}), 0);
	assert_int_equal(send_word(&m[0], m[1].index, 0, 0), 0);
	assert_int_equal(*(uint64_t *)tt_map_find(&map, &m[0].index), 1001);

	/* A second one of the same program has maps and data of its own, as at the start. */
	assert_int_equal(tt_instance_unload(&n.admin, (uint32_t)instance), 0);
	instance = load(&n, "COUNT", nic);
	assert_int_equal(tt_instance_map(&n.admin, (uint32_t)instance, "counts", &map), 0);
	assert_int_equal(send_word(&m[0], m[1].index, 0, 0), 0);
	assert_int_equal(*(uint64_t *)tt_map_find(&map, &(uint32_t){3}), 101);
	end(&n, m, 2);
}

static void faults(void **state)
{
	struct tt_packet_head head;
	struct tt_member m[2];
	uint32_t nic;
	struct net n = make(&nic, m, 2);
	int instance = load(&n, "FAULT", nic), good = load(&n, "REWRITE", nic);
	const struct tt_instance_mem *i = &n.fabric->mem->instances[instance];

	assert_int_equal(send_word(&m[0], m[1].index, 1, 1), 0);
	assert_int_equal(word_at(&m[1], &head), ~0u);
	/* After a fault the packet goes on, by the others. */
	for (uint32_t k = 1; k < TT_QUARANTINE_FAULTS; k++) {
		assert_int_equal(send_word(&m[0], m[1].index, 1000 + k, k), 0);
		assert_int_equal(word_at(&m[1], &head), 1000 + k);
		assert_int_equal(i->faults, k);
		assert_int_equal(i->fault, TUTTI_VM_FAULT_WRITE);
		assert_int_equal(i->fault_address,
				 tutti_vm_address(TUTTI_VM_PACKET) + (1000 + k) * 4096);
		assert_int_equal(i->state, TT_INSTANCE_RUNNING);
	}
	assert_int_equal(send_word(&m[0], m[1].index, 2000, 7), 0);
	assert_int_equal(i->state, TT_INSTANCE_QUARANTINED);
	assert_int_equal(word_at(&m[1], &head), 1007);
	/* It would drop this one. */
	assert_int_equal(send_word(&m[0], m[1].index, 1, 8), 0);
	assert_int_equal(word_at(&m[1], &head), 1008);
	assert_int_equal(i->runs, 1 + TT_QUARANTINE_FAULTS);
	assert_int_equal(tt_instance_unload(&n.admin, (uint32_t)instance), 0);
	assert_int_equal(tt_instance_unload(&n.admin, (uint32_t)good), 0);

	/* One that does not end. */
	instance = load(&n, "LOOP", nic);
	i = &n.fabric->mem->instances[instance];
	for (uint32_t k = 0; k < 20; k++) {
		assert_int_equal(send_word(&m[0], m[1].index, k, k), 0);
		assert_int_equal(word_at(&m[1], &head), k);
	}
	assert_int_equal(i->fault, TUTTI_VM_FAULT_BUDGET);
	assert_int_equal(i->state, TT_INSTANCE_QUARANTINED);
	assert_int_equal(i->faults, TT_QUARANTINE_FAULTS);
	end(&n, m, 2);
}

static void errors(void **state)
{
	struct tutti_vm_program *program = program_of("DROP");
	struct tt_member m[1];
	uint32_t nic;
	struct net n = make(&nic, m, 1);
	struct tt_binding b = {.device = nic, .group = TT_ANY, .port = TT_ANY}, wrong = b;
	struct tt_code *code = n.fabric->code;
	int big[3];

	assert_int_equal(load(&n, "NO_HANDLER", nic), -ENOENT);
	assert_int_equal(load(&n, "MAP_KIND", nic), -EINVAL);
	assert_int_equal(load(&n, "MAP_LARGE", nic), -E2BIG);
	assert_int_equal(load(&n, "DROP", nic + 1), -ENODEV);
	assert_int_equal(load(&n, "DROP", TT_DEVICES), -ENODEV);
	assert_int_equal(tt_instance_load(&n.admin, program, "", &b), -EINVAL);
	assert_int_equal(tt_instance_load(&n.admin, program, "a name that is too long for it", &b),
			 0);
	assert_int_equal(tt_instance_unload(&n.admin, 0), 0);
	assert_int_equal(
		tt_instance_load(&n.admin, program, "a name that is longer than it may be", &b),
		-EINVAL);
	wrong.budget = TT_MOST_BUDGET + 1ull;
	assert_int_equal(tt_instance_load(&n.admin, program, "x", &wrong), -EINVAL);
	n.fabric->code = NULL;
	assert_int_equal(tt_instance_load(&n.admin, program, "x", &b), -EPERM);
	n.fabric->code = code;
	assert_int_equal(tt_instance_unload(&n.admin, 0), -ENOENT);
	assert_int_equal(tt_instance_unload(&n.admin, TT_INSTANCES), -ENOENT);
	/* Somebody drives all the time: nothing is left behind, however often. */
	n.fabric->mem->devices[nic].driver = m[0].index + 1;
	assert_int_equal(tt_instance_load(&n.admin, program, "x", &b), -EAGAIN);
	n.fabric->mem->devices[nic].driver = 0;
	for (uint32_t i = 0; i < TT_INSTANCES; i++)
		assert_int_equal(n.fabric->mem->instances[i].state, TT_INSTANCE_FREE);
	for (uint32_t i = 0, none = 1; i < 256; i++) {
		uint64_t serial;

		none = none && !tt_code_image(code, i, &serial);
		assert_true(none);
	}
	tutti_vm_program_destroy(program);

	/* 32 million bytes each, of 67 million. */
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < 3; i++)
			big[i] = load(&n, "BIG", nic);
		assert_true(big[0] >= 0 && big[1] >= 0);
		assert_int_equal(big[2], -ENOSPC);
		assert_int_equal(send_word(&m[0], m[0].index, 1, 1), 0);
		for (int i = 0; i < 2; i++) {
			struct tt_map map;

			assert_int_equal(tt_instance_map(&n.admin, (uint32_t)big[i], "big", &map),
					 0);
			assert_int_equal(*(uint64_t *)tt_map_find(&map, &(uint32_t){3999999}), 1);
			assert_int_equal(*(uint64_t *)tt_map_find(&map, &(uint32_t){3999998}), 0);
			assert_int_equal(tt_instance_unload(&n.admin, (uint32_t)big[i]), 0);
		}
	}
	end(&n, m, 1);
}

static void many(void **state)
{
	struct tt_packet_head head;
	struct tt_member m[2];
	uint32_t nic;
	struct net n = make(&nic, m, 2);

	for (int round = 0; round < 8; round++) {
		for (uint32_t i = 0; i < TT_INSTANCES; i++)
			assert_int_equal(load(&n, i % 2 ? "COUNT" : "REWRITE", nic), (int)i);
		assert_int_equal(load(&n, "DROP", nic), -ENOSPC);
		assert_int_equal(send_word(&m[0], m[1].index, 1, 0), 0);
		assert_int_equal(word_at(&m[1], &head), 1000 * TT_INSTANCES / 2);
		for (uint32_t i = 0; i < TT_INSTANCES; i++)
			assert_int_equal(tt_instance_unload(&n.admin, i), 0);
	}
	end(&n, m, 2);
}

/* --- packets that several have ------------------------------------------------------------- */

static void spread(struct tt_member *from, uint32_t message)
{
	struct tt_packet_head head = {.group = 7,
				      .flags = TT_PACKET_MULTICAST,
				      .kind = TT_PACKET_DATA,
				      .message = message,
				      .bytes = 4};

	while (tt_member_send(from, &head, &message) != 0)
		;
}

/* Behind one NIC packets are rewritten: behind the other, and before, they are what they were. */
static void copy_on_write(void **state)
{
	struct tt_member m[5];
	struct tt_packet_head head;
	uint32_t nic[2], sw, expected[5] = {0};
	struct net n = make(&nic[0], m, 2);

	nic[1] = net_device(&n, TT_DEVICE_NIC, "other");
	sw = net_device(&n, TT_DEVICE_SWITCH, "switch");
	net_connect(&n, nic[0], sw, 8);
	net_connect(&n, nic[1], sw, 8);
	m[2] = net_member(&n, nic[1]);
	m[3] = net_member(&n, nic[1]);
	m[4] = net_member(&n, sw);
	for (int i = 1; i < 5; i++)
		assert_int_equal(tt_group_enter(&m[i], 7, true), 0);
	assert_true(load(&n, "REWRITE", nic[1]) >= 0);
	for (uint32_t i = 0; i < 50; i++)
		spread(&m[0], i);
	for (uint32_t i = 0; i < 50; i++)
		for (int k = 1; k < 5; k++)
			assert_int_equal(word_at(&m[k], &head), k == 2 || k == 3 ? i + 1000 : i);
	net_assert_idle(&n);

	/* More than the device has slots of its own: what is over waits, and nothing is lost. */
	for (uint32_t i = 0; i < 128; i++)
		spread(&m[0], i);
	for (uint32_t i = 128; i < 300; i++) {
		/* m[3] is slow, so that copies are used up. */
		for (int k = 1; k < 5; k++)
			while (k != 3 && expected[k] < i) {
				uint32_t word = word_at(&m[k], &head);

				if (word == ~0u)
					break;
				assert_int_equal(word, expected[k] + (k == 2 ? 1000 : 0));
				expected[k]++;
			}
		head = (struct tt_packet_head){.group = 7,
					       .flags = TT_PACKET_MULTICAST,
					       .kind = TT_PACKET_DATA,
					       .message = i,
					       .bytes = 4};
		while (tt_member_send(&m[0], &head, &i) != 0) {
			uint32_t word = word_at(&m[3], &head);

			if (word != ~0u)
				assert_int_equal(word, 1000 + expected[3]++);
			for (int k = 1; k < 5; k++)
				tt_device_drive(&m[k], m[k].device);
			for (int k = 1; k < 5; k++)
				while (k != 3 && (word = word_at(&m[k], &head)) != ~0u)
					assert_int_equal(word, expected[k]++ + (k == 2 ? 1000 : 0));
			head = (struct tt_packet_head){.group = 7,
						       .flags = TT_PACKET_MULTICAST,
						       .kind = TT_PACKET_DATA,
						       .message = i,
						       .bytes = 4};
		}
	}
	for (int round = 0; round < 1000; round++)
		for (int k = 1; k < 5; k++) {
			uint32_t word = word_at(&m[k], &head);

			if (word != ~0u)
				assert_int_equal(word,
						 expected[k]++ + (k == 2 || k == 3 ? 1000 : 0));
			tt_device_drive(&m[k], m[k].device);
		}
	for (int k = 1; k < 5; k++)
		assert_int_equal(expected[k], 300);
	end(&n, m, 5);
}

/* --- while packets go through --------------------------------------------------------------- */

struct traffic {
	struct tt_member m[2];
	uint32_t stop, wrong, packets;
};

static void *keep_sending(void *arg)
{
	struct traffic *t = arg;
	struct tt_packet_head head;

	for (uint32_t i = 0; !tt_load_relaxed(&t->stop); i++) {
		uint32_t word;

		if (send_word(&t->m[0], t->m[1].index, i, i % 500) != 0)
			t->wrong++;
		word = word_at(&t->m[1], &head);
		if (word == ~0u && tt_member_wait(&t->m[1], 0, TT_NS_PER_SEC) == 0)
			word = word_at(&t->m[1], &head);
		t->wrong += word % 1000 != i % 500 || head.message != i;
		tt_store_relaxed(&t->packets, i + 1);
	}
	return NULL;
}

/* Whoever drives may be without a processor for a while. */
static int load_busy(struct net *n, const char *name, uint32_t device)
{
	int instance;

	do
		instance = load(n, name, device);
	while (instance == -EAGAIN);
	return instance;
}

static void unload(struct net *n, int instance)
{
	int err;

	do
		err = tt_instance_unload(&n->admin, (uint32_t)instance);
	while (err == -EAGAIN);
	assert_int_equal(err, 0);
}

static void load_and_unload_under_traffic(void **state)
{
	struct traffic t = {.stop = 0};
	uint32_t nic;
	struct net n = make(&nic, t.m, 2);
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, keep_sending, &t), 0);
	for (uint32_t i = 0; i < 100; i++) {
		int instance = load_busy(&n, "REWRITE", nic), count = load_busy(&n, "COUNT", nic);
		uint32_t packets = tt_load_relaxed(&t.packets);
		struct tt_map map;

		assert_true(instance >= 0 && count >= 0);
		assert_int_equal(tt_instance_map(&n.admin, (uint32_t)count, "counts", &map), 0);
		while (tt_load_relaxed(&t.packets) < packets + 3)
			tt_pause();
		assert_true(tt_load_relaxed(&n.fabric->mem->instances[instance].runs) >= 2);
		unload(&n, instance);
		unload(&n, count);
	}
	tt_store_relaxed(&t.stop, 1u);
	pthread_join(thread, NULL);
	assert_int_equal(t.wrong, 0);
	end(&n, t.m, 2);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(passing),
		cmocka_unit_test(sending),
		cmocka_unit_test(binding),
		cmocka_unit_test(maps),
		cmocka_unit_test(faults),
		cmocka_unit_test(errors),
		cmocka_unit_test(many),
		cmocka_unit_test(copy_on_write),
		cmocka_unit_test(load_and_unload_under_traffic),
	};

	folder = argc > 1 ? argv[1] : "-";
	if (!strcmp(folder, "-")) {
		puts("skipped: modules are compiled by clang, which is not there");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
