/* SPDX-License-Identifier: MIT */
/*
 * What ends of connections had counted when they ended: of the last ones, for who
 * follows them. Otherwise the daemon keeps no history.
 */
#include "daemon_int.h"

#include <stdio.h>
#include <stdlib.h>

/*
 * Whether its counts are still those of this generation: the program says RELEASE,
 * then frees the entry, which leaves them there, and then may use it anew, which
 * wipes it, inode and all.
 */
static bool is_intact(const struct tt_entry *e, uint32_t generation)
{
	uint32_t now = tt_load_acquire(&e->generation);

	return tt_load_acquire(&e->inode) &&
	       (now == generation ||
		(now == generation + 1 && tt_load_acquire(&e->state) == TT_ENTRY_FREE));
}

void tt_ended_note(struct tt_daemon *d, const struct tt_party *p, uint32_t entry,
		   uint32_t generation)
{
	const struct tt_entry *e = &p->mem->entries[entry];
	struct tt_ended *r;

	if (!is_intact(e, generation))
		return;
	if (!d->ended_ends)
		d->ended_ends = calloc(TT_ENDED_KEPT, sizeof(*d->ended_ends));
	if (!d->ended_ends)
		return; /* who follows goes by what was seen last */
	r = &d->ended_ends[d->nended % TT_ENDED_KEPT];
	*r = (struct tt_ended){
		.side = p->id,
		.entry = entry,
		.generation = generation,
		.ring_tx_bytes = tt_load_acquire(&e->tx_bytes),
		.ring_rx_bytes = tt_load_acquire(&e->rx_bytes),
		.shadow_tx_bytes = tt_load_acquire(&e->tx_tcp_bytes),
		.shadow_rx_bytes = tt_load_acquire(&e->rx_tcp_bytes),
		.tx_messages = tt_load_acquire(&e->tx_messages),
		.spins = tt_load_acquire(&e->tx_spins) + tt_load_acquire(&e->rx_spins),
		.sleeps = tt_load_acquire(&e->tx_sleeps) + tt_load_acquire(&e->rx_sleeps),
		.wakes = tt_load_acquire(&e->wakes),
	};
	/* The loads above come before these; else what was read may be of two connections. */
	if (is_intact(e, generation))
		d->nended++;
}

void tt_ended_note_all(struct tt_daemon *d, const struct tt_party *p)
{
	for (uint32_t i = 0, used = tt_party_entries(p); i < used; i++)
		if (tt_load_acquire(&p->mem->entries[i].state) == TT_ENTRY_USED)
			tt_ended_note(d, p, i, tt_load_relaxed(&p->mem->entries[i].generation));
}

void tt_ended_write(const struct tt_daemon *d, struct tt_json *j, uint64_t since)
{
	uint64_t kept = d->nended < TT_ENDED_KEPT ? d->nended : TT_ENDED_KEPT, first;
	char id[40];

	if (!since)
		return;
	tt_json_uint(j, "ended_until", d->nended + 1);
	/* Of another daemon, or of who only asks for the number. */
	first = since - 1 > d->nended ? d->nended : since - 1;
	if (first < d->nended - kept)
		first = d->nended - kept;
	tt_json_open(j, "ended", '[');
	for (uint64_t i = first; i < d->nended; i++) {
		const struct tt_ended *r = &d->ended_ends[i % TT_ENDED_KEPT];

		tt_json_open(j, NULL, '{');
		snprintf(id, sizeof(id), "%u.%u.%u", r->side, r->entry, r->generation);
		tt_json_str(j, "id", id);
		tt_report_count(j, "ring_tx_bytes", r->ring_tx_bytes);
		tt_report_count(j, "ring_rx_bytes", r->ring_rx_bytes);
		tt_report_count(j, "shadow_tx_bytes", r->shadow_tx_bytes);
		tt_report_count(j, "shadow_rx_bytes", r->shadow_rx_bytes);
		tt_report_count(j, "tx_messages", r->tx_messages);
		tt_report_count(j, "spins", r->spins);
		tt_report_count(j, "sleeps", r->sleeps);
		tt_report_count(j, "wakes", r->wakes);
		tt_json_bool(j, "final", true);
		tt_json_close(j, '}');
	}
	tt_json_close(j, ']');
}
