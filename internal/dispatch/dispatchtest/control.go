package dispatchtest

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Control is the other side of a manager under test: what users, clocks and
// operators do to it, and what came of the workers' calls.
type Control interface {
	// Submit queues a job that any worker may take and returns its id.
	Submit(payload json.RawMessage) (jobID string)
	// Cancel ends a job for good, and tells the worker that holds it.
	Cancel(jobID string)
	// Expire makes the current lease of a job run out: the job goes back to
	// the queue.
	Expire(jobID string)
	// Restart forgets every session and ends every stream, as a restart of the
	// manager does. Jobs and leases stay.
	Restart()
	// Attending reports whether a command stream of the worker is open.
	Attending(workerID string) bool
	// Accepted returns the results of a job that were accepted, in order.
	Accepted(jobID string) []dispatch.Result
	// Events returns what workers reported of a job and was stored, in order.
	// Events that the manager makes itself are left out.
	Events(jobID string) []dispatch.Happening
	// Output returns what is kept of a stream under the job's newest lease.
	Output(jobID string, s sandbox.Stream) []byte
	// Refused counts the refusals about a job that were audited.
	Refused(jobID string) int
}

// Submit queues a job.
func (r *Reference) Submit(payload json.RawMessage) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := r.next("job")
	r.jobs[id] = &work{payload: slices.Clone(payload)}
	r.queue = append(r.queue, id)
	r.wake()
	return id
}

// Cancel ends a job and tells its worker. It returns when the worker was told.
func (r *Reference) Cancel(jobID string) {
	r.mu.Lock()
	w := r.jobs[jobID]
	was := dispatch.Held{JobID: jobID, Fence: w.fence}
	holder, leased := w.holder, w.leased
	w.leased, w.holder = false, ""
	w.fence++
	r.queue = slices.DeleteFunc(r.queue, func(id string) bool { return id == jobID })
	var rc dispatch.Receiver
	for _, v := range r.sessions {
		if leased && v.worker == holder && v.open != nil {
			rc = v.open.rc
		}
	}
	r.mu.Unlock()
	if rc == nil {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), 5*time.Second, fault.New(fault.Unavailable, "the worker did not answer"))
	defer cancel()
	_ = rc.Cancel(ctx, dispatch.Cancel{Held: was, Reason: "cancelled by its user"}) // it learns it with its next extension
}

// Expire makes a lease run out.
func (r *Reference) Expire(jobID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.jobs[jobID]; w.leased {
		r.giveBack(jobID)
	}
}

// Restart forgets the sessions.
func (r *Reference) Restart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range r.sessions {
		r.drop(v, fault.New(fault.Unavailable, "the manager is stopping"))
	}
}

// Attending reports whether a stream of the worker is open.
func (r *Reference) Attending(workerID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range r.sessions {
		if v.worker == workerID && v.open != nil {
			return true
		}
	}
	return false
}

// Accepted returns the results that were accepted.
func (r *Reference) Accepted(jobID string) []dispatch.Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.jobs[jobID].accepted)
}

// Events returns what workers reported.
func (r *Reference) Events(jobID string) []dispatch.Happening {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.jobs[jobID].events)
}

// Output returns what was kept of a stream.
func (r *Reference) Output(jobID string, s sandbox.Stream) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.jobs[jobID].output[s])
}

// Refused counts the refusals about a job.
func (r *Reference) Refused(jobID string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.jobs[jobID].refused
}

// Lost returns what workers said they lost of a job's sandboxes.
func (r *Reference) Lost(jobID string) []dispatch.Lost {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.jobs[jobID].lost)
}

// Receiver returns the worker's end of its command stream, or nil.
func (r *Reference) Receiver(workerID string) dispatch.Receiver {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range r.sessions {
		if v.worker == workerID && v.open != nil {
			return v.open.rc
		}
	}
	return nil
}

// Blob returns bytes that were put, or rode along.
func (r *Reference) Blob(sha256 string) ([]byte, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	data, ok := r.blobs[sha256]
	return data, ok
}
