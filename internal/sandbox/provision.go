package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/aurea-dev/aurea/internal/fault"
)

// errProvision is a cause of its own so that our bound can be told from the
// caller's.
var errProvision = fault.New(fault.Unavailable, "the sandbox was not ready in time; its driver may be overloaded").
	WithCode("provision_timeout")

// provision is the making of one sandbox: what has to be undone is the handle
// that the driver reported.
type provision struct {
	opts Options

	mu     sync.Mutex
	handle *Handle
}

func (p *provision) create(ctx context.Context) (Box, error) {
	bounded, cancel := context.WithTimeoutCause(ctx, p.opts.ProvisionTimeout, errProvision)
	defer cancel()
	box, err := p.opts.Driver.Create(bounded, p.opts.Spec, p.report)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(bounded), errProvision) {
		return nil, fmt.Errorf("create sandbox: %w", errProvision)
	}
	if err != nil {
		return nil, fmt.Errorf("create sandbox: %w", err)
	}
	return box, nil
}

// report remembers the handle before it hands it on: a report that fails after
// it was half written must still be undone.
func (p *provision) report(h Handle) error {
	p.mu.Lock()
	p.handle = &h
	p.mu.Unlock()
	if err := p.opts.Report(h); err != nil {
		return fmt.Errorf("report handle: %w", err)
	}
	return nil
}

// inspect refuses a sandbox that its driver did not make as promised.
func (p *provision) inspect(box Box) error {
	p.mu.Lock()
	reported := p.handle != nil
	if !reported {
		h := box.Handle()
		p.handle = &h
	}
	p.mu.Unlock()
	if !reported {
		return fault.New(fault.Internal, "driver %s made a sandbox without reporting its handle", p.opts.Driver.Name())
	}
	if err := p.opts.Spec.Limits.Hold(box.Enforced()); err != nil {
		return fmt.Errorf("check limits: %w", err)
	}
	return nil
}

func (p *provision) undo(ctx context.Context) error {
	p.mu.Lock()
	h := p.handle
	p.mu.Unlock()
	if h == nil {
		return nil
	}
	bounded, cancel := cleanup(ctx, p.opts)
	defer cancel()
	return destroy(bounded, p.opts, *h)
}
