package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// NewSandbox is what a sandbox is asked to be. Zero fields take the server's
// defaults.
type NewSandbox struct {
	// Name is unique among your open sandboxes: asking again with the same name
	// answers the one that is there.
	Name        string            `json:"name,omitempty"`
	Image       string            `json:"image,omitempty"`
	Driver      string            `json:"driver,omitempty"`
	Env         map[string]string `json:"env,omitempty"`
	Secrets     []string          `json:"secrets,omitempty"` // names in Env that a fork does not inherit
	Labels      map[string]string `json:"labels,omitempty"`
	TTL         *float64          `json:"ttl,omitempty"`          // seconds; 0 is for ever
	IdleTimeout *float64          `json:"idle_timeout,omitempty"` // seconds; 0 is for ever
	OnTimeout   string            `json:"on_timeout,omitempty"`   // kill or pause
	CPULimit    float64           `json:"cpu_limit,omitempty"`    // processors
	MemoryLimit string            `json:"memory_limit,omitempty"` // such as "512m"
	Files       map[string]string `json:"files,omitempty"`        // text by path below /workspace
}

// SandboxChange is what of a sandbox changes; zero fields stay as they are.
type SandboxChange struct {
	TTL         *float64          `json:"ttl,omitempty"` // seconds, from now on
	IdleTimeout *float64          `json:"idle_timeout,omitempty"`
	OnTimeout   string            `json:"on_timeout,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"` // in place of those that it has
	CPULimit    float64           `json:"cpu_limit,omitempty"`
	MemoryLimit string            `json:"memory_limit,omitempty"`
}

// SandboxState is where a sandbox stands.
type SandboxState string

// The states of a sandbox.
const (
	SandboxPending    SandboxState = "PENDING"
	SandboxCreating   SandboxState = "CREATING"
	SandboxRunning    SandboxState = "RUNNING"
	SandboxCompleting SandboxState = "COMPLETING"
	SandboxCompleted  SandboxState = "COMPLETED"
	SandboxFailed     SandboxState = "FAILED"
)

// Ended reports whether nothing follows.
func (s SandboxState) Ended() bool { return s == SandboxCompleted || s == SandboxFailed }

// Sandbox is how a sandbox stands. What is not there is nil.
type Sandbox struct {
	ID          string            `json:"id"`
	Name        *string           `json:"name"`
	Owner       string            `json:"owner"`
	State       SandboxState      `json:"state"`
	Paused      *string           `json:"paused"`  // freeze or checkpoint while it stands still
	Outcome     *string           `json:"outcome"` // why it ended, in one word
	Reason      *string           `json:"reason"`
	Driver      string            `json:"driver"`
	Isolation   string            `json:"isolation"`
	Image       string            `json:"image"`
	ImageDigest *string           `json:"image_digest"`
	Warm        bool              `json:"warm"`
	WorkerID    *string           `json:"worker_id"`
	Network     string            `json:"network"`
	Limits      SandboxLimits     `json:"limits"` // what really holds
	EnvNames    []string          `json:"env_names"`
	Labels      map[string]string `json:"labels"`
	TTL         *float64          `json:"ttl"`
	IdleTimeout *float64          `json:"idle_timeout"`
	OnTimeout   string            `json:"on_timeout"`
	Generation  int64             `json:"generation"`
	Parent      *string           `json:"parent"` // the sandbox that it was forked from
	SessionID   *string           `json:"session_id"`
	App         *string           `json:"app"`
	CreatedAt   time.Time         `json:"created_at"`
	StartedAt   *time.Time        `json:"started_at"`
	ActiveAt    *time.Time        `json:"active_at"`
	ExpiresAt   *time.Time        `json:"expires_at"`
	EndedAt     *time.Time        `json:"ended_at"`
	Usage       *SandboxUsage     `json:"usage"` // at its end
}

// SandboxLimits are limits; 0 is none.
type SandboxLimits struct {
	CPU       float64 `json:"cpu"` // processors
	Memory    int64   `json:"memory_bytes"`
	Processes int64   `json:"processes"`
	Disk      int64   `json:"disk_bytes"`
	OpenFiles int64   `json:"open_files"`
	CPUTime   float64 `json:"cpu_time"` // seconds
}

// SandboxUsage is what a sandbox has used; nil where that is not known.
type SandboxUsage struct {
	CPUSeconds *float64 `json:"cpu_seconds"`
	Memory     *int64   `json:"memory_bytes"` // now
	PeakMemory *int64   `json:"peak_memory_bytes"`
	Disk       *int64   `json:"disk_bytes"` // of files that were written
	Processes  *int64   `json:"processes"`
}

// SandboxStats is how a sandbox is doing.
type SandboxStats struct {
	SandboxUsage
	Execs int       `json:"execs"` // that run
	At    time.Time `json:"at"`
}

// Account is what somebody's sandboxes have used.
type Account struct {
	Owner           string  `json:"owner"`
	SessionID       *string `json:"session_id"`
	App             *string `json:"app"`
	Sandboxes       int64   `json:"sandboxes"`
	SandboxSeconds  float64 `json:"sandbox_seconds"`
	CPUSeconds      float64 `json:"cpu_seconds"`
	GigabyteSeconds float64 `json:"gigabyte_seconds"`
	Disk            int64   `json:"disk_bytes"` // of files in those that are open
}

