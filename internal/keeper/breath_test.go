package keeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// runner is a worker that answers RunExec as the test says.
type runner struct {
	dispatch.Host
	told    *live.ExecEnded
	err     error
	starts  bool // StartExec has no error
	signals []live.Signal
	began   func(ctx context.Context)
	slow    func(ctx context.Context, c live.Command)
}

func (r *runner) RunExec(ctx context.Context, c live.Command, within time.Duration) (*live.ExecEnded, error) {
	if r.began != nil {
		r.began(ctx)
	}
	if r.slow != nil {
		r.slow(ctx, c)
		return nil, fault.New(fault.Unavailable, "given up: %w", context.Cause(ctx))
	}
	if r.told != nil && r.told.ID == "" {
		r.told.ID = c.ID
	}
	if r.told != nil || r.err != nil {
		return r.told, r.err
	}
	return r.Host.RunExec(ctx, c, within)
}

func (r *runner) StartExec(ctx context.Context, c live.Command) error {
	if r.err != nil && !r.starts {
		return r.err
	}
	return r.Host.StartExec(ctx, c)
}

func (r *runner) SignalExec(_ context.Context, s live.Signal) error {
	r.signals = append(r.signals, s)
	return nil
}

func (s *stage) run(id string, command ...string) (live.Exec, error) {
	e, _, err := s.RunExec(as("o"), live.Command{Sandbox: id, Command: command, Open: command[0] != "echo"}, run.Asked{})
	return e, err
}

func (s *stage) eventsOf(id string) (types []event.Type) {
	s.t.Helper()
	err := s.Store.View(s.t.Context(), func(tx store.Tx) error {
		list, err := tx.Events().List(s.t.Context(), event.Filter{EntityIDs: []string{id}}, 10)
		for _, e := range list {
			types = append(types, e.Type)
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return types
}

func TestABriefCommandIsWrittenDownOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	x := s.create(live.Request{})
	e, err := s.run(x.ID, "echo", "hello")
	if err != nil || e.State != live.Done || e.Result.Verdict != sandbox.OK {
		t.Fatalf("got %+v, %v", e, err)
	}
	again, err := s.Exec(as("o"), e.ID)
	if err != nil || again.State != live.Done || again.Result.Stdout != e.Result.Stdout {
		t.Errorf("it stands as %+v, %v", again, err)
	}
	if out, err := s.ExecOutput(as("o"), &again, sandbox.Stdout, 100); err != nil || string(out) != "hello\n" {
		t.Errorf("it printed %q, %v", out, err)
	}
	if got := s.eventsOf(e.ID); len(got) != 2 || got[0] != event.ExecStarted || got[1] != event.ExecEnded {
		t.Errorf("events %v", got)
	}
	// Its worker tells it once more.
	told := live.ExecEnded{ID: e.ID, Sandbox: x.ID, Result: *e.Result, Inline: map[string][]byte{e.Result.Stdout.SHA256: []byte("hello\n")}}
	if err := s.Tell(t.Context(), "w", dispatch.TellRequest{Execs: []live.ExecEnded{told}}); err != nil {
		t.Error(err)
	}
	if got := s.eventsOf(e.ID); len(got) != 2 {
		t.Errorf("after it was told again: %v", got)
	}
}

func TestALongCommandIsWrittenDownAsItRuns(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	x := s.create(live.Request{})
	e, err := s.run(x.ID, "cat")
	if err != nil || e.State != live.Running {
		t.Fatalf("got %+v, %v", e, err)
	}
	if err := s.FeedExec(as("o"), e.ID, -1, []byte("late"), true); err != nil {
		t.Fatal(err)
	}
	if e, err = s.WaitExec(as("o"), e.ID); err != nil || e.State != live.Done || e.Result.Stdout.Kept != 4 {
		t.Errorf("it ended as %+v, %v", e, err)
	}
}

func TestAKeyIsWrittenDownBeforeItsCommand(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	x := s.create(live.Request{})
	r := &runner{Host: s.boxes, err: errors.New("not this way"), starts: true}
	s.host = r
	var ids []string
	for range 2 {
		e, _, err := s.RunExec(as("o"), live.Command{Sandbox: x.ID, Command: []string{"sleep"}}, run.Asked{Key: "k", Digest: "d"})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, e.ID)
	}
	if ids[0] != ids[1] {
		t.Errorf("one key had two commands: %v", ids)
	}
}

func TestWhatAWorkerCannotHaveRunIsNotBelieved(t *testing.T) {
	t.Parallel()
	for name, told := range map[string]live.ExecEnded{
		"another exec's":    {ID: "exec_other", Result: live.ExecResult{Verdict: sandbox.OK}},
		"another sandbox's": {Sandbox: "other", Result: live.ExecResult{Verdict: sandbox.OK}},
		"output of no blob": {Result: live.ExecResult{Verdict: sandbox.OK, Stdout: run.Output{Kept: 1, SHA256: dispatchDigest}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, nil)
			x := s.create(live.Request{})
			if told.Sandbox == "" {
				told.Sandbox = x.ID
			}
			s.host = &runner{Host: s.boxes, told: &told}
			e, err := s.run(x.ID, "echo")
			if err != nil || e.State != live.Running {
				t.Errorf("got %+v, %v", e, err)
			}
		})
	}
}

