package fake_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aurea-dev/aurea/internal/driver/fake"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// said is how one process ended and what it printed.
type said struct {
	Code, Signal   int
	OOM, Lost      bool
	Stdout, Stderr string
}

func newDriver(t testing.TB) *fake.Driver {
	t.Helper()
	d := open(t, "")
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return d
}

func newBox(t testing.TB, d sandbox.Driver, env map[string]string) sandbox.Box {
	t.Helper()
	b, err := d.Create(context.Background(), sandbox.Spec{ID: newID(t), Env: env}, func(sandbox.Handle) error { return nil })
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	return b
}

func newID(t testing.TB) string {
	t.Helper()
	id, err := sandbox.NewID()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func run(t testing.TB, b sandbox.Box, env map[string]string, command ...string) said {
	t.Helper()
	p, err := b.Exec(t.Context(), sandbox.ExecSpec{ID: newID(t), Command: command, Env: env})
	if err != nil {
		t.Fatalf("exec: %v", err)
	}
	var out [3]strings.Builder
	for {
		f, err := p.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("next: %v", err)
		}
		out[f.Stream].Write(f.Data)
	}
	exit, err := p.Wait(t.Context())
	if err != nil {
		t.Fatalf("wait: %v", err)
	}
	return said{exit.Code, exit.Signal, exit.OOM, exit.Lost, out[sandbox.Stdout].String(), out[sandbox.Stderr].String()}
}

func TestScriptedByTheEnvironment(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sandbox, exec map[string]string
		want          said
	}{
		"output and code": {
			exec: map[string]string{"FAKE_STDOUT": "out", "FAKE_STDERR": "err", "FAKE_EXIT": "3"},
			want: said{Code: 3, Stdout: "out", Stderr: "err"},
		},
		"the exec's over the sandbox's": {
			sandbox: map[string]string{"FAKE_EXIT": "3", "FAKE_STDOUT": "sandbox"},
			exec:    map[string]string{"FAKE_EXIT": "4"},
			want:    said{Code: 4, Stdout: "sandbox"},
		},
		"signal":        {exec: map[string]string{"FAKE_SIGNAL": "11"}, want: said{Code: -1, Signal: 11}},
		"out of memory": {exec: map[string]string{"FAKE_OOM": "1", "FAKE_STDOUT": "partial"}, want: said{Code: -1, Signal: 9, OOM: true, Stdout: "partial"}},
		"crash at exec": {exec: map[string]string{"FAKE_CRASH": "exec"}, want: said{Code: -1, Lost: true}},
		"crash at run":  {exec: map[string]string{"FAKE_CRASH": "run"}, want: said{Code: -1, Lost: true}},
		"nothing asked": {want: said{Stdout: "fake: would run [\"python3\" \"-c\" \"print(1)\"]\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, newDriver(t), c.sandbox)
			got := run(t, b, c.exec, "python3", "-c", "print(1)")
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOutputBytes(t *testing.T) {
	t.Parallel()
	b := newBox(t, newDriver(t), nil)
	got := run(t, b, map[string]string{"FAKE_OUTPUT_BYTES": "10MB"}, "flood")
	if len(got.Stdout) != 10_000_000 || !strings.Contains(got.Stdout[9_000_000:], "\n") {
		t.Errorf("%d bytes, want ten million of lines", len(got.Stdout))
	}
}

func TestSleepTakesItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := open(t, "")
		b := newBox(t, d, map[string]string{"FAKE_SLEEP": "90s"})
		start := time.Now()
		got := run(t, b, nil, "sh", "-c", "sleep 30; sleep 0.5; echo late")
		if took := time.Since(start); took != 120500*time.Millisecond || got.Stdout != "late\n" {
			t.Errorf("it took %s and said %+v", took, got)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestHangsUntilTheCallEnds(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"create", "exec", "put", "get", "destroy"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := open(t, "")
				defer d.Close() //nolint:errcheck // memory only
				over := errors.New("over")
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, over)
				defer cancel()
				spec := sandbox.Spec{ID: newID(t), Env: map[string]string{"FAKE_HANG": step}}
				var h sandbox.Handle
				b, err := d.Create(ctx, spec, func(reported sandbox.Handle) error { h = reported; return nil })
				switch step {
				case "exec":
					_, err = b.Exec(ctx, sandbox.ExecSpec{ID: "a", Command: []string{"true"}})
				case "put":
					err = b.Put(ctx, "/workspace", strings.NewReader(""))
				case "get":
					err = b.Get(ctx, "/workspace", io.Discard)
				case "destroy":
					err = d.Destroy(ctx, h)
				}
				if !errors.Is(err, over) {
					t.Errorf("%s: %v, want the end of its ctx", step, err)
				}
				if err := d.Destroy(t.Context(), h); step != "destroy" && err != nil {
					t.Errorf("destroy: %v", err)
				}
			})
		})
	}
}

