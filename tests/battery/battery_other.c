/* SPDX-License-Identifier: MIT */
/* What is no TCP connection is left alone. */
#include "battery.h"

#include <sys/file.h>
#include <sys/mman.h>

static void udp(struct t *t)
{
	struct sockaddr_storage sa, from;
	socklen_t len = t_address(t, 0, &sa), from_len = sizeof(from);
	int a = socket(t->family, SOCK_DGRAM, 0), b = socket(t->family, SOCK_DGRAM, 0);
	char buf[100];

	T(bind(a, (struct sockaddr *)&sa, len));
	len = t_address(t, t_port(a), &sa);
	T(sendto(b, "datagram one", 12, 0, (struct sockaddr *)&sa, len));
	T(sendto(b, "", 0, 0, (struct sockaddr *)&sa, len));
	T(connect(b, (struct sockaddr *)&sa, len));
	T(send(b, "datagram two", 12, 0));
	t_poll(t, a, POLLIN, 1000);
	T(recv(a, buf, 4, MSG_TRUNC | MSG_PEEK));
	TD(buf, recvfrom(a, buf, 100, 0, (struct sockaddr *)&from, &from_len));
	t_log(t, "address of %u bytes", from_len);
	T(recv(a, buf, 100, 0));
	TD(buf, recv(a, buf, 4, 0));
	T(recv(a, buf, 100, MSG_DONTWAIT));
	T(listen(a, 1));
}

static void unix_stream(struct t *t)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int listener = socket(AF_UNIX, SOCK_STREAM, 0), a = socket(AF_UNIX, SOCK_STREAM, 0), b;
	char buf[100];

	T(bind(listener, (struct sockaddr *)&sa, sizeof(sa_family_t))); /* a name of its own */
	T(listen(listener, 5));
	getsockname(listener, (struct sockaddr *)&sa, &(socklen_t){sizeof(sa)});
	T(connect(a, (struct sockaddr *)&sa, sizeof(sa_family_t) + 6));
	b = accept(listener, NULL, NULL);
	for (int i = 0; i < 20; i++)
		if (write(a, "unix", 4) != 4 || read(b, buf, 100) != 4 ||
		    write(b, "xinu", 4) != 4 || read(a, buf, 100) != 4)
			t_log(t, "failed");
	T(write(a, "bye", 3));
	T(close(a));
	TD(buf, read(b, buf, 100));
	T(read(b, buf, 100));
	T(send(b, "x", 1, MSG_NOSIGNAL));
}

static void pairs(struct t *t)
{
	static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
	char buf[100];
	int sv[2], p[2];

	for (int i = 0; i < 3; i++) {
		T(socketpair(AF_UNIX, types[i], 0, sv));
		T(write(sv[0], "one", 3));
		T(write(sv[0], "two", 3));
		TD(buf, read(sv[1], buf, 100));
		TD(buf, recv(sv[1], buf, 100, MSG_DONTWAIT));
		T(shutdown(sv[0], SHUT_WR));
		T(recv(sv[1], buf, 100, MSG_DONTWAIT));
		close(sv[0]);
		close(sv[1]);
	}
	T(socketpair(AF_INET, SOCK_STREAM, 0, sv));
	T(pipe2(p, O_NONBLOCK));
	T(read(p[0], buf, 100));
	T(write(p[1], "pipe", 4));
	TD(buf, read(p[0], buf, 100));
	T(close(p[1]));
	T(read(p[0], buf, 100));
	T(recv(p[0], buf, 100, 0));
	T(send(p[0], buf, 1, 0));
}

static void files(struct t *t)
{
	char name[] = "/tmp/battery.XXXXXX", buf[100];
	int fd = mkstemp(name), memfd = memfd_create("battery", 0);
	uint64_t n = 7;
	int event = eventfd(3, EFD_SEMAPHORE | EFD_NONBLOCK);

	unlink(name);
	T(write(fd, "0123456789", 10));
	T(lseek(fd, 2, SEEK_SET));
	TD(buf, read(fd, buf, 3));
	T(readv(fd, &(struct iovec){buf, 2}, 1));
	T(ftruncate(fd, 4));
	T(read(fd, buf, 100));
	T(flock(fd, LOCK_EX));
	T(getsockopt(fd, SOL_SOCKET, SO_TYPE, &n, &(socklen_t){4}));
	T(recv(fd, buf, 1, 0));
	T(write(memfd, "mem", 3));
	T(pread(memfd, buf, 100, 0));
	n = 0;
	T(read(event, &n, 8));
	t_log(t, "eventfd %lu", (unsigned long)n);
	T(epoll_create1(0) >= 0);
}

const struct t_case t_other_cases[] = {
	{"other.udp", udp, NULL, T_SOLO | T_RAW | T_COLD | T_FAMILIES, NULL},
	{"other.unix_stream", unix_stream, NULL, T_SOLO | T_RAW | T_COLD, NULL},
	{"other.pairs", pairs, NULL, T_SOLO | T_RAW | T_COLD, NULL},
	{"other.files", files, NULL, T_SOLO | T_RAW | T_COLD, NULL},
	{NULL, NULL, NULL, 0, NULL},
};
