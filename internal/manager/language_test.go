package manager

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/language"
)

// A language is active when it is on any worker that is connected, and why it
// is not is what a worker said last.
func TestLanguagesOfTheWorkers(t *testing.T) {
	t.Parallel()
	m := started(t)
	if all := m.Languages(); len(all) != 0 {
		t.Errorf("without a worker there are %v", all)
	}
	python := language.Status{Name: "python", File: "main.py", Image: "host", Active: true}
	ruby := language.Status{Name: "ruby", File: "main.rb", Image: "host", Reason: "the image host has no ruby"}
	first := attend(t, m, "first", dispatch.DriverSummary{Name: "d"})
	say := func(session string, all ...language.Status) {
		t.Helper()
		if _, err := m.Extend(t.Context(), dispatch.ExtendRequest{Session: session, Languages: all}); err != nil {
			t.Fatal(err)
		}
	}
	say(first.Session, ruby, python)
	if d := cmp.Diff([]language.Status{python, ruby}, m.Languages()); d != "" {
		t.Error(d)
	}
	second := attend(t, m, "second", dispatch.DriverSummary{Name: "d"})
	there := language.Status{Name: "ruby", File: "main.rb", Image: "mine:1", Active: true}
	say(second.Session, there)
	if d := cmp.Diff([]language.Status{python, there}, m.Languages()); d != "" {
		t.Error(d)
	}
}
