// Package sqlstore is the SQL of the store contract, written once for the
// adapters: the subset that SQLite and PostgreSQL both speak ($1 parameters,
// RETURNING, ON CONFLICT), over a small Querier. It opens no database, begins
// no transaction and knows no dialect; schema, commits and wake-ups are the
// adapters'.
//
// No statement here fails because of a row that exists or is missing: such
// things are asked for with ON CONFLICT DO NOTHING and counted, or left to the
// adapter by Add. So an adapter may take every error of its Querier as the end
// of the transaction.
package sqlstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/store"
)

// Querier runs statements inside one transaction. It may keep what it prepared
// by text: all values travel as arguments, so texts repeat.
type Querier interface {
	// Exec runs a statement and returns how many rows it changed.
	Exec(ctx context.Context, query string, args ...any) (int64, error)
	// Write is Exec for a statement of which nobody asks what it changed: it
	// runs before the next Exec or Query, or with the commit, and so does its
	// error.
	Write(ctx context.Context, query string, args ...any) error
	// Add runs an INSERT of one row that nobody expects to exist; added is false
	// where it does, and nothing is changed. It may say true before it knows:
	// where that turns out wrong the transaction fails and its function runs
	// again, with a Querier that knows.
	Add(ctx context.Context, insert string, args ...any) (added bool, err error)
	// Insert adds rows to a table that numbers them, args holding one row after
	// the other. It returns how many it added and the number of the last: they
	// are numbered one after the other, in the order in which they are given.
	// Rows that exist show as in Add.
	Insert(ctx context.Context, into Numbered, args []any) (rows, last int64, err error)
	// Query runs a statement and hands each row of its answer to scan, which
	// must not call the Querier. An error of scan ends it; ErrEnough ends it as
	// if there were no more rows.
	Query(ctx context.Context, scan func(Row) error, query string, args ...any) error
}

// Row is one row of an answer.
type Row interface {
	Scan(dest ...any) error
}

// Numbered is a table whose rows have a seq.
type Numbered struct {
	Table   string
	Columns string // but for seq
	Width   int    // how many they are
	Once    string // the column in which a row that exists is left as it is; "" for none
}

func (n Numbered) insert(columns string, width, rows int) string {
	query := `INSERT INTO ` + n.Table + ` (` + columns + `) ` + values(rows, width)
	if n.Once != "" {
		query += ` ON CONFLICT (` + n.Once + `) DO NOTHING`
	}
	return query
}

// OnConflict is what keeps an INSERT from failing over a row that exists.
const OnConflict = ` ON CONFLICT DO NOTHING`

// SQL returns an INSERT of so many rows that the database numbers.
func (n Numbered) SQL(rows int) string { return n.insert(n.Columns, n.Width, rows) }

// WithSeq returns an INSERT of so many rows that bring their number, in front.
func (n Numbered) WithSeq(rows int) string { return n.insert("seq, "+n.Columns, n.Width+1, rows) }

// Tx is a store.Tx over a Querier. It serves one goroutine and one
// transaction.
type Tx struct {
	q        Querier
	appended int
	read     map[string]job.Job // as they are stored; nil where nothing is written
}

var _ store.Tx = (*Tx)(nil)

// New returns a Tx that runs on q.
func New(q Querier) *Tx { return &Tx{q: q, read: map[string]job.Job{}} }

// NewView returns a Tx that runs on q and is not written through.
func NewView(q Querier) *Tx { return &Tx{q: q} }

// Appended returns how many events were appended so far: the adapter wakes
// the watchers after the commit when it is not 0.
func (t *Tx) Appended() int { return t.appended }

// Jobs implements store.Tx.
func (t *Tx) Jobs() store.Jobs { return jobs{t} }

// Events implements store.Tx.
func (t *Tx) Events() store.Events { return events{t} }

// Workers implements store.Tx.
func (t *Tx) Workers() store.Workers { return workers{t} }

// Records implements store.Tx.
func (t *Tx) Records() store.Records { return records{t} }

// Keys implements store.Tx.
func (t *Tx) Keys() store.Keys { return keys{t} }

// Leaders implements store.Tx.
func (t *Tx) Leaders() store.Leaders { return leaders{t} }

// Replies implements store.Tx.
func (t *Tx) Replies() store.Replies { return replies{t} }

// Runs implements store.Tx.
func (t *Tx) Runs() store.Runs { return runs{t} }

// Hooks implements store.Tx.
func (t *Tx) Hooks() store.Hooks { return hooks{t} }

// Sandboxes implements store.Tx.
func (t *Tx) Sandboxes() store.Sandboxes { return sandboxes{t} }

// Execs implements store.Tx.
func (t *Tx) Execs() store.Execs { return execs{t} }

// Machines implements store.Tx.
func (t *Tx) Machines() store.Machines { return machines{t} }

// Sessions implements store.Tx.
func (t *Tx) Sessions() store.Sessions { return liveSessions{t} }

// Switches implements store.Tx.
func (t *Tx) Switches() store.Switches { return switches{t} }

// History implements store.Tx.
func (t *Tx) History() store.History { return history{t} }

