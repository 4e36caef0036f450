package live

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Bounds of what a request holds.
const (
	MaxName    = 128
	MaxLabels  = 64
	MaxFiles   = 100
	MaxExecEnv = 256
	MaxArgs    = 1000

	maxLabelKey   = 63
	maxLabelValue = 256
	maxEnvTotal   = 128 << 10
	maxFileBytes  = 8 << 20 // of all files of a request together
	maxImage      = 512
	minTimeout    = time.Second
	maxPath       = 4095
)

// Request is what somebody asks for, before it is checked. Nil stands for what
// was left out.
type Request struct {
	Name  string
	Spec  Spec
	Files map[string][]byte // by path below /workspace
	// TTL and Idle are those of the Spec where they were asked for; 0 is for
	// ever.
	TTL, Idle *time.Duration
	// Session and App are set by the doors that have them.
	Session, App string
}

// Terms are what a server gives a sandbox that does not ask, and the most that
// it gives one that does.
type Terms struct {
	TTL, MaxTTL time.Duration
	Idle        time.Duration
	Most        sandbox.Limits // 0 is no bound
	// ExecTimeout is that of an exec that names none; OutputCap bounds each of
	// its streams.
	ExecTimeout time.Duration
	OutputCap   int64
}

// Check refuses a request that is out of bounds and fills in the terms. The
// fault names the field.
func (r *Request) Check(t Terms) error {
	if err := CheckName(r.Name); err != nil {
		return err
	}
	if strings.ContainsRune(r.Spec.Image, 0) || len(r.Spec.Image) > maxImage || !utf8.ValidString(r.Spec.Image) {
		return fault.Field("image", "is not the name of an image")
	}
	if err := checkWord("driver", r.Spec.Driver, MaxName); err != nil {
		return err
	}
	for _, check := range []func() error{
		r.checkTimes(t), func() error { return CheckLabels(r.Spec.Labels) }, func() error { return checkEnv("env", r.Spec.Env) },
		r.checkNetwork, r.checkFiles, func() error { return CheckLimits(r.Spec.Limits, t.Most) }, r.checkSecrets,
		r.Spec.Sync.Check,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (r *Request) checkTimes(t Terms) func() error {
	return func() error {
		r.Spec.TTL, r.Spec.Idle = t.TTL, t.Idle
		if r.TTL != nil {
			r.Spec.TTL = *r.TTL
		}
		if r.Idle != nil {
			r.Spec.Idle = *r.Idle
		}
		if err := CheckTTL(r.Spec.TTL, t); err != nil {
			return err
		}
		if r.Spec.Idle != 0 && r.Spec.Idle < minTimeout {
			return fault.Field("idle_timeout", "must be at least 1 second, or 0 for none")
		}
		switch r.Spec.OnTimeout {
		case "":
			r.Spec.OnTimeout = Kill
		case Kill, Pause:
		default:
			return fault.Field("on_timeout", "%q is neither kill nor pause", clip(string(r.Spec.OnTimeout)))
		}
		return nil
	}
}

// CheckTTL refuses a time to live that the terms do not allow.
func CheckTTL(ttl time.Duration, t Terms) error {
	switch {
	case ttl < 0 || ttl > 0 && ttl < minTimeout:
		return fault.Field("ttl", "must be at least 1 second")
	case t.MaxTTL > 0 && (ttl == 0 || ttl > t.MaxTTL):
		return fault.Field("ttl", "can be at most %d seconds here (AUREA_SANDBOX_MAX_TTL)", int64(t.MaxTTL/time.Second))
	}
	return nil
}

func (r *Request) checkNetwork() error {
	switch r.Spec.Network {
	case "", sandbox.NetworkNone:
		r.Spec.Network = sandbox.NetworkNone
		return nil
	case sandbox.NetworkController, sandbox.NetworkAllowlist, sandbox.NetworkFull:
		return fault.Field("network", "the mode %q is not offered yet; leave it out, or say none", r.Spec.Network).WithCode("network_unavailable")
	}
	return fault.Field("network", "%q is not a network mode; use none", clip(string(r.Spec.Network)))
}

func (r *Request) checkFiles() error {
	if len(r.Files) > MaxFiles {
		return fault.Field("files", "has more than %d files; send more as a tar afterwards", MaxFiles)
	}
	sum := 0
	for name, data := range r.Files {
		if err := CheckRelative("files", name); err != nil {
			return err
		}
		sum += len(data)
	}
	if sum > maxFileBytes {
		return fault.Field("files", "has more than %d bytes; send more as a tar afterwards", maxFileBytes)
	}
	return nil
}

func (r *Request) checkSecrets() error {
	for _, name := range r.Spec.Secrets {
		if _, there := r.Spec.Env[name]; !there {
			return fault.Field("secrets", "%q is not a variable in env", clip(name))
		}
	}
	return nil
}

// CheckRelative refuses a path that does not lead to something below a folder.
func CheckRelative(field, name string) error {
	switch {
	case name == "" || len(name) > maxPath || !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return fault.Field(field, "%q is not a path", clip(name)).WithCode("bad_path")
	case path.IsAbs(name) || path.Clean(name) != name || name == "." || name == ".." || strings.HasPrefix(name, "../"):
		return fault.Field(field, "%q is not a clean path below /workspace", clip(name)).WithCode("bad_path")
	}
	return nil
}

// CheckLabels refuses labels that are out of bounds.
func CheckLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return fault.Field("labels", "has more than %d labels", MaxLabels)
	}
	for key, value := range labels {
		if key == "" {
			return fault.Field("labels", "has a label without a name")
		}
		if err := checkWord("labels", key, maxLabelKey); err != nil {
			return err
		}
		if err := checkWord("labels."+key, value, maxLabelValue); err != nil {
			return err
		}
	}
	return nil
}

