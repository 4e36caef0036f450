package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/store/sqlstore"
)

// Dump hands over every row of the database at path, as it stands at one
// moment. A manager may go on writing meanwhile.
func Dump(ctx context.Context, path string, put func(sqlstore.Line) error) (err error) {
	db, err := sql.Open("sqlite", dsn(path, false))
	if err != nil {
		return fmt.Errorf("read database: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("read database: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // it wrote nothing
	tables, err := tableNames(ctx, tx)
	if err != nil {
		return err
	}
	for _, table := range tables {
		if err := dumpTable(ctx, tx, table, put); err != nil {
			return fmt.Errorf("read table %s: %w", table, err)
		}
	}
	return nil
}

// tableNames lists the tables, but for those that are the adapter's own.
func tableNames(ctx context.Context, tx *sql.Tx) (names []string, err error) {
	rows, err := tx.QueryContext(ctx, `SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name <> 'schema_version' ORDER BY name`)
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, fmt.Errorf("list tables: %w", err)
		}
		names = append(names, name)
	}
	return names, rows.Err()
}

func dumpTable(ctx context.Context, tx *sql.Tx, table string, put func(sqlstore.Line) error) error {
	rows, err := tx.QueryContext(ctx, `SELECT * FROM `+table) //nolint:gosec // the name is that of a table
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	for rows.Next() {
		values, to := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			to[i] = &values[i]
		}
		if err := rows.Scan(to...); err != nil {
			return err
		}
		if err := put(sqlstore.Line{Table: table, Columns: columns, Values: values}); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Load makes a database at path of the lines that next returns until io.EOF:
// all of them, or none. There must be nothing in it yet.
func Load(ctx context.Context, path string, log *slog.Logger, next func() (sqlstore.Line, error)) (err error) {
	if err := makePrivate(path); err != nil {
		return fmt.Errorf("make database: %w", err)
	}
	db, err := sql.Open("sqlite", dsn(path, true))
	if err != nil {
		return fmt.Errorf("make database: %w", err)
	}
	db.SetMaxOpenConns(1)
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := migrate(ctx, db, log); err != nil {
		return fmt.Errorf("make database %s: %w", path, err)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("make database: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // once it is committed that does nothing
	var used bool
	if err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM event) OR EXISTS (SELECT 1 FROM job)`).Scan(&used); err != nil {
		return fmt.Errorf("make database: %w", err)
	}
	if used {
		return fault.New(fault.Conflict, "there is something in the database %s; choose an empty one", path).WithCode("not_empty")
	}
	for {
		l, err := next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		marks := strings.TrimSuffix(strings.Repeat("?, ", len(l.Values)), ", ")
		query := `INSERT INTO ` + l.Table + ` (` + strings.Join(l.Columns, ", ") + `) VALUES (` + marks + `)` //nolint:gosec // names are checked when a line is read
		if _, err := tx.ExecContext(ctx, query, l.Values...); err != nil {
			return fmt.Errorf("write table %s: %w", l.Table, err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("make database: %w", err)
	}
	return nil
}
