jeq %r1, 5, +2
jeq %r1, %r2, next
jeq32 %r1, -1, -3
jeq32 %r3, %r4, exit
jne %r1, 5, +2
jne %r1, %r2, next
jne32 %r1, -1, -3
jne32 %r3, %r4, exit
jset %r1, 5, +2
jset %r1, %r2, next
jset32 %r1, -1, -3
jset32 %r3, %r4, exit
jgt %r1, 5, +2
jgt %r1, %r2, next
jgt32 %r1, -1, -3
jgt32 %r3, %r4, exit
jge %r1, 5, +2
jge %r1, %r2, next
jge32 %r1, -1, -3
jge32 %r3, %r4, exit
jlt %r1, 5, +2
jlt %r1, %r2, next
jlt32 %r1, -1, -3
jlt32 %r3, %r4, exit
jle %r1, 5, +2
jle %r1, %r2, next
jle32 %r1, -1, -3
jle32 %r3, %r4, exit
jsgt %r1, 5, +2
jsgt %r1, %r2, next
jsgt32 %r1, -1, -3
jsgt32 %r3, %r4, exit
jsge %r1, 5, +2
jsge %r1, %r2, next
jsge32 %r1, -1, -3
jsge32 %r3, %r4, exit
jslt %r1, 5, +2
jslt %r1, %r2, next
jslt32 %r1, -1, -3
jslt32 %r3, %r4, exit
jsle %r1, 5, +2
jsle %r1, %r2, next
jsle32 %r1, -1, -3
jsle32 %r3, %r4, exit
next:
ja exit
ja32 next
gotol +1
exit
