/* SPDX-License-Identifier: MIT */
/*
 * The assembler: a pass over the lines that writes instructions and notes
 * names, then a pass over the notes, when all labels are known.
 *
 * Numbers as targets (+2), and indices of maps and externs, are taken as they
 * are, so that what the disassembler writes assembles alone; the verifier
 * judges them. Names must be there.
 */
#include "vm/asm_int.h"
#include "vm/forms.h"
#include "vm/object.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OPERANDS = 3 };

struct label {
	struct tt_asm_piece name;
	uint32_t insn;
	uint32_t line;
};

/* A name whose instruction waits for its value. */
struct note {
	struct tt_asm_piece name;
	uint32_t insn;
	uint32_t line;
	char operand;
};

struct assembly {
	struct tutti_vm_object *object;
	struct tutti_vm_error *error;
	struct label *labels;
	struct note *notes;
	uint32_t n_labels, n_notes;
	/* Elements that there is room for. */
	uint32_t label_room, note_room, insn_room, line_room, map_room, extern_room;
};

/* Makes room for one more; whether it did. */
static bool grow(void *list_ptr, uint32_t *room, uint32_t count, size_t element_bytes)
{
	void **list = list_ptr, *longer;
	uint32_t wanted = *room ? *room * 2 : 64;

	if (count < *room)
		return true;
	longer = reallocarray(*list, wanted, element_bytes);
	if (!longer)
		return false;
	*list = longer;
	*room = wanted;
	return true;
}
#define GROW(list, room, count) grow(&(list), &(room), count, sizeof *(list))

/* --- instructions ------------------------------------------------------------------ */

/* Whether an operand can stand where the form has this letter. */
static bool suits(const struct tt_asm_operand *operand, char letter)
{
	bool plain = !operand->qualifier;

	switch (letter) {
	case TT_OPERAND_DST:
	case TT_OPERAND_SRC: return operand->kind == TT_ASM_REG;
	case TT_OPERAND_TO:
	case TT_OPERAND_FROM: return operand->kind == TT_ASM_MEM;
	case TT_OPERAND_IMM:
	case TT_OPERAND_WIDE: return operand->kind == TT_ASM_NUMBER && plain;
	case TT_OPERAND_TARGET:
	case TT_OPERAND_LONG:
		return plain && (operand->kind == TT_ASM_NAME ||
				 (operand->kind == TT_ASM_NUMBER && operand->number.sign));
	case TT_OPERAND_LOCAL:
		return operand->qualifier == letter &&
		       (operand->kind == TT_ASM_NAME || operand->number.sign);
	default: return operand->qualifier == letter;
	}
}

static bool suits_all(const struct tt_vm_form *form, const struct tt_asm_operand *operands,
		      unsigned count)
{
	if (strlen(form->operands) != count)
		return false;
	for (unsigned i = 0; i < count; i++)
		if (!suits(&operands[i], form->operands[i]))
			return false;
	return true;
}

static const char *describe(char letter)
{
	switch (letter) {
	case TT_OPERAND_DST:
	case TT_OPERAND_SRC: return "REGISTER";
	case TT_OPERAND_TO:
	case TT_OPERAND_FROM: return "[REGISTER+OFFSET]";
	case TT_OPERAND_LOCAL: return "local FUNCTION";
	case TT_OPERAND_EXTERN: return "extern NAME";
	case TT_OPERAND_MAP: return "map NAME";
	case TT_OPERAND_IMM:
	case TT_OPERAND_WIDE: return "NUMBER";
	default: return "LABEL";
	}
}

/* No form of this name has these operands: says which ones there are. */
static int fail_form(const struct tt_asm_line *line, const char *name)
{
	char text[160] = "";
	size_t used = 0;
	bool known = false;

	for (unsigned i = 0; i < tt_vm_n_forms; i++) {
		const struct tt_vm_form *form = &tt_vm_forms[i];

		if (strcmp(form->name, name) != 0)
			continue;
		used += (size_t)snprintf(text + used, sizeof text - used, "%s%s",
					 known ? " | " : "", name);
		for (const char *letter = form->operands; *letter; letter++)
			used += (size_t)snprintf(text + used, sizeof text - used, "%s%s",
						 letter == form->operands ? " " : ", ",
						 describe(*letter));
		known = true;
	}
	if (!known)
		return tt_asm_fail(line, "there is no instruction '%.40s' (tutti-vm(1) lists them)",
				   name);
	return tt_asm_fail(line, "wrong operands for %s: write %s", name, text);
}

