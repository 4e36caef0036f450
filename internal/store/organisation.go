package store

import (
	"context"

	"github.com/aurea-dev/aurea/internal/policy"
)

// Organisation keeps what holds for everybody.
type Organisation interface {
	// Pause returns whether it is paused; the zero Pause before the first Put.
	Pause(ctx context.Context) (policy.Pause, error)
	SetPause(ctx context.Context, p policy.Pause) error
}
