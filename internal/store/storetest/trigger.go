package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/trigger"
)

func testTriggers(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	plan := trigger.Plan{
		Strategy: trigger.Suspend, Timeout: 1, Escalate: true, Preserve: true, Cooldown: 1 << 40,
		Hooks: trigger.Hooks{PreKill: odd, Cleanup: odd, Notify: odd, Timeout: 3},
	}
	x := trigger.Trigger{
		ID: "id " + odd, Kind: trigger.Errors, Label: odd, Threshold: 0.15, Sustained: time.Second, Severity: manifest.High, Enabled: true,
		Contract: odd, Preset: odd, Plan: plan, CreatedAt: moment(2), UpdatedAt: moment(3),
	}
	get := func(tx store.Tx) (trigger.Trigger, error) { return tx.Triggers().Get(ctx, x.ID) }
	add := func(x *trigger.Trigger) error {
		return s.Update(ctx, func(tx store.Tx) error { return tx.Triggers().Add(ctx, x) })
	}
	wantKind(t, "one that is not there", viewErr(t, s, get), fault.NotFound)
	check(t, add(&x))
	equal(t, "the trigger", view(t, s, get), x)
	wantKind(t, "an id twice", add(&x), fault.Conflict)
	x.Enabled, x.Threshold = false, 1
	check(t, add(&trigger.Trigger{ID: "older", CreatedAt: moment(1)}))
	update(t, s, func(tx store.Tx) error { return tx.Triggers().Put(ctx, &x) })
	list := func() (ids string) {
		for _, x := range view(t, s, func(tx store.Tx) ([]trigger.Trigger, error) { return tx.Triggers().List(ctx) }) {
			ids += fmt.Sprint(x.ID, x.Threshold, " ")
		}
		return ids
	}
	equal(t, "all, the oldest first", list(), "older0 "+x.ID+"1 ")

	first := trigger.Breach{Trigger: x.ID, Worker: "w " + odd, Since: moment(4), FiredAt: moment(5), BlockedAt: moment(6)}
	breaches := []trigger.Breach{first, {Trigger: x.ID, Worker: "x", Since: moment(1)}, {Trigger: "older", Worker: "x", Since: moment(2)}}
	update(t, s, func(tx store.Tx) error {
		earlier := trigger.Breach{Trigger: x.ID, Worker: first.Worker, Since: moment(1)}
		for _, b := range append([]trigger.Breach{earlier}, breaches...) {
			if err := tx.Triggers().PutBreach(ctx, &b); err != nil {
				return err
			}
		}
		return nil
	})
	of := func(worker string) []trigger.Breach {
		return view(t, s, func(tx store.Tx) ([]trigger.Breach, error) { return tx.Triggers().Breaches(ctx, worker) })
	}
	equal(t, "all breaches", of(""), breaches)
	equal(t, "those of a worker", of("x"), breaches[1:])
	update(t, s, func(tx store.Tx) error { return tx.Triggers().DropBreaches(ctx, "older", "x") })
	equal(t, "without one", of(""), breaches[:2])
	update(t, s, func(tx store.Tx) error { return tx.Triggers().DropBreaches(ctx, "", first.Worker) })
	equal(t, "without those of a worker", of(""), breaches[1:2])
	update(t, s, func(tx store.Tx) error { return tx.Triggers().Drop(ctx, x.ID) })
	equal(t, "without the trigger", fmt.Sprint(list(), len(of(""))), "older0 0")
	update(t, s, func(tx store.Tx) error { return tx.Triggers().Drop(ctx, x.ID) })
}

func testFirings(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	f := trigger.Firing{
		ID: "3", Trigger: "t", Kind: trigger.CPU, Label: odd, Severity: manifest.Low, Worker: "w", Owner: "o", Value: 97.25, Threshold: 80, Lasted: 7,
		Plan: trigger.DefaultPlan(), By: odd, Reason: odd, At: moment(3),
	}
	get := func(tx store.Tx) (trigger.Firing, error) { return tx.Firings().Get(ctx, "3") }
	add := func(f *trigger.Firing) error {
		return s.Update(ctx, func(tx store.Tx) error { return tx.Firings().Add(ctx, f) })
	}
	wantKind(t, "one that is not there", viewErr(t, s, get), fault.NotFound)
	check(t, add(&f))
	equal(t, "the firing", view(t, s, get), f)
	wantKind(t, "an id twice", add(&f), fault.Conflict)
	for _, other := range []trigger.Firing{
		{ID: "1", Trigger: "u", Worker: "w", Owner: "o", At: moment(1)},
		{ID: "2", Trigger: "t", Worker: "v", Owner: "p", At: moment(2), Outcome: trigger.Failed},
		{ID: "4", Trigger: "t", Worker: "w", Owner: "o", At: moment(4), Outcome: trigger.CooldownBlocked},
	} {
		check(t, add(&other))
	}
	ids := func(what, want string, ask func(tx store.Tx) ([]trigger.Firing, error)) {
		t.Helper()
		got := ""
		for _, f := range view(t, s, ask) {
			got += f.ID + " "
		}
		equal(t, what, got, want)
	}
	list := func(f store.FiringFilter) func(tx store.Tx) ([]trigger.Firing, error) {
		return func(tx store.Tx) ([]trigger.Firing, error) { return tx.Firings().List(ctx, f) }
	}
	under := func(tx store.Tx) ([]trigger.Firing, error) { return tx.Firings().Open(ctx, 9) }
	last := func(worker string) time.Time {
		return view(t, s, func(tx store.Tx) (time.Time, error) { return tx.Firings().Last(ctx, worker) })
	}
	ids("all", "4 3 2 1 ", list(store.FiringFilter{}))
	ids("of an owner", "4 3 1 ", list(store.FiringFilter{Owner: "o"}))
	ids("of a trigger at a worker", "4 3 ", list(store.FiringFilter{Trigger: "t", Worker: "w"}))
	ids("of an outcome", "2 ", list(store.FiringFilter{Outcome: trigger.Failed}))
	ids("a page", "3 ", list(store.FiringFilter{Before: "4", Limit: 1}))
	ids("under way", "1 3 ", under)
	equal(t, "the last that was not blocked", last("w"), moment(3))
	equal(t, "the last of nobody", last("nobody"), time.Time{})
	f.Outcome, f.Detail, f.Escalated, f.Preserved = trigger.Killed, odd, true, true
	f.AskedAt, f.Deadline, f.EndedAt = moment(4), moment(5), moment(6)
	update(t, s, func(tx store.Tx) error { return tx.Firings().Put(ctx, &f) })
	equal(t, "after its end", view(t, s, get), f)
	ids("still under way", "1 ", under)
	forget := func(before, most, want int) {
		t.Helper()
		update(t, s, func(tx store.Tx) error {
			n, err := tx.Firings().Forget(ctx, moment(before), most, 9)
			equal(t, "forgotten", n, int64(want))
			return err
		})
	}
	forget(1, 3, 0)
	forget(3, 3, 1)
	forget(1, 1, 1)
	ids("left", "4 1 ", list(store.FiringFilter{}))
}

