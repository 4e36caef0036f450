package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/guest"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

var _ sandbox.Pauser = (*Box)(nil)

// A sentry counts how often it was paused, cannot be asked for that number, and
// dies of a resume too many. So the state is written down beside it: a sandbox
// without the file runs, and one with the word paused in it is paused. Any other
// word was left by somebody who was killed in between.
const (
	pauseFile     = "pause"
	statePausing  = "pausing"
	statePaused   = "paused"
	stateResuming = "resuming"
	stateSaving   = "saving"
)

// controlTime bounds how long a sentry may take to stop, or to go on.
const controlTime = 30 * time.Second

func writePause(dir, state string) error {
	path := filepath.Join(dir, pauseFile)
	if err := os.WriteFile(path+".new", []byte(state), 0o600); err != nil {
		return fmt.Errorf("write down the pause: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write down the pause: %w", err)
	}
	return nil
}

func removePause(dir string) error {
	if err := os.Remove(filepath.Join(dir, pauseFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write down the end of the pause: %w", err)
	}
	return nil
}

// meet opens a session with the guest, or, where the sandbox is paused, prepares
// one.
func meet(ctx context.Context, dir string, since time.Time, options ...guest.Option) (c *guest.Client, paused bool, err error) {
	connect := func(ctx context.Context, more ...guest.Option) (*guest.Client, error) {
		return guest.Connect(ctx, filepath.Join(dir, "in"), filepath.Join(dir, "out"), since, append(more, options...)...)
	}
	state, err := os.ReadFile(filepath.Join(dir, pauseFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		hello, cancel := context.WithTimeoutCause(ctx, helloTime, errSilent)
		defer cancel()
		c, err = connect(hello)
		return c, false, err
	case err != nil:
		return nil, false, fmt.Errorf("look whether the sandbox is paused: %w", err)
	case string(state) == statePaused:
		c, err = connect(ctx, guest.WithPaused())
		return c, true, err
	}
	// Whoever paused, resumed or saved it last did not come to write down the end.
	// A guest that answers is not paused.
	patience := helloTime
	if string(state) == stateSaving {
		patience = saveTime
	}
	wait, cancel := context.WithTimeoutCause(ctx, patience, errSilent)
	defer cancel()
	c, err = connect(wait)
	if err == nil {
		return c, false, removePause(dir)
	}
	if !errors.Is(err, errSilent) {
		return nil, false, err
	}
	c, err = connect(context.WithoutCancel(ctx), guest.WithPaused()) // which waits for nothing
	if err == nil {
		err = writePause(dir, statePaused)
	}
	return c, true, err
}

// enter waits until nobody else pauses or resumes the sandbox.
func (b *Box) enter(ctx context.Context) (leave func(), err error) {
	select {
	case b.turn <- struct{}{}:
	case <-b.done:
		return nil, b.over()
	case <-ctx.Done():
		return nil, fault.New(fault.Unavailable, "wait for the sandbox: %w", context.Cause(ctx))
	}
	if err := b.over(); err != nil {
		<-b.turn
		return nil, err
	}
	return func() { <-b.turn }, nil
}

// over says why the sandbox takes no calls any more, or nil.
func (b *Box) over() error {
	if err := b.Client.Err(); err != nil {
		return err
	}
	if !b.Alive() {
		return fault.New(fault.NotFound, "sandbox %s is gone", b.ID)
	}
	return nil
}

// Pause implements sandbox.Pauser.
func (b *Box) Pause(ctx context.Context) error {
	leave, err := b.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if b.paused {
		return nil
	}
	if err := b.Client.Pause(ctx); err != nil {
		return errors.Join(err, b.Client.Resume(ctx))
	}
	if err := b.stop(ctx); err != nil {
		return fmt.Errorf("pause sandbox %s: %w", b.ID, err)
	}
	return nil
}

// stop has the sentry stop everything in it. Requests are refused already.
func (b *Box) stop(ctx context.Context) error {
	if err := writePause(b.dir, statePausing); err != nil {
		return errors.Join(err, b.Client.Resume(ctx))
	}
	// What the sentry has begun must come to an end that we hear of.
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), controlTime, errStuck)
	defer cancel()
	err := control(ctx, b.dir, controlPause, nil)
	var refused *refusedError
	if errors.As(err, &refused) {
		return errors.Join(err, removePause(b.dir), b.Client.Resume(ctx))
	}
	// Also one that has not answered: it counts a pause before it waits for it.
	b.paused = true
	return errors.Join(err, writePause(b.dir, statePaused))
}

var errStuck = fault.New(fault.Unavailable, "the sentry did not answer in time")

// Resume implements sandbox.Pauser.
func (b *Box) Resume(ctx context.Context) error {
	leave, err := b.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := b.goOn(ctx); err != nil {
		return fmt.Errorf("resume sandbox %s: %w", b.ID, err)
	}
	return nil
}

// goOn lets the sandbox go on, and requests through to it.
func (b *Box) goOn(ctx context.Context) error {
	if b.paused {
		if err := b.letRun(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, helloTime, errSilent)
	defer cancel()
	return b.Client.Resume(ctx)
}

// letRun has the sentry let everything in it go on.
func (b *Box) letRun(ctx context.Context) error {
	if err := writePause(b.dir, stateResuming); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), controlTime, errStuck)
	defer cancel()
	err := control(ctx, b.dir, controlResume, nil)
	var refused *refusedError
	if errors.As(err, &refused) {
		return errors.Join(err, writePause(b.dir, statePaused))
	}
	b.paused = false
	return errors.Join(err, removePause(b.dir))
}
