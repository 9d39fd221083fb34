/* SPDX-License-Identifier: MIT */
/* What this machine, and this user on it, give to Tutti. */
#include "base/shm.h"
#include "cli_int.h"
#include "doctor_int.h"
#include "sock/side.h"
#include "ulc/ctl.h"

#include <errno.h>
#include <limits.h>
#include <linux/membarrier.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

static void check_kernel(struct tt_finding *f)
{
	struct utsname u;
	int major = 0, minor = 0;

	uname(&u);
	if (sscanf(u.release, "%d.%d", &major, &minor) == 2 &&
	    (major < 5 || (major == 5 && minor < 14)))
		tt_finding_set(f, TT_WARN, "%s: Tutti is made for 5.14 and newer", u.release);
	else
		tt_finding_set(f, TT_GOOD, "%s", u.release);
}

static void check_cores(struct tt_finding *f)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	if (n < 2)
		tt_finding_set(f, TT_WARN, "1: spinning does not pay, use --spin 0");
	else
		tt_finding_set(f, TT_GOOD, "%ld", n);
}

static void check_memfd(struct tt_finding *f)
{
	int fd = tt_shm_create("tutti-doctor", 4096);

	if (fd < 0)
		tt_finding_set(f, TT_FAIL, "no sealed memory: %s", strerror(-fd));
	else
		tt_finding_set(f, TT_GOOD, "works");
	if (fd >= 0)
		close(fd);
}

static void check_eventfd(struct tt_finding *f)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	if (fd < 0)
		tt_finding_set(f, TT_FAIL, "no doorbells: %s", strerror(errno));
	else
		tt_finding_set(f, TT_GOOD, "works");
	if (fd >= 0)
		close(fd);
}

static void check_membarrier(struct tt_finding *f)
{
	long have = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);

	if (have >= 0 && (have & MEMBARRIER_CMD_GLOBAL_EXPEDITED))
		tt_finding_set(f, TT_GOOD, "works");
	else
		tt_finding_set(f, TT_WARN, "not here: every message costs a fence");
}

static int socket_with(int option, uint64_t *ret_value)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), err = 0;
	socklen_t len = sizeof(*ret_value);

	if (fd < 0)
		return -errno;
	if (getsockopt(fd, SOL_SOCKET, option, ret_value, &len) < 0)
		err = -errno;
	close(fd);
	return err;
}

static void check_cookie(struct tt_finding *f)
{
	uint64_t v;
	int err = socket_with(SO_COOKIE, &v);

	if (err < 0)
		tt_finding_set(f, TT_FAIL, "sockets cannot be told apart: %s", strerror(-err));
	else
		tt_finding_set(f, TT_GOOD, "works");
}

static void check_netns(struct tt_finding *f)
{
	uint64_t v;

	if (socket_with(SO_NETNS_COOKIE, &v) < 0)
		tt_finding_set(f, TT_WARN, "not here: run programs of one network namespace only");
	else
		tt_finding_set(f, TT_GOOD, "works");
}

static void check_diag(struct tt_finding *f)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);

	if (fd < 0)
		tt_finding_set(f, TT_WARN, "not here: what killed programs held is freed late");
	else
		tt_finding_set(f, TT_GOOD, "works");
	if (fd >= 0)
		close(fd);
}

static void check_pidfd(struct tt_finding *f)
{
	int fd = pidfd_open(getpid(), 0);

	if (fd < 0)
		tt_finding_set(f, TT_WARN, "not here: sleepers are woken more slowly");
	else
		tt_finding_set(f, TT_GOOD, "works");
	if (fd >= 0)
		close(fd);
}

static void check_nofile(struct tt_finding *f)
{
	struct rlimit rl = {0};

	getrlimit(RLIMIT_NOFILE, &rl);
	if (rl.rlim_cur < 256)
		tt_finding_set(f, TT_WARN, "%llu: too few for a server; raise it with ulimit -n",
			       (unsigned long long)rl.rlim_cur);
	else
		tt_finding_set(f, TT_GOOD, "%llu, at most %llu", (unsigned long long)rl.rlim_cur,
			       (unsigned long long)rl.rlim_max);
}

static bool is_below(int resource, uint64_t bytes, uint64_t *ret_limit)
{
	struct rlimit rl;

	if (getrlimit(resource, &rl) < 0 || rl.rlim_cur == RLIM_INFINITY || rl.rlim_cur >= bytes)
		return false;
	*ret_limit = rl.rlim_cur;
	return true;
}

