package manager

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/store"
)

var _ dispatch.Manager = (*Manager)(nil)

// Register announces a worker.
func (m *Manager) Register(ctx context.Context, r dispatch.Registration) (dispatch.Welcome, error) {
	if err := r.Check(); err != nil {
		return dispatch.Welcome{}, err
	}
	if r.Wire != dispatch.Version {
		return dispatch.Welcome{}, fault.New(fault.Conflict, "this manager speaks version %d of the wire, the worker version %d; run the same release on both", dispatch.Version, r.Wire).WithCode("wire_version")
	}
	now := m.Now()
	w := job.Worker{
		ID: r.WorkerID, Identity: r.Identity, Incarnation: r.Incarnation, Role: r.Role, Models: r.Models,
		Slots: r.Slots, Version: r.Version, RegisteredAt: now, SeenAt: now,
	}
	for _, d := range r.Drivers {
		w.Drivers = append(w.Drivers, d.Name)
		w.Proofs = append(w.Proofs, proof(d))
	}
	w.Session = job.NewID()
	if err := m.admit(ctx, w); err != nil {
		return dispatch.Welcome{}, err
	}
	if err := m.tripped(ctx, w.ID, r.Tripped); err != nil {
		return dispatch.Welcome{}, fmt.Errorf("engage what was tripped: %w", err)
	}
	if err := m.Queue.Replace(ctx, w.ID, r.Holding, r.Lost, "worker_restarted"); err != nil {
		return dispatch.Welcome{}, fmt.Errorf("give back old leases: %w", err)
	}
	gone, _, err := m.Queue.Extend(ctx, w.ID, r.Holding)
	if err != nil {
		return dispatch.Welcome{}, fmt.Errorf("extend held leases: %w", err)
	}
	strangers, err := m.Meet(ctx, w.ID, r.Sandboxes)
	if err != nil {
		return dispatch.Welcome{}, fmt.Errorf("compare sandboxes: %w", err)
	}
	s := &session{id: w.Session, worker: w, seen: now, languages: r.Languages}
	m.sessions.add(s)
	m.work.Wake()
	return dispatch.Welcome{Session: s.id, LeaseTerm: m.LeaseTerm, ExtendEvery: m.LeaseTerm / 3, Gone: gone, Strangers: strangers.Sandboxes, StrangeExecs: strangers.Execs, Switches: m.switches.state()}, nil
}

// proof is what a worker says of one of its drivers.
func proof(d dispatch.DriverSummary) job.Driver {
	p := job.Driver{Name: d.Name, Version: d.Version, Isolation: d.Capabilities.Isolation, Degraded: d.Degraded}
	if d.Probe != nil {
		p.Tried, p.Stopped, p.Exempt, p.ProbedAt = d.Probe.Tried, d.Probe.Stopped, d.Probe.Exempt, d.Probe.At
	}
	return p
}

// admit writes the worker down, unless another live one has its id.
func (m *Manager) admit(ctx context.Context, w job.Worker) error {
	attending := m.Alone && m.sessions.attending(w.ID)
	err := m.Store.Update(ctx, func(tx store.Tx) error {
		old, err := tx.Workers().Get(ctx, w.ID)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		if err == nil && old.Identity != w.Identity && (attending || old.Connected && w.SeenAt.Sub(old.SeenAt) < m.LeaseTerm) {
			return fault.New(fault.Conflict, "a live worker already has the id %q (last heard of %s ago); give this one another WORKER_ID, or stop the other",
				w.ID, w.SeenAt.Sub(old.SeenAt).Round(time.Millisecond)).WithCode("worker_id_taken")
		}
		if err != nil { // it is new here
			if err := demandPlace(ctx, tx); err != nil {
				return err
			}
		}
		if err := tx.Workers().Put(ctx, w); err != nil {
			return err
		}
		data, _ := json.Marshal(map[string]any{"incarnation": w.Incarnation, "role": w.Role, "drivers": w.Drivers, "slots": w.Slots})
		return tx.Events().Append(ctx, &event.Event{Type: event.WorkerRegistered, Version: 1, Entity: "worker", EntityID: w.ID, Actor: w.ID, At: w.SeenAt, Data: data})
	})
	if fault.CodeOf(err) == "worker_id_taken" {
		m.Logger.Warn("refused a second worker with the same id", "worker", w.ID)
		if told := m.tell(ctx, event.Event{Type: event.WorkerRefused, Entity: "worker", EntityID: w.ID}); told != nil {
			m.Logger.Error("could not record the refusal", "error", told)
		}
	}
	return err
}

