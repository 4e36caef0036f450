package manager

import (
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/aurea-dev/aurea/internal/fault"
)

// A database that is away for a moment during the start is waited for, one that
// stays away is not, and what may have been done is not done again.
func TestStartWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	away := fault.New(fault.Unavailable, "the database does not answer").WithCode("database_unreachable")
	for name, step := range map[string]struct {
		err         error
		times, want int
		fails       bool
	}{
		"for a moment": {away, 3, 4, false},
		"for good":     {away, 1000, 20, true},
		"nobody knows": {fault.New(fault.Unavailable, "?").WithCode("outcome_unknown"), 1000, 1, true},
		"refused":      {fault.New(fault.Conflict, "no"), 1000, 1, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := &Manager{Config: Config{Logger: slog.New(slog.DiscardHandler)}}
			asked := 0
			err := m.patiently(t.Context(), func() error {
				if asked++; asked <= step.times {
					return step.err
				}
				return nil
			})
			if asked != step.want || (err != nil) != step.fails {
				t.Errorf("%s: asked %d times, %v", name, asked, err)
			}
		})
	}
}
