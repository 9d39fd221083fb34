/* SPDX-License-Identifier: MIT */
/*
 * Sending and receiving: every call, sizes from nothing to megabytes, every flag.
 * One file beyond the usual length: its cases share their helpers of bytes and pieces.
 */
#include "battery.h"

#include <sys/mman.h>

/* --- one call each ----------------------------------------------------------------------------- */

static void read_write_a(struct t *t)
{
	char buf[100];

	T(write(t->fd, "hello", 5));
	TD(buf, read(t->fd, buf, sizeof(buf)));
	T(write(t->fd, "one", 3));
	T(write(t->fd, "two", 3));
	t_sync(t);
	t_sync(t);
	TD(buf, read(t->fd, buf, 2));
	TD(buf, read(t->fd, buf, 2));
	TD(buf, read(t->fd, buf, 100));
}

static void read_write_b(struct t *t)
{
	char buf[100];

	TD(buf, read(t->fd, buf, sizeof(buf)));
	T(write(t->fd, "world", 5));
	t_sync(t);
	TD(buf, read(t->fd, buf, sizeof(buf)));
	T(write(t->fd, "abcdefg", 7));
	t_sync(t);
}

static void vector_a(struct t *t)
{
	char one[] = "one", two[] = "twotwo", in1[4], in2[1], in3[100];
	struct iovec out[] = {{one, 3}, {NULL, 0}, {two, 6}, {two, 0}};
	struct iovec in[] = {{in1, 4}, {NULL, 0}, {in2, 1}, {in3, 100}};

	T(writev(t->fd, out, 4));
	TD(in1, readv(t->fd, in, 1));
	T(readv(t->fd, in, 4));
	t_log(t, "%.4s|%.1s|%.3s", in1, in2, in3);
	T(writev(t->fd, out, 0));
	T(writev(t->fd, out, -1));
	T(readv(t->fd, in, -1));
	out[0].iov_len = 0;
	out[2].iov_len = 0;
	T(writev(t->fd, out, 4));
}

static void vector_b(struct t *t)
{
	char buf[100];

	TD(buf, recv(t->fd, buf, 9, MSG_WAITALL));
	T(write(t->fd, "0123456789xy", 12));
	t_poll(t, t->fd, POLLIN, 30);
}

static void many_pieces_a(struct t *t)
{
	static char bytes[1025];
	static struct iovec v[1025];

	t_fill(bytes, sizeof(bytes), 0, 1);
	for (int i = 0; i < 1025; i++)
		v[i] = (struct iovec){bytes + i, 1};
	T(writev(t->fd, v, 1025));
	T(writev(t->fd, v, 1024));
}

static void many_pieces_b(struct t *t)
{
	static char bytes[1024];
	static struct iovec v[1024];

	t_sync(t);
	for (int i = 0; i < 1024; i++)
		v[i] = (struct iovec){bytes + i, 1};
	TD(bytes, readv(t->fd, v, 1024));
}

static void many_pieces_sync_a(struct t *t)
{
	many_pieces_a(t);
	t_sync(t);
}

static void to_from_a(struct t *t)
{
	struct sockaddr_storage sa;
	socklen_t len = t_address(t, 9, &sa);
	char buf[100];

	/* The address is of no use on a connection, and refused on none. */
	T(sendto(t->fd, "with", 4, 0, (struct sockaddr *)&sa, len));
	T(sendto(t->fd, "none", 4, MSG_NOSIGNAL, NULL, 0));
	t_sync(t);
	t_sync(t);
	len = sizeof(sa);
	TD(buf, recvfrom(t->fd, buf, sizeof(buf), 0, (struct sockaddr *)&sa, &len));
	t_log(t, "address of %u bytes", len);
}

static void to_from_b(struct t *t)
{
	char buf[100];

	t_sync(t);
	TD(buf, recvfrom(t->fd, buf, sizeof(buf), 0, NULL, NULL));
	T(sendto(t->fd, "back", 4, 0, NULL, 0));
	t_sync(t);
}

static void msg_a(struct t *t)
{
	char one[] = "sendmsg ", two[] = "pieces";
	struct iovec v[] = {{one, 8}, {two, 6}};
	struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};

	T(sendmsg(t->fd, &m, 0));
	m.msg_iovlen = 0;
	T(sendmsg(t->fd, &m, 0));
	t_sync(t);
	t_sync(t);
	m.msg_iovlen = 1;
	T(sendmsg(t->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT));
	t_sync(t);
}

static void msg_b(struct t *t)
{
	struct sockaddr_storage sa;
	char one[4], two[100], control[64];
	struct iovec v[] = {{one, 4}, {two, 100}};
	struct msghdr m = {&sa, sizeof(sa), v, 2, control, sizeof(control), 0x55};

	t_sync(t);
	T(recvmsg(t->fd, &m, 0));
	t_log(t, "%.4s|%.10s flags %s name %u control %zu", one, two, t_msg_flags(m.msg_flags),
	      m.msg_namelen, (size_t)m.msg_controllen);
	t_sync(t);
	t_sync(t);
	m.msg_iovlen = 1;
	TD(one, recvmsg(t->fd, &m, 0));
	t_log(t, "flags %s", t_msg_flags(m.msg_flags));
	TD(one, recvmsg(t->fd, &m, MSG_DONTWAIT));
	T(recvmsg(t->fd, &m, MSG_DONTWAIT));
}

