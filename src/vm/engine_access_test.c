/* SPDX-License-Identifier: MIT */
/*
 * Accesses: every size and kind, at every border of every window and far
 * outside, with the right hint, a wrong one and none, one by one and in groups.
 * What must happen is computed here, from the windows alone.
 */
#include "vm/engine_test.h"

/* --- what must happen ------------------------------------------------------------------ */

struct access {
	const char *op;
	char form; /* 'l'oad, sign-extending 's', store of a 'r'egister or 'i'mmediate, 'a'tomic */
	unsigned bytes;
};

static const struct access accesses[] = {
	{"ldxb", 'l', 1},	 {"ldxh", 'l', 2},	   {"ldxw", 'l', 4},
	{"ldxdw", 'l', 8},	 {"ldxsb", 's', 1},	   {"ldxsh", 's', 2},
	{"ldxsw", 's', 4},	 {"stxb", 'r', 1},	   {"stxh", 'r', 2},
	{"stxw", 'r', 4},	 {"stxdw", 'r', 8},	   {"stb", 'i', 1},
	{"sth", 'i', 2},	 {"stw", 'i', 4},	   {"stdw", 'i', 8},
	{"lock add", 'a', 8},	 {"lock add32", 'a', 4},   {"lock fetch or", 'a', 8},
	{"lock xchg32", 'a', 4}, {"lock cmpxchg", 'a', 8}, {"lock fetch xor32", 'a', 4},
};

enum { N_ACCESSES = sizeof accesses / sizeof *accesses, IMMEDIATE = -1234567 };
#define VALUE 0x8899aabbccddeeffu

static bool writes(const struct access *a)
{
	return a->form == 'r' || a->form == 'i' || a->form == 'a';
}

/* The byte of the process that an address of the program means, or NULL; by long hand. */
static uint8_t *byte_at(const struct engines *e, int engine, uint64_t address, bool write)
{
	const struct tutti_vm_context *context = e->engine[engine].context;

	for (unsigned w = TUTTI_VM_STACK; w < TUTTI_VM_WINDOWS; w++) {
		const struct tt_vm_win *win = &context->win[w];

		if (address >= at_window(w, 0) && address - at_window(w, 0) < win->bytes &&
		    (!write || win->write_limit[0]))
			return win->base + (address - at_window(w, 0));
	}
	return NULL;
}

static bool inside(const struct engines *e, uint64_t address, unsigned bytes, bool write)
{
	for (unsigned i = 0; i < bytes; i++)
		if (address + i < address || !byte_at(e, 0, address + i, write) ||
		    (address + i) >> TUTTI_VM_WINDOW_SHIFT != address >> TUTTI_VM_WINDOW_SHIFT)
			return false;
	return true;
}

static uint64_t peek(const struct engines *e, uint64_t address, unsigned bytes)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < bytes; i++)
		value |= (uint64_t)*byte_at(e, 0, address + i, false) << 8 * i;
	return value;
}

static void poke(const struct engines *e, uint64_t address, unsigned bytes, uint64_t value)
{
	for (int engine = 0; engine < 2; engine++)
		for (unsigned i = 0; i < bytes; i++)
			*byte_at(e, engine, address + i, false) = (uint8_t)(value >> 8 * i);
}

/* r0 of the program below, and what must be in memory afterwards. */
static uint64_t outcome(const struct access *a, uint64_t old, uint64_t *ret_memory)
{
	uint64_t mask = UINT64_MAX >> (64 - 8 * a->bytes), value = VALUE & mask;

	*ret_memory = old;
	switch (a->form) {
	case 'l': return old;
	case 's': return (uint64_t)((int64_t)(old << (64 - 8 * a->bytes)) >> (64 - 8 * a->bytes));
	case 'r': *ret_memory = value; return VALUE;
	case 'i': *ret_memory = (uint64_t)(int64_t)IMMEDIATE & mask; return VALUE;
	default: break;
	}
	if (strstr(a->op, "add"))
		*ret_memory = (old + value) & mask;
	if (strstr(a->op, "or") && !strstr(a->op, "xor"))
		*ret_memory = old | value;
	if (strstr(a->op, "xor"))
		*ret_memory = old ^ value;
	if (strstr(a->op, "xchg") && !strstr(a->op, "cmp"))
		*ret_memory = value;
	/* The program compares with r0, which is VALUE: no exchange, unless it is that. */
	if (strstr(a->op, "cmp"))
		*ret_memory = old == value ? value : old;
	return strstr(a->op, "lock add") ? VALUE : old;
}

