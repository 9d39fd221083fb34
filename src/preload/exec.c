/* SPDX-License-Identifier: MIT */
/*
 * Ways into another program. Its connections must be found there: they are
 * given entries before, and an environment that was cleared gets back what
 * makes the program one of the side. No memory is allocated: a child of vfork
 * comes by here.
 */
#include "preload/preload_int.h"

#include <alloca.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const ours[] = {"LD_PRELOAD", "TUTTI_SIDE",	"TUTTI_CTL",
				   "TUTTI_DIR",	 "TUTTI_STATS", "TUTTI_EAGER"};
#define OURS (sizeof(ours) / sizeof(ours[0]))

/*
 * As they were at the start, name=value; empty: not set, or too long. Static:
 * an allocator that reads a file in its own start may bring us here.
 */
static char kept[OURS][1024];

static char *find_in(char *const envp[], const char *name)
{
	size_t n = strlen(name);

	for (size_t i = 0; envp && envp[i]; i++) {
		char *at = envp[i];

		if (strncmp(at, name, n) == 0 && at[n] == '=')
			return at;
	}
	return NULL;
}

void tt_preload_keep_environment(void)
{
	for (size_t i = 0; i < OURS; i++) {
		char *at = find_in(environ, ours[i]);

		if (at && strlen(at) < sizeof(kept[i]))
			strcpy(kept[i], at);
	}
}

static size_t count(char *const v[])
{
	size_t n = 0;

	while (v && v[n])
		n++;
	return n;
}

/* Of the value that this program was started with: our library alone. */
static size_t own_library(const char **ret_path)
{
	const char *at = kept[0][0] ? strchr(kept[0], '=') + 1 : "";

	while (*at) {
		size_t n = strcspn(at, ": ");

		if (memmem(at, n, "libtutti-preload", 16)) {
			*ret_path = at;
			return n;
		}
		at += n + (at[n] != '\0');
	}
	return 0;
}

/* How long LD_PRELOAD gets when ours is put before what somebody set anew. */
static size_t preload_bytes(char *const envp[])
{
	const char *set = find_in(envp, "LD_PRELOAD");

	return set ? strlen(set) + sizeof(kept[0]) : 0;
}

/*
 * A program that sets LD_PRELOAD for another, or clears it, has other libraries
 * in mind: without ours the other would find its connections silent.
 */
static void put_before(char **room, size_t n, char *text)
{
	const char *library;
	size_t len = own_library(&library);

	for (size_t i = 0; i < n && len; i++) {
		if (strncmp(room[i], "LD_PRELOAD=", 11) != 0 || strstr(room[i], "libtutti-preload"))
			continue;
		sprintf(text, "LD_PRELOAD=%.*s%s%s", (int)len, library, room[i][11] ? ":" : "",
			room[i] + 11);
		room[i] = text;
	}
}

/*
 * room: count(envp) + OURS + 1 pointers; text: preload_bytes. Which of ours are
 * missing is put at the end.
 */
static char *const *complete(char *const envp[], char **room, char *text)
{
	size_t n = count(envp);

	const char *side = find_in(envp, "TUTTI_SIDE");

	/* Set to nothing: `tutti run --path tcp` inside a program of ours. */
	if (!tt_sock_active() || (side && !side[strlen("TUTTI_SIDE=")]))
		return envp;
	memcpy(room, envp, n * sizeof(*room));
	put_before(room, n, text);
	for (size_t i = 0; i < OURS; i++)
		if (kept[i][0] && !find_in(envp, ours[i]))
			room[n++] = kept[i];
	room[n] = NULL;
	return room;
}

#define COMPLETE(envp)                                                                             \
	complete((envp), alloca((count(envp) + OURS + 1) * sizeof(char *)),                        \
		 alloca(preload_bytes(envp) + 1))

EXPORT int execve(const char *path, char *const argv[], char *const envp[])
{
	static int (*next)(const char *, char *const[], char *const[]);

	enter();
	if (!next)
		tt_next("execve", &next);
	tt_sock_share_all();
	if (tt_sock_active() && tt_sock_cannot_preload(path))
		tt_sock_hand_over(false);
	return next(path, argv, COMPLETE(envp));
}

EXPORT int execv(const char *path, char *const argv[])
{
	return execve(path, argv, environ);
}

EXPORT int execvpe(const char *file, char *const argv[], char *const envp[])
{
	static int (*next)(const char *, char *const[], char *const[]);

	enter();
	if (!next)
		tt_next("execvpe", &next);
	tt_sock_share_all();
	if (tt_sock_active() && tt_sock_cannot_preload_in_path(file))
		tt_sock_hand_over(false);
	return next(file, argv, COMPLETE(envp));
}

EXPORT int execvp(const char *file, char *const argv[])
{
	return execvpe(file, argv, environ);
}

EXPORT int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *fa,
		       const posix_spawnattr_t *at, char *const argv[], char *const envp[])
{
	static int (*next)(pid_t *, const char *, const posix_spawn_file_actions_t *,
			   const posix_spawnattr_t *, char *const[], char *const[]);

	enter();
	if (!next)
		tt_next("posix_spawn", &next);
	tt_sock_share_all();
	if (tt_sock_active() && tt_sock_cannot_preload(path))
		tt_sock_hand_out();
	return next(pid, path, fa, at, argv, COMPLETE(envp));
}

