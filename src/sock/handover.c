/* SPDX-License-Identifier: MIT */
/*
 * Before a program is executed that cannot be preloaded (static, or set-user-id
 * for the dynamic linker): the connections that it would inherit are on rings
 * that it knows nothing of. Each is replaced, under the same descriptor
 * numbers, by one end of a socket pair; a small process of ours stays behind
 * and carries the bytes between the other end and the ring, both half-closes
 * included, until both are closed.
 *
 * What the program loses is the socket's names and options: it holds a Unix
 * socket. That is little against silence.
 *
 * The process that stays reads whatever comes, whether the program wants it or
 * not. A process that leaves (leave.c) has all descriptors that it inherited,
 * used or not, and those who have them too go on with them: then it would take
 * what is theirs. So nobody stays behind for what is shared; what cannot be
 * taken back to TCP there is left as it is.
 */
#include "base/log.h"
#include "base/shm.h"
#include "base/sys.h"
#include "sock/sock.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define MAX_HANDED 64 /* connections; more than that a program inherits seldom */
#define BUFFER (64u << 10)

/* ---- which programs ---- */

static bool has_interpreter(int fd, const Elf64_Ehdr *eh)
{
	for (int i = 0; i < eh->e_phnum && i < 128; i++) {
		Elf64_Phdr ph;
		off_t at = (off_t)(eh->e_phoff + (uint64_t)i * eh->e_phentsize);

		if (pread(fd, &ph, sizeof(ph), at) != sizeof(ph))
			return true; /* the kernel will tell */
		if (ph.p_type == PT_INTERP)
			return true;
	}
	return false;
}

static bool gains_privilege(int fd)
{
	struct stat st;
	char caps[64];

	if (tt_sys.fstat(fd, &st) < 0)
		return false;
	return ((st.st_mode & S_ISUID) && st.st_uid != geteuid()) ||
	       ((st.st_mode & S_ISGID) && st.st_gid != getegid()) ||
	       (geteuid() != 0 && fgetxattr(fd, "security.capability", caps, sizeof(caps)) > 0);
}

/* The interpreter that a script names; false: it is none. */
static bool script(int fd, char *ret_path, size_t room)
{
	char line[256];
	ssize_t n = pread(fd, line, sizeof(line) - 1, 0);

	if (n < 4 || line[0] != '#' || line[1] != '!')
		return false;
	line[n] = '\0';
	char *at = line + 2 + strspn(line + 2, " \t");

	at[strcspn(at, " \t\n")] = '\0';
	if (strlen(at) >= room)
		return false;
	strcpy(ret_path, at);
	return true;
}

bool tt_sock_cannot_preload(const char *path)
{
	char interpreter[PATH_MAX];
	bool cannot = false;

	for (int depth = 0; depth < 4; depth++) {
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		Elf64_Ehdr eh;

		if (fd < 0)
			return false; /* the exec will fail, or it is not for us to read */
		if (script(fd, interpreter, sizeof(interpreter))) {
			tt_sys.close(fd);
			path = interpreter;
			continue;
		}
		if (pread(fd, &eh, sizeof(eh), 0) == sizeof(eh) &&
		    memcmp(eh.e_ident, ELFMAG, SELFMAG) == 0)
			cannot = eh.e_ident[EI_CLASS] != ELFCLASS64 || !has_interpreter(fd, &eh) ||
				 gains_privilege(fd);
		tt_sys.close(fd);
		break;
	}
	return cannot;
}

bool tt_sock_cannot_preload_in_path(const char *file)
{
	const char *at = getenv("PATH");
	char path[PATH_MAX];

	if (strchr(file, '/') || !at)
		return tt_sock_cannot_preload(file);
	while (*at) {
		size_t n = strcspn(at, ":");

		if (n + strlen(file) + 2 < sizeof(path)) {
			memcpy(path, at, n);
			path[n] = '/';
			strcpy(path + n + 1, file);
			if (access(path, X_OK) == 0)
				return tt_sock_cannot_preload(path);
		}
		at += n + (at[n] == ':');
	}
	return false;
}