static void text_of(const struct access *a, int off, char text[256])
{
	char operand[32];

	snprintf(operand, sizeof operand, "[%%r1%+d]", off);
	switch (a->form) {
	case 'l':
	case 's': sprintf(text, "%s %%r0, %s\nexit\n", a->op, operand); break;
	case 'i':
		sprintf(text, "mov %%r0, %%r2\n%s %s, %d\nexit\n", a->op, operand, IMMEDIATE);
		break;
	case 'r': sprintf(text, "mov %%r0, %%r2\n%s %s, %%r0\nexit\n", a->op, operand); break;
	default:
		sprintf(text, "mov %%r0, %%r2\n%s %s, %%r2\n%sexit\n", a->op, operand,
			strstr(a->op, "cmp") ? "" : "mov %r0, %r2\n");
		break;
	}
}

static void check_one(struct engines *e, const struct access *a, uint64_t address, int off)
{
	const uint64_t args[] = {address - (uint64_t)(int64_t)off, VALUE};
	bool good = inside(e, address, a->bytes, writes(a));
	uint64_t old = good ? peek(e, address, a->bytes) : 0, memory, r0;

	engines_run(e, args, 2, 10);
	if (!good || (a->form == 'a' && address % a->bytes)) {
		enum tutti_vm_fault_kind kind = good	    ? TUTTI_VM_FAULT_ALIGN
						: writes(a) ? TUTTI_VM_FAULT_WRITE
							    : TUTTI_VM_FAULT_READ;

		if (e->err != -EFAULT || e->result.fault != kind || e->result.address != address ||
		    e->result.bytes != a->bytes ||
		    e->result.pc != (a->form == 'l' || a->form == 's' ? 0u : 1u))
			fail_msg("%s at 0x%llx (%+d): %s at %u of %llu at 0x%llx", a->op,
				 (unsigned long long)address, off,
				 tutti_vm_fault_name(e->result.fault), e->result.pc,
				 (unsigned long long)e->result.bytes,
				 (unsigned long long)e->result.address);
		return;
	}
	r0 = outcome(a, old, &memory);
	if (e->err || e->result.r0 != r0 || peek(e, address, a->bytes) != memory)
		fail_msg("%s at 0x%llx (%+d): %s, r0 0x%llx instead of 0x%llx, memory 0x%llx",
			 a->op, (unsigned long long)address, off,
			 tutti_vm_fault_name(e->result.fault), (unsigned long long)e->result.r0,
			 (unsigned long long)r0, (unsigned long long)peek(e, address, a->bytes));
	if (writes(a))
		poke(e, address, a->bytes, old);
}

/* --- borders --------------------------------------------------------------------------- */

/* Sizes of the caller's windows, by turns; read-only where the number is negative. */
static const int sizes[][TUTTI_VM_WINDOWS] = {
	{[TUTTI_VM_CTX] = 16, [TUTTI_VM_PACKET] = ROOM, [TUTTI_VM_MAPS] = 7, [TUTTI_VM_EXTRA] = 0},
	{[TUTTI_VM_CTX] = -16, [TUTTI_VM_PACKET] = -1, [TUTTI_VM_MAPS] = 8, [TUTTI_VM_EXTRA] = 3},
	{[TUTTI_VM_CTX] = 0, [TUTTI_VM_PACKET] = 2, [TUTTI_VM_MAPS] = -ROOM, [TUTTI_VM_EXTRA] = 1},
};

static void lay_out(struct engines *e, unsigned turn)
{
	for (unsigned w = TUTTI_VM_CTX; w < TUTTI_VM_WINDOWS; w++)
		engines_window(e, w, (size_t)abs(sizes[turn][w]), sizes[turn][w] >= 0);
}

static void check_around(struct engines *e, const struct access *a, uint64_t at, int off)
{
	for (int i = -9; i <= 9; i++)
		check_one(e, a, at + (uint64_t)(int64_t)i, off);
}

