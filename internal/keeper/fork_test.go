package keeper

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// forks is a worker that takes snapshots and goes on from them.
type forks struct {
	*dispatchtest.Boxes
	halt func(what string, n int) error // before the nth of something; may wait

	mu    sync.Mutex
	snaps map[string]bool
	done  map[string]int
}

func (f *forks) next(what string) error {
	f.mu.Lock()
	f.done[what]++
	n, halt := f.done[what], f.halt
	f.mu.Unlock()
	if halt == nil {
		return nil
	}
	return halt(what, n)
}

func (f *forks) set(halt func(what string, n int) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.halt = halt
}

func (f *forks) kept() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.snaps))
}

func (f *forks) OpenSandbox(ctx context.Context, o live.Order) (live.Made, error) {
	if o.Restore != "" {
		if err := f.next("fork"); err != nil {
			return live.Made{}, err
		}
	}
	return f.Boxes.OpenSandbox(ctx, o)
}

func (f *forks) SnapshotSandbox(_ context.Context, o live.SnapshotOrder) (live.SnapshotMade, error) {
	f.mu.Lock()
	f.snaps[o.ID] = true
	f.mu.Unlock()
	return live.SnapshotMade{Bytes: 7}, f.next("snapshot")
}

func (f *forks) DropSnapshot(_ context.Context, id string) error {
	if err := f.next("drop"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.snaps, id)
	return nil
}

func newForks(t *testing.T) (*stage, *forks) {
	t.Helper()
	s := newStage(t, nil)
	err := s.Store.Update(t.Context(), func(tx store.Tx) error { return tx.Workers().Put(t.Context(), job.Worker{ID: "w", SeenAt: s.now}) })
	if err != nil {
		t.Fatal(err)
	}
	f := &forks{Boxes: s.boxes, snaps: map[string]bool{}, done: map[string]int{}}
	s.host = f
	return s, f
}

// next is the manager that comes after one that was killed: over the same
// database and the same worker.
func (s *stage) next() *Keeper {
	k := New(s.Config)
	s.boxes.Tell = func(r dispatch.TellRequest) {
		if err := k.Tell(context.Background(), "w", r); err != nil {
			s.t.Errorf("tell: %v", err)
		}
	}
	return k
}

// tidy does one round of what a keeper undoes, to its end.
func tidy(t *testing.T, k *Keeper) {
	t.Helper()
	if err := k.undoUnfinished(context.Background()); err != nil {
		t.Fatal(err)
	}
	k.tasks.Wait()
}

