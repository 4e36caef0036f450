package sandbox_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// waits starts a process that says the mark and waits for its work.
func waits(t *testing.T, s *sandbox.Sandbox, script string) *sandbox.Exec {
	t.Helper()
	e, err := s.Exec(t.Context(), sandbox.ExecSpec{Command: []string{"sh", "-c", script}, Stdin: true}, sandbox.ExecOptions{Ready: []byte("ready\n")})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestProcessWaitsForItsWork(t *testing.T) {
	bubble(t, func(t *testing.T, d sandbox.Driver) {
		s := open(t, options(t, d, nil))
		e := waits(t, s, "echo ready; cat; echo bye >&2")
		<-e.Ready()
		<-time.After(time.Hour) // it is not timed
		var said string
		sink := sandbox.SinkFunc(func(_ context.Context, f sandbox.Frame) error {
			if f.Stream == sandbox.Stdout && f.Offset != int64(len(said)) {
				t.Errorf("output at %d", f.Offset)
			}
			said += string(f.Data)
			return nil
		})
		if err := e.Begin(sandbox.ExecOptions{Timeout: time.Minute, Sink: sink, OutputCap: 4}); err != nil {
			t.Fatal(err)
		}
		if err := e.Begin(sandbox.ExecOptions{}); !fault.Is(err, fault.Conflict) {
			t.Errorf("begun twice: %v", err)
		}
		if err := e.Write(t.Context(), []byte("hello")); err != nil {
			t.Fatal(err)
		}
		if err := e.CloseInput(t.Context()); err != nil {
			t.Fatal(err)
		}
		r := result(t, e)
		if r.Verdict != sandbox.OK || r.Stdout.Seen != 5 || r.Stdout.Kept != 4 || r.Stdout.SHA256 != digest("hell") || said != "hellbye\n" || r.Ended.Sub(r.Started) > time.Minute {
			t.Errorf("said %q, result %+v", said, r)
		}
		shut(t, s)
	})
}

func TestTimeOfAProcessThatWaited(t *testing.T) {
	bubble(t, func(t *testing.T, d sandbox.Driver) {
		s := open(t, options(t, d, nil))
		e := waits(t, s, "echo ready; sleep 99999")
		<-e.Ready()
		if err := e.Begin(sandbox.ExecOptions{Timeout: 3 * time.Second}); err != nil {
			t.Fatal(err)
		}
		if r := result(t, e); r.Verdict != sandbox.Timeout || r.Ended.Sub(r.Started) != 3*time.Second {
			t.Errorf("result %+v", r)
		}
		shut(t, s)
	})
}

func TestProcessesThatCannotBegin(t *testing.T) {
	for name, script := range map[string]string{
		"one that says something else":   "echo steady; sleep 9",
		"one that complains":             "echo oh >&2; sleep 9",
		"one that ends":                  "exit 1",
		"one that ends when it is ready": "echo ready; exit 1",
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d sandbox.Driver) {
				s := open(t, options(t, d, nil))
				e := waits(t, s, script)
				synctest.Wait()
				if err := e.Begin(sandbox.ExecOptions{}); err == nil {
					t.Error("it has begun")
				}
				shut(t, s)
			})
		})
	}
}
