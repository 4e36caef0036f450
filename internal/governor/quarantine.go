package governor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// Suspicion is why a worker is put under quarantine.
type Suspicion struct {
	Reason   string
	Source   string // "" is who asks
	Severity manifest.Severity
	Note     string // "" is none
}

// Quarantine keeps a worker from doing more, until somebody decides about it: it
// has no children, its work stands still, and it never had a network. The mark
// comes first and what was found is put aside before anything is changed; then
// the sandbox is frozen. A restriction is written down when it is in force.
func (g *Governor) Quarantine(ctx context.Context, id string, s Suspicion) (manifest.Worker, error) {
	if s.Source == "" {
		s.Source = policy.ActorOf(ctx)
	}
	w, err := g.mark(ctx, id, s)
	if err != nil {
		return w, err
	}
	work, stop := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanupTime, errSlow)
	defer stop()
	bundle := g.putAside(work, &w)
	held, frozen := g.Sandboxes.HoldSandbox(asOwner(work, &w), w.Sandbox)
	w, err = g.change(work, id, "quarantine_applied", event.FleetQuarantined, func(w *manifest.Worker) error {
		if !w.Quarantined() {
			return nil // it ended, or was released meanwhile
		}
		w.Quarantine.Bundle = bundle
		w.Quarantine.Restrictions.TaskExecutionPaused = held && frozen == nil
		return nil
	})
	g.Logger.LogAttrs(ctx, slog.LevelWarn, "worker_quarantined", slog.String("worker_id", id), slog.String("severity", string(s.Severity)), slog.String("reason", clip(s.Reason)), slog.String("source", s.Source))
	if err == nil && frozen != nil {
		err = fault.New(fault.Unavailable, "The worker %s is under quarantine and has no children, but its sandbox could not be frozen: %w", id, frozen).WithCode("not_frozen")
	}
	return w, err
}

// mark puts a worker under quarantine: from here on it has no children and its
// heartbeats are refused.
func (g *Governor) mark(ctx context.Context, id string, s Suspicion) (manifest.Worker, error) {
	return g.change(ctx, id, "quarantine", event.FleetQuarantined, func(w *manifest.Worker) error {
		switch {
		case w.State != manifest.Running:
			return fault.New(fault.Conflict, "The worker %s is %s; only one that runs can be put under quarantine.", id, w.State).WithCode("wrong_state")
		case w.Quarantined():
			return fault.New(fault.Conflict, "The worker %s is under quarantine already.", id).WithCode("already_quarantined")
		}
		now := g.now()
		w.Quarantine = &manifest.Quarantine{
			Reason: clip(s.Reason), Source: clip(s.Source), Severity: s.Severity, At: now, Status: manifest.QuarantineOn, Notes: []manifest.Note{},
			Restrictions: manifest.Restrictions{ReplicationBlocked: true, NetworkRestricted: true},
		}
		if s.Note != "" {
			w.Quarantine.Notes = append(w.Quarantine.Notes, manifest.Note{At: now, By: policy.ActorOf(ctx), Text: clip(s.Note)})
		}
		return nil
	})
}

// change changes a worker that the caller sees, with its event and its record.
func (g *Governor) change(ctx context.Context, id, action string, t event.Type, change func(w *manifest.Worker) error) (w manifest.Worker, err error) {
	err = g.Store.Update(ctx, func(tx store.Tx) (err error) {
		if w, err = visible(ctx, tx, id); err != nil {
			return err
		}
		before, _ := json.Marshal(w.Quarantine) // plain data
		if err := change(&w); err != nil {
			return err
		}
		w.UpdatedAt = g.now()
		if err := tx.Fleet().Put(ctx, &w); err != nil {
			return err
		}
		after, _ := json.Marshal(w.Quarantine)
		if err := g.audit(ctx, tx, entry{action: action, target: id, outcome: outcomeDone, before: before, after: after}); err != nil {
			return err
		}
		return tx.Events().Append(ctx, happened(&w, t, policy.ActorOf(ctx), w.UpdatedAt, map[string]any{"action": action}))
	})
	return w, err
}

// forensic is the record of a worker as it is put aside.
type forensic struct {
	Worker  manifest.Worker   `json:"worker"`
	Sandbox live.Sandbox      `json:"sandbox"`
	Stats   live.Stats        `json:"stats"`
	Lineage []manifest.Worker `json:"descendants"`
}

// putAside keeps what there is of a worker: its record and its files, as blobs
// that nobody can change. What cannot be had is said.
func (g *Governor) putAside(ctx context.Context, w *manifest.Worker) *manifest.Bundle {
	b := &manifest.Bundle{At: g.now()}
	owner := asOwner(ctx, w)
	f := forensic{Worker: *w}
	f.Sandbox, _ = g.Sandboxes.Sandbox(owner, w.Sandbox)
	f.Sandbox.LinkKey, f.Sandbox.Spec.Env = nil, nil // secrets have no place in evidence
	f.Stats, _ = g.Sandboxes.SandboxStats(owner, w.Sandbox)
	f.Lineage, _ = g.below(ctx, w.ID())
	snap, err := g.Sandboxes.SnapshotSandbox(owner, w.Sandbox, live.Files, "forensic "+w.ID())
	if err != nil {
		b.Missing = clip(err.Error())
	} else {
		b.Files, b.Snapshot = snap.SHA256, snap.ID
	}
	text, err := json.Marshal(f)
	if err == nil {
		b.Record = blob.Digest(text)
		err = g.Blobs.Put(ctx, b.Record, int64(len(text)), bytes.NewReader(text))
	}
	if err != nil {
		b.Record, b.Missing = "", clip(fmt.Sprint("the record was not kept: ", err))
		g.Logger.Error("could not keep the record of a worker under quarantine", "worker_id", w.ID(), "error", err)
	}
	return b
}

