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
	"time"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/queue"
	"github.com/aurea-dev/aurea/internal/store"
)

// Config is what a manager is made of.
type Config struct {
	Store  store.Store
	Queue  *queue.Queue
	Blobs  blob.Store
	Output string // folder for the live output of running jobs
	Now    func() time.Time
	Logger *slog.Logger
	// Alone says that no other manager can share the database, so that a
	// restarted one need not wait for its predecessor's term to run out.
	Alone     bool
	LeaseTerm time.Duration // how long a worker's lease lasts
}

// Manager serves the doors and the workers. It works after Start and until
// Stop; calls between are safe from any number of goroutines.
type Manager struct {
	Config
	outputs  *outputs
	sessions *sessions
	keys     *keyring
	started  time.Time

	work signal // there may be something to schedule
	idle signal // there may be something to lease

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
	out, err := openOutputs(cfg.Output)
	if err != nil {
		return nil, err
	}
	return &Manager{Config: cfg, outputs: out, sessions: newSessions(), keys: newKeyring(), started: cfg.Now()}, nil
}

// Start begins to lead: to schedule and to reap.
func (m *Manager) Start(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stop != nil {
		return errors.New("start manager: it is started")
	}
	lead := &leader{m: m, holder: job.NewID()}
	if err := lead.campaign(ctx, m.Alone); err != nil {
		return fmt.Errorf("start manager: %w", err)
	}
	if err := m.tell(ctx, event.Event{Type: event.ManagerStarted, Entity: "manager", EntityID: lead.holder}); err != nil {
		return fmt.Errorf("start manager: %w", err)
	}
	run, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	m.stop = stop
	m.tasks.Go(func() { lead.run(run) })
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
	m.sessions.closeAll()
	m.tasks.Wait()
	m.stop = nil
}

// Close stops the manager and releases what it holds. The store and the blobs
// belong to whoever made them.
func (m *Manager) Close() error {
	m.Stop()
	return m.outputs.Close()
}

// tell stores an event of the manager's own.
func (m *Manager) tell(ctx context.Context, e event.Event) error {
	e.Version, e.At = 1, m.Now()
	if e.Actor == "" {
		e.Actor = policy.System().ID
	}
	return m.Store.Update(ctx, func(tx store.Tx) error { return tx.Events().Append(ctx, &e) })
}

// caller returns who asks; a request without a caller gets nowhere.
func caller(ctx context.Context) (policy.Caller, error) {
	c, ok := policy.From(ctx)
	if !ok {
		return policy.Caller{}, errNoCaller
	}
	return c, nil
}

// signal wakes everybody who waits, and needs no list of them.
type signal struct {
	mu sync.Mutex
	ch chan struct{}
}

// wait returns a channel that the next wake closes.
func (s *signal) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}
