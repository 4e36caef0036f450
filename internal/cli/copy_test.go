package cli

import (
	"archive/tar"
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func packed(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len("text"))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			_, _ = io.WriteString(w, "text")
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestAHostileFolderStaysInItsFolder: what leads out of it is not made, and is
// named.
func TestAHostileFolderStaysInItsFolder(t *testing.T) {
	b := newBoxes()
	t.Setenv("AUREA_SERVER", b.serve(t).URL)
	link := func(name, target string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target}
	}
	b.packed = packed(t,
		tar.Header{Name: "a/b/c/", Typeflag: tar.TypeDir, Mode: 0o755},
		tar.Header{Name: "a/file", Typeflag: tar.TypeReg, Mode: 0o4755},
		tar.Header{Name: "../up", Typeflag: tar.TypeReg}, tar.Header{Name: "/abs", Typeflag: tar.TypeReg},
		tar.Header{Name: "device", Typeflag: tar.TypeChar}, tar.Header{Name: "pipe", Typeflag: tar.TypeFifo},
		tar.Header{Name: "hard", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"},
		link("good", "a/file"), link("a/back", "../a/file"), link("dangling", "a/nothing"),
		link("etc", "/etc"), link("out", "../.."), link("a/b/c/top", "../../.."), link("sly", "a/b/c/top/../.."), link("later", "nothing/../../x"),
		tar.Header{Name: "etc/planted", Typeflag: tar.TypeReg},
	)
	folder := t.TempDir()
	var errs bytes.Buffer
	args := []string{"sandbox", "cp", "mine:folder", filepath.Join(folder, "got")}
	if code := Run(t.Context(), Program{}, args, Streams{In: http.NoBody, Out: io.Discard, Err: &errs}, nil); code != 0 {
		t.Fatalf("ended with %d: %s", code, &errs)
	}
	var have []string
	_ = filepath.WalkDir(folder, func(path string, _ os.DirEntry, _ error) error {
		have = append(have, strings.TrimPrefix(path, folder))
		return nil
	})
	want := []string{"", "/got", "/got/a", "/got/a/b", "/got/a/b/c", "/got/a/b/c/top", "/got/a/back", "/got/a/file", "/got/dangling", "/got/good"}
	if !slices.Equal(have, want) {
		t.Errorf("there are %q", have)
	}
	for _, name := range []string{"up", "abs", "device", "pipe", "hard", "etc", "out", "sly", "later", "planted"} {
		if !strings.Contains(errs.String(), name) {
			t.Errorf("%s is not named in %s", name, &errs)
		}
	}
	if about, err := os.Stat(filepath.Join(folder, "got/a/file")); err != nil || about.Mode() != 0o755 {
		t.Errorf("%v, %v", about, err)
	}
	errs.Reset()
	if code := Run(t.Context(), Program{}, args, Streams{In: http.NoBody, Out: io.Discard, Err: &errs}, nil); code != 0 {
		t.Errorf("ended with %d: %s", code, &errs)
	}
	if _, err := os.Lstat(filepath.Join(folder, "got/folder/a/file")); err != nil {
		t.Errorf("a folder that is there does not get it inside: %v", err)
	}
	if code := Run(t.Context(), Program{}, args, Streams{In: http.NoBody, Out: io.Discard, Err: &errs}, nil); code != ExitConflict {
		t.Errorf("it was put over what is there: %d", code)
	}
}

// TestABrokenTarLeavesNothing of what came before.
func TestABrokenTarLeavesNothing(t *testing.T) {
	b := newBoxes()
	t.Setenv("AUREA_SERVER", b.serve(t).URL)
	whole := packed(t, tar.Header{Name: "a", Typeflag: tar.TypeReg}, tar.Header{Name: "b", Typeflag: tar.TypeReg})
	b.packed = whole[:1100]
	folder := t.TempDir()
	if code := Run(t.Context(), Program{}, []string{"sb", "cp", "b1:folder", folder}, Streams{In: http.NoBody, Out: io.Discard, Err: io.Discard}, nil); code == 0 {
		t.Error("it ended well")
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

// TestFilesAndFoldersGoIn with their links, and without what has no use inside.
func TestFilesAndFoldersGoIn(t *testing.T) {
	b := newBoxes()
	t.Setenv("AUREA_SERVER", b.serve(t).URL)
	folder := filepath.Join(t.TempDir(), "src")
	if err := os.MkdirAll(filepath.Join(folder, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"one": "1", "sub/two": "2"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("sub/two", filepath.Join(folder, "link")); err != nil {
		t.Fatal(err)
	}
	run := func(stdin string, args ...string) string {
		t.Helper()
		var out bytes.Buffer
		if code := Run(t.Context(), Program{}, append([]string{"sb", "cp"}, args...), Streams{In: strings.NewReader(stdin), Out: &out, Err: os.Stderr}, nil); code != 0 {
			t.Fatalf("%v ended with %d", args, code)
		}
		return out.String()
	}
	run("", folder, "mine:")
	run("", folder, "mine:/data")
	run("", filepath.Join(folder, "one"), "mine:/workspace/")
	run("said", "-", "mine:in.txt")
	for name, want := range map[string]string{
		"/workspace/src/one": "1", "/workspace/src/sub/two": "2", "/workspace/src/link": "sub/two", "/data/sub/two": "2", "/workspace/one": "1", "/workspace/in.txt": "said",
	} {
		if b.files[name] != want {
			t.Errorf("%s is %q", name, b.files[name])
		}
	}
	if got := run("", "mine:notes.txt", "-"); got != "remember\n" {
		t.Errorf("%q came out", got)
	}
	run("", "mine:notes.txt", folder)
	if got, err := os.ReadFile(filepath.Join(folder, "notes.txt")); err != nil || string(got) != "remember\n" {
		t.Errorf("%q, %v", got, err)
	}
	if code := Run(t.Context(), Program{}, []string{"sb", "cp", "a", "b"}, Streams{Out: io.Discard, Err: io.Discard}, nil); code != ExitInvalid {
		t.Errorf("ended with %d", code)
	}
}
