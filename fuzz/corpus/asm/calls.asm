main: call local f
call local +1
call 5
call extern reply
call extern 2
exit
f: g: mov %r0, 1 ; one
exit
lddw %r1, 0x1122334455667788
lddw %r1, -1
