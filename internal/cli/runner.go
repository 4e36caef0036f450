package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/client"
)

// runRequest is what is asked of a server, as POST /run takes it.
type runRequest struct {
	Code        string            `json:"code"`
	Language    string            `json:"language,omitempty"`
	Timeout     *int              `json:"timeout,omitempty"`
	Files       map[string]string `json:"files,omitempty"`
	ReadOnly    *bool             `json:"readonly,omitempty"`
	Stdin       string            `json:"stdin,omitempty"`
	Args        []string          `json:"args,omitempty"`
	Env         map[string]string `json:"env,omitempty"`
	CPULimit    *float64          `json:"cpu_limit,omitempty"`
	MemoryLimit string            `json:"memory_limit,omitempty"`
	Driver      string            `json:"driver,omitempty"`
	Image       string            `json:"image,omitempty"`
}

// runState is how a run stands, as far as a command needs to know.
type runState struct {
	ID     string     `json:"run_id"`
	Status string     `json:"status"`
	Reason string     `json:"reason"`
	Result *runResult `json:"result"`

	raw json.RawMessage // what the server said of the result, or of the run
}

// runResult is what a run came to.
type runResult struct {
	Success      bool              `json:"success"`
	ExitCode     int               `json:"exit_code"`
	TimedOut     bool              `json:"timed_out"`
	Timeout      int               `json:"timeout"`
	Verdict      string            `json:"verdict"`
	Cause        string            `json:"cause"`
	Step         string            `json:"step"`
	Artifacts    map[string]string `json:"artifacts"`
	ArtifactInfo map[string]struct {
		Encoding string `json:"encoding"`
	} `json:"artifact_info"`
}

// runner asks a server for runs.
type runner struct {
	server, key string
	http        *http.Client
}

func newRunner(server, key string) *runner {
	return &runner{server: strings.TrimRight(server, "/"), key: key, http: &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment},
		// A redirect would carry the key to somewhere that nobody named.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (r *runner) close() { r.http.CloseIdleConnections() }

// ask makes a request; the answer's body is the caller's to close.
func (r *runner) ask(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var sent io.Reader = http.NoBody
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("write request: %w", err)
		}
		sent = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, r.server+"/api/v1"+path, sent)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Content-Type", "application/json")
	if r.key != "" {
		req.Header.Set("Authorization", "Bearer "+r.key)
	}
	res, err := r.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, &client.Unreachable{Server: r.server, Err: err}
	}
	if res.StatusCode < http.StatusMultipleChoices {
		return res, nil
	}
	defer func() { _ = res.Body.Close() }()
	const most = 1 << 20
	p := &client.Problem{}
	if text, _ := io.ReadAll(io.LimitReader(res.Body, most)); json.Unmarshal(text, p) != nil {
		p = &client.Problem{}
	}
	p.Status = res.StatusCode
	return nil, p
}

// read makes a request and reads the answer.
func (r *runner) read(ctx context.Context, method, path string, body, answer any) error {
	res, err := r.ask(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	const most = 128 << 20
	if err := json.NewDecoder(io.LimitReader(res.Body, most)).Decode(answer); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("read the answer of %s: %w", r.server, err)
	}
	return nil
}

// submit queues a run.
func (r *runner) submit(ctx context.Context, request *runRequest) (id string, err error) {
	var answer struct {
		RunID string `json:"run_id"`
	}
	err = r.read(ctx, http.MethodPost, "/runs", request, &answer)
	if err == nil && answer.RunID == "" {
		err = fmt.Errorf("read the answer of %s: it names no run", r.server)
	}
	return answer.RunID, err
}

// follow copies one stream until the run has ended.
func (r *runner) follow(ctx context.Context, id, stream string, w io.Writer) error {
	res, err := r.ask(ctx, http.MethodGet, "/runs/"+url.PathEscape(id)+"/output?follow=true&stream="+stream, nil)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	_, err = io.Copy(w, res.Body)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// wait returns the run when it has ended.
func (r *runner) wait(ctx context.Context, id string) (*runState, error) {
	for {
		var raw json.RawMessage
		if err := r.read(ctx, http.MethodGet, "/runs/"+url.PathEscape(id)+"?wait=60", nil, &raw); err != nil {
			return nil, err
		}
		var state struct {
			runState
			Result json.RawMessage `json:"result"`
		}
		if err := json.Unmarshal(raw, &state); err != nil {
			return nil, fmt.Errorf("read the answer of %s: %w", r.server, err)
		}
		found := &state.runState
		found.raw = raw
		switch found.Status {
		case "QUEUED", "RUNNING":
			continue
		case "":
			return nil, errors.New("the server does not say how the run stands")
		}
		if len(state.Result) > 0 && string(state.Result) != "null" {
			found.Result, found.raw = &runResult{}, state.Result
			if err := json.Unmarshal(state.Result, found.Result); err != nil {
				return nil, fmt.Errorf("read the answer of %s: %w", r.server, err)
			}
		}
		return found, nil
	}
}

// cancel stops a run; one that has ended meanwhile needs no stopping.
func (r *runner) cancel(ctx context.Context, id string) {
	const enough = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, enough)
	defer cancel()
	if res, err := r.ask(ctx, http.MethodPost, "/runs/"+url.PathEscape(id)+"/cancel", map[string]string{"reason": "interrupted"}); err == nil {
		_ = res.Body.Close()
	}
}
