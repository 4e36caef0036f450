package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/store/sqlstore"
)

// answerWithin bounds how long the database may take to answer, dialWithin to
// be reached; a connection that is silent for longer is given up.
const (
	answerWithin = 30 * time.Second
	dialWithin   = 5 * time.Second
)

// maxPending bounds the statements that wait to be sent.
const maxPending = 512

// statement is one that waits to be sent. scan gets the rows of its answer.
type statement struct {
	query string
	args  []any
	scan  func(pgx.Rows) error
}

// conn is one connection. Statements whose answer nobody waits for go out with
// the next one whose answer somebody does: what counts against a database
// across a network is how often it is asked. It serves one goroutine at a time.
type conn struct {
	cfg     *pgx.ConnConfig
	c       *pgx.Conn // nil while there is none
	pending []statement
	own     int // the pending ones from here on are of the current session
}

// dial connects, unless it is connected.
func (c *conn) dial(ctx context.Context) error {
	if c.c != nil && !c.c.IsClosed() {
		return nil
	}
	c.c = nil
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	opened, err := pgx.ConnectConfig(ctx, c.cfg)
	if err != nil {
		return unreachable(err)
	}
	c.c = opened
	return nil
}

// close ends the connection and forgets what was to be sent.
func (c *conn) close(ctx context.Context) {
	c.pending, c.own = nil, 0
	if c.c != nil {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_ = c.c.Close(ctx) // what it had begun, the database takes back
		c.c = nil
	}
}

func (c *conn) add(s statement) { c.pending = append(c.pending, s) }

// flush sends what is pending, and reads the answers in order.
func (c *conn) flush(ctx context.Context) error {
	pending := c.pending
	c.pending, c.own = nil, 0
	if len(pending) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	batch := &pgx.Batch{}
	for _, s := range pending {
		batch.Queue(s.query, s.args...)
	}
	answers := c.c.SendBatch(ctx, batch)
	for _, s := range pending {
		if err := answer(answers, s.scan); err != nil {
			_ = answers.Close() // it says the same
			return c.labelled(err)
		}
	}
	return c.labelled(answers.Close())
}

func answer(answers pgx.BatchResults, scan func(pgx.Rows) error) error {
	if scan == nil {
		_, err := answers.Exec()
		return err
	}
	rows, err := answers.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	return scan(rows)
}

// labelled tells a connection that broke from a statement that failed.
func (c *conn) labelled(err error) error {
	if err != nil && c.c.IsClosed() {
		return unreachable(err)
	}
	return err
}

func unreachable(err error) error {
	return fault.New(fault.Unavailable, "the database does not answer: %w", err).WithCode("database_unreachable")
}

var errEnded = errors.New("use of a transaction that has ended")

// numbers are those that were given out last.
type numbers struct{ job, event int64 }

// next gives out so many numbers and returns the first.
func (n *numbers) next(table string, rows int) (first int64) {
	last := &n.event
	if table == "job" {
		last = &n.job
	}
	first = *last + 1
	*last += int64(rows)
	return first
}

// session is the Querier of one Update or View. Its first error is its last
// word: the database takes no more statements in a transaction that failed.
type session struct {
	conn    *conn
	ctx     context.Context //nolint:containedctx // statements end by themselves, not with their caller
	alive   func() error    // asked before each statement, if set
	numbers func(context.Context) (*numbers, error)
	wrote   bool // something of it was sent that may have written
	exact   bool // an Add waits for its answer
	err     error
}

var _ sqlstore.Querier = (*session)(nil)

// Exec implements sqlstore.Querier.
func (s *session) Exec(_ context.Context, query string, args ...any) (changed int64, err error) {
	err = s.ask(query, args, true, func(rows pgx.Rows) error {
		rows.Close()
		changed = rows.CommandTag().RowsAffected()
		return rows.Err()
	})
	return changed, err
}

// Write implements sqlstore.Querier.
func (s *session) Write(_ context.Context, query string, args ...any) error {
	if err := s.check(); err != nil {
		return err
	}
	s.conn.add(statement{query: query, args: clean(args)})
	if len(s.conn.pending) < maxPending {
		return nil
	}
	return s.send()
}

// Add implements sqlstore.Querier: nobody waits for an answer that is known. A
// row that exists fails the transaction, unless the Update is alone in it
// because something went wrong before.
func (s *session) Add(ctx context.Context, insert string, args ...any) (bool, error) {
	if !s.exact {
		return true, s.Write(ctx, insert, args...)
	}
	n, err := s.Exec(ctx, insert+sqlstore.OnConflict, args...)
	return n == 1, err
}

// Insert implements sqlstore.Querier. The writer knows which numbers are free.
func (s *session) Insert(ctx context.Context, into sqlstore.Numbered, args []any) (rows, last int64, err error) {
	if err := s.check(); err != nil {
		return 0, 0, err
	}
	s.wrote = s.wrote || len(s.conn.pending) > s.conn.own // it may have to be sent now
	free, err := s.numbers(s.ctx)                         //nolint:contextcheck // statements end by themselves
	if err != nil {
		return 0, 0, s.fail(err)
	}
	n := len(args) / into.Width
	first := free.next(into.Table, n)
	numbered := make([]any, 0, n*(into.Width+1))
	for i := range n {
		numbered = append(append(numbered, first+int64(i)), args[i*into.Width:(i+1)*into.Width]...)
	}
	last = first + int64(n) - 1
	if into.Once == "" || !s.exact {
		into.Once = ""
		return int64(n), last, s.Write(ctx, into.WithSeq(n), numbered...)
	}
	rows, err = s.Exec(ctx, into.WithSeq(n), numbered...)
	return rows, last, err
}

// Query implements sqlstore.Querier.
func (s *session) Query(_ context.Context, scan func(sqlstore.Row) error, query string, args ...any) error {
	return s.ask(query, args, !strings.HasPrefix(query, "SELECT"), func(rows pgx.Rows) error {
		for rows.Next() {
			err := scan(rows)
			if errors.Is(err, sqlstore.ErrEnough) {
				rows.Close()
				return nil
			}
			if err != nil {
				return fmt.Errorf("read the answer: %w", err)
			}
		}
		return rows.Err()
	})
}

// ask sends a statement, with what is pending before it, and reads its answer.
func (s *session) ask(query string, args []any, writes bool, scan func(pgx.Rows) error) error {
	if err := s.check(); err != nil {
		return err
	}
	s.wrote = s.wrote || writes
	s.conn.add(statement{query: query, args: clean(args), scan: scan})
	return s.send()
}

func (s *session) send() error {
	s.wrote = s.wrote || len(s.conn.pending) > s.conn.own+1 || s.conn.pending[len(s.conn.pending)-1].scan == nil
	return s.fail(s.conn.flush(s.ctx))
}

func (s *session) check() error {
	if s.err != nil {
		return s.err
	}
	if s.alive != nil {
		return s.alive()
	}
	return nil
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

// clean replaces what PostgreSQL keeps in no text: bytes that are no UTF-8, and
// the one that is zero. Both come from outside only, inside a message or a
// piece of JSON, which stays one.
func clean(args []any) []any {
	for i, arg := range args {
		text, ok := arg.(string)
		if !ok || utf8.ValidString(text) && strings.IndexByte(text, 0) < 0 {
			continue
		}
		args[i] = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	}
	return args
}

// settle sends what is left, for those to whom its failure matters.
func (s *session) settle() error {
	if s.err == nil && len(s.conn.pending) > s.conn.own {
		return s.send()
	}
	return s.err
}
