/* SPDX-License-Identifier: MIT */
#include "base/clock.h"
#include "base/shm.h"
#include "daemon_int.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* More are counted, not listed. */
#define MAX_LISTED 100000u

/* ---- totals ---- */

/*
 * Above this a count is nonsense, or was counted down below zero: clients
 * count without locks. It is also what JSON's readers take exactly.
 */
#define MAX_COUNT (1ull << 53)

static void add(uint64_t *sum, const uint64_t *hostile)
{
	uint64_t v = tt_load_relaxed(hostile);

	if (v < MAX_COUNT)
		*sum += v;
}

void tt_report_count(struct tt_json *j, const char *key, uint64_t hostile)
{
	tt_json_uint(j, key, hostile < MAX_COUNT ? hostile : MAX_COUNT);
}

void tt_totals_add(struct tt_side_totals *sum, const struct tt_side_totals *hostile)
{
	uint64_t *s = (uint64_t *)sum;
	const uint64_t *h = (const uint64_t *)hostile;

	_Static_assert(sizeof(*sum) % sizeof(uint64_t) == 0, "nothing but counters");
	for (size_t i = 0; i < sizeof(*sum) / sizeof(uint64_t); i++)
		add(&s[i], &h[i]);
}

static struct tt_side_totals all_totals(const struct tt_daemon *d)
{
	struct tt_side_totals sum = d->ended;

	for (const struct tt_party *p = d->parties; p; p = p->next)
		tt_totals_add(&sum, &p->mem->totals);
	return sum;
}

static void write_totals(struct tt_json *j, const struct tt_side_totals *t)
{
	uint64_t fallback = 0;

	for (int i = 1; i < TT_REASON_COUNT; i++)
		add(&fallback, &t->fallback[i]);
	tt_json_uint(j, "connections", t->connections);
	tt_json_uint(j, "accelerated", t->accelerated);
	tt_json_uint(j, "empty", t->empty);
	tt_json_uint(j, "fallback", fallback);
	tt_json_open(j, "fallback_reasons", '{');
	for (int i = 1; i < TT_REASON_COUNT; i++)
		if (t->fallback[i])
			tt_json_uint(j, tt_reason_names[i], t->fallback[i]);
	tt_json_close(j, '}');
	tt_json_uint(j, "ring_tx_bytes", t->ring_tx_bytes);
	tt_json_uint(j, "ring_rx_bytes", t->ring_rx_bytes);
	tt_json_uint(j, "shadow_tx_bytes", t->shadow_tx_bytes);
	tt_json_uint(j, "shadow_rx_bytes", t->shadow_rx_bytes);
	tt_json_uint(j, "spins", t->spins);
	tt_json_uint(j, "sleeps", t->sleeps);
	tt_json_uint(j, "wakes", t->wakes);
	tt_json_uint(j, "kicks", t->kicks);
}

/* ---- names ---- */

static void copy_text(char *to, const char *hostile, size_t bytes)
{
	size_t i;

	for (i = 0; i + 1 < bytes; i++) {
		char c = tt_load_relaxed(&hostile[i]);

		if (!c)
			break;
		to[i] = c >= ' ' && c < 127 ? c : '?';
	}
	to[i] = '\0';
}

static void format_addr(const struct tt_addr *a, char *text, size_t bytes)
{
	char ip[INET6_ADDRSTRLEN];

	if (tt_addr_is_ipv4(a)) {
		inet_ntop(AF_INET, a->ip + 12, ip, sizeof(ip));
		snprintf(text, bytes, "%s:%u", ip, a->port);
	} else {
		inet_ntop(AF_INET6, a->ip, ip, sizeof(ip));
		snprintf(text, bytes, "[%s]:%u", ip, a->port);
	}
}

static struct tt_addr copy_addr(const struct sockaddr_storage_small *hostile)
{
	struct sockaddr_storage ss = {.ss_family = tt_load_relaxed(&hostile->family)};
	struct tt_addr a = {0};
	uint8_t ip[16];

