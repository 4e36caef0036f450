package evidence

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A snapshot that is surveyed on the way is the same snapshot, and the survey
// the same as one of its own.
func TestSurveyOnTheWayToASnapshot(t *testing.T) {
	t.Parallel()
	work := t.TempDir()
	for name, text := range map[string]string{
		"a.txt": "new", "kept": "same", "artifacts/one": "1", "artifacts/sub/two": "22",
		"artifacts/zlarge": strings.Repeat("x", smallFile+1), "empty": "",
	} {
		write(t, work, name, text, 0o644)
	}
	before := map[string]string{"a.txt": "old", "kept": "same", "gone": "?"}
	a, err := OpenArchive(t.TempDir(), DefaultBounds())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close() //nolint:errcheck // nothing hangs on it
	along, alone := NewSurvey(before, "artifacts", 2, 10), NewSurvey(before, "artifacts", 2, 10)
	surveyed, err := a.Store(t.Context(), "job", 1, work, along)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := a.Store(t.Context(), "job", 2, work, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := alone.Look(t.Context(), work, DefaultBounds()); err != nil {
		t.Fatal(err)
	}
	if surveyed.SHA256 != plain.SHA256 || surveyed.TreeDigest != plain.TreeDigest {
		t.Errorf("surveyed %+v, plain %+v", surveyed.Snapshot, plain.Snapshot)
	}
	if d := cmp.Diff(string(alone.Diff()), string(along.Diff())); d != "" {
		t.Error(d)
	}
	if !strings.Contains(string(along.Diff()), "+new") || !strings.Contains(string(along.Diff()), "b/gone") {
		t.Errorf("the diff is %s", along.Diff())
	}
	got, more := along.Left()
	want, _ := alone.Left()
	if d := cmp.Diff(want, got); d != "" || len(got) != 2 || more != 1 || got[1].Name != "artifacts/sub/two" || string(got[1].Data) != "22" {
		t.Errorf("left %+v and %d more\n%s", got, more, d)
	}
	if surveyed.Data != nil {
		t.Errorf("a snapshot of %d bytes was kept in memory", surveyed.Bytes)
	}
}

// The bytes of a small snapshot come with it.
func TestSmallSnapshotComesWithItsBytes(t *testing.T) {
	t.Parallel()
	work := t.TempDir()
	write(t, work, "a", "1", 0o644)
	a, err := OpenArchive(t.TempDir(), DefaultBounds())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close() //nolint:errcheck // nothing hangs on it
	s, err := a.Store(t.Context(), "job", 1, work, nil)
	if err != nil {
		t.Fatal(err)
	}
	if onDisk, err := os.ReadFile(s.Path); err != nil || !bytes.Equal(onDisk, s.Data) || int64(len(s.Data)) != s.Bytes {
		t.Errorf("%d bytes in memory, %d on disk, %d said, %v", len(s.Data), len(onDisk), s.Bytes, err)
	}
}
