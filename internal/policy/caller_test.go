package policy

import (
	"slices"
	"testing"
)

// TestWhoMay holds the powers that not every kind of key has: whoever changes
// the table changes this list too, and so says it twice.
func TestWhoMay(t *testing.T) {
	t.Parallel()
	want := map[Action][]Kind{
		Read:    {Local, Admin, Director, Operator, Auditor, Viewer, Bridge, Worker},
		Submit:  {Local, Admin, Director, Operator, Bridge},
		Control: {Local, Admin, Director, Operator},
		Work:    {Local, Admin, Director, Operator, Worker},
		Host:    {Local, Admin, Worker},
		Manage:  {Local, Admin, Director},
		Audit:   {Local, Admin, Director, Auditor},
		Stop:    {Local, Admin, Director, Operator},
		Rearm:   {Local, Admin, Director},
		Purge:   {Local, Admin, Director},
		Govern:  {Local, Admin, Director, Operator},
	}
	for action, kinds := range want {
		for _, kind := range append(Kinds(), Local, "stranger", "") {
			if got := (Caller{Kind: kind}).May(action); got != slices.Contains(kinds, kind) {
				t.Errorf("may %q %s: %v", kind, action, got)
			}
		}
	}
	for _, kind := range Kinds() {
		for _, action := range allowed(kind) {
			if want[action] == nil {
				t.Errorf("the action %q of %s is not in this list", action, kind)
			}
		}
	}
}
