package worker

import (
	"context"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// A job that a switch freezes may stand between two steps: before its sandbox is
// there, while files go in, on the way to its command, while files come out. None
// of that costs it its time, and none of it fails.

// allow gives the try what is left of its job's time. That it stood still is
// written down: a later process must not count it either.
func (y *try) allow(left time.Duration) (context.Context, *sandbox.Allowance) {
	var before time.Duration
	if y.past != nil {
		before = y.past.stood
	}
	return y.brake.Allow(y.ctx, subjectOf(&y.lease), left, errTimeUp, func(stood time.Duration) {
		y.journal.write(entry{Stood: before + stood})
	})
}

// unfrozen does a step in the sandbox while that does not stand still, and does
// it again where it came to stand still over it: what was done is not known then,
// so a step must bear that.
func unfrozen(ctx context.Context, box *sandbox.Sandbox, step func() error) error {
	for {
		if err := box.AwaitResume(ctx); err != nil {
			return err
		}
		if err := step(); fault.CodeOf(err) != sandbox.CodePaused {
			return err
		}
	}
}

// begin starts the command, or goes on with it where a start that was frozen over
// has started it all the same.
func (y *try) begin(ctx context.Context, box *sandbox.Sandbox, spec sandbox.ExecSpec, left func() time.Duration) (exec *sandbox.Exec, err error) {
	tried := false
	err = unfrozen(ctx, box, func() (err error) {
		opts := sandbox.ExecOptions{Timeout: left(), Sink: &y.output}
		if tried {
			exec, err = box.Attach(ctx, spec.ID, opts, sandbox.Resume{})
			if !fault.Is(err, fault.NotFound) {
				return err
			}
		}
		tried = true
		exec, err = box.Exec(ctx, spec, opts)
		return err
	})
	return exec, err
}

// fetchUnfrozen takes the files out. What was half taken out is taken anew.
func (y *try) fetchUnfrozen(box *sandbox.Sandbox) error {
	skipped, again := y.record.Skipped, false
	return unfrozen(y.ctx, box, func() error {
		if again {
			y.record.Skipped = skipped
			if _, err := y.base.newWorkspace(y.lease.JobID); err != nil {
				return err
			}
		}
		again = true
		return y.fetch(box)
	})
}

var errFrozenInput = fault.New(fault.Conflict, "the command was frozen while its input was written, and how much of it arrived is not known")

// fedInPart ends a command that was frozen over its input: it must not go on with
// another than it was to be given.
func (y *try) fedInPart(ctx context.Context, exec *sandbox.Exec, err error) {
	if fault.CodeOf(err) == sandbox.CodePaused {
		y.fail(errFrozenInput)
		_ = exec.Kill(ctx, errFrozenInput.Message) // its end is waited for elsewhere
	}
}
