/* SPDX-License-Identifier: MIT */
/*
 * Log through a callback: a library never prints. The default callback drops
 * everything unless the environment has TUTTI_LOG=LEVEL (0 errors .. 3 debug),
 * which then goes to standard error.
 */
#ifndef TT_BASE_LOG_H
#define TT_BASE_LOG_H

enum tt_log_level { TT_LOG_ERROR, TT_LOG_WARN, TT_LOG_INFO, TT_LOG_DEBUG };

typedef void (*tt_log_fn)(enum tt_log_level level, const char *text);

/* fn NULL: the default. Not thread safe: call it at start. */
void tt_log_set(tt_log_fn fn, enum tt_log_level max);

extern int tt_log_max;

void tt_log_write(enum tt_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#define tt_log(level, ...)                                                                         \
	do {                                                                                       \
		if ((int)(level) <= tt_log_max)                                                    \
			tt_log_write((level), __VA_ARGS__);                                        \
	} while (0)

#endif
