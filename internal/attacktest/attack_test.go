package attacktest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// TestAttacks runs every attack in a sandbox of every driver, one after the
// other: each may use what its sandbox may use, and the host is looked at in
// between.
func TestAttacks(t *testing.T) {
	if raced {
		t.Skip("the attacks run in other processes; they are run without the race detector")
	}
	results := map[string]map[string]string{}
	ran := false
	for _, f := range factories() {
		results[f.name] = map[string]string{}
		t.Run(f.name, func(t *testing.T) {
			ran = runAll(t, f, results[f.name]) || ran
		})
	}
	if ran {
		checkTable(t, results)
	}
}

func runAll(t *testing.T, f factory, results map[string]string) bool {
	state, err := os.MkdirTemp("", "at")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(state)
	d, lack := f.open(t, state)
	if lack != "" {
		if os.Getenv("CI") == "true" {
			t.Fatal(lack)
		}
		t.Skip(lack)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	s := newStand(t, d, state)
	for _, a := range manifest(t) {
		t.Run(a.Name, func(t *testing.T) {
			if lack := s.lacks(a); lack != "" {
				results[a.Name] = "not run: " + lack
				t.Skip(lack)
			}
			if why := a.Known[f.name]; why != "" {
				results[a.Name] = "**not contained**: " + why
				t.Skip(results[a.Name])
			}
			if a.User == "0" && s.rootless {
				results[a.Name] = "contained: nothing runs as root"
				t.Skip(results[a.Name])
			}
			s.attack(t, a)
			results[a.Name] = "contained"
			if t.Failed() {
				results[a.Name] = "NOT CONTAINED"
			}
		})
	}
	s.leave(t)
	return true
}

// TestTheChecksCanFail asks them while a daemon lives.
func TestTheChecksCanFail(t *testing.T) {
	f := factories()[0]
	state, err := os.MkdirTemp("", "at")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(state)
	d, lack := f.open(t, state)
	if lack != "" {
		t.Skip(lack)
	}
	defer d.Close()
	s := newStand(t, d, state)
	defer s.leave(t)
	box := s.open(t, s.limits())
	defer box.Close(context.Background())
	s.put(t, box, attack{Files: []string{"attack"}})
	exec, err := box.Exec(t.Context(), sandbox.ExecSpec{Command: []string{"./attack", "daemon", "wait"}, Env: map[string]string{"AUREA_ATTACK": "1"}}, sandbox.ExecOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.answers(t, box, "start", "until test -s /workspace/growing; do :; done")
	for _, script := range []string{noSurvivors, isQuiet} {
		if r := s.run(t, box, sandbox.ExecSpec{Command: []string{"sh", "-c", script}}); r.Verdict != sandbox.Failed {
			t.Errorf("%s: %s", script, r.Verdict)
		}
	}
	if err := exec.Kill(t.Context(), "the test"); err != nil {
		t.Error(err)
	}
	for _, script := range []string{noSurvivors, isQuiet} {
		s.answers(t, box, "after the kill", script)
	}
}

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
			"memory": c.Memory, "processes": c.Processes, "cpu": c.CPU, "disk": c.Disk, "open_files": c.OpenFiles, "python3": s.python,
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

// limits asks for everything that the driver can enforce.
func (s *stand) limits() sandbox.Limits {
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

// attack is one attack, from the picture before to the picture after.
func (s *stand) attack(t *testing.T, a attack) {
	before := look(t, s.state, s.bait, s.neighbour.ID())
	box := s.open(t, s.limits())
	closed := false
	defer func() {
		if !closed {
			_ = box.Close(context.Background())
		}
	}()
	s.put(t, box, a)
	if a.Prepare == "theirs" {
		r := s.run(t, box, sandbox.ExecSpec{Command: []string{"sh", "-c", "echo theirs >/tmp/theirs; chmod 644 /tmp/theirs"}, Dir: "/tmp", User: "nobody"})
		if r.Verdict != sandbox.OK {
			t.Fatalf("prepare: %s", r.Verdict)
		}
	}
	var out output
	spec := sandbox.ExecSpec{Command: s.fillIn(a.Command), User: a.User, Env: map[string]string{"AUREA_ATTACK": "1"}}
	for name, value := range a.Env {
		spec.Env[name] = value
	}
	began := time.Now()
	exec, err := box.Exec(t.Context(), spec, sandbox.ExecOptions{Timeout: a.timeout(t), Sink: &out})
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(a.During, "collect") {
		s.collect(t, box)
	}
	bounded, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("the attack did not end"))
	defer cancel()
	result, err := exec.Wait(bounded)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s after %s; %s", result.Verdict, time.Since(began).Round(time.Millisecond), out.brief())
	s.judge(t, a, result, &out)
	if alive(result.Verdict) && !(a.Fatal && gone(box)) {
		s.afterwards(t, a, box)
	}
	if strong := bold(); len(strong) > 0 {
		t.Errorf("processes on the host with a higher priority: %q", strong)
	}
	closed = true
	if err := box.Close(context.Background()); err != nil {
		t.Errorf("destroy: %v", err)
	}
	s.settled(t, before)
	s.answers(t, s.neighbour, "neighbour", "test -f /workspace/mine")
}

// settled compares the host with the picture before. What a killed process
// leaves the kernel to end may take a moment on a busy machine, and no longer.
func (s *stand) settled(t *testing.T, before host) {
	t.Helper()
	const moment = 5 * time.Second
	began := time.Now()
	for {
		after := look(t, s.state, s.bait, s.neighbour.ID())
		if slices.Equal(before.processes, after.processes) || time.Since(began) > moment {
			before.same(t, after)
			return
		}
		t.Logf("not gone %s after the sandbox was destroyed: %q", time.Since(began).Round(time.Millisecond), after.processes)
		time.Sleep(100 * time.Millisecond)
	}
}

// gone reports whether a sandbox has ended with its attack. One that is about
// to gets a moment.
func gone(box *sandbox.Sandbox) bool {
	const moment = 2 * time.Second
	select {
	case <-box.Done():
		return true
	case <-time.After(moment):
		return false
	}
}

// alive reports whether a verdict leaves the sandbox alive: running out of
// memory ends all of it.
func alive(v sandbox.Verdict) bool { return v != sandbox.OOM }

func (s *stand) judge(t *testing.T, a attack, result sandbox.Result, out *output) {
	t.Helper()
	if !slices.Contains(a.Verdicts, result.Verdict) {
		t.Errorf("verdict %s (%s, code %d), want one of %v", result.Verdict, result.Cause, result.Exit.Code, a.Verdicts)
	}
	text := out.text()
	stopped := 0
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "THROUGH"):
			t.Error(strings.TrimSpace(line))
		case strings.HasPrefix(line, "STOPPED"):
			stopped++
		}
	}
	killed := result.Verdict == sandbox.OOM || a.Fatal && result.Verdict == sandbox.Signal
	if stopped == 0 && !a.Silent && !killed {
		t.Errorf("it tried nothing: %s", out.brief())
	}
	if a.Truncated && (!result.Stdout.Truncated || !result.Stderr.Truncated || result.Stdout.Kept > outputCap || result.Stderr.Kept > outputCap) {
		t.Errorf("the output was not cut: %+v %+v", result.Stdout, result.Stderr)
	}
	if strings.Contains(text, s.mark) && !slices.Contains(a.Command, "{mark}") {
		t.Error("the mark of the host was printed")
	}
}

