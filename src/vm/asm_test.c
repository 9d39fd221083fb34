/* SPDX-License-Identifier: MIT */
/* Assembler and disassembler: every instruction both ways, and every error. */
#include "vm/isa.h"
#include "vm/object.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int assemble(const char *text, struct tutti_vm_object **ret_object,
		    struct tutti_vm_error *ret_error)
{
	/* A copy without the NUL: reading beyond the end is then an error of memory. */
	size_t bytes = strlen(text);
	char *copy = malloc(bytes ? bytes : 1);
	int err;

	memcpy(copy, text, bytes);
	err = tutti_vm_assemble(copy, bytes, ret_object, ret_error);
	free(copy);
	return err;
}

static struct tutti_vm_object *assembled(const char *text)
{
	struct tutti_vm_object *object = NULL;
	struct tutti_vm_error error = {0};

	if (assemble(text, &object, &error))
		fail_msg("%s: %s", text, error.text);
	return object;
}

/* --- every instruction ------------------------------------------------------------- */

/* 1 for one that is valid, 0 for another; both halves of a wide one count. */
static int round_trip(const struct tutti_vm_insn insns[2])
{
	struct tutti_vm_object *object = NULL;
	struct tutti_vm_error error;
	char text[128];
	int slots = tutti_vm_disassemble(insns, 2, 0, text, sizeof text);
	int err = assemble(text, &object, &error);

	assert_true(strlen(text) < sizeof text - 1);
	if (slots < 0) {
		assert_int_equal(slots, -EINVAL);
		assert_int_equal(strncmp(text, "?? ", 3), 0);
		assert_int_equal(err, -EINVAL);
		return 0;
	}
	if (err)
		fail_msg("%s: %s", text, error.text);
	assert_int_equal(object->n_insns, slots);
	if (memcmp(object->insns, insns, (size_t)slots * sizeof *insns) != 0)
		fail_msg("%s is assembled to something else", text);
	tutti_vm_object_destroy(object);
	return 1;
}

/* How many of the fields' values at their borders are valid with this code. */
static unsigned count_valid(uint8_t code)
{
	static const int16_t offs[] = {0, 1, 2, 8, 16, 32, -1, INT16_MIN, INT16_MAX};
	static const int32_t imms[] = {0,    1,	   2,	 16,   32,   64, 0x41,	    0x50,     0x51,
				       0xa0, 0xa1, 0xe0, 0xe1, 0xf1, -1, INT32_MIN, INT32_MAX};
	static const uint8_t registers[] = {0, 1, 2, 3, 10, 11, 15};
	unsigned valid = 0;

	for (size_t r = 0; r < sizeof registers * sizeof registers; r++)
		for (size_t o = 0; o < sizeof offs / sizeof *offs; o++)
			for (size_t i = 0; i < sizeof imms / sizeof *imms; i++) {
				struct tutti_vm_insn insns[2] = {{
					.code = code,
					.regs = (uint8_t)(registers[r / sizeof registers] |
							  registers[r % sizeof registers] << 4),
					.off = offs[o],
					.imm = imms[i],
				}};

				valid += (unsigned)round_trip(insns);
			}
	return valid;
}

/*
 * 2 widths of 12 operations from 2 sources, and of neg; 3 swaps; 11 conditions
 * of 2 widths and sources; 2 jumps, call, exit; lddw; 7 loads, 8 stores, 2
 * widths of atomics.
 */
static void every_code(void **state)
{
	unsigned codes = 0;

	for (unsigned code = 0; code < 256; code++)
		codes += count_valid((uint8_t)code) > 0;
	assert_int_equal(codes, 2 * (12 * 2 + 1) + 3 + 11 * 4 + 2 + 1 + 1 + 1 + 7 + 8 + 2);
}

