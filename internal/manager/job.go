package manager

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/trace"
)

// SubmitPRD stores a plan and its jobs. The same idempotency key with the same
// request answers as it did before.
func (m *Manager) SubmitPRD(ctx context.Context, prd job.PRD, idempotencyKey, requestDigest string) (job.Submission, error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return job.Submission{}, err
	}
	if prd.ProjectID, err = c.Place(prd.ProjectID); err != nil {
		return job.Submission{}, err
	}
	if err := m.demandSessions(ctx, c, prd); err != nil {
		return job.Submission{}, err
	}
	if err := m.demandDrivers(ctx, prd); err != nil {
		return job.Submission{}, err
	}
	if err := m.switches.refuse(sandbox.Subject{Project: prd.ProjectID}); err != nil {
		return job.Submission{}, err
	}
	if err := m.demandDisk(); err != nil {
		return job.Submission{}, err
	}
	ctx, span := m.Tracer.Start(ctx, "queue.submit", trace.Producer)
	defer span.End()
	s, err := m.Queue.Submit(ctx, c, prd, c.ReplyKey(idempotencyKey), requestDigest)
	span.Fail(err)
	switch {
	case err != nil || s.Replayed:
	case s.Assigned:
		m.idle.Wake()
	default:
		m.work.Wake()
	}
	return s, err
}

// demandDrivers refuses work that asks for a driver which no connected worker
// serves now. It is never done in another.
func (m *Manager) demandDrivers(ctx context.Context, prd job.PRD) error {
	var h *job.Health
	for i, t := range prd.Tasks {
		name := job.DriverOf(t.Payload)
		if name == "" {
			continue
		}
		if h == nil {
			now, err := m.Health(ctx)
			if err != nil {
				return err
			}
			h = &now
		}
		if !slices.Contains(h.Drivers, name) {
			f := fault.New(fault.Unavailable, "the driver %q is not served: %s", name, whyNot(*h, name)).WithCode("driver_unavailable")
			f.Field = fmt.Sprintf("tasks[%d].payload.driver", i)
			return f
		}
	}
	return nil
}

// whyNot says why a driver is not served.
func whyNot(h job.Health, name string) string {
	for _, p := range h.Proofs {
		if p.Name == name && p.Degraded != "" {
			return p.Degraded
		}
	}
	if len(h.Drivers) == 0 {
		return "no connected worker serves any driver"
	}
	return "no connected worker has it; they have " + strings.Join(h.Drivers, ", ")
}

// within bounds a list of jobs to those that the caller sees.
func within(c policy.Caller, f store.JobFilter) (store.JobFilter, error) {
	f.Owner = cmp.Or(c.OnlyOwner(), f.Owner)
	if c.Project() == 0 {
		return f, nil
	}
	var named int64
	if f.ProjectID != nil {
		named = *f.ProjectID
	}
	own, err := c.Place(named)
	f.ProjectID = &own
	return f, err
}

