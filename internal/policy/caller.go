// Package policy says who is asking and what they may do.
//
// Every request has a Caller from the first line of a door to the row that it
// writes, so that roles are a matter of policy and never of plumbing. The
// package decides; it stores nothing and speaks no protocol.
package policy

import (
	"context"
	"slices"
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

// Caller is who asks. ID is the owner that is written into rows: "local", or
// the id of the key.
type Caller struct {
	Kind Kind
	ID   string
}

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

// May reports whether the caller may take the action.
func (c Caller) May(a Action) bool { return slices.Contains(allowed(c.Kind), a) }

// SeesAll reports whether the caller sees rows of every owner. The others see
// only their own.
func (c Caller) SeesAll() bool {
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
