/* SPDX-License-Identifier: MIT */
#include "base/log.h"
#include "base/shm.h"
#include "daemon_int.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- parties ---- */

static uint64_t hash_id(uint64_t id)
{
	return tt_hash2(id, 0);
}

struct tt_party *tt_party_find(struct tt_daemon *d, uint64_t id)
{
	for (struct tt_node *n = tt_table_first(&d->party_ids, hash_id(id)); n;
	     n = tt_table_next(n)) {
		struct tt_party *p = tt_container(n, struct tt_party, by_id);

		if (p->id == id)
			return p;
	}
	return NULL;
}

static struct tt_party *find_memory(struct tt_daemon *d, const struct stat *st)
{
	for (struct tt_party *p = d->parties; p; p = p->next)
		if (p->ino == st->st_ino && p->dev == st->st_dev)
			return p;
	return NULL;
}

/*
 * wanted: the number that the side has from a daemon before this one. Numbers
 * are not used twice, so it is free, unless somebody invents one.
 */
static int create(struct tt_daemon *d, const struct stat *st, uint32_t wanted, int *memfd,
		  struct tt_party **ret)
{
	struct tt_side_mem *mem;
	int err;

	if (d->nparties >= TT_MAX_PARTIES)
		return -EMFILE;
	/* Exactly: a mapping costs address space, of which a client could name any amount. */
	if (!S_ISREG(st->st_mode) || (uint64_t)st->st_size != sizeof(struct tt_side_mem))
		return -EPROTO;
	struct tt_party *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->claims = calloc(TT_SIDE_ENTRIES, sizeof(struct tt_claim *));
	err = p->claims ? tt_side_map(*memfd, &mem) : -ENOMEM;
	if (err < 0)
		goto free_party;
	p->id = wanted && !tt_party_find(d, wanted) ? wanted : tt_daemon_next_id(d);
	if (!p->id) {
		tt_shm_unmap(mem, sizeof(*mem));
		err = -ENOSPC;
		goto free_party;
	}
	p->mem = mem;
	p->fd = *memfd;
	p->dev = st->st_dev;
	p->ino = st->st_ino;
	*memfd = -1;
	tt_table_insert(&d->party_ids, &p->by_id, hash_id(p->id));
	tt_list_push(d->parties, p);
	d->nparties++;
	d->stats.parties++;
	*ret = p;
	return 0;
free_party:
	free(p->claims);
	free(p);
	return err;
}

int tt_party_hello(struct tt_daemon *d, struct tt_conn *c, uint32_t wanted, int *memfd,
		   uint32_t *ret_id)
{
	struct stat st;
	struct tt_party *p;
	int err;

	if (fstat(*memfd, &st) < 0)
		return -errno;
	p = find_memory(d, &st);
	for (int i = 0; p && i < c->nparties; i++) {
		if (c->parties[i] == p) {
			*ret_id = p->id;
			return 0;
		}
	}
	if (c->nparties == TT_MAX_CONN_PARTIES)
		return -EMFILE;
	if (!p) {
		err = create(d, &st, wanted, memfd, &p);
		if (err < 0)
			return err;
	}
	p->refs++;
	c->parties[c->nparties++] = p;
	tt_store_release(&p->mem->daemon_dev, d->dev);
	tt_store_release(&p->mem->daemon_ino, d->ino);
	tt_store_release(&p->mem->id, p->id);
	*ret_id = p->id;
	return 0;
}

static void drop_proc(struct tt_daemon *d, struct tt_dproc *proc);

/* Whether a process is known that holds it and has not come back. */
static bool has_adopted(const struct tt_party *p)
{
	for (const struct tt_dproc *proc = p->procs; proc; proc = proc->next)
		if (proc->adopted)
			return true;
	return false;
}

