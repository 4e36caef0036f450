package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// File is a file in a sandbox. Its name comes from inside: do not take it for a
// path of yours.
type File struct {
	Path       string    `json:"path"`
	Name       string    `json:"name"`
	Type       string    `json:"type"` // file, dir, link or other
	Size       int64     `json:"size"`
	Mode       string    `json:"mode"` // permissions, in octal
	ModifiedAt time.Time `json:"modified_at"`
	Target     *string   `json:"target"` // of a link
}

func filesRequest(method, sandbox, path string, more ...string) request {
	return request{method: method, path: sandboxes(append([]string{sandbox, "files"}, more...)...), query: url.Values{"path": {path}}}
}

// Files lists a folder of a sandbox, so many levels deep; more says that there
// are more than are listed.
func (c *Client) Files(ctx context.Context, sandbox, path string, depth int) (files []File, more bool, err error) {
	r := filesRequest(http.MethodGet, sandbox, path)
	r.query.Set("depth", strconv.Itoa(max(depth, 1)))
	r.query.Set("limit", "10000")
	var out struct {
		Files []File `json:"files"`
		More  bool   `json:"more"`
	}
	_, err = c.call(ctx, r, &out)
	return out.Files, out.More, err
}

// StatFile looks at a file in a sandbox.
func (c *Client) StatFile(ctx context.Context, sandbox, path string) (File, error) {
	var out File
	_, err := c.call(ctx, filesRequest(http.MethodGet, sandbox, path, "stat"), &out)
	return out, err
}

// ReadFile returns the bytes of a file in a sandbox; the caller closes it.
func (c *Client) ReadFile(ctx context.Context, sandbox, path string) (io.ReadCloser, error) {
	r := filesRequest(http.MethodGet, sandbox, path, "content")
	r.accept = "application/octet-stream"
	return c.stream(ctx, r)
}

// WriteFile writes a file in a sandbox, whole or not at all; folders on the way
// are made. mode is its permissions in octal; "" is as they were, or 0644.
func (c *Client) WriteFile(ctx context.Context, sandbox, path, mode string, content io.Reader) error {
	r := filesRequest(http.MethodPut, sandbox, path, "content")
	if mode != "" {
		r.query.Set("mode", mode)
	}
	r.stream, r.content = content, "application/octet-stream"
	_, err := c.call(ctx, r, nil)
	return err
}

// RemoveFile removes a file in a sandbox, or a folder with all below it.
func (c *Client) RemoveFile(ctx context.Context, sandbox, path string, recursive bool) error {
	r := filesRequest(http.MethodDelete, sandbox, path)
	if recursive {
		r.query.Set("recursive", "true")
	}
	_, err := c.call(ctx, r, nil)
	return err
}

// MakeFolder makes a folder in a sandbox, and those on the way.
func (c *Client) MakeFolder(ctx context.Context, sandbox, path string) error {
	return c.changeFiles(ctx, sandbox, "mkdir", map[string]string{"path": path})
}

// MoveFile moves or renames a file or a folder in a sandbox.
func (c *Client) MoveFile(ctx context.Context, sandbox, from, to string) error {
	return c.changeFiles(ctx, sandbox, "move", map[string]string{"from": from, "to": to})
}

// CopyFile copies a file or a folder within a sandbox.
func (c *Client) CopyFile(ctx context.Context, sandbox, from, to string) error {
	return c.changeFiles(ctx, sandbox, "copy", map[string]string{"from": from, "to": to})
}

func (c *Client) changeFiles(ctx context.Context, sandbox, verb string, body any) error {
	r, err := post(body, sandboxes(sandbox, "files", verb)...)
	if err == nil {
		_, err = c.call(ctx, r, nil)
	}
	return err
}