// maxWorkers bounds how many workers are known, also those that are away.
const maxWorkers = 1000

func demandPlace(ctx context.Context, tx store.Tx) error {
	known, err := tx.Workers().List(ctx)
	if err == nil && len(known) >= maxWorkers {
		err = fault.New(fault.Exhausted, "%d workers are known here, which is the most; give workers that are started again the same WORKER_ID, or wait until old ones are forgotten", maxWorkers).WithCode("too_many_workers")
	}
	return err
}

// Lease waits for work.
func (m *Manager) Lease(ctx context.Context, req dispatch.LeaseRequest) ([]dispatch.Lease, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	s, err := m.recent(ctx, req.Session)
	if err != nil {
		return nil, err
	}
	m.saw(ctx, s, nil)
	deadline := time.NewTimer(req.Wait)
	defer deadline.Stop()
	for {
		wake := m.idle.Wait() // before the look: what comes during it must not be missed
		jobs, err := m.Queue.Lease(ctx, s.worker, req.Max)
		if err != nil || len(jobs) > 0 {
			m.noteLeased(jobs)
			return leases(jobs), err
		}
		select {
		case <-wake:
		case <-deadline.C:
			return nil, nil
		case <-ctx.Done():
			return nil, nil //nolint:nilerr // an early return without work is not an error
		}
		if _, err := m.recent(ctx, req.Session); err != nil {
			return nil, err
		}
	}
}

func leases(jobs []job.Job) []dispatch.Lease {
	out := make([]dispatch.Lease, 0, len(jobs))
	for i := range jobs {
		j := &jobs[i]
		out = append(out, dispatch.Lease{
			Held: dispatch.Held{JobID: j.ID, Fence: j.Fence}, Attempt: j.Attempt, RootID: j.RootID, ProjectID: j.ProjectID,
			Title: j.Title, Role: j.Role, Payload: j.Payload, Timeout: j.Timeout, Until: j.LeaseUntil, Trace: j.Trace,
		})
	}
	return out
}

// Extend renews leases.
func (m *Manager) Extend(ctx context.Context, req dispatch.ExtendRequest) (dispatch.ExtendAnswer, error) {
	if err := req.Check(); err != nil {
		return dispatch.ExtendAnswer{}, err
	}
	s, err := m.session(ctx, req.Session)
	if err != nil {
		return dispatch.ExtendAnswer{}, err
	}
	if err := m.tripped(ctx, s.worker.ID, req.Tripped); err != nil {
		return dispatch.ExtendAnswer{}, err
	}
	m.saw(ctx, s, &req)
	gone, until, err := m.Queue.Extend(ctx, s.worker.ID, req.Held)
	return dispatch.ExtendAnswer{Gone: gone, Until: until, Switches: m.switches.state()}, err
}

// Report takes events and output of running jobs.
func (m *Manager) Report(ctx context.Context, req dispatch.ReportRequest) (dispatch.Refusals, error) {
	if err := req.Check(); err != nil {
		return dispatch.Refusals{}, err
	}
	s, err := m.recent(ctx, req.Session)
	if err != nil {
		return dispatch.Refusals{}, err
	}
	refused, err := m.Queue.Report(ctx, s.worker.ID, req.Items)
	if err != nil {
		return dispatch.Refusals{}, err
	}
	no := map[dispatch.Held]bool{}
	for _, r := range refused {
		no[r.Held] = true
	}
	for _, it := range req.Items {
		if it.Output == nil || no[it.Held] {
			continue
		}
		if err := m.outputs.take(ctx, it.Held, it.Output); err != nil {
			return dispatch.Refusals{}, err
		}
	}
	m.outputs.arrived.Wake()
	return dispatch.Refusals{Refused: refused}, nil
}

