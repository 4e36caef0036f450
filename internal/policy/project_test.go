package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
)

func projectCaller(kind Kind, s Scope) Caller {
	k, _ := NewKey(kind, "n", time.Now())
	k.Scope = s
	return k.Caller()
}

// TestAProjectNeverWidens holds the bounds of keys of every kind with a project
// against the same keys without one.
func TestAProjectNeverWidens(t *testing.T) {
	t.Parallel()
	for _, kind := range append(Kinds(), "stranger") {
		for _, owner := range []string{"", "team"} {
			for _, actions := range [][]Action{nil, {Read}} {
				wide, narrow := projectCaller(kind, Scope{Owner: owner, Actions: actions}), projectCaller(kind, Scope{Owner: owner, Actions: actions, Project: 7})
				if narrow.SeesAll() || narrow.Scope.Empty() || narrow.MayGrant(Viewer) {
					t.Errorf("%s with a project sees all, or makes keys", kind)
				}
				for _, a := range []Action{Read, Submit, Control, Work, Host, Manage, Audit, Stop, Rearm, Purge, Govern} {
					if narrow.May(a) && (!wide.May(a) || a != Read && a != Submit && a != Control) {
						t.Errorf("%s with a project may %s", kind, a)
					}
				}
				for _, of := range []string{"team", "other", narrow.ID} {
					for _, project := range []int64{0, 7, 8} {
						wide.ID = narrow.ID // the same key
						if got, want := narrow.Sees(of, project), project == 7 && wide.Sees(of, project); got != want {
							t.Errorf("%s of %q sees what is %q's in %d: %v", kind, owner, of, project, got)
						}
					}
				}
			}
		}
	}
}

func TestPlaces(t *testing.T) {
	t.Parallel()
	narrow, wide := projectCaller(Operator, Scope{Project: 7}), projectCaller(Operator, Scope{})
	for named, want := range map[int64]int64{0: 7, 7: 7, 8: 0, -7: 0} {
		got, err := narrow.Place(named)
		if got != want || (err == nil) != (want != 0) || err != nil && (!fault.Is(err, fault.Denied) || fault.CodeOf(err) != CodeOtherProject) {
			t.Errorf("%d is %d, %v", named, got, err)
		}
		if got, err := wide.Place(named); got != named || err != nil {
			t.Errorf("%d is %d, %v", named, got, err)
		}
	}
	for named, want := range map[string]string{"": "7", "7": "7", "8": "", "07": "", "a word": ""} {
		if got, err := narrow.PlaceLabel(named); got != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q, %v", named, got, err)
		}
		if got, err := wide.PlaceLabel(named); got != named || err != nil {
			t.Errorf("%q is %q, %v", named, got, err)
		}
	}
	if err := narrow.NoProject("things"); !fault.Is(err, fault.Denied) || wide.NoProject("things") != nil {
		t.Errorf("what belongs to no project: %v", err)
	}
	if other := projectCaller(Operator, Scope{Project: 8}); wide.ReplyKey("k") != "k" || narrow.ReplyKey("") != "" || narrow.ReplyKey("k") == other.ReplyKey("k") || !strings.HasSuffix(narrow.ReplyKey("k"), "k") {
		t.Error("keys of different projects share their replies")
	}
}