/* ---- carrying ---- */

/* One way: a piece. False: it has ended, and the other side was told. */
static bool to_program(struct tt_conn *c, int fd, int pipe_end, char *buf)
{
	struct iovec iov = {buf, BUFFER};
	ssize_t n = tt_sock_recv(c, fd, &iov, 1, MSG_DONTWAIT);

	if (n == -EAGAIN || n == -EINTR)
		return true;
	for (ssize_t put = 0; put < n;) {
		ssize_t w = tt_sys.send(pipe_end, buf + put, (size_t)(n - put), MSG_NOSIGNAL);

		if (w < 0 && errno != EINTR)
			return false;
		put += w > 0 ? w : 0;
	}
	if (n <= 0)
		tt_sys.shutdown(pipe_end, SHUT_WR);
	return n > 0;
}

static bool hung_up(int pipe_end)
{
	struct pollfd p = {pipe_end, 0, 0};

	return tt_sys.poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR));
}

static bool to_ring(struct tt_conn *c, int fd, int pipe_end, char *buf)
{
	ssize_t n = tt_sys.recv(pipe_end, buf, BUFFER, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	for (ssize_t put = 0; put < n;) {
		struct iovec iov = {buf + put, (size_t)(n - put)};
		ssize_t w = tt_sock_send(c, fd, &iov, 1, MSG_NOSIGNAL);

		struct tt_signal_mark mark = tt_signal_mark();

		if (w == -EAGAIN)
			tt_wait_tx(c, fd, INT64_MAX, &mark);
		else if (w < 0 && w != -EINTR)
			return false;
		put += w > 0 ? w : 0;
	}
	/* Closed is not shut down: others may have the connection, as after the kernel's close. */
	if (n <= 0 && !hung_up(pipe_end))
		tt_sock_shutdown(fd, SHUT_WR);
	return n > 0;
}

static void carry(struct tt_conn *c, int fd, int pipe_end)
{
	static char buf[BUFFER];
	bool in = true, out = true;

	while (in || out) {
		/* A way that has ended is not asked for again: it would answer for ever. */
		struct pollfd p[2] = {{in ? fd : -1, POLLIN, 0}, {pipe_end, out ? POLLIN : 0, 0}};
		int n = tt_sock_poll(p, 2, NULL, NULL);

		if (n < 0 && n != -EINTR)
			break;
		/* When it has ended, what comes now is for others who have the connection. */
		if (in && hung_up(pipe_end))
			in = false;
		if (in && p[0].revents)
			in = to_program(c, fd, pipe_end, buf);
		if (out && p[1].revents)
			out = to_ring(c, fd, pipe_end, buf);
	}
}

/* The process that stays: a child of nobody, with these two descriptors. */
static _Noreturn void stay(struct tt_conn *c, int fd, int pipe_end)
{
	for (int i = 0; i < 1024; i++)
		if (i != fd && i != pipe_end && !tt_fd_is_internal(i))
			tt_sock_close(i);
	signal(SIGPIPE, SIG_IGN);
	carry(c, fd, pipe_end);
	tt_sock_close(fd);
	_exit(0);
}

struct handed {
	struct tt_conn *conn;
	int fd, program_end;
};
static struct handed handed[MAX_HANDED];
static int nhanded;
static bool hand_all, too_many;

static void replace(int fd, void *obj)
{
	struct tt_conn *c = obj;
	int flags = tt_sys.fcntl(fd, F_GETFD);

	if (!c->e || !tt_load_relaxed(&c->e->attached) || flags < 0 ||
	    (!hand_all && (flags & FD_CLOEXEC)))
		return;
	for (int i = 0; i < nhanded; i++)
		if (handed[i].conn == c)
			return;
	if (nhanded < MAX_HANDED)
		handed[nhanded++] = (struct handed){c, fd, -1};
	else
		too_many = true;
}

static void put_in_place(int fd, void *obj)
{
	int flags = tt_sys.fcntl(fd, F_GETFD);

	if (flags < 0 || (!hand_all && (flags & FD_CLOEXEC)))
		return;
	for (int i = 0; i < nhanded; i++)
		if (handed[i].conn == obj && handed[i].program_end >= 0)
			tt_sys.dup3(handed[i].program_end, fd, flags & FD_CLOEXEC ? O_CLOEXEC : 0);
}

/* A process that stays carries bytes between the ring and what h's descriptors become. */
static bool leave_somebody(struct handed *h)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return false;
	pid_t child = tt_sys.fork();

	if (child == 0) {
		if (tt_sys.fork() != 0)
			_exit(0);
		stay(h->conn, h->fd, pair[1]);
	}
	tt_sys.close(pair[1]);
	if (child < 0) {
		tt_sys.close(pair[0]);
		return false;
	}
	h->program_end = pair[0];
	while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	return true;
}

