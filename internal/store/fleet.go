package store

import (
	"context"
	"time"

	"github.com/aurea-dev/aurea/internal/manifest"
)

// Contracts keeps the contracts of the fleet, and the keys that its papers are
// checked against.
type Contracts interface {
	// Get returns one, or a fault of kind NotFound.
	Get(ctx context.Context, name string) (manifest.Contract, error)
	// Put stores one, in place of an earlier one of its name.
	Put(ctx context.Context, c *manifest.Contract) error
	List(ctx context.Context) ([]manifest.Contract, error) // by name

	// AddKey stores a key; one that is there stays as it is.
	AddKey(ctx context.Context, k manifest.PublicKey) error
	// Key returns one, or NotFound.
	Key(ctx context.Context, id string) (manifest.PublicKey, error)
	Keys(ctx context.Context) ([]manifest.PublicKey, error) // oldest first
	// RevokeKey ends a key, or returns NotFound. One that was revoked before
	// keeps that time.
	RevokeKey(ctx context.Context, id string, at time.Time) error
}

// Fleet keeps the workers of the fleet, from their paper to their end. An id
// that is here was used.
type Fleet interface {
	// Add stores a new one. An id that exists is a Conflict.
	Add(ctx context.Context, w *manifest.Worker) error
	// Get returns one, or a fault of kind NotFound.
	Get(ctx context.Context, id string) (manifest.Worker, error)
	// Put stores one that exists: everything but its manifest and terms.
	Put(ctx context.Context, w *manifest.Worker) error
	// List returns workers, newest paper first.
	List(ctx context.Context, f FleetFilter) ([]manifest.Worker, error)
	// Count counts the workers of a contract in one of the states.
	Count(ctx context.Context, contract string, states ...manifest.State) (int, error)
	// Stale returns running ones whose last heartbeat was before, oldest first.
	Stale(ctx context.Context, before time.Time, limit int) ([]manifest.Worker, error)
	// Due returns those whose time was over at now (see manifest.Worker.DueAt),
	// the longest first.
	Due(ctx context.Context, now time.Time, limit int) ([]manifest.Worker, error)
	// Fallen returns running ones whose sandbox has ended, or is not there.
	Fallen(ctx context.Context, limit int) ([]manifest.Worker, error)
	// Passing returns those that are launching or ending since before.
	Passing(ctx context.Context, before time.Time, limit int) ([]manifest.Worker, error)
	// Running returns running ones, in no order that matters.
	Running(ctx context.Context, limit int) ([]manifest.Worker, error)
	// Commands counts the commands in the sandboxes of running ones that began or
	// ended since, by sandbox. Those that did not end well have failed.
	Commands(ctx context.Context, since time.Time) (map[string]Commands, error)
	// Forget removes ended ones, at most limit: those that ended before, and
	// those beyond the newest most.
	Forget(ctx context.Context, before time.Time, most, limit int) (int64, error)
}

// FleetFilter chooses workers of the fleet. Zero fields choose all.
type FleetFilter struct {
	Owner, Contract, Parent string
	States                  []manifest.State
	Quarantined             bool      // only those under quarantine
	Bundled                 bool      // only those of which something was put aside
	Before                  time.Time // only those whose paper is older
	Limit                   int       // 0 is 1000
}