static void mmsg_a(struct t *t)
{
	char text[3][8] = {"first", "second", "third"};
	struct iovec v[3] = {{text[0], 5}, {text[1], 6}, {text[2], 5}};
	struct mmsghdr m[3];

	memset(m, 0, sizeof(m));
	for (int i = 0; i < 3; i++) {
		m[i].msg_hdr.msg_iov = &v[i];
		m[i].msg_hdr.msg_iovlen = 1;
	}
	T(sendmmsg(t->fd, m, 3, 0));
	t_log(t, "lengths %u %u %u", m[0].msg_len, m[1].msg_len, m[2].msg_len);
	T(sendmmsg(t->fd, m, 0, 0));
	t_sync(t);
}

static void mmsg_b(struct t *t)
{
	char text[4][5];
	struct iovec v[4];
	struct mmsghdr m[4];
	struct timespec limit = {1, 0};

	memset(m, 0, sizeof(m));
	memset(text, 0, sizeof(text));
	for (int i = 0; i < 4; i++) {
		v[i] = (struct iovec){text[i], 5};
		m[i].msg_hdr.msg_iov = &v[i];
		m[i].msg_hdr.msg_iovlen = 1;
	}
	t_sync(t);
	T(recvmmsg(t->fd, m, 2, 0, NULL));
	t_log(t, "%.5s %.5s %u %u", text[0], text[1], m[0].msg_len, m[1].msg_len);
	T(recvmmsg(t->fd, m, 4, MSG_WAITFORONE, &limit));
	t_log(t, "%.5s %.1s %u %u", text[0], text[1], m[0].msg_len, m[1].msg_len);
	T(recvmmsg(t->fd, m, 4, MSG_DONTWAIT, NULL));
}

static void zero_a(struct t *t)
{
	char buf[8];

	T(write(t->fd, "", 0));
	T(send(t->fd, "", 0, 0));
	T(send(t->fd, "", 0, MSG_DONTWAIT));
	t_sync(t);
	t_poll(t, t->fd, POLLIN | POLLOUT, 0);
	T(read(t->fd, buf, 0));
	T(recv(t->fd, buf, 0, MSG_DONTWAIT));
	t_sync(t);
	t_sync(t);
	T(read(t->fd, buf, 0));
	T(recv(t->fd, buf, 0, 0));
	T(recv(t->fd, buf, 0, MSG_PEEK));
	TD(buf, read(t->fd, buf, 8));
}

static void zero_b(struct t *t)
{
	t_sync(t);
	t_poll(t, t->fd, POLLIN, 20);
	t_sync(t);
	T(write(t->fd, "x", 1));
	t_sync(t);
}

static void bytewise_a(struct t *t)
{
	t_send_all(t, t->fd, 2000, 1, 3);
	t_recv_all(t, t->fd, 5000, 1);
}

static void bytewise_b(struct t *t)
{
	t_recv_all(t, t->fd, 2000, 1);
	t_send_all(t, t->fd, 5000, 5000, 4);
}

/* --- bulk -------------------------------------------------------------------------------------- */

#define MIB (1u << 20)

static void large_a(struct t *t)
{
	t_send_all(t, t->fd, MIB, MIB, 5);
	t_recv_all(t, t->fd, MIB, 100000);
	t_send_all(t, t->fd, MIB, 777, 6);
	t_recv_all(t, t->fd, MIB, 3000);
}

static void large_b(struct t *t)
{
	t_recv_all(t, t->fd, MIB, 4096);
	t_send_all(t, t->fd, MIB, 65536, 7);
	t_recv_all(t, t->fd, MIB, MIB);
	t_send_all(t, t->fd, MIB, MIB, 8);
}

/* Blocking writes and a full read are whole; only then is a short count no matter of timing. */
static void whole_a(struct t *t)
{
	char *buf = malloc(MIB);

	t_fill(buf, MIB, 0, 9);
	T(write(t->fd, buf, MIB));
	T(send(t->fd, buf, MIB, MSG_NOSIGNAL));
	free(buf);
}

static void whole_b(struct t *t)
{
	char *buf = malloc(MIB);

	TD(buf, recv(t->fd, buf, MIB, MSG_WAITALL));
	TD(buf, recv(t->fd, buf, MIB, MSG_WAITALL));
	free(buf);
}

#define PIECES 300

static void uneven(char *buf, size_t total, struct iovec *v)
{
	size_t at = 0;

	for (int i = 0; i < PIECES; i++) {
		size_t n = (size_t)i * (size_t)i % 7001;

		if (i == PIECES - 1 || n > total - at)
			n = total - at;
		v[i] = (struct iovec){buf + at, n};
		at += n;
	}
}

