package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// jobView is what the bench reads of a job.
type jobView struct {
	ID     string `json:"id"`
	Status string `json:"status"`
}

// statsView is what it reads of the queue's counts.
type statsView struct {
	Counts map[string]int64 `json:"counts"`
}

type eventView struct {
	Type string    `json:"type"`
	At   time.Time `json:"ts"`
}

// caller keeps its connections, as a client of a server does.
func caller() *http.Client {
	return &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
}

// get reads a path into answer, which may be nil, and says how long it took.
func (r *rig) get(ctx context.Context, path string, answer any) (time.Duration, error) {
	return call(ctx, http.DefaultClient, http.MethodGet, r.url+path, "", answer)
}

func call(ctx context.Context, c *http.Client, method, url, body string, answer any) (time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	begin := time.Now()
	resp, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	took := time.Since(begin)
	if err != nil {
		return 0, err
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return 0, fmt.Errorf("%s %s answered %s: %s", method, url, resp.Status, text)
	}
	if answer == nil {
		return took, nil
	}
	return took, json.Unmarshal(text, answer)
}

// prd is the smallest plan: one task that writes one file.
const prd = `{"project_id":1,"title":"bench","tasks":[{"role":"Employee","payload":{"action":"create file"}}]}`

// submit sends one plan and returns the id of its only job.
func (r *rig) submit(ctx context.Context, c *http.Client) (string, time.Duration, error) {
	var answer struct {
		JobIDs []string `json:"job_ids"`
	}
	took, err := call(ctx, c, http.MethodPost, r.url+"/prds", prd, &answer)
	if err != nil || len(answer.JobIDs) != 1 {
		return "", took, fmt.Errorf("submit: %d jobs, %w", len(answer.JobIDs), err)
	}
	return answer.JobIDs[0], took, nil
}
