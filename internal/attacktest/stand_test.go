package attacktest

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// stand is what the attacks of one driver have around them.
type stand struct {
	driver    sandbox.Driver
	state     string
	bait      string // a folder of the host
	mark      string // what the bait holds
	neighbour *sandbox.Sandbox
	listeners []net.Listener
	python    bool
	rootless  bool // the driver runs nothing as root
}

const patience = time.Minute

// openStand opens a driver with a stand around it, until the end of the test,
// or leaves the test out where that driver cannot be had; not in CI.
func openStand(t *testing.T, f factory) *stand {
	t.Helper()
	state, err := os.MkdirTemp("", "at") // short: drivers put sockets into it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(state) })
	d, lack := f.open(t, state)
	switch {
	case lack != "" && os.Getenv("CI") == "true":
		t.Fatal(lack)
	case lack != "":
		t.Skip(lack)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	s := newStand(t, d, state)
	t.Cleanup(func() { s.leave(t) })
	return s
}

func newStand(t *testing.T, d sandbox.Driver, state string) *stand {
	t.Helper()
	s := &stand{driver: d, state: state, bait: t.TempDir(), mark: "the-host-keeps-this-to-itself"}
	if err := os.Chmod(s.bait, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.bait, "canary"), []byte(s.mark), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, a := range [][2]string{{"tcp4", "127.0.0.1:0"}, {"unix", "@" + filepath.Base(state) + "-attacks"}} {
		l, err := net.Listen(a[0], a[1])
		if err != nil {
			t.Fatal(err)
		}
		s.listeners = append(s.listeners, l)
	}
	s.neighbour = s.open(t, sandbox.Limits{})
	s.answers(t, s.neighbour, "neighbour", "echo mine >/workspace/mine")
	s.python = s.run(t, s.neighbour, sandbox.ExecSpec{Command: []string{"sh", "-c", "command -v python3"}}).Verdict == sandbox.OK
	_, err := s.neighbour.Exec(t.Context(), sandbox.ExecSpec{Command: []string{"true"}, User: "0"}, sandbox.ExecOptions{})
	s.rootless = fault.Is(err, fault.Denied)
	return s
}

func (s *stand) leave(t *testing.T) {
	t.Helper()
	s.answers(t, s.neighbour, "neighbour", `test "$(cat /workspace/mine)" = mine && test "$(ls /workspace)" = mine`)
	if err := s.neighbour.Close(context.Background()); err != nil {
		t.Error(err)
	}
	for _, l := range s.listeners {
		_ = l.Close()
	}
	if left, err := s.driver.List(context.Background()); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// lacks is what keeps an attack from being tried on this driver, or "".
func (s *stand) lacks(a attack) string {
	c := s.driver.Capabilities()
	for _, need := range a.Needs {
		has := map[string]bool{
			"memory": c.Memory, "processes": c.Processes, "cpu": c.CPU, "cpu_time": c.CPUTime, "disk": c.Disk, "open_files": c.OpenFiles, "python3": s.python,
		}
		switch {
		case has[need]:
		case need == "python3":
			return "the image has no python3"
		default:
			return "the driver does not enforce a limit on " + strings.ReplaceAll(need, "_", " ")
		}
	}
	return ""
}

// limits asks for everything that the driver can enforce, and for what the
// attack wants on top.
func (s *stand) limits(more sandbox.Limits) sandbox.Limits {
	var l sandbox.Limits
	c := s.driver.Capabilities()
	if c.Memory {
		l.Memory = 256 << 20
	}
	if c.Processes {
		l.Processes = 128
	}
	if c.CPU {
		l.MilliCPU = 1000
	}
	if c.Disk {
		l.Disk = 128 << 20
	}
	if c.OpenFiles {
		l.OpenFiles = 1024
	}
	l.Memory, l.MilliCPU = cmp.Or(more.Memory, l.Memory), cmp.Or(more.MilliCPU, l.MilliCPU)
	l.CPUTime = more.CPUTime
	return l
}

func (s *stand) open(t *testing.T, limits sandbox.Limits) *sandbox.Sandbox {
	t.Helper()
	id, err := sandbox.NewID()
	if err != nil {
		t.Fatal(err)
	}
	box, err := sandbox.Open(t.Context(), sandbox.Options{
		Driver: s.driver, Spec: sandbox.Spec{ID: id, Limits: limits}, OutputCap: outputCap,
	})
	if err != nil {
		t.Fatal(err)
	}
	return box
}

const outputCap = 256 << 10

// answers demands that a sandbox runs a script to its good end.
func (s *stand) answers(t *testing.T, box *sandbox.Sandbox, who, script string) {
	t.Helper()
	r := s.run(t, box, sandbox.ExecSpec{Command: []string{"sh", "-c", script}})
	if r.Verdict != sandbox.OK {
		t.Errorf("%s: %s (%s, code %d)", who, r.Verdict, r.Cause, r.Exit.Code)
	}
}

func (s *stand) run(t *testing.T, box *sandbox.Sandbox, spec sandbox.ExecSpec) sandbox.Result {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errors.New("no answer"))
	defer cancel()
	exec, err := box.Exec(ctx, spec, sandbox.ExecOptions{Timeout: patience / 2})
	if err != nil {
		t.Errorf("start %q: %v", spec.Command, err)
		return sandbox.Result{Verdict: sandbox.Lost}
	}
	r, err := exec.Wait(ctx)
	if err != nil {
		t.Errorf("run %q: %v", spec.Command, err)
	}
	return r
}

// put puts the files of an attack into the workspace.
func (s *stand) put(t *testing.T, box *sandbox.Sandbox, a attack) {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range a.Files {
		path := filepath.Join(root, "attacks", "script", name)
		if name == "attack" {
			path = filepath.Join(binaries, "static")
		}
		body, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(body))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := box.Put(t.Context(), "/workspace", &b); err != nil {
		t.Fatal(err)
	}
}

// fillIn puts what is really on the host into a command.
func (s *stand) fillIn(command []string) []string {
	r := strings.NewReplacer(
		"{mark}", s.mark, "{canary}", filepath.Join(s.bait, "canary"), "{state}", s.state,
		"{neighbour}", filepath.Join(s.state, "box", s.neighbour.ID(), "box.json"),
		"{host}", s.listeners[0].Addr().String(), "{abstract}", strings.TrimPrefix(s.listeners[1].Addr().String(), "@"),
	)
	filled := make([]string, 0, len(command))
	for _, arg := range command {
		filled = append(filled, r.Replace(arg))
	}
	return filled
}

// output keeps what an attack prints.
type output struct {
	mu   sync.Mutex
	said [3][]byte
}

// Write implements sandbox.Sink.
func (o *output) Write(_ context.Context, f sandbox.Frame) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.said[f.Stream] = append(o.said[f.Stream], f.Data...)
	return nil
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.said[sandbox.Stdout])
}

// size is how much was printed.
func (o *output) size() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.said[sandbox.Stdout]) + len(o.said[sandbox.Stderr])
}

func (o *output) brief() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.ToValidUTF8(string(o.said[1][:min(len(o.said[1]), 300)]), "?") + " | " + strings.ToValidUTF8(string(o.said[2][:min(len(o.said[2]), 300)]), "?")
}
