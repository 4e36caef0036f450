package sandbox

import (
	"cmp"
	"slices"
	"strings"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Validate returns a fault of kind Invalid that names the first field of the
// spec that no driver could make sense of.
func (s Spec) Validate() error {
	if !validID(s.ID, 40, func(byte) bool { return false }) {
		return fault.Field("id", "%q is not 1 to 40 lower-case letters and digits", s.ID)
	}
	if strings.ContainsRune(s.Image, 0) {
		return fault.Field("image", "an image name cannot hold a NUL byte")
	}
	for _, l := range limitsOf(s.Limits) {
		if l.asked < 0 {
			return fault.Field(l.field, "%d is negative; leave the limit out to ask for none", l.asked)
		}
	}
	switch s.Network {
	case "", NetworkNone, NetworkController, NetworkAllowlist, NetworkFull:
	default:
		return fault.Field("network", "%q is not a network mode; use none, controller, allowlist or full", s.Network)
	}
	return validEnv(s.Env)
}

// maxArgument is how much a kernel takes in one argument or variable.
const maxArgument = 128<<10 - 1

// Validate returns a fault of kind Invalid that names the first field of the
// spec that no driver could make sense of.
func (s ExecSpec) Validate() error {
	if !validID(s.ID, 64, func(c byte) bool { return c == '-' || (c >= 'A' && c <= 'Z') }) {
		return fault.Field("id", "%q is not 1 to 64 letters, digits and dashes", s.ID)
	}
	if len(s.Command) == 0 || s.Command[0] == "" {
		return fault.Field("command", "the command is empty; name a program")
	}
	for _, arg := range s.Command {
		if strings.ContainsRune(arg, 0) {
			return fault.Field("command", "an argument cannot hold a NUL byte")
		}
		if len(arg) > maxArgument {
			return fault.Field("command", "an argument is %d bytes long; a program takes at most %d", len(arg), maxArgument).WithCode("argument_too_long")
		}
	}
	if s.Dir != "" && (!strings.HasPrefix(s.Dir, "/") || strings.ContainsRune(s.Dir, 0)) {
		return fault.Field("dir", "%q is not an absolute path", s.Dir)
	}
	return validEnv(s.Env)
}

// clip keeps a name short where it is shown.
func clip(s string) string { return s[:min(len(s), 80)] }

func validEnv(env map[string]string) error {
	for name, value := range env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return fault.Field("env", "%q cannot name a variable: it is empty, or holds '=' or a NUL byte", name)
		}
		if strings.ContainsRune(value, 0) {
			return fault.Field("env."+name, "a value cannot hold a NUL byte")
		}
		if len(name)+len(value)+1 > maxArgument {
			return fault.Field("env."+clip(name), "is %d bytes long; a program takes at most %d", len(value), maxArgument).WithCode("argument_too_long")
		}
	}
	return nil
}

// Check returns a fault of kind Invalid when the spec asks for a limit, a
// network or a power that these capabilities do not have. Drivers call it first
// in Create, and Open calls it before Create: nothing is ever downgraded.
func (c Capabilities) Check(spec Spec) error {
	for _, l := range limitsOf(spec.Limits) {
		if l.asked != 0 && !l.listed(c) {
			return fault.Field(l.field, "this driver cannot enforce the limit; leave it out, or choose another driver").
				WithCode("limit_unenforceable")
		}
	}
	// No network is a promise too: a driver that cannot keep it must not be
	// handed a spec that says nothing.
	network := cmp.Or(spec.Network, NetworkNone)
	if !slices.Contains(c.Networks, network) {
		return fault.Field("network", "this driver cannot enforce the network mode %q; it can do %v", network, c.Networks).
			WithCode("network_unenforceable")
	}
	if spec.Restore != "" && !c.Snapshot {
		return fault.Field("restore", "this driver cannot start from a snapshot").WithCode("snapshot_unsupported")
	}
	return nil
}

// Hold returns a fault of kind Invalid unless the enforced limits are at least
// as strict as every limit that was asked for.
func (l Limits) Hold(enforced Limits) error {
	got := limitsOf(enforced)
	for i, want := range limitsOf(l) {
		if want.asked != 0 && (got[i].asked <= 0 || got[i].asked > want.asked) {
			return fault.Field(want.field, "the driver enforces %d where %d was asked for", got[i].asked, want.asked).
				WithCode("limit_unenforceable")
		}
	}
	return nil
}

// limit is one row of the table that ties a limit to its field and capability.
type limit struct {
	field  string
	asked  int64
	listed func(Capabilities) bool
}

func limitsOf(l Limits) [6]limit {
	return [6]limit{
		{"limits.milli_cpu", l.MilliCPU, func(c Capabilities) bool { return c.CPU }},
		{"limits.memory_bytes", l.Memory, func(c Capabilities) bool { return c.Memory }},
		{"limits.processes", l.Processes, func(c Capabilities) bool { return c.Processes }},
		{"limits.disk_bytes", l.Disk, func(c Capabilities) bool { return c.Disk }},
		{"limits.open_files", l.OpenFiles, func(c Capabilities) bool { return c.OpenFiles }},
		{"limits.cpu_time_ns", int64(l.CPUTime), func(c Capabilities) bool { return c.CPUTime }},
	}
}