static void destroy(struct tt_daemon *d, struct tt_party *p)
{
	tt_totals_add(&d->ended, &p->mem->totals);
	tt_ended_note_all(d, p);
	while (p->procs)
		drop_proc(d, p->procs);
	/* First, so that the release of its claims wipes nothing: see put_end. */
	tt_links_forget(d, p);
	while (p->claims_top)
		tt_claim_release(d, p->claims[p->claims_top - 1]);
	tt_table_remove(&d->party_ids, &p->by_id);
	tt_list_drop(d->parties, p);
	d->nparties--;
	tt_shm_unmap(p->mem, sizeof(*p->mem));
	close(p->fd);
	free(p->claims);
	free(p);
}

void tt_party_put(struct tt_daemon *d, struct tt_party *p)
{
	if (--p->refs == 0 && (d->stop || !has_adopted(p)))
		destroy(d, p);
}

void tt_parties_drop(struct tt_daemon *d)
{
	while (d->parties)
		destroy(d, d->parties);
}

/* ---- bells ---- */

static struct tt_dbell *find_bell(struct tt_daemon *d, uint32_t party_id, uint32_t id)
{
	for (struct tt_node *n = tt_table_first(&d->bell_ids, tt_hash2(party_id, id)); n;
	     n = tt_table_next(n)) {
		struct tt_dbell *b = tt_container(n, struct tt_dbell, by_id);

		if (b->party_id == party_id && b->id == id)
			return b;
	}
	return NULL;
}

int tt_bell_find(struct tt_daemon *d, const struct tt_party *p, uint32_t id)
{
	struct tt_dbell *b = find_bell(d, p->id, id);

	return b ? b->fd : -ENOENT;
}

static void ring(const struct tt_party *p, uint32_t id, int fd)
{
	struct pollfd ready = {fd, POLLOUT, 0};
	uint64_t one = 1;

	/* Not writable: it rings already, or its owner made it so that a write would block. */
	if (poll(&ready, 1, 0) <= 0 || !(ready.revents & POLLOUT))
		return;
	if (write(fd, &one, sizeof(one)) < 0)
		tt_log(TT_LOG_WARN, "bell %u of side %u: %s", id, p->id, strerror(errno));
}

void tt_bell_wake(struct tt_daemon *d, struct tt_party *p, uint32_t id)
{
	struct tt_dbell *b = find_bell(d, p->id, id);

	if (b)
		ring(p, id, b->fd);
	else
		p->missed[p->nmissed++ % TT_MISSED_BELLS] = id;
}

static bool was_missed(struct tt_party *p, uint32_t id)
{
	bool any = false;

	for (int i = 0; i < TT_MISSED_BELLS; i++)
		if (p->missed[i] == id) {
			p->missed[i] = 0;
			any = true;
		}
	return any;
}

static void drop_bell(struct tt_daemon *d, struct tt_dbell *b)
{
	tt_table_remove(&d->bell_ids, &b->by_id);
	tt_list_drop(b->proc->bells, b);
	b->proc->party->nbells--;
	d->nbells--;
	close(b->fd);
	free(b);
}

static void drop_proc(struct tt_daemon *d, struct tt_dproc *proc)
{
	struct tt_dproc **at = &proc->party->procs;

	while (proc->bells)
		drop_bell(d, proc->bells);
	while (*at && *at != proc)
		at = &(*at)->next;
	if (*at)
		*at = proc->next;
	tt_source_drop(d, &proc->src);
}

static void proc_exited(struct tt_daemon *d, struct tt_source *s, uint32_t events)
{
	struct tt_dproc *proc = (struct tt_dproc *)s;
	struct tt_party *p = proc->party;

	drop_proc(d, proc);
	tt_reap_after_exit(d, p);
	if (p->refs || has_adopted(p))
		return;
	/* Perhaps its children hold it. */
	tt_adopt_again(d);
	if (!has_adopted(p))
		destroy(d, p);
}

