package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// newSandbox is a plain one that is open.
func newSandbox(t *testing.T, owner, name string) *live.Sandbox {
	t.Helper()
	id, err := sandbox.NewID()
	check(t, err)
	return &live.Sandbox{ID: id, Owner: owner, Name: name, State: sandbox.StatePending, CreatedAt: moment(0)}
}

// fullSandbox has no zero field but EndedAt.
func fullSandbox(t *testing.T) *live.Sandbox {
	t.Helper()
	s := newSandbox(t, "owner "+odd, "name "+odd)
	s.Session, s.App, s.State, s.Outcome, s.Reason = "session "+odd, "app "+odd, sandbox.StateRunning, sandbox.OutcomeDone, "reason "+odd
	s.Spec = live.Spec{
		Image: odd, Driver: "gvisor", Env: map[string]string{"A": odd}, Limits: sandbox.Limits{Memory: 64 << 20, MilliCPU: 5}, Network: sandbox.NetworkNone,
		Labels: map[string]string{"a": odd, odd: "b"}, TTL: time.Hour, Idle: time.Minute, OnTimeout: live.Pause, Secrets: []string{"A"},
	}
	s.Made = live.Made{Driver: "gvisor", Isolation: "kernel", Image: odd, Digest: "sha256:x", Enforced: sandbox.Limits{Memory: 7}, Warm: true, Started: moment(2)}
	s.Paused, s.Worker, s.Generation, s.Parent = live.Frozen, "worker "+odd, 1<<40, "parent"
	s.Usage, s.Disk = sandbox.Usage{CPU: time.Second, PeakMemory: 9, Processes: 3}, 1<<40
	s.StartedAt, s.ActiveAt, s.ExpiresAt = moment(2), moment(3), moment(9)
	s.Deadline, s.LinkKey = moment(8), live.NewLinkKey()
	return s
}

func testSandboxRoundTrip(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	full := fullSandbox(t)
	get := func() live.Sandbox {
		t.Helper()
		return view(t, s, func(tx store.Tx) (live.Sandbox, error) { return tx.Sandboxes().Get(ctx, full.ID) })
	}
	update(t, s, func(tx store.Tx) error { return tx.Sandboxes().Add(ctx, full) })
	equal(t, "the sandbox", get(), *full)
	wantKind(t, "add it again", s.Update(ctx, func(tx store.Tx) error { return tx.Sandboxes().Add(ctx, full) }), fault.Conflict)
	wantKind(t, "one that is not there", viewErr(t, s, func(tx store.Tx) (live.Sandbox, error) { return tx.Sandboxes().Get(ctx, "none") }), fault.NotFound)

	full.Session, full.App, full.State, full.Outcome, full.Reason, full.Paused = "", "", sandbox.StateFailed, sandbox.OutcomeLost, "why", ""
	full.Worker, full.Generation, full.Usage.CPU, full.Spec.Labels = "other", 3, time.Hour, map[string]string{"only": "one"}
	full.EndedAt, full.ActiveAt, full.ExpiresAt = moment(7), moment(6), time.Time{}
	update(t, s, func(tx store.Tx) error { return tx.Sandboxes().Put(ctx, full) })
	equal(t, "the sandbox after its end", get(), *full)
}

func testSandboxNames(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	add := func(x *live.Sandbox) error {
		return s.Update(ctx, func(tx store.Tx) error { return tx.Sandboxes().Add(ctx, x) })
	}
	first := newSandbox(t, "o", "n")
	for _, x := range []*live.Sandbox{first, newSandbox(t, "p", "n"), newSandbox(t, "o", ""), newSandbox(t, "o", "")} {
		check(t, add(x))
	}
	err := add(newSandbox(t, "o", "n"))
	if fault.CodeOf(err) != store.CodeNameTaken {
		t.Errorf("a name twice: %v", err)
	}
	named := func() (live.Sandbox, error) {
		var x live.Sandbox
		err := s.View(ctx, func(tx store.Tx) (err error) {
			x, err = tx.Sandboxes().ByName(ctx, "o", "n")
			return err
		})
		return x, err
	}
	got, err := named()
	check(t, err)
	equal(t, "by name", got.ID, first.ID)
	first.State, first.EndedAt = sandbox.StateCompleted, moment(1)
	update(t, s, func(tx store.Tx) error { return tx.Sandboxes().Put(ctx, first) })
	_, err = named()
	wantKind(t, "after its end", err, fault.NotFound)
	check(t, add(newSandbox(t, "o", "n")))
	wantKind(t, "no name", viewErr(t, s, func(tx store.Tx) (live.Sandbox, error) { return tx.Sandboxes().ByName(ctx, "o", "") }), fault.NotFound)
}

