/* SPDX-License-Identifier: MIT */
/*
 * Options and queries: the kernel keeps them, on the shadow; here is what the
 * ring must know of, and what the shadow does not.
 */
#include "base/clock.h"
#include "base/sys.h"
#include "base/usermem.h"
#include "sock/sock.h"

#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <string.h>
#include <sys/ioctl.h>

/* As netinet/tcp.h has them, beside which linux/tcp.h cannot be. */
enum { ESTABLISHED = 1, FIN_WAIT2 = 5, CLOSE_WAIT = 8 };

/*
 * TCP_CORK. The ring never delays, and a corked shadow would hold back kicks:
 * while what is sent goes by the ring the entry has it, and servers that cork
 * every answer (nginx) enter the kernel for none.
 */
static int set_cork(struct tt_conn *c, int fd, const void *val, socklen_t len)
{
	int want = 0, ret = 0;

	memcpy(&want, val, sizeof(want));
	if (tt_conn_lock_tx(c) < 0)
		return tt_sys.setsockopt(fd, IPPROTO_TCP, TCP_CORK, val, len) < 0 ? -errno : 0;
	if (c->e->tx_route != TT_ROUTE_RING &&
	    tt_sys.setsockopt(fd, IPPROTO_TCP, TCP_CORK, val, len) < 0)
		ret = -errno;
	if (ret == 0)
		tt_store_relaxed(&c->e->cork, (uint32_t)(want != 0));
	tt_conn_unlock_tx(c);
	return ret;
}

void tt_conn_cork_shadow(struct tt_conn *c, int fd, bool on)
{
	int value = on;

	if (fd >= 0 && tt_load_relaxed(&c->e->cork))
		tt_sys.setsockopt(fd, IPPROTO_TCP, TCP_CORK, &value, sizeof(value));
}

/* What went by the ring, and a half-close that the shadows were spared. */
static void complete_info(struct tt_conn *c, void *val, socklen_t len)
{
	const uint32_t tx = tt_load_acquire(&c->st.tx->flags) & TT_STREAM_ENDED;
	const uint32_t rx = tt_load_acquire(&c->st.rx->flags) & TT_STREAM_ENDED;
	struct tcp_info info = {0};

	if (len > sizeof(info))
		len = sizeof(info);
	memcpy(&info, val, len);
	if (info.tcpi_state == ESTABLISHED && tx == TT_STREAM_HALF)
		info.tcpi_state = FIN_WAIT2;
	else if (info.tcpi_state == ESTABLISHED && rx == TT_STREAM_HALF)
		info.tcpi_state = CLOSE_WAIT;
	info.tcpi_bytes_acked += tt_load_relaxed(&c->e->tx_bytes);
	info.tcpi_bytes_sent += tt_load_relaxed(&c->e->tx_bytes);
	info.tcpi_bytes_received += tt_load_relaxed(&c->e->rx_bytes);
	memcpy(val, &info, len);
}

static int64_t timeval_ns(const void *val, socklen_t len)
{
	struct timeval tv = {0};

	if (len >= sizeof(tv))
		memcpy(&tv, val, sizeof(tv));
	return tv.tv_sec * TT_NS_PER_SEC + tv.tv_usec * 1000LL;
}

int tt_sock_setsockopt(int fd, int level, int name, const void *val, socklen_t len)
{
	struct tt_conn *c = tt_fd_conn(fd);

	if (c && level == IPPROTO_TCP && name == TCP_ULP && c->mode == TT_CONN_ATTACHED)
		return -ENOENT; /* as a kernel without that protocol */
	if (c && level == SOL_SOCKET && name == SO_ZEROCOPY && c->mode == TT_CONN_ATTACHED)
		return -EOPNOTSUPP;
	if (c && level == IPPROTO_TCP && name == TCP_CORK && len >= sizeof(int) && c->e &&
	    tt_user_readable(val, sizeof(int)))
		return set_cork(c, fd, val, len);
	int ret = tt_sys.setsockopt(fd, level, name, val, len) < 0 ? -errno : 0;

	if (ret < 0 || !c || !c->e || level != SOL_SOCKET)
		return ret;
	if ((name == SO_SNDBUF || name == SO_RCVBUF || name == SO_SNDBUFFORCE ||
	     name == SO_RCVBUFFORCE) &&
	    c->mode == TT_CONN_ATTACHED)
		tt_conn_take_buffer_sizes(c, fd);
	if (name == SO_RCVTIMEO)
		c->e->rcvtimeo_ns = timeval_ns(val, len);
	else if (name == SO_SNDTIMEO)
		c->e->sndtimeo_ns = timeval_ns(val, len);
	else if (name == SO_RCVLOWAT && len >= sizeof(int))
		c->e->rcvlowat = *(const int *)val > 1 ? (uint32_t) * (const int *)val : 0;
	return ret;
}

