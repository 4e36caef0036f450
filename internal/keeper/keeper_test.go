package keeper

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

func TestLife(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	x := s.create(live.Request{Spec: live.Spec{Labels: map[string]string{"a": "b"}}})
	if x.State != sandbox.StateRunning || x.Worker != "w" || x.Made.Driver != "memory" || !x.ExpiresAt.Equal(x.StartedAt.Add(time.Hour)) {
		t.Errorf("made %+v", x)
	}
	e := s.start(x.ID, "echo", "hello")
	e, err := s.WaitExec(as("o"), e.ID)
	if err != nil || e.Result.Verdict != sandbox.OK {
		t.Fatalf("%+v, %v", e, err)
	}
	out, err := s.ExecOutput(as("o"), &e, sandbox.Stdout, 100)
	if err != nil || string(out) != "hello\n" {
		t.Errorf("%q, %v", out, err)
	}
	waits := s.start(x.ID, "sleep")
	if x, err = s.EndSandbox(as("o"), x.ID, "enough"); err != nil || x.State != sandbox.StateCompleted || x.Outcome != sandbox.OutcomeCancelled || x.Reason != "enough" {
		t.Errorf("ended %+v, %v", x, err)
	}
	if e, err := s.Exec(as("o"), waits.ID); err != nil || e.State != live.Done || e.Result.Verdict != sandbox.Killed {
		t.Errorf("the exec that ran: %+v, %v", e, err)
	}
	out, err = s.ExecOutput(as("o"), &e, sandbox.Stdout, 100)
	if err != nil || string(out) != "hello\n" {
		t.Errorf("the output after the end: %q, %v", out, err)
	}
	if _, _, err := s.StartExec(as("o"), live.Command{Sandbox: x.ID, Command: []string{"echo"}}, run.Asked{}); !fault.Is(err, fault.Gone) {
		t.Errorf("an exec after the end: %v", err)
	}
	want := []event.Type{event.SandboxPending, event.SandboxCreating, event.SandboxRunning, event.SandboxCompleting, event.SandboxCompleted}
	if got := s.story(x.ID); !slices.Equal(got, want) {
		t.Errorf("the events are %q", got)
	}
	if x, err = s.EndSandbox(as("o"), x.ID, "again"); err != nil || x.Reason != "enough" {
		t.Errorf("ended twice: %+v, %v", x, err)
	}
}

func TestOwnersSeeTheirOwn(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	x := s.create(live.Request{})
	e := s.start(x.ID, "sleep")
	for what, ask := range map[string]func() error{
		"sandbox": func() error { _, err := s.Sandbox(as("p"), x.ID); return err },
		"end":     func() error { _, err := s.EndSandbox(as("p"), x.ID, ""); return err },
		"start": func() error {
			_, _, err := s.StartExec(as("p"), live.Command{Sandbox: x.ID, Command: []string{"echo"}}, run.Asked{})
			return err
		},
		"exec":   func() error { _, err := s.Exec(as("p"), e.ID); return err },
		"feed":   func() error { return s.FeedExec(as("p"), e.ID, -1, []byte("x"), false) },
		"follow": func() error { return s.FollowExec(as("p"), e.ID, sandbox.Offsets{}, 0, nil) },
		"put":    func() error { return s.PutFiles(as("p"), x.ID, "/", strings.NewReader("")) },
	} {
		if err := ask(); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s of another: %v", what, err)
		}
	}
	if list, err := s.Sandboxes(as("p"), store.SandboxFilter{}); err != nil || len(list) != 0 {
		t.Errorf("%d are listed, %v", len(list), err)
	}
	if err := s.FeedExec(context.Background(), e.ID, -1, nil, false); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("nobody: %v", err)
	}
}

