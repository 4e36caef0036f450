// Package job is the noun of the queue: a PRD is a plan with tasks, each task
// becomes a job, a job is leased by a worker, done in a sandbox, and ends with
// evidence. The package holds the data, the state machine as one table, and
// the validation of what outsiders send. It stores and decides nothing else.
package job

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// Outcome says why an ended job ended, where the state alone does not.
type Outcome string

// The outcomes.
const (
	OutcomeOK               Outcome = "ok"
	OutcomeFailed           Outcome = "failed"            // its own fault, tries used up
	OutcomeCancelled        Outcome = "cancelled"         // on request
	OutcomeDependencyFailed Outcome = "dependency_failed" // a job it depends on did not complete
	OutcomeLost             Outcome = "lost"              // its workers vanished too often
	OutcomeKilled           Outcome = "killed"            // by the kill switch
	OutcomeRejected         Outcome = "rejected"          // validation did not pass
)

// Defaults and bounds of a task.
const (
	DefaultRole       = "Employee"
	ValidatorRole     = "Validator"
	DefaultTimeout    = 900 * time.Second
	MaxTimeout        = 24 * time.Hour
	DefaultMaxRetries = 3
	MaxMaxRetries     = 100
	// MaxLosses bounds how often a job is given out again because its worker
	// vanished. That spends no retry, since it is not the job's fault, but a
	// job that takes its worker down each time must end too.
	MaxLosses = 20
	// PassConfidence is the least confidence with which validation passes.
	PassConfidence = 0.7
)

// Job is one row of the queue. The root of a PRD is a job too: its RootID is
// its own ID, it is never leased, and it ends when its children have ended.
type Job struct {
	ID        string
	RootID    string
	Owner     string
	ProjectID int64
	SessionID string

	Key       string
	Title     string
	Role      string
	Type      string
	Payload   json.RawMessage
	Priority  int
	DependsOn []string // ids of jobs

	Timeout    time.Duration
	MaxRetries int
	Validate   bool

	State         State
	Outcome       Outcome
	Details       json.RawMessage // an object; what the worker said at the end
	AssignedModel string          // the worker or model it is bound to, or that holds it

	// Waiting counts the jobs it depends on that have not completed. Open
	// counts a root's children that have not ended.
	Waiting int
	Open    int

	Failures int // tries spent by its own fault
	Losses   int // leases lost with their worker
	Attempt  int // how often it was given out; names evidence of each try

	Worker     string // who holds the lease, or did
	Submitter  string // who submitted it for validation
	Fence      int64  // grows with each lease; an older number is refused
	LeaseUntil time.Time
	Reported   int64 // ordinal of the last report that was taken under this fence

	ReadyAt     time.Time // not given out before
	CreatedAt   time.Time
	StartedAt   time.Time
	CompletedAt time.Time
	UpdatedAt   time.Time
	Seq         int64 // FIFO order, given by the store

	Trace string // the place in a trace from which it was submitted, or ""
}

// IsRoot reports whether the job is the root of a PRD.
func (j *Job) IsRoot() bool { return j.ID == j.RootID }

// RetryCount is how often the job was given back to the queue.
func (j *Job) RetryCount() int { return j.Failures + j.Losses }

// NewID returns a new job id, a UUIDv7.
func NewID() string { return uuid.Must(uuid.NewV7()).String() }
