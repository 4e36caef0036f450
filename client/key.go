package client

import (
	"context"
	"net/http"
	"time"
)

// Key is a key, without its secret.
type Key struct {
	ID        string     `json:"id"`
	Kind      string     `json:"kind"`
	Name      string     `json:"name"`
	Actions   []string   `json:"actions"`
	Owner     string     `json:"owner,omitempty"`
	ProjectID *int64     `json:"project_id"`
	CreatedAt time.Time  `json:"created_at"`
	CreatedBy string     `json:"created_by,omitempty"`
	ExpiresAt *time.Time `json:"expires_at"`
	RevokedAt *time.Time `json:"revoked_at"`
	UsedAt    *time.Time `json:"used_at"`
	Good      bool       `json:"good"`
}

// NewKey asks for a key. TTL 0 is for ever; no Actions are all of the kind's.
type NewKey struct {
	Kind      string   `json:"kind"`
	Name      string   `json:"name,omitempty"`
	TTL       float64  `json:"ttl,omitempty"` // seconds
	Actions   []string `json:"actions,omitempty"`
	Owner     string   `json:"owner,omitempty"`
	ProjectID int64    `json:"project_id,omitempty"` // 0 is none in particular
}

// MadeKey is a key that was just made, with the secret that is shown this once.
type MadeKey struct {
	Key
	Secret string `json:"secret"`
}

// CreateKey makes a key.
func (c *Client) CreateKey(ctx context.Context, k NewKey) (MadeKey, error) {
	var out MadeKey
	r, err := post(k, "api", "v1", "keys")
	if err == nil {
		_, err = c.call(ctx, r, &out)
	}
	return out, err
}

// Keys lists the keys, oldest first.
func (c *Client) Keys(ctx context.Context) ([]Key, error) {
	var out []Key
	_, err := c.call(ctx, get("api", "v1", "keys"), &out)
	return out, err
}

// RevokeKey ends a key.
func (c *Client) RevokeKey(ctx context.Context, id string) (Key, error) {
	var out Key
	_, err := c.call(ctx, request{method: http.MethodDelete, path: []string{"api", "v1", "keys", id}}, &out)
	return out, err
}

// SandboxToken is what a sandbox shows to look at what is its own.
type SandboxToken struct {
	Token     string    `json:"token"`
	ExpiresAt time.Time `json:"expires_at"`
}

// CreateSandboxToken makes a token that ends with its sandbox, or after ttl.
func (c *Client) CreateSandboxToken(ctx context.Context, sandbox string, ttl time.Duration) (SandboxToken, error) {
	var out SandboxToken
	r, err := post(map[string]float64{"ttl": ttl.Seconds()}, append(sandboxes(sandbox), "token")...)
	if err == nil {
		_, err = c.call(ctx, r, &out)
	}
	return out, err
}

// Pause says whether the organisation is paused.
type Pause struct {
	Paused    bool       `json:"paused"`
	Reason    *string    `json:"reason"`
	Actor     *string    `json:"actor"`
	ChangedAt *time.Time `json:"changed_at"`
}

// Paused says whether the organisation is paused.
func (c *Client) Paused(ctx context.Context) (Pause, error) {
	var out Pause
	_, err := c.call(ctx, get("api", "v1", "admin", "pause"), &out)
	return out, err
}

// PauseOrganisation keeps everything new from being taken in.
func (c *Client) PauseOrganisation(ctx context.Context, reason string) (Pause, error) {
	return c.setPause(ctx, "pause", reason)
}

// ResumeOrganisation lets it go on.
func (c *Client) ResumeOrganisation(ctx context.Context, reason string) (Pause, error) {
	return c.setPause(ctx, "resume", reason)
}

func (c *Client) setPause(ctx context.Context, verb, reason string) (Pause, error) {
	var out Pause
	r, err := post(map[string]string{"reason": reason}, "api", "v1", "admin", verb)
	if err == nil {
		_, err = c.call(ctx, r, &out)
	}
	return out, err
}
