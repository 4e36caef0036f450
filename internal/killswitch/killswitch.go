// Package killswitch is the noun of the switch that stops everything, or a part
// of it: at which level, how far, why, and what it means for one sandbox. It
// decides; the manager keeps it and tells the workers, who pull it.
package killswitch

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Code is the code of the fault with which new work is refused.
const Code = "KILL_SWITCH"

// Level is what becomes of what a switch covers.
type Level string

// The levels.
const (
	Freeze Level = "freeze" // it stands still, and can go on
	Kill   Level = "kill"   // it ends
)

// Scope is how far a switch reaches.
type Scope string

// The scopes.
const (
	All     Scope = "all"
	Project Scope = "project" // the jobs of a project, and sandboxes with the label project
	Label   Scope = "label"   // sandboxes with a label
	Subtree Scope = "subtree" // a sandbox, or a member of the fleet, with all below it
)

// ProjectLabel is the label by which a sandbox belongs to a project.
const ProjectLabel = "project"

// WorkerLabel is the label by which a sandbox is that of a member of the fleet: one
// that is being made is known by it before anybody knows its id.
const WorkerLabel = "aurea.fleet.worker"

// Bounds of a switch.
const (
	MaxReason  = 1000
	MaxMembers = 4096
	MaxEngaged = 256
	maxWord    = 320
)

// Switch is one that was engaged.
type Switch struct {
	ID    string `json:"id"`
	Level Level  `json:"level"`
	Scope Scope  `json:"scope"`
	// Project, Label (as key=value) or Root says what the scope is about.
	Project int64  `json:"project_id,omitempty"`
	Label   string `json:"label,omitempty"`
	Root    string `json:"root,omitempty"`
	// Members are the sandboxes of a subtree, as far as they are known.
	Members []string  `json:"members,omitempty"`
	Reason  string    `json:"reason"`
	By      string    `json:"by"`
	At      time.Time `json:"at"`
	// Director says that who engaged it may re-arm, so that nobody of a lower
	// rank undoes it.
	Director bool `json:"director,omitempty"`
	// Worker is where it was tripped without a manager; "" is through one.
	Worker string `json:"worker,omitempty"`
}

// Check refuses what is no switch.
func (s *Switch) Check() error {
	switch s.Level {
	case Freeze, Kill:
	default:
		return fault.Field("level", "%q is neither freeze nor kill", clip(string(s.Level)))
	}
	if strings.TrimSpace(s.Reason) == "" {
		return fault.Field("reason", "is missing; say why, for the record")
	}
	if len(s.Reason) > MaxReason || !utf8.ValidString(s.Reason) {
		return fault.Field("reason", "is longer than %d bytes, or no text", MaxReason)
	}
	for name, word := range map[string]string{"id": s.ID, "label": s.Label, "root": s.Root, "by": s.By, "worker": s.Worker} {
		if len(word) > maxWord || !utf8.ValidString(word) {
			return fault.Field(name, "is longer than %d bytes, or no text", maxWord)
		}
	}
	if len(s.Members) > MaxMembers {
		return fault.Field("members", "are more than %d", MaxMembers)
	}
	return s.checkScope()
}

func (s *Switch) checkScope() error {
	wants := map[Scope]bool{Project: s.Project != 0, Label: s.Label != "", Subtree: s.Root != ""}
	names := map[Scope]string{Project: "project_id", Label: "label", Subtree: "root"}
	if s.Scope != All && names[s.Scope] == "" {
		return fault.Field("scope", "%q is none of all, project, label, subtree", clip(string(s.Scope)))
	}
	for scope, given := range wants {
		switch {
		case scope == s.Scope && !given:
			return fault.Field(names[scope], "is missing; the scope is %s", scope)
		case scope != s.Scope && given:
			return fault.Field(names[scope], "does not go with the scope %s", s.Scope)
		}
	}
	if key, _, found := strings.Cut(s.Label, "="); s.Scope == Label && (!found || key == "") {
		return fault.Field("label", "%q is not of the form key=value", clip(s.Label))
	}
	return nil
}

