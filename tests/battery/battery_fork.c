/* SPDX-License-Identifier: MIT */
/* One connection, several processes; descriptors that are passed on. */
#include "battery.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <sys/syscall.h>

/* b answers each message by the same, until the end. */
static void echo_b(struct t *t)
{
	static char buf[65536];
	ssize_t r;

	while ((r = read(t->fd, buf, sizeof(buf))) > 0)
		if (write(t->fd, buf, (size_t)r) != r)
			t_log(t, "short");
	t_log(t, "end: %s", r ? t_errno(errno) : "0");
	close(t->fd);
}

static void ask(struct t *t, const char *what)
{
	char buf[100];
	size_t n = strlen(what);

	T(write(t->fd, what, n));
	TD(buf, recv(t->fd, buf, n, MSG_WAITALL));
}

static pid_t child(struct t *t, char role)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	close(t->sync_fd);
	t->role = role;
	return 0;
}

static void child_uses(struct t *t, pid_t pid)
{
	if (!pid) {
		ask(t, "from the child");
		ask(t, "again");
		_exit(0);
	}
	t_wait_child(t, pid);
	ask(t, "from the parent");
	T(close(t->fd));
}

static void child_uses_a(struct t *t)
{
	child_uses(t, child(t, 'c'));
}

/* A fork that pthread_atfork does not see. */
static void raw_clone_a(struct t *t)
{
	pid_t pid = (pid_t)syscall(SYS_clone, (long)SIGCHLD, 0L, 0L, 0L, 0L);

	if (!pid) {
		close(t->sync_fd);
		t->role = 'c';
	}
	child_uses(t, pid);
}

static int cloned(void *arg)
{
	struct t *t = arg;

	close(t->sync_fd);
	t->role = 'c';
	ask(t, "from the child");
	ask(t, "again");
	_exit(0);
}

static void clone_a(struct t *t)
{
	char *stack = malloc(1u << 20);
	pid_t pid = clone(cloned, stack + (1u << 20), SIGCHLD, t);

	t_wait_child(t, pid);
	free(stack);
	ask(t, "from the parent");
	T(close(t->fd));
}

/* In turn: what one has read the other does not see again. */
static void both_use_a(struct t *t)
{
	int p[2], q[2];
	char c;
	pid_t pid;

	if (pipe(p) || pipe(q))
		return;
	pid = child(t, 'c');
	for (int i = 0; i < 20; i++) {
		char text[20];

		snprintf(text, sizeof(text), "%c says %d", t->role, i);
		if (pid && i && read(q[0], &c, 1) != 1)
			t_log(t, "pipe");
		if (!pid && read(p[0], &c, 1) != 1)
			t_log(t, "pipe");
		ask(t, text);
		if (write(pid ? p[1] : q[1], "x", 1) != 1)
			t_log(t, "pipe");
	}
	if (!pid)
		_exit(0);
	t_wait_child(t, pid);
	T(close(t->fd));
}

/* The child reads, the parent writes, at the same time. */
static void split_work_a(struct t *t)
{
	pid_t pid = child(t, 'c');

	if (!pid) {
		t_recv_all(t, t->fd, 1u << 20, 10000);
		_exit(0);
	}
	t_send_all(t, t->fd, 1u << 20, 5000, 1);
	t_wait_child(t, pid);
	ask(t, "after");
	T(close(t->fd));
}

static void parent_closes_a(struct t *t)
{
	int p[2];
	char c;
	pid_t pid;

	if (pipe(p))
		return;
	pid = child(t, 'c');
	if (!pid) {
		if (read(p[0], &c, 1) != 1)
			t_log(t, "pipe");
		ask(t, "the parent has closed it");
		_exit(0);
	}
	T(close(t->fd));
	T(write(t->fd, "x", 1));
	if (write(p[1], "x", 1) != 1)
		t_log(t, "pipe");
	t_wait_child(t, pid); /* its exit is the end of the connection */
}

static void child_closes_a(struct t *t)
{
	pid_t pid = child(t, 'c');

	if (!pid) {
		T(close(t->fd));
		T(read(t->fd, NULL, 0));
		exit(0);
	}
	t_wait_child(t, pid);
	ask(t, "still open");
	T(close(t->fd));
}

static void child_shuts_a(struct t *t)
{
	pid_t pid = child(t, 'c');
	char buf[8];

	if (!pid) {
		T(write(t->fd, "bye", 3));
		T(shutdown(t->fd, SHUT_WR)); /* of the connection, for all its holders */
		_exit(0);
	}
	t_wait_child(t, pid);
	T(send(t->fd, "x", 1, MSG_NOSIGNAL));
	TD(buf, recv(t->fd, buf, 3, MSG_WAITALL));
	T(read(t->fd, buf, 8));
}

