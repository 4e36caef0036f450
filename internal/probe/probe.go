package probe

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/probe/inside"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// guestPath is where the guest's binary, which the probe is a mode of, stands
// in every sandbox.
const guestPath = "/.aurea/guest"

// Bounds of a probe.
const (
	patience = 30 * time.Second // for each of its commands
	whole    = 2 * time.Minute
)

// The limits that the probe asks for, and then goes beyond.
const (
	memoryLimit  = 128 << 20
	memoryWanted = 4 * memoryLimit
	processLimit = 64
	processTries = 2 * processLimit
)

// Attempt is one forbidden thing that was tried.
type Attempt struct {
	Name    string `json:"name"`
	Stopped bool   `json:"stopped"`
	// Detail is what stopped it, or why it counts as one that got through.
	Detail string `json:"detail,omitempty"`
}

// Report is what a probe found.
type Report struct {
	Driver   string        `json:"driver"`
	At       time.Time     `json:"at"`
	Took     time.Duration `json:"took_ns"`
	Attempts []Attempt     `json:"attempts"`
	// Exempt says why nothing had to be proved.
	Exempt string `json:"exempt,omitempty"`
	// Err is why the probe could not be run to its end. It may pass with time,
	// where an attempt that got through does not.
	Err error `json:"-"`
}

// Through lists the attempts that were not stopped.
func (r Report) Through() []Attempt {
	return slices.DeleteFunc(slices.Clone(r.Attempts), func(a Attempt) bool { return a.Stopped })
}

// Degraded is why the driver must not be served, or "".
func (r Report) Degraded() string {
	through := r.Through()
	switch {
	case r.Exempt != "":
		return ""
	case len(through) > 0:
		names := make([]string, 0, len(through))
		for _, a := range through {
			names = append(names, a.Name)
		}
		return "the isolation probe was not stopped at: " + strings.Join(names, ", ")
	case r.Err != nil:
		return "the isolation probe could not be run: " + r.Err.Error()
	case len(r.Attempts) == 0:
		return "the isolation probe tried nothing"
	}
	return ""
}

// Options says how a driver is probed.
type Options struct {
	// Folder is a folder of the host, in which a file is put that must not be
	// found from inside.
	Folder string
	// Image is the image of the sandbox; "" is the driver's default.
	Image  string
	Logger *slog.Logger
}

// Run probes a driver. It always returns a report, and leaves no sandbox.
func Run(ctx context.Context, d sandbox.Driver, o Options) Report {
	ctx, cancel := context.WithTimeoutCause(ctx, whole, fault.New(fault.Unavailable, "the probe took too long"))
	defer cancel()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	began := time.Now()
	r := Report{Driver: d.Name(), At: began.UTC()}
	p := &prober{driver: d, options: o, report: &r}
	r.Err = p.run(ctx)
	r.Took = time.Since(began)
	return r
}

// prober is one probe under way.
type prober struct {
	driver  sandbox.Driver
	options Options
	report  *Report
}

func (p *prober) run(ctx context.Context) error {
	bait, err := setBait(p.options.Folder)
	if err != nil {
		return err
	}
	defer bait.remove()
	if err := p.wall(ctx, bait); err != nil {
		return err
	}
	caps := p.driver.Capabilities()
	if caps.Processes {
		if err := p.beyond(ctx, "processes", sandbox.Limits{Processes: processLimit}, processTries); err != nil {
			return err
		}
	}
	if caps.Memory {
		return p.beyond(ctx, "memory", sandbox.Limits{Memory: memoryLimit}, memoryWanted)
	}
	return nil
}

// wall tries everything but limits, as the user that commands run as and as the
// root of the sandbox.
func (p *prober) wall(ctx context.Context, b *bait) error {
	box, err := p.open(ctx, sandbox.Limits{})
	if err != nil {
		return err
	}
	defer p.close(ctx, box)
	for _, user := range []string{"", "0"} {
		root := user == "0"
		said, _, err := p.exec(ctx, box, user, b.arguments()...)
		if root && fault.Is(err, fault.Denied) {
			p.add("root", true, "the driver runs nothing as root")
			continue
		}
		if err != nil {
			return err
		}
		if err := p.judge(said, root); err != nil {
			return err
		}
	}
	// A guest that was stopped or killed does not answer this.
	_, result, err := p.exec(ctx, box, "", "memory", "0")
	if err != nil || result.Verdict != sandbox.OK {
		p.add("guest-alive", false, fmt.Sprintf("the sandbox did not answer after the attempts: %s %v", result.Verdict, err))
		return nil //nolint:nilerr // that is a finding
	}
	p.add("guest-alive", true, "it answered")
	if b.touched() {
		p.add("host-listener", false, "the host's listener was called")
	}
	return nil
}

