package keeper

import (
	"cmp"
	"context"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// SnapshotSandbox takes a snapshot.
func (k *Keeper) SnapshotSandbox(ctx context.Context, id string, kind live.SnapshotKind, label string) (snap live.Snapshot, err error) {
	if kind != live.Files && kind != live.Full {
		return snap, fault.Field("kind", "%q is neither files nor full", clip(string(kind)))
	}
	s, host, err := k.awake(ctx, id)
	if err != nil {
		return snap, err
	}
	if snap, err = k.nextSnapshot(&s, kind, label); err != nil {
		return snap, err
	}
	keep := func(tx store.Tx, x *live.Sandbox) error {
		if err := tx.Sandboxes().AddSnapshot(ctx, &snap); err != nil {
			return err
		}
		return acted(ctx, tx, x, string(event.SandboxSnapshotted), "", map[string]any{"snapshot": snap.ID, "kind": kind})
	}
	if kind == live.Files { // a blob, which goes by itself when nobody names it
		return snap, k.take(ctx, host, &snap, keep)
	}
	u := live.Unfinished{ID: snap.ID, What: live.Saving, Sandbox: id, Worker: s.Worker, Snapshot: snap.ID, CreatedAt: snap.CreatedAt}
	done, err := k.undertake(ctx, &u, nil)
	if err != nil {
		return snap, err
	}
	defer done()
	err = k.take(ctx, host, &snap, func(tx store.Tx, x *live.Sandbox) error {
		if err := k.answerIn(ctx, tx, &live.Unfinished{ID: u.ID}); err != nil {
			return err
		}
		return keep(tx, x)
	})
	if err != nil {
		k.takeBack(ctx, u, sandbox.OutcomeCancelled, "")
	}
	return snap, err
}

// nextSnapshot is the snapshot that is taken of a sandbox next.
func (k *Keeper) nextSnapshot(s *live.Sandbox, kind live.SnapshotKind, label string) (live.Snapshot, error) {
	name, err := sandbox.NewID()
	return live.Snapshot{
		ID: name, Sandbox: s.ID, Owner: s.Owner, Kind: kind, Generation: s.Generation + 1, Label: clip(label), Worker: s.Worker,
		Spec: s.Spec, Made: s.Made, CreatedAt: k.now(),
	}, err
}

// take has a worker take a snapshot, and writes down that it did, with what keep
// does.
func (k *Keeper) take(ctx context.Context, host hosting, snap *live.Snapshot, keep func(tx store.Tx, x *live.Sandbox) error) error {
	made, err := host.SnapshotSandbox(ctx, live.SnapshotOrder{ID: snap.ID, Sandbox: snap.Sandbox, Kind: snap.Kind, Generation: snap.Generation})
	if err != nil {
		return err
	}
	snap.SHA256, snap.Bytes, snap.Execs = made.SHA256, made.Bytes, made.Execs
	return k.Store.Update(ctx, func(tx store.Tx) error {
		x, err := tx.Sandboxes().Get(ctx, snap.Sandbox)
		if err != nil {
			return err
		}
		x.Generation = max(x.Generation, snap.Generation)
		if err := tx.Sandboxes().Put(ctx, &x); err != nil {
			return err
		}
		if err := keep(tx, &x); err != nil {
			return err
		}
		return tx.Events().Append(ctx, happened(&x, event.SandboxSnapshotted, policy.ActorOf(ctx), k.now(), map[string]any{
			"snapshot": snap.ID, "kind": snap.Kind, "generation": snap.Generation, "bytes": snap.Bytes,
		}))
	})
}

// Snapshot returns a snapshot.
func (k *Keeper) Snapshot(ctx context.Context, id string) (snap live.Snapshot, err error) {
	c, err := policy.Asking(ctx)
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
	c, err := policy.Asking(ctx)
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

// fullOf returns a snapshot of a sandbox that has the memory too, to do something
// from it.
func (k *Keeper) fullOf(ctx context.Context, id, name, do string) (live.Snapshot, error) {
	if name == "" {
		return live.Snapshot{}, fault.Field("snapshot", "must name a snapshot")
	}
	snap, err := k.Snapshot(ctx, name)
	switch {
	case err != nil:
	case snap.Sandbox != id:
		err = fault.Field("snapshot", "is of another sandbox")
	case snap.Kind != live.Full:
		err = fault.Field("snapshot", "has files only; %s from one that is full", do).WithCode("not_full")
	}
	return snap, err
}
