package fake

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
)

// The steps at which a sandbox can be told to hang or to crash.
const (
	stepCreate  = "create"
	stepExec    = "exec"
	stepRun     = "run"
	stepPut     = "put"
	stepGet     = "get"
	stepDestroy = "destroy"
	stepOther   = "another call" // not to be named in a script
)

// script is what the environment asks a sandbox and its processes to do.
type script struct {
	sleep          time.Duration
	stdout, stderr string
	output         int64
	exit           int
	signal         int
	oom            bool
	memory         int64
	cpu            time.Duration
	crash, hang    string
	listen         uint16
	scripted       bool // the command is not looked at
}

// readScript reads the script from the environments, later ones over earlier.
func readScript(envs ...map[string]string) (script, error) {
	var s script
	for _, env := range envs {
		for name, value := range env {
			if !strings.HasPrefix(name, "FAKE_") {
				continue
			}
			if err := s.set(name, value); err != nil {
				return script{}, err
			}
		}
	}
	return s, nil
}

func (s *script) set(name, value string) error {
	var ok bool
	switch name {
	case "FAKE_SLEEP":
		d, err := time.ParseDuration(value)
		s.sleep, ok = d, err == nil && d >= 0
	case "FAKE_STDOUT":
		s.stdout, s.scripted, ok = value, true, true
	case "FAKE_STDERR":
		s.stderr, s.scripted, ok = value, true, true
	case "FAKE_OUTPUT_BYTES":
		s.output, ok = parseSize(value)
		s.scripted = true
	case "FAKE_EXIT":
		s.exit, ok = parseSmall(value, 255)
		s.scripted = true
	case "FAKE_SIGNAL":
		s.signal, ok = parseSmall(value, 64)
		s.scripted = true
	case "FAKE_OOM":
		b, err := strconv.ParseBool(value)
		s.oom, ok = b, err == nil
		s.scripted = s.scripted || b
	case "FAKE_MEMORY":
		s.memory, ok = parseSize(value)
	case "FAKE_CPU":
		d, err := time.ParseDuration(value)
		s.cpu, ok = d, err == nil && d >= 0
	case "FAKE_LISTEN":
		port, err := strconv.ParseUint(value, 10, 16)
		s.listen, ok = uint16(port), err == nil
	case "FAKE_CRASH":
		s.crash, ok = value, oneOf(value, stepCreate, stepExec, stepRun, stepPut, stepGet)
	case "FAKE_HANG":
		s.hang, ok = value, oneOf(value, stepCreate, stepExec, stepRun, stepPut, stepGet, stepDestroy)
	default:
		return fault.Field("env."+name, "the fake driver does not know this variable")
	}
	if !ok {
		return fault.Field("env."+name, "the fake driver does not understand %q", value)
	}
	return nil
}

// oneOf reports whether value is empty or one of the words.
func oneOf(value string, words ...string) bool {
	for _, w := range words {
		if value == w {
			return true
		}
	}
	return value == ""
}

func parseSmall(value string, most int) (int, bool) {
	n, err := strconv.Atoi(value)
	return n, err == nil && n >= 0 && n <= most
}

// parseSize reads a number of bytes with an optional unit.
func parseSize(value string) (int64, bool) {
	digits := strings.TrimRight(value, "KMGiB")
	unit := int64(1)
	switch value[len(digits):] {
	case "", "B":
	case "KB":
		unit = 1e3
	case "MB":
		unit = 1e6
	case "GB":
		unit = 1e9
	case "KiB":
		unit = 1 << 10
	case "MiB":
		unit = 1 << 20
	case "GiB":
		unit = 1 << 30
	default:
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/4/unit {
		return 0, false
	}
	return n * unit, true
}
