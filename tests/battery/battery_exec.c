/* SPDX-License-Identifier: MIT */
/* New programs with a connection in hand; inetd's way; programs that close everything. */
#include "battery.h"

#include <spawn.h>

extern char **environ;

void t_exec_continue(struct t *t)
{
	char buf[100];

	TD(buf, recv(t->fd, buf, 7, MSG_WAITALL));
	T(write(t->fd, "after exec", 10));
	TD(buf, read(t->fd, buf, 100));
	T(fcntl(t->fd, F_GETFL) & O_NONBLOCK);
	T(close(t->fd));
	t_wait_child(t, -1); /* role b is still our child */
}

static void self_a(struct t *t)
{
	char fd[16];

	T(write(t->fd, "before exec", 11));
	t_sync(t);
	snprintf(fd, sizeof(fd), "%d", t->fd);
	t_sync(t);
	fcntl(t->sync_fd, F_SETFD, FD_CLOEXEC);
	execl(t->self, t->self, "--continue", fd, "exec.self", NULL);
	t_log(t, "exec: %s", t_errno(errno));
}

static void self_b(struct t *t)
{
	char buf[100];

	t_sync(t);
	TD(buf, read(t->fd, buf, 100));
	T(write(t->fd, "waiting", 7)); /* unread when the new program starts */
	t_sync(t);
	TD(buf, read(t->fd, buf, 100));
	T(write(t->fd, "bye", 3));
	T(read(t->fd, buf, 100));
}

/* The peer of a program that echoes and ends when its input does. */
static void client_b(struct t *t)
{
	char buf[100];

	T(write(t->fd, "hello cat\n", 10));
	TD(buf, recv(t->fd, buf, 10, MSG_WAITALL));
	t_sync(t);
	for (int i = 0; i < 10; i++) {
		T(write(t->fd, "meow\n", 5));
		TD(buf, recv(t->fd, buf, 5, MSG_WAITALL));
		t_nap_ms(2);
	}
	t_send_all(t, t->fd, 50000, 50000, 1);
	t_recv_all(t, t->fd, 50000, 50000);
	T(shutdown(t->fd, SHUT_WR));
	T(read(t->fd, buf, 100));
}

static void as_stdio(int fd)
{
	dup2(fd, 0);
	dup2(fd, 1);
	dup2(fd, 2);
	close_range(3, ~0u, 0);
}

static void inetd_a(struct t *t)
{
	pid_t pid = fork();

	if (pid == 0) {
		as_stdio(t->fd);
		execlp("cat", "cat", NULL);
		_exit(127);
	}
	close(t->fd);
	t_sync(t);
	t_wait_child(t, pid);
}

static void inetd_vfork_a(struct t *t)
{
	pid_t pid = vfork();

	if (pid == 0) {
		dup2(t->fd, 0);
		dup2(t->fd, 1);
		execlp("cat", "cat", NULL);
		_exit(127);
	}
	close(t->fd);
	t_sync(t);
	t_wait_child(t, pid);
}

/* As Python's subprocess does it: whatever is above the three is closed by number. */
static void inetd_vfork_closes_a(struct t *t)
{
	pid_t pid = vfork();

	if (pid == 0) {
		dup2(t->fd, 0);
		dup2(t->fd, 1);
		close_range(3, ~0U, 0);
		execlp("cat", "cat", NULL);
		_exit(127);
	}
	close(t->fd);
	t_sync(t);
	t_wait_child(t, pid);
}

static void inetd_closes_on_exec_a(struct t *t)
{
	pid_t pid = fork();

	if (pid == 0) {
		as_stdio(t->fd);
		close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
		execlp("cat", "cat", NULL);
		_exit(127);
	}
	close(t->fd);
	t_sync(t);
	t_wait_child(t, pid);
}

static void inetd_empty_environment_a(struct t *t)
{
	char *const argv[] = {(char *)"cat", NULL}, *const none[] = {NULL};
	pid_t pid = fork();

	if (pid == 0) {
		as_stdio(t->fd);
		execve("/bin/cat", argv, none);
		_exit(127);
	}
	close(t->fd);
	t_sync(t);
	t_wait_child(t, pid);
}

/* A program that cannot be preloaded, by exec in a child of this kind. */
static void inetd_static(struct t *t, pid_t (*start)(void), bool by_descriptor, bool name)
{
	char *const argv[] = {(char *)"static_cat", name ? (char *)"name" : NULL, NULL};
	char path[4096];
	int n = snprintf(path, sizeof(path), "%s", t->self), program;
	pid_t pid;

	while (n > 0 && path[n - 1] != '/')
		n--;
	snprintf(path + n, sizeof(path) - (size_t)n, "static_cat");
	program = open(path, O_RDONLY | O_CLOEXEC);
	pid = start();
	if (pid == 0) {
		dup2(t->fd, 0);
		dup2(t->fd, 1);
		close(t->fd);
		if (by_descriptor)
			fexecve(program, argv, environ);
		else
			execv(path, argv);
		_exit(127);
	}
	close(t->fd);
	close(program);
	t_sync(t);
	t_wait_child(t, pid);
}

