package httpapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/governor"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/policy"
)

// ReplicateBody asks for a child.
type ReplicateBody struct {
	Reason        string `json:"reason,omitempty" maxLength:"1000" doc:"Why, for the record."`
	StateSnapshot Object `json:"state_snapshot,omitempty" doc:"What the child is given along."`
}

// QuarantineWorkerBody says why a worker is put under quarantine.
type QuarantineWorkerBody struct {
	Reason   string `json:"reason,omitempty" maxLength:"1000"`
	Source   string `json:"source,omitempty" maxLength:"100" doc:"Who or what noticed; you, where it is left out."`
	Severity string `json:"severity,omitempty" enum:"low,medium,high,critical" doc:"medium where it is left out."`
	Note     string `json:"note,omitempty" maxLength:"1000"`
}

// AddNoteBody is a note.
type AddNoteBody struct {
	Text string `json:"text" maxLength:"1000"`
}

// ResolutionBody says what was found.
type ResolutionBody struct {
	Resolution string `json:"resolution,omitempty" maxLength:"1000"`
}

// KillFleetBody says whom and why.
type KillFleetBody struct {
	Contract string `json:"contract,omitempty" doc:"Only those under a contract."`
	Reason   string `json:"reason,omitempty" maxLength:"1000"`
}

// ReapBody says how long is too long.
type ReapBody struct {
	TimeoutSeconds *float64 `json:"timeout_seconds,omitempty" doc:"How long a worker may be silent; the server's own where it is left out."`
}

// HeartbeatBody says whether a sign of life was taken.
type HeartbeatBody struct {
	Accepted bool `json:"accepted"`
}

type heartbeatOutput struct{ Body HeartbeatBody }

