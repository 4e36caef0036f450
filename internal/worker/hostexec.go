package worker

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	oneshot "github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

var (
	errTooManyExecs = fault.New(fault.Exhausted, "the sandbox runs as many commands as it may").WithCode("too_many_execs")
	errInputFull    = fault.New(fault.Exhausted, "the sandbox has commands that did not take their input yet; start others when they have").WithCode("input_full")
	errPaused       = fault.New(fault.Conflict, "the sandbox is paused; resume it first").WithCode("paused")
	errExecEnded    = fault.New(fault.Conflict, "the command has ended").WithCode(dispatch.CodeExecEnded)
	errExecLost     = fault.New(fault.NotFound, "the sandbox does not know the command any more")
)

// keptExec is one command in a sandbox that is kept, from its order until a
// while after its end was told.
type keptExec struct {
	of     *kept
	order  live.Command // without its input
	ledger ledger
	out    spool
	in     input
	ready  chan struct{} // closed when it was started, or could not be
	handed chan struct{} // closed when its end can be told, or it could not be started

	// Set before ready is closed.
	began time.Time
	err   error

	mu     sync.Mutex
	exec   *sandbox.Exec // nil before its start, and while nobody could attach to it
	result *live.ExecResult
	news   *live.ExecEnded // what is told of its end, once that can be
	told   bool
	// awaited says that an answer brings the end along, if it comes soon.
	awaited bool
}

// newExec makes an exec that is written down at path.
func (k *kept) newExec(c live.Command, path string) *keptExec {
	e := &keptExec{of: k, order: c, ready: make(chan struct{}), handed: make(chan struct{}), in: newInput()}
	e.order.Stdin = nil
	e.out.path = k.base.boxFolder(k.order.ID) + "/" + c.ID
	e.ledger.path, e.ledger.log, e.ledger.sheet = path, k.log, true
	return e
}

// findExec returns an exec that was started.
func (h *hosted) findExec(ctx context.Context, box, id string) (*keptExec, error) {
	k, err := h.find(ctx, box)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	e := k.execs[id]
	k.mu.Unlock()
	if e == nil {
		return nil, fault.New(fault.NotFound, "the sandbox has no command %s, or it ended long ago", clip(id)).WithCode(dispatch.CodeNoExec)
	}
	return e, e.await(ctx)
}

// await waits for the start.
func (e *keptExec) await(ctx context.Context) error {
	select {
	case <-e.ready:
		return e.err
	case <-ctx.Done():
		return fault.New(fault.Unavailable, "wait for the start of the command: %w", context.Cause(ctx))
	}
}

// StartExec starts a command, or finds the one with the same id. The start goes
// on when the caller gives up.
func (rc receiver) StartExec(ctx context.Context, c live.Command) error {
	if err := dispatch.CheckExecOrder(c); err != nil {
		return err
	}
	k, err := rc.run.hosted.find(ctx, c.Sandbox)
	if err != nil {
		return err
	}
	e, err := k.enterExec(c, false) //nolint:contextcheck // an exec outlives the call that starts it
	if err != nil {
		return err
	}
	return e.await(ctx)
}

// RunExec is StartExec that waits a while for the end.
func (rc receiver) RunExec(ctx context.Context, c live.Command, within time.Duration) (*live.ExecEnded, error) {
	if err := dispatch.CheckRunExec(c, within); err != nil {
		return nil, err
	}
	k, err := rc.run.hosted.find(ctx, c.Sandbox)
	if err != nil {
		return nil, err
	}
	e, err := k.enterExec(c, true) //nolint:contextcheck // an exec outlives the call that starts it
	if err != nil {
		return nil, err
	}
	soon := time.NewTimer(within)
	defer soon.Stop()
	select {
	case <-e.handed:
	case <-soon.C:
	case <-ctx.Done():
	}
	end := e.leave()
	if end != nil {
		return end, nil
	}
	return nil, e.await(ctx)
}

// leave stops to await the end, and returns it if it has come.
func (e *keptExec) leave() *live.ExecEnded {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.awaited = false
	return e.news
}

