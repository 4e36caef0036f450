package inside

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/guest"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// slow is actors whose files are unpacked only once they may be, and then fail
// if they shall.
type slow struct {
	*actors
	may  chan struct{}
	fail error
}

func (s *slow) put(dir string, from io.Reader) error {
	<-s.may
	if s.fail != nil {
		return s.fail
	}
	return s.actors.put(dir, from)
}

func (s *slow) lock(dir string, from io.Reader) error { return s.put(dir, from) }

// seen says what lay there when its first input came, and how much came.
func (a *actors) seen(stdin io.Reader, stdout, _ io.Writer) int {
	first := make([]byte, 1)
	n, _ := io.ReadFull(stdin, first)
	a.mu.Lock()
	files := len(a.files)
	a.mu.Unlock()
	rest, _ := io.Copy(io.Discard, stdin)
	fmt.Fprintf(stdout, "%d files, %d input", files, int64(n)+rest)
	return 0
}

// supply begins a Supply and returns where its outcome will be.
func supply(t *testing.T, p *guest.Process, archive, input []byte) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	files := sandbox.Files{Dir: "/workspace", Tar: bytes.NewReader(archive), Locked: true}
	go func() { done <- p.Supply(t.Context(), files, input) }()
	return done
}

func TestInputWaitsForFiles(t *testing.T) {
	t.Parallel()
	for _, size := range []struct {
		name           string
		archive, input int
	}{{"small", 2000, 500}, {"large archive", writeMost + 1, 500}, {"large input", 2000, writeMost + 1}} {
		t.Run(size.name, func(t *testing.T) {
			t.Parallel()
			a := &actors{}
			a.programs = map[string]program{"seen": a.seen}
			s := &slow{actors: a, may: make(chan struct{})}
			c := playSystem(t, s).connect()
			p := start(t, c, "run", "seen")
			done := supply(t, p, make([]byte, size.archive), make([]byte, size.input))
			close(s.may)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			stdout, _ := collect(t, p, sandbox.Offsets{})
			if want := fmt.Sprintf("%d files, %d input", size.archive, size.input); string(stdout) != want {
				t.Errorf("%q, want %q", stdout, want)
			}
			wantExit(t, p, 0)
		})
	}
}

// writeMost is how much of either is sent in one go.
const writeMost = 256 << 10

func TestWithoutFilesNoInput(t *testing.T) {
	t.Parallel()
	a := &actors{}
	a.programs = map[string]program{"seen": a.seen}
	s := &slow{actors: a, may: make(chan struct{}), fail: fmt.Errorf("unpack: %w", os.ErrPermission)}
	c := playSystem(t, s).connect()
	p := start(t, c, "run", "seen")
	done := supply(t, p, make([]byte, 100), make([]byte, 100))
	close(s.may)
	wantKind(t, "files that cannot be put", <-done, fault.Denied)
	stdout, _ := collect(t, p, sandbox.Offsets{})
	if want := "0 files, 0 input"; string(stdout) != want {
		t.Errorf("%q, want %q", stdout, want)
	}
}

func TestGetAfterTheEnd(t *testing.T) {
	t.Parallel()
	a := &actors{}
	a.programs = map[string]program{"leave": func(stdin io.Reader, _, _ io.Writer) int {
		_, _ = io.Copy(io.Discard, stdin)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.files = []byte("left at last")
		return 3
	}}
	c := play(t, a).connect()
	p := start(t, c, "run", "leave")
	var got bytes.Buffer
	done := make(chan error, 1)
	go func() { done <- p.GetAfter(t.Context(), "/workspace", &got) }()
	missing := make(chan error, 1)
	go func() { missing <- p.GetAfter(t.Context(), "/missing", io.Discard) }()
	if err := p.CloseInput(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || got.String() != "left at last" {
		t.Errorf("%q, %v", got.String(), err)
	}
	wantKind(t, "a path that is not there", <-missing, fault.NotFound)
	wantExit(t, p, 3)
	got.Reset()
	if err := p.GetAfter(t.Context(), "/workspace", &got); err != nil || got.String() != "left at last" {
		t.Errorf("asked for after the end: %q, %v", got.String(), err)
	}
}

// A worker that goes away leaves nothing behind that waits for an end.
func TestGetAfterIsGivenUp(t *testing.T) {
	t.Parallel()
	a := &actors{}
	a.programs = map[string]program{"wait": func(stdin io.Reader, _, _ io.Writer) int {
		_, _ = io.Copy(io.Discard, stdin)
		return 0
	}}
	s := play(t, a)
	c := s.connect()
	p := start(t, c, "run", "wait")
	done := make(chan error, 1)
	go func() { done <- p.GetAfter(t.Context(), "/workspace", io.Discard) }()
	c.Close()
	if err := <-done; err == nil {
		t.Error("no error")
	}
	next := s.connect()
	again, err := next.Attach(t.Context(), "run", sandbox.Offsets{})
	if err != nil {
		t.Fatal(err)
	}
	if err := again.CloseInput(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantExit(t, again, 0)
}
