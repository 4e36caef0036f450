package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/build"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// fake is a manager in memory: simple, and honest about what the door must
// see of the real one.
type fake struct {
	mu      sync.Mutex
	jobs    []job.Job
	events  []event.Event
	replies map[string]reply
	calls   []string // of those that change something
	callers []policy.Caller
	waiting map[chan struct{}]bool
	arrived chan struct{}
	logs    map[sandbox.Stream][]byte
	ended   bool
	attempt int
	blobs   map[string][]byte
	keys    map[string]policy.Caller
	health  job.Health
	down    error
	floor   int64 // events up to here were removed
	last    any   // what the last changing call was given
	runs    []*fakeRun
	busy    time.Duration // how long there is no room for runs
}

type reply struct {
	digest string
	answer job.Submission
}

func newFake() *fake {
	return &fake{
		replies: map[string]reply{}, waiting: map[chan struct{}]bool{}, arrived: make(chan struct{}), attempt: 1,
		logs: map[sandbox.Stream][]byte{}, blobs: map[string][]byte{}, keys: map[string]policy.Caller{},
		health: job.Health{Uptime: time.Minute, Workers: 1, Drivers: []string{"fake"}},
	}
}

func (f *fake) changed(ctx context.Context, what string, given any) {
	f.calls = append(f.calls, what)
	f.last = given
	c, _ := policy.From(ctx)
	f.callers = append(f.callers, c)
}

// say stores an event and wakes the readers.
func (f *fake) say(e event.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sayLocked(e)
}

