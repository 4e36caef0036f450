package worker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// putAside saves a sandbox and destroys it: it lies on disk and uses nothing
// else until it goes on.
func (k *kept) putAside(ctx context.Context, box *sandbox.Sandbox, o live.SnapshotOrder) (live.SnapshotMade, error) {
	frozen, running, checkpointed := live.Frozen, live.Paused(""), live.Checkpointed
	// First, so that a process that comes after this one knows it may stand still.
	k.ledger.note(boxEntry{Paused: &frozen})
	made, err := k.saveFull(ctx, box, o)
	if err != nil {
		k.ledger.note(boxEntry{Paused: &running})
		return made, err
	}
	if err := k.ledger.add(boxEntry{Paused: &checkpointed, Folder: o.ID}); err != nil {
		return made, err
	}
	k.mu.Lock()
	k.paused, k.aside = live.Checkpointed, o.ID
	k.mu.Unlock()
	k.leaveBox(ctx, box)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.box = nil
	k.room.giveMemory(k.memory)
	k.memory = 0
	return made, nil
}

// leaveBox destroys the driver's sandbox, and keeps its commands for when it
// goes on.
func (k *kept) leaveBox(ctx context.Context, box *sandbox.Sandbox) {
	used := k.measure(ctx, box).CPU
	k.mu.Lock()
	if used > k.spent {
		k.spent = used
		k.ledger.note(boxEntry{Spent: used})
	}
	k.leaving = box
	k.mu.Unlock()
	if err := box.Leave(ctx); err != nil {
		// The next start sweeps it; meanwhile people have to know.
		k.log.Error("could not destroy a sandbox that was saved", "error", err)
	}
	k.live.Add(-1)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.execs {
		e.mu.Lock()
		if e.exec != nil && e.result == nil && e.exec.Left() {
			e.exec = nil
			k.detached = append(k.detached, detached{&pastExec{order: e.order, began: e.began, started: true}, e})
		}
		e.mu.Unlock()
	}
}

// fromSnapshot makes a driver's sandbox that goes on from a snapshot.
func (k *kept) fromSnapshot(ctx context.Context, id, snapshot string) (*sandbox.Sandbox, error) {
	m, err := k.base.manifest(snapshot)
	if err != nil {
		return nil, err
	}
	limits := m.Limits
	if k.made.Driver == "" { // a fork may have more or less of what can be changed
		limits.Memory, limits.MilliCPU = k.limits.Memory, k.limits.MilliCPU
	}
	k.image = m.Image
	return sandbox.Open(ctx, sandbox.Options{
		Driver: k.driver, OutputCap: defaultExecOutput, Logger: k.log, Brake: k.brake, Subject: k.subject(),
		Spec: sandbox.Spec{
			ID: id, Image: m.Image, Env: k.order.Spec.Env, Limits: limits, Network: k.order.Spec.Network,
			Labels:  map[string]string{"kept": k.order.ID, "worker": k.WorkerID},
			Restore: filepath.Join(k.base.checkpoint(snapshot), memoryName), Generation: m.Generation,
		},
		Report: func(h sandbox.Handle) error { return k.ledger.add(boxEntry{Handle: &h}) },
	})
}

// fromAside lets a sandbox go on that lies on disk.
//
// Preconditions: the caller holds the turn.
func (k *kept) fromAside(ctx context.Context) error {
	k.mu.Lock()
	memory, aside := k.made.Enforced.Memory, k.aside
	k.mu.Unlock()
	if !k.room.takeMemory(memory) {
		return errNoRoom
	}
	k.makeWay(ctx)
	if err := k.revive(ctx, aside); err != nil {
		k.room.giveMemory(memory)
		return err
	}
	k.mu.Lock()
	k.memory = memory
	k.mu.Unlock()
	return nil
}

