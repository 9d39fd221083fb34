/* SPDX-License-Identifier: MIT */
/* battery: runs one case in one way; see battery.h. */
#include "battery.h"

#include <getopt.h>
#include <sys/prctl.h>

static const struct t_case *const groups[] = {
	t_io_cases,	    t_close_cases,   t_kill_cases,   t_poll_cases,    t_epoll_cases,
	t_epoll_more_cases, t_fork_cases,    t_exec_cases,   t_threads_cases, t_options_cases,
	t_orders_cases,	    t_connect_cases, t_signal_cases, t_files_cases,   t_change_cases,
	t_other_cases,	    t_fortify_cases, t_full_cases,
};

static const char *const topology_names[] = {"split", "fork", "thread", "one"};

#define USAGE                                                                                      \
	"usage: battery [--warm] [--swap] [--topology split|fork|thread|one]\n"                    \
	"               [--family 4|6|mapped] CASE\n"                                              \
	"       battery --list\n"                                                                  \
	"split: role b is a program of its own, started by the words of $BATTERY_PEER, if any.\n"

static const struct t_case *find(const char *name)
{
	for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
		for (const struct t_case *c = groups[i]; c->name; c++)
			if (!strcmp(c->name, name))
				return c;
	return NULL;
}

/* A line for each case: name, topologies, then words for the runner. */
static void list(void)
{
	for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
		for (const struct t_case *c = groups[i]; c->name; c++) {
			const char *tops = c->flags & T_SOLO	    ? "one"
					   : c->flags & T_NO_THREAD ? "split,fork"
								    : "split,fork,thread";

			printf("%s %s%s%s%s %s\n", c->name, tops, c->flags & T_COLD ? " cold" : "",
			       c->flags & T_FAMILIES ? " families" : "",
			       c->flags & T_TCP_OK ? " tcp-ok:" : "",
			       c->flags & T_TCP_OK ? c->why : "");
		}
}

/* --- the roles --------------------------------------------------------------------------------- */

static void run_role(struct t *t, const struct t_case *c)
{
	if (c->flags & T_SOLO) {
		if (!(c->flags & T_RAW))
			t_open_pair(t, &t->fd, &t->peer);
	} else if (!(c->flags & T_RAW)) {
		t->fd = t_open(t);
	}
	(t->role == 'a' ? c->a : c->b)(t);
	if (!(c->flags & T_SOLO))
		t_sync(t); /* nobody's exit closes anything while the other still looks */
}

struct thread_role {
	struct t t;
	const struct t_case *c;
};

static void *role_thread(void *arg)
{
	struct thread_role *r = arg;

	run_role(&r->t, r->c);
	return NULL;
}

/* Replaces this child by a program that plays role b. */
static void exec_peer(struct t *t, int argc, char **argv)
{
	char *words[64], text[16], copy[512], *save;
	const char *prefix = getenv("BATTERY_PEER");
	int n = 0;

	snprintf(copy, sizeof(copy), "%s", prefix ? prefix : "");
	for (char *w = strtok_r(copy, " ", &save); w && n < 40; w = strtok_r(NULL, " ", &save))
		words[n++] = w;
	words[n++] = argv[0];
	words[n++] = (char *)"--peer";
	snprintf(text, sizeof(text), "%d", t->sync_fd);
	words[n++] = text;
	for (int i = 1; i < argc && n < 63; i++)
		words[n++] = argv[i];
	words[n] = NULL;
	execvp(words[0], words);
	t_log(t, "cannot run %s: %s", words[0], t_errno(errno));
	_exit(2);
}

static pid_t start_peer(struct t *t, const struct t_case *c, int sync_fd, int argc, char **argv)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	close(t->sync_fd);
	t->role = 'b';
	t->sync_fd = sync_fd;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (t->topology == TOP_SPLIT)
		exec_peer(t, argc, argv);
	run_role(t, c);
	exit(0);
}

static int high(int fd)
{
	int moved = fcntl(fd, F_DUPFD, T_HIGH_FD);

	close(fd);
	return moved;
}

static int run_case(struct t *t, const struct t_case *c, int argc, char **argv)
{
	struct thread_role r;
	pthread_t thread;
	int sv[2];

	if (c->flags & T_SOLO) {
		run_role(t, c);
		return 0;
	}
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv)) {
		perror("battery: socketpair");
		return 2;
	}
	t->sync_fd = high(sv[0]);
	sv[1] = high(sv[1]);
	if (t->topology == TOP_THREAD) {
		r = (struct thread_role){*t, c};
		r.t.role = 'b';
		r.t.sync_fd = sv[1];
		thread = t_thread(role_thread, &r);
		run_role(t, c);
		t_join(thread);
		return 0;
	}
	t->peer_pid = start_peer(t, c, sv[1], argc, argv);
	close(sv[1]);
	run_role(t, c);
	t_wait_child(t, t->peer_pid);
	return 0;
}

/* --- options ----------------------------------------------------------------------------------- */

static void set_family(struct t *t, const char *word)
{
	t->mapped = !strcmp(word, "mapped");
	t->family = !strcmp(word, "4") ? AF_INET : AF_INET6;
}

static int set_topology(struct t *t, const char *word)
{
	for (int i = 0; i < 4; i++)
		if (!strcmp(word, topology_names[i])) {
			t->topology = (enum topology)i;
			return 0;
		}
	return -1;
}

static int misuse(void)
{
	fputs(USAGE, stderr);
	return 2;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"warm", 0, NULL, 'w'},	    {"swap", 0, NULL, 's'}, {"topology", 1, NULL, 't'},
		{"family", 1, NULL, 'f'},   {"list", 0, NULL, 'l'}, {"peer", 1, NULL, 'p'},
		{"continue", 1, NULL, 'c'}, {NULL, 0, NULL, 0},
	};
	struct t t = {.role = 'a', .fd = -1, .peer = -1, .sync_fd = -1, .family = AF_INET};
	const struct t_case *c;
	int o;

	t.self = argv[0];
	while ((o = getopt_long(argc, argv, "+", options, NULL)) != -1) {
		switch (o) {
		case 'w': t.warm = true; break;
		case 's': t.swap = true; break;
		case 'f': set_family(&t, optarg); break;
		case 'l': list(); return 0;
		case 'p':
			t.role = 'b';
			t.sync_fd = atoi(optarg);
			break;
		case 'c':
			t.role = 'c';
			t.fd = atoi(optarg);
			break;
		case 't':
			if (set_topology(&t, optarg))
				return misuse();
			break;
		default: return misuse();
		}
	}
	if (optind != argc - 1)
		return misuse();
	c = find(argv[optind]);
	if (!c) {
		fprintf(stderr, "battery: no case %s (see --list)\n", argv[optind]);
		return 2;
	}
	t_count_signal(SIGPIPE, SA_RESTART);
	if (t.role == 'c') {
		t_exec_continue(&t);
		return 0;
	}
	if (t.role == 'b') {
		run_role(&t, c);
		return 0;
	}
	return run_case(&t, c, argc, argv);
}
