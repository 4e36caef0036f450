package inside

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Arguments are what the host tells the probe about itself: things that are
// really there, outside, and must not be reachable.
type arguments struct {
	canaries []string // files of the host
	hosts    []string // addresses of a listener of the host, as ip:port
	abstract string   // an abstract socket of the host
	mark     string   // what the canaries hold
}

// attempt tries one forbidden thing. It returns nil, or what was reached, when
// the thing could be done, and otherwise what stopped it.
type attempt struct {
	name string
	try  func(a arguments) error
}

// Names lists every attempt of a run as root of the sandbox, or as another, so
// that the host knows which are missing.
func Names(root bool) []string {
	var names []string
	for _, a := range attempts() {
		if !root || !rootMay(a.name) {
			names = append(names, a.name)
		}
	}
	return names
}

// rootMay names what the root user of a sandbox may do there: its image is its
// own, and what it writes lands in a layer that no other sandbox sees.
func rootMay(name string) bool { return name == "file-write-image" }

func attempts() []attempt {
	var all []attempt
	for _, some := range [][]attempt{
		networkAttempts(), fileAttempts(), processAttempts(), privilegeAttempts(), kernelAttempts(),
	} {
		all = append(all, some...)
	}
	return all
}

// The words of a line of output: name, word, detail, separated by tabs.
const (
	Stopped = "stopped"
	Through = "through"
	Works   = "works"
	Broken  = "broken"
)

// Main runs the probe with the arguments that follow the word "probe", and
// returns its exit code.
func Main(args []string, out io.Writer) int {
	if len(args) > 0 {
		switch args[0] {
		case "memory":
			return eatMemory(args[1:], out)
		case "processes":
			return eatProcesses(args[1:], out)
		case "wait":
			return wait()
		}
	}
	var a arguments
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "canary":
			a.canaries = append(a.canaries, value)
		case "host":
			a.hosts = append(a.hosts, value)
		case "abstract":
			a.abstract = value
		case "mark":
			a.mark = value
		}
	}
	for _, c := range controls() {
		if err := c.try(a); err != nil {
			say(out, c.name, Broken, err.Error())
		} else {
			say(out, c.name, Works, "")
		}
	}
	for _, t := range attempts() {
		if os.Getuid() == 0 && rootMay(t.name) {
			continue
		}
		err := t.try(a)
		var it reached
		switch {
		case err == nil:
			say(out, t.name, Through, "")
		case errors.As(err, &it):
			say(out, t.name, Through, string(it))
		default:
			say(out, t.name, Stopped, err.Error())
		}
	}
	return 0
}

// reached is an attempt that got through, and names how.
type reached string

func (r reached) Error() string { return string(r) }

func say(out io.Writer, name, word, detail string) {
	detail = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, detail)
	const most = 200
	if len(detail) > most {
		detail = detail[:most]
	}
	_, _ = fmt.Fprintf(out, "%s\t%s\t%s\n", name, word, detail)
}

// Controls lists what must work, so that a probe which can do nothing at all
// is not taken for a wall that stops everything.
func Controls() []string {
	var names []string
	for _, c := range controls() {
		names = append(names, c.name)
	}
	return names
}

func controls() []attempt {
	return []attempt{
		{"control-write", func(arguments) error {
			const path = "/tmp/.probe"
			if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
				return err
			}
			return os.Remove(path)
		}},
		{"control-loopback", talkToMyself},
		{"control-proc", func(arguments) error {
			_, err := status("CapEff")
			return err
		}},
	}
}

// all says which of the tries got through, else what stopped the first.
func all(tries ...func() error) error {
	var stopped error
	for i, try := range tries {
		err := try()
		if err == nil {
			return reached("try " + strconv.Itoa(i+1))
		}
		var it reached
		if errors.As(err, &it) {
			return err
		}
		if stopped == nil {
			stopped = err
		}
	}
	return stopped
}

// status reads one field of the probe's own status.
func status(field string) (string, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && key == field {
			return strings.TrimSpace(value), nil
		}
	}
	return "", errors.New("no " + field + " in /proc/self/status")
}

// call turns a raw system call into an attempt's answer. Pointers are converted
// in its argument list, where the directive keeps what they point to alive.
//
//go:uintptrescapes
func call(number uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	_, _, errno := unix.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
	if errno != 0 {
		return errno
	}
	return nil
}

// readable gets through when the file yields at least one byte: an engine may
// cover a file with an empty one.
func readable(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	var b [64]byte
	n, err := unix.Read(fd, b[:])
	if err != nil {
		return err
	}
	if n == 0 {
		return errors.New("empty")
	}
	return reached("read " + path)
}

// writable gets through when the file can be opened for writing.
func writable(path string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	_ = unix.Close(fd)
	return reached("write " + path)
}

func number(args []string) int64 {
	if len(args) == 0 {
		return 0
	}
	n, err := strconv.ParseInt(args[0], 10, 64)
	if err != nil {
		return 0
	}
	return n
}