/* Of the borders above: 5 registers, 9 offsets, 17 immediates. */
static void every_field(void **state)
{
	assert_int_equal(count_valid(TT_ALU64 | TT_K | TT_ADD), 5 * 17);
	assert_int_equal(count_valid(TT_ALU64 | TT_X | TT_ADD), 5 * 5);
	assert_int_equal(count_valid(TT_ALU | TT_K | TT_DIV), 5 * 2 * 17); /* signed or not */
	assert_int_equal(count_valid(TT_ALU | TT_X | TT_MOD), 5 * 5 * 2);
	assert_int_equal(count_valid(TT_ALU64 | TT_K | TT_MOV), 5 * 17);
	assert_int_equal(count_valid(TT_ALU64 | TT_X | TT_MOV), 5 * 5 * 4); /* 0, 8, 16, 32 */
	assert_int_equal(count_valid(TT_ALU | TT_X | TT_MOV), 5 * 5 * 3);   /* 0, 8, 16 */
	assert_int_equal(count_valid(TT_ALU | TT_NEG), 5);
	assert_int_equal(count_valid(TT_ALU | TT_X | TT_END), 5 * 3);
	assert_int_equal(count_valid(TT_JMP | TT_JA), 9);
	assert_int_equal(count_valid(TT_JMP32 | TT_JA), 17);
	assert_int_equal(count_valid(TT_JMP32 | TT_K | TT_JSET), 5 * 9 * 17);
	assert_int_equal(count_valid(TT_JMP | TT_X | TT_JSLE), 5 * 5 * 9);
	/* Two of them are negative, and no index of an extern. */
	assert_int_equal(count_valid(TT_JMP | TT_CALL), 17 + 17 + 15);
	assert_int_equal(count_valid(TT_JMP | TT_EXIT), 1);
	assert_int_equal(count_valid(TT_LDX | TT_MEM | TT_B), 5 * 5 * 9);
	assert_int_equal(count_valid(TT_LDX | TT_MEMSX | TT_DW), 0);
	assert_int_equal(count_valid(TT_ST | TT_MEM | TT_DW), 5 * 9 * 17);
	assert_int_equal(count_valid(TT_STX | TT_MEM | TT_W), 5 * 5 * 9);
	assert_int_equal(count_valid(TT_STX | TT_ATOMIC | TT_W), 5 * 5 * 9 * 10);
	assert_int_equal(count_valid(TT_STX | TT_ATOMIC | TT_B), 0);
	assert_int_equal(count_valid(TT_LDDW), 5 * 17 + 5 * 15); /* numbers, maps */
}

static void wide(void **state)
{
	struct tutti_vm_insn insns[2] = {{.code = TT_LDDW, .imm = 1}, {.imm = -2}};
	char text[128];

	assert_int_equal(round_trip(insns), 1);
	assert_int_equal(tutti_vm_disassemble(insns, 2, 0, text, sizeof text), 2);
	assert_string_equal(text, "lddw %r0, 0xfffffffe00000001");
	assert_int_equal(tutti_vm_disassemble(insns, 1, 0, text, sizeof text), -EINVAL);
	assert_non_null(strstr(text, "second half is missing"));
	assert_int_equal(tutti_vm_disassemble(insns, 2, 1, text, sizeof text), -EINVAL);
	assert_non_null(strstr(text, "no instruction has the code 0x00"));
	assert_int_equal(tutti_vm_disassemble(insns, 2, 2, text, sizeof text), -EINVAL);
	assert_string_equal(text, "?? (no instruction 2: there are 2)");
	insns[0].regs = TT_WIDE_MAP << 4;
	assert_int_equal(round_trip(insns), 0);
	insns[1] = (struct tutti_vm_insn){.code = TT_LDDW};
	assert_int_equal(round_trip(insns), 0);
	insns[1] = (struct tutti_vm_insn){.regs = 1};
	assert_int_equal(round_trip(insns), 0);
	insns[1] = (struct tutti_vm_insn){.off = 1};
	assert_int_equal(round_trip(insns), 0);
	insns[1] = (struct tutti_vm_insn){0};
	assert_int_equal(round_trip(insns), 1);
}

