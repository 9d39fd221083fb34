/* SPDX-License-Identifier: MIT */
/* See elf_int.h: what is read here, in which order, and what is not believed. */
#include "vm/elf_int.h"

#include <stdlib.h>
#include <string.h>

int tt_elf_no_memory(struct tt_elf *elf)
{
	return tt_vm_fail(elf->error, -ENOMEM, NULL, -1, -1, "out of memory");
}

/* --- text ------------------------------------------------------------------------------ */

/* Names end up in messages on terminals. */
static bool is_plain(const char *text, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
			return false;
	return length <= TT_ELF_MAX_NAME;
}

int tt_elf_text(struct tt_elf *elf, const struct tt_elf_section *strings, uint32_t off,
		const char **ret_text)
{
	const char *text;

	if (off >= strings->size)
		return tt_elf_fail(elf, -1,
				   "broken file: a name at offset %u of %llu bytes of names", off,
				   (unsigned long long)strings->size);
	text = (const char *)strings->bytes + off;
	/* Not to its end: it may be all of the file, for each symbol. */
	if (!is_plain(text, strnlen(text, TT_ELF_MAX_NAME + 1)))
		return tt_elf_fail(
			elf, -1,
			"a name is longer than %d bytes or has control characters in it: "
			"give it a plain one",
			TT_ELF_MAX_NAME);
	*ret_text = text;
	return 0;
}

static bool is_strings(const struct tt_elf_section *s)
{
	return s->type == SHT_STRTAB && !(s->flags & SHF_COMPRESSED) && s->bytes && s->size &&
	       !s->bytes[s->size - 1];
}

const struct tt_elf_section *tt_elf_find(const struct tt_elf *elf, const char *name)
{
	for (uint32_t i = 1; i < elf->n_sections; i++)
		if (!strcmp(elf->sections[i].name, name))
			return &elf->sections[i];
	return NULL;
}

/* --- headers --------------------------------------------------------------------------- */

/* All that libelf would act upon. */
static int check_header(struct tt_elf *elf, const uint8_t *bytes)
{
	const char *how = "compile it with clang -target bpf -c";
	Elf64_Ehdr eh;

	if (elf->bytes > TT_ELF_MAX_BYTES)
		return tt_elf_fail(elf, -1,
				   "too large: %zu bytes, of at most %d; leave out debug "
				   "information (-g) or data",
				   elf->bytes, TT_ELF_MAX_BYTES);
	if (elf->bytes < SELFMAG || memcmp(bytes, ELFMAG, SELFMAG) != 0)
		return tt_elf_fail(elf, -1, "no ELF object: %s", how);
	if (elf->bytes < sizeof eh)
		return tt_elf_fail(elf, -1, "truncated: %zu bytes, and the header alone has %zu",
				   elf->bytes, sizeof eh);
	memcpy(&eh, bytes, sizeof eh);
	if (eh.e_ident[EI_CLASS] != ELFCLASS64)
		return tt_elf_fail(elf, -1, "an ELF object, but not of 64 bits: %s", how);
	if (eh.e_ident[EI_DATA] != ELFDATA2LSB)
		return tt_elf_fail(elf, -1,
				   "an ELF object, but big-endian: compile it with "
				   "clang -target bpfel -c");
	if (eh.e_machine != EM_BPF)
		return tt_elf_fail(elf, -1,
				   "an ELF object for another machine (number %u, BPF is "
				   "%u): %s",
				   eh.e_machine, EM_BPF, how);
	if (eh.e_type != ET_REL)
		return tt_elf_fail(elf, -1, "an ELF file, but no relocatable object: %s", how);
	if (eh.e_ident[EI_VERSION] != EV_CURRENT || eh.e_version != EV_CURRENT ||
	    eh.e_ehsize != sizeof eh || eh.e_phnum)
		return tt_elf_fail(elf, -1, "broken file: the ELF header makes no sense");
	if (!eh.e_shnum || eh.e_shnum > TT_ELF_MAX_SECTIONS)
		return tt_elf_fail(elf, -1,
				   "%u sections, of 1 to %d: compile without "
				   "-ffunction-sections, or split the module",
				   eh.e_shnum, TT_ELF_MAX_SECTIONS);
	if (eh.e_shentsize != sizeof(Elf64_Shdr) || eh.e_shoff % sizeof(uint64_t) ||
	    eh.e_shoff > elf->bytes || (elf->bytes - eh.e_shoff) / sizeof(Elf64_Shdr) < eh.e_shnum)
		return tt_elf_fail(elf, -1,
				   "truncated or broken: the table of %u sections lies "
				   "outside the %zu bytes",
				   eh.e_shnum, elf->bytes);
	if (eh.e_shstrndx >= eh.e_shnum)
		return tt_elf_fail(elf, -1, "broken file: no section has the sections' names");
	elf->n_sections = eh.e_shnum;
	elf->name_section = eh.e_shstrndx;
	return 0;
}

/* libelf may write where it reads: a copy, which malloc also aligns. */
static int open_copy(struct tt_elf *elf, const uint8_t *bytes)
{
	elf->copy = malloc(elf->bytes);
	if (!elf->copy)
		return tt_elf_no_memory(elf);
	memcpy(elf->copy, bytes, elf->bytes);
	elf_version(EV_CURRENT);
	elf->elf = elf_memory((char *)elf->copy, elf->bytes);
	if (!elf->elf)
		return tt_elf_fail(elf, -1, "broken file: %.100s", elf_errmsg(-1));
	return 0;
}

/* --- sections -------------------------------------------------------------------------- */

