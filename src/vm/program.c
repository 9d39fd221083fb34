/* SPDX-License-Identifier: MIT */
/*
 * From an object to what runs: helpers linked by name, verified, decoded,
 * compiled, and all of that laid into one image without an address in it.
 */
#include "vm/share.h"
#include "vm/vm_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- linking ---------------------------------------------------------------------- */

/* Memory comes with a size: the next argument's, or that of a map before it. */
static bool good_helper(const struct tutti_vm_helper *helper)
{
	bool map = false;

	if (!helper->fn || !helper->name || !helper->cost || helper->cost > INT32_MAX ||
	    helper->ret > TUTTI_VM_RET_VALUE)
		return false;
	for (int i = 0; i < 5; i++) {
		uint8_t before = i ? helper->arg[i - 1] : TUTTI_VM_ARG_NONE;
		bool memory = before == TUTTI_VM_ARG_READ || before == TUTTI_VM_ARG_WRITE;

		if (helper->arg[i] > TUTTI_VM_ARG_CTX ||
		    memory != (helper->arg[i] == TUTTI_VM_ARG_BYTES))
			return false;
		if ((helper->arg[i] == TUTTI_VM_ARG_KEY || helper->arg[i] == TUTTI_VM_ARG_VALUE) &&
		    !map)
			return false;
		map |= helper->arg[i] == TUTTI_VM_ARG_MAP;
	}
	return helper->arg[4] != TUTTI_VM_ARG_READ && helper->arg[4] != TUTTI_VM_ARG_WRITE;
}

static int check_env(const struct tutti_vm_env *env)
{
	if (env->n_helpers > TUTTI_VM_MAX_HELPERS)
		return -EINVAL;
	for (uint32_t i = 0; i < env->n_helpers; i++) {
		if (!good_helper(&env->helpers[i]))
			return -EINVAL;
		for (uint32_t j = 0; j < i; j++)
			if (env->helpers[i].id == env->helpers[j].id)
				return -EINVAL;
	}
	for (uint32_t i = 0; i < env->n_hooks; i++) {
		if (env->hooks[i].args > 5)
			return -EINVAL;
		for (uint32_t j = 0; j < env->hooks[i].args; j++)
			if (env->hooks[i].arg[j].window >= TUTTI_VM_WINDOWS)
				return -EINVAL;
		for (uint32_t j = 0; j < env->hooks[i].n_fields; j++)
			if (env->hooks[i].fields[j].window >= TUTTI_VM_WINDOWS)
				return -EINVAL;
	}
	return 0;
}

static int helper_by_id(const struct tutti_vm_env *env, uint32_t id)
{
	for (uint32_t i = 0; i < env->n_helpers; i++)
		if (env->helpers[i].id == id)
			return (int)i;
	return -ENOENT;
}

static bool is_call(const struct tutti_vm_insn *insn, unsigned source)
{
	return insn->code == (TT_JMP | TT_CALL) && tt_vm_src(insn) == source;
}

/* Calls by name become calls by id. insns: a copy that is ours. */
static int link_externs(const struct tutti_vm_object *object, const struct tutti_vm_env *env,
			struct tutti_vm_insn *insns, struct tutti_vm_error *ret_error)
{
	for (uint32_t pc = 0; pc < object->n_insns; pc++) {
		const char *name;
		uint32_t i;

		if (insns[pc].code == TT_LDDW) {
			pc++;
			continue;
		}
		if (!is_call(&insns[pc], TT_CALL_EXTERN))
			continue;
		if ((uint32_t)insns[pc].imm >= object->n_externs)
			return tt_vm_fail(ret_error, -EACCES, object, (int32_t)pc, -1,
					  "calls extern %d, and the object names %u", insns[pc].imm,
					  object->n_externs);
		name = object->externs[insns[pc].imm];
		for (i = 0; i < env->n_helpers && strcmp(env->helpers[i].name, name) != 0; i++)
			;
		if (i == env->n_helpers)
			return tt_vm_fail(
				ret_error, -ENOENT, object, (int32_t)pc, -1,
				"calls %.64s, which is neither a function of this object nor a "
				"helper that is provided here (check its name)",
				name);
		insns[pc].regs &= 0x0f;
		insns[pc].imm = (int32_t)env->helpers[i].id;
	}
	return 0;
}

