package keeper

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// PauseSandbox makes a sandbox stand still. One that does so already stays as
// it is.
func (k *Keeper) PauseSandbox(ctx context.Context, id string, how live.Paused) (live.Sandbox, error) {
	s, host, err := k.free(ctx, id)
	if err != nil || s.Paused != "" {
		return s, err
	}
	generation := s.Generation
	k.unfollow(id) // before it answers no more
	switch how {
	case live.Frozen:
		err = host.PauseSandbox(ctx, id)
	case live.Checkpointed:
		generation++
		_, err = host.SnapshotSandbox(ctx, live.SnapshotOrder{ID: aside(id), Sandbox: id, Kind: live.Full, Generation: generation, Aside: true})
	default:
		err = fault.Field("mode", "%q is neither freeze nor checkpoint", clip(string(how)))
	}
	if err != nil {
		k.follow(&s) //nolint:contextcheck // following goes on in the keeper's life
		return s, err
	}
	return k.alter(ctx, id, event.SandboxPaused, map[string]any{"mode": how, "generation": generation}, func(s *live.Sandbox, _ time.Time) error {
		s.Paused, s.Generation = how, generation
		return nil
	})
}

// aside is the name of the checkpoint that a sandbox was put aside as.
func aside(id string) string { return "aside" + id }

// ResumeSandbox lets a sandbox go on. Its time to live counts anew.
func (k *Keeper) ResumeSandbox(ctx context.Context, id string) (live.Sandbox, error) {
	s, host, err := k.free(ctx, id)
	if err != nil || s.Paused == "" {
		return s, err
	}
	if err := k.demandFree(ctx, &s); err != nil {
		return s, err
	}
	made, err := host.ResumeSandbox(ctx, id)
	if err != nil {
		return s, err
	}
	return k.alter(ctx, id, event.SandboxResumed, map[string]any{"mode": s.Paused, "generation": s.Generation}, func(s *live.Sandbox, now time.Time) error {
		s.Paused, s.Made.Enforced = "", made.Enforced
		s.Deadline = deadline(s.Spec.TTL, now)
		return nil
	})
}

// SnapshotSandbox takes a snapshot.
func (k *Keeper) SnapshotSandbox(ctx context.Context, id string, kind live.SnapshotKind, label string) (snap live.Snapshot, err error) {
	if kind != live.Files && kind != live.Full {
		return snap, fault.Field("kind", "%q is neither files nor full", clip(string(kind)))
	}
	s, host, err := k.awake(ctx, id)
	if err != nil {
		return snap, err
	}
	name, err := sandbox.NewID()
	if err != nil {
		return snap, err
	}
	snap = live.Snapshot{
		ID: name, Sandbox: id, Owner: s.Owner, Kind: kind, Generation: s.Generation + 1, Label: clip(label), Worker: s.Worker,
		Spec: s.Spec, Made: s.Made, CreatedAt: k.now(),
	}
	made, err := host.SnapshotSandbox(ctx, live.SnapshotOrder{ID: snap.ID, Sandbox: id, Kind: kind, Generation: snap.Generation})
	if err != nil {
		return snap, err
	}
	snap.SHA256, snap.Bytes, snap.Execs = made.SHA256, made.Bytes, made.Execs
	err = k.Store.Update(ctx, func(tx store.Tx) error {
		x, err := tx.Sandboxes().Get(ctx, id)
		if err != nil {
			return err
		}
		x.Generation = max(x.Generation, snap.Generation)
		if err := tx.Sandboxes().Put(ctx, &x); err != nil {
			return err
		}
		if err := tx.Sandboxes().AddSnapshot(ctx, &snap); err != nil {
			return err
		}
		if err := acted(ctx, tx, &x, string(event.SandboxSnapshotted), "", map[string]any{"snapshot": snap.ID, "kind": kind}); err != nil {
			return err
		}
		return tx.Events().Append(ctx, happened(&x, event.SandboxSnapshotted, actor(ctx), k.now(), map[string]any{
			"snapshot": snap.ID, "kind": kind, "generation": snap.Generation, "bytes": snap.Bytes,
		}))
	})
	if err != nil {
		_ = host.DropSnapshot(context.WithoutCancel(ctx), snap.ID)
	}
	return snap, err
}

// Snapshot returns a snapshot.
func (k *Keeper) Snapshot(ctx context.Context, id string) (snap live.Snapshot, err error) {
	c, err := caller(ctx)
	if err != nil {
		return snap, err
	}
	err = k.Store.View(ctx, func(tx store.Tx) (err error) {
		if snap, err = tx.Sandboxes().GetSnapshot(ctx, id); err != nil {
			return err
		}
		return demandProject(ctx, tx, c, snap.Sandbox)
	})
	if fault.Is(err, fault.NotFound) || err == nil && !c.Sees(snap.Owner, c.Project()) {
		return live.Snapshot{}, fault.New(fault.NotFound, "No snapshot has the id %q.", id)
	}
	return snap, err
}

// Snapshots lists snapshots, newest first.
func (k *Keeper) Snapshots(ctx context.Context, f store.SnapshotFilter) (list []live.Snapshot, err error) {
	c, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	f.Owner = cmp.Or(c.OnlyOwner(), f.Owner)
	err = k.Store.View(ctx, func(tx store.Tx) (err error) {
		if err := demandProject(ctx, tx, c, f.Sandbox); err != nil {
			return err
		}
		list, err = tx.Sandboxes().Snapshots(ctx, f)
		return err
	})
	return list, err
}

