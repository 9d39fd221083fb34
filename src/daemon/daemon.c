/* SPDX-License-Identifier: MIT */
#include "daemon.h"

#include "base/clock.h"
#include "daemon_int.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define WANTED_DESCRIPTORS 65536

#define EVENTS 64
#define LOG_LIMIT_BYTES (1 << 20)
#define ID_BLOCK 65536u

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

/* ---- log ---- */

static int log_fd = -1; /* the callback has no argument */
static int64_t log_bytes;

static void log_line(enum tt_log_level level, const char *text)
{
	static const char *const names[] = {"error", "warning", "info", "debug"};
	char line[640], when[32];
	struct timespec ts;
	struct tm tm;

	clock_gettime(CLOCK_REALTIME, &ts);
	localtime_r(&ts.tv_sec, &tm);
	strftime(when, sizeof(when), "%F %T", &tm);
	int n = snprintf(line, sizeof(line), "%s tuttid[%d] %s: %s\n", when, (int)getpid(),
			 names[level], text);

	if (n >= (int)sizeof(line))
		n = (int)sizeof(line) - 1;
	if (log_fd != STDERR_FILENO && log_bytes + n > LOG_LIMIT_BYTES) {
		if (ftruncate(log_fd, 0) < 0)
			return;
		log_bytes = 0;
	}
	if (write(log_fd, line, (size_t)n) == n)
		log_bytes += n;
}

static void open_log(struct tt_daemon *d)
{
	struct stat st;

	d->log = open("tuttid.log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
	log_fd = d->foreground || d->log < 0 ? STDERR_FILENO : d->log;
	log_bytes = d->log >= 0 && fstat(d->log, &st) == 0 ? st.st_size : 0;
	tt_log_set(log_line, TT_LOG_INFO);
}

void tt_daemon_refuse(struct tt_daemon *d, pid_t pid, const char *fmt, ...)
{
	enum { BURST = 20 };
	static int64_t second;
	static unsigned int lines;
	static uint64_t unsaid;
	int64_t now = tt_now_ns() / TT_NS_PER_SEC;
	char text[256];
	va_list ap;

	d->stats.refused++;
	if (now != second) {
		second = now;
		lines = 0;
	}
	if (lines++ >= BURST) {
		unsaid++;
		return;
	}
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (unsaid)
		tt_log(TT_LOG_WARN, "refused %llu more, not listed", (unsigned long long)unsaid);
	unsaid = 0;
	tt_log(TT_LOG_WARN, "refused from pid %d: %s", (int)pid, text);
}

/* ---- numbers ---- */

/*
 * Clients keep the numbers of links and sides as long as they live, which may
 * be longer than we do. So a number is never given twice: the lock file holds
 * the first number that no daemon has had, and they are taken in blocks.
 */
static int reserve_ids(struct tt_daemon *d)
{
	uint32_t first;

	if (pread(d->lock, &first, sizeof(first), 0) != sizeof(first) &&
	    getrandom(&first, sizeof(first), 0) != sizeof(first))
		return -EIO;
	d->id_next = first;
	d->id_end = first + ID_BLOCK;
	if (pwrite(d->lock, &d->id_end, sizeof(d->id_end), 0) != sizeof(d->id_end))
		return -EIO;
	return 0;
}

uint32_t tt_daemon_next_id(struct tt_daemon *d)
{
	for (uint32_t tries = 0; tries < 2 * ID_BLOCK; tries++) {
		if (d->id_next == d->id_end && reserve_ids(d) < 0)
			return 0;
		uint32_t id = d->id_next++;

		if (id && !tt_party_find(d, id) && !tt_dlink_find(d, id))
			return id;
	}
	return 0;
}

/* ---- the loop ---- */

int tt_source_add(struct tt_daemon *d, struct tt_source *s, int fd, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = s};

	if (epoll_ctl(d->epoll, EPOLL_CTL_ADD, fd, &ev) < 0)
		return -errno;
	s->fd = fd;
	return 0;
}

