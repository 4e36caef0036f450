package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/creack/pty"
	"golang.org/x/term"
)

// screen is what was drawn on a terminal.
type screen struct {
	mu   sync.Mutex
	more *sync.Cond
	text strings.Builder
	over bool
}

func watch(master *os.File) *screen {
	s := &screen{}
	s.more = sync.NewCond(&s.mu)
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			s.mu.Lock()
			s.text.Write(buf[:n])
			s.over = err != nil
			s.more.Broadcast()
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s
}

// until waits for a text to be drawn.
func (s *screen) until(t *testing.T, text string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !strings.Contains(s.text.String(), text) {
		if s.over {
			t.Fatalf("there is no %q in %q", text, s.text.String())
		}
		s.more.Wait()
	}
}

func openTerminal(t *testing.T, cols, rows uint16) (master, slave *os.File) {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = master.WriteString("\n") // a read that waits for a key ends
		_ = slave.Close()
		_ = master.Close()
	})
	if err := pty.Setsize(slave, &pty.Winsize{Rows: rows, Cols: cols}); err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// TestShellIsARealTerminal: keys go inside one by one, Ctrl-C too; the size is
// told, also when it changes; the exit code is the shell's, and the terminal is
// as it was.
func TestShellIsARealTerminal(t *testing.T) {
	b := newBoxes()
	t.Setenv("AUREA_SERVER", b.serve(t).URL)
	t.Setenv("TERM", "screen")
	master, slave := openTerminal(t, 90, 30)
	before, err := term.GetState(int(slave.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	drawn := watch(master)
	ended := make(chan int, 1)
	go func() {
		ended <- Run(context.Background(), Program{}, []string{"sandbox", "shell", "mine"}, Streams{In: slave, Out: slave, Err: slave}, nil)
	}()
	drawn.until(t, "$ ")
	if got := <-b.sizes; got != `{"type":"resize","cols":90,"rows":30}` {
		t.Errorf("the size is told as %s", got)
	}
	_, _ = master.WriteString("a\x03b")
	drawn.until(t, "A\x03B")
	_, _ = master.WriteString("exit\r")
	if code := <-ended; code != 7 {
		t.Errorf("ended with %d", code)
	}
	after, err := term.GetState(int(slave.Fd()))
	if err != nil || *after != *before {
		t.Errorf("the terminal is not as it was: %v", err)
	}
	asked := b.started[0]
	env, _ := asked["env"].(map[string]any)
	if asked["tty"] != true || asked["cols"] != 90.0 || asked["rows"] != 30.0 || asked["timeout"] != 0.0 || env["TERM"] != "screen" {
		t.Errorf("asked for %v", asked)
	}
}

// TestATerminalIsGivenBackWhenTheShellCannotBeReached, on every way out.
func TestATerminalIsGivenBackWhenTheShellCannotBeReached(t *testing.T) {
	b := newBoxes()
	t.Setenv("AUREA_SERVER", b.serve(t).URL)
	master, slave := openTerminal(t, 80, 24)
	before, err := term.GetState(int(slave.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	drawn := watch(master)
	ended := make(chan int, 1)
	go func() {
		ended <- Run(context.Background(), Program{}, []string{"sandbox", "shell", "b1"}, Streams{In: slave, Out: slave, Err: slave}, nil)
	}()
	drawn.until(t, "$ ")
	close(b.gone)
	drawn.until(t, "the connection is lost")
	_, _ = master.WriteString("\x03")
	if code := <-ended; code != ExitFailed {
		t.Errorf("ended with %d", code)
	}
	if after, err := term.GetState(int(slave.Fd())); err != nil || *after != *before {
		t.Errorf("the terminal is not as it was: %v", err)
	}
}

// TestInterruptsOfAnExecArePassedOn: the first interrupts it, the second kills.
func TestInterruptsOfAnExecArePassedOn(t *testing.T) {
	for _, tc := range []struct {
		word string
		code int
		said string
	}{{"wait", 130, "oops\n"}, {"deaf", 137, "oops\naurea: it was killed: local\n"}} {
		b := newBoxes()
		t.Setenv("AUREA_SERVER", b.serve(t).URL)
		ctx, cancel := context.WithCancelCause(t.Context())
		hurry := make(chan struct{})
		ended := make(chan int, 1)
		var out, errs bytes.Buffer
		go func() {
			ended <- Run(ctx, Program{}, []string{"sb", "exec", "b1", "--", tc.word}, Streams{In: http.NoBody, Out: &out, Err: &errs}, hurry)
		}()
		<-b.waits
		cancel(errInterrupted)
		if got := <-b.signals; got != `signal {"signal":2,"tree":true}` {
			t.Errorf("it got %s", got)
		}
		if tc.word == "deaf" {
			<-b.waits
			close(hurry)
			if got := <-b.signals; got != "kill {}" {
				t.Errorf("it got %s", got)
			}
		}
		if code := <-ended; code != tc.code || out.String() != "hello\n" || errs.String() != tc.said {
			t.Errorf("ended with %d: %q, %q", code, out.String(), errs.String())
		}
	}
}

// TestInputOfAnExecGoesIn to its end.
func TestInputOfAnExecGoesIn(t *testing.T) {
	b := newBoxes()
	t.Setenv("AUREA_SERVER", b.serve(t).URL)
	var out bytes.Buffer
	code := Run(t.Context(), Program{}, []string{"sb", "exec", "b1", "-i", "--", "cat", "-n"}, Streams{In: strings.NewReader("what is said"), Out: &out, Err: io.Discard}, nil)
	if code != 0 || out.String() != "$ WHAT IS SAID" {
		t.Errorf("ended with %d: %q", code, out.String())
	}
	if command, _ := b.started[0]["command"].([]any); len(command) != 2 || b.started[0]["keep_stdin"] != true {
		t.Errorf("asked for %v", b.started[0])
	}
}

// TestInputThatBreaksOffIsTold: a command that cannot get the rest of its input
// is not waited for, nor left waiting for it.
func TestInputThatBreaksOffIsTold(t *testing.T) {
	for _, tc := range []struct {
		name, word string
		in         func(r *io.PipeReader) io.Reader
		code       int
		said       string
	}{
		{"the worker was killed", "torn", func(r *io.PipeReader) io.Reader { return r }, ExitConflict, "aurea: exec e1 did not get all of its input: how much of it arrived is not known; the command was killed\n"},
		{"our input broke", "cat", func(*io.PipeReader) io.Reader {
			return io.MultiReader(strings.NewReader("a part"), iotest.ErrReader(errors.New("a bad disk")))
		}, ExitFailed, "aurea: exec e1 did not get all of its input: read the standard input: a bad disk; the command was killed\n"},
	} {
		b := newBoxes()
		t.Setenv("AUREA_SERVER", b.serve(t).URL)
		r, w := io.Pipe() // more could come, for ever
		go func() { _, _ = w.Write([]byte("a part")) }()
		var errs bytes.Buffer
		code := Run(t.Context(), Program{}, []string{"sb", "exec", "b1", "-i", "--", tc.word}, Streams{In: tc.in(r), Out: io.Discard, Err: &errs}, nil)
		_ = r.Close()
		if code != tc.code || errs.String() != tc.said {
			t.Errorf("%s: ended with %d: %q", tc.name, code, errs.String())
		}
		if got := <-b.signals; got != "kill {}" {
			t.Errorf("%s: it got %s", tc.name, got)
		}
	}
}

// TestKeysThatBreakOffAreTold: the command hears that its terminal is gone.
func TestKeysThatBreakOffAreTold(t *testing.T) {
	b := newBoxes()
	t.Setenv("AUREA_SERVER", b.serve(t).URL)
	master, slave := openTerminal(t, 80, 24)
	drawn := watch(master)
	ended := make(chan int, 1)
	go func() {
		ended <- Run(context.Background(), Program{}, []string{"sandbox", "exec", "b1", "-i", "-t", "--", "torn"}, Streams{In: slave, Out: slave, Err: slave}, nil)
	}()
	drawn.until(t, "$ ")
	_, _ = master.WriteString("a")
	if code := <-ended; code != ExitConflict {
		t.Errorf("ended with %d", code)
	}
	if got := <-b.signals; got != `signal {"signal":1,"tree":true}` {
		t.Errorf("it got %s", got)
	}
	drawn.until(t, "did not get all of its input: how much of it arrived is not known")
}
