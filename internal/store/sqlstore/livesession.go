package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/store"
)

const (
	sessionColumns = `owner, id, project, state, sandbox_id, created_at, due_at, ended_at, body`
	sessionSelect  = `SELECT ` + sessionColumns + ` FROM session`
	sessionInsert  = `INSERT INTO session (` + sessionColumns + `) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)` + OnConflict
	sessionPut     = `UPDATE session SET state = $3, sandbox_id = $4, due_at = $5, ended_at = $6, body = $7 WHERE owner = $1 AND id = $2`
	sessionDue     = sessionSelect + ` WHERE ended_at = 0 AND due_at > 0 AND due_at <= $1 ORDER BY due_at` + limit2
	// The first AND lets the planner take the partial index.
	sessionForget = `DELETE FROM session WHERE ended_at > 0 AND (owner, id) IN (SELECT owner, id FROM session
		WHERE ended_at > 0 AND ended_at < $1 ORDER BY ended_at` + limit2 + `)`
)

type liveSessions struct{ *Tx }

// sessionBody is what of a session is kept as JSON.
type sessionBody struct {
	Reason   string    `json:"reason,omitempty"`
	Prompt   string    `json:"prompt,omitempty"`
	Job      string    `json:"job,omitempty"`
	Spec     live.Spec `json:"spec"`
	ActiveAt int64     `json:"active_at"`
}

func sessionText(s *live.Session) (string, error) {
	body, err := json.Marshal(sessionBody{Reason: s.Reason, Prompt: s.Prompt, Job: s.Job, Spec: s.Spec, ActiveAt: micros(s.ActiveAt)})
	if err != nil {
		return "", fmt.Errorf("encode session: %w", err)
	}
	return string(body), nil
}

func (t liveSessions) Add(ctx context.Context, s *live.Session) error {
	body, err := sessionText(s)
	if err != nil {
		return err
	}
	n, err := t.q.Exec(ctx, sessionInsert, s.Owner, s.ID, s.Project, string(s.State), s.Sandbox, micros(s.CreatedAt), micros(s.ExpiresAt), micros(s.EndedAt), body)
	if err != nil {
		return fmt.Errorf("add session: %w", err)
	}
	if n == 0 {
		return fault.New(fault.Conflict, "a session with the id %q exists", s.ID).WithCode(store.CodeSessionExists)
	}
	return nil
}

func (t liveSessions) Get(ctx context.Context, owner, id string) (live.Session, error) {
	var c conditions
	c.add("id = ?", id)
	if owner != "" {
		c.add("owner = ?", owner)
	}
	s, ok, err := one(ctx, t.Tx, scanSession, sessionSelect+c.where()+` ORDER BY created_at DESC`, c.args...)
	if err != nil {
		return s, fmt.Errorf("get session: %w", err)
	}
	if !ok {
		return s, fault.New(fault.NotFound, "there is no session %q", id)
	}
	return s, nil
}

func (t liveSessions) Put(ctx context.Context, s *live.Session) error {
	body, err := sessionText(s)
	if err != nil {
		return err
	}
	if err := t.q.Write(ctx, sessionPut, s.Owner, s.ID, string(s.State), s.Sandbox, micros(s.ExpiresAt), micros(s.EndedAt), body); err != nil {
		return fmt.Errorf("put session: %w", err)
	}
	return nil
}

func (t liveSessions) List(ctx context.Context, f store.SessionFilter) ([]live.Session, error) {
	var c conditions
	for _, column := range []struct{ name, value string }{{"id", f.ID}, {"owner", f.Owner}, {"project", f.Project}, {"state", string(f.State)}} {
		if column.value != "" {
			c.add(column.name+" = ?", column.value)
		}
	}
	if f.Open {
		c.terms = append(c.terms, "ended_at = 0")
	}
	if !f.Before.IsZero() {
		c.add("created_at < ?", micros(f.Before))
	}
	limit := f.Limit
	if limit < 1 {
		limit = defaultListLimit
	}
	list, err := all(ctx, t.Tx, scanSession, sessionSelect+c.where()+` ORDER BY created_at DESC, id DESC`+c.limit(limit), c.args...)
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	return list, nil
}

func (t liveSessions) Due(ctx context.Context, now time.Time, limit int) ([]live.Session, error) {
	if limit < 1 {
		return nil, nil
	}
	list, err := all(ctx, t.Tx, scanSession, sessionDue, micros(now), limit)
	if err != nil {
		return nil, fmt.Errorf("list sessions whose time is over: %w", err)
	}
	return list, nil
}

func (t liveSessions) Forget(ctx context.Context, before time.Time, limit int) (int64, error) {
	n, err := t.q.Exec(ctx, sessionForget, micros(before), limit)
	if err != nil {
		return 0, fmt.Errorf("forget sessions: %w", err)
	}
	return n, nil
}

// scanSession scans a row of sessionSelect.
func scanSession(row Row) (s live.Session, err error) {
	var created, due, ended int64
	var text string
	var body sessionBody
	err = row.Scan(&s.Owner, &s.ID, &s.Project, (*string)(&s.State), &s.Sandbox, &created, &due, &ended, &text)
	if err == nil {
		err = json.Unmarshal([]byte(text), &body)
	}
	if err != nil {
		return live.Session{}, fmt.Errorf("scan session: %w", err)
	}
	s.Reason, s.Prompt, s.Job, s.Spec = body.Reason, body.Prompt, body.Job, body.Spec
	s.ActiveAt, s.CreatedAt, s.ExpiresAt, s.EndedAt = timeOf(body.ActiveAt), timeOf(created), timeOf(due), timeOf(ended)
	return s, nil
}
