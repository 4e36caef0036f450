package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
)

// FleetResources are what a worker of the fleet may use.
type FleetResources struct {
	CPULimit      float64      `json:"cpu_limit"` // processors
	MemoryLimitMB int64        `json:"memory_limit_mb"`
	NetworkPolicy FleetNetwork `json:"network_policy,omitzero"`
}

// FleetNetwork is how far a worker of the fleet may reach.
type FleetNetwork struct {
	AllowController *bool `json:"allow_controller,omitempty"`
	AllowExternal   bool  `json:"allow_external"`
}

// ManifestRequest asks for a manifest. Zero fields take the contract's, or the
// parent's.
type ManifestRequest struct {
	Contract      string          `json:"contract,omitempty"`
	ParentID      string          `json:"parent_id,omitempty"` // "" is a root
	StateSnapshot json.RawMessage `json:"state_snapshot,omitempty"`
	Resources     *FleetResources `json:"resources,omitempty"`
}

// Manifest is the paper of a worker of the fleet. It is to be shown as it was
// issued: whatever is changed makes it worthless.
type Manifest struct {
	WorkerID      string          `json:"worker_id"`
	ParentID      *string         `json:"parent_id"`
	Depth         int             `json:"depth"`
	StateSnapshot json.RawMessage `json:"state_snapshot"`
	IssuedAt      string          `json:"issued_at"`
	Resources     FleetResources  `json:"resources"`
	Signature     string          `json:"signature"`
}

// FleetWorker is the record of a worker of the fleet.
type FleetWorker struct {
	WorkerID       string          `json:"worker_id"`
	Manifest       Manifest        `json:"manifest"`
	Resources      FleetResources  `json:"resources"`
	Status         string          `json:"status"`
	StartedAt      *time.Time      `json:"started_at"`
	Reason         *string         `json:"reason"`
	Standing       string          `json:"standing"` // ACTIVE, QUARANTINED, EXPIRED
	Contract       string          `json:"contract"`
	Owner          string          `json:"owner"`
	SandboxID      *string         `json:"sandbox_id"`
	Network        string          `json:"network"`
	LastHeartbeat  *time.Time      `json:"last_heartbeat"`
	ExpiresAt      *time.Time      `json:"expires_at"`
	EndedAt        *time.Time      `json:"ended_at"`
	SignatureValid bool            `json:"signature_valid"`
	Quarantine     json.RawMessage `json:"quarantine"`
}

// Fleet is the workers of the fleet, with what they may use together.
type Fleet struct {
	Workers       []FleetWorker `json:"workers"`
	Active        int           `json:"active"`
	Quarantined   int           `json:"quarantined"`
	CPULimit      float64       `json:"cpu_limit"`
	MemoryLimitMB int64         `json:"memory_limit_mb"`
}

// Contract is what the workers of a project keep to together.
type Contract struct {
	Name              string   `json:"name"`
	Template          *string  `json:"template"`
	MaxDepth          int      `json:"max_depth"`
	MaxReplicas       int      `json:"max_replicas"`
	CooldownSeconds   float64  `json:"cooldown_seconds"`
	ExpirationSeconds *float64 `json:"expiration_seconds"`
	Active            int      `json:"active"`
	Issued            int      `json:"issued"`
	Utilisation       float64  `json:"utilisation"`
}

// ManifestKey is a key that manifests are checked against.
type ManifestKey struct {
	ID        string     `json:"id"`
	PublicKey string     `json:"public_key"`
	Signs     bool       `json:"signs"`
	CreatedAt time.Time  `json:"created_at"`
	RevokedAt *time.Time `json:"revoked_at"`
}

// LineageNode is a worker in the tree of who started whom.
type LineageNode struct {
	WorkerID string        `json:"worker_id"`
	Depth    int           `json:"depth"`
	State    string        `json:"state"`
	Children []LineageNode `json:"children"`
}

// Lineage is who started whom, and what is odd about it.
type Lineage struct {
	Roots     []LineageNode `json:"roots"`
	Orphans   []string      `json:"orphans"`
	Cycles    []string      `json:"cycles"`
	BadDepths []string      `json:"bad_depths"`
}

func fleetPath(rest ...string) []string { return append([]string{"api", "v1", "fleet"}, rest...) }

// IssueManifest asks for a manifest. What the law does not allow is a Problem of
// status 403, whose code says why.
func (c *Client) IssueManifest(ctx context.Context, m ManifestRequest) (out Manifest, err error) {
	err = c.postFleet(ctx, m, &out, "manifests")
	return out, err
}

// LaunchWorker shows a manifest and returns its worker when it runs.
func (c *Client) LaunchWorker(ctx context.Context, m Manifest) (out FleetWorker, err error) {
	err = c.postFleet(ctx, m, &out, "workers")
	return out, err
}

// Fleet lists the workers of the fleet, all of them or those that are there.
func (c *Client) Fleet(ctx context.Context, contract string, all bool) (out Fleet, err error) {
	r := get(fleetPath("workers")...)
	r.query = url.Values{}
	if contract != "" {
		r.query.Set("contract", contract)
	}
	if all {
		r.query.Set("all", "true")
	}
	_, err = c.call(ctx, r, &out)
	return out, err
}

