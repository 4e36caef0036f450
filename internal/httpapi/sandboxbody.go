package httpapi

import (
	"encoding/base64"
	"math"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// CreateSandboxBody asks for a sandbox.
type CreateSandboxBody struct {
	Name        string        `json:"name,omitempty" maxLength:"128" doc:"Printable text, and not a dot or two. Unique among your open sandboxes: asking again with the same name answers the one that is there."`
	Image       string        `json:"image,omitempty" doc:"What it starts from; the worker's own where it is left out."`
	Driver      string        `json:"driver,omitempty" doc:"What it is made with; the worker's own where it is left out."`
	Env         TextMap       `json:"env,omitempty" doc:"The environment of every command in it."`
	Secrets     []string      `json:"secrets,omitempty" maxItems:"256" nullable:"false" doc:"Names in env that a fork does not inherit."`
	Network     string        `json:"network,omitempty" enum:"none" doc:"How far it can reach. Only none for now."`
	Labels      TextMap       `json:"labels,omitempty" doc:"Words of yours, to find it again by."`
	TTL         *float64      `json:"ttl,omitempty" minimum:"0" doc:"Seconds that it may live; AUREA_SANDBOX_TTL where it is left out."`
	IdleTimeout *float64      `json:"idle_timeout,omitempty" minimum:"0" doc:"Seconds that it may be of no use to anybody: no call, and no command that runs. 0 is for ever."`
	OnTimeout   string        `json:"on_timeout,omitempty" enum:"kill,pause" doc:"What happens then; kill where it is left out."`
	CPULimit    *float64      `json:"cpu_limit,omitempty" minimum:"0.001" doc:"Processors, such as 0.5."`
	MemoryLimit Size          `json:"memory_limit,omitempty" doc:"A size such as \"512m\" or \"1g\", or a number of bytes."`
	Limits      RunLimitsBody `json:"limits,omitempty" doc:"Further limits; 0 is the worker's own."`
	Sync        *SyncingBody  `json:"sync,omitempty" doc:"How its files are kept alike with the stored files of a session."`
	Files       TextMap       `json:"files,omitempty" doc:"Text by path below /workspace, there before anything else happens."`
	FilesBase64 TextMap       `json:"files_base64,omitempty" doc:"The same for bytes, as base64."`
}

func (b *CreateSandboxBody) request() (live.Request, error) {
	r := live.Request{Name: b.Name, Files: map[string][]byte{}, Spec: live.Spec{
		Image: b.Image, Driver: b.Driver, Env: b.Env, Secrets: b.Secrets, Network: sandbox.Network(b.Network), Labels: b.Labels, OnTimeout: live.OnTimeout(b.OnTimeout),
		Sync: b.Sync.sync(),
	}}
	var err error
	if r.Spec.Limits, err = limitsOf(b.CPULimit, b.MemoryLimit, b.Limits); err != nil {
		return r, err
	}
	if r.TTL, err = seconds("ttl", b.TTL); err != nil {
		return r, err
	}
	if r.Idle, err = seconds("idle_timeout", b.IdleTimeout); err != nil {
		return r, err
	}
	for name, text := range b.Files {
		r.Files[name] = []byte(text)
	}
	for name, text := range b.FilesBase64 {
		if _, twice := r.Files[name]; twice {
			return r, fault.Field("files_base64", "%q is in files too", clip(name, 80))
		}
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return r, fault.Field("files_base64", "%q is no base64", clip(name, 80))
		}
		r.Files[name] = data
	}
	return r, nil
}

func limitsOf(processors *float64, memory Size, rest RunLimitsBody) (sandbox.Limits, error) {
	l := sandbox.Limits{
		Memory: int64(memory), Processes: rest.Processes, Disk: int64(rest.Disk), OpenFiles: rest.OpenFiles,
	}
	if rest.CPUTime < 0 || rest.CPUTime > 1e6 {
		return l, fault.Field("limits.cpu_time", "is out of range")
	}
	l.CPUTime = time.Duration(rest.CPUTime * float64(time.Second))
	if processors != nil {
		if *processors < 0.001 || *processors > 4096 {
			return l, fault.Field("cpu_limit", "must be a number of processors from 0.001 to 4096, such as 0.5")
		}
		l.MilliCPU = int64(math.Round(*processors * 1000))
	}
	return l, nil
}

