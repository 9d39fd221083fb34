/* SPDX-License-Identifier: MIT */
/*
 * One fabric, several processes:
 *
 *	process_test FOLDER pingpong     no wake-up is lost
 *	process_test FOLDER kill N       N processes die at random points
 *	process_test FOLDER hostile S    one writes all over the memory for S seconds
 *
 * FOLDER has the modules' objects, "-": there are none.
 */
#include "base/atomic.h"
#include "base/clock.h"
#include "device/instance.h"
#include "device/slot.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition, ...)                                                                      \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);            \
			fprintf(stderr, __VA_ARGS__);                                              \
			fputc('\n', stderr);                                                       \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

enum { STUCK_SECONDS = 20, IDS = 1 << 15, MODULE_PORT = 99 };

/* Between the test's processes, besides the fabric. */
static struct {
	uint32_t stop, joined;
	uint64_t progress[8];
	uint64_t sent[2]; /* by survivors, when they have ended; 0: not yet */
} * shared;

static struct tt_fabric *fabric; /* the parent's */
static struct tt_member admin;
static uint32_t nic[2], sw;
static const char *folder;

static uint32_t random_state;

static uint32_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 17;
	return random_state ^= random_state << 5;
}

static pid_t start(void (*run)(int), int arg)
{
	pid_t parent = getpid(), pid = fork();

	CHECK(pid >= 0, "%m");
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	random_state = (uint32_t)getpid() * 2654435761u + 1;
	run(arg);
	exit(0);
}

/* In a child: a member of the fabric whose descriptor was inherited. */
static struct tt_member attach(uint32_t device)
{
	struct tt_fabric *mine;
	struct tt_member me;

	CHECK(tt_fabric_attach(fabric->fd, &mine) == 0, "attach");
	CHECK(tt_code_attach(tt_code_fd(fabric->code), &mine->code) == 0, "attach to code");
	while (tt_member_join(mine, device, &me) != 0)
		usleep(1000);
	return me;
}

static void build(uint32_t window)
{
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	CHECK(shared != MAP_FAILED, "%m");
	CHECK(tt_fabric_create(&fabric) == 0 && tt_code_create(&fabric->code) == 0, "create");
	CHECK(tt_member_join(fabric, TT_NO_DEVICE, &admin) == 0, "join");
	nic[0] = (uint32_t)tt_device_add(&admin, TT_DEVICE_NIC, "nic0");
	nic[1] = (uint32_t)tt_device_add(&admin, TT_DEVICE_NIC, "nic1");
	sw = (uint32_t)tt_device_add(&admin, TT_DEVICE_SWITCH, "switch");
	CHECK(tt_device_connect(&admin, nic[0], sw, window) == 0, "connect");
	CHECK(tt_device_connect(&admin, nic[1], sw, window) == 0, "connect");
}

/* -1: there is no compiler for modules. */
static int load(const char *name, uint32_t device, uint32_t port)
{
	struct tt_binding binding = {
		.device = device, .group = TT_ANY, .port = port, .budget = 2000000};
	static uint8_t elf[1 << 20];
	struct tutti_vm_program *program;
	struct tutti_vm_object *object;
	struct tutti_vm_error error;
	char path[1024];
	size_t bytes;
	FILE *file;
	int instance;

	if (!strcmp(folder, "-"))
		return -1;
	snprintf(path, sizeof path, "%s/%s.o", folder, name);
	file = fopen(path, "rb");
	CHECK(file, "%s: %m", path);
	bytes = fread(elf, 1, sizeof elf, file);
	fclose(file);
	CHECK(tutti_vm_object_open(elf, bytes, &object, &error) == 0, "%s", error.text);
	CHECK(tutti_vm_program_create(object, tt_module_env(), TUTTI_VM_JIT, &program, &error) == 0,
	      "%s", error.text);
	instance = tt_instance_load(&admin, program, name, &binding);
	CHECK(instance >= 0, "load %s: %s", name, strerror(-instance));
	tutti_vm_program_destroy(program);
	tutti_vm_object_destroy(object);
	return instance;
}

