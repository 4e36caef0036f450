package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
)

// FileChange is something that happened to a file in a sandbox.
type FileChange struct {
	// Kind is created, modified, deleted or renamed; overflow says that more
	// happened than could be followed, and that a look at the folder is due.
	Kind string `json:"-"`
	Path string `json:"path"`
	From string `json:"from,omitempty"` // what it was called, if it was renamed
	Type string `json:"type,omitempty"`
}

// WatchFiles follows what happens to a file or a folder of a sandbox, and with
// recursive to all below it, until ctx ends or the sandbox does. What happens
// before the first step of the loop may be missed; ready, which may be nil, is
// called when nothing is missed any more. It ends after the first error.
func (c *Client) WatchFiles(ctx context.Context, sandbox, path string, recursive bool, ready func()) iter.Seq2[FileChange, error] {
	return func(yield func(FileChange, error) bool) {
		r := filesRequest(http.MethodGet, sandbox, path, "watch")
		r.accept = "text/event-stream"
		if recursive {
			r.query.Set("recursive", "true")
		}
		body, err := c.stream(ctx, r)
		if err != nil {
			yield(FileChange{}, err)
			return
		}
		defer func() { _ = body.Close() }()
		if ready != nil {
			ready()
		}
		for frames := newFrameReader(body); ; {
			f, err := frames.next()
			if errors.Is(err, io.EOF) {
				return
			}
			change := FileChange{Kind: f.event}
			switch {
			case err != nil && ctx.Err() != nil:
				err = context.Cause(ctx)
			case err != nil:
				err = &Unreachable{Server: c.Server(), Err: err}
			default:
				if err = json.Unmarshal([]byte(f.data), &change); err != nil {
					err = fmt.Errorf("read a change: %w", err)
				}
			}
			if !yield(change, err) || err != nil {
				return
			}
		}
	}
}

// Patched is what a patch did to one file.
type Patched struct {
	Path   string  `json:"path"`
	From   *string `json:"from"`   // what it was called, if it was renamed
	Change string  `json:"change"` // created, modified, deleted or renamed
}

// PatchFiles applies a unified diff below a folder of a sandbox: all of it, or,
// where something does not fit, nothing.
func (c *Client) PatchFiles(ctx context.Context, sandbox, folder string, diff io.Reader) ([]Patched, error) {
	r := filesRequest(http.MethodPost, sandbox, folder, "patch")
	r.stream, r.content = diff, "text/x-diff"
	var out []Patched
	_, err := c.call(ctx, r, &out)
	return out, err
}
