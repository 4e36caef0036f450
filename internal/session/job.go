package session

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// Queue gives out the jobs of sessions.
type Queue interface {
	Claim(ctx context.Context, caller policy.Caller, id, workerID string) (job.Job, error)
	Extend(ctx context.Context, workerID string, held []dispatch.Held) (gone []dispatch.Held, until time.Time, err error)
	Complete(ctx context.Context, caller policy.Caller, id, workerID string, fence *int64, success bool, details json.RawMessage) (job.Job, error)
}

// Execs are the commands of jobs.
type Execs interface {
	WaitExec(ctx context.Context, id string) (live.Exec, error)
	ExecOutput(ctx context.Context, e *live.Exec, s sandbox.Stream, limit int64) ([]byte, error)
	KillExec(ctx context.Context, id, by string) (live.Exec, error)
	PutFiles(ctx context.Context, id, dir string, tar io.Reader) error
}

// Bounds of the jobs of sessions.
const (
	jobsAtOnce = 16
	jobLook    = time.Second // between looks for jobs
	jobText    = 64 << 10    // bytes of each stream that stand in the details of a job
)

// processor does the jobs of sessions, one of each session at a time.
type processor struct {
	l     *Lifecycle
	mu    sync.Mutex
	busy  map[string]bool // sessions, by owner and id
	tasks sync.WaitGroup
}

// run looks for jobs until ctx ends, and waits for those that it does. What it
// does then goes on in its sandbox, and is tried again by the next life.
func (p *processor) run(ctx context.Context) {
	defer p.tasks.Wait()
	tick := time.NewTicker(jobLook)
	defer tick.Stop()
	for {
		var woken <-chan struct{}
		if p.l.Arrived != nil {
			woken = p.l.Arrived() // before the look
		}
		if p.l.Leads() {
			if err := p.look(ctx); err != nil && ctx.Err() == nil {
				p.l.Logger.Error("could not look for the jobs of sessions", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-woken:
		case <-tick.C:
		}
	}
}

func (p *processor) look(ctx context.Context) error {
	var list []job.Job
	err := p.l.Store.View(ctx, func(tx store.Tx) (err error) {
		list, err = tx.Jobs().Bound(ctx, job.SessionModel, sweepLimit)
		return err
	})
	for i := range list {
		j := list[i]
		if !p.take(&j) {
			continue
		}
		p.tasks.Go(func() {
			defer p.give(&j)
			if err := p.do(ctx, j.ID); err != nil && ctx.Err() == nil {
				p.l.Logger.Warn("could not do a job of a session; it is tried again when its lease is over", "job", j.ID, "session", j.SessionID, "error", err)
			}
		})
	}
	return err
}

func (p *processor) take(j *job.Job) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := j.Owner + " " + j.SessionID
	if p.busy[key] || len(p.busy) >= jobsAtOnce {
		return false
	}
	p.busy[key] = true
	return true
}

func (p *processor) give(j *job.Job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.busy, j.Owner+" "+j.SessionID)
}

// do does one job. An error leaves it to the end of its lease.
func (p *processor) do(ctx context.Context, id string) error {
	j, err := p.l.Queue.Claim(ctx, policy.System(), id, job.SessionModel)
	if fault.Is(err, fault.Conflict) {
		return nil // another has it
	}
	if err != nil {
		return err
	}
	work, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	var held sync.WaitGroup
	held.Go(func() { p.hold(work, &j, lost) })
	out := p.work(work, &j)
	lost(nil)
	held.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	details, err := json.Marshal(out)
	if err != nil {
		return err
	}
	done, err := p.l.Queue.Complete(ctx, policy.System(), j.ID, job.SessionModel, &j.Fence, out.good(), details)
	if fault.Is(err, fault.Conflict) {
		return nil // it was cancelled
	}
	if err == nil && done.State == job.Failed {
		// Its tries are used up: the session that it was for has failed.
		_, err = p.l.FailSession(policy.AsOwner(ctx, j.Owner), j.SessionID, "its job "+j.ID+" failed")
		if fault.Is(err, fault.NotFound) {
			err = nil
		}
	}
	return err
}

var errLeaseGone = errors.New("the job was taken away")

