package worker

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	oneshot "github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/trace"
)

// collectTimeout bounds taking the artifacts of a run out of its sandbox.
const collectTimeout = 30 * time.Second

// answerTime is how long the answer of a run has the machine for itself.
const answerTime = 10 * time.Millisecond

// supplyTimeout bounds hearing whether the files of a program that has ended
// were there when it began.
const supplyTimeout = 10 * time.Second

// do takes a run from its order to its end, for which there is room. The answer
// does not wait for the end of the sandbox; how many of those are on their way
// is bounded.
func (s *shot) do() {
	defer close(s.gone)
	defer s.stop(errStopped)
	defer s.giveMemory()
	traced, span := s.Tracer.Start(trace.With(s.ctx, trace.Parse(s.order.Trace)), "run", trace.Consumer)
	span.Set("run", s.order.ID)
	now := time.Now().UTC()
	s.result = oneshot.Result{
		Verdict: sandbox.Lost, ExitCode: -1, Step: oneshot.StepRun, Worker: s.WorkerID, Driver: s.Driver,
		Isolation: s.driver.Capabilities().Isolation, Image: s.image, Started: now, Ended: now,
		Usage:  oneshot.Usage{CPU: -1, PeakMemory: -1, Wall: -1},
		Stdout: oneshot.Output{SHA256: emptySHA256}, Stderr: oneshot.Output{SHA256: emptySHA256},
	}
	box, err := s.acquire(traced)
	if err == nil {
		err = s.perform(traced, box)
	}
	if errors.Is(err, errUnfit) {
		box, err = s.again(traced, box, err)
	}
	s.err = err
	span.Set("verdict", string(s.result.Verdict))
	span.Fail(err)
	span.End()
	if box == nil {
		s.answer()
		return
	}
	if s.ctx.Err() != nil {
		// Nobody waits for an answer but for this.
		s.destroyBox(box)
		s.answer()
		return
	}
	s.runs.destroying <- struct{}{}
	s.answer()
	s.letPass()
	s.destroyBox(box)
	<-s.runs.destroying
}

// giveMemory gives back what the sandbox may use, now that it is gone: the
// answer goes ahead of that, and what the program left running may still use
// all of it.
func (s *shot) giveMemory() {
	s.room.giveMemory(s.limits.Memory)
	s.pool.Look()
}

// letPass waits until the answer is most likely through: the end of a sandbox is
// a burst of work for the machine's kernel, which would meet it on its way.
func (s *shot) letPass() {
	timer := time.NewTimer(answerTime)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.ctx.Done():
	}
}

// answer gives the slot back and lets everybody see the result.
func (s *shot) answer() {
	s.result.Ended = time.Now().UTC()
	if s.err == nil && s.ctx.Err() != nil {
		s.err = context.Cause(s.ctx)
	}
	s.room.giveSlot()
	s.runs.leave(s)
	s.out.end()
	s.pool.Look()
}

// stage notes how long a stretch of the run took.
func (s *shot) stage(name string, since time.Time) {
	s.result.Stages = append(s.result.Stages, oneshot.Stage{Name: name, Took: time.Since(since)})
}

// errUnfit says that a sandbox that waited could not take the files of a run,
// whose program has not begun: it is not well, which is no reason for a run to
// fail.
var errUnfit = errors.New("a sandbox that waited could not be used")

// acquire gets a sandbox: one that waits, else a new one. Code and inputs are in
// it, but where an interpreter waits: it gets them when it is let go.
func (s *shot) acquire(ctx context.Context) (*sandbox.Sandbox, error) {
	began := time.Now()
	h := s.claim(ctx)
	if h == nil {
		return s.create(ctx)
	}
	s.stage("claim", began)
	s.live.Add(1)
	if err := h.Sandbox.Assign(sandbox.Subject{ID: s.order.ID, Project: s.order.Project}); err != nil {
		s.destroyBox(h.Sandbox)
		return nil, err
	}
	s.held, s.result.Warm = h, true
	if h.Waits() {
		return h.Sandbox, nil
	}
	if err := s.put(ctx, h.Sandbox); err != nil {
		s.discard(h.Sandbox, err)
		return s.create(ctx)
	}
	return h.Sandbox, nil
}

// again does the run in a new sandbox, after one that waited was unfit.
func (s *shot) again(ctx context.Context, unfit *sandbox.Sandbox, why error) (*sandbox.Sandbox, error) {
	s.discard(unfit, why)
	box, err := s.create(ctx)
	if err == nil {
		err = s.perform(ctx, box)
	}
	return box, err
}

// discard destroys a sandbox that waited and was of no use.
func (s *shot) discard(box *sandbox.Sandbox, why error) {
	s.log.Warn("a sandbox that waited could not be used", "sandbox", box.ID(), "error", why)
	s.destroyBox(box)
	s.held, s.result.Warm, s.result.Stages = nil, false, nil
}

