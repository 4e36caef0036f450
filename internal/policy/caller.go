// Package policy says who is asking and what they may do.
//
// Every request has a Caller from the first line of a door to the row that it
// writes, so that roles are a matter of policy and never of plumbing. The
// package decides; it stores nothing and speaks no protocol.
package policy

import (
	"cmp"
	"context"
	"slices"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Kind is the kind of a caller's key.
type Kind string

// The kinds of callers. Local is a caller on a loopback-bound manager that
// needs no key.
const (
	Local    Kind = "local"
	Admin    Kind = "admin"
	Director Kind = "director"
	Operator Kind = "operator"
	Auditor  Kind = "auditor"
	Viewer   Kind = "viewer"
	Bridge   Kind = "bridge"
	Worker   Kind = "worker"
	Sandbox  Kind = "sandbox"
)

// Kinds lists every kind that a key can have.
func Kinds() []Kind {
	return []Kind{Admin, Director, Operator, Auditor, Viewer, Bridge, Worker, Sandbox}
}

// Caller is who asks. ID is the owner that is written into rows: "local", the
// id of the key, or the owner that the key is narrowed to.
type Caller struct {
	Kind Kind
	ID   string
	// Key is the id of the key that was shown; "" where none is needed.
	Key string
	// Sandbox is the only sandbox that a caller of kind Sandbox is let near. ID
	// is then the sandbox's owner.
	Sandbox string
	// Scope narrows what the kind may; nil does not.
	Scope *Scope
}

// Scope narrows a key. What it leaves empty is not narrowed.
type Scope struct {
	Actions []Action // the only ones that it may take, of those of its kind
	Owner   string   // for whom it acts: whose rows it makes, and the only ones that it sees
	// Project is the only one in which it sees, changes and makes things.
	Project int64
}

// allows reports whether an action is within the scope. Who acts for one owner,
// or in one project, has no say in what is everybody's.
func (s *Scope) allows(a Action) bool {
	switch {
	case s == nil:
		return true
	case s.bounded() && a != Read && a != Submit && a != Control:
		return false
	}
	return len(s.Actions) == 0 || slices.Contains(s.Actions, a)
}

// bounded reports whether only a part of what there is can be seen.
func (s *Scope) bounded() bool { return s != nil && (s.Owner != "" || s.Project != 0) }

// Empty reports whether nothing is narrowed.
func (s *Scope) Empty() bool { return s == nil || len(s.Actions) == 0 && !s.bounded() }

// LocalCaller is the caller of a manager that is bound to loopback and asks
// for no key.
func LocalCaller() Caller { return Caller{Kind: Local, ID: string(Local)} }

// System is the manager itself: its scheduler, its reaper.
func System() Caller { return Caller{Kind: Local, ID: "system"} }

// Action is what a route needs the caller to be allowed to do.
type Action string

// The actions. A route names exactly one.
const (
	Read    Action = "read"    // see jobs, events, evidence
	Submit  Action = "submit"  // make PRDs and jobs
	Control Action = "control" // cancel, retry, assign
	Work    Action = "work"    // claim, heartbeat, complete, stream, validate
	Host    Action = "host"    // the worker's wire: register, lease, report
	Manage  Action = "manage"  // keys, contracts and settings
	Audit   Action = "audit"   // read and verify the audit
	Stop    Action = "stop"    // engage the kill switch, pause the organisation
	Rearm   Action = "rearm"   // let go on what was stopped
	Purge   Action = "purge"   // end what the audit no longer has to keep
	Govern  Action = "govern"  // issue manifests, register and steer fleet workers
)

// allowed is the whole policy, as one table.
func allowed(kind Kind) []Action {
	switch kind {
	case Local, Admin:
		return []Action{Read, Submit, Control, Work, Host, Manage, Audit, Stop, Rearm, Purge, Govern}
	case Director:
		return []Action{Read, Submit, Control, Work, Manage, Audit, Stop, Rearm, Purge, Govern}
	case Operator:
		return []Action{Read, Submit, Control, Work, Stop, Govern}
	case Auditor:
		return []Action{Read, Audit}
	case Viewer:
		return []Action{Read}
	case Bridge:
		return []Action{Read, Submit}
	case Worker:
		return []Action{Read, Work, Host}
	case Sandbox:
		return nil
	}
	return nil
}

// Actions lists what a key of a kind may do.
func Actions(kind Kind) []Action { return allowed(kind) }

// May reports whether the caller may take the action.
func (c Caller) May(a Action) bool {
	if !c.Scope.allows(a) {
		return false
	}
	return slices.Contains(allowed(c.Kind), a)
}

// Commands reports whether the caller's kind may let go on what was stopped,
// however its key is narrowed: what it stops is not undone by a lower rank. The
// manager itself has no rank.
func (c Caller) Commands() bool {
	return c.ID != System().ID && slices.Contains(allowed(c.Kind), Rearm)
}

// Actor is who is said to have done something: the key, where there is one.
func (c Caller) Actor() string { return cmp.Or(c.Key, c.ID) }

// SeesAll reports whether the caller sees every row there is. What the others see
// is bounded: see Sees.
func (c Caller) SeesAll() bool { return !c.Scope.bounded() && c.seesOwners() }

// seesOwners reports whether the caller sees rows of every owner, where its
// project does not speak against it.
func (c Caller) seesOwners() bool {
	if c.Scope != nil && c.Scope.Owner != "" {
		return false
	}
	switch c.Kind {
	case Local, Admin, Director, Operator, Auditor, Worker:
		return true
	case Viewer, Bridge, Sandbox:
		return false
	}
	return false
}

type callerKey struct{}

// With returns a context that carries the caller.
func With(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// From returns the caller of a context; ok is false when there is none, which
// a door must treat as unauthenticated.
func From(ctx context.Context) (c Caller, ok bool) {
	c, ok = ctx.Value(callerKey{}).(Caller)
	return c, ok
}

var errNobody = fault.New(fault.Unauthenticated, "nobody is known to ask")

// Asking returns who asks in a context; a request of nobody gets nowhere.
func Asking(ctx context.Context) (Caller, error) {
	c, ok := From(ctx)
	if !ok {
		return Caller{}, errNobody
	}
	return c, nil
}

// ActorOf is who is said to have done something in a context: whose it is, and
// the manager itself where nobody asked.
func ActorOf(ctx context.Context) string {
	if c, ok := From(ctx); ok {
		return c.ID
	}
	return System().ID
}

// AsOwner is a context in which an owner asks for what is theirs, whoever had it
// done. It is bounded by nothing else: whether that one may was seen to before.
func AsOwner(ctx context.Context, owner string) context.Context {
	return With(ctx, Caller{Kind: Local, ID: owner})
}
