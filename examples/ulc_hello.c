/* SPDX-License-Identifier: MIT */
/*
 * Two processes talk over raw ULC: the child answers each question that the
 * parent writes into its memory. Shows regions, channels, remote writes with
 * notifications, a completion queue that is slept on, and the end.
 *
 *	cc ulc_hello.c $(pkg-config --cflags --libs tutti)
 */
#include <tutti/ulc.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define REGION_BYTES 4096

struct end {
	struct tutti_region *region; /* the peer writes here */
	struct tutti_cq *cq;
	struct tutti_channel *channel;
};

static void check(const char *what, int err)
{
	if (err >= 0)
		return;
	fprintf(stderr, "ulc_hello: %s: %s\n", what, strerror(-err));
	exit(1);
}

static void end_open(struct end *e, int sock)
{
	check("region", tutti_region_create(REGION_BYTES, &e->region));
	check("queue", tutti_cq_create(&e->cq));
	check("channel", tutti_channel_open(sock, e->region, e->cq, &e->channel));
	close(sock); /* the channel keeps what it needs */
}

static void end_close(struct end *e)
{
	tutti_channel_close(e->channel);
	tutti_cq_destroy(e->cq);
	tutti_region_destroy(e->region);
}

/* Waits for the next message; false at the end. */
static int receive(struct end *e, char *text, size_t room)
{
	struct tutti_event ev;
	int n;

	do
		n = tutti_cq_wait(e->cq, &ev, 1, -1);
	while (n == -EINTR);
	check("wait", n);
	if (ev.kind == TUTTI_EVENT_CLOSED)
		return 0;
	/* The peer may write what it likes: bound it, copy it, use the copy. */
	size_t bytes = ev.imm < room - 1 ? (size_t)ev.imm : room - 1;

	memcpy(text, tutti_region_address(e->region), bytes);
	text[bytes] = '\0';
	return 1;
}

static void transmit(struct end *e, const char *text)
{
	check("write", tutti_write_notify(e->channel, 0, text, strlen(text), strlen(text)));
}

static void answer(int sock)
{
	struct end e;
	char question[64], text[128];

	end_open(&e, sock);
	while (receive(&e, question, sizeof(question))) {
		snprintf(text, sizeof(text), "you asked '%s'", question);
		transmit(&e, text);
	}
	end_close(&e);
}

int main(void)
{
	static const char *const questions[] = {"who", "what", "when"};
	int sock[2], status;
	struct end e;
	char text[128];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sock) < 0)
		return 1;
	pid_t child = fork();

	if (child == 0) {
		close(sock[0]);
		answer(sock[1]);
		return 0;
	}
	close(sock[1]);
	end_open(&e, sock[0]);
	for (int i = 0; i < 3; i++) {
		transmit(&e, questions[i]);
		if (!receive(&e, text, sizeof(text)))
			return 1;
		printf("%s\n", text);
	}
	end_close(&e);
	if (waitpid(child, &status, 0) != child || status != 0)
		return 1;
	return 0;
}
