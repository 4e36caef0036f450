package evidence

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func fill(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		write(t, dir, name, text, 0o644)
	}
}

func TestDiffReadsAsPeopleExpect(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	before := map[string]string{
		"same.txt": "1\n", "gone.txt": "old\n", "tool.sh": "echo hi\n", "bin": "\x00a",
		"long.txt": "a\nb\nc\nd\ne\nf\ng\nh\n",
	}
	fill(t, dir, map[string]string{
		"same.txt": "1\n", "long.txt": "a\nb\nc\nD\ne\nf\ng\nh", "new file.txt": "x\n", "empty": "", "bin": "\x00b",
	})
	write(t, dir, "tool.sh", "echo hi\n", 0o755)
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	got, err := diffOf(t, before, dir)
	if err != nil {
		t.Fatal(err)
	}
	want := `Binary file bin differs
Symbolic link link -> /etc/passwd
diff --git a/gone.txt b/gone.txt
deleted file mode 100644
--- a/gone.txt
+++ /dev/null
@@ -1 +0,0 @@
-old
diff --git a/empty b/empty
new file mode 100644
index 0000000..e69de29
diff --git a/long.txt b/long.txt
--- a/long.txt
+++ b/long.txt
@@ -1,8 +1,8 @@
 a
 b
 c
-d
+D
 e
 f
 g
-h
+h
\ No newline at end of file
diff --git "a/new file.txt" "b/new file.txt"
new file mode 100644
--- /dev/null
+++ "b/new file.txt"
@@ -0,0 +1 @@
+x
diff --git a/tool.sh b/tool.sh
old mode 100644
new mode 100755
`
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Error(d)
	}
}

func TestDiffOfNothingIsEmpty(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := map[string]string{"a": "x\n", "b/c": "no line feed", "big": strings.Repeat("x", 2<<20)}
	fill(t, dir, files)
	got, err := diffOf(t, files, dir)
	if err != nil || len(got) != 0 {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestDiffIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "big", strings.Repeat("line\n", 1<<18), 0o644)
	for i := range 9 {
		write(t, dir, fmt.Sprint("f", i), strings.Repeat("line\n", 200_000), 0o644)
	}
	got, err := diffOf(t, nil, dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) > maxDiffBytes+1000 || !bytes.HasPrefix(got, []byte("Large file big differs\nLeft out: ")) {
		t.Errorf("%d bytes that begin with %q", len(got), got[:80])
	}
}

// trees draws two trees of text files, the second often a small change of the
// first, with names that try to break the format.
func trees(rt *rapid.T) (before, after map[string]string) {
	name := rapid.SampledFrom([]string{"a", "b.txt", "with space", "ü", "quo\"te", "tab\there", "line\nfeed", "back\\slash", "dir/x", "dir/y z", "other/deep/x"})
	line := rapid.SampledFrom([]string{"one\n", "two\n", "three\n", "--- a/x\n", "+++ b/x\n", "@@ -1 +1 @@\n", "\n", "diff --git a/a b/a\n", "1d\n", "last"})
	text := func(label string) string {
		return strings.Join(rapid.SliceOfN(line, 0, 30).Draw(rt, label), "")
	}
	before, after = map[string]string{}, map[string]string{}
	for range rapid.IntRange(0, 6).Draw(rt, "files") {
		n := name.Draw(rt, "name")
		before[n] = text("before")
		switch rapid.IntRange(0, 3).Draw(rt, "what") {
		case 0: // removed
		case 1:
			after[n] = before[n]
		case 2:
			after[n] = text("after")
		case 3:
			lines := splitLines(before[n])
			if len(lines) > 0 {
				i := rapid.IntRange(0, len(lines)-1).Draw(rt, "line")
				lines = slices.Insert(slices.Clone(lines), i, "inserted\n")
			}
			after[n] = strings.Join(lines, "")
		}
	}
	for range rapid.IntRange(0, 3).Draw(rt, "new files") {
		if n := name.Draw(rt, "name"); before[n] == "" {
			after[n] = text("new")
		}
	}
	return before, after
}

