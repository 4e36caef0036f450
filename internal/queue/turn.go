package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/aurea-dev/aurea/internal/audit"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

// turn is one transaction in the making. It holds each job once, whoever asks
// for it, so that two consequences of one decision never overwrite each other;
// what was touched is stored at the end, with the events.
type turn struct {
	q     *Queue
	tx    store.Tx
	now   time.Time
	actor string

	jobs    map[string]*job.Job
	touched []*job.Job
	dirty   map[string]bool
	events  []*event.Event
	audit   []*audit.Record
	closing []*job.Job            // roots of which a child ended in this turn
	waiting map[string][]*job.Job // dependents that were looked up ahead
	reason  string                // why a root is cancelled in this turn
	why     string                // what was said to be the reason of an act
}

// update runs fn as one transaction and stores what it decided.
func (q *Queue) update(ctx context.Context, actor string, fn func(*turn) error) error {
	return q.cfg.Store.Update(ctx, func(tx store.Tx) error {
		t := &turn{
			q: q, tx: tx, now: q.now(), actor: actor,
			jobs: map[string]*job.Job{}, dirty: map[string]bool{},
		}
		if err := fn(t); err != nil {
			return err
		}
		return t.flush(ctx)
	})
}

// lead is update for the leader: it fails unless fence is the current one.
func (q *Queue) lead(ctx context.Context, fence int64, fn func(*turn) error) error {
	return q.update(ctx, policy.System().ID, func(t *turn) error {
		if err := t.tx.Leaders().Check(ctx, fence); err != nil {
			return err
		}
		return fn(t)
	})
}

// decide is update for a request about one job that the caller can see. A
// refusal is rolled back and then audited in a transaction of its own.
func (q *Queue) decide(ctx context.Context, caller policy.Caller, what, id string, fn func(*turn, *job.Job) error) (decided job.Job, err error) {
	err = q.update(ctx, caller.ID, func(t *turn) error {
		j, err := t.get(ctx, id)
		if err != nil {
			return err
		}
		if err := visible(caller, j); err != nil {
			return err
		}
		before := *j
		if err := fn(t, j); err != nil {
			return err
		}
		if err := t.closeRoots(ctx); err != nil { // so that a root that ends is answered as ended
			return err
		}
		t.acted(caller, what, &before, j)
		decided = *j
		return nil
	})
	if err == nil {
		return decided, nil
	}
	if fault.Is(err, fault.Conflict) || fault.Is(err, fault.Denied) {
		q.audit(ctx, caller.Actor(), what, id, err)
	}
	return job.Job{}, err
}

// audit records a refusal. A caller that hangs up cannot stay off the record.
func (q *Queue) audit(ctx context.Context, actor, what, id string, refusal error) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err := q.update(bounded, actor, func(t *turn) error {
		j, err := t.get(bounded, id)
		if err != nil {
			return err
		}
		return t.refuse(j, what, fault.CodeOf(refusal), refusal.Error(), nil)
	})
	if err != nil {
		q.cfg.Logger.Error("could not record a refusal", "job", id, "operation", what, "refusal", refusal, "error", err)
	}
}

// visible hides other people's jobs as if they did not exist.
func visible(caller policy.Caller, j *job.Job) error {
	if caller.Sees(j.Owner, j.ProjectID) {
		return nil
	}
	return fault.New(fault.NotFound, "there is no job %s", j.ID)
}

// get returns the turn's own copy of a job.
func (t *turn) get(ctx context.Context, id string) (*job.Job, error) {
	if j, ok := t.jobs[id]; ok {
		return j, nil
	}
	j, err := t.tx.Jobs().Get(ctx, id)
	if err != nil {
		return nil, err
	}
	t.jobs[id] = &j
	return &j, nil
}

// foresee reads in few questions what finishing these jobs will ask about each:
// the jobs, their roots, and what depends on them.
func (t *turn) foresee(ctx context.Context, ids []string) error {
	jobs, err := t.find(ctx, ids)
	if err != nil {
		return err
	}
	var roots, found []string
	for _, j := range jobs {
		found = append(found, j.ID)
		if !slices.Contains(roots, j.RootID) {
			roots = append(roots, j.RootID)
		}
	}
	if _, err := t.find(ctx, roots); err != nil {
		return err
	}
	listed, err := t.tx.Jobs().Dependents(ctx, found...)
	if err != nil {
		return fmt.Errorf("find dependents: %w", err)
	}
	t.waiting = make(map[string][]*job.Job, len(found))
	for _, id := range found {
		t.waiting[id] = nil
	}
	for _, d := range t.own(listed) {
		for _, id := range d.DependsOn {
			if slices.Contains(found, id) {
				t.waiting[id] = append(t.waiting[id], d)
			}
		}
	}
	return nil
}

// find returns the turn's own copies of those jobs that there are.
func (t *turn) find(ctx context.Context, ids []string) ([]*job.Job, error) {
	listed, err := t.tx.Jobs().Find(ctx, ids...)
	if err != nil {
		return nil, fmt.Errorf("find jobs: %w", err)
	}
	return t.own(listed), nil
}

// own returns the turn's own copies of jobs that the store listed. The list
// tells which jobs belong to it; what they are by now, only the turn knows.
func (t *turn) own(listed []job.Job) []*job.Job {
	out := make([]*job.Job, len(listed))
	for i := range listed {
		j, ok := t.jobs[listed[i].ID]
		if !ok {
			j = &listed[i]
			t.jobs[j.ID] = j
		}
		out[i] = j
	}
	return out
}

