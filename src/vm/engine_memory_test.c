/* SPDX-License-Identifier: MIT */
/*
 * Accesses among other instructions: what ends a group, atomics with every
 * register, sums as addresses; windows that change between runs.
 */
#include "vm/engine_test.h"

/* --- groups ------------------------------------------------------------------------------ */

/* One register is left for a window, and the scratch register for the pointer. */
#define LAST_BUT_ONE                                                                               \
	"mov %r6, %r2\nmov %r7, 7\nmov %r8, 8\nldxw %r0, [%r1]\nldxw %r3, [%r1+4]\nldxw %r4, [%r1+8]\n"
#define AND_SUM                                                                                    \
	"ldxw %r5, [%r1+12]\nadd %r0, %r3\nadd %r0, %r4\nadd %r0, %r5\nldxw %r5, [%r1+16]\n"       \
	"add %r0, %r5\nadd %r0, %r6\nadd %r0, %r7\nadd %r0, %r8\nexit\n"

/* What ends a group: the register changed, a call, a jump into the middle, another window. */
static void ends_of_groups(void **state)
{
	static const char *const texts[] = {
		/* base changed in the middle, by a load and by arithmetic */
		"ldxw %r0, [%r1]\nldxw %r3, [%r1+4]\nldxw %r4, [%r1+8]\nadd %r1, 8\n"
		"ldxw %r5, [%r1+8]\nadd %r0, %r3\nadd %r0, %r4\nadd %r0, %r5\nexit\n",
		"ldxb %r0, [%r1]\nldxb %r3, [%r1+1]\nldxb %r4, [%r1+2]\nldxb %r1, [%r1+3]\n"
		"add %r0, %r3\nadd %r0, %r4\nadd %r0, %r1\nexit\n",
		/* a jump into it, past its check */
		"jne %r2, 0, +2\nldxw %r0, [%r1]\nja +1\nmov %r0, 0\nldxw %r3, [%r1+4]\n"
		"ldxw %r4, [%r1+8]\nldxw %r5, [%r1+12]\nadd %r0, %r3\nadd %r0, %r4\nadd %r0, %r5\nexit\n",
		"mov %r0, 0\nmov %r3, 0\nmov %r4, 0\njne %r2, 0, +3\nldxw %r0, [%r1]\nldxw %r3, [%r1+4]\n"
		"ldxw %r4, [%r1+8]\nldxw %r5, [%r1+4]\nadd %r0, %r3\nadd %r0, %r4\nadd %r0, %r5\nexit\n",
		/* a loop around it, each time at another place */
		"mov %r0, 0\nldxb %r3, [%r1]\nldxb %r4, [%r1+1]\nldxb %r5, [%r1+2]\nstb [%r1+3], 9\n"
		"add %r0, %r3\nadd %r0, %r4\nadd %r0, %r5\nadd %r1, 5\nja -9\n",
		/* atomics and stores of the frame pointer use what the pointer lies in */
		"ldxw %r0, [%r1]\nldxw %r3, [%r1+4]\nldxw %r4, [%r1+8]\nstxdw [%r1], %r10\n"
		"lock fetch add [%r1+8], %r2\nldxw %r5, [%r1+8]\nadd %r0, %r5\nldxw %r5, [%r1+12]\n"
		"add %r0, %r5\nldxdw %r5, [%r1]\nadd %r0, %r5\nexit\n",
		/* the same where the pointer is in the last register that is left */
		LAST_BUT_ONE "stxdw [%r1], %r10\n" AND_SUM,
		LAST_BUT_ONE "lock fetch or [%r1+8], %r2\n" AND_SUM,
		LAST_BUT_ONE "lock fetch add [%r1], %r2\nadd %r6, %r2\n" AND_SUM,
		LAST_BUT_ONE
		"stxdw [%r10-12], %r1\nldxdw %r5, [%r10-12]\nldxb %r5, [%r5]\nadd %r6, %r5\n" AND_SUM,
		LAST_BUT_ONE "jset %r2, %r10, +0\n" AND_SUM,
		LAST_BUT_ONE "ja +0\n" AND_SUM,
		/* no registers are left for the pointer */
		"mov %r6, 6\nmov %r7, 7\nmov %r8, 8\nmov %r9, 9\nldxw %r0, [%r1]\n"
		"ldxw %r3, [%r1+4]\nldxw %r4, [%r1+8]\nldxw %r5, [%r1+12]\nadd %r0, %r3\n"
		"add %r0, %r4\nadd %r0, %r5\nadd %r0, %r6\nadd %r0, %r7\nadd %r0, %r8\n"
		"add %r0, %r9\nexit\n",
		/* a comparison with r10 takes the scratch register too */
		"mov %r6, 6\nmov %r7, 7\nmov %r8, 8\nmov %r9, 9\nldxw %r0, [%r1]\n"
		"ldxw %r3, [%r1+4]\nldxw %r4, [%r1+8]\njeq %r2, %r10, +0\nldxw %r5, [%r1+12]\n"
		"add %r0, %r3\nadd %r0, %r4\nadd %r0, %r5\nldxw %r5, [%r1+16]\nadd %r0, %r5\nexit\n",
	};

	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		for (unsigned hint = 0; hint <= TUTTI_VM_PACKET; hint += TUTTI_VM_PACKET) {
			struct engines *e = engines_of(texts[i], env_with_hint(hint));

			engines_window(e, TUTTI_VM_PACKET, 64, true);
			engines_window(e, TUTTI_VM_MAPS, 40, true);
			for (int at = -32; at < 80; at++)
				for (int w = TUTTI_VM_PACKET; w <= TUTTI_VM_MAPS; w++) {
					const uint64_t args[] = {at_window((unsigned)w, at),
								 (uint64_t)at & 1};

					engines_fill(e);
					engines_run(e, args, 2, 1000);
				}
			engines_free(e);
		}
}

