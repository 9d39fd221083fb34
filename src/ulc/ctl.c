/* SPDX-License-Identifier: MIT */
#include "ulc/ctl.h"

#include "base/clock.h"
#include "base/fdpass.h"
#include "base/sys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Of a name that fits: "DIR/ctl" and its end. */
#define MAX_PATH sizeof(((struct sockaddr_un *)0)->sun_path)

static int check_dir(const char *dir, bool create)
{
	struct stat st;

	if (create && mkdir(dir, 0700) < 0 && errno != EEXIST)
		return -errno;
	if (lstat(dir, &st) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	if (st.st_uid != geteuid() || (st.st_mode & 022))
		return -EPERM;
	return 0;
}

const char *tt_ctl_dir(char *buf, size_t bytes)
{
	const char *dir = secure_getenv("TUTTI_DIR"), *run = secure_getenv("XDG_RUNTIME_DIR");

	if (dir && *dir)
		return dir;
	/* After su and the like the variable may name what is not there, or another's. */
	if (run && *run && check_dir(run, false) == 0)
		snprintf(buf, bytes, "%s/tutti", run);
	else
		snprintf(buf, bytes, "/tmp/tutti-%u", geteuid());
	return buf;
}

int tt_ctl_path(char *ret_path, size_t bytes, bool create)
{
	char buf[MAX_PATH + 1]; /* what is cut off here is too long */
	const char *dir = tt_ctl_dir(buf, sizeof(buf));
	int err;

	/* Programs change their directory. */
	if (*dir != '/')
		return -EINVAL;
	if (strlen(dir) > TT_CTL_MAX_DIR)
		return -ENAMETOOLONG;
	err = check_dir(dir, create);
	if (err < 0)
		return err;
	int n = snprintf(ret_path, bytes, "%s/ctl", dir);

	return n < 0 || (size_t)n >= bytes ? -ENAMETOOLONG : 0;
}

_Static_assert(TT_CTL_MAX_DIR + sizeof("/ctl") == MAX_PATH, "the longest that fits");

static char kept_path[MAX_PATH];

void tt_ctl_keep_path(void)
{
	if (tt_ctl_path(kept_path, sizeof(kept_path), false) < 0)
		kept_path[0] = '\0';
}

static int find_path(char *ret_path, size_t bytes)
{
	char dir[sizeof(kept_path)];

	if (!kept_path[0])
		return tt_ctl_path(ret_path, bytes, false);
	if (strlen(kept_path) >= bytes)
		return -ENAMETOOLONG;
	memcpy(dir, kept_path, sizeof(dir));
	*strrchr(dir, '/') = '\0';
	memcpy(ret_path, kept_path, strlen(kept_path) + 1);
	return check_dir(dir, false);
}

int tt_ctl_connect(void)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int err = find_path(sa.sun_path, sizeof(sa.sun_path));

	if (err < 0)
		return err;
	int fd = tt_sys.socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	if (tt_sys.connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0) {
		err = -errno;
		tt_sys.close(fd);
		return err;
	}
	/* Whoever listens there must be this user (or root): it will map our memory. */
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (tt_sys.getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 ||
	    (peer.uid != geteuid() && peer.uid != 0)) {
		tt_sys.close(fd);
		return -EPERM;
	}
	return fd;
}

int tt_ctl_send(int ctl, const struct tt_ctl_msg *m, int fd)
{
	return tt_fdpass_send(ctl, m, sizeof(*m), &fd, fd >= 0 ? 1 : 0, MSG_DONTWAIT);
}

/* The request's own timeout: the daemon may be stopped, the program must not be. */
static int await(int sock, int64_t deadline)
{
	for (;;) {
		struct pollfd p = {sock, POLLIN, 0};
		int64_t left = deadline - tt_now_ns();

		if (left <= 0)
			return -ETIMEDOUT;
		int n = tt_sys.poll(&p, 1, (int)(left / 1000000) + 1);

		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
	}
}

int tt_ctl_request(int ctl, struct tt_ctl_msg *m, int fd, int *ret_fd, int timeout_ms)
{
	int pair[2], fds[TT_FDPASS_MAX], nfds = 0, err;
	int64_t deadline = tt_now_ns() + timeout_ms * 1000000LL;

	if (ret_fd)
		*ret_fd = -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	int out[2] = {pair[1], fd};

	do {
		err = tt_fdpass_send(ctl, m, sizeof(*m), out, fd >= 0 ? 2 : 1, MSG_DONTWAIT);
		if (err == -EAGAIN)
			usleep(100);
	} while (err == -EAGAIN && tt_now_ns() < deadline);
	tt_sys.close(pair[1]); /* so that a daemon that dies is an end of file here */
	if (err == 0)
		err = await(pair[0], deadline);
	if (err == 0) {
		ssize_t n = tt_fdpass_recv(pair[0], m, sizeof(*m), fds, &nfds, MSG_DONTWAIT);

		if (n != (ssize_t)sizeof(*m) || m->magic != TT_CTL_MAGIC ||
		    m->type != TT_CTL_ANSWER)
			err = n < 0 ? (int)n : -EPIPE;
		else
			err = m->status;
	}
	for (int i = 0; i < nfds; i++) {
		if (err >= 0 && ret_fd && *ret_fd < 0)
			*ret_fd = fds[i];
		else
			tt_sys.close(fds[i]);
	}
	tt_sys.close(pair[0]);
	return err;
}
