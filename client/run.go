package client

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// The states of a run, beside Queued, Completed and Failed: COMPLETED says that
// there is a result, whatever its verdict, FAILED that there is none.
const (
	Running   Status = "RUNNING"
	Cancelled Status = "CANCELLED"
)

// Run is code to be run. Zero fields take the server's defaults.
type Run struct {
	Code             string            `json:"code"`
	Language         string            `json:"language,omitempty"`
	Timeout          int               `json:"timeout,omitempty"` // seconds
	Files            map[string]string `json:"files,omitempty"`
	ReadOnly         *bool             `json:"readonly,omitempty"`
	CaptureArtifacts *bool             `json:"capture_artifacts,omitempty"`
	Stdin            string            `json:"stdin,omitempty"`
	Args             []string          `json:"args,omitempty"`
	Env              map[string]string `json:"env,omitempty"`
	CPULimit         float64           `json:"cpu_limit,omitempty"`    // processors
	MemoryLimit      string            `json:"memory_limit,omitempty"` // such as "512m"
	Driver           string            `json:"driver,omitempty"`
	Image            string            `json:"image,omitempty"`
	Webhook          string            `json:"webhook,omitempty"` // of one that is queued
	ProjectID        int64             `json:"project_id,omitempty"`
}

// RunResult is what a run came to.
type RunResult struct {
	RunID         string                 `json:"run_id"`
	Success       bool                   `json:"success"`
	ExitCode      int                    `json:"exit_code"`
	Stdout        string                 `json:"stdout"`
	Stderr        string                 `json:"stderr"`
	ExecutionTime float64                `json:"execution_time"` // seconds
	TimedOut      bool                   `json:"timed_out"`
	Timeout       int                    `json:"timeout"`
	Artifacts     map[string]string      `json:"artifacts"` // Artifact decodes one
	ArtifactInfo  map[string]RunArtifact `json:"artifact_info"`
	Skipped       []string               `json:"artifacts_skipped"` // what was not taken, and why
	Verdict       string                 `json:"verdict"`
	Cause         string                 `json:"cause,omitempty"`
	Step          string                 `json:"step"`
	Language      string                 `json:"language"`
	Driver        string                 `json:"driver"`
	Isolation     string                 `json:"isolation"`
	Image         string                 `json:"image"`
	ImageDigest   string                 `json:"image_digest,omitempty"`
	Warm          bool                   `json:"warm"`
	Truncated     struct {
		Stdout bool `json:"stdout"`
		Stderr bool `json:"stderr"`
	} `json:"truncated"`
	Usage struct { // nil where it is not known
		CPUSeconds  *float64 `json:"cpu_seconds"`
		PeakMemory  *int64   `json:"peak_memory_bytes"`
		WallSeconds *float64 `json:"wall_seconds"`
	} `json:"usage"`
	Evidence struct {
		SHA256 string `json:"sha256"`
		Record string `json:"record"`
	} `json:"evidence"`
}

// RunArtifact says what a file is that a run left.
type RunArtifact struct {
	Size     int64  `json:"size"`
	SHA256   string `json:"sha256"`
	Encoding string `json:"encoding"` // text or base64
}

// Artifact returns the bytes of a file that the run left; nil where it left
// none of that name. The name is the program's: do not take it for a path.
func (r *RunResult) Artifact(name string) ([]byte, error) {
	text, left := r.Artifacts[name]
	if !left {
		return nil, nil
	}
	if r.ArtifactInfo[name].Encoding != "base64" {
		return []byte(text), nil
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("read artifact %q: %w", name, err)
	}
	return data, nil
}

// RunState is how a run stands. Result is there once it is COMPLETED, where one
// run was asked for.
type RunState struct {
	RunID     string     `json:"run_id"`
	Status    Status     `json:"status"`
	Language  string     `json:"language"`
	Attempt   int        `json:"attempt"`
	WorkerID  *string    `json:"worker_id"`
	Verdict   *string    `json:"verdict"`
	ExitCode  *int       `json:"exit_code"`
	Reason    *string    `json:"reason"`
	ProjectID *int64     `json:"project_id"`
	CreatedAt time.Time  `json:"created_at"`
	StartedAt *time.Time `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at"`
	Position  *int       `json:"position"`
	Wait      *float64   `json:"estimated_wait_seconds"`
	Result    *RunResult `json:"result"`
}

// Ended reports whether nothing follows.
func (s RunState) Ended() bool {
	return s.Status == Completed || s.Status == Failed || s.Status == Cancelled
}

// Run runs code and waits for what it comes to; when ctx ends, so does the run.
// A program that fails is a result, not an error.
func (c *Client) Run(ctx context.Context, run Run) (RunResult, error) {
	var out RunResult
	r, err := post(run, "run")
	if err == nil {
		_, err = c.call(ctx, r, &out)
	}
	return out, err
}

// SubmitRuns queues runs, all or none. While the server is away it is repeated
// under one idempotency key, so that nothing is made twice.
func (c *Client) SubmitRuns(ctx context.Context, runs ...Run) ([]RunState, error) {
	r, err := post(map[string]any{"runs": runs}, "api", "v1", "runs")
	if err != nil {
		return nil, err
	}
	r.header = http.Header{"Idempotency-Key": {rand.Text()}}
	var out struct {
		Runs []RunState `json:"runs"`
	}
	for try := range submitTries {
		if try > 0 {
			if err := pause(ctx, backoff(try)); err != nil {
				return nil, err
			}
		}
		if _, err = c.call(ctx, r, &out); !passing(err) {
			break
		}
	}
	return out.Runs, err
}

