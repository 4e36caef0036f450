package job

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aurea-dev/aurea/internal/fault"
)

// State is where a job stands.
type State string

// The states.
const (
	Queued     State = "QUEUED"
	Assigned   State = "ASSIGNED"
	InProgress State = "IN_PROGRESS"
	Submitted  State = "SUBMITTED"
	Validating State = "VALIDATING"
	Completed  State = "COMPLETED"
	Failed     State = "FAILED"
	Escalated  State = "ESCALATED"
)

// States lists every state in the order of a job's life.
func States() []State {
	return []State{Queued, Assigned, InProgress, Submitted, Validating, Completed, Failed, Escalated}
}

// moves is the machine: from each state, the states that can follow. A root
// job stands IN_PROGRESS from its creation until its children have ended.
func moves(from State) []State {
	switch from {
	case Queued:
		return []State{Assigned, Failed}
	case Assigned:
		return []State{InProgress, Queued, Assigned, Failed}
	case InProgress:
		return []State{Submitted, Completed, Failed, Queued}
	case Submitted:
		return []State{Validating, Failed}
	case Validating:
		return []State{Completed, Escalated, Submitted, Failed}
	case Failed:
		return []State{Queued, InProgress} // replay of a task; reopening of a root
	case Escalated:
		return []State{Queued}
	case Completed:
		return nil
	}
	return nil
}

// Valid reports whether s is a state at all.
func (s State) Valid() bool { return slices.Contains(States(), s) }

// Ended reports whether nothing more happens to a job in this state by itself.
func (s State) Ended() bool { return s == Completed || s == Failed || s == Escalated }

// Can reports whether a job in state s may move to next.
func (s State) Can(next State) bool { return slices.Contains(moves(s), next) }

// To moves the job to next, or returns a fault of kind Conflict and leaves it.
// It is the only way in which a job's state changes.
func (j *Job) To(next State) error {
	if !j.State.Can(next) {
		return fault.New(fault.Conflict, "job %s is %s and cannot become %s", j.ID, j.State, next).
			WithCode("illegal_move")
	}
	j.State = next
	return nil
}

// Demand returns a fault of kind Conflict unless the job is in one of the
// given states. what names the operation.
func (j *Job) Demand(what string, states ...State) error {
	if slices.Contains(states, j.State) {
		return nil
	}
	words := make([]string, len(states))
	for i, s := range states {
		words[i] = string(s)
	}
	return fault.New(fault.Conflict, "cannot %s job %s: it is %s, not %s", what, j.ID, j.State, strings.Join(words, " or ")).
		WithCode("wrong_state")
}

// Diagram draws the machine as mermaid, for the docs.
func Diagram() string {
	var b strings.Builder
	b.WriteString("stateDiagram-v2\n    [*] --> QUEUED\n")
	for _, from := range States() {
		for _, to := range moves(from) {
			fmt.Fprintf(&b, "    %s --> %s\n", from, to)
		}
		if from.Ended() {
			fmt.Fprintf(&b, "    %s --> [*]\n", from)
		}
	}
	return b.String()
}
