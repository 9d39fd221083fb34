/* SPDX-License-Identifier: MIT */
/* What the benchmarks of devices share: a fabric of their own, opened and closed. */
#ifndef TT_BENCH_FABRIC_H
#define TT_BENCH_FABRIC_H

#include "bench_int.h"
#include "device/fabric.h"

/* A member on no device that makes the others' devices. */
struct tt_bench_fabric {
	struct tt_fabric *fabric;
	struct tt_member maker;
};

/* All return 0 or a negative errno, the reason in b->error. */
int tt_bench_fabric_open(struct tt_bench *b, struct tt_bench_fabric *ret);
void tt_bench_fabric_close(struct tt_bench_fabric *f); /* all zero: nothing to do */
int tt_bench_device(struct tt_bench *b, struct tt_bench_fabric *f, enum tt_device_kind kind,
		    const char *name, uint32_t *ret_device);
int tt_bench_member(struct tt_bench *b, struct tt_fabric *fabric, uint32_t device,
		    struct tt_member *ret_member);

#endif
