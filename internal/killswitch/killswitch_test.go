package killswitch_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/killswitch"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

func TestWhatIsASwitch(t *testing.T) {
	t.Parallel()
	for field, s := range map[string]killswitch.Switch{
		"level":      {Level: "stop", Scope: killswitch.All, Reason: "r"},
		"scope":      {Level: killswitch.Kill, Scope: "world", Reason: "r"},
		"reason":     {Level: killswitch.Kill, Scope: killswitch.All, Reason: "\n "},
		"project_id": {Level: killswitch.Kill, Scope: killswitch.Project, Reason: "r"},
		"label":      {Level: killswitch.Kill, Scope: killswitch.Label, Label: "word", Reason: "r"},
		"root":       {Level: killswitch.Kill, Scope: killswitch.All, Root: "b1", Reason: "r"},
	} {
		if err := s.Check(); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, s := range []killswitch.Switch{
		{Level: killswitch.Kill, Scope: killswitch.All, Reason: "r"},
		{Level: killswitch.Freeze, Scope: killswitch.Project, Project: 1, Reason: "r"},
		{Level: killswitch.Kill, Scope: killswitch.Label, Label: "a=", Reason: "r"},
		{Level: killswitch.Kill, Scope: killswitch.Subtree, Root: "b", Reason: "r"},
	} {
		if err := s.Check(); err != nil {
			t.Error(err)
		}
	}
}

func TestWhatASwitchCovers(t *testing.T) {
	t.Parallel()
	box := sandbox.Subject{ID: "b2", Parent: "b1", Project: 7, Labels: map[string]string{"team": "red", "project": "8", killswitch.WorkerLabel: "f1"}}
	for _, c := range []struct {
		s      killswitch.Switch
		covers bool
	}{
		{killswitch.Switch{Scope: killswitch.All}, true},
		{killswitch.Switch{Scope: killswitch.Project, Project: 7}, true},
		{killswitch.Switch{Scope: killswitch.Project, Project: 8}, true},
		{killswitch.Switch{Scope: killswitch.Project, Project: 9}, false},
		{killswitch.Switch{Scope: killswitch.Label, Label: "team=red"}, true},
		{killswitch.Switch{Scope: killswitch.Label, Label: "team=blue"}, false},
		{killswitch.Switch{Scope: killswitch.Label, Label: "none="}, false},
		{killswitch.Switch{Scope: killswitch.Subtree, Root: "b2"}, true},
		{killswitch.Switch{Scope: killswitch.Subtree, Root: "b1"}, true},
		{killswitch.Switch{Scope: killswitch.Subtree, Root: "b0", Members: []string{"b0", "b1"}}, true},
		{killswitch.Switch{Scope: killswitch.Subtree, Root: "b3"}, false},
		{killswitch.Switch{Scope: killswitch.Subtree, Root: "f1"}, true},
		{killswitch.Switch{Scope: killswitch.Subtree, Root: "f0", Members: []string{"f0", "f1"}}, true},
		{killswitch.Switch{Scope: killswitch.Subtree, Root: "f2"}, false},
		{killswitch.Switch{Scope: "of a later version"}, true},
	} {
		if got := c.s.Covers(box); got != c.covers {
			t.Errorf("%+v covers it: %v", c.s, got)
		}
	}
	if (&killswitch.Switch{Scope: killswitch.Subtree, Root: ""}).Covers(sandbox.Subject{}) {
		t.Error("nothing is below nobody")
	}
}

func TestTheStrictestSwitchHolds(t *testing.T) {
	t.Parallel()
	s := killswitch.State{Engaged: []killswitch.Switch{
		{ID: "1", Level: killswitch.Freeze, Scope: killswitch.All, Reason: "wait"},
		{ID: "2", Level: killswitch.Kill, Scope: killswitch.Project, Project: 7, Reason: "fire"},
	}}
	if got := s.Over(sandbox.Subject{Project: 7}); got.ID != "2" {
		t.Errorf("over it: %+v", got)
	}
	rule := s.Rule()
	if !rule.All.Freeze || rule.All.Kill || !rule.Of(sandbox.Subject{Project: 7}).Kill || rule.Of(sandbox.Subject{}).Kill {
		t.Errorf("the rule is %+v", rule)
	}
	err := s.Refuse(sandbox.Subject{Project: 7})
	if fault.CodeOf(err) != killswitch.Code || !strings.Contains(err.Error(), "fire") {
		t.Errorf("refused with %v", err)
	}
	if err := (killswitch.State{}).Refuse(sandbox.Subject{}); err != nil {
		t.Error(err)
	}
}

// Whatever a manager or a file says: what passes the check can be held to.
func FuzzState(f *testing.F) {
	f.Add([]byte(`{"seq":1,"engaged":[{"id":"a","level":"kill","scope":"all","reason":"r"}]}`))
	f.Add([]byte(`{"engaged":[{"level":"freeze","scope":"label","label":"=","reason":"r"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var s killswitch.State
		if json.Unmarshal(data, &s) != nil || s.Check() != nil {
			return
		}
		stop := s.Rule().Of(sandbox.Subject{ID: "b", Labels: map[string]string{"a": "b"}})
		if stop.Kill && stop.Freeze || len(s.Engaged) == 0 && (stop.Kill || stop.Freeze) {
			t.Errorf("%s comes to %+v", data, stop)
		}
	})
}
