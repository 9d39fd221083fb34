/* SPDX-License-Identifier: MIT */
/* What /proc says of a process. It may end at any moment: then what is missing is just not told. */
#include "cli_int.h"
#include "doctor_int.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIBRARY "libtutti-preload.so"
#define SIDE "memfd:tutti-side"
#define MAX_ENVIRON (1u << 20)

static FILE *open_proc(pid_t pid, const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	return fopen(path, "re");
}

/* ---- the library ---- */

/* IDLE: mapped, without the side that 'tutti run' gives it. */
enum mapped { NOT_MAPPED, MAPPED, IDLE, REPLACED, UNKNOWN };

/*
 * What is mapped tells; the environment only what a process was started with,
 * and not even that where the process has written its title over it.
 */
static enum mapped find_library(pid_t pid, char *ret_path, size_t bytes)
{
	FILE *f = open_proc(pid, "maps");
	enum mapped found = NOT_MAPPED;
	bool side = false;
	char *line = NULL;
	size_t room = 0;

	*ret_path = '\0';
	if (!f)
		return UNKNOWN;
	while (getline(&line, &room, f) > 0) {
		char *path = strchr(line, '/'), *end;

		side |= path && strstr(path, SIDE);
		if (found != NOT_MAPPED || !path || !(end = strstr(path, LIBRARY)))
			continue;
		found = strstr(end, "(deleted)") ? REPLACED : MAPPED;
		end[strlen(LIBRARY)] = '\0';
		snprintf(ret_path, bytes, "%s", path);
	}
	free(line);
	fclose(f);
	return found == MAPPED && !side ? IDLE : found;
}

/* Whether the kernel told its loader to trust nobody; -1: cannot be read. */
static int is_secure(pid_t pid)
{
	FILE *f = open_proc(pid, "auxv");
	ElfW(auxv_t) a;
	int secure = f ? 0 : -1;

	while (f && fread(&a, sizeof(a), 1, f) == 1 && a.a_type != AT_NULL)
		if (a.a_type == AT_SECURE)
			secure = a.a_un.a_val != 0;
	if (f)
		fclose(f);
	return secure;
}

/* A variable of the environment that the process started with; "" when it is not there. */
static int read_variable(pid_t pid, const char *name, char *ret_value, size_t bytes)
{
	FILE *f = open_proc(pid, "environ");
	char *text = NULL;
	size_t n;

	*ret_value = '\0';
	if (!f || !(text = malloc(MAX_ENVIRON))) {
		if (f)
			fclose(f);
		return -EACCES;
	}
	n = fread(text, 1, MAX_ENVIRON - 1, f);
	text[n] = '\0';
	for (size_t at = 0; at < n; at += strlen(text + at) + 1) {
		size_t len = strlen(name);

		if (strncmp(text + at, name, len) == 0 && text[at + len] == '=')
			snprintf(ret_value, bytes, "%s", text + at + len + 1);
	}
	free(text);
	fclose(f);
	return 0;
}

static void tell_library(struct tt_findings *all, pid_t pid, const struct tt_program *p)
{
	char path[PATH_MAX], preload[PATH_MAX];
	enum mapped found = find_library(pid, path, sizeof(path));

	read_variable(pid, "LD_PRELOAD", preload, sizeof(preload));
	if (found == UNKNOWN)
		tt_findings_add(all, "library", "preloaded library", TT_WARN,
				"cannot be seen: ask as the user of the process");
	else if (found == REPLACED)
		tt_findings_add(all, "library", "preloaded library", TT_WARN,
				"%.200s was replaced since: start the program anew", path);
	else if (found == IDLE)
		tt_findings_add(all, "library", "preloaded library", TT_WARN,
				"is there, but belongs to no side: start it by 'tutti run'");
	else if (found == MAPPED)
		tt_findings_add(all, "library", "preloaded library", TT_GOOD, "%.300s", path);
	else if (is_secure(pid) == 1)
		tt_findings_add(all, "library", "preloaded library", TT_FAIL,
				"not there: the program has other rights than its caller "
				"(secure-exec), so its loader ignores LD_PRELOAD");
	else if (p->why)
		tt_findings_add(all, "library", "preloaded library", TT_FAIL, "not there: %s",
				p->why);
	else if (strstr(preload, LIBRARY))
		tt_findings_add(
			all, "library", "preloaded library", TT_FAIL,
			"not there, though LD_PRELOAD names it: was it unreadable? start the "
			"program anew");
	else
		tt_findings_add(all, "library", "preloaded library", TT_FAIL,
				"not there: it was not started by 'tutti run', or what started it "
				"had cleared LD_PRELOAD");
}