static void reap(pid_t pid, const char *what)
{
	int status;
	int64_t end = tt_now_ns() + STUCK_SECONDS * TT_NS_PER_SEC;

	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (tt_now_ns() > end) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			CHECK(false, "%s does not end", what);
		}
		usleep(1000);
	}
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: status %x", what, status);
}

/* --- ping-pong ------------------------------------------------------------------------------ */

enum { PINGS = 100000 };

static int64_t spin_ns;

static void play(struct tt_member *me, uint32_t other, bool first)
{
	struct tt_packet_head head = {.destination = other, .bytes = 4}, got;

	for (uint32_t i = 0; i < PINGS; i++) {
		uint32_t word;

		if (first)
			CHECK(tt_member_send(me, &head, &i) == 0, "send %u", i);
		CHECK(tt_member_wait(me, spin_ns, STUCK_SECONDS * TT_NS_PER_SEC) == 0,
		      "%s: packet %u does not come", first ? "first" : "second", i);
		CHECK(tt_member_receive(me, &got, &word, 4) == 0 && word == i, "packet %u", i);
		if (!first)
			CHECK(tt_member_send(me, &head, &i) == 0, "send %u", i);
	}
}

static void second(int arg)
{
	struct tt_member me = attach(nic[1]);

	tt_store_release(&shared->joined, me.index);
	play(&me, (uint32_t)arg, false);
	tt_member_leave(&me);
}

static void ping_pong(void)
{
	for (spin_ns = 0; spin_ns <= 20000; spin_ns += 20000) {
		struct tt_member me;
		int64_t began;
		pid_t pid;

		build(64);
		CHECK(tt_member_join(fabric, nic[0], &me) == 0, "join");
		pid = start(second, (int)me.index);
		while (!tt_load_acquire(&shared->joined))
			usleep(1000);
		began = tt_now_ns();
		play(&me, shared->joined, true);
		printf("%d ping-pongs, spinning %lld ns: %.1f s, %llu sleeps\n", PINGS,
		       (long long)spin_ns, (double)(tt_now_ns() - began) / 1e9,
		       (unsigned long long)fabric->mem->members[me.index].sleeps);
		reap(pid, "second");
	}
}

/* --- deaths ----------------------------------------------------------------------------------- */

struct word {
	uint32_t id; /* of who sends: 0 and 1 survive */
	uint32_t sequence;
};

static uint32_t survivor[2]; /* members */

static int send_word(struct tt_member *me, uint32_t to, uint16_t port, struct word word)
{
	struct tt_packet_head head = {.destination = to, .port = port, .bytes = sizeof word};

	return tt_member_send(me, &head, &word);
}

/* What comes is in order, from the other survivor all of it; from others nothing twice. */
static bool take_word(struct tt_member *me, uint32_t *last)
{
	struct tt_packet_head head;
	struct word word;
	uint32_t *seen;

	if (tt_member_receive(me, &head, &word, sizeof word) != 0)
		return false;
	CHECK(head.bytes == sizeof word && word.id < IDS, "garbage: id %u", word.id);
	/* The module's packets take no other way: one sequence for both. */
	seen = &last[word.id];
	CHECK(word.id < 2 ? word.sequence == *seen + 1 : word.sequence > *seen,
	      "from %u: %u after %u", word.id, word.sequence, *seen);
	*seen = word.sequence;
	return true;
}