static void check_everywhere(struct engines *e, const struct access *a, int off)
{
	static const uint64_t far[] = {0,
				       1ULL << 63,
				       1ULL << 32,
				       1ULL << 60,
				       1ULL << 31,
				       UINT32_MAX,
				       (1ULL << 63) + (5ULL << 28),
				       5ULL << 32,
				       (5ULL << 28) + (1ULL << 32)};

	for (size_t i = 0; i < sizeof far / sizeof *far; i++)
		check_around(e, a, far[i], off);
	for (unsigned turn = 0; turn < sizeof sizes / sizeof *sizes; turn++) {
		lay_out(e, turn);
		for (unsigned w = TUTTI_VM_STACK; w <= TUTTI_VM_WINDOWS; w++) {
			check_around(e, a, at_window(w, 0), off);
			if (w < TUTTI_VM_WINDOWS)
				check_around(
					e, a,
					at_window(w, (int64_t)e->engine[0].context->win[w].bytes),
					off);
			/* A 32-bit sum of window and offset would take these for others. */
			check_one(e, a, at_window(w, 0) + (1ULL << 32), off);
			check_one(e, a, at_window(w, 0) - (1ULL << 32), off);
		}
	}
}

static void every_access(void **state)
{
	static const int16_t offs[] = {0, 8, INT16_MAX, INT16_MIN};

	for (unsigned i = 0; i < N_ACCESSES; i++)
		for (unsigned hint = 0; hint < TUTTI_VM_WINDOWS; hint++)
			for (unsigned o = 0; o < (hint % TUTTI_VM_PACKET ? 1 : 4); o++) {
				struct engines *e;
				char text[256];

				text_of(&accesses[i], offs[o], text);
				e = engines_of(text, env_with_hint(hint));
				check_everywhere(e, &accesses[i], offs[o]);
				engines_free(e);
			}
}

/* Data and read-only data of an object of its own, of an odd size. */
static void data_windows(void **state)
{
	enum { DATA = 13, RODATA = 21 };

	for (unsigned i = 0; i < N_ACCESSES; i++)
		for (unsigned hint = 0; hint <= TUTTI_VM_RODATA; hint++) {
			const struct access *a = &accesses[i];
			struct tutti_vm_object *object;
			struct engines *e;
			char text[256];

			text_of(a, 0, text);
			object = assembled(text);
			object->data = malloc(DATA);
			object->rodata = malloc(RODATA);
			for (unsigned k = 0; k < RODATA; k++)
				object->rodata[k] = pattern(TUTTI_VM_RODATA, k);
			memcpy(object->data, object->rodata, DATA);
			object->data_bytes = DATA;
			object->rodata_bytes = RODATA;
			e = engines_of_object(object, env_with_hint(hint));
			check_around(e, a, at_window(TUTTI_VM_DATA, 0), 0);
			check_around(e, a, at_window(TUTTI_VM_DATA, DATA), 0);
			check_around(e, a, at_window(TUTTI_VM_RODATA, 0), 0);
			check_around(e, a, at_window(TUTTI_VM_RODATA, RODATA), 0);
			engines_free(e);
		}
}

/* --- accesses that the verifier is certain of --------------------------------------------- */

enum certainty { PROVED, WITHIN, WITHIN_SUM };
static const struct tutti_vm_hook certain_hook = {
	.args = 3, .arg = {{.window = TUTTI_VM_CTX, .bytes = 64}, {0}, {.window = TUTTI_VM_MAPS}}};
static const struct tutti_vm_env certain_env = {.hooks = &certain_hook, .n_hooks = 1};