// The judges of a diff are the tools that people feed it to.
func TestToolsApplyTheDiff(t *testing.T) {
	t.Parallel()
	for tool, args := range map[string][]string{
		"git":   {"apply", "--unsafe-paths", "-p1", "-"},
		"patch": {"-p1", "-s", "--no-backup-if-mismatch"},
	} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			path, err := exec.LookPath(tool)
			if err != nil {
				t.Skip(tool + " is not installed; the diff is checked against the other tool and the property test only")
			}
			rapid.Check(t, func(rt *rapid.T) { applies(t, rt, path, args) })
		})
	}
}

func applies(t *testing.T, rt *rapid.T, tool string, args []string) {
	before, after := trees(rt)
	start, end := t.TempDir(), t.TempDir()
	fill(t, start, before)
	fill(t, end, after)
	if err := os.Symlink("x", filepath.Join(end, "zlink")); err != nil {
		rt.Fatal(err)
	}
	diff, err := diffOf(t, before, end)
	if err != nil {
		rt.Fatal(err)
	}
	if !bytes.Contains(diff, []byte("diff --git")) {
		return // both tools call a patch without a change an error
	}
	cmd := exec.CommandContext(t.Context(), tool, args...)
	cmd.Dir = start
	cmd.Env = append(os.Environ(), "GIT_DIR=/nonexistent", "GIT_CEILING_DIRECTORIES=/", "LC_ALL=C")
	cmd.Stdin = bytes.NewReader(diff)
	if out, err := cmd.CombinedOutput(); err != nil {
		rt.Fatalf("%v: %s\n%s", err, out, diff)
	}
	got := map[string]string{}
	for name := range both(before, after) {
		if text, err := os.ReadFile(filepath.Join(start, name)); err == nil {
			got[name] = string(text)
		}
	}
	if d := cmp.Diff(after, got); d != "" {
		rt.Fatalf("%s\n%s", d, diff)
	}
}

func both(a, b map[string]string) map[string]string {
	m := maps.Clone(a)
	maps.Copy(m, b)
	return m
}

// The edits always turn the old text into the new one, and are apart.
func TestCompareIsRight(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		line := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		a := rapid.SliceOfN(line, 0, 40).Draw(rt, "a")
		b := rapid.SliceOfN(line, 0, 40).Draw(rt, "b")
		checkEdits(rt, a, b)
	})
}

func checkEdits(t interface{ Fatalf(string, ...any) }, a, b []string) {
	var got []string
	at := 0
	for i, e := range compare(a, b) {
		if e.a0 < at || (i > 0 && e.a0 == at) || (e.a0 == e.a1 && e.b0 == e.b1) {
			t.Fatalf("edit %d touches the one before or is empty: %+v", i, e)
		}
		got = append(got, a[at:e.a0]...)
		got = append(got, b[e.b0:e.b1]...)
		at = e.a1
	}
	got = append(got, a[at:]...)
	if !slices.Equal(got, b) {
		t.Fatalf("%q became %q, not %q", a, got, b)
	}
}

// A text that was made to be costly gives a larger edit, not a longer wait.
func TestCompareIsBounded(t *testing.T) {
	t.Parallel()
	var a, b []string
	for i := range 5000 {
		a = append(a, fmt.Sprint("a", i), "x")
		b = append(b, "x", fmt.Sprint("b", i), "x")
	}
	checkEdits(t, a, b)
	if n := len(compare(a, b)); n != 1 {
		t.Errorf("%d edits; want the whole as one", n)
	}
}

func FuzzCompare(f *testing.F) {
	f.Add("a\nb\nc", "a\nc\n")
	f.Add("", "\n\n")
	f.Fuzz(func(t *testing.T, a, b string) { checkEdits(t, splitLines(a), splitLines(b)) })
}

func diffOf(t *testing.T, before map[string]string, dir string) ([]byte, error) {
	t.Helper()
	s := NewSurvey(before, "artifacts", 10, 10)
	err := s.Look(t.Context(), dir, DefaultBounds())
	return s.Diff(), err
}
