package httpapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/file"
	"github.com/aurea-dev/aurea/internal/filesync"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
)

// Storage keeps the files of sessions, which outlive their sandboxes. Sessions
// are those of the caller.
type Storage interface {
	// SyncSandbox does one pass with a sandbox that runs.
	SyncSandbox(ctx context.Context, id string, asked live.Sync) (filesync.Result, error)
	ResolveConflict(ctx context.Context, id string, asked live.Sync, path string, keep filesync.Winner) (filesync.Result, error)

	StoredFiles(ctx context.Context, session, after string, limit int) ([]file.File, error)
	StoredUsage(ctx context.Context, session string) (file.Usage, filesync.Limits, error)
	// OpenStored returns bytes that the caller closes; version 0 is the newest.
	OpenStored(ctx context.Context, session, path string, version int64) (file.File, blob.Blob, error)
	PutStored(ctx context.Context, session, path string, mode uint32, body io.Reader) (file.File, error)
	DeleteStored(ctx context.Context, session, path string) error
	StoredVersions(ctx context.Context, session, path string, limit int) ([]file.File, error)
	StoredDiff(ctx context.Context, session, path string, from, to int64) (string, error)
}

// StoredFileBody is a version of a stored file.
type StoredFileBody struct {
	SessionID  string    `json:"session_id"`
	Path       string    `json:"path"`
	Version    int64     `json:"version"`
	Size       int64     `json:"size"`
	SHA256     *string   `json:"sha256" doc:"Null where this version is that it was deleted."`
	Mode       *string   `json:"mode" doc:"In octal."`
	ModifiedAt time.Time `json:"modified_at"`
	StoredAt   time.Time `json:"stored_at"`
	Deleted    bool      `json:"deleted"`
	Origin     *string   `json:"origin" doc:"The sandbox that it came from; null is somebody outside."`
	Lost       bool      `json:"lost" doc:"Whether another version won over it in a conflict."`
}

func storedBody(f *file.File) StoredFileBody {
	b := StoredFileBody{
		SessionID: f.Session, Path: f.Path, Version: f.Version, Size: f.Size, SHA256: orNull(f.SHA256), ModifiedAt: f.Modified.UTC(), StoredAt: f.Stored.UTC(),
		Deleted: f.Deleted, Origin: orNull(f.Origin), Lost: f.Lost,
	}
	if !f.Deleted {
		mode := fmt.Sprintf("%04o", f.Mode)
		b.Mode = &mode
	}
	return b
}

func storedBodies(list []file.File) []StoredFileBody {
	out := make([]StoredFileBody, 0, len(list))
	for i := range list {
		out = append(out, storedBody(&list[i]))
	}
	return out
}

// StoragePath is the input of an operation on the files of a session.
type StoragePath struct {
	Exchange
	Session string `path:"session" maxLength:"128" doc:"The session; yours, by the name that its sandbox or you gave it."`
}

// StoredPath names one of them.
type StoredPath struct {
	StoragePath
	Path string `query:"path" required:"true" maxLength:"1024" doc:"Relative to the folder that is synced." example:"notes.txt"`
}

func (a *API) registerStorage() {
	const base = "/storage/{session}"
	register(a, route{
		method: http.MethodGet, path: base, action: policy.Read, id: "listStorage", tag: "storage", summary: "List the stored files of a session",
		detail: "They outlive the sandboxes that they came from. A session without files is an empty one.",
	}, a.listStorage)
	register(a, route{
		method: http.MethodGet, path: base + "/content", action: policy.Read, id: "getStored", tag: "storage", summary: "Read a stored file",
		detail: "Ranges work; the ETag is the SHA-256, X-Version the version.", answers: []string{"application/octet-stream"},
	}, a.getStored)
	register(a, route{
		method: http.MethodPut, path: base + "/content", action: policy.Control, id: "putStored", tag: "storage", summary: "Store a file",
		detail: "The body is what it holds. 413 where it is larger than a file may be, 429 with quota where the session would keep more than it may.",
	}, a.putStored)
	register(a, route{
		method: http.MethodDelete, path: base + "/content", action: policy.Control, id: "deleteStored", tag: "storage", status: http.StatusNoContent, summary: "Delete a stored file",
		detail: "Its older versions can still be read, while the quota has room for them.",
	}, a.deleteStored)
	register(a, route{
		method: http.MethodGet, path: base + "/versions", action: policy.Read, id: "listVersions", tag: "storage", summary: "List the versions of a stored file, newest first",
	}, a.listVersions)
	register(a, route{
		method: http.MethodGet, path: base + "/diff", action: policy.Read, id: "diffVersions", tag: "storage", summary: "Compare two versions of a stored text",
		detail: "As diff -u shows it.", answers: []string{"text/plain"},
	}, a.diffVersions)
}

