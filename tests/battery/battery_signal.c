/* SPDX-License-Identifier: MIT */
/* Signals and time-outs in the middle of calls. */
#include "battery.h"

#include <setjmp.h>

static void later_b(struct t *t)
{
	t_sync(t);
	t_nap_ms(80);
	T(write(t->fd, "data", 4));
}

static void eintr_read_a(struct t *t)
{
	char buf[100];

	t_count_signal(SIGALRM, 0);
	t_alarm_ms(30);
	T(read(t->fd, buf, 100));
	t_alarm_ms(30);
	T(recv(t->fd, buf, 100, MSG_PEEK));
	t_alarm_ms(30);
	T(recvmsg(t->fd, &(struct msghdr){.msg_iov = &(struct iovec){buf, 100}, .msg_iovlen = 1},
		  0));
	t_log(t, "signals %d", t_signals(SIGALRM));
	t_sync(t);
	TD(buf, read(t->fd, buf, 100));
}

static void restart_read_a(struct t *t)
{
	char buf[100];

	t_count_signal(SIGALRM, SA_RESTART);
	t_sync(t);
	t_alarm_ms(30);
	TD(buf, read(t->fd, buf, 100));
	t_log(t, "signals %d", t_signals(SIGALRM));
}

/* A part is there when the signal comes: that is the result. */
static void eintr_waitall_a(struct t *t)
{
	char buf[100];

	t_count_signal(SIGALRM, 0);
	t_sync(t);
	t_alarm_ms(160);
	TD(buf, recv(t->fd, buf, 100, MSG_WAITALL));
	t_log(t, "signals %d", t_signals(SIGALRM));
}

static void eintr_write_a(struct t *t)
{
	size_t n;
	char *big = calloc(1, 1u << 24);
	ssize_t r;

	t_count_signal(SIGALRM, 0);
	n = t_fill_up(t, t->fd, 1);
	t_alarm_ms(30);
	T(write(t->fd, "x", 1));
	t_tell(t, (int)n);
	t_sync(t);
	t_alarm_ms(60);
	r = write(t->fd, big, 1u << 24); /* interrupted in the middle */
	t_log(t, "write -> %s", r > 0 && r < 1 << 24 ? "a part" : r < 0 ? t_errno(errno) : "all");
	t_tell(t, (int)r);
	t_log(t, "signals %d", t_signals(SIGALRM));
	free(big);
	t_sync(t);
}

static void eintr_write_b(struct t *t)
{
	static char buf[65536];
	size_t left;
	bool zeros = true;

	t_drain(t, t->fd, (size_t)t_hear(t), 1);
	t_sync(t);
	left = (size_t)t_hear(t);
	while (left) {
		ssize_t r = read(t->fd, buf, left < sizeof(buf) ? left : sizeof(buf));

		if (r <= 0)
			break;
		for (ssize_t i = 0; i < r; i++)
			zeros = zeros && !buf[i];
		left -= (size_t)r;
	}
	t_log(t, "left %zu, %s", left, zeros ? "right" : "WRONG");
	T(recv(t->fd, buf, 1, MSG_DONTWAIT));
	t_sync(t);
}

static void restart_write_a(struct t *t)
{
	size_t n;

	t_count_signal(SIGALRM, SA_RESTART);
	n = t_fill_up(t, t->fd, 1);
	t_tell(t, (int)n);
	t_alarm_ms(20);
	T(write(t->fd, "x", 1)); /* until the other side reads */
	t_log(t, "signals %d", t_signals(SIGALRM));
	t_sync(t);
}

static void restart_write_b(struct t *t)
{
	int n = t_hear(t);
	char buf[8];

	t_nap_ms(80);
	t_drain(t, t->fd, (size_t)n, 1);
	t_sync(t);
	TD(buf, read(t->fd, buf, 8));
}

static void eintr_accept(struct t *t)
{
	int port, listener = t_listen(t, &port);

	t_count_signal(SIGALRM, 0);
	t_alarm_ms(30);
	T(accept(listener, NULL, NULL));
	t_alarm_ms(30);
	T(accept4(listener, NULL, NULL, SOCK_CLOEXEC));
	t_log(t, "signals %d", t_signals(SIGALRM));
}

/* A storm of signals while data moves: nothing is lost, nothing twice. */
static void storm_a(struct t *t)
{
	t_count_signal(SIGALRM, SA_RESTART);
	t_alarm_every_ms(1);
	t_send_all(t, t->fd, 3000000, 10000, 1);
	t_recv_all(t, t->fd, 3000000, 10000);
	t_alarm_ms(0);
	t_log(t, "signals came: %d", t_signals(SIGALRM) > 0);
}

