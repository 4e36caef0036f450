// Package machinist is the manager's side of machines: what is made of what
// their owners ask for, and what becomes of them when a sandbox or a process
// ends. It keeps records and lets a keeper have the sandboxes.
//
// A state that passes by itself is written down before anything is done, so that
// a restarted manager knows what it was about, and the sandbox of a machine has
// the machine's name, so that it is found again and never made twice.
package machinist

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/machine"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/service"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/wake"
)

// Sandboxes keeps the sandboxes of machines.
type Sandboxes interface {
	CreateSandbox(ctx context.Context, req live.Request) (s live.Sandbox, made bool, err error)
	Sandbox(ctx context.Context, id string) (live.Sandbox, error)
	SandboxByName(ctx context.Context, name string) (live.Sandbox, error)
	EndSandbox(ctx context.Context, id, reason string) (live.Sandbox, error)
	PauseSandbox(ctx context.Context, id string, how live.Paused) (live.Sandbox, error)
	ResumeSandbox(ctx context.Context, id string) (live.Sandbox, error)
	PutFiles(ctx context.Context, id, dir string, tar io.Reader) error
}

// Execs runs commands in them.
type Execs interface {
	StartExec(ctx context.Context, c live.Command, asked run.Asked) (e live.Exec, replayed bool, err error)
	RunExec(ctx context.Context, c live.Command, asked run.Asked) (e live.Exec, replayed bool, err error)
	Exec(ctx context.Context, id string) (live.Exec, error)
	WaitExec(ctx context.Context, id string) (live.Exec, error)
	ExecOutput(ctx context.Context, e *live.Exec, s sandbox.Stream, limit int64) ([]byte, error)
	SignalExec(ctx context.Context, id string, signal int, tree bool) error
}

// Config is what a Machinist is made of.
type Config struct {
	Store     store.Store
	Sandboxes Sandboxes
	Execs     Execs
	// Leads says whether this manager does what has its time.
	Leads  func() bool
	Now    func() time.Time
	Logger *slog.Logger
	// MaxTTL is how long a sandbox may live at most; 0 is for ever.
	MaxTTL time.Duration
	// Alone says that no other manager shares the database.
	Alone bool
}

// How long things take at most.
const (
	rhythm      = time.Second      // between looks
	patience    = 25 * time.Second // for the answer to a create; clients give up after 30
	execWait    = time.Minute      // for a machine that is on its way to be started
	stuck       = 15 * time.Minute // after which another manager takes over
	stopTime    = 5 * time.Second  // for processes to end by themselves
	maxStopTime = 5 * time.Minute
	maxOutput   = 4 << 20 // bytes of each stream in an answer
	sweepLimit  = 100
)

// Machinist looks after machines.
type Machinist struct {
	Config
	moved wake.Signal // a machine has moved
	life  service.Life

	mu   sync.Mutex
	busy map[string]bool // machines that somebody here is at
}

var errStopped = errors.New("the manager is stopping")

// New makes a Machinist. It works after Start.
func New(cfg Config) *Machinist {
	service.Supply(&cfg.Now, &cfg.Leads, &cfg.Logger)
	return &Machinist{Config: cfg, busy: map[string]bool{}}
}

// Start takes up what an earlier life of this manager left.
func (k *Machinist) Start(ctx context.Context) error {
	k.life.Begin(ctx)
	k.life.Go(k.tend) //nolint:contextcheck // what has its time goes on in the machinist's life
	return nil
}

// Stop ends what Start began and waits for it. Machines stay as they are.
func (k *Machinist) Stop() { k.life.End(errStopped) }

// tend looks after machines until ctx ends.
func (k *Machinist) tend(ctx context.Context) {
	left := k.Now() // what was on its way before that is an earlier life's
	service.Every(ctx, rhythm, func() {
		if !k.Leads() {
			return
		}
		before := k.Now().Add(-stuck)
		if k.Alone && before.Before(left) {
			before = left
		}
		for _, step := range []func() error{func() error { return k.raise(ctx) }, func() error { return k.goOn(ctx, before) }} {
			if err := step(); err != nil && ctx.Err() == nil {
				k.Logger.Error("could not look after the machines", "error", err)
			}
		}
	})
}

// raise settles machines whose sandbox or process has ended.
func (k *Machinist) raise(ctx context.Context) error {
	var list []machine.Machine
	err := k.Store.View(ctx, func(tx store.Tx) (err error) {
		list, err = tx.Machines().Fallen(ctx, sweepLimit)
		return err
	})
	for i := range list {
		id := list[i].ID
		k.background(id, func(ctx context.Context) { //nolint:contextcheck // it is given the life's
			if err := k.settle(ctx, id); err != nil && ctx.Err() == nil {
				k.Logger.Error("could not settle a machine", "machine", id, "error", err)
			}
		})
	}
	return err
}

// goOn goes on with machines that were left on their way.
func (k *Machinist) goOn(ctx context.Context, before time.Time) error {
	var list []machine.Machine
	err := k.Store.View(ctx, func(tx store.Tx) (err error) {
		list, err = tx.Machines().Passing(ctx, before, sweepLimit)
		return err
	})
	for i := range list {
		m := list[i]
		k.background(m.ID, func(ctx context.Context) { //nolint:contextcheck // it is given the life's
			if err := k.resumeWork(ctx, m); err != nil && ctx.Err() == nil {
				k.Logger.Error("could not go on with a machine", "machine", m.ID, "state", m.State, "error", err)
			}
		})
	}
	return err
}

