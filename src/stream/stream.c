/* SPDX-License-Identifier: MIT */
#include "stream/stream.h"

#include "base/usermem.h"

#include <errno.h>
#include <string.h>

#define NO_SWITCH UINT64_MAX
#define CHUNK_BYTES (4u << 20)
/* A long copy is published in pieces, so that the receiver copies meanwhile. */
#define PIECE (16u << 10)
/* Messages up to this size live in the small ring while they find room there. */
#define SMALL_MESSAGE (TT_STREAM_SMALL / 2)

struct tt_link_geometry tt_stream_geometry(void)
{
	return (struct tt_link_geometry){
		.nslots = TT_LINK_MAX_SLOTS,
		.window_bytes = sizeof(struct tt_stream_window),
		.nwaiters = TT_LINK_MAX_WAITERS,
		.nchunks = TT_LINK_MAX_CHUNKS,
		.chunk_bytes = CHUNK_BYTES,
	};
}

void tt_stream_bind(struct tt_stream *s, struct tt_link *l, uint32_t slot)
{
	s->link = l;
	s->slot = slot;
	s->rx = tt_link_rx_window(l, slot);
	s->tx = tt_link_tx_window(l, slot);
}

void tt_stream_tx_init(struct tt_stream_tx *t)
{
	memset(t, 0, sizeof(*t));
}

void tt_stream_rx_init(struct tt_stream_rx *r)
{
	memset(r, 0, sizeof(*r));
	r->next_pos[0] = r->next_pos[1] = r->todo_pos = NO_SWITCH;
}

static inline size_t store_size(const struct tt_stream *s, uint32_t store)
{
	return store ? s->link->g.chunk_bytes : TT_STREAM_SMALL;
}

/* Where storage lies; w is the receiver's window. store was checked. */
static inline unsigned char *store_at(const struct tt_stream *s, struct tt_stream_window *w,
				      uint32_t store)
{
	return store ? tt_link_chunk(s->link, store - 1) : w->small;
}

static inline size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* ---- sending ---- */

static inline uint64_t used_bytes(const struct tt_stream_tx *t)
{
	return t->tail - (t->head_seen > t->base ? t->head_seen : t->base);
}

static inline size_t free_bytes(const struct tt_stream *s, const struct tt_stream_tx *t)
{
	return store_size(s, t->store) - (size_t)used_bytes(t);
}

static int refresh_head(struct tt_stream *s, struct tt_stream_tx *t)
{
	/* Our peer as receiver writes its head into our window. */
	uint64_t head = tt_load_acquire(&s->rx->head);

	if (head < t->head_seen || head > t->tail)
		return -EPROTO;
	t->head_seen = head;
	return 0;
}

static void publish_switch(struct tt_stream *s, const struct tt_stream_tx *t)
{
	tt_store_relaxed(&s->tx->sw_pos[t->seq & 1], t->base);
	tt_store_relaxed(&s->tx->sw_store[t->seq & 1], t->store);
	tt_store_release(&s->tx->sw_seq, t->seq);
}

/*
 * From the tail on, bytes lie in store. A process may die between any two of
 * these; tt_stream_tx_recover() goes by their order: a lease that is not the
 * storage's was not used yet, and seq says that the switch counts.
 */
static void switch_store(struct tt_stream *s, struct tt_stream_tx *t, uint32_t store)
{
	if (store) {
		tt_store_release(&s->tx->lease, store << 1 | 1);
		t->writing = 1;
	}
	tt_compiler_barrier();
	t->store = store;
	t->base = t->tail;
	tt_compiler_barrier();
	t->seq++;
	tt_compiler_barrier();
	publish_switch(s, t);
}

static bool grow(struct tt_stream *s, struct tt_stream_tx *t)
{
	int c = tt_link_chunk_get(s->link);

	if (c < 0)
		return false;
	switch_store(s, t, (uint32_t)c + 1);
	return true;
}