/* Instructions as others wrote them down: the bytes, one after the other. */
static void known_bytes(void **state)
{
	static const struct {
		const char *text, *bytes, *back; /* back NULL: as text */
	} cases[] = {
		{"add %r1, -2", "07 01 00 00 fe ff ff ff", NULL},
		{"add32 %r1, %r10", "0c a1 00 00 00 00 00 00", NULL},
		{"mov %r3, 0xffffffff", "b7 03 00 00 ff ff ff ff", "mov %r3, -1"},
		{"mov %r3, -0x80000000", "b7 03 00 00 00 00 00 80", "mov %r3, -2147483648"},
		{"sdiv32 %r2, %r3", "3c 32 01 00 00 00 00 00", NULL},
		{"smod %r2, 7", "97 02 01 00 07 00 00 00", NULL},
		{"neg32 %r4", "84 04 00 00 00 00 00 00", NULL},
		{"movsx3264 %r0, %r1", "bf 10 20 00 00 00 00 00", NULL},
		{"movsx832 %r0, %r1", "bc 10 08 00 00 00 00 00", NULL},
		{"be16 %r0", "dc 00 00 00 10 00 00 00", NULL},
		{"le64 %r0", "d4 00 00 00 40 00 00 00", NULL},
		{"swap32 %r0", "d7 00 00 00 20 00 00 00", "bswap32 %r0"},
		{"arsh %r1, 3", "c7 01 00 00 03 00 00 00", NULL},
		{"ldxdw %r0, [%r1+0x10]", "79 10 10 00 00 00 00 00", "ldxdw %r0, [%r1+16]"},
		{"ldxsb %r0, [ %r10 - 1 ]", "91 a0 ff ff 00 00 00 00", "ldxsb %r0, [%r10-1]"},
		{"ldxsw %r0, [%r1]", "81 10 00 00 00 00 00 00", NULL},
		{"stb [%r1+2], 17", "72 01 02 00 11 00 00 00", NULL},
		{"stxh [%r10-32768], %r3", "6b 3a 00 80 00 00 00 00", NULL},
		{"lock add [%r10-8], %r1", "db 1a f8 ff 00 00 00 00", NULL},
		{"lock fetch xor32 [%r10-8], %r1", "c3 1a f8 ff a1 00 00 00", NULL},
		{"lock fetch_add [%r1], %r2", "db 21 00 00 01 00 00 00",
		 "lock fetch add [%r1], %r2"},
		{"lock xchg [%r1], %r2", "db 21 00 00 e1 00 00 00", NULL},
		{"lock cmpxchg32 [%r1], %r2", "c3 21 00 00 f1 00 00 00", NULL},
		{"ja +32767", "05 00 ff 7f 00 00 00 00", NULL},
		{"ja32 -70000", "06 00 00 00 90 ee fe ff", NULL},
		{"gotol +1", "06 00 00 00 01 00 00 00", "ja32 +1"},
		{"jset %r1, 8, -1", "45 01 ff ff 08 00 00 00", NULL},
		{"jslt32 %r1, %r2, +3", "ce 21 03 00 00 00 00 00", NULL},
		{"call 5", "85 00 00 00 05 00 00 00", NULL},
		{"call local -1", "85 10 00 00 ff ff ff ff", NULL},
		{"call extern 2", "85 20 00 00 02 00 00 00", NULL},
		{"exit", "95 00 00 00 00 00 00 00", NULL},
		{"lddw %r6, 0x1122334455667788", "18 06 00 00 88 77 66 55 00 00 00 00 44 33 22 11",
		 NULL},
		{"lddw %r6, -1", "18 06 00 00 ff ff ff ff 00 00 00 00 ff ff ff ff",
		 "lddw %r6, 0xffffffffffffffff"},
		{"lddw %r1, map 3", "18 11 00 00 03 00 00 00 00 00 00 00 00 00 00 00", NULL},
		{" ADD: lock  fetch\tand [ %r1 ] ,%r3", "db 31 00 00 51 00 00 00",
		 "lock fetch and [%r1], %r3"},
		{"\texit ; done\r\n# more\n\n", "95 00 00 00 00 00 00 00", "exit"},
		{"here:there: ja here", "05 00 ff ff 00 00 00 00", "ja -1"},
		{"local: call local local", "85 10 00 00 ff ff ff ff", "call local -1"},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct tutti_vm_object *object = assembled(cases[i].text);
		char hex[64] = "", text[128];

		for (size_t k = 0; k < object->n_insns * sizeof *object->insns; k++)
			sprintf(hex + strlen(hex), "%s%02x", k ? " " : "",
				((const uint8_t *)object->insns)[k]);
		assert_string_equal(hex, cases[i].bytes);
		assert_int_equal(
			tutti_vm_disassemble(object->insns, object->n_insns, 0, text, sizeof text),
			object->n_insns);
		assert_string_equal(text, cases[i].back ? cases[i].back : cases[i].text);
		tutti_vm_object_destroy(object);
	}
}