static int take_note(struct assembly *a, const struct tt_asm_line *line, char operand,
		     struct tt_asm_piece name)
{
	if (!GROW(a->notes, a->note_room, a->n_notes))
		return -ENOMEM;
	a->notes[a->n_notes++] = (struct note){
		.name = name, .insn = a->object->n_insns, .line = line->number, .operand = operand};
	return 0;
}

/* A call of a helper by its name: the object's list has each once. */
static int name_extern(struct assembly *a, struct tt_asm_piece name, int32_t *ret_index)
{
	struct tutti_vm_object *object = a->object;

	for (uint32_t i = 0; i < object->n_externs; i++)
		if (tt_asm_is(name, object->externs[i])) {
			*ret_index = (int32_t)i;
			return 0;
		}
	if (!GROW(object->externs, a->extern_room, object->n_externs))
		return -ENOMEM;
	object->externs[object->n_externs] = strndup(name.at, name.len);
	if (!object->externs[object->n_externs])
		return -ENOMEM;
	*ret_index = (int32_t)object->n_externs++;
	return 0;
}

/* A target or an index, by number or by name. */
static int encode_reference(struct assembly *a, const struct tt_asm_line *line,
			    const struct tt_asm_operand *operand, char letter,
			    struct tutti_vm_insn *insn)
{
	bool is_index = letter == TT_OPERAND_EXTERN || letter == TT_OPERAND_MAP;
	bool is_short = letter == TT_OPERAND_TARGET;
	int64_t value;
	int err;

	if (operand->kind == TT_ASM_NAME && letter == TT_OPERAND_EXTERN)
		return name_extern(a, operand->name, &insn->imm);
	if (operand->kind == TT_ASM_NAME)
		return take_note(a, line, letter, operand->name);
	err = tt_asm_range(line, &operand->number,
			   is_index   ? 0
			   : is_short ? INT16_MIN
				      : INT32_MIN,
			   is_short ? INT16_MAX : INT32_MAX, is_index ? "the index" : "the target",
			   &value);
	if (err)
		return err;
	if (is_short)
		insn->off = (int16_t)value;
	else
		insn->imm = (int32_t)value;
	return 0;
}

static int encode_operand(struct assembly *a, const struct tt_asm_line *line,
			  const struct tt_asm_operand *operand, char letter,
			  struct tutti_vm_insn insn[2])
{
	uint64_t wide;
	int err;

	switch (letter) {
	case TT_OPERAND_TO: insn->off = operand->off; /* fall through */
	case TT_OPERAND_DST: insn->regs |= operand->reg; return 0;
	case TT_OPERAND_FROM: insn->off = operand->off; /* fall through */
	case TT_OPERAND_SRC: insn->regs |= (uint8_t)(operand->reg << 4); return 0;
	case TT_OPERAND_IMM: return tt_asm_imm32(line, &operand->number, &insn->imm);
	case TT_OPERAND_WIDE:
		err = tt_asm_imm64(line, &operand->number, &wide);
		if (err)
			return err;
		insn[0].imm = (int32_t)(uint32_t)wide;
		insn[1].imm = (int32_t)(uint32_t)(wide >> 32);
		return 0;
	default: return encode_reference(a, line, operand, letter, insn);
	}
}

/* The line's own words say best what it is: its text, without white space around. */
static int note_line(struct assembly *a, const struct tt_asm_line *line, struct tt_asm_piece text)
{
	struct tutti_vm_object *object = a->object;
	char *copy;

	if (!GROW(object->lines, a->line_room, object->n_lines))
		return -ENOMEM;
	copy = strndup(text.at, text.len);
	if (!copy)
		return -ENOMEM;
	object->lines[object->n_lines++] = (struct tt_vm_line){
		.insn = object->n_insns, .line = line->number, .column = 1, .text = copy};
	return 0;
}

