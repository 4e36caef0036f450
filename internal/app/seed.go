package app

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/store/postgres/pgtest"
)

// The stores that can be measured.
const (
	sqliteStore   = "sqlite"
	postgresStore = "postgres"
)

// seeds makes the databases that are measured.
type seeds struct {
	address string         // of a server that somebody named
	server  *pgtest.Server // of our own, where nobody did
}

func (s *seeds) close() {
	if s.server != nil {
		_ = s.server.Stop()
	}
}

// fill fills a new database with the history of jobs that have ended, five
// events each, as real ones leave.
func (s *seeds) fill(ctx context.Context, kind, data string, n int) (env []string, err error) {
	cfg := config.Config{Data: data}
	if kind == postgresStore {
		address, err := s.fresh(ctx)
		if err != nil {
			return nil, err
		}
		cfg.DatabaseURL = config.Secret(address)
		env = []string{"DATABASE_URL=" + address}
	} else if kind != sqliteStore {
		return nil, fault.Field("--store", "%q is not one of sqlite, postgres", kind)
	}
	if err := makeManagerDirs(&cfg); err != nil {
		return nil, err
	}
	kept, err := openKept(ctx, &cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	defer func() { _ = kept.Close() }()
	const batch = 5000
	for done := 0; done < n; done += batch {
		if err := kept.store.Update(ctx, func(tx store.Tx) error { return seedBatch(ctx, tx, min(batch, n-done)) }); err != nil {
			return nil, err
		}
	}
	return env, nil
}

// fresh makes an empty schema.
func (s *seeds) fresh(ctx context.Context) (string, error) {
	if s.address != "" {
		return pgtest.Schema(ctx, s.address)
	}
	if s.server == nil {
		if reason := pgtest.Missing(); reason != "" {
			return "", fault.New(fault.Unavailable, "%s; or name a server with --database-url", reason)
		}
		server, err := pgtest.StartDurable(ctx)
		if err != nil {
			return "", fmt.Errorf("start a database server: %w", err)
		}
		s.server = server
	}
	return s.server.Fresh(ctx)
}