func testSandboxLists(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	all := make([]*live.Sandbox, 6)
	for i := range all {
		x := newSandbox(t, fmt.Sprint("owner", i%2), "")
		x.Worker, x.ExpiresAt, x.StartedAt = fmt.Sprint("worker", i%3), moment(10+i), moment(i)
		x.Spec.Labels = map[string]string{"half": fmt.Sprint(i / 3), "each": fmt.Sprint(i), live.LabelProject: fmt.Sprint(7 + i/4)}
		x.Spec.Limits.Memory, x.Usage.CPU, x.Disk = 1<<20, time.Second, 1<<20
		all[i] = x
		update(t, s, func(tx store.Tx) error { return tx.Sandboxes().Add(ctx, x) })
	}
	all[0].State, all[0].EndedAt = sandbox.StateCompleted, moment(20)
	all[5].State = sandbox.StateRunning
	for _, i := range []int{0, 5} {
		update(t, s, func(tx store.Tx) error { return tx.Sandboxes().Put(ctx, all[i]) })
	}
	ids := func(what string, ask func(store.Tx) ([]live.Sandbox, error), want ...int) {
		t.Helper()
		place := []int{}
		for _, got := range view(t, s, ask) {
			for j := range all {
				if all[j].ID == got.ID {
					place = append(place, j)
				}
			}
		}
		equal(t, what, place, append([]int{}, want...))
	}
	list := func(f store.SandboxFilter) func(store.Tx) ([]live.Sandbox, error) {
		return func(tx store.Tx) ([]live.Sandbox, error) { return tx.Sandboxes().List(ctx, f) }
	}
	ids("all", list(store.SandboxFilter{}), 5, 4, 3, 2, 1, 0)
	ids("a page", list(store.SandboxFilter{Limit: 2, Before: all[4].ID}), 3, 2)
	ids("open", list(store.SandboxFilter{Open: true, Owner: "owner0"}), 4, 2)
	ids("in a state", list(store.SandboxFilter{State: sandbox.StateCompleted}), 0)
	ids("with a label", list(store.SandboxFilter{Labels: map[string]string{"half": "1"}}), 5, 4, 3)
	ids("with two", list(store.SandboxFilter{Labels: map[string]string{"half": "1", "each": "4"}}), 4)
	ids("of a worker", func(tx store.Tx) ([]live.Sandbox, error) { return tx.Sandboxes().Held(ctx, "worker0") }, 3)
	ids("whose time is over", func(tx store.Tx) ([]live.Sandbox, error) { return tx.Sandboxes().Due(ctx, moment(13), 10) }, 1, 2, 3)
	ids("the first of them", func(tx store.Tx) ([]live.Sandbox, error) { return tx.Sandboxes().Due(ctx, moment(13), 1) }, 1)

	accounts := view(t, s, func(tx store.Tx) ([]store.Account, error) {
		return tx.Sandboxes().Accounts(ctx, store.AccountFilter{Owner: "owner0", Since: moment(1), Now: moment(30)})
	})
	lived := moment(20).Sub(moment(1)) + moment(30).Sub(moment(2)) + moment(30).Sub(moment(4))
	equal(t, "accounts", len(accounts), 1)
	equal(t, "what was used", accounts[0].Lived, lived)
	equal(t, "how many", accounts[0].Sandboxes, int64(3))
	equal(t, "processors", accounts[0].CPU, 3*time.Second)
	equal(t, "disk of the open ones", accounts[0].Disk, int64(2<<20))
	equal(t, "memory", int64(accounts[0].MemoryTime), int64(lived.Seconds()*(1<<20)))
	for _, f := range []store.AccountFilter{{Project: 8}, {Project: 8, Owner: "owner0"}, {Project: 9}} {
		f.Since, f.Now = moment(1), moment(30)
		var n int64
		for _, a := range view(t, s, func(tx store.Tx) ([]store.Account, error) { return tx.Sandboxes().Accounts(ctx, f) }) {
			n += a.Sandboxes
		}
		equal(t, fmt.Sprintf("how many of project %d and owner %q", f.Project, f.Owner), n, map[string]int64{"8": 2, "8owner0": 1, "9": 0}[fmt.Sprint(f.Project, f.Owner)])
	}
}