func (a *API) heartbeatWorker(ctx context.Context, in *FleetPath) (*heartbeatOutput, error) {
	ok, err := a.cfg.Fleet.Heartbeat(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return &heartbeatOutput{Body: HeartbeatBody{Accepted: ok}}, nil
}

type replicateOutput struct {
	Status   int
	Location string `header:"Location"`
	Body     FleetWorkerBody
}

func (a *API) replicateWorker(ctx context.Context, in *FleetPath) (*replicateOutput, error) {
	var b ReplicateBody
	if err := in.maybeInto(&b); err != nil {
		return nil, err
	}
	w, err := a.cfg.Fleet.Replicate(ctx, in.ID, b.Reason, json.RawMessage(b.StateSnapshot))
	out, err := a.answerWorker(ctx, w, err)
	if err != nil {
		return nil, err
	}
	return &replicateOutput{Status: http.StatusCreated, Location: out.Location, Body: out.Body}, nil
}

type enforceOutput struct{ Body EnforceBody }

// EnforceBody is what came of holding a worker to its resources.
type EnforceBody struct {
	Enforced bool                  `json:"enforced" doc:"false where there is no such worker, and so nothing to measure."`
	Metric   *manifest.Enforcement `json:"metric"`
}

func (a *API) enforceWorker(ctx context.Context, in *FleetPath) (*enforceOutput, error) {
	e, ok, err := a.cfg.Fleet.Enforce(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	out := &enforceOutput{Body: EnforceBody{Enforced: ok}}
	if ok {
		out.Body.Metric = &e
	}
	return out, nil
}

func (a *API) quarantineWorker(ctx context.Context, in *FleetPath) (*fleetOutput, error) {
	var b QuarantineWorkerBody
	if err := in.maybeInto(&b); err != nil {
		return nil, err
	}
	severity, err := manifest.CheckSeverity(b.Severity)
	if err != nil {
		return nil, err
	}
	w, err := a.cfg.Fleet.Quarantine(ctx, in.ID, governor.Suspicion{Reason: b.Reason, Source: b.Source, Severity: severity, Note: b.Note})
	return a.answerWorker(ctx, w, err)
}

func (a *API) noteWorker(ctx context.Context, in *FleetPath) (*fleetOutput, error) {
	var b AddNoteBody
	if err := in.into(&b); err != nil {
		return nil, err
	}
	w, err := a.cfg.Fleet.NoteOn(ctx, in.ID, b.Text)
	return a.answerWorker(ctx, w, err)
}

func (a *API) releaseWorker(ctx context.Context, in *FleetPath) (*fleetOutput, error) {
	return a.resolve(ctx, in, a.cfg.Fleet.Release)
}

func (a *API) terminateWorker(ctx context.Context, in *FleetPath) (*fleetOutput, error) {
	return a.resolve(ctx, in, a.cfg.Fleet.Terminate)
}

func (a *API) resolve(ctx context.Context, in *FleetPath, how func(ctx context.Context, id, resolution string) (manifest.Worker, error)) (*fleetOutput, error) {
	var b ResolutionBody
	if err := in.maybeInto(&b); err != nil {
		return nil, err
	}
	w, err := how(ctx, in.ID, b.Resolution)
	return a.answerWorker(ctx, w, err)
}

// DeregisteredBody says whether there was one to deregister.
type DeregisteredBody struct {
	Deregistered bool `json:"deregistered"`
}

type deregisteredOutput struct{ Body DeregisteredBody }

func (a *API) deregisterWorker(ctx context.Context, in *FleetPath) (*deregisteredOutput, error) {
	done, err := a.cfg.Fleet.Deregister(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return &deregisteredOutput{Body: DeregisteredBody{Deregistered: done}}, nil
}

// DecommissionBody is what was done to take a worker out of service.
type DecommissionBody struct {
	WorkerID string          `json:"worker_id"`
	Steps    []governor.Step `json:"steps" nullable:"false"`
	Children []string        `json:"children" nullable:"false" doc:"Workers below it that are out of service too."`
	Orphans  []string        `json:"orphans" nullable:"false"`
}

type decommissionOutput struct{ Body DecommissionBody }

func (a *API) decommissionWorker(ctx context.Context, in *FleetPath) (*decommissionOutput, error) {
	var b ReasonBody
	if err := in.maybeInto(&b); err != nil {
		return nil, err
	}
	d, err := a.cfg.Fleet.Decommission(ctx, in.ID, b.Reason)
	if err != nil {
		return nil, err
	}
	return &decommissionOutput{Body: DecommissionBody{WorkerID: d.WorkerID, Steps: d.Steps, Children: d.Below(), Orphans: d.Orphans}}, nil
}

func (a *API) fleetForensics(ctx context.Context, in *FleetPath) (*huma.StreamResponse, error) {
	text, err := a.cfg.Fleet.Forensic(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(huma.Context) { writeJSON(in.w, http.StatusOK, json.RawMessage(text)) }}, nil
}

// EndedWorkersBody lists workers that were ended.
type EndedWorkersBody struct {
	Count   int      `json:"count"`
	Workers []string `json:"workers" nullable:"false"`
}

type endedWorkersOutput struct{ Body EndedWorkersBody }

func endedWorkers(ids []string, err error) (*endedWorkersOutput, error) {
	if err != nil {
		return nil, err
	}
	return &endedWorkersOutput{Body: EndedWorkersBody{Count: len(ids), Workers: append([]string{}, ids...)}}, nil
}

func (a *API) killFleet(ctx context.Context, in *struct{ Exchange }) (*endedWorkersOutput, error) {
	var b KillFleetBody
	if err := in.maybeInto(&b); err != nil {
		return nil, err
	}
	if b.Contract != "" && !manifest.ValidContract(b.Contract) {
		return nil, fault.Field("contract", "is not the name of a contract")
	}
	return endedWorkers(a.cfg.Fleet.KillAll(ctx, b.Contract, b.Reason))
}

func (a *API) reapFleet(ctx context.Context, in *struct{ Exchange }) (*endedWorkersOutput, error) {
	var b ReapBody
	if err := in.maybeInto(&b); err != nil {
		return nil, err
	}
	silent, err := seconds("timeout_seconds", b.TimeoutSeconds)
	if err != nil {
		return nil, err
	}
	if silent == nil {
		silent = new(time.Duration)
	} else if *silent < time.Second {
		return nil, fault.Field("timeout_seconds", "must be at least 1")
	}
	return endedWorkers(a.cfg.Fleet.Reap(ctx, *silent))
}

func (a *API) registerContracts(get func(path, id, summary, detail string, action policy.Action) route, post func(path, id, summary, detail string, action policy.Action, body any) route) {
	put := post("/contracts", "putContract", "Make or change a contract", "What is left out is the template's, or the default contract's. Workers that are there stay.", policy.Manage, PutContractBody{})
	put.optional, put.example = false, map[string]any{"name": "my-project", "template": "code_analysis", "max_replicas": 5}
	register(a, put, a.putContract)
	register(a, get("/contracts", "listContracts", "List contracts, and how much of each is used", "", policy.Read), a.listContracts)
	register(a, get("/templates", "listTemplates", "List the contracts to start from", "", policy.Read), a.listTemplates)
	register(a, get("/keys", "listManifestKeys", "List the keys that manifests are checked against", "", policy.Read), a.manifestKeys)
	register(a, post("/keys", "rotateManifestKey", "Make a new key, which signs manifests from now on", "Manifests under earlier keys stay good until those are revoked.", policy.Manage, nil), a.rotateManifestKey)
	register(a, route{
		method: http.MethodDelete, path: "/fleet/keys/{key}", action: policy.Manage, id: "revokeManifestKey", tag: "fleet", summary: "Make all manifests under a key worthless",
		detail: "Workers that run stay. The key that signs is replaced first.",
	}, a.revokeManifestKey)
}

type contractOutput struct{ Body ContractBody }

func (a *API) putContract(ctx context.Context, in *struct{ Exchange }) (*contractOutput, error) {
	var b PutContractBody
	if err := in.into(&b); err != nil {
		return nil, err
	}
	c, err := b.contract()
	if err != nil {
		return nil, err
	}
	if c, err = a.cfg.Fleet.PutContract(ctx, c); err != nil {
		return nil, err
	}
	return &contractOutput{Body: contractBody(&governor.Utilisation{Contract: c})}, nil
}

type contractsOutput struct {
	Body []ContractBody `nullable:"false"`
}

func (a *API) listContracts(ctx context.Context, _ *struct{ Exchange }) (*contractsOutput, error) {
	list, err := a.cfg.Fleet.Contracts(ctx)
	if err != nil {
		return nil, err
	}
	out := &contractsOutput{Body: []ContractBody{}}
	for i := range list {
		out.Body = append(out.Body, contractBody(&list[i]))
	}
	return out, nil
}

func (a *API) listTemplates(context.Context, *struct{ Exchange }) (*contractsOutput, error) {
	out := &contractsOutput{Body: []ContractBody{}}
	for _, t := range manifest.Templates() {
		out.Body = append(out.Body, contractBody(&governor.Utilisation{Contract: t}))
	}
	return out, nil
}

// ManifestKeyBody is a key that manifests are checked against.
type ManifestKeyBody struct {
	ID        string     `json:"id"`
	PublicKey string     `json:"public_key" doc:"Ed25519, in base64."`
	Signs     bool       `json:"signs" doc:"Whether this manager signs with it."`
	CreatedAt time.Time  `json:"created_at"`
	RevokedAt *time.Time `json:"revoked_at"`
}

func manifestKeyBody(k manifest.PublicKey, signing string) ManifestKeyBody {
	return ManifestKeyBody{ID: k.ID, PublicKey: base64.StdEncoding.EncodeToString(k.Public), Signs: k.ID == signing, CreatedAt: k.CreatedAt, RevokedAt: timeOrNull(k.RevokedAt)}
}

type manifestKeysOutput struct {
	Body []ManifestKeyBody `nullable:"false"`
}

func (a *API) manifestKeys(ctx context.Context, _ *struct{ Exchange }) (*manifestKeysOutput, error) {
	keys, signing, err := a.cfg.Fleet.ManifestKeys(ctx)
	if err != nil {
		return nil, err
	}
	out := &manifestKeysOutput{Body: []ManifestKeyBody{}}
	for _, k := range keys {
		out.Body = append(out.Body, manifestKeyBody(k, signing))
	}
	return out, nil
}

type manifestKeyOutput struct{ Body ManifestKeyBody }

func (a *API) rotateManifestKey(ctx context.Context, _ *struct{ Exchange }) (*manifestKeyOutput, error) {
	k, err := a.cfg.Fleet.RotateKey(ctx)
	if err != nil {
		return nil, err
	}
	return &manifestKeyOutput{Body: manifestKeyBody(k, k.ID)}, nil
}

type manifestKeyPath struct {
	Exchange
	ID string `path:"key" maxLength:"64" doc:"The id of the key."`
}

func (a *API) revokeManifestKey(ctx context.Context, in *manifestKeyPath) (*struct{}, error) {
	if err := checkPrintable("key", in.ID); err != nil {
		return nil, fault.New(fault.NotFound, "No key has this id.")
	}
	return nil, a.cfg.Fleet.RevokeKey(ctx, in.ID)
}