static int put_insn(struct assembly *a, const struct tt_asm_line *line,
		    const struct tutti_vm_insn *insn)
{
	struct tutti_vm_object *object = a->object;

	if (object->n_insns == TUTTI_VM_MAX_INSNS)
		return tt_asm_fail(line, "too many instructions: at most %d", TUTTI_VM_MAX_INSNS);
	if (!GROW(object->insns, a->insn_room, object->n_insns))
		return -ENOMEM;
	object->insns[object->n_insns++] = *insn;
	return 0;
}

/* "lock", perhaps "fetch", and the operation are one name; so is "lock fetch_add". */
static int take_name(struct tt_asm_line *line, char *ret_name, size_t bytes)
{
	struct tt_asm_piece word = tt_asm_word(line);
	size_t used;

	if (!word.len)
		return tt_asm_fail(line, "'%c' does not begin an instruction, a label or a comment",
				   *line->at);
	used = (size_t)snprintf(ret_name, bytes, "%.*s", (int)(word.len < bytes ? word.len : bytes),
				word.at);
	if (!tt_asm_is(word, "lock"))
		return 0;
	do {
		word = tt_asm_word(line);
		if (!word.len)
			return tt_asm_fail(line,
					   "%s needs an operation: lock [fetch] add, or, and, "
					   "xor, or lock xchg, cmpxchg",
					   ret_name);
		if (used < bytes)
			used += (size_t)snprintf(ret_name + used, bytes - used, " %.*s",
						 (int)(word.len < bytes ? word.len : bytes),
						 word.at);
	} while (tt_asm_is(word, "fetch"));
	for (char *c = ret_name; *c; c++)
		if (*c == '_')
			*c = ' ';
	return 0;
}

static int take_insn(struct assembly *a, struct tt_asm_line *line, struct tt_asm_piece text)
{
	struct tt_asm_operand operands[MAX_OPERANDS];
	const struct tt_vm_form *form = NULL;
	struct tutti_vm_insn insn[2] = {{0}};
	unsigned count;
	char name[64];
	int err = take_name(line, name, sizeof name);

	if (!err)
		err = tt_asm_operands(line, operands, MAX_OPERANDS, &count);
	if (err)
		return err;
	for (unsigned i = 0; i < tt_vm_n_forms && !form; i++)
		if (strcmp(tt_vm_forms[i].name, name) == 0 &&
		    suits_all(&tt_vm_forms[i], operands, count))
			form = &tt_vm_forms[i];
	if (!form)
		return fail_form(line, name);
	insn->code = form->code;
	insn->regs = (uint8_t)(form->src << 4);
	insn->off = form->off;
	insn->imm = form->imm;
	for (unsigned i = 0; i < count && !err; i++)
		err = encode_operand(a, line, &operands[i], form->operands[i], insn);
	if (!err)
		err = note_line(a, line, text);
	if (!err)
		err = put_insn(a, line, &insn[0]);
	if (!err && form->code == TT_LDDW)
		err = put_insn(a, line, &insn[1]);
	return err;
}

/* --- other lines ------------------------------------------------------------------- */

/* .map NAME, TYPE, KEY BYTES, VALUE BYTES, ENTRIES[, FLAGS] */
static int take_map(struct assembly *a, struct tt_asm_line *line)
{
	struct tutti_vm_object *object = a->object;
	struct tt_asm_operand operands[6] = {{0}};
	struct tutti_vm_map map = {0};
	uint32_t *const fields[] = {&map.type, &map.key_bytes, &map.value_bytes, &map.max_entries,
				    &map.flags};
	unsigned count;
	int err = tt_asm_operands(line, operands, 6, &count);
	bool good = !err && count >= 5 && operands[0].kind == TT_ASM_NAME &&
		    operands[0].name.len < sizeof map.name;

	if (err)
		return err;
	for (unsigned i = 1; i < count; i++)
		good = good && operands[i].kind == TT_ASM_NUMBER && !operands[i].qualifier;
	if (!good)
		return tt_asm_fail(line,
				   "a map is declared as .map NAME, TYPE, KEY_BYTES, "
				   "VALUE_BYTES, ENTRIES[, FLAGS], its name shorter than %zu",
				   sizeof map.name);
	memcpy(map.name, operands[0].name.at, operands[0].name.len);
	for (unsigned i = 1; i < count; i++) {
		int64_t value;

		err = tt_asm_range(line, &operands[i].number, 0, UINT32_MAX, "it", &value);
		if (err)
			return err;
		*fields[i - 1] = (uint32_t)value;
	}
	if (object->n_maps == TT_MAX_MAPS)
		return tt_asm_fail(line, "too many maps: at most %d", TT_MAX_MAPS);
	for (uint32_t i = 0; i < object->n_maps; i++)
		if (strcmp(object->maps[i].name, map.name) == 0)
			return tt_asm_fail(line, "there is a map %s already: name it otherwise",
					   map.name);
	if (!GROW(object->maps, a->map_room, object->n_maps))
		return -ENOMEM;
	object->maps[object->n_maps++] = map;
	return 0;
}

