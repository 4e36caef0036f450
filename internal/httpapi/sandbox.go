package httpapi

import (
	"context"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/httpapi/guard"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// Keeper keeps sandboxes. Each call finds its caller in ctx, as with Manager.
type Keeper interface {
	// CreateSandbox makes a sandbox, or answers the open one that has its name.
	CreateSandbox(ctx context.Context, req live.Request) (s live.Sandbox, made bool, err error)
	Sandbox(ctx context.Context, id string) (live.Sandbox, error)
	Sandboxes(ctx context.Context, f store.SandboxFilter) ([]live.Sandbox, error)
	UpdateSandbox(ctx context.Context, id string, ch live.Change) (live.Sandbox, error)
	EndSandbox(ctx context.Context, id, reason string) (live.Sandbox, error)
	PauseSandbox(ctx context.Context, id string, how live.Paused) (live.Sandbox, error)
	ResumeSandbox(ctx context.Context, id string) (live.Sandbox, error)
	SandboxStats(ctx context.Context, id string) (live.Stats, error)
	Accounts(ctx context.Context, since time.Time) ([]store.Account, error)

	SnapshotSandbox(ctx context.Context, id string, kind live.SnapshotKind, label string) (live.Snapshot, error)
	Snapshot(ctx context.Context, id string) (live.Snapshot, error)
	Snapshots(ctx context.Context, f store.SnapshotFilter) ([]live.Snapshot, error)
	DropSnapshot(ctx context.Context, id string) error
	RestoreSandbox(ctx context.Context, id, snapshot string) (live.Sandbox, error)
	ForkSandbox(ctx context.Context, id string, f live.Fork) ([]live.Sandbox, error)
	// DiffSandbox compares snapshots of files; to "" is now.
	DiffSandbox(ctx context.Context, id, from, to string) (evidence.Comparison, error)

	StartExec(ctx context.Context, c live.Command, asked run.Asked) (e live.Exec, replayed bool, err error)
	RunExec(ctx context.Context, c live.Command, asked run.Asked) (e live.Exec, replayed bool, err error)
	Exec(ctx context.Context, id string) (live.Exec, error)
	Execs(ctx context.Context, f store.ExecFilter) ([]live.Exec, error)
	// WaitExec returns an exec when it has ended, or with the cause when ctx has.
	WaitExec(ctx context.Context, id string) (live.Exec, error)
	ExecOutput(ctx context.Context, e *live.Exec, s sandbox.Stream, limit int64) ([]byte, error)
	// FollowExec hands over output until it has ended, or ctx has.
	FollowExec(ctx context.Context, id string, from sandbox.Offsets, only sandbox.Stream, piece func(live.Piece) error) error
	FeedExec(ctx context.Context, id string, offset int64, data []byte, last bool) error
	ResizeExec(ctx context.Context, id string, cols, rows uint16) error
	SignalExec(ctx context.Context, id string, signal int, tree bool) error
	KillExec(ctx context.Context, id, by string) (live.Exec, error)

	// Files are those of a sandbox that runs, one by one.
	Files(ctx context.Context, id string) (sandbox.Filer, error)
	// PatchFiles applies a unified diff, all of it or nothing.
	PatchFiles(ctx context.Context, id, dir string, diff io.Reader) ([]live.Patched, error)
	// DialSandbox connects to a port of one that runs.
	DialSandbox(ctx context.Context, id string, port uint16) (net.Conn, error)
	// LinkSandbox makes a token for a port of one that runs.
	LinkSandbox(ctx context.Context, id string, port uint16, until time.Time) (token string, err error)
	// BeforeWrite takes a snapshot of the files.
	BeforeWrite(ctx context.Context, id, path string) (live.Snapshot, error)
	Storage

	PutFiles(ctx context.Context, id, dir string, tar io.Reader) error
	GetFiles(ctx context.Context, id, path string, w io.Writer) error
}

// SandboxPath is the input of an operation on one sandbox.
type SandboxPath struct {
	Exchange
	ID string `path:"sandbox" doc:"The id of the sandbox."`
}

type sandboxOutput struct{ Body SandboxBody }

func answerSandbox(s live.Sandbox, err error) (*sandboxOutput, error) {
	if err != nil {
		return nil, err
	}
	return &sandboxOutput{Body: sandboxBody(&s)}, nil
}

func (a *API) registerSandboxes() {
	register(a, route{
		method: http.MethodPost, path: "/sandboxes", action: policy.Submit, id: "createSandbox", tag: "sandboxes", status: http.StatusCreated, summary: "Make a sandbox",
		detail: "Answers when it runs. It is yours until you end it, or its time is over. With a name that an open sandbox of yours has it answers that one, with 200. " +
			"422 names the field that is wrong; 429 with Retry-After when no worker has room, 503 when none is connected.",
		body: CreateSandboxBody{}, optional: true, example: map[string]any{"name": "my-agent", "ttl": 3600},
	}, a.createSandbox)
	register(a, route{
		method: http.MethodGet, path: "/sandboxes", action: policy.Read, id: "listSandboxes", tag: "sandboxes", summary: "List sandboxes, newest first",
	}, a.listSandboxes)
	register(a, route{
		method: http.MethodGet, path: "/sandboxes/{sandbox}", action: policy.Read, own: true, id: "getSandbox", tag: "sandboxes", summary: "Look at a sandbox",
	}, a.getSandbox)
	register(a, route{
		method: http.MethodPatch, path: "/sandboxes/{sandbox}", action: policy.Control, id: "updateSandbox", tag: "sandboxes", summary: "Change a sandbox", body: UpdateSandboxBody{},
	}, a.updateSandbox)
	register(a, route{
		method: http.MethodDelete, path: "/sandboxes/{sandbox}", action: policy.Control, id: "deleteSandbox", tag: "sandboxes", summary: "End a sandbox",
		detail: "Answers when nothing of it is left at its worker. Its record, and the output of its execs, stay until the retention lets go of them.",
	}, a.deleteSandbox)
	register(a, route{
		method: http.MethodPost, path: "/sandboxes/{sandbox}/cancel", action: policy.Control, id: "cancelSandbox", tag: "sandboxes", summary: "End a sandbox, with a reason",
		body: CancelBody{}, optional: true,
	}, a.cancelSandbox)
	register(a, route{
		method: http.MethodPost, path: "/sandboxes/{sandbox}/pause", action: policy.Control, id: "pauseSandbox", tag: "sandboxes", summary: "Make a sandbox stand still",
		detail: "freeze takes the processors away and keeps the memory; checkpoint writes it all to disk and frees the memory. What ran goes on after resume, with its pids and its output.",
		body:   PauseBody{}, optional: true,
	}, a.pauseSandbox)
	register(a, route{
		method: http.MethodPost, path: "/sandboxes/{sandbox}/resume", action: policy.Control, id: "resumeSandbox", tag: "sandboxes", summary: "Let a sandbox go on",
	}, a.resumeSandbox)
	register(a, route{
		method: http.MethodGet, path: "/sandboxes/{sandbox}/stats", action: policy.Read, own: true, id: "getSandboxStats", tag: "sandboxes", summary: "Measure a sandbox",
		detail: "With Accept: text/event-stream again and again, every interval seconds, until it has ended.", answers: []string{sse}, one: SandboxStatsBody{},
	}, a.sandboxStats)
	register(a, route{
		method: http.MethodGet, path: "/usage", action: policy.Read, id: "getUsage", tag: "sandboxes", summary: "Add up what sandboxes have used",
		detail: "Per owner, session and app: how long sandboxes lived, the processor time they used, and the memory they could use times how long.",
	}, a.usage)
	a.registerSnapshots()
	a.registerDiff()
	a.registerExecs()
	a.registerTar()
	a.registerFiles()
	a.registerPorts()
	a.registerSync()
	a.registerStorage()
}

type createSandboxInput struct{ Exchange }

type createSandboxOutput struct {
	Status   int
	Location string `header:"Location"`
	Body     SandboxBody
}

func (a *API) createSandbox(ctx context.Context, in *createSandboxInput) (*createSandboxOutput, error) {
	var body CreateSandboxBody
	if err := in.maybeInto(&body); err != nil {
		return nil, err
	}
	req, err := body.request()
	if err != nil {
		return nil, err
	}
	s, made, err := a.cfg.Keeper.CreateSandbox(ctx, req)
	if err != nil {
		return nil, err
	}
	out := &createSandboxOutput{Status: http.StatusCreated, Location: version + "/sandboxes/" + s.ID, Body: sandboxBody(&s)}
	if !made {
		out.Status = http.StatusOK
	}
	return out, nil
}

type listSandboxesInput struct {
	Exchange
	State  string   `query:"state" doc:"Only those in this state, in any case." example:"RUNNING"`
	Open   bool     `query:"open" doc:"Only those that have not ended."`
	Labels []string `query:"label,explode" maxItems:"16" doc:"Only those that have this label, as NAME=VALUE; may be said several times."`
	Limit  int      `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"At most so many."`
	Cursor string   `query:"cursor" maxLength:"100" doc:"Where to go on, from the Link header of the page before."`
}

type listSandboxesOutput struct {
	Link string        `header:"Link" doc:"The next page, as <URL>; rel=\"next\"; not there on the last."`
	Body []SandboxBody `nullable:"false"`
}

func (a *API) listSandboxes(ctx context.Context, in *listSandboxesInput) (*listSandboxesOutput, error) {
	f := store.SandboxFilter{Open: in.Open, Before: in.Cursor, Limit: in.Limit + 1, Labels: map[string]string{}}
	if in.State != "" {
		if f.State = sandbox.State(strings.ToUpper(in.State)); !f.State.Valid() {
			return nil, fault.Field("query.state", "%q is not a state", clip(in.State, 60)).WithCode("unknown_state")
		}
	}
	if in.Cursor != "" && !sandboxCursor(in.Cursor) {
		return nil, fault.Field("query.cursor", "is not a cursor of ours; take it from the Link header of the page before").WithCode("bad_cursor")
	}
	for _, l := range in.Labels {
		key, value, ok := strings.Cut(l, "=")
		if !ok {
			return nil, fault.Field("query.label", "%q is not NAME=VALUE", clip(l, 60))
		}
		f.Labels[key] = value
	}
	list, err := a.cfg.Keeper.Sandboxes(ctx, f)
	if err != nil {
		return nil, err
	}
	out := &listSandboxesOutput{Body: []SandboxBody{}}
	if len(list) > in.Limit || store.Full(list, store.SandboxBytes) {
		list = list[:min(len(list), in.Limit)]
		out.Link = nextLink(in.r.URL, "cursor", list[len(list)-1].ID)
	}
	for i := range list {
		out.Body = append(out.Body, sandboxBody(&list[i]))
	}
	return out, nil
}

func (a *API) getSandbox(ctx context.Context, in *SandboxPath) (*sandboxOutput, error) {
	return answerSandbox(a.cfg.Keeper.Sandbox(ctx, in.ID))
}

func (a *API) updateSandbox(ctx context.Context, in *SandboxPath) (*sandboxOutput, error) {
	var body UpdateSandboxBody
	if err := in.into(&body); err != nil {
		return nil, err
	}
	var ch live.Change
	var err error
	if ch.TTL, err = seconds("ttl", body.TTL); err != nil {
		return nil, err
	}
	if ch.Idle, err = seconds("idle_timeout", body.IdleTimeout); err != nil {
		return nil, err
	}
	switch on := live.OnTimeout(body.OnTimeout); on {
	case "":
	case live.Kill, live.Pause:
		ch.OnTimeout = &on
	default:
		return nil, fault.Field("on_timeout", "is neither kill nor pause")
	}
	if body.Labels != nil {
		ch.Labels = body.Labels
	}
	ch.Sync = body.Sync.sync()
	limits, err := limitsOf(body.CPULimit, body.MemoryLimit, body.Limits)
	if err != nil {
		return nil, err
	}
	if limits != (sandbox.Limits{}) {
		ch.Limits = &limits
	}
	return answerSandbox(a.cfg.Keeper.UpdateSandbox(ctx, in.ID, ch))
}

func (a *API) deleteSandbox(ctx context.Context, in *SandboxPath) (*sandboxOutput, error) {
	return answerSandbox(a.cfg.Keeper.EndSandbox(ctx, in.ID, ""))
}

func (a *API) cancelSandbox(ctx context.Context, in *SandboxPath) (*sandboxOutput, error) {
	var body CancelBody
	if err := in.maybeInto(&body); err != nil {
		return nil, err
	}
	return answerSandbox(a.cfg.Keeper.EndSandbox(ctx, in.ID, body.Reason))
}

// PauseBody says how a sandbox is made to stand still.
type PauseBody struct {
	Mode string `json:"mode,omitempty" enum:"freeze,checkpoint" doc:"freeze where it is left out."`
}

func (a *API) pauseSandbox(ctx context.Context, in *SandboxPath) (*sandboxOutput, error) {
	var body PauseBody
	if err := in.maybeInto(&body); err != nil {
		return nil, err
	}
	if body.Mode == "" {
		body.Mode = string(live.Frozen)
	}
	return answerSandbox(a.cfg.Keeper.PauseSandbox(ctx, in.ID, live.Paused(body.Mode)))
}

func (a *API) resumeSandbox(ctx context.Context, in *SandboxPath) (*sandboxOutput, error) {
	return answerSandbox(a.cfg.Keeper.ResumeSandbox(ctx, in.ID))
}

// SandboxStatsBody is how a sandbox is doing.
type SandboxStatsBody struct {
	SandboxUsageBody
	Execs int       `json:"execs" doc:"Commands that run."`
	At    time.Time `json:"at"`
}

type statsInput struct {
	SandboxPath
	Interval float64 `query:"interval" minimum:"0.1" maximum:"3600" default:"1" doc:"With a stream: seconds between two events."`
}

func statsBody(s live.Stats) SandboxStatsBody {
	return SandboxStatsBody{SandboxUsageBody: *sandboxUsage(s.Usage, s.Disk), Execs: s.Execs, At: s.At.UTC()}
}

func (a *API) sandboxStats(ctx context.Context, in *statsInput) (*huma.StreamResponse, error) {
	if err := checkNumber("query.interval", in.Interval); err != nil {
		return nil, err
	}
	s, err := a.cfg.Keeper.SandboxStats(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(in.r.Header.Get("Accept"), sse) {
		return &huma.StreamResponse{Body: func(huma.Context) { writeJSON(in.w, http.StatusOK, statsBody(s)) }}, nil
	}
	leave, err := a.streams.enter(ctx)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(huma.Context) {
		defer leave()
		out := &execStream{out: &eventWriter{out: newSlowWriter(in.w)}}
		defer out.out.out.done()
		if err := a.streamStats(ctx, in, out, s); err != nil && ctx.Err() == nil {
			guard.NoteError(ctx, err)
		}
	}}, nil
}

// streamStats measures a sandbox again and again, until it has ended.
func (a *API) streamStats(ctx context.Context, in *statsInput, out *execStream, s live.Stats) error {
	out.out.out.Header().Set("Content-Type", sse)
	out.out.out.Header().Set("X-Accel-Buffering", "no")
	out.out.out.WriteHeader(http.StatusOK)
	ctx, over := a.untilEnding(ctx)
	defer over()
	tick := time.NewTicker(time.Duration(in.Interval * float64(time.Second)))
	defer tick.Stop()
	for {
		if err := out.send("stats", statsBody(s)); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		x, err := a.cfg.Keeper.Sandbox(ctx, in.ID)
		if err == nil && x.State.Ended() {
			return out.send("end", sandboxBody(&x))
		}
		if err == nil {
			s, err = a.cfg.Keeper.SandboxStats(ctx, in.ID)
		}
		if err != nil && !fault.Is(err, fault.Unavailable) { // its worker may come back
			return err
		}
	}
}

type usageInput struct {
	Exchange
	Since time.Time `query:"since" doc:"From when on; everything that is kept where it is left out."`
}

// AccountBody is what somebody's sandboxes have used.
type AccountBody struct {
	Owner           string  `json:"owner"`
	SessionID       *string `json:"session_id"`
	App             *string `json:"app"`
	Sandboxes       int64   `json:"sandboxes"`
	SandboxSeconds  float64 `json:"sandbox_seconds"`
	CPUSeconds      float64 `json:"cpu_seconds"`
	GigabyteSeconds float64 `json:"gigabyte_seconds" doc:"The memory limit in GiB times how long."`
	Disk            int64   `json:"disk_bytes" doc:"Of files that were written in those that are open, as last measured."`
}

type usageOutput struct {
	Body []AccountBody `nullable:"false"`
}

func (a *API) usage(ctx context.Context, in *usageInput) (*usageOutput, error) {
	list, err := a.cfg.Keeper.Accounts(ctx, in.Since)
	if err != nil {
		return nil, err
	}
	out := &usageOutput{Body: []AccountBody{}}
	for _, x := range list {
		out.Body = append(out.Body, AccountBody{
			Owner: x.Owner, SessionID: orNull(x.Session), App: orNull(x.App), Sandboxes: x.Sandboxes,
			SandboxSeconds: x.Lived.Seconds(), CPUSeconds: x.CPU.Seconds(), GigabyteSeconds: x.MemoryTime / (1 << 30), Disk: x.Disk,
		})
	}
	return out, nil
}

// names are the names of a map, in order.
func names(m map[string]string) []string {
	return append([]string{}, slices.Sorted(maps.Keys(m))...)
}

// checkSandboxID refuses what is no id of a sandbox or a snapshot at all.
func checkSandboxID(id string) error {
	if (sandbox.Spec{ID: id}).Validate() == nil {
		return nil
	}
	return fault.New(fault.NotFound, "No sandbox has the id %q.", clip(id, 60))
}

// sandboxCursor reports whether a text can be where a page of sandboxes ended:
// the id of one, as we make them.
func sandboxCursor(text string) bool {
	const length, last = 26, 'v'
	return len(text) == length && checkSandboxID(text) == nil && !strings.ContainsFunc(text, func(c rune) bool { return c > last })
}

// checkNumber refuses what is read as a number and is none: every bound lets it
// through, as it is neither less nor more.
func checkNumber(field string, n float64) error {
	if math.IsNaN(n) {
		return fault.Field(field, "is not a number")
	}
	return nil
}

// checkPath refuses ids in a path that cannot be one: they never reach the
// manager.
func checkPath(hc huma.Context, r *http.Request) error {
	path := hc.Operation().Path
	for _, name := range []string{"sandbox", "snapshot"} {
		if strings.Contains(path, "{"+name+"}") {
			if err := checkSandboxID(r.PathValue(name)); err != nil {
				return err
			}
		}
	}
	if strings.Contains(path, "{exec}") {
		return checkID("exec", r.PathValue("exec"))
	}
	return nil
}
