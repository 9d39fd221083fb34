/* SPDX-License-Identifier: MIT */
/* Enters the kernel without libc for io_uring_setup and prints the errno, 0 for success. */
#include <errno.h>
#include <stdio.h>
#include <sys/syscall.h>

int main(void)
{
	char params[120] = {0};
	long ret;

#if defined(__x86_64__)
	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"((long)SYS_io_uring_setup), "D"(1L), "S"(params)
			 : "rcx", "r11", "memory");
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = SYS_io_uring_setup;
	register long x0 __asm__("x0") = 1;
	register char *x1 __asm__("x1") = params;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1) : "memory");
	ret = x0;
#else
	ret = -ENOTSUP;
#endif
	printf("%ld\n", ret < 0 ? -ret : 0);
	return 0;
}