/* --- decoding --------------------------------------------------------------------- */

static uint8_t decode_alu(const struct tutti_vm_insn *insn)
{
	bool wide = TT_CLASS(insn->code) == TT_ALU64, reg = TT_SRC(insn->code);

	switch (TT_OP(insn->code)) {
	case TT_DIV:
		if (insn->off == 1)
			return wide ? (reg ? TT_SDIV64_X : TT_SDIV64_K)
				    : (reg ? TT_SDIV32_X : TT_SDIV32_K);
		break;
	case TT_MOD:
		if (insn->off == 1)
			return wide ? (reg ? TT_SMOD64_X : TT_SMOD64_K)
				    : (reg ? TT_SMOD32_X : TT_SMOD32_K);
		break;
	case TT_MOV:
		switch (reg ? insn->off : 0) {
		case 8: return wide ? TT_MOVSX8_64 : TT_MOVSX8_32;
		case 16: return wide ? TT_MOVSX16_64 : TT_MOVSX16_32;
		case 32: return TT_MOVSX32_64;
		default: break;
		}
		break;
	default: break;
	}
	return insn->code;
}

static void decode_jump(const struct tutti_vm_object *object, const struct tutti_vm_env *env,
			uint32_t pc, struct tt_vm_op *op)
{
	const struct tutti_vm_insn *insn = &object->insns[pc];

	if (is_call(insn, TT_CALL_LOCAL)) {
		const struct tt_vm_func *func;

		op->op = TT_CALL_LOCAL_OP;
		op->off = (int32_t)pc + 1 + insn->imm;
		func = tt_vm_object_func(object, (uint32_t)op->off);
		op->imm = func->end - func->start;
	} else if (is_call(insn, TT_CALL_HELPER)) {
		op->imm = helper_by_id(env, (uint32_t)insn->imm);
	} else if (insn->code == (TT_JMP32 | TT_JA)) {
		op->off = (int32_t)pc + 1 + insn->imm;
	} else {
		op->off = (int32_t)pc + 1 + insn->off;
	}
}

/* Verified instructions only: targets, helpers and functions are there. */
static void decode(const struct tutti_vm_object *object, const struct tutti_vm_env *env,
		   const struct tt_vm_note *notes, struct tt_vm_op *ops)
{
	for (uint32_t pc = 0; pc < object->n_insns; pc++) {
		const struct tutti_vm_insn *insn = &object->insns[pc];
		struct tt_vm_op *op = &ops[pc];

		if (!notes[pc].reached) {
			op->op = TT_NO_OP;
			continue;
		}
		*op = (struct tt_vm_op){.op = insn->code,
					.dst = tt_vm_dst(insn),
					.src = tt_vm_src(insn),
					.window = notes[pc].window,
					.off = insn->off,
					.imm = insn->imm};
		switch (TT_CLASS(insn->code)) {
		case TT_ALU:
		case TT_ALU64: op->op = decode_alu(insn); break;
		case TT_JMP:
		case TT_JMP32: decode_jump(object, env, pc, op); break;
		case TT_LD:
			op->imm = (int64_t)tt_vm_wide(insn);
			ops[++pc] = (struct tt_vm_op){.op = TT_NO_OP};
			break;
		default: break;
		}
	}
}

/* --- the image --------------------------------------------------------------------- */

static uint32_t round_up(uint32_t value, uint32_t to)
{
	return (value + to - 1) & ~(to - 1);
}

struct parts {
	const struct tutti_vm_object *object;
	const struct tt_vm_verified *verified;
	const struct tt_vm_op *ops;
	const struct tt_vm_code *code; /* NULL: not compiled */
};

static uint32_t n_entries(const struct parts *parts)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < parts->object->n_funcs; i++)
		n += parts->object->funcs[i].entry;
	return n;
}

static uint32_t names_bytes(const struct parts *parts)
{
	size_t n = 0;

	for (uint32_t i = 0; i < parts->object->n_funcs; i++)
		if (parts->object->funcs[i].entry)
			n += strlen(parts->object->funcs[i].name) +
			     strlen(parts->object->funcs[i].section) + 2;
	return (uint32_t)n;
}

