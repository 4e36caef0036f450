package sandbox

import (
	"context"
	"fmt"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Pause stops everything in the sandbox until Resume, also where a Brake that has
// frozen it lets it go. It is idempotent. The time of its execs does not pass
// meanwhile. A driver that cannot is a fault of kind Invalid.
func (s *Sandbox) Pause(ctx context.Context) error {
	before := s.opts.Brake.hold(s, true)
	err := s.halt(ctx)
	if err != nil {
		s.opts.Brake.hold(s, before)
	}
	return err
}

func (s *Sandbox) halt(ctx context.Context) error {
	p, err := s.pauser()
	if err != nil {
		return err
	}
	s.setPaused(true) // first: no exec may run out of its time once it stands still
	if err := p.Pause(ctx); err != nil {
		s.setPaused(false)
		return fmt.Errorf("pause sandbox: %w", err)
	}
	return nil
}

// Resume lets a paused sandbox go on. It is idempotent. One that a Brake holds is
// a fault with code CodeStopped; one that a Brake is pulled for meanwhile is the
// Brake's, and stands still until that lets it go.
func (s *Sandbox) Resume(ctx context.Context) error {
	if err := s.opts.Brake.demandFree(s); err != nil {
		return err
	}
	if err := s.goOn(ctx); err != nil {
		return err
	}
	s.opts.Brake.hold(s, false)
	if s.opts.Brake.catch(s) {
		return s.halt(ctx)
	}
	return nil
}

func (s *Sandbox) goOn(ctx context.Context) error {
	p, err := s.pauser()
	if err != nil {
		return err
	}
	if err := p.Resume(ctx); err != nil {
		return fmt.Errorf("resume sandbox: %w", err)
	}
	s.setPaused(false)
	return nil
}

// AssumePaused says that an adopted sandbox stands still by its user's will.
func (s *Sandbox) AssumePaused() {
	s.setPaused(true)
	s.opts.Brake.hold(s, true)
}

func (s *Sandbox) pauser() (Pauser, error) {
	if err := s.demand("pause"); err != nil {
		return nil, err
	}
	p, ok := s.box.(Pauser)
	if !ok || !s.opts.Driver.Capabilities().Pause {
		return nil, fault.New(fault.Invalid, "the driver %s cannot pause a sandbox", s.opts.Driver.Name()).WithCode("pause_unsupported")
	}
	return p, nil
}

func (s *Sandbox) setPaused(paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused == paused {
		return
	}
	s.paused = paused
	close(s.pausing)
	s.pausing = make(chan struct{})
}

// pausedNow says whether the sandbox stands still, and what tells of a change.
func (s *Sandbox) pausedNow() (bool, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paused, s.pausing
}

// Snapshot saves memory and files into folder, as Snapshotter does. A driver that
// cannot is a fault of kind Invalid.
func (s *Sandbox) Snapshot(ctx context.Context, folder string, o SnapshotOptions) (Snapshot, error) {
	if err := s.demand("take a snapshot"); err != nil {
		return Snapshot{}, err
	}
	b, ok := s.box.(Snapshotter)
	if !ok || !s.opts.Driver.Capabilities().Snapshot {
		return Snapshot{}, fault.New(fault.Invalid, "the driver %s cannot take snapshots", s.opts.Driver.Name()).WithCode("snapshot_unsupported")
	}
	if o.Aside {
		s.setPaused(true)
	}
	snap, err := b.Snapshot(ctx, folder, o)
	if err != nil {
		if o.Aside {
			s.setPaused(false)
		}
		return Snapshot{}, fmt.Errorf("take a snapshot: %w", err)
	}
	return snap, nil
}
