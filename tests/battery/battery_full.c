/* SPDX-License-Identifier: MIT */
/* A full connection and SO_SNDTIMEO, by every call that sends; select with as many as it takes. */
#include "battery.h"

#include <sys/sendfile.h>

enum { TIME_MS = 60 };

static void set_time(int fd, int ms)
{
	struct timeval tv = {0, ms * 1000L};

	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
}

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* How many does not count, nor how late: some, or none, and whether it has waited. */
static void outcome(struct t *t, const char *what, ssize_t r, int64_t since_ms)
{
	const char *err = r < 0 ? t_errno(errno) : "";

	t_log(t, "%s -> %s%s, %s", what,
	      r > 0    ? "some"
	      : r == 0 ? "nothing"
		       : "",
	      err, now_ms() - since_ms >= TIME_MS / 2 ? "waited" : "at once");
}

static void fill_with_time(struct t *t)
{
	static __thread char buf[16384];

	/* The kernel lets its buffers grow: full is what stays full, to the last byte. */
	for (int in_vain = 0; in_vain < 3;)
		if (send(t->fd, buf, in_vain ? 1 : sizeof(buf), 0) < 0)
			in_vain++;
		else
			in_vain = 0;
	t_log(t, "then %s", t_errno(errno));
}

static int file_of(size_t size)
{
	FILE *f = tmpfile();

	return f && !ftruncate(fileno(f), (off_t)size) ? fileno(f) : -1;
}

static void full_a(struct t *t)
{
	static char buf[100000];
	struct iovec iov[2] = {{buf, 50}, {buf + 50, sizeof(buf) - 50}};
	struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
	struct mmsghdr mm[2] = {{m, 0}, {m, 0}};
	int p[2], left = 0, file = file_of(sizeof(buf));
	off_t at = 0;
	int64_t ms;

	set_time(t->fd, TIME_MS);
	t_fill_up(t, t->fd, 9);
	if (pipe(p) || write(p[1], buf, 5000) != 5000)
		return;
	fill_with_time(t);
	ms = now_ms();
	outcome(t, "write 1", write(t->fd, buf, 1), ms);
	ms = now_ms();
	outcome(t, "write", write(t->fd, buf, sizeof(buf)), ms);
	ms = now_ms();
	outcome(t, "writev", writev(t->fd, iov, 2), ms);
	ms = now_ms();
	outcome(t, "sendmsg", sendmsg(t->fd, &m, 0), ms);
	ms = now_ms();
	outcome(t, "sendmmsg", sendmmsg(t->fd, mm, 2, 0), ms);
	ms = now_ms();
	outcome(t, "send, MSG_DONTWAIT", send(t->fd, buf, 100, MSG_DONTWAIT), ms);
	ms = now_ms();
	outcome(t, "sendfile", sendfile(t->fd, file, NULL, sizeof(buf)), ms);
	T(lseek(file, 0, SEEK_CUR));
	ms = now_ms();
	outcome(t, "sendfile from", sendfile(t->fd, file, &at, sizeof(buf)), ms);
	t_log(t, "offset %ld", (long)at);
	ms = now_ms();
	outcome(t, "splice", splice(p[0], NULL, t->fd, NULL, 5000, 0), ms);
	ioctl(p[0], FIONREAD, &left);
	t_log(t, "%d are left in the pipe", left);
	t_poll(t, t->fd, POLLIN | POLLOUT, 0);
	t_nonblock(t->fd, true);
	ms = now_ms();
	outcome(t, "write, O_NONBLOCK", write(t->fd, buf, 100), ms);
	t_nonblock(t->fd, false);
	t_sync(t);
	/* The other takes something meanwhile: the time is not over. */
	set_time(t->fd, 900);
	t_log(t, "write -> %ld", (long)write(t->fd, buf, 1000));
	t_sync(t);
	t_log(t, "splice -> %ld", (long)splice(p[0], NULL, t->fd, NULL, 5000, 0));
	T(shutdown(t->fd, SHUT_WR));
	t_sync(t);
	close(file);
}

static void full_b(struct t *t)
{
	static char buf[1 << 16];
	ssize_t n;

	t_sync(t);
	t_nap_ms(20);
	for (int quiet = 0; quiet < 20; t_nap_ms(1))
		for (quiet++; recv(t->fd, buf, sizeof(buf), MSG_DONTWAIT) > 0;)
			quiet = 0;
	t_sync(t);
	while ((n = recv(t->fd, buf, sizeof(buf), 0)) > 0)
		;
	t_log(t, "then %ld", (long)n);
	t_sync(t);
}

/* Both numbers at the end of the set, a set longer than fd_set, one that is closed. */
static void last_a(struct t *t)
{
	static unsigned long sets[2][4096 / (8 * sizeof(long))];
	fd_set *r = (fd_set *)sets[0], *w = (fd_set *)sets[1];
	const int at[] = {FD_SETSIZE - 1, FD_SETSIZE, 2047};
	struct timeval tv = {2, 0};
	char buf[8];

	t_sync(t);
	for (size_t i = 0; i < sizeof(at) / sizeof(*at); i++) {
		unsigned long bit = 1ul << (at[i] % (8 * (int)sizeof(long)));
		size_t word = (size_t)at[i] / (8 * sizeof(long));

		T(dup2(t->fd, at[i]) == at[i]);
		memset(sets, 0, sizeof(sets));
		sets[0][word] |= bit;
		sets[1][word] |= bit;
		T(select(at[i] + 1, r, w, NULL, &tv));
		t_log(t, "%d: read %d, write %d", at[i], !!(sets[0][word] & bit),
		      !!(sets[1][word] & bit));
		sets[0][word] = bit;
		sets[1][word] = bit;
		T(select(at[i], r, w, NULL, &(struct timeval){0, 0})); /* one too few */
		t_log(t, "%d: read %d, write %d", at[i], !!(sets[0][word] & bit),
		      !!(sets[1][word] & bit));
		TD(buf, recv(at[i], buf, 1, 0));
		T(close(at[i]));
		sets[0][word] = bit;
		T(select(at[i] + 1, r, NULL, NULL, &(struct timeval){0, 0}));
	}
	t_sync(t);
}

static void last_b(struct t *t)
{
	T(write(t->fd, "123", 3));
	t_sync(t);
	t_sync(t);
}

const struct t_case t_full_cases[] = {
	{"full.timed", full_a, full_b, 0, NULL},
	{"full.select_last", last_a, last_b, T_NO_THREAD, NULL},
	{NULL, NULL, NULL, 0, NULL},
};
