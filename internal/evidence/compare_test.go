package evidence_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// packed makes an archive of entries.
func packed(t testing.TB, entries ...tar.Header) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range entries {
		text := h.PAXRecords["text"]
		h.PAXRecords = nil
		if h.Typeflag == 0 {
			h.Typeflag, h.Size = tar.TypeReg, int64(len(text))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &out
}

func plainFile(name, text string) tar.Header {
	return tar.Header{Name: name, PAXRecords: map[string]string{"text": text}}
}

func compared(t testing.TB, from, to *bytes.Buffer) evidence.Comparison {
	t.Helper()
	c, err := evidence.Compare(t.Context(), from, to, evidence.DefaultBounds())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCompare(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", 300<<10)
	tool := plainFile("tool", "#!/bin/sh\n")
	made := tool
	made.Mode = 0o755
	from := packed(t, plainFile("a.txt", "one\ntwo\nthree\n"), plainFile("gone.txt", "bye\n"), plainFile("same", "same"), plainFile("bin", "\x00\x01"), plainFile("big", big), tool,
		tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "a.txt"}, tar.Header{Name: "folder/", Typeflag: tar.TypeDir}, plainFile("turns", "into a folder\n"))
	to := packed(t, plainFile("./a.txt", "one\n2\nthree\n"), plainFile("new/b.txt", "hello\n"), plainFile("same", "same"), plainFile("bin", "\x00\x02"), plainFile("big", big+"y"), made,
		tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}, tar.Header{Name: "turns/", Typeflag: tar.TypeDir}, plainFile("empty", ""))
	c := compared(t, from, to)
	var got strings.Builder
	for _, d := range c.Differences {
		fmt.Fprintf(&got, "%s %s %s %d %d %s\n", d.Change, d.Type, d.Path, d.Before, d.After, d.Why)
	}
	want := `modified file a.txt 14 12 
modified file big 307200 307201 large
modified file bin 2 2 binary
added file empty -1 0 
deleted dir folder 0 -1 
deleted file gone.txt 4 -1 
modified link link 5 11 
added file new/b.txt -1 6 
modified file tool 10 10 
modified dir turns 14 0 
`
	if got.String() != want {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}
	if diff := c.Differences[0].Diff; diff != "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n" {
		t.Errorf("the change of a line is shown as %q", diff)
	}
	if c.Counts[evidence.Added] != 2 || c.Counts[evidence.Modified] != 6 || c.Counts[evidence.Deleted] != 2 || c.Left != 0 {
		t.Errorf("counted %v, left %d", c.Counts, c.Left)
	}
}

// TestComparePatches applies what was shown with git, and gets the second side.
func TestComparePatches(t *testing.T) {
	t.Parallel()
	git, err := exec.LookPath("git")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("left out: there is no git here to apply a patch with")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"a": "one\ntwo\n", "b": "gone\n", "empty": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := compared(t, packed(t, plainFile("a", "one\ntwo\n"), plainFile("b", "gone\n"), plainFile("empty", "")),
		packed(t, plainFile("a", "one\n2"), plainFile("new name", "hello\n"), plainFile("sub/c", "")))
	var patch strings.Builder
	for _, d := range c.Differences {
		patch.WriteString(d.Diff)
	}
	cmd := exec.CommandContext(t.Context(), git, "apply", "--unsafe-paths", "-")
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(patch.String())
	cmd.Env = []string{"HOME=" + dir, "GIT_CEILING_DIRECTORIES=" + filepath.Dir(dir)}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s of\n%s", err, out, patch.String())
	}
	for name, want := range map[string]string{"a": "one\n2", "new name": "hello\n", "sub/c": ""} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
	for _, name := range []string{"b", "empty"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", name, err)
		}
	}
}

// TestCompareHostile hands over archives that want to be more than they may.
func TestCompareHostile(t *testing.T) {
	t.Parallel()
	out := compared(t, packed(t), packed(t, plainFile("../out", "x"), plainFile("/abs", "x"), tar.Header{Name: "pipe", Typeflag: tar.TypeFifo},
		plainFile("twice", "first"), plainFile("twice", "second"), tar.Header{Name: "hard", Typeflag: tar.TypeLink, Linkname: "/etc/shadow"}))
	if len(out.Differences) != 1 || out.Differences[0].Path != "twice" || out.Differences[0].After != 5 {
		t.Errorf("%+v", out.Differences)
	}
	var many []tar.Header
	for i := range 12_000 {
		many = append(many, plainFile(fmt.Sprintf("f%05d", i), strings.Repeat("y", 400)+"\n"))
	}
	c := compared(t, packed(t), packed(t, many...))
	shown := 0
	for _, d := range c.Differences {
		shown += len(d.Diff)
		if d.Type != sandbox.TypeFile || d.Diff == "" && d.Why != evidence.BecauseCut {
			t.Fatalf("%+v", d)
		}
	}
	if len(c.Differences) != 10_000 || c.Left != 2_000 || c.Counts[evidence.Added] != 12_000 || shown > 4<<20 {
		t.Errorf("%d listed, %d left, %d shown", len(c.Differences), c.Left, shown)
	}
	if _, err := evidence.Compare(t.Context(), strings.NewReader("no archive, but quite a lot of bytes"), packed(t), evidence.DefaultBounds()); !fault.Is(err, fault.Invalid) {
		t.Errorf("what is no archive: %v", err)
	}
	tight := evidence.Bounds{Entries: 2, Depth: 2, Bytes: 10}
	for _, entries := range [][]tar.Header{{plainFile("a", ""), plainFile("b", ""), plainFile("c", "")}, {plainFile("a/b/c/d", "")}, {plainFile("a", "more than ten")}} {
		if _, err := evidence.Compare(t.Context(), packed(t, entries...), packed(t), tight); !fault.Is(err, fault.TooLarge) {
			t.Errorf("%d entries: %v", len(entries), err)
		}
	}
}
