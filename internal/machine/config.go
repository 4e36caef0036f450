package machine

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Bounds of what a request holds.
const (
	maxWord      = 128
	maxConfig    = 1 << 20
	maxMetadata  = 64
	maxValue     = 4096
	maxFiles     = 100
	maxProcesses = 8
	maxCPUs      = 256
	maxMemoryMB  = 4 << 20
)

// What a machine gets that does not ask: as much as the origin of this shape
// gives.
const (
	defaultCPUs     = 1
	defaultMemoryMB = 512
	defaultRetries  = 10
	DefaultRegion   = "local"
)

// Config is what of a machine's configuration has an effect here. The rest of
// the document is kept and shown, unless it asks for something that would be
// missed.
type Config struct {
	Image       string            `json:"image"`
	Guest       *Guest            `json:"guest"`
	Env         map[string]string `json:"env"`
	Init        Init              `json:"init"`
	Processes   []ProcessConfig   `json:"processes"`
	Restart     *Restart          `json:"restart"`
	Metadata    map[string]string `json:"metadata"`
	AutoDestroy bool              `json:"auto_destroy"`
	Files       []File            `json:"files"`
	Stop        *StopConfig       `json:"stop_config"`

	Mounts     []json.RawMessage `json:"mounts"`
	Containers []json.RawMessage `json:"containers"`
	Volumes    []json.RawMessage `json:"volumes"`
	Schedule   string            `json:"schedule"`
	Standbys   []string          `json:"standbys"`
}

// Guest is the size of a machine.
type Guest struct {
	CPUKind  string `json:"cpu_kind"`
	CPUs     int    `json:"cpus"`
	MemoryMB int    `json:"memory_mb"`
	GPUs     int    `json:"gpus,omitempty"`
	GPUKind  string `json:"gpu_kind,omitempty"`
}

// Limits is what the size comes to.
func (g Guest) Limits() sandbox.Limits {
	return sandbox.Limits{MilliCPU: int64(g.CPUs) * 1000, Memory: int64(g.MemoryMB) << 20}
}

// Init is what a machine runs: exec, or entrypoint and cmd.
type Init struct {
	Exec       []string `json:"exec"`
	Entrypoint []string `json:"entrypoint"`
	Cmd        []string `json:"cmd"`
}

func (i Init) words() []string {
	if len(i.Exec) > 0 {
		return i.Exec
	}
	return append(append([]string(nil), i.Entrypoint...), i.Cmd...)
}

// ProcessConfig is one of several processes of a machine.
type ProcessConfig struct {
	Init
	Env  map[string]string `json:"env"`
	User string            `json:"user"`
}

// Restart says when processes that ended are started again.
type Restart struct {
	Policy     string `json:"policy"` // "no", "on-failure", "always"
	MaxRetries *int   `json:"max_retries"`
}

// StopConfig is how a machine is stopped by those who do not say.
type StopConfig struct {
	Signal  string          `json:"signal"`
	Timeout json.RawMessage `json:"timeout"`
}

// File is put into a machine before it starts.
type File struct {
	Path   string  `json:"guest_path"`
	Raw    *string `json:"raw_value"` // base64
	Secret string  `json:"secret_name"`
	Mode   uint32  `json:"mode"`
}

// ReadConfig reads and checks a configuration. The fault names the field.
func ReadConfig(raw json.RawMessage) (c Config, err error) {
	if len(raw) > maxConfig {
		return c, fault.New(fault.TooLarge, "config is larger than %d bytes", maxConfig)
	}
	if len(bytes.TrimSpace(raw)) == 0 || string(bytes.TrimSpace(raw)) == "null" {
		return c, fault.Field("config", "is missing")
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return c, fault.Field("config", "cannot be read: %s", plain(err))
	}
	for _, check := range []func() error{c.checkImage, c.checkMissed, c.checkGuest, c.checkWords, c.checkRestart, func() error { return CheckMetadata(c.Metadata) }, c.checkFiles} {
		if err := check(); err != nil {
			return c, err
		}
	}
	return c, nil
}

// plain is what is wrong with a document, without Go's words for it.
func plain(err error) string {
	if t := (*json.UnmarshalTypeError)(nil); as(err, &t) {
		return t.Field + " cannot be a " + t.Value
	}
	return "it is not JSON"
}

func (c *Config) checkImage() error {
	if strings.TrimSpace(c.Image) == "" {
		return fault.Field("config.image", "is missing")
	}
	return nil
}

// checkMissed refuses what nobody would do.
func (c *Config) checkMissed() error {
	for _, x := range []struct {
		field string
		asked bool
	}{
		{"mounts", len(c.Mounts) > 0},
		{"volumes", len(c.Volumes) > 0},
		{"containers", len(c.Containers) > 0},
		{"schedule", c.Schedule != ""},
		{"standbys", len(c.Standbys) > 0},
	} {
		if x.asked {
			return fault.Field("config."+x.field, "is not offered here; leave it out").WithCode("not_offered")
		}
	}
	return nil
}