func (f *fake) sayLocked(e event.Event) {
	e.Seq, e.Version = int64(len(f.events)+1), 1
	f.events = append(f.events, e)
	for ch := range f.waiting {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

func (f *fake) SubmitPRD(ctx context.Context, prd job.PRD, key, digest string) (job.Submission, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r, ok := f.replies[key]; ok && key != "" {
		if r.digest != digest {
			return job.Submission{}, fault.New(fault.Conflict, "the key was used for another request").WithCode("idempotency_mismatch")
		}
		r.answer.Replayed = true
		return r.answer, nil
	}
	c, _ := policy.From(ctx)
	root, tasks, err := prd.Plan(c.ID, time.Now())
	if err != nil {
		return job.Submission{}, err
	}
	f.changed(ctx, "submit", prd)
	s := job.Submission{RootID: root.ID}
	for _, j := range append([]job.Job{root}, tasks...) {
		j.Seq = int64(len(f.jobs) + 1)
		f.jobs = append(f.jobs, j)
		f.sayLocked(event.Event{Type: event.JobCreated, Entity: "job", EntityID: j.ID, JobID: j.ID, RootID: root.ID, ProjectID: j.ProjectID})
		if !j.IsRoot() {
			s.JobIDs = append(s.JobIDs, j.ID)
		}
	}
	f.replies[key] = reply{digest, s}
	return s, nil
}

func (f *fake) Jobs(_ context.Context, jf store.JobFilter) ([]job.Job, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []job.Job
	for _, j := range slices.Backward(f.jobs) {
		if (jf.State == "" || j.State == jf.State) && (jf.ProjectID == nil || *jf.ProjectID == j.ProjectID) &&
			(jf.Role == "" || jf.Role == j.Role) && (jf.RootID == "" || jf.RootID == j.RootID) &&
			(jf.Outcome == "" || jf.Outcome == j.Outcome) && (jf.Before == 0 || j.Seq < jf.Before) && len(out) < jf.Limit &&
			!store.Full(out, store.JobBytes) {
			out = append(out, j)
		}
	}
	return out, nil
}

func (f *fake) Job(_ context.Context, id string) (job.Job, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.find(id)
}

func (f *fake) find(id string) (job.Job, error) {
	for _, j := range f.jobs {
		if j.ID == id {
			return j, nil
		}
	}
	return job.Job{}, fault.New(fault.NotFound, "no job has the id %q", id)
}

// change records a call that changes a job, and lets it.
func (f *fake) change(ctx context.Context, what, id string, given any, edit func(*job.Job) error) (job.Job, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.jobs {
		if f.jobs[i].ID == id {
			j := f.jobs[i]
			if err := edit(&j); err != nil {
				return job.Job{}, err
			}
			f.jobs[i] = j
			f.changed(ctx, what, given)
			f.sayLocked(event.Event{Type: event.Type("job." + what), Entity: "job", EntityID: id, JobID: id, RootID: j.RootID})
			return j, nil
		}
	}
	return job.Job{}, fault.New(fault.NotFound, "no job has the id %q", id)
}

func (f *fake) Claim(ctx context.Context, id, worker string) (job.Job, error) {
	return f.change(ctx, "claimed", id, worker, func(j *job.Job) error {
		if err := j.Demand("claim", job.Queued, job.Assigned); err != nil {
			return err
		}
		j.State, j.Worker, j.AssignedModel, j.Fence, j.LeaseUntil = job.InProgress, worker, worker, j.Fence+1, time.Now().Add(time.Minute)
		return nil
	})
}

type result struct {
	Worker  string
	Fence   *int64
	Success bool
	Details json.RawMessage
}

func (f *fake) Complete(ctx context.Context, id, worker string, fence *int64, success bool, details json.RawMessage) (job.Job, error) {
	return f.change(ctx, "completed", id, result{worker, fence, success, details}, func(j *job.Job) error {
		if fence != nil && *fence != j.Fence {
			return fault.New(fault.Conflict, "the lease is over").WithCode("stale_fence")
		}
		j.State, j.Details, j.Outcome = job.Completed, details, job.OutcomeOK
		return nil
	})
}

func (f *fake) SubmitWork(ctx context.Context, id, worker string, fence *int64, details json.RawMessage) (job.Job, error) {
	return f.change(ctx, "submitted", id, result{Worker: worker, Fence: fence, Details: details}, func(j *job.Job) error {
		j.State = job.Submitted
		return nil
	})
}

func (f *fake) Validate(ctx context.Context, id string, v job.Validation) (job.Job, error) {
	return f.change(ctx, "validated", id, v, func(j *job.Job) error {
		j.State = job.Escalated
		if v.Passes() {
			j.State = job.Completed
		}
		return nil
	})
}

func (f *fake) Heartbeat(ctx context.Context, id, worker string, fence *int64) (job.Job, error) {
	return f.change(ctx, "heartbeat", id, result{Worker: worker, Fence: fence}, func(*job.Job) error { return nil })
}

func (f *fake) Stream(ctx context.Context, id, worker, chunk string, final bool) (job.Job, error) {
	return f.change(ctx, "stream", id, []any{worker, chunk, final}, func(*job.Job) error { return nil })
}

func (f *fake) Assign(ctx context.Context, id, model string) (job.Job, error) {
	return f.change(ctx, "assigned", id, model, func(j *job.Job) error {
		j.State, j.AssignedModel = job.Assigned, model
		return nil
	})
}

func (f *fake) Cancel(ctx context.Context, id, reason string) (job.Job, error) {
	return f.change(ctx, "cancelled", id, reason, func(j *job.Job) error {
		if j.State.Ended() {
			return fault.New(fault.Conflict, "it has ended")
		}
		j.State, j.Outcome = job.Failed, job.OutcomeCancelled
		return nil
	})
}

func (f *fake) Retry(ctx context.Context, id string) (job.Job, error) {
	return f.change(ctx, "retried", id, nil, func(j *job.Job) error { return j.To(job.Queued) })
}

func (f *fake) QueueStats(context.Context) (store.JobStats, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := store.JobStats{Counts: map[job.State]int64{}}
	for _, j := range f.jobs {
		if !j.IsRoot() {
			s.Counts[j.State]++
			if s.OldestQueued.IsZero() && j.State == job.Queued {
				s.OldestQueued = j.CreatedAt
			}
		}
	}
	return s, nil
}

func (f *fake) Events(_ context.Context, ef event.Filter, limit int) ([]event.Event, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []event.Event
	if ef.After != 0 && ef.After < f.floor {
		return nil, fault.New(fault.Gone, "there is a gap").WithCode("gap")
	}
	for _, e := range f.events {
		if ef.Matches(e) && len(out) < limit && !store.Full(out, store.EventBytes) {
			out = append(out, e)
		}
	}
	return out, nil
}

func (f *fake) LastEvent(context.Context) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return int64(len(f.events)), f.down
}

func (f *fake) CheckCursor(_ context.Context, after int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if after != 0 && after < f.floor {
		return fault.New(fault.Gone, "there is a gap").WithCode("gap")
	}
	return nil
}

func (f *fake) Collect(_ context.Context, dry bool) (job.Collection, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = dry
	return job.Collection{DryRun: dry, Plans: 1, Events: 2, BlobBytes: 3}, nil
}

func (f *fake) WatchEvents(ctx context.Context) <-chan struct{} {
	ch := make(chan struct{}, 1)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting[ch] = true
	context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.waiting, ch)
		close(ch)
	})
	return ch
}

