package manager

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/governor"
	"github.com/aurea-dev/aurea/internal/killswitch"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// enlist stores members of a fleet as they are.
func enlist(t *testing.T, m *Manager, list ...manifest.Worker) {
	t.Helper()
	for part := range slices.Chunk(list, 1000) {
		err := m.Store.Update(t.Context(), func(tx store.Tx) error {
			for i := range part {
				if err := tx.Fleet().Add(t.Context(), &part[i]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func memberOf(id, parent, box string, state manifest.State, n int) manifest.Worker {
	at := time.Date(2031, 5, 6, 7, 8, 9, n*1000, time.UTC)
	return manifest.Worker{
		Manifest: manifest.Manifest{WorkerID: id, ParentID: parent, IssuedAt: at, Resources: manifest.Default().Resources},
		Terms:    manifest.Terms{Contract: "default", Owner: "o", Until: at}, State: state, Sandbox: box, UpdatedAt: at,
	}
}

// TestASubtreeIsFoundWhole: neither a parent that has ended in between, nor a heap
// of papers that nobody used, nor that one has no sandbox yet hides anybody.
func TestASubtreeIsFoundWhole(t *testing.T) {
	t.Parallel()
	m := open(t, t.TempDir()) // which is not started, so that nobody sweeps them away
	enlist(t, m,
		memberOf("aaaaaaaa", "", "boxa", manifest.Running, 1), memberOf("bbbbbbbb", "aaaaaaaa", "boxb", manifest.Ended, 2),
		memberOf("cccccccc", "bbbbbbbb", "boxc", manifest.Running, 3), memberOf("dddddddd", "cccccccc", "", manifest.Launching, 4),
		memberOf("eeeeeeee", "", "boxe", manifest.Running, 5),
	)
	heap := make([]manifest.Worker, killswitch.MaxMembers+1)
	for i := range heap {
		heap[i] = memberOf(fmt.Sprintf("%08x", i), "", "", manifest.Issued, 10+i)
	}
	enlist(t, m, heap...)
	r, err := m.EngageSwitch(local(), killswitch.Switch{Level: killswitch.Kill, Scope: killswitch.Subtree, Root: "aaaaaaaa", Reason: "all of it"})
	if err != nil {
		t.Fatal(err)
	}
	for box, covered := range map[string]bool{"boxa": true, "boxc": true, "boxe": false} {
		if got := r.Switch.Covers(sandbox.Subject{ID: box}); got != covered {
			t.Errorf("it covers %s: %t", box, got)
		}
	}
	born := sandbox.Subject{ID: "boxd", Labels: map[string]string{governor.LabelWorker: "dddddddd"}}
	if !r.Switch.Covers(born) || m.switches.refuse(born) == nil {
		t.Error("it does not cover the sandbox that is just being made")
	}
	if governor.LabelWorker != killswitch.WorkerLabel || governor.LabelProject != killswitch.ProjectLabel {
		t.Error("the labels have different names here and there")
	}
}

// TestASubtreeThatIsTooLargeIsRefused: a switch that names a part of it would look
// as if it had stopped all.
func TestASubtreeThatIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	m := open(t, t.TempDir()) // which is not started, so that nobody sweeps them away
	list := []manifest.Worker{memberOf("aaaaaaaa", "", "boxa", manifest.Running, 0)}
	for i := range killswitch.MaxMembers / 2 {
		id := fmt.Sprintf("%08x", i)
		list = append(list, memberOf(id, "aaaaaaaa", "box"+id, manifest.Running, 1+i))
	}
	enlist(t, m, list...)
	_, err := m.EngageSwitch(local(), killswitch.Switch{Level: killswitch.Kill, Scope: killswitch.Subtree, Root: "aaaaaaaa", Reason: "all of it"})
	if !fault.Is(err, fault.Exhausted) || len(m.switches.state().Engaged) != 0 {
		t.Errorf("engaged %+v: %v", m.switches.state(), err)
	}
}

// TestAReleaseGivesTimeToSpeak freezes a part of the fleet, in which nobody can
// speak then, and releases it: their silence counts from there, that of the others
// from when they spoke.
func TestAReleaseGivesTimeToSpeak(t *testing.T) {
	t.Parallel()
	m := open(t, t.TempDir()) // which is not started, so that nobody looks after them
	enlist(t, m, memberOf("aaaaaaaa", "", "boxa", manifest.Running, 1), memberOf("bbbbbbbb", "aaaaaaaa", "boxb", manifest.Running, 2), memberOf("cccccccc", "", "boxc", manifest.Running, 3))
	if _, err := m.EngageSwitch(local(), killswitch.Switch{Level: killswitch.Freeze, Scope: killswitch.Subtree, Root: "aaaaaaaa", Reason: "looking"}); err != nil {
		t.Fatal(err)
	}
	before := m.Now().Truncate(time.Microsecond)
	if _, err := m.ReleaseSwitch(local(), killswitch.Freeze, "", "all is well"); err != nil {
		t.Fatal(err)
	}
	err := m.Store.View(t.Context(), func(tx store.Tx) error {
		for id, stopped := range map[string]bool{"aaaaaaaa": true, "bbbbbbbb": true, "cccccccc": false} {
			w, err := tx.Fleet().Get(t.Context(), id)
			if err != nil {
				return err
			}
			if spared := !w.HeartbeatAt.Before(before); spared != stopped {
				t.Errorf("the silence of %s counts from %s, and it was released at %s", id, w.HeartbeatAt, before)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
