/* SPDX-License-Identifier: MIT */
#include "cli_int.h"
#include "config.h"
#include "doctor_int.h"

#include <gnu/libc-version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *tt_doctor_linking(const struct tt_program *p)
{
	return p->is_unreadable ? "unknown"
	       : !p->bits	? "no ELF file"
	       : p->is_dynamic	? "dynamic"
	       : p->is_pie	? "static-pie"
				: "static";
}

static void tell_linking(struct tt_findings *all, const struct tt_program *p)
{
	const char *linking = tt_doctor_linking(p);

	if (p->is_unreadable)
		tt_findings_add(all, "linking", "linking", TT_WARN,
				"may be run, not read: its loader will see");
	else if (p->bits != (int)sizeof(void *) * 8 || !p->bits)
		tt_findings_add(all, "linking", "linking", TT_FAIL, "%d bits: use a native build",
				p->bits);
	else if (!p->is_dynamic)
		tt_findings_add(all, "linking", "linking", TT_FAIL,
				"%s: nothing can be preloaded; use a dynamically linked build",
				linking);
	else
		tt_findings_add(all, "linking", "linking", TT_GOOD, "%d bits, %s", p->bits,
				linking);
}

static void tell_libc(struct tt_findings *all, const struct tt_program *p)
{
	const char *here = gnu_get_libc_version();
	int major = 0, minor = 0, here_major = 0, here_minor = 0;

	if (!p->is_dynamic)
		return;
	sscanf(p->glibc, "%d.%d", &major, &minor);
	sscanf(here, "%d.%d", &here_major, &here_minor);
	if (p->is_musl)
		tt_findings_add(all, "libc", "C library", TT_FAIL,
				"musl, by %.200s: use a build for glibc", p->loader);
	else if (!p->glibc[0])
		tt_findings_add(all, "libc", "C library", TT_WARN,
				"asks for no version of glibc; its loader is %.200s", p->loader);
	else if (major > here_major || (major == here_major && minor > here_minor))
		tt_findings_add(all, "libc", "C library", TT_WARN,
				"asks for glibc %s, here is %s: it will not start, with Tutti or "
				"without",
				p->glibc, here);
	else
		tt_findings_add(all, "libc", "C library", TT_GOOD, "glibc %s; asks for %s or newer",
				here, p->glibc);
}

static void tell_rights(struct tt_findings *all, const struct tt_program *p)
{
	if (p->is_setid || p->has_caps)
		tt_findings_add(all, "rights", "rights", TT_FAIL,
				"%s: its loader ignores LD_PRELOAD",
				p->is_setid ? "set-id" : "file capabilities");
	else
		tt_findings_add(all, "rights", "rights", TT_GOOD,
				"its caller's: no set-id, no file capabilities");
}

void tt_doctor_file(struct tt_findings *all, const struct tt_program *p)
{
	if (*p->script)
		tt_findings_add(all, "script", "script", TT_GOOD,
				"run by %.300s; what it starts is looked at when it starts",
				p->binary);
	tell_linking(all, p);
	tell_libc(all, p);
	if (p->is_unreadable || !p->bits)
		return;
	tell_rights(all, p);
	if (p->is_go)
		tt_findings_add(all, "go", "Go", TT_FAIL,
				"enters the kernel without libc; no other path serves it in this "
				"version");
	if (p->uses_io_uring)
		tt_findings_add(all, "io_uring", "io_uring", TT_WARN,
				"linked with liburing: is answered with ENOSYS under Tutti; a "
				"program that has no other way will not work");
}

static void tell_configuration(struct tt_findings *all, const char *program)
{
	struct tt_run_config c = {.spin_usec = UINT32_MAX};
	const char *path = getenv("TUTTI_PATH");
	char why[PATH_MAX + 160];

	if (!tt_run_config_read(program, &c, why, sizeof(why)))
		tt_findings_add(all, "configuration", "configuration", TT_FAIL,
				"%.300s: see tutti.conf(5)", why);
	else if (!strcmp(c.path, "tcp") && !(path && *path))
		tt_findings_add(all, "configuration", "configuration", TT_FAIL,
				"%.300s: path = tcp: see tutti.conf(5)", c.path_at);
	else
		tt_findings_add(all, "configuration", "configuration", TT_GOOD,
				"nothing in the way%s", c.strict ? "; strict" : "");
}

void tt_doctor_environment(struct tt_findings *all, const char *program)
{
	const char *path = getenv("TUTTI_PATH"), *preload = getenv("LD_PRELOAD");
	const char *uring = getenv("TUTTI_IO_URING"), *spin = getenv("TUTTI_SPIN_USEC");
	uint32_t usec;

	tell_configuration(all, program);
	if (path && !strcmp(path, "tcp"))
		tt_findings_add(all, "environment", "environment", TT_FAIL,
				"TUTTI_PATH is tcp: unset it");
	else if (path && *path && !tt_arg_path(path))
		tt_findings_add(all, "environment", "environment", TT_FAIL,
				"TUTTI_PATH cannot be '%.40s': it takes " TT_PATH_ALLOWED, path);
	else if (spin && *spin && !tt_arg_spin(spin, &usec))
		tt_findings_add(all, "environment", "environment", TT_FAIL,
				"TUTTI_SPIN_USEC takes " TT_SPIN_ALLOWED);
	else if (uring && *uring && strcmp(uring, "0") != 0)
		tt_findings_add(all, "environment", "environment", TT_WARN,
				"TUTTI_IO_URING is set: what goes by io_uring passes Tutti by");
	else if (preload && *preload)
		tt_findings_add(all, "environment", "environment", TT_GOOD,
				"LD_PRELOAD stays, behind Tutti's library: %.200s", preload);
	else
		tt_findings_add(all, "environment", "environment", TT_GOOD,
				"nothing in the way; a cleared one gets back what Tutti needs");
}
