package dispatchtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/killswitch"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

var (
	_ dispatch.Manager = (*Reference)(nil)
	_ Control          = (*Reference)(nil)
)

// Reference fulfils dispatch.Manager in memory, as plainly as can be: one
// lock, no store, no clock but time's. It is what the suite is tried on, and a
// manager for tests of what talks to one.
type Reference struct {
	// Term is how long a lease runs. Set it before use; zero is 30 s.
	Term time.Duration

	mu       sync.Mutex
	count    int
	jobs     map[string]*work
	queue    []string // ids, oldest first
	sessions map[string]*visit
	workers  map[string]dispatch.Registration
	blobs    map[string][]byte
	execs    map[string]live.ExecEnded
	ended    map[string]live.Ended
	disowned map[string]bool // execs
	stops    killswitch.State
	tripped  []killswitch.Switch
	changed  chan struct{} // closed and replaced when something was queued or a session ended
}

// work is one job.
type work struct {
	payload  json.RawMessage
	fence    int64
	attempt  int
	leased   bool
	holder   string // worker id
	until    time.Time
	ordinal  int64 // of the last happening that was taken under this lease
	accepted []dispatch.Result
	events   []dispatch.Happening
	output   map[sandbox.Stream][]byte
	refused  int
	lost     []dispatch.Lost
}

// visit is one session.
type visit struct {
	id     string
	worker string
	open   *opened // nil while no stream is open
}

// opened is one command stream.
type opened struct {
	rc     dispatch.Receiver
	cancel context.CancelCauseFunc
}

// NewReference returns an empty manager.
func NewReference() *Reference {
	return &Reference{
		jobs: map[string]*work{}, sessions: map[string]*visit{}, workers: map[string]dispatch.Registration{},
		blobs: map[string][]byte{}, execs: map[string]live.ExecEnded{}, ended: map[string]live.Ended{}, disowned: map[string]bool{}, changed: make(chan struct{}),
	}
}

// ExecEnd returns the end of an exec that was told, and SandboxEnd that of a
// sandbox.
func (r *Reference) ExecEnd(id string) (live.ExecEnded, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.execs[id]
	return e, ok
}

// SandboxEnd returns the end of a sandbox that was told.
func (r *Reference) SandboxEnd(id string) (live.Ended, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.ended[id]
	return e, ok
}

// Disown makes a sandbox a stranger: its worker is told to destroy it when it
// registers.
func (r *Reference) Disown(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended[id] = live.Ended{ID: id}
}

// DisownExec makes an exec a stranger: its worker is told to kill it when it
// registers.
func (r *Reference) DisownExec(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.disowned[id] = true
}

// Standings are the sandboxes that a worker named when it last registered.
func (r *Reference) Standings(workerID string) []live.Standing {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.workers[workerID].Sandboxes)
}

func (r *Reference) next(kind string) string {
	r.count++
	return kind + "-" + strconv.Itoa(r.count)
}

func (r *Reference) wake() {
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *Reference) term() time.Duration {
	if r.Term == 0 {
		return 30 * time.Second
	}
	return r.Term
}

func (r *Reference) session(id string) (*visit, error) {
	if v := r.sessions[id]; v != nil {
		return v, nil
	}
	return nil, fault.New(fault.Unauthenticated, "the session is not known here; register again").WithCode("unknown_session")
}

// giveBack puts a job into the queue again; whoever held it is fenced off.
func (r *Reference) giveBack(id string) {
	w := r.jobs[id]
	w.leased, w.holder = false, ""
	w.fence++
	r.queue = append(r.queue, id)
	r.wake()
}

func (r *Reference) giveBackAll(worker string, keep []dispatch.Held) {
	for id, w := range r.jobs {
		if w.leased && w.holder == worker && !slices.Contains(keep, dispatch.Held{JobID: id, Fence: w.fence}) {
			r.giveBack(id)
		}
	}
}

// reap gives back what ran out of its time.
func (r *Reference) reap() {
	now := time.Now()
	for id, w := range r.jobs {
		if w.leased && w.until.Before(now) {
			r.giveBack(id)
		}
	}
}

func (r *Reference) drop(v *visit, why error) {
	delete(r.sessions, v.id)
	if v.open != nil {
		v.open.cancel(why)
	}
	r.wake() // a long poll of this session must not go on waiting
}

// held returns the job if the worker's lease of it is current.
func (r *Reference) held(worker string, h dispatch.Held) *work {
	w := r.jobs[h.JobID]
	if w == nil || !w.leased || w.holder != worker || w.fence != h.Fence {
		return nil
	}
	return w
}