/* --- what the disassembler says ------------------------------------------------------ */

static void told(void **state)
{
	static const struct {
		struct tutti_vm_insn insn;
		const char *text;
	} cases[] = {
		{{0x07, 0x10, 0, 1}, "?? 07 10 00 00 01 00 00 00 (src is 1, allowed: 0)"},
		{{0x07, 0x0b, 0, 1}, "?? 07 0b 00 00 01 00 00 00 (dst is 11, allowed: 0 to 10)"},
		{{0xbf, 0x00, 9, 0},
		 "?? bf 00 09 00 00 00 00 00 (off is 9, allowed: 0, 8, 16, 32)"},
		{{0xdc, 0x00, 0, 8}, "?? dc 00 00 00 08 00 00 00 (imm is 8, allowed: 16, 32, 64)"},
		{{0x85, 0x31, 0, 0}, "?? 85 31 00 00 00 00 00 00 (dst is 1, allowed: 0)"},
		{{0x85, 0x30, 0, 0}, "?? 85 30 00 00 00 00 00 00 (src is 3, allowed: 0, 1, 2)"},
		{{0x85, 0x20, 0, -1},
		 "?? 85 20 00 00 ff ff ff ff (no instruction has the code 0x85, or not with these "
		 "fields)"},
		{{0xff, 0x00, 0, 0},
		 "?? ff 00 00 00 00 00 00 00 (no instruction has the code 0xff, or not with these "
		 "fields)"},
	};
	char text[128];

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		assert_int_equal(tutti_vm_disassemble(&cases[i].insn, 1, 0, text, sizeof text),
				 -EINVAL);
		assert_string_equal(text, cases[i].text);
	}
}

static void short_buffer(void **state)
{
	const struct tutti_vm_insn insn = {
		.code = TT_LDX | TT_MEM | TT_DW, .regs = 0xa1, .off = -8};
	char text[12] = "...........";

	assert_int_equal(tutti_vm_disassemble(&insn, 1, 0, text, 8), 1);
	assert_string_equal(text, "ldxdw %");
	assert_string_equal(text + 8, "...");
	assert_int_equal(tutti_vm_disassemble(&insn, 1, 0, text, 1), 1);
	assert_string_equal(text, "");
	text[0] = '.';
	assert_int_equal(tutti_vm_disassemble(&insn, 1, 0, text, 0), 1);
	assert_int_equal(text[0], '.');
}

/* --- errors -------------------------------------------------------------------------- */