// CreateSandbox makes a sandbox, and returns when it runs. One that has a name
// is asked for again while the server is away; one without might be made twice,
// and is not.
func (c *Client) CreateSandbox(ctx context.Context, s NewSandbox) (Sandbox, error) {
	r, err := post(s, sandboxes()...)
	if err != nil {
		return Sandbox{}, err
	}
	var out Sandbox
	if s.Name == "" {
		_, err = c.call(ctx, r, &out)
	} else {
		err = c.repeat(ctx, r, &out)
	}
	return out, err
}

// repeat makes a call that can be said again, while the server is away.
func (c *Client) repeat(ctx context.Context, r request, out any) error {
	var err error
	for try := range submitTries {
		if try > 0 {
			if err := pause(ctx, backoff(try)); err != nil {
				return err
			}
		}
		if _, err = c.call(ctx, r, out); !passing(err) {
			break
		}
	}
	return err
}

// sandboxes is the path of what belongs to sandboxes.
func sandboxes(path ...string) []string {
	return append([]string{"api", "v1", "sandboxes"}, path...)
}

// Sandbox looks at a sandbox, also at one that has ended.
func (c *Client) Sandbox(ctx context.Context, id string) (Sandbox, error) {
	var out Sandbox
	_, err := c.call(ctx, get(sandboxes(id)...), &out)
	return out, err
}

// SandboxFilter chooses sandboxes. Zero fields choose all.
type SandboxFilter struct {
	State    SandboxState
	Open     bool // only those that have not ended
	Labels   map[string]string
	PageSize int // 0 is the server's
}

func (f SandboxFilter) query() url.Values {
	q := url.Values{}
	if f.State != "" {
		q.Set("state", string(f.State))
	}
	if f.Open {
		q.Set("open", "true")
	}
	for name, value := range f.Labels {
		q.Add("label", name+"="+value)
	}
	slices.Sort(q["label"])
	if f.PageSize > 0 {
		q.Set("limit", strconv.Itoa(f.PageSize))
	}
	return q
}

// Sandboxes lists sandboxes, newest first, page by page as the loop asks for
// them. It ends after the first error.
func (c *Client) Sandboxes(ctx context.Context, f SandboxFilter) iter.Seq2[Sandbox, error] {
	r := get(sandboxes()...)
	r.query = f.query()
	return pages[Sandbox](ctx, c, r)
}

// pages walks through a list whose pages name the next in their Link header.
func pages[T any](ctx context.Context, c *Client, r request) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for r := r; ; {
			var page []T
			header, err := c.call(ctx, r, &page)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range page {
				if !yield(item, nil) {
					return
				}
			}
			next := nextQuery(header)
			if next == nil || next.Encode() == r.query.Encode() {
				return
			}
			r.query = next
		}
	}
}

// UpdateSandbox changes a sandbox.
func (c *Client) UpdateSandbox(ctx context.Context, id string, ch SandboxChange) (Sandbox, error) {
	raw, err := json.Marshal(ch)
	if err != nil {
		return Sandbox{}, fmt.Errorf("write request: %w", err)
	}
	var out Sandbox
	_, err = c.call(ctx, request{method: http.MethodPatch, path: sandboxes(id), body: raw}, &out)
	return out, err
}

// DeleteSandbox ends a sandbox, and returns when nothing of it is left where it
// ran. Its record and the output of its execs stay.
func (c *Client) DeleteSandbox(ctx context.Context, id string) (Sandbox, error) {
	var out Sandbox
	_, err := c.call(ctx, request{method: http.MethodDelete, path: sandboxes(id)}, &out)
	return out, err
}

// The ways in which a sandbox stands still.
const (
	Freeze     = "freeze"     // no processors; its memory stays
	Checkpoint = "checkpoint" // on disk, and nothing else
)

// PauseSandbox makes a sandbox stand still; mode "" is Freeze.
func (c *Client) PauseSandbox(ctx context.Context, id, mode string) (Sandbox, error) {
	body := map[string]string{}
	if mode != "" {
		body["mode"] = mode
	}
	return c.steer(ctx, body, id, "pause")
}

// ResumeSandbox lets a sandbox go on.
func (c *Client) ResumeSandbox(ctx context.Context, id string) (Sandbox, error) {
	return c.steer(ctx, map[string]string{}, id, "resume")
}

func (c *Client) steer(ctx context.Context, body any, path ...string) (Sandbox, error) {
	var out Sandbox
	r, err := post(body, sandboxes(path...)...)
	if err == nil {
		_, err = c.call(ctx, r, &out)
	}
	return out, err
}

// SandboxStats measures a sandbox.
func (c *Client) SandboxStats(ctx context.Context, id string) (SandboxStats, error) {
	var out SandboxStats
	_, err := c.call(ctx, get(sandboxes(id, "stats")...), &out)
	return out, err
}

// Usage adds up what sandboxes have used since a moment; the zero one is the
// beginning.
func (c *Client) Usage(ctx context.Context, since time.Time) ([]Account, error) {
	r := get("api", "v1", "usage")
	if !since.IsZero() {
		r.query = url.Values{"since": {since.UTC().Format(time.RFC3339Nano)}}
	}
	var out []Account
	_, err := c.call(ctx, r, &out)
	return out, err
}
