/* SPDX-License-Identifier: MIT */
/* What is wrong, in one line; of an option so that it need not be looked up. */
#include "cli_int.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIN_SECONDS 0.05
#define MAX_SECONDS 3600.0

int tt_cli_fail(const char *what, const char *why, const char *todo)
{
	if (todo)
		fprintf(stderr, "tutti: %s: %s (%s)\n", what, why, todo);
	else
		fprintf(stderr, "tutti: %s: %s\n", what, why);
	return TT_EXIT_FAILED;
}

int tt_cli_misuse(const char *command, const char *why, const char *word)
{
	fprintf(stderr, "tutti: %s: %s%s%s (see: tutti %s --help)\n", command, why,
		word ? ": " : "", word ? word : "", command);
	return TT_EXIT_MISUSE;
}

int tt_cli_bad_value(const char *command, const char *option, const char *value,
		     const char *allowed)
{
	fprintf(stderr, "tutti: %s: --%s cannot be '%s': it takes %s (see: tutti %s --help)\n",
		command, option, value, allowed, command);
	return TT_EXIT_MISUSE;
}

int tt_cli_bad_option(const char *command, int opt, char *const *argv)
{
	const char *word = argv[optind - 1];

	if (opt == ':')
		return tt_cli_misuse(command, "option without its value", word);
	if (strncmp(word, "--", 2) == 0 && strchr(word, '=') && optopt)
		return tt_cli_misuse(command, "option that takes no value", word);
	return tt_cli_misuse(command, "unknown option", word);
}

bool tt_arg_number(const char *text, long min, long max, long *ret)
{
	char *end;
	long v;

	errno = 0;
	v = strtol(text, &end, 10);
	if (errno || end == text || *end || v < min || v > max)
		return false;
	*ret = v;
	return true;
}

bool tt_arg_seconds(const char *text, double *ret)
{
	char *end;
	double v = strtod(text, &end);

	if (end == text || *end || !(v >= MIN_SECONDS && v <= MAX_SECONDS))
		return false;
	*ret = v;
	return true;
}

bool tt_arg_path(const char *text)
{
	return !strcmp(text, "auto") || !strcmp(text, "user") || !strcmp(text, "tcp");
}

bool tt_arg_spin(const char *text, uint32_t *ret_usec)
{
	long v;

	if (!strcmp(text, "auto")) {
		*ret_usec = UINT32_MAX;
		return true;
	}
	if (!tt_arg_number(text, 0, TT_MAX_SPIN_USEC, &v))
		return false;
	*ret_usec = (uint32_t)v;
	return true;
}