// GetRun looks at a run, and waits so long for its end.
func (c *Client) GetRun(ctx context.Context, id string, wait time.Duration) (RunState, error) {
	r := get("api", "v1", "runs", id)
	if seconds := int64(wait.Round(time.Second) / time.Second); seconds > 0 {
		r.query = url.Values{"wait": {strconv.FormatInt(min(seconds, 300), 10)}}
	}
	var out RunState
	_, err := c.call(ctx, r, &out)
	return out, err
}

// WaitRun waits for the end of a run, also across restarts of the server.
func (c *Client) WaitRun(ctx context.Context, id string) (RunState, error) {
	for failures := 0; ; {
		s, err := c.GetRun(ctx, id, time.Minute)
		switch {
		case err == nil && s.Ended():
			return s, nil
		case ctx.Err() != nil:
			return s, context.Cause(ctx)
		case err == nil:
			failures = 0
			continue
		case !passing(err):
			return s, err
		}
		failures++
		if err := pause(ctx, backoff(failures)); err != nil {
			return s, err
		}
	}
}

// CancelRun stops a run.
func (c *Client) CancelRun(ctx context.Context, id, reason string) (RunState, error) {
	var out RunState
	r, err := post(map[string]string{"reason": reason}, "api", "v1", "runs", id, "cancel")
	if err == nil {
		_, err = c.call(ctx, r, &out)
	}
	return out, err
}

// RunArtifact returns the bytes of a file that a run left; the caller closes it.
func (c *Client) RunArtifact(ctx context.Context, id, name string) (io.ReadCloser, error) {
	r := get(append([]string{"api", "v1", "runs", id, "artifacts"}, strings.Split(name, "/")...)...)
	r.accept = "*/*"
	return c.stream(ctx, r)
}

// Runs lists runs, newest first, page by page. status "" is any.
func (c *Client) Runs(ctx context.Context, status Status) iter.Seq2[RunState, error] {
	return func(yield func(RunState, error) bool) {
		r := get("api", "v1", "runs")
		r.query = url.Values{}
		if status != "" {
			r.query.Set("status", string(status))
		}
		for {
			var page []RunState
			head, err := c.call(ctx, r, &page)
			if err != nil {
				yield(RunState{}, err)
				return
			}
			for _, s := range page {
				if !yield(s, nil) {
					return
				}
			}
			if !strings.Contains(head.Get("Link"), `rel="next"`) || len(page) == 0 {
				return
			}
			r.query.Set("cursor", page[len(page)-1].RunID)
		}
	}
}

// FollowRun copies the output of a run as it comes, until it ends, and returns
// how it stands then. It goes on where it was after a lost connection. A run
// that is begun again, because its worker was lost, prints from the beginning.
func (c *Client) FollowRun(ctx context.Context, id string, stdout, stderr io.Writer) (RunState, error) {
	last := ""
	for failures := 0; ; {
		over, err := c.followOutput(ctx, id, &last, stdout, stderr)
		switch {
		case over:
			return c.GetRun(ctx, id, 0)
		case ctx.Err() != nil:
			return RunState{}, context.Cause(ctx)
		case !passing(err):
			return RunState{}, err
		}
		failures++
		if err := pause(ctx, backoff(failures)); err != nil {
			return RunState{}, err
		}
	}
}

// followOutput reads one stream of events; over says that the run has ended.
func (c *Client) followOutput(ctx context.Context, id string, last *string, stdout, stderr io.Writer) (over bool, err error) {
	r := get("api", "v1", "runs", id, "output")
	r.accept = "text/event-stream"
	if *last != "" {
		r.header = http.Header{"Last-Event-Id": {*last}}
	}
	body, err := c.stream(ctx, r)
	if err != nil {
		return false, err
	}
	defer func() { _ = body.Close() }()
	for frames := newFrameReader(body); ; {
		m, err := frames.next()
		if err != nil {
			return false, &Unreachable{Server: c.Server(), Err: err} // the end of it was not told
		}
		if m.id != "" {
			*last = m.id
		}
		to := stdout
		switch m.event {
		case "end":
			return true, nil
		case "stderr":
			to = stderr
		case "stdout":
		default:
			continue
		}
		if err := writePiece(to, []byte(m.data)); err != nil {
			return false, err
		}
	}
}

func writePiece(to io.Writer, data []byte) error {
	var piece struct {
		Data     string `json:"data"`
		Encoding string `json:"encoding"`
	}
	if err := json.Unmarshal(data, &piece); err != nil {
		return fmt.Errorf("read output: %w", err)
	}
	raw := []byte(piece.Data)
	if piece.Encoding == "base64" {
		var bytes struct {
			Data []byte `json:"data"`
		}
		if err := json.Unmarshal(data, &bytes); err != nil {
			return fmt.Errorf("read output: %w", err)
		}
		raw = bytes.Data
	}
	if _, err := to.Write(raw); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}