/* Makes the storage usable for want more bytes, as far as can be. */
static int send_begin(struct tt_stream *s, struct tt_stream_tx *t, size_t want)
{
	bool switched = false;
	int err;

	if (t->store) {
		uint32_t lease = t->store << 1;

		if (tt_cas(&s->tx->lease, &lease, t->store << 1 | 1)) {
			t->writing = 1;
		} else {
			/* The receiver took it: it has read, or will read, all up to here. */
			err = refresh_head(s, t);
			if (err < 0)
				return err;
			if (t->head_seen < t->base)
				return -EPROTO;
			if (want > SMALL_MESSAGE || t->pressure) {
				if (t->pressure)
					t->pressure--;
				if (grow(s, t))
					return 0;
			}
			switch_store(s, t, 0);
			switched = true; /* not twice at one position */
		}
	}
	if (free_bytes(s, t) < want) {
		err = refresh_head(s, t);
		if (err < 0)
			return err;
	}
	/* The small ring does not hold it: borrow a chunk. */
	if (!t->store && !switched && (free_bytes(s, t) < want || want > SMALL_MESSAGE)) {
		if (want <= SMALL_MESSAGE)
			t->pressure = 64;
		grow(s, t);
	}
	return 0;
}

static void send_end(struct tt_stream *s, struct tt_stream_tx *t)
{
	if (t->writing) {
		tt_store_release(&s->tx->lease, t->store << 1);
		t->writing = 0;
	}
}

/* Copies n bytes to the tail, which has room, without publishing. */
static inline void put_bytes(struct tt_stream *s, struct tt_stream_tx *t, const void *buf, size_t n)
{
	size_t size = store_size(s, t->store), at = (size_t)(t->tail - t->base) & (size - 1);
	unsigned char *place = store_at(s, s->tx, t->store);
	size_t first = min_size(n, size - at);

	memcpy(place + at, buf, first);
	if (n > first)
		memcpy(place, (const char *)buf + first, n - first);
	t->tail += n;
}

static inline void publish(struct tt_stream *s, const struct tt_stream_tx *t)
{
	tt_store_release(&s->tx->tail, t->tail);
}

/* sound: up to so many bytes *done may grow from memory that is known to be readable. */
static int send_flat(struct tt_stream *s, struct tt_stream_tx *t, const char *buf, size_t bytes,
		     size_t sound, size_t *done)
{
	while (bytes > 0) {
		size_t n = min_size(bytes, PIECE), room = free_bytes(s, t);

		if (room < n) {
			int err = refresh_head(s, t);

			if (err < 0)
				return err;
			room = free_bytes(s, t);
			if (room == 0)
				return 0;
			n = min_size(n, room);
		}
		if (*done + n > sound && !tt_user_readable(buf, n))
			return -EFAULT;
		put_bytes(s, t, buf, n);
		publish(s, t);
		buf += n;
		bytes -= n;
		*done += n;
	}
	return 0;
}

/* What went before a bad pointer went. */
static int ended(int err, size_t done, size_t want)
{
	if (err < 0 && (err != -EFAULT || !done))
		return err;
	return done || !want ? 0 : -EAGAIN;
}

int tt_stream_send1(struct tt_stream *s, struct tt_stream_tx *t, const void *buf, size_t bytes,
		    size_t *ret_bytes)
{
	/* The case that counts: it fits where the last one went. */
	if (!t->store && bytes <= SMALL_MESSAGE && free_bytes(s, t) >= bytes &&
	    tt_user_readable(buf, bytes)) {
		put_bytes(s, t, buf, bytes);
		publish(s, t);
		*ret_bytes = bytes;
		return 0;
	}
	size_t done = 0;
	int err = send_begin(s, t, bytes);

	if (err == 0)
		err = send_flat(s, t, buf, bytes, 0, &done);
	send_end(s, t);
	*ret_bytes = done;
	return ended(err, done, bytes);
}

static size_t iov_bytes(const struct iovec *iov, int iovcnt)
{
	size_t n = 0;

	for (int i = 0; i < iovcnt; i++)
		n += iov[i].iov_len;
	return n;
}