	for (size_t i = 0; i < sizeof(ip); i++)
		ip[i] = tt_load_relaxed(&hostile->addr[i]);
	if (ss.ss_family == AF_INET)
		memcpy(&((struct sockaddr_in *)&ss)->sin_addr, ip, 4);
	else
		memcpy(&((struct sockaddr_in6 *)&ss)->sin6_addr, ip, 16);
	tt_addr_from(&ss, &a);
	a.port = tt_load_relaxed(&hostile->port);
	return a;
}

struct tt_tuple tt_entry_tuple(const struct tt_party *p, uint32_t entry)
{
	const struct tt_entry *e = &p->mem->entries[entry];

	/* Where we know better than the client's memory, that counts. */
	if (p->claims[entry])
		return p->claims[entry]->tuple;
	return (struct tt_tuple){copy_addr(&e->local), copy_addr(&e->remote)};
}

/* ---- rings ---- */

/* What an end shares with its peer; NULL without a grant. */
struct windows {
	const struct tt_link *map;
	const struct tt_stream_window *rx, *tx; /* as the end sees them */
};

static bool windows_of(const struct tt_claim *c, struct windows *ret)
{
	if (!c || !c->link)
		return false;
	/* The daemon maps every link as its side 0. */
	const struct tt_link *map = ret->map = c->link->map;
	const struct tt_stream_window *mine = tt_link_rx_window(map, c->slot);
	const struct tt_stream_window *theirs = tt_link_tx_window(map, c->slot);

	ret->rx = c->end == 0 ? mine : theirs;
	ret->tx = c->end == 0 ? theirs : mine;
	return true;
}

/* The difference of two positions that others write; 0 when they make no sense. */
static uint64_t distance(uint64_t head, uint64_t tail)
{
	return tail - head <= 2ull * tt_stream_geometry().chunk_bytes ? tail - head : 0;
}

static bool has_free_chunk(const struct tt_link *map)
{
	for (uint32_t i = 0; i < map->g.nchunks / 64; i++)
		if (tt_load_relaxed(&map->hdr->free_chunks[i]))
			return true;
	return false;
}

/*
 * What the sender may still put before it must wait: the room in the storage
 * that it uses, or in a chunk that it would borrow. See stream/stream.h.
 */
static uint64_t credit_bytes(const struct tt_entry *e, const struct windows *w, uint64_t unread)
{
	uint64_t tail = tt_load_relaxed(&e->tx.tail),
		 since_base = tail - tt_load_relaxed(&e->tx.base);
	uint64_t used = unread < since_base ? unread : since_base;
	uint64_t chunk = w->map->g.chunk_bytes;

	if (tt_load_relaxed(&e->tx.store) && tt_load_relaxed(&w->tx->lease))
		return used < chunk ? chunk - used : 0;
	if (has_free_chunk(w->map))
		return chunk;
	return used < TT_STREAM_SMALL ? TT_STREAM_SMALL - used : 0;
}

static void write_ring(struct tt_json *j, const struct tt_entry *e, const struct tt_claim *c)
{
	uint64_t rx_head = tt_load_relaxed(&e->rx.head),
		 rx_tail = tt_load_relaxed(&e->rx.tail_seen);
	uint64_t unread = 0;
	struct windows w;
	bool shared = windows_of(c, &w);

	if (shared) {
		rx_tail = tt_load_relaxed(&w.rx->tail);
		unread = distance(tt_load_relaxed(&w.rx->head), tt_load_relaxed(&e->tx.tail));
	}
	tt_json_uint(j, "queued_bytes", distance(rx_head, rx_tail));
	tt_json_uint(j, "tx_queued_bytes", unread);
	if (shared && tt_load_relaxed(&e->attached) &&
	    tt_load_relaxed(&e->tx_route) != TT_ROUTE_BACK)
		tt_json_uint(j, "credit_bytes", credit_bytes(e, &w, unread));
}

/* ---- connections ---- */

static bool is_listed(const struct tt_entry *e)
{
	return tt_load_acquire(&e->state) == TT_ENTRY_USED &&
	       tt_load_relaxed(&e->dead) != tt_load_relaxed(&e->generation) + 1;
}

