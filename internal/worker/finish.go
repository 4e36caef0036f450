package worker

import (
	"context"
	"encoding/json"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
)

// finishBytes bounds what rides along in one call.
const finishBytes = 8 << 20

var errDelivered = fault.New(fault.Conflict, "the result was handed over")

// finishers is how many calls hand over results at a time: while the manager
// syncs the bytes of one, the next is on its way.
const finishers = 2

// handOver hands over results until the run ends. What comes up while a call is
// on its way gathers and goes with the next.
func (r *run) handOver() {
	for {
		select {
		case <-r.done:
		case <-r.life.Done():
			return
		}
		for r.life.Err() == nil && r.finishOnce() {
		}
	}
}

// finishOnce hands over one batch of results and reports whether there was one.
func (r *run) finishOnce() bool {
	batch, more := r.results()
	if len(batch) == 0 {
		return false
	}
	if more {
		wake(r.done)
	}
	if err := r.finish(batch); err != nil && r.life.Err() == nil {
		r.finishEach(batch)
	}
	return true
}

// results takes what can be handed over in one call, and says whether there
// may be more.
func (r *run) results() (batch []dispatch.Result, more bool) {
	room := finishBytes
	for _, t := range r.tasks.all() {
		if len(batch) == dispatch.MaxFinishes || room < 0 {
			return batch, true
		}
		res := t.hand()
		if res == nil {
			continue
		}
		room -= len(res.Details)
		for _, data := range res.Inline {
			room -= len(data)
		}
		batch = append(batch, *res)
	}
	return batch, false
}

// finish hands results over until the manager has taken or refused each. An
// error means that it calls the request itself wrong, or that the run ended.
func (r *run) finish(batch []dispatch.Result) error {
	var refused dispatch.Refusals
	err := r.session.insist(r.life, "finish", dispatch.ReportTimeout, func(ctx context.Context, session string) (err error) {
		refused, err = r.Manager.Finish(ctx, dispatch.FinishRequest{Session: session, Results: batch})
		return err
	})
	if err != nil {
		return err
	}
	for _, no := range refused.Refused {
		r.log.Warn("a result was refused", "job", no.JobID, "fence", no.Fence, "reason", no.Reason)
	}
	for i := range batch {
		r.tasks.drop(batch[i].Held, errDelivered)
	}
	return nil
}

// finishEach finds the result that spoils a batch. That one becomes a failure
// that says why, so that its job goes on; the others are handed over as they
// are.
func (r *run) finishEach(batch []dispatch.Result) {
	for i := range batch {
		err := r.finish(batch[i : i+1])
		if err == nil {
			continue
		}
		if r.life.Err() != nil {
			return
		}
		log := r.log.With("job", batch[i].JobID, "fence", batch[i].Fence)
		log.Error("the manager does not take a result; it is handed over as a failure", "error", err)
		if err = r.finish([]dispatch.Result{spoiled(batch[i], err)}); err != nil && r.life.Err() == nil {
			log.Error("the manager does not take the failure either; the lease is given up", "error", err)
			r.tasks.drop(batch[i].Held, errGone)
		}
	}
}

// spoiled is what is left of a result that the manager does not take.
func spoiled(res dispatch.Result, why error) dispatch.Result {
	raw, err := json.Marshal(map[string]any{"error": "the manager did not take the result: " + clip(why.Error())})
	if err != nil {
		raw = json.RawMessage(`{}`)
	}
	res.Success, res.Details = false, raw
	res.Artifacts, res.Inline, res.Happenings = []evidence.Artifact{}, nil, nil
	res.Record.Snapshot, res.Record.Skipped, res.Record.Command = nil, nil, nil
	return res
}
