package runner

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/run"
)

// fullFor is how long a worker that said it has no room is left alone.
const fullFor = 50 * time.Millisecond

// pump gives turns for as long as there is room and somebody who waits.
func (r *Runner) pump() {
	type turn struct {
		t *ticket
		s seat
	}
	var turns []turn
	r.mu.Lock()
	if r.stop != nil && r.line.length > 0 {
		here, now := r.refresh(), r.Now()
		for {
			t, p := r.line.next(func(t *ticket) *place { return choose(t, here, now) })
			if t == nil {
				break
			}
			p.busy++
			turns = append(turns, turn{t, seat{p.Worker, p}})
		}
	}
	r.mu.Unlock()
	for _, x := range turns {
		x.t.grant(x.s)
	}
}

// refresh brings the places up to date and returns those of workers that are
// here. The mutex is held.
func (r *Runner) refresh() []*place {
	workers := r.Workers()
	here := make([]*place, 0, len(workers))
	for _, w := range workers {
		p := r.places[w.ID]
		if p == nil {
			p = &place{}
			r.places[w.ID] = p
		}
		p.Worker = w
		here = append(here, p)
	}
	if len(r.places) > 2*len(here)+16 { // those that went away with nothing to come back to
		for id, p := range r.places {
			if p.busy == 0 && !slices.Contains(here, p) {
				delete(r.places, id)
			}
		}
	}
	return here
}

// choose picks the emptiest worker that can do the run; nil is none. One that
// has the run already needs no room for it.
func choose(t *ticket, here []*place, now time.Time) (best *place) {
	for _, p := range here {
		switch {
		case t.worker != "":
			if t.worker == p.ID {
				return p
			}
		case len(p.Drivers) == 0, t.driver != "" && !slices.Contains(p.Drivers, t.driver), p.Paused, !p.room(now):
		case best == nil || p.busy*max(best.Slots, 1) < best.busy*max(p.Slots, 1):
			best = p
		}
	}
	return best
}

// release gives back a turn that lasted so long; 0 is one that came to nothing.
func (r *Runner) release(s seat, took time.Duration) {
	r.mu.Lock()
	s.at.busy--
	if took > 0 {
		r.line.ended(took)
	}
	r.mu.Unlock()
	r.pump()
}

// full leaves a worker alone that said it has no room, and gives back the turn.
func (r *Runner) full(s seat) {
	r.mu.Lock()
	s.at.busy--
	s.at.full = r.Now().Add(fullFor)
	r.mu.Unlock()
	time.AfterFunc(fullFor+time.Millisecond, r.pump)
}

// slots is how many runs all workers here do at once. The mutex is held.
func (r *Runner) slots() (n int) {
	for _, w := range r.Workers() {
		n += w.Slots
	}
	return n
}

// enter puts tickets into the line, all or none. again is for those that had
// their turn, and find a place whatever the bound.
func (r *Runner) enter(again bool, tickets ...*ticket) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.stop == nil:
		return fault.New(fault.Unavailable, "The manager is stopping; try again soon.").WithCode("stopping").Retry(2 * time.Second)
	case !again && r.line.length+len(tickets) > r.Most:
		wait := r.line.wait(r.line.length, r.slots())
		r.refused()
		return fault.New(fault.Exhausted, "%d runs wait already, and %d may; try again in about %s.", r.line.length, r.Most, rounded(wait)).
			WithCode("queue_full").Retry(wait)
	}
	for _, t := range tickets {
		r.line.enter(t)
	}
	return nil
}

func (r *Runner) refused() {
	if r.Observer != nil {
		r.Observer.RunRefused()
	}
}

// rounded is a time as people say it.
func rounded(d time.Duration) time.Duration { return max(d.Round(time.Second), time.Second) }

// placeOf is where in the line a ticket is. The mutex is held.
func (r *Runner) placeOf(t *ticket) (run.Place, bool) {
	position := r.line.position(t)
	return run.Place{Position: position, Wait: r.line.wait(position, r.slots())}, position >= 0
}

// Place returns where in the line here a run is, if it is.
func (r *Runner) Place(id string) (run.Place, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.entries[id]; e != nil && e.ticket != nil {
		return r.placeOf(e.ticket)
	}
	return run.Place{}, false
}

// Depth is how many runs wait here, and how many are at workers.
func (r *Runner) Depth() (waiting, running int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.line.length, len(r.entries) - r.line.length
}

// demandDriver refuses a run whose driver no worker that is connected here
// serves. With other managers about one may be connected there.
func (r *Runner) demandDriver(driver string) error {
	if driver == "" || !r.alone() {
		return nil
	}
	var served []string
	for _, w := range r.Workers() {
		if slices.Contains(w.Drivers, driver) {
			return nil
		}
		served = append(served, w.Drivers...)
	}
	why := "no worker is connected"
	if len(served) > 0 {
		slices.Sort(served)
		why = "those that are connected have " + strings.Join(slices.Compact(served), ", ")
	}
	f := fault.New(fault.Unavailable, "no connected worker serves the driver %q: %s", driver, why).WithCode("driver_unavailable")
	f.Field = "driver"
	return f
}

// firstWorker is how long somebody waits while no worker is connected at all.
const firstWorker = 5 * time.Second

// demandWorker refuses to wait longer while no worker is connected, or none of
// them has a driver whose isolation is proved: that one finds no turn, however
// much room it has.
func (r *Runner) demandWorker() error {
	workers := r.Workers()
	switch {
	case len(workers) == 0:
		return fault.New(fault.Unavailable, "No worker is connected, so nothing can be run. Start one, or wait until it is back.").WithCode("no_worker").Retry(firstWorker)
	case !slices.ContainsFunc(workers, func(w Worker) bool { return len(w.Drivers) > 0 }):
		return fault.New(fault.Unavailable, "No worker serves a driver now, so nothing can be run; GET /health says why.").WithCode("driver_unavailable").Retry(firstWorker)
	}
	return nil
}

// await waits for the turn of a ticket in the line. ch is what its grant sends
// to.
func (r *Runner) await(ctx context.Context, t *ticket, ch <-chan seat, patience time.Duration) (seat, error) {
	select {
	case p := <-ch:
		return p, nil
	default:
	}
	over, none := time.NewTimer(patience), time.NewTimer(min(patience, firstWorker))
	defer over.Stop()
	defer none.Stop()
	var err error
	for err == nil {
		select {
		case p := <-ch:
			return p, nil
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-r.lives().Done():
			err = fault.New(fault.Unavailable, "The manager is stopping; try again soon.").WithCode("stopping").Retry(2 * time.Second)
		case <-none.C:
			err = r.demandWorker()
		case <-over.C:
			err = r.tooLong(t, patience)
		}
	}
	r.mu.Lock()
	waiting := r.line.leave(t)
	r.mu.Unlock()
	if !waiting {
		select {
		case p := <-ch: // it was given a turn at this moment
			r.release(p, 0)
		case <-r.lives().Done(): // or Stop has thrown the line away
		}
	}
	return seat{}, err
}

func (r *Runner) tooLong(t *ticket, patience time.Duration) error {
	r.mu.Lock()
	place, _ := r.placeOf(t)
	r.mu.Unlock()
	r.refused()
	return fault.New(fault.Exhausted, "No worker had room for %s; %d runs are before this one, about %s. Try again then, or queue it with POST /api/v1/runs.",
		patience, max(place.Position, 0), rounded(place.Wait)).WithCode("no_room").Retry(place.Wait)
}
