package storetest

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/machine"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

func newMachine(owner, app, name string) *machine.Machine {
	return &machine.Machine{
		ID: machine.NewID(), Owner: owner, App: app, Name: name, State: machine.Created, Config: json.RawMessage(`{}`), CreatedAt: moment(0), UpdatedAt: moment(0),
	}
}

func testMachines(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	m := newMachine("owner "+odd, "app "+odd, "name "+odd)
	m.Region, m.Instance, m.Version, m.State, m.Wanted, m.Ran, m.Sandbox = odd, "instance", 1<<40, machine.Started, true, true, "box"
	m.Config, m.Roots, m.Restarts, m.Cordoned = json.RawMessage(`{"image":"x"}`), []string{"a", "b"}, 3, true
	m.Image, m.Lease = machine.Image{Name: odd, Digest: "d"}, machine.Lease{Nonce: "n", Owner: odd, Description: odd, Version: "v", ExpiresAt: moment(9)}
	m.Events = []machine.Event{{ID: "e", Type: "exit", Status: "started", Source: "user", At: moment(1), Reason: odd, Exit: &machine.Exit{Code: 1, Signal: 2, OOM: true, At: moment(1)}}}
	get := func() machine.Machine {
		t.Helper()
		return view(t, s, func(tx store.Tx) (machine.Machine, error) { return tx.Machines().Get(ctx, m.ID) })
	}
	add := func(m *machine.Machine) error {
		return s.Update(ctx, func(tx store.Tx) error { return tx.Machines().Add(ctx, m) })
	}
	check(t, add(m))
	equal(t, "the machine", get(), *m)
	wantKind(t, "add it again", add(m), fault.Conflict)
	if err := add(newMachine(m.Owner, m.App, m.Name)); fault.CodeOf(err) != store.CodeNameTaken {
		t.Errorf("a name twice: %v", err)
	}
	check(t, add(newMachine("another", m.App, m.Name)))
	wantKind(t, "one that is not there", viewErr(t, s, func(tx store.Tx) (machine.Machine, error) { return tx.Machines().Get(ctx, "none") }), fault.NotFound)
	m.Region, m.State, m.Wanted, m.Sandbox, m.Roots, m.Lease, m.Events, m.UpdatedAt, m.DestroyedAt = "r", machine.Destroyed, false, "", nil, machine.Lease{}, nil, moment(5), moment(5)
	update(t, s, func(tx store.Tx) error { return tx.Machines().Put(ctx, m) })
	equal(t, "after its end", get(), *m)
	check(t, add(newMachine(m.Owner, m.App, m.Name)))
}

func testMachineLists(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	apps := func(owner string) string {
		list := view(t, s, func(tx store.Tx) ([]machine.App, error) { return tx.Machines().Apps(ctx, owner) })
		text := ""
		for _, a := range list {
			text += fmt.Sprint(a.Owner, "/", a.Name, ":", a.Machines, " ")
		}
		return text
	}
	for _, a := range []machine.App{{Owner: "o", Name: "b", CreatedAt: moment(1)}, {Owner: "o", Name: "a", CreatedAt: moment(2)}, {Owner: "p", Name: "a", CreatedAt: moment(1)}} {
		update(t, s, func(tx store.Tx) error {
			added, err := tx.Machines().AddApp(ctx, a)
			equal(t, "added", added, true)
			return err
		})
	}
	update(t, s, func(tx store.Tx) error {
		added, err := tx.Machines().AddApp(ctx, machine.App{Owner: "o", Name: "a", CreatedAt: moment(9)})
		equal(t, "added again", added, false)
		return err
	})
	all := make([]*machine.Machine, 5)
	for i := range all {
		all[i] = newMachine("o", "a", fmt.Sprint("m", i))
		all[i].CreatedAt, all[i].UpdatedAt = moment(i), moment(i)
	}
	all[0].State, all[0].DestroyedAt = machine.Destroyed, moment(1)
	all[1].State = machine.Stopping
	all[2].State, all[2].Sandbox = machine.Started, "gone"
	all[3].State, all[3].Sandbox, all[3].Roots = machine.Started, "there", []string{"root"}
	all[4].Wanted = true
	box := newSandbox(t, "o", "")
	box.ID, box.State, box.EndedAt = "gone", sandbox.StateCompleted, moment(1)
	exec := &live.Exec{ID: "root", Sandbox: "there", Owner: "o", Command: []string{"x"}, State: live.Running, CreatedAt: moment(1)}
	update(t, s, func(tx store.Tx) error {
		for _, m := range all {
			if err := tx.Machines().Add(ctx, m); err != nil {
				return err
			}
		}
		if err := tx.Sandboxes().Add(ctx, box); err != nil {
			return err
		}
		return tx.Execs().Add(ctx, exec, nil)
	})
	ids := func(what string, want []int, ask func(tx store.Tx) ([]machine.Machine, error)) {
		t.Helper()
		got := []int{}
		for _, m := range view(t, s, ask) {
			for i := range all {
				if all[i].ID == m.ID {
					got = append(got, i)
				}
			}
		}
		equal(t, what, got, want)
	}
	list := func(f store.MachineFilter) func(tx store.Tx) ([]machine.Machine, error) {
		return func(tx store.Tx) ([]machine.Machine, error) { return tx.Machines().List(ctx, f) }
	}
	fallen := func(tx store.Tx) ([]machine.Machine, error) { return tx.Machines().Fallen(ctx, 10) }
	ids("open", []int{1, 2, 3, 4}, list(store.MachineFilter{App: "a"}))
	ids("all", []int{0, 1, 2, 3, 4}, list(store.MachineFilter{Owner: "o", Destroyed: true}))
	ids("another's", []int{}, list(store.MachineFilter{Owner: "p"}))
	ids("in a state", []int{2}, list(store.MachineFilter{State: machine.Started, Limit: 1}))
	ids("on their way", []int{1, 4}, func(tx store.Tx) ([]machine.Machine, error) { return tx.Machines().Passing(ctx, moment(5), 10) })
	ids("on their way before", []int{1}, func(tx store.Tx) ([]machine.Machine, error) { return tx.Machines().Passing(ctx, moment(3), 10) })
	ids("fallen", []int{2}, fallen)
	exec.State, exec.EndedAt = live.Done, moment(2)
	exec.Result = &live.ExecResult{Verdict: sandbox.OK}
	update(t, s, func(tx store.Tx) error { return tx.Execs().Put(ctx, exec, nil) })
	if got := len(view(t, s, fallen)); got != 2 {
		t.Errorf("%d have fallen with their process, want 2", got)
	}
	equal(t, "apps", apps("o"), "o/a:4 o/b:0 ")
	equal(t, "everybody's apps", apps(""), "o/a:4 p/a:0 o/b:0 ")
	any := view(t, s, func(tx store.Tx) (machine.App, error) { return tx.Machines().App(ctx, "", "a") })
	equal(t, "the oldest", any.Owner, "p")
	update(t, s, func(tx store.Tx) error { return tx.Machines().DropApp(ctx, "o", "b") })
	wantKind(t, "a dropped one", viewErr(t, s, func(tx store.Tx) (machine.App, error) { return tx.Machines().App(ctx, "o", "b") }), fault.NotFound)
	update(t, s, func(tx store.Tx) error {
		n, err := tx.Machines().Forget(ctx, moment(3), 10)
		equal(t, "forgotten", n, int64(1))
		return err
	})
	ids("left", []int{1, 2, 3, 4}, list(store.MachineFilter{Destroyed: true}))
}

