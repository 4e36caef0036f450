package dispatch

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Bounds of a run as it crosses. What a user may ask for is less, and is held
// where users ask.
const (
	MaxOrderBytes  = MaxBodyBytes // of one order, as JSON
	MaxResultBytes = 32 << 20     // of one result, as JSON
	MaxRunTime     = time.Hour    // of one step of a run
	MaxRunOutput   = 64 << 20     // bytes kept of each stream
	maxRunNames    = 1000         // files, arguments, variables, artifacts
	maxFileName    = 255
	maxArgument    = 128<<10 - 1 // what a kernel takes
	maxRunFiles    = 16 << 20    // bytes of a run's artifacts together
	maxStages      = 64
	maxClasses     = 256
)

// CheckOrder refuses an order that is out of bounds. Both ends of the wire call
// it; whether the order can be fulfilled is the worker's to say.
func CheckOrder(o run.Order) error {
	if err := CheckRunID(o.ID); err != nil {
		return err
	}
	for _, w := range []struct{ field, text string }{
		{"owner", o.Owner}, {"driver", o.Driver}, {"trace", o.Trace},
	} {
		if err := checkText(w.field, w.text, maxWord); err != nil {
			return err
		}
	}
	if err := checkText("image", o.Image, maxText); err != nil {
		return err
	}
	if err := checkWord("language", o.Language); err != nil {
		return err
	}
	if err := checkProgram(o); err != nil {
		return err
	}
	if o.Timeout <= 0 || o.Timeout > MaxRunTime {
		return fault.Field("timeout_ns", "must be above 0 and at most %s", MaxRunTime)
	}
	if o.OutputCap < 0 || o.OutputCap > MaxRunOutput {
		return fault.Field("output_cap", "must be from 0 to %d", MaxRunOutput)
	}
	if o.From.Stdout < 0 || o.From.Stderr < 0 {
		return fault.Field("from", "must not be negative")
	}
	switch o.Network {
	case "", sandbox.NetworkNone, sandbox.NetworkController, sandbox.NetworkAllowlist, sandbox.NetworkFull:
	default:
		return fault.Field("network", "is not a network mode")
	}
	return checkLimits("limits", o.Limits)
}

// checkProgram checks what is handed to the program: its text crosses as JSON,
// which would change bytes that are no text.
func checkProgram(o run.Order) error {
	for _, t := range []struct{ field, text string }{{"code", o.Code}, {"stdin", o.Stdin}} {
		if len(t.text) > MaxOrderBytes {
			return fault.Field(t.field, "has %d bytes; at most %d are allowed", len(t.text), MaxOrderBytes)
		}
		if !utf8.ValidString(t.text) {
			return fault.Field(t.field, "must be valid UTF-8")
		}
	}
	if err := checkCount("files", len(o.Files), maxRunNames); err != nil {
		return err
	}
	for name, text := range o.Files {
		if err := checkFileName(name); err != nil {
			return err
		}
		if !utf8.ValidString(text) {
			return fault.Field("files."+name, "must be valid UTF-8")
		}
	}
	if err := checkCount("args", len(o.Args), maxRunNames); err != nil {
		return err
	}
	for i, arg := range o.Args {
		if len(arg) > maxArgument || !utf8.ValidString(arg) || strings.ContainsRune(arg, 0) {
			return fault.Field(at("args", i), "must be valid UTF-8 without NUL, and at most %d bytes", maxArgument)
		}
	}
	return checkEnv(o.Env)
}

func checkEnv(env map[string]string) error {
	if err := checkCount("env", len(env), maxRunNames); err != nil {
		return err
	}
	for name, value := range env {
		if name == "" || len(name) > maxText || strings.ContainsAny(name, "=\x00") || !utf8.ValidString(name) {
			return fault.Field("env", "has a name that is empty, too long, or holds '=' or NUL")
		}
		if len(name)+len(value) >= maxArgument || strings.ContainsRune(value, 0) || !utf8.ValidString(value) {
			return fault.Field("env."+strings.ToValidUTF8(name[:min(len(name), maxWord)], "?"), "must be valid UTF-8 without NUL, and at most %d bytes", maxArgument)
		}
	}
	return nil
}

// checkFileName allows one plain name: it becomes a file in a folder.
func checkFileName(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsRune(name, '/') {
		return fault.Field("files", "must have plain names, without a slash")
	}
	return checkText("files", name, maxFileName)
}

func checkLimits(field string, l sandbox.Limits) error {
	if min(l.MilliCPU, l.Memory, l.Processes, l.Disk, l.OpenFiles, int64(l.CPUTime)) < 0 {
		return fault.Field(field, "must not be negative")
	}
	return nil
}