static void flags_shared_a(struct t *t)
{
	pid_t pid = child(t, 'c');
	char buf[8];

	if (!pid) {
		t_nonblock(t->fd, true);
		_exit(0);
	}
	t_wait_child(t, pid);
	T(read(t->fd, buf, 8)); /* the open file is shared, its flags too */
	t_nonblock(t->fd, false);
	ask(t, "blocking");
	T(close(t->fd));
}

static void killed_child_a(struct t *t)
{
	pid_t pid = child(t, 'c');
	char buf[8];

	if (!pid) {
		T(read(t->fd, buf, 8));
		_exit(0);
	}
	t_settle();
	kill(pid, SIGKILL);
	t_wait_child(t, pid);
	ask(t, "go on");
	T(close(t->fd));
}

/* daemon(): the grandchild lives on, everyone else is gone. */
static void grandchild_a(struct t *t)
{
	pid_t pid = child(t, 'c');

	if (!pid) {
		if (fork())
			_exit(0);
		t->role = 'd';
		setsid();
		t_settle();
		ask(t, "from the grandchild");
		_exit(0);
	}
	T(close(t->fd));
	t_wait_child(t, pid);
	t_sync(t);
}

static void grandchild_b(struct t *t)
{
	echo_b(t);
	t_sync(t);
}

static void *write_thread(void *arg)
{
	struct t *t = arg;

	t_send_all(t, t->fd, 200000, 1000, 1);
	return NULL;
}

/* fork while another thread is in the middle of sending. */
static void threaded_parent_a(struct t *t)
{
	pthread_t thread = t_second(write_thread, t);
	pid_t pid[4];

	for (int i = 0; i < 4; i++) {
		pid[i] = child(t, 'c');
		if (!pid[i]) {
			int fd = t_socket(t);

			_exit(fd < 0 || fcntl(t->fd, F_GETFL) < 0);
		}
	}
	t_recv_all(t, t->fd, 200000, 3000);
	t_join(thread);
	for (int i = 0; i < 4; i++)
		t_wait_child(t, pid[i]);
	T(close(t->fd));
}

/* --- servers ----------------------------------------------------------------------------------- */

#define CLIENTS 5

static void server_a(struct t *t)
{
	int port, listener = t_listen(t, &port);
	pid_t pid[CLIENTS];

	t_tell(t, port);
	for (int i = 0; i < CLIENTS; i++) {
		t->fd = accept(listener, NULL, NULL);
		pid[i] = child(t, 'c');
		if (!pid[i]) {
			close(listener);
			echo_b(t);
			exit(0);
		}
		close(t->fd);
	}
	for (int i = 0; i < CLIENTS; i++)
		t_wait_child(t, pid[i]);
}

static void server_b(struct t *t)
{
	int port = t_hear(t), fds[CLIENTS];

	for (int i = 0; i < CLIENTS; i++)
		fds[i] = t_connect(t, port);
	for (int round = 0; round < 10; round++)
		for (int i = 0; i < CLIENTS; i++) {
			char text[20];

			snprintf(text, sizeof(text), "client %d", i);
			t->fd = fds[i];
			ask(t, text);
			t_nap_ms(1);
		}
	for (int i = 0; i < CLIENTS; i++)
		T(close(fds[i]));
}

/* Two processes accept on one listener, as nginx's workers do. */
static void shared_listener_a(struct t *t)
{
	int port, listener = t_listen(t, &port);
	pid_t pid[2];

	for (int i = 0; i < 2; i++) {
		pid[i] = child(t, 'c');
		if (pid[i])
			continue;
		for (;;) {
			static char buf[100];
			ssize_t r;
			int fd = accept(listener, NULL, NULL);

			while ((r = read(fd, buf, sizeof(buf))) > 0 && buf[0] != 'Q')
				if (write(fd, buf, (size_t)r) != r)
					t_log(t, "short");
			close(fd);
			if (buf[0] == 'Q')
				_exit(0);
		}
	}
	close(listener);
	t_tell(t, port);
	t_wait_child(t, pid[0]);
	t_wait_child(t, pid[1]);
}