func (c *Config) checkGuest() error {
	if c.Guest == nil {
		c.Guest = &Guest{}
	}
	g := c.Guest
	if g.CPUKind == "" {
		g.CPUKind = "shared"
	}
	if g.CPUs == 0 {
		g.CPUs = defaultCPUs
	}
	if g.MemoryMB == 0 {
		g.MemoryMB = defaultMemoryMB
	}
	switch {
	case g.CPUKind != "shared" && g.CPUKind != "performance":
		return fault.Field("config.guest.cpu_kind", "must be shared or performance")
	case g.CPUs < 1 || g.CPUs > maxCPUs:
		return fault.Field("config.guest.cpus", "must be from 1 to %d", maxCPUs)
	case g.MemoryMB < 1 || g.MemoryMB > maxMemoryMB:
		return fault.Field("config.guest.memory_mb", "must be from 1 to %d", maxMemoryMB)
	case g.GPUs != 0 || g.GPUKind != "":
		return fault.Field("config.guest.gpus", "is not offered here; leave it out").WithCode("not_offered")
	}
	return nil
}

func (c *Config) checkWords() error {
	if len(c.Processes) > maxProcesses {
		return fault.Field("config.processes", "has more than %d processes", maxProcesses)
	}
	for _, p := range c.Processes {
		if len(p.words()) == 0 {
			return fault.Field("config.processes", "has a process without exec, entrypoint or cmd")
		}
	}
	if c.Stop != nil {
		if _, err := Signal(c.Stop.Signal); err != nil {
			return fault.Field("config.stop_config.signal", "%q is not the name of a signal", clip(c.Stop.Signal))
		}
		if _, err := Seconds("config.stop_config.timeout", c.Stop.Timeout); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) checkRestart() error {
	if c.Restart == nil {
		c.Restart = &Restart{}
	}
	switch c.Restart.Policy {
	case "":
		c.Restart.Policy = "on-failure"
		if c.AutoDestroy {
			c.Restart.Policy = "no"
		}
	case "no", "on-failure", "always":
	default:
		return fault.Field("config.restart.policy", "must be no, on-failure or always")
	}
	if n := c.Restart.MaxRetries; n != nil && *n < 0 {
		return fault.Field("config.restart.max_retries", "must not be negative")
	}
	return nil
}

// Again reports whether processes are started again after an end.
func (c *Config) Again(failed bool, restarts int) bool {
	most := defaultRetries
	if n := c.Restart.MaxRetries; n != nil && *n > 0 {
		most = *n
	}
	switch c.Restart.Policy {
	case "always":
		return true
	case "on-failure":
		return failed && restarts < most
	}
	return false
}

// Roots are the processes that a machine runs; none is a machine that waits for
// commands.
func (c *Config) Roots() []ProcessConfig {
	if len(c.Processes) > 0 {
		return c.Processes
	}
	if words := c.Init.words(); len(words) > 0 {
		return []ProcessConfig{{Init: Init{Exec: words}}}
	}
	return nil
}

// Words is the command of a process.
func (p ProcessConfig) Words() []string { return p.words() }

func (c *Config) checkFiles() error {
	if len(c.Files) > maxFiles {
		return fault.Field("config.files", "has more than %d files", maxFiles)
	}
	for _, f := range c.Files {
		if !path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path || f.Path == "/" || len(f.Path) > maxValue || strings.ContainsRune(f.Path, 0) || !utf8.ValidString(f.Path) {
			return fault.Field("config.files", "guest_path %q is not a clean absolute path", clip(f.Path))
		}
		if f.Raw == nil || f.Secret != "" {
			return fault.Field("config.files", "%s needs a raw_value; files of secrets are not offered here", clip(f.Path))
		}
		if _, err := f.Data(); err != nil {
			return fault.Field("config.files", "the raw_value of %s is not base64", clip(f.Path))
		}
		if f.Mode > 0o777 {
			return fault.Field("config.files", "the mode of %s has more than permissions", clip(f.Path))
		}
	}
	return nil
}

// Data is what stands in the file.
func (f File) Data() ([]byte, error) { return base64.StdEncoding.DecodeString(*f.Raw) }

// CheckMetadata refuses metadata that is out of bounds.
func CheckMetadata(metadata map[string]string) error {
	if len(metadata) > maxMetadata {
		return fault.Field("metadata", "has more than %d keys", maxMetadata)
	}
	for key, value := range metadata {
		if !isWord(key) {
			return fault.Field("metadata", "%q is not a key", clip(key))
		}
		if len(value) > maxValue || !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
			return fault.Field("metadata", "the value of %s is no text, or longer than %d bytes", key, maxValue)
		}
	}
	return nil
}

// Document returns the configuration as it is kept: what was sent, with what is
// decided here put in.
func (c *Config) Document(raw json.RawMessage) (json.RawMessage, error) {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, fault.Field("config", "is not an object")
	}
	metadata := c.Metadata
	if metadata == nil {
		metadata = map[string]string{}
	}
	for name, value := range map[string]any{"guest": c.Guest, "restart": c.Restart, "metadata": metadata} {
		text, err := json.Marshal(value)
		if err != nil {
			return nil, fault.Field("config."+name, "cannot be kept: %w", err)
		}
		fields[name] = text
	}
	return json.Marshal(fields)
}