/* An access of eight bytes from a known place, or a place that r2 has a part in. */
static void certain_text(const struct access *a, unsigned window, enum certainty how, bool crowded,
			 char *text)
{
	const char *base = how == WITHIN_SUM ? "%r8" : "%r7";
	int n = sprintf(text, "mov %%r0, 0\n");

	/* Every register is used, and another window more often: nothing is kept in one. */
	if (crowded)
		n += sprintf(text + n,
			     "mov %%r9, 9\nldxb %%r4, [%%r3]\nldxb %%r5, [%%r3+1]\n"
			     "ldxb %%r6, [%%r3+2]\nldxb %%r7, [%%r3+3]\nldxb %%r8, [%%r3+4]\n"
			     "add %%r0, %%r9\nadd %%r0, %%r4\nadd %%r0, %%r5\nadd %%r0, %%r6\n"
			     "add %%r0, %%r7\nadd %%r0, %%r8\n");
	n += sprintf(text + n, "mov %%r6, %%r2\nand %%r6, 0x38\n");
	if (window == TUTTI_VM_STACK) {
		for (int off = -64; off < 0; off += 8)
			n += sprintf(text + n, "stdw [%%r10%d], %d\n", off, off * 12345);
		n += sprintf(text + n, "mov %%r7, %%r10\nadd %%r7, -64\n");
	} else {
		n += sprintf(text + n, "lddw %%r7, 0x%x0000000\n", window);
		if (window == TUTTI_VM_CTX)
			n += sprintf(text + n, "mov %%r7, %%r1\n");
	}
	if (how == WITHIN)
		n += sprintf(text + n, "add %%r7, %%r6\n");
	if (how == WITHIN_SUM)
		n += sprintf(text + n, "mov %%r8, %%r7\nadd %%r8, %%r6\n");
	if (a->form == 'l' || a->form == 's')
		n += sprintf(text + n, "%s %%r8, [%s]\nadd %%r0, %%r8\n", a->op, base);
	else
		n += sprintf(text + n, a->form == 'i' ? "%s [%s], -1234567\n" : "%s [%s], %%r2\n",
			     a->op, base);
	if (crowded)
		n += sprintf(text + n, "ldxb %%r4, [%%r3+9]\nadd %%r0, %%r4\n");
	if (window == TUTTI_VM_STACK)
		n += sprintf(text + n, "ldxdw %%r5, [%%r10-16]\nadd %%r0, %%r5\n");
	sprintf(text + n, "exit\n");
}

static void check_certain(const char *text, unsigned window)
{
	struct tutti_vm_object *object = assembled(text);
	struct engines *e;

	object->data = malloc(64);
	object->rodata = malloc(64);
	object->data_bytes = object->rodata_bytes = 64;
	for (unsigned k = 0; k < 64; k++) {
		object->data[k] = pattern(TUTTI_VM_DATA, k);
		object->rodata[k] = pattern(TUTTI_VM_RODATA, k);
	}
	e = engines_of_object(object, &certain_env);
	engines_window(e, TUTTI_VM_CTX, 64, true);
	for (uint64_t at = 0; at < 64; at += 8) {
		const uint64_t args[] = {at_window(TUTTI_VM_CTX, 0), VALUE << 6 | at,
					 at_window(TUTTI_VM_MAPS, 5)};
		uint64_t before =
			window == TUTTI_VM_STACK ? 0 : peek(e, at_window(window, (int64_t)at), 8);

		if (engines_run(e, args, 3, 10))
			fail_msg("%s%s at %u", text, tutti_vm_fault_name(e->result.fault),
				 e->result.pc);
		/* A load that is alone is seen in r0 as it is. */
		if (strstr(text, "ldxdw %r8") && !strstr(text, "%r9") &&
		    strstr(text, "add %r7, %r6") && window != TUTTI_VM_STACK)
			assert_int_equal(e->result.r0, before);
	}
	/* Refused by the run, not by a check that was left out. */
	engines_window(e, TUTTI_VM_CTX, 56, true);
	assert_int_equal(
		engines_run(e, (const uint64_t[]){at_window(TUTTI_VM_CTX, 0), 56, 0}, 3, 10),
		-EINVAL);
	engines_free(e);
}

static void certain(void **state)
{
	static const uint8_t windows[] = {TUTTI_VM_STACK, TUTTI_VM_DATA, TUTTI_VM_RODATA,
					  TUTTI_VM_CTX};

	for (unsigned i = 0; i < N_ACCESSES; i++)
		for (unsigned w = 0; w < sizeof windows; w++)
			for (enum certainty how = PROVED; how <= WITHIN_SUM; how++)
				for (int crowded = 0; crowded < 2; crowded++) {
					char text[2048];

					if (writes(&accesses[i]) && windows[w] == TUTTI_VM_RODATA)
						continue;
					certain_text(&accesses[i], windows[w], how, crowded, text);
					check_certain(text, windows[w]);
				}
}

