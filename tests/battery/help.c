/* SPDX-License-Identifier: MIT */
/* What some cases use: names of flags, signals, threads, children. */
#include "battery.h"

/* --- names ------------------------------------------------------------------------------------- */

struct bit_name {
	unsigned int bit;
	const char *name;
};

static const char *bits(const struct bit_name *names, unsigned int value, char *text, size_t size)
{
	text[0] = 0;
	for (; names->name; names++) {
		if (!(value & names->bit))
			continue;
		value &= ~names->bit;
		if (text[0])
			strncat(text, "|", size - strlen(text) - 1);
		strncat(text, names->name, size - strlen(text) - 1);
	}
	if (value)
		snprintf(text + strlen(text), size - strlen(text), "+0x%x", value);
	return text[0] ? text : "0";
}

/* poll's and epoll's bits have the same values. */
const char *t_events(unsigned int events)
{
	static const struct bit_name names[] = {
		{POLLIN, "IN"},		{POLLPRI, "PRI"},	{POLLOUT, "OUT"},
		{POLLERR, "ERR"},	{POLLHUP, "HUP"},	{POLLNVAL, "NVAL"},
		{POLLRDNORM, "RDNORM"}, {POLLRDBAND, "RDBAND"}, {POLLWRNORM, "WRNORM"},
		{POLLWRBAND, "WRBAND"}, {POLLRDHUP, "RDHUP"},	{0, NULL},
	};
	static __thread char text[4][128];
	static __thread int turn;

	turn = (turn + 1) % 4;
	return bits(names, events, text[turn], sizeof(text[turn]));
}

const char *t_msg_flags(int flags)
{
	static const struct bit_name names[] = {
		{MSG_OOB, "OOB"}, {MSG_TRUNC, "TRUNC"},	      {MSG_CTRUNC, "CTRUNC"},
		{MSG_EOR, "EOR"}, {MSG_ERRQUEUE, "ERRQUEUE"}, {MSG_PEEK, "PEEK"},
		{0, NULL},
	};
	static __thread char text[128];

	return bits(names, (unsigned int)flags, text, sizeof(text));
}

int t_poll(struct t *t, int fd, short events, int timeout_ms)
{
	struct pollfd p = {fd, events, 0};
	int r = poll(&p, 1, timeout_ms);

	if (r < 0)
		t_log(t, "poll(%s) -> -1 %s", t_events((unsigned short)events), t_errno(errno));
	else
		t_log(t, "poll(%s, %d) -> %d %s", t_events((unsigned short)events), timeout_ms, r,
		      t_events((unsigned short)p.revents));
	return p.revents;
}

/* --- signals ----------------------------------------------------------------------------------- */

static __thread volatile sig_atomic_t counts[NSIG];

static void counter(int sig)
{
	counts[sig]++;
}

void t_count_signal(int sig, int sa_flags)
{
	struct sigaction sa;

	memset(&sa, 0, sizeof(sa));
	sa.sa_handler = counter;
	sa.sa_flags = sa_flags;
	sigaction(sig, &sa, NULL);
}

int t_signals(int sig)
{
	int n = counts[sig];

	counts[sig] = 0;
	return n;
}

void t_sigpipes(struct t *t)
{
	t_log(t, "SIGPIPE: %d", t_signals(SIGPIPE));
}

void t_alarm_ms(int ms)
{
	struct itimerval it = {{0, 0}, {ms / 1000, ms % 1000 * 1000}};

	setitimer(ITIMER_REAL, &it, NULL);
}

void t_alarm_every_ms(int ms)
{
	struct itimerval it = {{0, ms * 1000}, {0, ms * 1000}};

	setitimer(ITIMER_REAL, &it, NULL);
}

/* --- descriptors, processes, threads ----------------------------------------------------------- */

void t_nonblock(int fd, bool on)
{
	int flags = fcntl(fd, F_GETFL);

	fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK);
}

void t_kill_peer(struct t *t)
{
	siginfo_t info;

	kill(t->peer_pid, SIGKILL);
	/* Its sockets are closed before it can be waited for. */
	while (waitid(P_PID, (id_t)t->peer_pid, &info, WEXITED | WNOWAIT) && errno == EINTR)
		;
	t_settle();
}

void t_wait_child(struct t *t, pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0) {
		if (errno == EINTR)
			continue;
		t_log(t, "wait: %s", t_errno(errno));
		return;
	}
	if (WIFEXITED(status))
		t_log(t, "child: exit %d", WEXITSTATUS(status));
	else
		t_log(t, "child: SIG%s", sigabbrev_np(WTERMSIG(status)));
}

pthread_t t_thread(void *(*fn)(void *), void *arg)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, fn, arg))
		abort();
	return thread;
}

pthread_t t_second(void *(*fn)(void *), struct t *t)
{
	struct t *copy = malloc(sizeof(*copy));

	*copy = *t;
	copy->role = (char)(t->role - 'a' + 'A');
	return t_thread(fn, copy);
}

long t_join(pthread_t thread)
{
	void *ret;

	pthread_join(thread, &ret);
	return (long)ret;
}
