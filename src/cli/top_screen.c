/* SPDX-License-Identifier: MIT */
/*
 * tutti top on a terminal. One thread: it waits for a key, a signal or the next
 * look. The terminal is given back on every way out.
 */
#include "cli_int.h"
#include "top_int.h"

#include <curses.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define HEAD_LINES 4 /* before the table */

static volatile sig_atomic_t stopped;

static void on_signal(int sig)
{
	stopped = sig;
}

struct screen {
	struct tt_top *top;
	bool paused, help, quit;
	int row; /* where the next line goes */
};

/* ---- drawing ---- */

static void put_line(int row, const char *text)
{
	if (row < LINES)
		mvaddnstr(row, 0, text, COLS);
}

static void put_row(void *arg, const char *line)
{
	struct screen *s = arg;
	bool heading = s->row == HEAD_LINES;

	if (heading)
		attron(A_REVERSE);
	put_line(s->row, line);
	if (heading) {
		for (int x = getcurx(stdscr); x > 0 && x < COLS && getcury(stdscr) == s->row; x++)
			addch(' ');
		attroff(A_REVERSE);
	}
	s->row++;
}

static void draw_help(int row)
{
	static const char *const lines[] = {
		"q  quit             s  sort by the next key",
		"p  pause, go on     h  this help, or away with it",
		"",
		"PROGRAM connected to PEER (as port numbers tell). TX and RX are PROGRAM's.",
		"PATH     user: shared memory; tcp: kernel TCP, for the REASON",
		"MSG/s    messages by the ring, of both",
		"QUEUED   bytes that PROGRAM / PEER has not read yet",
		"SPIN/s   waits of both that ended while spinning",
		"SLEEP/s  waits of both that slept in the kernel",
		"WAKE/s   sleepers that the two have woken, each a system call",
		"CREDITS  bytes that PROGRAM / PEER may send before it must wait",
		"",
		"Waits in poll, select and epoll are of many connections: see the totals.",
		"Columns that do not fit are left out, the least important first.",
	};

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		put_line(row + (int)i, lines[i]);
}

static void draw(struct screen *s)
{
	const struct tt_top *t = s->top;
	char clock[16], text[TT_LINE_BYTES];

	erase();
	tt_top_clock(clock, sizeof(clock));
	snprintf(text, sizeof(text),
		 "tutti top  %s  every %g s, by %s%s  (q quit, s sort, p pause, h help)", clock,
		 t->delay_s, tt_sort_names[t->sort], s->paused ? "  PAUSED" : "");
	attron(A_BOLD);
	put_line(0, text);
	attroff(A_BOLD);
	if (t->err < 0) {
		put_line(1, tt_top_why(t));
	} else {
		tt_top_sums(t, text, sizeof(text));
		put_line(1, text);
		tt_format_totals(json_object_get(t->now.root, "totals"), text, sizeof(text));
		put_line(2, "since the daemon's start: ");
		if (LINES > 2)
			addnstr(text, COLS > 26 ? COLS - 26 : 0);
	}
	s->row = HEAD_LINES;
	if (s->help)
		draw_help(s->row);
	else if (LINES > HEAD_LINES + 1)
		tt_top_table(t, (size_t)(LINES - HEAD_LINES - 1), (size_t)COLS, put_row, s);
	refresh();
}

/* ---- keys and time ---- */

static void on_key(struct screen *s, int key)
{
	switch (key) {
	case 'q':
	case 'Q': s->quit = true; break;
	case 's':
		s->top->sort = (enum tt_sort)((s->top->sort + 1) % TT_SORT_COUNT);
		tt_top_sort(s->top);
		break;
	case 'p': s->paused = !s->paused; break;
	case 'h':
	case '?': s->help = !s->help; break;
	default: break; /* KEY_RESIZE: it is drawn anew */
	}
}

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Keys until it is time to look again. */
static void wait_keys(struct screen *s, double until_s)
{
	struct pollfd p = {STDIN_FILENO, POLLIN, 0};

	while (!s->quit && !stopped) {
		double left_s = until_s - now_s();

		if (!s->paused && left_s <= 0)
			return;
		int n = poll(&p, 1, s->paused ? -1 : (int)(left_s * 1000) + 1);

		if (n > 0 && !(p.revents & POLLIN)) {
			s->quit = true; /* the terminal is gone */
			return;
		}
		if (n == 0)
			continue;
		/* A key; or a signal, of which a change of size comes as one. */
		for (int key; (key = getch()) != ERR;)
			on_key(s, key);
		draw(s);
	}
}

static void run(struct screen *s)
{
	double next_s = now_s();
	long round = 0;

	/* The first shows no rates; it does not count. */
	do {
		tt_top_look(s->top);
		draw(s);
		next_s += s->top->delay_s;
		if (next_s < now_s())
			next_s = now_s() + s->top->delay_s;
		if (s->top->rounds && round == s->top->rounds)
			break;
		round++;
		wait_keys(s, next_s);
	} while (!s->quit && !stopped);
}

int tt_top_screen(struct tt_top *t)
{
	struct sigaction sa = {.sa_handler = on_signal};
	struct screen s = {.top = t};
	SCREEN *screen = newterm(NULL, stdout, stdin);

	if (!screen)
		return tt_cli_fail("top", "this terminal is not known",
				   "set TERM, or use --batch or --json");
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
	cbreak();
	noecho();
	keypad(stdscr, TRUE);
	nodelay(stdscr, TRUE);
	curs_set(0);
	run(&s);
	endwin();
	delscreen(screen);
	if (stopped) {
		/* As it would have been without our looking after the terminal. */
		signal(stopped, SIG_DFL);
		raise(stopped);
	}
	return TT_EXIT_OK;
}
