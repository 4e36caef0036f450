package client

import (
	"context"
	"time"
)

// KillSwitch is one that was engaged.
type KillSwitch struct {
	ID            string     `json:"id"`
	Level         string     `json:"level"`
	Scope         string     `json:"scope"`
	ProjectID     *int64     `json:"project_id"`
	Label         *string    `json:"label"`
	Root          *string    `json:"root"`
	Reason        string     `json:"reason"`
	By            string     `json:"by"`
	Director      bool       `json:"director"` // it takes one to release it
	WorkerID      *string    `json:"worker_id"`
	EngagedAt     time.Time  `json:"engaged_at"`
	ReleasedAt    *time.Time `json:"released_at"`
	ReleasedBy    *string    `json:"released_by"`
	ReleaseReason *string    `json:"release_reason"`
}

// KillSwitches is how the kill switch stands.
type KillSwitches struct {
	Engaged  bool         `json:"engaged"`
	Switches []KillSwitch `json:"switches"`
	History  []KillSwitch `json:"history"`
}

// Stop says what is to be stopped, how, and why.
type Stop struct {
	Level     string `json:"level"`           // freeze or kill
	Scope     string `json:"scope,omitempty"` // all, project, label or subtree; "" is all
	ProjectID int64  `json:"project_id,omitempty"`
	Label     string `json:"label,omitempty"`
	Root      string `json:"root,omitempty"`
	Reason    string `json:"reason"`
}

// Stopped is what came of a stop, or of its end.
type Stopped struct {
	Switch      KillSwitch      `json:"switch"`
	Persisted   bool            `json:"persisted"`
	Problem     *string         `json:"problem"`
	Killed      int             `json:"killed"`
	Frozen      int             `json:"frozen"`
	Resumed     int             `json:"resumed"`
	Failed      int             `json:"failed"`
	Workers     []StoppedWorker `json:"workers"`
	Unreachable []string        `json:"unreachable"`
}

// StoppedWorker is what one worker did.
type StoppedWorker struct {
	WorkerID string  `json:"worker_id"`
	Killed   int     `json:"killed"`
	Frozen   int     `json:"frozen"`
	Resumed  int     `json:"resumed"`
	Failed   int     `json:"failed"`
	Problem  *string `json:"problem"`
	TookMS   float64 `json:"took_ms"`
}

// KillSwitches says what is stopped, and what was.
func (c *Client) KillSwitches(ctx context.Context) (KillSwitches, error) {
	var out KillSwitches
	_, err := c.call(ctx, get("api", "v1", "kill-switch"), &out)
	return out, err
}

// Stop engages the kill switch.
func (c *Client) Stop(ctx context.Context, s Stop) (Stopped, error) {
	return c.pull(ctx, s, "api", "v1", "kill-switch")
}

// Rearm lets new work begin after a kill; id "" is for every kill switch.
func (c *Client) Rearm(ctx context.Context, id, reason string) (Stopped, error) {
	return c.pull(ctx, map[string]string{"id": id, "reason": reason}, "api", "v1", "kill-switch", "rearm")
}

// Unfreeze lets go on what was frozen; id "" is all of it.
func (c *Client) Unfreeze(ctx context.Context, id, reason string) (Stopped, error) {
	return c.pull(ctx, map[string]string{"id": id, "reason": reason}, "api", "v1", "kill-switch", "unfreeze")
}

func (c *Client) pull(ctx context.Context, body any, path ...string) (Stopped, error) {
	var out Stopped
	r, err := post(body, path...)
	if err == nil {
		_, err = c.call(ctx, r, &out)
	}
	return out, err
}
