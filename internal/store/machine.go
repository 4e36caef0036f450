package store

import (
	"context"
	"time"

	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/machine"
)

// Machines keeps machines and their apps.
type Machines interface {
	// AddApp stores an app; added is false where the owner has one of the name.
	AddApp(ctx context.Context, a machine.App) (added bool, err error)
	// App returns an app of an owner with the number of its open machines, or
	// NotFound; owner "" is anybody's, the oldest first.
	App(ctx context.Context, owner, name string) (machine.App, error)
	// Apps lists apps by name; owner "" is everybody's.
	Apps(ctx context.Context, owner string) ([]machine.App, error)
	// DropApp removes an app; it need not be there.
	DropApp(ctx context.Context, owner, name string) error
	// Add stores a new machine. An id that exists is a Conflict; a name that an
	// open machine of the app has is one with code CodeNameTaken.
	Add(ctx context.Context, m *machine.Machine) error
	// Get returns one, or NotFound.
	Get(ctx context.Context, id string) (machine.Machine, error)
	// Put stores one that exists: everything but ID, App, Owner, Name, CreatedAt.
	Put(ctx context.Context, m *machine.Machine) error
	// List returns machines, oldest first.
	List(ctx context.Context, f MachineFilter) ([]machine.Machine, error)
	// Passing returns machines that are on their way to another state, or wait to
	// be started, and were last changed before.
	Passing(ctx context.Context, before time.Time, limit int) ([]machine.Machine, error)
	// Fallen returns machines that are started or suspended and whose sandbox, or
	// one of whose processes, has ended.
	Fallen(ctx context.Context, limit int) ([]machine.Machine, error)
	// Forget removes machines that were destroyed before, and returns how many.
	Forget(ctx context.Context, before time.Time, limit int) (int64, error)
}

// MachineFilter chooses machines. Zero fields choose all.
type MachineFilter struct {
	Owner, App string
	Region     string
	State      machine.State
	Destroyed  bool // those that are destroyed too
	Limit      int  // 0 is 1000
}

// Sessions keeps sessions.
type Sessions interface {
	// Add stores a new one. An id that the owner has is a Conflict with code
	// CodeSessionExists.
	Add(ctx context.Context, s *live.Session) error
	// Get returns one of an owner, or NotFound; owner "" is anybody's, the newest
	// first.
	Get(ctx context.Context, owner, id string) (live.Session, error)
	// Put stores one that exists: everything but ID, Owner, Project, CreatedAt.
	Put(ctx context.Context, s *live.Session) error
	// List returns a page, newest first.
	List(ctx context.Context, f SessionFilter) ([]live.Session, error)
	// Due returns open ones whose time was over before now, the longest first.
	Due(ctx context.Context, now time.Time, limit int) ([]live.Session, error)
	// Forget removes sessions that ended before, and returns how many.
	Forget(ctx context.Context, before time.Time, limit int) (int64, error)
}

// CodeSessionExists is the code of the Conflict of an id that is in use.
const CodeSessionExists = "session_exists"

// SessionFilter chooses sessions. Zero fields choose all.
type SessionFilter struct {
	ID             string // owners may have the same one
	Owner, Project string
	State          live.SessionState
	Open           bool      // only those that have not ended
	Before         time.Time // only those made before
	Limit          int       // 0 is 100
}
