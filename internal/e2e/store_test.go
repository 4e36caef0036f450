package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aurea-dev/aurea/internal/store/postgres/pgtest"
)

// databases are those of the tests. With TEST_STORE=postgres every
// installation keeps what it keeps in a PostgreSQL database of its own, else in
// SQLite, unless a test says where.
type databases struct {
	server *pgtest.Server // nil where there is none

	mu       sync.Mutex
	byFolder map[string]string
}

var bases = &databases{byFolder: map[string]string{}}

// start starts the server where there can be one.
func (d *databases) start() (err error) {
	if reason := pgtest.Missing(); reason != "" {
		if inCI() || onPostgres() {
			return fmt.Errorf("PostgreSQL: %s", reason)
		}
		return nil
	}
	d.server, err = pgtest.Start(context.Background())
	return err
}

func (d *databases) stop() error {
	if d.server == nil {
		return nil
	}
	return d.server.Stop()
}

func onPostgres() bool { return os.Getenv("TEST_STORE") == "postgres" }

// needPostgres leaves a test out where there is no server.
func needPostgres(t testing.TB) {
	t.Helper()
	if bases.server == nil {
		t.Skip("left out: " + pgtest.Missing())
	}
}

// env adds the database of an installation to the variables of its manager.
func (d *databases) env(env, args []string) ([]string, error) {
	if !onPostgres() || args[0] != "up" && args[0] != "manager" || slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "DATABASE_URL=") }) {
		return env, nil
	}
	folder := ""
	for _, v := range env {
		if value, ok := strings.CutPrefix(v, "AUREA_DATA="); ok {
			folder = value
		}
	}
	if i := slices.Index(args, "--data"); i >= 0 {
		folder = args[i+1]
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.byFolder[folder] == "" {
		address, err := d.server.Fresh(context.Background())
		if err != nil {
			return nil, err
		}
		d.byFolder[folder] = address
	}
	return append(slices.Clone(env), "DATABASE_URL="+d.byFolder[folder]), nil
}
