package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/aurea-dev/aurea/internal/store/sqlstore"
)

// maxGroup is how many Updates share one commit at most, so that under load
// the first of a group does not wait for ever.
const maxGroup = 128

// writer owns the connection that writes. Only its goroutine, and the caller
// whose turn it is, touch it.
type writer struct {
	store *Store
	conn  *conn
	begun bool // a transaction is open
}

// run takes Updates until the store closes. No caller's end may end ctx.
func (w *writer) run(ctx context.Context) {
	defer close(w.store.writing)
	defer func() {
		if err := w.conn.close(); err != nil {
			w.store.log.Error("close writing connection", "error", err)
		}
	}()
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
// once and answers all.
//
// Savepoints make every write dearer, and nearly every Update succeeds, so they
// are set only after one has failed that others share the transaction with:
// then those before it run again, each within a savepoint of its own.
func (w *writer) group(ctx context.Context, first *sqlstore.Call) {
	var members, again []*sqlstore.Call
	appended, careful := 0, false
	for u := first; u != nil; {
		r := w.member(ctx, u, careful)
		switch {
		case r.spoiled:
			again, members, appended, careful = members, nil, 0, true
			if !r.gone {
				again = append(again, u)
			}
		case r.gone:
		case r.err != nil:
			u.Answer(r.err)
		default:
			members = append(members, u)
		}
		if r.broken {
			w.redo(ctx, append(members, again...))
			return
		}
		appended += r.appended
		if len(again) > 0 {
			u, again = again[0], again[1:]
		} else {
			u = w.next(len(members))
		}
	}
	err := w.commit(ctx, appended)
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
		r := w.member(ctx, u, false)
		if r.err == nil {
			r.err = w.commit(ctx, r.appended)
		}
		if !r.gone {
			u.Answer(r.err)
		}
	}
}

// result is what became of one Update within a transaction.
type result struct {
	appended int   // events that remain of it
	gone     bool  // nobody waits for its answer
	err      error // its answer already now; what fn itself returned is not here
	spoiled  bool  // it failed, and what the others wrote had to go with it
	broken   bool  // the whole transaction is lost, not only this Update
}

// member lets u run within the transaction, and takes back what it wrote if it
// failed. The first of a transaction needs no savepoint for that: there is
// nothing else to keep.
func (w *writer) member(ctx context.Context, u *sqlstore.Call, careful bool) result {
	first := !w.begun
	guarded := careful && !first
	if err := w.enter(ctx, first, guarded); err != nil {
		return result{err: err, broken: !first}
	}
	s := &session{conn: w.conn}
	e := u.Run(s)
	failed := s.err
	s.end()
	r := result{gone: e.Gone}
	done := e.Err == nil && failed == nil && !e.Gone
	var err error
	switch {
	case done || failed == nil && !s.wrote:
		if done {
			r.appended = e.Appended
		}
		if guarded {
			err = w.conn.do(ctx, "RELEASE one")
		}
	case first:
		w.rollback(ctx)
	case guarded:
		// It fails when SQLite gave up the transaction by itself: a full disk,
		// no memory.
		if err = w.conn.do(ctx, "ROLLBACK TO one"); err == nil {
			err = w.conn.do(ctx, "RELEASE one")
		}
	case failed == nil:
		w.rollback(ctx)
		return result{gone: e.Gone, spoiled: true}
	default:
		w.rollback(ctx)
		return result{gone: e.Gone, err: failed, broken: true}
	}
	if err != nil {
		w.rollback(ctx)
		return result{gone: e.Gone, err: errors.Join(failed, err), broken: true}
	}
	if e.Err == nil {
		r.err = failed // fn took a failed statement for none
	}
	return r
}

// enter begins a transaction, or if it is guarded a savepoint in the open one.
func (w *writer) enter(ctx context.Context, first, guarded bool) error {
	if guarded {
		if err := w.conn.do(ctx, "SAVEPOINT one"); err != nil {
			w.rollback(ctx)
			return fmt.Errorf("set savepoint: %w", err)
		}
		return nil
	}
	if !first {
		return nil
	}
	if err := w.conn.do(ctx, "BEGIN IMMEDIATE"); err != nil {
		return fmt.Errorf("begin update: %w", err)
	}
	w.begun = true
	return nil
}

// rollback ends the transaction. That none is open any more is no error.
func (w *writer) rollback(ctx context.Context) {
	w.begun = false
	if err := w.conn.do(ctx, "ROLLBACK"); err != nil {
		w.store.log.Debug("roll back", "error", err)
	}
}

// commit ends the transaction, if one is open, and wakes the watchers.
func (w *writer) commit(ctx context.Context, appended int) error {
	if !w.begun {
		return nil
	}
	if err := w.conn.do(ctx, "COMMIT"); err != nil {
		w.rollback(ctx)
		return fmt.Errorf("commit: %w", err)
	}
	w.begun = false
	if appended > 0 {
		w.store.Wake()
	}
	return nil
}
