/* SPDX-License-Identifier: MIT */
/* What all cases use: the transcript, the meeting of the roles, connections, bulk data. */
#include "battery.h"

#include <stdarg.h>

/* --- the transcript ---------------------------------------------------------------------------- */

void t_log(struct t *t, const char *format, ...)
{
	char line[1024];
	va_list args;
	int n, err = errno;

	line[0] = t->role;
	line[1] = ':';
	line[2] = ' ';
	va_start(args, format);
	n = vsnprintf(line + 3, sizeof(line) - 4, format, args);
	va_end(args);
	n = n > (int)sizeof(line) - 5 ? (int)sizeof(line) - 5 : n;
	line[n + 3] = '\n';
	/* One call: lines of several roles never mix, and none is lost when a role is killed. */
	if (write(STDOUT_FILENO, line, (size_t)n + 4) < 0)
		abort();
	errno = err;
}

const char *t_errno(int err)
{
	const char *name = strerrorname_np(err);

	return name ? name : "?";
}

long t_ret(struct t *t, const char *what, long ret)
{
	if (ret == -1)
		t_log(t, "%s -> -1 %s", what, t_errno(errno));
	else
		t_log(t, "%s -> %ld", what, ret);
	return ret;
}

static bool printable(const unsigned char *s, long n)
{
	for (long i = 0; i < n; i++)
		if (s[i] < ' ' || s[i] > '~')
			return false;
	return true;
}

long t_data(struct t *t, const char *what, const void *buf, long ret)
{
	if (ret <= 0)
		return t_ret(t, what, ret);
	if (ret <= 60 && printable(buf, ret))
		t_log(t, "%s -> %ld \"%.*s\"", what, ret, (int)ret, (const char *)buf);
	else
		t_log(t, "%s -> %ld #%08x", what, ret, t_hash(buf, (size_t)ret));
	return ret;
}

uint32_t t_hash_more(uint32_t hash, const void *buf, size_t n)
{
	const unsigned char *p = buf;

	for (size_t i = 0; i < n; i++)
		hash = (hash ^ p[i]) * 16777619u;
	return hash;
}

uint32_t t_hash(const void *buf, size_t n)
{
	return t_hash_more(2166136261u, buf, n);
}

static unsigned char pattern(uint64_t pos, unsigned int seed)
{
	return (unsigned char)(pos * 131 + (pos >> 8) * 17 + (pos >> 16) * 7 + seed);
}

void t_fill(void *buf, size_t n, uint64_t pos, unsigned int seed)
{
	unsigned char *p = buf;

	for (size_t i = 0; i < n; i++)
		p[i] = pattern(pos + i, seed);
}

bool t_same(const void *buf, size_t n, uint64_t pos, unsigned int seed)
{
	const unsigned char *p = buf;

	for (size_t i = 0; i < n; i++)
		if (p[i] != pattern(pos + i, seed))
			return false;
	return true;
}

/* --- the meeting of the roles ------------------------------------------------------------------ */

static bool move(int fd, void *buf, size_t n, bool out)
{
	char *p = buf;

	while (n) {
		ssize_t r = out ? send(fd, p, n, MSG_NOSIGNAL) : recv(fd, p, n, 0);

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return false;
		p += r;
		n -= (size_t)r;
	}
	return true;
}

void t_sync(struct t *t)
{
	char c = 's';
	int err = errno;

	if (move(t->sync_fd, &c, 1, true))
		move(t->sync_fd, &c, 1, false);
	errno = err;
}

void t_tell(struct t *t, int value)
{
	move(t->sync_fd, &value, sizeof(value), true);
}

int t_hear(struct t *t)
{
	int value = -1;

	move(t->sync_fd, &value, sizeof(value), false);
	return value;
}

void t_nap_ms(int ms)
{
	struct timespec left = {ms / 1000, ms % 1000 * 1000000L};

	while (nanosleep(&left, &left) && errno == EINTR)
		;
}

void t_settle(void)
{
	int err = errno;

	t_nap_ms(25);
	errno = err;
}

/* --- connections ------------------------------------------------------------------------------- */

