package manager

import (
	"context"
	"encoding/json"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/store"
)

// follower reads what other managers did from the events, and does here what
// follows from it: wakes the leader and those who wait for work, tells workers
// to stop, forgets sessions that were replaced.
type follower struct {
	m      *Manager
	cursor int64
}

// The follower's rhythm. A burst of commits is looked at once, and under load,
// when there is always something to be woken by, looks are rarer.
const (
	followPause = 5 * time.Millisecond
	followLoad  = 40 * time.Millisecond
	followRetry = time.Second // the net below the wake-ups
	compareAll  = 2 * time.Second
	followBatch = 1000
)

// run follows until ctx ends.
func (f *follower) run(ctx context.Context) {
	woken := f.m.Store.Watch(ctx)
	if last, err := f.m.LastEvent(ctx); err == nil {
		f.cursor = last
	}
	compared, looked, pause := time.Now(), time.Now(), followPause
	for {
		select {
		case _, more := <-woken:
			if !more {
				return
			}
		case <-time.After(followRetry):
		}
		if time.Since(compared) >= compareAll {
			compared = time.Now()
			f.compare(ctx)
		}
		if err := f.look(ctx); err != nil && ctx.Err() == nil {
			f.m.Logger.Warn("could not follow the other managers; trying again", "error", err)
		}
		if time.Since(looked) < 2*followLoad {
			pause = min(2*pause, followLoad)
		} else {
			pause = followPause
		}
		looked = time.Now()
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// look reads from the cursor to the end.
func (f *follower) look(ctx context.Context) error {
	var leader, worker, runs, kept bool
	var us []event.Event
	last := f.cursor
	err := f.m.Store.View(ctx, func(tx store.Tx) (err error) {
		if last, err = tx.Events().Last(ctx); err != nil || last == f.cursor {
			return err
		}
		if leader, err = f.any(ctx, tx, event.JobCreated, event.JobRequeued, event.JobRetried, event.JobCompleted, event.JobFailed, event.JobEscalated); err != nil {
			return err
		}
		if worker, err = f.any(ctx, tx, event.JobAssigned); err != nil {
			return err
		}
		if runs, err = f.any(ctx, tx, event.RunCreated, event.RunRequeued); err != nil {
			return err
		}
		if kept, err = f.any(ctx, tx, event.ExecEnded, event.SandboxRunning, event.SandboxCompleted, event.SandboxFailed); err != nil {
			return err
		}
		ours := event.Filter{After: f.cursor, Types: []event.Type{event.JobFailed, event.WorkerRegistered, event.WorkerLeft, event.RunCancelling, event.SwitchEngaged, event.SwitchReleased}}
		us, err = tx.Events().List(ctx, ours, followBatch)
		if len(us) == followBatch || store.Full(us, store.EventBytes) {
			last = us[len(us)-1].Seq // the rest comes with the next look
		}
		return err
	})
	if err != nil {
		return err
	}
	if leader {
		f.m.work.Wake()
	}
	if worker {
		f.m.idle.Wake()
	}
	if kept {
		f.m.LookAgain()
	}
	if runs {
		if err := f.m.Adopt(ctx); err != nil {
			return err
		}
	}
	for i := range us {
		if err := f.obey(ctx, &us[i]); err != nil {
			return err
		}
	}
	f.cursor = last
	return nil
}

func (f *follower) any(ctx context.Context, tx store.Tx, types ...event.Type) (bool, error) {
	list, err := tx.Events().List(ctx, event.Filter{After: f.cursor, Types: types}, 1)
	return len(list) > 0, err
}

// obey does what an event asks of this manager.
func (f *follower) obey(ctx context.Context, e *event.Event) error {
	if e.Type == event.JobFailed {
		var end struct {
			Worker  string      `json:"worker"`
			Fence   int64       `json:"fence"`
			Reason  string      `json:"reason"`
			Outcome job.Outcome `json:"outcome"`
		}
		if err := json.Unmarshal(e.Data, &end); err == nil && end.Outcome == job.OutcomeCancelled && end.Worker != "" {
			f.m.halt(ctx, end.Worker, dispatch.Cancel{Held: dispatch.Held{JobID: e.JobID, Fence: end.Fence}, Reason: end.Reason})
		}
		return nil
	}
	if e.Type == event.SwitchEngaged || e.Type == event.SwitchReleased {
		return f.m.followSwitches(ctx)
	}
	if e.Type == event.RunCancelling {
		f.m.Halt(e.EntityID) //nolint:contextcheck // the end is told in the runner's life
		return nil
	}
	if !f.m.sessions.known(e.EntityID) {
		return nil
	}
	return f.m.Store.View(ctx, func(tx store.Tx) error {
		w, err := tx.Workers().Get(ctx, e.EntityID)
		if err == nil {
			f.m.reconcile(&w)
		}
		return err
	})
}

// compare holds the sessions here against what is written of the workers: a
// stream that was opened elsewhere leaves no event.
func (f *follower) compare(ctx context.Context) {
	ws, err := f.m.Workers(ctx)
	if err != nil {
		return // look said so
	}
	current := make(map[string]bool, len(ws))
	for i := range ws {
		f.m.reconcile(&ws[i])
		current[ws[i].Session] = true
	}
	f.m.dismiss(ctx, current)
}

// outputs passes on that other managers took output.
func (f *follower) outputs(ctx context.Context) {
	woken := f.m.outputs.Watch(ctx)
	if woken == nil {
		return
	}
	for range woken {
		f.m.outputs.arrived.Wake()
	}
}
