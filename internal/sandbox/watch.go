package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// run watches one exec from its start to its result. Its own goroutines have
// ended when it returns.
func (e *Exec) run(timeout time.Duration) {
	defer e.sandbox.tasks.Done()
	life := e.sandbox.life
	pumping, stopPump := context.WithCancelCause(life)
	pumped := make(chan struct{})
	go func() {
		defer close(pumped)
		e.pumpErr = e.pump(pumping)
	}()
	waiting, stopWait := context.WithCancelCause(life)
	exits := make(chan Exit, 1)
	go func() { exits <- e.awaitExit(waiting) }()

	exit := e.await(timeout, exits, stopWait)
	e.seal()
	stopWait(nil)
	e.drain(pumped, stopPump)
	stopPump(nil)
	e.finish(exit)
}

// await returns the exit, after killing the process when its time is up or
// somebody asks for it. The time of a process that waits for its work begins
// with that, and does not pass while the sandbox is paused.
func (e *Exec) await(timeout time.Duration, exits <-chan Exit, giveUp context.CancelCauseFunc) Exit {
	var begun <-chan struct{}
	if len(e.mark) > 0 {
		begun, timeout = e.begun, 0
	}
	for left := timeout; ; {
		paused, pausing := e.sandbox.pausedNow()
		clock := newClock(left, paused)
		select {
		case exit := <-exits:
			clock.stop()
			return exit
		case <-e.sandbox.box.Done():
			clock.stop()
			return await(exits, deathWait, giveUp, errUnseen)
		case <-begun:
			clock.stop()
			begun, timeout = nil, e.given()
			left = timeout
			continue
		case <-pausing:
			left = clock.stop()
			continue
		case <-e.stop:
			clock.stop()
		case <-clock.expired:
			e.decide(Timeout, fmt.Sprintf("ran longer than %s", timeout))
		}
		return e.kill(exits, giveUp)
	}
}

// clock measures a time that may stand still.
type clock struct {
	timer   *time.Timer
	expired <-chan time.Time // nil where no time passes
	began   time.Time
	left    time.Duration
}

func newClock(left time.Duration, paused bool) clock {
	c := clock{left: left, began: time.Now()}
	if left > 0 && !paused {
		c.timer = time.NewTimer(left)
		c.expired = c.timer.C
	}
	return c
}

// stop returns what is left of the time.
func (c clock) stop() time.Duration {
	if c.timer == nil {
		return c.left
	}
	c.timer.Stop()
	return max(c.left-time.Since(c.began), 1)
}

// kill ends the whole tree. A process that survives takes its sandbox with it:
// nothing may run on after its time.
func (e *Exec) kill(exits <-chan Exit, giveUp context.CancelCauseFunc) Exit {
	s := e.sandbox
	for range killTries {
		if exit, over := e.awaitResume(exits, giveUp); over {
			return exit
		}
		bounded, cancel := context.WithTimeoutCause(s.life, killWait, errKill)
		if err := e.proc.Signal(bounded, sigKill, true); err != nil {
			s.log.Debug("kill process", "exec", e.ID(), "error", err)
		}
		select {
		case exit := <-exits:
			cancel()
			return exit
		case <-s.box.Done():
			cancel()
			return await(exits, deathWait, giveUp, errUnseen)
		case <-bounded.Done():
			cancel()
		}
	}
	s.condemn(fmt.Sprintf("process %s survived being killed", e.ID()))
	select {
	case exit := <-exits: // also when the sandbox's life ends
		return exit
	case <-s.box.Done():
		return await(exits, deathWait, giveUp, errUnseen)
	}
}

// awaitResume waits until the sandbox is not paused: nothing in it dies before. It
// returns the exit where that comes first.
func (e *Exec) awaitResume(exits <-chan Exit, giveUp context.CancelCauseFunc) (Exit, bool) {
	for {
		paused, changed := e.sandbox.pausedNow()
		if !paused {
			return Exit{}, false
		}
		select {
		case <-changed:
		case exit := <-exits:
			return exit, true
		case <-e.sandbox.box.Done():
			return await(exits, deathWait, giveUp, errUnseen), true
		}
	}
}