const dispatchDigest = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"

func TestARunThatComesToNothing(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err   error
		kills int
		left  int // written down, as lost
	}{
		"refused":         {fault.New(fault.Conflict, "no"), 0, 0},
		"nobody answered": {fault.New(fault.Unavailable, "gone"), 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, nil)
			x := s.create(live.Request{})
			r := &runner{Host: s.boxes, err: tc.err}
			s.host = r
			if _, err := s.run(x.ID, "echo"); !errors.Is(err, tc.err) {
				t.Errorf("got %v", err)
			}
			if len(r.signals) != tc.kills {
				t.Errorf("killed %v", r.signals)
			}
			list, err := s.Execs(as("o"), store.ExecFilter{Sandbox: x.ID})
			if err != nil || len(list) != tc.left {
				t.Errorf("written down: %+v, %v", list, err)
			}
			for _, e := range list {
				if e.State != live.Done || e.Result.Verdict != sandbox.Lost {
					t.Errorf("left as %+v", e)
				}
			}
		})
	}
}

// A start that takes longer than two breaths is written down before it is over,
// and is not made twice.
func TestASlowStartIsWrittenDownMeanwhile(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	x := s.create(live.Request{})
	var asked []string
	s.host = &runner{Host: s.boxes, slow: func(ctx context.Context, c live.Command) {
		asked = append(asked, c.ID)
		<-ctx.Done()
	}}
	e, err := s.run(x.ID, "cat")
	if err != nil || e.State != live.Running {
		t.Fatalf("got %+v, %v", e, err)
	}
	if len(asked) != 1 || asked[0] != e.ID {
		t.Errorf("asked for %v, and it is %s", asked, e.ID)
	}
	if got := s.eventsOf(e.ID); len(got) != 1 || got[0] != event.ExecStarted {
		t.Errorf("events %v", got)
	}
}

// An end that comes before its beginning is written down waits for that.
func TestAnEndThatComesEarly(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	x := s.create(live.Request{})
	e := live.Exec{ID: "early", Sandbox: x.ID, Owner: "o", Command: []string{"true"}, State: live.Running, CreatedAt: s.clock()}
	end := s.begin(e.ID)
	told := make(chan error, 1)
	go func() {
		res := live.ExecResult{Verdict: sandbox.OK, Stdout: emptyOutput(), Stderr: emptyOutput()}
		told <- s.Tell(context.Background(), "w", dispatch.TellRequest{Execs: []live.ExecEnded{{ID: e.ID, Sandbox: x.ID, Result: res}}})
	}()
	if err := s.writeRun(t.Context(), &e, "o", nil); err != nil {
		t.Fatal(err)
	}
	end()
	if err := <-told; err != nil {
		t.Errorf("told: %v", err)
	}
	if e, err := s.Exec(as("o"), e.ID); err != nil || e.State != live.Done {
		t.Errorf("it stands as %+v, %v", e, err)
	}
}

