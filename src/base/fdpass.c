/* SPDX-License-Identifier: MIT */
#include "base/fdpass.h"

#include "base/sys.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union control {
	struct cmsghdr hdr;
	char room[CMSG_SPACE(sizeof(int) * TT_FDPASS_MAX)];
};

int tt_fdpass_send(int sock, const void *msg, size_t bytes, const int *fds, int nfds, int flags)
{
	union control ctl;
	struct iovec iov = {(void *)msg, bytes};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};

	if (nfds < 0 || nfds > TT_FDPASS_MAX)
		return -EINVAL;
	if (nfds > 0) {
		memset(&ctl, 0, sizeof(ctl));
		mh.msg_control = ctl.room;
		mh.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)nfds);
		struct cmsghdr *c = CMSG_FIRSTHDR(&mh);

		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)nfds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * (size_t)nfds);
	}
	for (;;) {
		ssize_t n = tt_sys.sendmsg(sock, &mh, flags | MSG_NOSIGNAL);

		if (n >= 0)
			return (size_t)n == bytes ? 0 : -EMSGSIZE;
		if (errno != EINTR)
			return -errno;
	}
}

ssize_t tt_fdpass_recv(int sock, void *buf, size_t bytes, int *ret_fds, int *ret_nfds, int flags)
{
	union control ctl;
	struct iovec iov = {buf, bytes};
	struct msghdr mh = {.msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = ctl.room,
			    .msg_controllen = sizeof(ctl.room)};
	ssize_t n;
	int nfds = 0;

	do
		n = tt_sys.recvmsg(sock, &mh, flags | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&mh); c; c = CMSG_NXTHDR(&mh, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		int count = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		const unsigned char *data = CMSG_DATA(c);

		for (int i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, data + (size_t)i * sizeof(int), sizeof(fd));
			if (nfds < TT_FDPASS_MAX)
				ret_fds[nfds++] = fd;
			else
				tt_sys.close(fd);
		}
	}
	if (mh.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
		while (nfds > 0)
			tt_sys.close(ret_fds[--nfds]);
		*ret_nfds = 0;
		return -EMSGSIZE;
	}
	*ret_nfds = nfds;
	return n;
}
