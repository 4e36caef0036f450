package keeper

import (
	"context"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// weighed is a worker whose sandboxes use what the test says.
type weighed struct {
	*dispatchtest.Boxes
	uses map[string]sandbox.Usage
	disk int64
}

func (w *weighed) SandboxStats(_ context.Context, id string) (live.Stats, error) {
	u, known := w.uses[id]
	if !known {
		return live.Stats{}, fault.New(fault.Unavailable, "not now")
	}
	return live.Stats{Usage: u, Disk: w.disk, Execs: 1}, nil
}

// TestOpenSandboxesAreMeasured: what is open counts in the accounts and among
// the figures, and what an end does not tell is as it was last measured.
func TestOpenSandboxesAreMeasured(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	w := &weighed{Boxes: s.boxes}
	s.host = w
	small, large, silent := s.create(live.Request{}), s.create(live.Request{}), s.create(live.Request{})
	use := func(cpu time.Duration) {
		t.Helper()
		w.uses = map[string]sandbox.Usage{
			small.ID: {CPU: cpu, Memory: 10, PeakMemory: 20, Processes: 1}, large.ID: {CPU: -1, Memory: 100, PeakMemory: -1, Processes: 2},
		}
		if err := s.Measure(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	accounted := func() time.Duration {
		t.Helper()
		list, err := s.Accounts(as("o"), time.Time{})
		if err != nil || len(list) != 1 || list[0].Sandboxes != 3 {
			t.Fatalf("%+v, %v", list, err)
		}
		return list[0].CPU
	}
	s.pass(time.Second)
	use(3 * time.Second)
	if got := accounted(); got != 3*time.Second {
		t.Errorf("while they are open %s are accounted for", got)
	}
	w.disk = 4096
	use(5 * time.Second)
	f := s.SandboxFigures(1)
	if f.Disk != 2*4096 || f.Busiest[0].Disk != 4096 {
		t.Errorf("the disk among the figures: %+v", f)
	}
	w.disk = -1 // they stand still, and have what they had
	use(5 * time.Second)
	for _, x := range []live.Sandbox{small, large} {
		if stats, err := s.SandboxStats(as("o"), x.ID); err != nil || stats.Disk != 4096 {
			t.Errorf("one that does not tell: %+v, %v", stats, err)
		}
	}
	if list, err := s.Accounts(as("o"), time.Time{}); err != nil || list[0].Disk != 2*4096 {
		t.Errorf("the disk of the account: %+v, %v", list, err)
	}
	f = s.SandboxFigures(1)
	if f.Open != 2 || f.Execs != 2 || f.Spent != 5*time.Second || f.Memory != 110 || f.Processes != 3 || len(f.Busiest) != 1 || f.Busiest[0].ID != large.ID {
		t.Errorf("figures %+v", f)
	}
	if f := s.SandboxFigures(0); len(f.Busiest) != 0 {
		t.Errorf("nobody asked for %+v", f.Busiest)
	}
	lost := sandbox.Usage{CPU: -1, PeakMemory: -1, Processes: -1}
	if err := s.finish(t.Context(), small.ID, sandbox.OutcomeLost, "gone", &lost); err != nil {
		t.Fatal(err)
	}
	if x := s.sandbox(small.ID); x.Usage.CPU != 5*time.Second || x.Usage.PeakMemory != 20 {
		t.Errorf("what was lost used %+v", x.Usage)
	}
	use(9 * time.Second) // nobody is told of one that has ended
	if got := accounted(); got != 5*time.Second {
		t.Errorf("after the end %s are accounted for", got)
	}
	if f := s.SandboxFigures(10); f.Open != 1 || f.Spent != 5*time.Second {
		t.Errorf("figures after an end: %+v", f)
	}
	if x := s.sandbox(silent.ID); x.Usage.CPU != 0 {
		t.Errorf("one that was not measured used %+v", x.Usage)
	}
}
