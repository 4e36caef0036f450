// Package governor is the law of the fleet, on the manager's side: who may
// start whom, how many, how deep and for how long. Every decision is one
// transaction that looks at what is stored and writes what follows from it, so
// no race can exceed a contract, and a restart forgets nothing.
//
// It starts nothing itself: a keeper has the sandboxes.
package governor

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/service"
	"github.com/aurea-dev/aurea/internal/store"
)

// Sandboxes keeps the sandboxes of the fleet.
type Sandboxes interface {
	CreateSandbox(ctx context.Context, req live.Request) (s live.Sandbox, made bool, err error)
	Sandbox(ctx context.Context, id string) (live.Sandbox, error)
	SandboxByName(ctx context.Context, name string) (live.Sandbox, error)
	EndSandboxAs(ctx context.Context, id string, outcome sandbox.Outcome, reason string) (live.Sandbox, error)
	// HoldSandbox freezes the sandbox of a worker that is marked as suspended or
	// under quarantine; held is false where it is neither any more.
	HoldSandbox(ctx context.Context, id string) (held bool, err error)
	ResumeSandbox(ctx context.Context, id string) (live.Sandbox, error)
	SandboxStats(ctx context.Context, id string) (live.Stats, error)
	SnapshotSandbox(ctx context.Context, id string, kind live.SnapshotKind, label string) (live.Snapshot, error)
}

// Subject is whom a decision is about, for those who may have stopped it.
type Subject struct {
	Worker    string // "" where there is none yet
	Sandbox   string // as with Worker
	Contract  string
	ProjectID int64
	Owner     string
	// Ancestors are the parent, its parent and so on.
	Ancestors []string
}

// Config is what a Governor is made of.
type Config struct {
	Store     store.Store
	Sandboxes Sandboxes
	Blobs     blob.Store
	Keys      Keyring
	// Stopped says whether a switch is engaged that stops the subject, and why;
	// nil is never.
	Stopped func(ctx context.Context, tx store.Tx, s Subject) (reason string, stopped bool, err error)
	// Demand refuses new work while the manager cannot take it; nil is never.
	Demand func(ctx context.Context) error
	// Leads says whether this manager does what has its time.
	Leads  func() bool
	Now    func() time.Time
	Logger *slog.Logger
	// Observe is told of what is measured; nil is nobody.
	Observe func(manifest.Enforcement)
	// Most is what a sandbox may ask for on this server, MaxTTL how long it may
	// live; 0 is no bound.
	Most   sandbox.Limits
	MaxTTL time.Duration
	// Silence is how long a worker may send no heartbeat, Validity how long a paper can
	// be used; 0 is a sensible time.
	Silence, Validity time.Duration
	// Alone says that no other manager shares the database.
	Alone bool
}

// Keyring has the key that signs, and makes the next.
type Keyring interface {
	// Signer returns what signs now.
	Signer() *manifest.Signer
	// Rotate makes a new key, which signs from now on.
	Rotate() (manifest.Key, error)
}

// What is so without a setting.
const (
	defaultHeartbeat = 60 * time.Second
	defaultValidity  = 15 * time.Minute
	rhythm           = time.Second      // between looks
	reapEvery        = 10 * time.Second // between looks for the silent
	stuck            = 6 * time.Minute  // after which what is on its way is given up
	retryAfter       = 5 * time.Second  // after which an end that failed is tried again
	sweepLimit       = 100
	cleanupTime      = time.Minute
	// maxPapers bounds the papers of a contract that wait to be used.
	maxPapers = 10_000
	// MaxHistory is how many ended workers are remembered.
	MaxHistory = 10_000
)

// Governor governs the fleet.
type Governor struct {
	Config
	life service.Life

	mu   sync.Mutex
	busy map[string]bool // workers that somebody here launches or ends
}

var errStopped = errors.New("the manager is stopping")

// New makes a Governor. What has its time is done after Start.
func New(cfg Config) *Governor {
	service.Supply(&cfg.Now, &cfg.Leads, &cfg.Logger)
	if cfg.Silence <= 0 {
		cfg.Silence = defaultHeartbeat
	}
	if cfg.Validity <= 0 {
		cfg.Validity = defaultValidity
	}
	return &Governor{Config: cfg, busy: map[string]bool{}}
}

// Start makes the key known that signs here, and begins to look after the
// fleet. What an earlier life left half-done is ended or gone on with.
func (g *Governor) Start(ctx context.Context) error {
	if err := g.Publish(ctx); err != nil {
		return err
	}
	g.life.Begin(policy.With(ctx, policy.System()))
	g.life.Go(g.tend) //nolint:contextcheck // in the life that has just begun
	return nil
}

// Stop ends what Start began and waits for it. The fleet lives on.
func (g *Governor) Stop() { g.life.End(errStopped) }

// Publish makes the key known that signs here, so that all managers can check
// what it signs. Start does it.
func (g *Governor) Publish(ctx context.Context) error {
	k := g.Keys.Signer().Key.Public(g.now())
	return g.Store.Update(ctx, func(tx store.Tx) error { return tx.Contracts().AddKey(ctx, k) })
}

// now is the time, as exactly as it is kept.
func (g *Governor) now() time.Time { return g.Now().UTC().Truncate(time.Microsecond) }

// take makes the caller the only one here who launches or ends a worker.
func (g *Governor) take(id string) (leave func(), alone bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy[id] {
		return nil, false
	}
	g.busy[id] = true
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.busy, id)
	}, true
}

// asOwner is ctx for the owner of a worker, on whose behalf its sandbox lives.
func asOwner(ctx context.Context, w *manifest.Worker) context.Context {
	return policy.AsOwner(ctx, w.Terms.Owner)
}

// sees reports whether the caller may know of a worker.
func sees(c policy.Caller, w *manifest.Worker) bool { return c.SeesAll() || c.ID == w.Terms.Owner }

// visible returns a worker that the caller may see; what it may not see does
// not exist for it.
func visible(ctx context.Context, tx store.Tx, id string) (manifest.Worker, error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return manifest.Worker{}, err
	}
	missing := fault.New(fault.NotFound, "The fleet has no worker %.40q.", id)
	if !manifest.ValidID(id) {
		return manifest.Worker{}, missing
	}
	w, err := tx.Fleet().Get(ctx, id)
	if fault.Is(err, fault.NotFound) || err == nil && !sees(c, &w) {
		return manifest.Worker{}, missing
	}
	return w, err
}

// happened is an event of a worker.
func happened(w *manifest.Worker, t event.Type, by string, at time.Time, data map[string]any) *event.Event {
	e := &event.Event{Type: t, Version: 1, Entity: "fleet_worker", EntityID: w.ID(), Owner: w.Terms.Owner, Actor: by, At: at}
	if len(data) > 0 {
		e.Data, _ = json.Marshal(data) // of words and numbers
	}
	return e
}

// maxReason bounds what is kept of a reason.
const maxReason = 500

func clip(s string) string {
	if len(s) <= maxReason {
		return s
	}
	cut := maxReason
	for cut > 0 && s[cut]&0xC0 == 0x80 { // not inside of a character
		cut--
	}
	return s[:cut]
}
