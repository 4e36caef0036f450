// Package keeper is the manager's side of sandboxes that are kept: who may have
// one, at which worker, how it stands, and what is left of it. The commands in
// it are durable: what a worker was told to start goes on whoever hangs up, and
// its output can be read from any offset, from its worker while it runs and
// from blobs afterwards.
//
// It executes nothing. It imports no door: the manager offers what it does.
package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/filesync"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/wake"
)

// Worker is one whose command stream is open here.
type Worker struct {
	ID      string
	Drivers []string // that it serves
	Paused  bool     // it takes no more for now
	Host    dispatch.Host
}

// Config is what a Keeper is made of.
type Config struct {
	Store store.Store
	Blobs blob.Store
	// Workers lists those whose stream is open here.
	Workers func() []Worker
	// Second finds a worker by its session whose stream another manager has, and
	// that has a second one open here; nil is none.
	Second func(session string) (Worker, bool)
	// Leads says whether this manager does what has its time.
	Leads func() bool
	// Demand refuses new work while the manager cannot take it; nil is never.
	Demand func(ctx context.Context) error
	// Stops refuses what the kill switch stands against; nil is nothing.
	Stops func(sandbox.Subject) error
	Terms live.Terms
	// FileLimits bound the stored files of a session.
	FileLimits filesync.Limits
	Now        func() time.Time
	Logger     *slog.Logger
	// Provision bounds how long a sandbox may take to be made, Back how long a
	// worker may be away before its sandboxes count as lost.
	Provision, Back time.Duration
	// ID is that of this manager, among those that share the database.
	ID string
	// Alone says that no other manager shares the database.
	Alone bool
}

// The bounds that Config leaves open.
const (
	defaultProvision = 5 * time.Minute
	defaultBack      = 5 * time.Minute
	defaultExec      = 300 * time.Second
	defaultOutput    = 100 << 20
	cleanupTime      = 30 * time.Second
)

// hosting is what a worker does for its sandboxes.
type hosting = dispatch.Host

// Keeper keeps sandboxes.
type Keeper struct {
	Config
	shelf    *filesync.Shelf
	syncer   *filesync.Syncer
	ended    wake.Signal // an exec or a sandbox has ended, or a sandbox has moved
	settled  wake.Signal // what was begun is written down
	recent   recent
	glances  glances
	records  store.Store   // for what changes no sandbox; Store is for all else
	diffs    chan struct{} // one for each comparison that goes on
	measured measures
	still    turns // of those who make sandboxes stand still, or let them go on

	unfinished sightings // of the rounds that undo what nobody goes on with
	openExecs  sightings // of those that end execs that no worker knows

	mu      sync.Mutex
	life    context.Context //nolint:containedctx // of what outlives the calls that began it; ends with Stop
	stop    context.CancelCauseFunc
	tasks   sync.WaitGroup
	touched map[string]time.Time // when a sandbox was last of use, as far as it is not written down
	follows map[string]*following
	begun   map[string]int // sandboxes and execs that a worker is being told of
}

var errStopped = errors.New("the manager is stopping")

