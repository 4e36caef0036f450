package queue

import (
	"context"
	"fmt"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

// Kill ends the jobs that the kill switch killed and whose workers do not say so
// themselves: reports names those who do. What they say later comes under an old
// number. It answers how many it ended.
func (q *Queue) Kill(ctx context.Context, reports func(worker string) bool) (n int, err error) {
	for _, state := range []job.State{job.InProgress, job.Validating} {
		for before := int64(0); ; {
			var page []job.Job
			err := q.cfg.Store.View(ctx, func(tx store.Tx) (err error) {
				page, err = tx.Jobs().List(ctx, store.JobFilter{State: state, Before: before, Limit: batch})
				return err
			})
			if err != nil {
				return n, fmt.Errorf("find the jobs that are out: %w", err)
			}
			if len(page) == 0 {
				break
			}
			before = page[len(page)-1].Seq
			ended, err := q.killPage(ctx, page, state, reports)
			n += ended
			if err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

func (q *Queue) killPage(ctx context.Context, page []job.Job, state job.State, reports func(worker string) bool) (n int, err error) {
	err = q.update(ctx, policy.System().ID, func(t *turn) error {
		n = 0
		for i := range page {
			halt := q.cfg.Halt(page[i].ProjectID)
			if page[i].IsRoot() || !halt.Killed || reports(page[i].Worker) {
				continue
			}
			j, err := t.get(ctx, page[i].ID)
			if err != nil {
				return err
			}
			if j.State != state || j.Fence != page[i].Fence {
				continue // it has ended, or somebody else has it
			}
			f := t.tried(j, nil)
			f.Reason = halt.Reason
			j.Fence++
			if err := t.end(ctx, j, job.Failed, job.OutcomeKilled, event.JobFailed, f); err != nil {
				return err
			}
			n++
		}
		return nil
	})
	return n, err
}