// Many who ask for one name at once get the same sandbox, and one is made.
func TestNameIsMadeOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	const askers = 32
	ids, mades := make([]string, askers), make([]bool, askers)
	var group sync.WaitGroup
	for i := range askers {
		group.Go(func() {
			x, made, err := s.CreateSandbox(as("o"), live.Request{Name: "mine"})
			if err != nil || x.State != sandbox.StateRunning {
				t.Errorf("%+v, %v", x, err)
			}
			ids[i], mades[i] = x.ID, made
		})
	}
	group.Wait()
	made := 0
	for i := range askers {
		if ids[i] != ids[0] {
			t.Errorf("%s and %s have the same name", ids[i], ids[0])
		}
		if mades[i] {
			made++
		}
	}
	if made != 1 {
		t.Errorf("%d were made", made)
	}
}

func TestExecKeyStartsOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	x := s.create(live.Request{})
	c := live.Command{Sandbox: x.ID, Command: []string{"echo"}}
	first, again, err := s.StartExec(as("o"), c, run.Asked{Key: "k", Digest: "d"})
	if err != nil || again {
		t.Fatal(again, err)
	}
	second, again, err := s.StartExec(as("o"), c, run.Asked{Key: "k", Digest: "d"})
	if err != nil || !again || second.ID != first.ID {
		t.Errorf("%v, %v, %v", second, again, err)
	}
	if _, _, err := s.StartExec(as("o"), c, run.Asked{Key: "k", Digest: "other"}); fault.CodeOf(err) != "idempotency_mismatch" {
		t.Errorf("the key with another request: %v", err)
	}
}