// hold renews the lease of a job until ctx ends.
func (p *processor) hold(ctx context.Context, j *job.Job, lost context.CancelCauseFunc) {
	tick := time.NewTicker(p.l.leaseTerm() / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		gone, _, err := p.l.Queue.Extend(ctx, job.SessionModel, []dispatch.Held{{JobID: j.ID, Fence: j.Fence}})
		if err == nil && len(gone) > 0 {
			lost(errLeaseGone)
			return
		}
	}
}

// outcome is what stands in the details of a job.
type outcome struct {
	Session  string          `json:"session_id"`
	Sandbox  string          `json:"sandbox_id,omitempty"`
	Exec     string          `json:"exec_id,omitempty"`
	Verdict  sandbox.Verdict `json:"verdict,omitempty"`
	ExitCode int             `json:"exit_code"`
	Stdout   string          `json:"stdout"`
	Stderr   string          `json:"stderr"`
	Error    string          `json:"error,omitempty"`
}

func (o *outcome) good() bool { return o.Error == "" && o.Verdict == sandbox.OK }

// work does what a job asks for in the sandbox of its session.
func (p *processor) work(ctx context.Context, j *job.Job) *outcome {
	out := &outcome{Session: j.SessionID, ExitCode: -1}
	if err := p.try(ctx, j, out); err != nil {
		out.Error = err.Error()
	}
	return out
}

func (p *processor) try(ctx context.Context, j *job.Job, out *outcome) error {
	own := policy.AsOwner(ctx, j.Owner)
	c, files, err := order(j.Payload)
	if err != nil {
		return err
	}
	c.Timeout = j.Timeout
	s, err := p.l.Session(own, j.SessionID)
	if err == nil {
		s, err = p.l.ensure(own, s)
	}
	if err != nil {
		return err
	}
	out.Sandbox = s.Sandbox
	if len(files) > 0 {
		if err := p.putFiles(own, s.Sandbox, files); err != nil {
			return err
		}
	}
	c.Sandbox = s.Sandbox
	e, _, err := p.l.Sandboxes.RunExec(own, c, run.Asked{})
	if err != nil {
		return err
	}
	out.Exec = e.ID
	if e, err = p.l.Execs.WaitExec(own, e.ID); err != nil {
		if errors.Is(err, errLeaseGone) {
			_, _ = p.l.Execs.KillExec(context.WithoutCancel(own), out.Exec, "its job was taken away") // it ends with the sandbox else
		}
		return err
	}
	out.Verdict, out.ExitCode = e.Result.Verdict, e.Result.ExitCode
	for _, x := range []struct {
		stream sandbox.Stream
		into   *string
	}{{sandbox.Stdout, &out.Stdout}, {sandbox.Stderr, &out.Stderr}} {
		data, err := p.l.Execs.ExecOutput(own, &e, x.stream, jobText)
		if err != nil {
			return err
		}
		*x.into = clean(data)
	}
	return nil
}

// clean is text that a database takes: what a sandbox prints is anything.
func clean(data []byte) string {
	return strings.ReplaceAll(strings.ToValidUTF8(string(data), "\uFFFD"), "\x00", "\uFFFD")
}

// order is what a payload asks for in a sandbox that is there: a command, after
// files were put below /workspace. A payload without an action is a prompt;
// until there are agents it is answered by a greeting.
func order(payload json.RawMessage) (c live.Command, files map[string]string, err error) {
	var named struct {
		Action *string `json:"action"`
	}
	if err := json.Unmarshal(payload, &named); err != nil || named.Action == nil {
		return live.Command{Command: []string{"echo", "Hello from sandbox"}}, nil, nil
	}
	w, err := job.ParseWork(payload)
	if err != nil {
		return c, nil, err
	}
	switch w.Action {
	case job.Exec:
		return live.Command{Command: w.Command, Env: w.Env, Stdin: []byte(w.Stdin), Dir: "/workspace"}, w.Files, nil
	case job.CreateFile:
		content := job.ResultText
		if w.Content != nil {
			content = *w.Content
		}
		return live.Command{Command: []string{"true"}}, map[string]string{w.Path: content}, nil
	case job.WriteFiles:
		return live.Command{Command: []string{"true"}}, w.Files, nil
	case job.Run:
	}
	return c, nil, fault.Field("action", "%q is not done in sessions; use exec", w.Action)
}

// putFiles puts files below the workspace of a sandbox.
func (p *processor) putFiles(ctx context.Context, box string, files map[string]string) error {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, text := range files {
		if err := live.CheckRelative("files", name); err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			return err
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return p.l.Execs.PutFiles(ctx, box, "/workspace", &b)
}
