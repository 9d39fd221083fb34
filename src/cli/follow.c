/* SPDX-License-Identifier: MIT */
/*
 * The daemon keeps no history: this looks ten times a second and tells what is
 * different. So the time of an event is when it was seen, and of what changes
 * twice between two looks the last counts.
 *
 * An end that is listed no more has been closed, unless another daemon lists:
 * it may not have found the side (see daemon/adopt.c). Then its process decides.
 */
#include "follow_int.h"

#include "cli_int.h"
#include "table_int.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOOK_S 0.1
#define DETAIL_BYTES 240
#define MAX_FOLLOWED 500

/* ---- what is different ---- */

static const struct {
	const char *state, *detail;
} states[] = {
	{"plain", "kernel TCP; not claimed yet"},
	{"claimed", "the daemon knows it; waits for the other end"},
	{"granted", "both ends have claimed; shared memory is there"},
	{"attached", "the shared memory is mapped"},
};
#define NSTATES ((int)(sizeof(states) / sizeof(states[0])))

static int level_of(const struct tt_end *e)
{
	for (int i = 0; i < NSTATES; i++)
		if (strcmp(states[i].state, e->state) == 0)
			return i;
	return 0;
}

static void tell_found(const struct tt_end *e, tt_event_fn fn, void *arg)
{
	char text[DETAIL_BYTES], since[40] = "";

	if (e->age_s > 0)
		snprintf(since, sizeof(since), " %.1f s ago", e->age_s);
	snprintf(text, sizeof(text), "%s%s, sends by %s, receives by %s%s%s", e->state,
		 level_of(e) ? since : "", strcmp(e->tx_route, "ring") ? "TCP" : "ring",
		 strcmp(e->rx_route, "ring") ? "TCP" : "ring",
		 strcmp(e->reason, "none") ? ", " : "", strcmp(e->reason, "none") ? e->reason : "");
	fn(arg, e, "found", text);
}

static void tell_route(const struct tt_end *e, bool is_tx, const char *old, tt_event_fn fn,
		       void *arg)
{
	const char *now = is_tx ? e->tx_route : e->rx_route, *verb = is_tx ? "sends" : "receives";
	char text[DETAIL_BYTES];

	if (strcmp(old, now) == 0)
		return;
	if (strcmp(now, "back") != 0) {
		snprintf(text, sizeof(text), "%s by the ring from now on, after %llu bytes by TCP",
			 verb,
			 (unsigned long long)(is_tx ? e->shadow_tx_bytes : e->shadow_rx_bytes));
		fn(arg, e, is_tx ? "tx-up" : "rx-up", text);
		return;
	}
	snprintf(text, sizeof(text), "%s by TCP again, after %llu bytes by the ring: %s", verb,
		 (unsigned long long)(is_tx ? e->ring_tx_bytes : e->ring_rx_bytes),
		 strcmp(e->reason, "none") ? e->reason : "the other end asked for it");
	fn(arg, e, is_tx ? "tx-down" : "rx-down", text);
}

static void tell_closed(const struct tt_end *e, tt_event_fn fn, void *arg)
{
	char text[DETAIL_BYTES];

	snprintf(text, sizeof(text),
		 "%s: ring %llu sent, %llu received; TCP %llu sent, %llu received; "
		 "%llu spins, %llu sleeps, %llu wakes",
		 e->is_final ? "in all" : "last seen", (unsigned long long)e->ring_tx_bytes,
		 (unsigned long long)e->ring_rx_bytes, (unsigned long long)e->shadow_tx_bytes,
		 (unsigned long long)e->shadow_rx_bytes, (unsigned long long)e->spins,
		 (unsigned long long)e->sleeps, (unsigned long long)e->wakes);
	fn(arg, e, "closed", text);
}

