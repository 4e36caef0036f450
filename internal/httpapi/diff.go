package httpapi

import (
	"context"
	"net/http"
	"strings"

	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// DifferenceBody is a file that changed. All of it comes from inside.
type DifferenceBody struct {
	Path       string              `json:"path" doc:"Absolute, in the sandbox."`
	Change     evidence.ChangeKind `json:"change" enum:"added,modified,deleted"`
	Type       sandbox.FileType    `json:"type" enum:"file,dir,link" doc:"As it is now, or was."`
	SizeBefore *int64              `json:"size_before" doc:"Null if it was not there."`
	Size       *int64              `json:"size" doc:"Null if it is not there any more."`
	Diff       *string             `json:"diff" doc:"How its text changed, as git shows it. One after the other they are a patch."`
	Omitted    *string             `json:"omitted" enum:"binary,large,cut" doc:"Why a file has no diff: it is no text, it is large, or those before it took all the room."`
}

// SandboxDiffBody is how the files of a sandbox changed.
type SandboxDiffBody struct {
	SandboxID string           `json:"sandbox_id"`
	From      string           `json:"from"`
	To        *string          `json:"to" doc:"Null stands for now."`
	Added     int              `json:"added"`
	Modified  int              `json:"modified"`
	Deleted   int              `json:"deleted"`
	Changes   []DifferenceBody `json:"changes" nullable:"false" doc:"In the order of their paths."`
	Truncated bool             `json:"truncated" doc:"Whether there are more than are listed."`
}

type diffInput struct {
	SandboxPath
	From string `query:"from" required:"true" maxLength:"100" doc:"The id of a snapshot of this sandbox, or of the one that it was forked from."`
	To   string `query:"to" maxLength:"100" doc:"Another one; the files as they are now where it is left out."`
}

type diffOutput struct{ Body SandboxDiffBody }

func (a *API) registerDiff() {
	register(a, route{
		method: http.MethodGet, path: "/sandboxes/{sandbox}/diff", action: policy.Read, id: "diffSandbox", tag: "sandboxes", summary: "Compare the files of a sandbox at two moments",
		detail: "What was added, modified and deleted below /workspace from one snapshot to another, or until now. Small texts are shown line by line. To look into a snapshot that has the memory too, a sandbox goes on from it for a moment.",
	}, a.diffSandbox)
}

func (a *API) diffSandbox(ctx context.Context, in *diffInput) (*diffOutput, error) {
	for field, id := range map[string]string{"query.from": in.From, "query.to": in.To} {
		if (id != "" || field == "query.from") && checkSandboxID(id) != nil {
			return nil, fault.Field(field, "is not the id of a snapshot").WithCode("no_such_snapshot")
		}
	}
	c, err := a.cfg.Keeper.DiffSandbox(ctx, in.ID, in.From, in.To)
	if err != nil {
		return nil, err
	}
	out := SandboxDiffBody{
		SandboxID: in.ID, From: in.From, To: orNull(in.To), Changes: []DifferenceBody{}, Truncated: c.Left > 0,
		Added: c.Counts[evidence.Added], Modified: c.Counts[evidence.Modified], Deleted: c.Counts[evidence.Deleted],
	}
	for i := range c.Differences {
		out.Changes = append(out.Changes, differenceBody(&c.Differences[i]))
	}
	return &diffOutput{Body: out}, nil
}

func differenceBody(d *evidence.Difference) DifferenceBody {
	size := func(n int64) *int64 {
		if n < 0 {
			return nil
		}
		return &n
	}
	return DifferenceBody{
		Path: "/workspace/" + strings.ToValidUTF8(d.Path, "\uFFFD"), Change: d.Change, Type: d.Type, SizeBefore: size(d.Before), Size: size(d.After),
		Diff: orNull(d.Diff), Omitted: orNull(d.Why),
	}
}
