/* SPDX-License-Identifier: MIT */
/* Files, pipes and stdio at one end of a connection: sendfile, splice, tee, fdopen, dprintf. */
#include "battery.h"

#include <sys/sendfile.h>

#define FILE_SIZE 100000

/* A file that is gone when it is closed. */
static int make_file(struct t *t, size_t size)
{
	char name[] = "/tmp/battery.XXXXXX", *buf = malloc(size + 1);
	int fd = mkstemp(name);

	unlink(name);
	t_fill(buf, size, 0, 1);
	if (fd < 0 || write(fd, buf, size) != (ssize_t)size)
		t_log(t, "no file");
	lseek(fd, 0, SEEK_SET);
	free(buf);
	return fd;
}

static void sendfile_a(struct t *t)
{
	int file = make_file(t, FILE_SIZE), p[2];
	off_t at = 1000;

	T(sendfile(t->fd, file, NULL, 100));
	T(lseek(file, 0, SEEK_CUR));
	T(sendfile(t->fd, file, &at, 5000));
	t_log(t, "offset %ld", (long)at);
	T(lseek(file, 0, SEEK_CUR)); /* untouched */
	T(sendfile(t->fd, file, &at, 0));
	t_sync(t);
	at = 0;
	while (at < FILE_SIZE && sendfile(t->fd, file, &at, FILE_SIZE) > 0)
		;
	t_log(t, "offset %ld", (long)at);
	T(sendfile(t->fd, file, &at, 10)); /* at the end of the file */
	T(lseek(file, FILE_SIZE - 10, SEEK_SET));
	T(sendfile(t->fd, file, NULL, 1000));
	T(lseek(file, 0, SEEK_CUR));
	at = -1;
	T(sendfile(t->fd, file, &at, 10));
	T(sendfile(t->fd, -1, NULL, 10));
	if (pipe(p))
		return;
	T(sendfile(t->fd, t->fd, NULL, 10));
	t_sync(t);
	T(close(t->fd));
	T(sendfile(t->fd, file, NULL, 10));
}

static void sendfile_b(struct t *t)
{
	char buf[8];

	t_recv_all(t, t->fd, 5100, 1000);
	t_sync(t);
	t_recv_all(t, t->fd, FILE_SIZE + 10, 10000);
	t_sync(t);
	T(read(t->fd, buf, 8));
}

static void sendfile_full_a(struct t *t)
{
	int file = make_file(t, FILE_SIZE);
	size_t n;
	off_t at = 0;

	t_nonblock(t->fd, true);
	n = t_fill_up(t, t->fd, 1);
	T(sendfile(t->fd, file, &at, 1000));
	t_log(t, "offset %ld", (long)at);
	t_tell(t, (int)n);
	t_sync(t);
	T(sendfile(t->fd, file, &at, 1000));
	t_sync(t);
	T(shutdown(t->fd, SHUT_WR));
	T(sendfile(t->fd, file, &at, 1000));
	t_sigpipes(t);
}

static void sendfile_full_b(struct t *t)
{
	t_drain(t, t->fd, (size_t)t_hear(t), 1);
	t_sync(t);
	t_recv_all(t, t->fd, 1000, 1000);
	t_sync(t);
}

/* One line for each way to ask for the bytes of something that is no plain file. */
static void send_odd(struct t *t, const char *what, int in)
{
	static const off_t offsets[] = {0, 3, -1, 1L << 40, INT64_MAX - 1, INT64_MAX};
	static const size_t counts[] = {0, 1, 20, (size_t)1 << 63};
	struct stat st;
	long r;

	for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
		r = sendfile(t->fd, in, NULL, counts[c]);
		t_log(t, "%s, %zu -> %ld %s", what, counts[c], r, r < 0 ? t_errno(errno) : "");
		if (!fstat(in, &st) && S_ISREG(st.st_mode))
			t_log(t, "now at %ld", (long)lseek(in, 0, SEEK_CUR));
		for (size_t o = 0; o < sizeof(offsets) / sizeof(*offsets); o++) {
			off_t at = offsets[o];

			r = sendfile(t->fd, in, &at, counts[c]);
			t_log(t, "%s, %zu from %ld -> %ld %s, at %ld", what, counts[c],
			      (long)offsets[o], r, r < 0 ? t_errno(errno) : "", (long)at);
		}
	}
}