static void large_pieces_a(struct t *t)
{
	char *buf = malloc(MIB);
	struct iovec v[PIECES];

	t_fill(buf, MIB, 0, 10);
	uneven(buf, MIB, v);
	T(writev(t->fd, v, PIECES));
	free(buf);
	t_recv_all(t, t->fd, MIB, 64000);
}

static void large_pieces_b(struct t *t)
{
	char *buf = malloc(MIB);
	struct iovec v[PIECES];
	struct msghdr m = {.msg_iov = v, .msg_iovlen = PIECES};

	uneven(buf, MIB, v);
	TD(buf, recvmsg(t->fd, &m, MSG_WAITALL));
	m.msg_flags = 0;
	T(sendmsg(t->fd, &m, 0));
	free(buf);
}

static void *duplex_writer(void *arg)
{
	struct t *t = arg;

	t_send_all(t, t->fd, 8 * MIB, 30000, (unsigned int)t->role);
	return NULL;
}

static void duplex(struct t *t)
{
	pthread_t writer = t_second(duplex_writer, t);
	static __thread char buf[50000];
	uint32_t hash = t_hash("", 0);
	size_t got = 0;
	ssize_t r;

	while (got < 8 * MIB && (r = read(t->fd, buf, sizeof(buf))) > 0) {
		hash = t_hash_more(hash, buf, (size_t)r);
		got += (size_t)r;
	}
	t_join(writer);
	t_log(t, "received %zu #%08x", got, hash);
}

static void echo_sizes_a(struct t *t)
{
	static char out[300000], in[300000];

	for (size_t n = 1; n < sizeof(out); n = n * 5 / 3 + 1) {
		ssize_t w, r;

		t_fill(out, n, n, 11);
		w = write(t->fd, out, n);
		r = recv(t->fd, in, n, MSG_WAITALL);
		t_log(t, "%zu -> %zd %zd %s", n, w, r, memcmp(in, out, n) ? "WRONG" : "same");
	}
}

static void echo_sizes_b(struct t *t)
{
	static char buf[300000];

	for (size_t n = 1; n < sizeof(buf); n = n * 5 / 3 + 1) {
		if (recv(t->fd, buf, n, MSG_WAITALL) != (ssize_t)n)
			t_log(t, "short");
		if (write(t->fd, buf, n) != (ssize_t)n)
			t_log(t, "short");
	}
}

/* --- flags ------------------------------------------------------------------------------------- */

/* A look at more than there is waits for it, for the end, or for its time. */
static void peek_all_a(struct t *t)
{
	t_sync(t);
	T(write(t->fd, "abc", 3));
	t_settle();
	T(write(t->fd, "defgh", 5));
	t_sync(t);
	t_settle();
	T(write(t->fd, "last", 4));
	T(close(t->fd));
}

static void peek_all_b(struct t *t)
{
	struct timeval some = {0, 100000};
	char buf[100];

	t_sync(t);
	TD(buf, recv(t->fd, buf, 8, MSG_PEEK | MSG_WAITALL));
	TD(buf, recv(t->fd, buf, 100, MSG_PEEK | MSG_WAITALL | MSG_DONTWAIT));
	T(setsockopt(t->fd, SOL_SOCKET, SO_RCVTIMEO, &some, sizeof(some)));
	TD(buf, recv(t->fd, buf, 100, MSG_PEEK | MSG_WAITALL));
	some.tv_sec = 5;
	T(setsockopt(t->fd, SOL_SOCKET, SO_RCVTIMEO, &some, sizeof(some)));
	t_sync(t);
	TD(buf, recv(t->fd, buf, 100, MSG_PEEK | MSG_WAITALL));
	TD(buf, recv(t->fd, buf, 100, MSG_WAITALL));
}

static void many_at_the_end_a(struct t *t)
{
	T(write(t->fd, "abcdefg", 7));
	T(close(t->fd));
}

static void many_at_the_end_b(struct t *t)
{
	char bufs[4][5];
	struct iovec v[4];
	struct mmsghdr m[4];
	struct timespec bad = {-1, 0}, wrong = {0, 2000000000};

	memset(m, 0, sizeof(m));
	for (int i = 0; i < 4; i++) {
		v[i] = (struct iovec){bufs[i], 5};
		m[i].msg_hdr.msg_iov = &v[i];
		m[i].msg_hdr.msg_iovlen = 1;
	}
	T(recvmmsg(t->fd, m, 4, 0, &bad));
	T(recvmmsg(t->fd, m, 4, 0, &wrong));
	t_settle();
	for (int k = 0; k < 2; k++) {
		T(recvmmsg(t->fd, m, 4, 0, NULL));
		for (int i = 0; i < 4; i++)
			t_log(t, "message %d: %u", i, m[i].msg_len);
	}
}

static void peek_a(struct t *t)
{
	T(write(t->fd, "peekaboo", 8));
	t_sync(t);
	t_sync(t);
	T(write(t->fd, "more", 4));
	t_sync(t);
	T(write(t->fd, "last", 4));
	T(shutdown(t->fd, SHUT_WR));
	t_sync(t);
}