/* --- groups ---------------------------------------------------------------------------- */

static uint64_t seed = 1;

static unsigned below(unsigned n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(seed >> 33) % n;
}

struct member {
	const struct access *access;
	int off;
};

enum { MOST = 8 };

/*
 * Some accesses of r1 one after the other, each with an offset of its own: the
 * fault must be at the first that leaves the window, with all before it done.
 */
static void check_group(const struct member *members, unsigned n, unsigned hint, bool writable)
{
	char text[1024];
	int length = sprintf(text, "mov %%r0, 0\n");
	struct engines *e;

	for (unsigned i = 0; i < n; i++) {
		const struct access *a = members[i].access;

		length += sprintf(text + length,
				  a->form == 'l' || a->form == 's' ? "%s %%r3, [%%r1%+d]\n"
				  : a->form == 'i'		   ? "%s [%%r1%+d], -1234567\n"
								   : "%s [%%r1%+d], %%r2\n",
				  a->op, members[i].off);
		if (a->form == 'l' || a->form == 's')
			length += sprintf(text + length, "xor %%r0, %%r3\n");
	}
	sprintf(text + length, "exit\n");
	e = engines_of(text, env_with_hint(hint));
	engines_window(e, TUTTI_VM_PACKET, 160, writable);
	engines_window(e, TUTTI_VM_MAPS, 160, !writable);
	for (int at = -80; at < 240; at++) {
		unsigned window = at & 1 ? TUTTI_VM_PACKET : TUTTI_VM_MAPS;
		const uint64_t args[] = {at_window(window, at), VALUE};
		static struct room expected[TUTTI_VM_WINDOWS];
		uint32_t pc = 1;
		unsigned i;

		engines_fill(e);
		memcpy(expected, e->engine[0].room, sizeof expected);
		for (i = 0; i < n; i++) {
			const struct access *a = members[i].access;
			uint64_t address = args[0] + (uint64_t)(int64_t)members[i].off, memory;
			uint8_t *bytes = expected[window].bytes + at + members[i].off;

			if (!inside(e, address, a->bytes, writes(a)))
				break;
			if (writes(a)) {
				outcome(a, 0, &memory);
				memcpy(bytes, &memory, a->bytes);
			}
			pc += writes(a) ? 1 : 2;
		}
		engines_run(e, args, 2, 10);
		if (i < n ? e->err != -EFAULT || e->result.pc != pc : e->err)
			fail_msg("%sat %d: %s at %u instead of %u", text, at,
				 tutti_vm_fault_name(e->result.fault), e->result.pc, pc);
		assert_memory_equal(e->engine[1].room, expected, sizeof expected);
	}
	engines_free(e);
}

static void groups(void **state)
{
	for (int round = 0; round < 150; round++) {
		struct member members[MOST];
		unsigned n = 2 + below(MOST - 2), kinds = round % 3 ? 15 : 7;
		int spread = round % 4 ? 64 : 8, low = below(2) ? -(int)below(64) : 0;

		for (unsigned i = 0; i < n; i++)
			members[i] = (struct member){&accesses[below(kinds)],
						     low + (int)below((unsigned)spread)};
		check_group(members, n, round % 5 ? TUTTI_VM_PACKET : (unsigned)below(8),
			    round & 1);
	}
}

/* A group's extent is not taken at its word: offsets at the borders of their field. */
static void wide_groups(void **state)
{
	static const struct access *const load = &accesses[3], *const store = &accesses[10];
	const struct member wide[] = {{load, INT16_MIN}, {load, 0}, {load, 8}, {store, 32760}};
	const struct member near[] = {{load, -4000}, {load, 0}, {store, 80}, {load, 88}};

	check_group(wide, 4, TUTTI_VM_PACKET, true);
	check_group(near, 4, TUTTI_VM_PACKET, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_access), cmocka_unit_test(data_windows),
		cmocka_unit_test(certain),	cmocka_unit_test(groups),
		cmocka_unit_test(wide_groups),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
