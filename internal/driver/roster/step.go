package roster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/aurea-dev/aurea/internal/sandbox"
)

// RecordName is the file in a sandbox's folder with what its driver wrote down.
const RecordName = "box.json"

// ReadRecord reads the record in a sandbox's folder, which is missing or broken
// where the sandbox was only half made.
func ReadRecord[R any](dir string) (R, error) {
	var record, none R
	body, err := os.ReadFile(filepath.Join(dir, RecordName))
	if err != nil {
		return none, fmt.Errorf("read the sandbox's record: %w", err)
	}
	if err := json.Unmarshal(body, &record); err != nil {
		return none, fmt.Errorf("decode the sandbox's record: %w", err)
	}
	return record, nil
}

// Recover returns the box of a handle. One that is not here, or cannot be
// reached any more, is met again.
func (r *Roster[B]) Recover(h sandbox.Handle, meet func() (B, error)) (B, error) {
	var none B
	if err := r.Owns(h); err != nil {
		return none, err
	}
	b, live, err := r.Live(h.ID)
	if err != nil {
		return none, err
	}
	if live {
		return b, nil
	}
	if b, err = meet(); err != nil {
		return none, err
	}
	if err := r.Adopt(h.ID, b); err != nil {
		return none, err
	}
	return b, nil
}

// Destroy removes the sandbox of a handle. One that is being made is not made to
// its end.
func (r *Roster[B]) Destroy(ctx context.Context, h sandbox.Handle, remove func(ctx context.Context, id string) error) error {
	if err := r.Owns(h); err != nil {
		return err
	}
	if err := r.Interrupt(ctx, h.ID); err != nil {
		return err
	}
	return remove(ctx, h.ID)
}