/* "name:" at the line's beginning. */
static int take_labels(struct assembly *a, struct tt_asm_line *line)
{
	for (;;) {
		const char *start = line->at;
		struct tt_asm_piece word = tt_asm_word(line);

		if (!word.len || !tt_asm_take(line, ':')) {
			line->at = start;
			return 0;
		}
		if (!GROW(a->labels, a->label_room, a->n_labels))
			return -ENOMEM;
		a->labels[a->n_labels++] = (struct label){
			.name = word, .insn = a->object->n_insns, .line = line->number};
	}
}

static int take_line(struct assembly *a, struct tt_asm_line *line)
{
	struct tt_asm_piece text;
	const char *start;
	int err = take_labels(a, line);

	if (err || tt_asm_at_end(line))
		return err;
	start = line->at;
	text = (struct tt_asm_piece){start, (size_t)(line->end - start)};
	while (text.len && strchr(" \t\r", text.at[text.len - 1]))
		text.len--;
	if (*start != '.')
		return take_insn(a, line, text);
	if (tt_asm_is(tt_asm_word(line), ".map"))
		return take_map(a, line);
	return tt_asm_fail(line, "there is no such directive: only .map");
}

static int take_lines(struct assembly *a, const char *text, size_t bytes)
{
	const char *end = text + bytes, *next;
	uint32_t number = 0;
	int err = 0;

	for (const char *at = text; at < end && !err; at = next, number++) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));
		struct tt_asm_line line = {.at = at,
					   .end = newline ? newline : end,
					   .number = number + 1,
					   .error = a->error};

		next = newline ? newline + 1 : end;
		for (const char *c = at; c < line.end; c++)
			if (*c == '#' || *c == ';')
				line.end = c;
		err = take_line(a, &line);
	}
	if (!err && !a->object->n_insns) {
		struct tt_asm_line last = {.number = number ? number : 1, .error = a->error};

		err = tt_asm_fail(&last, "the text has no instruction: write at least exit");
	}
	return err;
}

/* --- names ------------------------------------------------------------------------- */

static int compare_names(struct tt_asm_piece a, struct tt_asm_piece b)
{
	int order = memcmp(a.at, b.at, a.len < b.len ? a.len : b.len);

	return order ? order : (a.len > b.len) - (a.len < b.len);
}

static int compare_labels(const void *a, const void *b)
{
	const struct label *one = a, *two = b;
	int order = compare_names(one->name, two->name);

	return order ? order : (one->line > two->line) - (one->line < two->line);
}

static const struct label *find_label(const struct assembly *a, struct tt_asm_piece name)
{
	uint32_t low = 0, high = a->n_labels;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		int order = compare_names(a->labels[middle].name, name);

		if (!order)
			return &a->labels[middle];
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}

static int sort_labels(struct assembly *a)
{
	if (a->n_labels)
		qsort(a->labels, a->n_labels, sizeof *a->labels, compare_labels);
	for (uint32_t i = 1; i < a->n_labels; i++) {
		const struct label *one = &a->labels[i - 1], *two = one + 1;
		struct tt_asm_line line = {.number = two->line, .error = a->error};

		if (!compare_names(one->name, two->name))
			return tt_asm_fail(&line,
					   "the label %.*s is already at line %" PRIu32
					   ": name it otherwise",
					   (int)(two->name.len < 40 ? two->name.len : 40),
					   two->name.at, one->line);
	}
	return 0;
}

