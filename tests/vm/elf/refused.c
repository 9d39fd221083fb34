/* SPDX-License-Identifier: MIT */
/* What the machine does not take, one case for each -D. */
#include "module.h"

#ifdef CORE
struct task {
	u32 id;
	u64 age;
} __attribute__((preserve_access_index));
SEC("mdo/packet") u64 f(struct task *t)
{
	return t->age;
}
#endif

#ifdef UNDEFINED
extern u32 elsewhere;
SEC("mdo/packet") u64 f(u64 *ctx)
{
	return elsewhere;
}
#endif

#ifdef UNDEFINED_IN_DATA
extern u32 elsewhere;
u32 *where = &elsewhere;
SEC("mdo/packet") u64 f(u64 *ctx)
{
	return (u64)&where;
}
#endif

#ifdef COMMON
u32 anywhere;
SEC("mdo/packet") u64 f(u64 *ctx)
{
	return (u64)&anywhere;
}
#endif

#ifdef FUNCTION_ADDRESS
static NOINLINE u64 g(u64 x)
{
	return x;
}
SEC("mdo/packet") u64 f(u64 *ctx)
{
	return (u64)&g;
}
#endif

#ifdef FUNCTION_TABLE
static NOINLINE u64 g(u64 x)
{
	return x;
}
u64 (*functions[1])(u64) = {g};
SEC("mdo/packet") u64 f(u64 *ctx)
{
	return 0;
}
#endif

#ifdef OLD_MAPS
struct {
	u32 type, key_size, value_size, max_entries;
} old SEC("maps") = {1, 4, 4, 1};
SEC("mdo/packet") u64 f(u64 *ctx)
{
	return (u64)&old;
}
#endif

#ifdef LICENSE_READ
char module_license[] SEC("license") = "MIT";
SEC("mdo/packet") u64 f(u64 *ctx)
{
	return (u64)module_license;
}
#endif

#ifdef LICENSE_LONG
char module_license[] SEC("license") = "a licence that takes more than 31 characters";
SEC("mdo/packet") u64 f(u64 *ctx)
{
	return 0;
}
#endif

#ifdef NO_CODE
u32 lonely = 1;
#endif

#ifdef CONSTRUCTOR
u32 made;
__attribute__((constructor)) void f(void)
{
	made = 1;
}
#endif

#ifdef ALIGNED
u32 wide __attribute__((aligned(8192))) = 1;
SEC("mdo/packet") u64 f(u64 *ctx)
{
	return (u64)&wide;
}
#endif

#ifdef LARGE
u8 large[1 << 28];
SEC("mdo/packet") u64 f(u64 *ctx)
{
	return (u64)large;
}
#endif

#ifdef LARGE_TOGETHER
u8 large[(1 << 28) - 8];
u64 more[2] = {1};
SEC("mdo/packet") u64 f(u64 *ctx)
{
	return (u64)large + (u64)more;
}
#endif

#ifdef LONG_CODE
SEC("mdo/packet") u64 f(u64 *ctx)
{
	__asm__ volatile(".rept 65536; r0 = 0; .endr");
	return 0;
}
#endif

#ifdef RELATIVE
SEC("mdo/packet") u64 f(u64 *ctx)
{
	static const char *const names[] = {"alpha", "beta", "gamma"};
	return names[ctx[0] % 3][ctx[1] % 3];
}
#endif

#ifdef NO_FUNCTION
__asm__(".section mdo/bare,\"ax\",@progbits; r0 = 0; exit");
#endif

#ifdef GAP
__asm__(".section mdo/gap,\"ax\",@progbits; .globl f; .type f,@function; f: r0 = 0; exit;"
	".size f, 8");
#endif

#ifdef INTO_FUNCTION
__asm__(".section mdo/into,\"ax\",@progbits; .globl f; .type f,@function; f: r0 = 0; exit;"
	".size f, 16; .section mdo/packet,\"ax\",@progbits; .globl g; .type g,@function;"
	"g: call f + 8; exit; .size g, 16");
#endif

#ifdef KERNEL_CALL
__asm__(".section mdo/packet,\"ax\",@progbits; .globl f; .type f,@function;"
	"f: .quad 0x2085; exit; .size f, 16");
#endif

#ifdef KERNEL_MAP
__asm__(".section mdo/packet,\"ax\",@progbits; .globl f; .type f,@function;"
	"f: .quad 0x1018; .quad 0; exit; .size f, 24");
#endif

#ifdef MAP
struct pair {
	u32 a, b;
};
struct incomplete;
#define INSIDE(...)                                                                                \
	struct {                                                                                   \
		__VA_ARGS__;                                                                       \
	} map SEC(".maps");
MAP
SEC("mdo/packet") u64 f(void)
{
	return (u64)&map;
}
#endif
