package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"log/slog"

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

// migrate brings the schema to the newest version that this program knows, one
// manager after the other.
func migrate(ctx context.Context, cfg *pgx.ConnConfig, log *slog.Logger) (err error) {
	waits := cfg.Copy()
	waits.RuntimeParams["statement_timeout"] = "0"
	db := stdlib.OpenDB(*waits)
	defer func() { err = errors.Join(err, db.Close()) }()
	lock, err := db.Conn(ctx)
	if err != nil {
		return unreachable(err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }() // it ends with the connections
	if err := fit(ctx, lock); err != nil {
		return err
	}
	if _, err := lock.ExecContext(ctx, oneAtATime); err != nil {
		return fmt.Errorf("wait for other managers to migrate: %w", err)
	}
	return sqlstore.Migrate(ctx, db, goose.DialectPostgres, migrations, log)
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
