package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/aurea-dev/aurea/internal/filesync"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
)

// SyncingBody says how the files of a sandbox are kept alike with the stored
// files of a session.
type SyncingBody struct {
	Session    string `json:"session,omitempty" maxLength:"128" doc:"The session; that of the sandbox where it is left out, else its name, else its id."`
	Root       string `json:"root,omitempty" maxLength:"4095" doc:"The folder in the sandbox; /workspace where it is left out."`
	Strategy   string `json:"strategy,omitempty" enum:"last_write_wins,ask,auto_merge" doc:"What becomes of a file that changed on both sides; last_write_wins where it is left out."`
	Continuous bool   `json:"continuous,omitempty" doc:"Sync whenever something changes, and once more before the sandbox ends."`
}

func (b *SyncingBody) sync() *live.Sync {
	if b == nil {
		return nil
	}
	return &live.Sync{Session: b.Session, Root: b.Root, Strategy: b.Strategy, Continuous: b.Continuous}
}

// syncingBody shows what holds, with what was left out.
func syncingBody(s *live.Sandbox) *SyncingBody {
	if s.Spec.Sync == nil {
		return nil
	}
	how := s.SyncAs(live.Sync{})
	if how.Strategy == "" {
		how.Strategy = string(filesync.LastWriteWins)
	}
	return &SyncingBody{Session: how.Session, Root: how.Root, Strategy: how.Strategy, Continuous: how.Continuous}
}

// SyncBody asks for one pass. What is left out is as the sandbox has it.
type SyncBody struct {
	Session  string `json:"session,omitempty" maxLength:"128" doc:"The session; that of the sandbox where it is left out, else its name, else its id."`
	Root     string `json:"root,omitempty" maxLength:"4095" doc:"The folder in the sandbox; /workspace where it is left out."`
	Strategy string `json:"strategy,omitempty" enum:"last_write_wins,ask,auto_merge"`
}

func (b *SyncBody) sync() live.Sync {
	return live.Sync{Session: b.Session, Root: b.Root, Strategy: b.Strategy}
}

// ResolveBody settles a conflict.
type ResolveBody struct {
	Path    string `json:"path" maxLength:"1024" doc:"The file, relative to the folder that is synced."`
	Keep    string `json:"keep" enum:"sandbox,stored,merged" doc:"Which one is kept; the other stays as a version."`
	Session string `json:"session,omitempty" maxLength:"128" doc:"As it was synced, where that is not as the sandbox has it; root too."`
	Root    string `json:"root,omitempty" maxLength:"4095"`
}

// ConflictBody is a file that changed on both sides.
type ConflictBody struct {
	Path       string         `json:"path"`
	SHA256     string         `json:"sha256" doc:"Of the file in the sandbox, as modified_at."`
	ModifiedAt time.Time      `json:"modified_at"`
	Stored     StoredFileBody `json:"stored"`
	Winner     *string        `json:"winner" enum:"sandbox,stored,merged" doc:"Null while it is to be resolved."`
}

// SyncErrorBody is a file that could not be synced.
type SyncErrorBody struct {
	Path    string `json:"path"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// SyncResultBody is what a pass did.
type SyncResultBody struct {
	Uploaded   []string        `json:"uploaded" nullable:"false" doc:"From the sandbox."`
	Downloaded []string        `json:"downloaded" nullable:"false" doc:"Into the sandbox."`
	Deleted    []string        `json:"deleted" nullable:"false" doc:"On one side, because the other did."`
	Conflicts  []ConflictBody  `json:"conflicts" nullable:"false"`
	Errors     []SyncErrorBody `json:"errors" nullable:"false" doc:"The first hundred of them."`
	Failed     int             `json:"failed" doc:"How many there are."`
	Duration   float64         `json:"duration" doc:"Seconds."`
}

type syncOutput struct{ Body SyncResultBody }

func answerSync(r filesync.Result, err error) (*syncOutput, error) {
	if err != nil {
		return nil, err
	}
	b := SyncResultBody{
		Uploaded: append([]string{}, r.Uploaded...), Downloaded: append([]string{}, r.Downloaded...), Deleted: append([]string{}, r.Deleted...),
		Conflicts: []ConflictBody{}, Errors: []SyncErrorBody{}, Failed: r.Failed, Duration: r.Duration.Seconds(),
	}
	for i := range r.Conflicts {
		c := &r.Conflicts[i]
		b.Conflicts = append(b.Conflicts, ConflictBody{
			Path: c.Path, SHA256: c.SHA256, ModifiedAt: c.ModifiedAt.UTC(), Stored: storedBody(&c.Stored), Winner: orNull(string(c.Winner)),
		})
	}
	for _, f := range r.Errors {
		b.Errors = append(b.Errors, SyncErrorBody(f))
	}
	return &syncOutput{Body: b}, nil
}

func (a *API) registerSync() {
	register(a, route{
		method: http.MethodPost, path: "/sandboxes/{sandbox}/sync", action: policy.Control, id: "syncSandbox", tag: "storage", summary: "Sync the files of a sandbox",
		detail: "Makes a folder of the sandbox and the stored files of a session alike, both ways, in one pass. A file that cannot be synced is listed among the errors, and stops nothing.",
		body:   SyncBody{}, optional: true,
	}, a.syncSandbox)
	register(a, route{
		method: http.MethodPost, path: "/sandboxes/{sandbox}/sync/resolve", action: policy.Control, id: "resolveConflict", tag: "storage", summary: "Settle a conflict",
		body: ResolveBody{}, example: map[string]any{"path": "notes.txt", "keep": "sandbox"},
	}, a.resolveConflict)
}

func (a *API) syncSandbox(ctx context.Context, in *SandboxPath) (*syncOutput, error) {
	var body SyncBody
	if err := in.maybeInto(&body); err != nil {
		return nil, err
	}
	return answerSync(a.cfg.Keeper.SyncSandbox(ctx, in.ID, body.sync()))
}

func (a *API) resolveConflict(ctx context.Context, in *SandboxPath) (*syncOutput, error) {
	var body ResolveBody
	if err := in.into(&body); err != nil {
		return nil, err
	}
	return answerSync(a.cfg.Keeper.ResolveConflict(ctx, in.ID, live.Sync{Session: body.Session, Root: body.Root}, body.Path, filesync.Winner(body.Keep)))
}
