.map counts, 2, 4, 8, 64
lddw %r1, map counts
lddw %r1, map other
lddw %r1, map 3
.map other, 1, 0x10, 0xffffffff, 1, 1 # flags
exit
