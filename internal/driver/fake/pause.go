package fake

import (
	"context"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

var _ sandbox.Pauser = (*box)(nil)

var errPaused = fault.New(fault.Conflict, "the sandbox is paused").WithCode(sandbox.CodePaused)

// Pause holds every process before its next step.
func (b *box) Pause(ctx context.Context) error {
	if err := b.at(ctx, script{}, stepOther); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.resumed == nil {
		b.hold()
		b.record(entry{Paused: true})
	}
	return nil
}

// Resume lets the processes go on.
func (b *box) Resume(ctx context.Context) error {
	if err := b.at(ctx, script{}, stepOther); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.resumed != nil {
		close(b.resumed)
		b.resumed = nil
		b.halted = make(chan struct{})
		b.record(entry{Resumed: true})
	}
	return nil
}

// pass waits while the sandbox is paused. It is false when quit is closed.
func (b *box) pass(quit <-chan struct{}) bool {
	for {
		b.mu.Lock()
		resumed := b.resumed
		b.mu.Unlock()
		if resumed == nil {
			select {
			case <-quit:
				return false
			default:
				return true
			}
		}
		select {
		case <-quit:
			return false
		case <-resumed:
		}
	}
}

// hold begins a pause.
//
// Preconditions: mu is held, and the sandbox is not paused.
func (b *box) hold() {
	b.resumed = make(chan struct{})
	close(b.halted)
}

// awake refuses what cannot be done while the sandbox is paused.
func (b *box) awake() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.resumed != nil {
		return errPaused
	}
	return nil
}

// halt is closed once the sandbox is paused.
func (b *box) halt() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.halted
}
