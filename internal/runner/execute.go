package runner

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/trace"
)

// Execute does a run while its caller waits: when ctx ends, so does the run. A
// program that fails is an answer; an error is about the request or about us.
func (r *Runner) Execute(ctx context.Context, req run.Request, asked run.Asked) (run.Answer, error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return run.Answer{}, err
	}
	if req.Webhook != "" {
		return run.Answer{}, fault.Field("webhook", "is for runs that nobody waits for; send them to POST /api/v1/runs")
	}
	order, err := req.Order(r.Terms)
	if err != nil {
		return run.Answer{}, err
	}
	if err := r.demandDriver(order.Driver); err != nil {
		return run.Answer{}, err
	}
	if order.Project, err = c.Place(order.Project); err != nil {
		return run.Answer{}, err
	}
	asked.Key = c.ReplyKey(asked.Key)
	if asked.Key != "" {
		if ids, err := r.kept(ctx, c, asked); err != nil || ids != nil {
			return r.replayed(ctx, ids, err)
		}
	}
	if err := r.demandRoom(order); err != nil {
		return run.Answer{}, err
	}
	if !r.alone() && len(r.Workers()) == 0 {
		return r.elsewhere(ctx, c, order, asked)
	}
	x := &execution{r: r, asked: asked, order: order, begun: make(chan error, 1)}
	x.run = r.newRun(ctx, c, &x.order)
	x.run.Sync, x.run.State, x.run.Manager = true, run.Running, r.ID
	return x.do(ctx)
}

// demandRoom refuses new runs while they could not be taken.
func (r *Runner) demandRoom(orders ...run.Order) error {
	for i := range orders {
		if r.Stops == nil {
			break
		}
		if err := r.Stops(sandbox.Subject{Project: orders[i].Project}); err != nil {
			return err
		}
	}
	return r.Disk()
}

// newRun is a run as it is kept at first. It gives the order its names.
func (r *Runner) newRun(ctx context.Context, c policy.Caller, order *run.Order) run.Run {
	sum := sha256.Sum256([]byte(order.Code))
	order.ID, order.Owner, order.Trace = job.NewID(), c.ID, trace.From(ctx).String()
	return run.Run{
		ID: order.ID, Owner: c.ID, Project: order.Project, State: run.Queued, Language: order.Language, CodeSHA256: hex.EncodeToString(sum[:]), Timeout: order.Timeout,
		Fence: 1, Trace: order.Trace, CreatedAt: r.Now(),
	}
}

// execution is a run whose caller waits.
type execution struct {
	r     *Runner
	asked run.Asked
	order run.Order
	run   run.Run
	// begun is told once that the start is on disk; that is awaited at the end
	// only, so that it delays nothing.
	begun  chan error
	waited time.Duration
}

func (x *execution) do(ctx context.Context) (run.Answer, error) {
	r := x.r
	e := &entry{fence: x.run.Fence, sync: true, done: make(chan struct{})}
	ch := make(chan seat, 1)
	e.ticket = &ticket{id: x.run.ID, owner: x.run.Owner, driver: x.order.Driver, since: x.run.CreatedAt, grant: func(p seat) { ch <- p }}
	patience := r.Patience
	if x.asked.Patience > 0 {
		patience = min(x.asked.Patience, 10*time.Minute)
	}
	if err := r.enter(false, e.ticket); err != nil {
		return run.Answer{}, err
	}
	r.note(x.run.ID, e)
	defer r.drop(x.run.ID, e)
	r.pump()
	for {
		p, err := r.await(ctx, e.ticket, ch, patience)
		if err != nil {
			return x.refused(ctx, err)
		}
		if x.run.Attempt == 0 {
			if err := x.begin(ctx, p); err != nil {
				r.release(p, 0)
				return run.Answer{}, err
			}
		}
		answer, again, err := x.try(ctx, e, p)
		if !again {
			return answer, err
		}
		e.ticket.urgent = true
		if err := r.enter(true, e.ticket); err != nil {
			return x.refused(ctx, err)
		}
		r.pump()
	}
}

// begin writes the start down, while the run is on its way. Under a key it is
// awaited: a second request with the same key must find it.
func (x *execution) begin(ctx context.Context, p seat) error {
	x.run.StartedAt, x.run.Worker, x.run.Attempt = x.r.Now(), p.ID, 1
	x.waited = x.run.StartedAt.Sub(x.run.CreatedAt)
	started, asked := x.run, x.asked
	write := func() error {
		defer x.r.arrived.Wake() // it can be read from now on
		return x.r.Store.Update(context.WithoutCancel(ctx), func(tx store.Tx) error {
			if asked.Key != "" {
				if err := x.r.keep(ctx, tx, started.Owner, asked, []string{started.ID}); err != nil {
					return err
				}
			}
			return x.r.addStarted(ctx, tx, &started)
		})
	}
	if x.asked.Key != "" {
		if err := write(); err != nil {
			return err
		}
		x.begun <- nil
		return nil
	}
	go func() { x.begun <- write() }() // do waits for it, at the end
	return nil
}

