package spawn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aurea-dev/aurea/internal/fault"
)

// TestMain is also the spawner of these tests: the pool starts this binary.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "spawn" {
		actor()
		return
	}
	goleak.VerifyTestMain(m)
}

// actor is a spawner that does what the sandbox's id says.
func actor() {
	conn := os.NewFile(FD, "worker")
	for {
		var request Request
		if err := ReadMessage(conn, &request); err != nil {
			return
		}
		response := Response{Seq: request.Seq, Made: &Made{Sentry: Process{PID: os.Getpid()}}}
		if request.Create != nil {
			switch request.Create.ID {
			case "hang":
				time.Sleep(time.Hour) // not select{}: the runtime takes that for a deadlock, and ends us
			case "die":
				os.Exit(1)
			case "garbage":
				_, _ = conn.Write(bytes.Repeat([]byte{255}, 100))
			case "other":
				response.Seq++
			case "fail":
				response = Response{Seq: request.Seq, Error: "no"}
			case "nothing":
				response.Made = nil
			case "tell":
				response = Response{Seq: request.Seq, Error: surroundings()}
			}
		}
		_ = WriteMessage(conn, response)
	}
}

// surroundings says what a spawner has been given.
func surroundings() string {
	said := fmt.Sprintf("%d variables;", len(os.Environ()))
	for fd := range FD {
		target, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		said += " " + target
	}
	dir, _ := os.Getwd()
	return said + " in " + dir
}

func newPool(t *testing.T, count int, deadline time.Duration) *Pool {
	t.Helper()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := NewPool(Config{Sentry: own, Count: count, Deadline: deadline, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	t.Cleanup(func() { p.Close() })
	return p
}

// create asks for a sandbox and returns who made it.
func create(t *testing.T, p *Pool, id string) (int, error) {
	t.Helper()
	made, err := p.Create(t.Context(), Create{ID: id})
	return made.Sentry.PID, err
}

func TestSpawnerIsKept(t *testing.T) {
	t.Parallel()
	p := newPool(t, 1, time.Minute)
	if err := p.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	first, err := create(t, p, "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := create(t, p, "fail"); err == nil || !strings.Contains(err.Error(), "no") {
		t.Errorf("a create that fails: %v", err)
	}
	second, err := create(t, p, "b")
	if err != nil || second != first {
		t.Errorf("made by %d, then by %d: %v", first, second, err)
	}
}

func TestSpawnerIsReplaced(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"hang", "die", "garbage", "other"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			deadline := time.Minute
			if how == "hang" {
				deadline = 500 * time.Millisecond
			}
			p := newPool(t, 1, deadline)
			first, err := create(t, p, "a")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := create(t, p, how); err == nil {
				t.Fatal("it was made")
			}
			if _, err := FindProcess(first); err == nil {
				t.Error("the spawner still runs")
			}
			second, err := create(t, p, "b")
			if err != nil || second == first {
				t.Errorf("made by %d, then by %d: %v", first, second, err)
			}
		})
	}
}

func TestSpawnerThatDiedIdleIsReplaced(t *testing.T) {
	t.Parallel()
	p := newPool(t, 1, time.Minute)
	first, err := create(t, p, "a")
	if err != nil {
		t.Fatal(err)
	}
	s := <-p.idle
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.ended
	p.idle <- s
	if second, err := create(t, p, "b"); err != nil || second == first {
		t.Errorf("made by %d, then by %d: %v", first, second, err)
	}
}

func TestCreateThatNamesNothing(t *testing.T) {
	t.Parallel()
	if _, err := create(t, newPool(t, 1, time.Minute), "nothing"); err == nil {
		t.Error("it was made")
	}
}

func TestCtxEndsACreate(t *testing.T) {
	t.Parallel()
	p := newPool(t, 1, time.Minute)
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error)
	go func() {
		_, err := p.Create(ctx, Create{ID: "hang"})
		ended <- err
	}()
	waiting, stop := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, enough)
	defer stop()
	// The only spawner is at work, or will be: this one waits in vain.
	if _, err := p.Create(waiting, Create{ID: "hang"}); !errors.Is(err, enough) {
		t.Errorf("a create in the queue: %v", err)
	}
	cancel(enough)
	if err := <-ended; !errors.Is(err, enough) {
		t.Errorf("a create at work: %v", err)
	}
	if _, err := create(t, p, "a"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// A spawner is given nothing of its worker's.
func TestSpawnerStartsEmpty(t *testing.T) {
	t.Parallel()
	_, err := create(t, newPool(t, 1, time.Minute), "tell")
	if err == nil || !strings.HasSuffix(err.Error(), "0 variables; /dev/null /dev/null /dev/null in /") {
		t.Errorf("%v", err)
	}
}

func TestClosedPool(t *testing.T) {
	t.Parallel()
	p := newPool(t, 2, time.Minute)
	if err := p.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() { p.Close() })
	}
	group.Wait()
	if _, err := create(t, p, "a"); !fault.Is(err, fault.Conflict) {
		t.Errorf("%v", err)
	}
}

func TestMissingBinary(t *testing.T) {
	t.Parallel()
	p := NewPool(Config{Sentry: filepath.Join(t.TempDir(), "missing"), Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	defer p.Close()
	for range 2 {
		if err := p.Warm(t.Context()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v", err)
		}
	}
}

// Many at once, with spawners that die under them.
func TestStress(t *testing.T) {
	t.Parallel()
	p := newPool(t, 2, time.Minute)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for n := range 5 {
				id := "a"
				if (i+n)%3 == 0 {
					id = "die"
				}
				if _, err := p.Create(t.Context(), Create{ID: id}); (err == nil) != (id == "a") {
					t.Errorf("%s: %v", id, err)
				}
			}
		})
	}
	group.Wait()
}

func TestParseStart(t *testing.T) {
	t.Parallel()
	own, err := FindProcess(os.Getpid())
	if err != nil || own.Start == 0 {
		t.Errorf("%+v, %v", own, err)
	}
	stat := "7 (a) b) (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20"
	if start, err := parseStart([]byte(stat)); err != nil || start != 4242 {
		t.Errorf("%d, %v", start, err)
	}
	for _, bad := range []string{"", "7 a S", "7 (a) S 1 2", strings.Replace(stat, "4242", "x", 1)} {
		if _, err := parseStart([]byte(bad)); err == nil {
			t.Errorf("%q was parsed", bad)
		}
	}
}

func FuzzReadMessage(f *testing.F) {
	var b bytes.Buffer
	if err := WriteMessage(&b, Response{Seq: 1, Made: &Made{}}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte{0, 0, 0, 2, '{', '}'})
	f.Add([]byte{255, 255, 255, 255})
	f.Fuzz(func(_ *testing.T, b []byte) {
		var response Response
		_ = ReadMessage(bytes.NewReader(b), &response)
		var request Request
		_ = ReadMessage(bytes.NewReader(b), &request)
		_, _ = parseStart(b)
	})
}
