package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"
)

// Part is a member of a Group.
type Part struct {
	Name string
	Service
	// StopWithin bounds its stop; 0 is DefaultStopWithin.
	StopWithin time.Duration
}

// errHurry is the cause with which stops end that somebody would not wait for.
var errHurry = errors.New("told to hurry")

// DefaultStopWithin is how long a part may take to stop when it says nothing.
const DefaultStopWithin = 10 * time.Second

// Group is parts that live and die together: started in order, stopped in
// reverse, and stopped all when one of them ends.
type Group struct {
	Parts  []Part
	Logger *slog.Logger
	// Ready is called when every part serves; nil is nothing.
	Ready func()
	// Hurry, once closed, ends the patience with parts that are stopping; nil
	// is never.
	Hurry <-chan struct{}
}

// Run starts the parts, waits until ctx ends or one part ends by itself, and
// stops those that were started. It returns nil after an ordered end, and
// otherwise what went wrong first, joined with what went wrong in stopping.
func (g Group) Run(ctx context.Context) error {
	started := 0
	var failed error
	for _, p := range g.Parts {
		if ctx.Err() != nil {
			break
		}
		g.Logger.Debug("starting", "part", p.Name)
		if err := p.Start(ctx); err != nil {
			if ctx.Err() == nil {
				failed = fmt.Errorf("start %s: %w", p.Name, err)
			}
			break
		}
		started++
	}
	if started == len(g.Parts) {
		if g.Ready != nil {
			g.Ready()
		}
		failed = g.wait(ctx)
	}
	return errors.Join(failed, g.stop(context.WithoutCancel(ctx), started))
}

// wait returns the failure of the first part that ends by itself, or nil when
// ctx ends.
func (g Group) wait(ctx context.Context) error {
	cases := []reflect.SelectCase{{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ctx.Done())}}
	for _, p := range g.Parts {
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(p.Done())})
	}
	i, _, _ := reflect.Select(cases)
	if i == 0 {
		return nil
	}
	p := g.Parts[i-1]
	err := p.Err()
	if err == nil {
		err = errEnded
	}
	return fmt.Errorf("run %s: %w", p.Name, err)
}

func (g Group) stop(ctx context.Context, started int) error {
	ctx, end := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-g.Hurry:
			end(errHurry)
		case <-ctx.Done():
		}
	}()
	defer func() { end(ErrStopped); <-watched }()
	var errs []error
	for i := started - 1; i >= 0; i-- {
		p := g.Parts[i]
		within := p.StopWithin
		if within == 0 {
			within = DefaultStopWithin
		}
		g.Logger.Debug("stopping", "part", p.Name)
		bound, cancel := context.WithTimeout(ctx, within)
		if err := p.Stop(bound); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", p.Name, err))
		}
		cancel()
	}
	return errors.Join(errs...)
}