static void inetd_static_a(struct t *t)
{
	inetd_static(t, fork, false, false);
}

/* By posix_spawn, which this process goes on from with the connection. */
static void spawn_static_a(struct t *t)
{
	posix_spawn_file_actions_t actions;
	char *const argv[] = {(char *)"static_cat", (char *)"name", NULL};
	char path[4096], buf[8];
	int n = snprintf(path, sizeof(path), "%s", t->self);
	pid_t pid = -1;

	while (n > 0 && path[n - 1] != '/')
		n--;
	snprintf(path + n, sizeof(path) - (size_t)n, "static_cat");
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, t->fd, 0);
	posix_spawn_file_actions_adddup2(&actions, t->fd, 1);
	T(posix_spawn(&pid, path, &actions, NULL, argv, environ));
	posix_spawn_file_actions_destroy(&actions);
	t_sync(t);
	t_sync(t);
	kill(pid, SIGKILL);
	t_wait_child(t, pid);
	T(write(t->fd, "still ours", 10));
	TD(buf, recv(t->fd, buf, 5, MSG_WAITALL));
}

static void spawn_static_b(struct t *t)
{
	char buf[100];

	TD(buf, recv(t->fd, buf, 5, MSG_WAITALL));
	T(write(t->fd, "meow\n", 5));
	TD(buf, recv(t->fd, buf, 5, MSG_WAITALL));
	t_sync(t);
	t_sync(t);
	TD(buf, recv(t->fd, buf, 10, MSG_WAITALL));
	T(write(t->fd, "yours", 5));
}

/* Bytes that were sent before the program began are its own to read. */
static void inetd_static_unread_a(struct t *t)
{
	t_sync(t);
	inetd_static(t, fork, false, false);
}

static void unread_b(struct t *t, size_t before)
{
	char buf[8];

	t_send_all(t, t->fd, before, 1000, 3);
	t_sync(t);
	t_sync(t);
	t_recv_all(t, t->fd, before, 3000);
	t_send_all(t, t->fd, 50000, 50000, 4);
	t_recv_all(t, t->fd, 50000, 50000);
	T(shutdown(t->fd, SHUT_WR));
	T(read(t->fd, buf, 8));
}

static void few_unread_b(struct t *t)
{
	unread_b(t, 1500);
}

static void some_unread_b(struct t *t)
{
	unread_b(t, 30000);
}

static void many_unread_b(struct t *t)
{
	unread_b(t, 300000);
}

/* And a peer that is busy with other things when it happens. */
static void busy_b(struct t *t)
{
	char buf[8];

	t_send_all(t, t->fd, 1500, 1000, 3);
	t_sync(t);
	t_sync(t);
	t_nap_ms(600);
	t_recv_all(t, t->fd, 1500, 3000);
	T(shutdown(t->fd, SHUT_WR));
	T(read(t->fd, buf, 8));
}

/* It holds the socket itself, not something in its place. */
static void inetd_static_name_a(struct t *t)
{
	inetd_static(t, fork, false, true);
}

static void name_b(struct t *t)
{
	char buf[100];

	TD(buf, recv(t->fd, buf, 5, MSG_WAITALL));
	t_sync(t);
	T(write(t->fd, "meow\n", 5));
	TD(buf, recv(t->fd, buf, 5, MSG_WAITALL));
	T(shutdown(t->fd, SHUT_WR));
	T(read(t->fd, buf, 100));
}

static void inetd_static_fd_a(struct t *t)
{
	inetd_static(t, fork, true, false);
}

static void spawn_a(struct t *t)
{
	posix_spawn_file_actions_t actions;
	char *const argv[] = {(char *)"cat", NULL};
	pid_t pid = -1;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, t->fd, 0);
	posix_spawn_file_actions_adddup2(&actions, t->fd, 1);
	T(posix_spawnp(&pid, "cat", &actions, NULL, argv, environ));
	posix_spawn_file_actions_destroy(&actions);
	close(t->fd);
	t_sync(t);
	t_wait_child(t, pid);
}

/* A shell in between, which forks and execs in its turn. */
static void shell_a(struct t *t)
{
	pid_t pid = fork();

	if (pid == 0) {
		as_stdio(t->fd);
		execl("/bin/sh", "sh", "-c", "cat; exit 5", NULL);
		_exit(127);
	}
	close(t->fd);
	t_sync(t);
	t_wait_child(t, pid);
}

/* Children that have nothing to do with the connection, which has its flag or not. */
static void cloexec_a(struct t *t)
{
	char command[64], buf[16];
	FILE *f;

	snprintf(command, sizeof(command), "test -e /proc/self/fd/%d", t->fd);
	t_log(t, "inherited: %d", system(command) == 0);
	T(fcntl(t->fd, F_SETFD, FD_CLOEXEC));
	t_log(t, "inherited: %d", system(command) == 0);
	f = popen("echo from popen", "r");
	TD(buf, read(fileno(f), buf, 10));
	T(pclose(f));
	T(write(t->fd, "still", 5));
	t_sync(t);
	TD(buf, read(t->fd, buf, 16));
}