static uint32_t put_name(uint8_t *bytes, uint32_t *off, const char *name)
{
	uint32_t at = *off, length = (uint32_t)strlen(name) + 1;

	memcpy(bytes + at, name, length);
	*off += length;
	return at;
}

/* Lays all parts into bytes, which has as many as layout said; NULL: only says. */
static struct tt_vm_image layout(const struct parts *parts, uint8_t *bytes)
{
	const struct tutti_vm_object *object = parts->object;
	struct tt_vm_image image = {.n_ops = object->n_insns,
				    .n_entries = n_entries(parts),
				    .data_bytes = object->data_bytes,
				    .n_maps = object->n_maps,
				    .rodata_bytes = object->rodata_bytes};
	uint32_t off = round_up(sizeof image, 64), names;

	image.ops_off = off;
	off = round_up(off + image.n_ops * (uint32_t)sizeof(struct tt_vm_op), 64);
	image.entries_off = off;
	off += image.n_entries * (uint32_t)sizeof(struct tt_vm_entry);
	names = off;
	off = round_up(off + names_bytes(parts), 64);
	image.maps_off = off;
	off = round_up(off + image.n_maps * (uint32_t)sizeof(struct tutti_vm_map), 64);
	image.data_off = off;
	off = round_up(off + image.data_bytes, 64);
	image.rodata_off = off;
	off = round_up(off + image.rodata_bytes, 4096);
	if (parts->code) {
		image.code_off = off;
		image.code_bytes = parts->code->size;
		image.enter_off = off + parts->code->enter;
		off += image.code_bytes;
	}
	image.bytes = round_up(off, 4096);
	if (!bytes)
		return image;

	memcpy(bytes, &image, sizeof image);
	memcpy(bytes + image.ops_off, parts->ops, image.n_ops * sizeof(struct tt_vm_op));
	for (uint32_t i = 0, n = 0; i < object->n_funcs; i++) {
		const struct tt_vm_func *func = &object->funcs[i];
		struct tt_vm_entry entry = {.pc = func->start};

		if (!func->entry)
			continue;
		entry.name_off = put_name(bytes, &names, func->name);
		entry.section_off = put_name(bytes, &names, func->section);
		entry.hook = (uint32_t)parts->verified->hook_of_func[i];
		if (parts->code)
			entry.code_off = image.code_off + parts->code->native[func->start];
		memcpy(bytes + image.entries_off + n++ * sizeof entry, &entry, sizeof entry);
	}
	if (image.n_maps)
		memcpy(bytes + image.maps_off, object->maps, image.n_maps * sizeof *object->maps);
	if (image.data_bytes)
		memcpy(bytes + image.data_off, object->data, image.data_bytes);
	if (image.rodata_bytes)
		memcpy(bytes + image.rodata_off, object->rodata, image.rodata_bytes);
	if (parts->code)
		memcpy(bytes + image.code_off, parts->code->bytes, parts->code->size);
	return image;
}

static void use_image(struct tutti_vm_program *program, const void *image)
{
	program->image = image;
	program->maps = (const void *)((const uint8_t *)image + program->image->maps_off);
}

static int make_image(const struct parts *parts, struct tutti_vm_program *program)
{
	struct tt_vm_image image = layout(parts, NULL);
	uint8_t *bytes = calloc(1, image.bytes);
	int err;

	if (!bytes)
		return -ENOMEM;
	layout(parts, bytes);
	err = tt_vm_arena_create(bytes, image.bytes, image.code_off ? image.code_off : image.bytes,
				 &program->arena);
	free(bytes);
	if (!err)
		use_image(program, program->arena.address);
	return err;
}

/* What messages need of the object. */
static int keep(const struct tutti_vm_object *object, struct tutti_vm_program *program)
{
	program->lines = calloc(object->n_lines ? object->n_lines : 1, sizeof *program->lines);
	if (!program->lines)
		return -ENOMEM;
	for (uint32_t i = 0; i < object->n_lines; i++) {
		struct tt_vm_line *line = &program->lines[i];

		*line = (struct tt_vm_line){.insn = object->lines[i].insn,
					    .line = object->lines[i].line};
		if (object->lines[i].file)
			line->file = strdup(object->lines[i].file);
		if (object->lines[i].file && !line->file)
			return -ENOMEM;
		program->n_lines++;
	}
	return 0;
}

