/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "cli_int.h"

#include <errno.h>
#include <ini.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SYSTEM_FILE "/etc/tutti/tutti.conf"

/* Of one file. Its lines about this program are kept apart: they win wherever they stand. */
struct reading {
	const char *program, *file;
	FILE *from;
	int line;
	bool within; /* a line that is longer than what is read at a time */
	struct tt_run_config all;
	struct {
		bool path, spin, stats, strict;
	} mine;
	char why[128];
};

static bool parse_switch(const char *text, bool *ret)
{
	static const char *const yes[] = {"yes", "on", "true", "1"};
	static const char *const no[] = {"no", "off", "false", "0"};

	for (size_t i = 0; i < sizeof(yes) / sizeof(*yes); i++) {
		if (!strcmp(text, yes[i]) || !strcmp(text, no[i])) {
			*ret = !strcmp(text, yes[i]);
			return true;
		}
	}
	return false;
}

static int wrong(struct reading *r, const char *what, const char *word)
{
	if (!r->why[0])
		snprintf(r->why, sizeof(r->why), "%s '%.60s'", what, word);
	return 0;
}

static int take(void *user, const char *section, const char *key, const char *value)
{
	struct reading *r = user;
	bool mine = false, ok;

	if (!strncmp(section, "run ", 4)) {
		const char *name = section + 4 + strspn(section + 4, " ");

		mine = !strcmp(name, r->program);
		if (!mine)
			return 1;
	} else if (strcmp(section, "run") != 0) {
		return wrong(r, section[0] ? "no such section:" : "a key outside of a section:",
			     section[0] ? section : key);
	}
	if (!strcmp(key, "path")) {
		ok = tt_arg_path(value);
		if (ok && (mine || !r->mine.path)) {
			strcpy(r->all.path, value);
			snprintf(r->all.path_at, sizeof(r->all.path_at), "%.480s:%d", r->file,
				 r->line);
		}
		r->mine.path |= mine;
	} else if (!strcmp(key, "spin")) {
		uint32_t usec;

		ok = tt_arg_spin(value, &usec);
		if (ok && (mine || !r->mine.spin))
			r->all.spin_usec = usec;
		r->mine.spin |= mine;
	} else if (!strcmp(key, "stats") || !strcmp(key, "strict")) {
		bool stats = !strcmp(key, "stats"), on;

		ok = parse_switch(value, &on);
		if (ok && (mine || !(stats ? r->mine.stats : r->mine.strict)))
			*(stats ? &r->all.stats : &r->all.strict) = on;
		*(stats ? &r->mine.stats : &r->mine.strict) |= mine;
	} else {
		return wrong(r, "no such key:", key);
	}
	return ok ? 1 : wrong(r, "bad value:", value);
}

/* For inih: fgets(3), with the lines counted. */
static char *next_line(char *text, int bytes, void *user)
{
	struct reading *r = user;

	if (!fgets(text, bytes, r->from))
		return NULL;
	if (!r->within)
		r->line++;
	r->within = !strchr(text, '\n');
	return text;
}

/* A file that is not there is no fault, unless it was asked for. */
static bool read_file(const char *file, bool must, struct reading *r, char *ret_why, size_t bytes)
{
	int line;

	if (!must && access(file, F_OK) < 0)
		return true;
	r->why[0] = '\0';
	memset(&r->mine, 0, sizeof(r->mine));
	r->file = file;
	r->line = 0;
	r->within = false;
	r->from = fopen(file, "re");
	if (!r->from) {
		snprintf(ret_why, bytes, "%s cannot be read: %s", file, strerror(errno));
		return false;
	}
	errno = 0;
	line = ini_parse_stream(next_line, r, take, r);
	if (line < 0 || ferror(r->from)) {
		snprintf(ret_why, bytes, "%s cannot be read: %s", file,
			 errno ? strerror(errno) : "out of memory");
		fclose(r->from);
		return false;
	}
	fclose(r->from);
	if (line > 0) {
		snprintf(ret_why, bytes, "%s:%d: %s", file, line,
			 r->why[0] ? r->why : "not KEY = VALUE");
		return false;
	}
	return true;
}

bool tt_run_config_read(const char *program, struct tt_run_config *c, char *ret_why, size_t bytes)
{
	const char *slash = strrchr(program, '/'), *only = getenv("TUTTI_CONFIG");
	struct reading r = {.program = slash ? slash + 1 : program, .all = *c};
	const char *base = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	char file[PATH_MAX];
	bool ok;

	if (only) {
		ok = !*only || read_file(only, true, &r, ret_why, bytes);
	} else {
		ok = read_file(SYSTEM_FILE, false, &r, ret_why, bytes);
		file[0] = '\0';
		if (base && *base)
			snprintf(file, sizeof(file), "%s/tutti/tutti.conf", base);
		else if (home && *home)
			snprintf(file, sizeof(file), "%s/.config/tutti/tutti.conf", home);
		if (ok && file[0])
			ok = read_file(file, false, &r, ret_why, bytes);
	}
	if (ok)
		*c = r.all;
	return ok;
}
