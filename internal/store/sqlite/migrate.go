package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"log/slog"

	"github.com/pressly/goose/v3"

	"github.com/aurea-dev/aurea/internal/store/sqlstore"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrate brings the schema to the newest version that this program knows.
func migrate(ctx context.Context, db *sql.DB, log *slog.Logger) error {
	return sqlstore.Migrate(ctx, db, goose.DialectSQLite3, migrations, log)
}
