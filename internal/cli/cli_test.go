package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/client"
	"github.com/aurea-dev/aurea/internal/fault"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	status := func(n int) error { return fmt.Errorf("x: %w", &client.Problem{Status: n}) }
	for _, tc := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("x"), 1},
		{status(500), 1},
		{&usageError{}, 2},
		{status(422), 2},
		{status(413), 2},
		{fault.Field("f", "x"), 2},
		{status(404), 3},
		{status(409), 4},
		{fault.New(fault.Conflict, "x"), 4},
		{status(401), 5},
		{status(403), 5},
		{status(503), 6},
		{&client.Unreachable{Err: errors.New("x")}, 6},
		{&notCompleteError{}, 7},
		{errInterrupted, 130},
		{quietError{status(404)}, 3},
		{context.Canceled, 130},
	} {
		if got := ExitCode(tc.err); got != tc.want {
			t.Errorf("%v: %d, want %d", tc.err, got, tc.want)
		}
	}
	for _, k := range fault.Kinds() {
		if code := ExitCode(fault.New(k, "x")); code == 0 || code > 6 {
			t.Errorf("%s has exit code %d", k, code)
		}
	}
}

// What stands between backquotes in the usage of a flag is shown as the kind of
// its value, which is one word.
func TestHelpOfFlagsNamesKindsOfValues(t *testing.T) {
	t.Parallel()
	flag := regexp.MustCompile(`^ +(-\w, )?--[\w-]+( \w+)?(\[=.*\])?   `)
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.LocalFlags().FlagUsages()) {
			if !flag.MatchString(line) {
				t.Errorf("%s: %s", cmd.CommandPath(), line)
			}
		}
		for _, c := range cmd.Commands() {
			look(c)
		}
	}
	look((&invocation{}).root())
}

// The roles get the settings that their flags say, and the program's error
// becomes the exit code.
func TestRolesAreStarted(t *testing.T) {
	t.Parallel()
	var got Start
	start := func(_ context.Context, s Start) error { got = s; return fault.New(fault.Unavailable, "away") }
	p := Program{Up: start, Manager: start, Worker: start, Bridge: start}
	code := Run(t.Context(), p, []string{"worker", "--concurrency", "9", "--data", "/d", "--json"}, Streams{Out: io.Discard, Err: io.Discard}, nil)
	if code != ExitUnavailable || got.Config.Concurrency != 9 || got.Config.SandboxBase != "/d/sandbox" || got.Config.LogFormat != "json" {
		t.Errorf("%d, %+v", code, got.Config)
	}
	if code := Run(t.Context(), p, []string{"up", "--keep", "--data", "/d"}, Streams{Out: io.Discard, Err: io.Discard}, nil); code != ExitUnavailable || got.Config.OnStop != "keep" {
		t.Errorf("%d, %+v", code, got.Config)
	}
	if code := Run(t.Context(), p, []string{"bridge", "--concurrency", "9"}, Streams{Out: io.Discard, Err: io.Discard}, nil); code != ExitInvalid {
		t.Errorf("a bridge takes the flags of a worker: %d", code)
	}
}

func TestLiveBoardRedrawsInPlace(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	b := &liveBoard{out: &out, root: "plan", ids: []string{"a", "b"}, width: 40, rows: 10, jobs: map[string]jobLine{}, now: time.Now}
	for _, e := range []client.Event{
		{JobID: "a", Type: "job.created", Details: []byte(`{"to":"QUEUED"}`)},
		{JobID: "a", Type: "exec.started"},
		{Type: "worker.registered"},
		{JobID: "b", Type: "job.created", Details: []byte(`{"to":"\u001b[2J hostile and very long, longer than the line"}`)},
	} {
		if err := b.show(e); err != nil {
			t.Fatal(err)
		}
	}
	frames := strings.Split(out.String(), "\x1b[3A")
	if len(frames) != 3 {
		t.Fatalf("%q", out.String())
	}
	last := strings.ReplaceAll(frames[2], "\x1b[2K", "")
	lines := strings.Split(last, "\n")
	if lines[0] != "job  a  QUEUED      exec.started" || len([]rune(lines[1])) != 39 || strings.Contains(last, "\x1b") || !strings.HasPrefix(lines[2], "plan plan") {
		t.Errorf("%q", lines)
	}
}

func TestLiveBoardOfALongPlanFitsTheTerminal(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	b := &liveBoard{out: &out, root: "plan", ids: strings.Split(strings.Repeat("x,", 99)+"x", ","), width: 80, rows: 10, jobs: map[string]jobLine{}, now: time.Now}
	if err := b.show(client.Event{JobID: "x"}); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n != 10 || !strings.Contains(out.String(), "… and 92 more") {
		t.Errorf("%d lines: %q", n, out.String())
	}
}

func TestTerminalGetsTheLiveBoardAndHumanTimes(t *testing.T) {
	t.Parallel()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = master.Close(); _ = slave.Close() }()
	if err := pty.Setsize(slave, &pty.Winsize{Rows: 5, Cols: 30}); err != nil {
		t.Fatal(err)
	}
	inv := &invocation{Streams: Streams{Out: slave}}
	board, ok := inv.newBoard(client.Submission{}).(*liveBoard)
	if !ok || board.width != 30 || board.rows != 3 {
		t.Errorf("%+v", board)
	}
	now := noon()
	then := now.Add(-3 * time.Minute)
	if got := inv.moment(&then, now); got != "3m ago" {
		t.Errorf("%q", got)
	}
	if w, ok := inv.logWriter(nil, client.Stdout, false).(harmless); !ok || w.w != slave {
		t.Error("a terminal gets the raw output of a job")
	}
}

func TestAgo(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "now", 5 * time.Second: "5s ago", 3 * time.Minute: "3m ago", 30 * time.Hour: "30h ago", 72 * time.Hour: "3d ago", -time.Minute: "in 1m",
	} {
		if got := ago(d); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}

func TestHarmless(t *testing.T) {
	t.Parallel()
	if got := harmlessText("a\x1b[31mb\x07\tc\r\n\u009bd é"); got != "a[31mb\tc\r\nd é" {
		t.Errorf("%q", got)
	}
	if got := plain("a\nb\u202ec\x00\xff"); got != "a bc\uFFFD" {
		t.Errorf("%q", got)
	}
}

func FuzzToJSON(f *testing.F) {
	f.Add("tasks: []")
	f.Add("{")
	f.Add("a: &a [*a]")
	f.Add("1: 2\n? [x]\n: y")
	f.Fuzz(func(t *testing.T, in string) {
		doc, err := toJSON([]byte(in))
		if err == nil && len(doc) == 0 {
			t.Error("nothing came out")
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("error is not one line: %q", err)
		}
	})
}