// Covers reports whether the switch is about the subject.
func (s *Switch) Covers(x sandbox.Subject) bool {
	switch s.Scope {
	case All:
		return true
	case Project:
		return x.Project == s.Project || x.Labels[ProjectLabel] == strconv.FormatInt(s.Project, 10)
	case Label:
		key, value, _ := strings.Cut(s.Label, "=")
		got, there := x.Labels[key]
		return there && got == value
	case Subtree:
		return slices.ContainsFunc([]string{x.ID, x.Parent, x.Labels[WorkerLabel]}, func(id string) bool {
			return id != "" && (id == s.Root || slices.Contains(s.Members, id))
		})
	}
	return true // a scope that this version does not know stops, rather than not
}

// NeedsDirector reports whether only one who may re-arm releases it: every kill,
// what such a one has frozen, and what somebody at a machine has, whose rank
// nobody knows.
func (s *Switch) NeedsDirector() bool { return s.Level != Freeze || s.Director || s.Worker != "" }

// State is what is engaged. Seq counts the changes: of two states the one with
// the higher number is newer.
type State struct {
	Seq     int64    `json:"seq"`
	Engaged []Switch `json:"engaged,omitempty"`
}

// Check refuses what cannot be a state.
func (s State) Check() error {
	if s.Seq < 0 || len(s.Engaged) > MaxEngaged {
		return fault.Field("engaged", "are more than %d switches, or their number is negative", MaxEngaged)
	}
	for i := range s.Engaged {
		if err := s.Engaged[i].Check(); err != nil {
			return err
		}
	}
	return nil
}

// Over returns the switch that holds for a subject: one that kills before one
// that freezes, the older before the newer. nil is none.
func (s State) Over(x sandbox.Subject) *Switch {
	var holds *Switch
	for i := range s.Engaged {
		one := &s.Engaged[i]
		if one.Covers(x) && (holds == nil || holds.Level == Freeze && one.Level == Kill) {
			holds = one
		}
	}
	return holds
}

// Everything returns the switch that holds for all there is, or nil.
func (s State) Everything() *Switch {
	var holds *Switch
	for i := range s.Engaged {
		one := &s.Engaged[i]
		if one.Scope == All && (holds == nil || holds.Level == Freeze && one.Level == Kill) {
			holds = one
		}
	}
	return holds
}

// Rule is what a worker's sandboxes are held to.
func (s State) Rule() sandbox.Rule {
	stop := func(one *Switch) sandbox.Stop {
		if one == nil {
			return sandbox.Stop{}
		}
		return sandbox.Stop{Kill: one.Level == Kill, Freeze: one.Level == Freeze, Reason: one.Because()}
	}
	return sandbox.Rule{
		All: stop(s.Everything()),
		Of:  func(x sandbox.Subject) sandbox.Stop { return stop(s.Over(x)) },
	}
}

// Because is what the record of what was stopped says.
func (s *Switch) Because() string {
	if s.Worker != "" {
		return "the kill switch, tripped at worker " + s.Worker + ": " + s.Reason
	}
	return "the kill switch: " + s.Reason
}

// Refuse is the fault with which new work for the subject is refused, or nil.
func (s State) Refuse(x sandbox.Subject) error {
	one := s.Over(x)
	if one == nil {
		return nil
	}
	lets := "A director re-arms it"
	if one.Level == Freeze {
		lets = "It goes on when it is unfrozen"
	}
	return fault.New(fault.Unavailable, "The kill switch is engaged (%s, %s): %s. %s.", one.Level, one.Scope, one.Reason, lets).WithCode(Code)
}

// Report is what came of engaging or releasing a switch.
type Report struct {
	Switch Switch
	// Unpersisted says why it is not written down yet, although it holds; "" is
	// that it is.
	Unpersisted string
	Workers     []WorkerReport
}

// WorkerReport is what one worker did.
type WorkerReport struct {
	Worker string
	Done   Done
	Error  string // why the worker did not answer; it learns it with its next word
	Took   time.Duration
}

// Done is what a worker did to come to a state.
type Done struct {
	Killed  int `json:"killed"`
	Frozen  int `json:"frozen"`
	Resumed int `json:"resumed"`
	// Failed are those that could not be brought to it, Problem says why of one.
	Failed  int    `json:"failed,omitempty"`
	Problem string `json:"problem,omitempty"`
}

func clip(s string) string {
	const enough = 80
	return strings.ToValidUTF8(s[:min(len(s), enough)], "?")
}