// FleetWorker returns a worker of the fleet.
func (c *Client) FleetWorker(ctx context.Context, id string) (out FleetWorker, err error) {
	_, err = c.call(ctx, get(fleetPath("workers", id)...), &out)
	return out, err
}

// KillFleetWorker ends a worker and reports whether there was one.
func (c *Client) KillFleetWorker(ctx context.Context, id, reason string) (killed bool, err error) {
	r := request{method: http.MethodDelete, path: fleetPath("workers", id)}
	if reason != "" {
		r.query = url.Values{"reason": {reason}}
	}
	var out struct {
		Killed bool `json:"killed"`
	}
	_, err = c.call(ctx, r, &out)
	return out.Killed, err
}

// KillFleet ends every worker, or those under a contract, and returns their ids.
func (c *Client) KillFleet(ctx context.Context, contract, reason string) ([]string, error) {
	var out struct {
		Workers []string `json:"workers"`
	}
	err := c.postFleet(ctx, map[string]string{"contract": contract, "reason": reason}, &out, "kill-all")
	return out.Workers, err
}

// Quarantine says why a worker is put under quarantine.
type Quarantine struct {
	Reason   string `json:"reason,omitempty"`
	Source   string `json:"source,omitempty"`
	Severity string `json:"severity,omitempty"` // low, medium, high or critical; "" is medium
	Note     string `json:"note,omitempty"`
}

// QuarantineWorker puts a worker under quarantine.
func (c *Client) QuarantineWorker(ctx context.Context, id string, q Quarantine) (out FleetWorker, err error) {
	err = c.postFleet(ctx, q, &out, "workers", id, "quarantine")
	return out, err
}

// ReleaseWorker ends the quarantine of a worker, which goes on.
func (c *Client) ReleaseWorker(ctx context.Context, id, resolution string) (out FleetWorker, err error) {
	err = c.postFleet(ctx, map[string]string{"resolution": resolution}, &out, "workers", id, "release")
	return out, err
}

// TerminateWorker ends the quarantine of a worker, and the worker.
func (c *Client) TerminateWorker(ctx context.Context, id, resolution string) (out FleetWorker, err error) {
	err = c.postFleet(ctx, map[string]string{"resolution": resolution}, &out, "workers", id, "terminate")
	return out, err
}

// Heartbeat gives a sign of life of a worker, and reports whether it was taken.
func (c *Client) Heartbeat(ctx context.Context, id string) (accepted bool, err error) {
	var out struct {
		Accepted bool `json:"accepted"`
	}
	err = c.postFleet(ctx, map[string]string{}, &out, "workers", id, "heartbeat")
	return out.Accepted, err
}

// Replicate starts a child of a worker, with the same resources.
func (c *Client) Replicate(ctx context.Context, id, reason string, state json.RawMessage) (out FleetWorker, err error) {
	body := struct {
		Reason string          `json:"reason,omitempty"`
		State  json.RawMessage `json:"state_snapshot,omitempty"`
	}{reason, state}
	err = c.postFleet(ctx, body, &out, "workers", id, "replicate")
	return out, err
}

// Lineage returns who started whom.
func (c *Client) Lineage(ctx context.Context) (out Lineage, err error) {
	_, err = c.call(ctx, get(fleetPath("lineage")...), &out)
	return out, err
}

// Contracts lists contracts; Templates those to start from.
func (c *Client) Contracts(ctx context.Context) (out []Contract, err error) {
	_, err = c.call(ctx, get(fleetPath("contracts")...), &out)
	return out, err
}

// Templates lists the contracts to start from.
func (c *Client) Templates(ctx context.Context) (out []Contract, err error) {
	_, err = c.call(ctx, get(fleetPath("templates")...), &out)
	return out, err
}

// PutContract makes or changes a contract; body is what the route takes.
func (c *Client) PutContract(ctx context.Context, body map[string]any) (out Contract, err error) {
	err = c.postFleet(ctx, body, &out, "contracts")
	return out, err
}

// ManifestKeys lists the keys that manifests are checked against.
func (c *Client) ManifestKeys(ctx context.Context) (out []ManifestKey, err error) {
	_, err = c.call(ctx, get(fleetPath("keys")...), &out)
	return out, err
}

// RotateManifestKey makes a new key, which signs from now on.
func (c *Client) RotateManifestKey(ctx context.Context) (out ManifestKey, err error) {
	_, err = c.call(ctx, request{method: http.MethodPost, path: fleetPath("keys")}, &out)
	return out, err
}

// RevokeManifestKey makes all manifests under a key worthless.
func (c *Client) RevokeManifestKey(ctx context.Context, id string) error {
	_, err := c.call(ctx, request{method: http.MethodDelete, path: fleetPath("keys", id)}, nil)
	return err
}

func (c *Client) postFleet(ctx context.Context, body, out any, path ...string) error {
	r, err := post(body, fleetPath(path...)...)
	if err == nil {
		_, err = c.call(ctx, r, out)
	}
	return err
}