static void survive(int i)
{
	static uint32_t last[IDS];
	struct tt_member me = attach(nic[i]);
	uint32_t sent = 0;
	int64_t end;

	tt_store_release(&((uint32_t *)shared->progress)[8 + i], me.index + 1);
	while (!survivor[!i]) {
		survivor[!i] = tt_load_acquire(&((uint32_t *)shared->progress)[8 + !i]);
		usleep(1000);
	}
	survivor[!i]--;
	while (!tt_load_relaxed(&shared->stop)) {
		int err = send_word(&me, survivor[!i], (uint16_t)(next_random() % 2),
				    (struct word){(uint32_t)i, sent + 1});

		CHECK(err == 0 || err == -EAGAIN, "send: %d", err);
		sent += err == 0;
		while (take_word(&me, last))
			tt_count(&shared->progress[i], 1);
		if (err || next_random() % 16 == 0)
			tt_member_wait(&me, 20000, 1000000000);
	}
	tt_store_release(&shared->sent[i], sent + 1ull);
	end = tt_now_ns() + STUCK_SECONDS * TT_NS_PER_SEC;
	while (!tt_load_acquire(&shared->sent[!i]) || last[!i] + 1 < shared->sent[!i]) {
		CHECK(tt_now_ns() < end, "survivor %d has %u of %llu", i, last[!i],
		      (unsigned long long)shared->sent[!i]);
		if (tt_member_wait(&me, 0, 10000000) == 0)
			take_word(&me, last);
	}
	/* Until nothing of ours is under way. */
	for (int k = 0; k < 200; k++) {
		tt_member_wait(&me, 0, 1000000);
		while (take_word(&me, last))
			;
	}
	tt_member_leave(&me);
}

static void be_killed(int id)
{
	struct tt_member me = attach(nic[id % 2]);
	uint32_t sequence[2] = {0};

	for (;;) {
		uint32_t to = next_random() % 2;
		struct tt_packet_head head;
		struct word word = {(uint32_t)id, sequence[to] + 1};

		sequence[to] += send_word(&me, survivor[to], next_random() % 4 ? 0 : MODULE_PORT,
					  word) == 0;
		while (tt_member_receive(&me, &head, &word, sizeof word) == 0)
			;
		if (next_random() % 8 == 0)
			tt_member_wait(&me, next_random() % 2 ? 50000 : 0, 100000);
	}
}

/* Both survivors get something, in time. */
static void check_progress(uint64_t *before)
{
	int64_t end = tt_now_ns() + STUCK_SECONDS * TT_NS_PER_SEC;

	for (int i = 0; i < 2; i++) {
		while (tt_load_relaxed(&shared->progress[i]) == before[i]) {
			for (uint32_t d = 0; tt_now_ns() > end && d < 3; d++)
				fprintf(stderr, "device %u: driver %u posted %x unsettled %x\n", d,
					fabric->mem->devices[d].driver,
					fabric->mem->devices[d].posted,
					fabric->mem->devices[d].unsettled);
			CHECK(tt_now_ns() < end, "survivor %d gets nothing", i);
			usleep(1000);
		}
		before[i] = tt_load_relaxed(&shared->progress[i]);
	}
}

static uint64_t sum(size_t off)
{
	uint64_t total = 0;

	for (uint32_t d = 0; d < 3; d++)
		total += *(uint64_t *)((uint8_t *)&fabric->mem->devices[d] + off);
	return total;
}

static void check_idle(void)
{
	for (int i = 0; i < 100; i++)
		for (uint32_t d = 0; d < 3; d++)
			tt_device_drive(&admin, d);
	for (uint32_t i = 0; i < TT_SLOTS; i++)
		CHECK(tt_slot_free(&fabric->mem->slots[i]),
		      "slot %u of owner %u: devices %x, members %llx", i, i / TT_OWNER_SLOTS,
		      fabric->mem->slots[i].held_by_devices,
		      (unsigned long long)fabric->mem->slots[i].held_by_members[0]);
	for (uint32_t d = 0; d < 2; d++) {
		const struct tt_port *end[2] = {&fabric->mem->devices[nic[d]].ports[0],
						&fabric->mem->devices[sw].ports[d]};

		for (int k = 0; k < 2; k++)
			CHECK(end[k]->credits + end[k]->granted + end[!k]->owed == end[k]->window,
			      "link %u: %u + %u + %u of %u", d, end[k]->credits, end[k]->granted,
			      end[!k]->owed, end[k]->window);
	}
}

