package queue_test

import (
	"context"
	"testing"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/queue"
	"github.com/aurea-dev/aurea/internal/store"
)

func TestOtherPeoplesJobsDoNotExist(t *testing.T) {
	t.Parallel()
	f := open(t)
	ctx := context.Background()
	mine := policy.Caller{Kind: policy.Bridge, ID: "bridge-1"}
	theirs := policy.Caller{Kind: policy.Bridge, ID: "bridge-2"}
	ids := f.submitAs(mine, 1, task("a"))
	before := len(f.events(ids["a"]))
	id := ids["a"]
	for name, try := range map[string]func(policy.Caller) error{
		"job":       func(c policy.Caller) error { _, err := f.Job(ctx, c, id); return err },
		"claim":     func(c policy.Caller) error { _, err := f.Claim(ctx, c, id, "w"); return err },
		"heartbeat": func(c policy.Caller) error { _, err := f.Heartbeat(ctx, c, id, "w", nil); return err },
		"complete":  func(c policy.Caller) error { _, err := f.Complete(ctx, c, id, "w", nil, true, nil); return err },
		"submit":    func(c policy.Caller) error { _, err := f.SubmitWork(ctx, c, id, "w", nil, nil); return err },
		"validate":  func(c policy.Caller) error { _, err := f.Validate(ctx, c, id, says("w", 1, true)); return err },
		"assign":    func(c policy.Caller) error { _, err := f.Assign(ctx, c, id, "w"); return err },
		"cancel":    func(c policy.Caller) error { _, _, err := f.Cancel(ctx, c, id, ""); return err },
		"retry":     func(c policy.Caller) error { _, err := f.Retry(ctx, c, id); return err },
	} {
		if err := try(theirs); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s of a stranger's job: %v", name, err)
		}
	}
	if after := len(f.events(id)); after != before {
		t.Errorf("strangers left %d events on the record", after-before)
	}
	if _, err := f.Job(ctx, mine, id); err != nil {
		t.Errorf("the owner does not see it: %v", err)
	}
	for caller, want := range map[policy.Caller]int64{mine: 1, theirs: 0, policy.LocalCaller(): 1} {
		s, err := f.Stats(ctx, caller)
		f.must(err)
		if s.Counts[job.Queued] != want {
			t.Errorf("%s counts %d, want %d", caller.ID, s.Counts[job.Queued], want)
		}
	}
}

// hangingUp is a store whose caller goes away after each transaction.
type hangingUp struct {
	store.Store
	hangUp func()
}

func (s hangingUp) Update(ctx context.Context, fn func(store.Tx) error) error {
	defer s.hangUp()
	return s.Store.Update(ctx, fn)
}

func TestARefusalIsOnTheRecordEvenWhenTheCallerHangsUp(t *testing.T) {
	t.Parallel()
	f := open(t)
	ids := f.submit(task("a"))
	f.begin("w", ids["a"])
	ctx, cancel := context.WithCancelCause(context.Background())
	q, err := queue.New(queue.Config{Store: hangingUp{f.store, func() { cancel(nil) }}, Now: f.clock.Now})
	f.must(err)
	_, err = q.Claim(ctx, policy.LocalCaller(), ids["a"], "w2")
	f.refused(err, fault.Conflict, "already_taken")
	f.told(ids["a"], event.JobCreated, event.JobAssigned, event.JobClaimed, event.JobRefused)
}

func TestNewDemandsAStore(t *testing.T) {
	t.Parallel()
	if _, err := queue.New(queue.Config{}); err == nil {
		t.Error("a queue without a store was made")
	}
	f := open(t)
	if _, err := queue.New(queue.Config{Store: f.store, ProjectCap: -1}); err == nil {
		t.Error("a queue with a negative cap was made")
	}
}
