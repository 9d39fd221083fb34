/* SPDX-License-Identifier: MIT */
/* bpf(2) by hand: libbpf would want ELF objects and BTF for what is a dozen fields here. */
#include "linux.h"

#include <errno.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

_Static_assert(sizeof(struct bpf_insn) == sizeof(struct tutti_vm_insn), "the same layout");

enum { LOG_BYTES = 65536, PAIR_OFF = -16, PROLOGUE_INSNS = 24, PACKET_BYTES = 64 };

static int sys_bpf(int command, union bpf_attr *attr)
{
	long ret = syscall(SYS_bpf, command, attr, sizeof *attr);

	return ret < 0 ? -errno : (int)ret;
}

static uint64_t address(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

/* Kernels before 5.11 count maps against the limit of locked memory. */
static void lift_limit(void)
{
	struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};

	setrlimit(RLIMIT_MEMLOCK, &all);
}

int linux_bpf_create(size_t bytes, struct linux_bpf *ret)
{
	struct linux_bpf b = {.map_fd = -1, .prog_fd = -1};
	union bpf_attr attr;

	b.bytes = (bytes + 7) & ~(size_t)7;
	b.mapped_bytes = (b.bytes + 8 + 4095) & ~(size_t)4095;
	lift_limit();
	memset(&attr, 0, sizeof attr);
	attr.map_type = BPF_MAP_TYPE_ARRAY;
	attr.key_size = 4;
	attr.value_size = (uint32_t)b.bytes + 8; /* r0 comes last */
	attr.max_entries = 1;
	attr.map_flags = BPF_F_MMAPABLE;
	b.map_fd = sys_bpf(BPF_MAP_CREATE, &attr);
	if (b.map_fd < 0) {
		snprintf(ret->why, sizeof ret->why, "no map: %s", strerror(-b.map_fd));
		return b.map_fd;
	}
	b.memory = mmap(NULL, b.mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, b.map_fd, 0);
	if (b.memory == MAP_FAILED) {
		int err = -errno;

		snprintf(ret->why, sizeof ret->why, "cannot map a map: %s", strerror(-err));
		close(b.map_fd);
		return err;
	}
	*ret = b;
	return 0;
}

static void unload(struct linux_bpf *b)
{
	if (b->prog_fd >= 0)
		close(b->prog_fd);
	b->prog_fd = -1;
}

void linux_bpf_destroy(struct linux_bpf *b)
{
	unload(b);
	munmap(b->memory, b->mapped_bytes);
	close(b->map_fd);
}

/* --- the classifier around the function -------------------------------------------- */

struct code {
	struct bpf_insn insns[LINUX_MAX_INSNS + PROLOGUE_INSNS];
	uint32_t n;
};

static void put(struct code *c, int code, int dst, int src, int off, int imm)
{
	c->insns[c->n++] = (struct bpf_insn){.code = (uint8_t)code,
					     .dst_reg = (uint8_t)dst & 15,
					     .src_reg = (uint8_t)src & 15,
					     .off = (int16_t)off,
					     .imm = imm};
}

static void put_address(struct code *c, const struct linux_bpf *b, int reg, uint32_t off)
{
	put(c, BPF_LD | BPF_DW, reg, BPF_PSEUDO_MAP_VALUE, 0, b->map_fd);
	put(c, 0, 0, 0, 0, (int)off);
}

static void put_arg(struct code *c, const struct linux_bpf *b, int reg, const struct linux_arg *arg)
{
	switch (arg->kind) {
	case LINUX_NUMBER: put(c, BPF_ALU64 | BPF_MOV | BPF_K, reg, 0, 0, (int)arg->value); break;
	case LINUX_ADDRESS: put_address(c, b, reg, arg->value); break;
	case LINUX_PAIR:
		put_address(c, b, reg, arg->value);
		put(c, BPF_STX | BPF_MEM | BPF_DW, BPF_REG_10, reg, PAIR_OFF, 0);
		put_address(c, b, reg, arg->second);
		put(c, BPF_STX | BPF_MEM | BPF_DW, BPF_REG_10, reg, PAIR_OFF + 8, 0);
		put(c, BPF_ALU64 | BPF_MOV | BPF_X, reg, BPF_REG_10, 0, 0);
		put(c, BPF_ALU64 | BPF_ADD, reg, 0, 0, PAIR_OFF);
		break;
	}
}