static void peek_b(struct t *t)
{
	char buf[100];
	int n = -1;

	t_sync(t);
	TD(buf, recv(t->fd, buf, 4, MSG_PEEK));
	TD(buf, recv(t->fd, buf, 100, MSG_PEEK));
	T(ioctl(t->fd, FIONREAD, &n));
	t_log(t, "FIONREAD %d", n);
	TD(buf, recv(t->fd, buf, 3, 0));
	TD(buf, recv(t->fd, buf, 100, MSG_PEEK | MSG_DONTWAIT));
	TD(buf, recv(t->fd, buf, 100, 0));
	T(recv(t->fd, buf, 100, MSG_PEEK | MSG_DONTWAIT));
	t_sync(t);
	TD(buf, recv(t->fd, buf, 100, MSG_PEEK)); /* may have to wait */
	t_sync(t);
	t_sync(t);
	TD(buf, recv(t->fd, buf, 8, MSG_PEEK | MSG_WAITALL));
	TD(buf, recv(t->fd, buf, 100, MSG_PEEK | MSG_WAITALL));
	TD(buf, recv(t->fd, buf, 100, 0));
	T(recv(t->fd, buf, 100, MSG_PEEK));
	T(recv(t->fd, buf, 100, MSG_PEEK | MSG_DONTWAIT));
}

static void waitall_a(struct t *t)
{
	T(write(t->fd, "1234", 4));
	t_settle();
	T(write(t->fd, "567890", 6));
	t_sync(t);
	T(write(t->fd, "short", 5));
	t_sync(t);
	t_sync(t);
	T(write(t->fd, "end", 3));
	t_settle();
	T(shutdown(t->fd, SHUT_WR));
}

static void waitall_b(struct t *t)
{
	char buf[100];

	TD(buf, recv(t->fd, buf, 10, MSG_WAITALL));
	t_sync(t);
	t_sync(t);
	TD(buf, recv(t->fd, buf, 10, MSG_WAITALL | MSG_DONTWAIT));
	T(recv(t->fd, buf, 10, MSG_WAITALL | MSG_DONTWAIT));
	t_sync(t);
	TD(buf, recv(t->fd, buf, 10, MSG_WAITALL));
	T(recv(t->fd, buf, 10, MSG_WAITALL));
}

static void dontwait_a(struct t *t)
{
	char buf[100];

	T(recv(t->fd, buf, 100, MSG_DONTWAIT));
	T(recv(t->fd, buf, 100, MSG_DONTWAIT | MSG_PEEK));
	t_sync(t);
	t_sync(t);
	TD(buf, recv(t->fd, buf, 100, MSG_DONTWAIT));
	T(recv(t->fd, buf, 100, MSG_DONTWAIT));
	T(fcntl(t->fd, F_GETFL) & O_NONBLOCK);
}

static void dontwait_b(struct t *t)
{
	t_sync(t);
	T(send(t->fd, "now", 3, MSG_DONTWAIT));
	t_sync(t);
}

static void nonblock_a(struct t *t)
{
	char buf[100];
	size_t n;

	t_nonblock(t->fd, true);
	T(read(t->fd, buf, 100));
	T(recv(t->fd, buf, 100, 0));
	T(recv(t->fd, buf, 100, MSG_WAITALL));
	n = t_fill_up(t, t->fd, 12);
	T(write(t->fd, "x", 1));
	t_poll(t, t->fd, POLLOUT, 0);
	t_tell(t, (int)n);
	t_sync(t);
	t_poll(t, t->fd, POLLOUT, 1000);
	T(write(t->fd, "after", 5));
	t_sync(t);
	t_nonblock(t->fd, false);
	TD(buf, read(t->fd, buf, 100));
}

static void nonblock_b(struct t *t)
{
	char buf[100];

	t_drain(t, t->fd, (size_t)t_hear(t), 12);
	t_sync(t);
	t_sync(t);
	TD(buf, read(t->fd, buf, 100));
	t_settle();
	T(write(t->fd, "blocking", 8));
}

static void trunc_a(struct t *t)
{
	T(write(t->fd, "0123456789", 10));
	t_sync(t);
}

static void trunc_b(struct t *t)
{
	char buf[16] = "unchanged";

	t_sync(t);
	T(recv(t->fd, buf, 4, MSG_TRUNC)); /* TCP throws the bytes away */
	t_log(t, "buffer: %s", buf);
	T(recv(t->fd, NULL, 2, MSG_TRUNC));
	TD(buf, recv(t->fd, buf, 16, 0));
}

static void more_a(struct t *t)
{
	T(send(t->fd, "to", 2, MSG_MORE));
	T(send(t->fd, "gether", 6, 0));
	t_sync(t);
	t_sync(t);
}

static void more_b(struct t *t)
{
	char buf[100];

	TD(buf, recv(t->fd, buf, 8, MSG_WAITALL));
	t_sync(t);
	T(recv(t->fd, buf, 100, MSG_DONTWAIT));
	t_sync(t);
}