// await gives the driver some time to bring in the exit, and then gives up.
func await(exits <-chan Exit, patience time.Duration, giveUp context.CancelCauseFunc, why error) Exit {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case exit := <-exits:
		return exit
	case <-timer.C:
		giveUp(why)
		return <-exits
	}
}

// awaitExit turns a wait that failed into an exit that was not seen.
func (e *Exec) awaitExit(ctx context.Context) Exit {
	exit, err := e.proc.Wait(ctx)
	if err == nil {
		return exit
	}
	e.sandbox.log.Warn("wait for process", "exec", e.ID(), "error", err)
	select {
	case <-e.sandbox.box.Done():
	case <-ctx.Done():
	default:
		// Nobody will see this process end, so it must not go on unseen.
		e.sandbox.killStray(ctx, e.ID())
	}
	return Exit{Code: -1, Lost: true, Ended: time.Now()}
}

// pump carries output from the driver to the sink until its end.
func (e *Exec) pump(ctx context.Context) error {
	if more, err := e.hold(ctx); err != nil || !more {
		return err
	}
	for {
		f, err := e.proc.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read output: %w", err)
		}
		e.frames.Add(1)
		if f.Stream == Stdout {
			f.Offset -= int64(len(e.mark))
		}
		t := &e.stdout
		if f.Stream == Stderr {
			t = &e.stderr
		} else if f.Stream != Stdout {
			continue
		}
		stream := f.Stream
		if f, ok := t.take(f); ok {
			e.keep(ctx, t, f)
		}
		e.witness(ctx, stream, t)
	}
}

// witness tells the sink of what was seen and not kept.
func (e *Exec) witness(ctx context.Context, s Stream, t *tally) {
	w, ok := e.sink.(Witness)
	if !ok || t.seen == t.kept {
		return
	}
	if err := w.Saw(ctx, s, t.seen); err != nil {
		e.refused(err)
	}
}

// keep hands a frame to the sink. When the sink fails the process goes on: its
// output is still counted, and Wait tells.
func (e *Exec) keep(ctx context.Context, t *tally, f Frame) {
	if e.sink != nil {
		if err := e.sink.Write(ctx, f); err != nil {
			e.refused(err)
			return
		}
	}
	t.keep(f)
}

// refused lets go of a sink that failed.
func (e *Exec) refused(err error) {
	e.err = fmt.Errorf("keep output: %w", err)
	e.sink = nil
	e.stdout.truncated, e.stderr.truncated = true, true
}

// drain waits for the pump. Output that still makes progress gets all the time
// it needs; output that does not end is cut off.
func (e *Exec) drain(pumped <-chan struct{}, cut context.CancelCauseFunc) {
	timer := time.NewTimer(drainWait)
	defer timer.Stop()
	for frames := e.frames.Load(); ; frames = e.frames.Load() {
		select {
		case <-pumped:
			return
		case <-timer.C:
		}
		if e.frames.Load() == frames {
			cut(errDrain)
			<-pumped
			return
		}
		timer.Reset(drainWait)
	}
}

// finish writes the result and lets everybody who waits see it.
func (e *Exec) finish(exit Exit) {
	now := time.Now()
	if exit.Ended.Before(e.started) || exit.Ended.After(now) {
		exit.Ended = now // the clock inside is not believed
	}
	if e.pumpErr != nil {
		e.stdout.truncated, e.stderr.truncated = true, true
		e.sandbox.log.Warn("output cut off", "exec", e.ID(), "error", e.pumpErr)
	}
	e.mu.Lock()
	verdict, cause := e.verdict, e.cause
	e.mu.Unlock()
	if verdict == "" {
		verdict, cause = exit.verdict()
	}
	e.result = Result{
		Verdict: verdict, Cause: cause, Exit: exit, Started: e.started, Ended: exit.Ended,
		Stdout: e.stdout.output(), Stderr: e.stderr.output(),
	}
	s := e.sandbox
	s.mu.Lock()
	delete(s.execs, e)
	s.mu.Unlock()
	close(e.done)
}
