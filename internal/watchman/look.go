package watchman

import (
	"context"
	"slices"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/trigger"
)

// scene is all that a look is about.
type scene struct {
	triggers []trigger.Trigger // that watch by themselves
	known    map[string]bool   // every trigger that there is
	workers  map[string]*subject
	breaches map[pair]trigger.Breach
	last     map[string]time.Time // when something fired at workers that are in breach
	open     []trigger.Firing
}

// pair is a trigger and a worker.
type pair struct{ trigger, worker string }

// judgement is a value that may change something.
type judgement struct {
	pair
	value trigger.Value
}

// Look looks once at every worker that is this manager's to look after, fires
// what is to fire, and begins or goes on with what follows. What it begins may
// outlast it, see Settle.
//
// Preconditions: looks come one after the other.
func (w *Watchman) Look(ctx context.Context) error {
	sc, err := w.survey(ctx)
	if err != nil {
		return err
	}
	w.meters.keep(sc.workers)
	w.holdStill(ctx, sc)
	w.measure(ctx, sc.measured())
	list := sc.judge(w.now())
	for part := range slices.Chunk(list, batch) {
		fired, err := w.write(ctx, part)
		if err != nil {
			return err
		}
		sc.open = append(sc.open, fired...)
	}
	w.goOn(ctx, sc)
	return w.tidy(ctx, sc)
}

// survey reads what there is, and asks for no more than somebody wants to know.
func (w *Watchman) survey(ctx context.Context) (*scene, error) {
	sc := &scene{}
	err := w.Store.View(ctx, func(tx store.Tx) error {
		*sc = scene{known: map[string]bool{}, workers: map[string]*subject{}, breaches: map[pair]trigger.Breach{}, last: map[string]time.Time{}}
		all, err := tx.Triggers().List(ctx)
		if err != nil {
			return err
		}
		rates := false
		for _, t := range all {
			sc.known[t.ID] = true
			if t.Enabled && !t.Kind.Reported() {
				sc.triggers = append(sc.triggers, t)
				rates = rates || t.Kind == trigger.Requests || t.Kind == trigger.Errors
			}
		}
		if err := sc.readWorkers(ctx, tx); err != nil {
			return err
		}
		if rates {
			return sc.readCommands(ctx, tx, w.now().Add(-trigger.Window))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, s := range sc.workers {
		s.mine = s.box.ID != "" && w.Sandboxes.Tends(ctx, &s.box)
		s.halted = s.mine && w.Sandboxes.Halted(&s.box)
	}
	return sc, nil
}

func (sc *scene) readWorkers(ctx context.Context, tx store.Tx) error {
	running, err := tx.Fleet().Running(ctx, manifest.MaxReplicas)
	if err != nil {
		return err
	}
	breaches, err := tx.Triggers().Breaches(ctx, "")
	if err != nil {
		return err
	}
	if sc.open, err = tx.Firings().Open(ctx, maxOpen); err != nil {
		return err
	}
	for _, b := range breaches {
		sc.breaches[pair{b.Trigger, b.Worker}] = b
		if _, read := sc.last[b.Worker]; read || !b.FiredAt.IsZero() {
			continue
		}
		if sc.last[b.Worker], err = tx.Firings().Last(ctx, b.Worker); err != nil {
			return err
		}
	}
	for i := range running {
		s := &subject{Worker: running[i]}
		sc.workers[s.ID()] = s
		if len(sc.triggers) == 0 && !s.held() {
			continue
		}
		if s.box, err = tx.Sandboxes().Get(ctx, s.Sandbox); err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
	}
	return nil
}

func (sc *scene) readCommands(ctx context.Context, tx store.Tx, since time.Time) error {
	counts, err := tx.Fleet().Commands(ctx, since)
	for _, s := range sc.workers {
		s.count = counts[s.Sandbox]
	}
	return err
}

// watched reports whether a trigger watches a worker in this look. One that a kill
// switch has stopped can break no bound, and is there to be looked at.
func (s *subject) watched(t *trigger.Trigger) bool {
	return s.mine && !s.Still() && !s.halted && t.Watches(s.Terms.Contract)
}

// held reports whether the law says that a worker stands still, whether it does or
// not.
func (s *subject) held() bool { return s.Suspended() || s.Quarantined() }

// measured are the workers whose sandboxes somebody wants to have measured.
func (sc *scene) measured() (list []*subject) {
	for _, s := range sc.workers {
		wanted := slices.ContainsFunc(sc.triggers, func(t trigger.Trigger) bool {
			return (t.Kind == trigger.CPU || t.Kind == trigger.Memory || t.Kind == trigger.Disk) && s.watched(&t)
		})
		if wanted {
			list = append(list, s)
		}
	}
	return list
}

// judge finds the values that change something, as far as can be seen from here.
// They are judged again when it is written.
func (sc *scene) judge(now time.Time) (list []judgement) {
	for i := range sc.triggers {
		t := &sc.triggers[i]
		for id, s := range sc.workers {
			if !s.watched(t) {
				continue
			}
			p, v := pair{t.ID, id}, s.value(t.Kind, now)
			if _, step := t.Judge(breachOf(sc.breaches, p, &s.Worker), v, sc.last[id], now); step != trigger.Hold {
				list = append(list, judgement{p, v})
			}
		}
	}
	return list
}

// breachOf returns a breach that counts: one from before the worker was let go on
// is over.
func breachOf(all map[pair]trigger.Breach, p pair, w *manifest.Worker) *trigger.Breach {
	b, there := all[p]
	if !there || !b.Since.After(w.RevivedAt) {
		return nil
	}
	return &b
}

// holdStill freezes workers that the law holds, and that go on all the same.
func (w *Watchman) holdStill(ctx context.Context, sc *scene) {
	for id, s := range sc.workers {
		if !s.held() || !s.mine || s.box.Paused != "" && s.Still() {
			continue
		}
		w.begin("still "+id, w.turns, func() {
			if err := w.Fleet.HoldStill(ctx, id); err != nil && ctx.Err() == nil {
				w.Logger.Warn("could not freeze a worker that the law holds; trying again", "worker_id", id, "error", err)
			}
		})
	}
}

// tidy drops breaches that nobody can be in any more: of workers that ended or
// stand still, and of triggers that watch them no longer.
func (w *Watchman) tidy(ctx context.Context, sc *scene) error {
	var gone []pair
	for p := range sc.breaches {
		s := sc.workers[p.worker]
		if s == nil || s.Still() || !sc.known[p.trigger] {
			gone = append(gone, p)
		}
	}
	for part := range slices.Chunk(gone, batch) {
		err := w.Store.Update(ctx, func(tx store.Tx) error {
			for _, p := range part {
				if err := tx.Triggers().DropBreaches(ctx, p.trigger, p.worker); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// goOn begins, or goes on with, what follows from firings. Which of them are
// this manager's is looked up for those few.
func (w *Watchman) goOn(ctx context.Context, sc *scene) {
	for i := range sc.open {
		f, turns := sc.open[i], w.turns
		if waits(&f) {
			turns = w.asks
		}
		w.begin(f.ID, turns, func() {
			if err := w.act(ctx, f.ID); err != nil && ctx.Err() == nil {
				w.Logger.Error("could not do what a trigger says; trying again", "firing", f.ID, "worker_id", f.Worker, "error", err)
			}
		})
	}
}