/* As the kernel, which copies small pieces as one: nothing goes when one of them is bad. */
static bool first_readable(const struct iovec *iov, int iovcnt, size_t skip, size_t n)
{
	for (int i = 0; n > 0 && i < iovcnt; i++) {
		size_t len = iov[i].iov_len;

		if (skip >= len) {
			skip -= len;
			continue;
		}
		len = min_size(len - skip, n);
		if (!tt_user_readable((const char *)iov[i].iov_base + skip, len))
			return false;
		n -= len;
		skip = 0;
	}
	return true;
}

int tt_stream_send(struct tt_stream *s, struct tt_stream_tx *t, const struct iovec *iov, int iovcnt,
		   size_t skip, size_t *ret_bytes)
{
	size_t done = 0, want = iov_bytes(iov, iovcnt) - skip, sound = 0;
	int err = send_begin(s, t, want);

	if (err == 0 && iovcnt > 1) {
		sound = min_size(min_size(want, PIECE), free_bytes(s, t));
		if (!first_readable(iov, iovcnt, skip, sound))
			err = -EFAULT;
	}

	for (int i = 0; err == 0 && i < iovcnt; i++) {
		size_t len = iov[i].iov_len, before = done;

		if (skip >= len) {
			skip -= len;
			continue;
		}
		err = send_flat(s, t, (const char *)iov[i].iov_base + skip, len - skip, sound,
				&done);
		if (done - before < len - skip)
			break;
		skip = 0;
	}
	send_end(s, t);
	*ret_bytes = done;
	return ended(err, done, want);
}

int tt_stream_reserve(struct tt_stream *s, struct tt_stream_tx *t, size_t want,
		      struct iovec ret_place[2], size_t *ret_bytes)
{
	int err = send_begin(s, t, want);

	if (err < 0) {
		send_end(s, t);
		return err;
	}
	size_t size = store_size(s, t->store), at = (size_t)(t->tail - t->base) & (size - 1);
	size_t n = min_size(want, free_bytes(s, t)), first = min_size(n, size - at);

	if (n == 0) {
		send_end(s, t);
		return -EAGAIN;
	}
	ret_place[0] = (struct iovec){store_at(s, s->tx, t->store) + at, first};
	ret_place[1] = (struct iovec){store_at(s, s->tx, t->store), n - first};
	*ret_bytes = n;
	return 0;
}

void tt_stream_commit(struct tt_stream *s, struct tt_stream_tx *t, size_t bytes)
{
	t->tail += bytes;
	publish(s, t);
	send_end(s, t);
}

int tt_stream_unread(struct tt_stream *s, struct tt_stream_tx *t, uint64_t *ret_bytes)
{
	int err = refresh_head(s, t);

	if (err == 0)
		*ret_bytes = t->tail - t->head_seen;
	return err;
}

int tt_stream_copy_unread(struct tt_stream *s, struct tt_stream_tx *t, char *buf, size_t room,
			  size_t *ret_bytes)
{
	int err = refresh_head(s, t);

	if (err < 0)
		return err;
	size_t n = (size_t)(t->tail - t->head_seen), size = store_size(s, t->store);

	if (n > room || n > size || (n && t->head_seen < t->base))
		return -EMSGSIZE;
	size_t at = (size_t)(t->head_seen - t->base) & (size - 1), first = min_size(n, size - at);
	const unsigned char *place = store_at(s, s->tx, t->store);

	memcpy(buf, place + at, first);
	memcpy(buf + first, place, n - first);
	*ret_bytes = n;
	return 0;
}

bool tt_stream_writable(struct tt_stream *s, struct tt_stream_tx *t)
{
	if (refresh_head(s, t) < 0)
		return true; /* so that the error is met */
	if (used_bytes(t) <= store_size(s, t->store) / 2)
		return true;
	/* A full small ring still grows by a chunk, when there is one. */
	if (t->store || t->tail == t->base)
		return false;
	bool ok = grow(s, t);

	send_end(s, t);
	return ok;
}

