	mov %r0, 0
next:	jeq %r2, 0, exit
	sub %r2, 1
	ldxb %r3, [%r1]
	add %r0, %r3
	add %r1, 1
	ja next
	exit