type blob struct{ *bytes.Reader }

func (blob) Close() error { return nil }

func (f *fake) Artifacts(_ context.Context, id string, _ int) ([]evidence.Artifact, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.find(id); err != nil {
		return nil, err
	}
	var out []evidence.Artifact
	for name, b := range f.blobs {
		out = append(out, evidence.Artifact{Name: name, Bytes: int64(len(b)), SHA256: "d1935"})
	}
	slices.SortFunc(out, func(a, b evidence.Artifact) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	return out, nil
}

func (f *fake) OpenArtifact(_ context.Context, _ string, _ int, name string) (io.ReadSeekCloser, evidence.Artifact, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, ok := f.blobs[name]
	if !ok {
		return nil, evidence.Artifact{}, fault.New(fault.NotFound, "no artifact %q", name)
	}
	return blob{bytes.NewReader(b)}, evidence.Artifact{Name: name, SHA256: "d1935"}, nil
}

func (f *fake) Evidence(_ context.Context, id string, attempt int) (evidence.Record, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.find(id); err != nil {
		return evidence.Record{}, err
	}
	return evidence.Record{JobID: id, Attempt: max(attempt, 1), Driver: "fake", Verdict: sandbox.OK}, nil
}

func (f *fake) OpenSnapshot(context.Context, string, int) (io.ReadSeekCloser, evidence.Snapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return blob{bytes.NewReader(f.blobs["snapshot"])}, evidence.Snapshot{SHA256: "5a95"}, nil
}

// write adds output of the running try.
func (f *fake) write(s sandbox.Stream, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.logs[s] = append(f.logs[s], text...)
	close(f.arrived)
	f.arrived = make(chan struct{})
}

// tryAgain begins another try.
func (f *fake) tryAgain() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.attempt++
	f.logs = map[sandbox.Stream][]byte{}
}

func (f *fake) Logs(_ context.Context, _ string, s sandbox.Stream, offset int64) (job.Log, error) {
	const piece = 5
	f.mu.Lock()
	defer f.mu.Unlock()
	data := f.logs[s]
	data = data[min(offset, int64(len(data))):]
	whole := len(data) <= piece
	data = bytes.Clone(data[:min(len(data), piece)])
	return job.Log{Data: data, Next: offset + int64(len(data)), Attempt: f.attempt, Ended: f.ended && whole}, nil
}

func (f *fake) LogsArrived() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.arrived
}

func (f *fake) Workers(context.Context) ([]job.Worker, error) {
	return []job.Worker{{ID: "w1", Role: "Employee", Slots: 4, Identity: "secret"}}, nil
}

func (f *fake) Health(context.Context) (job.Health, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.health, f.down
}

func (f *fake) Ready(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.down
}

var errBadKey = fault.New(fault.Unauthenticated, "the key is not known").WithCode("bad_key")

func (f *fake) Authenticate(_ context.Context, secret string) (policy.Caller, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, ok := f.keys[secret]
	if !ok {
		return policy.Caller{}, errBadKey
	}
	return c, nil
}

var errDisk = errors.New("the disk is on fire")

// BuildImage tells two steps and is done; a tag of "fail" fails between them.
func (f *fake) BuildImage(ctx context.Context, worker string, order build.Order, upload io.Reader, tell func(build.Step) error) (build.Result, error) {
	var archive []byte
	if upload != nil {
		var err error
		if archive, err = io.ReadAll(upload); err != nil {
			return build.Result{}, err
		}
	}
	f.mu.Lock()
	f.changed(ctx, "build", builtBy{worker, order, string(archive)})
	f.mu.Unlock()
	if err := tell(build.Step{Doing: "build", Line: 3, Number: 1, Of: 2, Text: "FROM base"}); err != nil {
		return build.Result{}, err
	}
	if order.Tag == "fail" {
		return build.Result{}, fault.New(fault.Invalid, "Dockerfile line 4 (RUN false): the command ended with code 1").WithCode("build_failed")
	}
	if err := tell(build.Step{Doing: "build", Line: 4, Number: 2, Of: 2, Text: "RUN true"}); err != nil {
		return build.Result{}, err
	}
	return build.Result{Image: "aurea-sandbox:latest", Digest: "sha256:" + strings.Repeat("0a", 32), Size: 7}, nil
}

// builtBy is what a build was given.
type builtBy struct {
	worker  string
	order   build.Order
	archive string
}
