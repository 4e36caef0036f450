package app

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/client"
	"github.com/aurea-dev/aurea/internal/cli"
)

// TestMain is also the program itself: started under its name, the test binary
// is aurea, and so are the children that it starts.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "aurea" {
		os.Exit(cli.Main(Program(), os.Args[1:], cli.StandardStreams()))
	}
	goleak.VerifyTestMain(m)
}

// patience turns a hang into a failure; nothing here takes a tenth of it.
const patience = 60 * time.Second

// process is a run of aurea.
type process struct {
	*exec.Cmd
	ended chan struct{}

	mu   sync.Mutex
	text strings.Builder
	more chan struct{}
}

// aurea starts the program with a clean environment, in a folder that any user
// may enter.
func aurea(t *testing.T, env []string, socket *os.File, args ...string) *process {
	t.Helper()
	return aureaAs(t, "/proc/self/exe", nil, env, socket, args...)
}

// aureaAs is aurea from another file, as another user.
func aureaAs(t *testing.T, program string, user *syscall.Credential, env []string, socket *os.File, args ...string) *process {
	t.Helper()
	p := &process{ended: make(chan struct{}), more: make(chan struct{})}
	p.Cmd = &exec.Cmd{Path: program, Args: append([]string{"aurea"}, args...), Env: append([]string{"PATH=" + "/usr/bin:/bin", "HOME=/", "GORACE=atexit_sleep_ms=0"}, env...)}
	if user != nil {
		p.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	}
	if socket != nil {
		p.ExtraFiles = []*os.File{socket}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Stdout, p.Stderr = w, w
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	var reading sync.WaitGroup
	reading.Go(func() {
		defer func() { _ = r.Close() }()
		for s := bufio.NewScanner(r); s.Scan(); {
			p.add(s.Text())
		}
	})
	go func() { _ = p.Wait(); reading.Wait(); close(p.ended) }()
	t.Cleanup(func() {
		_ = p.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.ended:
		case <-time.After(patience):
			_ = p.Process.Kill()
			<-p.ended
			t.Error("aurea did not stop")
		}
		if t.Failed() {
			t.Logf("aurea %s said:\n%s", args, p.said())
		}
	})
	return p
}

func (p *process) add(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text.WriteString(line + "\n")
	close(p.more)
	p.more = make(chan struct{})
}

func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// expect waits until the text was said.
func (p *process) expect(t *testing.T, text string) {
	t.Helper()
	deadline := time.After(patience)
	for {
		p.mu.Lock()
		said, more := p.text.String(), p.more
		p.mu.Unlock()
		if strings.Contains(said, text) {
			return
		}
		select {
		case <-more:
		case <-p.ended:
			if !strings.Contains(p.said(), text) {
				t.Fatalf("aurea ended without saying %q", text)
			}
		case <-deadline:
			t.Fatalf("aurea does not say %q", text)
		}
	}
}

// after returns the rest of the line behind a text.
func (p *process) after(t *testing.T, text string) string {
	t.Helper()
	p.expect(t, text)
	_, rest, _ := strings.Cut(p.said(), text)
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}

func (p *process) exit(t *testing.T) int {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatal("aurea does not end")
	}
	return p.ProcessState.ExitCode()
}

// dataFolder is a folder that an unprivileged manager can reach.
func dataFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "aurea-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

// up starts everything on free ports with the fake driver.
func up(t *testing.T, data string, env ...string) (p *process, api, bridge string) {
	t.Helper()
	p = aurea(t, env, nil, "up", "--data", data, "--driver", "fake", "--port", "0", "--bridge-port", "0")
	p.expect(t, "Ctrl-C stops everything in order.")
	return p, strings.Fields(p.after(t, "API     "))[0], p.after(t, "bridge  http")
}

// children returns the process ids of the roles below a supervisor.
func children(t *testing.T, supervisor int) map[string]int {
	t.Helper()
	found := map[string]int{}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		status, err := os.ReadFile(filepath.Join(dir, "status"))
		if err != nil || !bytes.Contains(status, fmt.Appendf(nil, "\nPPid:\t%d\n", supervisor)) {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		args := strings.Split(string(line), "\x00")
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && len(args) > 1 && args[0] == "aurea" {
			found[args[1]] = pid
		}
	}
	return found
}

// watched is a handle on a process that cannot come to mean another one.
func watched(t *testing.T, pid int) int {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

func awaitEnd(t *testing.T, what string, pidfd int) {
	t.Helper()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(patience.Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n != 1 {
			t.Fatalf("%s lives on: %d, %v", what, n, err)
		}
		return
	}
}

// hasEnded looks without waiting.
func hasEnded(t *testing.T, pidfd int) bool {
	t.Helper()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return n == 1
	}
}

func newClient(t *testing.T, server, key string) *client.Client {
	t.Helper()
	c, err := client.New(server, client.Options{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// finish submits a plan of one task and waits for its end.
func finish(t *testing.T, c *client.Client) client.Job {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := c.SubmitPRD(ctx, client.PRD{ProjectID: 1, Title: "Test PRD", Tasks: []client.Task{{Role: "Employee", Payload: map[string]any{"action": "create file"}}}}, "")
	if err != nil {
		t.Fatal(err)
	}
	for e, err := range c.Follow(ctx, client.EventFilter{RootJobID: s.RootJobID}, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.JobID == s.RootJobID && e.Type != "job.created" {
			break
		}
	}
	j, err := c.Job(ctx, s.JobIDs[0])
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// socket opens a listening socket on loopback to hand to a child.
func socket(t *testing.T) (f *os.File, url string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	f, err = ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f, "http://" + ln.Addr().String()
}