EXPORT int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *fa,
			const posix_spawnattr_t *at, char *const argv[], char *const envp[])
{
	static int (*next)(pid_t *, const char *, const posix_spawn_file_actions_t *,
			   const posix_spawnattr_t *, char *const[], char *const[]);

	enter();
	if (!next)
		tt_next("posix_spawnp", &next);
	tt_sock_share_all();
	if (tt_sock_active() && tt_sock_cannot_preload_in_path(file))
		tt_sock_hand_out();
	return next(pid, file, fa, at, argv, COMPLETE(envp));
}

/* ---- a fork by another name ---- */

struct started {
	int (*fn)(void *);
	void *arg;
};

static int start_child(void *arg)
{
	struct started s = *(struct started *)arg;

	tt_sock_fork_child();
	return s.fn(s.arg);
}

pid_t (*tt_preload_vfork(void))(void)
{
	static pid_t (*next)(void);

	enter();
	if (!next)
		tt_next("vfork", &next);
	tt_proc.lends = true;
	return next;
}

/* Without CLONE_VM it is a fork: pthread_atfork's handlers do not hear of it. */
EXPORT int clone(int (*fn)(void *), void *stack, int flags, void *arg, ...)
{
	static int (*next)(int (*)(void *), void *, int, void *, ...);
	struct started s = {fn, arg};
	void *more[3];
	va_list ap;

	enter();
	if (!next)
		tt_next("clone", &next);
	va_start(ap, arg);
	for (int i = 0; i < 3; i++)
		more[i] = va_arg(ap, void *);
	va_end(ap);
	if (flags & CLONE_VM)
		tt_proc.lends = true;
	if ((flags & CLONE_VM) || !fn)
		return next(fn, stack, flags, arg, more[0], more[1], more[2]);
	tt_sock_fork_prepare();
	int pid = next(start_child, stack, flags, &s, more[0], more[1], more[2]);

	tt_sock_fork_parent();
	return pid;
}

long tt_preload_raw_fork(long number, const long a[6])
{
	tt_sock_fork_prepare();
	long pid = tt_sys.syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);

	if (pid == 0)
		tt_sock_fork_child();
	else
		tt_sock_fork_parent();
	return pid;
}

EXPORT int system(const char *command)
{
	static int (*next)(const char *);

	enter();
	if (!next)
		tt_next("system", &next);
	tt_sock_share_all();
	return next(command);
}

EXPORT FILE *popen(const char *command, const char *type)
{
	static FILE *(*next)(const char *, const char *);

	enter();
	if (!next)
		tt_next("popen", &next);
	tt_sock_share_all();
	return next(command, type);
}

/* The forms with a list of arguments end in the forms with a vector. */
#define LIST_TO_VECTOR(first, argv)                                                                \
	do {                                                                                       \
		va_list ap_;                                                                       \
		size_t n_ = 1;                                                                     \
		va_start(ap_, first);                                                              \
		while (va_arg(ap_, char *))                                                        \
			n_++;                                                                      \
		va_end(ap_);                                                                       \
		(argv) = alloca((n_ + 1) * sizeof(char *));                                        \
		va_start(ap_, first);                                                              \
		(argv)[0] = (char *)(uintptr_t)(first);                                            \
		for (size_t i_ = 1; i_ <= n_; i_++)                                                \
			(argv)[i_] = va_arg(ap_, char *);                                          \
		va_end(ap_);                                                                       \
	} while (0)

EXPORT int execl(const char *path, const char *arg, ...)
{
	char **argv;

	LIST_TO_VECTOR(arg, argv);
	return execve(path, argv, environ);
}

EXPORT int execlp(const char *file, const char *arg, ...)
{
	char **argv;

	LIST_TO_VECTOR(arg, argv);
	return execvpe(file, argv, environ);
}

EXPORT int execle(const char *path, const char *arg, ...)
{
	char **argv;
	va_list ap;

	LIST_TO_VECTOR(arg, argv);
	va_start(ap, arg);
	while (va_arg(ap, char *))
		;
	char **envp = va_arg(ap, char **);

	va_end(ap);
	return execve(path, argv, envp);
}

EXPORT int fexecve(int fd, char *const argv[], char *const envp[])
{
	static int (*next)(int, char *const[], char *const[]);
	char path[32];

	enter();
	if (!next)
		tt_next("fexecve", &next);
	tt_sock_share_all();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (tt_sock_active() && tt_sock_cannot_preload(path))
		tt_sock_hand_over(false);
	return next(fd, argv, COMPLETE(envp));
}

EXPORT int execveat(int dirfd, const char *path, char *const argv[], char *const envp[], int flags)
{
	static int (*next)(int, const char *, char *const[], char *const[], int);
	char from[PATH_MAX + 32];

	enter();
	if (!next)
		tt_next("execveat", &next);
	tt_sock_share_all();
	if (dirfd == AT_FDCWD || path[0] == '/')
		snprintf(from, sizeof(from), "%s", path);
	else
		snprintf(from, sizeof(from), "/proc/self/fd/%d%s%s", dirfd, path[0] ? "/" : "",
			 path);
	if (tt_sock_active() && tt_sock_cannot_preload(from))
		tt_sock_hand_over(false);
	return next(dirfd, path, argv, COMPLETE(envp), flags);
}