// CheckLimits refuses limits that are negative or more than a server gives. The
// fault names them, and the most, as they are asked for.
func CheckLimits(l, most sandbox.Limits) error {
	plain := func(n int64) string { return strconv.FormatInt(n, 10) }
	for _, x := range []struct {
		field       string
		asked, most int64
		shown       func(int64) string
	}{
		{"cpu_limit", l.MilliCPU, most.MilliCPU, func(n int64) string { return strconv.FormatFloat(float64(n)/1000, 'f', -1, 64) }},
		{"memory_limit", l.Memory, most.Memory, run.FormatSize},
		{"limits.processes", l.Processes, most.Processes, plain},
		{"limits.disk", l.Disk, most.Disk, run.FormatSize},
		{"limits.open_files", l.OpenFiles, most.OpenFiles, plain},
		{"limits.cpu_time", int64(l.CPUTime), int64(most.CPUTime), func(n int64) string { return time.Duration(n).String() }},
	} {
		if x.asked < 0 {
			return fault.Field(x.field, "must not be negative")
		}
		if x.most > 0 && x.asked > x.most {
			return fault.Field(x.field, "can be at most %s on this server", x.shown(x.most)).WithCode("over_limit")
		}
	}
	return nil
}

// Check refuses a command that is out of bounds and fills in the terms. A zero
// timeout stands for the server's; a negative one for as long as the sandbox.
func (c *Command) Check(t Terms) error {
	if len(c.Command) == 0 || c.Command[0] == "" {
		return fault.Field("command", "must name a program")
	}
	if len(c.Command) > MaxArgs {
		return fault.Field("command", "has more than %d words", MaxArgs)
	}
	for _, word := range c.Command {
		if !utf8.ValidString(word) || strings.ContainsRune(word, 0) || len(word) >= maxEnvTotal {
			return fault.Field("command", "has a word that is no text, holds NUL, or is longer than %d bytes", maxEnvTotal-1)
		}
	}
	if err := checkEnv("env", c.Env); err != nil {
		return err
	}
	if c.Dir != "" && (!path.IsAbs(c.Dir) || len(c.Dir) > maxPath || strings.ContainsRune(c.Dir, 0)) {
		return fault.Field("cwd", "must be an absolute path")
	}
	if err := checkWord("user", c.User, MaxName); err != nil {
		return err
	}
	switch {
	case c.Timeout == 0:
		c.Timeout = t.ExecTimeout
	case c.Timeout < 0:
		c.Timeout = 0
	}
	if c.OutputCap == 0 {
		c.OutputCap = t.OutputCap
	}
	return nil
}

func checkEnv(field string, env map[string]string) error {
	if len(env) > MaxExecEnv {
		return fault.Field(field, "has more than %d variables", MaxExecEnv)
	}
	sum := 0
	for name, value := range env {
		if name == "" || len(name) > MaxName || strings.ContainsFunc(name, func(c rune) bool { return c == '=' || c <= ' ' || c > '~' }) {
			return fault.Field(field, "%q is not the name of a variable", clip(name))
		}
		if !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
			return fault.Field(field+"."+name, "is no text, or holds NUL")
		}
		sum += len(name) + len(value)
	}
	if sum > maxEnvTotal {
		return fault.Field(field, "has more than %d bytes", maxEnvTotal)
	}
	return nil
}

// CheckName refuses a name by which a sandbox could not be called: it stands in
// paths. "" is none. A name is also a key that makes one sandbox of many requests, so
// everything else that can be printed is taken.
func CheckName(name string) error {
	if name == "." || name == ".." {
		return fault.Field("name", "must not be . or ..")
	}
	return checkWord("name", name, MaxName)
}

func checkWord(field, word string, most int) error {
	if len(word) > most || !utf8.ValidString(word) || strings.ContainsFunc(word, func(c rune) bool { return !unicode.IsPrint(c) }) {
		return fault.Field(field, "must be printable text of at most %d bytes", most)
	}
	return nil
}

func clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), 80)], "?") }

// WithoutSecrets is the spec that a fork gets: what was named a secret is gone.
func (s Spec) WithoutSecrets() Spec {
	if len(s.Secrets) == 0 {
		return s
	}
	env := map[string]string{}
	for name, value := range s.Env {
		if !slices.Contains(s.Secrets, name) {
			env[name] = value
		}
	}
	s.Env, s.Secrets = env, nil
	return s
}