func testSessions(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	x := &live.Session{
		ID: "id " + odd, Owner: "owner " + odd, Project: odd, State: live.SessionActive, Reason: odd, Sandbox: "box", Prompt: odd, Job: job.NewID(),
		Spec: live.Spec{Image: odd, Env: map[string]string{"A": odd}}, CreatedAt: moment(1), ActiveAt: moment(2), ExpiresAt: moment(9),
	}
	get := func(owner string) (live.Session, error) {
		var got live.Session
		err := s.View(ctx, func(tx store.Tx) (err error) { got, err = tx.Sessions().Get(ctx, owner, x.ID); return err })
		return got, err
	}
	add := func(x *live.Session) error {
		return s.Update(ctx, func(tx store.Tx) error { return tx.Sessions().Add(ctx, x) })
	}
	check(t, add(x))
	if err := add(x); fault.CodeOf(err) != store.CodeSessionExists {
		t.Errorf("an id twice: %v", err)
	}
	for _, owner := range []string{x.Owner, ""} {
		got, err := get(owner)
		check(t, err)
		equal(t, "the session", got, *x)
	}
	_, err := get("another")
	wantKind(t, "another's", err, fault.NotFound)
	other := &live.Session{ID: x.ID, Owner: "another", State: live.SessionPending, CreatedAt: moment(3), ExpiresAt: moment(4)}
	check(t, add(other))
	due := func(at time.Time) int {
		return len(view(t, s, func(tx store.Tx) ([]live.Session, error) { return tx.Sessions().Due(ctx, at, 10) }))
	}
	equal(t, "whose time is over", fmt.Sprint(due(moment(3)), due(moment(4)), due(moment(9))), "0 1 2")
	count := func(f store.SessionFilter) int {
		return len(view(t, s, func(tx store.Tx) ([]live.Session, error) { return tx.Sessions().List(ctx, f) }))
	}
	x.State, x.Reason, x.Sandbox, x.Prompt, x.Job, x.ActiveAt, x.ExpiresAt, x.EndedAt = live.SessionCompleted, "", "", "", "", moment(5), time.Time{}, moment(6)
	update(t, s, func(tx store.Tx) error { return tx.Sessions().Put(ctx, x) })
	got, err := get(x.Owner)
	check(t, err)
	equal(t, "after its end", got, *x)
	equal(t, "lists", fmt.Sprint(count(store.SessionFilter{}), count(store.SessionFilter{Open: true}), count(store.SessionFilter{Owner: x.Owner}),
		count(store.SessionFilter{State: live.SessionPending}), count(store.SessionFilter{Before: moment(3)}), count(store.SessionFilter{Project: odd}), count(store.SessionFilter{Limit: 1}),
		count(store.SessionFilter{ID: x.ID}), count(store.SessionFilter{ID: x.ID, Project: odd}), count(store.SessionFilter{ID: "none"})), "2 1 1 1 1 1 1 2 1 0")
	update(t, s, func(tx store.Tx) error {
		n, err := tx.Sessions().Forget(ctx, moment(9), 10)
		equal(t, "forgotten", n, int64(1))
		return err
	})
	equal(t, "left", count(store.SessionFilter{}), 1)
}
