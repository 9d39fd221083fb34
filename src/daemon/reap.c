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
 * What was never claimed is nobody's to release when several processes had it,
 * nor is what was claimed from a daemon before this one: those entries are looked
 * at in the same way, less often (tt_sweep).
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
/* Exits and closes between two looks at what was never claimed here. */
#define EXITS_PER_SWEEP 256u

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
	tt_ended_note(d, c->party, c->entry, c->generation);
	d->stats.reaped++;
	if (c->party->claims[c->entry] == c)
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

/* Buries those of the n that are dead. v is overwritten. */
static void judge(struct tt_daemon *d, struct tt_party *p, struct tt_claim **v, uint32_t n)
{
	enum tt_life *life = calloc(n, sizeof(*life));
	uint32_t nsuspects = 0;

	if (!life)
		return;
	tt_probe(d->netlink, v, n, life);
	for (uint32_t i = 0; i < n; i++) {
		if (life[i] == TT_LIFE_ORPHAN)
			bury(d, v[i]);
		else if (life[i] == TT_LIFE_ABSENT)
			v[nsuspects++] = v[i];
	}
	free(life);
	if (!nsuspects)
		return;
	struct suspects s = {v, nsuspects, nsuspects};

	for (uint32_t i = 0; i < s.n; i++)
		v[i]->seen = false;
	qsort(v, nsuspects, sizeof(struct tt_claim *), by_inode);
	bool judged = search_processes(d, p, &s);

	for (uint32_t i = 0; judged && i < s.n; i++)
		if (!v[i]->seen)
			bury(d, v[i]);
}

void tt_reap(struct tt_daemon *d, struct tt_party *p, uint64_t port)
{
	uint32_t n = 0;
	struct tt_claim **v;

	if (!port) {
		p->since_reap = 0;
		p->exit_credit = 0;
	}
	if (!p->nclaims)
		return;
	v = calloc(p->nclaims, sizeof(struct tt_claim *));
	if (!v)
		return;
	for (uint32_t i = 0; i < p->claims_top && n < p->nclaims; i++)
		if (p->claims[i] && tt_tuple_has_port(&p->claims[i]->tuple, port))
			v[n++] = p->claims[i];
	if (n)
		judge(d, p, v, n);
	free(v);
}

/* Reads an entry that is no claim's as if it were. False: free, dead, or being made. */
static bool read_entry(struct tt_party *p, uint32_t idx, struct tt_claim *ret)
{
	const struct tt_entry *e = &p->mem->entries[idx];

	if (p->claims[idx] || tt_load_acquire(&e->state) != TT_ENTRY_USED)
		return false;
	*ret = (struct tt_claim){.party = p,
				 .entry = idx,
				 .inode = tt_load_acquire(&e->inode),
				 .cookie = tt_load_relaxed(&e->cookie),
				 .generation = tt_load_relaxed(&e->generation)};
	ret->tuple = tt_entry_tuple(p, idx);
	return ret->inode && ret->cookie && tt_load_relaxed(&e->dead) != ret->generation + 1;
}

void tt_sweep(struct tt_daemon *d, struct tt_party *p, uint64_t port)
{
	uint32_t used = tt_party_entries(p), n = 0;

	if (!port)
		p->since_sweep = 0;
	if (!used)
		return;
	struct tt_claim *all = calloc(used, sizeof(*all));
	struct tt_claim **v = calloc(used, sizeof(struct tt_claim *));

	for (uint32_t i = 0; all && v && i < used; i++)
		if (read_entry(p, i, &all[n]) && tt_tuple_has_port(&all[n].tuple, port)) {
			v[n] = &all[n];
			n++;
		}
	if (n)
		judge(d, p, v, n);
	free(v);
	free(all);
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
	if (++p->since_sweep >= EXITS_PER_SWEEP && p->since_sweep >= tt_party_entries(p) / 4)
		tt_sweep(d, p, 0);
}