static void storm_b(struct t *t)
{
	t_recv_all(t, t->fd, 3000000, 9000);
	t_nap_ms(20);
	t_send_all(t, t->fd, 3000000, 7000, 2);
}

/* --- handlers that use the socket -------------------------------------------------------------- */

static int handler_fd;

static void write_in_handler(int sig)
{
	int err = errno;

	if (write(handler_fd, "!", 1) != 1)
		abort();
	errno = err;
}

static void handler_writes_a(struct t *t)
{
	struct sigaction sa = {.sa_handler = write_in_handler, .sa_flags = SA_RESTART};
	char buf[8];

	handler_fd = t->fd;
	sigaction(SIGALRM, &sa, NULL);
	t_sync(t);
	t_alarm_ms(30);
	TD(buf, read(t->fd, buf, 8)); /* asleep in read when the handler writes */
	t_sync(t);
	t_alarm_every_ms(1);
	for (int i = 0; i < 3000; i++)
		if (write(t->fd, "........", 8) != 8)
			t_log(t, "short");
	t_alarm_ms(0);
	T(shutdown(t->fd, SHUT_WR));
}

static void handler_writes_b(struct t *t)
{
	static char buf[65536];
	int dots = 0, others = 0;
	ssize_t r;

	t_sync(t);
	TD(buf, read(t->fd, buf, 8));
	T(write(t->fd, "seen", 4));
	t_sync(t);
	while ((r = read(t->fd, buf, sizeof(buf))) > 0)
		for (ssize_t i = 0; i < r; i++) {
			dots += buf[i] == '.';
			others += buf[i] != '.' && buf[i] != '!';
		}
	t_log(t, "dots %d, others %d", dots, others);
}

static sigjmp_buf jump;

static void jump_out(int sig)
{
	siglongjmp(jump, 1);
}

static void handler_jumps_a(struct t *t)
{
	struct sigaction sa = {.sa_handler = jump_out};
	volatile int jumps = 0;
	char buf[8];

	sigaction(SIGALRM, &sa, NULL);
	if (sigsetjmp(jump, 1)) {
		jumps = jumps + 1;
	}
	if (jumps < 3) {
		t_alarm_ms(20);
		T(read(t->fd, buf, 8));
	}
	t_log(t, "jumps %d", jumps);
	t_sync(t);
	TD(buf, read(t->fd, buf, 8));
	T(write(t->fd, "fine", 4));
	t_sync(t);
}

static void handler_jumps_b(struct t *t)
{
	char buf[8];

	t_sync(t);
	T(write(t->fd, "hello", 5));
	t_sync(t);
	TD(buf, read(t->fd, buf, 8));
}

/* --- SIGIO ------------------------------------------------------------------------------------- */

static void sigio_a(struct t *t)
{
	sigset_t set;
	struct timespec limit = {2, 0};
	char buf[8];

	sigemptyset(&set);
	sigaddset(&set, SIGIO);
	sigprocmask(SIG_BLOCK, &set, NULL);
	T(fcntl(t->fd, F_SETOWN, getpid()));
	T(fcntl(t->fd, F_GETOWN) == getpid());
	T(fcntl(t->fd, F_SETFL, O_ASYNC | O_NONBLOCK));
	T(fcntl(t->fd, F_GETFL) & (O_ASYNC | O_NONBLOCK));
	while (sigtimedwait(&set, NULL, &(struct timespec){0, 0}) == SIGIO)
		;
	t_sync(t);
	T(sigtimedwait(&set, NULL, &limit) == SIGIO);
	TD(buf, read(t->fd, buf, 8));
}

/* --- time-outs --------------------------------------------------------------------------------- */

static void set_time(struct t *t, int fd, int option, int ms)
{
	struct timeval tv = {ms / 1000, ms % 1000 * 1000}, got = {-1, -1};
	socklen_t len = sizeof(got);

	T(setsockopt(fd, SOL_SOCKET, option, &tv, sizeof(tv)));
	T(getsockopt(fd, SOL_SOCKET, option, &got, &len));
	t_log(t, "%d.%06d", (int)got.tv_sec, (int)got.tv_usec);
}

static long spent_ms(struct timespec *since)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (now.tv_sec - since->tv_sec) * 1000 + (now.tv_nsec - since->tv_nsec) / 1000000;
}

