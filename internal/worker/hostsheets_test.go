package worker

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/live"
)

func TestSheetsAreUsedAgain(t *testing.T) {
	t.Parallel()
	s := &sheets{folder: t.TempDir()}
	write := func(l *ledger, id string) {
		t.Helper()
		if err := l.add(execLine{Version: keptVersion, Order: &live.Command{ID: id}, Began: time.Now()}); err != nil {
			t.Fatal(err)
		}
	}
	first, second := &ledger{path: s.take(), sheet: true}, &ledger{path: s.take(), sheet: true}
	path := first.path
	if path == second.path {
		t.Fatal("two execs are written down in one place")
	}
	write(first, "one")
	write(second, "two")
	first.giveTo(s)
	first.giveTo(s)
	if err := first.add(execLine{Started: true}); err == nil {
		t.Error("one that was given away is written on")
	}
	third := &ledger{path: s.take(), sheet: true}
	if third.path != path {
		t.Errorf("%s was taken, and %s is empty", third.path, path)
	}
	write(third, "three")
	for path, want := range map[string]string{path: "three", second.path: "two"} {
		if x, err := readExec(path); err != nil || x.order.ID != want || x.started {
			t.Errorf("in %s is %+v, %v, want %s", path, x, err, want)
		}
	}
}

func TestFewEmptySheetsAreKept(t *testing.T) {
	t.Parallel()
	s := &sheets{folder: t.TempDir()}
	var all []*ledger
	for range maxBlank + 5 {
		l := &ledger{path: s.take(), sheet: true}
		l.note(execLine{Started: true})
		all = append(all, l)
	}
	for _, l := range all {
		l.giveTo(s)
	}
	left, err := os.ReadDir(s.folder)
	if err != nil || len(left) != maxBlank || len(s.blank) != maxBlank {
		t.Errorf("%d files and %d names are left: %v", len(left), len(s.blank), err)
	}
}

func TestSheetsOfTheReleaseBeforeAreNotUsedAgain(t *testing.T) {
	t.Parallel()
	s := &sheets{folder: t.TempDir()}
	before := &ledger{path: filepath.Join(s.folder, "0af3.json")}
	before.note(execLine{Version: keptVersion, Order: &live.Command{ID: "0af3"}})
	path := before.path
	before.giveTo(s)
	if _, err := os.Stat(path); !os.IsNotExist(err) || len(s.blank) != 0 {
		t.Errorf("it is still there: %v", err)
	}
}

// TestASandboxIsReadWithItsSheets reads what an earlier process left: by the names
// that it gave, by those of the release before, and empty ones.
func TestASandboxIsReadWithItsSheets(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "box1")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	box := &ledger{path: filepath.Join(folder, boxName)}
	box.note(boxEntry{Version: keptVersion, Order: &live.Order{ID: "box1"}})
	box.rest()
	for name, text := range map[string]string{
		"exec-2.json":  " ",
		"exec-7.json":  "  " + `{"version":1,"order":{"id":"seven"}}` + "\n" + `{"started":true}` + "\n",
		"exec-8.json":  `{"version":1,"order":{"id":"seven"}}` + "\n",
		"exec-9.json":  `{"version":1,"order":{"id":"torn`,
		"exec-x.json":  `{"version":1,"order":{"id":"../up"}}` + "\n",
		"before.json":  `{"version":1,"order":{"id":"before"}}` + "\n",
		"exec-12.1":    "what one printed",
		"exec--3.json": "",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p, err := readBox(folder)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, x := range p.execs {
		got[x.order.ID] = filepath.Base(x.path)
	}
	if len(got) != 2 || got["before"] != "before.json" || got["seven"] != "exec-7.json" {
		t.Errorf("read %v", got)
	}
	for name, c := range map[string]struct{ got, want []string }{
		"empty":   {p.blank, []string{"exec--3.json", "exec-2.json", "exec-9.json"}},
		"damaged": {p.damaged, []string{"exec-8.json", "exec-x.json"}},
	} {
		for i := range c.got {
			c.got[i] = filepath.Base(c.got[i])
		}
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s are %v, want %v", name, c.got, c.want)
		}
	}
	if p.sheets != 9 {
		t.Errorf("the next would be %d", p.sheets+1)
	}
}
