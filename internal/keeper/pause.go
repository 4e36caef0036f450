package keeper

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
)

// PauseSandbox makes a sandbox stand still. One that does so already stays as
// it is.
func (k *Keeper) PauseSandbox(ctx context.Context, id string, how live.Paused) (live.Sandbox, error) {
	give, err := k.still.take(ctx, id)
	if err != nil {
		return live.Sandbox{}, err
	}
	defer give()
	s, host, err := k.free(ctx, id)
	if err != nil || s.Paused != "" {
		return s, err
	}
	return k.pause(ctx, &s, host, how)
}

// pause makes a sandbox stand still that does not.
//
// Preconditions: the caller has its turn.
func (k *Keeper) pause(ctx context.Context, s *live.Sandbox, host hosting, how live.Paused) (_ live.Sandbox, err error) {
	generation := s.Generation
	k.unfollow(s.ID) // before it answers no more
	switch how {
	case live.Frozen:
		err = host.PauseSandbox(ctx, s.ID)
	case live.Checkpointed:
		generation++
		_, err = host.SnapshotSandbox(ctx, live.SnapshotOrder{ID: live.Aside(s.ID), Sandbox: s.ID, Kind: live.Full, Generation: generation, Aside: true})
	default:
		err = fault.Field("mode", "%q is neither freeze nor checkpoint", clip(string(how)))
	}
	if err != nil {
		k.followHere(s) //nolint:contextcheck // following goes on in the keeper's life
		return *s, err
	}
	return k.alter(context.WithoutCancel(ctx), s.ID, event.SandboxPaused, map[string]any{"mode": how, "generation": generation}, func(s *live.Sandbox, _ time.Time) error {
		s.Paused, s.Generation = how, generation
		return nil
	})
}

// ResumeSandbox lets a sandbox go on. Its time to live counts anew.
func (k *Keeper) ResumeSandbox(ctx context.Context, id string) (live.Sandbox, error) {
	give, err := k.still.take(ctx, id)
	if err != nil {
		return live.Sandbox{}, err
	}
	defer give()
	s, host, err := k.free(ctx, id)
	// Where others may have said the opposite at the same time, or must not be
	// believed, its host is asked in any case.
	if err != nil || s.Paused == "" && k.Alone && !strings.HasPrefix(s.Name, live.FleetName) {
		return s, err
	}
	if err := k.demandFree(ctx, &s); err != nil {
		return s, err
	}
	return k.goOn(ctx, &s, host)
}

// goOn lets a sandbox go on that stands still, unless the law holds it by then:
// another manager may have said so since it was looked at.
//
// Preconditions: the caller has its turn.
func (k *Keeper) goOn(ctx context.Context, s *live.Sandbox, host hosting) (live.Sandbox, error) {
	made, err := host.ResumeSandbox(ctx, s.ID)
	if err != nil {
		return *s, err
	}
	// Who asked may hang up: it goes on, and that is written down.
	ctx = context.WithoutCancel(ctx)
	if err := k.demandFree(ctx, s); err != nil {
		return *s, errors.Join(err, host.PauseSandbox(ctx, s.ID))
	}
	if s.Paused == "" { // its host was asked in any case, as in HoldSandbox
		return *s, nil
	}
	return k.alter(ctx, s.ID, event.SandboxResumed, map[string]any{"mode": s.Paused, "generation": s.Generation}, func(s *live.Sandbox, now time.Time) error {
		s.Paused, s.Made.Enforced = "", made.Enforced
		s.Deadline = deadline(s.Spec.TTL, now)
		return nil
	})
}

// RestoreSandbox sets a sandbox back to a snapshot of it, in place.
func (k *Keeper) RestoreSandbox(ctx context.Context, id, snapshot string) (live.Sandbox, error) {
	give, err := k.still.take(ctx, id)
	if err != nil {
		return live.Sandbox{}, err
	}
	defer give()
	s, host, err := k.free(ctx, id)
	if err != nil {
		return s, err
	}
	snap, err := k.fullOf(ctx, id, snapshot, "restore")
	if err != nil {
		return s, err
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
	ctx = context.WithoutCancel(ctx)
	if err := k.demandFree(ctx, &s); err != nil { // as in goOn
		return s, errors.Join(err, host.PauseSandbox(ctx, id))
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