static void deaths(unsigned kills)
{
	uint64_t before[2] = {0};
	unsigned broken = 0;
	pid_t victim[2], s[2];
	int loop, quiet, id = 2;

	build(16);
	loop = load("LONG", nic[0], MODULE_PORT);
	quiet = load("DROP", nic[1], 12345);
	for (int i = 0; i < 2; i++)
		s[i] = start(survive, i);
	for (int i = 0; i < 2; i++)
		while (!(survivor[i] = tt_load_acquire(&((uint32_t *)shared->progress)[8 + i])))
			usleep(1000);
	survivor[0]--;
	survivor[1]--;
	for (int i = 0; i < 2; i++, id++)
		victim[i] = start(be_killed, id);
	for (unsigned i = 0; i < kills; i++) {
		unsigned which = next_random() % 2;
		uint64_t takeovers = sum(offsetof(struct tt_device_mem, takeovers));

		usleep(next_random() % 60000);
		kill(victim[which], SIGKILL);
		waitpid(victim[which], NULL, 0);
		/* Now and then the others find out by themselves. */
		if (i % 4)
			tt_fabric_bury(&admin);
		check_progress(before);
		if (loop >= 0 &&
		    tt_load_relaxed(&fabric->mem->instances[loop].state) != TT_INSTANCE_RUNNING) {
			if (fabric->mem->instances[loop].state == TT_INSTANCE_BROKEN) {
				broken++;
				CHECK(sum(offsetof(struct tt_device_mem, takeovers)) > takeovers,
				      "broken, and nobody took over");
			}
			CHECK(tt_instance_unload(&admin, (uint32_t)loop) == 0, "unload");
			loop = load("LONG", nic[0], MODULE_PORT);
		}
		CHECK(quiet < 0 || fabric->mem->instances[quiet].state == TT_INSTANCE_RUNNING,
		      "an instance that did not run is in state %u",
		      fabric->mem->instances[quiet].state);
		victim[which] = start(be_killed, id++ % (IDS - 2) + 2);
	}
	for (int i = 0; i < 2; i++) {
		kill(victim[i], SIGKILL);
		waitpid(victim[i], NULL, 0);
	}
	tt_store_release(&shared->stop, 1u);
	for (int i = 0; i < 2; i++)
		reap(s[i], "survivor");
	CHECK(loop < 0 || kills < 100 || broken, "nobody died in a handler");
	tt_fabric_bury(&admin);
	check_idle();
	printf("%u killed, %llu takeovers, %u in a handler, %llu packets\n", kills,
	       (unsigned long long)sum(offsetof(struct tt_device_mem, takeovers)), broken,
	       (unsigned long long)(shared->sent[0] + shared->sent[1]));
}

/* --- one that writes all over it ------------------------------------------------------------------ */

static void write_anything(int arg)
{
	struct tt_fabric_mem *mem = fabric->mem;

	(void)arg;
	while (!tt_load_relaxed(&shared->stop)) {
		static const uint32_t some[] = {0, 1, 31, 32, 255, 256, 0xffffff, ~0u, 1u << 31};
		uint8_t *at = (uint8_t *)mem;
		uint64_t bytes = sizeof *mem;
		uint32_t word = next_random();

		switch (next_random() % 8) {
		case 0: break;
		case 1:
			at = (uint8_t *)mem->members;
			bytes = sizeof mem->members[0] * 16;
			break;
		case 2:
			at = (uint8_t *)mem->instances;
			bytes = sizeof mem->instances[0] * 4;
			break;
		case 3:
			at = (uint8_t *)mem->slots;
			bytes = sizeof mem->slots[0] * TT_OWNER_SLOTS * 8;
			break;
		case 4: /* the links and hosts' ports */
			at = (uint8_t *)&mem->devices[next_random() % 3].ports[next_random() % 6];
			bytes = offsetof(struct tt_port, in);
			break;
		case 5: {
			struct tt_device_mem *dev = &mem->devices[next_random() % 3];
			struct tt_ring *in = &dev->ports[next_random() % 6].in;

			*(next_random() % 2 ? &in->head : &in->tail) = word;
			at = (uint8_t *)in->entries;
			bytes = sizeof in->entries;
			break;
		}
		default:
			at = (uint8_t *)&mem->devices[next_random() % 3];
			bytes = offsetof(struct tt_device_mem, copies);
			break;
		}
		if (next_random() % 2)
			word = some[next_random() % (sizeof some / sizeof *some)];
		memcpy(at + (next_random() % (bytes / 4)) * 4, &word, 4);
		if (next_random() % 64 == 0)
			usleep(next_random() % 200);
	}
}