/* ---- the rest ---- */

static void tell_daemon_directory(struct tt_findings *all, pid_t pid)
{
	char theirs[PATH_MAX], ours[PATH_MAX];

	if (read_variable(pid, "TUTTI_DIR", theirs, sizeof(theirs)) < 0 || !*theirs)
		return;
	if (tt_cli_dir(ours, sizeof(ours), false) < 0 || strcmp(theirs, ours) != 0)
		tt_findings_add(all, "daemon_directory", "its daemon", TT_WARN,
				"is another one, of %.200s: ask with TUTTI_DIR set to that",
				theirs);
	else
		tt_findings_add(all, "daemon_directory", "its daemon", TT_GOOD, "the same: %.300s",
				theirs);
}

static void tell_namespace(struct tt_findings *all, pid_t pid)
{
	char path[64], theirs[64] = "", ours[64] = "";

	snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)pid);
	if (readlink(path, theirs, sizeof(theirs) - 1) < 0 ||
	    readlink("/proc/self/ns/net", ours, sizeof(ours) - 1) < 0)
		return;
	if (strcmp(theirs, ours) != 0)
		tt_findings_add(
			all, "network", "network namespace", TT_WARN,
			"another one than this: connections between two stay on kernel TCP");
}

static long status_number(pid_t pid, const char *key)
{
	FILE *f = open_proc(pid, "status");
	size_t len = strlen(key), room = 0;
	char *line = NULL;
	long v = -1;

	while (f && v < 0 && getline(&line, &room, f) > 0)
		if (strncmp(line, key, len) == 0 && line[len] == ':')
			v = strtol(line + len + 1, NULL, 10);
	free(line);
	if (f)
		fclose(f);
	return v;
}

static void tell_seccomp(struct tt_findings *all, pid_t pid)
{
	if (status_number(pid, "Seccomp") > 0)
		tt_findings_add(all, "seccomp", "seccomp", TT_WARN,
				"has a filter: if it refuses memfd, eventfd, sendmsg or mmap, "
				"connections stay on kernel TCP");
}

static void tell_user(struct tt_findings *all, pid_t pid)
{
	long uid = status_number(pid, "Uid");

	if (uid >= 0 && uid != (long)geteuid())
		tt_findings_add(
			all, "user", "user", TT_WARN,
			"user %ld: a daemon serves its own user's processes, and those that "
			"began as such",
			uid);
}

struct descriptors {
	unsigned long total, sockets, rings;
};

static bool count_descriptors(pid_t pid, struct descriptors *ret)
{
	char path[64], target[128];
	struct dirent *e;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	d = opendir(path);
	if (!d)
		return false;
	memset(ret, 0, sizeof(*ret));
	while ((e = readdir(d))) {
		ssize_t n = readlinkat(dirfd(d), e->d_name, target, sizeof(target) - 1);

		if (n < 0)
			continue;
		target[n] = '\0';
		ret->total++;
		ret->sockets += strncmp(target, "socket:", 7) == 0;
		ret->rings += strstr(target, "[io_uring]") != NULL;
	}
	closedir(d);
	return true;
}

static unsigned long open_files_limit(pid_t pid)
{
	FILE *f = open_proc(pid, "limits");
	unsigned long limit = 0;
	char line[256];

	while (f && !limit && fgets(line, sizeof(line), f))
		if (sscanf(line, "Max open files %lu", &limit) != 1)
			limit = 0;
	if (f)
		fclose(f);
	return limit;
}

