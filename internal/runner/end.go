package runner

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

type chunk = dispatch.Chunk

const (
	// slack is how long a run may take beyond its timeout until its worker
	// counts as lost: a sandbox is made, code is compiled, artifacts are read.
	slack = 3 * time.Minute
	// cleanupTime bounds what is done after somebody gave up.
	cleanupTime = 10 * time.Second
)

var errOverdue = errors.New("the worker did not end the run in time")

// final reports whether a worker's refusal is about the order, so that another
// try would come to the same.
func final(err error) bool {
	switch fault.KindOf(err) {
	case fault.Invalid, fault.NotFound, fault.Denied, fault.TooLarge:
		return true
	case fault.Internal, fault.Conflict, fault.Unauthenticated, fault.Exhausted, fault.Unavailable, fault.Gone:
		return false
	}
	return false
}

// about turns what a worker said into what the caller is told.
func about(err error, worker string) error {
	var f *fault.Error
	switch {
	case !errors.As(err, &f):
		return fault.New(fault.Unavailable, "The worker %s was lost before the run ended; try again: %w", worker, err).WithCode("worker_lost").Retry(time.Second)
	case f.Kind == fault.NotFound: // of an image, which is not what the caller asks us for
		return fault.New(fault.Unavailable, "%s", f.Error()).WithCode(f.Code)
	}
	return err
}