// Register announces a worker.
func (r *Reference) Register(_ context.Context, reg dispatch.Registration) (dispatch.Welcome, error) {
	if err := reg.Check(); err != nil {
		return dispatch.Welcome{}, err
	}
	if reg.Wire != dispatch.Version {
		return dispatch.Welcome{}, fault.New(fault.Conflict, "version %d of the wire is not spoken here, only %d", reg.Wire, dispatch.Version).WithCode("wire_version")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.workers[reg.WorkerID]
	for _, v := range r.sessions {
		if v.worker != reg.WorkerID {
			continue
		}
		if v.open != nil && known.Identity != reg.Identity {
			return dispatch.Welcome{}, fault.New(fault.Conflict, "another live worker has the id %s", reg.WorkerID).WithCode("worker_id_taken")
		}
		r.drop(v, fault.New(fault.Unauthenticated, "another session took over").WithCode("unknown_session"))
	}
	for _, l := range reg.Lost {
		if w := r.held(reg.WorkerID, l.Held); w != nil {
			w.lost = append(w.lost, l)
			r.giveBack(l.JobID)
		}
	}
	r.giveBackAll(reg.WorkerID, reg.Holding)
	r.workers[reg.WorkerID] = reg
	v := &visit{id: r.next("session"), worker: reg.WorkerID}
	r.sessions[v.id] = v
	gone, _ := r.extend(v.worker, reg.Holding)
	w := dispatch.Welcome{Session: v.id, LeaseTerm: r.term(), ExtendEvery: r.term() / 3, Gone: gone, Switches: r.trip(reg.Tripped)}
	for _, s := range reg.Sandboxes {
		if _, ended := r.ended[s.ID]; ended {
			w.Strangers = append(w.Strangers, s.ID)
		}
		for _, e := range s.Execs {
			if r.disowned[e] {
				w.StrangeExecs = append(w.StrangeExecs, live.ExecID{Sandbox: s.ID, Exec: e})
			}
		}
	}
	return w, nil
}

// Lease waits for work.
func (r *Reference) Lease(ctx context.Context, req dispatch.LeaseRequest) ([]dispatch.Lease, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	timer := time.NewTimer(req.Wait)
	defer timer.Stop()
	for {
		ls, changed, err := r.take(req)
		if err != nil || len(ls) > 0 {
			return ls, err
		}
		select {
		case <-changed:
		case <-timer.C:
			return nil, nil
		case <-ctx.Done():
			return nil, nil
		}
	}
}

func (r *Reference) take(req dispatch.LeaseRequest) ([]dispatch.Lease, <-chan struct{}, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, err := r.session(req.Session)
	if err != nil {
		return nil, nil, err
	}
	r.reap()
	n := min(req.Max, len(r.queue))
	ls := make([]dispatch.Lease, 0, n)
	for _, id := range r.queue[:n] {
		w := r.jobs[id]
		w.leased, w.holder, w.until, w.ordinal = true, v.worker, time.Now().Add(r.term()), 0
		w.output = map[sandbox.Stream][]byte{} // another try writes its own
		w.fence++
		w.attempt++
		ls = append(ls, dispatch.Lease{
			Held: dispatch.Held{JobID: id, Fence: w.fence}, Attempt: w.attempt, RootID: "root-of-" + id,
			Title: id, Role: "Employee", Payload: slices.Clone(w.payload), Timeout: 15 * time.Minute, Until: w.until,
		})
	}
	r.queue = slices.Delete(r.queue, 0, n)
	return ls, r.changed, nil
}

// Extend renews leases.
func (r *Reference) Extend(_ context.Context, req dispatch.ExtendRequest) (dispatch.ExtendAnswer, error) {
	if err := req.Check(); err != nil {
		return dispatch.ExtendAnswer{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	v, err := r.session(req.Session)
	if err != nil {
		return dispatch.ExtendAnswer{}, err
	}
	gone, until := r.extend(v.worker, req.Held)
	return dispatch.ExtendAnswer{Gone: gone, Until: until, Switches: r.trip(req.Tripped)}, nil
}

func (r *Reference) extend(worker string, held []dispatch.Held) (gone []dispatch.Held, until time.Time) {
	r.reap()
	until = time.Now().Add(r.term())
	for _, h := range held {
		if w := r.held(worker, h); w != nil {
			w.until = until
		} else {
			gone = append(gone, h)
		}
	}
	return gone, until
}

// Report takes what happened so far.
func (r *Reference) Report(_ context.Context, req dispatch.ReportRequest) (dispatch.Refusals, error) {
	if err := req.Check(); err != nil {
		return dispatch.Refusals{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	v, err := r.session(req.Session)
	if err != nil {
		return dispatch.Refusals{}, err
	}
	r.reap()
	var refused dispatch.Refusals
	for _, it := range req.Items {
		w := r.held(v.worker, it.Held)
		switch {
		case w == nil:
			r.refuse(&refused, it.Held)
		case it.Event != nil:
			w.happen(*it.Event)
		default:
			w.say(*it.Output)
		}
	}
	return refused, nil
}

func (r *Reference) refuse(to *dispatch.Refusals, h dispatch.Held) {
	if w := r.jobs[h.JobID]; w != nil {
		w.refused++
	}
	if !slices.ContainsFunc(to.Refused, func(x dispatch.Refusal) bool { return x.Held == h }) {
		to.Refused = append(to.Refused, dispatch.Refusal{Held: h, Reason: "the lease is not current"})
	}
}

func (w *work) happen(h dispatch.Happening) {
	if h.N > w.ordinal {
		w.ordinal = h.N
		w.events = append(w.events, h)
	}
}

func (w *work) say(c dispatch.Chunk) {
	have := int64(len(w.output[c.Stream]))
	if c.Offset <= have && c.Offset+int64(len(c.Data)) > have {
		w.output[c.Stream] = append(w.output[c.Stream], c.Data[have-c.Offset:]...)
	}
}

// Finish takes results.
func (r *Reference) Finish(_ context.Context, req dispatch.FinishRequest) (dispatch.Refusals, error) {
	if err := req.Check(); err != nil {
		return dispatch.Refusals{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	v, err := r.session(req.Session)
	if err != nil {
		return dispatch.Refusals{}, err
	}
	for i := range req.Results {
		for digest, data := range req.Results[i].Inline {
			if err := r.keep(digest, data); err != nil {
				return dispatch.Refusals{}, err
			}
		}
	}
	r.reap()
	var refused dispatch.Refusals
	for _, res := range req.Results {
		w := r.jobs[res.JobID]
		again := w != nil && !w.leased && w.holder == v.worker && w.fence == res.Fence && len(w.accepted) > 0
		if again {
			continue
		}
		if w = r.held(v.worker, res.Held); w == nil {
			r.refuse(&refused, res.Held)
			continue
		}
		for _, h := range res.Happenings {
			w.happen(h)
		}
		w.accepted = append(w.accepted, res)
		w.leased = false // and the holder stays, to be known when it says so again
	}
	return refused, nil
}

func (r *Reference) keep(digest string, data []byte) error {
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != digest {
		return fault.Field("sha256", "the bytes have another digest")
	}
	r.blobs[digest] = data
	return nil
}

// PutBlob stores bytes.
func (r *Reference) PutBlob(_ context.Context, session, digest string, size int64, from io.Reader) error {
	if err := dispatch.CheckBlob(digest, size); err != nil {
		return err
	}
	r.mu.Lock()
	_, err := r.session(session)
	_, there := r.blobs[digest]
	r.mu.Unlock()
	if err != nil || there {
		return err
	}
	var data bytes.Buffer
	if _, err := io.Copy(&data, io.LimitReader(from, size+1)); err != nil {
		return fmt.Errorf("read the blob: %w", err)
	}
	if int64(data.Len()) != size {
		return fault.Field("size", "the blob has another size")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.keep(digest, data.Bytes())
}

// Attend holds a worker's command stream.
func (r *Reference) Attend(ctx context.Context, session string, rc dispatch.Receiver) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	mine := &opened{rc: rc, cancel: cancel}
	r.mu.Lock()
	v, err := r.session(session)
	if err != nil {
		r.mu.Unlock()
		return err
	}
	if v.open != nil {
		v.open.cancel(fault.New(fault.Conflict, "a newer command stream took over"))
	}
	v.open = mine
	r.mu.Unlock()
	<-ctx.Done()
	r.mu.Lock()
	defer r.mu.Unlock()
	if v.open == mine {
		v.open = nil
	}
	return context.Cause(ctx)
}

// Tell takes ends, and keeps each once.
func (r *Reference) Tell(_ context.Context, req dispatch.TellRequest) error {
	if err := req.Check(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.session(req.Session); err != nil {
		return err
	}
	for _, e := range req.Execs {
		for digest, data := range e.Inline {
			if err := r.keep(digest, data); err != nil {
				return err
			}
		}
		r.execs[e.ID] = e
	}
	for _, e := range req.Sandboxes {
		r.ended[e.ID] = e
	}
	return nil
}

// Leave says goodbye.
func (r *Reference) Leave(_ context.Context, session string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, err := r.session(session)
	if err != nil {
		return err
	}
	r.giveBackAll(v.worker, nil)
	r.drop(v, fault.New(fault.Conflict, "the worker left"))
	return nil
}
