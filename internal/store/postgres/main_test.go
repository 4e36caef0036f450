package postgres_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/store/postgres"
	"github.com/aurea-dev/aurea/internal/store/postgres/pgtest"
	"github.com/aurea-dev/aurea/internal/store/storetest"
)

// server is the one of this package's tests.
var server *pgtest.Server

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if reason := pgtest.Missing(); reason != "" {
		fmt.Fprintln(os.Stderr, "left out:", reason)
		if os.Getenv("CI") == "true" {
			return 1
		}
		return 0
	}
	// A database takes longer to make than to test. -rapid.checks still
	// overrides this.
	checks := "10"
	if underRace {
		checks = "3" // what a property draws cannot race
	}
	if err := flag.Set("rapid.checks", checks); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	flag.Parse()
	var err error
	if server, err = pgtest.Start(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// fresh makes an empty database.
func fresh(t testing.TB) (address string) {
	t.Helper()
	address, err := server.Fresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func openAt(t testing.TB, address string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), address, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// open opens a database until the end of the test.
func open(t testing.TB, address string) *postgres.Store {
	t.Helper()
	s := openAt(t, address)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Database {
		address := fresh(t)
		return func() store.Store { return openAt(t, address) }
	})
}

func TestSharedStore(t *testing.T) {
	t.Parallel()
	storetest.RunShared(t, func(t *testing.T) storetest.Shared {
		address := fresh(t)
		conn := ask(t, address)
		return storetest.Shared{
			Database: func() store.Store { return openAt(t, address) },
			Waits: func() (waits bool) {
				err := conn.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks AS wants
					JOIN pg_locks AS has ON has.pid = ANY (pg_blocking_pids(wants.pid)) AND has.granted
					JOIN pg_class ON pg_class.oid = has.relation AND relname = 'last_number' AND relnamespace = current_schema()::regnamespace
					WHERE NOT wants.granted)`).Scan(&waits)
				if err != nil {
					t.Fatal(err)
				}
				return waits
			},
		}
	})
}

// ask opens a connection of the test's own.
func ask(t testing.TB, address string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}
