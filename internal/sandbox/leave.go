package sandbox

import "context"

// Leave destroys the sandbox without ending what runs in it: a snapshot has all
// of it, and somebody goes on from that. Execs that had not ended are done with
// Left set, and their results mean nothing.
//
// Preconditions: the sandbox is paused, since the moment of the snapshot.
func (s *Sandbox) Leave(ctx context.Context) error {
	bounded, cancel := cleanup(ctx, s.opts)
	defer cancel()
	s.mu.Lock()
	for e := range s.execs {
		e.leave()
	}
	s.mu.Unlock()
	if !s.move(StateRunning, Status{State: StateCompleting, Outcome: OutcomeDone, Reason: "a snapshot is gone on from"}) {
		return errEnded
	}
	return s.bringDown(bounded)
}

// leave notes that the exec goes on elsewhere.
func (e *Exec) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.left = !e.sealed
}

// Left reports whether the exec goes on elsewhere, once it is done here.
func (e *Exec) Left() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.left
}
