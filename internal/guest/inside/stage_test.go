package inside

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/guest"
	"github.com/aurea-dev/aurea/internal/guest/wire"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stage is an engine whose programs are Go functions, with its FIFOs.
type stage struct {
	t       *testing.T
	in, out string
}

// program is what a command does in a test. It returns the exit code.
type program func(stdin io.Reader, stdout, stderr io.Writer) int

// actors is a system that runs programs by the name of the command.
type actors struct {
	programs map[string]program

	mu      sync.Mutex
	files   []byte
	signals atomic.Int32
}

func (a *actors) start(c *command, open wire.Open) (*process, *wire.Exit, error) {
	run := a.programs[open.Args[0]]
	if run == nil {
		return nil, &wire.Exit{Code: 127}, nil
	}
	p := &process{ended: make(chan struct{}), alive: true}
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	if open.Stdin {
		p.in = inW
	} else {
		inW.Close()
	}
	var theirs [2]*os.File
	for i := range theirs {
		if p.out[i], theirs[i], err = os.Pipe(); err != nil {
			return nil, nil, err
		}
	}
	go func() {
		code := run(inR, theirs[0], theirs[1])
		inR.Close()
		closeFiles(theirs[:])
		close(p.ended)
		c.finished(wire.Exit{Code: code})
	}()
	return p, nil, nil
}

func (a *actors) signal(*process, int, bool) error { a.signals.Add(1); return nil }

func (a *actors) lock(dir string, from io.Reader) error { return a.put(dir, from) }

func (a *actors) put(_ string, from io.Reader) error {
	data, err := io.ReadAll(from)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.files = data
	return err
}

func (a *actors) get(path string, to io.Writer) error {
	if path == "/missing" {
		return fmt.Errorf("find it: %w", os.ErrNotExist)
	}
	a.mu.Lock()
	data := a.files
	a.mu.Unlock()
	_, err := io.Copy(to, bytes.NewReader(data))
	return err
}

func (a *actors) file(t task) error {
	if t.open.Path == "/missing" {
		return fmt.Errorf("find it: %w", os.ErrNotExist)
	}
	return t.do()
}

func (a *actors) dial(port uint16) (*os.File, error) { return (&linux{}).dial(port) }

func (a *actors) watch(string, bool) (watcher, error) { return nil, os.ErrNotExist }

// play starts an engine with the programs. It ends with the test.
func play(t *testing.T, a *actors) *stage {
	t.Helper()
	return playSystem(t, a)
}

func playSystem(t *testing.T, a system) *stage {
	t.Helper()
	dir := t.TempDir()
	s := &stage{t: t, in: filepath.Join(dir, "in"), out: filepath.Join(dir, "out")}
	var ends [2]*os.File
	for i, path := range []string{s.in, s.out} {
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = f
	}
	e := newEngine(ends[0], ends[1])
	e.system = a
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = e.Run()
	}()
	t.Cleanup(func() {
		closeFiles(ends[:])
		<-ended
	})
	return s
}

func (s *stage) connect() *guest.Client {
	s.t.Helper()
	c, err := guest.Connect(s.t.Context(), s.in, s.out, time.Now())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}

func start(t *testing.T, c *guest.Client, id string, args ...string) *guest.Process {
	t.Helper()
	p, err := c.Exec(t.Context(), guest.Command{ID: id, Args: args, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// collect reads to the end and checks that the frames join.
func collect(t *testing.T, p *guest.Process, from sandbox.Offsets) (stdout, stderr []byte) {
	t.Helper()
	at := map[sandbox.Stream]int64{sandbox.Stdout: from.Stdout, sandbox.Stderr: from.Stderr}
	for {
		f, err := p.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return stdout, stderr
		}
		if err != nil {
			t.Fatal(err)
		}
		if f.Offset != at[f.Stream] {
			t.Fatalf("stream %d goes on at %d, expected %d", f.Stream, f.Offset, at[f.Stream])
		}
		at[f.Stream] += int64(len(f.Data))
		if f.Stream == sandbox.Stdout {
			stdout = append(stdout, f.Data...)
		} else {
			stderr = append(stderr, f.Data...)
		}
	}
}

func wantExit(t *testing.T, p *guest.Process, code int) {
	t.Helper()
	exit, err := p.Wait(t.Context())
	if err != nil || exit.Code != code {
		t.Fatalf("exit %+v, %v, want code %d", exit, err, code)
	}
}

func wantKind(t *testing.T, what string, err error, kind fault.Kind) {
	t.Helper()
	if !fault.Is(err, kind) {
		t.Errorf("%s: %v, want kind %v", what, err, kind)
	}
}
