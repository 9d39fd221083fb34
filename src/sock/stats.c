/* SPDX-License-Identifier: MIT */
/* The counters of this process's side, at the end of the process. */
#include "base/json.h"
#include "base/sys.h"
#include "sock/conn.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static void put_totals(struct tt_json *j, const struct tt_side_totals *t)
{
	tt_json_uint(j, "connections", t->connections);
	tt_json_uint(j, "accelerated", t->accelerated);
	tt_json_uint(j, "empty", t->empty);
	tt_json_uint(j, "ring_tx_bytes", t->ring_tx_bytes);
	tt_json_uint(j, "ring_rx_bytes", t->ring_rx_bytes);
	tt_json_uint(j, "shadow_tx_bytes", t->shadow_tx_bytes);
	tt_json_uint(j, "shadow_rx_bytes", t->shadow_rx_bytes);
	tt_json_uint(j, "spins", t->spins);
	tt_json_uint(j, "sleeps", t->sleeps);
	tt_json_uint(j, "wakes", t->wakes);
	tt_json_uint(j, "kicks", t->kicks);
	tt_json_open(j, "fallbacks", '{');
	for (int i = 1; i < TT_REASON_COUNT; i++)
		if (t->fallback[i])
			tt_json_uint(j, tt_reason_names[i], t->fallback[i]);
	tt_json_close(j, '}');
}

void tt_stats_write(void)
{
	const char *path = getenv("TUTTI_STATS");
	char comm[17] = "";
	struct tt_json j;

	if (!path || !*path)
		return;
	prctl(PR_GET_NAME, comm);
	tt_json_init(&j);
	tt_json_open(&j, NULL, '{');
	tt_json_int(&j, "pid", getpid());
	tt_json_str(&j, "program", comm);
	put_totals(&j, &tt_proc.mem->totals);
	tt_json_close(&j, '}');
	int fd = strcmp(path, "-") == 0
			 ? STDERR_FILENO
			 : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	if (fd >= 0 && !j.failed) {
		j.text[j.bytes++] = '\n'; /* the NUL's place */
		if (tt_sys.write(fd, j.text, j.bytes) < 0)
			j.failed = true;
	}
	if (fd > STDERR_FILENO)
		tt_sys.close(fd);
	tt_json_fini(&j);
}