static int read_section(struct tt_elf *elf, uint32_t index, struct tt_elf_section *ret)
{
	Elf_Scn *scn = elf_getscn(elf->elf, index);
	Elf64_Shdr *sh = scn ? elf64_getshdr(scn) : NULL;

	if (!sh)
		return tt_elf_fail(elf, -1, "broken file: section %u: %.100s", index,
				   elf_errmsg(-1));
	*ret = (struct tt_elf_section){.name = "",
				       .type = sh->sh_type,
				       .flags = sh->sh_flags,
				       .size = sh->sh_size,
				       .align = sh->sh_addralign,
				       .entsize = sh->sh_entsize,
				       .link = sh->sh_link,
				       .info = sh->sh_info};
	if (sh->sh_type == SHT_NULL || sh->sh_type == SHT_NOBITS)
		return 0;
	if (sh->sh_offset > elf->bytes || sh->sh_size > elf->bytes - sh->sh_offset)
		return tt_elf_fail(elf, -1,
				   "truncated or broken: section %u lies outside the %zu "
				   "bytes",
				   index, elf->bytes);
	/* Not elf_getdata: what it thinks of a section differs from one version to the next. */
	if (sh->sh_size)
		ret->bytes = elf->copy + sh->sh_offset;
	return 0;
}

static int read_sections(struct tt_elf *elf)
{
	const struct tt_elf_section *names;

	elf->sections = calloc(elf->n_sections, sizeof *elf->sections);
	if (!elf->sections)
		return tt_elf_no_memory(elf);
	for (uint32_t i = 0; i < elf->n_sections; i++) {
		int err = read_section(elf, i, &elf->sections[i]);

		if (err)
			return err;
	}
	names = &elf->sections[elf->name_section];
	if (!is_strings(names))
		return tt_elf_fail(elf, -1, "broken file: the sections' names do not end");
	for (uint32_t i = 1; i < elf->n_sections; i++) {
		Elf64_Shdr *sh = elf64_getshdr(elf_getscn(elf->elf, i));
		int err = tt_elf_text(elf, names, sh->sh_name, &elf->sections[i].name);

		if (err)
			return err;
	}
	return 0;
}

/* --- symbols --------------------------------------------------------------------------- */

static int read_symbols(struct tt_elf *elf)
{
	const struct tt_elf_section *s = NULL;

	for (uint32_t i = 1; i < elf->n_sections; i++) {
		if (elf->sections[i].type != SHT_SYMTAB)
			continue;
		if (s)
			return tt_elf_fail(elf, -1, "broken file: two tables of symbols");
		s = &elf->sections[i];
		elf->symbol_section = i;
	}
	if (!s)
		return tt_elf_fail(elf, -1, "no table of symbols: do not strip the object");
	if (s->flags & SHF_COMPRESSED || s->entsize != sizeof(Elf64_Sym) ||
	    s->size % sizeof(Elf64_Sym) || s->link >= elf->n_sections ||
	    !is_strings(&elf->sections[s->link]))
		return tt_elf_fail(elf, -1, "broken file: the table of symbols makes no sense");
	if (s->size / sizeof(Elf64_Sym) > TT_ELF_MAX_SYMBOLS)
		return tt_elf_fail(elf, -1, "%llu symbols, of at most %d: split the module",
				   (unsigned long long)(s->size / sizeof(Elf64_Sym)),
				   TT_ELF_MAX_SYMBOLS);
	elf->symbols = s->bytes;
	elf->n_symbols = (uint32_t)(s->size / sizeof(Elf64_Sym));
	elf->symbol_names = &elf->sections[s->link];
	return 0;
}

Elf64_Sym tt_elf_symbol(const struct tt_elf *elf, uint32_t index)
{
	Elf64_Sym symbol;

	memcpy(&symbol, elf->symbols + index * sizeof symbol, sizeof symbol);
	return symbol;
}

struct tt_elf_section *tt_elf_symbol_section(const struct tt_elf *elf, const Elf64_Sym *symbol)
{
	if (symbol->st_shndx == SHN_UNDEF || symbol->st_shndx >= elf->n_sections)
		return NULL;
	return &elf->sections[symbol->st_shndx];
}

int tt_elf_symbol_name(struct tt_elf *elf, const Elf64_Sym *symbol, const char **ret_name)
{
	const struct tt_elf_section *s = tt_elf_symbol_section(elf, symbol);

	if (ELF64_ST_TYPE(symbol->st_info) == STT_SECTION && s) {
		*ret_name = s->name;
		return 0;
	}
	return tt_elf_text(elf, elf->symbol_names, symbol->st_name, ret_name);
}

/* --- the whole ------------------------------------------------------------------------- */

static int read_all(struct tt_elf *elf, const void *bytes)
{
	int (*const steps[])(struct tt_elf *) = {read_sections,	 read_symbols, tt_elf_load,
						 tt_btf_open,	 tt_btf_lines, tt_btf_maps,
						 tt_elf_relocate};
	int err = check_header(elf, bytes);

	if (!err)
		err = open_copy(elf, bytes);
	for (size_t i = 0; !err && i < sizeof steps / sizeof *steps; i++)
		err = steps[i](elf);
	return err;
}

int tutti_vm_object_open(const void *elf, size_t bytes, struct tutti_vm_object **ret_object,
			 struct tutti_vm_error *ret_error)
{
	struct tt_elf e = {.bytes = bytes, .error = ret_error};
	int err;

	e.object = tt_vm_object_create();
	err = e.object ? read_all(&e, elf) : tt_elf_no_memory(&e);
	if (err)
		tutti_vm_object_destroy(e.object);
	else
		*ret_object = e.object;
	free(e.btf.type_off);
	free(e.extern_of);
	free(e.sections);
	elf_end(e.elf);
	free(e.copy);
	return err;
}