static void shared_listener_b(struct t *t)
{
	int port = t_hear(t);

	for (int i = 0; i < 6; i++) {
		t->fd = t_connect(t, port);
		for (int k = 0; k < 8; k++) {
			ask(t, "whoever you are");
			t_nap_ms(1);
		}
		T(close(t->fd));
	}
	for (int i = 0; i < 2; i++) {
		char buf[8];

		t->fd = t_connect(t, port);
		T(write(t->fd, "Q", 1));
		T(read(t->fd, buf, 8));
		T(close(t->fd));
	}
}

/* --- descriptors passed on --------------------------------------------------------------------- */

static void send_fd(int sock, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = {0}, c = 'f';
	struct iovec v = {&c, 1};
	struct msghdr m = {.msg_iov = &v,
			   .msg_iovlen = 1,
			   .msg_control = control,
			   .msg_controllen = sizeof(control)};
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);

	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(h), &fd, sizeof(int));
	sendmsg(sock, &m, 0);
}

static int recv_fd(int sock)
{
	char control[CMSG_SPACE(sizeof(int))], c;
	struct iovec v = {&c, 1};
	struct msghdr m = {.msg_iov = &v,
			   .msg_iovlen = 1,
			   .msg_control = control,
			   .msg_controllen = sizeof(control)};
	int fd = -1;

	if (recvmsg(sock, &m, 0) == 1 && CMSG_FIRSTHDR(&m))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int));
	return fd;
}

/* The child was there before the connection; it gets it in a message. */
static void passed_a(struct t *t)
{
	int sv[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv))
		return;
	pid = child(t, 'c');
	if (!pid) {
		close(sv[0]);
		t->fd = recv_fd(sv[1]);
		ask(t, "passed on");
		T(write(sv[1], "x", 1));
		t->fd = recv_fd(sv[1]);
		t_log(t, "no more: %d", t->fd);
		_exit(0);
	}
	close(sv[1]);
	t->fd = t_open(t);
	ask(t, "before");
	send_fd(sv[0], t->fd);
	T(read(sv[0], &(char){0}, 1));
	ask(t, "after");
	T(close(t->fd));
	close(sv[0]);
	t_wait_child(t, pid);
}

static void passed_b(struct t *t)
{
	t->fd = t_open(t);
	echo_b(t);
}

/* In flight in the message, while the sender has closed its own. */
static void passed_in_flight(struct t *t)
{
	int sv[2], fd;
	char buf[16];

	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, sv))
		return;
	T(write(t->peer, "waiting", 7));
	send_fd(sv[0], t->fd);
	T(close(t->fd));
	t_poll(t, t->peer, POLLIN | POLLRDHUP, 10);
	T(write(t->peer, " more", 5));
	fd = recv_fd(sv[1]);
	TD(buf, recv(fd, buf, 12, MSG_WAITALL));
	T(write(fd, "back", 4));
	TD(buf, read(t->peer, buf, 16));
	T(close(fd));
	T(read(t->peer, buf, 16));
}