static void work_on(int i)
{
	struct tt_fabric *mine;
	struct tt_member me;
	bool in = false;

	CHECK(tt_fabric_attach(fabric->fd, &mine) == 0, "attach");
	CHECK(tt_code_attach(tt_code_fd(fabric->code), &mine->code) == 0, "attach to code");
	while (!tt_load_relaxed(&shared->stop)) {
		struct tt_packet_head head = {.destination = next_random() % 16,
					      .port = next_random() % 2 ? MODULE_PORT : 1,
					      .group = 7,
					      .flags = next_random() % 4 == 0,
					      .bytes = next_random() % TT_PAYLOAD_BYTES};
		uint8_t bytes[TT_PAYLOAD_BYTES] = {0};
		struct tt_map map;

		tt_count(&shared->progress[i], 1);
		if (!in) {
			in = tt_member_join(mine, nic[i % 2], &me) == 0;
			if (!in)
				usleep(1000);
			continue;
		}
		tt_member_send(&me, &head, bytes);
		tt_member_receive(&me, &head, bytes, sizeof bytes);
		if (next_random() % 8 == 0)
			tt_member_wait(&me, 0, 2000000);
		if (next_random() % 64 == 0)
			tt_group_enter(&me, 7, next_random() % 2);
		if (next_random() % 64 == 0)
			tt_fabric_bury(&me);
		if (next_random() % 16 == 0 &&
		    tt_instance_map(&me, next_random() % 4, "counts", &map) == 0) {
			uint32_t key = next_random() % 5;

			tt_map_set(&map, &key, bytes);
		}
		if (next_random() % 256 == 0) {
			tt_member_leave(&me);
			in = false;
		}
	}
	tt_count(&shared->progress[i], 1);
	if (in)
		tt_member_leave(&me);
	tt_code_destroy(mine->code);
	tt_fabric_destroy(mine);
}

static void hostility(int seconds)
{
	pid_t workers[4], writer;
	uint64_t before[4] = {0};
	int64_t end;

	build(16);
	load("COUNT", nic[0], TT_ANY);
	load("REWRITE", nic[1], TT_ANY);
	load("LOOP", sw, MODULE_PORT);
	for (int i = 0; i < 4; i++)
		workers[i] = start(work_on, i);
	usleep(100000);
	writer = start(write_anything, 0);
	end = tt_now_ns() + seconds * TT_NS_PER_SEC;
	while (tt_now_ns() < end) {
		int64_t patience = tt_now_ns() + STUCK_SECONDS * TT_NS_PER_SEC;

		for (int i = 0; i < 4; i++) {
			while (tt_load_relaxed(&shared->progress[i]) == before[i]) {
				int status;

				CHECK(waitpid(workers[i], &status, WNOHANG) == 0,
				      "worker %d has ended: status %x", i, status);
				CHECK(tt_now_ns() < patience, "worker %d hangs", i);
				usleep(1000);
			}
			before[i] = tt_load_relaxed(&shared->progress[i]);
		}
	}
	tt_store_release(&shared->stop, 1u);
	reap(writer, "writer");
	for (int i = 0; i < 4; i++) {
		reap(workers[i], "worker");
		printf("worker %d: %llu steps\n", i, (unsigned long long)shared->progress[i]);
	}
}

int main(int argc, char **argv)
{
	int number = argc > 3 ? atoi(argv[3]) : 1;

	CHECK(argc > 2, "FOLDER pingpong|kill|hostile [NUMBER]");
	setvbuf(stdout, NULL, _IOLBF, 0);
	random_state = (uint32_t)getpid() | 1;
	folder = argv[1];
	if (!strcmp(argv[2], "pingpong"))
		ping_pong();
	else if (!strcmp(argv[2], "kill"))
		deaths((unsigned)number);
	else
		hostility(number);
	return 0;
}
