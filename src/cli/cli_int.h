/* SPDX-License-Identifier: MIT */
/* What the subcommands share. A subcommand gets its own name as argv[0] and returns the exit status. */
#ifndef TT_CLI_INT_H
#define TT_CLI_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TT_EXIT_OK = 0, TT_EXIT_FAILED = 1, TT_EXIT_MISUSE = 2 };

int tt_cmd_run(int argc, char **argv);
int tt_cmd_up(int argc, char **argv);
int tt_cmd_down(int argc, char **argv);
int tt_cmd_status(int argc, char **argv);
int tt_cmd_ss(int argc, char **argv);
int tt_cmd_top(int argc, char **argv);
int tt_cmd_doctor(int argc, char **argv);
int tt_cmd_module(int argc, char **argv);
int tt_cmd_vm(int argc, char **argv);
/* `tuttid`: what `up` starts. */
int tt_cmd_daemon(int argc, char **argv);

/* args.c */
/* Prints "tutti: what: why (todo)"; todo NULL: without. Returns TT_EXIT_FAILED. */
int tt_cli_fail(const char *what, const char *why, const char *todo);
/* Prints what is wrong with the command line. Returns TT_EXIT_MISUSE. */
int tt_cli_misuse(const char *command, const char *why, const char *word);
#define TT_MAX_SPIN_USEC 1000000
#define TT_SPIN_ALLOWED "microseconds, 0 to 1000000, or auto"
#define TT_PATH_ALLOWED "auto, user or tcp"
#define TT_SECONDS_ALLOWED "seconds, 0.05 to 3600"
/* Prints what --option was given and what it takes. Returns TT_EXIT_MISUSE. */
int tt_cli_bad_value(const char *command, const char *option, const char *value,
		     const char *allowed);
/* After getopt_long() with ":" first has returned '?' or ':'. Returns TT_EXIT_MISUSE. */
int tt_cli_bad_option(const char *command, int opt, char *const *argv);
bool tt_arg_number(const char *text, long min, long max, long *ret);
bool tt_arg_seconds(const char *text, double *ret);
bool tt_arg_path(const char *text);
bool tt_arg_spin(const char *text, uint32_t *ret_usec); /* auto: UINT32_MAX */

/* dir.c. Texts are valid until the next call. */
/* The daemon's directory, absolute. 0 or a negative errno. */
int tt_cli_dir(char *ret_dir, size_t bytes, bool create);
/* Why that failed with this error, and what to do about it. */
const char *tt_cli_dir_why(int err, const char **ret_todo);
/* Why no daemon could be reached or started, and what to do about it. */
const char *tt_cli_why(int err, const char **ret_todo);
/* Whether this error of a request means that there is no daemon. */
bool tt_cli_is_absent(int err);
/* The command that asks for a report has failed. */
int tt_cli_no_report(const char *what, int err);
/* Of the daemon that listens; 0: none does. */
int tt_cli_daemon_pid(void);

/* up.c */
/* Connects to the daemon and starts it when there is none. Descriptor or negative errno. */
int tt_cli_connect_or_start(void);
/*
 * Asks a running daemon for a report (TT_CTL_*, and its arg[0], arg[1]). 0 and a
 * text for free(), or a negative errno.
 */
int tt_cli_report(int type, uint64_t arg, uint64_t more, char **ret_text);

/* preload.c */
/* Where the preloaded library is. 0, or a negative errno of what TUTTI_PRELOAD names, or -ENOENT. */
int tt_cli_preload_path(char *ret_path, size_t bytes);
/* Why there is none, and what to do about it. Valid until the next call. */
const char *tt_cli_preload_why(int err, const char **ret_todo);
/* Whether this element of LD_PRELOAD is the library, of any installation. */
bool tt_cli_is_preload(const char *path, size_t len);

#endif