static void rcvtimeo_a(struct t *t)
{
	struct timespec start;
	char buf[100];

	set_time(t, t->fd, SO_RCVTIMEO, 60);
	clock_gettime(CLOCK_MONOTONIC, &start);
	T(read(t->fd, buf, 100));
	t_log(t, "waited: %d", spent_ms(&start) >= 55);
	T(recv(t->fd, buf, 100, MSG_PEEK));
	T(recv(t->fd, buf, 100, MSG_DONTWAIT));
	t_count_signal(SIGALRM, SA_RESTART);
	t_alarm_ms(20);
	T(read(t->fd, buf, 100)); /* with a time-out it is not restarted */
	t_sync(t);
	TD(buf, recv(t->fd, buf, 100, MSG_WAITALL)); /* a part, then time is over */
	set_time(t, t->fd, SO_RCVTIMEO, 0);
	t_sync(t);
	TD(buf, read(t->fd, buf, 100));
}

static void rcvtimeo_b(struct t *t)
{
	T(write(t->fd, "part", 4));
	t_sync(t);
	t_sync(t);
	t_nap_ms(100);
	T(write(t->fd, "late", 4));
}

static void rcvtimeo_before_a(struct t *t)
{
	char buf[100];

	set_time(t, t->fd, SO_RCVTIMEO, 60);
	T(read(t->fd, buf, 100));
	T(read(t->fd, buf, 100));
	t_sync(t);
	TD(buf, read(t->fd, buf, 100)); /* still within the time */
}

static void rcvtimeo_before_b(struct t *t)
{
	t_sync(t);
	t_nap_ms(10);
	T(write(t->fd, "in time", 7));
}

static void sndtimeo_a(struct t *t)
{
	char *big = calloc(1, 1u << 25);
	ssize_t r;

	set_time(t, t->fd, SO_SNDTIMEO, 50);
	r = write(t->fd, big, 1u << 25);
	t_log(t, "write -> %s", r > 0 && r < 1 << 25 ? "a part" : r < 0 ? t_errno(errno) : "all");
	T(send(t->fd, big, 1u << 25, MSG_DONTWAIT) < 1 << 25);
	do /* the kernel's buffers may have grown since */
		r = write(t->fd, big, 1u << 22);
	while (r > 0);
	T(r);
	free(big);
}

static void sndtimeo_b(struct t *t)
{
}

/* The rest belongs to the low-water mark: how much must be there before one is woken. */
static void lowat_a(struct t *t)
{
	int n = 5;
	socklen_t len = sizeof(n);
	char buf[100];

	T(setsockopt(t->fd, SOL_SOCKET, SO_RCVLOWAT, &n, sizeof(n)));
	T(getsockopt(t->fd, SOL_SOCKET, SO_RCVLOWAT, &n, &len));
	t_log(t, "low-water mark %d", n);
	t_sync(t);
	t_sync(t);
	t_poll(t, t->fd, POLLIN, 20);
	TD(buf, recv(t->fd, buf, 100, MSG_DONTWAIT | MSG_PEEK));
	t_sync(t);
	t_sync(t);
	t_poll(t, t->fd, POLLIN, 1000);
	TD(buf, recv(t->fd, buf, 100, 0));
	t_sync(t);
	TD(buf, recv(t->fd, buf, 100, 0)); /* sleeps through the first part */
	t_sync(t);
	t_poll(t, t->fd, POLLIN, 1000); /* the end counts, however little there is */
	TD(buf, recv(t->fd, buf, 100, 0));
}

static void lowat_b(struct t *t)
{
	t_sync(t);
	T(write(t->fd, "123", 3));
	t_sync(t);
	t_sync(t);
	T(write(t->fd, "45", 2));
	t_sync(t);
	t_sync(t);
	t_settle();
	T(write(t->fd, "abc", 3));
	t_settle();
	T(write(t->fd, "de", 2));
	t_sync(t);
	T(write(t->fd, "z", 1));
	T(shutdown(t->fd, SHUT_WR));
}

/*
 * A signal while the call waits hot, a few microseconds after it was entered: it interrupts as one
 * that comes in a long sleep.
 */
static volatile sig_atomic_t hot_signals;

static void on_hot(int sig)
{
	(void)sig;
	hot_signals++;
}

