package dispatchtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// HostHarness makes what carries the calls about sandboxes from a manager to a
// worker.
type HostHarness struct {
	// New returns the manager's end of a stream whose other end is rc. It must
	// work until the test ends.
	New func(t *testing.T, rc dispatch.Receiver) dispatch.Host
}

// RunHost holds what carries the calls about sandboxes to the contract of
// dispatch.Host.
func RunHost(t *testing.T, h HostHarness) {
	t.Helper()
	for name, story := range map[string]func(*testing.T, HostHarness){
		"a sandbox is opened as it was ordered":        sandboxOpens,
		"a sandbox is paused, measured and ended":      sandboxLives,
		"an unknown sandbox is told apart":             sandboxUnknown,
		"an exec is told, with what it printed":        execTold,
		"the end with the answer":                      execRan,
		"an exec takes its input by offset":            execFed,
		"an exec takes signals and sizes":              execSignalled,
		"output is followed live and from any offset":  execFollowed,
		"followers do not wait for each other":         followersAreParallel,
		"an error of piece ends following":             pieceEndsFollow,
		"files go in and come out whole":               filesCross,
		"a fault in the middle of files is told":       filesBreak,
		"an upload that breaks off is no upload":       uploadBreaks,
		"an upload that nobody wants ends":             uploadRefused,
		"what is out of bounds is refused by name":     hostBounds,
		"a refusal of the worker keeps kind and code":  hostRefusal,
		"the end of ctx ends a call about a sandbox":   hostCtx,
		"a snapshot is ordered and its result arrives": snapshotOrdered,
		"files are read and written one by one":        fileByFile,
		"a file that breaks off is not written":        fileBreaks,
		"a watch tells of changes and ends":            fileWatched,
		"a watch ends with its sandbox":                watchEnds,
		"a port is reached both ways":                  portReached,
		"a port can be closed in one direction":        portHalfClosed,
		"many slow connections hold up nobody":         slowPorts,
		"a connection keeps deadlines":                 portDeadlines,
		"a port that is closed is told":                portClosed,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story(t, h)
		})
	}
}

func openBox(t *testing.T, h dispatch.Host) {
	t.Helper()
	if _, err := h.OpenSandbox(t.Context(), live.Order{ID: "b1"}); err != nil {
		t.Fatal(err)
	}
}