void tt_follow_diff(const struct tt_end *old, const struct tt_end *now, tt_event_fn fn, void *arg)
{
	if (!old || !now) {
		if (now)
			tell_found(now, fn, arg);
		else if (old)
			tell_closed(old, fn, arg);
		return;
	}
	for (int i = level_of(old) + 1; i <= level_of(now); i++)
		fn(arg, now, states[i].state, states[i].detail);
	tell_route(now, true, old->tx_route, fn, arg);
	tell_route(now, false, old->rx_route, fn, arg);
	/* To have no peer yet is what 'claimed' says. */
	if (!now->accelerated && level_of(now) < NSTATES - 1 &&
	    strcmp(old->reason, now->reason) != 0 && strcmp(now->reason, "none") != 0 &&
	    strcmp(now->reason, "peer-not-tutti") != 0)
		fn(arg, now, "fallback", now->reason);
}

/* ---- lines ---- */

static void format_time(char *ret_text, size_t bytes, const char *format)
{
	char clock[40];
	struct timespec ts;
	struct tm tm;

	clock_gettime(CLOCK_REALTIME, &ts);
	localtime_r(&ts.tv_sec, &tm);
	strftime(clock, sizeof(clock), format, &tm);
	snprintf(ret_text, bytes, "%s.%03ld", clock, ts.tv_nsec / 1000000);
}

static json_t *event_object(const char *event, const char *detail)
{
	json_t *o = json_object();
	char time[64];

	format_time(time, sizeof(time), "%FT%T");
	json_object_set_new(o, "time", json_string(time));
	json_object_set_new(o, "event", json_string(event));
	if (detail)
		json_object_set_new(o, "detail", json_string(detail));
	return o;
}

