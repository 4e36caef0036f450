#include "textflag.h"

// func vforkRun(args *cloneArgs, steps *step, count uintptr, says *report) (pid int, errno uintptr)
//
// The child has its parent's memory and its stack, and the parent waits until it
// has become another program. So it calls nothing and leaves the stack alone: it
// does its steps with registers only.
TEXT ·vforkRun(SB), NOSPLIT, $0-48
	MOVQ args+0(FP), DI
	MOVQ steps+8(FP), R12
	MOVQ count+16(FP), R13
	MOVQ says+24(FP), R8
	MOVQ $88, SI  // the size of cloneArgs
	MOVQ $435, AX // clone3
	SYSCALL
	TESTQ AX, AX
	JZ    child
	CMPQ  AX, $0xfffffffffffff001
	JCC   refused
	MOVQ  AX, pid+32(FP)
	MOVQ  $0, errno+40(FP)
	RET

refused:
	NEGQ AX
	MOVQ $-1, pid+32(FP)
	MOVQ AX, errno+40(FP)
	RET

child:
	XORQ BX, BX

next:
	CMPQ BX, R13
	JCC  leave // the last step does not come back
	MOVQ 0(R12), AX
	MOVQ 8(R12), DI
	MOVQ 16(R12), SI
	MOVQ 24(R12), DX
	SYSCALL
	CMPQ AX, $0xfffffffffffff001
	JCC  fail
	ADDQ $32, R12
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