/* Of connections whose both ends are here: nobody else may be there to answer. */
static void settle_own(void)
{
	for (int i = 0; i < nhanded; i++)
		for (int k = 0; k < nhanded; k++)
			if (k != i && tt_conn_ready(handed[i].conn, handed[i].fd) &&
			    tt_conn_ready(handed[k].conn, handed[k].fd) &&
			    tt_conn_downgrade_here(handed[i].conn, handed[i].fd, handed[k].conn,
						   handed[k].fd))
				break;
}

/* One connection. False: it would be lost to whoever goes on with the descriptor. */
static bool hand_one(struct handed *h)
{
	bool ready = tt_conn_ready(h->conn, h->fd);

	if (ready && tt_conn_downgrade(h->conn, h->fd, TT_REASON_HANDED_OVER, TT_DOWNGRADE_NS))
		return true;
	if (hand_all && tt_load_relaxed(&h->conn->e->shared)) {
		tt_log(TT_LOG_WARN,
		       "fd %d: not back on TCP, and not served in this process: others have it",
		       h->fd);
		return true;
	}
	return ready && leave_somebody(h);
}

bool tt_sock_hand_over(bool all)
{
	bool ok = true;

	if (!tt_sock_active())
		return true;
	nhanded = 0;
	hand_all = all;
	too_many = false;
	tt_fd_each(TT_FD_CONN, replace);
	settle_own();
	for (int i = 0; i < nhanded; i++)
		ok &= hand_one(&handed[i]);
	tt_fd_each(TT_FD_CONN, put_in_place);
	/* From here on these numbers are Unix sockets. */
	return ok && !too_many;
}

void tt_sock_hand_out(void)
{
	if (!tt_sock_active())
		return;
	nhanded = 0;
	hand_all = false;
	tt_fd_each(TT_FD_CONN, replace);
	for (int i = 0; i < nhanded; i++)
		if (tt_conn_ready(handed[i].conn, handed[i].fd))
			tt_conn_downgrade(handed[i].conn, handed[i].fd, TT_REASON_HANDED_OVER,
					  TT_DOWNGRADE_NS);
}

void tt_sock_stay_on_tcp(int fd, enum tt_reason why)
{
	struct tt_conn *c = tt_fd_conn(fd);

	if (!c || c->mode == TT_CONN_FALLBACK)
		return;
	if (!c->e) {
		tt_fdtab_lock();
		if (tt_fd_is(fd, c) && c->mode == TT_CONN_PLAIN)
			tt_conn_fallback(c, fd, why);
		tt_fdtab_unlock();
		return;
	}
	if (!tt_load_acquire(&c->e->grant) || !tt_conn_ready(c, fd))
		/* One that never wakes keeps it from the ring. */
		tt_fetch_add(&c->e->rx_sleepers, 1);
	else if (!tt_conn_downgrade(c, fd, why, TT_DOWNGRADE_NS) && c->mode == TT_CONN_ATTACHED)
		tt_conn_want_kicks(c, true);
}
