package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/httpapi/problem"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

// Sessions keeps sessions. Each call finds its caller in ctx, as with Manager.
type Sessions interface {
	// StartSession makes a session, or goes on with the open one that has its id.
	StartSession(ctx context.Context, req live.SessionRequest) (s live.Session, made bool, err error)
	Session(ctx context.Context, id string) (live.Session, error)
	Sessions(ctx context.Context, f store.SessionFilter) ([]live.Session, error)
	ContinueSession(ctx context.Context, id, prompt string) (live.Session, error)
	ExecSession(ctx context.Context, id string, c live.Command) (live.Exec, error)
	PauseSession(ctx context.Context, id string) (live.Session, error)
	ResumeSession(ctx context.Context, id string) (live.Session, error)
	StopSession(ctx context.Context, id string) (live.Session, error)
	FailSession(ctx context.Context, id, reason string) (live.Session, error)
}

// SessionPath is the input of an operation on one session.
type SessionPath struct {
	Exchange
	ID string `path:"session" doc:"The id of the session."`
}

// StartSessionBody is what a session is asked to be.
type StartSessionBody struct {
	ID          string        `json:"id,omitempty" maxLength:"100" doc:"Your own id for it. An open session of yours that has it is gone on with, and its live sandbox used."`
	ProjectID   string        `json:"project_id,omitempty" maxLength:"100" doc:"What it belongs to."`
	Prompt      string        `json:"prompt,omitempty" maxLength:"20000" doc:"What is asked first, from 10 to 5000 characters: it becomes a job of the session."`
	Image       string        `json:"image,omitempty" doc:"What its sandbox starts from; the worker's own where it is left out."`
	Driver      string        `json:"driver,omitempty" doc:"What its sandbox is made with; the worker's own where it is left out."`
	Env         TextMap       `json:"env,omitempty" doc:"The environment of every command."`
	CPULimit    *float64      `json:"cpu_limit,omitempty" minimum:"0.001" doc:"Processors, such as 0.5."`
	MemoryLimit Size          `json:"memory_limit,omitempty" doc:"A size such as \"512m\" or \"1g\", or a number of bytes."`
	Limits      RunLimitsBody `json:"limits,omitempty" doc:"Further limits; 0 is the worker's own."`
}

// ContinueBody asks another thing of a session.
type ContinueBody struct {
	Prompt string `json:"prompt" maxLength:"20000" doc:"From 10 to 5000 characters."`
}

// SessionBody is a session.
type SessionBody struct {
	ID           string            `json:"id"`
	State        live.SessionState `json:"state" enum:"pending,active,paused,completed,failed,expired"`
	Reason       *string           `json:"reason" doc:"Why it stands there."`
	ProjectID    *string           `json:"project_id"`
	SandboxID    *string           `json:"sandbox_id" doc:"Its sandbox, while it has one."`
	JobID        *string           `json:"job_id" doc:"The job of the last prompt."`
	Prompt       *string           `json:"prompt" doc:"What was asked last."`
	CreatedAt    time.Time         `json:"created_at"`
	LastActivity time.Time         `json:"last_activity"`
	ExpiresAt    *time.Time        `json:"expires_at" doc:"When its time is over, unless it is used."`
	EndedAt      *time.Time        `json:"ended_at"`
}

func sessionBody(s *live.Session) SessionBody {
	return SessionBody{
		ID: s.ID, State: s.State, Reason: orNull(s.Reason), ProjectID: orNull(s.Project), SandboxID: orNull(s.Sandbox), JobID: orNull(s.Job), Prompt: orNull(s.Prompt),
		CreatedAt: s.CreatedAt, LastActivity: s.ActiveAt, ExpiresAt: timeOrNull(s.ExpiresAt), EndedAt: timeOrNull(s.EndedAt),
	}
}

type sessionOutput struct{ Body SessionBody }

func answerSession(s live.Session, err error) (*sessionOutput, error) {
	if err != nil {
		return nil, ended(err)
	}
	return &sessionOutput{Body: sessionBody(&s)}, nil
}

// ended gives a session that is over its status: 400, as its clients know it.
// One that expired is 410.
func ended(err error) error {
	if fault.CodeOf(err) == "session_ended" {
		return problem.New(http.StatusBadRequest, "session_ended", err.Error())
	}
	return err
}

func (a *API) registerSessions() {
	verb := func(name, id, summary, detail string, action policy.Action, body any) route {
		return route{method: http.MethodPost, path: "/sessions/{session}/" + name, action: action, id: id, tag: "sessions", summary: summary, detail: detail, body: body}
	}
	register(a, route{
		method: http.MethodPost, path: "/sessions", action: policy.Submit, id: "startSession", tag: "sessions", status: http.StatusCreated, summary: "Start a session",
		detail: "Answers when its sandbox runs. With the id of an open session of yours it goes on with that one, with 200; with one that has ended 400, with one that has expired 410.",
		body:   StartSessionBody{}, optional: true, example: map[string]any{"prompt": "Say hello from the sandbox"},
	}, a.startSession)
	register(a, route{
		method: http.MethodGet, path: "/sessions", action: policy.Read, id: "listSessions", tag: "sessions", summary: "List sessions, newest first",
	}, a.listSessions)
	register(a, route{
		method: http.MethodGet, path: "/sessions/{session}", action: policy.Read, id: "getSession", tag: "sessions", summary: "Look at a session",
	}, a.getSession)
	register(a, verb("continue", "continueSession", "Ask another thing of a session", "A paused session goes on. One that has ended is 400, one that has expired 410.", policy.Submit, ContinueBody{}), a.continueSession)
	register(a, verb("exec", "execSession", "Start a command in the sandbox of a session", "As with execs of a sandbox; its output is read there.", policy.Submit, CreateExecBody{}), a.execSession)
	register(a, verb("pause", "pauseSession", "Make a session stand still", "With its sandbox, whose memory goes to disk where the driver can.", policy.Control, nil), a.pauseSession)
	register(a, verb("resume", "resumeSession", "Let a session go on", "", policy.Control, nil), a.resumeSession)
	register(a, verb("stop", "stopSession", "End a session and its sandbox", "One that has ended stays as it is.", policy.Control, nil), a.stopSession)
}