static int find_or_watch(struct tt_daemon *d, struct tt_party *p, pid_t pid, struct tt_dproc **ret)
{
	struct tt_dproc *proc;
	int fd, err;

	for (proc = p->procs; proc; proc = proc->next) {
		if (proc->pid == pid) {
			*ret = proc;
			return 0;
		}
	}
	fd = pidfd_open(pid, 0);
	if (fd < 0)
		return -errno;
	proc = calloc(1, sizeof(*proc));
	if (!proc) {
		close(fd);
		return -ENOMEM;
	}
	proc->src.ready = proc_exited;
	err = tt_source_add(d, &proc->src, fd, EPOLLIN);
	if (err < 0) {
		close(fd);
		free(proc);
		return err;
	}
	proc->party = p;
	proc->pid = pid;
	proc->next = p->procs;
	p->procs = proc;
	*ret = proc;
	return 0;
}

/* The head of a side's memory, which may be anybody's. */
static bool is_ours(const struct tt_daemon *d, int fd, uint32_t *ret_id)
{
	uint64_t dev, ino;

	return pread(fd, ret_id, sizeof(*ret_id), offsetof(struct tt_side_mem, id)) ==
		       sizeof(*ret_id) &&
	       pread(fd, &dev, sizeof(dev), offsetof(struct tt_side_mem, daemon_dev)) ==
		       sizeof(dev) &&
	       pread(fd, &ino, sizeof(ino), offsetof(struct tt_side_mem, daemon_ino)) ==
		       sizeof(ino) &&
	       *ret_id && dev == d->dev && ino == d->ino;
}

int tt_party_adopt(struct tt_daemon *d, pid_t pid, int *memfd)
{
	struct tt_dproc *proc;
	struct tt_party *p;
	struct stat st;
	uint32_t id;
	int err = 0;

	if (fstat(*memfd, &st) < 0)
		return -errno;
	p = find_memory(d, &st);
	if (p && p->refs)
		return 0; /* it speaks for itself */
	if (!p) {
		if (!S_ISREG(st.st_mode) || !is_ours(d, *memfd, &id) || tt_party_find(d, id))
			return -EPROTO;
		err = create(d, &st, id, memfd, &p);
	}
	if (err < 0)
		return err;
	err = find_or_watch(d, p, pid, &proc);
	if (err == 0)
		proc->adopted = true;
	else if (!has_adopted(p))
		destroy(d, p);
	return err;
}

/*
 * Others will write to it: it must be an eventfd, which takes the write at
 * once, and not, say, a pipe on which a peer would block.
 */
static bool is_eventfd(int fd)
{
	char path[40], target[40];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(path, target, sizeof(target) - 1);

	if (n < 0)
		return false;
	target[n] = '\0';
	return strcmp(target, "anon_inode:[eventfd]") == 0;
}

int tt_bell_add(struct tt_daemon *d, struct tt_party *p, uint32_t id, pid_t pid, int *fd)
{
	struct tt_dproc *proc = NULL;
	struct tt_dbell *b = find_bell(d, p->id, id);
	int err;

	if (!is_eventfd(*fd))
		return -EINVAL;
	fcntl(*fd, F_SETFL, O_NONBLOCK);
	if (b)
		drop_bell(d, b);
	if (p->nbells >= TT_MAX_BELLS)
		return -EMFILE;
	err = find_or_watch(d, p, pid, &proc);
	if (err == -ESRCH)
		return 0; /* it has ended meanwhile */
	if (err < 0)
		return err;
	b = calloc(1, sizeof(*b));
	if (!b)
		return -ENOMEM;
	b->party_id = p->id;
	b->id = id;
	b->fd = *fd;
	b->proc = proc;
	proc->adopted = false;
	*fd = -1;
	tt_table_insert(&d->bell_ids, &b->by_id, tt_hash2(p->id, id));
	tt_list_push(proc->bells, b);
	p->nbells++;
	d->nbells++;
	/* Its owner told us of it after what was to wake it. */
	if (was_missed(p, id))
		ring(p, id, b->fd);
	return 0;
}