func TestCrashAtAStep(t *testing.T) {
	t.Parallel()
	d := newDriver(t)
	for _, step := range []string{"create", "put", "get"} {
		var h sandbox.Handle
		b, err := d.Create(t.Context(), sandbox.Spec{ID: newID(t), Env: map[string]string{"FAKE_CRASH": step}},
			func(reported sandbox.Handle) error { h = reported; return nil })
		switch step {
		case "put":
			err = b.Put(t.Context(), "/workspace", strings.NewReader(""))
		case "get":
			err = b.Get(t.Context(), "/workspace", io.Discard)
		}
		if !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: %v, want a fault of kind unavailable", step, err)
		}
		if b != nil {
			<-b.Done()
		}
		if _, err := d.Recover(t.Context(), h); !fault.Is(err, fault.NotFound) {
			t.Errorf("recover after a crash at %s: %v", step, err)
		}
		if err := d.Destroy(t.Context(), h); err != nil {
			t.Errorf("destroy after a crash at %s: %v", step, err)
		}
	}
}

func TestScriptsThatCannotBeUnderstood(t *testing.T) {
	t.Parallel()
	d := newDriver(t)
	for name, value := range map[string]string{
		"FAKE_SLEEP": "-1s", "FAKE_EXIT": "256", "FAKE_OUTPUT_BYTES": "10 parsecs", "FAKE_OOM": "perhaps",
		"FAKE_CRASH": "lunch", "FAKE_HANG": "up", "FAKE_SLEPE": "1s", "FAKE_SIGNAL": "x", "FAKE_MEMORY": "9999999999GB",
	} {
		_, err := d.Create(t.Context(), sandbox.Spec{ID: newID(t), Env: map[string]string{name: value}},
			func(sandbox.Handle) error { t.Errorf("%s=%s was reported", name, value); return nil })
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: %v, want a fault that names it", name, value, err)
		}
	}
}