func TestWhoHangsUpDoesNotEndWhatWasBegun(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	x := s.create(live.Request{})
	ctx, hangUp := context.WithCancel(as("o"))
	s.host = &runner{Host: s.boxes, began: func(inner context.Context) {
		hangUp()
		if inner.Err() != nil {
			t.Error("the start ends with the call")
		}
	}}
	e, _, err := s.RunExec(ctx, live.Command{Sandbox: x.ID, Command: []string{"sleep"}}, run.Asked{})
	if err != nil {
		t.Fatal(err)
	}
	if e, err = s.Exec(as("o"), e.ID); err != nil || e.State != live.Running {
		t.Errorf("it stands as %+v, %v", e, err)
	}
}

func TestASandboxMadeInABreathIsWrittenDownOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	counted := &counting{Store: s.records}
	s.Store, s.records = moving{counted, &s.glances}, counted
	x := s.create(live.Request{Spec: live.Spec{TTL: time.Minute}})
	if n := counted.updates.Load(); n != 1 {
		t.Errorf("it took %d transactions", n)
	}
	if x.State != sandbox.StateRunning || x.Worker != "w" || x.ExpiresAt.IsZero() {
		t.Errorf("made %+v", x)
	}
	stands, err := s.Sandbox(as("o"), x.ID)
	if err != nil || stands.State != sandbox.StateRunning || !stands.Deadline.Equal(x.Deadline) {
		t.Errorf("it stands as %+v, %v", stands, err)
	}
	want := []event.Type{event.SandboxPending, event.SandboxCreating, event.SandboxRunning}
	if got := s.eventsOf(x.ID); !slices.Equal(got, want) {
		t.Errorf("events %v", got)
	}
}

// counting counts transactions.
type counting struct {
	store.Store
	updates atomic.Int64
}

func (c *counting) Update(ctx context.Context, fn func(store.Tx) error) error {
	c.updates.Add(1)
	return c.Store.Update(ctx, fn)
}

// opener is a worker that makes a sandbox when it is told to.
type opener struct {
	dispatch.Host
	goOn  chan error
	ended chan live.Closing
}

func (o *opener) OpenSandbox(ctx context.Context, order live.Order) (live.Made, error) {
	select {
	case err := <-o.goOn:
		if err != nil {
			return live.Made{}, err
		}
		return o.Host.OpenSandbox(ctx, order)
	case <-ctx.Done():
		return live.Made{}, fault.New(fault.Unavailable, "given up: %w", context.Cause(ctx))
	}
}

func (o *opener) EndSandbox(_ context.Context, c live.Closing) error {
	o.ended <- c
	return nil
}

func TestASandboxThatTakesLongerIsSeenMeanwhile(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	o := &opener{Host: s.boxes, goOn: make(chan error)}
	s.host = o
	made := make(chan live.Sandbox, 1)
	go func() {
		x, _, err := s.CreateSandbox(as("o"), live.Request{})
		if err != nil {
			t.Error(err)
		}
		made <- x
	}()
	for t.Context().Err() == nil {
		list, err := s.Sandboxes(as("o"), store.SandboxFilter{State: sandbox.StateCreating})
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 1 {
			break
		}
	}
	o.goOn <- nil
	if x := <-made; x.State != sandbox.StateRunning {
		t.Errorf("made %+v", x)
	}
}

func TestASandboxThatCannotBeMadeIsWrittenDownToo(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	o := &opener{Host: s.boxes, goOn: make(chan error, 1), ended: make(chan live.Closing, 1)}
	o.goOn <- fault.New(fault.Invalid, "no")
	s.host = o
	if _, _, err := s.CreateSandbox(as("o"), live.Request{}); !fault.Is(err, fault.Invalid) {
		t.Errorf("got %v", err)
	}
	<-o.ended
	list, err := s.Sandboxes(as("o"), store.SandboxFilter{})
	if err != nil || len(list) != 1 || !list[0].State.Ended() {
		t.Errorf("written down: %+v, %v", list, err)
	}
}

func TestWhoHangsUpLeavesNoSandbox(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	o := &opener{Host: s.boxes, goOn: make(chan error), ended: make(chan live.Closing, 1)}
	s.host = o
	ctx, hangUp := context.WithCancel(as("o"))
	hangUp()
	if _, _, err := s.CreateSandbox(ctx, live.Request{}); err == nil {
		t.Error("it was made for nobody")
	}
	if c := <-o.ended; c.Outcome != sandbox.OutcomeLost {
		t.Errorf("ended as %+v", c)
	}
}