static void tell_descriptors(struct tt_findings *all, pid_t pid)
{
	unsigned long limit = open_files_limit(pid);
	struct descriptors d;

	if (!count_descriptors(pid, &d)) {
		tt_findings_add(all, "open_files", "open files", TT_WARN,
				"cannot be seen: ask as the user of the process");
		return;
	}
	if (limit && (limit < 64 || d.total + d.total / 8 >= limit))
		tt_findings_add(all, "open_files", "open files", TT_WARN,
				"%lu of %lu: too few are left; raise it with ulimit -n", d.total,
				limit);
	else
		tt_findings_add(all, "open_files", "open files", TT_GOOD,
				"%lu, at most %lu; %lu are sockets", d.total, limit, d.sockets);
	if (d.rings)
		tt_findings_add(all, "io_uring", "io_uring", TT_WARN,
				"has %lu: what goes by it passes Tutti by", d.rings);
}

const char *tt_doctor_process_why(pid_t pid, int err, const char **ret_todo)
{
	static char text[128], todo[64];
	long uid = status_number(pid, "Uid");

	*ret_todo = todo;
	if (err == -ESRCH) {
		snprintf(todo, sizeof(todo), "see: ps -e");
		return "there is none";
	}
	if (err == -ENOENT) {
		*ret_todo = NULL;
		return "it is a part of the kernel, or has just ended: it has no program";
	}
	snprintf(text, sizeof(text), "its program cannot be looked at: %s", strerror(-err));
	if (err != -EACCES && err != -EPERM)
		*ret_todo = NULL;
	else if (uid >= 0 && uid != (long)geteuid())
		snprintf(todo, sizeof(todo), "ask as its user, %ld, or as root", uid);
	else
		snprintf(todo, sizeof(todo), "ask as root with CAP_SYS_PTRACE: it is protected");
	return text;
}

/*
 * The name that it was started by, which may be a link to the file: that is what
 * the process is called, if there is such a name beside the file. Else the file.
 */
static void find_name(pid_t pid, const char *exe, char *ret_path)
{
	char name[32] = "", path[PATH_MAX + sizeof(name)], link[64];
	const char *slash = strrchr(exe, '/');
	FILE *f = open_proc(pid, "comm");
	struct stat theirs, named;

	snprintf(ret_path, PATH_MAX, "%s", exe);
	if (f && fgets(name, sizeof(name), f))
		name[strcspn(name, "\n")] = '\0';
	if (f)
		fclose(f);
	if (!slash || !*name || strchr(name, '/'))
		return;
	snprintf(link, sizeof(link), "/proc/%d/exe", (int)pid);
	snprintf(path, sizeof(path), "%.*s/%s", (int)(slash - exe), exe, name);
	if (strlen(path) < PATH_MAX && stat(link, &theirs) == 0 && stat(path, &named) == 0 &&
	    theirs.st_ino == named.st_ino && theirs.st_dev == named.st_dev)
		snprintf(ret_path, PATH_MAX, "%s", path);
}

int tt_doctor_process(struct tt_findings *all, pid_t pid, struct tt_program *ret_program)
{
	char path[64], exe[PATH_MAX];
	ssize_t n;
	int err;

	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	if (access(path, F_OK) < 0)
		return -ESRCH;
	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	n = readlink(path, exe, sizeof(exe) - 1);
	if (n < 0)
		return -errno;
	exe[n] = '\0';
	err = tt_program_examine(path, ret_program);
	if (err < 0)
		return err;
	find_name(pid, exe, ret_program->path);
	snprintf(ret_program->binary, sizeof(ret_program->binary), "%s", exe);
	tt_doctor_file(all, ret_program);
	tell_library(all, pid, ret_program);
	tell_daemon_directory(all, pid);
	tell_user(all, pid);
	tell_namespace(all, pid);
	tell_seccomp(all, pid);
	tell_descriptors(all, pid);
	return 0;
}