func testExecs(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	e := &live.Exec{
		ID: job.NewID(), Sandbox: "box", Owner: "o", Command: []string{"sh", "-c", odd}, Dir: "/" + odd, User: "u", TTY: true, Timeout: time.Minute,
		State: live.Starting, CreatedAt: moment(1),
	}
	other := &live.Exec{ID: job.NewID(), Sandbox: "box2", Owner: "o", Command: []string{"true"}, State: live.Running, CreatedAt: moment(1)}
	for _, x := range []*live.Exec{e, other} {
		update(t, s, func(tx store.Tx) error { return tx.Execs().Add(ctx, x, nil) })
	}
	get := func() live.Exec {
		t.Helper()
		return view(t, s, func(tx store.Tx) (live.Exec, error) { return tx.Execs().Get(ctx, e.ID) })
	}
	equal(t, "the exec", get(), *e)
	wantKind(t, "add it again", s.Update(ctx, func(tx store.Tx) error { return tx.Execs().Add(ctx, e, nil) }), fault.Conflict)
	wantKind(t, "one that is not there", viewErr(t, s, func(tx store.Tx) (live.Exec, error) { return tx.Execs().Get(ctx, "none") }), fault.NotFound)
	e.State, e.StartedAt = live.Running, moment(2)
	update(t, s, func(tx store.Tx) error { return tx.Execs().Put(ctx, e, nil) })
	equal(t, "once it runs", get(), *e)
	openOnes := func() []live.Exec {
		return view(t, s, func(tx store.Tx) ([]live.Exec, error) { return tx.Execs().Open(ctx, "box") })
	}
	equal(t, "open ones", openOnes(), []live.Exec{*e})
	e.State, e.EndedAt, e.Result = live.Done, moment(3), &live.ExecResult{
		Verdict: sandbox.Failed, Cause: odd, ExitCode: 3, Stdout: run.Output{Kept: 3, Seen: 9, SHA256: digestOf("out"), Truncated: true}, Stderr: run.Output{SHA256: digestOf("")},
		Started: moment(2), Ended: moment(3),
	}
	update(t, s, func(tx store.Tx) error {
		return tx.Execs().Put(ctx, e, map[string][]byte{digestOf("out"): []byte("out")})
	})
	equal(t, "after its end", get(), *e)
	equal(t, "open ones after it", len(openOnes()), 0)
	text := view(t, s, func(tx store.Tx) (string, error) {
		data, ok, err := tx.Execs().Blob(ctx, e.ID, digestOf("out"))
		return fmt.Sprint(string(data), ok), err
	})
	equal(t, "its output", text, "outtrue")
	list := func(f store.ExecFilter) int {
		return len(view(t, s, func(tx store.Tx) ([]live.Exec, error) { return tx.Execs().List(ctx, f) }))
	}
	equal(t, "all", list(store.ExecFilter{}), 2)
	equal(t, "of a sandbox", list(store.ExecFilter{Sandbox: "box", State: live.Done}), 1)
	equal(t, "before it", list(store.ExecFilter{Before: e.ID}), 0)
	kept := view(t, s, func(tx store.Tx) ([]store.KeptExec, error) { return tx.History().KeptExecs(ctx, "", 10) })
	equal(t, "what is kept", len(kept), 1)
	equal(t, "its digests", kept[0].Digests, []string{digestOf("out"), digestOf("")})
	update(t, s, func(tx store.Tx) error { _, err := tx.History().DropExecBlobs(ctx, e.ID); return err })
	kept = view(t, s, func(tx store.Tx) ([]store.KeptExec, error) { return tx.History().KeptExecs(ctx, "", 10) })
	equal(t, "once it was dropped", kept[0].Small == 0 && kept[0].Dropped, true)
}