type startSessionInput struct{ Exchange }

type startSessionOutput struct {
	Status   int
	Location string `header:"Location"`
	Body     SessionBody
}

func (a *API) startSession(ctx context.Context, in *startSessionInput) (*startSessionOutput, error) {
	var b StartSessionBody
	if err := in.maybeInto(&b); err != nil {
		return nil, err
	}
	limits, err := limitsOf(b.CPULimit, b.MemoryLimit, b.Limits)
	if err != nil {
		return nil, err
	}
	if err := checkPrintable("project_id", b.ProjectID); err != nil {
		return nil, err
	}
	s, made, err := a.cfg.Sessions.StartSession(ctx, live.SessionRequest{
		ID: b.ID, Project: b.ProjectID, Prompt: b.Prompt, Spec: live.Spec{Image: b.Image, Driver: b.Driver, Env: b.Env, Limits: limits},
	})
	if err != nil {
		if made && b.ID == "" {
			a.failUnknown(ctx, s.ID, err)
		}
		return nil, ended(err)
	}
	out := &startSessionOutput{Status: http.StatusCreated, Location: version + "/sessions/" + s.ID, Body: sessionBody(&s)}
	if !made {
		out.Status = http.StatusOK
	}
	return out, nil
}

// failUnknown ends a session that was made and could not be started, and whose id
// nobody was told: who named it can start it again, and nobody can here.
func (a *API) failUnknown(ctx context.Context, id string, why error) {
	const cleanUp = 10 * time.Second
	after, stop := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanUp, errors.New("the session could not be ended in time"))
	defer stop()
	if _, err := a.cfg.Sessions.FailSession(after, id, "it could not be started: "+why.Error()); err != nil {
		a.cfg.Logger.Error("could not end a session that was not started; its time will", "session", id, "error", err)
	}
}

type listSessionsInput struct {
	Exchange
	State     string    `query:"state" doc:"Only those in this state."`
	ProjectID string    `query:"project_id" maxLength:"100" doc:"Only those of a project."`
	Open      bool      `query:"open" doc:"Only those that have not ended."`
	Before    time.Time `query:"before" doc:"Only those made before, for the next page: the created_at of the last."`
	Limit     int       `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"At most so many."`
}

type listSessionsOutput struct {
	Body []SessionBody `nullable:"false"`
}

func (a *API) listSessions(ctx context.Context, in *listSessionsInput) (*listSessionsOutput, error) {
	f := store.SessionFilter{State: live.SessionState(in.State), Project: in.ProjectID, Open: in.Open, Before: in.Before, Limit: in.Limit}
	if in.State != "" && !f.State.Valid() {
		return nil, fault.Field("query.state", "%q is not a state of a session", clip(in.State, 60)).WithCode("unknown_state")
	}
	list, err := a.cfg.Sessions.Sessions(ctx, f)
	if err != nil {
		return nil, err
	}
	out := &listSessionsOutput{Body: []SessionBody{}}
	for i := range list {
		out.Body = append(out.Body, sessionBody(&list[i]))
	}
	return out, nil
}

func (a *API) getSession(ctx context.Context, in *SessionPath) (*sessionOutput, error) {
	return answerSession(a.cfg.Sessions.Session(ctx, in.ID))
}

func (a *API) continueSession(ctx context.Context, in *SessionPath) (*sessionOutput, error) {
	var b ContinueBody
	if err := in.into(&b); err != nil {
		return nil, err
	}
	return answerSession(a.cfg.Sessions.ContinueSession(ctx, in.ID, b.Prompt))
}

type execSessionInput struct {
	SessionPath
	Wait float64 `query:"wait" minimum:"0" maximum:"3600" doc:"Seconds to wait for the end."`
}

type execSessionOutput struct {
	Location string `header:"Location"`
	Body     ExecBody
}

func (a *API) execSession(ctx context.Context, in *execSessionInput) (*execSessionOutput, error) {
	if err := checkNumber("query.wait", in.Wait); err != nil {
		return nil, err
	}
	var b CreateExecBody
	if err := in.into(&b); err != nil {
		return nil, err
	}
	c, err := b.command("")
	if err != nil {
		return nil, err
	}
	e, err := a.cfg.Sessions.ExecSession(ctx, in.ID, c)
	if err != nil {
		return nil, ended(err)
	}
	out := &execSessionOutput{Location: version + "/sandboxes/" + e.Sandbox + "/execs/" + e.ID}
	out.Body, err = a.execAnswer(ctx, e, in.Wait)
	return out, err
}

func (a *API) pauseSession(ctx context.Context, in *SessionPath) (*sessionOutput, error) {
	return answerSession(a.cfg.Sessions.PauseSession(ctx, in.ID))
}

func (a *API) resumeSession(ctx context.Context, in *SessionPath) (*sessionOutput, error) {
	return answerSession(a.cfg.Sessions.ResumeSession(ctx, in.ID))
}

func (a *API) stopSession(ctx context.Context, in *SessionPath) (*sessionOutput, error) {
	return answerSession(a.cfg.Sessions.StopSession(ctx, in.ID))
}
