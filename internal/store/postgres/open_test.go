package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/store/postgres"
	"github.com/aurea-dev/aurea/internal/store/postgres/pgtest"
)

// opening is a log that tells a test when an opening begins to wait.
type opening struct {
	waits func() // called once, before the first pause

	mu    sync.Mutex
	lines []string
}

func (o *opening) Write(line []byte) (int, error) {
	if !bytes.Contains(line, []byte("waiting for it")) {
		return len(line), nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lines = append(o.lines, string(line)); len(o.lines) == 1 && o.waits != nil {
		o.waits()
	}
	return len(line), nil
}

func (o *opening) log() *slog.Logger { return slog.New(slog.NewTextHandler(o, nil)) }

// waited are the lines that say so.
func (o *opening) waited() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lines
}

// opensAfter opens a database that cannot be opened until lift is called, and
// uses it.
func opensAfter(t *testing.T, address string, lift func()) {
	t.Helper()
	o := &opening{waits: lift}
	s, err := postgres.Open(t.Context(), address, o.log())
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = s.Close() }()
	if lines := o.waited(); len(lines) != 1 {
		t.Errorf("got %d lines that say what it waits for, want one: %q", len(lines), lines)
	}
	if err := appendEvent(t.Context(), s, "first"); err != nil {
		t.Error(err)
	}
}

// opensBeside does so beside the test, which does not end before it.
func opensBeside(t *testing.T, address string, lift func()) (opened <-chan struct{}) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		opensAfter(t, address, lift)
	}()
	t.Cleanup(func() { <-done }) // also when the test fails: its context has ended by then
	return done
}

func TestOpenWaitsForAServerThatCutsConnections(t *testing.T) {
	t.Parallel()
	proxy, through, _ := behind(t)
	proxy.Refuse(3)
	opensAfter(t, through, nil)
}

// The question is the first of "read schema version", and reaches the server
// or does not.
func TestOpenWaitsAfterACutQuestion(t *testing.T) {
	t.Parallel()
	for name, arrives := range map[string]bool{"after it arrived": true, "before it arrived": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, through, _ := behind(t)
			proxy.CutAfter(func(sent []byte) bool { return bytes.Contains(sent, []byte("schema_version")) }, arrives)
			opensAfter(t, through, func() { proxy.Refuse(1) })
		})
	}
}

// Wherever an opening is cut off, between two steps of a migration or within
// one, it is completed.
func TestOpenIsCompletedWhereverItIsCut(t *testing.T) {
	t.Parallel()
	for _, pieces := range []int{1, 2, 3, 5, 8, 13, 21, 34, 55, 89} {
		for name, arrives := range map[string]bool{"arrives": true, "does not arrive": false} {
			t.Run(fmt.Sprintf("piece %d %s", pieces, name), func(t *testing.T) {
				t.Parallel()
				proxy, through, _ := behind(t)
				left := pieces
				proxy.CutAfter(func([]byte) bool { left--; return left == 0 }, arrives)
				opensAfter(t, through, nil)
			})
		}
	}
}

