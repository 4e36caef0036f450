package keeper

import (
	"context"
	"fmt"
	"time"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// CreateSandbox makes a sandbox and returns it when it runs. A name that an open
// sandbox of the caller has answers that one; made says which it was.
func (k *Keeper) CreateSandbox(ctx context.Context, req live.Request) (s live.Sandbox, made bool, err error) {
	if err := req.Check(k.Terms); err != nil {
		return s, false, err
	}
	return k.create(ctx, req, birth{})
}

// birth is where a sandbox comes from, if it is not a fresh one.
type birth struct {
	id         string // that it gets; "" is a new one
	parent     string
	worker     string // that has the snapshot
	snapshot   string
	generation int64
	execs      []string // that go on in it
}

func (k *Keeper) create(ctx context.Context, req live.Request, from birth) (s live.Sandbox, made bool, err error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return s, false, err
	}
	if req.Spec.Labels, err = placed(c, req.Spec.Labels); err != nil {
		return s, false, err
	}
	if err := noStorage(c, req.Spec.Sync); err != nil {
		return s, false, err
	}
	if k.Demand != nil {
		if err := k.Demand(ctx); err != nil {
			return s, false, err
		}
	}
	if err := k.Stops(sandbox.Subject{Parent: from.parent, Labels: req.Spec.Labels}); err != nil {
		return s, false, err
	}
	w, err := k.choose(k.Workers(), req.Spec.Driver, from.worker, nil)
	if err != nil && req.Spec.Sync == nil { // files are followed where the worker's own stream is
		if x, none := k.choose(k.seconds(ctx), req.Spec.Driver, from.worker, nil); none == nil {
			w, err = x, nil
		}
	}
	if err != nil {
		return s, false, err
	}
	s, making, err := k.admit(ctx, c, req, from, w)
	if err == nil && making == nil {
		return s, true, nil
	}
	if fault.CodeOf(err) == store.CodeNameTaken {
		s, err = k.named(ctx, c, req.Name)
		return s, false, err
	}
	if err != nil {
		return s, false, err
	}
	s, err = making.finish(ctx, s)
	return s, true, err
}

// choose picks a worker that serves a driver, one that was not tried before and
// has few sandboxes.
func (k *Keeper) choose(workers []Worker, driver, only string, tried map[string]bool) (Worker, error) {
	var fits []Worker
	full := false
	for _, w := range workers {
		switch {
		case tried[w.ID] || !w.serves(driver) || only != "" && w.ID != only:
		case w.Paused:
			full = true
		default:
			fits = append(fits, w)
		}
	}
	if len(fits) > 0 {
		best := fits[0]
		for _, w := range fits[1:] {
			if k.heldBy(w.ID) < k.heldBy(best.ID) {
				best = w
			}
		}
		return best, nil
	}
	switch {
	case len(workers) == 0:
		return Worker{}, fault.New(fault.Unavailable, "No worker is connected, so no sandbox can be made. Start one, or wait until it is back.").WithCode("no_worker").Retry(5 * time.Second)
	case full || len(tried) > 0:
		return Worker{}, fault.New(fault.Exhausted, "No worker has room for another sandbox now. End some, or try again soon.").WithCode("no_room").Retry(5 * time.Second)
	case only != "":
		return Worker{}, fault.New(fault.Unavailable, "The worker %s, which has the snapshot, is not connected.", only).WithCode("worker_away").Retry(5 * time.Second)
	}
	f := fault.New(fault.Unavailable, "no connected worker serves the driver %q", driver).WithCode("driver_unavailable")
	f.Field = "driver"
	return Worker{}, f
}

// heldBy is how many sandboxes are being made at a worker: those that run do
// not tell how busy it is.
func (k *Keeper) heldBy(worker string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.begun["worker "+worker]
}