// demandSessions refuses tasks in sessions of another project to a key that is
// narrowed to one: their sandboxes are there.
func (m *Manager) demandSessions(ctx context.Context, c policy.Caller, prd job.PRD) error {
	if c.Project() == 0 {
		return nil
	}
	return m.Store.View(ctx, func(tx store.Tx) error {
		for i, t := range prd.Tasks {
			if t.SessionID == "" {
				continue
			}
			s, err := tx.Sessions().Get(ctx, c.ID, t.SessionID)
			if fault.Is(err, fault.NotFound) || err == nil && !c.Sees(s.Owner, live.ProjectOf(s.Project)) {
				return fault.Field(fmt.Sprintf("tasks[%d].session_id", i), "is no session of yours in the project of this key")
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Jobs lists jobs that the caller may see, newest first.
func (m *Manager) Jobs(ctx context.Context, f store.JobFilter) (jobs []job.Job, err error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return nil, err
	}
	if f, err = within(c, f); err != nil {
		return nil, err
	}
	err = m.Store.View(ctx, func(tx store.Tx) (err error) {
		jobs, err = tx.Jobs().List(ctx, f)
		return err
	})
	return jobs, err
}

// Job returns one job.
func (m *Manager) Job(ctx context.Context, id string) (j job.Job, err error) {
	err = m.Store.View(ctx, func(tx store.Tx) (err error) {
		j, err = visible(ctx, tx, id)
		return err
	})
	return j, err
}

// visible returns a job that the caller may see; what it may not see does not
// exist for it.
func visible(ctx context.Context, tx store.Tx, id string) (job.Job, error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return job.Job{}, err
	}
	j, err := tx.Jobs().Get(ctx, id)
	if err == nil && !c.Sees(j.Owner, j.ProjectID) {
		return job.Job{}, fault.New(fault.NotFound, "no job has the id %q", id)
	}
	return j, err
}

// Claim gives a job to a worker that asked for it by name.
func (m *Manager) Claim(ctx context.Context, id, worker string) (job.Job, error) {
	return m.move(ctx, func(c policy.Caller) (job.Job, error) {
		if c.Kind == policy.Worker && m.speaks(ctx, worker) {
			return job.Job{}, fault.New(fault.Conflict, "worker %q is connected and speaks for itself; claim under another name", worker).WithCode("worker_id_taken")
		}
		return m.Queue.Claim(ctx, c, id, worker)
	})
}

// speaks reports whether a worker has a session, here or at another manager.
func (m *Manager) speaks(ctx context.Context, worker string) bool {
	if m.sessions.known(worker) {
		return true
	}
	if m.Alone {
		return false
	}
	var speaks bool
	err := m.Store.View(ctx, func(tx store.Tx) error {
		w, err := tx.Workers().Get(ctx, worker)
		speaks = err == nil && w.Session != "" && m.attended(&w)
		return err
	})
	return speaks || err != nil && !fault.Is(err, fault.NotFound)
}

// plain refuses a worker that speaks over plain HTTP about a job which a
// connected worker holds. That one has a session to prove who it is; a name or
// a number, which every worker can read, proves nothing.
func (m *Manager) plain(ctx context.Context, c policy.Caller, id string) error {
	if c.Kind != policy.Worker {
		return nil
	}
	j, err := m.Job(ctx, id)
	if err == nil && j.State == job.InProgress && m.speaks(ctx, j.Worker) {
		err = fault.New(fault.Conflict, "job %s is held by the connected worker %q, which speaks for itself", id, j.Worker).WithCode("not_the_holder")
	}
	return err
}

// Complete takes the result of a worker that claimed a job over HTTP.
func (m *Manager) Complete(ctx context.Context, id, worker string, fence *int64, success bool, details json.RawMessage) (job.Job, error) {
	return m.move(ctx, func(c policy.Caller) (job.Job, error) {
		if err := m.plain(ctx, c, id); err != nil {
			return job.Job{}, err
		}
		return m.Queue.Complete(ctx, c, id, worker, fence, success, details)
	})
}

// SubmitWork hands a job over for validation.
func (m *Manager) SubmitWork(ctx context.Context, id, worker string, fence *int64, details json.RawMessage) (job.Job, error) {
	return m.move(ctx, func(c policy.Caller) (job.Job, error) {
		if err := m.plain(ctx, c, id); err != nil {
			return job.Job{}, err
		}
		return m.Queue.SubmitWork(ctx, c, id, worker, fence, details)
	})
}

// Validate ends a submitted job by a validator's word.
func (m *Manager) Validate(ctx context.Context, id string, v job.Validation) (job.Job, error) {
	return m.move(ctx, func(c policy.Caller) (job.Job, error) { return m.Queue.Validate(ctx, c, id, v) })
}

// Assign binds a job to a worker or model by hand.
func (m *Manager) Assign(ctx context.Context, id, model string) (job.Job, error) {
	return m.move(ctx, func(c policy.Caller) (job.Job, error) { return m.Queue.Assign(ctx, c, id, model) })
}

// Retry gives an ended job, or all failed jobs of a root, another life.
func (m *Manager) Retry(ctx context.Context, id string) (job.Job, error) {
	return m.move(ctx, func(c policy.Caller) (job.Job, error) { return m.Queue.Retry(ctx, c, id) })
}

// Heartbeat extends the lease of a job that was claimed over HTTP.
func (m *Manager) Heartbeat(ctx context.Context, id, worker string, fence *int64) (job.Job, error) {
	return m.move(ctx, func(c policy.Caller) (job.Job, error) {
		if err := m.plain(ctx, c, id); err != nil {
			return job.Job{}, err
		}
		return m.Queue.Heartbeat(ctx, c, id, worker, fence)
	})
}

// Cancel ends a job, and really stops it where it runs.
func (m *Manager) Cancel(ctx context.Context, id, reason string) (job.Job, error) {
	return m.move(ctx, func(c policy.Caller) (job.Job, error) {
		j, stops, err := m.Queue.Cancel(ctx, c, id, reason)
		for _, s := range stops {
			if !m.Alone {
				break // the follower of the manager that has its stream tells it
			}
			m.halt(ctx, s.Worker, dispatch.Cancel{Held: s.Held, Reason: reason})
		}
		return j, err
	})
}

// move makes a change on behalf of the caller, and wakes whoever may now have
// something to do.
func (m *Manager) move(ctx context.Context, change func(policy.Caller) (job.Job, error)) (job.Job, error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return job.Job{}, err
	}
	j, err := change(c)
	if err == nil {
		m.work.Wake()
		m.idle.Wake()
	}
	return j, err
}

// Stream stores a piece of progress that a worker sent over HTTP.
func (m *Manager) Stream(ctx context.Context, id, worker, chunk string, final bool) (job.Job, error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return job.Job{}, err
	}
	if err := m.plain(ctx, c, id); err != nil {
		return job.Job{}, err
	}
	var j job.Job
	err = m.Store.Update(ctx, func(tx store.Tx) (err error) {
		if j, err = visible(ctx, tx, id); err != nil {
			return err
		}
		if err := j.Demand("stream to", job.InProgress, job.Validating); err != nil {
			return err
		}
		if worker != "" && worker != j.Worker {
			return fault.New(fault.Conflict, "job %s is held by %q, not by %q", id, j.Worker, worker).WithCode("not_holder")
		}
		data, err := json.Marshal(map[string]any{"chunk": chunk, "final": final})
		if err != nil {
			return err
		}
		return tx.Events().Append(ctx, &event.Event{
			Type: event.JobStream, Version: 1, Entity: "job", EntityID: id, JobID: id, RootID: j.RootID,
			ProjectID: j.ProjectID, Actor: c.ID, Owner: j.Owner, At: m.Now(), Data: data,
		})
	})
	return j, err
}

// Events lists stored events that the caller may see.
func (m *Manager) Events(ctx context.Context, f event.Filter, limit int) (events []event.Event, err error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return nil, err
	}
	f.Owner = cmp.Or(c.OnlyOwner(), f.Owner)
	if f.ProjectID, err = c.Place(f.ProjectID); err != nil {
		return nil, err
	}
	err = m.Store.View(ctx, func(tx store.Tx) (err error) {
		events, err = eventPage(ctx, tx, f, limit)
		return err
	})
	return events, err
}

