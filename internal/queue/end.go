package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/store"
)

// tally counts the children of a root by how they ended. It is the details of
// a root that has ended.
type tally struct {
	Completed int `json:"completed"`
	Failed    int `json:"failed"`
	Escalated int `json:"escalated"`
}

// end ends a job and draws what follows: dependents of a completed job wait
// for one less, dependents of any other never run.
func (t *turn) end(ctx context.Context, j *job.Job, to job.State, outcome job.Outcome, kind event.Type, f facts) error {
	if err := t.close(ctx, j, to, outcome, kind, f); err != nil {
		return err
	}
	if to == job.Completed {
		return t.wake(ctx, j)
	}
	return t.failDependents(ctx, j)
}

// close ends a job and counts it off at its root, and leaves its dependents.
func (t *turn) close(ctx context.Context, j *job.Job, to job.State, outcome job.Outcome, kind event.Type, f facts) error {
	f.Outcome = outcome
	if err := t.move(j, to, kind, f); err != nil {
		return err
	}
	j.Outcome, j.CompletedAt = outcome, t.now
	t.free(j)
	root, err := t.get(ctx, j.RootID)
	if err != nil {
		return fmt.Errorf("find the root of job %s: %w", j.ID, err)
	}
	root.Open--
	t.touch(root)
	if !slices.Contains(t.closing, root) {
		t.closing = append(t.closing, root)
	}
	return nil
}

// wake tells the dependents of a completed job. Those that have ended are
// told too: completion is for good, so Waiting is right whenever one of them
// is replayed.
func (t *turn) wake(ctx context.Context, j *job.Job) error {
	dependents, err := t.dependents(ctx, j)
	if err != nil {
		return err
	}
	for _, d := range dependents {
		d.Waiting--
		t.touch(d)
	}
	return nil
}

// failDependents ends all that waits for j, however far down.
func (t *turn) failDependents(ctx context.Context, j *job.Job) error {
	for failed := []*job.Job{j}; len(failed) > 0; failed = failed[1:] {
		dependents, err := t.dependents(ctx, failed[0])
		if err != nil {
			return err
		}
		for _, d := range dependents {
			if d.State.Ended() {
				continue
			}
			f := facts{Reason: string(job.OutcomeDependencyFailed), Cause: failed[0].ID}
			if err := t.close(ctx, d, job.Failed, job.OutcomeDependencyFailed, event.JobFailed, f); err != nil {
				return err
			}
			failed = append(failed, d)
		}
	}
	return nil
}

func (t *turn) dependents(ctx context.Context, j *job.Job) ([]*job.Job, error) {
	if ahead, ok := t.waiting[j.ID]; ok {
		return ahead, nil
	}
	listed, err := t.tx.Jobs().Dependents(ctx, j.ID)
	if err != nil {
		return nil, fmt.Errorf("find dependents of job %s: %w", j.ID, err)
	}
	return t.own(listed), nil
}

func (t *turn) children(ctx context.Context, root *job.Job) ([]*job.Job, error) {
	listed, err := t.tx.Jobs().Children(ctx, root.ID)
	if err != nil {
		return nil, fmt.Errorf("find children of job %s: %w", root.ID, err)
	}
	return t.own(listed), nil
}

// closeRoots ends the roots whose last child ended in this turn. It comes
// after all else, because a child that ends can take others with it.
func (t *turn) closeRoots(ctx context.Context) error {
	var ids []string
	for _, root := range t.closing {
		if root.Open <= 0 && !root.State.Ended() {
			ids = append(ids, root.ID)
		}
	}
	t.closing = nil
	if len(ids) == 0 {
		return nil
	}
	listed, err := t.tx.Jobs().States(ctx, ids...)
	if err != nil {
		return fmt.Errorf("find the tasks of roots: %w", err)
	}
	tasks := make(map[string][]store.TaskState, len(ids))
	for _, s := range listed {
		if j, ok := t.jobs[s.ID]; ok { // what it is by now, only the turn knows
			s.State = j.State
		}
		tasks[s.RootID] = append(tasks[s.RootID], s)
	}
	for _, id := range ids {
		if err := t.closeRoot(t.jobs[id], tasks[id]); err != nil {
			return err
		}
	}
	return nil
}

func (t *turn) closeRoot(root *job.Job, children []store.TaskState) error {
	var n tally
	for _, c := range children {
		switch c.State {
		case job.Completed:
			n.Completed++
		case job.Failed:
			n.Failed++
		case job.Escalated:
			n.Escalated++
		case job.Queued, job.Assigned, job.InProgress, job.Submitted, job.Validating:
			return fmt.Errorf("end root %s: it counts no open child, but %s is %s", root.ID, c.ID, c.State)
		}
	}
	details, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("count the children of root %s: %w", root.ID, err)
	}
	to, kind, outcome := job.Completed, event.JobCompleted, job.OutcomeOK
	if n.Completed < len(children) {
		to, kind, outcome = job.Failed, event.JobFailed, job.OutcomeFailed
		if root.Outcome == job.OutcomeCancelled {
			outcome = root.Outcome
		}
	}
	root.Details, root.Outcome, root.CompletedAt = details, outcome, t.now
	return t.move(root, to, kind, facts{Reason: t.reason, Outcome: outcome, Children: &n})
}