/* A switch that was begun and does not count: back to the one before. */
static void undo_switch(struct tt_stream *s, struct tt_stream_tx *t)
{
	uint64_t pos = tt_load_relaxed(&s->tx->sw_pos[t->seq & 1]);
	uint32_t store = tt_load_relaxed(&s->tx->sw_store[t->seq & 1]);

	if (pos <= t->tail && store <= s->link->g.nchunks) {
		t->base = pos;
		t->store = store;
	}
	uint32_t lease = tt_load_relaxed(&s->tx->lease);

	if (lease >> 1 && lease >> 1 != t->store && tt_cas(&s->tx->lease, &lease, 0))
		tt_link_chunk_put(s->link, (lease >> 1) - 1, s->link->g.chunk_bytes);
}

/* The peer can write where this reads: only what fits is believed. */
void tt_stream_tx_recover(struct tt_stream *s, struct tt_stream_tx *t)
{
	uint64_t tail = tt_load_acquire(&s->tx->tail);
	uint32_t lease;

	if (tt_load_acquire(&s->tx->sw_seq) == t->seq)
		undo_switch(s, t);
	else
		publish_switch(s, t);
	lease = t->store << 1 | 1;
	if (t->store)
		tt_cas(&s->tx->lease, &lease, t->store << 1);
	t->writing = 0;
	/* What was not published was not sent. */
	if (tail < t->base)
		tail = t->base;
	if (tail < t->head_seen)
		tail = t->head_seen;
	if (tail < t->tail)
		t->tail = tail;
	if (used_bytes(t) > store_size(s, t->store))
		t->base = t->tail;
}

/* ---- receiving ---- */

/* Takes note of the switches up to seq that lie at or before tail. */
static int read_switches(struct tt_stream *s, struct tt_stream_rx *r, uint32_t seq, uint64_t tail)
{
	if (seq - r->seq > 2)
		return -EPROTO;
	while (r->seq != seq) {
		uint32_t k = (r->seq + 1) & 1;
		uint64_t pos = tt_load_relaxed(&s->rx->sw_pos[k]), before = r->head;
		uint32_t store = tt_load_relaxed(&s->rx->sw_store[k]);
		int at = r->next_pos[0] == NO_SWITCH ? 0 : 1;

		/* One that is younger than the tail just read waits for the next look. */
		if (pos > tail)
			return 0;
		if (at)
			before = r->next_pos[0];
		if (r->next_pos[at] != NO_SWITCH || pos < before || store > s->link->g.nchunks)
			return -EPROTO;
		r->next_store[at] = store;
		tt_store_release(&r->next_pos[at], pos);
		tt_store_release(&r->seq, r->seq + 1);
	}
	return 0;
}

static int refresh_switches(struct tt_stream *s, struct tt_stream_rx *r, uint64_t tail)
{
	uint32_t seq = tt_load_acquire(&s->rx->sw_seq);

	return seq == r->seq ? 0 : read_switches(s, r, seq, tail);
}

/* Reads the peer's tail, and a change of storage that came with it. */
static int refresh_tail(struct tt_stream *s, struct tt_stream_rx *r)
{
	uint64_t tail = tt_load_acquire(&s->rx->tail);

	if (tail == r->tail_seen)
		return 0;
	/* At most: an orphan that filled up, the small ring behind it, the next chunk. */
	if (tail < r->tail_seen ||
	    tail - r->head > 2ull * s->link->g.chunk_bytes + TT_STREAM_SMALL ||
	    refresh_switches(s, r, tail) < 0)
		return -EPROTO;
	r->tail_seen = tail;
	return 0;
}

static void drop_orphan(struct tt_stream *s, struct tt_stream_rx *r)
{
	if (r->orphan && r->head >= r->orphan_end) {
		tt_store_relaxed(&s->rx->orphan, 0u);
		/* Its positions began at base, unless a switch has been followed since. */
		tt_link_chunk_put(s->link, r->orphan - 1,
				  r->store == r->orphan ? (size_t)(r->orphan_end - r->base)
							: s->link->g.chunk_bytes);
		r->orphan = 0;
	}
}

/*
 * The switch in todo_* takes place, or is brought to its end after the death of
 * who began it: every step may be done twice.
 */
