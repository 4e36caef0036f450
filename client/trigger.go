package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// TriggerRequest asks for a trigger: a rule that watches each worker of the fleet
// and acts by itself. Nil fields take the server's.
type TriggerRequest struct {
	Kind             string   `json:"kind"` // resource_cpu, resource_memory, resource_disk, time_limit, request_rate, error_rate, manual, custom
	Label            string   `json:"label,omitempty"`
	Threshold        *float64 `json:"threshold,omitempty"`
	SustainedSeconds *float64 `json:"sustained_seconds,omitempty"`
	Severity         string   `json:"severity,omitempty"`
	Enabled          *bool    `json:"enabled,omitempty"`
	Contract         string   `json:"contract,omitempty"`
	Strategy         string   `json:"strategy,omitempty"` // graceful, forceful, quarantine, suspend
	TimeoutSeconds   *float64 `json:"timeout_seconds,omitempty"`
	Escalate         *bool    `json:"escalate_on_timeout,omitempty"`
	PreserveState    *bool    `json:"preserve_state,omitempty"`
	CooldownSeconds  *float64 `json:"cooldown_seconds,omitempty"`

	Hooks *TriggerHooks `json:"hooks,omitempty"`
}

// TriggerHooks are addresses that are called when a trigger fires. PreKill is asked
// first, within the timeout, and may abort it; Cleanup is told when a worker was
// killed, Notify of every firing and what came of it. A server shows them without
// their paths, which may be secrets.
type TriggerHooks struct {
	PreKill        *string  `json:"pre_kill,omitempty"`
	Cleanup        *string  `json:"cleanup,omitempty"`
	Notify         *string  `json:"notify,omitempty"`
	TimeoutSeconds *float64 `json:"timeout_seconds,omitempty"`
}

// Trigger is a rule that watches each worker of the fleet.
type Trigger struct {
	ID               string  `json:"id"`
	Kind             string  `json:"kind"`
	Label            string  `json:"label"`
	Threshold        float64 `json:"threshold"`
	SustainedSeconds float64 `json:"sustained_seconds"`
	Severity         string  `json:"severity"`
	Strategy         string  `json:"strategy"`
	TimeoutSeconds   float64 `json:"timeout_seconds"`
	Escalate         bool    `json:"escalate_on_timeout"`
	PreserveState    bool    `json:"preserve_state"`
	CooldownSeconds  float64 `json:"cooldown_seconds"`

	Hooks TriggerHooks `json:"hooks"`

	Enabled   bool      `json:"enabled"`
	Contract  *string   `json:"contract"`
	Preset    *string   `json:"preset"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// AppliedPreset is what was made of a preset, and what cannot be watched yet.
type AppliedPreset struct {
	Triggers []Trigger `json:"triggers"`
	LeftOut  []struct {
		Kind      string  `json:"kind"`
		Threshold float64 `json:"threshold"`
		Why       string  `json:"why"`
	} `json:"left_out"`
}

// Firing is what a trigger did to a worker.
type Firing struct {
	ID             string     `json:"id"`
	TriggerID      string     `json:"trigger_id"`
	Kind           string     `json:"kind"`
	Label          string     `json:"label"`
	Severity       string     `json:"severity"`
	WorkerID       string     `json:"worker_id"`
	Value          float64    `json:"value"`
	Threshold      float64    `json:"threshold"`
	BreachSeconds  float64    `json:"breach_seconds"`
	Strategy       string     `json:"strategy"`
	By             string     `json:"by"`
	Reason         string     `json:"reason"`
	Outcome        *string    `json:"outcome"` // nil while it is under way
	Detail         *string    `json:"detail"`
	Escalated      bool       `json:"escalated"`
	StatePreserved bool       `json:"state_preserved"`
	PreKill        *string    `json:"pre_kill"` // what the hook answered that was asked first; nil where none was
	FiredAt        time.Time  `json:"fired_at"`
	AskedAt        *time.Time `json:"asked_at"`
	Deadline       *time.Time `json:"deadline"`
	EndedAt        *time.Time `json:"ended_at"`
}

// Fired is what came of firing a trigger, or of reporting a value to it.
type Fired struct {
	Fired    bool    `json:"fired"`
	InBreach bool    `json:"in_breach"`
	Firing   *Firing `json:"firing"`
}

// Triggers lists the triggers, oldest first.
func (c *Client) Triggers(ctx context.Context) (out []Trigger, err error) {
	_, err = c.call(ctx, get(fleetPath("triggers")...), &out)
	return out, err
}

// AddTrigger makes a trigger. One that could never fire is a Problem with the
// code trigger_unavailable.
func (c *Client) AddTrigger(ctx context.Context, t TriggerRequest) (out Trigger, err error) {
	err = c.postFleet(ctx, t, &out, "triggers")
	return out, err
}

// RemoveTrigger removes a trigger.
func (c *Client) RemoveTrigger(ctx context.Context, id string) error {
	_, err := c.call(ctx, request{method: http.MethodDelete, path: fleetPath("triggers", id)}, nil)
	return err
}

// ApplyPreset makes the triggers of a preset, for all workers or for those under
// a contract.
func (c *Client) ApplyPreset(ctx context.Context, name, contract string) (out AppliedPreset, err error) {
	body := struct {
		Contract string `json:"contract,omitempty"`
	}{contract}
	err = c.postFleet(ctx, body, &out, "triggers", "presets", name)
	return out, err
}

// Firings lists what triggers did, newest first; those at a worker, unless it is
// "", and older than the one with the id before.
func (c *Client) Firings(ctx context.Context, worker, before string, limit int) (out []Firing, err error) {
	r := get(fleetPath("triggers", "firings")...)
	r.query = url.Values{"limit": {strconv.Itoa(limit)}}
	for name, value := range map[string]string{"worker": worker, "before": before} {
		if value != "" {
			r.query.Set(name, value)
		}
	}
	_, err = c.call(ctx, r, &out)
	return out, err
}

// FireTrigger fires a trigger of the kind manual at a worker, or reports a value
// to one of the kind custom.
func (c *Client) FireTrigger(ctx context.Context, worker, trigger string, value *float64, reason string) (out Fired, err error) {
	body := struct {
		TriggerID string   `json:"trigger_id"`
		Value     *float64 `json:"value,omitempty"`
		Reason    string   `json:"reason,omitempty"`
	}{trigger, value, reason}
	err = c.postFleet(ctx, body, &out, "workers", worker, "fire")
	return out, err
}

// ReviveWorker lets a worker go on that is suspended or under quarantine.
func (c *Client) ReviveWorker(ctx context.Context, id, reason string) (out FleetWorker, err error) {
	err = c.postFleet(ctx, map[string]string{"reason": reason}, &out, "workers", id, "revive")
	return out, err
}
