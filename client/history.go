package client

import "context"

// Collection is what a pass over the history removed, or would remove.
type Collection struct {
	DryRun     bool  `json:"dry_run"`
	Plans      int64 `json:"plans"`
	Runs       int64 `json:"runs"`
	Sandboxes  int64 `json:"sandboxes"`
	Events     int64 `json:"events"`
	Workers    int64 `json:"workers"`
	Blobs      int64 `json:"blobs"`
	BlobBytes  int64 `json:"blob_bytes"`
	SmallBytes int64 `json:"small_bytes"`
	Outputs    int64 `json:"outputs"`
	KeptBlobs  int64 `json:"kept_blobs"`
	KeptBytes  int64 `json:"kept_bytes"`
}

// Collect removes what is older than its retention; with dryRun it only says
// what would be removed.
func (c *Client) Collect(ctx context.Context, dryRun bool) (Collection, error) {
	var out Collection
	r, err := post(map[string]bool{"dry_run": dryRun}, "api", "v1", "gc")
	if err == nil {
		_, err = c.call(ctx, r, &out)
	}
	return out, err
}
