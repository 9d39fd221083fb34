/* SPDX-License-Identifier: MIT */
#include "vm/asm_int.h"

#include "vm/forms.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* How much of a word is shown in an error. */
#define SHOWN(piece) (int)((piece).len < 40 ? (piece).len : 40), (piece).at

int tt_asm_fail(const struct tt_asm_line *line, const char *format, ...)
{
	struct tutti_vm_error *error = line->error;
	va_list list;
	int used;

	if (!error)
		return -EINVAL;
	*error = (struct tutti_vm_error){.insn = -1, .reg = -1, .line = line->number};
	used = snprintf(error->text, sizeof error->text, "line %" PRIu32 ": ", line->number);
	va_start(list, format);
	vsnprintf(error->text + used, sizeof error->text - (size_t)used, format, list);
	va_end(list);
	for (char *c = error->text; *c; c++)
		if (*c < 0x20 || *c > 0x7e)
			*c = '?';
	return -EINVAL;
}

/* --- words ----------------------------------------------------------------------- */

/* The locale has no say in it. */
static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
	       c == '.';
}

bool tt_asm_is(struct tt_asm_piece piece, const char *word)
{
	return piece.len == strlen(word) && memcmp(piece.at, word, piece.len) == 0;
}

bool tt_asm_at_end(struct tt_asm_line *line)
{
	while (line->at < line->end && (*line->at == ' ' || *line->at == '\t' || *line->at == '\r'))
		line->at++;
	return line->at == line->end;
}

bool tt_asm_take(struct tt_asm_line *line, char c)
{
	if (tt_asm_at_end(line) || *line->at != c)
		return false;
	line->at++;
	return true;
}

static struct tt_asm_piece letters_and_digits(struct tt_asm_line *line)
{
	struct tt_asm_piece piece = {line->at, 0};

	while (line->at < line->end && is_word(*line->at))
		line->at++;
	piece.len = (size_t)(line->at - piece.at);
	return piece;
}

struct tt_asm_piece tt_asm_word(struct tt_asm_line *line)
{
	if (tt_asm_at_end(line) || is_digit(*line->at))
		return (struct tt_asm_piece){line->at, 0};
	return letters_and_digits(line);
}

/* --- numbers --------------------------------------------------------------------- */

static int digit_of(char c)
{
	if (is_digit(c))
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : 99;
}

/* The sign, if any, has been taken. */
static int take_number(struct tt_asm_line *line, char sign, struct tt_asm_number *ret)
{
	struct tt_asm_number number = {.negative = sign == '-', .sign = sign != '\0'};
	struct tt_asm_piece word;
	unsigned base, i;

	if (tt_asm_at_end(line) || !is_digit(*line->at))
		return tt_asm_fail(line, "there must be a number after '%c'", sign);
	word = letters_and_digits(line);
	number.hex = word.len > 2 && word.at[0] == '0' && (word.at[1] | 0x20) == 'x';
	base = number.hex ? 16 : 10;
	for (i = number.hex ? 2 : 0; i < word.len; i++) {
		unsigned digit = (unsigned)digit_of(word.at[i]);

		if (digit >= base)
			return tt_asm_fail(
				line, "'%.*s' is no number: write it as 12 or 0x0c, digits only",
				SHOWN(word));
		if (number.magnitude > (UINT64_MAX - digit) / base)
			return tt_asm_fail(line, "the number %.*s does not fit into 64 bits",
					   SHOWN(word));
		number.magnitude = number.magnitude * base + digit;
	}
	*ret = number;
	return 0;
}

static const char *minus(const struct tt_asm_number *number)
{
	return number->negative ? "-" : "";
}

int tt_asm_imm32(const struct tt_asm_line *line, const struct tt_asm_number *number,
		 int32_t *ret_value)
{
	uint64_t max = number->negative ? 0x80000000 : number->hex ? UINT32_MAX : INT32_MAX;
	uint32_t value = (uint32_t)number->magnitude;

	if (number->magnitude > max)
		return tt_asm_fail(line,
				   "%s%" PRIu64 " does not fit into 32 bits: use lddw to set a "
				   "register to it, or 0x... for a pattern of bits",
				   minus(number), number->magnitude);
	*ret_value = (int32_t)(number->negative ? -value : value);
	return 0;
}

int tt_asm_imm64(const struct tt_asm_line *line, const struct tt_asm_number *number,
		 uint64_t *ret_value)
{
	if (number->negative && number->magnitude > (uint64_t)1 << 63)
		return tt_asm_fail(line, "-%" PRIu64 " does not fit into 64 bits",
				   number->magnitude);
	*ret_value = number->negative ? -number->magnitude : number->magnitude;
	return 0;
}

