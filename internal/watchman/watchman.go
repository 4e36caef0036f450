// Package watchman is the manager's side of triggers: it keeps them, measures the
// workers of the fleet, and has done what a trigger says when one fires. Every
// firing is written down, with its record in the audit, before anything is done
// because of it, so that a manager that is killed in between goes on with it.
//
// What follows from a value is trigger's to say; ending, freezing and quarantine
// are the governor's.
package watchman

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/governor"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/service"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/trigger"
	"github.com/aurea-dev/aurea/internal/webhook"
)

// Fleet is who has done what a trigger says.
type Fleet interface {
	Worker(ctx context.Context, id string) (manifest.Worker, error)
	Kill(ctx context.Context, id, reason string) (w manifest.Worker, killed bool, err error)
	Quarantine(ctx context.Context, id string, s governor.Suspicion) (manifest.Worker, error)
	Suspend(ctx context.Context, id, reason string) (manifest.Worker, error)
	HoldStill(ctx context.Context, id string) error
	Preserve(ctx context.Context, id string) (manifest.Worker, error)
}

// Sandboxes has the sandboxes of the fleet.
type Sandboxes interface {
	// Tends says whether a sandbox is this manager's to look after.
	Tends(ctx context.Context, s *live.Sandbox) bool
	SandboxStats(ctx context.Context, id string) (live.Stats, error)
	// Halted says whether a kill switch stands against it.
	Halted(s *live.Sandbox) bool
	SignalExec(ctx context.Context, id string, signal int, tree bool) error
}

// Config is what a Watchman is made of.
type Config struct {
	Store     store.Store
	Fleet     Fleet
	Sandboxes Sandboxes
	// Hooks is what calls of hooks may do.
	Hooks webhook.Terms
	// Leads says whether this manager tells hooks what they are to be told.
	Leads  func() bool
	Now    func() time.Time
	Logger *slog.Logger
	// Observe is told of what came of each firing; nil is nobody.
	Observe func(trigger.Kind, trigger.Outcome)
}

const (
	rhythm      = time.Second // between looks
	together    = 16          // workers that are measured, or acted upon, at a time
	asking      = 64          // hooks that are waited for at a time
	measureTime = 2 * time.Second
	signalTime  = 5 * time.Second
	// patience is how long an end that fails is tried again before the firing
	// counts as failed. The governor goes on with it all the same.
	patience = 5 * time.Minute
	maxOpen  = 1000 // firings that are looked at in one look
	batch    = 100  // judgements in one transaction
	// MaxFirings is how many firings are remembered.
	MaxFirings = 10_000
)

// Watchman watches the fleet.
type Watchman struct {
	Config
	meters meters
	client *http.Client // of hooks
	turns  chan struct{}
	asks   chan struct{} // turns of those who wait for a hook, and keep nobody else from acting
	wake   chan struct{}
	news   chan struct{} // one token: there is something to tell

	life service.Life

	mu   sync.Mutex
	acts sync.WaitGroup
	busy map[string]bool // firings and workers that somebody here is at
}

var errStopped = errors.New("the manager is stopping")

// New makes a Watchman. It looks by itself after Start.
func New(cfg Config) *Watchman {
	service.Supply(&cfg.Now, &cfg.Leads, &cfg.Logger)
	if cfg.Observe == nil {
		cfg.Observe = func(trigger.Kind, trigger.Outcome) {}
	}
	return &Watchman{
		Config: cfg, meters: meters{}, client: cfg.Hooks.Client(trigger.MaxHookTimeout), turns: make(chan struct{}, together), asks: make(chan struct{}, asking),
		wake: make(chan struct{}, 1), news: make(chan struct{}, 1), busy: map[string]bool{},
	}
}

// Start begins to look after the fleet.
func (w *Watchman) Start(ctx context.Context) error {
	w.life.Begin(policy.With(ctx, policy.System()))
	w.life.Go(w.run)     //nolint:contextcheck // in the life that has just begun
	w.life.Go(w.deliver) //nolint:contextcheck // in the life that has just begun
	return nil
}

// Stop ends what Start began and waits for it. Firings that are under way are
// gone on with after the next Start.
func (w *Watchman) Stop() {
	if w.life.End(errStopped) {
		w.Settle()
	}
}

func (w *Watchman) run(ctx context.Context) {
	tick := time.NewTicker(rhythm)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-w.wake:
		}
		if err := w.Look(ctx); err != nil && ctx.Err() == nil {
			w.Logger.Error("could not look after the triggers of the fleet", "error", err)
		}
	}
}

// Settle waits until everything is done that looks have begun.
func (w *Watchman) Settle() { w.acts.Wait() }

// soon makes the next look come at once.
func (w *Watchman) soon() { poke(w.wake) }

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it comes already
	}
}

// now is the time, as exactly as it is kept.
func (w *Watchman) now() time.Time { return w.Now().UTC().Truncate(time.Microsecond) }

// begin does something aside, in its turn, unless somebody here is at that name
// already.
func (w *Watchman) begin(name string, turns chan struct{}, do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy[name] {
		return
	}
	w.busy[name] = true
	w.acts.Go(func() {
		turns <- struct{}{}
		defer func() {
			<-turns
			w.mu.Lock()
			defer w.mu.Unlock()
			delete(w.busy, name)
		}()
		do()
	})
}
