package client

import (
	"context"
	"errors"
	"io"
)

type RunRequest struct {
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

type Run struct {
	ID           string                  `json:"run_id"`
	Status       string                  `json:"status"`
	ExitCode     int                     `json:"exit_code"`
	TimedOut     bool                    `json:"timed_out"`
	Timeout      int                     `json:"timeout"`
	Verdict      string                  `json:"verdict"`
	Signal       int                     `json:"signal"`
	Reason       string                  `json:"reason"`
	Artifacts    map[string]string       `json:"artifacts"`
	ArtifactInfo map[string]ArtifactInfo `json:"artifact_info"`
}

type ArtifactInfo struct {
	Encoding string `json:"encoding"`
}

type Language struct {
	Name    string   `json:"name"`
	Aliases []string `json:"aliases"`
	Active  bool     `json:"active"`
	Reason  string   `json:"reason"`
}

type PoolClass struct {
	Language string `json:"language"`
}

var errTODO = errors.New("todo")

func (c *Client) SubmitRun(ctx context.Context, r *RunRequest) (*Run, error) { return nil, errTODO }
func (c *Client) WaitRun(ctx context.Context, id string) (*Run, error)       { return nil, errTODO }
func (c *Client) CancelRun(ctx context.Context, id string) (*Run, error)     { return nil, errTODO }
func (c *Client) FollowRun(ctx context.Context, id, stream string, w io.Writer) error {
	return errTODO
}