// CheckRunID refuses what cannot name a run.
func CheckRunID(id string) error { return checkWord("id", id) }

// Check refuses a piece of output that is out of bounds.
func (c Chunk) Check() error { return c.check() }

// CheckRunResult refuses a result that is out of bounds: a worker is believed
// in what it saw, and in nothing else.
func CheckRunResult(r run.Result) error {
	if err := checkEnd(r); err != nil {
		return err
	}
	for _, w := range []struct{ field, text string }{
		{"sandbox", r.Sandbox}, {"driver", r.Driver}, {"isolation", r.Isolation}, {"worker", r.Worker}, {"image_digest", r.Digest},
	} {
		if err := checkText(w.field, w.text, maxWord); err != nil {
			return err
		}
	}
	if err := checkText("image", r.Image, maxText); err != nil {
		return err
	}
	if err := checkLimits("enforced", r.Enforced); err != nil {
		return err
	}
	if r.Usage.CPU < -1 || r.Usage.PeakMemory < -1 || r.Usage.Wall < -1 {
		return fault.Field("usage", "must not be negative, but for -1")
	}
	if err := checkCount("stages", len(r.Stages), maxStages); err != nil {
		return err
	}
	for i, s := range r.Stages {
		if err := checkWord(at("stages", i), s.Name); err != nil {
			return err
		}
		if s.Took < 0 {
			return fault.Field(at("stages", i), "took less than no time")
		}
	}
	return checkArtifacts(r)
}

func checkEnd(r run.Result) error {
	verdicts := []sandbox.Verdict{
		sandbox.OK, sandbox.Failed, sandbox.Signal, sandbox.Timeout, sandbox.OOM, sandbox.Limit, sandbox.Killed, sandbox.Lost,
	}
	if !slices.Contains(verdicts, r.Verdict) {
		return fault.Field("verdict", "is not a verdict")
	}
	if err := checkText("cause", r.Cause, maxText); err != nil {
		return err
	}
	if r.ExitCode < -1 || r.ExitCode > 255 || r.Signal < 0 || r.Signal > 64 {
		return fault.Field("exit_code", "%d with signal %d is not how a program ends", r.ExitCode, r.Signal)
	}
	if r.Step != run.StepRun && r.Step != run.StepCompile {
		return fault.Field("step", "must be %s or %s", run.StepRun, run.StepCompile)
	}
	for field, o := range map[string]run.Output{"stdout": r.Stdout, "stderr": r.Stderr} {
		if o.Kept < 0 || o.Seen < o.Kept || o.Kept > MaxRunOutput || o.Seen > math.MaxInt64/2 {
			return fault.Field(field, "keeps %d of %d bytes", o.Kept, o.Seen)
		}
		if err := checkDigest(field+".sha256", o.SHA256); err != nil {
			return err
		}
	}
	return nil
}

func checkArtifacts(r run.Result) error {
	if err := checkCount("artifacts", len(r.Artifacts), maxRunNames); err != nil {
		return err
	}
	total := 0
	for _, name := range slices.Sorted(maps.Keys(r.Artifacts)) {
		if err := CheckArtifact("artifacts", name); err != nil {
			return err
		}
		a := r.Artifacts[name]
		if err := checkDigest("artifacts.sha256", a.SHA256); err != nil {
			return err
		}
		total += len(a.Data)
	}
	if total > maxRunFiles {
		return fault.Field("artifacts", "have %d bytes; at most %d fit in one result", total, maxRunFiles)
	}
	if err := checkCount("skipped", len(r.Skipped), maxRunNames); err != nil {
		return err
	}
	for i, s := range r.Skipped {
		if err := checkText(at("skipped", i), s, maxText); err != nil {
			return err
		}
	}
	return nil
}

// Check refuses a pool's state that is out of bounds.
func (p PoolState) Check() error {
	if err := checkCount("classes", len(p.Classes), maxClasses); err != nil {
		return err
	}
	for i, c := range p.Classes {
		if err := checkText(at("classes", i)+".image", c.Image, maxText); err != nil {
			return err
		}
		for _, text := range []string{c.Driver, c.Language} {
			if err := checkText(at("classes", i), text, maxWord); err != nil {
				return err
			}
		}
		if min(int64(c.Wanted), int64(c.Waiting), int64(c.Making), c.Hits, c.Misses, c.Discards, int64(c.Oldest)) < 0 {
			return fault.Field(at("classes", i), "must not be negative")
		}
		if err := checkLimits(at("classes", i), c.Limits); err != nil {
			return err
		}
	}
	return nil
}
