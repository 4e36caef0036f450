package client

import (
	"context"
	"crypto/rand"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Command is what is to be started in a sandbox. Zero fields take the server's
// defaults.
type Command struct {
	Command   []string          `json:"command,omitempty"`
	Shell     string            `json:"shell,omitempty"` // a line for sh -c, in place of Command
	Env       map[string]string `json:"env,omitempty"`
	Cwd       string            `json:"cwd,omitempty"`
	User      string            `json:"user,omitempty"`
	Stdin     []byte            `json:"stdin_base64,omitempty"`
	KeepStdin bool              `json:"keep_stdin,omitempty"` // for FeedExec and Attach
	TTY       bool              `json:"tty,omitempty"`
	Cols      int               `json:"cols,omitempty"`
	Rows      int               `json:"rows,omitempty"`
	Timeout   *float64          `json:"timeout,omitempty"` // seconds; 0 is for as long as the sandbox
}

// Exec is how a command in a sandbox stands. It outlives the sandbox. What is
// not there is nil.
type Exec struct {
	ID        string     `json:"id"`
	SandboxID string     `json:"sandbox_id"`
	ForkOf    *string    `json:"fork_of"` // the exec that it went on from, in a fork of its sandbox
	Command   []string   `json:"command"`
	Cwd       *string    `json:"cwd"`
	User      *string    `json:"user"`
	TTY       bool       `json:"tty"`
	Timeout   *float64   `json:"timeout"`
	State     string     `json:"state"` // STARTING, RUNNING or ENDED
	Verdict   *string    `json:"verdict"`
	Cause     *string    `json:"cause"`
	ExitCode  *int       `json:"exit_code"` // 128 and the signal where one ended it
	TimedOut  bool       `json:"timed_out"`
	Stdout    *ExecText  `json:"stdout"` // once it has ended
	Stderr    *ExecText  `json:"stderr"`
	CreatedAt time.Time  `json:"created_at"`
	StartedAt *time.Time `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at"`
	Seconds   *float64   `json:"seconds"`
}

// Ended reports whether nothing follows.
func (e Exec) Ended() bool { return e.State == "ENDED" }

// ExecText is a stream of an exec that has ended. Text is the first of it,
// where one exec was asked for.
type ExecText struct {
	Bytes     int64   `json:"bytes"` // that are kept
	Seen      int64   `json:"seen"`  // that there were
	Truncated bool    `json:"truncated"`
	SHA256    string  `json:"sha256"`
	Text      *string `json:"text"`
	Cut       bool    `json:"cut"`
}

// longestWait bounds how long one request waits.
const longestWait = 5 * time.Minute

func waitQuery(wait time.Duration) url.Values {
	if wait <= 0 {
		return url.Values{}
	}
	return url.Values{"wait": {strconv.FormatFloat(min(wait, longestWait).Seconds(), 'f', 3, 64)}}
}

// StartExec starts a command in a sandbox, and returns when it was started, or
// after so long a wait for its end. While the server is away it is repeated
// under one idempotency key, so that nothing is started twice. A command that
// fails is a result, not an error; who goes away ends nothing.
func (c *Client) StartExec(ctx context.Context, sandbox string, command Command, wait time.Duration) (Exec, error) {
	r, err := post(command, sandboxes(sandbox, "execs")...)
	if err != nil {
		return Exec{}, err
	}
	r.query = waitQuery(wait)
	r.header = http.Header{"Idempotency-Key": {rand.Text()}}
	var out Exec
	err = c.repeat(ctx, r, &out)
	return out, err
}

// Exec looks at an exec, and waits so long for its end.
func (c *Client) Exec(ctx context.Context, sandbox, id string, wait time.Duration) (Exec, error) {
	r := get(sandboxes(sandbox, "execs", id)...)
	r.query = waitQuery(wait)
	var out Exec
	_, err := c.call(ctx, r, &out)
	return out, err
}

// WaitExec waits for the end of an exec, also across restarts of the server.
func (c *Client) WaitExec(ctx context.Context, sandbox, id string) (Exec, error) {
	for failures := 0; ; {
		e, err := c.Exec(ctx, sandbox, id, time.Minute)
		switch {
		case err == nil && e.Ended():
			return e, nil
		case ctx.Err() != nil:
			return e, context.Cause(ctx)
		case err == nil:
			failures = 0
		case !passing(err):
			return e, err
		}
		failures++ // also after an answer: a server that does not wait is not hurried
		if err := pause(ctx, backoff(failures)); err != nil {
			return e, err
		}
	}
}

// Execs lists the execs of a sandbox, newest first, page by page. state "" is
// any.
func (c *Client) Execs(ctx context.Context, sandbox, state string) iter.Seq2[Exec, error] {
	r := get(sandboxes(sandbox, "execs")...)
	r.query = url.Values{}
	if state != "" {
		r.query.Set("state", state)
	}
	return pages[Exec](ctx, c, r)
}

// FeedExec writes to the standard input of an exec at an offset, which counts
// what was written before, so that a call that is said again writes nothing
// twice; -1 is where it stands. With last the input ends.
func (c *Client) FeedExec(ctx context.Context, sandbox, id string, offset int64, data []byte, last bool) error {
	r := request{method: http.MethodPost, path: sandboxes(sandbox, "execs", id, "input"), body: data, content: "application/octet-stream"}
	r.query = url.Values{"offset": {strconv.FormatInt(offset, 10)}}
	if last {
		r.query.Set("close", "true")
	}
	_, err := c.call(ctx, r, nil)
	return err
}

// ResizeExec sets the size of an exec's terminal.
func (c *Client) ResizeExec(ctx context.Context, sandbox, id string, cols, rows int) error {
	return c.tellExec(ctx, sandbox, id, "resize", map[string]int{"cols": cols, "rows": rows}, nil)
}

// SignalExec sends a signal to an exec, and with tree to all of its descendants.
func (c *Client) SignalExec(ctx context.Context, sandbox, id string, signal int, tree bool) error {
	return c.tellExec(ctx, sandbox, id, "signal", map[string]any{"signal": signal, "tree": tree}, nil)
}

// KillExec ends an exec with all of its descendants, and returns it ended. One
// that had ended stays as it is.
func (c *Client) KillExec(ctx context.Context, sandbox, id string) (Exec, error) {
	var out Exec
	err := c.tellExec(ctx, sandbox, id, "kill", map[string]any{}, &out)
	return out, err
}

func (c *Client) tellExec(ctx context.Context, sandbox, id, verb string, body, out any) error {
	r, err := post(body, sandboxes(sandbox, "execs", id, verb)...)
	if err == nil {
		_, err = c.call(ctx, r, out)
	}
	return err
}

// DownloadFiles returns a tar of a file or a folder in a sandbox; the caller
// closes it. A stream that breaks ends with an error, never as a whole tar.
// What is in it comes from inside the sandbox: unpack it with care.
func (c *Client) DownloadFiles(ctx context.Context, sandbox, path string) (io.ReadCloser, error) {
	r := get(sandboxes(sandbox, "tar")...)
	r.query, r.accept = url.Values{"path": {path}}, "application/x-tar"
	return c.stream(ctx, r)
}

// UploadFiles unpacks a tar, of any length, below a folder in a sandbox, which
// is made if need be. It returns when all of it is there.
func (c *Client) UploadFiles(ctx context.Context, sandbox, path string, tar io.Reader) error {
	r := request{method: http.MethodPut, path: sandboxes(sandbox, "tar"), query: url.Values{"path": {path}}, stream: tar, content: "application/x-tar"}
	_, err := c.call(ctx, r, nil)
	return err
}
