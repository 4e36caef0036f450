package httpapi

import (
	"context"
	"net/http"

	"github.com/aurea-dev/aurea/internal/policy"
)

// CollectBody asks for a pass over the history.
type CollectBody struct {
	DryRun bool `json:"dry_run,omitempty" doc:"Only say what would be removed."`
}

// CollectionBody is what a pass removed, or would remove.
type CollectionBody struct {
	DryRun     bool  `json:"dry_run"`
	Plans      int64 `json:"plans" doc:"Plans that ended too long ago, with their jobs and records."`
	Runs       int64 `json:"runs" doc:"Runs that ended too long ago, with their records."`
	Sandboxes  int64 `json:"sandboxes" doc:"With their execs."`
	Events     int64 `json:"events"`
	Workers    int64 `json:"workers" doc:"Workers that were away for long."`
	Blobs      int64 `json:"blobs" doc:"Files that nothing refers to any more, or whose time is over."`
	BlobBytes  int64 `json:"blob_bytes"`
	SmallBytes int64 `json:"small_bytes" doc:"Bytes of small blobs, which lie with their records."`
	Outputs    int64 `json:"outputs" doc:"Live output of leases that are over."`
	KeptBlobs  int64 `json:"kept_blobs" doc:"Files that stay."`
	KeptBytes  int64 `json:"kept_bytes"`
}

type collectOutput struct{ Body CollectionBody }

type collectInput struct{ Exchange }

func (a *API) registerHistory() {
	register(a, route{
		method: http.MethodPost, path: "/gc", action: policy.Manage, id: "collectGarbage", tag: "system", summary: "Remove what is older than its retention",
		detail: "Does at once what the manager does every hour. What a record refers to within its retention is never removed. 409 while a pass runs.",
		body:   CollectBody{}, optional: true,
	}, a.collectGarbage)
}

func (a *API) collectGarbage(ctx context.Context, in *collectInput) (*collectOutput, error) {
	var body CollectBody
	if err := in.maybeInto(&body); err != nil {
		return nil, err
	}
	c, err := a.cfg.Manager.Collect(ctx, body.DryRun)
	if err != nil {
		return nil, err
	}
	return &collectOutput{Body: CollectionBody(c)}, nil
}