// judge reads what the probe said of a run. What it did not say was not
// stopped; that a control failed means that nothing was proved.
func (p *prober) judge(said map[string]line, root bool) error {
	for _, name := range inside.Controls() {
		if l := said[name]; l.word != inside.Works {
			return fault.New(fault.Unavailable, "the probe cannot work in the sandbox: %s: %s", name, l.detail)
		}
	}
	for _, name := range inside.Names(root) {
		l, ok := said[name]
		if root {
			name = "root-" + name
		}
		switch {
		case !ok:
			p.add(name, false, "not reported")
		case l.word == inside.Stopped:
			p.add(name, true, l.detail)
		default:
			p.add(name, false, l.detail)
		}
	}
	return nil
}

// beyond tries to use more than a limit that the driver says it enforces.
func (p *prober) beyond(ctx context.Context, what string, limits sandbox.Limits, want int64) error {
	box, err := p.open(ctx, limits)
	if err != nil {
		return err
	}
	defer p.close(ctx, box)
	said, result, err := p.exec(ctx, box, "", what, fmt.Sprint(want))
	if err != nil {
		return err
	}
	l, ok := said[what]
	switch {
	case ok && l.word == inside.Stopped:
		p.add("limit-"+what, true, l.detail)
	case ok:
		p.add("limit-"+what, false, "used "+l.detail)
	case result.Verdict == sandbox.OOM || result.Verdict == sandbox.Limit:
		p.add("limit-"+what, true, string(result.Verdict))
	default:
		p.add("limit-"+what, false, fmt.Sprintf("ended with verdict %s, which is not that of a limit: %s", result.Verdict, result.Cause))
	}
	return nil
}

func (p *prober) add(name string, stopped bool, detail string) {
	p.report.Attempts = append(p.report.Attempts, Attempt{Name: name, Stopped: stopped, Detail: detail})
}

func (p *prober) open(ctx context.Context, limits sandbox.Limits) (*sandbox.Sandbox, error) {
	id, err := sandbox.NewID()
	if err != nil {
		return nil, err
	}
	box, err := sandbox.Open(ctx, sandbox.Options{
		Driver: p.driver, Logger: p.options.Logger, ProvisionTimeout: patience, OutputCap: maxOutput,
		Spec: sandbox.Spec{ID: id, Image: p.options.Image, Limits: limits, Labels: map[string]string{"aurea.purpose": "probe"}},
	})
	if err != nil {
		return nil, fmt.Errorf("make a sandbox: %w", err)
	}
	return box, nil
}

func (p *prober) close(ctx context.Context, box *sandbox.Sandbox) {
	if err := box.Close(context.WithoutCancel(ctx)); err != nil {
		p.options.Logger.Error("could not destroy the sandbox of a probe", "sandbox", box.ID(), "error", err)
	}
}

func (p *prober) exec(ctx context.Context, box *sandbox.Sandbox, user string, args ...string) (map[string]line, sandbox.Result, error) {
	var out output
	exec, err := box.Exec(ctx, sandbox.ExecSpec{
		Command: append([]string{guestPath, "probe"}, args...), Dir: "/", User: user,
	}, sandbox.ExecOptions{Timeout: patience, Sink: &out})
	if err != nil {
		return nil, sandbox.Result{}, fmt.Errorf("start the probe: %w", err)
	}
	result, err := exec.Wait(ctx)
	if err != nil {
		return nil, result, fmt.Errorf("wait for the probe: %w", err)
	}
	return parse(out.text()), result, nil
}

// newMark makes a word that nobody can have by chance.
func newMark() string { return "aurea-probe-" + strings.ToLower(rand.Text()) }
