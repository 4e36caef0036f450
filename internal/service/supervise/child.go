// Package supervise keeps child processes alive: it starts them, passes on
// what they print, starts again what dies, and stops them. Each child is a
// service. It knows nothing of what the children do.
package supervise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/service"
)

// Spec says what to keep alive and how.
type Spec struct {
	Name string
	// Command makes a command for each start. The child's output, process
	// group and parent-death signal are set here; the rest is the caller's.
	Command func() *exec.Cmd
	// Ready is asked again and again after the first start until it is true;
	// nil is ready as soon as the process runs.
	Ready func(ctx context.Context) bool
	// Tries bounds how often the child may die before it was ready; 0 is 3.
	Tries int
	// Final says of an exit code that starting again cannot help, because the
	// child would fail the same way; nil is never.
	Final func(code int) bool
	// StopWithin is how long it may take to end after SIGTERM before it gets
	// SIGKILL; 0 is service.DefaultStopWithin.
	StopWithin time.Duration
	// NoNewPrivileges keeps the child and all its descendants from gaining
	// privileges through set-user-ID programs.
	NoNewPrivileges bool
	Backoff         Backoff
	Output          *Output
	Logger          *slog.Logger
}

// Backoff is the wait before a child is started again: First, doubling to
// Most, and First again once a child has lived for Settled. Zero fields take
// 100 ms, 10 s and 10 s.
type Backoff struct {
	First, Most, Settled time.Duration
}

func (b Backoff) withDefaults() Backoff {
	if b.First == 0 {
		b.First = 100 * time.Millisecond
	}
	if b.Most == 0 {
		b.Most = 10 * time.Second
	}
	if b.Settled == 0 {
		b.Settled = 10 * time.Second
	}
	return b
}

// next returns the wait after a child that lived for a while, and the one to
// remember for the death after that.
func (b Backoff) next(last, lived time.Duration) time.Duration {
	if last == 0 || lived >= b.Settled {
		return b.First
	}
	return min(2*last, b.Most)
}

// readyEvery is how often Ready is asked.
const readyEvery = 25 * time.Millisecond

// Child is a process that is kept alive.
type Child struct {
	*service.Func
	spec Spec

	force     chan struct{}
	forceOnce sync.Once

	mu  sync.Mutex
	pid int
}

var _ service.Service = (*Child)(nil)

// New returns the child, not yet started.
func New(spec Spec) *Child {
	spec.Backoff = spec.Backoff.withDefaults()
	if spec.Tries == 0 {
		spec.Tries = 3
	}
	if spec.StopWithin == 0 {
		spec.StopWithin = service.DefaultStopWithin
	}
	c := &Child{spec: spec, force: make(chan struct{})}
	c.Func = service.NewFunc(c.live)
	return c
}

// PID is the process id of the child that runs now, or 0.
func (c *Child) PID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pid
}

// Stop asks the child to end by SIGTERM. When ctx ends first, the child is
// killed.
func (c *Child) Stop(ctx context.Context) error {
	err := c.Func.Stop(ctx)
	if err == nil {
		return nil
	}
	c.forceOnce.Do(func() { close(c.force) })
	<-c.Done()
	return fmt.Errorf("%s had to be killed: %w", c.spec.Name, context.Cause(ctx))
}

// live is the run of the child's service. It stays on one thread for as long
// as a child runs, because the kernel ties the parent-death signal to the
// thread that made the child, and no-new-privileges to the thread as well. It
// never unlocks, so the thread goes with it.
func (c *Child) live(ctx context.Context, ready func()) error {
	runtime.LockOSThread()
	if c.spec.NoNewPrivileges {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("give up new privileges: %w", err)
		}
	}
	asking, stopAsking := context.WithCancelCause(ctx)
	var asked sync.WaitGroup
	defer func() { stopAsking(service.ErrStopped); asked.Wait() }()
	wasReady := make(chan struct{})
	asked.Go(func() {
		if c.ask(asking) {
			close(wasReady)
			ready()
		}
	})

	var wait time.Duration
	for deaths := 0; ; {
		born := time.Now()
		end, err := c.once(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		if c.spec.Final != nil && c.spec.Final(end.ExitCode()) {
			return &Died{Name: c.spec.Name, Code: end.ExitCode(), Said: end.String()}
		}
		select {
		case <-wasReady:
		default:
			if deaths++; deaths >= c.spec.Tries {
				return &Died{Name: c.spec.Name, Code: end.ExitCode(), Said: end.String()}
			}
		}
		lived := time.Since(born)
		wait = c.spec.Backoff.next(wait, lived)
		c.spec.Logger.Warn("a process died and is started again", "process", c.spec.Name, "ended", end.String(), "lived", lived.Round(time.Millisecond), "in", wait)
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// Died is the error of a child that starting again cannot help.
type Died struct {
	Name string
	Code int // exit code; -1 after a signal
	Said string
}

// Error says which, and how it ended.
func (d *Died) Error() string { return fmt.Sprintf("%s ended (%s)", d.Name, d.Said) }

// ExitCode is the code of the child, or 1 where it has none.
func (d *Died) ExitCode() int { return max(d.Code, 1) }

// ask waits until the child says that it is ready.
func (c *Child) ask(ctx context.Context) bool {
	for c.spec.Ready == nil || !c.spec.Ready(ctx) {
		if c.spec.Ready == nil && c.PID() != 0 {
			return true
		}
		if sleep(ctx, readyEvery) != nil {
			return false
		}
	}
	return true
}

// once starts the child and waits for its end, which it brings about when ctx
// ends.
func (c *Child) once(ctx context.Context) (*os.ProcessState, error) {
	cmd := c.spec.Command()
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe for %s: %w", c.spec.Name, err)
	}
	cmd.Stdout, cmd.Stderr = write, write
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true // a Ctrl-C is for us, and we stop them in order
	cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
	err = cmd.Start()
	_ = write.Close()
	if err != nil {
		_ = read.Close()
		return nil, fmt.Errorf("start %s: %w", c.spec.Name, err)
	}
	c.setPID(cmd.Process.Pid)
	defer c.setPID(0)

	var passing sync.WaitGroup
	passing.Go(func() { c.spec.Output.copy(c.spec.Name, read) })
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	err = c.await(ctx, cmd, ended)
	// A descendant may hold the pipe open; what it says later is not ours.
	_ = read.SetReadDeadline(time.Now().Add(lastWords))
	passing.Wait()
	_ = read.Close()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, fmt.Errorf("wait for %s: %w", c.spec.Name, err)
	}
	return cmd.ProcessState, nil
}

// lastWords is how long output may still come in after a child's end.
const lastWords = 200 * time.Millisecond

// await returns what Wait returned. Signals go to the process alone, never to
// its group: sandboxes may outlive their worker.
func (c *Child) await(ctx context.Context, cmd *exec.Cmd, ended <-chan error) error {
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	patience := time.NewTimer(c.spec.StopWithin)
	defer patience.Stop()
	select {
	case err := <-ended:
		return err
	case <-patience.C:
		c.spec.Logger.Warn("a process did not stop in time and is killed", "process", c.spec.Name, "after", c.spec.StopWithin)
	case <-c.force:
		c.spec.Logger.Warn("a process is killed", "process", c.spec.Name)
	}
	_ = cmd.Process.Kill()
	return <-ended
}

func (c *Child) setPID(pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pid = pid
}

// sleep waits, or returns the cause with which ctx ended.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
