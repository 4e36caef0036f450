package store

import (
	"context"
	"time"

	"github.com/aurea-dev/aurea/internal/trigger"
)

// Triggers keeps the rules that watch the fleet, and who is in breach of them.
type Triggers interface {
	// Add stores a new one. An id that exists is a Conflict.
	Add(ctx context.Context, t *trigger.Trigger) error
	// Get returns one, or a fault of kind NotFound.
	Get(ctx context.Context, id string) (trigger.Trigger, error)
	// Put stores one that exists.
	Put(ctx context.Context, t *trigger.Trigger) error
	// Drop removes one with its breaches; it need not be there.
	Drop(ctx context.Context, id string) error
	List(ctx context.Context) ([]trigger.Trigger, error) // oldest first

	// Breaches lists those of a worker, or of all where it is "", by trigger and
	// worker.
	Breaches(ctx context.Context, worker string) ([]trigger.Breach, error)
	// PutBreach stores one, in place of an earlier one of the same two.
	PutBreach(ctx context.Context, b *trigger.Breach) error
	// DropBreaches removes those of a trigger, of a worker, or of both; "" is any.
	DropBreaches(ctx context.Context, triggerID, worker string) error
}

// Firings keeps what triggers did. Their ids are in order of time.
type Firings interface {
	// Add stores a new one. An id that exists is a Conflict.
	Add(ctx context.Context, f *trigger.Firing) error
	// Get returns one, or a fault of kind NotFound.
	Get(ctx context.Context, id string) (trigger.Firing, error)
	// Put stores one that exists.
	Put(ctx context.Context, f *trigger.Firing) error
	// List returns firings, newest first.
	List(ctx context.Context, f FiringFilter) ([]trigger.Firing, error)
	// Open returns those that are under way, oldest first.
	Open(ctx context.Context, limit int) ([]trigger.Firing, error)
	// Last returns when something last fired at a worker, what the cooldown
	// blocked aside, or the zero time.
	Last(ctx context.Context, worker string) (time.Time, error)
	// Forget removes ended ones, at most limit: those from before, and those
	// beyond the newest most.
	Forget(ctx context.Context, before time.Time, most, limit int) (int64, error)
}

// Notices keeps what hooks of triggers are still to be told.
type Notices interface {
	// Put stores one, in place of an earlier one with its id.
	Put(ctx context.Context, n *trigger.Notice) error
	// Due returns those whose time has come: the longest due first.
	Due(ctx context.Context, now time.Time, limit int) ([]trigger.Notice, error)
	// Drop removes one; it need not be there.
	Drop(ctx context.Context, id string) error
	// Trim removes those beyond the newest most, at most limit.
	Trim(ctx context.Context, most, limit int) (int64, error)
}

// FiringFilter chooses firings. Zero fields choose all.
type FiringFilter struct {
	Owner, Worker, Trigger string
	Outcome                trigger.Outcome
	Before                 string // only those with a smaller id
	Limit                  int    // 0 is 100
}

// Commands counts the commands in a sandbox within a time.
type Commands struct {
	Begun, Ended, Failed int64
}