// seconds is a time as clients send it; nil is none.
func seconds(field string, s *float64) (*time.Duration, error) {
	if s == nil {
		return nil, nil
	}
	if *s < 0 || *s > 1e9 {
		return nil, fault.Field(field, "is out of range")
	}
	d := time.Duration(*s * float64(time.Second))
	return &d, nil
}

// UpdateSandboxBody changes a sandbox. What is left out stays.
type UpdateSandboxBody struct {
	TTL         *float64      `json:"ttl,omitempty" minimum:"0" doc:"Seconds that it may live from now on."`
	IdleTimeout *float64      `json:"idle_timeout,omitempty" minimum:"0"`
	OnTimeout   string        `json:"on_timeout,omitempty" enum:"kill,pause"`
	Labels      TextMap       `json:"labels,omitempty" doc:"In place of those that it has."`
	CPULimit    *float64      `json:"cpu_limit,omitempty" minimum:"0.001"`
	MemoryLimit Size          `json:"memory_limit,omitempty"`
	Limits      RunLimitsBody `json:"limits,omitempty" doc:"Where the driver can change them."`
	Sync        *SyncingBody  `json:"sync,omitempty" doc:"In place of how its files were synced."`
}

// SandboxBody is how a sandbox stands. What is not there is null.
type SandboxBody struct {
	ID          string            `json:"id"`
	Name        *string           `json:"name"`
	Owner       string            `json:"owner"`
	State       sandbox.State     `json:"state" enum:"PENDING,CREATING,RUNNING,COMPLETING,COMPLETED,FAILED"`
	Paused      *string           `json:"paused" doc:"freeze or checkpoint while it stands still."`
	Outcome     *string           `json:"outcome" doc:"Why it ended, in one word: cancelled, expired, killed, reaped, lost."`
	Reason      *string           `json:"reason"`
	Driver      string            `json:"driver"`
	Isolation   string            `json:"isolation"`
	Image       string            `json:"image"`
	ImageDigest *string           `json:"image_digest"`
	Warm        bool              `json:"warm" doc:"Whether it was waiting."`
	WorkerID    *string           `json:"worker_id"`
	Network     sandbox.Network   `json:"network"`
	Limits      SandboxLimitsBody `json:"limits" doc:"What really holds."`
	EnvNames    []string          `json:"env_names" nullable:"false" doc:"The names of its variables; never their values."`
	Labels      map[string]string `json:"labels" nullable:"false"`
	TTL         *float64          `json:"ttl"`
	IdleTimeout *float64          `json:"idle_timeout"`
	OnTimeout   live.OnTimeout    `json:"on_timeout"`
	Generation  int64             `json:"generation" doc:"Of its newest snapshot, or of the one that it came from."`
	Parent      *string           `json:"parent" doc:"The sandbox that it was forked from."`
	Sync        *SyncingBody      `json:"sync" doc:"How its files are kept alike with the stored files of a session."`
	SessionID   *string           `json:"session_id"`
	App         *string           `json:"app"`
	CreatedAt   time.Time         `json:"created_at"`
	StartedAt   *time.Time        `json:"started_at"`
	ActiveAt    *time.Time        `json:"active_at"`
	ExpiresAt   *time.Time        `json:"expires_at"`
	EndedAt     *time.Time        `json:"ended_at"`
	Usage       *SandboxUsageBody `json:"usage" doc:"What it had used at its end."`
}

// SandboxLimitsBody are limits; 0 is none.
type SandboxLimitsBody struct {
	CPU       float64 `json:"cpu"`
	Memory    int64   `json:"memory_bytes"`
	Processes int64   `json:"processes"`
	Disk      int64   `json:"disk_bytes"`
	OpenFiles int64   `json:"open_files"`
	CPUTime   float64 `json:"cpu_time"`
}

// SandboxUsageBody is what a sandbox has used; null where that is not known.
type SandboxUsageBody struct {
	CPUSeconds *float64 `json:"cpu_seconds"`
	Memory     *int64   `json:"memory_bytes" doc:"Now. With the gvisor driver files that were written are in it."`
	PeakMemory *int64   `json:"peak_memory_bytes"`
	Disk       *int64   `json:"disk_bytes" doc:"Of files that were written and are still there, as last measured."`
	Processes  *int64   `json:"processes"`
}

