/* SPDX-License-Identifier: MIT */
/*
 * Sockets that ended without a RELEASE: their process was killed, or closed
 * them behind the library's back.
 *
 * The kernel's tables settle most cases: a socket that is there and has a file
 * lives; one that is there without a file is dead. One that is not there may
 * still be somebody's: a connection that was reset leaves the tables while its
 * descriptor is open, and bytes that arrived before may wait in its ring. So
 * for those, and only if there are any, the descriptors of all processes are
 * looked through.
 *
 * No timers: this runs after claims, after exits and for reports, and the cost
 * of a run (about 2 us a claim) is kept in proportion to what happened since.
 */
#include "daemon_int.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How many claims an exit pays for. */
#define CLAIMS_PER_EXIT 64u

struct suspects {
	struct tt_claim **v; /* sorted by inode */
	uint32_t n;
	uint32_t unseen;
};

static void bury(struct tt_daemon *d, struct tt_claim *c)
{
	struct tt_entry *e = &c->party->mem->entries[c->entry];

	if (tt_load_relaxed(&e->cookie) == c->cookie)
		tt_store_release(&e->dead, c->generation + 1);
	d->stats.reaped++;
	tt_claim_release(d, c);
}

static int by_inode(const void *a, const void *b)
{
	const struct tt_claim *x = *(struct tt_claim *const *)a, *y = *(struct tt_claim *const *)b;

	return x->inode < y->inode ? -1 : x->inode > y->inode;
}

static void acquit(struct suspects *s, uint64_t inode)
{
	struct tt_claim key = {.inode = inode}, *k = &key;
	struct tt_claim **hit = bsearch(&k, s->v, s->n, sizeof(struct tt_claim *), by_inode);

	if (!hit || (*hit)->seen)
		return;
	(*hit)->seen = true;
	s->unseen--;
}

static bool belongs(struct tt_daemon *d, const struct tt_party *p, pid_t pid)
{
	for (const struct tt_dproc *proc = p->procs; proc; proc = proc->next)
		if (proc->pid == pid)
			return true;
	for (const struct tt_conn *c = d->conns; c; c = c->next)
		for (int i = 0; c->pid == pid && i < c->nparties; i++)
			if (c->parties[i] == p)
				return true;
	return false;
}

/* Acquits what process pid holds. False when that cannot be found out. */
static bool look_into(const char *pid, struct suspects *s)
{
	char path[64], target[40];
	DIR *dir;
	struct dirent *e;
	unsigned long long inode;

	snprintf(path, sizeof(path), "/proc/%.20s/fd", pid);
	dir = opendir(path);
	if (!dir)
		return errno == ENOENT || errno == ESRCH;
	while (s->unseen && (e = readdir(dir))) {
		ssize_t n = readlinkat(dirfd(dir), e->d_name, target, sizeof(target) - 1);

		if (n <= 0)
			continue;
		target[n] = '\0';
		if (sscanf(target, "socket:[%llu]", &inode) == 1)
			acquit(s, inode);
	}
	closedir(dir);
	return true;
}

/* Acquits those suspects that a process holds. False: no judgement is possible. */
static bool search_processes(struct tt_daemon *d, struct tt_party *p, struct suspects *s)
{
	DIR *proc = opendir("/proc");
	struct dirent *e;
	bool complete = proc;

	if (!proc)
		return false;
	while (complete && s->unseen && (e = readdir(proc))) {
		if (!isdigit((unsigned char)e->d_name[0]))
			continue;
		if (look_into(e->d_name, s))
			continue;
		/* Strangers hide what they hold; one of the party may hold any of them. */
		if (errno != EACCES || belongs(d, p, (pid_t)atoi(e->d_name)))
			complete = false;
	}
	closedir(proc);
	return complete;
}

void tt_reap(struct tt_daemon *d, struct tt_party *p, uint64_t port)
{
	uint32_t n = 0, nsuspects = 0;
	struct tt_claim **v;
	enum tt_life *life;

	if (!port) {
		p->since_reap = 0;
		p->exit_credit = 0;
	}
	if (!p->nclaims)
		return;
	v = calloc(p->nclaims, sizeof(struct tt_claim *));
	life = calloc(p->nclaims, sizeof(*life));
	if (!v || !life)
		goto out;
	for (uint32_t i = 0; i < p->claims_top && n < p->nclaims; i++)
		if (p->claims[i] && tt_tuple_has_port(&p->claims[i]->tuple, port))
			v[n++] = p->claims[i];
	tt_probe(d->netlink, v, n, life);
	for (uint32_t i = 0; i < n; i++) {
		if (life[i] == TT_LIFE_ORPHAN)
			bury(d, v[i]);
		else if (life[i] == TT_LIFE_ABSENT)
			v[nsuspects++] = v[i];
	}
	if (nsuspects) {
		struct suspects s = {v, nsuspects, nsuspects};

		for (uint32_t i = 0; i < s.n; i++)
			v[i]->seen = false;
		qsort(v, nsuspects, sizeof(struct tt_claim *), by_inode);
		bool judged = search_processes(d, p, &s);

		for (uint32_t i = 0; judged && i < s.n; i++)
			if (!v[i]->seen)
				bury(d, v[i]);
	}
out:
	free(v);
	free(life);
}

void tt_reap_sometimes(struct tt_daemon *d, struct tt_party *p, uint32_t min_claims)
{
	if (p->since_reap >= min_claims && p->since_reap >= p->nclaims / 2)
		tt_reap(d, p, 0);
}

void tt_reap_after_exit(struct tt_daemon *d, struct tt_party *p)
{
	p->exit_credit += CLAIMS_PER_EXIT;
	if (p->exit_credit >= p->nclaims)
		tt_reap(d, p, 0);
}