func startExec(t *testing.T, h dispatch.Host, c live.Command) {
	t.Helper()
	c.Sandbox = "b1"
	if err := h.StartExec(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

func sandboxOpens(t *testing.T, h HostHarness) {
	given := live.Order{
		ID: "b1", Owner: "o", Files: map[string][]byte{"a/b.txt": {0, 255, '<'}}, Trace: "00-1-2", Restore: "snap1",
		Spec: live.Spec{
			Image: "host", Driver: "fake", Env: map[string]string{"A": "b=c"}, Limits: sandbox.Limits{Memory: 1 << 20}, Network: sandbox.NetworkNone,
			Labels: map[string]string{"l": "v"}, TTL: time.Hour, Idle: time.Minute, OnTimeout: live.Pause, Secrets: []string{"A"},
		},
	}
	worker := &Boxes{}
	host := h.New(t, worker)
	made, err := host.OpenSandbox(t.Context(), given)
	if err != nil || made.Driver != "memory" || made.Enforced.Memory != 1<<20 || made.Started.IsZero() {
		t.Fatalf("got %+v, %v", made, err)
	}
	worker.mu.Lock()
	if got := worker.boxes["b1"].order; !reflect.DeepEqual(got, given) {
		t.Errorf("the order arrived as %+v", got)
	}
	worker.mu.Unlock()
	if again, err := host.OpenSandbox(t.Context(), given); err != nil || !reflect.DeepEqual(again, made) {
		t.Errorf("said again: %+v, %v", again, err)
	}
}

func sandboxLives(t *testing.T, h HostHarness) {
	ended := make(chan dispatch.TellRequest, 1)
	worker := &Boxes{Tell: func(r dispatch.TellRequest) { ended <- r }}
	host := h.New(t, worker)
	openBox(t, host)
	for range 2 {
		if err := host.PauseSandbox(t.Context(), "b1"); err != nil {
			t.Error(err)
		}
	}
	if got := worker.Standings(); len(got) != 1 || got[0].Paused != live.Frozen {
		t.Errorf("it stands as %+v", got)
	}
	if _, err := host.ResumeSandbox(t.Context(), "b1"); err != nil {
		t.Error(err)
	}
	made, err := host.AdjustSandbox(t.Context(), "b1", sandbox.Limits{MilliCPU: 7})
	if err != nil || made.Enforced.MilliCPU != 7 {
		t.Errorf("adjusted to %+v, %v", made, err)
	}
	if s, err := host.SandboxStats(t.Context(), "b1"); err != nil || s.Usage.CPU != 5 || s.Usage.PeakMemory != -1 {
		t.Errorf("measured %+v, %v", s, err)
	}
	end := live.Closing{ID: "b1", Outcome: sandbox.OutcomeExpired, Reason: "its time is over"}
	for range 2 {
		if err := host.EndSandbox(t.Context(), end); err != nil {
			t.Error(err)
		}
	}
	if told := soon(t, "the end", ended).Sandboxes; len(told) != 1 || told[0].Outcome != end.Outcome || told[0].Reason != end.Reason {
		t.Errorf("told %+v", told)
	}
}

func sandboxUnknown(t *testing.T, h HostHarness) {
	host := h.New(t, &Boxes{})
	_, resumed := host.ResumeSandbox(t.Context(), "b1")
	for what, err := range map[string]error{
		"start":  host.StartExec(t.Context(), live.Command{ID: "e", Sandbox: "b1", Command: []string{"echo"}}),
		"resume": resumed,
		"follow": host.FollowExec(t.Context(), live.Follow{Sandbox: "b1", Exec: "e"}, drop),
		"put":    host.PutFiles(t.Context(), "b1", "/x", strings.NewReader("")),
		"get":    host.GetFiles(t.Context(), "b1", "/x", io.Discard),
	} {
		if !fault.Is(err, fault.NotFound) || fault.CodeOf(err) != dispatch.CodeNoSandbox {
			t.Errorf("%s: got %v", what, err)
		}
	}
	openBox(t, host)
	if err := host.ResizeExec(t.Context(), live.Size{Sandbox: "b1", Exec: "e", Cols: 1, Rows: 1}); fault.CodeOf(err) != dispatch.CodeNoExec {
		t.Errorf("an unknown exec: got %v", err)
	}
}

func execTold(t *testing.T, h HostHarness) {
	ended := make(chan dispatch.TellRequest, 1)
	host := h.New(t, &Boxes{Tell: func(r dispatch.TellRequest) { ended <- r }})
	openBox(t, host)
	startExec(t, host, live.Command{ID: "e", Command: []string{"echo", "a", "ü"}, Env: map[string]string{"A": "b"}, Dir: "/tmp", Timeout: time.Second})
	startExec(t, host, live.Command{ID: "e", Command: []string{"echo", "again"}})
	told := soon(t, "the end", ended).Execs
	if len(told) != 1 || told[0].Result.Verdict != sandbox.OK || string(told[0].Inline[told[0].Result.Stdout.SHA256]) != "a ü\n" {
		t.Errorf("told %+v", told)
	}
}

// execRan is about an end that comes with the answer.
func execRan(t *testing.T, h HostHarness) {
	host := h.New(t, &Boxes{})
	openBox(t, host)
	c := live.Command{ID: "e", Sandbox: "b1", Command: []string{"echo", strings.Repeat("ü", dispatch.MaxInline/2-1)}}
	for range 2 { // said again it is the same
		e, err := host.RunExec(t.Context(), c, time.Millisecond)
		if err != nil || e == nil {
			t.Fatalf("got %+v, %v", e, err)
		}
		if e.ID != "e" || e.Sandbox != "b1" || string(e.Inline[e.Result.Stdout.SHA256]) != c.Command[1]+"\n" {
			t.Errorf("told %q of %q with %d streams", e.ID, e.Sandbox, len(e.Inline))
		}
	}
	c = live.Command{ID: "f", Sandbox: "b1", Command: []string{"sleep"}}
	if e, err := host.RunExec(t.Context(), c, time.Millisecond); err != nil || e != nil {
		t.Errorf("one that runs on: %+v, %v", e, err)
	}
	if _, err := host.RunExec(t.Context(), c, dispatch.MaxWithin+1); !fault.Is(err, fault.Invalid) {
		t.Errorf("for too long: %v", err)
	}
}

func execFed(t *testing.T, h HostHarness) {
	host := h.New(t, &Boxes{})
	openBox(t, host)
	startExec(t, host, live.Command{ID: "e", Command: []string{"cat"}, Stdin: []byte("ab"), Open: true})
	feed := func(offset int64, data string, last bool) error {
		return host.FeedExec(t.Context(), live.Input{Sandbox: "b1", Exec: "e", Offset: offset, Data: []byte(data), Close: last})
	}
	for _, c := range []struct {
		offset int64
		data   string
	}{{2, "cd"}, {2, "cd"}, {-1, ""}, {3, "de\xff"}, {-1, "g\x00"}} {
		if err := feed(c.offset, c.data, false); err != nil {
			t.Errorf("%q at %d: %v", c.data, c.offset, err)
		}
	}
	if err := feed(100, "x", false); !fault.Is(err, fault.Conflict) || fault.CodeOf(err) != dispatch.CodeInputGap {
		t.Errorf("a gap: %v", err)
	}
	if err := feed(-1, "", true); err != nil {
		t.Error(err)
	}
	if got := follow(t, host, live.Follow{Sandbox: "b1", Exec: "e"}); got != "abcde\xffg\x00" {
		t.Errorf("it got %q", got)
	}
	if err := feed(-1, "x", false); !fault.Is(err, fault.Conflict) {
		t.Errorf("after the end: %v", err)
	}
	if err := host.FeedExec(t.Context(), live.Input{Sandbox: "b1", Exec: "f", Offset: -1}); fault.CodeOf(err) != dispatch.CodeNoExec {
		t.Errorf("of one that is not known: %v", err)
	}
}

// follow reads the stdout of an exec to its end.
func follow(t *testing.T, host dispatch.Host, f live.Follow) string {
	t.Helper()
	var got bytes.Buffer
	err := host.FollowExec(t.Context(), f, func(c dispatch.Chunk) error {
		if c.Stream == sandbox.Stdout {
			got.Write(c.Data)
		}
		return nil
	})
	if err != nil {
		t.Errorf("follow: %v", err)
	}
	return got.String()
}

func execSignalled(t *testing.T, h HostHarness) {
	ended := make(chan dispatch.TellRequest, 1)
	worker := &Boxes{Tell: func(r dispatch.TellRequest) { ended <- r }}
	host := h.New(t, worker)
	openBox(t, host)
	startExec(t, host, live.Command{ID: "e", Command: []string{"sh"}, TTY: true, Cols: 80, Rows: 24})
	if err := host.ResizeExec(t.Context(), live.Size{Sandbox: "b1", Exec: "e", Cols: 100, Rows: 40}); err != nil {
		t.Error(err)
	}
	if err := host.SignalExec(t.Context(), live.Signal{Sandbox: "b1", Exec: "e", Signal: 2}); err != nil {
		t.Error(err)
	}
	if err := host.SignalExec(t.Context(), live.Signal{Sandbox: "b1", Exec: "e", Kill: "its user"}); err != nil {
		t.Error(err)
	}
	if told := soon(t, "the end", ended).Execs; len(told) != 1 || told[0].Result.Verdict != sandbox.Killed || told[0].Result.Cause != "its user" {
		t.Errorf("told %+v", told)
	}
	worker.mu.Lock()
	defer worker.mu.Unlock()
	if e := worker.boxes["b1"].execs["e"]; e.size.Cols != 100 || e.size.Rows != 40 || !reflect.DeepEqual(e.signals, []int{2, 0}) || e.command.Cols != 80 {
		t.Errorf("it got %+v", e)
	}
}

func execFollowed(t *testing.T, h HostHarness) {
	host := h.New(t, &Boxes{})
	openBox(t, host)
	startExec(t, host, live.Command{ID: "e", Command: []string{"cat"}, Open: true})
	piece := bytes.Repeat([]byte("0123456789abcdef"), dispatch.MaxInput/16)
	const pieces = 40
	seen, done := make(chan int64, pieces+1), make(chan error, 1)
	go func() {
		done <- host.FollowExec(context.WithoutCancel(t.Context()), live.Follow{Sandbox: "b1", Exec: "e"}, func(c dispatch.Chunk) error {
			seen <- c.Offset + int64(len(c.Data))
			return nil
		})
	}()
	var at int64
	for range pieces { // each is seen before the next is sent
		if err := host.FeedExec(t.Context(), live.Input{Sandbox: "b1", Exec: "e", Offset: at, Data: piece}); err != nil {
			t.Fatal(err)
		}
		at += int64(len(piece))
		for soon(t, "the output", seen) < at {
		}
	}
	if err := host.FeedExec(t.Context(), live.Input{Sandbox: "b1", Exec: "e", Offset: at, Close: true}); err != nil {
		t.Fatal(err)
	}
	if err := soon(t, "the end", done); err != nil {
		t.Error(err)
	}
	all := strings.Repeat(string(piece), pieces)
	for _, from := range []int64{0, 1, 5 << 16, int64(len(all)) - 1, int64(len(all))} {
		if got := follow(t, host, live.Follow{Sandbox: "b1", Exec: "e", From: sandbox.Offsets{Stdout: from}}); got != all[from:] {
			t.Errorf("from %d came %d bytes", from, len(got))
		}
	}
}

func followersAreParallel(t *testing.T, h HostHarness) {
	host := h.New(t, &Boxes{})
	openBox(t, host)
	startExec(t, host, live.Command{ID: "e", Command: []string{"cat"}, Stdin: []byte("x"), Open: true})
	const n = 20
	came, done := make(chan struct{}, n), make(chan error, n)
	for range n {
		go func() {
			done <- host.FollowExec(context.WithoutCancel(t.Context()), live.Follow{Sandbox: "b1", Exec: "e"}, func(dispatch.Chunk) error {
				came <- struct{}{}
				return nil
			})
		}()
	}
	for range n {
		soon(t, "the output", came)
	}
	if err := host.FeedExec(t.Context(), live.Input{Sandbox: "b1", Exec: "e", Offset: 1, Close: true}); err != nil {
		t.Error(err)
	}
	for range n {
		if err := soon(t, "the end", done); err != nil {
			t.Error(err)
		}
	}
}

func pieceEndsFollow(t *testing.T, h HostHarness) {
	host := h.New(t, &Boxes{})
	openBox(t, host)
	startExec(t, host, live.Command{ID: "e", Command: []string{"cat"}, Stdin: []byte("x"), Open: true})
	why := errors.New("nobody reads")
	if err := host.FollowExec(t.Context(), live.Follow{Sandbox: "b1", Exec: "e"}, func(dispatch.Chunk) error { return why }); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
}

func filesCross(t *testing.T, h HostHarness) {
	host := h.New(t, &Boxes{})
	openBox(t, host)
	for _, size := range []int{0, 1, dispatch.MaxChunk, 5<<20 + 3} {
		data := bytes.Repeat([]byte("abcdefg"), size/7+1)[:size]
		if err := host.PutFiles(t.Context(), "b1", "/workspace/ä", iotest.HalfReader(bytes.NewReader(data))); err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := host.GetFiles(t.Context(), "b1", "/workspace/ä", &got); err != nil || !bytes.Equal(got.Bytes(), data) {
			t.Errorf("%d bytes came back as %d, %v", size, got.Len(), err)
		}
	}
	if err := host.GetFiles(t.Context(), "b1", "/nowhere", io.Discard); !fault.Is(err, fault.NotFound) {
		t.Errorf("got %v", err)
	}
}

// Scripted is a worker's end whose calls about files and sandboxes are functions.
type Scripted struct {
	Boxes
	Get      func(ctx context.Context, w io.Writer) error
	Put      func(ctx context.Context, tar io.Reader) error
	Open     func(ctx context.Context, o live.Order) (live.Made, error)
	Snapshot func(ctx context.Context, o live.SnapshotOrder) (live.SnapshotMade, error)
}

// GetFiles calls the function.
func (s *Scripted) GetFiles(ctx context.Context, _, _ string, w io.Writer) error {
	return s.Get(ctx, w)
}

// PutFiles calls the function.
func (s *Scripted) PutFiles(ctx context.Context, _, _ string, tar io.Reader) error {
	return s.Put(ctx, tar)
}

// OpenSandbox calls the function.
func (s *Scripted) OpenSandbox(ctx context.Context, o live.Order) (live.Made, error) {
	return s.Open(ctx, o)
}

// SnapshotSandbox calls the function.
func (s *Scripted) SnapshotSandbox(ctx context.Context, o live.SnapshotOrder) (live.SnapshotMade, error) {
	return s.Snapshot(ctx, o)
}

func filesBreak(t *testing.T, h HostHarness) {
	host := h.New(t, &Scripted{Get: func(_ context.Context, w io.Writer) error {
		if _, err := w.Write(bytes.Repeat([]byte("x"), 200<<10)); err != nil {
			return err
		}
		return fault.New(fault.Gone, "the sandbox is gone").WithCode("gone_meanwhile")
	}})
	if err := host.GetFiles(t.Context(), "b1", "/x", io.Discard); !fault.Is(err, fault.Gone) || fault.CodeOf(err) != "gone_meanwhile" {
		t.Errorf("got %v", err)
	}
}

func uploadBreaks(t *testing.T, h HostHarness) {
	seen := make(chan error, 1)
	host := h.New(t, &Scripted{Put: func(_ context.Context, tar io.Reader) error {
		_, err := io.Copy(io.Discard, tar)
		seen <- err
		return err
	}})
	why := errors.New("the client hung up")
	broken := io.MultiReader(strings.NewReader(strings.Repeat("x", 100<<10)), iotest.ErrReader(why))
	if err := host.PutFiles(t.Context(), "b1", "/x", broken); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
	if err := soon(t, "the worker's end of it", seen); err == nil {
		t.Error("the worker took half for all")
	}
}

// endless never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func uploadRefused(t *testing.T, h HostHarness) {
	host := h.New(t, &Scripted{Put: func(_ context.Context, tar io.Reader) error {
		_, _ = io.CopyN(io.Discard, tar, 1<<20)
		return fault.New(fault.Exhausted, "the disk is full").WithCode("disk_full")
	}})
	if err := host.PutFiles(t.Context(), "b1", "/x", endless{}); !fault.Is(err, fault.Exhausted) || fault.CodeOf(err) != "disk_full" {
		t.Errorf("got %v", err)
	}
}

func snapshotOrdered(t *testing.T, h HostHarness) {
	given := live.SnapshotOrder{ID: "s1", Sandbox: "b1", Kind: live.Full, Generation: 3, Aside: true}
	host := h.New(t, &Scripted{Snapshot: func(_ context.Context, o live.SnapshotOrder) (live.SnapshotMade, error) {
		if o != given {
			t.Errorf("the order arrived as %+v", o)
		}
		return live.SnapshotMade{Bytes: 7, SHA256: emptySHA256}, nil
	}})
	if made, err := host.SnapshotSandbox(t.Context(), given); err != nil || made.Bytes != 7 || made.SHA256 != emptySHA256 {
		t.Errorf("got %+v, %v", made, err)
	}
	if err := host.DropSnapshot(t.Context(), "s1"); err != nil {
		t.Error(err)
	}
}

func hostRefusal(t *testing.T, h HostHarness) {
	host := h.New(t, &Scripted{Open: func(context.Context, live.Order) (live.Made, error) {
		return live.Made{}, fault.New(fault.Exhausted, "no room").WithCode("no_room")
	}})
	if _, err := host.OpenSandbox(t.Context(), live.Order{ID: "b1"}); !fault.Is(err, fault.Exhausted) || fault.CodeOf(err) != "no_room" {
		t.Errorf("got %v", err)
	}
}

func hostCtx(t *testing.T, h HostHarness) {
	begun, stopped := make(chan struct{}), make(chan struct{})
	host := h.New(t, &Scripted{Open: func(ctx context.Context, _ live.Order) (live.Made, error) {
		close(begun)
		<-ctx.Done()
		close(stopped)
		return live.Made{}, ctx.Err()
	}})
	ctx, cancel := context.WithCancelCause(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := host.OpenSandbox(ctx, live.Order{ID: "b1"})
		failed <- err
	}()
	soon(t, "the call", begun)
	cancel(errors.New("nobody wants it"))
	soon(t, "its end", stopped)
	if err := soon(t, "the answer", failed); err == nil {
		t.Error("a call that was given up has an answer")
	}
}