static void urgent_a(struct t *t)
{
	T(send(t->fd, "abc", 3, 0));
	T(send(t->fd, "!", 1, MSG_OOB));
	t_sync(t);
	t_sync(t);
	T(send(t->fd, "def", 3, 0));
	T(send(t->fd, "?", 1, MSG_OOB));
	T(send(t->fd, "ghi", 3, 0));
	t_sync(t);
}

static void urgent_b(struct t *t)
{
	char buf[100];
	int mark = -1, on = 1;

	t_sync(t);
	t_settle();
	t_poll(t, t->fd, POLLIN | POLLPRI, 0);
	T(ioctl(t->fd, SIOCATMARK, &mark));
	t_log(t, "at mark %d", mark);
	TD(buf, recv(t->fd, buf, 1, MSG_OOB));
	T(recv(t->fd, buf, 1, MSG_OOB));
	TD(buf, recv(t->fd, buf, 100, 0));
	T(recv(t->fd, buf, 100, MSG_DONTWAIT));
	T(setsockopt(t->fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on)));
	t_sync(t);
	t_sync(t);
	t_settle();
	TD(buf, recv(t->fd, buf, 100, MSG_DONTWAIT));
	T(ioctl(t->fd, SIOCATMARK, &mark));
	t_log(t, "at mark %d", mark);
	TD(buf, recv(t->fd, buf, 100, MSG_DONTWAIT));
	T(recv(t->fd, buf, 1, MSG_OOB));
}

/* --- what is asked about the data -------------------------------------------------------------- */

static int fionread(struct t *t, int fd)
{
	int n = -1;

	T(ioctl(fd, FIONREAD, &n));
	return n;
}

static void fionread_a(struct t *t)
{
	char buf[100];

	t_log(t, "FIONREAD %d", fionread(t, t->fd));
	t_sync(t);
	t_sync(t);
	t_log(t, "FIONREAD %d", fionread(t, t->fd));
	TD(buf, read(t->fd, buf, 3));
	t_log(t, "FIONREAD %d", fionread(t, t->fd));
	t_sync(t);
	t_sync(t);
	t_log(t, "FIONREAD %d", fionread(t, t->fd));
	TD(buf, read(t->fd, buf, 100));
	t_log(t, "FIONREAD %d", fionread(t, t->fd));
	T(read(t->fd, buf, 100));
}

static void fionread_b(struct t *t)
{
	t_sync(t);
	T(write(t->fd, "12345678", 8));
	t_sync(t);
	t_sync(t);
	T(write(t->fd, "9", 1));
	T(shutdown(t->fd, SHUT_WR));
	t_settle();
	t_sync(t);
}

static void outq_a(struct t *t)
{
	int n = -1;
	size_t total;

	total = t_fill_up(t, t->fd, 13);
	T(ioctl(t->fd, SIOCOUTQ, &n));
	t_log(t, "SIOCOUTQ %s", n > 0 ? "some" : "none");
	t_tell(t, (int)total);
	t_sync(t);
	for (int i = 0; i < 100 && !ioctl(t->fd, SIOCOUTQ, &n) && n; i++)
		t_nap_ms(10);
	t_log(t, "SIOCOUTQ %d", n);
}

static void outq_b(struct t *t)
{
	t_drain(t, t->fd, (size_t)t_hear(t), 13);
	t_sync(t);
}

/* --- bad arguments ----------------------------------------------------------------------------- */

/*
 * Pages of every kind in a row. Counts are asserted on only where the kernel has one unit: what one
 * small call sent is copied as a whole or not at all, to and from a program's memory.
 */
enum { GOOD, NONE, READ_ONLY, HOLE, GOOD_AGAIN, PAGES };

static char *fault_pages(size_t page)
{
	char *p = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);

	memset(p, 'p', PAGES * page);
	mprotect(p + NONE * page, page, PROT_NONE);
	mprotect(p + READ_ONLY * page, page, PROT_READ);
	munmap(p + HOLE * page, page);
	return p;
}

