package live

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aurea-dev/aurea/internal/fault"
)

// SessionState is where a session stands.
type SessionState string

// The states of a session.
const (
	SessionPending   SessionState = "pending" // nothing has run in it yet
	SessionActive    SessionState = "active"
	SessionPaused    SessionState = "paused"
	SessionCompleted SessionState = "completed"
	SessionFailed    SessionState = "failed"
	SessionExpired   SessionState = "expired"
)

// SessionStates lists every state in the order of a session's life.
func SessionStates() []SessionState {
	return []SessionState{SessionPending, SessionActive, SessionPaused, SessionCompleted, SessionFailed, SessionExpired}
}

// sessionMoves is the session's machine: from each state, the states that can
// follow. A stop completes a session wherever it stands.
func sessionMoves(from SessionState) []SessionState {
	switch from {
	case SessionPending:
		return []SessionState{SessionActive, SessionCompleted, SessionFailed, SessionExpired}
	case SessionActive:
		return []SessionState{SessionPaused, SessionCompleted, SessionFailed, SessionExpired}
	case SessionPaused:
		return []SessionState{SessionActive, SessionCompleted, SessionFailed, SessionExpired}
	case SessionCompleted, SessionFailed, SessionExpired:
		return nil
	}
	return nil
}

// Valid reports whether s is a state at all.
func (s SessionState) Valid() bool { return slices.Contains(SessionStates(), s) }

// Ended reports whether nothing more happens to a session in this state.
func (s SessionState) Ended() bool { return s.Valid() && len(sessionMoves(s)) == 0 }

// To returns next, or s and a Conflict when s cannot become next.
func (s SessionState) To(next SessionState) (SessionState, error) {
	if !slices.Contains(sessionMoves(s), next) {
		return s, fault.New(fault.Conflict, "the session is %s and cannot become %s", s, next).WithCode("illegal_move")
	}
	return next, nil
}

// SessionDiagram draws the machine as mermaid, for the docs.
func SessionDiagram() string {
	var b strings.Builder
	fmt.Fprintf(&b, "stateDiagram-v2\n    [*] --> %s\n", SessionPending)
	for _, from := range SessionStates() {
		for _, to := range sessionMoves(from) {
			fmt.Fprintf(&b, "    %s --> %s\n", from, to)
		}
		if from.Ended() {
			fmt.Fprintf(&b, "    %s --> [*]\n", from)
		}
	}
	return b.String()
}

// Session is a conversation that has a sandbox of its own, made when it is first
// needed and kept until the session ends.
type Session struct {
	ID      string
	Owner   string
	Project string
	State   SessionState
	Reason  string
	// Sandbox is the one that it has; "" while it has none.
	Sandbox string
	// Prompt is what was asked last, Job the one that it became.
	Prompt string
	Job    string
	Spec   Spec // of its sandbox

	CreatedAt time.Time
	ActiveAt  time.Time // when it was last of use
	// ExpiresAt is when its time is over, by age or by idleness.
	ExpiresAt time.Time
	EndedAt   time.Time
}

// SessionRequest is what a session is asked to be.
type SessionRequest struct {
	// ID is the caller's own name for it; "" makes one. One that exists and is
	// open is gone on with.
	ID      string
	Project string
	Prompt  string // "" is none: the sandbox alone is wanted
	Spec    Spec
}

// Bounds of a prompt, as the origin of sessions has them.
const (
	MinPrompt = 10
	MaxPrompt = 5000
)

// CheckPrompt refuses a prompt that is too short or too long.
func CheckPrompt(prompt string) error {
	if n := utf8.RuneCountInString(prompt); n < MinPrompt || n > MaxPrompt {
		return fault.Field("prompt", "has %d characters; it must have from %d to %d", n, MinPrompt, MaxPrompt)
	}
	return nil
}
