package runner

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/webhook"
)

// deliver calls webhooks that are due while this manager leads, until ctx ends.
func (r *Runner) deliver(ctx context.Context) {
	tick := time.NewTicker(rhythm)
	defer tick.Stop()
	caller := r.Hooks.Client(webhook.CallTime)
	for {
		ended := r.arrived.Wait()
		for full := r.Fence() != 0; full && ctx.Err() == nil; {
			full = r.deliverDue(ctx, caller)
		}
		select {
		case <-ctx.Done():
			return
		case <-ended:
		case <-tick.C:
		}
	}
}

// deliverDue calls some webhooks together, and reports whether there may be
// more.
func (r *Runner) deliverDue(ctx context.Context, caller *http.Client) bool {
	var due []store.Hook
	err := r.Store.View(ctx, func(tx store.Tx) (err error) {
		due, err = tx.Hooks().Due(ctx, r.Now(), webhook.Batch)
		return err
	})
	if err != nil {
		return false
	}
	var calls sync.WaitGroup
	for _, h := range due {
		calls.Go(func() {
			if err := r.call(ctx, caller, h); err != nil && ctx.Err() == nil {
				r.Logger.Warn("could not settle a webhook; it is called again", "run", h.RunID, "error", err)
			}
		})
	}
	calls.Wait()
	return err == nil && len(due) == webhook.Batch
}

// call calls one webhook and writes down what comes of it. A crash between the
// two has it called again: its receiver knows it by the id of the run.
func (r *Runner) call(ctx context.Context, caller *http.Client, h store.Hook) error {
	var x run.Run
	err := r.Store.View(ctx, func(tx store.Tx) (err error) {
		x, err = tx.Runs().Get(ctx, h.RunID)
		return err
	})
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	done := err != nil
	if !done {
		err := r.post(ctx, caller, h, &x)
		if ctx.Err() != nil {
			return err
		}
		h.Tries++
		if done = err == nil; err != nil && h.Tries >= webhook.Tries {
			r.Logger.Warn("a webhook was called in vain for the last time", "run", h.RunID, "tries", h.Tries, "error", err)
			done = true
		}
	}
	h.NextAt = r.Now().Add(webhook.Again(h.Tries))
	return r.Store.Update(ctx, func(tx store.Tx) error {
		if err := tx.Leaders().Check(ctx, r.Fence()); err != nil {
			return err
		}
		if done {
			return tx.Hooks().Drop(ctx, h.RunID)
		}
		return tx.Hooks().Put(ctx, h)
	})
}

// ended is what a webhook is told. What the program said is for those to ask
// who may.
type ended struct {
	Type       string    `json:"type"`
	RunID      string    `json:"run_id"`
	Status     run.State `json:"status"`
	Verdict    string    `json:"verdict,omitempty"`
	ExitCode   *int      `json:"exit_code,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Language   string    `json:"language"`
	CodeSHA256 string    `json:"code_sha256"`
	CreatedAt  time.Time `json:"created_at"`
	EndedAt    time.Time `json:"ended_at"`
}

func (r *Runner) post(ctx context.Context, caller *http.Client, h store.Hook, x *run.Run) error {
	told := ended{
		Type: "run.ended", RunID: x.ID, Status: x.State, Verdict: string(x.Verdict), Reason: x.Reason, Language: x.Language, CodeSHA256: x.CodeSHA256,
		CreatedAt: x.CreatedAt, EndedAt: x.EndedAt,
	}
	if x.Result != nil {
		told.ExitCode = &x.Result.ExitCode
	}
	body, err := json.Marshal(told)
	if err != nil {
		return err
	}
	// What its receiver says is of no matter.
	_, err = r.Hooks.Post(ctx, caller, webhook.Call{URL: h.URL, Event: told.Type, Delivery: x.ID, Body: body}, r.Now())
	return err
}