static void fault_a(struct t *t)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *p = fault_pages(page), *none = p + NONE * page, *hole = p + HOLE * page;
	char good[] = "good";
	struct iovec v[2] = {{(char *)8, 8}, {good, 4}}, second[2] = {{good, 4}, {none, 4}};
	struct msghdr m = {.msg_iov = v, .msg_iovlen = 1};
	struct mmsghdr mm[2] = {{.msg_hdr = {.msg_iov = second, .msg_iovlen = 1}},
				{.msg_hdr = {.msg_iov = v, .msg_iovlen = 1}}};

	T(write(t->fd, (void *)8, 5));
	T(write(t->fd, none, 5));
	T(write(t->fd, hole, 5));
	T(write(t->fd, none - 3, 5));
	T(write(t->fd, (void *)-4096, 5));
	T(write(t->fd, (void *)8, 0));
	T(send(t->fd, none, 1, 0));
	T(send(t->fd, none - 500, 1000, MSG_NOSIGNAL | MSG_DONTWAIT));
	T(sendto(t->fd, hole - 1, 2, 0, NULL, 0));
	T(writev(t->fd, v, 1));
	T(writev(t->fd, v, 2));
	T(writev(t->fd, second, 2));
	T(writev(t->fd, (struct iovec *)8, 1));
	T(writev(t->fd, (struct iovec *)none, 1));
	T(writev(t->fd, (struct iovec *)(none - 8), 2));
	T(sendmsg(t->fd, (struct msghdr *)8, 0));
	T(sendmsg(t->fd, (struct msghdr *)none, 0));
	T(sendmsg(t->fd, &m, 0));
	m.msg_iov = (struct iovec *)hole;
	T(sendmsg(t->fd, &m, 0));
	T(sendmmsg(t->fd, (struct mmsghdr *)none, 1, 0));
	T(sendmmsg(t->fd, mm, 2, 0)); /* "good" goes */
	t_sync(t);
	T(write(t->fd, p + READ_ONLY * page, 4));
	t_sync(t);
	munmap(p, PAGES * page);
}

static void fault_b(struct t *t)
{
	char buf[100];

	t_sync(t);
	TD(buf, recv(t->fd, buf, 4, MSG_WAITALL));
	t_sync(t);
	TD(buf, recv(t->fd, buf, 4, MSG_WAITALL));
}

/* Nothing of a message is lost that could not be received. */
static void fault_recv_a(struct t *t)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *p = fault_pages(page), *none = p + NONE * page, *hole = p + HOLE * page;
	char *fixed = p + READ_ONLY * page, good[4], buf[100];
	struct iovec v[2] = {{none, 8}, {good, 4}}, second[2] = {{good, 4}, {none, 4}};
	struct msghdr m = {.msg_iov = second, .msg_iovlen = 2};
	struct mmsghdr mm = {.msg_hdr = {.msg_iov = second, .msg_iovlen = 2}};

	/* While there is nothing, nobody looks where it would go. */
	T(recv(t->fd, none, 4, MSG_DONTWAIT));
	T(recv(t->fd, (void *)8, 4, MSG_DONTWAIT));
	T(recv(t->fd, (void *)-4096, 4, MSG_DONTWAIT));
	t_sync(t);
	t_sync(t);
	T(read(t->fd, (void *)8, 8));
	T(read(t->fd, none, 8));
	T(read(t->fd, hole, 8));
	T(read(t->fd, fixed, 8));
	T(read(t->fd, none - 4, 8));
	T(read(t->fd, (void *)-4096, 8));
	T(recv(t->fd, none, 1, 0));
	T(recv(t->fd, none, 8, MSG_PEEK));
	T(recv(t->fd, none, 8, MSG_DONTWAIT | MSG_WAITALL));
	T(recvfrom(t->fd, fixed - 1, 8, 0, NULL, NULL));
	T(readv(t->fd, v, 1));
	T(readv(t->fd, v, 2));
	T(readv(t->fd, second, 2));
	T(readv(t->fd, (struct iovec *)8, 1));
	T(readv(t->fd, (struct iovec *)none, 1));
	T(recvmsg(t->fd, (struct msghdr *)8, 0));
	T(recvmsg(t->fd, (struct msghdr *)none, 0));
	T(recvmsg(t->fd, &m, 0));
	m.msg_iov = (struct iovec *)hole;
	T(recvmsg(t->fd, &m, 0));
	T(recvmmsg(t->fd, &mm, 1, 0, NULL));
	T(recvmmsg(t->fd, (struct mmsghdr *)none, 1, 0, NULL));
	/* The room is there for what there is: all of it comes. */
	TD(none - 9, read(t->fd, none - 9, 100));
	t_sync(t);
	t_sync(t);
	TD(buf, recv(t->fd, buf, 3, 0));
	T(recv(t->fd, none, 3, MSG_TRUNC));
	TD(buf, recv(t->fd, buf, 100, 0));
	munmap(p, PAGES * page);
}

static void fault_recv_b(struct t *t)
{
	t_sync(t);
	T(write(t->fd, "012345678", 9));
	t_sync(t);
	t_sync(t);
	T(write(t->fd, "abcdefghi", 9));
	t_sync(t);
}