// New makes a Keeper. What has its time is done after Start.
func New(cfg Config) *Keeper {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Provision <= 0 {
		cfg.Provision = defaultProvision
	}
	if cfg.Back <= 0 {
		cfg.Back = defaultBack
	}
	if cfg.Terms.ExecTimeout <= 0 {
		cfg.Terms.ExecTimeout = defaultExec
	}
	if cfg.Terms.OutputCap <= 0 {
		cfg.Terms.OutputCap = defaultOutput
	}
	if cfg.Stops == nil {
		cfg.Stops = func(sandbox.Subject) error { return nil }
	}
	if cfg.Leads == nil {
		cfg.Leads = func() bool { return true }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	shelf := filesync.NewShelf(cfg.Store, cfg.Blobs, cfg.FileLimits)
	k := &Keeper{
		records: cfg.Store, Config: cfg, shelf: shelf, syncer: filesync.New(shelf, cfg.Logger), diffs: make(chan struct{}, maxDiffs),
		touched: map[string]time.Time{}, begun: map[string]int{}, follows: map[string]*following{}, unfinished: sightings{within: heardWithin / 4},
	}
	k.Store = moving{cfg.Store, &k.glances}
	return k
}

// Start takes up what an earlier life of this manager left.
func (k *Keeper) Start(ctx context.Context) error { //nolint:contextcheck // the keeper outlives the call that starts it
	k.mu.Lock()
	k.life, k.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	life := k.life
	k.mu.Unlock()
	if k.Alone {
		err := k.failUnmade(ctx, k.now(), func(*live.Sandbox) bool { return true })
		if err == nil {
			err = k.undoUnfinished(life) //nolint:contextcheck // undoing goes on in the keeper's life
		}
		if err != nil {
			k.Stop() //nolint:contextcheck // it ends what was begun in the keeper's life
			return err
		}
	}
	k.tasks.Go(func() { k.tend(life) })
	k.tasks.Go(func() { k.watchUsage(life) })
	if !k.Alone {
		k.tasks.Go(func() { k.watchExecs(life) })
	}
	return nil
}

// Stop ends what Start began and waits for it. Sandboxes live on.
func (k *Keeper) Stop() {
	k.mu.Lock()
	stop := k.stop
	k.stop = nil
	k.mu.Unlock()
	if stop == nil {
		return
	}
	stop(errStopped)
	k.ended.Wake()
	k.tasks.Wait()
	k.writeTouches(context.WithoutCancel(k.life))
}

// now is the time, as exactly as it is kept.
func (k *Keeper) now() time.Time { return k.Now().UTC().Truncate(time.Microsecond) }

// rhythm is how often what has its time is looked for.
const rhythm = time.Second

// tend does what has its time, until ctx ends.
func (k *Keeper) tend(ctx context.Context) {
	tick := time.NewTicker(rhythm)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		k.writeTouches(ctx)
		steps := []func(context.Context) error{k.expire, k.endAsked, k.undoUnfinished, k.failLate}
		if k.Leads() {
			steps = append(steps, k.giveUpLost)
		}
		for _, step := range steps {
			if err := step(ctx); err != nil && ctx.Err() == nil {
				k.Logger.Error("could not look after the sandboxes", "error", err)
			}
		}
	}
}

// CodeElsewhere is the code of the fault that says that another manager over
// the same database has the worker of a sandbox.
const CodeElsewhere = "at_another_manager"

// heardWithin is how long ago a worker was heard of at the most that counts as
// connected elsewhere: a manager that was killed cannot write that it is not.
const heardWithin = time.Minute

// subject says whose a sandbox is, to the kill switch.
func subject(s *live.Sandbox) sandbox.Subject {
	return sandbox.Subject{ID: s.ID, Parent: s.Parent, Labels: s.Spec.Labels}
}

// host returns the worker of a sandbox.
func (k *Keeper) host(ctx context.Context, s *live.Sandbox) (dispatch.Host, error) {
	for _, w := range k.Workers() {
		if w.ID == s.Worker {
			return w.Host, nil
		}
	}
	var w job.Worker
	err := k.Store.View(ctx, func(tx store.Tx) (err error) {
		w, err = tx.Workers().Get(ctx, s.Worker)
		return err
	})
	if err == nil {
		if x, there := k.second(&w); there {
			return x.Host, nil
		}
	}
	if err == nil && k.hasElsewhere(&w) {
		return nil, fault.New(fault.Unavailable, "The worker %s, which has sandbox %s, is connected to the manager %s, and this is %s. Ask that one.", s.Worker, s.ID, w.Manager, k.ID).
			WithCode(CodeElsewhere).Retry(2 * time.Second)
	}
	return nil, fault.New(fault.Unavailable, "The worker %s, which has sandbox %s, is not connected to this manager. The sandbox goes on; try again soon.", s.Worker, s.ID).
		WithCode("worker_away").Retry(2 * time.Second)
}

