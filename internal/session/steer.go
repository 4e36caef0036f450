package session

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/store"
)

// maxID bounds the names that callers give their sessions.
const maxID = 100

func isID(id string) bool {
	return id != "" && id != "." && id != ".." && len(id) <= maxID && !strings.ContainsFunc(id, func(c rune) bool {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		return !letter && c != '-' && c != '_' && c != '.'
	})
}

// StartSession makes a session with a sandbox. One that has the id already and
// is open is gone on with, and its live sandbox used; made says which it was.
// Of several that start the same one, all get the same sandbox.
func (l *Lifecycle) StartSession(ctx context.Context, req live.SessionRequest) (s live.Session, made bool, err error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return s, false, err
	}
	if req.Project, err = c.PlaceLabel(req.Project); err != nil {
		return s, false, err
	}
	if req.ID == "" {
		req.ID = job.NewID()
	}
	if !isID(req.ID) {
		return s, false, fault.Field("id", "must be at most %d letters, digits, dashes, dots and underscores", maxID)
	}
	if req.Prompt != "" {
		if err := live.CheckPrompt(req.Prompt); err != nil {
			return s, false, err
		}
	}
	check := live.Request{Spec: req.Spec}
	if err := check.Check(live.Terms{}); err != nil {
		return s, false, err
	}
	if s, made, err = l.add(ctx, c, req); err != nil {
		return s, made, err
	}
	if s, err = l.ensure(ctx, s); err != nil || req.Prompt == "" {
		return s, made, err
	}
	s, err = l.ask(ctx, s, req.Prompt)
	return s, made, err
}

// add stores a session, or returns the open one that has its id.
func (l *Lifecycle) add(ctx context.Context, c policy.Caller, req live.SessionRequest) (s live.Session, made bool, err error) {
	owner := c.ID
	err = l.Store.Update(ctx, func(tx store.Tx) error {
		now := l.now()
		fresh := live.Session{ID: req.ID, Owner: owner, Project: req.Project, State: live.SessionPending, Prompt: req.Prompt, Spec: req.Spec, CreatedAt: now, ActiveAt: now}
		fresh.ExpiresAt = l.due(&fresh)
		made = false
		s, err = tx.Sessions().Get(ctx, owner, req.ID)
		if err == nil && !c.Sees(owner, live.ProjectOf(s.Project)) {
			return fault.New(fault.Conflict, "A session of another project has the id %q; take another.", req.ID).WithCode(store.CodeSessionExists)
		}
		if err == nil {
			return demandOpen(&s)
		}
		if !fault.Is(err, fault.NotFound) {
			return err
		}
		s, made = fresh, true
		if err := tx.Sessions().Add(ctx, &s); err != nil {
			return err
		}
		return tx.Events().Append(ctx, happened(ctx, &s, event.SessionCreated, now, map[string]any{"project": s.Project}))
	})
	return s, made, err
}

// ensure makes sure that an open session has a sandbox that runs.
func (l *Lifecycle) ensure(ctx context.Context, s live.Session) (live.Session, error) {
	if err := demandOpen(&s); err != nil {
		return s, err
	}
	own := policy.AsOwner(ctx, s.Owner)
	if s.State == live.SessionPaused {
		return l.ResumeSession(own, s.ID)
	}
	ttl, idle := l.Age, time.Duration(0) // ours is the sweep; this is for when we fail
	if l.MaxTTL > 0 {
		ttl = min(ttl, l.MaxTTL)
	}
	spec := s.Spec
	spec.Labels = map[string]string{"session": s.ID}
	if live.ProjectOf(s.Project) != 0 { // so that a kill switch of the project finds it too
		spec.Labels[live.LabelProject] = s.Project
	}
	box, made, err := l.Sandboxes.CreateSandbox(own, live.Request{Name: "session-" + s.ID, Session: s.ID, Spec: spec, TTL: &ttl, Idle: &idle})
	if err != nil {
		return s, err
	}
	if box.Session != s.ID || box.Spec.Project() != live.ProjectOf(s.Project) {
		return s, fault.New(fault.Conflict, "The sandbox %s has the name that is for the sandbox of this session, and is not its own. End it, or name the session otherwise.", box.ID).WithCode("name_taken")
	}
	if s.Sandbox == box.ID && s.State == live.SessionActive {
		return l.alter(own, s.ID, "", demandOpen)
	}
	owner := s.Owner
	s, err = l.alter(own, s.ID, event.SessionSandbox, func(s *live.Session) (err error) {
		if err := demandOpen(s); err != nil {
			return err
		}
		s.Sandbox = box.ID
		if s.State == live.SessionPending {
			s.State, err = s.State.To(live.SessionActive)
		}
		return err
	})
	if err != nil && made { // the session ended meanwhile
		l.endSandbox(policy.AsOwner(ctx, owner), box.ID, "its session has ended")
	}
	return s, err
}

// ask queues a prompt as a job of the session.
func (l *Lifecycle) ask(ctx context.Context, s live.Session, prompt string) (live.Session, error) {
	payload, err := json.Marshal(map[string]string{"prompt": prompt})
	if err != nil {
		return s, err
	}
	done, err := l.Submit(policy.AsOwner(ctx, s.Owner), job.PRD{ProjectID: live.ProjectOf(s.Project), Title: "Session " + s.ID, Tasks: []job.Task{{SessionID: s.ID, Payload: payload}}})
	if err != nil {
		return s, err
	}
	return l.alter(policy.AsOwner(ctx, s.Owner), s.ID, event.SessionContinued, func(s *live.Session) error {
		if err := demandOpen(s); err != nil {
			return err
		}
		s.Prompt, s.Job = prompt, done.JobIDs[0]
		return nil
	})
}

