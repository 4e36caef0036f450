// Package postgres keeps the store in a PostgreSQL database, which several
// managers may share. It fulfils the contract of package store with the SQL of
// sqlstore. The app opens it; nobody else imports it.
//
// One manager writes at a time: a transaction holds the row of the numbers from
// its first statement to its commit. So no two interleave, none has to be tried
// again because of another, and event numbers follow the commits. What a
// manager's Updates lose by waiting they win back by sharing: those that wait
// go into one transaction, and statements whose answer nobody waits for go out
// together.
package postgres

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/store/sqlstore"
)

// readers is how many Views of one manager run at once, and spares how many
// blobs and outputs are read and written; more wait.
const (
	readers = 8
	spares  = 4
)

// Store is a database that is reached.
type Store struct {
	log     *slog.Logger
	id      string // of this manager among those that listen
	channel string // on which commits are told

	updates   chan *sqlstore.Call     // handed to the writer when their turn comes
	idle      chan *conn              // readers that no View uses
	spare     chan *conn              // of blobs and outputs
	closing   chan struct{}           // closed when the store takes no more work
	writing   chan struct{}           // closed when the writer has ended
	listening chan struct{}           // closed when the listener has ended
	deafen    context.CancelCauseFunc // ends the listener
	outputs   sqlstore.Watchers       // of live output that others took
	sqlstore.Watchers

	closeOnce sync.Once
}

var _ store.Store = (*Store)(nil)

var errClosed = fault.New(fault.Unavailable, "the database is closed").WithCode("store_closed")

// settings are those of every connection.
func settings() map[string]string {
	return map[string]string{
		"application_name":   "aurea",
		"synchronous_commit": "on", // acknowledged means on disk
		"jit":                "off",
		// Every query that is asked often has an index. A plan that was made
		// while a table was small, and is kept, must not walk it once it is not.
		"enable_seqscan":    "off",
		"statement_timeout": "30s",
		// A manager that stops in the middle of a transaction would stop the
		// others too.
		"idle_in_transaction_session_timeout": "10s",
		"tcp_keepalives_idle":                 "5",
		"tcp_keepalives_interval":             "2",
		"tcp_keepalives_count":                "3",
	}
}

// Open reaches the database at an address (postgres://…) and brings its schema
// to this version. One whose schema is newer than this program is refused and
// left as it is. One that is away for the moment is waited for, with a line in
// the log; what does not pass by itself, as a wrong password, fails at once.
// ctx bounds the opening only.
func Open(ctx context.Context, address string, log *slog.Logger) (*Store, error) {
	cfg, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, fault.New(fault.Invalid, "read the address of the database: %w", err).WithCode("bad_database_url")
	}
	maps.Copy(cfg.RuntimeParams, settings())
	s := &Store{
		log: log, id: rand.Text(),
		updates: make(chan *sqlstore.Call), idle: make(chan *conn, readers),
		spare:   make(chan *conn, spares),
		closing: make(chan struct{}), writing: make(chan struct{}), listening: make(chan struct{}),
	}
	w := &writer{store: s, conn: &conn{cfg: cfg}}
	err = patiently(ctx, log.With("database", cfg.Database, "host", cfg.Host), func() error { return w.reach(ctx) })
	if err != nil {
		return nil, fmt.Errorf("open database %s on %s: %w", cfg.Database, cfg.Host, err)
	}
	reading := cfg.Copy()
	// People list by all sorts of words, rare ones and those of nearly every
	// row: one plan for both would walk the whole history.
	reading.RuntimeParams["plan_cache_mode"] = "force_custom_plan"
	for range readers {
		s.idle <- &conn{cfg: reading} // connected when it is needed
	}
	for range spares {
		s.spare <- &conn{cfg: cfg}
	}
	free := context.WithoutCancel(ctx)
	listens, deafen := context.WithCancelCause(free)
	s.deafen = deafen
	go w.run(free)
	go (&listener{store: s, conn: &conn{cfg: cfg}}).run(listens)
	return s, nil
}

// reach brings the schema to this version and connects. It can be called again
// after it failed.
func (w *writer) reach(ctx context.Context) error {
	if err := migrate(ctx, w.conn.cfg, w.store.log); err != nil {
		return err
	}
	if err := w.conn.dial(ctx); err != nil {
		return err
	}
	if err := w.conn.c.QueryRow(ctx, `SELECT 'aurea ' || current_schema()`).Scan(&w.store.channel); err != nil {
		w.conn.close(ctx)
		return fmt.Errorf("look for the schema: %w", err)
	}
	return nil
}

// Update implements store.Store. An Update whose ctx ends before its turn is
// dropped with ctx's error; one that has begun is not interrupted, and ctx is
// not looked at again by the statements of its Tx. fn runs in the goroutine of
// the caller. An Update inside an Update waits for itself for ever.
//
// When the connection breaks during the commit, Update finds out what became of
// it. Where it cannot, the fault is of kind Unavailable with the code
// outcome_unknown.
func (s *Store) Update(ctx context.Context, fn func(store.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	u := sqlstore.NewCall()
	select {
	case s.updates <- u:
		return u.Wait(ctx, fn)
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closing:
		return errClosed
	}
}

// View implements store.Store. Calls of its Tx fail once ctx has ended.
func (s *Store) View(ctx context.Context, fn func(store.Tx) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	var c *conn
	select {
	case c = <-s.idle:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closing:
		return errClosed
	}
	defer func() { s.idle <- c }()

	// Statements of a View end by themselves, so none is interrupted half-way,
	// which would cost the connection; the session asks ctx before each.
	free := context.WithoutCancel(ctx)
	if err := c.dial(free); err != nil {
		return fmt.Errorf("begin view: %w", err)
	}
	c.add(statement{query: beginView})
	c.own = len(c.pending)
	defer c.endView(free)
	session := &session{conn: c, ctx: free, alive: ctx.Err, numbers: readOnly}
	defer session.end()
	if err := fn(sqlstore.NewView(session)); err != nil {
		return err
	}
	return session.settle()
}

const beginView = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

// endView ends the transaction of a View, unless it never began. The answers
// that it got are good whatever becomes of its end.
func (c *conn) endView(ctx context.Context) {
	begun := len(c.pending) == 0 || c.pending[0].query != beginView
	c.pending = nil
	if !begun || c.c.IsClosed() {
		return
	}
	c.add(statement{query: "ROLLBACK"})
	if err := c.flush(ctx); err != nil {
		c.close(ctx)
	}
}

var errReadOnly = fault.New(fault.Internal, "a view does not write")

func readOnly(context.Context) (*numbers, error) { return nil, errReadOnly }

// Close takes no more work, waits for what runs, and closes the connections.
// Calling it again is harmless.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		close(s.closing)
		<-s.writing
		s.deafen(errClosed)
		<-s.listening
		for range readers {
			(<-s.idle).close(context.Background())
		}
		for range spares {
			(<-s.spare).close(context.Background())
		}
		s.CloseWatchers()
		s.outputs.CloseWatchers()
	})
	return nil
}
