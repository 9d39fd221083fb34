/* SPDX-License-Identifier: MIT */
/*
 * tutti module run: packets of a trace through a switch that has the module in
 * it, in a fabric of this process alone and at the trace's time. All members
 * are behind the switch's first port, where what comes out is read.
 *
 * The text says nothing of the engine: both must print the same.
 */
#include "module_int.h"

#include "cli_int.h"
#include "device/instance.h"

#include <tutti/mdo_module.h>

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct replay {
	const char *path, *trace_path;
	enum tt_vm_engine engine;
	bool json, with_maps;
	struct tt_json j;
	struct tutti_vm_object *object;
	struct tutti_vm_program *program;
	struct tt_fabric *fabric;
	struct tt_member maker, members[TT_OWN_PORT]; /* of each input */
	uint32_t device, instance;
	uint64_t packets;
	uint64_t runs, dropped, faults; /* the instance's, before the packet */
};

static int64_t trace_ns; /* the fabric's time */

static int64_t now_ns(void)
{
	return trace_ns;
}

/* --- what comes out --------------------------------------------------------------------- */

static void print_hex(FILE *f, const uint8_t *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		fprintf(f, "%02x", bytes[i]);
}

static void write_hex(struct tt_json *j, const char *key, const uint8_t *bytes, size_t n)
{
	static char text[2 * TT_TRACE_VALUE_BYTES + 1];

	n = n < TT_TRACE_VALUE_BYTES ? n : TT_TRACE_VALUE_BYTES;
	for (size_t i = 0; i < n; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	text[2 * n] = '\0';
	tt_json_str(j, key, text);
}

static void print_output(const struct tt_packet_head *head, const uint8_t *data)
{
	printf("  %s to ", head->source >= TT_MEMBERS ? "sent" : "goes");
	if (head->flags & TT_PACKET_MULTICAST)
		printf("group %" PRIu32, head->group);
	else
		printf("%" PRIu32, head->destination);
	printf(" port %u, %" PRIu32 " bytes: ", head->port, head->bytes);
	print_hex(stdout, data, head->bytes);
	putchar('\n');
}

static void write_output(struct tt_json *j, const struct tt_packet_head *head, const uint8_t *data)
{
	tt_json_open(j, NULL, '{');
	tt_json_bool(j, "sent_by_module", head->source >= TT_MEMBERS);
	if (head->flags & TT_PACKET_MULTICAST)
		tt_json_uint(j, "group", head->group);
	else
		tt_json_uint(j, "destination", head->destination);
	tt_json_uint(j, "port", head->port);
	write_hex(j, "data", data, head->bytes);
	tt_json_close(j, '}');
}

static void take_outputs(struct replay *r)
{
	struct tt_packet_head head;
	uint8_t data[TT_PAYLOAD_BYTES];

	while (!tt_member_receive(&r->members[0], &head, data, sizeof(data)))
		if (r->json)
			write_output(&r->j, &head, data);
		else
			print_output(&head, data);
}

/* --- packets -------------------------------------------------------------------------------- */

static const char *verdict_of(const struct replay *r, const struct tt_instance_mem *m)
{
	if (m->faults != r->faults)
		return "fault";
	if (m->runs == r->runs)
		return "quarantine"; /* it has faulted too often, and is asked no more */
	return m->dropped != r->dropped ? "drop" : "pass";
}

static void say(struct replay *r, const struct tt_trace_event *e)
{
	const struct tt_instance_mem *m = &r->fabric->mem->instances[r->instance];
	const char *verdict = verdict_of(r, m), *fault = NULL;

	if (m->faults != r->faults)
		fault = tutti_vm_fault_name(m->fault);
	if (!r->json) {
		printf("packet %" PRIu64 ": %s", r->packets, verdict);
		if (fault)
			printf(": %s at instruction %" PRIu32, fault, m->fault_pc);
		putchar('\n');
		take_outputs(r);
		return;
	}
	tt_json_open(&r->j, NULL, '{');
	tt_json_uint(&r->j, "packet", r->packets);
	tt_json_uint(&r->j, "line", e->line);
	tt_json_str(&r->j, "verdict", verdict);
	if (fault) {
		tt_json_str(&r->j, "fault", fault);
		tt_json_uint(&r->j, "instruction", m->fault_pc);
	}
	tt_json_open(&r->j, "outputs", '[');
	take_outputs(r);
	tt_json_close(&r->j, ']');
	tt_json_close(&r->j, '}');
}

static int run_packet(struct replay *r, const struct tt_trace_event *e)
{
	const struct tt_instance_mem *m = &r->fabric->mem->instances[r->instance];
	struct tt_member *from = &r->members[e->input];
	int err;

	trace_ns = e->time_ns;
	r->runs = m->runs;
	r->dropped = m->dropped;
	r->faults = m->faults;
	err = tt_member_replay(from, &e->head, e->data);
	if (err)
		return err;
	tt_device_drive(from, r->device);
	r->packets++;
	say(r, e);
	return 0;
}

static int run_group(struct replay *r, const struct tt_trace_event *e)
{
	for (uint32_t i = 0; i < TT_MEMBERS; i++) {
		struct tt_member member = {.fabric = r->fabric, .index = i};
		int err = tt_group_enter(&member, e->group, e->members[i / 64] >> i % 64 & 1);

		if (err)
			return err;
	}
	return 0;
}

static int run_map(struct replay *r, const struct tt_trace_event *e, struct tutti_vm_error *error)
{
	struct tt_map map;
	int err = tt_instance_map(&r->maker, r->instance, e->name, &map);

	if (err)
		snprintf(error->text, sizeof(error->text), "line %u: the module has no map %s",
			 e->line, e->name);
	else if (map.def->key_bytes != e->key_bytes || map.def->value_bytes != e->value_bytes)
		snprintf(error->text, sizeof(error->text),
			 "line %u: a key of %s has %u bytes, a value %u", e->line, e->name,
			 map.def->key_bytes, map.def->value_bytes);
	else {
		err = tt_map_set(&map, e->key, e->value);
		if (!err)
			return 0;
		snprintf(error->text, sizeof(error->text), "line %u: %s takes no such key: %s",
			 e->line, e->name, strerror(-err));
	}
	return -EINVAL;
}

/* --- maps at the end --------------------------------------------------------------------------- */

static bool is_zero(const uint8_t *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (bytes[i])
			return false;
	return true;
}

static void say_entry(struct replay *r, const struct tutti_vm_map *def, const uint8_t *key,
		      const uint8_t *value)
{
	if (!r->json) {
		printf("map %s ", def->name);
		print_hex(stdout, key, def->key_bytes);
		putchar(' ');
		print_hex(stdout, value, def->value_bytes);
		putchar('\n');
		return;
	}
	tt_json_open(&r->j, NULL, '{');
	tt_json_str(&r->j, "map", def->name);
	write_hex(&r->j, "key", key, def->key_bytes);
	write_hex(&r->j, "value", value, def->value_bytes);
	tt_json_close(&r->j, '}');
}

/* As lines of a trace. Of arrays, where all entries are there, those that are not zero. */
static int say_maps(struct replay *r)
{
	const struct tutti_vm_map *defs;
	uint32_t n = tutti_vm_object_maps(r->object, &defs);

	for (uint32_t i = 0; i < n; i++) {
		uint8_t *key = calloc(1, defs[i].key_bytes + 1);
		struct tt_map map;
		int err =
			key ? tt_instance_map(&r->maker, r->instance, defs[i].name, &map) : -ENOMEM;

		for (int more = err ? err : tt_map_next(&map, NULL, key); !more;
		     more = tt_map_next(&map, key, key)) {
			const uint8_t *value = tt_map_find(&map, key);

			if (value &&
			    (defs[i].type != MDO_ARRAY || !is_zero(value, defs[i].value_bytes)))
				say_entry(r, &defs[i], key, value);
		}
		free(key);
		if (err)
			return err;
	}
	return 0;
}

/* --- the switch ---------------------------------------------------------------------------------- */

static int make_switch(struct replay *r)
{
	int err = tt_fabric_create(&r->fabric), device;

	if (!err)
		err = tt_code_create(&r->fabric->code);
	if (!err)
		err = tt_member_join(r->fabric, TT_NO_DEVICE, &r->maker);
	if (err)
		return err;
	r->fabric->now_ns = now_ns;
	device = tt_device_add(&r->maker, TT_DEVICE_SWITCH, "switch");
	if (device < 0)
		return device;
	r->device = (uint32_t)device;
	for (uint32_t i = 0; i < TT_OWN_PORT && !err; i++)
		err = tt_member_join(r->fabric, r->device, &r->members[i]);
	for (uint32_t i = 0; i < TT_MEMBERS && !err; i++)
		err = tt_device_route(&r->maker, r->device, i, r->members[0].port);
	return err;
}

static int load(struct replay *r, struct tutti_vm_error *error)
{
	const struct tt_binding binding = {.device = r->device, .group = TT_ANY, .port = TT_ANY};
	int err = tt_module_program(r->object, r->engine == TT_VM_INTERP ? 0 : TUTTI_VM_JIT,
				    &r->program, error);

	if (err)
		return err;
	if (r->engine == TT_VM_COMPILED && !tutti_vm_program_compiled(r->program)) {
		snprintf(error->text, sizeof(error->text),
			 "modules cannot be compiled on this machine: use --engine interp");
		return -ENOTSUP;
	}
	err = tt_instance_load(&r->maker, r->program, "replay", &binding);
	if (err == -ENOENT)
		snprintf(error->text, sizeof(error->text),
			 "it has no handler of packets (section mdo/packet)");
	else if (err < 0)
		snprintf(error->text, sizeof(error->text), "it cannot be loaded: %s",
			 strerror(-err));
	if (err < 0)
		return err;
	r->instance = (uint32_t)err;
	return 0;
}

static void close_switch(struct replay *r)
{
	struct tt_code *code = r->fabric ? r->fabric->code : NULL;

	/* Nobody else is there: members need not leave, only give up what they made. */
	tt_instances_forget(&r->maker);
	for (uint32_t i = 0; i < TT_OWN_PORT; i++)
		tt_instances_forget(&r->members[i]);
	tt_fabric_destroy(r->fabric);
	tt_code_destroy(code);
	tutti_vm_program_destroy(r->program);
}

/* --- the trace ------------------------------------------------------------------------------------ */

static int run_event(struct replay *r, const struct tt_trace_event *e, struct tutti_vm_error *error)
{
	int err = 0;

	switch (e->kind) {
	case TT_TRACE_PACKET: err = run_packet(r, e); break;
	case TT_TRACE_GROUP: err = run_group(r, e); break;
	case TT_TRACE_MAP: return run_map(r, e, error);
	}
	if (err)
		snprintf(error->text, sizeof(error->text), "line %u: %s", e->line, strerror(-err));
	return err;
}

/* All of it is looked at before any of it runs. */
static int run_trace(struct replay *r, const char *text, size_t bytes, struct tutti_vm_error *error)
{
	struct tt_trace_event *e = calloc(1, sizeof(*e));
	struct tt_trace first = {.text = text, .bytes = bytes}, t = first;
	int more = e ? 1 : -ENOMEM;

	while (more > 0)
		more = tt_trace_next(&first, e, error);
	while (!more && (more = tt_trace_next(&t, e, error)) > 0)
		more = run_event(r, e, error);
	free(e);
	return more;
}

static int replay(struct replay *r, const char *text, size_t bytes)
{
	struct tutti_vm_error error = {.insn = -1, .reg = -1};
	const char *at_fault = r->path;
	int err = make_switch(r);

	if (err)
		snprintf(error.text, sizeof(error.text), "no switch: %s", strerror(-err));
	else
		err = load(r, &error);
	if (!err) {
		at_fault = r->trace_path;
		if (r->json)
			tt_json_open(&r->j, "packets", '[');
		err = run_trace(r, text, bytes, &error);
		if (r->json)
			tt_json_close(&r->j, ']');
	}
	if (!err && r->with_maps) {
		if (r->json)
			tt_json_open(&r->j, "maps", '[');
		err = say_maps(r);
		if (r->json)
			tt_json_close(&r->j, ']');
	}
	return err ? tt_cli_fail(at_fault, error.text[0] ? error.text : strerror(-err), NULL)
		   : TT_EXIT_OK;
}

static int open_and_replay(struct replay *r)
{
	char *text;
	size_t bytes;
	int err = tt_vm_read_file(r->trace_path, &text, &bytes), status;

	if (err)
		return tt_cli_fail(r->trace_path, strerror(-err), tt_vm_read_hint(err));
	if (tt_module_open(r->path, &r->object)) {
		free(text);
		return TT_EXIT_FAILED;
	}
	tt_json_init(&r->j);
	tt_json_open(&r->j, NULL, '{');
	tt_json_str(&r->j, "file", r->path);
	tt_json_str(&r->j, "trace", r->trace_path);
	status = replay(r, text, bytes);
	if (!status && r->json)
		tt_json_str(&r->j, "engine",
			    tutti_vm_program_compiled(r->program) ? "jit" : "interp");
	tt_json_close(&r->j, '}');
	if (!status && r->json)
		status = tt_vm_print_json("module run", &r->j, status);
	else
		tt_json_fini(&r->j);
	close_switch(r);
	tutti_vm_object_destroy(r->object);
	free(text);
	return status;
}

int tt_module_run(int argc, char **argv)
{
	static const struct option known[] = {
		{"engine", required_argument, NULL, 'e'},
		{"maps", no_argument, NULL, 'm'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct replay *r = calloc(1, sizeof(*r));
	int opt, status = TT_EXIT_FAILED;

	if (!r)
		return tt_cli_fail("module run", "out of memory", NULL);
	while ((opt = getopt_long(argc, argv, ":h", known, NULL)) != -1)
		switch (opt) {
		case 'e':
			if (tt_arg_engine(optarg, &r->engine))
				break;
			status = tt_cli_bad_value("module run", "engine", optarg,
						  TT_VM_ENGINE_ALLOWED);
			goto out;
		case 'm': r->with_maps = true; break;
		case 'j': r->json = true; break;
		case 'h': status = tt_module_usage(); goto out;
		default: status = tt_cli_bad_option("module run", opt, argv); goto out;
		}
	if (argc - optind != 2) {
		status = tt_cli_misuse("module run", "a module and a trace: FILE.o TRACE", NULL);
		goto out;
	}
	r->path = argv[optind];
	r->trace_path = argv[optind + 1];
	status = open_and_replay(r);
out:
	free(r);
	return status;
}
