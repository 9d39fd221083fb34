/* SPDX-License-Identifier: MIT */
/*
 * Asks the kernel by NETLINK_SOCK_DIAG whether sockets still exist; needs no
 * privilege. A question names addresses and cookie, so the answer is about
 * that very socket. Questions go in batches: the kernel answers them all
 * before the send returns.
 */
#include "base/log.h"
#include "daemon_int.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct question {
	struct nlmsghdr nh;
	struct inet_diag_req_v2 req;
};

int tt_probe_open(void)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG);
	struct sockaddr_nl sa = {.nl_family = AF_NETLINK};

	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0) {
		int err = -errno;

		close(fd);
		return err;
	}
	return fd;
}

static void put_addr(const struct tt_addr *a, bool ipv4, __be32 *ip, __be16 *port)
{
	if (ipv4)
		memcpy(ip, a->ip + 12, 4);
	else
		memcpy(ip, a->ip, 16);
	*port = htons(a->port);
}

static void ask(const struct tt_claim *c, uint32_t seq, struct question *q)
{
	bool ipv4 = tt_addr_is_ipv4(&c->tuple.local);

	memset(q, 0, sizeof(*q));
	q->nh.nlmsg_len = sizeof(*q);
	q->nh.nlmsg_type = SOCK_DIAG_BY_FAMILY;
	q->nh.nlmsg_flags = NLM_F_REQUEST;
	q->nh.nlmsg_seq = seq;
	q->req.sdiag_family = ipv4 ? AF_INET : AF_INET6;
	q->req.sdiag_protocol = IPPROTO_TCP;
	q->req.idiag_states = ~0u;
	put_addr(&c->tuple.local, ipv4, q->req.id.idiag_src, &q->req.id.idiag_sport);
	put_addr(&c->tuple.remote, ipv4, q->req.id.idiag_dst, &q->req.id.idiag_dport);
	q->req.id.idiag_if = c->ifindex;
	q->req.id.idiag_cookie[0] = (uint32_t)c->cookie;
	q->req.id.idiag_cookie[1] = (uint32_t)(c->cookie >> 32);
}

static enum tt_life interpret(const struct nlmsghdr *nh, size_t bytes)
{
	if (nh->nlmsg_type == NLMSG_ERROR && bytes >= NLMSG_LENGTH(sizeof(int))) {
		const struct nlmsgerr *e = NLMSG_DATA(nh);

		/* ESTALE: these addresses are another socket's now. */
		return e->error == -ENOENT || e->error == -ESTALE ? TT_LIFE_ABSENT : TT_LIFE_ALIVE;
	}
	if (nh->nlmsg_type == SOCK_DIAG_BY_FAMILY &&
	    bytes >= NLMSG_LENGTH(sizeof(struct inet_diag_msg))) {
		const struct inet_diag_msg *m = NLMSG_DATA(nh);

		/* Without an inode it has no file: closed, and lives on in the protocol only. */
		return m->idiag_inode ? TT_LIFE_ALIVE : TT_LIFE_ORPHAN;
	}
	return TT_LIFE_ALIVE;
}

static uint32_t next_seq;

static void probe_batch(int netlink, struct tt_claim *const *claims, uint32_t n,
			enum tt_life *ret_life)
{
	struct question q[TT_PROBE_BATCH];
	uint32_t first = next_seq, answered = 0;
	_Alignas(struct nlmsghdr) char buf[1024];

	next_seq += n;
	for (uint32_t i = 0; i < n; i++) {
		ask(claims[i], first + i, &q[i]);
		ret_life[i] = TT_LIFE_ALIVE;
	}
	if (send(netlink, q, n * sizeof(*q), MSG_DONTWAIT) < 0)
		return;
	while (answered < n) {
		ssize_t got = recv(netlink, buf, sizeof(buf), MSG_DONTWAIT);
		const struct nlmsghdr *nh = (const void *)buf;

		if (got < (ssize_t)sizeof(*nh)) {
			if (got < 0 && (errno == EINTR || errno == ENOBUFS))
				continue;
			return;
		}
		/* An answer to an earlier question that was given up has another number. */
		if (nh->nlmsg_seq - first >= n)
			continue;
		ret_life[nh->nlmsg_seq - first] = interpret(nh, (size_t)got);
		answered++;
	}
}

void tt_probe(int netlink, struct tt_claim *const *claims, uint32_t n, enum tt_life *ret_life)
{
	for (uint32_t i = 0; i < n; i += TT_PROBE_BATCH) {
		uint32_t batch = n - i < TT_PROBE_BATCH ? n - i : TT_PROBE_BATCH;

		if (netlink >= 0)
			probe_batch(netlink, claims + i, batch, ret_life + i);
		else
			memset(ret_life + i, 0, batch * sizeof(*ret_life));
	}
}
