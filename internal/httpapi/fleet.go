package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/governor"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

// Fleet is governed. Each call finds its caller in ctx, as with Manager.
type Fleet interface {
	Issue(ctx context.Context, a governor.Asked) (manifest.Manifest, error)
	// Register checks a manifest and launches its worker.
	Register(ctx context.Context, m manifest.Manifest) (manifest.Worker, error)
	Worker(ctx context.Context, id string) (manifest.Worker, error)
	Workers(ctx context.Context, f store.FleetFilter) ([]manifest.Worker, error)
	SignatureValid(ctx context.Context, list []manifest.Worker) ([]bool, error)
	Lineage(ctx context.Context, contract string) (manifest.Lineage, error)

	Kill(ctx context.Context, id, reason string) (w manifest.Worker, killed bool, err error)
	KillAll(ctx context.Context, contract, reason string) ([]string, error)
	Reap(ctx context.Context, silent time.Duration) ([]string, error)
	Heartbeat(ctx context.Context, id string) (accepted bool, err error)
	Replicate(ctx context.Context, id, reason string, state json.RawMessage) (manifest.Worker, error)
	Enforce(ctx context.Context, id string) (e manifest.Enforcement, ok bool, err error)
	Deregister(ctx context.Context, id string) (done bool, err error)
	Decommission(ctx context.Context, id, reason string) (governor.Decommission, error)

	Quarantine(ctx context.Context, id string, s governor.Suspicion) (manifest.Worker, error)
	NoteOn(ctx context.Context, id, text string) (manifest.Worker, error)
	Release(ctx context.Context, id, resolution string) (manifest.Worker, error)
	Terminate(ctx context.Context, id, resolution string) (manifest.Worker, error)
	Forensic(ctx context.Context, id string) ([]byte, error)
	// Revive lets one go on that is suspended or under quarantine.
	Revive(ctx context.Context, id, reason string) (manifest.Worker, error)

	Contracts(ctx context.Context) ([]governor.Utilisation, error)
	PutContract(ctx context.Context, c manifest.Contract) (manifest.Contract, error)
	ManifestKeys(ctx context.Context) (keys []manifest.PublicKey, signing string, err error)
	RotateKey(ctx context.Context) (manifest.PublicKey, error)
	RevokeKey(ctx context.Context, id string) error
}

// FleetPath is the input of an operation on one worker of the fleet.
type FleetPath struct {
	Exchange
	ID string `path:"worker" maxLength:"100" doc:"The id of the worker."`
}

// ReasonBody says why.
type ReasonBody struct {
	Reason string `json:"reason,omitempty" maxLength:"1000" doc:"Why, for the record."`
}

