package storetest

import (
	"testing"

	"github.com/aurea-dev/aurea/internal/killswitch"
	"github.com/aurea-dev/aurea/internal/store"
)

func testSwitches(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	state := func() killswitch.State {
		t.Helper()
		return view(t, s, func(tx store.Tx) (killswitch.State, error) { return tx.Switches().State(ctx) })
	}
	engage := func(one *killswitch.Switch) (added bool) {
		t.Helper()
		update(t, s, func(tx store.Tx) (err error) {
			added, err = tx.Switches().Engage(ctx, one)
			return err
		})
		return added
	}
	release := func(id string) (released bool) {
		t.Helper()
		update(t, s, func(tx store.Tx) (err error) {
			released, err = tx.Switches().Release(ctx, id, "who "+odd, "why "+odd, moment(7))
			return err
		})
		return released
	}
	equal(t, "nothing is engaged at first", state(), killswitch.State{})
	first := killswitch.Switch{ID: "b", Level: killswitch.Kill, Scope: killswitch.All, Reason: odd, By: odd, At: moment(1)}
	second := killswitch.Switch{
		ID: "a", Level: killswitch.Freeze, Scope: killswitch.Subtree, Root: "root", Members: []string{"x", "y"},
		Reason: odd, By: odd, At: moment(2), Worker: odd, Project: 1 << 40, Label: "k=v",
	}
	if !engage(&first) || !engage(&second) || engage(&first) {
		t.Error("a switch is engaged once")
	}
	equal(t, "both, the older first", state(), killswitch.State{Seq: 2, Engaged: []killswitch.Switch{first, second}})
	if !release("b") || release("b") || release("nobody's") {
		t.Error("a switch is released once")
	}
	equal(t, "the other", state(), killswitch.State{Seq: 3, Engaged: []killswitch.Switch{second}})
	if engage(&first) {
		t.Error("a switch that was released is engaged again by the same word")
	}
	list := func(limit int) []store.SwitchRecord {
		return view(t, s, func(tx store.Tx) ([]store.SwitchRecord, error) { return tx.Switches().List(ctx, limit) })
	}
	equal(t, "all", list(9), []store.SwitchRecord{
		{Switch: second},
		{Switch: first, ReleasedAt: moment(7), ReleasedBy: "who " + odd, ReleaseReason: "why " + odd},
	})
	equal(t, "one of them", len(list(1)), 1)
	equal(t, "none of them", len(list(0)), 0)
}