static void cloexec_b(struct t *t)
{
	char buf[16];

	t_sync(t);
	TD(buf, read(t->fd, buf, 16));
	T(write(t->fd, "mine", 4));
}

/* The last holder execs without it: that is its end. */
static void cloexec_end_a(struct t *t)
{
	pid_t pid = fork();

	if (pid == 0) {
		fcntl(t->fd, F_SETFD, FD_CLOEXEC);
		execlp("sleep", "sleep", "0.1", NULL);
		_exit(127);
	}
	close(t->fd);
	t_sync(t);
	t_wait_child(t, pid);
}

static void cloexec_end_b(struct t *t)
{
	char buf[8];

	t_sync(t);
	T(read(t->fd, buf, 8));
}

/*
 * As daemons do: closes every number, then opens files and sockets, which get those numbers. What
 * a library had hidden there must not be missed, nor get bytes that are not its own.
 */
static void close_all_a(struct t *t)
{
	char name[] = "/tmp/battery.XXXXXX", buf[100];
	int fd, port, listener, client, served;

	for (int i = 3; i < 1024; i++)
		close(i);
	fd = mkstemp(name);
	T(fd);
	T(write(fd, "a file", 6));
	T(pread(fd, buf, 100, 0));
	unlink(name);
	listener = t_listen(t, &port);
	T(listener);
	client = t_connect(t, port);
	served = accept(listener, NULL, NULL);
	t_log(t, "numbers %d %d", client, served);
	for (int i = 0; i < 12; i++) {
		if (write(client, "ask", 3) != 3 || read(served, buf, 100) != 3 ||
		    write(served, "answer", 6) != 6 || read(client, buf, 100) != 6)
			t_log(t, "failed in round %d", i);
		t_nap_ms(1);
	}
	T(close(client));
	T(read(served, buf, 100));
	T(pread(fd, buf, 100, 0));
	T(close_range(3, ~0u, 0));
	T(open("/dev/null", O_RDWR));
	listener = t_listen(t, &port);
	client = t_connect(t, port);
	served = accept(listener, NULL, NULL);
	T(write(client, "once more", 9));
	TD(buf, read(served, buf, 100));
}

static void close_all_b(struct t *t)
{
	char buf[8];

	T(read(t->fd, buf, 8)); /* the end */
}

static void exec_missing_a(struct t *t)
{
	char buf[16];

	T(execl("/nonexistent/program", "x", NULL));
	T(write(t->fd, "alive", 5));
	TD(buf, recv(t->fd, buf, 5, MSG_WAITALL));
}

static void exec_missing_b(struct t *t)
{
	char buf[16];

	TD(buf, recv(t->fd, buf, 5, MSG_WAITALL));
	T(write(t->fd, "alive", 5));
}

const struct t_case t_exec_cases[] = {
	{"exec.self", self_a, self_b, T_NO_THREAD | T_FAMILIES, NULL},
	{"exec.inetd", inetd_a, client_b, T_NO_THREAD, NULL},
	{"exec.inetd_vfork", inetd_vfork_a, client_b, T_NO_THREAD, NULL},
	{"exec.inetd_vfork_closes", inetd_vfork_closes_a, client_b, T_NO_THREAD, NULL},
	{"exec.inetd_closes_on_exec", inetd_closes_on_exec_a, client_b, T_NO_THREAD, NULL},
	{"exec.inetd_empty_environment", inetd_empty_environment_a, client_b, T_NO_THREAD, NULL},
	{"exec.inetd_static", inetd_static_a, client_b, T_NO_THREAD, NULL},
	{"exec.inetd_static_fd", inetd_static_fd_a, client_b, T_NO_THREAD, NULL},
	{"exec.spawn_static", spawn_static_a, spawn_static_b, T_NO_THREAD, NULL},
	{"exec.static_name", inetd_static_name_a, name_b, T_NO_THREAD | T_FAMILIES, NULL},
	{"exec.static_few_unread", inetd_static_unread_a, few_unread_b, T_NO_THREAD | T_FAMILIES,
	 NULL},
	{"exec.static_some_unread", inetd_static_unread_a, some_unread_b, T_NO_THREAD, NULL},
	{"exec.static_many_unread", inetd_static_unread_a, many_unread_b, T_NO_THREAD, NULL},
	{"exec.static_busy_peer", inetd_static_unread_a, busy_b, T_NO_THREAD, NULL},
	{"exec.spawn", spawn_a, client_b, T_NO_THREAD, NULL},
	{"exec.shell", shell_a, client_b, T_NO_THREAD, NULL},
	{"exec.cloexec", cloexec_a, cloexec_b, T_NO_THREAD, NULL},
	{"exec.cloexec_end", cloexec_end_a, cloexec_end_b, T_NO_THREAD, NULL},
	{"exec.close_all", close_all_a, close_all_b, T_NO_THREAD, NULL},
	{"exec.missing", exec_missing_a, exec_missing_b, T_NO_THREAD, NULL},
	{NULL, NULL, NULL, 0, NULL},
};
