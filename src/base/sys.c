/* SPDX-License-Identifier: MIT */
#include "base/sys.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <unistd.h>

struct tt_sys tt_sys = {
#define X(type, name, params) .name = name,
	TT_SYS_CALLS(X)
#undef X
};