static void errors(void **state)
{
	static const struct {
		const char *text, *error;
	} cases[] = {
		{"", "line 1: the text has no instruction: write at least exit"},
		{"# none\n\n", "line 2: the text has no instruction: write at least exit"},
		{"exit\nldxq %r0, %r1",
		 "line 2: there is no instruction 'ldxq' (tutti-vm(1) lists them)"},
		{"Exit", "line 1: there is no instruction 'Exit' (tutti-vm(1) lists them)"},
		{"lddw %r0",
		 "line 1: wrong operands for lddw: write lddw REGISTER, NUMBER | lddw REGISTER, map NAME"},
		{"ldxb %r0, %r1",
		 "line 1: wrong operands for ldxb: write ldxb REGISTER, [REGISTER+OFFSET]"},
		{"exit 0", "line 1: wrong operands for exit: write exit"},
		{"call %r2",
		 "line 1: wrong operands for call: write call NUMBER | call local FUNCTION | call extern NAME"},
		{"call local 3",
		 "line 1: wrong operands for call: write call NUMBER | call local FUNCTION | call extern NAME"},
		{"ja 3", "line 1: wrong operands for ja: write ja LABEL"},
		{"mov %r0, map 3",
		 "line 1: wrong operands for mov: write mov REGISTER, NUMBER | mov REGISTER, REGISTER"},
		{"lock",
		 "line 1: lock needs an operation: lock [fetch] add, or, and, xor, or lock xchg, cmpxchg"},
		{"lock fetch",
		 "line 1: lock fetch needs an operation: lock [fetch] add, or, and, xor, or lock xchg, cmpxchg"},
		{"lock or [%r10-8]",
		 "line 1: wrong operands for lock or: write lock or [REGISTER+OFFSET], REGISTER"},
		{"lock sub [%r1], %r1",
		 "line 1: there is no instruction 'lock sub' (tutti-vm(1) lists them)"},
		{"or %r0, %r50", "line 1: there is no register %r50: they are %r0 to %r10"},
		{"or %r0, %r01", "line 1: there is no register %r01: they are %r0 to %r10"},
		{"or %r0, %", "line 1: there is no register %: they are %r0 to %r10"},
		{"or %r0 %r1", "line 1: there must be a comma, or the line's end, before '%'"},
		{"or %r0,", "line 1: an operand is missing after the comma"},
		{"or %r0, %r1, 2, 3", "line 1: too many operands: no instruction has more than 3"},
		{"or %r0, ?",
		 "line 1: '?' does not begin an operand: registers are %r1, addresses [%r1+8], numbers 12 or 0x0c"},
		{"lddw %r0, map ?",
		 "line 1: '?' does not begin an operand: registers are %r1, addresses [%r1+8], numbers 12 or 0x0c"},
		{"or %r0, 12x", "line 1: '12x' is no number: write it as 12 or 0x0c, digits only"},
		{"or %r0, 0xg", "line 1: '0xg' is no number: write it as 12 or 0x0c, digits only"},
		{"or %r0, 0x", "line 1: '0x' is no number: write it as 12 or 0x0c, digits only"},
		{"or %r0, -", "line 1: there must be a number after '-'"},
		{"mov32 %r0, 2147483648",
		 "line 1: 2147483648 does not fit into 32 bits: use lddw to set a register to it, or 0x... for a pattern of bits"},
		{"mov32 %r0, 0x100000000",
		 "line 1: 4294967296 does not fit into 32 bits: use lddw to set a register to it, or 0x... for a pattern of bits"},
		{"mov32 %r0, -2147483649",
		 "line 1: -2147483649 does not fit into 32 bits: use lddw to set a register to it, or 0x... for a pattern of bits"},
		{"lddw %r0, 18446744073709551616",
		 "line 1: the number 18446744073709551616 does not fit into 64 bits"},
		{"lddw %r0, -9223372036854775809",
		 "line 1: -9223372036854775809 does not fit into 64 bits"},
		{"ldxb %r0, [%r1+0x10000]",
		 "line 1: the offset cannot be 65536: it is -32768 to 32767"},
		{"ldxb %r0, [%r1-32769]",
		 "line 1: the offset cannot be -32769: it is -32768 to 32767"},
		{"ldxb %r0, [%r1*2]", "line 1: an address is written [%r1], [%r1+8] or [%r1-8]"},
		{"ldxb %r0, [%r1+]", "line 1: there must be a number after '+'"},
		{"ldxb %r0, [r1]", "line 1: there must be a register here: %r0 to %r10"},
		{"ja +32768", "line 1: the target cannot be 32768: it is -32768 to 32767"},
		{"lddw %r0, map -1", "line 1: the index cannot be -1: it is 0 to 2147483647"},
		{"ja NOT_A_LABEL\nexit",
		 "line 1: there is no label NOT_A_LABEL: a line 'NOT_A_LABEL:' makes one"},
		{"exit\nja exit", "line 2: no instruction follows for exit: put one there"},
		{"ja end\nend:", "line 1: no instruction follows for end: put one there"},
		{"call local exit\nexit",
		 "line 1: there is no label exit: a line 'exit:' makes one"},
		{"x: exit\ny:exit\nx: exit",
		 "line 3: the label x is already at line 1: name it otherwise"},
		{"lddw %r0, map m", "line 1: there is no map m: declare it with .map"},
		{".maps", "line 1: there is no such directive: only .map"},
		{".map m, 1, 2, 3",
		 "line 1: a map is declared as .map NAME, TYPE, KEY_BYTES, VALUE_BYTES, ENTRIES[, FLAGS], its name shorter than 64"},
		{".map m, 1, 2, 3, n",
		 "line 1: a map is declared as .map NAME, TYPE, KEY_BYTES, VALUE_BYTES, ENTRIES[, FLAGS], its name shorter than 64"},
		{".map m, 1, 2, 3, 4, 5, 6",
		 "line 1: too many operands: no instruction has more than 6"},
		{".map m, 1, -2, 3, 4", "line 1: it cannot be -2: it is 0 to 4294967295"},
		{".map m, 1, 2, 3, 4\n.map m, 1, 2, 3, 4",
		 "line 2: there is a map m already: name it otherwise"},
		{"-- asm", "line 1: '-' does not begin an instruction, a label or a comment"},
		{"ex\001it",
		 "line 1: '?' does not begin an operand: registers are %r1, addresses [%r1+8], numbers 12 or 0x0c"},
		{"a_name_that_is_longer_than_forty_characters_and_than_sixty_four_too",
		 "line 1: there is no instruction 'a_name_that_is_longer_than_forty_charact' (tutti-vm(1) lists them)"},
		{"lock a_name_that_is_longer_than_forty_characters_and_than_sixty_four",
		 "line 1: there is no instruction 'lock a name that is longer than forty ch' (tutti-vm(1) lists them)"},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct tutti_vm_object *object = NULL;
		struct tutti_vm_error error = {0};
		unsigned line;

		assert_int_equal(assemble(cases[i].text, &object, &error), -EINVAL);
		assert_null(object);
		assert_string_equal(error.text, cases[i].error);
		assert_int_equal(sscanf(cases[i].error, "line %u:", &line), 1);
		assert_int_equal(error.line, line);
		assert_int_equal(error.insn, -1);
		assert_int_equal(error.reg, -1);
		assert_int_equal(assemble(cases[i].text, &object, NULL), -EINVAL);
	}
}

