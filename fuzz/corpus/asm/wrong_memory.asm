ldxb %r0, [%r1+0x10000]