// admit writes a sandbox down. Its first worker begins to make it meanwhile. One
// that was made in a breath is written down as it runs, and there is no making
// left to finish.
func (k *Keeper) admit(ctx context.Context, c policy.Caller, req live.Request, from birth, w Worker) (s live.Sandbox, m *making, err error) {
	id := from.id
	if id == "" {
		if id, err = sandbox.NewID(); err != nil {
			return s, nil, err
		}
	}
	now := k.now()
	s = live.Sandbox{
		ID: id, Owner: c.ID, Name: req.Name, Session: req.Session, App: req.App, Spec: req.Spec, State: sandbox.StatePending, Worker: w.ID,
		Parent: from.parent, Generation: from.generation, CreatedAt: now, ActiveAt: now, LinkKey: live.NewLinkKey(),
	}
	pending := happened(&s, event.SandboxPending, c.ID, now, map[string]any{"name": s.Name, "image": s.Spec.Image, "driver": s.Spec.Driver, "parent": s.Parent})
	if s.State, err = s.State.To(sandbox.StateCreating); err != nil {
		return s, nil, err
	}
	creating := happened(&s, event.SandboxCreating, c.ID, now, map[string]any{"worker": w.ID})
	m = &making{k: k, order: live.Order{ID: s.ID, Owner: s.Owner, Parent: s.Parent, Spec: s.Spec, Files: req.Files, Restore: from.snapshot}}
	m.ctx, m.cancel = context.WithTimeoutCause(ctx, k.Provision, errProvision)
	end := k.begin(s.ID)
	defer end()
	if req.Name == "" && from.snapshot == "" && k.Alone { // nobody else can have asked for it, or know it
		if m.begin(w); m.within(ctx, breath) {
			after, stop := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanupTime, errStopped)
			defer stop()
			s, err = k.writeMade(after, s, m, pending, creating)
			m.cancel()
			return s, nil, err
		}
	}
	err = k.beside(ctx, w.Host, func() { m.end(w) }, func(tx store.Tx, goAhead func()) error {
		x := s
		if err := tx.Sandboxes().Add(ctx, &x); err != nil {
			return err
		}
		if err := tx.Events().Append(ctx, pending, creating); err != nil {
			return err
		}
		err := k.forkExecs(ctx, tx, &x, from.execs)
		if err == nil {
			goAhead()
		}
		return err
	})
	if err != nil {
		m.cancel()
		if m.over != nil {
			<-m.over
		}
		if m.asked {
			k.endUnwanted(context.WithoutCancel(ctx), s.ID, w)
		}
	}
	return s, m, err
}

// making is the making of a sandbox that was admitted.
type making struct {
	k      *Keeper
	ctx    context.Context // ends when it takes too long
	cancel context.CancelFunc
	order  live.Order
	worker Worker // that was asked last
	asked  bool
	over   chan struct{} // closed when a worker that was asked aside has answered; nil where none was
	made   live.Made
	err    error
}

// begin has a worker make it, aside.
func (m *making) begin(w Worker) {
	m.over = make(chan struct{})
	go func() {
		defer close(m.over)
		m.ask(w)
	}()
}

// within reports whether it was made within a while, for somebody who still waits.
func (m *making) within(ctx context.Context, d time.Duration) bool {
	soon := time.NewTimer(d)
	defer soon.Stop()
	select {
	case <-m.over:
		return m.err == nil && ctx.Err() == nil
	case <-soon.C:
		return false
	}
}

// end waits for the worker that was asked aside, or asks it.
func (m *making) end(w Worker) {
	if m.over == nil {
		m.ask(w)
		return
	}
	<-m.over
}

// ask has a worker make it.
func (m *making) ask(w Worker) {
	end, endWorker := m.k.begin(m.order.ID), m.k.begin("worker "+w.ID)
	defer end()
	defer endWorker()
	m.worker, m.asked = w, true
	m.made, m.err = w.Host.OpenSandbox(m.ctx, m.order)
}