// all runs a query and scans each row.
func all[T any](ctx context.Context, t *Tx, scan func(Row) (T, error), query string, args ...any) (list []T, err error) {
	err = t.q.Query(ctx, func(row Row) error {
		item, err := scan(row)
		list = append(list, item)
		return err
	}, query, args...)
	if err != nil {
		return nil, err
	}
	return list, nil
}

// ErrEnough is what a scan returns to end its query early and well.
var ErrEnough = errors.New("enough rows")

// page is all, but ends early when it has come to store.PageBytes.
func page[T any](ctx context.Context, t *Tx, size func(*T) int, scan func(Row) (T, error), query string, args ...any) (list []T, err error) {
	sum := 0
	err = t.q.Query(ctx, func(row Row) error {
		item, err := scan(row)
		if err != nil {
			return err
		}
		list = append(list, item)
		if sum += size(&item); sum >= store.PageBytes {
			return ErrEnough
		}
		return nil
	}, query, args...)
	if err != nil {
		return nil, err
	}
	return list, nil
}

// one runs a query that returns at most one row; ok says whether there was one.
func one[T any](ctx context.Context, t *Tx, scan func(Row) (T, error), query string, args ...any) (item T, ok bool, err error) {
	list, err := all(ctx, t, scan, query, args...)
	if err != nil || len(list) == 0 {
		return item, false, err
	}
	return list[0], true, nil
}

// maxRows bounds the rows of one INSERT, so that the texts are few.
const maxRows = 16

// values returns "VALUES (...), ..." with placeholders for so many rows. A
// statement of many rows costs far less than many of one.
func values(rows, columns int) string {
	b := make([]byte, 0, len("VALUES ")+rows*columns*len("$123, "))
	b = append(b, "VALUES "...)
	for n := range rows * columns {
		switch {
		case n == 0:
			b = append(b, '(')
		case n%columns == 0:
			b = append(b, "), ("...)
		default:
			b = append(b, ", "...)
		}
		b = strconv.AppendInt(append(b, '$'), int64(n+1), 10)
	}
	return string(append(b, ')'))
}

// maxAsked bounds the values of one IN.
const maxAsked = 64

// among returns "IN (...)" over values, of which there is at least one. A value
// is said again to fill it up, so that the texts are few.
func among[T any](values []T) (in string, args []any) {
	width := 1
	for width < len(values) {
		width *= 2
	}
	b := []byte("IN (")
	for i := range width {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = strconv.AppendInt(append(b, '$'), int64(i+1), 10)
		args = append(args, values[min(i, len(values)-1)])
	}
	return string(append(b, ')')), args
}

// scanInt scans a row of one number.
func scanInt(row Row) (n int64, err error) {
	err = row.Scan(&n)
	return n, err
}

// conditions builds the WHERE of a list query. A condition that is not asked
// for is left out, since ($1 IS NULL OR ...) would keep indexes from use.
type conditions struct {
	terms []string
	args  []any
}

// add adds a term in which each ? stands for the next value.
func (c *conditions) add(term string, values ...any) {
	for _, v := range values {
		term = strings.Replace(term, "?", c.arg(v), 1)
	}
	c.terms = append(c.terms, term)
}

// arg adds a value and returns its placeholder.
func (c *conditions) arg(value any) string {
	c.args = append(c.args, value)
	return "$" + strconv.Itoa(len(c.args))
}

// limit adds a bound and returns " LIMIT ...". The sum hides the value from
// SQLite's planner, which would otherwise plan the statement anew each time.
func (c *conditions) limit(n int) string { return " LIMIT " + c.arg(n) + " + 0" }

// where returns " WHERE ..." or nothing.
func (c *conditions) where() string {
	if len(c.terms) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(c.terms, " AND ")
}

// addIn adds that the column is one of the values; no values ask for nothing.
func addIn[T ~string](c *conditions, column string, values []T) {
	switch len(values) {
	case 0:
	case 1:
		c.add(column+" = ?", string(values[0]))
	default:
		marks := make([]string, len(values))
		for i, v := range values {
			marks[i] = c.arg(string(v))
		}
		c.terms = append(c.terms, column+" IN ("+strings.Join(marks, ", ")+")")
	}
}

// micros is how a time is kept: 0 for the zero time.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// timeOf is the inverse of micros, in UTC.
func timeOf(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}

// number is how a bool is kept.
func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// rawJSON is the inverse of string(raw): nothing stays nothing.
func rawJSON(s string) json.RawMessage {
	if s == "" {
		return nil
	}
	return json.RawMessage(s)
}

// asJSON is how a list is kept: ” for nil.
func asJSON[T any](list []T) (string, error) {
	if list == nil {
		return "", nil
	}
	b, err := json.Marshal(list)
	if err != nil {
		return "", fmt.Errorf("encode list: %w", err)
	}
	return string(b), nil
}

// ofJSON is the inverse of asJSON.
func ofJSON[T any](s string) (list []T, err error) {
	if s == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(s), &list); err != nil {
		return nil, fmt.Errorf("decode list: %w", err)
	}
	return list, nil
}
