/* SPDX-License-Identifier: MIT */
/*
 * poller PORT poll|select|epoll: asks for a download on a non-blocking connection, waits before
 * each small read, and prints how many bytes came. It links nothing of Tutti.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

static void wait_readable(int fd, int set, const char *how)
{
	if (!strcmp(how, "poll")) {
		struct pollfd p = {fd, POLLIN, 0};

		poll(&p, 1, -1);
	} else if (!strcmp(how, "select")) {
		fd_set r;

		FD_ZERO(&r);
		FD_SET(fd, &r);
		select(fd + 1, &r, NULL, NULL, NULL);
	} else {
		struct epoll_event e;

		epoll_wait(set, &e, 1, -1);
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct epoll_event e = {.events = EPOLLIN};
	static char buf[8192];
	size_t got = 0;
	ssize_t n;
	int fd = socket(AF_INET, SOCK_STREAM, 0), set = epoll_create1(0);

	if (argc != 3)
		return 2;
	sa.sin_port = htons((uint16_t)atoi(argv[1]));
	if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) || write(fd, "please", 6) != 6) {
		perror("poller");
		return 1;
	}
	fcntl(fd, F_SETFL, O_NONBLOCK);
	epoll_ctl(set, EPOLL_CTL_ADD, fd, &e);
	for (;;) {
		wait_readable(fd, set, argv[2]);
		while ((n = read(fd, buf, sizeof(buf))) > 0)
			got += (size_t)n;
		if (n == 0 || errno != EAGAIN)
			break;
	}
	printf("%zu\n", got);
	return 0;
}
