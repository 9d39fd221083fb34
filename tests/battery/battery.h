/* SPDX-License-Identifier: MIT */
/*
 * The battery: small socket programs whose every result is written down, so that two runs of the
 * same case, one over kernel TCP and one over Tutti, can be compared line by line. It links nothing
 * of Tutti.
 *
 * A case has a role 'a' and mostly a role 'b', which run as two programs, as parent and child, or
 * as two threads; a solo case has both ends in one thread. The harness connects the two (b
 * connects, a accepts) and, when asked for, warms the connection up by small messages each way, so
 * that what follows happens on an accelerated connection.
 *
 * A transcript holds nothing that depends on timing, ports, process or descriptor numbers. Each
 * line begins with the letter of its role; only the order of lines of one role counts.
 */
#ifndef BATTERY_H
#define BATTERY_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/sockios.h>

enum topology { TOP_SPLIT, TOP_FORK, TOP_THREAD, TOP_ONE };

/* The harness's own descriptors lie from here on, out of the way of cases. */
#define T_HIGH_FD 700

struct t {
	char role;
	int fd;	  /* this role's end of the connection; -1 in raw cases */
	int peer; /* solo: the other end */
	int sync_fd;
	pid_t peer_pid; /* role a: process of role b; 0 with threads */
	bool warm;
	bool swap;   /* a connects, b accepts */
	bool mapped; /* IPv6 sockets with IPv4-mapped addresses */
	int family;
	enum topology topology;
	const char *self; /* path of this program */
};

enum {
	T_SOLO = 1,	 /* a alone, both ends in its thread: t->fd and t->peer */
	T_RAW = 2,	 /* makes its connections itself */
	T_COLD = 4,	 /* has no connection that could be warm */
	T_NO_THREAD = 8, /* concerns processes or their signals */
	T_FAMILIES = 16, /* worth a run over IPv6 and over mapped addresses too */
	T_TCP_OK = 32,	 /* may do without acceleration, for the reason in why */
};

struct t_case {
	const char *name;
	void (*a)(struct t *t);
	void (*b)(struct t *t);
	int flags;
	const char *why; /* for T_TCP_OK */
};

/* Writes a line of the transcript. */
void t_log(struct t *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Writes "what -> result errno"; returns the result and leaves errno alone. */
long t_ret(struct t *t, const char *what, long ret);
/* The same, with the data that was received. */
long t_data(struct t *t, const char *what, const void *buf, long ret);

/* A call, its text and its result. */
#define T(call) t_ret(t, #call, (long)(call))
#define TD(buf, call) t_data(t, #call, buf, (long)(call))

const char *t_errno(int err);
uint32_t t_hash(const void *buf, size_t n);
uint32_t t_hash_more(uint32_t hash, const void *buf, size_t n);
/* Bytes of a stream from position pos on. */
void t_fill(void *buf, size_t n, uint64_t pos, unsigned int seed);
bool t_same(const void *buf, size_t n, uint64_t pos, unsigned int seed);

/* Waits for the other role to come to its next t_sync; what was sent before has then arrived. */
void t_sync(struct t *t);
/* Hands a number over, outside of the connection. */
void t_tell(struct t *t, int value);
int t_hear(struct t *t);
/* Gives the kernel time for what happens behind a call: a reset that comes back, say. */
void t_settle(void);
void t_nap_ms(int ms);

/* Addresses of the family under test. */
socklen_t t_address(struct t *t, int port, struct sockaddr_storage *ret_address);
int t_socket(struct t *t);
int t_listen(struct t *t, int *ret_port);
int t_connect(struct t *t, int port);
int t_port(int fd);
/* Both roles call it: one more connection, warmed up when the case is. */
int t_open(struct t *t);
/* The same for so many at once; of some hundred the first is not much older than the last. */
void t_open_many(struct t *t, int *ret_fds, int n);
/* Both ends in one thread. */
void t_open_pair(struct t *t, int *ret_a, int *ret_b);
void t_warm(struct t *t, int fd);

/* Moves total bytes in pieces of chunk; logs the number, the hash, and how it ended. */
void t_send_all(struct t *t, int fd, size_t total, size_t chunk, unsigned int seed);
void t_recv_all(struct t *t, int fd, size_t total, size_t chunk);
/* Reads to the end, checks the pattern, and logs neither number nor hash. */
void t_recv_pattern(struct t *t, int fd, unsigned int seed);
/* Sends without blocking until no more goes in; returns how much did. */
size_t t_fill_up(struct t *t, int fd, unsigned int seed);
/* Reads exactly total bytes and says whether they were right. */
void t_drain(struct t *t, int fd, size_t total, unsigned int seed);

int t_poll(struct t *t, int fd, short events, int timeout_ms);
const char *t_events(unsigned int events);
const char *t_msg_flags(int flags);

/* Signals: a handler that counts, for this thread. */
void t_count_signal(int sig, int sa_flags);
int t_signals(int sig);
void t_alarm_ms(int ms);
void t_alarm_every_ms(int ms);
/* SIGPIPEs since the last call, into the transcript. */
void t_sigpipes(struct t *t);

void t_nonblock(int fd, bool on);
/* Kills role b and waits until it is dead. */
void t_kill_peer(struct t *t);
/* Waits for a child and writes down how it ended. */
void t_wait_child(struct t *t, pid_t pid);
/* Runs fn as a thread; joins and returns what it returned. */
pthread_t t_thread(void *(*fn)(void *), void *arg);
/* The same, with a copy of t that has the role's capital letter: its lines have an order of their
 * own. */
pthread_t t_second(void *(*fn)(void *), struct t *t);
long t_join(pthread_t thread);

/* The other half of exec.self: what `battery --continue FD` does. */
void t_exec_continue(struct t *t);

extern const struct t_case t_io_cases[], t_close_cases[], t_kill_cases[], t_poll_cases[],
	t_epoll_cases[], t_epoll_more_cases[], t_fork_cases[], t_exec_cases[], t_threads_cases[],
	t_options_cases[], t_connect_cases[], t_signal_cases[], t_files_cases[], t_change_cases[],
	t_orders_cases[], t_full_cases[], t_other_cases[], t_fortify_cases[];

#endif
