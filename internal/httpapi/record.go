package httpapi

import (
	"context"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
)

// TryPath is the input of an operation on one try of a job.
type TryPath struct {
	JobPath
	Attempt int `query:"attempt" minimum:"0" maximum:"1000000" doc:"Which try; the newest when left out."`
}

type artifactInput struct {
	TryPath
	Name string `path:"name" maxLength:"1024" doc:"The name of the artifact, which may have slashes."`
}

// ArtifactBody is a file that a job left.
type ArtifactBody struct {
	Name   string `json:"name" example:"stdout.log"`
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
	URL    string `json:"url" doc:"Where to get it."`
}

type artifactsOutput struct {
	Body []ArtifactBody `nullable:"false"`
}

type evidenceOutput struct{ Body evidence.Record }

func (a *API) registerRecords() {
	get := func(rest, id, summary, detail string, answers ...string) route {
		return route{
			method: http.MethodGet, path: "/jobs/{id}/" + rest, action: policy.Read, id: id, tag: "evidence",
			summary: summary, detail: detail, answers: answers,
		}
	}
	register(a, get("evidence", "getEvidence", "See what ran and how it ended", ""), a.evidence)
	register(a, get("artifacts", "listArtifacts", "List the files that a job left", "stdout.log, stderr.log, changes.diff, and what it put into artifacts/."), a.artifacts)
	register(a, get("artifacts/{name}", "getArtifact", "Download a file that a job left", "Ranges work; the ETag is the SHA-256.", "application/octet-stream"), a.artifact)
	register(a, get("snapshot", "getSnapshot", "Download the workspace that a job left", "A reproducible tar rooted at the job's id. Ranges work; the ETag is the SHA-256.", "application/x-tar"), a.snapshot)
}

func (a *API) evidence(ctx context.Context, in *TryPath) (*evidenceOutput, error) {
	r, err := a.cfg.Manager.Evidence(ctx, in.ID, in.Attempt)
	if err != nil {
		return nil, err
	}
	return &evidenceOutput{Body: r}, nil
}

func (a *API) artifacts(ctx context.Context, in *TryPath) (*artifactsOutput, error) {
	list, err := a.cfg.Manager.Artifacts(ctx, in.ID, in.Attempt)
	if err != nil {
		return nil, err
	}
	out := &artifactsOutput{Body: []ArtifactBody{}}
	for _, f := range list {
		u := url.URL{Path: version + "/jobs/" + in.ID + "/artifacts/" + f.Name}
		if in.Attempt != 0 {
			u.RawQuery = "attempt=" + strconv.Itoa(in.Attempt)
		}
		out.Body = append(out.Body, ArtifactBody{Name: f.Name, SHA256: f.SHA256, Bytes: f.Bytes, URL: u.String()})
	}
	return out, nil
}

func (a *API) artifact(ctx context.Context, in *artifactInput) (*huma.StreamResponse, error) {
	if job.CheckPath("name", in.Name) != nil {
		return nil, fault.New(fault.NotFound, "The job left no artifact named %q.", clip(in.Name, 80))
	}
	f, about, err := a.cfg.Manager.OpenArtifact(ctx, in.ID, in.Attempt, in.Name)
	if err != nil {
		return nil, err
	}
	kind := "application/octet-stream"
	switch in.Name {
	case evidence.StdoutLog, evidence.StderrLog, evidence.ChangesDiff:
		kind = "text/plain; charset=utf-8"
	}
	return download(&in.Exchange, f, kind, path.Base(in.Name), about.SHA256), nil
}

func (a *API) snapshot(ctx context.Context, in *TryPath) (*huma.StreamResponse, error) {
	f, about, err := a.cfg.Manager.OpenSnapshot(ctx, in.ID, in.Attempt)
	if err != nil {
		return nil, err
	}
	return download(&in.Exchange, f, "application/x-tar", in.ID+".tar", about.SHA256), nil
}

// download sends a file. It came out of a sandbox, so no browser may take it
// for a page of ours: it is an attachment, its type is not guessed, and were
// it shown all the same, it could do nothing.
func download(e *Exchange, f io.ReadSeekCloser, kind, name, sha256 string) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(huma.Context) {
		defer func() { _ = f.Close() }()
		h := e.w.Header()
		h.Set("Content-Type", kind)
		h.Set("Content-Disposition", attachment(name))
		h.Set("Content-Security-Policy", "default-src 'none'; sandbox; frame-ancestors 'none'")
		h.Set("Cache-Control", "private, no-cache")
		h.Set("ETag", `"`+sha256+`"`)
		out := newSlowWriter(e.w)
		defer out.done()
		http.ServeContent(out, e.r, "", time.Time{}, f)
	}}
}

func attachment(name string) string {
	if v := mime.FormatMediaType("attachment", map[string]string{"filename": name}); v != "" {
		return v
	}
	return "attachment"
}