static char *repeated(const char *first, const char *line, unsigned times, const char *last)
{
	char *text = malloc(strlen(first) + strlen(line) * times + strlen(last) + 1), *at = text;

	at = stpcpy(at, first);
	for (unsigned i = 0; i < times; i++)
		at = stpcpy(at, line);
	strcpy(at, last);
	return text;
}

static void too_long(void **state)
{
	struct tutti_vm_object *object = NULL;
	struct tutti_vm_error error;
	char *text = repeated("", "exit\n", TUTTI_VM_MAX_INSNS, "");

	assert_int_equal(assemble(text, &object, &error), 0);
	assert_int_equal(object->n_insns, TUTTI_VM_MAX_INSNS);
	tutti_vm_object_destroy(object);
	free(text);
	text = repeated("", "exit\n", TUTTI_VM_MAX_INSNS - 1, "lddw %r0, 0");
	assert_int_equal(assemble(text, &object, &error), -EINVAL);
	assert_string_equal(error.text, "line 65536: too many instructions: at most 65536");
	free(text);
}

/* As many maps as an object file may have: each is compared with all before. */
static void too_many_maps(void **state)
{
	struct tutti_vm_object *object = NULL;
	struct tutti_vm_error error;
	char *text = malloc(257 * 32), *at = text;

	for (int i = 0; i < 256; i++)
		at += sprintf(at, ".map m%d, 1, 4, 4, 1\n", i);
	strcpy(at, "exit\n");
	assert_int_equal(assemble(text, &object, &error), 0);
	assert_int_equal(object->n_maps, 256);
	tutti_vm_object_destroy(object);
	strcpy(at, ".map last, 1, 4, 4, 1\nexit\n");
	assert_int_equal(assemble(text, &object, &error), -EINVAL);
	assert_string_equal(error.text, "line 257: too many maps: at most 256");
	free(text);
}

