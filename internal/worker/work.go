package worker

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/trace"
)

const (
	// workspacePath is where a sandbox has its workspace.
	workspacePath = "/workspace"
	// fetchTimeout bounds taking the files out, usageTimeout asking for usage.
	fetchTimeout = 5 * time.Minute
	usageTimeout = 2 * time.Second
)

var (
	errTimeUp = fault.New(fault.Unavailable, "the time of the job ran out").WithCode("time_up")
	errFetch  = fault.New(fault.Unavailable, "taking the files out of the sandbox took too long").WithCode("fetch_timeout")
	errEnough = fault.New(fault.Invalid, "the sandbox goes on after the end of its files").WithCode("broken_tar")
	errFed    = fault.New(fault.Conflict, "the process has ended")
)

// try is one try of a job on its way through the worker.
type try struct {
	*run
	*task
	plan   plan
	dir    string // its workspace, once it has one
	record evidence.Record
	err    error // why it could not be done, or not be kept; the first counts
	place  trace.Parent
}

// do takes a task from its beginning, or from where an earlier process left it,
// to a result that waits to be handed over, or to nothing when the lease is
// gone. It is given room and gives it back as soon as the sandbox is gone,
// before the disk has the snapshot.
func (r *run) do(t *task) {
	defer t.output.close()
	y := &try{run: r, task: t}
	traced, span := r.Tracer.Start(trace.With(t.ctx, trace.Parse(t.lease.Trace)), "job.try", trace.Consumer)
	defer span.End()
	span.Set("job", t.lease.JobID)
	y.place = trace.From(traced)
	defer func() { span.Set("verdict", string(y.record.Verdict)); span.Fail(y.err) }()
	switch {
	case t.past != nil:
		y.resume()
	case t.ctx.Err() == nil:
		y.perform()
	}
	select {
	case r.seals <- struct{}{}:
		defer func() { <-r.seals }()
	case <-t.ctx.Done():
	}
	r.room.give(t.memory)
	if t.ctx.Err() == nil {
		res := y.seal()
		t.journal.write(entry{Result: res})
		if t.ctx.Err() == nil && t.finished(res) {
			wake(r.done)
			return
		}
	}
	y.abandon()
}

// abandon removes what a stopped try has left: no result will ever name it.
func (y *try) abandon() {
	y.task.log.Info("stopped the work", "reason", context.Cause(y.ctx))
	defer y.journal.drop()
	if y.dir == "" {
		return
	}
	if err := y.base.removeWorkspace(y.lease.JobID); err != nil {
		y.task.log.Error("could not remove the workspace of a stopped job", "error", err)
	}
}

// fail notes why the try failed, unless an earlier reason is known.
func (y *try) fail(err error) {
	if y.err == nil && err != nil {
		y.err = err
	}
}

// perform does the work in a sandbox and takes the files out of it.
func (y *try) perform() {
	l := y.lease
	digest := sha256.Sum256(l.Payload)
	limit := cmp.Or(l.Timeout, job.DefaultTimeout)
	y.record = evidence.Record{
		JobID: l.JobID, Attempt: l.Attempt, Fence: l.Fence, Worker: y.WorkerID,
		PayloadSHA256: hex.EncodeToString(digest[:]), Driver: y.Driver, Isolation: y.driver.Capabilities().Isolation,
		Network: y.Network, Asked: y.Limits, Timeout: limit, Verdict: sandbox.Failed, ExitCode: -1,
		Started: y.began.UTC(), Stdout: evidence.Output{SHA256: emptySHA256}, Stderr: evidence.Output{SHA256: emptySHA256},
	}
	defer y.performed()
	y.happen(event.JobStarted, map[string]any{"attempt": l.Attempt, "worker": y.WorkerID, "driver": y.Driver})
	if !validJobID(l.JobID) {
		y.fail(fault.Field("job_id", "%q cannot name a workspace", clip(l.JobID)))
		return
	}
	var err error
	if y.plan, err = planFor(l.Payload, y.Languages); err == nil {
		err = y.demandDriver(y.plan.work.Driver)
	}
	if err == nil {
		y.record.Asked, err = y.limitsFor(y.plan.work)
	}
	if err == nil {
		y.dir, err = y.base.newWorkspace(l.JobID)
	}
	if err != nil {
		y.fail(err)
		return
	}
	y.record.Command, y.record.Image = y.plan.command, cmp.Or(y.plan.work.Image, y.Image, y.DefaultImage())
	timed, allowed := y.allow(limit - time.Since(y.began))
	defer allowed.Stop()
	box, err := y.open(timed)
	if err != nil {
		y.broke(timed, err)
		return
	}
	y.inSandbox(timed, box, allowed)
}