/* --- atomic operations ------------------------------------------------------------------- */

/* Every operation with every register: what it leaves there, in memory, and in all others. */
static void atomics(void **state)
{
	static const char *const ops[] = {"add",      "or",	   "and",	"xor",	"fetch add",
					  "fetch or", "fetch and", "fetch xor", "xchg", "cmpxchg"};
	static const uint64_t olds[] = {0, 5, 0xfffffffffffffff0, 0x8000000080000000,
					0x1122334455667788};
	const uint64_t b = 0xff00ff00f0f0f0f5;

	for (unsigned op = 0; op < 10; op++)
		for (int wide = 0; wide < 2; wide++)
			for (unsigned src = 0; src < 10; src++)
				for (unsigned k = 0; k < 10; k++) {
					uint64_t mask = wide ? UINT64_MAX : UINT32_MAX,
						 all = olds[k / 2], old = all & mask,
						 r0 = k & 1 ? all ^ ~mask : 77,
						 value = src ? b : r0, memory, left = value;
					unsigned base = src == 6 ? 7 : 6;
					struct engines *e;
					char text[512];
					const uint64_t args[] = {at_window(TUTTI_VM_MAPS, 16), 0};

					sprintf(text,
						"mov %%r%u, %%r1\nlddw %%r0, 0x%llx\nstxdw [%%r%u], %%r0\n"
						"lddw %%r%u, 0x%llx\nlddw %%r0, 0x%llx\n"
						"lock %s%s [%%r%u], %%r%u\nstxdw [%%r%u+8], %%r0\n"
						"stxdw [%%r%u+16], %%r%u\nexit\n",
						base, (unsigned long long)all, base, src,
						(unsigned long long)b, (unsigned long long)r0,
						ops[op], wide ? "" : "32", base, src, base, base,
						src);
					switch (op % 4 + (op >= 8 ? 4 : 0)) {
					case 0: memory = old + value; break;
					case 1: memory = old | value; break;
					case 2: memory = old & value; break;
					case 3: memory = old ^ value; break;
					case 4: memory = value; break;
					default: memory = old == (r0 & mask) ? value : old; break;
					}
					if (op >= 4 && op < 9)
						left = old;
					if (op == 9 || src == 0)
						r0 = op == 9 ? old : left;
					if (!src)
						left = r0;
					e = engines_of(text,
						       env_with_hint(src & 1 ? TUTTI_VM_MAPS : 0));
					assert_int_equal(engines_run(e, args, 2, 10), 0);
					for (int i = 0; i < 2; i++) {
						uint64_t got[3];

						memcpy(got,
						       e->engine[i].room[TUTTI_VM_MAPS].bytes + 16,
						       sizeof got);
						if (got[0] != ((memory & mask) | (all & ~mask)) ||
						    got[1] != r0 || got[2] != left)
							fail_msg(
								"%s%d: memory 0x%llx, r0 0x%llx, register 0x%llx",
								text, i, (unsigned long long)got[0],
								(unsigned long long)got[1],
								(unsigned long long)got[2]);
					}
					engines_free(e);
				}
}