int tutti_vm_program_create(const struct tutti_vm_object *object, const struct tutti_vm_env *env,
			    unsigned flags, struct tutti_vm_program **ret_program,
			    struct tutti_vm_error *ret_error)
{
	struct tutti_vm_program *program = calloc(1, sizeof *program);
	struct tt_vm_op *ops = calloc(object->n_insns, sizeof *ops);
	struct tutti_vm_insn *insns = malloc(object->n_insns * sizeof *insns);
	struct tutti_vm_object linked = *object;
	struct tt_vm_verified verified = {0};
	struct tt_vm_code code = {0};
	int err = -ENOMEM;

	tt_vm_fail(ret_error, 0, NULL, -1, -1, "no memory");
	if (!program || !ops || !insns)
		goto done;
	err = check_env(env);
	if (err) {
		tt_vm_fail(ret_error, err, NULL, -1, -1,
			   "what the caller provides is not well formed (see tutti_vm_env)");
		goto done;
	}
	memcpy(insns, object->insns, object->n_insns * sizeof *insns);
	linked.insns = insns;
	err = link_externs(object, env, insns, ret_error);
	if (err)
		goto done;
	err = tt_vm_verify(&linked, env, &verified, ret_error);
	if (err)
		goto done;
	decode(&linked, env, verified.notes, ops);
	if (flags & TUTTI_VM_JIT) {
		err = tt_vm_compile(&linked, env, ops, verified.notes, &code);
		if (err && err != -ENOTSUP)
			goto done;
	}
	err = keep(object, program);
	if (err)
		goto done;
	program->env = env;
	err = make_image(&(struct parts){.object = &linked,
					 .verified = &verified,
					 .ops = ops,
					 .code = code.bytes ? &code : NULL},
			 program);
	if (err)
		goto done;
	*ret_program = program;
	program = NULL;
done:
	free(code.bytes);
	free(code.native);
	free(verified.notes);
	free(verified.hook_of_func);
	free(insns);
	free(ops);
	tutti_vm_program_destroy(program);
	return err;
}

void tutti_vm_program_destroy(struct tutti_vm_program *program)
{
	if (!program)
		return;
	tt_vm_arena_destroy(&program->arena);
	for (uint32_t i = 0; i < program->n_lines; i++)
		free(program->lines[i].file);
	free(program->lines);
	free(program);
}

const void *tt_vm_program_image(const struct tutti_vm_program *program, size_t *ret_bytes)
{
	*ret_bytes = program->image->bytes;
	return program->image;
}

int tt_vm_program_attach(const void *image, const struct tutti_vm_env *env,
			 struct tutti_vm_program **ret_program)
{
	struct tutti_vm_program *program = calloc(1, sizeof *program);

	if (!program)
		return -ENOMEM;
	program->env = env;
	use_image(program, image);
	*ret_program = program;
	return 0;
}

uint32_t tt_vm_program_maps(const struct tutti_vm_program *program,
			    const struct tutti_vm_map **ret_maps)
{
	*ret_maps = program->maps;
	return program->image->n_maps;
}

uint32_t tt_vm_program_data(const struct tutti_vm_program *program, const void **ret_data)
{
	*ret_data = (const uint8_t *)program->image + program->image->data_off;
	return program->image->data_bytes;
}

int tutti_vm_program_entry(const struct tutti_vm_program *program, const char *name)
{
	const char *image = (const char *)program->image;
	const struct tt_vm_entry *entry = (const void *)(image + program->image->entries_off);

	for (uint32_t i = 0; i < program->image->n_entries; i++, entry++)
		if (!name || !strcmp(name, image + entry->name_off) ||
		    !strcmp(name, image + entry->section_off))
			return (int)i;
	return -ENOENT;
}

bool tutti_vm_program_compiled(const struct tutti_vm_program *program)
{
	return program->image->code_bytes;
}
