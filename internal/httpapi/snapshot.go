package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

// SandboxSnapshotBody is a snapshot of a sandbox.
type SandboxSnapshotBody struct {
	ID         string            `json:"id"`
	SandboxID  string            `json:"sandbox_id"`
	Kind       live.SnapshotKind `json:"kind" enum:"files,full"`
	Generation int64             `json:"generation"`
	Label      *string           `json:"label"`
	Bytes      int64             `json:"bytes"`
	SHA256     *string           `json:"sha256" doc:"Of the archive, if it is of files."`
	WorkerID   *string           `json:"worker_id" doc:"Where it is kept, if it is full."`
	CreatedAt  time.Time         `json:"created_at"`
}

func sandboxSnapshotBody(s *live.Snapshot) SandboxSnapshotBody {
	b := SandboxSnapshotBody{
		ID: s.ID, SandboxID: s.Sandbox, Kind: s.Kind, Generation: s.Generation, Label: orNull(s.Label), Bytes: s.Bytes, SHA256: orNull(s.SHA256), CreatedAt: s.CreatedAt.UTC(),
	}
	if s.Kind == live.Full {
		b.WorkerID = orNull(s.Worker)
	}
	return b
}

// TakeSnapshotBody asks for a snapshot.
type TakeSnapshotBody struct {
	Kind  string `json:"kind,omitempty" enum:"files,full" doc:"full has the memory too; files where it is left out."`
	Label string `json:"label,omitempty" maxLength:"200"`
}

// RestoreBody names what to go back to.
type RestoreBody struct {
	Snapshot string `json:"snapshot" doc:"The id of a full snapshot of this sandbox."`
}

// ForkBody asks for forks.
type ForkBody struct {
	Count    int64   `json:"count,omitempty" minimum:"1" maximum:"100" doc:"How many; 1 where it is left out."`
	Snapshot string  `json:"snapshot,omitempty" doc:"A full snapshot of this sandbox to fork from; one of now where it is left out."`
	Secrets  bool    `json:"secrets,omitempty" doc:"Whether new commands in the forks get the variables that were named secrets."`
	Labels   TextMap `json:"labels,omitempty" doc:"In place of those of the sandbox."`
}

type snapshotOutput struct{ Body SandboxSnapshotBody }

type snapshotsOutput struct {
	Link string                `header:"Link"`
	Body []SandboxSnapshotBody `nullable:"false"`
}

type listSnapshotsInput struct {
	SandboxPath
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Cursor string `query:"cursor" maxLength:"100"`
}

// SnapshotPath is the input of an operation on one snapshot.
type SnapshotPath struct {
	Exchange
	ID string `path:"snapshot" doc:"The id of the snapshot."`
}

type forkOutput struct {
	Body []SandboxBody `nullable:"false"`
}

func (a *API) registerSnapshots() {
	register(a, route{
		method: http.MethodPost, path: "/sandboxes/{sandbox}/snapshots", action: policy.Control, id: "takeSnapshot", tag: "sandboxes", status: http.StatusCreated,
		summary: "Take a snapshot of a sandbox", body: TakeSnapshotBody{}, optional: true,
		detail: "The sandbox goes on. A full one is kept at its worker and can be restored and forked from; one of files is an archive of what differs from the image.",
	}, a.takeSnapshot)
	register(a, route{
		method: http.MethodGet, path: "/sandboxes/{sandbox}/snapshots", action: policy.Read, id: "listSnapshots", tag: "sandboxes", summary: "List the snapshots of a sandbox, newest first",
	}, a.listSnapshots)
	register(a, route{
		method: http.MethodGet, path: "/snapshots/{snapshot}", action: policy.Read, id: "getSnapshotOf", tag: "sandboxes", summary: "Look at a snapshot",
	}, a.getSnapshot)
	register(a, route{
		method: http.MethodDelete, path: "/snapshots/{snapshot}", action: policy.Control, id: "deleteSnapshot", tag: "sandboxes", status: http.StatusNoContent, summary: "Remove a snapshot",
	}, a.deleteSnapshot)
	register(a, route{
		method: http.MethodPost, path: "/sandboxes/{sandbox}/restore", action: policy.Control, id: "restoreSandbox", tag: "sandboxes", summary: "Set a sandbox back to a snapshot, in place", body: RestoreBody{},
	}, a.restoreSandbox)
	register(a, route{
		method: http.MethodPost, path: "/sandboxes/{sandbox}/fork", action: policy.Submit, id: "forkSandbox", tag: "sandboxes", status: http.StatusCreated,
		summary: "Make sandboxes that go on from the same moment", body: ForkBody{}, optional: true,
		detail: "All of them, or none. Commands that ran go on in each, under their ids inside.",
	}, a.forkSandbox)
}