socklen_t t_address(struct t *t, int port, struct sockaddr_storage *ret_address)
{
	struct sockaddr_in *in4 = (struct sockaddr_in *)ret_address;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ret_address;

	memset(ret_address, 0, sizeof(*ret_address));
	if (t->family == AF_INET) {
		in4->sin_family = AF_INET;
		in4->sin_port = htons((uint16_t)port);
		in4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		return sizeof(*in4);
	}
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons((uint16_t)port);
	inet_pton(AF_INET6, t->mapped ? "::ffff:127.0.0.1" : "::1", &in6->sin6_addr);
	return sizeof(*in6);
}

static void trouble(struct t *t, const char *what)
{
	t_log(t, "%s: %s", what, t_errno(errno));
	exit(3);
}

int t_socket(struct t *t)
{
	int fd = socket(t->family, SOCK_STREAM, 0);

	if (fd < 0)
		trouble(t, "socket");
	return fd;
}

int t_port(int fd)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);

	memset(&sa, 0, sizeof(sa));
	getsockname(fd, (struct sockaddr *)&sa, &len);
	return ntohs(
		((struct sockaddr_in *)&sa)->sin_port); /* at the same place in both families */
}

int t_listen(struct t *t, int *ret_port)
{
	struct sockaddr_storage sa;
	socklen_t len = t_address(t, 0, &sa);
	int fd = t_socket(t);

	if (bind(fd, (struct sockaddr *)&sa, len) || listen(fd, 128))
		trouble(t, "listen");
	*ret_port = t_port(fd);
	return fd;
}

int t_connect(struct t *t, int port)
{
	struct sockaddr_storage sa;
	socklen_t len = t_address(t, port, &sa);
	int fd = t_socket(t);

	if (connect(fd, (struct sockaddr *)&sa, len))
		trouble(t, "connect");
	return fd;
}

#define WARM_ROUNDS 20

static void warm_write(struct t *t, int fd, int i)
{
	char msg[16];

	memset(msg, 'A' + i, sizeof(msg));
	if (write(fd, msg, sizeof(msg)) != sizeof(msg))
		trouble(t, "warm-up: write");
}

static void warm_read(struct t *t, int fd, int i)
{
	char msg[16];

	for (size_t got = 0; got < sizeof(msg);) {
		ssize_t r = read(fd, msg + got, sizeof(msg) - got);

		if (r <= 0)
			trouble(t, "warm-up: read");
		got += (size_t)r;
	}
	if (msg[0] != 'A' + i || msg[15] != 'A' + i)
		trouble(t, "warm-up: other data");
}

/* The pause lets a manager of connections, if there is one, do its part. */
void t_warm(struct t *t, int fd)
{
	for (int i = 0; i < WARM_ROUNDS; i++) {
		if (t->role == 'a') {
			warm_write(t, fd, i);
			warm_read(t, fd, i);
			t_nap_ms(1);
		} else {
			warm_read(t, fd, i);
			warm_write(t, fd, i);
		}
	}
}

/* Or the kernel may hold a small message back until an earlier one is acknowledged. */
static void no_delay(int fd)
{
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
}

int t_open(struct t *t)
{
	bool accepts = (t->role == 'a') != t->swap;
	int fd, listener, port;

	if (accepts) {
		listener = t_listen(t, &port);
		t_tell(t, port);
		fd = accept(listener, NULL, NULL);
		if (fd < 0)
			trouble(t, "accept");
		close(listener);
	} else {
		fd = t_connect(t, t_hear(t));
	}
	no_delay(fd);
	if (t->warm)
		t_warm(t, fd);
	t_sync(t);
	return fd;
}

void t_open_many(struct t *t, int *ret_fds, int n)
{
	bool accepts = (t->role == 'a') != t->swap;
	int port = 0, listener = -1;

	if (accepts) {
		listener = t_listen(t, &port);
		t_tell(t, port);
	} else {
		port = t_hear(t);
	}
	for (int i = 0; i < n; i++) {
		ret_fds[i] = accepts ? accept(listener, NULL, NULL) : t_connect(t, port);
		if (ret_fds[i] < 0)
			trouble(t, "accept");
		no_delay(ret_fds[i]);
		/* One after the other, or the listener's queue overflows. */
		t_sync(t);
	}
	if (accepts)
		close(listener);
	for (int round = 0; t->warm && round < WARM_ROUNDS; round++) {
		for (int i = 0; i < n; i++)
			if (t->role == 'a')
				warm_write(t, ret_fds[i], round);
			else
				warm_read(t, ret_fds[i], round);
		for (int i = 0; i < n; i++)
			if (t->role == 'a')
				warm_read(t, ret_fds[i], round);
			else
				warm_write(t, ret_fds[i], round);
		t_sync(t);
	}
	t_sync(t);
}