static ssize_t hot_wait(struct t *t, int how, char *buf)
{
	struct pollfd p = {t->fd, POLLIN, 0};
	struct epoll_event e = {EPOLLIN, {.u64 = 0}};
	static int set = -1;

	if (how == 1 && poll(&p, 1, -1) < 0)
		return -1;
	if (how == 2) {
		if (set < 0) {
			set = epoll_create1(EPOLL_CLOEXEC);
			epoll_ctl(set, EPOLL_CTL_ADD, t->fd, &e);
		}
		if (epoll_wait(set, &e, 1, -1) < 0)
			return -1;
	}
	return recv(t->fd, buf, 8, 0);
}

static void hot_a(struct t *t)
{
	struct sigaction act = {.sa_handler = on_hot};
	char buf[8];

	sigaction(SIGUSR1, &act, NULL);
	t_tell(t, (int)getpid());
	for (int how = 0; how < 3; how++) {
		int interrupted = 0, wrong = 0;

		hot_signals = 0;
		for (int i = 0; i < 200; i++) {
			ssize_t r;

			if (write(t->fd, "question", 8) != 8)
				wrong++;
			r = hot_wait(t, how, buf);
			if (r < 0 && errno == EINTR)
				interrupted++;
			else if (r != 8)
				wrong++;
		}
		t_log(t, "%d: %d signals, %s interrupted, %d wrong", how, (int)hot_signals,
		      interrupted >= 2 ? "several" : "hardly any", wrong);
	}
}

static void hot_b(struct t *t)
{
	pid_t asker = t_hear(t);
	char buf[8];

	for (int i = 0; i < 600; i++) {
		if (recv(t->fd, buf, 8, MSG_WAITALL) != 8)
			t_log(t, "no question %d", i);
		if (i % 20 == 19) {
			struct timespec begin, now;

			/* By now it is inside its call. */
			clock_gettime(CLOCK_MONOTONIC, &begin);
			do
				clock_gettime(CLOCK_MONOTONIC, &now);
			while ((now.tv_sec - begin.tv_sec) * 1000000000L + now.tv_nsec -
				       begin.tv_nsec <
			       20000);
			kill(asker, SIGUSR1);
			/* It was not yet: then it waits now, for nothing but an answer. */
			if (poll(&(struct pollfd){t->fd, POLLIN, 0}, 1, 200) == 0 &&
			    write(t->fd, "too late", 8) != 8)
				t_log(t, "no answer %d", i);
		} else if (write(t->fd, "response", 8) != 8) {
			t_log(t, "no answer %d", i);
		}
	}
}

/* A handler that leaves the call that it interrupted, reading and in the middle of much writing. */
static sigjmp_buf jump_to;

static void on_jump(int sig)
{
	(void)sig;
	siglongjmp(jump_to, 1);
}

static void jump_a(struct t *t)
{
	struct sigaction act = {.sa_handler = on_jump};
	char *buf = calloc(1, 300000);
	volatile int jumps = 0;

	sigaction(SIGALRM, &act, NULL);
	for (volatile int i = 0; i < 20; i++) {
		struct itimerval soon = {{0, 0}, {0, 500 + i * 100}};

		if (sigsetjmp(jump_to, 1)) {
			jumps++;
			continue;
		}
		setitimer(ITIMER_REAL, &soon, NULL);
		if (i % 2)
			t_poll(t, t->fd, POLLIN, -1);
		else
			T(read(t->fd, buf, 1));
	}
	t_log(t, "%d jumps out of waiting", jumps);
	t_sync(t);
	jumps = 0;
	for (volatile int i = 0; i < 40; i++) {
		struct itimerval soon = {{0, 0}, {0, 200 + i * 31}};

		if (sigsetjmp(jump_to, 1)) {
			jumps++;
			continue;
		}
		setitimer(ITIMER_REAL, &soon, NULL);
		for (;;)
			send(t->fd, buf, 300000, 0);
	}
	t_log(t, "%d jumps out of sending", jumps);
	memset(buf, 'e', 1000);
	for (int i = 0; i < 1000; i++)
		if (send(t->fd, buf, 1, 0) != 1)
			t_log(t, "send %d: %s", i, t_errno(errno));
	T(close(t->fd));
	t_sync(t);
	free(buf);
}

static void jump_b(struct t *t)
{
	char *buf = malloc(1u << 20);
	long last = 0;
	ssize_t r;

	t_sync(t);
	while ((r = read(t->fd, buf, 1u << 20)) > 0)
		for (ssize_t i = 0; i < r; i++)
			last = buf[i] == 'e' ? last + 1 : 0;
	t_log(t, "%ld at last, then %s", last, r < 0 ? t_errno(errno) : "the end");
	t_sync(t);
	free(buf);
}

