package main

import (
	"fmt"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/bpf"
	"gvisor.dev/gvisor/pkg/seccomp"
)

// gVisor has the processor trap CPUID where it can, and answers it itself with
// what the processor says, less a few leaves. Every start of a dynamically linked
// program asks some seventy times, and each trap goes to the sentry and back: a
// third of all such trips of a short command. So the trap is refused here, before
// any process of a program exists, as it is on the many machines that have none:
// programs then ask the processor itself.
//
// What they see beyond gVisor's answers is the layout of the cores, the counters
// that they may not use, and the name of the hypervisor below.
func letProcessorAnswer() error {
	const (
		number, architecture, first = 0, 4, 16 // places in what a filter sees
		refuse                      = uint32(linux.SECCOMP_RET_ERRNO) | uint32(unix.ENODEV)
	)
	err := seccomp.SetFilter([]bpf.Instruction{
		bpf.Stmt(bpf.Ld|bpf.Abs|bpf.W, architecture),
		bpf.Jump(bpf.Jmp|bpf.Jeq|bpf.K, linux.AUDIT_ARCH_X86_64, 0, 5),
		bpf.Stmt(bpf.Ld|bpf.Abs|bpf.W, number),
		bpf.Jump(bpf.Jmp|bpf.Jeq|bpf.K, unix.SYS_ARCH_PRCTL, 0, 3),
		bpf.Stmt(bpf.Ld|bpf.Abs|bpf.W, first),
		bpf.Jump(bpf.Jmp|bpf.Jeq|bpf.K, linux.ARCH_SET_CPUID, 0, 1),
		bpf.Stmt(bpf.Ret|bpf.K, refuse),
		bpf.Stmt(bpf.Ret|bpf.K, uint32(linux.SECCOMP_RET_ALLOW)),
	})
	if err != nil {
		return fmt.Errorf("keep the processor from trapping CPUID: %w", err)
	}
	return nil
}
