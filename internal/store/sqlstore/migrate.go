package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/pressly/goose/v3"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Migrate brings the schema to the newest version that the migrations of an
// adapter know. It only goes forward, each step in a transaction of its own,
// and refuses a schema from the future before it changes anything.
func Migrate(ctx context.Context, db *sql.DB, dialect goose.Dialect, migrations embed.FS, log *slog.Logger) error {
	steps, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return fmt.Errorf("find migrations: %w", err)
	}
	provider, err := goose.NewProvider(dialect, db, steps, goose.WithTableName("schema_version"), goose.WithSlog(log))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	current, newest, err := provider.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("read schema version: %w", err)
	}
	if current > newest {
		return fault.New(fault.Conflict,
			"its schema has version %d, and this program knows versions up to %d: start the newer program that wrote it", current, newest).
			WithCode("schema_too_new")
	}
	done, err := provider.Up(ctx)
	if err != nil {
		return fmt.Errorf("migrate schema: %w", err)
	}
	if len(done) > 0 {
		log.Info("migrated database", "from", current, "to", newest)
	}
	return nil
}
