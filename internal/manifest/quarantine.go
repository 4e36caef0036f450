package manifest

import (
	"slices"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Severity is how bad it is.
type Severity string

// The severities.
const (
	Low      Severity = "low"
	Medium   Severity = "medium"
	High     Severity = "high"
	Critical Severity = "critical"
)

// Severities lists them, the least first.
func Severities() []Severity { return []Severity{Low, Medium, High, Critical} }

// QuarantineStatus is where a quarantine stands.
type QuarantineStatus string

// What becomes of a quarantine.
const (
	QuarantineOn QuarantineStatus = "quarantined"
	Released     QuarantineStatus = "released"
	Terminated   QuarantineStatus = "terminated"
)

// Restrictions are what a worker under quarantine may not do. Those that are
// written down are in force.
type Restrictions struct {
	ReplicationBlocked  bool `json:"replication_blocked"`
	NetworkRestricted   bool `json:"network_restricted"`
	TaskExecutionPaused bool `json:"task_execution_paused"`
}

// Note is what somebody has to say about a quarantine.
type Note struct {
	At   time.Time `json:"at"`
	By   string    `json:"by"`
	Text string    `json:"text"`
}

// Bundle is what was put aside of a worker before anything was ended: blobs, by
// digest.
type Bundle struct {
	At       time.Time `json:"at"`
	Record   string    `json:"record_sha256"`          // the record of the worker, as JSON
	Files    string    `json:"files_sha256,omitempty"` // what its files differ from the image in
	Snapshot string    `json:"snapshot_id,omitempty"`  // that holds them
	Missing  string    `json:"missing,omitempty"`      // why there are no files
}

// Quarantine is a worker being kept from doing more, until somebody decides.
type Quarantine struct {
	Reason       string           `json:"reason"`
	Source       string           `json:"source"` // who or what asked for it
	Severity     Severity         `json:"severity"`
	At           time.Time        `json:"quarantined_at"`
	Status       QuarantineStatus `json:"status"`
	ResolvedAt   *time.Time       `json:"resolved_at"`
	Resolution   string           `json:"resolution,omitempty"`
	Notes        []Note           `json:"notes"`
	Restrictions Restrictions     `json:"restrictions"`
	Bundle       *Bundle          `json:"bundle,omitempty"`
}

// MaxNotes bounds the notes of a quarantine.
const MaxNotes = 100

// CheckSeverity refuses what is no severity, and returns medium for "".
func CheckSeverity(text string) (Severity, error) {
	if text == "" {
		return Medium, nil
	}
	if s := Severity(text); slices.Contains(Severities(), s) {
		return s, nil
	}
	return "", fault.Field("severity", "must be low, medium, high or critical")
}
