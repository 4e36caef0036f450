// Package manager is the single authority: the use cases behind every door,
// and the manager's end of the agreement with workers. It writes the database,
// decides through queue, and never executes code: it imports no driver, no
// worker, and nothing that could start a process.
package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/governor"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/keeper"
	"github.com/aurea-dev/aurea/internal/language"
	"github.com/aurea-dev/aurea/internal/machinist"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/queue"
	"github.com/aurea-dev/aurea/internal/runner"
	lifecycle "github.com/aurea-dev/aurea/internal/session" // a session here is a worker's
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/trace"
	"github.com/aurea-dev/aurea/internal/wake"
	"github.com/aurea-dev/aurea/internal/watchman"
)

// Config is what a manager is made of.
type Config struct {
	Store store.Store
	Queue *queue.Queue
	Blobs blob.Store
	// Outputs keeps the live output of running jobs.
	Outputs Outputs
	Now     func() time.Time
	Logger  *slog.Logger
	// ID names this manager among those that share the database, also after a
	// restart; "" makes a new one.
	ID string
	// Alone says that no other manager can share the database, so that a
	// restarted one need not wait for its predecessor's term to run out.
	Alone     bool
	LeaseTerm time.Duration // how long a worker's lease lasts
	// Patience is how long one that begins to lead lets workers come back
	// before it takes leases away; 0 is one LeaseTerm.
	Patience  time.Duration
	Data      string // folder whose disk is watched; "" is none
	MinDisk   int64  // free bytes there, for new plans; 0 is a share of the disk
	Retention Retention
	Tracer    *trace.Tracer // nil is off
	Observer  Observer      // is told what happens, for figures; nil is nobody
	RunTerms  RunTerms
	// SandboxTerms is how sandboxes are kept.
	SandboxTerms SandboxTerms
	SessionTerms SessionTerms
	FleetTerms   FleetTerms
}

// Manager serves the doors and the workers. It works after Start and until
// Stop; calls between are safe from any number of goroutines.
//
// What it does for runs of code is Runner's, for sandboxes that are kept
// Keeper's.
type Manager struct {
	Config
	*runner.Runner
	*keeper.Keeper
	// Machines looks after machines.
	Machines *machinist.Machinist
	// Sessions looks after sessions.
	Sessions *lifecycle.Lifecycle
	// Fleet governs the fleet, Triggers watches it.
	Fleet    *governor.Governor
	Triggers *watchman.Watchman
	outputs  *outputs
	sessions *sessions
	besides  besides
	switches *switches
	keys     *keyring
	pause    pause
	started  time.Time

	fence      atomic.Int64 // while this manager leads, else 0
	collecting sync.Mutex   // held by the pass over the history
	blobBytes  atomic.Int64 // as the last pass found them
	blobCount  atomic.Int64

	work wake.Signal // there may be something to schedule
	idle wake.Signal // there may be something to lease

	mu    sync.Mutex
	stop  context.CancelCauseFunc // nil unless started
	tasks sync.WaitGroup
}

// errStopped is the cause of every context that ends with the manager.
var errStopped = errors.New("the manager is stopping")

// New makes a manager. It does nothing until Start.
func New(cfg Config) (*Manager, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.LeaseTerm <= 0 {
		cfg.LeaseTerm = 30 * time.Second
	}
	if cfg.Patience <= 0 {
		cfg.Patience = cfg.LeaseTerm
	}
	if cfg.ID == "" {
		cfg.ID = job.NewID()
	}
	if cfg.Outputs == nil {
		return nil, errors.New("make a manager: it needs a place for live output")
	}
	if cfg.RunTerms.Languages == nil {
		shipped, err := language.Default()
		if err != nil {
			return nil, fmt.Errorf("make a manager: %w", err)
		}
		cfg.RunTerms.Languages = shipped
	}
	m := &Manager{Config: cfg, outputs: &outputs{Outputs: cfg.Outputs}, sessions: newSessions(), keys: newKeyring(), started: cfg.Now()}
	m.sessions.held = func() bool { return m.pause.get().Paused }
	m.switches = &switches{}
	m.Queue.Obey(m.switches.halt)
	m.Runner = m.newRunner(cfg.RunTerms)
	m.Keeper = m.newKeeper(cfg.SandboxTerms)
	m.Machines = m.newMachinist(cfg.SandboxTerms)
	m.Sessions = m.newSessions(cfg.SessionTerms)
	var err error
	m.Fleet, err = m.newGovernor(cfg.FleetTerms)
	m.Triggers = m.newWatchman(cfg.FleetTerms)
	return m, err
}

// Start begins to lead: to schedule and to reap.
func (m *Manager) Start(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stop != nil {
		return errors.New("start manager: it is started")
	}
	lead := &leader{m: m, holder: m.ID + "." + job.NewID()}
	for _, step := range []func() error{
		func() error { return m.readSwitches(ctx) }, // first: nothing begins that was stopped
		func() error { return lead.begin(ctx) },
		func() error {
			return m.tell(ctx, event.Event{Type: event.ManagerStarted, Entity: "manager", EntityID: lead.holder})
		},
		func() error { return m.readPause(ctx) }, // before anything is handed out
		func() error { return m.Runner.Start(ctx) },
		func() error { return m.Keeper.Start(ctx) },
		func() error { return m.Machines.Start(ctx) },
		func() error { return m.Sessions.Start(ctx) },
		func() error { return m.Fleet.Start(ctx) },
		func() error { return m.Triggers.Start(ctx) },
	} {
		if err := m.patiently(ctx, step); err != nil {
			return fmt.Errorf("start manager: %w", err)
		}
	}
	run, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	m.stop = stop
	m.tasks.Go(func() { lead.run(run) })
	m.tasks.Go(func() { m.collect(run) })
	m.tasks.Go(func() { m.noteUses(run) })
	m.tasks.Go(func() { m.keepSwitches(run) })
	if !m.Alone {
		m.tasks.Go(func() { m.followPause(run) })
		f := &follower{m: m}
		m.tasks.Go(func() { f.run(run) })
		m.tasks.Go(func() { f.outputs(run) })
	}
	return nil
}

// Stop ends what Start began and waits for it. Stopping twice, or before
// Start, is a success.
func (m *Manager) Stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stop == nil {
		return
	}
	m.stop(errStopped)
	m.Runner.Stop() // before the streams close: what is at workers is not lost
	m.Sessions.Stop()
	m.Triggers.Stop() // before the governor, which it asks
	m.Fleet.Stop()
	m.Machines.Stop() // before the keeper, which it asks
	m.Keeper.Stop()
	m.sessions.closeAll()
	m.besides.closeAll()
	m.tasks.Wait()
	m.stop = nil
}

// patiently tries a step of the start again while the database is away for a
// moment: it was there when it was opened. What may have been done is not done
// again.
func (m *Manager) patiently(ctx context.Context, step func() error) error {
	const tries, pause = 20, 250 * time.Millisecond
	for n := 1; ; n++ {
		err := step()
		if !fault.Is(err, fault.Unavailable) || fault.CodeOf(err) == "outcome_unknown" || n == tries {
			return err
		}
		m.Logger.Warn("the database went away during the start; trying again", "error", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// tell stores an event of the manager's own.
func (m *Manager) tell(ctx context.Context, e event.Event) error {
	e.Version, e.At = 1, m.Now()
	if e.Actor == "" {
		e.Actor = policy.System().ID
	}
	return m.Store.Update(ctx, func(tx store.Tx) error { return tx.Events().Append(ctx, &e) })
}