/* A link is mapped whole; its pages are taken by use. Nothing is locked in memory. */
static void check_memory(struct tt_finding *f)
{
	struct tt_link_geometry g = tt_stream_geometry();
	uint64_t link = tt_link_bytes(&g), side = sizeof(struct tt_side_mem), limit;
	const unsigned mib = 1u << 20;

	if (is_below(RLIMIT_AS, 2 * link + side, &limit))
		tt_finding_set(f, TT_FAIL,
			       "address space %llu MiB: a link maps %llu; raise it with ulimit -v",
			       (unsigned long long)limit / mib, (unsigned long long)link / mib);
	else if (is_below(RLIMIT_FSIZE, link, &limit))
		tt_finding_set(f, TT_FAIL,
			       "file size %llu MiB: a link is %llu; raise it with ulimit -f, and "
			       "start the daemon anew",
			       (unsigned long long)limit / mib, (unsigned long long)link / mib);
	else
		tt_finding_set(f, TT_GOOD,
			       "address space and file size suffice; locked memory is not used");
}

static long read_setting(const char *name)
{
	char path[128];
	long v = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/sys/%s", name);
	f = fopen(path, "re");
	if (!f)
		return -1;
	if (fscanf(f, "%ld", &v) != 1)
		v = -1;
	fclose(f);
	return v;
}

static void check_proc(struct tt_finding *f)
{
	if (access("/proc/self/exe", F_OK) < 0)
		tt_finding_set(f, TT_FAIL, "/proc is not mounted: mount it");
	else if (read_setting("vm/overcommit_memory") == 2)
		tt_finding_set(f, TT_WARN,
			       "vm.overcommit_memory is 2: links count in full, so few fit; set 0");
	else if (read_setting("kernel/io_uring_disabled") > 0)
		tt_finding_set(f, TT_GOOD, "io_uring is disabled, which is well for Tutti");
	else
		tt_finding_set(f, TT_GOOD, "nothing in the way");
}

static void check_dir(struct tt_finding *f)
{
	char dir[PATH_MAX];
	int err = tt_cli_dir(dir, sizeof(dir), true);

	const char *todo, *why;

	/* The daemon makes its socket and lock there. */
	if (err == 0 && access(dir, W_OK | X_OK) < 0)
		err = -errno;
	if (err < 0) {
		why = tt_cli_dir_why(err, &todo);
		tt_finding_set(f, TT_FAIL, "%.300s: %s", why, todo);
	} else {
		tt_finding_set(f, TT_GOOD, "%.300s", dir);
	}
}

static void check_daemon(struct tt_finding *f)
{
	int ctl = tt_ctl_connect();
	const char *todo, *why = ctl < 0 ? tt_cli_why(ctl, &todo) : NULL;

	if (ctl >= 0)
		tt_finding_set(f, TT_GOOD, "runs");
	else if (ctl == -ENOENT || ctl == -ECONNREFUSED)
		tt_finding_set(f, TT_GOOD, "does not run; 'tutti run' will start it");
	else
		tt_finding_set(f, TT_FAIL, "%.300s: %s", why, todo);
	if (ctl >= 0)
		close(ctl);
}

static void check_library(struct tt_finding *f)
{
	char path[PATH_MAX];
	int err = tt_cli_preload_path(path, sizeof(path));
	const char *todo, *why = err < 0 ? tt_cli_preload_why(err, &todo) : NULL;

	if (why)
		tt_finding_set(f, TT_FAIL, "%.300s: %s", why, todo);
	else if (strpbrk(path, ": "))
		tt_finding_set(f, TT_FAIL,
			       "its path has a space or colon in it: install Tutti elsewhere");
	else
		tt_finding_set(f, TT_GOOD, "%.380s", path);
}

static const struct check {
	const char *name, *label;
	void (*run)(struct tt_finding *f);
	bool concerns_programs; /* more than the machine: told with a program too */
} checks[] = {
	{"kernel", "kernel", check_kernel, false},
	{"cores", "cores", check_cores, false},
	{"memfd_sealing", "sealed memory", check_memfd, false},
	{"eventfd", "doorbells", check_eventfd, false},
	{"membarrier", "membarrier", check_membarrier, false},
	{"so_cookie", "socket cookies", check_cookie, false},
	{"so_netns_cookie", "namespace cookies", check_netns, false},
	{"sock_diag", "socket diagnosis", check_diag, false},
	{"pidfd", "process descriptors", check_pidfd, false},
	{"open_files", "open files", check_nofile, true},
	{"memory_limits", "memory limits", check_memory, true},
	{"proc_settings", "kernel settings", check_proc, false},
	{"control_directory", "control directory", check_dir, true},
	{"daemon", "daemon", check_daemon, true},
	{"preload_library", "preload library", check_library, true},
};
#define NCHECKS (sizeof(checks) / sizeof(checks[0]))

void tt_doctor_machine(struct tt_findings *all, bool only_programs)
{
	for (size_t i = 0; i < NCHECKS; i++) {
		struct tt_finding f;

		if (only_programs && !checks[i].concerns_programs)
			continue;
		checks[i].run(&f);
		tt_findings_add(all, checks[i].name, checks[i].label, f.verdict, "%s", f.text);
	}
}
