package sandbox

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aurea-dev/aurea/internal/fault"
)

// State is where a sandbox stands.
type State string

// The states. Paused is a flag of RUNNING, not a state.
const (
	StatePending    State = "PENDING"
	StateCreating   State = "CREATING"
	StateRunning    State = "RUNNING"
	StateCompleting State = "COMPLETING"
	StateCompleted  State = "COMPLETED"
	StateFailed     State = "FAILED"
)

// States lists every state in the order of a sandbox's life.
func States() []State {
	return []State{StatePending, StateCreating, StateRunning, StateCompleting, StateCompleted, StateFailed}
}

// moves is the machine: from each state, the states that can follow. Cancel,
// deletion and expiry reach COMPLETED from any open state; the kill switch, the
// reaper and a loss reach FAILED from any open state.
func moves(from State) []State {
	switch from {
	case StatePending:
		return []State{StateCreating, StateCompleted, StateFailed}
	case StateCreating:
		return []State{StateRunning, StateCompleted, StateFailed}
	case StateRunning:
		return []State{StateCompleting, StateCompleted, StateFailed}
	case StateCompleting:
		return []State{StateCompleted, StateFailed}
	case StateCompleted, StateFailed:
		return nil
	}
	return nil
}

// Valid reports whether s is a state at all.
func (s State) Valid() bool { return slices.Contains(States(), s) }

// Ended reports whether nothing more happens to a sandbox in this state.
func (s State) Ended() bool { return s == StateCompleted || s == StateFailed }

// Can reports whether a sandbox in state s may move to next.
func (s State) Can(next State) bool { return slices.Contains(moves(s), next) }

// To returns next, or s and a fault of kind Conflict when s cannot become next.
// Every holder of a sandbox's state moves it through here.
func (s State) To(next State) (State, error) {
	if !s.Can(next) {
		return s, fault.New(fault.Conflict, "the sandbox is %s and cannot become %s", s, next).
			WithCode("illegal_move")
	}
	return next, nil
}

// Demand returns a fault of kind Conflict unless s is one of the given states.
// what names the operation.
func (s State) Demand(what string, states ...State) error {
	if slices.Contains(states, s) {
		return nil
	}
	words := make([]string, len(states))
	for i, state := range states {
		words[i] = string(state)
	}
	return fault.New(fault.Conflict, "cannot %s: the sandbox is %s, not %s", what, s, strings.Join(words, " or ")).
		WithCode("wrong_state")
}

// Diagram draws the machine as mermaid, for the docs.
func Diagram() string {
	var b strings.Builder
	fmt.Fprintf(&b, "stateDiagram-v2\n    [*] --> %s\n", StatePending)
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