/* A long jump's label is as far as it likes; a short one's is not. */
static void far_labels(void **state)
{
	struct tutti_vm_object *object = NULL;
	struct tutti_vm_error error;
	char *text = repeated("ja32 far\n", "mov %r0, 0\n", 40000, "far: ja32 far\nexit\n");

	assert_int_equal(assemble(text, &object, &error), 0);
	assert_int_equal(object->insns[0].imm, 40000);
	assert_int_equal(object->insns[40001].imm, -1);
	tutti_vm_object_destroy(object);
	free(text);
	text = repeated("exit\nja far\n", "mov %r0, 0\n", 32768, "far: exit\n");
	assert_int_equal(assemble(text, &object, &error), -EINVAL);
	assert_string_equal(
		error.text,
		"line 2: far is 32768 instructions away, a jump reaches 32767: use ja32");
	free(text);
}

/* --- what surrounds instructions ------------------------------------------------------ */

static void exits(void **state)
{
	struct tutti_vm_object *object = assembled("jeq %r1, 1, exit\n"
						   "jeq %r1, 2, +1\n"
						   "exit\n"
						   "ja exit\n"
						   "mov %r0, 0\n"
						   "exit\n");

	assert_int_equal(object->insns[0].off, 1);
	assert_int_equal(object->insns[3].off, 1);
	tutti_vm_object_destroy(object);
	object = assembled("exit: mov %r0, 1\nja exit\nexit");
	assert_int_equal(object->insns[1].off, -2);
	tutti_vm_object_destroy(object);
}

static void functions(void **state)
{
	static const struct {
		const char *name;
		uint32_t start, end;
	} wanted[] = {{"main", 0, 4}, {"second", 4, 6}, {"func_6", 6, 8}, {"third", 8, 9}};
	struct tutti_vm_object *object = assembled("start:\n"
						   "call local third\n"
						   "call local +4\n"
						   "call local start\n"
						   "exit\n"
						   "second: call local second\n"
						   "exit\n"
						   "lddw %r0, 7\n"
						   "third: call local +1000\n");

	assert_int_equal(object->n_funcs, 4);
	for (size_t i = 0; i < 4; i++) {
		assert_string_equal(object->funcs[i].name, wanted[i].name);
		assert_string_equal(object->funcs[i].section, "main");
		assert_int_equal(object->funcs[i].start, wanted[i].start);
		assert_int_equal(object->funcs[i].end, wanted[i].end);
		assert_int_equal(object->funcs[i].entry, i == 0);
	}
	tutti_vm_object_destroy(object);

	/* Into the middle of a wide one, and out of a wide one at the end. */
	object = assembled("call local +2\ncall local -5\nlddw %r0, 1\nexit");
	assert_int_equal(object->n_funcs, 1);
	assert_int_equal(object->funcs[0].end, 5);
	tutti_vm_object_destroy(object);
}

static void bare_instructions(void **state)
{
	const struct tutti_vm_insn insns[] = {
		{.code = TT_JMP | TT_CALL, .regs = TT_CALL_LOCAL << 4, .imm = 1},
		{.code = TT_JMP | TT_EXIT},
		{.code = TT_LDDW},
	};
	struct tutti_vm_object *object;
	const struct tutti_vm_insn *same;

	assert_int_equal(tutti_vm_object_from_insns(insns, 0, &object), -EINVAL);
	assert_int_equal(tutti_vm_object_from_insns(insns, TUTTI_VM_MAX_INSNS + 1, &object),
			 -EINVAL);
	assert_int_equal(tutti_vm_object_from_insns(insns, 3, &object), 0);
	assert_int_equal(tutti_vm_object_insns(object, &same), 3);
	assert_memory_equal(same, insns, sizeof insns);
	assert_int_equal(object->n_funcs, 2);
	assert_string_equal(object->funcs[0].name, "main");
	assert_true(object->funcs[0].entry);
	assert_int_equal(object->funcs[0].end, 2);
	assert_string_equal(object->funcs[1].name, "func_2");
	assert_false(object->funcs[1].entry);
	assert_int_equal(object->funcs[1].end, 3);
	assert_null(tt_vm_object_line(object, 0));
	assert_null(tt_vm_object_func(object, 3));
	tutti_vm_object_destroy(object);
	tutti_vm_object_destroy(NULL);
}