// finish asks further workers where one has no room, and writes down that the
// sandbox was made. A caller who is gone when it is done gets it ended: nobody
// would.
func (m *making) finish(ctx context.Context, s live.Sandbox) (live.Sandbox, error) {
	defer m.cancel()
	k := m.k
	tried := map[string]bool{m.worker.ID: true}
	for (fault.Is(m.err, fault.Exhausted) || fault.Is(m.err, fault.Unavailable)) && m.ctx.Err() == nil && m.order.Restore == "" {
		next, none := k.choose(k.Workers(), m.order.Spec.Driver, "", tried)
		if none != nil {
			break
		}
		m.ask(next)
		tried[next.ID] = true
	}
	err := m.err
	after, stop := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanupTime, errStopped)
	defer stop()
	if err == nil && ctx.Err() != nil && s.Name == "" {
		err = fault.New(fault.Unavailable, "who asked for the sandbox hung up: %w", context.Cause(ctx))
	}
	if err != nil {
		if m.ctx.Err() != nil && ctx.Err() == nil {
			err = fault.New(fault.Unavailable, "the sandbox was not made within %s", k.Provision).WithCode("provision_timeout")
		}
		k.abandon(after, s, m.worker, err)
		return s, err
	}
	return k.running(after, s.ID, m.worker, m.made)
}

var errProvision = fault.New(fault.Unavailable, "the sandbox was not made in time").WithCode("provision_timeout")

// abandon ends what could not be made.
func (k *Keeper) abandon(ctx context.Context, s live.Sandbox, w Worker, why error) {
	k.endUnwanted(ctx, s.ID, w)
	if err := k.finish(ctx, s.ID, sandbox.OutcomeLost, why.Error(), nil); err != nil {
		k.Logger.Error("could not record that a sandbox was not made", "sandbox", s.ID, "error", err)
	}
}

// endUnwanted ends what nobody waits for at the worker that may have made it.
func (k *Keeper) endUnwanted(ctx context.Context, id string, w Worker) {
	bounded, stop := context.WithTimeoutCause(ctx, cleanupTime, errStopped)
	defer stop()
	if err := w.Host.EndSandbox(bounded, unwanted(id)); err != nil {
		k.Logger.Warn("could not end a sandbox that was given up; it is tried again", "sandbox", id, "worker", w.ID, "error", err)
		k.endLater(ctx, id, w.ID)
	}
}

func unwanted(id string) live.Closing {
	return live.Closing{ID: id, Outcome: sandbox.OutcomeLost, Reason: "it was not wanted any more"}
}

// endLater writes down that a sandbox is to be ended at a worker that could not
// be told: it need not register again to go on.
func (k *Keeper) endLater(ctx context.Context, id, worker string) {
	now := k.now()
	err := k.Store.Update(ctx, func(tx store.Tx) error {
		return tx.Sandboxes().PutUnfinished(ctx, &live.Unfinished{
			ID: job.NewID(), What: live.Making, Manager: k.ID, SeenAt: now, Sandbox: id, Worker: worker, Sandboxes: []string{id}, GivenUp: true, CreatedAt: now,
		})
	})
	if err != nil {
		k.Logger.Error("could not write down that a sandbox is to be ended; its worker will when it registers", "sandbox", id, "worker", worker, "error", err)
	}
}

// running writes down that a sandbox was made. One that was ended meanwhile is
// ended at its worker too.
func (k *Keeper) running(ctx context.Context, id string, w Worker, made live.Made) (s live.Sandbox, err error) {
	err = k.Store.Update(ctx, func(tx store.Tx) error {
		if s, err = tx.Sandboxes().Get(ctx, id); err != nil {
			return err
		}
		runs, err := k.runs(ctx, &s, w, made)
		if err != nil {
			return err
		}
		if err := tx.Sandboxes().Put(ctx, &s); err != nil {
			return err
		}
		return tx.Events().Append(ctx, runs)
	})
	s.ID = id
	return s, k.recorded(ctx, &s, w, err)
}

