/* SPDX-License-Identifier: MIT */
/*
 * The connection manager's protocol: messages between processes and the
 * daemon, over a SOCK_SEQPACKET Unix socket. The daemon matches the two ends
 * of a connection and hands out links and bells; it is not on the data path.
 *
 * A control connection may be shared by a whole family of processes (fork,
 * exec): requests with an answer bring their own reply socket, one end of a
 * fresh socketpair, as their first descriptor. The daemon answers there and
 * closes it. All numbers are in host order: both ends are one machine.
 */
#ifndef TT_ULC_CTL_H
#define TT_ULC_CTL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TT_CTL_MAGIC 0x7474631u
#define TT_CTL_VERSION 1u

enum tt_ctl_type {
	TT_CTL_HELLO = 1, /* reply, side memory: registers a side. arg[0]: wanted id or 0 */
	TT_CTL_CLAIM,	  /* shadow: arg[0] side, arg[1] entry, arg[2] generation; no answer */
	TT_CTL_RELEASE,	  /* arg[0] side, arg[1] entry, arg[2] generation, arg[3] cookie */
	TT_CTL_BELL,	  /* eventfd: arg[0] side, arg[1] bell id, arg[2] pid; no answer */
	TT_CTL_GET_LINK,  /* reply: arg[0] side, arg[1] link -> fd of the link */
	TT_CTL_GET_BELL,  /* reply: arg[0] side, arg[1] side of the bell, arg[2] its id -> fd */
	TT_CTL_FIND,	  /* reply, shadow: arg[0] side that asks -> side memory, arg[0] entry */
	TT_CTL_STATUS,	  /* reply -> fd of a memfd with JSON */
	TT_CTL_SS,	  /* reply -> the same: connections. arg[0]: a port, or 0: all;
			     arg[1]: also what ended since "ended_until", or 0 */
	TT_CTL_DOWN,	  /* reply: the daemon ends */
	TT_CTL_LEFT,	  /* arg[0] side: a process let go of a connection that others may hold */
	TT_CTL_ANSWER = 100,
};

struct tt_ctl_msg {
	uint32_t magic, version;
	uint32_t type;
	int32_t status; /* in answers: 0 or a negative errno */
	uint64_t arg[4];
};

/*
 * Writes the path of the user's control socket: $TUTTI_DIR/ctl, else
 * $XDG_RUNTIME_DIR/tutti/ctl, else /tmp/tutti-UID/ctl. With create the
 * directory is made, 0700. -EPERM when it belongs to somebody else or others
 * may write there: nobody is told anything then; -ENOTDIR when it is no
 * directory; -EINVAL when $TUTTI_DIR is no absolute path; -ENAMETOOLONG when it
 * has more than TT_CTL_MAX_DIR bytes; else why it cannot be made or looked at.
 */
int tt_ctl_path(char *ret_path, size_t bytes, bool create);

#define TT_CTL_MAX_DIR 103

/* That directory as it is named, unchecked: for messages. In buf, or the environment's. */
const char *tt_ctl_dir(char *buf, size_t bytes);

/* From now on connections go where they would go now: programs clear their environment. */
void tt_ctl_keep_path(void);

/* Connects; returns a close-on-exec descriptor or a negative errno. */
int tt_ctl_connect(void);

/* Sends a message that has no answer. Never blocks (-EAGAIN). */
int tt_ctl_send(int ctl, const struct tt_ctl_msg *m, int fd);

/*
 * Sends a request with fd (-1: none) and waits for the answer, at most
 * timeout_ms. *ret_fd gets the descriptor that came with it, or -1; NULL when
 * none is wanted. Returns the answer's status, or a negative errno.
 */
int tt_ctl_request(int ctl, struct tt_ctl_msg *m, int fd, int *ret_fd, int timeout_ms);

static inline struct tt_ctl_msg tt_ctl_msg(enum tt_ctl_type type, uint64_t a, uint64_t b,
					   uint64_t c, uint64_t d)
{
	return (struct tt_ctl_msg){TT_CTL_MAGIC, TT_CTL_VERSION, type, 0, {a, b, c, d}};
}

#endif
