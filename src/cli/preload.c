/* SPDX-License-Identifier: MIT */
#include "cli_int.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libtutti-preload.so"

#if defined(__x86_64__)
#define MULTIARCH "x86_64-linux-gnu"
#elif defined(__aarch64__)
#define MULTIARCH "aarch64-linux-gnu"
#else
#define MULTIARCH "."
#endif

bool tt_cli_is_preload(const char *path, size_t len)
{
	const char *slash = memrchr(path, '/', len);
	size_t skip = slash ? (size_t)(slash + 1 - path) : 0;

	return len - skip == strlen(LIBRARY) && memcmp(path + skip, LIBRARY, len - skip) == 0;
}

int tt_cli_preload_path(char *ret_path, size_t bytes)
{
	static const char *const places[] = {
		/* from the directory of the command: the build tree, then installed */
		"src",	  "src/preload",       ".", "../lib/tutti", "../lib/" MULTIARCH "/tutti",
		"../lib", "../lib/" MULTIARCH,
	};
	const char *given = getenv("TUTTI_PRELOAD");
	char self[PATH_MAX], path[PATH_MAX + 64], real[PATH_MAX];
	ssize_t n;

	if (given && *given) {
		if (!realpath(given, real) || access(real, R_OK) < 0)
			return -errno;
		if (strlen(real) >= bytes)
			return -ENAMETOOLONG;
		strcpy(ret_path, real);
		return 0;
	}
	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n < 0)
		return -ENOENT;
	self[n] = '\0';
	*strrchr(self, '/') = '\0';
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s/" LIBRARY, self, places[i]);
		if (access(path, R_OK) == 0 && realpath(path, real) && strlen(real) < bytes) {
			strcpy(ret_path, real);
			return 0;
		}
	}
	return -ENOENT;
}

const char *tt_cli_preload_why(int err, const char **ret_todo)
{
	static char text[PATH_MAX + 64];
	const char *given = getenv("TUTTI_PRELOAD");

	if (!given || !*given) {
		*ret_todo = "build it, or set TUTTI_PRELOAD";
		return LIBRARY " is not beside the command nor in ../lib";
	}
	snprintf(text, sizeof(text), "TUTTI_PRELOAD names %s: %s", given, strerror(-err));
	*ret_todo = "unset it";
	return text;
}