void tt_source_drop(struct tt_daemon *d, struct tt_source *s)
{
	/* By hand: the file may be open elsewhere, and would stay in the set. */
	epoll_ctl(d->epoll, EPOLL_CTL_DEL, s->fd, NULL);
	close(s->fd);
	s->fd = -1;
	s->next_gone = d->gone;
	d->gone = s;
}

static void free_gone(struct tt_daemon *d)
{
	while (d->gone) {
		struct tt_source *s = d->gone;

		d->gone = s->next_gone;
		free(s);
	}
}

static void serve(struct tt_daemon *d)
{
	struct epoll_event ev[EVENTS];

	while (!d->stop) {
		int n = epoll_wait(d->epoll, ev, EVENTS, -1);

		if (n < 0 && errno != EINTR) {
			tt_log(TT_LOG_ERROR, "epoll_wait: %s", strerror(errno));
			return;
		}
		for (int i = 0; i < n; i++) {
			struct tt_source *s = ev[i].data.ptr;

			if (s->fd >= 0)
				s->ready(d, s, ev[i].events);
		}
		free_gone(d);
	}
}

static void signal_ready(struct tt_daemon *d, struct tt_source *s, uint32_t events)
{
	struct signalfd_siginfo si;

	if (read(s->fd, &si, sizeof(si)) != sizeof(si))
		return;
	tt_log(TT_LOG_INFO, "ends: signal %u from pid %u", si.ssi_signo, si.ssi_pid);
	d->stop = true;
}

/* A daemon whose socket was removed can be found by nobody: it makes room for the next. */
static void watch_ready(struct tt_daemon *d, struct tt_source *s, uint32_t events)
{
	_Alignas(struct inotify_event) char buf[4096];
	ssize_t n = read(s->fd, buf, sizeof(buf));

	if (n > 0 && access("ctl", F_OK) < 0) {
		tt_log(TT_LOG_INFO, "ends: its socket was removed");
		d->stop = true;
	}
}

/* ---- start and end ---- */

static int enter_dir(struct tt_daemon *d)
{
	struct stat st;
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	int err = tt_ctl_path(path, sizeof(path), true);

	if (err < 0)
		return err;
	*strrchr(path, '/') = '\0';
	/* From here on names are relative: they fit, and lead nowhere else later. */
	if (chdir(path) < 0 || stat(".", &st) < 0)
		return -errno;
	d->dev = st.st_dev;
	d->ino = st.st_ino;
	d->lock = open("lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (d->lock < 0)
		return -errno;
	if (flock(d->lock, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? TT_DAEMON_RUNNING : -errno;
	return 0;
}

static int listen_at_ctl(struct tt_daemon *d)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX, .sun_path = "ctl.new"};

	d->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (d->listener < 0)
		return -errno;
	unlink(sa.sun_path);
	/* Renamed when it listens: whoever finds it can connect. */
	if (bind(d->listener, (struct sockaddr *)&sa, sizeof(sa)) < 0 ||
	    listen(d->listener, SOMAXCONN) < 0 || rename(sa.sun_path, "ctl") < 0)
		return -errno;
	return 0;
}

/*
 * The limits of whoever happened to start us are not ours, who serve all of the
 * user's programs. Root may go beyond the hard limit.
 */
static void raise_limit(int resource, rlim_t want)
{
	struct rlimit rl, more = {want, want};

	if (getrlimit(resource, &rl) < 0)
		return;
	if (rl.rlim_max < want && setrlimit(resource, &more) == 0)
		return;
	rl.rlim_cur = rl.rlim_max;
	setrlimit(resource, &rl);
}

static void set_process(void)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN};

	umask(077);
	raise_limit(RLIMIT_NOFILE, WANTED_DESCRIPTORS);
	raise_limit(RLIMIT_FSIZE, RLIM_INFINITY);
	raise_limit(RLIMIT_AS, RLIM_INFINITY);
	raise_limit(RLIMIT_CPU, RLIM_INFINITY);
	sigaction(SIGPIPE, &ignore, NULL);
	sigaction(SIGXFSZ, &ignore, NULL);
}

static int open_signals(void)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_SETMASK, &set, NULL);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

