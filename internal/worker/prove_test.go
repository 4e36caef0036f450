package worker_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/probe"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/worker"
)

// announced keeps the registrations that pass, and counts requests for work.
type announced struct {
	dispatch.Manager
	last   atomic.Pointer[dispatch.Registration]
	leases atomic.Int64
}

func (a *announced) Register(ctx context.Context, r dispatch.Registration) (dispatch.Welcome, error) {
	a.last.Store(&r)
	return a.Manager.Register(ctx, r)
}

func (a *announced) Lease(ctx context.Context, r dispatch.LeaseRequest) ([]dispatch.Lease, error) {
	a.leases.Add(1)
	return a.Manager.Lease(ctx, r)
}

func proved(t *testing.T, report func(n int64) probe.Report) (*stand, *announced, *atomic.Int64) {
	t.Helper()
	var probes atomic.Int64
	a := &announced{}
	s := setUp(t, func(c *worker.Config) {
		a.Manager = c.Manager
		c.Manager = a
		c.Probe = func(_ context.Context, d sandbox.Driver) probe.Report {
			r := report(probes.Add(1))
			r.Driver, r.At = d.Name(), time.Now()
			return r
		}
	})
	return s, a, &probes
}

// A driver with a hole is announced as degraded, and the worker takes no job,
// however long it lives.
func TestADriverWithAHoleIsNotServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, a, probes := proved(t, func(int64) probe.Report {
			return probe.Report{Attempts: []probe.Attempt{{Name: "file-host"}, {Name: "file-mount", Stopped: true}}}
		})
		time.Sleep(time.Hour)
		d := a.last.Load().Drivers[0]
		if !strings.Contains(d.Degraded, "file-host") || strings.Contains(d.Degraded, "file-mount") || d.Probe.Tried != 2 || d.Probe.Stopped != 1 {
			t.Errorf("announced as %+v, %+v", d, d.Probe)
		}
		if n := a.leases.Load(); n != 0 {
			t.Errorf("asked %d times for work", n)
		}
		if n := probes.Load(); n != 1 {
			t.Errorf("probed %d times; a hole does not heal", n)
		}
		s.end()
	})
}

// A probe that could not be run is run again, and then the worker works.
func TestAProbeThatCouldNotBeRunIsRunAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, a, _ := proved(t, func(n int64) probe.Report {
			if n < 3 {
				return probe.Report{Err: errors.New("no room\nfor a sandbox")}
			}
			return probe.Report{Attempts: []probe.Attempt{{Name: "file-host", Stopped: true}}}
		})
		time.Sleep(time.Second)
		if d := a.last.Load().Drivers[0]; !strings.Contains(d.Degraded, "no room") || a.leases.Load() != 0 {
			t.Errorf("announced as %+v, asked %d times for work", d, a.leases.Load())
		}
		time.Sleep(10 * time.Minute)
		if d := a.last.Load().Drivers[0]; d.Degraded != "" || d.Probe.Stopped != 1 || a.leases.Load() == 0 {
			t.Errorf("announced as %+v, asked %d times for work", d, a.leases.Load())
		}
		s.end()
	})
}