// A server that is stopped has no socket; one that was killed leaves its own
// behind, and nobody listens there.
func TestOpenWaitsForASocket(t *testing.T) {
	t.Parallel()
	for name, killed := range map[string]bool{"stopped": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp("/tmp", "aurea-pg-") // short: the path of a socket is bounded
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			socket := filepath.Join(dir, filepath.Base(server.Socket()))
			if killed {
				leaveBehind(t, socket)
			}
			opensAfter(t, with(t, fresh(t), "host", dir), func() {
				_ = os.Remove(socket)
				if err := os.Symlink(server.Socket(), socket); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// leaveBehind makes a socket on which nobody listens.
func leaveBehind(t *testing.T, path string) {
	t.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
}

// with returns an address with one setting changed.
func with(t *testing.T, address, key, value string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set(key, value)
	u.RawQuery = q.Encode()
	return u.String()
}

// execute runs statements of the test's own.
func execute(t *testing.T, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := conn.Exec(t.Context(), s); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
}

func TestOpenWaitsForWhatTheServerRefuses(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ refuse, admit, setting, value string }{
		"crowded": {refuse: "CONNECTION LIMIT 0", admit: "CONNECTION LIMIT -1", setting: "sslmode", value: "disable"},
		"standby": {refuse: "SET default_transaction_read_only = on", admit: "RESET ALL", setting: "target_session_attrs", value: "read-write"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := fresh(t)
			conn := ask(t, address)
			var schema string
			if err := conn.QueryRow(t.Context(), `SELECT current_schema()`).Scan(&schema); err != nil {
				t.Fatal(err)
			}
			role := name + "_" + schema // roles are the whole server's
			execute(t, conn, "CREATE ROLE "+role+" LOGIN", "GRANT ALL ON SCHEMA "+schema+" TO "+role, "ALTER ROLE "+role+" "+row.refuse)
			opensAfter(t, with(t, with(t, address, "user", role), row.setting, row.value), func() {
				execute(t, conn, "ALTER ROLE "+role+" "+row.admit)
			})
		})
	}
}

// A step of a migration is held up, and its manager cut off. The server goes on
// with it, so the next try waits for the lock, and does not begin beside it.
func TestAMigrationThatIsCutOffKeepsItsTurn(t *testing.T) {
	t.Parallel()
	proxy, through, direct := behind(t)
	holds, looks := ask(t, direct), ask(t, direct)
	execute(t, holds, "BEGIN", "CREATE TABLE last_number (x INTEGER)") // the first that a migration makes
	opened := opensBeside(t, through, nil)
	until(t, looks, opened, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $1::int = ANY (pg_blocking_pids(pid)))`, holds.PgConn().PID())
	proxy.CutAfter(isCancel, false) // what is cut off loses also the request by which pgx would end the step
	proxy.Cut()
	until(t, looks, opened, `SELECT EXISTS (SELECT FROM pg_locks AS wants JOIN pg_locks AS has USING (locktype, classid, objid, objsubid)
		WHERE locktype = 'advisory' AND has.granted AND NOT wants.granted AND $1::int = ANY (pg_blocking_pids(has.pid)))`, holds.PgConn().PID())
	execute(t, holds, "ROLLBACK")
	<-opened
}

// isCancel recognises the whole message that asks a server to end a statement:
// its length, and the number that stands in the place of a version.
func isCancel(sent []byte) bool {
	return bytes.HasPrefix(sent, []byte{0, 0, 0, 16, 0x04, 0xd2, 0x16, 0x2e})
}

// An administrator ends the connection, as a server that stops does.
func TestOpenWaitsAfterItsConnectionWasEnded(t *testing.T) {
	t.Parallel()
	address := fresh(t)
	holds, looks := ask(t, address), ask(t, address)
	execute(t, holds, "BEGIN", "CREATE TABLE last_number (x INTEGER)")
	opened := opensBeside(t, address, func() { execute(t, holds, "ROLLBACK") })
	until(t, looks, opened, `SELECT COALESCE(bool_or(pg_terminate_backend(pid)), FALSE) FROM pg_stat_activity WHERE $1::int = ANY (pg_blocking_pids(pid))`, holds.PgConn().PID())
	<-opened
}

// until asks until the answer is true, or the opening is over, in which case it
// was never held up.
func until(t *testing.T, conn *pgx.Conn, opened <-chan struct{}, question string, args ...any) {
	t.Helper()
	for yes := false; !yes; {
		if err := conn.QueryRow(t.Context(), question, args...).Scan(&yes); err != nil {
			t.Fatal(err)
		}
		select {
		case <-opened:
			t.Fatal("the opening was over before it was held up")
		default:
		}
	}
}

func TestOpenEndsWithItsContext(t *testing.T) {
	t.Parallel()
	enough := errors.New("enough")
	ctx, end := context.WithCancelCause(t.Context())
	o := &opening{waits: func() { end(enough) }}
	s, err := postgres.Open(ctx, "postgres://aurea:secretword@127.0.0.1:1/none", o.log())
	if err == nil {
		_ = s.Close()
	}
	if !errors.Is(err, enough) || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got error %v, want the cause and what was waited for", err)
	}
	if said := fmt.Sprint(err, o.waited()); strings.Contains(said, "secretword") {
		t.Errorf("%q tells the password", said)
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	address := fresh(t)
	if err := openAt(t, address).Close(); err != nil {
		t.Fatal(err)
	}
	execute(t, ask(t, address), `INSERT INTO schema_version (version_id, is_applied) VALUES (999, true)`)
	err := refused(t, address)
	if !fault.Is(err, fault.Conflict) || fault.CodeOf(err) != "schema_too_new" || !strings.Contains(err.Error(), "999") {
		t.Errorf("got error %v, want one that names the version", err)
	}
}

// refused returns the error of an opening that fails without waiting.
func refused(t *testing.T, address string) error {
	t.Helper()
	o := &opening{}
	s, err := postgres.Open(t.Context(), address, o.log())
	if err == nil {
		_ = s.Close()
		t.Fatalf("%s was opened", address)
	}
	if lines := o.waited(); len(lines) > 0 {
		t.Errorf("it waited: %q", lines)
	}
	return err
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"postgres://aurea:secretword@127.0.0.1:99999/none", "secretword://x"} {
		err := refused(t, address)
		if fault.CodeOf(err) != "bad_database_url" {
			t.Errorf("got error %v, want one about the address", err)
		}
		if strings.Contains(err.Error(), "secretword@") || strings.Contains(err.Error(), ":secretword") {
			t.Errorf("the error %q tells the password", err)
		}
	}
}

func TestOpenRefusesWhatTheServerDoesNotKnow(t *testing.T) {
	t.Parallel()
	address := fresh(t)
	execute(t, ask(t, address), "DROP ROLE IF EXISTS "+pgtest.Guarded, "CREATE ROLE "+pgtest.Guarded+" LOGIN PASSWORD 'secretword'")
	guarded := with(t, address, "user", pgtest.Guarded)
	for name, row := range map[string]struct{ address, state string }{
		"password": {with(t, guarded, "password", "anotherword"), "28P01"},
		"role":     {with(t, address, "user", "nobody"), "28000"},
		"database": {with(t, address, "dbname", "missing"), "3D000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := refused(t, row.address)
			var said *pgconn.PgError
			if !errors.As(err, &said) || said.Code != row.state {
				t.Errorf("got error %v, want SQLSTATE %s", err, row.state)
			}
			if strings.Contains(err.Error(), "anotherword") {
				t.Errorf("the error %q tells the password", err)
			}
		})
	}
}