static inline void do_switch(struct tt_stream_rx *r)
{
	uint64_t pos = r->todo_pos;

	r->store = r->todo_store;
	r->base = pos;
	r->given = 0;
	if (r->next_pos[0] == pos) {
		r->next_store[0] = r->next_store[1];
		tt_store_release(&r->next_pos[0], r->next_pos[1]);
	}
	if (r->next_pos[0] == r->next_pos[1])
		tt_store_release(&r->next_pos[1], NO_SWITCH);
	tt_store_release(&r->todo_pos, NO_SWITCH);
}

static inline void follow_switch(struct tt_stream *s, struct tt_stream_rx *r)
{
	drop_orphan(s, r);
	while (r->head == r->next_pos[0]) {
		r->todo_store = r->next_store[0];
		tt_store_release(&r->todo_pos, r->next_pos[0]);
		do_switch(r);
	}
}

void tt_stream_rx_recover(struct tt_stream *s, struct tt_stream_rx *r)
{
	int last = r->next_pos[1] != NO_SWITCH ? 1 : 0;
	uint32_t next = r->seq + 1;

	if (r->todo_pos != NO_SWITCH)
		do_switch(r);
	/* A switch that was noted but not counted. */
	else if (r->next_pos[last] != NO_SWITCH && tt_load_acquire(&s->rx->sw_seq) != r->seq &&
		 r->next_pos[last] == tt_load_relaxed(&s->rx->sw_pos[next & 1]))
		r->seq = next;
	follow_switch(s, r);
	tt_store_release(&s->tx->head, r->head);
}

/* Contiguous bytes at position pos (head or, peeking, behind it); 0: none. */
static int span_at(struct tt_stream *s, const struct tt_stream_rx *r, uint64_t pos,
		   unsigned char **ret_place, size_t *ret_bytes)
{
	uint32_t store = r->store;
	uint64_t base = r->base, end = r->tail_seen;

	for (int k = 0; k < 2 && r->next_pos[k] != NO_SWITCH; k++) {
		if (pos >= r->next_pos[k]) {
			store = r->next_store[k];
			base = r->next_pos[k];
		} else {
			if (end > r->next_pos[k])
				end = r->next_pos[k];
			break;
		}
	}
	size_t size = store_size(s, store), at = (size_t)(pos - base) & (size - 1);

	if (end - pos > size)
		return -EPROTO;
	*ret_place = store_at(s, s->rx, store) + at;
	*ret_bytes = min_size((size_t)(end - pos), size - at);
	return 0;
}

/*
 * One buffer; *done grows. Stops when nothing is there. sound: up to so many
 * bytes *done may grow in memory that is known to be writable.
 */
static int recv_flat(struct tt_stream *s, struct tt_stream_rx *r, char *buf, size_t bytes,
		     bool peek, size_t sound, uint64_t *pos, size_t *done)
{
	while (bytes > 0) {
		unsigned char *place;
		size_t n;
		int err;

		if (*pos == r->tail_seen) {
			err = refresh_tail(s, r);
			if (err < 0)
				return err;
			if (*pos == r->tail_seen)
				return 0;
		}
		if (!peek)
			follow_switch(s, r);
		err = span_at(s, r, *pos, &place, &n);
		if (err < 0)
			return err;
		n = min_size(n, bytes);
		if (n > PIECE)
			n = PIECE;
		if (*done + n > sound && !tt_user_writable(buf, n))
			return -EFAULT;
		memcpy(buf, place, n);
		buf += n;
		bytes -= n;
		*done += n;
		*pos += n;
		if (!peek) {
			r->head = *pos;
			follow_switch(s, r);
			/* Early, so that a sender in the middle of a long copy goes on. */
			tt_store_release(&s->tx->head, r->head);
		}
	}
	return 0;
}

/*
 * A sender waits for room only when more than half of its storage is in use,
 * so a receiver that saw no more than a quarter in use need not look: the used
 * half is consumed in at most two batches of what this end has seen, one of
 * which is over a quarter.
 */
static inline bool room_matters(const struct tt_stream *s, const struct tt_stream_rx *r,
				uint64_t head_before)
{
	return (tt_load_relaxed(&s->rx->flags) & TT_STREAM_TIGHT) ||
	       r->tail_seen - head_before > store_size(s, r->store) / 4;
}