func testUnfinished(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	first := &live.Unfinished{
		ID: "a", What: live.Forking, Manager: "m", SeenAt: moment(3), Sandbox: "box", Worker: "worker " + odd, Snapshot: "snap", Sandboxes: []string{"f1", "f2"}, CreatedAt: moment(1),
	}
	second := &live.Unfinished{ID: "b", What: live.Saving, CreatedAt: moment(2)}
	for _, u := range []*live.Unfinished{second, first} {
		update(t, s, func(tx store.Tx) error { return tx.Sandboxes().PutUnfinished(ctx, u) })
	}
	list := func(after string, limit int) []live.Unfinished {
		return view(t, s, func(tx store.Tx) ([]live.Unfinished, error) { return tx.Sandboxes().Unfinished(ctx, after, limit) })
	}
	equal(t, "all", list("", 10), []live.Unfinished{*first, *second})
	equal(t, "the first", list("", 1), []live.Unfinished{*first})
	equal(t, "behind it", list("a", 1), []live.Unfinished{*second})
	equal(t, "none", len(list("", 0)), 0)
	first.GivenUp, first.Sandboxes = true, nil
	update(t, s, func(tx store.Tx) error { return tx.Sandboxes().PutUnfinished(ctx, first) })
	get := func(tx store.Tx) (live.Unfinished, error) { return tx.Sandboxes().GetUnfinished(ctx, "a") }
	equal(t, "once it was given up", view(t, s, get), *first)
	for range 2 {
		update(t, s, func(tx store.Tx) error { return tx.Sandboxes().DropUnfinished(ctx, "a") })
	}
	wantKind(t, "once it was dropped", viewErr(t, s, get), fault.NotFound)
	equal(t, "what is left", list("", 10), []live.Unfinished{*second})
}

func testForgetSandboxes(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	old, kept, openOne := newSandbox(t, "o", ""), newSandbox(t, "o", ""), newSandbox(t, "o", "")
	old.EndedAt, kept.EndedAt = moment(1), moment(1)
	snap := &live.Snapshot{ID: "snap", Sandbox: kept.ID, Owner: "o", Kind: live.Full, Generation: 3, Label: odd, Worker: "w", Bytes: 5, CreatedAt: moment(1)}
	update(t, s, func(tx store.Tx) error {
		for _, x := range []*live.Sandbox{old, kept, openOne} {
			if err := tx.Sandboxes().Add(ctx, x); err != nil {
				return err
			}
		}
		return tx.Sandboxes().AddSnapshot(ctx, snap)
	})
	got := view(t, s, func(tx store.Tx) (live.Snapshot, error) { return tx.Sandboxes().GetSnapshot(ctx, "snap") })
	equal(t, "the snapshot", got, *snap)
	ended := func() []string {
		return view(t, s, func(tx store.Tx) ([]string, error) { return tx.History().EndedSandboxes(ctx, moment(5), 10) })
	}
	equal(t, "ended", ended(), []string{old.ID})
	update(t, s, func(tx store.Tx) error {
		n, err := tx.History().ForgetSandboxes(ctx, old.ID, openOne.ID)
		equal(t, "forgotten", n, int64(1))
		return err
	})
	for range 2 {
		update(t, s, func(tx store.Tx) error { return tx.Sandboxes().DropSnapshot(ctx, "snap") })
	}
	equal(t, "ended once the snapshot is gone", ended(), []string{kept.ID})
	left := view(t, s, func(tx store.Tx) ([]live.Snapshot, error) {
		return tx.Sandboxes().Snapshots(ctx, store.SnapshotFilter{Owner: "o"})
	})
	equal(t, "snapshots", len(left), 0)
}