// create makes a new sandbox.
func (s *shot) create(ctx context.Context) (*sandbox.Sandbox, error) {
	began := time.Now()
	id, err := sandbox.NewID()
	if err != nil {
		return nil, err
	}
	box, err := sandbox.Open(ctx, sandbox.Options{
		Driver: s.driver, OutputCap: s.OutputCap, Logger: s.log, Brake: s.brake, Subject: sandbox.Subject{ID: s.order.ID, Project: s.order.Project},
		Spec: sandbox.Spec{
			ID: id, Image: s.image, Limits: s.limits, Network: s.order.Network,
			Labels: map[string]string{"run": s.order.ID, "worker": s.WorkerID},
		},
	})
	if err != nil {
		return nil, err
	}
	s.live.Add(1)
	s.stage("create", began)
	if err := s.put(ctx, box); err != nil {
		s.destroyBox(box)
		return nil, err
	}
	return box, nil
}

func (s *shot) destroyBox(box *sandbox.Sandbox) {
	defer s.live.Add(-1)
	var err error
	if s.ctx.Err() != nil {
		err = box.End(s.ctx, sandbox.OutcomeCancelled, context.Cause(s.ctx).Error())
	} else {
		err = box.Close(s.ctx)
	}
	if err != nil {
		// The next start sweeps it; meanwhile people have to know.
		s.log.Error("could not destroy a sandbox", "run", s.order.ID, "sandbox", box.ID(), "error", err)
	}
}

// perform does the run in its sandbox.
func (s *shot) perform(ctx context.Context, box *sandbox.Sandbox) error {
	res := &s.result
	res.Sandbox, res.Enforced = box.ID(), box.Enforced()
	if name, digest := box.Image(); name != "" {
		res.Image, res.Digest = name, digest
	}
	if compile := s.lang.CompileCommand(s.lang.File, compiledPath); compile != nil {
		if ok, err := s.compile(ctx, box, compile); err != nil || !ok {
			return err
		}
	}
	began := time.Now()
	exec, wait, err := s.start(ctx, box)
	if err != nil {
		return err
	}
	collected := s.collect(ctx, box, exec)
	ended, err := wait(ctx)
	s.stage("exec", began)
	if err != nil && ended.Verdict == "" {
		collected(err)
		return err
	}
	s.ended(ended)
	defer s.stage("collect", time.Now())
	measured := make(chan struct{})
	go func() {
		defer close(measured)
		s.measure(ctx, box)
	}()
	collected(nil)
	<-measured
	return nil
}

// put lays code and inputs into a sandbox in which no interpreter waits.
func (s *shot) put(ctx context.Context, box *sandbox.Sandbox) error {
	defer s.stage("put", time.Now())
	files, err := s.archive(false)
	if err != nil {
		return err
	}
	if s.order.ReadOnly {
		return box.PutLocked(ctx, workspacePath, files)
	}
	return box.Put(ctx, workspacePath, files)
}

// compile does the step before the program, and reports whether there is a
// program to run. What the step prints is shown only where it failed.
func (s *shot) compile(ctx context.Context, box *sandbox.Sandbox, command []string) (bool, error) {
	began := time.Now()
	said := newCapture()
	exec, err := box.Exec(ctx, sandbox.ExecSpec{ID: oneshot.StepCompile, Command: command},
		sandbox.ExecOptions{Timeout: s.lang.Compile.Timeout, Sink: said, OutputCap: s.order.OutputCap})
	if err != nil {
		return false, err
	}
	res, err := exec.Wait(ctx)
	s.stage("compile", began)
	if err != nil || res.Verdict == sandbox.OK {
		return err == nil, err
	}
	s.ended(res)
	s.result.Step = oneshot.StepCompile
	s.measure(ctx, box)
	said.end()
	return false, said.follow(ctx, sandbox.Offsets{}, s.handOn(ctx))
}

// handOn takes what a step has printed into the run's own output.
func (s *shot) handOn(ctx context.Context) func(dispatch.Chunk) error {
	return func(c dispatch.Chunk) error {
		return s.out.Write(ctx, sandbox.Frame{Stream: c.Stream, Offset: c.Offset, Data: c.Data})
	}
}

// start starts the program, or lets go the interpreter that waits for it. What
// it returns waits for the program's end.
func (s *shot) start(ctx context.Context, box *sandbox.Sandbox) (*sandbox.Exec, func(context.Context) (sandbox.Result, error), error) {
	opts := sandbox.ExecOptions{Timeout: s.order.Timeout, Sink: s.out, OutputCap: s.order.OutputCap}
	if s.held == nil || !s.held.Waits() {
		command := s.lang.RunCommand(s.lang.File, compiledPath, s.order.Args)
		// The input is always a pipe, so that a program finds the same however it
		// was started.
		exec, err := box.Exec(ctx, sandbox.ExecSpec{ID: oneshot.StepRun, Command: command, Env: s.env(), Stdin: true}, opts)
		return exec, func(ctx context.Context) (sandbox.Result, error) { return s.feed(ctx, exec) }, err
	}
	files, err := s.archive(true)
	if err != nil {
		return nil, nil, err
	}
	exec, head, err := s.held.Begin(s.order.Args, s.env(), opts)
	return exec, func(ctx context.Context) (sandbox.Result, error) {
		return s.supply(ctx, exec, sandbox.Files{Dir: workspacePath, Tar: files, Locked: s.order.ReadOnly}, head)
	}, err
}