// enterExec begins a command, unless there is one with its id.
func (k *kept) enterExec(c live.Command, awaited bool) (*keptExec, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.execs[c.ID]; e != nil {
		return e, nil
	}
	switch {
	case k.over != nil || k.closing != nil:
		return nil, errBoxEnded
	case k.paused != "":
		return nil, errPaused
	case k.running >= maxRunningExecs || k.untold >= maxExecs:
		return nil, errTooManyExecs
	case k.unread > 0 && k.unread+len(c.Stdin) > maxUnread:
		return nil, errInputFull
	}
	e := k.newExec(c, k.sheets.take())
	e.awaited = awaited
	k.unread += len(c.Stdin)
	k.execs[c.ID] = e
	k.running++
	k.untold++
	k.working.Go(func() { e.begin(c.Stdin) })
	return e, nil
}

// begin starts the command and sees it to its end.
func (e *keptExec) begin(stdin []byte) {
	e.began = time.Now()
	err := e.ledger.add(execLine{Version: keptVersion, Order: &e.order, Began: e.began})
	if err == nil {
		err = e.start(len(stdin) > 0)
	}
	if err != nil {
		e.err = err
		e.of.took(len(stdin))
		e.forget()
		close(e.ready)
		close(e.handed)
		return
	}
	e.ledger.note(execLine{Started: true})
	if !e.order.Open && len(stdin) == 0 {
		e.in.shut()
	} else {
		e.feedFirst(stdin)
	}
	close(e.ready)
	e.see()
}

// start asks the sandbox for the process.
func (e *keptExec) start(stdin bool) error {
	k, c := e.of, e.order
	env := maps.Clone(k.order.Spec.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, c.Env)
	spec := sandbox.ExecSpec{
		ID: c.ID, Command: c.Command, Env: env, Dir: c.Dir, User: c.User, TTY: c.TTY, Cols: c.Cols, Rows: c.Rows, Stdin: stdin || c.Open,
	}
	exec, err := k.box.Exec(context.WithoutCancel(k.life), spec, e.options())
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.exec = exec
	return nil
}

func (e *keptExec) options() sandbox.ExecOptions {
	return sandbox.ExecOptions{Timeout: e.order.Timeout, Sink: &e.out, OutputCap: cmp.Or(e.order.OutputCap, defaultExecOutput)}
}

// see waits for the end of the command and has it told.
func (e *keptExec) see() {
	// The end of the sandbox is the end of all that runs in it, so this ends.
	exec := e.running()
	res, err := exec.Wait(context.WithoutCancel(e.of.life))
	if exec.Left() {
		return // it goes on from a snapshot
	}
	if err != nil {
		e.of.log.Error("could not keep the output of a command", "exec", e.order.ID, "error", err)
	}
	e.in.shut()
	e.out.end()
	e.ended(resultOf(res))
}

// running is what runs.
func (e *keptExec) running() *sandbox.Exec {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.exec
}

func resultOf(res sandbox.Result) live.ExecResult {
	code := res.Exit.Code
	if res.Verdict == sandbox.Timeout || code < -1 || code > 255 {
		code = -1
	}
	return live.ExecResult{
		Verdict: res.Verdict, Cause: line(res.Cause), ExitCode: code, Signal: min(max(res.Exit.Signal, 0), 64),
		Stdout: outputOf(res.Stdout), Stderr: outputOf(res.Stderr), Started: res.Started.UTC(), Ended: res.Ended.UTC(),
	}
}

// ended writes the end down and hands it over. Who waits for the answer need not
// wait for the first: until it is done, a later process finds the end where this
// one did.
func (e *keptExec) ended(res live.ExecResult) {
	e.mu.Lock()
	e.result = &res
	soon := e.awaited
	e.mu.Unlock()
	k := e.of
	k.mu.Lock()
	k.running--
	k.mu.Unlock()
	if soon = soon && e.rides(&res); !soon {
		e.writeEnd(&res)
	}
	n := e.pack()
	if n == nil {
		return // the next process tells
	}
	awaited := e.answer(n)
	if soon {
		e.writeEnd(&res)
	}
	e.tell(n, awaited)
}

