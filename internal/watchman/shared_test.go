package watchman_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/store/postgres/pgtest"
	"github.com/aurea-dev/aurea/internal/trigger"
)

// duo is two managers over one database, at the same time.
type duo struct{ a, b *stage }

func newDuo(t *testing.T) duo {
	t.Helper()
	if server == nil {
		t.Skip(pgtest.Missing()) // under CI=true the whole package has failed before this
	}
	address, err := server.Fresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a := newStage(t, openPostgres(t, address))
	a.shared, a.id = true, "a"
	b := &stage{T: t, db: openPostgres(t, address), blobs: a.blobs, keys: a.keys, host: a.host, hooks: a.hooks, clock: a.clock, shared: true, id: "b"}
	b.restart()
	a.restart()
	return duo{a, b}
}

// at says that the worker is connected to one of the two, as its row does.
func (d duo) at(s *stage) {
	s.Helper()
	d.a.away, d.b.away = s != d.a, s != d.b
	ctx := context.Background()
	err := s.db.Update(ctx, func(tx store.Tx) error {
		return tx.Workers().Put(ctx, job.Worker{ID: "w", Connected: true, Manager: s.id, SeenAt: s.time()})
	})
	if err != nil {
		s.Fatal(err)
	}
}

// both does something at both at once.
func (d duo) both(do func(s *stage)) {
	var group sync.WaitGroup
	for _, s := range []*stage{d.a, d.b} {
		group.Go(func() { do(s) })
	}
	group.Wait()
}

// look lets time pass, and both look at once.
func (d duo) look(seconds int) {
	d.a.Helper()
	for range seconds {
		d.both(func(s *stage) { s.pass(time.Second) })
		d.both(func(s *stage) {
			if err := s.Look(system()); err != nil {
				s.Errorf("look: %v", err)
			}
		})
		d.both((*stage).settle)
	}
}

func (s *stage) settle() { s.Settle() }

// TestOneBreachActsOnce: two managers who both have the worker, as in the moment in
// which it goes from one to the other, see the same breach and the same firing. It
// fires once, its work is asked once, and what came of it is written once.
func TestOneBreachActsOnce(t *testing.T) {
	t.Parallel()
	d := newDuo(t)
	r := newReceiver(t, d.a.hooks.Secret)
	rule := d.a.rule(trigger.TimeLimit, 5, func(x *trigger.Trigger) { hooked(r, x); x.Plan.Strategy = trigger.Graceful })
	w := d.a.start()
	d.a.exec(w, "sleep")
	d.look(8)
	d.a.want("")
	d.look(40)
	if f := d.b.want(trigger.Killed)[0]; !f.Escalated || f.PreKill != trigger.Allowed {
		t.Errorf("it came to %+v", f)
	}
	if !slices.Equal(d.a.host.signals, []int{15}) {
		t.Errorf("its work got the signals %v", d.a.host.signals)
	}
	if got := d.a.audited("trigger"); got != "trigger_added trigger_fired trigger_killed " {
		t.Errorf("the audit has %s", got)
	}
	if n := len(d.a.outcomes) + len(d.b.outcomes); n != 1 {
		t.Errorf("%d ends were counted", n)
	}
	if x := d.b.worker(w); x.State != manifest.Ended {
		t.Errorf("the worker is %s", x.State)
	}
	d.both((*stage).deliver)
	told := map[string]bool{}
	for _, call := range strings.Split(r.got(), ", ") {
		told[call] = true
	}
	if len(told) != 4 || len(r.ids) != 4 { // each perhaps twice, and known again by its id
		t.Errorf("the calls are %s", r.got())
	}
	if err := d.b.RemoveTrigger(boss(), rule.ID); err != nil {
		t.Error(err)
	}
}

// TestTheCooldownIsShared has both fire at one worker with many hands: it is hit
// once, and by the other manager again only after the cooldown.
func TestTheCooldownIsShared(t *testing.T) {
	t.Parallel()
	d := newDuo(t)
	d.at(d.a)
	manual := d.b.rule(trigger.Manual, 0, func(x *trigger.Trigger) { x.Plan.Strategy, x.Plan.Cooldown = trigger.Suspend, 30*time.Second })
	w := d.a.start()
	hits := func() (n int) {
		var mu sync.Mutex
		d.both(func(s *stage) {
			var group sync.WaitGroup
			for range 8 {
				group.Go(func() {
					r, err := s.Fire(boss(), w.ID(), manual.ID, nil, "all at once")
					if err != nil {
						t.Errorf("fire: %v", err)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					if r.Firing.Open() {
						n++
					} else if r.Firing.Outcome != trigger.CooldownBlocked {
						t.Errorf("it came to %+v", r.Firing)
					}
				})
			}
			group.Wait()
		})
		return n
	}
	if n := hits(); n != 1 {
		t.Errorf("it was hit %d times", n)
	}
	d.look(1)
	if x := d.b.worker(w); !x.Suspended() || !d.a.frozen(w) {
		t.Error("the manager that has the worker did nothing")
	}
	if _, err := d.a.gov.Revive(as("o"), w.ID(), ""); err != nil {
		t.Fatal(err)
	}
	d.at(d.b) // and now the other has it
	d.look(28)
	if n := hits(); n != 0 {
		t.Errorf("it was hit %d times within the cooldown", n)
	}
	d.at(d.b)
	d.look(2)
	if n := hits(); n != 1 {
		t.Errorf("it was hit %d times after the cooldown", n)
	}
	d.look(1)
	if !d.a.frozen(w) {
		t.Error("the other manager did nothing")
	}
}

// TestABreachGoesOnAtAnotherManager counts on where the first has stopped.
func TestABreachGoesOnAtAnotherManager(t *testing.T) {
	t.Parallel()
	d := newDuo(t)
	d.at(d.a)
	d.a.rule(trigger.TimeLimit, 5, func(x *trigger.Trigger) { x.Sustained = 20 * time.Second })
	w := d.a.start()
	d.look(15)
	d.at(d.b)
	d.look(9)
	d.a.want()
	d.look(1)
	if f := d.a.want(trigger.Killed)[0]; f.Worker != w.ID() || f.Lasted != 20*time.Second {
		t.Errorf("it came to %+v", f)
	}
}