void t_open_pair(struct t *t, int *ret_a, int *ret_b)
{
	int port, listener = t_listen(t, &port);

	*ret_b = t_connect(t, port);
	*ret_a = accept(listener, NULL, NULL);
	if (*ret_a < 0)
		trouble(t, "accept");
	close(listener);
	no_delay(*ret_a);
	no_delay(*ret_b);
	for (int i = 0; t->warm && i < WARM_ROUNDS; i++) {
		warm_write(t, *ret_a, i);
		warm_read(t, *ret_b, i);
		warm_write(t, *ret_b, i);
		warm_read(t, *ret_a, i);
		t_nap_ms(1);
	}
}

/* --- bulk data --------------------------------------------------------------------------------- */

void t_send_all(struct t *t, int fd, size_t total, size_t chunk, unsigned int seed)
{
	char *buf = malloc(chunk);
	size_t sent = 0;
	ssize_t r = 0;

	while (sent < total) {
		size_t n = total - sent < chunk ? total - sent : chunk;

		t_fill(buf, n, sent, seed);
		r = write(fd, buf, n);
		if (r <= 0)
			break;
		sent += (size_t)r;
	}
	free(buf);
	t_log(t, "send_all(%zu by %zu) -> %zu %s", total, chunk, sent, r < 0 ? t_errno(errno) : "");
}

void t_recv_all(struct t *t, int fd, size_t total, size_t chunk)
{
	char *buf = malloc(chunk);
	uint32_t hash = t_hash("", 0);
	size_t got = 0;
	ssize_t r = 1;

	while (got < total) {
		r = read(fd, buf, total - got < chunk ? total - got : chunk);
		if (r <= 0)
			break;
		hash = t_hash_more(hash, buf, (size_t)r);
		got += (size_t)r;
	}
	free(buf);
	t_log(t, "recv_all(%zu by %zu) -> %zu #%08x %s", total, chunk, got, hash,
	      r < 0    ? t_errno(errno)
	      : r == 0 ? "end"
		       : "");
}

void t_recv_pattern(struct t *t, int fd, unsigned int seed)
{
	static __thread char buf[65536];
	bool same = true;
	uint64_t pos = 0;
	ssize_t r;

	while ((r = read(fd, buf, sizeof(buf))) > 0) {
		same = same && t_same(buf, (size_t)r, pos, seed);
		pos += (uint64_t)r;
	}
	t_log(t, "recv_pattern -> %s, %s, %s", pos ? "some" : "nothing", same ? "right" : "WRONG",
	      r < 0 ? t_errno(errno) : "end");
}

size_t t_fill_up(struct t *t, int fd, unsigned int seed)
{
	static __thread char buf[16384];
	size_t total = 0;
	int idle = 0, err = 0;

	/* The kernel lets its buffers grow: full is what stays full. */
	while (idle < 6) {
		ssize_t r;

		t_fill(buf, sizeof(buf), total, seed);
		r = send(fd, buf, sizeof(buf), MSG_DONTWAIT | MSG_NOSIGNAL);
		if (r > 0) {
			total += (size_t)r;
			idle = 0;
			continue;
		}
		err = errno;
		if (err != EAGAIN)
			break;
		idle++;
		t_nap_ms(5);
	}
	t_log(t, "fill_up -> %s, then %s", total ? "some" : "nothing", t_errno(err));
	return total;
}

void t_drain(struct t *t, int fd, size_t total, unsigned int seed)
{
	static __thread char buf[65536];
	bool same = true;
	size_t got = 0;
	ssize_t r = 1;

	while (got < total) {
		r = recv(fd, buf, total - got < sizeof(buf) ? total - got : sizeof(buf), 0);
		if (r <= 0)
			break;
		same = same && t_same(buf, (size_t)r, got, seed);
		got += (size_t)r;
	}
	t_log(t, "drain -> %s, %s, %s", got == total ? "all" : "NOT ALL", same ? "right" : "WRONG",
	      r < 0    ? t_errno(errno)
	      : r == 0 ? "end"
		       : "open");
}