static void print_object(json_t *o)
{
	json_dumpf(o, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
	putchar('\n');
	fflush(stdout);
	json_decref(o);
}

static void print_text(const char *who, const char *event, const char *detail)
{
	char time[64];

	format_time(time, sizeof(time), "%T");
	printf("%s  %-22s %-9s %s\n", time, who, event, detail);
	fflush(stdout);
}

/* arg: struct tt_follow_options */
static void print_event(void *arg, const struct tt_end *e, const char *event, const char *detail)
{
	const struct tt_follow_options *o = arg;
	const char *port = strrchr(e->local, ':');
	char who[80];

	if (o->json) {
		json_t *j = event_object(event, detail);

		json_object_set(j, "connection", e->json);
		print_object(j);
		return;
	}
	snprintf(who, sizeof(who), "%s/%lld%s", e->program, e->pid, port ? port : "");
	print_text(who, event, detail);
}

static void print_news(const struct tt_follow_options *o, const char *event, const char *detail)
{
	if (o->json)
		print_object(event_object(event, detail));
	else
		print_text("daemon", event, detail);
}

static void print_rates(const struct tt_follow_options *o, const struct tt_snapshot *s,
			const struct tt_pair *p, const struct tt_rates *r)
{
	const struct tt_end *a = tt_end_a(s, p);
	char text[DETAIL_BYTES], tx[16], rx[16];
	json_t *j;

	if (!o->json) {
		tt_format_short(r->tx_bytes, tx, sizeof(tx));
		tt_format_short(r->rx_bytes, rx, sizeof(rx));
		snprintf(text, sizeof(text),
			 "%s B/s sent, %s B/s received, %.0f messages/s, %.0f spins/s, %.0f "
			 "sleeps/s, %.0f wakes/s",
			 tx, rx, r->messages, r->spins, r->sleeps, r->wakes);
		print_event((void *)(uintptr_t)o, a, "rates", text);
		return;
	}
	j = event_object("rates", NULL);
	json_object_set_new(j, "tx_bytes_per_s", json_real(r->tx_bytes));
	json_object_set_new(j, "rx_bytes_per_s", json_real(r->rx_bytes));
	json_object_set_new(j, "messages_per_s", json_real(r->messages));
	json_object_set_new(j, "spins_per_s", json_real(r->spins));
	json_object_set_new(j, "sleeps_per_s", json_real(r->sleeps));
	json_object_set_new(j, "wakes_per_s", json_real(r->wakes));
	json_object_set(j, "connection", a->json);
	print_object(j);
}

/* ---- following ---- */

struct watched {
	struct tt_end e;	 /* as last seen; holds its JSON */
	bool unsure, seen, idle; /* unsure: not seen since the daemon changed */
};

struct follower {
	const struct tt_follow_options *o;
	struct watched *ends;
	size_t n, room;
	struct tt_snapshot rated; /* when rates were printed last */
	long long daemon_pid;
	uint64_t ended; /* what has ended up to there has been told */
	bool is_lost;
};

static struct watched *find(struct follower *f, const struct tt_end *e, bool by_connection)
{
	for (size_t i = 0; i < f->n; i++) {
		const struct tt_end *mine = &f->ends[i].e;

		if (strcmp(mine->id, e->id) == 0 || (by_connection && tt_end_is_peer(mine, e)))
			return &f->ends[i];
	}
	return NULL;
}

static int watch(struct follower *f, const struct tt_end *e)
{
	if (f->n == f->room) {
		size_t room = f->room ? f->room * 2 : 16;
		struct watched *ends = realloc(f->ends, room * sizeof(*ends));

		if (!ends)
			return -ENOMEM;
		f->ends = ends;
		f->room = room;
	}
	json_incref(e->json);
	f->ends[f->n++] = (struct watched){.e = *e, .seen = true};
	tt_follow_diff(NULL, e, print_event, (void *)(uintptr_t)f->o);
	return 0;
}

static void unwatch(struct follower *f, size_t i)
{
	tt_follow_diff(&f->ends[i].e, NULL, print_event, (void *)(uintptr_t)f->o);
	json_decref(f->ends[i].e.json);
	f->ends[i] = f->ends[--f->n];
}

static bool is_running(long long pid)
{
	return kill((pid_t)pid, 0) == 0 || errno == EPERM;
}

static void drop_unseen(struct follower *f)
{
	for (size_t i = f->n; i-- > 0;) {
		struct watched *w = &f->ends[i];

		if (!w->seen && (!w->unsure || !is_running(w->e.pid)))
			unwatch(f, i);
	}
}

/* Its last counts; that it has ended is told when it is listed no more. */
static void take_ended(struct follower *f, const struct tt_snapshot *s)
{
	json_t *o;
	size_t i;

	json_array_foreach(json_object_get(s->root, "ended"), i, o)
	{
		const char *id = json_string_value(json_object_get(o, "id"));
		struct tt_end like = {.id = id, .local = "", .remote = ""};
		struct watched *w = id ? find(f, &like, false) : NULL;

		if (w)
			tt_end_finish(&w->e, o);
	}
	f->ended = (uint64_t)json_integer_value(json_object_get(s->root, "ended_until"));
}

static int update(struct follower *f, const struct tt_snapshot *s)
{
	for (size_t i = 0; i < f->n; i++)
		f->ends[i].seen = false;
	for (size_t i = 0; i < s->nends; i++) {
		const struct tt_end *e = &s->ends[i];
		struct watched *w = find(f, e, false);

		if (w && w->e.is_final) {
			w->seen = true; /* just so; what is listed is older */
		} else if (w) {
			tt_follow_diff(&w->e, e, print_event, (void *)(uintptr_t)f->o);
			json_incref(e->json);
			json_decref(w->e.json);
			w->e = *e;
			w->seen = true;
			w->unsure = false;
		} else if (find(f, e, true) && watch(f, e) < 0) {
			return -ENOMEM;
		}
	}
	take_ended(f, s);
	drop_unseen(f);
	return 0;
}

static void on_daemon(struct follower *f, const struct tt_snapshot *s)
{
	long long pid = s ? json_integer_value(json_object_get(s->root, "daemon_pid")) : 0;

	if (!s) {
		if (!f->is_lost)
			print_news(f->o, "lost", "it has ended; live connections go on");
		f->is_lost = true;
		f->ended = 1; /* the next one counts anew */
	} else if (pid != f->daemon_pid) {
		print_news(f->o, "found", "another one has taken over");
		f->daemon_pid = pid;
		f->is_lost = false;
	} else {
		return;
	}
	for (size_t i = 0; i < f->n; i++)
		f->ends[i].unsure = true;
}

static void tell_rates(struct follower *f, struct tt_snapshot *s)
{
	for (size_t i = 0; i < s->npairs; i++) {
		const struct tt_pair *p = &s->pairs[i];
		struct watched *w = find(f, tt_end_a(s, p), false);
		struct tt_rates r;

		if (!w)
			continue;
		tt_pair_rates(&f->rated, s, p, &r);
		bool idle = r.tx_bytes + r.rx_bytes + r.messages <= 0;

		/* Silence is told once. */
		if (f->rated.root && (!idle || !w->idle))
			print_rates(f->o, s, p, &r);
		w->idle = f->rated.root && idle;
	}
	tt_snapshot_fini(&f->rated);
	f->rated = *s;
	memset(s, 0, sizeof(*s));
}

static void nap(double seconds)
{
	struct timespec ts = {.tv_sec = (time_t)seconds};

	ts.tv_nsec = (long)((seconds - (double)ts.tv_sec) * 1e9);
	nanosleep(&ts, NULL);
}

/* The first look: what matches is what will be followed. 0 none yet, 1, or an error. */
static int begin(struct follower *f)
{
	struct tt_snapshot s;
	struct tt_filter filter = f->o->filter;
	int err, found;

	filter.ended = TT_ENDED_FROM_NOW;
	err = tt_snapshot_take(&filter, &s);
	if (err < 0)
		return err;
	f->daemon_pid = json_integer_value(json_object_get(s.root, "daemon_pid"));
	f->ended = (uint64_t)json_integer_value(json_object_get(s.root, "ended_until"));
	if (s.npairs > MAX_FOLLOWED)
		err = -E2BIG;
	for (size_t i = 0; err == 0 && i < s.npairs; i++) {
		const struct tt_end *a = tt_end_a(&s, &s.pairs[i]), *b = tt_end_b(&s, &s.pairs[i]);

		err = watch(f, a);
		if (err == 0 && b)
			err = watch(f, b);
	}
	found = s.npairs > 0;
	if (err == 0 && found)
		tell_rates(f, &s);
	tt_snapshot_fini(&s);
	return err < 0 ? err : found;
}

/* One connection can be asked for by its port, which costs the daemon little. */
static struct tt_filter narrow(const struct follower *f)
{
	struct tt_filter all = {0};

	for (size_t i = 1; i < f->n; i++)
		if (!tt_end_is_peer(&f->ends[0].e, &f->ends[i].e))
			return all;
	return (struct tt_filter){.port = tt_end_port(&f->ends[0].e)};
}

static int go_on(struct follower *f)
{
	double step = f->o->delay_s < LOOK_S ? f->o->delay_s : LOOK_S;
	struct tt_filter filter = narrow(f);
	int err = 0;

	while (f->n && err == 0) {
		struct tt_snapshot s = {0};

		nap(step);
		filter.ended = f->ended;
		if (tt_snapshot_take(&filter, &s) < 0) {
			on_daemon(f, NULL);
			for (size_t i = 0; i < f->n; i++)
				f->ends[i].seen = false;
			drop_unseen(f);
			continue;
		}
		on_daemon(f, &s);
		err = update(f, &s);
		if (s.at_s - f->rated.at_s + step / 2 >= f->o->delay_s)
			tell_rates(f, &s);
		tt_snapshot_fini(&s);
	}
	return err;
}

int tt_follow(const struct tt_follow_options *o)
{
	struct follower f = {.o = o};
	int err;

	while (((err = begin(&f)) == 0 || tt_cli_is_absent(err)) && o->wait)
		nap(LOOK_S);
	if (err == -E2BIG)
		return tt_cli_fail("ss", "too many connections match", "narrow it by a filter");
	if (err == 0)
		return tt_cli_fail("ss", "no connection matches",
				   "see all with 'tutti ss', or wait for one with --wait");
	if (err > 0)
		err = go_on(&f);
	for (size_t i = 0; i < f.n; i++)
		json_decref(f.ends[i].e.json);
	free(f.ends);
	tt_snapshot_fini(&f.rated);
	return err < 0 ? tt_cli_no_report("ss", err) : TT_EXIT_OK;
}