/* The same for a receiver: what is there is received as a whole or not at all. */
static bool first_writable(const struct iovec *iov, int iovcnt, size_t n)
{
	for (int i = 0; n > 0 && i < iovcnt; i++) {
		size_t len = min_size(iov[i].iov_len, n);

		if (len && !tt_user_writable(iov[i].iov_base, len))
			return false;
		n -= len;
	}
	return true;
}

int tt_stream_recv1(struct tt_stream *s, struct tt_stream_rx *r, void *buf, size_t bytes, bool peek,
		    size_t *ret_bytes, bool *ret_room)
{
	uint64_t pos = r->head, before = r->head;
	int err = pos == r->tail_seen ? refresh_tail(s, r) : 0;
	size_t done = 0, sound = min_size(min_size((size_t)(r->tail_seen - pos), PIECE), bytes);

	if (err == 0 && !tt_user_writable(buf, sound))
		err = -EFAULT;
	if (err == 0)
		err = recv_flat(s, r, buf, bytes, peek, sound, &pos, &done);
	*ret_room = !peek && done && room_matters(s, r, before);
	*ret_bytes = done;
	return ended(err, done, SIZE_MAX);
}

int tt_stream_recv(struct tt_stream *s, struct tt_stream_rx *r, const struct iovec *iov, int iovcnt,
		   bool peek, size_t *ret_bytes, bool *ret_room)
{
	uint64_t pos = r->head, before = r->head;
	int err = pos == r->tail_seen ? refresh_tail(s, r) : 0;
	size_t done = 0, sound = min_size((size_t)(r->tail_seen - pos), PIECE);

	if (err == 0 && !first_writable(iov, iovcnt, sound))
		err = -EFAULT;

	for (int i = 0; err == 0 && i < iovcnt; i++) {
		size_t had = done;

		if (!iov[i].iov_len)
			continue;
		err = recv_flat(s, r, iov[i].iov_base, iov[i].iov_len, peek, sound, &pos, &done);
		if (done - had < iov[i].iov_len)
			break;
	}
	*ret_room = !peek && done && room_matters(s, r, before);
	*ret_bytes = done;
	return ended(err, done, SIZE_MAX);
}

int tt_stream_pending(struct tt_stream *s, struct tt_stream_rx *r, uint64_t *ret_bytes)
{
	int err = refresh_tail(s, r);

	if (err == 0)
		*ret_bytes = r->tail_seen - r->head;
	return err;
}

void tt_stream_idle(struct tt_stream *s, struct tt_stream_rx *r)
{
	/* Also a switch that no bytes have followed: a chunk may lie there unused. */
	if (refresh_tail(s, r) < 0 || refresh_switches(s, r, r->tail_seen) < 0)
		return;
	follow_switch(s, r);
	/* Given back before: if the lease names it, the sender has it anew, for bytes to come. */
	if (!r->store || r->given || r->head != r->tail_seen || r->orphan)
		return;
	uint32_t lease = r->store << 1;

	if (!tt_cas(&s->rx->lease, &lease, 0))
		return; /* the sender is writing */
	/* The sender writes nothing more into this chunk; it may have before. */
	r->given = 1;
	r->orphan = r->store;
	tt_store_relaxed(&s->rx->orphan, r->orphan);
	r->orphan_end = tt_load_acquire(&s->rx->tail);
	drop_orphan(s, r);
}

void tt_stream_reset(struct tt_link *l, uint32_t slot)
{
	struct tt_stream_window *w[2] = {tt_link_rx_window(l, slot), tt_link_tx_window(l, slot)};

	for (int i = 0; i < 2; i++) {
		uint32_t store = tt_exchange(&w[i]->lease, 0) >> 1;
		uint32_t orphan = tt_load_relaxed(&w[i]->orphan);

		if (store)
			tt_link_chunk_put(l, store - 1, l->g.chunk_bytes);
		if (orphan && orphan != store)
			tt_link_chunk_put(l, orphan - 1, l->g.chunk_bytes);
		memset(w[i], 0, sizeof(*w[i]) - TT_STREAM_SMALL);
	}
}