// runs says of a sandbox that it was made, and returns the event of that.
func (k *Keeper) runs(ctx context.Context, s *live.Sandbox, w Worker, made live.Made) (_ *event.Event, err error) {
	if s.State, err = s.State.To(sandbox.StateRunning); err != nil {
		return nil, err
	}
	now := k.now()
	s.Worker, s.Made, s.StartedAt, s.ActiveAt = w.ID, made, now, now
	s.Spec.Limits = made.Enforced
	s.Deadline = deadline(s.Spec.TTL, now)
	s.ExpiresAt = due(s)
	return happened(s, event.SandboxRunning, policy.ActorOf(ctx), now, map[string]any{
		"worker": w.ID, "driver": made.Driver, "image": made.Image, "image_digest": made.Digest, "warm": made.Warm,
	}), nil
}

// writeMade writes a sandbox down that was made in a breath, with what came before.
func (k *Keeper) writeMade(ctx context.Context, s live.Sandbox, m *making, before ...*event.Event) (live.Sandbox, error) {
	runs, err := k.runs(ctx, &s, m.worker, m.made)
	if err == nil {
		err = k.writeNew(ctx, &s, append(before, runs))
	}
	return s, k.recorded(ctx, &s, m.worker, err)
}

// writeNew writes a new sandbox down, and has it at hand: most are used at once.
func (k *Keeper) writeNew(ctx context.Context, s *live.Sandbox, events []*event.Event) error {
	changes, written := k.glances.begin(), false
	defer func() {
		if written {
			k.glances.endWith(*s, changes)
		} else {
			k.glances.end()
		}
	}()
	err := k.records.Update(ctx, func(tx store.Tx) error {
		if err := tx.Sandboxes().Add(ctx, s); err != nil {
			return err
		}
		return tx.Events().Append(ctx, events...)
	})
	written = err == nil
	return err
}

// recorded sees to a sandbox that was made and written down, or could not be, and
// ends it at its worker then.
func (k *Keeper) recorded(ctx context.Context, s *live.Sandbox, w Worker, err error) error {
	if err != nil {
		k.endUnwanted(context.WithoutCancel(ctx), s.ID, w)
		return fmt.Errorf("record the sandbox: %w", err)
	}
	k.ended.Wake()
	k.followHere(s) //nolint:contextcheck // following goes on in the keeper's life
	return nil
}

// named waits until the open sandbox that has a name runs.
func (k *Keeper) named(ctx context.Context, c policy.Caller, name string) (s live.Sandbox, err error) {
	for {
		moved := k.ended.Wait() // before the look
		err = k.Store.View(ctx, func(tx store.Tx) (err error) {
			s, err = tx.Sandboxes().ByName(ctx, c.ID, name)
			return err
		})
		if err == nil && !c.Sees(s.Owner, s.Spec.Project()) {
			return live.Sandbox{}, fault.New(fault.Conflict, "A sandbox of another project has the name %q; take another.", name).WithCode(store.CodeNameTaken)
		}
		if err != nil || s.State == sandbox.StateRunning {
			return s, err
		}
		if s.State == sandbox.StateCompleting {
			return s, fault.New(fault.Conflict, "a sandbox with the name %q is just being ended; try again", name).WithCode("name_ending").Retry(time.Second)
		}
		select {
		case <-moved:
		case <-time.After(rhythm): // it may be made by another manager
		case <-ctx.Done():
			return s, context.Cause(ctx)
		}
	}
}

func deadline(ttl time.Duration, now time.Time) time.Time {
	if ttl == 0 {
		return time.Time{}
	}
	return now.Add(ttl)
}

// due is when the time of a sandbox is over; zero is never.
func due(s *live.Sandbox) (at time.Time) {
	if s.Paused != "" {
		return time.Time{}
	}
	at = s.Deadline
	if s.Spec.Idle > 0 {
		if idle := s.ActiveAt.Add(s.Spec.Idle); at.IsZero() || idle.Before(at) {
			at = idle
		}
	}
	return at
}