int tt_sock_getsockopt(int fd, int level, int name, void *val, socklen_t *len)
{
	struct tt_conn *c = tt_fd_conn(fd);

	/* The kernel is asked of what it will refuse. */
	if (c && !tt_user_writable(len, sizeof(*len)))
		c = NULL;
	if (c && c->mode == TT_CONN_ATTACHED && level == SOL_SOCKET && name == SO_ERROR &&
	    *len >= sizeof(int) && tt_user_writable(val, sizeof(int))) {
		tt_conn_check_shadow(c, fd);
		if (tt_load_acquire(&c->e->reset)) {
			*(int *)val = tt_conn_take_reset(c);
			*len = sizeof(int);
			return 0;
		}
	}
	socklen_t room = name == TCP_INFO && c ? *len : 0;
	int ret = tt_sys.getsockopt(fd, level, name, val, len) < 0 ? -errno : 0;

	if (ret == 0 && c && c->mode == TT_CONN_ATTACHED && level == IPPROTO_TCP) {
		if (name == TCP_INFO)
			complete_info(c, val, room < *len ? room : *len);
		else if (name == TCP_CORK && *len >= sizeof(int) &&
			 tt_load_relaxed(&c->e->tx_route) == TT_ROUTE_RING)
			*(int *)val = (int)tt_load_relaxed(&c->e->cork);
	}
	return ret;
}

bool tt_sock_ioctl(int fd, unsigned long req, void *arg, int *ret)
{
	struct tt_conn *c = tt_fd_conn(fd);
	uint64_t n = 0;
	int in_kernel = 0;

	if (!c)
		return false;
	if (req == FIONBIO) {
		*ret = tt_sys.ioctl(fd, req, arg) < 0 ? -errno : 0;
		if (*ret == 0)
			tt_sock_set_nonblock(fd, *(int *)arg != 0);
		return true;
	}
	if (c->mode != TT_CONN_ATTACHED || !tt_user_writable(arg, sizeof(int)))
		return false;
	if (req == SIOCATMARK) {
		/* What is in the ring lies before anything urgent. */
		if (c->e->rx_route != TT_ROUTE_RING ||
		    !tt_stream_peek(&c->st, tt_load_relaxed(&c->e->rx.head)))
			return false;
		*(int *)arg = 0;
		*ret = 0;
		return true;
	}
	if (req == FIONREAD) {
		tt_sock_note_up(c, fd);
		if (tt_conn_lock_rx(c) < 0)
			return false;
		if (c->e->rx_route != TT_ROUTE_RING)
			tt_sys.ioctl(fd, FIONREAD, &in_kernel);
		if (tt_stream_pending(&c->st, &c->e->rx, &n) < 0)
			n = 0;
		/* The ring's bytes cannot be read before all that comes by TCP is here. */
		if (c->e->rx_route == TT_ROUTE_TCP) {
			uint64_t before = c->e->up_known ? c->e->up_left : UINT64_MAX;

			if ((uint64_t)in_kernel < before)
				n = 0;
			else
				in_kernel = (int)before;
		}
		tt_conn_unlock_rx(c);
	} else if (req == SIOCOUTQ) {
		if (tt_conn_lock_tx(c) < 0)
			return false;
		if (c->e->tx_route != TT_ROUTE_RING)
			tt_sys.ioctl(fd, SIOCOUTQ, &in_kernel);
		if (tt_stream_unread(&c->st, &c->e->tx, &n) < 0)
			n = 0;
		tt_conn_unlock_tx(c);
	} else {
		return false;
	}
	*(int *)arg = (int)n + in_kernel;
	*ret = 0;
	return true;
}
