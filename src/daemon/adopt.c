/* SPDX-License-Identifier: MIT */
/*
 * Sides of a daemon before this one, whose programs have not come back.
 *
 * A program looks for the next daemon when it needs one, which may be never:
 * its connections go on without. Nobody is woken to ask. Instead, before the
 * first report, the descriptors of this user's processes are looked through for
 * sides' memory that bears this folder's mark, and such a side is taken as it
 * is: it has no control connection (refs 0), its entries are no claims, and it
 * ends with the processes that hold it. When one of these says HELLO, it is a
 * side like any other.
 *
 * Not found: sides in processes that we may not look at (of another user by now,
 * or protected).
 */
#include "daemon_int.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIDE_LINK "/memfd:" TT_SIDE_MEMFD " "

/* A descriptor of process pid, by its name in dir. */
static void look_at(struct tt_daemon *d, pid_t pid, int dir, const char *name)
{
	char target[sizeof(SIDE_LINK) + 16];
	struct stat st;
	ssize_t n = readlinkat(dir, name, target, sizeof(target) - 1);
	int fd;

	if (n <= 0)
		return;
	target[n] = '\0';
	/* Of another user's making: whose daemon runs as root sees these too. */
	if (strncmp(target, SIDE_LINK, strlen(SIDE_LINK)) != 0 || fstatat(dir, name, &st, 0) < 0 ||
	    st.st_uid != geteuid() || !S_ISREG(st.st_mode))
		return;
	/* It may have become something else meanwhile, on which nothing must block. */
	fd = openat(dir, name, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return;
	tt_party_adopt(d, pid, &fd);
	if (fd >= 0)
		close(fd);
}

static void look_into(struct tt_daemon *d, const char *pid)
{
	char path[64];
	struct dirent *e;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%.20s/fd", pid);
	dir = opendir(path);
	if (!dir)
		return;
	while ((e = readdir(dir)))
		if (e->d_name[0] != '.')
			look_at(d, (pid_t)atoi(pid), dirfd(dir), e->d_name);
	closedir(dir);
}

void tt_adopt_again(struct tt_daemon *d)
{
	DIR *proc = opendir("/proc");
	struct dirent *e;

	if (!proc)
		return;
	while ((e = readdir(proc)))
		if (isdigit((unsigned char)e->d_name[0]) && atoi(e->d_name) != getpid())
			look_into(d, e->d_name);
	closedir(proc);
}

void tt_adopt(struct tt_daemon *d)
{
	/* Later sides have said HELLO to us. */
	if (!d->adopted)
		tt_adopt_again(d);
	d->adopted = true;
}
