package runner

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/run"
)

// A worker whose driver was not proved gets no run, and uses up no try of one:
// it begins when the proof has come.
func TestAWorkerThatServesNoDriverIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := newBench()
	var proved atomic.Bool
	cfg := config(t, func() []Worker {
		w := b.worker(1)()
		if !proved.Load() {
			w[0].Drivers = nil
		}
		return w
	})
	r := start(t, cfg)
	_, err := r.Execute(as("o"), code("say:x"), run.Asked{Patience: time.Millisecond})
	if err == nil || fault.KindOf(err) == fault.Internal {
		t.Errorf("got %v", err)
	}
	if err := r.demandWorker(); !fault.Is(err, fault.Unavailable) || fault.CodeOf(err) != "driver_unavailable" {
		t.Errorf("nobody can run anything: %v", err)
	}
	id := submit(t, r, "o", "say:y")[0]
	if waiting, _ := r.Depth(); waiting != 1 {
		t.Errorf("%d wait", waiting)
	}
	proved.Store(true)
	r.Wake()
	if x := finished(t, r, "o", id); x.State != run.Completed || x.Attempt != 1 {
		t.Errorf("it is %s after try %d", x.State, x.Attempt)
	}
}

// Who waits for a turn and hangs up while the runner stops does not wait for a
// turn that nobody will give: the line is gone.
func TestStopLeavesNobodyWaiting(t *testing.T) {
	t.Parallel()
	r := start(t, config(t, func() []Worker { return nil }))
	ch := make(chan seat, 1)
	waits := &ticket{id: "x", owner: "o", grant: func(s seat) { ch <- s }}
	if err := r.enter(false, waits); err != nil {
		t.Fatal(err)
	}
	r.Stop()
	if _, err := r.await(t.Context(), waits, ch, time.Hour); fault.CodeOf(err) != "stopping" {
		t.Errorf("got %v", err)
	}
}