static void wrap(struct code *c, const struct linux_bpf *b, const struct tutti_vm_insn *insns,
		 uint32_t count, const struct linux_arg *args)
{
	c->n = 0;
	for (int i = 0; i < LINUX_ARGS; i++)
		put_arg(c, b, BPF_REG_1 + i, &args[i]);
	put(c, BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_CALL, 0, 5);
	put_address(c, b, BPF_REG_1, (uint32_t)b->bytes);
	put(c, BPF_STX | BPF_MEM | BPF_DW, BPF_REG_1, BPF_REG_0, 0, 0);
	put(c, BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 0);
	put(c, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
	memcpy(&c->insns[c->n], insns, count * sizeof *insns);
	c->n += count;
}

/* The last line of the verifier's log that is not statistics. */
static void explain(struct linux_bpf *b, char *log, int err)
{
	char *save = NULL, *last = NULL;

	for (char *line = strtok_r(log, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		if (strncmp(line, "processed ", 10) != 0 &&
		    strncmp(line, "verification time", 17) != 0 &&
		    strncmp(line, "stack depth", 11) != 0)
			last = line;
	snprintf(b->why, sizeof b->why, "%.200s", last ? last : strerror(-err));
}

static void ask_compiled(struct linux_bpf *b)
{
	struct bpf_prog_info info;
	union bpf_attr attr;

	memset(&info, 0, sizeof info);
	memset(&attr, 0, sizeof attr);
	attr.info.bpf_fd = (uint32_t)b->prog_fd;
	attr.info.info_len = sizeof info;
	attr.info.info = address(&info);
	b->compiled = !sys_bpf(BPF_OBJ_GET_INFO_BY_FD, &attr) && info.jited_prog_len;
}

int linux_bpf_load(struct linux_bpf *b, const struct tutti_vm_insn *insns, uint32_t count,
		   const struct linux_arg args[LINUX_ARGS])
{
	static const char license[] = "Dual MIT/GPL";
	struct code *c = NULL;
	char *log = NULL;
	union bpf_attr attr;
	int fd = -ENOMEM;

	unload(b);
	if (count > LINUX_MAX_INSNS) {
		snprintf(b->why, sizeof b->why, "longer than %d instructions", LINUX_MAX_INSNS);
		return -E2BIG;
	}
	c = malloc(sizeof *c);
	log = calloc(1, LOG_BYTES);
	if (!c || !log)
		goto done;
	wrap(c, b, insns, count, args);
	memset(&attr, 0, sizeof attr);
	attr.prog_type = BPF_PROG_TYPE_SCHED_CLS;
	attr.insns = address(c->insns);
	attr.insn_cnt = c->n;
	attr.license = address(license);
	/* A log makes it slow: only of what was refused. */
	for (int logged = 0; logged < 2; logged++) {
		attr.log_level = logged ? 1 : 0;
		attr.log_buf = logged ? address(log) : 0;
		attr.log_size = logged ? LOG_BYTES : 0;
		fd = sys_bpf(BPF_PROG_LOAD, &attr);
		if (fd >= 0)
			break;
	}
	if (fd >= 0) {
		b->prog_fd = fd;
		ask_compiled(b);
		fd = 0;
	} else {
		explain(b, log, fd);
	}
done:
	free(log);
	free(c);
	return fd;
}

int linux_bpf_run(struct linux_bpf *b, uint32_t repeat, uint64_t *ret_r0, double *ret_ns)
{
	uint8_t packet[PACKET_BYTES] = {0};
	union bpf_attr attr;
	int err;

	memset(&attr, 0, sizeof attr);
	attr.test.prog_fd = (uint32_t)b->prog_fd;
	attr.test.data_in = address(packet);
	attr.test.data_size_in = sizeof packet;
	attr.test.repeat = repeat;
	do
		err = sys_bpf(BPF_PROG_TEST_RUN, &attr);
	while (err == -EINTR);
	if (err) {
		snprintf(b->why, sizeof b->why, "cannot run it: %s", strerror(-err));
		return err;
	}
	memcpy(ret_r0, b->memory + b->bytes, sizeof *ret_r0);
	if (ret_ns)
		*ret_ns = attr.test.duration;
	return 0;
}
