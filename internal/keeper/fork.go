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

// ForkSandbox makes sandboxes that go on from the same moment, memory and all:
// as many as are asked for, or none. None outlives a manager that is killed
// before it could tell of them, nor does the snapshot that is taken for them.
func (k *Keeper) ForkSandbox(ctx context.Context, id string, f live.Fork) ([]live.Sandbox, error) {
	if f.Count < 1 || f.Count > live.MaxForks {
		return nil, fault.Field("count", "must be from 1 to %d", live.MaxForks)
	}
	if err := live.CheckLabels(f.Labels); err != nil {
		return nil, err
	}
	if s, err := k.Sandbox(ctx, id); err == nil {
		if err := k.demandOwn(ctx, &s, "fork it; ask for a replica"); err != nil {
			return nil, err
		}
	}
	g := &forking{k: k, asked: f}
	if err := g.begin(ctx, id); err != nil {
		return nil, err
	}
	defer g.done()
	list, err := g.make(ctx)
	if err == nil {
		err = g.finish(ctx)
	}
	if err != nil {
		k.takeBack(ctx, g.work, sandbox.OutcomeCancelled, "another fork could not be made")
		return nil, err
	}
	return list, nil
}

// forking is a fork that goes on.
type forking struct {
	k     *Keeper
	asked live.Fork
	from  live.Snapshot
	take  hosting         // takes from, which is for this fork alone; nil is that it was there
	work  live.Unfinished // as it is written down
	done  func()
}

// begin decides what the forks come from and what they are called, and writes it
// down.
func (g *forking) begin(ctx context.Context, id string) (err error) {
	k := g.k
	g.work = live.Unfinished{What: live.Forking, Sandbox: id, CreatedAt: k.now()}
	if g.work.ID, err = sandbox.NewID(); err != nil {
		return err
	}
	if g.asked.Snapshot != "" {
		g.from, err = k.fullOf(ctx, id, g.asked.Snapshot, "fork")
	} else {
		var s live.Sandbox
		if s, g.take, err = k.awake(ctx, id); err == nil {
			g.from, err = k.nextSnapshot(&s, live.Full, "for a fork")
		}
		g.work.Snapshot = g.from.ID
	}
	for len(g.work.Sandboxes) < g.asked.Count && err == nil {
		var fork string
		fork, err = sandbox.NewID()
		g.work.Sandboxes = append(g.work.Sandboxes, fork)
	}
	if err != nil {
		return err
	}
	g.work.Worker = g.from.Worker
	g.done, err = k.undertake(ctx, &g.work, &store.Act{
		Action: "sandbox.fork", Target: id, After: map[string]any{"count": g.asked.Count, "snapshot": g.from.ID, "secrets": g.asked.Secrets},
	})
	return err
}

// make makes the forks.
func (g *forking) make(ctx context.Context) (list []live.Sandbox, err error) {
	k, snap := g.k, &g.from
	if g.take != nil {
		if err := k.take(ctx, g.take, snap, func(store.Tx, *live.Sandbox) error { return nil }); err != nil {
			return nil, err
		}
	}
	spec := snap.Spec
	spec.Sync = nil // one session has one sandbox that follows it, unless somebody says so
	if !g.asked.Secrets {
		spec = spec.WithoutSecrets()
	}
	if g.asked.Labels != nil {
		spec.Labels = g.asked.Labels
	}
	for i, id := range g.work.Sandboxes {
		s, _, err := k.create(ctx, live.Request{Spec: spec}, birth{
			id: id, parent: snap.Sandbox, worker: snap.Worker, snapshot: snap.ID, generation: snap.Generation, execs: snap.Execs,
		})
		if err != nil {
			return nil, fmt.Errorf("fork number %d could not be made: %w", i+1, err)
		}
		list = append(list, s)
	}
	return list, nil
}

// finish removes the snapshot that was for this fork alone, and writes down that
// the forks are somebody's. A snapshot that cannot be removed now is later.
func (g *forking) finish(ctx context.Context) error {
	k, left := g.k, live.Unfinished{ID: g.work.ID}
	if g.take != nil {
		if err := g.take.DropSnapshot(context.WithoutCancel(ctx), g.from.ID); err != nil {
			k.Logger.Warn("could not drop the snapshot of a fork; it is tried again", "snapshot", g.from.ID, "error", err)
			left = g.work
			left.Sandboxes = nil
		}
	}
	return k.Store.Update(ctx, func(tx store.Tx) error { return k.answerIn(ctx, tx, &left) })
}

// forkExecs writes down the commands that go on in a fork, before they do: their
// end may come at once.
func (k *Keeper) forkExecs(ctx context.Context, tx store.Tx, s *live.Sandbox, ids []string) error {
	for _, id := range ids {
		e, err := tx.Execs().Get(ctx, id)
		if fault.Is(err, fault.NotFound) {
			continue // it was forgotten meanwhile
		}
		if err != nil {
			return err
		}
		x := e
		x.ID, x.Sandbox, x.Owner, x.Project, x.Origin = job.NewID(), s.ID, s.Owner, s.Spec.Project(), id
		x.State, x.Result, x.EndedAt, x.CreatedAt = live.Running, nil, time.Time{}, k.now()
		if err := tx.Execs().Add(ctx, &x, nil); err != nil {
			return err
		}
		data := map[string]any{"sandbox": s.ID, "command": briefly(x.Command), "fork_of": id}
		if err := tx.Events().Append(ctx, ran(&x, event.ExecStarted, policy.ActorOf(ctx), x.CreatedAt, data)); err != nil {
			return err
		}
	}
	return nil
}
