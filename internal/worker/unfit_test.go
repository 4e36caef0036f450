package worker_test

import (
	"context"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/worker"
)

// unfit is a driver in whose sandboxes interpreters wait that can be given no
// files.
type unfit struct {
	sandbox.Driver
	mu    sync.Mutex
	tried int
}

type unfitBox struct {
	sandbox.Box
	driver *unfit
}

func (u *unfit) Create(ctx context.Context, spec sandbox.Spec, report func(sandbox.Handle) error) (sandbox.Box, error) {
	box, err := u.Driver.Create(ctx, spec, report)
	return unfitBox{box, u}, err
}

func (b unfitBox) Environ(sandbox.ExecSpec) []string { return nil }

// PutLocked implements sandbox.Locker.
func (b unfitBox) PutLocked(ctx context.Context, dir string, tar io.Reader) error {
	return b.Put(ctx, dir, tar)
}

func (b unfitBox) Exec(ctx context.Context, spec sandbox.ExecSpec) (sandbox.Process, error) {
	if spec.Env["AUREA_LAUNCHER"] == "" {
		return b.Box.Exec(ctx, spec)
	}
	p := &waiter{driver: b.driver, said: make(chan string, 1), ended: make(chan struct{})}
	p.said <- "aurea: ready\n"
	return p, nil
}

// waiter is an interpreter that waits, and ends without its files.
type waiter struct {
	driver *unfit
	said   chan string
	once   sync.Once
	ended  chan struct{}
}

func (p *waiter) ID() string { return "run" }

func (p *waiter) Next(ctx context.Context) (sandbox.Frame, error) {
	select {
	case words := <-p.said:
		return sandbox.Frame{Stream: sandbox.Stdout, Data: []byte(words)}, nil
	case <-p.ended:
		return sandbox.Frame{}, io.EOF
	case <-ctx.Done():
		return sandbox.Frame{}, context.Cause(ctx)
	}
}

func (p *waiter) Wait(ctx context.Context) (sandbox.Exit, error) {
	select {
	case <-p.ended:
		return sandbox.Exit{Ended: time.Now()}, nil
	case <-ctx.Done():
		return sandbox.Exit{}, context.Cause(ctx)
	}
}

func (p *waiter) Supply(context.Context, sandbox.Files, []byte) error {
	p.driver.mu.Lock()
	p.driver.tried++
	p.driver.mu.Unlock()
	p.end()
	return fault.New(fault.Internal, "the disk is broken")
}

func (p *waiter) end() { p.once.Do(func() { close(p.ended) }) }

func (p *waiter) Write(context.Context, []byte) error          { return nil }
func (p *waiter) CloseInput(context.Context) error             { return nil }
func (p *waiter) Resize(context.Context, uint16, uint16) error { return nil }
func (p *waiter) Signal(context.Context, int, bool) error      { p.end(); return nil }

// A sandbox that waited and cannot take the files is no reason for a run to fail,
// and never one to say that it went well.
func TestRunWhoseWaitingSandboxIsUnfit(t *testing.T) {
	driver := &unfit{}
	story(t, func(c *worker.Config) {
		driver.Driver = c.Drivers["fake"]
		c.Drivers = map[string]sandbox.Driver{"fake": driver}
		c.Pool = map[string]int{"python": 1}
	}, func(t *testing.T, s *stand) {
		pass(time.Minute) // one waits
		o := run.Order{ID: "a", Owner: "o", Language: "python", Code: "print(1)", Timeout: 10 * time.Second, ReadOnly: true, Artifacts: true}
		got := ask(t.Context(), s.runner(), o)
		if got.err != nil || got.Verdict != sandbox.OK || got.Warm || got.stdout == "" {
			t.Errorf("%+v", got)
		}
		driver.mu.Lock()
		defer driver.mu.Unlock()
		if driver.tried != 1 {
			t.Errorf("the waiting sandbox was tried %d times", driver.tried)
		}
	})
}
