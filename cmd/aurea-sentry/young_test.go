package main

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	"gvisor.dev/gvisor/pkg/sentry/platform/systrap/usertrap"
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

// TestOnlyAHurryIsSpunFor has a program call slowly, in a hurry, and not at all. The
// sleeps are how slowly; in the bubble nobody waits for them.
func TestOnlyAHurryIsSpunFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var all []bool
		n := newNursery(&whirl{began: time.Now().Add(-time.Hour), set: func(spin bool) {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, spin)
		}})
		said := func() []bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(all)
		}
		one := &thread{Context: &looker{}, nursery: n}
		program := &memory{}
		one.PrepareExecve()
		for range 3 { // stretches
			for range stretch {
				sees(t, one, program)
			}
			time.Sleep(hurry + 1)
		}
		if got := said(); len(got) != 0 {
			t.Fatalf("said %v of one that is slow", got)
		}
		for range 5 {
			for range stretch {
				sees(t, one, program)
			}
			time.Sleep(hurry / 2)
		}
		if got := said(); !slices.Equal(got, []bool{true}) {
			t.Fatalf("said %v of a hurry", got)
		}
		time.Sleep(calm)
		synctest.Wait()
		if got := said(); !slices.Equal(got, []bool{true, false}) {
			t.Errorf("said %v when it was over", got)
		}
		one.PrepareExit()
	})
}

// TestWhoRewritesLooksForTheTask fails when a new gVisor rewrites a program without
// its task, or does not mind that there is none.
func TestWhoRewritesLooksForTheTask(t *testing.T) {
	t.Parallel()
	hidden := &unseen{Context: tasked{}, age: &age{}}
	s := usertrap.New()
	if err := s.PatchSyscall(hidden, nil, nil); err == nil {
		t.Error("a program was rewritten")
	}
	if err := s.HandleFault(hidden, nil, nil); err == nil {
		t.Error("a fault was handled")
	}
}
