package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// The kinds of snapshots of a sandbox.
const (
	FilesSnapshot = "files" // what differs from the image
	FullSnapshot  = "full"  // the memory too: it can be restored and forked from
)

// SandboxSnapshot is a state of a sandbox that was kept.
type SandboxSnapshot struct {
	ID         string    `json:"id"`
	SandboxID  string    `json:"sandbox_id"`
	Kind       string    `json:"kind"`
	Generation int64     `json:"generation"`
	Label      *string   `json:"label"`
	Bytes      int64     `json:"bytes"`
	SHA256     *string   `json:"sha256"`    // of the archive, if it is of files
	WorkerID   *string   `json:"worker_id"` // where it is kept, if it is full
	CreatedAt  time.Time `json:"created_at"`
}

// TakeSnapshot takes a snapshot of a sandbox, which goes on. kind "" is
// FilesSnapshot.
func (c *Client) TakeSnapshot(ctx context.Context, sandbox, kind, label string) (SandboxSnapshot, error) {
	body := map[string]string{}
	if kind != "" {
		body["kind"] = kind
	}
	if label != "" {
		body["label"] = label
	}
	var out SandboxSnapshot
	r, err := post(body, sandboxes(sandbox, "snapshots")...)
	if err == nil {
		_, err = c.call(ctx, r, &out)
	}
	return out, err
}

// Snapshots lists the snapshots of a sandbox, newest first, page by page.
func (c *Client) Snapshots(ctx context.Context, sandbox string) iter.Seq2[SandboxSnapshot, error] {
	return pages[SandboxSnapshot](ctx, c, get(sandboxes(sandbox, "snapshots")...))
}

// DeleteSnapshot removes a snapshot.
func (c *Client) DeleteSnapshot(ctx context.Context, id string) error {
	_, err := c.call(ctx, request{method: http.MethodDelete, path: []string{"api", "v1", "snapshots", id}}, nil)
	return err
}

// RestoreSandbox sets a sandbox back to a full snapshot of it, in place.
func (c *Client) RestoreSandbox(ctx context.Context, sandbox, snapshot string) (Sandbox, error) {
	return c.steer(ctx, map[string]string{"snapshot": snapshot}, sandbox, "restore")
}

// Fork says how a sandbox is forked. Zero fields take the server's defaults.
type Fork struct {
	Count    int               `json:"count,omitempty"`
	Snapshot string            `json:"snapshot,omitempty"` // to fork from; one of now where it is left out
	Secrets  bool              `json:"secrets,omitempty"`  // what was named a secret is inherited too
	Labels   map[string]string `json:"labels,omitempty"`   // in place of those of the sandbox
}

// ForkSandbox makes sandboxes that go on from the same moment: all of them, or
// none.
func (c *Client) ForkSandbox(ctx context.Context, sandbox string, f Fork) ([]Sandbox, error) {
	var out []Sandbox
	r, err := post(f, sandboxes(sandbox, "fork")...)
	if err == nil {
		_, err = c.call(ctx, r, &out)
	}
	return out, err
}

// Difference is a file that changed. Its path and its text come from inside.
type Difference struct {
	Path       string  `json:"path"`
	Change     string  `json:"change"` // added, modified or deleted
	Type       string  `json:"type"`   // file, dir or link: as it is now, or was
	SizeBefore *int64  `json:"size_before"`
	Size       *int64  `json:"size"`
	Diff       *string `json:"diff"`    // as git shows it; one after the other they are a patch
	Omitted    *string `json:"omitted"` // why a file has none: binary, large or cut
}

// SandboxDiff is how the files of a sandbox changed.
type SandboxDiff struct {
	SandboxID string       `json:"sandbox_id"`
	From      string       `json:"from"`
	To        *string      `json:"to"` // nil is now
	Added     int          `json:"added"`
	Modified  int          `json:"modified"`
	Deleted   int          `json:"deleted"`
	Changes   []Difference `json:"changes"` // in the order of their paths
	Truncated bool         `json:"truncated"`
}

// DiffSandbox compares the files of a sandbox at two snapshots of files; to ""
// is now.
func (c *Client) DiffSandbox(ctx context.Context, sandbox, from, to string) (SandboxDiff, error) {
	r := get(sandboxes(sandbox, "diff")...)
	r.query = url.Values{"from": {from}}
	if to != "" {
		r.query.Set("to", to)
	}
	var out SandboxDiff
	_, err := c.call(ctx, r, &out)
	return out, err
}
