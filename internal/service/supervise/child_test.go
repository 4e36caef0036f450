package supervise

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/service"
	"github.com/aurea-dev/aurea/internal/service/servicetest"
)

// TestMain is also the children: the test binary starts itself.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "play" {
		os.Exit(play(os.Args[2], os.Args[3:]))
	}
	goleak.VerifyTestMain(m)
}

func play(part string, args []string) int {
	switch part {
	case "obedient":
		term := make(chan os.Signal, 1)
		signal.Notify(term, syscall.SIGTERM)
		fmt.Println("up", os.Getpid())
		<-term
		fmt.Println("down")
		return 0
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("up", os.Getpid())
		forever()
	case "exit":
		fmt.Println("up", os.Getpid())
		code, _ := strconv.Atoi(args[0])
		return code
	case "status":
		raw, _ := os.ReadFile("/proc/self/status")
		_, _ = os.Stdout.Write(raw)
		return 0
	case "holder":
		// A descendant that keeps our output open, as a sandbox might.
		cmd := exec.Command("sleep", "3600")
		cmd.Stdout = os.Stdout
		if err := cmd.Start(); err != nil {
			return 1
		}
		fmt.Println("left", cmd.Process.Pid)
		return 0
	case "supervisor":
		c := New(Spec{
			Name: "inner", Command: player("obedient"), Logger: slog.New(slog.DiscardHandler),
			Output: NewOutput(os.Stdout, false, 0),
		})
		if err := c.Start(context.Background()); err != nil {
			return 1
		}
		forever()
	}
	return 99
}

// forever waits for a signal that nobody sends.
func forever() {
	never := make(chan os.Signal, 1)
	signal.Notify(never, syscall.SIGUSR2)
	<-never
}

func player(part string, args ...string) func() *exec.Cmd {
	return func() *exec.Cmd {
		cmd := exec.Command("/proc/self/exe", append([]string{"play", part}, args...)...)
		cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0") // else each exit takes a second
		return cmd
	}
}

// script collects lines and lets a test wait for them.
type script struct {
	mu    sync.Mutex
	lines []string
	more  chan struct{}
}

func newScript() *script { return &script{more: make(chan struct{})} }

func (s *script) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, strings.TrimRight(string(p), "\n"))
	close(s.more)
	s.more = make(chan struct{})
	return len(p), nil
}

// wait returns the n-th line (from 0) that contains text.
func (s *script) wait(t *testing.T, text string, n int) string {
	t.Helper()
	for {
		s.mu.Lock()
		left := n
		for _, l := range s.lines {
			if strings.Contains(l, text) {
				if left == 0 {
					s.mu.Unlock()
					return l
				}
				left--
			}
		}
		more := s.more
		s.mu.Unlock()
		select {
		case <-more:
		case <-time.After(20 * time.Second):
			t.Fatalf("no line %d with %q in %q", n, text, s.lines)
		}
	}
}

func (s *script) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "\n")
}

func spec(name string, out io.Writer, cmd func() *exec.Cmd) Spec {
	return Spec{
		Name: name, Command: cmd, Output: NewOutput(out, false, 0), Logger: slog.New(slog.DiscardHandler),
		Backoff: Backoff{First: time.Millisecond, Most: 4 * time.Millisecond},
	}
}

func stop(t *testing.T, c *Child) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
	defer cancel()
	if err := c.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func TestStress(t *testing.T) {
	servicetest.Stress(t, func(*testing.T) service.Service {
		out := newScript()
		s := spec("a", out, player("obedient"))
		s.Ready = func(context.Context) bool { return strings.Contains(out.all(), "up ") }
		return New(s)
	})
}