func limitsBody(l sandbox.Limits) SandboxLimitsBody {
	return SandboxLimitsBody{
		CPU: float64(l.MilliCPU) / 1000, Memory: l.Memory, Processes: l.Processes, Disk: l.Disk, OpenFiles: l.OpenFiles, CPUTime: l.CPUTime.Seconds(),
	}
}

func sandboxUsage(u sandbox.Usage, disk int64) *SandboxUsageBody {
	b := &SandboxUsageBody{}
	known := func(n int64) *int64 {
		if n < 0 {
			return nil
		}
		return &n
	}
	if u.CPU >= 0 {
		s := u.CPU.Seconds()
		b.CPUSeconds = &s
	}
	b.Memory, b.PeakMemory, b.Disk, b.Processes = known(u.Memory), known(u.PeakMemory), known(disk), known(u.Processes)
	return b
}

func secondsOrNull(d time.Duration) *float64 {
	if d == 0 {
		return nil
	}
	s := d.Seconds()
	return &s
}

func sandboxBody(s *live.Sandbox) SandboxBody {
	b := SandboxBody{
		ID: s.ID, Name: orNull(s.Name), Owner: s.Owner, State: s.State, Paused: orNull(string(s.Paused)), Outcome: orNull(string(s.Outcome)), Reason: orNull(s.Reason),
		Driver: s.Made.Driver, Isolation: s.Made.Isolation, Image: s.Made.Image, ImageDigest: orNull(s.Made.Digest), Warm: s.Made.Warm, WorkerID: orNull(s.Worker),
		Network: s.Spec.Network, Limits: limitsBody(s.Made.Enforced), EnvNames: names(s.Spec.Env), Labels: map[string]string{},
		TTL: secondsOrNull(s.Spec.TTL), IdleTimeout: secondsOrNull(s.Spec.Idle), OnTimeout: s.Spec.OnTimeout, Generation: s.Generation, Parent: orNull(s.Parent), Sync: syncingBody(s),
		SessionID: orNull(s.Session), App: orNull(s.App), CreatedAt: s.CreatedAt.UTC(), StartedAt: timeOrNull(s.StartedAt),
		ActiveAt: timeOrNull(s.ActiveAt), ExpiresAt: timeOrNull(s.ExpiresAt), EndedAt: timeOrNull(s.EndedAt),
	}
	for key, value := range s.Spec.Labels {
		b.Labels[key] = value
	}
	if !s.EndedAt.IsZero() {
		b.Usage = sandboxUsage(s.Usage, s.LastDisk())
	}
	return b
}

// CreateExecBody asks for a command.
type CreateExecBody struct {
	Command     []string `json:"command,omitempty" maxItems:"1000" nullable:"false" doc:"The program and its arguments." example:"[\"echo\",\"hello\"]"`
	Shell       string   `json:"shell,omitempty" doc:"A line for sh -c, in place of command."`
	Env         TextMap  `json:"env,omitempty" doc:"Over the sandbox's own."`
	Cwd         string   `json:"cwd,omitempty" doc:"Where it runs; /workspace where it is left out."`
	User        string   `json:"user,omitempty" doc:"A user of the image; the sandbox's own where it is left out."`
	Stdin       string   `json:"stdin,omitempty" doc:"What it reads from its standard input, which then ends unless keep_stdin says otherwise."`
	StdinBase64 string   `json:"stdin_base64,omitempty" doc:"The same for bytes."`
	KeepStdin   bool     `json:"keep_stdin,omitempty" doc:"Keep its standard input open for POST …/input; a terminal's always is."`
	TTY         bool     `json:"tty,omitempty" doc:"Give it a terminal; then all that it prints is on stdout."`
	Cols        int64    `json:"cols,omitempty" minimum:"0" maximum:"1000"`
	Rows        int64    `json:"rows,omitempty" minimum:"0" maximum:"1000"`
	Timeout     *float64 `json:"timeout,omitempty" minimum:"0" doc:"Seconds until it is killed; 300 where it is left out, 0 is for as long as the sandbox."`
}

