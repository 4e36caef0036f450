// Package servicetest holds the suite that every service passes: starting and
// stopping it in every order, from several goroutines, many times. Only tests
// import it.
package servicetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/service"
)

// Stress exercises the contract of service.Service on fresh services from
// make. It leaves nothing running, which the caller's leak check confirms.
func Stress(t *testing.T, make func(t *testing.T) service.Service) {
	t.Helper()
	t.Run("start and stop", func(t *testing.T) {
		for range 20 {
			s := make(t)
			start(t, s)
			select {
			case <-s.Done():
				t.Fatalf("ended by itself: %v", s.Err())
			default:
			}
			stop(t, s)
			ended(t, s)
		}
	})
	t.Run("stop again, from many goroutines", func(t *testing.T) {
		s := make(t)
		start(t, s)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { stop(t, s) })
		}
		wg.Wait()
		stop(t, s)
		ended(t, s)
	})
	t.Run("stop without start", func(t *testing.T) {
		s := make(t)
		stop(t, s)
		stop(t, s)
		if err := s.Start(t.Context()); err == nil {
			t.Error("a stopped service could be started")
			stop(t, s)
		}
	})
	t.Run("stop while starting", func(t *testing.T) {
		for range 20 {
			s := make(t)
			var wg sync.WaitGroup
			var err error
			wg.Go(func() { err = s.Start(t.Context()) })
			wg.Go(func() { stop(t, s) })
			wg.Wait()
			stop(t, s)
			if err == nil {
				ended(t, s)
			}
		}
	})
	t.Run("end of the start's context does not end the service", func(t *testing.T) {
		s := make(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		if err := s.Start(ctx); err != nil {
			t.Fatal(err)
		}
		cancel(context.Canceled)
		select {
		case <-s.Done():
			t.Errorf("ended with its start's context: %v", s.Err())
		case <-time.After(10 * time.Millisecond):
		}
		stop(t, s)
		ended(t, s)
	})
}

func start(t *testing.T, s service.Service) {
	t.Helper()
	if err := s.Start(t.Context()); err != nil {
		t.Fatalf("start: %v", err)
	}
}

// patience is far more than any stop should take; it only turns a hang into a
// failure that says where.
const patience = 30 * time.Second

func stop(t *testing.T, s service.Service) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func ended(t *testing.T, s service.Service) {
	t.Helper()
	select {
	case <-s.Done():
	default:
		t.Error("stopped, and not done")
	}
	if err := s.Err(); err != nil {
		t.Errorf("stopped, and yet failed: %v", err)
	}
}