// Release lets a worker go on.
func (g *Governor) Release(ctx context.Context, id, resolution string) (manifest.Worker, error) {
	var w manifest.Worker
	err := g.Store.View(ctx, func(tx store.Tx) (err error) {
		w, err = visible(ctx, tx, id)
		return err
	})
	if err != nil {
		return w, err
	}
	if !w.Quarantined() || w.State != manifest.Running {
		return w, fault.New(fault.Conflict, "The worker %s is not under quarantine.", id).WithCode("not_quarantined")
	}
	held := *w.Quarantine
	// The mark goes first: nobody lets a worker go on that is under quarantine.
	w, err = g.change(ctx, id, "quarantine_released", event.FleetReleased, func(w *manifest.Worker) error {
		if w.Quarantined() {
			now := g.now()
			w.Quarantine.Status, w.Quarantine.ResolvedAt, w.Quarantine.Resolution = manifest.Released, &now, clip(resolution)
			w.Quarantine.Restrictions = manifest.Restrictions{NetworkRestricted: true}
			w.HeartbeatAt, w.RevivedAt, w.SuspendedAt = now, now, time.Time{} // it could not speak
		}
		return nil
	})
	if err == nil { // also where it is not written down that it stands: it may be about to
		if err = g.goOn(ctx, &w); err != nil {
			if heldAnew(err) {
				return w, err
			}
			return g.holdAgain(context.WithoutCancel(ctx), id, held, err)
		}
	}
	g.Logger.LogAttrs(ctx, slog.LevelInfo, "worker_released", slog.String("worker_id", id), slog.String("resolution", clip(resolution)))
	return w, err
}

// holdAgain puts a worker back under quarantine that could not go on.
func (g *Governor) holdAgain(ctx context.Context, id string, held manifest.Quarantine, why error) (manifest.Worker, error) {
	w, err := g.change(ctx, id, "quarantine_kept", event.FleetQuarantined, func(w *manifest.Worker) error {
		if w.State == manifest.Running && !w.Quarantined() {
			w.Quarantine = &held
		}
		return nil
	})
	if err == nil && w.Quarantined() {
		err = g.stayStill(ctx, &w)
	}
	return w, errors.Join(why, err)
}

// Terminate ends a worker under quarantine. The mark stays until it is dead.
func (g *Governor) Terminate(ctx context.Context, id, resolution string) (manifest.Worker, error) {
	w, err := g.Worker(ctx, id)
	if err != nil {
		return w, err
	}
	if !w.Quarantined() {
		return w, fault.New(fault.Conflict, "The worker %s is not under quarantine.", id).WithCode("not_quarantined")
	}
	if resolution == "" {
		resolution = "terminated"
	}
	return g.end(ctx, id, resolution, sandbox.OutcomeKilled)
}

// NoteOn adds a note to the quarantine of a worker.
func (g *Governor) NoteOn(ctx context.Context, id, text string) (manifest.Worker, error) {
	return g.change(ctx, id, "quarantine_note", event.FleetQuarantined, func(w *manifest.Worker) error {
		if w.Quarantine == nil {
			return fault.New(fault.Conflict, "The worker %s was never under quarantine.", id).WithCode("not_quarantined")
		}
		if len(w.Quarantine.Notes) >= manifest.MaxNotes {
			return fault.New(fault.Exhausted, "The quarantine of %s has %d notes, and there is room for no more.", id, manifest.MaxNotes).WithCode("too_many_notes")
		}
		w.Quarantine.Notes = append(w.Quarantine.Notes, manifest.Note{At: g.now(), By: policy.ActorOf(ctx), Text: clip(text)})
		return nil
	})
}

// maxForensic bounds what is read of a record that was put aside.
const maxForensic = 16 << 20

// Forensic returns the record that was put aside of a worker, as JSON.
func (g *Governor) Forensic(ctx context.Context, id string) ([]byte, error) {
	w, err := g.Worker(ctx, id)
	if err != nil {
		return nil, err
	}
	bundle := w.Bundle // the later one, where there are two
	if bundle == nil && w.Quarantine != nil {
		bundle = w.Quarantine.Bundle
	}
	if bundle == nil || bundle.Record == "" {
		return nil, fault.New(fault.NotFound, "Nothing was put aside of the worker %s.", id)
	}
	b, _, err := g.Blobs.Open(ctx, bundle.Record)
	if err != nil {
		return nil, err
	}
	defer func() { _ = b.Close() }()
	text, err := io.ReadAll(io.LimitReader(b, maxForensic))
	if err == nil && blob.Digest(text) != bundle.Record {
		err = fault.New(fault.Internal, "what was put aside of %s has another digest than was written down", id)
	}
	return text, err
}
