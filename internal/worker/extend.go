package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
)

var (
	errGone      = fault.New(fault.Conflict, "the lease is gone")
	errCancelled = fault.New(fault.Conflict, "the job was cancelled")
)

// extend renews the leases of all that is held until the run ends. Results that
// wait to be taken are held too.
func (r *run) extend() {
	var pause backoff
	timer := time.NewTimer(r.session.extendEvery())
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-r.changed:
		case <-r.life.Done():
			return
		}
		next := r.session.extendEvery()
		if err := r.extendOnce(); err != nil {
			r.log.Warn("could not extend leases, trying again", "error", err)
			if pause.wait(r.life) != nil {
				return
			}
			next = 0
		} else {
			pause.reset()
		}
		timer.Reset(next)
	}
}

func (r *run) extendOnce() error {
	// Also with nothing held: it tells the manager that this worker lives.
	held, paused, tripped := r.tasks.held(), r.pausedFor(), r.stops.untold(false)
	var answer dispatch.ExtendAnswer
	err := r.session.call(r.life, dispatch.ReportTimeout, func(ctx context.Context, session string) (err error) {
		answer, err = r.Manager.Extend(ctx, dispatch.ExtendRequest{Session: session, Held: held, Paused: paused, Figures: r.figures(), Languages: r.languages(), Tripped: tripped})
		return err
	})
	if err != nil {
		return err
	}
	for _, h := range answer.Gone {
		r.tasks.drop(h, errGone)
	}
	r.stops.heard(r.life, answer.Switches, tripped, false)
	return nil
}

// figures measures the worker. A disk that cannot be measured is left out.
func (r *run) figures() dispatch.Figures {
	f := dispatch.Figures{Sandboxes: int(r.live.Load())}
	if free, size, err := measureDisk(r.Base); err == nil {
		f.DiskFree, f.DiskBytes = free, size
	}
	return f
}

// attend holds the command stream open until the run ends. It is Attend that
// notices that: only then is no command under way any more.
func (r *run) attend() {
	const lived = 5 * time.Second
	var pause backoff
	for {
		session, began := r.session.current(), time.Now()
		ended := r.contact.attend()
		err := r.Manager.Attend(r.life, session, receiver{r})
		ended()
		if r.life.Err() != nil {
			return
		}
		if fault.CodeOf(err) == unknownSession && r.session.renew(r.life, session) == nil {
			pause.reset()
			continue
		}
		if time.Since(began) > lived {
			pause.reset()
		}
		level := slog.LevelWarn
		if r.tasks.ending() {
			level = slog.LevelDebug // the manager closed it after our goodbye
		}
		r.log.Log(r.life, level, "the command stream broke, opening it again", "error", err)
		_ = pause.wait(r.life)
	}
}

// receiver takes the manager's commands.
type receiver struct{ run *run }

var _ dispatch.Receiver = receiver{}

// Cancel stops the work under a lease. It returns before the work has ended.
func (rc receiver) Cancel(_ context.Context, c dispatch.Cancel) error {
	rc.run.log.Info("a job was cancelled", "job", c.JobID, "fence", c.Fence, "reason", c.Reason)
	rc.run.tasks.cancel(c.Held)
	return nil
}
