ldxb %r0, [%r1+2]
stb [%r10-8], -1
stxb [%r10-0x10], %r3
ldxh %r0, [%r1+2]
sth [%r10-8], -1
stxh [%r10-0x10], %r3
ldxw %r0, [%r1+2]
stw [%r10-8], -1
stxw [%r10-0x10], %r3
ldxdw %r0, [%r1+2]
stdw [%r10-8], -1
stxdw [%r10-0x10], %r3
ldxsb %r0, [%r1]
ldxsh %r0, [%r1]
ldxsw %r0, [%r1-4]
lock add [%r1], %r2
lock add32 [%r1+4], %r2
lock fetch add [%r1], %r2
lock fetch_add32 [%r1], %r2
lock or [%r1], %r2
lock or32 [%r1+4], %r2
lock fetch or [%r1], %r2
lock fetch_or32 [%r1], %r2
lock and [%r1], %r2
lock and32 [%r1+4], %r2
lock fetch and [%r1], %r2
lock fetch_and32 [%r1], %r2
lock xor [%r1], %r2
lock xor32 [%r1+4], %r2
lock fetch xor [%r1], %r2
lock fetch_xor32 [%r1], %r2
lock xchg [%r1], %r2
lock xchg32 [%r1-4], %r2
lock cmpxchg [%r1], %r2
lock cmpxchg32 [%r1-4], %r2
