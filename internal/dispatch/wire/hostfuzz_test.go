package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
)

type sandboxOrder struct{ live.Order }

func (m sandboxOrder) Check() error { return dispatch.CheckSandboxOrder(m.Order) }

func FuzzSandboxOrder(f *testing.F) {
	f.Add([]byte(`{"id":"b1","owner":"o","spec":{"image":"host","env":{"A":"b"},"limits":{"memory_bytes":1},"network":"none","labels":{"l":"v"},"ttl_ns":5},
		"files":{"a/b":"AAH/"},"restore":"s1"}`))
	fuzzMessage[sandboxOrder](f)
}

type execOrder struct{ live.Command }

func (m execOrder) Check() error { return dispatch.CheckExecOrder(m.Command) }

func FuzzExecOrder(f *testing.F) {
	f.Add([]byte(`{"id":"e","sandbox":"b1","command":["sh","-c","x"],"env":{"A":"b"},"dir":"/x","user":"u","tty":true,"cols":80,"rows":24,"stdin":"AAH/","open":true,"timeout_ns":1,"output_cap":5}`))
	fuzzMessage[execOrder](f)
}

func FuzzTell(f *testing.F) {
	digest := strings.Repeat("0a", 32)
	f.Add([]byte(`{"session":"s","execs":[{"id":"e","sandbox":"b1","result":{"verdict":"ok","exit_code":0,"stdout":{"kept":3,"seen":3,"sha256":"` + digest + `"},
		"stderr":{"sha256":"` + digest + `"},"started":"2026-01-02T03:04:05Z"},"inline":{"` + digest + `":"YWJj"}}],
		"sandboxes":[{"id":"b1","outcome":"done","reason":"r","usage":{"cpu_ns":5},"at":"2026-01-02T03:04:05Z"}]}`))
	fuzzMessage[dispatch.TellRequest](f)
}

// What comes to a duplex end is in bounds, and ends.
func FuzzDuplex(f *testing.F) {
	f.Add(runFrame(frameData, 2, "ab"))
	f.Add(append(runFrame(frameData, 1, "a"), runFrame(frameEnd, 0, "")...))
	f.Add(runFrame(frameCredit, 4, "\x00\x00\x00\x05"))
	f.Add(runFrame(frameResult, 2, "{}"))
	f.Add(runFrame(frameProblem, 19, `{"kind":"conflict"}`))
	f.Fuzz(func(t *testing.T, came []byte) {
		d := newDuplex(func([]byte) error { return nil })
		d.receive(bytes.NewReader(came))
		n, err := io.Copy(io.Discard, plain{d})
		if n > int64(len(came)) || n > window {
			t.Fatalf("%d bytes came of %d", n, len(came))
		}
		var fe *fault.Error
		if err != nil && !errors.As(err, &fe) {
			t.Fatalf("not a fault: %v", err)
		}
		if _, err := d.Write([]byte("x")); err == nil {
			t.Fatal("the other end is gone and was written to")
		}
	})
}

// Whatever a worker is told about sandboxes, it answers, and does nothing that it
// was not told in bounds.
func FuzzHostCommands(f *testing.F) {
	paths := []string{
		"/sandbox/open", "/sandbox/end", "/sandbox/pause", "/sandbox/resume", "/sandbox/adjust", "/sandbox/snapshot", "/snapshot/drop", "/sandbox/stats",
		"/exec/start", "/exec/feed", "/exec/resize", "/exec/signal", "/exec/follow", "/files/get", "/file/stat", "/file/list", "/file/read",
		"/file/mkdir", "/file/move", "/file/copy", "/file/remove",
	}
	for i := range paths {
		f.Add(uint8(i), []byte(`{"id":"b1","sandbox":"b1","exec":"e","path":"/x","to":"/y","command":["x"],"outcome":"done","kind":"full","signal":9,"cols":1,"rows":1}`)) //nolint:gosec // few
		f.Add(uint8(i), []byte(`{"id":"../x","sandbox":"../x","exec":"..","path":"x"}`))                                                                                   //nolint:gosec // few
	}
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		m := newCommanded(&dispatchtest.Boxes{}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		r := httptest.NewRequest("POST", paths[int(which)%len(paths)], bytes.NewReader(body)).WithContext(ctx)
		w := httptest.NewRecorder()
		m.ServeHTTP(w, r)
		if w.Code >= 500 && w.Code != 503 {
			t.Fatalf("%s: %d %s", r.URL.Path, w.Code, w.Body)
		}
	})
}
