package run

import (
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/language"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Bounds of what a request holds. The body of a request is bounded as a whole
// by the door; these keep each part to what a sandbox can be given.
const (
	MaxTimeout = 300 * time.Second
	MaxFiles   = 100
	MaxArgs    = 256
	MaxEnv     = 256
	MaxBatch   = 1000

	maxFileName = 255
	maxArg      = 32 << 10
	maxEnvName  = 128
	maxEnvValue = 32 << 10
	maxEnvTotal = 128 << 10 // of arguments, and of the environment
	maxName     = 512       // of an image
	maxMemory   = 1 << 50
)

// Request is what somebody asks for, as it was read and before it is checked.
// Nil and empty stand for what was left out.
type Request struct {
	Code             string
	Language         string
	Timeout          *int64 // seconds
	Files            map[string]string
	ReadOnly         *bool
	CaptureArtifacts *bool
	Stdin            string
	Args             []string
	Env              map[string]string
	Network          string
	Driver           string
	Image            string
	// Processors, and Memory in bytes, are the limits that have names of their
	// own; Limits has the others.
	Processors *float64
	Memory     *int64
	Limits     sandbox.Limits
	// Webhook is told of the end; "" is nobody.
	Webhook string
	Project int64 // that it belongs to; 0 is none
}

// Languages are the languages that a server knows.
type Languages interface {
	// Lookup finds a language by its name or another word for it, in any case.
	Lookup(name string) (language.Language, bool)
	// Names lists them.
	Names() []string
}

// Terms are what a server gives a run that does not ask, and the most that it
// gives one that does.
type Terms struct {
	Languages Languages
	Timeout   time.Duration // where a request names none
	// Most bounds what a request may ask for; 0 is no bound.
	Most sandbox.Limits
	// OutputCap is how much of each stream is kept.
	OutputCap int64
}

// Order checks a request and returns the order for it, without its ID. The
// fault names the field, and for a file its name.
func (r *Request) Order(t Terms) (Order, error) {
	if r.Project < 0 {
		return Order{}, fault.Field("project_id", "must not be negative")
	}
	o := Order{
		Project: r.Project, Code: r.Code, Files: r.Files, Args: r.Args, Env: r.Env, Stdin: r.Stdin, Driver: r.Driver, Image: r.Image,
		ReadOnly: value(r.ReadOnly, true), Artifacts: value(r.CaptureArtifacts, true), Network: sandbox.NetworkNone, OutputCap: t.OutputCap,
	}
	lang, err := r.language(t.Languages)
	if err != nil {
		return Order{}, err
	}
	o.Language = lang.Name
	if o.Timeout, err = r.timeout(t.Timeout); err != nil {
		return Order{}, err
	}
	if o.Limits, err = r.limits(t.Most); err != nil {
		return Order{}, err
	}
	for _, check := range []func() error{
		r.checkCode, func() error { return checkFiles(r.Files, lang) }, r.checkArgs, r.checkEnv, r.checkNetwork, r.checkPlace,
	} {
		if err := check(); err != nil {
			return Order{}, err
		}
	}
	return o, nil
}

func value(p *bool, otherwise bool) bool {
	if p == nil {
		return otherwise
	}
	return *p
}

// DefaultLanguage is the language of a request that names none.
const DefaultLanguage = "python"

func (r *Request) language(known Languages) (language.Language, error) {
	name := r.Language
	if name == "" {
		name = DefaultLanguage
	}
	if len(name) <= maxFileName {
		if l, ok := known.Lookup(name); ok {
			return l, nil
		}
	}
	return language.Language{}, fault.Field("language", "%q is not known here; the languages are %s", clip(name), strings.Join(known.Names(), ", ")).WithCode("unknown_language")
}

func (r *Request) timeout(otherwise time.Duration) (time.Duration, error) {
	if r.Timeout == nil {
		return otherwise, nil
	}
	if s := *r.Timeout; s < 1 || s > int64(MaxTimeout/time.Second) {
		return 0, fault.Field("timeout", "must be from 1 to %d seconds", MaxTimeout/time.Second)
	}
	return time.Duration(*r.Timeout) * time.Second, nil
}

func (r *Request) checkCode() error {
	if r.Code == "" {
		return fault.Field("code", "must not be empty")
	}
	return checkText("code", r.Code)
}

// checkText refuses text that no file or stream of ours could be told apart
// from damage.
func checkText(field, s string) error {
	switch {
	case !utf8.ValidString(s):
		return fault.Field(field, "is not valid UTF-8")
	case strings.IndexByte(s, 0) >= 0:
		return fault.Field(field, "contains a NUL character")
	}
	return nil
}

// checkFiles refuses names that are not plain: they become names in a folder
// beside the code. Two that a file system could take for one are refused too.
func checkFiles(files map[string]string, lang language.Language) error {
	if len(files) > MaxFiles {
		return fault.Field("files", "has more than %d files", MaxFiles)
	}
	taken := map[string]string{fold(lang.File): "the code's own file", fold("artifacts"): "the folder of artifacts"}
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names) // so that the same request gets the same answer
	for _, name := range names {
		if err := checkFileName(name); err != nil {
			return err
		}
		folded := fold(name)
		if by, there := taken[folded]; there {
			return badFile(name, "is taken by "+by)
		}
		taken[folded] = "another file that differs from it in case or in how its letters are composed"
		if err := checkText(fileField(name), files[name]); err != nil {
			return err
		}
	}
	return nil
}