func TestRestartsWhatIsKilled(t *testing.T) {
	t.Parallel()
	out := newScript()
	c := New(spec("a", out, player("obedient")))
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer stop(t, c)
	for n := range 5 {
		pid, err := strconv.Atoi(strings.TrimPrefix(out.wait(t, "up ", n), "a | up "))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	out.wait(t, "up ", 5)
	stop(t, c)
	out.wait(t, "down", 0)
	if c.PID() != 0 {
		t.Error("a stopped child has a pid")
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	b := Backoff{}.withDefaults()
	var wait time.Duration
	var got []string
	for range 10 {
		wait = b.next(wait, time.Second)
		got = append(got, wait.String())
	}
	if s := strings.Join(got, " "); s != "100ms 200ms 400ms 800ms 1.6s 3.2s 6.4s 10s 10s 10s" {
		t.Error(s)
	}
	if w := b.next(wait, 10*time.Second); w != 100*time.Millisecond {
		t.Errorf("after a settled life: %s", w)
	}
}

func TestStubbornChildIsKilled(t *testing.T) {
	t.Parallel()
	t.Run("by its own bound", func(t *testing.T) {
		t.Parallel()
		out := newScript()
		s := spec("a", out, player("stubborn"))
		s.StopWithin = 10 * time.Millisecond
		c := New(s)
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		out.wait(t, "up ", 0)
		stop(t, c)
	})
	t.Run("when told to hurry", func(t *testing.T) {
		t.Parallel()
		out := newScript()
		s := spec("a", out, player("stubborn"))
		s.StopWithin = time.Hour
		c := New(s)
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		out.wait(t, "up ", 0)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := c.Stop(ctx); err == nil || !strings.Contains(err.Error(), "had to be killed") {
			t.Errorf("stop: %v", err)
		}
		<-c.Done()
	})
}

func TestGivesUpBeforeFirstReady(t *testing.T) {
	t.Parallel()
	out := newScript()
	s := spec("a", out, player("exit", "1"))
	s.Tries, s.Ready = 3, func(context.Context) bool { return false }
	err := New(s).Start(t.Context())
	var died *Died
	if !errors.As(err, &died) || died.Code != 1 {
		t.Errorf("start: %v", err)
	}
	if n := strings.Count(out.all(), "up "); n != 3 {
		t.Errorf("started %d times", n)
	}
}

func TestFinalExitIsNotStartedAgain(t *testing.T) {
	t.Parallel()
	out := newScript()
	s := spec("a", out, player("exit", "2"))
	s.Final = func(code int) bool { return code == 2 }
	s.Ready = func(context.Context) bool { return strings.Contains(out.all(), "up ") }
	c := New(s)
	_ = c.Start(t.Context()) // may be ready before it dies
	<-c.Done()
	var died *Died
	if !errors.As(c.Err(), &died) || died.Code != 2 {
		t.Errorf("ended with %v", c.Err())
	}
	if n := strings.Count(out.all(), "up "); n != 1 {
		t.Errorf("started %d times", n)
	}
}

func TestCommandThatIsNotThere(t *testing.T) {
	t.Parallel()
	err := New(spec("a", io.Discard, func() *exec.Cmd { return exec.Command("/does/not/exist") })).Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "start a:") {
		t.Errorf("start: %v", err)
	}
}

// A child must be able to end while a descendant of it holds its output.
func TestDescendantHoldsOutput(t *testing.T) {
	t.Parallel()
	out := newScript()
	s := spec("a", out, player("holder"))
	s.Final = func(int) bool { return true }
	c := New(s)
	_ = c.Start(t.Context())
	<-c.Done()
	pid, err := strconv.Atoi(strings.TrimPrefix(out.wait(t, "left ", 0), "a | left "))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
}

func TestNoNewPrivileges(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{false, true} {
		out := newScript()
		s := spec("a", out, player("status"))
		s.NoNewPrivileges, s.Final = on, func(int) bool { return true }
		c := New(s)
		_ = c.Start(t.Context())
		<-c.Done()
		own, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		want := "NoNewPrivs:\t0"
		if on || own == 1 {
			want = "NoNewPrivs:\t1"
		}
		if !strings.Contains(out.all(), want) {
			t.Errorf("on=%v: child says %q", on, out.wait(t, "NoNewPrivs", 0))
		}
	}
}

func TestDeathOfTheSupervisorStopsItsChildren(t *testing.T) {
	t.Parallel()
	cmd := player("supervisor")()
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	br := bufio.NewReader(pipe)
	line, err := br.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	inner, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "inner | up ")))
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	fd, err := unix.PidfdOpen(inner, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 20_000)
	if err != nil || n != 1 {
		t.Errorf("the child outlives its supervisor: %d, %v", n, err)
	}
}

func TestLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	if err := os.WriteFile(path, nil, 0o644); err != nil { // as another release made it
		t.Fatal(err)
	}
	l, err := TakeLock(path, "the folder")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may open the lock, and hold it: %v, %v", info, err)
	}
	_, err = TakeLock(path, "the folder")
	want := fmt.Sprintf("the folder is in use by process %d", os.Getpid())
	if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("second lock: %v", err)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	l, err = TakeLock(path, "the folder")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Unlock()
}

func TestOutput(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	NewOutput(&b, false, 7).copy("worker", strings.NewReader("one\r\n\ntwo\x1b[2J\x07\nlast"))
	if got := b.String(); got != "worker  | one\nworker  | two[2J\nworker  | last\n" {
		t.Errorf("%q", got)
	}
	b.Reset()
	NewOutput(&b, false, 0).copy("w", strings.NewReader(strings.Repeat("x", maxLine+10)+"\n"))
	if lines := strings.Split(b.String(), "\n"); len(lines) != 3 || len(lines[0]) != maxLine+4 || len(lines[1]) != 14 {
		t.Errorf("a long line came out as %d lines", len(lines))
	}
	b.Reset()
	o := NewOutput(&b, true, 0)
	o.copy("w", strings.NewReader(`{"msg":"a"}`+"\n"+`{}`+"\n"+`{"process":"x"}`+"\n"+"[1]\nplain \"text\"\xff\n"))
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if lines[0] != `{"process":"w","msg":"a"}` || lines[1] != `{"process":"w"}` || lines[2] != `{"process":"x"}` {
		t.Error(lines)
	}
	for _, l := range lines[3:] {
		if !strings.HasPrefix(l, `{"process":"w","time":`) {
			t.Error(l)
		}
	}
}

func TestReadyIsAskedUntilTrue(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	s := spec("a", io.Discard, player("obedient"))
	s.Ready = func(context.Context) bool { return asked.Add(1) > 3 }
	c := New(s)
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop(t, c)
	if asked.Load() != 4 {
		t.Errorf("asked %d times", asked.Load())
	}
}
