package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/aurea-dev/aurea/internal/store/sqlstore"
)

// maxPrepared bounds the statements that a connection keeps. The texts are
// few; only lists with many names in a filter add to them.
const maxPrepared = 256

// conn is one connection with the statements that were prepared on it. It
// serves one goroutine at a time.
type conn struct {
	c        *sql.Conn
	prepared map[string]*sql.Stmt
}

func newConn(ctx context.Context, db *sql.DB) (*conn, error) {
	c, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{c: c, prepared: map[string]*sql.Stmt{}}, nil
}

// prepare returns the prepared statement of a text.
//
// Preconditions: no rows are open, since it may close other statements.
func (c *conn) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	if stmt, ok := c.prepared[query]; ok {
		return stmt, nil
	}
	if len(c.prepared) >= maxPrepared {
		if err := c.forget(); err != nil {
			return nil, err
		}
	}
	stmt, err := c.c.PrepareContext(ctx, unnamed(query))
	if err != nil {
		return nil, err
	}
	c.prepared[query] = stmt
	return stmt, nil
}

// unnamed writes the placeholders $1, $2, ... as ? where each comes once and in
// order. To SQLite the first are names, and the driver looks up each name of a
// statement before each run, in a time that grows with their square.
func unnamed(query string) string {
	var b strings.Builder
	rest := query
	for n := 1; ; n++ {
		at := strings.IndexByte(rest, '$')
		if at < 0 {
			b.WriteString(rest)
			return b.String()
		}
		b.WriteString(rest[:at])
		b.WriteByte('?')
		mark := "$" + strconv.Itoa(n)
		if !strings.HasPrefix(rest[at:], mark) {
			return query
		}
		rest = rest[at+len(mark):]
		if rest != "" && rest[0] >= '0' && rest[0] <= '9' {
			return query
		}
	}
}

// do runs a statement without arguments or answer.
func (c *conn) do(ctx context.Context, query string) error {
	stmt, err := c.prepare(ctx, query) //nolint:sqlclosecheck // kept for the next call
	if err != nil {
		return err
	}
	_, err = stmt.ExecContext(ctx)
	return err
}

// forget closes all prepared statements.
func (c *conn) forget() (err error) {
	for _, stmt := range c.prepared {
		err = errors.Join(err, stmt.Close())
	}
	clear(c.prepared)
	return err
}

func (c *conn) close() error { return errors.Join(c.forget(), c.c.Close()) }

var errEnded = errors.New("use of a transaction that has ended")

// session is the Querier of one transaction. Its first error is its last
// word: SQLite may have rolled back already, and a further statement would
// then stand outside of any transaction.
type session struct {
	conn  *conn
	alive func() error // asked before each statement, if set
	wrote bool         // a statement ran that may have written
	err   error
}

var _ sqlstore.Querier = (*session)(nil)

// Exec implements sqlstore.Querier.
func (s *session) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	stmt, ctx, err := s.prepare(ctx, query) //nolint:sqlclosecheck // kept for the next call
	if err != nil {
		return 0, err
	}
	res, err := stmt.ExecContext(ctx, args...)
	if err != nil {
		return 0, s.fail(err)
	}
	n, err := res.RowsAffected()
	return n, s.fail(err)
}

// Write implements sqlstore.Querier.
func (s *session) Write(ctx context.Context, query string, args ...any) error {
	_, err := s.Exec(ctx, query, args...)
	return err
}

// Add implements sqlstore.Querier: here the answer costs nothing.
func (s *session) Add(ctx context.Context, insert string, args ...any) (bool, error) {
	n, err := s.Exec(ctx, insert+sqlstore.OnConflict, args...)
	return n == 1, err
}

// Insert implements sqlstore.Querier. SQLite numbers the rows of a table with
// AUTOINCREMENT one after the other, and only one connection writes.
func (s *session) Insert(ctx context.Context, into sqlstore.Numbered, args []any) (rows, last int64, err error) {
	stmt, ctx, err := s.prepare(ctx, into.SQL(len(args)/into.Width)) //nolint:sqlclosecheck // kept for the next call
	if err != nil {
		return 0, 0, err
	}
	res, err := stmt.ExecContext(ctx, args...)
	if err != nil {
		return 0, 0, s.fail(err)
	}
	if rows, err = res.RowsAffected(); err == nil {
		last, err = res.LastInsertId()
	}
	return rows, last, s.fail(err)
}

// Query implements sqlstore.Querier.
func (s *session) Query(ctx context.Context, scan func(sqlstore.Row) error, query string, args ...any) error {
	stmt, ctx, err := s.prepare(ctx, query) //nolint:sqlclosecheck // kept for the next call
	if err != nil {
		return err
	}
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return s.fail(err)
	}
	for rows.Next() {
		err := scan(rows)
		if errors.Is(err, sqlstore.ErrEnough) {
			break
		}
		if err != nil {
			return s.fail(errors.Join(err, rows.Close())) //nolint:sqlclosecheck // its error counts
		}
	}
	return s.fail(errors.Join(rows.Err(), rows.Close()))
}

// prepare also returns the context to run under: without its end, for which
// the driver would start a goroutine per statement.
func (s *session) prepare(ctx context.Context, query string) (*sql.Stmt, context.Context, error) {
	if s.err != nil {
		return nil, nil, s.err
	}
	if s.alive != nil {
		if err := s.alive(); err != nil {
			return nil, nil, err
		}
	}
	ctx = context.WithoutCancel(ctx)
	stmt, err := s.conn.prepare(ctx, query)
	if err != nil {
		return nil, nil, s.fail(fmt.Errorf("prepare statement: %w", err))
	}
	s.wrote = s.wrote || !strings.HasPrefix(query, "SELECT")
	return stmt, ctx, nil
}

func (s *session) fail(err error) error {
	if err != nil && s.err == nil {
		s.err = err
	}
	return err
}

// end makes later calls fail.
func (s *session) end() {
	if s.err == nil {
		s.err = errEnded
	}
}