// A reader who leaves and comes back with its offsets reads everything once,
// from the worker and from what is kept.
func TestFollowGoesOn(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	x := s.create(live.Request{})
	e := s.start(x.ID, "cat")
	var got strings.Builder
	enough := errors.New("enough")
	read := func(until int) error {
		return s.FollowExec(as("o"), e.ID, sandbox.Offsets{Stdout: int64(got.Len())}, 0, func(p live.Piece) error {
			if p.Offset != int64(got.Len()) {
				t.Errorf("a piece at %d where %d were read", p.Offset, got.Len())
			}
			got.Write(p.Data)
			if got.Len() >= until {
				return enough
			}
			return nil
		})
	}
	for i, part := range []string{"one ", "two ", "three "} {
		if err := s.FeedExec(as("o"), e.ID, -1, []byte(part), false); err != nil {
			t.Fatal(err)
		}
		if err := read(got.Len() + len(part)); !errors.Is(err, enough) {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if err := s.FeedExec(as("o"), e.ID, int64(got.Len()), []byte("four"), true); err != nil {
		t.Fatal(err)
	}
	if _, err := s.EndSandbox(as("o"), x.ID, ""); err != nil {
		t.Fatal(err)
	}
	if err := read(1 << 20); err != nil || got.String() != "one two three four" {
		t.Errorf("%q, %v", got.String(), err)
	}
}

func TestKill(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	x := s.create(live.Request{})
	e := s.start(x.ID, "sleep")
	e, err := s.KillExec(as("o"), e.ID, "me")
	if err != nil || e.Result.Verdict != sandbox.Killed {
		t.Errorf("%+v, %v", e, err)
	}
	if err := s.SignalExec(as("o"), e.ID, 15, false); fault.CodeOf(err) != "exec_ended" {
		t.Errorf("a signal after the end: %v", err)
	}
}

// hanging is a worker that does not come to an end of anything.
type hanging struct{ dispatch.Host }

func (hanging) OpenSandbox(ctx context.Context, _ live.Order) (live.Made, error) {
	<-ctx.Done()
	return live.Made{}, fault.New(fault.Unavailable, "gave up: %w", context.Cause(ctx))
}

func TestProvisionTimeout(t *testing.T) {
	t.Parallel()
	s := newStage(t, func(c *Config) { c.Provision = 50 * time.Millisecond })
	s.host = hanging{s.boxes}
	x, _, err := s.CreateSandbox(as("o"), live.Request{Name: "n"})
	if fault.CodeOf(err) != "provision_timeout" {
		t.Fatalf("%v", err)
	}
	if x = s.sandbox(x.ID); x.State != sandbox.StateFailed || !strings.Contains(x.Reason, "not made within") {
		t.Errorf("%+v", x)
	}
	s.mu.Lock()
	s.host = nil
	s.mu.Unlock()
	if y := s.create(live.Request{Name: "n"}); y.ID == x.ID {
		t.Error("the name is taken by one that failed")
	}
}

func TestTimeOver(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	second := time.Second
	ended := s.create(live.Request{TTL: &second})
	paused := s.create(live.Request{TTL: &second, Spec: live.Spec{OnTimeout: live.Pause}})
	idle := s.create(live.Request{Idle: &second})
	busy := s.create(live.Request{Idle: &second})
	s.start(busy.ID, "sleep")
	longer := time.Hour
	kept := s.create(live.Request{TTL: &second})
	if _, err := s.UpdateSandbox(as("o"), kept.ID, live.Change{TTL: &longer}); err != nil {
		t.Fatal(err)
	}
	s.pass(2 * time.Second)
	over := func(x *live.Sandbox) bool { return x.State.Ended() || x.Paused != "" }
	for _, x := range []live.Sandbox{ended, paused, idle} {
		got, err := s.WaitSandbox(as("o"), x.ID, over)
		if err != nil {
			t.Fatal(err)
		}
		if want := x.ID == paused.ID; want != (got.Paused != "") || !want && got.Outcome != sandbox.OutcomeExpired {
			t.Errorf("%+v", got)
		}
	}
	for _, x := range []live.Sandbox{busy, kept} {
		if got := s.sandbox(x.ID); got.State != sandbox.StateRunning {
			t.Errorf("%+v", got)
		}
	}
	if x, err := s.ResumeSandbox(as("o"), paused.ID); err != nil || x.Paused != "" || !x.ExpiresAt.After(s.clock()) {
		t.Errorf("%+v, %v", x, err)
	}
}

// A worker that comes back without a sandbox has lost it; one that has what
// nobody knows is told to destroy it.
func TestMeet(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	lost, kept := s.create(live.Request{}), s.create(live.Request{})
	gone, stays := s.start(kept.ID, "sleep"), s.start(kept.ID, "sleep")
	ended := s.create(live.Request{})
	s.mu.Lock()
	s.away = true
	s.mu.Unlock()
	if x, err := s.EndSandbox(as("o"), ended.ID, "while it was away"); err != nil || x.State != sandbox.StateCompleted {
		t.Fatalf("%+v, %v", x, err)
	}
	strangers, err := s.Meet(t.Context(), "w", []live.Standing{
		{ID: kept.ID, Execs: []string{stays.ID, "unheard-of"}, Paused: live.Frozen}, {ID: ended.ID}, {ID: "nobodys"},
	})
	if err != nil || !slices.Equal(strangers.Sandboxes, []string{ended.ID, "nobodys"}) || !slices.Equal(strangers.Execs, []live.ExecID{{Sandbox: kept.ID, Exec: "unheard-of"}}) {
		t.Errorf("strangers %q, %v", strangers, err)
	}
	if x := s.sandbox(lost.ID); x.State != sandbox.StateFailed || x.Outcome != sandbox.OutcomeLost {
		t.Errorf("the lost one: %+v", x)
	}
	if x := s.sandbox(kept.ID); x.State != sandbox.StateRunning || x.Paused != live.Frozen {
		t.Errorf("the kept one: %+v", x)
	}
	for id, want := range map[string]live.ExecState{gone.ID: live.Done, stays.ID: live.Running} {
		if e, err := s.Exec(as("o"), id); err != nil || e.State != want {
			t.Errorf("%+v, %v", e, err)
		}
	}
}

// failing is a store whose next commits fail after all was written.
type failing struct {
	store.Store
	fail atomic.Bool
}

func (f *failing) Update(ctx context.Context, fn func(store.Tx) error) error {
	if !f.fail.Load() {
		return f.Store.Update(ctx, fn)
	}
	return f.Store.Update(ctx, func(tx store.Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		return errors.New("the disk is full")
	})
}

// What is begun while it is written down, and is not written down after all, is
// taken back.
func TestBegunButNotStored(t *testing.T) {
	t.Parallel()
	var db *failing
	s := newStage(t, func(c *Config) {
		db = &failing{Store: c.Store}
		c.Store = db
	})
	x := s.create(live.Request{})
	s.boxes.Tell = nil
	db.fail.Store(true)
	if _, _, err := s.StartExec(as("o"), live.Command{Sandbox: x.ID, Command: []string{"sleep"}, Open: true}, run.Asked{}); err == nil {
		t.Error("a start was acknowledged that was not stored")
	}
	if _, _, err := s.CreateSandbox(as("o"), live.Request{}); err == nil {
		t.Error("a sandbox was acknowledged that was not stored")
	}
	db.fail.Store(false)
	if stand := s.boxes.Standings(); len(stand) != 1 || stand[0].ID != x.ID || len(stand[0].Execs) != 0 {
		t.Errorf("left at the worker: %+v", stand)
	}
}

// What another worker says of a sandbox that is not its own changes nothing.
func TestTellIsNotBelieved(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	x := s.create(live.Request{})
	e := s.start(x.ID, "sleep")
	res := live.ExecResult{Verdict: sandbox.OK, Stdout: emptyOutput(), Stderr: emptyOutput()}
	err := s.Tell(t.Context(), "other", dispatch.TellRequest{
		Execs: []live.ExecEnded{{ID: e.ID, Sandbox: x.ID, Result: res}}, Sandboxes: []live.Ended{{ID: x.ID, Outcome: sandbox.OutcomeDone}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if e, err := s.Exec(as("o"), e.ID); err != nil || e.State != live.Running || s.sandbox(x.ID).State != sandbox.StateRunning {
		t.Errorf("%+v, %v", e, err)
	}
	res.Stdout = run.Output{Kept: 5, Seen: 5, SHA256: blob.Digest([]byte("hello"))}
	err = s.Tell(t.Context(), "w", dispatch.TellRequest{Execs: []live.ExecEnded{{ID: e.ID, Sandbox: x.ID, Result: res}}})
	if fault.CodeOf(err) != "blob_missing" {
		t.Errorf("output that nobody has: %v", err)
	}
}

func TestRestartFailsWhatWasNotMade(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	x := live.Sandbox{ID: "abc", Owner: "o", Name: "n", State: sandbox.StateCreating, Worker: "w", CreatedAt: s.clock().Add(-time.Second)}
	err := s.Store.Update(t.Context(), func(tx store.Tx) error { return tx.Sandboxes().Add(t.Context(), &x) })
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	if got := s.sandbox("abc"); got.State != sandbox.StateFailed {
		t.Errorf("%+v", got)
	}
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	s := newStage(t, func(c *Config) { c.Terms.Most.Memory = 1 << 30 })
	day := 24 * time.Hour
	for field, req := range map[string]live.Request{
		"name": {Name: "a\nb"}, "ttl": {TTL: &day}, "labels": {Spec: live.Spec{Labels: map[string]string{"": "x"}}}, "env": {Spec: live.Spec{Env: map[string]string{"A=B": ""}}},
		"network": {Spec: live.Spec{Network: sandbox.NetworkFull}}, "files": {Files: map[string][]byte{"../x": nil}}, "memory_limit": {Spec: live.Spec{Limits: sandbox.Limits{Memory: 2 << 30}}},
		"on_timeout": {Spec: live.Spec{OnTimeout: "explode"}}, "secrets": {Spec: live.Spec{Secrets: []string{"X"}}}, "image": {Spec: live.Spec{Image: "a\x00"}},
	} {
		_, _, err := s.CreateSandbox(as("o"), req)
		var f *fault.Error
		if !errors.As(err, &f) || f.Kind != fault.Invalid || f.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if list, err := s.Sandboxes(as("o"), store.SandboxFilter{}); err != nil || len(list) != 0 {
		t.Errorf("%d were stored, %v", len(list), err)
	}
}