// resumeWork brings a machine to where it was going.
func (k *Machinist) resumeWork(ctx context.Context, m machine.Machine) error {
	switch m.State {
	case machine.Replacing:
		return k.resumeUpdate(ctx, m)
	case machine.Created, machine.Starting:
		if m.State == machine.Starting && m.Sandbox != "" { // it was suspended
			return k.wakeUp(ctx, m)
		}
		return k.launch(ctx, m.ID)
	case machine.Stopping:
		return k.finishStop(ctx, m)
	case machine.Suspending:
		return k.finishSuspend(ctx, m)
	case machine.Destroying:
		return k.finishDestroy(ctx, m)
	case machine.Started, machine.Suspended, machine.Stopped, machine.Destroyed:
	}
	return nil
}

// background does something about a machine that outlives the call that began
// it, unless somebody here is at that machine already.
func (k *Machinist) background(id string, do func(ctx context.Context)) {
	done, ok := k.take(id)
	if !ok {
		return
	}
	if !k.life.Go(func(ctx context.Context) {
		defer done()
		do(ctx)
	}) {
		done()
	}
}

// take notes that somebody is at a machine; ok is false where another is.
func (k *Machinist) take(id string) (done func(), ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.busy[id] {
		return nil, false
	}
	k.busy[id] = true
	return func() {
		k.mu.Lock()
		delete(k.busy, id)
		k.mu.Unlock()
		k.moved.Wake()
	}, true
}

// hold waits until nobody is at a machine and takes it.
func (k *Machinist) hold(ctx context.Context, id string) (done func(), err error) {
	for {
		free := k.moved.Wait() // before the look
		if done, ok := k.take(id); ok {
			return done, nil
		}
		select {
		case <-free:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// detached is a context for work that goes on when its caller hangs up, and
// ends with the manager. end must be called.
func (k *Machinist) detached(ctx context.Context) (work context.Context, end func(), err error) {
	work, end, ok := k.life.Detach(ctx)
	if !ok {
		return nil, nil, fault.New(fault.Unavailable, "the manager is stopping").Retry(time.Second)
	}
	return work, end, nil
}

func notFound(id string) error {
	return fault.New(fault.NotFound, "machine not found: %s", id[:min(len(id), 60)])
}

// find returns a machine that the caller may see; what it may not see does not
// exist for it.
func find(ctx context.Context, tx store.Tx, ref machine.Ref) (m machine.Machine, err error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return m, err
	}
	if !machine.IsID(ref.ID) {
		return m, notFound(ref.ID)
	}
	m, err = tx.Machines().Get(ctx, ref.ID)
	if fault.Is(err, fault.NotFound) || err == nil && (m.App != ref.App || !c.SeesAll() && m.Owner != c.ID) {
		return machine.Machine{}, notFound(ref.ID)
	}
	return m, err
}

// change alters a machine in one transaction with the event that says so.
func (k *Machinist) change(ctx context.Context, id string, t event.Type, alter func(m *machine.Machine) error) (m machine.Machine, err error) {
	err = k.Store.Update(ctx, func(tx store.Tx) error {
		m, err = tx.Machines().Get(ctx, id)
		if err != nil {
			return err
		}
		return k.put(ctx, tx, &m, t, alter)
	})
	k.moved.Wake()
	return m, err
}

// put alters a machine that was read in the same transaction.
func (k *Machinist) put(ctx context.Context, tx store.Tx, m *machine.Machine, t event.Type, alter func(m *machine.Machine) error) error {
	from := m.State
	m.UpdatedAt = k.Now().UTC().Truncate(time.Microsecond)
	if err := alter(m); err != nil {
		return err
	}
	if err := tx.Machines().Put(ctx, m); err != nil {
		return err
	}
	reason := ""
	if len(m.Events) > 0 {
		reason = m.Events[0].Reason
	}
	err := store.Acted(ctx, tx, store.Act{
		Source: "machinist", Action: string(t), Target: m.ID, Reason: reason,
		Before: map[string]any{"state": from}, After: map[string]any{"state": m.State, "sandbox": m.Sandbox, "app": m.App},
	})
	if err != nil {
		return err
	}
	return tx.Events().Append(ctx, happened(ctx, m, t, m.UpdatedAt, map[string]any{"from": from, "to": m.State, "reason": reason, "sandbox": m.Sandbox}))
}

func happened(ctx context.Context, m *machine.Machine, t event.Type, at time.Time, data map[string]any) *event.Event {
	data["app"], data["name"] = m.App, m.Name
	text, _ := json.Marshal(data) // of words and numbers
	return &event.Event{Type: t, Version: 1, Entity: "machine", EntityID: m.ID, Owner: m.Owner, Actor: policy.ActorOf(ctx), At: at, Data: text}
}

// move is a change of state, noted among the machine's own events.
func (k *Machinist) move(m *machine.Machine, to machine.State, e machine.Event) (err error) {
	if m.State, err = m.State.To(to); err != nil {
		return err
	}
	if e.Source == "" {
		e.Source = "flyd"
	}
	const most = 500
	e.At, e.Reason = k.Now().UTC().Truncate(time.Millisecond), e.Reason[:min(len(e.Reason), most)]
	m.Note(e)
	if to == machine.Destroyed {
		m.DestroyedAt = m.UpdatedAt
	}
	return nil
}
