package sandbox

import (
	"context"
	"fmt"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
)

// The causes that end our own contexts.
var (
	errCleanup = fault.New(fault.Unavailable, "cleaning up took too long").WithCode("cleanup_timeout")
	errEnded   = fault.New(fault.Conflict, "the sandbox has ended").WithCode("sandbox_ended")
)

// Close ends the sandbox because its work is done. See End.
func (s *Sandbox) Close(ctx context.Context) error { return s.End(ctx, OutcomeDone, "") }

// End destroys the sandbox and all that belongs to it. Running execs end with
// verdict Killed. The first outcome given, or the sandbox's own death, is the
// one that is kept. End runs under its own bound, also when ctx has ended; it
// tries Destroy again while there is time. It is idempotent, and after a
// failure it can be called again.
func (s *Sandbox) End(ctx context.Context, outcome Outcome, reason string) error {
	bounded, cancel := cleanup(ctx, s.opts)
	defer cancel()
	s.completing(outcome, reason)
	return s.bringDown(bounded)
}

// bringDown destroys a sandbox that is COMPLETING and waits for its execs.
func (s *Sandbox) bringDown(bounded context.Context) error {
	s.opts.Brake.settle(bounded)
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-bounded.Done():
		return fmt.Errorf("end sandbox %s: %w", s.ID(), context.Cause(bounded))
	}
	err := s.destroyOnce(bounded)

	// Execs get the rest of the bound to bring in their last output; then even
	// a driver that breaks its contract cannot hold up a Wait.
	release := context.AfterFunc(bounded, func() { s.leave(errEnded) })
	if err != nil {
		s.leave(errEnded)
	}
	s.tasks.Wait()
	release()
	s.leave(errEnded)

	if err != nil {
		s.move(StateCompleting, Status{State: StateFailed, Outcome: OutcomeUncleaned, Reason: err.Error()})
		return fmt.Errorf("end sandbox: %w", err)
	}
	s.opts.Brake.leave(s)
	now := s.Status()
	s.move(StateCompleting, Status{State: now.Outcome.State(), Outcome: now.Outcome, Reason: now.Reason})
	return nil
}

// completing moves a running sandbox to COMPLETING and stops its execs.
func (s *Sandbox) completing(outcome Outcome, reason string) {
	if !s.move(StateRunning, Status{State: StateCompleting, Outcome: outcome, Reason: reason}) {
		return
	}
	by := reason
	if by == "" {
		by = "the end of the sandbox: " + string(outcome)
	}
	s.stopExecs(by)
}

func (s *Sandbox) stopExecs(by string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := range s.execs {
		e.decide(Killed, by)
	}
}

// destroyOnce destroys the sandbox unless that has been done.
//
// Preconditions: the caller holds the turn.
func (s *Sandbox) destroyOnce(ctx context.Context) error {
	s.mu.Lock()
	destroyed := s.destroyed
	s.mu.Unlock()
	if destroyed {
		return nil
	}
	if err := destroy(ctx, s.opts, s.Handle()); err != nil {
		return err
	}
	s.mu.Lock()
	s.destroyed = true
	s.mu.Unlock()
	return nil
}

// watch waits for the sandbox's end, and brings it about when an exec finds
// that it must be.
func (s *Sandbox) watch() {
	defer s.tasks.Done()
	select {
	case <-s.life.Done():
	case <-s.box.Done():
		s.fail(OutcomeLost, "the sandbox died")
	case why := <-s.condemned:
		s.log.Error("sandbox condemned", "reason", why)
		s.fail(OutcomeKilled, why)
		s.execute()
	}
}

// fail marks a running sandbox FAILED. Its execs see the death for themselves.
func (s *Sandbox) fail(outcome Outcome, reason string) {
	if s.move(StateRunning, Status{State: StateFailed, Outcome: outcome, Reason: reason}) {
		s.log.Warn("sandbox failed", "outcome", outcome, "reason", reason)
	}
}

// execute destroys a condemned sandbox, unless somebody else is at it.
func (s *Sandbox) execute() {
	bounded, cancel := cleanup(s.life, s.opts)
	defer cancel()
	select {
	case s.turn <- struct{}{}:
	case <-s.box.Done():
		return
	case <-s.life.Done():
		return
	}
	defer func() { <-s.turn }()
	if err := s.destroyOnce(bounded); err != nil {
		s.log.Error("destroy condemned sandbox", "error", err)
	}
	s.leave(errEnded)
}

// condemn asks the watcher to destroy the sandbox.
func (s *Sandbox) condemn(why string) {
	select {
	case s.condemned <- why:
	default: // it is condemned already
	}
}

// cleanup returns the context for ending things: it outlives the caller's.
func cleanup(ctx context.Context, opts Options) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.WithoutCancel(ctx), opts.CleanupTimeout, errCleanup)
}

// destroy calls Destroy until it succeeds or ctx ends. One call gets a third of
// the clean-up time, so that one that hangs is tried again.
func destroy(ctx context.Context, opts Options, h Handle) error {
	const longest = 2 * time.Second
	pause := 50 * time.Millisecond
	for {
		once, cancel := context.WithTimeoutCause(ctx, opts.CleanupTimeout/3, errCleanup)
		err := opts.Driver.Destroy(once, h)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("destroy sandbox %s: %w", h.ID, err)
		case <-time.After(pause):
			pause = min(2*pause, longest)
		}
		opts.Logger.Debug("destroy again", "sandbox", h.ID, "error", err)
	}
}
