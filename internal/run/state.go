package run

import (
	"slices"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// State is how a run stands.
type State string

// The states. A run that came to a result is COMPLETED, whatever its verdict;
// FAILED is one of which there is none.
const (
	Queued    State = "QUEUED"
	Running   State = "RUNNING"
	Completed State = "COMPLETED"
	Failed    State = "FAILED"
	Cancelled State = "CANCELLED"
)

// States lists every state.
func States() []State { return []State{Queued, Running, Completed, Failed, Cancelled} }

// Valid reports whether it is one of the states.
func (s State) Valid() bool { return slices.Contains(States(), s) }

// Ended reports whether nothing follows.
func (s State) Ended() bool { return len(s.next()) == 0 }

// next is the whole table of moves.
func (s State) next() []State {
	switch s {
	case Queued:
		return []State{Running, Failed, Cancelled}
	case Running:
		return []State{Completed, Failed, Cancelled, Queued}
	case Completed, Failed, Cancelled:
		return nil
	}
	return nil
}

// MaxTries is how often a run is begun when the worker that did it was lost.
// Nothing leaves a sandbox, so doing it again harms nobody.
const MaxTries = 3

// Run is a run as it is kept. Its code and inputs are kept apart, and only as
// long as they may be needed.
type Run struct {
	ID       string // a UUIDv7, so that order by it is order of time
	Owner    string
	Project  int64 // that it belongs to; 0 is none
	State    State
	Language string
	// CodeSHA256 tells what code it was, once the code is gone.
	CodeSHA256 string
	Timeout    time.Duration
	// Sync says that somebody waits on a connection: the run ends with it.
	Sync bool
	// Manager has the run; Fence grows with each change of hands, and a write
	// under an older one is refused.
	Manager string
	Fence   int64
	Attempt int // how often it was begun
	Worker  string
	// Verdict is that of the result, "" where there is none.
	Verdict sandbox.Verdict
	// Reason says why it was cancelled or failed. Before the end it says that
	// somebody wants it cancelled.
	Reason    string
	Webhook   string
	Trace     string
	CreatedAt time.Time
	StartedAt time.Time // of the newest try
	EndedAt   time.Time
	// Result is there once it is COMPLETED, and may be after a cancel. Bytes
	// of artifacts are not in it.
	Result *Result
}

// To moves a run; an illegal move is a Conflict and changes nothing.
func (r *Run) To(next State) error {
	if !slices.Contains(r.State.next(), next) {
		return fault.New(fault.Conflict, "run %s is %s and cannot become %s", r.ID, r.State, next).WithCode("wrong_state")
	}
	r.State = next
	return nil
}

// Record is what is kept of a run that has ended, as evidence: who asked for
// what, and what it came to.
type Record struct {
	RunID      string    `json:"run_id"`
	Owner      string    `json:"owner"`
	Language   string    `json:"language"`
	CodeSHA256 string    `json:"code_sha256"`
	TimeoutNS  int64     `json:"timeout_ns"`
	Sync       bool      `json:"sync"`
	Attempt    int       `json:"attempt"`
	Worker     string    `json:"worker,omitempty"`
	State      State     `json:"state"`
	Reason     string    `json:"reason,omitempty"`
	CreatedAt  time.Time `json:"created_at"`
	StartedAt  time.Time `json:"started_at,omitzero"`
	EndedAt    time.Time `json:"ended_at"`
	Result     *Result   `json:"result,omitempty"`
}

// Record returns the record of a run that has ended.
func (r *Run) Record() Record {
	return Record{
		RunID: r.ID, Owner: r.Owner, Language: r.Language, CodeSHA256: r.CodeSHA256, TimeoutNS: int64(r.Timeout), Sync: r.Sync,
		Attempt: r.Attempt, Worker: r.Worker, State: r.State, Reason: r.Reason,
		CreatedAt: r.CreatedAt.UTC(), StartedAt: r.StartedAt.UTC(), EndedAt: r.EndedAt.UTC(), Result: r.Result,
	}
}
