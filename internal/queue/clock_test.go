package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/job"
)

// TestAClockThatJumps takes the manager's clock forward, as after a suspend of
// the machine, and back again: two workers hold the same job, each by its own
// number, and one result is taken.
func TestAClockThatJumps(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	f := open(t)
	ctx := context.Background()
	ids := f.submit(task("a"))
	first := f.begin("w1", ids["a"])
	f.clock.pass(day)
	lost, err := f.Reap(ctx, f.fence)
	f.must(err)
	if len(lost) != 1 || lost[0].Held != heldOf(first) {
		t.Fatalf("lost %v", lost)
	}
	f.clock.pass(time.Minute)
	second := f.begin("w2", ids["a"])
	if second.Fence <= first.Fence {
		t.Fatalf("number %d after %d", second.Fence, first.Fence)
	}
	f.clock.pass(-2 * day)
	lost, err = f.Reap(ctx, f.fence)
	f.must(err)
	if len(lost) != 0 {
		t.Errorf("a lease was taken away by a clock that went back: %v", lost)
	}
	gone, _, err := f.Extend(ctx, "w1", []dispatch.Held{heldOf(first)})
	f.must(err)
	if len(gone) != 1 {
		t.Error("a lease from before the jump was given new life")
	}
	if refused := f.tryFinish(first, true); len(refused) != 1 {
		t.Error("a result of the first try was taken")
	}
	f.finish(second, true)
	f.stands(ids["a"], job.Completed, job.OutcomeOK)
	if refused := f.tryFinish(first, false); len(refused) != 1 {
		t.Error("a second result was taken")
	}
}