func testNotices(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	put := func(n trigger.Notice) {
		t.Helper()
		update(t, s, func(tx store.Tx) error { return tx.Notices().Put(ctx, &n) })
	}
	due := func(now, limit int) []trigger.Notice {
		t.Helper()
		return view(t, s, func(tx store.Tx) ([]trigger.Notice, error) { return tx.Notices().Due(ctx, moment(now), limit) })
	}
	one := trigger.Notice{ID: "1", Firing: odd, Event: odd, URL: "https://example.org/" + odd, Body: []byte(`{"a":"` + odd + `"}`), NextAt: moment(2)}
	two, three := trigger.Notice{ID: "2", NextAt: moment(1), Body: []byte{}}, trigger.Notice{ID: "3", NextAt: moment(9), Body: []byte{}}
	for _, n := range []trigger.Notice{one, two, three} {
		put(n)
	}
	equal(t, "the longest due first", due(2, 9), []trigger.Notice{two, one})
	equal(t, "some", due(9, 1), []trigger.Notice{two})
	two.Tries, two.NextAt = 3, moment(5)
	put(two)
	equal(t, "after a try", due(5, 9), []trigger.Notice{one, two})
	for range 2 {
		update(t, s, func(tx store.Tx) error { return tx.Notices().Drop(ctx, "1") })
	}
	equal(t, "without one", due(9, 9), []trigger.Notice{two, three})
	trim := func(most, want int) {
		t.Helper()
		update(t, s, func(tx store.Tx) error {
			n, err := tx.Notices().Trim(ctx, most, 9)
			equal(t, "trimmed", n, int64(want))
			return err
		})
	}
	trim(2, 0)
	trim(1, 1)
	equal(t, "the newest is left", due(9, 9), []trigger.Notice{three})
}

func testFleetCommands(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	busy, idle, ended := newFleetWorker("busy", "c", "", 1), newFleetWorker("idle", "c", "", 2), newFleetWorker("ended", "c", "", 3)
	busy.State, busy.Sandbox, idle.State, idle.Sandbox, ended.State, ended.Sandbox = manifest.Running, "b", manifest.Running, "i", manifest.Ended, "e"
	n := 0
	exec := func(box string, begun, over int, v sandbox.Verdict) *live.Exec {
		n++
		e := &live.Exec{ID: fmt.Sprint("x", n), Sandbox: box, Owner: "o", Command: []string{`"verdict":"ok"`, `{"verdict":"ok"}`}, State: live.Running, CreatedAt: moment(begun)}
		if over > 0 {
			e.State, e.EndedAt, e.Result = live.Done, moment(over), &live.ExecResult{Verdict: v, Cause: `"verdict":"ok"`}
		}
		return e
	}
	update(t, s, func(tx store.Tx) error {
		for _, w := range []*manifest.Worker{busy, idle, ended} {
			if err := tx.Fleet().Add(ctx, w); err != nil {
				return err
			}
		}
		for _, e := range []*live.Exec{
			exec("b", 1, 2, sandbox.Failed), exec("b", 1, 11, sandbox.OK), exec("b", 10, 12, sandbox.Killed), exec("b", 11, 13, sandbox.Failed),
			exec("b", 1, 0, ""), exec("b", 10, 0, ""), exec("e", 11, 12, sandbox.Failed), exec("stranger's", 11, 12, sandbox.Failed),
		} {
			if err := tx.Execs().Add(ctx, e, nil); err != nil {
				return err
			}
		}
		return nil
	})
	equal(t, "the commands", view(t, s, func(tx store.Tx) (map[string]store.Commands, error) { return tx.Fleet().Commands(ctx, moment(10)) }),
		map[string]store.Commands{"b": {Begun: 3, Ended: 3, Failed: 2}})
	running := ""
	for _, w := range view(t, s, func(tx store.Tx) ([]manifest.Worker, error) { return tx.Fleet().Running(ctx, 9) }) {
		running += w.ID() + " "
	}
	equal(t, "those that run", running, "busy idle ")
}
