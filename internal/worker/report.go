package worker

import (
	"context"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
)

const (
	// lookEvery is how often the reporter looks for output that has waited.
	lookEvery = 50 * time.Millisecond
	// tellAfter is the age from which a job's happenings are told while it
	// runs. Those of a shorter job ride in its result, so that it costs one
	// call.
	tellAfter = 200 * time.Millisecond
	// reportBytes bounds the output in one call, reportChunks that of one job,
	// so that a chatty one does not keep the others waiting.
	reportBytes  = 4 << 20
	reportChunks = 16
	// maxHappenings is how many one job can have; there is one of each type.
	maxHappenings = 16
)

// wake leaves a token for whoever waits on the channel, unless there is one.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// report hands over what happened in running jobs until the run ends. It makes
// one call at a time: what comes up meanwhile gathers and goes with the next.
func (r *run) report() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-r.printed:
		case <-tick.C:
		case <-r.life.Done():
			return
		}
		for r.reportOnce() {
		}
	}
}

// reportOnce sends one batch and reports whether there was one.
func (r *run) reportOnce() bool {
	items, tasks := r.gather(time.Now())
	// Results may have waited for this to be over.
	defer wake(r.done)
	defer func() {
		for _, t := range tasks {
			t.told()
		}
	}()
	if len(items) == 0 {
		return false
	}
	var refused dispatch.Refusals
	err := r.session.insist(r.life, "report", dispatch.ReportTimeout, func(ctx context.Context, session string) (err error) {
		refused, err = r.Manager.Report(ctx, dispatch.ReportRequest{Session: session, Items: items})
		return err
	})
	if r.life.Err() != nil {
		return false
	}
	if err != nil {
		// They would be refused for ever, and hold up all that comes after.
		r.log.Error("the manager does not take a report; it is left out", "items", len(items), "error", err)
	}
	r.sent(items)
	for _, no := range refused.Refused {
		r.log.Warn("a report was refused, its work is stopped", "job", no.JobID, "fence", no.Fence, "reason", no.Reason)
		r.tasks.drop(no.Held, errGone)
	}
	return true
}

// gather collects what is due of the jobs that run, and the tasks that it is of.
func (r *run) gather(now time.Time) (items []dispatch.ReportItem, tasks []*task) {
	room := reportBytes
	for _, t := range r.tasks.all() {
		if len(items)+reportChunks+maxHappenings > dispatch.MaxReports {
			break
		}
		happened, due := t.tell(now)
		if !due {
			continue
		}
		tasks = append(tasks, t)
		chunks, err := t.output.chunks(min(reportChunks, room/dispatch.MaxChunk))
		if err != nil {
			t.log.Error("could not read output back", "error", err)
		}
		for i := range happened {
			items = append(items, dispatch.ReportItem{Held: t.lease.Held, Event: &happened[i]})
		}
		for i := range chunks {
			items = append(items, dispatch.ReportItem{Held: t.lease.Held, Output: &chunks[i]})
			room -= len(chunks[i].Data)
		}
	}
	return items, tasks
}

// sent notes what the manager has.
func (r *run) sent(items []dispatch.ReportItem) {
	for _, it := range items {
		t := r.tasks.get(it.Held)
		switch {
		case t == nil:
		case it.Event != nil:
			t.taken(it.Event.N)
		default:
			t.output.sent(it.Output)
		}
	}
}
