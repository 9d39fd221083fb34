/* SPDX-License-Identifier: MIT */
/* cat, linked statically: a program that no library can be put before. */
#include <errno.h>
#include <unistd.h>

int main(void)
{
	static char buf[65536];
	ssize_t n;

	while ((n = read(0, buf, sizeof(buf))) > 0 || (n < 0 && errno == EINTR))
		for (ssize_t put = 0, w; put<n; put += w> 0 ? w : 0) {
			w = write(1, buf + put, (size_t)(n - put));
			if (w < 0 && errno != EINTR)
				return 1;
		}
	return n < 0;
}
