package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/store/sqlstore"
)

// maxGroup is how many Updates share one transaction at most, so that neither
// the first of a group nor the other managers wait for ever.
const maxGroup = 128

// takeNumbers begins to write: it waits until no other manager does.
const takeNumbers = `SELECT job, event, CAST(pg_current_xact_id() AS TEXT) FROM last_number FOR UPDATE`

// writer owns the connection that writes. Only its goroutine, and the caller
// whose turn it is, touch it.
type writer struct {
	store *Store
	conn  *conn

	down   time.Time // until when nobody tries to reach the database again
	reason error     // why

	// Of the open transaction.
	xid   string  // "" until the numbers are taken
	took  numbers // as they were taken
	given numbers // as they are now
}

// run takes Updates until the store closes. No caller's end may end ctx.
func (w *writer) run(ctx context.Context) {
	defer close(w.store.writing)
	defer w.conn.close(ctx)
	for {
		select {
		case u := <-w.store.updates:
			w.group(ctx, u)
		case <-w.store.closing:
			return
		}
	}
}

// group runs first and whoever waits behind it in one transaction, commits
// once and answers all. An Update that fails, and of which nothing was sent
// yet, is taken out; otherwise the others run again, each by itself.
func (w *writer) group(ctx context.Context, first *sqlstore.Call) {
	if err := w.begin(ctx); err != nil {
		first.Answer(err)
		return
	}
	var members []*sqlstore.Call
	appended := 0
	for u := first; u != nil; u = w.next(len(members)) {
		e, broken := w.member(ctx, u)
		if !e.Gone {
			members = append(members, u)
		}
		if broken {
			w.rollback(ctx)
			w.redo(ctx, members)
			return
		}
		appended += e.Appended
	}
	done, err := w.commit(ctx, appended)
	if err != nil && !done {
		w.redo(ctx, members)
		return
	}
	for _, u := range members {
		u.Answer(err)
	}
}

// next returns the next waiting Update, or nil when nobody waits or the group
// is full.
func (w *writer) next(members int) *sqlstore.Call {
	if members >= maxGroup {
		return nil
	}
	select {
	case u := <-w.store.updates:
		return u
	default:
		return nil
	}
}

// redo runs each Update of a broken group again, in a transaction of its own,
// so that the failure of one never touches the others.
func (w *writer) redo(ctx context.Context, members []*sqlstore.Call) {
	for _, u := range members {
		if gone, err := w.alone(ctx, u); !gone {
			u.Answer(err)
		}
	}
}

func (w *writer) alone(ctx context.Context, u *sqlstore.Call) (gone bool, err error) {
	if err := w.begin(ctx); err != nil {
		return false, err
	}
	s := w.session(ctx)
	s.exact = true
	e := u.Run(s)
	failed := s.err
	s.end()
	if e.Err != nil || e.Gone || failed != nil {
		w.rollback(ctx)
		if e.Err != nil {
			failed = nil // the caller has it in its own error
		}
		return e.Gone, failed
	}
	_, err = w.commit(ctx, e.Appended)
	return false, err
}

// member lets u run within the transaction, and takes it out if it failed.
// broken says that the transaction is lost with it.
func (w *writer) member(ctx context.Context, u *sqlstore.Call) (e sqlstore.Ended, broken bool) {
	s := w.session(ctx)
	before := w.given
	known := w.xid != ""
	e = u.Run(s)
	failed := s.err
	s.end()
	if failed != nil {
		return e, true
	}
	if e.Err == nil && !e.Gone {
		return e, false
	}
	e.Appended = 0
	if s.wrote {
		return e, true
	}
	w.conn.pending = w.conn.pending[:w.conn.own]
	if known {
		w.given = before
	} else {
		w.given = w.took
	}
	return e, false
}

func (w *writer) session(ctx context.Context) *session {
	w.conn.own = len(w.conn.pending)
	return &session{conn: w.conn, ctx: ctx, numbers: w.numbers}
}

