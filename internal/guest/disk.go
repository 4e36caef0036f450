package guest

import (
	"context"
	"fmt"

	"github.com/aurea-dev/aurea/internal/guest/wire"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

var _ sandbox.DiskMeter = Box{}

// Disk asks how many bytes of files were written.
func (c *Client) Disk(ctx context.Context) (int64, error) {
	said, err := c.do(ctx, wire.Open{Kind: wire.KindDisk}, nil, wire.MaxDisk)
	if err != nil {
		return 0, err
	}
	d, err := wire.DecodeDisk(said[0])
	if err != nil {
		return 0, errNonsense(err)
	}
	return d.Bytes, nil
}

// Disk implements sandbox.DiskMeter.
func (b Box) Disk(ctx context.Context) (int64, error) {
	n, err := b.Client.Disk(ctx)
	if err != nil {
		return 0, fmt.Errorf("measure the disk of sandbox %s: %w", b.ID, err)
	}
	return n, nil
}