static void sendfile_odd_a(struct t *t)
{
	static const char *const paths[] = {
		"/",
		"/proc/self",
		"/proc/self/stat",
		"/proc/self/maps",
		"/proc/self/cmdline",
		"/proc/self/mem",
		"/proc/version",
		"/proc/sys/kernel/ostype",
		"/proc/sys/kernel/random/uuid",
		"/sys/kernel/mm/transparent_hugepage/enabled",
		"/dev/zero",
		"/dev/null",
		"/dev/full",
		"/dev/urandom",
	};
	char name[32];
	int p[2], s[2], file = make_file(t, 10), empty = make_file(t, 0), fd;

	if (pipe(p) || socketpair(AF_UNIX, SOCK_STREAM, 0, s) || write(p[1], "pipe", 4) != 4)
		return;
	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
		fd = open(paths[i], O_RDONLY);
		send_odd(t, paths[i], fd);
		close(fd);
	}
	snprintf(name, sizeof(name), "/proc/self/fd/%d", file);
	fd = open(name, O_WRONLY);
	send_odd(t, "write only", fd);
	close(fd);
	fd = open(name, O_PATH);
	send_odd(t, "path only", fd);
	close(fd);
	send_odd(t, "file", file);
	send_odd(t, "empty file", empty);
	send_odd(t, "no file", -1);
	send_odd(t, "pipe", p[0]);
	send_odd(t, "pipe's other end", p[1]);
	send_odd(t, "socket", s[0]);
	send_odd(t, "itself", t->fd);
	fd = eventfd(1, 0);
	send_odd(t, "eventfd", fd);
	close(fd);
	fd = epoll_create1(0);
	send_odd(t, "epoll", fd);
	close(fd);
	/* A socket may have that flag too, and the kernel splices to none that has. */
	T(fcntl(t->fd, F_SETFL, fcntl(t->fd, F_GETFL) | O_APPEND));
	lseek(file, 0, SEEK_SET);
	send_odd(t, "file, appending", file);
	T(write(t->fd, "x", 1));
	T(shutdown(t->fd, SHUT_WR));
	T(fcntl(t->fd, F_SETFL, fcntl(t->fd, F_GETFL) & ~O_APPEND));
	lseek(file, 0, SEEK_SET);
	send_odd(t, "file, shut down", file);
	send_odd(t, "empty file, shut down", empty);
	send_odd(t, "pipe, shut down", p[0]);
	t_sigpipes(t);
	t_sync(t);
}

static void sendfile_odd_b(struct t *t)
{
	char buf[1000];
	size_t all = 0;
	ssize_t n;

	while ((n = read(t->fd, buf, sizeof(buf))) > 0)
		all += (size_t)n;
	t_log(t, "%zu bytes", all);
	t_sync(t);
}

/* Pipe to socket, socket to pipe. */
static void splice_a(struct t *t)
{
	int p[2];
	char buf[100];

	if (pipe(p))
		return;
	T(write(p[1], "through the pipe", 16));
	T(splice(p[0], NULL, t->fd, NULL, 100, 0));
	t_sync(t);
	t_sync(t);
	T(splice(t->fd, NULL, p[1], NULL, 5, 0));
	TD(buf, read(p[0], buf, 100));
	T(splice(t->fd, NULL, p[1], NULL, 100, SPLICE_F_MOVE));
	TD(buf, read(p[0], buf, 100));
	t_nonblock(t->fd, true);
	T(splice(t->fd, NULL, p[1], NULL, 100, SPLICE_F_NONBLOCK));
	T(splice(t->fd, NULL, p[1], NULL, 100, 0));
	t_nonblock(t->fd, false);
	T(splice(t->fd, &(off_t){0}, p[1], NULL, 100, 0));
	t_sync(t);
	T(splice(t->fd, NULL, p[1], NULL, 100, 0)); /* waits */
	TD(buf, read(p[0], buf, 100));
	T(splice(t->fd, NULL, p[1], NULL, 100, 0));
}

