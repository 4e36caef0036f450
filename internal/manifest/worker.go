package manifest

import (
	"slices"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
)

// State is where a worker of the fleet stands.
type State string

// The states. A worker counts against its contract from Launching to Ending.
const (
	Issued    State = "issued" // it has a paper and nothing else
	Launching State = "launching"
	Running   State = "running"
	Ending    State = "ending" // its sandbox is being ended
	Ended     State = "ended"
)

// States lists them in the order of a worker's life.
func States() []State { return []State{Issued, Launching, Running, Ending, Ended} }

// Valid reports whether s is a state at all.
func (s State) Valid() bool { return slices.Contains(States(), s) }

// Registered reports whether a worker in this state counts against its
// contract.
func (s State) Registered() bool { return s == Launching || s == Running || s == Ending }

func moves(from State) []State {
	switch from {
	case Issued:
		return []State{Launching, Ended}
	case Launching:
		return []State{Running, Ending, Ended}
	case Running:
		return []State{Ending, Ended}
	case Ending:
		return []State{Ended}
	case Ended:
		return nil
	}
	return nil
}

// To returns next, or s and a fault of kind Conflict when s cannot become next.
func (s State) To(next State) (State, error) {
	if !slices.Contains(moves(s), next) {
		return s, fault.New(fault.Conflict, "the worker is %s and cannot become %s", s, next).WithCode("illegal_move")
	}
	return next, nil
}

// Worker is a worker of the fleet as the manager keeps it, from its paper to
// its end.
type Worker struct {
	Manifest Manifest
	Terms    Terms
	State    State
	Reason   string // why it ended, or is ending
	Sandbox  string // "" until one is made

	RegisteredAt time.Time
	StartedAt    time.Time
	HeartbeatAt  time.Time
	SpawnedAt    time.Time // when it last got a child
	ExpiresAt    time.Time // of a running one; zero is never
	EndedAt      time.Time
	UpdatedAt    time.Time

	// SuspendedAt is since when it is frozen, until it is revived; zero is that it
	// is not. RevivedAt is when it was last let go on.
	SuspendedAt time.Time
	RevivedAt   time.Time

	// Quarantine is the one that it is under, or was last.
	Quarantine *Quarantine
	// Bundle is what was put aside of it before a trigger ended it.
	Bundle *Bundle
}

// Suspended reports whether it is frozen until it is revived.
func (w *Worker) Suspended() bool { return !w.SuspendedAt.IsZero() }

// Still reports whether its work stands still by the law, so that it can neither
// speak nor break a bound.
func (w *Worker) Still() bool {
	return w.Suspended() || w.Quarantined() && w.Quarantine.Restrictions.TaskExecutionPaused
}

// ID returns its id.
func (w *Worker) ID() string { return w.Manifest.WorkerID }

// DueAt is when its time is over: of a paper its use, of a worker its life.
func (w *Worker) DueAt() time.Time {
	switch w.State {
	case Issued:
		return w.Terms.Until
	case Launching, Running:
		return w.ExpiresAt
	case Ending, Ended:
	}
	return time.Time{}
}

// Quarantined reports whether it is under quarantine.
func (w *Worker) Quarantined() bool {
	return w.Quarantine != nil && w.Quarantine.Status == QuarantineOn
}

// Standing is how a worker is shown in a list: ACTIVE, QUARANTINED, SUSPENDED,
// EXPIRED, or its state in capitals.
func (w *Worker) Standing(now time.Time) string {
	switch {
	case w.State == Ended:
		return "ENDED"
	case w.State == Issued:
		return "ISSUED"
	case w.Quarantined():
		return "QUARANTINED"
	case w.Suspended():
		return "SUSPENDED"
	case !w.ExpiresAt.IsZero() && !w.ExpiresAt.After(now):
		return "EXPIRED"
	}
	return "ACTIVE"
}

// Container is the record of what was launched for a manifest.
type Container struct {
	Manifest  Manifest   `json:"manifest"`
	Resources Resources  `json:"resources"`
	Status    string     `json:"status"`
	StartedAt *time.Time `json:"started_at"`
	Reason    *string    `json:"reason"`
}

// The words of a Container's status beside those of State.
const (
	StatusRunning = string(Running)
	StatusKilled  = "killed"
)

// Container returns the record of a worker.
func (w *Worker) Container() Container {
	c := Container{Manifest: w.Manifest, Resources: w.Manifest.Resources, Status: string(w.State)}
	if w.State == Ended && !w.StartedAt.IsZero() {
		c.Status = StatusKilled
	}
	if at := w.StartedAt; !at.IsZero() {
		c.StartedAt = &at
	}
	if why := w.Reason; why != "" {
		c.Reason = &why
	}
	return c
}

// Enforcement is what came of holding a worker to its resources: a metric.
type Enforcement struct {
	Name   string            `json:"name"`
	Value  float64           `json:"value"`
	Labels map[string]string `json:"labels"`
	// Breach says what was exceeded, and so why it was ended; "" is nothing.
	Breach string `json:"breach,omitempty"`
}

// ResourceEnforced is the name of that metric.
const ResourceEnforced = "resource_enforced"
