package fake

import (
	"context"
	"errors"
	"slices"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

var _ sandbox.Killer = (*Driver)(nil)

// KillAll crashes the sandboxes, also those of an earlier driver with the same
// state folder.
func (d *Driver) KillAll(ctx context.Context, ids []string) error {
	d.mu.Lock()
	var dying []*box
	for id, b := range d.boxes {
		if ids == nil || slices.Contains(ids, id) {
			dying = append(dying, b)
		}
	}
	d.mu.Unlock()
	for _, b := range dying {
		b.crash()
	}
	handles, err := d.List(ctx)
	if err != nil {
		return err
	}
	var all []error
	for _, h := range handles {
		if ids != nil && !slices.Contains(ids, h.ID) || slices.ContainsFunc(dying, func(b *box) bool { return b.spec.ID == h.ID }) {
			continue
		}
		b, err := d.Recover(ctx, h)
		if fault.Is(err, fault.NotFound) {
			continue // dead, or half made
		}
		if found, ok := b.(*box); ok && err == nil {
			found.crash()
		}
		all = append(all, err)
	}
	return errors.Join(all...)
}