/* --- sums as addresses, and changes between runs ---------------------------------------- */

/* A copy, an addition and the access, checked as one: also where the sum wraps. */
static void sums(void **state)
{
	static const char *const texts[] = {
		"mov %r3, %r1\nadd %r3, %r2\nldxw %r3, [%r3+4]\nmov %r0, %r3\nexit\n",
		"mov %r3, %r1\nadd %r3, 16777216\nldxb %r3, [%r3-4]\nmov %r0, %r3\nexit\n",
		"mov %r3, %r1\nadd %r3, -16777217\nldxb %r3, [%r3-4]\nmov %r0, %r3\nexit\n",
		"mov %r3, %r1\nadd %r3, 2147483647\nldxb %r3, [%r3+32767]\nmov %r0, %r3\nexit\n",
		"mov %r3, %r1\nadd %r3, -2147483648\nldxb %r3, [%r3-32768]\nmov %r0, %r3\nexit\n",
		"mov %r3, %r1\nadd %r3, %r2\nstxw [%r3+4], %r2\nmov %r0, 1\nexit\n",
		"mov %r3, %r1\nadd %r3, %r2\nstxdw [%r3+4], %r3\nmov %r0, 1\nexit\n",
		"mov %r3, %r1\nadd %r3, %r2\nstxdw [%r3+4], %r10\nmov %r0, 1\nexit\n",
		"mov %r3, %r1\nadd %r3, %r2\nstdw [%r3-8], -3\nmov %r0, %r3\nexit\n",
		"mov %r3, %r1\nadd %r3, %r2\nldxsh %r2, [%r3-32768]\nmov %r0, %r2\nexit\n",
	};
	static const uint64_t parts[] = {0, 8, 64, 1ULL << 63, UINT64_MAX, 1ULL << 32, 32768};

	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		for (unsigned hint = 0; hint < TUTTI_VM_WINDOWS; hint++) {
			struct engines *e = engines_of(texts[i], env_with_hint(hint));
			static const int64_t adds[] = {0, -16777216, 16777217,
						       -2147483647LL - 32767, 2147483648LL + 32768};

			engines_window(e, TUTTI_VM_PACKET, 64, true);
			for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
				for (size_t k = 0; k < sizeof adds / sizeof *adds; k++)
					for (int at = -16; at < 80; at++) {
						const uint64_t args[] = {
							at_window(TUTTI_VM_PACKET, at + adds[k]) -
								parts[p],
							parts[p]};

						engines_run(e, args, 2, 10);
					}
			engines_free(e);
		}
}

/* A map or a packet that was taken away between two runs is gone, and so are addresses kept. */
static void changed_windows(void **state)
{
	for (unsigned hint = 0; hint < TUTTI_VM_WINDOWS; hint++) {
		struct engines *e = engines_of("ldxdw %r0, [%r1]\nldxdw %r3, [%r1+8]\n"
					       "ldxdw %r4, [%r1+16]\nstxdw [%r1+8], %r2\nexit\n",
					       env_with_hint(hint));
		const uint64_t args[] = {at_window(TUTTI_VM_MAPS, 0), 42};

		for (int round = 0; round < 2; round++) {
			engines_window(e, TUTTI_VM_MAPS, ROOM, true);
			assert_int_equal(engines_run(e, args, 2, 10), 0);
			engines_window(e, TUTTI_VM_MAPS, 0, true);
			assert_int_equal(engines_run(e, args, 2, 10), -EFAULT);
			assert_int_equal(e->result.pc, 0);
			engines_window(e, TUTTI_VM_MAPS, 16, true);
			assert_int_equal(engines_run(e, args, 2, 10), -EFAULT);
			assert_int_equal(e->result.pc, 2);
			engines_window(e, TUTTI_VM_MAPS, 24, false);
			assert_int_equal(engines_run(e, args, 2, 10), -EFAULT);
			assert_int_equal(e->result.pc, 3);
			assert_int_equal(e->result.fault, TUTTI_VM_FAULT_WRITE);
		}
		/* No memory at all. */
		for (int i = 0; i < 2; i++)
			assert_int_equal(tutti_vm_set_window(e->engine[i].context, TUTTI_VM_MAPS,
							     NULL, 0, true),
					 0);
		assert_int_equal(engines_run(e, args, 2, 10), -EFAULT);
		engines_free(e);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ends_of_groups),
		cmocka_unit_test(atomics),
		cmocka_unit_test(sums),
		cmocka_unit_test(changed_windows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