// revive makes the sandbox anew from a snapshot, and goes on with its commands.
func (k *kept) revive(ctx context.Context, snapshot string) error {
	m, err := k.base.manifest(snapshot)
	if err != nil {
		return err
	}
	at := map[string]sandbox.Offsets{}
	for _, x := range m.Execs {
		at[x.Order.ID] = x.At
	}
	box, err := k.fromSnapshot(ctx, k.handle, snapshot)
	if err != nil {
		return err
	}
	k.mu.Lock()
	warm, running := k.made.Warm, live.Paused("")
	k.box, k.paused = box, ""
	k.made = k.describe(box, warm)
	k.ledger.note(boxEntry{Boot: k.base.boot, Made: &k.made, Paused: &running, Memory: k.made.Enforced.Memory})
	var kept, cut []detached
	for _, d := range k.detached {
		if _, saved := at[d.past.order.ID]; saved || len(m.Execs) == 0 {
			kept = append(kept, d)
		} else {
			cut = append(cut, d)
		}
	}
	k.detached = kept
	close(k.next)
	k.next = make(chan struct{})
	k.mu.Unlock()
	k.live.Add(1)
	for _, d := range kept {
		if to, saved := at[d.past.order.ID]; saved {
			if err := d.exec.out.cutTo(to); err != nil {
				k.log.Error("could not set the output of a command back", "exec", d.past.order.ID, "error", err)
			}
		}
	}
	for _, d := range cut {
		k.then(func() {
			d.exec.lost(sandbox.Killed, "the sandbox was set back to a moment before it", d.past.began)
		})
	}
	k.attachDetached(ctx)
	return nil
}

// setBack sets a sandbox back to a snapshot of it, in place. What runs now and
// did not then is ended.
func (k *kept) setBack(ctx context.Context, snapshot string) (live.Made, error) {
	if err := k.takeTurn(ctx); err != nil {
		return live.Made{}, err
	}
	defer k.giveTurn()
	box, paused, err := k.stands()
	if err == nil {
		_, err = k.base.manifest(snapshot)
	}
	if err != nil {
		return live.Made{}, err
	}
	checkpointed := live.Checkpointed
	if box != nil {
		// From here on it is this snapshot that is gone on from, whatever happens.
		if paused == "" {
			if err := box.Pause(ctx); err != nil {
				return live.Made{}, err
			}
		}
		if err := k.ledger.add(boxEntry{Paused: &checkpointed, Folder: snapshot}); err != nil {
			return live.Made{}, err
		}
		k.leaveBox(ctx, box)
	}
	k.mu.Lock()
	k.box, k.paused, k.aside = nil, live.Checkpointed, snapshot
	held := k.memory
	k.memory = 0
	k.mu.Unlock()
	k.room.giveMemory(held)
	if err := k.fromAside(ctx); err != nil {
		return live.Made{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.made, nil
}

// inherit goes on with the commands that ran at the moment of the snapshot that
// a new sandbox was made from.
func (k *kept) inherit(ctx context.Context) error {
	m, err := k.base.manifest(k.order.Restore)
	if err != nil {
		return err
	}
	for _, x := range m.Execs {
		order := x.Order
		order.Sandbox = k.order.ID
		e := k.newExec(order, k.sheets.take())
		e.began = x.Began
		for i, n := range []int64{x.At.Stdout, x.At.Stderr} {
			if err := copyPrefix(fmt.Sprintf("%s/%s.%d", k.base.checkpoint(k.order.Restore), order.ID, i+1), e.out.name(i), n); err != nil {
				return err
			}
			if err := e.out.count(i, n); err != nil {
				return err
			}
		}
		if err := e.ledger.add(execLine{Version: keptVersion, Order: &e.order, Began: x.Began, Started: true}); err != nil {
			return err
		}
		k.mu.Lock()
		k.execs[order.ID] = e
		k.running++
		k.untold++
		k.detached = append(k.detached, detached{&pastExec{order: order, began: x.Began, started: true}, e})
		k.mu.Unlock()
		close(e.ready)
	}
	k.attachDetached(ctx)
	return nil
}

// abandon ends what was made of a snapshot and could not be given its commands.
func (k *kept) abandon(ctx context.Context) {
	k.live.Add(-1)
	k.mu.Lock()
	for _, e := range k.execs {
		e.ledger.rest()
		e.out.rest()
	}
	k.mu.Unlock()
	if err := k.box.End(context.WithoutCancel(ctx), sandbox.OutcomeCancelled, "it could not be made"); err != nil {
		k.log.Error("could not destroy a sandbox", "error", err)
	}
}

// dropAside removes the checkpoint that a sandbox was put aside as. What it was
// set back to is a snapshot of its own, which stays.
func (k *kept) dropAside() {
	if err := os.RemoveAll(k.base.checkpoint(live.Aside(k.order.ID))); err != nil {
		k.log.Error("could not remove the checkpoint of a sandbox", "error", err)
	}
}