// try does the run at one worker. again says that another turn is needed.
func (x *execution) try(ctx context.Context, e *entry, p seat) (answer run.Answer, again bool, err error) {
	r := x.r
	out := &output{most: x.order.OutputCap, attempt: x.run.Attempt}
	flight, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	bounded, over := context.WithTimeoutCause(flight, x.order.Timeout+slack, errOverdue)
	defer over()
	r.begun(e, out, cancel)
	at := r.Now()
	res, err := p.Runner.Run(bounded, x.order, func(c chunk) error { return r.take(ctx, &x.run, out, c) })
	took := r.Now().Sub(at)
	switch {
	case err == nil:
		r.release(p, took)
		answer, err = x.completed(ctx, res, out, took)
		return answer, false, err
	case flight.Err() != nil:
		r.release(p, 0)
		answer, err = x.cancelled(ctx, context.Cause(flight), out)
		return answer, false, err
	case fault.Is(err, fault.Exhausted):
		r.full(p)
		return run.Answer{}, true, nil
	}
	r.release(p, 0)
	if !final(err) && x.run.Attempt < run.MaxTries {
		r.Logger.Warn("a run was lost with its worker and is done again", "run", x.run.ID, "worker", p.ID, "attempt", x.run.Attempt, "error", err)
		x.run.Attempt++
		return run.Answer{}, true, nil
	}
	answer, err = x.refused(ctx, about(err, p.ID))
	return answer, false, err
}

// completed keeps a result and answers with it.
func (x *execution) completed(ctx context.Context, res run.Result, out *output, took time.Duration) (run.Answer, error) {
	artifacts := make(map[string][]byte, len(res.Artifacts))
	for name, a := range res.Artifacts {
		artifacts[name] = a.Data
	}
	answer := run.Answer{Stdout: bytes.Clone(out.stdout), Stderr: bytes.Clone(out.stderr)}
	x.run.Worker = res.Worker
	at := x.r.Now()
	record, err := x.end(ctx, run.Completed, "", &res, out)
	if err != nil {
		return run.Answer{}, err
	}
	for name := range artifacts {
		if _, kept := res.Artifacts[name]; !kept {
			delete(artifacts, name)
		}
	}
	answer.Run, answer.Artifacts, answer.Evidence = x.run, artifacts, record
	answer.Stages = stages(x.waited, took, &res, x.r.Now().Sub(at))
	return answer, nil
}

// stages are where the time of a run went: the manager's own around the
// worker's.
func stages(waited, took time.Duration, res *run.Result, recorded time.Duration) []run.Stage {
	list := append([]run.Stage{{Name: "queue", Took: waited}}, res.Stages...)
	var worker time.Duration
	for _, s := range res.Stages {
		worker += s.Took
	}
	return append(list, run.Stage{Name: "wire", Took: max(took-worker, 0)}, run.Stage{Name: "record", Took: recorded})
}

// cancelled keeps that nobody wanted it any more.
func (x *execution) cancelled(ctx context.Context, cause error, out *output) (run.Answer, error) {
	reason := "whoever asked went away"
	if errors.Is(cause, errCancelled) {
		reason = "cancelled on request"
	}
	if _, err := x.end(ctx, run.Cancelled, reason, partial(out), out); err != nil {
		return run.Answer{}, err
	}
	return run.Answer{}, fault.New(fault.Conflict, "The run was stopped: %s.", reason).WithCode("cancelled")
}

// refused ends a run that came to no result, if it had begun.
func (x *execution) refused(ctx context.Context, err error) (run.Answer, error) {
	if x.run.Attempt == 0 {
		return run.Answer{}, err
	}
	if _, ended := x.end(ctx, run.Failed, reasonOf(err), nil, &output{}); ended != nil {
		return run.Answer{}, errors.Join(err, ended)
	}
	return run.Answer{}, err
}

// end writes the end down, after the start is.
func (x *execution) end(ctx context.Context, state run.State, reason string, res *run.Result, out *output) (evidence string, err error) {
	if err := <-x.begun; err != nil {
		return "", err
	}
	x.begun <- nil
	x.run.Reason = reason
	if res != nil {
		res.Inputs = x.order.Inputs()
	}
	return x.r.finish(ctx, &x.run, state, res, settle(res, out), x.waited)
}

// elsewhere queues a run for a manager that has workers, and waits for it.
func (r *Runner) elsewhere(ctx context.Context, c policy.Caller, order run.Order, asked run.Asked) (run.Answer, error) {
	s, err := r.submit(ctx, c, []run.Order{order}, []string{""}, asked)
	if err != nil {
		return run.Answer{}, err
	}
	return r.waitAnswer(ctx, s.Runs[0].ID, s.Replayed)
}

// replayed answers as an earlier request with the same key was answered.
func (r *Runner) replayed(ctx context.Context, ids []string, err error) (run.Answer, error) {
	if err != nil {
		return run.Answer{}, err
	}
	return r.waitAnswer(ctx, ids[0], true)
}

// waitAnswer waits for the end of a run. One that was made for this caller
// alone ends with it.
func (r *Runner) waitAnswer(ctx context.Context, id string, replayed bool) (run.Answer, error) {
	ended, err := r.Wait(ctx, id)
	if err != nil && ctx.Err() != nil && !replayed {
		bounded, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanupTime, errOverdue)
		defer cancel()
		_, _ = r.CancelRun(bounded, id, "whoever asked went away") // it may have ended meanwhile
	}
	if err != nil {
		return run.Answer{}, err
	}
	if ended.State != run.Completed {
		return run.Answer{}, fault.New(fault.Unavailable, "The run came to no result: %s.", ended.Reason).WithCode("run_" + lower(ended.State))
	}
	a, err := r.RunAnswer(ctx, id)
	a.Replayed = replayed
	return a, err
}