// touch marks a job to be stored.
func (t *turn) touch(j *job.Job) {
	j.UpdatedAt = t.now
	if !t.dirty[j.ID] {
		t.dirty[j.ID] = true
		t.touched = append(t.touched, j)
	}
}

// stored says that all that was touched so far is in the store by now.
func (t *turn) stored() {
	t.touched = nil
	clear(t.dirty)
}

// move changes a job's state and records it.
func (t *turn) move(j *job.Job, to job.State, kind event.Type, f facts) error {
	f.From = j.State
	if err := j.To(to); err != nil {
		return err
	}
	f.To = to
	t.touch(j)
	return t.record(j, kind, f)
}

// record adds an event about a job, at the time of the turn.
func (t *turn) record(j *job.Job, kind event.Type, f facts) error {
	data, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("write event %s of job %s: %w", kind, j.ID, err)
	}
	t.append(j, kind, t.now, data)
	return nil
}

func (t *turn) append(j *job.Job, kind event.Type, at time.Time, data json.RawMessage) {
	t.events = append(t.events, &event.Event{
		Type: kind, Version: 1, Entity: "job", EntityID: j.ID, JobID: j.ID, RootID: j.RootID,
		ProjectID: j.ProjectID, Actor: t.actor, Owner: j.Owner, At: at, Data: data,
	})
}

// acted adds the record of an act of control. What workers do is no such act.
func (t *turn) acted(caller policy.Caller, what string, before, after *job.Job) {
	switch what {
	case "cancel", "retry", "assign":
		t.audit = append(t.audit, &audit.Record{
			At: t.now, Category: audit.Access, Action: "job." + what, Source: "queue", Actor: caller.Actor(), Target: after.ID, Message: t.why,
			Before: standing(before), After: standing(after),
		})
	}
}

// standing is what the audit says of a job.
func standing(j *job.Job) json.RawMessage {
	text, _ := json.Marshal(facts{State: j.State, Outcome: j.Outcome, Model: j.AssignedModel, Worker: j.Worker, Fence: j.Fence}) // always can be written
	return text
}

// refuse records that something about a job was not accepted, as an event and
// in the audit. fence is the number that came with it, where one did.
func (t *turn) refuse(j *job.Job, what, code, reason string, fence *int64) error {
	r := &audit.Record{
		At: t.now, Category: audit.Policy, Severity: audit.Warning, Action: "job." + what, Source: "queue", Actor: t.actor, Target: j.ID, Outcome: audit.Denied,
		Message: reason, Before: standing(j), Metadata: map[string]string{"code": code},
	}
	if fence != nil { // somebody spoke for a lease
		r.Category = audit.Violation
		r.Metadata["given_fence"] = strconv.FormatInt(*fence, 10)
	}
	t.audit = append(t.audit, r)
	return t.record(j, event.JobRefused, facts{
		Operation: what, Code: code, Reason: reason, State: j.State, Fence: j.Fence, GivenFence: fence, Worker: j.Worker,
	})
}

// flush stores what the turn decided.
func (t *turn) flush(ctx context.Context) error {
	if err := t.closeRoots(ctx); err != nil {
		return err
	}
	for _, j := range t.touched {
		if err := t.tx.Jobs().Put(ctx, j); err != nil {
			return fmt.Errorf("store job %s: %w", j.ID, err)
		}
	}
	if len(t.audit) > 0 {
		if err := t.tx.Audit().Append(ctx, t.audit...); err != nil {
			return fmt.Errorf("store audit records: %w", err)
		}
	}
	if len(t.events) == 0 {
		return nil
	}
	if err := t.tx.Events().Append(ctx, t.events...); err != nil {
		return fmt.Errorf("store events: %w", err)
	}
	return nil
}

// facts is the data of the queue's events. A move has From and To; nothing
// else has, so the moves of a job, read in order, tell its state.
type facts struct {
	From    job.State   `json:"from,omitempty"`
	To      job.State   `json:"to,omitempty"`
	Reason  string      `json:"reason,omitempty"`
	Outcome job.Outcome `json:"outcome,omitempty"`
	Worker  string      `json:"worker,omitempty"`
	Attempt int         `json:"attempt,omitempty"`
	Fence   int64       `json:"fence,omitempty"`

	// of job.created
	Title string          `json:"title,omitempty"`
	PRD   json.RawMessage `json:"prd,omitempty"`
	Task  *task           `json:"task,omitempty"`

	// of job.assigned
	Model  string `json:"model,omitempty"`
	Manual bool   `json:"manual,omitempty"`

	// of what sends a job back, or ends it
	Failures int        `json:"failures,omitempty"`
	Losses   int        `json:"losses,omitempty"`
	ReadyAt  *time.Time `json:"ready_at,omitempty"`
	Cause    string     `json:"caused_by,omitempty"` // the job whose end ended this one
	Result   *result    `json:"result,omitempty"`
	Children *tally     `json:"children,omitempty"` // of a root

	// of job.validated
	Passed     *bool      `json:"passed,omitempty"`
	Confidence *float64   `json:"confidence,omitempty"`
	Ticks      []job.Tick `json:"ticks,omitempty"`

	// of job.refused
	Operation  string    `json:"operation,omitempty"`
	Code       string    `json:"code,omitempty"`
	State      job.State `json:"state,omitempty"`
	GivenFence *int64    `json:"given_fence,omitempty"`
}
