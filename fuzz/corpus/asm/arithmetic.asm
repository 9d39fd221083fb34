add %r1, -7
add %r1, %r10
add32 %r2, 0xffffffff
add32 %r3, %r4
sub %r1, -7
sub %r1, %r10
sub32 %r2, 0xffffffff
sub32 %r3, %r4
mul %r1, -7
mul %r1, %r10
mul32 %r2, 0xffffffff
mul32 %r3, %r4
div %r1, -7
div %r1, %r10
div32 %r2, 0xffffffff
div32 %r3, %r4
sdiv %r1, -7
sdiv %r1, %r10
sdiv32 %r2, 0xffffffff
sdiv32 %r3, %r4
or %r1, -7
or %r1, %r10
or32 %r2, 0xffffffff
or32 %r3, %r4
and %r1, -7
and %r1, %r10
and32 %r2, 0xffffffff
and32 %r3, %r4
lsh %r1, -7
lsh %r1, %r10
lsh32 %r2, 0xffffffff
lsh32 %r3, %r4
rsh %r1, -7
rsh %r1, %r10
rsh32 %r2, 0xffffffff
rsh32 %r3, %r4
mod %r1, -7
mod %r1, %r10
mod32 %r2, 0xffffffff
mod32 %r3, %r4
smod %r1, -7
smod %r1, %r10
smod32 %r2, 0xffffffff
smod32 %r3, %r4
xor %r1, -7
xor %r1, %r10
xor32 %r2, 0xffffffff
xor32 %r3, %r4
mov %r1, -7
mov %r1, %r10
mov32 %r2, 0xffffffff
mov32 %r3, %r4
arsh %r1, -7
arsh %r1, %r10
arsh32 %r2, 0xffffffff
arsh32 %r3, %r4
neg %r1
neg32 %r2
movsx832 %r1, %r2
movsx1632 %r1, %r2
movsx864 %r1, %r2
movsx1664 %r1, %r2
movsx3264 %r1, %r2
le16 %r3
le32 %r3
le64 %r3
be16 %r3
be32 %r3
be64 %r3
bswap16 %r3
bswap32 %r3
bswap64 %r3
swap16 %r3
swap32 %r3
swap64 %r3
