package machinesapi

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/machine"
	"github.com/aurea-dev/aurea/internal/machinist"
)

func (a *API) start(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	before, err := a.cfg.Machinist.StartMachine(r.Context(), ref(r))
	return http.StatusOK, struct {
		OK            bool          `json:"ok"`
		PreviousState machine.State `json:"previous_state"`
		Migrated      bool          `json:"migrated"`
		NewHost       string        `json:"new_host"`
	}{OK: true, PreviousState: before}, err
}

func (a *API) stop(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var b struct {
		Signal  signalName      `json:"signal"`
		Timeout json.RawMessage `json:"timeout"`
	}
	if err := readMaybe(w, r, &b); err != nil {
		return 0, nil, err
	}
	timeout, err := machine.Seconds("timeout", b.Timeout)
	if err != nil {
		return 0, nil, err
	}
	return done(a.cfg.Machinist.StopMachine(r.Context(), ref(r), machinist.Stop{Signal: string(b.Signal), Timeout: timeout}))
}

func (a *API) suspend(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	return done(a.cfg.Machinist.SuspendMachine(r.Context(), ref(r)))
}

func (a *API) restart(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	q := r.URL.Query()
	how := machinist.Stop{Signal: q.Get("signal")}
	timeout, err := machine.Seconds("timeout", json.RawMessage(strconv.Quote(q.Get("timeout"))))
	if err != nil {
		return 0, nil, err
	}
	how.Timeout = timeout
	if q.Get("force_stop") == "true" {
		how.Signal = "SIGKILL"
	}
	return done(a.cfg.Machinist.RestartMachine(r.Context(), ref(r), how))
}

// signalName is a signal as clients send it: a name, or its number.
type signalName string

// UnmarshalJSON takes both.
func (s *signalName) UnmarshalJSON(raw []byte) error {
	var n int
	if json.Unmarshal(raw, &n) == nil {
		if n != 0 {
			*s = signalName(strconv.Itoa(n))
		}
		return nil
	}
	return json.Unmarshal(raw, (*string)(s))
}

func (a *API) signal(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var b struct {
		Signal signalName `json:"signal"`
	}
	if err := read(w, r, &b); err != nil {
		return 0, nil, err
	}
	if b.Signal == "" {
		return 0, nil, fault.Field("signal", "is missing")
	}
	return done(a.cfg.Machinist.SignalMachine(r.Context(), ref(r), string(b.Signal)))
}

// execBody is a command as clients send it. cmd is an older way to say it, as a
// line; there are clients that send a list in it.
type execBody struct {
	Command []string        `json:"command"`
	Cmd     json.RawMessage `json:"cmd"`
	Stdin   string          `json:"stdin"`
	Timeout json.RawMessage `json:"timeout"`
}

func (b *execBody) words() ([]string, error) {
	if len(b.Command) > 0 || len(b.Cmd) == 0 {
		return b.Command, nil
	}
	var list []string
	if json.Unmarshal(b.Cmd, &list) == nil {
		return list, nil
	}
	var line string
	if err := json.Unmarshal(b.Cmd, &line); err != nil {
		return nil, fault.Field("cmd", "must be a line, or a list of words")
	}
	return machine.Split(line)
}

// maxExec bounds how long a command may run whose answer is waited for.
const maxExec = time.Hour

// execAnswer is what came of a command. A command that ran out of its time has
// the exit code -1, the signal 9, and says so.
type execAnswer struct {
	ExitCode        int    `json:"exit_code"`
	ExitSignal      int    `json:"exit_signal"`
	Stdout          string `json:"stdout"`
	Stderr          string `json:"stderr"`
	TimedOut        bool   `json:"timed_out,omitempty"`
	OOMKilled       bool   `json:"oom_killed,omitempty"`
	StdoutTruncated bool   `json:"stdout_truncated,omitempty"`
	StderrTruncated bool   `json:"stderr_truncated,omitempty"`
}

func (a *API) exec(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var b execBody
	if err := read(w, r, &b); err != nil {
		return 0, nil, err
	}
	words, err := b.words()
	if err != nil {
		return 0, nil, err
	}
	if len(words) == 0 {
		return 0, nil, fault.Field("command", "is missing")
	}
	timeout, err := machine.Seconds("timeout", b.Timeout)
	if err != nil {
		return 0, nil, err
	}
	if timeout > maxExec {
		return 0, nil, fault.Field("timeout", "can be at most %d seconds", int(maxExec.Seconds()))
	}
	res, err := a.cfg.Machinist.ExecMachine(r.Context(), ref(r), machine.Command{Command: words, Stdin: b.Stdin, Timeout: timeout})
	return http.StatusOK, execAnswer{
		ExitCode: res.ExitCode, ExitSignal: res.Signal, Stdout: res.Stdout, Stderr: res.Stderr, TimedOut: res.TimedOut, OOMKilled: res.OOM,
		StdoutTruncated: res.StdoutTruncated, StderrTruncated: res.StderrTruncated,
	}, err
}

// process is one of a machine, as this shape shows it.
type process struct {
	PID           int      `json:"pid"`
	Command       string   `json:"command"`
	Directory     string   `json:"directory"`
	CPU           int64    `json:"cpu"`
	RTime         int64    `json:"rtime"`
	STime         int64    `json:"stime"`
	RSS           int64    `json:"rss"`
	ListenSockets []string `json:"listen_sockets"`
}

func (a *API) processes(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	list, err := a.cfg.Machinist.MachineProcesses(r.Context(), ref(r))
	answer := []process{}
	for _, p := range list {
		answer = append(answer, process{
			PID: p.PID, Command: p.Command, CPU: p.CPU.Milliseconds(), RTime: p.Started.Milliseconds(), STime: p.System.Milliseconds(),
			RSS: p.Memory, ListenSockets: []string{},
		})
	}
	return http.StatusOK, answer, err
}