// Session returns a session.
func (l *Lifecycle) Session(ctx context.Context, id string) (s live.Session, err error) {
	err = l.Store.View(ctx, func(tx store.Tx) (err error) {
		s, err = find(ctx, tx, id)
		return err
	})
	return s, err
}

// Sessions lists sessions, newest first.
func (l *Lifecycle) Sessions(ctx context.Context, f store.SessionFilter) (list []live.Session, err error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return nil, err
	}
	f.Owner = cmp.Or(c.OnlyOwner(), f.Owner)
	if f.Project, err = c.PlaceLabel(f.Project); err != nil {
		return nil, err
	}
	err = l.Store.View(ctx, func(tx store.Tx) (err error) {
		list, err = tx.Sessions().List(ctx, f)
		return err
	})
	return list, err
}

// ContinueSession asks another thing of an open session.
func (l *Lifecycle) ContinueSession(ctx context.Context, id, prompt string) (live.Session, error) {
	if err := live.CheckPrompt(prompt); err != nil {
		return live.Session{}, err
	}
	s, err := l.Session(ctx, id)
	if err != nil {
		return s, err
	}
	if s, err = l.ensure(ctx, s); err != nil {
		return s, err
	}
	return l.ask(ctx, s, prompt)
}

// ExecSession starts a command in the sandbox of a session, which it gets if it
// has none that runs.
func (l *Lifecycle) ExecSession(ctx context.Context, id string, c live.Command) (live.Exec, error) {
	s, err := l.Session(ctx, id)
	if err != nil {
		return live.Exec{}, err
	}
	if s.State == live.SessionPaused {
		return live.Exec{}, fault.New(fault.Conflict, "The session %s is paused; resume it first.", id).WithCode("paused")
	}
	if s, err = l.ensure(ctx, s); err != nil {
		return live.Exec{}, err
	}
	c.Sandbox = s.Sandbox
	e, _, err := l.Sandboxes.StartExec(policy.AsOwner(ctx, s.Owner), c, run.Asked{})
	return e, err
}

// PauseSession makes a session and its sandbox stand still.
func (l *Lifecycle) PauseSession(ctx context.Context, id string) (live.Session, error) {
	s, err := l.Session(ctx, id)
	if err == nil {
		err = demandOpen(&s)
	}
	if err != nil || s.State == live.SessionPaused {
		return s, err
	}
	if _, err := s.State.To(live.SessionPaused); err != nil {
		return s, err
	}
	own := policy.AsOwner(ctx, s.Owner)
	_, err = l.Sandboxes.PauseSandbox(own, s.Sandbox, live.Checkpointed)
	if fault.Is(err, fault.Invalid) { // this driver has no checkpoints
		_, err = l.Sandboxes.PauseSandbox(own, s.Sandbox, live.Frozen)
	}
	if err != nil {
		return s, err
	}
	return l.alter(own, id, event.SessionMoved, func(s *live.Session) (err error) {
		s.State, err = s.State.To(live.SessionPaused)
		return err
	})
}

// ResumeSession lets a paused session go on.
func (l *Lifecycle) ResumeSession(ctx context.Context, id string) (live.Session, error) {
	s, err := l.Session(ctx, id)
	if err == nil {
		err = demandOpen(&s)
	}
	if err != nil || s.State == live.SessionActive {
		return s, err
	}
	if s.State != live.SessionPaused {
		return s, fault.New(fault.Conflict, "The session %s is %s and not paused.", id, s.State).WithCode("wrong_state")
	}
	own := policy.AsOwner(ctx, s.Owner)
	if _, err := l.Sandboxes.ResumeSandbox(own, s.Sandbox); err != nil {
		return s, err
	}
	return l.alter(own, id, event.SessionMoved, func(s *live.Session) (err error) {
		if s.State == live.SessionActive { // by another
			return nil
		}
		s.State, err = s.State.To(live.SessionActive)
		return err
	})
}

// StopSession completes a session and ends its sandbox. One that has ended stays
// as it is.
func (l *Lifecycle) StopSession(ctx context.Context, id string) (live.Session, error) {
	s, err := l.Session(ctx, id)
	if err != nil || s.State.Ended() {
		return s, err
	}
	return l.end(policy.AsOwner(ctx, s.Owner), id, live.SessionCompleted, "")
}

// FailSession ends a session whose work has failed for good.
func (l *Lifecycle) FailSession(ctx context.Context, id, reason string) (live.Session, error) {
	return l.end(ctx, id, live.SessionFailed, reason)
}

// end moves a session to its end, and then ends its sandbox: a session is over
// even if its sandbox cannot be reached, whose own time ends it then.
func (l *Lifecycle) end(ctx context.Context, id string, to live.SessionState, reason string) (live.Session, error) {
	box := ""
	s, err := l.alter(ctx, id, event.SessionMoved, func(s *live.Session) (err error) {
		if s.State.Ended() {
			box = ""
			return nil
		}
		box, s.Sandbox, s.Reason = s.Sandbox, "", reason
		s.State, err = s.State.To(to)
		return err
	})
	if err != nil {
		return s, err
	}
	if box != "" {
		l.endSandbox(ctx, box, "its session is "+string(s.State))
	}
	return s, nil
}

func (l *Lifecycle) endSandbox(ctx context.Context, id, reason string) {
	if _, err := l.Sandboxes.EndSandbox(context.WithoutCancel(ctx), id, reason); err != nil && !fault.Is(err, fault.NotFound) {
		l.Logger.Warn("could not end the sandbox of a session; its time to live will", "sandbox", id, "error", err)
	}
}