func (a *API) registerFleet() {
	get := func(path, id, summary, detail string, action policy.Action) route {
		return route{method: http.MethodGet, path: "/fleet" + path, action: action, id: id, tag: "fleet", summary: summary, detail: detail}
	}
	post := func(path, id, summary, detail string, action policy.Action, body any) route {
		return route{method: http.MethodPost, path: "/fleet" + path, action: action, id: id, tag: "fleet", summary: summary, detail: detail, body: body, optional: true}
	}
	issue := post("/manifests", "issueManifest", "Ask for a signed manifest", "What the law does not allow is 403, with a code that says why: deny_quota, deny_depth, deny_cooldown and so on.", policy.Govern, IssueManifestBody{})
	issue.status, issue.example = http.StatusCreated, map[string]any{"state_snapshot": map[string]any{"task": "look around"}}
	register(a, issue, a.issueManifest)
	launch := post("/workers", "launchWorker", "Show a manifest, and have its worker launched", "Answers when its sandbox runs. A manifest that was altered, used, too old or issued elsewhere is 403 and changes nothing.", policy.Govern, ManifestBody{})
	launch.status, launch.optional = http.StatusCreated, false
	register(a, launch, a.launchWorker)
	register(a, get("/workers", "listFleet", "List the workers of the fleet, newest first", "", policy.Read), a.listFleet)
	register(a, get("/workers/{worker}", "getFleetWorker", "Look at a worker of the fleet", "Also when it has ended, as long as the history goes back.", policy.Read), a.getFleetWorker)
	register(a, route{
		method: http.MethodDelete, path: "/fleet/workers/{worker}", action: policy.Govern, id: "killFleetWorker", tag: "fleet", summary: "Kill a worker of the fleet, with a reason",
		detail: "Answers when nothing of its sandbox is left. One that is not there is killed: false. The reason can be in a body {\"reason\": …} too.",
	}, a.killFleetWorker)
	on := func(verb, id, summary, detail string, body any) route {
		return post("/workers/{worker}/"+verb, id, summary, detail, policy.Govern, body)
	}
	register(a, on("heartbeat", "heartbeatFleetWorker", "Give a sign of life", "One of a worker that is not there is accepted: false; of one under quarantine, or whose time is over, 403.", nil), a.heartbeatWorker)
	register(a, on("replicate", "replicateFleetWorker", "Start a child of a worker, with the same resources", "A denial is 403 with its code.", ReplicateBody{}), a.replicateWorker)
	register(a, on("enforce", "enforceFleetWorker", "Hold a worker to its resources", "Measures it, and ends it where it exceeds them.", nil), a.enforceWorker)
	register(a, on("quarantine", "quarantineFleetWorker", "Put a worker under quarantine", "It has no children, its work stands still, and what there is of it is put aside first.", QuarantineWorkerBody{}), a.quarantineWorker)
	register(a, on("notes", "noteFleetWorker", "Add a note to a quarantine", "", AddNoteBody{}), a.noteWorker)
	register(a, on("release", "releaseFleetWorker", "End a quarantine, and let the worker go on", "", ResolutionBody{}), a.releaseWorker)
	register(a, on("terminate", "terminateFleetWorker", "End a quarantine, and the worker", "", ResolutionBody{}), a.terminateWorker)
	register(a, on("deregister", "deregisterFleetWorker", "End a worker in good order, with its sandbox", "", nil), a.deregisterWorker)
	register(a, on("decommission", "decommissionFleetWorker", "Take a worker and all below it out of service", "Step by step: notify, drain, children, permissions, resources, data, registry, verify.", ReasonBody{}), a.decommissionWorker)
	register(a, get("/workers/{worker}/forensics", "getFleetForensics", "Read what was put aside of a worker under quarantine", "", policy.Read), a.fleetForensics)
	register(a, post("/kill-all", "killFleet", "Kill every worker of the fleet", "", policy.Govern, KillFleetBody{}), a.killFleet)
	register(a, post("/reap", "reapFleet", "End workers that were silent for too long", "", policy.Govern, ReapBody{}), a.reapFleet)
	register(a, get("/lineage", "getLineage", "See who started whom", "With workers that lost their parent, and what cannot be.", policy.Read), a.lineage)
	a.registerContracts(get, post)
}

type manifestOutput struct{ Body ManifestBody }

func (a *API) issueManifest(ctx context.Context, in *struct{ Exchange }) (*manifestOutput, error) {
	var b IssueManifestBody
	if err := in.maybeInto(&b); err != nil {
		return nil, err
	}
	asked := governor.Asked{Contract: b.Contract, ParentID: b.ParentID, Depth: b.Depth, State: json.RawMessage(b.StateSnapshot)}
	if b.Resources != nil {
		r := b.Resources.resources()
		asked.Resources = &r
	}
	if asked.Contract != "" && !manifest.ValidContract(asked.Contract) {
		return nil, fault.Field("contract", "is not the name of a contract").WithCode("unknown_contract")
	}
	m, err := a.cfg.Fleet.Issue(ctx, asked)
	if err != nil {
		return nil, err
	}
	return &manifestOutput{Body: manifestBody(&m)}, nil
}

type fleetOutput struct {
	Location string `header:"Location"`
	Body     FleetWorkerBody
}

// answerWorker answers with a worker of the fleet.
func (a *API) answerWorker(ctx context.Context, w manifest.Worker, err error) (*fleetOutput, error) {
	if err != nil {
		return nil, err
	}
	valid, err := a.cfg.Fleet.SignatureValid(ctx, []manifest.Worker{w})
	if err != nil {
		return nil, err
	}
	return &fleetOutput{Location: version + "/fleet/workers/" + w.ID(), Body: fleetWorkerBody(&w, a.cfg.Now(), valid[0])}, nil
}

func (a *API) launchWorker(ctx context.Context, in *struct{ Exchange }) (*fleetOutput, error) {
	var b ManifestBody
	if err := in.into(&b); err != nil {
		return nil, err
	}
	m, err := b.manifest()
	if err != nil {
		return nil, err
	}
	w, err := a.cfg.Fleet.Register(ctx, m)
	return a.answerWorker(ctx, w, err)
}

