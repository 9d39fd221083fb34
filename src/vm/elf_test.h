/* SPDX-License-Identifier: MIT */
/* For the tests of the ELF loader: the objects of tests/vm/elf. */
#ifndef TT_VM_ELF_TEST_H
#define TT_VM_ELF_TEST_H

#include "vm/object_test.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static const char *objects_dir, *sources_dir;

struct bytes {
	uint8_t *at;
	size_t n;
};

static inline struct bytes read_file(const char *dir, const char *name)
{
	struct bytes b = {0};
	char path[4096];
	FILE *f;

	snprintf(path, sizeof path, "%s/%s", dir, name);
	f = fopen(path, "r");
	if (!f)
		fail_msg("no %s", path);
	fseek(f, 0, SEEK_END);
	b.n = (size_t)ftell(f);
	rewind(f);
	b.at = malloc(b.n + 1);
	assert_int_equal(fread(b.at, 1, b.n, f), b.n);
	b.at[b.n] = 0;
	fclose(f);
	return b;
}

static inline struct tutti_vm_object *open_object(const char *name)
{
	struct bytes b = read_file(objects_dir, name);
	struct tutti_vm_object *object = NULL;
	struct tutti_vm_error error;

	if (tutti_vm_object_open(b.at, b.n, &object, &error))
		fail_msg("%s: %s", name, error.text);
	free(b.at);
	if (tt_vm_broken_object(object))
		fail_msg("%s: %s", name, tt_vm_broken_object(object));
	return object;
}

/* Whether the text is the pattern, in which '#' stands for any number. */
static inline bool is_like(const char *text, const char *pattern)
{
	for (; *pattern; pattern++) {
		size_t digits = strspn(text, "0123456789");

		if (*pattern == '#' ? !digits : *text != *pattern)
			return false;
		text += *pattern == '#' ? digits : 1;
	}
	return !*text;
}

/* The loader refuses it, for this reason. */
static inline void expect_refused(const char *what, struct bytes b, const char *text)
{
	struct tutti_vm_object *object = NULL;
	struct tutti_vm_error error = {0};
	int err = tutti_vm_object_open(b.at, b.n, &object, &error);

	if (err != -ENOEXEC || !is_like(error.text, text))
		fail_msg("%s: %d, \"%s\", not \"%s\"", what, err, err ? error.text : "", text);
	assert_null(object);
	/* The text is for those who want it. */
	assert_int_equal(tutti_vm_object_open(b.at, b.n, &object, NULL), -ENOEXEC);
}

/* Arguments: the folders of objects and of sources; "-" for the first: there is no clang. */
static inline void set_folders(int argc, char **argv)
{
	if (argc != 3 || !strcmp(argv[1], "-")) {
		puts("clang, which compiles the modules for this test, is not installed");
		exit(77);
	}
	objects_dir = argv[1];
	sources_dir = argv[2];
}

#endif