// begin notes that a worker is being told of something, so that a worker that
// registers meanwhile is not said to have lost it.
func (k *Keeper) begin(id string) (end func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.begun[id]++
	return k.ender(id)
}

// beginAlone is begin where it was not begun; alone says whether it was so.
func (k *Keeper) beginAlone(id string) (end func(), alone bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.begun[id] > 0 {
		return nil, false
	}
	k.begun[id]++
	return k.ender(id), true
}

func (k *Keeper) ender(id string) func() {
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.begun[id]--; k.begun[id] == 0 {
			delete(k.begun, id)
			k.settled.Wake()
		}
	}
}

func (k *Keeper) isBegun(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.begun[id] > 0
}

// visible returns a sandbox that the caller may see; what it may not see does
// not exist for it.
func visible(ctx context.Context, tx store.Tx, id string) (live.Sandbox, error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return live.Sandbox{}, err
	}
	s, err := tx.Sandboxes().Get(ctx, id)
	if fault.Is(err, fault.NotFound) || err == nil && !c.Sees(s.Owner, s.Spec.Project()) {
		return live.Sandbox{}, fault.New(fault.NotFound, "No sandbox has the id %q.", id)
	}
	return s, err
}

// happened is an event of a sandbox.
func happened(s *live.Sandbox, t event.Type, actor string, at time.Time, data map[string]any) *event.Event {
	return telling(&event.Event{Type: t, Version: 1, Entity: "sandbox", EntityID: s.ID, Owner: s.Owner, ProjectID: s.Spec.Project(), Actor: actor, At: at}, data)
}

// ran is an event of an exec.
func ran(e *live.Exec, t event.Type, actor string, at time.Time, data map[string]any) *event.Event {
	return telling(&event.Event{Type: t, Version: 1, Entity: "exec", EntityID: e.ID, Owner: e.Owner, ProjectID: e.Project, Actor: actor, At: at}, data)
}

// briefly is a command as it stands in an event.
func briefly(command []string) []string {
	const words, length = 8, 100
	list := make([]string, 0, words)
	for _, w := range command[:min(len(command), words)] {
		list = append(list, w[:min(len(w), length)])
	}
	return list
}

func telling(e *event.Event, data map[string]any) *event.Event {
	if len(data) > 0 {
		e.Data, _ = json.Marshal(data) // of words and numbers
	}
	return e
}

// acted puts what a caller does to a sandbox into the audit. What is said of it
// are states, bounds and numbers, and never what it was given.
func acted(ctx context.Context, tx store.Tx, s *live.Sandbox, action, reason string, after map[string]any) error {
	return store.Acted(ctx, tx, store.Act{
		Source: "keeper", Action: action, Target: s.ID, Reason: reason, Before: standing(s), After: after,
	})
}

// record puts an act into the audit that changes nothing in the store. It goes
// before the act: what cannot be recorded is not done.
func (k *Keeper) record(ctx context.Context, a store.Act) error {
	a.Source = "keeper"
	return k.Store.Update(ctx, func(tx store.Tx) error { return store.Acted(ctx, tx, a) })
}

// standing is what the audit says of a sandbox.
func standing(s *live.Sandbox) map[string]any {
	return map[string]any{"state": s.State, "paused": s.Paused, "generation": s.Generation, "owner": s.Owner, "limits": s.Spec.Limits, "expires_at": s.ExpiresAt}
}

// after is standing with what is said of the act.
func after(s *live.Sandbox, more map[string]any) map[string]any {
	all := standing(s)
	maps.Copy(all, more)
	return all
}

// contains reports whether a worker serves a driver; "" is any.
func (w *Worker) serves(driver string) bool {
	return driver == "" || slices.Contains(w.Drivers, driver)
}
