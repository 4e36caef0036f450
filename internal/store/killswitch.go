package store

import (
	"context"
	"time"

	"github.com/aurea-dev/aurea/internal/killswitch"
)

// Switches keeps the kill switches that were ever engaged.
type Switches interface {
	// State returns what is engaged, oldest first, with the number of the newest
	// change.
	State(ctx context.Context) (killswitch.State, error)
	// Engage stores a switch. One whose id was ever engaged is left as it is, and
	// added is false.
	Engage(ctx context.Context, s *killswitch.Switch) (added bool, err error)
	// Release ends one that is engaged; any other is left as it is, and released
	// is false.
	Release(ctx context.Context, id, by, reason string, at time.Time) (released bool, err error)
	// List returns switches, newest first.
	List(ctx context.Context, limit int) ([]SwitchRecord, error)
}

// SwitchRecord is a switch, and how it was released.
type SwitchRecord struct {
	killswitch.Switch
	ReleasedAt    time.Time // zero while it is engaged
	ReleasedBy    string
	ReleaseReason string
}
