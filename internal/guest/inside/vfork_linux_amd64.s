#include "textflag.h"

// func vforkRun(args *cloneArgs, steps *trip.Call, count, together uintptr, says *report) (pid int, errno uintptr)
//
// The child has its parent's memory and its stack, and the parent waits until it
// has become another program. So it calls nothing and leaves the stack alone: it
// does its steps with registers only, in one trip if it can (package trip).
TEXT ·vforkRun(SB), NOSPLIT, $0-56
	MOVQ args+0(FP), DI
	MOVQ steps+8(FP), R12
	MOVQ count+16(FP), R13
	MOVQ together+24(FP), R9
	MOVQ says+32(FP), R8
	MOVQ $88, SI  // the size of cloneArgs
	MOVQ $435, AX // clone3
	SYSCALL
	TESTQ AX, AX
	JZ    child
	CMPQ  AX, $0xfffffffffffff001
	JCC   refused
	MOVQ  AX, pid+40(FP)
	MOVQ  $0, errno+48(FP)
	RET

refused:
	NEGQ AX
	MOVQ $-1, pid+40(FP)
	MOVQ AX, errno+48(FP)
	RET

child:
	XORQ  BX, BX
	TESTQ R9, R9
	JZ    next
	MOVQ  R12, DI
	MOVQ  R13, SI
	MOVQ  $1999, AX // trip
	SYSCALL
	CMPQ  AX, $-38 // ENOSYS: there is none any more, and nothing was done
	JEQ   next
	CMPQ  AX, $0xfffffffffffff001
	JCC   last
	MOVQ  AX, BX // trip.Failed
	SHRQ  $16, BX
	ANDQ  $0xffff, BX
	ANDQ  $0xffff, AX
	MOVQ  BX, 0(R8)
	MOVQ  AX, 8(R8)
	JMP   leave

last:
	MOVQ R13, BX
	DECQ BX
	JMP  fail

next:
	CMPQ BX, R13
	JCC  leave // the last step does not come back
	MOVQ 0(R12), AX
	MOVQ 8(R12), DI
	MOVQ 16(R12), SI
	MOVQ 24(R12), DX
	MOVQ 32(R12), R10
	SYSCALL
	CMPQ AX, $0xfffffffffffff001
	JCC  fail
	ADDQ $40, R12
	INCQ BX
	JMP  next

fail:
	NEGQ AX
	MOVQ BX, 0(R8)
	MOVQ AX, 8(R8)

leave:
	MOVQ $127, DI
	MOVQ $231, AX // exit_group
	SYSCALL
	JMP  leave
