package worker_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/worker"
)

// The memory limits of what works at a time fit into what may be given.
func TestMemoryBoundsTheSandboxes(t *testing.T) {
	var driver *counting
	story(t, func(c *worker.Config) {
		c.Slots, c.Memory, c.Limits = 10, 1<<30, sandbox.Limits{Memory: 300 << 20}
		driver = &counting{Driver: c.Drivers["fake"]}
		c.Drivers = map[string]sandbox.Driver{"fake": driver}
	}, func(t *testing.T, s *stand) {
		var ids []string
		for range 20 {
			ids = append(ids, s.submit(payload("exec", map[string]any{"command": []string{"sleep", "1"}})))
		}
		pass(time.Minute)
		for _, id := range ids {
			s.result(id)
		}
		if driver.most != 3 {
			t.Errorf("%d sandboxes lived at a time, want 3", driver.most)
		}
	})
}

// What was taken over counts with the memory that it has.
func TestMemoryOfWhatWasTakenOver(t *testing.T) {
	limits := func(memory int64) func(c *worker.Config) {
		return func(c *worker.Config) { c.Memory, c.Limits = 1000<<20, sandbox.Limits{Memory: memory} }
	}
	killed(t, sleeping("sleep 60"), 5*time.Second, time.Second, limits(800<<20), func(s *stand, _ string) {
		s.ref.Submit([]byte(sleeping("sleep 5")))
	}, func(t *testing.T, s *stand, id string) {
		// Beside 800 MiB there is no room for another 800.
		pass(20 * time.Second)
		if left, err := s.driver.List(t.Context()); err != nil || len(left) != 1 {
			t.Errorf("%d sandboxes live, %v", len(left), err)
		}
		pass(2 * time.Minute)
		s.result(id)
	})
}

// told keeps what extensions say.
type told struct {
	dispatch.Manager
	paused atomic.Value
}

func (m *told) Extend(ctx context.Context, r dispatch.ExtendRequest) (dispatch.ExtendAnswer, error) {
	m.paused.Store(r.Paused)
	return m.Manager.Extend(ctx, r)
}

// A worker whose disk is full takes nothing, says so, and goes on by itself
// when there is room again. What it has begun it ends.
func TestLowDiskTakesNoWork(t *testing.T) {
	var free atomic.Int64
	free.Store(10 << 30)
	m := &told{}
	story(t, func(c *worker.Config) {
		m.Manager = c.Manager
		c.Manager = m
		c.Disk = func(string) (int64, int64, error) {
			if free.Load() < 0 {
				return 0, 0, errors.New("no idea")
			}
			return free.Load(), 100 << 30, nil
		}
	}, func(t *testing.T, s *stand) {
		running := s.submit(sleeping("sleep 50"))
		pass(time.Second)
		free.Store(1<<30 - 1)
		pass(31 * time.Second) // a call that waits for work may still bring some
		waiting := s.submit(`{}`)
		pass(time.Minute)
		s.result(running)
		if len(s.ref.Accepted(waiting)) != 0 {
			t.Error("it took a job without disk")
		}
		if why, _ := m.paused.Load().(string); !strings.Contains(why, "low disk: 1023 MiB") {
			t.Errorf("it says %q", why)
		}
		free.Store(1 << 30)
		pass(5 * time.Second)
		s.result(waiting)
		if why, _ := m.paused.Load().(string); why != "" {
			t.Errorf("it still says %q", why)
		}
		free.Store(-1) // a disk that cannot be measured is used
		pass(time.Minute)
		next := s.submit(`{}`)
		pass(time.Second)
		s.result(next)
	})
}

func TestMemoryForNoSandboxIsRefused(t *testing.T) {
	t.Parallel()
	s := &stand{driver: keeping(t, t.TempDir())}
	_, err := worker.New(worker.Config{
		Manager: &line{}, Drivers: map[string]sandbox.Driver{"fake": s.driver}, Driver: "fake", Base: "b", WorkerID: "w",
		Memory: 100 << 20, Limits: sandbox.Limits{Memory: 101 << 20},
	})
	if !fault.Is(err, fault.Invalid) || !strings.HasPrefix(err.Error(), "memory:") {
		t.Errorf("got %v", err)
	}
}