// demandDriver refuses work that is for another driver than this worker's.
func (r *run) demandDriver(name string) error {
	if name == "" || name == r.Driver {
		return nil
	}
	return fault.Field("driver", "the job asks for %q, this worker has %q", name, r.Driver).WithCode("driver_unavailable")
}

// performed writes down that nothing more is wanted of the sandbox. It does so
// once.
func (y *try) performed() {
	if !y.record.Ended.IsZero() {
		return
	}
	y.record.Ended = time.Now().UTC()
	e := entry{Record: &y.record, Performed: true}
	if y.err != nil {
		e.Failure = clip(y.err.Error())
	}
	y.journal.write(e)
}

// broke notes a failure that is not the command's: the driver's, or the end of
// the job's time on the way to its command.
func (y *try) broke(ctx context.Context, err error) {
	y.record.Verdict, y.record.Cause = sandbox.Lost, clip(err.Error())
	if fault.CodeOf(err) == sandbox.CodeStopped {
		y.record.Verdict = sandbox.Killed
	}
	if errors.Is(context.Cause(ctx), errTimeUp) {
		y.record.Verdict = sandbox.Timeout
		err = fmt.Errorf("%w: %w", errTimeUp, err)
	}
	y.fail(err)
}

// open makes the sandbox. ctx carries the deadline of the job.
func (y *try) open(ctx context.Context) (*sandbox.Sandbox, error) {
	id, err := sandbox.NewID()
	if err != nil {
		return nil, err
	}
	y.record.Sandbox = id
	began := time.Now()
	defer func() {
		y.Tracer.Record(y.place, "sandbox.create", trace.Internal, began, time.Now(), "sandbox", id, "driver", y.Driver, "image", y.record.Image)
	}()
	box, err := sandbox.Open(ctx, sandbox.Options{
		Driver: y.driver, OutputCap: y.OutputCap, Logger: y.task.log, Brake: y.brake, Subject: subjectOf(&y.lease),
		Spec: sandbox.Spec{
			ID: id, Image: y.record.Image, Env: y.plan.work.Env, Limits: y.record.Asked, Network: y.Network,
			Labels: map[string]string{"job": y.lease.JobID, "worker": y.WorkerID},
		},
		Report: func(h sandbox.Handle) error {
			y.journal.write(entry{Handle: &h, Record: &y.record})
			return y.journal.begin()
		},
	})
	if err != nil {
		return nil, err
	}
	y.record.Enforced = box.Enforced()
	name, digest := box.Image()
	y.surveys.seen(y.record.Image, digest)
	y.record.Image, y.record.ImageDigest = cmp.Or(y.record.Image, name), digest
	y.journal.write(entry{Record: &y.record})
	y.happen(event.SandboxCreated, y.created())
	return box, nil
}

// created is what is told of a new sandbox.
func (y *try) created() map[string]any {
	return map[string]any{"sandbox": y.record.Sandbox, "driver": y.record.Driver, "image": y.record.Image, "image_digest": y.record.ImageDigest}
}

// inSandbox works in the sandbox, takes the files out, and destroys it.
func (y *try) inSandbox(ctx context.Context, box *sandbox.Sandbox, allowed *sandbox.Allowance) {
	y.live.Add(1)
	defer y.live.Add(-1)
	defer y.destroy(box)
	err := y.command(ctx, box, allowed)
	if err == nil {
		err = y.takeOut(box) //nolint:contextcheck // a task has a context of its own
	}
	if err != nil {
		y.broke(ctx, err)
	}
	y.performed()
}