func TestWhatIsAtHandIsWhatIsWrittenDown(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	x := s.create(live.Request{Spec: live.Spec{Labels: map[string]string{"a": "1"}}})
	made, there, _ := s.glances.get(x.ID)
	if !there {
		t.Error("it is not at hand after it was made")
	}
	if stands, err := s.Sandbox(as("o"), x.ID); err != nil || made.Owner != stands.Owner || made.Worker != stands.Worker ||
		made.State != stands.State || !made.Deadline.Equal(stands.Deadline) || !made.CreatedAt.Equal(stands.CreatedAt) {
		t.Errorf("at hand is %+v, and written down %+v, %v", made, stands, err)
	}
	for range 2 {
		if _, err := s.run(x.ID, "echo"); err != nil {
			t.Fatal(err)
		}
	}
	if _, there, _ := s.glances.get(x.ID); !there {
		t.Error("it is not at hand after it was used")
	}
	if _, _, err := s.RunExec(as("p"), live.Command{Sandbox: x.ID, Command: []string{"echo"}}, run.Asked{}); !fault.Is(err, fault.NotFound) {
		t.Errorf("another owner's: %v", err)
	}
	if _, err := s.UpdateSandbox(as("o"), x.ID, live.Change{Labels: map[string]string{"a": "2"}}); err != nil {
		t.Fatal(err)
	}
	if y, _, err := s.use(as("o"), x.ID); err != nil || y.Spec.Labels["a"] != "2" {
		t.Errorf("used as %+v, %v", y.Spec.Labels, err)
	}
	if _, err := s.PauseSandbox(as("o"), x.ID, live.Frozen); err != nil {
		t.Fatal(err)
	}
	if _, err := s.run(x.ID, "echo"); fault.CodeOf(err) != "paused" {
		t.Errorf("in a paused one: %v", err)
	}
}

// What was read before a change, or while it goes on, is not taken to hand.
func TestGlancesBesideAChange(t *testing.T) {
	t.Parallel()
	var g glances
	x := live.Sandbox{ID: "x"}
	_, _, before := g.get("x")
	g.begin()
	_, _, during := g.get("x")
	g.put(x, before)
	g.put(x, during)
	g.end()
	g.put(x, before)
	g.put(x, during)
	if _, there, _ := g.get("x"); there {
		t.Error("an old one is at hand")
	}
	_, _, now := g.get("x")
	g.put(x, now)
	if _, there, _ := g.get("x"); !there {
		t.Error("it was not taken to hand")
	}
	// One that was just made is, unless there was another change.
	y := live.Sandbox{ID: "y"}
	g.endWith(y, g.begin())
	if _, there, _ := g.get("y"); !there {
		t.Error("a new one is not at hand")
	}
	for name, meanwhile := range map[string][2]func(){
		"one goes on":       {func() { g.begin() }, g.end},
		"one came and went": {func() { g.begin(); g.end() }, func() {}},
	} {
		z := live.Sandbox{ID: name}
		changes := g.begin()
		meanwhile[0]()
		g.endWith(z, changes)
		if _, there, _ := g.get(name); there {
			t.Errorf("%s, and it is at hand", name)
		}
		meanwhile[1]()
	}
	_, _, now = g.get("x")
	for i := range 2 * maxGlances {
		g.put(live.Sandbox{ID: fmt.Sprint(i)}, now)
	}
	if len(g.boxes) > maxGlances {
		t.Errorf("%d are at hand", len(g.boxes))
	}
}

func TestOutlast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // in which nobody waits for the time that passes
		ctx, hangUp := context.WithCancel(context.Background())
		lasting, stop := outlast(ctx, time.Minute)
		time.Sleep(time.Hour)
		hangUp()
		time.Sleep(59 * time.Second)
		if lasting.Err() != nil {
			t.Error("it ended with the other")
		}
		time.Sleep(2 * time.Second)
		if lasting.Err() == nil {
			t.Error("it goes on for ever")
		}
		stop()
		lasting, stop = outlast(ctx, time.Minute) // whose time begins at once
		stop()
		if lasting.Err() == nil {
			t.Error("it was not stopped")
		}
	})
}