static int open_watch(void)
{
	int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);

	if (fd < 0)
		return -errno;
	if (inotify_add_watch(fd, ".", IN_DELETE | IN_MOVED_FROM | IN_DELETE_SELF | IN_ONLYDIR) <
	    0) {
		int err = -errno;

		close(fd);
		return err;
	}
	return fd;
}

static int init_tables(struct tt_daemon *d)
{
	uint64_t seed;
	struct tt_table *tables[] = {&d->party_ids, &d->link_ids, &d->link_pairs, &d->bell_ids};

	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		return -EIO;
	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		if (tt_table_init(tables[i]) < 0)
			return -ENOMEM;
	return tt_matcher_init(&d->matcher, seed);
}

static void learn_netns(struct tt_daemon *d)
{
	socklen_t len = sizeof(d->netns);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return;
	if (getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &d->netns, &len) < 0)
		d->netns = 0;
	close(fd);
}

static int start(struct tt_daemon *d, struct tt_source *listener, struct tt_source *signals,
		 struct tt_source *watch)
{
	int err = enter_dir(d);

	if (err < 0)
		return err;
	open_log(d);
	err = reserve_ids(d);
	if (err < 0)
		return err;
	err = init_tables(d);
	if (err < 0)
		return err;
	learn_netns(d);
	d->netlink = tt_probe_open();
	if (d->netlink < 0)
		tt_log(TT_LOG_WARN, "no SOCK_DIAG (%s): killed programs' slots stay taken",
		       strerror(-d->netlink));
	d->spare = eventfd(0, EFD_CLOEXEC);
	d->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (d->epoll < 0)
		return -errno;
	d->signals = open_signals();
	if (d->signals < 0)
		return d->signals;
	err = listen_at_ctl(d);
	if (err < 0)
		return err;
	d->inotify = open_watch(); /* does without */
	if (d->inotify >= 0)
		tt_source_add(d, watch, d->inotify, EPOLLIN);
	err = tt_source_add(d, signals, d->signals, EPOLLIN);
	if (err < 0)
		return err;
	return tt_source_add(d, listener, d->listener, EPOLLIN);
}

/* The kernel takes back the rest; what counts is that the next daemon finds its place free. */
static void finish(struct tt_daemon *d)
{
	d->stop = true;
	if (d->listener >= 0) {
		unlink("ctl");
		close(d->listener);
	}
	while (d->conns)
		tt_conn_close(d, d->conns);
	tt_parties_drop(d);
	free_gone(d);
	free(d->ended_ends);
	tt_matcher_fini(&d->matcher);
	tt_table_fini(&d->party_ids);
	tt_table_fini(&d->link_ids);
	tt_table_fini(&d->link_pairs);
	tt_table_fini(&d->bell_ids);
}

static void tell(const struct tt_daemon_options *opt, int status)
{
	if (opt->ready_fd < 0)
		return;
	if (write(opt->ready_fd, &status, sizeof(status)) < 0)
		tt_log(TT_LOG_WARN, "nobody waits for the start: %s", strerror(errno));
	close(opt->ready_fd);
}

int tt_daemon_main(const struct tt_daemon_options *opt)
{
	struct tt_daemon d = {
		.epoll = -1,
		.listener = -1,
		.lock = -1,
		.log = -1,
		.spare = -1,
		.signals = -1,
		.inotify = -1,
		.netlink = -1,
		.foreground = opt->foreground,
		.start_ns = tt_now_ns(),
	};
	struct tt_source listener = {-1, tt_listener_ready, NULL};
	struct tt_source signals = {-1, signal_ready, NULL};
	struct tt_source watch = {-1, watch_ready, NULL};

	set_process();
	int err = start(&d, &listener, &signals, &watch);

	if (err < 0 && !opt->foreground)
		tt_log(TT_LOG_ERROR, "cannot start: %s", strerror(-err));
	else if (err == 0)
		tt_log(TT_LOG_INFO, "serves, version %s", TUTTI_VERSION);
	tell(opt, err);
	if (err == 0)
		serve(&d);
	finish(&d);
	return err;
}
