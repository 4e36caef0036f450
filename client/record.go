package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Artifact is a file that a job left.
type Artifact struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
}

// Artifacts lists what the newest try of a job left.
func (c *Client) Artifacts(ctx context.Context, id string) ([]Artifact, error) {
	var list []Artifact
	_, err := c.call(ctx, get("jobs", id, "artifacts"), &list)
	return list, err
}

// Artifact returns the bytes of one artifact; the caller closes it.
func (c *Client) Artifact(ctx context.Context, id, name string) (io.ReadCloser, error) {
	r := get(append([]string{"jobs", id, "artifacts"}, strings.Split(name, "/")...)...)
	r.accept = "*/*"
	return c.stream(ctx, r)
}

// Evidence returns the record of the newest try of a job: what ran, under what
// limits, and how it ended.
func (c *Client) Evidence(ctx context.Context, id string) (json.RawMessage, error) {
	var record json.RawMessage
	_, err := c.call(ctx, get("jobs", id, "evidence"), &record)
	return record, err
}

// Snapshot returns the tar of the workspace that the newest try of a job left;
// the caller closes it.
func (c *Client) Snapshot(ctx context.Context, id string) (io.ReadCloser, error) {
	r := get("jobs", id, "snapshot")
	r.accept = "*/*"
	return c.stream(ctx, r)
}

// The streams of output.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// LogsOptions choose a piece of output.
type LogsOptions struct {
	Stream string // Stdout unless set
	Offset int64  // where to begin
	Follow bool   // go on until the job has ended
}

// Logs copies the output of a job's newest try to w and returns the offset
// behind the last byte. Following, it comes back when the connection breaks,
// and goes on with the next try when the job is tried again.
func (c *Client) Logs(ctx context.Context, id string, o LogsOptions, w io.Writer) (next int64, err error) {
	if o.Stream == "" {
		o.Stream = Stdout
	}
	if !o.Follow {
		return c.logPages(ctx, id, o, w)
	}
	attempt := 0
	for failures := 0; ; {
		n, err := c.logStream(ctx, id, o, w)
		o.Offset += n
		if ctx.Err() != nil {
			return o.Offset, context.Cause(ctx)
		}
		if err != nil && !passing(err) {
			return o.Offset, err
		}
		// The stream ended: with the job, or with the server that served it.
		j, err := c.Job(ctx, id)
		switch {
		case err != nil && !passing(err):
			return o.Offset, err
		case err == nil && attempt != 0 && j.Attempt != attempt:
			o.Offset = 0 // each try has output of its own
		case err == nil && j.Status.Ended():
			return c.logPages(ctx, id, o, w)
		}
		if err == nil {
			attempt = j.Attempt
		}
		if failures++; n > 0 {
			failures = 1
		}
		if err := pause(ctx, backoff(failures)); err != nil {
			return o.Offset, err
		}
	}
}

func logRequest(id string, o LogsOptions) request {
	r := get("jobs", id, "logs")
	r.accept = "*/*"
	r.query = url.Values{"stream": {o.Stream}, "offset": {strconv.FormatInt(o.Offset, 10)}}
	if o.Follow {
		r.query.Set("follow", "true")
	}
	return r
}

// logPages copies what there is, page by page.
func (c *Client) logPages(ctx context.Context, id string, o LogsOptions, w io.Writer) (int64, error) {
	o.Follow = false
	for {
		n, err := c.logStream(ctx, id, o, w)
		o.Offset += n
		if n == 0 || err != nil {
			return o.Offset, err
		}
	}
}

// logStream copies one answer and returns how many bytes came.
func (c *Client) logStream(ctx context.Context, id string, o LogsOptions, w io.Writer) (int64, error) {
	body, err := c.stream(ctx, logRequest(id, o))
	if err != nil {
		return 0, err
	}
	defer func() { _ = body.Close() }()
	n, err := io.Copy(writer{w}, body)
	var we *writeError
	switch {
	case errors.As(err, &we):
		return n, we.err
	case err != nil && ctx.Err() == nil:
		return n, &Unreachable{Server: c.Server(), Err: err}
	case err != nil:
		return n, context.Cause(ctx)
	}
	return n, nil
}

// writer marks the errors of the caller's writer, which no coming back mends.
type writer struct{ w io.Writer }

type writeError struct{ err error }

func (e *writeError) Error() string { return e.err.Error() }

func (w writer) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	if err != nil {
		err = &writeError{err}
	}
	return n, err
}

// QueueStats counts the jobs.
type QueueStats struct {
	Counts           map[Status]int64 `json:"counts"`
	Total            int64            `json:"total"`
	DeadLetters      int64            `json:"dead_letters"`
	OldestQueuedAt   *time.Time       `json:"oldest_queued_at"`
	OldestAgeSeconds *float64         `json:"oldest_age_seconds"`
}

// QueueStats returns how many jobs stand where.
func (c *Client) QueueStats(ctx context.Context) (QueueStats, error) {
	var s QueueStats
	_, err := c.call(ctx, get("api", "v1", "queue", "stats"), &s)
	return s, err
}

// Worker is what the manager knows of one worker.
type Worker struct {
	ID           string    `json:"id"`
	Role         string    `json:"role"`
	Models       []string  `json:"models,omitempty"`
	Drivers      []string  `json:"drivers"`
	Slots        int       `json:"slots"`
	Version      string    `json:"version"`
	Connected    bool      `json:"connected"`
	RegisteredAt time.Time `json:"registered_at"`
	SeenAt       time.Time `json:"seen_at"`

	DriverStatus []DriverStatus `json:"driver_status"`
}

// DriverStatus says of one driver of a worker whether it is served, and how
// that was proved.
type DriverStatus struct {
	Name      string     `json:"name"`
	Version   string     `json:"version"`
	Isolation string     `json:"isolation"`
	Status    string     `json:"status"` // "served" or "degraded"
	Reason    string     `json:"reason"`
	Tried     int        `json:"tried"`
	Stopped   int        `json:"stopped"`
	ProbedAt  *time.Time `json:"probed_at"`
}

// Workers lists the workers that have registered.
func (c *Client) Workers(ctx context.Context) ([]Worker, error) {
	var list []Worker
	_, err := c.call(ctx, get("api", "v1", "workers"), &list)
	return list, err
}

// Health is how a server is doing.
type Health struct {
	Status           string    `json:"status"` // "healthy" or "degraded"
	Version          string    `json:"version"`
	UptimeSeconds    float64   `json:"uptime_seconds"`
	Timestamp        time.Time `json:"timestamp"`
	SandboxAvailable bool      `json:"sandbox_available"`
	Workers          int       `json:"workers"`
	Drivers          []string  `json:"drivers"`

	DriverStatus []DriverStatus `json:"driver_status"`
	Paused       []string       `json:"paused"` // why workers take no more jobs for now
}

// Health asks how the server is doing.
func (c *Client) Health(ctx context.Context) (Health, error) {
	var h Health
	_, err := c.call(ctx, get("health"), &h)
	return h, err
}

// Ready returns nil when the server can take requests.
func (c *Client) Ready(ctx context.Context) error {
	_, err := c.call(ctx, get("ready"), nil)
	return err
}