func TestShell(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]said{
		"echo a; echo b":                                 {Stdout: "a\nb\n"},
		"true && echo yes || echo no":                    {Stdout: "yes\n"},
		"false && echo yes || echo no":                   {Stdout: "no\n"},
		"false; echo $?":                                 {Stdout: "1\n"},
		"exit 7; echo never":                             {Code: 7},
		"sh -c 'exit 3'; echo $?":                        {Stdout: "3\n"},
		"false":                                          {Code: 1},
		"echo 'a  b' \"c $X\" $X":                        {Stdout: "a  b c x  y x y\n"},
		"echo -n a; echo b >&2":                          {Stdout: "a", Stderr: "b\n"},
		"echo a > f; echo b >> f; cat f":                 {Stdout: "a\nb\n"},
		"echo a > f; cat < f; cat nofile":                {Code: 1, Stdout: "a\n", Stderr: "fake: cat: nofile: No such file or directory\n"},
		"echo gone > /dev/null; cat nofile 2> /dev/null": {Code: 1},
		"A=1; B=$A$A; echo ${B}":                         {Stdout: "11\n"},
		"mkdir -p d/e && cd d/e && pwd":                  {Stdout: "/workspace/d/e\n"},
		"echo x > f; test -f f && echo there; rm f; test -e f || echo gone": {Stdout: "there\ngone\n"},
		"ln -s f l; echo via > l; cat f":                                    {Stdout: "via\n"},
		"ln -s l l; cat l":                                                  {Code: 1, Stderr: "fake: cat: l: too many levels of symbolic links\n"},
		"kill -9 $$; echo never":                                            {Code: -1, Signal: 9},
		"echo one & wait; echo two":                                         {Stdout: "one\ntwo\n"},
		"echo # no comment\n# comment":                                      {Stdout: "\n"},
		"echo 'open":                                                        {Code: 2, Stderr: "fake: syntax error\n"},
		"&& echo":                                                           {Code: 2, Stderr: "fake: syntax error\n"},
		"echo a | tr a b":                                                   {Stdout: "fake: would run [\"sh\" \"-c\" \"echo a | tr a b\"]\n"},
		"make all":                                                          {Stdout: "fake: would run [\"make\" \"all\"]\n"},
		"./missing":                                                         {Code: 127, Stderr: "fake: ./missing: not found\n"},
		"echo 'sh s' > s; sh s":                                             {Code: 126, Stderr: "fake: scripts call each other too deeply\n"},
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, newDriver(t), map[string]string{"X": "x  y"})
			if diff := cmp.Diff(want, run(t, b, nil, "sh", "-c", script)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestProcessLimit(t *testing.T) {
	t.Parallel()
	d := newDriver(t)
	b, err := d.Create(t.Context(), sandbox.Spec{ID: newID(t), Limits: sandbox.Limits{Processes: 2}},
		func(sandbox.Handle) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	got := run(t, b, nil, "sh", "-c", "sleep 1000 & sleep 1000 & echo end")
	if got.Stdout != "end\n" || !strings.Contains(got.Stderr, "cannot fork") {
		t.Errorf("%+v, want a fork that fails", got)
	}
	if _, err := b.Exec(t.Context(), sandbox.ExecSpec{ID: "a", Command: []string{"true"}}); err != nil {
		t.Errorf("exec beside one sleeper: %v", err)
	}
}

func TestRecoveredProcessHasSleptMeanwhile(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := open(t, folder)
		b := newBox(t, d, nil)
		p, err := b.Exec(t.Context(), sandbox.ExecSpec{ID: "sleeper", Command: []string{"sh", "-c", "echo a >> f; sleep 600; cat f"}})
		if err != nil {
			t.Fatal(err)
		}
		started := time.Now()
		if _, err := p.Wait(expired(t)); err == nil {
			t.Fatal("it ended at once")
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Wait(t.Context()); !fault.Is(err, fault.Unavailable) {
			t.Errorf("wait at a closed driver: %v", err)
		}
		time.Sleep(400 * time.Second) //nolint:forbidigo // virtual time

		d = open(t, folder)
		defer d.Close() //nolint:errcheck // the folder goes too
		b, err = d.Recover(t.Context(), b.Handle())
		if err != nil {
			t.Fatal(err)
		}
		p, err = b.Attach(t.Context(), "sleeper", sandbox.Offsets{})
		if err != nil {
			t.Fatal(err)
		}
		f, err := p.Next(t.Context())
		if err != nil || string(f.Data) != "a\n" || time.Since(started) != 600*time.Second {
			t.Errorf("%q (%v) after %s, want the file after the sleep's 10 minutes", f.Data, err, time.Since(started))
		}
	})
}

func expired(t *testing.T) context.Context {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("expired"))
	return ctx
}

func TestStrangeHandlesAreRefused(t *testing.T) {
	t.Parallel()
	d := newDriver(t)
	good := newBox(t, d, nil).Handle()
	for name, change := range map[string]func(*sandbox.Handle){
		"driver":  func(h *sandbox.Handle) { h.Driver = "docker" },
		"version": func(h *sandbox.Handle) { h.Version = 99 },
		"id":      func(h *sandbox.Handle) { h.ID = "../../etc/passwd" },
	} {
		h := good
		change(&h)
		if _, err := d.Recover(t.Context(), h); !fault.Is(err, fault.Invalid) {
			t.Errorf("recover with another %s: %v", name, err)
		}
		if err := d.Destroy(t.Context(), h); !fault.Is(err, fault.Invalid) {
			t.Errorf("destroy with another %s: %v", name, err)
		}
	}
}

// BenchmarkLife is the whole life of a sandbox with one exec.
func BenchmarkLife(b *testing.B) {
	d := newDriver(b)
	env := maps.Clone(map[string]string{"LANG": "C"})
	for b.Loop() {
		box := newBox(b, d, env)
		p, err := box.Exec(b.Context(), sandbox.ExecSpec{ID: "one", Command: []string{"echo", "hello"}})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := p.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
		if err := d.Destroy(b.Context(), box.Handle()); err != nil {
			b.Fatal(err)
		}
	}
}
