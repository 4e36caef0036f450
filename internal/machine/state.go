package machine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aurea-dev/aurea/internal/fault"
)

// State is where a machine stands.
type State string

// The states. Those that end in -ing pass by themselves.
const (
	Created    State = "created"
	Starting   State = "starting"
	Started    State = "started"
	Suspending State = "suspending"
	Suspended  State = "suspended"
	Stopping   State = "stopping"
	Stopped    State = "stopped"
	Replacing  State = "replacing"
	Destroying State = "destroying"
	Destroyed  State = "destroyed"
)

// States lists every state in the order of a machine's life.
func States() []State {
	return []State{Created, Starting, Started, Suspending, Suspended, Stopping, Stopped, Replacing, Destroying, Destroyed}
}

// moves is the machine's machine: from each state, the states that can follow.
func moves(from State) []State {
	switch from {
	case Created:
		return []State{Starting, Replacing, Destroying}
	case Starting:
		return []State{Started, Suspended, Stopped, Destroying}
	case Started:
		return []State{Suspending, Stopping, Stopped, Replacing, Destroying}
	case Suspending:
		return []State{Suspended, Started, Stopped, Destroying}
	case Suspended:
		return []State{Starting, Stopping, Stopped, Replacing, Destroying}
	case Stopping:
		return []State{Stopped, Destroying}
	case Stopped:
		return []State{Starting, Replacing, Destroying}
	case Replacing: // an update that is refused leads back
		return []State{Created, Starting, Started, Suspended, Stopped, Destroying}
	case Destroying:
		return []State{Destroyed}
	case Destroyed:
		return nil
	}
	return nil
}

// Valid reports whether s is a state at all.
func (s State) Valid() bool { return slices.Contains(States(), s) }

// Passing reports whether a machine in this state is on its way to another.
func (s State) Passing() bool {
	return slices.Contains([]State{Starting, Suspending, Stopping, Replacing, Destroying}, s)
}

// Can reports whether a machine in state s may move to next.
func (s State) Can(next State) bool { return slices.Contains(moves(s), next) }

// To returns next, or s and a Conflict when s cannot become next.
func (s State) To(next State) (State, error) {
	if !s.Can(next) {
		return s, fault.New(fault.Conflict, "the machine is %s and cannot become %s", s, next).WithCode("illegal_move")
	}
	return next, nil
}

// Demand returns a Conflict unless s is one of the given states. what names the
// operation.
func (s State) Demand(what string, states ...State) error {
	if slices.Contains(states, s) {
		return nil
	}
	return fault.New(fault.Conflict, "cannot %s: the machine is %s", what, s).WithCode("wrong_state")
}

// Diagram draws the machine as mermaid, for the docs.
func Diagram() string {
	var b strings.Builder
	fmt.Fprintf(&b, "stateDiagram-v2\n    [*] --> %s\n", Created)
	for _, from := range States() {
		for _, to := range moves(from) {
			fmt.Fprintf(&b, "    %s --> %s\n", from, to)
		}
	}
	fmt.Fprintf(&b, "    %s --> [*]\n", Destroyed)
	return b.String()
}
