package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/store/sqlstore"
)

//go:embed migrations/*.sql
var migrations embed.FS

// oneAtATime keeps managers that start together from migrating together. The
// lock is the schema's, so that several installations can share a database.
const oneAtATime = `SELECT pg_advisory_lock(hashtextextended('aurea migrates ' || current_schema(), 0))`

// errTurnLost is also what database/sql says of a connection that is gone.
var errTurnLost = fmt.Errorf("the connection that held the lock of migrations is gone: %w", driver.ErrBadConn)

// migrate brings the schema to the newest version that this program knows, one
// manager after the other. It can be called again after it failed: each step is
// a transaction, and the lock is on the one connection that makes them. So
// while the server is still busy with a step whose manager was cut off, nobody
// else begins, and afterwards the step is seen as made or as not made.
func migrate(ctx context.Context, cfg *pgx.ConnConfig, log *slog.Logger) (err error) {
	db := openOnce(cfg)
	defer func() { err = errors.Join(err, db.Close()) }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return unreachable(err)
	}
	err = takeTurn(ctx, conn)
	_ = conn.Close() // it goes back to db, with the lock; if it is broken, its next use says so
	if err != nil {
		return err
	}
	return sqlstore.Migrate(ctx, db, goose.DialectPostgres, migrations, log)
}

// openOnce opens a pool of one connection, and of no other after it: that would
// be one without the lock.
func openOnce(cfg *pgx.ConnConfig) *sql.DB {
	waits := cfg.Copy()
	waits.RuntimeParams["statement_timeout"] = "0"
	if asked := waits.ConnectTimeout; asked == 0 || asked > dialWithin {
		waits.ConnectTimeout = dialWithin
	}
	var connected atomic.Bool
	db := stdlib.OpenDB(*waits, stdlib.OptionBeforeConnect(func(context.Context, *pgx.ConnConfig) error {
		if connected.Swap(true) {
			return errTurnLost
		}
		return nil
	}))
	db.SetMaxOpenConns(1)
	return db
}

// takeTurn waits until no other manager migrates.
func takeTurn(ctx context.Context, conn *sql.Conn) error {
	if err := fit(ctx, conn); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, oneAtATime); err != nil {
		return fmt.Errorf("wait for other managers to migrate: %w", err)
	}
	return nil
}

// oldest is the first release that has all that is used here.
const oldest = 13

// fit refuses a server that is too old, and a database that cannot hold every
// text.
func fit(ctx context.Context, conn *sql.Conn) error {
	var version int
	var encoding string
	var schema sql.NullString
	err := conn.QueryRowContext(ctx, `SELECT CAST(current_setting('server_version_num') AS INTEGER), current_setting('server_encoding'), current_schema()`).
		Scan(&version, &encoding, &schema)
	switch {
	case err != nil:
		return fmt.Errorf("look at the server: %w", err)
	case version < oldest*10000:
		return fault.New(fault.Conflict, "the server is PostgreSQL %d, and %d is the oldest that will do", version/10000, oldest).WithCode("server_too_old")
	case encoding != "UTF8":
		return fault.New(fault.Conflict, "the database is encoded in %s; make one with ENCODING 'UTF8'", encoding).WithCode("bad_encoding")
	case !schema.Valid:
		return fault.New(fault.Conflict, "the search_path names no schema that exists; make it first").WithCode("no_schema")
	}
	return nil
}