// Finish takes results, in one transaction with the small blobs that ride along.
func (m *Manager) Finish(ctx context.Context, req dispatch.FinishRequest) (dispatch.Refusals, error) {
	if err := req.Check(); err != nil {
		return dispatch.Refusals{}, err
	}
	s, err := m.recent(ctx, req.Session)
	if err != nil {
		return dispatch.Refusals{}, err
	}
	results := slices.Clone(req.Results)
	for i := range results {
		if results[i].Inline, err = m.demandBlobs(ctx, &results[i]); err != nil {
			return dispatch.Refusals{}, err
		}
	}
	refused, err := m.Queue.Finish(ctx, s.worker.ID, results)
	if err != nil {
		return dispatch.Refusals{}, err
	}
	for i := range req.Results {
		if h := req.Results[i].Held; !m.holds(ctx, refused, h) {
			m.outputs.Drop(ctx, h.JobID, h.Fence)
		}
	}
	m.noteFinished(req.Results, refused)
	m.outputs.arrived.Wake()
	m.work.Wake() // dependents may be ready, retries may be due
	return dispatch.Refusals{Refused: refused}, nil
}

// holds reports whether a lease under which a result was refused is somebody
// else's and runs: then its output is not the sender's to end.
func (m *Manager) holds(ctx context.Context, refused []dispatch.Refusal, h dispatch.Held) bool {
	if !slices.ContainsFunc(refused, func(r dispatch.Refusal) bool { return r.Held == h }) {
		return false
	}
	running := false
	err := m.Store.View(ctx, func(tx store.Tx) error {
		j, err := tx.Jobs().Get(ctx, h.JobID)
		running = err == nil && j.State == job.InProgress && j.Fence == h.Fence
		return err
	})
	return running || err != nil && !fault.Is(err, fault.NotFound)
}

// demandBlobs makes sure that all that a result refers to is there, and that
// what rides along is what it is called: evidence never names bytes that nobody
// has. It returns what rides along and is named.
func (m *Manager) demandBlobs(ctx context.Context, r *dispatch.Result) (map[string][]byte, error) {
	need := make(map[string]bool, len(r.Artifacts)+1)
	for _, a := range r.Artifacts {
		if err := job.CheckPath("artifacts", a.Name); err != nil {
			return nil, err
		}
		need[a.SHA256] = true
	}
	if snap := r.Record.Snapshot; snap != nil {
		need[snap.SHA256] = true
	}
	small := make(map[string][]byte, len(r.Inline))
	for digest, data := range r.Inline {
		if blob.Digest(data) != digest {
			return nil, fault.New(fault.Invalid, "the blob that is called %s has another digest", digest).WithCode("blob_digest")
		}
		if need[digest] && digest != blob.Empty {
			small[digest] = data
		}
	}
	for digest := range need {
		if _, rides := small[digest]; rides {
			continue
		}
		there, err := m.Blobs.Has(ctx, digest)
		if err != nil {
			return nil, err
		}
		if !there {
			return nil, fault.New(fault.Invalid, "the result names the blob %s, which was never put", digest).WithCode("blob_missing")
		}
	}
	return small, nil
}

// PutBlob stores bytes under their digest.
func (m *Manager) PutBlob(ctx context.Context, session, sha256 string, size int64, r io.Reader) error {
	if _, err := m.session(ctx, session); err != nil {
		return err
	}
	if err := dispatch.CheckBlob(sha256, size); err != nil {
		return err
	}
	return m.Blobs.Put(ctx, sha256, size, r)
}