static void pidfd_getfd_a(struct t *t)
{
	pid_t self = getpid(), pid = child(t, 'c');

	if (!pid) {
		int pidfd = (int)syscall(SYS_pidfd_open, self, 0), fd = t->fd;

		close(fd);
		t->fd = (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
		ask(t, "by pidfd_getfd");
		_exit(0);
	}
	t_wait_child(t, pid);
	ask(t, "by its owner");
	T(close(t->fd));
}

/* Reads and writes, and ends; every other system call kills. As sshd's child does it. */
static void sandbox(void)
{
	static const int allowed[] = {SYS_read, SYS_write, SYS_close, SYS_exit, SYS_exit_group};
	struct sock_filter f[16];
	struct sock_fprog prog = {0, f};

	f[prog.len++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
						     offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < sizeof(allowed) / sizeof(*allowed); i++) {
		f[prog.len++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
							     (unsigned int)allowed[i], 0, 1);
		f[prog.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	}
	f[prog.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		_exit(99);
}

/* No more descriptors and processes, before the filter. */
static void give_up(void)
{
	const struct rlimit none = {0, 0}, one = {1, 1};

	if (setrlimit(RLIMIT_FSIZE, &none) || setrlimit(RLIMIT_NOFILE, &one) ||
	    setrlimit(RLIMIT_NPROC, &none))
		_exit(97);
}

/* A sandboxed child talks, then its parent goes on with the same connection. */
static void sandboxed(struct t *t, bool limits)
{
	char buf[100] = "";
	pid_t child = fork();
	int status = -1;

	if (child == 0) {
		if (limits)
			give_up();
		sandbox();
		for (int i = 0; i < 20; i++)
			if (write(t->fd, "jail", 4) != 4 || read(t->fd, buf, 100) != 4)
				_exit(98);
		_exit(7);
	}
	waitpid(child, &status, 0);
	t_log(t, "child: %s %d", WIFEXITED(status) ? "exit" : "signal",
	      WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
	for (int i = 0; i < 20; i++)
		if (write(t->fd, "free", 4) != 4 || read(t->fd, buf, 100) != 4)
			t_log(t, "round %d: %s", i, t_errno(errno));
	t_log(t, "%.4s", buf);
	t_sync(t);
	T(shutdown(t->fd, SHUT_WR));
	t_recv_all(t, t->fd, 1000000, 5000);
	T(read(t->fd, buf, 100));
}

static void sandboxed_a(struct t *t)
{
	sandboxed(t, false);
}

static void limited_a(struct t *t)
{
	sandboxed(t, true);
}

static void sandboxed_b(struct t *t)
{
	char buf[4];

	for (int i = 0; i < 40; i++)
		if (recv(t->fd, buf, 4, MSG_WAITALL) != 4 || write(t->fd, buf, 4) != 4)
			t_log(t, "round %d: %s", i, t_errno(errno));
	t_sync(t);
	T(read(t->fd, buf, 4));
	t_send_all(t, t->fd, 1000000, 7000, 1);
	T(close(t->fd));
}

/* What lies unread at the end that the child has too, and does not use, stays its owner's. */
static void sandboxed_unread_a(struct t *t)
{
	int p[2], status = -1;
	char buf[17] = "";

	if (pipe(p))
		return;
	T(write(t->fd, "before ", 7));
	pid_t child = fork();

	if (child == 0) {
		sandbox();
		_exit(read(p[0], buf, 1) == 1 && write(t->fd, "jail ", 5) == 5 ? 7 : 98);
	}
	t_settle(); /* whoever would take it has had the time */
	T(write(p[1], "x", 1));
	waitpid(child, &status, 0);
	t_log(t, "child: %s %d", WIFEXITED(status) ? "exit" : "signal",
	      WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
	T(write(t->fd, "after", 5));
	t_sync(t);
	TD(buf, recv(t->fd, buf, 17, MSG_WAITALL));
	close(p[0]);
	close(p[1]);
}

static void sandboxed_unread_b(struct t *t)
{
	char buf[17];

	t_sync(t);
	TD(buf, recv(t->fd, buf, 17, MSG_WAITALL));
	T(write(t->fd, buf, 17));
}

const struct t_case t_fork_cases[] = {
	{"fork.child_uses", child_uses_a, echo_b, T_NO_THREAD | T_FAMILIES, NULL},
	{"fork.clone", clone_a, echo_b, T_NO_THREAD, NULL},
	{"fork.raw_clone", raw_clone_a, echo_b, T_NO_THREAD, NULL},
	{"fork.both_use", both_use_a, echo_b, T_NO_THREAD, NULL},
	{"fork.split_work", split_work_a, echo_b, T_NO_THREAD, NULL},
	{"fork.parent_closes", parent_closes_a, echo_b, T_NO_THREAD, NULL},
	{"fork.child_closes", child_closes_a, echo_b, T_NO_THREAD, NULL},
	{"fork.child_shuts", child_shuts_a, echo_b, T_NO_THREAD, NULL},
	{"fork.flags_shared", flags_shared_a, echo_b, T_NO_THREAD, NULL},
	{"fork.killed_child", killed_child_a, echo_b, T_NO_THREAD, NULL},
	{"fork.grandchild", grandchild_a, grandchild_b, T_NO_THREAD, NULL},
	{"fork.threaded_parent", threaded_parent_a, echo_b, T_NO_THREAD, NULL},
	{"fork.server", server_a, server_b, T_NO_THREAD | T_RAW | T_FAMILIES, NULL},
	{"fork.shared_listener", shared_listener_a, shared_listener_b, T_NO_THREAD | T_RAW, NULL},
	{"fork.passed", passed_a, passed_b, T_NO_THREAD | T_RAW, NULL},
	{"fork.passed_in_flight", passed_in_flight, NULL, T_SOLO, NULL},
	{"fork.pidfd_getfd", pidfd_getfd_a, echo_b, T_NO_THREAD, NULL},
	{"fork.sandboxed", sandboxed_a, sandboxed_b, T_FAMILIES, NULL},
	{"fork.limited", limited_a, sandboxed_b, T_FAMILIES, NULL},
	{"fork.sandboxed_unread", sandboxed_unread_a, sandboxed_unread_b, 0, NULL},
	{NULL, NULL, NULL, 0, NULL},
};
