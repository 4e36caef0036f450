// Package session is what decides about sessions: conversations that have a
// sandbox of their own. A session's sandbox is made when it is first needed, is
// used by every command and every prompt of the session, and ends with it. All
// that is known of a session is in the store: a restart forgets nothing.
package session

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/service"
	"github.com/aurea-dev/aurea/internal/store"
)

// Sandboxes keeps the sandboxes of sessions, and runs commands in them.
type Sandboxes interface {
	CreateSandbox(ctx context.Context, req live.Request) (s live.Sandbox, made bool, err error)
	Sandbox(ctx context.Context, id string) (live.Sandbox, error)
	EndSandbox(ctx context.Context, id, reason string) (live.Sandbox, error)
	PauseSandbox(ctx context.Context, id string, how live.Paused) (live.Sandbox, error)
	ResumeSandbox(ctx context.Context, id string) (live.Sandbox, error)
	StartExec(ctx context.Context, c live.Command, asked run.Asked) (e live.Exec, replayed bool, err error)
	RunExec(ctx context.Context, c live.Command, asked run.Asked) (e live.Exec, replayed bool, err error)
}

// Config is what a Lifecycle is made of.
type Config struct {
	Store     store.Store
	Sandboxes Sandboxes
	// Submit queues a plan.
	Submit func(ctx context.Context, prd job.PRD) (job.Submission, error)
	// Queue and Execs let the jobs of sessions be done; nil does none. Arrived
	// returns a channel that is closed when there may be one.
	Queue     Queue
	Execs     Execs
	Arrived   func() <-chan struct{}
	LeaseTerm time.Duration
	// Leads says whether this manager does what has its time.
	Leads  func() bool
	Now    func() time.Time
	Logger *slog.Logger
	// Age is how long a session may live, Idle how long it may be of no use to
	// anybody, Sweep how often is looked; 0 is as the origin of sessions has it.
	Age, Idle, Sweep time.Duration
	// MaxTTL is how long a sandbox may live at most; 0 is for ever.
	MaxTTL time.Duration
	// OnStop says what becomes of open sessions when the manager stops.
	OnStop OnStop
}

// OnStop is what becomes of open sessions when the manager stops.
type OnStop string

// What can become of them.
const (
	Keep  OnStop = "keep" // they go on
	Pause OnStop = "pause"
	End   OnStop = "end"
)

// The bounds that Config leaves open.
const (
	defaultAge   = 30 * time.Minute
	defaultSweep = time.Minute
	sweepLimit   = 100
	shutdownTime = 30 * time.Second
)

// Lifecycle looks after sessions.
type Lifecycle struct {
	Config
	life service.Life
}

var errStopped = errors.New("the manager is stopping")

// New makes a Lifecycle. It sweeps after Start.
func New(cfg Config) *Lifecycle {
	service.Supply(&cfg.Now, &cfg.Leads, &cfg.Logger)
	if cfg.Age <= 0 {
		cfg.Age = defaultAge
	}
	if cfg.Idle <= 0 {
		cfg.Idle = defaultAge
	}
	if cfg.Sweep <= 0 {
		cfg.Sweep = defaultSweep
	}
	return &Lifecycle{Config: cfg}
}

// Start begins to sweep.
func (l *Lifecycle) Start(ctx context.Context) error {
	l.life.Begin(ctx)
	if l.Queue != nil {
		p := &processor{l: l, busy: map[string]bool{}}
		l.life.Go(p.run) //nolint:contextcheck // in the life that has just begun
	}
	l.life.Go(l.tend) //nolint:contextcheck // in the life that has just begun
	return nil
}

// tend sweeps until ctx ends.
func (l *Lifecycle) tend(ctx context.Context) {
	service.Every(ctx, l.Sweep, func() {
		if !l.Leads() {
			return
		}
		if err := l.SweepSessions(ctx); err != nil && ctx.Err() == nil {
			l.Logger.Error("could not sweep sessions", "error", err)
		}
	})
}

// Stop ends what Start began, does to open sessions what was decided, and waits
// for all of it.
func (l *Lifecycle) Stop() {
	if !l.life.End(errStopped) {
		return
	}
	if l.OnStop == Pause || l.OnStop == End {
		ctx, cancel := context.WithTimeoutCause(policy.With(context.Background(), policy.System()), shutdownTime, errStopped)
		defer cancel()
		if err := l.Shutdown(ctx, l.OnStop); err != nil {
			l.Logger.Error("could not shut all sessions down; the sweep will", "error", err)
		}
	}
}

// Shutdown pauses or ends all open sessions that the caller sees, at the same
// time, and waits for them. One that fails does not keep the others.
func (l *Lifecycle) Shutdown(ctx context.Context, how OnStop) error {
	list, err := l.Sessions(ctx, store.SessionFilter{Open: true, Limit: maxOpen})
	if err != nil {
		return err
	}
	faults := make([]error, len(list))
	var all sync.WaitGroup
	for i := range list {
		all.Go(func() {
			own := policy.AsOwner(ctx, list[i].Owner)
			switch {
			case how == End:
				_, faults[i] = l.StopSession(own, list[i].ID)
			case list[i].State == live.SessionActive:
				_, faults[i] = l.PauseSession(own, list[i].ID)
			}
		})
	}
	all.Wait()
	return errors.Join(faults...)
}