static void info_handler(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	hot_signals += info && info->si_pid == getpid() ? 100 : 1000;
}

static void show_action(struct t *t, int sig)
{
	struct sigaction old;

	T(sigaction(sig, NULL, &old));
	t_log(t, "%s, flags %x",
	      old.sa_flags & SA_SIGINFO	  ? old.sa_sigaction == info_handler ? "info" : "other"
	      : old.sa_handler == on_hot  ? "plain"
	      : old.sa_handler == SIG_DFL ? "default"
	      : old.sa_handler == SIG_IGN ? "ignored"
					  : "other",
	      (unsigned int)old.sa_flags & 0xf0000007);
}

/* What a program sees of its own handlers. */
static void actions(struct t *t)
{
	struct sigaction act = {.sa_handler = on_hot, .sa_flags = SA_RESTART}, old;

	show_action(t, SIGUSR1);
	T(sigaction(SIGUSR1, &act, NULL));
	show_action(t, SIGUSR1);
	act.sa_sigaction = info_handler;
	act.sa_flags = SA_SIGINFO;
	T(sigaction(SIGUSR1, &act, &old));
	t_log(t, "before: %d", old.sa_handler == on_hot);
	show_action(t, SIGUSR1);
	hot_signals = 0;
	raise(SIGUSR1);
	T(signal(SIGUSR1, on_hot) != SIG_ERR);
	raise(SIGUSR1);
	t_log(t, "handled %d", (int)hot_signals);
	show_action(t, SIGUSR1);
	T(siginterrupt(SIGUSR1, 1));
	show_action(t, SIGUSR1);
	T(signal(SIGUSR1, SIG_IGN) == on_hot);
	T(signal(SIGUSR1, on_hot) == SIG_IGN);
	show_action(t, SIGUSR1);
	act.sa_handler = on_hot;
	act.sa_flags = (int)SA_RESETHAND;
	T(sigaction(SIGUSR2, &act, NULL));
	raise(SIGUSR2);
	show_action(t, SIGUSR2);
	act.sa_sigaction = info_handler;
	act.sa_flags = (int)(SA_RESETHAND | SA_SIGINFO);
	T(sigaction(SIGUSR2, &act, NULL));
	raise(SIGUSR2);
	show_action(t, SIGUSR2);
	t_log(t, "handled %d", (int)hot_signals);
	T(signal(SIGKILL, on_hot) == SIG_ERR);
	T(signal(1000, on_hot) == SIG_ERR);
	act.sa_flags = 0;
	act.sa_handler = on_hot;
	T(sigaction(SIGSEGV, &act, NULL));
	show_action(t, SIGSEGV);
}

const struct t_case t_signal_cases[] = {
	{"signal.eintr_read", eintr_read_a, later_b, T_NO_THREAD, NULL},
	{"signal.restart_read", restart_read_a, later_b, T_NO_THREAD, NULL},
	{"signal.eintr_waitall", eintr_waitall_a, later_b, T_NO_THREAD, NULL},
	{"signal.eintr_write", eintr_write_a, eintr_write_b, T_NO_THREAD, NULL},
	{"signal.restart_write", restart_write_a, restart_write_b, T_NO_THREAD, NULL},
	{"signal.eintr_accept", eintr_accept, NULL, T_SOLO | T_RAW | T_COLD, NULL},
	{"signal.storm", storm_a, storm_b, T_NO_THREAD, NULL},
	{"signal.handler_writes", handler_writes_a, handler_writes_b, T_NO_THREAD, NULL},
	{"signal.handler_jumps", handler_jumps_a, handler_jumps_b, T_NO_THREAD, NULL},
	{"signal.sigio", sigio_a, later_b, T_NO_THREAD, NULL},
	{"time.rcvtimeo", rcvtimeo_a, rcvtimeo_b, T_NO_THREAD, NULL},
	{"time.rcvtimeo_before", rcvtimeo_before_a, rcvtimeo_before_b, 0, NULL},
	{"time.sndtimeo", sndtimeo_a, sndtimeo_b, T_NO_THREAD, NULL},
	{"time.lowat", lowat_a, lowat_b, 0, NULL},
	{"signal.jump", jump_a, jump_b, T_NO_THREAD | T_FAMILIES, NULL},
	{"signal.hot", hot_a, hot_b, T_NO_THREAD | T_FAMILIES, NULL},
	{"signal.actions", actions, NULL, T_SOLO | T_RAW | T_COLD, NULL},
	{NULL, NULL, NULL, 0, NULL},
};
