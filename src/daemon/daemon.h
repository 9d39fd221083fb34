/* SPDX-License-Identifier: MIT */
/* tuttid: introduces the processes of one user to each other. See daemon_int.h. */
#ifndef TT_DAEMON_DAEMON_H
#define TT_DAEMON_DAEMON_H

#include <stdbool.h>

#ifndef TUTTI_VERSION
#define TUTTI_VERSION "0.1.0"
#endif

/* What the daemon writes to ready_fd: one int, 0 or a negative errno. */
#define TT_DAEMON_RUNNING (-17) /* -EEXIST: another one serves this directory */

struct tt_daemon_options {
	int ready_fd;	 /* told when it serves, or cannot; -1: nobody asks */
	bool foreground; /* log to standard error instead of the file */
};

/*
 * Serves until it is told to end. Changes the working directory, signal
 * dispositions and limits: the process must be the daemon's own.
 * Returns 0 after a regular end, or a negative errno: why it could not start.
 */
int tt_daemon_main(const struct tt_daemon_options *opt);

#endif