// maxOpen bounds how many sessions one shutdown looks at.
const maxOpen = 10000

// SweepSessions ends sessions whose time is over. One that fails does not keep
// the others.
func (l *Lifecycle) SweepSessions(ctx context.Context) error {
	var list []live.Session
	err := l.Store.View(ctx, func(tx store.Tx) (err error) {
		list, err = tx.Sessions().Due(ctx, l.Now(), sweepLimit)
		return err
	})
	if err != nil {
		return err
	}
	for i := range list {
		s := &list[i]
		why := "it was idle for too long"
		if !l.Now().Before(s.CreatedAt.Add(l.Age)) {
			why = "it was too old"
		}
		if _, err := l.end(policy.AsOwner(ctx, s.Owner), s.ID, live.SessionExpired, why); err != nil && !fault.Is(err, fault.Conflict) {
			l.Logger.Error("could not expire a session", "session", s.ID, "error", err)
		}
	}
	return nil
}

// find returns a session of the caller, or for those who see everything
// anybody's.
func find(ctx context.Context, tx store.Tx, id string) (live.Session, error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return live.Session{}, err
	}
	if c.Project() != 0 {
		return findIn(ctx, tx, c, id)
	}
	s, err := tx.Sessions().Get(ctx, c.ID, id)
	if fault.Is(err, fault.NotFound) && c.SeesAll() {
		s, err = tx.Sessions().Get(ctx, "", id)
	}
	if fault.Is(err, fault.NotFound) {
		err = noSession(id)
	}
	return s, err
}

func noSession(id string) error {
	return fault.New(fault.NotFound, "No session has the id %q.", id[:min(len(id), 60)])
}

// findIn is find for a caller whose key is narrowed to a project: the newest that
// has the id there.
func findIn(ctx context.Context, tx store.Tx, c policy.Caller, id string) (live.Session, error) {
	project, err := c.PlaceLabel("")
	if err != nil {
		return live.Session{}, err
	}
	list, err := tx.Sessions().List(ctx, store.SessionFilter{ID: id, Owner: c.OnlyOwner(), Project: project, Limit: 1})
	if err != nil {
		return live.Session{}, err
	}
	if id == "" || len(list) == 0 {
		return live.Session{}, noSession(id)
	}
	return list[0], nil
}

// CodeEnded is the code of the fault about a session that is over.
const CodeEnded = "session_ended"

// demandOpen refuses a session that is over: one that expired is gone, any other
// has come to its end.
func demandOpen(s *live.Session) error {
	switch {
	case s.State == live.SessionExpired:
		return fault.New(fault.Gone, "The session %s has expired: %s. Start another.", s.ID, s.Reason).WithCode("session_expired")
	case s.State.Ended():
		return fault.New(fault.Conflict, "The session %s is %s. Start another.", s.ID, s.State).WithCode(CodeEnded)
	}
	return nil
}

// due is when the time of a session is over.
func (l *Lifecycle) due(s *live.Session) time.Time {
	age, idle := s.CreatedAt.Add(l.Age), s.ActiveAt.Add(l.Idle)
	if s.State == live.SessionPaused || age.Before(idle) {
		return age
	}
	return idle
}

// alter changes a session in one transaction with the event that says so.
func (l *Lifecycle) alter(ctx context.Context, id string, t event.Type, change func(s *live.Session) error) (s live.Session, err error) {
	err = l.Store.Update(ctx, func(tx store.Tx) error {
		if s, err = find(ctx, tx, id); err != nil {
			return err
		}
		from := s.State
		if err := change(&s); err != nil {
			return err
		}
		if s.State.Ended() {
			s.EndedAt, s.ExpiresAt = l.now(), time.Time{}
		} else {
			s.ActiveAt = l.now()
			s.ExpiresAt = l.due(&s)
		}
		if err := tx.Sessions().Put(ctx, &s); err != nil {
			return err
		}
		if from != s.State {
			t = event.SessionMoved
			err := store.Acted(ctx, tx, store.Act{
				Source: "session", Action: "session." + string(s.State), Target: s.ID, Reason: s.Reason,
				Before: map[string]any{"state": from}, After: map[string]any{"state": s.State, "sandbox": s.Sandbox},
			})
			if err != nil {
				return err
			}
		}
		if t == "" {
			return nil
		}
		return tx.Events().Append(ctx, happened(ctx, &s, t, l.now(), map[string]any{"from": from, "to": s.State, "reason": s.Reason, "sandbox": s.Sandbox, "job": s.Job}))
	})
	return s, err
}

func (l *Lifecycle) leaseTerm() time.Duration { return max(l.LeaseTerm, time.Second) }

func (l *Lifecycle) now() time.Time { return l.Now().UTC().Truncate(time.Microsecond) }

func happened(ctx context.Context, s *live.Session, t event.Type, at time.Time, data map[string]any) *event.Event {
	text, _ := json.Marshal(data) // of words
	return &event.Event{Type: t, Version: 1, Entity: "session", EntityID: s.ID, Owner: s.Owner, ProjectID: live.ProjectOf(s.Project), Actor: policy.ActorOf(ctx), At: at, Data: text}
}