/* Sets *ret_reason to one of tt_reason_names. */
static bool is_accelerated(const struct tt_entry *e, uint32_t *ret_reason)
{
	uint32_t reason;

	if (tt_load_relaxed(&e->attached)) {
		reason = tt_load_relaxed(&e->down_reason);
		*ret_reason = reason < TT_REASON_COUNT ? reason : TT_REASON_NONE;
		return tt_load_relaxed(&e->tx_route) != TT_ROUTE_BACK ||
		       tt_load_relaxed(&e->rx_route) != TT_ROUTE_BACK;
	}
	reason = tt_load_relaxed(&e->reason);
	if (tt_load_relaxed(&e->claimed) && (reason == TT_REASON_NONE || reason >= TT_REASON_COUNT))
		reason = TT_REASON_PEER_NOT_TUTTI;
	/* The peer is Tutti's: this end has only to make its next call. */
	if (reason == TT_REASON_PEER_NOT_TUTTI && (tt_load_relaxed(&e->grant) & 1))
		reason = TT_REASON_NONE;
	*ret_reason = reason < TT_REASON_COUNT ? reason : TT_REASON_NONE;
	return false;
}

static const char *state_of(const struct tt_entry *e)
{
	return tt_load_relaxed(&e->attached)  ? "attached"
	       : tt_load_relaxed(&e->grant)   ? "granted"
	       : tt_load_relaxed(&e->claimed) ? "claimed"
					      : "plain";
}

static const char *route_name(const uint32_t *hostile)
{
	switch (tt_load_relaxed(hostile)) {
	case TT_ROUTE_RING: return "ring";
	case TT_ROUTE_BACK: return "back";
	default: return "tcp";
	}
}

static void write_connection(struct tt_json *j, const struct tt_party *p, uint32_t entry,
			     const struct tt_tuple *t)
{
	const struct tt_entry *e = &p->mem->entries[entry];
	const struct tt_claim *c = p->claims[entry];
	char text[80];
	uint32_t reason;

	tt_json_open(j, NULL, '{');
	/* Of an end of a connection: this one, for as long as it lives. */
	snprintf(text, sizeof(text), "%u.%u.%u", p->id, entry, tt_load_relaxed(&e->generation));
	tt_json_str(j, "id", text);
	copy_text(text, e->comm, sizeof(e->comm));
	if (!*text)
		copy_text(text, p->mem->name, sizeof(p->mem->name));
	tt_json_str(j, "program", text);
	tt_json_int(j, "pid", tt_load_relaxed(&e->pid));
	format_addr(&t->local, text, sizeof(text));
	tt_json_str(j, "local", text);
	format_addr(&t->remote, text, sizeof(text));
	tt_json_str(j, "remote", text);
	tt_json_str(j, "path", is_accelerated(e, &reason) ? "user" : "tcp");
	tt_json_str(j, "reason", tt_reason_names[reason]);
	tt_json_str(j, "state", state_of(e));
	tt_json_str(j, "tx_route", route_name(&e->tx_route));
	tt_json_str(j, "rx_route", route_name(&e->rx_route));
	if (c)
		tt_json_num(j, "age_s", (double)(tt_now_ns() - c->since_ns) / TT_NS_PER_SEC);
	tt_report_count(j, "ring_tx_bytes", tt_load_relaxed(&e->tx_bytes));
	tt_report_count(j, "ring_rx_bytes", tt_load_relaxed(&e->rx_bytes));
	tt_report_count(j, "shadow_tx_bytes", tt_load_relaxed(&e->tx_tcp_bytes));
	tt_report_count(j, "shadow_rx_bytes", tt_load_relaxed(&e->rx_tcp_bytes));
	write_ring(j, e, c);
	tt_report_count(j, "tx_messages", tt_load_relaxed(&e->tx_messages));
	tt_report_count(j, "spins", tt_load_relaxed(&e->tx_spins) + tt_load_relaxed(&e->rx_spins));
	tt_report_count(j, "sleeps",
			tt_load_relaxed(&e->tx_sleeps) + tt_load_relaxed(&e->rx_sleeps));
	tt_json_uint(j, "wakes", tt_load_relaxed(&e->wakes));
	tt_json_uint(j, "kicks", tt_load_relaxed(&e->kicks));
	tt_json_uint(j, "side", p->id);
	tt_json_close(j, '}');
}