type listStorageInput struct {
	StoragePath
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"At most so many."`
	Cursor string `query:"cursor" maxLength:"1024" doc:"Where to go on, from the Link header of the page before."`
}

// StorageUsageBody is what a session keeps, and what it may.
type StorageUsageBody struct {
	Files     int64 `json:"files"`
	Bytes     int64 `json:"bytes"`
	OldBytes  int64 `json:"old_bytes" doc:"Of versions that are not the newest; they go first when room is needed."`
	Quota     int64 `json:"quota_bytes" doc:"STORAGE_QUOTA_LIMIT_BYTES."`
	FileLimit int64 `json:"file_limit_bytes" doc:"AUREA_STORAGE_FILE_LIMIT."`
}

// StorageBody is the stored files of a session.
type StorageBody struct {
	SessionID string           `json:"session_id"`
	Usage     StorageUsageBody `json:"usage"`
	Files     []StoredFileBody `json:"files" nullable:"false"`
}

type listStorageOutput struct {
	Link string `header:"Link" doc:"The next page, as <URL>; rel=\"next\"; not there on the last."`
	Body StorageBody
}

func (a *API) listStorage(ctx context.Context, in *listStorageInput) (*listStorageOutput, error) {
	if in.Cursor != "" && file.CheckPath(in.Cursor) != nil {
		return nil, fault.Field("query.cursor", "is not a cursor of ours; take it from the Link header of the page before").WithCode("bad_cursor")
	}
	list, err := a.cfg.Keeper.StoredFiles(ctx, in.Session, in.Cursor, in.Limit)
	if err != nil {
		return nil, err
	}
	u, limits, err := a.cfg.Keeper.StoredUsage(ctx, in.Session)
	if err != nil {
		return nil, err
	}
	out := &listStorageOutput{Body: StorageBody{
		SessionID: in.Session, Files: storedBodies(list),
		Usage: StorageUsageBody{Files: u.Files, Bytes: u.Bytes, OldBytes: u.Older, Quota: limits.Bytes, FileLimit: limits.FileBytes},
	}}
	if len(list) == in.Limit { // the next page may be empty
		out.Link = nextLink(in.r.URL, "cursor", list[len(list)-1].Path)
	}
	return out, nil
}

type getStoredInput struct {
	StoredPath
	Version int64 `query:"version" minimum:"0" doc:"The newest where it is left out."`
}

func (a *API) getStored(ctx context.Context, in *getStoredInput) (*huma.StreamResponse, error) {
	f, b, err := a.cfg.Keeper.OpenStored(ctx, in.Session, in.Path, in.Version)
	if err != nil {
		return nil, err
	}
	in.w.Header().Set("X-Version", strconv.FormatInt(f.Version, 10))
	return download(&in.Exchange, b, "application/octet-stream", path.Base(f.Path), f.SHA256), nil
}

type putStoredInput struct {
	StoredPath
	Mode string `query:"mode" maxLength:"5" doc:"Its permissions, in octal; 0644 where it is left out." example:"0755"`
}

type storedOutput struct{ Body StoredFileBody }

func (a *API) putStored(ctx context.Context, in *putStoredInput) (*storedOutput, error) {
	mode, err := parseMode("query.mode", in.Mode)
	if err != nil {
		return nil, err
	}
	f, err := a.cfg.Keeper.PutStored(ctx, in.Session, in.Path, mode, &slowReader{r: in.r.Body, control: http.NewResponseController(in.w)})
	if err != nil {
		return nil, err
	}
	return &storedOutput{Body: storedBody(&f)}, nil
}

func (a *API) deleteStored(ctx context.Context, in *StoredPath) (*struct{}, error) {
	return nil, a.cfg.Keeper.DeleteStored(ctx, in.Session, in.Path)
}

type listVersionsInput struct {
	StoredPath
	Limit int `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"At most so many."`
}

type versionsOutput struct {
	Body []StoredFileBody `nullable:"false"`
}

func (a *API) listVersions(ctx context.Context, in *listVersionsInput) (*versionsOutput, error) {
	list, err := a.cfg.Keeper.StoredVersions(ctx, in.Session, in.Path, in.Limit)
	if err != nil {
		return nil, err
	}
	return &versionsOutput{Body: storedBodies(list)}, nil
}

type diffVersionsInput struct {
	StoredPath
	From int64 `query:"from" required:"true" minimum:"1" doc:"The older version."`
	To   int64 `query:"to" minimum:"0" doc:"The newer one; the newest where it is left out."`
}

func (a *API) diffVersions(ctx context.Context, in *diffVersionsInput) (*huma.StreamResponse, error) {
	text, err := a.cfg.Keeper.StoredDiff(ctx, in.Session, in.Path, in.From, in.To)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(huma.Context) {
		in.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		out := newSlowWriter(in.w)
		defer out.done()
		_, _ = io.WriteString(out, text) // a client that has gone needs no answer
	}}, nil
}
