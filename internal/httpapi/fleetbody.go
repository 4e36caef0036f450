package httpapi

import (
	"encoding/json"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/governor"
	"github.com/aurea-dev/aurea/internal/manifest"
)

// NetworkPolicyBody is how far a worker of the fleet may reach.
type NetworkPolicyBody struct {
	AllowController *bool `json:"allow_controller,omitempty" doc:"Whether it may reach Aurea; true where it is left out. There is no way to it yet: a sandbox has no network at all."`
	AllowExternal   bool  `json:"allow_external" required:"false" doc:"Whether it may reach anything else; true is refused until there is a network."`
}

// ResourcesBody is what a worker of the fleet may use.
type ResourcesBody struct {
	CPULimit      float64           `json:"cpu_limit" doc:"Processors, such as 0.5."`
	MemoryLimitMB int64             `json:"memory_limit_mb" doc:"Megabytes of memory."`
	NetworkPolicy NetworkPolicyBody `json:"network_policy,omitempty"`
}

func (r *ResourcesBody) resources() manifest.Resources {
	n := manifest.DefaultNetwork()
	if r.NetworkPolicy.AllowController != nil {
		n.AllowController = *r.NetworkPolicy.AllowController
	}
	n.AllowExternal = r.NetworkPolicy.AllowExternal
	return manifest.Resources{CPULimit: r.CPULimit, MemoryLimitMB: r.MemoryLimitMB, Network: n}
}

func resourcesBody(r manifest.Resources) ResourcesBody {
	return ResourcesBody{
		CPULimit: r.CPULimit, MemoryLimitMB: r.MemoryLimitMB,
		NetworkPolicy: NetworkPolicyBody{AllowController: &r.Network.AllowController, AllowExternal: r.Network.AllowExternal},
	}
}

// IssueManifestBody asks for a manifest.
type IssueManifestBody struct {
	Contract      string         `json:"contract,omitempty" doc:"The contract that it is to be under: that of the parent, or default, where it is left out."`
	ParentID      string         `json:"parent_id,omitempty" doc:"The worker whose child it is; null for a root."`
	Depth         int            `json:"depth,omitempty" doc:"0 for a root. A child's is taken from its parent, whatever is said here."`
	StateSnapshot Object         `json:"state_snapshot,omitempty" doc:"What the worker is given along; at most 64 KiB."`
	Resources     *ResourcesBody `json:"resources,omitempty" doc:"Those of the parent, or of the contract, where they are left out."`
}

// ManifestBody is the paper of a worker of the fleet.
type ManifestBody struct {
	WorkerID      string        `json:"worker_id"`
	ParentID      *string       `json:"parent_id" required:"false"`
	Depth         int           `json:"depth"`
	StateSnapshot Object        `json:"state_snapshot,omitempty"`
	IssuedAt      string        `json:"issued_at" format:"date-time"`
	Resources     ResourcesBody `json:"resources"`
	Signature     string        `json:"signature" maxLength:"1000"`
}

const maxSignature = 1000

func (b *ManifestBody) manifest() (manifest.Manifest, error) {
	m := manifest.Manifest{WorkerID: b.WorkerID, Depth: b.Depth, State: json.RawMessage(b.StateSnapshot), Resources: b.Resources.resources(), Signature: b.Signature}
	if b.ParentID != nil {
		m.ParentID = *b.ParentID
	}
	at, err := time.Parse(time.RFC3339Nano, b.IssuedAt)
	if err != nil {
		return m, fault.Field("issued_at", "must be a time such as 2026-01-02T15:04:05.123456Z")
	}
	if len(b.Signature) > maxSignature {
		return m, fault.Field("signature", "is longer than %d bytes", maxSignature)
	}
	m.IssuedAt = at.UTC()
	return m, nil
}

func manifestBody(m *manifest.Manifest) ManifestBody {
	return ManifestBody{
		WorkerID: m.WorkerID, ParentID: orNull(m.ParentID), Depth: m.Depth, StateSnapshot: Object(m.State),
		IssuedAt: m.IssuedAt.UTC().Format(time.RFC3339Nano), Resources: resourcesBody(m.Resources), Signature: m.Signature,
	}
}

// FleetWorkerBody is the record of a worker of the fleet.
type FleetWorkerBody struct {
	WorkerID      string               `json:"worker_id"`
	Manifest      ManifestBody         `json:"manifest"`
	Resources     ResourcesBody        `json:"resources"`
	Status        string               `json:"status" enum:"issued,launching,running,ending,ended,killed" doc:"Where its container stands."`
	StartedAt     *time.Time           `json:"started_at"`
	Reason        *string              `json:"reason" doc:"Why it ended."`
	Standing      string               `json:"standing" enum:"ACTIVE,QUARANTINED,SUSPENDED,EXPIRED,ISSUED,ENDED" doc:"How it stands with the law."`
	Contract      string               `json:"contract"`
	Owner         string               `json:"owner"`
	SandboxID     *string              `json:"sandbox_id" doc:"Its sandbox."`
	Network       string               `json:"network" doc:"What of the network is really there."`
	LastHeartbeat *time.Time           `json:"last_heartbeat"`
	ExpiresAt     *time.Time           `json:"expires_at"`
	EndedAt       *time.Time           `json:"ended_at"`
	Signature     bool                 `json:"signature_valid" doc:"Whether the key that signed its manifest is still good."`
	Quarantine    *manifest.Quarantine `json:"quarantine" doc:"The quarantine that it is under, or was last."`
}