// LastEvent returns the cursor of the newest event.
func (m *Manager) LastEvent(ctx context.Context) (seq int64, err error) {
	err = m.Store.View(ctx, func(tx store.Tx) (err error) {
		seq, err = tx.Events().Last(ctx)
		return err
	})
	return seq, err
}

// WatchEvents returns wake-ups after new events, until ctx ends.
func (m *Manager) WatchEvents(ctx context.Context) <-chan struct{} { return m.Store.Watch(ctx) }

// QueueStats counts the caller's jobs.
func (m *Manager) QueueStats(ctx context.Context) (store.JobStats, error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return store.JobStats{}, err
	}
	return m.Queue.Stats(ctx, c)
}

// Workers lists the workers that have registered.
func (m *Manager) Workers(ctx context.Context) (ws []job.Worker, err error) {
	err = m.Store.View(ctx, func(tx store.Tx) (err error) {
		ws, err = tx.Workers().List(ctx)
		return err
	})
	return ws, err
}

// maxLog bounds one piece of output.
const maxLog = 256 << 10

// Logs returns output of a job's newest try from an offset on: live while it
// runs, from the blobs when it has ended.
func (m *Manager) Logs(ctx context.Context, id string, s sandbox.Stream, offset int64) (job.Log, error) {
	if offset < 0 {
		return job.Log{}, fault.Field("offset", "must not be negative")
	}
	j, err := m.Job(ctx, id)
	if err != nil {
		return job.Log{}, err
	}
	l := job.Log{Attempt: j.Attempt, Ended: j.State.Ended() || j.IsRoot(), Next: offset}
	if j.State == job.InProgress && !j.IsRoot() {
		l.Data, err = m.outputs.read(ctx, dispatch.Held{JobID: id, Fence: j.Fence}, s, offset, maxLog)
	} else {
		l.Data, err = m.storedLog(ctx, id, j.Attempt, s, offset)
	}
	l.Next += int64(len(l.Data))
	if len(l.Data) == maxLog {
		l.Ended = false // there may be more to read
	}
	return l, err
}

// LogsArrived returns a channel that is closed when some output has arrived.
func (m *Manager) LogsArrived() <-chan struct{} { return m.outputs.arrived.Wait() }
