package keeper

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// undertaken puts down unfinished work of another manager.
func (s *stage) undertaken(list ...live.Unfinished) {
	s.t.Helper()
	err := s.Store.Update(context.Background(), func(tx store.Tx) (err error) {
		for i := range list {
			err = errors.Join(err, tx.Sandboxes().PutUnfinished(context.Background(), &list[i]))
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// A manager whose clock is wrong is alive as long as what it writes changes; and
// it is dead when that has not changed for a minute, whatever time it names.
func TestUnfinishedWorkIsTimedByWhoLooks(t *testing.T) {
	t.Parallel()
	for _, wrong := range []time.Duration{-time.Hour, 0, time.Hour} {
		s, _ := newForks(t)
		s.Alone, s.ID = false, "b"
		x := s.create(live.Request{})
		u := live.Unfinished{ID: "u", What: live.Forking, Manager: "a", Sandbox: x.ID, Worker: "w", Sandboxes: []string{x.ID}, CreatedAt: s.clock()}
		round := func() (left int) {
			s.pass(time.Second)
			tidy(t, s.Keeper)
			return len(s.unfinished())
		}
		for range 8 {
			u.SeenAt = s.clock().Add(wrong)
			s.undertaken(u)
			for range 20 {
				if round() == 0 {
					t.Fatalf("by a clock that is %s off, what goes on was undone", wrong)
				}
			}
		}
		s.pass(2 * heardWithin) // the database was away: nobody could write
		for seconds := range 41 {
			if round() == 0 {
				t.Fatalf("by a clock that is %s off, it was undone %d s after the database was back", wrong, seconds)
			}
		}
		for range 30 {
			round()
		}
		if left := s.unfinished(); len(left) != 0 {
			t.Errorf("by a clock that is %s off, %+v is left", wrong, left)
		}
		if x := s.sandbox(x.ID); x.Outcome != sandbox.OutcomeReaped {
			t.Errorf("what was made is %+v", x)
		}
	}
}

// Whoever goes on with something says so, also with a clock that stands still or
// was put back.
func TestWhoGoesOnWritesItDown(t *testing.T) {
	t.Parallel()
	s, _ := newForks(t)
	s.Alone, s.ID = false, "a"
	x := s.create(live.Request{})
	u := live.Unfinished{ID: "u", What: live.Forking, Sandbox: x.ID, Worker: "w", CreatedAt: s.clock()}
	done, err := s.undertake(context.Background(), &u, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	for range 3 {
		written := s.unfinished()[0].SeenAt
		s.pass(-time.Hour)
		for range 2 + heardWithin/4/time.Second {
			tidy(t, s.Keeper)
			s.pass(time.Second)
		}
		if s.unfinished()[0].SeenAt.Equal(written) {
			t.Errorf("what is written is still %s", written)
		}
	}
}

// What is to be undone is found however much is before it.
func TestAllUnfinishedWorkIsLookedAt(t *testing.T) {
	t.Parallel()
	s, f := newForks(t)
	s.Alone, s.ID = false, "b"
	var others []live.Unfinished
	for i := range 2 * maxPage {
		others = append(others, live.Unfinished{ID: fmt.Sprintf("a%05d", i), What: live.Saving, Manager: "a", Worker: "elsewhere", CreatedAt: s.clock()})
	}
	s.undertaken(others...)
	f.snaps["half"] = true
	s.undertaken(live.Unfinished{ID: "b", What: live.Saving, Manager: "b", Worker: "w", Snapshot: "half", CreatedAt: s.clock()})
	tidy(t, s.Keeper)
	if kept := f.kept(); len(kept) != 0 {
		t.Errorf("the snapshots %q are kept", kept)
	}
}

// stuck is a worker over whose stream a manager never gets any further.
type stuck struct {
	dispatch.Host
	there, over chan struct{}
}

func (h stuck) StartExec(context.Context, live.Command) error {
	close(h.there)
	<-h.over
	return errDead
}

// An exec that was written down and never started ends, and its worker need not
// register for that; one that its worker knows goes on.
func TestExecThatNoWorkerKnowsEnds(t *testing.T) {
	t.Parallel()
	s := newStage(t, func(c *Config) { c.Alone, c.ID = false, "b" })
	x := s.create(live.Request{})
	known := s.start(x.ID, "cat")
	a := New(s.Config) // is killed between the record and the start
	c := live.Command{Sandbox: x.ID, Command: []string{"cat"}}
	lost, _, err := a.order(as("o"), &c)
	if err != nil {
		t.Fatal(err)
	}
	host, ended := stuck{s.boxes, make(chan struct{}), make(chan struct{})}, make(chan error)
	go func() {
		_, _, err := a.start(as("o"), lost, c, second{host}, run.Asked{})
		ended <- err
	}()
	t.Cleanup(func() { close(host.over); <-ended })
	<-host.there

	asked := &asking{Host: s.boxes, away: true}
	s.host = asked
	for range 1 + 2*unknownAfter/measureRhythm {
		s.round()
		s.pass(measureRhythm)
	}
	if e := s.exec(lost.ID); e.State != live.Running {
		t.Fatalf("while its worker cannot be asked the exec is %+v", e)
	}
	asked.away = false
	s.round()
	if e := s.exec(lost.ID); e.State != live.Done || e.Result.Verdict != sandbox.Lost {
		t.Errorf("the exec that nobody started is %+v", e)
	}
	asked.times = 0
	s.pass(measureRhythm)
	s.round()
	if e := s.exec(known.ID); e.State != live.Running || asked.times != 0 {
		t.Errorf("the other is %+v, and was asked for %d times more", e, asked.times)
	}
}

// asking counts how often a worker is asked for an exec, which may be away.
type asking struct {
	dispatch.Host
	away  bool
	times int
}

func (h *asking) FeedExec(ctx context.Context, in live.Input) error {
	h.times++
	if h.away {
		return errDead
	}
	return h.Host.FeedExec(ctx, in)
}

// round compares what is open with what the worker knows.
func (s *stage) round() {
	s.t.Helper()
	if err := s.endUnknown(context.Background()); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) exec(id string) live.Exec {
	s.t.Helper()
	e, err := s.Exec(as("o"), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return e
}
