// Package event is the noun of the record: a typed, versioned, stored fact
// with a cursor. Everything that is streamed is read from the stored events,
// so a slow reader falls behind its cursor and loses nothing.
//
// Types are only ever added; a stored event stays readable for ever.
package event

import (
	"encoding/json"
	"slices"
	"time"
)

// Type names what happened, as "noun.verb".
type Type string

// The types of this version. Never edit one, only add.
const (
	JobCreated    Type = "job.created"
	JobAssigned   Type = "job.assigned"
	JobClaimed    Type = "job.claimed"
	JobStarted    Type = "job.started"
	JobStream     Type = "job.stream"
	JobHeartbeat  Type = "job.heartbeat"
	JobSubmitted  Type = "job.submitted"
	JobValidating Type = "job.validating"
	JobValidated  Type = "job.validated"
	JobCompleted  Type = "job.completed"
	JobFailed     Type = "job.failed"
	JobEscalated  Type = "job.escalated"
	JobRequeued   Type = "job.requeued"
	JobRetried    Type = "job.retried"
	JobRefused    Type = "job.refused" // a move or report that was not accepted

	SandboxCreated   Type = "sandbox.created"
	SandboxDestroyed Type = "sandbox.destroyed"
	SandboxAdopted   Type = "sandbox.adopted" // a restarted worker goes on with it
	SandboxLost      Type = "sandbox.lost"    // a restarted worker could not
	// Of sandboxes that are kept, one for each move.
	SandboxPending     Type = "sandbox.pending"
	SandboxCreating    Type = "sandbox.creating"
	SandboxRunning     Type = "sandbox.running"
	SandboxCompleting  Type = "sandbox.completing"
	SandboxCompleted   Type = "sandbox.completed"
	SandboxFailed      Type = "sandbox.failed"
	SandboxPaused      Type = "sandbox.paused"
	SandboxResumed     Type = "sandbox.resumed"
	SandboxUpdated     Type = "sandbox.updated"
	SandboxSnapshotted Type = "sandbox.snapshotted"
	SandboxRestored    Type = "sandbox.restored"

	ExecCreated    Type = "exec.created"
	ExecStarted    Type = "exec.started"
	ExecEnded      Type = "exec.ended"
	SnapshotStored Type = "snapshot.stored"

	AppCreated     Type = "app.created"
	AppDeleted     Type = "app.deleted"
	MachineCreated Type = "machine.created"
	MachineMoved   Type = "machine.moved" // from one state to another
	MachineUpdated Type = "machine.updated"
	MachineLeased  Type = "machine.leased" // or given back

	SessionCreated   Type = "session.created"
	SessionMoved     Type = "session.state_changed"
	SessionContinued Type = "session.continued"
	SessionSandbox   Type = "session.sandbox" // it got one, or has none any more

	// Of workers of the fleet.
	FleetIssued      Type = "fleet.issued"
	FleetRegistered  Type = "fleet.registered"
	FleetLaunched    Type = "fleet.launched"
	FleetEnding      Type = "fleet.ending"
	FleetEnded       Type = "fleet.ended"
	FleetQuarantined Type = "fleet.quarantined"
	FleetReleased    Type = "fleet.released"
	FleetContract    Type = "fleet.contract" // made or changed
	FleetKey         Type = "fleet.key"      // made or revoked
	FleetSuspended   Type = "fleet.suspended"
	FleetRevived     Type = "fleet.revived"
	FleetPreserved   Type = "fleet.preserved" // what there is of it was put aside
	FleetTrigger     Type = "fleet.trigger"   // made, changed or removed
	FleetFired       Type = "fleet.fired"     // a trigger fired, or what it began is over

	RunCreated    Type = "run.created" // of one that waits; who waits for one on a connection sees its start first
	RunStarted    Type = "run.started"
	RunRequeued   Type = "run.requeued"   // its worker was lost
	RunCancelling Type = "run.cancelling" // somebody wants it stopped
	RunEnded      Type = "run.ended"

	WorkerRegistered Type = "worker.registered"
	WorkerLost       Type = "worker.lost"
	WorkerLeft       Type = "worker.left"
	WorkerRefused    Type = "worker.refused"

	SwitchEngaged  Type = "killswitch.engaged"
	SwitchReleased Type = "killswitch.released"

	ManagerStarted Type = "manager.started"
	KeyCreated     Type = "key.created"
	KeyRevoked     Type = "key.revoked"

	OrganisationPaused  Type = "organisation.paused"
	OrganisationResumed Type = "organisation.resumed"
)

// Event is one stored fact. Seq is its cursor: it follows commit order, so a
// reader at 6 has seen 5.
type Event struct {
	Seq       int64           `json:"seq"`
	Type      Type            `json:"type"`
	Version   int             `json:"version"`
	Entity    string          `json:"entity_type"` // "job", "run", "worker", "manager"
	EntityID  string          `json:"entity_id"`
	JobID     string          `json:"job_id,omitempty"`
	RootID    string          `json:"root_job_id,omitempty"`
	ProjectID int64           `json:"project_id,omitempty"`
	Actor     string          `json:"actor"`
	Owner     string          `json:"-"`
	At        time.Time       `json:"ts"`
	Data      json.RawMessage `json:"details,omitempty"`
}

// Filter chooses events. The zero Filter matches all.
type Filter struct {
	After     int64 // only events with a larger Seq
	Types     []Type
	JobID     string
	RootID    string
	ProjectID int64
	EntityIDs []string
	Entities  []string
	Owner     string // only this owner's rows; "" is every owner
}

// Matches reports whether the filter lets e through. Stores must agree with it.
func (f Filter) Matches(e Event) bool {
	return e.Seq > f.After &&
		(len(f.Types) == 0 || slices.Contains(f.Types, e.Type)) &&
		(f.JobID == "" || e.JobID == f.JobID) &&
		(f.RootID == "" || e.RootID == f.RootID) &&
		(f.ProjectID == 0 || e.ProjectID == f.ProjectID) &&
		(len(f.EntityIDs) == 0 || slices.Contains(f.EntityIDs, e.EntityID)) &&
		(len(f.Entities) == 0 || slices.Contains(f.Entities, e.Entity)) &&
		(f.Owner == "" || e.Owner == f.Owner)
}
