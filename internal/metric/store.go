package metric

import (
	"context"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/store"
)

// Store returns a store that measures its transactions and is otherwise the
// one that it was given.
func (m *Metrics) Store(next store.Store) store.Store { return measured{next, m} }

type measured struct {
	store.Store
	m *Metrics
}

// Update measures how long a change waits until it is on disk.
func (s measured) Update(ctx context.Context, fn func(store.Tx) error) error {
	began := time.Now()
	err := s.Store.Update(ctx, fn)
	s.m.commits.Observe(time.Since(began).Seconds())
	s.failed(ctx, err)
	return err
}

// View measures how long a look takes.
func (s measured) View(ctx context.Context, fn func(store.Tx) error) error {
	began := time.Now()
	err := s.Store.View(ctx, fn)
	s.m.views.Observe(time.Since(began).Seconds())
	s.failed(ctx, err)
	return err
}

// failed counts errors that are neither the caller's nor a caller's that went.
func (s measured) failed(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil && (fault.Is(err, fault.Internal) || fault.Is(err, fault.Unavailable)) {
		s.m.failures.Inc()
	}
}