// takeOut takes the files out of the sandbox.
func (y *try) takeOut(box *sandbox.Sandbox) error {
	err := y.fetchUnfrozen(box)
	if err != nil && y.record.Verdict != sandbox.OK {
		// The command's own end says more than that its sandbox died of it.
		y.missing(err)
		return nil
	}
	return err
}

// missing names a hole in the evidence, first of all that is missing.
func (y *try) missing(err error) {
	y.task.log.Warn("could not take the files out of the sandbox", "error", err)
	y.record.Skipped = slices.Insert(y.record.Skipped, 0, "the rest of the workspace: "+clip(err.Error()))
}

func (y *try) destroy(box *sandbox.Sandbox) {
	data := map[string]any{"sandbox": box.ID()}
	var err error
	if y.ctx.Err() != nil {
		err = box.End(y.ctx, sandbox.OutcomeCancelled, context.Cause(y.ctx).Error())
	} else {
		err = box.Close(y.ctx)
	}
	if err != nil {
		// The next start sweeps it; meanwhile people have to know.
		y.task.log.Error("could not destroy a sandbox", "sandbox", box.ID(), "error", err)
		data["error"] = clip(err.Error())
	}
	y.happen(event.SandboxDestroyed, data)
}

// command puts the files in and runs the command, if there is one. What an
// earlier process has done of it is not done again.
func (y *try) command(ctx context.Context, box *sandbox.Sandbox, allowed *sandbox.Allowance) error {
	if y.past != nil && y.past.ended {
		return nil
	}
	exec, err := y.start(ctx, box, allowed)
	if err != nil {
		return err
	}
	if exec == nil {
		y.record.Verdict, y.record.ExitCode = sandbox.OK, 0
		y.journal.write(entry{Record: &y.record, Ended: true})
		return nil
	}
	y.happen(event.ExecStarted, map[string]any{"exec": exec.ID(), "command": briefly(y.plan.command)})
	// Waiting is bounded by the task, not by ctx: at the deadline the exec is
	// killed, and its verdict says so.
	began := time.Now()
	result, err := y.feedAndWait(box, exec) //nolint:contextcheck // a task has a context of its own
	y.Tracer.Record(y.place, "exec", trace.Internal, began, time.Now(), "exec", exec.ID(), "verdict", string(result.Verdict))
	if y.ctx.Err() != nil {
		return context.Cause(y.ctx) //nolint:contextcheck // a task has a context of its own
	}
	y.ended(box, result) //nolint:contextcheck // a task has a context of its own
	if err != nil {
		y.fail(err)
	}
	return nil
}

// start starts the command, or returns the one that was started before; nil
// where there is none to start.
func (y *try) start(ctx context.Context, box *sandbox.Sandbox, allowed *sandbox.Allowance) (*sandbox.Exec, error) {
	var id string
	if y.past != nil {
		if y.past.process != nil {
			return y.past.process, nil
		}
		if y.past.exec != nil {
			id = y.past.exec.ID // it was about to be started
		}
	}
	if len(y.plan.files) > 0 {
		err := unfrozen(ctx, box, func() error {
			files, err := y.plan.archive()
			if err != nil {
				return err
			}
			return box.Put(ctx, workspacePath, files)
		})
		if err != nil {
			return nil, err
		}
	}
	if len(y.plan.command) == 0 {
		return nil, nil //nolint:nilnil // said above
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if id == "" {
		var err error
		if id, err = sandbox.NewID(); err != nil {
			return nil, err
		}
	}
	y.journal.write(entry{Exec: &execEntry{ID: id, Started: time.Now()}})
	return y.begin(ctx, box, sandbox.ExecSpec{ID: id, Command: y.plan.command, Stdin: y.plan.work.Stdin != ""}, allowed.Left)
}

// feedAndWait writes the standard input and waits for the end. A process that
// does not read holds up nobody.
func (y *try) feedAndWait(box *sandbox.Sandbox, exec *sandbox.Exec) (sandbox.Result, error) {
	input := []byte(y.plan.work.Stdin)
	if len(input) == 0 {
		return exec.Wait(y.ctx)
	}
	at := 0
	if y.past != nil {
		at = int(min(y.past.fed, int64(len(input))))
	}
	ctx, cancel := context.WithCancelCause(y.ctx)
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		const piece = 32 << 10
		for at < len(input) {
			next := min(at+piece, len(input))
			if box.AwaitResume(ctx) != nil {
				return
			}
			y.journal.write(entry{Feeding: int64(next)})
			if err := exec.Write(ctx, input[at:next]); err != nil {
				y.fedInPart(ctx, exec, err)
				return // else it has ended, or closed its input; its verdict tells
			}
			y.journal.write(entry{Fed: int64(next)})
			at = next
		}
		_ = unfrozen(ctx, box, func() error { return exec.CloseInput(ctx) })
	}()
	result, err := exec.Wait(y.ctx)
	cancel(errFed)
	<-fed
	return result, err
}

