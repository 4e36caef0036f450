package runner

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// board shows live output to several managers.
type board struct {
	mu   sync.Mutex
	data map[string][]byte
}

func (b *board) Take(_ context.Context, id string, _ int64, stream int, offset int64, data []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := id + string(rune('0'+stream))
	if int64(len(b.data[key])) == offset {
		b.data[key] = append(b.data[key], data...)
	}
	return nil
}

func (b *board) Read(_ context.Context, id string, _ int64, stream int, offset int64, limit int) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.data[id+string(rune('0'+stream))]
	rest := all[min(offset, int64(len(all))):]
	return rest[:min(len(rest), limit)], nil
}

func (b *board) Drop(context.Context, string, int64) {}

// killed is a manager that is gone without a word: nothing that it still does
// reaches the database or its workers. It returns how to kill it.
func killed(cfg *Config) (kill func()) {
	var dead atomic.Bool
	cfg.Store = &mortal{Store: cfg.Store, dead: &dead}
	workers := cfg.Workers
	cfg.Workers = func() []Worker {
		if dead.Load() {
			return nil
		}
		return workers()
	}
	return func() { dead.Store(true) }
}

// mortal is a database that a dead manager does not reach.
type mortal struct {
	store.Store
	dead *atomic.Bool
}

func (m *mortal) Update(ctx context.Context, fn func(store.Tx) error) error {
	if m.dead.Load() {
		return context.DeadlineExceeded
	}
	return m.Store.Update(ctx, fn)
}

func TestRunsOutliveTheirManager(t *testing.T) {
	t.Parallel()
	b := newBench()
	cfg := config(t, b.worker(3))
	first := cfg
	kill := killed(&first)
	one := New(first)
	if err := one.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	codes := make([]string, 20)
	for i := range codes {
		codes[i] = "say:begun wait say:ended"
	}
	ids := submit(t, one, "o", codes...)
	waiter, hangUp := context.WithCancelCause(as("o"))
	gone := make(chan error, 1)
	go func() {
		_, err := one.Execute(waiter, code("wait"), run.Asked{})
		gone <- err
	}()
	for range 3 {
		b.begins(t)
	}
	kill()
	hangUp(nil)
	one.Stop()
	<-gone

	two := start(t, cfg)
	b.letGo()
	for _, id := range ids {
		x := finished(t, two, "o", id)
		p, err := two.RunOutput(as("o"), id, sandbox.Stdout, 0)
		if x.State != run.Completed || x.Attempt != 1 || err != nil || string(p.Data) != "begunended" {
			t.Errorf("run %s is %s after %d tries (%s) and said %q, %v", id, x.State, x.Attempt, x.Reason, p.Data, err)
		}
	}
	two.Stop() // what is known at its workers is forgotten after the end is on disk
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		if b.began[id] != 1 || !b.forgot[id] {
			t.Errorf("run %s began %d times, and is forgotten: %t", id, b.began[id], b.forgot[id])
		}
	}
}

func TestWhoWaitedForADeadManagerIsNotLeftOpen(t *testing.T) {
	t.Parallel()
	b := newBench()
	cfg := config(t, b.worker(3))
	lost := run.Run{ID: "0196a000-0000-7000-8000-000000000001", Owner: "o", State: run.Running, Sync: true, Manager: "m", Fence: 1, Attempt: 1, CreatedAt: time.Now()}
	if err := cfg.Store.Update(t.Context(), func(tx store.Tx) error { return tx.Runs().Add(t.Context(), &lost, nil) }); err != nil {
		t.Fatal(err)
	}
	r := start(t, cfg)
	if x := finished(t, r, "o", lost.ID); x.State != run.Failed || x.Reason == "" {
		t.Errorf("it is %+v", x)
	}
}

func TestARunWhoseWorkerDoesNotComeBackGoesToAnother(t *testing.T) {
	t.Parallel()
	b := newBench()
	cfg := config(t, b.worker(1))
	cfg.Back = time.Millisecond
	order := run.Order{ID: "0196a000-0000-7000-8000-000000000002", Owner: "o", Language: "python", Code: "say:x", Timeout: time.Second, Keep: true, OutputCap: 100}
	lost := run.Run{ID: order.ID, Owner: "o", State: run.Running, Manager: "m", Fence: 1, Attempt: 1, Worker: "gone", CreatedAt: time.Now(), StartedAt: time.Now()}
	if err := cfg.Store.Update(t.Context(), func(tx store.Tx) error { return tx.Runs().Add(t.Context(), &lost, &order) }); err != nil {
		t.Fatal(err)
	}
	r := start(t, cfg)
	if x := finished(t, r, "o", lost.ID); x.State != run.Completed || x.Attempt != 2 || x.Worker != "bench" {
		t.Errorf("it is %+v", x)
	}
	if types := eventTypes(t, r, lost.ID); types != "run.requeued run.started run.ended" {
		t.Errorf("the events are %s", types)
	}
}

func TestManagersShareTheirRuns(t *testing.T) {
	t.Parallel()
	b := newBench()
	cfg := config(t, b.worker(2))
	cfg.Outputs = &board{data: map[string][]byte{}}
	door := cfg // it has no worker
	door.ID, door.Workers = "door", func() []Worker { return nil }
	host := start(t, cfg)
	front := start(t, door)
	a, err := front.Execute(as("o"), code("say:hello"), run.Asked{})
	if err != nil || string(a.Stdout) != "hello" {
		t.Errorf("got %+v, %v", a, err)
	}
	id := submit(t, front, "o", "say:live wait")[0]
	for b.begins(t) != id {
	}
	for {
		if p, err := front.RunOutput(as("o"), id, sandbox.Stdout, 2); err != nil || string(p.Data) == "ve" {
			break
		}
		<-host.Arrived()
	}
	x, err := front.CancelRun(as("o"), id, "from afar")
	if err != nil || x.Reason != "from afar" {
		t.Errorf("it is %+v, %v", x, err)
	}
	host.Halt(id) // as its manager does when it reads of it
	if x := finished(t, front, "o", id); x.State != run.Cancelled {
		t.Errorf("it is %+v", x)
	}
}

func TestARunBelongsToOneManagerAtATime(t *testing.T) {
	t.Parallel()
	b := newBench()
	cfg := config(t, b.worker(4))
	cfg.Outputs = &board{data: map[string][]byte{}}
	first := cfg
	first.ID = "first"
	kill := killed(&first)
	one := New(first)
	if err := one.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ids := submit(t, one, "o", "say:a wait", "say:b wait", "say:c wait")
	for range ids {
		b.begins(t)
	}
	kill() // it lives on, but is not heard of
	err := cfg.Store.Update(t.Context(), func(tx store.Tx) error { return tx.Runs().Attend(t.Context(), "first", time.Time{}) })
	if err != nil {
		t.Fatal(err)
	}
	two := start(t, cfg)
	if err := two.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.letGo()
	for _, id := range ids {
		if x := finished(t, two, "o", id); x.State != run.Completed || x.Manager != "m" || x.Attempt != 1 {
			t.Errorf("it is %+v", x)
		}
	}
	one.Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		if b.began[id] != 1 {
			t.Errorf("run %s began %d times", id, b.began[id])
		}
	}
	for _, id := range ids {
		if types := eventTypes(t, two, id); types != "run.created run.started run.ended" {
			t.Errorf("the events are %s", types)
		}
	}
}