// Scripts that succeed when nothing of an attack is alive, or writes.
const (
	noSurvivors = `n=0; for f in /proc/[0-9]*/cmdline; do case "$(tr '\0' ' ' <$f 2>/dev/null)" in survivor*|*ORP"HAN"*) n=$((n+1));; esac; done; test $n = 0`
	isQuiet     = `a=$(wc -c </workspace/growing); sleep 0.3; test "$a" = "$(wc -c </workspace/growing)"`
)

// afterwards is what has to hold in the sandbox that was attacked from inside.
func (s *stand) afterwards(t *testing.T, a attack, box *sandbox.Sandbox) {
	t.Helper()
	for _, then := range a.Then {
		switch then {
		case "collect":
			s.collect(t, box)
		case "survivors":
			s.answers(t, box, "survivors", noSurvivors)
		case "quiet":
			s.answers(t, box, "quiet", isQuiet)
		default:
			t.Errorf("nobody knows how to %q", then)
		}
	}
	s.answers(t, box, "the sandbox itself", "true")
}

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

// collect takes the workspace out as a worker does, within bounds, and looks
// whether anything of the host came with it.
func (s *stand) collect(t *testing.T, box *sandbox.Sandbox) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("the workspace was not collected"))
	defer cancel()
	dir := t.TempDir()
	from, to := io.Pipe()
	var got sync.WaitGroup
	got.Go(func() { to.CloseWithError(box.Get(ctx, "/workspace", to)) })
	_, err := evidence.Unpack(ctx, from, dir, evidence.Bounds{Entries: 10_000, Depth: 64, Bytes: 64 << 20})
	_ = from.CloseWithError(io.ErrClosedPipe)
	got.Wait()
	if ctx.Err() != nil {
		t.Error(context.Cause(ctx))
	}
	if err != nil {
		// Too large, or changed while it was read: an answer, not a harm.
		t.Logf("collect: %v (%s)", err, fault.CodeOf(err))
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.Type().IsRegular() {
			if d.Type()&^(fs.ModeDir|fs.ModeSymlink) != 0 {
				t.Errorf("a %v came out as %s", d.Type(), path)
			}
			return nil
		}
		body, err := os.ReadFile(path)
		if err == nil && bytes.Contains(body, []byte(s.mark)) {
			t.Errorf("%s holds a file of the host", path)
		}
		if info, _ := d.Info(); info != nil && info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
			t.Errorf("%s is set-id", path)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// put puts the files of an attack into the workspace.
func (s *stand) put(t *testing.T, box *sandbox.Sandbox, a attack) {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range a.Files {
		path := filepath.Join(root, "attacks", "script", name)
		if name == "attack" {
			path = filepath.Join(binaries, name)
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

func (o *output) brief() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.ToValidUTF8(string(o.said[1][:min(len(o.said[1]), 300)]), "?") + " | " + strings.ToValidUTF8(string(o.said[2][:min(len(o.said[2]), 300)]), "?")
}
