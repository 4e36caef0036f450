package manager

import (
	"context"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/queue"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/store/postgres"
	"github.com/aurea-dev/aurea/internal/store/postgres/pgtest"
)

// startServer starts a database server for one test.
func startServer(t *testing.T) *pgtest.Server {
	t.Helper()
	if reason := pgtest.Missing(); reason != "" {
		if os.Getenv("CI") == "true" {
			t.Fatal(reason)
		}
		t.Skip("left out: " + reason)
	}
	server, err := pgtest.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// share starts a manager over a database that others may have too.
func share(t *testing.T, address string) *Manager {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	db, err := postgres.Open(t.Context(), address, log)
	if err != nil {
		t.Fatal(err)
	}
	none := func(time.Duration) time.Duration { return 0 }
	q, err := queue.New(queue.Config{Store: db, Jitter: none})
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(Config{Store: db, Queue: q, Blobs: db.Blobs(), Outputs: db.Outputs(), Logger: log, Patience: 1})
	if err == nil {
		err = m.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.Stop()
		_ = db.Close()
	})
	return m
}

// spread sends each call to the next manager, as a load balancer would.
type spread struct {
	managers []*Manager
	calls    *atomic.Int64
}

func (s spread) next() *Manager { return s.managers[int(s.calls.Add(1))%len(s.managers)] }

func (s spread) Register(ctx context.Context, r dispatch.Registration) (dispatch.Welcome, error) {
	return s.next().Register(ctx, r)
}

func (s spread) Lease(ctx context.Context, r dispatch.LeaseRequest) ([]dispatch.Lease, error) {
	return s.next().Lease(ctx, r)
}

func (s spread) Extend(ctx context.Context, r dispatch.ExtendRequest) (dispatch.ExtendAnswer, error) {
	return s.next().Extend(ctx, r)
}

func (s spread) Report(ctx context.Context, r dispatch.ReportRequest) (dispatch.Refusals, error) {
	return s.next().Report(ctx, r)
}

func (s spread) Finish(ctx context.Context, r dispatch.FinishRequest) (dispatch.Refusals, error) {
	return s.next().Finish(ctx, r)
}

func (s spread) PutBlob(ctx context.Context, session, sha256 string, size int64, r io.Reader) error {
	return s.next().PutBlob(ctx, session, sha256, size, r)
}

func (s spread) Attend(ctx context.Context, session string, rc dispatch.Receiver) error {
	return s.next().Attend(ctx, session, rc)
}

func (s spread) Tell(ctx context.Context, r dispatch.TellRequest) error { return s.next().Tell(ctx, r) }

func (s spread) Leave(ctx context.Context, session string) error { return s.next().Leave(ctx, session) }

// pair is the control over managers that share a database: users come to the
// one, and workers to any.
type pair struct {
	control
	all []*Manager
}

func (p pair) Restart() {
	err := p.m.Store.Update(p.t.Context(), func(tx store.Tx) error {
		ws, err := tx.Workers().List(p.t.Context())
		for _, w := range ws {
			w.Session = ""
			if err := tx.Workers().Put(p.t.Context(), w); err != nil {
				return err
			}
		}
		return err
	})
	if err != nil {
		p.t.Errorf("restart: %v", err)
	}
	for _, m := range p.all {
		control{p.t, m}.Restart()
	}
}

// Attending waits until it is written down too, which the other manager reads.
func (p pair) Attending(worker string) bool {
	ws, err := p.m.Workers(p.t.Context())
	if err != nil {
		p.t.Errorf("workers: %v", err)
	}
	for _, m := range p.all {
		for _, w := range ws {
			if w.ID == worker && w.Connected && w.Manager == m.ID && m.sessions.attending(worker) {
				return true
			}
		}
	}
	return false
}

func TestTwoManagersKeepTheAgreementTogether(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	dispatchtest.Run(t, dispatchtest.Harness{New: func(t *testing.T) (dispatch.Manager, dispatchtest.Control) {
		address, err := server.Fresh(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all := []*Manager{share(t, address), share(t, address)}
		return spread{all, new(atomic.Int64)}, pair{control{t, all[1]}, all}
	}})
}

// One leads; when it stops, another does at once, and no fence is used twice.
func TestLeadershipPassesOn(t *testing.T) {
	t.Parallel()
	address, err := startServer(t).Fresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var before int64
	for range 3 {
		m, other := share(t, address), share(t, address)
		// Submitted where nobody leads, done by who does.
		for _, at := range []*Manager{m, other} {
			s, err := at.SubmitPRD(local(), job.PRD{Title: "p", Tasks: []job.Task{{}}}, "", "")
			if err != nil {
				t.Fatal(err)
			}
			for {
				j, err := other.Job(local(), s.JobIDs[0])
				if err != nil {
					t.Fatal(err)
				}
				if j.State == job.Assigned {
					break
				}
				time.Sleep(time.Millisecond) // bounded by the test's own deadline
			}
		}
		var fence int64
		for _, m := range []*Manager{m, other} {
			if f := m.Queue.Leading(); f != 0 && fence != 0 {
				t.Errorf("two lead, with %d and %d", fence, f)
			} else if f != 0 {
				fence = f
			}
		}
		if fence <= before {
			t.Errorf("the fence %d follows %d", fence, before)
		}
		before = fence
		other.Stop() // first the one that does not lead: the other must resign by itself
		m.Stop()
	}
}