// DropSnapshot removes a snapshot.
func (k *Keeper) DropSnapshot(ctx context.Context, id string) error {
	snap, err := k.Snapshot(ctx, id)
	if err != nil {
		return err
	}
	if snap.Kind == live.Full {
		host, err := k.host(ctx, &live.Sandbox{ID: snap.Sandbox, Worker: snap.Worker})
		if err != nil {
			return err
		}
		if err := host.DropSnapshot(ctx, id); err != nil {
			return err
		}
	}
	return k.Store.Update(ctx, func(tx store.Tx) error {
		if err := tx.Sandboxes().DropSnapshot(ctx, id); err != nil {
			return err
		}
		return store.Acted(ctx, tx, store.Act{Source: "keeper", Action: "snapshot.delete", Target: id, Before: map[string]any{"sandbox": snap.Sandbox, "kind": snap.Kind}})
	})
}

// ForkSandbox makes sandboxes that go on from the same moment, memory and all.
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
	snap, temporary, err := k.origin(ctx, id, f.Snapshot)
	if err != nil {
		return nil, err
	}
	if temporary {
		defer func() {
			if err := k.DropSnapshot(context.WithoutCancel(ctx), snap.ID); err != nil {
				k.Logger.Warn("could not drop the snapshot of a fork", "snapshot", snap.ID, "error", err)
			}
		}()
	}
	spec := snap.Spec
	spec.Sync = nil // one session has one sandbox that follows it, unless somebody says so
	if !f.Secrets {
		spec = spec.WithoutSecrets()
	}
	if f.Labels != nil {
		spec.Labels = f.Labels
	}
	if err := k.record(ctx, store.Act{Action: "sandbox.fork", Target: id, After: map[string]any{"count": f.Count, "snapshot": snap.ID, "secrets": f.Secrets}}); err != nil {
		return nil, err
	}
	var list []live.Sandbox
	for range f.Count {
		s, _, err := k.create(ctx, live.Request{Spec: spec}, birth{
			parent: snap.Sandbox, worker: snap.Worker, snapshot: snap.ID, generation: snap.Generation, execs: snap.Execs,
		})
		if err != nil {
			return list, k.undoForks(ctx, list, err)
		}
		list = append(list, s)
	}
	return list, nil
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
		if err := tx.Execs().Add(ctx, &x); err != nil {
			return err
		}
		data := map[string]any{"sandbox": s.ID, "command": briefly(x.Command), "fork_of": id}
		if err := tx.Events().Append(ctx, ran(&x, event.ExecStarted, actor(ctx), x.CreatedAt, data)); err != nil {
			return err
		}
	}
	return nil
}

// undoForks ends the forks that were made when one could not be.
func (k *Keeper) undoForks(ctx context.Context, made []live.Sandbox, why error) error {
	for i := range made {
		if _, err := k.end(context.WithoutCancel(ctx), made[i].ID, sandbox.OutcomeCancelled, "another fork could not be made"); err != nil {
			k.Logger.Error("could not end a fork", "sandbox", made[i].ID, "error", err)
		}
	}
	return fmt.Errorf("fork number %d could not be made: %w", len(made)+1, why)
}

// origin is the snapshot to fork from: the one that is named, or one of now.
func (k *Keeper) origin(ctx context.Context, id, name string) (snap live.Snapshot, temporary bool, err error) {
	if name == "" {
		snap, err = k.SnapshotSandbox(ctx, id, live.Full, "for a fork")
		return snap, true, err
	}
	snap, err = k.Snapshot(ctx, name)
	switch {
	case err != nil:
	case snap.Sandbox != id:
		err = fault.Field("snapshot", "is of another sandbox")
	case snap.Kind != live.Full:
		err = fault.Field("snapshot", "has files only; fork from one that is full").WithCode("not_full")
	}
	return snap, false, err
}

// RestoreSandbox sets a sandbox back to a snapshot of it, in place.
func (k *Keeper) RestoreSandbox(ctx context.Context, id, snapshot string) (live.Sandbox, error) {
	s, host, err := k.free(ctx, id)
	if err != nil {
		return s, err
	}
	snap, _, err := k.origin(ctx, id, snapshot)
	if err != nil {
		return s, err
	}
	if snapshot == "" {
		return s, fault.Field("snapshot", "must name a snapshot")
	}
	if err := k.demandFree(ctx, &s); err != nil {
		return s, err
	}
	end := k.begin(id)
	defer end()
	made, err := host.OpenSandbox(ctx, live.Order{ID: id, Owner: s.Owner, Spec: s.Spec, Restore: snap.ID})
	if err != nil {
		return s, err
	}
	return k.alter(ctx, id, event.SandboxRestored, map[string]any{"snapshot": snap.ID, "generation": snap.Generation}, func(s *live.Sandbox, _ time.Time) error {
		s.Paused, s.Generation, s.Made.Enforced = "", max(s.Generation, snap.Generation), made.Enforced
		return nil
	})
}

// PutFiles unpacks a tar stream below a folder of a sandbox.
func (k *Keeper) PutFiles(ctx context.Context, id, dir string, tar io.Reader) error {
	_, host, err := k.awake(ctx, id)
	if err != nil {
		return err
	}
	return host.PutFiles(ctx, id, dir, tar)
}

// GetFiles packs a path of a sandbox as a tar stream into w.
func (k *Keeper) GetFiles(ctx context.Context, id, path string, w io.Writer) error {
	_, host, err := k.awake(ctx, id)
	if err != nil {
		return err
	}
	return host.GetFiles(ctx, id, path, w)
}
