package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/aurea-dev/aurea/internal/fault"
)

// The rhythm in which a database that is away is asked again.
const (
	retryAfter  = 100 * time.Millisecond
	retryAtMost = 2 * time.Second
)

// patience is how long an opening waits for a database that is away: longer
// than a restart or a failover takes, and short enough to be told of a wrong
// address.
const patience = 30 * time.Second

// patiently tries until it works, fails in a way that does not pass by itself,
// patience is over, or ctx ends. A try that failed must leave nothing behind
// that is in the way of the next.
func patiently(ctx context.Context, log *slog.Logger, try func() error) error {
	var giveUp time.Time
	for pause := retryAfter; ; pause = min(2*pause, retryAtMost) {
		err := try()
		if ctx.Err() != nil || !transient(err) {
			return err
		}
		switch now := time.Now(); {
		case giveUp.IsZero():
			// From here, since a migration before it may have taken long.
			giveUp = now.Add(patience)
			log.Warn("the database is away; waiting for it", "at_most", patience, "error", err)
		case now.After(giveUp):
			return fmt.Errorf("gave up after %s: %w", patience, away(err))
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("wait for the database: %w, last: %w", context.Cause(ctx), err)
		}
	}
}

// away labels a transient failure, unless it is labelled.
func away(err error) error {
	if fault.Is(err, fault.Unavailable) {
		return err
	}
	return unreachable(err)
}

// transient says of a failure to open that it may pass by itself. pgx tells
// only what is safe to send again because nothing was sent; an opening may be
// begun again wherever it broke off.
func transient(err error) bool {
	var said *pgconn.PgError
	if errors.As(err, &said) { // the server's own word counts before how the connection ended
		return strings.HasPrefix(said.Code, "08") || slices.Contains(passingStates(), said.Code)
	}
	return pgconn.Timeout(err) || slices.ContainsFunc(passingErrors(), func(passing error) bool { return errors.Is(err, passing) })
}

// passingStates are the SQLSTATEs, beside class 08, of a server that stops,
// starts or is full.
func passingStates() []string {
	return []string{
		"53300", // too_many_connections
		"57P01", // admin_shutdown
		"57P02", // crash_shutdown
		"57P03", // cannot_connect_now
	}
}

// passingErrors are how a connection fails to a server that says nothing.
func passingErrors() []error {
	return []error{
		syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE, syscall.EHOSTUNREACH, syscall.ENETUNREACH,
		syscall.ENOENT, // a server that is stopped takes its Unix socket away
		io.EOF, io.ErrUnexpectedEOF,
		driver.ErrBadConn, pgconn.ErrConnClosed, // of a connection that was found broken before
		// The address asks for a server that writes, and none is promoted yet.
		pgconn.ErrReadOnlyConnection, pgconn.ErrStandbyConnection,
	}
}