static void maps_and_externs(void **state)
{
	static const int indices[] = {0, 1, 0, 7};
	const struct tutti_vm_map *maps;
	struct tutti_vm_object *object = assembled(".map first, 1, 4, 8, 16\n"
						   "lddw %r1, map second\n"
						   "lddw %r1, map first\n"
						   ".map second, 2, 0x4, 0xffffffff, 3, 1 ; flags\n"
						   "call extern reply\n"
						   "call extern local\n"
						   "call extern reply\n"
						   "call extern 7\n");

	assert_int_equal(tutti_vm_object_maps(object, &maps), 2);
	assert_string_equal(maps[0].name, "first");
	assert_string_equal(maps[1].name, "second");
	assert_int_equal(maps[0].type, 1);
	assert_int_equal(maps[0].key_bytes, 4);
	assert_int_equal(maps[0].value_bytes, 8);
	assert_int_equal(maps[0].max_entries, 16);
	assert_int_equal(maps[0].flags, 0);
	assert_int_equal(maps[1].value_bytes, UINT32_MAX);
	assert_int_equal(maps[1].flags, 1);
	assert_int_equal(object->insns[0].imm, 1);
	assert_int_equal(object->insns[2].imm, 0);
	assert_int_equal(object->n_externs, 2);
	assert_string_equal(object->externs[0], "reply");
	assert_string_equal(object->externs[1], "local");
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(object->insns[4 + i].imm, indices[i]);
		assert_int_equal(tt_vm_src(&object->insns[4 + i]), TT_CALL_EXTERN);
	}
	tutti_vm_object_destroy(object);
}

static void lines(void **state)
{
	struct tutti_vm_object *object = assembled("# remark\n"
						   "  a: lddw %r1, 1 \t # one\r\n"
						   "\n"
						   "b: c:\tmov   %r0, 1;two\n"
						   "exit");
	static const struct {
		uint32_t insn, line;
		const char *text;
	} wanted[] = {{0, 2, "lddw %r1, 1"}, {2, 4, "mov   %r0, 1"}, {3, 5, "exit"}};
	struct tutti_vm_error error;

	assert_int_equal(object->n_lines, 3);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(object->lines[i].insn, wanted[i].insn);
		assert_int_equal(object->lines[i].line, wanted[i].line);
		assert_string_equal(object->lines[i].text, wanted[i].text);
		assert_null(object->lines[i].file);
	}
	assert_int_equal(tt_vm_object_line(object, 1)->line, 2);

	/* The verifier's words name the line of the text. */
	assert_int_equal(tt_vm_fail(&error, -EACCES, object, 2, 3, "%s", "wrong"), -EACCES);
	assert_string_equal(error.text, "line 4: instruction 2: wrong");
	assert_int_equal(error.line, 4);
	assert_int_equal(error.insn, 2);
	assert_int_equal(error.reg, 3);
	object->lines[1].file = strdup("prog.c");
	tt_vm_fail(&error, -EACCES, object, 2, -1, "wrong");
	assert_string_equal(error.text, "prog.c:4: instruction 2: wrong");
	tt_vm_fail(&error, -EACCES, object, -1, -1, "wrong");
	assert_string_equal(error.text, "wrong");
	tt_vm_fail(&error, -EACCES, NULL, 2, -1, "wrong");
	assert_string_equal(error.text, "instruction 2: wrong");
	assert_int_equal(tt_vm_fail(NULL, -EACCES, NULL, 2, -1, "wrong"), -EACCES);
	tutti_vm_object_destroy(object);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_code),
		cmocka_unit_test(every_field),
		cmocka_unit_test(wide),
		cmocka_unit_test(known_bytes),
		cmocka_unit_test(told),
		cmocka_unit_test(short_buffer),
		cmocka_unit_test(errors),
		cmocka_unit_test(too_long),
		cmocka_unit_test(too_many_maps),
		cmocka_unit_test(far_labels),
		cmocka_unit_test(exits),
		cmocka_unit_test(functions),
		cmocka_unit_test(bare_instructions),
		cmocka_unit_test(maps_and_externs),
		cmocka_unit_test(lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
