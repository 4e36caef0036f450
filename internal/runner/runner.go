// Package runner is the manager's side of runs: who may begin when, at which
// worker, and what is kept of it. A run that somebody waits for on a connection
// ends with that connection; one that was queued outlives this process: whoever
// manages next finds it again at its worker, or begins it anew.
//
// It executes nothing. It imports no door: the manager offers what it does.
package runner

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/wake"
	"github.com/aurea-dev/aurea/internal/webhook"
)

// Worker is one that can be asked to do runs now.
type Worker struct {
	ID      string
	Slots   int
	Drivers []string // that it serves
	Paused  bool     // it takes no more for now
	Runner  dispatch.Runner
}

// Outputs shows the live output of runs to the managers that do not have them.
type Outputs interface {
	Take(ctx context.Context, runID string, attempt int64, stream int, offset int64, data []byte) error
	Read(ctx context.Context, runID string, attempt int64, stream int, offset int64, limit int) ([]byte, error)
	Drop(ctx context.Context, runID string, attempt int64)
}

// Observer is told what happens to runs. It must not block.
type Observer interface {
	// RunEnded says how a run ended: so long it waited for its turn, so long
	// it took from there. warm is that of a result.
	RunEnded(r *run.Run, waited, took time.Duration)
	// RunRefused says that one found no place in the line, or no turn in time.
	RunRefused()
}

// Config is what a Runner is made of.
type Config struct {
	Store store.Store
	Blobs blob.Store
	// Outputs is nil where no other manager shares the database.
	Outputs Outputs
	// Workers lists those whose stream is open here.
	Workers func() []Worker
	// Disk refuses new runs while the disk has no room for more than what the
	// old ones need to end; nil never does.
	Disk func() error
	// Stops refuses runs that the kill switch stands against; nil never does.
	Stops func(sandbox.Subject) error
	// Fence is that of the leader while this manager leads, else 0.
	Fence    func() int64
	Terms    run.Terms
	Hooks    webhook.Terms
	Observer Observer // nil is nobody
	Now      func() time.Time
	Logger   *slog.Logger
	ID       string // of this manager, the same after a restart
	// Most is how many runs may wait here.
	Most int
	// Patience is how long somebody waits for a turn on a connection, and how
	// long a worker that was lost may take to come back to its runs.
	Patience, Back time.Duration
}

// The bounds that Config leaves open.
const (
	defaultMost     = 10_000
	defaultPatience = 30 * time.Second
	defaultBack     = 30 * time.Second
)

// Runner takes runs, gives them turns, and keeps what they came to.
type Runner struct {
	Config
	arrived wake.Signal // live output came, or a run ended
	pool    struct {
		mu    sync.Mutex
		asked time.Time
		held  []run.Pool
	}

	mu      sync.Mutex
	life    context.Context //nolint:containedctx // of what outlives the calls that began it; ends with Stop
	stop    context.CancelCauseFunc
	line    *line
	places  map[string]*place
	entries map[string]*entry
	tasks   sync.WaitGroup
}

// entry is a run that this manager has.
type entry struct {
	ticket *ticket
	fence  int64
	sync   bool
	done   chan struct{} // closed when it has ended or is no longer ours

	// What follows is guarded by the Runner's mutex.
	out    *output                 // of the try that runs; nil before
	cancel context.CancelCauseFunc // of the try that runs
	halted bool                    // it was cancelled
	// back is until when its worker may come back; zero where it is not lost.
	back   time.Time
	losses int // how often its worker was lost since it was begun
}

var (
	errStopped   = errors.New("the manager is stopping")
	errCancelled = errors.New("the run was cancelled")
)

// New makes a Runner. It takes runs after Start.
func New(cfg Config) *Runner {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Most <= 0 {
		cfg.Most = defaultMost
	}
	if cfg.Patience <= 0 {
		cfg.Patience = defaultPatience
	}
	if cfg.Back <= 0 {
		cfg.Back = defaultBack
	}
	if cfg.Disk == nil {
		cfg.Disk = func() error { return nil }
	}
	if cfg.Fence == nil {
		cfg.Fence = func() int64 { return 0 }
	}
	if cfg.Terms.Timeout <= 0 {
		cfg.Terms.Timeout = 30 * time.Second
	}
	if cfg.Terms.OutputCap <= 0 {
		cfg.Terms.OutputCap = 4 << 20
	}
	return &Runner{Config: cfg, line: newLine(), places: map[string]*place{}, entries: map[string]*entry{}}
}

// alone reports whether no other manager shares the database.
func (r *Runner) alone() bool { return r.Outputs == nil }

// Start takes up what an earlier life of this manager left.
func (r *Runner) Start(ctx context.Context) error { //nolint:contextcheck // the runner outlives the call that starts it
	r.mu.Lock()
	r.life, r.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	life := r.life
	r.mu.Unlock()
	if err := r.takeUp(ctx); err != nil {
		r.Stop() //nolint:contextcheck // what has begun ends in the runner's life
		return err
	}
	r.tasks.Go(func() { r.tend(life) })
	r.tasks.Go(func() { r.deliver(life) })
	r.Wake()
	return nil
}

// Stop ends what Start began and waits for it. Runs that were queued go on at
// their workers.
func (r *Runner) Stop() {
	r.mu.Lock()
	stop := r.stop
	r.stop = nil
	r.mu.Unlock()
	if stop == nil {
		return
	}
	stop(errStopped)
	r.tasks.Wait()
	r.mu.Lock()
	clear(r.entries)
	r.line = newLine()
	clear(r.places)
	r.mu.Unlock()
	r.arrived.Wake()
	r.depart()
}

// Wake looks for turns to give: workers have come, or have room.
func (r *Runner) Wake() { r.pump() }

// Arrived returns a channel that is closed when output of a run came, or one
// ended.
func (r *Runner) Arrived() <-chan struct{} { return r.arrived.Wait() }

// rhythm is how often what may have been missed is looked for.
const rhythm = time.Second

// tend does what has its time, until ctx ends.
func (r *Runner) tend(ctx context.Context) {
	tick := time.NewTicker(rhythm)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r.giveUpLost(ctx)
		if !r.alone() {
			r.share(ctx)
		}
		r.pump()
	}
}

// lives is the context of what outlives the calls that began it.
func (r *Runner) lives() context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.life
}
