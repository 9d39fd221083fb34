/* SPDX-License-Identifier: MIT */
#include "bench_fabric.h"

#include "device/instance.h"

#include <errno.h>
#include <string.h>

int tt_bench_fabric_open(struct tt_bench *b, struct tt_bench_fabric *ret)
{
	int err = tt_fabric_create(&ret->fabric);

	if (err)
		return tt_bench_error(b, -err, "no memory for devices: %s", strerror(-err));
	return tt_bench_member(b, ret->fabric, TT_NO_DEVICE, &ret->maker);
}

void tt_bench_fabric_close(struct tt_bench_fabric *f)
{
	tt_instances_forget(&f->maker);
	tt_fabric_destroy(f->fabric);
	*f = (struct tt_bench_fabric){0};
}

int tt_bench_device(struct tt_bench *b, struct tt_bench_fabric *f, enum tt_device_kind kind,
		    const char *name, uint32_t *ret_device)
{
	int device = tt_device_add(&f->maker, kind, name);

	if (device < 0)
		return tt_bench_error(b, -device, "no device %s: %s", name, strerror(-device));
	*ret_device = (uint32_t)device;
	return 0;
}

int tt_bench_member(struct tt_bench *b, struct tt_fabric *fabric, uint32_t device,
		    struct tt_member *ret_member)
{
	int err = tt_member_join(fabric, device, ret_member);

	return err ? tt_bench_error(b, -err, "nobody can join a device: %s", strerror(-err)) : 0;
}
