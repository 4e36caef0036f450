package runner

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/store"
)

// SubmitRuns queues runs, all or none. They are on disk when it returns, and
// end whatever becomes of this process.
func (r *Runner) SubmitRuns(ctx context.Context, reqs []run.Request, asked run.Asked) (run.Submission, error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return run.Submission{}, err
	}
	if len(reqs) == 0 || len(reqs) > run.MaxBatch {
		return run.Submission{}, fault.Field("runs", "must have from 1 to %d elements", run.MaxBatch)
	}
	orders, hooks := make([]run.Order, len(reqs)), make([]string, len(reqs))
	for i := range reqs {
		if orders[i], err = reqs[i].Order(r.Terms); err == nil {
			err = r.demandDriver(orders[i].Driver)
		}
		if err == nil {
			orders[i].Project, err = c.Place(orders[i].Project)
		}
		if err == nil && reqs[i].Webhook != "" {
			err = r.Hooks.Check("webhook", reqs[i].Webhook)
		}
		if err != nil {
			return run.Submission{}, inBatch(err, i, len(reqs))
		}
		hooks[i], orders[i].Keep = reqs[i].Webhook, true
	}
	if err := r.demandRoom(orders...); err != nil {
		return run.Submission{}, err
	}
	asked.Key = c.ReplyKey(asked.Key)
	return r.submit(ctx, c, orders, hooks, asked)
}

// inBatch names the run that a fault is about, where there are several.
func inBatch(err error, i, of int) error {
	f, ok := err.(*fault.Error) //nolint:errorlint // only one that is not wrapped has a field to name
	if !ok || of == 1 {
		return err
	}
	named := *f
	named.Field = fmt.Sprintf("runs[%d].%s", i, f.Field)
	return &named
}

func (r *Runner) submit(ctx context.Context, c policy.Caller, orders []run.Order, hooks []string, asked run.Asked) (s run.Submission, err error) {
	mine := r.alone() || len(r.Workers()) > 0
	runs, ids := make([]run.Run, len(orders)), make([]string, len(orders))
	tickets := make([]*ticket, len(orders))
	for i := range orders {
		orders[i].Keep = true
		runs[i] = r.newRun(ctx, c, &orders[i])
		runs[i].Webhook, ids[i] = hooks[i], runs[i].ID
		if mine {
			runs[i].Manager = r.ID
		}
		tickets[i] = r.queued(&runs[i], orders[i].Driver) //nolint:contextcheck // a run goes on in the runner's life
	}
	if err := r.demandPlaces(len(runs)); err != nil {
		return s, err
	}
	var earlier []string
	err = r.Store.Update(ctx, func(tx store.Tx) error {
		earlier = nil
		if asked.Key != "" {
			old, err := keptIDs(ctx, tx, c.ID, asked)
			if err != nil || old != nil {
				earlier = old
				return err
			}
			if err := r.keep(ctx, tx, c.ID, asked, ids); err != nil {
				return err
			}
		}
		return addQueued(ctx, tx, runs, orders)
	})
	if err != nil {
		return s, err
	}
	if earlier != nil {
		s.Runs, err = r.several(ctx, earlier)
		s.Replayed = true
		return s, err
	}
	if mine {
		r.queue(runs, tickets)
	}
	s.Runs = runs
	return s, nil
}

func addQueued(ctx context.Context, tx store.Tx, runs []run.Run, orders []run.Order) error {
	events := make([]*event.Event, len(runs))
	for i := range runs {
		x := runs[i] // the transaction may run again
		if err := tx.Runs().Add(ctx, &x, &orders[i]); err != nil {
			return err
		}
		events[i] = happened(&x, event.RunCreated, x.CreatedAt, map[string]any{"language": x.Language, "code_sha256": x.CodeSHA256})
	}
	return tx.Events().Append(ctx, events...)
}

// demandPlaces refuses more than the line takes, before anything is stored.
func (r *Runner) demandPlaces(n int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.line.length+n <= r.Most {
		return nil
	}
	wait := r.line.wait(r.line.length+n-r.Most, r.slots())
	r.refused()
	return fault.New(fault.Exhausted, "%d runs wait already, and with these more than %d would; try again in about %s.", r.line.length, r.Most, rounded(wait)).
		WithCode("queue_full").Retry(wait)
}

// queued is the ticket of a run that nobody waits for on a connection.
func (r *Runner) queued(x *run.Run, driver string) *ticket {
	t := &ticket{id: x.ID, owner: x.Owner, driver: driver, since: x.CreatedAt}
	t.grant = func(p seat) { r.launch(t, p) }
	return t
}

// queue puts runs that are stored into the line.
func (r *Runner) queue(runs []run.Run, tickets []*ticket) {
	r.mu.Lock()
	if r.stop != nil {
		for i, t := range tickets {
			r.entries[t.id] = &entry{ticket: t, fence: runs[i].Fence, done: make(chan struct{})}
			r.line.enter(t)
		}
	} // else the next life of this manager takes them up
	r.mu.Unlock()
	r.pump()
}

// reply is what is kept under an idempotency key.
type reply struct {
	RunIDs []string `json:"run_ids"`
}

// keptIDs returns the runs that a key stands for, nil where it is new.
func keptIDs(ctx context.Context, tx store.Tx, owner string, asked run.Asked) ([]string, error) {
	old, err := tx.Replies().Get(ctx, owner, asked.Key)
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up idempotency key: %w", err)
	}
	var kept reply
	if err := json.Unmarshal(old.Body, &kept); err != nil || old.Request != asked.Digest || len(kept.RunIDs) == 0 {
		return nil, fault.New(fault.Conflict, "the idempotency key was used before with another request; use a new key for a new request").
			WithCode("idempotency_mismatch")
	}
	return kept.RunIDs, nil
}

func (r *Runner) kept(ctx context.Context, c policy.Caller, asked run.Asked) (ids []string, err error) {
	err = r.Store.View(ctx, func(tx store.Tx) (err error) {
		ids, err = keptIDs(ctx, tx, c.ID, asked)
		return err
	})
	return ids, err
}

// keep keeps which runs a key stands for. One that is taken is a Conflict.
func (r *Runner) keep(ctx context.Context, tx store.Tx, owner string, asked run.Asked, ids []string) error {
	if old, err := keptIDs(ctx, tx, owner, asked); err != nil || old != nil {
		if err == nil {
			err = fault.New(fault.Conflict, "another request with this idempotency key is under way; ask again").WithCode("idempotency_busy")
		}
		return err
	}
	body, err := json.Marshal(reply{RunIDs: ids})
	if err != nil {
		return err
	}
	return tx.Replies().Put(ctx, owner, asked.Key, store.Reply{Request: asked.Digest, Body: body, At: r.Now()})
}