// ended writes down how the command ended.
func (y *try) ended(box *sandbox.Sandbox, res sandbox.Result) {
	rec := &y.record
	rec.Verdict, rec.Cause, rec.ExitCode, rec.Signal = res.Verdict, clip(res.Cause), res.Exit.Code, res.Exit.Signal
	rec.Stdout, rec.Stderr = outputRecord(res.Stdout), outputRecord(res.Stderr)
	bounded, cancel := context.WithTimeoutCause(y.ctx, usageTimeout, errFetch)
	defer cancel()
	if usage, err := box.Usage(bounded); err == nil {
		rec.Usage = &usage
	}
	y.journal.write(entry{Record: rec, Ended: true})
	y.happen(event.ExecEnded, map[string]any{
		"verdict": rec.Verdict, "cause": rec.Cause, "exit_code": rec.ExitCode,
		"stdout_bytes": rec.Stdout.Bytes, "stderr_bytes": rec.Stderr.Bytes,
		"duration_ms": res.Ended.Sub(res.Started).Milliseconds(),
	})
}

func outputRecord(o sandbox.Output) evidence.Output {
	return evidence.Output{Bytes: o.Kept, Seen: o.Seen, SHA256: o.SHA256, Truncated: o.Truncated}
}

// fetch takes the workspace out of the sandbox. The job's own time is over by
// then, so it has a bound of its own.
func (y *try) fetch(box *sandbox.Sandbox) error {
	ctx, cancel := context.WithTimeoutCause(y.ctx, fetchTimeout, errFetch)
	defer cancel()
	from, to := io.Pipe()
	got := make(chan error, 1)
	go func() {
		err := box.Get(ctx, workspacePath, to)
		to.CloseWithError(err) //nolint:errcheck // it cannot fail
		got <- err
	}()
	unpacked, err := evidence.Unpack(ctx, from, y.dir, y.Bounds)
	if err == nil {
		// A tar may be filled up behind its end, but not for ever.
		const filling = 1 << 20
		_, err = io.Copy(io.Discard, io.LimitReader(from, filling))
	}
	from.CloseWithError(errEnough) //nolint:errcheck // it cannot fail
	if getErr := <-got; err == nil || fault.CodeOf(getErr) == sandbox.CodePaused {
		err = getErr
	}
	y.record.Skipped = append(y.record.Skipped, unpacked.Skipped...)
	if err != nil {
		return fmt.Errorf("take files out of the sandbox: %w", err)
	}
	return nil
}

// briefly keeps a command small in an event; the record has all of it.
func briefly(command []string) []string {
	const most = 20
	short := make([]string, 0, min(len(command), most))
	for _, arg := range command[:min(len(command), most)] {
		short = append(short, clip(arg))
	}
	if len(command) > most {
		short = append(short, "…")
	}
	return short
}

// validJobID reports whether a job's id can name a folder.
func validJobID(id string) bool {
	if id == "" || len(id) > 128 || id[0] == '.' {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

const emptySHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
