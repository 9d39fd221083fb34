/* SPDX-License-Identifier: MIT */
/*
 * tutti doctor: findings about the machine, a program, a process.
 *
 *   doctor.c          the command, and what it prints
 *   doctor_machine.c  what works here
 *   doctor_program.c  what a program's file says before it runs (with elf.c)
 *   doctor_pid.c      what a process is like that runs already
 */
#ifndef TT_CLI_DOCTOR_INT_H
#define TT_CLI_DOCTOR_INT_H

#include "elf_int.h"

#include <stdbool.h>
#include <sys/types.h>

/* WARN: works, but less well. FAIL: nothing will be accelerated. */
enum tt_verdict { TT_GOOD, TT_WARN, TT_FAIL };

struct tt_finding {
	const char *name, *label;
	enum tt_verdict verdict;
	char text[400]; /* what was found; when not good, also what to do */
};

#define TT_MAX_FINDINGS 40
struct tt_findings {
	struct tt_finding list[TT_MAX_FINDINGS];
	int n;
};

void tt_finding_set(struct tt_finding *f, enum tt_verdict v, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void tt_findings_add(struct tt_findings *all, const char *name, const char *label,
		     enum tt_verdict v, const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* only_programs: those checks that decide about a program's acceleration. */
void tt_doctor_machine(struct tt_findings *all, bool only_programs);
/* What the program's file says; and configuration and environment, which it will run with. */
void tt_doctor_file(struct tt_findings *all, const struct tt_program *p);
void tt_doctor_environment(struct tt_findings *all, const char *program);
/* Of a running process; 0, or a negative errno when it cannot be looked at. */
int tt_doctor_process(struct tt_findings *all, pid_t pid, struct tt_program *ret_program);
/* Why it could not, and what to do about it (NULL: nothing). Valid until the next call. */
const char *tt_doctor_process_why(pid_t pid, int err, const char **ret_todo);

/* What kind of file it is: "dynamic", "static", ... */
const char *tt_doctor_linking(const struct tt_program *p);

#endif
