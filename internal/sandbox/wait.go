package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Ready is closed when a process that was started with ExecOptions.Ready waits
// for its work.
func (e *Exec) Ready() <-chan struct{} { return e.ready }

// Begin gives a process that waits its sink, its cap, and its time, which begins
// now. What it is to do is written to its input. It can be done once; a process
// that has ended, or is being ended, is a fault of kind Conflict.
func (e *Exec) Begin(opts ExecOptions) error {
	select {
	case <-e.ready:
	default:
		return fault.New(fault.Conflict, "process %s is not ready", e.ID())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sealed || e.verdict != "" || e.begins {
		return fault.New(fault.Conflict, "process %s does not wait for work any more", e.ID())
	}
	limit := cmp.Or(opts.OutputCap, e.sandbox.opts.OutputCap)
	e.begins, e.timeout, e.started = true, opts.Timeout, time.Now()
	// The pump does not touch these before it sees that begun is closed.
	e.sink, e.stdout, e.stderr = opts.Sink, newTally(limit), newTally(limit)
	close(e.begun)
	return nil
}

// given is the timeout that Begin gave.
func (e *Exec) given() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.timeout
}

// hold reads the mark of a process that waits for its work, and waits for Begin.
// It reports whether there is output to come. One that says anything else is not
// what was asked for, and ends.
func (e *Exec) hold(ctx context.Context) (bool, error) {
	if len(e.mark) == 0 {
		return true, nil
	}
	var said []byte
	for len(said) < len(e.mark) {
		f, err := e.proc.Next(ctx)
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("read output: %w", err)
		}
		e.frames.Add(1)
		said = append(said, f.Data...)
		if f.Stream != Stdout || len(said) > len(e.mark) || !bytes.HasPrefix(e.mark, said) {
			e.decide(Killed, "it said something else than that it is ready")
			return false, nil
		}
	}
	close(e.ready)
	select {
	case <-e.begun:
		return true, nil
	case <-e.over:
		// It may have begun and ended before we looked.
		select {
		case <-e.begun:
			return true, nil
		default:
			return false, nil
		}
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// Supply lays files into the sandbox and feeds the process then: it gets no byte
// of its input before all of them lie there. Where they cannot be laid there it
// gets none.
func (e *Exec) Supply(ctx context.Context, files Files, input []byte) error {
	if err := e.sandbox.demand("put files"); err != nil {
		return err
	}
	if p, ok := e.proc.(Supplier); ok {
		if err := p.Supply(ctx, files, input); err != nil {
			return fmt.Errorf("put files below %s: %w", files.Dir, err)
		}
		return nil
	}
	put := e.sandbox.Put
	if files.Locked {
		put = e.sandbox.PutLocked
	}
	if err := put(ctx, files.Dir, files.Tar); err != nil {
		return err
	}
	_ = e.Feed(ctx, input) // what became of it shows in what the process does
	return nil
}

// GetAfter packs path, an absolute path in the sandbox, as a tar stream into w
// once the process has ended. What it yields is hostile.
func (e *Exec) GetAfter(ctx context.Context, path string, w io.Writer) error {
	if p, ok := e.proc.(Leaver); ok {
		if err := p.GetAfter(ctx, path, w); err != nil {
			return fmt.Errorf("get %s: %w", path, err)
		}
		return nil
	}
	select {
	case <-e.done:
		return e.sandbox.Get(ctx, path, w)
	case <-ctx.Done():
		return fmt.Errorf("wait for process %s: %w", e.ID(), context.Cause(ctx))
	}
}
