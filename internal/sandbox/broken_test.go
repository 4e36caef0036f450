package sandbox_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/aurea-dev/aurea/internal/sandbox"
)

// broken is a driver that breaks its contract in the ways it is told to.
type broken struct {
	sandbox.Driver
	capabilities *sandbox.Capabilities
	enforced     *sandbox.Limits
	created      atomic.Int64
	silent       bool // Create does not report
	destroyFails atomic.Bool
	immortal     bool // signals do nothing
	mute         bool // Wait returns only when its ctx ends
	endless      bool // Next never returns io.EOF
	usage        func() (sandbox.Usage, error)
}

func (d *broken) Capabilities() sandbox.Capabilities {
	if d.capabilities != nil {
		return *d.capabilities
	}
	return d.Driver.Capabilities()
}

func (d *broken) Create(ctx context.Context, spec sandbox.Spec, report func(sandbox.Handle) error) (sandbox.Box, error) {
	d.created.Add(1)
	if d.silent {
		report = func(sandbox.Handle) error { return nil }
	}
	b, err := d.Driver.Create(ctx, spec, report)
	if err != nil {
		return nil, err
	}
	return &brokenBox{b, d}, nil
}

func (d *broken) Destroy(ctx context.Context, h sandbox.Handle) error {
	if d.destroyFails.Load() {
		return errors.New("the driver is stuck")
	}
	return d.Driver.Destroy(ctx, h)
}

type brokenBox struct {
	sandbox.Box
	d *broken
}

func (b *brokenBox) Enforced() sandbox.Limits {
	if b.d.enforced != nil {
		return *b.d.enforced
	}
	return b.Box.Enforced()
}

func (b *brokenBox) Exec(ctx context.Context, spec sandbox.ExecSpec) (sandbox.Process, error) {
	p, err := b.Box.Exec(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &brokenProcess{p, b.d}, nil
}

func (b *brokenBox) Usage(ctx context.Context) (sandbox.Usage, error) {
	if b.d.usage != nil {
		return b.d.usage()
	}
	return b.Box.Usage(ctx)
}

type brokenProcess struct {
	sandbox.Process
	d *broken
}

func (p *brokenProcess) Signal(ctx context.Context, signal int, tree bool) error {
	if p.d.immortal {
		return nil
	}
	return p.Process.Signal(ctx, signal, tree)
}

func (p *brokenProcess) Wait(ctx context.Context) (sandbox.Exit, error) {
	if p.d.mute {
		<-ctx.Done()
		return sandbox.Exit{}, context.Cause(ctx)
	}
	return p.Process.Wait(ctx)
}

func (p *brokenProcess) Next(ctx context.Context) (sandbox.Frame, error) {
	f, err := p.Process.Next(ctx)
	if err != nil && p.d.endless {
		<-ctx.Done()
		return sandbox.Frame{}, context.Cause(ctx)
	}
	return f, err
}

// memory is a sink that keeps everything.
type memory struct {
	mu  sync.Mutex
	out [3]strings.Builder
}

func (m *memory) Write(_ context.Context, f sandbox.Frame) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.out[f.Stream].Write(f.Data)
	return nil
}

func (m *memory) stdout() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.out[sandbox.Stdout].String()
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
