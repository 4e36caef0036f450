package main

import (
	"slices"
	"testing"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/platform"
)

// looker is a thread below that looks for the task when it is switched to, as who
// rewrites a program does.
type looker struct {
	platform.Context
	sees bool
	ctx  context.Context
}

func (l *looker) Switch(ctx context.Context, _ platform.MemoryManager, _ *arch.Context64, _ int32) (*linux.SignalInfo, hostarch.AccessType, error) {
	l.ctx, l.sees = ctx, kernel.TaskFromContext(ctx) != nil
	return nil, hostarch.NoAccess, nil
}
func (*looker) PrepareExecve() {}
func (*looker) PrepareExit()   {}

// memory is one of a program.
type memory struct{ platform.MemoryManager }

// tasked is a context with a task.
type tasked struct{ context.Context }

func (tasked) Value(key any) any {
	if key == kernel.CtxTask {
		return &kernel.Task{}
	}
	return nil
}

// sees runs a thread once and reports whether its task is seen.
func sees(t *testing.T, one *thread, mm platform.MemoryManager) bool {
	t.Helper()
	if _, _, err := one.Switch(tasked{}, mm, nil, 0); err != nil {
		t.Fatal(err)
	}
	return one.Context.(*looker).sees
}

func TestAYoungProgramIsLeftAsItIs(t *testing.T) {
	t.Parallel()
	n := newNursery(still{})
	first := &thread{Context: &looker{}, nursery: n}
	forked, program := &memory{}, &memory{}
	if !sees(t, first, forked) {
		t.Error("one that began no program is hidden")
	}
	first.PrepareExecve()
	second := &thread{Context: &looker{}, nursery: n}
	for i := range youth - 1 {
		one := first
		if i%2 == 1 {
			one = second
		}
		if sees(t, one, program) {
			t.Fatalf("seen in switch %d", i)
		}
	}
	during := second.Context.(*looker).ctx
	if !sees(t, first, program) {
		t.Error("hidden for ever")
	}
	if kernel.TaskFromContext(during) == nil {
		t.Error("a thread that runs meanwhile stays hidden, and the program may be rewritten")
	}
	if third := (&thread{Context: &looker{}, nursery: n}); !sees(t, second, program) || !sees(t, third, program) {
		t.Error("other threads stay hidden")
	}
	if len(n.ages) != 0 {
		t.Errorf("%d memories are remembered", len(n.ages))
	}
}

func TestAProgramThatIsLeftIsForgotten(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*thread){
		"by another program": (*thread).PrepareExecve,
		"by its end":         (*thread).PrepareExit,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNursery(still{})
			first, second := &thread{Context: &looker{}, nursery: n}, &thread{Context: &looker{}, nursery: n}
			program := &memory{}
			first.PrepareExecve()
			if sees(t, first, program) || sees(t, second, program) {
				t.Error("a young program is seen")
			}
			during := second.Context.(*looker).ctx
			leave(second) // which did not begin it
			if len(n.ages) != 1 {
				t.Error("it is forgotten when another thread leaves")
			}
			if third := (&thread{Context: &looker{}, nursery: n}); sees(t, third, program) {
				t.Error("it is seen when another thread has left")
			}
			leave(first)
			if kernel.TaskFromContext(during) == nil {
				t.Error("a thread that runs on in it stays hidden")
			}
			if len(n.ages) != 0 {
				t.Errorf("%d memories are remembered", len(n.ages))
			}
		})
	}
}

func TestADiligentProgramIsSpunFor(t *testing.T) {
	t.Parallel()
	var said []bool
	n := newNursery(&whirl{set: func(spin bool) { said = append(said, spin) }})
	one, other, helper := &thread{Context: &looker{}, nursery: n}, &thread{Context: &looker{}, nursery: n}, &thread{Context: &looker{}, nursery: n}
	first, second := &memory{}, &memory{}
	one.PrepareExecve()
	other.PrepareExecve()
	for range diligence - 1 {
		sees(t, one, first)
	}
	if len(said) != 0 {
		t.Fatalf("said %v", said)
	}
	sees(t, one, first)
	sees(t, one, first)
	if !slices.Equal(said, []bool{true}) {
		t.Fatalf("said %v", said)
	}
	sees(t, other, second)
	sees(t, helper, second)
	for range diligence {
		sees(t, helper, second)
		sees(t, other, second)
	}
	one.PrepareExit()
	if !slices.Equal(said, []bool{true}) {
		t.Errorf("said %v with another that is diligent", said)
	}
	other.PrepareExecve()
	sees(t, helper, second)
	helper.PrepareExit()
	if !slices.Equal(said, []bool{true, false}) {
		t.Errorf("said %v at the end", said)
	}
	for range 3 { // one that never was
		other.PrepareExecve()
		sees(t, other, &memory{})
	}
	other.PrepareExit()
	if !slices.Equal(said, []bool{true, false}) {
		t.Errorf("said %v for programs that are not", said)
	}
}
