/* SPDX-License-Identifier: MIT */
/* Where the daemon is, and in words why it is not there. */
#include "cli_int.h"
#include "daemon/daemon.h"
#include "ulc/ctl.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define OWN_DIR "set TUTTI_DIR to a directory of your own"

int tt_cli_dir(char *ret_dir, size_t bytes, bool create)
{
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)], real[PATH_MAX];
	int err = tt_ctl_path(path, sizeof(path), create);

	if (err < 0)
		return err;
	*strrchr(path, '/') = '\0';
	if (!realpath(path, real))
		return -errno;
	/* A relative name will not do for a program that changes its directory. */
	const char *name = strlen(real) + 5 > sizeof(path) ? path : real;

	if (strlen(name) >= bytes)
		return -ENAMETOOLONG;
	memcpy(ret_dir, name, strlen(name) + 1);
	return 0;
}

const char *tt_cli_dir_why(int err, const char **ret_todo)
{
	static char text[PATH_MAX + 160];
	char buf[PATH_MAX];
	const char *dir = tt_ctl_dir(buf, sizeof(buf));
	struct stat st;

	*ret_todo = OWN_DIR;
	if (err == -EINVAL) {
		snprintf(text, sizeof(text), "TUTTI_DIR is '%s', no absolute path", dir);
	} else if (err == -ENAMETOOLONG) {
		snprintf(text, sizeof(text), "the directory %s has a name of %zu bytes, at most %d",
			 dir, strlen(dir), TT_CTL_MAX_DIR);
		*ret_todo = "set TUTTI_DIR to a shorter one";
	} else if (err == -EPERM && lstat(dir, &st) == 0 && st.st_uid != geteuid()) {
		snprintf(text, sizeof(text), "the directory %s belongs to user %u, not to %u", dir,
			 st.st_uid, geteuid());
	} else if (err == -EPERM && lstat(dir, &st) == 0 && (st.st_mode & 022)) {
		snprintf(text, sizeof(text), "others may write to the directory %s, mode %04o", dir,
			 st.st_mode & 07777);
		*ret_todo = "chmod go-w it, or " OWN_DIR;
	} else {
		snprintf(text, sizeof(text), "the directory %s: %s", dir, strerror(-err));
	}
	return text;
}

const char *tt_cli_why(int err, const char **ret_todo)
{
	static char text[PATH_MAX + 160], log[PATH_MAX + 64];
	char dir[PATH_MAX];
	int dir_err = tt_cli_dir(dir, sizeof(dir), false), pid;

	if (dir_err < 0)
		return tt_cli_dir_why(dir_err, ret_todo);
	if (err == -EACCES || err == -EROFS || err == -ENOSPC || err == -EDQUOT)
		return tt_cli_dir_why(err, ret_todo);
	snprintf(log, sizeof(log), "see %s/tuttid.log, or tutti doctor", dir);
	*ret_todo = log;
	if (err == -EPIPE || err == -ECONNRESET) {
		*ret_todo = "end it, the next command starts another: tutti down";
		return "the daemon takes no more connections, it has no descriptors left";
	}
	if (err == TT_DAEMON_RUNNING) {
		pid = tt_cli_daemon_pid();
		*ret_todo = "end it: tutti down";
		if (pid)
			snprintf(text, sizeof(text), "one of pid %d runs already, in %s", pid, dir);
		else
			snprintf(text, sizeof(text), "another one has locked %s/lock", dir);
	} else if (err == -ETIMEDOUT) {
		snprintf(text, sizeof(text), "the daemon of %s does not answer", dir);
	} else if (tt_cli_is_absent(err)) {
		snprintf(text, sizeof(text), "the daemon of %s ended at once", dir);
	} else {
		snprintf(text, sizeof(text), "the daemon of %s: %s", dir, strerror(-err));
	}
	return text;
}

bool tt_cli_is_absent(int err)
{
	return err == -ENOENT || err == -ECONNREFUSED;
}

int tt_cli_no_report(const char *what, int err)
{
	char buf[PATH_MAX], none[PATH_MAX + 64];
	const char *todo, *why;

	if (tt_cli_is_absent(err)) {
		snprintf(none, sizeof(none), "no daemon is running in %s",
			 tt_ctl_dir(buf, sizeof(buf)));
		return tt_cli_fail(what, none, "start it: tutti up");
	}
	why = tt_cli_why(err, &todo);
	return tt_cli_fail(what, why, todo);
}

int tt_cli_daemon_pid(void)
{
	struct ucred peer = {0};
	socklen_t len = sizeof(peer);
	int ctl = tt_ctl_connect();

	if (ctl < 0)
		return 0;
	if (getsockopt(ctl, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		peer.pid = 0;
	close(ctl);
	return peer.pid;
}