func fleetWorkerBody(w *manifest.Worker, now time.Time, valid bool) FleetWorkerBody {
	c := w.Container()
	return FleetWorkerBody{
		WorkerID: w.ID(), Manifest: manifestBody(&w.Manifest), Resources: resourcesBody(c.Resources), Status: c.Status, StartedAt: timeOrNull(w.StartedAt), Reason: c.Reason,
		Standing: w.Standing(now), Contract: w.Terms.Contract, Owner: w.Terms.Owner, SandboxID: orNull(w.Sandbox), Network: "none",
		LastHeartbeat: timeOrNull(w.HeartbeatAt), ExpiresAt: timeOrNull(w.ExpiresAt), EndedAt: timeOrNull(w.EndedAt), Signature: valid, Quarantine: w.Quarantine,
	}
}

// AskedStopConditionBody refuses registrations when something is reached.
type AskedStopConditionBody struct {
	Name      string  `json:"name" enum:"depth_utilization_limit,quota_pressure_limit,high_memory_guard"`
	Threshold float64 `json:"threshold,omitempty" doc:"The usual one where it is left out: 0.8, 0.9, 512."`
}

// PutContractBody is a contract as it is asked for. What is left out is the
// template's, or the default contract's.
type PutContractBody struct {
	Name              string                   `json:"name" doc:"Lower-case letters, digits, - and _."`
	ProjectID         int64                    `json:"project_id,omitempty"`
	Template          string                   `json:"template,omitempty" doc:"What it starts from; see /fleet/templates."`
	MaxDepth          *int                     `json:"max_depth,omitempty"`
	MaxReplicas       *int                     `json:"max_replicas,omitempty"`
	CooldownSeconds   *float64                 `json:"cooldown_seconds,omitempty"`
	ExpirationSeconds *float64                 `json:"expiration_seconds,omitempty" doc:"How long a worker lives; 0 is for ever."`
	StopConditions    []AskedStopConditionBody `json:"stop_conditions,omitempty" maxItems:"16"`
	Resources         *ResourcesBody           `json:"resources,omitempty" doc:"Those of a worker that asks for none."`
}

func (b *PutContractBody) contract() (c manifest.Contract, err error) {
	c = manifest.Default()
	if b.Template != "" {
		t, ok := manifest.FromTemplate(b.Template)
		if !ok {
			return c, fault.Field("template", "there is no template %q", clip(b.Template, 60)).WithCode("unknown_template")
		}
		c = t
	}
	c.Name, c.ProjectID = b.Name, b.ProjectID
	if b.MaxDepth != nil {
		c.MaxDepth = *b.MaxDepth
	}
	if b.MaxReplicas != nil {
		c.MaxReplicas = *b.MaxReplicas
	}
	for _, x := range []struct {
		field string
		from  *float64
		into  *time.Duration
	}{{"cooldown_seconds", b.CooldownSeconds, &c.Cooldown}, {"expiration_seconds", b.ExpirationSeconds, &c.Expiration}} {
		d, err := seconds(x.field, x.from)
		if err != nil {
			return c, err
		}
		if d != nil {
			*x.into = *d
		}
	}
	if b.StopConditions != nil {
		c.Stop = nil
	}
	for _, s := range b.StopConditions {
		c.Stop = append(c.Stop, manifest.StopCondition{Name: s.Name, Threshold: s.Threshold})
	}
	if b.Resources != nil {
		c.Resources = b.Resources.resources()
	}
	return c, nil
}

// ContractBody is a contract, and how much of it is used.
type ContractBody struct {
	Name              string                   `json:"name"`
	ProjectID         *int64                   `json:"project_id"`
	Template          *string                  `json:"template"`
	MaxDepth          int                      `json:"max_depth"`
	MaxReplicas       int                      `json:"max_replicas"`
	CooldownSeconds   float64                  `json:"cooldown_seconds"`
	ExpirationSeconds *float64                 `json:"expiration_seconds"`
	StopConditions    []manifest.StopCondition `json:"stop_conditions" nullable:"false"`
	Resources         ResourcesBody            `json:"resources"`
	Version           int64                    `json:"version"`
	Active            int                      `json:"active" doc:"Workers that count against it."`
	Issued            int                      `json:"issued" doc:"Manifests that wait to be used."`
	Utilisation       float64                  `json:"utilisation" doc:"Active workers as a share of max_replicas."`
}

func contractBody(u *governor.Utilisation) ContractBody {
	b := ContractBody{
		Name: u.Name, Template: orNull(u.Template), MaxDepth: u.MaxDepth, MaxReplicas: u.MaxReplicas, CooldownSeconds: u.Cooldown.Seconds(),
		ExpirationSeconds: secondsOrNull(u.Expiration), StopConditions: u.Stop, Resources: resourcesBody(u.Resources), Version: u.Version, Active: u.Active, Issued: u.Issued,
	}
	if u.ProjectID != 0 {
		b.ProjectID = &u.ProjectID
	}
	if b.StopConditions == nil {
		b.StopConditions = []manifest.StopCondition{}
	}
	if u.MaxReplicas > 0 {
		b.Utilisation = float64(u.Active) / float64(u.MaxReplicas)
	}
	return b
}
