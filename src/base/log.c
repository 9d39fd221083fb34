/* SPDX-License-Identifier: MIT */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int tt_log_max = -1;
static tt_log_fn sink;

static void to_stderr(enum tt_log_level level, const char *text)
{
	static const char *const names[] = {"error", "warning", "info", "debug"};
	char line[600];
	int n = snprintf(line, sizeof(line), "tutti[%d]: %s: %s\n", (int)getpid(), names[level],
			 text);

	if (n > (int)sizeof(line) - 1)
		n = (int)sizeof(line) - 1;
	if (n > 0 && write(STDERR_FILENO, line, (size_t)n) < 0)
		return;
}

void tt_log_set(tt_log_fn fn, enum tt_log_level max)
{
	sink = fn ? fn : to_stderr;
	tt_log_max = (int)max;
	if (!fn) {
		const char *env = getenv("TUTTI_LOG");

		tt_log_max = env ? atoi(env) : -1;
	}
}

void tt_log_write(enum tt_log_level level, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	(sink ? sink : to_stderr)(level, text);
}