/* Without a label "exit" a jump there goes to the next exit instruction. */
static uint32_t next_exit(const struct tutti_vm_object *object, uint32_t insn)
{
	while (++insn < object->n_insns)
		if (object->insns[insn].code == (TT_JMP | TT_EXIT))
			break;
	return insn;
}

static int resolve_target(struct assembly *a, const struct note *note)
{
	struct tutti_vm_insn *insn = &a->object->insns[note->insn];
	struct tt_asm_line line = {.number = note->line, .error = a->error};
	const struct label *label = find_label(a, note->name);
	int shown = (int)(note->name.len < 40 ? note->name.len : 40);
	uint32_t target = a->object->n_insns;
	int64_t distance;

	if (label)
		target = label->insn;
	else if (note->operand != TT_OPERAND_LOCAL && tt_asm_is(note->name, "exit"))
		target = next_exit(a->object, note->insn);
	else
		return tt_asm_fail(&line, "there is no label %.*s: a line '%.*s:' makes one", shown,
				   note->name.at, shown, note->name.at);
	if (target == a->object->n_insns)
		return tt_asm_fail(&line, "no instruction follows for %.*s: put one there", shown,
				   note->name.at);
	distance = (int64_t)target - note->insn - 1;
	if (note->operand != TT_OPERAND_TARGET) {
		insn->imm = (int32_t)distance;
		return 0;
	}
	if (distance < INT16_MIN || distance > INT16_MAX)
		return tt_asm_fail(
			&line, "%.*s is %" PRId64 " instructions away, a jump reaches %d: use ja32",
			shown, note->name.at, distance, INT16_MAX);
	insn->off = (int16_t)distance;
	return 0;
}

static int resolve_map(struct assembly *a, const struct note *note)
{
	struct tt_asm_line line = {.number = note->line, .error = a->error};

	for (uint32_t i = 0; i < a->object->n_maps; i++)
		if (tt_asm_is(note->name, a->object->maps[i].name)) {
			a->object->insns[note->insn].imm = (int32_t)i;
			return 0;
		}
	return tt_asm_fail(&line, "there is no map %.*s: declare it with .map",
			   (int)(note->name.len < 40 ? note->name.len : 40), note->name.at);
}

/* Functions are called by a label of theirs; what only a number calls keeps the name it has. */
static int name_functions(struct assembly *a)
{
	struct tt_vm_func *funcs = a->object->funcs;

	for (uint32_t i = 0; i < a->n_labels; i++) {
		const struct label *label = &a->labels[i];
		uint32_t low = 1, high = a->object->n_funcs;
		char *name;

		while (low < high) {
			uint32_t middle = low + (high - low) / 2;

			if (funcs[middle].start < label->insn)
				low = middle + 1;
			else
				high = middle;
		}
		if (low == a->object->n_funcs || funcs[low].start != label->insn)
			continue;
		name = strndup(label->name.at, label->name.len);
		if (!name)
			return -ENOMEM;
		free(funcs[low].name);
		funcs[low].name = name;
	}
	return 0;
}

static int resolve(struct assembly *a)
{
	int err = sort_labels(a);

	for (uint32_t i = 0; i < a->n_notes && !err; i++)
		err = a->notes[i].operand == TT_OPERAND_MAP ? resolve_map(a, &a->notes[i])
							    : resolve_target(a, &a->notes[i]);
	if (!err)
		err = tt_vm_object_split(a->object);
	if (!err)
		err = name_functions(a);
	return err;
}

int tutti_vm_assemble(const char *text, size_t bytes, struct tutti_vm_object **ret_object,
		      struct tutti_vm_error *ret_error)
{
	struct assembly a = {.object = tt_vm_object_create(), .error = ret_error};
	int err = a.object ? take_lines(&a, text, bytes) : -ENOMEM;

	if (!err)
		err = resolve(&a);
	if (err == -ENOMEM)
		err = tt_vm_fail(ret_error, err, NULL, -1, -1, "out of memory");
	free(a.labels);
	free(a.notes);
	if (err)
		tutti_vm_object_destroy(a.object);
	else
		*ret_object = a.object;
	return err;
}