int tt_asm_range(const struct tt_asm_line *line, const struct tt_asm_number *number, int64_t low,
		 int64_t high, const char *what, int64_t *ret_value)
{
	uint64_t max = number->negative ? (uint64_t)-low : (uint64_t)high;

	if (number->magnitude > max)
		return tt_asm_fail(line,
				   "%s cannot be %s%" PRIu64 ": it is %" PRId64 " to %" PRId64,
				   what, minus(number), number->magnitude, low, high);
	*ret_value = number->negative ? -(int64_t)number->magnitude : (int64_t)number->magnitude;
	return 0;
}

/* --- operands -------------------------------------------------------------------- */

static int take_register(struct tt_asm_line *line, uint8_t *ret_reg)
{
	struct tt_asm_piece word;

	if (!tt_asm_take(line, '%'))
		return tt_asm_fail(line, "there must be a register here: %%r0 to %%r10");
	word = letters_and_digits(line);
	for (unsigned reg = 0; reg < TT_REGS; reg++) {
		char name[16];

		snprintf(name, sizeof name, "r%u", reg);
		if (tt_asm_is(word, name)) {
			*ret_reg = (uint8_t)reg;
			return 0;
		}
	}
	return tt_asm_fail(line, "there is no register %%%.*s: they are %%r0 to %%r10",
			   SHOWN(word));
}

static int take_memory(struct tt_asm_line *line, struct tt_asm_operand *ret)
{
	int64_t off = 0;
	char sign;
	int err = take_register(line, &ret->reg);

	if (err)
		return err;
	sign = tt_asm_take(line, '+') ? '+' : tt_asm_take(line, '-') ? '-' : '\0';
	if (sign) {
		struct tt_asm_number number;

		err = take_number(line, sign, &number);
		if (!err)
			err = tt_asm_range(line, &number, INT16_MIN, INT16_MAX, "the offset", &off);
		if (err)
			return err;
	}
	if (!tt_asm_take(line, ']'))
		return tt_asm_fail(line, "an address is written [%%r1], [%%r1+8] or [%%r1-8]");
	ret->kind = TT_ASM_MEM;
	ret->off = (int16_t)off;
	return 0;
}

static char qualifier_of(struct tt_asm_piece word)
{
	return tt_asm_is(word, "local")	   ? TT_OPERAND_LOCAL
	       : tt_asm_is(word, "extern") ? TT_OPERAND_EXTERN
	       : tt_asm_is(word, "map")	   ? TT_OPERAND_MAP
					   : '\0';
}

static int take_operand(struct tt_asm_line *line, struct tt_asm_operand *ret)
{
	char sign;

	*ret = (struct tt_asm_operand){0};
	if (tt_asm_at_end(line))
		return tt_asm_fail(line, "an operand is missing after the comma");
	if (*line->at == '%') {
		ret->kind = TT_ASM_REG;
		return take_register(line, &ret->reg);
	}
	if (tt_asm_take(line, '['))
		return take_memory(line, ret);
	ret->name = tt_asm_word(line);
	if (ret->name.len) {
		ret->kind = TT_ASM_NAME;
		/* "call local" alone would call a function that has this name. */
		if (!qualifier_of(ret->name) || tt_asm_at_end(line) || *line->at == ',')
			return 0;
		ret->qualifier = qualifier_of(ret->name);
		ret->name = tt_asm_word(line);
		if (ret->name.len)
			return 0;
	}
	ret->kind = TT_ASM_NUMBER;
	sign = tt_asm_take(line, '+') ? '+' : tt_asm_take(line, '-') ? '-' : '\0';
	if (!sign && (tt_asm_at_end(line) || !is_digit(*line->at)))
		return tt_asm_fail(line,
				   "'%c' does not begin an operand: registers are %%r1, "
				   "addresses [%%r1+8], numbers 12 or 0x0c",
				   tt_asm_at_end(line) ? ' ' : *line->at);
	return take_number(line, sign, &ret->number);
}

int tt_asm_operands(struct tt_asm_line *line, struct tt_asm_operand *ret_list, unsigned max,
		    unsigned *ret_count)
{
	unsigned count = 0;

	while (!tt_asm_at_end(line)) {
		int err;

		if (count && !tt_asm_take(line, ','))
			return tt_asm_fail(line,
					   "there must be a comma, or the line's end, before '%c'",
					   *line->at);
		if (count == max)
			return tt_asm_fail(
				line, "too many operands: no instruction has more than %u", max);
		err = take_operand(line, &ret_list[count]);
		if (err)
			return err;
		count++;
	}
	*ret_count = count;
	return 0;
}
