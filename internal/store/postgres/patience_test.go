package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/aurea-dev/aurea/internal/fault"
)

func TestPatienceEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var tries []time.Time
		begun := time.Now()
		err := patiently(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), func() error {
			tries = append(tries, time.Now())
			return fmt.Errorf("read schema version: %w", io.ErrUnexpectedEOF)
		})
		if fault.CodeOf(err) != "database_unreachable" || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("got error %v, want the last one, as of a database that is away", err)
		}
		if took := time.Since(begun); took < patience || took > patience+retryAtMost {
			t.Errorf("gave up after %s", took)
		}
		if lines := strings.Count(log.String(), "\n"); lines != 1 {
			t.Errorf("got %d lines, want one:\n%s", lines, &log)
		}
		for i := 2; i < len(tries); i++ {
			before, pause := tries[i-1].Sub(tries[i-2]), tries[i].Sub(tries[i-1])
			if pause != min(2*before, retryAtMost) {
				t.Errorf("a pause of %s comes after one of %s", pause, before)
			}
		}
	})
}

// A migration may take longer than patience lasts, and be cut off then.
func TestPatienceBeginsWithTheFirstFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		err := patiently(t.Context(), slog.New(slog.DiscardHandler), func() error {
			if tries++; tries == 1 {
				time.Sleep(2 * patience) // of virtual time
				return syscall.ECONNRESET
			}
			return nil
		})
		if err != nil || tries != 2 {
			t.Errorf("got error %v after %d tries", err, tries)
		}
	})
}

func TestPatienceEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		enough := errors.New("enough")
		ctx, end := context.WithCancelCause(t.Context())
		begun, tries := time.Now(), 0
		err := patiently(ctx, slog.New(slog.DiscardHandler), func() error {
			if tries++; tries == 3 {
				time.AfterFunc(time.Millisecond, func() { end(enough) }) // within the pause
			}
			return syscall.ECONNREFUSED
		})
		if !errors.Is(err, enough) || !errors.Is(err, syscall.ECONNREFUSED) || tries != 3 {
			t.Errorf("got error %v after %d tries, want the cause and the last failure", err, tries)
		}
		if took := time.Since(begun); took != 3*retryAfter+time.Millisecond {
			t.Errorf("ended after %s", took)
		}
	})
}

// What the server says decides, also where the connection broke afterwards.
func TestWhichStatesPass(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]bool{
		"08006": true, "08000": true, "53300": true, "57P01": true, "57P02": true, "57P03": true,
		"28P01": false, "28000": false, "3D000": false, "42501": false, "42P07": false, "57014": false, "57P04": false, "53100": false,
	} {
		err := errors.Join(fmt.Errorf("migrate schema: %w", &pgconn.PgError{Code: code}), io.ErrUnexpectedEOF)
		if got := transient(err); got != want {
			t.Errorf("%s: transient is %t", code, got)
		}
	}
}