func (a *API) takeSnapshot(ctx context.Context, in *SandboxPath) (*snapshotOutput, error) {
	var body TakeSnapshotBody
	if err := in.maybeInto(&body); err != nil {
		return nil, err
	}
	if body.Kind == "" {
		body.Kind = string(live.Files)
	}
	if err := checkPrintable("label", body.Label); err != nil {
		return nil, err
	}
	s, err := a.cfg.Keeper.SnapshotSandbox(ctx, in.ID, live.SnapshotKind(body.Kind), body.Label)
	if err != nil {
		return nil, err
	}
	return &snapshotOutput{Body: sandboxSnapshotBody(&s)}, nil
}

func (a *API) listSnapshots(ctx context.Context, in *listSnapshotsInput) (*snapshotsOutput, error) {
	if _, err := a.cfg.Keeper.Sandbox(ctx, in.ID); err != nil {
		return nil, err
	}
	if in.Cursor != "" && checkSandboxID(in.Cursor) != nil {
		return nil, fault.Field("query.cursor", "is not a cursor of ours").WithCode("bad_cursor")
	}
	list, err := a.cfg.Keeper.Snapshots(ctx, store.SnapshotFilter{Sandbox: in.ID, Before: in.Cursor, Limit: in.Limit + 1})
	if err != nil {
		return nil, err
	}
	out := &snapshotsOutput{Body: []SandboxSnapshotBody{}}
	if len(list) > in.Limit {
		list = list[:in.Limit]
		out.Link = nextLink(in.r.URL, "cursor", list[len(list)-1].ID)
	}
	for i := range list {
		out.Body = append(out.Body, sandboxSnapshotBody(&list[i]))
	}
	return out, nil
}

func (a *API) getSnapshot(ctx context.Context, in *SnapshotPath) (*snapshotOutput, error) {
	s, err := a.cfg.Keeper.Snapshot(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return &snapshotOutput{Body: sandboxSnapshotBody(&s)}, nil
}

func (a *API) deleteSnapshot(ctx context.Context, in *SnapshotPath) (*struct{}, error) {
	return nil, a.cfg.Keeper.DropSnapshot(ctx, in.ID)
}

func (a *API) restoreSandbox(ctx context.Context, in *SandboxPath) (*sandboxOutput, error) {
	var body RestoreBody
	if err := in.into(&body); err != nil {
		return nil, err
	}
	if checkSandboxID(body.Snapshot) != nil {
		return nil, fault.Field("snapshot", "is not the id of a snapshot")
	}
	return answerSandbox(a.cfg.Keeper.RestoreSandbox(ctx, in.ID, body.Snapshot))
}

func (a *API) forkSandbox(ctx context.Context, in *SandboxPath) (*forkOutput, error) {
	body := ForkBody{Count: 1}
	if err := in.maybeInto(&body); err != nil {
		return nil, err
	}
	if body.Snapshot != "" && checkSandboxID(body.Snapshot) != nil {
		return nil, fault.Field("snapshot", "is not the id of a snapshot")
	}
	f := live.Fork{Snapshot: body.Snapshot, Count: int(body.Count), Secrets: body.Secrets}
	if body.Labels != nil {
		f.Labels = body.Labels
	}
	list, err := a.cfg.Keeper.ForkSandbox(ctx, in.ID, f)
	if err != nil {
		return nil, err
	}
	out := &forkOutput{Body: []SandboxBody{}}
	for i := range list {
		out.Body = append(out.Body, sandboxBody(&list[i]))
	}
	return out, nil
}