// Attend holds a worker's command stream.
func (m *Manager) Attend(ctx context.Context, id string, rc dispatch.Receiver) error {
	s, err := m.session(ctx, id)
	if err != nil {
		return err
	}
	open, stream := s.open(ctx, rc)
	if err := m.connected(ctx, s, true); err != nil {
		s.leave(stream)
		return err
	}
	m.Wake()
	<-open.Done()
	if s.leave(stream) {
		bounded, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), 5*time.Second, errStopped)
		defer cancel()
		if err := m.connected(bounded, s, false); err != nil {
			m.Logger.Error("could not record that a worker's stream closed", "worker", s.worker.ID, "error", err)
		}
	}
	return context.Cause(open)
}

// Tell takes the ends of execs and sandboxes.
func (m *Manager) Tell(ctx context.Context, req dispatch.TellRequest) error {
	if err := req.Check(); err != nil {
		return err
	}
	s, err := m.recent(ctx, req.Session)
	if err != nil {
		return err
	}
	return m.Keeper.Tell(ctx, s.worker.ID, req)
}

// Leave says goodbye.
func (m *Manager) Leave(ctx context.Context, id string) error {
	s, err := m.session(ctx, id)
	if err != nil {
		return err
	}
	if err := m.Queue.Release(ctx, s.worker.ID, nil, "worker_left"); err != nil {
		return err
	}
	err = m.note(ctx, s, func(w *job.Worker) bool {
		w.Connected, w.Manager, w.Session = false, "", ""
		return true
	})
	if err != nil {
		return err
	}
	m.sessions.remove(s)
	s.close(errStopped)
	m.work.Wake()
	return m.tell(ctx, event.Event{Type: event.WorkerLeft, Entity: "worker", EntityID: s.worker.ID, Actor: s.worker.ID})
}

// connected writes down whether a worker's stream is open here, unless another
// session has taken its place, or another manager has its stream by now.
func (m *Manager) connected(ctx context.Context, s *session, open bool) error {
	return m.note(ctx, s, func(w *job.Worker) bool {
		if !open && w.Manager != m.ID {
			return false
		}
		w.Connected, w.Manager = open, ""
		if open {
			w.Manager = m.ID
		}
		return true
	})
}

// note changes what is written of a worker, unless another session has taken
// the place of s.
func (m *Manager) note(ctx context.Context, s *session, change func(*job.Worker) bool) error {
	return m.Store.Update(ctx, func(tx store.Tx) error {
		w, err := tx.Workers().Get(ctx, s.worker.ID)
		if err != nil || w.Session != s.id || !change(&w) {
			return err
		}
		w.SeenAt = m.Now()
		return tx.Workers().Put(ctx, w)
	})
}

// saw notes a sign of life, now and then, and at once when it brings news.
func (m *Manager) saw(ctx context.Context, s *session, req *dispatch.ExtendRequest) {
	if news := req != nil && s.said(req); !s.due(m.Now(), news) {
		return
	}
	err := m.note(ctx, s, func(w *job.Worker) bool {
		w.Connected = true
		if req != nil {
			w.Paused = req.Paused
		}
		return true
	})
	if err != nil && ctx.Err() == nil {
		m.Logger.Error("could not note a worker's sign of life", "worker", s.worker.ID, "error", err)
	}
}

// halt tells workers to stop work that was cancelled. A worker that cannot be
// reached learns it when it next extends its lease.
func (m *Manager) halt(ctx context.Context, worker string, c dispatch.Cancel) {
	rc := m.sessions.receiver(worker)
	if rc == nil {
		return
	}
	m.tasks.Go(func() {
		bounded, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), 5*time.Second, errStopped)
		defer cancel()
		if err := rc.Cancel(bounded, c); err != nil {
			m.Logger.Warn("could not tell a worker to stop; it will learn it with its next extension", "worker", worker, "job", c.JobID, "error", err)
		}
	})
}
