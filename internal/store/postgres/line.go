package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/store/sqlstore"
)

// connectAlone opens one connection for something long.
func connectAlone(ctx context.Context, address string) (*pgx.ConnConfig, *pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, nil, fault.New(fault.Invalid, "read the address of the database: %w", err).WithCode("bad_database_url")
	}
	maps.Copy(cfg.RuntimeParams, settings())
	long := cfg.Copy()
	long.RuntimeParams["statement_timeout"] = "0"
	long.RuntimeParams["idle_in_transaction_session_timeout"] = "0"
	conn, err := pgx.ConnectConfig(ctx, long)
	if err != nil {
		return nil, nil, unreachable(err)
	}
	return cfg, conn, nil
}

// Dump hands over every row of the database at an address, as it stands at one
// moment. Managers may go on writing meanwhile. Blobs are not rows here.
func Dump(ctx context.Context, address string, put func(sqlstore.Line) error) error {
	_, conn, err := connectAlone(ctx, address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return fmt.Errorf("read database: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // it wrote nothing
	rows, err := tx.Query(ctx, `SELECT CAST(table_name AS TEXT) FROM information_schema.tables WHERE table_schema = current_schema()
		AND table_name NOT IN ('schema_version', 'last_number', 'blob', 'blob_part', 'output') ORDER BY table_name`)
	if err != nil {
		return fmt.Errorf("list tables: %w", err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("list tables: %w", err)
	}
	for _, table := range tables {
		if err := dumpTable(ctx, tx, table, put); err != nil {
			return fmt.Errorf("read table %s: %w", table, err)
		}
	}
	return nil
}

func dumpTable(ctx context.Context, tx pgx.Tx, table string, put func(sqlstore.Line) error) error {
	rows, err := tx.Query(ctx, `SELECT * FROM `+pgx.Identifier{table}.Sanitize())
	if err != nil {
		return err
	}
	defer rows.Close()
	var columns []string
	for _, f := range rows.FieldDescriptions() {
		columns = append(columns, f.Name)
	}
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			return err
		}
		if err := put(sqlstore.Line{Table: table, Columns: columns, Values: values}); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Load fills the database at an address with the lines that next returns until
// io.EOF: all of them, or none. There must be nothing in it yet.
func Load(ctx context.Context, address string, log *slog.Logger, next func() (sqlstore.Line, error)) error {
	cfg, conn, err := connectAlone(ctx, address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := migrate(ctx, cfg, log); err != nil {
		return err
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		return fmt.Errorf("fill database: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // once it is committed that does nothing
	var used bool
	err = tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM event) OR EXISTS (SELECT FROM job) FROM last_number FOR UPDATE`).Scan(&used)
	if err != nil {
		return fmt.Errorf("fill database: %w", err)
	}
	if used {
		return fault.New(fault.Conflict, "there is something in the database %s; choose an empty one, or another search_path", cfg.Database).WithCode("not_empty")
	}
	lines := &copier{next: next}
	for lines.more() {
		l := lines.line
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{l.Table}, l.Columns, lines.table()); err != nil {
			return fmt.Errorf("write table %s: %w", l.Table, errors.Join(err, lines.err))
		}
	}
	if lines.err != nil {
		return lines.err
	}
	if _, err := tx.Exec(ctx, `UPDATE last_number SET job = (SELECT COALESCE(MAX(seq), 0) FROM job), event = (SELECT COALESCE(MAX(seq), 0) FROM event)`); err != nil {
		return fmt.Errorf("fill database: %w", err)
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("fill database: %w", err)
	}
	return nil
}

// copier hands lines to the database, one table's at a time.
type copier struct {
	next func() (sqlstore.Line, error)
	line sqlstore.Line
	have bool // line is yet to be handed over
	over bool // there are no more
	err  error
}

// more reports whether there is another line.
func (c *copier) more() bool {
	if c.have || c.over || c.err != nil {
		return c.have
	}
	l, err := c.next()
	if errors.Is(err, io.EOF) {
		c.over = true
		return false
	}
	c.line, c.have, c.err = l, err == nil, err
	return c.have
}

// table is those lines that go where the current one goes.
func (c *copier) table() pgx.CopyFromSource {
	table, columns := c.line.Table, c.line.Columns
	return pgx.CopyFromFunc(func() ([]any, error) {
		if !c.more() || c.line.Table != table || !slices.Equal(c.line.Columns, columns) {
			return nil, c.err
		}
		c.have = false
		return clean(c.line.Values), nil
	})
}
