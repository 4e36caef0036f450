package worker

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/aurea-dev/aurea/internal/live"
)

// bindersIn makes binders in a folder. What is missing is made when a test says so.
func bindersIn(t *testing.T, base string) *binders {
	t.Helper()
	s := newBinders(filepath.Join(base, "binders"))
	if len(s.blank) != readyBinders {
		t.Fatalf("%d were made", len(s.blank))
	}
	s.due = true
	return s
}

func TestBindersAreUsedAgain(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	s := bindersIn(t, base)
	place := filepath.Join(base, "box1")
	if filed, err := s.take(place); err != nil || !filed {
		t.Fatalf("with its files %t, %v", filed, err)
	}
	if _, err := s.take(place); !errors.Is(err, fs.ErrExist) {
		t.Errorf("it was put where another is: %v", err)
	}
	for name, text := range map[string]string{boxName: `{"version":1,"order":{"id":"box1"}}`, firstSheet: `{"version":1,"order":{"id":"secret"}}`} {
		l := &ledger{path: filepath.Join(place, name), sheet: true}
		l.note(map[string]string{"text": text})
		l.rest()
	}
	for _, name := range []string{"exec-2.json", "x.1", "files-1.tmp"} {
		if err := os.WriteFile(filepath.Join(place, name), []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.give(place); err != nil {
		t.Fatal(err)
	}
	next := filepath.Join(base, "box2")
	if filed, err := s.take(next); err != nil || !filed {
		t.Fatalf("with its files %t, %v", filed, err)
	}
	left := map[string]string{}
	entries, err := os.ReadDir(next)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(next, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		left[e.Name()] = string(data)
	}
	if len(left) != 2 || left[boxName] != " " || left[firstSheet] != " " {
		t.Errorf("of the one before is left %q", left)
	}
	if len(s.blank) != readyBinders-1 {
		t.Errorf("%d are left", len(s.blank))
	}
}

// TestABinderWithoutItsFilesIsRemoved gives back what a release before made, whose
// files begin otherwise, and one whose files are gone.
func TestABinderWithoutItsFilesIsRemoved(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	s := bindersIn(t, base)
	for name, files := range map[string]map[string]string{
		"before": {boxName: "{\"version\":1}\n", firstSheet: " "},
		"none":   {},
		"torn":   {boxName: "", firstSheet: " "},
	} {
		place := filepath.Join(base, name)
		if err := os.Mkdir(place, 0o700); err != nil {
			t.Fatal(err)
		}
		for file, text := range files {
			if err := os.WriteFile(filepath.Join(place, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.give(place); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(place); !errors.Is(err, fs.ErrNotExist) || len(s.blank) != readyBinders {
			t.Errorf("%s is kept, or still there: %v", name, err)
		}
	}
}

func TestBindersRunOutAndFillUp(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	s := bindersIn(t, base)
	var places []string
	for i := range maxBinders + 3 {
		place := filepath.Join(base, string(rune('a'+i)))
		filed, err := s.take(place)
		if err != nil || filed != (i < readyBinders) {
			t.Errorf("%d: with its files %t, %v", i, filed, err)
		}
		sheets := sheets{folder: place}
		if filed {
			sheets.laid()
		}
		box, exec := &ledger{path: filepath.Join(place, boxName), sheet: true}, &ledger{path: sheets.take(), sheet: true}
		box.note(boxEntry{Version: keptVersion, Order: &live.Order{ID: filepath.Base(place)}})
		exec.note(execLine{Version: keptVersion, Order: &live.Command{ID: "one"}})
		if p, err := readBox(place); err != nil || len(p.execs) != 1 || p.execs[0].order.ID != "one" {
			t.Errorf("%d: read %+v, %v", i, p, err)
		}
		exec.giveTo(&sheets)
		box.clear()
		places = append(places, place)
	}
	for _, place := range places {
		if err := s.give(place); err != nil {
			t.Error(err)
		}
	}
	left, err := os.ReadDir(s.folder)
	if err != nil || len(left) != maxBinders || len(s.blank) != maxBinders {
		t.Errorf("%d folders and %d names are left: %v", len(left), len(s.blank), err)
	}
}

func TestBindersAreMadeAhead(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	s := bindersIn(t, base)
	for _, name := range []string{"a", "b"} {
		if filed, err := s.take(filepath.Join(base, name)); err != nil || !filed {
			t.Fatalf("with its files %t, %v", filed, err)
		}
	}
	if err := s.fill(); err != nil || len(s.blank) != readyBinders {
		t.Errorf("%d lie ready, %v", len(s.blank), err)
	}
	s.due = true
	if _, err := s.take(filepath.Join(base, "c")); err != nil {
		t.Fatal(err)
	}
	s.close()
	if err := s.fill(); err != nil || len(s.blank) != readyBinders-1 {
		t.Errorf("after the end %d lie ready, %v", len(s.blank), err)
	}
}

// TestWithoutBinders has sandboxes make their own folders where none could be made
// ahead, as on a full disk.
func TestWithoutBinders(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	if err := os.WriteFile(filepath.Join(base, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := newBinders(filepath.Join(base, "file", "binders"))
	s.due = true
	place := filepath.Join(base, "box")
	if filed, err := s.take(place); err != nil || filed {
		t.Errorf("with its files %t, %v", filed, err)
	}
	if err := s.fill(); err == nil {
		t.Error("they were made in a file")
	}
	if err := s.give(place); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(place); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}

func TestALedgerThatWasClearedIsNotWrittenOn(t *testing.T) {
	t.Parallel()
	l := &ledger{path: filepath.Join(t.TempDir(), boxName), sheet: true, log: slog.New(slog.DiscardHandler)}
	l.note(boxEntry{Version: keptVersion})
	l.clear()
	l.clear()
	l.note(boxEntry{Boot: "late"})
	if data, err := os.ReadFile(l.path); err != nil || string(data) != " " {
		t.Errorf("it holds %q, %v", data, err)
	}
}