// begin opens a transaction. It goes out with the first question of it.
func (w *writer) begin(ctx context.Context) error {
	if time.Now().Before(w.down) {
		return w.reason
	}
	if err := w.conn.dial(ctx); err != nil {
		// Those who wait learn it now, and not each after a wait of its own.
		w.down, w.reason = time.Now().Add(retryAfter), fmt.Errorf("begin update: %w", err)
		return w.reason
	}
	// Those of the transaction before are others' by now: who writes without
	// taking a number must not write them back.
	w.xid, w.took, w.given = "", numbers{}, numbers{}
	w.conn.add(statement{query: "BEGIN"})
	w.conn.add(statement{query: takeNumbers, scan: func(rows pgx.Rows) error {
		for rows.Next() {
			if err := rows.Scan(&w.took.job, &w.took.event, &w.xid); err != nil {
				return fmt.Errorf("read the answer: %w", err)
			}
		}
		w.given = w.took
		return rows.Err()
	}})
	return nil
}

// numbers returns those of the transaction.
func (w *writer) numbers(ctx context.Context) (*numbers, error) {
	if w.xid == "" {
		if err := w.conn.flush(ctx); err != nil {
			return nil, err
		}
	}
	return &w.given, nil
}

// rollback ends the transaction. One of which nothing was sent is forgotten.
func (w *writer) rollback(ctx context.Context) {
	unsent := w.xid == "" && len(w.conn.pending) > 0 && w.conn.pending[0].query == "BEGIN"
	w.conn.pending, w.conn.own = nil, 0
	if unsent || w.conn.c == nil || w.conn.c.IsClosed() {
		return
	}
	w.conn.add(statement{query: "ROLLBACK"})
	if err := w.conn.flush(ctx); err != nil {
		w.store.log.Debug("roll back", "error", err)
		w.conn.close(ctx)
	}
}

// commit ends the transaction and wakes the watchers, here and at the other
// managers. done says that the Updates must not run again: either all of it
// is on disk, or nobody can tell.
func (w *writer) commit(ctx context.Context, appended int) (done bool, err error) {
	if w.xid == "" && len(w.conn.pending) == 2 { // nobody asked or wrote anything
		w.rollback(ctx)
		return true, nil
	}
	if w.given != w.took {
		w.conn.add(statement{query: `UPDATE last_number SET job = $1, event = $2`, args: []any{w.given.job, w.given.event}})
	}
	if appended > 0 {
		w.conn.add(statement{query: `SELECT pg_notify($1, $2)`, args: []any{w.store.channel, w.store.id}})
	}
	w.conn.add(statement{query: "COMMIT"})
	xid := w.xid
	if err := w.conn.flush(ctx); err != nil {
		if done, err = w.judge(ctx, xid, err); err != nil {
			return done, fmt.Errorf("commit: %w", err)
		}
	}
	if appended > 0 {
		w.store.Wake()
	}
	return true, nil
}

// judge finds out what became of a transaction whose commit was not answered.
func (w *writer) judge(ctx context.Context, xid string, failure error) (done bool, err error) {
	if !w.conn.c.IsClosed() {
		w.rollback(ctx)
		return false, failure // the database refused it
	}
	if xid == "" {
		w.conn.close(ctx)
		return false, failure // it never began
	}
	deadline := time.Now().Add(answerWithin)
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		w.conn.close(ctx)
		status, err := w.status(ctx, xid)
		switch {
		case err == nil && status == "committed":
			return true, nil
		case err == nil && status == "aborted":
			return false, failure
		case err == nil && status != "in progress", time.Now().After(deadline):
			return true, fault.New(fault.Unavailable, "the database went away during a commit, and nobody can tell whether it was made: %w", failure).
				WithCode("outcome_unknown")
		}
		select {
		case <-time.After(pause):
		case <-w.store.closing:
			deadline = time.Time{}
		}
	}
}

// status asks what became of a transaction; "" is that it is not known.
func (w *writer) status(ctx context.Context, xid string) (status string, err error) {
	if err := w.conn.dial(ctx); err != nil {
		return "", err
	}
	w.conn.add(statement{query: `SELECT COALESCE(pg_xact_status(CAST($1 AS xid8)), '')`, args: []any{xid}, scan: func(rows pgx.Rows) error {
		for rows.Next() {
			if err := rows.Scan(&status); err != nil {
				return fmt.Errorf("read the answer: %w", err)
			}
		}
		return rows.Err()
	}})
	return status, w.conn.flush(ctx)
}
