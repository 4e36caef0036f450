package queue_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aurea-dev/aurea/internal/audit"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

// TestControlIsAudited cancels, retries and assigns, and finds who did what,
// how the job stood, and what was refused; what is ordinary leaves no record.
func TestControlIsAudited(t *testing.T) {
	t.Parallel()
	f := open(t)
	ctx, me := audit.WithRequest(context.Background(), "request-1"), policy.Caller{Kind: policy.Operator, ID: "owner", Key: "operator-1"}
	ids := f.submit(task("a"), task("b"))
	a := f.begin("w", ids["a"])
	f.finish(f.begin("w", ids["b"]), true)
	_, _, err := f.Cancel(ctx, me, ids["a"], "not needed")
	f.must(err)
	f.tryFinish(a, true) // under a lease that is over
	_, _, err = f.Cancel(ctx, me, ids["a"], "again")
	if err == nil {
		t.Fatal("it was cancelled twice")
	}
	_, err = f.Retry(ctx, me, ids["a"])
	f.must(err)
	_, err = f.Assign(ctx, me, ids["a"], "model")
	f.must(err)
	var got []string
	f.must(f.store.View(ctx, func(tx store.Tx) error {
		list, err := tx.Audit().List(ctx, audit.Filter{}, 100)
		for _, r := range list {
			got = append(got, fmt.Sprintf("%s %s %s %s %s %s", r.Category, r.Action, r.Outcome, r.Actor, r.RequestID, r.Metadata["code"]))
			if r.Target != ids["a"] || len(r.Before) == 0 || r.Outcome == audit.Done && (len(r.After) == 0 || string(r.After) == string(r.Before)) {
				t.Errorf("got %s", r.Canonical())
			}
		}
		return err
	}))
	want := []string{
		"access job.cancel done operator-1 request-1 ",
		"violation job.finish denied w  stale_fence",
		"policy job.cancel denied operator-1 request-1 wrong_state",
		"access job.retry done operator-1 request-1 ",
		"access job.assign done operator-1 request-1 ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}