func (e *keptExec) writeEnd(res *live.ExecResult) {
	e.ledger.note(execLine{Ended: res})
	e.ledger.rest()
}

// forget removes a command that was not started.
func (e *keptExec) forget() {
	e.out.remove()
	e.ledger.giveTo(&e.of.sheets)
	k := e.of
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.execs, e.order.ID)
	k.running--
	k.untold--
	k.lastTold()
}

// open reports whether anybody is still to hear of its end.
func (e *keptExec) open() bool {
	select {
	case <-e.ready:
	default:
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err == nil && !e.told
}

// starved reports whether it ended because the sandbox ran out of memory.
func (e *keptExec) starved() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.result != nil && e.result.Verdict == sandbox.OOM
}

// process returns what runs, or why there is nothing.
func (e *keptExec) process() (*sandbox.Exec, error) {
	e.of.mu.Lock()
	paused := e.of.paused != ""
	e.of.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.result != nil:
		return nil, errExecEnded
	case paused || e.exec == nil:
		return nil, errPaused
	}
	return e.exec, nil
}

// FollowExec hands on what a command prints.
func (rc receiver) FollowExec(ctx context.Context, f live.Follow, piece func(dispatch.Chunk) error) error {
	if err := dispatch.CheckFollow(f); err != nil {
		return err
	}
	e, err := rc.run.hosted.findExec(ctx, f.Sandbox, f.Exec)
	if err != nil {
		return err
	}
	return e.out.follow(ctx, f.From, piece)
}

// ResizeExec sets the size of a command's terminal.
func (rc receiver) ResizeExec(ctx context.Context, s live.Size) error {
	if err := dispatch.CheckTerminalSize(s); err != nil {
		return err
	}
	e, err := rc.run.hosted.findExec(ctx, s.Sandbox, s.Exec)
	if err != nil {
		return err
	}
	exec, err := e.process()
	if err != nil {
		return err
	}
	return exec.Resize(ctx, s.Cols, s.Rows)
}

// SignalExec sends a command a signal, or kills it.
func (rc receiver) SignalExec(ctx context.Context, s live.Signal) error {
	if err := dispatch.CheckSignal(s); err != nil {
		return err
	}
	e, err := rc.run.hosted.findExec(ctx, s.Sandbox, s.Exec)
	if err != nil {
		return err
	}
	exec, err := e.process()
	switch {
	case s.Kill != "" && fault.CodeOf(err) == dispatch.CodeExecEnded:
		return nil
	case err != nil:
		return err
	case s.Kill != "":
		return exec.Kill(ctx, line(s.Kill))
	}
	return exec.Signal(ctx, s.Signal, s.Tree)
}

// lost is the end of a command that nobody saw.
func (e *keptExec) lost(verdict sandbox.Verdict, cause string, began time.Time) {
	from, _, err := e.out.resume()
	var stdout, stderr sandbox.Output
	if err == nil {
		stdout, stderr, err = from.Output()
	}
	if err != nil {
		e.of.log.Error("could not read the output of a command", "exec", e.order.ID, "error", err)
		stdout, stderr = sandbox.Output{SHA256: emptySHA256, Truncated: true}, sandbox.Output{SHA256: emptySHA256, Truncated: true}
	}
	e.out.end()
	e.in.shut()
	now := time.Now().UTC()
	if began.IsZero() || began.After(now) {
		began = now
	}
	e.ended(live.ExecResult{
		Verdict: verdict, Cause: line(cause), ExitCode: -1, Started: began.UTC(), Ended: now,
		Stdout: outputOf(stdout), Stderr: outputOf(stderr),
	})
}

// bytesOf returns one of the streams of an end.
func bytesOf(r *live.ExecResult, i int) *oneshot.Output {
	if i == 0 {
		return &r.Stdout
	}
	return &r.Stderr
}