uint32_t tt_party_entries(const struct tt_party *p)
{
	uint32_t used = tt_load_acquire(&p->mem->used);

	return used < TT_SIDE_ENTRIES ? used : TT_SIDE_ENTRIES;
}

static void write_connections(struct tt_daemon *d, struct tt_json *j, uint64_t port)
{
	uint32_t listed = 0;
	bool truncated = false;

	tt_json_open(j, "connections", '[');
	for (struct tt_party *p = d->parties; p; p = p->next) {
		for (uint32_t i = 0, used = tt_party_entries(p); i < used; i++) {
			if (!is_listed(&p->mem->entries[i]))
				continue;
			struct tt_tuple t = tt_entry_tuple(p, i);

			if (!tt_tuple_has_port(&t, port))
				continue;
			if (listed++ < MAX_LISTED)
				write_connection(j, p, i, &t);
			else
				truncated = true;
		}
	}
	tt_json_close(j, ']');
	if (truncated)
		tt_json_bool(j, "truncated", true);
}

/* ---- out ---- */

static int into_memfd(struct tt_json *j)
{
	int fd;

	if (j->failed)
		return -ENOMEM;
	fd = memfd_create("tutti-report", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	for (size_t done = 0; done < j->bytes;) {
		ssize_t n = write(fd, j->text + done, j->bytes - done);

		if (n < 0) {
			int err = -errno;

			close(fd);
			return err;
		}
		done += (size_t)n;
	}
	fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	return fd;
}

int tt_report_ss(struct tt_daemon *d, uint64_t port, uint64_t ended)
{
	struct tt_json j;
	struct tt_side_totals t;
	int fd;

	tt_adopt(d);
	for (struct tt_party *p = d->parties; p; p = p->next) {
		tt_reap(d, p, port);
		tt_sweep(d, p, port);
	}
	t = all_totals(d);
	tt_json_init(&j);
	tt_json_open(&j, NULL, '{');
	tt_json_int(&j, "daemon_pid", getpid());
	write_connections(d, &j, port);
	tt_ended_write(d, &j, ended);
	tt_json_open(&j, "totals", '{');
	write_totals(&j, &t);
	tt_json_close(&j, '}');
	tt_json_close(&j, '}');
	fd = into_memfd(&j);
	tt_json_fini(&j);
	return fd;
}

static uint64_t allocated_bytes(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 ? (uint64_t)st.st_blocks * 512 : 0;
}

int tt_report_status(struct tt_daemon *d)
{
	struct tt_json j;
	struct tt_side_totals t;
	uint64_t memory = 0, claims = 0;
	int fd;

	tt_adopt(d);
	t = all_totals(d);
	for (struct tt_party *p = d->parties; p; p = p->next) {
		memory += allocated_bytes(p->fd);
		claims += p->nclaims;
	}
	for (struct tt_dlink *l = d->links; l; l = l->next)
		memory += allocated_bytes(l->fd);
	tt_json_init(&j);
	tt_json_open(&j, NULL, '{');
	tt_json_int(&j, "pid", getpid());
	tt_json_str(&j, "version", TUTTI_VERSION);
	tt_json_num(&j, "uptime_s", (double)(tt_now_ns() - d->start_ns) / TT_NS_PER_SEC);
	tt_json_uint(&j, "control_connections", d->nconns);
	tt_json_uint(&j, "sides", d->nparties);
	tt_json_uint(&j, "links", d->nlinks);
	tt_json_uint(&j, "bells", d->nbells);
	tt_json_uint(&j, "claims", claims);
	tt_json_uint(&j, "memory_bytes", memory);
	tt_json_uint(&j, "sides_total", d->stats.parties);
	tt_json_uint(&j, "claims_total", d->stats.claims);
	tt_json_uint(&j, "granted_total", d->stats.granted);
	tt_json_uint(&j, "reaped_total", d->stats.reaped);
	tt_json_uint(&j, "refused_total", d->stats.refused);
	tt_json_open(&j, "totals", '{');
	write_totals(&j, &t);
	tt_json_close(&j, '}');
	tt_json_close(&j, '}');
	fd = into_memfd(&j);
	tt_json_fini(&j);
	return fd;
}