static void splice_b(struct t *t)
{
	char buf[100];

	t_sync(t);
	TD(buf, read(t->fd, buf, 100));
	T(write(t->fd, "spliced away", 12));
	t_sync(t);
	t_sync(t);
	t_settle();
	T(write(t->fd, "late", 4));
	t_settle();
	T(shutdown(t->fd, SHUT_WR));
}

static void tee_a(struct t *t)
{
	int p[2], q[2];
	char buf[100];

	if (pipe(p) || pipe(q))
		return;
	T(splice(t->fd, NULL, p[1], NULL, 4, 0));
	T(tee(p[0], q[1], 100, 0));
	T(splice(p[0], NULL, t->fd, NULL, 100, 0));
	TD(buf, read(q[0], buf, 100));
	T(tee(p[0], t->fd, 100, 0));
	T(tee(t->fd, q[1], 100, 0));
	T(vmsplice(q[1], &(struct iovec){buf, 4}, 1, 0));
	T(splice(q[0], NULL, t->fd, NULL, 4, SPLICE_F_MORE));
}

static void tee_b(struct t *t)
{
	char buf[100];

	T(write(t->fd, "twin", 4));
	TD(buf, recv(t->fd, buf, 8, MSG_WAITALL));
}

/* A proxy that moves everything from one connection to another through a pipe. */
static void splice_bulk_a(struct t *t)
{
	int second = t_open(t), p[2];
	size_t moved = 0;
	ssize_t in, out;

	if (pipe(p))
		return;
	while ((in = splice(t->fd, NULL, p[1], NULL, 65536, 0)) > 0)
		for (; in > 0; in -= out) {
			out = splice(p[0], NULL, second, NULL, (size_t)in, 0);
			if (out <= 0)
				break;
			moved += (size_t)out;
		}
	t_log(t, "moved %zu", moved);
	T(close(second));
}

static void *splice_bulk_reader(void *arg)
{
	struct t *t = arg;

	t_recv_all(t, t->peer, 2000000, 10000);
	t_recv_all(t, t->peer, 1, 1);
	return NULL;
}

static void splice_bulk_b(struct t *t)
{
	pthread_t thread;

	t->peer = t_open(t);
	thread = t_second(splice_bulk_reader, t);
	t_send_all(t, t->fd, 2000000, 30000, 1);
	t_settle();
	T(shutdown(t->fd, SHUT_WR));
	t_join(thread);
}

/* --- stdio ------------------------------------------------------------------------------------- */

static void stdio_a(struct t *t)
{
	FILE *in = fdopen(dup(t->fd), "r"), *out = fdopen(t->fd, "w");
	char line[100] = "";

	T(fprintf(out, "line %d\n", 1));
	T(fflush(out));
	t_log(t, "fgets: %s", fgets(line, sizeof(line), in) ? strtok(line, "\n") : "nothing");
	T(setvbuf(out, NULL, _IOLBF, 100));
	T(fputs("line 2\n", out) >= 0);
	t_log(t, "fgets: %s", fgets(line, sizeof(line), in) ? strtok(line, "\n") : "nothing");
	for (int i = 0; i < 3000; i++)
		fprintf(out, "%d,", i);
	T(fclose(out)); /* writes the rest */
	t_log(t, "fgets: %s", fgets(line, sizeof(line), in) ? strtok(line, "\n") : "nothing");
	t_log(t, "fgets: %s, end %d", fgets(line, sizeof(line), in) ? "something" : "nothing",
	      feof(in));
	T(fclose(in));
}

static void stdio_b(struct t *t)
{
	FILE *f = fdopen(t->fd, "r+");
	char *line = NULL;
	size_t size = 0, expect = 0;
	int n, i = 0;

	t_log(t, "getline: %s", getline(&line, &size, f) > 0 ? strtok(line, "\n") : "nothing");
	T(fprintf(f, "answer 1\n"));
	T(fflush(f));
	t_log(t, "getline: %s", getline(&line, &size, f) > 0 ? strtok(line, "\n") : "nothing");
	T(dprintf(t->fd, "answer %d\n", 2));
	while (i < 3000 && fscanf(f, "%d,", &n) == 1)
		expect += n == i++;
	t_log(t, "numbers: %d, in order %zu", i, expect);
	T(dprintf(t->fd, "%s\n", "goodbye"));
	T(fclose(f));
	free(line);
}

