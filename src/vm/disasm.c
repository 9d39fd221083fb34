/* SPDX-License-Identifier: MIT */
#include "vm/forms.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A text under construction: what does not fit is left out, as snprintf does. */
struct out {
	char *text;
	size_t bytes, used;
};

__attribute__((format(printf, 2, 3))) static void put(struct out *out, const char *format, ...)
{
	va_list list;
	int n;

	va_start(list, format);
	n = vsnprintf(out->text + out->used, out->bytes - out->used, format, list);
	va_end(list);
	if (n > 0)
		out->used += (size_t)n;
	if (out->used >= out->bytes)
		out->used = out->bytes ? out->bytes - 1 : 0;
}

/* --- which form ------------------------------------------------------------------ */

enum field { DST, SRC, OFF, IMM, FIELDS };

static const char *const field_names[] = {"dst", "src", "off", "imm"};

static int64_t field_of(const struct tutti_vm_insn *insn, enum field field)
{
	switch (field) {
	case DST: return tt_vm_dst(insn);
	case SRC: return tt_vm_src(insn);
	case OFF: return insn->off;
	default: return insn->imm;
	}
}

/* The least and the greatest value that the form has there. */
static void allowed(const struct tt_vm_form *form, enum field field, int64_t *ret_low,
		    int64_t *ret_high)
{
	static const char *const fills[] = {TT_FILLS_DST, TT_FILLS_SRC, TT_FILLS_OFF, TT_FILLS_IMM};
	static const int64_t lows[] = {0, 0, INT16_MIN, INT32_MIN};
	static const int64_t highs[] = {TT_FP, TT_FP, INT16_MAX, INT32_MAX};
	const int64_t fixed[] = {0, form->src, form->off, form->imm};

	*ret_low = *ret_high = fixed[field];
	if (!tt_vm_form_has(form, fills[field]))
		return;
	*ret_low = lows[field];
	*ret_high = highs[field];
	if (field == IMM && tt_vm_form_has(form, "EP")) /* an index */
		*ret_low = 0;
}

static bool fits(const struct tt_vm_form *form, const struct tutti_vm_insn *insn, enum field field)
{
	int64_t low, high;

	allowed(form, field, &low, &high);
	return field_of(insn, field) >= low && field_of(insn, field) <= high;
}

static const struct tt_vm_form *find_form(const struct tutti_vm_insn *insn)
{
	for (unsigned i = 0; i < tt_vm_n_forms; i++) {
		const struct tt_vm_form *form = &tt_vm_forms[i];

		if (form->code == insn->code && fits(form, insn, DST) && fits(form, insn, SRC) &&
		    fits(form, insn, OFF) && fits(form, insn, IMM))
			return form;
	}
	return NULL;
}

/* --- why none -------------------------------------------------------------------- */

static void put_allowed(struct out *out, uint8_t code, enum field field)
{
	int64_t seen[8];
	unsigned n = 0;

	for (unsigned i = 0; i < tt_vm_n_forms && n < 8; i++) {
		int64_t low, high;
		bool again = false;

		if (tt_vm_forms[i].code != code)
			continue;
		allowed(&tt_vm_forms[i], field, &low, &high);
		for (unsigned k = 0; k < n; k++)
			again |= seen[k] == low;
		if (again)
			continue;
		put(out, low == high ? "%s%" PRId64 : "%s%" PRId64 " to %" PRId64, n ? ", " : "",
		    low, high);
		seen[n++] = low;
	}
}

/* The field that is right in none of the code's forms. */
static bool put_wrong_field(struct out *out, const struct tutti_vm_insn *insn)
{
	for (enum field field = DST; field < FIELDS; field++) {
		bool known = false, right = false;

		for (unsigned i = 0; i < tt_vm_n_forms; i++)
			if (tt_vm_forms[i].code == insn->code) {
				known = true;
				right |= fits(&tt_vm_forms[i], insn, field);
			}
		if (!known)
			return false;
		if (right)
			continue;
		put(out, "%s is %" PRId64 ", allowed: ", field_names[field], field_of(insn, field));
		put_allowed(out, insn->code, field);
		return true;
	}
	return false;
}

/* No text that would assemble: a listing with it does not turn into another program. */
static int none(struct out *out, const struct tutti_vm_insn *insn, const char *why)
{
	uint8_t bytes[sizeof *insn];

	memcpy(bytes, insn, sizeof bytes);
	put(out, "??");
	for (unsigned i = 0; i < sizeof bytes; i++)
		put(out, " %02x", bytes[i]);
	put(out, " (");
	if (why)
		put(out, "%s", why);
	else if (!put_wrong_field(out, insn))
		put(out, "no instruction has the code 0x%02x, or not with these fields",
		    insn->code);
	put(out, ")");
	return -EINVAL;
}

/* --- text ------------------------------------------------------------------------ */

static void put_memory(struct out *out, unsigned reg, int off)
{
	put(out, off ? "[%%r%u%+d]" : "[%%r%u]", reg, off);
}

static void put_operand(struct out *out, char letter, const struct tutti_vm_insn *insn)
{
	switch (letter) {
	case TT_OPERAND_DST: put(out, "%%r%u", tt_vm_dst(insn)); break;
	case TT_OPERAND_SRC: put(out, "%%r%u", tt_vm_src(insn)); break;
	case TT_OPERAND_TO: put_memory(out, tt_vm_dst(insn), insn->off); break;
	case TT_OPERAND_FROM: put_memory(out, tt_vm_src(insn), insn->off); break;
	case TT_OPERAND_IMM: put(out, "%" PRId32, insn->imm); break;
	case TT_OPERAND_WIDE: put(out, "0x%" PRIx64, tt_vm_wide(insn)); break;
	case TT_OPERAND_TARGET: put(out, "%+d", insn->off); break;
	case TT_OPERAND_LONG: put(out, "%+" PRId32, insn->imm); break;
	case TT_OPERAND_LOCAL: put(out, "local %+" PRId32, insn->imm); break;
	case TT_OPERAND_EXTERN: put(out, "extern %" PRId32, insn->imm); break;
	case TT_OPERAND_MAP: put(out, "map %" PRId32, insn->imm); break;
	}
}

int tutti_vm_disassemble(const struct tutti_vm_insn *insns, uint32_t count, uint32_t index,
			 char *ret_text, size_t bytes)
{
	struct out out = {ret_text, bytes, 0};
	const struct tutti_vm_insn *insn;
	const struct tt_vm_form *form;
	bool is_wide;

	if (bytes)
		*ret_text = '\0';
	if (index >= count) {
		put(&out, "?? (no instruction %" PRIu32 ": there are %" PRIu32 ")", index, count);
		return -EINVAL;
	}
	insn = insns + index;
	form = find_form(insn);
	if (!form)
		return none(&out, insn, NULL);
	is_wide = form->code == TT_LDDW;
	if (is_wide && index + 1 == count)
		return none(&out, insn, "its second half is missing");
	if (is_wide && (insn[1].code || insn[1].regs || insn[1].off))
		return none(&out, insn, "in its second half all but imm must be 0");
	if (is_wide && form->src == TT_WIDE_MAP && insn[1].imm)
		return none(&out, insn, "in the second half imm must be 0 for a map");
	put(&out, "%s", form->name);
	for (const char *letter = form->operands; *letter; letter++) {
		put(&out, letter == form->operands ? " " : ", ");
		put_operand(&out, *letter, insn);
	}
	return is_wide ? 2 : 1;
}