func (b *CreateExecBody) command(id string) (live.Command, error) {
	c := live.Command{Sandbox: id, Command: b.Command, Env: b.Env, Dir: b.Cwd, User: b.User, TTY: b.TTY, Stdin: []byte(b.Stdin), Open: b.KeepStdin || b.TTY}
	switch {
	case b.Shell != "" && len(b.Command) > 0:
		return c, fault.Field("shell", "must not be there beside command")
	case b.Shell != "":
		c.Command = []string{"sh", "-c", b.Shell}
	}
	if b.StdinBase64 != "" {
		data, err := base64.StdEncoding.DecodeString(b.StdinBase64)
		if err != nil || b.Stdin != "" {
			return c, fault.Field("stdin_base64", "must be base64, and not beside stdin")
		}
		c.Stdin = data
	}
	for _, size := range []struct {
		field string
		value int64
		into  *uint16
	}{{"cols", b.Cols, &c.Cols}, {"rows", b.Rows, &c.Rows}} {
		if size.value < 0 || size.value > 1000 {
			return c, fault.Field(size.field, "must be from 0 to 1000")
		}
		*size.into = uint16(size.value) //nolint:gosec // bounded above
	}
	timeout, err := seconds("timeout", b.Timeout)
	if err != nil {
		return c, err
	}
	if timeout != nil {
		if c.Timeout = *timeout; *timeout == 0 {
			c.Timeout = -1
		}
	}
	return c, nil
}

// ExecBody is how an exec stands. What is not there is null.
type ExecBody struct {
	ID        string         `json:"id" format:"uuid"`
	SandboxID string         `json:"sandbox_id"`
	ForkOf    *string        `json:"fork_of" doc:"The exec that this one went on from, in a fork of its sandbox."`
	Command   []string       `json:"command" nullable:"false"`
	Cwd       *string        `json:"cwd"`
	User      *string        `json:"user"`
	TTY       bool           `json:"tty"`
	Timeout   *float64       `json:"timeout"`
	State     live.ExecState `json:"state" enum:"STARTING,RUNNING,ENDED"`
	Verdict   *string        `json:"verdict" enum:"ok,failed,signal,timeout,oom,limit,killed,lost"`
	Cause     *string        `json:"cause" doc:"What the verdict is about, where there is more to say."`
	ExitCode  *int           `json:"exit_code" doc:"128 and the signal where one ended it, -1 where it was killed for its time."`
	TimedOut  bool           `json:"timed_out"`
	Stdout    *ExecTextBody  `json:"stdout" doc:"What is kept of it, once it has ended."`
	Stderr    *ExecTextBody  `json:"stderr"`
	CreatedAt time.Time      `json:"created_at"`
	StartedAt *time.Time     `json:"started_at"`
	EndedAt   *time.Time     `json:"ended_at"`
	Seconds   *float64       `json:"seconds" doc:"How long it ran."`
}

// ExecTextBody is a stream of an exec that has ended.
type ExecTextBody struct {
	Bytes     int64   `json:"bytes"`
	Seen      int64   `json:"seen" doc:"How many there were."`
	Truncated bool    `json:"truncated"`
	SHA256    string  `json:"sha256"`
	Text      *string `json:"text" doc:"The first of it, where one exec is asked for; bytes that are no UTF-8 are U+FFFD here, and all is at …/output."`
	Cut       bool    `json:"cut" doc:"Whether text is less than what is kept."`
}

func textBody(o run.Output) *ExecTextBody {
	return &ExecTextBody{Bytes: o.Kept, Seen: o.Seen, Truncated: o.Truncated, SHA256: o.SHA256}
}

func execBody(e *live.Exec) ExecBody {
	b := ExecBody{
		ID: e.ID, SandboxID: e.Sandbox, ForkOf: orNull(e.Origin), Command: append([]string{}, e.Command...), Cwd: orNull(e.Dir), User: orNull(e.User), TTY: e.TTY, Timeout: secondsOrNull(e.Timeout),
		State: e.State, CreatedAt: e.CreatedAt.UTC(), StartedAt: timeOrNull(e.StartedAt), EndedAt: timeOrNull(e.EndedAt),
	}
	if r := e.Result; r != nil {
		code := r.ExitCode
		switch {
		case r.Verdict == sandbox.Timeout:
			code = -1
		case code < 0 && r.Signal > 0:
			code = 128 + r.Signal
		}
		b.Verdict, b.Cause, b.ExitCode, b.TimedOut = orNull(string(r.Verdict)), orNull(r.Cause), &code, r.Verdict == sandbox.Timeout
		b.Stdout, b.Stderr = textBody(r.Stdout), textBody(r.Stderr)
		if !r.Started.IsZero() && !r.Ended.IsZero() {
			took := r.Ended.Sub(r.Started).Seconds()
			b.Seconds = &took
		}
	}
	return b
}