/* Memory that was in use, and good, and is no more; and is again. */
static void fault_change_a(struct t *t)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *p = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *q;
	int file = fileno(tmpfile());

	for (int i = 0; i < 3; i++) {
		T(write(t->fd, p, 4));
		TD(p, read(t->fd, p, 4));
	}
	t_sync(t);
	t_sync(t);
	T(mprotect(p, page, PROT_READ));
	T(read(t->fd, p, 4));
	T(write(t->fd, p, 4));
	T(mprotect(p, page, PROT_NONE));
	T(read(t->fd, p, 4));
	T(write(t->fd, p, 4));
	T(mprotect(p, page, PROT_READ | PROT_WRITE));
	TD(p, read(t->fd, p, 4));
	T(munmap(p, page));
	T(read(t->fd, p, 4));
	T(write(t->fd, p, 4));
	T(mmap(p, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	  p);
	TD(p, read(t->fd, p, 4));
	T(mmap(p, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p);
	T(read(t->fd, p, 4));
	/* Moved away. */
	q = p + page;
	memset(q, 'q', page);
	T(write(t->fd, q, 4));
	char *moved = mremap(q, page, page, MREMAP_MAYMOVE | MREMAP_FIXED, p + 3 * page);

	t_log(t, "moved: %d", moved == p + 3 * page);
	T(write(t->fd, q, 4));
	T(read(t->fd, q, 4));
	TD(moved, read(t->fd, moved, 4));
	/* Behind the end of a file. */
	T(ftruncate(file, (off_t)page));
	q = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	T(write(t->fd, q, 4));
	T(write(t->fd, q + page, 4));
	T(write(t->fd, q + page - 2, 4));
	T(read(t->fd, q + page, 4));
	TD(q, read(t->fd, q, 4));
	t_sync(t);
	munmap(q, 2 * page);
	munmap(p, 4 * page);
}

static void fault_change_b(struct t *t)
{
	char buf[100];

	for (int i = 0; i < 3; i++) {
		TD(buf, recv(t->fd, buf, 4, MSG_WAITALL));
		T(write(t->fd, "back", 4));
	}
	t_sync(t);
	T(write(t->fd, "0123456789abcdef", 16));
	t_sync(t);
	t_sync(t);
	for (int i = 0; i < 3; i++)
		TD(buf, recv(t->fd, buf, 4, MSG_DONTWAIT));
	T(recv(t->fd, buf, 4, MSG_DONTWAIT));
}

/* Arrays that the calls read or fill. */
static void fault_ready_a(struct t *t)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *p = fault_pages(page), *none = p + NONE * page, *fixed = p + READ_ONLY * page;
	struct epoll_event ev = {.events = EPOLLIN, .data = {.u32 = 7}};
	struct epoll_event *volatile no_place = NULL,
				     *last = (struct epoll_event *)(none - sizeof(ev));
	struct timeval tv = {0, 0};
	int other = t_open(t), ep = epoll_create1(0), n = 1;
	fd_set set;
	socklen_t len = sizeof(n);
	uint32_t both;

	T(epoll_ctl(ep, EPOLL_CTL_ADD, t->fd, (struct epoll_event *)none));
	T(epoll_ctl(ep, EPOLL_CTL_ADD, t->fd, (struct epoll_event *)8));
	T(epoll_ctl(ep, EPOLL_CTL_ADD, t->fd, &ev));
	T(epoll_wait(ep, (struct epoll_event *)none, 5, 0));
	T(epoll_wait(ep, no_place, 5, 0));
	t_sync(t);
	t_sync(t);
	T(epoll_wait(ep, (struct epoll_event *)none, 5, 1000));
	T(epoll_wait(ep, (struct epoll_event *)fixed, 5, 1000));
	T(epoll_wait(ep, no_place, 5, 1000));
	T(epoll_pwait(ep, (struct epoll_event *)(none - 4), 5, 1000, NULL));
	T(epoll_wait(ep, last, 5, 1000));
	memcpy(&ev, last, sizeof(ev));
	t_log(t, "event %s of %u", t_events(ev.events), ev.data.u32);
	T(epoll_ctl(ep, EPOLL_CTL_MOD, t->fd, (struct epoll_event *)none));
	/* One of two events has a place, the other comes next time. */
	ev.data.u32 = 8;
	T(epoll_ctl(ep, EPOLL_CTL_ADD, other, &ev));
	ev.events = EPOLLIN | EPOLLET;
	ev.data.u32 = 7;
	T(epoll_ctl(ep, EPOLL_CTL_MOD, t->fd, &ev));
	T(epoll_wait(ep, last, 5, 1000));
	memcpy(&ev, last, sizeof(ev));
	both = ev.data.u32;
	T(epoll_wait(ep, last, 5, 1000));
	memcpy(&ev, last, sizeof(ev));
	t_log(t, "both: %u", both + ev.data.u32);
	T(poll((struct pollfd *)none, 1, 0));
	T(poll((struct pollfd *)8, 1, 0));
	T(poll((struct pollfd *)(none - 4), 1, 0));
	memcpy(none - sizeof(struct pollfd), &(struct pollfd){t->fd, POLLIN, 0},
	       sizeof(struct pollfd));
	T(poll((struct pollfd *)none - 1, 2, 0));
	T(poll((struct pollfd *)none - 1, 1, 1000));
	FD_ZERO(&set);
	FD_SET(t->fd, &set);
	T(select(t->fd + 1, (fd_set *)none, NULL, NULL, &tv));
	T(select(t->fd + 1, &set, NULL, (fd_set *)fixed, &tv));
	T(getsockopt(t->fd, SOL_SOCKET, SO_ERROR, none, &len));
	T(getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &n, (socklen_t *)none));
	T(setsockopt(t->fd, IPPROTO_TCP, TCP_CORK, none, sizeof(int)));
	T(ioctl(t->fd, FIONREAD, none));
	T(ioctl(t->fd, FIONREAD, fixed));
	T(ioctl(t->fd, SIOCOUTQ, none));
	T(ioctl(t->fd, FIONBIO, none));
	TD(p, read(t->fd, p, 4));
	T(close(ep));
	T(close(other));
	munmap(p, PAGES * page);
}

