/* SPDX-License-Identifier: MIT */
/* Defaults of `tutti run`: configuration files, below the environment and the command line. */
#ifndef TT_CLI_CONFIG_H
#define TT_CLI_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tt_run_config {
	char path[16];	    /* "" when no file says anything */
	char path_at[512];  /* "FILE:LINE" that says it */
	uint32_t spin_usec; /* UINT32_MAX: adaptive */
	bool stats, strict;
};

/*
 * Reads /etc/tutti/tutti.conf, then $XDG_CONFIG_HOME/tutti/tutti.conf (else
 * ~/.config/...), or $TUTTI_CONFIG alone; what comes later replaces what came
 * before, and a section [run NAME] for this program's name goes before [run].
 * c holds the defaults. False: a file is wrong; ret_why says which, where, why.
 */
bool tt_run_config_read(const char *program, struct tt_run_config *c, char *ret_why, size_t bytes);

#endif
