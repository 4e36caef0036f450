package trigger

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/manifest"
)

// Outcome is what came of a firing; "" is that it is under way.
type Outcome string

// The outcomes.
const (
	Killed          Outcome = "killed"
	Quarantined     Outcome = "quarantined"
	Suspended       Outcome = "suspended"
	CooldownBlocked Outcome = "cooldown_blocked"
	AlreadyDead     Outcome = "already_dead"
	Failed          Outcome = "failed"
)

// Outcomes lists them.
func Outcomes() []Outcome {
	return []Outcome{Killed, Quarantined, Suspended, CooldownBlocked, AlreadyDead, Failed}
}

// Firing is the record of a trigger that fired at a worker, with all that was
// said then: the trigger may be another one later, or gone.
type Firing struct {
	ID        string            `json:"id"` // in order of time
	Trigger   string            `json:"trigger"`
	Kind      Kind              `json:"kind"`
	Label     string            `json:"label,omitempty"`
	Severity  manifest.Severity `json:"severity"`
	Worker    string            `json:"worker"`
	Owner     string            `json:"owner"` // of the worker
	Value     float64           `json:"value"`
	Threshold float64           `json:"threshold"`
	Lasted    time.Duration     `json:"lasted_ns"` // how long it was in breach
	Plan      Plan              `json:"plan"`
	By        string            `json:"by"`               // who fired it
	Reason    string            `json:"reason,omitempty"` // that they gave
	At        time.Time         `json:"at"`

	// PreKill is what the hook said that was asked first; "" is that it was not.
	PreKill string `json:"pre_kill,omitempty"`
	// Preserved says that what there was of the worker was put aside, or that it
	// was tried.
	Preserved bool `json:"preserved,omitempty"`
	// AskedAt is when the work was asked to stop, Deadline when it must have.
	AskedAt   time.Time `json:"asked_at,omitzero"`
	Deadline  time.Time `json:"deadline,omitzero"`
	Escalated bool      `json:"escalated,omitempty"`
	Outcome   Outcome   `json:"outcome,omitempty"`
	Detail    string    `json:"detail,omitempty"` // what went wrong
	EndedAt   time.Time `json:"ended_at,omitzero"`
}

// Open reports whether it is under way.
func (f *Firing) Open() bool { return f.Outcome == "" }

// Because is why a worker ended, as its record says.
func (f *Firing) Because() string {
	what := ""
	switch f.Kind {
	case Manual:
	case CPU, Memory, Disk, Network, Anomaly, TimeLimit, Requests, Errors, Custom:
		what = fmt.Sprintf(" %s of %s", figure(f.Value), figure(f.Threshold))
		if f.Lasted > 0 {
			what += " for " + f.Lasted.Truncate(time.Second).String()
		}
	}
	text := fmt.Sprintf("%s %s%s", f.mark(), f.Kind, what)
	if f.Reason != "" {
		text += ": " + f.Reason
	}
	return text
}

// Did reports whether a worker that ended for a reason ended because of this
// firing, so that who goes on after a restart knows its own act.
func (f *Firing) Did(reason string) bool { return strings.HasPrefix(reason, f.mark()+" ") }

func (f *Firing) mark() string {
	const tail = 8 // of an id, whose front is the time, which others share
	return "trigger " + f.ID[max(0, len(f.ID)-tail):] + ":"
}

func figure(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

// Clip bounds a text that is kept, between characters.
func Clip(s string) string {
	if len(s) <= MaxText {
		return s
	}
	cut := MaxText
	for cut > 0 && s[cut]&0xC0 == 0x80 {
		cut--
	}
	return s[:cut]
}