static void fault_ready_b(struct t *t)
{
	int other = t_open(t);

	t_sync(t);
	T(write(t->fd, "news", 4));
	T(write(other, "more", 4));
	t_sync(t);
	T(close(other));
}

static void bad_args(struct t *t)
{
	char buf[8];
	struct iovec v = {buf, (size_t)-1};
	off_t at = 0;

	T(read(-1, buf, 8));
	T(write(-1, buf, 8));
	T(recv(999999, buf, 8, 0));
	T(send(999999, buf, 8, MSG_NOSIGNAL));
	T(writev(t->fd, &v, 1));
	T(lseek(t->fd, 0, SEEK_CUR));
	T(pread(t->fd, buf, 8, 0));
	T(pwrite(t->fd, buf, 8, 0));
	T(ftruncate(t->fd, 0));
	T(fsync(t->fd));
	T(recv(t->fd, buf, 8, MSG_ERRQUEUE | MSG_DONTWAIT));
	T(recv(t->fd, buf, 8, MSG_OOB | MSG_DONTWAIT));
	T(close(t->peer));
	T(close(t->peer));
	T(read(t->peer, buf, 8));
	T(write(t->peer, buf, 8));
	T(shutdown(t->peer, SHUT_RD));
	T(splice(t->fd, &at, t->fd, NULL, 1, 0));
}

static void one_thread(struct t *t)
{
	char buf[100];

	T(write(t->fd, "ping", 4));
	TD(buf, read(t->peer, buf, 100));
	T(write(t->peer, "pong", 4));
	TD(buf, read(t->fd, buf, 100));
	T(send(t->fd, "a", 1, 0));
	T(send(t->fd, "b", 1, 0));
	TD(buf, recv(t->peer, buf, 2, MSG_WAITALL));
	t_poll(t, t->peer, POLLIN | POLLOUT, 0);
	T(close(t->fd));
	t_poll(t, t->peer, POLLIN | POLLOUT | POLLRDHUP, 0);
	T(read(t->peer, buf, 100));
	T(close(t->peer));
}

const struct t_case t_io_cases[] = {
	{"io.read_write", read_write_a, read_write_b, T_FAMILIES, NULL},
	{"io.readv_writev", vector_a, vector_b, 0, NULL},
	{"io.many_pieces", many_pieces_sync_a, many_pieces_b, 0, NULL},
	{"io.sendto_recvfrom", to_from_a, to_from_b, T_FAMILIES, NULL},
	{"io.sendmsg_recvmsg", msg_a, msg_b, T_FAMILIES, NULL},
	{"io.sendmmsg_recvmmsg", mmsg_a, mmsg_b, 0, NULL},
	{"io.zero_length", zero_a, zero_b, 0, NULL},
	{"io.bytewise", bytewise_a, bytewise_b, 0, NULL},
	{"io.large", large_a, large_b, T_FAMILIES, NULL},
	{"io.whole", whole_a, whole_b, 0, NULL},
	{"io.large_pieces", large_pieces_a, large_pieces_b, 0, NULL},
	{"io.duplex", duplex, duplex, T_FAMILIES, NULL},
	{"io.echo_sizes", echo_sizes_a, echo_sizes_b, 0, NULL},
	{"io.peek", peek_a, peek_b, 0, NULL},
	{"io.waitall", waitall_a, waitall_b, 0, NULL},
	{"io.dontwait", dontwait_a, dontwait_b, 0, NULL},
	{"io.nonblock", nonblock_a, nonblock_b, 0, NULL},
	{"io.trunc", trunc_a, trunc_b, 0, NULL},
	{"io.more", more_a, more_b, 0, NULL},
	{"io.urgent", urgent_a, urgent_b, 0, NULL},
	{"io.fionread", fionread_a, fionread_b, 0, NULL},
	{"io.siocoutq", outq_a, outq_b, 0, NULL},
	{"io.fault", fault_a, fault_b, 0, NULL},
	{"io.fault_recv", fault_recv_a, fault_recv_b, 0, NULL},
	{"io.fault_change", fault_change_a, fault_change_b, 0, NULL},
	{"io.fault_ready", fault_ready_a, fault_ready_b, 0, NULL},
	{"io.bad_args", bad_args, NULL, T_SOLO, NULL},
	{"io.peek_all", peek_all_a, peek_all_b, 0, NULL},
	{"io.many_at_the_end", many_at_the_end_a, many_at_the_end_b, 0, NULL},
	{"io.one_thread", one_thread, NULL, T_SOLO | T_FAMILIES, NULL},
	{NULL, NULL, NULL, 0, NULL},
};