func reasonOf(err error) string {
	const most = 1000
	text := strings.ToValidUTF8(err.Error(), "?")
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

func lower(s run.State) string { return strings.ToLower(string(s)) }

// partial is the result of a run that was stopped: what it had said by then.
func partial(out *output) *run.Result {
	out.mu.Lock()
	defer out.mu.Unlock()
	return &run.Result{
		Verdict: sandbox.Killed, ExitCode: -1, Step: run.StepRun, Usage: run.Usage{CPU: -1, PeakMemory: -1, Wall: -1},
		Stdout: run.Output{Kept: int64(len(out.stdout))}, Stderr: run.Output{Kept: int64(len(out.stderr))},
	}
}

// take hands a piece of output on to whoever reads. Where somebody waits for
// the answer on a connection, nobody reads at another manager.
func (r *Runner) take(ctx context.Context, x *run.Run, out *output, c chunk) error {
	if err := out.take(c); err != nil {
		return err
	}
	if r.Outputs != nil && !x.Sync {
		if err := r.Outputs.Take(ctx, x.ID, int64(x.Attempt), int(c.Stream), c.Offset, c.Data); err != nil {
			r.Logger.Warn("could not show output of a run to other managers", "run", x.ID, "error", err)
		}
	}
	r.arrived.Wake()
	return nil
}

// note keeps an entry, begun says that a try of it runs, drop lets it go.
func (r *Runner) note(id string, e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries[id] = e
}

func (r *Runner) begun(e *entry, out *output, cancel context.CancelCauseFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.out, e.cancel, e.back = out, cancel, time.Time{}
	if e.halted {
		cancel(errCancelled)
	}
}

func (r *Runner) drop(id string, e *entry) {
	r.mu.Lock()
	if r.entries[id] == e {
		delete(r.entries, id)
	}
	r.mu.Unlock()
	close(e.done)
	r.arrived.Wake()
}

// addStarted stores a run that begins at once.
func (r *Runner) addStarted(ctx context.Context, tx store.Tx, x *run.Run) error {
	if err := tx.Runs().Add(ctx, x, nil); err != nil {
		return err
	}
	return tx.Events().Append(ctx, happened(x, event.RunStarted, x.StartedAt, map[string]any{
		"worker": x.Worker, "attempt": x.Attempt, "language": x.Language, "code_sha256": x.CodeSHA256, "sync": true,
	}))
}

// happened is an event of a run.
func happened(x *run.Run, kind event.Type, at time.Time, facts map[string]any) *event.Event {
	data, _ := json.Marshal(facts) // words and numbers only
	actor := x.Owner
	if kind != event.RunCreated {
		actor = policy.System().ID
	}
	return &event.Event{Type: kind, Version: 1, Entity: "run", EntityID: x.ID, ProjectID: x.Project, Actor: actor, Owner: x.Owner, At: at, Data: data}
}

// finish writes the end of a run down, with what it left, and returns the
// digest of its record. Nobody's going away keeps it from that.
func (r *Runner) finish(ctx context.Context, x *run.Run, state run.State, res *run.Result, kept *bytesOf, waited time.Duration) (evidence string, err error) {
	ctx = context.WithoutCancel(ctx)
	if err := x.To(state); err != nil {
		return "", err
	}
	if err := r.store(ctx, kept); err != nil {
		return "", err
	}
	if res != nil {
		x.Result, x.Verdict = res, res.Verdict
	}
	// As the store keeps times, so that the record can be made again.
	x.EndedAt = r.Now().UTC().Truncate(time.Microsecond)
	x.StartedAt, x.CreatedAt = x.StartedAt.UTC().Truncate(time.Microsecond), x.CreatedAt.UTC().Truncate(time.Microsecond)
	err = r.Store.Update(ctx, func(tx store.Tx) error {
		if _, err := r.own(ctx, tx, x.ID, x.Fence); err != nil {
			return err
		}
		return putEnd(ctx, tx, x, kept.small)
	})
	if err != nil {
		return "", err
	}
	record, err := json.Marshal(x.Record())
	if err != nil {
		return "", err
	}
	if r.Outputs != nil {
		r.Outputs.Drop(ctx, x.ID, int64(x.Attempt))
	}
	r.tellEnd(x, waited)
	return blob.Digest(record), nil
}

// putEnd stores an ended run with its event and its webhook.
func putEnd(ctx context.Context, tx store.Tx, x *run.Run, small map[string][]byte) error {
	if err := tx.Runs().Put(ctx, x, small); err != nil {
		return err
	}
	facts := map[string]any{"state": x.State, "attempt": x.Attempt}
	if x.Worker != "" {
		facts["worker"] = x.Worker
	}
	if x.Reason != "" {
		facts["reason"] = x.Reason
	}
	if x.Result != nil {
		maps.Copy(facts, map[string]any{"verdict": x.Result.Verdict, "exit_code": x.Result.ExitCode})
	}
	if x.Webhook != "" {
		if err := tx.Hooks().Put(ctx, store.Hook{RunID: x.ID, URL: x.Webhook, NextAt: x.EndedAt}); err != nil {
			return err
		}
	}
	return tx.Events().Append(ctx, happened(x, event.RunEnded, x.EndedAt, facts))
}

// own returns a run that this manager has under a fence, or a Conflict: then
// it is another's by now, or has ended.
func (r *Runner) own(ctx context.Context, tx store.Tx, id string, fence int64) (run.Run, error) {
	x, err := tx.Runs().Get(ctx, id)
	if err != nil {
		return x, err
	}
	if x.Fence != fence || x.State.Ended() {
		return x, fault.New(fault.Conflict, "run %s is %s under fence %d, not %d", id, x.State, x.Fence, fence).WithCode("not_holder")
	}
	return x, nil
}

// tellEnd tells the log and the figures. Neither learns the code or what it
// said.
func (r *Runner) tellEnd(x *run.Run, waited time.Duration) {
	took := x.EndedAt.Sub(x.CreatedAt) - waited
	args := []any{
		"run", x.ID, "owner", x.Owner, "language", x.Language, "code_sha256", x.CodeSHA256, "state", x.State,
		"waited_ms", waited.Milliseconds(), "took_ms", took.Milliseconds(), "attempt", x.Attempt, "worker", x.Worker,
	}
	if x.Result != nil {
		args = append(args, "verdict", x.Result.Verdict, "exit_code", x.Result.ExitCode, "driver", x.Result.Driver, "image", x.Result.Image, "warm", x.Result.Warm)
	}
	if x.State == run.Failed {
		args = append(args, "reason", x.Reason)
	}
	r.Logger.Info("run ended", args...)
	if r.Observer != nil {
		r.Observer.RunEnded(x, waited, took)
	}
}