func (s *stage) unfinished() (list []live.Unfinished) {
	s.t.Helper()
	err := s.Store.View(context.Background(), func(tx store.Tx) (err error) {
		list, err = tx.Sandboxes().Unfinished(context.Background(), "", 10)
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return list
}

// recorded waits until a sandbox is written down: its worker is asked meanwhile.
func (s *stage) recorded(id string) {
	s.t.Helper()
	for s.t.Context().Err() == nil {
		if _, err := s.Sandbox(as("o"), id); err == nil {
			return
		}
		runtime.Gosched()
	}
}

var errDead = fault.New(fault.Unavailable, "the worker is not there")

// killed begins something that comes to its nth step of a kind, and never gets
// further until the end of the test. Its answer is an error then.
func killed(t *testing.T, f *forks, step string, nth int, do func() error) {
	t.Helper()
	there, over := make(chan struct{}), make(chan struct{})
	f.set(func(what string, n int) error {
		if what != step || n != nth {
			return nil
		}
		close(there)
		<-over
		return errDead
	})
	ended := make(chan error)
	go func() { ended <- do() }()
	t.Cleanup(func() {
		close(over)
		if err := <-ended; err == nil {
			t.Error("what was undone meanwhile was answered")
		}
	})
	<-there
	f.set(nil)
}

func TestForksOfAKilledManagerAreEnded(t *testing.T) {
	t.Parallel()
	for _, away := range []bool{false, true} {
		s, f := newForks(t)
		x := s.create(live.Request{})
		e := s.start(x.ID, "sleep")
		killed(t, f, "fork", 3, func() error {
			_, err := s.ForkSandbox(as("o"), x.ID, live.Fork{Count: 4})
			return err
		})
		made := s.unfinished()[0].Sandboxes
		if len(made) != 4 || len(f.kept()) != 1 || len(f.Standings()) != 3 {
			t.Fatalf("%q were made, snapshots %q", made, f.kept())
		}
		s.recorded(made[2])
		tidy(t, s.Keeper)
		if x := s.sandbox(made[0]); x.State != sandbox.StateRunning {
			t.Fatalf("a fork that goes on was undone: %+v", x)
		}

		s.away = away
		k := s.next()
		tidy(t, k)
		if away { // what cannot be reached is ended, and its worker told when it is back
			if len(f.kept()) != 1 || len(s.unfinished()) != 1 {
				t.Errorf("without the worker: snapshots %q, unfinished %v", f.kept(), s.unfinished())
			}
			s.away = false
			strange, err := k.Meet(context.Background(), "w", f.Standings())
			slices.Sort(strange.Sandboxes)
			if err != nil || !slices.Equal(strange.Sandboxes, made[:2]) {
				t.Errorf("the worker is told of %q, %v", strange.Sandboxes, err)
			}
			tidy(t, k)
		}
		for i, id := range made[:3] {
			x := s.sandbox(id)
			if x.State != sandbox.StateFailed || x.Outcome != sandbox.OutcomeReaped || !strings.Contains(x.Reason, "nobody was told") {
				t.Errorf("fork %d is %s, %s: %s", i, x.State, x.Outcome, x.Reason)
			}
			if story := s.story(id); story[len(story)-1] != event.SandboxFailed {
				t.Errorf("the events of fork %d are %q", i, story)
			}
		}
		if left := f.Standings(); !away && (len(left) != 1 || left[0].ID != x.ID) {
			t.Errorf("the worker has %+v", left)
		}
		if e, err := s.Exec(as("o"), e.ID); err != nil || e.State == live.Done {
			t.Errorf("the exec of what was forked: %+v, %v", e, err)
		}
		if len(f.kept()) != 0 || len(s.unfinished()) != 0 {
			t.Errorf("left are the snapshots %q and %v", f.kept(), s.unfinished())
		}
	}
}

func TestSnapshotOfAKilledManagerIsRemoved(t *testing.T) {
	t.Parallel()
	s, f := newForks(t)
	x := s.create(live.Request{})
	killed(t, f, "snapshot", 1, func() error {
		_, err := s.SnapshotSandbox(as("o"), x.ID, live.Full, "mine")
		return err
	})
	tidy(t, s.next())
	list, err := s.Snapshots(as("o"), store.SnapshotFilter{Sandbox: x.ID})
	if err != nil || len(list) != 0 || len(f.kept()) != 0 || len(s.unfinished()) != 0 {
		t.Errorf("listed %v (%v), kept %q, unfinished %v", list, err, f.kept(), s.unfinished())
	}
	if x := s.sandbox(x.ID); x.State != sandbox.StateRunning {
		t.Errorf("the sandbox is %+v", x)
	}
}

// All forks are made, or none is left; and their snapshot goes in any case.
func TestForksAreAllOrNone(t *testing.T) {
	t.Parallel()
	s, f := newForks(t)
	x := s.create(live.Request{})
	f.set(func(what string, n int) error {
		if what == "fork" && n == 3 {
			return fault.New(fault.Exhausted, "full")
		}
		return nil
	})
	if list, err := s.ForkSandbox(as("o"), x.ID, live.Fork{Count: 3}); !fault.Is(err, fault.Exhausted) || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	if left := f.Standings(); len(left) != 1 || len(f.kept()) != 0 || len(s.unfinished()) != 0 {
		t.Errorf("after it the worker has %v and %q, unfinished %v", left, f.kept(), s.unfinished())
	}
	f.set(func(what string, n int) error {
		if what == "drop" && n == 2 {
			return errDead
		}
		return nil
	})
	list, err := s.ForkSandbox(as("o"), x.ID, live.Fork{Count: 2})
	if err != nil || len(list) != 2 || len(f.kept()) != 1 {
		t.Fatalf("%v, %v, kept %q", list, err, f.kept())
	}
	tidy(t, s.next())
	if len(f.kept()) != 0 || len(s.unfinished()) != 0 {
		t.Errorf("left are %q and %v", f.kept(), s.unfinished())
	}
	for _, x := range list {
		if x := s.sandbox(x.ID); x.State != sandbox.StateRunning {
			t.Errorf("a fork is %+v", x)
		}
	}
	snap, err := s.SnapshotSandbox(as("o"), x.ID, live.Full, "mine")
	if err != nil {
		t.Fatal(err)
	}
	if list, err = s.ForkSandbox(as("o"), x.ID, live.Fork{Count: 1, Snapshot: snap.ID}); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	if got := f.kept(); !slices.Equal(got, []string{snap.ID}) || len(s.unfinished()) != 0 {
		t.Errorf("kept is %q, unfinished %v", got, s.unfinished())
	}
}

// A sandbox that a killed manager had made and not recorded is ended at its
// worker too, where that is there.
func TestLateSandboxIsEndedAtItsWorker(t *testing.T) {
	t.Parallel()
	s, f := newForks(t)
	x := s.create(live.Request{})
	snap, err := s.SnapshotSandbox(as("o"), x.ID, live.Full, "")
	if err != nil {
		t.Fatal(err)
	}
	killed(t, f, "fork", 1, func() error {
		_, err := s.ForkSandbox(as("o"), x.ID, live.Fork{Count: 1, Snapshot: snap.ID})
		return err
	})
	id := s.unfinished()[0].Sandboxes[0]
	s.recorded(id)
	if _, err := s.boxes.OpenSandbox(context.Background(), live.Order{ID: id, Owner: "o"}); err != nil {
		t.Fatal(err)
	}
	k := s.next()
	s.pass(k.Provision + 2*cleanupTime)
	if err := k.failLate(context.Background()); err != nil {
		t.Fatal(err)
	}
	k.tasks.Wait()
	if got := s.sandbox(id); got.State != sandbox.StateFailed || got.Outcome != sandbox.OutcomeLost {
		t.Errorf("it is %+v", got)
	}
	if left := f.Standings(); len(left) != 1 || left[0].ID != x.ID {
		t.Errorf("the worker has %+v", left)
	}
	tidy(t, k)
}