type listFleetInput struct {
	Exchange
	Contract    string    `query:"contract" maxLength:"64" doc:"Only those under a contract."`
	Parent      string    `query:"parent" maxLength:"100" doc:"Only the children of a worker."`
	All         bool      `query:"all" doc:"Those that have ended, and manifests that wait to be used, too."`
	Quarantined bool      `query:"quarantined" doc:"Only those under quarantine."`
	Before      time.Time `query:"before" doc:"Only those whose manifest is older, for the next page: the issued_at of the last."`
	Limit       int       `query:"limit" minimum:"1" maximum:"10000" default:"1000" doc:"At most so many."`
}

// FleetBody is the fleet, with what its workers may use together.
type FleetBody struct {
	Workers       []FleetWorkerBody `json:"workers" nullable:"false"`
	Active        int               `json:"active"`
	Quarantined   int               `json:"quarantined"`
	CPULimit      float64           `json:"cpu_limit" doc:"Of those that are there, together."`
	MemoryLimitMB int64             `json:"memory_limit_mb"`
}

type listFleetOutput struct{ Body FleetBody }

func (a *API) listFleet(ctx context.Context, in *listFleetInput) (*listFleetOutput, error) {
	f := store.FleetFilter{Contract: in.Contract, Parent: in.Parent, Quarantined: in.Quarantined, Before: in.Before, Limit: in.Limit}
	if !in.All {
		f.States = []manifest.State{manifest.Launching, manifest.Running, manifest.Ending}
	}
	for _, text := range []string{in.Contract, in.Parent} {
		if err := checkPrintable("query", text); err != nil {
			return nil, err
		}
	}
	list, err := a.cfg.Fleet.Workers(ctx, f)
	if err != nil {
		return nil, err
	}
	valid, err := a.cfg.Fleet.SignatureValid(ctx, list)
	if err != nil {
		return nil, err
	}
	out, now := &listFleetOutput{Body: FleetBody{Workers: []FleetWorkerBody{}}}, a.cfg.Now()
	for i := range list {
		w := &list[i]
		out.Body.Workers = append(out.Body.Workers, fleetWorkerBody(w, now, valid[i]))
		if !w.State.Registered() {
			continue
		}
		out.Body.Active++
		out.Body.CPULimit += w.Manifest.Resources.CPULimit
		out.Body.MemoryLimitMB += w.Manifest.Resources.MemoryLimitMB
		if w.Quarantined() {
			out.Body.Quarantined++
		}
	}
	return out, nil
}

func (a *API) getFleetWorker(ctx context.Context, in *FleetPath) (*fleetOutput, error) {
	w, err := a.cfg.Fleet.Worker(ctx, in.ID)
	return a.answerWorker(ctx, w, err)
}

type killWorkerInput struct {
	FleetPath
	Reason string `query:"reason" maxLength:"1000" doc:"Why, unless the body says so."`
}

// KilledBody says whether there was one to kill.
type KilledBody struct {
	Killed   bool    `json:"killed"`
	WorkerID string  `json:"worker_id"`
	Reason   *string `json:"reason"`
}

type killedOutput struct{ Body KilledBody }

func (a *API) killFleetWorker(ctx context.Context, in *killWorkerInput) (*killedOutput, error) {
	var b ReasonBody
	if err := in.maybeInto(&b); err != nil {
		return nil, err
	}
	reason, err := one("reason", in.Reason, b.Reason)
	if err != nil {
		return nil, err
	}
	w, killed, err := a.cfg.Fleet.Kill(ctx, in.ID, reason)
	if err != nil {
		return nil, err
	}
	return &killedOutput{Body: KilledBody{Killed: killed, WorkerID: in.ID, Reason: orNull(w.Reason)}}, nil
}

type lineageInput struct {
	Exchange
	Contract string `query:"contract" maxLength:"64" doc:"Only those under a contract."`
}

type lineageOutput struct{ Body manifest.Lineage }

func (a *API) lineage(ctx context.Context, in *lineageInput) (*lineageOutput, error) {
	if err := checkPrintable("query.contract", in.Contract); err != nil {
		return nil, err
	}
	l, err := a.cfg.Fleet.Lineage(ctx, in.Contract)
	if err != nil {
		return nil, err
	}
	return &lineageOutput{Body: l}, nil
}
