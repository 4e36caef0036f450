package main

import (
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	"gvisor.dev/gvisor/pkg/sync"
)

// gVisor rewrites a program's system calls where they stand, so that each traps
// cheaper from its second time on. That copies the page, and makes a table for
// the program: as much work as some ten calls save. Most programs that an agent
// starts make each of their calls once or twice, and are over. So a program is
// left as it is until it has run for a while.
//
// youth is how often a program enters the sentry before that.
const youth = 500

// age is that of the program in one memory, which all of its threads share.
type age struct {
	entries atomic.Int64 // into the sentry
	stretch atomic.Int64 // when the last stretch of them was over, see spin.go
}

func (a *age) young() bool { return a.entries.Load() < youth }

// nursery is the memories with programs that are young.
type nursery struct {
	spinner spinner

	mu   sync.Mutex
	ages map[platform.MemoryManager]*age
}

func newNursery(s spinner) *nursery {
	return &nursery{spinner: s, ages: map[platform.MemoryManager]*age{}}
}

// of is the age of the program in a memory, or nil if it is old.
func (n *nursery) of(mm platform.MemoryManager) *age {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ages[mm]
}

// born notes a new program.
func (n *nursery) born(mm platform.MemoryManager) *age {
	a := &age{}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ages[mm] = a
	return a
}

// grown forgets one that is not young any more. All of its threads must see that
// before any thread finds it forgotten: from then on it may be rewritten, and one
// that runs into the middle of that needs to be seen.
func (n *nursery) grown(mm platform.MemoryManager, a *age) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ages[mm] == a {
		delete(n.ages, mm)
	}
}

// thread is a thread of a program. It is used by one goroutine only.
type thread struct {
	platform.Context
	nursery *nursery

	began bool // a program; it is born when it first runs
	first bool // it is the one that began it
	mm    platform.MemoryManager
	age   *age // of what is in mm; nil if that was old
	seen  unseen
}

// Switch implements platform.Context.
func (t *thread) Switch(ctx context.Context, mm platform.MemoryManager, ac *arch.Context64, cpu int32) (*linux.SignalInfo, hostarch.AccessType, error) {
	if mm != t.mm {
		t.enter(mm)
	}
	if t.age == nil {
		return t.Context.Switch(ctx, mm, ac, cpu)
	}
	switch n := t.age.entries.Add(1); {
	case n < youth:
		t.seen = unseen{Context: ctx, age: t.age}
		return t.Context.Switch(&t.seen, mm, ac, cpu)
	case n == youth:
		t.nursery.grown(mm, t.age)
	case n%stretch == 0:
		t.nursery.spinner.stretched(t.age)
	}
	return t.Context.Switch(ctx, mm, ac, cpu)
}

// enter notes whose memory it runs in.
func (t *thread) enter(mm platform.MemoryManager) {
	t.mm = mm
	if t.first = t.began; t.began {
		t.began = false
		t.age = t.nursery.born(mm)
	} else {
		t.age = t.nursery.of(mm)
	}
}

// PrepareExecve implements platform.Context.
func (t *thread) PrepareExecve() {
	t.leave()
	t.began = true
	t.Context.PrepareExecve()
}

// PrepareExit implements platform.Context.
func (t *thread) PrepareExit() {
	t.leave()
	t.Context.PrepareExit()
}

// leave forgets the memory. A program that the thread which began it has left is
// old, so that nothing is remembered of memories that are gone.
func (t *thread) leave() {
	if t.first && t.age != nil {
		t.age.entries.Add(youth) // who is left in it hides no more
		t.nursery.grown(t.mm, t.age)
	}
	t.first, t.mm, t.age = false, nil, nil
}

// unseen hides the task of a young program from who would rewrite it, and looks
// for the task first of all.
type unseen struct {
	context.Context
	age *age
}

// Value implements context.Context.
func (u *unseen) Value(key any) any {
	if key == kernel.CtxTask && u.age.young() {
		return nil
	}
	return u.Context.Value(key)
}