// feed writes the program's input and waits for its end. A program that does not
// read holds up nobody.
func (s *shot) feed(ctx context.Context, exec *sandbox.Exec) (sandbox.Result, error) {
	feeding, cancel := context.WithCancelCause(ctx)
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		// One that has ended, or closed its input, tells by its verdict.
		_ = exec.Feed(feeding, []byte(s.order.Stdin))
	}()
	res, err := exec.Wait(ctx)
	cancel(errFed)
	<-fed
	return res, err
}

// supply gives an interpreter that waited its files, then what it has to know and
// the program's input, and waits for the program's end. One that could not be
// given the files has not begun the program.
func (s *shot) supply(ctx context.Context, exec *sandbox.Exec, files sandbox.Files, head []byte) (sandbox.Result, error) {
	feeding, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	fed := make(chan error, 1)
	go func() { fed <- exec.Supply(feeding, files, append(head, s.order.Stdin...)) }()
	res, err := exec.Wait(ctx)
	// Whether the files were there is known by now, or never will be.
	timer := time.AfterFunc(supplyTimeout, func() { cancel(errFed) })
	defer timer.Stop()
	if unfit := <-fed; unfit != nil && ctx.Err() == nil && s.out.size() == 0 && res.Verdict != sandbox.Timeout {
		return sandbox.Result{}, errors.Join(errUnfit, unfit)
	}
	return res, err
}

// ended writes down how a step ended.
func (s *shot) ended(res sandbox.Result) {
	r := &s.result
	r.Verdict, r.Cause, r.ExitCode, r.Signal = res.Verdict, line(res.Cause), res.Exit.Code, res.Exit.Signal
	if res.Verdict == sandbox.Timeout {
		r.ExitCode = -1
	}
	r.Started = res.Started.UTC()
	r.Usage.Wall = max(res.Ended.Sub(res.Started), 0)
	r.Stdout, r.Stderr = outputOf(res.Stdout), outputOf(res.Stderr)
}

func outputOf(o sandbox.Output) oneshot.Output {
	return oneshot.Output{Kept: o.Kept, Seen: o.Seen, SHA256: o.SHA256, Truncated: o.Truncated}
}

// measure reads what the sandbox has used. One that cannot be measured is a run
// all the same.
func (s *shot) measure(ctx context.Context, box *sandbox.Sandbox) {
	bounded, cancel := context.WithTimeoutCause(ctx, usageTimeout, errFetch)
	defer cancel()
	if u, err := box.Usage(bounded); err == nil {
		s.result.Usage.CPU, s.result.Usage.PeakMemory = u.CPU, u.PeakMemory
		if s.held != nil && s.held.Used.CPU >= 0 {
			s.result.Usage.CPU = max(u.CPU-s.held.Used.CPU, 0)
		}
	}
}

// collect takes the artifacts out as soon as the program has ended, which is
// what it waits for beside it. What it returns is called then and waits for them;
// with an error, nobody wants them. What is missing is named, and the run is what
// it was.
func (s *shot) collect(ctx context.Context, box *sandbox.Sandbox, exec *sandbox.Exec) (collected func(unwanted error)) {
	if !s.order.Artifacts {
		return func(error) {}
	}
	bounded, cancel := context.WithCancelCause(ctx)
	from, to := io.Pipe()
	got := make(chan error, 1)
	go func() {
		err := exec.GetAfter(bounded, artifactsPath, to)
		to.CloseWithError(err) //nolint:errcheck // it cannot fail
		got <- err
	}()
	done := make(chan error, 1)
	go func() {
		var err error
		s.result.Artifacts, s.result.Skipped, err = evidence.CollectArtifacts(bounded, from, evidence.DefaultArtifactBounds())
		from.CloseWithError(errEnough) //nolint:errcheck // it cannot fail
		if getErr := <-got; getErr != nil && !errors.Is(getErr, errEnough) {
			err = getErr
		}
		done <- err
	}()
	return func(unwanted error) {
		if unwanted != nil {
			cancel(unwanted)
		}
		timer := time.AfterFunc(collectTimeout, func() { cancel(errFetch) })
		defer timer.Stop()
		err := <-done
		cancel(nil)
		switch {
		case unwanted != nil:
			s.result.Artifacts, s.result.Skipped = nil, nil
		case err != nil:
			s.missing(box, err)
		}
	}
}

// missing names that artifacts could not be taken out.
func (s *shot) missing(box *sandbox.Sandbox, err error) {
	select {
	case <-box.Done():
	default:
		if fault.Is(err, fault.NotFound) {
			return // the program has removed the folder
		}
	}
	s.result.Skipped = append(s.result.Skipped, "the rest of the artifacts: "+line(err.Error()))
}