func checkFileName(name string) error {
	switch {
	case name == "":
		return badFile(name, "must not be empty")
	case len(name) > maxFileName:
		return badFile(name, "is longer than 255 bytes")
	case !utf8.ValidString(name):
		return badFile(name, "is not valid UTF-8")
	case strings.ContainsAny(name, `/\`):
		return badFile(name, "has a separator; names are plain")
	case strings.HasPrefix(name, "."):
		return badFile(name, "begins with a dot")
	case strings.ContainsFunc(name, unprintable):
		return badFile(name, "has a character that is not printable")
	}
	return nil
}

// unprintable reports whether a character could hide what a name is.
func unprintable(c rune) bool { return !unicode.IsPrint(c) }

func fileField(name string) string { return "files[" + clip(name) + "]" }

func badFile(name, why string) error {
	return fault.Field(fileField(name), "the file name %q %s", clip(name), why).WithCode("bad_file_name")
}

// fold gives names that some file system takes for the same the same text.
func fold(name string) string {
	return norm.NFKC.String(strings.ToLower(strings.ToUpper(norm.NFKC.String(name))))
}

func (r *Request) checkArgs() error {
	if len(r.Args) > MaxArgs {
		return fault.Field("args", "has more than %d arguments", MaxArgs)
	}
	sum := 0
	for _, a := range r.Args {
		if err := checkText("args", a); err != nil {
			return err
		}
		if len(a) > maxArg {
			return fault.Field("args", "has an argument of more than %d bytes", maxArg)
		}
		sum += len(a)
	}
	if sum > maxEnvTotal {
		return fault.Field("args", "has more than %d bytes", maxEnvTotal)
	}
	return checkText("stdin", r.Stdin)
}

func (r *Request) checkEnv() error {
	if len(r.Env) > MaxEnv {
		return fault.Field("env", "has more than %d variables", MaxEnv)
	}
	sum := 0
	for name, v := range r.Env {
		switch {
		case !variable(name):
			return fault.Field("env", "%q is not the name of a variable: letters, digits and _, not a digit first, at most %d", clip(name), maxEnvName)
		case strings.HasPrefix(name, "AUREA_"):
			return fault.Field("env", "%q: names that begin with AUREA_ are the sandbox's own", clip(name))
		case len(v) > maxEnvValue:
			return fault.Field("env", "the value of %q has more than %d bytes", clip(name), maxEnvValue)
		}
		if err := checkText("env", v); err != nil {
			return err
		}
		sum += len(name) + len(v)
	}
	if sum > maxEnvTotal {
		return fault.Field("env", "has more than %d bytes", maxEnvTotal)
	}
	return nil
}

func variable(name string) bool {
	for i := range len(name) {
		c := name[i]
		if letter := c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z'; !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != "" && len(name) <= maxEnvName
}

func (r *Request) checkNetwork() error {
	switch sandbox.Network(r.Network) {
	case "", sandbox.NetworkNone:
		return nil
	case sandbox.NetworkController, sandbox.NetworkAllowlist, sandbox.NetworkFull:
		return fault.Field("network", "%q is not yet served for runs; only \"none\" is", r.Network).WithCode("network_unavailable")
	}
	return fault.Field("network", "%q is not a network; only \"none\" is served for now", clip(r.Network))
}

// checkPlace checks the words that choose where a run is done. Whether there is
// such a driver or image is for those to say who have them.
func (r *Request) checkPlace() error {
	for i := range len(r.Driver) {
		if c := r.Driver[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' || i >= 64 {
			return fault.Field("driver", "%q is not the name of a driver", clip(r.Driver))
		}
	}
	if len(r.Image) > maxName || !utf8.ValidString(r.Image) || strings.ContainsFunc(r.Image, func(c rune) bool { return unprintable(c) || c == ' ' }) {
		return fault.Field("image", "%q is not the name of an image", clip(r.Image))
	}
	return nil
}

// limits joins the limits of a request and holds them to the server's.
func (r *Request) limits(most sandbox.Limits) (sandbox.Limits, error) {
	l := r.Limits
	if p := r.Processors; p != nil {
		if math.IsNaN(*p) || *p < 0.001 || *p > 4096 {
			return l, fault.Field("cpu_limit", "must be a number of processors from 0.001, such as 0.5")
		}
		l.MilliCPU = int64(math.Round(*p * 1000))
	}
	if m := r.Memory; m != nil {
		if *m < 1 || *m > maxMemory {
			return l, fault.Field("memory_limit", "must be a size such as \"512m\", \"1g\", or a number of bytes")
		}
		l.Memory = *m
	}
	for _, x := range []struct {
		field     string
		ask, most int64
	}{
		{"cpu_limit", l.MilliCPU, most.MilliCPU},
		{"memory_limit", l.Memory, most.Memory},
		{"limits.processes", l.Processes, most.Processes},
		{"limits.disk", l.Disk, most.Disk},
		{"limits.open_files", l.OpenFiles, most.OpenFiles},
		{"limits.cpu_time", int64(l.CPUTime), int64(most.CPUTime)},
	} {
		switch {
		case x.ask < 0:
			return l, fault.Field(x.field, "must not be negative")
		case x.most > 0 && x.ask > x.most:
			return l, fault.Field(x.field, "is more than this server gives, which is %s", shown(x.field, x.most)).WithCode("over_limit")
		}
	}
	return l, nil
}

func shown(field string, n int64) string {
	switch field {
	case "cpu_limit":
		return formatMilli(n) + " processors"
	case "limits.cpu_time":
		return time.Duration(n).String()
	case "memory_limit", "limits.disk":
		return FormatSize(n)
	}
	return formatInt(n)
}

// clip keeps hostile input short in messages.
func clip(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