/* A request and an answer in the manner of HTTP. */
static void http_a(struct t *t)
{
	FILE *f = fdopen(t->fd, "r+");
	char line[200];

	setvbuf(f, NULL, _IONBF, 0);
	for (int i = 0; i < 20; i++) {
		fprintf(f, "GET /%d HTTP/1.1\r\nHost: here\r\n\r\n", i);
		while (fgets(line, sizeof(line), f) && line[0] != '\r')
			if (i % 5 == 0)
				t_log(t, "%.*s", (int)strcspn(line, "\r"), line);
		t_nap_ms(1);
	}
	T(fclose(f));
}

static void http_b(struct t *t)
{
	FILE *f = fdopen(t->fd, "r");
	char line[200];
	int n;

	while (fscanf(f, "GET /%d HTTP/1.1\r\n", &n) == 1) {
		while (fgets(line, sizeof(line), f) && line[0] != '\r')
			;
		dprintf(t->fd, "HTTP/1.1 200 OK\r\nX-Number: %d\r\n\r\n", n);
	}
	T(fclose(f));
}

/* --- preadv2 and pwritev2 without an offset ---------------------------------------------------- */

static void v2_a(struct t *t)
{
	char buf[100];
	struct iovec v = {buf, 100};

	t_sync(t);
	T(preadv2(t->fd, &v, 1, -1, 0));
	t_log(t, "%.4s", buf);
	T(preadv2(t->fd, &v, 1, -1, RWF_NOWAIT));
	T(preadv(t->fd, &v, 1, 0));
	v.iov_len = 4;
	T(pwritev2(t->fd, &v, 1, -1, 0));
	T(pwritev(t->fd, &v, 1, 0));
	t_sync(t);
}

static void v2_b(struct t *t)
{
	char buf[100];

	T(write(t->fd, "data", 4));
	t_sync(t);
	t_sync(t);
	TD(buf, read(t->fd, buf, 100));
}

/* --- which descriptors there are, by trying all ------------------------------------------------- */

static void count_own(struct t *t)
{
	int by_fcntl = 0, by_fstat = 0, by_dup = 0, top = 0;
	struct stat st;

	for (int fd = 0; fd < 20000; fd++) {
		int copy;

		by_fcntl += fcntl(fd, F_GETFD) >= 0;
		by_fstat += fstat(fd, &st) == 0;
		if (fd >= 1000 && (copy = dup(fd)) >= 0) {
			by_dup++;
			close(copy);
		}
		if (fcntl(fd, F_GETFD) >= 0)
			top = fd;
	}
	t_log(t, "%d by fcntl, %d by fstat, %d high ones by dup, highest below 1000: %d", by_fcntl,
	      by_fstat, by_dup, top < 1000);
}

static void own_a(struct t *t)
{
	T(write(t->fd, "x", 1));
	t_sync(t);
	count_own(t);
	t_sync(t);
}

static void own_b(struct t *t)
{
	char buf[4];

	TD(buf, read(t->fd, buf, 4));
	t_sync(t);
	count_own(t);
	t_sync(t);
}

const struct t_case t_files_cases[] = {
	{"files.own", own_a, own_b, T_NO_THREAD, NULL},
	{"files.sendfile", sendfile_a, sendfile_b, T_NO_THREAD | T_FAMILIES, NULL},
	{"files.sendfile_odd", sendfile_odd_a, sendfile_odd_b, T_NO_THREAD, NULL},
	{"files.sendfile_full", sendfile_full_a, sendfile_full_b, 0, NULL},
	{"files.splice", splice_a, splice_b, 0, NULL},
	{"files.tee", tee_a, tee_b, 0, NULL},
	{"files.splice_bulk", splice_bulk_a, splice_bulk_b, 0, NULL},
	{"files.stdio", stdio_a, stdio_b, 0, NULL},
	{"files.http", http_a, http_b, 0, NULL},
	{"files.v2", v2_a, v2_b, 0, NULL},
	{NULL, NULL, NULL, 0, NULL},
};
