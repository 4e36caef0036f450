// Package sqlite keeps the store in one SQLite file. It fulfils the contract
// of package store with the SQL of sqlstore: one connection writes, under one
// goroutine that lets waiting Updates share a commit, and a few connections
// read. The app opens it; nobody else imports it.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"

	driver "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/store/sqlstore"
)

// readers is how many Views run at once; more wait. Reading is bound by the
// processor, so a few are enough.
const readers = 4

// Store is an open database file.
type Store struct {
	log     *slog.Logger
	writeDB *sql.DB
	readDB  *sql.DB

	updates chan *sqlstore.Call // handed to the writer when their turn comes
	idle    chan *conn          // readers that no View uses
	closing chan struct{}       // closed when the store takes no more work
	writing chan struct{}       // closed when the writer has ended
	sqlstore.Watchers

	closeOnce sync.Once
	closeErr  error
}

var _ store.Store = (*Store)(nil)

var errClosed = fault.New(fault.Unavailable, "the database is closed").WithCode("store_closed")

// Open opens the database at path, makes it if there is none, and brings its
// schema to this version. The folder must exist. A file whose schema is newer
// than this program is refused and left as it is. ctx bounds the opening only.
//
// One process at a time should have the file open: commits of another process
// wake no watcher here.
func Open(ctx context.Context, path string, log *slog.Logger) (*Store, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("find database: %w", err)
	}
	if err := makePrivate(path); err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	s := newStore(log)
	w, err := s.connect(ctx, path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open database %s: %w", path, err), s.closeDBs())
	}
	go w.run(context.WithoutCancel(ctx))
	return s, nil
}

func newStore(log *slog.Logger) *Store {
	return &Store{
		log:     log,
		updates: make(chan *sqlstore.Call),
		idle:    make(chan *conn, readers),
		closing: make(chan struct{}),
		writing: make(chan struct{}),
	}
}

// makePrivate makes sure that only the owner reads the file. SQLite gives the
// mode of the file to those that it lays beside it; files of a run that was
// killed are there already.
func makePrivate(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		if err := os.Chmod(name, 0o600); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// connect opens the connections and migrates.
func (s *Store) connect(ctx context.Context, path string) (*writer, error) {
	var err error
	s.writeDB, err = sql.Open("sqlite", dsn(path, true))
	if err != nil {
		return nil, err
	}
	s.writeDB.SetMaxOpenConns(1)
	if err := migrate(ctx, s.writeDB, s.log); err != nil {
		return nil, err
	}
	wc, err := newConn(ctx, s.writeDB)
	if err != nil {
		return nil, err
	}
	s.readDB, err = sql.Open("sqlite", dsn(path, false))
	if err != nil {
		return nil, err
	}
	for range readers {
		c, err := newConn(ctx, s.readDB)
		if err != nil {
			return nil, err
		}
		s.idle <- c
	}
	return &writer{store: s, conn: wc}, nil
}

// dsn names the file to the driver, with the settings of a connection.
func dsn(path string, write bool) string {
	q := url.Values{"_pragma": {"busy_timeout(10000)"}}
	if write {
		q["_txlock"] = []string{"immediate"}
		// Acknowledged means on disk, hence FULL. A page that changes with each
		// job is moved from the log into the file only every 16 MiB of log. The
		// size limit gives the space of a log that once grew under a long read
		// back to the disk. The cache is small: what changes is at the ends of
		// the tables, and a commit that has split a page looks through all of
		// the cache, which a large history would fill.
		q["_pragma"] = append(q["_pragma"], "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)",
			"temp_store(MEMORY)", "cache_size(-4000)", "wal_autocheckpoint(4096)", "journal_size_limit(67108864)")
	} else {
		q["_pragma"] = append(q["_pragma"], "query_only(1)", "temp_store(MEMORY)", "cache_size(-8000)")
	}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String()
}

// Update implements store.Store. An Update whose ctx ends before its turn is
// dropped with ctx's error; one that has begun is not interrupted, and ctx is
// not looked at again by the statements of its Tx. fn runs in the goroutine of
// the caller. An Update inside an Update waits for itself for ever.
//
// fn's error is given back only after the commit of those that fn may have
// seen; when that commit fails, its error is returned instead.
func (s *Store) Update(ctx context.Context, fn func(store.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	u := sqlstore.NewCall()
	select {
	case s.updates <- u:
		return explain(u.Wait(ctx, fn))
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closing:
		return errClosed
	}
}

// explain tells a full disk from a mistake of ours: it passes, and somebody has
// to do something about it.
func explain(err error) error {
	var failed *driver.Error
	if !errors.As(err, &failed) || failed.Code()&primary != sqlite3.SQLITE_FULL {
		return err
	}
	return fault.New(fault.Unavailable, "the disk of the manager's data folder is full; nothing of this was stored: make room and try again: %w", err).
		WithCode("disk_full")
}

// primary masks what SQLite adds to the code of an error.
const primary = 0xff

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

	// Statements of a View end by themselves, so none is interrupted half-way;
	// the session asks ctx before each.
	free := context.WithoutCancel(ctx)
	if err := c.do(free, "BEGIN"); err != nil {
		return fmt.Errorf("begin view: %w", err)
	}
	defer func() {
		if endErr := c.do(free, "ROLLBACK"); err == nil && endErr != nil {
			err = fmt.Errorf("end view: %w", endErr)
		}
	}()
	session := &session{conn: c, alive: ctx.Err}
	defer session.end()
	if err := fn(sqlstore.NewView(session)); err != nil {
		return err
	}
	return session.err
}

// Close takes no more work, waits for what runs, and closes the file. Calling
// it again returns the same.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		close(s.closing)
		<-s.writing
		for range readers {
			c := <-s.idle
			s.closeErr = errors.Join(s.closeErr, c.close())
		}
		s.CloseWatchers()
		s.closeErr = errors.Join(s.closeErr, s.closeDBs())
	})
	return s.closeErr
}

// closeDBs closes the writer last: it moves the log into the file.
func (s *Store) closeDBs() (err error) {
	for _, db := range []*sql.DB{s.readDB, s.writeDB} {
		if db != nil {
			err = errors.Join(err, db.Close())
		}
	}
	if err != nil {
		return fmt.Errorf("close database: %w", err)
	}
	return nil
}
