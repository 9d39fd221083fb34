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
u32 made = 1;
__attribute__((constructor)) void f(void)
{
	HIDE(made);
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

#ifdef ADDRESS_OUTSIDE
u32 array[2] = {1, 2};
u32 *outside = array - 1;
SEC("mdo/packet") u64 f(u64 *ctx)
{
	return (u64)&outside;
}
#endif

/* A map in libbpf's style with these members. */
#define MAP(...)                                                                                   \
	struct {                                                                                   \
		__VA_ARGS__                                                                        \
	} map SEC(".maps");                                                                        \
	SEC("mdo/packet") u64 f(void)                                                              \
	{                                                                                          \
		return (u64)&map;                                                                  \
	}

#ifdef MAP_IN_DATA
MAP(__uint(type, 1);)
void *address = &map;
#endif
#ifdef MAP_PLAIN
MAP(__uint(type, 1);)
#endif
#ifdef MAP_PINNED
MAP(__uint(type, 1); __uint(pinning, 1);)
#endif
#ifdef MAP_VALUES
MAP(__uint(type, 1); void *values[];)
#endif
#ifdef MAP_UNTYPED
MAP(__uint(max_entries, 1);)
#endif
#ifdef MAP_NUMBER
MAP(__uint(type, 1); __type(max_entries, u32);)
#endif
#ifdef MAP_TWICE
MAP(__uint(type, 1); __type(value, u32); __uint(value_size, 8);)
#endif
#ifdef MAP_INCOMPLETE
struct incomplete;
MAP(__uint(type, 1); struct incomplete * value;)
#endif
#ifdef MAP_LARGE
MAP(__uint(type, 1); u64(*value)[1 << 20][1 << 20];)
#endif
#ifdef MAP_SCALAR
u32 map SEC(".maps");
SEC("mdo/packet") u64 f(void)
{
	return (u64)&map;
}
#endif
#ifdef MAP_NAME
struct {
	__uint(type, 1);
} a_name_with_many_characters_a_name_with_many_characters_a_name_with SEC(".maps");
SEC("mdo/packet") u64 f(void)
{
	return (u64)&a_name_with_many_characters_a_name_with_many_characters_a_name_with;
}
#endif

/* What comes in many. */
#define ONE_MAP(name)                                                                              \
	struct {                                                                                   \
		__uint(type, 1);                                                                   \
	} name SEC(".maps");
#define MAPS_4(name) ONE_MAP(name##0) ONE_MAP(name##1) ONE_MAP(name##2) ONE_MAP(name##3)
#define MAPS_16(name) MAPS_4(name##0) MAPS_4(name##1) MAPS_4(name##2) MAPS_4(name##3)
#define MAPS_64(name) MAPS_16(name##0) MAPS_16(name##1) MAPS_16(name##2) MAPS_16(name##3)
#define MAPS_256(name) MAPS_64(name##0) MAPS_64(name##1) MAPS_64(name##2) MAPS_64(name##3)

#ifdef MAP_MANY
MAPS_256(map) ONE_MAP(more) SEC("mdo/packet") u64 f(void)
{
	return (u64)&map0000;
}
#endif
#ifdef MAP_DEEP
#define CHAIN(a, b, c, d, e)                                                                       \
	typedef const a b;                                                                         \
	typedef volatile b c;                                                                      \
	typedef const c d;                                                                         \
	typedef volatile d e;
CHAIN(u8, a1, a2, a3, a4)
CHAIN(a4, b1, b2, b3, b4)
CHAIN(b4, c1, c2, c3, c4)
CHAIN(c4, d1, d2, d3, d4)
CHAIN(d4, e1, e2, e3, e4)
MAP(__uint(type, 1); __type(value, e4);)
#endif
#ifdef MAP_DIMENSIONS
#define EIGHT [1][1][1][1][1][1][1][1]
MAP(__uint(type, 1); u8(*value) EIGHT EIGHT EIGHT EIGHT EIGHT;)
#endif
