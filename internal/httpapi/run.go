package httpapi

import (
	"context"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// ResultBody is what a run came to. The first nine fields are those that
// clients of a plain code runner know.
type ResultBody struct {
	RunID         string                     `json:"run_id" format:"uuid"`
	Success       bool                       `json:"success" doc:"Whether it ended by itself with exit code 0."`
	ExitCode      int                        `json:"exit_code" doc:"-1 where it was killed for its time; 128 and the signal where one ended it."`
	Stdout        string                     `json:"stdout" doc:"What it printed. Bytes that are no UTF-8 are U+FFFD here; the exact ones are at /api/v1/runs/{id}/output."`
	Stderr        string                     `json:"stderr"`
	ExecutionTime float64                    `json:"execution_time" doc:"Seconds that the program ran."`
	TimedOut      bool                       `json:"timed_out"`
	Timeout       int64                      `json:"timeout" doc:"Seconds that it had."`
	Artifacts     map[string]string          `json:"artifacts" nullable:"false" doc:"What it left, by name: text, or base64 where artifact_info says so."`
	ArtifactInfo  map[string]RunArtifactBody `json:"artifact_info" nullable:"false"`
	Skipped       []string                   `json:"artifacts_skipped" nullable:"false" doc:"What was not taken, and why."`
	Verdict       sandbox.Verdict            `json:"verdict" enum:"ok,failed,signal,timeout,oom,limit,killed,lost"`
	Cause         string                     `json:"cause,omitempty" doc:"What the verdict is about, where there is more to say."`
	Step          string                     `json:"step" enum:"run,compile" doc:"compile where the program was never started because it could not be compiled."`
	Language      string                     `json:"language"`
	Driver        string                     `json:"driver"`
	Isolation     string                     `json:"isolation"`
	Image         string                     `json:"image"`
	ImageDigest   string                     `json:"image_digest,omitempty"`
	Warm          bool                       `json:"warm" doc:"Whether its sandbox was waiting for it."`
	Truncated     RunTruncatedBody           `json:"truncated"`
	Usage         RunUsageBody               `json:"usage"`
	Evidence      RunEvidenceBody            `json:"evidence"`
	Timing        []RunStageBody             `json:"timing,omitempty" nullable:"false" doc:"Where the time went; only with ?debug=timing."`
}

// RunArtifactBody says what an artifact is.
type RunArtifactBody struct {
	Size     int64  `json:"size"`
	SHA256   string `json:"sha256"`
	Encoding string `json:"encoding" enum:"text,base64"`
}

// RunTruncatedBody says of which stream there was more than is kept.
type RunTruncatedBody struct {
	Stdout bool `json:"stdout"`
	Stderr bool `json:"stderr"`
}

// RunUsageBody is what a run has used; null where that is not known.
type RunUsageBody struct {
	CPUSeconds  *float64 `json:"cpu_seconds"`
	PeakMemory  *int64   `json:"peak_memory_bytes"`
	WallSeconds *float64 `json:"wall_seconds"`
}

// RunEvidenceBody names the record of a run.
type RunEvidenceBody struct {
	SHA256 string `json:"sha256" doc:"The digest of the record."`
	Record string `json:"record" doc:"Where the record is."`
}

// RunStageBody is a stretch of a run.
type RunStageBody struct {
	Stage   string  `json:"stage"`
	Seconds float64 `json:"seconds"`
}

func resultBody(a *run.Answer, timing bool) ResultBody {
	r := a.Result
	b := ResultBody{
		RunID: a.ID, Success: r.Verdict == sandbox.OK, ExitCode: exitCode(r), Stdout: legible(a.Stdout), Stderr: legible(a.Stderr),
		ExecutionTime: wall(r).Seconds(), TimedOut: r.Verdict == sandbox.Timeout, Timeout: int64(a.Timeout / time.Second),
		Artifacts: map[string]string{}, ArtifactInfo: map[string]RunArtifactBody{}, Skipped: append([]string{}, r.Skipped...),
		Verdict: r.Verdict, Cause: r.Cause, Step: r.Step, Language: a.Language, Driver: r.Driver, Isolation: r.Isolation, Image: r.Image,
		ImageDigest: r.Digest, Warm: r.Warm, Truncated: RunTruncatedBody{Stdout: r.Stdout.Truncated, Stderr: r.Stderr.Truncated},
		Usage: usageBody(r.Usage), Evidence: RunEvidenceBody{SHA256: a.Evidence, Record: version + "/runs/" + a.ID + "/evidence"},
	}
	for name, about := range r.Artifacts {
		info := RunArtifactBody{Size: about.Bytes, SHA256: about.SHA256, Encoding: "text"}
		var base64 bool
		if b.Artifacts[name], base64 = shown(a.Artifacts[name]); base64 {
			info.Encoding = "base64"
		}
		b.ArtifactInfo[name] = info
	}
	for _, s := range a.Stages {
		if timing {
			b.Timing = append(b.Timing, RunStageBody{Stage: s.Name, Seconds: s.Took.Seconds()})
		}
	}
	return b
}

// exitCode is what clients know as one: a shell would say the same.
func exitCode(r *run.Result) int {
	switch {
	case r.Verdict == sandbox.Timeout:
		return -1
	case r.ExitCode < 0 && r.Signal > 0:
		return 128 + r.Signal
	}
	return r.ExitCode
}

func wall(r *run.Result) time.Duration {
	if r.Usage.Wall >= 0 {
		return r.Usage.Wall
	}
	return max(r.Ended.Sub(r.Started), 0)
}

func usageBody(u run.Usage) (b RunUsageBody) {
	seconds := func(d time.Duration) *float64 {
		s := d.Seconds()
		return &s
	}
	if u.CPU >= 0 {
		b.CPUSeconds = seconds(u.CPU)
	}
	if u.PeakMemory >= 0 {
		b.PeakMemory = &u.PeakMemory
	}
	if u.Wall >= 0 {
		b.WallSeconds = seconds(u.Wall)
	}
	return b
}

type executeInput struct {
	Exchange
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"200" doc:"The same key with the same body answers as the first time, and runs nothing twice."`
	Debug          string `query:"debug" enum:"timing" doc:"timing: say where the time went."`
	QueueTimeout   int64  `query:"queue_timeout" minimum:"1" maximum:"600" doc:"Seconds to wait for a worker with room; AUREA_RUN_PATIENCE where it is left out."`
}

type executeOutput struct {
	Replayed string `header:"Idempotency-Replayed"`
	Body     ResultBody
}

func (a *API) registerRuns() {
	register(a, route{
		method: http.MethodPost, path: "/run", action: policy.Submit, id: "run", tag: "runs", summary: "Run code and wait for what it comes to",
		detail: "The program runs in a sandbox of its own, without network, which is gone afterwards. A program that fails, runs out of time or out of memory is an answer, not an error. Who hangs up stops the run. " +
			"422 names the field that is wrong; 429 with Retry-After when no worker had room in time, and 503 when none is connected.",
		body: RunBody{}, example: map[string]any{"code": "print('Hello, World!')", "language": run.DefaultLanguage},
	}, a.execute)
	register(a, route{
		method: http.MethodPost, path: "/runs", action: policy.Submit, id: "submitRuns", tag: "runs", status: http.StatusAccepted,
		summary: "Queue code to be run", body: RunBody{}, example: map[string]any{"code": "print('Hello, World!')", "language": run.DefaultLanguage},
		detail: "Takes what POST /run takes, or {\"runs\": [...]} with up to 1,000 of them, all or none. They are on disk when it answers, and end whatever is restarted meanwhile. A webhook is told of the end.",
	}, a.submitRuns)
	register(a, route{
		method: http.MethodGet, path: "/runs", action: policy.Read, id: "listRuns", tag: "runs", summary: "List runs, newest first",
	}, a.listRuns)
	register(a, route{
		method: http.MethodGet, path: "/runs/{id}", action: policy.Read, id: "getRun", tag: "runs", summary: "Look at a run",
		detail: "With wait it answers when the run has ended, or after so many seconds as it stands.",
	}, a.getRun)
	register(a, route{
		method: http.MethodPost, path: "/runs/{id}/cancel", action: policy.Control, id: "cancelRun", tag: "runs", summary: "Stop a run",
		body: CancelBody{}, optional: true, detail: "What it had printed is kept. 409 when it has ended.",
	}, a.cancelRun)
	register(a, route{
		method: http.MethodGet, path: "/runs/{id}/evidence", action: policy.Read, id: "getRunRecord", tag: "runs", summary: "Read the record of a run",
		detail: "Byte for byte as it was written, so that its digest can be checked.", answers: []string{"application/json"},
	}, a.runRecord)
	register(a, route{
		method: http.MethodGet, path: "/runs/{id}/artifacts/{name}", action: policy.Read, id: "getRunArtifact", tag: "runs", summary: "Download a file that a run left",
		detail: "The exact bytes. Ranges work; the ETag is the SHA-256. artifact_info of the result names what there is.", answers: []string{"application/octet-stream"},
	}, a.runArtifact)
	a.registerRunOutput()
	a.registerPool()
}

func (a *API) execute(ctx context.Context, in *executeInput) (*executeOutput, error) {
	if err := checkPrintable("header.Idempotency-Key", in.IdempotencyKey); err != nil {
		return nil, err
	}
	body, err := in.read()
	if err != nil {
		return nil, err
	}
	req, err := decodeRun(body)
	if err != nil {
		return nil, err
	}
	asked := run.Asked{Key: in.IdempotencyKey, Patience: time.Duration(in.QueueTimeout) * time.Second}
	if asked.Key != "" {
		asked.Digest = digest(http.MethodPost+" /run", body)
	}
	answer, err := a.cfg.Manager.Execute(ctx, req, asked)
	if err != nil {
		return nil, err
	}
	out := &executeOutput{Body: resultBody(&answer, in.Debug == "timing")}
	if answer.Replayed {
		out.Replayed = "true"
	}
	return out, nil
}

// RunStateBody is how a run stands. What is not there is null.
type RunStateBody struct {
	RunID      string      `json:"run_id" format:"uuid"`
	Status     run.State   `json:"status" enum:"QUEUED,RUNNING,COMPLETED,FAILED,CANCELLED" doc:"COMPLETED says that there is a result, whatever its verdict; FAILED that there is none."`
	Language   string      `json:"language"`
	CodeSHA256 string      `json:"code_sha256"`
	Timeout    int64       `json:"timeout"`
	Sync       bool        `json:"sync" doc:"Whether somebody waited on a connection."`
	Attempt    int         `json:"attempt" doc:"How often it was begun: again only when a worker was lost."`
	WorkerID   *string     `json:"worker_id"`
	Verdict    *string     `json:"verdict"`
	ExitCode   *int        `json:"exit_code"`
	Reason     *string     `json:"reason" doc:"Why it was cancelled or failed."`
	Webhook    *string     `json:"webhook"`
	ProjectID  *int64      `json:"project_id" doc:"The project that it belongs to."`
	CreatedAt  time.Time   `json:"created_at"`
	StartedAt  *time.Time  `json:"started_at"`
	EndedAt    *time.Time  `json:"ended_at"`
	Position   *int        `json:"position" doc:"While it waits: how many turns come before its own."`
	WaitSecs   *float64    `json:"estimated_wait_seconds" doc:"While it waits: about how long."`
	Result     *ResultBody `json:"result" doc:"What it came to, where one run is asked for."`
}

func (a *API) runBody(x *run.Run) RunStateBody {
	b := RunStateBody{
		RunID: x.ID, Status: x.State, Language: x.Language, CodeSHA256: x.CodeSHA256, Timeout: int64(x.Timeout / time.Second), Sync: x.Sync,
		Attempt: x.Attempt, WorkerID: orNull(x.Worker), Verdict: orNull(string(x.Verdict)), Reason: orNull(x.Reason), Webhook: orNull(x.Webhook),
		CreatedAt: x.CreatedAt.UTC(), StartedAt: timeOrNull(x.StartedAt), EndedAt: timeOrNull(x.EndedAt),
	}
	if x.Project != 0 {
		b.ProjectID = &x.Project
	}
	if x.Result != nil {
		code := exitCode(x.Result)
		b.ExitCode = &code
	}
	if x.State == run.Queued {
		if place, here := a.cfg.Manager.Place(x.ID); here {
			wait := place.Wait.Seconds()
			b.Position, b.WaitSecs = &place.Position, &wait
		}
	}
	return b
}

// SubmittedBody answers runs that were queued. Of a single one its own fields
// are there beside the list.
type SubmittedBody struct {
	RunID string         `json:"run_id,omitempty" format:"uuid" doc:"Of a single one."`
	Runs  []RunStateBody `json:"runs" nullable:"false" doc:"In the order in which they were sent."`
}

type submitRunsInput struct {
	Exchange
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"200" doc:"The same key with the same body answers as the first time, and makes nothing twice."`
}

type submitRunsOutput struct {
	Location string `header:"Location" doc:"Of a single run: where it is."`
	Replayed string `header:"Idempotency-Replayed"`
	Body     SubmittedBody
}

func (a *API) submitRuns(ctx context.Context, in *submitRunsInput) (*submitRunsOutput, error) {
	if err := checkPrintable("header.Idempotency-Key", in.IdempotencyKey); err != nil {
		return nil, err
	}
	body, err := in.read()
	if err != nil {
		return nil, err
	}
	reqs, several, err := decodeRuns(body)
	if err != nil {
		return nil, err
	}
	s, err := a.cfg.Manager.SubmitRuns(ctx, reqs, run.Asked{Key: in.IdempotencyKey, Digest: digest(http.MethodPost+" /runs", body)})
	if err != nil {
		return nil, err
	}
	out := &submitRunsOutput{Body: SubmittedBody{Runs: make([]RunStateBody, len(s.Runs))}}
	for i := range s.Runs {
		out.Body.Runs[i] = a.runBody(&s.Runs[i])
	}
	if !several {
		out.Body.RunID, out.Location = s.Runs[0].ID, version+"/runs/"+s.Runs[0].ID
	}
	if s.Replayed {
		out.Replayed = "true"
	}
	return out, nil
}

type listRunsInput struct {
	Exchange
	Status  string `query:"status" doc:"Only runs in this state, in any case." example:"QUEUED"`
	Project int64  `query:"project_id" minimum:"0" doc:"Only runs of this project."`
	Limit   int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"At most so many."`
	Cursor  string `query:"cursor" maxLength:"100" doc:"Where to go on, from the Link header of the page before."`
}

type listRunsOutput struct {
	Link string         `header:"Link" doc:"The next page, as <URL>; rel=\"next\"; not there on the last."`
	Body []RunStateBody `nullable:"false"`
}

func (a *API) listRuns(ctx context.Context, in *listRunsInput) (*listRunsOutput, error) {
	f := store.RunFilter{Project: in.Project, Limit: in.Limit + 1} // one more, to know whether there is another page
	if in.Status != "" {
		f.State = run.State(strings.ToUpper(in.Status))
		if !f.State.Valid() {
			return nil, fault.Field("query.status", "%q is not a state; the states are QUEUED, RUNNING, COMPLETED, FAILED, CANCELLED", clip(in.Status, 60)).WithCode("unknown_state")
		}
	}
	if in.Cursor != "" {
		if f.Before = in.Cursor; checkID("run", in.Cursor) != nil {
			return nil, fault.Field("query.cursor", "is not a cursor of ours; take it from the Link header of the page before").WithCode("bad_cursor")
		}
	}
	list, err := a.cfg.Manager.Runs(ctx, f)
	if err != nil {
		return nil, err
	}
	out := &listRunsOutput{Body: []RunStateBody{}}
	if len(list) > in.Limit || store.Full(list, store.RunBytes) {
		list = list[:min(len(list), in.Limit)]
		out.Link = nextLink(in.r.URL, "cursor", list[len(list)-1].ID)
	}
	for i := range list {
		out.Body = append(out.Body, a.runBody(&list[i]))
	}
	return out, nil
}

// RunPath is the input of an operation on one run.
type RunPath struct {
	Exchange
	ID string `path:"id" doc:"The id of the run." format:"uuid"`
}

type getRunInput struct {
	RunPath
	Wait  int64  `query:"wait" minimum:"0" maximum:"300" doc:"Seconds to wait for the end."`
	Debug string `query:"debug" enum:"timing" doc:"timing: say where the time went."`
}

type runOutput struct{ Body RunStateBody }

var errWaited = fault.New(fault.Unavailable, "waited long enough")

func (a *API) getRun(ctx context.Context, in *getRunInput) (*runOutput, error) {
	if in.Wait > 0 {
		leave, err := a.streams.enter(ctx)
		if err != nil {
			return nil, err
		}
		defer leave()
		bounded, cancel := context.WithTimeoutCause(ctx, time.Duration(in.Wait)*time.Second, errWaited)
		defer cancel()
		stopping, stop := a.untilEnding(bounded)
		defer stop()
		if _, err := a.cfg.Manager.Wait(stopping, in.ID); err != nil && stopping.Err() == nil {
			return nil, err
		}
	}
	answer, err := a.cfg.Manager.RunAnswer(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	b := a.runBody(&answer.Run)
	if answer.Result != nil {
		result := resultBody(&answer, in.Debug == "timing")
		b.Result = &result
	}
	return &runOutput{Body: b}, nil
}

// untilEnding ends with the streams, too, so that the server can shut down.
func (a *API) untilEnding(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-a.endings:
			cancel(errStreamEnds)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-watched
	}
}

func (a *API) cancelRun(ctx context.Context, in *RunPath) (*runOutput, error) {
	var b CancelBody
	if err := in.maybeInto(&b); err != nil {
		return nil, err
	}
	if len(b.Reason) > maxReason {
		return nil, fault.Field("reason", "is %d bytes long; at most %d are allowed", len(b.Reason), maxReason)
	}
	x, err := a.cfg.Manager.CancelRun(ctx, in.ID, b.Reason)
	if err != nil {
		return nil, err
	}
	return &runOutput{Body: a.runBody(&x)}, nil
}

func (a *API) runRecord(ctx context.Context, in *RunPath) (*huma.StreamResponse, error) {
	record, err := a.cfg.Manager.RunRecord(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(huma.Context) {
		in.w.Header().Set("Content-Type", "application/json")
		out := newSlowWriter(in.w)
		defer out.done()
		_, _ = out.Write(record) // a client that has gone needs no answer
	}}, nil
}

type runArtifactInput struct {
	RunPath
	Name string `path:"name" maxLength:"1024" doc:"The name of the artifact, which may have slashes."`
}

func (a *API) runArtifact(ctx context.Context, in *runArtifactInput) (*huma.StreamResponse, error) {
	if job.CheckPath("name", in.Name) != nil {
		return nil, fault.New(fault.NotFound, "The run left no artifact named %q.", clip(in.Name, 80))
	}
	f, about, err := a.cfg.Manager.OpenRunArtifact(ctx, in.ID, in.Name)
	if err != nil {
		return nil, err
	}
	return download(&in.Exchange, f, "application/octet-stream", path.Base(in.Name), about.SHA256), nil
}
